//! Executions: time and memory of the stages derived again, stage by stage, from the passes of the blocks; and the passes of the free search from the
//! decisions of its plan, whose own figures [`super::derive`] derives. Of layers that run kernel by kernel the pass is the sum of the kernels of their mapping.

use super::{CheckError, derive};
use crate::execution::block::{BlockKey, BlockPass, Blocks};
use crate::execution::communication::IterationLinks;
use crate::execution::layer::{Kernels, Sums};
use crate::execution::machine::{Peers, Sent, Traffic};
use crate::execution::policy::layer_pass;
use crate::execution::schedule::ChipWeights;
use crate::execution::{Execution, Machine, Offload, Prediction, Schedule, StateBytes, Zero};
use crate::graph::{Phase, Use};
use crate::model::compute::{Tiling, tensor_bytes};
use crate::model::layout::{produced, required};
use crate::model::memory::of_layer;
use crate::plan::{PartitionFigures, Plan, TOLERANCE, agree};
use crate::system::price;
use crate::system::{Memory, System};
use crate::workload::language::{LanguageModel, is_gathering, is_of_expert};

/// Derives an execution's figures again and compares.
///
/// # Errors
/// [`CheckError`]: the first figure that differs by more than [`TOLERANCE`], or what a plan of blocks breaks.
pub fn verify(
    (system, machine): (&System, &Machine),
    model: &LanguageModel,
    prediction: &Prediction,
    plan: Option<&Plan>,
) -> Result<(), CheckError> {
    let e = &prediction.execution;
    let same = |what: &str, plan: f64, derived: f64| match agree(plan, derived, TOLERANCE) {
        true => Ok(()),
        false => Err(CheckError::Mismatch { what: what.into(), plan, derived }),
    };
    let line = Derived::of(machine, model, e, &prediction.blocks);
    same("iteration_s", prediction.time.total, line.iteration())?;
    same("parts of the iteration", prediction.time.total, prediction.time.parts())?;
    let fullest = (0..line.stages.len()).map(|i| line.bytes(i).0).fold(0.0, f64::max);
    same("bytes of the fullest stage", prediction.memory.device.total(), fullest)?;
    let idle = price::idle_power(system).times(line.iteration());
    let [chips, memory, links] = line.joules(system);
    for (what, said, derived) in [
        ("energy of chips", prediction.energy.parts().chips, idle.chips + chips),
        ("energy of memories", prediction.energy.parts().memory, idle.memory + memory),
        ("energy of links", prediction.energy.parts().links, idle.links + links),
        ("energy of switches", prediction.energy.parts().switches, idle.switches),
    ] {
        same(what, said, derived)?;
    }
    let second = (0..line.stages.len()).map(|i| line.bytes(i).1).fold(0.0, f64::max);
    same("bytes in the second tier", prediction.memory.second_tier, second)?;
    for (what, pass, with_experts) in
        [("layer", &prediction.blocks.plain, false), ("expert layer", &prediction.blocks.experts, true)]
    {
        let Some(mapping) = &pass.mapping else { continue };
        let key = BlockKey::of(e);
        let peak = machine.peak(model).map_err(|e| CheckError::Violations(vec![e]))?;
        let kernels = Kernels::new(machine, model, key.division, peak).by(mapping).layer(with_experts);
        let derived = layer_pass(machine, model, &key, with_experts, mapping, &Sums::of(&kernels));
        for (part, said, derived) in [
            ("forward_pass", pass.forward_pass, derived.forward_pass),
            ("backward_pass", pass.backward_pass, derived.backward_pass),
            ("kept", pass.kept, derived.kept),
            ("working", pass.working, derived.working),
        ] {
            same(&format!("{what}: {part}"), said, derived)?;
        }
    }
    let Some(plan) = plan else { return Ok(()) };
    super::verify(plan)?;
    same("tp of the blocks", e.tp as f64, plan.figures.tp as f64)?;
    same("micro_batch of the blocks", e.micro_batch as f64, plan.workload.micro_batch as f64)?;
    let tokens = plan.workload.tokens_per_sample.map_or(0.0, |tokens| tokens as f64);
    if system.shares_sram() {
        same("sram_bytes of the blocks", prediction.blocks.sram, plan.figures.sram_bytes())?;
    }
    same("tokens of the blocks", model.seq as f64 / e.cp as f64, tokens)?;
    let (exchanges, gathered) = (exchanged(machine, e, plan), gathered(machine, e, plan));
    for (what, said, derived) in
        of_plan(plan, &prediction.blocks, exchanges, &gathered).map_err(CheckError::Violations)?
    {
        same(&what, said, derived)?;
    }
    Ok(())
}

