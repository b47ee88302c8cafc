//! Recorded traces against the model: each trace's kernels timed anew on the machine that it was recorded on, and its step replayed with them.
//!
//! What the trace pins stays as recorded: the calls and their order, the number of kernels of each, host time, collectives (they hold
//! waiting for other ranks), copies and fills. What is predicted is the time of the kernels whose call is known by FLOP and bytes; the
//! others keep their time, so the error is given for all kernels and for those predicted alone.

use super::accelerators::{Listed, known};
use super::boxes;
use crate::system::System;
use crate::trace::link::{LinkedTrace, NodeKind, Steps, file, link, unlink};
use crate::trace::lower::{FileKind, kind};
use crate::trace::replay::retime::{Retimed, Target, retime};
use crate::trace::replay::{Delays, Timing, recorded};
use crate::trace::runs::recorded::{Pair, pairs};
use crate::trace::{host, kineto};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A trace against the model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceRow {
    /// Name of the file up to its first dot.
    pub name: String,
    /// The device trace or the linked one.
    pub trace: String,
    /// Its machine, as recorded.
    pub device: String,
    /// The chip of the catalogue that is it.
    pub chip: String,
    /// Kernels that compute.
    pub kernels: u64,
    /// Their time in the trace, ms.
    pub recorded_ms: f64,
    /// Their time as predicted (or kept), ms.
    pub predicted_ms: f64,
    /// Share of the recorded time that is predicted, %.
    pub predicted_pct: f64,
    /// Predicted against recorded, of all kernels that compute, %.
    pub error_pct: f64,
    /// The same of those predicted; none where none is.
    pub predicted_error_pct: Option<f64>,
    /// A step as recorded, ms.
    pub step_ms: f64,
    /// A step as replayed with the predicted kernels, ms.
    pub replayed_ms: f64,
    /// Replayed against recorded, %.
    pub step_error_pct: f64,
    /// Kernels of each operator: recorded and predicted ms.
    pub operators: Vec<OperatorRow>,
}

/// Kernels of an operator, or of one name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OperatorRow {
    /// The operator.
    pub operator: String,
    /// Its kernels.
    pub kernels: u64,
    /// Their recorded time, ms.
    pub recorded_ms: f64,
    /// Their predicted time, ms.
    pub predicted_ms: f64,
}

/// Traces that were validated, and why others were not.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct TraceScores {
    /// One a trace with kernels on a known machine.
    pub rows: Vec<TraceRow>,
    /// File and reason.
    pub left_out: Vec<(String, String)>,
}

impl TraceScores {
    /// Mean of the errors of kernel time without sign, %; over the traces of which at least half of the time is predicted.
    pub fn kernel_mape_pct(&self) -> Option<f64> {
        mean(self.rows.iter().filter(|r| r.predicted_pct >= 50.0).map(|r| r.error_pct))
    }

    /// The same of steps, over all traces.
    pub fn step_mape_pct(&self) -> Option<f64> {
        mean(self.rows.iter().map(|r| r.step_error_pct))
    }
}

