//! The free inner search of chips that fuse: what a cut of a language model's blocks takes at best (chips that run kernel by kernel: `execution::possible`).
//!
//! The blocks (embedding, layers, head) are the model's graph with its adjoint, what is computed again included ([`crate::graph::recompute`]). A cut is a
//! tensor-parallel group and the samples of a microbatch. The graph is mapped onto one such group (`search.rs`): all shardings of the cut, each with its best tiles and partitions of
//! every block, by branch and bound (`joint/of_blocks.rs`). A cut is bounded by few sets of its shardings first, and by up to 8,192 as long as it may be the best. Each partition is of one block and one pass, so that times add up to passes:
//!
//! ```text
//! forward, backward   sums over the partitions of a pass; launches included
//! waited for          what the collectives of a partition add to its arithmetic and DRAM traffic
//! weights' gradients  partitions of nothing else: what may be put off
//! kept                tensors of the forward pass that another phase reads, as they are made
//! working             the most that waits in the DRAM while the block is at work, beyond what it keeps
//! ```
//!
//! Where replicas share the experts of a layer, the graph is that of one of them, and what it hands to experts and gets back is exchanged by all-to-alls, which are waited for. Where they share
//! the tokens of a sample (context parallelism), kernels of the graph gather keys and values, again in the backward pass, and add up their gradients: all-gathers and reduce-scatters that are waited for. How long depends on the layouts at both ends, so that exchanges are part
//! of what the search of a cut minimises and bounds ([`super::waits`]).
//!
//! What one stage hands to the next lies whole on every chip of a group, or is divided: a cut has the fastest of all mappings and, where that hands over the whole, the fastest of those that hand over parts. Where something does not
//! fit the memory by these, it has the fastest of those that keep parts of what waits for the backward pass, too.
//!
//! Not in the space: exchanges beside other work; weights that stay on chip from one microbatch to the next; a slower mapping of a block that keeps less otherwise.
//! Where the fastest is not proven, what is faster is taken to divide its seconds between the passes as the one found, and to keep what every mapping keeps.

use super::degrees::Degrees;
use super::floor::Floor;
use super::floor_sharded;
use super::request::{Answer, JOINT_NODES, LeftOpen, MapError, Passes, Pins, Request, WIDE_GAP};
use super::rooms;
use super::search::find;
use super::solver::Limits;
use super::waits::Wait;
use crate::check;
use crate::deadline::Deadline;
use crate::execution::block::{Best, BlockKey, BlockPass, Blocks, Inner, Space};
use crate::execution::communication::expert_bytes;
use crate::execution::file::BlockDecisions;
use crate::execution::layer::Division;
use crate::execution::machine::{Sent, Traffic};
use crate::execution::passes::Pass;
use crate::execution::policy::Policy;
use crate::execution::search::{ONE_KEY, ROUNDING};
use crate::execution::{Machine, Recompute};
use crate::graph::{Divided, Kernel, Op, Phase, Tensor, Use, Workload};
use crate::model::Strategy;
use crate::model::compute::{Tiling, tensor_bytes};
use crate::model::layout::{Layout, produced, required};
use crate::model::memory::of_layer;
use crate::model::ranks::Group;
use crate::model::stages;
use crate::plan::{Decisions, DimensionUse, Plan};
use crate::system::options::{Charge, Layouts};
use crate::system::{Overlap, Software, System};
use crate::workload::language::{LanguageModel, is_gathering, is_of_expert};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Where a block's pass stands among those of a model.
pub(super) fn pass_of<'b>(blocks: &'b mut Blocks, name: &str) -> &'b mut BlockPass {
    match name {
        "embedding" => &mut blocks.embedding,
        "layers" => &mut blocks.plain,
        "head" => &mut blocks.head,
        _ => &mut blocks.experts,
    }
}

/// A graph of cuts, and what its blocks take at least.
struct Graph {
    workload: Workload,
    floor: Floor,
    /// What its sharding costs at least, by the chips of a tensor-parallel group.
    sharded: RefCell<HashMap<u64, Rc<Vec<[f64; 2]>>>>,
}

/// What cuts have in common whose shardings are alike: all but the microbatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Good {
    recompute: Recompute,
    ep: u64,
    cp: u64,
    tp: u64,
}

