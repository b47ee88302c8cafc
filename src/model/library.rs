//! Seconds that a call of a library takes on a chip: what one recorded operator becomes elsewhere.
//!
//! | chip | arithmetic | bytes |
//! |---|---|---|
//! | states `kernels` | products in tiles and waves ([`super::kernel_time`]) at the peak and the share of their type; attention by the chip's kernel for it ([`super::attention_kernel`]) | at the share of the memory's bandwidth that single kernels reach, times that of their pattern |
//! | states a share only | FLOP / (share x peak) | at the memory's bandwidth |
//!
//! A call takes the longer of the two (the roofline: Williams, Waterman and Patterson, CACM 2009), and each of its kernels starts
//! ([`Kernels::start`]). How a chip computes the graphs of workloads (`efficiency`) says nothing here: a recorded kernel is a library's. Products run at what
//! the chip sustains in training, and at what short steps reach in inference ([`Burst`]).
//!
//! Numbers that hold for all chips, from kernels of recorded traces (H100, MI300X, A100, V100; docs/traces-lowering.md): what patterns of access
//! reach ([`Access`]), the wait of products with few tiles (`WAIT`), and the rate of unaligned ones (`UNALIGNED`) where a chip states none.

use super::attention_kernel::{FusedAttentionWork, FusedKernel};
use super::kernel_time::{KernelTimes, Product};
use super::rate::Rate;
use crate::spec::read::Fraction;
use crate::system::kernels::{Burst, Kernels, Tile};
use crate::system::{Chip, System};
use crate::units::Seconds;

/// Seconds for each element of a contraction that a product with too few tiles waits for its operands, where a chip states none, and the tiles that
/// hide it.
const WAIT: (f64, u64) = (8e-9, 2);
/// Elements that a row must be a multiple of for matrix units to be used whole, and the rate where it is not, where a chip states none.
const UNALIGNED: (f64, f64) = (8.0, 0.17);
/// Starts that a kernel of attention takes: blocks wait for one another. The same of products on vector units, and of patterns of access in
/// [`Access::starts`].
const ATTENTION_STARTS: f64 = 4.0;
const VECTOR_STARTS: f64 = 3.0;
/// Attention on a chip that states no kernel for it, relative to its best products.
const ATTENTION: f64 = 0.3;

/// How kernels go through memory: what of the bandwidth of streaming kernels they reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// One element after another: all of it.
    Stream,
    /// Sums along an axis.
    Reduce,
    /// With strides, broadcast, converted or joined: transactions are used in part.
    Rearrange,
    /// Row by row, with sums in between.
    Rows,
}

impl Access {
    fn share(self) -> f64 {
        match self {
            Self::Stream => 1.0,
            Self::Reduce => 0.8,
            Self::Rearrange => 0.5,
            Self::Rows => 0.45,
        }
    }

    fn starts(self) -> f64 {
        match self {
            Self::Stream => 1.0,
            Self::Reduce => 4.0,
            Self::Rearrange | Self::Rows => 2.0,
        }
    }
}

/// The type that a call multiplies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Word {
    /// 8 bits.
    Byte,
    /// 16 bits, either kind.
    Half,
    /// 32 bits in memory, multiplied as the library chooses: TF32 where the chip has it.
    Single,
    /// 32 bits, all of them multiplied.
    Exact,
    /// 64 bits.
    Double,
}

impl Word {
    /// Names of the peaks that are its own, the first that a chip states counts.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Byte => &["fp8", "int8", "fp16", "bf16"],
            Self::Half => &["fp16", "bf16"],
            Self::Single => &["fp32"],
            Self::Exact => &["fp32_ieee", "fp32"],
            Self::Double => &["fp64"],
        }
    }

    /// Bytes in memory.
    pub fn bytes(self) -> f64 {
        match self {
            Self::Byte => 1.0,
            Self::Half => 2.0,
            Self::Single | Self::Exact => 4.0,
            Self::Double => 8.0,
        }
    }
}

/// The arithmetic of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Arithmetic {
    /// A product of matrices.
    Product(Product),
    /// Products side by side, none of them a weight.
    Batched(Product),
    /// Convolutions as products, one after another; libraries divide their contractions as far as it helps.
    Convolution(Vec<Product>),
    /// Attention in one kernel, forward or backward.
    Attention(FusedAttentionWork, bool),
    /// Multiplications and additions of matrices whose sizes are not known: FLOP.
    Matrix(f64),
    /// Anything else: FLOP.
    Vector(f64),
}

