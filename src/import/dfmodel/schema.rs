//! The generations of DFModel's files, and the schema of each (`proto/dfmodel*.proto`).

use prost_reflect::{DescriptorPool, MessageDescriptor};
use std::sync::OnceLock;

crate::choice! {
    /// A generation of DFModel's files: which schema they follow, and with it which formulas were in force (model.md,
    /// section 2). In order of age.
    pub enum Generation ("a generation of DFModel") {
        /// One kind of kernel message, the topology an enum (`topo: TORUS_2D`), settings in `training`.
        Batch = "batch",
        /// Topologies named after machines (`torus_2d`, `dgx_1_2d`), settings in `training`.
        Torus = "torus",
        /// Topologies named after their dimensions (`r_r`), a transformer's sizes directly in `training`.
        Flat = "flat",
        /// `training` with one of `llm`, `dlrm`, `hpl`, `other`.
        Variant = "variant",
        /// The same, numbered anew, with `word`.
        Training = "training",
        /// The last with `training`: dimensions say what they serve, `perfect_overlap`, `gurobi`; formulas of the second generation.
        Parallel = "parallel",
        /// Settings in `miscellany`; an all-reduce is counted twice.
        Miscellany = "miscellany",
        /// Settings in `execution`, with `perfect_overlap`.
        PerfectOverlap = "perfect-overlap",
        /// Settings in `execution`, with `overlap`; the newest.
        Overlap = "overlap",
    }
}

impl Generation {
    /// Name of the message that a whole file of it is.
    pub fn message_name(self) -> &'static str {
        match self {
            Self::Batch => "flowspace.dfmodel.training.DSE_batch",
            Self::Torus => "flowspace.dfmodel.training.DSE_torus",
            Self::Flat => "flowspace.dfmodel.training.DSE_flat",
            Self::Variant => "flowspace.dfmodel.training.DSE_variant",
            Self::Training => "flowspace.dfmodel.training.DSE_training",
            Self::Parallel => "flowspace.dfmodel.training.DSE_parallel",
            Self::Miscellany => "flowspace.dfmodel.execution.DSE_miscellany",
            Self::PerfectOverlap => "flowspace.dfmodel.execution.DSE_perfect_overlap",
            Self::Overlap => "flowspace.dfmodel.execution.DSE_overlap",
        }
    }

    /// Whether it is of the first kind: other formulas, no prices and powers of chips.
    pub fn is_first(self) -> bool {
        self <= Self::Training
    }

    /// The field that holds its settings.
    pub fn settings(self) -> &'static str {
        match self {
            Self::Miscellany => "miscellany",
            g if g <= Self::Parallel => "training",
            _ => "execution",
        }
    }

    /// The message that a whole file of it is; none only if the build lost its descriptors.
    pub fn descriptor(self) -> Option<MessageDescriptor> {
        pool()?.get_message_by_name(self.message_name())
    }
}

/// The descriptors of every schema, as `scripts/schemas` writes them.
fn pool() -> Option<&'static DescriptorPool> {
    static POOL: OnceLock<Option<DescriptorPool>> = OnceLock::new();
    POOL.get_or_init(|| {
        DescriptorPool::decode(include_bytes!("../../../proto/generated/descriptors.bin").as_ref()).ok()
    })
    .as_ref()
}
