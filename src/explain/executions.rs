//! What more of each resource brings an execution of a language model: the best execution of the changed system, searched as that of the system as it is.

use super::{Gain, Resource};
use crate::deadline::Deadline;
use crate::execution::{Execution, Found, Pins};
use crate::mapping::executions::Executions;
use crate::mapping::solver::Limits;
use crate::progress::Steps;
use crate::system::System;
use crate::workload::language::LanguageModel;

/// Searches the executions of a model with `factor` times as much of each resource of a system, on which the best is `found`. The searches share what is left until a deadline.
///
/// # Errors
/// A sentence of a search.
pub fn gains(
    (model, system): (&LanguageModel, &System),
    (pins, limits): (&Pins, &Limits),
    (found, best): (&Found, &Execution),
    factor: f64,
    deadline: Deadline,
) -> Result<Vec<Gain>, String> {
    let all = Resource::all(system);
    let steps = Steps::of("resources", all.len() as u64);
    let mut out = Vec::new();
    for (i, resource) in all.iter().copied().enumerate() {
        let changed = resource.scaled(system, factor);
        let executions = Executions::new(&changed, model, limits)?;
        let part = deadline.part(1.0 / (all.len() - i) as f64);
        // With more of anything the execution at hand is no slower.
        let unchanged = executions.predict(best, part).ok().map(|(prediction, _)| prediction.time.total);
        let again = executions.search(pins, part)?;
        let value = [unchanged, again.best.is_some().then_some(again.value)].into_iter().flatten().reduce(f64::min);
        let bound = again.bound.min(value.unwrap_or(f64::INFINITY));
        out.push(Gain {
            resource,
            name: resource.name(system),
            value,
            bound: (bound.is_finite() && found.best.is_some()).then_some(bound),
            unchanged,
        });
        steps.step();
    }
    Ok(out)
}
