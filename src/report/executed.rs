//! What a row says of a point that is an execution of a language model, or its serving: the same columns as of a mapped graph where they mean the same,
//! and those that only these have.

use crate::execution::memory::MemoryByKind;
use crate::execution::search::Aim;
use crate::execution::{Found, Prediction, inference};
use crate::mapping::difference::Difference;
use crate::model::energy::Energy;
use crate::place::replicas::Point;
use crate::place::{Figures, Objective, Solved};
use crate::system::economics::{Economics, Spent};
use crate::system::{System, price};

/// A point whose executions were searched.
#[derive(Debug, Clone, PartialEq)]
pub struct Executed {
    /// The best of them.
    pub prediction: Prediction,
    /// What proves it.
    pub found: Found,
    /// What running costs.
    pub economics: Economics,
    /// Iterations of the run, where one is stated.
    pub iterations: Option<f64>,
    /// Mean absolute error that measured runs of this class may have, in per cent.
    pub error_band_pct: Option<f64>,
    /// What it stands for: the stack's name, `ideal` or `free`.
    pub software: String,
    /// What software takes beside it, where that was asked for.
    pub difference: Option<Difference>,
}

impl Executed {
    /// Seconds that a step from the software to what is possible saves.
    fn saved(&self, what: &str) -> f64 {
        let steps = self.difference.iter().flat_map(|d| &d.steps);
        steps.filter(|step| step.what == what).map(|step| step.saves).next().unwrap_or(f64::NAN)
    }

    /// Joules of an iteration, or of something that they are counted by; not a number where the power of the chips is not known.
    fn joules(&self, system: &System, of: impl Fn(&Energy) -> f64) -> f64 {
        price::power(system).if_known(of(&self.prediction.energy))
    }

    fn spent(&self, system: &System) -> Spent {
        let joules = self.joules(system, Energy::total);
        self.economics.iteration(price::cost(system).known(), self.prediction.time.total, joules)
    }

    fn iterations(&self) -> f64 {
        self.iterations.unwrap_or(f64::NAN)
    }
}

/// A point whose layouts for serving a batch were searched.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    /// The best of them.
    pub prediction: inference::Prediction,
    /// How many there were.
    pub layouts: u64,
    /// Whether a limit of seconds stopped the search: there may be a better one.
    pub stopped: bool,
    /// As of [`Executed`].
    pub error_band_pct: Option<f64>,
    /// What was minimised.
    pub aim: Aim,
    /// What running costs.
    pub economics: Economics,
}

impl Served {
    /// What was minimised, of the batch.
    fn value(&self) -> f64 {
        self.prediction.value(&self.aim.worth)
    }

    /// Joules of the batch, or of something that they are counted by; not a number where the power of the chips is not known.
    fn joules(&self, system: &System, of: impl Fn(&Energy) -> f64) -> f64 {
        price::power(system).if_known(of(&self.prediction.energy))
    }

    fn spent(&self, system: &System) -> Spent {
        let joules = self.joules(system, Energy::total);
        self.economics.iteration(price::cost(system).known(), self.prediction.latency_s, joules)
    }
}

/// A point whose actors were placed on cores.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// Actors of all replicas.
    pub actors: usize,
    /// Cores there are.
    pub cores: usize,
    /// Their name.
    pub cores_name: String,
    /// What follows from the placement.
    pub figures: Figures,
    /// The best answer and its bound.
    pub best: Solved,
    /// Throughput and latency.
    pub point: Point,
    /// What was minimised.
    pub minimise: Objective,
}

/// A value of a point.
enum Value<T> {
    Number(fn(&T, &System) -> f64),
    Text(fn(&T) -> String),
}

