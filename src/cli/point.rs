//! `flowspace study show`: one point of finished results with its system and its plan, solved again from the same inputs.

use super::rows::read;
use super::{Failure, explain, present, print, software};
use crate::check;
use crate::execution::file::Written;
use crate::execution::inference::file as serving;
use crate::mapping::executions::Executions;
use crate::mapping::solver::Limits;
use crate::plan::{Plan, file};
use crate::progress::Waiting;
use crate::report::csv::{COLUMNS, Outcome};
use crate::report::manifest::{Digest, Manifest, folder};
use crate::report::table::Table;
use crate::spec::{Loader, Node};
use crate::study::Study;
use crate::study::again::{Again, again};
use crate::study::parts::INPUTS;
use crate::system::System;
use crate::trace::timeline::Events;
use clap::Args;
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Arguments of `flowspace study show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The results.csv of a study, or the folder it lies in.
    pub results: PathBuf,
    /// The point: its number in the column `point`.
    #[arg(long, value_name = "N")]
    pub point: u64,
    /// The plan file, for `flowspace check`, `explain` and `map --plan`; of a language model its execution (for `map --execution` too), or how it is served.
    #[arg(long, conflicts_with_all = ["explain", "timeline", "resolved"])]
    pub plan: bool,
    /// What binds the plan, and what 10 % more of each resource brings; of a language model that is trained what its software takes and what is possible; of a
    /// point without a plan what would give it one.
    #[arg(long, conflicts_with_all = ["timeline", "resolved"])]
    pub explain: bool,
    /// A layer pass on one chip as a timeline that Perfetto and chrome://tracing open.
    #[arg(long, conflicts_with = "resolved")]
    pub timeline: bool,
    /// The system as the point has it, with all that its axes set, as a system file.
    #[arg(long)]
    pub resolved: bool,
    /// The study file that the results were made with; the one that manifest.json names if left out.
    #[arg(long, value_name = "FILE")]
    pub study: Option<PathBuf>,
}

/// Prints the point.
///
/// # Errors
/// [`Failure`]: no such point, inputs that are not those of then, a point that has no plan where one is asked for.
pub fn run(args: &ShowArgs) -> Result<i32, Failure> {
    let table = read(&args.results)?;
    let manifest = Manifest::beside(&table.path).map_err(|e| Failure::input(e.to_string()))?;
    let path = match (&args.study, &manifest) {
        (Some(path), _) => path.clone(),
        (None, Some(manifest)) => {
            // A planned study carries its files with it.
            let carried = folder(&table.path).join(&manifest.file);
            let named = manifest.file.strip_prefix("catalogue:").unwrap_or(&manifest.file);
            if manifest.file.starts_with(INPUTS) && carried.is_file() { carried } else { PathBuf::from(named) }
        }
        (None, None) => {
            return Err(Failure::input(format!(
                "{}: no manifest.json lies beside it, which would say what made it; name the study with --study",
                table.path.display()
            )));
        }
    };
    let study = Study::load(&path).map_err(|problems| {
        let named = if args.study.is_none() {
            format!(
                "\n(the study that {} names; --study names another file)",
                table.path.with_file_name("manifest.json").display()
            )
        } else {
            String::new()
        };
        Failure::input(format!("{problems}{named}"))
    })?;
    let waiting = Waiting::begin("solving the point again", None);
    let shown = again(&table, &study, args.point, || changed(manifest.as_ref(), &study, &folder(&table.path)))
        .map_err(|e| Failure::input(e.to_string()))?;
    drop(waiting);
    if let Some((column, then, now)) = shown.other.first() {
        say!(
            "note: this search was stopped by seconds; it comes out differently: {column} is {now}, in the table {then}"
        );
    }
    match (args.plan, args.explain, args.timeline, args.resolved) {
        (true, ..) => print(&plan_file(&shown)?),
        (_, true, ..) => print(&explained(&shown)?),
        (_, _, true, _) => print(&timeline(plan(&shown)?)?),
        (.., true) => print(&system_file(&shown)?),
        _ => print(&text(&table, &shown, args.point)?),
    }
    Ok(0)
}

/// Which of the inputs are not those that the manifest names.
fn changed(manifest: Option<&Manifest>, study: &Study, folder: &Path) -> String {
    let Some(manifest) = manifest else { return "its inputs, or the program, are other ones".into() };
    let mut now = super::report::manifest(study);
    if manifest.file.starts_with(INPUTS) {
        now = now.within(folder);
    }
    let mut found: Vec<String> = Vec::new();
    for (what, then, now) in
        [("the program", &manifest.version, &now.version), ("its commit", &manifest.commit, &now.commit)]
    {
        if then != now {
            found.push(format!("{what} was {then} and is {now}"));
        }
    }
    if manifest.model_revision != now.model_revision {
        found.push(format!("the model was of revision {} and is of {}", manifest.model_revision, now.model_revision));
    }
    let name = |digest: &Digest| digest.file.clone();
    found.extend(
        now.inputs
            .iter()
            .filter(|input| manifest.inputs.iter().any(|then| then.file == input.file && then != *input))
            .map(|input| format!("{} was changed", name(input))),
    );
    found.extend(
        now.inputs
            .iter()
            .filter(|input| !manifest.inputs.iter().any(|then| then.file == input.file))
            .map(|input| format!("{} is new", name(input))),
    );
    if found.is_empty() { "the row is not of the study that its manifest names".into() } else { found.join("; ") }
}

/// The plan of a mapped point.
fn plan(shown: &Again) -> Result<&Plan, Failure> {
    Err(Failure::input(match &shown.outcome {
        Outcome::Mapped(plan, _) => return Ok(plan),
        Outcome::Executed(_) => "the point is an execution of a language model, whose passes have no timeline; --plan writes it, and `flowspace trace generate` its traces".to_string(),
        Outcome::Served(_) => "the point serves a language model in batches, which have no timeline; --plan writes its decisions".to_string(),
        Outcome::Placed(_) => "the point is a placement; `flowspace place` writes it".to_string(),
        Outcome::Infeasible(reason) => format!("the point has no plan: {reason}"),
        Outcome::Failed(reason) => format!("the point has no plan: {reason}"),
    }))
}

/// The plan as a file that reads back as the same.
fn plan_file(shown: &Again) -> Result<String, Failure> {
    let tree = shown.system.as_ref().and_then(|tree| System::inlined(tree).ok());
    let scaled = || {
        Failure::input(
            "a budget scaled the system of this point, which a plan file cannot say; --resolved and --explain tell of it",
        )
    };
    // A budget scales a system in a way that no file says.
    let said = |system: &System| {
        let is_same = |tree: &&Node| {
            System::build(tree).is_ok_and(|read| System { software: system.software, ..read } == *system)
        };
        tree.as_ref().filter(is_same)
    };
    if let (Outcome::Served(x), Some(model), Some(system)) =
        (&shown.outcome, &shown.point.language, &shown.point.system)
    {
        let source = format!("flowspace study show: the best of {} layouts and batches", x.layouts);
        let tree = said(system).ok_or_else(scaled)?;
        return serving::write(&x.prediction, (&source, &[]), (model, system), (&shown.workload, tree))
            .map_err(Failure::input);
    }
    if let (Outcome::Executed(x), Some(model), Some(system)) =
        (&shown.outcome, &shown.point.language, &shown.point.system)
    {
        let source = format!("flowspace study show: the fastest of {} executions", x.found.covered);
        let machine = Executions::new(system, model, &Limits::default()).map_err(Failure::input)?.machine;
        let written = Written {
            source,
            pin: Vec::new(),
            prediction: &x.prediction,
            plan: x.found.plan.as_deref(),
            machine: &machine,
            model,
            system,
            trees: said(system).map(|tree| (&shown.workload, tree)),
        };
        return written.text().map_err(Failure::input);
    }
    let plan = plan(shown)?;
    let mut workload = shown.workload.clone();
    if plan.workload.micro_batch != shown.point.workload.micro_batch {
        let origin = crate::spec::Origin::named("<search>");
        workload.set("micro_batch", origin.clone(), Node::scalar(plan.workload.micro_batch.to_string(), origin));
    }
    let system = shown.system.as_ref().ok_or_else(|| Failure::input("the point has no system"))?;
    let text = file::write(&workload, system, plan).map_err(Failure::input)?;
    let node = Node::parse("<plan>", &text).map_err(|e| Failure::input(e.to_string()))?;
    let read = file::read(&Loader.expand(&node, "").map_err(|e| Failure::input(e.to_string()))?)?;
    if read.system != plan.system {
        return Err(scaled());
    }
    let figures = check::derive(&read.workload, &read.system, &read.decisions)
        .map_err(|broken| Failure::input(broken.join("\n")))?;
    if figures.iteration_s() != plan.figures.iteration_s() {
        return Err(Failure::input("internal error, please report it: the plan file gives another time than the plan"));
    }
    Ok(text)
}

fn explained(shown: &Again) -> Result<String, Failure> {
    let request = shown.point.request();
    match &shown.outcome {
        Outcome::Mapped(plan, record) => explain::of_plan(plan, record, &request),
        Outcome::Infeasible(reason) => match (&shown.point.system, &shown.point.language) {
            (Some(system), None) => Ok(explain::of_infeasible(&shown.point.workload, system, &request, reason)),
            _ => Ok(format!("{reason}\n")),
        },
        Outcome::Executed(_) => match (&shown.point.language, &shown.point.system) {
            (Some(model), Some(system)) => {
                software::of_point(model, system, &shown.point.solve.pins(), shown.point.solve.seconds)
            }
            _ => Err(Failure::input("the point has no system")),
        },
        _ => plan(shown).map(|_| String::new()),
    }
}

/// The system as a file.
fn system_file(shown: &Again) -> Result<String, Failure> {
    let system = shown.system.as_ref().ok_or_else(|| Failure::input("a placement has no system"))?;
    if shown.point.fitted.is_some() {
        say!("note: the study's budget scales this system; the file is what it starts from");
    }
    serde_saphyr::to_string(&system.to_json()).map_err(|e| Failure::input(format!("cannot write the system: {e}")))
}

/// The row, what its labels stand for, and its plan.
fn text(table: &Table, shown: &Again, index: u64) -> Result<String, Failure> {
    let fail = |e: crate::report::table::TableError| Failure::input(e.to_string());
    let points = table.texts("point").map_err(fail)?;
    let row = points.iter().position(|point| *point == index.to_string()).unwrap_or_default();
    let mut out = format!("point {index} of {}\n", table.path.display());
    for axis in table.axes().map_err(fail)? {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "  {axis}: {}", table.texts(axis).map_err(fail)?[row]);
    }
    match &shown.outcome {
        Outcome::Mapped(plan, record) => {
            out.push('\n');
            out.push_str(&present::text(plan, record, &shown.point.request()));
        }
        _ => {
            for column in COLUMNS {
                let value = table.texts(column.name).map_err(fail)?[row];
                if !value.is_empty() {
                    let _ = writeln!(out, "  {}: {value}", column.name);
                }
            }
        }
    }
    Ok(out)
}

/// Partitions one after another, each resource busy for as long as it is; then the parts of the iteration.
fn timeline(plan: &Plan) -> Result<String, Failure> {
    let mut out = Vec::new();
    let write = |out: &mut Vec<u8>| -> std::io::Result<()> {
        let mut events = Events::new(out)?;
        let name = |pid: u32, tid: u32, what: &str, name: &str| json!({ "ph": "M", "pid": pid, "tid": tid, "name": what, "args": { "name": name } });
        events.put(&name(0, 0, "process_name", "layer pass on one chip"))?;
        for (tid, part) in ["partition", "compute", "dram", "network", "overhead"].iter().enumerate() {
            events.put(&name(0, tid as u32, "thread_name", part))?;
        }
        let mut event = |pid: u32, tid: u32, name: String, start_s: f64, seconds: f64, args: serde_json::Value| {
            match seconds > 0.0 {
            true => events.put(&json!({ "ph": "X", "pid": pid, "tid": tid, "name": name, "ts": start_s * 1e6, "dur": seconds * 1e6, "args": args })),
            false => Ok(()),
        }
        };
        let mut start = 0.0;
        for (i, partition) in plan.figures.partitions.iter().enumerate() {
            let title = format!("partition {}", i + 1);
            event(
                0,
                0,
                title.clone(),
                start,
                partition.time_s,
                json!({ "kernels": partition.kernels, "limited by": partition.bottleneck().word() }),
            )?;
            for (tid, (part, seconds)) in [
                ("compute", partition.compute_s),
                ("dram", partition.dram_s),
                ("network", partition.network_s),
                ("overhead", partition.overhead_s),
            ]
            .into_iter()
            .enumerate()
            {
                event(0, tid as u32 + 1, format!("{title}: {part}"), start, seconds, json!({}))?;
            }
            start += partition.time_s;
        }
        let iteration = &plan.figures.iteration;
        let mut at = 0.0;
        for (part, seconds) in [
            ("work of the stages", iteration.work_s),
            ("bubble", iteration.bubble_s),
            ("between stages", iteration.p2p_s),
            ("gradients", iteration.gradient_s),
            ("optimiser", iteration.optimizer_s),
        ] {
            event(1, 0, part.to_string(), at, seconds, json!({}))?;
            at += seconds;
        }
        events.put(&json!({ "ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": { "name": "iteration: shares of its time, one after another" } }))?;
        events.finish()
    };
    write(&mut out).map_err(|e| Failure::input(e.to_string()))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}
