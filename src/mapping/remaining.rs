//! What the kernels that have not run cost at least, however they are partitioned.
//!
//! Arithmetic, collectives and what nothing overlaps add up over partitions. Of DRAM traffic there remain what kernels
//! move wherever they run; a load of each tensor that was made and is still to be read, at least by its widest reader;
//! stores of outputs; and the tensors that must cross because their producer and reader cannot share a partition.
//! No partition's time is below that of its parts combined, and the combination of sums is at most the sum of
//! combinations, so the combined sums bound every plan from below. Where the passes are kept apart, no partition has kernels
//! of both, so that each pass is bounded by itself, and what both read is loaded in both.

use super::ideals::Ideals;
use super::instance::{Compute, Instance, TensorCost, combine};

/// Costs by kernel and tensor from which the remainder of an ideal is added up. Pairs are of the forward and the backward
/// pass; all is in the first where the passes are not kept apart.
pub(super) struct Remaining<'a> {
    instance: &'a Instance,
    /// Seconds of arithmetic: fixed ones, or the least core-seconds over all cores.
    compute: Vec<f64>,
    /// Bytes to load and store each tensor that cannot stay on chip whatever the partitions.
    crossing: Vec<[f64; 2]>,
}

/// Sums over what remains of a pass.
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
        let mut out = Self { instance, compute, crossing: Vec::with_capacity(instance.tensors.len()) };
        for tensor in &instance.tensors {
            let mut bytes = [0.0; 2];
            if let Some(p) = tensor.producer {
                let across = |k: usize| {
                    let pieces = instance.kernels[p].pieces > 1 || instance.kernels[k].pieces > 1;
                    instance.kernel_by_kernel || pieces || out.pass(p) != out.pass(k)
                };
                bytes = out.widest(tensor, across);
                if tensor.output || tensor.uses.iter().any(|u| across(u.kernel)) {
                    bytes[out.pass(p)] += tensor.store_bytes;
                }
            }
            out.crossing.push(bytes);
        }
        out
    }

    fn pass(&self, k: usize) -> usize {
        usize::from(self.instance.separate_phases && self.instance.kernels[k].backward)
    }

    /// Bytes of the widest load of a tensor in each pass, of the readers that count.
    fn widest(&self, tensor: &TensorCost, counts: impl Fn(usize) -> bool) -> [f64; 2] {
        let mut widest = [0.0_f64; 2];
        for u in tensor.uses.iter().filter(|u| counts(u.kernel)) {
            let pass = self.pass(u.kernel);
            widest[pass] = widest[pass].max(u.load_bytes);
        }
        widest
    }

    /// The least time of all kernels, and the least value of what the goal counts.
    pub(super) fn least(&self) -> (f64, f64) {
        let all = self.sums(|_| false);
        (self.time(&all), self.value(&all))
    }

    /// The least value of the kernels that have not run, all predecessors of those that have being among these.
    pub(super) fn after(&self, ran: impl Fn(usize) -> bool) -> f64 {
        self.value(&self.sums(ran))
    }

    /// The least value of the kernels outside each ideal. An ideal has one kernel more than another whose sums are known, so
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
        let mut left = vec![self.sums(|_| false); ideals.sets.len()];
        for i in 1..ideals.sets.len() {
            let (k, smaller) = ideals.made_by(i);
            let load = |t: usize, ran: u128| self.widest(&instance.tensors[t], |k| ran & (1 << k) == 0);
            let (before, after) = (ideals.sets[smaller], ideals.sets[i]);
            let kernel = &instance.kernels[k];
            let mut sums = left[smaller];
            let own = &mut sums[self.pass(k)];
            own.kernels -= 1;
            own.compute -= self.compute[k];
            own.network -= kernel.network_s;
            own.serial -= kernel.serial_s;
            own.dram -= kernel.dram_bytes;
            for &t in &made[k] {
                let (now, gone) = (load(t, after), self.crossing[t]);
                (0..2).for_each(|pass| sums[pass].dram += now[pass] - gone[pass]);
            }
            for &t in &read[k] {
                let (now, gone) = (load(t, after), load(t, before));
                (0..2).for_each(|pass| sums[pass].dram += now[pass] - gone[pass]);
            }
            left[i] = sums;
        }
        left.iter().map(|sums| self.value(sums)).collect()
    }

    fn sums(&self, ran: impl Fn(usize) -> bool) -> [Left; 2] {
        let instance = self.instance;
        let mut left = [Left::default(); 2];
        for (k, kernel) in instance.kernels.iter().enumerate().filter(|(k, _)| !ran(*k)) {
            let own = &mut left[self.pass(k)];
            own.kernels += 1;
            own.compute += self.compute[k];
            own.network += kernel.network_s;
            own.serial += kernel.serial_s;
            own.dram += kernel.dram_bytes;
        }
        for (tensor, crossing) in instance.tensors.iter().zip(&self.crossing) {
            let bytes = match tensor.producer {
                Some(p) if !ran(p) => *crossing,
                _ => self.widest(tensor, |k| !ran(k)),
            };
            left[0].dram += bytes[0];
            left[1].dram += bytes[1];
        }
        left
    }

    fn value(&self, left: &[Left; 2]) -> f64 {
        let sum = |of: fn(&Left) -> f64| left.iter().map(of).sum::<f64>();
        self.instance.goal.value(self.time(left), sum(|l| l.compute), sum(|l| l.dram))
    }

    fn time(&self, left: &[Left; 2]) -> f64 {
        let instance = self.instance;
        let of_pass = |left: &Left| {
            let partitions = if instance.kernel_by_kernel { left.kernels } else { left.kernels.min(1) };
            let serial = left.serial + partitions as f64 * instance.partition_overhead_s;
            combine(instance.overlap, left.compute, left.dram / instance.dram_bytes_per_s, left.network) + serial
        };
        left.iter().map(of_pass).sum()
    }
}
