//! Random graphs, systems and decisions. Sizes are odd and small, so that padding and rounding show.

use super::case::{
    Burst, Collective, Dimension, Efficiency, Graph, Kernel, Machine, Op, Overlap, Own, Pass, Scope, Slot, Tensor,
    Tile, Topology, Waves,
};
use super::derive::Decisions;
use super::graph::{Strategy, finds_shards, open};

/// Splitmix64 (Steele, Lea, Flood 2014).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `low` to `high`, both included.
    pub fn whole(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    pub fn of<T: Clone>(&mut self, items: &[T]) -> T {
        items[(self.next() % items.len() as u64) as usize].clone()
    }
}

struct Builder<'r> {
    pub graph: Graph,
    pub random: &'r mut Random,
    /// Pass of what is added.
    pass: Pass,
}

/// A graph of one layer.
pub fn graph(random: &mut Random) -> Graph {
    let backward = random.one_in(2);
    let training = backward || random.one_in(8);
    let mut builder = Builder::new(random, training);
    builder.layer(backward);
    builder.finish()
}

impl<'r> Builder<'r> {
    fn new(random: &'r mut Random, training: bool) -> Self {
        let micro = random.of(&[1, 1, 2, 3]);
        let graph = Graph {
            word: random.of(&[1, 2, 2, 4, 8]),
            training,
            repeat: random.whole(1, 6),
            batch: micro * random.whole(1, 12) + random.whole(0, micro - 1),
            micro,
            held: random.of(&[0.0, 0.0, 12_000.0]),
            tensors: Vec::new(),
            kernels: Vec::new(),
        };
        Self { graph, random, pass: Pass::Forward }
    }
}

