//! How the cost of the search grows: `cargo bench --features cbc --bench growth`. Prints the tables of `docs/performance.md`, and with
//! `FLOWSPACE_FIGURES=docs/figures` draws them. `FLOWSPACE_GROWTH=wide` (or `kernels`, `chips`, `tiles`) runs one part, `FLOWSPACE_TRACE=FILE`
//! puts a recorded trace beside the unrolled graphs.

use flowspace::graph::unroll::unrolled;
use flowspace::mapping::cache;
use flowspace::mapping::search::Request;
use flowspace::mapping::tiling::tile_counts;
use flowspace::mapping::{Answer, map};
use flowspace::report::plot::{Scale, XValue, XyChart, XyPoint};
use flowspace::spec::Node;
use flowspace::system::System;
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
    mapped: bool,
    seconds: f64,
    text: String,
}

fn measure(workload: &Workload, system: &System, request: &Request) -> Measured {
    cache::clear();
    let clock = Instant::now();
    let answer = map(workload, system, request);
    let seconds = clock.elapsed().as_secs_f64();
    let mapped = matches!(answer, Ok(Answer::Mapped(..)));
    let text = match answer {
        Ok(Answer::Mapped(plan, record)) => {
            let checked = Instant::now();
            let verified = flowspace::check::verify(&plan).is_ok();
            format!(
                "{:.3} | {:.6e} | {:.4} % | {:?} | {} | {} | {:.3}{}",
                seconds,
                plan.figures.layer_s,
                100.0 * record.gap(),
                record.proof,
                plan.figures.partitions.len(),
                record.solved,
                checked.elapsed().as_secs_f64(),
                if verified { "" } else { " REFUSED" },
            )
        }
        Ok(Answer::Infeasible(reason)) => format!("{seconds:.3} | {} short | | | | |", reason.resource),
        Err(error) => format!("{seconds:.3} | {error} | | | | |"),
    };
    Measured { mapped, seconds, text }
}

