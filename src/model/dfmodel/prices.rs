//! What things cost in DFModel: shards of kernels, layouts asked of their operands, collectives.

use crate::graph::{Axis, CollectiveKind, Kernel, Op, Slot};
use crate::model::collective::{GroupDimension, ranks};
use crate::model::{Layout, Strategy};
use crate::system::Topology;
use crate::system::options::{AllToAllMessages, GradientLink, ModelOptions};

/// The strategies open to a kernel (model.md section 4): several outer problems are what is split; of one problem the tiled axis and
/// axes of size one are not; a kernel with a weight is never replicated.
pub fn strategies(kernel: &Kernel) -> Vec<Strategy> {
    if kernel.shape.outer > 1 {
        return vec![Strategy::Outer];
    }
    let mut open = Vec::new();
    for (strategy, axis) in [(Strategy::M, Axis::M), (Strategy::K, Axis::K), (Strategy::N, Axis::N)] {
        if kernel.tiled != axis && kernel.shape.along(axis) > 1 && (axis != Axis::K || kernel.is_gemm()) {
            open.push(strategy);
        }
    }
    if kernel.op != Op::GemmWeight {
        open.push(Strategy::Replicate);
    }
    open
}

/// model.md section 4, "Layout classes". DFModel takes the streamed operand for its input 1 and the stationary one for
/// its input 2, and asks rows of everything under `Outer`, weight GEMMs included.
pub fn required(kernel: &Kernel, slot: Slot, strategy: Strategy) -> Layout {
    use Layout::{Cols, Replicated, Rows};
    // DFModel has no such operands.
    let slot = match slot {
        Slot::View => return Replicated,
        Slot::Aligned => Slot::Data,
        slot => slot,
    };
    if kernel.tiled == Axis::K {
        return match strategy {
            Strategy::Outer | Strategy::M | Strategy::N => Rows,
            Strategy::K => Cols,
            Strategy::Replicate => Replicated,
        };
    }
    let operand_two = slot.is_stationary();
    let slot = if slot == Slot::Reshaped { Slot::Data } else { slot };
    match (strategy, slot) {
        (Strategy::Replicate, _) => Replicated,
        (Strategy::N, Slot::Shared) => Cols,
        (_, Slot::Shared) => Replicated,
        (Strategy::Outer, _) => Rows,
        (Strategy::M, Slot::Data) => Rows,
        (Strategy::M, _) if operand_two => Rows,
        (Strategy::M, _) => Replicated,
        (Strategy::N, Slot::Data) => Cols,
        (Strategy::N, _) if operand_two => Replicated,
        (Strategy::N, _) => Cols,
        (Strategy::K, Slot::Data) => Replicated,
        (Strategy::K, _) if operand_two => Cols,
        (Strategy::K, _) => Rows,
    }
}

/// Seconds of a collective of `bytes` (model.md section 5, "Network (LLM)"), t = chips of the group: all-reduce `passes` (t-1)/(t B)
/// behind ring or switch, 1/(t B) fully connected; all-gather the same with one pass; all-to-all t^2/(8B) ring, 1/B
/// fully connected, t/(4B) switch. A group of DFModel has one dimension; in a further one (its rail-only domains) what
/// the dimension before has reduced is left: (D-1)/(D B_fast) + (t/D - 1)/(t B_slow). Latencies, where its newest versions
/// have them, are those of all-reduces alone: `passes` (t-1) hops, fully connected `passes`, once a layer and not once a tile.
pub fn seconds(kind: CollectiveKind, group: &[GroupDimension], bytes: f64, passes: u64) -> f64 {
    let (mut left, passes) = (bytes, passes as f64);
    let mut time = 0.0;
    for d in group {
        let t = d.size as f64;
        let (gather, hops) = match d.topology {
            Topology::Ring | Topology::Switch => ((t - 1.0) / (t * d.bandwidth), t - 1.0),
            Topology::FullyConnected => (1.0 / (t * d.bandwidth), 1.0),
        };
        time += match kind {
            CollectiveKind::AllReduce => passes * gather * left + passes * hops * d.latency,
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter => gather * left,
            CollectiveKind::AllToAll => {
                bytes
                    * match d.topology {
                        Topology::Ring => t * t / (8.0 * d.bandwidth),
                        Topology::FullyConnected => 1.0 / d.bandwidth,
                        Topology::Switch => t / (4.0 * d.bandwidth),
                    }
            }
            CollectiveKind::PointToPoint | CollectiveKind::Broadcast => bytes / d.bandwidth,
        };
        left /= t;
    }
    time
}

