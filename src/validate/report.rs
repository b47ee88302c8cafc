//! Scores as text, JSON, CSV and figures.

use super::accelerators;
use super::metric::Metric;
use super::score::{Outcome, Scores};
use crate::report::plot::{Agreement, AgreementPoint, PlotError};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Four significant digits.
fn short(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (3 - value.abs().log10().floor() as i32).clamp(0, 6) } as usize;
    format!("{value:.digits$}")
}

/// Six significant digits of a number for JSON, so that equal runs give equal bytes on every machine.
fn number(value: f64) -> Json {
    format!("{value:.6e}").parse::<f64>().ok().map_or(Json::Null, |v| json!(v))
}

/// Tables of classes and rows for people.
pub fn text(scores: &Scores) -> String {
    let mut out = String::new();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["point", "class", "measured", "predicted", "unit", "error"]);
    let mut missing: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for outcome in &scores.outcomes {
        let row = &outcome.point.row;
        match &outcome.predicted {
            Ok((predicted, error)) => {
                table.add_row([
                    row.id.clone(),
                    outcome.point.class.to_string(),
                    short(row.value),
                    short(*predicted),
                    row.unit.to_string(),
                    format!("{error:+.1} %"),
                ]);
            }
            Err(reason) => missing.entry(reason.to_string()).or_default().push(&row.id),
        }
    }
    right(&mut table, &[2, 3, 5]);
    if table.row_count() > 0 {
        let _ = writeln!(out, "{table}\n");
    }
    for (reason, ids) in &missing {
        let _ = writeln!(out, "not predicted, {reason}: {} ({})", ids.len(), abridged(ids));
    }
    // Many rows have the same fault: each is told once, with the places.
    let mut faults: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in &scores.refused {
        row.reasons.iter().for_each(|reason| faults.entry(reason).or_default().push(&row.at));
    }
    for (fault, places) in &faults {
        let _ = writeln!(out, "not read, {fault}: {} ({})", places.len(), abridged(places));
    }
    if !missing.is_empty() || !faults.is_empty() {
        out.push('\n');
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "class",
        "points",
        "predicted",
        "mean",
        "median",
        "worst",
        "signed",
        "look-up",
        "source left out",
        "bound",
        "",
    ]);
    for class in &scores.classes {
        let figure = |text: String| if class.n > 0 { text } else { "-".into() };
        let of_others = |error: Option<f64>| error.map_or("-".into(), |e| format!("{e:.2} %"));
        table.add_row([
            class.class.to_string(),
            class.points.to_string(),
            class.n.to_string(),
            figure(format!("{:.2} %", class.mape_pct)),
            figure(format!("{:.2} %", class.median_pct)),
            figure(format!("{:+.2} % ({})", class.worst_pct, class.worst)),
            figure(format!("{:+.2} %", class.bias_pct)),
            of_others(class.neighbour_pct),
            of_others(class.left_out_pct),
            class.bound.map_or("-".into(), |(mape, bias)| format!("{mape} %, signed {bias:.1} %")),
            match () {
                () if class.n == 0 => "nothing predicted",
                () if class.bound.is_none() => "",
                () if class.violations().is_empty() => "within",
                () => "WORSE",
            }
            .to_string(),
        ]);
    }
    right(&mut table, &[1, 2, 3, 4, 6, 7, 8]);
    let _ = writeln!(out, "{table}");
    if !scores.refused.is_empty() {
        let all = scores.outcomes.len() + scores.refused.len();
        let _ = writeln!(out, "{} of {all} rows cannot be read and count in no class", scores.refused.len());
    }
    out
}

