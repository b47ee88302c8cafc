//! A mixed-integer linear programme, and its solution by a solver through `good_lp`.
//!
//! [`Milp`] keeps names of columns and rows, which `good_lp` does not; so that a model can be written to a file with
//! constraint families a reader recognises ([`crate::mapping::write_model`]). A solver is one function: add it to [`Solver`].

pub mod record;

use good_lp::{Expression, ProblemVariables, SolverModel, Variable, constraint, variable};
use record::{SolveRecord, Status};
use std::time::Instant;

crate::choice! {
    /// A solver.
    pub enum Solver ("a solver") {
        /// HiGHS, built in.
        Highs = "highs",
        /// CBC; in builds with the cargo feature `cbc`.
        Cbc = "cbc",
    }
}

/// A column: name, bounds, kind, cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Name, unique.
    pub name: String,
    /// Lower bound.
    pub lower: f64,
    /// Upper bound, possibly infinite.
    pub upper: f64,
    /// Whether it must be whole.
    pub integer: bool,
    /// Objective coefficient.
    pub cost: f64,
}

/// A row `sum of terms (>= or =) right`.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Name, unique, starting with its constraint family.
    pub name: String,
    /// Column and coefficient; a column at most once.
    pub terms: Vec<(usize, f64)>,
    /// Whether it is an equation.
    pub equal: bool,
    /// Right-hand side.
    pub right: f64,
}

/// A minimisation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Milp {
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows.
    pub rows: Vec<Row>,
    /// Constant of the objective.
    pub constant: f64,
}

impl Milp {
    /// Adds a binary column.
    pub fn binary(&mut self, name: String, cost: f64) -> usize {
        self.columns.push(Column { name, lower: 0.0, upper: 1.0, integer: true, cost });
        self.columns.len() - 1
    }
    /// Adds a continuous column of at least zero.
    pub fn continuous(&mut self, name: String, upper: f64, cost: f64) -> usize {
        self.columns.push(Column { name, lower: 0.0, upper, integer: false, cost });
        self.columns.len() - 1
    }
    /// Adds `sum of terms >= right`; terms of the same column are added up.
    pub fn at_least(&mut self, name: String, terms: Vec<(usize, f64)>, right: f64) {
        self.push(name, terms, false, right);
    }
    /// Adds `sum of terms <= right`.
    pub fn at_most(&mut self, name: String, terms: Vec<(usize, f64)>, right: f64) {
        self.push(name, terms.into_iter().map(|(c, a)| (c, -a)).collect(), false, -right);
    }
    /// Adds `sum of terms = right`.
    pub fn equal(&mut self, name: String, terms: Vec<(usize, f64)>, right: f64) {
        self.push(name, terms, true, right);
    }
    fn push(&mut self, name: String, mut terms: Vec<(usize, f64)>, equal: bool, right: f64) {
        terms.sort_unstable_by_key(|(c, _)| *c);
        let mut merged: Vec<(usize, f64)> = Vec::with_capacity(terms.len());
        for (column, a) in terms {
            match merged.last_mut() {
                Some((last, sum)) if *last == column => *sum += a,
                _ => merged.push((column, a)),
            }
        }
        merged.retain(|(_, a)| *a != 0.0);
        self.rows.push(Row { name, terms: merged, equal, right });
    }
    /// Objective of a point.
    pub fn objective(&self, values: &[f64]) -> f64 {
        self.constant + self.columns.iter().zip(values).map(|(c, v)| c.cost * v).sum::<f64>()
    }
    /// The first row or column that a point breaks, by more than a solver's tolerances could explain.
    pub fn broken(&self, values: &[f64]) -> Option<&str> {
        const TOLERANCE: f64 = 1e-5;
        let column = self.columns.iter().zip(values).find(|(c, v)| {
            let scale = TOLERANCE * v.abs().max(1.0);
            **v < c.lower - scale || **v > c.upper + scale || (c.integer && (*v - v.round()).abs() > TOLERANCE)
        });
        let row = || {
            self.rows.iter().find(|row| {
                let left: f64 = row.terms.iter().map(|(c, a)| a * values[*c]).sum();
                let size = row.terms.iter().map(|(c, a)| (a * values[*c].abs().max(1.0)).abs()).fold(1.0, f64::max);
                left < row.right - TOLERANCE * size || (row.equal && left > row.right + TOLERANCE * size)
            })
        };
        column.map(|(c, _)| c.name.as_str()).or_else(|| row().map(|r| r.name.as_str()))
    }
    /// Fills in the continuous columns of a point whose integer columns are set: each gets the least value that the
    /// rows ask in which it is the last continuous column. (The formulations create columns in such an order.)
    pub fn complete(&self, values: &mut [f64]) {
        let mut rows_of: Vec<Vec<usize>> = vec![Vec::new(); self.columns.len()];
        for (r, row) in self.rows.iter().enumerate().filter(|(_, row)| !row.equal) {
            if let Some((c, a)) = row.terms.iter().rev().find(|(c, _)| !self.columns[*c].integer)
                && *a > 0.0
            {
                rows_of[*c].push(r);
            }
        }
        for (c, column) in self.columns.iter().enumerate().filter(|(_, c)| !c.integer) {
            let mut least = column.lower;
            for &r in &rows_of[c] {
                let row = &self.rows[r];
                let mut rest = row.right;
                let mut own = 1.0;
                for (d, a) in &row.terms {
                    if *d == c { own = *a } else { rest -= a * values[*d] }
                }
                least = least.max(rest / own);
            }
            values[c] = least;
        }
    }
}

