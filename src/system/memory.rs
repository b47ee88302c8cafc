//! Memories.

use super::source::{Source, check_sources};
use crate::spec::{Node, Reader};
use crate::units::{Bandwidth, Bytes, PowerPerBandwidth, PricePerBandwidth};

crate::spec! {
    /// The memory beside one chip.
    pub struct Memory ("a memory", check: check) {
        /// Name for rows and titles.
        name: String,
        /// Where each number comes from.
        source: Source,
        /// Bandwidth of one chip's memory.
        bandwidth: Bandwidth,
        /// Capacity of one chip's memory; left out: without limit.
        capacity: Option<Bytes>,
        /// Price by bandwidth.
        price: PricePerBandwidth,
        /// Power by bandwidth.
        power: PowerPerBandwidth,
    }
}

fn check(memory: &Memory, node: &Node, reader: &mut Reader) {
    check_sources(&memory.source, &["bandwidth", "capacity", "price", "power"], node, reader);
    for (field, value) in [("bandwidth", memory.bandwidth.0), ("capacity", memory.capacity.map_or(1.0, |c| c.0))] {
        if value < 1.0 {
            let at = node.get(field).unwrap_or(node);
            reader.within(field, |r| {
                r.problem(at, format!("expected at least one in its base unit, found {}", at.describe()))
            });
        }
    }
}
