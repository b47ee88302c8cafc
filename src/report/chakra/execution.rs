//! Chakra traces of an execution of a language model, one a rank, in each schedule that executions know.
//!
//! A node of computation stands for one pass of one microbatch through one layer (or embedding, head), or through one partition of it where the blocks are
//! mapped as graphs (`blocks`): `num_ops` are the FLOP of its products on one chip, `tensor_size` its bytes from and to memory, its duration the
//! prediction's seconds without communication that is waited for. Collectives follow it, or hang beside it or what comes next where those overlap. Passes come in the order of the schedule
//! ([`crate::execution::passes`]), with send and receive between stages. What is computed again is part of the backward pass. The ring of context
//! parallelism is written as the gather of keys and values that it amounts to, backward with the scattered sum of their gradients. The iteration ends with
//! the reduction of gradients and the optimiser.
//!
//! Ranks and groups: [`crate::model::ranks`].

use super::blocks::{self, All, Amount, Beside, EMBEDDING, HEAD, Part};
use super::comms::{Comm, whole_bytes};
use super::groups::Groups;
use super::nodes::{Nodes, metadata, number, text};
use super::{Wanted, Written};
use crate::execution::passes::{Order, Pass, Step};
use crate::execution::schedule::{ChipWeights, Constants, StageKind, stages};
use crate::execution::{Execution, Machine, Offload, Prediction, Schedule, Zero};
use crate::model::ranks::{Group, Parallelism, Place, Ranks};
use crate::plan::Plan;
use crate::trace::TraceError;
use crate::trace::chakra::{CommGroups, CommType, Metadata, NodeType};
use crate::trace::output::{fill, no_other_run};
use crate::workload::language::LanguageModel;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

/// A block of the chain, and which of its repetitions.
type Unit = (usize, u64);

/// Everything that all ranks share.
struct Job<'a> {
    machine: &'a Machine,
    model: &'a LanguageModel,
    e: &'a Execution,
    weights: ChipWeights,
    constants: Constants,
    kinds: Vec<StageKind>,
    blocks: All,
    beside: Beside,
    /// The chain cut into pieces: piece `chunk * stages + stage`.
    pieces: Vec<Vec<Unit>>,
    /// Repetitions of each block in all pieces.
    repeats: [u64; 4],
    hand_over: u64,
    microbatches: u64,
    groups: Groups,
}

