//! Chakra traces of an execution of a language model, one a rank, in each schedule that executions know.
//!
//! A node of computation stands for one pass of one microbatch through one layer (or embedding, head): `num_ops` are the FLOP of its products on one
//! chip, `tensor_size` its bytes from and to memory, its duration the prediction's seconds without communication that is waited for. Collectives
//! follow it, or hang beside what comes next where the execution overlaps them. Passes come in the order of the schedule
//! ([`crate::execution::passes`]), with send and receive between stages. What is computed again is part of the backward pass. The ring of context
//! parallelism is written as the gather of keys and values that it amounts to, backward with the scattered sum of their gradients. The iteration ends with
//! the reduction of gradients and the optimiser.
//!
//! Ranks: tensor parallelism fastest, then replicas (context inside data; experts inside both), then stages, as on the network.

use super::comms::whole_bytes;
use super::nodes::{Nodes, metadata, number, text};
use super::{Wanted, Written};
use crate::execution::block::BlockPass;
use crate::execution::communication::{Exposed, LayerCommunication, expert_bytes, hidden_bytes, keys_and_values_bytes};
use crate::execution::layer::{Division, KernelTime, Kernels, Phase, Sums, Work};
use crate::execution::mapping::LayerMapping;
use crate::execution::passes::{Order, Pass, Step};
use crate::execution::schedule::{ChipWeights, Constants, StageKind, stages};
use crate::execution::{Execution, Machine, Offload, Prediction, Recompute, Schedule, Zero};
use crate::system::stack::Selective;
use crate::trace::TraceError;
use crate::trace::chakra::{CommGroups, CommType, Metadata, NodeType};
use crate::trace::output::fill;
use crate::workload::language::LanguageModel;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

/// Which ranks a collective is among.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Tensor,
    Context,
    Expert,
    Replicas,
    ExpertReplicas,
    /// First and last stage, of a tied embedding.
    Ends,
}

/// Where a rank stands: in its tensor-parallel group, among the replicas (context inside data), in the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    tensor: u64,
    replica: u64,
    stage: u64,
}

/// A collective; `bytes` as `comm_size` means them.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Comm {
    group: Group,
    kind: CommType,
    bytes: f64,
}

/// Computation of one pass.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Amount {
    flop: f64,
    bytes: f64,
    seconds: f64,
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

/// A block with what each pass computes and says.
#[derive(Debug, Clone, Default)]
struct Block {
    name: &'static str,
    passes: [(Amount, Vec<Comm>); 3],
}

/// Everything that all ranks share.
struct Job<'a> {
    machine: &'a Machine,
    model: &'a LanguageModel,
    e: &'a Execution,
    prediction: &'a Prediction,
    weights: ChipWeights,
    constants: Constants,
    kinds: Vec<StageKind>,
    /// Plain layer, layer with experts, embedding, head.
    blocks: [Block; 4],
    hand_over: u64,
    microbatches: u64,
    names: BTreeMap<(Group, Place), String>,
}

/// Writes the traces and `comm_group.json` into a folder.
///
/// # Errors
/// An execution that has no such trace (offload), more nodes than wanted, or a file that cannot be written.
pub fn write(
    machine: &Machine,
    model: &LanguageModel,
    prediction: &Prediction,
    folder: &Path,
    wanted: &Wanted,
) -> Result<Written, String> {
    let (job, groups) = Job::new(machine, model, prediction, wanted)?;
    let e = &prediction.execution;
    let mut written = Written {
        ranks: e.chips(),
        microbatches: job.microbatches,
        cut_short: job.microbatches < prediction.microbatches,
        groups: groups.0.len() as u64,
        ..Written::default()
    };
    // Computation with six collectives each at most, and messages.
    let a_microbatch = 3 * (model.layers + 2) * 9 + 4 * e.chunks;
    let most = u128::from(e.chips()) / u128::from(e.pp) * u128::from(job.microbatches) * u128::from(a_microbatch);
    if most > u128::from(wanted.most_nodes) {
        return Err(format!(
            "{} ranks may have {most} nodes together, more than {}: write fewer microbatches than {} (--microbatches), or allow more nodes (--max-nodes)",
            e.chips(),
            wanted.most_nodes,
            job.microbatches
        ));
    }
    std::fs::create_dir_all(folder).map_err(|e| TraceError::io(folder, &e).to_string())?;
    for rank in 0..e.chips() {
        let path = folder.join(format!("{}.{rank}.et", wanted.prefix));
        fill(Some(&path), |out| {
            let place = job.place(rank);
            let nodes = Nodes::new(out, &job.metadata(), &mut written)?;
            Sheet { job: &job, place, rank, nodes, tail: Vec::new(), said: Vec::new() }.iteration()
        })
        .map_err(|e: io::Error| TraceError::io(&path, &e).to_string())?;
    }
    groups.write(&folder.join("comm_group.json")).map_err(|e| e.to_string())?;
    Ok(written)
}

