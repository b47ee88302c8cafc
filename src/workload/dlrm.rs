//! Deep-learning recommendation models (Naumov et al., arXiv 1906.00091): dense features go through a bottom perceptron, sparse
//! ones through embedding tables that are spread over all chips; both meet in an interaction, and a top perceptron follows.
//! The perceptrons are data parallel. A pass of one replica is one minibatch of items: the streamed dimension.
//!
//! With T tables of R rows and width d, p look-ups a table and item, N items, words of w bytes:
//! look-ups read T p d N w bytes of DRAM on each chip (those of everybody's items in its tables, as many as of its items in
//! everybody's); pooled vectors, T d N w bytes a chip, go through an all-to-all, and so do their gradients; the tables take
//! T R d w bytes of all chips together. Tables may have wider words than the rest (`table_word`).
//!
//! `interaction: chain` is DFModel's graph (model.md section 3): one chain of perceptrons, with look-ups and all-to-all on the
//! last bottom layer and its backward kernel, and nothing outside it: the features, the loss's gradient and the result are no
//! tensors of it (docs/dfmodel.md).

use super::builder::Builder;
use super::dfmodel_layer::Pass;
use crate::graph::{Collective, CollectiveKind, Divided, Op, Phase, Scope, Slot, WeightOf, Workload};
use crate::spec::{Node, Reader};
use crate::units::Bytes;

crate::choice! {
    /// The word `dlrm`.
    pub enum Kind ("a kind of workload") {
        /// Deep-learning recommendation model.
        Dlrm = "dlrm",
    }
}

crate::choice! {
    /// How dense and sparse features meet.
    pub enum Interaction ("an interaction") {
        /// Dot products of all pairs of the T + 1 vectors, beside the dense one.
        Dot = "dot",
        /// All vectors one after another.
        Concat = "concat",
        /// The top perceptron reads the bottom one's result alone (DFModel).
        Chain = "chain",
    }
}

crate::spec! {
    /// A deep-learning recommendation model.
    pub struct DlrmSpec ("a recommendation model", check: check) {
        /// The word `dlrm`.
        kind: Kind,
        /// Name for rows and titles.
        name: String,
        /// Where the sizes come from.
        source: String,
        /// Dense features of an item.
        dense: u64,
        /// Widths of the bottom perceptron's layers.
        bottom: Vec<u64>,
        /// Widths of the top perceptron's layers.
        top: Vec<u64>,
        /// How dense and sparse features meet.
        interaction: Interaction = Interaction::Dot,
        /// Embedding tables.
        tables: u64,
        /// Rows of a table.
        rows: u64,
        /// Width of an embedding vector.
        dim: u64,
        /// Look-ups of a table for one item.
        lookups: u64,
        /// Bytes that a chip sends, and gets, in one all-to-all of a minibatch; the pooled vectors if left out.
        exchange: Option<Bytes>,
        /// Items of one pass of a replica.
        minibatch: u64,
        /// Passes computed.
        pass: Pass,
        /// Minibatches of all replicas in one iteration.
        global_batch: u64,
        /// Minibatches that a replica takes at once.
        micro_batch: u64 = 1,
        /// Bytes of one element.
        word: Bytes = Bytes(2.0),
        /// Bytes of an element of the tables, where perceptrons compute in narrower ones; left out: as the others.
        table_word: Option<Bytes>,
        /// Times that rows which were looked up are moved to update them: read and written, and further where software writes their gradients out, puts
        /// equal rows together and reads the sums.
        update_passes: u64 = 2,
        /// Whether one chip computes the bottom perceptron for the minibatches of all replicas, as one more table.
        bottom_on_one: bool = false,
    }
}

/// Widest layer, most items of a minibatch.
const MAX_WIDTH: u64 = 1 << 24;