fn wide() {
    println!(
        "| graph | system | kernels | s | a pass, s | gap | proof | partitions | fusion problems | checker, s | peak MiB so far |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let most: usize = std::env::var("FLOWSPACE_MOST_KERNELS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let systems = ["sn10-single.yaml", "sn30-single.yaml", "sn40l-single.yaml", "sn40l-16-fully-connected.yaml"];
    let mut graphs: Vec<Workload> = Vec::new();
    for (name, copies) in
        [("gpt3-175b-forward.yaml", 16), ("gpt3-175b-training.yaml", 24), ("gpt3-175b-training.yaml", 244)]
    {
        graphs.push(unrolled(&workload(name), copies));
    }
    graphs.extend(
        std::env::var("FLOWSPACE_TRACE")
            .ok()
            .iter()
            .flat_map(|list| list.split(' '))
            .map(|f| workload(&format!("trace:{f}"))),
    );
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

/// Seconds against one size, by group.
struct Growth {
    stem: &'static str,
    x_label: &'static str,
    points: Vec<XyPoint>,
}

impl Growth {
    fn new(stem: &'static str, x_label: &'static str) -> Self {
        println!("\n| {x_label} | case | s | a pass, s | gap | proof | partitions | fusion problems | checker, s |");
        println!("|---|---|---|---|---|---|---|---|---|");
        Self { stem, x_label, points: Vec::new() }
    }

    fn add(&mut self, group: &str, x: f64, workload: &Workload, system: &System, request: &Request) {
        let found = measure(workload, system, request);
        println!("| {x} | {group} | {} |", found.text);
        if !found.mapped {
            return;
        }
        self.points.push(XyPoint { group: group.into(), x: XValue::Number(x), y: found.seconds });
    }

    fn draw(self) {
        let Ok(folder) = std::env::var("FLOWSPACE_FIGURES") else { return };
        let chart = XyChart {
            steps: false,
            notes: Vec::new(),
            title: String::new(),
            x_label: self.x_label.into(),
            y_label: "seconds of one search".into(),
            points: self.points,
            lines: true,
            x_scale: Scale::Log,
            y_scale: Scale::Log,
        };
        let stem = root().join(folder).join(self.stem);
        chart.draw(&stem).expect("a figure");
        let _ = ["png", "pdf"].map(|end| std::fs::remove_file(stem.with_extension(end)));
    }
}

/// Layers of GPT-3 written out, forward and training.
fn kernels() {
    let mut growth = Growth::new("growth-kernels", "kernels of the graph");
    for (name, group) in [("gpt3-175b-forward.yaml", "forward"), ("gpt3-175b-training.yaml", "training")] {
        let layer = workload(name);
        for file in ["sn30-single.yaml", "sn40l-16-fully-connected.yaml"] {
            let mut system = system(file);
            system.memory.0.capacity = None;
            for copies in [1, 2, 4, 8, 16, 32] {
                let mut graph = unrolled(&layer, copies);
                graph.repeat = 1;
                let group = format!("{group}, {}", file.split('-').next().unwrap_or(file));
                growth.add(&group, graph.kernels.len() as f64, &graph, &system, &Request::default());
            }
        }
    }
    growth.draw();
}

/// Parallel branches between two kernels: b branches of three kernels have 4^b ideals.
fn ideals() {
    let mut growth = Growth::new("growth-ideals", "ideals of the graph");
    for branches in 1..=7u32 {
        let mut kernels =
            String::from("  - { name: a, op: gemm_weight, m: 4096, k: 4096, n: 2048, rhs: x, output: t }\n");
        for b in 0..branches {
            for (i, from) in ["t".to_string(), format!("u{b}_0"), format!("u{b}_1")].iter().enumerate() {
                kernels.push_str(&format!(
                    "  - {{ name: k{b}_{i}, op: gemm_weight, m: 4096, k: 4096, n: 2048, rhs: {from}, output: u{b}_{i} }}\n"
                ));
            }
        }
        let last: Vec<String> = (0..branches).map(|b| format!("u{b}_2")).collect();
        kernels.push_str(&format!(
            "  - {{ name: z, op: elementwise, m: 4096, n: 2048, inputs: [{}], output: y }}\n",
            last.join(", ")
        ));
        let text = format!(
            "kind: graph\nname: branches\nsource: 'assumed: benchmark'\nglobal_batch: 1\ninputs: [{{ name: x, rows: 4096, cols: 2048 }}]\n\
             outputs: [y]\nkernels:\n{kernels}"
        );
        let node = Node::parse("branches", &text).expect("YAML");
        let graph = WorkloadSpec::build(&node).expect("a graph");
        // Ideals between the first kernel and the last, and the two around them.
        let count = 4f64.powi(branches as i32) + 2.0;
        for file in ["sn10-single.yaml", "sn30-single.yaml"] {
            let group = file.split('-').next().unwrap_or(file);
            growth.add(group, count, &graph, &system(file), &Request::default());
        }
    }
    growth.draw();
}

/// Chips of the outer dimension, all degrees free.
fn chips() {
    let mut growth = Growth::new("growth-chips", "chips");
    let training = workload("gpt3-1t-training.yaml");
    for (file, group) in [("sn30-1024-torus-2d.yaml", "SN30 torus"), ("h100-dgx-1024.yaml", "H100 DGX")] {
        for outer in [16, 32, 64, 128, 256, 512] {
            let mut system = system(file);
            let last = system.network.dimensions.len() - 1;
            system.network.dimensions[last].size = outer;
            let chips = system.network.chips();
            system.chips = Some(chips);
            for split in [false, true] {
                let mut request = Request::default();
                request.wanted.split = split;
                let group = if split { format!("{group}, divided") } else { group.to_string() };
                if !split || file.starts_with("h100") {
                    growth.add(&group, chips as f64, &training, &system, &request);
                }
            }
        }
    }
    growth.draw();
}

/// Tile counts: divisors of the sequence.
fn tiles() {
    let mut growth = Growth::new("growth-tiles", "tile counts searched");
    let mut system = system("sn30-1024-torus-2d.yaml");
    // Long sequences need more than a chip's DRAM.
    system.memory.0.capacity = None;
    let text = std::fs::read_to_string(root().join("workloads/gpt3-1t-training.yaml")).expect("a workload");
    let tree = Node::parse("gpt3", &text).expect("YAML");
    for sequence in [1u64 << 11, 3 << 10, (3 * 5) << 8, (3 * 5 * 7) << 7, (9 * 5 * 7) << 7, (9 * 5 * 7 * 11) << 5] {
        let mut tree = tree.clone();
        let origin = tree.origin.clone();
        tree.set("seq", origin.clone(), Node::scalar(sequence.to_string(), origin));
        let Ok(graph) = WorkloadSpec::build(&tree) else {
            println!("(no sequence {sequence})");
            continue;
        };
        let counts = tile_counts(&graph, &system).len();
        growth.add("SN30 torus", counts as f64, &graph, &system, &Request::default());
    }
    growth.draw();
}

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let part = std::env::var("FLOWSPACE_GROWTH").unwrap_or_default();
    for (name, run) in
        [("wide", wide as fn()), ("kernels", kernels), ("ideals", ideals), ("chips", chips), ("tiles", tiles)]
    {
        if part.is_empty() || part == name {
            run();
        }
    }
}
