//! Mappings chosen by a search that does not see everything: what joint optimisation is worth.
//!
//! With `solve.blind_to: [memory]` the search takes DRAM traffic to be free, with `[network]` communication; capacities stay. The
//! plan it finds is then priced with everything. Costs that are taken away make no mapping slower, so the bound of the
//! blind search is a bound of the whole problem too, if a weaker one; the row states it and its gap.

use super::grid::Point;
use super::spec::Part;
use crate::check;
use crate::mapping::request::{LeftOpen, Objective};
use crate::mapping::{self, Answer, Status};
use crate::system::System;
use crate::units::Seconds;

/// How much faster a part becomes that is not to be seen. Large enough for what is left of its time to vanish beside the
/// rest, below one part in 2^53, so that it breaks no tie either.
const FREE: f64 = 1e18;

/// Maps a point as blindly as its solve settings ask.
pub(super) fn map(point: &Point) -> Result<Answer, String> {
    let request = point.request();
    let system = point.system.as_ref().ok_or("there is no system to map to")?;
    if point.solve.blind_to.is_empty() {
        return mapping::map(&point.workload, system, &request).map_err(|e| e.to_string());
    }
    if request.objective != Objective::Time {
        return Err(format!("solve.blind_to is for the objective time, not {}", request.objective));
    }
    let seen = without(system, &point.solve.blind_to);
    let answer = mapping::map(&point.workload, &seen, &request).map_err(|e| e.to_string())?;
    let Answer::Mapped(mut plan, mut record) = answer else { return Ok(answer) };
    plan.system = system.clone();
    plan.figures = check::derive(&plan.workload, &plan.system, &plan.decisions).map_err(|broken| broken.join("; "))?;
    record.value = plan.figures.iteration_s();
    record.bound = record.bound.min(record.value);
    if record.status == Status::Optimal && record.gap() > point.solve.gap {
        (record.status, record.left) = (Status::Blind, Some(LeftOpen::Blind));
    }
    Ok(Answer::Mapped(plan, record))
}

/// The system with some of its parts so fast that they cost nothing.
fn without(system: &System, parts: &[Part]) -> System {
    let mut system = system.clone();
    for part in parts {
        match part {
            Part::Memory => system.memory.0.bandwidth.0 *= FREE,
            Part::Network => {
                for dimension in &mut system.network.dimensions {
                    dimension.link.0.bandwidth.0 *= FREE;
                    dimension.link.0.latency = Seconds(0.0);
                }
            }
        }
    }
    system
}
