//! Workloads that a process grid shares, and topologies that matter: figures derived by hand.

use flowspace::mapping::{Answer, Request, Status, map};
use flowspace::plan::{Plan, file};
use flowspace::spec::Node;
use flowspace::system::System;
use flowspace::workload::{Workload, WorkloadSpec};

fn tree(text: &str) -> Node {
    Node::parse("test.yaml", text).unwrap_or_else(|e| panic!("{e}"))
}

pub(super) fn workload(text: &str) -> Workload {
    WorkloadSpec::build(&tree(text)).unwrap_or_else(|e| panic!("{e}"))
}

/// Chips of 100 TFLOP/s without overheads, 1 TB/s of DRAM, links of 100 GB/s and 1 us.
fn system_tree(network: &str, overlap: &str) -> Node {
    tree(&format!(
        "name: s
source: 'assumed: test'
chip:
  {{name: c, source: 'assumed: test', style: kernel_by_kernel, cores: 100, lanes: 10, stages: 50, frequency: 1 GHz,
   sram: 1 GiB, efficiency: 1.0, price: $1, power: 1 W}}
memory: {{name: m, source: 'assumed: test', bandwidth: 1 TB/s, price: $1/(GB/s), power: 1 W/(GB/s)}}
network:
{network}
overlap: {overlap}
"
    ))
}

pub(super) fn system(network: &str, overlap: &str) -> System {
    System::build(&system_tree(network, overlap)).unwrap_or_else(|e| panic!("{e}"))
}

pub(super) const LINK: &str =
    "link: {name: l, source: 'assumed: test', bandwidth: 100 GB/s, latency: 1 us, price: $1/(GB/s), power: 1 W/(GB/s)}";

pub(super) fn mapped(workload: &Workload, system: &System) -> Box<Plan> {
    match map(workload, system, &Request::default()).unwrap() {
        Answer::Mapped(plan, record) => {
            assert_eq!(record.status, Status::Optimal);
            flowspace::check::verify(&plan).unwrap_or_else(|e| panic!("{e}"));
            plan
        }
        Answer::Infeasible(reason) => panic!("{reason}"),
    }
}

const FFT: &str = "{kind: fft, name: f, source: 'assumed: test', length: 1073741824, word: 8 B}";

/// The all-to-all cannot be faster than half of all bytes through the bisection: a torus of 8 x 8 is cut by 2 x 8 links in each
/// direction, a quarter of the 8 GiB goes each way: 2^31 / (16 * 100e9) s. The model reaches that bound (plus latency: 4 hops in
/// each dimension), and no plan beats it. Where a chip's links in a ring have 100 GB/s together, it is cut by half as much.
#[test]
fn fft_meets_the_bisection_bound_of_a_torus() {
    for ring_links in [1, 2] {
        let link = LINK.replace("latency", &format!("ring_links: {ring_links}, latency"));
        let network =
            format!("  topology: torus-2d\n  dimensions:\n    - {{size: 8, {link}}}\n    - {{size: 8, {link}}}");
        let plan = mapped(&workload(FFT), &system(&network, "full"));
        let network_s: f64 = plan.figures.partitions.iter().map(|p| p.network_s).sum();
        let bound = 2f64.powi(31) / (8.0 * f64::from(ring_links) * 100e9);
        assert!((network_s - (bound + 8e-6)).abs() < 1e-12, "{network_s} {bound}");
    }
}

/// Behind one switch every chip sends 63/64 of its 2^27 bytes through its port.
#[test]
fn fft_behind_a_switch() {
    let network = format!("  topology: switch\n  dimensions:\n    - {{size: 64, {LINK}}}");
    let plan = mapped(&workload(FFT), &system(&network, "full"));
    let network_s: f64 = plan.figures.partitions.iter().map(|p| p.network_s).sum();
    let expected = 63.0 / 64.0 * 2f64.powi(27) / 100e9 + 1e-6;
    assert!((network_s - expected).abs() < 1e-12, "{network_s} {expected}");
}

