//! The description of a language model as a file states it.

use super::check::check;
use super::flop::MASKED;
use crate::spec::{Node, Value};

crate::choice! {
    /// The word `language_model`.
    pub enum Kind ("a kind of workload") {
        /// A transformer with its embedding and head.
        LanguageModel = "language_model",
    }
}

/// Whether a workload's tree is of a language model.
pub fn is_language_model(node: &Node) -> bool {
    let kind = node.get("kind").map(|kind| &kind.value);
    matches!(kind, Some(Value::Scalar { text, .. }) if Kind::from_word(text).is_some())
}

crate::choice! {
    /// What is done with the model.
    pub enum ModelPass ("a pass") {
        /// Forward, backward and weight update of `global_batch` samples of `seq` tokens.
        Training = "training",
        /// `global_batch` sequences at once: a prompt of `seq` tokens, then `generated` tokens one by one.
        Inference = "inference",
    }
}

crate::choice! {
    /// The normalisation before (or after) attention and perceptron.
    pub enum Norm ("a normalisation") {
        /// Layer normalisation: a gain and, where the model has biases, a shift for each channel.
        Layer = "layer",
        /// Root-mean-square normalisation (Zhang and Sennrich 2019, arXiv 1910.07467): a gain for each channel.
        Rms = "rms",
    }
}

crate::choice! {
    /// How the model knows positions.
    pub enum Position ("positions") {
        /// A learned vector for each of `max_positions`, added to the embedding.
        Learned = "learned",
        /// Rotations of queries and keys (Su et al. 2021, arXiv 2104.09864); no weights.
        Rotary = "rotary",
        /// Linear biases on the scores (Press et al. 2021, arXiv 2108.12409); no weights.
        Alibi = "alibi",
        /// Distances between tokens, encoded, multiplied with a matrix of each layer and then with the queries, and added to the scores (Transformer-XL, Dai
        /// et al. 2019, arXiv 1901.02860, section 3.3).
        Relative = "relative",
        /// None.
        None = "none",
    }
}

crate::choice! {
    /// Which linear maps have biases.
    pub enum Biases ("which biases") {
        /// None, and no shifts in layer norms.
        None = "none",
        /// Queries, keys and values alone.
        Qkv = "qkv",
        /// Queries, keys, values and the attention's output.
        Attention = "attention",
        /// The perceptron's alone.
        Perceptron = "perceptron",
        /// Every linear map, and shifts in layer norms.
        All = "all",
    }
}

crate::choice! {
    /// Over what queries and keys are normalised before they meet (Henry et al. 2020, arXiv 2010.04245).
    pub enum QkNorm ("a norm of queries and keys") {
        /// Over the channels of each head, with one gain for all heads (Qwen 3, Gemma 3).
        Head = "head",
        /// Over all heads together.
        Width = "width",
    }
}

crate::choice! {
    /// What comes after the last layer.
    pub enum Head ("a head") {
        /// A map from hidden to vocabulary for every token.
        Vocabulary = "vocabulary",
        /// BERT's: hidden to hidden, a norm, and the vocabulary with a bias for each word. Training scores 15 % of the tokens, as the paper masks; a sequence that
        /// is served asks for one word.
        MaskedTokens = "masked_tokens",
        /// BERT's other: hidden to hidden for the first token.
        Pooler = "pooler",
        /// A map from hidden to `classes` for one token.
        Classes = "classes",
        /// Nothing.
        None = "none",
    }
}

crate::choice! {
    /// The type of a number in memory.
    pub enum DataType ("a data type") {
        /// 4-bit floating point with a scale for each block.
        Fp4 = "fp4",
        /// 8-bit floating point.
        Fp8 = "fp8",
        /// 8-bit integer.
        Int8 = "int8",
        /// 16-bit floating point, 5 bits of exponent.
        Fp16 = "fp16",
        /// 16-bit floating point, 8 bits of exponent.
        Bf16 = "bf16",
        /// 32-bit floating point.
        Fp32 = "fp32",
    }
}

impl DataType {
    /// Bytes of one number.
    pub fn bytes(self) -> f64 {
        match self {
            // A scale of 8 bits for each 16 numbers.
            Self::Fp4 => 0.5625,
            Self::Fp8 | Self::Int8 => 1.0,
            Self::Fp16 | Self::Bf16 => 2.0,
            Self::Fp32 => 4.0,
        }
    }
}

