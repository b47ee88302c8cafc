//! From a microbatch to an iteration: stages, bubble, reduction of gradients, optimiser.
//!
//! Stages get layers / pp layers each; what is left over goes one each to stages from the second on, so that the first (embedding) and the last
//! (head) are not the longer ones while others can be. With T_i the time of stage i for one microbatch, both passes, and hand-overs:
//!
//! | schedule | iteration of m microbatches |
//! |---|---|
//! | GPipe (Huang et al. 2018, arXiv 1811.06965), 1F1B (Narayanan et al. 2021, arXiv 2104.04473, section 2.2) | m max T + (sum T - max T) |
//! | interleaved, v chunks (the same, 2.2.2) | m (max T + (v - 1) hand-overs) + (sum T - max T)/v, hand-overs less the chunk's passes beside them where the software overlaps them |
//! | zero bubble (Qi et al. 2023, arXiv 2401.10241, table 2, ZB-H1) | m max T + sum (T - 2 W) - max (T - 2 W), W gradients of weights, at least m max T |
//!
//! W is the time of a stage's gradients of weights, at most that of the slowest stage's, and at most half of what the backward pass adds to the stage (nothing where traffic is slower), so that a slower pass never
//! shortens the iteration; with m < p - 1 microbatches m/(p - 1) of it fills. With equal stages these are the papers' (p - 1)(F + B), (p - 1)(F + B)/v and (p - 1)(F + B - 2 W). Then follow reduction of gradients among replicas,
//! sum of a tied embedding's gradients between first and last stage, optimiser, and the host's share of an iteration: each of the stage for which it is longest.
//! Collectives of replicas that run beside work have of each link that collectives inside the work use too what these leave ([`IterationLinks::room`]): of a pass of 10 s with 4 s of
//! all-reduces on the only switch 6 s, waited for or not; hand-overs are not among them. They delay the work by the stack's `hidden_delays`. Offloaded bytes travel beside the stage's work; what does not fit beside it adds to the stage.

use super::block::{BlockPass, Blocks};
use super::communication::{Exchange, IterationLinks, beside};
use super::energy::Power;
use super::machine::Machine;
use super::spec::{Execution, Offload, Schedule, Zero};
use super::state::StateBytes;
use crate::workload::language::LanguageModel;

/// Share of a sum over stages that rounding may take.
const OF_SUMS: f64 = 1e-12;

/// Neighbouring stages with the same content.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageKind {
    /// Index of the first of them: the one with most microbatches in flight.
    pub first: u64,
    /// How many they are.
    pub count: f64,
    /// Layers with plain perceptrons of each.
    pub plain: f64,
    /// Layers with experts of each.
    pub experts: f64,
    /// Layers of each that see all tokens.
    pub full: f64,
    /// 1 where the embedding is.
    pub embedding: f64,
    /// 1 where the head is.
    pub head: f64,
}

impl StageKind {
    /// Layers of each of them.
    pub fn layers(&self) -> f64 {
        self.plain + self.experts
    }

    /// Seconds in which bytes of collectives inside its passes keep links busy: of its blocks, a pass of each.
    pub fn busy(&self, block: &Blocks, of: impl Fn(&BlockPass) -> [f64; 3]) -> [f64; 3] {
        [0, 1, 2].map(|i| self.sum(block, |p| of(p)[i]))
    }

    /// A part of the passes of its blocks.
    pub fn sum(&self, block: &Blocks, of: impl Fn(&BlockPass) -> f64) -> f64 {
        self.plain * of(&block.plain)
            + self.experts * of(&block.experts)
            + self.embedding * of(&block.embedding)
            + self.head * of(&block.head)
    }
}

/// The stages of a pipeline of `pp`, in order, equal neighbours as one entry.
pub fn stages(model: &LanguageModel, pp: u64) -> Vec<StageKind> {
    let pp = pp.max(1);
    let (each, rest) = (model.layers / pp, model.layers % pp);
    let mut out: Vec<StageKind> = Vec::new();
    let mut begin = 0u64;
    for i in 0..pp {
        // From the second on; the first comes before the last if all between have one more.
        let rank = match i {
            0 => pp.saturating_sub(2),
            _ if i == pp - 1 => i,
            _ => i - 1,
        };
        let end = begin + each + u64::from(rank < rest);
        let experts = model.expert_layers_before(end) - model.expert_layers_before(begin);
        let kind = StageKind {
            first: i,
            count: 1.0,
            plain: (end - begin - experts) as f64,
            experts: experts as f64,
            full: (model.full_layers_before(end) - model.full_layers_before(begin)) as f64,
            embedding: f64::from(u8::from(i == 0)),
            head: f64::from(u8::from(i == pp - 1)),
        };
        begin = end;
        match out.last_mut() {
            Some(last) if StageKind { first: last.first, count: last.count, ..kind } == *last => last.count += 1.0,
            _ => out.push(kind),
        }
    }
    out
}