impl<'a> Job<'a> {
    fn new(
        machine: &'a Machine,
        model: &'a LanguageModel,
        prediction: &'a Prediction,
        wanted: &Wanted,
    ) -> Result<(Self, CommGroups), String> {
        let e = &prediction.execution;
        if e.offload != Offload::None {
            return Err(format!("offload: {}: traffic to a second tier of memory has no Chakra trace yet", e.offload));
        }
        let microbatches = wanted.microbatches.unwrap_or(prediction.microbatches).min(prediction.microbatches);
        if let Some(refusal) = Order::of(e).refusal(microbatches) {
            return Err(refusal);
        }
        let mut job = Self {
            machine,
            model,
            e,
            prediction,
            weights: ChipWeights::of(model, e.tp, e.ep, e.pp),
            constants: Constants::of(machine, model),
            kinds: stages(model, e.pp),
            blocks: Default::default(),
            hand_over: whole_bytes(prediction.blocks.hand_over),
            microbatches,
            names: BTreeMap::new(),
        };
        job.blocks = job.all_blocks()?;
        let groups = job.name_groups();
        Ok((job, groups))
    }

    fn metadata(&self) -> Metadata {
        let e = self.e;
        let mut attrs = vec![
            text("workload", &self.model.name),
            text("system", &self.machine.name),
            text("schedule", &e.schedule.to_string()),
        ];
        let numbers = [("tp", e.tp), ("pp", e.pp), ("dp", e.dp), ("cp", e.cp), ("ep", e.ep), ("chunks", e.chunks)];
        attrs.extend(numbers.map(|(name, value)| number(name, value)));
        attrs.push(number("microbatches", self.microbatches));
        metadata(attrs)
    }

    fn place(&self, rank: u64) -> Place {
        let replicas = self.e.dp * self.e.cp;
        Place { tensor: rank % self.e.tp, replica: rank / self.e.tp % replicas, stage: rank / (self.e.tp * replicas) }
    }

    fn rank(&self, place: Place) -> u64 {
        place.tensor + self.e.tp * (place.replica + self.e.dp * self.e.cp * place.stage)
    }

    /// The place that names the group which a rank belongs to.
    fn head(&self, group: Group, place: Place) -> (Group, Place) {
        let e = self.e;
        let head = match group {
            Group::Tensor => Place { tensor: 0, ..place },
            Group::Context => Place { replica: place.replica / e.cp * e.cp, ..place },
            Group::Expert => Place { replica: place.replica / e.ep * e.ep, ..place },
            Group::Replicas => Place { replica: 0, ..place },
            Group::ExpertReplicas => Place { replica: place.replica % e.ep, ..place },
            Group::Ends => Place { stage: 0, ..place },
        };
        (group, head)
    }

