//! What occurred in the plans that were derived: a test whose cases are nearly all of one kind says little.

use super::case::{Efficiency, Op, Overlap, Pass, Slot, Topology};
use super::derive::Model;
use super::graph::{Conversion, Strategy};
use std::collections::BTreeMap;
use std::fmt;

#[derive(Default)]
pub struct Tally(BTreeMap<String, u32>);

/// What must occur, and how often: about half of what does.
pub const OF_SEARCH: &[(&str, u32)] = &[
    ("AllGather", 90),
    ("AllReduce", 60),
    ("AllToAll", 40),
    ("DP", 350),
    ("PP", 200),
    ("ReduceScatter", 100),
    ("TP", 250),
    ("TP over several dimensions", 30),
    ("an operand shared by outer problems", 20),
    ("caches", 200),
    ("carried backward", 10),
    ("carried forward", 200),
    ("collectives of its own", 300),
    ("extra DRAM", 350),
    ("fully connected", 250),
    ("gradients of weights", 200),
    ("kept for the backward pass", 200),
    ("lanes and stages", 250),
    ("lanes of other words", 20),
    ("look-ups", 100),
    ("norms", 200),
    ("opaque kernels", 100),
    ("overlap of nothing", 100),
    ("padding to shards", 100),
    ("padding to tiles", 150),
    ("empty tiles", 20),
    ("passes", 200),
    ("pieces", 55),
    ("plans", 600),
    ("reshaped or shared", 40),
    ("ring", 250),
    ("samples left over", 300),
    ("operands waited for whole", 10),
    ("pipelines that fill", 60),
    ("several kernels in a partition", 200),
    ("stages of different lengths", 95),
    ("switch", 250),
    ("three dimensions", 100),
    ("tiles", 300),
    ("waves", 100),
    ("waves in training", 65),
    ("waves with burst", 20),
    ("weights on chip", 150),
    ("weights used backward", 150),
    ("windows", 85),
    ("written in place", 200),
];
pub const OF_DRAWN: &[(&str, u32)] = &[
    ("AllGather", 350),
    ("AllReduce", 200),
    ("AllToAll", 150),
    ("DP", 300),
    ("PP", 250),
    ("ReduceScatter", 180),
    ("TP", 650),
    ("TP over several dimensions", 150),
    ("a dimension divided", 85),
    ("an operand shared by outer problems", 40),
    ("caches", 300),
    ("carried backward", 10),
    ("carried forward", 300),
    ("collectives of its own", 450),
    ("extra DRAM", 550),
    ("fully connected", 350),
    ("gradients of weights", 250),
    ("kept for the backward pass", 300),
    ("lanes and stages", 350),
    ("lanes of other words", 30),
    ("look-ups", 150),
    ("norms", 300),
    ("opaque kernels", 150),
    ("overlap of nothing", 150),
    ("padding to shards", 450),
    ("padding to tiles", 300),
    ("empty tiles", 20),
    ("passes", 300),
    ("part of a ring", 20),
    ("pieces", 20),
    ("plans", 950),
    ("reshaped or shared", 60),
    ("ring", 400),
    ("samples left over", 400),
    ("operands waited for whole", 5),
    ("pipelines that fill", 40),
    ("several kernels in a partition", 200),
    ("stages of different lengths", 150),
    ("switch", 350),
    ("three dimensions", 150),
    ("tiles", 450),
    ("waves", 250),
    ("waves in training", 100),
    ("waves with burst", 45),
    ("weights on chip", 95),
    ("weights used backward", 200),
    ("windows", 100),
    ("without a plan", 1000),
    ("written in place", 300),
];
pub const OF_PINNED: &[(&str, u32)] = &[
    ("AllGather", 75),
    ("AllReduce", 45),
    ("AllToAll", 30),
    ("DP", 100),
    ("PP", 85),
    ("ReduceScatter", 40),
    ("TP", 150),
    ("TP over several dimensions", 35),
    ("a dimension divided", 20),
    ("an operand shared by outer problems", 8),
    ("caches", 80),
    ("carried backward", 2),
    ("carried forward", 80),
    ("collectives of its own", 100),
    ("extra DRAM", 150),
    ("fully connected", 100),
    ("gradients of weights", 75),
    ("kept for the backward pass", 85),
    ("lanes and stages", 100),
    ("look-ups", 45),
    ("norms", 85),
    ("opaque kernels", 45),
    ("overlap of nothing", 60),
    ("padding to shards", 80),
    ("padding to tiles", 80),
    ("empty tiles", 5),
    ("passes", 80),
    ("part of a ring", 15),
    ("pieces", 2),
    ("plans", 250),
    ("reshaped or shared", 15),
    ("ring", 100),
    ("samples left over", 100),
    ("operands waited for whole", 1),
    ("pipelines that fill", 12),
    ("several kernels in a partition", 60),
    ("stages of different lengths", 45),
    ("switch", 100),
    ("three dimensions", 40),
    ("tiles", 100),
    ("waves", 70),
    ("waves in training", 35),
    ("waves with burst", 10),
    ("weights on chip", 80),
    ("weights used backward", 65),
    ("windows", 30),
    ("written in place", 95),
];

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
            ("lanes of other words", !machine.peaks.is_empty() && graph.word != 2),
            ("lanes and stages", matches!(machine.efficiency, Efficiency::LanesStages)),
            ("pieces", kernels().any(|k| model.pieces(k).is_some_and(|p| p > 1))),
            ("AllReduce", paid.iter().any(|p| p.kind == Conversion::AllReduce)),
            ("AllGather", paid.iter().any(|p| p.kind == Conversion::AllGather)),
            ("AllToAll", paid.iter().any(|p| p.kind == Conversion::AllToAll)),
            ("ReduceScatter", paid.iter().any(|p| p.kind == Conversion::ReduceScatter)),
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
            ("written in place", graph.tensors.iter().any(|x| x.in_place)),
            ("caches", any(&|k| k.cache > 0.0)),
            ("extra DRAM", any(&|k| k.extra_dram > 0.0)),
            ("norms", any(&|k| k.op == Op::Norm)),
            ("opaque kernels", any(&|k| k.op == Op::Opaque)),
            ("tiles", decisions.tiles > 1),
            ("padding to tiles", graph.tensors.iter().any(|x| x.columns % decisions.tiles > 0)),
            (
                "empty tiles",
                graph.tensors.iter().any(|x| x.columns.div_ceil(x.columns.div_ceil(decisions.tiles)) < decisions.tiles),
            ),
            ("padding to shards", t > 1 && split),
            ("several kernels in a partition", together),
            ("pipelines that fill", model.partitions().iter().any(|p| p.filling > 0.0)),
            ("pipelines whose filling is left out", machine.dataflow && machine.no_filling && together),
            ("operands waited for whole", kernels().any(|k| model.waits_for_all(k))),
            ("overlap of nothing", machine.overlap == Some(Overlap::None)),
            ("ring", on(Topology::Ring)),
            (
                "part of a ring",
                decisions
                    .uses
                    .iter()
                    .zip(&machine.dimensions)
                    .any(|(u, d)| d.topology == Topology::Ring && u.iter().filter(|n| **n > 1).count() > 1),
            ),
            ("ring of links to each neighbour", machine.dimensions.iter().any(|d| d.ring_links == 2)),
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
