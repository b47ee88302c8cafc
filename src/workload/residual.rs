//! Residual networks of bottleneck blocks (He et al. 2015, arXiv 1512.03385), forward and, in training, backward.
//!
//! A convolution of c to d channels with a window of w x w is the product of a weight of d x c w^2 with the pixels that it makes (implicit GEMM): 2 d c w^2
//! FLOP a pixel, and as many for the gradients of its input and of its weight. Where it strides over s pixels each way it makes 1/s^2 as many, and the
//! gradient of its input has the FLOP of these pixels though it is as large as the input.
//!
//! Batch norm reads what it normalises twice, for mean and variance of a channel over all samples and for the results; backward the input and the gradient
//! twice, for the sums over a channel and for the results. A rectifier and the sum at the end of a block are kernels of their own. Kept are the inputs of
//! norms and of convolutions.
//!
//! A block: 1x1 to `width` channels, 3x3, 1x1 to `out` channels, each with its norm, and the sum with its input; the first block of a stage has another 1x1 for
//! its input, and strides (from the second stage on) in its 3x3, as the version called 1.5 does. In front a convolution of `stem`, a norm and a maximum
//! over 3x3 pixels that halves the image; behind the mean over all pixels and a linear map to the classes. Not in the graph: gains and shifts of norms, the
//! loss, and the preparation of images.

use super::builder::Builder;
use super::dfmodel_layer::Pass;
use crate::graph::{Divided, Op, Phase, Slot, WeightOf, Workload};
use crate::spec::{Node, Reader};
use crate::units::Bytes;

crate::choice! {
    /// The word `residual_network`.
    pub enum Kind ("a kind of workload") {
        /// A residual network.
        ResidualNetwork = "residual_network",
    }
}

crate::spec! {
    /// What images meet first.
    #[derive(Copy)]
    pub struct Stem ("a stem") {
        /// Channels that it makes.
        width: u64,
        /// Pixels of its window's edge.
        window: u64 = 7,
        /// Pixels that it goes on by.
        stride: u64 = 2,
    }
}

crate::spec! {
    /// Blocks that work on images of one size.
    #[derive(Copy)]
    pub struct Stage ("a stage") {
        /// Its blocks.
        blocks: u64,
        /// Channels inside a block.
        width: u64,
        /// Channels that a block hands on.
        out: u64,
    }
}

crate::spec! {
    /// A residual network of bottleneck blocks.
    pub struct ResidualSpec ("a residual network", check: check) {
        /// The word `residual_network`.
        kind: Kind,
        /// Name for rows and titles.
        name: String,
        /// Where the sizes come from.
        source: String,
        /// Pixels of an image's edge.
        image: u64,
        /// Colours.
        channels: u64 = 3,
        /// What images meet first.
        stem: Stem,
        /// Stages, each of half the edge of the one before.
        stages: Vec<Stage>,
        /// Classes.
        classes: u64,
        /// Passes computed.
        pass: Pass,
        /// Images of one iteration.
        global_batch: u64,
        /// Images that a replica takes at once.
        micro_batch: u64 = 1,
        /// Bytes of one element.
        word: Bytes = Bytes(2.0),
    }
}

fn check(spec: &ResidualSpec, node: &Node, reader: &mut Reader) {
    super::spec::check_batches(spec.global_batch, spec.micro_batch, spec.word, node, reader);
    let all = |of: fn(&Stage) -> u64| spec.stages.iter().map(of).max().unwrap_or(1);
    super::spec::check_sizes(
        &[
            ("image", spec.image, 1 << 14),
            ("channels", spec.channels, 1 << 12),
            ("classes", spec.classes, 1 << 24),
            ("stem", spec.stem.width.max(spec.stem.window).max(spec.stem.stride), 1 << 14),
            ("stages", all(|s| s.width.max(s.out)), 1 << 20),
        ],
        node,
        reader,
    );
    let blocks: u64 = spec.stages.iter().map(|s| s.blocks.min(1 << 20)).sum();
    let pixels = spec.stages.len().min(64) as u32 + 1;
    let fault = match () {
        () if spec.stages.is_empty() => Some("expected at least one stage, found an empty list".into()),
        () if blocks > 1000 => Some(format!("expected at most 1000 blocks, found {blocks}")),
        () if spec.image / spec.stem.stride.max(1) < 1 << (pixels - 1).min(62) => {
            Some(format!("an image of {} pixels an edge cannot be halved so often", spec.image))
        }
        () => None,
    };
    if let Some(message) = fault {
        reader.within("stages", |r| r.problem(node.get("stages").unwrap_or(node), message));
    }
}

