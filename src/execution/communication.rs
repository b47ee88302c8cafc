//! What chips send each other, and how much of it is waited for.
//!
//! X = T h words is the hidden activation of a microbatch on a chip.
//!
//! | parallelism | what, each way | group | waited for |
//! |---|---|---|---|
//! | tensor | all-reduce of X at the end of both branches (one in a parallel block); under sequence parallelism reduce-scatter and all-gather, the same bytes (Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2), and backward one more all-gather for the weights' gradients | t at stride 1 | all; with `overlap_tp` what exceeds the products beside it, cut in t pieces of which the first waits |
//! | tensor, a decoder's attention to an encoder | one more forward, two backward: gradients of its own tokens and of the source | the same | the same |
//! | context | keys and values from each chip to the next, from the last to the first, cp - 1 times; backward with their gradients (Liu et al. 2023, arXiv 2310.01889); those of a source too | cp at stride t | what exceeds the attention core of the other cp - 1 pieces |
//! | expert | all-to-all of top_k X to the experts and back | ep at stride t | all; with the stack's `overlap_ep` what exceeds the products of the other microbatch that runs beside it |
//! | pipeline | X, of which each tensor-parallel chip sends a t-th where the stack scatters; forward and backward | pp at stride t cp dp | all |
//! | data | all-reduce of gradients, or reduce-scatter of gradients and all-gather of weights (ZeRO 1); ZeRO 2: reduce-scatter every microbatch; ZeRO 3: all-gather of weights forward and backward, reduce-scatter, every microbatch (Rajbhandari et al. 2019, arXiv 1910.02054, section 7) | dp cp at stride t; experts dp cp / ep at stride t ep | all; with `overlap_dp` what exceeds the pass beside it, of which the last layer's waits: gradients the backward pass of the last microbatch (ZeRO 2, 3: of each), renewed weights the forward pass of the first (ZeRO 3: both passes of each) |
//!
//! Which ranks are a group: [`crate::model::ranks`]. Tensor parallelism as of a stack; of other mappings [`super::mapping`] says what travels. A collective that chips wait for costs the stack's `collective_overhead` besides.

use super::layer::{Division, Sums};
use super::machine::{Line, Machine, Peers, Sent, Traffic};
use super::mapping::{LayerMapping, collectives};
use crate::model::ranks::{Group, Parallelism};
use crate::system::Topology;
use crate::system::stack::HandOver;
use crate::workload::language::LanguageModel;

/// Seconds and joules of a pass's communication.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Exposed {
    /// Tensor parallelism, waited for.
    pub tp: f64,
    /// Context parallelism, waited for.
    pub cp: f64,
    /// Expert parallelism, waited for.
    pub ep: f64,
    /// Of all of them, beside other work.
    pub hidden: f64,
    /// Seconds of tensor, context and expert parallelism, waited for or not, in which their links carry bytes.
    pub busy: [f64; 3],
    /// Joules of a chip's links, waited for or not.
    pub joules: f64,
}

impl Exposed {
    /// What is waited for.
    pub fn total(&self) -> f64 {
        self.tp + self.cp + self.ep
    }

    /// Twice or more of the same.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            tp: self.tp + other.tp,
            cp: self.cp + other.cp,
            ep: self.ep + other.ep,
            hidden: self.hidden + other.hidden,
            busy: [0, 1, 2].map(|i| self.busy[i] + other.busy[i]),
            joules: self.joules + other.joules,
        }
    }
}

/// Communication of one layer and microbatch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerCommunication {
    /// Forward.
    pub forward: Exposed,
    /// Backward, without what is computed again.
    pub backward: Exposed,
    /// One all-reduce of a hidden activation among the tensor-parallel chips.
    pub reduce: Sent,
    /// Host time of the pass's collectives.
    pub host: f64,
}

/// What runs beside: `most` of `work` can hide `communication`; gives the waited and the hidden part.
pub(super) fn beside(communication: f64, work: f64) -> (f64, f64) {
    let hidden = communication.min(work.max(0.0));
    (communication - hidden, hidden)
}

/// Bytes of a microbatch's hidden activation on a chip, all channels.
pub fn hidden_bytes(model: &LanguageModel, division: &Division) -> f64 {
    let tokens = division.micro_batch as f64 * model.seq as f64 / division.cp as f64;
    tokens * model.hidden as f64 * model.types.activations.bytes()
}

