//! `flowspace study plan`, `work`, `status`, `missing` and `merge`.

use super::Failure;
use super::args::{jobs, positive, time};
use super::interrupt::{INTERRUPTED, Interrupt};
use super::report::manifest;
use super::study::{Beside, front_text, with_parquet};
use crate::progress::Waiting;
use crate::report::columns::Columns;
use crate::study::dry;
use crate::study::parts::{self, Merged, PartsError, Plan, PlanOptions, Progress, WorkOptions};
use clap::{Args, ValueEnum};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The folder and the program or the study do not belong together.
const DIFFERS: i32 = 3;
/// Parts are missing.
const INCOMPLETE: i32 = 4;
/// Two attempts proved different things.
const DISAGREE: i32 = 5;
/// Stopped before the end; the same command goes on (`EX_TEMPFAIL` of sysexits.h).
pub(super) const AGAIN: i32 = 75;

/// Arguments of `flowspace study plan`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct PlanArgs {
    /// Study file, or the name of one in the catalogue (flowspace list studies).
    pub study: PathBuf,
    /// Folder for the parts and the results, which all machines see; it must be none of another study.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Number of parts, 1000 at most; several times as many as work at the same time balance the end. 16 if left out.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub parts: Option<u64>,
    /// As many parts as take about so long each, solving one point at a time; some points are solved for the estimate.
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "parts")]
    pub part_time: Option<f64>,
    /// Folder of an earlier run, planned or not, whose points are taken over where they are the same.
    #[arg(long, value_name = "DIR")]
    pub reuse: Vec<PathBuf>,
    /// Plan a grid of more than 100000 points.
    #[arg(long)]
    pub yes: bool,
    /// Leave the study's files where they are; every machine must see them there. Otherwise they are copied into the folder (1 GiB at most).
    #[arg(long)]
    pub no_copy: bool,
}

/// Arguments of `flowspace study work`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct WorkArgs {
    /// Folder of a planned study.
    pub folder: PathBuf,
    /// Number of the part, from 0.
    #[arg(long, value_name = "N")]
    pub part: u64,
    /// Points solved at the same time; as many as there are processors if left out. Under a scheduler say what it gives.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub jobs: Option<u64>,
    /// Time after which no further point is begun: exit code 75 then. Leave room for the longest point below the limit of the job.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub time_budget: Option<f64>,
    /// Longest time between two waits for the disk: what a machine that loses its power can lose.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "30s")]
    pub checkpoint: f64,
    /// Solve this point alone; for the command itself, which solves points so that end its process.
    #[arg(long, value_name = "N", hide = true, requires = "into")]
    pub point: Option<u64>,
    /// Where its row goes.
    #[arg(long, value_name = "FILE", hide = true, requires = "point")]
    pub into: Option<PathBuf>,
}

/// Arguments of `flowspace study status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Folder of a planned study.
    pub folder: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// How the numbers of parts are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// As `sbatch --array` takes them: 3,17,40-52.
    Ranges,
    /// One a line.
    Lines,
}

/// Arguments of `flowspace study missing`.
#[derive(Debug, Args)]
pub struct MissingArgs {
    /// Folder of a planned study.
    pub folder: PathBuf,
    /// How they are printed.
    #[arg(long, value_name = "FORM", default_value = "ranges")]
    pub format: Form,
}

/// Arguments of `flowspace study merge`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct MergeArgs {
    /// Folder of a planned study.
    pub folder: PathBuf,
    /// Write the rows of the finished parts alone, to partial.csv; the exit code is 4 all the same.
    #[arg(long)]
    pub partial: bool,
    /// Time to look again for parts that are missing, as a shared file system shows what others wrote late.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub wait: Option<f64>,
    /// Write the tables only.
    #[arg(long)]
    pub no_plots: bool,
    /// Columns of results.csv beside the point, its labels and its status: filled (those that some row fills), all, or names.
    #[arg(long, value_name = "NAME,NAME", default_value = "filled", value_parser = Columns::parse)]
    pub columns: Columns,
    /// Write results.parquet (and front.parquet) beside the CSV too: typed columns in base units. Of builds with the feature `parquet`.
    #[arg(long, conflicts_with = "partial")]
    pub parquet: bool,
}

