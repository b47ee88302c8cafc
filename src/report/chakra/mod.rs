//! Chakra traces of a plan, one a rank, so that ASTRA-sim and others can simulate what flowspace found.
//!
//! A node of computation stands for one partition (or one kernel, [`Granularity`]) of one layer and one microbatch: `num_ops` are the FLOP that
//! one chip computes in it, `tensor_size` the bytes it moves in DRAM, its duration the plan's seconds without network. Collectives hang beside the
//! computation where the model overlaps them, before or behind it where it does not. Stages pass activations and gradients with send and receive, in the
//! order of a schedule ([`crate::execution::passes`]): the plan's own, 1F1B, or another one over the same division of the work. Interleaved, a stage's repetitions
//! are cut into chunks (`chunks`); under zero bubble kernels that make gradients of weights are a pass of their own. The iteration ends with the reduction of
//! gradients and the optimiser's pass over DRAM (one operation: it is all memory).
//!
//! Ranks are the chips as [`crate::model::ranks`] numbers them, the network's first dimension fastest, as ASTRA-sim does.

mod blocks;
mod chunks;
mod comms;
pub mod execution;
mod groups;
mod nodes;
mod pieces;

use crate::execution::Schedule;
use crate::execution::passes::{Order, Pass, Step};
use crate::graph::Phase;
use crate::model::compute::{gradient_bytes, weight_bytes};
use crate::model::memory::optimizer_bytes_per_weight;
use crate::model::ranks::{Group, Place, Ranks};
use crate::model::stages::of_blocks;
use crate::plan::Plan;
use crate::system::options::{Charge, GradientReduction, Layouts, Overlap, Pipeline};
use crate::trace::TraceError;
use crate::trace::chakra::{CommGroups, CommType, NodeType};
use crate::trace::output::no_other_run;
use comms::{Comm, Crossing};
use groups::Groups;
use nodes::{Nodes, metadata, number, text};
use pieces::Piece;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// What one node of computation stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Granularity {
    /// A partition: what runs on the chip at the same time.
    #[default]
    Partition,
    /// A kernel. A partition's kernels follow each other in the order of the graph; its FLOP, bytes and microseconds are shared out among them.
    Kernel,
}

/// What to write.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Files are `PREFIX.<rank>.et`.
    pub prefix: String,
    /// Microbatches of an iteration, if not all.
    pub microbatches: Option<u64>,
    /// Nodes of all ranks at most.
    pub most_nodes: u64,
    /// What a node of computation stands for.
    pub granularity: Granularity,
    /// Order of a plan's microbatches; an execution has its own.
    pub schedule: Schedule,
    /// Pieces that an interleaved schedule cuts a stage of a plan into.
    pub chunks: u64,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            prefix: "trace".into(),
            microbatches: None,
            most_nodes: 50_000_000,
            granularity: Granularity::Partition,
            schedule: Schedule::OneForwardOneBackward,
            chunks: 1,
        }
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize)]
pub struct Written {
    /// Ranks, which is files.
    pub ranks: u64,
    /// Nodes of all ranks.
    pub nodes: u64,
    /// Microbatches of a replica.
    pub microbatches: u64,
    /// Whether these are fewer than the plan's.
    pub cut_short: bool,
    /// Groups with more than one rank.
    pub groups: u64,
    /// FLOP of all ranks (`num_ops`, the optimiser's single operations left out).
    pub flop: u128,
    /// Bytes of all ranks by kind of communication (`comm_size`).
    pub bytes: BTreeMap<String, u128>,
}

/// What one partition does in one pass.
struct Part {
    pass: Pass,
    block: usize,
    pieces: Vec<Piece>,
}

impl Part {
    fn comms(&self) -> impl Iterator<Item = &Comm> {
        self.pieces.iter().flat_map(|piece| piece.before.iter().chain(&piece.after))
    }
}

/// Everything that all ranks share.
struct Job<'a> {
    plan: &'a Plan,
    parts: Vec<Part>,
    /// Names of the blocks, in the order of the forward pass.
    blocks: Vec<String>,
    order: Order,
    /// Repetitions of each block in each piece of the chain: a stage, or one of its chunks.
    units: Vec<Vec<u64>>,
    /// What crosses from each piece to the next.
    crossings: Vec<Crossing>,
    microbatches: u64,
    groups: Groups,
}

