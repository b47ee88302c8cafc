//! The layer of a transformer as DFModel has it (model.md section 3), for its rows: 18 forward kernels with 21 edges; with the backward pass 41
//! kernels and 53 edges; 20 and 23 in the pass that generates. Language models of today, with embedding, head, recomputation and all that training
//! keeps, are `kind: language_model` ([`super::language`]); here embedding and head, causal mask, recomputation, grouped heads, gates and the
//! optimiser's arithmetic are not in the graph.
//!
//! Let h be the hidden size, a = heads * head_dim the attention width, S the sequence length. Weight GEMMs, written
//! (rows m, contracted k, columns n): Q, K, V (heads x head_dim, h, S), PROJ (h, a, S), FFN0 (4h, h, S), FFN1
//! (h, 4h, S). Attention, for each head: scores (S, head_dim, S), values (head_dim, S, S). A weight's gradient has the
//! weight's input features as rows and its output features as columns and contracts over the tokens.

use super::builder::Builder;
use crate::graph::{Op, Phase, Slot, WeightOf, Workload};
use crate::spec::{Node, Reader};
use crate::units::Bytes;

crate::choice! {
    /// Which passes of the network are computed.
    pub enum Pass ("a pass") {
        /// Forward only: inference on whole sequences (prefill).
        Forward = "forward",
        /// Forward and backward: training.
        Training = "training",
        /// Forward for `seq` new tokens after `context` tokens whose keys and values lie in DRAM: generation.
        Decode = "decode",
    }
}

crate::choice! {
    /// The word `dfmodel_layer`.
    pub enum Kind ("a kind of workload") {
        /// DFModel's layer, repeated.
        DfmodelLayer = "dfmodel_layer",
    }
}

crate::spec! {
    /// DFModel's graph of a transformer: identical layers of self-attention and a two-layer perceptron, without embedding and head. For its
    /// rows; models that are trained and served are `kind: language_model`.
    pub struct DfmodelLayer ("DFModel's layer", check: check) {
        /// The word `dfmodel_layer`.
        kind: Kind,
        /// Name for rows and titles.
        name: String,
        /// Where the sizes come from.
        source: String,
        /// Hidden size.
        hidden: u64,
        /// Attention heads.
        heads: u64,
        /// Size of one head.
        head_dim: u64,
        /// Width of the perceptron; left out: 4 x hidden.
        ffn: Option<u64>,
        /// Tokens of one sample: of the sequence, or, in decode, new ones (1 for plain generation).
        seq: u64,
        /// Decode: tokens whose keys and values are in the cache.
        context: Option<u64>,
        /// Layers.
        layers: u64,
        /// Bytes of one element of weights and activations.
        word: Bytes = Bytes(2.0),
        /// Passes computed.
        pass: Pass,
        /// Samples of one iteration.
        global_batch: u64,
        /// Samples of one microbatch.
        micro_batch: u64 = 1,
        /// Declare Q_bwd and K_bwd with the heads as outer problems, as DFModel's graph does (they then need no
        /// reduction). Needs heads x head_dim = hidden.
        heads_in_qk_backward: bool = false,
    }
}

fn check(spec: &DfmodelLayer, node: &Node, reader: &mut Reader) {
    super::spec::check_batches(spec.global_batch, spec.micro_batch, spec.word, node, reader);
    if spec.heads_in_qk_backward && spec.heads.saturating_mul(spec.head_dim) != spec.hidden {
        let at = node.get("heads_in_qk_backward").unwrap_or(node);
        reader.within("heads_in_qk_backward", |r| r.problem(at, "needs heads x head_dim = hidden"));
    }
    let mut say = |field: &str, message: String| {
        let at = node.get(field).unwrap_or(node).clone();
        reader.within(field, |r| r.problem(&at, message));
    };
    match (spec.pass, spec.context) {
        (Pass::Decode, Some(context)) if spec.seq > context => say(
            "seq",
            format!(
                "expected at most the context of {context} tokens, found {} new ones: so many at once are a prompt (pass: forward)",
                spec.seq
            ),
        ),
        (Pass::Decode, None) => say("context", "missing; decode continues a context of so many tokens".into()),
        (Pass::Forward | Pass::Training, Some(_)) => say("context", "only the pass decode has a context".into()),
        _ => {}
    }
    let sizes = [
        ("hidden", spec.hidden, 1u64 << 24),
        ("heads", spec.heads, 1 << 20),
        ("head_dim", spec.head_dim, 1 << 20),
        ("ffn", spec.ffn.unwrap_or(1), 1 << 26),
        ("seq", spec.seq, 1 << 26),
        ("context", spec.context.unwrap_or(1), 1 << 30),
        ("layers", spec.layers, 1 << 20),
    ];
    super::spec::check_sizes(&sizes, node, reader);
}

