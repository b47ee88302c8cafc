//! How long the kernels of a graph take on a chip: the one place where a graph meets the chip's way to compute.
//!
//! A chip file says which way holds ([`Efficiency`]):
//!
//! | `efficiency` | arithmetic of a kernel | DRAM traffic | from one kernel to the next |
//! |---|---|---|---|
//! | a share u | FLOP / (u peak) | at the memory's bandwidth | `launch_overhead` |
//! | `lanes_stages` | cycles of whole lanes and stages on the cores given to it | the same | the same |
//! | none, but `kernels` | tiles in waves over the units ([`super::kernel_time`]) | at the share of it that kernels reach | `kernels.launch` |
//!
//! By waves a kernel is what a library of a GPU or TPU launches: all samples of a microbatch in one product, tiles chosen inside it. The
//! graph's tile count then has nothing to decide, and what the chip's SRAM holds is the library's affair. With b samples in a pass the
//! product of a weight has b times the columns, a weight's gradient b times the contracted size, and a product of two tensors is
//! made b times side by side. Training runs at what the chip sustains with whichever of its libraries reaches most, inference at what short steps reach
//! ([`Burst`](crate::system::kernels::Burst)). Vector work is its bytes, and its elements at the vector peak.
//!
//! Lanes and stages are those of words of 16 bits. Of other words they do as much as the chip's peak for these is of its peak for 16 bits (`kernels.peak`): IPUs a quarter
//! in fp32. A chip that states peaks, but none for wider words, does not compute these ([`fault`]); one that states none is taken at its lanes, whatever the words, and so
//! is every chip under DFModel's semantics.

use super::compute::{
    CoreOption, Tiling, ceil_div, core_options, lanes_peak, least_core_seconds, local, peak, seconds_at_efficiency,
};
use super::kernel_time::{KernelTimes, Product};
use super::layout::Strategy;
use crate::graph::{Axis, Kernel, Op, Workload};
use crate::system::kernels::Kernels;
use crate::system::options::{Charge, ModelOptions, Preset};
use crate::system::{Chip, Efficiency, System};
use std::borrow::Cow;

/// Compute time of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub enum Compute {
    /// Fixed: kernels of a partition add up.
    Seconds(f64),
    /// By the cores given to it: kernels of a partition run at once, the slowest counts.
    Cores(Vec<CoreOption>),
}

/// The kernels of a chip by waves, in the type of a graph's words.
#[derive(Debug, Clone)]
struct Waves {
    times: KernelTimes,
    /// FLOP/s of the best product with a weight, and of the batched products of two tensors.
    product: f64,
    batched: f64,
    /// FLOP/s of vector work.
    vector: f64,
}

/// How a chip computes words of one size.
#[derive(Debug, Clone)]
struct Way<'a> {
    /// The chip, with the frequency at which its lanes do these words.
    chip: Cow<'a, Chip>,
    /// Of a chip that computes by waves.
    waves: Option<Waves>,
}

/// How a chip computes the kernels of a workload, and what of its memory they reach.
#[derive(Debug, Clone)]
pub struct Rate<'a> {
    options: &'a ModelOptions,
    /// The graph's words.
    usual: Way<'a>,
    /// Other words that kernels state; of chips whose libraries compute by waves, where these have a peak for them.
    others: Vec<(f64, Way<'a>)>,
    /// DRAM traffic that kernels reach, bytes/s.
    pub dram_bytes_per_s: f64,
    /// Seconds from one partition to the next.
    pub launch_s: f64,
    /// SRAM that a partition may fill, bytes; without end where libraries fill it.
    pub sram_bytes: f64,
}

/// Bytes of the words that a chip's figures are for where no workload says otherwise.
pub const HALF: f64 = 2.0;

/// The data types whose words have so many bytes; a chip computes in the fastest of them that it states.
fn types(word_bytes: f64) -> &'static [&'static str] {
    match word_bytes {
        w if w <= 1.0 => &["fp8", "int8"],
        w if w <= 2.0 => &["fp16", "bf16"],
        w if w <= 4.0 => &["fp32"],
        _ => &["fp64"],
    }
}