/// Values by column; other columns of plans are empty.
const VALUES: &[(&str, Value<Executed>)] = &[
    ("used_chips", Value::Number(|x, _| x.prediction.execution.chips() as f64)),
    ("tp", Value::Number(|x, _| x.prediction.execution.tp as f64)),
    ("pp", Value::Number(|x, _| x.prediction.execution.pp as f64)),
    ("dp", Value::Number(|x, _| x.prediction.execution.dp as f64)),
    ("cp", Value::Number(|x, _| x.prediction.execution.cp as f64)),
    ("ep", Value::Number(|x, _| x.prediction.execution.ep as f64)),
    ("micro_batch", Value::Number(|x, _| x.prediction.execution.micro_batch as f64)),
    ("microbatches", Value::Number(|x, _| x.prediction.microbatches as f64)),
    ("iteration_s", Value::Number(|x, _| x.prediction.time.total)),
    ("gap", Value::Number(|x, _| x.found.gap())),
    ("proof", Value::Text(|_| "executions".into())),
    ("samples_per_s", Value::Number(|x, _| x.prediction.samples_per_s)),
    ("utilization", Value::Number(|x, s| x.prediction.model_flop_utilization * used(x, s))),
    ("hardware_utilization", Value::Number(|x, s| x.prediction.hardware_flop_utilization * used(x, s))),
    ("flop_per_iteration", Value::Number(|x, _| x.prediction.model_flop)),
    ("flop_per_s", Value::Number(|x, _| flop_rate(x))),
    ("flop_per_s_per_usd", Value::Number(|x, s| flop_rate(x) / price::cost(s).known())),
    ("flop_per_s_per_w", Value::Number(|x, s| flop_rate(x) / price::power(s).known())),
    ("bubble_s", Value::Number(|x, _| x.prediction.time.bubble)),
    ("p2p_s", Value::Number(|x, _| x.prediction.time.hand_over)),
    ("gradient_s", Value::Number(|x, _| x.prediction.time.dp)),
    ("optimizer_s", Value::Number(|x, _| x.prediction.time.optimizer)),
    ("forward_s", Value::Number(|x, _| x.prediction.time.forward)),
    ("backward_s", Value::Number(|x, _| x.prediction.time.backward)),
    ("recompute_s", Value::Number(|x, _| x.prediction.time.recompute)),
    ("exposed_tp_s", Value::Number(|x, _| x.prediction.time.tp)),
    ("exposed_cp_s", Value::Number(|x, _| x.prediction.time.cp)),
    ("exposed_ep_s", Value::Number(|x, _| x.prediction.time.ep)),
    ("hidden_s", Value::Number(|x, _| x.prediction.time.hidden)),
    ("host_s", Value::Number(|x, _| x.prediction.time.host)),
    ("offload_s", Value::Number(|x, _| x.prediction.time.offload)),
    ("weights_bytes", Value::Number(|x, _| x.prediction.memory.device.weights)),
    ("gradients_bytes", Value::Number(|x, _| x.prediction.memory.device.gradients)),
    ("optimizer_bytes", Value::Number(|x, _| x.prediction.memory.device.optimizer)),
    ("activations_bytes", Value::Number(|x, _| x.prediction.memory.device.activations)),
    ("total_bytes", Value::Number(|x, _| x.prediction.memory.device.total())),
    ("other_bytes", Value::Number(|x, _| others(&x.prediction.memory.device))),
    ("second_tier_bytes", Value::Number(|x, _| x.prediction.memory.second_tier)),
    ("samples_per_s_per_musd", Value::Number(|x, s| x.prediction.samples_per_s / (price::cost(s).known() / 1e6))),
    ("samples_per_s_per_mw", Value::Number(|x, s| x.prediction.samples_per_s / (price::power(s).known() / 1e6))),
    ("tokens_per_s", Value::Number(|x, _| x.prediction.tokens_per_s)),
    ("tokens_per_s_per_usd", Value::Number(|x, s| x.prediction.tokens_per_s / price::cost(s).known())),
    ("tokens_per_s_per_w", Value::Number(|x, s| x.prediction.tokens_per_s / price::power(s).known())),
    ("reproducible", Value::Text(|x| (!x.found.stopped || x.found.spent).to_string())),
    ("minimized", Value::Text(|x| x.found.objective.to_string())),
    ("objective", Value::Number(|x, _| x.found.value)),
    ("bound", Value::Number(|x, _| x.found.bound)),
    ("objective_unit", Value::Text(|x| x.found.objective.unit().into())),
    ("energy_j", Value::Number(|x, s| x.joules(s, Energy::total))),
    ("energy_chips_j", Value::Number(|x, s| x.joules(s, |e| e.parts().chips))),
    ("energy_memory_j", Value::Number(|x, s| x.joules(s, |e| e.parts().memory))),
    ("energy_links_j", Value::Number(|x, s| x.joules(s, |e| e.parts().links))),
    ("energy_switches_j", Value::Number(|x, s| x.joules(s, |e| e.parts().switches))),
    ("energy_idle_j", Value::Number(|x, s| x.joules(s, |e| e.idle.total()))),
    ("mean_power_w", Value::Number(|x, s| x.joules(s, Energy::total) / x.prediction.time.total)),
    ("j_per_sample", Value::Number(|x, s| x.joules(s, |_| x.prediction.j_per_sample()))),
    ("j_per_token", Value::Number(|x, s| x.joules(s, |_| x.prediction.j_per_token()))),
    ("iteration_usd", Value::Number(|x, s| x.spent(s).total())),
    ("iteration_capital_usd", Value::Number(|x, s| x.spent(s).capital)),
    ("iteration_energy_usd", Value::Number(|x, s| x.spent(s).energy)),
    ("run_iterations", Value::Number(|x, _| x.iterations())),
    ("run_s", Value::Number(|x, _| x.iterations() * x.prediction.time.total)),
    ("run_kwh", Value::Number(|x, s| x.iterations() * x.joules(s, Energy::total) / 3.6e6)),
    ("run_usd", Value::Number(|x, s| x.iterations() * x.spent(s).total())),
    ("software", Value::Text(|x| x.software.clone())),
    ("software_iteration_s", Value::Number(|x, _| x.difference.as_ref().map_or(f64::NAN, |d| d.taken.time.total))),
    ("saved_host_s", Value::Number(|x, _| x.saved("host"))),
    ("saved_fusion_s", Value::Number(|x, _| x.saved("fusion"))),
    ("saved_sharding_s", Value::Number(|x, _| x.saved("sharding"))),
    ("saved_overlap_s", Value::Number(|x, _| x.saved("overlap"))),
    ("saved_recomputation_s", Value::Number(|x, _| x.saved("recomputation"))),
    ("saved_schedule_s", Value::Number(|x, _| x.saved("schedule"))),
    ("saved_degrees_s", Value::Number(|x, _| x.saved("degrees"))),
    ("saved_mapping_s", Value::Number(|x, _| x.saved("mapping and decisions"))),
    ("schedule", Value::Text(|x| x.prediction.execution.schedule.to_string())),
    ("chunks", Value::Number(|x, _| x.prediction.execution.chunks as f64)),
    ("recompute", Value::Text(|x| x.prediction.execution.recompute.to_string())),
    ("sequence_parallel", Value::Text(|x| x.prediction.execution.sequence_parallel.to_string())),
    ("zero", Value::Text(|x| x.prediction.execution.zero.to_string())),
    ("offload", Value::Text(|x| x.prediction.execution.offload.to_string())),
    ("overlap_dp", Value::Text(|x| x.prediction.execution.overlap_dp.to_string())),
    ("overlap_tp", Value::Text(|x| x.prediction.execution.overlap_tp.to_string())),
    ("executions", Value::Number(|x, _| x.found.covered as f64)),
    ("error_band_pct", Value::Number(|x, _| x.error_band_pct.unwrap_or(f64::NAN))),
];

