//! Sharding strategies of a kernel and the layouts they ask of its tensors.
//!
//! A tensor-parallel group of t chips shares a kernel by splitting one axis of it. What that makes of its output and
//! asks of its operands follows from which axes a tensor's rows and columns are ([`Slot`]).

use super::dfmodel::prices;
use crate::graph::{Axis, CollectiveKind, Kernel, Op, Phase, Slot, Workload};
use crate::system::options::Layouts;

crate::choice! {
    /// How a kernel is shared by the chips of a tensor-parallel group.
    pub enum Strategy ("a sharding strategy") {
        /// Each chip has some of the outer problems (heads).
        Outer = "outer",
        /// Each chip has some rows of the output.
        M = "m",
        /// Each chip contracts over a part of k: the output is a partial sum.
        K = "k",
        /// Each chip has some columns of the output (tokens).
        N = "n",
        /// Every chip computes everything.
        Replicate = "replicate",
    }
}

/// How a tensor lies in a tensor-parallel group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// Whole on every chip (DFModel: RR).
    Replicated,
    /// Rows split (DFModel: SR).
    Rows,
    /// Columns split (DFModel: RS).
    Cols,
    /// Whole on every chip, but the sum over the chips is the tensor.
    Partial,
}

/// The strategies open to a kernel in a group of `t` chips, in a workload with a `backward` pass or without.
///
/// Ours: outer problems are split among the chips where every chip then has as many, or every problem as many chips (which
/// all compute it); where they come out uneven, and anywhere in a workload without a backward pass, all of them may be on every chip, whole
/// or with some of the columns. Of one problem rows, contraction or columns are split, or nothing; axes of size one are not, norms do not split the rows they reduce over, and weight gradients not the tokens they
/// contract over. DFModel's (model.md section 4): [`prices::strategies`].
pub fn strategies(kernel: &Kernel, t: u64, rules: Layouts, backward: bool) -> Vec<Strategy> {
    if t == 1 {
        return vec![Strategy::Replicate];
    }
    if rules == Layouts::Dfmodel {
        return prices::strategies(kernel);
    }
    let splittable = |axis: Axis| kernel.shape.along(axis) > 1;
    let outer = kernel.shape.outer;
    let many = outer > 1;
    let even = many && (outer.is_multiple_of(t) || t.is_multiple_of(outer));
    let together = !(even && backward);
    let rows = !matches!(kernel.op, Op::Norm | Op::Opaque) && splittable(Axis::M);
    let contracted = kernel.is_gemm() && kernel.tiled != Axis::K && splittable(Axis::K);
    let open = [
        (Strategy::Outer, even),
        (Strategy::M, !many && rows),
        (Strategy::K, !many && contracted),
        (Strategy::N, together && kernel.op != Op::Opaque && splittable(Axis::N)),
        (Strategy::Replicate, together),
    ];
    open.into_iter().filter(|(_, open)| *open).map(|(strategy, _)| strategy).collect()
}

/// Why a group cannot share a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unshared<'a> {
    /// Its outer problems cannot be dealt out evenly.
    #[error("{outer} heads ({kernel}) are not divisible by TP = {t}")]
    Outer {
        /// Name of the kernel.
        kernel: &'a str,
        /// Its outer problems.
        outer: u64,
        /// Chips of the group.
        t: u64,
    },
    /// It has no axis of as many parts.
    #[error("kernel {kernel} has no axis of {t} parts")]
    Small {
        /// Name of the kernel.
        kernel: &'a str,
        /// Chips of the group.
        t: u64,
    },
}

