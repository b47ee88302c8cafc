//! Inference of a language model in the steady state of one batch: prompts, then tokens one by one with a growing cache of keys
//! and values. docs/serving.md has all equations; those of a batch are here, of a pass in [`step`], of bytes in [`memory`], of joules in [`energy`].
//!
//! A batch of b sequences is divided among dp replicas. Memory lets a replica serve so many at once ([`memory::Stages::room`]); more run in waves, one after the
//! other, and sequences of a wave begin and end together (`prompt` and `generated` are the same for all; [`arrivals`] has requests that come one by one). Of the sizes of a
//! wave that fit, the one with the least latency (or energy, or cost) is taken ([`wave_sizes`]), the largest where software lets sequences in as soon as there is room. On pp stages a wave is cut in
//! m microbatches: as many as stages, or where software chooses of [`microbatch_counts`] the best. With S the seconds of a stage for one of them, hand-over to
//! the next and on the last one the head included, where microbatches overlap on the stages, or do not:
//!
//! ```text
//! prompts  sum S + (m - 1) max S          or   m sum S
//! step     max(sum S, m max S)            or   m sum S,   plus the host's time for each sequence
//! wave     request + prompts + (generated - 1) x mean step
//! ```
//!
//! Replicas that divide experts among them go from layer to layer together: prompts take 1 + `replica_wait` x (ep - 1) of this there.
//!
//! The prompts' pass ends with the first token, so that many steps follow; step j reads prompt + j tokens of context.
//! A step is linear in the context while it is bound by the same resource, so its mean over the answer is the step at the mean
//! context; a window enters by the mean of what it leaves. What is not modelled: speculation.

pub mod arrivals;
pub mod energy;
pub mod file;
pub mod memory;
pub mod search;
pub mod server;
pub mod step;
#[cfg(test)]
mod tests;

pub use energy::{Kernel, Spent, Uses};
pub use memory::Memory;
pub use search::{Limits, Outcome, Wanted, search, search_until};
pub use server::Server;
pub use step::{Layout, Pass, Seconds, Steps};

use crate::model::energy::Energy;
use crate::model::objective::Worth;
use crate::system::serving::{CacheLayout, Microbatches};
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
    /// Those of one replica in a full wave.
    pub wave: u64,
    /// Rounds in which the batch runs.
    pub waves: u64,
    /// Microbatches in which a full wave goes through the stages.
    pub microbatches: u64,
    /// Seconds from the request to the first token, in the first wave.
    pub ttft_s: f64,
    /// The same in the last wave: what the sequence that waits longest sees.
    pub last_ttft_s: f64,
    /// Seconds for each token after the first, mean over the answer, in a full wave; 0 where no second one is generated.
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
    /// Joules of the batch, all chips.
    pub energy: Energy,
}

impl Prediction {
    /// Tokens that the batch is served for: generated ones, or those of the prompts where nothing is generated.
    pub fn tokens(&self) -> f64 {
        self.latency_s * if self.generated_per_s > 0.0 { self.generated_per_s } else { self.tokens_per_s }
    }

    /// What an objective counts for the batch.
    pub fn value(&self, worth: &Worth) -> f64 {
        // Joules that nothing counts are left out: of chips without a stated power they are not known.
        worth.value(self.latency_s, if worth.joule > 0.0 { self.energy.used.total() } else { 0.0 })
    }
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
        /// Bytes of the memory that the software takes at most.
        usable: f64,
        /// Share of the memory that these are.
        limit: f64,
        /// Of them weights.
        weights: f64,
    },
    /// So many sequences of a replica cannot be served at once.
    Wave {
        /// Sequences asked for.
        found: u64,
        /// The most that can.
        most: u64,
        /// What these are.
        which: &'static str,
    },
    /// The system lacks something.
    System(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Degrees(why) | Self::System(why) => f.write_str(why),
            Self::Wave { found, most, which } => write!(f, "wave {found}: expected 1 to {most}, {which}"),
            Self::Memory { needed, usable, limit, weights } => {
                let of = if *limit < 1.0 {
                    format!(", of which the software takes {} ({} %)", Bytes(*usable), limit * 100.0)
                } else {
                    String::new()
                };
                write!(
                    f,
                    "one sequence needs {} of memory on a chip that has {}{of} ({} of it weights): more chips to a replica, or narrower types",
                    Bytes(*needed).printed_above(),
                    Bytes(*usable / limit.max(f64::MIN_POSITIVE)),
                    Bytes(*weights)
                )
            }
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
    /// What all chips of the replica use for it.
    uses: Uses,
}

