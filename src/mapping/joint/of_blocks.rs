//! All shardings of a chain of blocks (embedding, layers, head), by branch and bound.
//!
//! A plan's partitions do not mix blocks ([`super::super::blocks`]), and its iteration grows with the seconds of a unit of each block, with what a unit holds,
//! and with its weights and gradients ([`super::super::chain`]). So the least of each block by itself, divided among the stages at best, bounds all shardings:
//!
//! ```text
//! iteration(sharding) >= division(least seconds, least bytes held, least weights and gradients of each block)
//! ```
//!
//! A block's least seconds are those of a graph by itself: the same joint search as for any other, on one stage and without a limit of DRAM. What joins
//! the blocks are the tensors that go from one to another: how they lie in DRAM, and who converts them. Both are taken at their least where the
//! strategies at their ends are open, and as they are where those are decided. So sets are split by the strategies of these ends first, then by tile count
//! (which is one for all blocks), then by the kernels whose strategies differ most in what they hold. Where the best of each block together does not fit the DRAM
//! these kernels come first: a bound that knows nothing of the limit stays where it is until they are decided. A set whose strategies are all decided is evaluated as it is.
//! The set with the least bound is gone on with: while the search of one of its blocks was stopped, by more of that search ([`FEW_SETS`]), then by splitting it.

mod ends;

use self::ends::Ends;
use super::super::attempt::evaluated;
use super::super::chain::BlockLoad;
use super::super::degrees::Degrees;
use super::super::first_pass::Tried;
use super::super::request::{Engine, LeftOpen, MapError, Passes, Pins, Request};
use super::super::search::{Best, Candidate, Found, Search, TIE};
use super::super::sharding::{Link, Problem, Unit, price};
use super::super::tiling::tile_counts;
use super::super::waits;
use super::relaxed::{Open, Relaxation, least};
use super::{couplings, problem_in, prune};
use crate::graph::Use;
use crate::model::Strategy;
use crate::model::compute::{Tiling, tensor_bytes};
use crate::model::layout::{Layout, produced, required};
use crate::model::schedule::{hand_over, microbatches, samples_per_pass};
use crate::system::System;
use crate::system::options::{Charge, GradientReduction};
use crate::workload::{Tensor, Workload};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::rc::Rc;

/// Sets of shardings that the search of a block is given at first, and how many times as many each time that the bound of its set of the chain is the least of all. One
/// that is given all of them at once leaves none to the others, and the bound of all where it was.
const FEW_SETS: u64 = 512;
const TIMES: u64 = 4;

/// Sets of a chain that count as one of a block: most of them have blocks that are known.
const OF_CHAIN: u64 = 4;

/// Sets of an assignment that are looked at before any assignment is searched to its end.
const LOOK: u64 = 16;

/// A block by itself.
#[derive(Debug, Clone)]
struct Least {
    /// No sharding of the set gives a unit and a microbatch fewer.
    seconds: f64,
    /// One that comes near.
    sharding: Vec<Strategy>,
    /// What the tensors at its ends were taken for.
    ends: Ends,
    /// Sets of shardings after which its search was stopped; none where more would bring nothing.
    stopped: Option<u64>,
}

/// A set of shardings.
#[derive(Debug, Clone)]
struct Set {
    open: Open,
    /// One tile count, or all.
    tiles: Option<u64>,
    /// Of the set that this was split from, then its own.
    blocks: Vec<Rc<Least>>,
    /// Sets of shardings that each block's search is given.
    effort: u64,
}

struct Node {
    bound: f64,
    /// Of equal bounds the one made last: it is nearest to being decided.
    made: u64,
    set: Set,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Node {}
impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Node {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.bound.total_cmp(&self.bound).then(self.made.cmp(&other.made))
    }
}

/// What a block is asked for: its number, the tile count and the strategies given at its ends.
type Asked = (usize, Option<u64>, Vec<Option<Strategy>>);