/// The type that a chip computes words of so many bytes in, and its peak in FLOP/s.
fn type_and_peak(kernels: &Kernels, word_bytes: f64) -> Option<(&'static str, f64)> {
    let stated = types(word_bytes).iter().filter_map(|t| kernels.peak_of(t).map(|p| (*t, p)));
    stated.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// What lanes and stages do in words of so many bytes, as a part of what they do in 16 bits. `None` where the chip states peaks, but none for these.
fn share_of_lanes(chip: &Chip, options: &ModelOptions, word_bytes: f64) -> Option<f64> {
    let peaks = chip.kernels.as_ref().filter(|_| options.preset != Preset::Dfmodel);
    let Some((kernels, (_, half))) = peaks.and_then(|k| Some((k, type_and_peak(k, HALF)?))) else { return Some(1.0) };
    match type_and_peak(kernels, word_bytes) {
        Some((_, peak)) => Some(peak / half),
        // Narrower words take the lanes of wider ones.
        None => (word_bytes <= HALF).then_some(1.0),
    }
}

/// Whether a chip computes words of so many bytes.
pub fn has_words(chip: &Chip, options: &ModelOptions, word_bytes: f64) -> bool {
    match chip.waves() {
        Some(kernels) => type_and_peak(kernels, word_bytes).is_some(),
        None => share_of_lanes(chip, options, word_bytes).is_some(),
    }
}

/// The same for vector work, which runs in words without a peak too: as many bytes a cycle go through a lane as of 16-bit words.
fn share_of_vectors(chip: &Chip, options: &ModelOptions, word_bytes: f64) -> f64 {
    share_of_lanes(chip, options, word_bytes).unwrap_or(HALF / word_bytes)
}

/// The chip with the frequency at which its lanes do words of so many bytes.
fn at_words<'a>(chip: &'a Chip, options: &ModelOptions, word_bytes: f64) -> Cow<'a, Chip> {
    let share = share_of_vectors(chip, options, word_bytes);
    if share == 1.0 {
        return Cow::Borrowed(chip);
    }
    let mut slower = chip.clone();
    slower.frequency.0 *= share;
    Cow::Owned(slower)
}

/// Peak of one chip in FLOP/s for words of so many bytes: what utilisation is measured against.
pub fn chip_peak(chip: &Chip, options: &ModelOptions, word_bytes: f64) -> f64 {
    match chip.waves().and_then(|kernels| type_and_peak(kernels, word_bytes)) {
        Some((_, peak)) => peak,
        None => lanes_peak(chip, options) * share_of_vectors(chip, options, word_bytes),
    }
}

/// Bytes of the words that a workload computes with: those that all of its kernels state, where these are the same, else the graph's.
pub fn computed_word(workload: &Workload) -> f64 {
    let mut stated = workload.kernels.iter().map(|k| k.word);
    let first = stated.next().flatten();
    first.filter(|_| stated.all(|word| word == first)).unwrap_or(workload.word_bytes)
}

/// Peak of the whole system in FLOP/s for the words of a workload.
pub fn system_peak(workload: &Workload, system: &System) -> f64 {
    let chip = chip_peak(&system.chip.0, &system.model, computed_word(workload));
    chip * system.chip_count() as f64
}

/// Why a system cannot compute a workload: its chip states no peak for the workload's words.
pub fn fault(workload: &Workload, system: &System) -> Option<String> {
    let chip = &system.chip.0;
    let kernels = chip.kernels.as_ref()?;
    let lacking = |word: &f64| !has_words(chip, &system.model, *word);
    // Vector work of words without a peak runs as that of the graph's.
    let mut words = workload.kernels.iter().filter_map(|k| match k.word {
        Some(word) => (k.is_gemm() && !k.lookup).then_some(word),
        None => Some(workload.word_bytes),
    });
    let word = words.find(lacking)?;
    let there: Vec<&str> = kernels.peak.0.iter().map(|(word, _)| word.as_str()).collect();
    Some(format!(
        "chip {}: kernels.peak states none of {} for the workload's words of {} B (it has {}): add the peak",
        chip.name,
        types(word).join(", "),
        word,
        there.join(", ")
    ))
}