/// What is known of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// What it computes.
    pub arithmetic: Arithmetic,
    /// The type it computes in.
    pub word: Word,
    /// Bytes it reads and writes.
    pub bytes: f64,
    /// How.
    pub access: Access,
    /// Bytes that kernels of their own read and write to bring operands into another layout.
    pub converted: f64,
    /// Kernels it takes.
    pub kernels: f64,
}

/// The libraries of a chip.
#[derive(Debug)]
pub struct Library<'a> {
    chip: &'a Chip,
    system: &'a System,
    training: bool,
    own: Option<Own<'a>>,
}

/// Kernels of a chip that states them.
#[derive(Debug)]
struct Own<'a> {
    kernels: &'a Kernels,
    burst: Burst,
    /// Products on matrix units.
    products: KernelTimes,
    /// The same with contractions divided as far as it helps.
    divided: KernelTimes,
    /// Products on vector units: small tiles, nothing to fill.
    vector: KernelTimes,
}

/// Tiles of products on vector units (the names of cuBLAS' kernels have these sizes; rates assumed).
fn vector_tiles() -> Vec<Tile> {
    let tile = |rows, columns, rate| Tile { rows, columns, rate: Fraction(rate), splits: 16 };
    vec![
        tile(128, 128, 1.0),
        tile(128, 64, 0.95),
        tile(64, 64, 0.9),
        tile(128, 32, 0.8),
        tile(32, 128, 0.8),
        tile(32, 32, 0.6),
    ]
}

impl<'a> Own<'a> {
    fn new(kernels: &'a Kernels, bandwidth: f64) -> Self {
        let stated = kernels.burst_of("");
        let burst = match stated.wait.0 > 0.0 {
            true => stated,
            false => Burst { wait: Seconds(WAIT.0), tiles_at_once: WAIT.1, ..stated },
        };
        // Results of products leave beside those of the next: a trace's kernels are timed in a row.
        let none = crate::spec::read::Share(0.0);
        let burst = Burst { exposed_operands: none, exposed_result: none, ..burst };
        let with = |tiles: Vec<Tile>| KernelTimes::burst(&Kernels { tiles, ..kernels.clone() }, &burst, bandwidth, 0.0);
        let divided = kernels.tiles.iter().map(|t| Tile { splits: 64, ..*t }).collect();
        Self {
            kernels,
            burst,
            products: with(kernels.tiles.clone()),
            divided: with(divided),
            vector: with(vector_tiles()),
        }
    }
}

impl<'a> Library<'a> {
    /// Of the chips of a system, in a step that trains or one that does not.
    pub fn new(system: &'a System, training: bool) -> Self {
        let chip = &system.chip.0;
        let own = chip.kernels.as_ref().map(|kernels| Own::new(kernels, system.memory.0.bandwidth.0));
        Self { chip, system, training, own }
    }

    /// Bytes a second that streaming kernels get from memory.
    pub fn bandwidth(&self) -> f64 {
        self.own.as_ref().map_or(self.system.memory.0.bandwidth.0, |own| own.products.bandwidth())
    }

