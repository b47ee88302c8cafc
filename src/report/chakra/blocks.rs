//! What each pass of an execution's blocks computes and says: of layers that run kernel by kernel, and of blocks that are mapped as graphs.
//!
//! | block | a node of computation | its collectives |
//! |---|---|---|
//! | of kernels | all of a pass through the layer | those of a stack, behind it or beside the next layer (`overlap_tp`) |
//! | of a graph | a partition: what is on the chip at the same time | those that the plan of the blocks charges to it, behind or (`overlap: full`) beside it; behind the pass, the exchange with replicas that share the experts, or the tokens of a sample |
//!
//! FLOP are those of products, seconds those of the prediction without communication that is waited for. The sums are compared with the prediction.

use super::comms::{self, Comm};
use crate::execution::block::BlockPass;
use crate::execution::communication::{
    Exposed, LayerCommunication, crossing_reduces, expert_bytes, hidden_bytes, keys_and_values_bytes, rings,
};
use crate::execution::layer::{Division, KernelTime, Kernels, Phase, Sums, Work};
use crate::execution::mapping::LayerMapping;
use crate::execution::passes::Pass;
use crate::execution::{Execution, Machine, Prediction, Recompute, Schedule};
use crate::graph;
use crate::mapping::free;
use crate::model::ranks::Group;
use crate::plan::{Plan, agree};
use crate::system::options::Overlap;
use crate::system::stack::Selective;
use crate::trace::chakra::CommType;
use crate::workload::language::LanguageModel;

/// Computation of one node.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Amount {
    pub(super) flop: f64,
    pub(super) bytes: f64,
    pub(super) seconds: f64,
}

impl Amount {
    fn of<'k>(kernels: impl Iterator<Item = &'k KernelTime>) -> Self {
        kernels.fold(Self::default(), |a, k| Self {
            flop: a.flop + k.flop,
            bytes: a.bytes + k.bytes,
            seconds: a.seconds + k.seconds,
        })
    }

    fn plus(self, other: Self) -> Self {
        Self { flop: self.flop + other.flop, bytes: self.bytes + other.bytes, seconds: self.seconds + other.seconds }
    }
}

/// A node of computation with its collectives.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Part {
    /// Which of its block; none where it is all of it.
    pub(super) name: Option<String>,
    /// None: collectives alone.
    pub(super) work: Option<Amount>,
    pub(super) comms: Vec<Comm>,
}

/// Beside what collectives run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// Nothing: they follow what they belong to.
    Nothing,
    /// The part that they belong to.
    Own,
    /// What comes next.
    Next,
}

/// A block with what each pass computes and says.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    pub(super) name: &'static str,
    pub(super) passes: [Vec<Part>; 3],
}

/// The blocks of an execution: plain layer, layer with experts, embedding, head.
pub(super) type All = [Block; 4];

/// Numbers of embedding and head among [`All`].
pub(super) const EMBEDDING: usize = 2;
/// See [`EMBEDDING`].
pub(super) const HEAD: usize = 3;

/// The blocks of an execution, and beside what their collectives run; `plan` is that of blocks mapped as graphs.
pub(super) fn of(
    machine: &Machine,
    model: &LanguageModel,
    prediction: &Prediction,
    plan: Option<&Plan>,
) -> Result<(All, Beside), String> {
    let e = &prediction.execution;
    if let Some(plan) = plan {
        let beside = if plan.system.overlap() == Overlap::Full { Beside::Own } else { Beside::Nothing };
        return Ok((of_graphs(prediction, plan)?, beside));
    }
    let beside = if e.overlap_tp { Beside::Next } else { Beside::Nothing };
    Ok((OfKernels { machine, model, e, prediction }.all()?, beside))
}

/// The sums of a block's passes are the prediction's.
fn compare(name: &str, all: Amount, pass: &BlockPass) -> Result<(), String> {
    if agree(all.flop, pass.flop, 1e-9) && agree(all.bytes, pass.dram_bytes, 1e-9) {
        return Ok(());
    }
    Err(format!(
        "internal error, please report it: the passes of a {name} have {:e} FLOP and {:e} bytes, the prediction {:e} and {:e}",
        all.flop, all.bytes, pass.flop, pass.dram_bytes
    ))
}

