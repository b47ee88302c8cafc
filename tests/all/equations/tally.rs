//! What occurred in the plans that were derived: a test whose cases are nearly all of one kind says little.

use super::case::{Efficiency, Op, Overlap, Pass, Slot, Topology};
use super::derive::Model;
use super::graph::{Conversion, Strategy};
use std::collections::BTreeMap;
use std::fmt;

#[derive(Default)]
pub struct Tally(BTreeMap<String, u32>);

/// Features that plans of each kind must have, and how often.
pub const OF_SEARCH: &[(&str, u32)] = &[
    ("plans", 500),
    ("TP", 100),
    ("PP", 50),
    ("DP", 100),
    ("weights on chip", 30),
    ("waves", 50),
    ("lanes and stages", 100),
    ("pieces", 5),
    ("gradients of weights", 100),
    ("several kernels in a partition", 100),
];
pub const OF_DRAWN: &[(&str, u32)] = &[
    ("plans", 1000),
    ("TP", 400),
    ("PP", 150),
    ("DP", 300),
    ("stages of different lengths", 50),
    ("a dimension divided", 50),
    ("TP over several dimensions", 50),
    ("weights on chip", 50),
    ("waves", 150),
    ("waves in training", 50),
    ("waves with burst", 30),
    ("lanes and stages", 300),
    ("pieces", 10),
    ("AllReduce", 40),
    ("AllGather", 100),
    ("AllToAll", 50),
    ("ReduceScatter", 30),
    ("collectives of its own", 200),
    ("gradients of weights", 200),
    ("weights used backward", 100),
    ("kept for the backward pass", 100),
    ("look-ups", 100),
    ("windows", 100),
    ("carried forward", 200),
    ("carried backward", 20),
    ("an operand shared by outer problems", 30),
    ("passes", 100),
    ("reshaped or shared", 20),
    ("caches", 100),
    ("extra DRAM", 200),
    ("padding to tiles", 100),
    ("padding to shards", 100),
    ("several kernels in a partition", 200),
    ("overlap of nothing", 100),
    ("ring", 100),
    ("switch", 100),
    ("fully connected", 100),
    ("three dimensions", 100),
    ("samples left over", 100),
];
pub const OF_PINNED: &[(&str, u32)] = &[
    ("plans", 300),
    ("TP", 100),
    ("PP", 30),
    ("lanes and stages", 50),
    ("gradients of weights", 50),
    ("AllToAll", 10),
];
pub const OF_CHAINS: &[(&str, u32)] =
    &[("plans", 100), ("TP", 30), ("PP", 20), ("gradients of weights", 30), ("conversions between blocks", 10)];

impl Tally {
    pub fn add(&mut self, name: &str) {
        *self.0.entry(name.into()).or_default() += 1;
    }

