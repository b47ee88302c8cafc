//! Hand-derived problems in which one constraint family decides the answer. Each is solved as a shortest path and as a
//! MILP; sizes are bytes, the DRAM moves one byte a second, and nothing overlaps unless a test says so.

use crate::properties::near;
use flowspace::mapping::Status;
use flowspace::mapping::exact;
use flowspace::mapping::fusion::{self, PartitionCounts};
use flowspace::mapping::ideals::{Ideals, MAX_IDEALS};
use flowspace::mapping::instance::{Compute, Goal, Instance, KernelCost, TensorCost, UseCost};
use flowspace::mapping::solver::Limits;
use flowspace::model::compute::CoreOption;
use flowspace::system::Overlap;

/// A kernel of one second.
fn kernel() -> KernelCost {
    KernelCost {
        compute: Compute::Seconds(1.0),
        network_s: 0.0,
        serial_s: 0.0,
        resident_bytes: 0.0,
        dram_bytes: 0.0,
        pieces: 1,
        backward: false,
    }
}

/// A tensor of `bytes` that takes no SRAM.
fn tensor(producer: Option<usize>, readers: &[usize], bytes: f64) -> TensorCost {
    TensorCost {
        producer,
        output: false,
        store_bytes: bytes,
        store_buffer: 0.0,
        live_bytes: bytes,
        uses: readers
            .iter()
            .map(|k| UseCost {
                kernel: *k,
                load_bytes: bytes,
                load_buffer: 0.0,
                onchip_buffer: 0.0,
                lag: 0.0,
                own_part: false,
            })
            .collect(),
    }
}

fn instance(kernels: Vec<KernelCost>, tensors: Vec<TensorCost>) -> Instance {
    Instance {
        pins: vec![None; kernels.len()],
        kernels,
        tensors,
        sram_bytes: 12.0,
        base_sram_bytes: 0.0,
        live_limit: f64::INFINITY,
        cores: 2,
        dram_bytes_per_s: 1.0,
        overlap: Overlap::None,
        partition_overhead_s: 0.0,
        kernel_by_kernel: false,
        separate_phases: false,
        max_partitions: None,
        goal: Goal::TIME,
    }
}

/// Two kernels, the second reads three bytes of the first.
fn pair() -> Instance {
    instance(vec![kernel(), kernel()], vec![tensor(Some(0), &[1], 3.0)])
}

fn path(i: &Instance) -> Option<(f64, Vec<usize>)> {
    let ideals = Ideals::of(i, MAX_IDEALS).expect("few kernels");
    exact::solve(i, &ideals).map(|p| (p.objective, p.assignment))
}

/// The optimum, on which both engines must agree.
fn optimum(i: &Instance) -> Option<f64> {
    let found = path(i);
    let of_phase = |backward: bool| i.kernels.iter().filter(|k| !i.separate_phases || k.backward == backward).count();
    let counts = PartitionCounts {
        forward: of_phase(false).min(i.max_partitions.unwrap_or(usize::MAX)),
        backward: if i.separate_phases { of_phase(true) } else { 0 },
    };
    let solved = fusion::build(i, counts).solve(&Limits::default(), None).unwrap();
    match &found {
        None => assert_eq!(solved.record.status, Status::Infeasible, "MILP {}", solved.record.objective),
        Some((seconds, _)) => {
            assert!(near(solved.record.objective, *seconds, 1e-6), "MILP {}, path {seconds}", solved.record.objective);
        }
    }
    found.map(|(seconds, _)| seconds)
}

#[track_caller]
fn takes(i: &Instance, seconds: f64) {
    let found = optimum(i).expect("feasible");
    assert!(near(found, seconds, 1e-9), "found {found}, by hand {seconds}");
}

/// Every kernel runs exactly once: 1 + 1 s, nothing else to pay in one partition.
#[test]
fn f1_every_kernel_runs_once() {
    takes(&pair(), 2.0);
}