/// Blocks that are mapped as graphs: each partition with what the plan says of it.
fn of_graphs(prediction: &Prediction, plan: &Plan) -> Result<All, String> {
    let e = &prediction.execution;
    let split = e.schedule == Schedule::ZeroBubble;
    let mut out = All::default();
    let mut sums = [(Amount::default(), [0.0; 2]); 4];
    let number = |name: &str| match name {
        "layers" => 0,
        "embedding" => EMBEDDING,
        "head" => HEAD,
        _ => 1,
    };
    for ((block, name), b) in out.iter_mut().zip(["layer", "layer", "embedding", "head"]).zip(0..) {
        if plan.workload.blocks.iter().any(|of| number(&of.name) == b) {
            block.name = name;
        }
    }
    for (p, paid) in comms::of_partitions(plan)?.into_iter().enumerate() {
        let Some(part) = free::part(plan, p) else { continue };
        let b = plan.workload.blocks.get(part.block).map_or(0, |block| number(&block.name));
        let pass = if part.pass == Pass::Weight && !split { Pass::Backward } else { part.pass };
        let work = Amount { flop: part.flop, bytes: part.dram_bytes, seconds: part.seconds - part.waited };
        let (sum, seconds) = &mut sums[b];
        *sum = sum.plus(work);
        seconds[usize::from(pass != Pass::Forward)] += part.seconds;
        let comms = paid.into_iter().map(|paid| paid.comm).collect();
        out[b].passes[pass as usize].push(Part { name: Some(format!("partition {p}")), work: Some(work), comms });
    }
    if e.ep > 1 {
        for (forward, bytes) in free::exchanged(plan) {
            let list = &mut out[1].passes[if forward { Pass::Forward } else { Pass::Backward } as usize];
            let comms = vec![Comm::new(Group::Expert, CommType::AllToAll, bytes)];
            list.push(Part { name: None, work: None, comms });
        }
    }
    for (block, phase, whole) in free::gathered(plan) {
        let b = plan.workload.blocks.get(block).map_or(0, |block| number(&block.name));
        let (kind, bytes) = match phase {
            graph::Phase::Forward | graph::Phase::Recompute => (CommType::AllGather, whole / e.cp as f64),
            _ => (CommType::ReduceScatter, whole),
        };
        let pass = if phase == graph::Phase::Forward { Pass::Forward } else { Pass::Backward };
        let comms = vec![Comm::new(Group::Context, kind, bytes)];
        out[b].passes[pass as usize].push(Part { name: None, work: None, comms });
    }
    let b = &prediction.blocks;
    for ((pass, (sum, seconds)), block) in [&b.plain, &b.experts, &b.embedding, &b.head].into_iter().zip(sums).zip(&out)
    {
        compare(block.name, sum, pass)?;
        // Exchanges between replicas are behind the partitions.
        let planned = pass.total() - pass.exposed.ep - pass.exposed.cp;
        if !agree(seconds[0] + seconds[1], planned, 1e-9) {
            return Err(format!(
                "internal error, please report it: the partitions of a {} take {:e} s, the prediction {planned:e}",
                block.name,
                seconds[0] + seconds[1]
            ));
        }
    }
    Ok(out)
}

/// Blocks that run kernel by kernel.
struct OfKernels<'a> {
    machine: &'a Machine,
    model: &'a LanguageModel,
    e: &'a Execution,
    prediction: &'a Prediction,
}

