//! Steps of training runs whose model is a graph and no language model: replicas of it, by the search that `map` uses.

use super::machines::{self, Known};
use super::point::Point;
use super::predict::{NotPredicted, Prediction};
use crate::mapping::degrees::Wanted;
use crate::mapping::map;
use crate::mapping::request::{Answer, Request};
use crate::system::Style;
use crate::units::Bytes;
use crate::workload::WorkloadSpec;
use crate::workload::language::DataType;

/// How often a replica's samples are halved until they fit.
const HALVINGS: u32 = 8;

/// Seconds of a training step of replicas, each of which takes its samples at once, or the largest half of a half of them that fits its memory.
///
/// # Errors
/// [`NotPredicted`]: no description of the machine; a batch that is not stated or that its chips do not divide; nothing that fits.
pub fn step(list: &[Known], point: &Point, spec: &WorkloadSpec) -> Result<Prediction, NotPredicted> {
    let (system, _) = machines::system(list, point)?;
    if system.chip.0.style == Style::Dataflow {
        return Err(NotPredicted::because("what its compiler reaches of such a graph is not known"));
    }
    let batch = point.row.global_batch.ok_or_else(|| NotPredicted::because("the batch is not stated"))?;
    let chips = system.chip_count();
    if chips == 0 || !batch.is_multiple_of(chips) || batch == 0 {
        return Err(NotPredicted(format!("a global batch of {batch} is no multiple of its {chips} chips")));
    }
    let word = Bytes(point.notes.precision.unwrap_or(DataType::Bf16).bytes());
    let wanted = Wanted { tp: Some(1), pp: Some(1), dp: Some(chips), split: false };
    let request = Request { wanted, ..Request::default() };
    let samples = batch / chips;
    let mut reason = String::from("it does not fit");
    for at_once in (0..HALVINGS).map(|n| samples >> n).take_while(|n| *n > 0 && samples.is_multiple_of(*n)) {
        let workload = spec.of_replicas(batch, chips, at_once, word);
        let workload = workload.ok_or_else(|| NotPredicted::because("no graph of its replicas"))?;
        match map(&workload, &system, &request).map_err(|e| NotPredicted(e.to_string()))? {
            Answer::Mapped(plan, _) => return Ok(Prediction::Seconds(plan.figures.iteration_s())),
            Answer::Infeasible(why) => reason = why.to_string(),
        }
    }
    Err(NotPredicted(reason))
}
