//! The front of a grid of systems, found with a proof and without solving every point.
//!
//! [`aim`] says what is asked (`search:` of a study), [`cover`] is the branch and bound over boxes of the grid; here the two meet the
//! study: points are built, priced and solved as a run of the whole grid does it, with the same journal, and what was found is written
//! to `results.csv` (every point that was solved), `front.csv` (those of the front) and `front.json` (what was proven).

pub mod aim;
pub mod cover;
pub mod known;

pub use aim::SearchSpec;

use super::axis::Override;
use super::field::Root;
use super::grid::Study;
use super::mix;
use super::progress::{Progress, Show};
use super::store::{Solved, Store, header};
use super::sweep::{self, Collector, Finished, RunOptions, Shared, StudyError, Summary};
use crate::report::csv::{FAILED, INFEASIBLE};
use crate::system::{Die, System};
use aim::Measure;
use cover::{Covered, Ended, Found, Order, Points, Question, Settled};
use rayon::prelude::*;
use serde_json::json;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Name of the table of the front.
pub const FRONT: &str = "front.csv";
/// Name of what was proven.
pub use crate::report::html::front::PROOF;

/// What a search of the front did.
#[derive(Debug, Clone, PartialEq)]
pub struct FrontSummary {
    /// Counts of the points that were solved.
    pub run: Summary,
    /// Points of the front, by index.
    pub front: Vec<u64>,
    /// How the points of the grid were settled.
    pub settled: Settled,
    /// No point of the space is better than one of the front by more than this, in any objective.
    pub within: f64,
    /// The objectives, as the study has them.
    pub objectives: Vec<String>,
    /// How many constraints it has.
    pub constraints: usize,
    /// Axes that are not ordered, so that each of their values was searched by itself.
    pub unordered: Vec<String>,
    /// Axes of which the values between count too.
    pub continuous: Vec<String>,
    /// Those of them whose intervals are too wide for the tolerance that was asked for.
    pub wide: Vec<String>,
    /// The table of the front.
    pub table: PathBuf,
}

/// Searches the front of a study into a folder.
///
/// # Errors
/// As [`sweep::run`]; and [`StudyError::Disorder`] where two points show that an axis does not act as it should.
pub fn run(study: Study, search: &SearchSpec, options: &RunOptions) -> Result<FrontSummary, StudyError> {
    let clock = Instant::now();
    let ready = sweep::ready(study, options, sweep::solver())?;
    let sweep::Ready { shared, store, pool, progress, .. } = ready;
    let collector = Collector::new(&shared.study, store, progress)?;
    let solving = Solving { shared: &shared, pool: &pool, collector, clock, told: clock, show: options.show };
    let (covered, solving) = covered(&shared.study, search, solving)?;
    conclude(&shared.study, search, &covered, solving.collector, clock)
}

/// How far a search comes with the points that are solved.
pub(super) enum Replayed {
    /// To its end.
    Whole(Covered),
    /// To where it needs these points, each once.
    Wants(Vec<u64>),
}

/// Searches the front as far as the solved points reach: the search takes the same way each time, so that what it asks for follows from
/// what was found before.
pub(super) fn replay(
    study: &Study,
    search: &SearchSpec,
    solved: &HashMap<u64, Finished>,
) -> Result<Replayed, StudyError> {
    let (covered, known) = covered(study, search, Known { solved, wanted: Vec::new() })?;
    Ok(if known.wanted.is_empty() { Replayed::Whole(covered) } else { Replayed::Wants(known.wanted) })
}

/// Writes the tables of a search that came to its end with the points that are solved.
pub(super) fn write(
    study: &Study,
    search: &SearchSpec,
    covered: &Covered,
    mut solved: HashMap<u64, Finished>,
    store: Store,
) -> Result<FrontSummary, StudyError> {
    let clock = Instant::now();
    let mut collector = Collector::new(study, store, Progress::new(Show::Nothing, 0))?;
    for point in &covered.solved {
        let index = study.index(&by_rank(study, &point.at));
        for part in study.mixed(index).unwrap_or_else(|| vec![index]) {
            solved.remove(&part).map_or(Ok(()), |finished| collector.take(finished))?;
        }
    }
    conclude(study, search, covered, collector, clock)
}

/// The columns that a search compares points by: its objectives, then its constraints.
fn measures(search: &SearchSpec) -> Vec<Measure> {
    search.front.iter().map(|aim| aim.0).chain(search.constraints.iter().map(|c| c.measure)).collect()
}

