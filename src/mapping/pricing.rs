//! The cost of a partition that grows kernel by kernel, without walking all tensors again.
//!
//! [`Instance::partition`] defines what a partition costs. Here a partition starts at an ideal (what has run before) and
//! kernels join it one at a time, each after its predecessors, so that only the tensors of the kernel that joins change:
//! what it makes begins to be stored, what it reads is loaded or passed on chip, and what it was the last to read is no
//! longer stored. [`Pricer::add`] and [`Pricer::take_back`] are inverse to each other; a walk over all partitions that
//! start at one ideal is a depth-first search with one of them a step.
//!
//! Some parts of a cost only grow while kernels join: arithmetic, collectives, loads, residents, buffers of readers,
//! cores, the lag of the last kernel behind the first. What is only grown past a limit stays past it, so that a walk may turn back ([`Pricer::hopeless`],
//! [`Pricer::least_value`]). Stores and their buffers may go again when the last reader joins.

use super::instance::{CAPACITY_TOLERANCE, Compute, Instance, PartitionCost, When, combine, piped};
use crate::model::compute::CoreOption;

/// Most numbers of cores that are kept, of all kernels.
const MOST_KNOWN: usize = 1 << 21;

/// No chip has so many cores: a kernel that asks for more cannot be as fast.
const MOST_CORES: u64 = 1 << 40;

/// A reader of a tensor, seen from the reader.
#[derive(Debug, Clone, Copy)]
struct Read {
    tensor: usize,
    load_bytes: f64,
    load_buffer: f64,
    onchip_buffer: f64,
    lag: f64,
}

/// What a tensor adds to the partition under way.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    /// DRAM bytes of its load.
    load: f64,
    /// SRAM bytes that only grow.
    buffer: f64,
    /// Whether it is stored for readers that are still to come.
    stored: bool,
    /// Readers still to come.
    left: usize,
}

/// Sums over the partition under way.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    members: usize,
    alone: bool,
    seconds: f64,
    /// Position of the slowest kernel's time among all times, and the cores that it asks for; none without such kernels.
    slowest: Option<(usize, u64)>,
    crowded: bool,
    network: f64,
    serial: f64,
    dram: f64,
    dram_of_stores: f64,
    sram: f64,
    sram_of_stores: f64,
    live: f64,
    /// When the last kernel to begin does, as a part of the pass.
    lag: f64,
}

/// What a step of the walk must restore.
struct Step {
    kernel: usize,
    sums: Sums,
    log: usize,
}

/// The cost of a growing partition.
pub(super) struct Pricer<'a> {
    instance: &'a Instance,
    made: Vec<Vec<usize>>,
    read: Vec<Vec<Read>>,
    /// All times of all core options, ascending.
    times: Vec<f64>,
    /// Of each kernel that has joined, the fewest cores at which it takes at most each of these times: a walk asks millions of times. Empty where unknown.
    fewest: Vec<Vec<u64>>,
    /// Whether pipelines of tiles fill: else no kernel begins later than another.
    fills: bool,
    place: Vec<When>,
    /// When each kernel of the partition begins, as a part of the pass.
    begins: Vec<f64>,
    held: Vec<Held>,
    sums: Sums,
    steps: Vec<Step>,
    log: Vec<(usize, Held)>,
}

impl<'a> Pricer<'a> {
    pub(super) fn new(instance: &'a Instance) -> Self {
        let n = instance.kernels.len();
        let mut made = vec![Vec::new(); n];
        let mut read = vec![Vec::new(); n];
        for (t, tensor) in instance.tensors.iter().enumerate() {
            if let Some(p) = tensor.producer {
                made[p].push(t);
            }
            for u in &tensor.uses {
                read[u.kernel].push(Read {
                    tensor: t,
                    load_bytes: u.load_bytes,
                    load_buffer: u.load_buffer,
                    onchip_buffer: u.onchip_buffer,
                    lag: u.lag,
                });
            }
        }
        let mut times: Vec<f64> = instance
            .kernels
            .iter()
            .flat_map(|k| match &k.compute {
                Compute::Cores(options) => options.as_slice(),
                Compute::Seconds(_) => &[],
            })
            .map(|o| o.seconds)
            .collect();
        times.sort_unstable_by(f64::total_cmp);
        times.dedup();
        Self {
            instance,
            made,
            read,
            times,
            fewest: vec![Vec::new(); n],
            fills: instance.fills(),
            place: vec![When::After; n],
            begins: vec![0.0; n],
            held: vec![Held::default(); instance.tensors.len()],
            sums: Sums::default(),
            steps: Vec::new(),
            log: Vec::new(),
        }
    }

    /// Starts an empty partition; `ran` says which kernels ran before it.
    pub(super) fn start(&mut self, ran: impl Fn(usize) -> bool) {
        for (k, place) in self.place.iter_mut().enumerate() {
            *place = if ran(k) { When::Before } else { When::After };
        }
        self.steps.clear();
        self.log.clear();
        self.held.fill(Held::default());
        self.sums =
            Sums { serial: self.instance.partition_overhead_s, sram: self.instance.base_sram_bytes, ..Sums::default() };
        // What was made before and is read here or later waits in DRAM all the while; an output to the end.
        for tensor in &self.instance.tensors {
            let made = tensor.producer.is_none_or(|p| self.place[p] == When::Before);
            if made && (tensor.output || tensor.uses.iter().any(|u| self.place[u.kernel] == When::After)) {
                self.sums.live += tensor.live_bytes;
            }
        }
    }

