//! Chains of blocks (embedding, layers, head), end to end: against brute force by the checker, and against the layers alone.

use crate::properties::check;
use crate::properties::joint::{brute_force_over, request as request_for, solve as least_of};
use crate::properties::near;
use crate::properties::search::{any_system, describe, system};
use flowspace::check::{derive, verify};
use flowspace::mapping::search::{MapError, Passes, Record, Request};
use flowspace::mapping::{Answer, Status, find};
use flowspace::plan::{Decisions, Plan};
use flowspace::spec::{Node, Reader};
use flowspace::system::System;
use flowspace::units::Bytes;
use flowspace::workload::language::LanguageModel;
use flowspace::workload::{Workload, WorkloadSpec, write};
use proptest::prelude::*;
use std::cell::Cell;

fn read(text: &str) -> Workload {
    WorkloadSpec::build(&Node::parse("test", text).unwrap()).unwrap()
}

/// Three blocks of forward kernels: one, two and two.
pub fn graph(hidden: u64, vocabulary: u64, seq: u64, layers: u64, batch: u64) -> Workload {
    read(&format!(
        "kind: graph\nname: chain\nsource: 'assumed: a test'\nglobal_batch: {batch}\n\
         blocks: [{{ name: first, repeat: 1 }}, {{ name: layers, repeat: {layers} }}, {{ name: head, repeat: 1 }}]\n\
         carried: [{{ tensor: x, from: y }}]\n\
         inputs: [{{ name: ids, rows: 64, cols: {seq} }}]\noutputs: [z]\nkernels:\n\
         - {{ name: in, block: first, op: gemm_weight, m: {hidden}, k: 64, n: {seq}, rhs: ids, output: x }}\n\
         - {{ name: a, block: layers, op: gemm_weight, m: {hidden}, k: {hidden}, n: {seq}, rhs: x, output: h }}\n\
         - {{ name: b, block: layers, op: elementwise, m: {hidden}, n: {seq}, inputs: [h], output: y }}\n\
         - {{ name: out, block: head, op: gemm_weight, m: {vocabulary}, k: {hidden}, n: {seq}, rhs: y, output: o }}\n\
         - {{ name: end, block: head, op: elementwise, m: {vocabulary}, n: {seq}, inputs: [o], output: z }}\n"
    ))
}

/// The graph of a language model with embedding and head.
fn transformer(hidden: u64, vocabulary: u64, layers: u64, batch: u64, training: bool) -> Workload {
    let pass = if training { "training" } else { "inference" };
    let text = format!(
        "{{kind: language_model, name: small, source: 'assumed: a test', hidden: {hidden}, heads: 8, seq: 64, layers: {layers}, \
         vocab: {vocabulary}, pass: {pass}, global_batch: {batch}}}"
    );
    let model: LanguageModel = Reader::read(&Node::parse("test", &text).unwrap()).unwrap_or_else(|e| panic!("{e}"));
    model.chain().unwrap().checked().unwrap()
}

type Mapped = (Box<Plan>, Box<Record>);

fn solve(w: &Workload, s: &System, request: &Request) -> Result<Option<Mapped>, TestCaseError> {
    let fail = |e: String| TestCaseError::fail(format!("{}: {e}", describe(w, s)));
    match find(w, s, request) {
        // Degrees that the network does not have; or stopped before there was a plan.
        Err(MapError::Request(_) | MapError::NoPlanYet { .. }) => Ok(None),
        Err(e) => Err(fail(e.to_string())),
        Ok(Answer::Infeasible(reason)) => {
            prop_assert!(reason.needed > 0.0 && reason.remedy.len() > 20, "{reason:?}");
            Ok(None)
        }
        Ok(Answer::Mapped(plan, record)) => {
            verify(&plan).map_err(|e| fail(e.to_string()))?;
            prop_assert!(record.bound <= record.value * (1.0 + 1e-9));
            prop_assert!(near(plan.figures.iteration_s() / record.value, 1.0, 1e-9));
            Ok(Some((plan, record)))
        }
    }
}

/// Every way to divide units among stages, none empty.
fn divisions(units: u64, stages: u64) -> Vec<Vec<u64>> {
    if stages == 1 {
        return vec![vec![units]];
    }
    let first = 1..=units.saturating_sub(stages - 1);
    first.flat_map(|n| divisions(units - n, stages - 1).into_iter().map(move |d| [vec![n], d].concat())).collect()
}

