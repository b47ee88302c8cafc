//! Points that are language models on chips that run kernel by kernel: all their executions are searched.

use super::grid::Point;
use crate::execution::{Found, Machine, Pins, search};
use crate::mapping::Infeasible;
use crate::mapping::request::Objective;
use crate::report::csv::Outcome;
use crate::report::executed::Executed;
use crate::spec::{Node, Problems, Reader, Value};
use crate::validate::class::Class;
use crate::validate::suites;
use crate::workload::language::{LanguageModel, ModelPass};
use crate::workload::{Workload, WorkloadSpec};

/// The language model that a workload's tree states, if it is one that is trained; what is wrong with it is told where the graph is built.
pub(super) fn language(node: &Node) -> Option<Box<LanguageModel>> {
    let kind = node.get("kind").map(|n| &n.value);
    if !matches!(kind, Some(Value::Scalar { text, .. }) if text == "language_model") {
        return None;
    }
    match Reader::read::<WorkloadSpec>(node) {
        Ok(WorkloadSpec::Language(model)) if model.pass == ModelPass::Training => Some(model),
        _ => None,
    }
}

/// A graph with the model's name, batch and tokens: what there is no graph of (experts, gates, shared heads) is left out of it, as nothing is
/// mapped.
///
/// # Errors
/// [`Problems`] of the graph.
pub(super) fn stand_in(model: &LanguageModel, node: &Node) -> Result<Workload, Problems> {
    let plain = LanguageModel {
        experts: None,
        latent_attention: None,
        window: None,
        gated: false,
        kv_heads: None,
        head_dim: Some(model.head_dim()),
        ..model.clone()
    };
    plain.build(node).map_err(Problems)
}

/// Searches the executions of a point; `None` where the point is none of these, or its system is over the budget.
///
/// # Errors
/// A sentence where solve settings, model and machine do not suit each other.
pub(super) fn solve(point: &Point) -> Result<Option<Outcome>, String> {
    let Some(model) = &point.language else { return Ok(None) };
    if matches!(point.fitted, Some(Err(_))) {
        return Ok(None);
    }
    if point.solve.objective != Objective::Time || !point.solve.blind_to.is_empty() {
        return Err("executions of language models are searched for the objective time, and see everything".into());
    }
    let machine = Machine::new(&point.system)?;
    let pins = Pins { tp: point.solve.tp, pp: point.solve.pp, dp: point.solve.dp, ..Pins::default() };
    let found = search(&machine, model, &pins)?;
    Ok(Some(match found.best.clone() {
        Some(prediction) => {
            let error_band_pct = error_band(&point.system.chip.0.name, machine.chips);
            Outcome::Executed(Box::new(Executed { prediction, found, error_band_pct }))
        }
        None => Outcome::Infeasible(short(&machine, &found)),
    }))
}

fn short(machine: &Machine, found: &Found) -> Infeasible {
    let remedy = found.reason(machine);
    match &found.least {
        Some((_, memory)) => Infeasible {
            resource: "dram".into(),
            needed: memory.device.total(),
            available: memory.capacity.unwrap_or(f64::INFINITY),
            unit: "bytes".into(),
            remedy,
        },
        None => Infeasible {
            resource: "degrees".into(),
            needed: machine.chips as f64,
            available: 0.0,
            unit: "chips".into(),
            remedy,
        },
    }
}

/// The written bound of the class of measured runs nearest to a point: vTrain's on A100, within a node or on more; else other published runs.
fn error_band(chip: &str, chips: u64) -> Option<f64> {
    let class = match (chip, chips) {
        ("A100", ..=8) => Class::VtrainSingleNode,
        ("A100", _) => Class::VtrainMultiNode,
        _ => Class::TrainingPublished,
    };
    suites::bounds().ok()?.of(class).map(|bound| bound.mape_pct)
}