    /// Takes all kernels out of the partition under way, then lets `k` have run: partitions from here on start after it.
    /// Only right after [`Pricer::start`] and other calls of this, each after its predecessors.
    pub(super) fn advance(&mut self, k: usize) {
        while !self.steps.is_empty() {
            self.take_back();
        }
        self.place[k] = When::Before;
        let instance = self.instance;
        let waits = |t: usize, place: &[When]| instance.tensors[t].uses.iter().any(|u| place[u.kernel] == When::After);
        for &t in &self.made[k] {
            let tensor = &instance.tensors[t];
            if tensor.output || waits(t, &self.place) {
                self.sums.live += tensor.live_bytes;
            }
        }
        for read in &self.read[k] {
            let tensor = &instance.tensors[read.tensor];
            // A kernel that reads a tensor twice takes it off once.
            let again = tensor.uses.iter().filter(|u| u.kernel == k).count() > 1;
            let first = self.read[k].iter().find(|r| r.tensor == read.tensor);
            let repeated = again && first.is_some_and(|r| !std::ptr::eq(r, read));
            if !tensor.output && !repeated && !waits(read.tensor, &self.place) {
                self.sums.live -= tensor.live_bytes;
            }
        }
    }

    /// Lets a kernel join whose predecessors have run or joined.
    pub(super) fn add(&mut self, k: usize) {
        self.steps.push(Step { kernel: k, sums: self.sums, log: self.log.len() });
        let instance = self.instance;
        let kernel = &instance.kernels[k];
        self.place[k] = When::Now;
        self.sums.members += 1;
        self.sums.alone |= kernel.pieces > 1;
        self.sums.network += kernel.network_s;
        self.sums.serial += kernel.serial_s;
        self.sums.dram += kernel.dram_bytes;
        self.sums.sram += kernel.resident_bytes;
        match &kernel.compute {
            Compute::Seconds(s) => self.sums.seconds += s,
            Compute::Cores(options) => self.share_cores(k, options),
        }
        for i in 0..self.made[k].len() {
            let t = self.made[k][i];
            let tensor = &instance.tensors[t];
            if !tensor.output && tensor.uses.is_empty() {
                continue;
            }
            self.log.push((t, self.held[t]));
            let held = &mut self.held[t];
            held.left = tensor.uses.len();
            self.sums.live += tensor.live_bytes;
            if tensor.output {
                held.buffer = tensor.store_buffer;
                self.sums.sram += tensor.store_buffer;
                self.sums.dram += tensor.store_bytes;
            } else {
                held.stored = true;
                self.sums.sram_of_stores += tensor.store_buffer;
                self.sums.dram_of_stores += tensor.store_bytes;
            }
        }
        for i in 0..self.read[k].len() {
            self.join_reader(self.read[k][i]);
        }
        if self.fills {
            self.begins[k] = self.begin(k);
            self.sums.lag = self.sums.lag.max(self.begins[k]);
        }
    }

    /// When a kernel begins in the partition under way, as a part of the pass: after what it reads of the kernels there.
    pub(super) fn begin(&self, k: usize) -> f64 {
        let waits = self.read[k].iter().filter_map(|read| {
            let producer = self.instance.tensors[read.tensor].producer?;
            (self.place[producer] == When::Now).then(|| self.begins[producer] + read.lag)
        });
        waits.fold(0.0, f64::max)
    }

    fn join_reader(&mut self, read: Read) {
        let tensor = &self.instance.tensors[read.tensor];
        let here = tensor.producer.is_some_and(|p| self.place[p] == When::Now);
        let before = self.held[read.tensor];
        self.log.push((read.tensor, before));
        let held = &mut self.held[read.tensor];
        if here {
            held.buffer = held.buffer.max(read.onchip_buffer);
            held.left = held.left.saturating_sub(1);
        } else {
            held.buffer = held.buffer.max(read.load_buffer);
            held.load = held.load.max(read.load_bytes);
            self.sums.dram += held.load - before.load;
        }
        self.sums.sram += held.buffer - before.buffer;
        if before.stored {
            held.stored = held.left > 0;
            // Of a stored tensor's buffer only what is beyond its readers' goes with the store.
            let beyond = |h: &Held| if h.stored { (tensor.store_buffer - h.buffer).max(0.0) } else { 0.0 };
            self.sums.sram_of_stores += beyond(held) - beyond(&before);
            if !held.stored {
                self.sums.dram_of_stores -= tensor.store_bytes;
                self.sums.live -= tensor.live_bytes;
            }
        }
    }

