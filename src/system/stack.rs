//! Software between a model and the chips: what it fuses, what its host code costs, how it communicates.
//!
//! A stack file (`systems/stacks/*.yaml`) is one piece of software as it was run, with its calibrated times; a system names it
//! under `stack`. Without one the software is generic ([`super::Chip::generic`]): what current software of that kind of chip does.

use super::serving::Serving;
use super::source::{Source, check_sources};
use super::{Style, System};
use crate::spec::{
    Loader, Node, Reader, Value, catalogue,
    nearest::meant,
    read::{Fraction, Ref, Share, Table},
};
use crate::units::{Bytes, Seconds};
use std::path::Path;
use std::sync::LazyLock;

crate::choice! {
    /// How the attention core runs.
    pub enum Attention ("an attention") {
        /// Scores, softmax and dropout as kernels that each go through memory.
        Unfused = "unfused",
        /// One kernel that keeps scores on chip and skips what the mask hides (Dao 2023, arXiv 2307.08691).
        Flash = "flash",
    }
}

crate::choice! {
    /// What passes from stage to stage.
    pub enum HandOver ("a hand-over between stages") {
        /// Every tensor-parallel chip sends the whole activation.
        Whole = "whole",
        /// Each sends its part, gathered behind (Narayanan et al. 2021, arXiv 2104.04473, section 4.1).
        Scattered = "scattered",
    }
}

crate::choice! {
    /// What selective recomputation computes again.
    pub enum Selective ("what selective recomputation computes again") {
        /// The attention core (Korthikanti et al. 2022, arXiv 2205.05198, section 5).
        Attention = "attention",
        /// All but the attention core and every second product (PyTorch's selective activation checkpointing as torchtitan sets it).
        HalfOfProducts = "half_of_products",
    }
}