/// Writes the traces and `comm_group.json` into a folder.
///
/// # Errors
/// A plan that has no such trace (DFModel's schedules, process grids), more nodes than wanted, or a file that cannot be written.
pub fn write(plan: &Plan, folder: &Path, wanted: &Wanted) -> Result<Written, String> {
    let (job, groups) = Job::new(plan, wanted)?;
    let nodes = job.nodes();
    if nodes > u128::from(wanted.most_nodes) {
        return Err(format!(
            "{} ranks would have {nodes} nodes together, more than {}: write fewer microbatches than {} (--microbatches), or allow more nodes (--max-nodes)",
            job.groups.ranks.count(),
            wanted.most_nodes,
            job.microbatches
        ));
    }
    let ranks = job.groups.ranks.count();
    no_other_run(folder, &wanted.prefix, |rank| rank < ranks, true).map_err(|e| e.to_string())?;
    std::fs::create_dir_all(folder).map_err(|e| TraceError::io(folder, &e).to_string())?;
    let all = u64::try_from(plan.figures.iteration.microbatches as i64).unwrap_or(0);
    let mut written = Written {
        ranks: job.groups.ranks.count(),
        microbatches: job.microbatches,
        cut_short: job.microbatches < all,
        groups: groups.0.len() as u64,
        ..Written::default()
    };
    for rank in 0..job.groups.ranks.count() {
        let path = folder.join(format!("{}.{rank}.et", wanted.prefix));
        let fault = |e: std::io::Error| TraceError::io(&path, &e).to_string();
        let file = BufWriter::with_capacity(1 << 18, File::create(&path).map_err(fault)?);
        let mut sheet = Sheet::new(&job, rank, file, &mut written).map_err(fault)?;
        sheet.iteration().map_err(fault)?;
        sheet.nodes.finish().map_err(fault)?;
    }
    groups.write(&folder.join("comm_group.json")).map_err(|e| e.to_string())?;
    Ok(written)
}

impl<'a> Job<'a> {
    fn new(plan: &'a Plan, wanted: &Wanted) -> Result<(Self, CommGroups), String> {
        let options = &plan.system.model;
        if options.pipeline != Pipeline::OneForwardOneBackward || options.layouts != Layouts::Flowspace {
            return Err(
                "traces follow flowspace's own model (1F1B): this plan uses DFModel's schedule or layouts (the system's model: flowspace \
                 instead of dfmodel makes one that has traces)"
                    .into(),
            );
        }
        if plan.workload.is_spread() {
            return Err("a workload on a process grid has no Chakra trace yet".into());
        }
        let comms = comms::of_partitions(plan)?;
        let w = &plan.workload;
        let mut parts = Vec::new();
        for (p, (figures, comms)) in plan.figures.partitions.iter().zip(comms).enumerate() {
            let inside = plan.decisions.partition.iter().position(|q| *q == p).and_then(|k| w.kernels.get(k));
            let seconds = match plan.system.overlap() {
                Overlap::None => figures.compute_s + figures.dram_s,
                Overlap::Full | Overlap::ComputeMemory => figures.compute_s.max(figures.dram_s),
            };
            if !(figures.flop < 9e18 && figures.dram_bytes < 9e18) {
                return Err(format!("partition {p}: more than 2^63 FLOP or bytes"));
            }
            let whole = Piece {
                name: format!("partition {p}"),
                flop: figures.flop.round() as u64,
                dram_bytes: comms::whole_bytes(figures.dram_bytes),
                micros: ((seconds + figures.filling_s + figures.overhead_s) * 1e6).round().max(1.0) as u64,
                before: Vec::new(),
                after: comms.iter().map(|paid| paid.comm).collect(),
                makes_weight_gradient: false,
            };
            let block = inside.map_or(0, |k| k.block);
            let forward = inside.is_some_and(|k| k.phase == Phase::Forward);
            let pass = if forward { Pass::Forward } else { Pass::Backward };
            let split = wanted.schedule == Schedule::ZeroBubble && !forward;
            let by_kernel = wanted.granularity == Granularity::Kernel;
            if !split {
                let pieces = if by_kernel { pieces::of_kernels(plan, p, &whole, &comms)? } else { vec![whole] };
                parts.push(Part { pass, block, pieces });
                continue;
            }
            let (weights, rest): (Vec<Piece>, Vec<Piece>) =
                pieces::of_kernels(plan, p, &whole, &comms)?.into_iter().partition(|piece| piece.makes_weight_gradient);
            for (pass, mut pieces) in [(pass, rest), (Pass::Weight, weights)] {
                if !by_kernel {
                    pieces = Piece::sum(&whole.name, pieces).into_iter().collect();
                }
                if !pieces.is_empty() {
                    parts.push(Part { pass, block, pieces });
                }
            }
        }
        let repeats: Vec<u64> = (0..w.block_count()).map(|b| w.repeats(b)).collect();
        let order = Order { schedule: wanted.schedule, stages: plan.figures.pp, chunks: wanted.chunks };
        let blocks: Vec<String> = plan.blocks().into_iter().map(|(name, ..)| name).collect();
        let units = chunks::of_stages(of_blocks(&plan.decisions.stages, &repeats), &repeats, &blocks, &order)?;
        let ends = |stage: &Vec<u64>| {
            let mut there = stage.iter().enumerate().filter(|(_, units)| **units > 0).map(|(block, _)| block);
            let first = there.next().unwrap_or_default();
            (first, there.next_back().unwrap_or(first))
        };
        let pairs = units.iter().zip(units.iter().skip(1));
        let crossings = pairs.map(|(one, next)| Crossing::of(plan, ends(one).1, ends(next).0)).collect();
        let all = plan.figures.iteration.microbatches.max(1.0) as u64;
        let microbatches = wanted.microbatches.unwrap_or(all).min(all);
        let refusals = [order.refusal(microbatches), chunks::refusal(plan, &order, all)];
        if let Some(refusal) = refusals.into_iter().flatten().next() {
            return Err(refusal);
        }
        let ranks = Ranks::new(plan.decisions.uses.iter().map(crate::plan::DimensionUse::parallelism).collect());
        let mut used = BTreeSet::from([Group::Tensor, Group::Replicas]);
        used.extend(parts.iter().flat_map(Part::comms).map(|c| c.group));
        let (groups, written) = Groups::new(ranks, &used);
        Ok((Self { plan, parts, blocks, order, units, crossings, microbatches, groups }, written))
    }