impl Builder<'_> {
    fn input(&mut self, rows: u64, columns: u64) -> usize {
        self.tensor(rows, columns, None, false)
    }

    fn tensor(&mut self, rows: u64, columns: u64, maker: Option<usize>, part: bool) -> usize {
        let (output, carried_from) = (false, None);
        let in_place = maker.is_some() && self.random.one_in(10);
        self.graph.tensors.push(Tensor { rows, columns, maker, part, output, carried_from, in_place });
        self.graph.tensors.len() - 1
    }

    /// A kernel, and the tensor that it writes.
    fn kernel(&mut self, op: Op, (outer, m, k, n): (u64, u64, u64, u64), reads: Vec<(usize, Slot)>) -> usize {
        let product = matches!(op, Op::Weight | Op::Pair);
        let flop = match op {
            Op::Opaque => Some(self.random.whole(1, 100_000) as f64),
            Op::Elementwise | Op::Norm if self.random.one_in(5) => Some(self.random.whole(1, 50_000) as f64),
            _ => None,
        };
        let extra_dram = if self.random.one_in(6) { self.random.whole(1, 3000) as f64 } else { 0.0 };
        let mut own = Vec::new();
        if self.random.one_in(6) {
            for _ in 0..self.random.whole(1, 3) {
                own.push(self.own());
            }
        }
        self.graph.kernels.push(Kernel {
            op,
            pass: self.pass,
            outer,
            m,
            k: if product { k } else { 1 },
            n,
            window: 1,
            weight_of: None,
            lookup: false,
            flop,
            extra_dram,
            own,
            reads,
            lhs_shared: 1,
            passes: if self.random.one_in(10) { self.random.whole(2, 3) } else { 1 },
            cache: if self.random.one_in(10) { self.random.whole(1, 4000) as f64 } else { 0.0 },
        });
        let index = self.graph.kernels.len() - 1;
        if !product && self.random.one_in(8) && outer * m > 1 {
            // Written in two parts.
            let first = self.random.whole(1, outer * m - 1);
            let part = self.tensor(first, n, Some(index), true);
            self.tensor(outer * m - first, n, Some(index), true);
            return part;
        }
        if self.random.one_in(12) {
            self.tensor(self.graph.kernels[index].m, 1, Some(index), true);
        }
        self.tensor(outer * m, n, Some(index), false)
    }

    fn own(&mut self) -> Own {
        use Collective::{AllGather, AllReduce, AllToAll, Broadcast, PointToPoint, ReduceScatter};
        Own {
            kind: self.random.of(&[AllReduce, AllGather, ReduceScatter, AllToAll, PointToPoint, Broadcast]),
            bytes: self.random.whole(1, 9000) as f64,
            scope: self.random.of(&[Scope::Tensor, Scope::Tensor, Scope::Data, Scope::All]),
            times: self.random.whole(1, 3),
        }
    }

    fn divisor(&mut self, n: u64, most: u64) -> u64 {
        let all: Vec<u64> = (1..=most.min(n)).filter(|d| n.is_multiple_of(*d)).collect();
        self.random.of(&all)
    }

    fn size(&mut self) -> u64 {
        if self.random.one_in(2) { self.random.of(&[4, 8, 12, 16, 24, 32]) } else { self.random.whole(1, 40) }
    }

    fn shape(&self, tensor: usize) -> (u64, u64) {
        (self.graph.tensors[tensor].rows, self.graph.tensors[tensor].columns)
    }

    /// A product of a weight and `x`, whose output has `rows` where that is asked.
    fn weighted(&mut self, x: usize, rows: Option<u64>) -> usize {
        let (r, c) = self.shape(x);
        let outer = if rows.is_none() && self.random.one_in(5) { self.random.of(&[2, 3, 4]) } else { 1 };
        let m = rows.unwrap_or_else(|| self.size());
        let turned = rows.is_none() && self.random.one_in(8);
        if turned {
            return self.kernel(Op::Weight, (outer, m, c, r), vec![(x, Slot::RhsT)]);
        }
        let window = if self.random.one_in(8) { 3 } else { 1 };
        let y = self.kernel(Op::Weight, (outer, m, r * window, c), vec![(x, Slot::Rhs)]);
        self.graph.kernels.last_mut().unwrap().window = window;
        y
    }

    /// A product of two tensors.
    fn pair(&mut self, x: usize, tensors: &[usize]) -> usize {
        let (r, c) = self.shape(x);
        let outer = self.divisor(r, 8);
        let turned = self.random.one_in(3);
        let (k, n) = if turned { (c, r / outer) } else { (r / outer, c) };
        let rhs = if turned { Slot::RhsT } else { Slot::Rhs };
        if outer > 1 && self.random.one_in(4) {
            let shared = self.divisor(outer, outer);
            let m = self.size();
            let (y, slot) = match self.random.whole(0, 2) {
                0 => (self.input(outer / shared * m, k), Slot::Lhs),
                1 => (self.input(outer / shared * k, m), Slot::LhsT),
                _ => (self.input(outer / shared * k * m, 1), Slot::Reshaped),
            };
            let made = self.kernel(Op::Pair, (outer, m, k, n), vec![(x, rhs), (y, slot)]);
            self.graph.kernels.last_mut().unwrap().lhs_shared = shared;
            return made;
        }
        let mut found = Vec::new();
        for y in tensors {
            let (rows, columns) = self.shape(*y);
            if rows == outer * k {
                found.push((*y, Slot::LhsT, columns));
            }
            if columns == k && rows.is_multiple_of(outer) {
                found.push((*y, Slot::Lhs, rows / outer));
            }
        }
        let (y, slot, m) = if found.is_empty() || self.random.one_in(6) {
            let m = self.size();
            (self.input(outer * k, m), Slot::LhsT, m)
        } else {
            self.random.of(&found)
        };
        self.kernel(Op::Pair, (outer, m, k, n), vec![(x, rhs), (y, slot)])
    }

    /// A kernel that is no product.
    fn plain(&mut self, x: usize, tensors: &[usize]) -> usize {
        let (r, c) = self.shape(x);
        let op = self.random.of(&[Op::Elementwise, Op::Elementwise, Op::Norm, Op::Norm, Op::Opaque]);
        let outer = if self.random.one_in(3) { self.divisor(r, 8) } else { 1 };
        let mut reads = vec![(x, Slot::Data)];
        for y in tensors {
            if *y != x && self.shape(*y) == (r, c) && self.random.one_in(2) {
                reads.push((*y, Slot::Data));
                break;
            }
        }
        if self.random.one_in(4) {
            let y = self.random.of(tensors);
            if reads.iter().all(|(t, _)| *t != y) {
                reads.push((y, self.random.of(&[Slot::View, Slot::Aligned, Slot::Reshaped, Slot::Shared])));
            }
        }
        reads.sort_by_key(|(_, slot)| {
            [Slot::Data, Slot::View, Slot::Aligned, Slot::Reshaped, Slot::Shared].iter().position(|s| s == slot)
        });
        self.kernel(op, (outer, r / outer, 1, c), reads)
    }

    /// Some kernel that reads `x`.
    fn any(&mut self, x: usize, tensors: &[usize]) -> usize {
        match self.random.whole(0, 9) {
            0..=4 => self.weighted(x, None),
            5..=6 => self.pair(x, tensors),
            _ => self.plain(x, tensors),
        }
    }

    fn look_up(&mut self) -> usize {
        let (rows, indices) = (self.size(), self.size());
        let table = self.random.whole(5, 60);
        let words = self.input(1, indices);
        let y = self.kernel(Op::Weight, (1, rows, table, indices), vec![(words, Slot::View)]);
        let kernel = self.graph.kernels.last_mut().unwrap();
        kernel.lookup = true;
        kernel.extra_dram = 500.0;
        y
    }

    fn layer(&mut self, training: bool) {
        let (rows, columns) = (self.size(), self.size());
        let x = self.input(rows, columns);
        let mut tensors = vec![x];
        if self.random.one_in(6) {
            tensors.push(self.look_up());
        }
        for _ in 0..self.random.whole(1, 4) {
            let last = *tensors.last().unwrap();
            let from = if self.random.one_in(3) { self.random.of(&tensors) } else { last };
            let made = self.any(from, &tensors);
            tensors.push(made);
        }
        if self.random.one_in(2) {
            self.carry(x, &tensors);
        }
        if training {
            self.backward(&tensors);
        }
    }

    /// Has `x` made by the layer before.
    fn carry(&mut self, x: usize, tensors: &[usize]) {
        let shape = self.shape(x);
        let last = *tensors.last().unwrap();
        let from = if self.shape(last) == shape && self.graph.tensors[last].maker.is_some() {
            last
        } else if self.shape(last).1 == shape.1 {
            self.weighted(last, Some(shape.0))
        } else {
            return;
        };
        self.graph.tensors[x].carried_from = Some(from);
    }

    /// Kernels of the backward pass.
    fn backward(&mut self, forward: &[usize]) {
        let owners: Vec<usize> =
            (0..self.graph.kernels.len()).rev().filter(|k| self.graph.kernels[*k].op == Op::Weight).collect();
        let mut later: Vec<usize> = Vec::new();
        for owner in owners {
            if self.random.one_in(4) && !later.is_empty() {
                continue;
            }
            let kernel = self.graph.kernels[owner].clone();
            let y = self.graph.made_by(owner).last().unwrap();
            let shape = self.shape(y);
            if self.graph.tensors[y].part {
                continue;
            }
            self.pass = Pass::GradientOfInput;
            let known = later.iter().copied().find(|t| self.shape(*t) == shape);
            let dy = match known {
                Some(dy) => dy,
                None if self.random.one_in(3) => {
                    let g = self.input(shape.0, shape.1);
                    later.push(g);
                    g
                }
                None => {
                    let mut reads = vec![(y, Slot::Data)];
                    let same: Vec<usize> =
                        forward.iter().copied().filter(|t| *t != y && self.shape(*t) == shape).collect();
                    if !same.is_empty() && self.random.one_in(2) {
                        reads.push((self.random.of(&same), Slot::Data));
                    }
                    let outer = if self.random.one_in(3) { kernel.outer } else { 1 };
                    self.kernel(Op::Elementwise, (outer, shape.0 / outer, 1, shape.1), reads)
                }
            };
            if self.graph.tensors[dy].maker.is_some() {
                later.push(dy);
            }
            if self.shape(dy) != shape {
                continue;
            }
            let (x, slot) = kernel.reads[0];
            let upward = !kernel.lookup && self.random.one_in(4);
            if !kernel.lookup && slot == Slot::Rhs && !upward {
                let dx =
                    self.kernel(Op::Weight, (1, kernel.k, kernel.outer * kernel.m, kernel.n), vec![(dy, Slot::Rhs)]);
                self.graph.kernels.last_mut().unwrap().weight_of = Some(owner);
                if kernel.window == 1 {
                    later.push(dx);
                }
            }
            if self.random.one_in(5) {
                continue;
            }
            self.pass = Pass::GradientOfWeight;
            let sizes = (1, kernel.k, kernel.n, kernel.outer * kernel.m);
            let reads = match (kernel.lookup, slot) {
                (true, _) => vec![(x, Slot::View), (dy, Slot::RhsT)],
                (false, Slot::RhsT) => vec![(dy, Slot::RhsT), (x, Slot::LhsT)],
                (false, _) if kernel.window > 1 => vec![(x, Slot::View), (dy, Slot::RhsT)],
                (false, _) => vec![(dy, Slot::RhsT), (x, Slot::Lhs)],
            };
            self.kernel(Op::Pair, sizes, reads);
            let last = self.graph.kernels.last_mut().unwrap();
            last.weight_of = Some(owner);
            last.lookup = kernel.lookup;
        }
        self.pass = Pass::GradientOfInput;
        if let Some(last) = later.last().copied()
            && self.random.one_in(2)
        {
            let mut tensors = forward.to_vec();
            tensors.extend(&later);
            self.plain(last, &tensors);
        }
        // Gradients come from the layer after.
        for g in later.clone() {
            let tensor = self.graph.tensors[g].clone();
            if tensor.maker.is_some() {
                continue;
            }
            let alike = later
                .iter()
                .copied()
                .find(|t| self.graph.tensors[*t].maker.is_some() && self.shape(*t) == (tensor.rows, tensor.columns));
            if self.random.one_in(4) {
                continue;
            }
            self.graph.tensors[g].carried_from = alike;
        }
    }

    /// What nobody reads leaves the graph, mostly, and is not carried from layer to layer.
    fn finish(mut self) -> Graph {
        for t in 0..self.graph.tensors.len() {
            let read = self.graph.kernels.iter().any(|k| k.reads.iter().any(|(x, _)| *x == t));
            if !read {
                self.graph.tensors[t].carried_from = None;
            }
            if self.graph.tensors[t].maker.is_none() {
                continue;
            }
            let weight = self.graph.kernels[self.graph.tensors[t].maker.unwrap()].pass == Pass::GradientOfWeight;
            let often = if read { 8 } else { 2 };
            self.graph.tensors[t].output |= !weight && self.random.one_in(often);
        }
        self.graph
    }
}