    fn name_groups(&mut self) -> CommGroups {
        let mut members: BTreeMap<(Group, Place), Vec<u64>> = BTreeMap::new();
        for rank in 0..self.e.chips() {
            let place = self.place(rank);
            use Group::*;
            for group in [Tensor, Context, Expert, Replicas, ExpertReplicas, Ends] {
                let at_an_end = place.stage == 0 || place.stage + 1 == self.e.pp;
                let used = match group {
                    Ends => at_an_end && self.weights.tied > 0.0,
                    // Where there are no experts their replicas are nobody's.
                    Expert | ExpertReplicas => self.model.expert_layers() > 0,
                    _ => true,
                };
                if used {
                    members.entry(self.head(group, place)).or_default().push(rank);
                }
            }
        }
        let mut groups = CommGroups::default();
        for (i, (head, ranks)) in members.into_iter().filter(|(_, ranks)| ranks.len() > 1).enumerate() {
            let name = (i + 1).to_string();
            self.names.insert(head, name.clone());
            groups.0.insert(name, ranks);
        }
        groups
    }

    fn all_blocks(&self) -> Result<[Block; 4], String> {
        let e = self.e;
        let division = Division {
            tp: e.tp,
            cp: e.cp,
            ep: e.ep,
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
        let hidden =
            Comm { group: Group::Tensor, kind: CommType::AllReduce, bytes: hidden_bytes(self.model, &division) };
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
        let put = |list: &mut Vec<Comm>, group, kind, bytes| list.push(Comm { group, kind, bytes });
        if e.cp > 1 {
            let bytes = keys_and_values_bytes(model, division);
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
            for _ in 0..if model.parallel_block { 1 } else { 2 } {
                for (list, gathers) in [(&mut forward, 1), (&mut backward, 2)] {
                    if e.sequence_parallel {
                        (0..gathers).for_each(|_| put(list, Group::Tensor, CommType::AllGather, part));
                        put(list, Group::Tensor, CommType::ReduceScatter, whole);
                    } else {
                        put(list, Group::Tensor, CommType::AllReduce, whole);
                    }
                }
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
        if !crate::plan::agree(all.flop, pass.flop, 1e-9) || !crate::plan::agree(all.bytes, pass.dram_bytes, 1e-9) {
            return Err(format!(
                "internal error, please report it: the passes of a {name} have {:e} FLOP and {:e} bytes, the prediction {:e} and {:e}",
                all.flop, all.bytes, pass.flop, pass.dram_bytes
            ));
        }
        // Host time that the device waits for is the computation's.
        let forward_s = (pass.forward_pass - waited.0).max(0.0);
        let backward_s = (pass.backward_pass - waited.1).max(0.0);
        let split = self.e.schedule == Schedule::ZeroBubble;
        let weight_s = if split { pass.weight.min(backward_s) } else { 0.0 };
        let with = |amount: Amount, seconds: f64| Amount { seconds, ..amount };
        let (back, weight) =
            if split { (back, with(weight, weight_s)) } else { (back.plus(weight), Amount::default()) };
        Ok(Block {
            name,
            passes: [
                (with(ahead, forward_s), forward),
                (with(back, backward_s - weight_s), backward),
                (weight, Vec::new()),
            ],
        })
    }

    fn kind(&self, stage: u64) -> StageKind {
        let of = |k: &&StageKind| (k.first..k.first + k.count as u64).contains(&stage);
        let none = StageKind { first: 0, count: 0.0, plain: 0.0, experts: 0.0, embedding: 0.0, head: 0.0 };
        self.kinds.iter().find(of).copied().unwrap_or(none)
    }

    /// The blocks of one chunk of a stage, in the order of the forward pass: numbers of [`Self::blocks`]. Where embedding and head stand for a layer, their
    /// chunks have the fewer layers.
    fn chunk(&self, stage: u64, chunk: u64) -> Vec<usize> {
        let (kind, chunks) = (self.kind(stage), self.e.chunks.max(1));
        let layers = [vec![0; kind.plain as usize], vec![1; kind.experts as usize]].concat();
        let (each, rest) = (layers.len() as u64 / chunks, layers.len() as u64 % chunks);
        // What is left over goes to the last chunks of the first stage, elsewhere to the first ones.
        let more = |c: u64| if stage == 0 { c + rest >= chunks } else { c < rest };
        let size = |c: u64| each + u64::from(more(c));
        let before: u64 = (0..chunk).map(size).sum();
        let mine = layers.into_iter().skip(before as usize).take(size(chunk) as usize);
        let embedding = (kind.embedding > 0.0 && chunk == 0).then_some(2);
        let head = (kind.head > 0.0 && chunk + 1 == chunks).then_some(3);
        embedding.into_iter().chain(mine).chain(head).collect()
    }

    /// What replicas say in each pass of a chunk (ZeRO 2 and 3), before and behind it.
    fn replica_comms(&self, stage: u64, pass: Pass) -> [Vec<Comm>; 2] {
        let (e, c) = (self.e, &self.constants);
        let last = if e.schedule == Schedule::ZeroBubble { Pass::Weight } else { Pass::Backward };
        let chunks = e.chunks.max(1) as f64;
        let gathered = e.zero == Zero::Weights && pass != Pass::Weight;
        let before =
            if gathered { self.of_weights(stage, CommType::AllGather, c.state.weights / chunks) } else { Vec::new() };
        let reduced = e.zero >= Zero::Gradients && pass == last;
        let behind =
            if reduced { self.of_weights(stage, CommType::ReduceScatter, c.reduced / chunks) } else { Vec::new() };
        [before, behind]
    }

    /// A collective over a stage's weights among their replicas, `bytes` each.
    fn of_weights(&self, stage: u64, kind: CommType, bytes: f64) -> Vec<Comm> {
        let (e, (dense, experts)) = (self.e, self.weights.of_stage(&self.kind(stage)));
        let replicas = e.dp * e.cp;
        let groups = [(Group::Replicas, dense, replicas), (Group::ExpertReplicas, experts, replicas / e.ep)];
        groups
            .into_iter()
            .filter(|(_, weights, ranks)| *ranks > 1 && *weights > 0.0)
            .map(|(group, weights, ranks)| {
                let share = if kind == CommType::AllGather { ranks as f64 } else { 1.0 };
                Comm { group, kind, bytes: weights * bytes / share }
            })
            .collect()
    }
}

/// The trace of one rank while it is written.
struct Sheet<'a, W> {
    job: &'a Job<'a>,
    place: Place,
    rank: u64,
    nodes: Nodes<'a, W>,
    /// What the next computation waits for.
    tail: Vec<u64>,
    /// The last of the collectives beside the computation.
    said: Vec<u64>,
}

impl<W: Write> Sheet<'_, W> {
    fn compute(&mut self, name: &str, amount: &Amount, counts: bool) -> io::Result<()> {
        let flop = amount.flop.round().max(1.0) as u64;
        if counts {
            self.nodes.written.flop += u128::from(flop);
        }
        let tail = std::mem::take(&mut self.tail);
        let micros = (amount.seconds * 1e6).round().max(1.0) as u64;
        let id = self.nodes.compute(name, &tail, (flop, whole_bytes(amount.bytes), micros))?;
        self.tail = vec![id];
        Ok(())
    }

    /// Collectives one after another, behind what came last, or beside what comes next.
    fn talk(&mut self, name: &str, comms: &[Comm], beside: bool) -> io::Result<()> {
        for comm in comms {
            let Some(group) = self.job.names.get(&self.job.head(comm.group, self.place)) else { continue };
            let deps = if beside { [self.tail.as_slice(), &self.said].concat() } else { self.tail.clone() };
            let id = self.nodes.collective(name, &deps, group, comm.kind, whole_bytes(comm.bytes))?;
            *(if beside { &mut self.said } else { &mut self.tail }) = vec![id];
        }
        Ok(())
    }

    /// What ran beside the computation has to have ended.
    fn join(&mut self) {
        self.tail.append(&mut self.said);
    }

    fn iteration(mut self) -> io::Result<()> {
        for step in Order::of(self.job.e).steps(self.place.stage, self.job.microbatches) {
            self.step(&step)?;
        }
        self.update()?;
        self.nodes.finish()
    }

    fn step(&mut self, step: &Step) -> io::Result<()> {
        let (job, stage) = (self.job, self.place.stage);
        let Step { pass, microbatch: m, chunk } = *step;
        let word = pass.word();
        let [from, to] = Order::of(job.e).neighbours(stage, pass, chunk);
        if let Some(peer) = from {
            let tail = std::mem::take(&mut self.tail);
            let id = self.message(NodeType::Recv, peer, m, chunk, pass, &tail)?;
            // The rank's own order, too: the feeder might take a later pass first.
            self.tail = [tail, vec![id]].concat();
        }
        let name = format!("microbatch {m}, {word}");
        let [before, behind] = job.replica_comms(stage, pass);
        self.talk(&name, &before, false)?;
        let mut blocks = job.chunk(stage, chunk);
        if pass != Pass::Forward {
            blocks.reverse();
        }
        for (i, block) in blocks.iter().filter_map(|b| job.blocks.get(*b)).enumerate() {
            let (amount, comms) = &block.passes[pass as usize];
            let name = format!("{name}, {} {i} of chunk {chunk}", block.name);
            self.compute(&name, amount, true)?;
            self.talk(&name, comms, job.e.overlap_tp)?;
        }
        self.join();
        self.talk(&name, &behind, false)?;
        if let Some(peer) = to {
            let tail = self.tail.clone();
            self.message(NodeType::Send, peer, m, chunk, pass, &tail)?;
        }
        Ok(())
    }

    fn message(&mut self, kind: NodeType, stage: u64, m: u64, chunk: u64, pass: Pass, deps: &[u64]) -> io::Result<u64> {
        let peer = self.job.rank(Place { stage, ..self.place });
        let (src, dst) = if kind == NodeType::Send { (self.rank, peer) } else { (peer, self.rank) };
        // A message is known by the piece of the model that it leaves.
        let pp = self.job.e.pp;
        let piece = chunk * pp + self.place.stage;
        let left = match (kind, pass) {
            (NodeType::Send, _) => piece,
            (_, Pass::Forward) => piece.saturating_sub(1),
            _ => piece + 1,
        };
        let pieces = pp * self.job.e.chunks.max(1);
        let tag = (m * pieces + left) * 2 + u64::from(pass != Pass::Forward);
        let what = if pass == Pass::Forward { "activations" } else { "gradients" };
        self.nodes.message(&format!("microbatch {m}, {what}"), deps, kind, (src, dst), tag, self.job.hand_over)
    }

    /// Gradients among the replicas, the optimiser, and its weights.
    fn update(&mut self) -> io::Result<()> {
        let (job, e, stage) = (self.job, self.job.e, self.place.stage);
        let c = &job.constants;
        let reduced = match e.zero {
            Zero::Off => job.of_weights(stage, CommType::AllReduce, c.reduced),
            Zero::Optimizer => job.of_weights(stage, CommType::ReduceScatter, c.reduced),
            Zero::Gradients | Zero::Weights => Vec::new(),
        };
        self.talk("gradients", &reduced, false)?;
        if job.weights.tied > 0.0 && (stage == 0 || stage + 1 == e.pp) {
            let bytes = job.weights.tied * c.reduced;
            self.talk("tied embedding", &[Comm { group: Group::Ends, kind: CommType::AllReduce, bytes }], false)?;
        }
        let (dense, experts) = job.weights.of_stage(&job.kind(stage));
        let replicas = (e.dp * e.cp) as f64;
        let own = match e.zero {
            Zero::Off => dense + experts,
            _ => dense / replicas + experts / (replicas / e.ep as f64),
        };
        let bytes = own * job.machine.stack.optimizer_traffic.0;
        self.compute("optimizer", &Amount { flop: 0.0, bytes, seconds: own * c.optimizer }, false)?;
        let gathered = match e.zero {
            Zero::Optimizer | Zero::Gradients => job.of_weights(stage, CommType::AllGather, c.state.weights),
            Zero::Off | Zero::Weights => Vec::new(),
        };
        self.talk("weights", &gathered, false)
    }
}
