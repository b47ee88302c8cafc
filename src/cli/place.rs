//! `flowspace place`: actors on the cores of a chip.

pub mod export;
pub mod import_mapping;
pub mod simulate;

use super::{Failure, map::Format, output};
use crate::place::replicas::Point;
use crate::place::run::{Ask, Placed, front, place};
use crate::place::solve::Engine;
use crate::place::spec::{CoresSpec, pins};
use crate::place::{ActorGraph, Core, Cores, Objective, Solved, file, import, limit, replicas, stability};
use crate::spec::Loader;
use crate::units::{Bytes, Seconds};
use clap::{Args, Subcommand};
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;

/// `flowspace place`, with or without a sub-command.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "flowspace place --workload <FILE> --cores <FILE> [OPTIONS]\n       flowspace place <COMMAND>"
)]
pub struct PlaceCommand {
    /// What else to do.
    #[command(subcommand)]
    pub command: Option<PlaceSubcommand>,
    /// What is placed.
    #[command(flatten)]
    pub args: Option<PlaceArgs>,
}

/// What to do with placements.
#[derive(Debug, Subcommand)]
pub enum PlaceSubcommand {
    /// Simulate the firings of a placed graph with bounded FIFOs: throughput, latency, fill, utilisation; deadlock with its remedy; the
    /// smallest FIFOs that keep the throughput.
    Simulate(simulate::SimulateArgs),
    /// Write a mapping file for an actor runtime (partition XML or .xcf) from a placement or another mapping file.
    Export(export::ExportArgs),
    /// Read a mapping file as a placement of a graph on cores.
    Import(import_mapping::ImportArgs),
}

/// Arguments of `flowspace place`.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Workload file (an actor graph of `kind: actors` too), or trace:FILE for a recorded trace or FX graph.
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub workload: PathBuf,
    /// Cores file.
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub cores: PathBuf,
    /// Use the first N cores of the file alone.
    #[arg(long, value_name = "N", value_parser = super::args::positive, help_heading = "Input")]
    pub first: Option<u64>,
    /// bottleneck: seconds of the slowest core. sum: that, and all transfers (as streamblocks-partitioning). per_core: the slowest core
    /// where transfers run beside firings. cut: bytes between cores, no core above --balance.
    #[arg(long, value_name = "WHAT", default_value = "bottleneck", value_parser = word::<Objective>, help_heading = "Search")]
    pub objective: Objective,
    /// The cores form a chain of stages: no channel goes back. Left out: a stream of firings, actors anywhere.
    #[arg(long, help_heading = "Search")]
    pub acyclic: bool,
    /// Largest load over the mean load, with --objective cut: of unlike cores the mean of all actors on the fastest kind. A load of the largest actor alone is always allowed.
    #[arg(long, value_name = "FACTOR", default_value_t = file::BALANCE, value_parser = balance, help_heading = "Search")]
    pub balance: f64,
    /// Copies of the graph side by side, each with its share of the samples: N, or 1..R for the front of all that divide the samples.
    #[arg(long, value_name = "N|1..R", default_value = "1", value_parser = range, help_heading = "Search")]
    pub replicas: (u64, u64),
    /// auto: exact, then HiGHS where that leaves a gap. exact: no MILP. highs, cbc: the MILP with prefix variables beside it. b3: the MILP of
    /// streamblocks-partitioning. metis: METIS alone (builds with the feature metis).
    #[arg(long, value_name = "SOLVER", default_value = "auto", value_parser = word::<Engine>, help_heading = "Search")]
    pub solver: Engine,
    /// Time of the search.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = super::args::time, allow_hyphen_values = true, help_heading = "Search")]
    pub time_limit: f64,
    /// File of actors that must lie on a core: one `ACTOR: CORE` a line.
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub pins: Option<PathBuf>,
    /// Write repeated blocks of the workload out at most N times; left out: all of them.
    #[arg(long, value_name = "N", value_parser = super::args::positive, help_heading = "Input")]
    pub unroll: Option<u64>,
    /// Samples of one iteration; left out: a microbatch of the workload.
    #[arg(long, value_name = "N", value_parser = super::args::positive, help_heading = "Input")]
    pub batch: Option<u64>,
    /// Weights from FLOP and bytes even where the trace has times.
    #[arg(long, help_heading = "Input")]
    pub counted: bool,
    /// The same graph recorded with other numbers of samples (trace:FILE): replicas and --batch take their weights from these, or from the line through
    /// the two nearest.
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "Input")]
    pub other_batches: Vec<PathBuf>,
    /// Weights from profiles of the graph (the runtime's XML): the mean of all given, with their deviation.
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "Input")]
    pub profile: Vec<PathBuf>,
    /// Profiles of the graph with other numbers of samples, for replicas: N=FILE, where several of one N are averaged.
    #[arg(long, value_name = "N=FILE", num_args = 1.., value_parser = samples_and_file, help_heading = "Input")]
    pub profile_at: Vec<(u64, PathBuf)>,
    /// Time of one tick of the profiles.
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = super::args::time, help_heading = "Input")]
    pub tick: f64,
    /// Solve N samples of the weights and say which boundaries move.
    #[arg(long, value_name = "N", value_parser = super::args::positive, help_heading = "Search")]
    pub stability: Option<u64>,
    /// How far the samples' weights go up and down.
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = share, help_heading = "Search")]
    pub spread: f64,
    /// Write the placement to this file.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Format of the answer on standard output.
    #[arg(long, value_enum, default_value_t = Format::Text, help_heading = "Output")]
    pub format: Format,
}

