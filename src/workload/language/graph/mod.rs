//! The graph of a language model: embedding, layers and head as a chain of blocks, forward and, in training, backward.
//!
//! `layer` has the order of a layer's parts, `attention` and `perceptron` their kernels, `ends` what comes before and after; the
//! backward pass is the adjoint of these ([`crate::graph::adjoint`]), so that what is kept is what it reads. Linear maps of one
//! input (queries, keys and values; gate and up) are one product, as software has them: their input gradients add up inside it.
//!
//! Passes. *Training*: all tokens forward and backward. *Prompt* (inference without `generated`): all tokens forward, head included. *Step of generation* (with
//! `generated`): the last token but one is passed on, after all that came before, whose keys and values lie in DRAM.
//!
//! Layers of two kinds (the first plain ones, then those with experts) are two blocks, plain ones first, whatever their order in the model. Attention
//! meets the mean number of tokens over all layers where some have a window. Not in the graph: biases and the gains of norms, the routing's sorting,
//! the sum over heads of the gradient of latent attention's shared key between chips.

mod attention;
mod ends;
mod layer;
mod net;
mod perceptron;

pub use attention::is_gathering;
pub use perceptron::is_of_expert;

use super::flop::AttentionCount;
use super::spec::{LanguageModel, ModelPass};
use crate::graph::adjoint::Adjoint;
use crate::graph::chain::MOST_UNITS;
use crate::graph::{Block, Divided, Workload};
use crate::spec::{Node, Problem};
use crate::workload::language::Position;
use net::{Net, Sequence};

impl LanguageModel {
    /// The graph of the model, which computes of attention what the mask leaves.
    ///
    /// # Errors
    /// [`Problem`]s that name the field of `node` which is too large for a chain of blocks.
    pub fn build(&self, node: &Node) -> Result<Workload, Vec<Problem>> {
        self.chain().map_err(|message| {
            let field = self.without_graph().unwrap_or("layers");
            let origin = node.get(field).unwrap_or(node).origin.clone();
            vec![Problem { origin, field: field.into(), message }]
        })
    }

    /// The same without a file.
    ///
    /// # Errors
    /// A sentence: more layers than a chain of blocks has.
    pub fn chain(&self) -> Result<Workload, String> {
        self.chain_of_replica(1, 1)
    }

    /// The same of one of `ep` replicas that share the experts, and one of `cp` that share the tokens of a sample.
    ///
    /// # Errors
    /// As [`Self::chain`].
    pub fn chain_of_replica(&self, ep: u64, cp: u64) -> Result<Workload, String> {
        if self.without_graph().is_some() {
            return Err("relative positions, encoders beside decoders, heads that score some words and training beside frozen weights are described for chips that run kernel by kernel, not as graphs".into());
        }
        let most = MOST_UNITS - 2;
        if self.layers > most {
            return Err(format!("a graph has at most {most} layers with embedding and head, found {}", self.layers));
        }
        Ok(self.replica(AttentionCount::Masked, ep, cp))
    }

