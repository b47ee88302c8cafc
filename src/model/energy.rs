//! Energy of an iteration by use: what the parts of a system draw in any case, and what each use of them adds.
//!
//! Let w be a part's power at full use, i its idle share, T the seconds of an iteration, n = tp * dp the chips of a
//! stage in all replicas, R the layers, b the passes of a replica over them (microbatches; samples in DFModel's schedules).
//! A layer pass of one chip has C seconds of arithmetic, F FLOP, D bytes of DRAM traffic and J joules of links.
//!
//! ```text
//! idle      chips i w;  memories i w B (B: bandwidth);  links i w B;  switches w B (ports)          all times T
//! chips     b R n * C (1 - i) w            or, where the chip states e joules a FLOP,  b R n * F e
//! memories  (b R n * D + R n * O) * e      O: the optimiser's bytes a layer; e = (1 - i) w / (1 GB/s) unless stated
//! links     b R n * J + b (PP - 1) n * H e + R n * G
//!           H: bytes of a hand-over between stages; G: joules of a layer's gradient reduction
//! ```
//!
//! Bytes on links are those that a collective must move (S bytes of the whole tensor, n chips along a dimension):
//!
//! | | bytes a chip puts on its links |
//! |---|---|
//! | all-reduce | 2(n-1)/n S |
//! | all-gather, reduce-scatter, broadcast | (n-1)/n S |
//! | all-to-all | (n-1)/n S behind a switch or fully connected; on a ring floor(n^2/4)/n S (each byte the shorter way) |
//! | point to point | S, on the slowest link of the group |
//!
//! Several dimensions compose as in [`super::collective`]. These are the same in every network model: DFModel's factors
//! change the time, not what must be moved. The stages have R layers together however they are divided. Bytes that a model does
//! not count as traffic (`weight_traffic` ignored or setup) cost none.

use super::collective::{GroupDimension, OwnGroups, in_order, ranks};
use super::memory::optimizer_bytes_per_weight;
use super::schedule::{Stage, microbatches, samples_per_pass};
use crate::graph::{CollectiveKind, Kernel, Workload};
use crate::system::options::{Charge, GradientReduction, Pipeline};
use crate::system::price::{self, ByPart};
use crate::system::{Link, Memory, ModelOptions, System};
use serde::Serialize;

/// Joules of an iteration, all chips.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Energy {
    /// Drawn whatever is done.
    pub idle: ByPart,
    /// Added by use.
    pub used: ByPart,
}

impl Energy {
    /// By part, idle and used together.
    pub fn parts(&self) -> ByPart {
        self.idle + self.used
    }
    /// The sum.
    pub fn total(&self) -> f64 {
        self.idle.total() + self.used.total()
    }
}

/// What use adds to the idle power of one chip and its memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Watts while the chip computes; zero where it states an energy a FLOP.
    pub busy_w: f64,
    /// Joules a FLOP; zero where it does not state it.
    pub flop_j: f64,
    /// Joules a byte of DRAM traffic.
    pub dram_byte_j: f64,
}

/// The rates of a system.
pub fn rates(system: &System) -> Rates {
    let (chip, memory) = (&system.chip.0, &system.memory.0);
    let unit = |value: f64| system.model.precision.round(value);
    Rates {
        busy_w: if chip.energy_per_flop.is_some() { 0.0 } else { (1.0 - chip.idle_share.0) * unit(chip.power.0) },
        flop_j: chip.energy_per_flop.map_or(0.0, |e| e.0),
        dram_byte_j: memory_byte_j(memory, &system.model),
    }
}

/// Joules a byte of a memory's traffic, beyond what it draws idle.
pub fn memory_byte_j(memory: &Memory, options: &ModelOptions) -> f64 {
    match memory.energy_per_byte {
        Some(e) => e.0,
        None => (1.0 - memory.idle_share.0) * options.precision.round(memory.power.0) / 1e9,
    }
}

