//! `flowspace explain`: what binds a plan, what more of each resource brings, and what makes an infeasible point feasible.

use super::args::{percent, positive, time, whole, word};
use super::interrupt::Interrupt;
use super::map::{load, passes};
use super::present::{align, plain};
use super::{Failure, present, print};
use crate::check;
use crate::deadline::Deadline;
use crate::explain::{Gain, Remedy, gains, remedies};
use crate::mapping::degrees::Wanted;
use crate::mapping::request::{JOINT_NODES, Passes};
use crate::mapping::search::{Record, Request};
use crate::mapping::solver::Limits;
use crate::mapping::{Answer, Infeasible, map};
use crate::plan::{Figures, Plan};
use crate::progress::Waiting;
use crate::report::plot::{Lever, Tornado};
use crate::report::statement;
use crate::spec::Loader;
use crate::spec::kind::FileKind;
use crate::system::{Die, Software, System};
use crate::units::{Bytes, Seconds};
use crate::workload::{Workload, WorkloadSpec};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Arguments of `flowspace explain`.
#[derive(Debug, Args)]
#[command(
    allow_negative_numbers = true,
    override_usage = "flowspace explain <PLAN> [OPTIONS]\n       flowspace explain --workload <FILE> --system <FILE> [OPTIONS]"
)]
pub struct ExplainArgs {
    /// Plan or execution file: what binds it is told, and it is mapped again, as its pins allow, with more of each resource.
    #[arg(conflicts_with_all = ["workload", "system"], help_heading = "Input")]
    pub plan: Option<PathBuf>,
    /// Workload file or name, as for `flowspace map`, instead of a plan.
    #[arg(long, value_name = "FILE", requires = "system", help_heading = "Input")]
    pub workload: Option<PathBuf>,
    /// System file or name, instead of a plan.
    #[arg(long, value_name = "FILE", requires = "workload", help_heading = "Input")]
    pub system: Option<PathBuf>,
    /// Tensor parallelism; free if left out.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Decisions (free or searched where left out)")]
    pub tp: Option<u64>,
    /// Pipeline stages; free if left out.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Decisions (free or searched where left out)")]
    pub pp: Option<u64>,
    /// Data-parallel replicas; free if left out.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Decisions (free or searched where left out)")]
    pub dp: Option<u64>,
    /// Tiles that a sample is cut into; searched if left out.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Decisions (free or searched where left out)")]
    pub tiles: Option<u64>,
    /// Most partitions of a layer; without limit if left out.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Decisions (free or searched where left out)")]
    pub max_partitions: Option<u64>,
    /// Let dimensions of the network be divided among strategies.
    #[arg(long, help_heading = "Decisions (free or searched where left out)")]
    pub split_dimensions: bool,
    /// How sharding is searched, as for `flowspace map`: what the plan was made with.
    #[arg(long, value_name = "PASSES", default_value = "auto", value_parser = passes, help_heading = "Search")]
    pub sharding: Passes,
    /// Most sets of shardings that a joint search looks at.
    #[arg(long, value_name = "N", default_value_t = JOINT_NODES, value_parser = whole, help_heading = "Search")]
    pub joint_nodes: u64,
    /// Most seconds of all searches together; what is left out then is said to be.
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Search")]
    pub time_limit: Option<f64>,
    /// Of a language model that is trained: what the explained execution stands for, as for `flowspace map`.
    #[arg(long, value_name = "WORD", conflicts_with = "plan", value_parser = word!(Software), help_heading = "Search")]
    pub software: Option<Software>,
    /// How much more of each resource, in per cent.
    #[arg(long, value_name = "PERCENT", default_value_t = MORE, value_parser = percent, help_heading = "Output")]
    pub by: f64,
    /// Draw the gains: STEM.svg, STEM.png and STEM.pdf.
    #[arg(long, value_name = "STEM", help_heading = "Output")]
    pub plot: Option<PathBuf>,
    /// Format on standard output.
    #[arg(long, value_enum, default_value_t = Format::Text, help_heading = "Output")]
    pub format: Format,
}

/// Formats of an explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for a person.
    Text,
    /// One JSON object.
    Json,
    /// One line a resource, or a lever.
    Csv,
}

/// The command, and what it answers for.
const KNOWS: (&str, &str) = ("explain", "mappings of graphs and executions that train");