impl<'a> Rate<'a> {
    /// Of the chips of a system with the words of a workload.
    pub fn of(workload: &Workload, system: &'a System) -> Self {
        let mut rate = Self::with(system, workload.word_bytes, workload.training);
        for word in workload.kernels.iter().filter_map(|k| k.word) {
            let known = word == workload.word_bytes || rate.others.iter().any(|(w, _)| *w == word);
            if !known && (system.chip.0.waves().is_none() || has_words(&system.chip.0, &system.model, word)) {
                rate.others.push((word, Self::with(system, word, workload.training).usual));
            }
        }
        rate
    }

    /// The way of a kernel: that of its own words; where a chip that computes by waves states no peak for them (vector work alone) that of the graph's.
    fn way_of(&self, kernel: &Kernel) -> &Way<'a> {
        let own = kernel.word.and_then(|word| self.others.iter().find(|(w, _)| *w == word));
        own.map_or(&self.usual, |(_, way)| way)
    }

    /// FLOP/s that a kernel reaches at most.
    pub fn peak(&self, kernel: &Kernel) -> f64 {
        let way = self.way_of(kernel);
        way.waves.as_ref().map_or_else(|| peak(&way.chip, kernel, self.options), |waves| waves.rate(kernel))
    }

    /// Of the chips of a system with words of so many bytes, in training or in the short steps of inference.
    pub fn with(system: &'a System, word_bytes: f64, training: bool) -> Self {
        let (chip, options) = (&system.chip.0, &system.model);
        let bandwidth = system.memory.0.bandwidth.0;
        let charged = |seconds: f64| if options.latencies == Charge::Charged { seconds } else { 0.0 };
        let Some(kernels) = chip.waves() else {
            let sram_bytes = if options.sram_limit == Charge::Charged { chip.sram.0 } else { f64::INFINITY };
            let launch_s = charged(chip.launch_overhead.0);
            return Self {
                options,
                usual: Way { chip: at_words(chip, options, word_bytes), waves: None },
                others: Vec::new(),
                dram_bytes_per_s: bandwidth,
                launch_s,
                sram_bytes,
            };
        };
        // Without a peak nothing is computed ([`fault`] says so before anything is asked).
        let (word, peak) = type_and_peak(kernels, word_bytes).unwrap_or(("", 0.0));
        let (times, product, batched) = match training {
            // A graph names no software: what is possible, so the library of products that reaches most.
            true => {
                (KernelTimes::new(kernels, bandwidth), kernels.best_efficiency_of(word), kernels.batched_efficiency.0)
            }
            false => {
                let burst = kernels.burst_of(word);
                (KernelTimes::burst(kernels, &burst, bandwidth, 0.0), burst.efficiency.0, burst.batched_efficiency.0)
            }
        };
        let dram_bytes_per_s = times.bandwidth();
        let vector = chip.vector_peak.map_or(peak, |v| v.0);
        let waves = Waves { times, product: peak * product, batched: peak * batched, vector };
        let launch_s = charged(kernels.launch.0);
        Self {
            options,
            usual: Way { chip: Cow::Borrowed(chip), waves: Some(waves) },
            others: Vec::new(),
            dram_bytes_per_s,
            launch_s,
            sram_bytes: f64::INFINITY,
        }
    }

    /// Whether kernels choose their tiles by themselves, so that the graph's tile count decides nothing.
    pub fn chooses_tiles(&self) -> bool {
        self.usual.waves.is_some()
    }

    /// Whether partitions are pipelines of tiles whose filling and draining counts.
    pub fn fills(&self) -> bool {
        self.options.pipeline_filling == Charge::Charged && self.usual.chip.pipelines_tiles()
    }

    /// Arithmetic of a kernel under `strategy` in a group of `t` chips, for all `tiles` tiles of `samples` samples.
    pub fn compute(&self, kernel: &Kernel, strategy: Strategy, t: u64, tiles: u64, samples: f64) -> Compute {
        let way = self.way_of(kernel);
        if let Some(waves) = &way.waves {
            return Compute::Seconds(waves.seconds(kernel, strategy, t, samples));
        }
        let (chip, here) = (&*way.chip, local(kernel, strategy, t, Tiling::new(tiles, self.options)));
        match chip.efficiency {
            Efficiency::Constant(u) => {
                Compute::Seconds(samples * seconds_at_efficiency(chip, kernel, &here, u.0, self.options))
            }
            _ => {
                let options = core_options(chip, kernel, &here);
                Compute::Cores(options.into_iter().map(|o| CoreOption { seconds: o.seconds * samples, ..o }).collect())
            }
        }
    }

    /// Seconds of a kernel's arithmetic for one sample on one chip that nothing beats, however it is cut.
    pub fn least_seconds(&self, kernel: &Kernel) -> f64 {
        let way = self.way_of(kernel);
        if let Some(waves) = &way.waves {
            return kernel.flop() / waves.rate(kernel);
        }
        let chip = &*way.chip;
        match (chip.efficiency, kernel.flop) {
            (Efficiency::Constant(u), _) => {
                kernel.flop() / (self.options.precision.round(u.0) * peak(chip, kernel, self.options))
            }
            // Stated FLOP do not tell the cycles of lanes and stages.
            (_, Some(_)) => least_core_seconds(chip, kernel),
            (_, None) => kernel.flop() / peak(chip, kernel, self.options),
        }
    }
}

