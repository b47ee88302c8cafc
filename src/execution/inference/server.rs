//! A system as a server: what its chips make of the kernels of a step, and the software's share.

use super::step::Layout;
use crate::execution::machine::{Line, Machine, Peers, Traffic};
use crate::model::collective;
use crate::model::kernel_time::KernelTimes;
use crate::system::kernels::{Burst, Kernels, Tile};
use crate::system::serving::Waiting;
use crate::system::{Serving, Software, System};
use crate::workload::language::{DataType, LanguageModel};

/// A system that inference can be predicted on.
#[derive(Debug, Clone)]
pub struct Server {
    /// Links, capacity, peaks.
    pub machine: Machine,
    /// Seconds of kernels, without launches.
    pub kernels: KernelTimes,
    /// The same of products of a few rows with weights that are widened first.
    pub vectors: KernelTimes,
    /// Share of the peak that products of each type of the chip reach.
    efficiencies: Vec<(DataType, f64)>,
    /// The same in a long step, where that is less.
    sustained: Vec<(DataType, f64)>,
    /// The same in the prompt's attention.
    pub attention_efficiency: f64,
    /// Seconds from one kernel to the next.
    pub kernel: f64,
    /// Cores along the side of the chip's mesh.
    pub side: f64,
    /// Ranks that the software sees in a chip, among which heads are divided.
    pub ranks: f64,
    /// The software.
    pub serving: Serving,
    /// Sequences come and go one by one, so that at any time their answers are half written: what of the memory they take on average counts.
    pub steady: bool,
    /// Batches that steps are recorded for, ascending; a step of fewer sequences is filled up to the next. Empty: steps of any size.
    pub recorded: Vec<u64>,
}

impl Server {
    /// Bytes of a chip's memory that the software takes at most.
    pub fn usable(&self) -> f64 {
        self.machine.capacity.unwrap_or(f64::INFINITY) * self.serving.memory_limit.0
    }

    /// The model with every layer seeing its whole context, where the software leaves windows out and the model has some.
    pub fn without_windows(&self, model: &LanguageModel) -> Option<LanguageModel> {
        let leaves = self.serving.whole_contexts && model.window.is_some();
        leaves.then(|| LanguageModel { window: None, ..model.clone() })
    }

    /// Of a system whose chip has `kernels`.
    ///
    /// # Errors
    /// A sentence: why inference cannot be predicted on this system, and what would mend it.
    pub fn new(system: &System) -> Result<Self, String> {
        if let Some(die) = system.too_large() {
            return Err(format!("infeasible (die): {}", die.beyond_limit()));
        }
        if system.software == Some(Software::Free) {
            return Err(format!(
                "{}: software: free: what is possible is searched for training; serving takes stack, generic or ideal",
                system.name
            ));
        }
        let machine = Machine::of_any_style(system)?;
        let Some(kernels) = &system.chip.0.kernels else {
            return Err(format!("chip {}: inference needs a section `kernels`", system.chip.0.name));
        };
        let serving = machine.stack.serving.unwrap_or_else(Serving::ideal);
        let share = machine.stack.product_share.0;
        let reached = |t: &DataType| (*t, kernels.burst_of(t.word()).efficiency.0 * share);
        let held = |t: &DataType| {
            (*t, kernels.served_efficiency_of(t.word()).min(kernels.burst_of(t.word()).efficiency.0) * share)
        };
        let burst = kernels.burst_of("");
        let bandwidth = system.memory.0.bandwidth.0 * machine.stack.memory_share.0;
        let waits = |of: Waiting| Burst {
            wait: of.wait,
            tiles_at_once: of.tiles_at_once,
            vector_rows: of.vector_rows,
            ..burst
        };
        let of_chip = Waiting { wait: burst.wait, tiles_at_once: burst.tiles_at_once, vector_rows: burst.vector_rows };
        let times = match serving.waiting {
            Some(of) if machine.ideal => KernelTimes::burst(kernels, &waits(of.and(of_chip)), bandwidth, 0.0),
            Some(of) => {
                let whole = kernels.tiles.iter().map(|tile| Tile { splits: 1, ..*tile }).collect();
                KernelTimes::burst(&Kernels { tiles: whole, ..kernels.clone() }, &waits(of), bandwidth, 0.0)
            }
            None => KernelTimes::burst(kernels, &burst, bandwidth, 0.0),
        };
        Ok(Self {
            vectors: times.of_vectors(),
            kernels: times,
            efficiencies: DataType::ALL.iter().map(reached).collect(),
            sustained: DataType::ALL.iter().map(held).collect(),
            attention_efficiency: burst.batched_efficiency.0 * share,
            kernel: match serving.kernel {
                Some(own) if machine.ideal => own.0.min(kernels.launch.0),
                own => own.unwrap_or(kernels.launch).0,
            },
            side: (system.chip.0.cores as f64).sqrt(),
            ranks: 1.0,
            serving,
            steady: false,
            recorded: Vec::new(),
            machine,
        })
    }