/// Seconds of the forward and the backward pass of each block in which replicas gather keys and values of a whole sample, and add up their gradients: of the largest tensor that such a kernel touches.
fn gathered(machine: &Machine, e: &Execution, plan: &Plan) -> Vec<[Sent; 2]> {
    let (w, d, rules) = (&plan.workload, &plan.decisions, plan.system.model.layouts);
    let mut sent = vec![[Sent::default(); 2]; w.blocks.len()];
    let line = machine.line(Traffic::Gather, Peers { chips: e.cp, apart: e.tp, of: e.chips() });
    for (k, kernel) in w.kernels.iter().enumerate().filter(|(_, kernel)| is_gathering(kernel)) {
        let made = w.tensors.iter().filter(|t| t.producer == Some(k)).map(|t| (t, produced(d.sharding[k], rules)));
        let read = w.tensors.iter().flat_map(|t| t.consumers.iter().map(move |u| (t, u)));
        let read = read.filter(|(_, u)| u.kernel == k);
        let read = read.map(|(t, u)| (t, required(kernel, u.slot, d.sharding[k], rules)));
        let Some((whole, layout)) = made.chain(read).max_by_key(|(t, _)| t.cols) else { continue };
        let bytes = tensor_bytes(whole, layout, e.tp, Tiling::WHOLE, w.word_bytes).0 * w.micro_batch as f64;
        sent[kernel.block][usize::from(kernel.phase != Phase::Forward)] += line.send(bytes, 0.0);
    }
    sent
}

/// Seconds of the forward and the backward pass in which replicas exchange what experts and the other kernels read of each other: each tensor once, for the pass that reads it first, as it
/// is made or as it is read.
fn exchanged(machine: &Machine, e: &Execution, plan: &Plan) -> [Sent; 2] {
    let (w, d, rules) = (&plan.workload, &plan.decisions, plan.system.model.layouts);
    let expert = |k: usize| is_of_expert(&w.kernels[k]);
    let mut sent = [Sent::default(); 2];
    if e.ep <= 1 {
        return sent;
    }
    let line = machine.line(Traffic::AllToAll, Peers { chips: e.ep, apart: e.tp, of: e.chips() });
    for tensor in &w.tensors {
        let Some(maker) = tensor.producer else { continue };
        let backward = |u: &Use| w.kernels[u.kernel].phase != Phase::Forward;
        let Some(reader) =
            tensor.consumers.iter().filter(|u| expert(u.kernel) != expert(maker)).min_by_key(|u| backward(u))
        else {
            continue;
        };
        let layouts = [
            produced(d.sharding[maker], rules),
            required(&w.kernels[reader.kernel], reader.slot, d.sharding[reader.kernel], rules),
        ];
        let bytes =
            layouts.map(|l| tensor_bytes(tensor, l, e.tp, Tiling::WHOLE, w.word_bytes).0 * w.micro_batch as f64);
        sent[usize::from(backward(reader))] += line.send(bytes[0].min(bytes[1]), 0.0);
    }
    sent
}

