//! One-dimensional Fourier transform of length L = N1 N2 in two steps: N2 transforms of length N1, a transposition (an all-to-all
//! among all chips), N1 transforms of length N2 (Bailey, "FFTs in external or hierarchical memory", 1990). Each chip has
//! its share of the transforms of a step whole.
//!
//! FLOP of a transform of length N, by method: `butterflies` 5 N log2 N, the usual count of a complex radix-2 transform; `gemm` 2 N K
//! with K = 4 log2(N)/log2(r) r, rounded down, products with dense radix-r matrices on a matrix unit (DFModel's count, model.md section 3).
//! Lengths and radices may be any: N1 and N2 are in `sizes`.

use super::builder::Builder;
use crate::graph::{Axis, Collective, CollectiveKind, Divided, Op, Phase, Scope, Slot, Spread, Workload};
use crate::spec::{Node, Reader};
use crate::units::Bytes;

crate::choice! {
    /// The word `fft`.
    pub enum Kind ("a kind of workload") {
        /// Fourier transform.
        Fft = "fft",
    }
}

crate::choice! {
    /// How the transforms of a step are computed.
    pub enum Method ("a method") {
        /// Vector arithmetic, 5 N log2 N.
        Butterflies = "butterflies",
        /// Matrix products of radix r.
        Gemm = "gemm",
    }
}

crate::spec! {
    /// A one-dimensional Fourier transform.
    pub struct FftSpec ("a Fourier transform", check: check) {
        /// The word `fft`.
        kind: Kind,
        /// Name for rows and titles.
        name: String,
        /// Where the sizes come from.
        source: String,
        /// Length, of any size.
        length: u64,
        /// How a step is computed.
        method: Method = Method::Butterflies,
        /// Radix of the matrix products, of any size.
        radix: u64 = 32,
        /// All-to-alls: 1 between the steps; 2 with one after them, for results in order; 3 with one before, for inputs in order.
        exchanges: u64 = 1,
        /// Bytes of one element (a complex number of two 32-bit words: 8 B).
        word: Bytes = Bytes(8.0),
    }
}

fn check(spec: &FftSpec, node: &Node, reader: &mut Reader) {
    super::spec::check_batches(1, 1, spec.word, node, reader);
    super::spec::check_sizes(
        &[("length", spec.length, 1 << 50), ("radix", spec.radix, 1 << 16), ("exchanges", spec.exchanges, 3)],
        node,
        reader,
    );
    for (field, value, least) in [("length", spec.length, 4), ("radix", spec.radix, 2)] {
        if value < least {
            let at = node.get(field).unwrap_or(node);
            reader.within(field, |r| r.problem(at, format!("expected at least {least}, found {value}")));
        }
    }
}

/// N1 and N2. A power of two is cut into two; so is a square, and for matrix products every length as if it were the next smaller one, as
/// DFModel does. Any other length is padded to the least N1 N2 with N2 = floor(sqrt L), less than sqrt L + 1 elements more.
fn sizes(length: u64, method: Method) -> (u64, u64) {
    let root = length.isqrt().max(1);
    if length.is_power_of_two() {
        let bits = length.ilog2();
        return (1 << bits.div_ceil(2), 1 << (bits / 2));
    }
    match method {
        Method::Gemm => (root, root),
        Method::Butterflies => (length.div_ceil(root), root),
    }
}

/// Contracted size of a transform of length N as products with dense matrices of radix r: 4 log2(N)/log2(r) r, rounded down where it is no
/// whole number.
pub fn contracted(size: u64, radix: u64) -> u64 {
    let (size, radix) = (size.max(2) as f64, radix.max(2) as f64);
    // In this order a power of a radix that is a power of two comes out whole.
    (4.0 * size.log2() / radix.log2() * radix) as u64
}

impl FftSpec {
    /// The graph: two steps.
    pub fn build(&self) -> Workload {
        let (n1, n2) = sizes(self.length, self.method);
        let exchange = Collective {
            kind: CollectiveKind::AllToAll,
            bytes: n1 as f64 * n2 as f64 * self.word.0,
            scope: Scope::All,
            times: 1,
        };
        let mut b = Builder::default();
        let first = self.step(&mut b, "Step_1", n1, n2);
        let second = self.step(&mut b, "Step_2", n2, n1);
        // Each step has one tensor, its result; the first reads what is to be transformed.
        b.read(second, first, Slot::View);
        let input = b.tensor("input", n1, n2, None);
        b.read(first, input, Slot::View);
        b.tensors[second].output = true;
        b.tensors.iter_mut().for_each(|t| t.in_place = true);
        b.kernels[second].collectives = vec![exchange.clone(); self.exchanges.min(2) as usize];
        if self.exchanges > 2 {
            b.kernels[first].collectives.push(exchange);
        }
        Workload {
            name: self.name.clone(),
            kernels: b.kernels,
            tensors: b.tensors,
            repeat: 1,
            blocks: Vec::new(),
            word_bytes: self.word.0,
            global_batch: 1,
            micro_batch: 1,
            training: false,
            held_bytes: self.length as f64 * self.word.0,
            divided: Divided::Free,
            tokens_per_sample: None,
        }
    }

