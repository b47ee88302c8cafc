//! Seconds of attention in one kernel (Dao 2023, arXiv 2307.08691; Shah et al. 2024, arXiv 2407.08608).
//!
//! Queries are cut in blocks of r rows, keys in blocks of c columns; heads of d are padded to what the kernel is written for. A unit computes a
//! block of queries against every block of keys that the mask leaves: of a causal mask the mean number of keys a query sees, and half a
//! block more for each edge of the mask, as a block that the edge cuts is computed whole. A score costs its products and one exponential:
//!
//! ```text
//! score    = 2 (d_qk + d_v) / (peak x share)  beside  1 / X            (X: exponentials a second of the chip)
//!          = max + (1 - hidden) min                                     (hidden: share of the shorter one that runs beside the longer)
//! blocks   = samples x heads x ceil(queries / r),  waves = ceil(blocks / U)
//! compute  = max(waves x r x columns x score x U, longest block)        (a wave is a block on each of the U units)
//! ends     = bytes of queries and output / B                            (a block waits for its queries and to write what it made)
//! forward  = max(compute + ends, bytes of all operands / B) + launch
//! ```
//!
//! That the exponentials count is why heads of 64 reach less of the peak than heads of 128: with X from the data sheet (16 a cycle and
//! multiprocessor on NVIDIA's chips) and one share of the peak, heads of 64, 128 and 256 follow each other (docs/accuracy-inference.md).
//!
//! **Backward**: five products for the forward's two (2.5 times the FLOP), the exponential once more, blocks of keys against blocks of queries.
//! Beside it, kernels of their own: the row sums of output times its gradient, the queries' gradient in 4 bytes set to zero and converted, and where
//! heads share keys the keys' gradients of a group added up.

use super::kernel_time::KernelTimes;
use crate::system::kernels::FusedAttention;

/// A fused kernel on a chip as plain numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FusedKernel {
    rows: f64,
    columns: f64,
    head_step: f64,
    forward: f64,
    backward: f64,
    ordered: f64,
    exponentials: f64,
    hidden: f64,
}

impl FusedKernel {
    /// Of a chip's kernel.
    pub fn new(kernel: &FusedAttention) -> Self {
        Self {
            rows: kernel.rows as f64,
            columns: kernel.columns as f64,
            head_step: kernel.head_step as f64,
            forward: kernel.forward.0,
            backward: kernel.backward.0,
            ordered: kernel.ordered.0,
            exponentials: kernel.exponentials.map_or(f64::INFINITY, |x| x.0),
            hidden: kernel.hidden.0,
        }
    }

    /// One share of the peak both ways, in the blocks that are usual, and nothing else known of it.
    pub fn of_share(share: f64) -> Self {
        Self {
            rows: 128.0,
            columns: 128.0,
            head_step: 1.0,
            forward: share,
            backward: share,
            ordered: 1.0,
            exponentials: f64::INFINITY,
            hidden: 0.0,
        }
    }

    /// The same at another share of the peak.
    pub fn scaled(self, factor: f64) -> Self {
        Self { forward: self.forward * factor, backward: self.backward * factor, ..self }
    }

    /// The same where gradients are added up in one order: blocks wait for each other, with their products and exponentials.
    pub fn in_order(self) -> Self {
        Self { backward: self.backward * self.ordered, exponentials: self.exponentials * self.ordered, ..self }
    }

    /// What its products take both ways, relative to those of other kernels of the chip.
    pub fn by_products(&self) -> f64 {
        1.0 / self.forward + 2.5 / self.backward
    }

    fn padded(&self, head: f64) -> f64 {
        (head / self.head_step).ceil() * self.head_step
    }
}

/// Attention of some samples on one chip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FusedAttentionWork {
    /// Samples x heads.
    pub heads: f64,
    /// Samples x heads of keys and values.
    pub kv_heads: f64,
    /// Queries of a head.
    pub queries: f64,
    /// Keys of a head.
    pub keys: f64,
    /// Keys that a query sees in the mean.
    pub seen: f64,
    /// Edges of the mask: none, one if causal, two with a window.
    pub edges: f64,
    /// Size of a query or key.
    pub key_width: f64,
    /// Size of a value.
    pub value_width: f64,
    /// Bytes of an element.
    pub word: f64,
}

