//! Convolutions as implicit products, and fused attention.

use super::*;

impl Builder<'_> {
    /// Implicit GEMMs: rows are channels, columns pixels.
    pub(super) fn convolution(&mut self, step: &Step) -> bool {
        let backward = step.call.op.contains("backward");
        let (x_at, w_at) = if backward { (1, 2) } else { (0, 1) };
        let (Some(x), Some(w)) = (step.call.tensor(x_at).cloned(), step.call.tensor(w_at).cloned()) else {
            return false;
        };
        let (Some(channels), Some(images)) = (x.shape.get(1).copied(), x.shape.first().copied()) else { return false };
        let (Some(w0), Some(w1)) = (w.shape.first().copied(), w.shape.get(1).copied()) else { return false };
        if w1 == 0 || images == 0 || !images.is_multiple_of(self.batch) || !channels.is_multiple_of(w1) {
            return false;
        }
        let Some(one) = crate::trace::ops::product::flop(&step.call, &Default::default()) else { return false };
        let mask = |i: usize| match step.call.inputs.get(10).and_then(Arg::list) {
            Some(m) if backward => m.get(i).and_then(Arg::flag).unwrap_or(true),
            _ => true,
        };
        let products = if backward { u64::from(mask(0)) + u64::from(mask(1)) } else { 1 };
        if products == 0 {
            return false;
        }
        let groups = channels / w1;
        let area = product(&w.shape[2..]).max(1);
        let images = images / self.batch;
        // Positions that meet the filter, from the FLOP: 2 positions x weights.
        let positions = one.flop / products / 2 / w.elements().max(1) / self.batch;
        let out_rows = w0 / groups.max(1);
        let (name, phase) = (self.name(step, ""), Self::phase(step));
        if out_rows == 0 || positions == 0 {
            return false;
        }
        let pixels = |t: &TensorArg| product(t.shape.get(2..).unwrap_or_default()).saturating_mul(images).max(1);
        if !backward {
            let Some(out) = step.writes.first().copied() else { return false };
            self.place_image(x.storage, channels, pixels(&x));
            let shape = Shape { outer: groups, m: out_rows, k: w1 * area, n: positions };
            let id = self.kernel(name, Op::GemmWeight, phase, shape, area, None);
            self.own_weight(id, (self.parallel.root(w.storage), w.offset), x.storage);
            self.read(id, &x, &[Slot::Rhs]);
            let channels_out = groups * out_rows;
            let size = (channels_out, self.per_sample(out) / channels_out.max(1));
            self.write(id, out, size, false);
            return true;
        }
        let Some(grad) = step.call.tensor(0).cloned() else { return false };
        let weight = (self.parallel.root(w.storage), w.offset);
        if mask(0)
            && let Some(dx) = step.call.output(0).map(|t| t.storage)
        {
            let shape = Shape { outer: groups, m: w1, k: out_rows * area, n: positions };
            let id = self.kernel(format!("{name}_input"), Op::GemmWeight, phase, shape, area, None);
            self.own_weight(id, weight, grad.storage);
            self.read(id, &grad, &[Slot::Rhs]);
            self.write(id, dx, (channels, pixels(&x)), false);
        }
        if mask(1)
            && let Some(dw) = step.call.output(1).map(|t| t.storage)
        {
            let shape = Shape { outer: groups, m: w1 * area, k: positions, n: out_rows };
            let id = self.kernel(format!("{name}_weight"), Op::Gemm, Phase::BackwardWeight, shape, 1, None);
            if let Some(k) = self.kernels.get_mut(id) {
                k.tiled = Axis::K;
                k.weight_of = self.owner.get(&weight).map(|o| WeightOf { kernel: *o });
            }
            self.read(id, &grad, &[Slot::RhsT]);
            self.read(id, &x, &[Slot::Lhs]);
            self.write(id, dw, (groups * w1 * area, out_rows), true);
        }
        true
    }

    /// An input image has its channels as rows.
    pub(super) fn place_image(&mut self, value: usize, rows: u64, cols: u64) {
        let root = self.parallel.root(value);
        if !self.placed.contains_key(&root) {
            self.place(root, rows, cols, None, false);
        }
    }

    /// Fused attention: the heads are problems side by side.
    pub(super) fn attention(&mut self, step: &Step) -> bool {
        let backward = step.call.op.ends_with("backward");
        let first = usize::from(backward);
        let Some(q) = step.call.tensor(first).cloned() else { return false };
        let tokens_second = !step.call.op.contains("dot_product");
        let [b, x, y, d] = q.shape[..] else { return false };
        let (heads, tokens) = if tokens_second { (y, x) } else { (x, y) };
        if !b.is_multiple_of(self.batch) {
            return false;
        }
        let shards = self.step_shards(step);
        let outer = heads.saturating_mul(b / self.batch).saturating_mul(shards);
        let flop = step.cost.flop.unwrap_or(0) as f64 * shards as f64 / self.batch as f64;
        let phase = Self::phase(step);
        let id =
            self.kernel(self.name(step, ""), Op::Opaque, phase, Shape { outer, m: d, k: 1, n: tokens }, 1, Some(flop));
        for t in crate::trace::ops::reads(&step.call).into_iter().cloned().collect::<Vec<_>>() {
            if self.program.values.get(t.storage).is_some_and(|v| v.float) {
                self.read(id, &t, &[Slot::Data]);
            }
        }
        let mut primary = true;
        for out in step.writes.clone() {
            if !self.program.values.get(out).is_some_and(|v| v.float) || (!primary && !self.read_later.contains(&out)) {
                continue;
            }
            let size = self.per_sample(out);
            let rows = if size.is_multiple_of(outer * d) {
                outer * d
            } else if size.is_multiple_of(outer) && size / outer == tokens {
                outer
            } else {
                1
            };
            self.write(id, out, (rows, size / rows), false);
            primary = false;
        }
        true
    }
}
