//! The prediction of one execution: time with its parts, memory by kind, utilisation.

use super::block::{BlockKey, Blocks, FOR_ONE, Inner};
use super::communication::IterationLinks;
use super::machine::Machine;
use super::memory::{self, Memory};
use super::policy::Policy;
use super::schedule::{self, ChipWeights, Constants, IterationTime, Pipeline};
use super::search::not_within;
use super::spec::{Execution, Offload, Recompute, Zero};
use crate::deadline::Deadline;
use crate::model::energy::Energy;
use crate::plan::Plan;
use crate::workload::language::{LanguageModel, ModelPass};
use serde::Serialize;
use std::sync::Arc;

/// What an execution takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// The execution.
    pub execution: Execution,
    /// Chips it takes.
    pub chips: u64,
    /// Microbatches of one replica and iteration.
    pub microbatches: u64,
    /// Seconds of an iteration by part.
    pub time: IterationTime,
    /// The memory of the fullest stage.
    pub memory: Memory,
    /// Joules of an iteration, all chips.
    pub energy: Energy,
    /// The model's own FLOP of an iteration, all chips ([`LanguageModel::needed_flop_per_sample`]): products with weights and the unmasked part of attention,
    /// forward, and backward what is trained asks for, nothing computed again.
    #[serde(skip)]
    pub model_flop: f64,
    /// Share of the chips' peak that the model's own FLOP make.
    pub model_flop_utilization: f64,
    /// Share of the chips' peak that all executed FLOP of products make.
    pub hardware_flop_utilization: f64,
    /// Samples a second.
    pub samples_per_s: f64,
    /// Tokens a second.
    pub tokens_per_s: f64,
    /// The passes that it is made of.
    #[serde(skip)]
    pub blocks: Blocks,
}

impl Prediction {
    /// Joules a sample.
    pub fn j_per_sample(&self) -> f64 {
        self.energy.total() / (self.samples_per_s * self.time.total)
    }

    /// Joules a token.
    pub fn j_per_token(&self) -> f64 {
        self.energy.total() / (self.tokens_per_s * self.time.total)
    }
}

/// Why there is no prediction.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The execution does not suit the model or the machine.
    #[error("{0}")]
    Invalid(String),
    /// The memory is too small.
    #[error("{}", .0.text())]
    Infeasible(Box<Shortage>),
}

/// What is short, and what would mend it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shortage {
    /// What the execution needs.
    pub memory: Memory,
    /// The fastest execution that differs in one decision and fits, with that decision in words.
    pub change: Option<(String, Execution)>,
}

impl Shortage {
    /// A sentence for a person.
    pub fn text(&self) -> String {
        let remedy = match &self.change {
            Some((change, _)) => format!("nearest change that fits: {change}"),
            None => "no single change of the execution fits: more chips, or more memory".into(),
        };
        format!("{}; {remedy}", self.memory.need())
    }
}

/// Whether an execution suits model and machine, memory apart; microbatches if so.
///
/// # Errors
/// A sentence that says what does not fit, and what would.
pub fn suits(machine: &Machine, model: &LanguageModel, e: &Execution) -> Result<u64, String> {
    if model.pass != ModelPass::Training {
        return Err(format!("{}: executions are predicted for the pass training", model.name));
    }
    if e.chips() > machine.chips {
        return Err(format!("the execution takes {} chips, {} has {}", e.chips(), machine.name, machine.chips));
    }
    let divides = |what: &str, degree: &str, whole: u64, by: u64| {
        if by == 0 || !whole.is_multiple_of(by) {
            Err(format!("{degree} = {by} does not divide the {whole} {what} of {}", model.name))
        } else {
            Ok(())
        }
    };
    divides("heads", "tp", model.heads, e.tp)?;
    divides("tokens of a sample", "cp", model.seq, e.cp)?;
    match model.experts.filter(|_| model.expert_layers() > 0) {
        Some(x) => divides("experts", "ep", x.count, e.ep)?,
        None if e.ep > 1 => return Err(format!("ep = {}, but {} has no experts", e.ep, model.name)),
        None => {}
    }
    if e.ep == 0 || !e.dp.saturating_mul(e.cp).is_multiple_of(e.ep) {
        return Err(format!("ep = {} does not divide dp x cp = {}", e.ep, e.dp.saturating_mul(e.cp)));
    }
    let pieces = e.pp.saturating_mul(e.chunks);
    if pieces == 0 || pieces > model.layers.saturating_add(if e.chunks > 1 { 2 } else { 0 }) {
        return Err(format!(
            "{} pieces of layers (pp x chunks = {} x {}), but {} has {} layers",
            pieces, e.pp, e.chunks, model.name, model.layers
        ));
    }
    let microbatches = e.microbatches(model.global_batch)?;
    if e.chunks > 1 && !microbatches.is_multiple_of(e.pp) {
        return Err(format!("an interleaved schedule needs microbatches ({microbatches}) that pp = {} divides", e.pp));
    }
    for (asked, can, what) in
        [(e.overlap_dp, machine.stack.overlap_dp, "overlap_dp"), (e.overlap_tp, machine.stack.overlap_tp, "overlap_tp")]
    {
        if asked && !can {
            return Err(format!("{what}: the stack {} of {} cannot do that", machine.stack.name, machine.name));
        }
    }
    if e.offload == Offload::Streamed {
        return Err(format!(
            "offload: streamed, but this is for `software: free` on chips whose memory is their SRAM (`on_chip`) with a second tier beside it, which {} is not",
            machine.name
        ));
    }
    if e.offload != Offload::None && machine.second_tier.is_none() {
        return Err(format!("offload: {}, but {} has no second tier of memory (`offload:`)", e.offload, machine.name));
    }
    Ok(microbatches)
}

