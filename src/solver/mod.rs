//! A mixed-integer linear programme, and its solution by a solver, if this build has one.
//!
//! [`Milp`] keeps names of columns and rows, so that a model can be written to a file with constraint families a reader
//! recognises ([`crate::mapping::write_model`]). A solver is one file with one function: add it to [`Solver`] and [`solve`].

pub mod record;

#[cfg(feature = "cbc")]
mod cbc;
#[cfg(feature = "milp")]
mod highs;

#[cfg(any(feature = "cbc", test))]
use crate::deadline::Deadline;
use record::SolveRecord;

crate::choice! {
    /// A solver.
    pub enum Solver ("a solver") {
        /// HiGHS; in builds with the cargo feature `milp`, which is on unless it is left out.
        Highs = "highs",
        /// CBC; in builds with the cargo feature `cbc`.
        Cbc = "cbc",
    }
}

/// How to get a build with HiGHS.
const GET_MILP: &str = "build with `cargo build --release`, without `--no-default-features` (it compiles HiGHS, for which it needs a C++ compiler)";

impl Solver {
    /// Whether this build has it.
    pub const fn is_built(self) -> bool {
        match self {
            Self::Highs => cfg!(feature = "milp"),
            Self::Cbc => cfg!(feature = "cbc"),
        }
    }
    /// Those that this build has.
    pub fn built() -> Vec<Self> {
        [Self::Highs, Self::Cbc].into_iter().filter(|s| s.is_built()).collect()
    }
    /// What a build without it says.
    fn missing(self) -> String {
        match self {
            Self::Highs => format!("this build has no MILP engine: {GET_MILP}, or use --solver auto or exact"),
            Self::Cbc => "this build has no CBC: build with `cargo build --release --features cbc` (needs Debian's \
                          coinor-libcbc-dev), or use --solver highs"
                .into(),
        }
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
    let mut engines = vec!["shortest path", "elimination"];
    engines.extend(Solver::built().iter().map(|solver| match solver {
        Solver::Highs => "HiGHS",
        Solver::Cbc => "CBC",
    }));
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
    #[error("{}", .0.missing())]
    NotBuilt(Solver),
    /// Something that only a MILP can settle, in a build without any.
    #[error("{0} needs a MILP engine, and this build has none: {GET_MILP}")]
    NeedsMilp(&'static str),
    /// The solver said something else.
    #[error("the solver failed: {0}")]
    Failed(String),
}

/// Solves `milp`, from a starting point where there is one.
///
/// # Errors
/// [`SolverError`] when the solver is missing or fails; a limit or an infeasible problem is no error.
#[cfg_attr(not(feature = "milp"), allow(unused_variables))]
pub fn solve(milp: &Milp, limits: &Limits, start: Option<&[f64]>) -> Result<Solved, SolverError> {
    match limits.solver {
        #[cfg(feature = "milp")]
        Solver::Highs => highs::solve(milp, limits, start),
        #[cfg(feature = "cbc")]
        Solver::Cbc => {
            // CBC 2.10 was seen to return, as optimal, points that break the rows: from a starting point, where without it the optimum
            // came out, and now and then without one.
            let mut broken = String::new();
            let clock = Deadline::after(limits.seconds);
            for (start, preprocess) in [(start, true), (None, true), (None, false)] {
                // All attempts together have the seconds of one.
                let limits = Limits { seconds: clock.left(), ..limits.clone() };
                let (milp_of_its_own, start) = (milp.clone(), start.map(<[f64]>::to_vec));
                let work = move || cbc::solve(&milp_of_its_own, &limits, start.as_deref(), preprocess);
                let Some(solved) = unless(crate::deadline::is_interrupted, work) else {
                    return Ok(interrupted(&clock));
                };
                let solved = solved?;
                match solved.values.as_deref().and_then(|v| milp.broken(v)) {
                    None => return Ok(solved),
                    Some(row) => broken = row.to_string(),
                }
            }
            Err(SolverError::Failed(format!("CBC returned a point that breaks {broken}")))
        }
        #[cfg(not(all(feature = "milp", feature = "cbc")))]
        missing => Err(SolverError::NotBuilt(missing)),
    }
}

/// What `work` gives, which does not look at interruptions itself; none as soon as `stop` says so. Then its thread is left to end by itself, at its own limits or
/// with the program: no answer waits for it.
#[cfg(any(feature = "cbc", test))]
fn unless<T: Send + 'static>(stop: fn() -> bool, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    /// How long an interruption is not noticed at most.
    const LOOK: std::time::Duration = std::time::Duration::from_millis(20);
    let (send, receive) = channel();
    let thread = std::thread::spawn(move || {
        // Nobody may wait for it any more.
        let _ = send.send(work());
    });
    loop {
        match receive.recv_timeout(LOOK) {
            Ok(done) => return Some(done),
            Err(RecvTimeoutError::Timeout) if stop() => return None,
            Err(RecvTimeoutError::Timeout) => {}
            // It panicked, which is passed on.
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => return None,
            },
        }
    }
}