struct Batch<'a> {
    steps: Steps<'a>,
    prompt: u64,
    generated: u64,
    /// Sequences of the replicas among which the same experts are divided.
    together: u64,
}

/// A replica's sequences in waves of `at_once` and a last one of what is left.
struct Waves {
    at_once: u64,
    microbatches: u64,
    count: u64,
    /// The first wave.
    first: Wave,
    /// Seconds until the last wave's first tokens, and until its last ones.
    last_ttft: f64,
    latency: f64,
    /// What all chips of the replica use.
    uses: Uses,
}

/// Sizes of a wave that are tried one by one, and of equal waves below them.
const WAVE_SIZES: (usize, usize) = (256, 32);

/// The sizes of a wave that are tried: from `most` sequences at once downward, then shares of equal waves. Fewer waves read the weights
/// less often, but what a step costs rises in steps of its own, so that the largest wave is not always the fastest.
pub fn wave_sizes(share: u64, most: u64) -> Vec<u64> {
    let most = most.min(share).max(1);
    let mut sizes: Vec<u64> = (1..=most).rev().take(WAVE_SIZES.0).collect();
    let mut size = sizes.last().copied().unwrap_or(1);
    for _ in 0..WAVE_SIZES.1 {
        if size <= 1 {
            break;
        }
        size = share.div_ceil(share.div_ceil(size - 1));
        sizes.push(size);
    }
    sizes
}

/// Microbatches of `rest` sequences that are as large as those of `n` in so many.
fn as_large(n: u64, microbatches: u64, rest: u64) -> u64 {
    rest.div_ceil(n.div_ceil(microbatches.max(1)).max(1))
}

/// Most microbatches of which each number is tried.
const MICROBATCHES: u64 = 8;

/// The numbers of microbatches that are tried for a wave of `n` sequences on `pp` stages: from as many as stages downward, of more than eight by halves. Fewer leave
/// stages idle, but read weights less often.
pub fn microbatch_counts(n: u64, pp: u64) -> Vec<u64> {
    let mut counts = vec![as_large(n, pp.min(n), n)];
    while let Some(last) = counts.last().copied().filter(|m| *m > 1) {
        let fewer = if last > MICROBATCHES { last.div_ceil(2) } else { last - 1 };
        counts.push(as_large(n, fewer, n));
    }
    counts.dedup();
    counts
}

