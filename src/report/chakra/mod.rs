//! Chakra traces of a plan, one a rank, so that ASTRA-sim and others can simulate what flowspace found.
//!
//! A node of computation stands for one partition (or one kernel, [`Granularity`]) of one layer and one microbatch: `num_ops` are the FLOP that
//! one chip computes in it, `tensor_size` the bytes it moves in DRAM, its duration the plan's seconds without network. Collectives hang beside the
//! computation where the model overlaps them, before or behind it where it does not. Stages run 1F1B and pass activations and gradients with send and receive. The iteration
//! ends with the reduction of gradients and the optimiser's pass over DRAM (one operation: it is all memory).
//!
//! Rank numbers count the chips with the network's first dimension fastest, as ASTRA-sim does; inside a dimension tensor parallelism is fastest,
//! then pipeline, then data parallelism.

mod comms;
pub mod execution;
mod pieces;

use crate::graph::{Phase, Scope};
use crate::model::compute::{gradient_bytes, weight_bytes};
use crate::model::memory::optimizer_bytes_per_weight;
use crate::plan::Plan;
use crate::system::options::{Charge, GradientReduction, Layouts, Overlap, Pipeline};
use crate::trace::TraceError;
use crate::trace::chakra::{CommGroups, CommType, Metadata, Node, NodeType, Scalar, VERSION, Writer, value::Attr};
use comms::Comm;
use pieces::Piece;
use std::collections::BTreeMap;
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
}

impl Default for Wanted {
    fn default() -> Self {
        Self { prefix: "trace".into(), microbatches: None, most_nodes: 50_000_000, granularity: Granularity::Partition }
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

/// One partition of one pass.
struct Part {
    forward: bool,
    pieces: Vec<Piece>,
}

impl Part {
    fn comms(&self) -> impl Iterator<Item = &Comm> {
        self.pieces.iter().flat_map(|piece| piece.before.iter().chain(&piece.after))
    }
}

/// Where a rank stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    tensor: u64,
    stage: u64,
    data: u64,
}

/// Everything that all ranks share.
struct Job<'a> {
    plan: &'a Plan,
    parts: Vec<Part>,
    forward_bytes: Vec<u64>,
    backward_bytes: Vec<u64>,
    microbatches: u64,
    places: Vec<Place>,
    ranks: BTreeMap<Place, u64>,
    /// Group of a scope and a place, where it has more than one rank.
    names: BTreeMap<(u8, Place), String>,
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
            "{} ranks would have {nodes} nodes together, more than {}: write fewer microbatches than {}, or allow more nodes",
            job.places.len(),
            wanted.most_nodes,
            job.microbatches
        ));
    }
    std::fs::create_dir_all(folder).map_err(|e| TraceError::io(folder, &e).to_string())?;
    let all = u64::try_from(plan.figures.iteration.microbatches as i64).unwrap_or(0);
    let mut written = Written {
        ranks: job.places.len() as u64,
        microbatches: job.microbatches,
        cut_short: job.microbatches < all,
        groups: groups.0.len() as u64,
        ..Written::default()
    };
    for (rank, place) in job.places.iter().enumerate() {
        let path = folder.join(format!("{}.{rank}.et", wanted.prefix));
        let fault = |e: std::io::Error| TraceError::io(&path, &e).to_string();
        let file = BufWriter::with_capacity(1 << 18, File::create(&path).map_err(fault)?);
        let mut sheet = Sheet::new(&job, *place, file, &mut written).map_err(fault)?;
        sheet.iteration().map_err(fault)?;
        sheet.writer.finish().flush().map_err(fault)?;
    }
    groups.write(&folder.join("comm_group.json")).map_err(|e| e.to_string())?;
    Ok(written)
}

