//! The best layout and batch, by looking at all of them.
//!
//! Every (tp, pp, dp, ep) with tp x pp x dp = chips, tp a divisor of the heads, pp at most the layers, ep a divisor of dp and of the experts, times
//! every batch: some thousands at most, each some microseconds. So the proof is the enumeration, and the record says how many there
//! were and why those that cannot serve cannot. Ties go to the fewest chips of a replica, then to the smaller batch.

use super::{Given, Layout, Prediction, Refusal, Server, check_degrees, predict_for};
use crate::deadline::Deadline;
use crate::execution::search::Aim;
use crate::model::divisors::divisors;
use crate::model::objective::Objective;
use crate::workload::language::LanguageModel;
use serde::Serialize;

crate::choice! {
    /// What the best is.
    pub enum Goal ("a goal") {
        /// Most generated tokens a second (prompt tokens where nothing is generated).
        Throughput = "throughput",
        /// Least time from request to last token.
        Latency = "latency",
    }
}

/// Limits on latency, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Limits {
    /// Longest time to the first token, of the sequence that waits longest.
    pub ttft_s: Option<f64>,
    /// Longest time for each further token, of the last one.
    pub tpot_s: Option<f64>,
}

impl Limits {
    /// Whether a prediction keeps to them.
    pub fn hold(&self, p: &Prediction) -> bool {
        self.ttft_s.is_none_or(|most| p.last_ttft_s <= most) && self.tpot_s.is_none_or(|most| p.last_tpot_s <= most)
    }
}

/// What is free and what is given.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Tensor parallelism, where given.
    pub tp: Option<u64>,
    /// Stages, where given.
    pub pp: Option<u64>,
    /// Replicas, where given.
    pub dp: Option<u64>,
    /// Expert parallelism, where given.
    pub ep: Option<u64>,
    /// Batches to try.
    pub batches: Vec<u64>,
    /// Limits.
    pub limits: Limits,
    /// What the best is, where time is the objective.
    pub goal: Goal,
    /// What is minimised: with energy and cost the best takes least of it for a token.
    pub aim: Aim,
}

impl Wanted {
    /// Whether a smaller value is better, and of what.
    pub fn sought(&self) -> (&'static str, &'static str) {
        match (self.aim.objective, self.goal) {
            (Objective::Time, goal) => ("better", goal.word()),
            (Objective::Energy, _) => ("lower", "energy by token"),
            (Objective::Cost, _) => ("lower", "cost by token"),
        }
    }

    /// Whether `a` is better than `b`.
    fn better(&self, a: &Prediction, b: &Prediction) -> bool {
        match (self.aim.objective, self.goal) {
            (Objective::Time, Goal::Throughput) => a.per_chip > b.per_chip,
            (Objective::Time, Goal::Latency) => a.latency_s < b.latency_s,
            (Objective::Energy | Objective::Cost, _) => {
                a.value(&self.aim.worth) / a.tokens() < b.value(&self.aim.worth) / b.tokens()
            }
        }
    }
}

/// What a layout reaches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reached {
    /// Seconds.
    pub seconds: f64,
    /// The batch.
    pub batch: u64,
    /// The layout.
    pub layout: Layout,
}

impl Reached {
    /// Keeps the smaller of what is known and what a prediction reaches.
    fn keep(known: &mut Option<Self>, seconds: f64, p: &Prediction) {
        if known.is_none_or(|least| seconds < least.seconds) {
            *known = Some(Self { seconds, batch: p.batch, layout: p.layout });
        }
    }
}

/// Layouts of one batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfBatch {
    /// The batch.
    pub batch: u64,
    /// The best layout within the limits.
    pub best: Option<Prediction>,
    /// Layouts that fit the memory.
    pub predicted: u64,
    /// Layouts that do not.
    pub out_of_memory: u64,
    /// The least time to the first token.
    pub least_ttft: Option<Reached>,
    /// The least time for each further token.
    pub least_tpot: Option<Reached>,
}

/// The answer of a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The best that keeps to the limits.
    pub best: Option<Prediction>,
    /// The best layout for each batch, in order.
    pub by_batch: Vec<OfBatch>,
    /// Layouts times batches that were predicted.
    pub predicted: u64,
    /// Of them, those within the limits.
    pub within_limits: u64,
    /// Those that do not fit the memory.
    pub out_of_memory: u64,
    /// Where nothing fits: the least that a sequence needs on a chip, and why.
    pub nearest: Option<String>,
    /// The least time to the first token that any layout reaches that fits.
    pub least_ttft: Option<Reached>,
    /// The least time for each further token.
    pub least_tpot: Option<Reached>,
    /// Bytes of it; infinite where everything fits.
    #[serde(skip)]
    pub least_bytes: f64,
    /// Whether the deadline stopped it: then the best is the best so far.
    pub stopped: bool,
}

