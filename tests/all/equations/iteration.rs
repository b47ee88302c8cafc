//! Sections 9 to 11 of docs/model.md: iteration, DRAM, energy.

use super::case::{Collective, Machine, Scope, Topology};
use super::compute::{beta, peak, whole_flop};
use super::derive::{Model, Partition};
use super::network::{joules, per_byte, seconds, slowest};

/// Every figure by the name that the program gives it.
pub type Figures = Vec<(String, f64)>;

#[derive(Debug, Clone, Default)]
struct Stage {
    /// Repetitions of each block.
    units: Vec<u64>,
    pass: f64,
    hand_over: f64,
    gradient: f64,
    optimizer: f64,
    /// Bytes: weights, gradients, optimiser, activations, held, caches, live.
    bytes: [f64; 7],
}

const KINDS: [&str; 7] = ["weights", "gradients", "optimizer", "activations", "held", "caches", "live"];

impl Model<'_> {
    /// Repetitions of each block on each stage.
    fn units(&self) -> Vec<Vec<u64>> {
        let mut left = self.graph.blocks.clone();
        let mut out = Vec::new();
        for stage in &self.decisions.stages {
            let mut want = *stage;
            let mut units = vec![0; left.len()];
            for (block, there) in left.iter_mut().enumerate() {
                let take = want.min(*there);
                units[block] = take;
                *there -= take;
                want -= take;
            }
            out.push(units);
        }
        out
    }

    fn state(&self) -> f64 {
        if self.graph.word < 4 { 12.0 } else { 8.0 }
    }

    /// The blocks of all units, in order.
    fn chain(&self) -> Vec<usize> {
        let each = self.graph.blocks.iter().enumerate();
        each.flat_map(|(block, repeat)| std::iter::repeat_n(block, *repeat as usize)).collect()
    }

    /// Bytes of a microbatch and messages that cross the cut between a unit of block `above` and the next, of `below`.
    fn handed(&self, above: usize, below: usize) -> (f64, f64) {
        let (s, graph) = (&self.sharded, self.graph);
        let (mut bytes, mut messages) = (0.0, 0.0);
        for (x, tensor) in graph.tensors.iter().enumerate() {
            let made_in = tensor.maker.map(|m| graph.kernels[m].block);
            let backward = tensor.maker.or(tensor.carried_from.and_then(|f| graph.tensors[f].maker));
            let Some(backward) = backward.map(|m| self.is_backward(m)) else { continue };
            let (from, to) = if backward { (below, above) } else { (above, below) };
            let crosses = if from == to {
                let carried = tensor.carried_from.and_then(|f| graph.tensors[f].maker);
                carried.is_some_and(|m| graph.kernels[m].block == from)
            } else {
                made_in == Some(from)
            };
            let readers = s.readers[x].iter().filter(|(k, _)| graph.kernels[*k].block == to);
            let each = readers.map(|(k, slot)| s.plain(x, s.asked(*k, *slot)));
            let widest = each.fold(0.0, f64::max);
            if crosses && (above == below || widest > 0.0) {
                bytes += widest * graph.micro as f64;
                messages += 1.0;
            }
        }
        (bytes, messages)
    }

    /// The same for each cut between stages.
    fn cuts(&self) -> Vec<(f64, f64)> {
        let chain = self.chain();
        let mut at = 0;
        let mut out = Vec::new();
        for stage in &self.decisions.stages[..self.decisions.stages.len() - 1] {
            at += *stage as usize;
            out.push(self.handed(chain[at - 1], chain[at]));
        }
        out
    }

    /// Bytes that a unit keeps of a microbatch for the backward pass.
    fn kept(&self, block: usize) -> f64 {
        let (s, graph) = (&self.sharded, self.graph);
        let mut sum = 0.0;
        for (i, tensor) in graph.tensors.iter().enumerate() {
            let later: Vec<f64> = s.readers[i]
                .iter()
                .filter(|(k, _)| self.is_backward(*k) && graph.kernels[*k].block == block)
                .map(|(k, slot)| s.plain(i, s.asked(*k, *slot)))
                .collect();
            let here = tensor.maker.is_some_and(|m| graph.kernels[m].block == block);
            let made_by = tensor.maker.or(tensor.carried_from.and_then(|from| graph.tensors[from].maker));
            if later.is_empty() || made_by.is_none_or(|maker| self.is_backward(maker)) {
                continue;
            }
            sum += match tensor.maker.filter(|_| here) {
                Some(maker) => s.plain(i, s.made(maker)),
                None => later.into_iter().fold(0.0, f64::max),
            };
        }
        sum * graph.micro as f64
    }

    fn stages(&self, partitions: &[Partition]) -> Vec<Stage> {
        let graph = self.graph;
        let blocks = graph.blocks.len();
        let word = graph.word as f64;
        let beta = beta(self.machine, graph.training);
        let cuts = self.cuts();
        let mut out = Vec::new();
        for (i, units) in self.units().into_iter().enumerate() {
            let sum = |of: &dyn Fn(usize) -> f64| -> f64 { (0..blocks).map(|b| units[b] as f64 * of(b)).sum() };
            let time = |b: usize| partitions.iter().filter(|p| p.block == b).map(|p| p.time).sum::<f64>();
            let weights = sum(&|b| self.of_block(b, |k| if self.owns(k) { self.weight(k) } else { 0.0 }));
            let mut stage = Stage { pass: sum(&time), ..Stage::default() };
            let flying = (self.p - i as u64).min(self.b) as f64;
            stage.bytes[0] = weights;
            if graph.training {
                let gradients = sum(&|b| self.of_block(b, |k| self.gradient(k)));
                stage.gradient = seconds(Collective::AllReduce, gradients, &self.group(Scope::Data));
                stage.optimizer = weights / word * (2.0 * word + 2.0 * self.state()) / beta;
                stage.bytes[1] = gradients;
                stage.bytes[2] = weights / word * self.state();
                let kept = sum(&|b| self.kept(b));
                stage.bytes[3] = kept * flying;
            }
            stage.bytes[4] = graph.held / self.machine.chips() as f64;
            let samples = graph.batch.div_ceil(self.d) as f64;
            stage.bytes[5] = samples * sum(&|b| self.of_block(b, |k| self.cache(k)));
            // One unit's activations of one microbatch wait already.
            let waits = |b: usize| {
                let live = partitions.iter().filter(|p| p.block == b).map(|p| p.live).fold(0.0, f64::max);
                (live, if graph.training { self.kept(b) } else { 0.0 })
            };
            let at_work = (0..blocks).filter(|b| units[*b] > 0).map(waits);
            let (live, kept) = at_work.reduce(|a, b| if b.0 - b.1 > a.0 - a.1 { b } else { a }).unwrap();
            stage.bytes[6] = live;
            stage.bytes[3] -= kept;
            let ends = [i.checked_sub(1), Some(i)];
            for (bytes, messages) in ends.into_iter().flatten().filter_map(|c| cuts.get(c)) {
                for side in self.pipeline().iter().filter(|s| s.n > 1) {
                    let rate = side.link.bandwidth * side.link.efficiency;
                    stage.hand_over = stage.hand_over.max(messages * side.link.latency + bytes / rate);
                }
            }
            stage.units = units;
            out.push(stage);
        }
        out
    }

    /// Bytes of the DRAM of the chips that hold most.
    pub fn fullest(&self, partitions: &[Partition]) -> f64 {
        self.stages(partitions).iter().map(|s| s.bytes.iter().sum::<f64>()).fold(0.0, f64::max)
    }

    /// All figures of the plan.
    pub fn figures(&self) -> Figures {
        let partitions = self.partitions();
        let stages = self.stages(&partitions);
        let mut out: Figures = Vec::new();
        let mut put = |name: String, value: f64| out.push((name, value));
        for (i, p) in partitions.iter().enumerate() {
            for (name, value) in [
                ("compute_s", p.compute),
                ("dram_s", p.dram),
                ("network_s", p.network),
                ("overhead_s", p.launch),
                ("time_s", p.time),
                ("sram_bytes", p.sram),
                ("live_bytes", p.live),
                ("dram_bytes", p.bytes),
                ("flop", p.flop),
                ("link_j", p.joules),
            ] {
                put(format!("/partitions/{i}/{name}"), value);
            }
        }
        put("/layer_s".into(), partitions.iter().map(|p| p.time).sum());
        for (i, stage) in stages.iter().enumerate() {
            put(format!("/stages/{i}/pass_s"), stage.pass);
            put(format!("/stages/{i}/hand_over_s"), stage.hand_over);
            put(format!("/stages/{i}/gradient_s"), stage.gradient);
            put(format!("/stages/{i}/optimizer_s"), stage.optimizer);
            for (kind, bytes) in KINDS.iter().zip(stage.bytes) {
                put(format!("/stages/{i}/memory/{kind}"), bytes);
            }
        }
        let total = |s: &Stage| s.bytes.iter().sum::<f64>();
        let fullest = stages.iter().reduce(|a, b| if total(b) > total(a) { b } else { a }).unwrap();
        for (kind, bytes) in KINDS.iter().zip(fullest.bytes) {
            put(format!("/memory/{kind}"), bytes);
        }
        let largest =
            |of: &dyn Fn(&Stage) -> f64| stages.iter().reduce(|a, b| if of(b) > of(a) { b } else { a }).unwrap();
        let slowest = largest(&|s| s.pass + s.hand_over);
        let last = largest(&|s| s.gradient + s.optimizer);
        let again = self.b as f64 - 1.0;
        let sum = |of: &dyn Fn(&Stage) -> f64| stages.iter().map(of).sum::<f64>();
        let (passes, hand_overs) = (sum(&|s| s.pass), sum(&|s| s.hand_over));
        let iteration =
            passes + hand_overs + again * (slowest.pass + slowest.hand_over) + last.gradient + last.optimizer;
        for (name, value) in [
            ("work_s", self.b as f64 * slowest.pass),
            ("bubble_s", passes - slowest.pass),
            ("p2p_s", hand_overs + again * slowest.hand_over),
            ("gradient_s", last.gradient),
            ("optimizer_s", last.optimizer),
        ] {
            put(format!("/iteration/{name}"), value);
        }
        let graph = self.graph;
        let repeats = |k: usize| graph.blocks[graph.kernels[k].block] as f64;
        let flop: f64 = (0..graph.kernels.len()).map(|k| repeats(k) * whole_flop(&graph.kernels[k])).sum::<f64>()
            * graph.batch as f64;
        let chips = self.machine.chips() as f64;
        put("/flop_per_iteration".into(), flop);
        put("/utilization".into(), flop / (iteration * chips * peak(self.machine, graph.word)));
        self.energy(&partitions, iteration, &mut out);
        out
    }

    fn energy(&self, partitions: &[Partition], iteration: f64, out: &mut Figures) {
        let (graph, machine) = (self.graph, self.machine);
        let chips = machine.chips() as f64;
        let each = chips / self.p as f64;
        let b = self.b as f64;
        let passes = |of: &dyn Fn(&Partition) -> f64| -> f64 {
            partitions.iter().map(|p| graph.blocks[p.block] as f64 * of(p)).sum::<f64>() * b * each
        };
        let used_chips = match machine.per_flop {
            Some(joules) => passes(&|p| p.flop) * joules,
            None => passes(&|p| p.compute) * (1.0 - machine.idle) * machine.power,
        };
        let word = graph.word as f64;
        let mut bytes = passes(&|p| p.bytes);
        if graph.training {
            for (block, repeat) in graph.blocks.iter().enumerate() {
                let weights = self.of_block(block, |k| if self.owns(k) { self.weight(k) } else { 0.0 }) / word;
                bytes += each * *repeat as f64 * weights * (2.0 * word + 2.0 * self.state());
            }
        }
        let a_byte = machine.memory_per_byte.unwrap_or((1.0 - machine.memory_idle) * machine.memory_power / 1e9);
        let mut links = passes(&|p| p.joules);
        if let Some(slowest) = slowest(&self.pipeline()) {
            let handed: f64 = self.cuts().iter().map(|c| c.0).sum();
            links += b * each * handed * per_byte(slowest.link);
        }
        if graph.training {
            for (block, repeat) in graph.blocks.iter().enumerate() {
                let bytes = self.of_block(block, |k| self.gradient(k));
                let group = self.group(Scope::Data);
                links += each * *repeat as f64 * joules(Collective::AllReduce, bytes, &group);
            }
        }
        let (at_full, idle) = powers(machine);
        let kinds = ["chips", "memory", "links", "switches"];
        for (i, used) in [used_chips, bytes * a_byte, links, 0.0].into_iter().enumerate() {
            out.push((format!("/energy/used/{}", kinds[i]), used));
            out.push((format!("/energy/idle/{}", kinds[i]), idle[i] * iteration));
            out.push((format!("/power/{}", kinds[i]), at_full[i]));
        }
    }
}