/// What a kernel does and takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// FLOP that the mask leaves.
    pub flop: f64,
    /// Bytes from and to memory.
    pub bytes: f64,
    /// Seconds.
    pub seconds: f64,
    /// Seconds of products and exponentials alone, whatever they wait for memory.
    pub arithmetic: f64,
}

impl Cost {
    /// So many of them.
    pub fn times(self, n: f64) -> Self {
        Self { flop: n * self.flop, bytes: n * self.bytes, seconds: n * self.seconds, arithmetic: n * self.arithmetic }
    }
}

impl FusedAttentionWork {
    /// FLOP of the forward pass that the mask leaves.
    pub fn flop(&self) -> f64 {
        2.0 * self.heads * self.queries * self.seen * (self.key_width + self.value_width)
    }

    /// Seconds of the blocks: `own` rows stay in a unit, `others` columns pass by, `flop` for each score.
    fn blocks(
        &self,
        kernel: &FusedKernel,
        times: &KernelTimes,
        own: [f64; 2],
        others: [f64; 2],
        rate: f64,
        flop: f64,
    ) -> f64 {
        let ([rows, size], [columns, length]) = (own, others);
        let (products, exponential) = (flop / rate, 1.0 / kernel.exponentials);
        let score = products.max(exponential) + (1.0 - kernel.hidden) * products.min(exponential);
        let whole = (length / columns).ceil() * columns;
        // What a row of the block meets: the keys a query sees, or of queries that see a key as many in the mean.
        let met = self.seen * length / self.keys;
        let met =
            if self.edges > 0.0 { (met + self.edges * (rows.max(columns) - 1.0) / 2.0).min(whole) } else { whole };
        let blocks = self.heads * (size / rows).ceil();
        let units = times.units();
        let longest = if self.edges > 1.0 { met } else { whole };
        // Masked blocks differ in length and the longest go first: they even out, but the longest is waited for.
        let rounds = if self.edges > 0.0 { (blocks / units * met).max(longest) } else { (blocks / units).ceil() * met };
        rounds * rows * score * units
    }

    /// The forward pass at `peak` FLOP/s.
    pub fn forward(&self, kernel: &FusedKernel, times: &KernelTimes, peak: f64) -> Cost {
        let (qk, v) = (kernel.padded(self.key_width), kernel.padded(self.value_width));
        let (own, others) = ([kernel.rows, self.queries], [kernel.columns, self.keys]);
        let compute = self.blocks(kernel, times, own, others, peak * kernel.forward, 2.0 * (qk + v));
        let ends = self.heads * self.queries * (self.key_width + self.value_width) * self.word;
        let bytes = ends + self.kv_heads * self.keys * (self.key_width + self.value_width) * self.word;
        let seconds = (compute + ends / times.bandwidth()).max(bytes / times.bandwidth());
        Cost { flop: self.flop(), bytes, seconds: seconds + times.launch(), arithmetic: compute }
    }

    /// The backward pass at `peak` FLOP/s.
    pub fn backward(&self, kernel: &FusedKernel, times: &KernelTimes, peak: f64) -> Cost {
        let (qk, v) = (kernel.padded(self.key_width), kernel.padded(self.value_width));
        let (own, others) = ([kernel.columns, self.keys], [kernel.rows, self.queries]);
        let compute = self.blocks(kernel, times, own, others, peak * kernel.backward, 6.0 * qk + 4.0 * v);
        let (queries, keys) = (self.heads * self.queries, self.kv_heads * self.keys);
        let width = self.key_width + self.value_width;
        // Keys and values in, their gradients out, for every head that has queries.
        let ends = 2.0 * self.heads * self.keys * width * self.word;
        let streamed = queries * (self.key_width + self.value_width) * self.word;
        // Output and its gradient once more; the queries' gradient set to zero, read and written in its own type.
        let mut beside = queries * (2.0 * self.value_width * self.word + self.key_width * (8.0 + self.word));
        let mut kernels = 3.0;
        if self.kv_heads < self.heads {
            beside += (self.heads * self.keys + keys) * width * self.word;
            kernels += 1.0;
        }
        let main = (compute + ends / times.bandwidth()).max((ends + streamed) / times.bandwidth());
        let seconds = main + times.launch() + times.vector(beside, kernels);
        Cost { flop: 2.5 * self.flop(), bytes: ends + streamed + beside, seconds, arithmetic: compute }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Node, Reader};
    use crate::system::kernels::Kernels;

