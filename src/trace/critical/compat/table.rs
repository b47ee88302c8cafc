//! Events as HTA 0.6.1 holds them: which are kept, how times are rounded, which belong to which launch, which steps are dropped.
//! The rules are those of facebookresearch/HolisticTraceAnalysis, tag v0.6.1 (MIT), read from its sources; the code is our own.

use crate::trace::critical::symbols::Symbols;
use crate::trace::kineto::{Reader, Seen, SeenArgs, Wrong, into, into_from};
use crate::trace::raw::Raw;
use crate::trace::{TraceError, TraceErrors};
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;

/// An event. Times are microseconds since the first event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// Position in `traceEvents`: the event's identity.
    pub index: u32,
    /// Name, a number of [`Table::symbols`].
    pub name: u32,
    /// Category, a number of [`Table::symbols`].
    pub category: u32,
    /// Process, a number of [`Table::tracks`].
    pub pid: u32,
    /// Thread, a number of [`Table::tracks`].
    pub tid: u32,
    /// Start, us.
    pub ts: f64,
    /// Duration, us; may be -1 where rounding turned start and end round.
    pub dur: f64,
    /// Stream; -1 where there is none.
    pub stream: i64,
    /// Correlation; -1 where there is none.
    pub correlation: i64,
    /// Index of the event on the other side; 0 where it is missing, -1 without a correlation.
    pub partner: i64,
    /// Stream of the CUDA event that is waited for; -1 where there is none.
    pub wait_stream: i64,
    /// Correlation of the call that recorded the CUDA event that is waited for; -1 where there is none.
    pub wait_record: i64,
    /// `memory bandwidth (GB/s)` of a copy or fill; 0 where there is none.
    pub bandwidth: f64,
    /// `bytes` of a copy or fill; -1 where there are none.
    pub bytes: i64,
}

impl Row {
    /// End, us.
    pub fn end(&self) -> f64 {
        self.ts + self.dur
    }
}

/// All events that HTA would look at.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Events in HTA's order: that of the file, or device before host where the last step is dropped.
    pub rows: Vec<Row>,
    /// Names and categories of all events of the file.
    pub symbols: Symbols,
    /// Processes and threads.
    pub tracks: Symbols,
    /// Row of an event, by its index; `u32::MAX` where it is not kept.
    at: Vec<u32>,
}

impl Reader for Table {
    type Args<'a> = SeenArgs<'a>;
    type Beside = Self;
    const BESIDE: Option<fn() -> Self> = Some(Self::default);

    fn event<'a>(&mut self, index: u32, seen: &Seen<'a>) -> Result<(), Wrong> {
        let (Some(dur), Some(category)) = (seen.dur, seen.category.as_deref()) else { return Ok(()) };
        if category == "Trace" || dur == "null" {
            return Ok(());
        }
        let missing = |field: &str| (field.to_owned(), "missing".to_owned());
        let number = |field: &str, text: &str| {
            let value = text.parse::<f64>().ok().filter(|x| x.abs() < 1e18);
            let found: String = text.chars().take(40).collect();
            value.ok_or_else(|| (field.to_owned(), format!("expected microseconds, found {found}")))
        };
        let name = seen.name.as_deref().ok_or_else(|| missing("name"))?;
        let written = seen.ts.ok_or_else(|| missing("ts"))?;
        let (ts, dur) = (number("ts", written)?, number("dur", dur)?);
        if dur < 0.0 {
            return Err(("dur".to_owned(), format!("expected a duration of at least 0, found {dur} us")));
        }
        // Events may overlap by parts of a microsecond: HTA rounds inwards. Whole numbers stay what they are.
        let (start, end) = (ts.ceil(), (ts + dur).floor());
        let integer = |raw: &Option<Raw<'_>>| raw.as_ref().and_then(whole).unwrap_or(-1);
        let track = |raw: &Option<Raw<'_>>| match raw {
            Some(Raw::Str(text)) => text.clone().into_owned(),
            Some(other) => other.kind(),
            None => "0".to_owned(),
        };
        let args = &seen.args;
        let row = Row {
            index,
            name: self.symbols.add(name),
            category: self.symbols.add(category),
            pid: self.tracks.add(&track(&seen.pid)),
            tid: self.tracks.add(&track(&seen.tid)),
            ts: start,
            dur: end - start,
            stream: integer(&args.stream),
            correlation: integer(&args.correlation),
            partner: -1,
            wait_stream: integer(&args.wait_on_stream),
            wait_record: integer(&args.wait_on_record),
            bandwidth: match &args.bandwidth {
                Some(Raw::Float(x)) => *x,
                Some(other) => other.integer().map_or(0.0, |i| i as f64),
                None => 0.0,
            },
            bytes: integer(&args.bytes),
        };
        self.rows.push(row);
        Ok(())
    }

    fn join(&mut self, later: Self, places: u32) {
        let (names, tracks) = (self.symbols.join(&later.symbols), self.tracks.join(&later.tracks));
        let of = |numbers: &[u32], number: u32| numbers.get(number as usize).copied().unwrap_or_default();
        self.rows.extend(later.rows.iter().map(|r| Row {
            index: r.index + places,
            name: of(&names, r.name),
            category: of(&names, r.category),
            pid: of(&tracks, r.pid),
            tid: of(&tracks, r.tid),
            ..*r
        }));
    }
}