/// The search of a chain on one assignment.
struct Blocks<'a> {
    search: &'a Search<'a>,
    degrees: &'a Degrees,
    /// Sets of shardings at which it is stopped.
    most: u64,
    /// Without a limit of DRAM and without what happens once an iteration.
    system: System,
    /// What each block holds.
    needs: Vec<Relaxation<'a>>,
    links: Vec<Link>,
    /// Strategies as the links number them; below it those that some neighbour agrees with.
    problem: &'a Problem,
    root: Open,
    tiles: Vec<u64>,
    /// Tensors that go from one block to another, and the kernels at each.
    crossing: Vec<(usize, Vec<usize>)>,
    known: BTreeMap<Asked, Vec<Rc<Least>>>,
}

impl Search<'_> {
    /// A few of the shardings of a chain of blocks, for plans of every assignment before one of them takes all sets: nothing is said of those left out.
    pub(in crate::mapping) fn look_at_shardings_of_blocks(
        &self,
        tried: &Tried,
        best: &mut Option<Best>,
        outer: &mut Found,
    ) -> Result<(), MapError> {
        let mut found = Found::new();
        self.try_shardings_of_blocks(tried, LOOK.min(self.request.joint_nodes), best, &mut found)?;
        outer.joint_nodes += found.joint_nodes;
        outer.count(&found);
        Ok(())
    }

    /// [`Search::try_all_shardings`] of a chain of blocks.
    pub(in crate::mapping) fn try_all_shardings_of_blocks(
        &self,
        tried: &Tried,
        best: &mut Option<Best>,
        found: &mut Found,
    ) -> Result<(), MapError> {
        self.try_shardings_of_blocks(tried, self.request.joint_nodes, best, found)
    }

    /// At most until `most` sets were looked at.
    fn try_shardings_of_blocks(
        &self,
        tried: &Tried,
        most: u64,
        best: &mut Option<Best>,
        found: &mut Found,
    ) -> Result<(), MapError> {
        let degrees = &tried.candidate.degrees;
        if degrees.tp <= 1 {
            return Ok(());
        }
        let Some(problem) = problem_in(Unit::Seconds, self, degrees) else { return Ok(()) };
        if problem.open.iter().all(|open| open.len() == 1) {
            return Ok(());
        }
        let links = couplings(&problem);
        let mut root = problem.open.clone();
        if !prune(&links, &problem.open, &mut root) {
            return Ok(());
        }
        let plain = Request::default();
        let blocks: Result<Vec<Search<'_>>, MapError> =
            self.blocks.iter().map(|(w, _)| Search::new(w, self.system, &plain, self.clock)).collect();
        let blocks = blocks?;
        let mut system = self.system.clone();
        system.memory.0.capacity = None;
        system.model.optimizer_step = Charge::Ignored;
        if system.model.gradient_reduction == GradientReduction::PerIteration {
            system.model.gradient_reduction = GradientReduction::Ignored;
        }
        let search = Blocks {
            search: self,
            degrees,
            most,
            system,
            needs: blocks.iter().map(|block| Relaxation::new(block, degrees, (1, 1))).collect(),
            links,
            problem: &problem,
            root,
            tiles: match self.request.tiles {
                Some(tiles) => vec![tiles],
                None => tile_counts(self.workload, self.system),
            },
            crossing: crossing(self.workload),
            known: BTreeMap::new(),
        };
        search.run(tried, best, found)
    }
}

/// Notes what blocks take at least in sets that are left.
fn open_blocks<'s>(left: impl IntoIterator<Item = &'s Set>, found: &mut Found) {
    for set in left {
        let own = set.blocks.iter().map(|least| least.seconds);
        if found.blocks_s.is_empty() {
            found.blocks_s = own.collect();
        } else {
            found.blocks_s.iter_mut().zip(own).for_each(|(known, own)| *known = known.min(own));
        }
    }
}

/// Tensors that go from one block to another, and the kernels that decide how: the one that makes it, and all that read it here or in the next repetition.
fn crossing(w: &Workload) -> Vec<(usize, Vec<usize>)> {
    let block = |k: usize| w.kernels[k].block;
    let of = |(id, tensor): (usize, &Tensor)| {
        let p = tensor.producer?;
        tensor.consumers.iter().any(|u| block(u.kernel) != block(p)).then(|| {
            let next = w.tensors.iter().filter(|t| t.carried_from == Some(id)).flat_map(|t| &t.consumers);
            let mut kernels: Vec<usize> = tensor.consumers.iter().chain(next).map(|u| u.kernel).collect();
            kernels.push(p);
            kernels.sort_unstable();
            kernels.dedup();
            (id, kernels)
        })
    };
    w.tensors.iter().enumerate().filter_map(of).collect()
}

