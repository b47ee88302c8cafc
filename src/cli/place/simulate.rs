//! `flowspace place simulate`.

use crate::cli::map::Format;
use crate::cli::{Failure, output, present};
use crate::place::files::{Configuration, Form, read, write};
use crate::place::simulate::sizes::{Proof, Sizes, smallest};
use crate::place::simulate::trace::{From, record};
use crate::place::simulate::{Limits, MOST_FIRINGS, Net, Outcome, Steady, Transfers, makespan, simulate};
use crate::place::{ActorGraph, Cores, Placement, file};
use crate::report::placed;
use crate::spec::Loader;
use crate::spec::node::{io_reason, read_bounded};
use crate::units::{Bytes, Seconds};
use clap::Args;
use serde_json::json;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A placement, or a mapping file.
#[derive(Debug, Args)]
pub struct Source {
    /// A placement (.yaml), or a profile: the runtime's partition XML, or .xcf, with `complexity` of every actor.
    pub file: PathBuf,
    /// Time of one tick of `complexity`.
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = crate::cli::args::time)]
    pub tick: f64,
}

/// Arguments of `flowspace place simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// What is simulated.
    #[command(flatten)]
    pub source: Source,
    /// What a transfer takes: free, delay (time, but no core) or core (the writer's core).
    #[arg(long, default_value = "delay", value_parser = transfers)]
    pub transfers: Transfers,
    /// Also the time of a run of so many iterations, from the empty machine to its end.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub iterations: Option<u64>,
    /// Find the smallest FIFOs that keep the throughput that large ones have.
    #[arg(long)]
    pub sizes: bool,
    /// Write a mapping file with the sizes (those found with --sizes): .xcf, or the runtime's XML.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Draw into this folder: core occupancy (gantt.svg, .png, .pdf) and the placement (placement.svg, .png, .pdf).
    #[arg(long, value_name = "DIR")]
    pub figures: Option<PathBuf>,
    /// Write a timeline that Perfetto and chrome://tracing open.
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,
    /// Figures and timeline: from the empty machine on, instead of the steady state.
    #[arg(long)]
    pub from_start: bool,
    /// Figures and timeline: iterations that are recorded.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub recorded: u64,
    /// Firings after which the search for a period ends; averages are given then.
    #[arg(long, value_name = "N", default_value_t = MOST_FIRINGS, value_parser = clap::value_parser!(u64).range(1..))]
    pub most_firings: u64,
    /// Format of the answer on standard output.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

fn transfers(text: &str) -> Result<Transfers, String> {
    let words: Vec<&str> = Transfers::ALL.iter().map(|t| t.word()).collect();
    Transfers::from_word(text).ok_or_else(|| format!("expected {}, found {text:?}", words.join(", ")))
}

/// Reads a mapping file.
///
/// # Errors
/// [`Failure`]: a file that cannot be read.
pub fn mapping(path: &Path) -> Result<Configuration, Failure> {
    let name = path.display().to_string();
    let bytes = read_bounded(path).map_err(|e| Failure::input(format!("{name}: cannot be read: {}", io_reason(&e))))?;
    read(&name, &bytes).map_err(|e| Failure::input(e.to_string()))
}

impl Source {
    /// Whether it is a placement, by its name: mapping files end in .xml or .xcf.
    fn is_placement(&self) -> bool {
        self.file.extension().is_some_and(|e| e == "yaml" || e == "yml")
    }

    /// The mapping file, where it is one.
    ///
    /// # Errors
    /// [`Failure`]: a file that cannot be read.
    pub fn mapping(&self) -> Result<Option<Configuration>, Failure> {
        if self.is_placement() { Ok(None) } else { mapping(&self.file).map(Some) }
    }

    /// Graph, cores and placement.
    ///
    /// # Errors
    /// [`Failure`]: a file that cannot be read, or has no weights.
    pub fn load(&self) -> Result<(ActorGraph, Cores, Placement), Failure> {
        match self.mapping()? {
            Some(mapping) => {
                let name = self.file.display().to_string();
                mapping.graph(&name, self.tick).map_err(|e| Failure::input(e.to_string()))
            }
            None => {
                let read = file::read(&Loader.load(&self.file, None)?)?;
                Ok((read.graph, read.cores, read.placement))
            }
        }
    }
}

