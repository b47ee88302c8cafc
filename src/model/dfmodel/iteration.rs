//! From the time of a layer to that of an iteration, as DFModel has it (model.md section 5, "Total time").

use crate::graph::Workload;
use crate::model::schedule::{Iteration, Stage, hand_over};

/// Second generation: A lps batch/DP (1 + (PP-1)/(b q)) + layers * carried / B_pp, with q = max(lps - 1, 1), A the time of a layer, lps
/// the layers of a stage, b microbatches, `samples` = batch/DP.
pub fn second(workload: &Workload, stage: &Stage<'_>, samples: f64, out: &mut Iteration) {
    let lps = stage.longest as f64;
    let q = if stage.longest > 1 { lps - 1.0 } else { 1.0 };
    out.work_s = stage.layer_s * lps * samples;
    out.bubble_s = out.work_s * ((stage.pp - 1) as f64 / (out.microbatches * q));
    if workload.training && !stage.pp_group.is_empty() {
        // Without latency, also in the versions that have one.
        out.p2p_s = workload.repeat as f64 * hand_over(stage.pp_group, stage.carried_bytes, 0);
    }
}

/// First generation: max(A, carried forward / B_pp) layers/PP batch/DP, for training times 1 + (PP-1)/b.
pub fn first(workload: &Workload, stage: &Stage<'_>, samples: f64, out: &mut Iteration) {
    // DFModel's carried tensor here is the forward one alone.
    let forward = stage.carried_bytes / if workload.training { 2.0 } else { 1.0 };
    let interval = stage.layer_s.max(hand_over(stage.pp_group, forward, 0));
    out.work_s = interval * workload.repeat as f64 / stage.pp as f64 * samples;
    if workload.training {
        out.bubble_s = out.work_s * ((stage.pp - 1) as f64 / out.microbatches);
    }
}