    /// Seconds of a call on the device; `None` where the chip states no peak for its type.
    pub fn seconds(&self, call: &Call) -> Option<f64> {
        let Some(own) = &self.own else { return self.roofline(call) };
        let kernels = own.kernels;
        let peak = || call.word.names().iter().find_map(|name| Some((*name, kernels.peak_of(name)?)));
        let share =
            |name: &str| if self.training { kernels.efficiency_of(name) } else { kernels.burst_of(name).efficiency.0 };
        let exact = call.word == Word::Exact;
        let aligned = |sizes: [f64; 2]| match (exact, kernels.vector > 1) {
            (true, _) => 1.0,
            (_, true) => own.products.alignment(sizes),
            _ => {
                if sizes.iter().all(|s| s % UNALIGNED.0 == 0.0) {
                    1.0
                } else {
                    UNALIGNED.1
                }
            }
        };
        let times = if exact { &own.vector } else { &own.products };
        let matrix = !matches!(call.arithmetic, Arithmetic::Vector(_));
        let mut starts = if matrix && exact { VECTOR_STARTS } else { call.access.starts() };
        let arithmetic = match &call.arithmetic {
            Arithmetic::Product(p) => {
                let (name, peak) = peak()?;
                times.arithmetic(p, peak * share(name) * aligned([p.n, p.k]))
            }
            Arithmetic::Batched(p) => {
                let (_, peak) = peak()?;
                let share = if self.training { kernels.batched_efficiency.0 } else { own.burst.batched_efficiency.0 };
                times.arithmetic(p, peak * share * aligned([p.n, p.k]))
            }
            Arithmetic::Convolution(products) => {
                let (name, peak) = peak()?;
                let times = if exact { &own.vector } else { &own.divided };
                products.iter().map(|p| times.arithmetic(p, peak * share(name))).sum()
            }
            Arithmetic::Attention(work, backward) => {
                let (name, peak) = peak()?;
                starts = ATTENTION_STARTS;
                match kernels.fused_attention_of(None).map(FusedKernel::new) {
                    Some(kernel) if *backward => work.backward(&kernel, &own.products, peak).seconds,
                    Some(kernel) => work.forward(&kernel, &own.products, peak).seconds,
                    None => {
                        let sides = work.key_width + work.value_width;
                        let flop =
                            2.0 * work.heads * work.queries * work.seen * sides * if *backward { 2.5 } else { 1.0 };
                        flop / (peak * share(name) * ATTENTION)
                    }
                }
            }
            Arithmetic::Matrix(flop) => {
                let (name, peak) = peak()?;
                flop / (peak * share(name))
            }
            Arithmetic::Vector(flop) => self.chip.vector_peak.map_or(0.0, |v| flop / v.0),
        };
        let moved = call.bytes / (self.bandwidth() * call.access.share());
        let converted = call.converted / (self.bandwidth() * Access::Rearrange.share());
        Some(arithmetic.max(moved) + converted + call.kernels * starts * kernels.start.0)
    }

