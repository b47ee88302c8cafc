//! What the search minimises: time, energy or money, as a sum over the partitions.
//!
//! An objective counts `second` for each second of an iteration and `joule` for each joule that use adds
//! ([`crate::model::objective`]). For a given division into stages the iteration's time is linear in the layer's, T = s A + T0, and the layer's time,
//! arithmetic and DRAM traffic are sums over its partitions. So the objective of an iteration is
//!
//! ```text
//! sum over partitions (second s * time + joule b R n ((1 - i) w * arithmetic + e_dram * traffic)) + constant
//! ```
//!
//! with b, R, n, i, w of `model::energy`; the constant (T0, links, hand-overs, gradients, optimiser, energy a FLOP) depends on
//! degrees, sharding and tile count alone. Each partition's summand depends on nothing but the partition, so the shortest
//! path is as exact for energy and cost as for time. DFModel's first schedule is not linear and is refused.

use super::amounts::{self, Choice};
use super::degrees::Degrees;
use super::instance::Goal;
use super::request::{MapError, Objective, Request};
use super::search::Search;
use crate::model::Strategy;
use crate::model::compute::{Tiling, local, shard_flop};
use crate::model::energy::{self, LayerUse};
use crate::model::objective::Worth;
use crate::model::schedule::{Stage, iteration, samples_per_pass};
use crate::plan::Figures;
use crate::system::System;
use crate::system::options::Pipeline;

/// What the objective of a request counts.
///
/// # Errors
/// [`MapError::Request`] where the objective is no sum over the partitions, or zero for all.
pub(super) fn worth(request: &Request, system: &System) -> Result<Worth, MapError> {
    let objective = request.objective;
    if objective != Objective::Time && system.model.pipeline == Pipeline::DfmodelFirst {
        return Err(MapError::Request(format!(
            "the objective {objective} needs a schedule whose time is linear in the layer's: model.pipeline 1f1b or \
             dfmodel, not dfmodel_first"
        )));
    }
    Worth::of(objective, &request.economics, system).map_err(MapError::Request)
}

/// A layer's time at which the schedule's own terms cannot hide the slope.
const LONG_S: f64 = 1e6;

/// What an objective counts for each thing that a pass of one chip over a layer spends, at some degrees and layers of the longest
/// stage. No sharding changes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rates {
    /// A second of the pass.
    pub(super) second: f64,
    /// A second of arithmetic.
    pub(super) busy_second: f64,
    /// A byte of DRAM traffic.
    pub(super) dram_byte: f64,
    /// A FLOP.
    pub(super) flop: f64,
    /// A joule of links.
    pub(super) link_j: f64,
}

impl Rates {
    /// The time of the pass.
    const TIME: Self = Self { second: 1.0, busy_second: 0.0, dram_byte: 0.0, flop: 0.0, link_j: 0.0 };

    /// The goal of partitions beside which `constant` is counted.
    pub(super) fn goal(&self, constant: f64) -> Goal {
        Goal { second: self.second, busy_second: self.busy_second, dram_byte: self.dram_byte, constant }
    }
}

