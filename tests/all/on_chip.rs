//! Memories that are the chip's own SRAM: partitions and what is held share it, of executions and of graphs; and the two ways that an execution has where there is a second tier.

use crate::executions::{small, system};
use flowspace::check;
use flowspace::deadline::Deadline;
use flowspace::execution::{Offload, Pins, Recompute};
use flowspace::mapping::executions::Executions;
use flowspace::mapping::request::{Answer, Request};
use flowspace::mapping::search::map;
use flowspace::mapping::solver::Limits;
use flowspace::spec::{Node, Reader};
use flowspace::system::{Memory, System};
use flowspace::units::Bytes;
use flowspace::workload::{Workload, WorkloadSpec};

/// A memory that is all SRAM of a chip, or one beside it.
fn memory(on_chip: bool) -> Memory {
    let text = format!(
        "name: own\nbandwidth: 20 TB/s\non_chip: {on_chip}\nprice: $0/(GB/s)\npower: 0 W/(GB/s)\nsource: \"assumed: a test\"\n"
    );
    Reader::read(&Node::parse("memory.yaml", &text).unwrap()).unwrap()
}

/// Eight chips of a torus whose SRAM of so many bytes is their memory, with what was their memory as a second tier.
fn chips(sram: f64) -> System {
    let mut system = system("sn10-8-torus-2d");
    let beside = system.memory.clone();
    system.memory.0 = memory(true);
    system.memory.0.capacity = Some(Bytes(sram));
    system.chip.0.sram = Bytes(sram);
    system.offload = Some(beside);
    system
}

/// What is held and what partitions fill are within the SRAM together, by the figures of the plan; each offload that is pinned is no faster than the search of all, and the streamed one is
/// what the chip does with a memory beside it.
#[test]
fn what_is_held_and_what_partitions_fill_share_the_sram() {
    let model = small();
    for sram in [12e6] {
        let system = chips(sram);
        let pins = Pins { micro_batch: Some(2), recompute: Some(Recompute::Selective), cp: Some(1), ..Pins::default() };
        let search = |offload: Option<Offload>| {
            let pins = Pins { offload, ..pins.clone() };
            // Each with an effort of its own.
            let all = Executions::new(&system, &model, &Limits::default()).unwrap().with_sets(1_000);
            all.search(&pins, Deadline::never()).unwrap_or_else(|e| panic!("{sram}: {e}"))
        };
        let best = search(None);
        let found = best.best.as_ref().unwrap_or_else(|| panic!("{sram}: nothing fits"));
        if found.execution.offload != Offload::Streamed {
            let plan = best.plan.as_ref().unwrap();
            let filled = plan.figures.partitions.iter().map(|p| p.sram_bytes).fold(0.0, f64::max);
            assert_eq!(found.blocks.sram, filled);
            assert!(found.memory.device.total() <= sram * (1.0 + 1e-9), "{sram}: {:?}", found.memory);
            assert!(found.memory.device.working >= filled);
        }
        let mut least = f64::INFINITY;
        for offload in &[Offload::None, Offload::State, Offload::Streamed] {
            let one = search(Some(*offload));
            assert!(best.bound <= one.value * (1.0 + 1e-9), "{sram} {offload}: {} above {}", best.bound, one.value);
            least = least.min(one.value);
            if let Some(found) = &one.best {
                assert_eq!(found.execution.offload, *offload);
                // Given as it was found it takes as long.
                let all = Executions::new(&system, &model, &Limits::default()).unwrap();
                let again =
                    all.predict(&found.execution, Deadline::never()).unwrap_or_else(|e| panic!("{offload}: {e}"));
                assert!(again.0.time.total <= one.value * 1.01, "{offload}");
            }
            if *offload == Offload::Streamed {
                let beside = System { memory: system.offload.clone().unwrap(), offload: None, ..system.clone() };
                let alone = Executions::new(&beside, &model, &Limits::default()).unwrap().with_sets(1_000);
                let alone = alone.search(&pins, Deadline::never()).unwrap();
                assert!(alone.bound <= one.value && one.bound <= alone.value);
                assert!((alone.value / one.value - 1.0).abs() < 0.01, "{} {}", alone.value, one.value);
            }
        }
        assert!(best.value <= least * (1.0 + 1e-3), "{sram}: {} and {least}", best.value);
    }
}