/// A tensor of the forward pass that others are made of: its index, channels and pixels of an edge.
#[derive(Debug, Clone, Copy)]
struct Image {
    tensor: usize,
    channels: u64,
    edge: u64,
}

impl Image {
    fn pixels(&self) -> u64 {
        self.edge * self.edge
    }
}

/// What the backward pass has to undo, in the order in which it was done.
#[derive(Debug, Clone)]
enum Done {
    /// A convolution: its kernel, and what it read and made.
    Convolution(usize, Image, Image),
    /// A batch norm.
    Norm(Image, Image),
    /// A rectifier.
    Rectifier(Image, Image),
    /// A maximum or a mean over pixels.
    Pool(Image, Image),
    /// A sum of two images.
    Sum([Image; 2], Image),
}

/// A network under construction.
struct Net {
    b: Builder,
    word: f64,
    done: Vec<Done>,
}

impl ResidualSpec {
    /// The graph of one image.
    pub fn build(&self) -> Workload {
        let mut net = Net { b: Builder::default(), word: self.word.0, done: Vec::new() };
        let tensor = net.b.tensor("image", self.channels, self.image * self.image, None);
        let image = Image { tensor, channels: self.channels, edge: self.image };
        let mut x = net.layer("stem", image, self.stem.width, self.stem.window, self.stem.stride, true);
        x = net.pool("stem_pool", x, x.edge.div_ceil(2));
        for (s, stage) in self.stages.iter().enumerate() {
            for block in 0..stage.blocks {
                let name = format!("s{}_b{}", s + 1, block + 1);
                let stride = if block == 0 && s > 0 { 2 } else { 1 };
                let narrow = net.layer(&format!("{name}_reduce"), x, stage.width, 1, 1, true);
                let filtered = net.layer(&format!("{name}_filter"), narrow, stage.width, 3, stride, true);
                let wide = net.layer(&format!("{name}_expand"), filtered, stage.out, 1, 1, false);
                let short = match block {
                    0 => net.layer(&format!("{name}_short"), x, stage.out, 1, stride, false),
                    _ => x,
                };
                let sum = net.sum(&format!("{name}_add"), [wide, short]);
                x = net.rectifier(&format!("{name}_relu"), sum);
            }
        }
        x = net.pool("mean", x, 1);
        let scores = net.convolution("classes", x, self.classes, 1, 1);
        net.b.tensors[scores.tensor].output = self.pass == Pass::Forward;
        if self.pass == Pass::Training {
            net.backward(image, scores);
        }
        Workload {
            name: self.name.clone(),
            kernels: net.b.kernels,
            tensors: net.b.tensors,
            repeat: 1,
            blocks: Vec::new(),
            word_bytes: self.word.0,
            global_batch: self.global_batch,
            micro_batch: self.micro_batch,
            training: self.pass == Pass::Training,
            held_bytes: 0.0,
            divided: Divided::Free,
            tokens_per_sample: None,
        }
    }
}

impl Net {
    /// A convolution with its norm and, where asked for, a rectifier.
    fn layer(&mut self, name: &str, x: Image, channels: u64, window: u64, stride: u64, rectified: bool) -> Image {
        let made = self.convolution(name, x, channels, window, stride);
        let normed = self.norm(&format!("{name}_norm"), made);
        if rectified { self.rectifier(&format!("{name}_relu"), normed) } else { normed }
    }

    fn convolution(&mut self, name: &str, x: Image, channels: u64, window: u64, stride: u64) -> Image {
        let (edge, area) = (x.edge.div_ceil(stride), window * window);
        let slot = if stride == 1 { Slot::Rhs } else { Slot::View };
        let shape = (1, channels, x.channels * area, edge * edge);
        let k = self.b.bare(name, Op::GemmWeight, Phase::Forward, shape);
        self.b.kernels[k].window = area;
        self.b.read(k, x.tensor, slot);
        let out = self.out(k, name, channels, edge);
        self.done.push(Done::Convolution(k, x, out));
        out
    }

    fn norm(&mut self, name: &str, x: Image) -> Image {
        let k = self.vector(name, Phase::Forward, x, &[x]);
        self.b.kernels[k].extra_dram_bytes = self.bytes(x);
        let out = self.out(k, name, x.channels, x.edge);
        self.done.push(Done::Norm(x, out));
        out
    }

    fn rectifier(&mut self, name: &str, x: Image) -> Image {
        let k = self.vector(name, Phase::Forward, x, &[x]);
        let out = self.out(k, name, x.channels, x.edge);
        self.done.push(Done::Rectifier(x, out));
        out
    }

