//! The events of a trace that a timeline is made of, in whole nanoseconds: 48 bytes each, names held once.

use super::symbols::Symbols;
use crate::trace::collective::host_collective;
use crate::trace::kineto::{Category, Reader, Seen, SeenArgs, Wrong, into, into_from};
use crate::trace::raw::Raw;
use crate::trace::{TraceError, TraceErrors};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An operator of the host.
    Operator,
    /// A range named by the user or by PyTorch.
    Annotation,
    /// A Python function.
    Python,
    /// A call of runtime or driver.
    Call,
    /// A kernel that computes.
    Kernel,
    /// A kernel that communicates.
    Communication,
    /// A collective or message that a thread of the host carries out.
    Exchange,
    /// A copy or fill on the device.
    Copy,
}

impl Kind {
    /// Whether it runs on a device.
    pub fn on_device(self) -> bool {
        matches!(self, Self::Kernel | Self::Communication | Self::Copy)
    }

    /// Whether it moves data between ranks.
    pub fn communicates(self) -> bool {
        matches!(self, Self::Communication | Self::Exchange)
    }

    /// Whether a host thread works while it is innermost. What only names a range does not.
    pub fn host_works(self) -> bool {
        matches!(self, Self::Operator | Self::Call | Self::Exchange)
    }

    /// A range of the host by its name. Kineto before 2022 writes PyTorch's own ranges (`ProfilerStep#5`, `Optimizer.step#SGD.step`) as operators;
    /// the names of operators have no `#`.
    fn of_range(name: &str, said: Self) -> Self {
        if host_collective(name).is_some() {
            Self::Exchange
        } else if name.contains('#') {
            Self::Annotation
        } else {
            said
        }
    }
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Position in `traceEvents`.
    pub index: u32,
    /// Name, a number of [`Events::names`].
    pub name: u32,
    /// Process and thread, a place in [`Events::tracks`].
    pub track: u32,
    /// Start, ns.
    pub start: i64,
    /// End, ns.
    pub end: i64,
    /// Ties a call to what it launched; -1 without one.
    pub correlation: i64,
    /// Stream; -1 where there is none.
    pub stream: i32,
    /// Device; -1 where there is none.
    pub device: i32,
    /// Kind.
    pub kind: Kind,
}

/// The events of one trace.
#[derive(Debug, Clone, Default)]
pub struct Events {
    /// Events in the file's order.
    pub list: Vec<Event>,
    /// Names, processes, threads and collectives.
    pub names: Symbols,
    /// Processes and threads, numbers of [`Events::names`].
    pub tracks: Vec<(u32, u32)>,
    /// Places of tracks, by names and, where both are numbers, by these.
    known: HashMap<(u32, u32), u32, RandomState>,
    numbered: HashMap<(i64, i64), u32, RandomState>,
    /// Process group and collective of communication kernels, by index.
    collectives: HashMap<u32, u32, RandomState>,
    /// By name, whether a kernel of it communicates.
    communicating: Vec<Option<bool>>,
}

impl Reader for Events {
    type Args<'a> = SeenArgs<'a>;
    type Beside = Self;
    const BESIDE: Option<fn() -> Self> = Some(Self::default);

    fn event<'a>(&mut self, index: u32, seen: &Seen<'a>) -> Result<(), Wrong> {
        if seen.phase.as_deref() != Some("X") || seen.dur.is_none() {
            return Ok(());
        }
        let Some(category) = Category::known(seen.category.as_deref().unwrap_or_default()) else { return Ok(()) };
        let name = seen.name.as_deref().ok_or_else(|| ("name".to_owned(), "missing".to_owned()))?;
        let kind = match category {
            Category::CpuOp => Kind::of_range(name, Kind::Operator),
            Category::UserAnnotation => Kind::of_range(name, Kind::Annotation),
            Category::PythonFunction => Kind::Python,
            Category::Runtime | Category::Driver => Kind::Call,
            Category::Kernel => Kind::Kernel,
            Category::Memcpy | Category::Memset => Kind::Copy,
            _ => return Ok(()),
        };
        let start = Seen::nanoseconds("ts", seen.ts)?;
        let duration = Seen::nanoseconds("dur", seen.dur)?;
        let wrong = |message: String| ("dur".to_owned(), message);
        if duration < 0 {
            return Err(wrong(format!("expected a duration of at least 0, found {duration} ns")));
        }
        let end = start.checked_add(duration).filter(|e| e.abs() < i64::MAX / 4 && start.abs() < i64::MAX / 4);
        let end = end.ok_or_else(|| wrong("the event lies more than 73 years from zero".into()))?;
        let integer = |raw: &Option<Raw<'_>>| raw.as_ref().and_then(Raw::integer);
        // A number that ties events together and cannot be read would untie them.
        if let Some(wrong) = seen.args.correlation.as_ref().filter(|c| c.integer().is_none()) {
            return Err((
                "args.correlation".to_owned(),
                format!("expected a whole number below 2^63, found {}", wrong.kind()),
            ));
        }
        let small = |raw: &Option<Raw<'_>>| integer(raw).and_then(|i| i32::try_from(i).ok());
        let track = self.place(seen.pid.as_ref(), seen.tid.as_ref());
        let name = self.names.add(name);
        let kind = if kind == Kind::Kernel && self.communicates(name) { Kind::Communication } else { kind };
        let args = &seen.args;
        if kind == Kind::Communication {
            let word = |raw: &Option<Raw<'_>>| raw.as_ref().and_then(Raw::text).unwrap_or_default().to_owned();
            let collective = self.names.add(&format!("{} {}", word(&args.group), word(&args.collective)));
            self.collectives.insert(index, collective);
        }
        let on_device = kind.on_device();
        let event = Event {
            index,
            name,
            track,
            start,
            end,
            correlation: integer(&args.correlation).unwrap_or(-1),
            stream: small(&args.stream).or_else(|| small(&seen.tid).filter(|_| on_device)).unwrap_or(-1),
            device: small(&args.device).or_else(|| small(&seen.pid).filter(|_| on_device)).unwrap_or(-1),
            kind,
        };
        self.list.push(event);
        Ok(())
    }

    fn join(&mut self, later: Self, places: u32) {
        let names = self.names.join(&later.names);
        let name = |number: u32| names.get(number as usize).copied().unwrap_or_default();
        let tracks: Vec<u32> = later.tracks.iter().map(|t| self.track_place((name(t.0), name(t.1)))).collect();
        let collectives = later.collectives.iter().map(|(at, collective)| (at + places, name(*collective)));
        self.collectives.extend(collectives);
        self.list.extend(later.list.iter().map(|e| Event {
            index: e.index + places,
            name: name(e.name),
            track: tracks.get(e.track as usize).copied().unwrap_or_default(),
            ..*e
        }));
    }
}

