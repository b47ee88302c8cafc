//! What the memory of one chip holds, by kind, for the stage that holds most.
//!
//! Weights, gradients and optimiser states: bytes a parameter from the model's types, divided among replicas as ZeRO says (experts among those of the
//! expert). Activations: what a layer keeps for one microbatch (closed forms of the workload, after Korthikanti et al. 2022) times layers
//! times microbatches in flight: of stage i of p, GPipe m; 1F1B and zero bubble (H1) p - i; interleaved (2(p - i - 1) + (v - 1)p + 1)/v, which is the paper's
//! p(1 + (p - 1)/(p v)) for the first stage; never more than m. Under zero bubble stage i has the weights' gradients of i microbatches still to take, of which it holds whole layers. Besides: what is alive of one layer while its backward pass runs (what recomputation
//! brings back), and where the memory is on chip what partitions buffer; inputs and scores of the head (of GPipe's m microbatches, and of those whose weights' gradients are late), buffers of communication (hand-overs in and out; the gathered activation under sequence parallelism;
//! two layers and an end of gathered weights under ZeRO 3, and a whole gradient), and what the software reserves, a share of what comes and goes in fragments included. Software that frees
//! gradients holds none of a single microbatch while its activations are there: of both the larger counts. Offloaded kinds leave two layers behind for the one at work and the one on its way, or the end at work.

use super::block::BlockPass;
use super::machine::Machine;
use super::passes::Order;
use super::schedule::{Pipeline, StageKind};
use super::spec::{Execution, Offload, Schedule, Zero};
use crate::units::Bytes;
use serde::Serialize;

/// Bytes on one chip by kind.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct MemoryByKind {
    /// Weights.
    pub weights: f64,
    /// Gradients.
    pub gradients: f64,
    /// Optimiser states.
    pub optimizer: f64,
    /// Activations kept for backward passes.
    pub activations: f64,
    /// Of one layer, alive while its backward pass runs; and what partitions buffer where the memory is on chip.
    pub working: f64,
    /// Inputs of the head and scores of the words.
    pub head: f64,
    /// Buffers of communication.
    pub buffers: f64,
    /// What the software reserves.
    pub reserve: f64,
}

impl MemoryByKind {
    /// All kinds.
    pub fn total(&self) -> f64 {
        let state = self.weights + self.gradients + self.optimizer;
        state + self.activations + self.working + self.head + self.buffers + self.reserve
    }

    /// Kinds by name, in order.
    pub fn kinds(&self) -> [(&'static str, f64); 8] {
        [
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("optimizer", self.optimizer),
            ("activations", self.activations),
            ("working", self.working),
            ("head", self.head),
            ("buffers", self.buffers),
            ("reserve", self.reserve),
        ]
    }
}

/// The memory of the fullest stage.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Memory {
    /// Index of that stage.
    pub stage: u64,
    /// On the chip's own memory.
    pub device: MemoryByKind,
    /// In the second tier.
    pub second_tier: f64,
    /// Capacity of the chip's own memory; `None` without limit.
    pub capacity: Option<f64>,
    /// Capacity of the second tier; `None` without limit.
    pub second_capacity: Option<f64>,
}

impl Memory {
    /// Bytes that are missing, in the tier that lacks more; 0 where all fits.
    pub fn short(&self) -> f64 {
        let over = |used: f64, capacity: Option<f64>| capacity.map_or(0.0, |c| (used - c).max(0.0));
        over(self.device.total(), self.capacity).max(over(self.second_tier, self.second_capacity))
    }

    /// What is needed beyond what there is, in words.
    pub fn need(&self) -> String {
        // What is needed is rounded up: a memory of what is printed is enough.
        let own = self.capacity.filter(|c| self.device.total() > *c).map(|has| {
            let needs = Bytes(self.device.total()).printed_above();
            format!("stage {} needs {needs} of memory, a chip has {}", self.stage, Bytes(has))
        });
        let second = self.second_capacity.filter(|c| self.second_tier > *c).map(|has| {
            let needs = Bytes(self.second_tier).printed_above();
            format!("{needs} would be offloaded, the second tier has {}", Bytes(has))
        });
        let need = own.into_iter().chain(second).collect::<Vec<_>>().join("; and ");
        let largest = self.device.kinds().into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or("", |k| k.0);
        format!("{need} ({} short; most of it {largest})", Bytes(self.short()))
    }