/// What a plan's decisions make of each block: figure, what the execution takes it for, and what follows.
fn of_plan(
    plan: &Plan,
    blocks: &Blocks,
    exchanges: [Sent; 2],
    gathered: &[[Sent; 2]],
) -> Result<Vec<(String, f64, f64)>, Vec<String>> {
    let (w, d) = (&plan.workload, &plan.decisions);
    let figures = derive(w, &plan.system, d)?;
    let mut out = Vec::new();
    for (b, block) in w.blocks.iter().enumerate() {
        let said = match block.name.as_str() {
            "embedding" => &blocks.embedding,
            "layers" => &blocks.plain,
            "head" => &blocks.head,
            _ => &blocks.experts,
        };
        let in_pass = |forward: bool| {
            let here = |p: usize| {
                let of = |k: &usize| d.partition[*k] == p && w.kernels[*k].block == b;
                (0..w.kernels.len()).find(of).is_some_and(|k| (w.kernels[k].phase == Phase::Forward) == forward)
            };
            figures.partitions.iter().enumerate().filter(|(p, _)| here(*p)).map(|(_, f)| f.time_s).sum::<f64>()
        };
        let [forward, backward] = match block.name.as_str() {
            "embedding" | "layers" | "head" => [Sent::default(); 2],
            _ => exchanges,
        };
        let [forward, backward] = [forward + gathered[b][0], backward + gathered[b][1]];
        let own = |p: usize| (0..w.kernels.len()).any(|k| d.partition[k] == p && w.kernels[k].block == b);
        let all = |of: fn(&PartitionFigures) -> f64| {
            figures.partitions.iter().enumerate().filter(|(p, _)| own(*p)).map(|(_, f)| of(f)).sum::<f64>()
        };
        out.push((format!("{}: arithmetic", block.name), said.arithmetic, all(|f| f.compute_s)));
        out.push((format!("{}: dram_bytes", block.name), said.dram_bytes, all(|f| f.dram_bytes)));
        let joules = all(|f| f.link_j) + (forward + backward).joules;
        out.push((format!("{}: joules of links", block.name), said.exposed.joules, joules));
        out.push((format!("{}: forward_pass", block.name), said.forward_pass, in_pass(true) + forward.seconds));
        out.push((format!("{}: backward_pass", block.name), said.backward_pass, in_pass(false) + backward.seconds));
        if block.name != "head" {
            let (graph, kernels) = w.of_block(b);
            let own: Vec<_> = kernels.iter().map(|k| d.sharding[*k]).collect();
            let chips = plan.system.chip_count();
            let kept = of_layer(&graph, &plan.system.model, &own, (figures.tp, figures.dp), chips).kept;
            out.push((format!("{}: kept", block.name), said.kept, kept));
        }
    }
    Ok(out)
}

/// One stage of a pipeline.
struct Stage {
    plain: f64,
    experts: f64,
    first: bool,
    last: bool,
}

impl Stage {
    fn sum(&self, blocks: &Blocks, of: impl Fn(&BlockPass) -> f64) -> f64 {
        let ends =
            if self.first { of(&blocks.embedding) } else { 0.0 } + if self.last { of(&blocks.head) } else { 0.0 };
        self.plain * of(&blocks.plain) + self.experts * of(&blocks.experts) + ends
    }
}

/// An execution as a list of stages.
struct Derived<'a> {
    machine: &'a Machine,
    e: &'a Execution,
    blocks: &'a Blocks,
    stages: Vec<Stage>,
    weights: ChipWeights,
    links: IterationLinks,
    state: StateBytes,
    /// Bytes that the optimiser moves for each weight.
    optimizer_bytes: f64,
    /// Bytes of a gradient in a reduction.
    reduced: f64,
    /// Weights that are trained where those of the model are not, of a layer and of the head.
    of_frozen: Option<(f64, f64)>,
    /// Messages between neighbouring stages for one microbatch.
    hand_overs: f64,
    microbatches: f64,
    replicas: f64,
}

