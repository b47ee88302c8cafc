//! High-Performance Linpack: LU factorisation with partial pivoting of an n x n matrix in panels of B columns, right-looking, on a
//! process grid of P rows and Q columns (Petitet et al., HPL 2.3, "Algorithm"). FLOP by hand, with s = n - iB the size of
//! what is left before panel i and r = s - B after it:
//!
//! ```text
//! panel    B^2 (s - B/3)     LU of s x B, by the P chips of one grid column
//! solve    B^2 r             the triangular solve for the B rows of U
//! update   2 r^2 B           trailing matrix -= L U
//! ```
//!
//! Over all panels these sum to 2/3 n^3 exactly (B divides n): sum over s = jB of 2Bs^2 - 2B^2 s + 2/3 B^3.
//!
//! Communication of a panel: the panel itself, s B words, is broadcast along the rows of the grid; pivot rows, B r words, are
//! exchanged along its columns and U is broadcast there. A pivot search is a small all-reduce along a grid column for each of the
//! B columns. The trailing matrix is tensor `C_i`: kernel by kernel it passes through DRAM once a panel, on a chip that holds it
//! it need not.
//!
//! The triangular solve of the last rows (2 n^2 FLOP) is not in the graph.

use super::builder::Builder;
use crate::graph::{Axis, Collective, CollectiveKind, Divided, Op, Phase, Scope, Slot, Spread, Workload};
use crate::spec::{Node, Reader};
use crate::units::Bytes;

crate::choice! {
    /// The word `hpl`.
    pub enum Kind ("a kind of workload") {
        /// LU factorisation.
        Hpl = "hpl",
    }
}

crate::choice! {
    /// Which kernels stand for one panel.
    pub enum Steps ("the kernels of a panel") {
        /// One: the update, with the next panel's factorisation and communication beside it (look-ahead of depth one).
        Lookahead = "lookahead",
        /// Three, one after another: panel (with its broadcast), row swap, update.
        Sequential = "sequential",
        /// One product of (s x s) by (s x B): what DFModel takes for an iteration. It reads and writes s x B alone.
        Gemm = "gemm",
    }
}

crate::spec! {
    /// High-Performance Linpack.
    pub struct HplSpec ("an HPL run", check: check) {
        /// The word `hpl`.
        kind: Kind,
        /// Name for rows and titles.
        name: String,
        /// Where the sizes come from.
        source: String,
        /// Order of the matrix.
        n: u64,
        /// Columns of a panel.
        block: u64,
        /// Panels computed, from the first on; all of them if left out.
        iterations: Option<u64>,
        /// Which kernels stand for one panel.
        steps: Steps = Steps::Lookahead,
        /// Bytes of one element.
        word: Bytes = Bytes(8.0),
    }
}

/// Panels of one run: a graph of more kernels is refused.
const MAX_PANELS: u64 = 20_000;

fn check(spec: &HplSpec, node: &Node, reader: &mut Reader) {
    super::spec::check_batches(1, 1, spec.word, node, reader);
    super::spec::check_sizes(&[("n", spec.n, 1 << 31), ("block", spec.block, spec.n)], node, reader);
    let panels = spec.n.div_ceil(spec.block);
    let (field, found) = spec.iterations.map_or(("block", panels), |asked| ("iterations", asked));
    let most = if spec.iterations.is_some() { panels.min(MAX_PANELS) } else { MAX_PANELS };
    if found > most {
        let at = node.get(field).unwrap_or(node);
        reader.within(field, |r| r.problem(at, format!("expected at most {most} panels, found {found}")));
    }
}

const WHOLE_GRID: Spread = Spread { rows: Some(Axis::M), cols: Some(Axis::N) };

impl HplSpec {
    /// The graph: a chain of panels.
    pub fn build(&self) -> Workload {
        let panels = self.iterations.unwrap_or(self.n.div_ceil(self.block));
        let mut b = Builder::default();
        let mut left = Vec::new();
        for i in 0..panels {
            let s = self.n - i * self.block;
            left = match self.steps {
                Steps::Gemm => self.gemm(&mut b, i, s, &left),
                Steps::Lookahead => self.lookahead(&mut b, i, s, left),
                Steps::Sequential => self.sequential(&mut b, i, s, left),
            };
        }
        for t in left {
            b.tensors[t].output = true;
        }
        Workload {
            name: self.name.clone(),
            kernels: b.kernels,
            tensors: b.tensors,
            repeat: 1,
            blocks: Vec::new(),
            word_bytes: self.word.0,
            global_batch: 1,
            micro_batch: 1,
            training: false,
            held_bytes: self.words(self.n, self.n),
            divided: Divided::Free,
            tokens_per_sample: None,
        }
    }