fn check(spec: &DlrmSpec, node: &Node, reader: &mut Reader) {
    super::spec::check_batches(spec.global_batch, spec.micro_batch, spec.word, node, reader);
    super::spec::check_sizes(
        &[
            ("dense", spec.dense, MAX_WIDTH),
            ("tables", spec.tables, 1 << 20),
            ("rows", spec.rows, 1 << 40),
            ("dim", spec.dim, 1 << 20),
            ("lookups", spec.lookups, 1 << 20),
            ("update_passes", spec.update_passes, 1 << 10),
            ("minibatch", spec.minibatch, MAX_WIDTH),
        ],
        node,
        reader,
    );
    for (field, widths) in [("bottom", &spec.bottom), ("top", &spec.top)] {
        let at = node.get(field).unwrap_or(node);
        let fault = match widths.iter().find(|w| **w == 0 || **w > MAX_WIDTH) {
            _ if widths.is_empty() => Some("expected at least one layer, found an empty list".to_string()),
            _ if widths.len() > 1000 => Some(format!("expected at most 1000 layers, found {}", widths.len())),
            Some(width) => Some(format!("expected widths from 1 to {MAX_WIDTH}, found {width}")),
            None => None,
        };
        if let Some(message) = fault {
            reader.within(field, |r| r.problem(at, message));
        }
    }
    let joined = spec.tables.saturating_add(1).saturating_mul(spec.tables) / 2;
    if spec.interaction == Interaction::Dot && joined > MAX_WIDTH {
        let at = node.get("tables").unwrap_or(node);
        reader.within("tables", |r| {
            r.problem(
                at,
                format!("dot products of {} tables are {joined} features, more than {MAX_WIDTH}", spec.tables),
            )
        });
    }
    if spec.interaction == Interaction::Concat && spec.tables.saturating_mul(spec.dim) > MAX_WIDTH {
        let at = node.get("tables").unwrap_or(node);
        reader.within("tables", |r| r.problem(at, format!("tables x dim is more than {MAX_WIDTH} features")));
    }
    if spec.interaction == Interaction::Dot && spec.bottom.last().is_some_and(|w| *w != spec.dim) {
        let at = node.get("bottom").unwrap_or(node);
        reader.within("bottom", |r| {
            r.problem(at, format!("dot products need the last width to be dim = {}", spec.dim));
        });
    }
}

/// One layer of a perceptron.
struct Layer {
    kernel: usize,
    /// The tensor it reads, if it is in the graph.
    input: Option<usize>,
    output: usize,
    width: u64,
    fan_in: u64,
    items: u64,
}

impl DlrmSpec {
    /// Items of one pass through the bottom perceptron of the chip that computes most of it.
    fn bottom_items(&self) -> u64 {
        if self.bottom_on_one { self.minibatch.saturating_mul(self.global_batch) } else { self.minibatch }
    }

    /// Bytes of an element of the tables.
    fn table_word(&self) -> f64 {
        self.table_word.unwrap_or(self.word).0
    }

    fn lookup_bytes(&self) -> f64 {
        self.tables as f64 * self.lookups as f64 * self.dim as f64 * self.minibatch as f64 * self.table_word()
    }

    fn exchange(&self) -> Collective {
        let pooled = self.tables as f64 * self.dim as f64 * self.minibatch as f64 * self.word.0;
        let bytes = self.exchange.map_or(pooled, |b| b.0);
        Collective { kind: CollectiveKind::AllToAll, bytes, scope: Scope::All, times: 1 }
    }