impl<'a> Derived<'a> {
    fn of(machine: &'a Machine, model: &LanguageModel, e: &'a Execution, blocks: &'a Blocks) -> Self {
        let (pp, layers) = (e.pp as usize, model.layers);
        // Who has one layer more: stages between the ends first, then the first, then the last.
        let order: Vec<usize> = (1..pp.saturating_sub(1)).chain([0]).chain((pp > 1).then_some(pp - 1)).collect();
        let mut counts = vec![layers / e.pp; pp];
        order.iter().take((layers % e.pp) as usize).for_each(|i| counts[*i] += 1);
        let mut begin = 0;
        let stage = |(i, n): (usize, &u64)| {
            let experts = model.expert_layers_before(begin + n) - model.expert_layers_before(begin);
            begin += n;
            Stage { plain: (n - experts) as f64, experts: experts as f64, first: i == 0, last: i + 1 == pp }
        };
        let stages = counts.iter().enumerate().map(stage).collect();
        let state = StateBytes::training(&model.types);
        let own = model.types.gradients.bytes();
        let stated = machine.stack.gradient_reduction.map_or(own, |bytes| bytes.0);
        let reduced = if machine.best { stated.min(own) } else { stated };
        Self {
            machine,
            e,
            blocks,
            stages,
            weights: ChipWeights::of(model, e.tp, e.ep, e.pp),
            links: IterationLinks::of(machine, e.tp, e.cp, e.ep, e.dp, e.pp),
            reduced,
            of_frozen: model.trained_of_frozen().map(|(layer, head)| (layer / e.tp as f64, head / e.tp as f64)),
            hand_overs: if model.head_alone { 1.0 } else { 2.0 },
            optimizer_bytes: {
                let read = if model.types.master == model.types.weights { state.weights } else { 0.0 };
                let all = state.weights + read + model.types.gradients.bytes() + 2.0 * state.optimizer;
                machine.stack.optimizer_traffic.map_or(f64::INFINITY, |stated| stated.0).min(all)
            },
            state,
            microbatches: (model.global_batch / (e.dp * e.micro_batch)) as f64,
            replicas: (e.dp * e.cp) as f64,
        }
    }

    /// Weights of a stage, outside experts and in them.
    fn held(&self, s: &Stage) -> (f64, f64) {
        let w = &self.weights;
        let ends = if s.first { w.embedding } else { 0.0 } + if s.last { w.head } else { 0.0 };
        (s.plain * w.plain + s.experts * w.routed + ends, s.experts * w.experts)
    }

    /// Of those, what has gradients.
    fn trained(&self, s: &Stage) -> (f64, f64) {
        let Some((layer, head)) = self.of_frozen else { return self.held(s) };
        ((s.plain + s.experts) * layer + if s.last { head } else { 0.0 }, 0.0)
    }

    /// Of so many weights outside experts and in them what a chip has where it rests: whole, or its part, an expert's among the chips that have it.
    fn at_rest(&self, (dense, experts): (f64, f64)) -> f64 {
        match self.e.zero {
            Zero::Weights => (dense + experts * self.e.ep as f64) / self.replicas,
            _ => dense + experts,
        }
    }

    /// Bytes of a stage's gradients that a chip sends to where they are added up.
    fn gradients_at_rest(&self, s: &Stage) -> f64 {
        let (dense, experts) = self.trained(s);
        let divided = self.e.zero >= Zero::Gradients;
        let own = if divided { (dense + experts * self.e.ep as f64) / self.replicas } else { dense + experts };
        own * self.state.gradients
    }

    /// Whether the head alone is trained.
    fn alone(&self) -> bool {
        self.hand_overs < 2.0
    }

    /// Seconds to gather, or to scatter, so many bytes for each of some weights outside experts and in them.
    fn exchange(&self, (dense, experts): (f64, f64), bytes: f64) -> [Sent; 2] {
        [self.links.replicas.send(dense * bytes, 0.0), self.links.expert_replicas.send(experts * bytes, 0.0)]
    }