    /// The field that no graph describes.
    fn without_graph(&self) -> Option<&'static str> {
        let fields = [
            ("encoder_layers", self.encoder_layers.is_some()),
            ("position", self.position == Position::Relative),
            ("scored_words", self.scored_words.is_some()),
            // A graph with its adjoint trains all of its weights.
            ("adapters", self.pass == ModelPass::Training && self.adapters.is_some()),
            ("head_alone", self.pass == ModelPass::Training && self.head_alone),
        ];
        fields.into_iter().find(|(_, is)| *is).map(|(field, _)| field)
    }

    /// The same with attention over what the mask leaves, or over the whole square, as software computes it that masks scores after the product.
    pub fn graph(&self, count: AttentionCount) -> Workload {
        self.replica(count, 1, 1)
    }

    fn replica(&self, count: AttentionCount, ep: u64, cp: u64) -> Workload {
        let mut sequence = self.sequence(count);
        let whole_sequence = (cp > 1).then_some(sequence.tokens);
        sequence.tokens = sequence.tokens.div_ceil(cp.max(1));
        let cache = self.types.cache.unwrap_or(self.types.activations);
        let mut net = Net::new(self.types.activations, cache, sequence, self.dropout);
        (net.replicas_of_experts, net.whole_sequence) = (ep.max(1), whole_sequence);
        let mut blocks = vec![Block { name: "embedding".into(), repeat: 1 }];
        let mut x = ends::embedding(&mut net, self);
        let mut kinds = Vec::new();
        if self.dense_layers() > 0 {
            kinds.push(("layers", None, self.dense_layers(), ""));
        }
        if let Some(experts) = self.experts.as_ref().filter(|_| self.expert_layers() > 0) {
            let suffix = if kinds.is_empty() { "" } else { "_x" };
            kinds.push(("expert layers", Some(experts), self.expert_layers(), suffix));
        }
        // Where each block of layers begins, what it reads, and what it hands on.
        let mut begins = Vec::new();
        for (name, experts, repeat, suffix) in kinds {
            begins.push((net.b.kernels.len(), x));
            (net.block, net.suffix) = (blocks.len(), suffix);
            blocks.push(Block { name: name.into(), repeat });
            let out = layer::layer(&mut net, self, experts, x);
            net.b.tensors[x].carried_from = Some(out);
            net.b.tensors[out].output = true;
            x = out;
        }
        let layers_end = net.b.kernels.len();
        if ends::has_head(self) {
            (net.block, net.suffix) = (blocks.len(), "");
            blocks.push(Block { name: "head".into(), repeat: 1 });
            ends::head(&mut net, self, x);
        }
        if sequence.training {
            backward(&mut net, &begins, layers_end, x);
        }
        Workload {
            name: self.name.clone(),
            kernels: net.b.kernels,
            tensors: net.b.tensors,
            repeat: blocks.iter().map(|b| b.repeat).sum(),
            blocks,
            word_bytes: net.word,
            global_batch: self.global_batch,
            micro_batch: 1,
            training: sequence.training,
            tokens_per_sample: Some(sequence.tokens),
            held_bytes: 0.0,
            divided: Divided::Free,
        }
    }

    fn sequence(&self, count: AttentionCount) -> Sequence {
        let training = self.pass == ModelPass::Training;
        match self.generated.filter(|_| !training) {
            Some(generated) => {
                // The prompt gives the first of them: the last one's step reads all but itself.
                let seen = self.seq.saturating_add(generated.saturating_sub(1)).max(1);
                let attended = self.over_layers(|| seen as f64, |window| window.min(seen) as f64);
                Sequence { tokens: 1, attended, cached: true, training }
            }
            None => {
                let attended = self.mean_attended(self.seq, count);
                Sequence { tokens: self.seq, attended, cached: false, training }
            }
        }
    }
}

/// Writes the backward pass: of the head, of each block of layers from the last one on, of the embedding.
fn backward(net: &mut Net, begins: &[(usize, usize)], layers_end: usize, hidden: usize) {
    let end = net.b.kernels.len();
    let first = begins.first().map_or(end, |(k, _)| *k);
    let outside = (end == layers_end).then(|| {
        let (rows, cols) = (net.b.tensors[hidden].rows, net.b.tensors[hidden].cols);
        net.b.tensor("grad_in", rows, cols, None)
    });
    let mut adjoint = Adjoint::new(&mut net.b.kernels, &mut net.b.tensors, &net.rules);
    if let Some(outside) = outside {
        adjoint.seed(hidden, outside);
    }
    let mut handed = adjoint.backward(layers_end..end, Some(hidden));
    let mut until = layers_end;
    for (begin, input) in begins.iter().rev() {
        let made = adjoint.backward(*begin..until, Some(*input));
        if let (Some(handed), Some(made)) = (handed, made) {
            adjoint.tensors[handed].carried_from = Some(made);
            adjoint.tensors[made].output = true;
        }
        (handed, until) = (made, *begin);
    }
    adjoint.backward(0..first, None);
}