    /// The graph of one minibatch.
    pub fn build(&self) -> Workload {
        let mut b = Builder::default();
        let chain = self.interaction == Interaction::Chain;
        let n = self.minibatch;
        let dense = (!chain).then(|| b.tensor("dense", self.dense, self.bottom_items(), None));
        let mut layers = self.perceptron(&mut b, (0, self.bottom_items()), dense, self.dense, &self.bottom);
        let last_bottom = layers.len() - 1;
        let bottom_out = layers[last_bottom].output;
        let bottom_width = layers[last_bottom].width;
        let mut join = None;
        let (mut into_top, mut top_in) = (bottom_out, bottom_width);
        if chain {
            self.look_up(&mut b, layers[last_bottom].kernel, 1.0);
        } else {
            let (width, flop) = self.interaction_size(bottom_width);
            let emb = b.add("EMB", Op::Opaque, Phase::Forward, (1, self.tables * self.dim, 1, n), &[]);
            b.kernels[emb].flop = Some(self.pooling_flop());
            self.look_up(&mut b, emb, 1.0);
            let emb_out = b.tensors.len() - 1;
            let views = [(bottom_out, Slot::View), (emb_out, Slot::View)];
            let met = b.add("INTERACT", Op::Opaque, Phase::Forward, (1, width, 1, n), &views);
            b.kernels[met].flop = Some(flop);
            b.kernels[met].extra_dram_bytes = self.joined_bytes();
            (into_top, top_in) = (b.tensors.len() - 1, width);
            join = Some((emb_out, flop));
        }
        layers.extend(self.perceptron(&mut b, (layers.len(), n), Some(into_top), top_in, &self.top));
        if let Some(top) = layers.last() {
            b.tensors[top.output].output = self.pass == Pass::Forward && !chain;
        }
        if self.pass == Pass::Training {
            self.backward(&mut b, &layers, last_bottom, join, bottom_out);
        }
        Workload {
            name: self.name.clone(),
            kernels: b.kernels,
            tensors: b.tensors,
            repeat: 1,
            blocks: Vec::new(),
            word_bytes: self.word.0,
            global_batch: self.global_batch,
            micro_batch: self.micro_batch,
            training: self.pass == Pass::Training,
            held_bytes: self.tables as f64 * self.rows as f64 * self.dim as f64 * self.table_word(),
            divided: Divided::Free,
            tokens_per_sample: None,
        }
    }

    /// Look-ups (or, twice as many bytes, updates) of table rows, and the all-to-all of pooled vectors.
    fn look_up(&self, b: &mut Builder, kernel: usize, times: f64) {
        b.kernels[kernel].extra_dram_bytes += times * self.lookup_bytes();
        b.kernels[kernel].collectives.push(self.exchange());
    }

    /// All vectors, written next to each other for the interaction and read again; backward the same of their gradients.
    fn joined_bytes(&self) -> f64 {
        2.0 * (self.tables + 1) as f64 * self.dim as f64 * self.minibatch as f64 * self.word.0
    }

    /// One addition an element looked up.
    fn pooling_flop(&self) -> f64 {
        self.tables as f64 * self.lookups as f64 * self.dim as f64 * self.minibatch as f64
    }

    /// Features after the interaction, and its FLOP: 2 d for each of the (T + 1) T / 2 pairs and item.
    fn interaction_size(&self, bottom: u64) -> (u64, f64) {
        match self.interaction {
            Interaction::Dot => {
                let pairs = (self.tables + 1) * self.tables / 2;
                (bottom + pairs, 2.0 * self.dim as f64 * pairs as f64 * self.minibatch as f64)
            }
            Interaction::Concat => (bottom + self.tables * self.dim, 0.0),
            Interaction::Chain => (bottom, 0.0),
        }
    }

    fn perceptron(
        &self,
        b: &mut Builder,
        (first, items): (usize, u64),
        input: Option<usize>,
        width: u64,
        widths: &[u64],
    ) -> Vec<Layer> {
        let (mut input, mut fan_in) = (input, width);
        let mut layers = Vec::new();
        for (i, &width) in widths.iter().enumerate() {
            let inputs: Vec<(usize, Slot)> = input.map(|t| (t, Slot::Rhs)).into_iter().collect();
            let name = format!("MLP_{}", first + i + 1);
            let kernel = b.add(&name, Op::GemmWeight, Phase::Forward, (1, width, fan_in, items), &inputs);
            let output = b.tensors.len() - 1;
            layers.push(Layer { kernel, input, output, width, fan_in, items });
            (input, fan_in) = (Some(output), width);
        }
        layers
    }

