//! What if: other durations, the graph run again. Queues are simulated: an operation begins when its call, its stream and what it waited
//! for let it, with the trace's typical delays where another of these decides than did in the recording.

use super::events::{Event, Events, Kind};
use super::graph::{Graph, UnitKind};
use super::run::{Run, without_launches};
use crate::trace::names::instead_of;
use std::collections::HashMap;

/// Which events a change means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// All whose name holds this text.
    Name(String),
    /// Kernels that compute.
    Compute,
    /// Communication kernels, and collectives that the host carries out.
    Communication,
    /// Copies and fills.
    Memory,
    /// All of the device.
    Device,
    /// Operators and calls of the host.
    Host,
}

impl Choice {
    /// Reads `name~TEXT`, or a word.
    ///
    /// # Errors
    /// A message that says what would fit.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "compute" => Ok(Self::Compute),
            "communication" => Ok(Self::Communication),
            "memory" => Ok(Self::Memory),
            "device" => Ok(Self::Device),
            "host" => Ok(Self::Host),
            other => match other.strip_prefix("name~") {
                Some(part) if !part.is_empty() => Ok(Self::Name(part.to_owned())),
                _ => Err(format!(
                    "expected `name~TEXT` or one of compute, communication, memory, device, host; found {text:?}"
                )),
            },
        }
    }

    /// Whether it means an event.
    pub fn means(&self, events: &Events, event: &Event) -> bool {
        match self {
            Self::Name(part) => {
                let (name, part) = (events.name(event).as_bytes(), part.as_bytes());
                name.windows(part.len()).any(|w| w.eq_ignore_ascii_case(part))
            }
            Self::Compute => event.kind == Kind::Kernel,
            Self::Communication => event.kind.communicates(),
            Self::Memory => event.kind == Kind::Copy,
            Self::Device => event.kind.on_device(),
            Self::Host => matches!(event.kind, Kind::Operator | Kind::Call),
        }
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Name(part) => return write!(f, "name~{part}"),
            Self::Compute => "compute",
            Self::Communication => "communication",
            Self::Memory => "memory",
            Self::Device => "device",
            Self::Host => "host",
        })
    }
}

/// What is changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// Factors for durations; several of them multiply.
    pub scale: Vec<(Choice, f64)>,
    /// Launch calls and the delays behind them take no time.
    pub no_launch: bool,
    /// Nanoseconds of device operations by recorded start and correlation (0 without one): those of another system. Factors multiply these.
    pub durations: HashMap<(i64, i64), u64>,
}

impl Changes {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.scale.is_empty() && !self.no_launch && self.durations.is_empty()
    }
}

/// A choice that means no event of the window, and what there is instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmeant {
    /// The choice.
    pub choice: Choice,
    instead: String,
}

impl Unmeant {
    fn new(events: &Events, graph: &Graph, choice: &Choice) -> Self {
        let inside = || graph.units.iter().filter_map(|u| events.list.get(u.event as usize));
        let instead = match choice {
            Choice::Name(part) => {
                instead_of(part, inside().map(|e| (events.name(e), u64::try_from(e.end - e.start).unwrap_or(0))))
            }
            _ => {
                let words = [Choice::Compute, Choice::Communication, Choice::Memory, Choice::Device, Choice::Host];
                let there = words.iter().filter(|c| inside().any(|e| c.means(events, e)));
                format!("it has {}", there.map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
        };
        Self { choice: choice.clone(), instead }
    }
}

impl std::fmt::Display for Unmeant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: the window has no such event; {}", self.choice, self.instead)
    }
}

/// Runs a graph with the changes.
///
/// # Errors
/// A choice that means no event of the window.
pub fn run(events: &Events, graph: &Graph, changes: &Changes) -> Result<Run, Unmeant> {
    let inside = |u: &super::graph::Unit| events.list.get(u.event as usize);
    for (choice, _) in &changes.scale {
        if !graph.units.iter().filter_map(inside).any(|e| choice.means(events, e)) {
            return Err(Unmeant::new(events, graph, choice));
        }
    }
    // By name and kind once, not by unit.
    let mut factors = std::collections::HashMap::<(u32, Kind), f64, foldhash::fast::RandomState>::default();
    for event in graph.units.iter().filter_map(inside) {
        factors
            .entry((event.name, event.kind))
            .or_insert_with(|| changes.scale.iter().filter(|(c, _)| c.means(events, event)).map(|(_, f)| f).product());
    }
    let launching: std::collections::HashSet<i64, foldhash::fast::RandomState> =
        events.list.iter().filter(|e| e.kind.on_device()).map(|e| e.correlation).collect();
    let duration = |unit: &super::graph::Unit| {
        let ns = unit.end - unit.start;
        let Some(event) = inside(unit) else { return ns };
        if changes.no_launch
            && event.kind == Kind::Call
            && unit.kind == UnitKind::Host
            && event.correlation != -1
            && launching.contains(&event.correlation)
        {
            return 0;
        }
        let other =
            event.kind.on_device().then(|| changes.durations.get(&(event.start, event.correlation.max(0)))).flatten();
        let ns = other.and_then(|ns| i64::try_from(*ns).ok()).unwrap_or(ns);
        match factors.get(&(event.name, event.kind)) {
            Some(&factor) if factor != 1.0 => (ns as f64 * factor).round() as i64,
            _ => ns,
        }
    };
    Ok(match changes.no_launch {
        true => Run::new(graph, duration, without_launches),
        false => Run::new(graph, duration, |e| e.lag),
    })
}