/// The engines of this build, for `flowspace --version`.
pub fn engines() -> Vec<&'static str> {
    let mut engines = vec!["shortest path", "elimination", "HiGHS"];
    if cfg!(feature = "cbc") {
        engines.push("CBC");
    }
    engines
}

/// How to solve.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// The solver.
    pub solver: Solver,
    /// Relative gap at which to stop.
    pub gap: f64,
    /// Most seconds; a solve it stops is not reproducible.
    pub seconds: Option<f64>,
    /// Most nodes.
    pub nodes: Option<u64>,
    /// Random seed.
    pub seed: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { solver: Solver::Highs, gap: 1e-6, seconds: None, nodes: Some(20_000), seed: 0 }
    }
}

/// A solved MILP: the point, if one was found, and the record.
#[derive(Debug, Clone, PartialEq)]
pub struct Solved {
    /// Values of the columns.
    pub values: Option<Vec<f64>>,
    /// The record, in the units of the objective.
    pub record: SolveRecord,
}

/// A failure inside a solver: not a property of the problem.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SolverError {
    /// The solver is not in this build.
    #[error(
        "this build has no CBC: build with `cargo build --release --features cbc` (needs Debian's coinor-libcbc-dev), or use --solver highs"
    )]
    NotBuilt,
    /// The solver said something else.
    #[error("the solver failed: {0}")]
    Failed(String),
}

/// Solves `milp`, from a starting point where there is one.
///
/// # Errors
/// [`SolverError`] when the solver is missing or fails; a limit or an infeasible problem is no error.
pub fn solve(milp: &Milp, limits: &Limits, start: Option<&[f64]>) -> Result<Solved, SolverError> {
    match limits.solver {
        Solver::Highs => solve_highs(milp, limits, start),
        Solver::Cbc => {
            // From a starting point CBC 2.10 was seen to return, as optimal, a point that breaks the rows; without it, the optimum.
            let faulty = |solved: &Solved| solved.values.as_deref().and_then(|v| milp.broken(v)).map(str::to_string);
            let first = solve_cbc(milp, limits, start)?;
            let Some(row) = faulty(&first) else { return Ok(first) };
            let again = if start.is_some() { solve_cbc(milp, limits, None)? } else { first };
            match faulty(&again) {
                None => Ok(again),
                Some(_) => Err(SolverError::Failed(format!("CBC returned a point that breaks {row}"))),
            }
        }
    }
}

/// The columns and the objective in `good_lp`'s terms.
fn declare(milp: &Milp) -> (ProblemVariables, Vec<Variable>, Expression) {
    let mut problem = ProblemVariables::new();
    let columns: Vec<Variable> = milp
        .columns
        .iter()
        .map(|c| {
            let v = if c.integer { variable().integer() } else { variable() };
            let v = v.min(c.lower);
            problem.add(if c.upper.is_finite() { v.max(c.upper) } else { v })
        })
        .collect();
    let mut objective = Expression::with_capacity(columns.len());
    for (c, v) in milp.columns.iter().zip(&columns) {
        if c.cost != 0.0 {
            objective.add_mul(c.cost, v);
        }
    }
    (problem, columns, objective)
}

