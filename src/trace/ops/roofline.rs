//! Time of a call on a chip of a system, from its FLOP and bytes alone ([`Rate::roofline`]).

use super::{Call, Class, Cost, Element, reads};
use crate::model::rate::{HALF, Rate};
use crate::system::System;

/// Seconds of one call on one chip of `system`, in a step that trains or one that does not; `None` where FLOP or bytes are not known, or
/// the chip states no peak for the call's words, so that the caller keeps what was measured. Free calls (views) take nothing.
pub fn seconds(call: &Call, cost: &Cost, system: &System, training: bool) -> Option<f64> {
    if cost.is_free() {
        return Some(0.0);
    }
    if cost.class == Class::Collective || !cost.bytes_known {
        return None;
    }
    let matrix = matches!(cost.class, Class::Product | Class::Convolution | Class::Attention | Class::Recurrent);
    Rate::with(system, word_bytes(call), training).roofline(matrix, cost.flop? as f64, cost.bytes() as f64)
}

/// Bytes of the elements that a call computes with: the widest of the floating-point operands it reads, since a chip multiplies at the
/// rate of the wider one.
fn word_bytes(call: &Call) -> f64 {
    let operands = reads(call).into_iter().filter(|t| t.element == Element::Float);
    operands.map(|t| t.element_bytes as f64).reduce(f64::max).unwrap_or(HALF)
}
