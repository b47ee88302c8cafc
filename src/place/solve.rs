//! The engines, side by side: each answers with objective, bound, gap and seconds; the best placement and the best bound count.

use super::anneal::anneal;
use super::around;
use super::cores::Cores;
use super::graph::ActorGraph;
use super::ideals::{Ideals, near, prefixes};
use super::instance::{Instance, Request};
use super::placement::{Objective, Solved};
use super::refine::{Assignment, better, refine};
use super::{chain, milp, pack, stations};
use crate::solver::record::Status;
use crate::solver::{Limits, Solver, SolverError, solve as solve_milp};
use std::time::{Duration, Instant};

crate::choice! {
    /// Which engines run.
    pub enum Engine ("an engine") {
        /// Exact, and HiGHS where that leaves a gap and the model is small enough.
        Auto = "auto",
        /// Lines and ideals, orders and refinement, with their bounds.
        Exact = "exact",
        /// The programme with prefix variables by HiGHS, from the best start.
        Highs = "highs",
        /// The same by CBC.
        Cbc = "cbc",
        /// METIS, recursive and k-way: it knows neither direction nor memory, and proves nothing.
        Metis = "metis",
        /// The programme of streamblocks-partitioning by HiGHS: free placements, equal cores, the objective `sum`.
        B3 = "b3",
    }
}

/// Ideals of a whole graph that the search over pairs of them takes.
const MOST_PAIRED: usize = 4_000;
/// Pairs of ideals of one run.
const MOST_PAIRS: u64 = 40_000_000;
/// Actors of a graph that is annealed.
const MOST_ANNEALED: usize = 2_000;
/// Free placements that are tried one by one.
const MOST_TRIED: f64 = 20_000.0;
/// Annealings of one search.
const RUNS: usize = 4;
/// Largest model, actors x cores, that `auto` hands to HiGHS.
const MOST_CELLS: usize = 8_000;
/// Seconds that a MILP asked for by name has in any case.
const LEAST_LEFT: f64 = 0.05;
/// Share of the time in which transfers of free placements are searched; the rest is for what proves them.
const SEARCH: f64 = 0.6;
/// Relative gap below which a placement is called optimal: whole picoseconds are rounded.
pub const GAP: f64 = 1e-9;

/// What the engines answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The best placement with the best bound.
    pub best: Solved,
    /// Each engine's own answer.
    pub engines: Vec<Solved>,
}

/// Runs the engines on an instance whose pins and memories were checked ([`super::feasible`]).
///
/// # Errors
/// A solver that is missing or fails.
pub fn solve(instance: &Instance, engine: Engine) -> Result<Outcome, SolverError> {
    let start = Instant::now();
    let limit = instance.request.seconds.unwrap_or(10.0);
    let until = start + Duration::from_secs_f64(limit.min(1e6));
    let mut engines = Vec::new();
    match engine {
        Engine::Metis => engines.extend(metis(instance)?),
        Engine::B3 => {
            let begin = exact(instance, until);
            engines.push(programme(instance, Solver::Highs, true, &begin, left(until))?);
        }
        Engine::Exact => engines.push(exact(instance, until)),
        Engine::Highs | Engine::Cbc => {
            let begin = exact(instance, until);
            let solver = if engine == Engine::Cbc { Solver::Cbc } else { Solver::Highs };
            engines.push(programme(instance, solver, false, &begin, left(until))?);
            engines.push(begin);
        }
        Engine::Auto => {
            let begin = exact(instance, until);
            let left = left(until);
            let open = begin.core_of.is_none() || begin.gap() > GAP;
            let again = open && Solver::Highs.is_built() && instance.n * instance.k <= MOST_CELLS && left > LEAST_LEFT;
            if again {
                engines.push(programme(instance, Solver::Highs, false, &begin, left)?);
            }
            engines.push(begin);
        }
    }
    Ok(Outcome { best: combined(&engines, start), engines })
}

/// Seconds that a MILP may take: what is left of the search, and enough to say what it starts from.
fn left(until: Instant) -> f64 {
    until.saturating_duration_since(Instant::now()).as_secs_f64().max(LEAST_LEFT)
}

