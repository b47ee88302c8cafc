//! The attention of a layer: what it reads of the normalised input, its core, and what its output product reads.
//!
//! With a heads of d channels, g of them for keys and values, S tokens of which each meets A: scores (a x A, d, S), values (a x d, A, S). A
//! mask or a window leaves A < S of S keys; what it hides is neither computed nor made nor kept (ARCHITECTURE.md). Latent attention
//! (DeepSeek-V2, arXiv 2405.04434, eqs. 9-19): queries through a compressed vector of q, keys and values through one of c, a rotated part
//! of r channels that all heads share; in generation the scores meet the compressed vectors of the cache, the up-projections being
//! applied to queries and results (its section 2.1.2).
//!
//! Where replicas share a sample's tokens (context parallelism), a graph is that of one of them: S/cp queries meet the gathered keys and values of all, as many of them as a token meets on
//! average (tokens are dealt out so that all replicas have equal work).

use super::super::spec::{LanguageModel, LatentAttention, Position, QkNorm};
use super::net::{Net, shape};
use crate::graph::adjoint::{Rule, Saved};
use crate::graph::{Kernel, Op, Slot};

/// What names of kernels begin with that gather the keys or values of the replicas that share a sample's tokens; those of their gradients do too.
const GATHER: &str = "Gather_";

/// Whether a kernel of a language model's graph, of whatever pass, gathers keys or values among the replicas that share a sample's tokens, or adds up their gradients.
pub fn is_gathering(kernel: &Kernel) -> bool {
    kernel.name.starts_with(GATHER)
}

/// Queries, keys and values as tensors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    /// heads x query width.
    pub queries: usize,
    /// kv heads x query width.
    pub keys: usize,
    /// kv heads x value width.
    pub values: usize,
}