impl<'a> Job<'a> {
    fn new(plan: &'a Plan, wanted: &Wanted) -> Result<(Self, CommGroups), String> {
        let options = &plan.system.model;
        if options.pipeline != Pipeline::OneForwardOneBackward || options.layouts != Layouts::Flowspace {
            return Err(
                "traces follow flowspace's own model (1F1B): this plan uses DFModel's schedule or layouts".into()
            );
        }
        if plan.workload.is_chain() {
            return Err("a workload of several blocks has no Chakra trace yet".into());
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
            };
            let pieces = match wanted.granularity {
                Granularity::Partition => vec![whole],
                Granularity::Kernel => pieces::of_kernels(plan, p, &whole, &comms)?,
            };
            parts.push(Part { forward: inside.is_some_and(|k| k.phase == Phase::Forward), pieces });
        }
        let (forward_bytes, backward_bytes) = comms::hand_overs(plan);
        let all = plan.figures.iteration.microbatches.max(1.0) as u64;
        let mut job = Self {
            plan,
            parts,
            forward_bytes,
            backward_bytes,
            microbatches: wanted.microbatches.unwrap_or(all).min(all),
            places: Vec::new(),
            ranks: BTreeMap::new(),
            names: BTreeMap::new(),
        };
        job.place_ranks();
        let groups = job.name_groups();
        Ok((job, groups))
    }

    /// Mixed radix over the network's dimensions, the first fastest.
    fn place_ranks(&mut self) {
        let chips: u64 = self.plan.decisions.uses.iter().map(crate::plan::DimensionUse::chips).product();
        for rank in 0..chips {
            let (mut rest, mut place) = (rank, Place { tensor: 0, stage: 0, data: 0 });
            let (mut t, mut s, mut d) = (1, 1, 1);
            for u in &self.plan.decisions.uses {
                let c = rest % u.chips();
                rest /= u.chips();
                place.tensor += t * (c % u.tp);
                place.stage += s * (c / u.tp % u.pp);
                place.data += d * (c / (u.tp * u.pp));
                t *= u.tp;
                s *= u.pp;
                d *= u.dp;
            }
            self.places.push(place);
            self.ranks.insert(place, rank);
        }
    }

    /// The place that names the group of a scope which a rank belongs to.
    fn head(scope: Scope, place: Place) -> Option<(u8, Place)> {
        match scope {
            Scope::Tensor => Some((0, Place { tensor: 0, ..place })),
            Scope::Data => Some((1, Place { data: 0, ..place })),
            Scope::All => Some((2, Place { tensor: 0, data: 0, ..place })),
            Scope::GridRow | Scope::GridColumn => None,
        }
    }

    fn name_groups(&mut self) -> CommGroups {
        let all_used = self.parts.iter().flat_map(Part::comms).any(|c| c.scope == Scope::All);
        let scopes = [
            (Scope::Tensor, self.plan.figures.tp > 1),
            (Scope::Data, self.plan.figures.dp > 1),
            (Scope::All, all_used),
        ];
        let mut members: BTreeMap<(u8, Place), Vec<u64>> = BTreeMap::new();
        for (scope, _) in scopes.iter().filter(|(_, used)| *used) {
            for (rank, place) in self.places.iter().enumerate() {
                if let Some(head) = Self::head(*scope, *place) {
                    members.entry(head).or_default().push(rank as u64);
                }
            }
        }
        let mut groups = CommGroups::default();
        for (i, (head, ranks)) in members.into_iter().enumerate() {
            let name = (i + 1).to_string();
            self.names.insert(head, name.clone());
            groups.0.insert(name, ranks);
        }
        groups
    }

    fn layers(&self, stage: u64) -> u64 {
        // The stages of DFModel's schedules are equal: of those the last lack what does not divide.
        let before: u64 = self.plan.decisions.stages.iter().take(stage as usize).sum();
        let here = self.plan.decisions.stages.get(stage as usize).copied().unwrap_or(0);
        here.min(self.plan.workload.repeat.saturating_sub(before))
    }

    /// Nodes of all ranks.
    fn nodes(&self) -> u128 {
        let per_layer: u128 = self
            .parts
            .iter()
            .map(|p| p.pieces.len() as u128 + p.comms().map(|c| u128::from(c.times)).sum::<u128>())
            .sum();
        let handed = (self.forward_bytes.len() + self.backward_bytes.len()) as u128;
        let one = |place: &Place| {
            u128::from(self.microbatches) * (u128::from(self.layers(place.stage)) * per_layer + 2 * handed) + 2
        };
        self.places.iter().map(one).sum()
    }
}

/// The trace of one rank while it is written.
struct Sheet<'a, W> {
    job: &'a Job<'a>,
    place: Place,
    writer: Writer<W>,
    written: &'a mut Written,
    id: u64,
    /// What the next node waits for.
    tail: Vec<u64>,
}

