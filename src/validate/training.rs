//! Time of measured training runs, by the model of executions.

use super::machines::{self, Known};
use super::point::Point;
use super::predict::{NotPredicted, Prediction};
use crate::execution::predict::predict_any;

/// Seconds of a training step. The runs are known to have run: their memory is not asked.
///
/// # Errors
/// [`NotPredicted`]: sizes, degrees or a machine that are not stated or not known.
pub fn step(list: &[Known], point: &Point) -> Result<Prediction, NotPredicted> {
    let model = point.model.as_ref().ok_or_else(|| NotPredicted::because("the model's sizes are not stated"))?;
    let execution = point.execution.as_ref().ok_or_else(|| NotPredicted::because("the execution is not stated"))?;
    let (machine, execution) = machines::machine(list, point, execution)?;
    let prediction = predict_any(&machine, model, &execution).map_err(NotPredicted)?;
    Ok(Prediction::Seconds(prediction.time.total))
}