/// A system.
pub fn machine(random: &mut Random, word: u64) -> Machine {
    let dataflow = random.one_in(2);
    let count = random.of(&[1, 1, 2, 2, 3]);
    let mut dimensions: Vec<Dimension> = Vec::new();
    for _ in 0..count {
        let so_far: u64 = dimensions.iter().map(|d| d.size).product();
        let size = if so_far >= 8 { 2 } else { random.of(&[1, 2, 2, 3, 4, 4, 8]) };
        let topology = random.of(&[Topology::Ring, Topology::Switch, Topology::Full]);
        dimensions.push(Dimension {
            size,
            topology,
            bandwidth: random.of(&[1e8, 1e9, 3e9, 5e10]),
            ring_links: random.of(&[1, 2]),
            latency: random.of(&[0.0, 1e-7, 3e-6]),
            efficiency: random.of(&[1.0, 0.7]),
            power: random.of(&[0.01, 0.1]),
            idle: random.of(&[1.0, 0.4]),
            per_byte: random.of(&[None, Some(4e-11), Some(1e-9)]),
        });
    }
    let efficiency = match random.whole(0, 4) {
        0 | 1 => Efficiency::Share(random.of(&[0.5, 0.83, 1.0])),
        2 | 3 => Efficiency::LanesStages,
        _ => Efficiency::Waves(waves(random, word)),
    };
    let is_waves = matches!(efficiency, Efficiency::Waves(_));
    let dataflow = dataflow && !is_waves;
    Machine {
        dataflow,
        cores: random.whole(1, 12),
        lanes: random.whole(1, 6),
        stages: random.whole(1, 6),
        frequency: 1e9,
        vector_peak: random.of(&[None, Some(3e9)]),
        peaks: if dataflow && random.one_in(2) { peaks_of_lanes(random, word) } else { Vec::new() },
        sram: random.of(&[600.0, 2000.0, 5000.0, 12_000.0, 40_000.0, 1e7]),
        efficiency,
        launch: random.of(&[0.0, 1e-6]),
        power: 100.0,
        idle: random.of(&[0.2, 0.0, 0.7]),
        per_flop: random.of(&[None, None, Some(2e-11)]),
        bandwidth: random.of(&[1e8, 1e9, 2e10]),
        capacity: random.of(&[None, None, Some(200_000.0), Some(1e6)]),
        memory_power: 0.1,
        memory_idle: random.of(&[0.2, 0.5]),
        memory_per_byte: random.of(&[None, Some(3e-11)]),
        dimensions,
        switch_power: 0.05,
        overlap: random.of(&[None, None, Some(Overlap::Full), Some(Overlap::ComputeMemory), Some(Overlap::None)]),
        no_filling: random.one_in(4),
    }
}

