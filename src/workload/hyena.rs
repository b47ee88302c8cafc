//! Hyena: gated long convolutions by FFT (Poli et al. 2023, arXiv 2302.10866), forward over whole sequences.
//!
//! Let h be the hidden size, S the tokens, F >= 2S the padded length, a power of the radix r. A layer of order p projects to
//! p + 1 sequences, each filtered by a short convolution, and p times convolves one of them with a filter as long as the
//! sequence and multiplies by the next: FFT, product with the filter's spectrum, inverse FFT, gate. Then a perceptron. The
//! spectra (2F words a channel) do not depend on the input and are read from DRAM, for each sample.
//!
//! An FFT has log F / log r stages. `gemm`: a stage multiplies F/r columns of r complex numbers by a matrix of r x r, in
//! real numbers 2r x 2r: 8 r F FLOP a channel on the matrix units (Bailey's factorisation, J. Supercomput. 1990; FlashFFTConv,
//! arXiv 2311.05908). `vector`: log2 r steps of butterflies, counted like DFModel with 2 multiply-adds for each of the 2F real
//! numbers: 8 F log2 r FLOP (the least is 5 F log2 r). A step is two passes of the lanes, unless a unit that
//! lets lanes exchange operands (`fft_unit`) does a stage in one. A spectrum's product takes 6 FLOP a complex number.
//!
//! Channels are independent: the FFTs are split among chips by channels, and read all tokens of a channel. Not in the
//! graph: embedding, head, the computation of the filters and the DRAM that the spectra take.
//!
//! `graph: dfmodel_operator` is DFModel's (fengqian-ayce/DFModel, `generator/generate_*_Hyena.py`): six FFTs of S points (Q and
//! K, the inverse of their product, then that and V, and the inverse of their product), the h channels one after
//! another; `dfmodel_layer` has three projections before and a perceptron behind, as in its later setups. The tensors between
//! the kernels are counted as one channel, as there.

use super::builder::Builder;
use crate::graph::{Op, Phase, Slot, Workload};
use crate::spec::{Node, Reader};
use crate::units::Bytes;

crate::choice! {
    /// The word `hyena`.
    pub enum Kind ("a kind of workload") {
        /// Gated long convolutions.
        Hyena = "hyena",
    }
}

crate::choice! {
    /// How Fourier transforms are computed.
    pub enum Fft ("an FFT") {
        /// Stages of matrix products.
        Gemm = "gemm",
        /// Stages of butterflies on vectors.
        Vector = "vector",
    }
}

crate::choice! {
    /// Which graph stands for a layer.
    pub enum Graph ("a graph of a layer") {
        /// The layer as published.
        Hyena = "hyena",
        /// DFModel's operator: six FFTs and three products.
        DfmodelOperator = "dfmodel_operator",
        /// DFModel's operator with projections and perceptron.
        DfmodelLayer = "dfmodel_layer",
    }
}

crate::spec! {
    /// A Hyena model: identical layers of gated long convolutions and a perceptron.
    pub struct HyenaSpec ("a Hyena model", check: check) {
        /// The word `hyena`.
        kind: Kind,
        /// Name for rows and titles.
        name: String,
        /// Where the sizes come from.
        source: String,
        /// Hidden size.
        hidden: u64,
        /// Long convolutions of a layer.
        order: u64 = 2,
        /// Taps of the short convolutions.
        conv: u64 = 3,
        /// Width of the perceptron; left out: 4 x hidden.
        ffn: Option<u64>,
        /// Tokens of one sample.
        seq: u64,
        /// Layers.
        layers: u64,
        /// Bytes of one real number.
        word: Bytes = Bytes(2.0),
        /// How Fourier transforms are computed.
        fft: Fft,
        /// Points that one stage of an FFT combines, a power of two. Sequences are padded to a power of it of at least 2 seq.
        radix: u64 = 16,
        /// Whether a chip does a stage of butterflies in one pass.
        fft_unit: bool = false,
        /// Which graph stands for a layer. DFModel's have no order and no short convolutions, and FFTs of seq points.
        graph: Graph = Graph::Hyena,
        /// Samples of one iteration.
        global_batch: u64,
        /// Samples of one microbatch.
        micro_batch: u64 = 1,
    }
}

