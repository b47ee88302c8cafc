//! Time and memory of measured training runs, by the model of executions.

use super::machines::{self, Known};
use super::metric::Metric;
use super::point::Point;
use super::predict::{NotPredicted, Prediction};
use crate::execution::predict::predict_any;
use crate::execution::search::{Pins, search};
use crate::units::Seconds;
use crate::workload::language::DataType;

/// Seconds of a training step, or the memory of its fullest stage. A run whose execution is stated is known to have run: its memory is not asked. Where
/// the degrees of parallelism are not stated, the fastest execution that fits is taken: published runs are tuned ones.
///
/// # Errors
/// [`NotPredicted`]: sizes or a machine that are not stated or not known; nothing that fits.
pub fn step(list: &[Known], point: &Point) -> Result<Prediction, NotPredicted> {
    let model = point.model.as_ref().ok_or_else(|| NotPredicted::because("the model's sizes are not stated"))?;
    let (mut machine, known) = machines::machine(list, point)?;
    let mut model = machines::in_types_of(&machine, model);
    if point.trains_adapters() {
        // Frozen weights have neither gradients nor an optimiser worth counting.
        let t = &mut model.types;
        (t.gradients, t.master, t.moments) = (DataType::Fp8, t.weights, DataType::Fp8);
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
                    execution.overlap_dp = machine.stack.overlap_dp && !point.notes.dp_not_overlapped;
                    execution.overlap_tp = machine.stack.overlap_tp && execution.tp > 1;
                    execution
                }
            };
            predict_any(&machine, model, &execution).map_err(NotPredicted)?
        }
        None => {
            let pins = match known {
                Some(known) => known.pins(point),
                None => Pins { chips: point.row.chips, micro_batch: point.row.micro_batch, ..machines::stated(point) },
            };
            let found = search(&machine, model, &pins).map_err(NotPredicted)?;
            let reason = found.reason(&machine);
            found.best.ok_or(NotPredicted(reason))?
        }
    };
    Ok(match point.row.metric {
        Metric::PeakMemory => Prediction::Bytes(prediction.memory.device.total()),
        // No products of weights' gradients: two thirds of a step's products.
        _ if point.trains_adapters() => Prediction::Seconds(prediction.time.total * 2.0 / 3.0),
        _ => Prediction::Seconds(prediction.time.total),
    })
}
