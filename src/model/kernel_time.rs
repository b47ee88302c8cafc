//! Seconds of one kernel on a chip that runs kernel by kernel.
//!
//! **Products.** A product of `batch` matrices of m rows and n columns over k is cut in tiles of r x c. U units compute a tile each
//! at a time: a wave. A unit's rate is peak x efficiency x (rate of the tile) / U, so with the contraction divided among j units
//!
//! ```text
//! waves   = ceil(batch ceil(m/r) ceil(n/c) j / U)
//! compute = waves (2 r c (k/j) / rate + fill)  +  (j > 1) 8 j batch m n / B        (partial sums of 4 bytes, out and in)
//! memory  = bytes of both operands and the result / B
//! seconds = max(min over tiles and j of compute, memory) + launch
//! ```
//!
//! with B the memory's bandwidth times the share that kernels reach. The last wave is as long as a full one and the last row of
//! tiles as wide as a full one: that is what makes small and odd products slow. (Tile and wave quantisation: NVIDIA, Matrix
//! Multiplication Background User's Guide, 2020.)
//!
//! **Single kernels.** A chip may reach more in a burst than in a long step ([`Burst`]). Where its units
//! wait w for each element of the contracted dimension and hide that among h tiles each, compute is at least
//! ceil(batch ceil(m/r) ceil(n/c) j / (h U)) (k/j) w, which bounds products of few tiles.
//!
//! A share of the operands may be read before their products, and of the result written after them, with nothing beside ([`Burst`]): of products with a short
//! contracted dimension the result is a large part.
//!
//! **Vector work.** bytes / B + kernels x launch.
//!
//! **Fused attention**: [`attention_kernel`](super::attention_kernel).

use crate::system::kernels::{Burst, Kernels};

/// A product of `batch` pairs of matrices; the sizes are numbers of elements, and fractions of a row are rounded up where it is cut in tiles of several rows (of experts m is a mean).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    /// Independent products.
    pub batch: f64,
    /// Rows of the result.
    pub m: f64,
    /// Columns of the result.
    pub n: f64,
    /// The contracted dimension.
    pub k: f64,
}

impl Product {
    /// FLOP: 2 for each multiplication and addition.
    pub fn flop(&self) -> f64 {
        2.0 * self.batch * self.m * self.n * self.k
    }

    /// Bytes of left operand, right operand and result at so many bytes an element.
    pub fn bytes(&self, words: [f64; 3]) -> f64 {
        self.batch * (self.m * self.k * words[0] + self.k * self.n * words[1] + self.m * self.n * words[2])
    }
}

/// Most rows of a product with weights that are widened first which kernels compute as products of vectors: those that widen are written for few rows
/// (llama.cpp, ggml-cuda/mmvq.cuh: MMVQ_MAX_BATCH_SIZE 8), and no padding of tiles is multiplied.
pub const ROWS_OF_VECTORS: f64 = 8.0;

/// One way to compute a tile.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Way {
    rows: f64,
    columns: f64,
    rate: f64,
    parts: f64,
}

/// The kernels of a chip and its memory as plain numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTimes {
    options: Vec<Way>,
    units: f64,
    fill: f64,
    launch: f64,
    bandwidth: f64,
    vector: f64,
    unaligned: f64,
    wait: f64,
    tiles_at_once: f64,
    exposed: [f64; 2],
    vector_rows: f64,
    unpacking: f64,
}

/// The next whole number. What is one but for its last digits stays it: which digits those are hangs on the order of a sum.
fn whole(number: f64) -> f64 {
    (number * (1.0 - 1e-12)).ceil()
}

/// Tiles along a side of a result. Rows are a mean where tokens choose experts; in tiles of one row there are as many, not more.
fn tiles_along(side: f64, tile: f64) -> f64 {
    if tile > 1.0 { whole(side / tile) } else { side }
}

impl KernelTimes {
    /// Of a chip beside a memory of `bandwidth` bytes/s.
    pub fn new(kernels: &Kernels, bandwidth: f64) -> Self {
        let mut options = Vec::new();
        for tile in &kernels.tiles {
            let mut parts = 1;
            while parts <= tile.splits {
                options.push(Way {
                    rows: tile.rows as f64,
                    columns: tile.columns as f64,
                    rate: tile.rate.0,
                    parts: parts as f64,
                });
                parts *= 2;
            }
        }
        Self {
            options,
            units: kernels.units as f64,
            fill: kernels.fill.0,
            launch: kernels.launch.0,
            bandwidth: bandwidth * kernels.memory_efficiency.0,
            vector: kernels.vector as f64,
            unaligned: kernels.unaligned.0,
            wait: 0.0,
            tiles_at_once: 1.0,
            exposed: [0.0; 2],
            vector_rows: 0.0,
            unpacking: f64::INFINITY,
        }
    }

