//! What the training runs of a source were, where their rows do not say: `sources` of `validation/chips.yaml`.
//!
//! A source is a repository or a paper. Its runs have one software, one way of counting FLOP and a few habits that no column states; each stands there
//! once, with its reason, and a person can correct it. The first entry that suits counts.

use super::accelerators;
use super::row::Row;
use crate::execution::{Recompute, Zero};
use crate::spec::read::{Fraction, Ref};
use crate::system::{Memory, Stack};
use crate::workload::language::{DataType, FlopCount, Types};

crate::choice! {
    /// What a source counts as FLOP of a training step.
    pub enum Counted ("a count of FLOP") {
        /// Three times the products of the forward pass, and the whole square of attention.
        Products = "products",
        /// The same with the part of the square that the mask leaves.
        MaskedProducts = "masked_products",
        /// Korthikanti et al. 2022, equation 7.
        MegatronModel = "megatron_model",
    }
}

impl Counted {
    /// The count of the closed forms.
    pub fn flop(self) -> FlopCount {
        match self {
            Self::Products => FlopCount::Products,
            Self::MaskedProducts => FlopCount::MaskedProducts,
            Self::MegatronModel => FlopCount::MegatronModel,
        }
    }
}

crate::spec! {
    /// A source of measured training runs.
    pub struct Source ("a source of measured training runs") {
        /// A part of the row's source: a repository, or a paper's number.
        of: String,
        /// Chips, by our names; left out: any.
        chips: Vec<String> = Vec::new(),
        /// The model, by the name in its file; left out: any.
        model: Option<String>,
        /// Why what follows is so.
        because: String,
        /// The software.
        stack: Ref<Stack>,
        /// What products compute in where a row does not say and the chip has it.
        computes: Option<DataType>,
        /// What its printed rates of FLOP count.
        counts: Option<Counted>,
        /// Types of weights, gradients and optimiser; left out: those of mixed precision.
        types: Option<Types>,
        /// Divided training state, where a row does not say.
        zero: Option<Zero>,
        /// What is computed again, where a row does not say.
        recompute: Option<Recompute>,
        /// What a row's word `selective` means.
        selective: Option<Recompute>,
        /// Whether tensor-parallel chips divide sequences, where a row does not say.
        sequence_parallel: bool = false,
        /// Most pieces of layers of a stage, where a row does not say: the most that divide its layers.
        chunks: Option<u64>,
        /// Tokens of a sample, where a row does not say.
        seq: Option<u64>,
        /// Divided training state of pipelines, where a row does not say; left out: as of others.
        zero_in_pipelines: Option<Zero>,
        /// Pipeline stages of a replica, where a row states no degrees.
        stages: Option<u64>,
        /// Whether all chips are replicas where a row states no degrees.
        replicas_alone: bool = false,
        /// Memory of the host that holds the optimiser's state and computes its step.
        host_memory: Option<Ref<Memory>>,
        /// Share of a sample's tokens that is computed; the rest is padding that the runs leave out.
        real_tokens: Fraction = Fraction(1.0),
        /// Whether gradients are reduced beside the backward pass.
        overlap_dp: bool = true,
        /// Whether tensor-parallel collectives run beside products.
        overlap_tp: bool = false,
    }
}

/// The entry of a row of training; `model` is the name of its model's file, where it is known.
pub fn of(row: &Row, model: Option<&str>) -> Option<&'static Source> {
    let chip = accelerators::known(&row.accelerator).map(|listed| listed.chip.0.name.as_str());
    let suits = |source: &&Source| {
        row.source.contains(&source.of)
            && (source.chips.is_empty() || source.chips.iter().any(|name| Some(name.as_str()) == chip))
            && (source.model.is_none() || source.model.as_deref() == model)
    };
    accelerators::shipped().ok()?.sources.iter().find(suits)
}