    /// 4 units of 1 FLOP/s; 8 B/s of which all is reached; no launch.
    fn times(units: u64) -> KernelTimes {
        let text = format!(
            "{{source: 'assumed: test', peak: {{fp16: 4 FLOP/s}}, units: {units}, tiles: [{{rows: 2, columns: 2}}], \
             efficiency: 1, batched_efficiency: 1, memory_efficiency: 1, launch: 0 s}}"
        );
        KernelTimes::new(&Reader::read::<Kernels>(&Node::parse("k.yaml", &text).unwrap()).unwrap(), 8.0)
    }

    fn kernel(hidden: f64) -> FusedKernel {
        FusedKernel {
            rows: 2.0,
            columns: 2.0,
            head_step: 4.0,
            forward: 0.5,
            backward: 0.25,
            ordered: 0.5,
            exponentials: 0.5,
            hidden,
        }
    }

    const WORK: FusedAttentionWork = FusedAttentionWork {
        heads: 2.0,
        kv_heads: 1.0,
        queries: 8.0,
        keys: 8.0,
        seen: 8.0,
        edges: 0.0,
        key_width: 3.0,
        value_width: 4.0,
        word: 2.0,
    };

    #[test]
    fn forward_by_hand() {
        // A score: 2 x (4 + 4) FLOP at 2 FLOP/s and an exponential of 2 s: 10 s. 8 blocks of 2 x 8 scores on 4 units, each a quarter of the chip.
        // Queries and output 16 x 7 x 2 B at 8 B/s.
        let forward = WORK.forward(&kernel(0.0), &times(4), 4.0);
        assert_eq!(forward.seconds, 2.0 * 16.0 * 10.0 * 4.0 + 28.0);
        assert_eq!((forward.flop, forward.bytes), (2.0 * 2.0 * 64.0 * 7.0, 224.0 + 112.0));
        // Exponentials beside products: 8 s a score.
        assert_eq!(WORK.forward(&kernel(1.0), &times(4), 4.0).seconds, 2.0 * 16.0 * 8.0 * 4.0 + 28.0);
        // A causal mask: 4.5 keys in the mean, half a block more.
        let causal = FusedAttentionWork { seen: 4.5, edges: 1.0, ..WORK };
        assert_eq!(causal.forward(&kernel(0.0), &times(4), 4.0).seconds, 2.0 * 2.0 * 5.0 * 10.0 * 4.0 + 28.0);
        // Fast units: only bytes are left.
        let bound = WORK.forward(&kernel(0.0).scaled(1e9), &times(4), 4.0).seconds;
        assert_eq!(bound.round(), 2.0 * 16.0 * 2.0 * 4.0 + 28.0);
    }

    #[test]
    fn backward_by_hand() {
        // 6 x 4 + 4 x 4 FLOP at 1 FLOP/s and an exponential: 42 s a score. Keys and values of both heads in and out, 2 x 2 x 8 x 7 x 2 B. Beside it
        // 16 x (16 + 3 x 10) B, and the keys' gradients of both heads read, of one written: 24 x 7 x 2 B.
        let backward = WORK.backward(&kernel(0.0), &times(4), 4.0);
        assert_eq!(backward.seconds, 2.0 * 16.0 * 42.0 * 4.0 + 448.0 / 8.0 + 736.0 / 8.0 + 336.0 / 8.0);
        assert_eq!(backward.flop, 2.5 * WORK.flop());
        let ordered = WORK.backward(&kernel(0.0).in_order(), &times(4), 4.0);
        assert_eq!(ordered.seconds - backward.seconds, 2.0 * 16.0 * 42.0 * 4.0);
    }

