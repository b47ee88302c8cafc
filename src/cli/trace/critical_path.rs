//! `flowspace trace critical-path`.

mod written;

use crate::cli::{Failure, output};
use crate::system::System;
use crate::trace::critical::compat::{self, Compat, EdgeType, Table as Rows, WhatIf};
use crate::trace::critical::overlay::{self, Show};
use crate::trace::critical::shares::{By, NextPath, Share, next_paths, shares};
use crate::trace::critical::what_if::{self, Changes, Choice};
use crate::trace::critical::{Events, Graph, Peers, Run, Slack, Stretch, tiling, window};
use crate::trace::kineto;
use crate::trace::link::{LinkedNode, Steps, link, unlink};
use crate::trace::replay::retime::{Target, retime};
use crate::validate::traces;
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::json;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Arguments of `flowspace trace critical-path`.
#[derive(Debug, Args)]
pub struct CriticalPathArgs {
    /// Kineto trace, plain or gzip.
    pub file: PathBuf,
    /// Look at the time of host events whose name holds this text, such as ProfilerStep; the whole trace if left out.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub annotation: String,
    /// Which of them, counted from 0: one, or several as FIRST..LAST.
    #[arg(long, value_name = "N|N..M", default_value = "0", value_parser = instances)]
    pub instance: RangeInclusive<usize>,
    /// Answer as another tool does, to the digit.
    #[arg(long, value_enum, value_name = "TOOL", conflicts_with_all = ["scale", "remove", "no_launch", "system", "overlay", "peers"])]
    pub compat: Option<Tool>,
    /// With --compat: add edges without weight from launches to kernels, as CRITICAL_PATH_ADD_ZERO_WEIGHT_LAUNCH_EDGE=1 does.
    #[arg(long, requires = "compat")]
    pub launch_edges: bool,
    /// Traces of the other ranks: communication kernels are divided into waiting for the slowest rank and moving bytes.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub peers: Vec<PathBuf>,
    /// What if: multiply durations. WHAT is name~TEXT (a part of the name, in any case), or compute, communication, memory, device or host.
    #[arg(long, value_name = "WHAT=FACTOR", value_parser = scale)]
    pub scale: Vec<(Choice, f64)>,
    /// What if these took no time.
    #[arg(long, value_name = "WHAT", value_parser = Choice::parse)]
    pub remove: Vec<Choice>,
    /// What if launches took no time, neither on the host nor until the operation begins.
    #[arg(long)]
    pub no_launch: bool,
    /// What if the kernels ran on this system (a system file): their times by what its chip's libraries take, collectives by its network, what is not
    /// known times the ratio of bandwidths where the trace names its device.
    #[arg(long, value_name = "FILE")]
    pub system: Option<PathBuf>,
    /// Write the timeline with the path in it, for Perfetto and chrome://tracing.
    #[arg(long, value_name = "OUT")]
    pub overlay: Option<PathBuf>,
    /// Events that the overlay draws beside the path.
    #[arg(long, value_enum, default_value = "path", requires = "overlay")]
    pub show: ShowChoice,
    /// Events with at most so much slack count as nearly critical: percent of the window.
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    pub near: f64,
    /// How many paths are listed after the critical one, up to 1000.
    #[arg(long, value_name = "K", default_value = "3", value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub paths: u16,
    /// Format on standard output; CSV has one row for each stretch of the path.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// A tool that is answered like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Tool {
    /// HolisticTraceAnalysis 0.6.1.
    #[value(name = "hta-0.6.1")]
    Hta061,
}

/// [`Show`], as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ShowChoice {
    /// Those on the path.
    Path,
    /// Those that are nearly critical.
    Near,
    /// All of the window.
    All,
}

/// Format on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables.
    Text,
    /// JSON.
    Json,
    /// CSV.
    Csv,
}

fn instances(text: &str) -> Result<RangeInclusive<usize>, String> {
    let number = |t: &str| t.trim().parse::<usize>().map_err(|_| format!("expected N or N..M, found {text:?}"));
    let (first, last) = match text.split_once("..") {
        Some((a, b)) => (number(a)?, number(b)?),
        None => (number(text)?, number(text)?),
    };
    if last < first {
        return Err(format!("expected N..M with M at least N, found {text:?}"));
    }
    Ok(first..=last)
}

fn scale(text: &str) -> Result<(Choice, f64), String> {
    let (what, factor) = text.rsplit_once(['=', ':']).ok_or("expected WHAT=FACTOR such as name~gemm=0.5")?;
    let number: f64 = factor.trim().parse().map_err(|_| format!("{factor:?} is no number"))?;
    if !(0.0..=1e6).contains(&number) {
        return Err(format!("expected a factor from 0 to 1000000, found {factor}"));
    }
    Ok((Choice::parse(what.trim())?, number))
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|p| (0.0..=100.0).contains(p));
    number.ok_or_else(|| format!("expected percent from 0 to 100, found {text:?}"))
}

