//! Random fusion instances. Sizes and times are small multiples of a quarter, so that ties and exact fits are common.

use flowspace::mapping::instance::{Compute, Goal, Instance, KernelCost, TensorCost, UseCost};
use flowspace::model::compute::CoreOption;
use flowspace::system::Overlap;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;

/// Whole numbers up to `most`, as quarters.
fn quarters(most: u32) -> impl Strategy<Value = f64> {
    (0..=most).prop_map(|q| f64::from(q) / 4.0)
}

fn whole(most: u32) -> impl Strategy<Value = f64> {
    (0..=most).prop_map(f64::from)
}

/// A front of core options: ascending in cores, descending in seconds.
pub fn core_options() -> impl Strategy<Value = Vec<CoreOption>> {
    vec((1..=3u64, 1..=6u32), 1..=3).prop_map(|steps| {
        let total: u32 = steps.iter().map(|(_, s)| s).sum();
        let (mut cores, mut left) = (0, total);
        steps
            .into_iter()
            .map(|(more, less)| {
                cores += more;
                let option = CoreOption { cores, lanes: cores, stages: 1, seconds: f64::from(left) / 4.0 };
                left -= less;
                option
            })
            .collect()
    })
}

#[derive(Debug, Clone)]
struct RawKernel {
    seconds: f64,
    options: Vec<CoreOption>,
    shares_cores: bool,
    network: f64,
    serial: f64,
    resident: f64,
    dram: f64,
    pieces: u64,
    pin: Option<usize>,
}

fn kernel() -> impl Strategy<Value = RawKernel> {
    (
        (quarters(12), core_options(), any::<bool>()),
        (quarters(6), prop_oneof![4 => Just(0.0), 1 => quarters(3)], whole(6), whole(6)),
        (prop_oneof![9 => Just(1u64), 1 => 2..=4u64], 0..8usize),
    )
        .prop_map(|((seconds, options, shares_cores), (network, serial, resident, dram), (pieces, pin))| {
            RawKernel { seconds, options, shares_cores, network, serial, resident, dram, pieces, pin: Some(pin) }
        })
}

#[derive(Debug, Clone)]
struct RawTensor {
    producer: Option<usize>,
    uses: Vec<(usize, [f64; 4])>,
    output: bool,
    store: f64,
    store_buffer: f64,
    live: f64,
}

fn tensor() -> impl Strategy<Value = RawTensor> {
    // Of a chip that pipelines tiles, by an eighth of a pass or after half of it.
    let lag = prop_oneof![Just(0.125), Just(0.125), Just(0.125), Just(0.5), Just(0.0)];
    let use_ = (0..8usize, (whole(6), whole(5), whole(5), lag).prop_map(|(a, b, c, lag)| [a, b, c, lag]));
    (weighted(0.85, 0..8usize), vec(use_, 0..=3), prop::bool::weighted(0.2), (whole(6), whole(5), whole(5))).prop_map(
        |(producer, uses, output, (store, store_buffer, live))| RawTensor {
            producer,
            uses,
            output,
            store,
            store_buffer,
            live,
        },
    )
}

#[derive(Debug, Clone)]
struct RawChip {
    sram: f64,
    base: f64,
    live_limit: f64,
    cores: u64,
    bandwidth: f64,
    overlap: Overlap,
    overhead: f64,
    kernel_by_kernel: bool,
    /// First backward kernel of eight; none where the phases are not kept apart.
    backward_from: Option<usize>,
    /// How the kernels use the cores: all by seconds, all by options, mixed.
    compute: u8,
    /// Kernels whose pin counts.
    pinned: Vec<usize>,
    max_partitions: Option<usize>,
    /// Whether pipelines of tiles fill and drain.
    fills: bool,
}