/// Three products in a row: no division of the SRAM in 64 parts has a better plan than the bound, the checker takes it on the chip as it is, and refuses it where the SRAM is too small for both.
#[test]
fn a_graph_has_the_best_part_of_the_sram() {
    let text = "kind: graph\nname: three\nsource: 'assumed: a test'\nrepeat: 4\nglobal_batch: 8\n\
        inputs: [{ name: x, rows: 512, cols: 256, carried_from: z }]\nkernels:\n\
        - { name: a, op: gemm_weight, m: 512, k: 512, n: 256, rhs: x, output: p }\n\
        - { name: b, op: gemm_weight, m: 512, k: 512, n: 256, rhs: p, output: q }\n\
        - { name: c, op: gemm_weight, m: 512, k: 512, n: 256, rhs: q, output: z }\n";
    let workload = workload(text);
    let mut seen = 0;
    for sram in [2e6, 4e6, 8e6, 16e6, 64e6] {
        let mut system = chips(sram);
        system.offload = None;
        let request = Request::default();
        let parts = (1..64).filter_map(|i| {
            let room = sram * f64::from(i) / 64.0;
            match map(&workload, &system.divided(room, sram - room), &request) {
                Ok(Answer::Mapped(_, record)) => Some(record.value),
                _ => None,
            }
        });
        let least = parts.fold(f64::INFINITY, f64::min);
        let Ok(Answer::Mapped(plan, record)) = map(&workload, &system, &request) else {
            assert!(least.is_infinite(), "{sram}");
            continue;
        };
        seen += 1;
        // No division is better than the bound, and what is proven is the best of them.
        assert!(record.shares_sram && record.bound <= least.min(record.value), "{sram}: {least}");
        assert!(record.left.is_some() || record.value <= least * (1.0 + 1e-9), "{sram}: {} {least}", record.value);
        // On the chip as it is both share all of it.
        let held = plan.figures.memory.total();
        let filled = plan.figures.partitions.iter().map(|p| p.sram_bytes).fold(0.0, f64::max);
        assert!(held + filled <= sram * (1.0 + 1e-9));
        check::derive(&workload, &system, &plan.decisions).unwrap_or_else(|e| panic!("{sram}: {e:?}"));
        let smaller = chips(held * 1.0001);
        let broken = check::derive(&workload, &System { offload: None, ..smaller }, &plan.decisions).unwrap_err();
        assert!(broken.iter().any(|rule| rule.contains("of SRAM, the chip has")), "{broken:?}");
    }
    assert!(seen > 2, "{seen}");
}

fn workload(text: &str) -> Workload {
    WorkloadSpec::build(&Node::parse("w.yaml", text).unwrap()).unwrap_or_else(|e| panic!("{e}"))
}

/// What a file may say of such a memory.
#[test]
fn a_memory_on_chip_is_no_larger_than_the_sram() {
    let read = |change: &dyn Fn(&mut Node)| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("systems/clusters/condor-galaxy-1.yaml");
        let mut node = System::load(&path).unwrap();
        change(&mut node);
        System::build(&node).map_err(|e| e.to_string())
    };
    let wafers = read(&|_| {}).unwrap();
    assert_eq!(wafers.memory.0.capacity, Some(wafers.chip.0.sram));
    let set = |part: &'static str, field: &'static str, value: &'static str| {
        move |node: &mut Node| {
            *node = System::inlined(node).unwrap();
            let mut memory = node.get(part).unwrap().clone();
            let origin = memory.origin.clone();
            memory.set(field, origin.clone(), Node::scalar(value, origin.clone()));
            memory.set("source", origin.clone(), Node::scalar("assumed: a test", origin.clone()));
            node.set(part, origin, memory);
        }
    };
    let error = read(&set("memory", "capacity", "50 GB")).unwrap_err();
    assert!(error.contains("memory.capacity: a memory on chip") && error.contains("46.57 GiB"), "{error}");
    let error = read(&set("memory", "power", "1 W/(GB/s)")).unwrap_err();
    assert!(error.contains("memory.power: a memory on chip is a part of it"), "{error}");
    let error = read(&set("offload", "on_chip", "true")).unwrap_err();
    assert!(error.contains("offload.on_chip: a second tier is beside the chip"), "{error}");
}
