//! Time and memory of measured training runs, by the model of executions.

use super::graphs;
use super::machines::{self, Known};
use super::metric::{self, Metric};
use super::point::Point;
use super::predict::{NotPredicted, Prediction};
use super::sources::Trained;
use crate::execution::predict::{Prediction as Predicted, predict_any};
use crate::execution::search::{Pins, search};
use crate::execution::{Execution, Machine};
use crate::units::Seconds;
use crate::workload::language::LanguageModel;

/// Rank of adapters whose rank is not stated: MLPerf's, and NeMo's default is twice that; what they cost hardly depends on it.
const ADAPTER_RANK: u64 = 16;

/// Seconds of a training step, or the memory of its fullest stage. A run whose execution is stated is known to have run: its memory is not asked. Where
/// the degrees of parallelism are not stated, the fastest execution that fits is taken: published runs are tuned ones.
///
/// # Errors
/// [`NotPredicted`]: sizes or a machine that are not stated or not known; nothing that fits.
pub fn step(list: &[Known], point: &Point) -> Result<Prediction, NotPredicted> {
    let computed = computed(list, point)?;
    let prepared = match (point.source.and_then(|s| s.prepared_per_s), point.row.global_batch, point.row.chips) {
        (Some(rate), Some(batch), Some(chips)) if rate > 0.0 => batch as f64 / chips.max(1) as f64 / rate,
        _ => 0.0,
    };
    // Samples are prepared beside the step before.
    Ok(match computed {
        Prediction::Seconds(seconds) => Prediction::Seconds(seconds.max(prepared)),
        other => other,
    })
}

/// What chips and host take, whatever they are fed with.
fn computed(list: &[Known], point: &Point) -> Result<Prediction, NotPredicted> {
    if let Some(graph) = point.graph {
        return graphs::step(list, point, graph);
    }
    let model = point.model.as_ref().ok_or_else(|| NotPredicted::because("the model's sizes are not stated"))?;
    let (mut machine, known) = machines::machine(list, point)?;
    let mut model = machines::in_types_of(&machine, model);
    match point.trained() {
        Trained::All => {}
        Trained::Adapters => model.adapters = Some(ADAPTER_RANK),
        Trained::Head => model.head_alone = true,
    }
    let model = &model;
    let host = machine.stack.host_iteration.0;
    match point.row.metric {
        Metric::HostTime if host > 0.0 => return Ok(Prediction::Seconds(host)),
        Metric::HostTime => return Err(NotPredicted::because("the software's stack states no time of the host")),
        Metric::DeviceTime => machine.stack.host_iteration = Seconds(0.0),
        _ => {}
    }
    let prediction = match &point.execution {
        Some(stated) => {
            let execution = match known {
                Some(known) => known.completes(point, stated),
                None => {
                    let mut execution = stated.clone();
                    let (dp, tp) = point.source.map_or((true, true), |s| (s.overlap_dp, s.overlap_tp));
                    execution.overlap_dp = machine.stack.overlap_dp && dp && !point.notes.dp_not_overlapped;
                    let tp = tp || point.notes.overlap_tp;
                    execution.overlap_tp = machine.stack.overlap_tp && tp && execution.tp > 1;
                    execution
                }
            };
            let execution = in_memory(&machine, model, point, execution);
            predict_any(&machine, model, &execution).map_err(NotPredicted)?
        }
        None => {
            let pins = match known {
                Some(known) => known.pins(point),
                None => Pins { chips: point.row.chips, micro_batch: point.row.micro_batch, ..machines::stated(point) },
            };
            let most = point.source.and_then(|source| source.most_tp).filter(|_| pins.tp.is_none());
            let groups: Vec<Option<u64>> = match most {
                Some(most) => (1..=most).filter(|tp| model.heads.is_multiple_of(*tp)).map(Some).collect(),
                None => vec![pins.tp],
            };
            let mut reason = String::new();
            let mut best: Option<Predicted> = None;
            for tp in groups {
                let found = match search(&machine, model, &Pins { tp, ..pins.clone() }) {
                    Ok(found) => found,
                    Err(why) => {
                        reason = why;
                        continue;
                    }
                };
                reason = found.reason(&machine);
                best = best.into_iter().chain(found.best).min_by(|a, b| a.time.total.total_cmp(&b.time.total));
            }
            best.ok_or(NotPredicted(reason))?
        }
    };
    if point.row.metric != Metric::PeakMemory {
        possible(point, prediction.time.total, prediction.model_flop_utilization)?;
    }
    Ok(match point.row.metric {
        Metric::PeakMemory => Prediction::Bytes(prediction.memory.device.total()),
        _ => Prediction::Seconds(prediction.time.total),
    })
}

/// An execution whose microbatches are not stated with the largest that fits: they divide the samples of a replica.
fn in_memory(machine: &Machine, model: &LanguageModel, point: &Point, execution: Execution) -> Execution {
    let open = point.row.micro_batch.is_none()
        && point.notes.accumulation.is_none()
        && execution.pp == 1
        && !point.source.is_some_and(|source| source.micro_batch_of_chip);
    let samples = execution.micro_batch;
    let divisors = (1..=samples).rev().filter(|micro| samples.is_multiple_of(*micro));
    let mut smaller = divisors.map(|micro_batch| Execution { micro_batch, ..execution.clone() });
    let fits = |e: &Execution| predict_any(machine, model, e).is_ok_and(|p| p.memory.fits());
    match open {
        true => smaller.find(fits).unwrap_or(Execution { micro_batch: 1, ..execution.clone() }),
        false => execution,
    }
}

/// Whether what a row states could have run: the share of the peak that it needs, from the share that a step of `seconds` has.
///
/// # Errors
/// [`NotPredicted`]: more than all of it.
fn possible(point: &Point, seconds: f64, share: f64) -> Result<(), NotPredicted> {
    let Ok(predicted) = metric::express(point, &Prediction::Seconds(seconds)) else { return Ok(()) };
    let slower = 1.0 + metric::error_pct(&point.row.metric, point.row.value, predicted) / 100.0;
    let needs = share * point.share_of_products() * slower;
    match needs > 1.0 {
        true => Err(NotPredicted(format!(
            "what it states needs {needs:.1} times the peak of its chips: samples of fewer tokens, or more chips, than it says"
        ))),
        false => Ok(()),
    }
}