/// a makes 10 bytes for b and c, b makes 1 byte for c, and b must be alone. Were there no order, a and c would share a
/// partition: 3 + store 10 + load 10 + store 1 + load 1 = 25. But c runs after b and b after a, so each is alone and c
/// loads the 10 bytes again: 35.
#[test]
fn f2_order_binds() {
    let alone = KernelCost { pieces: 2, ..kernel() };
    let i = instance(vec![kernel(), alone, kernel()], vec![tensor(Some(0), &[1, 2], 10.0), tensor(Some(1), &[2], 1.0)]);
    takes(&i, 35.0);
    assert_eq!(path(&i).unwrap().1, [0, 1, 2]);
}

/// On chip a tensor costs no DRAM traffic (2 s), across partitions it is stored and loaded (2 + 3 + 3).
#[test]
fn f3_a_tensor_on_chip_moves_nothing() {
    takes(&pair(), 2.0);
    let mut apart = pair();
    apart.pins = vec![Some(0), Some(1)];
    takes(&apart, 8.0);
}

/// Stored once, loaded by each partition that reads it: 3 + store 5 + 2 x load 5 = 18. Read twice in one partition it is
/// loaded once: 3 + 5 + 5 = 13.
#[test]
fn f4_one_store_and_a_load_for_each_partition() {
    let kernels = || vec![KernelCost { pieces: 2, ..kernel() }, kernel(), kernel()];
    let mut i = instance(kernels(), vec![tensor(Some(0), &[1, 2], 5.0)]);
    takes(&i, 13.0);
    i.pins = vec![None, Some(1), Some(2)];
    takes(&i, 18.0);
}

/// An output is stored wherever its reader is: 2 + 3. An input is loaded by each partition that reads it: 2 + 4, then
/// 2 + 4 + 4.
#[test]
fn f4_outputs_are_stored_and_inputs_loaded() {
    let mut i = pair();
    i.tensors[0].output = true;
    takes(&i, 5.0);
    let mut i = instance(vec![kernel(), kernel()], vec![tensor(None, &[0, 1], 4.0)]);
    takes(&i, 6.0);
    i.pins = vec![Some(0), Some(1)];
    takes(&i, 10.0);
}

/// Weights of 5 + 5 bytes and a buffer of 2 between them fill the 12 bytes of SRAM: 2 s. With 11 bytes the kernels are
/// split (5 + 2 bytes each), 2 + 3 + 3 = 8 s. With 6 bytes neither fits alone.
#[test]
fn f5_sram_capacity_binds() {
    let mut i = pair();
    for k in &mut i.kernels {
        k.resident_bytes = 5.0;
    }
    i.tensors[0].store_buffer = 2.0;
    i.tensors[0].uses[0].load_buffer = 2.0;
    i.tensors[0].uses[0].onchip_buffer = 2.0;
    takes(&i, 2.0);
    i.sram_bytes = 11.0;
    takes(&i, 8.0);
    i.sram_bytes = 6.0;
    assert_eq!(optimum(&i), None);
}

/// Weights that stay on chip take room from every partition: of 12 bytes 10 are left for 5 + 5 + 2, so the pair is split.
#[test]
fn f5_weights_that_stay_on_chip_take_room() {
    let mut i = pair();
    for k in &mut i.kernels {
        k.resident_bytes = 6.0;
    }
    takes(&i, 2.0);
    i.base_sram_bytes = 1.0;
    takes(&i, 8.0);
    i.base_sram_bytes = 7.0;
    assert_eq!(optimum(&i), None);
}

/// Two readers in one partition share the larger buffer (7, not 7 + 4): it fits 7 bytes of SRAM, not 6.
#[test]
fn f5_readers_share_the_largest_buffer() {
    let mut i = instance(vec![kernel(), kernel()], vec![tensor(None, &[0, 1], 4.0)]);
    i.tensors[0].uses[0].load_buffer = 7.0;
    i.tensors[0].uses[1].load_buffer = 4.0;
    i.sram_bytes = 7.0;
    takes(&i, 6.0);
    i.sram_bytes = 6.0;
    assert_eq!(optimum(&i), None);
}