/// The first kernel that a tensor-parallel group of `t` chips cannot share; search and checker ask here.
///
/// In our model: outer problems with a trained weight each (experts) that come out uneven; others may be whole on every chip. Under DFModel's rules
/// outer problems must be a multiple of t, unless the workload lets them be cut; heads that several others share may also divide it, then each
/// lies on as many chips as share it; a product of one problem needs an axis, but the tiled one, of t parts.
pub fn unshared(workload: &Workload, t: u64, rules: Layouts) -> Option<Unshared<'_>> {
    if rules == Layouts::Flowspace {
        let trained = |k: &Kernel| k.weight_of.filter(|_| k.phase == Phase::BackwardWeight).map(|w| w.kernel);
        let mut trained = workload.kernels.iter().filter_map(trained).map(|owner| &workload.kernels[owner]);
        let uneven = |outer: u64| !outer.is_multiple_of(t) && !t.is_multiple_of(outer);
        let kernel = trained.find(|k| k.shape.outer > 1 && uneven(k.shape.outer))?;
        return Some(Unshared::Outer { kernel: &kernel.name, outer: kernel.shape.outer, t });
    }
    let shared = |i: usize| {
        let mut readers = workload.tensors.iter().filter(|x| x.producer == Some(i)).flat_map(|x| &x.consumers);
        readers.any(|u| workload.kernels[u.kernel].lhs_shared > 1)
    };
    let uneven = workload.kernels.iter().enumerate().find(|(i, k)| {
        let outer = k.shape.outer;
        let even = outer.is_multiple_of(t) || (t.is_multiple_of(outer) && shared(*i));
        outer > 1 && !k.outer_cut && !even
    });
    if let Some((_, kernel)) = uneven {
        return Some(Unshared::Outer { kernel: &kernel.name, outer: kernel.shape.outer, t });
    }
    let parts = |k: &Kernel, axis: Axis| axis != k.tiled && k.shape.along(axis) >= t;
    let small = workload.kernels.iter().filter(|k| k.is_gemm() && k.shape.outer == 1);
    let small = small.filter(|k| ![Axis::M, Axis::K, Axis::N].iter().any(|axis| parts(k, *axis))).map(|k| &k.name);
    small.map(|kernel| Unshared::Small { kernel, t }).next()
}

/// Layout of a kernel's output.
pub fn produced(strategy: Strategy, rules: Layouts) -> Layout {
    match (strategy, rules) {
        (Strategy::Outer | Strategy::M, _) => Layout::Rows,
        (Strategy::N, _) => Layout::Cols,
        (Strategy::K, Layouts::Flowspace) => Layout::Partial,
        // DFModel reduces at once: the kernel is charged an all-reduce and its output is whole.
        (Strategy::K, Layouts::Dfmodel) | (Strategy::Replicate, _) => Layout::Replicated,
    }
}

/// Layout a kernel asks of the tensor in `slot`. A view is of another shape than the kernel, so it is asked for whole.
pub fn required(kernel: &Kernel, slot: Slot, strategy: Strategy, rules: Layouts) -> Layout {
    match rules {
        _ if slot == Slot::View => Layout::Replicated,
        Layouts::Flowspace => required_flowspace(kernel, slot, strategy),
        Layouts::Dfmodel => prices::required(kernel, slot, strategy),
    }
}

fn required_flowspace(kernel: &Kernel, slot: Slot, strategy: Strategy) -> Layout {
    use Layout::{Cols, Replicated, Rows};
    // The outer problems of a weight GEMM (heads of Q, K, V) read the same operand: for it they are rows of the output.
    let strategy = if strategy == Strategy::Outer && kernel.op == Op::GemmWeight { Strategy::M } else { strategy };
    match (strategy, slot) {
        (Strategy::Replicate, _) | (_, Slot::View) => Replicated,
        (Strategy::N, Slot::Shared) => Cols,
        (_, Slot::Shared) => Replicated,
        // One operand that all problems share (multi-query attention) is whole on every chip.
        (Strategy::Outer, Slot::Lhs | Slot::LhsT | Slot::Reshaped)
            if kernel.lhs_shared > 1 && kernel.lhs_shared >= kernel.shape.outer =>
        {
            Replicated
        }
        (Strategy::Outer, _) => Rows,
        (Strategy::M, Slot::Data | Slot::Lhs | Slot::Reshaped | Slot::Aligned) => Rows,
        (Strategy::M, Slot::LhsT) => Cols,
        (Strategy::M, Slot::Rhs | Slot::RhsT) => Replicated,
        (Strategy::K, Slot::Rhs | Slot::LhsT) => Rows,
        (Strategy::K, Slot::RhsT | Slot::Lhs) => Cols,
        (Strategy::K, Slot::Data | Slot::Reshaped | Slot::Aligned) => Replicated,
        (Strategy::N, Slot::Data | Slot::Rhs | Slot::Reshaped | Slot::Aligned) => Cols,
        (Strategy::N, Slot::RhsT) => Rows,
        (Strategy::N, Slot::Lhs | Slot::LhsT) => Replicated,
    }
}