/// Every assignment of kernels to partitions whose numbers are consecutive; the checker refuses those out of order.
fn assignments(kernels: usize) -> Vec<Vec<usize>> {
    let mut out = vec![Vec::new()];
    for _ in 0..kernels {
        let next = |a: Vec<usize>| (0..kernels).map(move |p| [a.clone(), vec![p]].concat());
        out = out.into_iter().flat_map(next).collect();
    }
    let whole = |a: &Vec<usize>| a.iter().max().is_some_and(|most| (0..=*most).all(|p| a.contains(&p)));
    out.into_iter().filter(whole).collect()
}

/// The plan is the best of all partitions and divisions of its degrees and sharding that the checker allows, and where the answer
/// is that none fits, none does.
#[test]
fn plans_of_chains_are_brute_force() {
    let tally = Cell::new((0, 0, 0));
    let sizes = (1..=4u64, 1..=8u64, 3..=6u32, 1..=4u64, 0..=3u32, prop::sample::select(vec![1u64, 2, 4]));
    check(150, &(sizes, system(false)), |((hidden, vocabulary, seq, layers, batch, pp), s)| {
        let w = graph(64 * hidden, 64 * vocabulary, 1 << seq, layers, 1 << batch);
        let mut request = Request { tiles: Some(1), ..Request::default() };
        request.wanted.pp = Some(pp);
        let Some((plan, record)) = solve(&w, &s, &request)? else { return Ok(()) };
        let (mut plans, mut uneven, mut fused) = tally.get();
        let mut least = f64::INFINITY;
        for partition in assignments(w.kernels.len()) {
            for stages in divisions(w.repeat, pp) {
                let decisions = Decisions { partition: partition.clone(), stages, ..plan.decisions.clone() };
                least = least.min(derive(&w, &s, &decisions).map_or(f64::INFINITY, |f| f.iteration_s()));
            }
        }
        let own = plan.figures.iteration_s();
        prop_assert!(near(least / own, 1.0, 1e-9) || record.status != Status::Optimal, "{least} {own}");
        prop_assert!(least <= own * (1.0 + 1e-9), "brute force finds no such plan: {least} {own}");
        plans += 1;
        uneven += usize::from(plan.decisions.stages.iter().any(|n| *n != plan.decisions.stages[0]));
        fused += usize::from(plan.figures.partitions.len() < w.kernels.len());
        tally.set((plans, uneven, fused));
        Ok(())
    });
    let (plans, uneven, fused) = tally.get();
    println!("{plans} plans, {uneven} of unequal stages, {fused} with fused kernels");
    assert!(plans >= 40 && uneven >= 10 && fused >= 10, "{plans} {uneven} {fused}");
}

/// Whole transformers: checked, no division is better, no more memory is slower, and a written graph of the forward pass reads as the same.
#[test]
fn plans_of_whole_transformers_are_checked() {
    let tally = Cell::new((0, 0));
    let sizes = (1..=4u64, 1..=8u64, 2..=6u64, 1..=3u32, prop::sample::select(vec![1u64, 2, 4]), any::<bool>());
    check(16, &(sizes, system(false)), |((hidden, vocabulary, layers, batch, pp, training), s)| {
        let w = transformer(64 * hidden, 128 * vocabulary, layers, 1 << batch, training);
        // Gradients of parts of one result add up inside a kernel, which a written graph does not say.
        let again = (!training).then(|| read(&write::graph(&w, "assumed: a test")));
        if let Some(again) = &again {
            prop_assert_eq!(&again.blocks, &w.blocks);
            prop_assert_eq!(again.flop_per_iteration(), w.flop_per_iteration());
        }
        let mut request = Request { joint_nodes: 1_000, ..Request::default() };
        request.wanted.pp = Some(pp);
        let Some((plan, record)) = solve(&w, &s, &request)? else { return Ok(()) };
        let (mut plans, mut proven) = tally.get();
        for stages in divisions(w.repeat, pp) {
            let decisions = Decisions { stages, ..plan.decisions.clone() };
            let Ok(other) = derive(&w, &s, &decisions) else { continue };
            prop_assert!(other.iteration_s() >= plan.figures.iteration_s() * (1.0 - 1e-9));
        }
        if let Some(again) = &again
            && let Some((same, _)) = solve(again, &s, &request)?
        {
            prop_assert!(near(same.figures.iteration_s() / plan.figures.iteration_s(), 1.0, 1e-9));
        }
        let mut larger = s.clone();
        if let Some(capacity) = &mut larger.memory.0.capacity {
            *capacity = Bytes(capacity.0 * 2.0);
        }
        if let Some((more, _)) = solve(&w, &larger, &request)? {
            prop_assert!(
                more.figures.iteration_s() <= plan.figures.iteration_s() * (1.0 + 1e-9)
                    || record.status != Status::Optimal
            );
        }
        plans += 1;
        proven += usize::from(record.status == Status::Optimal);
        tally.set((plans, proven));
        Ok(())
    });
    let (plans, proven) = tally.get();
    println!("{plans} plans, {proven} proven");
    assert!(plans >= 10 && proven * 10 >= plans * 4, "{plans} {proven}");
}