impl Batch<'_> {
    /// Steps after the prompts, each of one token.
    fn count(&self) -> u64 {
        self.generated.saturating_sub(1)
    }

    /// Tokens that the mean step and the last go through, over all layers, in whole blocks of so many, at most the room that there is.
    fn seen(&self, block: f64) -> (f64, f64) {
        let room = (self.prompt + self.generated) as f64;
        let (from, steps) = (self.prompt as f64, self.count() as f64);
        let whole = |tokens: f64| (tokens / block).ceil() * block;
        // Of contexts of 1 to `tokens` tokens, all blocks: full ones, and what is begun.
        let up_to = |tokens: f64| {
            let full = (tokens / block).floor();
            block * block * full * (full + 1.0) / 2.0 + (tokens - full * block) * (full + 1.0) * block
        };
        let mean = |window: f64| {
            if steps == 0.0 {
                return whole(from).min(window);
            }
            // Step j sees from + j tokens, or the window; the first `growing` of them lie below it.
            let growing = ((window / block).floor() * block - from).clamp(0.0, steps);
            let full = if steps > growing { (steps - growing) * window } else { 0.0 };
            (up_to(from + growing) - up_to(from) + full) / steps
        };
        let model = self.steps.model;
        (
            model.over_layers(|| mean(room), |window| mean(room.min(window as f64))),
            model.over_layers(
                || whole(from + steps).min(room),
                |window| whole(from + steps).min(room.min(window as f64)),
            ),
        )
    }

    /// Tokens of a sequence's cache that the mean step and the last read.
    fn cached(&self) -> (f64, f64) {
        let serving = &self.steps.server.serving;
        match serving.cache {
            CacheLayout::Compiled | CacheLayout::Static => {
                let kept = memory::kept(&self.steps, self.prompt + self.generated);
                (kept, kept)
            }
            CacheLayout::Bucketed => self.seen(serving.cache_block.max(1) as f64),
            CacheLayout::Contiguous | CacheLayout::Paged => self.seen(1.0),
        }
    }

    /// All of a replica's sequences, `at_once` together, in so many microbatches.
    fn waves(&self, share: u64, (at_once, microbatches): (u64, u64)) -> Waves {
        let (full, rest) = (share / at_once, share % at_once);
        let steps = self.count() as f64;
        let seconds = |w: &Wave| w.prompt.total() + steps * w.step.total();
        let first = self.wave((at_once, self.together), microbatches);
        let mut latency = full as f64 * seconds(&first);
        let mut last_ttft = latency - steps * first.step.total();
        let mut uses = first.uses.times(full as f64);
        if rest > 0 {
            // The software keeps the microbatch of a full wave. Others that divide the experts have no more left than there are.
            let left = self.together.saturating_sub(full.saturating_mul(at_once).saturating_mul(self.steps.layout.ep));
            let last = self.wave((rest, left), as_large(at_once, microbatches, rest));
            last_ttft = latency + last.prompt.total();
            latency += seconds(&last);
            uses += last.uses;
        }
        Waves { at_once, microbatches, count: full + u64::from(rest > 0), first, last_ttft, latency, uses }
    }

    /// A wave of `n` sequences in so many microbatches; the replicas that divide the experts have `together` in all.
    fn wave(&self, (n, together): (u64, u64), microbatches: u64) -> Wave {
        let beside = self.steps.beside(n, together);
        let wave = self.wave_by(&beside, n, microbatches);
        if beside.at_work == self.steps.at_work {
            return wave;
        }
        // Each replica's sequences use what they ask for, on whichever chip that is.
        Wave { uses: self.wave_by(&self.steps, n, microbatches).uses, ..wave }
    }

    fn wave_by(&self, steps: &Steps, n: u64, microbatches: u64) -> Wave {
        let serving = &steps.server.serving;
        let count = microbatches as f64;
        let each = n as f64 / count;
        // Rows that fill a step up have no context.
        let rows = steps.server.rows_of_step(each);
        let real = each / rows;
        let step = |seen: f64, cached: f64| {
            let pass = Pass::Token { context: seen * real, cached: cached * real };
            let host = Seconds { host: serving.step.0 + n as f64 * serving.step_sequence.0, ..Seconds::default() };
            let spent = steps.through((1.0, count), (rows, rows), pass);
            Spent { seconds: spent.seconds.plus(&host), ..spent }
        };
        let ((mean, last), (mean_cached, last_cached)) = (self.seen(1.0), self.cached());
        let host = Seconds { host: steps.asked(), ..Seconds::default() };
        // Replicas that divide experts wait for the prompts of the others.
        let others = (steps.layout.ep.max(1) - 1) as f64;
        let waited = 1.0 + serving.replica_wait.0 * others;
        // A microbatch is one pass of all its prompts, or a pass for each.
        let (passes, read) = if serving.prompts_alone { (each, 1.0) } else { (1.0, each) };
        let prompts = steps.through((passes, count), (read * self.prompt as f64, read), Pass::Prompt);
        let mean = step(mean, mean_cached);
        Wave {
            prompt: prompts.seconds.times(waited).plus(&host),
            step: mean.seconds,
            last_step: step(last, last_cached).seconds.total(),
            uses: prompts.uses + mean.uses.times(self.count() as f64),
        }
    }

    /// What the chips of all replicas use: those that have a sequence less than the fullest are counted with what they have.
    fn uses(&self, waves: &Waves, batch: u64) -> Uses {
        let replicas = self.steps.layout.dp.max(1);
        let (least, more) = (batch / replicas, batch % replicas);
        if more == 0 {
            return waves.uses.times(replicas as f64);
        }
        let fullest = waves.uses.times(more as f64);
        match least {
            0 => fullest,
            _ => {
                let at_once = waves.at_once.min(least);
                let cut = (at_once, as_large(waves.at_once, waves.microbatches, at_once));
                fullest + self.waves(least, cut).uses.times((replicas - more) as f64)
            }
        }
    }
}

/// Predicts a batch of `batch` sequences under a layout, in waves of the size of least latency.
///
/// # Errors
/// [`Refusal`]: why it cannot be served so.
pub fn predict(server: &Server, model: &LanguageModel, layout: Layout, batch: u64) -> Result<Prediction, Refusal> {
    predict_for(server, model, layout, Given { batch, ..Given::default() }, &Worth::TIME)
}

/// How a batch is served, where it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Given {
    /// Sequences of the batch.
    pub batch: u64,
    /// Of a replica at once.
    pub wave: Option<u64>,
    /// Microbatches of a wave.
    pub microbatches: Option<u64>,
}