/// The search itself.
fn covered<A: Answers>(study: &Study, search: &SearchSpec, answers: A) -> Result<(Covered, A), StudyError> {
    let measures = measures(search);
    let question = Question {
        sizes: study.searched().map(|(_, values)| values).collect(),
        orders: study.axes.iter().map(order).collect(),
        continuous: study.axes.iter().map(|axis| axis.continuous).collect(),
        objectives: search.front.len(),
        // The last is the size of dies, over the largest that can be made: what is beyond is solved for its bound, but no design.
        limits: search.constraints.iter().map(|c| c.limit).chain([1.0]).collect(),
        within: search.within.0,
        at_once: usize::try_from(search.at_once).unwrap_or(usize::MAX),
    };
    let grid = Grid {
        study,
        answers,
        measures: &measures,
        known: RefCell::default(),
        names_workload: of_workload(study),
        classes: RefCell::default(),
    };
    let (covered, grid) = cover::cover(&question, grid).map_err(|ended| match ended {
        Ended::Points(error) => error,
        Ended::Disorder { low, high, measure, given } => {
            StudyError::Disorder(disorder(study, &measures, (&low, &high), measure, given))
        }
    })?;
    Ok((covered, grid.answers))
}

/// Writes what was found.
fn conclude(
    study: &Study,
    search: &SearchSpec,
    covered: &Covered,
    mut collector: Collector<'_>,
    clock: Instant,
) -> Result<FrontSummary, StudyError> {
    study.count().ok_or(StudyError::Endless)?;
    let total: u64 = study.searched().map(|(_, values)| values as u64).product();
    let Covered { solved, settled, within, wide } = covered;
    let index = |at: &[usize]| study.index(&by_rank(study, at));
    let mut front: Vec<u64> = solved.iter().filter(|point| point.on_front).map(|point| index(&point.at)).collect();
    front.sort_unstable();
    solved.iter().try_for_each(|point| collector.complete(index(&point.at)))?;
    let axes = header(study.axis_names());
    let table = collector.store.folder.replace(FRONT, &axes, |out| collector.push(out, &front))?;
    let objectives: Vec<String> = search.front.iter().map(|aim| aim.to_string()).collect();
    let unordered =
        study.axes.iter().filter(|axis| axis.ranks.is_none() && !axis.mixes).map(|axis| axis.name.clone()).collect();
    let names = |of: &dyn Fn(usize) -> bool| -> Vec<String> {
        study.axes.iter().enumerate().filter(|(at, _)| of(*at)).map(|(_, axis)| axis.name.clone()).collect()
    };
    let (continuous, wide) = (names(&|at| study.axes[at].continuous), names(&|at| wide.contains(&at)));
    let share = |points: u64| points as f64 / total as f64;
    let closed = |points: u64| json!({ "points": points, "share": share(points) });
    let mut proof = json!({
        "objectives": objectives,
        "constraints": search.constraints.iter().map(|c| &c.text).collect::<Vec<_>>(),
        "within": within,
        "asked_within": search.within.0,
        "points": total,
        "front": front,
        "solved": closed(settled.solved),
        "no_better_than_a_solved_point": closed(settled.reached),
        "below_an_infeasible_corner": closed(settled.infeasible),
        "keeps_no_constraint": closed(settled.outside),
        "states_no_price_or_power": closed(settled.unknown),
        "could_not_be_solved": closed(settled.failed),
        "open": closed(settled.open),
        "unordered_axes": unordered,
        "continuous_axes": continuous,
        "too_wide_axes": wide,
    });
    if !study.spec.workloads.is_empty() {
        // Each design has a row for each of them, and one of their mix.
        proof["workloads"] = study.spec.workloads.len().into();
    }
    collector.store.folder.write(PROOF, format!("{proof:#}\n").as_bytes())?;
    let mut run = collector.close()?;
    run.points = total;
    // Of several workloads every design is as many solves.
    run.solved = run.solved.div_ceil(study.spec.workloads.len().max(1) as u64);
    run.stopped = settled.open > 0;
    run.seconds = clock.elapsed().as_secs_f64();
    Ok(FrontSummary {
        run,
        front,
        settled: *settled,
        within: *within,
        objectives,
        constraints: search.constraints.len(),
        unordered,
        continuous,
        wide,
        table,
    })
}

/// Which axes change the workload, by themselves or by a rule.
fn of_workload(study: &Study) -> Vec<bool> {
    let changes = |change: &Override| change.path.root == Root::Workload;
    let mut of: Vec<bool> =
        study.axes.iter().map(|axis| axis.values.iter().flat_map(|value| &value.overrides).any(changes)).collect();
    for rule in study.rules.iter().filter(|rule| rule.overrides.iter().any(changes)) {
        rule.when.iter().for_each(|(axis, _)| of[*axis] = true);
    }
    of
}