    fn words(&self, rows: u64, cols: u64) -> f64 {
        rows as f64 * cols as f64 * self.word.0
    }

    fn panel_broadcast(&self, s: u64) -> Collective {
        Collective {
            kind: CollectiveKind::Broadcast,
            bytes: self.words(s, self.block.min(s)),
            scope: Scope::GridRow,
            times: 1,
        }
    }

    /// DFModel's iteration (model.md section 5, HPL): m = s among the rows, k = s among the columns, n = B.
    fn gemm(&self, b: &mut Builder, i: u64, s: u64, before: &[usize]) -> Vec<usize> {
        let mut inputs: Vec<(usize, Slot)> = before.iter().map(|t| (*t, Slot::View)).collect();
        inputs.extend(inputs.is_empty().then(|| (Self::part(b, "C_0".into(), s, self.block.min(s), None), Slot::View)));
        let k = b.add(format!("Iteration_{}", i + 1), Op::Gemm, Phase::Forward, (1, s, s, self.block.min(s)), &inputs);
        b.kernels[k].spread = Some(Spread { rows: Some(Axis::M), cols: Some(Axis::K) });
        let broadcast = self.panel_broadcast(s);
        let sent = Collective { kind: CollectiveKind::PointToPoint, scope: Scope::GridColumn, ..broadcast.clone() };
        b.kernels[k].collectives = vec![broadcast, sent];
        vec![b.tensors.len() - 1]
    }

    /// Row exchange and broadcast of U, B x r, along the grid's columns.
    fn swap(&self, width: u64, r: u64) -> [Collective; 2] {
        let of = |kind| Collective { kind, bytes: self.words(width, r), scope: Scope::GridColumn, times: 1 };
        [of(CollectiveKind::PointToPoint), of(CollectiveKind::Broadcast)]
    }

    /// One pivot search for each column of a panel: the largest element and two rows of the panel, each grid column.
    fn pivots(&self, width: u64) -> Collective {
        Collective {
            kind: CollectiveKind::AllReduce,
            bytes: self.words(2, width),
            scope: Scope::GridColumn,
            times: width,
        }
    }

    /// A part of the matrix: it lies in DRAM from the beginning.
    fn part(b: &mut Builder, name: String, rows: u64, cols: u64, producer: Option<usize>) -> usize {
        let t = b.tensor(&name, rows, cols, producer);
        b.tensors[t].in_place = true;
        t
    }

    fn lookahead(&self, b: &mut Builder, i: u64, s: u64, mut before: Vec<usize>) -> Vec<usize> {
        let width = self.block.min(s);
        let r = s - width;
        // Of the last panel the block itself is left, and shared like all before it.
        let edge = if r > 0 { r } else { width };
        if before.is_empty() {
            before = vec![Self::part(b, "C_0".into(), s, s, None)];
        }
        let k = b.bare(format!("LU_{}", i + 1), Op::Gemm, Phase::Forward, (1, edge, width, edge));
        for t in before {
            b.read(k, t, Slot::View);
        }
        b.kernels[k].spread = Some(WHOLE_GRID);
        // The grid's columns take turns with the panels, so that panel work counts as shared by all of them.
        b.kernels[k].flop = Some(panel_flop(s, width) + solve_flop(r, width) + update_flop(r, width));
        b.kernels[k].collectives = vec![self.panel_broadcast(s), self.pivots(width)];
        b.kernels[k].collectives.extend(self.swap(width, r));
        if r > 0 {
            // What the panel leaves for good: L, and U beside it.
            let factors = Self::part(b, format!("LU_{}.factors", i + 1), s + r, width, Some(k));
            b.tensors[factors].output = true;
        }
        vec![Self::part(b, format!("C_{}", i + 1), edge, edge, Some(k))]
    }

