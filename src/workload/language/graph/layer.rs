//! One layer: norms, attention, perceptron, residual sums.
//!
//! Norms stand before attention and perceptron; a third and a fourth end the branches (Gemma 2), further ones end the second. A model whose
//! norms come after the sums (BERT) has the same kernels in another order. In a parallel block with one norm (GPT-J, PaLM) all that reads the
//! norm is one product, and what both branches add is one product of two operands.

use super::super::spec::{Experts, LanguageModel};
use super::net::Net;
use super::{attention, perceptron};

/// A layer that reads `x`; gives what it hands on.
pub(super) fn layer(net: &mut Net, model: &LanguageModel, experts: Option<&Experts>, x: usize) -> usize {
    let (h, norms) = (model.hidden, model.norms());
    let first = if norms >= 1 { net.norm("LN1", (1, h), x) } else { x };
    if model.parallel_block && norms <= 1 && experts.is_none() && model.latent_attention.is_none() {
        return fused(net, model, first, x);
    }
    let attended = attention::attention(net, model, first);
    let proj = net.linear("PROJ", h, model.heads * model.value_width(), attended);
    let proj = net.drop("DropOut_2", 1, proj);
    let branch = if norms >= 3 { net.norm("LN3", (1, h), proj) } else { proj };
    let (before, second) = if model.parallel_block {
        (vec![x, branch], if norms >= 2 { net.norm("LN2", (1, h), x) } else { first })
    } else {
        let sum = net.sum("Add_1", &[branch, x]);
        (vec![sum], if norms >= 2 { net.norm("LN2", (1, h), sum) } else { sum })
    };
    let mut added = perceptron::perceptron(net, model, experts, second);
    if added.len() > 1 && (net.dropout && net.sequence.training || norms >= 4) {
        added = vec![net.sum("Add_experts", &added)];
    }
    if let [one] = &mut added[..] {
        *one = net.drop("DropOut_3", 1, *one);
        for i in 4..=norms {
            *one = net.norm(&format!("LN{i}"), (1, h), *one);
        }
    }
    added.extend(before);
    net.sum("Add_2", &added)
}

/// A parallel block in two products.
fn fused(net: &mut Net, model: &LanguageModel, normed: usize, x: usize) -> usize {
    let (h, f, n) = (model.hidden, model.ffn(), net.sequence.tokens);
    let mut parts = attention::parts(model).to_vec();
    parts.extend(perceptron::parts(model, f));
    let made = net.product("QKV_FFN0", &parts, (h, n), &[normed]);
    let attended = attention::of_parts(net, model, &made[..3]);
    let middle = perceptron::function(net, "Activation", 1, &made[3..]);
    let deep = model.heads * model.head_dim() + f;
    let both = net.product("PROJ_FFN1", &[("PROJ_FFN1", h)], (deep, n), &[attended, middle])[0];
    let both = net.drop("DropOut_2", 1, both);
    net.sum("Add_2", &[both, x])
}