/// Bytes of a chip's keys and values, which go around the ring of context parallelism.
pub fn keys_and_values_bytes(model: &LanguageModel, division: &Division) -> f64 {
    let t = division.tp as f64;
    let widths = (model.query_width() + model.value_width()) as f64;
    let width = match model.latent_attention {
        Some(_) => model.heads as f64 * widths / t,
        None => model.key_value_heads(division.tp) * widths,
    };
    let tokens = division.micro_batch as f64 * model.seq as f64 / division.cp as f64;
    tokens * width * model.types.activations.bytes()
}

/// Times that a layer passes keys and values on for each other chip of context parallelism: its own, and in decoders those of the source; the mean over all layers.
pub fn rings(model: &LanguageModel) -> f64 {
    1.0 + model.crossing()
}

/// Bytes that a chip sends to the experts of a layer, and gets back; none without experts.
pub fn expert_bytes(model: &LanguageModel, division: &Division) -> f64 {
    let Some(e) = model.experts else { return 0.0 };
    let hidden = hidden_bytes(model, division);
    // Under sequence parallelism each tensor-parallel chip sends its own tokens.
    let own = if division.sequence_parallel { hidden / division.tp as f64 } else { hidden };
    own * e.top_k as f64 * e.capacity_factor.unwrap_or(1.0)
}

/// All-reduces of a hidden activation that attention to an encoder adds to a layer, the mean over all: its output forward, the gradients of what it reads, the decoder's tokens and the
/// source, backward.
pub fn crossing_reduces(model: &LanguageModel) -> [f64; 2] {
    [1.0, 2.0].map(|n| n * model.crossing())
}

impl LayerCommunication {
    /// Of one layer whose kernels sum to `sums`, every matrix divided.
    pub fn of(
        machine: &Machine,
        model: &LanguageModel,
        division: &Division,
        overlap_tp: bool,
        with_experts: bool,
        sums: &Sums,
    ) -> Self {
        Self::mapped(machine, model, division, overlap_tp, with_experts, sums, &LayerMapping::of_stack(machine))
    }