crate::spec! {
    /// A software stack. Times of the host are those of its code for one chip; it runs ahead of the device, so that of host and
    /// device the slower counts, by a smooth maximum (host^e + device^e)^(1/e).
    pub struct Stack ("a software stack", check: check) {
        /// Name for rows and titles.
        name: String,
        /// Where each number comes from.
        source: Source,
        /// Host time of a layer's forward pass.
        host_layer_forward: Seconds = Seconds(0.0),
        /// Host time of a layer's backward pass.
        host_layer_backward: Seconds = Seconds(0.0),
        /// Host time of computing a whole layer again.
        host_layer_recompute: Seconds = Seconds(0.0),
        /// Host time of computing the attention core again.
        host_attention_recompute: Seconds = Seconds(0.0),
        /// Host time of each pass of a layer with experts beyond that of a plain one: routing, permutation, dispatch, products in groups.
        host_experts: Seconds = Seconds(0.0),
        /// Bytes for each token that is sent to an expert, in each pass, beside those of its channels.
        token_sent: Bytes = Bytes(0.0),
        /// Host time of a tensor-parallel collective for each peer in the box.
        host_collective_peer: Seconds = Seconds(0.0),
        /// Host time of a microbatch that nothing hides.
        host_microbatch: Seconds = Seconds(0.0),
        /// Host time of a hand-over between stages that nothing hides.
        host_hand_over: Seconds = Seconds(0.0),
        /// Host time of an iteration that nothing hides.
        host_iteration: Seconds = Seconds(0.0),
        /// Exponent e of the smooth maximum of host and device.
        host_exponent: f64 = 2.0,
        /// Time of a collective that chips wait for, beyond its bytes and hops.
        collective_overhead: Seconds = Seconds(0.0),
        /// Share of the backward pass's tensor-parallel collectives that runs beside the weights' gradients; what the execution's
        /// `overlap_tp` hides comes on top.
        collectives_beside_gradients: Share = Share(0.0),
        /// How the attention core runs.
        attention: Attention = Attention::Flash,
        /// Which of the chip's `fused_attention` kernels it runs; left out, or not among them: the chip's first.
        attention_kernel: Option<String>,
        /// Which of the chip's `libraries` of products it runs; left out, or not among them: products reach what the chip states.
        product_library: Option<String>,
        /// Share of the chip's rate of products that it reaches: what compilers leave of the peak beside what kernels can.
        product_share: Fraction = Fraction(1.0),
        /// Share of the memory's rate that it reaches in serving and in kernels by themselves, of what the chip's kernels can.
        memory_share: Fraction = Fraction(1.0),
        /// Rate of products in groups (the experts of a chip) relative to others.
        grouped_share: Fraction = Fraction(1.0),
        /// Bytes that norms, residuals and dropouts move over the least (each input read and each output written once).
        elementwise: f64 = 1.0,
        /// Bytes moved for each number of an activation that is converted to a narrower type for products: read, written, and written again transposed,
        /// less what kernels before it do on the way.
        conversion: Bytes = Bytes(4.0),
        /// What selective recomputation computes again.
        selective: Selective = Selective::Attention,
        /// Vector kernels of a layer's forward pass, attention core apart.
        vector_kernels_forward: u64 = 9,
        /// Vector kernels of a layer's backward pass, attention core apart.
        vector_kernels_backward: u64 = 14,
        /// Vector kernels of an unfused attention core, each way.
        attention_kernels: u64 = 3,
        /// Vector kernels of routing to experts and back, each way.
        expert_kernels: u64 = 8,
        /// Passes over the hidden activation by the embedding, forward and backward together.
        embedding_passes: f64 = 6.0,
        /// Kernels of the embedding, forward and backward together.
        embedding_kernels: u64 = 6,
        /// Passes over the hidden activation by the last norm, forward and backward together.
        head_passes: f64 = 8.0,
        /// Kernels of the last norm, forward and backward together.
        head_kernels: u64 = 4,
        /// Bytes moved for each score of the vocabulary by the loss, forward and backward together.
        logit_traffic: Bytes = Bytes(22.0),
        /// Kernels of the loss, forward and backward together.
        logit_kernels: u64 = 8,
        /// Bytes held for each score of the vocabulary at the loss: the score in the activations' type, in 32 bits, and the gradient of that, as far as
        /// the loss does not do with less.
        logit_memory: Bytes = Bytes(4.0),
        /// Rate of the vocabulary's products relative to others where they are not divided among chips.
        unsharded_head: Fraction = Fraction(1.0),
        /// Bytes moved for each weight and microbatch to add its gradient up.
        gradient_accumulation: Bytes = Bytes(4.0),
        /// Bytes moved for each weight by the optimiser; left out, or where they are fewer: those that its states, weights and gradients have.
        optimizer_traffic: Option<Bytes>,
        /// Bytes of one gradient in the reduction among replicas; left out: the gradients' type.
        gradient_reduction: Option<Bytes>,
        /// What passes from stage to stage.
        hand_over: HandOver = HandOver::Scattered,
        /// Whether it can reduce gradients beside the backward pass.
        overlap_dp: bool = true,
        /// Whether it can run tensor-parallel collectives beside products.
        overlap_tp: bool = true,
        /// Whether hidden activations that tensor-parallel chips gather are converted to the narrower type before that, each chip's own tokens alone.
        converts_before_gather: bool = false,
        /// Whether an interleaved schedule hands over between stages beside the passes of other pieces.
        overlap_hand_over: bool = false,
        /// What a second of a collective among replicas that runs beside work delays that work by, as its kernels take units and memory bandwidth.
        hidden_delays: Share = Share(0.0),
        /// Whether it runs the exchange of tokens among experts beside the products of another microbatch.
        overlap_ep: bool = false,
        /// Whether a token is sent to a box once however many of its experts are there, and spread within.
        experts_once_a_box: bool = false,
        /// Memory that the software holds beside the model (contexts, communicators, fragments).
        memory_reserve: Bytes = Bytes(0.0),
        /// Memory that its allocator holds in fragments, as a share of what comes and goes in a step: activations, scores, buffers.
        fragments: Share = Share(0.0),
        /// Whether gradients are freed after a step, so that without adding up over microbatches none are held while activations grow.
        frees_gradients: bool = false,
        /// Whether tensor-parallel chips keep what they gather of divided sequences for the backward pass, instead of gathering it again.
        keeps_gathered: bool = false,
        /// Bytes that a norm keeps for each channel beside its input and its result in the activations' type: copies in 32 bits of norms that are written operator by operator.
        norm_memory: Bytes = Bytes(0.0),
        /// Bytes kept of each input of products with frozen weights that are stored in fewer bits than they compute in; other frozen weights keep none.
        narrow_input_memory: Bytes = Bytes(0.0),
        /// How it serves language models, for inference; left out: as generic software of its kind of chip, and where there is none as ideal software.
        serving: Option<Serving>,
        /// Host time of one operator that is called by itself and waited for (matmul, softmax, layernorm, gelu, attention), as microbenchmarks do.
        operators: Option<Table<Seconds>>,
        /// Whether such operators are called one after the other, so that the host of one runs beside the kernel of another and the slower counts.
        operators_queued: bool = false,
    }
}