    /// The piece that a chunk of a stage is.
    fn piece(&self, stage: u64, chunk: u64) -> usize {
        (chunk * self.order.stages + stage) as usize
    }

    /// Repetitions of each block in a piece.
    fn units(&self, piece: usize) -> &[u64] {
        self.units.get(piece).map_or(&[], Vec::as_slice)
    }

    /// Repetitions of a block in a stage.
    fn units_of_stage(&self, stage: u64, block: usize) -> u64 {
        (0..self.order.chunks()).filter_map(|c| self.units(self.piece(stage, c)).get(block)).sum()
    }

    /// What crosses between a piece and the one before it.
    fn before(&self, piece: usize) -> Option<&Crossing> {
        self.crossings.get(piece.checked_sub(1)?)
    }

    /// Whether a collective belongs to a repetition of a block in a piece, counted from the first one there.
    fn has(&self, comm: &Comm, piece: usize, block: usize, unit: u64) -> bool {
        let of = |pieces: &[Vec<u64>]| pieces.iter().filter_map(|p| p.get(block)).sum::<u64>();
        let at = of(self.units.get(..piece).unwrap_or_default()) + unit;
        comm.is_in(at, of(&self.units))
    }

    /// Nodes of all ranks.
    fn nodes(&self) -> u128 {
        let of_piece = |piece: usize, units: &Vec<u64>| -> u128 {
            let of_unit = |block: usize, unit: u64| -> u128 {
                let parts = self.parts.iter().filter(|p| p.block == block);
                parts
                    .map(|p| {
                        let comms = p.comms().filter(|c| self.has(c, piece, block, unit));
                        p.pieces.len() as u128 + comms.map(|c| u128::from(c.times)).sum::<u128>()
                    })
                    .sum()
            };
            // Those between the ends are alike.
            let of_block = |(block, n): (usize, &u64)| match *n {
                0 => 0,
                1 => of_unit(block, 0),
                n => of_unit(block, 0) + of_unit(block, n - 1) + u128::from(n - 2) * self.plain(block),
            };
            let sides = [self.before(piece), self.before(piece + 1)];
            let messages: usize = sides.into_iter().flatten().map(|c| c.forward.len() + c.backward.len()).sum();
            units.iter().enumerate().map(of_block).sum::<u128>() + messages as u128
        };
        let pieces: Vec<u128> = self.units.iter().enumerate().map(|(piece, units)| of_piece(piece, units)).collect();
        // All stages have as many ranks.
        let (ranks, all) = (u128::from(self.groups.ranks.count()), pieces.iter().sum::<u128>());
        ranks / u128::from(self.order.stages.max(1)) * u128::from(self.microbatches) * all + 2 * ranks
    }

