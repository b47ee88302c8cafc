//! The attention core of a layer: of a sequence with itself, as one kernel or as products and vector work, layers with a window and those that see all apart.

use super::{Core, Cost, Kernels, Phase, Position, Product, Work};
use crate::model::attention_kernel::FusedAttentionWork;

impl Kernels<'_> {
    /// The core of a sequence's attention to itself.
    pub(super) fn own_attention(&mut self) {
        let (model, seq) = (self.model, self.model.seq);
        // Layers with a window and those that see all are kernels of two sizes; a window that holds the sample is none.
        let window = model.window.filter(|window| *window < seq);
        let full = model.full_layers_before(model.layers) as f64 / model.layers.max(1) as f64;
        let full = if window.is_some() { full } else { 1.0 };
        for (share, seen, edges) in [(full, seq, model.masked_layers()), (1.0 - full, window.unwrap_or(seq), 2.0)]
            .into_iter()
            .filter(|(s, ..)| *s > 0.0)
        {
            let before = self.list.len();
            self.attention_core(model.attended_within(seq, seen), edges);
            self.as_a_share(before, share);
        }
    }

    /// The attention core: products of queries with keys and of weights with values, and what is between, for tokens that see `seen` others on average, in
    /// rows of blocks with so many `edges` of a mask.
    pub(super) fn attention_core(&mut self, seen: f64, edges: f64) {
        let model = self.model;
        let word = model.types.activations.bytes();
        let (d, t) = (self.division, self.t());
        let (s, queries) = (model.seq as f64, model.seq as f64 / d.cp as f64);
        let heads = model.heads as f64 / t;
        let batch = d.micro_batch as f64 * heads;
        let (qk, v) = (model.query_width() as f64, model.value_width() as f64);
        let relative = model.position == Position::Relative;
        if let (Core::Kernel(of), false) = (self.mapping.core, relative) {
            let work = FusedAttentionWork {
                heads: batch,
                kv_heads: d.micro_batch as f64 * model.key_value_heads(d.tp).min(heads),
                queries,
                keys: s,
                seen,
                edges,
                key_width: qk,
                value_width: v,
                word,
            };
            let (times, peak) = (&self.machine.kernels, self.wide_peak);
            let kernel = self.machine.attention_kernels.get(of).map_or(&self.machine.fused_attention, |(_, k)| k);
            let (forward, backward) = (work.forward(kernel, times, peak), work.backward(kernel, times, peak));
            for (phase, cost) in [(Phase::Forward, forward), (Phase::BackwardInput, backward)] {
                self.push("attention", phase, Work::Attention, cost);
            }
            return;
        }
        let s = s * model.keys_per_token();
        let scores = Product { batch, m: queries, n: s, k: qk };
        let products =
            [("scores", scores), ("values", Product { batch, m: queries, n: v, k: s }), ("distances", scores)];
        for (name, product) in products.into_iter().take(if relative { 3 } else { 2 }) {
            let words = [word; 3];
            let rate = self.batched_rate * self.machine.kernels.alignment([product.n, product.k]);
            let (seconds, arithmetic) = self.machine.kernels.product_in_parts(&product, rate, words, 0.0);
            let cost = Cost { flop: product.flop(), bytes: product.bytes(words), seconds, arithmetic };
            self.push(name, Phase::Forward, Work::Attention, cost);
            // Two of the same size backward, one for each operand.
            self.push(name, Phase::BackwardInput, Work::Attention, cost.times(2.0));
        }
        let scores = batch * queries * s * word;
        let dropout = if model.dropout { 2.5 } else { 0.0 };
        let [shifted, back, more] = if relative { [7.0, 5.0, 3.0] } else { [0.0; 3] };
        let kernels = self.machine.stack.attention_kernels as f64 + more;
        self.vector("softmax", Phase::Forward, Work::Attention, (2.0 + dropout + shifted) * scores, kernels);
        self.vector("softmax", Phase::BackwardInput, Work::Attention, (3.0 + dropout + back) * scores, kernels);
    }
}