    /// Share of the peak that products of a type reach: of a server under steady load what a chip sustains.
    pub fn efficiency(&self, of: DataType) -> f64 {
        let list = if self.steady { &self.sustained } else { &self.efficiencies };
        list.iter().find(|(t, _)| *t == of).map_or(0.0, |(_, share)| *share)
    }

    /// Rows of a step of `n` sequences, those that fill it up to a recorded batch included.
    pub fn rows_of_step(&self, n: f64) -> f64 {
        self.recorded.iter().map(|batch| *batch as f64).find(|batch| *batch >= n).unwrap_or(n)
    }

    /// Bytes/s at which a step reads the cache of a model.
    pub fn cache_bandwidth(&self, model: &LanguageModel) -> f64 {
        let s = &self.serving;
        let share = match s.grouped_cache_efficiency {
            Some(grouped) if model.latent_attention.is_some() || model.kv_heads() < model.heads => grouped,
            _ => s.cache_efficiency,
        };
        self.kernels.bandwidth() * share.0
    }

    /// Seconds of an all-reduce of `bytes`, what the software adds included.
    pub fn all_reduce(&self, peers: Peers, bytes: f64) -> f64 {
        if peers.chips <= 1 || bytes <= 0.0 {
            return 0.0;
        }
        self.collective(Traffic::AllReduce, peers, bytes, true)
    }

    /// Seconds of a collective: an all-reduce, half of one, or an all-to-all; `switches`: whether a switch may add up.
    pub fn collective(&self, traffic: Traffic, peers: Peers, bytes: f64, switches: bool) -> f64 {
        let halves = if traffic == Traffic::AllReduce { 2.0 } else { 1.0 };
        let by_links = || self.machine.line(traffic, peers).at(bytes) + self.serving.all_reduce.0;
        match &self.serving.collectives {
            Some(library) => {
                let group = self.machine.group(peers);
                let called = match traffic {
                    Traffic::AllToAll => collective::all_to_all_by_library(&group, library, bytes),
                    _ => collective::by_library(&group, library, halves, bytes, switches),
                };
                if self.machine.ideal { called.min(by_links()) } else { called }
            }
            None => by_links(),
        }
    }

    /// Hand-overs from each stage to the next, of the last one to the first, each along the network's dimension that it goes on to: the first of which it is not the last place.
    pub fn hand_overs(&self, layout: &Layout) -> Vec<Line> {
        let apart = layout.tp.saturating_mul(layout.dp);
        let group = self.machine.group(Peers { chips: layout.pp, apart, of: layout.chips() });
        let Some((outermost, inner)) = group.split_last() else { return Vec::new() };
        let of = |stage: u64| {
            let mut place = stage;
            let along = inner.iter().find(|d| {
                let is_last = (place + 1).is_multiple_of(d.size);
                place /= d.size;
                !is_last
            });
            let d = along.unwrap_or(outermost);
            Line { latency: d.latency, per_byte: 1.0 / d.bandwidth, byte_j: d.byte_j }
        };
        (0..layout.pp).map(of).collect()
    }

    /// Exchange of tokens among replicas that share experts.
    pub fn exchange(&self, layout: &Layout) -> Line {
        self.machine.line(Traffic::AllToAll, Peers { chips: layout.ep, apart: layout.tp, of: layout.chips() })
    }
}
