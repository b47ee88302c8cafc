//! Tests of whole studies on a layer of three kernels.

use super::store::{JOURNAL, Key, RESULTS, TIMINGS};
use super::sweep::{MAX_POINTS, Solve, run_with, solve};
use super::{RunOptions, Study, StudyError, Summary, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder of its own for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flowspace-study-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        for (file, text) in [("w.yaml", WORKLOAD), ("s.yaml", SYSTEM), ("big.yaml", BIG), ("small.yaml", SMALL)] {
            fs::write(path.join(file), text).unwrap();
        }
        Self(path)
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    fn study(&self, text: &str) -> Result<Study, String> {
        let path = self.path("study.yaml");
        fs::write(&path, text).unwrap();
        Study::load(&path).map_err(|p| p.to_string())
    }
    /// A study of the base files with these axes.
    fn axes(&self, axes: &str) -> Result<Study, String> {
        self.study(&format!("name: t\nworkload: w.yaml\nsystem: s.yaml\naxes:\n{axes}"))
    }
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const WORKLOAD: &str = "
kind: graph
name: three
source: made up
global_batch: 8
repeat: 4
training: true
inputs: [{name: x, rows: 64, cols: 32}]
outputs: [z]
kernels:
  - {name: A, op: gemm_weight, m: 128, k: 64, n: 32, rhs: x, output: a}
  - {name: B, op: elementwise, m: 128, n: 32, inputs: [a], output: b}
  - {name: C, op: gemm_weight, m: 64, k: 128, n: 32, rhs: b, output: z}
";
const SYSTEM: &str = "
name: base
source: made up
chip: big.yaml
memory: {name: mem, source: assumed here, bandwidth: 100 GB/s, capacity: 1 MB, price: $1/(GB/s), power: 0.1 W/(GB/s)}
network:
  topology: ring
  dimensions: [{size: 4, link: {name: wire, source: assumed here, bandwidth: 10 GB/s, price: $1/(GB/s), power: 0.1 W/(GB/s)}}]
";
const BIG: &str = "
name: big
source: assumed here
style: dataflow
cores: 16
lanes: 8
stages: 4
frequency: 1 GHz
sram: 1 MB
efficiency: 0.9
price: $100
power: 10 W
";
const SMALL: &str = "from: big.yaml\nname: small\ncores: 4\n";

/// 2 x 2 x 3 points, of which the four with the smallest memory are infeasible.
const TWELVE: &str = "
  - {name: chip, field: system.chip, values: [big.yaml, small.yaml]}
  - {name: batch, field: workload.global_batch, values: [8, 16]}
  - {name: dram, field: system.memory.capacity, values: [1 kB, 1 MB, null]}
";

fn options(out: &Path, jobs: usize) -> RunOptions {
    RunOptions { jobs, ..RunOptions::new(out) }
}

/// The value of a column in a row of the results.
fn value(csv: &str, row: usize, column: &str) -> String {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let position = reader.headers().unwrap().iter().position(|name| name == column).unwrap();
    reader.records().nth(row).unwrap().unwrap().get(position).unwrap().to_string()
}

/// A solver that counts its calls.
fn counting(count: &Arc<AtomicU64>) -> Arc<Solve> {
    let count = count.clone();
    Arc::new(move |point| {
        count.fetch_add(1, Ordering::Relaxed);
        solve(point)
    })
}

fn count_of(summary: &Summary) -> (u64, u64, u64, u64) {
    (summary.optimal, summary.limited, summary.infeasible, summary.failed)
}

#[test]
fn the_same_bytes_whatever_the_threads_and_interruptions() {
    let folder = Folder::new("bytes");
    let go = |out: &str, jobs: usize| run(folder.axes(TWELVE).unwrap(), &options(&folder.path(out), jobs)).unwrap();
    let summary = go("one", 1);
    assert_eq!((summary.points, summary.finished, summary.solved), (12, 12, 12));
    assert_eq!(count_of(&summary), (8, 0, 4, 0));
    let bytes = folder.read("one/results.csv");
    assert_eq!(bytes.lines().count(), 13);
    assert_eq!(go("four", 4).solved, 12);
    assert_eq!(folder.read("four/results.csv"), bytes);

    // A kill in the middle: half of the journal, with its last line cut off.
    let journal = folder.read("one/journal.jsonl");
    let lines: Vec<&str> = journal.lines().collect();
    let half = format!("{}\n{}", lines[..6].join("\n"), &lines[6][..lines[6].len() / 2]);
    fs::write(folder.path("one").join(JOURNAL), half).unwrap();
    fs::remove_file(folder.path("one").join(RESULTS)).unwrap();
    assert_eq!(go("one", 3).solved, 6);
    assert_eq!(folder.read("one/results.csv"), bytes);
    // The cut line was ended, so that the lines after it count.
    assert_eq!(go("one", 1).solved, 0);
    assert_eq!(folder.read("one/results.csv"), bytes);

    // A damaged line is done again, and no other.
    fs::write(folder.path("one").join(JOURNAL), journal.replacen("optimal", "optimaI", 1)).unwrap();
    assert_eq!(go("one", 2).solved, 1);
    assert_eq!(folder.read("one/results.csv"), bytes);
    assert_eq!(folder.read("one/timings.csv").lines().count(), 13);
}

#[test]
fn rows_say_what_was_found() {
    let folder = Folder::new("rows");
    let summary = run(folder.axes(TWELVE).unwrap(), &RunOptions::new(folder.path("out"))).unwrap();
    let csv = folder.read("out/results.csv");
    let header = csv.lines().next().unwrap();
    assert!(header.starts_with("point,chip,batch,dram,workload,system,chip_name,"), "{header}");
    assert!(header.ends_with(",study,heatmap,key"));
    assert_eq!(value(&csv, 0, "status"), "infeasible");
    assert_eq!(value(&csv, 0, "short_of"), "dram");
    assert_eq!(value(&csv, 0, "short_available"), "1000");
    assert!(value(&csv, 0, "reason").contains("dram short"));
    assert_eq!(value(&csv, 0, "iteration_s"), "");
    assert_eq!(value(&csv, 7, "chip"), "small");
    assert_eq!(value(&csv, 7, "chip_name"), "small");
    assert_eq!((value(&csv, 7, "batch"), value(&csv, 7, "dram")), ("8".into(), "1 MB".into()));
    assert_eq!(value(&csv, 8, "capacity_bytes"), "");
    assert_eq!(value(&csv, 8, "dram"), "null");
    assert_eq!(value(&csv, 10, "reproducible"), "true");
    let seconds: f64 = value(&csv, 7, "iteration_s").parse().unwrap();
    let samples: f64 = value(&csv, 7, "samples_per_s").parse().unwrap();
    assert_eq!(samples, 8.0 / seconds);
    let parts: f64 = ["compute_s", "dram_s", "network_s", "overhead_s"]
        .iter()
        .map(|c| value(&csv, 7, c).parse::<f64>().unwrap())
        .sum();
    let partitions: f64 =
        value(&csv, 7, "partition_times_s").split(['|', '/']).map(|t| t.parse::<f64>().unwrap()).sum();
    assert!((parts - partitions).abs() <= 1e-12 * parts);
    let (column, best) = &summary.best[0];
    assert_eq!((*column, best.len()), ("samples_per_s", 3));
    assert!(best[0].label.starts_with("big / "));
}

#[test]
fn a_changed_number_is_another_key_and_nothing_else_is() {
    let folder = Folder::new("keys");
    let load = || folder.axes("  - {name: batch, field: workload.global_batch, values: [8, 16]}\n").unwrap();
    let key = |study: &Study, index: u64| Key::of(&study.point(index).unwrap()).unwrap();
    let (first, second) = (key(&load(), 0), key(&load(), 1));
    assert_ne!(first, second);
    assert_eq!(key(&load(), 0), first);
    let count = Arc::new(AtomicU64::new(0));
    let go = || run_with(load(), &RunOptions::new(folder.path("out")), counting(&count)).unwrap();
    go();
    go();
    assert_eq!(count.load(Ordering::Relaxed), 2, "the second run takes both from the journal");
    fs::write(folder.path("big.yaml"), BIG.replace("cores: 16", "cores: 17")).unwrap();
    assert_ne!(key(&load(), 0), first);
    go();
    assert_eq!(count.load(Ordering::Relaxed), 4);
    // Comments and the order of keys are no content.
    fs::write(folder.path("s.yaml"), format!("# comment\n{SYSTEM}")).unwrap();
    go();
    assert_eq!(count.load(Ordering::Relaxed), 4);
}

#[test]
fn points_of_the_same_content_are_solved_once() {
    let folder = Folder::new("same");
    let axes = "  - name: a\n    points: {one: {}, two: {workload.global_batch: 8}, three: {solve.gap: 1e-6}}\n";
    let count = Arc::new(AtomicU64::new(0));
    let study = folder.axes(axes).unwrap();
    let summary = run_with(study, &options(&folder.path("out"), 3), counting(&count)).unwrap();
    assert_eq!((count.load(Ordering::Relaxed), summary.finished, summary.solved), (1, 3, 1));
}

#[test]
fn overrides_reach_every_tree() {
    let folder = Folder::new("overrides");
    let axes = "
  - name: net
    points:
      none: {system.network.topology: single-chip, system.network.dimensions: []}
      two:
        system.network.dimensions.0.size: 2
        system.network.dimensions.0.link.bandwidth: 7 GB/s
        system.model.pipeline: dfmodel
        solve.tp: 2
  - {name: cores, field: system.chip.cores, values: [3, 5]}
  - {name: m, field: workload.kernels.1.m, values: [128]}
";
    let study = folder.axes(axes).unwrap();
    assert_eq!(study.count(), Some(4));
    let point = study.point(3).unwrap();
    assert_eq!(study.labels(3), ["two", "5", "128"]);
    let dimension = &point.system.as_ref().unwrap().network.dimensions[0];
    assert_eq!(
        (dimension.size, dimension.link.0.bandwidth.0, point.system.as_ref().unwrap().chip.0.cores),
        (2, 7e9, 5)
    );
    assert_eq!(point.request().wanted.tp, Some(2));
    assert_eq!(point.system.as_ref().unwrap().model.pipeline.word(), "dfmodel");
    let alone = study.point(0).unwrap();
    assert_eq!((alone.system.as_ref().unwrap().chip_count(), alone.solve.tp), (1, None));
}

/// The grid stays a product of labels; what a combination sets need not be one.
#[test]
fn rules_set_what_depends_on_several_axes() {
    let folder = Folder::new("rules");
    let text = "
name: t
workload: w.yaml
system: s.yaml
axes:
  - {name: batch, field: workload.global_batch, values: [8, 16]}
  - {name: chip, field: system.chip, values: [big.yaml, small.yaml]}
  - {name: speed, field: system.network.dimensions.0.link.bandwidth, values: [7 GB/s, 9 GB/s]}
rules:
  - when: {batch: 16}
    set: {system.network.dimensions: [{size: 2, link: &w {name: w, source: 'assumed: test', bandwidth: 1 GB/s, price: $1/(GB/s), power: 0 W/(GB/s)}},
      {size: 3, link: *w}], system.network.topology: torus-2d}
  - when: {batch: [8, 16], chip: small}
    set: {system.chip.cores: 5}
  - {when: {batch: 16, speed: 9 GB/s}, set: {system.network.dimensions.*.link.bandwidth: 11 GB/s}}
";
    let study = folder.study(text).unwrap();
    assert_eq!(study.count(), Some(8));
    let found: Vec<(u64, Vec<(u64, f64)>)> = (0..8)
        .map(|i| {
            let system = study.point(i).unwrap().system.unwrap();
            let dimensions = system.network.dimensions.iter().map(|d| (d.size, d.link.0.bandwidth.0 / 1e9)).collect();
            (system.chip.0.cores, dimensions)
        })
        .collect();
    let one = |speed: f64| vec![(4, speed)];
    let two = |inner: f64, outer: f64| vec![(2, inner), (3, outer)];
    assert_eq!(
        found,
        [
            (16, one(7.0)),
            (16, one(9.0)),
            (5, one(7.0)),
            (5, one(9.0)),
            // Applied after the axis `batch`, so that `speed` still sets the innermost link ...
            (16, two(7.0, 1.0)),
            // ... unless a rule that names `speed` goes over it.
            (16, two(11.0, 11.0)),
            (5, two(7.0, 1.0)),
            (5, two(11.0, 11.0)),
        ]
    );
}

#[test]
fn rules_that_cannot_hold_or_would_hide_a_label_are_refused() {
    let folder = Folder::new("norules");
    let rules = |rules: &str| {
        let axes = "  - {name: chip, field: system.chip, values: [big.yaml, small.yaml]}\n  - {name: sram, field: system.chip.sram, values: [1 MB, 2 MB]}\n";
        folder
            .study(&format!("name: t\nworkload: w.yaml\nsystem: s.yaml\naxes:\n{axes}rules:\n{rules}"))
            .map(|_| String::new())
            .unwrap_or_else(|e| e)
    };
    let wrong = rules(
        "  - {when: {chpi: big}, set: {system.chip.cores: 2}}\n  - {when: {chip: [big, smal]}, set: {system.chip.coers: 2}}\n  \
         - {when: {}, set: {}}\n  - {when: {chip: []}, set: {system.chip.cores: 2}}\n",
    );
    let wrong = format!(
        "{wrong}\n{}",
        rules(
            "  - {when: {chpi: big}, set: {system.chip.coers: 2}}\n  - {when: {chip: [big, smal]}, set: {}}\n  - {when: {}, set: {solve.tp: 1}}\n"
        )
    );
    for expected in [
        "study.yaml:11: rules.[3].when.chip: the list is empty",
        "study.yaml:8: rules.[0].when.chpi: there is no axis \"chpi\"; did you mean \"chip\"?",
        "study.yaml:8: rules.[0].set.system.chip.coers: unknown field \"system.chip.coers\"; did you mean \"cores\"?",
        "study.yaml:9: rules.[1].when.chip: there is no value of axis \"chip\" called \"smal\"; did you mean \"small\"?",
        "study.yaml:9: rules.[1].set: expected at least one field",
        "study.yaml:10: rules.[2].when: expected at least one axis",
    ] {
        assert!(wrong.contains(expected), "{expected}\n---\n{wrong}");
    }
    // A chip set by a rule would leave the label `2 MB` without a meaning; so would an SRAM set whatever the label.
    let hidden = rules("  - {when: {chip: big}, set: {system.chip.cores: 2}}\n");
    assert_eq!(hidden, "");
    let hidden = rules("  - {when: {sram: 2 MB}, set: {system.chip: small.yaml}}\n");
    assert!(
        hidden.contains(
            "rules.[0]: sets system.chip, so that system.chip of axis \"chip\" has no effect; name that axis under when"
        ),
        "{hidden}"
    );
    // Twice the same condition: the first rule would never show.
    let twice = rules(
        "  - {when: {chip: big}, set: {system.chip.cores: 2}}\n  - {when: {chip: [big, small]}, set: {system.chip.cores: 3}}\n",
    );
    assert!(twice.contains("so that system.chip.cores of rule 0 has no effect"), "{twice}");
    let narrower = rules(
        "  - {when: {chip: [big, small]}, set: {system.chip.cores: 2}}\n  - {when: {chip: big}, set: {system.chip.cores: 3}}\n",
    );
    assert_eq!(narrower, "");
}

/// Blind to the network, two chips look as good as none between them: the plan is chosen so, and priced with all.
#[test]
fn a_blind_search_is_priced_with_everything() {
    let folder = Folder::new("blind");
    let axes = "
  - name: seen
    points:
      all: {}
      no-memory: {solve.blind_to: [memory]}
      compute: {solve.blind_to: [memory, network]}
";
    let summary = run(folder.axes(axes).unwrap(), &RunOptions::new(folder.path("out"))).unwrap();
    assert_eq!((summary.failed, summary.infeasible, summary.finished), (0, 0, 3));
    let csv = folder.read("out/results.csv");
    let number = |row: usize, column: &str| value(&csv, row, column).parse::<f64>().unwrap();
    for row in 1..3 {
        assert!(number(row, "iteration_s") >= number(0, "iteration_s"), "{csv}");
        assert!(number(row, "bound") <= number(0, "iteration_s"), "{csv}");
        assert!(number(row, "dram_s") > 0.0);
        assert_eq!(value(&csv, row, "status") == "blind", number(row, "gap") > 1e-6);
    }
    assert_eq!(summary.optimal + summary.blind, 3);
}

#[test]
fn a_point_that_fails_is_a_row_and_is_tried_again() {
    let folder = Folder::new("failures");
    let axes = "  - {name: micro, field: workload.micro_batch, values: [1, 2, 4, 99]}\n";
    let broken: Arc<Solve> = Arc::new(|point| match point.workload.micro_batch {
        2 => Err("no luck\ntoday".into()),
        4 => panic!("a fault"),
        _ => solve(point),
    });
    let load = || folder.axes(axes).unwrap();
    let summary = run_with(load(), &options(&folder.path("out"), 2), broken).unwrap();
    assert_eq!(count_of(&summary), (1, 0, 0, 3));
    let csv = folder.read("out/results.csv");
    assert_eq!(value(&csv, 1, "reason"), "no luck; today");
    assert!(value(&csv, 2, "reason").contains("please report it: a fault"));
    let spec = value(&csv, 3, "reason");
    assert!(spec.contains("study.yaml:5: workload.micro_batch: expected at most the global_batch of 8"), "{spec}");
    assert_eq!((value(&csv, 3, "status"), value(&csv, 3, "key")), ("failed".into(), String::new()));
    let summary = run(load(), &RunOptions::new(folder.path("out"))).unwrap();
    assert_eq!((count_of(&summary), summary.solved), ((3, 0, 0, 1), 3));
}

#[test]
fn a_stop_keeps_what_is_finished() {
    let folder = Folder::new("stop");
    let whole = run(folder.axes(TWELVE).unwrap(), &RunOptions::new(folder.path("whole"))).unwrap();
    let options = options(&folder.path("out"), 1);
    let (stop, count) = (options.stop.clone(), AtomicU64::new(0));
    let stopping: Arc<Solve> = Arc::new(move |point| {
        if count.fetch_add(1, Ordering::Relaxed) == 4 {
            stop.store(true, Ordering::Relaxed);
        }
        solve(point)
    });
    let summary = run_with(folder.axes(TWELVE).unwrap(), &options, stopping).unwrap();
    assert!(summary.stopped && (4..=5).contains(&summary.finished), "{summary:?}");
    let rows = folder.read("out/results.csv");
    assert_eq!(rows.lines().count() as u64, summary.finished + 1);
    assert!(fs::read_to_string(&whole.results).unwrap().starts_with(&rows));
    let rest = run(folder.axes(TWELVE).unwrap(), &RunOptions::new(folder.path("out"))).unwrap();
    assert_eq!(rest.solved, 12 - summary.finished);
    assert_eq!(folder.read("out/results.csv"), fs::read_to_string(&whole.results).unwrap());
}

#[test]
fn folders_that_cannot_be_used_are_told_before_anything_is_solved() {
    let folder = Folder::new("folders");
    let count = Arc::new(AtomicU64::new(0));
    let go = |out: &Path| run_with(folder.axes(TWELVE).unwrap(), &RunOptions::new(out), counting(&count));
    let under_a_file = go(&folder.path("w.yaml/out")).unwrap_err().to_string();
    assert!(under_a_file.starts_with("cannot write "), "{under_a_file}");
    fs::create_dir_all(folder.path("out").join(RESULTS)).unwrap();
    assert!(matches!(go(&folder.path("out")), Err(StudyError::Store(_))));
    fs::create_dir_all(folder.path("busy")).unwrap();
    let lock = fs::File::create(folder.path("busy/.lock")).unwrap();
    lock.lock().unwrap();
    assert!(go(&folder.path("busy")).unwrap_err().to_string().contains("in use by another run"));
    assert_eq!(count.load(Ordering::Relaxed), 0);
    drop(lock);
    assert!(go(&folder.path("busy")).is_ok(), "the lock of a dead run is no obstacle");
    assert!(folder.path("busy").join(TIMINGS).exists());
}

#[test]
fn large_grids_are_counted_and_not_made() {
    let folder = Folder::new("large");
    let axis = |name: &str, field: &str, n: u64| {
        let values: Vec<String> = (1..=n).map(|i| i.to_string()).collect();
        format!("  - {{name: {name}, field: {field}, values: [{}]}}\n", values.join(", "))
    };
    let three =
        axis("a", "workload.global_batch", 216) + &axis("b", "system.chip.cores", 216) + &axis("c", "solve.seed", 216);
    let study = folder.axes(&three).unwrap();
    assert_eq!(study.count(), Some(10_077_696));
    assert_eq!(study.labels(10_077_695), ["216", "216", "216"]);
    assert_eq!(study.labels(217), ["1", "2", "2"]);
    let error = run(study, &RunOptions::new(folder.path("out"))).unwrap_err();
    assert!(matches!(error, StudyError::TooMany { points: 10_077_696 }) && MAX_POINTS == 100_000);
    assert!(error.to_string().contains("10077696 points") && error.to_string().contains("--yes"));
    assert!(!folder.path("out").exists());
    let fields = [
        "global_batch",
        "micro_batch",
        "repeat",
        "kernels.0.m",
        "kernels.0.k",
        "kernels.0.n",
        "kernels.1.m",
        "kernels.1.n",
    ];
    let endless: String =
        fields.iter().enumerate().map(|(i, f)| axis(&format!("a{i}"), &format!("workload.{f}"), 300)).collect();
    let study = folder.axes(&endless).unwrap();
    assert_eq!(study.count(), None);
    assert!(matches!(run(study, &RunOptions { yes: true, ..RunOptions::new("x") }), Err(StudyError::Endless)));
}

#[test]
fn all_errors_of_a_study_come_at_once() {
    let folder = Folder::new("errors");
    let text = "
name: a/b
workload: missing.yaml
system: s.yaml
axes:
  - {name: chip, field: system.chpi, values: [1]}
  - {name: chip, field: system.chip, values: [big.yaml, gone.yaml, big.yaml]}
  - {name: empty, field: system.chip.cores, values: []}
  - {name: neither}
  - {name: both, field: system.chip.sram, values: [1 MB], points: {x: {}}}
  - {name: valueless, field: system.chip.sram}
  - {name: utilization, points: {}}
  - {name: far, points: {x: {workload.kernels.zero.m: 1, solve.nods: 3}}}
  - {name: shape, field: system.memory, values: [{from: x.yaml}]}
solve: {gap: 2, seed: -1}
plot: {}
";
    let errors = folder.study(text).unwrap_err();
    for expected in [
        "study.yaml:3: workload: cannot read file",
        "study.yaml:6: axes.[0].field: unknown field \"system.chpi\"; did you mean \"chip\"?",
        "study.yaml:7: axes.[1].values.[1]: cannot read file",
        "study.yaml:8: axes.[2].values: the list is empty",
        "study.yaml:9: axes.[3]: an axis needs a field",
        "study.yaml:10: axes.[4].points: an axis has one of",
        "study.yaml:11: axes.[5].values: missing",
        "study.yaml:12: axes.[6].points: there are no points",
        "study.yaml:13: axes.[7].points.x.workload.kernels.zero.m: \"workload.kernels.zero.m\" leads nowhere",
        "study.yaml:13: axes.[7].points.x.solve.nods: unknown field \"solve.nods\"; did you mean \"nodes\"?",
        "study.yaml:14: axes.[8].values.[0]: a mapping has no label",
        "study.yaml:15: solve.seed: expected a whole number",
        "study.yaml:16: plot: unknown key; did you mean \"plots\"?",
    ] {
        assert!(errors.contains(expected), "{expected}\n---\n{errors}");
    }
    // What only a study that can be read shows.
    let text = "
name: a/b
workload: w.yaml
system: s.yaml
axes:
  - {name: chip, field: system.chip, values: [big.yaml, small.yaml, ./big.yaml]}
  - {name: chip, field: system.chip.cores, values: [1]}
  - {name: status, field: system, values: [s.yaml]}
plots: {heatmap: {rows: [chpi], cols: [chip, chip], value: status}}
";
    let errors = folder.study(text).unwrap_err();
    for expected in [
        "study.yaml:2: name: expected letters, digits",
        "study.yaml:6: axes.[0]: label \"big\" stands twice (first on line 6)",
        "study.yaml:7: axes.[1].name: axis \"chip\" stands twice",
        "study.yaml:8: axes.[2].name: \"status\" is a column of every results.csv",
        "study.yaml:9: plots.heatmap.rows: there is no axis \"chpi\"; did you mean \"chip\"?",
        "study.yaml:9: plots.heatmap.cols: axis \"chip\" is used twice",
        "study.yaml:9: plots.heatmap.value: there is no column of numbers \"status\"",
    ] {
        assert!(errors.contains(expected), "{expected}\n---\n{errors}");
    }
    let hidden = folder
        .axes("  - {name: a, field: system.chip.cores, values: [1]}\n  - {name: b, field: system.chip, values: [big.yaml]}\n")
        .unwrap_err();
    assert!(
        hidden.contains("sets system.chip, so that system.chip.cores of axis \"a\" has no effect; put this axis first"),
        "{hidden}"
    );
    assert!(folder.axes("  []\n").unwrap_err().contains("at least one axis"));
}

#[test]
fn what_is_wrong_with_every_point_is_told_once() {
    let folder = Folder::new("once");
    fs::write(folder.path("s.yaml"), SYSTEM.replace("100 GB/s", "100")).unwrap();
    let error = run(folder.axes(TWELVE).unwrap(), &RunOptions::new(folder.path("out"))).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("s.yaml:5: memory.bandwidth: expected a bandwidth"), "{error}");
    assert!(!folder.path("out").exists());
}
