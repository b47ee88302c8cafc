//! How a software stack serves language models: kernels of a layer, cache of keys and values, pipelines.
//!
//! Part of a [`Stack`](super::Stack), whose `source.serving` says where the numbers come from.

use crate::spec::{
    Node, Reader,
    read::{Fraction, Share},
};
use crate::units::{Bandwidth, Bytes, Seconds};

crate::choice! {
    /// How the cache of keys and values lies in memory.
    pub enum CacheLayout ("a layout of the cache") {
        /// Room for prompt and answer of each sequence, reserved from the beginning.
        Contiguous = "contiguous",
        /// Blocks of `cache_block` tokens as they are needed (Kwon et al. 2023, arXiv 2309.06180); sequences are admitted only if all
        /// their blocks will fit, so that none is ever evicted.
        Paged = "paged",
        /// Room for prompt and answer of each sequence, all of which every step reads: tensors of a fixed size.
        Static = "static",
        /// The same, of which a step reads as many blocks of `cache_block` tokens as hold what has been written, the last as far as there is room.
        Bucketed = "bucketed",
        /// The length that a graph was compiled for: `cache_block` tokens, doubled until prompt and answer are below it. Every step
        /// reads all of it.
        Compiled = "compiled",
    }
}

crate::choice! {
    /// Which tokens an expert computes.
    pub enum ExpertWork ("which tokens an expert computes") {
        /// Those that are routed to it; experts that no token reaches are not read.
        Routed = "routed",
        /// Every token, weighted with zero where it is not routed there: shapes that do not depend on the routing.
        EveryToken = "every_token",
    }
}

crate::choice! {
    /// In how many microbatches sequences go through a pipeline.
    pub enum Microbatches ("a number of microbatches") {
        /// As many as stages, where there are as many sequences.
        Stages = "stages",
        /// The number of least latency (or energy, or cost) up to the stages.
        Best = "best",
    }
}

crate::spec! {
    /// How a library runs collectives: protocols of short and of long messages, sums in a switch, links between boxes.
    #[derive(Copy)]
    pub struct Collectives ("a library of collectives") {
        /// Time of any collective, however short.
        least: Seconds,
        /// Bytes a second of the shortest messages, which take `least` before; left out: none is faster than a short one.
        shortest_rate: Option<Bandwidth>,
        /// Time before the bytes of a short message.
        short_start: Seconds,
        /// Share of the bandwidth of long messages that short ones reach.
        short_share: Fraction,
        /// Time before the bytes of a long message.
        long_start: Seconds,
        /// Share of the links between boxes that a ring through all boxes reaches.
        outer_share: Fraction = Fraction(0.95),
    }
}

crate::spec! {
    /// Signals that cross a mesh of cores, side by side of a wafer: what a layer takes beside its products and bytes.
    #[derive(Copy)]
    pub struct Mesh ("a mesh of cores") {
        /// Time of a layer in a step, for each core along the side of the mesh.
        token: Seconds = Seconds(0.0),
        /// Time of a layer in the prompts' pass, for each core along the side and each hidden channel: operands go round in as many steps.
        prompt: Seconds = Seconds(0.0),
        /// Time of a layer in the prompts' pass, for each core along the side squared: in each step every core asks cores that are far.
        prompt_far: Seconds = Seconds(0.0),
    }
}

crate::spec! {
    /// Products of a library whose units wait for their operands and do not divide the contracted dimension.
    #[derive(Copy)]
    pub struct Waiting ("products that wait for their operands") {
        /// Time that a unit waits for each element of the contracted dimension.
        wait: Seconds,
        /// Tiles that a unit holds at once to hide it.
        tiles_at_once: u64 = 4,
        /// Most rows of a product that runs as products of vectors: no tiles, so that it neither waits nor fills them.
        vector_rows: u64 = 16,
    }
}

crate::spec! {
    /// Kernels of attention over a paged cache in which each query head reads the keys and values by itself: one for few heads, which cuts contexts in
    /// pieces that are read at the same time and meet in the chip's caches, and one for many, in which each head goes through its whole context: a block
    /// of threads for each, which keeps a score of 4 bytes for every token of the longest context, so that a unit's memory bounds how many run at once.
    #[derive(Copy)]
    pub struct CacheHeads ("heads that read a cache by themselves") {
        /// Most heads of a chip, of all sequences together, that the kernel for few is taken for.
        few: u64 = 512,
        /// Bytes that these read, each by itself, over those that memory gives in the time; above 1 where caches serve.
        few_rate: f64 = 1.0,
        /// Time in which a block of the kernel for many goes through one token of its context.
        token: Seconds,
        /// On-chip memory of a unit that blocks of the kernel for many keep their scores in.
        unit_memory: Bytes = Bytes(65536.0),
        /// Longest context that scores are kept for, where the model's is longer: that for which steps are recorded.
        longest: u64 = 8192,
    }
}