/// A word of a choice.
trait Word: Copy + 'static {
    fn all() -> &'static [Self];
    fn text(self) -> &'static str;
}
impl Word for Objective {
    fn all() -> &'static [Self] {
        Self::ALL
    }
    fn text(self) -> &'static str {
        self.word()
    }
}
impl Word for Engine {
    fn all() -> &'static [Self] {
        Self::ALL
    }
    fn text(self) -> &'static str {
        self.word()
    }
}

fn word<T: Word>(text: &str) -> Result<T, String> {
    let found = T::all().iter().find(|w| w.text() == text.replace('-', "_"));
    found.copied().ok_or_else(|| {
        let words: Vec<&str> = T::all().iter().map(|w| w.text()).collect();
        super::args::none_of(text, &words)
    })
}

fn balance(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|b: &f64| b.is_finite() && *b >= 1.0)
        .ok_or_else(|| format!("expected a factor of at least 1, found {text:?}"))
}

fn share(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|s: &f64| (0.0..1.0).contains(s))
        .ok_or_else(|| format!("expected a share from 0 to below 1, found {text:?}"))
}

fn samples_and_file(text: &str) -> Result<(u64, PathBuf), String> {
    let (samples, file) = text.split_once('=').unwrap_or_default();
    match samples.parse() {
        Ok(samples) if samples > 0 && !file.is_empty() => Ok((samples, file.into())),
        _ => Err("expected a number of samples and a file, such as 4=profile.xml".into()),
    }
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    match (low.parse(), high.trim_start_matches('=').parse()) {
        (Ok(low), Ok(high)) if 1 <= low && low <= high && high <= 4096 => Ok((low, high)),
        _ => Err(format!("expected a number of replicas such as 4, or a range such as 1..8, found {text:?}")),
    }
}

/// Carries out `flowspace place`.
///
/// # Errors
/// [`Failure`]: bad input, no placement, a deadlock.
pub fn run(command: &PlaceCommand) -> Result<i32, Failure> {
    match (&command.command, &command.args) {
        (Some(PlaceSubcommand::Simulate(args)), _) => simulate::run(args),
        (Some(PlaceSubcommand::Export(args)), _) => export::run(args),
        (Some(PlaceSubcommand::Import(args)), _) => import_mapping::run(args),
        (None, Some(args)) => solve(args),
        (None, None) => Err(Failure::input("--workload and --cores are missing; see flowspace place --help")),
    }
}

