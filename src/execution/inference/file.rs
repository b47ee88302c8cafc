//! How a batch is served, as YAML: what `map --plan-out` writes, `check` derives again and `map --plan` searches anew but for what `pin` names.

use super::search::Wanted;
use super::{Given, Layout, Prediction, Refusal, Server, predict_for};
use crate::model::objective::Worth;
use crate::plan::file::Stated;
use crate::plan::{TOLERANCE, file};
use crate::spec::{Node, Problems, Reader};
use crate::system::{System, price};
use crate::workload::language::LanguageModel;
use serde_json::json;

crate::spec! {
    /// How a batch of a language model is served, and what belongs to it.
    pub struct ServingFile ("a serving file") {
        /// Name for rows and titles.
        name: String,
        /// Where it comes from.
        source: String,
        /// The decisions.
        serve: Decisions,
        /// Decisions that `flowspace map --plan` must keep.
        pin: Vec<Decision> = Vec::new(),
        /// Figures, to be compared with what the decisions give.
        result: Option<ServingResult>,
        /// The workload: a language model with `pass: inference`.
        workload: Node,
        /// The system.
        system: Node,
    }
}

crate::spec! {
    /// Decisions of serving.
    pub struct Decisions ("decisions of serving") {
        /// Tensor parallelism: chips that share each layer.
        tp: u64 = 1,
        /// Pipeline parallelism: stages.
        pp: u64 = 1,
        /// Replicas, each with its part of the batch.
        dp: u64 = 1,
        /// Expert parallelism: replicas among which experts are divided.
        ep: u64 = 1,
        /// Sequences of the batch.
        batch: u64,
        /// Sequences that a replica serves at once; the size of least latency of those that fit where left out.
        wave: Option<u64>,
        /// Microbatches in which a wave goes through the stages, at most as many as these; where left out as many as stages, or with `microbatches: best` of the stack the number of least latency.
        microbatches: Option<u64>,
    }
}

crate::choice! {
    /// A decision of serving.
    pub enum Decision ("a decision of serving") {
        /// Tensor parallelism.
        Tp = "tp",
        /// Stages.
        Pp = "pp",
        /// Replicas.
        Dp = "dp",
        /// Expert parallelism.
        Ep = "ep",
        /// Sequences of the batch; else the workload's `global_batch`, or those of `--batch`.
        Batch = "batch",
    }
}

crate::spec! {
    /// Figures of serving. Each is compared if it is there.
    pub struct ServingResult ("figures of serving") {
        /// Seconds from the request to the first token, in the first wave.
        ttft_s: Option<f64>,
        /// The same in the last wave.
        last_ttft_s: Option<f64>,
        /// Seconds for each further token, mean over the answer.
        tpot_s: Option<f64>,
        /// The same for the last token.
        last_tpot_s: Option<f64>,
        /// Seconds from the request to the last token of the batch.
        latency_s: Option<f64>,
        /// Generated tokens a second.
        generated_per_s: Option<f64>,
        /// Prompt and generated tokens a second.
        tokens_per_s: Option<f64>,
        /// Bytes in the memory of the fullest chip.
        memory_bytes: Option<f64>,
        /// Joules of the batch, idle power included.
        energy_j: Option<f64>,
        /// Price of the system.
        cost_usd: Option<f64>,
        /// Power of the system.
        power_w: Option<f64>,
        /// Largest relative difference allowed (the figures of others may be rounded).
        tolerance: f64 = TOLERANCE,
    }
}

impl Decisions {
    /// Of a prediction.
    pub fn of(p: &Prediction) -> Self {
        let Layout { tp, pp, dp, ep } = p.layout;
        Self { tp, pp, dp, ep, batch: p.batch, wave: Some(p.wave), microbatches: Some(p.microbatches) }
    }