/// Fields that are numbers.
const NUMBERS: [&str; 54] = [
    "overlap_hand_over",
    "hidden_delays",
    "fragments",
    "frees_gradients",
    "keeps_gathered",
    "norm_memory",
    "narrow_input_memory",
    "memory_share",
    "grouped_share",
    "experts_once_a_box",
    "overlap_ep",
    "converts_before_gather",
    "logit_memory",
    "host_experts",
    "token_sent",
    "conversion",
    "selective",
    "product_share",
    "host_layer_forward",
    "host_layer_backward",
    "host_layer_recompute",
    "host_attention_recompute",
    "host_collective_peer",
    "host_microbatch",
    "host_hand_over",
    "host_iteration",
    "host_exponent",
    "collective_overhead",
    "collectives_beside_gradients",
    "attention",
    "attention_kernel",
    "product_library",
    "elementwise",
    "vector_kernels_forward",
    "vector_kernels_backward",
    "attention_kernels",
    "expert_kernels",
    "embedding_passes",
    "embedding_kernels",
    "head_passes",
    "head_kernels",
    "logit_traffic",
    "logit_kernels",
    "unsharded_head",
    "gradient_accumulation",
    "optimizer_traffic",
    "gradient_reduction",
    "hand_over",
    "overlap_dp",
    "overlap_tp",
    "memory_reserve",
    "serving",
    "operators",
    "operators_queued",
];

fn check(stack: &Stack, node: &Node, reader: &mut Reader) {
    check_sources(&stack.source, &NUMBERS, node, reader);
    let mut say = |field: &str, message: String| {
        let at = node.get(field).unwrap_or(node).clone();
        reader.within(field, |r| r.problem(&at, message));
    };
    // Larger exponents are the plain maximum, and powers of times leave the range of floating point.
    if !(1.0..=16.0).contains(&stack.host_exponent) {
        say("host_exponent", format!("expected 1 (sum) to 16 (as good as the maximum), found {}", stack.host_exponent));
    }
    for (field, value) in [
        ("elementwise", stack.elementwise),
        ("embedding_passes", stack.embedding_passes),
        ("head_passes", stack.head_passes),
    ] {
        if value > 1000.0 {
            say(field, format!("expected at most 1000, found {value}"));
        }
    }
}

/// What a stack takes of the chip it runs on by a name: its own field, the section of `kernels` that lists them, what one is called, and what stands for one that the chip lacks.
const NAMED: [(&str, &str, &str, &str); 2] = [
    ("attention_kernel", "fused_attention", "an attention kernel", "the first of these"),
    ("product_library", "libraries", "a library of products", "what the chip states without"),
];

/// Names in a section of the kernels of all chips of the catalogue.
fn known(section: usize) -> &'static [String] {
    static NAMES: LazyLock<[Vec<String>; 2]> = LazyLock::new(|| {
        let mut names = [Vec::new(), Vec::new()];
        for entry in catalogue::entries().iter().filter(|entry| entry.kind == catalogue::Kind::Chip) {
            let chip = Loader.load(&entry.file(), None).and_then(|node| Loader.expand(&node, ""));
            let kernels = chip.ok().and_then(|chip| chip.get("kernels").cloned());
            for (names, (_, section, ..)) in names.iter_mut().zip(NAMED) {
                let listed = kernels.as_ref().and_then(|kernels| kernels.get(section).cloned());
                if let Some(Value::Map(entries)) = listed.map(|listed| listed.value) {
                    names.extend(entries.into_iter().map(|(name, ..)| name));
                }
            }
        }
        for names in &mut names {
            names.sort();
            names.dedup();
        }
        names
    });
    &NAMES[section]
}

