//! Serving: every figure of a batch derived again from its decisions (docs/serving.md), and compared.
//!
//! It shares with the prediction what a model and a system are (parameters, widths, what a mask leaves; peaks, links, the software's fields), what one
//! kernel takes by its sizes ([`KernelTimes`]) and what one collective takes by its bytes ([`Machine::line`], [`collective::by_library`]). Which kernels
//! a pass has, how microbatches go through stages, waves, bytes and joules are written down here once more: kernels as one list a stage, pipelines event by event.

mod memory;

use super::CheckError;
use super::energy::moved_j;
use crate::execution::Machine;
use crate::execution::inference::file::ServingResult;
use crate::execution::inference::{Layout, Memory, Prediction};
use crate::execution::machine::{Peers, Traffic};
use crate::graph::CollectiveKind;
use crate::model::collective::{self, GroupDimension};
use crate::model::energy::Energy;
use crate::model::kernel_time::{KernelTimes, Product, ROWS_OF_VECTORS};
use crate::plan::{TOLERANCE, agree};
use crate::system::kernels::{Burst, Kernels, Tile};
use crate::system::price::{self, ByPart};
use crate::system::serving::{CacheHeads, CacheLayout, ExpertWork};
use crate::system::{Serving, System};
use crate::workload::language::{AttentionCount, DataType, Head, LanguageModel};

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

    /// `of` products at once, m x k by k x n, of a perceptron (or experts), or of another weight.
    fn product(&self, of_perceptron: bool, sizes: [f64; 4]) -> Call {
        self.product_of(self.model.types.perceptron.filter(|_| of_perceptron), sizes)
    }

    /// Of weights in a type of their own, in which they are computed where the chip has a peak for it.
    fn product_of(&self, own: Option<DataType>, [of, m, n, k]: [f64; 4]) -> Call {
        let types = &self.model.types;
        let (stored, computed) = own.map_or((types.weights, types.products()), |own| (own, own));
        let peak = self.kernels.peak_of(computed.word()).unwrap_or(self.peak);
        let reached = self.kernels.burst_of(computed.word()).efficiency.0 * self.machine.stack.product_share.0;
        let groups = if of > 1.0 { self.machine.stack.grouped_share.0 } else { 1.0 };
        // What is stored in fewer bytes than it is multiplied in: written so by a kernel before, or widened on the way, of few rows without tiles.
        let wide = self.kernels.peak_of(computed.word()).map_or(types.products(), |_| computed).bytes();
        let widened = stored.bytes() < wide;
        let (read, before) = match widened && self.serving.widens_apart {
            true => (wide, of * k * n * (stored.bytes() + wide)),
            false => (stored.bytes(), 0.0),
        };
        let rate = self.times.fed(peak * reached * groups, read);
        let word = types.activations.bytes();
        let product = Product { batch: of, m, n, k };
        let flop = 2.0 * of * m * n * k;
        let few = widened && before == 0.0 && m <= ROWS_OF_VECTORS;
        let times = if few { &self.vectors } else { &self.times };
        Call {
            times: 1.0,
            seconds: times.product(&product, rate, [word, read, word]) + before / times.bandwidth(),
            busy: if flop > 0.0 { times.arithmetic(&product, rate) } else { 0.0 },
            flop,
            bytes: of * (m * (k + n) * word + k * n * read) + before,
            link_j: 0.0,
        }
    }

    fn weight(&self, m: f64, n: f64, k: f64) -> Call {
        self.product(false, [1.0, m, n, k])
    }

    /// Norms, functions, residuals, scores: every byte read and written at the memory's rate.
    fn vector(&self, bytes: f64) -> Call {
        let bytes = self.serving.elementwise * bytes;
        Call { times: 1.0, seconds: bytes / self.times.bandwidth(), bytes, ..Call::default() }
    }

    fn waiting(seconds: f64) -> Call {
        Call { times: 1.0, seconds, ..Call::default() }
    }

    /// Bytes that a token leaves on a chip in a layer.
    fn token_bytes(&self) -> f64 {
        let types = &self.model.types;
        let word = types.cache.unwrap_or(types.activations).bytes();
        match self.model.latent_attention {
            Some(l) => (l.kv_rank + l.rope_dim) as f64 * word,
            None => self.kv * (2 * self.model.head_dim()) as f64 * word,
        }
    }

    fn attention(&self, rows: f64, work: Work) -> Call {
        let (model, s) = (self.model, &self.serving);
        let kept = model.types.cache.unwrap_or(model.types.activations);
        let peak = self.kernels.peak_of(kept.word()).unwrap_or(self.peak).min(self.peak);
        let rate = peak * self.kernels.burst_of("").batched_efficiency.0 * self.machine.stack.product_share.0;
        let heads = model.heads as f64 / self.t;
        let width = (model.query_width() + model.value_width()) as f64;
        // Of blocks that go through contexts by themselves.
        let mut rounds = 0.0;
        let (seen, time_bytes, bytes, bandwidth) = match work {
            Work::Prompt => {
                let ends = rows * (heads * width * model.types.activations.bytes() + self.token_bytes());
                (model.mean_attended(model.seq, AttentionCount::Masked), ends, ends, self.times.bandwidth())
            }
            Work::Token(seen, read) => {
                let once = rows * read * self.token_bytes();
                let shared = model.latent_attention.is_some() || model.kv_heads() < model.heads;
                let share = s.grouped_cache_efficiency.filter(|_| shared).unwrap_or(s.cache_efficiency).0;
                let readers = (heads / self.kv).max(1.0);
                // Each query head reads for itself; what caches serve does not come from memory.
                let (over, moved) = match s.cache_heads.filter(|_| model.latent_attention.is_none()) {
                    Some(each) if rows * heads <= each.few as f64 => {
                        (readers / each.few_rate, (readers / each.few_rate.max(1.0)).max(1.0))
                    }
                    Some(each) => {
                        rounds = self.rounds(&each, rows * heads) * read * each.token.0;
                        (1.0, readers)
                    }
                    None => (1.0, 1.0),
                };
                (seen, once * over, once * moved, self.times.bandwidth() * share)
            }
        };
        // A step of latent attention scores vectors of rank and positions, and adds up such of the rank.
        let width = match (work, model.latent_attention) {
            (Work::Token(..), Some(l)) => (l.kv_rank + l.rope_dim + l.kv_rank) as f64,
            _ => width,
        };
        let flop = 2.0 * rows * seen * heads * width;
        Call {
            times: 1.0,
            seconds: (flop / rate).max(time_bytes / bandwidth).max(rounds),
            busy: flop / rate,
            flop,
            bytes,
            link_j: 0.0,
        }
    }

    /// How often the chip's units are filled with blocks, one for each head of each sequence, which keep a score of 4 bytes for every token of the longest
    /// context beside 512 bytes.
    fn rounds(&self, each: &CacheHeads, blocks: f64) -> f64 {
        let longest = self.model.max_positions.map_or(each.longest, |most| most.min(each.longest));
        let side_by_side = (each.unit_memory.0 / (4.0 * longest as f64 + 512.0)).trunc().max(1.0);
        (blocks / (self.times.units() * side_by_side)).ceil()
    }

    /// What tensor-parallel chips add up behind attention and behind a perceptron.
    fn all_reduce(&self, bytes: f64) -> Call {
        let tp = self.layout.tp;
        if tp == 1 {
            return Call::default();
        }
        let peers = Peers { chips: tp, apart: 1, of: self.layout.chips() };
        let group = self.machine.group(peers);
        let by_links = self.machine.line(Traffic::AllReduce, peers).at(bytes) + self.serving.all_reduce.0;
        let seconds = match &self.serving.collectives {
            Some(library) => {
                let called = collective::by_library(&group, library, 2.0, bytes, true);
                if self.machine.ideal { called.min(by_links) } else { called }
            }
            None => by_links,
        };
        Call { times: 1.0, seconds, link_j: moved_j(CollectiveKind::AllReduce, &group, bytes), ..Call::default() }
    }

    /// Experts that are reached on a chip, and the rows of each: padded ones are computed, but reach none.
    fn routed(&self, (rows, peers): (f64, f64), experts: f64, [per_token, padding]: [f64; 2]) -> (f64, f64) {
        let (ep, s) = (self.layout.ep as f64, &self.serving);
        let here = experts / ep;
        let all = s.experts == ExpertWork::EveryToken || s.most_routed.is_some_and(|most| experts > most as f64);
        if all {
            return (here, rows * peers);
        }
        let missed = (1.0 - (per_token / experts).min(1.0)).powf((rows * peers).max(1.0));
        let reached = here - here * missed;
        // Whole where that is what it is but for rounding, as one token's experts are.
        let whole = reached.round();
        let reached = if (reached - whole).abs() < 1e-9 * reached { whole } else { reached }.clamp(here.min(1.0), here);
        (reached, rows * peers / ep * per_token * padding / reached.max(f64::MIN_POSITIVE))
    }

    /// What a chip does in one layer.
    fn layer(&self, (rows, peers): (f64, f64), work: Work, with_experts: bool) -> Vec<Call> {
        let (model, s, t) = (self.model, &self.serving, self.t);
        let (h, heads) = (model.hidden as f64, model.heads as f64);
        let (q, v) = (model.query_width() as f64, model.value_width() as f64);
        let word = model.types.activations.bytes();
        let into = if model.gated { 2.0 } else { 1.0 };
        let mut list = vec![self.attention(rows, work)];
        let mut products = vec![self.weight(rows, h, heads * v / t)];
        match model.latent_attention {
            None => products.push(self.weight(rows, heads * q / t + self.kv * (q + v), h)),
            Some(l) => {
                let compressed = l.kv_rank as f64;
                products.push(self.weight(rows, compressed + l.rope_dim as f64, h));
                products.push(self.weight(rows, heads * (l.nope_dim as f64 + v) / t, compressed));
                let from = l.q_rank.map_or(h, |rank| rank as f64);
                products.push(self.weight(rows, heads * q / t, from));
                if l.q_rank.is_some() {
                    products.push(self.weight(rows, from, h));
                }
            }
        }
        let mut starts = s.layer_kernels + model.norms().saturating_sub(2);
        if model.qk_norm.is_some() {
            starts += 2;
        }
        // Channels of the perceptron's function, and hidden channels that are copied to experts and back, for each token.
        let (mut width, mut copied) = (model.ffn() as f64 / t, 0.0);
        match model.experts.filter(|_| with_experts) {
            None => {
                products.push(self.product(true, [1.0, rows, into * width, h]));
                products.push(self.product(true, [1.0, rows, h, width]));
            }
            Some(e) => {
                let (top_k, padding) = (e.top_k as f64, e.capacity_factor.unwrap_or(1.0));
                let per_token = top_k * padding;
                let (reached, each) = self.routed((rows, peers), e.count as f64, [top_k, padding]);
                let (own, shared) = (e.ffn as f64 / t, e.shared_width() / t);
                products.push(self.weight(rows, e.count as f64, h));
                products.push(self.product(true, [reached, each, into * own, h]));
                products.push(self.product(true, [reached, each, h, own]));
                if shared > 0.0 {
                    products.push(self.product(true, [1.0, rows, into * shared, h]));
                    products.push(self.product(true, [1.0, rows, h, shared]));
                }
                starts += self.machine.stack.expert_kernels;
                let given = reached * each / rows.max(f64::MIN_POSITIVE);
                (width, copied) = (given * own + shared, 2.0 * s.routing * given * h);
                let bytes = rows * per_token * h * word;
                let peers = Peers { chips: self.layout.ep, apart: self.layout.tp, of: self.layout.chips() };
                let link_j = moved_j(CollectiveKind::AllToAll, &self.machine.group(peers), bytes);
                let seconds = self.machine.line(Traffic::AllToAll, peers).at(bytes);
                list.push(Call { times: 2.0, seconds, link_j, ..Call::default() });
            }
        }
        if matches!(work, Work::Prompt) {
            products.iter_mut().for_each(|product| product.seconds /= s.prompt_share.0);
        }
        list.append(&mut products);
        // Experts that compute every token one after the other are summed up one after the other.
        let experts = model.experts.filter(|_| with_experts && s.experts == ExpertWork::EveryToken);
        let perceptrons = experts.map_or(1, |e| (e.count / self.layout.ep).max(1));
        // Attention's part is added to the perceptron's before where both begin with the same vectors.
        let sums = perceptrons + u64::from(!(model.parallel_block && s.joint_sums));
        list.push(Call { times: sums as f64, ..self.all_reduce(rows * h * word) });
        let side = (self.system.chip.0.cores as f64).sqrt();
        let to_start = match (work, s.prompt_kernel) {
            (Work::Prompt, Some(own)) if self.machine.ideal => own.0.min(self.start()),
            (Work::Prompt, Some(own)) => own.0,
            _ => self.start(),
        };
        list.push(Call { times: starts as f64, ..Self::waiting(to_start) });
        if let Some(mesh) = s.mesh {
            list.push(Self::waiting(match work {
                Work::Prompt => side * h * mesh.prompt.0 + side * side * mesh.prompt_far.0,
                Work::Token(..) => side * mesh.token.0,
            }));
        }
        let norms = 6.0 + model.norms().saturating_sub(2) as f64;
        let functions = (into + 1.0) * width;
        let channels = norms * h + model.qk_norm_width() as f64 / t + functions + copied;
        list.push(self.vector(rows * channels * 2.0 * word));
        list
    }

    fn start(&self) -> f64 {
        let launch = self.kernels.launch.0;
        let own = self.serving.kernel.map_or(launch, |own| own.0);
        if self.machine.ideal { own.min(launch) } else { own }
    }

    /// Layers without and with experts of every stage: what the stages do not divide goes one each to those from the second on, to the first before the last.
    fn layers(&self) -> Vec<[u64; 2]> {
        let (layers, pp) = (self.model.layers, self.layout.pp);
        let more = layers % pp;
        let mut end = 0;
        let stages = (1..=pp).map(|stage| {
            let order = if stage == pp {
                pp
            } else if stage == 1 {
                pp - 1
            } else {
                stage - 1
            };
            let begin = end;
            end += layers / pp + u64::from(order <= more);
            let experts = self.model.expert_layers_before(end) - self.model.expert_layers_before(begin);
            [end - begin - experts, experts]
        });
        stages.collect()
    }

    /// What a chip of every stage does.
    fn stages(&self, rows: (f64, f64), work: Work) -> Vec<Call> {
        let [plain, routed] = [false, true].map(|with_experts| sum(&self.layer(rows, work, with_experts)));
        let of = |[plain_layers, expert_layers]: [u64; 2]| {
            let experts = Call { times: expert_layers as f64, ..routed };
            sum(&[Call { times: plain_layers as f64, ..plain }, experts])
        };
        self.layers().into_iter().map(of).collect()
    }

    /// The choice of the next word of `n` sequences.
    fn head(&self, n: f64) -> Call {
        let (model, words) = (self.model, self.model.head_outputs() as f64);
        // BERT's heads begin with a map from the hidden channels to as many.
        let h = model.hidden as f64;
        let own = Some(model.types.ends(self.serving.narrow_ends)).filter(|ends| *ends != model.types.weights);
        let product = |n: f64, k: f64, m: f64| self.product_of(own, [1.0, m, n, k]);
        let begins = matches!(model.head, Head::MaskedTokens | Head::Pooler).then(|| product(h / self.t, h, n));
        if words == 0.0 {
            return begins.map_or_else(Call::default, |call| sum(&[call, Self::waiting(self.start())]));
        }
        let width = model.embedding_width() as f64;
        let scores = product(words / self.t, width, n);
        let scores = Call { seconds: scores.seconds / self.serving.head_share.0, ..scores };
        // Scores are words of 4 bytes, gone over four times.
        let mut list = vec![scores, self.vector(16.0 * n * words), Self::waiting(self.start())];
        if model.embedding_width.is_some() {
            list.push(product(width, h, n));
        }
        list.extend(begins);
        sum(&list)
    }

    fn hand_over(&self, rows: f64) -> Call {
        let Layout { tp, pp, dp, .. } = self.layout;
        if pp == 1 {
            return Call::default();
        }
        let bytes = rows * self.model.hidden as f64 * self.model.types.activations.bytes();
        let peers = Peers { chips: 2, apart: tp * dp, of: self.layout.chips() };
        let group = self.machine.group(peers);
        let seconds = self.machine.line(Traffic::Next, peers).at(bytes);
        let link_j = group.last().map_or(0.0, |d: &GroupDimension| bytes * d.byte_j);
        Call { times: 1.0, seconds, link_j, ..Call::default() }
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
        let (pp, tp) = (self.layout.pp as f64, self.layout.tp as f64);
        let each = n as f64 / count as f64;
        // Replicas with as many sequences as this one among those with the other experts.
        let ep = self.layout.ep as f64;
        let peers = (together as f64 / n as f64).max(1.0).min(ep);
        // Of every microbatch as many passes of as many sequences.
        let pass_of = |peers: f64, passes: f64, sequences: f64, tokens: u64, work| {
            let (rows, head) = (sequences * tokens as f64, self.head(sequences));
            let (mut stages, hand_over) = (self.stages((rows, peers), work), self.hand_over(rows));
            if let Some(last) = stages.last_mut() {
                *last = sum(&[*last, Call { times: 1.0, ..head }]);
            }
            let of_stages: Vec<f64> = stages.iter().map(|s| passes * (s.seconds + hand_over.seconds)).collect();
            let seconds = self.through(count, &of_stages);
            let of = |times: f64, call: Call| Call { times: times * passes * count as f64 * tp, ..call };
            (seconds, sum(&[of(1.0, sum(&stages)), of(pp - 1.0, hand_over)]))
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