    /// FlashAttention-2's benchmark with heads of 64 (flash-attention, pull request 2688: 32 heads, 16,384 tokens a batch, no mask, 512 to 8,192 tokens),
    /// by the shares of the H100 that come from heads of 128.
    #[test]
    fn heads_of_64_follow_from_heads_of_128() {
        let text = "{source: 'assumed: test', peak: {fp16: 989.4 TFLOP/s}, units: 132, tiles: [{rows: 128, columns: 128}], \
             efficiency: 1, batched_efficiency: 1, memory_efficiency: 0.87, launch: 5 us}";
        let times = KernelTimes::new(&Reader::read::<Kernels>(&Node::parse("k.yaml", text).unwrap()).unwrap(), 3.35e12);
        let kernel = FusedKernel {
            rows: 128.0,
            columns: 128.0,
            head_step: 32.0,
            forward: 0.455,
            backward: 0.33,
            ordered: 1.0,
            exponentials: 3.87e12,
            hidden: 0.0,
        };
        let measured: [(f64, f64, f64); 5] = [
            (512.0, 252.49, 189.86),
            (1024.0, 294.78, 238.75),
            (2048.0, 308.09, 263.71),
            (4096.0, 311.97, 279.80),
            (8192.0, 310.20, 299.23),
        ];
        for (s, forward, backward) in measured {
            let heads = 32.0 * 16384.0 / s;
            let work = FusedAttentionWork {
                heads,
                kv_heads: heads,
                queries: s,
                keys: s,
                seen: s,
                edges: 0.0,
                key_width: 64.0,
                value_width: 64.0,
                word: 2.0,
            };
            let rate = |cost: Cost| cost.flop / cost.seconds / 1e12;
            let (f, b) =
                (rate(work.forward(&kernel, &times, 989.4e12)), rate(work.backward(&kernel, &times, 989.4e12)));
            assert!((f / forward - 1.0).abs() < 0.09 && (b / backward - 1.0).abs() < 0.1, "{s}: {f} {b}");
        }
    }

    #[test]
    fn what_is_more_is_not_slower_and_masks_only_save() {
        for heads in [1.0, 3.0, 32.0] {
            for keys in [1.0, 5.0, 16.0, 130.0] {
                let full = FusedAttentionWork { heads, kv_heads: 1.0, queries: keys, keys, seen: keys, ..WORK };
                let causal = FusedAttentionWork { seen: (keys + 1.0) / 2.0, edges: 1.0, ..full };
                let both = |work: &FusedAttentionWork, kernel: &FusedKernel, units: u64, peak: f64| {
                    [
                        work.forward(kernel, &times(units), peak).seconds,
                        work.backward(kernel, &times(units), peak).seconds,
                    ]
                };
                for i in 0..2 {
                    for hidden in [0.0, 0.5, 1.0] {
                        let base = both(&full, &kernel(hidden), 4, 4.0)[i];
                        assert!(both(&causal, &kernel(hidden), 4, 4.0)[i] <= base, "mask {full:?}");
                        assert!(both(&full, &kernel(hidden), 4, 8.0)[i] <= base, "peak {full:?}");
                        assert!(both(&full, &kernel(1.0), 4, 4.0)[i] <= base, "hidden {full:?}");
                        let wider = FusedAttentionWork { key_width: 9.0, ..full };
                        assert!(both(&wider, &kernel(hidden), 4, 4.0)[i] >= base, "heads {full:?}");
                        // Units of the same speed, more of them: peak and exponentials grow with their number.
                        let more = FusedKernel { exponentials: 1.0, ..kernel(hidden) };
                        assert!(both(&full, &more, 8, 8.0)[i] <= base * (1.0 + 1e-12), "units {full:?}");
                    }
                }
            }
        }
    }
}
