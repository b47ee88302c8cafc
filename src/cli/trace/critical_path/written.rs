//! What `flowspace trace critical-path` prints of its own analysis. A path of millions of stretches is written as it is walked: it is never held as text or values.

use super::{Found, quoted, right, table};
use crate::trace::critical::shares::{NextPath, Share};
use crate::trace::critical::{Stretch, UnitKind, tiling};
use serde::{Serialize, Serializer};
use std::io::{self, Write};

fn us(ns: i64) -> String {
    format!("{:.3}", ns as f64 / 1e3)
}

fn share(part: i64, whole: i64) -> String {
    format!("{:.2}", 100.0 * part as f64 / whole.max(1) as f64)
}

/// The longest stretches, longest first; of equals the earlier first.
fn longest(path: &[Stretch], most: usize) -> Vec<&Stretch> {
    let key = |s: &Stretch| (std::cmp::Reverse(s.end - s.start), s.start);
    let mut out: Vec<&Stretch> = Vec::with_capacity(most + 1);
    for s in path {
        if out.len() < most || out.last().is_some_and(|last| key(s) < key(last)) {
            let at = out.partition_point(|other| key(other) <= key(s));
            out.insert(at, s);
            out.truncate(most);
        }
    }
    out
}

/// Time of a part, as JSON has it.
#[derive(Serialize)]
struct PartTime {
    part: tiling::Part,
    ns: i64,
}

fn parts(path: &[Stretch]) -> Vec<PartTime> {
    tiling::by_part(path).into_iter().map(|(part, ns)| PartTime { part, ns }).collect()
}

/// A stretch, as JSON has it.
#[derive(Serialize)]
struct Written<'a> {
    start_ns: i64,
    ns: i64,
    part: tiling::Part,
    cause: String,
    event: Option<u32>,
    name: &'a str,
    slack_ns: i64,
}

/// A path, made a stretch at a time.
struct Walked<'a>(&'a Found, &'a [Stretch]);

impl Serialize for Walked<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.1.iter().map(|s| self.0.written(s)))
    }
}

/// Who has the time, as JSON has it.
#[derive(Serialize)]
struct Shares<'a> {
    operator: &'a [Share],
    module: &'a [Share],
    layer: &'a [Share],
}

/// What changed, as JSON has it.
#[derive(Serialize)]
struct WhatIf<'a> {
    window_ns: i64,
    parts: Vec<PartTime>,
    path: Walked<'a>,
}

/// The answer, as JSON has it.
#[derive(Serialize)]
struct Answer<'a> {
    window_ns: i64,
    parts: Vec<PartTime>,
    path: Walked<'a>,
    near_ns: i64,
    shares: Shares<'a>,
    next_paths: &'a [NextPath],
    typical_launch_ns: i64,
    typical_gap_ns: i64,
    against_time: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    what_if: Option<WhatIf<'a>>,
}

impl Found {
    fn name(&self, unit: u32) -> &str {
        let event = self.graph.units.get(unit as usize).and_then(|u| self.events.list.get(u.event as usize));
        event.map_or("", |e| self.events.name(e))
    }

    /// What a stretch stands for: what runs, or for what is waited.
    fn cause(&self, s: &Stretch) -> String {
        match (s.unit == s.after, s.part) {
            (true, tiling::Part::Blocking) => match self.waited_for(s.unit) {
                Some(name) => format!("waited for {name}"),
                None => "waited for nothing that was recorded".into(),
            },
            (true, _) => String::new(),
            _ => s.cause().to_owned(),
        }
    }

    /// The operation that a blocking call waited for.
    fn waited_for(&self, unit: u32) -> Option<&str> {
        let before = |unit: u32, kind: UnitKind| {
            let mut from = self.graph.incoming(unit as usize).iter().map(|e| e.from);
            from.find(|&f| self.graph.units[f as usize].kind == kind)
        };
        let operation = before(before(unit, UnitKind::Wait)?, UnitKind::Device)?;
        Some(self.name(operation))
    }

