//! [HiGHS](https://highs.dev) as flowspace uses it: a model is passed once, solved once and asked for what came out.
//!
//! All unsafe code of flowspace is in this file: the declarations below stand in HiGHS' `highs/interfaces/highs_c_api.h`.
#![deny(missing_docs)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::path::Path;
use std::ptr::{NonNull, from_ref};
use std::sync::atomic::{AtomicBool, Ordering};

unsafe extern "C" {
    fn Highs_version() -> *const c_char;
    fn Highs_create() -> *mut c_void;
    fn Highs_destroy(highs: *mut c_void);
    fn Highs_passLp(
        highs: *mut c_void,
        columns: c_int,
        rows: c_int,
        entries: c_int,
        format: c_int,
        sense: c_int,
        offset: f64,
        cost: *const f64,
        lower: *const f64,
        upper: *const f64,
        row_lower: *const f64,
        row_upper: *const f64,
        start: *const c_int,
        index: *const c_int,
        value: *const f64,
    ) -> c_int;
    fn Highs_passMip(
        highs: *mut c_void,
        columns: c_int,
        rows: c_int,
        entries: c_int,
        format: c_int,
        sense: c_int,
        offset: f64,
        cost: *const f64,
        lower: *const f64,
        upper: *const f64,
        row_lower: *const f64,
        row_upper: *const f64,
        start: *const c_int,
        index: *const c_int,
        value: *const f64,
        integrality: *const c_int,
    ) -> c_int;
    fn Highs_readModel(highs: *mut c_void, file: *const c_char) -> c_int;
    fn Highs_getNumCol(highs: *const c_void) -> c_int;
    fn Highs_getNumRow(highs: *const c_void) -> c_int;
    fn Highs_setBoolOptionValue(highs: *mut c_void, option: *const c_char, value: c_int) -> c_int;
    fn Highs_setIntOptionValue(highs: *mut c_void, option: *const c_char, value: c_int) -> c_int;
    fn Highs_setDoubleOptionValue(highs: *mut c_void, option: *const c_char, value: f64) -> c_int;
    fn Highs_setStringOptionValue(highs: *mut c_void, option: *const c_char, value: *const c_char) -> c_int;
    fn Highs_setSolution(
        highs: *mut c_void,
        columns: *const f64,
        rows: *const f64,
        column_duals: *const f64,
        row_duals: *const f64,
    ) -> c_int;
    fn Highs_setCallback(highs: *mut c_void, callback: Option<Callback>, data: *mut c_void) -> c_int;
    fn Highs_startCallback(highs: *mut c_void, kind: c_int) -> c_int;
    fn Highs_run(highs: *mut c_void) -> c_int;
    fn Highs_getModelStatus(highs: *const c_void) -> c_int;
    fn Highs_getIntInfoValue(highs: *const c_void, info: *const c_char, value: *mut c_int) -> c_int;
    fn Highs_getInt64InfoValue(highs: *const c_void, info: *const c_char, value: *mut i64) -> c_int;
    fn Highs_getDoubleInfoValue(highs: *const c_void, info: *const c_char, value: *mut f64) -> c_int;
    fn Highs_getSolution(
        highs: *const c_void,
        columns: *mut f64,
        column_duals: *mut f64,
        rows: *mut f64,
        row_duals: *mut f64,
    ) -> c_int;
}

/// What HiGHS calls while it solves (`HighsCCallbackType`): kind, message, figures so far, answer, and what was handed over for it.
type Callback = unsafe extern "C" fn(c_int, *const c_char, *const c_void, *mut Answer, *mut c_void);

/// The answer to such a call. Only the beginning of HiGHS' own structure (`HighsCallbackDataIn`), which HiGHS makes and whose first field
/// stays the first.
#[repr(C)]
struct Answer {
    user_interrupt: c_int,
}

