//! What tells predicting from fitting: how far off a look-up in the other rows would be, and how far the model carries from source to source.
//!
//! **Nearest neighbour.** A row gets the figure of the nearest other row of its class and metric: by the logarithms of what both state (layers, hidden
//! size, tokens, batch, microbatch, degrees, chips, sizes of a product), with [`OTHER_CHIP`] for another chip and [`UNSTATED`] for each size that one
//! of them lacks. Rows that state the same throughout are one setting, and no neighbours. Where both rows have a count of FLOP, seconds are scaled by FLOP over the
//! chips' peak, so that the neighbour's share of the peak is taken; else the figure itself is.
//!
//! **Leave one source out.** One factor of time is fitted (the median of measured over predicted) to the rows of all other sources of the class, and the
//! rows of the source left out are predicted with it: what a calibration on the others would make of it.

use super::metric::{self, Metric, error_pct};
use super::point::{Point, Task};
use super::score::Outcome;

/// Distance that another chip adds.
const OTHER_CHIP: f64 = 3.0;
/// Distance of a size that one row states and the other does not.
const UNSTATED: f64 = 1.0;

/// The sizes that a row states.
fn sizes(point: &Point) -> [Option<f64>; 12] {
    let row = &point.row;
    let of = |n: Option<u64>| n.map(|n| n as f64);
    let product = match &point.task {
        Task::Matmul { m, n, k, .. } => [*m, *n, *k].map(|n| Some(n as f64)),
        Task::Attention(core) => [Some(core.heads as f64), Some(core.seq as f64), Some(core.key_width as f64)],
        Task::Inference { prompt, generated, .. } => {
            [Some((*prompt).max(1) as f64), Some((*generated).max(1) as f64), None]
        }
        Task::AllReduce { bytes } | Task::Gather { bytes } | Task::AllToAll { bytes } => [Some(*bytes), None, None],
        _ => [None; 3],
    };
    let [a, b, c] = product;
    let (batch, micro) = (of(row.global_batch), of(row.micro_batch));
    let (tp, pp, chips) = (of(row.tp), of(row.pp), of(row.chips));
    [of(row.layers), of(row.hidden), of(row.seq), batch, micro, tp, pp, chips, a, b, c, row.params_b]
}

fn distance(one: &Point, other: &Point) -> f64 {
    let between = |(a, b): (Option<f64>, Option<f64>)| match (a, b) {
        (Some(a), Some(b)) => (a / b).ln().abs(),
        (None, None) => 0.0,
        _ => UNSTATED,
    };
    let chip = if one.row.accelerator == other.row.accelerator { 0.0 } else { OTHER_CHIP };
    chip + sizes(one).into_iter().zip(sizes(other)).map(between).sum::<f64>()
}

/// Seconds at the peak for what was timed, where its FLOP are counted.
fn at_peak(point: &Point) -> Option<f64> {
    let peak = point.published_peak()?;
    Some(metric::work(point).ok()? / peak / point.row.chips.unwrap_or(1) as f64)
}

/// Error in per cent of the nearest other row's figure, for each of `rows`.
fn neighbour(row: &Outcome, rows: &[&Outcome]) -> Option<f64> {
    let point = &row.point;
    let others = rows.iter().filter(|o| o.point.row.metric == point.row.metric);
    let apart = others.map(|o| (distance(point, &o.point), &o.point)).filter(|(d, _)| *d > 0.0);
    let (_, other) = apart.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let figure = |p: &Point| p.row.value * p.row.unit.factor;
    let scale = match (at_peak(point), at_peak(other), &point.row.metric) {
        // Shares of the peak need no scaling, and memory none by FLOP.
        (_, _, m) if m.is_share() || m.is_memory() => 1.0,
        (Some(own), Some(its), _) => own / its,
        _ => 1.0,
    };
    // A rate falls where seconds rise; of sequences or tokens a second the work is in the scale, of FLOP a second it is in the figure too.
    let value = match &point.row.metric {
        Metric::FlopRate | Metric::ModelFlopRate => figure(other),
        m if m.more_is_faster() => {
            let batch = |p: &Point| p.row.global_batch.unwrap_or(1) as f64;
            let work = if matches!(point.task, Task::Training) { batch(point) / batch(other) } else { 1.0 };
            figure(other) * work / scale
        }
        _ => figure(other) * scale,
    };
    Some(error_pct(&point.row.metric, figure(point), value)).filter(|e| e.is_finite())
}

/// The mean absolute errors of a class in per cent: of the look-up, and of the model with one factor fitted to the other sources; `None` where there is
/// no other row, or no other source.
pub(super) fn errors(rows: &[&Outcome]) -> (Option<f64>, Option<f64>) {
    let mean = |list: Vec<f64>| (!list.is_empty()).then(|| list.iter().sum::<f64>() / list.len() as f64);
    let predicted: Vec<&Outcome> = rows.iter().copied().filter(|o| o.predicted.is_ok()).collect();
    let looked_up = predicted.iter().filter_map(|row| neighbour(row, &predicted)).map(f64::abs).collect();
    // Predicted over measured time (or size) of each row.
    let ratio = |o: &Outcome| o.predicted.as_ref().ok().map(|(_, error)| 1.0 + error / 100.0).filter(|r| *r > 0.0);
    let mut left_out = Vec::new();
    for row in &predicted {
        let mut others: Vec<f64> =
            predicted.iter().filter(|o| source(o) != source(row)).filter_map(|o| ratio(o)).collect();
        if let (Some(own), false) = (ratio(row), others.is_empty()) {
            others.sort_by(f64::total_cmp);
            left_out.push(100.0 * (own / others[others.len() / 2] - 1.0).abs());
        }
    }
    (mean(looked_up), mean(left_out))
}

/// Where a row comes from, without the place in it: the paper's number, or the repository.
fn source(row: &Outcome) -> String {
    let text = row.point.row.source.trim_start_matches("https://").trim_start_matches("arXiv ");
    let parts: Vec<&str> = text.split(['/', ',', ' ', ';']).filter(|part| !part.is_empty()).collect();
    let most = if text.contains("github.com") { 3 } else { 1 };
    parts.into_iter().take(most).collect::<Vec<_>>().join("/")
}