    pub fn of(&self, name: &str) -> u32 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Notes what a plan has.
    pub fn count(&mut self, model: &Model) {
        let (graph, machine, decisions, t) = (model.graph, model.machine, model.decisions, model.t);
        let kernels = || 0..graph.kernels.len();
        let any = |of: &dyn Fn(&super::case::Kernel) -> bool| graph.kernels.iter().any(of);
        let reads = |slots: &[Slot]| any(&|k| k.reads.iter().any(|(_, s)| slots.contains(s)));
        let side = |of: &dyn Fn(&[u64; 3]) -> bool| decisions.uses.iter().filter(|u| of(u)).count();
        let on = |topology| machine.dimensions.iter().any(|d| d.topology == topology && d.size > 1);
        let waves = model.waves();
        let burst = matches!(&machine.efficiency, Efficiency::Waves(w) if w.burst.is_some());
        let together = decisions.partition.iter().any(|p| decisions.partition.iter().filter(|q| *q == p).count() > 1);
        let carried = |backward: bool| {
            let makers = graph.tensors.iter().filter_map(|x| graph.tensors[x.carried_from?].maker);
            makers.into_iter().any(|m| model.is_backward(m) == backward)
        };
        let paid: Vec<_> =
            model.sharded.conversions().into_iter().flatten().filter(|p| t > 1 && p.bytes > 0.0).collect();
        let split = kernels().any(|k| match decisions.strategy[k] {
            Strategy::Outer => graph.kernels[k].outer % t > 0,
            Strategy::M => graph.kernels[k].m % t > 0,
            Strategy::K => graph.kernels[k].k % t > 0,
            Strategy::N => graph.kernels[k].n % t > 0,
            Strategy::Replicate => false,
        });
        let forward_made = |x: &super::case::Tensor| x.maker.is_some_and(|m| !model.is_backward(m));
        let kept =
            graph.training
                && graph.tensors.iter().enumerate().any(|(i, x)| {
                    forward_made(x) && model.sharded.readers[i].iter().any(|(k, _)| model.is_backward(*k))
                });
        for (name, there) in [
            ("plans", true),
            ("TP", t > 1),
            ("PP", model.p > 1),
            ("DP", model.d > 1),
            ("stages of different lengths", decisions.stages.iter().any(|l| *l != decisions.stages[0])),
            ("a dimension divided", side(&|u| u.iter().filter(|n| **n > 1).count() > 1) > 0),
            ("TP over several dimensions", side(&|u| u[0] > 1) > 1),
            ("weights on chip", decisions.on_chip),
            ("waves", waves),
            ("waves in training", waves && graph.training),
            ("waves with burst", waves && burst && !graph.training),
            ("lanes and stages", matches!(machine.efficiency, Efficiency::LanesStages)),
            ("pieces", kernels().any(|k| model.pieces(k).is_some_and(|p| p > 1))),
            ("AllReduce", paid.iter().any(|p| p.kind == Conversion::AllReduce)),
            ("AllGather", paid.iter().any(|p| p.kind == Conversion::AllGather)),
            ("AllToAll", paid.iter().any(|p| p.kind == Conversion::AllToAll)),
            ("ReduceScatter", paid.iter().any(|p| p.kind == Conversion::ReduceScatter)),
            ("conversions between blocks", paid.iter().any(|p| p.share < 1.0)),
            ("collectives of its own", any(&|k| !k.own.is_empty())),
            ("gradients of weights", any(&|k| k.pass == Pass::GradientOfWeight)),
            ("weights used backward", any(&|k| k.pass == Pass::GradientOfInput && k.weight_of.is_some())),
            ("kept for the backward pass", kept),
            ("look-ups", any(&|k| k.lookup)),
            ("windows", any(&|k| k.window > 1)),
            ("carried forward", carried(false)),
            ("carried backward", carried(true)),
            ("an operand shared by outer problems", any(&|k| k.lhs_shared > 1)),
            ("passes", any(&|k| k.passes > 1)),
            ("reshaped or shared", reads(&[Slot::Reshaped, Slot::Shared])),
            ("caches", any(&|k| k.cache > 0.0)),
            ("extra DRAM", any(&|k| k.extra_dram > 0.0)),
            ("norms", any(&|k| k.op == Op::Norm)),
            ("opaque kernels", any(&|k| k.op == Op::Opaque)),
            ("padding to tiles", graph.tensors.iter().any(|x| x.columns % decisions.tiles > 0)),
            ("padding to shards", t > 1 && split),
            ("several kernels in a partition", together),
            ("overlap of nothing", machine.overlap == Some(Overlap::None)),
            ("ring", on(Topology::Ring)),
            ("switch", on(Topology::Switch)),
            ("fully connected", on(Topology::Full)),
            ("three dimensions", machine.dimensions.len() == 3),
            ("samples left over", graph.batch % (graph.micro * model.d) > 0),
        ] {
            if there {
                self.add(name);
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<String> = self.0.iter().map(|(name, n)| format!("{name} {n}")).collect();
        write!(f, "{}", each.join(", "))
    }
}
