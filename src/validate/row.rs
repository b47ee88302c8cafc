//! One row of a file of measured points, as it is written.

use super::metric::{Metric, Unit};
use super::sources::Trained;

/// A measured point. What the source does not state is `None` or empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Name of the point, one of its own in its file.
    pub id: String,
    /// Line of the file.
    pub line: u64,
    /// What was run, in words.
    pub workload: String,
    /// Billions of parameters as the source prints them.
    pub params_b: Option<f64>,
    /// Layers.
    pub layers: Option<u64>,
    /// Hidden size.
    pub hidden: Option<u64>,
    /// Attention heads.
    pub heads: Option<u64>,
    /// Tokens of a sample.
    pub seq: Option<u64>,
    /// Words of the vocabulary.
    pub vocab: Option<u64>,
    /// Samples of an iteration; in inference, sequences at once.
    pub global_batch: Option<u64>,
    /// Samples of a microbatch.
    pub micro_batch: Option<u64>,
    /// The machine, in words.
    pub system: String,
    /// The chip, in words.
    pub accelerator: String,
    /// Chips.
    pub chips: Option<u64>,
    /// Share of a chip that was used, where it is less than one.
    pub share_of_chip: Option<f64>,
    /// Tensor parallelism.
    pub tp: Option<u64>,
    /// Pipeline parallelism.
    pub pp: Option<u64>,
    /// Data parallelism.
    pub dp: Option<u64>,
    /// Pieces of layers of a stage.
    pub interleave: Option<u64>,
    /// What is computed again, in words.
    pub recompute: String,
    /// Whether sequences are divided among tensor-parallel chips.
    pub seq_parallel: Option<bool>,
    /// What of the model is trained, where it is stated.
    pub trained: Option<Trained>,
    /// Sizes of a run of HPL.
    pub hpl: HplSizes,
    /// What was measured.
    pub metric: Metric,
    /// What was measured, in its unit.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
    /// Where the number comes from.
    pub source: String,
    /// How sure it is.
    pub confidence: String,
    /// Everything else the source says.
    pub notes: String,
    /// The data file of another project that the row comes from, where it is one.
    pub origin: Origin,
}

impl Row {
    /// Which collective its words say was run by itself.
    pub fn collective(&self) -> Option<&'static str> {
        let workload = self.workload.to_ascii_lowercase();
        ["all-reduce ", "all-gather ", "reduce-scatter ", "all-to-all ", "alltoall "]
            .into_iter()
            .find(|kind| workload.starts_with(kind))
    }

    /// Whether what was run is a collective by itself.
    pub fn is_collective(&self) -> bool {
        self.metric == Metric::AllReduceBus || self.collective().is_some()
    }
}

/// Sizes of a run of HPL, as far as they are stated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HplSizes {
    /// Order of the matrix.
    pub n: Option<u64>,
    /// Columns of a panel.
    pub nb: Option<u64>,
    /// Rows of the process grid.
    pub p: Option<u64>,
    /// Its columns.
    pub q: Option<u64>,
}

/// Whose file a row comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Our columns.
    Ours,
    /// vTrain's measured iterations (Bang et al. 2023, arXiv 2312.12391): 1F1B, full recomputation, fp16 with Adam, vocabulary 51,200.
    Vtrain,
    /// Ours of `validation/hpl`.
    Hpl,
}