/// Replaces the weights of a graph by those of profiles.
fn profiled(graph: &mut ActorGraph, profiles: &[PathBuf], tick: f64) -> Result<(), Failure> {
    let mut read = Vec::new();
    for path in profiles {
        let name = path.display().to_string();
        read.push((name, simulate::mapping(path)?));
    }
    let work = crate::place::files::convert::weights(&read, graph, tick).map_err(|all| {
        let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
        Failure::input(texts.join("\n"))
    })?;
    for (actor, work) in graph.actors.iter_mut().zip(work) {
        actor.work = work;
    }
    Ok(())
}

/// The graph with its weights, and what is known of it with other samples.
fn weighed(args: &PlaceArgs, core: &Core) -> Result<ActorGraph, Failure> {
    let node = import::load(&args.workload)?;
    let others = !args.other_batches.is_empty();
    let build = import::Build { unroll: args.unroll, batch: args.batch.filter(|_| !others), counted: args.counted };
    let mut graph = import::build(&node, build)?;
    for path in &args.other_batches {
        let other = import::build(&import::load(path)?, import::Build { batch: None, ..build })?;
        let at = |message: String| Failure::input(format!("{}: {message}", path.display()));
        replicas::same_graph(&graph, &other).map_err(at)?;
        if graph.others.iter().any(|g| g.batch == other.batch) {
            return Err(at(format!("two graphs with {} samples are given; leave one out", other.batch)));
        }
        graph.others.push(other);
    }
    if let Some(samples) = args.batch.filter(|_| others) {
        let known = graph.clone();
        graph = replicas::with_samples(&graph, samples, core);
        graph.others.push(ActorGraph { others: Vec::new(), ..known });
        graph.others.retain(|g| g.batch != samples);
    }
    if !args.profile.is_empty() {
        // What was counted with other samples does not go with what was measured with these.
        graph.others.clear();
        profiled(&mut graph, &args.profile, args.tick)?;
    }
    let mut counts: Vec<u64> = args.profile_at.iter().map(|(n, _)| *n).collect();
    counts.sort_unstable();
    counts.dedup();
    if args.profile.is_empty() && !counts.is_empty() {
        return Err(Failure::input("--profile-at: give --profile too, with the samples of the workload"));
    }
    for n in counts {
        let files: Vec<PathBuf> = args.profile_at.iter().filter(|(m, _)| *m == n).map(|(_, f)| f.clone()).collect();
        let mut other = replicas::with_samples(&ActorGraph { others: Vec::new(), ..graph.clone() }, n, core);
        replicas::same_graph(&graph, &other).map_err(|m| Failure::input(format!("--profile-at {n}: {m}")))?;
        profiled(&mut other, &files, args.tick)?;
        graph.others.push(other);
    }
    if graph.others.is_empty() && args.profile.is_empty() {
        import::shares(&node, build, &mut graph, args.replicas)?;
    }
    Ok(graph)
}

