//! Sharding between chips, as a MILP (design section 6.2; DFModel's inter-chip pass, model.md section 4).
//!
//! Sets: kernels k with their open strategies a; links l from a kernel u to a kernel v that reads its output, each
//! with a table of what the pair of strategies costs; groups g of links that share a conversion (readers of one
//! tensor, in one phase).
//!
//! ```text
//! Variables
//!   s[k,a]      binary   kernel k is sharded by a
//!   y[l,a,b]    >= 0     u is sharded by a and v by b
//!   q[g,i,j]    >= 0     the tensor of group g is made in layout i and wanted in layout j
//!
//! Objective: sum_k cost[k,a] s[k,a] + sum_g cost[g,i,j] q[g,i,j], divided by its own size so that coefficients are
//! about one. In seconds: a strategy costs the arithmetic of its shard (on chips that run kernel by kernel, the
//! larger of that and its DRAM traffic), a conversion the time of its collective on the links of the group. In bytes
//! (DFModel): the bytes communicated, nothing else.
//!
//! Constraints
//!   C1  sum_a s[k,a] = 1                                                        [`build`]
//!   C2  sum_b y[l,a,b] = s[u,a],  sum_a y[l,a,b] = s[v,b]                       [`emit_flow`]
//!   C3  q[g,i,j] >= sum of y[l,a,b] over pairs (a, b) with layouts (i, j), for each link l of g   [`emit_groups`]
//! ```
//!
//! Pairs that cannot be (an impossible conversion; a backward kernel that would need other shards of its weight) have
//! no y. C2 is tight: on trees its relaxation is integral.
//!
//! Layers repeat: what the last kernel writes and the next layer's first kernel reads is a link like any other, so the
//! layout a layer ends with is the layout it begins with. Of several blocks (embedding, layers, head) a kernel's cost and the
//! links inside a block count as often as the block is repeated, the links from block to block once. (A reader in another
//! block that wants a layout which the block's own readers want too pays for it here, though not in the fusion problem.)

use super::degrees::Degrees;
use super::elimination::{Eliminated, eliminate, near};
use super::record::{SolveRecord, Status};
use super::solver::{Limits, Milp, SolverError, solve};
use crate::deadline::Deadline;
use crate::graph::Divided;
use crate::model::collective;
use crate::model::compute::{Tiling, moved_bytes, tensor_bytes};
use crate::model::energy;
use crate::model::layout::{Layout, Strategy, conversion, produced, required, strategies, weight_shards_agree};
use crate::model::memory::kept_readers;
use crate::model::rate::{Compute, Rate};
use crate::model::schedule::samples_per_pass;
use crate::system::options::{Charge, Fanout, Layouts, ShardingObjective, WeightTraffic};
use crate::system::{Style, System};
use crate::workload::{CollectiveKind, Kernel, Op, Phase, Use, Workload};
use std::collections::BTreeMap;

/// A sharding problem, free of where its costs come from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Problem {
    /// Open strategies of each kernel.
    pub open: Vec<Vec<Strategy>>,
    /// Cost of each open strategy.
    pub cost: Vec<Vec<f64>>,
    /// Links.
    pub links: Vec<Link>,
    /// Cost of each conversion of each group.
    pub groups: Vec<BTreeMap<(Layout, Layout), f64>>,
}

/// A producer and a reader.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Producer.
    pub from: usize,
    /// Reader.
    pub to: usize,
    /// For each pair of open strategies: the conversion it needs, `None` where the pair cannot be.
    pub pairs: Vec<Vec<Option<(Layout, Layout)>>>,
    /// Group that pays the conversions; none for links that only couple strategies.
    pub group: Option<usize>,
    /// The kernels one of which pays.
    pub payers: Vec<usize>,
}

/// A solved sharding.
#[derive(Debug, Clone, PartialEq)]
pub struct Sharding {
    /// Strategy of each kernel.
    pub strategies: Vec<Strategy>,
    /// The record; objective in the problem's unit.
    pub record: SolveRecord,
}

