//! Why a point has no plan: the constraint that stands in the way where the search looked. What mends it is another question (`shortage.rs`).

use super::amounts::SramShort;
use super::degrees::Degrees;
use super::instance::Instance;
use super::record::Infeasible;
use super::search::Search;
use crate::model::layout::{Unshared, unshared};
use crate::model::stages::MOST_STAGES;

impl Search<'_> {
    pub(super) fn degrees_infeasible(&self, d: &Degrees) -> Option<Infeasible> {
        let w = self.workload;
        let most = w.repeat.min(MOST_STAGES);
        if d.pp > most {
            return Some(Infeasible {
                resource: "layers".into(),
                needed: d.pp as f64,
                available: most as f64,
                unit: "layers".into(),
                remedy: format!("PP = {} needs as many layers, there are {most}", d.pp),
                mends: Vec::new(),
            });
        }
        if w.micro_batch.saturating_mul(d.dp) > w.global_batch {
            return Some(Infeasible {
                resource: "batch".into(),
                needed: w.micro_batch.saturating_mul(d.dp) as f64,
                available: w.global_batch as f64,
                unit: "samples".into(),
                remedy: format!(
                    "DP = {} replicas of microbatches of {} need a larger batch than {}",
                    d.dp, w.micro_batch, w.global_batch
                ),
                mends: Vec::new(),
            });
        }
        let why = unshared(w, d.tp, self.system.model.layouts)?;
        let (resource, available, unit) = match why {
            Unshared::Outer { outer, .. } => ("heads", outer, "heads"),
            Unshared::Small { .. } => ("sharding", 1, "chips"),
        };
        Some(Infeasible {
            resource: resource.into(),
            needed: d.tp as f64,
            available: available as f64,
            unit: unit.into(),
            remedy: why.to_string(),
            mends: Vec::new(),
        })
    }

    /// How the chips share the kernels, for a person.
    fn shared_by(&self, d: &Degrees) -> String {
        match self.workload.is_spread() {
            true => format!("on a process grid of {} x {}", d.grid_rows, d.grid_cols),
            false => format!("at TP = {}", d.tp),
        }
    }

    pub(super) fn no_such_degrees(&self, all: &[Degrees]) -> String {
        let w = &self.request.wanted;
        let asked: Vec<String> = [("TP", w.tp), ("PP", w.pp), ("DP", w.dp)]
            .iter()
            .filter_map(|(name, value)| value.map(|v| format!("{name} = {v}")))
            .collect();
        let chips = self.system.chip_count();
        let product = [w.tp, w.pp, w.dp].iter().try_fold(1u64, |p, d| d.map(|d| p.saturating_mul(d)));
        if let Some(product) = product.filter(|p| *p != chips) {
            return format!(
                "{}: the product of the degrees is {product}, but the system has {chips} chips",
                asked.join(", ")
            );
        }
        let mut possible: Vec<(u64, u64, u64)> = all.iter().map(|d| (d.tp, d.pp, d.dp)).collect();
        possible.sort_unstable();
        possible.dedup();
        let shown: Vec<String> = possible.iter().take(12).map(|(t, p, d)| format!("{t}x{p}x{d}")).collect();
        let more = if possible.len() > 12 { format!(" and {} more", possible.len() - 12) } else { String::new() };
        format!(
            "{}: no assignment of the network's dimensions gives these degrees; possible TP x PP x DP: {}{more}{}",
            asked.join(", "),
            shown.join(", "),
            self.split_hint(1)
        )
    }

    /// That dimensions could be divided, where that would give more degrees: not all chips are in TP x PP (`spread`) yet.
    fn split_hint(&self, spread: u64) -> &'static str {
        if self.system.has_dimension_to_divide() && !self.request.wanted.split && spread < self.system.chip_count() {
            "; --split-dimensions (in a study solve.split_dimensions) divides dimensions among strategies"
        } else {
            ""
        }
    }

    pub(super) fn dram_short(&self, d: &Degrees, needed: f64, capacity: f64) -> Infeasible {
        let at = match self.workload.is_spread() {
            true => self.shared_by(d),
            false => format!("at TP = {}, PP = {}, DP = {}", d.tp, d.pp, d.dp),
        };
        let split = if self.workload.is_spread() { "" } else { self.split_hint(d.tp * d.pp) };
        Infeasible {
            resource: "dram".into(),
            needed,
            available: capacity,
            unit: "bytes".into(),
            remedy: format!(
                "{at}, the nearest of those tried, what a chip holds and the tensors that wait between partitions do not fit{split}"
            ),
            mends: Vec::new(),
        }
    }

    pub(super) fn sram_short(&self, d: &Degrees, short: SramShort, tiles: u64) -> Infeasible {
        let kernel = &self.workload.kernels[short.kernel];
        let pieces = if kernel.is_gemm() { ", even one row of its weight or gradient at a time" } else { "" };
        Infeasible {
            resource: "sram".into(),
            needed: short.needed,
            available: self.system.chip.0.sram.0,
            unit: "bytes".into(),
            remedy: format!(
                "kernel {} does not fit alone {} with {tiles} tiles{pieces}",
                kernel.name,
                self.shared_by(d)
            ),
            mends: Vec::new(),
        }
    }

    /// Every kernel fits alone, yet no partition does: DRAM for waiting tensors, cores, the number of partitions or pins.
    pub(super) fn partition_short(&self, d: &Degrees, instance: &Instance, tiles: u64, capacity: f64) -> Infeasible {
        let live: f64 = instance.tensors.iter().map(|t| t.live_bytes).sum();
        if live > instance.live_limit {
            return self.dram_short(d, capacity - instance.live_limit + live, capacity);
        }
        let pinned = self.pins_partition.iter().any(Option::is_some) || instance.max_partitions.is_some();
        Infeasible {
            resource: if pinned { "partitions".into() } else { "sram".into() },
            needed: if pinned { 1.0 } else { instance.kernels.iter().map(|k| k.resident_bytes).sum() },
            available: if pinned { 0.0 } else { instance.sram_bytes },
            unit: if pinned { "plans".into() } else { "bytes".into() },
            remedy: format!(
                "{} with {tiles} tiles no partitions {}",
                self.shared_by(d),
                if pinned {
                    "keep the pins and --max-partitions together with the order of the kernels and the SRAM"
                } else {
                    "fit the chip"
                }
            ),
            mends: Vec::new(),
        }
    }

    /// Whose bytes the reason tells: every assignment's are those of one sharding.
    pub(super) fn of_one_sharding(&self, joint: bool) -> &'static str {
        if joint {
            ""
        } else if self.workload.is_chain() {
            " (of the fastest sharding: for a workload of several blocks no other is searched, and one may fit)"
        } else {
            " (of the sharding that two passes take: --sharding joint, in a study solve.sharding, looks at all, and one may fit)"
        }
    }

    /// The reason that is least far from being mended.
    pub(super) fn nearest_reason(&self, reasons: Vec<Infeasible>) -> Infeasible {
        let shortage = |r: &Infeasible| if r.available > 0.0 { r.needed / r.available } else { f64::INFINITY };
        // A memory that is too small says more than degrees that do not suit the workload.
        let rank = |r: &Infeasible| match r.resource.as_str() {
            "dram" => 0,
            "partitions" => 1,
            "sram" => 2,
            _ => 3,
        };
        reasons.into_iter().min_by(|a, b| rank(a).cmp(&rank(b)).then(shortage(a).total_cmp(&shortage(b)))).unwrap_or(
            Infeasible {
                resource: "degrees".into(),
                needed: 1.0,
                available: 0.0,
                unit: "assignments".into(),
                remedy: "no assignment of the dimensions was tried".into(),
                mends: Vec::new(),
            },
        )
    }
}