/// Shardings of cuts like one another that are looked at first.
const MOST_KEPT: usize = 6;

/// The free search of a model's blocks on a system.
pub struct Free {
    /// Without a limit of DRAM, which is that of stages and not of blocks.
    system: System,
    /// The same with the SRAM that partitions are searched with, the most first: where the memory is on chip, parts of it.
    rooms: Vec<System>,
    /// The same as numbers: for what replicas that share experts send each other.
    machine: Machine,
    model: LanguageModel,
    /// The graphs by what is computed again and the replicas that share the experts, and the tokens.
    graphs: RefCell<HashMap<(Recompute, u64, u64), Rc<Graph>>>,
    /// The fastest mappings by cut and what they divide.
    known: RefCell<HashMap<(BlockKey, Divided, usize), Option<Best>>>,
    /// The shardings that were best last.
    good: RefCell<HashMap<Good, Vec<Vec<Strategy>>>>,
    /// Kernels of the cuts that were mapped, times the sets of shardings that were looked at.
    spent: Cell<u64>,
    limits: Limits,
    /// Sets of shardings that all cuts together are given where nobody has set a time.
    sets: u64,
    /// What software of the chip's kind takes, by which promising cuts are told.
    software: Option<Machine>,
}

/// Sets of shardings of a cut that are looked at, by effort.
const SETS: [u64; 5] = [1, 16, 128, 1_024, 8_192];

/// Sets that a mapping by two passes takes as long as.
const TWO_PASSES: u64 = 4;

/// Kernels of a graph whose sets count as one each; those of others count by their kernels.
const KERNELS: u64 = 64;

/// Gaps that are not worth all of the effort, the part of it that they are worth, and the sets that they are worth at least. A point that ends with more
/// open is rare (mixtures of experts on dataflow chips), and is worth all of it.
const WORTH: [(f64, f64, u64); 2] = [(1e-3, 0.005, 75), (WIDE_GAP, 0.01, 150)];

/// A mapping that is so near to the fastest counts as the fastest in what it keeps and uses.
const AS_FASTEST: f64 = 1e-3;

/// The graph of a model of which `ep` replicas share the experts and `cp` the tokens of a sample. What was gathered of the others is not kept.
fn graph_of(model: &LanguageModel, recompute: Recompute, ep: u64, cp: u64) -> Result<Workload, String> {
    let whole = |e: Vec<crate::graph::GraphError>| e.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let plain = model.chain_of_replica(ep, cp)?.checked().map_err(whole)?;
    let mut again = match recompute {
        Recompute::None => vec![false; plain.kernels.len()],
        Recompute::Selective => plain.core_kernels(),
        Recompute::Full => plain.layer_kernels(),
    };
    for (again, kernel) in again.iter_mut().zip(&plain.kernels) {
        *again |= kernel.phase == Phase::Forward && is_gathering(kernel);
    }
    if again.iter().any(|again| *again) { plain.recomputed(&again).checked().map_err(whole) } else { Ok(plain) }
}

impl Free {
    /// Of a model on a system.
    ///
    /// # Errors
    /// A sentence: why the model has no graph here.
    pub fn new(system: &System, model: &LanguageModel, limits: &Limits) -> Result<Self, String> {
        let machine = Machine::of_graphs(system);
        let generic = System { software: Some(Software::Generic), ..system.clone() };
        let software = Machine::new(&generic).ok().map(|machine| machine.without_host());
        let mut system = system.clone();
        system.memory.0.capacity = None;
        let rooms = rooms::of_blocks(&system);
        let out = Self {
            system,
            rooms,
            machine,
            model: model.clone(),
            graphs: RefCell::default(),
            known: RefCell::default(),
            good: RefCell::default(),
            spent: Cell::default(),
            // A gap that would do for the whole is none of its blocks.
            limits: Limits { gap: limits.gap.min(Limits::default().gap), ..limits.clone() },
            sets: JOINT_NODES,
            software,
        };
        for recompute in Recompute::ALL {
            out.graph(&BlockKey { recompute: *recompute, ..ONE_KEY })?;
        }
        Ok(out)
    }