    /// The same of a mapping.
    pub fn mapped(
        machine: &Machine,
        model: &LanguageModel,
        division: &Division,
        overlap_tp: bool,
        with_experts: bool,
        sums: &Sums,
        mapping: &LayerMapping,
    ) -> Self {
        let hidden = hidden_bytes(model, division);
        let overhead = machine.stack.collective_overhead.0;
        let mut out = Self::default();
        let (t, cp, ep) = (division.tp, division.cp, division.ep);
        let line = |traffic, group| machine.line(traffic, division.peers(group));
        if t > 1 {
            out.reduce = line(Traffic::AllReduce, Group::Tensor).send(hidden, overhead);
            let count = if model.parallel_block { 1.0 } else { 2.0 };
            let peers = machine.peers_in_box(division.peers(Group::Tensor)).saturating_sub(1) as f64;
            out.host = (count + model.crossing()) * machine.stack.host_collective_peer.0 * peers;
            let usual = || {
                let once = count * out.reduce;
                let gather = || count * line(Traffic::Gather, Group::Tensor).send(hidden, 0.0);
                [once, once, if division.sequence_parallel { gather() } else { Sent::default() }]
            };
            let own = if mapping.divides_weights() { usual() } else { collectives(machine, model, division, mapping) };
            let crossed = crossing_reduces(model).map(|n| n * out.reduce);
            let gathered = match division.sequence_parallel {
                true => crossing_reduces(model)[1] * line(Traffic::Gather, Group::Tensor).send(hidden, 0.0),
                false => Sent::default(),
            };
            let sent = [own[0] + crossed[0], own[1] + crossed[1], own[2] + gathered];
            (out.forward.joules, out.backward.joules) = (sent[0].joules, sent[1].joules + sent[2].joules);
            let [forward, backward, gather] = sent.map(|sent| sent.carried);
            (out.forward.busy[0], out.backward.busy[0]) = (forward, backward + gather);
            let [forward, backward, gather] = sent.map(|sent| sent.seconds);
            let split = |once: f64, products: f64| {
                if !overlap_tp {
                    return (once, 0.0);
                }
                let pieces = t as f64;
                let (waits, hides) = beside(once * (1.0 - 1.0 / pieces), products * (1.0 - 1.0 / pieces));
                (waits + once / pieces, hides)
            };
            (out.forward.tp, out.forward.hidden) = split(forward, sums.forward_products);
            (out.backward.tp, out.backward.hidden) = split(backward, sums.backward_products);
            let beside_gradients = out.backward.tp * machine.stack.collectives_beside_gradients.0;
            let (waits, hides) = beside(beside_gradients, sums.backward_products - out.backward.hidden);
            out.backward.tp += waits - beside_gradients;
            out.backward.hidden += hides;
            if gather > 0.0 {
                let left =
                    if overlap_tp { sums.backward_products - out.backward.hidden } else { sums.backward_products };
                let (waits, hides) = beside(gather, left);
                out.backward.tp += waits;
                out.backward.hidden += hides;
            }
        }
        // Products beside which tensor parallelism travels already.
        let taken = [out.forward.hidden, out.backward.hidden];
        if cp > 1 {
            let (line, own) = (line(Traffic::Around, Group::Context), keys_and_values_bytes(model, division));
            let hop = line.at(own);
            let hops = (cp - 1) as f64 * rings(model);
            out.forward.joules += hops * line.joules(own);
            out.backward.joules += 2.0 * hops * line.joules(own);
            let carried = hops * line.carried(own);
            (out.forward.busy[1], out.backward.busy[1]) = (carried, 2.0 * carried);
            let others = 1.0 - 1.0 / cp as f64;
            let (waits, hides) = beside(hops * hop, sums.forward_attention * others);
            out.forward.cp = waits;
            out.forward.hidden += hides;
            let (waits, hides) = beside(2.0 * hops * hop, sums.backward_attention * others);
            out.backward.cp = waits;
            out.backward.hidden += hides;
        }
        if model.experts.is_some() && with_experts && ep > 1 {
            let mut sent = expert_bytes(model, division);
            let boxes = (ep / machine.peers_in_box(division.peers(Group::Expert)).max(1)) as f64;
            if let (true, Some(e)) = (machine.stack.experts_once_a_box && boxes > 1.0, model.experts) {
                // Boxes that hold at least one of a token's experts.
                let met = boxes * (1.0 - (1.0 - 1.0 / boxes).powf(e.top_k as f64));
                sent *= (met / e.top_k as f64).min(1.0);
            }
            let Sent { seconds: both, carried, joules } =
                2.0 * line(Traffic::AllToAll, Group::Expert).send(sent, overhead);
            out.forward.joules += joules;
            out.backward.joules += joules;
            (out.forward.busy[2], out.backward.busy[2]) = (carried, carried);
            // On one link with tensor parallelism, beside what that leaves.
            let shared =
                taken != [0.0; 2] && machine.share_a_link(division.peers(Group::Tensor), division.peers(Group::Expert));
            let taken = if shared { taken } else { [0.0; 2] };
            let beside_another = |work: f64| if machine.stack.overlap_ep { beside(both, work) } else { (both, 0.0) };
            let (waits, hides) = beside_another(sums.forward_products - taken[0]);
            out.forward.ep = waits;
            out.forward.hidden += hides;
            let (waits, hides) = beside_another(sums.backward_products - taken[1]);
            out.backward.ep = waits;
            out.backward.hidden += hides;
        }
        // Nothing asks for a gradient before a head that is trained alone.
        if model.head_alone {
            out.backward = Exposed::default();
        }
        out
    }
}

/// A link on which collectives inside a pass and what replicas exchange follow each other: of the seconds of each those in which it carries them, as shares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharedLink {
    /// Of tensor, context and expert parallelism.
    pub inside: [f64; 3],
    /// Of what is exchanged outside experts, and of their weights.
    pub between: [f64; 2],
}

/// An exchange among replicas, of weights outside experts and of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Exchange {
    /// Outside experts.
    pub dense: Sent,
    /// Of experts.
    pub experts: Sent,
}

impl Exchange {
    /// Both, one after the other.
    pub fn seconds(&self) -> f64 {
        self.dense.seconds + self.experts.seconds
    }
}

impl std::ops::Add for Exchange {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { dense: self.dense + other.dense, experts: self.experts + other.experts }
    }
}