fn mean(errors: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = errors.fold((0.0, 0u32), |(s, n), e| (s + e.abs(), n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

/// The chip that a device names itself, without the maker's words before it.
pub fn chip_of(device: &str) -> Option<&'static Listed> {
    let mut name = device.trim();
    loop {
        let words = ["NVIDIA ", "AMD ", "Instinct ", "GeForce ", "Tesla ", "Radeon "];
        match words.iter().find_map(|w| name.strip_prefix(w)) {
            Some(rest) => name = rest.trim_start(),
            None => return known(name),
        }
    }
}

fn stem(path: &Path) -> String {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// One chip of the machine that a device names, with its memory.
pub fn machine(device: &str) -> Option<System> {
    let listed = chip_of(device)?;
    boxes::system(listed, &listed.memory, Some(listed.software()), 1).ok()
}

/// Validates every trace below a folder, or one file (with its host trace, where `host` names one). `on` names the machine of traces that do not.
///
/// # Errors
/// A folder that cannot be read, in words.
pub fn validate(place: &Path, host: Option<&Path>, on: Option<&str>) -> Result<TraceScores, String> {
    let mut scores = TraceScores::default();
    let mut folders = vec![place.to_owned()];
    if place.is_file() {
        one(place, host, on, &mut scores);
        folders.clear();
    }
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
        let mut paths: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
        paths.sort();
        // Host and device traces of a run belong together by rank; a folder of several runs has device traces alone.
        let paired = pairs(&folder).unwrap_or_default();
        for path in &paths {
            if path.is_dir() {
                folders.push(path.clone());
            } else if matches!(kind(path), Ok(FileKind::Kineto | FileKind::Linked)) {
                let host =
                    paired.values().find(|p| p.device.as_ref() == Some(path)).and_then(|p: &Pair| p.host.clone());
                one(path, host.as_deref(), on, &mut scores);
            }
        }
    }
    scores.rows.sort_by(|a, b| a.trace.cmp(&b.trace));
    scores.left_out.sort();
    Ok(scores)
}

fn one(path: &Path, host_path: Option<&Path>, on: Option<&str>, scores: &mut TraceScores) {
    let name = path.display().to_string();
    match read(path, host_path).and_then(|trace| of_linked(&name, &trace, on)) {
        Ok(Some(row)) => scores.rows.push(row),
        Ok(None) => {}
        Err(reason) => scores.left_out.push((name, reason)),
    }
}

fn read(path: &Path, host_path: Option<&Path>) -> Result<LinkedTrace, String> {
    if kind(path).map_err(|e| e.to_string())? == FileKind::Linked {
        return file::read(path).map_err(|e| e.to_string());
    }
    let device = kineto::read(path).map_err(|e| e.to_string())?;
    let host = host_path.map(host::read).transpose().map_err(|e| e.to_string())?;
    if let Some(host) = &host
        && let Ok((trace, report)) = link(Some(host), &device, &Steps::All)
        && report.operators_matched * 10 >= report.operators_total * 9
    {
        return Ok(trace);
    }
    link(None, &device, &Steps::All).map(|(trace, _)| trace).map_err(|e| e.to_string())
}

/// A trace of one machine against one of the same program on another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Twins {
    /// The chip that the trace was recorded on.
    pub from: String,
    /// The chip that its kernels are timed on.
    pub to: String,
    /// A step of the first trace, ms.
    pub from_step_ms: f64,
    /// A step of the second trace, ms.
    pub step_ms: f64,
    /// The step of the first with its kernels on the second's chip, ms.
    pub predicted_step_ms: f64,
    /// Predicted against recorded, %.
    pub step_error_pct: f64,
    /// Time of all kernels that compute in the second trace, ms.
    pub kernels_ms: f64,
    /// The same predicted from the first, ms.
    pub predicted_kernels_ms: f64,
    /// Predicted against recorded, %.
    pub kernels_error_pct: f64,
    /// Operators that both traces have and that are predicted, the longest of the second first.
    pub operators: Vec<OperatorRow>,
}

/// Predicts the step of `second` from the trace `first`: kernels whose call is known by what the second's chip takes for it, the others by the ratio
/// of the two bandwidths, host time as in the first.
///
/// # Errors
/// A trace that cannot be read or names no known machine, in words.
pub fn twins(first: &Path, second: &Path, hosts: [Option<&Path>; 2]) -> Result<Twins, String> {
    let load = |path: &Path, host: Option<&Path>| -> Result<_, String> {
        let trace = read(path, host).map_err(|e| format!("{}: {e}", path.display()))?;
        let device = trace
            .device_name
            .as_deref()
            .ok_or_else(|| format!("{}: the trace does not name its devices", path.display()))?;
        let listed = chip_of(device).ok_or_else(|| format!("no chip of the catalogue is called {device:?}"))?;
        let system = boxes::system(listed, &listed.memory, Some(listed.software()), 1)?;
        Ok((trace, system))
    };
    let ((a, from), (b, to)) = (load(first, hosts[0])?, load(second, hosts[1])?);
    let (there, step) = predict(&a, Target { system: &to, recorded_on: Some(&from), communication: false })?;
    let (here, _) = predict(&b, Target { system: &to, recorded_on: None, communication: false })?;
    let (before, after) = (recorded(&a), recorded(&b));
    let predicted: u64 = a
        .device_nodes()
        .filter_map(|at| Some((at, a.node(at)?)))
        .filter(|(_, n)| n.kind == NodeKind::Kernel && !n.is_communication())
        .map(|(at, n)| there.ns.get(&at).copied().unwrap_or(n.dur_ns))
        .fold(0, u64::saturating_add);
    let error = |now: f64, was: f64| if was > 0.0 { 100.0 * (now - was) / was } else { 0.0 };
    let mut operators: Vec<OperatorRow> = here
        .operators
        .iter()
        .filter_map(|(operator, own)| {
            let new = there.operators.get(operator)?;
            Some(OperatorRow {
                operator: operator.clone(),
                kernels: own.kernels,
                recorded_ms: own.recorded_ns as f64 / 1e6,
                predicted_ms: new.ns as f64 / 1e6,
            })
        })
        .collect();
    operators.sort_by(|a, b| b.recorded_ms.total_cmp(&a.recorded_ms));
    let (kernels, step_ns) = (after.compute_ns as f64, after.step_ns() as f64);
    Ok(Twins {
        from: from.chip.0.name.clone(),
        to: to.chip.0.name.clone(),
        from_step_ms: before.step_ns() as f64 / 1e6,
        step_ms: step_ns / 1e6,
        predicted_step_ms: step / 1e6,
        step_error_pct: error(step, step_ns),
        kernels_ms: kernels / 1e6,
        predicted_kernels_ms: predicted as f64 / 1e6,
        kernels_error_pct: error(predicted as f64, kernels),
        operators,
    })
}

/// For a person: step, kernels, and the ten longest operators.
pub fn twins_text(t: &Twins) -> String {
    let mut out = format!(
        "step: {:.3} ms on {}, {:.3} ms on {}, predicted {:.3} ms ({:+.1} %)\nkernels: {:.3} ms on {}, predicted {:.3} ms ({:+.1} %)\n",
        t.from_step_ms,
        t.from,
        t.step_ms,
        t.to,
        t.predicted_step_ms,
        t.step_error_pct,
        t.kernels_ms,
        t.to,
        t.predicted_kernels_ms,
        t.kernels_error_pct
    );
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["operator", "kernels", "recorded", "predicted", "error"]);
    for o in t.operators.iter().take(10) {
        table.add_row([
            o.operator.clone(),
            o.kernels.to_string(),
            format!("{:.3} ms", o.recorded_ms),
            format!("{:.3} ms", o.predicted_ms),
            format!("{:+.1} %", 100.0 * (o.predicted_ms / o.recorded_ms - 1.0)),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    if !t.operators.is_empty() {
        let _ = writeln!(out, "{table}");
    }
    out
}

/// The row of a linked trace; none where it holds no kernels.
///
/// # Errors
/// A machine that is not named or not known, a trace that cannot be replayed, in words.
pub fn of_linked(name: &str, trace: &LinkedTrace, on: Option<&str>) -> Result<Option<TraceRow>, String> {
    let before = recorded(trace);
    if before.compute_ns <= 0 {
        return Ok(None);
    }
    let device =
        on.or(trace.device_name.as_deref()).ok_or("the trace does not name its devices; name the chip with --on")?;
    let listed = chip_of(device).ok_or_else(|| format!("no chip of the catalogue is called {device:?}"))?;
    let system = boxes::system(listed, &listed.memory, Some(listed.software()), 1)?;
    let (retimed, step) = predict(trace, Target { system: &system, recorded_on: None, communication: false })?;
    let ms = |ns: f64| ns / 1e6;
    let (all, kept) = (before.compute_ns as f64, retimed.kept_ns as f64);
    let (was, now) =
        retimed.operators.values().fold((0.0, 0.0), |(a, b), o| (a + o.recorded_ns as f64, b + o.ns as f64));
    let error = |now: f64, was: f64| if was > 0.0 { 100.0 * (now - was) / was } else { 0.0 };
    let mut operators: Vec<OperatorRow> = retimed
        .operators
        .iter()
        .map(|(operator, o)| OperatorRow {
            operator: operator.clone(),
            kernels: o.kernels,
            recorded_ms: ms(o.recorded_ns as f64),
            predicted_ms: ms(o.ns as f64),
        })
        .collect();
    operators.sort_by(|a, b| b.recorded_ms.total_cmp(&a.recorded_ms));
    let step_ns = before.step_ns() as f64;
    Ok(Some(TraceRow {
        name: stem(Path::new(name)),
        trace: name.to_owned(),
        device: device.to_owned(),
        chip: listed.chip.0.name.clone(),
        kernels: retimed.compute.1,
        recorded_ms: ms(all),
        predicted_ms: ms(kept + now),
        predicted_pct: 100.0 * was / all,
        error_pct: error(kept + now, kept + was),
        predicted_error_pct: (was > 0.0).then(|| error(now, was)),
        step_ms: ms(step_ns),
        replayed_ms: ms(step),
        step_error_pct: error(step, step_ns),
        operators,
    }))
}

/// New durations, and the nanoseconds of a step with them.
fn predict(trace: &LinkedTrace, target: Target<'_>) -> Result<(Retimed, f64), String> {
    let described = trace.nodes.iter().any(|n| n.host().is_some());
    let host = described.then(|| unlink::host_trace(trace, Path::new("linked trace"))).transpose();
    let host = host.map_err(|e| e.to_string())?;
    let retimed = retime(trace, host.as_ref(), target)?;
    let timing = Timing::new(trace, Delays::Typical).map_err(|e| e.to_string())?;
    let replay = timing.replay(trace, |at, node| retimed.ns.get(&at).copied().unwrap_or(node.dur_ns));
    Ok((retimed, replay.figures.step_ns() as f64))
}

/// For a person: one row a trace, the means, the operators that are furthest off.
pub fn text(scores: &TraceScores) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "trace",
        "chip",
        "kernels",
        "recorded",
        "predicted",
        "error",
        "share",
        "error of it",
        "step",
        "replayed",
        "error",
    ]);
    for r in &scores.rows {
        table.add_row([
            r.name.clone(),
            r.chip.clone(),
            r.kernels.to_string(),
            format!("{:.3} ms", r.recorded_ms),
            format!("{:.3} ms", r.predicted_ms),
            format!("{:+.1} %", r.error_pct),
            format!("{:.0} %", r.predicted_pct),
            r.predicted_error_pct.map_or(String::new(), |e| format!("{e:+.1} %")),
            format!("{:.3} ms", r.step_ms),
            format!("{:.3} ms", r.replayed_ms),
            format!("{:+.2} %", r.step_error_pct),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut out = if scores.rows.is_empty() { String::new() } else { format!("{table}\n") };
    let worth = scores.rows.iter().filter(|r| r.predicted_pct >= 50.0).count();
    if let Some(mape) = scores.kernel_mape_pct() {
        let _ = writeln!(
            out,
            "kernel time: mean error {mape:.1} % over the {worth} traces of which half of the time or more is predicted"
        );
    }
    if let Some(mape) = scores.step_mape_pct() {
        let _ = writeln!(out, "step: mean error {mape:.2} % over {} traces", scores.rows.len());
    }
    for r in &scores.rows {
        let mut worst: Vec<&OperatorRow> = r.operators.iter().collect();
        worst.sort_by(|a, b| off(b).total_cmp(&off(a)));
        let words: Vec<String> = worst
            .iter()
            .take(3)
            .map(|o| format!("{} {:.3} ms for {:.3} ms", o.operator, o.predicted_ms, o.recorded_ms))
            .collect();
        if !words.is_empty() {
            let _ = writeln!(out, "furthest off in {}: {}", r.trace, words.join(", "));
        }
    }
    for (file, reason) in &scores.left_out {
        let _ = writeln!(out, "left out, {file}: {reason}");
    }
    out
}

fn off(row: &OperatorRow) -> f64 {
    (row.predicted_ms - row.recorded_ms).abs()
}

/// Everything as JSON.
pub fn json(scores: &TraceScores) -> String {
    let value = serde_json::json!({
        "kernel_mape_pct": scores.kernel_mape_pct(),
        "step_mape_pct": scores.step_mape_pct(),
        "rows": scores.rows,
        "left_out": scores.left_out,
    });
    format!("{value:#}")
}

/// One row a trace.
pub fn csv(scores: &TraceScores) -> String {
    let mut out = String::from(
        "trace,device,chip,kernels,recorded_ms,predicted_ms,predicted_pct,error_pct,predicted_error_pct,step_ms,replayed_ms,step_error_pct\n",
    );
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    for r in &scores.rows {
        let _ = writeln!(
            out,
            "{},{},{},{},{:.6},{:.6},{:.3},{:.3},{},{:.6},{:.6},{:.4}",
            quoted(&r.trace),
            quoted(&r.device),
            quoted(&r.chip),
            r.kernels,
            r.recorded_ms,
            r.predicted_ms,
            r.predicted_pct,
            r.error_pct,
            r.predicted_error_pct.map_or(String::new(), |e| format!("{e:.3}")),
            r.step_ms,
            r.replayed_ms,
            r.step_error_pct
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Text;

    #[test]
    fn devices_are_chips() {
        let chip = |device: &str| chip_of(device).map(|l| l.chip.0.name.as_str());
        assert_eq!(chip("NVIDIA A100-SXM4-80GB"), Some("A100"));
        assert_eq!(chip("Tesla V100-SXM2-32GB"), Some("V100"));
        assert_eq!(chip("NVIDIA GeForce RTX 2080 Ti"), Some("RTX 2080 Ti"));
        assert_eq!(chip("AMD Instinct MI300X VF"), Some("MI300X"));
        assert_eq!(chip("NVIDIA H100 80GB HBM3"), Some("H100"));
        assert_eq!(chip("Abacus"), None);
    }

    /// Two kernels of 100 us on a V100: a sum of 2 x 18 MB into 18 MB, which take 54 MB at 900 GB/s x 0.8 and a start of 1.5 us: 76.5 us; and one that
    /// no operator explains, which stays. The device follows the host at once, so the step loses what the kernel loses.
    fn trace() -> LinkedTrace {
        let text = r#"{"deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-16GB"}], "traceEvents": [
            {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 0, "dur": 20, "args": {"External id": 1,
             "Input Dims": [[4500000], [4500000], []], "Input type": ["float", "float", "Scalar"], "Concrete Inputs": ["", "", "1"]}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 5, "dur": 5, "args": {"correlation": 7, "External id": 1}},
            {"ph": "X", "cat": "cpu_op", "name": "mystery", "pid": 1, "tid": 1, "ts": 30, "dur": 20, "args": {"External id": 2}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 35, "dur": 5, "args": {"correlation": 8, "External id": 2}},
            {"ph": "X", "cat": "kernel", "name": "void vectorized_elementwise_kernel<4>", "pid": 0, "tid": 7, "ts": 10, "dur": 100,
             "args": {"correlation": 7, "stream": 7, "device": 0}},
            {"ph": "X", "cat": "kernel", "name": "mystery", "pid": 0, "tid": 7, "ts": 110, "dur": 100, "args": {"correlation": 8, "stream": 7, "device": 0}}]}"#;
        let device = kineto::read_from(text.as_bytes(), Path::new("t")).unwrap();
        link(None, &device, &Steps::All).unwrap().0
    }

    #[test]
    fn a_row_by_hand() {
        let row = of_linked("folder/name.x.json", &trace(), None).unwrap().unwrap();
        assert_eq!((row.name.as_str(), row.chip.as_str(), row.kernels), ("name", "V100", 2));
        assert!((row.recorded_ms - 0.2).abs() < 1e-12 && (row.predicted_ms - 0.1765).abs() < 1e-9, "{row:?}");
        assert!((row.predicted_pct - 50.0).abs() < 1e-9 && (row.error_pct + 11.75).abs() < 1e-6, "{row:?}");
        assert!((row.predicted_error_pct.unwrap() + 23.5).abs() < 1e-6, "{row:?}");
        assert!((row.step_ms - 0.21).abs() < 1e-9 && (row.replayed_ms - 0.1865).abs() < 1e-9, "{row:?}");
        assert_eq!(row.operators.len(), 1);
        let scores = TraceScores { rows: vec![row], left_out: vec![("f".into(), "why".into())] };
        assert!(
            text(&scores).contains("mean error 11.8 %") && text(&scores).contains("left out, f: why"),
            "{}",
            text(&scores)
        );
        assert_eq!(csv(&scores).lines().count(), 2);
        assert!(json(&scores).contains("\"kernel_mape_pct\": 11.75"));
    }

    #[test]
    fn traces_that_name_no_machine_are_told() {
        let unnamed = LinkedTrace { device_name: None, ..trace() };
        assert!(of_linked("t", &unnamed, None).unwrap_err().contains("--on"));
        assert_eq!(of_linked("t", &unnamed, Some("H100")).unwrap().unwrap().chip, "H100");
        let odd = LinkedTrace { device_name: Some(Text::from("Abacus")), ..trace() };
        assert!(of_linked("t", &odd, None).unwrap_err().contains("Abacus"));
        let idle = LinkedTrace { nodes: Vec::new(), edges: Vec::new(), ..trace() };
        assert_eq!(of_linked("t", &idle, None), Ok(None));
    }
}