crate::spec! {
    /// The data type of each kind of tensor (Micikevicius et al. 2017, arXiv 1710.03740).
    #[derive(Copy)]
    pub struct Types ("data types") {
        /// Weights as the products read them.
        weights: DataType = DataType::Bf16,
        /// Those of perceptrons and experts where inference stores and multiplies them in another type; left out: as the weights.
        perceptron: Option<DataType>,
        /// Embedding and head of inference; left out: as the weights, or as the activations where these are wider, as checkpoints of 8 and
        /// 4 bits are released (a stack's `narrow_ends` says otherwise).
        ends: Option<DataType>,
        /// Activations and what collectives of tensor and pipeline parallelism carry.
        activations: DataType = DataType::Bf16,
        /// Gradients of the weights as they are accumulated.
        gradients: DataType = DataType::Fp32,
        /// Those of one microbatch, where they are held beside what they are added to; left out: none are.
        arriving: Option<DataType>,
        /// The optimiser's copy of the weights; none where it is the type of the weights.
        master: DataType = DataType::Fp32,
        /// Each of Adam's two moments.
        moments: DataType = DataType::Fp32,
        /// Keys and values in the cache of inference; left out: as the activations.
        cache: Option<DataType>,
        /// What matrix products compute in; left out: as the weights.
        compute: Option<DataType>,
    }
}

impl Types {
    /// What matrix products compute in.
    pub fn products(&self) -> DataType {
        self.compute.unwrap_or(self.weights)
    }

    /// What embedding and head are stored and multiplied in, by software that makes them as `narrow` as other weights or not.
    pub fn ends(&self, narrow: bool) -> DataType {
        let wider = !narrow && self.weights.bytes() < self.activations.bytes();
        self.ends.unwrap_or(if wider { self.activations } else { self.weights })
    }
}

impl Default for Types {
    fn default() -> Self {
        Self {
            weights: DataType::Bf16,
            perceptron: None,
            ends: None,
            activations: DataType::Bf16,
            gradients: DataType::Fp32,
            arriving: None,
            master: DataType::Fp32,
            moments: DataType::Fp32,
            cache: None,
            compute: None,
        }
    }
}

crate::spec! {
    /// Attention over compressed keys and values (DeepSeek-V2, arXiv 2405.04434, section 2.1).
    #[derive(Copy)]
    pub struct LatentAttention ("multi-head latent attention") {
        /// Width of the compressed queries; left out: queries are not compressed.
        q_rank: Option<u64>,
        /// Width of the compressed keys and values.
        kv_rank: u64,
        /// Width of the rotated part of a query head; keys share one such part.
        rope_dim: u64,
        /// Width of the part of a query or key head that is not rotated.
        nope_dim: u64,
        /// Width of a value head.
        v_dim: u64,
    }
}

crate::spec! {
    /// Perceptrons of which each token takes a few (Shazeer et al. 2017, arXiv 1701.06538).
    #[derive(Copy)]
    pub struct Experts ("experts") {
        /// Experts of a layer among which the router chooses.
        count: u64,
        /// Experts that a token is sent to.
        top_k: u64,
        /// Width of one expert.
        ffn: u64,
        /// Experts that every token takes besides; left out: none.
        shared: Option<u64>,
        /// Width of one of those; left out: `ffn`.
        shared_ffn: Option<u64>,
        /// Whether a learned gate weighs what they add (Qwen 1.5 and 2 MoE).
        shared_gate: bool = false,
        /// Whether the router has a learned bias for each expert (DeepSeek-V3).
        router_bias: bool = false,
        /// First layers that have a plain perceptron of the model's `ffn` instead; left out: none.
        first_dense_layers: Option<u64>,
        /// Of the layers one in so many has experts, the last of each such group; left out: all.
        every: Option<u64>,
        /// Room of an expert over its even share of the tokens; left out: no token is dropped and loads are taken as even.
        capacity_factor: Option<f64>,
    }
}

impl Experts {
    /// Shared experts in units of one of the others, where `weights` gives the weights (or the like) of an expert by its width.
    pub fn shared_experts(&self, weights: impl Fn(f64) -> f64) -> f64 {
        let count = self.shared.unwrap_or(0) as f64;
        match self.shared_ffn {
            Some(width) => count * weights(width as f64) / weights(self.ffn as f64),
            None => count,
        }
    }

