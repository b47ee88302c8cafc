//! What the kernels that have not run cost at least, however they are partitioned.
//!
//! Arithmetic, collectives and what nothing overlaps add up over partitions. Of DRAM traffic there remain what kernels
//! move wherever they run; a load of each tensor that was made and is still to be read, at least by its widest reader;
//! stores of outputs; and the tensors that must cross because their producer and reader cannot share a partition.
//! No partition's time is below that of its parts combined, and the combination of sums is at most the sum of
//! combinations, so the combined sums bound every plan from below.

use super::ideals::Ideals;
use super::instance::{Compute, Instance, combine};

/// Costs by kernel and tensor from which the remainder of an ideal is added up.
pub(super) struct Remaining<'a> {
    instance: &'a Instance,
    /// Seconds of arithmetic: fixed ones, or the least core-seconds over all cores.
    compute: Vec<f64>,
    /// Bytes to load and store each tensor that cannot stay on chip whatever the partitions.
    crossing: Vec<f64>,
}

/// Sums over what remains.
#[derive(Debug, Clone, Copy, Default)]
struct Left {
    kernels: usize,
    compute: f64,
    network: f64,
    serial: f64,
    dram: f64,
}

impl<'a> Remaining<'a> {
    pub(super) fn new(instance: &'a Instance) -> Self {
        let compute = instance.kernels.iter().map(|kernel| match &kernel.compute {
            Compute::Seconds(s) => *s,
            // However the cores are shared, core-seconds are spent.
            Compute::Cores(options) => {
                let least = options.iter().map(|o| o.cores as f64 * o.seconds).fold(f64::INFINITY, f64::min);
                least / instance.cores as f64
            }
        });
        let compute = compute.collect();
        let crosses = |p: usize, k: usize| {
            let (a, b) = (&instance.kernels[p], &instance.kernels[k]);
            instance.kernel_by_kernel
                || (instance.separate_phases && a.backward != b.backward)
                || a.pieces > 1
                || b.pieces > 1
        };
        let crossing = instance.tensors.iter().map(|tensor| {
            let Some(p) = tensor.producer else { return 0.0 };
            let across = tensor.uses.iter().filter(|u| crosses(p, u.kernel));
            let load = across.map(|u| u.load_bytes).fold(0.0, f64::max);
            let leaves = tensor.output || tensor.uses.iter().any(|u| crosses(p, u.kernel));
            load + if leaves { tensor.store_bytes } else { 0.0 }
        });
        let crossing = crossing.collect();
        Self { instance, compute, crossing }
    }

    /// The least time of all kernels.
    pub(super) fn of_all(&self) -> f64 {
        self.time(&self.all())
    }

    /// The least time of the kernels outside each ideal. An ideal has one kernel more than another whose sums are known, so
    /// that only its tensors are looked at.
    pub(super) fn after_each(&self, ideals: &Ideals) -> Vec<f64> {
        let instance = self.instance;
        let n = instance.kernels.len();
        let mut made = vec![Vec::new(); n];
        let mut read = vec![Vec::new(); n];
        for (t, tensor) in instance.tensors.iter().enumerate() {
            if let Some(p) = tensor.producer {
                made[p].push(t);
            }
            for u in &tensor.uses {
                if !read[u.kernel].contains(&t) {
                    read[u.kernel].push(t);
                }
            }
        }
        let mut left = vec![self.all(); ideals.sets.len()];
        for i in 1..ideals.sets.len() {
            let (k, smaller) = ideals.made_by(i);
            let (before, after) = (ideals.sets[smaller], ideals.sets[i]);
            let kernel = &instance.kernels[k];
            let mut sums = left[smaller];
            sums.kernels -= 1;
            sums.compute -= self.compute[k];
            sums.network -= kernel.network_s;
            sums.serial -= kernel.serial_s;
            sums.dram -= kernel.dram_bytes;
            for &t in &made[k] {
                sums.dram += self.load(t, after) - self.crossing[t];
            }
            for &t in &read[k] {
                sums.dram += self.load(t, after) - self.load(t, before);
            }
            left[i] = sums;
        }
        left.iter().map(|sums| self.time(sums)).collect()
    }

    /// Bytes of the widest load of a tensor that was made, for readers outside `ran`.
    fn load(&self, t: usize, ran: u128) -> f64 {
        let readers = self.instance.tensors[t].uses.iter().filter(|u| ran & (1 << u.kernel) == 0);
        readers.map(|u| u.load_bytes).fold(0.0, f64::max)
    }

    fn all(&self) -> Left {
        let instance = self.instance;
        let mut left = Left { kernels: instance.kernels.len(), ..Left::default() };
        for (kernel, compute) in instance.kernels.iter().zip(&self.compute) {
            left.compute += compute;
            left.network += kernel.network_s;
            left.serial += kernel.serial_s;
            left.dram += kernel.dram_bytes;
        }
        for (tensor, crossing) in instance.tensors.iter().zip(&self.crossing) {
            left.dram += match tensor.producer {
                Some(_) => *crossing,
                None => tensor.uses.iter().map(|u| u.load_bytes).fold(0.0, f64::max),
            };
        }
        left
    }

    fn time(&self, left: &Left) -> f64 {
        let instance = self.instance;
        let partitions = if instance.kernel_by_kernel { left.kernels } else { left.kernels.min(1) };
        let serial = left.serial + partitions as f64 * instance.partition_overhead_s;
        combine(instance.overlap, left.compute, left.dram / instance.dram_bytes_per_s, left.network) + serial
    }
}
