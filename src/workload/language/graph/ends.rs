//! What comes before the first layer and after the last.
//!
//! *Embedding*: rows of a table of V words are looked up (and, trained, added to its gradient); narrower words are widened; learned positions
//! are looked up and added; or patches of an image meet a matrix. *Head*: the last norm, what the head has of its own, the product with V
//! rows (2 V h FLOP a token), and the loss: a softmax over V of each token, for which chips that share the words exchange three 32-bit numbers a token
//! (largest, sum of exponentials, that of the label: Megatron-LM, `core/tensor_parallel/cross_entropy.py`). The softmax is kept in 32 bits. A masked language model scores the tokens that it
//! predicts ([`MASKED`]), classes and poolers the first.
//! A head that is the embedding again has a table of its own here: the sum of gradients between first and last stage is not expressed.

use super::super::flop::MASKED;
use super::super::spec::{Head, LanguageModel, Position};
use super::net::{Net, shape};
use super::perceptron::function;
use crate::graph::adjoint::{Rule, Saved};
use crate::graph::{Collective, CollectiveKind, Op, Scope, Slot};

/// Looks `n` rows of `width` up in a table of `rows`.
fn look_up(net: &mut Net, name: &str, (rows, width): (u64, u64), of: usize) -> usize {
    let n = net.sequence.tokens;
    let k = net.kernel(name, Op::GemmWeight, (1, width, rows, n), &[(of, Slot::View)], Rule::LookUp);
    let moved = width as f64 * n as f64;
    let kernel = &mut net.b.kernels[k];
    (kernel.lookup, kernel.flop, kernel.extra_dram_bytes) = (true, Some(moved), moved * net.word);
    net.out(k, name, (width, n))
}

/// Takes some tokens of `h` channels out of all.
fn gather(net: &mut Net, name: &str, (h, tokens): (u64, u64), x: usize) -> usize {
    let whole = shape((1, h, 1, net.sequence.tokens));
    let back = Rule::Other { shape: whole, gradient: Slot::Reshaped, saved: Vec::new(), to: vec![x] };
    net.one(name, Op::Elementwise, (1, h, 1, tokens), &[(x, Slot::Reshaped)], back)
}

/// The embedding; gives what the first layer reads.
pub(super) fn embedding(net: &mut Net, model: &LanguageModel) -> usize {
    let (h, n) = (model.hidden, net.sequence.tokens);
    let mut x = if let Some(p) = &model.patches {
        let pixels = p.size * p.size * p.channels;
        let image = net.b.tensor("pixels", pixels, n, None);
        let out = net.linear("Patches", h, pixels, image);
        if p.class_token {
            net.work(out, 2.0 * (pixels * h) as f64 * (n - 1) as f64);
        }
        out
    } else {
        let width = model.embedding_width();
        let words = net.b.tensor("tokens", 1, n, None);
        let looked = look_up(net, "Embedding", (model.vocab.unwrap_or(1), width), words);
        if width == h { looked } else { net.linear("Widening", h, width, looked) }
    };
    if model.position == Position::Learned {
        let places = net.b.tensor("positions", 1, n, None);
        let learned = look_up(net, "Positions", (model.max_positions.unwrap_or(model.seq), h), places);
        x = net.sum("Add_positions", &[x, learned]);
    }
    if model.embedding_norm {
        x = net.norm("LNe", (1, h), x);
    }
    net.drop("DropOut_0", 1, x)
}

/// Whether anything comes after the layers.
pub(super) fn has_head(model: &LanguageModel) -> bool {
    model.final_norm || model.head != Head::None
}

/// The head on what the last layer hands on.
pub(super) fn head(net: &mut Net, model: &LanguageModel, hidden: usize) {
    let h = model.hidden;
    let mut x = if model.final_norm { net.norm("LNf", (1, h), hidden) } else { hidden };
    let words = model.head_outputs();
    match model.head {
        Head::None => {}
        Head::Vocabulary => {
            let width = model.embedding_width();
            if width != h {
                x = net.linear("Narrowing", width, h, x);
            }
            x = net.linear("Logits", words, width, x);
        }
        Head::MaskedTokens => {
            // Training scores the tokens that are predicted, a served sequence asks for one.
            let scored = (MASKED * net.sequence.tokens as f64).round().max(1.0) as u64;
            let asked = gather(net, "Masked_tokens", (h, if net.sequence.training { scored } else { 1 }), x);
            let made = net.linear("Head_transform", h, h, asked);
            let made = function(net, "Head_activation", 1, &[made]);
            let made = net.norm("LNh", (1, h), made);
            x = net.linear("Logits", words, h, made);
        }
        Head::Pooler | Head::Classes => {
            let one = gather(net, "First_token", (h, 1), x);
            x = if model.head == Head::Classes {
                net.linear("Logits", words, h, one)
            } else {
                let made = net.linear("Pooler", h, h, one);
                function(net, "Pooler_activation", 1, &[made])
            };
        }
    }
    let (rows, cols) = (net.b.tensors[x].rows, net.b.tensors[x].cols);
    let name = if net.sequence.training { "Loss" } else { "Softmax_words" };
    if words == 0 && !net.sequence.training {
        net.b.tensors[x].output = true;
        return;
    }
    let k = net.kernel(name, Op::Elementwise, (1, rows, 1, cols), &[(x, Slot::Data)], Rule::Constant);
    let size = net.in_words((rows, cols), 4.0);
    let kept = net.out(k, name, size);
    if words > 0 {
        net.b.kernels[k].collectives = vec![Collective {
            kind: CollectiveKind::AllReduce,
            bytes: 4.0 * cols as f64,
            scope: Scope::Tensor,
            times: 3,
        }];
    }
    if net.sequence.training {
        net.rules[k] = Rule::Same(Saved::Tensor(kept, Slot::Aligned));
    } else {
        net.b.tensors[kept].output = true;
    }
}