impl std::ops::Mul<Exchange> for f64 {
    type Output = Exchange;
    fn mul(self, of: Exchange) -> Exchange {
        Exchange { dense: self * of.dense, experts: self * of.experts }
    }
}

/// Lines of what happens between stages and replicas: they depend on the degrees alone.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IterationLinks {
    /// To the next stage.
    pub next: Line,
    /// Reduce-scatter or all-gather among replicas, of weights outside experts.
    pub replicas: Line,
    /// The same among replicas of one expert.
    pub expert_replicas: Line,
    /// All-reduce between first and last stage, of a tied embedding.
    pub ends: Line,
    /// Links that replicas share with the collectives inside a pass.
    pub shared: Vec<SharedLink>,
}

impl IterationLinks {
    /// Of the degrees of an execution.
    pub fn of(machine: &Machine, tp: u64, cp: u64, ep: u64, dp: u64, pp: u64) -> Self {
        let all = Parallelism { tp, cp, ep, dp, pp };
        let peers = |group| Peers::of(all.group(group), all.chips());
        let line = |traffic, group| machine.line(traffic, peers(group));
        // First and last stage are as far apart as the group goes.
        let ends = line(Traffic::Next, Group::Pipeline);
        let carried = |traffic, group| machine.shares(traffic, peers(group));
        let inside = [
            carried(Traffic::AllReduce, Group::Tensor),
            carried(Traffic::Around, Group::Context),
            carried(Traffic::AllToAll, Group::Expert),
        ];
        let between = [carried(Traffic::Gather, Group::Replicas), carried(Traffic::Gather, Group::ExpertReplicas)];
        // Where every chip has a link to every other, those of a tensor-parallel group are no replicas'.
        let own = |d: usize, g: usize| g == 0 && machine.dimensions[d].topology == Topology::FullyConnected;
        let links = (0..machine.dimensions.len()).map(|d| SharedLink {
            inside: [0, 1, 2].map(|g| if own(d, g) { 0.0 } else { inside[g][d] }),
            between: [0, 1].map(|g| between[g][d]),
        });
        Self {
            shared: links.filter(|link| link.inside != [0.0; 3] && link.between != [0.0; 2]).collect(),
            next: ends,
            replicas: line(Traffic::Gather, Group::Replicas),
            expert_replicas: line(Traffic::Gather, Group::ExpertReplicas),
            // Of two: each sends its half and gets the other's sum, 2 (n - 1)/n = 1 times the bytes.
            ends: Line { latency: 2.0 * ends.latency, ..ends },
        }
    }

    /// Seconds of a reduce-scatter or all-gather among replicas of `bytes` for each of so many weights outside experts, and in them.
    pub fn among_replicas(&self, (dense, experts): (f64, f64), bytes: f64) -> Exchange {
        let sent = |line: &Line, bytes: f64| line.send(bytes, 0.0);
        Exchange { dense: sent(&self.replicas, dense * bytes), experts: sent(&self.expert_replicas, experts * bytes) }
    }

    /// Seconds of an exchange for which there is room beside `work` whose own collectives keep links busy: all but what each link that both use has of it beyond what they leave. What goes over
    /// other links waits for none of that, so that no work that takes longer leaves less than it adds; nor do hops, so that no other link that is faster leaves less.
    pub fn room(&self, exchange: Exchange, work: f64, busy: [f64; 3]) -> f64 {
        let seconds = exchange.seconds();
        let left = |link: &SharedLink| {
            let taken: f64 = link.inside.iter().zip(busy).map(|(share, busy)| share * busy).sum();
            let of_exchange = link.between[0] * exchange.dense.carried + link.between[1] * exchange.experts.carried;
            if of_exchange > 0.0 { (work - taken).max(0.0) + seconds - of_exchange } else { f64::INFINITY }
        };
        self.shared.iter().map(left).fold(work, f64::min)
    }
}

/// Bytes that a chip hands to the next stage for one microbatch.
pub fn hand_over_bytes(machine: &Machine, model: &LanguageModel, division: &Division) -> f64 {
    let hidden = hidden_bytes(model, division);
    let divided = division.sequence_parallel || machine.stack.hand_over == HandOver::Scattered;
    let own = if divided { hidden / division.tp as f64 } else { hidden };
    // Stages of a decoder pass on what the encoder made besides.
    (1.0 + model.crossing()) * own
}