/// No layout is better: the best of all, or, of a search that was stopped, nothing.
fn bound(x: &Served) -> f64 {
    if x.stopped { 0.0 } else { x.value() }
}

/// Generated tokens a second; none where nothing is generated.
fn rate(x: &Served) -> f64 {
    let generated = x.prediction.generated_per_s;
    if generated > 0.0 { generated } else { f64::NAN }
}

fn chips(x: &Served) -> f64 {
    let l = &x.prediction.layout;
    l.chips() as f64
}

/// Values by column of points that serve.
const SERVED: &[(&str, Value<Served>)] = &[
    ("tp", Value::Number(|x, _| x.prediction.layout.tp as f64)),
    ("pp", Value::Number(|x, _| x.prediction.layout.pp as f64)),
    ("dp", Value::Number(|x, _| x.prediction.layout.dp as f64)),
    ("ep", Value::Number(|x, _| x.prediction.layout.ep as f64)),
    ("iteration_s", Value::Number(|x, _| x.prediction.latency_s)),
    ("gap", Value::Number(|x, _| if x.stopped { 1.0 } else { 0.0 })),
    ("proof", Value::Text(|_| "layouts".into())),
    ("samples_per_s", Value::Number(|x, _| x.prediction.batch as f64 / x.prediction.latency_s)),
    ("tokens_per_s", Value::Number(|x, _| x.prediction.tokens_per_s)),
    ("tokens_per_s_per_usd", Value::Number(|x, s| x.prediction.tokens_per_s / price::cost(s).known())),
    ("tokens_per_s_per_w", Value::Number(|x, s| x.prediction.tokens_per_s / price::power(s).known())),
    ("weights_bytes", Value::Number(|x, _| x.prediction.memory.weights)),
    ("caches_bytes", Value::Number(|x, _| x.prediction.memory.cache)),
    ("live_bytes", Value::Number(|x, _| x.prediction.memory.buffers)),
    ("total_bytes", Value::Number(|x, _| x.prediction.memory.total())),
    ("reproducible", Value::Text(|x| (!x.stopped).to_string())),
    ("minimized", Value::Text(|x| x.aim.objective.to_string())),
    ("objective", Value::Number(|x, _| x.value())),
    ("bound", Value::Number(|x, _| bound(x))),
    ("objective_unit", Value::Text(|x| x.aim.objective.unit().into())),
    ("energy_j", Value::Number(|x, s| x.joules(s, Energy::total))),
    ("energy_chips_j", Value::Number(|x, s| x.joules(s, |e| e.parts().chips))),
    ("energy_memory_j", Value::Number(|x, s| x.joules(s, |e| e.parts().memory))),
    ("energy_links_j", Value::Number(|x, s| x.joules(s, |e| e.parts().links))),
    ("energy_switches_j", Value::Number(|x, s| x.joules(s, |e| e.parts().switches))),
    ("energy_idle_j", Value::Number(|x, s| x.joules(s, |e| e.idle.total()))),
    ("mean_power_w", Value::Number(|x, s| x.joules(s, Energy::total) / x.prediction.latency_s)),
    ("j_per_sample", Value::Number(|x, s| x.joules(s, Energy::total) / x.prediction.batch as f64)),
    (
        "j_per_token",
        Value::Number(|x, s| x.joules(s, Energy::total) / (x.prediction.tokens_per_s * x.prediction.latency_s)),
    ),
    ("j_per_generated_token", Value::Number(|x, s| x.joules(s, Energy::total) / (rate(x) * x.prediction.latency_s))),
    ("iteration_usd", Value::Number(|x, s| x.spent(s).total())),
    ("iteration_capital_usd", Value::Number(|x, s| x.spent(s).capital)),
    ("iteration_energy_usd", Value::Number(|x, s| x.spent(s).energy)),
    ("executions", Value::Number(|x, _| x.layouts as f64)),
    ("error_band_pct", Value::Number(|x, _| x.error_band_pct.unwrap_or(f64::NAN))),
    ("served_batch", Value::Number(|x, _| x.prediction.batch as f64)),
    ("served_at_once", Value::Number(|x, _| x.prediction.at_once as f64)),
    ("ttft_s", Value::Number(|x, _| x.prediction.ttft_s)),
    ("last_ttft_s", Value::Number(|x, _| x.prediction.last_ttft_s)),
    ("tpot_s", Value::Number(|x, _| x.prediction.tpot_s)),
    ("last_tpot_s", Value::Number(|x, _| x.prediction.last_tpot_s)),
    ("generated_per_s", Value::Number(|x, _| rate(x))),
    ("generated_per_s_per_chip", Value::Number(|x, _| rate(x) / chips(x))),
    ("generated_per_s_per_usd", Value::Number(|x, s| rate(x) / price::cost(s).known())),
    ("generated_per_s_per_w", Value::Number(|x, s| rate(x) / price::power(s).known())),
];