/// HPL on 4 x 4 chips without latency: never faster than 2/3 n^3 at peak. The square grid wins: of a panel's S bytes it moves S/4
/// along its rows and 2 S/4 along its columns at once, a flat grid S or 2 S. With 1 us a step the 1,024 pivot searches of a
/// panel, 2 log2(4) us each, outweigh that, and one row of 16 is better: no search leaves a chip.
#[test]
fn hpl_takes_the_square_grid_and_never_beats_its_flop() {
    let w = workload("{kind: hpl, name: h, source: 'assumed: test', n: 65536, block: 1024}");
    let network = format!("  topology: torus-2d\n  dimensions:\n    - {{size: 4, {LINK}}}\n    - {{size: 4, {LINK}}}");
    assert_eq!(mapped(&w, &system(&network, "compute_memory")).decisions.grid(), (1, 16));
    let network = network.replace("latency: 1 us", "latency: 0 s");
    let plan = mapped(&w, &system(&network, "compute_memory"));
    assert_eq!(plan.decisions.grid(), (4, 4));
    let least = 2.0 / 3.0 * 65536f64.powi(3) / (16.0 * 100e12);
    assert!(plan.figures.iteration_s() > least);
    assert!(plan.figures.utilization < 1.0 && plan.figures.utilization > 0.5, "{}", plan.figures.utilization);
}

/// A plan on a process grid is written, read and derived again.
#[test]
fn plans_on_a_grid_come_back() {
    let text = "{kind: hpl, name: h, source: 'assumed: test', n: 8192, block: 1024, steps: sequential}";
    let network = format!("  topology: torus-2d\n  dimensions:\n    - {{size: 2, {LINK}}}\n    - {{size: 4, {LINK}}}");
    let plan = mapped(&workload(text), &system(&network, "none"));
    let written = file::write(&tree(text), &system_tree(&network, "none"), &plan).unwrap();
    let read = file::read(&tree(&written)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(read.decisions, plan.decisions);
    let again = flowspace::check::derive(&read.workload, &read.system, &read.decisions).unwrap();
    assert_eq!(read.result.unwrap().differences(&again), Vec::<String>::new());

    let mut divided = plan.decisions.clone();
    divided.uses[1] = flowspace::plan::DimensionUse { rows: 2, cols: 2, ..flowspace::plan::DimensionUse::NONE };
    // Rows lie two hops apart in the ring of four, columns are lines of two: DFModel's collectives know neither.
    flowspace::check::derive(&plan.workload, &plan.system, &divided).unwrap();
    let mut dfmodel = plan.system.clone();
    dfmodel.model.network_model = flowspace::system::NetworkModel::Dfmodel;
    let broken = flowspace::check::derive(&plan.workload, &dfmodel, &divided).unwrap_err();
    assert!(broken.iter().any(|b| b.contains("is a ring")), "{broken:?}");
    let mut wrong = plan.decisions.clone();
    wrong.uses[0] = flowspace::plan::DimensionUse { tp: 2, ..flowspace::plan::DimensionUse::NONE };
    let broken = flowspace::check::derive(&plan.workload, &plan.system, &wrong).unwrap_err();
    assert!(broken.iter().any(|b| b.contains("process grid")), "{broken:?}");
}

/// Eight chips as a torus dimension and as a DGX switch: DFModel gives both the same time. Ours differ by what a ring's steps cost
/// beyond a tree's, 2 ((n-1) - log2 n) a = 8 us for each all-reduce at n = 8, a = 1 us. A GPT layer under
/// tensor parallelism 8 makes four all-reduces (or pairs of reduce-scatter and all-gather, which cost the same) in a training
/// step of one layer, so the layer takes 32 us longer on the ring.
#[test]
fn a_torus_and_a_switch_differ_by_their_latencies() {
    let w = workload(
        "{kind: dfmodel_layer, name: g, source: 'assumed: test', hidden: 4096, heads: 32, head_dim: 128, seq: 2048, layers: 1,
          pass: training, global_batch: 1}",
    );
    let on = |topology: &str| {
        let network = format!("  topology: {topology}\n  dimensions:\n    - {{size: 8, {LINK}}}");
        mapped(&w, &system(&network, "compute_memory")).figures.layer_s
    };
    let difference = on("ring") - on("switch");
    assert!((difference - 32e-6).abs() < 1e-12, "{difference}");
}