impl DfmodelLayer {
    /// Width of the perceptron.
    pub fn ffn(&self) -> u64 {
        self.ffn.unwrap_or(self.hidden.saturating_mul(4))
    }

    /// The workload: one layer, repeated.
    pub fn build(&self) -> Workload {
        let b = if self.pass == Pass::Decode { self.decode() } else { self.whole_sequences() };
        b.repeated(
            &self.name,
            self.layers,
            self.word,
            (self.global_batch, self.micro_batch),
            self.pass == Pass::Training,
            self.seq,
        )
    }

    /// The perceptron on `input`; returns its first, middle and last kernel.
    fn perceptron(&self, b: &mut Builder, input: usize) -> (usize, usize, usize) {
        let (h, f, s) = (self.hidden, self.ffn(), self.seq);
        let ffn0 = b.add("FFN0", Op::GemmWeight, Phase::Forward, (1, f, h, s), &[(input, Slot::Rhs)]);
        let middle = b.add("GeLU", Op::Elementwise, Phase::Forward, (1, f, 1, s), &[(ffn0, Slot::Data)]);
        let ffn1 = b.add("FFN1", Op::GemmWeight, Phase::Forward, (1, h, f, s), &[(middle, Slot::Rhs)]);
        (ffn0, middle, ffn1)
    }