/// Writes the traces and `comm_group.json` into a folder; `plan` is that of blocks mapped as graphs.
///
/// # Errors
/// An execution that has no such trace (offload), more nodes than wanted, or a file that cannot be written.
pub fn write(
    machine: &Machine,
    model: &LanguageModel,
    prediction: &Prediction,
    plan: Option<&Plan>,
    folder: &Path,
    wanted: &Wanted,
) -> Result<Written, String> {
    let (job, groups) = Job::new(machine, model, prediction, plan, wanted)?;
    let e = &prediction.execution;
    let mut written = Written {
        ranks: e.chips(),
        microbatches: job.microbatches,
        cut_short: job.microbatches < prediction.microbatches,
        groups: groups.0.len() as u64,
        ..Written::default()
    };
    let most = job.most_nodes();
    if most > u128::from(wanted.most_nodes) {
        return Err(format!(
            "{} ranks may have {most} nodes together, more than {}: write fewer microbatches than {} (--microbatches), or allow more nodes (--max-nodes)",
            e.chips(),
            wanted.most_nodes,
            job.microbatches
        ));
    }
    no_other_run(folder, &wanted.prefix, |rank| rank < e.chips(), true).map_err(|e| e.to_string())?;
    std::fs::create_dir_all(folder).map_err(|e| TraceError::io(folder, &e).to_string())?;
    for rank in 0..e.chips() {
        let path = folder.join(format!("{}.{rank}.et", wanted.prefix));
        fill(Some(&path), |out| {
            let place = job.groups.ranks.place(rank);
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
        plan: Option<&Plan>,
        wanted: &Wanted,
    ) -> Result<(Self, CommGroups), String> {
        let e = &prediction.execution;
        if e.offload != Offload::None {
            return Err(format!("offload: {}: traffic to a second tier of memory has no Chakra trace yet", e.offload));
        }
        if model.frozen() {
            return Err("adapters and heads that are trained alone have no Chakra trace yet".into());
        }
        let microbatches = wanted.microbatches.unwrap_or(prediction.microbatches).min(prediction.microbatches);
        if let Some(refusal) = Order::of(e).refusal(microbatches) {
            return Err(refusal);
        }
        let (blocks, beside) = blocks::of(machine, model, prediction, plan)?;
        let kinds = stages(model, e.pp);
        let (weights, order) = (ChipWeights::of(model, e.tp, e.ep, e.pp), Order::of(e));
        let mut used = BTreeSet::from([Group::Tensor, Group::Context, Group::Replicas]);
        // Where there are no experts their replicas are nobody's.
        used.extend([Group::Expert, Group::ExpertReplicas].into_iter().filter(|_| model.expert_layers() > 0));
        used.extend((weights.tied > 0.0).then_some(Group::Ends));
        let said = blocks.iter().flat_map(|block| block.passes.iter().flatten()).flat_map(|part| &part.comms);
        used.extend(said.map(|comm| comm.group));
        let whole = Parallelism { tp: e.tp, cp: e.cp, ep: e.ep, dp: e.dp, pp: e.pp };
        let (groups, written) = Groups::new(Ranks::new(vec![whole]), &used);
        let mut job = Self {
            machine,
            model,
            e,
            weights,
            constants: Constants::of(machine, model),
            kinds,
            blocks,
            beside,
            pieces: Vec::new(),
            repeats: [0; 4],
            hand_over: whole_bytes(prediction.blocks.hand_over),
            microbatches,
            groups,
        };
        for chunk in 0..order.chunks() {
            for stage in 0..order.stages {
                let blocks = job.chunk(stage, chunk);
                let count = |block: usize| {
                    job.repeats[block] += 1;
                    (block, job.repeats[block] - 1)
                };
                let piece = blocks.into_iter().map(count).collect();
                job.pieces.push(piece);
            }
        }
        Ok((job, written))
    }

    /// Nodes of all ranks at most: computation and collectives of each repetition, those of replicas before and behind it, messages, and the iteration's end.
    fn most_nodes(&self) -> u128 {
        let of = |unit: &Unit| -> u64 {
            let parts = self.blocks.get(unit.0).into_iter().flat_map(|block| block.passes.iter().flatten());
            parts.map(|part| 1 + part.comms.iter().map(|c| c.times).sum::<u64>()).sum()
        };
        let all: u128 =
            self.pieces.iter().map(|piece| piece.iter().map(of).sum::<u64>() + 3 * (4 + 2)).map(u128::from).sum();
        let ranks = u128::from(self.e.chips());
        ranks / u128::from(self.e.pp.max(1)) * u128::from(self.microbatches) * all + 8 * ranks
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

    fn kind(&self, stage: u64) -> StageKind {
        let of = |k: &&StageKind| (k.first..k.first + k.count as u64).contains(&stage);
        let none = StageKind { first: 0, count: 0.0, plain: 0.0, experts: 0.0, full: 0.0, embedding: 0.0, head: 0.0 };
        self.kinds.iter().find(of).copied().unwrap_or(none)
    }

    /// The blocks of one chunk of a stage, in the order of the forward pass: numbers of [`All`]. Where embedding and head stand for a layer, their
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
        let embedding = (kind.embedding > 0.0 && chunk == 0).then_some(EMBEDDING);
        let head = (kind.head > 0.0 && chunk + 1 == chunks).then_some(HEAD);
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
        let among = [(Group::Replicas, dense, replicas), (Group::ExpertReplicas, experts, replicas / e.ep)];
        among
            .into_iter()
            .filter(|(_, weights, ranks)| *ranks > 1 && *weights > 0.0)
            .map(|(group, weights, ranks)| {
                let share = if kind == CommType::AllGather { ranks as f64 } else { 1.0 };
                Comm::new(group, kind, weights * bytes / share)
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

    /// Collectives one after another, behind `deps` and each other; what comes behind them waits for the nodes that are given back.
    fn talk<'c>(
        &mut self,
        name: &str,
        comms: impl IntoIterator<Item = &'c Comm>,
        mut deps: Vec<u64>,
    ) -> io::Result<Vec<u64>> {
        for comm in comms {
            let Some(group) = self.job.groups.name(comm.group, self.place) else { continue };
            for _ in 0..comm.times {
                deps = vec![self.nodes.collective(name, &deps, group, comm.kind, comm.bytes)?];
            }
        }
        Ok(deps)
    }

    /// The same behind what came last.
    fn say(&mut self, name: &str, comms: &[Comm]) -> io::Result<()> {
        let deps = std::mem::take(&mut self.tail);
        self.tail = self.talk(name, comms, deps)?;
        Ok(())
    }

    /// A part of a repetition of a block.
    fn part(&mut self, name: &str, part: &Part, (block, unit): Unit) -> io::Result<()> {
        let repeats = self.job.repeats[block];
        let here = || part.comms.iter().filter(|c| c.is_in(unit, repeats));
        let before = self.tail.clone();
        if let Some(work) = &part.work {
            self.compute(name, work, true)?;
        }
        match self.job.beside {
            Beside::Own if part.work.is_some() && here().next().is_some() => {
                let last = self.talk(name, here(), before.clone())?;
                // No collective among one rank.
                if last != before {
                    self.tail.extend(last);
                }
            }
            Beside::Next if part.work.is_some() => {
                let known = std::mem::take(&mut self.said);
                let deps = [self.tail.as_slice(), &known].concat();
                let last = self.talk(name, here(), deps.clone())?;
                self.said = if last == deps { known } else { last };
            }
            _ => {
                let deps = std::mem::take(&mut self.tail);
                self.tail = self.talk(name, here(), deps)?;
            }
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
        self.say(&name, &before)?;
        let piece = job.pieces.get((chunk * Order::of(job.e).stages + stage) as usize).map_or(&[][..], Vec::as_slice);
        let units: Vec<Unit> =
            if pass == Pass::Forward { piece.to_vec() } else { piece.iter().rev().copied().collect() };
        for (i, unit) in units.into_iter().enumerate() {
            let Some(block) = job.blocks.get(unit.0) else { continue };
            let name = format!("{name}, {} {i} of chunk {chunk}", block.name);
            for part in &block.passes[pass as usize] {
                match &part.name {
                    Some(own) => self.part(&format!("{name}, {own}"), part, unit)?,
                    None => self.part(&name, part, unit)?,
                }
            }
        }
        self.join();
        self.say(&name, &behind)?;
        if let Some(peer) = to {
            let tail = self.tail.clone();
            self.message(NodeType::Send, peer, m, chunk, pass, &tail)?;
        }
        Ok(())
    }

    fn message(&mut self, kind: NodeType, stage: u64, m: u64, chunk: u64, pass: Pass, deps: &[u64]) -> io::Result<u64> {
        let peer = self.job.groups.ranks.rank(Place { stage, ..self.place });
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
        self.say("gradients", &reduced)?;
        if job.weights.tied > 0.0 && (stage == 0 || stage + 1 == e.pp) {
            let bytes = job.weights.tied * c.reduced;
            self.say("tied embedding", &[Comm::new(Group::Ends, CommType::AllReduce, bytes)])?;
        }
        let (dense, experts) = job.weights.of_stage(&job.kind(stage));
        let replicas = (e.dp * e.cp) as f64;
        let own = match e.zero {
            Zero::Off => dense + experts,
            _ => dense / replicas + experts / (replicas / e.ep as f64),
        };
        let bytes = own * c.optimizer_bytes;
        self.compute("optimizer", &Amount { flop: 0.0, bytes, seconds: own * c.optimizer }, false)?;
        let gathered = match e.zero {
            Zero::Optimizer | Zero::Gradients => job.of_weights(stage, CommType::AllGather, c.state.weights),
            Zero::Off | Zero::Weights => Vec::new(),
        };
        self.say("weights", &gathered)
    }
}