    fn pool(&mut self, name: &str, x: Image, edge: u64) -> Image {
        let small = Image { edge, ..x };
        let k = self.b.bare(name, Op::Elementwise, Phase::Forward, (1, x.channels, 1, small.pixels()));
        self.b.read(k, x.tensor, Slot::View);
        self.b.kernels[k].flop = Some((x.channels * x.pixels()) as f64);
        let out = self.out(k, name, x.channels, edge);
        self.done.push(Done::Pool(x, out));
        out
    }

    fn sum(&mut self, name: &str, parts: [Image; 2]) -> Image {
        let k = self.vector(name, Phase::Forward, parts[0], &parts);
        let out = self.out(k, name, parts[0].channels, parts[0].edge);
        self.done.push(Done::Sum(parts, out));
        out
    }

    /// Vector work on an image that reads others of its size.
    fn vector(&mut self, name: &str, phase: Phase, size: Image, reads: &[Image]) -> usize {
        let k = self.b.bare(name, Op::Elementwise, phase, (1, size.channels, 1, size.pixels()));
        for read in reads {
            self.b.read(k, read.tensor, Slot::Data);
        }
        k
    }

    fn out(&mut self, kernel: usize, name: &str, channels: u64, edge: u64) -> Image {
        let tensor = self.b.tensor(format!("{name}.out"), channels, edge * edge, Some(kernel));
        Image { tensor, channels, edge }
    }

    fn bytes(&self, x: Image) -> f64 {
        (x.channels * x.pixels()) as f64 * self.word
    }

    /// The backward pass, from the gradient of the scores; nobody asks for that of the images.
    fn backward(&mut self, image: Image, scores: Image) {
        let mut given: Vec<(usize, Image)> = Vec::new();
        let tensor = self.b.tensor("scores.grad", scores.channels, scores.pixels(), None);
        given.push((scores.tensor, Image { tensor, ..scores }));
        for done in self.done.clone().into_iter().rev() {
            match done {
                Done::Convolution(k, x, out) => {
                    let Some(gradient) = self.gradient(&given, out) else { continue };
                    if x.tensor != image.tensor {
                        given.push((x.tensor, self.input_gradient(k, x, gradient)));
                    }
                    let parts = self.b.parts_of_gradient(k);
                    self.b.weight_gradient(k, parts, &[(x.tensor, Slot::View), (gradient.tensor, Slot::View)]);
                }
                Done::Norm(x, out) => {
                    let Some(gradient) = self.gradient(&given, out) else { continue };
                    let made = self.undone((x, out), &[gradient, x], 1.0);
                    given.push((x.tensor, made));
                }
                Done::Rectifier(x, out) => {
                    let Some(gradient) = self.gradient(&given, out) else { continue };
                    let made = self.undone((x, out), &[gradient, out], 0.0);
                    given.push((x.tensor, made));
                }
                Done::Pool(x, out) => {
                    let Some(gradient) = self.gradient(&given, out) else { continue };
                    let name = format!("{}_bwd", self.name(out));
                    let k = self.b.bare(&name, Op::Elementwise, Phase::BackwardInput, (1, x.channels, 1, x.pixels()));
                    self.b.read(k, gradient.tensor, Slot::View);
                    let made = self.out(k, &name, x.channels, x.edge);
                    given.push((x.tensor, made));
                }
                Done::Sum(parts, out) => {
                    let Some(gradient) = self.gradient(&given, out) else { continue };
                    given.extend(parts.map(|part| (part.tensor, gradient)));
                }
            }
        }
    }

    /// The gradient of a tensor: what its only reader gave back, or their sum.
    fn gradient(&mut self, given: &[(usize, Image)], of: Image) -> Option<Image> {
        let parts: Vec<Image> = given.iter().filter(|(t, _)| *t == of.tensor).map(|(_, image)| *image).collect();
        let (first, more) = parts.split_first()?;
        if more.is_empty() {
            return Some(*first);
        }
        let name = format!("{}_grad", self.name(of));
        let k = self.vector(&name, Phase::BackwardInput, of, &parts);
        Some(self.out(k, &name, of.channels, of.edge))
    }

    /// The gradient of what an elementwise kernel that made `out` read; `again` of its reads are made twice.
    fn undone(&mut self, (x, out): (Image, Image), reads: &[Image], again: f64) -> Image {
        let name = format!("{}_bwd", self.name(out));
        let k = self.vector(&name, Phase::BackwardInput, x, reads);
        self.b.kernels[k].extra_dram_bytes = again * reads.iter().map(|read| self.bytes(*read)).sum::<f64>();
        self.out(k, &name, x.channels, x.edge)
    }

