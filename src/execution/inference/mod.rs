//! Inference of a language model in the steady state of one batch: prompts, then tokens one by one with a growing cache of keys
//! and values.
//!
//! A batch of b sequences is divided among dp replicas. Memory lets a replica serve so many at once ([`memory::room`]); more run in waves, one after the
//! other, and sequences of a wave begin and end together (no arrivals: `prompt` and `generated` are the same for all). On pp
//! stages a replica's batch is cut in microbatches of ceil(b / dp / pp) sequences, m of them in a wave. With S the seconds of a stage, H of the
//! head, X of a hand-over, and P = max(m, pp) where microbatches overlap on the stages, m pp where they do not:
//!
//! ```text
//! prompts  (m + pp - 1)(S + X) + H   or   m pp (S + X) + m H
//! step     P (S + X) + H             or   m pp (S + X) + m H,   plus the host's time for each sequence
//! wave     request + prompts + generated x mean step
//! ```
//!
//! A step is linear in the context while it is bound by the same resource, so its mean over the answer is the step at the mean
//! context; a window enters by the mean of what it leaves. What is not modelled: arrivals, answers of different lengths, chunks of
//! prompts between steps, speculation.

pub mod memory;
pub mod search;
pub mod server;
pub mod step;
#[cfg(test)]
mod tests;

pub use memory::Memory;
pub use search::{Limits, Outcome, Wanted, search};
pub use server::Server;
pub use step::{Layout, Pass, Seconds, Steps};

use crate::system::serving::CacheLayout;
use crate::units::Bytes;
use crate::workload::language::LanguageModel;
use serde::Serialize;
use std::fmt;

/// What a batch takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// Degrees.
    pub layout: Layout,
    /// Sequences of the batch.
    pub batch: u64,
    /// Sequences that are served at once, all replicas together.
    pub at_once: u64,
    /// Rounds in which the batch runs.
    pub waves: u64,
    /// Seconds from the request to the first token, in the first wave.
    pub ttft_s: f64,
    /// The same in the last wave: what the sequence that waits longest sees.
    pub last_ttft_s: f64,
    /// Seconds for each further token, mean over the answer, in a full wave; 0 where nothing is generated.
    pub tpot_s: f64,
    /// The same for the last token.
    pub last_tpot_s: f64,
    /// Seconds from the request to the last token of the batch.
    pub latency_s: f64,
    /// Generated tokens a second.
    pub generated_per_s: f64,
    /// Prompt and generated tokens a second.
    pub tokens_per_s: f64,
    /// Generated tokens a second and chip (prompt tokens where nothing is generated).
    pub per_chip: f64,
    /// The prompts of a full wave on one replica, by what they are spent on.
    pub prompt: Seconds,
    /// A mean step of a full wave.
    pub step: Seconds,
    /// Bytes of the fullest chip.
    pub memory: Memory,
}

/// Why a layout cannot serve.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// A degree does not divide what it is to divide.
    Degrees(String),
    /// Weights, buffers and one sequence are more than the memory.
    Memory {
        /// Bytes needed.
        needed: f64,
        /// Bytes of the memory.
        capacity: f64,
        /// Of them weights.
        weights: f64,
    },
    /// The system lacks something.
    System(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Degrees(why) | Self::System(why) => f.write_str(why),
            Self::Memory { needed, capacity, weights } => write!(
                f,
                "one sequence needs {} of memory on a chip that has {} ({} of it weights): more chips to a replica, or narrower types",
                Bytes(*needed),
                Bytes(*capacity),
                Bytes(*weights)
            ),
        }
    }
}

/// Whether degrees divide the model.
///
/// # Errors
/// A sentence with the degree that does not.
pub fn check_degrees(model: &LanguageModel, layout: &Layout) -> Result<(), String> {
    if layout.tp == 0 || !model.heads.is_multiple_of(layout.tp) {
        return Err(format!("tp {}: expected a divisor of the {} heads", layout.tp, model.heads));
    }
    if layout.pp == 0 || layout.pp > model.layers {
        return Err(format!("pp {}: expected at most the {} layers", layout.pp, model.layers));
    }
    if layout.ep == 0 || !layout.dp.max(1).is_multiple_of(layout.ep) {
        return Err(format!("ep {}: expected a divisor of the {} replicas", layout.ep, layout.dp));
    }
    let experts = model.experts.map_or(1, |e| e.count);
    if !experts.is_multiple_of(layout.ep) {
        return Err(format!("ep {}: expected a divisor of the {experts} experts", layout.ep));
    }
    Ok(())
}

/// Seconds of one wave of `n` sequences of one replica.
struct Wave {
    prompt: Seconds,
    step: Seconds,
    last_step: f64,
}

struct Batch<'a> {
    steps: Steps<'a>,
    prompt: u64,
    generated: u64,
    /// Sequences of a microbatch.
    micro: u64,
}