impl Events {
    /// Reads a file, plain or gzip.
    ///
    /// # Errors
    /// [`TraceErrors`]: what cannot be read; a trace without operators, calls and kernels.
    pub fn read(path: &Path) -> Result<Self, TraceErrors> {
        let mut out = Self::default();
        into(path, &mut out)?;
        out.checked(path)
    }

    /// Reads uncompressed bytes; `path` is for messages.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_from(source: impl Read, path: &Path) -> Result<Self, TraceErrors> {
        let mut out = Self::default();
        into_from(source, path, &mut out)?;
        out.checked(path)
    }

    fn checked(self, path: &Path) -> Result<Self, TraceErrors> {
        let works = |e: &Event| e.kind.on_device() || e.kind.host_works();
        if self.list.iter().any(works) {
            Ok(self)
        } else {
            let what = "this trace has no operators, calls or kernels (complete events of the categories cpu_op, cuda_runtime, kernel, ...)";
            Err(TraceError::new(path, what).into())
        }
    }

    /// The name of an event.
    pub fn name(&self, event: &Event) -> &str {
        self.names.name(event.name)
    }

    /// Process and thread of an event, numbers of [`Self::names`].
    pub fn track(&self, event: &Event) -> (u32, u32) {
        self.tracks[event.track as usize]
    }

    /// Process group and collective of a communication kernel; empty for all else.
    pub fn collective(&self, event: &Event) -> &str {
        self.collectives.get(&event.index).map_or("", |&c| self.names.name(c))
    }

    /// First start and last end, ns.
    pub fn span(&self) -> (i64, i64) {
        let ends = self.list.iter().map(|e| (e.start, e.end));
        ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0))
    }

    /// The place of a process and thread. Few there are, and each writes thousands of events: numbers are not made text again.
    fn place(&mut self, pid: Option<&Raw<'_>>, tid: Option<&Raw<'_>>) -> u32 {
        let numbers = match (pid, tid) {
            (Some(Raw::Int(pid)), Some(Raw::Int(tid))) => Some((*pid, *tid)),
            _ => None,
        };
        if let Some(&place) = numbers.and_then(|n| self.numbered.get(&n)) {
            return place;
        }
        let mut name = |raw: Option<&Raw<'_>>| match raw {
            Some(Raw::Str(text)) => self.names.add(text),
            Some(other) => self.names.add(&other.kind()),
            None => self.names.add("0"),
        };
        let track = (name(pid), name(tid));
        let place = self.track_place(track);
        if let Some(numbers) = numbers {
            self.numbered.insert(numbers, place);
        }
        place
    }

    /// The place of a process and thread by names.
    fn track_place(&mut self, track: (u32, u32)) -> u32 {
        *self.known.entry(track).or_insert_with(|| {
            self.tracks.push(track);
            self.tracks.len() as u32 - 1
        })
    }

    /// Whether a kernel communicates, by its name, which is looked at once.
    fn communicates(&mut self, name: u32) -> bool {
        let at = name as usize;
        if self.communicating.len() <= at {
            self.communicating.resize(at + 1, None);
        }
        let names = &self.names;
        self.communicating.get_mut(at).is_some_and(|known| {
            *known.get_or_insert_with(|| crate::trace::link::is_communication_kernel(names.name(name)))
        })
    }
}