/// Each kernel takes 1 s on both cores or 8 s on one, everything overlaps. Apart: max(1, store 1/2) + max(1, load 1/2)
/// = 2 s, but 6 bytes wait in DRAM. With room for 5 they must share the chip: 8 s.
#[test]
fn f6_live_dram_binds() {
    let options = |(one, two): (f64, f64)| {
        let option = |cores, seconds| CoreOption { cores, lanes: cores, stages: 1, seconds };
        Compute::Cores(vec![option(1, one), option(2, two)])
    };
    let mut i = pair();
    for k in &mut i.kernels {
        k.compute = options((8.0, 1.0));
    }
    i.overlap = Overlap::Full;
    i.dram_bytes_per_s = 6.0;
    i.tensors[0].live_bytes = 6.0;
    i.live_limit = 6.0;
    takes(&i, 2.0);
    i.live_limit = 5.0;
    takes(&i, 8.0);
}

/// a and b, each alone, make 6 and 5 bytes for c: while c runs 11 bytes wait.
#[test]
fn f6_waiting_tensors_add_up() {
    let alone = || KernelCost { pieces: 2, ..kernel() };
    let mut i = instance(vec![alone(), alone(), alone()], vec![tensor(Some(0), &[2], 6.0), tensor(Some(1), &[2], 5.0)]);
    i.live_limit = 11.0;
    takes(&i, 3.0 + 2.0 * 11.0);
    i.live_limit = 10.0;
    assert_eq!(optimum(&i), None);
}

/// 6 and 3 core-seconds on 3 cores: 2 + 1 cores make both take 3 s; with 5 cores 3 + 2 make them take 2 s; with one
/// core they cannot share the chip: 6 + 3, and 3 + 3 for the tensor.
#[test]
fn f7_cores_bind() {
    let front = |list: &[(u64, f64)]| {
        Compute::Cores(list.iter().map(|(c, s)| CoreOption { cores: *c, lanes: *c, stages: 1, seconds: *s }).collect())
    };
    let mut i = pair();
    i.kernels[0].compute = front(&[(1, 6.0), (2, 3.0), (3, 2.0)]);
    i.kernels[1].compute = front(&[(1, 3.0), (2, 1.5), (3, 1.0)]);
    for (cores, seconds) in [(3, 3.0), (5, 2.0), (1, 15.0)] {
        i.cores = cores;
        takes(&i, seconds);
    }
}

/// 5 s of arithmetic, 3 of DRAM, 2 of network, 1 of nothing else: 5 + 1, 5 + 2 + 1, 5 + 3 + 2 + 1.
#[test]
fn f8_overlap_decides_what_adds_up() {
    let k = KernelCost { compute: Compute::Seconds(5.0), network_s: 2.0, serial_s: 1.0, dram_bytes: 3.0, ..kernel() };
    let mut i = instance(vec![k], Vec::new());
    for (overlap, seconds) in [(Overlap::Full, 6.0), (Overlap::ComputeMemory, 8.0), (Overlap::None, 11.0)] {
        i.overlap = overlap;
        takes(&i, seconds);
    }
}

/// Parts overlap inside a partition only: arithmetic of 4 beside DRAM of 4 takes 4 in one partition, 4 + 4 in two.
#[test]
fn f8_parts_of_two_partitions_do_not_overlap() {
    let mut i = instance(
        vec![
            KernelCost { compute: Compute::Seconds(4.0), ..kernel() },
            KernelCost { compute: Compute::Seconds(0.0), dram_bytes: 4.0, ..kernel() },
        ],
        Vec::new(),
    );
    i.overlap = Overlap::Full;
    takes(&i, 4.0);
    i.kernels[0].pieces = 2;
    takes(&i, 8.0);
}

/// A kernel that fits only in pieces shares no partition: 2 + 3 + 3.
#[test]
fn f9_alone_binds() {
    for k in 0..2 {
        let mut i = pair();
        i.kernels[k].pieces = 2;
        takes(&i, 8.0);
    }
}