/// What is said of a solve that the user interrupted: nothing found, nothing proven.
#[cfg(any(feature = "cbc", test))]
fn interrupted(clock: &Deadline) -> Solved {
    let (objective, bound) = (f64::INFINITY, f64::NEG_INFINITY);
    // Who ended it is said once, for the search as a whole.
    let status = record::Status::TimeLimit;
    Solved { values: None, record: SolveRecord { status, objective, bound, nodes: None, seconds: clock.seconds() } }
}

#[cfg(test)]
mod tests {
    use super::record::Status;
    use super::*;

    /// Work that ends gives what it gives, panics are passed on, and an interruption does not wait for the rest.
    #[test]
    fn an_interruption_does_not_wait() {
        assert_eq!(unless(|| false, || 7), Some(7));
        assert!(std::panic::catch_unwind(|| unless(|| false, || -> u8 { panic!("inside") })).is_err());
        // Work that waits for what comes after the answer.
        let (hold, held) = std::sync::mpsc::channel::<()>();
        assert_eq!(unless(|| true, move || held.recv().is_ok()), None);
        drop(hold);
        let nothing = interrupted(&Deadline::never());
        assert_eq!((nothing.values, nothing.record.bound), (None, f64::NEG_INFINITY));
    }

    /// Knapsack by hand: values 6, 5, 4 (as negative costs), weights 3, 2, 2, capacity 4: take the last two, -9.
    #[test]
    fn knapsack_by_hand() {
        let mut milp = Milp::default();
        let x: Vec<usize> = [6.0, 5.0, 4.0].iter().enumerate().map(|(i, v)| milp.binary(format!("x{i}"), -v)).collect();
        milp.at_most("cap".into(), x.iter().copied().zip([3.0, 2.0, 2.0]).collect(), 4.0);
        for solver in Solver::built() {
            let solved = solve(&milp, &Limits { solver, ..Limits::default() }, None).unwrap();
            assert_eq!(solved.record.status, Status::Optimal);
            assert!((solved.record.objective + 9.0).abs() < 1e-9, "{solver}");
        }
    }

    /// Covers that differ by some millionths of their cost: an optimum is proven to the gap that was asked for, not to a step of a solver's own.
    #[test]
    fn small_differences_count() {
        let mut state = 7u64;
        let mut whole = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..40 {
            let costs: Vec<f64> = (0..10).map(|_| 0.2 + whole(40) as f64 * 1.5e-6).collect();
            let rows: Vec<Vec<usize>> = (0..12).map(|_| (0..3).map(|_| whole(10) as usize).collect()).collect();
            let mut milp = Milp::default();
            let x: Vec<usize> = costs.iter().enumerate().map(|(i, c)| milp.binary(format!("x{i}"), *c)).collect();
            for (r, row) in rows.iter().enumerate() {
                let mut once: Vec<usize> = row.clone();
                once.sort_unstable();
                once.dedup();
                milp.at_least(format!("r{r}"), once.iter().map(|i| (x[*i], 1.0)).collect(), 1.0);
            }
            let covers = (0u32..1 << 10).filter(|set| rows.iter().all(|row| row.iter().any(|i| set >> i & 1 == 1)));
            let cost = |set: u32| (0..10).filter(|i| set >> i & 1 == 1).map(|i| costs[i]).sum::<f64>();
            let best = covers.map(cost).fold(f64::INFINITY, f64::min);
            for solver in Solver::built() {
                let found = solve(&milp, &Limits { solver, ..Limits::default() }, None).unwrap().record;
                assert!(found.objective <= best * (1.0 + 1e-6) + 1e-12, "{solver}: {} for {best}", found.objective);
                assert!(found.bound <= best * (1.0 + 1e-9), "{solver}: bound {} for {best}", found.bound);
            }
        }
    }

    #[test]
    fn infeasible_is_a_status() {
        let mut milp = Milp::default();
        let x = milp.binary("x".into(), 1.0);
        milp.at_least("no".into(), vec![(x, 1.0)], 2.0);
        for solver in Solver::built() {
            let limits = Limits { solver, ..Limits::default() };
            assert_eq!(solve(&milp, &limits, None).unwrap().record.status, Status::Infeasible, "{solver}");
        }
    }

    #[test]
    fn a_solver_that_is_not_built_is_an_error() {
        for solver in [Solver::Highs, Solver::Cbc].into_iter().filter(|s| !s.is_built()) {
            let refused = solve(&Milp::default(), &Limits { solver, ..Limits::default() }, None);
            assert_eq!(refused, Err(SolverError::NotBuilt(solver)));
        }
    }
}
