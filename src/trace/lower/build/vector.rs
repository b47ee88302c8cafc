//! Everything that is no product: one kernel a call, its rows and columns those of its largest operand.

use super::*;
use crate::trace::ops::looked_up_bytes;

impl Builder<'_> {
    /// Everything that is no product: elementwise, norms, reductions, copies, and what is known by FLOP and bytes only.
    pub(super) fn vector(&mut self, step: &Step) {
        // Rows of a table that was there before the step: it is no tensor of the graph, only what is looked up is moved.
        let looked_up = looked_up_bytes(&step.call);
        let table = looked_up.and(step.call.tensor(0)).map(|t| t.storage).filter(|v| {
            self.program.values.get(self.parallel.root(*v)).is_some_and(|x| !matches!(x.origin, Origin::Made(_)))
        });
        let floats: Vec<TensorArg> = crate::trace::ops::reads(&step.call)
            .into_iter()
            .filter(|t| {
                t.element == crate::trace::ops::Element::Float
                    && !self.is_parameter(self.parallel.root(t.storage))
                    && Some(t.storage) != table
            })
            .cloned()
            .collect();
        let Some(out) = step.writes.iter().copied().find(|w| self.program.values.get(*w).is_some_and(|v| v.float))
        else {
            return;
        };
        let main = floats
            .iter()
            .max_by_key(|t| (t.elements(), self.placed.contains_key(&self.parallel.root(t.storage))))
            .cloned();
        let main_size = main.as_ref().map(|t| self.size_of(t));
        let out_elements = self.per_sample(out);
        let class = step.cost.class;
        let inward = matches!(class, Class::Norm | Class::Softmax | Class::Reduction) && main_size.is_some();
        let size = match main_size {
            Some(s) if inward => s,
            Some((rows, cols)) if rows * cols == out_elements => (rows, cols),
            Some((_, cols)) if class == Class::Copy && out_elements.is_multiple_of(cols) => (out_elements / cols, cols),
            Some((rows, _)) if out_elements.is_multiple_of(rows) => (rows, out_elements / rows),
            Some((_, cols)) if out_elements.is_multiple_of(cols) => (out_elements / cols, cols),
            _ => self.by_shape(out),
        };
        let (rows, cols) = size;
        let (op, shape) = match class {
            Class::Norm | Class::Softmax => {
                let along = normalised(step, main.as_ref());
                // Batch norm reduces over pixels and samples, not over the channels: as elementwise work it splits by channels.
                let batch_norm = step.call.op.contains("batch_norm");
                match along {
                    Some(d) if !batch_norm && d > 0 && rows.is_multiple_of(d) => {
                        (Op::Norm, Shape { outer: rows / d, m: d, k: 1, n: cols })
                    }
                    _ => (Op::Elementwise, Shape { outer: 1, m: rows, k: 1, n: cols }),
                }
            }
            Class::Elementwise | Class::Copy | Class::Generated | Class::Reduction | Class::Pool | Class::Composite => {
                (Op::Elementwise, Shape { outer: 1, m: rows, k: 1, n: cols })
            }
            _ => (Op::Opaque, Shape { outer: 1, m: rows, k: 1, n: cols }),
        };
        let flop = step.cost.flop.unwrap_or(0) as f64 * self.step_shards(step) as f64 / self.batch as f64;
        let stated = (op == Op::Opaque || flop != rows as f64 * cols as f64).then_some(flop);
        let id = self.kernel(self.name(step, ""), op, Self::phase(step), shape, 1, stated);
        if let (Some(_), Some(moved), Some(k)) = (table, looked_up, self.kernels.get_mut(id)) {
            k.extra_dram_bytes = moved as f64 / self.batch as f64;
        }
        // Indices and masks.
        let integers = crate::trace::ops::reads(&step.call).into_iter().filter(|t| {
            matches!(t.element, crate::trace::ops::Element::Int | crate::trace::ops::Element::Bool) && t.elements() > 1
        });
        for t in integers.cloned().collect::<Vec<_>>() {
            self.read(id, &t, &[]);
        }
        for t in &floats {
            self.read(id, t, &[Slot::Data]);
        }
        for before in step.reads.clone() {
            // What a partial write keeps.
            if step.writes.iter().any(|w| self.program.values.get(*w).is_some_and(|v| v.before == Some(before))) {
                self.read_value(id, before);
            }
        }
        let mut primary = true;
        for w in step.writes.clone() {
            let Some(value) = self.program.values.get(w).filter(|v| v.float) else { continue };
            if !primary && !self.read_later.contains(&w) {
                self.left_out.unread_bytes =
                    self.left_out.unread_bytes.saturating_add(value.elements.saturating_mul(value.element_bytes));
                continue;
            }
            let elements = value.elements.saturating_mul(self.shards(w));
            let size = if self.per_sample(w) == rows * cols {
                (rows, cols)
            } else if elements == rows {
                (rows, 1)
            } else if elements == cols * self.batch {
                (1, cols)
            } else if self.per_sample(w).is_multiple_of(rows) {
                (rows, self.per_sample(w) / rows)
            } else if self.per_sample(w).is_multiple_of(cols) {
                (self.per_sample(w) / cols, cols)
            } else {
                self.by_shape(w)
            };
            self.write(id, w, size, false);
            primary = false;
        }
    }
}

/// How many elements a norm or softmax reduces over.
fn normalised(step: &Step, main: Option<&TensorArg>) -> Option<u64> {
    let main = main?;
    let list = |i: usize| {
        step.call
            .inputs
            .get(i)
            .and_then(Arg::list)
            .map(|l| l.iter().filter_map(Arg::number).fold(1u64, |n, x| n.saturating_mul(x.max(0.0) as u64)))
    };
    match step.call.op.as_str() {
        "native_layer_norm" | "_fused_rms_norm" => list(1),
        "native_layer_norm_backward" => list(2),
        "_fused_rms_norm_backward" => list(2),
        op if op.contains("softmax") => {
            let at = if op.contains("backward") { 2 } else { 1 };
            let dims = main.shape.len() as i64;
            match step.call.inputs.get(at) {
                Some(Arg::Int(d)) => {
                    let d = if *d < 0 { *d + dims } else { *d };
                    usize::try_from(d).ok().and_then(|d| main.shape.get(d)).copied()
                }
                _ => Some(main.last()),
            }
        }
        op if op.contains("group_norm") => None,
        _ => Some(main.last()),
    }
}