    /// Of a chip that states no kernels: FLOP at its share of the peak, bytes at its bandwidth.
    fn roofline(&self, call: &Call) -> Option<f64> {
        let (matrix, flop) = match &call.arithmetic {
            Arithmetic::Product(product) | Arithmetic::Batched(product) => (true, product.flop()),
            Arithmetic::Convolution(products) => (true, products.iter().map(Product::flop).sum()),
            Arithmetic::Attention(work, backward) => {
                let passes = if *backward { 5.0 } else { 2.0 };
                (true, passes * work.heads * work.queries * work.seen * (work.key_width + work.value_width))
            }
            Arithmetic::Matrix(flop) => (true, *flop),
            Arithmetic::Vector(flop) => (false, *flop),
        };
        Rate::with(self.system, call.word.bytes(), self.training).roofline(matrix, flop, call.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Node;

    fn system(kernels: &str) -> System {
        let share = if kernels.is_empty() { ", efficiency: 0.5" } else { "" };
        let text = format!(
            "name: s\nsource: test\nchip: {{ name: c, style: kernel_by_kernel, cores: 4, lanes: 1, stages: 1, frequency: 1 GHz, vector_peak: 2 FLOP/s, \
             sram: 1 MiB, price: $1, power: 1 W, source: 'assumed: a test'{share}{kernels} }}\n\
             memory: {{ name: m, bandwidth: 8 B/s, price: $1/(GB/s), power: 1 W/(GB/s), source: 'assumed: a test' }}\n\
             network: {{ topology: single-chip }}\n"
        );
        System::build(&Node::parse("s.yaml", &text).unwrap()).unwrap_or_else(|e| panic!("{e}"))
    }

    const KERNELS: &str = ", kernels: { source: 'assumed: a test', peak: { fp16: 8 FLOP/s, fp32: 4 FLOP/s, fp32_ieee: 2 FLOP/s }, units: 4, \
         tiles: [{ rows: 2, columns: 2 }], efficiency: 0.5, batched_efficiency: 0.25, memory_efficiency: 0.5, start: 3 s, \
         vector: 2, unaligned: 0.25 }";

    fn call(arithmetic: Arithmetic, word: Word, bytes: f64, access: Access) -> Call {
        Call { arithmetic, word, bytes, access, converted: 0.0, kernels: 2.0 }
    }

    /// Four units of 1 FLOP/s in half precision; 4 x 4 x 6 is one wave of four tiles, 2 x 2 x 2 x 6 = 48 s; twice that in TF32. A contraction of
    /// odd size at a quarter of the rate. Batched at half the rate. Memory: 4 B/s. Two kernels start for 6 s, row by row for 12 s.
    #[test]
    fn calls_by_hand() {
        let system = system(KERNELS);
        let library = Library::new(&system, true);
        let p = Product { batch: 1.0, m: 4.0, n: 4.0, k: 6.0 };
        let at = |a: Arithmetic, w: Word, bytes: f64| library.seconds(&call(a, w, bytes, Access::Stream)).unwrap();
        assert_eq!(at(Arithmetic::Product(p), Word::Half, 8.0), 48.0 + 6.0);
        assert_eq!(at(Arithmetic::Product(p), Word::Single, 8.0), 96.0 + 6.0);
        assert_eq!(at(Arithmetic::Product(Product { k: 3.0, ..p }), Word::Half, 8.0), 4.0 * 24.0 + 6.0);
        assert_eq!(at(Arithmetic::Product(p), Word::Half, 400.0), 100.0 + 6.0);
        assert_eq!(at(Arithmetic::Batched(p), Word::Half, 8.0), 96.0 + 6.0);
        assert_eq!(at(Arithmetic::Matrix(80.0), Word::Half, 8.0), 20.0 + 6.0);
        assert_eq!(at(Arithmetic::Vector(20.0), Word::Half, 8.0), 10.0 + 6.0);
        let rows = call(Arithmetic::Vector(0.0), Word::Half, 9.0, Access::Rows);
        assert_eq!(library.seconds(&rows), Some(9.0 / (4.0 * 0.45) + 12.0));
        let layouts = Call { converted: 8.0, ..call(Arithmetic::Vector(0.0), Word::Half, 4.0, Access::Stream) };
        assert_eq!(library.seconds(&layouts), Some(1.0 + 4.0 + 6.0));
        assert_eq!(library.seconds(&call(Arithmetic::Matrix(1.0), Word::Double, 0.0, Access::Stream)), None);
        assert_eq!(library.bandwidth(), 4.0);
    }

    /// All bits of 32: vector units at 2 x 1/2 / 4 FLOP/s each. 32 x 32 of 16 in one tile at 0.6 of it, divided among four units (8 x 4 x 1024 B of
    /// partial sums at 4 B/s would take longer): whole, 2 x 1024 x 16 / 0.15 s.
    #[test]
    fn products_of_all_bits_have_tiles_of_their_own() {
        let system = system(KERNELS);
        let library = Library::new(&system, true);
        let p = Product { batch: 1.0, m: 32.0, n: 32.0, k: 16.0 };
        let s = library.seconds(&call(Arithmetic::Product(p), Word::Exact, 0.0, Access::Stream)).unwrap();
        let (two, four): (f64, f64) =
            (1024.0 * 16.0 / 0.15 + 8.0 * 2.0 * 1024.0 / 4.0, 512.0 * 16.0 / 0.15 + 8.0 * 4.0 * 1024.0 / 4.0);
        assert!((s - (two.min(four) + 18.0)).abs() < 1e-6, "{s} {two} {four}");
    }

    /// A weight's gradient of one tile over a long contraction: a convolution may be divided among all four units, a product of `mm` not.
    #[test]
    fn convolutions_are_divided() {
        let system = system(KERNELS);
        let library = Library::new(&system, true);
        let p = Product { batch: 1.0, m: 2.0, n: 2.0, k: 4000.0 };
        let mm = library.seconds(&call(Arithmetic::Product(p), Word::Half, 0.0, Access::Stream)).unwrap();
        let conv = library.seconds(&call(Arithmetic::Convolution(vec![p]), Word::Half, 0.0, Access::Stream)).unwrap();
        assert_eq!((mm, conv), (32000.0 + 6.0, 8000.0 + 8.0 * 4.0 * 4.0 / 4.0 + 6.0));
    }

    /// A chip without kernels: 4 cores of 2 GFLOP/s at half of it, memory at all its bandwidth.
    #[test]
    fn without_kernels_the_roofline_counts() {
        let system = system("");
        let library = Library::new(&system, true);
        let product = Product { batch: 1.0, m: 1e3, n: 1e3, k: 4e6 };
        let at = |a: Arithmetic, bytes: f64| library.seconds(&call(a, Word::Half, bytes, Access::Rows));
        assert_eq!(at(Arithmetic::Product(product), 8.0), Some(2000.0));
        assert_eq!(at(Arithmetic::Vector(0.0), 80.0), Some(10.0));
    }
}