/// Sets columns of figures flush right.
fn right(table: &mut Table, columns: &[usize]) {
    for i in columns {
        if let Some(column) = table.column_mut(*i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// At most six names.
fn abridged(ids: &[&str]) -> String {
    let shown = ids.iter().take(6).copied().collect::<Vec<_>>().join(", ");
    if ids.len() > 6 { format!("{shown}, ...") } else { shown }
}

/// The object that other programs read: `classes`, `rows`, and rows that are `refused`.
pub fn json(scores: &Scores) -> Json {
    let classes: Vec<Json> = scores
        .classes
        .iter()
        .map(|c| {
            let figure = |value: f64| if c.n > 0 { number(value) } else { Json::Null };
            json!({
                "name": c.class.word(),
                "n": c.n,
                "mape_pct": figure(c.mape_pct),
                "median_pct": figure(c.median_pct),
                "worst_pct": figure(c.worst_pct),
                "bias_pct": figure(c.bias_pct),
                "neighbour_pct": c.neighbour_pct.map(number),
                "left_out_pct": c.left_out_pct.map(number),
                "points": c.points,
                "worst": c.worst,
                "bound_mape_pct": c.bound.map(|b| number(b.0)),
                "bound_bias_pct": c.bound.map(|b| number(b.1)),
                "within": if c.n > 0 && c.bound.is_some() { json!(c.violations().is_empty()) } else { Json::Null },
            })
        })
        .collect();
    let rows: Vec<Json> = scores.outcomes.iter().map(row).collect();
    let refused: Vec<Json> =
        scores.refused.iter().map(|r| json!({ "at": r.at, "id": r.id, "reasons": r.reasons })).collect();
    json!({ "classes": classes, "rows": rows, "refused": refused })
}

/// The chip of a row by our name, or by the row's where it is none of ours.
fn chip(outcome: &Outcome) -> &str {
    let named = outcome.point.row.accelerator.as_str();
    accelerators::known(named).map_or(named, |listed| listed.chip.0.name.as_str())
}

/// Errors by chip and class for people.
pub fn by_chip(scores: &Scores) -> String {
    let mut groups: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for outcome in &scores.outcomes {
        if let Ok((_, error)) = &outcome.predicted {
            groups.entry((chip(outcome), outcome.point.class.word())).or_default().push(*error);
        }
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["chip", "class", "predicted", "mean", "signed", "worst"]);
    for ((chip, class), errors) in groups {
        let n = errors.len() as f64;
        let worst = errors.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(0.0);
        table.add_row([
            chip.to_string(),
            class.to_string(),
            errors.len().to_string(),
            format!("{:.1} %", errors.iter().map(|e| e.abs()).sum::<f64>() / n),
            format!("{:+.1} %", errors.iter().sum::<f64>() / n),
            format!("{worst:+.1} %"),
        ]);
    }
    right(&mut table, &[2, 3, 4, 5]);
    format!("{table}\n")
}

fn row(outcome: &Outcome) -> Json {
    let row = &outcome.point.row;
    let predicted = outcome.predicted.as_ref().ok();
    json!({
        "id": row.id,
        "measured": row.value,
        "predicted": predicted.map(|(value, _)| number(*value)),
        "error_pct": predicted.map(|(_, error)| number(*error)),
        "class": outcome.point.class.word(),
        "chip": chip(outcome),
        "unit": row.unit.word,
        "status": if predicted.is_some() { "predicted" } else { "not predicted" },
        "reason": outcome.predicted.as_ref().err().map(ToString::to_string),
        "assumed": outcome.point.assumed,
        "software": outcome.software,
        "source": row.source,
    })
}

/// The rows as CSV.
///
/// # Errors
/// What the CSV writer says.
pub fn csv(scores: &Scores) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "id",
        "class",
        "measured",
        "predicted",
        "unit",
        "error_pct",
        "reason",
        "assumed",
        "software",
        "source",
    ])?;
    for outcome in &scores.outcomes {
        let row = &outcome.point.row;
        let (predicted, error, reason) = match &outcome.predicted {
            Ok((predicted, error)) => (format!("{predicted:.6e}"), format!("{error:.4}"), String::new()),
            Err(reason) => (String::new(), String::new(), reason.to_string()),
        };
        let assumed = outcome.point.assumed.join("; ");
        let measured = row.value.to_string();
        let class = outcome.point.class.word();
        let software = outcome.software.as_deref().unwrap_or_default();
        let fields =
            [&row.id, class, &measured, &predicted, row.unit.word, &error, &reason, &assumed, software, &row.source];
        writer.write_record(fields)?;
    }
    let bytes = writer.into_inner().map_err(|e| csv::Error::from(e.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Kinds of figures: one for each quantity, since an axis has one unit.
fn quantity(metric: &Metric) -> Option<(&'static str, &'static str, f64)> {
    Some(match metric {
        Metric::Time
        | Metric::KernelTime(_)
        | Metric::FirstToken
        | Metric::TokenTime
        | Metric::DeviceTime
        | Metric::HostTime
        | Metric::RunTime => ("time", "time (s)", 1.0),
        Metric::FlopRate | Metric::ModelFlopRate => ("flop-rate", "TFLOP/s of a chip", 1e12),
        Metric::HplRate => ("hpl", "HPL (PFLOP/s)", 1e15),
        Metric::Mfu | Metric::Hfu | Metric::FractionOfPeak | Metric::LeastUtilization => {
            ("share", "share of the peak (%)", 0.01)
        }
        Metric::SequenceRate
        | Metric::TokenRate
        | Metric::ChipTokenRate
        | Metric::OutputRate
        | Metric::OutputChipRate
        | Metric::UserTokenRate
        | Metric::SampleRate => ("rate", "tokens or samples a second", 1.0),
        Metric::ActivationMemory | Metric::StateMemory | Metric::PeakMemory => {
            ("memory", "memory of a chip (GiB)", 1024.0 * 1024.0 * 1024.0)
        }
        Metric::AllReduceBus | Metric::OperandBandwidth => ("bus", "bus bandwidth (GB/s)", 1e9),
        Metric::Fits | Metric::Unmodelled(_) => return None,
    })
}

/// Draws predicted over measured, a figure for each quantity that has predicted points, into `folder`.
///
/// # Errors
/// [`PlotError`].
pub fn draw(scores: &Scores, folder: &Path) -> Result<Vec<PathBuf>, PlotError> {
    let mut charts: BTreeMap<&str, Agreement> = BTreeMap::new();
    for outcome in &scores.outcomes {
        let row = &outcome.point.row;
        let (Ok((predicted, _)), Some((name, label, unit))) = (&outcome.predicted, quantity(&row.metric)) else {
            continue;
        };
        let to = row.unit.factor / unit;
        charts.entry(name).or_insert_with(|| Agreement { quantity: label.into(), points: Vec::new() }).points.push(
            AgreementPoint {
                group: outcome.point.class.word().into(),
                measured: row.value * to,
                predicted: predicted * to,
            },
        );
    }
    let mut files = Vec::new();
    for (name, chart) in charts {
        files.extend(chart.draw(&folder.join(format!("validation-{name}")))?);
    }
    Ok(files)
}