crate::choice! {
    /// How prompts of requests that come while others are served are read.
    pub enum PromptsRead ("a way to read prompts") {
        /// Whole, in passes of their own that go before the steps of others.
        Before = "before",
        /// Whole, in one pass with the steps of others.
        Beside = "beside",
        /// In pieces that fill a pass beside the steps of others up to `most_tokens`.
        Pieces = "pieces",
    }
}

crate::spec! {
    /// How a software stack serves language models.
    #[derive(Copy)]
    pub struct Serving ("the serving of language models", check: check) {
        /// Kernels of a layer in one step, products and attention included.
        layer_kernels: u64 = 8,
        /// Time from one kernel to the next in a step; left out: the chip's `launch`.
        kernel: Option<Seconds>,
        /// The same in the prompts' pass, where it is another: kernels that are not recorded and launched together.
        prompt_kernel: Option<Seconds>,
        /// Time in which the host calls the kernels of a layer one by one, beside the chip: the longer of the two counts.
        host_layer: Seconds = Seconds(0.0),
        /// Rate of products in the prompts' pass relative to that in a step.
        prompt_share: Fraction = Fraction(1.0),
        /// Bytes that norms, residuals and functions move over what each kernel's inputs and outputs hold; 0 where layers stay on chip.
        elementwise: f64 = 1.0,
        /// Rate of the head's product relative to others.
        head_share: Fraction = Fraction(1.0),
        /// Time of an all-reduce beyond its bytes and hops.
        all_reduce: Seconds = Seconds(0.0),
        /// Share of the reached bandwidth at which a step reads the cache.
        cache_efficiency: Fraction = Fraction(1.0),
        /// The same where several query heads share keys and values; left out: as `cache_efficiency`.
        grouped_cache_efficiency: Option<Fraction>,
        /// How query heads read keys and values that they share, where each reads them by itself; left out: once for all of them.
        cache_heads: Option<CacheHeads>,
        /// Layout of the cache.
        cache: CacheLayout = CacheLayout::Paged,
        /// Tokens of a block of the cache.
        cache_block: u64 = 64,
        /// Share of the memory that weights leave which the cache may take.
        cache_share: Share = Share(0.9),
        /// Share of the whole memory that weights, buffers and the cache may take together.
        memory_limit: Share = Share(1.0),
        /// Host time of a step for each sequence.
        step_sequence: Seconds = Seconds(0.0),
        /// Host time of a step, whatever its sequences.
        step: Seconds = Seconds(0.0),
        /// Time before the first token beyond the prompt's pass.
        request: Seconds = Seconds(0.0),
        /// The same for each further chip of a tensor-parallel group.
        request_peer: Seconds = Seconds(0.0),
        /// Whether a sequence is let in only where its whole answer has room; else as soon as what is written has.
        admits_whole: bool = true,
        /// Most sequences at once on a replica.
        most_sequences: u64 = 2048,
        /// Most tokens of prompts and answers in one pass: longer prompts are read in pieces.
        most_tokens: u64 = 8192,
        /// How it runs collectives; left out: as the links' formulas say, with `all_reduce` beside.
        collectives: Option<Collectives>,
        /// Signals across a mesh of cores.
        mesh: Option<Mesh>,
        /// Products that wait for their operands; left out: as the chip's.
        waiting: Option<Waiting>,
        /// Whether heads that the tensor-parallel chips do not divide are filled up with heads of zeros.
        pads_heads: bool = false,
        /// Which tokens an expert computes.
        experts: ExpertWork = ExpertWork::Routed,
        /// Most experts of a layer among which tokens are routed; of a layer with more each computes every token. Left out: any number.
        most_routed: Option<u64>,
        /// Bytes that the way of tokens to their experts and back moves over the least: sorting, quantisation, copies, sums.
        routing: f64 = 1.0,
        /// Share of another replica's prompts that a replica waits for where they divide the experts of a layer, as all of them go from layer to layer together.
        replica_wait: Share = Share(0.0),
        /// Memory that a chip holds for each further one of its tensor-parallel group: communicators, buffers of collectives.
        peer_memory: Bytes = Bytes(0.0),
        /// Whether windows of attention are left out: every layer keeps and reads the whole context.
        whole_contexts: bool = false,
        /// Whether every tensor-parallel chip holds the whole table of the embedding.
        whole_embedding: bool = false,
        /// Whether prompts are read one after the other, so that a sequence has its first token after its own.
        separate_prompts: bool = false,
        /// Whether each prompt is a pass of its own, as graphs are compiled for one.
        prompts_alone: bool = false,
        /// Whether microbatches of a pipeline run on its stages at the same time. Where not, each waits for the one before to
        /// leave the last stage.
        overlapped_stages: bool = true,
        /// In how many microbatches sequences go through a pipeline.
        microbatches: Microbatches = Microbatches::Stages,
        /// Whether attention's part is added to the perceptron's before tensor-parallel chips sum up, in models where both begin with the same vectors; else
        /// each is summed up by itself.
        joint_sums: bool = true,
        /// How prompts of requests that come while others are served are read.
        prompts_read: PromptsRead = PromptsRead::Before,
        /// Whether weights that are stored in fewer bytes than they are multiplied in are widened by kernels of their own, which write them, and not by those of
        /// the products.
        widens_apart: bool = false,
        /// Whether embedding and head are stored as narrow as the other weights, where the model does not say (`ends` of its types); else as wide as activations.
        narrow_ends: bool = false,
    }
}

