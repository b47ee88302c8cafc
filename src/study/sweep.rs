//! The run of a study: its points solved in parallel, each to a row, whatever happens to any of them.
//!
//! Worker threads take indices one after another, build the point, look its key up among what is known, and solve it if
//! it is new. One collector, on the calling thread, writes: so a stop needs to wait for no solve, and what was
//! finished is on disk.

use super::grid::{Point, Study};
use super::progress::{Progress, Show};
use super::store::{Key, RESULTS, Rows, Solved, Store, StoreError, TIMINGS, header};
use super::{blind, executed, mix, placed};
use crate::check;
use crate::mapping::{Answer, Infeasible, Status};
use crate::plan::Plan;
use crate::progress::Waiting;
use crate::report::csv::{FAILED, Facts, INFEASIBLE, Outcome, better, number, values};
use crate::report::plot::Better;
use crate::spec::Problems;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Most points that run without being asked for twice.
pub const MAX_POINTS: u64 = 100_000;

/// Most points solved at the same time.
const MOST_JOBS: usize = 256;

/// How a study is run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The output folder.
    pub out: PathBuf,
    /// Points solved at the same time; at least one.
    pub jobs: usize,
    /// Run more than [`MAX_POINTS`] points.
    pub yes: bool,
    /// Whether to tell how far the run is.
    pub show: Show,
    /// Set from elsewhere to stop the run (Ctrl-C).
    pub stop: Arc<AtomicBool>,
}

impl RunOptions {
    /// One point at a time into `out`, silently.
    pub fn new(out: impl Into<PathBuf>) -> Self {
        Self { out: out.into(), jobs: 1, yes: false, show: Show::Nothing, stop: Arc::default() }
    }
}

/// Why a study did not run, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The study, or the workload or system that all its points share, is wrong.
    #[error(transparent)]
    Problems(#[from] Problems),
    /// No point can be built, each for a reason of its own.
    #[error(
        "none of the {points} points can be solved: nothing is run, and files of earlier runs stay as they are\n{}",
        first(problems)
    )]
    NoneStands {
        /// The points.
        points: u64,
        /// What is wrong with them.
        problems: Problems,
    },
    /// The grid is large.
    #[error("the grid has {points} points, more than {MAX_POINTS}; give --yes to run it all the same")]
    TooMany {
        /// Its points.
        points: u64,
    },
    /// The grid cannot be counted.
    #[error("the grid has more than 2^64 points; take values out of its axes")]
    Endless,
    /// The output folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Two points show that an axis does not act as a search of the front takes it to.
    #[error("{0}")]
    Disorder(String),
    /// A point that was solved has no value of an objective or constraint of the front.
    #[error("{0}")]
    NoValue(String),
    /// The operating system gives no threads.
    #[error("cannot start {jobs} threads: {reason}; give a smaller --jobs")]
    Threads {
        /// How many.
        jobs: usize,
        /// Why.
        reason: String,
    },
}