/// The best placement of all engines with the best of their bounds.
fn combined(engines: &[Solved], start: Instant) -> Solved {
    let bound = engines.iter().map(|s| s.bound).fold(f64::NEG_INFINITY, f64::max);
    let best = engines.iter().filter(|s| s.core_of.is_some()).min_by(|a, b| a.objective.total_cmp(&b.objective));
    let seconds = start.elapsed().as_secs_f64();
    match best {
        Some(best) => {
            let mut best = Solved { bound: bound.min(best.objective), seconds, ..best.clone() };
            if best.gap() <= GAP {
                best.status = Status::Optimal;
            } else if best.status == Status::Optimal {
                best.status = Status::NodeLimit;
            }
            best
        }
        None => {
            let mut none = engines.first().cloned().unwrap_or(Solved {
                engine: "none",
                core_of: None,
                objective: f64::INFINITY,
                bound: 0.0,
                status: Status::Infeasible,
                seconds,
            });
            if engines.iter().any(|s| s.status == Status::Infeasible) {
                none.status = Status::Infeasible;
            }
            none
        }
    }
}

/// The exact engines and the heuristics that start them.
pub fn exact(instance: &Instance, until: Instant) -> Solved {
    let clock = Instant::now();
    let request = instance.request;
    let end = until;
    let proves = !request.acyclic && request.objective != Objective::Bottleneck;
    let until = if proves { clock + until.saturating_duration_since(clock).mul_f64(SEARCH) } else { until };
    let seconds = |ticks: u64| ticks as f64 / instance.rate;
    let timed = request.objective != Objective::Cut;
    let mut load = instance.load_bound();
    let mut best: Option<Assignment> = None;
    let mut whole: Option<Ideals> = None;
    // Placements that break nothing and cost what the bound says need no more search.
    let done = |best: &Option<Assignment>, load: u64| {
        timed
            && best.as_ref().is_some_and(|b| {
                let (broken, objective, _) = b.worth();
                broken == 0.0 && objective <= seconds(load) * (1.0 + GAP)
            })
    };
    if request.acyclic {
        let plain = instance.alike() && !instance.pinned();
        let mut orders = vec![instance.order.clone()];
        let most = if instance.n > 2_000 { stations::MOST_IDEALS / 2 } else { stations::MOST_IDEALS };
        if instance.alike() {
            let found = stations::bound(instance, most, until);
            load = load.max(found.bound);
            orders.splice(0..0, found.orders);
        }
        if plain && timed {
            for order in &orders {
                keep(&mut best, line(instance, order, load));
            }
        }
        if !done(&best, load) {
            let members = instance.order.clone();
            let before = near(instance, &members, false);
            whole = Ideals::of(members, &before, MOST_PAIRED);
            if whole.is_none() {
                for order in orders.iter().take(3) {
                    if Instant::now() >= until {
                        break;
                    }
                    // A chain of one order may be much better than what is known: it is not limited by that.
                    let known = best.as_ref().filter(|b| b.worth().0 == 0.0).map_or(f64::INFINITY, |b| b.objective());
                    let chain = chain::best(instance, &prefixes(order.clone()), known, MOST_PAIRS / 4, until);
                    keep(&mut best, chain.core_of.map(|c| Assignment::new(instance, c)));
                }
            }
        }
    } else {
        keep(&mut best, Some(Assignment::new(instance, pack::longest_first(instance))));
        if instance.alike() {
            load = load.max(pack::whole_actors(instance));
        }
        if request.objective != Objective::Bottleneck {
            // A chain of stages is a free placement too.
            let chained = Request { acyclic: true, ..request.clone() };
            let chained = Instance { request: &chained, ..instance.clone() };
            let found = exact(&chained, until);
            keep(&mut best, found.core_of.map(|c| Assignment::new(instance, c)));
        }
    }
    let starts = if request.acyclic || done(&best, load) { Vec::new() } else { super::metis::starts(instance) };
    let starts = starts.into_iter().map(|core_of| refine(Assignment::new(instance, core_of), until));
    let divided: Vec<Assignment> = starts.collect();
    let annealed = !request.acyclic && request.objective != Objective::Bottleneck && instance.n <= MOST_ANNEALED;
    if annealed && !done(&best, load) {
        let begins: Vec<Assignment> =
            best.iter().cloned().chain([Assignment::new(instance, pack::longest_first(instance))]).collect();
        let scale = begins.iter().map(Assignment::objective).fold(f64::INFINITY, f64::min);
        // What METIS gives is annealed as well, not instead: a build with it never finds less than one without.
        let runs = begins.into_iter().cycle().take(RUNS).chain(divided.iter().cloned());
        for (seed, begin) in runs.enumerate() {
            let found = anneal(instance, begin, (scale, seed as u64), until);
            keep(&mut best, Some(refine(found, until)));
        }
    }
    for start in divided {
        keep(&mut best, Some(start));
    }
    if best.is_none() {
        best = Some(Assignment::new(instance, fallback(instance)));
    }
    if !done(&best, load) {
        best = best.map(|b| refine(b, until));
    }
    let mut bound = if timed { seconds(load) } else { 0.0 };
    let mut core_of: Option<Vec<usize>> = None;
    let mut objective = f64::INFINITY;
    if let Some(b) = &best
        && b.worth().0 == 0.0
    {
        (core_of, objective) = (Some(b.core_of.clone()), b.objective());
    }
    let mut infeasible = false;
    if let Some(ideals) = whole.filter(|_| !done(&best, load)) {
        let chain = chain::best(instance, &ideals, objective, MOST_PAIRS, until);
        if chain.whole {
            bound = bound.max(chain.bound.min(objective));
            infeasible = chain.bound.is_infinite() && core_of.is_none();
        }
        if let Some(found) = chain.core_of {
            let found = Assignment::new(instance, found);
            if found.worth().0 == 0.0 && found.objective() < objective {
                objective = found.objective();
                core_of = Some(found.core_of);
            }
        }
    }
    let few = (instance.k as f64).powi(i32::try_from(instance.n).unwrap_or(i32::MAX)) <= MOST_TRIED;
    if !request.acyclic && few && (core_of.is_none() || objective > bound * (1.0 + GAP)) {
        match every_placement(instance) {
            Some(found) => {
                (objective, core_of) = (found.objective(), Some(found.core_of));
                bound = objective;
            }
            None => infeasible = true,
        }
    }
    // Nothing keeps the balance where no placement has so small a largest load.
    infeasible |= core_of.is_none() && instance.cap.is_some_and(|cap| load > cap);
    if !infeasible && objective > bound * (1.0 + GAP) {
        bound = bound.max(around::bound(instance, objective, end).min(objective));
    }
    if infeasible {
        bound = f64::INFINITY;
    }
    let status = if infeasible {
        Status::Infeasible
    } else if core_of.is_some() && objective <= bound * (1.0 + GAP) {
        Status::Optimal
    } else if Instant::now() >= end {
        Status::TimeLimit
    } else {
        Status::NodeLimit
    };
    let bound = if status == Status::Optimal { bound.min(objective) } else { bound };
    Solved { engine: "exact", core_of, objective, bound, status, seconds: clock.elapsed().as_secs_f64() }
}