    /// Of a chip that computes at one rate whatever the sizes, beside a memory of `bandwidth` bytes/s that all kernels reach: no tiles, no waves.
    pub fn even(bandwidth: f64) -> Self {
        let one = Way { rows: 1.0, columns: 1.0, rate: 1.0, parts: 1.0 };
        Self {
            options: vec![one],
            units: 1.0,
            fill: 0.0,
            launch: 0.0,
            bandwidth,
            vector: 1.0,
            unaligned: 1.0,
            wait: 0.0,
            tiles_at_once: 1.0,
            exposed: [0.0; 2],
            vector_rows: 0.0,
            unpacking: f64::INFINITY,
        }
    }

    /// What single kernels take on it; `launch` seconds each instead of the chip's own.
    pub fn burst(kernels: &Kernels, burst: &Burst, bandwidth: f64, launch: f64) -> Self {
        Self {
            launch,
            bandwidth: bandwidth * burst.memory_efficiency.0,
            wait: burst.wait.0,
            tiles_at_once: burst.tiles_at_once as f64,
            exposed: [burst.exposed_operands.0, burst.exposed_result.0],
            vector_rows: burst.vector_rows as f64,
            unpacking: burst.unpacking.map_or(f64::INFINITY, |b| b.0),
            ..Self::new(kernels, bandwidth)
        }
    }

    /// The same chip with kernels that multiply vectors: whatever the sizes, all units compute, and no tile is padded.
    pub fn of_vectors(&self) -> Self {
        Self { exposed: self.exposed, launch: self.launch, unpacking: self.unpacking, ..Self::even(self.bandwidth) }
    }

    /// Bytes/s that kernels get from memory.
    pub fn bandwidth(&self) -> f64 {
        self.bandwidth
    }

    /// FLOP/s of products at `rate` whose operands of `word` bytes an element are unpacked in squares of 32 x 32, 2 x 32 FLOP and 2 words for each element: neither
    /// is wholly hidden beside the other, and both take the root of the sum of their squares.
    pub fn fed(&self, rate: f64, word: f64) -> f64 {
        1.0 / (1.0 / rate).hypot(word / (32.0 * self.unpacking))
    }

    /// Rate, relative to others, of batched products whose matrices have rows of these sizes: matrix units load whole vectors, and a size that is
    /// no multiple of one leaves the product to slower kernels.
    pub fn alignment(&self, sizes: [f64; 2]) -> f64 {
        if sizes.iter().all(|size| size % self.vector == 0.0) { 1.0 } else { self.unaligned }
    }

    /// Seconds of a product at `rate` FLOP/s on the whole chip (peak x efficiency), operands and result of `words` bytes an element.
    /// A product of nothing takes nothing.
    pub fn product(&self, p: &Product, rate: f64, words: [f64; 3]) -> f64 {
        self.product_and(p, rate, words, 0.0)
    }

    /// The same of a product whose end also does vector work that moves `beside` bytes: they travel beside its arithmetic as its own do.
    pub fn product_and(&self, p: &Product, rate: f64, words: [f64; 3], beside: f64) -> f64 {
        self.product_in_parts(p, rate, words, beside).0
    }

    /// The same, and beside it what of it is arithmetic ([`Self::arithmetic`]).
    pub fn product_in_parts(&self, p: &Product, rate: f64, words: [f64; 3], beside: f64) -> (f64, f64) {
        if p.flop() <= 0.0 {
            return (0.0, 0.0);
        }
        let [operands, result] = self.exposed;
        let written = p.batch * p.m * p.n * words[2];
        let waited = operands * (p.bytes(words) - written) + result * written;
        let arithmetic = self.arithmetic(p, rate);
        let seconds =
            (arithmetic + waited / self.bandwidth).max((p.bytes(words) + beside) / self.bandwidth) + self.launch;
        (seconds, arithmetic)
    }

    /// The same without its bytes and its launch: waves of tiles, and the partial sums of a divided contraction.
    pub fn arithmetic(&self, p: &Product, rate: f64) -> f64 {
        if p.m <= self.vector_rows {
            return p.flop() / rate;
        }
        let mut best = f64::INFINITY;
        for o in &self.options {
            let tiles = p.batch * tiles_along(p.m, o.rows) * tiles_along(p.n, o.columns);
            let waves = whole(tiles * o.parts / self.units);
            let tile = 2.0 * o.rows * o.columns * (p.k / o.parts) / (rate / self.units * o.rate);
            let mut time = waves * (tile + self.fill);
            if self.wait > 0.0 {
                let rounds = whole(tiles * o.parts / (self.units * self.tiles_at_once));
                time = time.max(rounds * p.k / o.parts * self.wait);
            }
            if o.parts > 1.0 {
                time += 8.0 * o.parts * p.batch * p.m * p.n / self.bandwidth;
            }
            best = best.min(time);
        }
        best
    }

