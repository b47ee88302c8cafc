//! The graph of one layer of a language model, for mapping: the one [`TransformerSpec`] builds, where it has these parts.
//!
//! The graph holds the layers alone. Embedding, head, mask and positions are not in it, and a parallel block is taken as two
//! branches after one another, which has the same products.

use super::spec::{LanguageModel, ModelPass};
use crate::graph::Workload;
use crate::spec::{Node, Problem};
use crate::units::Bytes;
use crate::workload::transformer::{self, Pass, TransformerSpec};

impl LanguageModel {
    /// The layer's graph, repeated.
    ///
    /// # Errors
    /// [`Problem`]s that name the field of `node` which no graph has yet, and what does have one.
    pub fn build(&self, node: &Node) -> Result<Workload, Vec<Problem>> {
        let training = self.pass == ModelPass::Training;
        let mut problems = Vec::new();
        let mut refuse = |field: &str, message: &str| {
            let origin = node.get(field).unwrap_or(node).origin.clone();
            problems.push(Problem { origin, field: field.into(), message: message.into() });
        };
        if self.latent_attention.is_some() {
            refuse(
                "latent_attention",
                "there is no graph of a layer with latent attention; `map` takes heads of head_dim",
            );
        }
        if self.experts.is_some() {
            refuse("experts", "there is no graph of a layer with experts; `map` takes plain perceptrons");
        }
        if self.window.is_some_and(|w| w < self.seq) {
            refuse("window", "the graph of a layer has no window; `map` takes attention over whole sequences");
        }
        if training && self.gated {
            refuse(
                "gated",
                "there is no backward graph of a gated perceptron; with `pass: inference` `map` takes the forward pass",
            );
        }
        if training && self.kv_heads() != self.heads {
            refuse(
                "kv_heads",
                "there is no backward graph of shared key-value heads; with `pass: inference` `map` takes the forward pass",
            );
        }
        if self.generated.is_some() {
            refuse(
                "generated",
                "`map` takes one pass: leave this out for the prompt, or write generation as kind transformer with pass decode",
            );
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let spec = TransformerSpec {
            kind: transformer::Kind::Transformer,
            name: self.name.clone(),
            source: self.source.clone(),
            hidden: self.hidden,
            heads: self.heads,
            head_dim: self.head_dim(),
            kv_heads: self.kv_heads,
            ffn: self.ffn,
            gated: self.gated,
            seq: self.seq,
            context: None,
            layers: self.layers,
            word: Bytes(self.types.activations.bytes()),
            pass: if training { Pass::Training } else { Pass::Forward },
            global_batch: self.global_batch,
            micro_batch: 1,
            heads_in_qk_backward: false,
            cache_as_kernels: false,
            vocabulary: None,
        };
        Ok(spec.build())
    }
}