/// What a column shows of a placement.
type Placed = fn(&Placement) -> String;

const PLACED: &[(&str, Placed)] = &[
    ("gap", |x| super::csv::number(x.best.gap())),
    ("proof", |x| x.best.engine.into()),
    ("samples_per_s", |x| super::csv::number(x.point.throughput)),
    ("place_cores_name", |x| x.cores_name.clone()),
    ("place_cores", |x| super::csv::number(x.cores as f64)),
    ("place_cores_used", |x| super::csv::number(x.figures.used as f64)),
    ("place_actors", |x| super::csv::number(x.actors as f64)),
    ("place_replicas", |x| super::csv::number(x.point.replicas as f64)),
    ("minimized", |x| x.minimise.to_string()),
    ("objective", |x| super::csv::number(x.best.objective)),
    ("bound", |x| super::csv::number(x.best.bound)),
    ("place_bottleneck_s", |x| super::csv::number(x.figures.bottleneck_s)),
    ("place_imbalance", |x| super::csv::number(x.figures.imbalance)),
    ("place_across_s", |x| super::csv::number(x.figures.across_s)),
    ("place_cut_bytes", |x| super::csv::number(x.figures.cut_bytes)),
    ("place_latency_s", |x| super::csv::number(x.point.latency_s)),
];