fn check(serving: &Serving, node: &Node, reader: &mut Reader) {
    let mut say = |field: &str, message: String| {
        let at = node.get(field).unwrap_or(node).clone();
        reader.within(field, |r| r.problem(&at, message));
    };
    for (field, value) in [
        ("layer_kernels", serving.layer_kernels),
        ("cache_block", serving.cache_block),
        ("most_sequences", serving.most_sequences),
        ("waiting", serving.waiting.map_or(0, |w| w.tiles_at_once.max(w.vector_rows))),
        ("most_tokens", serving.most_tokens),
    ] {
        if value > 1 << 24 {
            say(field, format!("expected at most {}, found {value}", 1 << 24));
        }
    }
    for (field, value) in [("elementwise", serving.elementwise), ("routing", serving.routing)] {
        if value > 1000.0 {
            say(field, format!("expected at most 1000, found {value}"));
        }
    }
    if let Some(heads) = serving.cache_heads
        && !(0.001..=1000.0).contains(&heads.few_rate)
    {
        say("cache_heads", "few_rate: expected 0.001 to 1000".into());
    }
}

impl Waiting {
    /// What waits no longer than either.
    pub fn and(self, other: Self) -> Self {
        Self {
            wait: Seconds(self.wait.0.min(other.wait.0)),
            tiles_at_once: self.tiles_at_once.max(other.tiles_at_once),
            vector_rows: self.vector_rows.max(other.vector_rows),
        }
    }
}

/// Bytes of a block's memory beside its scores: the query and the sums of its threads.
const BESIDE_SCORES: f64 = 512.0;

impl CacheHeads {
    /// Kernels that take no longer than either.
    pub fn and(self, other: Self) -> Self {
        Self {
            few: self.few.max(other.few),
            few_rate: self.few_rate.max(other.few_rate),
            token: Seconds(self.token.0.min(other.token.0)),
            unit_memory: Bytes(self.unit_memory.0.max(other.unit_memory.0)),
            longest: self.longest.min(other.longest),
        }
    }

    /// Seconds in which the kernel for many takes `blocks` blocks through `context` tokens on `units` units, of a model whose longest context has so many tokens.
    pub fn many(&self, blocks: f64, context: f64, units: f64, longest: Option<u64>) -> f64 {
        let scores = 4.0 * longest.map_or(self.longest, |most| most.min(self.longest)) as f64;
        let at_once = (self.unit_memory.0 / (scores + BESIDE_SCORES)).floor().max(1.0);
        (blocks / (units * at_once)).ceil() * context * self.token.0
    }
}

impl Serving {
    /// Software without host time whose pages have one token, on all the memory that weights leave.
    pub fn ideal() -> Self {
        Self {
            layer_kernels: 8,
            kernel: None,
            prompt_kernel: None,
            host_layer: Seconds(0.0),
            prompt_share: Fraction(1.0),
            elementwise: 1.0,
            head_share: Fraction(1.0),
            all_reduce: Seconds(0.0),
            cache_efficiency: Fraction(1.0),
            grouped_cache_efficiency: None,
            cache_heads: None,
            cache: CacheLayout::Paged,
            cache_block: 1,
            cache_share: Share(1.0),
            memory_limit: Share(1.0),
            step_sequence: Seconds(0.0),
            step: Seconds(0.0),
            request: Seconds(0.0),
            request_peer: Seconds(0.0),
            admits_whole: true,
            most_sequences: 1 << 24,
            most_tokens: 1 << 24,
            collectives: None,
            mesh: None,
            waiting: None,
            pads_heads: false,
            experts: ExpertWork::Routed,
            most_routed: None,
            routing: 1.0,
            replica_wait: Share(0.0),
            peer_memory: Bytes(0.0),
            whole_contexts: false,
            whole_embedding: false,
            separate_prompts: false,
            prompts_alone: false,
            overlapped_stages: true,
            microbatches: Microbatches::Best,
            joint_sums: true,
            prompts_read: PromptsRead::Pieces,
            widens_apart: false,
            narrow_ends: false,
        }
    }