impl<'a, W: Write> Sheet<'a, W> {
    fn new(job: &'a Job<'a>, place: Place, out: W, written: &'a mut Written) -> std::io::Result<Self> {
        let text = |name: &str, value: &str| Attr::new(name, Scalar::String(value.into()));
        let number = |name: &str, value: u64| Attr::new(name, Scalar::Int64(i64::try_from(value).unwrap_or(i64::MAX)));
        let metadata = Metadata {
            version: VERSION.into(),
            attrs: vec![
                text("generator", concat!("flowspace ", env!("CARGO_PKG_VERSION"))),
                text("workload", &job.plan.workload.name),
                text("system", &job.plan.system.name),
                number("tp", job.plan.figures.tp),
                number("pp", job.plan.figures.pp),
                number("dp", job.plan.figures.dp),
                number("microbatches", job.microbatches),
            ],
            unknown: Vec::new(),
        };
        Ok(Self { job, place, writer: Writer::new(out, &metadata)?, written, id: 0, tail: Vec::new() })
    }

    fn put(&mut self, name: &str, kind: NodeType, deps: &[u64], micros: u64, attrs: Vec<Attr>) -> std::io::Result<u64> {
        let mut node = Node::new(self.id, name.into(), kind);
        node.data_deps = deps.to_vec();
        node.duration_micros = micros;
        node.attrs = attrs;
        node.attrs.push(Attr::new("is_cpu_op", Scalar::Bool(false)));
        self.writer.node(&node)?;
        self.id += 1;
        self.written.nodes += 1;
        Ok(node.id)
    }

    fn compute(&mut self, name: &str, flop: u64, bytes: u64, micros: u64) -> std::io::Result<u64> {
        // ASTRA-sim divides both ways: neither may be 0.
        let attrs = vec![
            Attr::new("num_ops", Scalar::Int64(i64::try_from(flop.max(1)).unwrap_or(i64::MAX))),
            Attr::new("tensor_size", Scalar::Uint64(bytes.max(1))),
        ];
        let tail = std::mem::take(&mut self.tail);
        self.put(name, NodeType::Comp, &tail, micros, attrs)
    }

    fn collective(&mut self, name: &str, comm: &Comm, deps: &[u64]) -> std::io::Result<Option<u64>> {
        let Some(group) = Job::head(comm.scope, self.place).and_then(|head| self.job.names.get(&head)) else {
            return Ok(None);
        };
        let attrs = vec![
            Attr::new("comm_type", Scalar::Int64(comm.kind.number())),
            Attr::new("comm_size", Scalar::Int64(i64::try_from(comm.bytes).unwrap_or(i64::MAX))),
            Attr::new("pg_name", Scalar::String(group.as_str().into())),
        ];
        *self.written.bytes.entry(comm.kind.name().into()).or_default() += u128::from(comm.bytes);
        self.put(name, NodeType::Coll, deps, 0, attrs).map(Some)
    }

    fn iteration(&mut self) -> std::io::Result<()> {
        let (pp, b) = (self.job.plan.figures.pp, self.job.microbatches);
        let backward = self.job.parts.iter().any(|p| !p.forward);
        // 1F1B: as many forward passes ahead as there are stages behind.
        let ahead = if backward { (pp - 1 - self.place.stage).min(b) } else { b };
        for m in 0..ahead {
            self.pass(m, true)?;
        }
        if backward {
            for m in 0..b - ahead {
                self.pass(ahead + m, true)?;
                self.pass(m, false)?;
            }
            for m in b - ahead..b {
                self.pass(m, false)?;
            }
        }
        self.update()
    }

    /// One microbatch through the layers of the stage, in one direction.
    fn pass(&mut self, m: u64, forward: bool) -> std::io::Result<()> {
        let job = self.job;
        let word = if forward { "forward" } else { "backward" };
        let (stage, last) = (self.place.stage, job.plan.figures.pp - 1);
        let (from, to) = match forward {
            true => (stage.checked_sub(1), (stage < last).then(|| stage + 1)),
            false => ((stage < last).then(|| stage + 1), stage.checked_sub(1)),
        };
        let bytes = if forward { &job.forward_bytes } else { &job.backward_bytes };
        if let Some(peer) = from {
            let tail = std::mem::take(&mut self.tail);
            for (i, size) in bytes.iter().enumerate() {
                let id = self.message(NodeType::Recv, peer, m, forward, i, *size, &tail)?;
                self.tail.push(id);
            }
        }
        for layer in 0..job.layers(stage) {
            for part in job.parts.iter().filter(|part| part.forward == forward) {
                self.partition(part, &format!("microbatch {m}, layer {layer}, {word}"))?;
            }
        }
        if let Some(peer) = to {
            let tail = self.tail.clone();
            for (i, size) in bytes.iter().enumerate() {
                self.message(NodeType::Send, peer, m, forward, i, *size, &tail)?;
            }
        }
        Ok(())
    }