/// Watts of chips, memories, links and switches at full use, and idle (docs/cost.md).
fn powers(machine: &Machine) -> ([f64; 4], [f64; 4]) {
    let chips = machine.chips() as f64;
    let memory = chips * machine.bandwidth / 1e9 * machine.memory_power;
    let (mut links, mut links_idle, mut ports) = (0.0, 0.0, 0.0);
    let (mut inner, mut torus) = (1.0, true);
    for (i, d) in machine.dimensions.iter().enumerate() {
        torus &= d.topology == Topology::Ring;
        let joined = if torus { chips } else { chips / inner };
        let size = d.size as f64;
        inner *= size;
        let (link, port) = match d.topology {
            Topology::Ring => (joined, 2.0 * joined / size),
            Topology::Switch => (joined, joined),
            Topology::Full => (joined * (size - 1.0), if i == 0 { 0.0 } else { joined * size }),
        };
        links += link * d.bandwidth / 1e9 * d.power;
        links_idle += link * d.bandwidth / 1e9 * d.power * d.idle;
        ports += port * d.bandwidth / 1e9;
    }
    let switches = if chips > 4.0 { ports * machine.switch_power } else { 0.0 };
    if chips == 1.0 {
        (links, links_idle) = (0.0, 0.0);
    }
    let chip = chips * machine.power;
    ([chip, memory, links, switches], [chip * machine.idle, memory * machine.memory_idle, links_idle, switches])
}