impl Search<'_> {
    /// What a layer pass is priced at.
    pub(super) fn rates(&self, degrees: &Degrees, longest: u64) -> Rates {
        if self.request.objective == Objective::Time {
            return Rates::TIME;
        }
        let (w, system) = (self.workload, self.system);
        let seconds = |layer_s: f64| {
            let stage = Stage { layer_s, ..empty_stage(degrees, longest) };
            iteration(w, system, &stage).total_s()
        };
        let slope = (seconds(2.0 * LONG_S) - seconds(LONG_S)) / LONG_S;
        let rates = energy::rates(system);
        let passes = energy::passes(w, &system.model, degrees.dp)
            * w.repeat as f64
            * (system.chip_count() as f64 / degrees.pp as f64);
        Rates {
            second: self.worth.second * slope,
            busy_second: self.worth.joule * passes * rates.busy_w,
            dram_byte: self.worth.joule * passes * rates.dram_byte_j,
            flop: self.worth.joule * passes * rates.flop_j,
            link_j: self.worth.joule * passes,
        }
    }

    /// What the partitions of an instance are priced at.
    pub(super) fn goal(&self, degrees: &Degrees, sharding: &[Strategy], tiles: u64, longest: u64) -> Goal {
        if self.request.objective == Objective::Time {
            return Goal { constant: if self.workload.is_chain() { 0.0 } else { self.waits(sharding) }, ..Goal::TIME };
        }
        let rates = self.rates(degrees, longest);
        let choice = Choice { degrees, sharding, tiles, weights_on_chip: false, longest };
        let flop: f64 =
            (0..self.workload.kernels.len()).map(|k| self.kernel_flop(k, degrees, sharding[k], tiles)).sum();
        let link_j: f64 = amounts::link_joules(self.workload, self.system, choice).iter().sum();
        let rest = self.whole(&self.stage(degrees, sharding, longest, 0.0), 0.0);
        rates.goal(rest + rates.second * self.waits(sharding) + rates.flop * flop + rates.link_j * link_j)
    }

    /// The objective of an iteration whose layer pass has this value ([`Search::rates`]), all that it spends counted, and whose other
    /// parts are those of `stage`.
    pub(super) fn whole(&self, stage: &Stage<'_>, value: f64) -> f64 {
        let seconds =
            |layer_s: f64| iteration(self.workload, self.system, &Stage { layer_s, ..stage.clone() }).total_s();
        if self.request.objective == Objective::Time {
            return seconds(value);
        }
        let joules = energy::used(self.workload, self.system, stage, LayerUse::default()).total();
        self.worth.second * seconds(0.0) + self.worth.joule * joules + value
    }

    /// The objective of an iteration from the sum over the partitions.
    pub(super) fn total(
        &self,
        (degrees, longest): (&Degrees, u64),
        sharding: &[Strategy],
        goal: &Goal,
        layer: f64,
    ) -> f64 {
        match self.request.objective {
            Objective::Time => self.iteration(degrees, sharding, longest, layer + goal.constant).total_s(),
            Objective::Energy | Objective::Cost => layer + goal.constant,
        }
    }

    /// No mapping of an assignment has a smaller objective.
    pub(super) fn assignment_bound(&self, degrees: &Degrees) -> f64 {
        let (seconds, layer) = self.assignment_floor(degrees);
        self.value_floor(degrees, seconds, layer)
    }

    /// The objective that follows from seconds of an iteration, and uses of a layer pass, that no mapping goes below.
    pub(super) fn value_floor(&self, degrees: &Degrees, seconds: f64, layer: LayerUse) -> f64 {
        if self.request.objective == Objective::Time {
            return seconds;
        }
        let stage = empty_stage(degrees, self.workload.repeat.div_ceil(degrees.pp));
        let joules = energy::used(self.workload, self.system, &stage, layer).total();
        (self.worth.second * seconds + self.worth.joule * joules) * (1.0 - super::search::TIE)
    }

    /// FLOP of kernel `k` on one chip in one pass.
    pub(super) fn kernel_flop(&self, k: usize, degrees: &Degrees, strategy: Strategy, tiles: u64) -> f64 {
        let kernel = &self.workload.kernels[k];
        let options = &self.system.model;
        let here = local(kernel, strategy, degrees.tp, Tiling::new(tiles, options));
        shard_flop(kernel, &here) * samples_per_pass(self.workload, options)
    }

    /// The iteration of a layer's time, where the longest stage has `longest` layers.
    pub(super) fn iteration(
        &self,
        degrees: &Degrees,
        sharding: &[Strategy],
        longest: u64,
        layer_s: f64,
    ) -> crate::model::schedule::Iteration {
        iteration(self.workload, self.system, &self.stage(degrees, sharding, longest, layer_s))
    }
}

/// A stage that hands nothing over and has neither weights nor gradients.
fn empty_stage(degrees: &Degrees, longest: u64) -> Stage<'static> {
    Stage {
        layer_s: 0.0,
        pp: degrees.pp,
        longest,
        dp: degrees.dp,
        carried_bytes: 0.0,
        hand_overs: 0,
        layer_weight_bytes: 0.0,
        layer_gradient_bytes: 0.0,
        pp_group: &[],
        dp_group: &[],
    }
}

impl Request {
    /// The objective of a plan, from its figures.
    pub(super) fn objective_of(&self, figures: &Figures) -> f64 {
        match self.objective {
            Objective::Time => figures.iteration_s(),
            Objective::Energy => figures.energy.total(),
            Objective::Cost => {
                let joules = figures.energy.total();
                self.economics.iteration(figures.cost.total(), figures.iteration_s(), joules).total()
            }
        }
    }
}