impl Batch<'_> {
    /// Tokens seen by the mean step, and by the last.
    fn seen(&self) -> (f64, f64) {
        let (from, steps) = (self.prompt as f64, self.generated as f64);
        let to = from + steps;
        match self.steps.model.window.map(|w| w as f64) {
            // Growing up to the window, then constant.
            Some(w) if to > w && steps > 0.0 => {
                let growing = (w - from).clamp(0.0, steps);
                let mean = (growing * (from.min(w) + w) / 2.0 + (steps - growing) * w) / steps;
                (mean, w)
            }
            _ => (from + steps / 2.0, to),
        }
    }

    fn cached(&self, seen: f64) -> f64 {
        match self.steps.server.serving.cache {
            CacheLayout::Compiled => self.steps.server.serving.reserved(self.prompt + self.generated) as f64,
            _ => seen,
        }
    }

    fn wave(&self, n: u64) -> Wave {
        let steps = &self.steps;
        let serving = &steps.server.serving;
        let pp = steps.layout.pp as f64;
        let count = n.div_ceil(self.micro.max(1)).max(1) as f64;
        let each = n as f64 / count;
        let through = |rows: f64, pass: Pass, overlapped: f64| -> Seconds {
            let stage = steps.stage(rows, pass).plus(&steps.hand_over(rows));
            let head = steps.head(each);
            if serving.overlapped_stages {
                stage.times(overlapped).plus(&head)
            } else {
                stage.times(count * pp).plus(&head.times(count))
            }
        };
        let step = |seen: f64| {
            let pass = Pass::Token { context: seen, cached: self.cached(seen) };
            let host = Seconds { host: n as f64 * serving.step_sequence.0, ..Seconds::default() };
            through(each, pass, count.max(pp)).plus(&host)
        };
        let (mean, last) = self.seen();
        let host = Seconds { host: serving.request.0, ..Seconds::default() };
        Wave {
            prompt: through(each * self.prompt as f64, Pass::Prompt, count + pp - 1.0).plus(&host),
            step: step(mean),
            last_step: step(last).total(),
        }
    }
}

/// Predicts a batch of `batch` sequences under a layout.
///
/// # Errors
/// [`Refusal`]: why it cannot be served so.
pub fn predict(server: &Server, model: &LanguageModel, layout: Layout, batch: u64) -> Result<Prediction, Refusal> {
    check_degrees(model, &layout).map_err(Refusal::Degrees)?;
    let batch = batch.max(1);
    let steps = Steps::new(server, model, layout).map_err(Refusal::System)?;
    let (prompt, generated) = (model.seq, model.generated.unwrap_or(0));
    let share = batch.div_ceil(layout.dp.max(1));
    let micro = share.div_ceil(layout.pp.max(1));
    // Prompts of a microbatch may be read one after another, so one has to fit.
    let buffers = memory::buffers(&steps, prompt as f64, micro as f64);
    let room = memory::room(&steps, prompt.saturating_add(generated), buffers);
    if room.sequences == 0 {
        return Err(Refusal::Memory {
            needed: room.weights + buffers + room.sequence / server.serving.cache_share.0.max(f64::MIN_POSITIVE),
            capacity: server.machine.capacity.unwrap_or(f64::INFINITY),
            weights: room.weights,
        });
    }
    let at_once = share.min(room.sequences);
    let (full, rest) = (share / at_once, share % at_once);
    let of = Batch { steps, prompt, generated, micro };
    let wave = of.wave(at_once);
    let tokens = generated as f64;
    let seconds = |w: &Wave| w.prompt.total() + tokens * w.step.total();
    let mut latency = full as f64 * seconds(&wave);
    let mut last_ttft = latency - tokens * wave.step.total();
    if rest > 0 {
        let last = of.wave(rest);
        last_ttft = latency + last.prompt.total();
        latency += seconds(&last);
    }
    let chips = (layout.tp * layout.pp * layout.dp) as f64;
    let all = batch as f64;
    let generated_per_s = all * tokens / latency;
    let tokens_per_s = all * (prompt as f64 + tokens) / latency;
    let memory = Memory { weights: room.weights, cache: at_once as f64 * room.sequence, buffers };
    Ok(Prediction {
        layout,
        batch,
        at_once: at_once.saturating_mul(layout.dp).min(batch),
        waves: full + u64::from(rest > 0),
        ttft_s: wave.prompt.total(),
        last_ttft_s: last_ttft,
        tpot_s: if generated > 0 { wave.step.total() } else { 0.0 },
        last_tpot_s: if generated > 0 { wave.last_step } else { 0.0 },
        latency_s: latency,
        generated_per_s,
        tokens_per_s,
        per_chip: if generated > 0 { generated_per_s } else { tokens_per_s } / chips,
        prompt: wave.prompt,
        step: if generated > 0 { wave.step } else { Seconds::default() },
        memory,
    })
}