/// Weights on one chip by part, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ChipWeights {
    /// A layer with a plain perceptron.
    pub plain: f64,
    /// A layer with experts, without the experts.
    pub routed: f64,
    /// The experts of a layer.
    pub experts: f64,
    /// Embedding and positions.
    pub embedding: f64,
    /// Head and last norm; in a pipeline a tied embedding is there again.
    pub head: f64,
    /// Of `head`, what is tied to the first stage's embedding and trained.
    pub tied: f64,
    /// What is trained where the model is frozen, of a layer (its adapters) and of the head; `None` where all is.
    pub of_frozen: Option<(f64, f64)>,
}

impl ChipWeights {
    /// Of a model divided among tp chips, experts among ep groups besides.
    pub fn of(model: &LanguageModel, tp: u64, ep: u64, pp: u64) -> Self {
        let (t, p) = (tp as f64, model.parameters());
        let share = model.key_value_share(tp);
        let layer = |with_experts: bool| {
            let l = model.layer_parameters(with_experts);
            let divided = l.perceptron + l.biases + l.expert * l.shared_experts;
            let adapters = model.adapter_parameters();
            (
                l.attention_on(t, share) + (divided + adapters) / t + l.norms + l.router,
                l.expert * l.experts / (t * ep as f64),
            )
        };
        let plain = if model.dense_layers() > 0 { layer(false).0 } else { 0.0 };
        let (routed, experts) = if model.expert_layers() > 0 { layer(true) } else { (0.0, 0.0) };
        let tied = if model.tied_embeddings && pp > 1 {
            (model.head_outputs() * model.embedding_width()) as f64 / t
        } else {
            0.0
        };
        Self {
            plain,
            routed,
            experts,
            embedding: p.embedding / t + p.positions + p.embedding_norm,
            head: p.head / t + p.final_norm + tied,
            tied: if model.frozen() { 0.0 } else { tied },
            of_frozen: model.trained_of_frozen().map(|(layer, head)| (layer / t, head / t)),
        }
    }

    /// Of a stage: outside experts, and experts.
    pub fn of_stage(&self, s: &StageKind) -> (f64, f64) {
        let ends = s.embedding * self.embedding + s.head * self.head;
        (s.plain * self.plain + s.experts * self.routed + ends, s.experts * self.experts)
    }

    /// Of a stage, those that have gradients.
    pub fn trained(&self, s: &StageKind) -> (f64, f64) {
        self.of_frozen.map_or_else(|| self.of_stage(s), |(layer, head)| (s.layers() * layer + s.head * head, 0.0))
    }

    /// Of a stage, those that software gathers again for a backward pass: where the head alone is trained, the head's.
    pub fn read_backward(&self, s: &StageKind) -> (f64, f64) {
        if self.head_alone() { self.trained(s) } else { self.of_stage(s) }
    }

    /// In how many pieces the gradients of a stage come, one after another.
    pub fn pieces(&self, s: &StageKind) -> f64 {
        if self.head_alone() { 1.0 } else { s.layers() }
    }

    fn head_alone(&self) -> bool {
        self.of_frozen.is_some_and(|(_, head)| head > 0.0)
    }

    /// Of a stage, those that one chip renews: its part where states are divided among replicas.
    pub fn renewed(&self, s: &StageKind, e: &Execution, divided: bool) -> f64 {
        let (dense, experts) = self.trained(s);
        let replicas = (e.dp * e.cp) as f64;
        if divided { dense / replicas + experts * e.ep as f64 / replicas } else { dense + experts }
    }

    /// The heaviest layer.
    pub fn layer(&self) -> f64 {
        self.plain.max(self.routed + self.experts)
    }
}

