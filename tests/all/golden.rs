//! DFModel's stored runs (facts of `kosho2013/DFModel` and `fengqian-ayce/DFModel`; each file names its source).
//!
//! `tests/golden/dfmodel/*.yaml` are plan files: workload, system, the stored mapping, and the stored figures as
//! `result:`. Pinned: the figures must follow from the mapping to 1e-9. Free: the search must never be worse than the
//! stored time (`cargo test --release --test all golden::free_mappings -- --nocapture` prints stored, ours, gap and seconds of
//! each). [`rows`] are those of the tables of `docs/dfmodel.md`, which `figures` checks.

use flowspace::mapping::search::{Engine, Request};
use flowspace::mapping::{Answer, Status, map};
use flowspace::plan::file::PlanFile;
use flowspace::spec::Loader;
use std::path::PathBuf;

fn cases() -> Vec<(String, PlanFile)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/dfmodel");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    assert_eq!(
        paths.len(),
        31,
        "stored rows of golden.csv, five of state-space models, nine that were made from the formulas"
    );
    paths
        .into_iter()
        .map(|path| {
            let node = Loader.load(&path, None).unwrap();
            let file = flowspace::plan::file::read(&node).unwrap_or_else(|e| panic!("{e}"));
            (path.file_stem().unwrap().to_string_lossy().into_owned(), file)
        })
        .collect()
}