    /// The same with the effort of so many sets of shardings ([`Request::joint_nodes`]).
    pub fn with_sets(self, sets: u64) -> Self {
        Self { sets, ..self }
    }

    /// The graph of a cut.
    fn graph(&self, key: &BlockKey) -> Result<Rc<Graph>, String> {
        let (ep, cp) = (key.division.ep, key.division.cp);
        let at = (key.recompute, ep, cp);
        if let Some(known) = self.graphs.borrow().get(&at) {
            return Ok(known.clone());
        }
        let workload = graph_of(&self.model, key.recompute, ep, cp)?;
        let floor = Floor::of(&workload, &self.system);
        let made = Rc::new(Graph { workload, floor, sharded: RefCell::default() });
        self.graphs.borrow_mut().insert(at, made.clone());
        Ok(made)
    }

    /// What the sharding of a graph among the chips of a tensor-parallel group costs at least.
    fn sharded(&self, graph: &Graph, tp: u64) -> Rc<Vec<[f64; 2]>> {
        let of = || {
            let degrees = self.uses(tp).filter(|_| tp > 1).map(|uses| Degrees::new(&self.system, uses));
            let none = || vec![[0.0; 2]; graph.workload.blocks.len()];
            Rc::new(degrees.map_or_else(none, |degrees| floor_sharded::of(&graph.workload, &self.system, &degrees)))
        };
        graph.sharded.borrow_mut().entry(tp).or_insert_with(of).clone()
    }

    /// How replicas that share experts exchange what `bytes` of a chip are.
    fn exchange(&self, key: &BlockKey, bytes: f64) -> Sent {
        self.machine.line(Traffic::AllToAll, key.division.peers(Group::Expert)).send(bytes, 0.0)
    }

    /// How replicas that share tokens gather, or add up, `whole` bytes on a chip.
    fn gathering(&self, key: &BlockKey, whole: f64) -> Sent {
        self.machine.line(Traffic::Gather, key.division.peers(Group::Context)).send(whole, 0.0)
    }

    /// The use of the network by a tensor-parallel group of the innermost chips; the rest has replicas, which take no part.
    fn uses(&self, tp: u64) -> Option<Vec<DimensionUse>> {
        let mut left = tp;
        let sizes = self.system.network.dimensions.iter().map(|d| d.size);
        let uses: Option<Vec<DimensionUse>> = sizes
            .map(|size| {
                let tp = left.min(size);
                (left.is_multiple_of(tp) && size.is_multiple_of(tp)).then(|| {
                    left /= tp;
                    DimensionUse { tp, dp: size / tp, ..DimensionUse::NONE }
                })
            })
            .collect();
        uses.filter(|_| left == 1)
    }

    /// Keeps a sharding that was the best of a cut, for others like it.
    fn keep(&self, of: Good, sharding: &[Strategy]) {
        let mut all = self.good.borrow_mut();
        let known = all.entry(of).or_default();
        if !known.iter().any(|other| other == sharding) {
            known.truncate(MOST_KEPT - 1);
            known.insert(0, sharding.to_vec());
        }
    }

    /// The fastest mappings of a cut among those that divide so much, with at least so much effort: one, and where the memory is on chip those that fill less of the SRAM. Empty where
    /// there is none, or no time for it.
    fn mappings(&self, key: &BlockKey, divided: Divided, effort: u32, deadline: Deadline) -> Result<Vec<Best>, String> {
        let mut out: Vec<Best> = Vec::new();
        for (room, system) in self.rooms.iter().enumerate() {
            let most = system.chip.0.sram.0;
            // What fills no more is the fastest here, too. What fills more than this is no faster than the one found with more.
            if let Some(best) = out.last_mut() {
                if best.blocks.sram <= most {
                    continue;
                }
                best.least.sram = best.least.sram.min(most);
            }
            match self.mapping(key, (divided, room), effort, deadline)? {
                Some(best) => out.push(best),
                // What had no time may fill less.
                None if deadline.is_over() => {
                    out.iter_mut().for_each(|best| best.least.sram = 0.0);
                    return Ok(out);
                }
                None => return Ok(out),
            }
        }
        // With less than the least room it may be as fast.
        if let Some(best) = out.last_mut() {
            best.least.sram = 0.0;
        }
        Ok(out)
    }