    /// Whether it fits.
    pub fn fits(&self) -> bool {
        self.short() <= 0.0
    }
}

/// The fullest stage of an execution.
pub fn memory(machine: &Machine, plan: &Pipeline, e: &Execution) -> Memory {
    let mut worst = Memory {
        capacity: machine.capacity,
        second_capacity: machine.second_tier.and_then(|(_, capacity)| capacity),
        ..Memory::default()
    };
    let mut most = -1.0;
    for s in plan.kinds {
        // Of equal stages the first has most microbatches in flight. Under zero bubble each has no fewer of both kinds together than the one before, and more of
        // them are late, which holds more.
        let late = e.schedule == Schedule::ZeroBubble;
        let index = s.first + if late { (s.count as u64).saturating_sub(1) } else { 0 };
        let (device, second_tier) = stage(machine, plan, s, index, e);
        worst.second_tier = worst.second_tier.max(second_tier);
        let total = device.total();
        if total > most {
            most = total;
            (worst.stage, worst.device) = (index, device);
        }
    }
    worst
}

fn stage(machine: &Machine, plan: &Pipeline, s: &StageKind, index: u64, e: &Execution) -> (MemoryByKind, f64) {
    let (c, block, weights, microbatches) = (plan.constants, plan.block, plan.weights, plan.microbatches);
    let (dense, experts) = weights.of_stage(s);
    let (trained, trained_experts) = weights.trained(s);
    let replicas = e.dp * e.cp;
    let state = c.state.divided(e.zero, replicas);
    let expert_state = c.state.divided(e.zero, replicas / e.ep.max(1));
    let order = Order::of(e);
    let passes = order.in_flight(index, microbatches);
    // A gradient of weights that is taken later needs what its layers were computed from, and the gradients of what they gave.
    let waits =
        |layers: f64, block: &BlockPass| order.delayed(index, microbatches) * layers * (block.kept + block.working);
    let layers = s.plain * block.plain.kept + s.experts * block.experts.kept;
    let has = |layers: f64, bytes: f64| if layers > 0.0 { bytes } else { 0.0 };
    let mut out = MemoryByKind {
        weights: dense * state.weights + experts * expert_state.weights,
        gradients: trained * state.gradients + trained_experts * expert_state.gradients,
        optimizer: trained * state.optimizer + trained_experts * expert_state.optimizer,
        activations: passes * (layers + s.embedding * block.embedding.kept),
        working: has(s.plain, block.plain.working).max(has(s.experts, block.experts.working))
            + waits(s.plain, &block.plain)
            + waits(s.experts, &block.experts)
            + block.sram,
        head: s.head * order.scored(index, microbatches) * block.head.kept,
        buffers: 0.0,
        reserve: machine.stack.memory_reserve.0,
    };
    if e.pp > 1 {
        out.buffers += 2.0 * block.hand_over;
    }
    if e.sequence_parallel {
        out.buffers += block.hidden * e.tp as f64;
    }
    let end = (s.embedding * weights.embedding).max(s.head * weights.head);
    if e.zero == Zero::Weights && replicas > 1 {
        // The layer at work and the next one, the end that is at work, and a gradient before it is divided.
        let whole = weights.of_frozen.map_or(weights.layer().max(end), |(layer, head)| layer.max(s.head * head));
        out.buffers += (2.0 * weights.layer() + end) * c.state.weights + whole * c.reduced;
    }
    let mut second = 0.0;
    let mut send = |bytes: &mut f64, stays: f64| {
        let stays = stays.min(*bytes);
        second += *bytes - stays;
        *bytes = stays;
    };
    if e.offload.has_optimizer() {
        send(&mut out.optimizer, 0.0);
    }
    if e.offload.has_weights() {
        send(&mut out.weights, (2.0 * weights.layer()).max(end) * c.state.weights);
    }
    if e.offload == Offload::State {
        send(&mut out.gradients, (2.0 * weights.layer()).max(end) * c.state.gradients);
    }
    if e.offload.has_activations() {
        send(&mut out.activations, 2.0 * block.plain.kept.max(block.experts.kept));
    }
    if machine.stack.frees_gradients && microbatches <= 1.0 && e.pp == 1 {
        out.gradients = (out.gradients - out.activations - out.head).max(0.0);
    }
    out.reserve += machine.stack.fragments.0 * (out.activations + out.working + out.head + out.buffers);
    (out, second)
}
