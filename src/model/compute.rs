//! Local sizes of a sharded, tiled kernel; its FLOP, and its time on the chip's compute units.

use super::layout::{Layout, Strategy};
use crate::graph::{Axis, Kernel, Op, Phase, Slot, Tensor};
use crate::system::Chip;
use crate::system::options::{Charge, ModelOptions};

/// `a / b`, rounded up.
pub fn ceil_div(a: u64, b: u64) -> u64 {
    a.div_ceil(b.max(1))
}

/// How streamed sizes are cut: into so many tiles, of which those that hold nothing count or do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    count: u64,
    empty: Charge,
}

impl Tiling {
    /// Everything in one tile.
    pub const WHOLE: Self = Self { count: 1, empty: Charge::Ignored };

    /// A plan's tile count under a model.
    pub fn new(count: u64, options: &ModelOptions) -> Self {
        Self { count, empty: options.empty_tiles }
    }

    /// Tiles of a size, and the width of each, ceil(size / count). A size that so wide tiles fill with fewer of them has fewer.
    pub fn of(self, size: u64) -> (u64, u64) {
        let width = ceil_div(size, self.count);
        let tiles = if self.empty == Charge::Charged { self.count } else { ceil_div(size, width) };
        (tiles, width)
    }
}

/// What one chip computes of a kernel for one tile (model.md section 5, "Tiling and shards").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Local {
    /// Output rows: ceil(outer / t) problems of m when those are split, ceil(outer m / t) rows when these are, or problems may be cut.
    pub rows: u64,
    /// Contracted size, ceil(k / t) when it is split, of one tile for kernels tiled along k.
    pub k: u64,
    /// Output columns, ceil(n / t) when they are split, of one tile for kernels tiled along n.
    pub n: u64,
    /// Tiles.
    pub tiles: u64,
}

/// Local sizes of `kernel` under `strategy` in a group of `t` chips.
pub fn local(kernel: &Kernel, strategy: Strategy, t: u64, tiling: Tiling) -> Local {
    let shape = &kernel.shape;
    let rows = match strategy {
        Strategy::Outer if !kernel.outer_cut => ceil_div(shape.outer, t) * shape.m,
        Strategy::Outer | Strategy::M => ceil_div(shape.rows(), t),
        _ => shape.rows(),
    };
    let k = if strategy == Strategy::K { ceil_div(shape.k, t) } else { shape.k };
    let n = if strategy == Strategy::N { ceil_div(shape.n, t) } else { shape.n };
    match (kernel.tiled, tiling.of(k), tiling.of(n)) {
        (Axis::K, (tiles, k), _) => Local { rows, k, n, tiles },
        (_, _, (tiles, n)) => Local { rows, k, n, tiles },
    }
}

/// Problems that a kernel has side by side on one chip, each with its own part of weight and result.
pub fn problems(kernel: &Kernel, local: &Local) -> u64 {
    (local.rows / kernel.shape.m.max(1)).max(1)
}

/// Whether each of a kernel's problems has its own part of an operand: not of one that a product with a weight streams to all of them.
pub fn has_own_part(kernel: &Kernel, slot: Slot) -> bool {
    slot == Slot::Aligned || (kernel.op != Op::GemmWeight && kernel.lhs_shared <= 1)
}

/// Pieces in which a kernel alone on the chip takes the `held` bytes of its problems, of which there is `room` for a part, and how often it loads an operand of which each problem
/// has its own part: whole problems where one fits, else problem by problem in parts.
pub fn pieces(held: f64, room: f64, problems: u64) -> (u64, u64) {
    let each = held / problems as f64;
    if problems > 1 && each <= room {
        return (problems.div_ceil((room / each) as u64).max(2), 1);
    }
    let parts = ((each / room).ceil() as u64).max(2);
    (problems.saturating_mul(parts), parts)
}

/// The part of a pass of so many samples by which a reader on the same chip begins after the kernel that makes its operand, which is
/// cut into tiles of `tile` out of `bytes`: after the operand's first tile, or, where it must be there `whole` first, after a sample;
/// after a sample, too, where the producer adds its result up over one, and after the whole pass where it is tiled along its contraction and adds up to the end.
pub fn lag(producer: &Kernel, whole: bool, (bytes, tile): (f64, f64), samples: f64) -> f64 {
    match producer.tiled {
        Axis::K => 1.0,
        _ if whole || producer.accumulates || bytes <= tile => 1.0 / samples,
        _ => tile / (bytes * samples),
    }
}

/// FLOP of one tile on one chip: 2 m n k for GEMMs, m n otherwise (model.md section 5, F_v); of a kernel that states its
/// FLOP, these in proportion to the tile's part of the iteration space.
pub fn tile_flop(kernel: &Kernel, local: &Local) -> f64 {
    let elements = local.rows as f64 * local.n as f64;
    match kernel.flop {
        Some(flop) => {
            let shape = &kernel.shape;
            flop * (elements * local.k as f64) / (shape.rows() as f64 * shape.n as f64 * shape.k as f64)
        }
        None if kernel.is_gemm() => 2.0 * elements * local.k as f64,
        None => elements,
    }
}

