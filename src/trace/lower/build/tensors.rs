//! Values become tensors, operands become uses.

use super::*;

impl Builder<'_> {
    /// Rows and columns of a value that nothing else tells: its last size as rows.
    pub(super) fn by_shape(&self, v: usize) -> (u64, u64) {
        let size = self.per_sample(v);
        let last = self
            .program
            .values
            .get(v)
            .and_then(|x| x.shape.last().copied())
            .unwrap_or(1)
            .saturating_mul(self.shards(v))
            .max(1);
        if size.is_multiple_of(last) { (last, size / last) } else { (1, size) }
    }

    /// Rows and columns of what an operand looks at.
    pub(super) fn size_of(&mut self, t: &TensorArg) -> (u64, u64) {
        let placed = self.at_hand(t);
        match self.tensor_of(t) {
            Some(i) => self.tensors.get(i).map_or((1, 1), |x| (x.rows, x.cols)),
            None => (placed.rows, placed.cols),
        }
    }

    /// The value an operand looks into, made an input of the graph if nothing made it.
    pub(super) fn at_hand(&mut self, t: &TensorArg) -> Placed {
        let root = self.parallel.root(t.storage);
        if let Some(p) = self.placed.get(&root) {
            return p.clone();
        }
        // An input as large as what is seen of it; a mask that all samples share is not divided.
        let (rows, cols) = {
            let elements = self.program.values.get(root).map_or(1, |v| v.elements).saturating_mul(self.shards(root));
            let shape = self.program.values.get(root).map(|v| v.shape.clone()).unwrap_or_default();
            let has_batch = shape.iter().any(|s| *s > 0 && s.is_multiple_of(self.batch)) && shape.len() > 2
                || shape.first().is_some_and(|s| *s == self.batch);
            if has_batch && elements.is_multiple_of(self.batch) {
                self.by_shape(root)
            } else {
                let last = shape.last().copied().unwrap_or(1).saturating_mul(self.shards(root)).max(1);
                if elements.is_multiple_of(last) { (last, (elements / last).max(1)) } else { (1, elements.max(1)) }
            }
        };
        self.place(root, rows, cols, None, false)
    }

    /// Makes the tensors of a value.
    pub(super) fn place(
        &mut self,
        value: usize,
        rows: u64,
        cols: u64,
        producer: Option<usize>,
        gradient: bool,
    ) -> Placed {
        let (name, width) =
            self.program.values.get(value).map_or((format!("value{value}"), 1), |v| (v.name.clone(), v.element_bytes));
        let offsets = self.parts.get(&value).cloned().unwrap_or_default();
        let whole = self.program.values.get(value).map_or(1, |v| v.elements);
        let size = self.part_size(value);
        let count = if size > 0 && whole > 0 { whole / size } else { 1 };
        let split =
            !offsets.is_empty() && producer.is_some() && (rows.is_multiple_of(count) || cols.is_multiple_of(count));
        let (r, c) = match (split, rows.is_multiple_of(count.max(1))) {
            (false, _) => (rows, cols),
            (true, true) => (rows / count, cols),
            (true, false) => (rows, cols / count),
        };
        let name = self.unused_name(name);
        let mut tensors = Vec::new();
        let pieces = if split { offsets.len() } else { 1 };
        let read = self.read_later.contains(&value);
        for i in 0..pieces {
            tensors.push(self.tensors.len());
            let name = if split { format!("{name}.{i}") } else { name.clone() };
            let output = producer.is_some() && !read && !gradient;
            let word = self.own_word(width);
            self.tensors.push(Tensor { output, word, ..Tensor::new(name, r.max(1), c.max(1), producer) });
        }
        if !split {
            self.parts.remove(&value);
        }
        let placed = Placed { rows: rows.max(1), cols: cols.max(1), tensors };
        self.placed.insert(value, placed.clone());
        placed
    }

    /// Bytes of an element where these are not the graph's. One word for all was asked for: none are.
    pub(super) fn own_word(&self, width: u64) -> Option<f64> {
        let width = width as f64;
        (self.types && width > 0.0 && width != self.word).then_some(width)
    }

    /// Several results of one call have its name.
    pub(super) fn unused_name(&mut self, name: String) -> String {
        let mut candidate = name.clone();
        let mut count = 1;
        while !self.names.insert(candidate.clone()) {
            count += 1;
            candidate = format!("{name}_{count}");
        }
        candidate
    }

    pub(super) fn part_size(&self, value: usize) -> u64 {
        if !self.parts.contains_key(&value) {
            return 0;
        }
        self.program
            .steps
            .iter()
            .flat_map(|s| crate::trace::ops::reads(&s.call))
            .find(|t| self.parallel.root(t.storage) == value)
            .map_or(0, TensorArg::distinct)
    }

    /// The tensor that an operand is, if it is one as a whole.
    pub(super) fn tensor_of(&self, t: &TensorArg) -> Option<usize> {
        let root = self.parallel.root(t.storage);
        let placed = self.placed.get(&root)?;
        match self.parts.get(&root) {
            Some(offsets) => placed.tensors.get(offsets.iter().position(|o| *o == t.offset)?).copied(),
            None => placed.tensors.first().copied(),
        }
    }

    pub(super) fn read(&mut self, kernel: usize, t: &TensorArg, slots: &[Slot]) {
        let root = self.parallel.root(t.storage);
        if self.is_parameter(root) && slots == [Slot::Data] {
            return;
        }
        self.at_hand(t);
        let value_elements = self.program.values.get(root).map_or(0, |v| v.elements);
        match self.tensor_of(t) {
            Some(i) => {
                let partial = !self.parts.contains_key(&root) && t.distinct() < value_elements;
                self.use_tensor(kernel, i, if partial { &[] } else { slots });
            }
            None => self.read_value(kernel, t.storage),
        }
    }

    /// Reads all of a value.
    pub(super) fn read_value(&mut self, kernel: usize, value: usize) {
        let root = self.parallel.root(value);
        if !self.program.values.get(root).is_some_and(|v| v.float) {
            return;
        }
        if !self.placed.contains_key(&root) {
            let (rows, cols) = self.by_shape(root);
            self.place(root, rows, cols, None, false);
        }
        let tensors = self.placed.get(&root).map(|p| p.tensors.clone()).unwrap_or_default();
        tensors.into_iter().for_each(|i| self.use_tensor(kernel, i, &[Slot::Data]));
    }

    /// Adds a use in the first slot that fits.
    pub(super) fn use_tensor(&mut self, kernel: usize, tensor: usize, slots: &[Slot]) {
        let Some(k) = self.kernels.get(kernel) else { return };
        let Some(t) = self.tensors.get_mut(tensor) else { return };
        let vector = !k.is_gemm();
        let fits =
            slots.iter().find(|s| (vector || **s != Slot::Data) && operand_size(k, **s) == Some((t.rows, t.cols)));
        let rows = k.shape.rows();
        let aligned = !slots.is_empty()
            && vector
            && (t.cols == k.shape.n || t.rows == rows || (k.shape.outer > 1 && t.rows.is_multiple_of(k.shape.outer)));
        let slot = match fits {
            Some(s) => *s,
            None if aligned => Slot::Aligned,
            None => Slot::View,
        };
        let new = Use { kernel, slot };
        if !t.consumers.contains(&new) {
            t.consumers.push(new);
        }
    }

    pub(super) fn kernel(
        &mut self,
        name: String,
        op: Op,
        phase: Phase,
        shape: Shape,
        window: u64,
        flop: Option<f64>,
    ) -> usize {
        self.kernels.push(Kernel {
            name,
            op,
            phase,
            shape: Shape { outer: shape.outer.max(1), m: shape.m.max(1), k: shape.k.max(1), n: shape.n.max(1) },
            window,
            tiled: Axis::N,
            flop,
            word: self.computes_with,
            extra_dram_bytes: 0.0,
            ..Kernel::default()
        });
        self.kernels.len() - 1
    }

    pub(super) fn write(&mut self, kernel: usize, value: usize, size: (u64, u64), gradient: bool) {
        self.place(value, size.0, size.1, Some(kernel), gradient);
    }
}