impl Rate<'_> {
    /// Seconds of work of which only FLOP and bytes are known, matrix work or not, from one launch to the next: its arithmetic or its
    /// traffic, whichever takes longer (the roofline: Williams, Waterman and Patterson, CACM 2009). `None` where the chip states no peak for
    /// the words. Lanes and stages count at their full peak.
    pub fn roofline(&self, matrix: bool, flop: f64, bytes: f64) -> Option<f64> {
        let Way { chip, waves } = &self.usual;
        let lanes = || lanes_peak(chip, self.options);
        let rate = match (waves, chip.efficiency, chip.vector_peak) {
            (Some(waves), _, _) if matrix => waves.product,
            (Some(waves), _, _) => waves.vector,
            (None, efficiency, vector) => {
                let share = if let Efficiency::Constant(u) = efficiency { u.0 } else { 1.0 };
                share * vector.filter(|_| !matrix).map_or_else(lanes, |v| v.0)
            }
        };
        (rate > 0.0).then(|| (flop / rate).max(bytes / self.dram_bytes_per_s) + self.launch_s)
    }
}

impl Waves {
    /// FLOP/s of a kernel at its best.
    fn rate(&self, kernel: &Kernel) -> f64 {
        match kernel.op {
            _ if kernel.lookup => self.vector,
            Op::GemmWeight => self.product,
            Op::Gemm if kernel.weight_of.is_some() => self.product,
            Op::Gemm => self.batched,
            Op::Elementwise | Op::Norm | Op::Opaque => self.vector,
        }
    }

    fn seconds(&self, kernel: &Kernel, strategy: Strategy, t: u64, samples: f64) -> f64 {
        let (product, rate) = (product_of(kernel, strategy, t, samples), self.rate(kernel));
        let elements = product.batch * product.m * product.n;
        let done = if kernel.is_gemm() { product.flop() } else { elements * product.k };
        // A kernel that states its FLOP has these for what its sizes would give.
        let shape = &kernel.shape;
        let stated = kernel.flop.map_or(1.0, |flop| {
            let by_sizes = shape.rows() as f64 * shape.n as f64 * shape.k as f64;
            flop / if kernel.is_gemm() { 2.0 * by_sizes } else { by_sizes }
        });
        match kernel.is_gemm() && !kernel.lookup {
            true => stated * self.times.arithmetic(&product, rate),
            false => stated * done / rate,
        }
    }
}

