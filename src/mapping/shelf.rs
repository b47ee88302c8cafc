//! What bandwidths and latencies do not change, kept for the life of the process: points of a study that differ in these
//! alone share it.
//!
//! A shelf belongs to a workload, the numbers of a chip and the options of the model, by their content (names do not
//! matter). On it lie the amounts of each cut that was asked for ([`Amounts`]: bytes, seconds of arithmetic, what is moved
//! between chips), which a point only prices, and what the closed-form bounds sum over the kernels. All of it is a
//! function of its key, so a study's rows do not depend on what was kept. What takes too much room is not kept.

use super::amounts::{Amounts, Cut, SramShort};
use super::cache::{Content, Key};
use super::first_pass::Pass;
use super::ideals::Ideals;
use crate::model::Strategy;
use crate::system::{Chip, Efficiency, System};
use crate::workload::{Kernel, Tensor, Workload};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Most kernels, tensors and collectives of all amounts kept; they take about 100 MB.
const MOST: usize = 500_000;

/// Most shelves.
const MOST_SHELVES: usize = 1000;

static SHELVES: LazyLock<Mutex<HashMap<Key, Arc<Shelf>>>> = LazyLock::new(Mutex::default);
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Forgets everything.
pub(super) fn clear() {
    lock(&SHELVES).clear();
    HELD.store(0, Ordering::Relaxed);
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there is room for something of a size; then it is taken.
fn takes(size: usize) -> bool {
    let fits = HELD.fetch_add(size, Ordering::Relaxed) + size <= MOST;
    if !fits {
        HELD.fetch_sub(size, Ordering::Relaxed);
    }
    fits
}

/// Amounts, or what they lack.
type Built = Result<Arc<Amounts>, SramShort>;

/// A [`Cut`] that is kept.
#[derive(PartialEq, Eq, Hash)]
struct CutKey {
    degrees: (u64, u64, u64),
    sharding: Vec<Strategy>,
    tiles: u64,
    weights_on_chip: bool,
    longest: u64,
}

impl From<Cut<'_>> for CutKey {
    fn from(Cut { degrees, sharding, tiles, weights_on_chip, longest }: Cut<'_>) -> Self {
        Self { degrees, sharding: sharding.to_vec(), tiles, weights_on_chip, longest }
    }
}

/// What one workload, chip and model share.
#[derive(Default)]
pub(super) struct Shelf {
    amounts: Mutex<HashMap<CutKey, Built>>,
    least_bytes: Mutex<HashMap<(u64, u64, u64, u64), f64>>,
    passes: Mutex<HashMap<Vec<u64>, Arc<Pass>>>,
    ideals: Mutex<Option<Ideals>>,
    sums: Mutex<HashMap<u64, Sums>>,
}

/// Sums over the kernels at a degree of tensor parallelism, perfectly split.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sums {
    /// Seconds of arithmetic.
    pub(super) arithmetic_s: f64,
    /// Bytes of weights.
    pub(super) weight_bytes: f64,
    /// FLOP.
    pub(super) flop: f64,
}

impl Shelf {
    /// The shelf of a workload on a chip under a model.
    pub(super) fn of(workload: &Workload, system: &System) -> Arc<Self> {
        let key = key(workload, system);
        let mut shelves = lock(&SHELVES);
        if shelves.len() >= MOST_SHELVES && !shelves.contains_key(&key) {
            return Arc::default();
        }
        shelves.entry(key).or_default().clone()
    }

    /// The amounts of a cut, worked out by `build` if they are not there.
    pub(super) fn amounts(&self, cut: Cut<'_>, build: impl FnOnce() -> Result<Amounts, SramShort>) -> Built {
        let key = CutKey::from(cut);
        if let Some(known) = lock(&self.amounts).get(&key) {
            return known.clone();
        }
        let built = build().map(Arc::new);
        if takes(built.as_ref().map_or(1, |amounts| amounts.size())) {
            lock(&self.amounts).insert(key, built.clone());
        }
        built
    }

