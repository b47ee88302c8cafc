//! A plan: every decision of a mapping, and the figures that follow from it. It is what the search ends with, what
//! `check` re-derives, and what a user can edit and feed back.

pub mod file;

use crate::graph::Workload;
use crate::model::Strategy;
use crate::model::collective::{Extent, GroupDimension, OwnGroups, group};
use crate::model::energy::Energy;
use crate::model::memory::DramNeed;
use crate::model::ranks::{Group, Parallelism};
use crate::model::schedule::Iteration;
use crate::model::stages::{self, StageFigures};
use crate::system::System;
use crate::system::price::ByPart;
use serde::Serialize;

crate::spec! {
    /// How much of one network dimension each strategy has; the product is the dimension's size.
    #[derive(Copy)]
    pub struct DimensionUse ("the use of a network dimension") {
        /// Tensor parallelism.
        tp: u64 = 1,
        /// Pipeline parallelism.
        pp: u64 = 1,
        /// Data parallelism.
        dp: u64 = 1,
        /// Rows of the process grid (workloads that are spread over all chips).
        rows: u64 = 1,
        /// Columns of the process grid.
        cols: u64 = 1,
    }
}

/// What is wrong with uses of the dimensions of a system's network: field and sentence.
pub fn use_faults(uses: &[DimensionUse], system: &System) -> Vec<(String, String)> {
    let network = &system.network;
    let mut found = Vec::new();
    if uses.len() != network.dimensions.len() {
        let message =
            format!("the network has {} dimension(s), found {} entries", network.dimensions.len(), uses.len());
        found.push(("network_use".to_string(), message));
    }
    for (i, (u, d)) in uses.iter().zip(&network.dimensions).enumerate() {
        if u.chips() != d.size {
            let message = format!(
                "tp {} x pp {} x dp {} x rows {} x cols {} is not the dimension's size of {}",
                u.tp, u.pp, u.dp, u.rows, u.cols, d.size
            );
            found.push((format!("network_use.[{i}]"), message));
        }
        if u.is_divided() && !system.divides(i) {
            let message = "expected one strategy for the whole ring (DFModel's collectives know no part of a ring), found several";
            found.push((format!("network_use.[{i}]"), message.into()));
        }
    }
    found
}

impl DimensionUse {
    /// A dimension used by nothing.
    pub const NONE: Self = Self { tp: 1, pp: 1, dp: 1, rows: 1, cols: 1 };

    /// Whether more than one strategy shares the dimension.
    pub fn is_divided(&self) -> bool {
        [self.tp, self.pp, self.dp, self.rows, self.cols].iter().filter(|n| **n > 1).count() > 1
    }

    /// How the dimension is divided, a process grid apart.
    pub fn parallelism(&self) -> Parallelism {
        Parallelism { tp: self.tp, dp: self.dp, pp: self.pp, ..Parallelism::ONE }
    }

    /// The tensor-parallel group along the dimension.
    pub fn tensor(&self) -> Extent {
        self.parallelism().group(Group::Tensor)
    }

    /// The replicas along the dimension.
    pub fn data(&self) -> Extent {
        self.parallelism().group(Group::Replicas)
    }

    /// The pipeline's stages along the dimension.
    pub fn stages(&self) -> Extent {
        self.parallelism().group(Group::Pipeline)
    }

    /// A row of the process grid, which has as many chips as the grid has columns.
    pub fn row(&self) -> Extent {
        Extent::neighbours(self.cols)
    }

    /// A column of the process grid.
    pub fn column(&self) -> Extent {
        Extent { chips: self.rows, apart: self.cols }
    }

    /// All chips, a process grid's too, stages apart.
    pub fn all(&self) -> Extent {
        Extent::neighbours(self.chips() / self.pp.max(1))
    }

    /// Chips along the dimension that this makes.
    pub fn chips(&self) -> u64 {
        [self.tp, self.pp, self.dp, self.rows, self.cols].iter().fold(1, |product, n| product.saturating_mul(*n))
    }
}

/// The group that the extents of a strategy make.
pub fn group_of(system: &System, uses: &[DimensionUse], extent: fn(&DimensionUse) -> Extent) -> Vec<GroupDimension> {
    group(system, &uses.iter().map(extent).collect::<Vec<_>>())
}

/// The groups of the collectives that kernels make by themselves.
pub fn own_groups(system: &System, uses: &[DimensionUse]) -> OwnGroups {
    let of = |extent| group_of(system, uses, extent);
    OwnGroups {
        tensor: of(DimensionUse::tensor),
        data: of(DimensionUse::data),
        all: of(DimensionUse::all),
        row: of(DimensionUse::row),
        column: of(DimensionUse::column),
    }
}

/// The decisions of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Decisions {
    /// Use of each network dimension.
    pub uses: Vec<DimensionUse>,
    /// Layers of each pipeline stage, in order.
    pub stages: Vec<u64>,
    /// Strategy of each kernel.
    pub sharding: Vec<Strategy>,
    /// Tiles that a sample is cut into.
    pub tiles: u64,
    /// Whether the weights of all layers of a stage, and their gradients, stay on chip for the whole iteration.
    pub weights_on_chip: bool,
    /// Partition of each kernel; partitions run in ascending order and none is empty.
    pub partition: Vec<usize>,
}

impl Decisions {
    /// Layers of the longest stage; `None` without stages.
    pub fn longest(&self) -> Option<u64> {
        self.stages.iter().max().copied()
    }

    /// Rows and columns of the process grid; 1 x 1 where TP, PP and DP share the chips.
    pub fn grid(&self) -> (u64, u64) {
        self.uses.iter().fold((1, 1), |(rows, cols), u| (rows * u.rows, cols * u.cols))
    }
}

