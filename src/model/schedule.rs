//! From the time of one layer to the time of one iteration.

use super::collective::{self, GroupDimension};
use super::dfmodel::iteration as dfmodel;
use super::memory::optimizer_bytes_per_weight;
use super::rate::Rate;
use crate::graph::Workload;
use crate::system::options::{Charge, GradientReduction, Pipeline};
use crate::system::{ModelOptions, System};
use serde::Serialize;

/// What the schedule needs to know of a mapping.
#[derive(Debug, Clone)]
pub struct Stage<'a> {
    /// Seconds of one layer: of one microbatch, or of one sample in DFModel's schedules.
    pub layer_s: f64,
    /// Pipeline stages.
    pub pp: u64,
    /// Layers of the longest stage: at least ceil(layers / PP), which DFModel's schedules always have.
    pub longest: u64,
    /// Data-parallel replicas.
    pub dp: u64,
    /// Bytes of one sample that a chip passes to the next stage (and, in training, gets back).
    pub carried_bytes: f64,
    /// Messages that these bytes are sent in: one forward, in training one back.
    pub hand_overs: u64,
    /// Bytes of weights of one layer on a chip.
    pub layer_weight_bytes: f64,
    /// Bytes of weight gradients of one layer on a chip.
    pub layer_gradient_bytes: f64,
    /// The pipeline-parallel group.
    pub pp_group: &'a [GroupDimension],
    /// The data-parallel group.
    pub dp_group: &'a [GroupDimension],
}

/// One iteration, by part. The parts sum to the whole.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Iteration {
    /// Seconds in which stages work.
    pub work_s: f64,
    /// Seconds in which a stage waits for the pipeline to fill and drain.
    pub bubble_s: f64,
    /// Seconds of transfers between stages.
    pub p2p_s: f64,
    /// Seconds of the gradient reduction that nothing hides.
    pub gradient_s: f64,
    /// Seconds of the optimiser's pass.
    pub optimizer_s: f64,
    /// Microbatches of one replica.
    pub microbatches: f64,
    /// Layers of the longest stage.
    pub layers_per_stage: u64,
}

impl Iteration {
    /// Seconds of the whole iteration.
    pub fn total_s(&self) -> f64 {
        self.work_s + self.bubble_s + self.p2p_s + self.gradient_s + self.optimizer_s
    }
}

/// Samples that one pass over the graph stands for: a microbatch, or one sample in DFModel's schedules (whose
/// microbatch enters the bubble and the weight set-up alone).
pub fn samples_per_pass(workload: &Workload, options: &ModelOptions) -> f64 {
    match options.pipeline {
        Pipeline::OneForwardOneBackward => workload.micro_batch as f64,
        Pipeline::Dfmodel | Pipeline::DfmodelFirst => 1.0,
    }
}

/// Microbatches of one replica in an iteration. DFModel divides without rounding.
pub fn microbatches(workload: &Workload, options: &ModelOptions, dp: u64) -> f64 {
    let exact = workload.global_batch as f64 / (workload.micro_batch as f64 * dp as f64);
    match options.pipeline {
        Pipeline::OneForwardOneBackward => exact.ceil(),
        Pipeline::Dfmodel | Pipeline::DfmodelFirst => exact,
    }
}

/// Seconds to pass `bytes` to a neighbouring stage in `messages` parts: over the slowest link of the group.
pub fn hand_over(group: &[GroupDimension], bytes: f64, messages: u64) -> f64 {
    group.iter().map(|d| messages as f64 * d.latency + bytes / d.bandwidth).fold(0.0, f64::max)
}

/// The time of one iteration (design section 7).
///
/// Let A be the layer's time, lps the layers of the longest stage, b = microbatches.
/// 1F1B: layers A + PP p2p + (b - 1) (lps A + p2p) ([`super::stages`]; (b + PP - 1) (lps A + p2p) where all stages are
/// equal), then the gradient reduction and the optimiser's pass over DRAM of the longest stage.
/// DFModel's: [`super::dfmodel::iteration`].
pub fn iteration(workload: &Workload, system: &System, stage: &Stage<'_>) -> Iteration {
    let options = &system.model;
    let layers_per_stage = stage.longest;
    let lps = layers_per_stage as f64;
    let b = microbatches(workload, options, stage.dp);
    let mut out = Iteration {
        work_s: 0.0,
        bubble_s: 0.0,
        p2p_s: 0.0,
        gradient_s: 0.0,
        optimizer_s: 0.0,
        microbatches: b,
        layers_per_stage,
    };
    let samples = workload.global_batch as f64 / stage.dp as f64;
    match options.pipeline {
        Pipeline::OneForwardOneBackward => {
            let pass = lps * stage.layer_s;
            let waits = (stage.pp - 1) as f64;
            out.work_s = b * pass;
            // What the other stages lack of the longest they do not take to fill and drain.
            let lacking = stage.pp * stage.longest - workload.repeat;
            out.bubble_s = waits * pass - lacking as f64 * stage.layer_s;
            if stage.pp > 1 {
                let bytes = stage.carried_bytes * workload.micro_batch as f64;
                out.p2p_s = (b + waits) * hand_over(stage.pp_group, bytes, stage.hand_overs);
            }
        }
        Pipeline::Dfmodel => dfmodel::second(workload, stage, samples, &mut out),
        Pipeline::DfmodelFirst => dfmodel::first(workload, stage, samples, &mut out),
    }
    (out.gradient_s, out.optimizer_s) = update_s(workload, system, stage, layers_per_stage);
    out
}

/// Seconds of the gradient reduction that nothing hides, and of the optimiser's pass, of a stage of `layers` layers.
pub fn update_s(workload: &Workload, system: &System, stage: &Stage<'_>, layers: u64) -> (f64, f64) {
    let (options, lps) = (&system.model, layers as f64);
    let (mut gradient_s, mut optimizer_s) = (0.0, 0.0);
    if workload.training {
        if options.gradient_reduction == GradientReduction::PerIteration {
            gradient_s = collective::gradient_seconds(stage.dp_group, stage.layer_gradient_bytes * lps, options);
        }
        if options.optimizer_step == Charge::Charged {
            let word = workload.word_bytes;
            let weights = stage.layer_weight_bytes / word * lps;
            // Gradients read, states read and written, weights written.
            let bytes_per_weight = 2.0 * word + 2.0 * optimizer_bytes_per_weight(word);
            optimizer_s = weights * bytes_per_weight / Rate::of(workload, system).dram_bytes_per_s;
        }
    }
    (gradient_s, optimizer_s)
}