/// FLOP that a chip of a grid of `p` x `q` is charged for HPL, all panels together.
///
/// With look-ahead a panel is one kernel on an edge of e = r = n - (i + 1) B, or, of the last panel, its own width. Its FLOP (2 r^2 B + B^2 r + B^2 (s - B / 3),
/// together 2/3 n^3) are charged in proportion to the chip that has most, ceil(e / p) ceil(e / q) of e^2: 2/3 n^3 / (p q) where the grid divides all edges.
///
/// In sequence a panel of s x B rows lies on the p rows of the grid, its solve on the q columns, its update on both; s, r and B divide
/// evenly. With J = n / B: panels B^3 (J (J + 1) / 2 - J / 3), solves B^3 J (J - 1) / 2, updates B^3 J (J - 1) (2 J - 1) / 3.
fn hpl_flop(n: u64, block: u64, steps: &str, (p, q): (u64, u64)) -> f64 {
    if steps == "lookahead" {
        let of_panel = |s: u64| {
            let width = block.min(s);
            let r = s - width;
            let edge = if r > 0 { r } else { width };
            let (b, left, above) = (width as f64, r as f64, s as f64);
            let flop = b * b * (above - b / 3.0) + b * b * left + 2.0 * left * left * b;
            flop * (edge.div_ceil(p) * edge.div_ceil(q)) as f64 / (edge * edge) as f64
        };
        return (0..n).step_by(block as usize).map(|done| of_panel(n - done)).sum();
    }
    let (n, b, p, q) = (n as f64, block as f64, p as f64, q as f64);
    let j = n / b;
    let (panels, solves) = (j * (j + 1.0) / 2.0 - j / 3.0, j * (j - 1.0) / 2.0);
    let updates = j * (j - 1.0) * (2.0 * j - 1.0) / 3.0;
    b.powi(3) * (panels / p + solves / q + updates / (p * q))
}

/// HPL against its closed form ([`hpl_flop`]): arithmetic on one chip and on four. No tile count adds to it, also where later panels have fewer columns
/// than there are tiles. One row of four is the best grid: no pivot search leaves a chip. By hand: 16,384 on one chip 0.0293203 s; of n = 10,001 in panels of
/// 384 no edge divides into four.
#[test]
fn hpl_takes_its_closed_form() {
    let even = [(16384u64, 512u64, "lookahead"), (10_000, 384, "lookahead")];
    for (n, block, steps) in even {
        for grid in [(1, 1), (1, 4), (2, 2)] {
            let shared = 2.0 / 3.0 * (n as f64).powi(3) / (grid.0 * grid.1) as f64;
            assert!((hpl_flop(n, block, steps, grid) / shared - 1.0).abs() < 1e-12, "{n} {block} {grid:?}");
        }
    }
    assert!((hpl_flop(16384, 512, "lookahead", (1, 1)) / 100e12 - 0.0293203).abs() < 1e-7);
    assert!(hpl_flop(10_001, 384, "lookahead", (1, 4)) > 1.0002 / 6.0 * 10_001f64.powi(3));
    let four = format!("  topology: torus-2d\n  dimensions:\n    - {{size: 2, {LINK}}}\n    - {{size: 2, {LINK}}}");
    for (n, block, steps) in even.into_iter().chain([(16384, 1024, "sequential"), (10_001, 384, "lookahead")]) {
        let text = format!("{{kind: hpl, name: h, source: 'assumed: test', n: {n}, block: {block}, steps: {steps}}}");
        for (network, grid) in [("  topology: single-chip\n  dimensions: []", (1, 1)), (four.as_str(), (1, 4))] {
            let plan = mapped(&workload(&text), &system(network, "none"));
            assert_eq!(plan.decisions.grid(), grid, "{n} {block} {steps}");
            let arithmetic: f64 = plan.figures.partitions.iter().map(|p| p.compute_s).sum();
            let closed = hpl_flop(n, block, steps, grid) / 100e12;
            assert!(
                (arithmetic / closed - 1.0).abs() < 1e-9,
                "{n} {block} {steps} {grid:?}: {arithmetic} s, {closed} s"
            );
        }
    }
}