impl Blocks<'_> {
    fn run(mut self, tried: &Tried, best: &mut Option<Best>, found: &mut Found) -> Result<(), MapError> {
        let value = |best: &Option<Best>| best.as_ref().map_or(f64::INFINITY, |b| b.objective);
        let candidate = &tried.candidate;
        let near = 1.0 - self.search.request.limits.gap.max(TIE);
        let mut seen = BTreeSet::from([tried.pass.sharding.strategies.clone()]);
        // Partitions of a sharding that are not proven either take what they take.
        let mut loose = found.unproven.is_finite();
        let mut evaluate = |sharding: Vec<Strategy>, best: &mut Option<Best>, found: &mut Found| {
            if seen.contains(&sharding) {
                return Ok(());
            }
            let at = |k: usize| self.problem.open[k].iter().position(|s| *s == sharding[k]).unwrap_or(0);
            let agree = price(self.problem, &(0..sharding.len()).map(at).collect::<Vec<_>>()).is_finite();
            let priced = evaluated(tried, &sharding);
            seen.insert(sharding);
            match agree {
                true => {
                    let known = found.unproven;
                    let tried = self.search.try_chain(candidate, &priced, best, found);
                    loose |= found.unproven < known;
                    tried
                }
                false => Ok(()),
            }
        };
        for sharding in &self.search.request.shardings {
            let is_one =
                sharding.len() == self.root.len() && sharding.iter().zip(&self.root).all(|(s, o)| o.contains(s));
            if is_one {
                evaluate(sharding.clone(), best, found)?;
            }
        }
        if value(best).is_infinite() {
            evaluate(self.least_held(), best, found)?;
        }
        let mut heap = BinaryHeap::new();
        let (mut made, mut looked_at) = (0, 0);
        let root = Set { open: self.root.clone(), tiles: None, blocks: Vec::new(), effort: FEW_SETS };
        if let Some((bound, set)) = self.bound(root, value(best), found)? {
            heap.push(Node { bound: bound.max(candidate.bound), made, set });
        }
        while let Some(Node { bound, mut set, .. }) = heap.pop() {
            if bound >= value(best) * (1.0 - TIE) || (self.search.request.any && best.is_some()) {
                break;
            }
            if bound >= value(best) * near {
                found.unproven = found.unproven.min(bound);
                open_blocks(heap.iter().map(|node| &node.set).chain([&set]), found);
                break;
            }
            if self.search.out_of_time() || found.joint_nodes >= self.most {
                let left = if self.search.out_of_time() { LeftOpen::out_of_time() } else { LeftOpen::Sets };
                found.stop(left, bound);
                open_blocks(heap.iter().map(|node| &node.set).chain([&set]), found);
                break;
            }
            looked_at += 1;
            found.joint_nodes += u64::from(looked_at % OF_CHAIN == 0);
            let sharding = self.joined(&set);
            evaluate(sharding.clone(), best, found)?;
            if bound >= value(best) * (1.0 - TIE) {
                continue;
            }
            if set.effort < self.most && set.blocks.iter().any(|least| least.stopped.is_some()) {
                set.effort *= TIMES;
                if let Some((own, set)) = self.bound(set, value(best), found)? {
                    heap.push(Node { bound: own.max(bound), made, set });
                    made += 1;
                }
                continue;
            }
            // Of a set that is decided nothing is left: its one sharding was looked at, and what that left unproven is noted.
            for mut child in self.split(&set, &sharding) {
                if !prune(&self.links, &self.problem.open, &mut child.open) {
                    continue;
                }
                if let Some((own, child)) = self.bound(child, value(best), found)? {
                    made += 1;
                    heap.push(Node { bound: own.max(bound), made, set: child });
                }
            }
        }
        if loose && !found.blocks_s.is_empty() {
            found.blocks_s = vec![0.0; self.search.blocks.len()];
        }
        Ok(())
    }

    /// The parts of a set.
    fn split(&self, set: &Set, sharding: &[Strategy]) -> Vec<Set> {
        let by = |k: usize| -> Vec<Set> {
            let with = |s: &Strategy| {
                let mut child = Set { effort: FEW_SETS, ..set.clone() };
                child.open[k] = vec![*s];
                child
            };
            set.open[k].iter().map(with).collect()
        };
        let is_open = |k: &usize| set.open[*k].len() > 1;
        let held = |k: usize| self.held_apart(&set.open, k);
        let open = (0..set.open.len()).filter(is_open);
        let most_held = open.max_by(|a, b| held(*a).total_cmp(&held(*b)).then(b.cmp(a)));
        // What is best of each block does not fit together: first what decides how much they hold.
        if let Some(k) = most_held.filter(|k| held(*k) > 0.0 && !self.search.still(self.degrees, sharding).fits()) {
            return by(k);
        }
        // The end of the dearest tensor first: of those with most bytes, as it lies.
        let w = self.search.workload;
        let bytes = |id: usize| w.tensors[id].bytes(w.word_bytes) * self.converts(id, sharding);
        let of = |(id, kernels): &(usize, Vec<usize>)| {
            kernels.iter().copied().find(is_open).map(|k| (bytes(*id), std::cmp::Reverse(k)))
        };
        let end = self.crossing.iter().filter_map(of).max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        if let Some((_, std::cmp::Reverse(k))) = end {
            return by(k);
        }
        if set.tiles.is_none() && self.tiles.len() > 1 {
            return self.tiles.iter().map(|t| Set { tiles: Some(*t), effort: FEW_SETS, ..set.clone() }).collect();
        }
        most_held.map_or(Vec::new(), by)
    }

    /// How many conversions a tensor asks for between blocks.
    fn converts(&self, id: usize, sharding: &[Strategy]) -> f64 {
        let w = self.search.workload;
        let tensor = &w.tensors[id];
        let Some(p) = tensor.producer else { return 0.0 };
        let across = tensor.consumers.iter().filter(|u| w.kernels[u.kernel].block != w.kernels[p].block);
        let made = produced(sharding[p], self.search.system.model.layouts);
        1.0 + across.filter(|u| self.wanted(u, sharding[u.kernel]) != made).count() as f64
    }

    fn wanted(&self, u: &Use, s: Strategy) -> Layout {
        required(&self.search.workload.kernels[u.kernel], u.slot, s, self.search.system.model.layouts)
    }

    /// Where a kernel of the whole stands: its block, and its place in that.
    fn place(&self, k: usize) -> (usize, usize) {
        let b = self.search.workload.kernels[k].block;
        (b, self.search.blocks[b].1.binary_search(&k).unwrap_or(0))
    }

    /// Bytes that a kernel's strategy decides in the DRAM and in what is reduced once an iteration, of all repetitions of its block.
    fn held(&self, k: usize, s: Strategy) -> f64 {
        let (b, at) = self.place(k);
        self.needs[b].held_by(at, s, (1.0, 1.0)) * self.search.blocks[b].0.repeat as f64
    }

    /// How far apart the open strategies of a kernel are in what they hold.
    fn held_apart(&self, open: &Open, k: usize) -> f64 {
        let each = open[k].iter().map(|s| self.held(k, *s));
        let (low, high) = each.fold((f64::INFINITY, 0.0_f64), |(low, high), b| (low.min(b), high.max(b)));
        high - low
    }

    /// The best of each block together.
    fn joined(&self, set: &Set) -> Vec<Strategy> {
        let of = |k: usize| {
            let (b, at) = self.place(k);
            let own = set.blocks.get(b).and_then(|least| least.sharding.get(at)).copied();
            own.filter(|s| set.open[k].contains(s)).unwrap_or(set.open[k][0])
        };
        (0..set.open.len()).map(of).collect()
    }

    /// A sharding that holds little: kernel by kernel, those with the largest choice first.
    fn least_held(&self) -> Vec<Strategy> {
        let mut open = self.root.clone();
        let choice = |k: usize| self.held_apart(&self.root, k);
        let mut order: Vec<usize> = (0..open.len()).collect();
        order.sort_by(|a, b| choice(*b).total_cmp(&choice(*a)).then(a.cmp(b)));
        for k in order {
            let mut by_bytes = open[k].clone();
            by_bytes.sort_by(|a, b| self.held(k, *a).total_cmp(&self.held(k, *b)));
            for s in by_bytes {
                let mut with = open.clone();
                with[k] = vec![s];
                if prune(&self.links, &self.problem.open, &mut with) {
                    open = with;
                    break;
                }
            }
        }
        open.iter().map(|of| of[0]).collect()
    }

    /// No plan of a set takes less; `None` where none beats `best`, or none fits.
    fn bound(&mut self, mut set: Set, best: f64, found: &mut Found) -> Result<Option<(f64, Set)>, MapError> {
        let blocks = self.search.blocks.len();
        let parents = std::mem::take(&mut set.blocks);
        let floor = |seconds: &[f64], of: &Self| -> Option<f64> {
            let update = |g: f64, w: f64| of.search.update(of.degrees, g, w);
            let chain = of.search.chain(of.degrees, of.loads(&set.open, seconds), &update);
            chain.divide().map(|(seconds, _)| seconds * (1.0 - TIE * 1e-2))
        };
        // What is known of the larger set holds for this one.
        let mut seconds: Vec<f64> = (0..blocks).map(|b| parents.get(b).map_or(0.0, |p| p.seconds)).collect();
        match floor(&seconds, self) {
            Some(bound) if bound < best * (1.0 - TIE) => {}
            _ => return Ok(None),
        }
        // The smallest first: it is soon known, and one that takes all sets that are left would leave it none.
        let mut order: Vec<usize> = (0..blocks).collect();
        order.sort_by_key(|b| self.search.blocks[*b].0.kernels.len());
        let mut own: Vec<Option<Rc<Least>>> = vec![None; blocks];
        let mut bound = 0.0;
        for b in order {
            let Some(least) = self.least(b, &set, parents.get(b), found)? else { return Ok(None) };
            seconds[b] = seconds[b].max(least.seconds);
            own[b] = Some(least);
            match floor(&seconds, self) {
                Some(now) if now < best * (1.0 - TIE) => bound = now,
                _ => return Ok(None),
            }
        }
        set.blocks = own.into_iter().flatten().collect();
        Ok(Some((bound, set)))
    }

    /// What a set's blocks ask of the stages at least, their units taking `seconds`.
    fn loads(&self, open: &Open, seconds: &[f64]) -> Vec<BlockLoad> {
        let (w, degrees) = (self.search.workload, self.degrees);
        let samples = samples_per_pass(w, &self.search.system.model);
        let over = |bytes: f64, messages: u64| hand_over(&degrees.pp_group, bytes * samples, messages);
        let mut onward = vec![(0.0, 0u64); self.needs.len()];
        for (id, _) in &self.crossing {
            let tensor = &w.tensors[*id];
            let Some(from) = tensor.producer.map(|p| w.kernels[p].block) else { continue };
            let across = tensor.consumers.iter().filter(|u| w.kernels[u.kernel].block != from);
            let bytes = across.clone().map(|u| least(&open[u.kernel], |s| self.bytes(tensor, self.wanted(u, s), 1)));
            let Some(to) = across.clone().map(|u| w.kernels[u.kernel].block).next() else { continue };
            let cut = &mut onward[from.min(to)];
            cut.0 += bytes.fold(0.0, f64::max);
            cut.1 += 1;
        }
        let of = |(b, need): (usize, &Relaxation<'_>)| {
            let (graph, kernels) = &self.search.blocks[b];
            let own: Open = kernels.iter().map(|k| open[*k].clone()).collect();
            let stage = need.stage(&own);
            BlockLoad {
                repeat: graph.repeat,
                pass_s: seconds[b],
                need: need.least_need(&own),
                live: 0.0,
                gradient_bytes: stage.layer_gradient_bytes,
                weight_bytes: stage.layer_weight_bytes,
                inside_s: over(stage.carried_bytes, stage.hand_overs),
                onward_s: over(onward[b].0, onward[b].1),
            }
        };
        self.needs.iter().enumerate().map(of).collect()
    }

    /// Bytes of a sample of a tensor in a layout, padded to tiles.
    fn bytes(&self, tensor: &Tensor, layout: Layout, tiles: u64) -> f64 {
        let tiling = Tiling::new(tiles, &self.search.system.model);
        tensor_bytes(tensor, layout, self.degrees.tp, tiling, self.search.workload.word_bytes).0
    }

    /// The least seconds of a block in a set; `None` where it has no plan.
    fn least(
        &mut self,
        b: usize,
        set: &Set,
        parent: Option<&Rc<Least>>,
        found: &mut Found,
    ) -> Result<Option<Rc<Least>>, MapError> {
        let (graph, kernels) = &self.search.blocks[b];
        let pins: Vec<Option<Strategy>> = kernels
            .iter()
            .map(|k| match set.open[*k].as_slice() {
                [one] => Some(*one),
                _ => None,
            })
            .collect();
        let ends = self.ends(b, set);
        let enough = |least: &Least| least.ends == ends && least.stopped.is_none_or(|had| had >= set.effort);
        let keeps = |least: &Least| {
            enough(least) && least.sharding.iter().zip(&pins).all(|(s, pin)| pin.is_none_or(|pin| pin == *s))
        };
        // The best of a larger set that is in this one is its best too, as far as the tile count is the same.
        if let Some(parent) = parent.filter(|parent| keeps(parent) && (set.tiles.is_none() || self.tiles.len() == 1)) {
            return Ok(Some(parent.clone()));
        }
        let key = (b, set.tiles, pins.clone());
        if let Some(known) = self.known.get(&key).and_then(|of| of.iter().find(|known| enough(known))) {
            return Ok(Some(known.clone()));
        }
        let w = ends.given_to(graph);
        let spent = found.joint_nodes;
        let request = Request {
            tiles: set.tiles.or(self.search.request.tiles),
            pins: Pins { sharding: pins, ..Pins::default() },
            engine: Engine::Exact,
            limits: self.search.limits(),
            passes: Passes::Joint,
            joint_nodes: self.most.saturating_sub(spent).min(set.effort),
            waits: waits::among(&self.search.request.waits, kernels),
            ..Request::default()
        };
        let one_stage = Degrees { pp: 1, ..self.degrees.clone() };
        let Some(alone) = alone((&w, &self.system), &request, self.search.deadline(), (one_stage, found))? else {
            return Ok(None);
        };
        found.joint_nodes += alone.sets;
        let passes = microbatches(&w, &self.system.model, self.degrees.dp);
        let least = Rc::new(Least {
            seconds: alone.seconds / passes * (1.0 - TIE * 1e-2),
            sharding: alone.sharding,
            ends,
            stopped: alone.is_stopped.then_some(set.effort),
        });
        let known = self.known.entry(key).or_default();
        known.retain(|known| known.ends != least.ends);
        known.push(least.clone());
        Ok(Some(least))
    }
}

