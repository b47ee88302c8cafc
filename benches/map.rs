//! Speeds: `cargo bench --features cbc`. Read them as ratios within one run; `docs/performance.md` keeps dated tables.

use flowspace::mapping::cache;
use flowspace::mapping::search::{Engine, Request};
use flowspace::mapping::solver::{Limits, Solver};
use flowspace::mapping::{Answer, map};
use flowspace::plan::Plan;
use flowspace::system::System;
use flowspace::workload::{Workload, WorkloadSpec};
use std::path::Path;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    divan::main();
}

fn load(workload: &str, system: &str) -> (Workload, System) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tree = WorkloadSpec::load(&root.join("workloads").join(workload)).expect("a shipped workload");
    let workload = WorkloadSpec::build(&tree).expect("a shipped workload");
    let tree = System::load(&root.join("systems").join(system)).expect("a shipped system");
    (workload, System::build(&tree).expect("a shipped system"))
}

fn mapped(answer: Answer) -> Plan {
    match answer {
        Answer::Mapped(plan, _) => *plan,
        Answer::Infeasible(reason) => panic!("{reason}"),
    }
}

/// One point with everything free: degrees, sharding, tiles, partitions, with proof.
#[divan::bench(sample_count = 10, args = [
    ("gpt3-1t-training.yaml", "sn30-1024-torus-2d.yaml"),
    ("gpt3-1t-training.yaml", "h100-dgx-1024.yaml"),
    ("gpt3-175b-forward.yaml", "sn10-8-torus-2d.yaml"),
])]
fn map_one_point(bencher: divan::Bencher, (workload, system): (&str, &str)) {
    let (workload, system) = load(workload, system);
    // Each run works everything out again.
    bencher
        .with_inputs(cache::clear)
        .bench_values(|()| mapped(map(&workload, &system, &Request::default()).expect("an answer")));
}

/// The same point with each engine of the fusion problem; all must agree.
#[divan::bench(args = ["exact", "highs", "cbc"], sample_count = 10)]
fn engines_gpt3_175b_training_on_sn30(bencher: divan::Bencher, engine: &str) {
    let (workload, system) = load("gpt3-175b-training.yaml", "sn30-1024-torus-2d.yaml");
    let (engine, solver) = match engine {
        "exact" => (Engine::Exact, Solver::Highs),
        "highs" => (Engine::Milp, Solver::Highs),
        _ if cfg!(feature = "cbc") => (Engine::Milp, Solver::Cbc),
        _ => return,
    };
    let request = Request { engine, limits: Limits { solver, ..Limits::default() }, ..Request::default() };
    bencher.with_inputs(cache::clear).bench_values(|()| mapped(map(&workload, &system, &request).expect("an answer")));
}

/// The independent checker on one plan.
#[divan::bench(sample_count = 10)]
fn check_gpt3_1t_training_on_sn30(bencher: divan::Bencher) {
    let (workload, system) = load("gpt3-1t-training.yaml", "sn30-1024-torus-2d.yaml");
    let plan = mapped(map(&workload, &system, &Request::default()).expect("an answer"));
    bencher.bench(|| flowspace::check::verify(&plan).expect("a correct plan"));
}