    pub(super) fn text(&self, alone: bool) -> String {
        let step = self.graph.window.1 - self.graph.window.0;
        let mut out = format!(
            "window {} us, critical path of {} stretches; typical delays: {} us from call to operation, {} us between operations of a stream\n",
            us(step),
            self.path.len(),
            us(self.graph.typical_launch),
            us(self.graph.typical_gap)
        );
        let mut t = table(&["part", "us", "%"]);
        let parts = tiling::by_part(&self.path);
        for (part, ns) in &parts {
            t.add_row([part.word().to_owned(), us(*ns), share(*ns, step)]);
        }
        let sum: i64 = parts.iter().map(|p| p.1).sum();
        t.add_row(["sum".to_owned(), us(sum), share(sum, step)]);
        out.push_str(&right(t, &[1, 2]));
        if alone && parts.iter().any(|p| p.0 == tiling::Part::Communication) {
            out.push_str("communication: --peers tells waiting for a slower rank from moving bytes\n");
        }
        let mut t = table(&["longest stretches: at (us)", "us", "part", "what"]);
        for s in longest(&self.path, 10) {
            let what = [self.name(s.unit).to_owned(), self.cause(s)].into_iter().filter(|w| !w.is_empty());
            let what = what.collect::<Vec<_>>().join(": ").chars().take(100).collect::<String>();
            t.add_row([us(s.start - self.graph.window.0), us(s.end - s.start), s.part.word().to_owned(), what]);
        }
        out.push_str(&right(t, &[0, 1]));
        for (what, list) in self.groups.iter().filter(|g| !g.1.is_empty()) {
            let near = format!("slack <= {} us", us(self.near_ns));
            let mut t = table(&[what, "critical (us)", "%", &near]);
            for s in list.iter().take(10) {
                let name: String = s.name.chars().take(80).collect();
                t.add_row([name, us(s.critical_ns), share(s.critical_ns, step), us(s.near_ns)]);
            }
            out.push_str(&right(t, &[1, 2, 3]));
        }
        if !self.next.is_empty() {
            let mut t = table(&["next paths: shorter by (us)", "own units", "own time (us)", "from", "to", "longest"]);
            for p in &self.next {
                let longest: String = p.longest.chars().take(60).collect();
                t.add_row([us(p.slack_ns), p.units.to_string(), us(p.own_ns), us(p.from_ns), us(p.to_ns), longest]);
            }
            out.push_str(&right(t, &[0, 1, 2, 3, 4]));
        }
        if self.graph.against_time > 0 {
            out.push_str(&format!(
                "{} dependencies against the recorded times were left out\n",
                self.graph.against_time
            ));
        }
        if let Some((ns, path)) = &self.changed {
            out.push_str(&format!(
                "what if: {} us instead of {} us ({} %); its path:\n",
                us(*ns),
                us(step),
                format_args!("{:+.2}", 100.0 * (ns - step) as f64 / step.max(1) as f64)
            ));
            let mut t = table(&["part", "us", "%"]);
            for (part, part_ns) in tiling::by_part(path) {
                t.add_row([part.word().to_owned(), us(part_ns), share(part_ns, *ns)]);
            }
            out.push_str(&right(t, &[1, 2]));
        }
        out
    }

    fn written(&self, s: &Stretch) -> Written<'_> {
        let event = self.events.list.get(self.graph.units[s.unit as usize].event as usize);
        Written {
            start_ns: s.start - self.graph.window.0,
            ns: s.end - s.start,
            part: s.part,
            cause: self.cause(s),
            event: event.map(|e| e.index),
            name: self.name(s.unit),
            slack_ns: self.slack.ns[s.unit as usize],
        }
    }

    pub(super) fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        let [(_, operator), (_, module), (_, layer)] = &self.groups;
        let answer = Answer {
            window_ns: self.graph.window.1 - self.graph.window.0,
            parts: parts(&self.path),
            path: Walked(self, &self.path),
            near_ns: self.near_ns,
            shares: Shares { operator, module, layer },
            next_paths: &self.next,
            typical_launch_ns: self.graph.typical_launch,
            typical_gap_ns: self.graph.typical_gap,
            against_time: self.graph.against_time,
            what_if: self.changed.as_ref().map(|(ns, path)| WhatIf {
                window_ns: *ns,
                parts: parts(path),
                path: Walked(self, path),
            }),
        };
        serde_json::to_writer_pretty(&mut *out, &answer)?;
        out.write_all(b"\n")
    }

    pub(super) fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"start_ns,duration_ns,part,cause,event,name,slack_ns\n")?;
        self.path.iter().map(|s| self.written(s)).try_for_each(|s| {
            let event = s.event.map_or(String::new(), |index| index.to_string());
            let (word, cause, name) = (s.part.word(), quoted(&s.cause), quoted(s.name));
            writeln!(out, "{},{},{word},{cause},{event},{name},{}", s.start_ns, s.ns, s.slack_ns)
        })
    }
}
