//! `flowspace study run`.

use super::Failure;
use super::args::{jobs, positive};
use super::interrupt::{INTERRUPTED, Interrupt};
use super::report::{manifest, write_manifest, write_page};
use crate::progress::Waiting;
use crate::report::columns::{Columns, settle};
use crate::report::figures::{FigureSpec, draw_all};
use crate::report::html::REPORT;
use crate::report::manifest::{Manifest, folder};
use crate::report::parquet;
use crate::report::plot::short_number;
use crate::report::table::{RESULTS, Table};
use crate::study::front::aim::Constraint;
use crate::study::front::{self, FRONT, FrontSummary, cover::Settled};
use crate::study::sweep::MAX_POINTS;
use crate::study::{RunOptions, Study, Summary, dry, run as run_study};
use crate::units::Seconds;
use clap::Args;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Arguments of `flowspace study run`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct StudyArgs {
    /// Study file, or the name of one in the catalogue (flowspace list studies).
    pub study: PathBuf,
    /// Folder for the results; outputs/NAME-OF-THE-STUDY if left out. A run that was stopped goes on where it was.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Points solved at the same time; as many as there are processors if left out, 256 at most. The results do not depend on it.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub jobs: Option<u64>,
    /// Run a grid of more than 100000 points.
    #[arg(long)]
    pub yes: bool,
    /// Write the tables only; `flowspace plot` draws the figures from them later, `flowspace study report` the page.
    #[arg(long)]
    pub no_plots: bool,
    /// Say how many points there are, how many are solved already and how long the others may take; write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Columns of results.csv beside the point, its labels and its status: filled (those that some row fills), all, or names.
    #[arg(long, value_name = "NAME,NAME", default_value = "filled", value_parser = Columns::parse)]
    pub columns: Columns,
    /// Write results.parquet (and front.parquet) beside the CSV too: typed columns in base units. Of builds with the feature `parquet`.
    #[arg(long)]
    pub parquet: bool,
}