    /// Software without host time that reaches of every number the best of what ideal software and these reach. A library of collectives is kept beside the
    /// links' formulas, products that wait beside the chip's, and heads that read a cache by themselves beside those that share what they read: an ideal
    /// machine takes the faster.
    pub fn best_of(one: Option<Self>, other: Option<Self>) -> Self {
        let ideal = Self::ideal();
        [one, other].into_iter().flatten().fold(ideal, |best, one| {
            let least = |a: Option<Seconds>, b: Option<Seconds>| match (a, b) {
                (Some(a), Some(b)) => Some(Seconds(a.0.min(b.0))),
                (a, b) => a.or(b),
            };
            Self {
                layer_kernels: best.layer_kernels.min(one.layer_kernels),
                kernel: least(best.kernel, one.kernel),
                prompt_kernel: least(best.prompt_kernel, one.prompt_kernel),
                elementwise: best.elementwise.min(one.elementwise),
                routing: best.routing.min(one.routing),
                most_tokens: best.most_tokens.min(one.most_tokens),
                collectives: best.collectives.or(one.collectives),
                narrow_ends: best.narrow_ends || one.narrow_ends,
                waiting: match (best.waiting, one.waiting) {
                    (Some(a), Some(b)) => Some(a.and(b)),
                    (a, b) => a.or(b),
                },
                cache_heads: match (best.cache_heads, one.cache_heads) {
                    (Some(a), Some(b)) => Some(a.and(b)),
                    (a, b) => a.or(b),
                },
                ..best
            }
        })
    }

    /// Tokens that a sequence of `tokens` tokens has room for in the cache.
    pub fn reserved(&self, tokens: u64) -> u64 {
        let block = self.cache_block.max(1);
        match self.cache {
            CacheLayout::Contiguous | CacheLayout::Static | CacheLayout::Bucketed => tokens,
            CacheLayout::Paged => tokens.div_ceil(block).saturating_mul(block),
            CacheLayout::Compiled => {
                let mut room = block;
                while room <= tokens {
                    room = room.saturating_mul(2);
                    if room == u64::MAX {
                        break;
                    }
                }
                room
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_in_the_cache_by_hand() {
        let serving = |cache, cache_block| Serving { cache, cache_block, ..Serving::ideal() };
        assert_eq!(serving(CacheLayout::Contiguous, 64).reserved(2049), 2049);
        assert_eq!(serving(CacheLayout::Paged, 64).reserved(2049), 2112);
        assert_eq!(serving(CacheLayout::Compiled, 4096).reserved(4095), 4096);
        // The end of the answer needs a place of its own.
        assert_eq!(serving(CacheLayout::Compiled, 4096).reserved(4096), 8192);
        assert_eq!(serving(CacheLayout::Compiled, 3).reserved(u64::MAX - 1), u64::MAX);
    }

    /// 4,096 blocks on 304 units of 64 KiB: scores of 4,096 tokens leave room for three at once, those of 8,192 and more for one.
    #[test]
    fn blocks_at_once_by_the_memory_of_their_scores() {
        let node = Node::parse("s.yaml", "{token: 100 ns}").unwrap();
        let heads = Reader::read::<CacheHeads>(&node).unwrap();
        let rounds = |longest| (heads.many(4096.0, 1000.0, 304.0, longest) / 1e-4).round();
        assert_eq!(
            (rounds(Some(4096)), rounds(Some(8192)), rounds(Some(131_072)), rounds(None)),
            (5.0, 14.0, 14.0, 14.0)
        );
        assert!((heads.many(304.0, 10.0, 304.0, None) - 1e-6).abs() < 1e-18);
    }

    #[test]
    fn a_section_that_says_nothing_is_usual_software() {
        let node = Node::parse("s.yaml", "{}").unwrap();
        let serving = Reader::read::<Serving>(&node).unwrap();
        assert_eq!((serving.layer_kernels, serving.cache, serving.cache_block), (8, CacheLayout::Paged, 64));
        let bad = Node::parse("s.yaml", "{layer_kernels: 99999999, elementwise: 2000}").unwrap();
        let errors = Reader::read::<Serving>(&bad).unwrap_err().to_string();
        assert!(errors.contains("layer_kernels") && errors.contains("elementwise"), "{errors}");
    }
}
