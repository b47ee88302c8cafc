//! The search of a chain of blocks (embedding, layers, head) on one assignment of dimensions and one sharding.
//!
//! Partitions do not mix blocks, as they do not mix the forward and the backward pass: what one block hands to another goes
//! through the DRAM, since a stage may end there. So the fusion problem falls apart into one problem a block, whose tensors
//! from and to other blocks are inputs and outputs, and each is solved by itself (`exact.rs`, or closed form). The fastest
//! partitions of every block are the fastest of the chain, for the iteration grows with every block's time whatever
//! the division into stages; then the division is found exactly (`chain.rs`).
//!
//! Only memory joins them: what waits while a block is at work takes room from what its stage holds. The blocks are solved with
//! all the room that a stage of one unit leaves. If the best division has no room for what then waits, they are solved again with
//! what the best division without waiting tensors leaves; the bound is that division's time, and where the plan found does
//! not reach it, it is not called optimal.
//!
//! Conversions between blocks are paid once a microbatch, by the side that is repeated less (`instance.rs`).

use super::chain::{BlockLoad, Chain, Run, least_iteration};
use super::degrees::Degrees;
use super::dominance::{dominates, same_costs};
use super::figures::use_of;
use super::instance::{Instance, PartitionCost};
use super::partitions::Fused;
use super::record::SolveRecord;
use super::request::{LeftOpen, MapError, Objective, Proof, Request};
use super::search::{Best, Candidate, Found, Search, TIE};
use super::sharding::Sharding;
use super::tiling::tile_counts;
use crate::model::Strategy;
use crate::model::compute::{Tiling, tensor_bytes};
use crate::model::energy::{self, Energy};
use crate::model::layout::required;
use crate::model::memory;
use crate::model::schedule::{Iteration, Stage, hand_over, microbatches, samples_per_pass, update_s};
use crate::model::stages::{self, StageFigures};
use crate::plan::PartitionFigures;
use crate::system::System;
use crate::system::options::{Charge, Fanout, Layouts, MemoryState, Pipeline};
use crate::system::price::{self, ByPart};
use crate::workload::{Kernel, Workload};
use std::sync::Arc;

/// A block of the workload: its own graph, and where its kernels stand in the whole.
pub(super) type BlockGraph = (Workload, Vec<usize>);

/// The blocks of a chain; none of another workload.
pub(super) fn graphs(workload: &Workload) -> Vec<BlockGraph> {
    if workload.is_chain() { (0..workload.blocks.len()).map(|b| workload.of_block(b)).collect() } else { Vec::new() }
}

/// Whether chains of blocks are searched on a system as asked.
///
/// # Errors
/// What is not: DFModel's models, objectives other than time, and pins and limits of partitions, which count those of all blocks.
pub(super) fn allowed(system: &System, request: &Request) -> Result<(), MapError> {
    let options = &system.model;
    let own = options.pipeline == Pipeline::OneForwardOneBackward
        && options.layouts == Layouts::Flowspace
        && options.boundary_tensors == Charge::Charged
        && options.tensor_fanout == Fanout::Shared
        && options.memory_state == MemoryState::Full;
    let says = |message: &str| Err(MapError::Request(format!("a workload of several blocks {message}")));
    if !own {
        return says("needs the model flowspace: 1F1B, its layouts, memory and fan-out, and charged boundary tensors");
    }
    if request.objective != Objective::Time {
        return says(
            "is mapped for time only, as its blocks are divided among the stages by time: leave --objective (in a study solve.objective) out; the answer states energy \
             and cost too",
        );
    }
    if request.max_partitions.is_some() || request.pins.partition.iter().any(Option::is_some) {
        return says("takes no pinned partitions and no --max-partitions");
    }
    Ok(())
}

/// A block's part of a plan.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// Its kernels in the whole graph.
    pub(super) kernels: Vec<usize>,
    /// Its fusion problem.
    pub(super) instance: Instance,
    /// The answer to it.
    pub(super) fused: Fused,
}