/// Runs the study, prints a summary, draws its figures. The exit code is 2 where points failed or are infeasible.
///
/// # Errors
/// [`Failure`]: a study that is wrong or too large, or a folder that cannot be written.
pub fn run(args: &StudyArgs) -> Result<i32, Failure> {
    with_parquet(args.parquet)?;
    let study = Study::load(&args.study)?;
    let out = args.out.clone().unwrap_or_else(|| Path::new("outputs").join(study.name()));
    let jobs = jobs(args.jobs);
    if args.dry_run {
        let waiting = Waiting::begin("looking at the points", None);
        let dry = dry::look(&study, &out);
        drop(waiting);
        super::print(&dry_text(&study, &dry, &out, jobs));
        return Ok(0);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let interrupt =
        Interrupt::catch("points that are finished are kept, those under way are left to the next run", move || {
            asked.store(true, Ordering::Relaxed)
        });
    let options = RunOptions { out: out.clone(), jobs, yes: args.yes, show: super::show(), stop };
    let (search, beside) = (
        study.spec.search.clone(),
        Beside::of(&study, manifest(&study), args.columns.clone(), args.parquet, args.no_plots),
    );
    let (summary, front) = match search {
        Some(search) => {
            let found = front::run(study, &search, &options).map_err(|e| Failure::input(e.to_string()))?;
            (found.run.clone(), Some(found))
        }
        None => (run_study(study, &options).map_err(|e| Failure::input(e.to_string()))?, None),
    };
    // From here on nothing waits for the flag: an interruption ends the program at once.
    drop(interrupt);
    summary.notes.iter().for_each(|note| say!("note: {note}"));
    if let Some(front) = &front {
        let how = format!("solved in {:.1} s, of them {} now", summary.seconds, summary.solved);
        super::print(&front_text(front, &how));
        if summary.stopped {
            say!("stopped; run the same command again to go on");
            return Ok(INTERRUPTED);
        }
    } else if summary.stopped {
        say!(
            "stopped: {} of {} points finished; run the same command again to go on",
            summary.finished,
            summary.points
        );
        return Ok(INTERRUPTED);
    }
    if front.is_none() {
        super::print(&text(&summary));
    }
    if summary.finished > 0 && summary.failed + summary.infeasible == summary.finished {
        tell_reasons(&summary);
    }
    let tables: Vec<&Path> = std::iter::once(&*summary.results).chain(front.iter().map(|f| &*f.table)).collect();
    beside.settle(&tables)?;
    let rows = summary.finished;
    beside.write(&summary.results, rows, summary.failed + summary.infeasible == rows)?;
    // Points without a plan are as much of an answer to a search of the front as those with one.
    let bad = if front.is_some() { summary.failed } else { summary.failed + summary.infeasible };
    // Less was proven than was asked for.
    let wide = front.is_some_and(|front| !front.wide.is_empty());
    Ok(if bad > 0 || wide { 2 } else { 0 })
}

/// Whether what was asked for can be written, before anything is solved.
///
/// # Errors
/// [`Failure`] where this program writes no Parquet.
pub(super) fn with_parquet(asked: bool) -> Result<(), Failure> {
    if asked { parquet::available().map_err(Failure::input) } else { Ok(()) }
}

/// What is written beside the rows of a study: the columns that are kept, Parquet, the manifest, figures and page.
pub(super) struct Beside {
    manifest: Manifest,
    searched: bool,
    constraints: Vec<Constraint>,
    figures: Vec<FigureSpec>,
    columns: Columns,
    parquet: bool,
    no_plots: bool,
}

impl Beside {
    /// Of a study with these inputs.
    pub(super) fn of(study: &Study, manifest: Manifest, columns: Columns, parquet: bool, no_plots: bool) -> Self {
        let search = study.spec.search.as_ref();
        Self {
            manifest,
            searched: search.is_some(),
            constraints: search.map_or(Vec::new(), |search| search.constraints.clone()),
            figures: study.spec.plots.figures.clone(),
            columns,
            parquet,
            no_plots,
        }
    }

    /// Leaves the columns of the tables that were asked for.
    pub(super) fn settle(&self, tables: &[&Path]) -> Result<(), Failure> {
        tables.iter().try_for_each(|table| settle(table, &self.columns).map_err(|e| super::output::failed(table, &e)))
    }

    /// Writes the rest beside results of so many rows, `planless` if none of them has a plan.
    pub(super) fn write(self, results: &Path, rows: u64, planless: bool) -> Result<(), Failure> {
        let out = folder(results);
        let mut tables: Vec<PathBuf> = [RESULTS, FRONT].map(|name| out.join(name)).into();
        tables.truncate(1 + usize::from(self.searched));
        for table in &tables {
            let typed = parquet::beside(table);
            if self.parquet {
                let path = parquet::write(table).map_err(|e| super::output::failed(&typed, &e))?;
                super::print(&format!("{}\n", path.display()));
            } else if typed.exists() {
                say!("note: {} is of an earlier run; --parquet writes it anew", typed.display());
            }
        }
        write_manifest(self.manifest, &out, self.searched, self.parquet)?;
        if self.no_plots {
            return Ok(());
        }
        if rows > MAX_POINTS {
            say!(
                "note: no figures and no {REPORT} of more than {MAX_POINTS} rows; `flowspace study where` chooses some"
            );
            return Ok(());
        }
        if planless {
            say!("note: no figures: no point has a plan");
        } else {
            // Designs that keep no constraint compete with none.
            let draw = || {
                let table = Table::read(results)?;
                let limits: Vec<(Constraint, Vec<f64>)> = (self.constraints.into_iter())
                    .filter_map(|limit| table.numbers(limit.measure.column).ok().map(|values| (limit, values)))
                    .collect();
                let kept = table.of_rows(|row| limits.iter().all(|(limit, values)| limit.keeps(values[row])));
                draw_all(&kept, &self.figures, &out)
            };
            let drawn = draw().map_err(|e| Failure::input(e.to_string()))?;
            let mut text = String::new();
            for path in drawn.files.iter().filter(|path| path.extension().is_some_and(|e| e == "svg")) {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{} (and .png, .pdf)", path.display());
            }
            super::print(&text);
            drawn.left_out.iter().for_each(|reason| say!("note: not drawn: {reason}"));
        }
        match write_page(results)? {
            Ok(page) => super::print(&format!("{}\n", page.display())),
            Err(reason) => say!("note: no {REPORT}: {reason}"),
        }
        Ok(())
    }
}

/// What a run would do.
fn dry_text(study: &Study, dry: &dry::Dry, out: &Path, jobs: usize) -> String {
    let points = dry.points.map_or("more than 2^64".to_string(), |points| points.to_string());
    let axes: Vec<String> = dry.axes.iter().map(|(name, values)| format!("{name} {values}")).collect();
    let of = if study.spec.sample.is_some() { ", a sample of" } else { " =" };
    let mut text = format!("{}: {points} points{of} {}\n", study.name(), axes.join(" x "));
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    let all = dry.points == Some(dry.built);
    let looked =
        if all { "all looked at".to_string() } else { format!("{} looked at, spread over the grid", dry.built) };
    line(format!(
        "{looked}: {} different, {} of them solved by earlier runs into {}; {} cannot be built",
        dry.different,
        dry.known,
        out.display(),
        dry.wrong
    ));
    let left = dry.to_solve();
    if left == 0.0 {
        line("nothing is left to solve".to_string());
    }
    let n = dry.seconds.len();
    match dry.estimate(jobs).filter(|_| left > 0.0) {
        None if left > 0.0 => line("no estimate of the time: no point was timed".to_string()),
        None => {}
        Some((low, mean, high)) => {
            let (least, most) = dry.seconds.iter().fold((f64::INFINITY, 0.0f64), |(a, b), s| (a.min(*s), b.max(*s)));
            let how =
                if dry.earlier { "timed by earlier runs" } else { "solved now, spread over the grid, one at a time" };
            line(format!(
                "{n} points {how}: {} each on the mean, {} to {}",
                Seconds(dry.seconds.iter().sum::<f64>() / n as f64),
                Seconds(least),
                Seconds(most)
            ));
            let about = if all { "" } else { "about " };
            let bound = if study.spec.search.is_some() { "at most " } else { "" };
            line(format!(
                "{bound}{about}{left:.0} points to solve, {jobs} at a time: about {} ({} to {}, two standard errors of the mean; points that run at the same time slow each other, which is not in it)",
                Seconds(mean),
                Seconds(low),
                Seconds(high)
            ));
            if study.spec.search.is_some() {
                line(
                    "a search of the front solves what the front needs alone; how much that is shows while it runs"
                        .to_string(),
                );
            }
        }
    }
    if dry.points.is_none_or(|points| points > MAX_POINTS) && study.spec.search.is_none() {
        line(format!("more than {MAX_POINTS} points run with --yes alone"));
    }
    line("nothing was written".to_string());
    text
}

/// What a search of the front found and proved; `how` its points were solved.
pub(super) fn front_text(found: &FrontSummary, how: &str) -> String {
    let Settled { solved, reached, infeasible, outside, unknown, failed, open } = found.settled;
    let percent = |points: u64| format!("{:.2} %", 100.0 * points as f64 / found.run.points.max(1) as f64);
    // Of a continuous space the number of intervals says nothing but their share does.
    let share = |points: u64| match found.continuous.is_empty() {
        true => format!("{points} ({})", percent(points)),
        false => percent(points),
    };
    let points = found.front.len();
    let of = if found.continuous.is_empty() { format!(" of {}", found.run.points) } else { String::new() };
    let mut out = format!("{points} point{}{of} on the front of ", if points == 1 { "" } else { "s" });
    let _ = writeln!(out, "{}", found.objectives.join(", "));
    let mut point = "point".to_string();
    if !found.continuous.is_empty() {
        let _ = write!(point, ", and nothing between the values of {},", found.continuous.join(", "));
    }
    if failed > 0 {
        point.push_str(" that could be solved");
    }
    if unknown > 0 {
        point.push_str(if failed > 0 { " and" } else { "" });
        point.push_str(" that states its price and power");
    }
    let nearness = format!(
        "no {point} is better than one of the front by more than {:.3} % in any objective",
        100.0 * found.within
    );
    let proven = match open {
        0 if found.front.is_empty() && !found.wide.is_empty() => {
            "nothing that was solved keeps the constraints; of what lies between nothing is proven".to_string()
        }
        0 if found.front.is_empty() && found.constraints == 0 => format!("proven: no {point} has a plan"),
        0 if found.front.is_empty() => format!("proven: no {point} has a plan that keeps the constraints"),
        0 if found.within == 0.0 => format!("proven: no other {point} is better than the front"),
        0 if found.within.is_finite() => format!("proven: {nearness}"),
        _ if found.within.is_finite() => format!("so far: {nearness}"),
        _ => "so far nothing is proven".to_string(),
    };
    let order = match found.unordered.is_empty() {
        true => "; given: the order of every axis, checked on all solved points".to_string(),
        false => {
            format!("; given: the order of the axes but {}, checked on all solved points", found.unordered.join(", "))
        }
    };
    let _ = writeln!(out, "{proven}{order}");
    if !found.wide.is_empty() && open == 0 {
        let _ = writeln!(
            out,
            "the intervals of {} are too wide for the tolerance: give more of them (1..8 TB/s continuous 4096) or a larger one",
            found.wide.join(", ")
        );
    }
    let _ = writeln!(out, "{} {how}", if found.continuous.is_empty() { share(solved) } else { solved.to_string() });
    let closed = [
        (reached, "closed: no better than a solved point"),
        (infeasible, "closed: no more of anything than an infeasible point"),
        (outside, "closed: no point keeps the constraints"),
        (unknown, "not compared: their systems state no price or power"),
        (failed, "not compared: the ends of their ranges could not be solved (column reason)"),
        (open, "still open"),
    ];
    for (points, how) in closed.into_iter().filter(|(points, _)| *points > 0) {
        let _ = writeln!(out, "{} {how}", share(points));
    }
    let _ = writeln!(out, "{}\n{}", found.table.display(), found.run.results.display());
    out
}

/// Reasons that are told of a study without a single plan.
const MOST_REASONS: usize = 12;

/// Says on standard error why no point has a plan: each reason once, with its points.
fn tell_reasons(summary: &Summary) {
    say!("error: none of the {} points has a plan", summary.finished);
    for (reason, points) in summary.reasons.iter().take(MOST_REASONS) {
        say!("error: {points} point{}: {reason}", if *points == 1 { "" } else { "s" });
    }
    if let Some(more) = summary.reasons.len().checked_sub(MOST_REASONS).filter(|more| *more > 0) {
        say!("error: {more} more reasons: column `reason` of {}", summary.results.display());
    }
}

/// The closing summary.
fn text(summary: &Summary) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    let rate = summary.solved as f64 / summary.seconds.max(1e-9);
    let blind = if summary.blind > 0 { format!("{} chosen blindly, ", summary.blind) } else { String::new() };
    line(format!(
        "{} points: {} optimal, {blind}{} stopped at a limit, {} infeasible, {} failed",
        summary.points, summary.optimal, summary.limited, summary.infeasible, summary.failed
    ));
    line(format!(
        "{} solved in {:.1} s ({rate:.2} points/s), {} known from before or the same as another",
        summary.solved,
        summary.seconds,
        summary.finished - summary.solved
    ));
    for (column, best) in &summary.best {
        if best.is_empty() {
            continue;
        }
        let what = match *column {
            "samples_per_s" => "most samples per second",
            "samples_per_s_per_musd" => "most samples per second and million dollars",
            "samples_per_s_per_mw" => "most samples per second and megawatt",
            "j_per_sample" => "least joules per sample",
            _ => "least dollars for the run",
        };
        line(format!("{what}:"));
        for point in best {
            line(format!("  {:>8}  {} (point {})", short_number(point.value), point.label, point.point));
        }
    }
    if summary.failed + summary.infeasible > 0 {
        line(format!("the column `reason` says why {} points have no plan", summary.failed + summary.infeasible));
    }
    line(summary.results.display().to_string());
    out
}
