//! Time of measured training runs, by the model of executions.

use super::machines::{self, Known};
use super::point::Point;
use super::predict::{NotPredicted, Prediction};
use crate::execution::predict::predict_any;
use crate::execution::search::search;

/// Seconds of a training step. A run whose execution is stated is known to have run: its memory is not asked. Where the degrees of
/// parallelism are not stated, the fastest execution that fits is taken: published runs are tuned ones.
///
/// # Errors
/// [`NotPredicted`]: sizes or a machine that are not stated or not known; nothing that fits.
pub fn step(list: &[Known], point: &Point) -> Result<Prediction, NotPredicted> {
    let model = point.model.as_ref().ok_or_else(|| NotPredicted::because("the model's sizes are not stated"))?;
    let (machine, known) = machines::machine(list, point)?;
    let prediction = match &point.execution {
        Some(stated) => predict_any(&machine, model, &known.completes(point, stated)).map_err(NotPredicted)?,
        None => {
            let found = search(&machine, model, &known.pins(point)).map_err(NotPredicted)?;
            let reason = found.reason(&machine);
            found.best.ok_or(NotPredicted(reason))?
        }
    };
    Ok(Prediction::Seconds(prediction.time.total))
}