/// Simulates, and prints what was found.
///
/// # Errors
/// [`Failure`]: bad input, a deadlock, no steady state, files that cannot be written.
pub fn run(args: &SimulateArgs) -> Result<i32, Failure> {
    let (graph, cores, placement) = args.source.load()?;
    let name = args.source.file.display().to_string();
    let refuse = |errors: Vec<crate::place::simulate::NetError>| {
        let lines: Vec<String> = errors
            .iter()
            .flat_map(|e| e.to_string().lines().map(|l| format!("{name}: {l}")).collect::<Vec<_>>())
            .collect();
        Failure::input(lines.join("\n"))
    };
    let mut net = Net::of(&graph, &cores, &placement, args.transfers).map_err(refuse)?;
    let limits = Limits { firings: args.most_firings };
    let sizes = if args.sizes {
        let found = smallest(&net, limits).map_err(refuse)?;
        Some(found.ok_or_else(|| Failure::input(format!("{name}: {}", unsettled(limits.firings))))?)
    } else {
        None
    };
    if let Some(sizes) = &sizes {
        for (buffer, capacity) in net.buffers.iter_mut().zip(&sizes.capacities) {
            buffer.capacity = *capacity;
        }
    }
    let capacities = net.capacities();
    let steady = match simulate(&net, &capacities, limits).map_err(refuse)? {
        Outcome::Steady(steady) => steady,
        Outcome::Deadlock(deadlock) => {
            let lines: Vec<String> = deadlock.describe(&net).iter().map(|l| format!("{name}: {l}")).collect();
            return Err(Failure::input(lines.join("\n")));
        }
        Outcome::Unsettled { firings, iteration_s } => {
            let so_far = Seconds(iteration_s);
            return Err(Failure::input(format!("{name}: {}; {so_far} an iteration so far", unsettled(firings))));
        }
    };
    let run_s = match args.iterations {
        Some(n) => Some((n, makespan(&net, &capacities, n, limits).map_err(refuse)?)),
        None => None,
    };
    if args.format == Format::Json {
        let sizes_json = sizes.as_ref().map(|s| {
            let buffers: Vec<_> = (net.buffers.iter().zip(&s.capacities))
                .map(|(b, c)| json!({"output": b.name, "tokens": c, "token_bytes": b.token_bytes}))
                .collect();
            json!({"bytes": s.bytes, "proof": s.proof, "runs": s.runs, "buffers": buffers})
        });
        let run = run_s.map(|(n, s)| json!({"iterations": n, "seconds": s}));
        let out = json!({"steady": steady, "sizes": sizes_json, "run": run});
        crate::cli::print(&format!("{out:#}\n"));
    } else {
        crate::cli::print(&text(&net, &steady, sizes.as_ref(), run_s));
    }
    if let Some(path) = &args.out {
        let mut placement = placement;
        placement.capacities = net.fifos.iter().map(|f| u64::from(net.buffers[f.buffer].capacity)).collect();
        let form = if path.extension().is_some_and(|e| e == "xcf") { Form::Xcf } else { Form::Xml };
        let out = Configuration::of(&graph, &cores, &placement, form, None);
        output::write(path, write(&out).map_err(Failure::input)?)?;
    }
    if args.figures.is_some() || args.timeline.is_some() {
        let from = if args.from_start { From::Start } else { From::Regime };
        let firings = record(&net, &capacities, from, args.recorded, placed::MOST_FIRINGS, limits).map_err(refuse)?;
        if let Some(folder) = &args.figures {
            output::make_folder(folder)?;
            let plot = |e: crate::report::plot::PlotError| Failure::input(e.to_string());
            placed::gantt(&net, &steady, &firings).draw(&folder.join("gantt")).map_err(plot)?;
            placed::stacks(&graph, &net, &steady).draw(&folder.join("placement")).map_err(plot)?;
        }
        if let Some(path) = &args.timeline {
            let created = std::fs::File::create(path).map_err(|e| output::failed(path, &e))?;
            let mut out = std::io::BufWriter::new(created);
            placed::timeline(&net, &firings, &mut out)
                .and_then(|()| out.flush())
                .map_err(|e| output::failed(path, &e))?;
        }
    }
    Ok(0)
}

fn unsettled(firings: u64) -> String {
    format!("no state came again in {firings} firings; give more with --most-firings, or state smaller FIFOs")
}

