//! The perceptron of a layer: plain, gated, or experts.
//!
//! Plain: (f, h, S), a function, (h, f, S). Gated (Shazeer 2020, arXiv 2002.05202): both first matrices are one product of 2 f rows. Experts
//! (Shazeer et al. 2017, arXiv 1701.06538): a router of E rows and a softmax; every token is copied to top_k experts, E products side by
//! side have S top_k / E tokens each (loads are even), and their results are weighted and added up. Between chips the experts are divided
//! and tokens split or whole: the exchange is the conversion of the copies from one to the other. Where replicas share the experts (expert parallelism), a graph is that of
//! one of them: its part of the experts, which have the tokens of all, as many as its own have copies.

use super::super::spec::{Experts, LanguageModel};
use super::net::{Net, shape};
use crate::graph::adjoint::{Rule, Saved};
use crate::graph::{Kernel, Op, Slot};

/// What names of kernels begin with that are work of the experts which a router chooses; those of their gradients do too.
const EXPERT: &str = "Expert_";

/// Whether a kernel of a language model's graph, of whatever pass, is work of the experts that a router chooses.
pub fn is_of_expert(kernel: &Kernel) -> bool {
    kernel.name.starts_with(EXPERT)
}

/// Parts of the first product of a perceptron of width `f`.
pub(super) fn parts(model: &LanguageModel, f: u64) -> Vec<(&'static str, u64)> {
    if model.gated { vec![("Gate", f), ("Up", f)] } else { vec![("Up", f)] }
}

/// The function between the matrices, of `outer` perceptrons side by side.
pub(super) fn function(net: &mut Net, name: &str, outer: u64, made: &[usize]) -> usize {
    let (rows, cols) = (net.b.tensors[made[0]].rows, net.b.tensors[made[0]].cols);
    let reads: Vec<(usize, Slot)> = made.iter().map(|t| (*t, Slot::Data)).collect();
    net.one(name, Op::Elementwise, (outer, rows / outer, 1, cols), &reads, Rule::Same(Saved::Inputs))
}

/// A plain perceptron of width `f` on `input`.
fn plain(net: &mut Net, model: &LanguageModel, prefix: &str, f: u64, input: usize) -> usize {
    let named: Vec<(String, u64)> = parts(model, f).iter().map(|(n, rows)| (format!("{prefix}{n}"), *rows)).collect();
    let parts: Vec<(&str, u64)> = named.iter().map(|(n, rows)| (n.as_str(), *rows)).collect();
    let made = net.product(&format!("{prefix}FFN0"), &parts, (model.hidden, net.sequence.tokens), &[input]);
    let middle = function(net, &format!("{prefix}Activation"), 1, &made);
    net.linear(&format!("{prefix}FFN1"), model.hidden, f, middle)
}

/// What a layer adds after attention, in parts that are added up: of a plain layer, or of one with experts.
pub(super) fn perceptron(net: &mut Net, model: &LanguageModel, experts: Option<&Experts>, input: usize) -> Vec<usize> {
    let Some(e) = experts else { return vec![plain(net, model, "", model.ffn(), input)] };
    let mut out = vec![routed(net, model, e, input)];
    let shared = e.shared.unwrap_or(0) * e.shared_ffn.unwrap_or(e.ffn);
    if shared > 0 {
        out.push(plain(net, model, "Shared_", shared, input));
    }
    out
}

fn routed(net: &mut Net, model: &LanguageModel, e: &Experts, input: usize) -> usize {
    let (h, f, all, n) = (model.hidden, e.ffn, e.count, net.sequence.tokens);
    let count = (all / net.replicas_of_experts).max(1);
    let copies = n as f64 * e.top_k as f64 * e.capacity_factor.unwrap_or(1.0);
    let each = ((copies / count as f64).ceil() as u64).max(1);
    let even = copies == (each * count) as f64;
    let logits = net.linear("Router", all, h, input);
    let routing = net.one("Routing", Op::Norm, (1, all, 1, n), &[(logits, Slot::Data)], Rule::Same(Saved::Output));
    let gather = Rule::Other { shape: shape((1, h, 1, n)), gradient: Slot::Shared, saved: Vec::new(), to: vec![input] };
    let reads = [(input, Slot::Shared), (routing, Slot::Shared)];
    let sent = net.one("Dispatch", Op::Elementwise, (1, count * h, 1, each), &reads, gather);
    let parts = parts(model, f);
    let rows: u64 = parts.iter().map(|(_, rows)| rows).sum();
    let own = [(sent, Slot::Aligned)];
    let first = net.kernel(&format!("{EXPERT}FFN0"), Op::GemmWeight, (count, rows, h, each), &own, Rule::Product);
    let made: Vec<usize> =
        parts.iter().map(|(name, rows)| net.out(first, &format!("{EXPERT}{name}"), (count * rows, each))).collect();
    let middle = function(net, &format!("{EXPERT}Activation"), count, &made);
    let own = [(middle, Slot::Aligned)];
    let result = net.one(&format!("{EXPERT}FFN1"), Op::GemmWeight, (count, h, f, each), &own, Rule::Product);
    if !even {
        // The last tokens of an expert's share are no whole one.
        net.b.kernels[first].flop = Some(2.0 * (rows * h) as f64 * copies);
        net.work(result, 2.0 * (f * h) as f64 * copies);
    }
    let scatter = Rule::Other {
        shape: shape((1, count * h, 1, each)),
        gradient: Slot::Shared,
        saved: vec![(result, Slot::Data), (routing, Slot::Shared)],
        to: vec![result, routing],
    };
    let reads = [(result, Slot::Shared), (routing, Slot::Shared)];
    let combined = net.one("Combine", Op::Elementwise, (1, h, 1, n), &reads, scatter);
    net.work(combined, 2.0 * copies * h as f64);
    combined
}