impl Table {
    /// Reads a file, plain or gzip.
    ///
    /// # Errors
    /// [`TraceErrors`]: what cannot be read; a trace without complete events.
    pub fn read(path: &Path) -> Result<Self, TraceErrors> {
        let mut table = Self::default();
        into(path, &mut table)?;
        table.finished(path)
    }

    /// Reads uncompressed bytes; `path` is for messages.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_from(source: impl Read, path: &Path) -> Result<Self, TraceErrors> {
        let mut table = Self::default();
        into_from(source, path, &mut table)?;
        table.finished(path)
    }

    fn finished(mut self, path: &Path) -> Result<Self, TraceErrors> {
        if self.rows.is_empty() {
            return Err(TraceError::new(path, "this trace has no events with a duration and a category").into());
        }
        self.finish();
        Ok(self)
    }

    /// The row of an event.
    pub fn row(&self, index: i64) -> Option<usize> {
        let at = *self.at.get(usize::try_from(index).ok()?)?;
        (at != u32::MAX).then_some(at as usize)
    }

    /// The name of an event.
    pub fn name(&self, row: &Row) -> &str {
        self.symbols.name(row.name)
    }

    fn finish(&mut self) {
        self.number();
        self.pair();
        let first = self.rows.iter().map(|r| r.ts).fold(f64::INFINITY, f64::min);
        for row in &mut self.rows {
            row.ts -= first;
        }
        self.drop_last_step();
        self.number();
    }

    fn number(&mut self) {
        let most = self.rows.iter().map(|r| r.index).max().unwrap_or(0);
        self.at = vec![u32::MAX; most as usize + 1];
        for (at, row) in self.rows.iter().enumerate() {
            self.at[row.index as usize] = at as u32;
        }
    }

    /// Whether an event counts as one of the device.
    pub fn on_device(&self) -> impl Fn(&Row) -> bool + use<> {
        let syncs = [self.symbols.find("Event Sync"), self.symbols.find("Context Sync")];
        move |row| (row.stream >= 0 && row.correlation >= 0) || syncs.contains(&Some(row.name))
    }

    /// Calls and what they launched point at each other; of several with the same correlation the last one counts.
    fn pair(&mut self) {
        let on_device = self.on_device();
        let mut last: [HashMap<i64, u32, RandomState>; 2] = Default::default();
        for row in self.rows.iter_mut() {
            row.partner = row.correlation.min(0);
            if row.correlation != -1 {
                last[usize::from(on_device(row))].insert(row.correlation, row.index);
            }
        }
        for row in self.rows.iter_mut().filter(|r| r.correlation != -1) {
            if let Some(&other) = last[usize::from(!on_device(row))].get(&row.correlation) {
                row.partner = other.into();
            }
        }
    }

    /// Of a trace of several steps the last one goes, and device events whose calls went.
    fn drop_last_step(&mut self) {
        let steps = self.symbols.mask(|name| {
            name.strip_prefix("ProfilerStep#").is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()))
        });
        if steps.iter().filter(|s| **s).count() < 2 {
            return;
        }
        let on_device = self.on_device();
        let host = || self.rows.iter().filter(|r| !on_device(r));
        if host().next().is_none() {
            return;
        }
        let latest = host().filter(|r| steps[r.name as usize]).map(|r| r.ts).fold(f64::NEG_INFINITY, f64::max);
        let earliest = || host().map(|r| r.ts).fold(f64::INFINITY, f64::min);
        let limit = if latest == f64::NEG_INFINITY { earliest() } else { latest };
        let calls: HashSet<i64, RandomState> = host().filter(|r| r.ts < limit).map(|r| r.correlation).collect();
        let device = self.rows.iter().filter(|r| on_device(r) && calls.contains(&r.correlation));
        self.rows = device.chain(host().filter(|r| r.ts < limit)).copied().collect();
    }
}

/// A whole number, also in quotes or with digits after the point that are cut off.
fn whole(raw: &Raw<'_>) -> Option<i64> {
    match raw {
        Raw::Float(x) if x.is_finite() => Some(*x as i64),
        other => other.integer(),
    }
}