fn find<T>(values: &[(&str, Value<T>)], column: &str, x: &T, system: &System) -> Option<String> {
    values.iter().find(|(name, _)| *name == column).map(|(_, value)| match value {
        Value::Number(f) => super::csv::number(f(x, system)),
        Value::Text(f) => f(x),
    })
}

/// Bytes that have no column of their own.
fn others(held: &MemoryByKind) -> f64 {
    held.total() - held.weights - held.gradients - held.optimizer - held.activations
}

/// The share of a system's chips that take part.
fn used(x: &Executed, system: &System) -> f64 {
    x.prediction.execution.chips() as f64 / system.chip_count() as f64
}

fn flop_rate(x: &Executed) -> f64 {
    x.prediction.model_flop / x.prediction.time.total
}

/// The value of a column; `None` where an execution has none.
pub fn value(column: &str, executed: &Executed, system: &System) -> Option<String> {
    find(VALUES, column, executed, system)
}

/// The value of a column; `None` where a placement has none.
pub fn placed(column: &str, placed: &Placement) -> Option<String> {
    PLACED.iter().find(|(name, _)| *name == column).map(|(_, value)| value(placed))
}

/// The value of a column; `None` where serving has none.
pub fn served(column: &str, served: &Served, system: &System) -> Option<String> {
    find(SERVED, column, served, system)
}

#[cfg(test)]
mod tests {
    use super::{PLACED, SERVED, VALUES};
    use crate::report::csv::COLUMNS;

    #[test]
    fn every_value_has_a_column() {
        for name in VALUES.iter().map(|v| v.0).chain(SERVED.iter().map(|v| v.0)).chain(PLACED.iter().map(|v| v.0)) {
            assert!(COLUMNS.iter().any(|c| c.name == name), "{name}");
        }
    }
}
