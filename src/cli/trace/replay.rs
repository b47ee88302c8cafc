//! `flowspace trace replay`.

use super::link::{Sources, linked};
use crate::cli::Failure;
use crate::cli::map::Format;
use crate::system::System;
use crate::trace::link::{LinkedNode, LinkedTrace, NodeKind, Ns, unlink};
use crate::trace::names::instead_of;
use crate::trace::replay::retime::{Retimed, Target, retime};
use crate::trace::replay::{Delays, Figures, Replay, Timing, recorded};
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Arguments of `flowspace trace replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Linked trace; or give --device, and perhaps --host.
    pub linked: Option<PathBuf>,
    /// The two traces.
    #[command(flatten)]
    pub sources: Sources,
    /// Delays between calls and what they launch, and between operations of the device.
    #[arg(long, value_enum, default_value = "typical")]
    pub delays: DelayChoice,
    /// What if: multiply the durations of some device operations. WHAT is `compute`, `communication`, `memory`, `device` (all of
    /// them), or a part of their name. May be given more than once.
    #[arg(long, value_name = "WHAT=FACTOR", value_parser = scale)]
    pub scale: Vec<Scale>,
    /// Time kernels and collectives anew on this system (a system file): collectives by its network, kernels by what its chip's libraries take. What
    /// is not known well enough keeps its recorded time; host time is kept.
    #[arg(long, value_name = "FILE")]
    pub system: Option<PathBuf>,
    /// Format of the answer on standard output.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
}

/// [`Delays`], as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DelayChoice {
    /// The trace's median for each kind of operation.
    Typical,
    /// Those recorded for each operation.
    Recorded,
}

/// A factor for the durations of some operations.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    what: String,
    factor: f64,
}

fn scale(text: &str) -> Result<Scale, String> {
    let (what, factor) = text.rsplit_once(['=', ':']).ok_or("expected WHAT=FACTOR such as communication=0.5")?;
    let factor: f64 = factor.trim().parse().map_err(|_| format!("{factor:?} is no number"))?;
    if !(0.0..=1e6).contains(&factor) {
        return Err(format!("expected a factor from 0 to 1000000, found {factor}"));
    }
    if what.trim().is_empty() {
        return Err("expected compute, communication, memory, device, or a part of a name before `=`".into());
    }
    Ok(Scale { what: what.trim().to_owned(), factor })
}

impl Scale {
    fn applies(&self, node: &LinkedNode) -> bool {
        match self.what.as_str() {
            "device" => true,
            "communication" => node.is_communication(),
            "compute" => node.kind == NodeKind::Kernel && !node.is_communication(),
            "memory" => node.kind != NodeKind::Kernel,
            part => node.name.contains(part),
        }
    }
}

/// Replays and prints.
///
/// # Errors
/// [`Failure`]: a trace that cannot be read or has no order.
pub fn run(args: &ReplayArgs) -> Result<i32, Failure> {
    let trace = linked(args.linked.as_deref(), &args.sources)?;
    let device = || trace.nodes.iter().filter(|n| n.kind.on_device());
    for s in &args.scale {
        if !device().any(|n| s.applies(n)) {
            return Err(Failure::input(format!(
                "--scale {}: the trace has no such device operation; {}",
                s.what,
                instead_of(&s.what, device().map(|n| (&*n.name, n.dur_ns)))
            )));
        }
    }
    let delays = match args.delays {
        DelayChoice::Typical => Delays::Typical,
        DelayChoice::Recorded => Delays::Recorded,
    };
    let timing = Timing::new(&trace, delays).map_err(|e| Failure::input(e.to_string()))?;
    let retimed = args.system.as_deref().map(|path| on_system(&trace, path)).transpose()?;
    let replay = timing.replay(&trace, |at, node| {
        let factor: f64 = args.scale.iter().filter(|s| s.applies(node)).map(|s| s.factor).product();
        let ns = retimed.as_ref().and_then(|r| r.ns.get(&at)).copied().unwrap_or(node.dur_ns);
        if factor == 1.0 { ns } else { (ns as f64 * factor).round() as u64 }
    });
    let recorded = recorded(&trace);
    let text = if args.json || args.format == Format::Json {
        as_json(&trace, &recorded, &replay, &timing, retimed.as_ref())
    } else {
        let header = retimed.as_ref().map(retimed_text).unwrap_or_default();
        format!("{header}{}", as_text(&trace, &recorded, &replay, &timing))
    };
    crate::cli::print(&text);
    Ok(0)
}

/// Durations on another system.
fn on_system(trace: &LinkedTrace, path: &Path) -> Result<Retimed, Failure> {
    let system = System::build(&System::inlined(&System::load(path)?)?)?;
    let described = trace.nodes.iter().any(|n| n.host().is_some());
    let host = if described { Some(unlink::host_trace(trace, Path::new("linked trace"))?) } else { None };
    let target = Target { system: &system, recorded_on: None, communication: true };
    retime(trace, host.as_ref(), target).map_err(Failure::input)
}

fn retimed_text(r: &Retimed) -> String {
    let mut out = format!(
        "timed anew: {} of {} communication kernels, {} of {} others; {} of kernels keep their recorded time\n",
        r.communication.0,
        r.communication.1,
        r.compute.0,
        r.compute.1,
        ms(Ns::try_from(r.kept_ns).unwrap_or(Ns::MAX))
    );
    for reason in &r.reasons {
        out.push_str(&format!("  recorded time kept: {reason}\n"));
    }
    out
}

fn ms(ns: Ns) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

/// What began later than anything explains: words, and keys of the JSON.
const UNEXPLAINED: [(&str, &str); 4] =
    [("kernels", "kernels"), ("copies", "copies"), ("fills", "fills"), ("operations of launched graphs", "graphs")];

/// A delay that nothing explains.
#[derive(Debug, Serialize)]
struct Late<'t> {
    /// Its length.
    ns: Ns,
    /// What began late.
    name: &'t str,
    /// When it began, from the trace's begin.
    start_ns: Ns,
}

/// The longest delays that nothing explains.
fn unexplained_longest<'t>(trace: &'t LinkedTrace, timing: &Timing) -> Vec<Late<'t>> {
    let late = |&(ns, node): &(Ns, u32)| trace.node(node).map(|n| Late { ns, name: &n.name, start_ns: n.start_ns });
    timing.unexplained_longest.iter().filter_map(late).collect()
}

/// What is shown of each schedule.
fn rows(f: &Figures) -> [(&'static str, &'static str, Ns); 8] {
    [
        ("step", "step_ns", f.step_ns()),
        ("whole trace", "span_ns", f.span_ns),
        ("compute kernels", "compute_ns", f.compute_ns),
        ("communication kernels", "communication_ns", f.communication_ns),
        ("copies and fills", "memory_ns", f.memory_ns),
        ("exposed communication", "exposed_communication_ns", f.exposed_communication_ns),
        ("hidden communication", "hidden_communication_ns", f.hidden_communication_ns),
        ("device idle", "idle_ns", f.idle_ns),
    ]
}

fn as_text(trace: &LinkedTrace, recorded: &Figures, replay: &Replay, timing: &Timing) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "recorded", "replayed", "difference"]);
    for (a, b) in rows(recorded).iter().zip(rows(&replay.figures)) {
        let difference =
            if a.2 == 0 { String::new() } else { format!("{:+.2} %", 100.0 * (b.2 - a.2) as f64 / a.2 as f64) };
        table.add_row([a.0.to_owned(), ms(a.2), ms(b.2), difference]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut out = format!("{table}\n");
    if recorded.steps.len() > 1 {
        for (a, b) in recorded.steps.iter().zip(&replay.figures.steps) {
            out.push_str(&format!("{}: recorded {}, replayed {}\n", a.name, ms(a.ns), ms(b.ns)));
        }
    }
    let path = &replay.path;
    out.push_str(&format!(
        "critical path: {} with {} device operations\n",
        ms(path.length_ns()),
        path.operations.len()
    ));
    for (share, ns) in &path.shares {
        out.push_str(&format!("  {}: {}\n", share.word(), ms(*ns)));
    }
    let unexplained: Ns = timing.unexplained_ns.iter().sum();
    if unexplained > 0 {
        let of = UNEXPLAINED.iter().zip(timing.unexplained_ns).filter(|(_, ns)| *ns > 0);
        let list: Vec<String> = of.map(|((word, _), ns)| format!("{} of {word}", ms(ns))).collect();
        out.push_str(&format!(
            "delays of device operations that no dependency and no typical delay explains: {} ({})\n",
            ms(unexplained),
            list.join(", ")
        ));
        for late in unexplained_longest(trace, timing) {
            let name: String = late.name.chars().take(80).collect();
            out.push_str(&format!("  {} before {name} at {}\n", ms(late.ns), ms(late.start_ns)));
        }
    }
    out
}

fn as_json(
    trace: &LinkedTrace,
    recorded: &Figures,
    replay: &Replay,
    timing: &Timing,
    retimed: Option<&Retimed>,
) -> String {
    let figures = |f: &Figures| {
        let mut map: serde_json::Map<String, serde_json::Value> =
            rows(f).iter().map(|(_, key, ns)| ((*key).to_owned(), json!(ns))).collect();
        map.insert("devices".into(), json!(f.devices));
        map.insert("steps".into(), f.steps.iter().map(|s| json!({ "name": s.name, "ns": s.ns })).collect());
        map
    };
    let shares: serde_json::Map<String, serde_json::Value> =
        replay.path.shares.iter().map(|(s, ns)| (s.word().to_owned(), json!(ns))).collect();
    let value = json!({
        "recorded": figures(recorded),
        "replayed": figures(&replay.figures),
        "critical_path": { "length_ns": replay.path.length_ns(), "shares_ns": shares },
        "unexplained_ns": timing.unexplained_ns.iter().sum::<Ns>(),
        "unexplained_of_ns": UNEXPLAINED.iter().zip(timing.unexplained_ns).map(|((_, key), ns)| ((*key).to_owned(), json!(ns))).collect::<serde_json::Map<_, _>>(),
        "unexplained_longest": unexplained_longest(trace, timing),
        "retimed": retimed,
    });
    format!("{value:#}\n")
}
