//! Cost and power of a system (model.md section 5, "Cost / power"): chips, memories, links, switches. Power at full use,
//! and what of it is drawn in any case; energy by use is in [`crate::model::energy`].

use super::System;
use super::memory::Memory;
use super::network::{Link, SwitchPart, Topology};
use super::options::{MemoryPrice, Precision};
use serde::Serialize;

/// Cost or power by part, in dollars or watts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ByPart {
    /// Chips.
    pub chips: f64,
    /// Memories.
    pub memory: f64,
    /// Links.
    pub links: f64,
    /// Switches and routers.
    pub switches: f64,
}

impl ByPart {
    /// The sum of the parts.
    pub fn total(&self) -> f64 {
        self.chips + self.memory + self.links + self.switches
    }

    /// The sum; not a number where the chips have none: then their price or power is not known, and a system of the rest would look cheap.
    pub fn known(&self) -> f64 {
        self.if_known(self.total())
    }

    /// What follows from it; not a number where the chips have none.
    pub fn if_known(&self, value: f64) -> f64 {
        if self.chips > 0.0 { value } else { f64::NAN }
    }

    /// The sum, where the chips have any.
    pub fn stated(&self) -> Option<f64> {
        Some(self.known()).filter(|sum| sum.is_finite())
    }
}

/// GB/s of links and of switch ports in each dimension.
///
/// Let e_i be the number of things joined at level i (chips at level 0; boxes further out), X_i the size of the
/// dimension, B_i its bandwidth, n the number of chips. A torus joins every chip in each of its dimensions, so its
/// rings count n. Links: ring e_i B_i, switch e_i B_i, fully connected e_i (X_i - 1) B_i. Switches: ring (routers)
/// 2 e_i / X_i B_i; switch e_i B_i; fully connected none between chips, e_i X_i B_i between boxes. A dimension of one joins nothing.
pub fn link_and_switch_bandwidth(system: &System) -> Vec<(f64, f64)> {
    let network = &system.network;
    let chips = network.chips() as f64;
    let mut inner = 1.0;
    let mut torus_so_far = true;
    network
        .dimensions
        .iter()
        .enumerate()
        .map(|(i, dimension)| {
            let topology = network.topology_of(i);
            let size = dimension.size as f64;
            let gbs = dimension.link.0.bandwidth.0 / 1e9;
            torus_so_far &= topology == Topology::Ring;
            let joined = if torus_so_far { chips } else { chips / inner };
            inner *= size;
            match topology {
                _ if dimension.size == 1 => (0.0, 0.0),
                Topology::Ring => (joined * gbs, 2.0 * joined / size * gbs),
                Topology::Switch => (joined * gbs, joined * gbs),
                Topology::FullyConnected if i == 0 => (joined * (size - 1.0) * gbs, 0.0),
                Topology::FullyConnected => (joined * (size - 1.0) * gbs, joined * size * gbs),
            }
        })
        .collect()
}

impl std::ops::Add for ByPart {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            chips: self.chips + other.chips,
            memory: self.memory + other.memory,
            links: self.links + other.links,
            switches: self.switches + other.switches,
        }
    }
}

impl ByPart {
    /// Every part times a factor.
    pub fn times(&self, factor: f64) -> Self {
        Self {
            chips: self.chips * factor,
            memory: self.memory * factor,
            links: self.links * factor,
            switches: self.switches * factor,
        }
    }
}

/// Price of the system in dollars. Links cost nothing with one chip, switches nothing with four or fewer (DFModel).
/// Memories are paid by bandwidth, by capacity, or by both, as the model's `memory_price` says.
pub fn cost(system: &System) -> ByPart {
    let by_bandwidth = by_part(system, system.chip.0.price.0, |m| m.price.0, |l| l.price.0, |s| s.price.0);
    let of_memory = |memory: &Memory| {
        let unit = memory.capacity_price.map_or(0.0, |p| system.model.precision.round(p.0));
        memory.capacity.map_or(0.0, |c| c.0) * unit
    };
    let by_capacity = system.chip_count() as f64 * memories(system).map(of_memory).sum::<f64>();
    let memory = match system.model.memory_price {
        MemoryPrice::Bandwidth => by_bandwidth.memory,
        MemoryPrice::Capacity => by_capacity,
        MemoryPrice::Both => by_bandwidth.memory + by_capacity,
    };
    ByPart { memory, ..by_bandwidth }
}

/// Power of the system in watts, at full use; counted like the cost.
pub fn power(system: &System) -> ByPart {
    by_part(system, system.chip.0.power.0, |m| m.power.0, |l| l.power.0, |s| s.power.0)
}

/// What of [`power`] is drawn whatever the system does: the idle shares of the parts, and the switches whole.
pub fn idle_power(system: &System) -> ByPart {
    let chip = &system.chip.0;
    by_part(
        system,
        chip.power.0 * chip.idle_share.0,
        |m| m.power.0 * m.idle_share.0,
        |l| l.power.0 * l.idle_share.0,
        |s| s.power.0,
    )
}

/// The memory of a chip, and the one beside it where there is one to offload to.
fn memories(system: &System) -> impl Iterator<Item = &Memory> {
    std::iter::once(&system.memory.0).chain(system.offload.as_ref().map(|memory| &memory.0))
}

/// Chips by the piece; memories, links and switches by GB/s.
fn by_part(
    system: &System,
    chip: f64,
    memory: fn(&Memory) -> f64,
    link: fn(&Link) -> f64,
    switch: fn(&SwitchPart) -> f64,
) -> ByPart {
    let unit = |value: f64| system.model.precision.round(value);
    let chips = system.chip_count() as f64;
    let networks = link_and_switch_bandwidth(system);
    let links: f64 =
        networks.iter().zip(&system.network.dimensions).map(|((gbs, _), d)| gbs * unit(link(&d.link.0))).sum();
    let port = system.network.switch.as_ref().map_or(0.0, |s| unit(switch(&s.0)));
    let switches: f64 = networks.iter().map(|(_, gbs)| gbs * port).sum();
    ByPart {
        chips: chips * unit(chip),
        memory: chips * memories(system).map(|m| (m.bandwidth.0 / 1e9) * unit(memory(m))).sum::<f64>(),
        links: if chips > 1.0 { links } else { 0.0 },
        switches: if chips > 4.0 { switches } else { 0.0 },
    }
}

impl Precision {
    /// A unit value as the model holds it.
    pub fn round(self, value: f64) -> f64 {
        match self {
            Precision::Float64 => value,
            Precision::Float32 => f64::from(value as f32),
        }
    }
}