    fn hop(&self) -> f64 {
        if self.e.pp == 1 {
            return 0.0;
        }
        self.hand_overs * self.links.next.at(self.blocks.hand_over) + self.machine.stack.host_hand_over.0
    }

    /// What of a hand-over a stage waits for: where pieces hide them, what one piece's passes leave.
    fn waited_hop(&self, s: &Stage) -> f64 {
        if self.e.schedule != Schedule::Interleaved || !self.machine.stack.overlap_hand_over {
            return self.hop();
        }
        let piece = s.sum(self.blocks, BlockPass::total) / self.e.chunks as f64;
        (self.hop() - piece).max(0.0)
    }

    /// What of an exchange in `n` pieces is waited for beside `passes` passes of a stage, each of so many seconds with its idle time: the last piece at least, and what links that carry more
    /// than the time there is have no room for.
    fn waited(&self, exchange: [Sent; 2], n: f64, s: &Stage, (passes, each, forward): (f64, f64, bool)) -> f64 {
        let seconds = exchange[0].seconds + exchange[1].seconds;
        if !self.e.overlap_dp || n <= 1.0 || seconds == 0.0 {
            return seconds;
        }
        let work = passes * each;
        // What of the exchange is left when the work is over: what is longer than it, and what a link has beside what passes send over it.
        let mut left = seconds - work.max(0.0);
        for link in &self.links.shared {
            let mut time = work;
            for (g, share) in link.inside.iter().enumerate() {
                time -=
                    passes * share * s.sum(self.blocks, |p| if forward { p.forward_busy } else { p.backward_busy }[g]);
            }
            let carries = link.between[0] * exchange[0].carried + link.between[1] * exchange[1].carried;
            if carries > 0.0 {
                left = left.max(carries - time.max(0.0));
            }
        }
        let hidden = (seconds - left.max(0.0)).max(0.0) * (1.0 - 1.0 / n);
        seconds - hidden + self.machine.stack.hidden_delays.0 * hidden
    }

    /// Seconds of a stage and microbatch whose backward pass takes `backward`.
    fn pass(&self, s: &Stage, backward: f64) -> f64 {
        let e = self.e;
        let forward = s.sum(self.blocks, |p| p.forward_pass);
        let n = s.plain + s.experts;
        let mut seconds = forward + backward;
        if e.zero >= Zero::Gradients {
            let none = [Sent::default(); 2];
            let gather = if e.zero == Zero::Weights { self.exchange(self.held(s), self.state.weights) } else { none };
            let scatter = self.exchange(self.trained(s), self.reduced);
            // Behind a head that is trained alone no layer is gathered again.
            let (again, pieces) = match (self.alone(), e.zero == Zero::Weights) {
                (true, true) => (self.exchange(self.trained(s), self.state.weights), 1.0),
                (true, false) => (none, 1.0),
                (false, _) => (gather, n),
            };
            let after = [again[0] + scatter[0], again[1] + scatter[1]];
            seconds +=
                self.waited(gather, n, s, (1.0, forward, true)) + self.waited(after, pieces, s, (1.0, backward, false));
        }
        let mut moved = 0.0;
        if matches!(e.offload, Offload::Activations | Offload::All) {
            moved += 2.0 * (s.plain * self.blocks.plain.kept + s.experts * self.blocks.experts.kept);
        }
        if matches!(e.offload, Offload::Weights | Offload::State | Offload::All) {
            let (dense, experts) = self.held(s);
            moved += 2.0 * self.at_rest((dense, experts)) * self.state.weights;
        }
        if e.offload == Offload::State {
            moved += self.gradients_at_rest(s);
        }
        let way = self.machine.second_tier.map_or(f64::INFINITY, |(bandwidth, _)| bandwidth);
        seconds.max(moved / way) + self.waited_hop(s) + self.machine.stack.host_microbatch.0
    }