    /// One partition of one layer: its computation piece by piece, its collectives one after another, beside the computation or between it.
    fn partition(&mut self, part: &Part, prefix: &str) -> std::io::Result<()> {
        let beside = self.job.plan.system.overlap() == Overlap::Full;
        let mut chain = self.tail.clone();
        let mut heard = false;
        for piece in &part.pieces {
            let name = format!("{prefix}, {}", piece.name);
            if !beside {
                self.talk(&name, &piece.before, None)?;
            }
            let node = self.compute(&name, piece.flop, piece.dram_bytes, piece.micros)?;
            self.written.flop += u128::from(piece.flop.max(1));
            self.tail = vec![node];
            if beside {
                for comms in [&piece.before, &piece.after] {
                    heard |= self.talk(&name, comms, Some(&mut chain))?;
                }
            } else {
                self.talk(&name, &piece.after, None)?;
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
                if let Some(id) = self.collective(&format!("{name}, {}", comm.kind.name()), comm, &at)? {
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

    #[allow(clippy::too_many_arguments)] // each is one attribute of the message
    fn message(
        &mut self,
        kind: NodeType,
        stage: u64,
        m: u64,
        forward: bool,
        i: usize,
        size: u64,
        deps: &[u64],
    ) -> std::io::Result<u64> {
        let rank = |place: Place| self.job.ranks.get(&place).copied().unwrap_or_default();
        let (own, peer) = (rank(self.place), rank(Place { stage, ..self.place }));
        let (src, dst) = if kind == NodeType::Send { (own, peer) } else { (peer, own) };
        let small = |n: u64| Scalar::Int32(i32::try_from(n).unwrap_or(i32::MAX));
        let messages = self.job.forward_bytes.len().max(self.job.backward_bytes.len()) as u64;
        // One tag a microbatch, direction and tensor; it may come round again after 2^31 of them.
        let tag = ((m * 2 + u64::from(!forward)) * messages + i as u64) % (1 << 31);
        let attrs = vec![
            Attr::new("comm_src", small(src)),
            Attr::new("comm_dst", small(dst)),
            Attr::new("comm_tag", small(tag)),
            Attr::new("comm_size", Scalar::Int64(i64::try_from(size).unwrap_or(i64::MAX))),
        ];
        let word = if kind == NodeType::Send { "SEND" } else { "RECV" };
        *self.written.bytes.entry(word.into()).or_default() += u128::from(size);
        let way = if forward { "activations" } else { "gradients" };
        self.put(&format!("microbatch {m}, {way}, {word}"), kind, deps, 0, attrs)
    }

    /// Gradients among the replicas, and the optimiser.
    fn update(&mut self) -> std::io::Result<()> {
        let plan = self.job.plan;
        let (w, options, f) = (&plan.workload, &plan.system.model, &plan.figures);
        if !w.training {
            return Ok(());
        }
        let layers = self.job.layers(self.place.stage) as f64;
        let kernels = || w.kernels.iter().zip(&plan.decisions.sharding);
        let gradients: f64 = kernels().map(|(k, s)| gradient_bytes(k, *s, f.tp, w.word_bytes)).sum();
        if options.gradient_reduction == GradientReduction::PerIteration && gradients > 0.0 && f.dp > 1 {
            let bytes = comms::whole_bytes(gradients * layers);
            let comm = Comm { scope: Scope::Data, kind: CommType::AllReduce, bytes, times: 1 };
            let tail = self.tail.clone();
            if let Some(id) = self.collective("gradients, ALL_REDUCE", &comm, &tail)? {
                self.tail = vec![id];
            }
        }
        if options.optimizer_step == Charge::Charged {
            let weights: f64 = kernels()
                .filter(|(k, _)| k.owns_weight())
                .map(|(k, s)| weight_bytes(k, *s, f.tp, w.word_bytes) / w.word_bytes)
                .sum();
            let bytes = weights * layers * (2.0 * w.word_bytes + 2.0 * optimizer_bytes_per_weight(w.word_bytes));
            if bytes >= 1.0 {
                let micros = (f.iteration.optimizer_s * 1e6).round().max(1.0) as u64;
                let id = self.compute("optimizer", 1, comms::whole_bytes(bytes), micros)?;
                self.tail = vec![id];
            }
        }
        Ok(())
    }
}