/// What a sharding problem counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds of work and of conversions.
    Seconds,
    /// Bytes communicated (DFModel).
    Bytes,
    /// Joules of the links in conversions, nothing else.
    LinkJoules,
}

/// Builds the problem of a workload in a tensor-parallel group, in the unit of the model. `pins` fixes strategies.
///
/// # Errors
/// The name of a kernel that is left without a strategy.
pub fn problem(
    workload: &Workload,
    system: &System,
    degrees: &Degrees,
    pins: &[Option<Strategy>],
) -> Result<Problem, String> {
    let unit = match system.model.sharding_objective {
        ShardingObjective::Time => Unit::Seconds,
        ShardingObjective::Bytes => Unit::Bytes,
    };
    let open = open_strategies(workload, degrees.tp, system.model.layouts, pins, true);
    problem_of(open, unit, workload, system, degrees)
}

/// The same in a given unit, over all strategies: for a search that sees the memory.
///
/// # Errors
/// As [`problem`].
pub fn problem_in(
    unit: Unit,
    workload: &Workload,
    system: &System,
    degrees: &Degrees,
    pins: &[Option<Strategy>],
) -> Result<Problem, String> {
    let open = open_strategies(workload, degrees.tp, system.model.layouts, pins, false);
    problem_of(open, unit, workload, system, degrees)
}