/// The same, of what is given; the rest as it takes least value.
///
/// # Errors
/// [`Refusal`]: why it cannot be served so.
pub fn predict_for(
    server: &Server,
    model: &LanguageModel,
    layout: Layout,
    given: Given,
    worth: &Worth,
) -> Result<Prediction, Refusal> {
    check_degrees(model, &layout).map_err(Refusal::Degrees)?;
    if let Some(whole) = server.without_windows(model) {
        return predict_for(server, &whole, layout, given, worth);
    }
    let batch = given.batch.max(1);
    let steps = Steps::new(server, model, layout).map_err(Refusal::System)?;
    let (prompt, generated) = (model.seq, model.generated.unwrap_or(0));
    let share = batch.div_ceil(layout.dp.max(1));
    let written = server.steady && !server.serving.admits_whole;
    let held = if written { generated.div_ceil(2) } else { generated };
    if let Some(m) = given.microbatches
        && !(1..=layout.pp).contains(&m)
    {
        return Err(Refusal::Degrees(format!("microbatches {m}: expected 1 to the {} stages", layout.pp)));
    }
    let stages = memory::Stages::of(&steps);
    let most = share.min(server.serving.most_sequences.max(1));
    let room = stages.room(&steps, (prompt, held), most, given.microbatches.unwrap_or(layout.pp));
    if room.sequences == 0 {
        return Err(Refusal::Memory {
            needed: room.weights + room.buffers + room.sequence / server.serving.cache_share.0.max(f64::MIN_POSITIVE),
            usable: server.usable(),
            limit: server.serving.memory_limit.0,
            weights: room.weights,
        });
    }
    let together = batch.div_ceil((layout.dp / layout.ep).max(1));
    let of = Batch { steps, prompt, generated, together };
    let most = room.sequences.min(share);
    let sizes = match given.wave {
        Some(wave) if !(1..=most).contains(&wave) => {
            let which = match most {
                _ if most == share => "the sequences of a replica",
                _ if most == server.serving.most_sequences => "the sequences that the software serves at once",
                _ => "the sequences that fit the memory of a replica",
            };
            return Err(Refusal::Wave { found: wave, most, which });
        }
        Some(wave) => vec![wave],
        // Software that lets sequences in as soon as there is room holds none back.
        None if !server.serving.admits_whole => vec![most],
        None => wave_sizes(share, most),
    };
    let cuts = |n: u64| {
        let counts = match given.microbatches {
            Some(m) => vec![as_large(n, m.min(n), n)],
            None if server.serving.microbatches == Microbatches::Stages => vec![as_large(n, layout.pp.min(n), n)],
            None => microbatch_counts(n, layout.pp),
        };
        let stages = &stages;
        counts.into_iter().filter(move |m| stages.fit(&steps, (prompt, held), n, *m)).map(move |m| (n, m))
    };
    let power = &of.steps.server.machine.power;
    let valued = |waves: Waves| {
        let counts = worth.joule > 0.0;
        let joules = if counts { of.uses(&waves, batch).joules(&power.rates).total() } else { 0.0 };
        (worth.value(waves.latency, joules), waves)
    };
    let all = sizes.into_iter().flat_map(cuts).map(|cut| valued(of.waves(share, cut)));
    // Of equal ones the first: the fewest waves, and the most microbatches.
    let waves = all.reduce(|best, next| if next.0 < best.0 * (1.0 - 1e-9) { next } else { best });
    let Some((_, waves)) = waves else {
        return Err(Refusal::System("no sequence to serve".into()));
    };
    let used = of.uses(&waves, batch).joules(&power.rates);
    let Waves { at_once, microbatches, count, first, last_ttft, latency, .. } = waves;
    let chips = layout.chips() as f64;
    let sequences = batch as f64;
    let generated_per_s = sequences * generated as f64 / latency;
    let tokens_per_s = sequences * (prompt + generated) as f64 / latency;
    let stepped = of.count() > 0;
    Ok(Prediction {
        layout,
        batch,
        at_once: at_once.saturating_mul(layout.dp).min(batch),
        wave: at_once,
        waves: count,
        microbatches,
        ttft_s: if of.steps.server.serving.separate_prompts {
            of.wave((1, together), 1).prompt.total()
        } else {
            first.prompt.total()
        },
        last_ttft_s: last_ttft,
        tpot_s: if stepped { first.step.total() } else { 0.0 },
        last_tpot_s: if stepped { first.last_step } else { 0.0 },
        latency_s: latency,
        generated_per_s,
        tokens_per_s,
        per_chip: if generated > 0 { generated_per_s } else { tokens_per_s } / chips,
        memory: stages.held(&of.steps, (prompt, generated), at_once, microbatches),
        prompt: first.prompt,
        step: if stepped { first.step } else { Seconds::default() },
        energy: Energy { idle: power.idle.times(latency), used },
    })
}
