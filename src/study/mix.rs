//! Several workloads at once: each design is solved for all of them, and has one row more, the weighted mean.
//!
//! The workloads are the values of an axis of their own, [`AXIS`], which stands before the others; its last value is the mix. With v_i what a
//! search finds of a column at task i, and w_i its weight over the sum of the weights:
//!
//! ```text
//! geometric   rates and times   prod v_i^w_i
//! harmonic    rates             1 / sum w_i / v_i      w_i samples (tokens, FLOP) of task i, one after another
//!             times             sum w_i v_i            w_i iterations of task i
//! ```
//!
//! All of them rise with every v_i and are k times as large where every v_i is; so what bounds the tasks bounds the mix, and what the
//! search of a front knows of one workload (`front/known.rs`) it knows of the mix. A design without a plan for one task has none for the mix.

use super::axis::{Axis, AxisValue, Override};
use super::field::{FieldPath, Root};
use super::grid::Study;
use super::spec::StudySpec;
use super::store::{Key, Solved};
use crate::report::csv::{COLUMNS, FAILED, INFEASIBLE, number};
use crate::spec::{Node, Reader, Value};
use csv::StringRecord;

/// Name of the axis of the workloads.
pub const AXIS: &str = "task";
/// Label of the mean of all of them.
pub const MIX: &str = "mix";

crate::choice! {
    /// What stands for several workloads.
    pub enum Mean ("a mean") {
        /// The weighted geometric mean of rates: what is twice as fast on one task and half as fast on another of the same weight is as good.
        Geometric = "geometric",
        /// The weighted harmonic mean of rates: the tasks run one after another, the weights are amounts (of samples, tokens, FLOP).
        Harmonic = "harmonic",
    }
}

crate::spec! {
    /// One of several workloads.
    pub struct TaskSpec ("a weighted workload") {
        /// What rows call it; left out, the workload's own name.
        name: Option<crate::spec::read::Name>,
        /// The workload.
        workload: super::spec::WorkloadTree,
        /// Its weight, relative to the others'.
        weight: f64 = 1.0,
    }
}

impl TaskSpec {
    fn label(&self) -> Option<String> {
        let own = match self.workload.0.get("name").map(|name| &name.value) {
            Some(Value::Scalar { text, .. }) => Some(text.clone()),
            _ => None,
        };
        self.name.as_ref().map(|name| name.0.clone()).or(own)
    }
}

/// What is wrong with the workloads of a study.
pub(super) fn check(study: &StudySpec, node: &Node, reader: &mut Reader) {
    let tasks = node.get("workloads");
    if study.workloads.is_empty() {
        if let Some(at) = node.get("mean") {
            reader.within("mean", |r| r.problem(at, "there is one workload; `workloads` has several"));
        }
        if let Some(at) = tasks {
            reader.within("workloads", |r| r.problem(at, "the list is empty; give at least two, or one as `workload`"));
        }
        return;
    }
    let at = tasks.unwrap_or(node);
    if let Some(one) = node.get("workload") {
        reader.within("workload", |r| r.problem(one, "`workloads` states them all; take one of the two out"));
    }
    if study.solve.place.is_some() {
        reader.within("workloads", |r| r.problem(at, "placements are not mixed; place one workload at a time"));
    }
    if let Some(at) = node.get("sample") {
        reader.within("sample", |r| {
            r.problem(at, "each design is solved for all of `workloads`, which a sample of points is not; take one of the two out");
        });
    }
    if let Some(i) = study.axes.iter().position(|axis| axis.name.0 == AXIS) {
        reader.within(format!("axes.[{i}].name"), |r| {
            r.problem(at, format!("{AXIS:?} is the axis of `workloads`; choose another name"));
        });
    }
    let items = match &at.value {
        Value::List(items) => items.as_slice(),
        _ => &[],
    };
    let mut seen: Vec<String> = vec![MIX.into()];
    for (i, task) in study.workloads.iter().enumerate() {
        let item = items.get(i).unwrap_or(at);
        reader.within(format!("workloads.[{i}]"), |r| {
            if task.weight <= 0.0 {
                let weight = item.get("weight").unwrap_or(item);
                r.within("weight", |r| {
                    r.problem(weight, format!("expected more than zero, found {}", weight.describe()));
                });
            }
            match task.label() {
                None => r.within("name", |r| r.problem(item, "missing; the workload has no name of its own")),
                Some(label) if seen.contains(&label) => r.within("name", |r| {
                    r.problem(item, format!("{label:?} stands twice or is the name of the mean; give another"));
                }),
                Some(label) => seen.push(label),
            }
        });
    }
}

/// The axis of the workloads.
pub(super) fn axis(study: &StudySpec) -> Option<Axis> {
    let value = |task: &super::mix::TaskSpec| {
        let value = task.workload.0.clone();
        let path = FieldPath { root: Root::Workload, segments: Vec::new() };
        let origin = value.origin.clone();
        AxisValue { label: task.label().unwrap_or_default(), overrides: vec![Override { path, value, origin }] }
    };
    let mut values: Vec<AxisValue> = study.workloads.iter().map(value).collect();
    // The mix has a system of its own alone; what it is built with is no part of it.
    values.push(AxisValue { label: MIX.into(), overrides: Vec::new() });
    let mixed = !study.workloads.is_empty();
    mixed.then_some(Axis { name: AXIS.into(), values, ranks: None, rates: None, continuous: false, mixes: true })
}