    fn iteration(&self) -> f64 {
        let (e, m, v) = (self.e, self.microbatches, self.e.chunks as f64);
        let stack = &self.machine.stack;
        let backward: Vec<f64> = self.stages.iter().map(|s| s.sum(self.blocks, |p| p.backward_pass)).collect();
        let times: Vec<f64> = self.stages.iter().zip(&backward).map(|(s, b)| self.pass(s, *b)).collect();
        let slowest = times.iter().copied().fold(0.0, f64::max);
        let others = times.iter().sum::<f64>() - slowest;
        let bubble = match e.schedule {
            Schedule::GPipe | Schedule::OneForwardOneBackward => others,
            Schedule::Interleaved => others / v,
            Schedule::ZeroBubble => {
                let put_off = |i: usize| {
                    let s = &self.stages[i];
                    s.sum(self.blocks, |p| p.weight).min((times[i] - self.pass(s, 0.0)) / 2.0)
                };
                let most = put_off(times.iter().position(|t| *t == slowest).unwrap_or(0));
                let fill = (0..times.len()).map(|i| put_off(i).min(most)).sum::<f64>() - most;
                let part = (m / (e.pp as f64 - 1.0).max(1.0)).min(1.0);
                (others - 2.0 * part * fill).max(0.0)
            }
        };
        let (mut reduction, mut step) = (0.0f64, 0.0f64);
        for ((s, backward), own) in self.stages.iter().zip(&backward).zip(&times) {
            let (dense, experts) = self.trained(s);
            let (gradients, weights) =
                [self.reduced, self.state.weights].map(|bytes| self.exchange((dense, experts), bytes)).into();
            let none = [Sent::default(); 2];
            let (back, forth) = match e.zero {
                Zero::Off => (gradients.map(|sent| 2.0 * sent), none),
                Zero::Optimizer => (gradients, weights),
                Zero::Gradients => (none, weights),
                Zero::Weights => (none, none),
            };
            let layers = if self.alone() { 1.0 } else { s.plain + s.experts };
            let forward = s.sum(self.blocks, |p| p.forward_pass);
            let waited = match e.schedule {
                // A group of microbatches on its way through all chunks, at the pace of the slowest stage.
                Schedule::Interleaved => {
                    let both = back != none && forth != none;
                    let group = (e.pp as f64).min(if both { m / 2.0 } else { m });
                    let (n, idle) = (layers.max(v), slowest - own);
                    self.waited(back, n, s, (group, idle + backward, false))
                        + self.waited(forth, n, s, (group, idle + forward, true))
                }
                _ => {
                    self.waited(back, layers, s, (1.0, *backward, false))
                        + self.waited(forth, layers, s, (1.0, forward, true))
                }
            };
            reduction = reduction.max(waited);
            let own = match e.zero {
                Zero::Off => dense + experts,
                _ => dense / self.replicas + experts * e.ep as f64 / self.replicas,
            };
            let mut seconds = own * self.optimizer_bytes / self.machine.kernels.bandwidth();
            if let (Some((way, _)), true) = (self.machine.second_tier, self.sends_states()) {
                seconds = seconds.max(2.0 * own * self.state.optimizer / way);
            }
            step = step.max(seconds);
        }
        let tied = if e.pp > 1 { self.links.ends.at(self.weights.tied * self.reduced) } else { 0.0 };
        let first = times.iter().position(|t| *t == slowest).unwrap_or(0);
        let hop = self.waited_hop(&self.stages[first]);
        m * (slowest + (v - 1.0) * hop) + bubble + reduction + tied + step + stack.host_iteration.0
    }