    fn backward(
        &self,
        b: &mut Builder,
        layers: &[Layer],
        last_bottom: usize,
        join: Option<(usize, f64)>,
        bottom_out: usize,
    ) {
        let n = self.minibatch;
        let chain = join.is_none();
        // Gradients with respect to each layer's output.
        let mut gradients: Vec<Option<usize>> = vec![None; layers.len()];
        if !chain {
            gradients[layers.len() - 1] = Some(b.tensor("loss.grad", layers[layers.len() - 1].width, n, None));
        }
        for (i, layer) in layers.iter().enumerate().rev() {
            if i == 0 && !chain {
                // Nobody asks for the gradient of the dense features.
                break;
            }
            let inputs: Vec<(usize, Slot)> = gradients[i].map(|t| (t, Slot::Rhs)).into_iter().collect();
            let shape = (1, layer.fan_in, layer.width, layer.items);
            let name = format!("MLP_{}_bwd", i + 1);
            let kernel = b.add(&name, Op::GemmWeight, Phase::BackwardInput, shape, &inputs);
            b.kernels[kernel].weight_of = Some(WeightOf { kernel: layer.kernel });
            let gradient = b.tensors.len() - 1;
            match join {
                None => {
                    if i == last_bottom {
                        self.look_up(b, kernel, 1.0);
                    }
                    if i > 0 {
                        gradients[i - 1] = Some(gradient);
                    }
                }
                Some((emb_out, flop)) if i == last_bottom + 1 => {
                    let apart = b.bare("INTERACT_bwd", Op::Opaque, Phase::BackwardInput, (1, layer.fan_in, 1, n));
                    b.kernels[apart].flop = Some(2.0 * flop);
                    b.kernels[apart].extra_dram_bytes = self.joined_bytes();
                    for tensor in [gradient, bottom_out, emb_out] {
                        b.read(apart, tensor, Slot::View);
                    }
                    let bottom = &layers[last_bottom];
                    let made = b.tensor("bottom.grad", bottom.width, bottom.items, Some(apart));
                    gradients[last_bottom] = Some(rectified(b, bottom, last_bottom, made));
                    let vectors = b.tensor("vectors.grad", self.tables * self.dim, n, Some(apart));
                    let shape = (1, self.tables * self.dim, 1, n);
                    let update = b.bare("EMB_upd", Op::Opaque, Phase::BackwardInput, shape);
                    b.kernels[update].flop = Some(self.pooling_flop());
                    b.read(update, vectors, Slot::View);
                    self.look_up(b, update, self.update_passes as f64);
                }
                Some(_) => gradients[i - 1] = Some(rectified(b, &layers[i - 1], i - 1, gradient)),
            }
        }
        for (i, layer) in layers.iter().enumerate().rev() {
            let parts = if chain { 1 } else { b.parts_of_gradient(layer.kernel) };
            let mut inputs: Vec<(usize, Slot)> = layer.input.map(|t| (t, Slot::Lhs)).into_iter().collect();
            inputs.extend(gradients[i].map(|t| (t, Slot::RhsT)));
            b.weight_gradient(layer.kernel, parts, &inputs);
        }
    }
}