#[test]
fn pinned_mappings_reproduce_the_stored_figures() {
    let mut faults = Vec::new();
    for (id, file) in cases() {
        let Some(result) = &file.result else { continue };
        match flowspace::check::derive(&file.workload, &file.system, &file.decisions) {
            Ok(figures) => faults.extend(result.differences(&figures).into_iter().map(|d| format!("{id}: {d}"))),
            Err(broken) => faults.push(format!("{id}: {broken:?}")),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Stored seconds of an iteration of the rows whose stored plan is no value of the model (golden.csv, time_ns).
fn stored_seconds(id: &str, file: &PlanFile) -> f64 {
    match id {
        "gpt3-175B-sn10-dataflow-4x2" => 1702.9330580274875,
        "gpt3-175B-rdu-df-lsram-ldram" => 782.7577896959592,
        // SSM/Hyena/regular_fft/1M, final_ns.
        "hyena-regular-fft-1M" => 2.7307499593086235e-5,
        // DLRM/Compare_w_existing/DLRM-A_A100_8x16_R_FC_fwdbwd, II of one minibatch a chip.
        "dlrm-first-A-a100" => 0.03827943732903247,
        // LLM/Compare_w_existing/Calculon/fix_PP/32_32_4, ns_per_batch.
        "gpt3-1T-calculon-32-32-4" => 63.63927377367988,
        _ => file.result.as_ref().and_then(|r| r.iteration_s).unwrap(),
    }
}

/// Seconds of runs from microseconds to hours.
pub fn digits(seconds: f64) -> String {
    if seconds < 0.1 { format!("{seconds:.6e}") } else { format!("{seconds:.6}") }
}

#[test]
fn free_mappings_are_never_worse_than_the_stored_ones() {
    let mut faults = Vec::new();
    println!("| run | stored, s | ours, s | difference | tiles | partitions | status | gap | seconds |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for (id, file) in cases() {
        if id == "hyena-regular-fft-1M" {
            // 123 kernels have too many ideals for a test; the stored partition with the best lanes is enough.
            let ours = flowspace::check::derive(&file.workload, &file.system, &file.decisions).unwrap().iteration_s();
            println!("| {id} | {} | {} |", digits(stored_seconds(&id, &file)), digits(ours));
            if ours > 0.7501 * stored_seconds(&id, &file) {
                faults.push(format!("{id}: {ours} s"));
            }
            continue;
        }
        let mut request = Request { engine: Engine::Exact, ..Request::default() };
        let used = |f: fn(&flowspace::plan::DimensionUse) -> u64| Some(file.decisions.uses.iter().map(f).product());
        if !file.workload.is_spread() {
            request.wanted.tp = used(|u| u.tp);
            request.wanted.pp = used(|u| u.pp);
            request.wanted.dp = used(|u| u.dp);
        }
        let clock = std::time::Instant::now();
        match map(&file.workload, &file.system, &request).unwrap() {
            Answer::Mapped(plan, record) => {
                let seconds = clock.elapsed().as_secs_f64();
                flowspace::check::verify(&plan).unwrap_or_else(|e| panic!("{id}: {e}"));
                let stored = stored_seconds(&id, &file);
                println!(
                    "| {id} | {} | {} | {:+.2} % | {} | {} | {} | {:.1e} | {seconds:.3} |",
                    digits(stored),
                    digits(record.value),
                    100.0 * (record.value / stored - 1.0),
                    plan.decisions.tiles,
                    plan.figures.partitions.len(),
                    record.status,
                    record.gap(),
                );
                if record.value > stored * (1.0 + 1e-9) || record.status != Status::Optimal {
                    faults.push(format!("{id}: {} s, stored {stored} s, {}", record.value, record.status));
                }
            }
            Answer::Infeasible(reason) => faults.push(format!("{id}: {reason}")),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A stored run beside ours.
pub struct Row {
    /// Its name.
    pub id: String,
    /// Stored seconds.
    pub stored: f64,
    /// What its solver reached.
    pub solver: String,
    /// Why ours differs.
    pub reason: String,
    /// Seconds with the stored mapping.
    pub pinned: f64,
    /// Seconds in the same semantics, mapping free.
    pub same: String,
    /// Seconds in our own model at the stored degrees.
    pub own_pinned: String,
    /// Seconds in our own model with free degrees.
    pub own_free: String,
}

/// The rows of docs/dfmodel.md's tables: stored, ours in the same semantics, ours with our own model at the same degrees and with free degrees.
/// Every plan must pass the checker.
pub fn rows() -> &'static [Row] {
    static ROWS: std::sync::LazyLock<Vec<Row>> = std::sync::LazyLock::new(make_rows);
    &ROWS
}

fn make_rows() -> Vec<Row> {
    let stored =
        std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/stored.csv")).unwrap();
    let mut notes: std::collections::BTreeMap<String, (String, String)> = csv::Reader::from_reader(stored.as_bytes())
        .records()
        .map(|r| r.unwrap())
        .map(|r| (r[0].to_string(), (r[1].to_string(), r[2].to_string())))
        .collect();
    let mut rows = Vec::new();
    for (id, file) in cases() {
        let (solver, reason) = notes.remove(&id).unwrap_or_else(|| panic!("{id} has no line in stored.csv"));
        let derived = flowspace::check::derive(&file.workload, &file.system, &file.decisions);
        let mut row = Row {
            stored: stored_seconds(&id, &file),
            pinned: derived.map_or(f64::NAN, |figures| figures.iteration_s()),
            id,
            solver,
            reason,
            same: "-".into(),
            own_pinned: "-".into(),
            own_free: "-".into(),
        };
        // Its 123 kernels take too long for a test with a free mapping.
        if row.id != "hyena-regular-fft-1M" {
            fill(&mut row, &file);
        }
        rows.push(row);
    }
    assert!(notes.len() <= 1, "lines without a run: {notes:?}");
    rows
}

fn fill(row: &mut Row, file: &PlanFile) {
    let degrees = |pinned: bool| {
        let mut request = Request::default();
        let used = |f: fn(&flowspace::plan::DimensionUse) -> u64| Some(file.decisions.uses.iter().map(f).product());
        if pinned && !file.workload.is_spread() {
            (request.wanted.tp, request.wanted.pp, request.wanted.dp) =
                (used(|u| u.tp), used(|u| u.pp), used(|u| u.dp));
        }
        request
    };
    // Heads as outer problems in the backward of Q and K are DFModel's way around a reduction: its rules alone allow them.
    let mut node = file.workload_node.clone();
    if node.get("heads_in_qk_backward").is_some() {
        let origin = node.origin.clone();
        node.set("heads_in_qk_backward", origin.clone(), flowspace::spec::Node::scalar("false", origin));
    }
    let plain = flowspace::workload::WorkloadSpec::build(&node).unwrap_or_else(|e| panic!("{e}"));
    let time = |workload: &flowspace::workload::Workload, system: &flowspace::system::System, pinned: bool| match map(
        workload,
        system,
        &degrees(pinned),
    ) {
        Ok(Answer::Mapped(plan, record)) => {
            flowspace::check::verify(&plan).unwrap_or_else(|e| panic!("{}: {e}", row.id));
            let proven = if record.status == Status::Optimal { "" } else { " (gap stated)" };
            format!("{}{proven}", digits(plan.figures.iteration_s()))
        }
        Ok(Answer::Infeasible(reason)) => format!("none: {}", reason.resource),
        Err(error) => panic!("{}: {error}", row.id),
    };
    let mut own = file.system.clone();
    own.model = flowspace::system::ModelOptions::flowspace();
    let same = time(&file.workload, &file.system, true);
    let (own_pinned, own_free) = (time(&plain, &own, true), time(&plain, &own, false));
    (row.same, row.own_pinned, row.own_free) = (same, own_pinned, own_free);
}