    /// The first pass of an assignment, by what it depends on beside the shelf.
    pub(super) fn pass(&self, key: &[u64]) -> Option<Arc<Pass>> {
        lock(&self.passes).get(key).cloned()
    }

    /// Keeps a first pass.
    pub(super) fn keep_pass(&self, key: Vec<u64>, pass: &Arc<Pass>) {
        if takes(pass.problem.open.len() + 4 * pass.problem.links.len()) {
            lock(&self.passes).insert(key, pass.clone());
        }
    }

    /// The ideals of the workload's graph, listed by `list` if they are not known.
    pub(super) fn ideals(&self, list: impl FnOnce() -> Option<Ideals>) -> Option<Ideals> {
        let mut known = lock(&self.ideals);
        if let Some(ideals) = &*known {
            return Some(ideals.clone());
        }
        let ideals = list()?;
        if takes(ideals.sets.len() / 2) {
            *known = Some(ideals.clone());
        }
        Some(ideals)
    }

    /// The least bytes that a chip's DRAM must hold at degrees TP, PP, DP on so many chips, worked out by `sum` if they are
    /// not known.
    pub(super) fn least_bytes(&self, at: (u64, u64, u64, u64), sum: impl FnOnce() -> f64) -> f64 {
        *lock(&self.least_bytes).entry(at).or_insert_with(sum)
    }

    /// Sums at a degree of tensor parallelism, worked out by `sum` if they are not known.
    pub(super) fn sums(&self, tp: u64, sum: impl FnOnce() -> Sums) -> Sums {
        *lock(&self.sums).entry(tp).or_insert_with(sum)
    }
}

/// A hash of all that the amounts are a function of. Structures are taken apart, so that a new field cannot be forgotten.
fn key(workload: &Workload, system: &System) -> Key {
    let (chip, model) = (&system.chip.0, &system.model);
    let mut content = Content::new();
    let Workload {
        name: _,
        kernels,
        tensors,
        repeat,
        blocks,
        word_bytes,
        global_batch,
        micro_batch,
        training,
        tokens_per_sample: _,
        held_bytes,
        divided,
    } = workload;
    [*repeat, *global_batch, *micro_batch, kernels.len() as u64, tensors.len() as u64]
        .into_iter()
        .for_each(|x| content.whole(x));
    content.whole(blocks.len() as u64);
    blocks.iter().for_each(|block| content.whole(block.repeat));
    [*word_bytes, *held_bytes].into_iter().for_each(|x| content.real(x));
    content.flag(*training);
    content.whole(*divided as u64);
    kernels.iter().for_each(|kernel| of_kernel(&mut content, kernel));
    tensors.iter().for_each(|tensor| of_tensor(&mut content, tensor));
    let Chip {
        name: _,
        source: _,
        style,
        cores,
        lanes,
        stages,
        frequency,
        vector_peak,
        sram,
        efficiency,
        launch_overhead,
        kernels: of_kernels,
        price: _,
        power: _,
        idle_share: _,
        energy_per_flop: _,
        generic: _,
        area: _,
    } = chip;
    [*style as u64, *cores, *lanes, *stages].into_iter().for_each(|x| content.whole(x));
    // A peak of zero is refused where chips are read.
    [frequency.0, vector_peak.map_or(0.0, |peak| peak.0), sram.0, launch_overhead.0]
        .into_iter()
        .for_each(|x| content.real(x));
    content.real(match efficiency {
        Efficiency::Constant(share) => share.0,
        Efficiency::LanesStages => -1.0,
        Efficiency::Waves => -2.0,
    });
    if chip.waves().is_some() {
        // Partial sums go through memory, so that its bandwidth is part of the arithmetic.
        content.text(&format!("{of_kernels:?}"));
        content.real(system.memory.0.bandwidth.0);
    }
    // Their peaks tell at what part of the lanes' rate other words are computed.
    content.text(&format!("{:?}", of_kernels.as_ref().map(|kernels| &kernels.peak)));
    // All options: few numbers, and which of them matter may change.
    content.text(&format!("{model:?}"));
    content.key()
}