/// Places, prints, writes.
fn solve(args: &PlaceArgs) -> Result<i32, Failure> {
    let more = args.pins.iter().chain(&args.profile).chain(&args.other_batches);
    let files = more.chain(args.profile_at.iter().map(|(_, file)| file));
    output::check(&args.out, [&args.workload, &args.cores].into_iter().chain(files).cloned())?;
    let cores_node = CoresSpec::load(&args.cores)?;
    let mut cores = CoresSpec::build(&cores_node)?;
    if let Some(first) = args.first {
        if first as usize > cores.len() {
            let (name, count) = (&cores.name, cores.len());
            return Err(Failure::input(format!("--first: expected 1 to {count} cores of {name:?}, found {first}")));
        }
        cores = cores.first(first as usize);
    }
    let (low, high) = args.replicas;
    let graph = weighed(args, &cores.cores[0])?;
    let ask = Ask {
        objective: args.objective,
        acyclic: args.acyclic,
        balance: args.balance,
        replicas: low,
        depth: None,
        engine: args.solver,
        seconds: Some(args.time_limit),
    };
    let fail = |wrong: Vec<String>| {
        let at = |line: &String| match (&args.pins, line.strip_prefix("pins: ")) {
            (Some(pins), Some(message)) => format!("{}: {message}", pins.display()),
            _ => format!("{}: {line}", args.workload.display()),
        };
        Failure::input(wrong.iter().map(at).collect::<Vec<_>>().join("\n"))
    };
    if low != high {
        if args.out.is_some() || args.stability.is_some() || args.pins.is_some() {
            return Err(Failure::input(
                "--out, --stability and --pins take one number of --replicas, not a range; give the one that is wanted",
            ));
        }
        let points = front(&graph, &cores, &ask, (low, high)).map_err(fail)?;
        super::print(&match args.format {
            Format::Text => front_text(&graph, &cores, &points),
            Format::Json => pretty(&points)?,
        });
        return Ok(0);
    }
    let pinned = match &args.pins {
        Some(path) => pins(&Loader.load(path, None)?, &graph, &cores)?,
        None => Vec::new(),
    };
    let placed = place(&graph, &cores, &ask, &pinned).map_err(fail)?;
    let stable = match args.stability {
        Some(samples) if low == 1 => {
            let base = (args.solver, placed.placement.core_of.as_slice());
            let found = stability::study(&placed.graph, &cores, &placed.request, base, (samples, args.spread));
            Some(found.map_err(Failure::input)?)
        }
        // All replicas are placed alike, so that the samples are solved for one of them, with its share of the work on cores of its own.
        Some(samples) => {
            let own = cores.first(cores.len() / low as usize);
            let share = crate::place::replicas::with_samples(&graph, graph.batch / low, &cores.cores[0]);
            let one = place(&share, &own, &Ask { replicas: 1, depth: None, ..ask.clone() }, &pinned).map_err(fail)?;
            let base = (args.solver, one.placement.core_of.as_slice());
            let found = stability::study(&one.graph, &own, &one.request, base, (samples, args.spread));
            Some(found.map_err(Failure::input)?)
        }
        None => None,
    };
    super::print(&match args.format {
        Format::Text => text(&graph, &placed, &cores, stable.as_ref()),
        Format::Json => pretty(&json!({
            "graph": placed.graph.name,
            "cores": cores.name,
            "replicas": placed.placement.replicas,
            "best": placed.best,
            "engines": placed.engines,
            "figures": placed.figures,
            "stability": stable,
        }))?,
    });
    if let Some(path) = &args.out {
        let text = file::write(&placed, (&cores, &cores_node, args.first)).map_err(Failure::input)?;
        output::write(path, text)?;
    }
    Ok(0)
}

fn pretty(value: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Failure::input(e.to_string()))?;
    Ok(format!("{text}\n"))
}

/// An objective for a person.
fn amount(objective: Objective, value: f64) -> String {
    if !value.is_finite() {
        return "none".into();
    }
    match objective {
        Objective::Cut => Bytes(value).to_string(),
        _ => Seconds(value).to_string(),
    }
}