    /// Width of all shared experts together.
    pub fn shared_width(&self) -> f64 {
        self.shared.unwrap_or(0) as f64 * self.shared_ffn.unwrap_or(self.ffn) as f64
    }
}

crate::spec! {
    /// Images as sequences of patches (Dosovitskiy et al. 2020, arXiv 2010.11929).
    #[derive(Copy)]
    pub struct Patches ("patches of an image") {
        /// Pixels of an image's edge.
        image: u64,
        /// Pixels of a patch's edge.
        size: u64,
        /// Colours.
        channels: u64 = 3,
        /// Whether a learned token stands before the patches.
        class_token: bool = true,
    }
}

impl Patches {
    /// Tokens of one image.
    pub fn tokens(&self) -> u64 {
        let edge = self.image / self.size.max(1);
        edge.saturating_mul(edge).saturating_add(u64::from(self.class_token))
    }
}

crate::spec! {
    /// A transformer with its embedding and head, and the batch it is given.
    pub struct LanguageModel ("a language model", check: check) {
        /// The word `language_model`.
        kind: Kind,
        /// Name for rows and titles.
        name: String,
        /// Where the sizes come from.
        source: String,
        /// Layers.
        layers: u64,
        /// Hidden size.
        hidden: u64,
        /// Attention heads.
        heads: u64,
        /// Heads of keys and values (grouped-query attention, Ainslie et al. 2023, arXiv 2305.13245); left out: as many as heads.
        kv_heads: Option<u64>,
        /// Size of one head; left out: hidden / heads.
        head_dim: Option<u64>,
        /// Width of the perceptron; left out: 4 x hidden.
        ffn: Option<u64>,
        /// Whether the perceptron is gated (SwiGLU, GeGLU: Shazeer 2020, arXiv 2002.05202): three matrices instead of two.
        gated: bool = false,
        /// Normalisation.
        norm: Norm = Norm::Layer,
        /// Norms of a layer over the hidden channels; left out: one before attention and one before the perceptron, or one for both in a
        /// parallel block. Gemma 2 and 3 have four, GPT-NeoX two in its parallel block.
        norms_per_layer: Option<u64>,
        /// Whether layer norms have shifts; left out: where all linear maps have biases.
        norm_shifts: Option<bool>,
        /// Norms of queries and keys; left out: none.
        qk_norm: Option<QkNorm>,
        /// Positions.
        position: Position = Position::Rotary,
        /// Tokens of its longest context; of learned positions their vectors. Left out: as many vectors as `seq`.
        max_positions: Option<u64>,
        /// Whether attention and perceptron read the same norm and are added at once (GPT-J, PaLM).
        parallel_block: bool = false,
        /// Words of the vocabulary, padding included.
        vocab: Option<u64>,
        /// Width of the words' vectors, where it is not the hidden size: a map leads from them to it, and another back before the head
        /// (OPT 350M).
        embedding_width: Option<u64>,
        /// Whether the head is the embedding again.
        tied_embeddings: bool = false,
        /// Segments that have a learned vector each (BERT).
        token_types: Option<u64>,
        /// Whether the embedding is normalised (BLOOM, BERT).
        embedding_norm: bool = false,
        /// Whether the last layer's output is normalised.
        final_norm: bool = true,
        /// What comes after the last layer.
        head: Head = Head::Vocabulary,
        /// Classes of the head `classes`.
        classes: Option<u64>,
        /// Words that the head scores for a token on average, where it scores rare words for the tokens of their group alone (adaptive softmax, Grave et al.
        /// 2017, arXiv 1609.04309); left out: all.
        scored_words: Option<u64>,
        /// Whether the head `vocabulary` has a bias for each word.
        head_bias: bool = false,
        /// Which linear maps have biases.
        biases: Biases = Biases::None,
        /// Rank of adapters that are trained beside frozen weights, on queries, keys, values and output of every layer (LoRA, Hu et al. 2021,
        /// arXiv 2106.09685), with gradients and states of their own; their products are counted by the bytes they move, which bind at ranks below some hundred.
        /// Left out: all weights are trained.
        adapters: Option<u64>,
        /// Whether the head alone is trained: layers are computed forward only.
        head_alone: bool = false,
        /// Whether training drops activations at random: masks are kept for the backward pass.
        dropout: bool = false,
        /// Whether a token sees only those before it; of `encoder_layers`, whose tokens see all, it says nothing.
        causal: bool = true,
        /// Tokens that a token sees at most (sliding window); left out: all.
        window: Option<u64>,
        /// Tokens before a sample whose hidden channels each layer keeps and attends to besides (Transformer-XL, section 3.2); left out: none.
        segment_memory: Option<u64>,
        /// Of the layers those of an encoder, which reads a source as long as the sample; the others are a decoder that attends to what it makes of it besides
        /// its own tokens (Vaswani et al. 2017, arXiv 1706.03762, section 3.1), which is spread over all layers: each stage of a pipeline has the mean of both.
        /// Left out: none.
        encoder_layers: Option<u64>,
        /// Layers that see all tokens in spite of the window, the last of each of as many equal groups; left out: none.
        full_attention_layers: Option<u64>,
        /// Multi-head latent attention instead of heads of `head_dim`.
        latent_attention: Option<LatentAttention>,
        /// Experts instead of the perceptron.
        experts: Option<Experts>,
        /// Images instead of words.
        patches: Option<Patches>,
        /// Data types.
        types: Types = Types::default(),
        /// What is done with the model.
        pass: ModelPass = ModelPass::Training,
        /// Tokens of one sample; in inference, of its prompt.
        seq: u64,
        /// Inference: tokens generated after the prompt; left out: none (the prompt is read and that is all).
        generated: Option<u64>,
        /// Samples of one iteration; in inference, sequences at once.
        global_batch: u64,
    }
}