    /// Nodes of a repetition of a block that is next to no other block.
    fn plain(&self, block: usize) -> u128 {
        let of = |p: &Part| {
            p.pieces.len() as u128 + p.comms().filter(|c| c.only.is_none()).map(|c| u128::from(c.times)).sum::<u128>()
        };
        self.parts.iter().filter(|p| p.block == block).map(of).sum()
    }
}

/// The trace of one rank while it is written.
struct Sheet<'a, W> {
    job: &'a Job<'a>,
    rank: u64,
    place: Place,
    nodes: Nodes<'a, W>,
    /// What the next node waits for.
    tail: Vec<u64>,
}

impl<'a, W: Write> Sheet<'a, W> {
    fn new(job: &'a Job<'a>, rank: u64, out: W, written: &'a mut Written) -> std::io::Result<Self> {
        let (plan, f) = (job.plan, &job.plan.figures);
        let metadata = metadata(vec![
            text("workload", &plan.workload.name),
            text("system", &plan.system.name),
            number("tp", f.tp),
            number("pp", f.pp),
            number("dp", f.dp),
            text("schedule", job.order.schedule.word()),
            number("chunks", job.order.chunks()),
            number("microbatches", job.microbatches),
        ]);
        let place = job.groups.ranks.place(rank);
        Ok(Self { job, rank, place, nodes: Nodes::new(out, &metadata, written)?, tail: Vec::new() })
    }

    fn compute(&mut self, name: &str, flop: u64, bytes: u64, micros: u64) -> std::io::Result<u64> {
        let tail = std::mem::take(&mut self.tail);
        self.nodes.compute(name, &tail, (flop, bytes, micros))
    }

    fn collective(&mut self, name: &str, comm: &Comm, deps: &[u64]) -> std::io::Result<Option<u64>> {
        let Some(group) = self.job.groups.name(comm.group, self.place) else { return Ok(None) };
        self.nodes.collective(name, deps, group, comm.kind, comm.bytes).map(Some)
    }

    fn iteration(&mut self) -> std::io::Result<()> {
        let job = self.job;
        let backward = job.parts.iter().any(|p| p.pass != Pass::Forward);
        for step in job.order.steps(self.place.stage, job.microbatches) {
            if step.pass == Pass::Forward || backward {
                self.step(&step)?;
            }
        }
        self.update()
    }

    /// One microbatch through the layers of a piece, in one pass.
    fn step(&mut self, step: &Step) -> std::io::Result<()> {
        let (job, stage) = (self.job, self.place.stage);
        let Step { pass, microbatch: m, chunk } = *step;
        let forward = pass == Pass::Forward;
        let piece = job.piece(stage, chunk);
        let [from, to] = job.order.neighbours(stage, pass, chunk);
        let sides = if forward { [piece, piece + 1] } else { [piece + 1, piece] };
        let [before, behind] = sides.map(|side| {
            job.before(side).map_or(&[][..], |c| if forward { c.forward.as_slice() } else { c.backward.as_slice() })
        });
        if let Some(peer) = from {
            let tail = std::mem::take(&mut self.tail);
            // A message is known by the chunk that it leaves.
            let left = if forward { piece - 1 } else { piece + 1 } as u64 / job.order.stages;
            for (i, size) in before.iter().enumerate() {
                let id = self.message(NodeType::Recv, peer, (m, left, forward), i, *size, &tail)?;
                self.tail.push(id);
            }
            // Nothing crosses: the rank's own order is left.
            if self.tail.is_empty() {
                self.tail = tail;
            }
        }
        let mut blocks: Vec<(usize, u64)> = job.units(piece).iter().copied().enumerate().collect();
        if !forward {
            blocks.reverse();
        }
        let of_chunk = if job.order.chunks() > 1 { format!(" of chunk {chunk}") } else { String::new() };
        for (block, units) in blocks {
            let name = job.blocks.get(block).map_or("layer", String::as_str);
            for at in 0..units {
                let unit = if forward { at } else { units - 1 - at };
                for part in job.parts.iter().filter(|part| part.pass == pass && part.block == block) {
                    let name = format!("microbatch {m}, {name} {unit}{of_chunk}, {}", pass.word());
                    self.partition(part, (piece, unit), &name)?;
                }
            }
        }
        if let Some(peer) = to {
            let tail = self.tail.clone();
            for (i, size) in behind.iter().enumerate() {
                self.message(NodeType::Send, peer, (m, chunk, forward), i, *size, &tail)?;
            }
        }
        Ok(())
    }