fn add_rows<M: SolverModel>(model: &mut M, milp: &Milp, columns: &[Variable]) {
    for row in &milp.rows {
        let mut left = Expression::with_capacity(row.terms.len());
        for (c, a) in &row.terms {
            left.add_mul(*a, columns[*c]);
        }
        model.add_constraint(if row.equal { constraint!(left == row.right) } else { constraint!(left >= row.right) });
    }
}

fn solve_highs(milp: &Milp, limits: &Limits, start: Option<&[f64]>) -> Result<Solved, SolverError> {
    let clock = Instant::now();
    let fail = |e: String| SolverError::Failed(format!("HiGHS: {e}"));
    let (problem, columns, objective) = declare(milp);
    let mut built = problem.minimise(objective).using(good_lp::solvers::highs::highs);
    add_rows(&mut built, milp, &columns);
    let mut model = built.try_into_inner().map_err(|e| fail(e.to_string()))?;
    model.make_quiet();
    let seed = i32::try_from(limits.seed & 0x7fff_ffff).unwrap_or(0);
    let mut options: Vec<(&str, Setting)> = vec![
        ("threads", Setting::Int(1)),
        ("parallel", Setting::Text("off")),
        ("random_seed", Setting::Int(seed)),
        ("mip_rel_gap", Setting::Real(limits.gap)),
        ("mip_abs_gap", Setting::Real(1e-9)),
        ("mip_feasibility_tolerance", Setting::Real(1e-9)),
        ("primal_feasibility_tolerance", Setting::Real(1e-9)),
    ];
    if let Some(seconds) = limits.seconds {
        options.push(("time_limit", Setting::Real(seconds)));
    }
    if let Some(nodes) = limits.nodes {
        options.push(("mip_max_nodes", Setting::Int(i32::try_from(nodes).unwrap_or(i32::MAX))));
    }
    for (name, value) in options {
        match value {
            Setting::Int(v) => model.try_set_option(name, v),
            Setting::Real(v) => model.try_set_option(name, v),
            Setting::Text(v) => model.try_set_option(name, v),
        }
        .map_err(|e| fail(format!("option {name}: {e:?}")))?;
    }
    if let Some(start) = start {
        model.try_set_solution(Some(start), None, None, None).map_err(|e| fail(format!("start: {e:?}")))?;
    }
    let mut solved = model.try_solve().map_err(|e| fail(format!("{e:?}")))?;
    use highs::HighsModelStatus as S;
    let status = match solved.status() {
        S::Optimal | S::ObjectiveBound | S::ObjectiveTarget | S::ModelEmpty => Status::Optimal,
        S::ReachedTimeLimit => Status::TimeLimit,
        S::ReachedSolutionLimit | S::ReachedIterationLimit => Status::NodeLimit,
        S::Infeasible | S::UnboundedOrInfeasible => Status::Infeasible,
        other => return Err(fail(format!("{other:?}"))),
    };
    let found = solved.primal_solution_status() == highs::HighsSolutionStatus::Feasible && status != Status::Infeasible;
    let has_integers = milp.columns.iter().any(|c| c.integer);
    let objective = if found { solved.objective_value() } else { f64::INFINITY };
    let bound = match status {
        Status::Infeasible => f64::INFINITY,
        _ if has_integers => solved.double_info_value(c"mip_dual_bound").map_err(|e| fail(format!("{e:?}")))?,
        _ => objective,
    };
    let nodes = node_count(&mut solved);
    Ok(Solved {
        values: found.then(|| solved.get_solution().columns().to_vec()),
        record: SolveRecord {
            status,
            objective: objective + milp.constant,
            bound: bound + milp.constant,
            nodes,
            seconds: clock.elapsed().as_secs_f64(),
        },
    })
}

/// Nodes of a solved model. HiGHS keeps them in a 64-bit field, which the `highs` crate has no safe call for.
#[allow(unsafe_code)]
fn node_count(solved: &mut highs::SolvedModel) -> Option<u64> {
    let mut nodes: i64 = -1;
    // SAFETY: the pointer is that of a live solved model, borrowed mutably for the call; the name is a NUL-terminated
    // literal; the value is written to a local of the type that HiGHS documents for this call.
    let status = unsafe {
        highs_sys::Highs_getInt64InfoValue(
            solved.as_mut_ptr(),
            c"mip_node_count".as_ptr(),
            std::ptr::from_mut(&mut nodes),
        )
    };
    if status == highs_sys::STATUS_OK { u64::try_from(nodes).ok() } else { None }
}