/// Joules a byte on a link, beyond what it draws idle.
pub fn link_byte_j(link: &Link, options: &ModelOptions) -> f64 {
    match link.energy_per_byte {
        Some(e) => e.0,
        None => (1.0 - link.idle_share.0) * options.precision.round(link.power.0) / 1e9,
    }
}

/// Joules of links that one chip of a group spends on a collective of `bytes` (the table above).
pub fn collective_j(kind: CollectiveKind, group: &[GroupDimension], bytes: f64) -> f64 {
    let mut left = bytes;
    let mut joules = 0.0;
    for d in in_order(group).iter() {
        let n = d.size as f64;
        let others = (n - 1.0) / n;
        let moved = match kind {
            CollectiveKind::AllReduce => 2.0 * others * left,
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::Broadcast => others * left,
            CollectiveKind::AllToAll => d.all_to_all_hops() * bytes,
            CollectiveKind::PointToPoint => 0.0,
        };
        joules += moved * d.byte_j;
        left /= n;
    }
    if kind == CollectiveKind::PointToPoint { bytes * hand_over_byte_j(group) } else { joules }
}

/// Joules of links of one chip for the collectives that a kernel makes by itself, for `samples` samples; bytes as in
/// [`super::collective::own_seconds`].
pub fn own_j(kernel: &Kernel, groups: &OwnGroups, samples: f64) -> f64 {
    let share = ranks(&groups.tensor) as f64;
    let joules = kernel.collectives.iter().map(|c| {
        let bytes = c.bytes * samples / if c.kind == CollectiveKind::AllToAll { share } else { 1.0 };
        c.times as f64 * collective_j(c.kind, groups.of(c.scope), bytes)
    });
    joules.sum()
}

/// Joules a byte from one member of a group to the next: of the slowest link, which sets the time too.
pub fn hand_over_byte_j(group: &[GroupDimension]) -> f64 {
    group.iter().min_by(|a, b| a.bandwidth.total_cmp(&b.bandwidth)).map_or(0.0, |d| d.byte_j)
}

/// Passes of one replica over its layers in an iteration.
pub fn passes(workload: &Workload, options: &ModelOptions, dp: u64) -> f64 {
    match options.pipeline {
        Pipeline::OneForwardOneBackward => microbatches(workload, options, dp),
        Pipeline::Dfmodel | Pipeline::DfmodelFirst => workload.global_batch as f64 / dp as f64,
    }
}

/// One layer pass of one chip: sums over its partitions.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerUse {
    /// Seconds of arithmetic.
    pub compute_s: f64,
    /// FLOP.
    pub flop: f64,
    /// Bytes of DRAM traffic.
    pub dram_bytes: f64,
    /// Joules of links.
    pub link_j: f64,
}

/// Joules that use adds in an iteration, all chips.
pub fn used(workload: &Workload, system: &System, stage: &Stage<'_>, layer: LayerUse) -> ByPart {
    let options = &system.model;
    let rates = rates(system);
    let chips = system.chip_count() as f64 / stage.pp as f64;
    let layers = workload.repeat as f64 * chips;
    let passes = passes(workload, options, stage.dp);
    let mut out = ByPart {
        chips: passes * layers * (rates.busy_w * layer.compute_s + rates.flop_j * layer.flop),
        memory: passes * layers * layer.dram_bytes * rates.dram_byte_j,
        links: passes * layers * layer.link_j,
        switches: 0.0,
    };
    if stage.pp > 1 {
        let bytes = stage.carried_bytes * samples_per_pass(workload, options);
        out.links += passes * (stage.pp - 1) as f64 * chips * bytes * hand_over_byte_j(stage.pp_group);
    }
    if workload.training {
        if options.gradient_reduction == GradientReduction::PerIteration {
            let bytes = stage.layer_gradient_bytes;
            out.links += layers * collective_j(CollectiveKind::AllReduce, stage.dp_group, bytes);
        }
        if options.optimizer_step == Charge::Charged {
            let word = workload.word_bytes;
            // As the schedule charges its time: gradients read, states read and written, weights written.
            let bytes = stage.layer_weight_bytes / word * (2.0 * word + 2.0 * optimizer_bytes_per_weight(word));
            out.memory += layers * bytes * rates.dram_byte_j;
        }
    }
    out
}