    /// Units that compute side by side.
    pub fn units(&self) -> f64 {
        self.units
    }

    /// Seconds of a kernel beyond its work.
    pub fn launch(&self) -> f64 {
        self.launch
    }

    /// Seconds of one kernel of `flop` at `rate` FLOP/s that moves `bytes`, whatever its shape.
    pub fn fused(&self, flop: f64, rate: f64, bytes: f64) -> f64 {
        (flop / rate).max(bytes / self.bandwidth) + self.launch
    }

    /// Seconds of vector work that moves `bytes` in `kernels` kernels.
    pub fn vector(&self, bytes: f64, kernels: f64) -> f64 {
        bytes / self.bandwidth + kernels * self.launch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Node, Reader};

    /// 4 units of 1 FLOP/s each at full efficiency, tiles of 2 x 2 that may be split in two, memory of 8 B/s of which half is reached.
    fn chip(edit: &str) -> KernelTimes {
        let text = format!(
            "{{source: 'assumed: test', peak: {{fp16: 4 FLOP/s}}, units: 4, tiles: [{{rows: 2, columns: 2, splits: 2}}], \
             efficiency: 1, batched_efficiency: 1, memory_efficiency: 0.5, launch: 0.25 s, fill: 0.5 s{edit}}}"
        );
        let node = Node::parse("k.yaml", &text).unwrap();
        KernelTimes::new(&Reader::read::<Kernels>(&node).unwrap(), 8.0)
    }

    const SQUARE: Product = Product { batch: 1.0, m: 4.0, n: 4.0, k: 100.0 };

    #[test]
    fn whole_waves_by_hand() {
        // 4 tiles, one wave: 2 x 2 x 2 x 100 / 1 = 800 s, fill 0.5, launch 0.25; memory (800 x 2 words + 32)/4 = 208 s is under it.
        assert_eq!(chip("").product(&SQUARE, 4.0, [1.0, 1.0, 2.0]), 800.75);
        // A row more: 6 tiles, two waves.
        let odd = Product { m: 5.0, ..SQUARE };
        // Split in two: 12 half tiles, three waves of 400.5 and 8 x 2 x 20 / 4 of partial sums: 1281.5 against 1601.
        assert_eq!(chip("").product(&odd, 4.0, [1.0, 1.0, 2.0]), 3.0 * 400.5 + 80.0 + 0.25);
    }

    #[test]
    fn split_fills_idle_units_and_memory_bounds() {
        // One tile: split over two units 400.5 + 8 x 2 x 4 / 4 = 416.5 instead of 800.5.
        let one = Product { m: 2.0, n: 2.0, ..SQUARE };
        assert_eq!(chip("").product(&one, 4.0, [1.0; 3]), 416.75);
        // So fast that memory counts: (400 + 400 + 16)/4.
        assert_eq!(chip("").product(&SQUARE, 4e9, [1.0; 3]), 204.25);
        assert_eq!(chip("").product(&Product { k: 0.0, ..SQUARE }, 4.0, [1.0; 3]), 0.0);
        assert_eq!(chip("").vector(12.0, 2.0), 3.5);
        assert_eq!(chip("").fused(100.0, 4.0, 8.0), 25.25);
        let eights = chip(", vector: 8, unaligned: 0.25");
        assert_eq!((eights.alignment([104.0, 2048.0]), eights.alignment([108.0, 2048.0])), (1.0, 0.25));
        assert_eq!(chip("").alignment([7.0, 3.0]), 1.0);
    }

