//! What the kernels that have not run cost at least, however they are partitioned.
//!
//! Arithmetic, collectives and what nothing overlaps add up over partitions. Of DRAM traffic there remain what kernels
//! move wherever they run; a load of each tensor that was made and is still to be read, at least by its widest reader;
//! stores of outputs; and the tensors that must cross because their producer and reader cannot share a partition.
//! No partition's time is below that of its parts combined, and the combination of sums is at most the sum of
//! combinations, so the combined sums bound every plan from below.

use super::instance::{Compute, Instance, combine};

/// Costs by kernel and tensor from which the remainder of an ideal is added up.
pub(super) struct Remaining<'a> {
    instance: &'a Instance,
    /// Seconds of arithmetic: fixed ones, or the least core-seconds over all cores.
    compute: Vec<f64>,
    /// Bytes to load and to store each tensor that cannot stay on chip whatever the partitions.
    crossing: Vec<f64>,
    stored: Vec<f64>,
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
        let mut crossing = Vec::with_capacity(instance.tensors.len());
        let mut stored = Vec::with_capacity(instance.tensors.len());
        for tensor in &instance.tensors {
            let Some(p) = tensor.producer else {
                crossing.push(0.0);
                stored.push(0.0);
                continue;
            };
            let across = tensor.uses.iter().filter(|u| crosses(p, u.kernel));
            crossing.push(across.map(|u| u.load_bytes).fold(0.0, f64::max));
            let leaves = tensor.output || tensor.uses.iter().any(|u| crosses(p, u.kernel));
            stored.push(if leaves { tensor.store_bytes } else { 0.0 });
        }
        Self { instance, compute, crossing, stored }
    }

    /// The least time of the kernels outside `ran`.
    pub(super) fn after(&self, ran: u128) -> f64 {
        self.outside(|k| ran & (1 << k) != 0)
    }

    /// The least time of the kernels that have not run.
    pub(super) fn outside(&self, ran: impl Fn(usize) -> bool) -> f64 {
        let instance = self.instance;
        let (mut compute, mut network, mut dram, mut serial) = (0.0, 0.0, 0.0, 0.0);
        let mut kernels = 0;
        for (k, kernel) in instance.kernels.iter().enumerate().filter(|(k, _)| !ran(*k)) {
            kernels += 1;
            compute += self.compute[k];
            network += kernel.network_s;
            serial += kernel.serial_s;
            dram += kernel.dram_bytes;
        }
        for (t, tensor) in instance.tensors.iter().enumerate() {
            if tensor.producer.is_some_and(|p| !ran(p)) {
                dram += self.crossing[t] + self.stored[t];
            } else {
                let readers = tensor.uses.iter().filter(|u| !ran(u.kernel));
                dram += readers.map(|u| u.load_bytes).fold(0.0, f64::max);
            }
        }
        let partitions = if instance.kernel_by_kernel { kernels } else { kernels.min(1) };
        serial += partitions as f64 * instance.partition_overhead_s;
        combine(instance.overlap, compute, dram / instance.dram_bytes_per_s, network) + serial
    }
}
