//! What a chip does in a pass, derived again as a list of kernels: products, attention, vector work, sums, experts, head, hand-over (docs/serving.md).

use super::{Call, Served, Work, sum};
use crate::check::energy::moved_j;
use crate::execution::inference::Layout;
use crate::execution::machine::{Peers, Traffic};
use crate::graph::CollectiveKind;
use crate::model::collective::{self, GroupDimension};
use crate::model::kernel_time::{Product, ROWS_OF_VECTORS};
use crate::system::serving::{CacheHeads, ExpertWork};
use crate::workload::language::{AttentionCount, DataType, Head};

impl Served<'_> {
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
    pub(super) fn token_bytes(&self) -> f64 {
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
                    // Ideal software takes these where they are faster: few heads whose caches serve more than sharing does, never many.
                    Some(each) if rows * heads <= each.few as f64 => {
                        let over = readers / each.few_rate;
                        let flop_s = 2.0 * rows * seen * heads * width / rate;
                        let shares =
                            self.machine.ideal && (over >= 1.0 || flop_s >= once / (self.times.bandwidth() * share));
                        if shares { (1.0, 1.0) } else { (over, (readers / each.few_rate.max(1.0)).max(1.0)) }
                    }
                    Some(each) if !self.machine.ideal => {
                        rounds = self.rounds(&each, rows * heads) * read * each.token.0;
                        (1.0, readers)
                    }
                    _ => (1.0, 1.0),
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
        let on_chip: f64 = list.iter().map(|call| call.times * call.seconds).sum();
        list.push(Self::waiting((s.host_layer.0 - on_chip).max(0.0)));
        list
    }

    fn start(&self) -> f64 {
        let launch = self.kernels.launch.0;
        let own = self.serving.kernel.map_or(launch, |own| own.0);
        if self.machine.ideal { own.min(launch) } else { own }
    }

    /// Layers without and with experts of every stage: what the stages do not divide goes one each to those from the second on, to the first before the last.
    pub(super) fn layers(&self) -> Vec<[u64; 2]> {
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
    pub(super) fn stages(&self, rows: (f64, f64), work: Work) -> Vec<Call> {
        let [plain, routed] = [false, true].map(|with_experts| sum(&self.layer(rows, work, with_experts)));
        let of = |[plain_layers, expert_layers]: [u64; 2]| {
            let experts = Call { times: expert_layers as f64, ..routed };
            sum(&[Call { times: plain_layers as f64, ..plain }, experts])
        };
        self.layers().into_iter().map(of).collect()
    }

    /// The choice of the next word of `n` sequences.
    pub(super) fn head(&self, n: f64) -> Call {
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
        if model.embedding_width() != model.hidden {
            list.push(product(width, h, n));
        }
        list.extend(begins);
        sum(&list)
    }

    /// What each stage hands to the next, the last to the first: over the link between their chips, of which the outermost that differs counts.
    pub(super) fn hand_overs(&self, rows: f64) -> Vec<Call> {
        let Layout { tp, pp, dp, .. } = self.layout;
        if pp == 1 {
            return vec![Call::default()];
        }
        let bytes = rows * self.model.hidden as f64 * self.model.types.activations.bytes();
        let group = self.machine.group(Peers { chips: pp, apart: tp * dp, of: self.layout.chips() });
        let place = |stage: u64| -> Vec<u64> {
            let mut inside = 1;
            let digit = |d: &GroupDimension| {
                let own = stage / inside % d.size;
                inside *= d.size;
                own
            };
            group.iter().map(digit).collect()
        };
        if group.is_empty() {
            return vec![Call::default(); pp as usize];
        }
        let of = |stage: u64| {
            let (from, to) = (place(stage), place((stage + 1) % pp));
            let differ = (0..group.len()).rev().find(|i| from[*i] != to[*i]);
            let d = &group[differ.unwrap_or_default()];
            Call { times: 1.0, seconds: d.latency + bytes / d.bandwidth, link_j: bytes * d.byte_j, ..Call::default() }
        };
        (0..pp).map(of).collect()
    }
}