/// A name that neither the system's chip nor any of the catalogue has is a slip. One that other chips alone have is none: stacks run on chips of several kinds.
pub(super) fn check_names(system: &System, node: &Node, reader: &mut Reader) {
    let (Some(stack), Some(kernels)) = (&system.stack, &system.chip.0.kernels) else { return };
    let attention: Vec<&str> = kernels.fused_attention.0.iter().map(|(own, _)| own.as_str()).collect();
    let libraries: Vec<&str> = kernels.libraries.0.iter().map(|(own, _)| own.as_str()).collect();
    let asked = [&stack.0.attention_kernel, &stack.0.product_library];
    for (i, (own, name)) in [attention, libraries].into_iter().zip(asked).enumerate() {
        let ((field, _, what, instead), Some(name)) = (NAMED[i], name) else { continue };
        if (own.is_empty() && i == 0) || own.contains(&name.as_str()) || known(i).contains(name) {
            continue;
        }
        let others: Vec<&str> = known(i).iter().map(String::as_str).filter(|other| !own.contains(other)).collect();
        let all: Vec<&str> = own.iter().chain(&others).copied().collect();
        // The stack is read from its file once more for the line.
        let stated = node.get("stack").and_then(|at| Loader.expand(at, "stack").ok());
        let at = stated.as_ref().and_then(|stack| stack.get(field)).unwrap_or(node).clone();
        let has = if own.is_empty() { "none".into() } else { own.join(", ") };
        reader.within(format!("stack.{field}"), |r| {
            r.problem(
                &at,
                format!(
                    "expected {what} of the chip {} ({has}), or one of another chip ({}), which stands for {instead}, found {name:?}{}",
                    system.chip.0.name,
                    others.join(", "),
                    meant(name, &all)
                ),
            );
        });
    }
}

impl Stack {
    /// Software that costs nothing: no host time, fused elementwise chains and attention, communicators without memory.
    pub fn ideal() -> Self {
        Self {
            name: "ideal".into(),
            source: Source::All("assumed: software without cost".into()),
            host_layer_forward: Seconds(0.0),
            host_layer_backward: Seconds(0.0),
            host_layer_recompute: Seconds(0.0),
            host_attention_recompute: Seconds(0.0),
            host_experts: Seconds(0.0),
            token_sent: Bytes(0.0),
            host_collective_peer: Seconds(0.0),
            host_microbatch: Seconds(0.0),
            host_hand_over: Seconds(0.0),
            host_iteration: Seconds(0.0),
            host_exponent: 2.0,
            collective_overhead: Seconds(0.0),
            collectives_beside_gradients: Share(0.0),
            attention: Attention::Flash,
            attention_kernel: None,
            product_library: None,
            product_share: Fraction(1.0),
            memory_share: Fraction(1.0),
            grouped_share: Fraction(1.0),
            elementwise: 1.0,
            conversion: Bytes(4.0),
            selective: Selective::Attention,
            vector_kernels_forward: 9,
            vector_kernels_backward: 14,
            attention_kernels: 3,
            expert_kernels: 8,
            embedding_passes: 6.0,
            embedding_kernels: 6,
            head_passes: 8.0,
            head_kernels: 4,
            logit_traffic: Bytes(22.0),
            logit_kernels: 8,
            logit_memory: Bytes(4.0),
            unsharded_head: Fraction(1.0),
            gradient_accumulation: Bytes(4.0),
            optimizer_traffic: None,
            gradient_reduction: None,
            hand_over: HandOver::Scattered,
            overlap_dp: true,
            overlap_tp: true,
            converts_before_gather: false,
            overlap_hand_over: false,
            hidden_delays: Share(0.0),
            overlap_ep: false,
            experts_once_a_box: false,
            memory_reserve: Bytes(0.0),
            fragments: Share(0.0),
            frees_gradients: false,
            keeps_gathered: false,
            norm_memory: Bytes(0.0),
            narrow_input_memory: Bytes(0.0),
            serving: None,
            operators: None,
            operators_queued: false,
        }
    }