/// FLOP of all tiles of one sample on one chip.
pub fn shard_flop(kernel: &Kernel, local: &Local) -> f64 {
    local.tiles as f64 * tile_flop(kernel, local)
}

/// FLOP/s that a kernel reaches at most on a chip: the matrix peak, or the vector peak for kernels that are no GEMM
/// where the chip states one and the model has it.
pub fn peak(chip: &Chip, kernel: &Kernel, options: &ModelOptions) -> f64 {
    match chip.vector_peak {
        Some(vector) if (!kernel.is_gemm() || kernel.lookup) && options.vector_unit == Charge::Charged => vector.0,
        _ => lanes_peak(chip, options),
    }
}

/// FLOP/s of matrix work: two a multiply-accumulate, lane, stage, core and cycle (model.md section 5, GF).
pub fn lanes_peak(chip: &Chip, options: &ModelOptions) -> f64 {
    let frequency = options.precision.round(chip.frequency.0 / 1e9) * 1e9;
    2.0 * chip.lanes as f64 * chip.stages as f64 * chip.cores as f64 * frequency
}

/// Seconds of all tiles of one sample at a constant efficiency u: tiles * F / (u * peak).
pub fn seconds_at_efficiency(chip: &Chip, kernel: &Kernel, local: &Local, u: f64, options: &ModelOptions) -> f64 {
    shard_flop(kernel, local) / (options.precision.round(u) * peak(chip, kernel, options))
}

/// Elements that a look-up moves in one tile.
fn looked_up(kernel: &Kernel, local: &Local) -> u64 {
    tile_flop(kernel, local).ceil().max(1.0) as u64
}

/// Cycles of one tile on `lanes` x `stages` cores of `W` lanes and `H` stages (model.md section 5, "Compute"): a GEMM
/// takes ceil(m/(L W)) ceil(n/(s H)) k, vector work ceil(m/(L W)) n with one stage; that as often as the kernel goes over
/// its iteration space. A look-up takes an element a lane.
pub fn tile_cycles(chip: &Chip, kernel: &Kernel, local: &Local, lanes: u64, stages: u64) -> u64 {
    if kernel.lookup {
        return ceil_div(looked_up(kernel, local), lanes.saturating_mul(chip.lanes));
    }
    let rows = ceil_div(local.rows, lanes.saturating_mul(chip.lanes));
    let once = if kernel.is_gemm() {
        let cols = ceil_div(local.n, stages.saturating_mul(chip.stages));
        rows.saturating_mul(cols).saturating_mul(local.k)
    } else {
        rows.saturating_mul(local.n)
    };
    once.saturating_mul(kernel.passes)
}

/// Seconds of a kernel's cycles if they divided evenly among all lanes (and stages, for a GEMM) of a chip: what no
/// allocation of cores beats.
pub fn least_core_seconds(chip: &Chip, kernel: &Kernel) -> f64 {
    let shape = &kernel.shape;
    let steps = shape.rows() as f64 * shape.n as f64 * kernel.passes as f64;
    let units = chip.lanes as f64 * chip.cores as f64;
    if kernel.lookup {
        return kernel.flop() / units / chip.frequency.0;
    }
    let cycles = if kernel.is_gemm() { steps * shape.k as f64 / (units * chip.stages as f64) } else { steps / units };
    cycles / chip.frequency.0
}

/// A way to run a kernel: so many cores, so many seconds for all tiles of one sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoreOption {
    /// Cores, lanes x stages.
    pub cores: u64,
    /// Lane groups side by side.
    pub lanes: u64,
    /// Stage groups.
    pub stages: u64,
    /// Seconds of all tiles of one sample.
    pub seconds: f64,
}

/// Core allocations of a kernel that are worth considering: none has both fewer cores and fewer cycles than another.
/// Ascending in cores, descending in seconds.
///
/// Only allocations at which a rounded-up quotient changes can be on this front, so the walk goes over the distinct
/// values of ceil(m/(L W)) and ceil(n/(s H)): at most 2 sqrt(m/W) times 2 sqrt(n/H) of them.
pub fn core_options(chip: &Chip, kernel: &Kernel, local: &Local) -> Vec<CoreOption> {
    let across = if kernel.lookup { looked_up(kernel, local) } else { local.rows };
    let lanes = breakpoints(ceil_div(across, chip.lanes), chip.cores);
    let stages = if kernel.is_gemm() && !kernel.lookup {
        breakpoints(ceil_div(local.n, chip.stages), chip.cores)
    } else {
        vec![1]
    };
    let mut all: Vec<(u64, u64, u64, u64)> = Vec::new();
    for &l in &lanes {
        for &s in &stages {
            if l.saturating_mul(s) <= chip.cores {
                all.push((l * s, tile_cycles(chip, kernel, local, l, s), l, s));
            }
        }
    }
    all.sort_unstable();
    let mut front: Vec<CoreOption> = Vec::new();
    let mut best = u64::MAX;
    for (cores, cycles, lanes, stages) in all {
        if cycles < best {
            best = cycles;
            let seconds = local.tiles as f64 * cycles as f64 / chip.frequency.0;
            front.push(CoreOption { cores, lanes, stages, seconds });
        }
    }
    front
}

