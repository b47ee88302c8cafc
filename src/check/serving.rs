//! Serving: every figure of a batch derived again from its decisions (docs/serving.md), and compared.
//!
//! It shares with the prediction what a model and a system are (parameters, widths, what a mask leaves; peaks, links, the software's fields), what one
//! kernel takes by its sizes ([`KernelTimes`]) and what one collective takes by its bytes ([`Machine::line`], [`crate::model::collective::by_library`]). Which kernels
//! a pass has, how microbatches go through stages, waves, bytes and joules are written down here once more: kernels as one list a stage, pipelines event by event.

mod kernels;
mod memory;

use super::CheckError;
use crate::execution::Machine;
use crate::execution::inference::file::ServingResult;
use crate::execution::inference::{Layout, Memory, Prediction};
use crate::model::energy::Energy;
use crate::model::kernel_time::KernelTimes;
use crate::plan::{TOLERANCE, agree};
use crate::system::kernels::{Burst, Kernels, Tile};
use crate::system::price::{self, ByPart};
use crate::system::serving::CacheLayout;
use crate::system::{Serving, System};
use crate::units::Seconds;
use crate::workload::language::{Head, LanguageModel};

/// What the decisions of serving give.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Seconds to the first token, in the first wave and in the last one.
    pub ttft_s: [f64; 2],
    /// Seconds of a mean step and of the last one.
    pub tpot_s: [f64; 2],
    /// Seconds to the last token of the batch.
    pub latency_s: f64,
    /// Generated tokens a second.
    pub generated_per_s: f64,
    /// Prompt and generated tokens a second.
    pub tokens_per_s: f64,
    /// Bytes of the fullest chip.
    pub memory: Memory,
    /// Joules of the batch.
    pub energy: Energy,
    /// Sequences at once on all replicas, and waves.
    pub at_once: [u64; 2],
}

impl Figures {
    /// As a file states them.
    pub fn result(&self, system: &System) -> ServingResult {
        ServingResult {
            ttft_s: Some(self.ttft_s[0]),
            last_ttft_s: Some(self.ttft_s[1]),
            tpot_s: Some(self.tpot_s[0]),
            last_tpot_s: Some(self.tpot_s[1]),
            latency_s: Some(self.latency_s),
            generated_per_s: Some(self.generated_per_s),
            tokens_per_s: Some(self.tokens_per_s),
            memory_bytes: Some(self.memory.total()),
            energy_j: price::power(system).stated().map(|_| self.energy.total()),
            cost_usd: price::cost(system).stated(),
            power_w: price::power(system).stated(),
            tolerance: TOLERANCE,
        }
    }
}

/// Derives a prediction's figures again and compares.
///
/// # Errors
/// [`CheckError`]: rules that its decisions break, or the first figure that differs by more than [`TOLERANCE`].
pub fn verify(system: &System, model: &LanguageModel, p: &Prediction) -> Result<Figures, CheckError> {
    let derived = derive(system, model, p.layout, p.batch, (p.wave, p.microbatches)).map_err(CheckError::Violations)?;
    let (said, used) = (p.energy.used, derived.energy.used);
    for (what, plan, derived) in [
        ("ttft_s", p.ttft_s, derived.ttft_s[0]),
        ("last_ttft_s", p.last_ttft_s, derived.ttft_s[1]),
        ("tpot_s", p.tpot_s, derived.tpot_s[0]),
        ("last_tpot_s", p.last_tpot_s, derived.tpot_s[1]),
        ("latency_s", p.latency_s, derived.latency_s),
        ("generated_per_s", p.generated_per_s, derived.generated_per_s),
        ("tokens_per_s", p.tokens_per_s, derived.tokens_per_s),
        ("bytes of weights", p.memory.weights, derived.memory.weights),
        ("bytes of the cache", p.memory.cache, derived.memory.cache),
        ("bytes of buffers", p.memory.buffers, derived.memory.buffers),
        ("sequences at once", p.at_once as f64, derived.at_once[0] as f64),
        ("waves", p.waves as f64, derived.at_once[1] as f64),
        ("idle energy", p.energy.idle.total(), derived.energy.idle.total()),
        ("energy used by chips", said.chips, used.chips),
        ("energy used by memories", said.memory, used.memory),
        ("energy used by links", said.links, used.links),
        ("energy used by switches", said.switches, used.switches),
    ] {
        if !agree(plan, derived, TOLERANCE) {
            return Err(CheckError::Mismatch { what: what.into(), plan, derived });
        }
    }
    Ok(derived)
}

