//! Workloads that a process grid shares, and topologies that matter: figures derived by hand.

use flowspace::mapping::{Answer, Request, Status, map};
use flowspace::plan::{Plan, file};
use flowspace::spec::Node;
use flowspace::system::System;
use flowspace::workload::{Workload, WorkloadSpec};

fn tree(text: &str) -> Node {
    Node::parse("test.yaml", text).unwrap_or_else(|e| panic!("{e}"))
}

fn workload(text: &str) -> Workload {
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

fn system(network: &str, overlap: &str) -> System {
    System::build(&system_tree(network, overlap)).unwrap_or_else(|e| panic!("{e}"))
}

const LINK: &str =
    "link: {name: l, source: 'assumed: test', bandwidth: 100 GB/s, latency: 1 us, price: $1/(GB/s), power: 1 W/(GB/s)}";

fn mapped(workload: &Workload, system: &System) -> Box<Plan> {
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
/// each dimension), and no plan beats it.
#[test]
fn fft_meets_the_bisection_bound_of_a_torus() {
    let network = format!("  topology: torus-2d\n  dimensions:\n    - {{size: 8, {LINK}}}\n    - {{size: 8, {LINK}}}");
    let plan = mapped(&workload(FFT), &system(&network, "full"));
    let network_s: f64 = plan.figures.partitions.iter().map(|p| p.network_s).sum();
    let bound = 2f64.powi(31) / (16.0 * 100e9);
    assert!((network_s - (bound + 8e-6)).abs() < 1e-12, "{network_s} {bound}");
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
    let broken = flowspace::check::derive(&plan.workload, &plan.system, &divided).unwrap_err();
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
        "{kind: transformer, name: g, source: 'assumed: test', hidden: 4096, heads: 32, head_dim: 128, seq: 2048, layers: 1,
          pass: training, global_batch: 1}",
    );
    let on = |topology: &str| {
        let network = format!("  topology: {topology}\n  dimensions:\n    - {{size: 8, {LINK}}}");
        mapped(&w, &system(&network, "compute_memory")).figures.layer_s
    };
    let difference = on("ring") - on("switch");
    assert!((difference - 32e-6).abs() < 1e-12, "{difference}");
}