/// Peaks of 16 bits, and of the graph's words.
fn peaks_of_lanes(random: &mut Random, word: u64) -> Vec<(&'static str, f64)> {
    let mut peaks = vec![random.of(&[("fp16", 8e10), ("bf16", 4e10)])];
    match word {
        1 => peaks.extend(random.of(&[None, Some(("int8", 1.6e11))])),
        2 => peaks.extend(random.of(&[None, Some(("fp8", 1.6e11))])),
        4 => peaks.push(("fp32", random.of(&[1e10, 4e10]))),
        _ => peaks.push(("fp64", 1e10)),
    }
    peaks
}

fn waves(random: &mut Random, word: u64) -> Waves {
    let names: &[&str] = match word {
        1 => &["fp8", "int8"],
        2 => &["fp16", "bf16"],
        4 => &["fp32"],
        _ => &["fp64"],
    };
    let mut peaks: Vec<(&'static str, f64)> = Vec::new();
    for name in names {
        if peaks.is_empty() || random.one_in(2) {
            peaks.push((name, random.of(&[1e10, 2e10, 7e9])));
        }
    }
    if word != 2 {
        peaks.push(("bf16", 3e10));
    }
    let by_type = if random.one_in(2) { vec![(peaks[0].0, 0.55)] } else { Vec::new() };
    if random.one_in(2) {
        peaks.reverse();
    }
    let mut tiles = Vec::new();
    for _ in 0..random.whole(1, 3) {
        let (rows, columns) = (random.of(&[4, 8, 16]), random.of(&[4, 8, 12]));
        tiles.push(Tile { rows, columns, rate: random.of(&[1.0, 0.8]), splits: random.of(&[1, 1, 2, 4]) });
    }
    let burst = Burst { efficiency: 0.9, batched: 0.6, memory: 0.95, wait: 2e-9, at_once: random.whole(1, 3) };
    Waves {
        peaks,
        units: random.whole(1, 9),
        tiles,
        efficiency: 0.7,
        by_type,
        batched: 0.4,
        fill: random.of(&[0.0, 2e-8]),
        memory: 0.8,
        launch: 2e-6,
        burst: if random.one_in(2) { Some(burst) } else { None },
    }
}

/// Decisions drawn blindly: many break a rule.
pub fn decisions(random: &mut Random, graph: &Graph, machine: &Machine) -> Decisions {
    let mut uses = Vec::new();
    for d in &machine.dimensions {
        let mut mine = [1, 1, 1];
        let mut left = d.size;
        if random.one_in(3) {
            while left > 1 {
                let factor = (2..=left).find(|f| left.is_multiple_of(*f)).unwrap();
                mine[random.whole(0, 2) as usize] *= factor;
                left /= factor;
            }
        } else {
            mine[random.of(&[0, 0, 1, 2])] = left;
        }
        uses.push(mine);
    }
    let product = |which: usize| uses.iter().map(|u| u[which]).product::<u64>();
    let (t, p) = (product(0), product(1));
    let mut stages = vec![1; p as usize];
    for _ in p..graph.repeat.max(p) {
        let at = random.whole(0, p - 1) as usize;
        stages[at] += 1;
    }
    let mut strategy: Vec<Strategy> = Vec::new();
    for kernel in &graph.kernels {
        strategy.push(strategy_of(random, graph, kernel, &strategy, t));
    }
    let waves = matches!(machine.efficiency, Efficiency::Waves(_));
    let tiles = if waves { 1 } else { random.of(&[1, 1, 2, 3, 4]) };
    let on_chip = machine.dataflow && random.one_in(3);
    let mut partition = vec![0];
    let mut next = 0;
    for two in graph.kernels.windows(2) {
        let cut = (two[0].pass == Pass::Forward) != (two[1].pass == Pass::Forward);
        if cut || !machine.dataflow || random.one_in(2) {
            next += 1;
        }
        partition.push(next);
    }
    if random.one_in(10) {
        let last = partition.len() as u64 - 1;
        let (a, b) = (random.whole(0, last) as usize, random.whole(0, last) as usize);
        partition.swap(a, b);
    }
    Decisions { uses, stages, strategy, tiles, on_chip, partition }
}

fn strategy_of(random: &mut Random, graph: &Graph, kernel: &Kernel, so_far: &[Strategy], t: u64) -> Strategy {
    let mut open = open(graph, kernel, t);
    let trained = |k: &Kernel| k.pass == Pass::GradientOfWeight && k.weight_of == Some(so_far.len());
    if graph.kernels.iter().any(trained) && !random.one_in(20) {
        open.retain(|s| !matches!(s, Strategy::N | Strategy::Replicate));
    }
    if let Some(owner) = kernel.weight_of
        && !random.one_in(20)
    {
        open.retain(|s| finds_shards(kernel, *s, &graph.kernels[owner], so_far[owner]));
    }
    if open.is_empty() || random.one_in(60) {
        open = vec![Strategy::Outer, Strategy::M, Strategy::K, Strategy::N, Strategy::Replicate];
    }
    random.of(&open)
}
