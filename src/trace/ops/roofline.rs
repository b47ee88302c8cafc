//! Time of a call on a chip of a system by the roofline: arithmetic at the chip's share of its peak, or traffic at the
//! memory's bandwidth, whichever takes longer, and the chip's launch overhead (Williams, Waterman and Patterson,
//! CACM 2009).

use super::{Class, Cost};
use crate::system::{Efficiency, System};

/// Seconds of one call on one chip of `system`; `None` where FLOP or bytes are not known, so that the caller keeps what was
/// measured. Free calls (views) take nothing. Matrix work runs at the matrix peak, everything else at the vector peak where
/// the chip states one. A chip whose efficiency depends on the quantisation to lanes and stages is taken at its full peak.
pub fn seconds(cost: &Cost, system: &System) -> Option<f64> {
    if cost.is_free() {
        return Some(0.0);
    }
    if cost.class == Class::Collective || !cost.bytes_known {
        return None;
    }
    let chip = &system.chip.0;
    let matrix = matches!(cost.class, Class::Product | Class::Convolution | Class::Attention | Class::Recurrent);
    let peak = match chip.vector_peak {
        Some(vector) if !matrix => vector.0,
        _ => chip.matrix_peak(),
    };
    let share = match (chip.efficiency, &chip.kernels) {
        (Efficiency::Constant(u), _) => u.0,
        (Efficiency::Waves, Some(kernels)) => kernels.burst().efficiency.0,
        _ => 1.0,
    };
    let arithmetic = cost.flop? as f64 / (peak * share);
    let traffic = cost.bytes() as f64 / system.memory.0.bandwidth.0;
    Some(arithmetic.max(traffic) + chip.launch_overhead.0)
}