/// Parts of the product of heads of `head_dim` channels with the input.
pub(super) fn parts(model: &LanguageModel) -> [(&'static str, u64); 3] {
    let (d, g) = (model.head_dim(), model.kv_heads());
    [("Q", model.heads * d), ("K", g * d), ("V", g * d)]
}

/// The result of attention on `input`: heads x value width rows.
pub(super) fn attention(net: &mut Net, model: &LanguageModel, input: usize) -> usize {
    if let Some(latent) = &model.latent_attention {
        return if net.sequence.cached {
            latent_step(net, model, latent, input)
        } else {
            let heads = latent_heads(net, model, latent, input);
            core(net, model, heads)
        };
    }
    let n = net.sequence.tokens;
    let made = net.product("QKV", &parts(model), (model.hidden, n), &[input]);
    of_parts(net, model, &made)
}

/// The result of attention from queries, keys and values as the product makes them.
pub(super) fn of_parts(net: &mut Net, model: &LanguageModel, made: &[usize]) -> usize {
    let (heads, g, d) = (model.heads, model.kv_heads(), model.head_dim());
    let (mut queries, mut keys, values) = (made[0], made[1], made[2]);
    match model.qk_norm {
        Some(QkNorm::Head) => {
            queries = net.norm("Q_norm", (heads, d), queries);
            keys = net.norm("K_norm", (g, d), keys);
        }
        Some(QkNorm::Width) => {
            queries = net.norm("Q_norm", (1, heads * d), queries);
            keys = net.norm("K_norm", (1, g * d), keys);
        }
        None => {}
    }
    if model.position == Position::Rotary {
        queries = rotate(net, "RoPE_Q", (heads, d), &[(queries, Slot::Data)]);
        // Fewer heads than chips are cut too, so these are rows.
        keys = rotate(net, "RoPE_K", (1, g * d), &[(keys, Slot::Data)]);
    }
    core(net, model, Heads { queries, keys, values })
}

/// Rotations: linear, so that the backward pass needs nothing of the forward one.
fn rotate(net: &mut Net, name: &str, (heads, d): (u64, u64), reads: &[(usize, Slot)]) -> usize {
    let n = net.sequence.tokens;
    net.one(name, Op::Elementwise, (heads, d, 1, n), reads, Rule::Same(Saved::Nothing))
}

/// Keys or values of the whole sequence, of which this replica has its own part, and gives each replica the sum of the gradients of its part.
fn gather(net: &mut Net, name: &str, own: usize) -> usize {
    let Some(whole) = net.whole_sequence else { return own };
    let (rows, n) = (net.b.tensors[own].rows, net.sequence.tokens);
    let back = shape((1, rows, 1, n));
    let back = Rule::Other { shape: back, gradient: Slot::Aligned, saved: Vec::new(), to: vec![own] };
    net.one(&format!("{GATHER}{name}"), Op::Elementwise, (1, rows, 1, whole), &[(own, Slot::Aligned)], back)
}

/// Scores, softmax and weighted values, over the sequence itself or from a cache.
fn core(net: &mut Net, model: &LanguageModel, of: Heads) -> usize {
    let (heads, n, seen) = (model.heads, net.sequence.tokens, net.sequence.seen());
    let of = Heads { keys: gather(net, "K", of.keys), values: gather(net, "V", of.values), ..of };
    let (q, v) = (model.query_width(), model.value_width());
    // Latent attention has keys and values of every head.
    let kv = if model.latent_attention.is_some() { heads } else { model.kv_heads() };
    let (key_slot, value_slot) =
        if net.sequence.cached { (Slot::Reshaped, Slot::Reshaped) } else { (Slot::LhsT, Slot::Lhs) };
    let reads = [(of.queries, Slot::Rhs), (of.keys, key_slot)];
    let scores = net.one("Scores", Op::Gemm, (heads, seen, q, n), &reads, Rule::Product);
    let softmax = softmax(net, heads, scores);
    let reads = [(of.values, value_slot), (softmax, Slot::Rhs)];
    let values = net.one("Values", Op::Gemm, (heads, v, seen, n), &reads, Rule::Product);
    // Where every token meets every other the shape says it all.
    let exact = net.sequence.attended == n as f64;
    for (tensor, width) in [(scores, q), (values, v)] {
        let Some(k) = net.b.tensors[tensor].producer else { continue };
        let pairs = n as f64 * net.sequence.attended;
        let cache = (kv * width) as f64 * net.sequence.attended * net.cache_word;
        let kernel = &mut net.b.kernels[k];
        kernel.lhs_shared = heads / kv.max(1);
        if !exact {
            kernel.flop = Some(2.0 * (heads * width) as f64 * pairs);
        }
        if net.sequence.cached {
            kernel.extra_dram_bytes = cache;
            kernel.cache_bytes = cache;
        }
    }
    values
}

fn softmax(net: &mut Net, heads: u64, scores: usize) -> usize {
    let shape = (heads, net.sequence.seen(), 1, net.sequence.tokens);
    let out = net.one("Softmax", Op::Norm, shape, &[(scores, Slot::Data)], Rule::Same(Saved::Output));
    net.drop("DropOut_1", heads, out)
}

/// Compressed queries (or whole ones), compressed keys and values, and the rotated part of the keys: one product.
fn compressed(net: &mut Net, model: &LanguageModel, l: &LatentAttention, input: usize) -> (usize, usize, usize) {
    let width = l.nope_dim + l.rope_dim;
    let queries = l.q_rank.unwrap_or(model.heads * width);
    let parts = [("Q_down", queries), ("KV_down", l.kv_rank), ("K_shared", l.rope_dim)];
    let made = net.product("Down", &parts, (model.hidden, net.sequence.tokens), &[input]);
    let queries = match l.q_rank {
        Some(q) => {
            let normed = net.norm("Q_norm", (1, q), made[0]);
            net.linear("Q_up", model.heads * width, q, normed)
        }
        None => made[0],
    };
    (queries, net.norm("KV_norm", (1, l.kv_rank), made[1]), made[2])
}

fn latent_heads(net: &mut Net, model: &LanguageModel, l: &LatentAttention, input: usize) -> Heads {
    let (heads, n, width) = (model.heads, net.sequence.tokens, l.nope_dim + l.rope_dim);
    let (queries, compressed, shared) = compressed(net, model, l, input);
    let parts = [("K_up", heads * l.nope_dim), ("V", heads * l.v_dim)];
    let up = net.product("KV_up", &parts, (l.kv_rank, n), &[compressed]);
    let queries = rotate(net, "RoPE_Q", (heads, width), &[(queries, Slot::Data)]);
    // Every head has its own part and the shared, rotated one.
    let keys = rotate(net, "RoPE_K", (heads, width), &[(up[0], Slot::Aligned), (shared, Slot::Shared)]);
    Heads { queries, keys, values: up[1] }
}

/// One step of generation against the cache of compressed vectors.
fn latent_step(net: &mut Net, model: &LanguageModel, l: &LatentAttention, input: usize) -> usize {
    let (heads, n, seen) = (model.heads, net.sequence.tokens, net.sequence.seen());
    let (c, r) = (l.kv_rank, l.rope_dim);
    let (queries, compressed, shared) = compressed(net, model, l, input);
    let shape = (heads, l.nope_dim + r, 1, n);
    let k = net.kernel("RoPE_Q", Op::Elementwise, shape, &[(queries, Slot::Data)], Rule::Constant);
    let plain = net.out(k, "Q_plain", (heads * l.nope_dim, n));
    let rotated = net.out(k, "Q_rotated", (heads * r, n));
    let own = [(plain, Slot::Aligned)];
    let absorbed = net.one("K_up", Op::GemmWeight, (heads, c, l.nope_dim, n), &own, Rule::Constant);
    let reads = [(absorbed, Slot::Rhs), (rotated, Slot::Rhs), (compressed, Slot::Reshaped), (shared, Slot::Reshaped)];
    let scores = net.one("Scores", Op::Gemm, (heads, seen, c + r, n), &reads, Rule::Constant);
    let softmax = softmax(net, heads, scores);
    let reads = [(softmax, Slot::Rhs), (compressed, Slot::Reshaped)];
    let values = net.one("Values", Op::Gemm, (heads, c, seen, n), &reads, Rule::Constant);
    let attended = net.sequence.attended;
    for (tensor, width) in [(scores, c + r), (values, c)] {
        net.work(tensor, 2.0 * (heads * width) as f64 * attended * n as f64);
        let Some(k) = net.b.tensors[tensor].producer else { continue };
        let word = net.cache_word;
        let kernel = &mut net.b.kernels[k];
        kernel.lhs_shared = heads;
        kernel.extra_dram_bytes = width as f64 * attended * word;
        // The values read what the scores keep.
        kernel.cache_bytes = if width == c { 0.0 } else { kernel.extra_dram_bytes };
    }
    net.one("V_up", Op::GemmWeight, (heads, l.v_dim, c, n), &[(values, Slot::Aligned)], Rule::Constant)
}