    /// Software without a host that reaches of every number the best of what ideal software and the `known` reach, and can what any of them can.
    pub fn best_of<'a>(known: impl Iterator<Item = &'a Self>) -> Self {
        let mut best = Self { name: "free".into(), ..Self::ideal() };
        for one in known {
            let least = |a: Bytes, b: Bytes| Bytes(a.0.min(b.0));
            let either = |a: Option<Bytes>, b: Option<Bytes>| match (a, b) {
                (Some(a), Some(b)) => Some(least(a, b)),
                (a, b) => a.or(b),
            };
            best = Self {
                collectives_beside_gradients: Share(
                    best.collectives_beside_gradients.0.max(one.collectives_beside_gradients.0),
                ),
                elementwise: best.elementwise.min(one.elementwise),
                token_sent: Bytes(best.token_sent.0.min(one.token_sent.0)),
                vector_kernels_forward: best.vector_kernels_forward.min(one.vector_kernels_forward),
                vector_kernels_backward: best.vector_kernels_backward.min(one.vector_kernels_backward),
                attention_kernels: best.attention_kernels.min(one.attention_kernels),
                expert_kernels: best.expert_kernels.min(one.expert_kernels),
                embedding_passes: best.embedding_passes.min(one.embedding_passes),
                embedding_kernels: best.embedding_kernels.min(one.embedding_kernels),
                head_passes: best.head_passes.min(one.head_passes),
                head_kernels: best.head_kernels.min(one.head_kernels),
                logit_traffic: least(best.logit_traffic, one.logit_traffic),
                logit_kernels: best.logit_kernels.min(one.logit_kernels),
                gradient_accumulation: least(best.gradient_accumulation, one.gradient_accumulation),
                optimizer_traffic: match (best.optimizer_traffic, one.optimizer_traffic) {
                    (Some(a), Some(b)) => Some(least(a, b)),
                    (a, b) => a.or(b),
                },
                grouped_share: Fraction(best.grouped_share.0.max(one.grouped_share.0)),
                conversion: least(best.conversion, one.conversion),
                logit_memory: least(best.logit_memory, one.logit_memory),
                converts_before_gather: best.converts_before_gather || one.converts_before_gather,
                overlap_hand_over: best.overlap_hand_over || one.overlap_hand_over,
                overlap_ep: best.overlap_ep || one.overlap_ep,
                experts_once_a_box: best.experts_once_a_box || one.experts_once_a_box,
                frees_gradients: best.frees_gradients || one.frees_gradients,
                serving: Some(Serving::best_of(best.serving, one.serving)),
                gradient_reduction: either(best.gradient_reduction, one.gradient_reduction),
                ..best
            };
        }
        best
    }

    /// What current software of chips of a style does in general, from the catalogue; of a chip [`super::Chip::generic`].
    pub fn generic(style: Style) -> &'static Ref<Self> {
        static STACKS: LazyLock<[Ref<Stack>; 2]> = LazyLock::new(|| {
            ["generic", "generic-dataflow"].map(|name| {
                let path = format!("{}systems/stacks/{name}.yaml", catalogue::SCHEME);
                let node = Loader.load(Path::new(&path), None).ok();
                // Both are compiled in, and a test reads them.
                Ref(node.and_then(|node| Reader::read(&node).ok()).unwrap_or_else(Stack::ideal))
            })
        });
        match style {
            Style::KernelByKernel => &STACKS[0],
            Style::Dataflow => &STACKS[1],
        }
    }

    /// Seconds of host and device together: the smooth maximum.
    pub fn host_and_device(&self, host: f64, device: f64) -> f64 {
        let most = host.max(device);
        if most <= 0.0 {
            return 0.0;
        }
        // Scaled, so that powers stay in range.
        let e = self.host_exponent;
        most * ((host / most).powf(e) + (device / most).powf(e)).powf(1.0 / e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smooth_maximum_by_hand() {
        let stack = Stack { host_exponent: 2.0, ..Stack::ideal() };
        assert!((stack.host_and_device(3.0, 4.0) - 5.0).abs() < 1e-12);
        assert_eq!(stack.host_and_device(0.0, 4.0), 4.0);
        assert_eq!(stack.host_and_device(0.0, 0.0), 0.0);
        let sharp = Stack { host_exponent: 16.0, ..Stack::ideal() };
        assert!((sharp.host_and_device(1.0, 4.0) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn generic_software_is_there_for_both_styles() {
        let names = [Style::KernelByKernel, Style::Dataflow].map(|style| Stack::generic(style).0.name.as_str());
        assert_eq!(names, ["generic", "generic dataflow software"]);
    }

    #[test]
    fn a_file_with_nothing_but_name_and_source_is_ideal_software() {
        let node = Node::parse("s.yaml", "{name: ideal, source: 'assumed: software without cost'}").unwrap();
        assert_eq!(Reader::read::<Stack>(&node).unwrap(), Stack::ideal());
        let bad = Node::parse("s.yaml", "{name: x, source: {elementwise: 'assumed: x'}, host_exponent: 0.5}").unwrap();
        let errors = Reader::read::<Stack>(&bad).unwrap_err().to_string();
        assert!(errors.contains("no source") && errors.contains("expected 1 (sum)"), "{errors}");
    }
}