/// How an axis acts.
fn order(axis: &super::axis::Axis) -> Order {
    match (&axis.ranks, &axis.rates) {
        (None, _) => Order::Unordered,
        (Some(_), None) => Order::Amounts,
        (Some(_), Some(rates)) => Order::Rates(rates.clone()),
    }
}

/// Positions of the values of each axis, from their ranks.
fn by_rank(study: &Study, at: &[usize]) -> Vec<usize> {
    let position = |(rank, axis): (&usize, &super::axis::Axis)| match &axis.ranks {
        Some(ranks) => ranks[*rank],
        None if axis.mixes => axis.values.len() - 1,
        None => *rank,
    };
    at.iter().zip(&study.axes).map(position).collect()
}

/// Where solved points come from.
trait Answers {
    /// The rows of points; fewer than were asked for when the search has to end there.
    fn rows(&mut self, points: &[u64]) -> Result<Vec<Solved>, StudyError>;
}

/// They are solved when they are asked for.
struct Solving<'g> {
    shared: &'g Shared,
    pool: &'g rayon::ThreadPool,
    collector: Collector<'g>,
    clock: Instant,
    told: Instant,
    show: Show,
}

impl Answers for Solving<'_> {
    fn rows(&mut self, points: &[u64]) -> Result<Vec<Solved>, StudyError> {
        if self.shared.stop.load(Ordering::Relaxed) {
            return Ok(Vec::new());
        }
        let finished: Vec<Finished> =
            self.pool.install(|| points.par_iter().map(|index| self.shared.finish(*index)).collect());
        let mut found = Vec::with_capacity(finished.len());
        for point in finished {
            found.push(point.solved.clone());
            self.collector.take(point)?;
        }
        self.collector.write_down()?;
        if self.show == Show::Progress && self.told.elapsed() >= EVERY {
            self.told = Instant::now();
            let (solved, seconds) = (self.collector.len(), self.clock.elapsed().as_secs_f64());
            eprintln!("{solved} points solved in {seconds:.0} s");
        }
        Ok(found)
    }
}

/// They were solved before, or are to be solved before the search goes on.
struct Known<'g> {
    solved: &'g HashMap<u64, Finished>,
    wanted: Vec<u64>,
}

impl Answers for Known<'_> {
    fn rows(&mut self, points: &[u64]) -> Result<Vec<Solved>, StudyError> {
        let mut wanted: Vec<u64> = points.iter().filter(|point| !self.solved.contains_key(point)).copied().collect();
        if !wanted.is_empty() {
            wanted.sort_unstable();
            wanted.dedup();
            self.wanted = wanted;
            return Ok(Vec::new());
        }
        Ok(points.iter().filter_map(|point| self.solved.get(point)).map(|point| point.solved.clone()).collect())
    }
}

/// The grid, as the search sees it.
struct Grid<'g, A> {
    study: &'g Study,
    answers: A,
    measures: &'g [Measure],
    /// What is given of points that were built.
    known: RefCell<HashMap<u64, Option<Vec<f64>>>>,
    /// Which axes change the workload.
    names_workload: Vec<bool>,
    /// For each choice of their values what its points are compared with, and the name of the workload: other workloads have other fronts.
    classes: RefCell<HashMap<Vec<usize>, (usize, String)>>,
}

/// Time between two lines of progress.
const EVERY: Duration = Duration::from_secs(5);
/// Most points whose prices are kept.
const MOST_KNOWN: usize = 1 << 20;

