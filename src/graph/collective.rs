//! Collectives that a kernel makes by itself: which, of how many bytes, among which chips. Their times: `model::collective`.

use serde::Serialize;

crate::choice! {
    /// A collective operation among the chips of a group.
    pub enum CollectiveKind ("a collective") {
        /// Every rank ends with the sum of all.
        AllReduce = "all_reduce",
        /// Every rank ends with the concatenation of all.
        AllGather = "all_gather",
        /// Every rank ends with its part of the sum.
        ReduceScatter = "reduce_scatter",
        /// Every rank sends a different part to every other.
        AllToAll = "all_to_all",
        /// One rank sends to another.
        PointToPoint = "point_to_point",
        /// One rank sends the same to every other.
        Broadcast = "broadcast",
    }
}

crate::choice! {
    /// The chips among which a kernel makes a collective of its own.
    pub enum Scope ("a scope of a collective") {
        /// The tensor-parallel group.
        Tensor = "tensor",
        /// The data-parallel group: chips that hold the same shard of the weights.
        Data = "data",
        /// Every chip of the system (of a stage, if there are several).
        All = "all",
        /// One row of the process grid.
        GridRow = "grid_row",
        /// One column of the process grid.
        GridColumn = "grid_column",
    }
}

/// A collective that a kernel makes by itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Collective {
    /// Which.
    pub kind: CollectiveKind,
    /// Bytes of the whole tensor of one sample: for a row or column of the process grid, of the whole matrix panel, of which each
    /// row (column) moves its share.
    pub bytes: f64,
    /// Among which chips.
    pub scope: Scope,
    /// How many times it is made, one after another (the pivot searches of a panel).
    pub times: u64,
}