/// Predicts an execution of the machine's stack; memory is compared with the capacity.
///
/// # Errors
/// [`Refusal`]: an execution that does not suit model or machine, or that does not fit, with what would.
pub fn predict(machine: &Machine, model: &LanguageModel, e: &Execution) -> Result<Prediction, Refusal> {
    let policy = Policy::new(machine, model).map_err(Refusal::Invalid)?;
    predict_by(&policy, machine, model, e, Deadline::never()).map(|(prediction, _)| prediction)
}

/// [`predict`] with any inner search; with it the mapping of the blocks, where it is one of graphs.
///
/// # Errors
/// As [`predict`].
pub fn predict_by(
    inner: &dyn Inner,
    machine: &Machine,
    model: &LanguageModel,
    e: &Execution,
    deadline: Deadline,
) -> Result<(Prediction, Option<Arc<Plan>>), Refusal> {
    let (prediction, plan) = mapped(inner, machine, model, e, MOST, deadline).map_err(Refusal::Invalid)?;
    if prediction.memory.fits() {
        return Ok((prediction, plan));
    }
    let change = nearest(machine, model, e, |other| {
        mapped(inner, machine, model, other, FOR_ONE, deadline).ok().map(|(prediction, _)| prediction)
    });
    Err(Refusal::Infeasible(Box::new(Shortage { memory: prediction.memory, change })))
}

/// The most effort that a given execution is worth: the inner search ends before, where no more of it helps.
const MOST: u32 = 16;

/// A prediction, and the mapping of its blocks where it is one of graphs.
pub type Mapped = (Prediction, Option<Arc<Plan>>);

/// Keeps the better of two: what fits before what does not; of these the fastest, of those the one that needs least.
pub fn keep_better(best: &mut Option<Mapped>, other: Mapped) {
    let rank = |p: &Prediction| if p.memory.fits() { (0, p.time.total) } else { (1, p.memory.device.total()) };
    if best.as_ref().is_none_or(|(known, _)| rank(&other.0) < rank(known)) {
        *best = Some(other);
    }
}

/// By the best mapping that is found with so much effort at most.
fn mapped(
    inner: &dyn Inner,
    machine: &Machine,
    model: &LanguageModel,
    e: &Execution,
    most: u32,
    deadline: Deadline,
) -> Result<Mapped, String> {
    suits(machine, model, e)?;
    let space = inner.space();
    if let Some(why) = space.refuses(e) {
        return Err(why);
    }
    let key = BlockKey::of(e);
    let mut best: Option<Mapped> = None;
    // With less effort too, as a search sees them: what is found with more may be faster, and keep more.
    let bound = inner.bound(&key);
    for effort in 0..=most {
        let mappings = inner.best(&key, &bound, effort, deadline)?;
        let closed = mappings.iter().all(|one| one.effort.is_none());
        for one in mappings {
            keep_better(&mut best, (of_blocks(machine, model, e, one.blocks)?, one.plan));
        }
        if closed || deadline.is_over() {
            break;
        }
    }
    if !best.as_ref().is_some_and(|(known, _)| known.memory.fits()) {
        for one in inner.keeping_least(&key, most.min(FOR_ONE), deadline)? {
            keep_better(&mut best, (of_blocks(machine, model, e, one.blocks)?, one.plan));
        }
    }
    best.ok_or_else(|| match deadline.is_over() {
        true => not_within(),
        false => format!("no mapping of the blocks of {} fits the chips of {}", model.name, machine.name),
    })
}