    /// The best split of the cores with one more kernel: its slowest time is never before that of fewer kernels.
    fn share_cores(&mut self, k: usize, options: &[CoreOption]) {
        if self.fewest[k].is_empty() && self.times.len() * self.fewest.len() <= MOST_KNOWN {
            self.fewest[k] = self.times.iter().map(|t| cores_for(options, *t).unwrap_or(u64::MAX)).collect();
        }
        let limit = self.instance.cores;
        let (first, used) = self.sums.slowest.unwrap_or((0, 0));
        let mut over = None;
        if first < self.times.len() {
            let used = self.cores(k, first).saturating_add(used);
            if used <= limit {
                self.sums.slowest = Some((first, used));
                return;
            }
            over = Some(used);
        }
        let needed = |at: usize| {
            let members = self.steps.iter().map(|s| s.kernel);
            members.map(|k| self.cores(k, at)).fold(0, u64::saturating_add)
        };
        // Fewer and fewer are needed the longer it may take; core-seconds hardly change, so that the place is near where they say, and is sought in steps that double from there.
        let end = self.times.len();
        let lowest = first + usize::from(over.is_some());
        let (mut low, mut high) = (lowest, end);
        if let Some(longer) = over.filter(|used| *used < MOST_CORES).map(|used| used as f64 / limit as f64) {
            let limit_s = self.times[first] * longer;
            let mut at = (first + self.times[first..].partition_point(|t| *t < limit_s)).max(low);
            let mut step = 1;
            while low < high && at < end {
                let fits = needed(at) <= limit;
                match fits {
                    true => high = at,
                    false => low = at + 1,
                }
                // Until it lies between two places that were looked at.
                if (fits && low > lowest) || (!fits && high < end) {
                    break;
                }
                at = if fits { at.saturating_sub(step).max(low) } else { at + step };
                step *= 2;
            }
        }
        while low < high {
            let middle = low.midpoint(high);
            match needed(middle) <= limit {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        let at = low;
        match at < self.times.len() {
            true => self.sums.slowest = Some((at, needed(at))),
            false => self.sums.crowded = true,
        }
    }

    /// Fewest cores at which a kernel takes at most the time at a place among all; none are needed by one whose time no cores change.
    fn cores(&self, k: usize, at: usize) -> u64 {
        if let Some(cores) = self.fewest[k].get(at) {
            return *cores;
        }
        match &self.instance.kernels[k].compute {
            Compute::Cores(options) => cores_for(options, self.times[at]).unwrap_or(u64::MAX),
            Compute::Seconds(_) => 0,
        }
    }

    /// Takes the kernel that joined last out again.
    pub(super) fn take_back(&mut self) {
        let Some(step) = self.steps.pop() else { return };
        while self.log.len() > step.log {
            if let Some((t, held)) = self.log.pop() {
                self.held[t] = held;
            }
        }
        self.sums = step.sums;
        self.place[step.kernel] = When::After;
    }

    /// Whether neither this partition nor any that it grows into can be: too much SRAM, too few cores, or a kernel that
    /// must be alone and is not.
    pub(super) fn hopeless(&self) -> bool {
        let s = &self.sums;
        s.crowded || (s.alone && s.members > 1) || s.sram > self.instance.sram_bytes * (1.0 + 2.0 * CAPACITY_TOLERANCE)
    }

    fn compute_s(&self) -> f64 {
        self.sums.seconds + self.sums.slowest.map_or(0.0, |(at, _)| self.times[at])
    }

    /// A value (of the time, or of what the goal counts) that neither this partition nor any that it grows into can beat.
    pub(super) fn least_value(&self) -> f64 {
        let (s, instance) = (&self.sums, self.instance);
        let compute_s = self.compute_s();
        let dram_s = s.dram / instance.dram_bytes_per_s;
        let time_s = piped(combine(instance.overlap, compute_s, dram_s, s.network), s.lag) + s.serial;
        instance.goal.value(time_s, compute_s, s.dram)
    }

    /// Of [`Pricer::least_value`], what filling and draining count.
    pub(super) fn least_filling(&self) -> f64 {
        let (s, instance) = (&self.sums, self.instance);
        if s.lag == 0.0 {
            return 0.0;
        }
        let dram_s = s.dram / instance.dram_bytes_per_s;
        instance.goal.second * s.lag * combine(instance.overlap, self.compute_s(), dram_s, s.network)
    }

    /// The cost of the partition as it stands, not [`Pricer::hopeless`].
    pub(super) fn cost(&self) -> PartitionCost {
        let s = &self.sums;
        let dram_bytes = s.dram + s.dram_of_stores;
        PartitionCost {
            compute_s: self.compute_s(),
            dram_s: dram_bytes / self.instance.dram_bytes_per_s,
            network_s: s.network,
            serial_s: s.serial,
            sram_bytes: s.sram + s.sram_of_stores,
            live_bytes: s.live,
            dram_bytes,
            lag: s.lag,
        }
    }
}

/// Fewest cores at which a kernel takes at most `limit_s`.
fn cores_for(options: &[CoreOption], limit_s: f64) -> Option<u64> {
    options.get(options.partition_point(|o| o.seconds > limit_s)).map(|o| o.cores)
}