/// The gradient before the rectifier of a layer, from the one behind it: where the layer's result is not zero. Forward it is part of the product.
fn rectified(b: &mut Builder, layer: &Layer, i: usize, gradient: usize) -> usize {
    let inputs = [(gradient, Slot::Data), (layer.output, Slot::Data)];
    let name = format!("MLP_{}_relu_bwd", i + 1);
    b.add(&name, Op::Elementwise, Phase::BackwardInput, (1, layer.width, 1, layer.items), &inputs);
    b.tensors.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(interaction: Interaction, pass: Pass) -> DlrmSpec {
        DlrmSpec {
            kind: Kind::Dlrm,
            name: "dlrm".into(),
            source: "assumed: test".into(),
            dense: 13,
            bottom: vec![512, 256, 64],
            top: vec![512, 256, 1],
            interaction,
            tables: 26,
            rows: 1_000_000,
            dim: 64,
            lookups: 3,
            exchange: None,
            minibatch: 128,
            pass,
            global_batch: 1,
            micro_batch: 1,
            word: Bytes(2.0),
            table_word: None,
            update_passes: 2,
            bottom_on_one: false,
        }
    }

    /// By hand: 27 vectors have 351 pairs, so 415 features enter the top perceptron. Multiply-adds of an item: bottom 13*512 +
    /// 512*256 + 256*64 = 154,112; top 415*512 + 512*256 + 256 = 343,808; pairs 351*64 = 22,464; pooling 26*3*64 = 4,992 additions.
    #[test]
    fn forward_flop_by_hand() {
        let w = spec(Interaction::Dot, Pass::Forward).build().checked().unwrap();
        let item = 2.0 * (154_112.0 + 343_808.0 + 22_464.0) + 4_992.0;
        assert_eq!(w.flop_per_iteration(), 128.0 * item);
        assert_eq!(w.held_bytes, 26.0 * 1e6 * 64.0 * 2.0);
    }

    /// Every layer three times (once less for the first, whose input gradient nobody reads), pairs three times, pooling twice, and the rectifiers of all layers
    /// but the last once.
    #[test]
    fn training_flop_by_hand() {
        let w = spec(Interaction::Dot, Pass::Training).build().checked().unwrap();
        let gemms = 2.0 * (3.0 * (154_112.0 + 343_808.0) - 13.0 * 512.0);
        let rectifiers = 512.0 + 256.0 + 64.0 + 512.0 + 256.0;
        assert_eq!(w.flop_per_iteration(), 128.0 * (gemms + 3.0 * 2.0 * 22_464.0 + 2.0 * 4_992.0 + rectifiers));
        let emb = &w.kernels[w.kernel_index("EMB").unwrap()];
        assert_eq!(emb.extra_dram_bytes, 26.0 * 3.0 * 64.0 * 128.0 * 2.0);
        assert_eq!(emb.collectives[0].bytes, 26.0 * 64.0 * 128.0 * 2.0);
    }

    /// model.md section 3: 20 layers make 60 kernels and 76 edges.
    #[test]
    fn dfmodels_graph() {
        let mut spec = spec(Interaction::Chain, Pass::Training);
        spec.dense = 64;
        spec.bottom = vec![64; 5];
        spec.top = vec![64; 15];
        let w = spec.build().checked().unwrap();
        assert_eq!((w.kernels.len(), w.edges()), (60, 76));
        assert_eq!(w.flop_per_iteration(), 60.0 * 2.0 * 64.0 * 64.0 * 128.0);
    }

    /// Tables of 32 bits under perceptrons of 16: look-ups and what is held are twice as many bytes, what is exchanged is not.
    #[test]
    fn tables_have_words_of_their_own() {
        let plain = spec(Interaction::Dot, Pass::Training);
        let wide = DlrmSpec { table_word: Some(Bytes(4.0)), ..plain.clone() };
        let [plain, wide] = [plain, wide].map(|spec| spec.build().checked().unwrap());
        let emb = |w: &Workload| w.kernels[w.kernel_index("EMB").unwrap()].clone();
        assert_eq!(emb(&wide).extra_dram_bytes, 2.0 * emb(&plain).extra_dram_bytes);
        assert_eq!(emb(&wide).collectives, emb(&plain).collectives);
        assert_eq!(wide.held_bytes, 2.0 * plain.held_bytes);
    }

    #[test]
    fn concatenation_is_accepted() {
        let w = spec(Interaction::Concat, Pass::Training).build().checked();
        assert!(w.is_ok(), "{w:?}");
    }
}