/// Tells HiGHS to end once the flag is set.
///
/// # Safety
/// `answer` points to HiGHS' answer or is null, `flag` to an [`AtomicBool`] that lives as long as the program.
unsafe extern "C" fn look(_: c_int, _: *const c_char, _: *const c_void, answer: *mut Answer, flag: *mut c_void) {
    // SAFETY: as this function asks.
    unsafe {
        let flag = &*flag.cast::<AtomicBool>();
        if let Some(answer) = answer.as_mut() {
            answer.user_interrupt = c_int::from(flag.load(Ordering::Relaxed));
        }
    }
}

/// Version of the HiGHS that is linked, as in "1.15.0".
pub fn version() -> String {
    // SAFETY: HiGHS returns a NUL-terminated string that lives as long as the program.
    unsafe { CStr::from_ptr(Highs_version()) }.to_string_lossy().into_owned()
}

/// A minimisation: columns, rows, and the entries of the matrix by column.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Problem {
    /// Cost of each column.
    pub cost: Vec<f64>,
    /// Least value of each column.
    pub lower: Vec<f64>,
    /// Largest value of each column.
    pub upper: Vec<f64>,
    /// Whether each column must be whole.
    pub integer: Vec<bool>,
    /// Least value of each row.
    pub row_lower: Vec<f64>,
    /// Largest value of each row.
    pub row_upper: Vec<f64>,
    /// Row and coefficient of the entries of each column.
    pub entries: Vec<Vec<(usize, f64)>>,
}

/// A call that HiGHS refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// A value of an option.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Setting {
    /// On or off.
    Switch(bool),
    /// A whole number.
    Int(i32),
    /// A number.
    Real(f64),
    /// A word.
    Word(&'static CStr),
}

/// How a solve ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Solved.
    Optimal,
    /// No point meets all rows, or the objective has no bound and HiGHS did not tell which.
    Infeasible,
    /// The time is up.
    TimeLimit,
    /// The flag of [`Model::stop_at`] was set.
    Interrupted,
    /// Nodes, solutions or iterations are used up.
    NodeLimit,
    /// Anything else, by HiGHS' number (`kHighsModelStatus...`).
    Other(i32),
}

