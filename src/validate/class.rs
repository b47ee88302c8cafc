//! Classes of measurements: those that are judged together.

use super::accelerators::known;
use super::coverage::Work;
use super::metric::Metric;
use super::point::Task;
use super::row::{Origin, Row};
use crate::system::Style;

crate::choice! {
    /// A class of measurements.
    pub enum Class ("a class of measurements") {
        /// Narayanan et al. 2021, table 1: Megatron-LM, 1.7 billion to a trillion parameters on 32 to 3,072 A100.
        MegatronSc21 = "megatron-sc21",
        /// Korthikanti et al. 2022, table 5: full against selective recomputation with sequence parallelism.
        Korthikanti = "korthikanti",
        /// vTrain's iterations on 64 to 512 A100.
        VtrainMultiNode = "vtrain-multi-node",
        /// vTrain's iterations within one node of A100.
        VtrainSingleNode = "vtrain-single-node",
        /// Other published training runs.
        TrainingPublished = "training-published",
        /// Inference and single kernels.
        InferenceKernels = "inference-kernels",
        /// Attention in one kernel, by itself.
        AttentionKernels = "attention-kernels",
        /// Matrix products by themselves.
        Products = "products",
        /// Training on dataflow chips.
        Dataflow = "dataflow-training",
        /// Largest memory that chips held.
        PeakMemory = "peak-memory",
        /// Memory that papers print.
        Memory = "memory",
        /// Runs published to fit the memory, or not to.
        Fit = "fit",
        /// LU factorisation on large machines.
        Hpl = "hpl",
        /// Collectives by themselves.
        Collectives = "collectives",
        /// What belongs to none of these.
        Other = "other",
    }
}

impl Class {
    /// The kind of work of its rows; `None` for kernels, memory and what is no model's.
    pub fn work(self) -> Option<Work> {
        match self {
            Self::MegatronSc21
            | Self::Korthikanti
            | Self::VtrainMultiNode
            | Self::VtrainSingleNode
            | Self::TrainingPublished
            | Self::Dataflow => Some(Work::Training),
            Self::InferenceKernels => Some(Work::Inference),
            _ => None,
        }
    }

    /// The class of a row.
    pub fn of(row: &Row, task: &Task) -> Self {
        let multi = row.chips.is_some_and(|chips| chips > 8);
        match (row.origin, &row.metric, task) {
            (Origin::Vtrain, ..) if multi => Self::VtrainMultiNode,
            (Origin::Vtrain, ..) => Self::VtrainSingleNode,
            (_, Metric::Fits, _) => Self::Fit,
            (_, Metric::PeakMemory, _) => Self::PeakMemory,
            (.., Task::Memory) => Self::Memory,
            (.., Task::Hpl) => Self::Hpl,
            (.., Task::AllReduce { .. } | Task::Gather { .. } | Task::AllToAll { .. })
            | (_, Metric::AllReduceBus, _) => Self::Collectives,
            (.., Task::Matmul { .. } | Task::BestMatmul { .. }) => Self::Products,
            (.., Task::Inference { .. } | Task::LayerKernel { .. }) => Self::InferenceKernels,
            (.., Task::Attention(_)) => Self::AttentionKernels,
            (.., Task::Other { .. }) if row.workload.starts_with("attention ") => Self::AttentionKernels,
            (.., Task::Other { .. }) if row.workload.to_ascii_lowercase().starts_with("matmul") => Self::Products,
            (.., Task::Other { .. }) if row.workload.to_ascii_lowercase().contains("train") => Self::TrainingPublished,
            (.., Task::Other { .. }) => Self::Other,
            // Table 2 of the paper (ZeRO-3 against Megatron) is no part of the class.
            (.., Task::Training) if row.source.contains("2104.04473") && !row.source.contains("Table 2") => {
                Self::MegatronSc21
            }
            (.., Task::Training) if row.source.contains("2205.05198") => Self::Korthikanti,
            (.., Task::Training) if known(&row.accelerator).is_some_and(|l| l.chip.0.style == Style::Dataflow) => {
                Self::Dataflow
            }
            (.., Task::Training) => Self::TrainingPublished,
        }
    }
}