    fn input_gradient(&mut self, k: usize, x: Image, gradient: Image) -> Image {
        let forward = self.b.kernels[k].clone();
        let name = format!("{}_bwd", forward.name);
        let shape = (1, x.channels, gradient.channels * forward.window, x.pixels());
        let kernel = self.b.bare(&name, Op::GemmWeight, Phase::BackwardInput, shape);
        let strided = gradient.edge != x.edge;
        self.b.read(kernel, gradient.tensor, if strided { Slot::View } else { Slot::Rhs });
        self.b.kernels[kernel].window = forward.window;
        self.b.kernels[kernel].weight_of = Some(WeightOf { kernel: k });
        self.b.kernels[kernel].flop = strided.then(|| forward.flop());
        self.out(kernel, &name, x.channels, x.edge)
    }

    fn name(&self, of: Image) -> String {
        self.b.tensors[of.tensor].name.trim_end_matches(".out").to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Kernel;
    use crate::model::compute::gradient_bytes;
    use crate::model::layout::Strategy;

    fn resnet50(pass: Pass) -> ResidualSpec {
        let stage = |blocks, width, out| Stage { blocks, width, out };
        ResidualSpec {
            kind: Kind::ResidualNetwork,
            name: "ResNet-50".into(),
            source: "assumed: test".into(),
            image: 224,
            channels: 3,
            stem: Stem { width: 64, window: 7, stride: 2 },
            stages: vec![stage(3, 64, 256), stage(4, 128, 512), stage(6, 256, 1024), stage(3, 512, 2048)],
            classes: 1000,
            pass,
            global_batch: 256,
            micro_batch: 32,
            word: Bytes(2.0),
        }
    }

    /// However the contraction is cut for the units, a weight has one gradient, of its size.
    #[test]
    fn gradients_are_as_large_as_weights() {
        let w = resnet50(Pass::Training).build().checked().unwrap();
        let weights: f64 = w.kernels.iter().filter(|k| k.owns_weight()).map(|k| k.weight_elements()).sum();
        let gradients = |k: &Kernel| gradient_bytes(k, Strategy::Replicate, 1, 1.0);
        assert_eq!(w.kernels.iter().map(gradients).sum::<f64>(), weights);
        assert!(w.kernels.iter().any(|k| k.splits > 1));
    }

    /// Table 1 of the paper has 3.8e9 multiply-adds for strides in the first 1x1; in the 3x3, as in version 1.5, there are 4.09e9. Weights of convolutions
    /// and classes: 25.5 million without biases and norms.
    #[test]
    fn resnet_50_has_its_work_and_weights() {
        let w = resnet50(Pass::Forward).build().checked().unwrap();
        let products: f64 = w.kernels.iter().filter(|k| k.is_gemm()).map(|k| k.flop()).sum();
        assert!((products / 2.0 / 4.089e9 - 1.0).abs() < 1e-3, "{products}");
        let weights: f64 = w.kernels.iter().filter(|k| k.owns_weight()).map(|k| k.weight_elements()).sum();
        assert!((weights / 25.50e6 - 1.0).abs() < 1e-3, "{weights}");
        // 53 convolutions and the classes; a norm each of the former.
        assert_eq!(w.kernels.iter().filter(|k| k.is_gemm()).count(), 54);
        assert_eq!(w.kernels.iter().filter(|k| k.name.ends_with("_norm")).count(), 53);
    }

    /// A plan names kernels and tensors: no two have one name.
    #[test]
    fn names_are_of_one() {
        let w = resnet50(Pass::Training).build().checked().unwrap();
        let kernels: std::collections::BTreeSet<&str> = w.kernels.iter().map(|k| k.name.as_str()).collect();
        let tensors: std::collections::BTreeSet<&str> = w.tensors.iter().map(|t| t.name.as_str()).collect();
        assert_eq!((kernels.len(), tensors.len()), (w.kernels.len(), w.tensors.len()));
    }

    /// Every product three times, less the gradient of the images.
    #[test]
    fn training_has_three_times_the_products() {
        let flop = |pass| {
            let w = resnet50(pass).build().checked().unwrap();
            w.kernels.iter().filter(|k| k.is_gemm()).map(|k| k.flop()).sum::<f64>()
        };
        let stem = 2.0 * 64.0 * 147.0 * 112.0 * 112.0;
        assert!((flop(Pass::Training) - (3.0 * flop(Pass::Forward) - stem)).abs() < 1.0);
    }
}