/// Predicts an execution whether or not it fits the memory: for runs that are known to have run.
///
/// # Errors
/// A sentence where the execution does not suit model or machine.
pub fn predict_any(machine: &Machine, model: &LanguageModel, e: &Execution) -> Result<Prediction, String> {
    suits(machine, model, e)?;
    of_blocks(machine, model, e, Policy::new(machine, model)?.bound(&BlockKey::of(e)))
}

/// Predicts an execution of blocks whose passes are known.
///
/// # Errors
/// As [`predict_any`].
pub fn of_blocks(machine: &Machine, model: &LanguageModel, e: &Execution, block: Blocks) -> Result<Prediction, String> {
    let microbatches = suits(machine, model, e)?;
    let m = microbatches as f64;
    let peak = machine.peak(model)?;
    let weights = ChipWeights::of(model, e.tp, e.ep, e.pp);
    let links = IterationLinks::of(machine, e.tp, e.cp, e.ep, e.dp, e.pp);
    let kinds = schedule::stages(model, e.pp);
    let constants = Constants::of(machine, model);
    let pipeline = Pipeline {
        constants: &constants,
        block: &block,
        weights: &weights,
        links: &links,
        kinds: &kinds,
        microbatches: m,
    };
    let time = pipeline.iteration(e);
    let memory = memory::memory(machine, &pipeline, e);
    let chips = e.chips();
    let samples_per_s = model.global_batch as f64 / time.total;
    let model_flop = model.needed_flop_per_sample() * model.global_batch as f64;
    // Of all chips: every layer and end once a microbatch on tp x cp chips, in dp replicas.
    let layers = model.dense_layers() as f64 * block.plain.flop + model.expert_layers() as f64 * block.experts.flop;
    let replicas = (e.tp * e.cp * e.dp) as f64;
    let hardware_flop = m * replicas * (layers + block.embedding.flop + block.head.flop);
    let whole = time.total * chips as f64 * peak;
    Ok(Prediction {
        execution: e.clone(),
        chips,
        microbatches,
        energy: pipeline.energy(e, time.total),
        time,
        memory,
        model_flop,
        model_flop_utilization: model_flop / whole,
        hardware_flop_utilization: hardware_flop / whole,
        samples_per_s,
        tokens_per_s: samples_per_s * model.seq as f64,
        blocks: block,
    })
}

/// The fastest execution that differs from `e` in one decision and fits.
fn nearest(
    machine: &Machine,
    model: &LanguageModel,
    e: &Execution,
    predicted: impl Fn(&Execution) -> Option<Prediction>,
) -> Option<(String, Execution)> {
    let mut near: Vec<(String, Execution)> = Vec::new();
    for &recompute in Recompute::ALL.iter().filter(|r| **r != e.recompute) {
        near.push((format!("recompute: {recompute}"), Execution { recompute, ..e.clone() }));
    }
    for &zero in Zero::ALL.iter().filter(|z| **z > e.zero) {
        near.push((format!("zero: {zero}"), Execution { zero, ..e.clone() }));
    }
    for offload in Offload::tried().filter(|o| *o != e.offload && machine.second_tier.is_some()) {
        near.push((format!("offload: {offload}"), Execution { offload, ..e.clone() }));
    }
    if e.tp > 1 && !e.sequence_parallel {
        near.push(("sequence_parallel: true".into(), Execution { sequence_parallel: true, ..e.clone() }));
    }
    for micro_batch in (1..e.micro_batch).filter(|b| e.micro_batch.is_multiple_of(*b)) {
        near.push((format!("micro_batch: {micro_batch}"), Execution { micro_batch, ..e.clone() }));
    }
    for factor in [2u64, 4, 8, 16, 32, 64].into_iter().filter(|f| e.dp.is_multiple_of(*f)) {
        let dp = e.dp / factor;
        let (tp, pp) = (e.tp.saturating_mul(factor), e.pp.saturating_mul(factor));
        near.push((format!("tp: {tp}, dp: {dp}"), Execution { tp, dp, ..e.clone() }));
        near.push((format!("pp: {pp}, dp: {dp}"), Execution { pp, dp, ..e.clone() }));
    }
    near.into_iter()
        .filter_map(|(text, other)| {
            suits(machine, model, &other).ok()?;
            let p = predicted(&other).filter(|p| p.memory.fits())?;
            Some((p.time.total, text, other))
        })
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, text, other)| (text, other))
}