/// Largest relative difference between a figure and its derivation.
pub const TOLERANCE: f64 = 1e-9;

/// Whether two figures are one to a relative tolerance.
pub fn agree(one: f64, other: f64, tolerance: f64) -> bool {
    one == other || (one - other).abs() <= tolerance * one.abs().max(other.abs())
}

/// What limits a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// Arithmetic.
    Compute,
    /// DRAM traffic.
    Dram,
    /// Collectives.
    Network,
    /// Launches and set-up.
    Overhead,
}

impl Bottleneck {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Dram => "dram",
            Self::Network => "network",
            Self::Overhead => "overhead",
        }
    }
}

/// Figures of one partition, for one pass over the layer (a microbatch; a sample in DFModel's schedules).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartitionFigures {
    /// Names of its kernels.
    pub kernels: Vec<String>,
    /// Seconds of arithmetic.
    pub compute_s: f64,
    /// Seconds of DRAM traffic.
    pub dram_s: f64,
    /// Seconds of collectives.
    pub network_s: f64,
    /// Seconds of launches and set-up, never overlapped.
    pub overhead_s: f64,
    /// Seconds in which its pipeline of tiles fills and drains.
    pub filling_s: f64,
    /// Seconds of the partition.
    pub time_s: f64,
    /// Bytes of on-chip memory in use.
    pub sram_bytes: f64,
    /// Bytes waiting in DRAM between partitions while it runs.
    pub live_bytes: f64,
    /// Bytes it reads and writes in DRAM.
    pub dram_bytes: f64,
    /// FLOP that one chip computes in it.
    pub flop: f64,
    /// Joules that its collectives add to the idle power of one chip's links.
    pub link_j: f64,
}

impl PartitionFigures {
    /// The largest part.
    pub fn bottleneck(&self) -> Bottleneck {
        let parts = [
            (self.compute_s, Bottleneck::Compute),
            (self.dram_s, Bottleneck::Dram),
            (self.network_s, Bottleneck::Network),
            (self.overhead_s, Bottleneck::Overhead),
        ];
        parts.iter().fold(parts[0], |best, p| if p.0 > best.0 { *p } else { best }).1
    }
}

/// Everything that follows from the decisions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Degrees.
    pub tp: u64,
    /// Pipeline stages.
    pub pp: u64,
    /// Data-parallel replicas.
    pub dp: u64,
    /// Partitions.
    pub partitions: Vec<PartitionFigures>,
    /// Seconds of one pass over one layer: the sum over the partitions.
    pub layer_s: f64,
    /// The iteration by part.
    pub iteration: Iteration,
    /// The pipeline's stages, in order.
    pub stages: Vec<StageFigures>,
    /// DRAM of one chip of the fullest stage by kind.
    pub memory: DramNeed,
    /// Capacity of one chip's DRAM; `None` without limit.
    pub dram_capacity: Option<f64>,
    /// FLOP of an iteration, all chips, unsharded.
    pub flop_per_iteration: f64,
    /// FLOP over peak FLOP of all chips in the time.
    pub utilization: f64,
    /// Price of the system.
    pub cost: ByPart,
    /// Power of the system at full use.
    pub power: ByPart,
    /// Energy of an iteration, all chips.
    pub energy: Energy,
}

impl Figures {
    /// Seconds of an iteration.
    pub fn iteration_s(&self) -> f64 {
        self.iteration.total_s()
    }
    /// SRAM of the partition that fills most.
    pub fn sram_bytes(&self) -> f64 {
        self.partitions.iter().map(|p| p.sram_bytes).fold(0.0, f64::max)
    }

    /// Samples a second.
    pub fn samples_per_s(&self, workload: &Workload) -> f64 {
        workload.global_batch as f64 / self.iteration_s()
    }
    /// Tokens a second; `None` where a sample has none.
    pub fn tokens_per_s(&self, workload: &Workload) -> Option<f64> {
        workload.tokens_per_sample.map(|each| each as f64 * self.samples_per_s(workload))
    }
    /// Joules a sample.
    pub fn j_per_sample(&self, workload: &Workload) -> f64 {
        self.energy.total() / workload.global_batch as f64
    }
    /// Joules a token; `None` where a sample has none.
    pub fn j_per_token(&self, workload: &Workload) -> Option<f64> {
        workload.tokens_per_sample.map(|each| self.j_per_sample(workload) / each as f64)
    }
}

/// A mapping of a workload onto a system with its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The workload.
    pub workload: Workload,
    /// The system.
    pub system: System,
    /// The decisions.
    pub decisions: Decisions,
    /// What follows from them.
    pub figures: Figures,
}

impl Plan {
    /// Blocks of the workload: name, repetitions, and seconds of one repetition and one pass; the layer alone where it has none.
    pub fn blocks(&self) -> Vec<(String, u64, f64)> {
        let w = &self.workload;
        let name = |b: usize| w.blocks.get(b).map_or("layer".to_string(), |block| block.name.clone());
        let mut out: Vec<(String, u64, f64)> = (0..w.block_count()).map(|b| (name(b), w.repeats(b), 0.0)).collect();
        for (p, figures) in self.figures.partitions.iter().enumerate() {
            let first = self.decisions.partition.iter().position(|q| *q == p);
            let block = first.and_then(|k| w.kernels.get(k)).map_or(0, |k| k.block);
            if let Some((.., seconds)) = out.get_mut(block) {
                *seconds += figures.time_s;
            }
        }
        out
    }

    /// Layers of the stages, for a person: `12`, or where they differ `11+12x3`.
    pub fn layers_of_stages(&self) -> String {
        let stages = &self.decisions.stages;
        match stages.first() {
            Some(first) if stages.iter().any(|n| n != first) => stages::in_words(stages),
            _ => self.figures.iteration.layers_per_stage.to_string(),
        }
    }
}