    /// Joules that chips, memories and links use beyond what they draw idle: every stage by itself, what each of its chips does.
    fn joules(&self, system: &System) -> [f64; 3] {
        let (e, m) = (self.e, self.microbatches);
        let (chip, memory) = (&system.chip.0, &system.memory.0);
        let round = |x: f64| system.model.precision.round(x);
        let of_memory = |memory: &Memory| match memory.energy_per_byte {
            Some(stated) => stated.0,
            None => round(memory.power.0) * (1.0 - memory.idle_share.0) * 1e-9,
        };
        let byte_j = of_memory(memory);
        let second_j = system.offload.as_ref().map_or(0.0, |memory| of_memory(&memory.0));
        let traffic = self.optimizer_bytes;
        let mut out = [0.0; 3];
        for (i, s) in self.stages.iter().enumerate() {
            let busy = match chip.energy_per_flop {
                Some(stated) => s.sum(self.blocks, |p| p.flop) * stated.0,
                None => s.sum(self.blocks, |p| p.arithmetic) * (1.0 - chip.idle_share.0) * round(chip.power.0),
            };
            let (held, held_experts) = self.held(s);
            let (dense, experts) = self.trained(s);
            let sent = |bytes: f64| {
                self.links.replicas.byte_j * dense * bytes + self.links.expert_replicas.byte_j * experts * bytes
            };
            let weights = self.state.weights;
            let whole = self.links.replicas.byte_j * held + self.links.expert_replicas.byte_j * held_experts;
            let gathered = weights * whole + if self.alone() { sent(weights) } else { weights * whole };
            let between_replicas = match e.zero {
                Zero::Off => 2.0 * sent(self.reduced),
                Zero::Optimizer => sent(self.reduced + weights),
                Zero::Gradients => m * sent(self.reduced) + sent(weights),
                Zero::Weights => m * (sent(self.reduced) + gathered),
            };
            // Each chunk but the first is handed its input, and each but the last its output's gradient.
            let first = if i == 0 { e.chunks - 1 } else { e.chunks } as f64;
            let last = if i + 1 == self.stages.len() { e.chunks - 1 } else { e.chunks } as f64;
            let handed = self.hand_overs / 2.0 * (first + last) * self.blocks.hand_over * self.links.next.byte_j;
            let tied = if e.pp > 1 && (s.first || s.last) {
                self.links.ends.byte_j * self.weights.tied * self.reduced
            } else {
                0.0
            };
            let divided = if e.zero == Zero::Off { 1.0 } else { self.replicas };
            let own =
                if e.zero == Zero::Off { dense + experts } else { dense / divided + experts * e.ep as f64 / divided };
            let mut moved = 0.0;
            if matches!(e.offload, Offload::Activations | Offload::All) {
                moved += 2.0 * m * (s.plain * self.blocks.plain.kept + s.experts * self.blocks.experts.kept);
            }
            if matches!(e.offload, Offload::Weights | Offload::State | Offload::All) {
                moved += 2.0 * m * self.at_rest((held, held_experts)) * self.state.weights;
            }
            if e.offload == Offload::State {
                moved += m * self.gradients_at_rest(s);
            }
            if self.sends_states() {
                moved += 2.0 * own * self.state.optimizer;
            }
            let stage_chips = (e.tp * e.cp * e.dp) as f64;
            out[0] += stage_chips * m * busy;
            out[1] +=
                stage_chips * ((m * s.sum(self.blocks, |p| p.dram_bytes) + own * traffic) * byte_j + moved * second_j);
            out[2] += stage_chips * (m * (s.sum(self.blocks, |p| p.exposed.joules) + handed) + between_replicas + tied);
        }
        out
    }

    fn sends_states(&self) -> bool {
        matches!(self.e.offload, Offload::Optimizer | Offload::Weights | Offload::State | Offload::All)
    }