/// All layouts of `chips` chips.
pub fn layouts(model: &LanguageModel, chips: u64, wanted: &Wanted) -> Vec<Layout> {
    let fits = |want: Option<u64>, value: u64| want.is_none_or(|w| w == value);
    let mut found = Vec::new();
    let experts = divisors(model.experts.map_or(1, |e| e.count));
    for tp in divisors(model.heads).into_iter().filter(|tp| chips.is_multiple_of(*tp) && fits(wanted.tp, *tp)) {
        let stages = chips / tp;
        for pp in divisors(stages).into_iter().filter(|pp| *pp <= model.layers && fits(wanted.pp, *pp)) {
            let dp = stages / pp;
            if !fits(wanted.dp, dp) {
                continue;
            }
            for &ep in experts.iter().filter(|ep| dp.is_multiple_of(**ep) && fits(wanted.ep, **ep)) {
                let layout = Layout { tp, pp, dp, ep };
                if check_degrees(model, &layout).is_ok() {
                    found.push(layout);
                }
            }
        }
    }
    // Fewest chips to a replica first, so that a tie takes them.
    found.sort_by_key(|l| (l.tp * l.pp, l.pp, l.ep));
    found
}

/// Why there are no [`layouts`].
pub fn no_layouts(model: &LanguageModel, chips: u64, wanted: &Wanted) -> String {
    let experts = model.experts.map_or(String::new(), |e| format!(" and of the {} experts", e.count));
    let given = [("tp", wanted.tp), ("pp", wanted.pp), ("dp", wanted.dp), ("ep", wanted.ep)];
    let given: Vec<String> = given.iter().filter_map(|(name, n)| Some(format!("{name} {}", (*n)?))).collect();
    let with = if given.is_empty() { String::new() } else { format!(", with {} as given", given.join(", ")) };
    format!(
        "no tp x pp x dp = {chips} chips with tp a divisor of the {} heads, pp at most the {} layers and ep a divisor of dp{}{with}",
        model.heads,
        model.layers,
        if experts.is_empty() { " (1 without experts)" } else { &experts },
    )
}

/// Looks at every layout and batch.
///
/// # Errors
/// As [`search_until`].
pub fn search(server: &Server, model: &LanguageModel, wanted: &Wanted) -> Result<Outcome, String> {
    search_until(server, model, wanted, Deadline::never())
}

/// [`search`], at most until a deadline.
///
/// # Errors
/// A sentence: the system states no peak for the model's type, or no degrees divide it.
pub fn search_until(
    server: &Server,
    model: &LanguageModel,
    wanted: &Wanted,
    deadline: Deadline,
) -> Result<Outcome, String> {
    let chips = server.machine.chips;
    let layouts = layouts(model, chips, wanted);
    if layouts.is_empty() {
        return Err(no_layouts(model, chips, wanted));
    }
    let mut outcome = Outcome {
        best: None,
        by_batch: Vec::new(),
        predicted: 0,
        within_limits: 0,
        out_of_memory: 0,
        nearest: None,
        least_ttft: None,
        least_tpot: None,
        least_bytes: f64::INFINITY,
        stopped: false,
    };
    for &batch in &wanted.batches {
        let mut of = OfBatch { batch, best: None, predicted: 0, out_of_memory: 0, least_ttft: None, least_tpot: None };
        // More replicas than sequences leave chips idle: allowed, it never wins where it matters.
        for layout in &layouts {
            // One is looked at whatever the deadline.
            outcome.stopped |= deadline.is_over() && outcome.predicted + outcome.out_of_memory > 0;
            if outcome.stopped {
                break;
            }
            match predict_for(server, model, *layout, Given { batch, ..Given::default() }, &wanted.aim.worth) {
                Ok(p) => {
                    outcome.predicted += 1;
                    of.predicted += 1;
                    for (all, one, seconds) in [
                        (&mut outcome.least_ttft, &mut of.least_ttft, p.last_ttft_s),
                        (&mut outcome.least_tpot, &mut of.least_tpot, p.last_tpot_s),
                    ] {
                        Reached::keep(all, seconds, &p);
                        Reached::keep(one, seconds, &p);
                    }
                    if wanted.limits.hold(&p) {
                        outcome.within_limits += 1;
                        if of.best.as_ref().is_none_or(|b| wanted.better(&p, b)) {
                            of.best = Some(p);
                        }
                    }
                }
                Err(refusal) => {
                    if let Refusal::System(why) = refusal {
                        return Err(why);
                    }
                    outcome.out_of_memory += 1;
                    of.out_of_memory += 1;
                    if let Refusal::Memory { needed, .. } = refusal
                        && needed < outcome.least_bytes
                    {
                        outcome.least_bytes = needed;
                        let Layout { tp, pp, dp, .. } = layout;
                        outcome.nearest = Some(format!("tp {tp}, pp {pp}, dp {dp}: {refusal}"));
                    }
                }
            }
        }
        if let Some(b) = &of.best
            && outcome.best.as_ref().is_none_or(|o| wanted.better(b, o))
        {
            outcome.best = Some(b.clone());
        }
        outcome.by_batch.push(of);
    }
    Ok(outcome)
}