/// Explains, prints, draws.
///
/// # Errors
/// [`Failure`]: bad input; a plan whose decisions break a rule. An infeasible point is explained, and the exit code 1.
pub fn run(args: &ExplainArgs) -> Result<i32, Failure> {
    super::import::tell_assumed(args.workload.as_deref());
    if let Some(stem) = &args.plot {
        super::output::check([stem], [])?;
    }
    if args.plan.is_none() && args.workload.is_none() {
        return Err(Failure::input(
            "a plan file is needed, or --workload and --system; see `flowspace explain --help`",
        ));
    }
    // Said before the graph is built: a language model need not have one.
    if let (Some(workload), Some(system)) = (&args.workload, &args.system)
        && let (Ok(workload), Ok(system)) = (WorkloadSpec::load(workload), System::load(system))
        && let Ok(system) = System::build(&system)
    {
        if let Some(explained) = super::software::run(args, &workload, &system) {
            return explained;
        }
        if args.software.is_some() {
            return Err(Failure::input("--software: of executions of language models that are trained"));
        }
        super::execution::refuse_executions(&workload, &system, KNOWS)?;
    }
    if let Some(path) = &args.plan
        && let Ok(node) = Loader.load(path, None)
        && FileKind::of_tree(&node) == Some(FileKind::Execution)
    {
        return super::software::of_file(args, &node);
    }
    let task = load(args.plan.as_deref(), args.workload.as_deref(), args.system.as_deref())?;
    if args.plan.is_some() {
        super::execution::refuse_executions(&task.workload_node, &task.system, KNOWS)?;
    }
    let deadline = Deadline::after(args.time_limit);
    let request = Request {
        wanted: Wanted { tp: args.tp, pp: args.pp, dp: args.dp, split: args.split_dimensions },
        tiles: args.tiles.or(task.tiles),
        max_partitions: args.max_partitions.and_then(|n| usize::try_from(n).ok()),
        pins: task.pins.clone(),
        passes: args.sharding,
        joint_nodes: args.joint_nodes,
        // The first of many searches: the others share what it leaves.
        limits: Limits { seconds: args.time_limit.map(|s| s / 4.0), ..Limits::default() },
        known: task.known(),
        ..Request::default()
    };
    let given = match &task.decisions {
        None => None,
        Some(decisions) => {
            let figures = check::derive(&task.workload, &task.system, decisions);
            Some(
                figures
                    .map_err(|broken| Failure::input(format!("the plan is not feasible:\n{}", broken.join("\n"))))?,
            )
        }
    };
    let _interrupt = Interrupt::of_search();
    let waiting = Waiting::begin("searching", None);
    let answer = map(&task.workload, &task.system, &request)?;
    drop(waiting);
    let waiting = Waiting::begin("mapping again", None);
    match answer {
        Answer::Mapped(plan, record) => {
            let gains = gains(&plan, &record, &request, 1.0 + args.by / 100.0, deadline)?;
            drop(waiting);
            let figures = given.as_ref().unwrap_or(&plan.figures);
            let proven = statement::of_mapping(&plan, &request, &record);
            match args.format {
                Format::Text => print(&text(&plan, figures, (&record, &proven), &gains, args.by)),
                Format::Json => print(&format!("{:#}\n", json_of(&plan, figures, (&record, &proven), &gains, args.by))),
                Format::Csv => print(&csv(record.value, &gains, args.by)?),
            }
            if let Some(stem) = &args.plot {
                for file in tornado((&plan.workload.name, &plan.system.name), record.value, &gains, args.by)
                    .draw(&stem.with_extension(""))
                    .map_err(|e| Failure::input(e.to_string()))?
                {
                    say!("{}", file.display());
                }
            }
            Ok(0)
        }
        Answer::Infeasible(reason) => {
            let found = remedies(&task.workload, &task.system, &request, &reason, deadline);
            drop(waiting);
            match args.format {
                Format::Text => print(&remedies_text(&reason, &found)),
                Format::Json => print(&format!("{:#}\n", remedies_json(&reason, &found))),
                Format::Csv => print(&remedies_csv(&found)?),
            }
            Ok(1)
        }
    }
}

/// Percent more of each resource where nothing else is asked for.
pub(super) const MORE: f64 = 10.0;

/// What binds a plan that was found, and what more of each resource brings.
///
/// # Errors
/// [`Failure`] of a search with more of something.
pub(super) fn of_plan(plan: &Plan, record: &Record, request: &Request) -> Result<String, Failure> {
    let gains = gains(plan, record, request, 1.0 + MORE / 100.0, Deadline::after(None))?;
    let proven = statement::of_mapping(plan, request, record);
    Ok(text(plan, &plan.figures, (record, &proven), &gains, MORE))
}