/// A value of a HiGHS option.
enum Setting {
    Int(i32),
    Real(f64),
    Text(&'static str),
}

#[cfg(feature = "cbc")]
fn solve_cbc(milp: &Milp, limits: &Limits, start: Option<&[f64]>) -> Result<Solved, SolverError> {
    use good_lp::{ResolutionError, Solution, WithInitialSolution};
    let clock = Instant::now();
    let (problem, columns, objective) = declare(milp);
    let mut model = problem.minimise(objective).using(good_lp::solvers::coin_cbc::coin_cbc);
    add_rows(&mut model, milp, &columns);
    model.set_parameter("log", "0");
    model.set_parameter("slog", "0");
    // Half the gap, so that the bound derived from it below stays clear of rounding.
    model.set_parameter("ratio", &(0.5 * limits.gap).to_string());
    model.set_parameter("randomSeed", &limits.seed.to_string());
    model.set_parameter("randomCbcSeed", &limits.seed.to_string());
    if let Some(seconds) = limits.seconds {
        model.set_parameter("sec", &seconds.to_string());
    }
    if let Some(nodes) = limits.nodes {
        model.set_parameter("maxN", &nodes.to_string());
    }
    if let Some(start) = start {
        model = model.with_initial_solution(columns.iter().copied().zip(start.iter().copied()));
    }
    let seconds = |clock: Instant| clock.elapsed().as_secs_f64();
    match model.solve() {
        Ok(solution) => {
            let raw = solution.model();
            let status = if raw.is_seconds_limit_reached() {
                Status::TimeLimit
            } else if raw.is_node_limit_reached() {
                Status::NodeLimit
            } else {
                Status::Optimal
            };
            let values: Vec<f64> = columns.iter().map(|c| solution.value(*c)).collect();
            let objective = milp.objective(&values);
            // CBC leaves the bound at the root's where presolve ends the search.
            let bound = match status {
                Status::Optimal => objective - 0.5 * limits.gap * objective.abs(),
                _ => raw.best_possible_value() + milp.constant,
            };
            Ok(Solved {
                values: Some(values),
                record: SolveRecord { status, objective, bound, nodes: None, seconds: seconds(clock) },
            })
        }
        Err(ResolutionError::Infeasible) => Ok(Solved {
            values: None,
            record: SolveRecord {
                status: Status::Infeasible,
                objective: f64::INFINITY,
                bound: f64::INFINITY,
                nodes: None,
                seconds: seconds(clock),
            },
        }),
        // Stopped by a limit (good_lp reports a node limit so): the caller keeps its start, nothing is proven here.
        Err(ResolutionError::Other("Stopped")) => Ok(Solved {
            values: None,
            record: SolveRecord {
                status: Status::NodeLimit,
                objective: f64::INFINITY,
                bound: f64::NEG_INFINITY,
                nodes: None,
                seconds: seconds(clock),
            },
        }),
        Err(e) => Err(SolverError::Failed(format!("CBC: {e}"))),
    }
}

#[cfg(not(feature = "cbc"))]
fn solve_cbc(_: &Milp, _: &Limits, _: Option<&[f64]>) -> Result<Solved, SolverError> {
    Err(SolverError::NotBuilt)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knapsack by hand: values 6, 5, 4 (as negative costs), weights 3, 2, 2, capacity 4: take the last two, -9.
    #[test]
    fn knapsack_by_hand() {
        let mut milp = Milp::default();
        let x: Vec<usize> = [6.0, 5.0, 4.0].iter().enumerate().map(|(i, v)| milp.binary(format!("x{i}"), -v)).collect();
        milp.at_most("cap".into(), x.iter().copied().zip([3.0, 2.0, 2.0]).collect(), 4.0);
        let mut solvers = vec![Solver::Highs];
        if cfg!(feature = "cbc") {
            solvers.push(Solver::Cbc);
        }
        for solver in solvers {
            let solved = solve(&milp, &Limits { solver, ..Limits::default() }, None).unwrap();
            assert_eq!(solved.record.status, Status::Optimal);
            assert!((solved.record.objective + 9.0).abs() < 1e-9, "{solver}");
        }
    }

    #[test]
    fn infeasible_is_a_status() {
        let mut milp = Milp::default();
        let x = milp.binary("x".into(), 1.0);
        milp.at_least("no".into(), vec![(x, 1.0)], 2.0);
        assert_eq!(solve(&milp, &Limits::default(), None).unwrap().record.status, Status::Infeasible);
    }
}