/// Finds the path and prints it.
///
/// # Errors
/// [`Failure`]: a trace that cannot be read, a window that is not there, an overlay that cannot be written.
pub fn run(args: &CriticalPathArgs) -> Result<i32, Failure> {
    output::check(&args.overlay, args.peers.iter().chain([&args.file]).cloned())?;
    if args.compat == Some(Tool::Hta061) {
        crate::cli::print(&compatible(args)?);
        return Ok(0);
    }
    let found = own(args)?;
    match args.format {
        Format::Text => crate::cli::print(&found.text(args.peers.is_empty())),
        Format::Json => crate::cli::print_by(|out| found.json(out)),
        Format::Csv => crate::cli::print_by(|out| found.csv(out)),
    }
    Ok(0)
}

fn at(file: &Path, message: impl std::fmt::Display) -> Failure {
    Failure::input(format!("{}: {message}", file.display()))
}

pub(super) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table
}

pub(super) fn right(mut table: Table, columns: &[usize]) -> String {
    for &c in columns {
        if let Some(column) = table.column_mut(c) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{table}\n")
}

/// The answer of HTA.
fn compatible(args: &CriticalPathArgs) -> Result<String, Failure> {
    let rows = Rows::read(&args.file)?;
    let asked = compat::Window { annotation: args.annotation.clone(), instances: args.instance.clone() };
    let found = Compat::new(&rows, &asked, args.launch_edges).map_err(|m| {
        // What HTA does not do, this program's own analysis may.
        let how = if m.contains("HTA 0.6.1 ") { "; without --compat the trace is analysed" } else { "" };
        at(&args.file, format!("{m}{how}"))
    })?;
    let graph = &found.graph;
    let of = |kind: EdgeType| {
        let all = graph.edges.iter().filter(|e| e.kind == kind);
        let critical = found.edges().filter(|e| e.kind == kind).count();
        (kind.name(), all.clone().count(), critical, all.map(|e| e.weight).sum::<f64>())
    };
    let types: Vec<_> = EdgeType::ALL.into_iter().map(of).collect();
    let what_if = [
        ("device_x0.5", WhatIf::Device, 0.5),
        ("communication_x0", WhatIf::Communication, 0.0),
        ("host_x0.5", WhatIf::Host, 0.5),
        ("launch_delay_x0", WhatIf::LaunchDelay, 0.0),
        ("kernel_kernel_delay_x0", WhatIf::KernelKernelDelay, 0.0),
    ]
    .map(|(name, what, factor)| (name, found.what_if(what, factor)));
    let breakdown = found.breakdown();
    let name = |index: u32| rows.row(index.into()).map_or("", |r| rows.name(&rows.rows[r]));
    let (nodes, events) = (found.nodes().count(), found.events());
    Ok(match args.format {
        Format::Csv => {
            let mut out = String::from("event,name,type,bound_by,weight_us\n");
            for e in found.edges() {
                let row = e.event.map(|r| &rows.rows[r as usize]);
                let (index, name) = row.map_or((String::new(), ""), |r| (r.index.to_string(), rows.name(r)));
                let line = [&index, &quoted(name), e.kind.name(), found.bound(e), &e.weight.to_string()].join(",");
                out.push_str(&line);
                out.push('\n');
            }
            out
        }
        Format::Json => {
            let map = |values: Vec<serde_json::Value>| -> serde_json::Map<_, _> {
                types.iter().map(|t| t.0.to_owned()).zip(values).collect()
            };
            let value = json!({
                "compat": "hta-0.6.1",
                "clipped_events": graph.clipped.len(),
                "node_list_len": graph.nodes.len(),
                "graph_nodes": graph.seen.len(),
                "graph_edges": graph.edges.len(),
                "edges_by_type": map(types.iter().map(|t| json!(t.1)).collect()),
                "weight_by_type_us": map(types.iter().map(|t| json!(t.3)).collect()),
                "graph_span_us": found.span(),
                "critical_path_length_us": found.length,
                "critical_nodes": nodes,
                "critical_edges": found.path.len(),
                "critical_edges_by_type": map(types.iter().map(|t| json!(t.2)).collect()),
                "critical_event_ids": events,
                "breakdown_us": breakdown,
                "whatif_length_us": what_if.iter().map(|(n, us)| ((*n).to_owned(), json!(us))).collect::<serde_json::Map<_, _>>(),
            });
            format!("{value:#}\n")
        }
        Format::Text => {
            let mut out = format!(
                "as HTA 0.6.1: critical path {} us of {} us from the first to the last node; {nodes} nodes, {} edges, {} events\n\
                 graph: {} nodes ({} of them with an edge), {} edges\n",
                found.length,
                found.span(),
                found.path.len(),
                events.len(),
                graph.nodes.len(),
                graph.seen.len(),
                graph.edges.len()
            );
            let mut t = table(&["edges", "all", "critical", "weight (us)"]);
            for (name, all, critical, weight) in &types {
                t.add_row([(*name).to_owned(), all.to_string(), critical.to_string(), weight.to_string()]);
            }
            out.push_str(&right(t, &[1, 2, 3]));
            let mut t = table(&["bound by", "us", "%"]);
            let total: f64 = breakdown.values().sum();
            for (name, us) in breakdown.iter().filter(|b| *b.1 != 0.0) {
                t.add_row([(*name).to_owned(), us.to_string(), format!("{:.3}", 100.0 * us / total)]);
            }
            out.push_str(&right(t, &[1, 2]));
            let mut t = table(&["critical event", "us", "name"]);
            for (index, us) in found.by_event().into_iter().take(5) {
                t.add_row([index.to_string(), us.to_string(), name(index).to_owned()]);
            }
            out.push_str(&right(t, &[0, 1]));
            let mut t = table(&["weights changed", "length (us)"]);
            for (name, us) in &what_if {
                t.add_row([(*name).to_owned(), us.to_string()]);
            }
            out.push_str(&right(t, &[1]));
            out
        }
    })
}

/// All that is found of a window.
struct Found {
    events: Events,
    graph: Graph,
    path: Vec<Stretch>,
    slack: Slack,
    near_ns: i64,
    groups: [(&'static str, Vec<Share>); 3],
    next: Vec<NextPath>,
    changed: Option<(i64, Vec<Stretch>)>,
}

fn own(args: &CriticalPathArgs) -> Result<Found, Failure> {
    let events = Events::read(&args.file)?;
    let graph = window(&events, &args.annotation, &args.instance).map_err(|m| at(&args.file, m))?;
    let others = args.peers.iter().map(|p| Events::read(p)).collect::<Result<Vec<_>, _>>()?;
    if let Some((stranger, _)) = args.peers.iter().zip(&others).find(|(_, other)| !Peers::share(&events, other)) {
        let what = format!(
            "it communicates in no group and collective of {}: expected the trace of another rank of the same run",
            args.file.display()
        );
        return Err(at(stranger, what));
    }
    let peers = if others.is_empty() { Peers::default() } else { Peers::new(&events, &others) };
    let recorded = Run::recorded(&graph);
    let path = tiling::tile(&events, &graph, &recorded, &peers);
    // The times are those of the units: they make room for what comes.
    let Run { decided, .. } = recorded;
    let slack = Slack::new(&graph);
    let near_ns = ((graph.window.1 - graph.window.0) as f64 * args.near / 100.0) as i64;
    let by = |what| shares(&events, &graph, &path, &slack, near_ns, what);
    let groups = [("operator", by(By::Operator)), ("module", by(By::Module)), ("layer", by(By::Layer))];
    let next = next_paths(&events, &graph, &decided, &slack, args.paths.into());
    let durations = args.system.as_deref().map(|system| on_system(&args.file, system)).transpose()?.unwrap_or_default();
    let mut changes = Changes { scale: args.scale.clone(), no_launch: args.no_launch, durations };
    changes.scale.extend(args.remove.iter().map(|c| (c.clone(), 0.0)));
    let changed = if changes.is_empty() {
        None
    } else {
        let run = what_if::run(&events, &graph, &changes).map_err(|m| {
            let option = if args.remove.contains(&m.choice) { "--remove" } else { "--scale" };
            at(&args.file, format!("{option} {m}"))
        })?;
        let path = tiling::tile(&events, &graph, &run, &Peers::default());
        Some((run.step_ns(), path))
    };
    if let Some(out) = &args.overlay {
        let show = match args.show {
            ShowChoice::Path => Show::Path,
            ShowChoice::Near => Show::Near(near_ns),
            ShowChoice::All => Show::All,
        };
        let failed = |e| output::failed(out, &e);
        let file = std::io::BufWriter::new(std::fs::File::create(out).map_err(failed)?);
        overlay::write(&events, &graph, &path, &slack, show, file).map_err(failed)?;
    }
    Ok(Found { events, graph, path, slack, near_ns, groups, next, changed })
}

/// Nanoseconds of a trace's kernels on a system, by start and correlation.
fn on_system(file: &Path, system: &Path) -> Result<HashMap<(i64, i64), u64>, Failure> {
    let system = System::build(&System::inlined(&System::load(system)?)?)?;
    let device = kineto::read(file)?;
    let (trace, _) = link(None, &device, &Steps::All).map_err(|e| at(file, e.to_string()))?;
    let recorded_on = trace.device_name.as_deref().and_then(traces::machine);
    let host = match trace.nodes.iter().any(|n| n.host().is_some()) {
        true => Some(unlink::host_trace(&trace, file)?),
        false => None,
    };
    let target = Target { system: &system, recorded_on: recorded_on.as_ref(), communication: true };
    let retimed = retime(&trace, host.as_ref(), target).map_err(|m| at(file, m))?;
    let origin = trace.origin_ns - device.base_time_ns.unwrap_or(0);
    let key = |n: &LinkedNode| (n.start_ns.saturating_add(origin), n.device().map_or(0, |d| d.correlation));
    Ok(retimed.ns.iter().filter_map(|(node, ns)| Some((key(trace.node(*node)?), *ns))).collect())
}

/// A field of CSV.
pub(super) fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