/// What decisions give.
///
/// # Errors
/// The rules that they break, each a sentence.
pub fn derive(
    system: &System,
    model: &LanguageModel,
    layout: Layout,
    batch: u64,
    cut: (u64, u64),
) -> Result<Figures, Vec<String>> {
    let broken = rules(model, layout, (system.chip_count(), batch), cut);
    if !broken.is_empty() {
        return Err(broken);
    }
    let whole;
    let machine = Machine::of_any_style(system).map_err(|e| vec![e])?;
    let serving = machine.stack.serving.unwrap_or_else(Serving::ideal);
    if cut.0 > serving.most_sequences.max(1) {
        return Err(vec![format!(
            "a wave of {} is more than the {} sequences that the software serves at once",
            cut.0, serving.most_sequences
        )]);
    }
    let model = if serving.whole_contexts {
        whole = LanguageModel { window: None, ..model.clone() };
        &whole
    } else {
        model
    };
    let Some(kernels) = &system.chip.0.kernels else {
        return Err(vec![format!("chip {}: no section `kernels`", system.chip.0.name)]);
    };
    Served::new(system, &machine, (kernels, serving), model, (layout, batch))?.figures(batch, cut)
}

/// What degrees, batch, wave and its microbatches must keep to, memory apart.
fn rules(
    model: &LanguageModel,
    layout: Layout,
    (chips, batch): (u64, u64),
    (wave, microbatches): (u64, u64),
) -> Vec<String> {
    let Layout { tp, pp, dp, ep } = layout;
    let experts = model.experts.map_or(1, |e| e.count);
    let divides = |a: u64, b: u64| a > 0 && b.checked_rem(a) == Some(0);
    [
        (u128::from(tp) * u128::from(pp) * u128::from(dp) == u128::from(chips), "tp x pp x dp is not the chips"),
        (divides(tp, model.heads), "tp does not divide the heads"),
        ((1..=model.layers).contains(&pp), "pp is not 1 to the layers"),
        (divides(ep, dp) && divides(ep, experts), "ep does not divide the replicas and the experts"),
        (batch > 0, "no sequence"),
        (wave > 0 && dp > 0 && wave <= batch.div_ceil(dp.max(1)), "the wave is not 1 to the sequences of a replica"),
        (
            (1..=pp.min(wave)).contains(&microbatches),
            "microbatches are not 1 to the stages and the sequences of a wave",
        ),
        (
            wave == 0 || microbatches == 0 || wave.div_ceil(wave.div_ceil(microbatches)) == microbatches,
            "microbatches are not as many as equally large ones of the wave",
        ),
    ]
    .into_iter()
    .filter(|(kept, _)| !kept)
    .map(|(_, rule)| rule.to_string())
    .collect()
}

/// What passes through the stages.
#[derive(Clone, Copy)]
enum Work {
    Prompt,
    /// A token of each sequence after so many, of which so many are read.
    Token(f64, f64),
}

/// One line of the list of what a chip does: so many times, so many seconds, and what it uses.
#[derive(Clone, Copy, Default)]
struct Call {
    times: f64,
    seconds: f64,
    busy: f64,
    flop: f64,
    bytes: f64,
    link_j: f64,
}

/// A list added up: seconds, and the rest.
fn sum(list: &[Call]) -> Call {
    list.iter().fold(Call { times: 1.0, ..Call::default() }, |sum, call| Call {
        times: 1.0,
        seconds: sum.seconds + call.times * call.seconds,
        busy: sum.busy + call.times * call.busy,
        flop: sum.flop + call.times * call.flop,
        bytes: sum.bytes + call.times * call.bytes,
        link_j: sum.link_j + call.times * call.link_j,
    })
}

/// A model on a system under a layout.
struct Served<'a> {
    system: &'a System,
    machine: &'a Machine,
    kernels: &'a Kernels,
    times: KernelTimes,
    /// The same of few rows with weights that are widened first.
    vectors: KernelTimes,
    serving: Serving,
    model: &'a LanguageModel,
    layout: Layout,
    peak: f64,
    /// Chips that share a layer.
    t: f64,
    /// Heads of keys and values on a chip.
    kv: f64,
    /// Sequences, of `batch` ones, that the replicas have among which the same experts are divided.
    together: u64,
}