    /// The fastest mapping of a cut among those that divide so much, in one of the rooms, with at least so much effort; `None` where there is none, or no time for it.
    fn mapping(
        &self,
        key: &BlockKey,
        (divided, room): (Divided, usize),
        effort: u32,
        deadline: Deadline,
    ) -> Result<Option<Best>, String> {
        let known = self.known.borrow().get(&(*key, divided, room)).cloned();
        if let Some(known) = &known
            && known.as_ref().is_none_or(|best| best.effort.is_none_or(|had| had >= effort))
        {
            return Ok(known.clone());
        }
        let found = self.map(key, (divided, room), effort, deadline)?;
        // What had no time is not known.
        if found.is_none() && deadline.is_over() {
            return Ok(known.flatten());
        }
        self.known.borrow_mut().insert((*key, divided, room), found.clone());
        Ok(found)
    }

    /// The graph of a cut and its use of the network.
    ///
    /// # Errors
    /// A sentence: the network has no such group, or the model no such graph.
    pub fn cut(&self, key: &BlockKey) -> Result<(Workload, Vec<DimensionUse>), String> {
        let d = &key.division;
        let Some(uses) = self.uses(d.tp) else {
            return Err(format!("tp: the network of {} has no group of {} chips", self.system.name, d.tp));
        };
        let replicas: u64 = uses.iter().map(|u| u.dp).product();
        let global_batch = d.micro_batch.saturating_mul(replicas);
        Ok((Workload { micro_batch: d.micro_batch, global_batch, ..self.graph(key)?.workload.clone() }, uses))
    }

    /// The passes of a mapping that is given, of the graph of a cut and its use of the network ([`Self::cut`]): one, and where the memory is on chip those in less of the SRAM, in which
    /// more weights are held in pieces.
    ///
    /// # Errors
    /// Every rule that it breaks.
    pub fn given(
        &self,
        key: &BlockKey,
        (workload, uses): (Workload, Vec<DimensionUse>),
        given: BlockDecisions,
    ) -> Result<Vec<(Blocks, Plan)>, Vec<String>> {
        let decisions = Decisions {
            uses,
            stages: stages::even(self.system.model.pipeline, workload.repeat, 1),
            sharding: given.sharding,
            tiles: given.tiles,
            weights_on_chip: false,
            partition: given.partition,
        };
        let mut out: Vec<(Blocks, Plan)> = Vec::new();
        for system in &self.rooms {
            if out.last().is_some_and(|(blocks, _)| blocks.sram <= system.chip.0.sram.0) {
                continue;
            }
            let figures = match check::derive(&workload, system, &decisions) {
                Ok(figures) => figures,
                // It fits more of the SRAM.
                Err(_) if !out.is_empty() => break,
                Err(broken) => return Err(broken),
            };
            let (workload, decisions) = (workload.clone(), decisions.clone());
            let plan = Plan { workload, system: system.clone(), decisions, figures };
            let mut blocks = passes(&plan);
            self.add_exchanges(key, &plan, &mut blocks);
            out.push((blocks, plan));
        }
        Ok(out)
    }