impl From<PartsError> for Failure {
    fn from(error: PartsError) -> Self {
        let code = match &error {
            PartsError::Differs { .. } => DIFFERS,
            PartsError::Incomplete { .. } => INCOMPLETE,
            PartsError::Disagree { .. } => DISAGREE,
            _ => 1,
        };
        Self { message: error.to_string(), code }
    }
}

/// Opens the folder of a planned study.
pub(super) fn open(folder: &Path) -> Result<Plan, Failure> {
    Ok(parts::open(folder, manifest)?)
}

/// Parts of a study if nobody says how many.
const PARTS: u64 = 16;

/// Splits a study into parts.
///
/// # Errors
/// [`Failure`]: a study that is wrong, or a folder that holds something else.
pub fn plan(args: &PlanArgs) -> Result<i32, Failure> {
    let mut estimate = None;
    let count = |study: &_| {
        let Some(each) = args.part_time else { return args.parts.unwrap_or(PARTS) };
        let waiting = Waiting::begin("timing some points", None);
        let whole = dry::look(study, &args.out).estimate(1).map(|(_, mean, _)| mean);
        drop(waiting);
        estimate = whole;
        whole.map_or(PARTS, |whole| (whole / each).ceil().clamp(1.0, parts::MOST_PARTS as f64) as u64)
    };
    let options = PlanOptions { yes: args.yes, reuse: &args.reuse, copy: !args.no_copy };
    let plan = parts::plan(&args.study, &args.out, count, options, manifest)?;
    if let Some(copied) = &plan.copied {
        let (folder, bytes) = (args.out.join(parts::INPUTS), crate::units::Bytes(copied.bytes as f64));
        say!("{} files of the study ({bytes}) copied into {}", copied.files, folder.display());
        for file in &copied.left {
            say!(
                "note: {} is named by an absolute path and not copied: every machine must see it there",
                file.display()
            );
        }
    }
    if args.part_time.is_some() {
        match estimate {
            Some(whole) => say!("about {} of one processor for the whole grid", crate::units::Seconds(whole)),
            None => say!("note: no estimate of the time: no point was timed"),
        }
    }
    let (now, out) = (plan.parts()?, args.out.display());
    let points = plan.sheet.of.points;
    let what = match &plan.study.spec.search {
        None => format!("{points} points in {now} parts"),
        Some(_) => format!("{points} points; the search begins with {now} parts"),
    };
    super::print(&format!(
        "{what}: finish each with `flowspace study work {out} --part N`, N from 0 to {}, then `flowspace study merge {out}`\n",
        now - 1
    ));
    Ok(0)
}

