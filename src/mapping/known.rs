//! Plans that are known before the search begins: of a plan file, of another objective, of the same system with less of a
//! resource. As far as one keeps to what is asked it is a start, so that no answer is worse, whatever stops the search or is not in
//! its space.
//!
//! The sharding of such a plan is solved at its tile count like any other; should that be stopped, or should the plan be of a kind that
//! the search does not list (a divided dimension, a tile count of the user's own), its own partitions are priced as they stand.

use super::blocks::Part;
use super::degrees::Degrees;
use super::ideals::Ideals;
use super::instance::Instance;
use super::partitions::Fused;
use super::request::{Known, LeftOpen, MapError};
use super::search::{Best, Candidate, Found, Search, TIE};
use super::sharding::{self, Sharding};
use super::tiling::streamed_size;
use crate::plan::Decisions;
use std::sync::Arc;

impl Search<'_> {
    /// Begins with a known plan, if it is one of what is asked.
    pub(super) fn try_known(
        &self,
        of: usize,
        known: &Known,
        best: &mut Option<Best>,
        ideals: &mut Option<Ideals>,
        found: &mut Found,
    ) -> Result<(), MapError> {
        let plan = &known.decisions;
        let Some(candidate) = self.candidate_of(of, plan) else { return Ok(()) };
        let Some(sharding) = self.sharding_of(&candidate.degrees, plan) else { return Ok(()) };
        let kept = match self.workload.is_chain() {
            true => self.known_chain(&candidate, &sharding, plan),
            false => self.known_layer(&candidate, &sharding, plan),
        };
        let mut own: Option<Best> = None;
        let reasons = found.reasons.len();
        match self.try_sharding(&candidate, (&sharding, Some(&[plan.tiles])), &mut own, ideals, found) {
            Ok(()) => {}
            // Pins for which the search finds no partitions: the plan has some.
            Err(MapError::Request(_)) if kept.is_some() => found.stop(LeftOpen::Nodes, candidate.bound),
            Err(error) => return Err(error),
        }
        // Why the point has no plan is for the search of all to say.
        found.reasons.truncate(reasons);
        let start = match (own, kept) {
            (Some(own), Some(kept)) if kept.objective < own.objective * (1.0 - TIE) => Some(kept),
            (own, kept) => own.or(kept),
        };
        let incumbent = best.as_ref().map_or(f64::INFINITY, |b| b.objective);
        if let Some(start) = start.filter(|start| start.objective < incumbent * (1.0 - TIE)) {
            *best = Some(start);
        }
        Ok(())
    }

    /// The assignment of a plan, where the system has it and it is one that was asked for.
    fn candidate_of(&self, of: usize, plan: &Decisions) -> Option<Candidate> {
        let network = &self.system.network;
        let (pins, n) = (&self.request.pins, self.workload.kernels.len());
        let dimensions = plan.uses.iter().zip(&network.dimensions).enumerate();
        let possible = plan.uses.len() == network.dimensions.len()
            && dimensions.clone().all(|(_, (u, d))| u.chips() == d.size)
            && dimensions.clone().all(|(i, (u, _))| !u.is_divided() || self.system.divides(i));
        let asked = match &pins.uses {
            Some(uses) => *uses == plan.uses,
            None => plan.grid() == (1, 1),
        };
        let tiles = match self.request.tiles {
            Some(tiles) => plan.tiles == tiles,
            None => (1..=streamed_size(self.workload)).contains(&plan.tiles),
        };
        let whole = plan.sharding.len() == n && plan.partition.len() == n;
        if !(possible && asked && tiles && whole) || (plan.weights_on_chip && !self.keeps_weights) {
            return None;
        }
        let degrees = Degrees::new(self.system, plan.uses.clone());
        let fits = self.request.wanted.fits(&degrees) && self.degrees_infeasible(&degrees).is_none();
        fits.then(|| Candidate { bound: self.assignment_bound(&degrees), degrees, of })
    }

    /// The sharding of a plan, where its strategies agree and keep the pins.
    fn sharding_of(&self, degrees: &Degrees, plan: &Decisions) -> Option<Sharding> {
        let kept = self.pins_sharding.iter().zip(&plan.sharding).all(|(pin, s)| pin.is_none_or(|pin| pin == *s));
        let pins: Vec<_> = plan.sharding.iter().map(|s| Some(*s)).collect();
        let problem = sharding::problem(self.workload, self.system, degrees, &pins).ok().filter(|_| kept)?;
        sharding::given(&problem)
    }

    /// A plan of one repeated layer as it stands; `None` where it breaks a rule.
    fn known_layer(&self, candidate: &Candidate, sharding: &Sharding, plan: &Decisions) -> Option<Best> {
        let degrees = &candidate.degrees;
        let (pipe, need) = (self.pipe(degrees), self.layer_need(degrees, &plan.sharding));
        let longest = plan.longest().filter(|n| (pipe.shortest()..=pipe.longest()).contains(n))?;
        let room = self.dram_capacity() - pipe.fullest(&need, longest).total();
        let at = (degrees, longest);
        let instance = self.instance(at, &plan.sharding, (plan.tiles, plan.weights_on_chip), room).ok()?;
        let (layer, _) = instance.evaluate(&plan.partition)?;
        Some(Best {
            degrees: degrees.clone(),
            sharding: sharding.clone(),
            tiles: plan.tiles,
            weights_on_chip: plan.weights_on_chip,
            longest,
            objective: self.total(at, &plan.sharding, &instance.goal, layer),
            bound: instance.least_value().min(layer),
            instance: Arc::new(instance),
            assignment: plan.partition.clone(),
            layer,
            proven: false,
            relaxed: false,
            of: candidate.of,
            parts: Vec::new(),
            stages: Vec::new(),
        })
    }

    /// A plan of a chain of blocks as it stands.
    fn known_chain(&self, candidate: &Candidate, sharding: &Sharding, plan: &Decisions) -> Option<Best> {
        let degrees = &candidate.degrees;
        let repeats: Vec<u64> = self.blocks.iter().map(|(w, _)| w.repeat).collect();
        let fits =
            plan.stages.len() as u64 == degrees.pp && plan.stages.iter().sum::<u64>() == repeats.iter().sum::<u64>();
        let capacity = self.dram_capacity();
        let built = self.instance((degrees, 1), &plan.sharding, (plan.tiles, false), capacity).ok();
        let whole = built.filter(|_| fits && !plan.weights_on_chip)?;
        let mut parts = Vec::new();
        for (_, kernels) in &self.blocks {
            let instance = Instance { live_limit: capacity, ..whole.part(kernels) };
            // Its partitions alone, in their order.
            let mut own: Vec<usize> = kernels.iter().map(|k| plan.partition[*k]).collect();
            let mut order = own.clone();
            order.sort_unstable();
            order.dedup();
            own.iter_mut().for_each(|p| *p = order.partition_point(|q| q < p));
            let (layer, costs) = instance.evaluate(&own)?;
            let live = costs.iter().map(|cost| cost.live_bytes).fold(0.0, f64::max);
            let bound = instance.least_value().min(layer);
            let fused = Fused { layer, assignment: own, proven: false, bound, relaxed: false };
            parts.push((Part { kernels: kernels.clone(), instance, fused }, live));
        }
        let seconds: Vec<f64> = parts.iter().map(|(part, _)| part.fused.layer).collect();
        let live: Vec<f64> = parts.iter().map(|(_, live)| *live).collect();
        let update = |g: f64, w: f64| self.update(degrees, g, w);
        let loads = self.loads(degrees, &plan.sharding, (&seconds, &live));
        let (objective, division) = self.chain(degrees, loads, &update).divide()?;
        let parts: Vec<Part> = parts.into_iter().map(|(part, _)| part).collect();
        Some(Best {
            degrees: degrees.clone(),
            sharding: sharding.clone(),
            tiles: plan.tiles,
            weights_on_chip: false,
            longest: division.iter().max().copied().unwrap_or(1),
            assignment: super::blocks::joined(&parts, self.workload.kernels.len())?.0,
            bound: parts.iter().map(|part| part.fused.bound).sum(),
            instance: Arc::new(whole),
            layer: seconds.iter().sum(),
            proven: false,
            relaxed: false,
            objective,
            of: candidate.of,
            parts,
            stages: division,
        })
    }
}