    fn map(
        &self,
        key: &BlockKey,
        (divided, room): (Divided, usize),
        effort: u32,
        deadline: Deadline,
    ) -> Result<Option<Best>, String> {
        let (d, system) = (&key.division, &self.rooms[room]);
        let Ok((workload, uses)) = self.cut(key) else { return Ok(None) };
        let workload = Workload { divided, ..workload };
        let last = SETS.len() - 1;
        let effort = last.min(effort as usize);
        let good = Good { recompute: key.recompute, ep: d.ep, cp: d.cp, tp: d.tp };
        let request = Request {
            pins: Pins { uses: Some(uses), ..Pins::default() },
            limits: Limits { seconds: deadline.left().or(self.limits.seconds), ..self.limits.clone() },
            passes: Passes::Joint,
            joint_nodes: SETS[effort],
            waits: self.waits(key, &workload),
            shardings: self.good.borrow().get(&good).cloned().unwrap_or_default(),
            ..Request::default()
        };
        let answer = find(&workload, system, &request);
        let sets = if let Ok(Answer::Mapped(_, record)) = &answer { record.joint_nodes } else { 0 };
        self.spent.set(self.spent.get() + workload.kernels.len() as u64 * (TWO_PASSES + sets));
        let (plan, record) = match answer {
            Ok(Answer::Mapped(plan, record)) => (plan, record),
            // None was found among few sets, which does not say that there is none.
            Err(MapError::NoPlanYet { .. }) if effort < last && !deadline.is_over() => {
                return self.map(key, (divided, room), effort as u32 + 1, deadline);
            }
            Ok(Answer::Infeasible(_)) | Err(MapError::NoPlanYet { .. }) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        self.keep(good, &plan.decisions.sharding);
        let proven = record.left.is_none_or(|left| left == LeftOpen::Blind);
        let missing = (record.value - record.bound).max(0.0) / record.value.max(f64::MIN_POSITIVE);
        let mut blocks = passes(&plan);
        self.add_exchanges(key, &plan, &mut blocks);
        let least = match proven && missing <= 1e-9 {
            true => blocks,
            false => self.least(key, &plan, blocks, (missing * record.value, missing > AS_FASTEST), &record.blocks_s),
        };
        // Who was not stopped by the number of sets has nothing to gain by more.
        let more = !proven && missing > ROUNDING && effort < last && sets >= SETS[effort];
        Ok(Some(Best { blocks, least, effort: more.then_some(effort as u32), plan: Some(Arc::from(plan)) }))
    }

    /// What a cut waits for beside its partitions, by its sharding.
    fn waits(&self, key: &BlockKey, w: &Workload) -> Vec<Wait> {
        let (layouts, tp, samples) = (self.system.model.layouts, key.division.tp, w.micro_batch as f64);
        let bytes = |tensor: &Tensor, layout| tensor_bytes(tensor, layout, tp, Tiling::WHOLE, w.word_bytes).0 * samples;
        let mut out = Vec::new();
        if key.division.ep > 1 {
            for (tensor, producer, first) in across_experts(w) {
                let wanted = |s| bytes(tensor, required(&w.kernels[first.kernel], first.slot, s, layouts));
                out.push(Wait::of((producer, first.kernel), |a, b| {
                    self.exchange(key, bytes(tensor, produced(a, layouts)).min(wanted(b))).seconds
                }));
            }
        }
        for (k, kernel) in w.kernels.iter().enumerate().filter(|(_, kernel)| is_gathering(kernel)) {
            let Some(whole) = whole_of(w, k) else { continue };
            out.push(Wait::of((k, k), |s, _| {
                self.gathering(key, bytes(whole, layout_of_whole(whole, (k, kernel), s, layouts))).seconds
            }));
        }
        out
    }

    /// Adds what replicas exchange: with experts, and of the tokens that they share.
    fn add_exchanges(&self, key: &BlockKey, plan: &Plan, blocks: &mut Blocks) {
        if key.division.ep > 1 {
            for (forward, sent) in exchanged(plan) {
                let Sent { seconds, carried, joules } = self.exchange(key, sent);
                let pass = &mut blocks.experts;
                pass.exposed.joules += joules;
                pass.exposed.ep += seconds;
                (if forward { &mut pass.forward_busy } else { &mut pass.backward_busy })[2] += carried;
                *(if forward { &mut pass.forward_pass } else { &mut pass.backward_pass }) += seconds;
            }
        }
        for (block, phase, whole) in gathered(plan) {
            let Sent { seconds, carried, joules } = self.gathering(key, whole);
            let pass = pass_of(blocks, &plan.workload.blocks[block].name);
            pass.exposed.cp += seconds;
            pass.exposed.joules += joules;
            (if phase == Phase::Forward { &mut pass.forward_busy } else { &mut pass.backward_busy })[1] += carried;
            *(if phase == Phase::Forward { &mut pass.forward_pass } else { &mut pass.backward_pass }) += seconds;
        }
    }

    /// What blocks take at least of which a mapping was found: all together they are at most `missing` seconds faster, so that each by itself is, and none faster than `open_s`. Where
    /// that may be a mapping which is another, it keeps and uses what each does at least.
    fn least(
        &self,
        key: &BlockKey,
        plan: &Plan,
        blocks: Blocks,
        (missing, is_another): (f64, bool),
        open_s: &[f64],
    ) -> Blocks {
        let mut floors = self.bound(key);
        let mut least = blocks;
        for (b, block) in plan.workload.blocks.iter().enumerate() {
            let floor = *pass_of(&mut floors, &block.name);
            let pass = pass_of(&mut least, &block.name);
            let least = open_s.get(b).copied().unwrap_or(0.0).max(floor.total());
            let total = (pass.total() - missing / plan.workload.repeats(b) as f64).max(least);
            let share = (total / pass.total().max(f64::MIN_POSITIVE)).min(1.0);
            pass.forward_pass *= share;
            pass.backward_pass *= share;
            if is_another {
                (pass.kept, pass.working) = (floor.kept.min(pass.kept), 0.0);
                (pass.arithmetic, pass.flop, pass.dram_bytes) = (floor.arithmetic, floor.flop, floor.dram_bytes);
                pass.exposed.joules = floor.exposed.joules;
            }
        }
        if is_another {
            least.sram = 0.0;
        }
        least
    }
}

impl Inner for Free {
    fn bound(&self, key: &BlockKey) -> Blocks {
        let d = &key.division;
        // Its sizes were those of a graph that is there.
        let Ok(graph) = self.graph(key) else { return Blocks::default() };
        let mut out = graph.floor.at(d, &self.sharded(&graph, d.tp), &|whole| self.gathering(key, whole).seconds);
        if d.ep > 1 {
            // Both ways in each pass, every chip its part at least.
            let shared = Division { sequence_parallel: true, ..*d };
            let both = 2.0 * self.exchange(key, expert_bytes(&self.model, &shared)).seconds;
            out.experts.forward_pass += both;
            out.experts.backward_pass += both;
        }
        out
    }