    /// What they take.
    ///
    /// # Errors
    /// A sentence with the rule that they break.
    pub fn predict(&self, server: &Server, model: &LanguageModel) -> Result<Prediction, String> {
        let Self { tp, pp, dp, ep, batch, wave, microbatches } = *self;
        let chips = [tp, pp, dp].into_iter().fold(1, u64::saturating_mul);
        if chips != server.machine.chips {
            return Err(format!(
                "tp {tp} x pp {pp} x dp {dp} is {chips} chips: expected the {} of the system",
                server.machine.chips
            ));
        }
        if batch == 0 {
            return Err("batch 0: expected at least one sequence".into());
        }
        let given = Given { batch, wave, microbatches };
        predict_for(server, model, Layout { tp, pp, dp, ep }, given, &Worth::TIME).map_err(|refusal| match refusal {
            Refusal::Memory { .. } => format!("infeasible: {refusal}"),
            _ => refusal.to_string(),
        })
    }
}

impl ServingResult {
    /// Figures of a prediction on a system.
    pub fn of(p: &Prediction, system: &System) -> Self {
        Self {
            ttft_s: Some(p.ttft_s),
            last_ttft_s: Some(p.last_ttft_s),
            tpot_s: Some(p.tpot_s),
            last_tpot_s: Some(p.last_tpot_s),
            latency_s: Some(p.latency_s),
            generated_per_s: Some(p.generated_per_s),
            tokens_per_s: Some(p.tokens_per_s),
            memory_bytes: Some(p.memory.total()),
            energy_j: price::power(system).stated().map(|_| p.energy.total()),
            cost_usd: price::cost(system).stated(),
            power_w: price::power(system).stated(),
            tolerance: TOLERANCE,
        }
    }
}

impl Stated for ServingResult {
    fn figures(&self) -> Vec<(&'static str, Option<f64>)> {
        vec![
            ("ttft_s", self.ttft_s),
            ("last_ttft_s", self.last_ttft_s),
            ("tpot_s", self.tpot_s),
            ("last_tpot_s", self.last_tpot_s),
            ("latency_s", self.latency_s),
            ("generated_per_s", self.generated_per_s),
            ("tokens_per_s", self.tokens_per_s),
            ("memory_bytes", self.memory_bytes),
            ("energy_j", self.energy_j),
            ("cost_usd", self.cost_usd),
            ("power_w", self.power_w),
        ]
    }

    fn tolerance(&self) -> f64 {
        self.tolerance
    }
}

impl ServingFile {
    /// Gives a search what it must keep.
    pub fn pin(&self, wanted: &mut Wanted) {
        let d = &self.serve;
        for decision in &self.pin {
            match decision {
                Decision::Tp => wanted.tp = Some(d.tp),
                Decision::Pp => wanted.pp = Some(d.pp),
                Decision::Dp => wanted.dp = Some(d.dp),
                Decision::Ep => wanted.ep = Some(d.ep),
                Decision::Batch => wanted.batches = vec![d.batch],
            }
        }
    }
}

/// A serving file, read.
pub type Whole = file::Whole<ServingFile>;

impl Whole {
    /// Reads a tree whose references are not yet resolved.
    ///
    /// # Errors
    /// All [`Problems`] of the file, its workload and its system.
    pub fn read(node: &Node) -> Result<Self, Problems> {
        let spec: ServingFile = Reader::read(node)?;
        let about = file::all_subjects([Some(&spec.workload), Some(&spec.system)], Vec::new())?;
        Ok(Self::of(spec, about))
    }
}

/// The text of a file.
///
/// # Errors
/// A message when the YAML writer fails.
pub fn write(
    p: &Prediction,
    (source, pin): (&str, &[Decision]),
    (model, system): (&LanguageModel, &System),
    (workload, tree): (&Node, &Node),
) -> Result<String, String> {
    let document = json!({
        "name": format!("{} on {}", model.name, system.name),
        "source": source,
        "serve": Decisions::of(p),
        "pin": pin,
        "result": ServingResult::of(p, system),
        "workload": workload.to_json(),
        "system": tree.to_json(),
    });
    let body = serde_saphyr::to_string(&document).map_err(|e| format!("cannot write the serving file: {e}"))?;
    Ok(format!(
        "# How flowspace serves a batch. Edit it, then `flowspace check FILE --recost`; or name decisions under `pin` and `flowspace map --plan FILE`.\n{body}"
    ))
}