fn problem_of(
    open: Vec<Vec<Strategy>>,
    unit: Unit,
    workload: &Workload,
    system: &System,
    degrees: &Degrees,
) -> Result<Problem, String> {
    let options = &system.model;
    let rules = options.layouts;
    let t = degrees.tp;
    let word = workload.word_bytes;
    let samples = samples_per_pass(workload, options);
    let mut problem = Problem::default();
    let operands = Operands::of(workload);
    let rate = Rate::of(workload, system);
    // Of several blocks each counts as often as it is repeated, and what goes from one to another once.
    let times = |block: usize| if workload.is_chain() { workload.repeats(block) as f64 } else { 1.0 };
    for (k, (kernel, open)) in workload.kernels.iter().zip(open).enumerate() {
        if open.is_empty() {
            return Err(kernel.name.clone());
        }
        let cost = open
            .iter()
            .map(|s| {
                let full = kernel.shape.rows() as f64 * kernel.shape.n as f64 * kernel.word_or(word);
                let reduces = rules == Layouts::Dfmodel && *s == Strategy::K && t > 1;
                match unit {
                    Unit::Bytes => return if reduces { full } else { 0.0 },
                    Unit::LinkJoules => return 0.0,
                    Unit::Seconds => {}
                }
                let network = if reduces {
                    collective::seconds(CollectiveKind::AllReduce, &degrees.tp_group, full * samples, options)
                } else {
                    0.0
                };
                (network + work_seconds((workload, &operands), (system, &rate), degrees, k, *s, samples))
                    * times(kernel.block)
            })
            .collect();
        problem.open.push(open);
        problem.cost.push(cost);
    }
    // What the next layer reads of each tensor.
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); workload.tensors.len()];
    if options.boundary_tensors == Charge::Charged {
        let carried = workload.tensors.iter().enumerate().filter_map(|(id, t)| t.carried_from.map(|from| (id, from)));
        carried.for_each(|(id, from)| next[from].push(id));
    }
    for (id, tensor) in workload.tensors.iter().enumerate() {
        let Some(from) = tensor.producer else { continue };
        let carried = next[id].iter().flat_map(|c| &workload.tensors[*c].consumers).map(|u| (u, true));
        let mut group_of: BTreeMap<(bool, bool), usize> = BTreeMap::new();
        for (u, next_layer) in tensor.consumers.iter().map(|u| (u, false)).chain(carried) {
            let is_forward = |k: usize| workload.kernels[k].phase == Phase::Forward;
            let block = workload.kernels[from].block;
            let crosses = !next_layer && block != workload.kernels[u.kernel].block;
            // What goes to another repetition or block is converted where it is made, whichever pass reads it there.
            let in_producers_phase = next_layer || crosses || is_forward(from) == is_forward(u.kernel);
            let times = if crosses { 1.0 } else { times(block) };
            let shared = options.tensor_fanout == Fanout::Shared;
            let key = (in_producers_phase, crosses);
            let group = match group_of.get(&key).filter(|_| shared) {
                Some(group) => *group,
                None => {
                    problem.groups.push(BTreeMap::new());
                    group_of.insert(key, problem.groups.len() - 1);
                    problem.groups.len() - 1
                }
            };
            let mut pairs = Vec::new();
            for a in &problem.open[from] {
                let row: Vec<Option<(Layout, Layout)>> = problem.open[u.kernel]
                    .iter()
                    .map(|b| {
                        let made = produced(*a, rules);
                        let wanted = required(&workload.kernels[u.kernel], u.slot, *b, rules);
                        conversion(made, wanted).ok().map(|kind| {
                            let full = tensor.bytes(word);
                            let bytes = match (rules, kind) {
                                (_, None) => 0.0,
                                (Layouts::Flowspace, Some(CollectiveKind::AllToAll)) => {
                                    tensor_bytes(tensor, made, t, Tiling::WHOLE, word).0
                                }
                                _ => full,
                            };
                            let cost = match (kind, unit) {
                                (None, _) => 0.0,
                                (Some(_), Unit::Bytes) => full,
                                (Some(kind), Unit::Seconds) => {
                                    times * collective::seconds(kind, &degrees.tp_group, bytes * samples, options)
                                }
                                (Some(kind), Unit::LinkJoules) => {
                                    times * energy::collective_j(kind, &degrees.tp_group, bytes * samples)
                                }
                            };
                            problem.groups[group].insert((made, wanted), cost);
                            (made, wanted)
                        })
                    })
                    .collect();
                pairs.push(row);
            }
            let payers = match (crosses, in_producers_phase) {
                (true, _) => vec![from, u.kernel],
                (false, true) => vec![from],
                (false, false) => vec![u.kernel],
            };
            problem.links.push(Link { from, to: u.kernel, pairs, group: Some(group), payers });
        }
    }
    if rules == Layouts::Flowspace && t > 1 {
        for (k, kernel) in workload.kernels.iter().enumerate() {
            let Some(owner) = kernel.weight_of.map(|w| w.kernel) else { continue };
            let none = (Layout::Replicated, Layout::Replicated);
            let pairs = problem.open[owner]
                .iter()
                .map(|a| problem.open[k].iter().map(|b| weight_shards_agree(kernel, *b, *a).then_some(none)).collect())
                .collect();
            problem.links.push(Link { from: owner, to: k, pairs, group: None, payers: Vec::new() });
        }
    }
    Ok(problem)
}

/// Leaves out strategies by which what is kept for the backward pass lies whole on each chip, of kernels that have others ([`crate::model::memory::of_layer`] says what is kept, and how).
fn divide_kept(workload: &Workload, rules: Layouts, open: &mut [Vec<Strategy>]) {
    let is_part = |layout: Layout| !matches!(layout, Layout::Replicated | Layout::Partial);
    let mut leave = |k: usize, divides: &dyn Fn(Strategy) -> bool| {
        if open[k].iter().any(|s| divides(*s)) {
            open[k].retain(|s| divides(*s));
        }
    };
    for tensor in &workload.tensors {
        let later = |u: &&Use| workload.kernels[u.kernel].phase != Phase::Forward;
        match tensor.producer {
            Some(p) if workload.kernels[p].phase == Phase::Forward && tensor.consumers.iter().any(|u| later(&u)) => {
                leave(p, &|s| is_part(produced(s, rules)));
            }
            Some(_) => {}
            None => kept_readers(workload, tensor)
                .for_each(|u| leave(u.kernel, &|s| is_part(required(&workload.kernels[u.kernel], u.slot, s, rules)))),
        }
    }
}

