//! CBC, of the machine's libCbcSolver.

use super::record::{SolveRecord, Status};
use super::{Limits, Milp, Solved, SolverError};
use coin_cbc::raw::{SecondaryStatus, Status as Ended};
use coin_cbc::{Col, Model, Sense};
use std::time::Instant;

/// Solves `milp`; without `preprocess` CBC takes the rows as they are.
pub(super) fn solve(
    milp: &Milp,
    limits: &Limits,
    start: Option<&[f64]>,
    preprocess: bool,
) -> Result<Solved, SolverError> {
    let clock = Instant::now();
    let (mut model, columns) = declare(milp);
    model.set_parameter("log", "0");
    model.set_parameter("slog", "0");
    // Half the gap, so that the bound derived from it below stays clear of rounding.
    model.set_parameter("ratio", &(0.5 * limits.gap).to_string());
    // By default it looks for nothing that is better than what it has by less than 1e-5 in the objective's unit, and says that it is done.
    model.set_parameter("increment", "0");
    // To CBC a seed of 0 means the time of day, and then no run is like another.
    let seed = (limits.seed % 0x7fff_ffff + 1).to_string();
    model.set_parameter("randomSeed", &seed);
    model.set_parameter("randomCbcSeed", &seed);
    if !preprocess {
        model.set_parameter("preprocess", "off");
        model.set_parameter("presolve", "off");
    }
    if let Some(seconds) = limits.seconds {
        model.set_parameter("sec", &seconds.to_string());
    }
    if let Some(nodes) = limits.nodes {
        model.set_parameter("maxN", &nodes.to_string());
    }
    if let Some(start) = start {
        for (column, value) in columns.iter().zip(start) {
            model.set_col_initial_solution(*column, *value);
        }
    }
    let solution = model.solve();
    let raw = solution.raw();
    let nothing = |status, bound| Solved {
        values: None,
        record: SolveRecord {
            status,
            objective: f64::INFINITY,
            bound,
            nodes: None,
            seconds: clock.elapsed().as_secs_f64(),
        },
    };
    let fail = |why: &str| Err(SolverError::Failed(format!("CBC: {why}")));
    match raw.status() {
        // Stopped by the nodes: the caller keeps its start, nothing is proven here.
        Ended::Stopped if raw.secondary_status() != SecondaryStatus::StoppedOnTime => {
            return Ok(nothing(Status::NodeLimit, f64::NEG_INFINITY));
        }
        Ended::Abandoned => return fail("abandoned"),
        Ended::UserEvent => return fail("interrupted"),
        // Unlaunched: the presolve settled it.
        Ended::Finished | Ended::Unlaunched if raw.is_continuous_unbounded() => return fail("unbounded"),
        Ended::Finished | Ended::Unlaunched if raw.is_proven_infeasible() => {
            return Ok(nothing(Status::Infeasible, f64::INFINITY));
        }
        Ended::Stopped | Ended::Finished | Ended::Unlaunched => {}
    }
    let status = if raw.is_seconds_limit_reached() {
        Status::TimeLimit
    } else if raw.is_node_limit_reached() {
        Status::NodeLimit
    } else {
        Status::Optimal
    };
    let values: Vec<f64> = columns.iter().map(|c| solution.col(*c)).collect();
    let objective = milp.objective(&values);
    // CBC leaves the bound at the root's where presolve ends the search.
    let bound = match status {
        Status::Optimal => objective - 0.5 * limits.gap * objective.abs(),
        _ => raw.best_possible_value() + milp.constant,
    };
    Ok(Solved {
        values: Some(values),
        record: SolveRecord { status, objective, bound, nodes: None, seconds: clock.elapsed().as_secs_f64() },
    })
}

/// The programme as CBC takes it, with rows turned to `<=`; the constant stays outside.
fn declare(milp: &Milp) -> (Model, Vec<Col>) {
    let mut model = Model::default();
    model.set_log_level(0);
    model.set_obj_sense(Sense::Minimize);
    let columns: Vec<Col> = milp
        .columns
        .iter()
        .map(|c| {
            let column = model.add_col();
            model.set_col_lower(column, c.lower);
            if c.upper.is_finite() {
                model.set_col_upper(column, c.upper);
            }
            if c.integer {
                model.set_integer(column);
            }
            model.set_obj_coeff(column, c.cost);
            column
        })
        .collect();
    for row in &milp.rows {
        let r = model.add_row();
        // An equation stays as it is, for its sign has no meaning.
        let sign = if row.equal { 1.0 } else { -1.0 };
        if row.equal {
            model.set_row_equal(r, row.right);
        } else {
            model.set_row_upper(r, -row.right);
        }
        for (column, coefficient) in &row.terms {
            model.set_weight(r, columns[*column], sign * coefficient);
        }
    }
    (model, columns)
}