/// Constants of a model and machine that every iteration needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constants {
    /// Bytes of a parameter by kind.
    pub state: StateBytes,
    /// Bytes of a gradient where it is reduced.
    pub reduced: f64,
    /// Seconds of the optimiser for one weight.
    pub optimizer: f64,
    /// Bytes of its traffic for one weight.
    pub optimizer_bytes: f64,
    /// Hand-overs between neighbouring stages for one microbatch: forward, and backward where something is trained before the head.
    pub hand_overs: f64,
    /// What the parts of the system draw.
    pub power: Power,
    /// What a second of a collective among replicas beside work delays that work by.
    pub hidden_delays: f64,
    /// Whether an interleaved schedule hands over beside the passes of other pieces.
    pub overlap_hand_over: bool,
    /// Seconds of the host for a microbatch, for a hand-over, for an iteration.
    pub host: [f64; 3],
    /// Bytes/s to the second tier; infinite without one.
    pub second_tier: f64,
}

impl Constants {
    /// Of a model on a machine.
    pub fn of(machine: &Machine, model: &LanguageModel) -> Self {
        let stack = &machine.stack;
        let state = StateBytes::training(&model.types);
        Self {
            state,
            reduced: machine.reduced_bytes(&model.types),
            optimizer: machine.optimizer_bytes(&model.types) / machine.kernels.bandwidth(),
            optimizer_bytes: machine.optimizer_bytes(&model.types),
            hand_overs: if model.head_alone { 1.0 } else { 2.0 },
            power: machine.power,
            hidden_delays: stack.hidden_delays.0,
            overlap_hand_over: stack.overlap_hand_over,
            host: [stack.host_microbatch.0, stack.host_hand_over.0, stack.host_iteration.0],
            second_tier: machine.second_tier.map_or(f64::INFINITY, |(bandwidth, _)| bandwidth),
        }
    }
}

/// Seconds of an iteration: parts that add up to `total`, and what is hidden beside them.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize)]
pub struct IterationTime {
    /// The iteration.
    pub total: f64,
    /// Kernels of forward passes.
    pub forward: f64,
    /// Kernels of backward passes.
    pub backward: f64,
    /// Kernels run again.
    pub recompute: f64,
    /// Tensor-parallel communication that is waited for.
    pub tp: f64,
    /// Context-parallel communication that is waited for.
    pub cp: f64,
    /// Expert-parallel communication that is waited for.
    pub ep: f64,
    /// Hand-overs between stages.
    pub hand_over: f64,
    /// Stages that wait for others: filling and draining.
    pub bubble: f64,
    /// Data-parallel communication that is waited for (ZeRO's gathers, reduction of gradients, tied embedding).
    pub dp: f64,
    /// The optimiser.
    pub optimizer: f64,
    /// Host code that the device waits for.
    pub host: f64,
    /// Traffic to the second tier that is waited for.
    pub offload: f64,
    /// Communication of all kinds that runs beside other work.
    pub hidden: f64,
}

impl IterationTime {
    /// The sum of the parts.
    pub fn parts(&self) -> f64 {
        let compute = self.forward + self.backward + self.recompute;
        let communication = self.tp + self.cp + self.ep + self.hand_over + self.dp;
        compute + communication + self.bubble + self.optimizer + self.host + self.offload
    }
}

/// One stage and microbatch.
#[derive(Clone, Copy, Default)]
struct StageTime {
    total: f64,
    hop: f64,
    weight: f64,
    forward: f64,
    backward: f64,
    dp: f64,
    hidden: f64,
    offload: f64,
}

/// Data-parallel communication of `n` layers that takes `seconds` in all, beside `work`, which it delays by `delays` of what is hidden: the last layer's waits.
/// What is waited for, delays included, and what is hidden.
fn waits(seconds: f64, n: f64, work: f64, overlap: bool, delays: f64) -> (f64, f64) {
    if !overlap || n <= 1.0 {
        return (seconds, 0.0);
    }
    let (_, hidden) = beside(seconds * (1.0 - 1.0 / n), work * (1.0 - 1.0 / n));
    (seconds - hidden * (1.0 - delays), hidden)
}

/// What an iteration is made of, before its parts are told apart.
#[derive(Clone, Copy, Default)]
struct Outline {
    slowest: StageTime,
    at: usize,
    hop: f64,
    chunk_hops: f64,
    bubble: f64,
    reduction: f64,
    reduction_hidden: f64,
    ends: f64,
    optimizer: f64,
    total: f64,
}