    /// One partition of one layer: its computation piece by piece, its collectives one after another, beside the computation or between it.
    fn partition(&mut self, part: &Part, (of, unit): (usize, u64), prefix: &str) -> std::io::Result<()> {
        let job = self.job;
        let here = |comms: &[Comm]| -> Vec<Comm> {
            comms.iter().filter(|c| job.has(c, of, part.block, unit)).copied().collect()
        };
        let beside = self.job.plan.system.overlap() == Overlap::Full;
        let mut chain = self.tail.clone();
        let mut heard = false;
        for piece in &part.pieces {
            let name = format!("{prefix}, {}", piece.name);
            let (before, after) = (here(&piece.before), here(&piece.after));
            if !beside {
                self.talk(&name, &before, None)?;
            }
            let node = self.compute(&name, piece.flop, piece.dram_bytes, piece.micros)?;
            self.nodes.written.flop += u128::from(piece.flop.max(1));
            self.tail = vec![node];
            if beside {
                for comms in [&before, &after] {
                    heard |= self.talk(&name, comms, Some(&mut chain))?;
                }
            } else {
                self.talk(&name, &after, None)?;
            }
        }
        if heard {
            self.tail.append(&mut chain);
        }
        Ok(())
    }

    /// Collectives one after another, behind the nodes of `chain` or, without one, behind what came last; whether there were any.
    fn talk(&mut self, name: &str, comms: &[Comm], chain: Option<&mut Vec<u64>>) -> std::io::Result<bool> {
        let mut at = chain.as_deref().unwrap_or(&self.tail).clone();
        let mut any = false;
        for comm in comms {
            for _ in 0..comm.times {
                if let Some(id) = self.collective(name, comm, &at)? {
                    at = vec![id];
                    any = true;
                }
            }
        }
        if any {
            match chain {
                Some(chain) => *chain = at,
                None => self.tail = at,
            }
        }
        Ok(any)
    }

    /// `leaves`: microbatch, the chunk that it leaves, whether forward.
    fn message(
        &mut self,
        kind: NodeType,
        stage: u64,
        leaves: (u64, u64, bool),
        i: usize,
        size: u64,
        deps: &[u64],
    ) -> std::io::Result<u64> {
        let (own, peer) = (self.rank, self.job.groups.ranks.rank(Place { stage, ..self.place }));
        let (src, dst) = if kind == NodeType::Send { (own, peer) } else { (peer, own) };
        let most = |c: &Crossing| c.forward.len().max(c.backward.len());
        let messages = self.job.crossings.iter().map(most).max().unwrap_or_default() as u64;
        // One tag a microbatch, chunk, direction and tensor.
        let (m, chunk, forward) = leaves;
        let tag = ((m * self.job.order.chunks() + chunk) * 2 + u64::from(!forward)) * messages + i as u64;
        let way = if forward { "activations" } else { "gradients" };
        self.nodes.message(&format!("microbatch {m}, {way}"), deps, kind, (src, dst), tag, size)
    }

    /// Gradients among the replicas, and the optimiser.
    fn update(&mut self) -> std::io::Result<()> {
        let plan = self.job.plan;
        let (w, options, f) = (&plan.workload, &plan.system.model, &plan.figures);
        if !w.training {
            return Ok(());
        }
        let (job, stage) = (self.job, self.place.stage);
        let times = |block: usize| job.units_of_stage(stage, block) as f64;
        let kernels = || w.kernels.iter().zip(&plan.decisions.sharding);
        let gradients: f64 = kernels().map(|(k, s)| gradient_bytes(k, *s, f.tp, w.word_bytes) * times(k.block)).sum();
        if options.gradient_reduction == GradientReduction::PerIteration && gradients > 0.0 && f.dp > 1 {
            let comm = Comm::new(Group::Replicas, CommType::AllReduce, gradients);
            let tail = self.tail.clone();
            if let Some(id) = self.collective("gradients", &comm, &tail)? {
                self.tail = vec![id];
            }
        }
        if options.optimizer_step == Charge::Charged {
            let weights: f64 = kernels()
                .filter(|(k, _)| k.owns_weight())
                .map(|(k, s)| weight_bytes(k, *s, f.tp, w.word_bytes) / w.word_bytes * times(k.block))
                .sum();
            let bytes = weights * (2.0 * w.word_bytes + 2.0 * optimizer_bytes_per_weight(w.word_bytes));
            if bytes >= 1.0 {
                let seconds =
                    f.stages.get(self.place.stage as usize).map_or(f.iteration.optimizer_s, |s| s.optimizer_s);
                let micros = (seconds * 1e6).round().max(1.0) as u64;
                let id = self.compute("optimizer", 1, comms::whole_bytes(bytes), micros)?;
                self.tail = vec![id];
            }
        }
        Ok(())
    }
}