    /// Bytes of a stage on the chip and in the second tier.
    fn bytes(&self, i: usize) -> (f64, f64) {
        let (e, s, b) = (self.e, &self.stages[i], self.blocks);
        let part = |from: Zero, (dense, experts): (f64, f64), bytes: f64| match e.zero >= from {
            true => bytes * (dense / self.replicas + experts * e.ep as f64 / self.replicas),
            false => bytes * (dense + experts),
        };
        let behind = (e.pp as usize - i) as f64;
        // Under zero bubble stage i has the weights' gradients of i microbatches before it, whose layers it holds whole, beside the one at work.
        let late = if e.schedule == Schedule::ZeroBubble { (i as f64).min(self.microbatches - 1.0) } else { 0.0 };
        let passes = match e.schedule {
            Schedule::GPipe => self.microbatches,
            Schedule::OneForwardOneBackward => behind,
            Schedule::ZeroBubble => behind.min(self.microbatches - late),
            Schedule::Interleaved => {
                let (p, v) = (e.pp as f64, e.chunks as f64);
                (2.0 * (behind - 1.0) + (v - 1.0) * p + 1.0) / v
            }
        };
        let kept = s.sum(b, |p| p.kept) - if s.last { b.head.kept } else { 0.0 };
        let mut activations = passes.min(self.microbatches) * kept;
        let working = [(s.plain, &b.plain), (s.experts, &b.experts)].into_iter().filter(|(n, _)| *n > 0.0);
        let whole = s.plain * (b.plain.kept + b.plain.working) + s.experts * (b.experts.kept + b.experts.working);
        let working = working.map(|(_, p)| p.working).fold(0.0, f64::max) + late * whole + b.sram;
        let layer = 2.0 * self.weights.layer() * self.state.weights;
        let mut buffers = if e.pp > 1 { 2.0 * b.hand_over } else { 0.0 };
        buffers += if e.sequence_parallel { b.hidden * e.tp as f64 } else { 0.0 };
        let ends = [(s.first, self.weights.embedding), (s.last, self.weights.head)];
        let end = ends.into_iter().filter(|(there, _)| *there).map(|(_, n)| n).fold(0.0, f64::max);
        if e.zero == Zero::Weights && self.replicas > 1.0 {
            let largest = match self.of_frozen {
                None => self.weights.layer().max(end),
                Some((layer, head)) => layer.max(if s.last { head } else { 0.0 }),
            };
            buffers += layer + end * self.state.weights + largest * self.reduced;
        }
        let (mut weights, mut states) = (
            part(Zero::Weights, self.held(s), self.state.weights),
            part(Zero::Optimizer, self.trained(s), self.state.optimizer),
        );
        let mut away = 0.0;
        if self.sends_states() {
            away += std::mem::take(&mut states);
        }
        if matches!(e.offload, Offload::Weights | Offload::State | Offload::All) {
            let stays = weights.min(layer.max(end * self.state.weights));
            away += weights - stays;
            weights = stays;
        }
        if matches!(e.offload, Offload::Activations | Offload::All) {
            let stays = activations.min(2.0 * b.plain.kept.max(b.experts.kept));
            away += activations - stays;
            activations = stays;
        }
        let scores = if e.schedule == Schedule::GPipe { self.microbatches } else { 1.0 + late };
        let head = if s.last { scores * b.head.kept } else { 0.0 };
        let mut gradients = part(Zero::Gradients, self.trained(s), self.state.gradients);
        if e.offload == Offload::State {
            let stays = gradients.min((2.0 * self.weights.layer()).max(end) * self.state.gradients);
            away += gradients - stays;
            gradients = stays;
        }
        let stack = &self.machine.stack;
        if stack.frees_gradients && e.pp == 1 && self.microbatches <= 1.0 {
            // Either what the backward pass begins with or what it ends with.
            gradients = gradients.max(activations + head) - (activations + head);
        }
        let comes_and_goes = activations + working + head + buffers;
        let reserve = stack.memory_reserve.0 + stack.fragments.0 * comes_and_goes;
        (weights + gradients + states + activations + working + head + buffers + reserve, away)
    }
}
