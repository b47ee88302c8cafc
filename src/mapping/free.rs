//! The free inner search of chips that fuse: what a cut of a language model's blocks takes at best (chips that run kernel by kernel: `execution::possible`).
//!
//! The blocks (embedding, layers, head) are the model's graph with its adjoint, what is computed again included ([`crate::graph::recompute`]). A cut is a
//! tensor-parallel group and the samples of a microbatch. The graph is mapped onto one such group (`search.rs`): sharding of the cut, then tiles and partitions of
//! every block, proven. Each partition is of one block and one pass, so that times add up to passes:
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
//! the tokens of a sample (context parallelism), kernels of the graph gather keys and values, again in the backward pass, and add up their gradients: all-gathers and reduce-scatters that are waited for.
//!
//! Not in the space: exchanges beside other work; weights that stay on chip from one microbatch to the next; a slower mapping of a block that keeps less; another sharding than the one
//! that is best by its own objective (there may be hundreds of cuts).

use super::degrees::Degrees;
use super::floor::Floor;
use super::instance::{Choice, build};
use super::record::Status;
use super::request::{Answer, LeftOpen, MapError, Passes, Pins, Request};
use super::search::find;
use super::sharding;
use super::solver::Limits;
use super::tiling::tile_counts;
use crate::deadline::Deadline;
use crate::execution::block::{Best, BlockKey, BlockPass, Blocks, Inner, Space};
use crate::execution::communication::expert_bytes;
use crate::execution::layer::Division;
use crate::execution::machine::{Sent, Traffic};
use crate::execution::passes::Pass;
use crate::execution::policy::Policy;
use crate::execution::search::ONE_KEY;
use crate::execution::{Machine, Recompute};
use crate::graph::{Kernel, Op, Phase, Workload};
use crate::model::Strategy;
use crate::model::compute::{Tiling, tensor_bytes};
use crate::model::layout::{produced, required};
use crate::model::memory::of_layer;
use crate::model::ranks::Group;
use crate::plan::{DimensionUse, Plan};
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
}

/// The free search of a model's blocks on a system.
pub struct Free {
    /// Without a limit of DRAM, which is that of stages and not of blocks.
    system: System,
    /// The same as numbers: for what replicas that share experts send each other.
    machine: Machine,
    model: LanguageModel,
    /// The graphs by what is computed again and the replicas that share the experts, and the tokens.
    graphs: RefCell<HashMap<(Recompute, u64, u64), Rc<Graph>>>,
    known: RefCell<HashMap<BlockKey, Option<Best>>>,
    /// Kernels of the cuts that were mapped.
    kernels: Cell<usize>,
    closer: RefCell<HashMap<BlockKey, Option<Blocks>>>,
    limits: Limits,
    /// What software of the chip's kind takes, by which promising cuts are told.
    software: Option<Machine>,
}

