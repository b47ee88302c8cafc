//! Answers to sub-problems, kept for the life of the process: points of a study that ask the same thing ask it once.
//!
//! The key is a hash of all the numbers of the sub-problem, so that neither names nor where the numbers came from matter,
//! and an entry is a function of its key alone: a study's rows do not depend on which point came first, nor on the number
//! of threads. A thread that asks for what another is working out waits for it. Only answers that no limit of nodes or
//! seconds could change are kept. A full cache keeps what it has and takes nothing more.

use super::elimination::Eliminated;
use super::exact::{Path, Searched};
use super::instance::{Compute, Goal, Instance};
use super::sharding::Problem;
use crate::model::layout::Layout;
use crate::system::Overlap;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Most answers of one kind; of a hundred kernels each they take about 100 MB.
const MOST: usize = 100_000;

/// A hash of a sub-problem's content.
pub(super) type Key = [u8; 32];

/// One kind of answer.
struct Store<T>(Mutex<HashMap<Key, Arc<Mutex<T>>>>);

impl<T: Default> Store<T> {
    fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
    /// The place of an answer; one that is not kept where the store is full.
    fn place(&self, key: Key) -> Arc<Mutex<T>> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= MOST && !places.contains_key(&key) {
            return Arc::default();
        }
        places.entry(key).or_default().clone()
    }
    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// What is known of a fusion problem.
#[derive(Default)]
enum Fusion {
    #[default]
    Unknown,
    /// Its best plan.
    Best(Path),
    /// No plan takes at most so many seconds.
    NoneBelow(f64),
}

static SHARDINGS: LazyLock<Store<Option<Eliminated>>> = LazyLock::new(Store::new);
static FUSIONS: LazyLock<Store<Fusion>> = LazyLock::new(Store::new);

/// Forgets all answers: for measurements.
pub fn clear() {
    SHARDINGS.clear();
    FUSIONS.clear();
    super::shelf::clear();
}

/// The elimination of a sharding problem, worked out by `solve` if it is new. What a deadline stopped is not kept.
pub(super) fn sharding(problem: &Problem, solve: impl FnOnce() -> Eliminated) -> Eliminated {
    let place = SHARDINGS.place(problem_key(problem));
    let mut answer = place.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = &*answer {
        return known.clone();
    }
    let found = solve();
    *answer = Some(found.clone()).filter(|found| *found != Eliminated::OutOfTime);
    found
}

/// The best plan of a fusion problem that takes at most `cutoff` seconds (as [`super::exact::within`] reads it), worked out
/// by `solve`, which is given the cutoff, if it is new. What a deadline stopped is not kept.
pub(super) fn fusion(instance: &Instance, cutoff: f64, solve: impl FnOnce() -> Searched) -> Option<Path> {
    let place = FUSIONS.place(instance_key(instance));
    let mut answer = place.lock().unwrap_or_else(PoisonError::into_inner);
    match &*answer {
        Fusion::Best(path) => return Some(path.clone()).filter(|p| super::exact::within(p.objective, cutoff)),
        Fusion::NoneBelow(known) if cutoff <= *known => return None,
        _ => {}
    }
    let Searched { path: found, stopped } = solve();
    if stopped {
        return found;
    }
    *answer = match &found {
        Some(path) => Fusion::Best(path.clone()),
        None => Fusion::NoneBelow(cutoff),
    };
    found
}

/// The numbers of a sub-problem, in order. They are hashed at once: number by number takes ten times as long.
pub(super) struct Content(Vec<u8>);