/// One of the best points.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// Index of the point.
    pub point: u64,
    /// Its labels, joined.
    pub label: String,
    /// The value it is best in.
    pub value: f64,
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Summary {
    /// Points of the grid.
    pub points: u64,
    /// Points with a row.
    pub finished: u64,
    /// Points that were solved in this run; the others were known, or the same as another.
    pub solved: u64,
    /// Rows proven best.
    pub optimal: u64,
    /// Rows whose plan a search chose that was blind to something, and that is not proven best.
    pub blind: u64,
    /// Rows with a plan whose proof a limit of nodes or seconds ended.
    pub limited: u64,
    /// Rows without a plan since none exists.
    pub infeasible: u64,
    /// Rows of points that could not be solved.
    pub failed: u64,
    /// Why points could not be solved, and why others have no plan: each reason with the number of points that have it, the most frequent first.
    pub reasons: Vec<(String, u64)>,
    /// Whether the run was stopped.
    pub stopped: bool,
    /// Seconds of the run.
    pub seconds: f64,
    /// The best three by `samples_per_s`, `samples_per_s_per_musd`, `samples_per_s_per_mw`, and least `j_per_sample` and
    /// (where a run is stated) `run_usd`.
    pub best: Vec<(&'static str, Vec<Best>)>,
    /// The results.
    pub results: PathBuf,
    /// What the user should know of the run.
    pub notes: Vec<String>,
}

impl Summary {
    /// Counts a row by its status.
    pub(super) fn count(&mut self, status: &str) {
        match status {
            "optimal" => self.optimal += 1,
            INFEASIBLE => self.infeasible += 1,
            FAILED => self.failed += 1,
            status if status == Status::Blind.word() => self.blind += 1,
            _ => self.limited += 1,
        }
    }
}

/// What finishes one of the points that are wanted.
pub(super) type Each = dyn Fn(&Shared, u64) -> Option<Finished> + Send + Sync;

/// What solves a point.
pub(super) type Solve = dyn Fn(&Point) -> Result<Answer, String> + Send + Sync;

/// Problems told of a study whose every point has some.
const MOST_TOLD: usize = 12;

/// The first of many problems.
fn first(problems: &Problems) -> String {
    let mut lines: Vec<String> = problems.0.iter().take(MOST_TOLD).map(ToString::to_string).collect();
    if let Some(more) = problems.0.len().checked_sub(MOST_TOLD).filter(|n| *n > 0) {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

/// Runs a study into a folder.
///
/// # Errors
/// [`StudyError`] before anything is solved when the study is wrong, too large, or the folder cannot be used; later only
/// when the folder cannot be written any more. A point that fails is a row, not an error.
pub fn run(study: Study, options: &RunOptions) -> Result<Summary, StudyError> {
    run_with(study, options, Arc::new(solve))
}

/// What solves the points of a study.
pub(super) fn solver() -> Arc<Solve> {
    Arc::new(solve)
}

/// The search, and the check of its answer.
pub(super) fn solve(point: &Point) -> Result<Answer, String> {
    if let Some(Err(over)) = &point.fitted {
        return Ok(Answer::Infeasible(over.clone()));
    }
    let answer = blind::map(point)?;
    if let Answer::Mapped(plan, _) = &answer {
        checked(plan)?;
    }
    Ok(answer)
}

/// No plan gets a row that the independent checker does not agree with.
fn checked(plan: &Plan) -> Result<(), String> {
    check::verify(plan).map_err(|e| format!("internal error, please report it: the checker found: {e}"))
}

/// [`run`] with another solver, for tests.
pub(super) fn run_with(study: Study, options: &RunOptions, solve: Arc<Solve>) -> Result<Summary, StudyError> {
    let clock = Instant::now();
    let total = study.count().ok_or(StudyError::Endless)?;
    if total > MAX_POINTS && !options.yes {
        return Err(StudyError::TooMany { points: total });
    }
    let Ready { shared, store, pool, progress } = ready(study, options, solve)?;
    // Every file is open before the first point is solved.
    let mut collector = Collector::new(&shared.study, store, progress)?;
    shared.drive(&pool, None, |finished| {
        let any = !finished.is_empty();
        finished.into_iter().try_for_each(|finished| collector.take(finished))?;
        collector.progress.tick();
        if any { collector.write_down() } else { Ok(()) }
    })?;
    let mut summary = collector.close()?;
    summary.stopped = summary.finished < total;
    summary.points = total;
    summary.seconds = clock.elapsed().as_secs_f64();
    Ok(summary)
}

/// A run that may begin: the study was looked at, and its folder is open.
pub(super) struct Ready {
    pub(super) shared: Arc<Shared>,
    pub(super) store: Store,
    pub(super) pool: rayon::ThreadPool,
    pub(super) progress: Progress,
}

/// Looks at a study and opens its folder.
pub(super) fn ready(study: Study, options: &RunOptions, solve: Arc<Solve>) -> Result<Ready, StudyError> {
    let total = study.count().ok_or(StudyError::Endless)?;
    let waiting = (options.show == Show::Progress).then(|| Waiting::begin("looking at the points", None));
    let outlook = study.outlook();
    drop(waiting);
    if !outlook.every.is_empty() {
        return Err(Problems(outlook.every).into());
    }
    if outlook.none_stands {
        return Err(StudyError::NoneStands { points: total, problems: Problems(outlook.some) });
    }
    let (store, known) = Store::open(&options.out, study.name())?;
    // How far a search of the front is cannot be told in points.
    let show = if study.spec.search.is_some() { Show::Nothing } else { options.show };
    let progress = Progress::new(show, total);
    for problem in &outlook.some {
        progress.say(&format!("some points will fail: {problem}"));
    }
    if let Some(unlike) = &outlook.unlike {
        progress.say(unlike);
    }
    let pool = pool(options.jobs, total)?;
    let shared = Arc::new(Shared::new(study, solve, known, options.stop.clone()));
    Ok(Ready { shared, store, pool, progress })
}

/// Threads that solve `points` points.
pub(super) fn pool(jobs: usize, points: u64) -> Result<rayon::ThreadPool, StudyError> {
    // Threads without a point, or far more of them than processors, bring nothing and can choke a machine.
    let jobs = jobs.min(usize::try_from(points).unwrap_or(usize::MAX)).clamp(1, MOST_JOBS);
    rayon::ThreadPoolBuilder::new()
        .num_threads(jobs)
        .stack_size(STACK)
        .thread_name(|i| format!("point-{i}"))
        .build()
        .map_err(|e| StudyError::Threads { jobs, reason: e.to_string() })
}

/// Stack of a worker: as much as the main thread has, for solvers that recurse.
const STACK: usize = 8 << 20;
/// Longest time without a look at the stop flag.
const TICK: Duration = Duration::from_millis(100);

/// What the workers share.
pub(super) struct Shared {
    pub(super) study: Study,
    solve: Arc<Solve>,
    /// Which points are to be finished.
    pub(super) wanted: Wanted,
    /// How each is, where not by [`Shared::finish`] alone; nothing where work stops.
    pub(super) each: Option<Box<Each>>,
    next: AtomicU64,
    pub(super) stop: Arc<AtomicBool>,
    halt: AtomicBool,
    /// Results by key. A cell is filled by the first that asks; others with the same key wait for it.
    cells: Mutex<HashMap<Key, Arc<OnceLock<Solved>>>>,
}

/// Which points of a grid are to be finished.
pub(super) enum Wanted {
    /// The first so many.
    First(u64),
    /// These.
    These(Vec<u64>),
}

impl Wanted {
    fn get(&self, at: u64) -> Option<u64> {
        match self {
            Self::First(count) => (at < *count).then_some(at),
            Self::These(points) => points.get(usize::try_from(at).ok()?).copied(),
        }
    }
}

/// What a point is solved by.
enum Wants {
    /// A search.
    Point(Box<Point>),
    /// The rows of these points.
    Mean(Vec<u64>),
}

/// A finished point.
#[derive(Clone)]
pub(super) struct Finished {
    pub(super) index: u64,
    pub(super) key: Option<Key>,
    pub(super) solved: Solved,
    /// Solved just now, not known before.
    pub(super) fresh: bool,
}

impl Shared {
    /// Of a study, all of whose points are wanted.
    pub(super) fn new(study: Study, solve: Arc<Solve>, known: HashMap<Key, Solved>, stop: Arc<AtomicBool>) -> Self {
        Self {
            wanted: Wanted::First(study.count().unwrap_or(u64::MAX)),
            each: None,
            study,
            solve,
            next: AtomicU64::new(0),
            stop,
            halt: AtomicBool::new(false),
            cells: Mutex::new(known.into_iter().map(|(key, solved)| (key, Arc::new(OnceLock::from(solved)))).collect()),
        }
    }

    /// Finishes the points that are wanted, on all threads of the pool, and hands on what is finished at least every
    /// [`TICK`]. A stop does not wait for the points under way; after `until` no further point is begun, but one is solved in any case: who
    /// comes again with as little time comes to an end.
    pub(super) fn drive(
        self: &Arc<Self>,
        pool: &rayon::ThreadPool,
        until: Option<Instant>,
        mut take: impl FnMut(Vec<Finished>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (sender, receiver) = channel();
        for _ in 0..pool.current_num_threads() {
            let (shared, sender) = (self.clone(), sender.clone());
            // Not a scope: a scope would wait for solves in flight, and a stop must not.
            pool.spawn(move || shared.work(&sender));
        }
        drop(sender);
        let (mut taken, mut fresh) = (Ok(()), false);
        while taken.is_ok() && !self.stop.load(Ordering::Relaxed) {
            taken = match receiver.recv_timeout(TICK) {
                // What has finished meanwhile is written in one go.
                Ok(finished) => {
                    let finished: Vec<Finished> = std::iter::once(finished).chain(receiver.try_iter()).collect();
                    fresh |= finished.iter().any(|finished| finished.fresh);
                    take(finished)
                }
                Err(RecvTimeoutError::Timeout) => take(Vec::new()),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if fresh && until.is_some_and(|until| Instant::now() >= until) {
                self.halt.store(true, Ordering::Relaxed);
            }
        }
        self.halt.store(true, Ordering::Relaxed);
        // What finished between the last look and the stop is on disk too.
        taken.and_then(|()| take(receiver.try_iter().collect()))
    }

    fn work(&self, sender: &Sender<Finished>) {
        while !self.stop.load(Ordering::Relaxed) && !self.halt.load(Ordering::Relaxed) {
            let next = self.wanted.get(self.next.fetch_add(1, Ordering::Relaxed));
            let finished = next.and_then(|index| match &self.each {
                Some(each) => each(self, index),
                None => Some(self.finish(index)),
            });
            if finished.is_none_or(|finished| sender.send(finished).is_err()) {
                return;
            }
        }
    }

    /// Builds and solves a point, unless it is known.
    pub(super) fn finish(&self, index: u64) -> Finished {
        let built = guarded(|| match self.study.mixed(index) {
            Some(parts) => Ok((Wants::Mean(parts), mix::key(&self.study, index)?)),
            None => {
                let point = self.study.point(index).map_err(|problems| problems.to_string())?;
                let key = Key::of(&point)?;
                Ok((Wants::Point(Box::new(point)), key))
            }
        });
        let (wants, key) = match built {
            Ok(built) => built,
            Err(reason) => {
                let outcome = Outcome::Failed(reason);
                let row = values(&Facts { workload: None, system: None, fitted: None, outcome: &outcome });
                return Finished { index, key: None, solved: Solved { values: row.into(), solve_s: 0.0 }, fresh: true };
            }
        };
        let cell = self.cells.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        let mut fresh = false;
        let solved = cell.get_or_init(|| {
            fresh = true;
            match &wants {
                Wants::Point(point) => self.answer(point),
                Wants::Mean(parts) => {
                    let rows: Vec<Solved> = parts.iter().map(|part| self.finish(*part).solved).collect();
                    mix::row(&self.study.spec, &rows)
                }
            }
        });
        Finished { index, key: Some(key), solved: solved.clone(), fresh }
    }

    fn answer(&self, point: &Point) -> Solved {
        let clock = Instant::now();
        let row = |outcome: &Outcome| {
            let fitted = point.fitted.as_ref().and_then(|f| f.as_ref().ok());
            values(&Facts { workload: Some(&point.workload), system: point.system.as_ref(), fitted, outcome })
        };
        let answered = guarded(|| {
            if let Some(outcome) = placed::solve(point)? {
                return Ok(row(&outcome));
            }
            Ok(row(&match executed::solve(point)? {
                Some(outcome) => outcome,
                None => Outcome::from((self.solve)(point)?),
            }))
        });
        let row = answered.unwrap_or_else(|reason| row(&Outcome::Failed(reason)));
        Solved { values: row.into(), solve_s: clock.elapsed().as_secs_f64() }
    }
}

/// The row of a point whose dies are larger than can be made.
fn refused(study: &Study, index: u64) -> Option<Finished> {
    let point = study.point(index).ok()?;
    let outcome = Outcome::Infeasible(Infeasible::of_die(point.system.as_ref()?)?);
    let facts =
        Facts { workload: Some(&point.workload), system: point.system.as_ref(), fitted: None, outcome: &outcome };
    let solved = Solved { values: values(&facts).into(), solve_s: 0.0 };
    Some(Finished { index, key: Key::of(&point).ok(), solved, fresh: false })
}

/// Turns a panic into a text, as one of many points must not end the others.
fn guarded<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(format!("internal error, please report it: {text}"))
    })
}

/// A row known so far.
pub(super) struct Row {
    key: String,
    pub(super) solved: Solved,
    /// Position in the order of finishing, from 1.
    order: u64,
    fresh: bool,
}

impl Row {
    /// The row of what finished as the `order`th.
    pub(super) fn new(finished: Finished, order: u64) -> Self {
        let Finished { key, solved, fresh, .. } = finished;
        Self { key: key.map(|k| k.to_string()).unwrap_or_default(), solved, order, fresh }
    }
}

/// Header of the table of wall-clock figures.
pub(super) const TIMING: [&str; 5] = ["point", "key", "solve_s", "finished", "solved_now"];

/// Adds a row to the table of wall-clock figures.
pub(super) fn push_timing<W: Write>(out: &mut Rows<W>, index: u64, row: &Row) -> Result<(), StoreError> {
    let (index, order) = (index.to_string(), row.order.to_string());
    out.push([&index, row.key.as_str(), &number(row.solved.solve_s), &order, &row.fresh.to_string()])
}

/// The one that writes.
pub(super) struct Collector<'s> {
    study: &'s Study,
    heatmap: String,
    pub(super) store: Store,
    progress: Progress,
    rows: BTreeMap<u64, Row>,
    results: Rows<BufWriter<File>>,
    /// The first row that `results` does not have yet.
    next: u64,
    /// What was solved and has no row.
    beyond: u64,
}

impl<'s> Collector<'s> {
    pub(super) fn new(study: &'s Study, store: Store, progress: Progress) -> Result<Self, StoreError> {
        let results = store.folder.rows(RESULTS, &header(study.axis_names()))?;
        Ok(Self { study, heatmap: heatmap(study), store, progress, rows: BTreeMap::new(), results, next: 0, beyond: 0 })
    }

    /// Keeps a finished point.
    pub(super) fn take(&mut self, finished: Finished) -> Result<(), StoreError> {
        if let Some(key) = finished.key.filter(|_| finished.fresh) {
            self.store.journal.note(key, &finished.solved)?;
        }
        // What bounds others, but is no point of the grid, gets no row.
        if self.study.is_beyond(finished.index) {
            self.beyond += u64::from(finished.fresh);
            return Ok(());
        }
        self.rows.insert(finished.index, Row::new(finished, self.rows.len() as u64 + 1));
        while let Some(row) = self.rows.get(&self.next) {
            push(&mut self.results, self.study, &self.heatmap, self.next, row)?;
            self.next += 1;
        }
        self.progress.step();
        Ok(())
    }

    /// Hands what was taken to the operating system. A kill before loses the points that finished since the last time: those
    /// in flight, and those whose lines are being written.
    pub(super) fn write_down(&mut self) -> Result<(), StoreError> {
        self.store.journal.write_down()?;
        self.results.flush()
    }

    /// Adds the row of a point of a search that needed no solve: a design whose die cannot be made, and the mean of several workloads.
    pub(super) fn complete(&mut self, index: u64) -> Result<(), StoreError> {
        let study = self.study;
        let parts = study.mixed(index);
        for part in parts.iter().flatten().chain(parts.is_none().then_some(&index)) {
            if let (false, Some(finished)) = (self.rows.contains_key(part), refused(study, *part)) {
                self.take(finished)?;
            }
        }
        let rows: Option<Vec<Solved>> =
            parts.map(|parts| parts.iter().filter_map(|part| Some(self.rows.get(part)?.solved.clone())).collect());
        if let Some(rows) = rows.filter(|rows| rows.len() == study.spec.workloads.len()) {
            let (key, solved) = (mix::key(study, index).ok(), mix::row(&study.spec, &rows));
            self.take(Finished { index, key, solved, fresh: false })?;
        }
        Ok(())
    }

    /// The rows so far.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Adds the rows of some points to a table.
    pub(super) fn push<W: Write>(&self, out: &mut Rows<W>, points: &[u64]) -> Result<(), StoreError> {
        let rows = points.iter().filter_map(|index| self.rows.get(index).map(|row| (*index, row)));
        rows.into_iter().try_for_each(|(index, row)| push(out, self.study, &self.heatmap, index, row))
    }

    /// Writes the final tables and counts.
    pub(super) fn close(self) -> Result<Summary, StoreError> {
        let Self { study, heatmap, store, progress, rows, results, next, beyond } = self;
        progress.finish();
        let path = results.finish()?;
        let results = if next == rows.len() as u64 {
            // The rows came in order: the file has them all.
            path
        } else {
            store.folder.replace(RESULTS, &header(study.axis_names()), |out| {
                rows.iter().try_for_each(|(index, row)| push(out, study, &heatmap, *index, row))
            })?
        };
        store
            .folder
            .replace(TIMINGS, &TIMING, |out| rows.iter().try_for_each(|(index, row)| push_timing(out, *index, row)))?;
        let mut summary =
            Summary { finished: rows.len() as u64, solved: beyond, results, notes: store.notes, ..Summary::default() };
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        for row in rows.values() {
            summary.solved += u64::from(row.fresh);
            summary.count(row.solved.get("status"));
            let reason = row.solved.get("reason");
            if !reason.is_empty() {
                *reasons.entry(reason).or_default() += 1;
            }
        }
        summary.reasons = reasons.into_iter().map(|(reason, points)| (reason.to_string(), points)).collect();
        summary.reasons.sort_by_key(|(_, points)| std::cmp::Reverse(*points));
        summary.best = ["samples_per_s", "samples_per_s_per_musd", "samples_per_s_per_mw", "j_per_sample", "run_usd"]
            .into_iter()
            .map(|column| (column, best(study, &rows, column)))
            .collect();
        Ok(summary)
    }
}

/// The fields of a row of the results; `point` is its index in words.
pub(super) fn fields<'r>(
    point: &'r str,
    study: &'r Study,
    heatmap: &'r str,
    index: u64,
    row: &'r Row,
) -> impl Iterator<Item = &'r str> {
    std::iter::once(point).chain(study.labels(index)).chain(row.solved.values.iter()).chain([
        study.name(),
        heatmap,
        row.key.as_str(),
    ])
}