/// A cell of the search: everything but the tail of an execution.
#[derive(Debug, Clone, Copy)]
pub struct Pipeline<'a> {
    /// Constants of model and machine.
    pub constants: &'a Constants,
    /// Times and kept bytes of a microbatch.
    pub block: &'a Blocks,
    /// Weights of a chip.
    pub weights: &'a ChipWeights,
    /// Links of the degrees.
    pub links: &'a IterationLinks,
    /// Stages.
    pub kinds: &'a [StageKind],
    /// Microbatches of a replica and iteration.
    pub microbatches: f64,
}

impl Pipeline<'_> {
    fn outline(&self, e: &Execution) -> Outline {
        let (c, m, v) = (self.constants, self.microbatches, e.chunks as f64);
        let hop = self.hop(e);
        let mut out = Outline { slowest: StageTime { total: -1.0, ..StageTime::default() }, hop, ..Outline::default() };
        let stages: Vec<StageTime> = self.kinds.iter().map(|s| self.stage(s, e, hop)).collect();
        let mut sum = 0.0;
        for (i, (s, stage)) in self.kinds.iter().zip(&stages).enumerate() {
            sum += s.count * stage.total;
            if stage.total > out.slowest.total {
                (out.slowest, out.at) = (*stage, i);
            }
        }
        for (s, stage) in self.kinds.iter().zip(&stages) {
            let (once, hidden, step) = self.after(s, e, stage, out.slowest.total);
            if once > out.reduction {
                (out.reduction, out.reduction_hidden) = (once, hidden);
            }
            out.optimizer = out.optimizer.max(step);
        }
        let others = sum - out.slowest.total;
        out.bubble = match e.schedule {
            Schedule::Interleaved => others / v,
            Schedule::ZeroBubble => (others - 2.0 * self.filled(e) * self.fillers(&stages, &out.slowest)).max(0.0),
            Schedule::GPipe | Schedule::OneForwardOneBackward => others,
        };
        out.ends = if e.pp > 1 { self.links.ends.at(self.weights.tied * c.reduced) } else { 0.0 };
        out.chunk_hops = (v - 1.0) * out.slowest.hop;
        let steady = m * (out.slowest.total + out.chunk_hops);
        out.total = steady + out.bubble + out.reduction + out.ends + out.optimizer + c.host[2];
        out
    }

    /// One stage and microbatch.
    fn stage(&self, s: &StageKind, e: &Execution, hop: f64) -> StageTime {
        let (c, links) = (self.constants, self.links);
        let forward = s.sum(self.block, |p| p.forward_pass);
        let backward = s.sum(self.block, |p| p.backward_pass);
        let hop = self.waited_hop(e, hop, forward + backward);
        // A stage whose backward pass takes `backward`: waiting for replicas, for the second tier, and what is hidden.
        let around = |backward: f64| {
            let (mut dp, mut hidden, mut offload) = (0.0, 0.0, 0.0);
            if e.zero >= Zero::Gradients {
                let w = self.weights;
                let scatter = links.among_replicas(w.trained(s), c.reduced);
                let gathers = |held| match e.zero {
                    Zero::Weights => links.among_replicas(held, c.state.weights),
                    _ => Exchange::default(),
                };
                let (gather, then) = (gathers(w.of_stage(s)), gathers(w.read_backward(s)) + scatter);
                let [before, after] = self.busy(s);
                let room = links.room(gather, forward, before);
                let (first, beside_first) = waits(gather.seconds(), s.layers(), room, e.overlap_dp, c.hidden_delays);
                let room = links.room(then, backward, after);
                let (then, beside_then) = waits(then.seconds(), w.pieces(s), room, e.overlap_dp, c.hidden_delays);
                dp = first + then;
                hidden = beside_first + beside_then;
            }
            if e.offload != Offload::None {
                let seconds = self.offloaded(e, s) / c.second_tier;
                // It goes on while the stage waits for replicas: another link.
                (offload, _) = beside(seconds, forward + backward + dp);
                hidden += seconds - offload;
            }
            (forward + backward + hop + c.host[0] + dp + offload, dp, hidden, offload)
        };
        let (total, dp, hidden, offload) = around(backward);
        let mut weight = 0.0;
        if e.schedule == Schedule::ZeroBubble {
            let own = s.sum(self.block, |p| p.weight);
            weight = own.min((total - around(0.0).0) / 2.0);
        }
        StageTime { total, hop, weight, forward, backward, dp, hidden, offload }
    }

    /// Seconds in which bytes of collectives inside a stage's forward and backward pass keep links busy.
    fn busy(&self, s: &StageKind) -> [[f64; 3]; 2] {
        [s.busy(self.block, |p| p.forward_busy), s.busy(self.block, |p| p.backward_busy)]
    }

    /// Bytes that a chip of a stage sends to the second tier and gets back in a microbatch.
    pub(super) fn offloaded(&self, e: &Execution, s: &StageKind) -> f64 {
        let kept = s.plain * self.block.plain.kept + s.experts * self.block.experts.kept;
        let activations = if e.offload.has_activations() { 2.0 * kept } else { 0.0 };
        let replicas = (e.dp * e.cp) as f64;
        // Of an expert there are fewer replicas than of what all chips hold.
        let part = |(dense, experts): (f64, f64), from: Zero, bytes: f64| match e.zero >= from {
            true => (dense + experts * e.ep.max(1) as f64) / replicas * bytes,
            false => (dense + experts) * bytes,
        };
        let weights = part(self.weights.of_stage(s), Zero::Weights, self.constants.state.weights);
        // Both passes read weights; gradients go there once, and are added up there.
        let gradients = part(self.weights.trained(s), Zero::Gradients, self.constants.state.gradients);
        activations
            + if e.offload.has_weights() { 2.0 * weights } else { 0.0 }
            + if e.offload == Offload::State { gradients } else { 0.0 }
    }

    /// Bytes of states that come from the second tier and go back in an iteration, of so many weights.
    pub(super) fn states_sent(&self, e: &Execution, own: f64) -> f64 {
        if e.offload.has_optimizer() { 2.0 * own * self.constants.state.optimizer } else { 0.0 }
    }

    /// What follows the last microbatch: reduction of gradients waited for and hidden, and the optimiser.
    fn after(&self, s: &StageKind, e: &Execution, stage: &StageTime, pace: f64) -> (f64, f64, f64) {
        let (c, links, microbatches) = (self.constants, self.links, self.microbatches);
        // What is not trained has no gradients and is not renewed.
        let at = |bytes: f64| links.among_replicas(self.weights.trained(s), bytes);
        let renewed = c.state.weights;
        let none = Exchange::default();
        let (reduced, gathered) = match e.zero {
            Zero::Off => (2.0 * at(c.reduced), none),
            Zero::Optimizer => (at(c.reduced), at(renewed)),
            Zero::Gradients => (none, at(renewed)),
            Zero::Weights => (none, none),
        };
        // Gradients travel beside the backward pass of the last microbatch, gathered weights beside the forward pass of the first: under ZeRO 2 the backward pass has the
        // scattered gradients beside it already. Interleaved, a stage goes through its chunks in groups of pp microbatches: gradients of a chunk are complete when the last
        // group leaves it, and travel beside the group's passes through the other chunks; weights in the same way beside the first group's (Narayanan et al. 2021, figure 4).
        // The slowest stage sets the pace, so that other stages' passes have its idle time besides; what first and last group share is counted once.
        let (passes, idle, n) = match e.schedule {
            Schedule::Interleaved => {
                let most =
                    if reduced.seconds().min(gathered.seconds()) > 0.0 { microbatches / 2.0 } else { microbatches };
                ((e.pp as f64).min(most), pace - stage.total, self.weights.pieces(s).max(e.chunks as f64))
            }
            _ => (1.0, 0.0, self.weights.pieces(s)),
        };
        let around = |exchange: Exchange, pass: f64, busy: [f64; 3]| {
            let room = links.room(exchange, passes * (pass + idle), busy.map(|seconds| passes * seconds));
            waits(exchange.seconds(), n, room, e.overlap_dp, c.hidden_delays)
        };
        let [before, after] = self.busy(s);
        let (waited, hidden) = around(reduced, stage.backward, after);
        let (waited_gather, hidden_gather) = around(gathered, stage.forward, before);
        let own = self.weights.renewed(s, e, e.zero != Zero::Off);
        // States come and go while the step runs.
        let step = (own * c.optimizer).max(self.states_sent(e, own) / c.second_tier);
        (waited + waited_gather, hidden + hidden_gather, step)
    }

    /// Gradients of weights of all stages but the slowest, of which each fills as many as the slowest stage leaves room for.
    fn fillers(&self, stages: &[StageTime], slowest: &StageTime) -> f64 {
        let each = self.kinds.iter().zip(stages).map(|(s, stage)| s.count * stage.weight.min(slowest.weight));
        each.sum::<f64>() - slowest.weight
    }

    fn hop(&self, e: &Execution) -> f64 {
        let c = self.constants;
        if e.pp > 1 { c.hand_overs * self.links.next.at(self.block.hand_over) + c.host[1] } else { 0.0 }
    }

    /// What of a hand-over is waited for beside a stage whose passes take `pass`.
    fn waited_hop(&self, e: &Execution, hop: f64, pass: f64) -> f64 {
        let beside = self.constants.overlap_hand_over && e.schedule == Schedule::Interleaved;
        if beside { (hop - pass / e.chunks as f64).max(0.0) } else { hop }
    }

    /// Seconds of an iteration.
    pub fn seconds(&self, e: &Execution) -> f64 {
        self.outline(e).total
    }

    /// Seconds below which no choice among `schedules`, of ZeRO, offload and overlap of data parallelism comes: the slowest stage's own work and hand-overs, the least bubble, and the
    /// optimiser divided as far as it can be. They hold for slower blocks too, and whichever part of these is of weights' gradients.
    pub fn bound(&self, e: &Execution, divided: bool, schedules: &[(Schedule, u64)]) -> f64 {
        let (c, m) = (self.constants, self.microbatches);
        // Where an interleaved schedule hides them, none may be waited for.
        let hidden = c.overlap_hand_over && schedules.iter().any(|(one, _)| *one == Schedule::Interleaved);
        let hop = if hidden { 0.0 } else { self.hop(e) };
        let mut step = 0.0f64;
        // Of whole passes, and of what no gradients of weights are part of: all stages, and the slowest.
        let (mut whole, mut ahead) = ((0.0, 0.0f64), (0.0, 0.0f64));
        for s in self.kinds {
            let beside = hop + c.host[0];
            let forward = s.sum(self.block, |p| p.forward_pass) + beside;
            let both = forward + s.sum(self.block, |p| p.backward_pass);
            whole = (whole.0 + s.count * both, whole.1.max(both));
            ahead = (ahead.0 + s.count * forward, ahead.1.max(forward));
            step = step.max(self.weights.renewed(s, e, divided) * c.optimizer);
        }
        let others = |(sum, slowest): (f64, f64)| (sum - slowest).max(0.0);
        let waits = |(schedule, chunks): &(Schedule, u64)| match schedule {
            Schedule::Interleaved => others(whole) / *chunks as f64 + m * (*chunks - 1) as f64 * hop,
            Schedule::ZeroBubble => {
                let filled = self.filled(e);
                (1.0 - filled) * others(whole) + filled * others(ahead)
            }
            Schedule::GPipe | Schedule::OneForwardOneBackward => others(whole),
        };
        let bubble = schedules.iter().map(waits).fold(f64::INFINITY, f64::min);
        let bubble = if bubble.is_finite() { bubble * (1.0 - OF_SUMS) } else { 0.0 };
        m * whole.1 + bubble + step + c.host[2]
    }

    /// The part of the gradients of weights that fills the bubble: few microbatches leave few.
    fn filled(&self, e: &Execution) -> f64 {
        (self.microbatches / (e.pp as f64 - 1.0).max(1.0)).min(1.0)
    }

    /// An iteration with its parts.
    pub fn iteration(&self, e: &Execution) -> IterationTime {
        let (c, m, block) = (self.constants, self.microbatches, self.block);
        let o = self.outline(e);
        let Some(s) = self.kinds.get(o.at) else { return IterationTime::default() };
        let parts = |f: &dyn Fn(&BlockPass) -> f64| s.sum(block, f);
        IterationTime {
            total: o.total,
            forward: m * parts(&|l| l.forward),
            backward: m * parts(&|l| l.backward),
            recompute: m * parts(&|l| l.recompute),
            tp: m * parts(&|l| l.exposed.tp),
            cp: m * parts(&|l| l.exposed.cp),
            ep: m * parts(&|l| l.exposed.ep),
            hand_over: m * (o.slowest.hop + o.chunk_hops),
            bubble: o.bubble,
            dp: m * o.slowest.dp + o.reduction + o.ends,
            optimizer: o.optimizer,
            host: m * (parts(&|l| l.host) + c.host[0]) + c.host[2],
            offload: m * o.slowest.offload,
            hidden: m * (parts(&|l| l.exposed.hidden) + o.slowest.hidden + e.chunks as f64 * (o.hop - o.slowest.hop))
                + o.reduction_hidden,
        }
    }
}
