//! Executions of GPT-3 175B on 512 A100: evaluations a second with block tables, and the search over the whole space.
//!
//! `cargo bench --features cbc --bench execution` prints executions covered, cells, time of the proof, and fixed executions a second on two threads.

use flowspace::execution::block::{BlockKey, Inner};
use flowspace::execution::communication::IterationLinks;
use flowspace::execution::memory::memory;
use flowspace::execution::policy::Policy;
use flowspace::execution::predict::predict_any;
use flowspace::execution::schedule::{ChipWeights, Constants, Pipeline, stages};
use flowspace::execution::search::{Pins, search};
use flowspace::execution::{Execution, Machine, Schedule, Zero};
use flowspace::spec::{Loader, Reader};
use flowspace::system::System;
use flowspace::workload::WorkloadSpec;
use flowspace::workload::language::LanguageModel;
use rayon::prelude::*;
use std::hint::black_box;
use std::time::Instant;

fn load() -> Result<(Machine, LanguageModel), Box<dyn std::error::Error>> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let system = System::build(&System::load(&root.join("systems/a100-selene-4480.yaml"))?)?;
    let node = Loader.load(&root.join("workloads/language/gpt3-175b.yaml"), None)?;
    let WorkloadSpec::Language(model) = Reader::read::<WorkloadSpec>(&node)? else {
        return Err("no language model".into());
    };
    let mut machine = Machine::new(&system)?;
    // Host memory as the second tier, 512 GiB at 95 % of 32 GB/s, and both overlaps, as Calculon's A100 has them (the stack of Selene has not).
    machine.second_tier = Some((0.95 * 32e9, Some(512.0 * 1024f64.powi(3))));
    (machine.stack.overlap_dp, machine.stack.overlap_tp) = (true, true);
    Ok((machine, *model))
}

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (machine, model) = load()?;
    for (what, cp) in [("context parallelism 1, as Calculon", Some(1)), ("all degrees", None)] {
        let begin = Instant::now();
        let found = search(&machine, &model, &Pins { chips: Some(512), cp, ..Pins::default() })?;
        println!(
            "search, {what}: {} executions, {} cells ({} left out), {} blocks, {} evaluated, {} too large, gap {:.1e}, {:.3} s; best {:.3} s an iteration",
            found.covered,
            found.cells,
            found.pruned,
            found.blocks,
            found.evaluated,
            found.too_large,
            found.gap(),
            begin.elapsed().as_secs_f64(),
            found.best.map_or(f64::NAN, |b| b.time.total)
        );
    }
    let e = Execution {
        tp: 8,
        pp: 8,
        dp: 8,
        ep: 1,
        cp: 1,
        micro_batch: 1,
        schedule: Schedule::OneForwardOneBackward,
        chunks: 1,
        recompute: flowspace::execution::Recompute::Selective,
        sequence_parallel: true,
        zero: Zero::Optimizer,
        offload: flowspace::execution::Offload::None,
        overlap_dp: true,
        overlap_tp: false,
    };
    let key = BlockKey::of(&e);
    let (block, weights) = (Policy::new(&machine, &model)?.bound(&key), ChipWeights::of(&model, 8, 1, 8));
    let (links, kinds) = (IterationLinks::of(&machine, 8, 1, 1, 8, 8), stages(&model, 8));
    let constants = Constants::of(&machine, &model);
    let plan = Pipeline {
        constants: &constants,
        block: &block,
        weights: &weights,
        links: &links,
        kinds: &kinds,
        microbatches: 192.0,
    };
    // Every tail of these degrees: schedules, ZeRO, overlap; each with its time, and with time and memory.
    let mut tails = Vec::new();
    for (schedule, chunks) in [
        (Schedule::OneForwardOneBackward, 1),
        (Schedule::GPipe, 1),
        (Schedule::ZeroBubble, 1),
        (Schedule::Interleaved, 2),
        (Schedule::Interleaved, 3),
        (Schedule::Interleaved, 12),
    ] {
        for &zero in Zero::ALL {
            for overlap_dp in [false, true] {
                tails.push(Execution { schedule, chunks, zero, overlap_dp, ..e.clone() });
            }
        }
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build()?;
    let rounds = 200_000u64;
    let rate = |what: &str, one: &(dyn Fn(&Execution) -> f64 + Sync)| {
        let begin = Instant::now();
        let sum: f64 = pool.install(|| {
            (0..rounds).into_par_iter().map(|_| tails.iter().map(|e| one(black_box(e))).sum::<f64>()).sum()
        });
        black_box(sum);
        let rate = (rounds * tails.len() as u64) as f64 / begin.elapsed().as_secs_f64();
        println!("fixed executions with block tables, 2 threads, {what}: {:.2} million a second", rate / 1e6);
    };
    rate("time", &|e| black_box(&plan).seconds(e));
    rate("time and memory", &|e| {
        let plan = black_box(&plan);
        plan.seconds(e) + memory(&machine, plan, e).device.total()
    });
    // The same from nothing: kernels added up, tables and all.
    let begin = Instant::now();
    let count = 2_000u32;
    for _ in 0..count {
        black_box(predict_any(&machine, &model, black_box(&e))?);
    }
    println!(
        "whole predictions without tables, 1 thread: {:.1} thousand a second",
        f64::from(count) / begin.elapsed().as_secs_f64() / 1e3
    );
    Ok(())
}