fn of_kernel(content: &mut Content, kernel: &Kernel) {
    let Kernel {
        name: _,
        op,
        phase,
        shape,
        window,
        tiled,
        accumulates,
        flop,
        passes,
        splits,
        lhs_shared,
        extra_dram_bytes,
        extra_dram_on_each,
        outer_cut,
        collectives,
        spread,
        cache_bytes,
        weight_of,
        word,
        block,
        lookup,
    } = kernel;
    let shape = [shape.outer, shape.m, shape.k, shape.n];
    let words =
        [*op as u64, *phase as u64, *tiled as u64, *window, *passes, *splits, *lhs_shared, collectives.len() as u64];
    shape.into_iter().chain(words).for_each(|x| content.whole(x));
    [*extra_dram_bytes, *cache_bytes].into_iter().for_each(|x| content.real(x));
    content.index(Some(*block));
    [*lookup, *extra_dram_on_each, *outer_cut, *accumulates].into_iter().for_each(|x| content.flag(x));
    content.real(word.unwrap_or(0.0));
    content.flag(flop.is_some());
    content.real(flop.unwrap_or(0.0));
    for own in collectives {
        [own.kind as u64, own.scope as u64, own.times].into_iter().for_each(|x| content.whole(x));
        content.real(own.bytes);
    }
    content.flag(spread.is_some());
    for axis in spread.iter().flat_map(|s| [s.rows, s.cols]) {
        content.index(axis.map(|axis| axis as usize));
    }
    content.index(weight_of.map(|w| w.kernel));
}

fn of_tensor(content: &mut Content, tensor: &Tensor) {
    let Tensor { name: _, rows, cols, producer, consumers, output, carried_from, in_place, word, handed_on } = tensor;
    [*rows, *cols, consumers.len() as u64].into_iter().for_each(|x| content.whole(x));
    content.index(*producer);
    content.index(*carried_from);
    content.flag(*output);
    content.flag(*in_place);
    content.real(word.unwrap_or(0.0));
    content.flag(*handed_on);
    for u in consumers {
        content.whole(u.kernel as u64);
        content.whole(u.slot as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Node;
    use crate::workload::WorkloadSpec;

    /// What other words run at on lanes is part of what the amounts are a function of.
    #[test]
    fn peaks_of_lanes_are_in_the_key() {
        let w = "kind: graph\nname: w\nsource: 'assumed: a test'\nglobal_batch: 1\nword: 4 B\ninputs: [{ name: x, rows: 6, cols: 5 }]\noutputs: [t]\nkernels:\n  \
                 - { name: a, op: gemm_weight, m: 4, k: 6, n: 5, rhs: x, output: t }\n";
        let w = WorkloadSpec::build(&Node::parse("w.yaml", w).unwrap()).unwrap_or_else(|e| panic!("{e}"));
        let of = |fp32: &str| {
            let text = format!(
                "name: s\nsource: test\nchip:\n  name: c\n  style: dataflow\n  cores: 4\n  lanes: 1\n  stages: 1\n  frequency: 1 GHz\n  efficiency: lanes_stages\n  \
                 sram: 1 MiB\n  price: $1\n  power: 1 W\n  source: 'assumed: a test'\n  kernels: {{ source: 'assumed: a test', peak: {{ fp16: 8 GFLOP/s, fp32: {fp32} }}, \
                 units: 4, tiles: [{{ rows: 2, columns: 2 }}], efficiency: 1, batched_efficiency: 1, memory_efficiency: 1, launch: 0 s }}\n\
                 memory: {{ name: m, bandwidth: 8 B/s, price: $1/(GB/s), power: 1 W/(GB/s), source: 'assumed: a test' }}\nnetwork: {{ topology: single-chip }}\n"
            );
            System::build(&Node::parse("s.yaml", &text).unwrap()).unwrap_or_else(|e| panic!("{e}"))
        };
        assert!(key(&w, &of("2 GFLOP/s")) == key(&w, &of("2 GFLOP/s")));
        assert!(key(&w, &of("2 GFLOP/s")) != key(&w, &of("4 GFLOP/s")));
    }
}