fn chip() -> impl Strategy<Value = RawChip> {
    let sram = prop_oneof![2 => (4..=24u32).prop_map(f64::from), 1 => Just(1000.0)];
    let live = prop_oneof![2 => Just(f64::INFINITY), 1 => (1..=15u32).prop_map(f64::from)];
    let overlap = prop_oneof![Just(Overlap::Full), Just(Overlap::ComputeMemory), Just(Overlap::None)];
    (
        (sram, prop_oneof![3 => Just(0.0), 1 => whole(4)], live, 2..=7u64, (1..=4u32).prop_map(f64::from), overlap),
        (prop_oneof![Just(0.0), quarters(8)], prop::bool::weighted(0.1), weighted(0.35, 0..=8usize), 0..3u8),
        (
            prop_oneof![3 => Just(Vec::new()), 1 => vec(0..8usize, 1..=3)],
            weighted(0.2, 1..=5usize),
            prop::bool::weighted(0.7),
        ),
    )
        .prop_map(
            |(
                (sram, base, live_limit, cores, bandwidth, overlap),
                (overhead, kernel_by_kernel, backward_from, compute),
                (pinned, max_partitions, fills),
            )| {
                RawChip {
                    sram,
                    base,
                    live_limit,
                    cores,
                    bandwidth,
                    overlap,
                    overhead,
                    kernel_by_kernel,
                    backward_from,
                    compute,
                    pinned,
                    max_partitions,
                    fills,
                }
            },
        )
}

/// A random instance of up to `most` kernels.
pub fn instance(most: usize) -> impl Strategy<Value = Instance> {
    (vec(kernel(), 1..=most), vec(tensor(), 0..=most + 2), chip())
        .prop_map(|(kernels, tensors, chip)| assemble(&kernels, &tensors, &chip))
}

fn assemble(kernels: &[RawKernel], tensors: &[RawTensor], chip: &RawChip) -> Instance {
    let n = kernels.len();
    let tensors = tensors
        .iter()
        .map(|t| {
            let producer = t.producer.map(|p| p % n);
            let first = producer.map_or(0, |p| p + 1);
            let uses = t
                .uses
                .iter()
                .filter(|_| first < n)
                .map(|(k, [load_bytes, load_buffer, onchip_buffer, lag])| UseCost {
                    kernel: first + k % (n - first),
                    load_bytes: *load_bytes,
                    load_buffer: *load_buffer,
                    onchip_buffer: *onchip_buffer,
                    lag: if chip.fills { *lag } else { 0.0 },
                    own_part: false,
                })
                .collect();
            TensorCost {
                producer,
                output: t.output,
                store_bytes: t.store,
                store_buffer: t.store_buffer,
                live_bytes: t.live,
                uses,
            }
        })
        .collect();
    let costs = kernels
        .iter()
        .enumerate()
        .map(|(i, k)| {
            let by_options = match chip.compute {
                0 => false,
                1 => true,
                _ => k.shares_cores,
            };
            KernelCost {
                compute: if by_options { Compute::Cores(k.options.clone()) } else { Compute::Seconds(k.seconds) },
                network_s: k.network,
                serial_s: k.serial,
                resident_bytes: k.resident,
                dram_bytes: k.dram,
                pieces: k.pieces,
                backward: chip.backward_from.is_some_and(|from| i >= from),
            }
        })
        .collect();
    let pins = (0..n).map(|i| kernels[i].pin.filter(|_| chip.pinned.contains(&i)).map(|p| p % n)).collect();
    Instance {
        kernels: costs,
        tensors,
        sram_bytes: chip.sram,
        base_sram_bytes: chip.base,
        live_limit: chip.live_limit,
        cores: chip.cores,
        dram_bytes_per_s: chip.bandwidth,
        overlap: chip.overlap,
        partition_overhead_s: chip.overhead,
        kernel_by_kernel: chip.kernel_by_kernel,
        separate_phases: chip.backward_from.is_some(),
        pins,
        max_partitions: chip.max_partitions,
        goal: Goal::TIME,
    }
}