/// The engines, then the cores.
fn text(one: &ActorGraph, placed: &Placed, cores: &Cores, stable: Option<&stability::Stability>) -> String {
    let (graph, figures, best) = (&placed.graph, &placed.figures, &placed.best);
    let objective = placed.request.objective;
    let mut out = format!(
        "{}: {} actors, {} channels, on {} cores of {}\n",
        graph.name,
        graph.actors.len(),
        graph.channels.len(),
        cores.len(),
        cores.name
    );
    let mut row = |s: &Solved| {
        let _ = writeln!(
            out,
            "  {:<16} {:>14}  bound {:>14}  gap {:.1e}  {:<11} {:.2} s",
            s.engine,
            amount(objective, s.objective),
            amount(objective, s.bound),
            s.gap(),
            s.status.word(),
            s.seconds
        );
    };
    placed.engines.iter().for_each(&mut row);
    let _ = writeln!(
        out,
        "{} {} ({}), bound {}, gap {:.1e}",
        objective,
        amount(objective, best.objective),
        best.status,
        amount(objective, best.bound),
        best.gap()
    );
    let _ = writeln!(
        out,
        "bottleneck {}, largest over mean {:.4}, {} between cores ({}), {}",
        Seconds(figures.bottleneck_s),
        figures.imbalance,
        Bytes(figures.cut_bytes),
        Seconds(figures.across_s),
        if figures.acyclic { "a chain of stages" } else { "cores wait for each other in a circle" }
    );
    let together = placed.placement.replicas <= 1;
    if let (Objective::Cut, true, Ok(limit)) = (objective, together, limit(graph, cores, placed.request.balance)) {
        let lifted = limit.most > placed.request.balance * limit.mean;
        let _ = writeln!(
            out,
            "a core may be busy for {}: {}",
            Seconds(limit.most),
            if lifted {
                format!("the largest actor, which alone is {:.4} x the mean", limit.most / limit.mean)
            } else {
                format!("{} x the mean of all actors on the fastest kind of core", placed.request.balance)
            }
        );
    }
    let _ = writeln!(out, "{:<16} {:>7} {:>12} {:>12} {:>12}", "core", "actors", "firings", "transfers", "memory");
    let mut count = vec![0usize; cores.len()];
    placed.placement.core_of.iter().for_each(|p| count[*p] += 1);
    for (p, core) in cores.cores.iter().enumerate().filter(|(p, _)| count[*p] > 0) {
        let _ = writeln!(
            out,
            "{:<16} {:>7} {:>12} {:>12} {:>12}",
            core.name,
            count[p],
            Seconds(figures.busy_s[p]).to_string(),
            Seconds(figures.port_s[p]).to_string(),
            Bytes(figures.memory_bytes[p]).to_string()
        );
    }
    if placed.placement.replicas > 1 {
        let r = placed.placement.replicas;
        let _ = writeln!(
            out,
            "each of {r} replicas has {} of the {} samples; weights of these: {}",
            one.batch / r,
            one.batch,
            replicas::source_of_weights(one, one.batch / r)
        );
    }
    if let Some(s) = stable {
        if placed.placement.replicas > 1 {
            let _ = writeln!(out, "of one replica:");
        }
        let _ = writeln!(
            out,
            "{} samples: {} give the same placement; largest {} {} with this one, {} with the steadiest found; no placement has less than {}",
            s.samples,
            s.same,
            objective,
            amount(objective, s.base_worst),
            amount(objective, s.best_worst),
            amount(objective, s.worst_bound)
        );
        for b in &s.boundaries {
            let _ = writeln!(out, "  {:>5.1} %  {} -> {}", 100.0 * b.moved as f64 / s.samples as f64, b.from, b.to);
        }
    }
    out
}

/// The front as a table.
fn front_text(graph: &ActorGraph, cores: &Cores, points: &[Point]) -> String {
    let mut out = format!("{}: {} samples on {}\n", graph.name, graph.batch, cores.name);
    let _ = writeln!(
        out,
        "{:>8} {:>10} {:>12} {:>12} {:>12} {:>8} front",
        "replicas", "cores each", "samples/s", "latency", "bottleneck", "gap"
    );
    for p in points {
        let _ = writeln!(
            out,
            "{:>8} {:>10} {:>12.3} {:>12} {:>12} {:>8.1e} {}",
            p.replicas,
            p.depth,
            p.throughput,
            Seconds(p.latency_s).to_string(),
            Seconds(p.bottleneck_s).to_string(),
            p.gap,
            if p.on_front { "*" } else { "" }
        );
    }
    out
}