/// Adds a row to the results.
fn push<W: Write>(out: &mut Rows<W>, study: &Study, heatmap: &str, index: u64, row: &Row) -> Result<(), StoreError> {
    out.push(fields(&index.to_string(), study, heatmap, index, row))
}

/// The study's heat map as its column says it.
pub(super) fn heatmap(study: &Study) -> String {
    let Some(spec) = &study.spec.plots.heatmap else { return String::new() };
    let join = |names: &[crate::spec::read::Name]| names.iter().map(|n| n.0.as_str()).collect::<Vec<_>>().join("+");
    [&spec.rows, &spec.cols, &spec.value.0, &spec.panels, &spec.figures].map(|names| join(names)).join(";")
}

/// The three points with the best values of a column, as it states its direction; of equals the first.
fn best(study: &Study, rows: &BTreeMap<u64, Row>, column: &str) -> Vec<Best> {
    let (Some(at), Some(better)) = (Solved::position(column), better(column)) else { return Vec::new() };
    let value = |row: &Row| row.solved.values.get(at).and_then(|text| text.parse().ok());
    // Of several workloads the mix says which design is best.
    let counts = |index: &u64| study.spec.workloads.is_empty() || study.mixed(*index).is_some();
    let rows = rows.iter().filter(|(index, _)| counts(index));
    let mut found: Vec<(f64, u64)> = rows.filter_map(|(index, row)| value(row).map(|value| (value, *index))).collect();
    let order = |a: f64, b: f64| match better {
        Better::Lower => a.total_cmp(&b),
        Better::Higher => b.total_cmp(&a),
    };
    found.sort_by(|a, b| order(a.0, b.0).then(a.1.cmp(&b.1)));
    found.truncate(3);
    found.into_iter().map(|(value, point)| Best { point, label: study.labels(point).join(" / "), value }).collect()
}
