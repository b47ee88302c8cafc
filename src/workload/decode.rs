//! The decode pass of a transformer: `seq` new tokens of a sample (one, in plain generation) after `context` tokens whose
//! keys and values lie in DRAM.
//!
//! Let C be the context, S the new tokens, T = C + S, and g = heads / kv_heads. Scores, each head: (T, head_dim, S), rows
//! are keys; values: (head_dim, T, S). The keys of C tokens are read from DRAM and those of S appended, once for the g
//! heads that share them, so the scores move kv_heads x head_dim x T words a sample, the values as many; as many stay in
//! DRAM from token to token, for each layer and sample. The caches stream past the queries and take no room on chip.
//! Nothing is dropped out in generation.

use super::builder::Builder;
use super::transformer::TransformerSpec;
use crate::graph::{Op, Phase, Slot};

impl TransformerSpec {
    /// The layer of the decode pass.
    pub(super) fn decode(&self) -> Builder {
        if self.cache_as_kernels { self.decode_as_dfmodel() } else { self.decode_from_cache() }
    }

    fn decode_from_cache(&self) -> Builder {
        use Op::{Elementwise, Gemm, GemmWeight, Norm};
        use Phase::Forward;
        use Slot::{Data, Reshaped, Rhs};
        let (h, heads, d, s) = (self.hidden, self.heads, self.head_dim, self.seq);
        let kv = self.kv_heads();
        let total = self.context.unwrap_or(0) + s;
        let mut b = Builder::default();
        let add_prev = b.add("Add_Prev", Elementwise, Forward, (1, h, 1, s), &[]);
        let ln1 = b.add("LN1", Norm, Forward, (1, h, 1, s), &[(add_prev, Data)]);
        let q = b.add("Q", GemmWeight, Forward, (heads, d, h, s), &[(ln1, Rhs)]);
        let k = b.add("K", GemmWeight, Forward, (kv, d, h, s), &[(ln1, Rhs)]);
        let v = b.add("V", GemmWeight, Forward, (kv, d, h, s), &[(ln1, Rhs)]);
        let scores = b.add("MHA1", Gemm, Forward, (heads, total, d, s), &[(q, Rhs), (k, Reshaped)]);
        let softmax = b.add("SOFTMAX", Norm, Forward, (heads, total, 1, s), &[(scores, Data)]);
        let values = b.add("MHA2", Gemm, Forward, (heads, d, total, s), &[(softmax, Rhs), (v, Reshaped)]);
        let cache = (kv * d) as f64 * total as f64 * self.word.0;
        for attention in [scores, values] {
            let kernel = &mut b.kernels[attention];
            kernel.lhs_shared = heads / kv;
            kernel.extra_dram_bytes = cache;
            kernel.cache_bytes = cache;
        }
        let proj = b.add("PROJ", GemmWeight, Forward, (1, h, heads * d, s), &[(values, Rhs)]);
        let add1 = b.add("Add_1", Elementwise, Forward, (1, h, 1, s), &[(proj, Data), (add_prev, Data)]);
        let ln2 = b.add("LN2", Norm, Forward, (1, h, 1, s), &[(add1, Data)]);
        let (_, _, ffn1) = self.perceptron(&mut b, ln2);
        let add2 = b.add("Add_2", Elementwise, Forward, (1, h, 1, s), &[(ffn1, Data), (add1, Data)]);
        b.carry("layer.in", add2, &[(add_prev, Data)]);
        b
    }

    /// DFModel's graph (fengqian-ayce/DFModel, `generator/generate_LLM_fwd_decode.py`): 20 kernels and 23 edges. K_cache and
    /// V_cache write keys and values of all T tokens, having read those of C; each is counted with two FLOP an element.
    fn decode_as_dfmodel(&self) -> Builder {
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
mod tests {
    use crate::graph::{Kernel, Workload};
    use crate::spec::Node;
    use crate::workload::WorkloadSpec;

    fn read(more: &str) -> Workload {
        let text = format!(
            "{{kind: transformer, name: t, source: 'a test', hidden: 4096, ffn: 14336, seq: 1, layers: 32, pass: decode, \
             context: 4096, global_batch: 1, {more}}}"
        );
        WorkloadSpec::build(&Node::parse("test", &text).unwrap()).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The printed FLOP of DFModel's Llama-3 8B decode run, whose heads and head size are exchanged (128 of 32).
    #[test]
    fn dfmodels_graph_has_its_kernels_edges_and_flop() {
        let w = read("heads: 128, head_dim: 32, cache_as_kernels: true");
        assert_eq!((w.kernels.len(), w.edges()), (20, 23));
        assert_eq!(w.flop_per_iteration(), 16_142_114_816.0);
        let read: f64 = w.kernels.iter().map(|k| k.extra_dram_bytes).sum();
        assert_eq!(read, 2.0 * 16.0 * 2_097_152.0);
    }

    /// By hand, Llama-3 8B, one token after 4,096: K and V of 8 heads of 128 words, so 4097 x 1024 x 2 B of keys and as
    /// many of values a layer; attention 2 x 2 x 32 x 128 x 4097 FLOP; weights 218,103,808 a layer, two FLOP each.
    #[test]
    fn a_token_reads_the_cache_of_the_key_value_heads() {
        let w = read("heads: 32, head_dim: 128, kv_heads: 8, gated: true");
        let moved: Vec<f64> = w.kernels.iter().map(|k| k.extra_dram_bytes).filter(|b| *b > 0.0).collect();
        assert_eq!(moved, [4097.0 * 1024.0 * 2.0; 2]);
        let kept: f64 = w.kernels.iter().map(|k| k.cache_bytes).sum();
        assert_eq!(kept, 2.0 * 4097.0 * 1024.0 * 2.0);
        let attention: f64 = w.kernels.iter().filter(|k| k.name.starts_with("MHA")).map(Kernel::flop).sum();
        assert_eq!(attention, 4.0 * 32.0 * 128.0 * 4097.0);
        let weights: f64 = w.kernels.iter().map(Kernel::weight_elements).sum();
        assert_eq!(weights, 218_103_808.0);
    }

    #[test]
    fn fields_of_other_passes_are_refused() {
        for (more, word) in [
            ("heads: 32, head_dim: 128, kv_heads: 5", "kv_heads"),
            ("heads: 32, head_dim: 128, kv_heads: 8, cache_as_kernels: true", "cache_as_kernels"),
        ] {
            let text = format!(
                "{{kind: transformer, name: t, source: s, hidden: 4096, seq: 1, layers: 32, pass: decode, context: 16, \
                 global_batch: 1, {more}}}"
            );
            let error = WorkloadSpec::build(&Node::parse("test", &text).unwrap()).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        for (pass, more, word) in [
            ("decode", "", "context"),
            ("forward", "context: 16", "context"),
            ("training", "gated: true", "gated"),
            ("training", "kv_heads: 8", "kv_heads"),
        ] {
            let text = format!(
                "{{kind: transformer, name: t, source: s, hidden: 4096, heads: 32, head_dim: 128, seq: 1, layers: 32, pass: \
                 {pass}, global_batch: 1, {more}}}"
            );
            let error = WorkloadSpec::build(&Node::parse("test", &text).unwrap()).unwrap_err().to_string();
            assert!(error.contains(word), "{pass}: {error}");
        }
    }
}