/// Between embedding and head a layer costs what it costs alone.
#[test]
fn layers_cost_what_they_cost_alone() {
    let compared = Cell::new(0);
    let sizes = (1..=4u64, 1..=8u64, 2..=4u64, any::<bool>());
    check(15, &(sizes, system(false)), |((hidden, vocabulary, layers, training), mut s)| {
        s.memory.0.capacity = None;
        let whole = transformer(64 * hidden, 128 * vocabulary, layers, 4, training);
        let (alone, _) = whole.of_block(1);
        let Some((plan, _)) = solve(&whole, &s, &Request { joint_nodes: 1_000, ..Request::default() })? else {
            return Ok(());
        };
        let at = |name: &str| whole.kernel_index(name).unwrap();
        let sharding = alone.kernels.iter().map(|k| plan.decisions.sharding[at(&k.name)]).collect();
        let mut used: Vec<usize> = alone.kernels.iter().map(|k| plan.decisions.partition[at(&k.name)]).collect();
        let partition = used.clone();
        used.sort_unstable();
        used.dedup();
        let decisions = Decisions {
            sharding,
            partition: partition.iter().map(|p| used.binary_search(p).unwrap()).collect(),
            stages: flowspace::model::stages::even(s.model.pipeline, layers, plan.figures.pp),
            ..plan.decisions.clone()
        };
        if plan.figures.pp > layers {
            return Ok(());
        }
        let layer = match derive(&alone, &s, &decisions) {
            Ok(layer) => layer,
            Err(broken) => return Err(TestCaseError::fail(broken.join("; "))),
        };
        for (p, own) in used.iter().zip(&layer.partitions) {
            let there = &plan.figures.partitions[*p];
            for (one, other) in [
                (there.time_s, own.time_s),
                (there.dram_bytes, own.dram_bytes),
                (there.network_s, own.network_s),
                (there.sram_bytes, own.sram_bytes),
                (there.live_bytes, own.live_bytes),
                (there.link_j, own.link_j),
            ] {
                prop_assert!(near(one, other, 1e-9), "{:?}: {there:?} {own:?}", there.kernels);
            }
        }
        compared.set(compared.get() + 1);
        Ok(())
    });
    assert!(compared.get() >= 8, "{}", compared.get());
}

/// Which kernels a small chain has: of each block the kind of its second kernel (none: one kernel), and the kinds of its backward kernels.
type Raw = ((u8, u8), (u8, u8), (u8, u8), Option<(u8, u8, u8)>);