fn check(spec: &HyenaSpec, node: &Node, reader: &mut Reader) {
    super::spec::check_batches(spec.global_batch, spec.micro_batch, spec.word, node, reader);
    let mut say = |field: &str, message: String| {
        let at = node.get(field).unwrap_or(node).clone();
        reader.within(field, |r| r.problem(&at, message));
    };
    for (field, value, most) in [
        ("hidden", spec.hidden, 1u64 << 24),
        ("order", spec.order, 64),
        ("conv", spec.conv, 1 << 16),
        ("ffn", spec.ffn.unwrap_or(1), 1 << 26),
        ("seq", spec.seq, 1 << 26),
        ("layers", spec.layers, 1 << 20),
    ] {
        if value > most {
            say(field, format!("expected at most {most}, found {value}"));
        }
    }
    if !spec.radix.is_power_of_two() || !(2..=1 << 12).contains(&spec.radix) {
        say("radix", format!("expected a power of two from 2 to {}, found {}", 1 << 12, spec.radix));
    } else if spec.graph != Graph::Hyena && (spec.radix > spec.seq || !spec.seq.is_power_of_two()) {
        say("seq", format!("DFModel's graphs need a power of two of at least the radix, found {}", spec.seq));
    }
    if spec.fft_unit && spec.fft == Fft::Gemm {
        say("fft_unit", "is for the vector FFT".into());
    }
}

impl HyenaSpec {
    /// The workload: one layer, repeated.
    pub fn build(&self) -> Workload {
        let b = match self.graph {
            Graph::Hyena => self.published(),
            Graph::DfmodelOperator | Graph::DfmodelLayer => self.dfmodel(),
        };
        b.repeated(&self.name, self.layers, self.word, (self.global_batch, self.micro_batch), false, self.seq)
    }

    fn log2_radix(&self) -> u64 {
        u64::from(self.radix.max(2).ilog2())
    }

    /// Passes of the lanes for one stage of butterflies.
    fn stage_passes(&self) -> u64 {
        if self.fft_unit { 1 } else { 2 * self.log2_radix() }
    }

    /// The stages of an FFT of every channel, `points` long, of what `input` makes; returns the last.
    fn fft(&self, b: &mut Builder, name: &str, points: u64, input: usize) -> usize {
        let (h, r) = (self.hidden, self.radix);
        let steps = self.log2_radix();
        let stages = u64::from(points.ilog2()) / steps;
        let mut last = input;
        for stage in 0..stages {
            let name = format!("{name}_{stage}");
            let first = stage == 0;
            last = match self.fft {
                Fft::Gemm => {
                    let slot = if first { Slot::Reshaped } else { Slot::Rhs };
                    b.add(name, Op::Gemm, Phase::Forward, (h, 2 * r, 2 * r, points / r), &[(last, slot)])
                }
                Fft::Vector => {
                    let slot = if first { Slot::Reshaped } else { Slot::Data };
                    let id = b.add(name, Op::Elementwise, Phase::Forward, (h, 2, 1, points), &[(last, slot)]);
                    b.work(id, 8.0 * steps as f64 * h as f64 * points as f64, self.stage_passes());
                    id
                }
            };
        }
        last
    }

    fn published(&self) -> Builder {
        use Op::{Elementwise, GemmWeight, Norm};
        use Phase::Forward;
        use Slot::{Data, Reshaped, Rhs};
        let (h, s) = (self.hidden, self.seq);
        let f = self.ffn.unwrap_or(h.saturating_mul(4));
        let elements = h as f64 * s as f64;
        let steps = self.log2_radix();
        // A power of two of at least 2S that is a power of the radix.
        let levels = u64::from((2 * s).next_power_of_two().ilog2()).div_ceil(steps) * steps;
        let points = 1u64 << levels;
        let mut b = Builder::default();
        let norm1 = b.add("NORM_1", Norm, Forward, (1, h, 1, s), &[]);
        let mut projected = Vec::new();
        for i in 0..=self.order {
            let name = if i == 0 { "V".to_string() } else { format!("X{i}") };
            let proj = b.add(&name, GemmWeight, Forward, (1, h, h, s), &[(norm1, Rhs)]);
            let conv = b.add(format!("{name}_conv"), Elementwise, Forward, (h, 1, 1, s), &[(proj, Data)]);
            b.work(conv, elements * (2 * self.conv) as f64, self.conv);
            projected.push(conv);
        }
        let mut v = projected[0];
        for (i, x) in projected.iter().enumerate().skip(1) {
            let spectrum = self.fft(&mut b, &format!("FFT{i}"), points, v);
            let filtered =
                b.add(format!("FILTER{i}"), Elementwise, Forward, (h, 2, 1, points), &[(spectrum, Reshaped)]);
            b.work(filtered, 6.0 * h as f64 * points as f64, 2);
            b.kernels[filtered].extra_dram_bytes = 2.0 * h as f64 * points as f64 * self.word.0;
            let back = self.fft(&mut b, &format!("IFFT{i}"), points, filtered);
            v = b.add(format!("GATE{i}"), Elementwise, Forward, (1, h, 1, s), &[(back, Reshaped), (*x, Data)]);
        }
        let out = b.add("OUT", GemmWeight, Forward, (1, h, h, s), &[(v, Rhs)]);
        let add1 = b.add("ADD_1", Elementwise, Forward, (1, h, 1, s), &[(out, Data)]);
        let norm2 = b.add("NORM_2", Norm, Forward, (1, h, 1, s), &[(add1, Data)]);
        let ffn0 = b.add("FFN0", GemmWeight, Forward, (1, f, h, s), &[(norm2, Rhs)]);
        let gelu = b.add("GeLU", Elementwise, Forward, (1, f, 1, s), &[(ffn0, Data)]);
        let ffn1 = b.add("FFN1", GemmWeight, Forward, (1, h, f, s), &[(gelu, Rhs)]);
        let add2 = b.add("ADD_2", Elementwise, Forward, (1, h, 1, s), &[(ffn1, Data), (add1, Data)]);
        b.carry("layer.in", add2, &[(norm1, Data), (add1, Data)]);
        b
    }

