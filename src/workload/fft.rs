//! One-dimensional Fourier transform of length L = N1 N2 in two steps: N2 transforms of length N1, a transposition (an all-to-all
//! among all chips), N1 transforms of length N2 (Bailey, "FFTs in external or hierarchical memory", 1990). Each chip has
//! its share of the transforms of a step whole.
//!
//! FLOP of a transform of length N, by method: `butterflies` 5 N log2 N, the usual count of a complex radix-2 transform; `gemm` 2 N K
//! with K = 4 log2(N)/log2(r) r, products with dense radix-r matrices on a matrix unit (DFModel's count, model.md section 3).

use super::builder::Builder;
use crate::graph::{Axis, Collective, CollectiveKind, Op, Phase, Scope, Slot, Spread, Workload};
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
        /// Length: a power of two.
        length: u64,
        /// How a step is computed.
        method: Method = Method::Butterflies,
        /// Radix of the matrix products: a power of two.
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
    for (field, value, least) in [("length", spec.length, 16), ("radix", spec.radix, 2)] {
        if !value.is_power_of_two() || value < least {
            let at = node.get(field).unwrap_or(node);
            reader.within(field, |r| {
                r.problem(at, format!("expected a power of two of at least {least}, found {value}"))
            });
        }
    }
    let whole = |size: u64| {
        let per_digit = u64::from(spec.radix.max(2).ilog2());
        (4 * u64::from(size.max(2).ilog2()) * spec.radix).is_multiple_of(per_digit)
    };
    let (first, second) = sizes(spec.length.max(4));
    if spec.method == Method::Gemm && !(whole(first) && whole(second)) {
        let at = node.get("radix").unwrap_or(node);
        reader.within("radix", |r| {
            r.problem(
                at,
                format!("4 log2(N)/log2({0}) x {0} is no whole number for N = {first} and {second}", spec.radix),
            )
        });
    }
}

/// N1 and N2.
fn sizes(length: u64) -> (u64, u64) {
    let bits = length.ilog2();
    (1 << bits.div_ceil(2), 1 << (bits / 2))
}

impl FftSpec {
    /// The graph: two steps.
    pub fn build(&self) -> Workload {
        let (n1, n2) = sizes(self.length);
        let exchange = Collective {
            kind: CollectiveKind::AllToAll,
            bytes: self.length as f64 * self.word.0,
            scope: Scope::All,
            times: 1,
        };
        let mut b = Builder::default();
        let first = self.step(&mut b, "Step_1", n1, n2);
        let second = self.step(&mut b, "Step_2", n2, n1);
        // Each step has one tensor, its result.
        b.read(second, first, Slot::View);
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
            tokens_per_sample: None,
        }
    }

    /// `count` transforms of length `size`; the transforms are shared by all chips.
    fn step(&self, b: &mut Builder, name: &str, size: u64, count: u64) -> usize {
        let log = size.ilog2();
        let id = match self.method {
            Method::Gemm => {
                let k = 4 * u64::from(log) * self.radix / u64::from(self.radix.ilog2());
                b.add(name, Op::Gemm, Phase::Forward, (1, size, k, count), &[])
            }
            Method::Butterflies => {
                let id = b.add(name, Op::Opaque, Phase::Forward, (1, size, 1, count), &[]);
                b.kernels[id].flop = Some(5.0 * size as f64 * f64::from(log) * count as f64);
                id
            }
        };
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
        let share = w.on_grid(1024, 1);
        assert_eq!((share.tensors[0].rows, share.tensors[0].cols), (1 << 20, 1 << 10));
    }
}
