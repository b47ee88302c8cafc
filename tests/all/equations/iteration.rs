//! Sections 9 to 11 of docs/model.md: iteration, DRAM, energy.

use super::case::{Collective, Machine, Scope, Topology};
use super::compute::{beta, peak, whole_flop};
use super::derive::{Model, Partition};
use super::network::{joules, seconds, slowest};

/// Every figure by the name that the program gives it.
pub type Figures = Vec<(String, f64)>;

#[derive(Debug, Clone, Copy, Default)]
struct Stage {
    pass: f64,
    hand_over: f64,
    gradient: f64,
    optimizer: f64,
    /// Bytes: weights, gradients, optimiser, activations, held, caches, live.
    bytes: [f64; 7],
}

const KINDS: [&str; 7] = ["weights", "gradients", "optimizer", "activations", "held", "caches", "live"];

impl Model<'_> {
    fn state(&self) -> f64 {
        if self.graph.word < 4 { 12.0 } else { 8.0 }
    }

    /// Bytes of a microbatch and messages that one stage hands to the next or gets back from it.
    fn handed(&self) -> (f64, f64) {
        let s = &self.sharded;
        let (mut bytes, mut messages) = (0.0, 0.0);
        for (x, tensor) in self.graph.tensors.iter().enumerate() {
            if tensor.carried_from.is_some() {
                let each = s.readers[x].iter().map(|(k, slot)| s.plain(x, s.asked(*k, *slot)));
                bytes += each.fold(0.0, f64::max) * self.graph.micro as f64;
                messages += 1.0;
            }
        }
        (bytes, messages)
    }

    /// Bytes that a layer keeps of a microbatch for the backward pass.
    fn kept(&self) -> f64 {
        let (s, graph) = (&self.sharded, self.graph);
        let mut sum = 0.0;
        for (i, tensor) in graph.tensors.iter().enumerate() {
            let later: Vec<f64> = s.readers[i]
                .iter()
                .filter(|(k, _)| self.is_backward(*k))
                .map(|(k, slot)| s.plain(i, s.asked(*k, *slot)))
                .collect();
            let made_by = tensor.maker.or(tensor.carried_from.and_then(|from| graph.tensors[from].maker));
            if later.is_empty() || made_by.is_none_or(|maker| self.is_backward(maker)) {
                continue;
            }
            sum += match tensor.maker {
                Some(maker) => s.plain(i, s.made(maker)),
                None => later.into_iter().fold(0.0, f64::max),
            };
        }
        sum * graph.micro as f64
    }

    fn stages(&self, partitions: &[Partition]) -> Vec<Stage> {
        let graph = self.graph;
        let word = graph.word as f64;
        let beta = beta(self.machine, graph.training);
        let layer: f64 = partitions.iter().map(|p| p.time).sum();
        let (weight, gradient) = (self.of_layer(|k| self.own_weight(k)), self.of_layer(|k| self.gradient(k)));
        let (handed, messages) = self.handed();
        let mut out = Vec::new();
        for (i, layers) in self.decisions.stages.iter().enumerate() {
            let layers = *layers as f64;
            let weights = layers * weight;
            let mut stage = Stage { pass: layers * layer, ..Stage::default() };
            let flying = (self.p - i as u64).min(self.b) as f64;
            stage.bytes[0] = weights;
            if graph.training {
                let gradients = layers * gradient;
                stage.gradient = seconds(Collective::AllReduce, gradients, &self.group(Scope::Data));
                stage.optimizer = weights / word * (2.0 * word + 2.0 * self.state()) / beta;
                stage.bytes[1] = gradients;
                stage.bytes[2] = weights / word * self.state();
                stage.bytes[3] = self.kept() * (layers * flying - 1.0);
            }
            stage.bytes[4] = graph.held / self.machine.chips() as f64;
            stage.bytes[5] = layers * self.of_layer(|k| self.cache(k)) * graph.batch.div_ceil(self.d) as f64;
            stage.bytes[6] = partitions.iter().map(|p| p.live).fold(0.0, f64::max);
            for side in self.pipeline().iter().filter(|s| s.n > 1) {
                stage.hand_over = stage.hand_over.max(messages * side.latency() + handed / side.bandwidth());
            }
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
                ("filling_s", p.filling),
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
        let samples = (graph.repeat * graph.batch) as f64;
        let flop = samples * self.of_layer(|k| whole_flop(&graph.kernels[k]));
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
        let layers = graph.repeat as f64;
        let passes = |of: &dyn Fn(&Partition) -> f64| partitions.iter().map(of).sum::<f64>() * layers * b * each;
        let used_chips = match machine.per_flop {
            Some(joules) => passes(&|p| p.flop) * joules,
            None => passes(&|p| p.compute) * (1.0 - machine.idle) * machine.power,
        };
        let word = graph.word as f64;
        let mut bytes = passes(&|p| p.bytes);
        if graph.training {
            let weights = self.of_layer(|k| self.own_weight(k)) / word;
            bytes += each * layers * weights * (2.0 * word + 2.0 * self.state());
        }
        let a_byte = machine.memory_per_byte.unwrap_or((1.0 - machine.memory_idle) * machine.memory_power / 1e9);
        let mut links = passes(&|p| p.joules);
        if let Some(slowest) = slowest(&self.pipeline()) {
            links += b * (self.p - 1) as f64 * each * self.handed().0 * slowest.per_byte();
        }
        if graph.training {
            let gradients = self.of_layer(|k| self.gradient(k));
            links += each * layers * joules(Collective::AllReduce, gradients, &self.group(Scope::Data));
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
            _ if d.size == 1 => (0.0, 0.0),
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
