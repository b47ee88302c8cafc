//! The joint search on random graphs of two passes, in which tensors have readers on both sides: every sharding pinned in turn,
//! and what must not change an answer.

use crate::properties::joint::{brute_force_over, request, solve};
use crate::properties::search::{any_system, describe, system};
use crate::properties::{check, near};
use flowspace::mapping::search::{Objective, Passes, Request};
use flowspace::mapping::{Answer, Status, find};
use flowspace::spec::Node;
use flowspace::spec::read::Share;
use flowspace::system::options::{Pipeline, Preset};
use flowspace::system::{Style, System};
use flowspace::units::{Bytes, EnergyPerByte, EnergyPerFlop, Seconds};
use flowspace::workload::{Workload, WorkloadSpec};
use proptest::prelude::*;
use std::cell::Cell;
use std::fmt::Write as _;

/// One kernel before names are given: what it is, and which of the tensors before it reads.
type Raw = (u8, usize, usize, bool);

/// A graph of kernels whose tensors are all 64 x 64, so that any may read any. The first `forward` kernels are of the forward
/// pass; of the others GEMMs take the weight of a forward one where there is one.
fn graph(kernels: &[Raw], forward: usize, carried: usize, layers: u64) -> Workload {
    let mut text = String::new();
    let mut owners: Vec<usize> = Vec::new();
    let tensor = |i: usize| if i == 0 { "x".to_string() } else { format!("t{}", i - 1) };
    for (i, (kind, a, b, turned)) in kernels.iter().enumerate() {
        let (a, b) = (tensor(a % (i + 1)), tensor(b % (i + 1)));
        let later = i >= forward;
        let input = if later { ", phase: backward_input" } else { "" };
        let owner = owners.get(usize::from(*turned) % owners.len().max(1)).filter(|_| later);
        let head = format!("  - {{ name: k{i}, output: t{i}, m: 64, n: 64");
        let _ = match (kind % 5, owner) {
            (0, None) if later => writeln!(text, "{head}, op: elementwise, inputs: [{a}]{input} }}"),
            (0, None) => {
                owners.push(i);
                writeln!(text, "{head}, op: gemm_weight, k: 64, rhs: {a} }}")
            }
            (0, Some(o)) => writeln!(text, "{head}, op: gemm_weight, k: 64, rhs: {a}, weight_of: k{o}{input} }}"),
            (1, Some(o)) => writeln!(
                text,
                "{head}, op: gemm, k: 64, rhs: {a}, rhs_transposed: true, lhs: {b}, weight_of: k{o}, phase: backward_weight }}"
            ),
            (1, None) => {
                writeln!(text, "{head}, op: gemm, k: 64, rhs: {a}, lhs: {b}, lhs_transposed: {turned}{input} }}")
            }
            (2, _) => writeln!(text, "{head}, op: norm, inputs: [{a}]{input} }}"),
            _ if a == b => writeln!(text, "{head}, op: elementwise, inputs: [{a}]{input} }}"),
            _ => writeln!(text, "{head}, op: elementwise, inputs: [{a}, {b}]{input} }}"),
        };
    }
    let from = carried % (kernels.len() + 1);
    let from = if from == 0 { String::new() } else { format!(", carried_from: t{}", (from - 1).min(forward - 1)) };
    let text = format!(
        "kind: graph\nname: random\nsource: 'assumed: a test'\ntraining: {}\nglobal_batch: 8\nrepeat: {layers}\n\
         inputs: [{{ name: x, rows: 64, cols: 64{from} }}]\nkernels:\n{text}",
        forward < kernels.len()
    );
    WorkloadSpec::build(&Node::parse("random.yaml", &text).expect("YAML")).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

pub fn graphs(most: usize) -> impl Strategy<Value = Workload> {
    let kernel = (0..5u8, 0..8usize, 0..8usize, any::<bool>());
    (prop::collection::vec(kernel, 2..=most), 1..=most, 0..8usize, 1..=2u64)
        .prop_map(|(kernels, forward, carried, layers)| graph(&kernels, forward.min(kernels.len()), carried, layers))
}

/// The joint optimum is that of all shardings x tile counts x partitions, in both styles of chips, feasible or not.
#[test]
fn joint_is_brute_force_on_graphs_of_two_passes() {
    let (better, none, alone) = (Cell::new(0), Cell::new(0), Cell::new(0));
    check(1000, &(graphs(4), any_system(), 0..4u32), |(w, mut s, memory)| {
        let tp = s.chip_count();
        if tp == 1 {
            return Ok(());
        }
        if memory == 0 {
            let weights: f64 = w.kernels.iter().map(|k| k.weight_elements() * w.word_bytes).sum();
            s.memory.0.capacity = Some(Bytes(8.0 * weights * w.repeat as f64 / tp as f64 + 4_000.0));
        }
        let least = brute_force_over(&w, &s, &request(Passes::TwoPass, tp))?;
        let joint = solve(&w, &s, &request(Passes::Joint, tp))?;
        let two = solve(&w, &s, &request(Passes::TwoPass, tp))?;
        match (least, joint) {
            (None, None) => none.set(none.get() + 1),
            (Some(least), Some((found, status))) => {
                prop_assert!(near(found / least, 1.0, 1e-9), "{found} for {least}: {}", describe(&w, &s));
                prop_assert_eq!(status, Status::Optimal);
                better.set(better.get() + u32::from(two.is_none_or(|(two, _)| two > found * (1.0 + 1e-9))));
                alone.set(alone.get() + u32::from(s.chip.0.style == Style::KernelByKernel));
            }
            (least, joint) => prop_assert!(false, "{least:?}, jointly {joint:?}: {}", describe(&w, &s)),
        }
        Ok(())
    });
    println!(
        "joint is better in {} cases; none fits in {}; {} kernel by kernel",
        better.get(),
        none.get(),
        alone.get()
    );
    assert!(better.get() > 0 && none.get() > 0 && alone.get() > 0);
}

/// The same for energy and cost, on parts whose arithmetic, traffic and links draw what they may, each free or dear: the least of
/// all shardings is found and proven; the plan of least time never uses less.
#[test]
fn joint_is_brute_force_for_energy_and_cost() {
    let (better, moved, alone) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let powers = (0..3u8, 0..3u8, 0..3u8, 0..3u8, any::<bool>());
    check(2000, &(graphs(4), any_system(), 0..4u32, powers), |(w, mut s, memory, powers)| {
        let tp = s.chip_count();
        if tp == 1 || s.model.pipeline == Pipeline::DfmodelFirst {
            return Ok(());
        }
        draw(&mut s, powers);
        if memory == 0 {
            let weights: f64 = w.kernels.iter().map(|k| k.weight_elements() * w.word_bytes).sum();
            s.memory.0.capacity = Some(Bytes(8.0 * weights * w.repeat as f64 / tp as f64 + 4_000.0));
        }
        let objective = if powers.4 { Objective::Energy } else { Objective::Cost };
        let of = |passes| Request { objective, ..request(passes, tp) };
        let least = brute_force_over(&w, &s, &of(Passes::TwoPass))?;
        let joint = solve(&w, &s, &of(Passes::Joint))?;
        let two = solve(&w, &s, &of(Passes::TwoPass))?;
        match (least, joint) {
            (None, None) => {}
            (Some(least), Some((found, status))) => {
                prop_assert!(near(found / least, 1.0, 1e-9), "{objective}: {found} for {least}: {}", describe(&w, &s));
                prop_assert_eq!(status, Status::Optimal);
                better.set(better.get() + u32::from(two.is_none_or(|(two, _)| two > found * (1.0 + 1e-9))));
                alone.set(alone.get() + u32::from(s.chip.0.style == Style::KernelByKernel));
                if let Ok(Answer::Mapped(plan, _)) = find(&w, &s, &request(Passes::Joint, tp)) {
                    let by_time = plan.figures.energy.total();
                    let more = objective == Objective::Energy && by_time > found * (1.0 + 1e-9);
                    prop_assert!(objective == Objective::Cost || by_time >= found * (1.0 - 1e-9));
                    moved.set(moved.get() + u32::from(more));
                }
            }
            (least, joint) => prop_assert!(false, "{least:?}, jointly {joint:?}: {}", describe(&w, &s)),
        }
        Ok(())
    });
    println!(
        "joint is better in {} cases, below the plan of least time in {}; {} kernel by kernel",
        better.get(),
        moved.get(),
        alone.get()
    );
    assert!(better.get() > 0 && moved.get() > 0 && alone.get() > 0);
}

/// Parts of a system that draw nothing by use, what they would at full use, or much more.
fn draw(s: &mut System, (chip, flop, byte, link, _): (u8, u8, u8, u8, bool)) {
    s.chip.0.idle_share = Share([1.0, 0.2, 0.0][usize::from(chip)]);
    s.chip.0.energy_per_flop = [None, None, Some(EnergyPerFlop(1e-11))][usize::from(flop)];
    s.memory.0.energy_per_byte = [Some(EnergyPerByte(0.0)), None, Some(EnergyPerByte(1e-8))][usize::from(byte)];
    for d in &mut s.network.dimensions {
        d.link.0.energy_per_byte = [None, Some(EnergyPerByte(1e-9)), Some(EnergyPerByte(1e-7))][usize::from(link)];
    }
}

/// Kernel by kernel, at one tile count and with room in the DRAM, the elimination's value is that of the sharding it finds: one
/// set of shardings, or none, is all that is looked at.
#[test]
fn kernel_by_kernel_the_first_set_is_the_answer() {
    let looked = Cell::new([0; 2]);
    check(400, &(graphs(6), system(false)), |(w, mut s)| {
        s.chip.0.style = Style::KernelByKernel;
        s.memory.0.capacity = None;
        let tp = s.chip_count();
        let request = Request { tiles: Some(1), ..request(Passes::Joint, tp) };
        match find(&w, &s, &request) {
            Ok(Answer::Mapped(_, record)) => {
                prop_assert_eq!(record.status, Status::Optimal);
                prop_assert!(record.joint_nodes <= 1, "{} sets: {}", record.joint_nodes, describe(&w, &s));
                let mut count = looked.get();
                count[record.joint_nodes as usize] += 1;
                looked.set(count);
            }
            Ok(Answer::Infeasible(_)) => {}
            Err(e) => prop_assert!(false, "{e}"),
        }
        Ok(())
    });
    println!("no set in {} cases, one in {}", looked.get()[0], looked.get()[1]);
    assert!(looked.get().iter().all(|count| *count > 0));
}

/// Under the default both passes are one search where the model is flowspace's, and two where it is DFModel's.
#[test]
fn the_default_is_joint_under_flowspace_alone() {
    check(200, &(graphs(5), any_system()), |(w, s)| {
        let auto = Request { passes: Passes::Auto, ..request(Passes::Joint, s.chip_count()) };
        if let Ok(Answer::Mapped(_, record)) = find(&w, &s, &auto) {
            prop_assert_eq!(record.covers_sharding, s.model.preset == Preset::Flowspace);
        }
        Ok(())
    });
}

/// Kernels of one pass in another order: what one reads is before it all the same.
#[test]
fn the_order_in_which_kernels_are_written_changes_nothing() {
    let moved = Cell::new(0);
    let kernel = (0..5u8, 0..8usize, 0..8usize, any::<bool>());
    check(500, &(prop::collection::vec(kernel, 2..=6), system(false), 0..6usize), |(kernels, s, at)| {
        let n = kernels.len();
        let w = graph(&kernels, n, 0, 1);
        // Two neighbours change places where the second does not read the first.
        let i = at % (n - 1);
        let reads = w.tensors.iter().any(|t| t.producer == Some(i) && t.consumers.iter().any(|u| u.kernel == i + 1));
        if reads {
            return Ok(());
        }
        let mut swapped = w.clone();
        swapped.kernels.swap(i, i + 1);
        let place = |k: usize| {
            if k == i {
                i + 1
            } else if k == i + 1 {
                i
            } else {
                k
            }
        };
        for tensor in &mut swapped.tensors {
            tensor.producer = tensor.producer.map(place);
            tensor.consumers.iter_mut().for_each(|u| u.kernel = place(u.kernel));
        }
        let request = request(Passes::Joint, s.chip_count());
        match (solve(&w, &s, &request)?, solve(&swapped, &s, &request)?) {
            (None, None) => {}
            (Some((a, _)), Some((b, _))) => {
                prop_assert!(near(a / b, 1.0, 1e-9), "{a} and {b}: {}", describe(&w, &s));
                moved.set(moved.get() + 1);
            }
            other => prop_assert!(false, "{other:?}: {}", describe(&w, &s)),
        }
        Ok(())
    });
    println!("{} moved", moved.get());
    assert!(moved.get() > 0);
}

/// A tensor written as two of half its rows, without latencies, is the same tensor.
#[test]
fn a_tensor_in_two_halves_is_the_tensor() {
    let same = Cell::new(0);
    let build = |halves: bool, norm: bool| -> Workload {
        let (written, read) = match halves {
            true => ("parts: [{ name: a, rows: 32, cols: 64 }, { name: b, rows: 32, cols: 64 }]", "aligned: [a, b]"),
            false => ("parts: [{ name: ab, rows: 64, cols: 64 }]", "aligned: [ab]"),
        };
        let op = if norm { "norm" } else { "elementwise" };
        let text = format!(
            "kind: graph\nname: halves\nsource: 'assumed: a test'\nglobal_batch: 8\n\
             inputs: [{{ name: x, rows: 64, cols: 64, carried_from: z }}]\nkernels:\n\
             - {{ name: k0, op: gemm_weight, m: 64, k: 64, n: 64, rhs: x, {written} }}\n\
             - {{ name: k1, op: {op}, m: 64, n: 64, {read}, output: y }}\n\
             - {{ name: k2, op: gemm_weight, m: 64, k: 64, n: 64, rhs: y, output: z }}\n"
        );
        WorkloadSpec::build(&Node::parse("halves.yaml", &text).expect("YAML")).unwrap_or_else(|e| panic!("{e}\n{text}"))
    };
    check(500, &(any_system(), any::<bool>()), |(mut s, norm): (System, bool)| {
        s.network.dimensions.iter_mut().for_each(|d| d.link.0.latency = Seconds(0.0));
        let request = request(Passes::Joint, s.chip_count());
        match (solve(&build(false, norm), &s, &request)?, solve(&build(true, norm), &s, &request)?) {
            (None, None) => {}
            (Some((a, _)), Some((b, _))) => {
                prop_assert!(near(a / b, 1.0, 1e-9), "{a} and {b} in halves: {}", describe(&build(true, norm), &s));
                same.set(same.get() + 1);
            }
            other => prop_assert!(false, "{other:?}: {}", describe(&build(true, norm), &s)),
        }
        Ok(())
    });
    println!("{} with a plan", same.get());
    assert!(same.get() > 0);
}