    fn best(&self, key: &BlockKey, bound: &Blocks, effort: u32, deadline: Deadline) -> Result<Vec<Best>, String> {
        let mut fastest = self.mappings(key, Divided::Free, effort, deadline)?;
        // What hands over parts in a whole mapping's place may be slower, and still shorten a pipeline.
        let whole = |best: &Best| best.blocks.hand_over > bound.hand_over * (1.0 + ROUNDING);
        if !fastest.iter().any(whole) {
            return Ok(fastest);
        }
        let others = self.mappings(key, Divided::HandedOver, effort, deadline)?;
        if others.is_empty() && deadline.is_over() {
            fastest.iter_mut().for_each(|best| best.least.hand_over = bound.hand_over);
        }
        fastest.extend(others);
        Ok(fastest)
    }

    fn keeping_least(&self, key: &BlockKey, effort: u32, deadline: Deadline) -> Result<Vec<Best>, String> {
        if key.division.tp == 1 {
            return Ok(Vec::new());
        }
        self.mappings(key, Divided::Kept, effort, deadline)
    }

    fn guess(&self, key: &BlockKey) -> Option<Blocks> {
        let software = self.software.as_ref()?;
        let policy = Policy::new(software, &self.model).ok()?;
        // Sharding of a graph divides what a layer's sequence parallelism does.
        let division = Division { sequence_parallel: key.division.tp > 1, ..key.division };
        Some(policy.bound(&BlockKey { division, ..*key }))
    }

    fn is_spent(&self, gap: f64) -> bool {
        let all = self.sets as f64;
        let worth = WORTH.iter().find(|(near, ..)| gap <= *near);
        let sets = worth.map_or(all, |(_, part, least)| (part * all).max(all.min(*least as f64)));
        self.spent.get() as f64 >= sets * KERNELS as f64
    }