/// Finishes a part.
///
/// # Errors
/// [`Failure`]: no such part, another version, a folder that cannot be written.
pub fn work(args: &WorkArgs) -> Result<i32, Failure> {
    let plan = open(&args.folder)?;
    if let (Some(point), Some(into)) = (args.point, &args.into) {
        plan.work_alone(point, into)?;
        return Ok(0);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let interrupt = Interrupt::catch(
        "points that are finished are kept, those under way are left to the next attempt",
        move || asked.store(true, Ordering::Relaxed),
    );
    let worked = plan.work(&WorkOptions {
        part: args.part,
        jobs: jobs(args.jobs),
        budget: args.time_budget.map(Duration::from_secs_f64),
        checkpoint: Duration::from_secs_f64(args.checkpoint),
        // Inside another program there is none of ours.
        program: if super::embed::is_on() { None } else { std::env::current_exe().ok() },
        show: super::show(),
        stop: stop.clone(),
    })?;
    drop(interrupt);
    if worked.damaged > 0 {
        say!("note: {} lines of journals are damaged: their points were solved anew", worked.damaged);
    }
    super::print(&format!(
        "part {}: {} of {} points finished, {} of them known from before, {} solved now\n",
        args.part, worked.finished, worked.points, worked.known, worked.solved
    ));
    Ok(match worked.whole {
        true => 0,
        // Who asked for the end does not want it called again.
        false if stop.load(Ordering::Relaxed) => INTERRUPTED,
        false => AGAIN,
    })
}

/// Says how far a planned study is.
///
/// # Errors
/// [`Failure`]: no planned study, or another version.
pub fn status(args: &StatusArgs) -> Result<i32, Failure> {
    let progress = open(&args.folder)?.progress()?;
    let code = if progress.missing.is_empty() { 0 } else { INCOMPLETE };
    if args.json {
        let text =
            serde_json::to_string_pretty(&progress).map_err(|e| Failure::input(format!("internal error: {e}")))?;
        super::print(&format!("{text}\n"));
    } else {
        let queue: Vec<String> =
            super::submit::queue(&args.folder).iter().map(|(state, jobs)| format!("{jobs} {state}")).collect();
        let queue = if queue.is_empty() { String::new() } else { format!("queue: {}\n", queue.join(", ")) };
        super::print(&format!("{}{queue}", status_text(&progress)));
    }
    Ok(code)
}

/// Parts named one by one.
const MOST_NAMED: usize = 12;

fn status_text(progress: &Progress) -> String {
    let Progress { study, points, round, asked, parts, finished, missing, merged } = progress;
    let mut text = match (round, asked) {
        (Some(round), Some(asked)) => {
            format!("{study}: round {round} of a search, which asked for {asked} of {points} points so far; ")
        }
        _ => format!("{study}: {points} points; "),
    };
    let _ =
        writeln!(text, "{finished} of {parts} parts finished{}", if *merged { ", results are written" } else { "" });
    if !missing.is_empty() {
        let numbers: Vec<u64> = missing.keys().copied().collect();
        let _ = writeln!(text, "missing: {}", parts::ranges(&numbers));
    }
    for (part, open) in missing.iter().filter(|(_, open)| open.attempts > 0).take(MOST_NAMED) {
        let (attempts, lines) = (open.attempts, open.lines);
        let _ = write!(text, "  part {part}: begun {attempts} times, {lines} points noted");
        let often: Vec<String> = (open.within.iter().filter(|(_, ends)| **ends > 1).take(MOST_NAMED))
            .map(|(point, ends)| format!("{point} ({ends} times)"))
            .collect();
        let _ = match often.is_empty() {
            true => writeln!(text),
            false => writeln!(text, "; processes ended, or are, in the middle of points {}", often.join(", ")),
        };
    }
    text
}

/// Prints the parts that are not finished.
///
/// # Errors
/// [`Failure`]: no planned study, or another version.
pub fn missing(args: &MissingArgs) -> Result<i32, Failure> {
    let missing = open(&args.folder)?.missing()?;
    match args.format {
        Form::Ranges => super::print(&format!("{}\n", parts::ranges(&missing))),
        Form::Lines => super::print(&missing.iter().map(|part| format!("{part}\n")).collect::<String>()),
    }
    Ok(0)
}

/// Joins the parts.
///
/// # Errors
/// [`Failure`]: parts that are missing or damaged, another version, a folder that cannot be written.
pub fn merge(args: &MergeArgs) -> Result<i32, Failure> {
    with_parquet(args.parquet)?;
    let plan = open(&args.folder)?;
    if args.partial {
        let joined = plan.partial(&args.columns)?;
        super::print(&format!("{} of {} points\n{}\n", joined.rows, plan.sheet.of.points, joined.results.display()));
        return Ok(if joined.rows == plan.sheet.of.points { 0 } else { INCOMPLETE });
    }
    let wait = Duration::from_secs_f64(args.wait.unwrap_or(0.0));
    let of = plan.sheet.of.clone();
    let beside = Beside::of(&plan.study, of, args.columns.clone(), args.parquet, args.no_plots);
    match plan.merge(&args.columns, wait)? {
        Merged::Grid(joined) => {
            let without = joined.infeasible + joined.failed;
            super::print(&format!(
                "{} points, {} infeasible, {} failed\n{}\n",
                joined.rows,
                joined.infeasible,
                joined.failed,
                joined.results.display()
            ));
            beside.write(&joined.results, joined.rows, without == joined.rows)?;
        }
        Merged::Front(found, rounds) => {
            super::print(&front_text(&found, &format!("solved in {rounds} rounds of parts")));
            beside.settle(&[&found.run.results, &found.table])?;
            let run = &found.run;
            beside.write(&run.results, run.finished, run.failed + run.infeasible == run.finished)?;
            if !found.wide.is_empty() {
                return Ok(2);
            }
        }
        Merged::Next { round, points, parts } => {
            super::print(&format!(
                "round {round} of the search: {points} points in {parts} parts; finish them, then merge again\n"
            ));
            return Ok(AGAIN);
        }
    }
    Ok(0)
}