/// Partition of every kernel of the whole graph: forward passes in the order of the blocks, backward passes in the opposite one.
/// With it the cost of every partition.
pub(super) fn joined(parts: &[Part], kernels: usize) -> Option<(Vec<usize>, Vec<PartitionCost>)> {
    let mut assignment = vec![0; kernels];
    let mut costs = Vec::new();
    let mut own: Vec<Vec<PartitionCost>> = Vec::new();
    for part in parts {
        own.push(part.instance.evaluate(&part.fused.assignment)?.1);
    }
    let backward = |part: &Part, p: usize| {
        part.fused.assignment.iter().zip(&part.instance.kernels).any(|(q, kernel)| *q == p && kernel.backward)
    };
    let mut place = |b: usize, pass: bool, assignment: &mut Vec<usize>| {
        for (p, cost) in own[b].iter().enumerate().filter(|(p, _)| backward(&parts[b], *p) == pass) {
            for (k, _) in parts[b].kernels.iter().zip(&parts[b].fused.assignment).filter(|(_, q)| **q == p) {
                assignment[*k] = costs.len();
            }
            costs.push(*cost);
        }
    };
    (0..parts.len()).for_each(|b| place(b, false, &mut assignment));
    (0..parts.len()).rev().for_each(|b| place(b, true, &mut assignment));
    Some((assignment, costs))
}