impl Study {
    /// The points whose mean a point is; none of a point that is solved itself.
    pub fn mixed(&self, index: u64) -> Option<Vec<u64>> {
        let axis = self.axes.first().filter(|axis| axis.mixes)?;
        let tasks = axis.values.len() as u64 - 1;
        let designs = self.count()? / (tasks + 1);
        let design = index.checked_sub(tasks * designs).filter(|design| *design < designs)?;
        Some((0..tasks).map(|task| task * designs + design).collect())
    }

    /// The axes as they are searched: of the tasks the mix alone.
    pub(super) fn searched(&self) -> impl Iterator<Item = (&Axis, usize)> {
        self.axes.iter().map(|axis| (axis, if axis.mixes { 1 } else { axis.values.len() }))
    }
}

/// Columns that are rates and times of what a search finds, or rates by what the system states; and whether they are times.
const MEANS: [(&str, bool); 10] = [
    ("samples_per_s", false),
    ("tokens_per_s", false),
    ("flop_per_s", false),
    ("iteration_s", true),
    ("samples_per_s_per_musd", false),
    ("samples_per_s_per_mw", false),
    ("tokens_per_s_per_usd", false),
    ("tokens_per_s_per_w", false),
    ("flop_per_s_per_usd", false),
    ("flop_per_s_per_w", false),
];

fn mean(mean: Mean, time: bool, values: &[(f64, f64)]) -> f64 {
    let weights: f64 = values.iter().map(|(weight, _)| weight).sum();
    let sum = |of: fn(f64) -> f64| values.iter().map(|(weight, value)| weight * of(*value)).sum::<f64>() / weights;
    match (mean, time) {
        (Mean::Geometric, _) => sum(f64::ln).exp(),
        (Mean::Harmonic, true) => sum(|value| value),
        (Mean::Harmonic, false) => 1.0 / sum(|value| 1.0 / value),
    }
}

/// The key of a mix: of those of its tasks.
///
/// # Errors
/// Why a task cannot be built.
pub(super) fn key(study: &Study, index: u64) -> Result<Key, String> {
    let parts = study.mixed(index).unwrap_or_default();
    let of = |part: u64| study.point(part).map_err(|problems| problems.to_string()).and_then(|point| Key::of(&point));
    let keys = parts.into_iter().map(of).collect::<Result<Vec<Key>, String>>()?;
    let weights: Vec<f64> = study.spec.workloads.iter().map(|task| task.weight).collect();
    Ok(Key::of_mix(&keys, &format!("{} {weights:?}", study.spec.mean)))
}

/// The row of a mix, from those of its tasks.
pub(super) fn row(study: &StudySpec, rows: &[Solved]) -> Solved {
    let of = |column: &str| rows.iter().map(|row| row.get(column)).collect::<Vec<_>>();
    let label = |at: usize| study.workloads[at].label().unwrap_or_default();
    let statuses = of("status");
    // The first that says why there is no plan.
    let without = [FAILED, INFEASIBLE].into_iter().find_map(|word| statuses.iter().position(|status| *status == word));
    let status = statuses.iter().find(|status| **status != "optimal").copied().unwrap_or("optimal");
    let weighted = |column: &str| -> Option<Vec<(f64, f64)>> {
        let values = of(column).into_iter().map(|text| text.parse::<f64>().ok());
        study.workloads.iter().zip(values).map(|(task, value)| Some((task.weight, value?))).collect()
    };
    let column = |name: &'static str| -> String {
        let all = of(name);
        if name == "workload" {
            return MIX.into();
        }
        if let Some(at) = without {
            return match name {
                "status" => statuses[at].into(),
                "reason" => format!("{}: {}", label(at), all[at]),
                _ if name.starts_with("short_") => all[at].into(),
                _ if is_system(name) && all.windows(2).all(|pair| pair[0] == pair[1]) => all[0].into(),
                _ => String::new(),
            };
        }
        if let Some((_, time)) = MEANS.iter().find(|(mean, _)| *mean == name) {
            let values = weighted(name);
            return values.map_or(String::new(), |values| number(mean(study.mean, *time, &values)));
        }
        match name {
            "status" => status.into(),
            // Whatever the mean, its least is no further below it than that of the task with the largest gap.
            "gap" => weighted(name).map_or(String::new(), |gaps| number(gaps.iter().fold(0.0, |a, (_, b)| b.max(a)))),
            "reproducible" if all.contains(&"false") => "false".into(),
            _ if all.windows(2).all(|pair| pair[0] == pair[1]) => all[0].into(),
            _ => String::new(),
        }
    };
    let values: StringRecord = COLUMNS.iter().map(|c| column(c.name)).collect::<Vec<_>>().into();
    Solved { values: values.into(), solve_s: 0.0 }
}

/// Whether a column says something of the system, which tasks share.
fn is_system(name: &str) -> bool {
    COLUMNS.iter().any(|column| column.name == name && column.is_of_system())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates of 2 and 8 with weights 1 and 1: geometric 4, harmonic 3.2; with 3 and 1: 2^(3/4) 8^(1/4), and 4 / (3/2 + 1/8).
    #[test]
    fn means_by_hand() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        close(mean(Mean::Geometric, false, &[(1.0, 2.0), (1.0, 8.0)]), 4.0);
        close(mean(Mean::Harmonic, false, &[(1.0, 2.0), (1.0, 8.0)]), 3.2);
        close(mean(Mean::Geometric, true, &[(3.0, 2.0), (1.0, 8.0)]), 2f64.powf(1.5));
        close(mean(Mean::Harmonic, false, &[(3.0, 2.0), (1.0, 8.0)]), 4.0 / 1.625);
        close(mean(Mean::Harmonic, true, &[(3.0, 0.5), (1.0, 0.125)]), 1.625 / 4.0);
    }
}