/// Joules of links of all hand-overs of an iteration, where `bytes` of one sample cross the cuts between stages together.
pub fn hand_overs_j(workload: &Workload, system: &System, stage: &Stage<'_>, bytes: f64) -> f64 {
    let chips = system.chip_count() as f64 / stage.pp as f64;
    let passes = passes(workload, &system.model, stage.dp);
    passes * chips * bytes * samples_per_pass(workload, &system.model) * hand_over_byte_j(stage.pp_group)
}

/// The energy of an iteration of `seconds`.
pub fn of_iteration(workload: &Workload, system: &System, stage: &Stage<'_>, layer: LayerUse, seconds: f64) -> Energy {
    Energy { idle: price::idle_power(system).times(seconds), used: used(workload, system, stage, layer) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::collective::{Extent, group};
    use crate::spec::Node;
    use crate::workload::dfmodel_layer::{Pass, tests::gpt3};

    fn system(chip: &str, memory: &str, link: &str) -> System {
        let part = "source: 'assumed: test'";
        let text = format!(
            "{{name: s, source: test, chip: {{name: c, {part}, style: dataflow, cores: 10, lanes: 10, stages: 5, \
             frequency: 1 GHz, sram: 1 GB, efficiency: 1, price: $1, power: 100 W{chip}}}, memory: {{name: m, {part}, \
             bandwidth: 100 GB/s, price: $1/(GB/s), power: 0.1 W/(GB/s){memory}}}, network: {{topology: torus-2d, \
             dimensions: [{{size: 4, link: {{name: l, {part}, bandwidth: 10 GB/s, price: $1/(GB/s), power: 0.1 \
             W/(GB/s){link}}}}}, {{size: 2, link: {{name: l, {part}, bandwidth: 5 GB/s, price: $1/(GB/s), power: 0.2 \
             W/(GB/s){link}}}}}], switch: {{name: x, {part}, price: $1/(GB/s), power: 0.5 W/(GB/s)}}}}}}"
        );
        System::build(&Node::parse("test", &text).unwrap()).unwrap()
    }

    fn each(sizes: &[u64]) -> Vec<Extent> {
        sizes.iter().copied().map(Extent::neighbours).collect()
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-12 * b.abs()
    }

    /// By hand, 8 chips. Chips 0.2 * 8 * 100 W; memories 0.2 * 8 * 100 GB/s * 0.1; links whole, 8 * 10 * 0.1 + 8 * 5 * 0.2;
    /// routers whole: 2 * 8/4 * 10 + 2 * 8/2 * 5 = 80 GB/s at 0.5 W.
    #[test]
    fn idle_power_by_hand() {
        let idle = price::idle_power(&system("", "", ""));
        assert!(near(idle.chips, 160.0) && near(idle.memory, 16.0) && near(idle.links, 16.0), "{idle:?}");
        assert!(near(idle.switches, 40.0), "{idle:?}");
    }

    /// The rest of the power: 0.8 * 100 W; 0.8 * 0.1 W/(GB/s) = 80 pJ/B; nothing of a link, unless it states it.
    #[test]
    fn rates_are_the_rest_of_the_power_unless_stated() {
        let plain = rates(&system("", "", ""));
        assert!(near(plain.busy_w, 80.0) && near(plain.dram_byte_j, 80e-12) && plain.flop_j == 0.0, "{plain:?}");
        let stated = rates(&system(", energy_per_flop: 0.5 pJ/FLOP", ", energy_per_byte: 4 pJ/bit", ""));
        assert!(stated.busy_w == 0.0 && near(stated.flop_j, 0.5e-12) && near(stated.dram_byte_j, 32e-12), "{stated:?}");
        let link = |text| link_byte_j(&system("", "", text).network.dimensions[1].link.0, &ModelOptions::flowspace());
        assert_eq!(link(""), 0.0);
        assert!(near(link(", idle_share: 0.25"), 0.75 * 0.2e-9));
        assert!(near(link(", energy_per_byte: 10 pJ/B"), 10e-12));
    }

    /// At full use of everything for a second, energy is the full power times a second.
    #[test]
    fn full_use_is_full_power() {
        let system = system("", "", ", idle_share: 0.5");
        let rates = rates(&system);
        let idle = price::idle_power(&system);
        let full = price::power(&system);
        assert!(near(idle.chips + 8.0 * rates.busy_w, full.chips));
        assert!(near(idle.memory + 8.0 * 100e9 * rates.dram_byte_j, full.memory));
        let links: f64 = system
            .network
            .dimensions
            .iter()
            .map(|d| 8.0 * d.link.0.bandwidth.0 * link_byte_j(&d.link.0, &system.model))
            .sum();
        assert!(near(idle.links + links, full.links));
    }

    /// By hand, 1 GB over 4 chips of 0.1 nJ/B and 2 of 0.2 nJ/B. All-reduce: 1.5 GB * 0.1 + 2 * 1/2 * 0.25 GB * 0.2 =
    /// 0.2 J; all-gather half of it; all-to-all: 1 GB * 0.1 on the ring of four (4/4), 0.5 GB * 0.2 on the ring of two.
    #[test]
    fn bytes_of_collectives_by_hand() {
        let both = group(&system("", "", ", idle_share: 0"), &each(&[4, 2]));
        for (kind, joules) in [
            (CollectiveKind::AllReduce, 0.2),
            (CollectiveKind::AllGather, 0.1),
            (CollectiveKind::ReduceScatter, 0.1),
            (CollectiveKind::AllToAll, 0.2),
            (CollectiveKind::PointToPoint, 0.2),
        ] {
            assert!(near(collective_j(kind, &both, 1e9), joules), "{kind}: {}", collective_j(kind, &both, 1e9));
        }
        assert_eq!(collective_j(CollectiveKind::AllReduce, &[], 1e9), 0.0);
    }

    /// A stage of given figures on 8 chips as 1 x 2 stages x 4 replicas, 10 layers, batch 80 in microbatches of 2: 10
    /// passes, 10 layers and 4 chips a stage.
    #[test]
    fn an_iteration_by_hand() {
        let system = system("", "", ", idle_share: 0");
        let mut workload = gpt3(64, 1, 64, 10, 80, Pass::Training);
        workload.micro_batch = 2;
        let (pp_group, dp_group) = (group(&system, &each(&[1, 2])), group(&system, &each(&[4, 1])));
        let stage = Stage {
            layer_s: 1.0,
            pp: 2,
            longest: 5,
            dp: 4,
            carried_bytes: 1e9,
            hand_overs: 2,
            layer_weight_bytes: 2e9,
            layer_gradient_bytes: 2e9,
            pp_group: &pp_group,
            dp_group: &dp_group,
        };
        let layer = LayerUse { compute_s: 0.5, flop: 1e12, dram_bytes: 3e9, link_j: 0.25 };
        let energy = of_iteration(&workload, &system, &stage, layer, 100.0);
        let used = energy.used;
        // 10 passes * 10 layers * 4 chips = 400 layer passes.
        assert!(near(used.chips, 400.0 * 0.5 * 80.0), "{used:?}");
        // 1e9 weights of 2 bytes, 12 bytes of state: 4 + 24 bytes a weight, 40 chip-layers.
        assert!(near(used.memory, (400.0 * 3e9 + 40.0 * 28e9) * 80e-12), "{used:?}");
        // One boundary of 4 chips, 10 passes of 2 GB at 0.2 nJ/B; 40 reductions of 2 GB over four: 3 GB at 0.1 nJ/B.
        assert!(near(used.links, 400.0 * 0.25 + 10.0 * 4.0 * 2e9 * 0.2e-9 + 40.0 * 3e9 * 0.1e-9), "{used:?}");
        assert_eq!(used.switches, 0.0);
        assert!(near(energy.idle.chips, 16_000.0) && near(energy.idle.switches, 4000.0), "{:?}", energy.idle);
        assert!(near(energy.total(), energy.parts().total()));
    }
}
