//! Executions of GPT-3 175B on 512 A100: evaluations a second with block tables, and the search over the whole space.
//!
//! `cargo bench --bench execution` prints executions covered, cells, time of the proof, and single evaluations a second.

use flowspace::execution::block::{Block, BlockKey, BlockSums};
use flowspace::execution::communication::IterationLinks;
use flowspace::execution::schedule::{ChipWeights, Constants, Plan, stages};
use flowspace::execution::search::{Pins, search};
use flowspace::execution::{Execution, Machine, Schedule, Zero};
use flowspace::spec::{Loader, Reader};
use flowspace::system::System;
use flowspace::workload::WorkloadSpec;
use flowspace::workload::language::LanguageModel;
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
    // Host memory over PCIe as the second tier: 100 GB/s and 512 GB, as Calculon's A100 has it.
    machine.second_tier = Some((100e9, Some(512e9)));
    Ok((machine, *model))
}

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
    let sums = BlockSums::of(&machine, &model, key.division, machine.peak(&model)?);
    let (block, weights) = (Block::of(&machine, &model, &key, &sums), ChipWeights::of(&model, 8, 1, 8));
    let (links, kinds) = (IterationLinks::of(&machine, 8, 1, 1, 8, 8), stages(&model, 8));
    let constants = Constants::of(&machine, &model);
    let plan = Plan {
        constants: &constants,
        block: &block,
        weights: &weights,
        links: &links,
        kinds: &kinds,
        microbatches: 192.0,
    };
    let count = 5_000_000u32;
    let begin = Instant::now();
    let mut sum = 0.0;
    for _ in 0..count {
        sum += black_box(&plan).seconds(black_box(&e));
    }
    black_box(sum);
    let rate = f64::from(count) / begin.elapsed().as_secs_f64();
    println!("fixed executions with block tables: {:.2} million a second on one core", rate / 1e6);
    Ok(())
}
