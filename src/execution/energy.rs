//! Energy of an iteration of an execution, as [`crate::model::energy`] has it of graphs: what the parts of the system draw in any case, and what each use of them adds.
//!
//! With w the power at full use, i the idle share, m microbatches, and for each stage its n = tp cp dp chips:
//!
//! ```text
//! chips     m n * C (1 - i) w        C: seconds of products and attention cores alone of a microbatch, whatever they wait for memory;   or, where the chip states e joules a FLOP,  m n F e
//! memories  (m n * D + n O) * e      D: bytes of a microbatch;  O: the optimiser's bytes of the weights that a chip renews;  second tier: its bytes
//! links     m n * J + hand-overs + replicas
//!           J: joules of a microbatch's collectives, whether waited for or not;  a hand-over goes forward and, where something before the head is trained, comes back, in each chunk;
//!           replicas: all-reduce of gradients, or what ZeRO sends instead, an iteration or a microbatch
//! ```
//!
//! Arithmetic of vector work is not told from its traffic, and counts with that. Recomputation counts in all of them.

use super::block::BlockPass;
use super::schedule::{Pipeline, StageKind};
use super::spec::{Execution, Zero};
use crate::model::energy::{self, Energy, Rates};
use crate::system::System;
use crate::system::price::{self, ByPart};

/// What the parts of a system draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Power {
    /// Watts whatever is done.
    pub idle: ByPart,
    /// What use adds on one chip.
    pub rates: Rates,
    /// Joules a byte to or from the second tier.
    pub second_byte_j: f64,
}

impl Power {
    /// Of a system.
    pub fn of(system: &System) -> Self {
        let second_byte_j = system.offload.as_ref().map_or(0.0, |m| energy::memory_byte_j(&m.0, &system.model));
        Self { idle: price::idle_power(system), rates: energy::rates(system), second_byte_j }
    }
}

impl Pipeline<'_> {
    /// Joules that use adds in an iteration, all chips.
    pub fn used(&self, e: &Execution) -> ByPart {
        let (c, m) = (self.constants, self.microbatches);
        let chips = (e.tp * e.cp * e.dp) as f64;
        let mut out = self.used_by_blocks(e);
        for s in self.kinds {
            out.links += s.count * chips * self.replicas_j(e, s);
            out.memory += s.count * chips * self.renewed_j(e, s);
        }
        let crossings = (e.pp * e.chunks - 1) as f64;
        out.links += m * chips * crossings * c.hand_overs * self.links.next.joules(self.block.hand_over);
        if e.pp > 1 {
            // The first and the last stage each send it.
            out.links += 2.0 * chips * self.links.ends.joules(self.weights.tied * c.reduced);
        }
        out
    }

    /// What of it the blocks use, whatever the schedule and what goes between replicas.
    pub fn used_by_blocks(&self, e: &Execution) -> ByPart {
        let rates = &self.constants.power.rates;
        let mut out = ByPart { chips: 0.0, memory: 0.0, links: 0.0, switches: 0.0 };
        for s in self.kinds {
            let of = |part: fn(&BlockPass) -> f64| s.sum(self.block, part);
            let passes = self.microbatches * s.count * (e.tp * e.cp * e.dp) as f64;
            out.chips += passes * (rates.busy_w * of(|p| p.arithmetic) + rates.flop_j * of(|p| p.flop));
            out.memory += passes * of(|p| p.dram_bytes) * rates.dram_byte_j;
            out.links += passes * of(|p| p.exposed.joules);
        }
        out
    }

    /// The energy of an iteration of `seconds`.
    pub fn energy(&self, e: &Execution, seconds: f64) -> Energy {
        Energy { idle: self.constants.power.idle.times(seconds), used: self.used(e) }
    }

    /// Joules of the links of a chip of a stage for what goes between replicas in an iteration.
    fn replicas_j(&self, e: &Execution, s: &StageKind) -> f64 {
        let (c, m) = (self.constants, self.microbatches);
        let of = |(dense, experts): (f64, f64), bytes: f64| {
            self.links.replicas.joules(dense * bytes) + self.links.expert_replicas.joules(experts * bytes)
        };
        let trained = self.weights.trained(s);
        let (reduced, renewed) = (of(trained, c.reduced), of(trained, c.state.weights));
        match e.zero {
            Zero::Off => 2.0 * reduced,
            Zero::Optimizer => reduced + renewed,
            Zero::Gradients => m * reduced + renewed,
            Zero::Weights => {
                let [forward, backward] = [self.weights.of_stage(s), self.weights.read_backward(s)];
                m * (of(forward, c.state.weights) + of(backward, c.state.weights) + reduced)
            }
        }
    }

    /// Joules of the memories of a chip of a stage for its optimiser and for what comes from the second tier, in an iteration.
    fn renewed_j(&self, e: &Execution, s: &StageKind) -> f64 {
        let (c, m) = (self.constants, self.microbatches);
        let own = self.weights.renewed(s, e, e.zero != Zero::Off);
        let second = m * self.offloaded(e, s) + self.states_sent(e, own);
        own * c.optimizer_bytes * c.power.rates.dram_byte_j + second * c.power.second_byte_j
    }
}