/// Of one wave of one replica.
struct Wave {
    prompts: f64,
    step: f64,
    last_step: f64,
    /// What all its chips use.
    used: Call,
}

impl<'a> Served<'a> {
    fn new(
        system: &'a System,
        machine: &'a Machine,
        (kernels, serving): (&'a Kernels, Serving),
        model: &'a LanguageModel,
        (layout, batch): (Layout, u64),
    ) -> Result<Self, Vec<String>> {
        let word = model.types.products().word();
        let peak = kernels.peak_of(word).ok_or_else(|| vec![format!("no peak for {word}")])?;
        let of_chip = kernels.burst_of("");
        let bandwidth = system.memory.0.bandwidth.0 * machine.stack.memory_share.0;
        let times = match serving.waiting {
            None => KernelTimes::burst(kernels, &of_chip, bandwidth, 0.0),
            // The best of both, tile by tile.
            Some(own) if machine.ideal => {
                let best = Burst {
                    wait: Seconds(own.wait.0.min(of_chip.wait.0)),
                    tiles_at_once: own.tiles_at_once.max(of_chip.tiles_at_once),
                    vector_rows: own.vector_rows.max(of_chip.vector_rows),
                    ..of_chip
                };
                KernelTimes::burst(kernels, &best, bandwidth, 0.0)
            }
            Some(own) => {
                let undivided = kernels.tiles.iter().map(|tile| Tile { splits: 1, ..*tile }).collect();
                let waits =
                    Burst { wait: own.wait, tiles_at_once: own.tiles_at_once, vector_rows: own.vector_rows, ..of_chip };
                KernelTimes::burst(&Kernels { tiles: undivided, ..kernels.clone() }, &waits, bandwidth, 0.0)
            }
        };
        let kv = model.kv_heads().div_ceil(layout.tp) as f64;
        let together = batch.div_ceil(layout.dp / layout.ep);
        let t = layout.tp as f64;
        let vectors = times.of_vectors();
        Ok(Self { system, machine, kernels, times, vectors, serving, model, layout, peak, t, kv, together })
    }

    /// Seconds until `count` microbatches have gone through all stages, which take so long for one, and from one step to the next in the steady state.
    fn through(&self, count: u64, stages: &[f64]) -> [f64; 2] {
        if !self.serving.overlapped_stages {
            let one_by_one: f64 = (0..count).map(|_| stages.iter().sum::<f64>()).sum();
            return [one_by_one; 2];
        }
        // When each stage is free, and when each microbatch is back from the last one.
        let (mut free, mut back) = (vec![0.0f64; stages.len()], vec![0.0f64; count as usize]);
        let mut ends = Vec::new();
        for _ in 0..3 {
            for begin in &mut back {
                for (own, stage_free) in stages.iter().zip(&mut free) {
                    *begin = begin.max(*stage_free) + own;
                    *stage_free = *begin;
                }
            }
            ends.push(back.last().copied().unwrap_or(0.0));
        }
        [ends[0], ends[2] - ends[1]]
    }

    /// A wave of `n` sequences, in so many microbatches.
    fn wave(&self, n: u64, together: u64, count: u64) -> Wave {
        let (model, s) = (self.model, &self.serving);
        let tp = self.layout.tp as f64;
        let each = n as f64 / count as f64;
        // Replicas with as many sequences as this one among those with the other experts.
        let ep = self.layout.ep as f64;
        let peers = (together as f64 / n as f64).max(1.0).min(ep);
        // Of every microbatch as many passes of as many sequences.
        let pass_of = |peers: f64, passes: f64, sequences: f64, tokens: u64, work| {
            let (rows, head) = (sequences * tokens as f64, self.head(sequences));
            let (mut stages, hand_overs) = (self.stages((rows, peers), work), self.hand_overs(rows));
            if let Some(last) = stages.last_mut() {
                *last = sum(&[*last, Call { times: 1.0, ..head }]);
            }
            let both = stages.iter().zip(&hand_overs);
            let of_stages: Vec<f64> = both.map(|(s, hop)| passes * (s.seconds + hop.seconds)).collect();
            let seconds = self.through(count, &of_stages);
            let of = |times: f64, call: Call| Call { times: times * passes * count as f64 * tp, ..call };
            (seconds, sum(&[of(1.0, sum(&stages)), of(1.0, sum(&hand_overs[..hand_overs.len() - 1]))]))
        };
        // Times are of the tokens that meet on a chip; what is used, of those of this replica, wherever they go.
        let pass = |passes: f64, sequences: f64, tokens: u64, work| {
            let (seconds, used) = pass_of(peers, passes, sequences, tokens, work);
            let used = if peers < ep { pass_of(ep, passes, sequences, tokens, work).1 } else { used };
            (seconds, used)
        };
        let steps = model.generated.unwrap_or(0).saturating_sub(1);
        let (passes, of_pass) = if s.prompts_alone { (each, 1.0) } else { (1.0, each) };
        let (prompts, mut used) = pass(passes, of_pass, model.seq, Work::Prompt);
        let host = s.step.0 + n as f64 * s.step_sequence.0;
        let room = self.kept();
        let fixed = matches!(s.cache, CacheLayout::Compiled | CacheLayout::Static);
        let read = |seen: f64, from: u64| match s.cache {
            _ if fixed => room,
            CacheLayout::Bucketed => self.in_blocks(steps, from, s.cache_block.max(1)),
            _ => seen,
        };
        let step = |from: u64| {
            let seen = self.seen(steps, from);
            pass(1.0, each, 1, Work::Token(seen, read(seen, from)))
        };
        let (mean, of_step) = step(1);
        let (last, _) = step(steps);
        used = sum(&[used, Call { times: steps as f64, ..of_step }]);
        let waits = 1.0 + s.replica_wait.0 * (self.layout.ep - 1) as f64;
        let asks = if model.head == Head::Vocabulary { 1.0 } else { 0.0 };
        let asked = asks * (s.request.0 + (tp - 1.0) * s.request_peer.0);
        Wave { prompts: waits * prompts[0] + asked, step: mean[1] + host, last_step: last[1] + host, used }
    }

    /// Tokens that steps `from` to `steps` see on average, over all layers: step j sees the prompt and j, or the window.
    fn seen(&self, steps: u64, from: u64) -> f64 {
        let prompt = self.model.seq as f64;
        let mean = |window: f64| {
            if steps == 0 {
                return prompt.min(window);
            }
            // Pairs of the first and the last step that the window does not cut have the same sum.
            let (first, last) = (from as f64, steps as f64);
            let growing = (window - prompt).min(last);
            let cut = (growing - first + 1.0).max(0.0);
            let grown = cut * (2.0 * prompt + first + growing) / 2.0;
            let rest = last - first + 1.0 - cut;
            (grown + if rest > 0.0 { rest * window } else { 0.0 }) / (last - first + 1.0)
        };
        self.model.over_layers(|| mean(f64::INFINITY), |window| mean(window as f64))
    }

    /// The same in whole blocks of `block` tokens, of the room that there is: so many steps read the first block that is begun, a block's steps each one after it, and the rest the last.
    fn in_blocks(&self, steps: u64, from: u64, block: u64) -> f64 {
        let (prompt, block) = (self.model.seq as f64, block as f64);
        let (first, last) = ((prompt + from.min(steps) as f64).max(1.0), (prompt + steps as f64).max(1.0));
        let (begun, ended) = ((first / block).ceil(), (last / block).ceil());
        let mean = |window: f64| {
            let tokens = |number: f64| (number * block).min(window);
            if begun >= ended {
                return tokens(begun);
            }
            let (ahead, behind) = (begun * block - first + 1.0, last - (ended - 1.0) * block);
            // Whole blocks between: those below the window in pairs of the same sum, then the window.
            let cut = (window / block).floor().clamp(begun, ended - 1.0);
            let rising = (cut - begun) * (begun + 1.0 + cut) / 2.0 * block;
            let level = if ended - 1.0 > cut { (ended - 1.0 - cut) * window } else { 0.0 };
            let sum = ahead * tokens(begun) + block * (rising + level) + behind * tokens(ended);
            sum / (last - first + 1.0)
        };
        let room = prompt + self.model.generated.unwrap_or(0) as f64;
        self.model.over_layers(|| mean(room), |window| mean(room.min(window as f64)))
    }

    /// A replica's `sequences` in waves of `at_once`: seconds to the last wave's first tokens and to its last ones, what its chips use, the first wave.
    fn waves(&self, sequences: u64, (at_once, microbatches): (u64, u64)) -> ([f64; 2], Call, Wave) {
        let steps = self.model.generated.unwrap_or(0).saturating_sub(1) as f64;
        let micro = at_once.div_ceil(microbatches);
        let full = self.wave(at_once, self.together, microbatches);
        let (whole, rest) = ((sequences / at_once) as f64, sequences % at_once);
        let of_full = full.prompts + steps * full.step;
        let mut used = Call { times: whole, ..full.used };
        let mut ends = [(whole - 1.0) * of_full + full.prompts, whole * of_full];
        if rest > 0 {
            let served = (sequences - rest).saturating_mul(self.layout.ep);
            let last = self.wave(rest, self.together.saturating_sub(served), rest.div_ceil(micro));
            ends = [ends[1] + last.prompts, ends[1] + last.prompts + steps * last.step];
            used = sum(&[used, last.used]);
        }
        (ends, sum(&[used]), full)
    }

    fn figures(&self, batch: u64, (wave, microbatches): (u64, u64)) -> Result<Figures, Vec<String>> {
        let (model, dp) = (self.model, self.layout.dp);
        let memories = self.memories(wave, microbatches);
        for memory in &memories {
            let Some(capacity) = self.system.memory.0.capacity else { break };
            let free = capacity.0 * self.serving.memory_limit.0 - memory.weights - memory.buffers;
            // Equal to the last digits counts as fitting.
            if memory.cache > free * self.serving.cache_share.0 + TOLERANCE * capacity.0 {
                return Err(vec![format!("{wave} sequences at once do not fit the memory of a chip")]);
            }
        }
        let memory = memories.into_iter().max_by(|a, b| a.total().total_cmp(&b.total())).unwrap_or_default();
        let share = batch.div_ceil(dp);
        let (ends, of_fullest, first) = self.waves(share, (wave, microbatches));
        // Replicas with one sequence less, where they do not divide.
        let fuller = if batch.is_multiple_of(dp) { dp } else { batch % dp };
        let mut all = vec![Call { times: fuller as f64, ..of_fullest }];
        if fuller < dp && share > 1 {
            let (_, of_others, _) = self.waves(share - 1, {
                let n = wave.min(share - 1);
                (n, n.div_ceil(wave.div_ceil(microbatches)))
            });
            all.push(Call { times: (dp - fuller) as f64, ..of_others });
        }
        let ttft = if self.serving.separate_prompts { self.wave(1, self.together, 1).prompts } else { first.prompts };
        let stepped = model.generated.unwrap_or(0) > 1;
        let (latency_s, sequences) = (ends[1], batch as f64);
        let generated = model.generated.unwrap_or(0) as f64;
        Ok(Figures {
            ttft_s: [ttft, ends[0]],
            tpot_s: if stepped { [first.step, first.last_step] } else { [0.0; 2] },
            latency_s,
            generated_per_s: sequences * generated / latency_s,
            tokens_per_s: sequences * (model.seq as f64 + generated) / latency_s,
            memory,
            energy: self.energy(&sum(&all), latency_s),
            at_once: [wave.saturating_mul(dp).min(batch), share.div_ceil(wave)],
        })
    }

    fn energy(&self, used: &Call, seconds: f64) -> Energy {
        let (chip, memory) = (&self.system.chip.0, &self.system.memory.0);
        let round = |x: f64| self.system.model.precision.round(x);
        let byte_j = match memory.energy_per_byte {
            Some(stated) => stated.0,
            None => round(memory.power.0) * (1.0 - memory.idle_share.0) * 1e-9,
        };
        let chips = match chip.energy_per_flop {
            Some(stated) => used.flop * stated.0,
            None => used.busy * (1.0 - chip.idle_share.0) * round(chip.power.0),
        };
        Energy {
            idle: price::idle_power(self.system).times(seconds),
            used: ByPart { chips, memory: used.bytes * byte_j, links: used.link_j, switches: 0.0 },
        }
    }
}