impl LanguageModel {
    /// Heads of keys and values.
    pub fn kv_heads(&self) -> u64 {
        self.kv_heads.unwrap_or(self.heads)
    }

    /// Size of one head.
    pub fn head_dim(&self) -> u64 {
        self.head_dim.unwrap_or(self.hidden / self.heads.max(1))
    }

    /// Width of the plain perceptron.
    pub fn ffn(&self) -> u64 {
        self.ffn.unwrap_or(self.hidden.saturating_mul(4))
    }

    /// Whether the weights of layers and embedding are left as they are.
    pub fn frozen(&self) -> bool {
        self.adapters.is_some() || self.head_alone
    }

    /// Whether it makes words of what it was given, one after another: what has another head is an encoder, whose keys and values nothing reads again.
    pub fn generates(&self) -> bool {
        self.head == Head::Vocabulary
    }

    /// Whether the head maps hidden channels to as many before all else.
    pub fn transforms(&self) -> bool {
        matches!(self.head, Head::MaskedTokens | Head::Pooler)
    }

    /// Weights that are trained where those of the model are frozen, of a layer and of the head; `None` where all are trained.
    pub fn trained_of_frozen(&self) -> Option<(f64, f64)> {
        let head = if self.head_alone { self.parameters().head } else { 0.0 };
        self.frozen().then_some((self.adapter_parameters(), head))
    }

    /// Parameters of a layer's adapters: of queries, keys, values and the output two factors each, of as many channels as go in and as come out.
    pub fn adapter_parameters(&self) -> f64 {
        let Some(rank) = self.adapters else { return 0.0 };
        let (h, a) = (self.hidden as f64, self.heads as f64);
        let (qk, v) = (self.query_width() as f64, self.value_width() as f64);
        let out = a * qk + self.kv_heads() as f64 * (qk + v);
        rank as f64 * (3.0 * h + out + a * v + h)
    }

    /// Tokens that the head looks at, of `tokens` of `samples` samples: classes and poolers look at one of a sample, a masked language model scores those that it
    /// predicts ([`MASKED`]).
    pub fn scored_tokens(&self, tokens: f64, samples: f64) -> f64 {
        match self.head {
            Head::Vocabulary => tokens,
            Head::MaskedTokens => MASKED * tokens,
            Head::Classes | Head::Pooler => samples,
            Head::None => 0.0,
        }
    }

    /// Matrices of a perceptron.
    pub fn ffn_matrices(&self) -> u64 {
        if self.gated { 3 } else { 2 }
    }

    /// Norms of a layer over the hidden channels.
    pub fn norms(&self) -> u64 {
        self.norms_per_layer.unwrap_or(if self.parallel_block { 1 } else { 2 })
    }

    /// Width of the words' vectors.
    pub fn embedding_width(&self) -> u64 {
        self.embedding_width.unwrap_or(self.hidden)
    }