/// What the search of a graph by itself found.
struct Alone {
    /// No sharding has an iteration of fewer.
    seconds: f64,
    /// One that comes near; empty where there is none yet.
    sharding: Vec<Strategy>,
    /// Sets of shardings that were looked at.
    sets: u64,
    /// Whether their number stopped it.
    is_stopped: bool,
}

/// The search of a graph on one assignment over all shardings; `None` where it has no plan.
fn alone(
    (w, system): (&Workload, &System),
    request: &Request,
    clock: crate::deadline::Deadline,
    (degrees, outer): (Degrees, &mut Found),
) -> Result<Option<Alone>, MapError> {
    let search = Search { keeps_weights: false, ..Search::new(w, system, request, clock)? };
    let mut found = Found::new();
    let candidate = Candidate { bound: search.assignment_bound(&degrees), degrees, of: 0 };
    let least = candidate.bound;
    let (mut best, mut ideals) = (None, None);
    if let Some(first) = search.first_pass(candidate, &mut found)? {
        search.try_sharding(&first.candidate, (&first.pass.sharding, None), &mut best, &mut ideals, &mut found)?;
        search.try_all_shardings((&first, false), &mut best, &mut ideals, &mut found)?;
    }
    outer.count(&found);
    let (seconds, sharding) = match best {
        Some(best) => (best.objective.min(found.unproven), best.sharding.strategies),
        // Stopped before it had a plan.
        None if found.left.is_some() => (least, Vec::new()),
        None => {
            outer.reasons.append(&mut found.reasons);
            return Ok(None);
        }
    };
    Ok(Some(Alone { seconds, sharding, sets: found.joint_nodes, is_stopped: found.left == Some(LeftOpen::Sets) }))
}
