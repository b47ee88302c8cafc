//! How the cost of the search grows: `cargo bench --features cbc --bench growth`. Prints the tables of `docs/performance.md`, and with
//! `FLOWSPACE_FIGURES=docs/figures` draws them. `FLOWSPACE_GROWTH=wide` (or `kernels`, `chips`, `tiles`) runs one part, `FLOWSPACE_TRACE=FILE`
//! puts a recorded trace beside the unrolled graphs.

use flowspace::mapping::cache;
use flowspace::mapping::search::Request;
use flowspace::mapping::{Answer, map};
use flowspace::system::System;
use flowspace::workload::unroll::unrolled;
use flowspace::workload::{Workload, WorkloadSpec};
use std::path::Path;
use std::time::Instant;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn workload(name: &str) -> Workload {
    let path = if name.contains(':') { name.into() } else { root().join("workloads").join(name) };
    WorkloadSpec::build(&WorkloadSpec::load(&path).expect("a workload")).expect("a workload")
}

fn system(name: &str) -> System {
    System::build(&System::load(&root().join("systems").join(name)).expect("a system")).expect("a system")
}

/// Peak memory of the process in MiB, where the operating system tells.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)).and_then(|n| n.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

struct Measured {
    seconds: f64,
    text: String,
}

fn measure(workload: &Workload, system: &System, request: &Request) -> Measured {
    cache::clear();
    let clock = Instant::now();
    let answer = map(workload, system, request);
    let seconds = clock.elapsed().as_secs_f64();
    let text = match answer {
        Ok(Answer::Mapped(plan, record)) => {
            let checked = Instant::now();
            let verified = flowspace::check::verify(&plan).is_ok();
            format!(
                "{:.3} | {:.4} % | {:?} | {} | {} | {:.3}{}",
                seconds,
                100.0 * record.gap(),
                record.proof,
                plan.figures.partitions.len(),
                record.solved,
                checked.elapsed().as_secs_f64(),
                if verified { "" } else { " REFUSED" },
            )
        }
        Ok(Answer::Infeasible(reason)) => format!("{seconds:.3} | {} short | | | |", reason.resource),
        Err(error) => format!("{seconds:.3} | {error} | | | |"),
    };
    Measured { seconds, text }
}

fn wide() {
    println!("| graph | system | kernels | s | gap | proof | partitions | fusion problems | checker, s | peak MiB so far |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let most: usize = std::env::var("FLOWSPACE_MOST_KERNELS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let systems = ["sn10-single.yaml", "sn30-single.yaml", "sn40l-single.yaml", "sn40l-16-fully-connected.yaml"];
    let mut graphs: Vec<Workload> = Vec::new();
    for (name, copies) in [("gpt3-175b-forward.yaml", 16), ("gpt3-175b-training.yaml", 24), ("gpt3-175b-training.yaml", 244)] {
        graphs.push(unrolled(&workload(name), copies));
    }
    graphs.extend(std::env::var("FLOWSPACE_TRACE").ok().iter().flat_map(|list| list.split(' ')).map(|f| workload(&format!("trace:{f}"))));
    for graph in graphs.iter().filter(|g| g.kernels.len() <= most) {
        for name in systems {
            let mut graph = graph.clone();
            graph.repeat = 1;
            // Whole models do not fit the DRAM of so few chips: it has no limit here.
            let mut system = system(name);
            system.memory.0.capacity = None;
            let found = measure(&graph, &system, &Request::default());
            println!("| {} | {name} | {} | {} | {:.0} |", graph.name, graph.kernels.len(), found.text, peak_mib());
        }
    }
}

fn main() {
    let part = std::env::var("FLOWSPACE_GROWTH").unwrap_or_default();
    if part.is_empty() || part == "wide" {
        wide();
    }
}