/// Three blocks whose tensors are all 64 x 64. The first kernel of a block reads what it is handed, a second both that and the first's result.
fn small_chain(
    ((first, again), (layer, more), (head, last), backward): Raw,
    layers: u64,
    ends: (u64, u64),
) -> Workload {
    use std::fmt::Write as _;
    let mut text = String::new();
    let mut add = |name: &str, block: &str, kind: u8, inputs: &[&str], phase: &str| {
        let own = format!("  - {{ name: {name}, block: {block}, output: {name}_, m: 64, n: 64{phase}");
        let _ = match (kind % 4, inputs) {
            (0, [a, ..]) if phase.is_empty() => writeln!(text, "{own}, op: gemm_weight, k: 64, rhs: {a} }}"),
            (1, [a, b, ..]) => writeln!(text, "{own}, op: gemm, k: 64, rhs: {a}, lhs: {b} }}"),
            (2, [a, ..]) => writeln!(text, "{own}, op: norm, inputs: [{a}] }}"),
            (_, inputs) => writeln!(text, "{own}, op: elementwise, inputs: [{}] }}", inputs.join(", ")),
        };
    };
    let mut block = |name: &str, one: u8, two: u8, from: &str| -> String {
        let (a, b) = (format!("{name}_a"), format!("{name}_b"));
        add(&a, name, one, &[from], "");
        if two % 5 == 4 {
            return format!("{a}_");
        }
        add(&b, name, two, &[&format!("{a}_"), from], "");
        format!("{b}_")
    };
    let x = block("first", first, again, "ids");
    let y = block("layers", layer, more, &x);
    let z = block("head", head, last, &y);
    let mut carried = format!("{{ tensor: {x}, from: {y} }}");
    let mut outputs = z.clone();
    if let Some((one, two, three)) = backward {
        let phase = ", phase: backward_input";
        add("g_head", "head", one, &[&z, &y], phase);
        add("g_layers", "layers", two, &["g_head_", &x], phase);
        add("g_first", "first", three, &["g_layers_"], phase);
        carried = format!("{carried}, {{ tensor: g_head_, from: g_layers_ }}");
        outputs = "g_first_".into();
    }
    read(&format!(
        "kind: graph\nname: chain\nsource: 'assumed: a test'\nglobal_batch: 8\ntraining: {}\n\
         blocks: [{{ name: first, repeat: {} }}, {{ name: layers, repeat: {layers} }}, {{ name: head, repeat: {} }}]\n\
         carried: [{carried}]\ninputs: [{{ name: ids, rows: 64, cols: 64 }}]\noutputs: [{outputs}]\nkernels:\n{text}",
        backward.is_some(),
        ends.0,
        ends.1
    ))
}

/// The joint optimum of a chain is that of all shardings, each pinned: one pass or two, one stage or several, much memory or little.
#[test]
fn joint_of_chains_is_brute_force() {
    let (cases, better, none, tight, stages) = (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
    let open = Cell::new(0);
    let kinds = || (0..4u8, 0..5u8);
    let raw = (kinds(), kinds(), kinds(), prop::option::of((1..4u8, 1..4u8, 1..4u8)));
    let shape = (raw, 1..=3u64, any::<bool>());
    check(250, &(shape, any_system(), 0..3u32), |((raw, layers, single), mut s, memory)| {
        let chips = s.chip_count();
        let w = small_chain(raw, layers, (1, 1));
        if w.kernels.len() > 6 || chips == 1 {
            return Ok(());
        }
        let tp = if single { chips } else { chips / 2 };
        if memory == 0 {
            let weights: f64 = w.kernels.iter().map(|k| k.weight_elements() * w.word_bytes).sum();
            s.memory.0.capacity = Some(Bytes(8.0 * weights * w.repeat as f64 / tp as f64 + 40_000.0));
        }
        let with = |passes| {
            let mut request = request_for(passes, tp);
            request.wanted.pp = Some(chips / tp);
            request
        };
        // Degrees that the network does not have.
        if matches!(find(&w, &s, &with(Passes::TwoPass)), Err(MapError::Request(_))) {
            return Ok(());
        }
        let least = brute_force_over(&w, &s, &with(Passes::TwoPass))?;
        let joint = least_of(&w, &s, &with(Passes::Joint))?;
        let two = least_of(&w, &s, &with(Passes::TwoPass))?;
        match (least, joint) {
            (None, None) => none.set(none.get() + 1),
            (Some(least), Some((found, status))) => {
                let case = || format!("{found} for {least}, two passes {two:?}: {}", describe(&w, &s));
                prop_assert!(near(found / least, 1.0, 1e-9), "{}", case());
                open.set(open.get() + u32::from(status != Status::Optimal));
                cases.set(cases.get() + 1);
                better.set(better.get() + u32::from(two.is_none_or(|(two, _)| two > found * (1.0 + 1e-9))));
                tight.set(tight.get() + u32::from(memory == 0));
                stages.set(stages.get() + u32::from(tp < chips));
            }
            (least, joint) => prop_assert!(false, "{least:?}, jointly {joint:?}: {}", describe(&w, &s)),
        }
        Ok(())
    });
    println!(
        "{} cases, {} not proven, jointly better in {}; none fits in {}; {} with little memory, {} of several stages",
        cases.get(),
        open.get(),
        better.get(),
        none.get(),
        tight.get(),
        stages.get()
    );
    assert!(cases.get() > 40 && better.get() > 0 && tight.get() > 0 && stages.get() > 0);
    assert!(open.get() * 20 <= cases.get());
}