    fn space(&self) -> Space {
        Space { divides: false, exact: false }
    }
}

/// What experts and the rest of a graph hand each other: the tensor, the kernel that makes it and the first that reads it on the other side.
fn across_experts(w: &Workload) -> impl Iterator<Item = (&Tensor, usize, &Use)> {
    w.tensors.iter().filter_map(|tensor| {
        let producer = tensor.producer?;
        let inside = is_of_expert(&w.kernels[producer]);
        let across = tensor.consumers.iter().filter(|u| is_of_expert(&w.kernels[u.kernel]) != inside);
        // A pass that comes later finds it where the first of them had it sent.
        let first = across.min_by_key(|u| w.kernels[u.kernel].phase != Phase::Forward)?;
        Some((tensor, producer, first))
    })
}

/// What experts and the rest of a graph hand each other: whether in the forward pass, and the bytes of a chip, in the lesser of the layouts before and after the conversion
/// inside the group, which is part of the plan.
pub fn exchanged(plan: &Plan) -> Vec<(bool, f64)> {
    let (w, d, tp) = (&plan.workload, &plan.decisions, plan.figures.tp);
    let layouts = plan.system.model.layouts;
    let of = |(tensor, producer, first): (&Tensor, usize, &Use)| {
        let bytes = |layout| tensor_bytes(tensor, layout, tp, Tiling::WHOLE, w.word_bytes).0 * w.micro_batch as f64;
        let wanted = required(&w.kernels[first.kernel], first.slot, d.sharding[first.kernel], layouts);
        let made = bytes(produced(d.sharding[producer], layouts));
        (w.kernels[first.kernel].phase == Phase::Forward, made.min(bytes(wanted)))
    };
    across_experts(w).map(of).collect()
}

/// The tensor of a whole sequence that a kernel makes of what replicas have of it, or whose parts it gives them.
pub(super) fn whole_of(w: &Workload, kernel: usize) -> Option<&crate::graph::Tensor> {
    match w.kernels[kernel].phase {
        Phase::Forward | Phase::Recompute => w.tensors.iter().find(|t| t.producer == Some(kernel)),
        _ => w.tensors.iter().find(|t| t.consumers.iter().any(|u| u.kernel == kernel)),
    }
}

/// How that tensor lies in a group whose kernel has a strategy.
fn layout_of_whole(whole: &Tensor, (k, kernel): (usize, &Kernel), s: Strategy, layouts: Layouts) -> Layout {
    match whole.consumers.iter().find(|u| u.kernel == k) {
        Some(read) => required(kernel, read.slot, s, layouts),
        None => produced(s, layouts),
    }
}

/// What replicas that share tokens gather and, in the phase of gradients of inputs, add up: the block, the phase, and the bytes of the whole on a chip, as the kernel's sharding has it.
pub fn gathered(plan: &Plan) -> Vec<(usize, Phase, f64)> {
    let (w, d, tp) = (&plan.workload, &plan.decisions, plan.figures.tp);
    let layouts = plan.system.model.layouts;
    let of = |(k, kernel): (usize, &Kernel)| {
        let whole = whole_of(w, k)?;
        let layout = layout_of_whole(whole, (k, kernel), d.sharding[k], layouts);
        let bytes = tensor_bytes(whole, layout, tp, Tiling::WHOLE, w.word_bytes).0 * w.micro_batch as f64;
        Some((kernel.block, kernel.phase, bytes))
    };
    w.kernels.iter().enumerate().filter(|(_, kernel)| is_gathering(kernel)).filter_map(of).collect()
}

/// What a partition of a plan of one cut takes.
pub struct Part {
    /// Its block.
    pub block: usize,
    /// Its pass: gradients of weights where it has nothing else.
    pub pass: Pass,
    /// Seconds.
    pub seconds: f64,
    /// Of them, what its collectives are waited for.
    pub waited: f64,
    /// Share of its FLOP that are computed again.
    pub again: f64,
    /// FLOP of its products.
    pub flop: f64,
    /// Bytes from and to the chip's memory.
    pub dram_bytes: f64,
}

/// Partition `p` of a plan of one cut; none of no kernels.
pub fn part(plan: &Plan, p: usize) -> Option<Part> {
    let (w, d, figures) = (&plan.workload, &plan.decisions, plan.figures.partitions.get(p)?);
    let inside: Vec<&Kernel> = (0..w.kernels.len()).filter(|k| d.partition[*k] == p).map(|k| &w.kernels[k]).collect();
    let block = inside.first()?.block;
    let share = |of: &dyn Fn(&Kernel) -> bool| {
        let sum = |all: bool| inside.iter().filter(|k| all || of(k)).map(|k| k.flop()).sum::<f64>();
        if sum(true) > 0.0 { sum(false) / sum(true) } else { 0.0 }
    };
    let alone = match plan.system.overlap() {
        Overlap::None => figures.compute_s + figures.dram_s,
        _ => figures.compute_s.max(figures.dram_s),
    };
    let all = |phase: Phase| inside.iter().all(|k| k.phase == phase);
    let pass = match () {
        () if all(Phase::Forward) => Pass::Forward,
        () if all(Phase::BackwardWeight) => Pass::Weight,
        () => Pass::Backward,
    };
    Some(Part {
        block,
        pass,
        seconds: figures.time_s,
        waited: (figures.time_s - figures.overhead_s - figures.filling_s - alone).max(0.0),
        again: share(&|k| k.phase == Phase::Recompute),
        flop: figures.flop * share(&|k| matches!(k.op, Op::Gemm | Op::GemmWeight)),
        dram_bytes: figures.dram_bytes,
    })
}

/// Seconds in which the bytes of each partition's collectives keep links busy: what they take without hops, in which a link is free for others.
fn carried(plan: &Plan) -> Vec<f64> {
    let mut system = plan.system.clone();
    system.model.latencies = Charge::Ignored;
    let figures = check::derive(&plan.workload, &system, &plan.decisions);
    figures.map_or_else(|_| Vec::new(), |figures| figures.partitions.iter().map(|p| p.network_s).collect())
}

/// The passes of the blocks of a plan of one cut.
pub fn passes(plan: &Plan) -> Blocks {
    let (w, d) = (&plan.workload, &plan.decisions);
    let options = &plan.system.model;
    let (tp, dp) = (plan.figures.tp, plan.figures.dp);
    let samples = w.micro_batch as f64;
    let mut out = Blocks::default();
    let mut live = vec![0.0f64; w.blocks.len()];
    let carried = carried(plan);
    for (p, figures) in plan.figures.partitions.iter().enumerate() {
        let Some(part) = part(plan, p) else { continue };
        let kernels = part.seconds - part.waited;
        live[part.block] = live[part.block].max(figures.live_bytes);
        if plan.system.shares_sram() {
            out.sram = out.sram.max(figures.sram_bytes);
        }
        let pass = pass_of(&mut out, &w.blocks[part.block].name);
        if part.pass == Pass::Forward {
            pass.forward += kernels;
            pass.forward_pass += part.seconds;
        } else {
            pass.backward += kernels * (1.0 - part.again);
            pass.recompute += kernels * part.again;
            pass.backward_pass += part.seconds;
        }
        let busy = if part.pass == Pass::Forward { &mut pass.forward_busy } else { &mut pass.backward_busy };
        busy[0] += carried.get(p).copied().unwrap_or(figures.network_s);
        if part.pass == Pass::Weight {
            pass.weight += part.seconds;
        }
        pass.exposed.tp += part.waited;
        pass.exposed.hidden += (figures.network_s - part.waited).max(0.0);
        pass.exposed.joules += figures.link_j;
        pass.arithmetic += figures.compute_s;
        pass.flop += part.flop;
        pass.dram_bytes += part.dram_bytes;
    }
    for (b, live) in live.into_iter().enumerate() {
        let (graph, kernels) = w.of_block(b);
        let own: Vec<_> = kernels.iter().map(|k| d.sharding[*k]).collect();
        let kept = of_layer(&graph, options, &own, (tp, dp), plan.system.chip_count()).kept;
        let pass = pass_of(&mut out, &w.blocks[b].name);
        pass.kept = kept;
        pass.working = (live - kept).max(0.0);
        for tensor in graph.tensors.iter().filter(|t| t.carried_from.is_some()) {
            let bytes = tensor.consumers.iter().map(|u| {
                let layout = required(&graph.kernels[u.kernel], u.slot, own[u.kernel], options.layouts);
                tensor_bytes(tensor, layout, tp, Tiling::WHOLE, graph.word_bytes).0
            });
            out.hand_over = bytes.fold(out.hand_over, |most, b| most.max(b * samples));
        }
    }
    // One microbatch at a time is in the head.
    out.head.kept += out.head.working;
    out.head.working = 0.0;
    out
}