impl OfKernels<'_> {
    fn all(&self) -> Result<All, String> {
        let e = self.e;
        let division = Division {
            tp: e.tp,
            cp: e.cp,
            ep: e.ep,
            chips: e.chips(),
            micro_batch: e.micro_batch,
            sequence_parallel: e.sequence_parallel,
        };
        let peak = self.machine.peak(self.model)?;
        let kernels = || Kernels::new(self.machine, self.model, division, peak);
        let b = &self.prediction.blocks;
        let layer = |name, there: bool, with_experts: bool, pass: &BlockPass| {
            if !there {
                return Ok(Block::default());
            }
            let mapping = pass.mapping.unwrap_or_else(|| LayerMapping::of_stack(self.machine));
            if !mapping.divides_weights() {
                return Err("the mapping of a layer divides tokens and gathers weights, whose traffic is not written; take --software stack or ideal".into());
            }
            let list = kernels().by(&mapping).layer(with_experts);
            let sums = Sums::of(&list);
            let comm = LayerCommunication::of(self.machine, self.model, &division, e.overlap_tp, with_experts, &sums);
            let [forward, backward] = self.layer_comms(&division, with_experts);
            let again = if e.recompute == Recompute::Full { comm.forward } else { Exposed::default() };
            let waited = (comm.forward.total(), comm.backward.total() + again.total());
            let backward = if e.recompute == Recompute::Full { [forward.clone(), backward].concat() } else { backward };
            self.block(name, &list, pass, waited, [forward, backward])
        };
        let hidden = Comm::new(Group::Tensor, CommType::AllReduce, hidden_bytes(self.model, &division));
        let reduce = |there: bool| if there && e.tp > 1 { vec![hidden] } else { Vec::new() };
        let reduced =
            LayerCommunication::of(self.machine, self.model, &division, false, false, &Sums::default()).reduce.seconds;
        let seconds = |comms: &[Comm]| if comms.is_empty() { 0.0 } else { reduced };
        let words = reduce(self.model.vocab.is_some());
        let outputs = reduce(self.model.head_outputs() > 0);
        let waited = ((seconds(&words), 0.0), (0.0, seconds(&outputs)));
        Ok([
            layer("layer", self.model.dense_layers() > 0, false, &b.plain)?,
            layer("layer", self.model.expert_layers() > 0, true, &b.experts)?,
            self.block("embedding", &kernels().embedding(), &b.embedding, waited.0, [words, Vec::new()])?,
            self.block("head", &kernels().head(), &b.head, waited.1, [Vec::new(), outputs])?,
        ])
    }

    /// What a layer says forward and backward.
    fn layer_comms(&self, division: &Division, with_experts: bool) -> [Vec<Comm>; 2] {
        let (e, model) = (self.e, self.model);
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        let put = |list: &mut Vec<Comm>, group, kind, bytes| list.push(Comm::new(group, kind, bytes));
        if e.cp > 1 {
            let bytes = rings(model) * keys_and_values_bytes(model, division);
            put(&mut forward, Group::Context, CommType::AllGather, bytes);
            put(&mut backward, Group::Context, CommType::AllGather, bytes);
            put(&mut backward, Group::Context, CommType::ReduceScatter, bytes * e.cp as f64);
        }
        if with_experts && e.ep > 1 {
            for list in [&mut forward, &mut backward] {
                for _ in 0..2 {
                    put(list, Group::Expert, CommType::AllToAll, expert_bytes(model, division));
                }
            }
        }
        if e.tp > 1 {
            let (whole, part) = (hidden_bytes(model, division), hidden_bytes(model, division) / e.tp as f64);
            let mut reduced = |[ahead, back]: [f64; 2]| {
                for (list, times, gathers) in [(&mut forward, ahead, 1), (&mut backward, back, 2)] {
                    if e.sequence_parallel {
                        (0..gathers).for_each(|_| put(list, Group::Tensor, CommType::AllGather, times * part));
                        put(list, Group::Tensor, CommType::ReduceScatter, times * whole);
                    } else {
                        put(list, Group::Tensor, CommType::AllReduce, times * whole);
                    }
                }
            };
            (0..if model.parallel_block { 1 } else { 2 }).for_each(|_| reduced([1.0; 2]));
            // The mean of all layers, as their kernels are.
            if model.crossing() > 0.0 {
                reduced(crossing_reduces(model));
            }
        }
        [forward, backward]
    }

    /// A block from its kernels; `waited` are the seconds of communication in the prediction's passes.
    fn block(
        &self,
        name: &'static str,
        kernels: &[KernelTime],
        pass: &BlockPass,
        waited: (f64, f64),
        [forward, backward]: [Vec<Comm>; 2],
    ) -> Result<Block, String> {
        let of = |phase| Amount::of(kernels.iter().filter(|k| k.phase == phase));
        let (ahead, input, weight) = (of(Phase::Forward), of(Phase::BackwardInput), of(Phase::BackwardWeight));
        let again = match self.e.recompute {
            _ if name != "layer" => Amount::default(),
            Recompute::None => Amount::default(),
            Recompute::Selective => {
                let core = |k: &&KernelTime| k.work == Work::Attention;
                let forward = || kernels.iter().filter(|k| k.phase == Phase::Forward);
                match self.machine.stack.selective {
                    Selective::Attention => Amount::of(forward().filter(core)),
                    Selective::HalfOfProducts => {
                        let rest = Amount::of(forward().filter(|k| !core(k)));
                        let products = Amount::of(forward().filter(|k| k.work == Work::Product));
                        Amount { flop: 0.5 * rest.flop, seconds: rest.seconds - 0.5 * products.seconds, ..rest }
                    }
                }
            }
            Recompute::Full => ahead,
        };
        let back = input.plus(again);
        let all = ahead.plus(back).plus(weight);
        compare(name, all, pass)?;
        // Host time that the device waits for is the computation's.
        let forward_s = (pass.forward_pass - waited.0).max(0.0);
        let backward_s = (pass.backward_pass - waited.1).max(0.0);
        let split = self.e.schedule == Schedule::ZeroBubble;
        let weight_s = if split { pass.weight.min(backward_s) } else { 0.0 };
        let with = |amount: Amount, seconds: f64| Amount { seconds, ..amount };
        let (back, weight) =
            if split { (back, with(weight, weight_s)) } else { (back.plus(weight), Amount::default()) };
        let part = |work: Amount, comms| vec![Part { name: None, work: Some(work), comms }];
        let weight = if split { part(weight, Vec::new()) } else { Vec::new() };
        let passes = [part(with(ahead, forward_s), forward), part(with(back, backward_s - weight_s), backward), weight];
        Ok(Block { name, passes })
    }
}
