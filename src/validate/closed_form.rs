//! Memory of training from closed forms: what papers print as such, and whether a run fits.

use super::accelerators;
use super::metric::Metric;
use super::point::Point;
use super::predict::{NotPredicted, Prediction};
use crate::execution::Execution;
use crate::execution::passes::Order;
use crate::execution::{ActivationPolicy, AttentionKernel, StateBytes};
use crate::workload::language::LanguageModel;

/// GiB in bytes.
const GI: f64 = 1024.0 * 1024.0 * 1024.0;

/// Bytes of the activations of the layers of the first stage, which holds most.
///
/// # Errors
/// A batch that the execution does not divide.
pub fn activations(model: &LanguageModel, execution: &Execution, attention: AttentionKernel) -> Result<f64, String> {
    let microbatches = execution.microbatches(model.global_batch)?;
    let policy = ActivationPolicy::of(execution, attention);
    let bytes =
        |experts: bool| model.layer_activation_bytes(experts, model.seq, execution.micro_batch, &policy).total();
    let layers = model.dense_layers() as f64 * bytes(false) + model.expert_layers() as f64 * bytes(true);
    Ok(layers / execution.pp as f64 * Order::of(execution).in_flight(0, microbatches as f64))
}

/// Bytes of weights, gradients and optimiser of the layers of one stage: a stage between first and last.
pub fn state_of_layers(model: &LanguageModel, execution: &Execution) -> f64 {
    let parameters = model.parameters().layers() / (execution.tp as f64 * execution.pp as f64);
    parameters * StateBytes::training(&model.types).divided(execution.zero, execution.dp).total()
}

/// Bytes of weights, gradients and optimiser of what the first or last stage has besides; of both where they are one stage.
pub fn state_of_ends(model: &LanguageModel, execution: &Execution) -> f64 {
    let p = model.parameters();
    let first = (p.embedding + p.positions) / execution.tp as f64;
    // A tied head on another stage has a copy of its own.
    let last = if execution.pp == 1 { p.head } else { p.head_matrices } / execution.tp as f64;
    let parameters = if execution.pp == 1 { first + last } else { first.max(last) };
    parameters * StateBytes::training(&model.types).divided(execution.zero, execution.dp).total()
}

/// Predicts the metrics of memory.
///
/// Papers of the time (Korthikanti et al. 2022, whose tables the class holds) count layers alone and materialise the scores.
///
/// # Errors
/// [`NotPredicted`]: another metric, sizes or degrees that are not stated.
pub fn memory(point: &Point) -> Result<Prediction, NotPredicted> {
    let model = point.model.as_ref().ok_or_else(|| NotPredicted::because("the model's sizes are not stated"))?;
    let execution = point.execution.as_ref().ok_or_else(|| NotPredicted::because("the execution is not stated"))?;
    let kept = || activations(model, execution, AttentionKernel::Materialised).map_err(NotPredicted);
    match point.row.metric {
        Metric::ActivationMemory => Ok(Prediction::Bytes(kept()?)),
        Metric::StateMemory => Ok(Prediction::Bytes(state_of_layers(model, execution))),
        Metric::Fits => {
            let gibibytes = capacity_gib(&point.row.accelerator)
                .ok_or_else(|| NotPredicted::because(format!("no memory known of {:?}", point.row.accelerator)))?;
            let ends = state_of_ends(model, execution);
            Ok(Prediction::Fits(kept()? + state_of_layers(model, execution) + ends <= gibibytes * GI))
        }
        _ => Err(NotPredicted::because("not a metric of memory")),
    }
}

/// Gibibytes that a chip's name states: `A100-80GB`, as makers count them.
fn capacity_gib(name: &str) -> Option<f64> {
    accelerators::known(name)?;
    super::notes::number_before(name, "GB").filter(|g| *g > 0).map(|g| g as f64)
}