/// The best of all placements that break nothing, one after another: for graphs so small that the engines for large ones, which prove
/// little of free placements, need not be trusted.
fn every_placement<'i, 'g>(instance: &'i Instance<'g>) -> Option<Assignment<'i, 'g>> {
    let mut at = Assignment::new(instance, instance.request.pins.iter().map(|p| p.unwrap_or(0)).collect());
    let free: Vec<usize> = (0..instance.n).filter(|i| instance.request.pins[*i].is_none()).collect();
    let mut best: Option<Assignment> = None;
    loop {
        if at.worth().0 == 0.0 {
            keep(&mut best, Some(at.clone()));
        }
        // The next number whose digits are the cores.
        let Some(&i) = free.iter().find(|i| at.core_of[**i] + 1 < instance.k) else { break };
        for &j in free.iter().take_while(|j| **j != i) {
            at.apply(j, 0);
        }
        let next = at.core_of[i] + 1;
        at.apply(i, next);
    }
    // Sums that were kept up over many moves have gathered rounding errors.
    best.map(|b| Assignment::new(instance, b.core_of))
}

fn keep<'i, 'g>(best: &mut Option<Assignment<'i, 'g>>, found: Option<Assignment<'i, 'g>>) {
    if let Some(found) = found
        && best.as_ref().is_none_or(|b| better(&found, b))
    {
        *best = Some(found);
    }
}

/// A placement that obeys pins and order, whatever else it breaks: the actors in order, each on the earliest core it may have.
fn fallback(instance: &Instance) -> Vec<usize> {
    let mut core_of = vec![0; instance.n];
    for &i in &instance.order {
        let edges = instance.incoming[i].iter().map(|e| &instance.edges[*e]).filter(|e| e.waits);
        let low = if instance.request.acyclic { edges.map(|e| core_of[e.from]).max().unwrap_or(0) } else { 0 };
        core_of[i] = instance.request.pins[i].unwrap_or(low);
    }
    core_of
}

