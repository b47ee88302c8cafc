//! Memories.

use super::source::{Source, check_sources};
use crate::spec::{
    Node, Reader,
    read::{Name, Share},
};
use crate::units::{Bandwidth, Bytes, EnergyPerByte, PowerPerBandwidth, PricePerBandwidth, PricePerCapacity};

crate::spec! {
    /// The memory beside one chip.
    pub struct Memory ("a memory", check: check) {
        /// Name for rows and titles.
        name: String,
        /// Where each number comes from.
        source: Source,
        /// Bandwidth of one chip's memory; where `stacks` says how many, of each stack.
        bandwidth: Bandwidth,
        /// Capacity of one chip's memory, or of each stack; left out: without limit.
        capacity: Option<Bytes>,
        /// Stacks of this memory beside one chip.
        stacks: Option<u64>,
        /// Whether it is no memory beside the chip but the chip's own SRAM, all of it: what it holds and what the partitions of a fused graph buffer share `sram`. `capacity` is left out then, price and
        /// power are those of the chip.
        on_chip: bool = false,
        /// Kind of interface, as the technology of a chip with `area` names it (`hbm3`).
        interface: Option<Name>,
        /// Price by bandwidth.
        price: PricePerBandwidth,
        /// Price by capacity; which of the two prices count says `model.memory_price`.
        capacity_price: Option<PricePerCapacity>,
        /// Power by bandwidth, at full use of it.
        power: PowerPerBandwidth,
        /// Share of the power that it draws whatever the traffic (refresh, clocks).
        idle_share: Share = Share(0.2),
        /// Energy of a byte read or written beyond that; where it is left out, the rest of the power by bandwidth.
        energy_per_byte: Option<EnergyPerByte>,
    }
}

fn check(memory: &Memory, node: &Node, reader: &mut Reader) {
    let numbers =
        ["bandwidth", "capacity", "stacks", "price", "capacity_price", "power", "idle_share", "energy_per_byte"];
    check_sources(&memory.source, &numbers, node, reader);
    for (field, value) in [("bandwidth", memory.bandwidth.0), ("capacity", memory.capacity.map_or(1.0, |c| c.0))] {
        if value < 1.0 {
            let at = node.get(field).unwrap_or(node);
            reader.within(field, |r| {
                r.problem(at, format!("expected at least one in its base unit, found {}", at.describe()))
            });
        }
    }
}

impl Memory {
    /// The memory of a chip with so much SRAM: all of it, where it is that.
    pub fn of_sram(mut self, sram: Bytes) -> Self {
        if self.on_chip {
            self.capacity.get_or_insert(sram);
        }
        self
    }

    /// The memory with bandwidth and capacity of all its stacks together.
    pub(super) fn stacked(mut self) -> Self {
        let stacks = self.stacks.unwrap_or(1) as f64;
        self.bandwidth.0 *= stacks;
        self.capacity.iter_mut().for_each(|capacity| capacity.0 *= stacks);
        self
    }
}