fn text(net: &Net, steady: &Steady, sizes: Option<&Sizes>, run: Option<(u64, Option<f64>)>) -> String {
    let used = net.load().iter().filter(|l| **l > 0.0).count();
    let mut out = format!("{} actors on {used} cores, {} FIFOs\n", net.actors.len(), net.fifos.len());
    let rate = 1.0 / steady.iteration_s;
    let load = 100.0 * steady.bottleneck_s / steady.iteration_s;
    out += &format!(
        "{} an iteration, {rate:.6} iterations/s; the most loaded core needs {} ({load:.2} %)\n",
        Seconds(steady.iteration_s),
        Seconds(steady.bottleneck_s)
    );
    for part in steady.parts.iter().take(8) {
        let of = if steady.parts.len() > 1 { format!("{} actors: ", part.actors.len()) } else { String::new() };
        if !part.repeats {
            out += &format!(
                "{of}no state came again in the firings allowed (--most-firings): an average of the last {} iterations, after {}\n",
                part.iterations, part.settled_after
            );
            continue;
        }
        out += &format!(
            "{of}repeats every {} iterations ({}), after at most {}{}\n",
            part.iterations,
            Seconds(part.period_s),
            part.settled_after,
            if steady.exact { "" } else { "; times in ticks of 2^-50 of the longest" }
        );
    }
    if let Some(l) = &steady.latency {
        out += &format!("latency {} ({} to {})", Seconds(l.mean_s), Seconds(l.least_s), Seconds(l.most_s));
        out += &steady.alone_s.map_or("\n".into(), |s| format!("; one iteration alone {}\n", Seconds(s)));
    }
    match run {
        Some((n, Some(seconds))) => out += &format!("a run of {n} iterations takes {}\n", Seconds(seconds)),
        Some((n, None)) => out += &format!("a run of {n} iterations does not end within the limit\n"),
        None => {}
    }
    let mut table = present::plain();
    table.set_header(["core", "actors", "load", "busy %"]);
    for (core, load) in net.load().into_iter().enumerate().filter(|(_, l)| *l > 0.0).take(MOST_LINES) {
        let actors = net.core_of.iter().filter(|c| **c == core).count().to_string();
        let busy = format!("{:.2}", 100.0 * steady.utilisation[core]);
        table.add_row([net.cores[core].clone(), actors, Seconds(load).to_string(), busy]);
    }
    present::align(&mut table, &[1, 2, 3]);
    out += &format!("\n{table}\n");
    out += &fills(net, steady);
    if let Some(sizes) = sizes {
        let proof = match sizes.proof {
            Proof::Exhaustive => "no sizes with fewer bytes keep the throughput",
            Proof::OneLess => "one token less on any one FIFO loses throughput",
        };
        out += &format!(
            "\nsmallest FIFOs: {} in {} buffers; {proof} ({} runs)\n",
            Bytes(sizes.bytes),
            net.buffers.len(),
            sizes.runs
        );
    }
    out
}

/// Most lines of a table.
const MOST_LINES: usize = 64;

fn fills(net: &Net, steady: &Steady) -> String {
    let mut order: Vec<usize> = (0..net.fifos.len()).collect();
    let share = |f: usize| steady.fills[f].mean / f64::from(net.buffers[net.fifos[f].buffer].capacity.max(1));
    order.sort_by(|a, b| share(*b).total_cmp(&share(*a)).then(a.cmp(b)));
    let mut table = present::plain();
    table.set_header(["FIFO", "size", "mean fill", "most"]);
    for f in order.iter().copied().take(FULLEST) {
        let fifo = &net.fifos[f];
        table.add_row([
            format!("{} -> {}", net.actors[fifo.source], net.actors[fifo.target]),
            net.buffers[fifo.buffer].capacity.to_string(),
            format!("{:.3}", steady.fills[f].mean),
            steady.fills[f].most.to_string(),
        ]);
    }
    present::align(&mut table, &[1, 2, 3]);
    let rest = order.len().saturating_sub(FULLEST);
    let rest = if rest > 0 { format!("and {rest} less full FIFOs\n") } else { String::new() };
    if order.is_empty() { String::new() } else { format!("\n{table}\n{rest}") }
}

/// FIFOs listed: the fullest.
const FULLEST: usize = 10;
