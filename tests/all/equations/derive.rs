//! Sections 6 and 7 of docs/model.md: what a partition holds, moves and takes.

use super::case::{Collective, Dimension, Efficiency, Graph, Machine, Op, Overlap, Scope, Slot};
use super::compute::{self, Seconds, beta, tile_flop};
use super::graph::{Conversion, Local, Paid, Sharded, Strategy, along_k, backward, finds_shards, open};
use super::network::{self, Side};

/// The decisions of a plan.
#[derive(Debug, Clone)]
pub struct Decisions {
    /// TP, PP and DP of each dimension.
    pub uses: Vec<[u64; 3]>,
    pub stages: Vec<u64>,
    pub strategy: Vec<Strategy>,
    pub tiles: u64,
    pub on_chip: bool,
    pub partition: Vec<usize>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Partition {
    pub compute: f64,
    pub dram: f64,
    pub network: f64,
    pub launch: f64,
    pub filling: f64,
    pub time: f64,
    pub sram: f64,
    pub live: f64,
    pub bytes: f64,
    pub flop: f64,
    pub joules: f64,
}

/// A case with its decisions.
pub struct Model<'a> {
    pub graph: &'a Graph,
    pub machine: &'a Machine,
    pub decisions: &'a Decisions,
    pub sharded: Sharded<'a>,
    pub t: u64,
    pub p: u64,
    pub d: u64,
    /// Microbatches.
    pub b: u64,
    pub levels: Vec<u64>,
}

impl<'a> Model<'a> {
    pub fn new(graph: &'a Graph, machine: &'a Machine, decisions: &'a Decisions) -> Self {
        let product = |which: usize| decisions.uses.iter().map(|u| u[which]).product();
        let (t, p, d): (u64, u64, u64) = (product(0), product(1), product(2));
        let sharded = Sharded::new(graph, t, decisions.tiles, &decisions.strategy);
        let b = graph.batch.div_ceil(graph.micro * d);
        let levels = levels(graph);
        Self { graph, machine, decisions, sharded, t, p, d, b, levels }
    }

    pub fn waves(&self) -> bool {
        matches!(self.machine.efficiency, Efficiency::Waves(_))
    }

