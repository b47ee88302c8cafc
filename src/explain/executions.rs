//! What more of each resource brings an execution of a language model: the best execution of the changed system, searched as that of the system as it is.

use super::{Changed, Gain, of_each};
use crate::deadline::Deadline;
use crate::execution::{Execution, Pins};
use crate::mapping::executions::Executions;
use crate::mapping::solver::Limits;
use crate::system::System;
use crate::workload::language::LanguageModel;

/// Searches the executions of a model with `factor` times as much of each resource of a system, on which `best` is the best. The searches share what is left until a deadline.
///
/// # Errors
/// A sentence of a search.
pub fn gains(
    (model, system): (&LanguageModel, &System),
    (pins, limits): (&Pins, &Limits),
    best: &Execution,
    factor: f64,
    deadline: Deadline,
) -> Result<Vec<Gain>, String> {
    of_each(system, factor, deadline, |changed, part| {
        let executions = Executions::new(changed, model, limits)?;
        // With more of anything the execution at hand is no slower.
        let unchanged = executions.predict(best, part).ok().map(|(prediction, _)| prediction.time.total);
        let again = executions.search(pins, part)?;
        let value = [unchanged, again.best.is_some().then_some(again.value)].into_iter().flatten().reduce(f64::min);
        let bound = value.map_or(again.bound, |value| again.bound.min(value));
        Ok(Changed { value, bound: bound.is_finite().then_some(bound), unchanged })
    })
}
