//! The independent checker: from a plan's decisions alone it derives time, bytes and memory again.
//!
//! It shares the definitions of the model (`model`: what a shard is, what a collective costs) with the search, and
//! nothing else: no formulation, no solver, no problem instance. It is written to be read, not to be fast: every
//! quantity is computed where it is used, from the workload, the system and the decisions. What is near what is listed
//! once (`index`), so that a graph of thousands of kernels takes seconds.
//!
//! A plan is correct when
//! 1. every kernel has an open strategy, in the group of chips that the network's dimensions give it, and the group can share
//!    every kernel; backward kernels use the shards of the weights they share; stages and replicas are no more than layers and samples;
//! 2. no kernel runs before a kernel whose output it reads; forward kernels run before backward ones, those of one block
//!    before those of the next, backward the other way; a chip that runs
//!    kernel by kernel has one kernel a partition;
//! 3. in each partition, what is on chip fits the SRAM: weights (all of the stage's, if they stay on chip; else those of
//!    the partition, whole, or in pieces if the kernel is alone), and for each
//!    tensor the largest buffer that its producer or a consumer there needs;
//! 4. the stages have all layers between them, none is empty, and on each of them weights, gradients, states, the activations of
//!    the microbatches in flight there and waiting tensors fit the DRAM;
//! 5. the plan's figures are those derived here, to a relative 1e-9.

use crate::graph::Workload;
use crate::model::collective::{GroupDimension, OwnGroups};
use crate::model::rate::{self, Rate, system_peak};
use crate::model::schedule::samples_per_pass;
use crate::plan::{Decisions, DimensionUse, Figures, Plan, TOLERANCE, agree, group_of, own_groups};
use crate::system::System;
use std::cell::OnceCell;

mod chip;
mod energy;
pub mod execution;
mod figures;
mod index;
mod rules;
pub mod serving;
mod stages;
mod traffic;

/// What a check found.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CheckError {
    /// The decisions break rules of the model, each named.
    #[error("the plan is not feasible:\n  {}", .0.join("\n  "))]
    Violations(Vec<String>),
    /// A figure of the plan is not what its decisions give.
    #[error("{what}: the plan says {plan:e}, its decisions give {derived:e}")]
    Mismatch {
        /// Which figure.
        what: String,
        /// The plan's.
        plan: f64,
        /// The derived one.
        derived: f64,
    },
}

/// Derives the figures of a plan again and compares.
///
/// # Errors
/// [`CheckError`]: broken rules, or the first figure that differs by more than [`TOLERANCE`].
pub fn verify(plan: &Plan) -> Result<(), CheckError> {
    let derived = derive(&plan.workload, &plan.system, &plan.decisions).map_err(CheckError::Violations)?;
    for (place, what, one, other) in pairs(&plan.figures, &derived) {
        if !agree(one, other, TOLERANCE) {
            let what = match place {
                Place::Plan => what.to_string(),
                Place::Partition(i) => format!("partition {i}, {what}"),
                Place::Stage(s) => format!("stage {s}, {what}"),
            };
            return Err(CheckError::Mismatch { what, plan: one, derived: other });
        }
    }
    Ok(())
}

/// What a figure is of.
enum Place {
    Plan,
    Partition(usize),
    Stage(usize),
}

/// Every figure of two accounts: its place, its name, and both values. The text is made where they differ.
fn pairs(a: &Figures, b: &Figures) -> Vec<(Place, &'static str, f64, f64)> {
    let mut out = vec![(Place::Plan, "number of partitions", a.partitions.len() as f64, b.partitions.len() as f64)];
    for (i, (x, y)) in a.partitions.iter().zip(&b.partitions).enumerate() {
        for (what, one, other) in [
            ("compute_s", x.compute_s, y.compute_s),
            ("dram_s", x.dram_s, y.dram_s),
            ("network_s", x.network_s, y.network_s),
            ("overhead_s", x.overhead_s, y.overhead_s),
            ("filling_s", x.filling_s, y.filling_s),
            ("time_s", x.time_s, y.time_s),
            ("sram_bytes", x.sram_bytes, y.sram_bytes),
            ("live_bytes", x.live_bytes, y.live_bytes),
            ("dram_bytes", x.dram_bytes, y.dram_bytes),
            ("flop", x.flop, y.flop),
            ("link_j", x.link_j, y.link_j),
        ] {
            out.push((Place::Partition(i), what, one, other));
        }
    }
    out.push((Place::Plan, "number of stages", a.stages.len() as f64, b.stages.len() as f64));
    for (s, (x, y)) in a.stages.iter().zip(&b.stages).enumerate() {
        for (what, one, other) in [
            ("layers", x.layers as f64, y.layers as f64),
            ("pass_s", x.pass_s, y.pass_s),
            ("hand_over_s", x.hand_over_s, y.hand_over_s),
            ("gradient_s", x.gradient_s, y.gradient_s),
            ("optimizer_s", x.optimizer_s, y.optimizer_s),
            ("bytes", x.memory.total(), y.memory.total()),
        ] {
            out.push((Place::Stage(s), what, one, other));
        }
    }
    for (what, one, other) in [
        ("layer_s", a.layer_s, b.layer_s),
        ("iteration_s", a.iteration_s(), b.iteration_s()),
        ("weights_bytes", a.memory.weights, b.memory.weights),
        ("total_bytes", a.memory.total(), b.memory.total()),
        ("utilization", a.utilization, b.utilization),
        ("cost_usd", a.cost.total(), b.cost.total()),
        ("power_w", a.power.total(), b.power.total()),
        ("energy_j", a.energy.total(), b.energy.total()),
        ("energy_chips_j", a.energy.parts().chips, b.energy.parts().chips),
        ("energy_memory_j", a.energy.parts().memory, b.energy.parts().memory),
        ("energy_links_j", a.energy.parts().links, b.energy.parts().links),
        ("energy_switches_j", a.energy.parts().switches, b.energy.parts().switches),
    ] {
        out.push((Place::Plan, what, one, other));
    }
    out
}