/// DFModel's all-to-all of DLRM and FFT over N chips that hold `bytes` each (model.md section 5, "DLRM/FFT a2a"): in each
/// dimension messages of `bytes`/N through the cut, at the bandwidth of the links that cross it; the slowest dimension
/// counts. Messages, of x chips inside an inner dimension that is no torus: N^2/4 (x^2/4), N(N-1)/2, or N^2. Links of the cut: ring 2, fully
/// connected x^2/4, switch x; 2-D torus [x, y]; 3-D torus [xy, xz, yz], twice as many with N(N-1)/2.
pub fn all_to_all(group: &[GroupDimension], bytes: f64, messages: AllToAllMessages) -> f64 {
    let n = ranks(group) as f64;
    if n <= 1.0 {
        return 0.0;
    }
    let torus = group.len() > 1 && group.iter().all(|d| d.topology == Topology::Ring);
    let size = |i: usize| group[i].size as f64;
    let count = |chips: f64| match messages {
        AllToAllMessages::Bisection => chips * chips / 4.0,
        AllToAllMessages::Pairs => chips * (chips - 1.0) / 2.0,
        AllToAllMessages::Squared => chips * chips,
    };
    let both_ways = if messages == AllToAllMessages::Pairs { 2.0 } else { 1.0 };
    (0..group.len())
        .map(|i| {
            let links = match (torus, group.len(), group[i].topology) {
                (true, 3, _) => both_ways * [size(0) * size(1), size(0) * size(2), size(1) * size(2)][i],
                (true, _, _) => both_ways * size(i),
                (_, _, Topology::Ring) => 2.0,
                (_, _, Topology::FullyConnected) => size(i) * size(i) / 4.0,
                (_, _, Topology::Switch) => size(i),
            };
            let crossing = if torus || i + 1 == group.len() { count(n) } else { count(size(i)) };
            bytes / n * crossing / (links * group[i].bandwidth)
        })
        .fold(0.0, f64::max)
}

/// The broadcast of a panel over y chips in DFModel's first generation (model.md section 5, HPL): (y-1)/2 times the panel on a ring, half of
/// it elsewhere.
pub fn first_broadcast(group: &[GroupDimension], bytes: f64) -> f64 {
    let of = |d: &GroupDimension| {
        let times = if d.topology == Topology::Ring { (d.size as f64 - 1.0) / 2.0 } else { 0.5 };
        times * bytes / d.bandwidth
    };
    group.iter().map(of).fold(0.0, f64::max)
}

/// Seconds that the links take for gradients of `bytes`; its DLRM adds bytes to nanoseconds, whatever the links.
pub fn gradient_seconds(group: &[GroupDimension], bytes: f64, options: &ModelOptions) -> f64 {
    let passes = options.all_reduce_passes;
    match options.gradient_link {
        GradientLink::Links => {
            let silent: Vec<GroupDimension> = group.iter().map(|d| GroupDimension { latency: 0.0, ..*d }).collect();
            seconds(CollectiveKind::AllReduce, &silent, bytes, passes)
        }
        GradientLink::BytePerNanosecond => passes as f64 * bytes * 1e-9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(topology: Topology, size: u64, bandwidth: f64, latency: f64) -> GroupDimension {
        GroupDimension {
            topology,
            size,
            bandwidth,
            ring_links: 1,
            open: false,
            apart: 1,
            latency,
            byte_j: 0.0,
            wire: bandwidth,
            sums: None,
        }
    }

    /// golden.csv, sn10 4x2: ratios 0.03 = (4-1)/(4*25) and 0.08 = 16/(8*25) ns a byte.
    #[test]
    fn ratios_are_the_logged_ones() {
        let d = [one(Topology::Ring, 4, 25e9, 0.0)];
        assert!((seconds(CollectiveKind::AllReduce, &d, 1.0, 1) * 1e9 - 0.03).abs() < 1e-15);
        assert!((seconds(CollectiveKind::AllToAll, &d, 1.0, 1) * 1e9 - 0.08).abs() < 1e-15);
    }

    /// LLM_Serving/DSE/TP4_PP4, decode, at d818f8ba: two all-reduces of 8192 B over four chips at 50 GB/s and 150 ns, reduce-scatter and
    /// all-gather apart: 491.52 ns + 1800 ns.
    #[test]
    fn latency_of_an_all_reduce_is_the_logged_one() {
        let d = [one(Topology::Ring, 4, 50e9, 150e-9)];
        assert!((2.0 * seconds(CollectiveKind::AllReduce, &d, 8192.0, 2) * 1e9 - 2291.52).abs() < 1e-9);
    }

    /// FFT/Compare_w_existing/FP32/4096: 17,592,186,044,416 B over 8 x 512 switches; N^2 messages at 25 GB/s take 1374389534.72 ns,
    /// N(N-1)/2 at 12.5 GB/s 1374053990.4 ns.
    #[test]
    fn messages_of_the_transform_are_the_logged_ones() {
        let at = |gbs: f64| [one(Topology::Switch, 8, 300e9, 0.0), one(Topology::Switch, 512, gbs * 1e9, 0.0)];
        let held = 17_592_186_044_416.0 / 4096.0;
        let squared = all_to_all(&at(25.0), held, AllToAllMessages::Squared) * 1e9;
        let pairs = all_to_all(&at(12.5), held, AllToAllMessages::Pairs) * 1e9;
        assert!((squared / 1374389534.72 - 1.0).abs() < 1e-12, "{squared}");
        assert!((pairs / 1374053990.4 - 1.0).abs() < 1e-12, "{pairs}");
    }

    /// HPL/Compare_w_existing/8192, first panel: 16,777,216 B over a ring of eight at 25 GB/s: 3.5 times, 2348810.24 ns.
    #[test]
    fn first_panel_is_the_logged_one() {
        let ring = [one(Topology::Ring, 8, 25e9, 0.0)];
        assert!((first_broadcast(&ring, 16_777_216.0) * 1e9 - 2_348_810.24).abs() < 1e-6);
    }
}
