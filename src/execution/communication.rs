//! What chips send each other, and how much of it is waited for.
//!
//! X = T h words is the hidden activation of a microbatch on a chip.
//!
//! | parallelism | what, each way | group | waited for |
//! |---|---|---|---|
//! | tensor | all-reduce of X at the end of both branches (one in a parallel block); under sequence parallelism reduce-scatter and all-gather, the same bytes (Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2), and backward one more all-gather for the weights' gradients | t at stride 1 | all; with `overlap_tp` what exceeds the products beside it, cut in t pieces of which the first waits |
//! | context | keys and values from each chip to the next, from the last to the first, cp - 1 times; backward with their gradients (Liu et al. 2023, arXiv 2310.01889) | cp at stride t | what exceeds the attention core of the other cp - 1 pieces |
//! | expert | all-to-all of top_k X to the experts and back | ep at stride t | all; with the stack's `overlap_ep` what exceeds the products of the other microbatch that runs beside it |
//! | pipeline | X, of which each tensor-parallel chip sends a t-th where the stack scatters; forward and backward | pp at stride t cp dp | all |
//! | data | all-reduce of gradients, or reduce-scatter of gradients and all-gather of weights (ZeRO 1); ZeRO 2: reduce-scatter every microbatch; ZeRO 3: all-gather of weights forward and backward, reduce-scatter, every microbatch (Rajbhandari et al. 2019, arXiv 1910.02054, section 7) | dp cp at stride t; experts dp cp / ep at stride t ep | all; with `overlap_dp` what exceeds the pass beside it, of which the last layer's waits: gradients the backward pass of the last microbatch (ZeRO 2, 3: of each), renewed weights the forward pass of the first (ZeRO 3: both passes of each) |
//!
//! Which ranks are a group: [`crate::model::ranks`]. Tensor parallelism as of a stack; of other mappings [`super::mapping`] says what travels. A collective that chips wait for costs the stack's `collective_overhead` besides.

use super::layer::{Division, Sums};
use super::machine::{Line, Machine, Sent, Traffic};
use super::mapping::{LayerMapping, collectives};
use crate::model::ranks::{Group, Parallelism};
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
        None => (model.kv_heads() as f64 / t).max(1.0) * widths,
    };
    let tokens = division.micro_batch as f64 * model.seq as f64 / division.cp as f64;
    tokens * width * model.types.activations.bytes()
}

/// Bytes that a chip sends to the experts of a layer, and gets back; none without experts.
pub fn expert_bytes(model: &LanguageModel, division: &Division) -> f64 {
    let Some(e) = model.experts else { return 0.0 };
    let hidden = hidden_bytes(model, division);
    // Under sequence parallelism each tensor-parallel chip sends its own tokens.
    let own = if division.sequence_parallel { hidden / division.tp as f64 } else { hidden };
    own * e.top_k as f64 * e.capacity_factor.unwrap_or(1.0)
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
        let inside = division.parallelism();
        let line = |traffic, group| machine.among(traffic, inside.group(group));
        if t > 1 {
            out.reduce = line(Traffic::AllReduce, Group::Tensor).send(hidden, overhead);
            let count = if model.parallel_block { 1.0 } else { 2.0 };
            let peers = machine.peers_in_box(t, 1).saturating_sub(1) as f64;
            out.host = count * machine.stack.host_collective_peer.0 * peers;
            let usual = || {
                let once = count * out.reduce;
                let gather = || count * line(Traffic::Gather, Group::Tensor).send(hidden, 0.0);
                [once, once, if division.sequence_parallel { gather() } else { Sent::default() }]
            };
            let sent = if mapping.divides_weights() { usual() } else { collectives(machine, model, division, mapping) };
            (out.forward.joules, out.backward.joules) = (sent[0].joules, sent[1].joules + sent[2].joules);
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
        if cp > 1 {
            let (line, own) = (line(Traffic::Around, Group::Context), keys_and_values_bytes(model, division));
            let hop = line.at(own);
            let hops = (cp - 1) as f64;
            out.forward.joules += hops * line.joules(own);
            out.backward.joules += 2.0 * hops * line.joules(own);
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
            let boxes = (ep / machine.peers_in_box(ep, t).max(1)) as f64;
            if let (true, Some(e)) = (machine.stack.experts_once_a_box && boxes > 1.0, model.experts) {
                // Boxes that hold at least one of a token's experts.
                let met = boxes * (1.0 - (1.0 - 1.0 / boxes).powf(e.top_k as f64));
                sent *= (met / e.top_k as f64).min(1.0);
            }
            let Sent { seconds: both, joules } = 2.0 * line(Traffic::AllToAll, Group::Expert).send(sent, overhead);
            out.forward.joules += joules;
            out.backward.joules += joules;
            let beside_another = |work: f64| if machine.stack.overlap_ep { beside(both, work) } else { (both, 0.0) };
            let (waits, hides) = beside_another(sums.forward_products);
            out.forward.ep = waits;
            out.forward.hidden += hides;
            let (waits, hides) = beside_another(sums.backward_products);
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

/// Lines of what happens between stages and replicas: they depend on the degrees alone.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct IterationLinks {
    /// To the next stage.
    pub next: Line,
    /// Reduce-scatter or all-gather among replicas, of weights outside experts.
    pub replicas: Line,
    /// The same among replicas of one expert.
    pub expert_replicas: Line,
    /// All-reduce between first and last stage, of a tied embedding.
    pub ends: Line,
}

impl IterationLinks {
    /// Of the degrees of an execution.
    pub fn of(machine: &Machine, tp: u64, cp: u64, ep: u64, dp: u64, pp: u64) -> Self {
        let all = Parallelism { tp, cp, ep, dp, pp };
        let line = |traffic, group| machine.among(traffic, all.group(group));
        // First and last stage are as far apart as the group goes.
        let ends = line(Traffic::Next, Group::Pipeline);
        Self {
            next: ends,
            replicas: line(Traffic::Gather, Group::Replicas),
            expert_replicas: line(Traffic::Gather, Group::ExpertReplicas),
            // Of two: each sends its half and gets the other's sum, 2 (n - 1)/n = 1 times the bytes.
            ends: Line { latency: 2.0 * ends.latency, ..ends },
        }
    }

    /// Seconds of a reduce-scatter or all-gather among replicas of `bytes` for each of so many weights outside experts, and in them.
    pub fn among_replicas(&self, (dense, experts): (f64, f64), bytes: f64) -> f64 {
        self.replicas.at(dense * bytes) + self.expert_replicas.at(experts * bytes)
    }
}

/// Bytes that a chip hands to the next stage for one microbatch.
pub fn hand_over_bytes(machine: &Machine, model: &LanguageModel, division: &Division) -> f64 {
    let hidden = hidden_bytes(model, division);
    let divided = division.sequence_parallel || machine.stack.hand_over == HandOver::Scattered;
    if divided { hidden / division.tp as f64 } else { hidden }
}