/// The strategies of each kernel that its pin leaves, without those that no strategy of a kernel with the same weight agrees with. With
/// `divided` weights are divided wherever they can be: this pass does not see what whole ones take of the DRAM.
fn open_strategies(
    workload: &Workload,
    t: u64,
    rules: Layouts,
    pins: &[Option<Strategy>],
    divided: bool,
) -> Vec<Vec<Strategy>> {
    let backward = workload.has_backward();
    let pinned = |(kernel, pin): (&Kernel, &Option<Strategy>)| {
        let mut open = strategies(kernel, t, rules, backward);
        match pin {
            Some(pin) => open.retain(|s| s == pin),
            None if divided && rules == Layouts::Flowspace && kernel.op == Op::GemmWeight => {
                let whole = |s: &Strategy| matches!(s, Strategy::N | Strategy::Replicate);
                if open.iter().any(|s| !whole(s)) {
                    open.retain(|s| !whole(s));
                }
            }
            None => {}
        }
        open
    };
    let mut open: Vec<Vec<Strategy>> = workload.kernels.iter().zip(pins).map(pinned).collect();
    if rules != Layouts::Flowspace || t == 1 {
        return open;
    }
    let handed_over =
        workload.tensors.iter().filter(|t| workload.divided == Divided::HandedOver && t.carried_from.is_some());
    for u in handed_over.flat_map(|tensor| &tensor.consumers) {
        open[u.kernel].retain(|s| required(&workload.kernels[u.kernel], u.slot, *s, rules) != Layout::Replicated);
    }
    if workload.divided == Divided::Kept {
        divide_kept(workload, rules, &mut open);
    }
    let shared =
        workload.kernels.iter().enumerate().filter_map(|(k, kernel)| Some((kernel.weight_of?.kernel, k, kernel)));
    let shared: Vec<(usize, usize, &Kernel)> = shared.collect();
    loop {
        let before: usize = open.iter().map(Vec::len).sum();
        for (owner, k, kernel) in &shared {
            let theirs = open[*owner].clone();
            open[*k].retain(|s| theirs.iter().any(|o| weight_shards_agree(kernel, *s, *o)));
            let ours = open[*k].clone();
            open[*owner].retain(|o| ours.iter().any(|s| weight_shards_agree(kernel, *s, *o)));
        }
        if open.iter().map(Vec::len).sum::<usize>() == before {
            return open;
        }
    }
}

/// The tensors that each kernel reads and makes, in the order of the workload's.
struct Operands {
    read: Vec<Vec<(usize, Use)>>,
    made: Vec<Vec<usize>>,
}

impl Operands {
    fn of(workload: &Workload) -> Self {
        let n = workload.kernels.len();
        let mut out = Self { read: vec![Vec::new(); n], made: vec![Vec::new(); n] };
        for (id, tensor) in workload.tensors.iter().enumerate() {
            if let Some(p) = tensor.producer {
                out.made[p].push(id);
            }
            for u in &tensor.consumers {
                out.read[u.kernel].push((id, *u));
            }
        }
        out
    }
}