    /// `before`: the columns of this panel, and the columns right of it if there are any.
    fn sequential(&self, b: &mut Builder, i: u64, s: u64, mut before: Vec<usize>) -> Vec<usize> {
        let width = self.block.min(s);
        let r = s - width;
        if before.is_empty() {
            before.push(Self::part(b, "C_0.panel".into(), s, width, None));
            if r > 0 {
                before.push(Self::part(b, "C_0.right".into(), s, r, None));
            }
        }
        let panel = b.bare(format!("PANEL_{}", i + 1), Op::Gemm, Phase::Forward, (1, s, width, width));
        // Rows of the panel lie on the grid's rows; the other columns of the grid wait.
        b.kernels[panel].spread = Some(Spread { rows: Some(Axis::M), cols: None });
        b.kernels[panel].flop = Some(panel_flop(s, width));
        b.kernels[panel].collectives = vec![self.panel_broadcast(s), self.pivots(width)];
        b.read(panel, before[0], Slot::View);
        let l = Self::part(b, format!("L_{}", i + 1), s, width, Some(panel));
        b.tensors[l].output = true;
        let Some(right) = before.get(1).copied() else { return vec![l] };

        let swap = b.bare(format!("SWAP_{}", i + 1), Op::Opaque, Phase::Forward, (1, width, 1, r));
        b.kernels[swap].spread = Some(Spread { rows: None, cols: Some(Axis::N) });
        b.kernels[swap].flop = Some(solve_flop(r, width));
        b.kernels[swap].collectives = self.swap(width, r).to_vec();
        b.read(swap, l, Slot::View);
        let u = Self::part(b, format!("U_{}", i + 1), width, r, Some(swap));
        b.tensors[u].output = true;

        let update = b.bare(format!("UPDATE_{}", i + 1), Op::Gemm, Phase::Forward, (1, r, width, r));
        b.kernels[update].spread = Some(WHOLE_GRID);
        b.kernels[update].flop = Some(update_flop(r, width));
        for tensor in [right, l, u] {
            b.read(update, tensor, Slot::View);
        }
        let next = self.block.min(r);
        let mut left = vec![Self::part(b, format!("C_{}.panel", i + 1), r, next, Some(update))];
        if r > next {
            left.push(Self::part(b, format!("C_{}.right", i + 1), r, r - next, Some(update)));
        }
        left
    }
}

/// LU of an s x B panel.
fn panel_flop(s: u64, width: u64) -> f64 {
    let (s, b) = (s as f64, width as f64);
    b * b * (s - b / 3.0)
}

/// Triangular solve with B x B on r columns.
fn solve_flop(r: u64, width: u64) -> f64 {
    width as f64 * width as f64 * r as f64
}

/// Product of r x B and B x r.
fn update_flop(r: u64, width: u64) -> f64 {
    2.0 * r as f64 * r as f64 * width as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(n: u64, block: u64, steps: Steps) -> HplSpec {
        HplSpec {
            kind: Kind::Hpl,
            name: "hpl".into(),
            source: "assumed: test".into(),
            n,
            block,
            iterations: None,
            steps,
            word: Bytes(8.0),
        }
    }

    /// All panels together: 2/3 n^3, with and without look-ahead, also where B does not divide n (the last panel is narrower:
    /// both sides are sums of the same polynomial, so they still agree).
    #[test]
    fn flop_is_two_thirds_n_cubed() {
        for (n, block) in [(4096u64, 128u64), (1000, 100), (1000, 96)] {
            for steps in [Steps::Lookahead, Steps::Sequential] {
                let flop = spec(n, block, steps).build().flop_per_iteration();
                let closed = 2.0 / 3.0 * (n as f64).powi(3);
                assert!((flop / closed - 1.0).abs() < 1e-12, "{n} {block} {steps}: {flop} {closed}");
            }
        }
    }

    /// By hand, n = 1000, B = 100, a grid of 4 x 5: the first update has ceil(900/4) x ceil(900/5) = 225 x 180 elements; the
    /// broadcast of the 1000 x 100 panel moves a quarter of it in each row, the U of 100 x 900 a fifth in each column.
    #[test]
    fn shares_of_a_grid_by_hand() {
        let share = spec(1000, 100, Steps::Sequential).build().on_grid(4, 5);
        let update = &share.kernels[share.kernel_index("UPDATE_1").unwrap()];
        assert_eq!((update.shape.m, update.shape.k, update.shape.n), (225, 100, 180));
        assert!((update.flop() / (2.0 * 225.0 * 180.0 * 100.0) - 1.0).abs() < 1e-12);
        let panel = &share.kernels[share.kernel_index("PANEL_1").unwrap()];
        assert_eq!((panel.shape.m, panel.shape.n), (250, 100));
        assert_eq!(panel.collectives[0].bytes, 1000.0 * 100.0 * 8.0 / 4.0);
        let swap = &share.kernels[share.kernel_index("SWAP_1").unwrap()];
        assert_eq!(swap.collectives[0].bytes, 100.0 * 900.0 * 8.0 / 5.0);
        let right = share.tensors.iter().find(|t| t.name == "C_1.right").unwrap();
        assert_eq!((right.rows, right.cols), (225, 160));
    }

    #[test]
    fn graphs_are_accepted() {
        for steps in Steps::ALL {
            let workload = spec(1000, 96, *steps).build().checked();
            assert!(workload.is_ok(), "{steps}: {workload:?}");
        }
    }
}