/// What would give an infeasible point a plan.
pub(super) fn of_infeasible(workload: &Workload, system: &System, request: &Request, reason: &Infeasible) -> String {
    remedies_text(reason, &remedies(workload, system, request, reason, Deadline::after(None)))
}

/// How often each partition runs while all blocks of a chain run once through (once, in a single layer), and the seconds that
/// all of them take so.
fn repetitions(plan: &Plan, figures: &Figures) -> (Vec<f64>, f64) {
    let w = &plan.workload;
    let times: Vec<f64> = (0..figures.partitions.len())
        .map(|p| {
            let kernel = plan.decisions.partition.iter().position(|q| *q == p).filter(|_| w.is_chain());
            kernel.map_or(1.0, |k| w.repeats(w.kernels[k].block) as f64)
        })
        .collect();
    let whole = times.iter().zip(&figures.partitions).map(|(n, p)| n * p.time_s).sum();
    (times, whole)
}

/// Share of the partitions' seconds by what binds them.
fn bound_by(plan: &Plan, figures: &Figures) -> Vec<(&'static str, usize, f64)> {
    let (times, whole) = repetitions(plan, figures);
    let mut out: Vec<(&'static str, usize, f64)> = Vec::new();
    for (partition, n) in figures.partitions.iter().zip(times) {
        let word = partition.bottleneck().word();
        let share = n * partition.time_s / whole;
        match out.iter_mut().find(|(w, ..)| *w == word) {
            Some((_, count, sum)) => (*count, *sum) = (*count + 1, *sum + share),
            None => out.push((word, 1, share)),
        }
    }
    out.sort_by(|a, b| b.2.total_cmp(&a.2));
    out
}

/// Parts of the iteration, the largest first.
fn stages(figures: &Figures) -> Vec<(&'static str, f64)> {
    let i = &figures.iteration;
    let mut out = vec![
        ("layers", i.work_s),
        ("pipeline bubble", i.bubble_s),
        ("between stages", i.p2p_s),
        ("gradient reduction", i.gradient_s),
        ("optimizer", i.optimizer_s),
    ];
    out.sort_by(|a, b| b.1.total_cmp(&a.1));
    out
}

/// Kinds of what the DRAM holds, the largest first.
fn memory(figures: &Figures) -> Vec<(&'static str, f64)> {
    let m = &figures.memory;
    let mut out = vec![
        ("weights", m.weights),
        ("gradients", m.gradients),
        ("optimizer", m.optimizer),
        ("activations", m.activations),
        ("held", m.held),
        ("caches", m.caches),
        ("waiting tensors", m.live),
    ];
    out.sort_by(|a, b| b.1.total_cmp(&a.1));
    out
}

/// What uses each dimension of the network.
fn dimensions(plan: &Plan) -> Vec<String> {
    let network = &plan.system.network;
    let uses = plan.decisions.uses.iter().zip(&network.dimensions);
    uses.enumerate()
        .map(|(i, (u, d))| {
            let parts = [("TP", u.tp), ("PP", u.pp), ("DP", u.dp), ("rows", u.rows), ("columns", u.cols)];
            let parts: Vec<String> =
                parts.iter().filter(|(_, n)| *n > 1).map(|(name, n)| format!("{name} {n}")).collect();
            let parts = if parts.is_empty() { "nothing".into() } else { parts.join(", ") };
            format!("dimension {i} ({} x {}): {parts}", d.size, d.link.0.name)
        })
        .collect()
}

/// Most partitions that are listed one by one.
const MOST_LISTED: usize = 40;

fn text(plan: &Plan, figures: &Figures, (record, proven): (&Record, &str), gains: &[Gain], by: f64) -> String {
    let total = figures.iteration_s();
    let mut out = format!("{} on {}: {}\n\n", plan.workload.name, plan.system.name, Seconds(total));
    let mut table = plain();
    table.set_header([
        "partition",
        "bound by",
        "time",
        if plan.workload.is_chain() { "share of all blocks" } else { "share of layer" },
        "compute",
        "DRAM",
        "network",
        "SRAM",
    ]);
    let (times, whole) = repetitions(plan, figures);
    for (p, f) in figures.partitions.iter().enumerate().take(MOST_LISTED) {
        let of = |s: f64| present::percent(if f.time_s > 0.0 { s / f.time_s } else { 0.0 });
        table.add_row([
            p.to_string(),
            f.bottleneck().word().to_string(),
            Seconds(f.time_s).to_string(),
            present::percent(times[p] * f.time_s / whole),
            of(f.compute_s),
            of(f.dram_s),
            of(f.network_s),
            present::percent(f.sram_bytes / plan.system.chip.0.sram.0),
        ]);
    }
    align(&mut table, &[2, 3, 4, 5, 6, 7]);
    out.push_str(&format!("{table}\n(compute, DRAM and network as shares of the partition's time)\n"));
    if let Some(more) = figures.partitions.len().checked_sub(MOST_LISTED).filter(|n| *n > 0) {
        out.push_str(&format!("and {more} more partitions\n"));
    }
    out.push_str("\nwhat binds\n");
    let of_what = if plan.workload.is_chain() { "all blocks" } else { "a layer" };
    for (word, count, share) in bound_by(plan, figures) {
        let plural = if count == 1 { "" } else { "s" };
        out.push_str(&format!("  {word}: {count} partition{plural}, {} of {of_what}\n", present::percent(share)));
    }
    let list = |parts: Vec<(&str, f64)>, whole: f64, text: &dyn Fn(f64) -> String| {
        let parts = parts.into_iter().filter(|(_, v)| *v > 0.0);
        let parts: Vec<String> =
            parts.map(|(name, v)| format!("{name} {} ({})", text(v), present::percent(v / whole))).collect();
        parts.join(", ")
    };
    out.push_str(&format!("  iteration: {}\n", list(stages(figures), total, &|s| Seconds(s).to_string())));
    let held = figures.memory.total();
    let of_capacity = figures
        .dram_capacity
        .map_or(", no limit".into(), |c| format!(" of {} ({})", Bytes(c), present::percent(held / c)));
    out.push_str(&format!(
        "  DRAM: {}{of_capacity}: {}\n",
        Bytes(held),
        list(memory(figures), held, &|b| Bytes(b).to_string())
    ));
    dimensions(plan).iter().for_each(|line| out.push_str(&format!("  {line}\n")));

    out.push_str(&format!(
        "\n{by} % more of each resource, mapped again; the best mapping as it is takes {} (gap {:.1e})\n{proven}\n",
        Seconds(record.value),
        record.gap()
    ));
    out.push_str(&gains_text(gains, record.value, by));
    if figures.iteration_s() > record.value * (1.0 + 1e-9) {
        out.push_str(&format!(
            "note: the plan's own decisions take {}, {:.2} % more than the best mapping\n",
            Seconds(figures.iteration_s()),
            100.0 * (figures.iteration_s() / record.value - 1.0)
        ));
    }
    if let Some(die) = Die::of(&plan.system) {
        out.push_str(&format!("\n{}, part by part:\n{}", plan.system.chip.0.name, super::show::text(&die)));
    }
    out
}

/// Gains as a table, the largest first.
pub(super) fn gains_text(gains: &[Gain], before: f64, by: f64) -> String {
    let mut table = plain();
    table.set_header(["resource", "time", "gain", "at least", "gain, same decisions"]);
    for gain in sorted(gains, before) {
        let share = |v: Option<f64>| v.map_or("-".into(), |v| format!("{:.2} %", 100.0 * v));
        table.add_row([
            gain.name.clone(),
            gain.value.map_or("none found".into(), |v| Seconds(v).to_string()),
            share(gain.share(before)),
            gain.bound.map_or("-".into(), |b| Seconds(b).to_string()),
            share(gain.unchanged_share(before)),
        ]);
    }
    align(&mut table, &[1, 2, 3, 4]);
    let divided = 1.0 + by / 100.0;
    format!("{table}\n(at least: the proven bound of the time; a latency or overhead is divided by {divided})\n")
}

/// The same for a program.
pub(super) fn gains_json(gains: &[Gain], before: f64) -> Value {
    let of = |g: &Gain| {
        json!({
            "resource": g.name,
            "iteration_s": g.value,
            "bound_s": g.bound,
            "gain": g.share(before),
            "gain_same_decisions": g.unchanged_share(before),
        })
    };
    sorted(gains, before).into_iter().map(of).collect()
}

/// The largest gain first.
fn sorted(gains: &[Gain], before: f64) -> Vec<&Gain> {
    let mut out: Vec<&Gain> = gains.iter().collect();
    let key = |g: &Gain| g.share(before).unwrap_or(f64::NEG_INFINITY);
    out.sort_by(|a, b| key(b).total_cmp(&key(a)));
    out
}

fn json_of(plan: &Plan, figures: &Figures, (record, proven): (&Record, &str), gains: &[Gain], by: f64) -> Value {
    let named = |parts: Vec<(&str, f64)>| {
        parts.into_iter().map(|(name, v)| (name.to_string(), json!(v))).collect::<serde_json::Map<_, _>>()
    };
    let mut value = json!({
        "workload": plan.workload.name,
        "system": plan.system.name,
        "iteration_s": figures.iteration_s(),
        "best_iteration_s": record.value,
        "gap": record.gap(),
        "statement": proven,
        "partitions": figures.partitions.iter().map(|p| json!({
            "bound_by": p.bottleneck().word(),
            "time_s": p.time_s,
            "compute_s": p.compute_s,
            "dram_s": p.dram_s,
            "network_s": p.network_s,
            "overhead_s": p.overhead_s,
            "filling_s": p.filling_s,
            "sram_share": p.sram_bytes / plan.system.chip.0.sram.0,
            "kernels": p.kernels,
        })).collect::<Vec<_>>(),
        "bound_by": bound_by(plan, figures).into_iter().map(|(word, count, share)| json!({
            "resource": word, "partitions": count, "layer_share": share,
        })).collect::<Vec<_>>(),
        "iteration": named(stages(figures)),
        "dram_bytes": named(memory(figures)),
        "dram_capacity_bytes": figures.dram_capacity,
        "network": dimensions(plan),
        "more_percent": by,
        "gains": gains_json(gains, record.value),
    });
    if let Some(die) = Die::of(&plan.system) {
        value["die"] = json!(die);
    }
    value
}

fn table_of(header: &[&str], rows: Vec<Vec<String>>) -> Result<String, Failure> {
    let fault = |e: String| Failure::input(format!("cannot write CSV: {e}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(header).map_err(|e| fault(e.to_string()))?;
    for row in rows {
        writer.write_record(&row).map_err(|e| fault(e.to_string()))?;
    }
    let bytes = writer.into_inner().map_err(|e| fault(e.to_string()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn number(value: Option<f64>) -> String {
    value.map_or(String::new(), |v| format!("{v}"))
}

pub(super) fn csv(before: f64, gains: &[Gain], by: f64) -> Result<String, Failure> {
    let rows = sorted(gains, before).into_iter().map(|g| {
        vec![
            g.name.clone(),
            format!("{by}"),
            format!("{before}"),
            number(g.value),
            number(g.bound),
            number(g.share(before)),
            number(g.unchanged_share(before)),
        ]
    });
    let header = ["resource", "more_percent", "before_s", "iteration_s", "bound_s", "gain", "gain_same_decisions"];
    table_of(&header, rows.collect())
}

/// The gains as a figure.
pub(super) fn tornado((workload, system): (&str, &str), before: f64, gains: &[Gain], by: f64) -> Tornado {
    let levers = sorted(gains, before)
        .into_iter()
        .filter_map(|g| {
            Some(Lever {
                name: g.name.clone(),
                value: 100.0 * g.share(before)?,
                fixed: g.unchanged_share(before).map(|s| 100.0 * s),
            })
        })
        .collect();
    Tornado {
        title: format!("{workload} on {system}"),
        x_label: format!("time saved by {by} % more, %"),
        names: ["mapped again".into(), "same decisions".into()],
        notes: Vec::new(),
        levers,
    }
}

fn remedies_text(reason: &Infeasible, found: &[Remedy]) -> String {
    let mut out = format!("{reason}\n\nwhat would mend it, each by itself, found and confirmed by mapping again\n");
    let mut table = plain();
    table.set_header(["lever", "now", "enough", "iteration"]);
    for r in found {
        table.add_row([
            r.lever.clone(),
            r.now.clone(),
            r.enough.clone().unwrap_or_else(|why| format!("- ({why})")),
            r.seconds.map_or("-".into(), |s| Seconds(s).to_string()),
        ]);
    }
    align(&mut table, &[3]);
    out.push_str(&format!("{table}\n"));
    out
}

fn remedies_json(reason: &Infeasible, found: &[Remedy]) -> Value {
    json!({
        "infeasible": reason,
        "remedies": found.iter().map(|r| json!({
            "lever": r.lever,
            "now": r.now,
            "enough": r.enough.as_ref().ok(),
            "why_not": r.enough.as_ref().err(),
            "iteration_s": r.seconds,
        })).collect::<Vec<_>>(),
    })
}

fn remedies_csv(found: &[Remedy]) -> Result<String, Failure> {
    let rows = found.iter().map(|r| {
        let enough = r.enough.clone().unwrap_or_default();
        let why = r.enough.clone().err().unwrap_or_default();
        vec![r.lever.clone(), r.now.clone(), enough, why, number(r.seconds)]
    });
    table_of(&["lever", "now", "enough", "why_not", "iteration_s"], rows.collect())
}
