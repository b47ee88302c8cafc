//! Speed of whole studies: `cargo bench --features cbc --bench study [-- kernel_by_kernel dataflow mixed]`.
//!
//! Each part writes a study file of systems that all differ (chip, number of chips, bandwidth of the memory and of both
//! networks), runs it on two threads into a folder of its own, as `flowspace study run --jobs 2 --no-plots` does, and prints
//! its points, seconds, and seconds of processor. `docs/performance.md` keeps dated tables. `FLOWSPACE_SCALE=0.1` takes a tenth of the
//! values of the axes with most; `FLOWSPACE_SHARDING=joint` searches all shardings (two passes unless it is set).

use flowspace::study::{RunOptions, Study, run};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

/// A study: a shipped workload and system, and the values of its axes.
struct Part {
    name: &'static str,
    workload: &'static str,
    system: &'static str,
    chips: &'static [&'static str],
    /// Sizes of the outer network dimension, of boxes of eight chips.
    boxes: &'static [u64],
    /// GB/s from and to in so many steps: memory, inner network, outer network.
    memory: (f64, f64, usize),
    inner: (f64, f64, usize),
    outer: (f64, f64, usize),
}

const PARTS: [Part; 3] = [
    Part {
        name: "kernel_by_kernel",
        workload: "gpt3-175b-training.yaml",
        system: "h100-dgx-1024.yaml",
        chips: &["h100", "a100", "tpu-v4", "h200"],
        boxes: &[16, 32, 48, 64, 96],
        memory: (1500.0, 6000.0, 10),
        inner: (100.0, 900.0, 10),
        outer: (25.0, 100.0, 5),
    },
    Part {
        name: "dataflow",
        workload: "gpt3-1t-training.yaml",
        system: "sn30-1024-torus-2d.yaml",
        chips: &["sn30", "sn40l"],
        boxes: &[64, 128],
        memory: (200.0, 2000.0, 10),
        inner: (100.0, 900.0, 10),
        outer: (25.0, 100.0, 5),
    },
    Part {
        name: "mixed",
        workload: "gpt3-175b-training.yaml",
        system: "base-1024.yaml",
        chips: &["h100", "sn30", "a100", "sn40l"],
        boxes: &[32, 64, 96],
        memory: (300.0, 4500.0, 10),
        inner: (100.0, 900.0, 10),
        outer: (25.0, 100.0, 2),
    },
];

/// Evenly spaced values with their unit.
fn values((from, to, steps): (f64, f64, usize), scale: f64) -> String {
    let steps = ((steps as f64 * scale).round() as usize).max(2);
    let value = |i: usize| from + (to - from) * i as f64 / (steps - 1) as f64;
    (0..steps).map(|i| format!("{:.3} GB/s", value(i))).collect::<Vec<_>>().join(", ")
}

fn text(part: &Part, root: &Path, scale: f64, sharding: &str) -> String {
    let root = root.display();
    let chips: Vec<String> = part.chips.iter().map(|c| format!("{root}/systems/chips/{c}.yaml")).collect();
    let mut out = format!(
        "name: speed-{}\nworkload: {root}/workloads/{}\nsystem: {root}/systems/{}\naxes:\n  - name: chip\n    field: system.chip\n    \
         values: [{}]\n  - name: chips_joined\n    points:\n",
        part.name.replace('_', "-"),
        part.workload,
        part.system,
        chips.join(", ")
    );
    for boxes in part.boxes {
        // Writing to a String cannot fail.
        let _ =
            writeln!(out, "      {0}: {{ system.network.dimensions.1.size: {boxes}, system.chips: {0} }}", 8 * boxes);
    }
    for (name, field, range) in [
        ("memory_bandwidth", "memory.bandwidth", part.memory),
        ("inner_bandwidth", "network.dimensions.0.link.bandwidth", part.inner),
        ("outer_bandwidth", "network.dimensions.1.link.bandwidth", part.outer),
    ] {
        let _ = writeln!(out, "  - name: {name}\n    field: system.{field}\n    values: [{}]", values(range, scale));
    }
    out + &format!("solve:\n  sharding: {sharding}\n")
}

/// Seconds of processor of this process so far, from /proc; not a number elsewhere. (Linux counts them in hundredths.)
fn processor_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> = fields.split_whitespace().skip(11).take(2).filter_map(|t| t.parse().ok()).collect();
    if ticks.len() == 2 { ticks.iter().sum::<f64>() / 100.0 } else { f64::NAN }
}

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let scale = std::env::var("FLOWSPACE_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(1.0);
    let sharding = std::env::var("FLOWSPACE_SHARDING").unwrap_or_else(|_| "two_pass".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = std::env::temp_dir().join(format!("flowspace-bench-study-{}", std::process::id()));
    println!(
        "| study | points | wall, s | processor, s | points/s | points a processor second |\n|---|---|---|---|---|---|"
    );
    for part in PARTS.iter().filter(|part| asked.is_empty() || asked.iter().any(|a| a == part.name)) {
        std::fs::create_dir_all(&folder).expect("a folder for temporary files");
        let file = folder.join("study.yaml");
        std::fs::write(&file, text(part, root, scale, &sharding)).expect("a temporary file");
        let (clock, before) = (Instant::now(), processor_s());
        let study = Study::load(&file).expect("a study that loads");
        let summary = run(study, &RunOptions { jobs: 2, ..RunOptions::new(folder.join(part.name)) }).expect("a run");
        let (wall, processor) = (clock.elapsed().as_secs_f64(), processor_s() - before);
        assert_eq!(summary.failed, 0, "points failed");
        let points = summary.points as f64;
        println!(
            "| {} | {points} | {wall:.2} | {processor:.2} | {:.0} | {:.0} |",
            part.name,
            points / wall,
            points / processor
        );
        if summary.infeasible + summary.limited > 0 {
            println!("({} infeasible, {} stopped at a limit)", summary.infeasible, summary.limited);
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
}