    /// Forward or training.
    fn whole_sequences(&self) -> Builder {
        use Op::{Elementwise, Gemm, GemmWeight, Norm};
        use Phase::{BackwardInput as Bwd, BackwardWeight as Upd, Forward as Fwd};
        use Slot::{Data, Lhs, LhsT, Rhs, RhsT};
        let (h, heads, d, s) = (self.hidden, self.heads, self.head_dim, self.seq);
        let a = heads * d;
        let f = self.ffn();
        let mut b = Builder::default();

        let add_prev = b.add("Add_Prev", Elementwise, Fwd, (1, h, 1, s), &[]);
        let ln1 = b.add("LN1", Norm, Fwd, (1, h, 1, s), &[(add_prev, Data)]);
        let q = b.add("Q", GemmWeight, Fwd, (heads, d, h, s), &[(ln1, Rhs)]);
        let k = b.add("K", GemmWeight, Fwd, (heads, d, h, s), &[(ln1, Rhs)]);
        let v = b.add("V", GemmWeight, Fwd, (heads, d, h, s), &[(ln1, Rhs)]);
        let scores = b.add("MHA1", Gemm, Fwd, (heads, s, d, s), &[(q, Rhs), (k, LhsT)]);
        let softmax = b.add("SOFTMAX", Norm, Fwd, (heads, s, 1, s), &[(scores, Data)]);
        let drop1 = b.add("DropOut_1", Elementwise, Fwd, (heads, s, 1, s), &[(softmax, Data)]);
        let values = b.add("MHA2", Gemm, Fwd, (heads, d, s, s), &[(v, Lhs), (drop1, Rhs)]);
        let proj = b.add("PROJ", GemmWeight, Fwd, (1, h, a, s), &[(values, Rhs)]);
        let drop2 = b.add("DropOut_2", Elementwise, Fwd, (1, h, 1, s), &[(proj, Data)]);
        let add1 = b.add("Add_1", Elementwise, Fwd, (1, h, 1, s), &[(drop2, Data), (add_prev, Data)]);
        let ln2 = b.add("LN2", Norm, Fwd, (1, h, 1, s), &[(add1, Data)]);
        let (ffn0, gelu, ffn1) = self.perceptron(&mut b, ln2);
        let drop3 = b.add("DropOut_3", Elementwise, Fwd, (1, h, 1, s), &[(ffn1, Data)]);
        let add2 = b.add("Add_2", Elementwise, Fwd, (1, h, 1, s), &[(drop3, Data), (add1, Data)]);

        let mut backward_ends = None;
        if self.pass == Pass::Training {
            let loss_b = b.add("Loss_bwd", Elementwise, Bwd, (1, h, 1, s), &[]);
            let drop3_b = b.add("DropOut_3_bwd", Elementwise, Bwd, (1, h, 1, s), &[(loss_b, Data)]);
            let ffn1_b = b.add("FFN1_bwd", GemmWeight, Bwd, (1, f, h, s), &[(drop3_b, Rhs)]);
            let gelu_b = b.add("GeLU_bwd", Elementwise, Bwd, (1, f, 1, s), &[(ffn1_b, Data)]);
            let ffn0_b = b.add("FFN0_bwd", GemmWeight, Bwd, (1, h, f, s), &[(gelu_b, Rhs)]);
            let ln2_b = b.add("LN2_bwd", Norm, Bwd, (1, h, 1, s), &[(ffn0_b, Data)]);
            let drop2_b = b.add("DropOut_2_bwd", Elementwise, Bwd, (1, h, 1, s), &[(ln2_b, Data)]);
            let proj_b = b.add("PROJ_bwd", GemmWeight, Bwd, (1, a, h, s), &[(drop2_b, Rhs)]);
            // dP = V^T dO and dV = dO P^T, then dQ = K dS and dK = Q dS^T, each head by itself.
            let dp = b.add("MHA2_bwd_P", Gemm, Bwd, (heads, s, d, s), &[(proj_b, Rhs), (v, LhsT)]);
            let dv = b.add("MHA2_bwd_V", Gemm, Bwd, (heads, d, s, s), &[(proj_b, Lhs), (drop1, RhsT)]);
            let v_b = b.add("V_bwd", GemmWeight, Bwd, (1, h, a, s), &[(dv, Rhs)]);
            let drop1_b = b.add("DropOut_1_bwd", Elementwise, Bwd, (heads, s, 1, s), &[(dp, Data)]);
            let softmax_b = b.add("SOFTMAX_bwd", Norm, Bwd, (heads, s, 1, s), &[(drop1_b, Data)]);
            let dq = b.add("MHA1_bwd_Q", Gemm, Bwd, (heads, d, s, s), &[(softmax_b, Rhs), (k, Lhs)]);
            let dk = b.add("MHA1_bwd_K", Gemm, Bwd, (heads, d, s, s), &[(softmax_b, RhsT), (q, Lhs)]);
            let qk = if self.heads_in_qk_backward { (heads, d, a, s) } else { (1, h, a, s) };
            let q_b = b.add("Q_bwd", GemmWeight, Bwd, qk, &[(dq, Rhs)]);
            let k_b = b.add("K_bwd", GemmWeight, Bwd, qk, &[(dk, Rhs)]);
            let ffn1_u = b.add("FFN1_upd", Gemm, Upd, (1, f, s, h), &[(drop3_b, RhsT), (gelu, Lhs)]);
            let ffn0_u = b.add("FFN0_upd", Gemm, Upd, (1, h, s, f), &[(gelu_b, RhsT), (ln2, Lhs)]);
            let proj_u = b.add("PROJ_upd", Gemm, Upd, (1, a, s, h), &[(drop2_b, RhsT), (values, Lhs)]);
            let v_u = b.add("V_upd", Gemm, Upd, (1, h, s, a), &[(dv, RhsT), (ln1, Lhs)]);
            let k_u = b.add("K_upd", Gemm, Upd, (1, h, s, a), &[(dk, RhsT), (ln1, Lhs)]);
            let q_u = b.add("Q_upd", Gemm, Upd, (1, h, s, a), &[(dq, RhsT), (ln1, Lhs)]);
            for (backward, owner) in [
                (ffn1_b, ffn1),
                (ffn0_b, ffn0),
                (proj_b, proj),
                (v_b, v),
                (q_b, q),
                (k_b, k),
                (ffn1_u, ffn1),
                (ffn0_u, ffn0),
                (proj_u, proj),
                (v_u, v),
                (k_u, k),
                (q_u, q),
            ] {
                b.kernels[backward].weight_of = Some(WeightOf { kernel: owner });
            }
            // The input gradients of Q, K and V add up to one tensor; it leaves through V_bwd.
            backward_ends = Some((v_b, loss_b));
        }
        b.carry("layer.in", add2, &[(add_prev, Data)]);
        if let Some((from, to)) = backward_ends {
            b.carry("layer.grad_in", from, &[(to, Data)]);
        }
        b
    }

