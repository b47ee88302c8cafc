//! Rules 1 and 2 of a plan: strategies, shards of shared weights, order of kernels and passes.

use super::Derivation;
use crate::graph::Phase;
use crate::model::layout::{conversion, produced, required, strategies, unshared, weight_shards_agree};
use crate::model::stages;
use crate::system::Style;
use crate::system::options::{Layouts, Phases, Pipeline, WeightTraffic};

impl Derivation<'_> {
    /// Rules 1 and 2.
    pub(super) fn rules(&self, broken: &mut Vec<String>) {
        let name = |k: usize| &self.w.kernels[k].name;
        let rules = self.system.model.layouts;
        let backward = self.w.has_backward();
        for (k, kernel) in self.w.kernels.iter().enumerate() {
            let strategy = self.d.sharding[k];
            if !strategies(kernel, self.tp, rules, backward).contains(&strategy) {
                broken.push(format!("kernel {} cannot be sharded by {strategy} among {} chips", kernel.name, self.tp));
            }
            if let Some(owner) = kernel.weight_of.filter(|_| rules == Layouts::Flowspace && self.tp > 1)
                && !weight_shards_agree(kernel, strategy, self.d.sharding[owner.kernel])
            {
                broken.push(format!(
                    "kernel {} by {strategy} needs other shards of the weight of {} than {} makes",
                    kernel.name,
                    name(owner.kernel),
                    self.d.sharding[owner.kernel]
                ));
            }
        }
        broken.extend(unshared(self.w, self.tp, rules).map(|why| why.to_string()));
        broken.extend(stages::fault(self.system.model.pipeline, self.w.repeat, self.pp, &self.d.stages));
        let may_keep =
            self.system.chip.0.style == Style::Dataflow && self.system.model.weight_traffic == WeightTraffic::Streamed;
        if self.d.weights_on_chip && !may_keep {
            broken.push("weights_on_chip needs a dataflow chip and streamed weight traffic".into());
        }
        if self.w.micro_batch.saturating_mul(self.dp) > self.w.global_batch {
            broken.push(format!("{} replicas for a batch of {}", self.dp, self.w.global_batch));
        }
        for tensor in &self.w.tensors {
            let Some(u) = tensor.producer else { continue };
            for v in &tensor.consumers {
                if self.d.partition[u] > self.d.partition[v.kernel] {
                    broken.push(format!("kernel {} runs before {}, whose output it reads", name(v.kernel), name(u)));
                }
                let made = produced(self.d.sharding[u], rules);
                let wanted = required(&self.w.kernels[v.kernel], v.slot, self.d.sharding[v.kernel], rules);
                if conversion(made, wanted).is_err() {
                    broken.push(format!("{} cannot be brought from {made:?} to {wanted:?}", tensor.name));
                }
            }
        }
        for (p, inside) in self.index.partitions.iter().enumerate() {
            if inside.is_empty() {
                broken.push(format!("partition {p} is empty"));
            }
            if self.system.chip.0.style == Style::KernelByKernel && inside.len() > 1 {
                broken.push(format!("partition {p} has {} kernels on a chip that runs kernel by kernel", inside.len()));
            }
        }
        let forward = |k: &usize| self.w.kernels[*k].phase == Phase::Forward;
        let last = (0..self.w.kernels.len()).filter(forward).map(|k| self.d.partition[k]).max();
        let first = (0..self.w.kernels.len()).filter(|k| !forward(k)).map(|k| self.d.partition[k]).min();
        if let (Some(last), Some(first)) = (last, first)
            && last >= first
            && self.system.model.phases == Phases::Apart
        {
            broken.push(format!("backward kernels in partition {first}, forward kernels still in {last}"));
        }
        // Block after block in each pass.
        for pass in [true, false] {
            for b in 1..self.w.block_count() {
                let of = |block: usize| {
                    let here = move |k: &usize| self.w.kernels[*k].block == block && forward(k) == pass;
                    (0..self.w.kernels.len()).filter(here).map(|k| self.d.partition[k])
                };
                let (before, after) = if pass { (b - 1, b) } else { (b, b - 1) };
                if let (Some(last), Some(first)) = (of(before).max(), of(after).min())
                    && last >= first
                {
                    let name = |block: usize| self.w.blocks[block].name.as_str();
                    broken.push(format!(
                        "block {} begins in partition {first}, block {} is still in {last}",
                        name(after),
                        name(before)
                    ));
                }
            }
        }
        if self.w.is_chain() && self.system.model.pipeline != Pipeline::OneForwardOneBackward {
            broken.push("several blocks need the 1F1B schedule".into());
        }
        if self.w.is_chain() && self.d.weights_on_chip {
            broken.push("the weights of several blocks do not stay on chip".into());
        }
    }
}