/// The least T for which an order packs into the stages, searched upwards from the bound.
fn line<'i, 'g>(instance: &'i Instance<'g>, order: &[usize], bound: u64) -> Option<Assignment<'i, 'g>> {
    let pack = |t: u64| {
        let stages = [true, false].into_iter().filter_map(|strict| stations::fill(instance, order, t, strict));
        stages.map(|s| Assignment::new(instance, s)).reduce(|a, b| if better(&b, &a) { b } else { a })
    };
    let (mut low, mut high) = (bound, bound.max(1));
    let mut found = pack(high);
    let mut step = bound / 4096 + 1;
    while found.is_none() {
        low = high;
        high = high.checked_add(step)?;
        step = step.saturating_mul(2);
        found = pack(high);
    }
    // First fit is not monotone: halving finds some threshold, no worse than where it began.
    for _ in 0..24 {
        if high - low <= 1 {
            break;
        }
        let middle = low.midpoint(high);
        match pack(middle) {
            Some(better) => (high, found) = (middle, Some(better)),
            None => low = middle,
        }
    }
    found
}

/// A MILP by a solver, from the placement known.
fn programme(
    instance: &Instance,
    solver: Solver,
    b3: bool,
    begin: &Solved,
    seconds: f64,
) -> Result<Solved, SolverError> {
    let clock = Instant::now();
    let timed = instance.request.objective != Objective::Cut;
    let unit = if begin.objective.is_finite() && begin.objective > 0.0 {
        begin.objective
    } else if timed {
        (instance.load_bound() as f64 / instance.rate).max(1e-12)
    } else {
        instance.edges.iter().map(|e| e.bytes).sum::<f64>().max(1.0)
    };
    let model = if b3 { milp::b3(instance, unit) } else { milp::model(instance, begin.bound.max(0.0), unit) };
    // Where cores are alike the formulations number them by their first actor.
    let start = begin.core_of.as_ref().and_then(|c| model.point(c).or_else(|| model.point(&by_first(c))));
    let limits = Limits { solver, gap: 1e-7, seconds: Some(seconds), nodes: None, seed: 0 };
    let solved = solve_milp(&model.milp, &limits, start.as_deref())?;
    let engine = if b3 { "b3" } else { solver.word() };
    let found = solved.values.map(|v| model.core_of(&v, instance.k));
    let found = found.map(|c| Assignment::new(instance, c)).filter(|a| a.worth().0 <= 1e-9);
    let (core_of, objective) = match found {
        Some(a) => (Some(a.core_of.clone()), a.objective()),
        None => (None, f64::INFINITY),
    };
    let mut bound = (solved.record.bound * model.unit).min(objective);
    // Within the solver's gap of whole picoseconds the placement is the optimum.
    if solved.record.status == Status::Optimal && objective - bound <= 1e-6 * objective {
        bound = objective;
    }
    let status = match solved.record.status {
        Status::Optimal if objective - bound > GAP * objective => Status::NodeLimit,
        other => other,
    };
    Ok(Solved { engine, core_of, objective, bound, status, seconds: clock.elapsed().as_secs_f64() })
}

/// The same parts, numbered in the order of their first actors.
fn by_first(core_of: &[usize]) -> Vec<usize> {
    let mut number = std::collections::HashMap::new();
    core_of
        .iter()
        .map(|p| {
            let next = number.len();
            *number.entry(*p).or_insert(next)
        })
        .collect()
}

/// METIS alone, as it is.
fn metis(instance: &Instance) -> Result<Vec<Solved>, SolverError> {
    if !super::metis::BUILT {
        return Err(SolverError::Failed(
            "this build has no METIS: build with `cargo build --release --features metis`, or use --solver exact"
                .into(),
        ));
    }
    let clock = Instant::now();
    let names = ["metis-recursive", "metis-kway"];
    let starts = super::metis::starts(instance);
    let seconds = clock.elapsed().as_secs_f64();
    Ok(names
        .into_iter()
        .zip(starts)
        .map(|(engine, core_of)| {
            let found = Assignment::new(instance, core_of);
            let back = |e: &super::instance::Edge| e.waits && found.core_of[e.from] > found.core_of[e.to];
            let circular = instance.request.acyclic && instance.edges.iter().any(back);
            let broken = found.worth().0 > 0.0 || circular;
            Solved {
                engine,
                objective: if broken { f64::INFINITY } else { found.objective() },
                core_of: (!broken).then_some(found.core_of),
                bound: 0.0,
                status: Status::NodeLimit,
                seconds,
            }
        })
        .collect())
}

/// The instance of a graph with the capacities it has or is given by the runtime's rule, for callers that have none.
///
/// # Errors
/// An [`super::graph::ActorError`] of the graph.
pub fn instance<'g>(
    graph: &ActorGraph,
    cores: &'g Cores,
    request: &'g Request,
) -> Result<Instance<'g>, super::graph::ActorError> {
    Instance::new(graph, &super::placement::capacities(graph), cores, request)
}