/// The product that one chip of `t` makes of a kernel for `samples` samples.
fn product_of(kernel: &Kernel, strategy: Strategy, t: u64, samples: f64) -> Product {
    let shape = &kernel.shape;
    let outer = if strategy == Strategy::Outer { ceil_div(shape.outer, t) } else { shape.outer } as f64;
    let mut product = Product {
        batch: outer,
        m: match strategy {
            Strategy::M => ceil_div(shape.rows(), t) as f64 / outer.max(1.0),
            _ => shape.m as f64,
        },
        n: if strategy == Strategy::N { ceil_div(shape.n, t) } else { shape.n } as f64,
        k: if strategy == Strategy::K { ceil_div(shape.k, t) } else { shape.k } as f64,
    };
    match (kernel.tiled, kernel.op) {
        (Axis::K, _) => product.k *= samples,
        (_, Op::GemmWeight) => product.n *= samples,
        _ if kernel.weight_of.is_some() => product.n *= samples,
        _ => product.batch *= samples,
    }
    let splits = kernel.splits as f64;
    (product.batch, product.k) = (product.batch * splits, product.k / splits);
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Node;
    use crate::workload::WorkloadSpec;

    const CHIP: &str = "name: c\nstyle: kernel_by_kernel\ncores: 4\nlanes: 1\nstages: 1\nfrequency: 1 GHz\nvector_peak: 2 FLOP/s\n\
         sram: 1 MiB\nprice: $1\npower: 1 W\nsource: 'assumed: a test'\n\
         kernels: { source: 'assumed: a test', peak: { fp16: 8 FLOP/s, bf16: 4 FLOP/s, fp32: 2 FLOP/s }, units: 4,\n  \
         tiles: [{ rows: 2, columns: 2 }], efficiency: 0.5, batched_efficiency: 0.25, memory_efficiency: 0.5, launch: 3 s }\n";

    fn system(chip: &str) -> System {
        let chip = chip.replace('\n', "\n  ");
        let text = format!(
            "name: s\nsource: test\nchip:\n  {chip}\nmemory: {{ name: m, bandwidth: 8 B/s, price: $1/(GB/s), power: 1 W/(GB/s), \
             source: 'assumed: a test' }}\nnetwork: {{ topology: single-chip }}\n"
        );
        System::build(&Node::parse("s.yaml", &text).unwrap()).unwrap_or_else(|e| panic!("{e}"))
    }

    /// A training graph names no software: of a chip's libraries that which reaches most, in the types that it says something of; short steps reach what they reached.
    #[test]
    fn graphs_take_the_library_that_reaches_most() {
        let plain = system(CHIP);
        let better = "efficiency: 0.5, libraries: { old: { fp16: 1.1 }, new: { fp16: 1.5, bf16: 1.2 } },";
        let chosen = system(&CHIP.replacen("efficiency: 0.5,", better, 1));
        let product = |system: &System, word: f64, training: bool| {
            Rate::with(system, word, training).usual.waves.as_ref().map(|w| w.product)
        };
        // Eight FLOP/s in 16 bits at 0.5 and at 0.75; of 32 bits no library says anything.
        assert_eq!((product(&plain, 2.0, true), product(&chosen, 2.0, true)), (Some(4.0), Some(6.0)));
        assert_eq!((product(&plain, 4.0, true), product(&chosen, 4.0, true)), (Some(1.0), Some(1.0)));
        assert_eq!(product(&chosen, 2.0, false), product(&plain, 2.0, false));
    }

    /// Lanes of words of 16 bits: what is computed in 32 bits runs at the part of the peak that the chip states for these, kernel by kernel; a chip that states peaks,
    /// but none for them, is refused; one that states none, and DFModel's semantics, take the lanes as they are.
    #[test]
    fn lanes_run_at_the_peak_of_the_words() {
        let chip = |kernels: &str| {
            let text = format!(
                "name: c\nstyle: dataflow\ncores: 4\nlanes: 1\nstages: 1\nfrequency: 1 GHz\nefficiency: lanes_stages\nsram: 1 MiB\nprice: $1\npower: 1 W\n\
                 source: 'assumed: a test'\n{kernels}"
            );
            system(&text)
        };
        let stated = |peak: &str| {
            chip(&format!(
                "kernels: {{ source: 'assumed: a test', peak: {{ {peak} }}, units: 4, tiles: [{{ rows: 2, columns: 2 }}], efficiency: 1, batched_efficiency: 1, \
                 memory_efficiency: 1, launch: 0 s }}\n"
            ))
        };
        let slowest = |system: &System, w: &Workload, k: usize| match Rate::of(w, system).compute(
            &w.kernels[k],
            Strategy::Replicate,
            1,
            1,
            1.0,
        ) {
            Compute::Seconds(s) => s,
            Compute::Cores(options) => options.iter().map(|o| o.seconds).fold(f64::INFINITY, f64::min),
        };
        let (half, wide) = (workload(""), workload("word: 4 B"));
        let quarter = stated("fp16: 8 GFLOP/s, fp32: 2 GFLOP/s");
        // Two FLOP a core and cycle: 8 GFLOP/s in 16 bits. A core takes a row: ceil(4 / 4) 5 columns of 6.
        assert_eq!((system_peak(&half, &quarter), system_peak(&wide, &quarter)), (8e9, 2e9));
        assert_eq!(slowest(&quarter, &half, 0), 30e-9);
        assert!((slowest(&quarter, &wide, 0) / 120e-9 - 1.0).abs() < 1e-12);
        // The graph's words are of 16 bits, one product's of 32.
        let mut mixed = workload("");
        mixed.kernels[0].word = Some(4.0);
        assert!((slowest(&quarter, &mixed, 0) / 120e-9 - 1.0).abs() < 1e-12);
        assert_eq!(slowest(&quarter, &mixed, 1), slowest(&quarter, &half, 1));
        let least = Rate::of(&wide, &quarter).least_seconds(&wide.kernels[0]);
        assert!((least / 120e-9 - 1.0).abs() < 1e-12, "{least}");

        let narrow = stated("fp16: 8 GFLOP/s");
        let said = fault(&wide, &narrow).unwrap();
        assert_eq!(
            said,
            "chip c: kernels.peak states none of fp32 for the workload's words of 4 B (it has fp16): add the peak"
        );
        assert_eq!(fault(&half, &narrow), None);
        // Vector work runs in words without a peak too: in twice the bytes at half the rate, whether the graph or the kernel has them.
        let mut sums = workload("");
        sums.kernels[2].word = Some(4.0);
        for w in [&wide, &sums] {
            let (slow, fast) = (slowest(&narrow, w, 2), slowest(&narrow, &half, 2));
            assert!((slow / fast - 2.0).abs() < 1e-12, "{slow} {fast}");
        }
        let silent = chip("");
        assert_eq!((fault(&wide, &silent), system_peak(&wide, &silent)), (None, 8e9));
        let dfmodel = System { model: ModelOptions::dfmodel(), ..narrow };
        assert_eq!((fault(&wide, &dfmodel), system_peak(&wide, &dfmodel)), (None, 8e9));
    }

    /// A product with a weight of 4 x 6 for 5 columns, one of two tensors side by side twice, and a sum.
    fn workload(more: &str) -> Workload {
        let text = format!(
            "kind: graph\nname: w\nsource: 'assumed: a test'\nglobal_batch: 6\nmicro_batch: 3\n{more}\n\
             inputs: [{{ name: x, rows: 6, cols: 5 }}, {{ name: y, rows: 8, cols: 3 }}]\nkernels:\n  \
             - {{ name: a, op: gemm_weight, m: 4, k: 6, n: 5, rhs: x, output: t }}\n  \
             - {{ name: b, op: gemm, outer: 2, m: 4, k: 3, n: 5, lhs: y, rhs: x, output: u }}\n  \
             - {{ name: c, op: elementwise, m: 4, n: 5, inputs: [t], output: v }}\n"
        );
        WorkloadSpec::build(&Node::parse("w.yaml", &text).unwrap()).unwrap_or_else(|e| panic!("{e}"))
    }

    fn seconds(rate: &Rate<'_>, kernel: &Kernel, strategy: Strategy, t: u64) -> f64 {
        match rate.compute(kernel, strategy, t, 1, 3.0) {
            Compute::Seconds(s) => s,
            Compute::Cores(_) => panic!("by waves nothing shares cores"),
        }
    }

    /// By hand, with three samples a pass. A unit does 8 x 1/2 / 4 = 1 FLOP/s. Kernel a: 4 x 15 of 6 in tiles of 2 x 2: 2 x 8 = 16 tiles, 4
    /// waves of 2 x 2 x 2 x 6 = 48 s. Half of its rows: 8 tiles, two waves. Kernel b: half the rate, 6 products of 4 x 5 in 2 x 3 tiles each:
    /// 36 tiles, 9 waves of 8 x 3 / (1/2) = 48 s; one of its two problems: 18 tiles, 5 waves. Kernel c: 60 elements at 2/s.
    #[test]
    fn waves_by_hand() {
        let (system, w) = (system(CHIP), workload(""));
        let w = Workload { training: true, ..w };
        let rate = Rate::of(&w, &system);
        assert_eq!(seconds(&rate, &w.kernels[0], Strategy::Replicate, 1), 192.0);
        assert_eq!(seconds(&rate, &w.kernels[0], Strategy::M, 2), 96.0);
        assert_eq!(seconds(&rate, &w.kernels[1], Strategy::Replicate, 1), 432.0);
        assert_eq!(seconds(&rate, &w.kernels[1], Strategy::Outer, 2), 240.0);
        assert_eq!(seconds(&rate, &w.kernels[2], Strategy::Replicate, 1), 30.0);
        assert_eq!((rate.launch_s, rate.dram_bytes_per_s, rate.sram_bytes), (3.0, 4.0, f64::INFINITY));
        assert!(rate.chooses_tiles());
        // No way to cut a kernel beats its FLOP at the best rate.
        for kernel in &w.kernels {
            assert!(3.0 * rate.least_seconds(kernel) <= seconds(&rate, kernel, Strategy::Replicate, 1));
        }
        assert_eq!(system_peak(&w, &system), 8.0);
    }

    /// A share stated for the type of the words holds in training, and in inference where the chip states no burst: kernel a in 48 s x 1/2 / (1/4) a wave. A
    /// burst is for all types.
    #[test]
    fn the_type_of_the_words_says_the_share() {
        let stated = CHIP.replace(", efficiency: 0.5,", ", efficiency: 0.5, type_efficiency: { fp16: 0.25 },");
        let burst = stated.replace(
            "launch: 3 s }",
            "launch: 3 s, burst: { efficiency: 1, batched_efficiency: 1, memory_efficiency: 1 } }",
        );
        let w = workload("");
        for (chip, training, factor) in
            [(&stated, true, 2.0), (&stated, false, 2.0), (&burst, true, 2.0), (&burst, false, 0.5)]
        {
            let (system, w) = (system(chip), Workload { training, ..w.clone() });
            let rate = Rate::of(&w, &system);
            assert_eq!(seconds(&rate, &w.kernels[0], Strategy::Replicate, 1), factor * 192.0, "{training}");
        }
    }

    /// A kernel of words of its own runs at the peak of these, beside kernels at that of the graph's; vector work whose type the chip states no peak
    /// for is taken as the graph's, a product of such a type cannot be computed.
    #[test]
    fn kernels_of_other_words_run_at_their_own_peak() {
        let (system, mut w) = (system(CHIP), workload("training: true"));
        w.kernels[1].word = Some(4.0);
        w.kernels[2].word = Some(8.0);
        let rate = Rate::of(&w, &system);
        assert_eq!(seconds(&rate, &w.kernels[0], Strategy::Replicate, 1), 192.0);
        assert_eq!(seconds(&rate, &w.kernels[1], Strategy::Replicate, 1), 4.0 * 432.0);
        assert_eq!(seconds(&rate, &w.kernels[2], Strategy::Replicate, 1), 30.0);
        assert!(3.0 * rate.least_seconds(&w.kernels[1]) <= 4.0 * 432.0);
        assert_eq!(fault(&w, &system), None);
        w.kernels[0].word = Some(8.0);
        assert!(fault(&w, &system).unwrap().contains("fp64"));
    }

    /// Words of four bytes run at the peak of their type; of eight the chip has none.
    #[test]
    fn the_type_of_the_words_says_the_peak() {
        let (system, wide) = (system(CHIP), workload("word: 4 B"));
        let training = Workload { training: true, ..wide };
        let rate = Rate::of(&training, &system);
        assert_eq!(seconds(&rate, &training.kernels[0], Strategy::Replicate, 1), 4.0 * 192.0);
        assert_eq!((system_peak(&training, &system), fault(&training, &system)), (2.0, None));
        let fault = fault(&workload("word: 8 B"), &system).unwrap();
        assert!(fault.contains("fp64") && fault.contains("fp16, bf16, fp32"), "{fault}");
    }
}