/// Each partition costs its launch. Apart (see `f6_live_dram_binds`) 1 + 1 + 2 x 10, together 8 + 10.
#[test]
fn f9_overheads_count_partitions() {
    let option = |cores, seconds| CoreOption { cores, lanes: cores, stages: 1, seconds };
    let mut i = instance(vec![kernel(), kernel()], Vec::new());
    for k in &mut i.kernels {
        k.compute = Compute::Cores(vec![option(1, 8.0), option(2, 1.0)]);
    }
    takes(&i, 2.0);
    i.partition_overhead_s = 2.0;
    takes(&i, 6.0);
    i.partition_overhead_s = 10.0;
    takes(&i, 18.0);
}

/// No partition of both phases: 2 + 3 + 3, and two launches.
#[test]
fn f9_phases_are_kept_apart() {
    let mut i = pair();
    i.kernels[1].backward = true;
    i.partition_overhead_s = 1.0;
    takes(&i, 3.0);
    i.separate_phases = true;
    takes(&i, 10.0);
}

/// The last of three kernels is pinned to the second partition: the cheaper of the two tensors (2 and 3 bytes) is cut.
#[test]
fn f9_pins_bind() {
    let chain = vec![tensor(Some(0), &[1], 3.0), tensor(Some(1), &[2], 2.0)];
    let mut i = instance(vec![kernel(), kernel(), kernel()], chain);
    takes(&i, 3.0);
    i.pins[2] = Some(1);
    takes(&i, 3.0 + 2.0 + 2.0);
    assert_eq!(path(&i).unwrap().1, [0, 0, 1]);
    i.pins[0] = Some(1);
    assert_eq!(optimum(&i), None, "nothing is left for the first partition but b, which reads a");
}

/// Two kernels that are each alone need two partitions.
#[test]
fn f9_the_number_of_partitions_binds() {
    let mut i = pair();
    i.kernels[0].pieces = 2;
    i.max_partitions = Some(2);
    takes(&i, 8.0);
    i.max_partitions = Some(1);
    assert_eq!(optimum(&i), None);
}

/// Kernel by kernel every tensor goes through DRAM (the MILP does not state this rule, the search needs none there).
#[test]
fn kernel_by_kernel_fuses_nothing() {
    let mut i = pair();
    i.kernel_by_kernel = true;
    assert_eq!(path(&i), Some((8.0, vec![0, 1])));
    assert!(near(i.lower_bound(), 8.0, 1e-12), "the closed form knows it: {}", i.lower_bound());
}

/// Eighteen independent kernels are too many ideals to list: the search starts from the cuts of one order (here one
/// partition of 100 s) and has the MILP prove it. Nine kernels take 10 s of DRAM each, nine take 10 s on 6 of 18 cores or
/// 100 s on one. Three of each in each of three partitions: 3 x 30 = 90 s.
#[test]
fn the_bound_of_a_wide_graph_holds_for_any_number_of_partitions() {
    let option = |cores, seconds| CoreOption { cores, lanes: cores, stages: 1, seconds };
    let kernels = (0..18)
        .map(|k| KernelCost {
            compute: Compute::Cores(if k < 9 { vec![option(1, 0.0)] } else { vec![option(1, 100.0), option(5, 10.0)] }),
            dram_bytes: if k < 9 { 10.0 } else { 0.0 },
            ..kernel()
        })
        .collect();
    let mut i = instance(kernels, Vec::new());
    i.cores = 18;
    i.overlap = Overlap::Full;
    let better = i.evaluate(&(0..18).map(|k| k % 3).collect::<Vec<_>>()).expect("feasible").0;
    assert!(near(better, 90.0, 1e-9), "{better}");
    let ideals = Ideals::of(&i, MAX_IDEALS).expect("few kernels");
    let start = exact::solve(&i, &ideals).expect("a plan");
    assert!(!start.proven);
    // As the search does it for a plan without a proof: a partition for every kernel.
    let counts = PartitionCounts::of(&i, &start.assignment, i.kernels.len());
    let solved = fusion::build(&i, counts).solve(&Limits::default(), None).unwrap();
    assert!(
        solved.record.bound <= better * (1.0 + 1e-6),
        "a bound of {} above a plan of {better}",
        solved.record.bound
    );
}