    pub fn group(&self, scope: Scope) -> Vec<Side<'a>> {
        self.sides(|[t, _, d]| match scope {
            Scope::Tensor => (t, 1),
            Scope::Data => (d, t),
            Scope::All => (t * d, 1),
        })
    }

    pub fn pipeline(&self) -> Vec<Side<'a>> {
        self.sides(|[t, p, d]| (p, t * d))
    }

    fn sides(&self, of: impl Fn([u64; 3]) -> (u64, u64)) -> Vec<Side<'a>> {
        let side = |(u, link): (&[u64; 3], &'a Dimension)| {
            let (n, apart) = of(*u);
            Side { n, apart, link }
        };
        self.decisions.uses.iter().zip(&self.machine.dimensions).map(side).collect()
    }

    pub fn weight(&self, k: usize) -> f64 {
        let kernel = &self.graph.kernels[k];
        let local = self.sharded.local(k);
        let is = kernel.op == super::case::Op::Weight;
        if is { (local.rows() * local.k * self.graph.word) as f64 } else { 0.0 }
    }

    pub fn gradient(&self, k: usize) -> f64 {
        let local: Local = self.sharded.local(k);
        if along_k(&self.graph.kernels[k]) { (local.rows() * local.n * self.graph.word) as f64 } else { 0.0 }
    }

    fn owns(&self, k: usize) -> bool {
        self.graph.kernels[k].weight_of.is_none()
    }

    /// Bytes that a kernel holds on chip while it runs.
    fn holds(&self, k: usize) -> f64 {
        if self.graph.kernels[k].lookup || self.decisions.on_chip || self.waves() {
            return 0.0;
        }
        self.weight(k) + self.gradient(k)
    }

    fn whole_needed(&self, k: usize, slot: Slot, made_here: bool) -> bool {
        let by_contraction = along_k(&self.graph.kernels[k]) || self.adds_up(k);
        match (slot, made_here) {
            (Slot::Lhs, _) => !by_contraction,
            (Slot::LhsT, _) => made_here || !by_contraction,
            (Slot::View | Slot::Reshaped, _) => made_here,
            (Slot::Rhs, _) => made_here && by_contraction,
            (Slot::RhsT, _) => made_here && !by_contraction,
            _ => false,
        }
    }

    /// Whether a product meets tiles of its contraction though it is tiled along its columns.
    fn adds_up(&self, k: usize) -> bool {
        let kernel = &self.graph.kernels[k];
        let reads = kernel.reads.iter().any(|(_, slot)| *slot == Slot::RhsT);
        reads && matches!(kernel.op, Op::Weight | Op::Pair) && !along_k(kernel)
    }

    /// Bytes of the buffers of kernels that run together.
    fn buffers(&self, inside: &dyn Fn(usize) -> bool) -> f64 {
        let s = &self.sharded;
        let mut sum = 0.0;
        for (tensor, it) in self.graph.tensors.iter().enumerate() {
            let mut largest: f64 = 0.0;
            let here = it.maker.filter(|m| inside(*m));
            let mut elsewhere = s.leaves(tensor);
            for (k, slot) in &s.readers[tensor] {
                if !inside(*k) {
                    elsewhere = true;
                    continue;
                }
                let asked = s.asked(*k, *slot);
                let buffer = match here {
                    Some(maker) => {
                        let distance = self.levels[*k].abs_diff(self.levels[maker]);
                        let tiles = (distance + 1) as f64 * s.tile(tensor, asked);
                        if self.whole_needed(*k, *slot, true) || self.adds_up(maker) {
                            tiles.max(s.shard(tensor, asked))
                        } else {
                            tiles
                        }
                    }
                    None if self.whole_needed(*k, *slot, false) => s.shard(tensor, asked),
                    None => 2.0 * s.tile(tensor, asked),
                };
                largest = largest.max(buffer);
            }
            if let Some(maker) = here
                && elsewhere
            {
                let made = s.made(maker);
                largest =
                    largest.max(if self.adds_up(maker) { s.shard(tensor, made) } else { 2.0 * s.tile(tensor, made) });
            }
            sum += largest;
        }
        sum
    }

    /// Pieces in which a kernel's weight is loaded; `None` where even a row does not fit.
    pub fn pieces(&self, k: usize) -> Option<u64> {
        self.pieces_and_loads(k).map(|(pieces, _)| pieces)
    }

    /// The same, and how often an operand is loaded of which each problem has its own part.
    fn pieces_and_loads(&self, k: usize) -> Option<(u64, u64)> {
        if self.waves() {
            return Some((1, 1));
        }
        let held = self.holds(k);
        let room = self.machine.sram - self.on_chip_bytes() - self.buffers(&|other| other == k);
        if held <= room * (1.0 + 1e-9) {
            return Some((1, 1));
        }
        let rows = self.sharded.local(k).rows();
        if room <= 0.0 || held / rows as f64 > room * (1.0 + 1e-9) {
            return None;
        }
        let side_by_side = (rows / self.graph.kernels[k].m).max(1);
        let one = held / side_by_side as f64;
        if side_by_side > 1 && one <= room {
            let together = (room / one).floor() as u64;
            return Some((side_by_side.div_ceil(together).max(2), 1));
        }
        let parts = (one / room).ceil().max(2.0) as u64;
        Some((side_by_side * parts, parts))
    }

    /// Bytes of all weights and gradients of the longest stage, where they stay on chip.
    pub fn on_chip_bytes(&self) -> f64 {
        if !self.decisions.on_chip {
            return 0.0;
        }
        let longest = *self.decisions.stages.iter().max().unwrap() as f64;
        longest * self.of_layer(|k| self.own_weight(k) + self.gradient(k))
    }

    /// Whether the plan keeps the rules of section 12 and fits.
    pub fn lawful(&self) -> bool {
        let (graph, machine) = (self.graph, self.machine);
        let decisions = self.decisions;
        if !self.ordered() || !self.sharded_by_the_rules() {
            return false;
        }
        let partitions = self.partitions();
        let slack = 1.0 + 1e-9;
        let cores = matches!(machine.efficiency, Efficiency::LanesStages);
        let together = |p: usize| decisions.partition.iter().filter(|q| **q == p).count();
        (0..graph.kernels.len()).all(|k| match self.pieces(k) {
            Some(pieces) => pieces == 1 || together(decisions.partition[k]) == 1,
            None => false,
        }) && partitions.iter().enumerate().all(|(i, p)| {
            (self.waves() || p.sram <= machine.sram * slack) && (!cores || together(i) as u64 <= machine.cores)
        }) && machine.capacity.is_none_or(|most| self.fullest(&partitions) <= most * slack)
    }

    /// Numbers of chips, layers and samples; the order of partitions.
    fn ordered(&self) -> bool {
        let (graph, machine, decisions) = (self.graph, self.machine, self.decisions);
        let of = |k: usize| decisions.partition[k];
        let kernels = || 0..graph.kernels.len();
        let last_forward = kernels().filter(|k| !self.is_backward(*k)).map(of).max();
        let first_backward = kernels().filter(|k| self.is_backward(*k)).map(of).min();
        graph.micro * self.d <= graph.batch
            && decisions.stages.len() as u64 == self.p
            && decisions.stages.iter().sum::<u64>() == graph.repeat
            && decisions.stages.iter().all(|layers| *layers > 0)
            && decisions.uses.iter().zip(&machine.dimensions).all(|(u, d)| u.iter().product::<u64>() == d.size)
            && last_forward < first_backward.or(Some(usize::MAX))
            && kernels().all(|k| {
                let reads = &graph.kernels[k].reads;
                reads.iter().all(|(tensor, _)| graph.tensors[*tensor].maker.is_none_or(|maker| of(maker) <= of(k)))
            })
            && (machine.dataflow || (!decisions.on_chip && kernels().all(|k| (0..k).all(|other| of(other) != of(k)))))
    }

    fn sharded_by_the_rules(&self) -> bool {
        let strategy = &self.decisions.strategy;
        self.graph.kernels.iter().zip(strategy).all(|(kernel, by)| {
            let agrees = |owner: usize| finds_shards(kernel, *by, &self.graph.kernels[owner], strategy[owner]);
            open(self.graph, kernel, self.t).contains(by) && (self.t == 1 || kernel.weight_of.is_none_or(agrees))
        })
    }

    fn share(&self, k: usize) -> f64 {
        let kernel = &self.graph.kernels[k];
        match self.decisions.strategy[k] {
            Strategy::Replicate => 1.0,
            Strategy::N if kernel.outer > 1 => 1.0,
            Strategy::Outer => self.t.min(kernel.outer / kernel.lhs_shared) as f64,
            _ => self.t as f64,
        }
    }

    pub fn cache(&self, k: usize) -> f64 {
        self.graph.kernels[k].cache / self.share(k)
    }

    pub fn partitions(&self) -> Vec<Partition> {
        let paid = self.sharded.conversions();
        let count = self.decisions.partition.iter().max().unwrap() + 1;
        let live = self.live();
        (0..count).map(|p| Partition { live: live[p], ..self.partition(p, &paid) }).collect()
    }

    fn partition(&self, p: usize, paid: &[Vec<Paid>]) -> Partition {
        let (s, graph) = (&self.sharded, self.graph);
        let inside = |k: usize| self.decisions.partition[k] == p;
        let kernels: Vec<usize> = (0..graph.kernels.len()).filter(|k| inside(*k)).collect();
        let mut out = Partition::default();
        let mut held = 0.0;
        for &k in &kernels {
            let kernel = &graph.kernels[k];
            let (pieces, loads) = self.pieces_and_loads(k).unwrap_or((1, 1));
            held += self.holds(k) / pieces as f64;
            if self.decisions.on_chip {
                out.bytes += (self.own_weight(k) + self.gradient(k)) / self.b as f64;
            } else if !kernel.lookup {
                out.bytes += self.weight(k) + 2.0 * self.gradient(k);
            }
            out.bytes += kernel.extra_dram * graph.micro as f64 / self.share(k);
            for (tensor, slot) in &kernel.reads {
                let each = *slot == Slot::Aligned || (kernel.op != super::case::Op::Weight && kernel.lhs_shared <= 1);
                let again = if each { loads } else { pieces } - 1;
                out.bytes += again as f64 * s.loaded(*tensor, k, *slot);
            }
            out.flop += (graph.micro * compute::tiles(s, k)) as f64 * tile_flop(s, k);
        }
        for (tensor, it) in graph.tensors.iter().enumerate() {
            let here = it.maker.is_some_and(inside);
            let readers = &s.readers[tensor];
            if here {
                if s.leaves(tensor) || readers.iter().any(|(k, _)| !inside(*k)) {
                    out.bytes += s.stored(tensor);
                }
            } else {
                let each = readers.iter().filter(|(k, _)| inside(*k)).map(|(k, slot)| s.loaded(tensor, *k, *slot));
                out.bytes += each.fold(0.0, f64::max);
            }
        }
        out.sram = if self.waves() { 0.0 } else { self.on_chip_bytes() + held + self.buffers(&inside) };
        let mut by_cores = Vec::new();
        for &k in &kernels {
            match compute::seconds(self.machine, s, k) {
                Seconds::Alone(seconds) => out.compute += seconds,
                Seconds::ByCores(each) => by_cores.push(each),
            }
        }
        if !by_cores.is_empty() {
            out.compute = compute::share_cores(self.machine.cores, &by_cores);
        }
        self.network(&kernels, paid, &mut out);
        out.dram = out.bytes / beta(self.machine, graph.training);
        out.launch = match &self.machine.efficiency {
            Efficiency::Waves(waves) => waves.launch,
            _ => self.machine.launch,
        };
        let overlap = match (self.machine.overlap, self.machine.dataflow) {
            (Some(overlap), _) => overlap,
            (None, true) => Overlap::Full,
            (None, false) => Overlap::ComputeMemory,
        };
        let pace = match overlap {
            Overlap::Full => out.compute.max(out.dram).max(out.network),
            Overlap::ComputeMemory => out.compute.max(out.dram) + out.network,
            Overlap::None => out.compute + out.dram + out.network,
        };
        if self.machine.dataflow && !self.waves() && !self.machine.no_filling {
            out.filling = pace * kernels.iter().map(|k| self.begins(*k)).fold(0.0, f64::max);
        }
        out.time = out.launch + pace + out.filling;
        out
    }

    /// When a kernel begins after the first of its partition, as a part of the pace.
    fn begins(&self, k: usize) -> f64 {
        let (s, graph) = (&self.sharded, self.graph);
        let of = |kernel: usize| self.decisions.partition[kernel];
        let mut latest = 0.0_f64;
        for (tensor, slot) in &graph.kernels[k].reads {
            let Some(maker) = graph.tensors[*tensor].maker.filter(|maker| of(*maker) == of(k)) else { continue };
            let samples = graph.micro as f64;
            let wait = if along_k(&graph.kernels[maker]) {
                1.0
            } else if self.whole_needed(k, *slot, true) || self.adds_up(maker) {
                1.0 / samples
            } else {
                1.0 / (samples * s.filled(s.split(*tensor, s.asked(k, *slot)).1) as f64)
            };
            latest = latest.max(self.begins(maker) + wait);
        }
        latest
    }

    /// Whether a kernel waits for all tiles of what another of its partition makes.
    pub fn waits_for_all(&self, k: usize) -> bool {
        let of = |kernel: usize| self.decisions.partition[kernel];
        self.machine.dataflow
            && self.graph.kernels[k].reads.iter().any(|(tensor, slot)| {
                self.whole_needed(k, *slot, true) && self.graph.tensors[*tensor].maker.is_some_and(|m| of(m) == of(k))
            })
    }

    fn network(&self, kernels: &[usize], paid: &[Vec<Paid>], out: &mut Partition) {
        let tensor_group = self.group(Scope::Tensor);
        for &k in kernels {
            for p in &paid[k] {
                let kind = match p.kind {
                    Conversion::AllReduce => Collective::AllReduce,
                    Conversion::AllGather => Collective::AllGather,
                    Conversion::ReduceScatter => Collective::ReduceScatter,
                    Conversion::AllToAll => Collective::AllToAll,
                };
                out.network += network::seconds(kind, p.bytes, &tensor_group);
                out.joules += network::joules(kind, p.bytes, &tensor_group);
            }
            let mut by_scope = [0.0_f64; 3];
            for own in &self.graph.kernels[k].own {
                let mut bytes = own.bytes * self.graph.micro as f64;
                if own.kind == Collective::AllToAll {
                    bytes /= self.t as f64;
                }
                let group = self.group(own.scope);
                let times = own.times as f64;
                by_scope[own.scope as usize] += times * network::seconds(own.kind, bytes, &group);
                out.joules += times * network::joules(own.kind, bytes, &group);
            }
            out.network += by_scope.into_iter().fold(0.0, f64::max);
        }
    }

    /// Bytes that wait in DRAM while each partition runs.
    fn live(&self) -> Vec<f64> {
        let of = |k: usize| self.decisions.partition[k];
        let count = self.decisions.partition.iter().max().unwrap() + 1;
        let mut live = vec![0.0; count];
        let s = &self.sharded;
        for (tensor, it) in self.graph.tensors.iter().enumerate() {
            let read = s.readers[tensor].iter().map(|(k, _)| of(*k)).max();
            let first = it.maker.map_or(0, of);
            let last = match it.maker {
                Some(_) if s.leaves(tensor) => Some(count - 1),
                Some(_) => read.filter(|l| *l != first),
                None => read,
            };
            let Some(last) = last.filter(|_| !it.in_place) else { continue };
            for there in &mut live[first..=last] {
                *there += s.stored(tensor);
            }
        }
        live
    }

    /// A sum over the kernels of a layer.
    pub fn of_layer(&self, each: impl Fn(usize) -> f64) -> f64 {
        (0..self.graph.kernels.len()).map(each).sum()
    }

    /// Bytes of the weight of a kernel that no other owns.
    pub fn own_weight(&self, k: usize) -> f64 {
        if self.owns(k) { self.weight(k) } else { 0.0 }
    }

    pub fn is_backward(&self, k: usize) -> bool {
        backward(&self.graph.kernels[k])
    }
}

/// Kernels on the longest way to each kernel.
fn levels(graph: &Graph) -> Vec<u64> {
    let mut level = vec![0; graph.kernels.len()];
    for _ in 0..graph.kernels.len() {
        for (k, kernel) in graph.kernels.iter().enumerate() {
            for (tensor, _) in &kernel.reads {
                if let Some(maker) = graph.tensors[*tensor].maker {
                    level[k] = level[k].max(level[maker] + 1);
                }
            }
        }
    }
    level
}