    fn dfmodel(&self) -> Builder {
        use Phase::Forward;
        use Slot::{Data, Reshaped, Rhs};
        let (h, s, r) = (self.hidden, self.seq, self.radix);
        let layer = self.graph == Graph::DfmodelLayer;
        let steps = self.log2_radix();
        let stages = u64::from(s.ilog2()) / steps;
        let mut b = Builder::default();
        let mut starts = Vec::new();
        let transform = |b: &mut Builder, name: &str, input: Option<usize>| -> usize {
            let mut last = input;
            for stage in 0..stages {
                let name = format!("{name}_stage{stage}");
                let slot = match (stage, self.fft) {
                    (0, _) => Reshaped,
                    (_, Fft::Gemm) => Rhs,
                    (_, Fft::Vector) => Data,
                };
                let inputs: Vec<(usize, Slot)> = last.map(|i| (i, slot)).into_iter().collect();
                let (op, shape, flop, passes) = match self.fft {
                    Fft::Gemm => (Op::Gemm, (1, 2 * r, 2 * r, s / r), 8.0 * r as f64, h),
                    Fft::Vector => (Op::Opaque, (1, 2 * s, 1, 1), 8.0 * steps as f64, h * self.stage_passes()),
                };
                let id = b.add(name, op, Forward, shape, &inputs);
                b.work(id, flop * s as f64 * h as f64, passes);
                last = Some(id);
            }
            last.unwrap_or(0)
        };
        let product = |b: &mut Builder, name: &str, inputs: &[usize]| -> usize {
            let inputs: Vec<(usize, Slot)> = inputs.iter().map(|i| (*i, Reshaped)).collect();
            let id = b.add(name, Op::Opaque, Forward, (1, 2 * s, 1, 1), &inputs);
            b.work(id, 2.0 * s as f64 * h as f64, h);
            id
        };
        let mut ends = Vec::new();
        for name in ["Q", "K", "V"] {
            let input = layer.then(|| b.add(name, Op::GemmWeight, Forward, (1, h, h, s), &[]));
            let first = b.kernels.len();
            ends.push(transform(&mut b, name, input));
            starts.push(match input {
                Some(projection) => (projection, Rhs),
                None => (first, Reshaped),
            });
        }
        let qk = product(&mut b, "QKmultiply", &[ends[0], ends[1]]);
        let qk = transform(&mut b, "QKi", Some(qk));
        let inter = product(&mut b, "softmax", &[qk]);
        let inter = transform(&mut b, "inter", Some(inter));
        let mixed = product(&mut b, "interVmultiply", &[inter, ends[2]]);
        let mut last = transform(&mut b, "interVi", Some(mixed));
        if layer {
            let f = self.ffn.unwrap_or(h.saturating_mul(4));
            let ffn0 = b.add("FFN0", Op::GemmWeight, Forward, (1, f, h, s), &[(last, Reshaped)]);
            last = b.add("FFN1", Op::GemmWeight, Forward, (1, h, f, s), &[(ffn0, Rhs)]);
        }
        b.carry("layer.in", last, &starts);
        b
    }
}

#[cfg(test)]
mod tests {
    use crate::graph::{Kernel, Workload};
    use crate::spec::Node;
    use crate::workload::WorkloadSpec;