impl Search<'_> {
    /// What the schedule needs to know of each block.
    pub(super) fn block_stages<'d>(
        &self,
        degrees: &'d Degrees,
        sharding: &[Strategy],
        seconds: &[f64],
    ) -> Vec<Stage<'d>> {
        let of = |((w, kernels), seconds): (&BlockGraph, &f64)| {
            let own: Vec<Strategy> = kernels.iter().map(|k| sharding[*k]).collect();
            self.stage_of(w, degrees, &own, w.repeat.div_ceil(degrees.pp), *seconds)
        };
        self.blocks.iter().zip(seconds).map(of).collect()
    }

    /// Bytes of one sample, and messages, from each block to the next and back: in the layouts that the readers want.
    pub(super) fn onward(&self, degrees: &Degrees, sharding: &[Strategy]) -> Vec<(f64, u64)> {
        let w = self.workload;
        let mut out = vec![(0.0, 0); self.blocks.len()];
        for tensor in &w.tensors {
            let Some(from) = tensor.producer.map(|p| w.kernels[p].block) else { continue };
            let across = tensor.consumers.iter().filter(|u| w.kernels[u.kernel].block != from);
            let bytes = across.clone().map(|u| {
                let layout = required(&w.kernels[u.kernel], u.slot, sharding[u.kernel], self.system.model.layouts);
                tensor_bytes(tensor, layout, degrees.tp, Tiling::WHOLE, w.word_bytes).0
            });
            let Some(to) = across.clone().map(|u| w.kernels[u.kernel].block).next() else { continue };
            let cut = &mut out[from.min(to)];
            cut.0 += bytes.fold(0.0, f64::max);
            cut.1 += 1;
        }
        out
    }

    /// What each block asks of the stages, its units taking `seconds` and waiting with `live` bytes.
    pub(super) fn loads(
        &self,
        degrees: &Degrees,
        sharding: &[Strategy],
        (seconds, live): (&[f64], &[f64]),
    ) -> Vec<BlockLoad> {
        let options = &self.system.model;
        let stages = self.block_stages(degrees, sharding, seconds);
        let onward = self.onward(degrees, sharding);
        let samples = samples_per_pass(self.workload, options);
        let seconds_of = |bytes: f64, messages: u64| hand_over(&degrees.pp_group, bytes * samples, messages);
        let of = |(b, (w, kernels)): (usize, &BlockGraph)| {
            let own: Vec<Strategy> = kernels.iter().map(|k| sharding[*k]).collect();
            let stage = &stages[b];
            BlockLoad {
                repeat: w.repeat,
                pass_s: stage.layer_s,
                need: memory::of_layer(w, options, &own, (degrees.tp, degrees.dp), self.system.chip_count()),
                live: live[b],
                gradient_bytes: stage.layer_gradient_bytes,
                weight_bytes: stage.layer_weight_bytes,
                inside_s: seconds_of(stage.carried_bytes, stage.hand_overs),
                onward_s: seconds_of(onward[b].0, onward[b].1),
            }
        };
        self.blocks.iter().enumerate().map(of).collect()
    }

    /// The chain of such blocks in the pipeline of an assignment; `update` as from [`Search::update`].
    pub(super) fn chain<'u>(
        &self,
        degrees: &Degrees,
        blocks: Vec<BlockLoad>,
        update: &'u dyn Fn(f64, f64) -> f64,
    ) -> Chain<'u> {
        Chain {
            blocks,
            in_flight: self.pipe(degrees).in_flight,
            microbatches: microbatches(self.workload, &self.system.model, degrees.dp),
            capacity: self.dram_capacity(),
            update,
        }
    }

    /// The chain of a sharding's blocks before anything is known of their seconds and of what waits: what is to fit the DRAM in any case.
    pub(super) fn still(&self, degrees: &Degrees, sharding: &[Strategy]) -> Chain<'static> {
        let zero = vec![0.0; self.blocks.len()];
        self.chain(degrees, self.loads(degrees, sharding, (&zero, &zero)), &|_, _| 0.0)
    }

    /// Seconds, once an iteration, of gradients and weights of so many bytes.
    pub(super) fn update(&self, degrees: &Degrees, gradient_bytes: f64, weight_bytes: f64) -> f64 {
        let stage = Stage {
            layer_s: 0.0,
            pp: degrees.pp,
            longest: 1,
            dp: degrees.dp,
            carried_bytes: 0.0,
            hand_overs: 0,
            layer_weight_bytes: weight_bytes,
            layer_gradient_bytes: gradient_bytes,
            pp_group: &degrees.pp_group,
            dp_group: &degrees.dp_group,
        };
        let (gradient_s, optimizer_s) = update_s(self.workload, self.system, &stage, 1);
        gradient_s + optimizer_s
    }

    /// The fusion problems of the blocks, out of that of the whole graph. `room`: bytes that may wait while each works.
    fn parts(&self, whole: &Instance, room: &[f64]) -> Vec<(Vec<usize>, Instance)> {
        let of = |((_, kernels), room): (&BlockGraph, &f64)| {
            let part = whole.part(kernels);
            (kernels.clone(), Instance { live_limit: *room, ..part })
        };
        self.blocks.iter().zip(room).map(of).collect()
    }

    /// Solves every tile count of a sharding that can still win.
    pub(super) fn try_chain(
        &self,
        candidate: &Candidate,
        sharding: &Sharding,
        best: &mut Option<Best>,
        found: &mut Found,
    ) -> Result<(), MapError> {
        let degrees = &candidate.degrees;
        let still = self.still(degrees, &sharding.strategies);
        if !still.fits() {
            found.reasons.push(self.dram_short(degrees, still.least_capacity(), self.dram_capacity()));
            return Ok(());
        }
        let counts = match self.request.tiles {
            Some(tiles) => vec![tiles],
            None => tile_counts(self.workload, self.system),
        };
        // A stage of one unit, of those that hold fewest microbatches, leaves most room.
        let fewest = still.in_flight.last().copied().unwrap_or(1);
        let one = |load: &BlockLoad| memory::of_units(std::iter::once((load.need, 0.0, 1)), fewest).total();
        let loads = &still.blocks;
        let room: Vec<f64> = loads.iter().map(|load| self.dram_capacity() - one(load)).collect();
        let mut tried: Vec<Instance> = Vec::new();
        for tiles in counts {
            if self.out_of_time() {
                found.stop(LeftOpen::out_of_time(), candidate.bound);
                break;
            }
            let built = self.instance((degrees, 1), &sharding.strategies, (tiles, false), self.dram_capacity());
            let whole = match built {
                Ok(whole) => whole,
                Err(short) => {
                    found.reasons.push(self.sram_short(degrees, short, tiles));
                    continue;
                }
            };
            if tried.iter().any(|other| dominates(other, &whole)) {
                continue;
            }
            let at = (candidate, sharding, tiles);
            let first = self.solve_blocks(at, (&whole, &room, loads), best, found)?;
            if let Some(room) = first {
                // With less that waits the division may be a better one, or there may be one at all.
                self.solve_blocks(at, (&whole, &room, loads), best, found)?;
            }
            tried.push(whole);
        }
        Ok(())
    }

    /// Solves the blocks of a problem with so much room each, and divides them. Where what waits stands in the way of the best
    /// division it gives the room that this one leaves.
    fn solve_blocks(
        &self,
        (candidate, sharding, tiles): (&Candidate, &Sharding, u64),
        (whole, room, loads): (&Instance, &[f64], &[BlockLoad]),
        best: &mut Option<Best>,
        found: &mut Found,
    ) -> Result<Option<Vec<f64>>, MapError> {
        let degrees = &candidate.degrees;
        let incumbent = best.as_ref().map_or(f64::INFINITY, |b| b.objective);
        let update = |g: f64, w: f64| self.update(degrees, g, w);
        let waits = self.waits_of_blocks(&sharding.strategies);
        let of = |seconds: &[f64], live: &[f64]| {
            let blocks = loads.iter().zip(seconds.iter().zip(&waits)).zip(live);
            let blocks = blocks.map(|((load, (seconds, waits)), live)| BlockLoad {
                pass_s: seconds + waits,
                live: *live,
                ..*load
            });
            let blocks = blocks.collect();
            self.chain(degrees, blocks, &update)
        };
        let zero = vec![0.0; loads.len()];
        let problems = self.parts(whole, room);
        let least: Vec<f64> = problems.iter().map(|(_, part)| part.least_value()).collect();
        let bound = of(&least, &zero).bound();
        if bound >= incumbent * (1.0 - TIE) {
            return Ok(None);
        }
        if self.out_of_time() {
            found.stop(LeftOpen::out_of_time(), bound);
            return Ok(None);
        }
        let mut parts: Vec<Part> = Vec::new();
        found.block_ideals.resize_with(loads.len(), || None);
        for (b, (kernels, instance)) in problems.into_iter().enumerate() {
            found.solved += 1;
            let mut ideals = found.block_ideals[b].take();
            let fused = self.solve_fusion(&instance, f64::INFINITY, &mut ideals, &mut found.memory)?;
            found.block_ideals[b] = ideals;
            let Some(fused) = fused else {
                found.reasons.push(self.partition_short(degrees, &instance, tiles, self.dram_capacity()));
                if self.out_of_time() {
                    found.stop(LeftOpen::out_of_time(), bound);
                } else if found.block_ideals[b].as_ref().is_none_or(|ideals| !ideals.complete) {
                    // A part of a wide graph's ideals says nothing of the others.
                    found.unproven = found.unproven.min(bound);
                }
                return Ok(None);
            };
            parts.push(Part { kernels, instance, fused });
        }
        let most_live = |part: &Part| {
            let costs = part.instance.evaluate(&part.fused.assignment).map_or(Vec::new(), |(_, costs)| costs);
            costs.iter().map(|c| c.live_bytes).fold(0.0, f64::max)
        };
        let seconds: Vec<f64> = parts.iter().map(|part| part.fused.layer).collect();
        let bounds: Vec<f64> = parts.iter().map(|part| part.fused.bound).collect();
        let live: Vec<f64> = parts.iter().map(most_live).collect();
        let no_room = |waiting: &[f64]| {
            let most = waiting.iter().copied().fold(0.0, f64::max);
            self.dram_short(degrees, self.dram_capacity() + most, self.dram_capacity())
        };
        // Nothing that fits is faster than the best division with the least that waits.
        let fewest: Vec<f64> = parts.iter().map(|part| part.instance.waits_at_least()).collect();
        let Some((bound, division)) = of(&bounds, &fewest).divide() else {
            found.reasons.push(no_room(&fewest));
            return Ok(None);
        };
        if bound >= incumbent * (1.0 - TIE) {
            return Ok(None);
        }
        let divided = of(&seconds, &live).divide();
        let objective = divided.as_ref().map_or(f64::INFINITY, |(objective, _)| *objective);
        if objective > bound * (1.0 + TIE) {
            found.unproven = found.unproven.min(bound);
        }
        let rooms = self.rooms_of(&of(&bounds, &zero), &division);
        if let Some((_, stages)) = divided.filter(|_| objective < incumbent * (1.0 - TIE)) {
            *best = Some(Best {
                degrees: degrees.clone(),
                sharding: sharding.clone(),
                tiles,
                weights_on_chip: false,
                longest: stages.iter().max().copied().unwrap_or(1),
                assignment: joined(&parts, self.workload.kernels.len())
                    .map_or(Vec::new(), |(assignment, _)| assignment),
                instance: Arc::new(whole.clone()),
                layer: seconds.iter().sum(),
                proven: parts.iter().all(|part| part.fused.proven),
                bound: bounds.iter().sum(),
                relaxed: parts.iter().any(|part| part.fused.relaxed),
                objective,
                of: candidate.of,
                parts,
                stages,
            });
        } else if objective.is_infinite() {
            found.reasons.push(no_room(&live));
        }
        let in_the_way = objective > bound * (1.0 + TIE) && rooms.iter().zip(room).any(|(less, room)| less < room);
        Ok(in_the_way.then_some(rooms))
    }

    /// Bytes that may wait while each block works, under a division whose stages hold what `chain` says.
    fn rooms_of(&self, chain: &Chain<'_>, division: &[u64]) -> Vec<f64> {
        let mut room = vec![f64::INFINITY; chain.blocks.len()];
        let repeats: Vec<u64> = chain.blocks.iter().map(|b| b.repeat).collect();
        let of_blocks = stages::of_blocks(division, &repeats);
        for (counts, in_flight) in of_blocks.iter().zip(&chain.in_flight) {
            for (b, load) in chain.blocks.iter().enumerate().filter(|(b, _)| counts[*b] > 0) {
                let units = chain.blocks.iter().zip(counts).map(|(load, n)| (load.need, 0.0, *n));
                let mut held = memory::of_units(units.clone(), *in_flight);
                // What this block keeps of one microbatch waits while it works, whichever was taken out for the others.
                let all: f64 = units.map(|(need, _, n)| need.kept * n as f64 * *in_flight as f64).sum();
                held.activations = (all - load.need.kept).max(0.0);
                room[b] = room[b].min(self.dram_capacity() - held.total());
            }
        }
        room
    }

    /// Lowers the tile count of a chain's plan to the smallest at which it costs the same and still fits.
    pub(super) fn smallest_tiles_of_chain(&self, best: &mut Best) {
        let mut counts = tile_counts(self.workload, self.system);
        counts.retain(|t| *t < best.tiles);
        counts.sort_unstable();
        for tiles in counts {
            if self.out_of_time() {
                return;
            }
            let at = (&best.degrees, 1);
            let built = self.instance(at, &best.sharding.strategies, (tiles, false), self.dram_capacity());
            let Ok(whole) = built else { continue };
            if !dominates(&best.instance, &whole) || !same_costs(&best.instance, &whole) {
                continue;
            }
            let of = |part: &Part| {
                let instance = Instance { live_limit: part.instance.live_limit, ..whole.part(&part.kernels) };
                let (value, _) = instance.evaluate(&part.fused.assignment)?;
                (value <= part.fused.layer * (1.0 + TIE)).then(|| Part { instance, ..part.clone() })
            };
            if let Some(parts) = best.parts.iter().map(of).collect::<Option<Vec<Part>>>() {
                (best.tiles, best.instance, best.parts) = (tiles, Arc::new(whole), parts);
                return;
            }
        }
    }

    /// What proves the blocks of the winner: the bound of its iteration, what it follows from, and the MILPs' record.
    pub(super) fn certify_chain(&self, best: &mut Best) -> Result<(f64, Proof, Option<SolveRecord>), MapError> {
        let mut bounds = Vec::new();
        let mut record: Option<SolveRecord> = None;
        let mut proof = Proof::ClosedForm;
        let waits = self.waits_of_blocks(&best.sharding.strategies);
        for (part, waits) in best.parts.iter_mut().zip(waits) {
            let (bound, of_part, solved) = self.certify_part(&part.instance, &mut part.fused)?;
            bounds.push(bound + waits);
            if of_part != Proof::ClosedForm {
                proof = of_part;
            }
            record = match (record, solved) {
                (Some(a), Some(b)) => Some(a.and(&b)),
                (a, b) => a.or(b),
            };
        }
        let zero = vec![0.0; bounds.len()];
        let loads = self.loads(&best.degrees, &best.sharding.strategies, (&bounds, &zero));
        let update = |g: f64, w: f64| self.update(&best.degrees, g, w);
        let chain = self.chain(&best.degrees, loads, &update);
        let bound = chain.divide().map_or(best.objective, |(seconds, _)| seconds.min(best.objective));
        Ok((bound, proof, record))
    }

    /// No mapping of an assignment is faster: all arithmetic (seconds by kernel) perfectly split, no stage shorter than its share.
    pub(super) fn chain_floor(&self, degrees: &Degrees, arithmetic: impl Fn(&Kernel) -> f64) -> f64 {
        let of = |(w, _): &BlockGraph| w.kernels.iter().map(&arithmetic).sum::<f64>();
        let each: Vec<f64> = self.blocks.iter().map(of).collect();
        let total = self.blocks.iter().zip(&each).map(|((w, _), s)| w.repeat as f64 * s).sum();
        let b = microbatches(self.workload, &self.system.model, degrees.dp);
        least_iteration(total, each.iter().copied().fold(0.0, f64::max), degrees.pp, b) * (1.0 - TIE)
    }

    /// Iteration, stages and energy of a chain.
    pub(super) fn chain_figures(
        &self,
        best: &Best,
        partitions: &[PartitionFigures],
    ) -> (Iteration, Vec<StageFigures>, Energy) {
        let (w, system, degrees) = (self.workload, self.system, &best.degrees);
        let strategies = &best.sharding.strategies;
        let of_block = |b: usize| {
            let here = |p: &usize| (0..w.kernels.len()).any(|k| best.assignment[k] == *p && w.kernels[k].block == b);
            (0..partitions.len()).filter(here).map(|p| &partitions[p]).collect::<Vec<_>>()
        };
        let blocks: Vec<Vec<&PartitionFigures>> = (0..self.blocks.len()).map(of_block).collect();
        let seconds: Vec<f64> = blocks.iter().map(|ps| ps.iter().map(|p| p.time_s).sum()).collect();
        let live: Vec<f64> = blocks.iter().map(|ps| ps.iter().map(|p| p.live_bytes).fold(0.0, f64::max)).collect();
        let loads = self.loads(degrees, strategies, (&seconds, &live));
        let repeats: Vec<u64> = loads.iter().map(|load| load.repeat).collect();
        let update = |g: f64, w: f64| self.update(degrees, g, w);
        let chain = self.chain(degrees, loads, &update);
        let counts = stages::of_blocks(&best.stages, &repeats);
        let base = self.block_stages(degrees, strategies, &seconds);
        let figures = |(s, run): (usize, Run)| {
            let sum = |f: &dyn Fn(&BlockLoad) -> f64| -> f64 {
                chain.blocks.iter().zip(&counts[s]).map(|(load, n)| f(load) * *n as f64).sum()
            };
            let whole = Stage {
                layer_weight_bytes: sum(&|load| load.weight_bytes),
                layer_gradient_bytes: sum(&|load| load.gradient_bytes),
                ..base[0].clone()
            };
            let (gradient_s, optimizer_s) = update_s(w, system, &whole, 1);
            let units = chain.blocks.iter().zip(&counts[s]).map(|(load, n)| (load.need, load.live, *n));
            StageFigures {
                layers: best.stages[s],
                of_blocks: counts[s].clone(),
                pass_s: sum(&|load| load.pass_s),
                hand_over_s: run.hand_over_s,
                gradient_s,
                optimizer_s,
                memory: memory::of_units(units, chain.in_flight[s]),
            }
        };
        let stages: Vec<StageFigures> = chain.runs(&best.stages).into_iter().enumerate().map(figures).collect();
        let iteration = stages::iteration(&stages, chain.microbatches);
        // Blocks use what their own passes use; hand-overs are those of the cuts.
        let mut used = ByPart { chips: 0.0, memory: 0.0, links: 0.0, switches: 0.0 };
        for (b, (graph, _)) in self.blocks.iter().enumerate() {
            let stage = Stage { carried_bytes: 0.0, ..base[b].clone() };
            used = used + energy::used(graph, system, &stage, use_of(blocks[b].iter().copied()));
        }
        let onward = self.onward(degrees, strategies);
        let cuts = counts.windows(2).map(|pair| {
            let last = pair[0].iter().rposition(|n| *n > 0).unwrap_or(0);
            if pair[1][last] > 0 { base[last].carried_bytes } else { onward[last].0 }
        });
        used.links += energy::hand_overs_j(w, system, &base[0], cuts.sum());
        let energy = Energy { idle: price::idle_power(system).times(iteration.total_s()), used };
        (iteration, stages, energy)
    }
}