    /// The same where it is another than the hidden channels, so that a map lies between.
    pub fn narrow_embedding(&self) -> Option<u64> {
        self.embedding_width.filter(|width| *width != self.hidden)
    }

    /// Layers whose perceptron is plain.
    pub fn dense_layers(&self) -> u64 {
        self.layers - self.expert_layers()
    }

    /// Layers that have experts.
    pub fn expert_layers(&self) -> u64 {
        self.expert_layers_before(self.layers)
    }

    /// Of the first `n` layers those that have experts: layer i, from 1, has where it is none of the first dense ones and a multiple
    /// of `every`.
    pub fn expert_layers_before(&self, n: u64) -> u64 {
        self.experts.map_or(0, |e| {
            let (every, first) = (e.every.unwrap_or(1).max(1), e.first_dense_layers.unwrap_or(0).min(self.layers));
            (n / every).saturating_sub(first / every)
        })
    }

    /// Of the first `n` layers those that see all tokens: with a window `full_attention_layers` of them, the last of each of as many equal groups.
    pub fn full_layers_before(&self, n: u64) -> u64 {
        match (self.window, self.full_attention_layers) {
            (None, _) => n,
            (Some(_), full) => {
                let all = u128::from(self.layers.max(1));
                u64::try_from(u128::from(n) * u128::from(full.unwrap_or(0).min(self.layers)) / all).unwrap_or(n)
            }
        }
    }

    /// The mean over all layers of a quantity that windowed layers have as `windowed` of the window and others as `full`.
    pub fn over_layers(&self, full: impl FnOnce() -> f64, windowed: impl FnOnce(u64) -> f64) -> f64 {
        match (self.window, self.full_attention_layers) {
            (None, _) => full(),
            (Some(window), None) => windowed(window),
            (Some(window), Some(n)) => {
                let share = n.min(self.layers) as f64 / self.layers.max(1) as f64;
                share * full() + (1.0 - share) * windowed(window)
            }
        }
    }

    /// Channels of queries and keys that are normalised, for one token and layer.
    pub fn qk_norm_width(&self) -> u64 {
        self.qk_norm.map_or(0, |_| self.heads.saturating_add(self.kv_heads()).saturating_mul(self.head_dim()))
    }

    /// Width of one query head where it meets a key, in channels.
    pub fn query_width(&self) -> u64 {
        self.latent_attention.map_or(self.head_dim(), |l| l.nope_dim.saturating_add(l.rope_dim))
    }

    /// Width of one value head, in channels.
    pub fn value_width(&self) -> u64 {
        self.latent_attention.map_or(self.head_dim(), |l| l.v_dim)
    }

    /// Numbers that a token leaves in the cache of one layer: keys and values of all their heads, or the compressed vector and the
    /// rotated part that latent attention keeps.
    pub fn cache_width(&self) -> u64 {
        match self.latent_attention {
            Some(l) => l.kv_rank.saturating_add(l.rope_dim),
            None => self.kv_heads().saturating_mul(self.head_dim()).saturating_mul(2),
        }
    }

    /// Bytes that one token leaves in the caches of all layers.
    pub fn cache_bytes_per_token(&self) -> f64 {
        let bytes = self.types.cache.unwrap_or(self.types.activations).bytes();
        self.layers as f64 * self.cache_width() as f64 * bytes
    }

    /// Words, or classes, that the head scores; 0 where it has none.
    pub fn head_outputs(&self) -> u64 {
        match self.head {
            Head::Vocabulary | Head::MaskedTokens => self.vocab.unwrap_or(0),
            Head::Classes => self.classes.unwrap_or(0),
            Head::Pooler | Head::None => 0,
        }
    }

    /// Outputs of the head that are computed for one token on average.
    pub fn scored_outputs(&self) -> u64 {
        self.scored_words.unwrap_or(u64::MAX).min(self.head_outputs())
    }

    /// The share of the layers that attend to an encoder besides.
    pub fn crossing(&self) -> f64 {
        self.encoder_layers.map_or(0.0, |n| self.layers.saturating_sub(n) as f64 / self.layers.max(1) as f64)
    }

    /// Tokens that a layer attends to for each of a sample: its own and those kept of the segment before.
    pub fn keys_per_token(&self) -> f64 {
        1.0 + self.segment_memory.unwrap_or(0) as f64 / self.seq.max(1) as f64
    }
}