impl Content {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(1 << 15))
    }
    pub(super) fn whole(&mut self, x: u64) {
        self.0.extend_from_slice(&x.to_le_bytes());
    }
    pub(super) fn real(&mut self, x: f64) {
        self.whole(x.to_bits());
    }
    pub(super) fn index(&mut self, x: Option<usize>) {
        self.whole(x.map_or(u64::MAX, |x| x as u64));
    }
    pub(super) fn flag(&mut self, x: bool) {
        self.0.push(u8::from(x));
    }
    fn pair(&mut self, pair: Option<(Layout, Layout)>) {
        let of = |layout| match layout {
            Layout::Replicated => 1,
            Layout::Rows => 2,
            Layout::Cols => 3,
            Layout::Partial => 4,
        };
        let (a, b) = pair.map_or((0, 0), |(a, b)| (of(a), of(b)));
        self.0.extend_from_slice(&[a, b]);
    }
    pub(super) fn text(&mut self, x: &str) {
        self.whole(x.len() as u64);
        self.0.extend_from_slice(x.as_bytes());
    }
    pub(super) fn key(self) -> Key {
        *blake3::hash(&self.0).as_bytes()
    }
}

fn problem_key(problem: &Problem) -> Key {
    let mut content = Content::new();
    for (open, cost) in problem.open.iter().zip(&problem.cost) {
        content.whole(open.len() as u64);
        for (strategy, cost) in open.iter().zip(cost) {
            content.whole(*strategy as u64);
            content.real(*cost);
        }
    }
    content.whole(problem.links.len() as u64);
    for link in &problem.links {
        content.whole(link.from as u64);
        content.whole(link.to as u64);
        content.index(link.group);
        link.pairs.iter().flatten().for_each(|pair| content.pair(*pair));
    }
    for group in &problem.groups {
        content.whole(group.len() as u64);
        for (pair, cost) in group {
            content.pair(Some(*pair));
            content.real(*cost);
        }
    }
    content.key()
}

fn instance_key(instance: &Instance) -> Key {
    let mut content = Content::new();
    // Destructured, so that a new field cannot be forgotten.
    let Instance {
        kernels,
        tensors,
        sram_bytes,
        base_sram_bytes,
        live_limit,
        cores,
        dram_bytes_per_s,
        overlap,
        partition_overhead_s,
        kernel_by_kernel,
        separate_phases,
        pins,
        max_partitions,
        goal,
    } = instance;
    // The constant is no part of a plan's value.
    let Goal { second, busy_second, dram_byte, constant: _ } = goal;
    [*second, *busy_second, *dram_byte].into_iter().for_each(|x| content.real(x));
    // A limit that cannot bind is none.
    let all_live: f64 = tensors.iter().map(|t| t.live_bytes).sum();
    let live_limit = if all_live <= *live_limit { f64::INFINITY } else { *live_limit };
    [*sram_bytes, *base_sram_bytes, live_limit, *dram_bytes_per_s, *partition_overhead_s]
        .into_iter()
        .for_each(|x| content.real(x));
    content.whole(*cores);
    content.whole(match overlap {
        Overlap::Full => 0,
        Overlap::ComputeMemory => 1,
        Overlap::None => 2,
    });
    content.flag(*kernel_by_kernel);
    content.flag(*separate_phases);
    content.index(*max_partitions);
    pins.iter().for_each(|pin| content.index(*pin));
    content.whole(kernels.len() as u64);
    for kernel in kernels {
        match &kernel.compute {
            Compute::Seconds(s) => {
                content.flag(false);
                content.real(*s);
            }
            Compute::Cores(options) => {
                content.flag(true);
                content.whole(options.len() as u64);
                for option in options {
                    content.whole(option.cores);
                    content.real(option.seconds);
                }
            }
        }
        [kernel.network_s, kernel.serial_s, kernel.resident_bytes, kernel.dram_bytes]
            .into_iter()
            .for_each(|x| content.real(x));
        content.whole(kernel.pieces);
        content.flag(kernel.backward);
    }
    let fills = instance.fills();
    content.flag(fills);
    for tensor in tensors {
        content.index(tensor.producer);
        content.flag(tensor.output);
        [tensor.store_bytes, tensor.store_buffer, tensor.live_bytes].into_iter().for_each(|x| content.real(x));
        content.whole(tensor.uses.len() as u64);
        for u in &tensor.uses {
            content.whole(u.kernel as u64);
            [u.load_bytes, u.load_buffer, u.onchip_buffer].into_iter().for_each(|x| content.real(x));
            if fills {
                content.real(u.lag);
            }
        }
    }
    content.key()
}