/// A model inside HiGHS.
#[derive(Debug)]
pub struct Model {
    highs: NonNull<c_void>,
    columns: usize,
    rows: usize,
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Highs_create` and is destroyed once.
        unsafe { Highs_destroy(self.highs.as_ptr()) }
    }
}

/// What HiGHS numbers with: 32 bits.
fn number(n: usize) -> Result<c_int, Refused> {
    c_int::try_from(n).map_err(|_| Refused(format!("the model has {n} of something, more than HiGHS can number")))
}

/// Whether a call went well; a warning is none of ours.
fn check(status: c_int, call: &str) -> Result<(), Refused> {
    const OK: c_int = 0;
    const WARNING: c_int = 1;
    if status == OK || status == WARNING { Ok(()) } else { Err(Refused(format!("{call} failed"))) }
}

impl Model {
    /// Passes a problem.
    ///
    /// # Errors
    /// When its lists do not fit together, or HiGHS refuses it.
    pub fn new(problem: &Problem) -> Result<Self, Refused> {
        let (columns, rows) = (problem.cost.len(), problem.row_lower.len());
        let fit = [problem.lower.len(), problem.upper.len(), problem.integer.len(), problem.entries.len()]
            .iter()
            .all(|n| *n == columns);
        if !fit || problem.row_upper.len() != rows || problem.entries.iter().flatten().any(|(row, _)| *row >= rows) {
            return Err(Refused("the lists of the model do not fit together".into()));
        }
        let (mut start, mut index, mut value) = (vec![0], Vec::new(), Vec::new());
        for column in &problem.entries {
            for (row, coefficient) in column {
                index.push(number(*row)?);
                value.push(*coefficient);
            }
            start.push(number(index.len())?);
        }
        let integrality: Vec<c_int> = problem.integer.iter().map(|whole| c_int::from(*whole)).collect();
        let (wide, high, entries) = (number(columns)?, number(rows)?, number(index.len())?);
        const BY_COLUMN: c_int = 1;
        const MINIMISE: c_int = 1;
        let mut model = Self::empty()?;
        (model.columns, model.rows) = (columns, rows);
        let highs = model.highs;
        // SAFETY: all lists have the lengths that are passed (checked above; `start` has one more than there are columns),
        // all indices are of rows, and HiGHS copies them during the call.
        let status = unsafe {
            let (cost, lower, upper) = (problem.cost.as_ptr(), problem.lower.as_ptr(), problem.upper.as_ptr());
            let (row_lower, row_upper) = (problem.row_lower.as_ptr(), problem.row_upper.as_ptr());
            let (start, index, value) = (start.as_ptr(), index.as_ptr(), value.as_ptr());
            let highs = highs.as_ptr();
            if problem.integer.contains(&true) {
                let kinds = integrality.as_ptr();
                Highs_passMip(
                    highs, wide, high, entries, BY_COLUMN, MINIMISE, 0.0, cost, lower, upper, row_lower, row_upper,
                    start, index, value, kinds,
                )
            } else {
                Highs_passLp(
                    highs, wide, high, entries, BY_COLUMN, MINIMISE, 0.0, cost, lower, upper, row_lower, row_upper,
                    start, index, value,
                )
            }
        };
        check(status, "passing the model")?;
        Ok(model)
    }

    /// Without columns and rows. Nothing of HiGHS' own is printed.
    fn empty() -> Result<Self, Refused> {
        // SAFETY: HiGHS returns a new instance.
        let highs = NonNull::new(unsafe { Highs_create() }).ok_or_else(|| Refused("HiGHS did not start".into()))?;
        let mut model = Self { highs, columns: 0, rows: 0 };
        model.set(c"output_flag", Setting::Switch(false))?;
        model.set(c"log_to_console", Setting::Switch(false))?;
        Ok(model)
    }

    /// Reads a problem from a file with HiGHS' own readers; the name ends in `.mps` or `.lp`.
    ///
    /// # Errors
    /// When HiGHS refuses it, or remarks on it.
    pub fn read(path: &Path) -> Result<Self, Refused> {
        let name = path.to_str().and_then(|text| CString::new(text).ok());
        let name = name.ok_or_else(|| Refused(format!("{} is no name that HiGHS can be given", path.display())))?;
        let mut model = Self::empty()?;
        let highs = model.highs.as_ptr();
        // SAFETY: a live instance, borrowed mutably; the name is NUL-terminated.
        let status = unsafe { Highs_readModel(highs, name.as_ptr()) };
        const OK: c_int = 0;
        if status != OK {
            return Err(Refused(format!("HiGHS does not read {}", path.display())));
        }
        // SAFETY: a live instance.
        let (columns, rows) = unsafe { (Highs_getNumCol(highs), Highs_getNumRow(highs)) };
        model.columns = usize::try_from(columns).unwrap_or(0);
        model.rows = usize::try_from(rows).unwrap_or(0);
        Ok(model)
    }

    /// Sets an option.
    ///
    /// # Errors
    /// When HiGHS has no such option, or not with such a value.
    pub fn set(&mut self, option: &CStr, value: Setting) -> Result<(), Refused> {
        let (highs, name) = (self.highs.as_ptr(), option.as_ptr());
        // SAFETY: a live instance, borrowed mutably; name and word are NUL-terminated and copied during the call.
        let status = unsafe {
            match value {
                Setting::Switch(on) => Highs_setBoolOptionValue(highs, name, c_int::from(on)),
                Setting::Int(v) => Highs_setIntOptionValue(highs, name, v),
                Setting::Real(v) => Highs_setDoubleOptionValue(highs, name, v),
                Setting::Word(v) => Highs_setStringOptionValue(highs, name, v.as_ptr()),
            }
        };
        check(status, &format!("option {} = {value:?}", option.to_string_lossy()))
    }

    /// A point to start from.
    ///
    /// # Errors
    /// When it has not one value a column, or HiGHS refuses it.
    pub fn start_from(&mut self, columns: &[f64]) -> Result<(), Refused> {
        if columns.len() != self.columns {
            return Err(Refused(format!("a start of {} columns, where the model has {}", columns.len(), self.columns)));
        }
        let none = std::ptr::null();
        // SAFETY: a live instance, borrowed mutably; the list has one value a column and is copied during the call; HiGHS
        // takes null for what is not given.
        check(
            unsafe { Highs_setSolution(self.highs.as_ptr(), columns.as_ptr(), none, none, none) },
            "the starting point",
        )
    }

    /// Ends the solve once a flag is set: HiGHS looks at it in each iteration of the simplex method and at each node of the search.
    ///
    /// # Errors
    /// When HiGHS refuses it.
    pub fn stop_at(&mut self, flag: &'static AtomicBool) -> Result<(), Refused> {
        const SIMPLEX: c_int = 1;
        const MIP: c_int = 6;
        let highs = self.highs.as_ptr();
        // SAFETY: a live instance, borrowed mutably; the flag lives as long as the program, and `look` only reads it.
        check(
            unsafe { Highs_setCallback(highs, Some(look), from_ref(flag).cast_mut().cast()) },
            "the look at interruptions",
        )?;
        for kind in [SIMPLEX, MIP] {
            // SAFETY: a live instance.
            check(unsafe { Highs_startCallback(highs, kind) }, "the look at interruptions")?;
        }
        Ok(())
    }

    /// Solves it.
    ///
    /// # Errors
    /// When HiGHS fails.
    pub fn run(&mut self) -> Result<Ended, Refused> {
        // SAFETY: a live instance, borrowed mutably.
        check(unsafe { Highs_run(self.highs.as_ptr()) }, "solving")?;
        // SAFETY: a live instance.
        let status = unsafe { Highs_getModelStatus(self.highs.as_ptr()) };
        Ok(match status {
            // Optimal, or as good as was asked for, or without rows and columns.
            6 | 7 | 11 | 12 => Ended::Optimal,
            8 | 9 => Ended::Infeasible,
            13 => Ended::TimeLimit,
            14 | 16 => Ended::NodeLimit,
            17 => Ended::Interrupted,
            other => Ended::Other(other),
        })
    }

    /// Whether a point that meets all rows was found.
    pub fn is_feasible(&self) -> bool {
        const FEASIBLE: c_int = 2;
        let mut value = 0;
        // SAFETY: a live instance; the value is written to a local of the documented type.
        let status =
            unsafe { Highs_getIntInfoValue(self.highs.as_ptr(), c"primal_solution_status".as_ptr(), &raw mut value) };
        check(status, "").is_ok() && value == FEASIBLE
    }

    /// A figure of the solve, such as `objective_function_value` or `mip_dual_bound`.
    ///
    /// # Errors
    /// When HiGHS has no such figure.
    pub fn figure(&self, name: &CStr) -> Result<f64, Refused> {
        let mut value = 0.0;
        // SAFETY: a live instance; the name is NUL-terminated; the value is written to a local of the documented type.
        let status = unsafe { Highs_getDoubleInfoValue(self.highs.as_ptr(), name.as_ptr(), &raw mut value) };
        check(status, &name.to_string_lossy())?;
        Ok(value)
    }

    /// Nodes of the search, where there was one.
    pub fn nodes(&self) -> Option<u64> {
        let mut nodes: i64 = -1;
        // SAFETY: as above; HiGHS keeps this figure in 64 bits.
        let status =
            unsafe { Highs_getInt64InfoValue(self.highs.as_ptr(), c"mip_node_count".as_ptr(), &raw mut nodes) };
        check(status, "").ok().and_then(|()| u64::try_from(nodes).ok())
    }

    /// Values of the columns, once [`Self::is_feasible`].
    ///
    /// # Errors
    /// When HiGHS has none.
    pub fn columns(&self) -> Result<Vec<f64>, Refused> {
        let (mut columns, mut column_duals) = (vec![0.0; self.columns], vec![0.0; self.columns]);
        let (mut rows, mut row_duals) = (vec![0.0; self.rows], vec![0.0; self.rows]);
        // SAFETY: a live instance; the lists are as long as the model has columns and rows.
        let status = unsafe {
            Highs_getSolution(
                self.highs.as_ptr(),
                columns.as_mut_ptr(),
                column_duals.as_mut_ptr(),
                rows.as_mut_ptr(),
                row_duals.as_mut_ptr(),
            )
        };
        check(status, "reading the solution")?;
        Ok(columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knapsack by hand: values 6, 5, 4 (as negative costs), weights 3, 2, 2, capacity 4: take the last two, -9.
    #[test]
    fn a_knapsack_by_hand() {
        let mut problem = Problem::default();
        for (value, weight) in [(6.0, 3.0), (5.0, 2.0), (4.0, 2.0)] {
            problem.cost.push(-value);
            problem.lower.push(0.0);
            problem.upper.push(1.0);
            problem.integer.push(true);
            problem.entries.push(vec![(0, weight)]);
        }
        problem.row_lower.push(f64::NEG_INFINITY);
        problem.row_upper.push(4.0);
        let mut model = Model::new(&problem).unwrap();
        assert_eq!(model.run(), Ok(Ended::Optimal));
        assert!(model.is_feasible());
        assert!((model.figure(c"objective_function_value").unwrap() + 9.0).abs() < 1e-9);
        assert_eq!(model.columns().unwrap().iter().map(|v| v.round()).collect::<Vec<_>>(), [0.0, 1.0, 1.0]);
        assert!(model.nodes().is_some());
        // Without whole numbers nothing is better: what is left beside the second is worth 2 a unit of weight in either.
        problem.integer.fill(false);
        let mut model = Model::new(&problem).unwrap();
        assert_eq!(model.run(), Ok(Ended::Optimal));
        assert!((model.figure(c"objective_function_value").unwrap() + 9.0).abs() < 1e-9);
    }

    #[test]
    fn a_flag_ends_the_solve() {
        static FLAG: AtomicBool = AtomicBool::new(false);
        // Twelve things of unlike weight and value in a sack: more than presolve settles.
        let mut problem = Problem::default();
        for i in 0..12_u32 {
            problem.cost.push(-f64::from(17 + i * i % 13));
            problem.lower.push(0.0);
            problem.upper.push(1.0);
            problem.integer.push(true);
            problem.entries.push(vec![(0, f64::from(19 + i * 7 % 11)), (1, f64::from(11 + i * 5 % 17))]);
        }
        problem.row_lower = vec![f64::NEG_INFINITY; 2];
        problem.row_upper = vec![101.0, 83.0];
        let ended = |flag| {
            FLAG.store(flag, Ordering::Relaxed);
            let mut model = Model::new(&problem).unwrap();
            model.stop_at(&FLAG).unwrap();
            model.run()
        };
        assert_eq!(ended(false), Ok(Ended::Optimal));
        assert_eq!(ended(true), Ok(Ended::Interrupted));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let mut problem = Problem { cost: vec![1.0], lower: vec![0.0], upper: vec![1.0], ..Problem::default() };
        assert!(Model::new(&problem).is_err());
        problem.integer.push(true);
        problem.entries.push(vec![(0, 1.0)]);
        assert!(Model::new(&problem).is_err(), "a row that is not there");
        problem.row_lower.push(2.0);
        problem.row_upper.push(f64::INFINITY);
        let mut model = Model::new(&problem).unwrap();
        assert!(model.start_from(&[0.0, 0.0]).is_err());
        assert!(model.set(c"no_such_option", Setting::Int(1)).is_err());
        assert_eq!(model.run(), Ok(Ended::Infeasible));
    }
}
