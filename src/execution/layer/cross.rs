//! Attention of a decoder to what an encoder beside it makes of the source (Vaswani et al. 2017, section 3.2.3).

use super::{Kernels, Phase, Work};

impl Kernels<'_> {
    /// What a decoder's layer has beside an encoder's, over all layers: queries of its tokens, keys and values of the source's, the core, the output, a norm and
    /// the sum of a branch.
    pub(super) fn cross_attention(&mut self) {
        let crossing = self.model.crossing();
        if crossing == 0.0 {
            return;
        }
        let before = self.list.len();
        let (model, tokens, h, t) = (self.model, self.tokens(), self.model.hidden as f64, self.t());
        let (a, qk, v) = (model.heads as f64, model.query_width() as f64, model.value_width() as f64);
        let kv = model.key_value_heads(self.division.tp) * (qk + v);
        self.weight("cross_query", 1.0, tokens, a * qk / t, h);
        self.weight("cross_key_value", 1.0, tokens, kv, h);
        self.weight("cross_out", 1.0, tokens, h, a * v / t);
        self.attention_core(model.seq as f64, 0.0);
        let (stack, (_, whole)) = (&self.machine.stack, self.hidden());
        let mask = if model.dropout { 0.5 } else { 0.0 };
        let reordered =
            2.0 * (a * (qk + v) + model.kv_heads() as f64 * (qk + v)) * tokens * model.types.activations.bytes() / t;
        let (forward, backward) = (stack.elementwise * (5.0 + mask) * whole, stack.elementwise * 6.0 * whole);
        // Of a layer's vector kernels those of one of its two branches.
        let kernels = [stack.vector_kernels_forward, stack.vector_kernels_backward].map(|n| n as f64 / 2.0);
        self.vector("cross_vector", Phase::Forward, Work::Vector, forward + reordered, kernels[0]);
        self.vector("cross_vector", Phase::BackwardInput, Work::Vector, backward + reordered, kernels[1]);
        self.as_a_share(before, crossing);
    }
}
