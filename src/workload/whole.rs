//! Embedding and head around the layers of a transformer: a chain of three blocks.
//!
//! Let h be the hidden size, V the vocabulary, S the sequence length. The *embedding* looks S rows of a table of V x h up and, in
//! the backward pass, adds S rows to its gradient. The *head* has the last norm, the product of V x h with h x S (2 V h S FLOP
//! a sample), and the loss: a softmax over the vocabulary of every token, which chips that share the vocabulary agree on by three
//! all-reduces of a 32-bit number a token (largest logit, sum of exponentials, logit of the label: Megatron-LM,
//! `core/tensor_parallel/cross_entropy.py`). Its backward pass has the gradients of loss, product (input and weight) and norm.
//!
//! Both tables are of their own: GPT-2 and GPT-3 tie them, which needs a sum of gradients between first and last stage that is
//! not expressed. Position embeddings, biases and the norms' parameters are not in the graph, as in the layers.

use super::builder::Builder;
use super::transformer::TransformerSpec;
use crate::graph::{Collective, CollectiveKind, Op, Phase, Scope, Slot, WeightOf};

/// Adds both to the layers in `b`, of which the kernel `first` reads what the layer before wrote in kernel `last`; `back` names
/// the same two of the backward pass, that which writes first.
pub(super) fn around(
    spec: &TransformerSpec,
    vocabulary: u64,
    b: &mut Builder,
    (first, last): (usize, usize),
    back: Option<(usize, usize)>,
) {
    use Phase::{BackwardInput as Bwd, BackwardWeight as Upd, Forward as Fwd};
    use Slot::{Data, Lhs, Rhs, RhsT, View};
    let (h, s, word) = (spec.hidden, spec.seq, spec.word.0);
    let looked_up = h as f64 * s as f64;
    let layers = b.kernels.len();
    // The output of a kernel that `add` made, among all tensors.
    let out = |b: &Builder, kernel: usize| b.tensors.iter().position(|t| t.producer == Some(kernel)).unwrap_or(0);

    let tokens = b.tensor("tokens", 1, s, None);
    let embed = b.bare("Embedding", Op::GemmWeight, Fwd, (1, h, vocabulary, s));
    b.read(embed, tokens, View);
    let embedded = b.tensor("Embedding.out", h, s, Some(embed));
    b.read(first, embedded, Data);
    b.tensors[embedded].carried_from = Some(out(b, last));
    b.kernels[embed].extra_dram_bytes = looked_up * word;

    let hidden = out(b, last);
    b.tensors[hidden].output = true;
    let norm = b.bare("LNf", Op::Norm, Fwd, (1, h, 1, s));
    b.read(norm, hidden, Data);
    let normed = b.tensor("LNf.out", h, s, Some(norm));
    let logits = b.bare("Logits", Op::GemmWeight, Fwd, (1, vocabulary, h, s));
    b.read(logits, normed, Rhs);
    let logits_out = b.tensor("Logits.out", vocabulary, s, Some(logits));
    let loss = b.bare("Loss", Op::Elementwise, Fwd, (1, vocabulary, 1, s));
    b.read(loss, logits_out, Data);
    let softmax = b.tensor("Loss.out", vocabulary, s, Some(loss));
    b.kernels[loss].collectives =
        vec![Collective { kind: CollectiveKind::AllReduce, bytes: 4.0 * s as f64, scope: Scope::Tensor, times: 3 }];

    if let Some((from, to)) = back {
        let softmax_b = b.bare("Softmax_bwd", Op::Elementwise, Bwd, (1, vocabulary, 1, s));
        b.read(softmax_b, softmax, Data);
        let dlogits = b.tensor("Softmax_bwd.out", vocabulary, s, Some(softmax_b));
        let logits_b = b.bare("Logits_bwd", Op::GemmWeight, Bwd, (1, h, vocabulary, s));
        b.read(logits_b, dlogits, Rhs);
        let dnormed = b.tensor("Logits_bwd.out", h, s, Some(logits_b));
        let norm_b = b.bare("LNf_bwd", Op::Norm, Bwd, (1, h, 1, s));
        b.read(norm_b, dnormed, Data);
        let dhidden = b.tensor("LNf_bwd.out", h, s, Some(norm_b));
        b.read(to, dhidden, Data);
        b.tensors[dhidden].carried_from = Some(out(b, from));
        let gradient = out(b, from);
        b.tensors[gradient].output = true;
        let logits_u = b.bare("Logits_upd", Op::Gemm, Upd, (1, h, s, vocabulary));
        b.read(logits_u, dlogits, RhsT);
        b.read(logits_u, normed, Lhs);
        b.tensor("Logits_upd.out", h, vocabulary, Some(logits_u));
        let embed_u = b.bare("Embedding_upd", Op::Gemm, Upd, (1, vocabulary, s, h));
        b.read(embed_u, tokens, View);
        b.read(embed_u, gradient, RhsT);
        b.tensor("Embedding_upd.out", vocabulary, h, Some(embed_u));
        b.kernels[embed_u].extra_dram_bytes = 2.0 * looked_up * word;
        b.kernels[logits_b].weight_of = Some(WeightOf { kernel: logits });
        b.kernels[logits_u].weight_of = Some(WeightOf { kernel: logits });
        b.kernels[embed_u].weight_of = Some(WeightOf { kernel: embed });
        for k in [embed, embed_u] {
            (b.kernels[k].lookup, b.kernels[k].flop) = (true, Some(looked_up));
        }
    } else {
        (b.kernels[embed].lookup, b.kernels[embed].flop) = (true, Some(looked_up));
        b.tensors[softmax].output = true;
    }
    for (k, kernel) in b.kernels.iter_mut().enumerate() {
        kernel.block = match k {
            k if k < layers => 1,
            k if k == embed || kernel.name == "Embedding_upd" => 0,
            _ => 2,
        };
    }
}