/// Everything the derivation reads.
struct Derivation<'a> {
    w: &'a Workload,
    system: &'a System,
    d: &'a Decisions,
    tp: u64,
    pp: u64,
    dp: u64,
    tp_group: Vec<GroupDimension>,
    pp_group: Vec<GroupDimension>,
    dp_group: Vec<GroupDimension>,
    own: OwnGroups,
    samples: f64,
    rate: Rate<'a>,
    index: index::Index<'a>,
    /// What [`Derivation::kept_bytes`] has found.
    kept: OnceCell<f64>,
}

/// Derives the figures of decisions.
///
/// # Errors
/// Every rule that the decisions break.
pub fn derive(workload: &Workload, system: &System, decisions: &Decisions) -> Result<Figures, Vec<String>> {
    if !system.holds_in_sram() {
        return derive_beside(workload, system, decisions);
    }
    // What is held depends on no SRAM; what it leaves is the partitions'.
    let sram = system.chip.0.sram.0;
    let held = derive_beside(workload, &system.divided(sram, sram), decisions)?.memory.total();
    let figures = derive_beside(workload, &system.divided(sram - held, held), decisions).map_err(|mut broken| {
        let [held, sram] = [held, sram].map(crate::units::Bytes);
        broken.push(format!("the memory is on chip: it holds {held} of {sram}, and leaves partitions the rest"));
        broken
    })?;
    Ok(Figures { dram_capacity: Some(sram), ..figures })
}

/// The same of a memory beside the chip.
fn derive_beside(workload: &Workload, system: &System, decisions: &Decisions) -> Result<Figures, Vec<String>> {
    let whole = workload;
    let along = |f: fn(&DimensionUse) -> u64| -> Vec<u64> { decisions.uses.iter().map(f).collect() };
    let (tp, pp, dp) = (along(|u| u.tp), along(|u| u.pp), along(|u| u.dp));
    let mut broken = Vec::new();
    if decisions.uses.len() != system.network.dimensions.len() {
        return Err(vec![format!(
            "network_use has {} entries, the network {} dimensions",
            decisions.uses.len(),
            system.network.dimensions.len()
        )]);
    }
    for (i, (u, dimension)) in decisions.uses.iter().zip(&system.network.dimensions).enumerate() {
        if u.chips() != dimension.size {
            broken.push(format!(
                "dimension {i} has {} chips, but TP {} x PP {} x DP {} x rows {} x columns {}",
                dimension.size, u.tp, u.pp, u.dp, u.rows, u.cols
            ));
        }
    }
    for (i, _) in decisions.uses.iter().enumerate().filter(|(_, u)| u.is_divided()) {
        if !system.divides(i) {
            broken.push(format!(
                "dimension {i} is a ring, which DFModel's collectives take whole, but several strategies divide it"
            ));
        }
    }
    let (rows, cols) = (along(|u| u.rows), along(|u| u.cols));
    let parallel = [&tp, &pp, &dp].iter().any(|extents| extents.iter().any(|n| *n > 1));
    let grid = [&rows, &cols].iter().any(|extents| extents.iter().any(|n| *n > 1));
    if workload.is_spread() && parallel {
        broken.push("TP, PP or DP for a workload that a process grid shares".into());
    }
    if !workload.is_spread() && grid {
        broken.push("a process grid for a workload that TP, PP and DP share".into());
    }
    let on_grid = workload.is_spread().then(|| workload.on_grid(rows.iter().product(), cols.iter().product()));
    let workload = on_grid.as_ref().unwrap_or(whole);
    let n = workload.kernels.len();
    if decisions.sharding.len() != n || decisions.partition.len() != n {
        broken.push(format!(
            "decisions for {} and {} of {n} kernels",
            decisions.sharding.len(),
            decisions.partition.len()
        ));
    }
    broken.extend(rate::fault(workload, system));
    if decisions.tiles == 0 {
        broken.push("a tile count of zero".into());
    }
    if !broken.is_empty() {
        return Err(broken);
    }
    let derivation = Derivation {
        w: workload,
        system,
        d: decisions,
        tp: tp.iter().product(),
        pp: pp.iter().product(),
        dp: dp.iter().product(),
        tp_group: group_of(system, &decisions.uses, DimensionUse::tensor),
        pp_group: group_of(system, &decisions.uses, DimensionUse::stages),
        dp_group: group_of(system, &decisions.uses, DimensionUse::data),
        own: own_groups(system, &decisions.uses),
        samples: samples_per_pass(workload, &system.model),
        rate: Rate::of(workload, system),
        index: index::Index::of(workload, system, decisions),
        kept: OnceCell::new(),
    };
    derivation.rules(&mut broken);
    if !broken.is_empty() {
        return Err(broken);
    }
    let mut figures = derivation.figures()?;
    figures.flop_per_iteration = whole.flop_per_iteration();
    figures.utilization = figures.flop_per_iteration / (figures.iteration_s() * system_peak(whole, system));
    Ok(figures)
}