    /// Units that wait 10 s for each element of k and hold two tiles at once: 4 tiles in one round of 8, 100 x 10 s; in half contractions 8 tiles in
    /// one round of 500 s. Bursts have their own launch.
    #[test]
    fn few_tiles_wait_for_their_operands() {
        let burst = "{efficiency: 1, batched_efficiency: 1, memory_efficiency: 1, wait: 10 s, tiles_at_once: 2}";
        let text = format!(
            "{{source: 'assumed: test', peak: {{fp16: 4 FLOP/s}}, units: 4, tiles: [{{rows: 2, columns: 2, splits: 2}}], \
             efficiency: 1, batched_efficiency: 1, memory_efficiency: 0.5, launch: 0.25 s, burst: {burst}}}"
        );
        let kernels = Reader::read::<Kernels>(&Node::parse("k.yaml", &text).unwrap()).unwrap();
        let times = KernelTimes::burst(&kernels, &kernels.burst_of("fp16"), 8.0, 1.0);
        // 500 s against 2 waves of 400 s: compute 800 s in halves, 800 s whole but 1000 s of waiting. Partial sums 8 x 2 x 16 / 8.
        assert_eq!(times.product(&SQUARE, 4.0, [1.0; 3]), 800.0 + 32.0 + 1.0);
        // Fast units: only the wait is left.
        assert_eq!(times.product(&SQUARE, 4e9, [1.0; 3]).round(), 533.0);
        assert_eq!(times.bandwidth(), 8.0);
    }

    /// One row fills no tile of 2 x 2 and does not wait: 2 x 4 x 100 FLOP at 4 FLOP/s; with two rows both.
    #[test]
    fn products_of_vectors_have_no_tiles() {
        let burst = "{efficiency: 1, batched_efficiency: 1, memory_efficiency: 1, wait: 10 s, tiles_at_once: 2, vector_rows: 1}";
        let text = format!(
            "{{source: 'assumed: test', peak: {{fp16: 4 FLOP/s}}, units: 1, tiles: [{{rows: 2, columns: 2}}], \
             efficiency: 1, batched_efficiency: 1, memory_efficiency: 0.5, launch: 0.25 s, burst: {burst}}}"
        );
        let kernels = Reader::read::<Kernels>(&Node::parse("k.yaml", &text).unwrap()).unwrap();
        let times = KernelTimes::burst(&kernels, &kernels.burst_of("fp16"), 8.0, 1.0);
        let rows = |m| times.product(&Product { batch: 1.0, m, n: 4.0, k: 100.0 }, 4.0, [1.0; 3]);
        assert_eq!(rows(1.0), 200.0 + 1.0);
        assert_eq!(rows(2.0), 1000.0 + 1.0);
    }

    /// 1.5 rows of each of two experts on units of one row and column: 12 tiles on 4 units, three waves, and not 16. A sum that is whole but for its last digit has no wave more.
    #[test]
    fn mean_rows_fill_no_tiles_of_one_row() {
        let text = "{source: 'assumed: test', peak: {fp16: 4 FLOP/s}, units: 4, tiles: [{rows: 1, columns: 1}], efficiency: 1, \
                    batched_efficiency: 1, memory_efficiency: 0.5, launch: 0 s}";
        let kernels = Reader::read::<Kernels>(&Node::parse("k.yaml", text).unwrap()).unwrap();
        let times = KernelTimes::new(&kernels, 8.0);
        let seconds = |m| times.arithmetic(&Product { batch: 2.0, m, n: 4.0, k: 100.0 }, 4.0);
        assert_eq!(seconds(1.5), 600.0);
        assert_eq!(seconds(1.5 * (1.0 + 1e-15)), 600.0);
        assert_eq!(seconds(1.501), 800.0);
    }

    #[test]
    fn more_of_anything_is_never_slower() {
        let slow = chip("");
        let node = |text: &str| Reader::read::<Kernels>(&Node::parse("k.yaml", text).unwrap()).unwrap();
        let base = "source: 'assumed: test', peak: {fp16: 4 FLOP/s}, units: 4, efficiency: 1, batched_efficiency: 1, memory_efficiency: 0.5, launch: 0.25 s, fill: 0.5 s";
        let more = KernelTimes::new(
            &node(&format!(
                "{{{base}, tiles: [{{rows: 2, columns: 2, splits: 2}}, {{rows: 1, columns: 4, rate: 0.5}}]}}"
            )),
            8.0,
        );
        let wide = KernelTimes::new(&node(&format!("{{{base}, tiles: [{{rows: 2, columns: 2, splits: 2}}]}}")), 16.0);
        for m in 1..20 {
            for n in 1..9 {
                for k in [1.0, 7.0, 64.0] {
                    let p = Product { batch: 1.0, m: f64::from(m), n: f64::from(n), k };
                    let time = slow.product(&p, 4.0, [2.0; 3]);
                    assert!(slow.product(&p, 8.0, [2.0; 3]) <= time, "peak {p:?}");
                    assert!(wide.product(&p, 4.0, [2.0; 3]) <= time, "bandwidth {p:?}");
                    assert!(more.product(&p, 4.0, [2.0; 3]) <= time, "tiles {p:?}");
                    assert!(slow.product(&Product { m: p.m + 1.0, ..p }, 4.0, [2.0; 3]) >= time, "rows {p:?}");
                }
            }
        }
    }
}
