//! Classes of measurements: those that are judged together.

use super::metric::Metric;
use super::point::Task;
use super::row::{Origin, Row};

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
    /// The class of a row.
    pub fn of(row: &Row, task: &Task) -> Self {
        let multi = row.chips.is_some_and(|chips| chips > 8);
        match (row.origin, &row.metric, task) {
            (Origin::Vtrain, ..) if multi => Self::VtrainMultiNode,
            (Origin::Vtrain, ..) => Self::VtrainSingleNode,
            (_, Metric::Fits, _) => Self::Fit,
            (.., Task::Memory) => Self::Memory,
            (.., Task::Hpl) => Self::Hpl,
            (.., Task::AllReduce { .. }) | (_, Metric::AllReduceBus, _) => Self::Collectives,
            (.., Task::Inference { .. } | Task::LayerKernel { .. } | Task::Matmul { .. } | Task::BestMatmul { .. }) => {
                Self::InferenceKernels
            }
            (.., Task::Attention(_)) => Self::AttentionKernels,
            (.., Task::Other { .. }) if row.workload.starts_with("attention ") => Self::AttentionKernels,
            (.., Task::Other { .. }) if row.workload.to_ascii_lowercase().starts_with("matmul") => {
                Self::InferenceKernels
            }
            (.., Task::Other { .. }) if row.workload.to_ascii_lowercase().contains("train") => Self::TrainingPublished,
            (.., Task::Other { .. }) => Self::Other,
            // Table 2 of the paper (ZeRO-3 against Megatron) is no part of the class.
            (.., Task::Training) if row.source.contains("2104.04473") && !row.source.contains("Table 2") => {
                Self::MegatronSc21
            }
            (.., Task::Training) if row.source.contains("2205.05198") => Self::Korthikanti,
            (.., Task::Training) => Self::TrainingPublished,
        }
    }
}