    fn read(more: &str) -> Workload {
        let text = format!("{{kind: hyena, name: h, source: 'a test', layers: 1, global_batch: 1, {more}}}");
        WorkloadSpec::build(&Node::parse("test", &text).unwrap()).unwrap_or_else(|e| panic!("{e}"))
    }

    fn sum(w: &Workload, prefix: &str) -> f64 {
        w.kernels.iter().filter(|k| k.name.starts_with(prefix)).map(Kernel::flop).sum()
    }

    /// Printed FLOP and kernels of DFModel's stored runs SSM/Hyena/{gemm_fft,vector_fft,regular_fft}/1M (fengqian-ayce/DFModel,
    /// 04f93d5ea117) and gemm_fft/1M_SN40L (f9cda5e3787e); edges of their setups.
    #[test]
    fn dfmodels_graphs_have_their_flop() {
        for (more, flop, kernels, edges) in [
            ("hidden: 1, fft: gemm, graph: dfmodel_operator", 4_032_823_296.0, 33, 32),
            ("hidden: 1, fft: vector, fft_unit: true, graph: dfmodel_operator", 1_012_924_416.0, 33, 32),
            ("hidden: 1, fft: vector, radix: 2, graph: dfmodel_operator", 1_012_924_416.0, 123, 122),
            ("hidden: 32, fft: gemm, graph: dfmodel_layer", 152_672_665_600.0, 38, 37),
        ] {
            let w = read(&format!("seq: 1048576, {more}"));
            assert_eq!((w.kernels.len(), w.edges()), (kernels, edges), "{more}");
            assert_eq!(w.flop_per_iteration(), flop, "{more}");
        }
    }

    /// By hand: 3 channels, 8 tokens, so F = 16; radix 4: 2 stages. GEMM: 8 x 4 x 16 x 3 = 1536 a stage; vector: 8 x 16 x 2 x 3 =
    /// 768 a stage, of 4 passes or 1. A filter: 6 x 16 x 3 FLOP, and 2 x 16 x 3 words from DRAM.
    #[test]
    fn convolution_by_hand() {
        let base = "hidden: 3, seq: 8, radix: 4, order: 1";
        let gemm = read(&format!("{base}, fft: gemm"));
        assert_eq!((sum(&gemm, "FFT1_"), sum(&gemm, "IFFT1_")), (2.0 * 1536.0, 2.0 * 1536.0));
        let vector = read(&format!("{base}, fft: vector"));
        assert_eq!(sum(&vector, "FFT1_"), 2.0 * 768.0);
        let stage = |w: &Workload| w.kernels[w.kernel_index("FFT1_1").unwrap()].passes;
        assert_eq!((stage(&vector), stage(&read(&format!("{base}, fft: vector, fft_unit: true")))), (4, 1));
        let filter = &vector.kernels[vector.kernel_index("FILTER1").unwrap()];
        assert_eq!((filter.flop(), filter.extra_dram_bytes), (288.0, 192.0));
    }

    /// By hand: order 2 has 3 projections and an output of h x h, and a perceptron of 8 h^2 weights.
    #[test]
    fn weights_are_twelve_h_squared() {
        let w = read("hidden: 864, seq: 2048, fft: gemm");
        let weights: f64 = w.kernels.iter().map(Kernel::weight_elements).sum();
        assert_eq!(weights, 12.0 * 864.0 * 864.0);
    }

    #[test]
    fn padding_is_a_power_of_the_radix() {
        // 2 x 1000 -> 2048 = 2^11 -> 16^3 = 4096.
        let w = read("hidden: 2, seq: 1000, fft: vector, order: 1");
        let stage = &w.kernels[w.kernel_index("FFT1_0").unwrap()];
        assert_eq!(stage.shape.n, 4096);
        assert_eq!(w.kernels.iter().filter(|k| k.name.starts_with("FFT1_")).count(), 3);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (more, word) in [
            ("fft: gemm, radix: 12", "radix"),
            ("fft: gemm, fft_unit: true", "fft_unit"),
            ("fft: gemm, graph: dfmodel_operator, seq: 1000", "seq"),
            ("fft: gemm, order: 1000", "order"),
        ] {
            let seq = if more.contains("seq") { "" } else { "seq: 64, " };
            let text =
                format!("{{kind: hyena, name: h, source: s, hidden: 8, {seq}layers: 1, global_batch: 1, {more}}}");
            let error = WorkloadSpec::build(&Node::parse("test", &text).unwrap()).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
