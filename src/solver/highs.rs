//! HiGHS: one thread, pinned seed, tight tolerances.

use super::record::{SolveRecord, Status};
use super::{Limits, Milp, Solved, SolverError};
use crate::deadline::interruption;
use flowspace_highs::{Ended, Model, Problem, Refused, Setting};
use std::time::Instant;

pub(super) fn solve(milp: &Milp, limits: &Limits, start: Option<&[f64]>) -> Result<Solved, SolverError> {
    let clock = Instant::now();
    let fail = |e: Refused| SolverError::Failed(format!("HiGHS: {e}"));
    let mut model = Model::new(&declare(milp)).map_err(fail)?;
    let seed = i32::try_from(limits.seed & 0x7fff_ffff).unwrap_or(0);
    let mut options = vec![
        (c"threads", Setting::Int(1)),
        (c"parallel", Setting::Word(c"off")),
        (c"random_seed", Setting::Int(seed)),
        (c"mip_rel_gap", Setting::Real(limits.gap)),
        (c"mip_abs_gap", Setting::Real(1e-9)),
        (c"mip_feasibility_tolerance", Setting::Real(1e-9)),
        (c"primal_feasibility_tolerance", Setting::Real(1e-9)),
    ];
    if let Some(seconds) = limits.seconds {
        // This heuristic does not look at the clock (seconds, on models of 5,000 kernels), and all that it looks for is a start.
        options.push((c"mip_heuristic_run_feasibility_jump", Setting::Switch(start.is_none())));
        options.push((c"time_limit", Setting::Real(seconds)));
    }
    if let Some(nodes) = limits.nodes {
        options.push((c"mip_max_nodes", Setting::Int(i32::try_from(nodes).unwrap_or(i32::MAX))));
    }
    for (name, value) in options {
        model.set(name, value).map_err(fail)?;
    }
    model.stop_at(interruption()).map_err(fail)?;
    if let Some(start) = start {
        model.start_from(start).map_err(fail)?;
    }
    let status = match model.run().map_err(fail)? {
        Ended::Optimal => Status::Optimal,
        // Who ended it is said once, for the search as a whole.
        Ended::TimeLimit | Ended::Interrupted => Status::TimeLimit,
        Ended::NodeLimit => Status::NodeLimit,
        Ended::Infeasible => Status::Infeasible,
        Ended::Other(number) => return Err(SolverError::Failed(format!("HiGHS: it ended with status {number}"))),
    };
    let found = model.is_feasible() && status != Status::Infeasible;
    let has_integers = milp.columns.iter().any(|c| c.integer);
    let objective = if found { model.figure(c"objective_function_value").map_err(fail)? } else { f64::INFINITY };
    let bound = match status {
        Status::Infeasible => f64::INFINITY,
        _ if has_integers => model.figure(c"mip_dual_bound").map_err(fail)?,
        _ => objective,
    };
    Ok(Solved {
        values: if found { Some(model.columns().map_err(fail)?) } else { None },
        record: SolveRecord {
            status,
            objective: objective + milp.constant,
            bound: bound + milp.constant,
            nodes: model.nodes(),
            seconds: clock.elapsed().as_secs_f64(),
        },
    })
}

/// The programme as HiGHS takes it; the constant stays outside.
fn declare(milp: &Milp) -> Problem {
    let mut problem = Problem {
        cost: milp.columns.iter().map(|c| c.cost).collect(),
        lower: milp.columns.iter().map(|c| c.lower).collect(),
        upper: milp.columns.iter().map(|c| c.upper).collect(),
        integer: milp.columns.iter().map(|c| c.integer).collect(),
        row_lower: milp.rows.iter().map(|r| r.right).collect(),
        row_upper: milp.rows.iter().map(|r| if r.equal { r.right } else { f64::INFINITY }).collect(),
        entries: vec![Vec::new(); milp.columns.len()],
    };
    for (r, row) in milp.rows.iter().enumerate() {
        for (column, coefficient) in &row.terms {
            problem.entries[*column].push((r, *coefficient));
        }
    }
    problem
}