/// Seconds that a kernel works on its shard: arithmetic, or, kernel by kernel, the larger of that and the DRAM traffic
/// of its operands, result and weight (their sum where nothing overlaps).
fn work_seconds(
    (workload, operands): (&Workload, &Operands),
    (system, rate): (&System, &Rate<'_>),
    degrees: &Degrees,
    k: usize,
    s: Strategy,
    samples: f64,
) -> f64 {
    let options = &system.model;
    let chip = &system.chip.0;
    let kernel = &workload.kernels[k];
    let t = degrees.tp;
    let word = workload.word_bytes;
    let arithmetic = match rate.compute(kernel, s, t, 1, samples) {
        Compute::Seconds(seconds) => seconds,
        Compute::Cores(options) => {
            options.iter().map(|o| o.cores as f64 * o.seconds / chip.cores as f64).fold(f64::INFINITY, f64::min)
        }
    };
    if chip.style != Style::KernelByKernel {
        return arithmetic;
    }
    let rules = options.layouts;
    let read: f64 = operands.read[k]
        .iter()
        .filter(|(tensor, _)| options.counts(&workload.tensors[*tensor]))
        .map(|(tensor, u)| {
            tensor_bytes(&workload.tensors[*tensor], required(kernel, u.slot, s, rules), t, Tiling::WHOLE, word).0
        })
        .sum();
    let written: f64 = operands.made[k]
        .iter()
        .map(|tensor| tensor_bytes(&workload.tensors[*tensor], produced(s, rules), t, Tiling::WHOLE, word).0)
        .sum();
    let weights = match options.weight_traffic {
        WeightTraffic::Streamed => {
            let (weight, gradient) = moved_bytes(kernel, s, t, word);
            weight + 2.0 * gradient
        }
        _ => 0.0,
    };
    let dram = ((read + written) * samples + weights) / rate.dram_bytes_per_s;
    super::instance::combine(system.overlap(), arithmetic, dram, 0.0)
}

/// The MILP of a problem, and what its columns stand for.
#[derive(Default)]
struct Model {
    milp: Milp,
    /// Columns s of each kernel.
    s: Vec<Vec<usize>>,
    /// Columns y of each link.
    y: Vec<Vec<Flow>>,
    /// Columns q of each group, with the conversion.
    q: Vec<Vec<((Layout, Layout), usize)>>,
}

/// A column y: the strategies of producer and reader, and their conversion.
struct Flow {
    strategies: (usize, usize),
    pair: (Layout, Layout),
    column: usize,
}

impl Model {
    /// The point of a choice of strategies (indices into `open`).
    fn point(&self, problem: &Problem, choice: &[usize]) -> Vec<f64> {
        let mut point = vec![0.0; self.milp.columns.len()];
        self.s.iter().zip(choice).for_each(|(columns, a)| point[columns[*a]] = 1.0);
        for (link, flows) in problem.links.iter().zip(&self.y) {
            let chosen = (choice[link.from], choice[link.to]);
            let Some(flow) = flows.iter().find(|flow| flow.strategies == chosen) else { continue };
            point[flow.column] = 1.0;
            let paid = link.group.and_then(|g| self.q[g].iter().find(|(pair, _)| *pair == flow.pair));
            paid.into_iter().for_each(|(_, q)| point[*q] = 1.0);
        }
        point
    }
}

/// Builds the MILP of a problem (C1; C2 and C3 by the functions it calls).
fn build(problem: &Problem) -> Model {
    let mut model = Model::default();
    let scale = scale_of(problem);
    for (k, open) in problem.open.iter().enumerate() {
        let s: Vec<usize> = open
            .iter()
            .zip(&problem.cost[k])
            .map(|(a, cost)| model.milp.binary(format!("s_{k}_{a}"), cost / scale))
            .collect();
        model.milp.equal(format!("C1_{k}"), s.iter().map(|c| (*c, 1.0)).collect(), 1.0);
        model.s.push(s);
    }
    for (l, link) in problem.links.iter().enumerate() {
        emit_flow(&mut model, l, link);
    }
    emit_groups(&mut model, problem, scale);
    model
}

fn scale_of(problem: &Problem) -> f64 {
    let largest = problem
        .cost
        .iter()
        .flatten()
        .chain(problem.groups.iter().flat_map(BTreeMap::values))
        .copied()
        .fold(0.0, f64::max);
    if largest > 0.0 && largest.is_finite() { largest } else { 1.0 }
}

/// C2.
fn emit_flow(Model { milp, s, y, .. }: &mut Model, l: usize, link: &Link) {
    let mut flows = Vec::new();
    let mut from_terms: Vec<Vec<(usize, f64)>> = s[link.from].iter().map(|c| vec![(*c, -1.0)]).collect();
    let mut to_terms: Vec<Vec<(usize, f64)>> = s[link.to].iter().map(|c| vec![(*c, -1.0)]).collect();
    for (a, row) in link.pairs.iter().enumerate() {
        for (b, pair) in row.iter().enumerate() {
            let Some(pair) = *pair else { continue };
            let column = milp.continuous(format!("y_{l}_{a}_{b}"), 1.0, 0.0);
            from_terms[a].push((column, 1.0));
            to_terms[b].push((column, 1.0));
            flows.push(Flow { strategies: (a, b), pair, column });
        }
    }
    for (a, terms) in from_terms.into_iter().enumerate() {
        milp.equal(format!("C2_from_{l}_{a}"), terms, 0.0);
    }
    for (b, terms) in to_terms.into_iter().enumerate() {
        milp.equal(format!("C2_to_{l}_{b}"), terms, 0.0);
    }
    y.push(flows);
}

/// C3.
fn emit_groups(Model { milp, y, q, .. }: &mut Model, problem: &Problem, scale: f64) {
    let mut links: Vec<Vec<usize>> = vec![Vec::new(); problem.groups.len()];
    for (l, link) in problem.links.iter().enumerate() {
        link.group.into_iter().for_each(|g| links[g].push(l));
    }
    for (g, (conversions, links)) in problem.groups.iter().zip(links).enumerate() {
        let mut columns = Vec::new();
        for (i, (pair, cost)) in conversions.iter().enumerate().filter(|(_, (_, cost))| **cost > 0.0) {
            let column = milp.continuous(format!("q_{g}_{i}"), f64::INFINITY, cost / scale);
            for &l in &links {
                let mut terms = vec![(column, 1.0)];
                terms.extend(y[l].iter().filter(|flow| flow.pair == *pair).map(|flow| (flow.column, -1.0)));
                if terms.len() > 1 {
                    milp.at_least(format!("C3_{g}_{i}_{l}"), terms, 0.0);
                }
            }
            columns.push((*pair, column));
        }
        q.push(columns);
    }
}

/// Cost of a choice of strategies (indices into `open`); infinite where a pair cannot be.
pub fn price(problem: &Problem, choice: &[usize]) -> f64 {
    let mut total: f64 = choice.iter().enumerate().map(|(k, a)| problem.cost[k][*a]).sum();
    let mut paid = std::collections::BTreeSet::new();
    for link in &problem.links {
        let Some(pair) = link.pairs[choice[link.from]][choice[link.to]] else { return f64::INFINITY };
        if let Some(g) = link.group
            && paid.insert((g, pair))
        {
            total += problem.groups[g].get(&pair).copied().unwrap_or(0.0);
        }
    }
    total
}

/// Solves a problem by elimination ([`super::elimination`]), or as a MILP where too many kernels depend on each other at
/// once, from a good sharding on that `near` finds. Infeasible problems (no strategies agree) give a record with that status and no
/// strategies.
///
/// # Errors
/// [`SolverError`] of the solver.
pub fn solve_exactly(problem: &Problem, limits: &Limits) -> Result<Sharding, SolverError> {
    let clock = Deadline::after(limits.seconds);
    match super::cache::sharding(problem, || eliminate(problem, clock)) {
        Eliminated::Chosen(choice, cost) => {
            Ok(Sharding { strategies: chosen(problem, &choice), record: record_of(cost) })
        }
        Eliminated::Infeasible => Ok(Sharding { strategies: Vec::new(), record: record_of(f64::INFINITY) }),
        Eliminated::TooWide if !limits.solver.is_built() => Err(SolverError::NeedsMilp(TOO_WIDE)),
        Eliminated::TooWide => {
            let start = near(problem);
            solve_from(problem, &Limits { seconds: clock.left(), ..limits.clone() }, start)
        }
        Eliminated::OutOfTime => Ok(stopped(problem, near(problem), 0.0, Status::out_of_time())),
    }
}

/// What there is when the seconds end: a sharding if one was found, and the bound of all.
fn stopped(problem: &Problem, found: Option<(Vec<usize>, f64)>, bound: f64, status: Status) -> Sharding {
    let objective = found.as_ref().map_or(f64::INFINITY, |(_, cost)| *cost);
    let record = SolveRecord { status, objective, bound, nodes: Some(0), seconds: 0.0 };
    Sharding { strategies: found.map_or(Vec::new(), |(choice, _)| chosen(problem, &choice)), record }
}

/// The strategies of a choice (indices into `open`).
fn chosen(problem: &Problem, choice: &[usize]) -> Vec<Strategy> {
    choice.iter().zip(&problem.open).map(|(a, open)| open[*a]).collect()
}

/// What is beyond elimination.
const TOO_WIDE: &str = "a sharding in which so many kernels depend on each other";

/// The only sharding of a problem, in which every kernel has one strategy; `None` where they do not agree.
pub(super) fn given(problem: &Problem) -> Option<Sharding> {
    let cost = price(problem, &vec![0; problem.open.len()]);
    let strategies = problem.open.iter().map(|open| open[0]).collect();
    cost.is_finite().then(|| Sharding { strategies, record: record_of(cost) })
}

/// The record of an answer that needed no solver; an infinite cost is none.
fn record_of(cost: f64) -> SolveRecord {
    let status = if cost.is_finite() { Status::Optimal } else { Status::Infeasible };
    SolveRecord { status, objective: cost, bound: cost, nodes: Some(0), seconds: 0.0 }
}

/// Solves a problem as a MILP. Infeasible problems give a record with that status and no strategies.
///
/// # Errors
/// [`SolverError`] of the solver.
pub fn solve_problem(problem: &Problem, limits: &Limits) -> Result<Sharding, SolverError> {
    solve_from(problem, limits, None)
}

/// The same, from a choice of strategies and what it costs on, which is the answer where the limits leave none better.
fn solve_from(problem: &Problem, limits: &Limits, start: Option<(Vec<usize>, f64)>) -> Result<Sharding, SolverError> {
    if problem.open.iter().all(|open| open.len() == 1) {
        let choice = vec![0; problem.open.len()];
        return Ok(Sharding { strategies: chosen(problem, &choice), record: record_of(price(problem, &choice)) });
    }
    let clock = Deadline::after(limits.seconds);
    let model = build(problem);
    if clock.is_over() {
        return Ok(stopped(problem, start, 0.0, Status::out_of_time()));
    }
    let scale = scale_of(problem);
    let point = start.as_ref().map(|(choice, _)| model.point(problem, choice));
    let limits = Limits { seconds: clock.left(), ..limits.clone() };
    let solved = solve(&model.milp, &limits, point.as_deref())?;
    let mut record = solved.record;
    record.objective *= scale;
    record.bound *= scale;
    let Some(values) = solved.values else {
        return Ok(match start {
            Some(start) if record.status != Status::Infeasible => {
                let bound = record.bound.max(0.0);
                let Sharding { strategies, record: found } = stopped(problem, Some(start), bound, record.status);
                Sharding { strategies, record: SolveRecord { nodes: record.nodes, seconds: record.seconds, ..found } }
            }
            _ => Sharding { strategies: Vec::new(), record },
        });
    };
    let strategies = model.s.iter().zip(&problem.open).map(|(columns, open)| {
        let best = (0..columns.len()).max_by(|a, b| values[columns[*a]].total_cmp(&values[columns[*b]]));
        open[best.unwrap_or(0)]
    });
    Ok(Sharding { strategies: strategies.collect(), record })
}