    /// `count` transforms of length `size`; the transforms are shared by all chips.
    fn step(&self, b: &mut Builder, name: &str, size: u64, count: u64) -> usize {
        let id = match self.method {
            Method::Gemm => {
                let k = contracted(size, self.radix);
                b.add(name, Op::Gemm, Phase::Forward, (1, size, k, count), &[])
            }
            Method::Butterflies => {
                let id = b.add(name, Op::Opaque, Phase::Forward, (1, size, 1, count), &[]);
                b.kernels[id].flop = Some(5.0 * size as f64 * (size as f64).log2() * count as f64);
                id
            }
        };
        // A complex number is two words of what the chip computes with.
        b.kernels[id].word = Some(self.word.0 / 2.0);
        b.kernels[id].spread = Some(Spread { rows: Some(Axis::N), cols: Some(Axis::N) });
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(length: u64, method: Method) -> FftSpec {
        FftSpec {
            kind: Kind::Fft,
            name: "fft".into(),
            source: "assumed: test".into(),
            length,
            method,
            radix: 32,
            exchanges: 1,
            word: Bytes(2.0),
        }
    }

    /// 5 L log2 L over both steps: N2 (5 N1 log2 N1) + N1 (5 N2 log2 N2) = 5 L (log2 N1 + log2 N2).
    #[test]
    fn butterflies_sum_to_the_usual_count() {
        let flop = spec(1 << 21, Method::Butterflies).build().flop_per_iteration();
        assert_eq!(flop, 5.0 * (1u64 << 21) as f64 * 21.0);
    }

    /// DFModel's instance (golden.csv): length 2^40, K = 4 * 20/5 * 32 = 512, 2,251,799,813,685,248 FLOP.
    #[test]
    fn dfmodels_instance() {
        let w = spec(1 << 40, Method::Gemm).build();
        assert_eq!(w.kernels[0].shape.k, 512);
        assert_eq!(w.flop_per_iteration(), 2_251_799_813_685_248.0);
        // What a chip reads of the input is what it has of the first step.
        let share = w.on_grid(32, 32);
        for tensor in &share.tensors {
            assert_eq!((tensor.rows, tensor.cols), (1 << 20, 1 << 10), "{}", tensor.name);
        }
    }

    /// Any size: a square is cut in two; another length is padded by less than its root, and its FLOP follow from N1 and N2.
    #[test]
    fn any_length_by_hand() {
        assert_eq!(sizes(10_000, Method::Butterflies), (100, 100));
        // 1,000,003 is prime: N2 = 1000, N1 = 1001.
        assert_eq!(sizes(1_000_003, Method::Butterflies), (1001, 1000));
        let flop = spec(1_000_003, Method::Butterflies).build().flop_per_iteration();
        let closed = 5.0 * 1001.0 * 1000.0 * (1001f64.log2() + 1000f64.log2());
        assert!((flop / closed - 1.0).abs() < 1e-12, "{flop} {closed}");
        for length in [4, 5, 6, 7, 12, 999_999_999_989] {
            let (n1, n2) = sizes(length, Method::Butterflies);
            assert!(n1 * n2 >= length && n1 * n2 - length <= length.isqrt() + 1, "{length}: {n1} x {n2}");
        }
    }

    /// FFT/Compare_w_existing/FP32 (4096 chips: N = 2097152, K = 168; its smaller runs have N that are no powers of two, and K rounded down).
    #[test]
    fn contracted_sizes_are_dfmodels() {
        assert_eq!(contracted(1 << 21, 4), 168);
        assert_eq!((contracted(1 << 20, 32), contracted(1 << 20, 4)), (512, 160));
        // log2 of 1,048,570 is a little below 20.
        assert_eq!(contracted(1_048_570, 4), 159);
        assert_eq!((contracted(1 << 20, 8), contracted(1 << 20, 3)), (213, 151));
    }
}