/// The collective that turns one layout into another; `Ok(None)` costs nothing, `Err(())` is not done.
#[allow(clippy::result_unit_err)] // there is one way to fail and nothing to say about it
pub fn conversion(from: Layout, to: Layout) -> Result<Option<CollectiveKind>, ()> {
    use Layout::{Cols, Partial, Replicated, Rows};
    match (from, to) {
        (Partial, Partial) => Err(()),
        (_, Partial) => Err(()),
        (Replicated, _) => Ok(None),
        (Rows, Rows) | (Cols, Cols) => Ok(None),
        (Partial, Replicated) => Ok(Some(CollectiveKind::AllReduce)),
        (Partial, Rows | Cols) => Ok(Some(CollectiveKind::ReduceScatter)),
        (Rows | Cols, Replicated) => Ok(Some(CollectiveKind::AllGather)),
        (Rows, Cols) | (Cols, Rows) => Ok(Some(CollectiveKind::AllToAll)),
    }
}

/// Whether a backward kernel under `strategy` uses the shards of the weight that its forward kernel made under
/// `owner`. The input gradient multiplies by the transposed weight (its k is the weight's rows), the weight gradient
/// has the weight's input features as rows and its output features as columns, whichever the forward kernel has more of: a product of m
/// output and k input features has a gradient of k x m. For more than one chip: a weight with a gradient is always divided.
pub fn weight_shards_agree(kernel: &Kernel, strategy: Strategy, owner: Strategy) -> bool {
    match (kernel.phase, owner) {
        (Phase::Forward, _) => true,
        // The same product again.
        (Phase::Recompute, _) => strategy == owner,
        // The gradient of a weight that every chip has whole would be made by each of them, or be a sum over their tokens: what replicas do.
        (Phase::BackwardWeight, Strategy::Replicate | Strategy::N) => false,
        (_, Strategy::Replicate) => strategy == Strategy::Replicate,
        // Problems with a weight each (experts) stay where they are.
        (_, Strategy::Outer) if kernel.shape.outer > 1 => strategy == Strategy::Outer,
        (Phase::BackwardInput, Strategy::Outer | Strategy::M) => strategy == Strategy::K,
        (Phase::BackwardInput, Strategy::K) => matches!(strategy, Strategy::M | Strategy::Outer),
        (Phase::BackwardWeight, Strategy::Outer | Strategy::M) => strategy == Strategy::N,
        (Phase::BackwardWeight, Strategy::K) => strategy == Strategy::M,
        // Each chip has its tokens and the whole weight.
        (Phase::BackwardInput, Strategy::N) => strategy == Strategy::N,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::dfmodel_layer::{Pass, tests::gpt3};

    /// Megatron's pairing: column-parallel then row-parallel GEMM ask for no conversion between them.
    #[test]
    fn column_then_row_parallel_need_no_collective_between() {
        let w = gpt3(1024, 16, 64, 1, 8, Pass::Forward);
        let ffn1 = &w.kernels[w.kernel_index("FFN1").unwrap()];
        let made = produced(Strategy::M, Layouts::Flowspace);
        let asked = required(ffn1, Slot::Rhs, Strategy::K, Layouts::Flowspace);
        assert_eq!(conversion(made, asked), Ok(None));
        assert_eq!(
            conversion(produced(Strategy::K, Layouts::Flowspace), Layout::Replicated),
            Ok(Some(CollectiveKind::AllReduce))
        );
    }

    /// Two heads on four chips are on two each; three heads on two chips are not split.
    #[test]
    fn heads_are_split_where_they_come_out_even() {
        let w = gpt3(1024, 2, 512, 1, 8, Pass::Forward);
        let scores = &w.kernels[w.kernel_index("MHA1").unwrap()];
        assert_eq!(scores.shape.outer, 2);
        let open = |t, backward| strategies(scores, t, Layouts::Flowspace, backward);
        assert_eq!(open(4, false), [Strategy::Outer, Strategy::N, Strategy::Replicate]);
        assert_eq!(open(4, true), [Strategy::Outer]);
        assert_eq!(open(3, true), [Strategy::N, Strategy::Replicate]);
        assert_eq!(strategies(scores, 3, Layouts::Dfmodel, false), [Strategy::Outer]);
    }

    #[test]
    fn norms_do_not_split_the_rows_they_reduce() {
        let w = gpt3(1024, 16, 64, 1, 8, Pass::Forward);
        let ln = &w.kernels[w.kernel_index("LN1").unwrap()];
        assert!(!strategies(ln, 8, Layouts::Flowspace, false).contains(&Strategy::M));
        assert!(strategies(ln, 8, Layouts::Flowspace, false).contains(&Strategy::N));
    }
}