/// The smallest `x` in 1..=most for each distinct value of ceil(size / x).
fn breakpoints(size: u64, most: u64) -> Vec<u64> {
    let mut xs = Vec::new();
    let mut x = 1;
    while x <= most.min(size.max(1)) {
        xs.push(x);
        let quotient = ceil_div(size, x);
        if quotient <= 1 {
            break;
        }
        // The next smaller quotient is first reached at ceil(size / (quotient - 1)).
        x = ceil_div(size, quotient - 1);
    }
    xs
}

/// Bytes of one sample of a tensor on one chip, and of one tile of it, in a layout.
pub fn tensor_bytes(tensor: &Tensor, layout: Layout, t: u64, tiling: Tiling, word: f64) -> (f64, f64) {
    let rows = if layout == Layout::Rows { ceil_div(tensor.rows, t) } else { tensor.rows };
    let cols = if layout == Layout::Cols { ceil_div(tensor.cols, t) } else { tensor.cols };
    let (tiles, width) = tiling.of(cols);
    let tile = rows as f64 * width as f64 * tensor.word_or(word);
    (tile * tiles as f64, tile)
}

/// Bytes of a kernel's weight on one chip: rows x k words (zero for kernels without one).
pub fn weight_bytes(kernel: &Kernel, strategy: Strategy, t: u64, word: f64) -> f64 {
    if kernel.weight_elements() == 0.0 {
        return 0.0;
    }
    let local = local(kernel, strategy, t, Tiling::WHOLE);
    local.rows as f64 * local.k as f64 * kernel.word_or(word)
}

/// Bytes of its weight and of its gradient that a kernel moves through the chip in a pass: of a table only what is looked up,
/// which is counted beside tensors and weights.
pub fn moved_bytes(kernel: &Kernel, strategy: Strategy, t: u64, word: f64) -> (f64, f64) {
    if kernel.lookup {
        return (0.0, 0.0);
    }
    (weight_bytes(kernel, strategy, t, word), gradient_bytes(kernel, strategy, t, word))
}

/// Chips among which the DRAM bytes that a kernel moves or keeps beside tensors and weights are divided: none where it is
/// replicated; with its outer problems split, no more than there are problems (or groups of problems that share an
/// operand): a key-value head lies whole on each chip that has one of its query heads, and so do all of them where columns are split.
pub fn extra_dram_share(kernel: &Kernel, strategy: Strategy, t: u64) -> f64 {
    match strategy {
        _ if kernel.extra_dram_on_each => 1.0,
        Strategy::Replicate => 1.0,
        Strategy::N if kernel.shape.outer > 1 => 1.0,
        Strategy::Outer => t.min((kernel.shape.outer / kernel.lhs_shared.max(1)).max(1)) as f64,
        _ => t as f64,
    }
}

/// DRAM bytes beyond tensors and weights that a chip moves of a kernel for so many samples.
pub fn extra_dram(kernel: &Kernel, strategy: Strategy, t: u64, samples: f64) -> f64 {
    kernel.extra_dram_bytes * samples / extra_dram_share(kernel, strategy, t)
}

/// Bytes of the gradient that a weight-gradient kernel accumulates on one chip: rows x n words.
pub fn gradient_bytes(kernel: &Kernel, strategy: Strategy, t: u64, word: f64) -> f64 {
    if kernel.phase != Phase::BackwardWeight {
        return 0.0;
    }
    let local = local(kernel, strategy, t, Tiling::WHOLE);
    local.rows as f64 * local.n as f64 * kernel.word_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 10 columns in 4 tiles are 4 of 3; in 7 they are 5 of 2, two of the 7 would be empty; one column is one tile.
    #[test]
    fn empty_tiles_are_not_run() {
        let tiles = |count, empty, size| Tiling { count, empty }.of(size);
        for (count, size, few, all) in [(4, 10, (4, 3), (4, 3)), (7, 10, (5, 2), (7, 2)), (8, 1, (1, 1), (8, 1))] {
            assert_eq!(tiles(count, Charge::Ignored, size), few);
            assert_eq!(tiles(count, Charge::Charged, size), all);
        }
    }

    /// By hand: ceil(10/x) takes 10, 5, 4, 3, 2, 1 first at x = 1, 2, 3, 4, 5, 10.
    #[test]
    fn breakpoints_by_hand() {
        assert_eq!(breakpoints(10, 100), vec![1, 2, 3, 4, 5, 10]);
        assert_eq!(breakpoints(10, 4), vec![1, 2, 3, 4]);
        assert_eq!(breakpoints(1, 4), vec![1]);
    }
}