/// Kernels of the cuts that are mapped where nobody has set a time: a minute or two of large graphs, which have some 200 each.
const MOST_KERNELS: usize = 40_000;

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
        let out = Self {
            system,
            machine,
            model: model.clone(),
            graphs: RefCell::default(),
            known: RefCell::default(),
            kernels: Cell::default(),
            closer: RefCell::default(),
            limits: limits.clone(),
            software,
        };
        for recompute in Recompute::ALL {
            out.graph(&BlockKey { recompute: *recompute, ..ONE_KEY })?;
        }
        Ok(out)
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
        let made = Rc::new(Graph { workload, floor });
        self.graphs.borrow_mut().insert(at, made.clone());
        Ok(made)
    }

    /// How replicas that share experts exchange what `bytes` of a chip are.
    fn exchange(&self, key: &BlockKey, bytes: f64) -> Sent {
        self.machine.among(Traffic::AllToAll, key.division.parallelism().group(Group::Expert)).send(bytes, 0.0)
    }

    /// How replicas that share tokens gather, or add up, `whole` bytes on a chip.
    fn gathering(&self, key: &BlockKey, whole: f64) -> Sent {
        self.machine.among(Traffic::Gather, key.division.parallelism().group(Group::Context)).send(whole, 0.0)
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

    fn map(&self, key: &BlockKey, deadline: Deadline) -> Result<Option<Best>, String> {
        let d = &key.division;
        let Some(uses) = self.uses(d.tp) else { return Ok(None) };
        let replicas: u64 = uses.iter().map(|u| u.dp).product();
        let graph = self.graph(key)?;
        let graph = &graph.workload;
        self.kernels.set(self.kernels.get() + graph.kernels.len());
        let global_batch = d.micro_batch.saturating_mul(replicas);
        let workload = Workload { micro_batch: d.micro_batch, global_batch, ..graph.clone() };
        let request = Request {
            pins: Pins { uses: Some(uses), ..Pins::default() },
            limits: Limits { seconds: deadline.left().or(self.limits.seconds), ..self.limits.clone() },
            passes: Passes::TwoPass,
            ..Request::default()
        };
        let (plan, record) = match find(&workload, &self.system, &request) {
            Ok(Answer::Mapped(plan, record)) => (plan, record),
            Ok(Answer::Infeasible(_)) | Err(MapError::NoPlanYet { .. }) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let mut blocks = passes(&plan);
        if d.ep > 1 {
            for (forward, sent) in exchanged(&plan) {
                let Sent { seconds, joules } = self.exchange(key, sent);
                let pass = &mut blocks.experts;
                pass.exposed.joules += joules;
                pass.exposed.ep += seconds;
                *(if forward { &mut pass.forward_pass } else { &mut pass.backward_pass }) += seconds;
            }
        }
        for (block, phase, whole) in gathered(&plan) {
            let Sent { seconds, joules } = self.gathering(key, whole);
            let pass = pass_of(&mut blocks, &plan.workload.blocks[block].name);
            pass.exposed.cp += seconds;
            pass.exposed.joules += joules;
            *(if phase == Phase::Forward { &mut pass.forward_pass } else { &mut pass.backward_pass }) += seconds;
        }
        // All blocks together are at most so much faster, so that each by itself is.
        let mut floors = self.bound(key);
        let missing = (record.value - record.bound).max(0.0);
        let mut least = blocks;
        if record.left.is_some_and(|l| l != LeftOpen::Blind) || missing > 1e-9 * record.value {
            for (b, block) in plan.workload.blocks.iter().enumerate() {
                let found = *pass_of(&mut least, &block.name);
                let floor = pass_of(&mut floors, &block.name).total();
                let total = (found.total() - missing / plan.workload.repeats(b) as f64).max(floor).min(found.total());
                let share = total / found.total().max(f64::MIN_POSITIVE);
                let pass = pass_of(&mut least, &block.name);
                pass.forward_pass *= share;
                pass.backward_pass *= share;
                if missing > 1e-9 * record.value {
                    let floor = pass_of(&mut floors, &block.name);
                    (pass.arithmetic, pass.flop, pass.dram_bytes) = (floor.arithmetic, floor.flop, floor.dram_bytes);
                    pass.exposed.joules = floor.exposed.joules;
                }
            }
        }
        Ok(Some(Best { blocks, least, plan: Some(Arc::from(plan)) }))
    }

    /// Passes that no mapping comes below of whose blocks the partitions of a pass take at least `least`, launches apart.
    fn floor(&self, key: &BlockKey, least: &dyn Fn(usize, bool) -> f64) -> Blocks {
        let d = &key.division;
        // Its sizes were those of a graph that is there.
        let Ok(graph) = self.graph(key) else { return Blocks::default() };
        let gathering = |whole: f64| self.gathering(key, whole).seconds;
        let mut out = graph.floor.at(d, least, &gathering);
        if d.ep > 1 {
            // Both ways in each pass, every chip its part at least.
            let shared = Division { sequence_parallel: true, ..*d };
            let both = 2.0 * self.exchange(key, expert_bytes(&self.model, &shared)).seconds;
            out.experts.forward_pass += both;
            out.experts.backward_pass += both;
        }
        out
    }

    /// Seconds that the partitions of each block's passes take at least in a sharding, with the tile count that is best for each.
    fn least_of_sharding(&self, workload: &Workload, degrees: &Degrees, sharding: &[Strategy]) -> Vec<[f64; 2]> {
        let counts = tile_counts(workload, &self.system);
        let of = |block: usize| {
            let (graph, kernels) = workload.of_block(block);
            let own: Vec<Strategy> = kernels.iter().map(|k| sharding[*k]).collect();
            let mut least = [f64::INFINITY; 2];
            for tiles in &counts {
                let choice = Choice { degrees, sharding: &own, tiles: *tiles, weights_on_chip: false, longest: 1 };
                let Ok(instance) = build(&graph, &self.system, choice, f64::INFINITY) else { continue };
                for (least, backward) in least.iter_mut().zip([false, true]) {
                    *least = least.min(instance.phase(backward).0.lower_bound());
                }
            }
            least.map(|s| if s.is_finite() { s } else { 0.0 })
        };
        (0..workload.blocks.len()).map(of).collect()
    }
}

impl Inner for Free {
    fn bound(&self, key: &BlockKey) -> Blocks {
        self.floor(key, &|_, _| 0.0)
    }

    fn closer(&self, key: &BlockKey) -> Option<Blocks> {
        let uses = self.uses(key.division.tp)?;
        let mut known = self.closer.borrow_mut();
        if let Some(known) = known.get(key) {
            return *known;
        }
        let of = || {
            let graph = self.graph(key).ok()?;
            let workload = Workload { micro_batch: key.division.micro_batch, ..graph.workload.clone() };
            let degrees = Degrees::new(&self.system, uses);
            let open = vec![None; workload.kernels.len()];
            let problem = sharding::problem(&workload, &self.system, &degrees, &open).ok()?;
            let found = sharding::solve_exactly(&problem, &self.limits).ok()?;
            if found.record.status != Status::Optimal {
                return None;
            }
            let least = self.least_of_sharding(&workload, &degrees, &found.strategies);
            Some(self.floor(key, &|block, forward| least[block][usize::from(!forward)]))
        };
        *known.entry(*key).or_insert_with(of)
    }

    fn best(&self, key: &BlockKey, _: &Blocks, deadline: Deadline) -> Result<Vec<Best>, String> {
        if let Some(known) = self.known.borrow().get(key) {
            return Ok(known.iter().cloned().collect());
        }
        let found = self.map(key, deadline)?;
        // What had no time is not known.
        if found.is_some() || !deadline.is_over() {
            self.known.borrow_mut().insert(*key, found.clone());
        }
        Ok(found.into_iter().collect())
    }

    fn guess(&self, key: &BlockKey) -> Option<Blocks> {
        let software = self.software.as_ref()?;
        let policy = Policy::new(software, &self.model).ok()?;
        // Sharding of a graph divides what a layer's sequence parallelism does.
        let division = Division { sequence_parallel: key.division.tp > 1, ..key.division };
        Some(policy.bound(&BlockKey { division, ..*key }))
    }

    fn is_spent(&self) -> bool {
        self.kernels.get() >= MOST_KERNELS
    }

    fn space(&self) -> Space {
        Space { divides: false, exact: false }
    }
}

/// What experts and the rest of a graph hand each other: whether in the forward pass, and the bytes of a chip, in the lesser of the layouts before and after the conversion
/// inside the group, which is part of the plan.
pub fn exchanged(plan: &Plan) -> Vec<(bool, f64)> {
    let (w, d, tp) = (&plan.workload, &plan.decisions, plan.figures.tp);
    let layouts = plan.system.model.layouts;
    let samples = w.micro_batch as f64;
    let mut out = Vec::new();
    for tensor in &w.tensors {
        let Some(producer) = tensor.producer else { continue };
        let inside = is_of_expert(&w.kernels[producer]);
        let bytes = |layout| tensor_bytes(tensor, layout, tp, Tiling::WHOLE, w.word_bytes).0 * samples;
        let mut across: Vec<_> =
            tensor.consumers.iter().filter(|u| is_of_expert(&w.kernels[u.kernel]) != inside).collect();
        // A pass that comes later finds it where the first of them had it sent.
        across.sort_by_key(|u| w.kernels[u.kernel].phase != Phase::Forward);
        if let Some(first) = across.first() {
            let wanted = required(&w.kernels[first.kernel], first.slot, d.sharding[first.kernel], layouts);
            let made = bytes(produced(d.sharding[producer], layouts));
            out.push((w.kernels[first.kernel].phase == Phase::Forward, made.min(bytes(wanted))));
        }
    }
    out
}

/// The tensor of a whole sequence that a kernel makes of what replicas have of it, or whose parts it gives them.
pub(super) fn whole_of(w: &Workload, kernel: usize) -> Option<&crate::graph::Tensor> {
    match w.kernels[kernel].phase {
        Phase::Forward | Phase::Recompute => w.tensors.iter().find(|t| t.producer == Some(kernel)),
        _ => w.tensors.iter().find(|t| t.consumers.iter().any(|u| u.kernel == kernel)),
    }
}

/// What replicas that share tokens gather and, in the phase of gradients of inputs, add up: the block, the phase, and the bytes of the whole on a chip, as the kernel's sharding has it.
pub fn gathered(plan: &Plan) -> Vec<(usize, Phase, f64)> {
    let (w, d, tp) = (&plan.workload, &plan.decisions, plan.figures.tp);
    let layouts = plan.system.model.layouts;
    let of = |(k, kernel): (usize, &Kernel)| {
        let whole = whole_of(w, k)?;
        let layout = match whole.consumers.iter().find(|u| u.kernel == k) {
            Some(read) => required(kernel, read.slot, d.sharding[k], layouts),
            None => produced(d.sharding[k], layouts),
        };
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

/// The passes of the blocks of a plan of one cut.
pub fn passes(plan: &Plan) -> Blocks {
    let (w, d) = (&plan.workload, &plan.decisions);
    let options = &plan.system.model;
    let (tp, dp) = (plan.figures.tp, plan.figures.dp);
    let samples = w.micro_batch as f64;
    let mut out = Blocks::default();
    let mut live = vec![0.0f64; w.blocks.len()];
    for (p, figures) in plan.figures.partitions.iter().enumerate() {
        let Some(part) = part(plan, p) else { continue };
        let kernels = part.seconds - part.waited;
        live[part.block] = live[part.block].max(figures.live_bytes);
        let pass = pass_of(&mut out, &w.blocks[part.block].name);
        if part.pass == Pass::Forward {
            pass.forward += kernels;
            pass.forward_pass += part.seconds;
        } else {
            pass.backward += kernels * (1.0 - part.again);
            pass.recompute += kernels * part.again;
            pass.backward_pass += part.seconds;
        }
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