impl<A: Answers> Points for Grid<'_, A> {
    type Error = StudyError;

    fn given(&self, at: &[usize]) -> Option<Vec<f64>> {
        let study = self.study;
        let index = study.index(&by_rank(study, at));
        if let Some(known) = self.known.borrow().get(&index) {
            return known.clone();
        }
        let system = study.point(index).ok().and_then(|point| point.system);
        let given = system.and_then(|system| {
            self.measures.iter().map(|m| m.given(&system)).chain([Some(of_limit(&system))]).collect::<Option<Vec<_>>>()
        });
        let mut known = self.known.borrow_mut();
        if known.len() < MOST_KNOWN {
            known.insert(index, given.clone());
        }
        given
    }

    fn stands(&self, at: &[usize]) -> bool {
        self.study.point(self.study.index(&by_rank(self.study, at))).is_ok()
    }

    fn class(&self, at: &[usize]) -> usize {
        let study = self.study;
        // By the values of the axes that change the workload: the others are no part of its name.
        let of_workload: Vec<usize> = by_rank(study, at)
            .iter()
            .zip(&self.names_workload)
            .map(|(at, names)| if *names { *at } else { 0 })
            .collect();
        let mut classes = self.classes.borrow_mut();
        if let Some((class, _)) = classes.get(&of_workload) {
            return *class;
        }
        // One that cannot be built here may be elsewhere: it is compared with its like alone.
        let point = study.point(study.index(&of_workload));
        let name = point.map_or_else(|_| format!("{of_workload:?}"), |point| point.workload.name.clone());
        let known = classes.values().find(|(_, known)| *known == name).map(|(class, _)| *class);
        let class = known.unwrap_or_else(|| classes.values().map(|(class, _)| class + 1).max().unwrap_or(0));
        classes.insert(of_workload, (class, name));
        class
    }

    fn solve(&mut self, points: &[Vec<usize>]) -> Result<Vec<Found>, StudyError> {
        let study = self.study;
        let indices: Vec<u64> = points.iter().map(|at| study.index(&by_rank(study, at))).collect();
        // A mean is that of its parts; what cannot be made is asked for as if it could.
        let asked: Vec<Vec<u64>> = indices
            .iter()
            .zip(points)
            .map(|(index, at)| {
                let beyond =
                    self.given(at).and_then(|given| given.last().copied()).is_some_and(|size| size > MOST_OF_LIMIT);
                let parts = study.mixed(*index).unwrap_or_else(|| vec![*index]);
                parts.into_iter().map(|part| if beyond { study.beyond(part) } else { part }).collect()
            })
            .collect();
        let all: Vec<u64> = asked.iter().flatten().copied().collect();
        let rows = self.answers.rows(&all)?;
        if rows.len() < all.len() {
            return Ok(Vec::new());
        }
        let mut rows = rows.into_iter();
        let read_one = |(asked, index): (&Vec<u64>, &u64)| {
            let rows: Vec<Solved> = rows.by_ref().take(asked.len()).collect();
            let found = match (study.mixed(*index), rows.first()) {
                (None, Some(row)) => read(self.measures, row),
                (None, None) => Ok(Found::Failed),
                (Some(_), _) => read(self.measures, &mix::row(&study.spec, &rows)),
            };
            found.map_err(|column| {
                StudyError::NoValue(format!(
                    "front: point {index} has a plan, and no {column}: serving has no FLOP, graphs without tokens no tokens; name another objective"
                ))
            })
        };
        asked.iter().zip(&indices).map(read_one).collect()
    }
}

/// The size of the dies of a system over the largest that can be made; nothing where chips are not summed from parts.
fn of_limit(system: &System) -> f64 {
    Die::of(system).map_or(0.0, |die| die.mm2 / die.most_mm2)
}

/// Above this a die is too large, as [`Die::too_large`] has it.
const MOST_OF_LIMIT: f64 = 1.0 + 1e-9;

/// What a row says.
///
/// # Errors
/// The column of which a row with a plan has no value.
fn read(measures: &[Measure], row: &Solved) -> Result<Found, &'static str> {
    let number = |column: &str| row.get(column).parse::<f64>().ok();
    match row.get("status") {
        INFEASIBLE => return Ok(Found::Infeasible),
        FAILED => return Ok(Found::Failed),
        _ => {}
    }
    let searched: Result<Vec<f64>, _> = measures.iter().map(|m| m.searched(number).ok_or(m.column)).collect();
    let (searched, gap) = (searched?, number("gap").ok_or("gap")?);
    let least = |(value, measure): (&f64, &Measure)| {
        if measure.is_searched() { value * (1.0 - gap) } else { *value }
    };
    // The size of a die is given.
    let least = searched.iter().zip(measures).map(least).chain([1.0]).collect();
    Ok(Found::Plan { searched: searched.iter().copied().chain([1.0]).collect(), least })
}

/// Two points that show that an axis does not act as it should.
fn disorder(
    study: &Study,
    measures: &[Measure],
    (low, high): (&[usize], &[usize]),
    measure: Option<usize>,
    given: bool,
) -> String {
    let point = |at: &[usize]| {
        let index = study.index(&by_rank(study, at));
        format!("point {index} ({})", study.labels(index).join(" / "))
    };
    let differ: Vec<&str> = low
        .iter()
        .zip(high)
        .zip(&study.axes)
        .filter(|((a, b), _)| a != b)
        .map(|(_, axis)| axis.name.as_str())
        .collect();
    let (low, high) = (point(low), point(high));
    let differ = differ.join(", ");
    let what = match measure.map(|i| measures.get(i)) {
        Some(None) => format!("the die of {low} is larger than that of {high}"),
        Some(Some(measure)) if given => {
            format!("{} of {low} is higher than that of {high}", measure.given_column().unwrap_or(measure.column))
        }
        Some(Some(measure)) => format!("{low} has a better {} than {high} can have", measure.column),
        None => format!("{low} has a plan, {high} has none"),
    };
    format!(
        "{what}, which has no less of anything by the order of its axes: one of {differ} does not act so; say order: unordered there"
    )
}
