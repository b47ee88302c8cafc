//! Matrix products: which operand is streamed, which is a weight, and whose gradient a product of two activations is.

use super::*;

impl Builder<'_> {
    /// mm, addmm, linear, bmm, baddbmm.
    pub(super) fn product(&mut self, index: usize, step: &Step) -> bool {
        let operands: &[usize] = match step.call.op.as_str() {
            "mm" | "_scaled_mm" | "_int_mm" | "bmm" | "matmul" | "linear" | "mkldnn_linear" => &[0, 1],
            "addmm" | "baddbmm" | "_addmm_activation" => &[1, 2],
            _ => return false,
        };
        let (Some(a), Some(b)) = (step.call.tensor(operands[0]).cloned(), step.call.tensor(operands[1]).cloned())
        else {
            return false;
        };
        let Some(out) = step.writes.first().copied() else { return false };
        let (mut outer, mut p, mut k, mut n) = match (a.shape.as_slice(), b.shape.as_slice()) {
            ([o, p, k], [_, _, n]) => (*o, *p, *k, *n),
            ([p, k], [_, n]) if !step.call.op.contains("linear") => (1, *p, *k, *n),
            (x, [n, k]) if step.call.op.contains("linear") => (1, product(x) / (*k).max(1), *k, *n),
            (x, [k, n]) if step.call.op == "matmul" => (1, product(x) / (*k).max(1), *k, *n),
            _ => return false,
        };
        let (va, vb) = (self.parallel.root(a.storage), self.parallel.root(b.storage));
        let (wa, wb) = (self.is_parameter(va), self.is_parameter(vb));
        let batched = a.shape.len() == 3 && b.shape.len() == 3;
        let tp = self.parallel.tp;
        let phase = Self::phase(step);
        let name = self.name(step, "");
        let extra: Vec<usize> = if operands[0] == 1 {
            crate::trace::ops::reads(&step.call)
                .iter()
                .map(|t| t.storage)
                .filter(|v| *v != a.storage && *v != b.storage && !self.is_parameter(*v))
                .collect()
        } else {
            Vec::new()
        };
        if batched {
            outer = outer.saturating_mul(self.shards(va).max(self.shards(vb)));
            if outer.is_multiple_of(self.batch) {
                outer /= self.batch;
            }
            // The product may as well be written transposed (q^T dS is dK^T): the way that streams what lies along the columns.
            let (size_a, size_b) = (self.size_of(&a), self.size_of(&b));
            let fit = |(rows, cols): (u64, u64), k: u64, n: u64| {
                if (rows, cols) == (outer * k, n) { 0 } else { 1 + u8::from((cols, rows) != (k, outer * n)) }
            };
            let swapped = fit(size_b, k, n) < fit(size_a, k, p);
            let (m, cols, stream, still) = if swapped { (p, n, &b, &a) } else { (n, p, &a, &b) };
            let id = self.kernel(name, Op::Gemm, phase, Shape { outer, m, k, n: cols }, 1, None);
            self.read(id, stream, &[Slot::Rhs, Slot::RhsT]);
            self.read(id, still, &[Slot::Lhs, Slot::LhsT]);
            extra.iter().for_each(|v| self.read_value(id, *v));
            self.write(id, out, (outer * m, cols), false);
            return true;
        }
        if wa || wb {
            if self.parallel.row_parallel.contains(&index) {
                k = k.saturating_mul(tp);
            } else if self.shards(out) > 1 {
                if wb { n = n.saturating_mul(tp) } else { p = p.saturating_mul(tp) }
            }
            // The weight's rows are the output's rows. `mm(w, x)` has them in front.
            let (weight, stream, m, cols) = if wb { ((vb, b.offset), &a, n, p) } else { ((va, a.offset), &b, p, n) };
            let cols = if cols.is_multiple_of(self.batch) { cols / self.batch } else { cols };
            let id = self.kernel(name, Op::GemmWeight, phase, Shape { outer: 1, m, k, n: cols }, 1, None);
            self.own_weight(id, weight, stream.storage);
            self.read(id, stream, &[Slot::Rhs, Slot::RhsT]);
            extra.iter().for_each(|v| self.read_value(id, *v));
            self.write(id, out, (m, cols), false);
            return true;
        }
        // Two activations: over the tokens it is the gradient of a weight.
        p = p.saturating_mul(self.shards(va));
        n = n.saturating_mul(self.shards(vb));
        let gradient = (phase != Phase::Forward).then(|| self.gradient_of(p, n, va, vb)).flatten();
        if let Some((owner, swapped)) = gradient {
            let k = if k.is_multiple_of(self.batch) { k / self.batch } else { k };
            // Rows are the weight's input features, columns its output features.
            let (m, cols) = if swapped { (p, n) } else { (n, p) };
            let id = self.kernel(name, Op::Gemm, Phase::BackwardWeight, Shape { outer: 1, m, k, n: cols }, 1, None);
            if let Some(kernel) = self.kernels.get_mut(id) {
                kernel.tiled = Axis::K;
                kernel.weight_of = Some(WeightOf { kernel: owner });
            }
            let (stream, still) = if swapped { (&b, &a) } else { (&a, &b) };
            self.read(id, stream, &[Slot::RhsT, Slot::Rhs]);
            self.read(id, still, &[Slot::Lhs, Slot::LhsT]);
            self.write(id, out, (m, cols), true);
            return true;
        }
        let p = if p.is_multiple_of(self.batch) { p / self.batch } else { p };
        let id = self.kernel(name, Op::Gemm, phase, Shape { outer: 1, m: n, k, n: p }, 1, None);
        self.read(id, &a, &[Slot::Rhs, Slot::RhsT]);
        self.read(id, &b, &[Slot::Lhs, Slot::LhsT]);
        extra.iter().for_each(|v| self.read_value(id, *v));
        self.write(id, out, (n, p), false);
        true
    }

    /// Notes whose weight a kernel uses: its own, or that of the forward kernel that has it.
    pub(super) fn own_weight(&mut self, kernel: usize, weight: (usize, u64), stream: usize) {
        let forward = self.kernels.get(kernel).is_some_and(|k| k.phase == Phase::Forward);
        if forward {
            self.owner.entry(weight).or_insert(kernel);
            self.owned.insert(weight.0);
            self.open_gradients.push((kernel, self.parallel.root(stream)));
        } else if let (Some(owner), Some(k)) = (self.owner.get(&weight), self.kernels.get_mut(kernel)) {
            k.weight_of = Some(WeightOf { kernel: *owner });
        }
    }

    /// The forward kernel whose weight's gradient a product of `p` rows and `n` columns (as PyTorch has them) is, and
    /// whether the product is the other way round (input features in front).
    pub(super) fn gradient_of(&mut self, p: u64, n: u64, a: usize, b: usize) -> Option<(usize, bool)> {
        let at = self.open_gradients.iter().rposition(|(kernel, stream)| {
            let Some(s) = self.kernels.get(*kernel).map(|k| k.shape) else { return false };
            (*stream == b && s.k == n && s.rows() == p) || (*stream == a && s.k == p && s.rows() == n)
        })?;
        let (kernel, stream) = self.open_gradients.remove(at);
        Some((kernel, stream == a && stream != b))
    }
}