    /// One step of generation (fengqian-ayce/DFModel, `generator/generate_LLM_fwd_decode.py`): 20 kernels and 23 edges, for `seq` new
    /// tokens of a sample after `context` others (C; T with the new ones). K_cache and V_cache write keys and values of all T tokens, having read
    /// those of C; each is counted with two FLOP an element.
    fn decode(&self) -> Builder {
        use Op::{Elementwise, Gemm, GemmWeight, Norm};
        use Phase::Forward;
        use Slot::{Data, Lhs, LhsT, Reshaped, Rhs, RhsT};
        let (h, heads, d, s) = (self.hidden, self.heads, self.head_dim, self.seq);
        let context = self.context.unwrap_or(0);
        let total = context + s;
        let mut b = Builder::default();
        let add_prev = b.add("Add_Prev", Elementwise, Forward, (1, h, 1, s), &[]);
        let ln1 = b.add("LN1", Norm, Forward, (1, h, 1, s), &[(add_prev, Data)]);
        let q = b.add("Q", GemmWeight, Forward, (heads, d, h, s), &[(ln1, Rhs)]);
        let k = b.add("K", GemmWeight, Forward, (heads, d, h, s), &[(ln1, Rhs)]);
        let v = b.add("V", GemmWeight, Forward, (heads, d, h, s), &[(ln1, Rhs)]);
        let keys = b.add("K_cache", Elementwise, Forward, (heads, d, 1, total), &[(k, Reshaped)]);
        let vals = b.add("V_cache", Elementwise, Forward, (heads, d, 1, total), &[(v, Reshaped)]);
        let row = (heads * d) as f64;
        for cache in [keys, vals] {
            b.work(cache, 2.0 * row * total as f64, 1);
            b.kernels[cache].extra_dram_bytes = row * context as f64 * self.word.0;
            b.kernels[cache].cache_bytes = row * total as f64 * self.word.0;
        }
        let scores = b.add("MHA1", Gemm, Forward, (heads, s, d, total), &[(q, LhsT), (keys, Rhs)]);
        let softmax = b.add("SOFTMAX", Norm, Forward, (heads, s, 1, total), &[(scores, Data)]);
        let drop1 = b.add("DropOut_1", Elementwise, Forward, (heads, s, 1, total), &[(softmax, Data)]);
        let values = b.add("MHA2", Gemm, Forward, (heads, d, total, s), &[(drop1, RhsT), (vals, Lhs)]);
        let proj = b.add("PROJ", GemmWeight, Forward, (1, h, heads * d, s), &[(values, Rhs)]);
        let drop2 = b.add("DropOut_2", Elementwise, Forward, (1, h, 1, s), &[(proj, Data)]);
        let add1 = b.add("Add_1", Elementwise, Forward, (1, h, 1, s), &[(drop2, Data), (add_prev, Data)]);
        let ln2 = b.add("LN2", Norm, Forward, (1, h, 1, s), &[(add1, Data)]);
        let (_, _, ffn1) = self.perceptron(&mut b, ln2);
        let drop3 = b.add("DropOut_3", Elementwise, Forward, (1, h, 1, s), &[(ffn1, Data)]);
        let add2 = b.add("Add_2", Elementwise, Forward, (1, h, 1, s), &[(drop3, Data), (add1, Data)]);
        b.carry("layer.in", add2, &[(add_prev, Data)]);
        b
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::workload::WorkloadSpec;

    /// GPT-3 sizes used across unit tests.
    pub(crate) fn gpt3(hidden: u64, heads: u64, head_dim: u64, layers: u64, batch: u64, pass: Pass) -> Workload {
        DfmodelLayer {
            kind: Kind::DfmodelLayer,
            name: "gpt3".into(),
            source: "Brown et al. 2020".into(),
            hidden,
            heads,
            head_dim,
            ffn: None,
            seq: 2048,
            context: None,
            layers,
            word: Bytes(2.0),
            pass,
            global_batch: batch,
            micro_batch: 1,
            heads_in_qk_backward: false,
        }
        .build()
        .checked()
        .unwrap()
    }

    #[test]
    fn graph_sizes_are_dfmodels() {
        let forward = gpt3(12288, 96, 128, 96, 2304, Pass::Forward);
        assert_eq!((forward.kernels.len(), forward.edges()), (18, 21));
        let training = gpt3(25600, 160, 160, 128, 3072, Pass::Training);
        assert_eq!((training.kernels.len(), training.edges()), (41, 53));
    }

    /// golden.csv, `workload_flop` of the GPT3-1T and GPT3-175B rows, to all printed digits.
    #[test]
    fn flop_is_the_stored_figure() {
        let training = gpt3(25600, 160, 160, 128, 3072, Pass::Training);
        assert_eq!(training.flop_per_iteration(), 3.85072240461978e19_f64);
        let forward = gpt3(12288, 96, 128, 96, 2304, Pass::Forward);
        assert!((forward.flop_per_iteration() / 1.6874003603411436e18 - 1.0).abs() < 1e-15);
    }

    fn read(more: &str) -> Result<Workload, String> {
        let text = format!(
            "{{kind: dfmodel_layer, name: t, source: 'a test', hidden: 4096, seq: 1, layers: 32, global_batch: 1, {more}}}"
        );
        WorkloadSpec::build(&Node::parse("test", &text).unwrap()).map_err(|e| e.to_string())
    }

    /// The printed FLOP of DFModel's Llama-3 8B decode run, whose heads and head size are exchanged (128 of 32).
    #[test]
    fn generation_has_its_kernels_edges_and_flop() {
        let w = read("heads: 128, head_dim: 32, ffn: 14336, pass: decode, context: 4096").unwrap();
        assert_eq!((w.kernels.len(), w.edges()), (20, 23));
        assert_eq!(w.flop_per_iteration(), 16_142_114_816.0);
        let read: f64 = w.kernels.iter().map(|k| k.extra_dram_bytes).sum();
        assert_eq!(read, 2.0 * 16.0 * 2_097_152.0);
    }

    #[test]
    fn a_context_is_of_generation() {
        for (pass, more) in [("decode", ""), ("forward", ", context: 16")] {
            let error = read(&format!("heads: 32, head_dim: 128, pass: {pass}{more}")).unwrap_err();
            assert!(error.contains("context"), "{pass}: {error}");
        }
    }

    /// By hand: a layer has 12 h^2 weights (Q, K, V, PROJ: 4 h^2; FFN0, FFN1: 8 h^2).
    #[test]
    fn weights_are_twelve_h_squared() {
        let training = gpt3(12288, 96, 128, 96, 2304, Pass::Training);
        let owned: f64 = training.kernels.iter().filter(|k| k.owns_weight()).map(|k| k.weight_elements()).sum();
        assert_eq!(owned, 12.0 * 12288.0 * 12288.0);
    }
}