/// A recommendation model against its closed form, on eight chips behind a switch, a replica each: products at the peak; look-ups read T p d N w
/// bytes and write the T d N w that are pooled; these go through the all-to-all, 7/8 of them over a chip's link, and 1 us.
#[test]
fn recommendation_takes_its_closed_form() {
    let text = "{kind: dlrm, name: d, source: 'assumed: test', dense: 64, bottom: [512, 64], top: [512, 1], tables: 26, rows: 1000000, dim: 64,
      lookups: 40, minibatch: 2048, pass: training, global_batch: 8}";
    let network = format!(
        "  topology: switch\n  dimensions:\n    - {{size: 8, {LINK}}}\n  switch: {{name: s, source: 'assumed: test', price: $1/(GB/s), power: 1 W/(GB/s)}}"
    );
    let mut request = Request::default();
    (request.wanted.tp, request.wanted.pp, request.wanted.dp) = (Some(1), Some(1), Some(8));
    let (work, system) = (workload(text), system(&network, "none"));
    let Answer::Mapped(plan, _) = map(&work, &system, &request).unwrap() else { panic!("no plan") };
    flowspace::check::verify(&plan).unwrap_or_else(|e| panic!("{e}"));
    let arithmetic: f64 = plan.figures.partitions.iter().map(|p| p.compute_s).sum();
    // Passes of all replicas in an iteration: one each.
    let closed = work.flop_per_iteration() / 8.0 / 100e12;
    assert!((arithmetic / closed - 1.0).abs() < 1e-9, "{arithmetic} s, {closed} s");
    let pooled = 26.0 * 64.0 * 2048.0 * 2.0;
    let tables = plan.figures.partitions.iter().find(|p| p.kernels == ["EMB"]).unwrap();
    let (dram, links) = ((40.0 * pooled + pooled) / 1e12, 7.0 / 8.0 * pooled / 100e9 + 1e-6);
    assert!((tables.dram_s / dram - 1.0).abs() < 1e-9, "{} s, {dram} s", tables.dram_s);
    assert!((tables.network_s / links - 1.0).abs() < 1e-9, "{} s, {links} s", tables.network_s);
}

/// Transforms of any length and radix against their closed form, on four chips: c2 = ceil(N2 / 4) transforms of length N1, then c1 = ceil(N1 / 4) of length
/// N2. Butterflies take 5 N log2 N FLOP each, with N2 the root of the length, rounded down, and N1 = ceil(L / N2); products 2 N K with both the root and K = 4 log2(N) / log2(r) r,
/// rounded down (of a power of two its halves). Each step reads and writes what a chip has of the data, the second what the first has made; a torus of 2 x 2 takes a quarter of all
/// bytes over two links for its all-to-all, and two hops.
#[test]
fn transforms_of_any_size_take_their_closed_form() {
    let network = format!("  topology: torus-2d\n  dimensions:\n    - {{size: 2, {LINK}}}\n    - {{size: 2, {LINK}}}");
    let system = system(&network, "none");
    for length in [1_000_000u64, 1_000_003, 12_345, 999_983 * 7, 1 << 20, 1 << 21, 3u64.pow(14), 10u64.pow(9)] {
        for radix in [None, Some(2u64), Some(3), Some(10), Some(32), Some(1000)] {
            let root = length.isqrt();
            let bits = length.is_power_of_two().then(|| length.ilog2());
            let (n1, n2) = match (bits, radix) {
                (Some(bits), _) => (1 << bits.div_ceil(2), 1 << (bits / 2)),
                (None, Some(_)) => (root, root),
                (None, None) => (length.div_ceil(root), root),
            };
            let of = |n: u64| match radix {
                // In this order a radix that is a power of two gives whole numbers.
                Some(r) => 2.0 * n as f64 * (4.0 * (n as f64).log2() / (r as f64).log2() * r as f64).floor(),
                None => 5.0 * n as f64 * (n as f64).log2(),
            };
            let (c1, c2) = (n1.div_ceil(4), n2.div_ceil(4));
            // Stated FLOP are shared as the transforms are.
            let flop = c2 as f64 * of(n1) + c1 as f64 * of(n2);
            let bytes = 8.0 * (3 * n1 * c2 + n2 * c1) as f64;
            let method = radix.map_or("butterflies".to_string(), |r| format!("gemm, radix: {r}"));
            let text = format!("{{kind: fft, name: f, source: 'assumed: test', length: {length}, method: {method}}}");
            let plan = mapped(&workload(&text), &system);
            let sum =
                |of: fn(&flowspace::plan::PartitionFigures) -> f64| plan.figures.partitions.iter().map(of).sum::<f64>();
            let found = [sum(|p| p.compute_s), sum(|p| p.dram_s), sum(|p| p.network_s)];
            let sent = 8.0 * (n1 * n2) as f64 / 4.0;
            let closed = [flop / 100e12, bytes / 1e12, sent / 200e9 + 2e-6];
            for (found, closed) in found.into_iter().zip(closed) {
                assert!((found / closed - 1.0).abs() < 1e-9, "{length} {method}: {found} s, by hand {closed} s");
            }
        }
    }
}
