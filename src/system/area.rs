//! Chips summed from their parts: area, power and price by the densities of a [`Technology`] instead of typed ones.
//!
//! Let n be cores, l lanes, s stages, f the clock, V the vector peak, M the on-chip memory, k the stacks of memory beside the chip at B
//! bytes/s together, L the bytes/s that the chip sends over all its links, g the share of spare cores, and r that of what is counted by
//! no part. The densities are fields of the technology of the same name.
//!
//! ```text
//! mm2    mac       n l s (1 + g) mac.area
//!        vector    V / (2 f) (1 + g) vector_lane
//!        cores     n (1 + g) core
//!        sram      M / sram
//!        dram      (k + spare_stacks) dram.area
//!        links     L link_area
//!        other     r / (1 - r) times all above
//! W      mac       2 n l s f mac.energy          at the peak
//!        dram      B dram.energy                 on the die; that of the stacks is the memory's own `power`
//!        links     L link_energy
//!        static    A static_power
//! $      die       wafer_price / (dies of a wafer x yield)
//!        package   (A + k stack_area) package_price + test_price
//!        chip      price_over_cost (die + package); the stacks are the memory's own price
//! ```
//!
//! What is summed is written into the chip's `price`, `power` and `idle_share`, so that everything after it has one price and one power.

use super::System;
use super::chip::Chip;
use super::network::Topology;
use super::source::{Source, check_sources};
use super::technology::Technology;
use crate::spec::read::{Fraction, Name, Ref, Share};
use crate::spec::{Node, Reader};
use crate::units::{Power, Price};
use serde::Serialize;

crate::spec! {
    /// What area, power and price of a chip are summed from, in place of stated ones.
    pub struct AreaSpec ("an area model", check: check) {
        /// The process technology.
        technology: Ref<Technology>,
        /// Which of the technology's multiply-accumulate units the lanes and stages are.
        mac: Name = Name("bf16".to_string()),
        /// Cores on the die beyond those at work, as a share of these.
        spare_cores: Share = Share(0.0),
        /// Interfaces to memory stacks beyond those in use.
        spare_stacks: Option<u64>,
        /// Share of the die in which a defect costs it; the rest is repaired by spares.
        critical_share: Fraction = Fraction(1.0),
        /// Price of the chip over its cost.
        price_over_cost: f64 = 1.0,
        /// Where these numbers come from; needed where one is stated.
        source: Option<Source>,
    }
}

const NUMBERS: [&str; 4] = ["spare_cores", "spare_stacks", "critical_share", "price_over_cost"];

fn check(area: &AreaSpec, node: &Node, reader: &mut Reader) {
    let stated = NUMBERS.iter().find(|field| node.get(field).is_some());
    match (&area.source, stated) {
        (Some(source), _) => check_sources(source, &NUMBERS, node, reader),
        (None, Some(field)) => {
            let at = node.get(field).unwrap_or(node);
            reader.within("source", |r| r.problem(at, format!("missing; {field} is a number, and needs its source")));
        }
        (None, None) => {}
    }
    if area.price_over_cost <= 0.0 {
        let at = node.get("price_over_cost").unwrap_or(node);
        reader.within("price_over_cost", |r| {
            r.problem(at, format!("expected more than zero, found {}", at.describe()));
        });
    }
    let macs: Vec<&str> = area.technology.0.mac.0.iter().map(|(word, _)| word.as_str()).collect();
    if !macs.is_empty() && !macs.contains(&area.mac.0.as_str()) {
        let at = node.get("mac").unwrap_or(node);
        let found = &area.mac.0;
        let name = &area.technology.0.name;
        reader.within("mac", |r| {
            r.problem(at, format!("expected a unit that {name} has: {}, found {found:?}", macs.join(", ")));
        });
    }
}

/// Tolerance between the peak of `kernels` and that of the units that the area pays for: figures of data sheets are rounded.
const PEAKS: f64 = 0.01;

/// What a chip with an area must and must not state.
pub(super) fn check_chip(chip: &Chip, node: &Node, reader: &mut Reader) {
    let Some(area) = &chip.area else {
        for field in ["price", "power"] {
            if node.get(field).is_none() {
                let what = if field == "price" { "a price such as \"$30_000\"" } else { "a power such as \"700 W\"" };
                reader.within(field, |r| {
                    r.problem(node, format!("missing; expected {what} (or `area`, from which it is summed)"));
                });
            }
        }
        return;
    };
    for field in ["price", "power", "idle_share"] {
        if let Some(at) = node.get(field) {
            reader.within(field, |r| r.problem(at, "it is summed from `area`; take it out, or take `area` out"));
        }
    }
    if chip.vector_peak.is_none() {
        reader.within("vector_peak", |r| {
            r.problem(node, "missing; the vector lanes of a chip with `area` take a part of it");
        });
    }
    let at = node.get("frequency").unwrap_or(node);
    let most = area.technology.0.most_frequency.0;
    if chip.frequency.0 > most {
        let name = &area.technology.0.name;
        let message = format!("areas and energies of {name} hold up to {} GHz, found {}", most / 1e9, at.describe());
        reader.within("frequency", |r| r.problem(at, message));
    }
    let peak = 2.0 * macs(chip) * chip.frequency.0;
    let stated = chip.kernels.as_ref().and_then(|kernels| kernels.peak_of(&area.mac.0));
    if let Some(stated) = stated.filter(|stated| (stated - peak).abs() > PEAKS * peak) {
        let at = node.get("kernels").and_then(|k| k.get("peak")).unwrap_or(node);
        let message = format!(
            "{} states {} TFLOP/s, the area pays for 2 x cores x lanes x stages x frequency = {} TFLOP/s",
            area.mac.0,
            stated / 1e12,
            peak / 1e12
        );
        reader.within("kernels.peak", |r| r.problem(at, message));
    }
}

/// What a chip with an area needs of the memory beside it.
pub(super) fn check_memory(system: &System, node: &Node, reader: &mut Reader) {
    let Some(area) = &system.chip.0.area else { return };
    let at = node.get("memory").unwrap_or(node);
    let (memory, technology) = (&system.memory.0, &area.technology.0);
    if memory.stacks.is_none() {
        reader.within("memory.stacks", |r| {
            r.problem(at, "missing; a chip with `area` has an interface for each stack of its memory");
        });
    }
    let known: Vec<&str> = technology.dram.0.iter().map(|(word, _)| word.as_str()).collect();
    let found = match &memory.interface {
        None => String::new(),
        Some(name) if !known.contains(&name.0.as_str()) => format!(", found {:?}", name.0),
        Some(_) => return,
    };
    let missing = if memory.interface.is_none() { "missing; " } else { "" };
    let message = format!("{missing}expected an interface that {} has: {}{found}", technology.name, known.join(", "));
    reader.within("memory.interface", |r| r.problem(at, message));
}

fn macs(chip: &Chip) -> f64 {
    chip.cores as f64 * chip.lanes as f64 * chip.stages as f64
}

/// A part of a die.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Part {
    /// What it is.
    pub name: &'static str,
    /// Area, mm2.
    pub mm2: f64,
    /// Power at full use but that of its area, W.
    pub w: f64,
}

/// A die, its package and what they cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Die {
    /// Name of the technology.
    pub technology: String,
    /// The parts; their areas add up to the die's.
    pub parts: Vec<Part>,
    /// Area, mm2.
    pub mm2: f64,
    /// The largest die of the technology, mm2.
    pub most_mm2: f64,
    /// Power that the area draws, W.
    pub static_w: f64,
    /// Power of the chip without the memory stacks, W.
    pub chip_w: f64,
    /// Power of the memory stacks, W.
    pub stacks_w: f64,
    /// What of the chip's power it draws whatever it does.
    pub idle_share: f64,
    /// Dies of a wafer, to first order.
    pub dies_per_wafer: f64,
    /// Share of them that is good.
    pub good: f64,
    /// Price of a good die, $.
    pub die_usd: f64,
    /// Package, assembly and test, $.
    pub package_usd: f64,
    /// Price of the chip without the memory stacks, $.
    pub chip_usd: f64,
}

impl Die {
    /// Power of the package: chip and memory stacks, W.
    pub fn package_w(&self) -> f64 {
        self.chip_w + self.stacks_w
    }

    /// What is too large of it, in words.
    pub fn beyond_limit(&self) -> String {
        let mut parts: Vec<&Part> = self.parts.iter().filter(|part| part.mm2 > 0.0).collect();
        parts.sort_by(|a, b| b.mm2.total_cmp(&a.mm2));
        let parts: Vec<String> =
            parts.iter().take(3).map(|part| format!("{} {:.1} mm2", part.name, part.mm2)).collect();
        format!("die of {:.1} mm2, limit {} mm2; of that {}", self.mm2, self.most_mm2, parts.join(", "))
    }

    /// Whether it is larger than can be made.
    pub fn too_large(&self) -> bool {
        self.mm2 > self.most_mm2 * (1.0 + 1e-9)
    }

    /// Of the chips of a system; none where they state price and power.
    pub fn of(system: &System) -> Option<Self> {
        let chip = &system.chip.0;
        let area = chip.area.as_ref()?;
        let t = &area.technology.0;
        let port = system.memory.0.interface.as_ref().and_then(|name| t.dram.0.iter().find(|(w, _)| *w == name.0));
        let mac = t.mac.0.iter().find(|(word, _)| *word == area.mac.0)?.1;
        let stacks = system.memory.0.stacks.unwrap_or(0) as f64;
        let on_die = 1.0 + area.spare_cores.0;
        let lanes = chip.vector_peak.map_or(0.0, |v| v.0) / (2.0 * chip.frequency.0);
        let memory = system.memory.0.bandwidth.0;
        let sent = sent(system);
        let (port_mm2, port_j) = port.map_or((0.0, 0.0), |(_, port)| (port.area.0, port.energy.0));
        let sites = stacks + area.spare_stacks.unwrap_or(0) as f64;
        let mac_w = 2.0 * macs(chip) * chip.frequency.0 * mac.energy.0;
        let mut parts = vec![
            Part { name: "multiply-accumulate", mm2: macs(chip) * on_die * mac.area.0, w: mac_w },
            Part { name: "vector lanes", mm2: lanes * on_die * t.vector_lane.0, w: 0.0 },
            Part { name: "cores", mm2: chip.cores as f64 * on_die * t.core.0, w: 0.0 },
            Part { name: "SRAM", mm2: chip.sram.0 / t.sram.0, w: 0.0 },
            Part { name: "DRAM interfaces", mm2: sites * port_mm2, w: memory * port_j },
            Part { name: "links", mm2: sent / 1e9 * t.link_area.0, w: sent * t.link_energy.0 },
        ];
        let counted: f64 = parts.iter().map(|part| part.mm2).sum();
        let other = counted * t.other_share.0 / (1.0 - t.other_share.0);
        parts.push(Part { name: "other", mm2: other, w: 0.0 });
        let mm2 = counted + other;
        let static_w = mm2 * t.static_power.0;
        let chip_w = static_w + parts.iter().map(|part| part.w).sum::<f64>();
        let idle = static_w + sent * t.link_energy.0;
        let dies_per_wafer = t.dies_per_wafer(mm2);
        let good = t.yield_of(mm2 * area.critical_share.0);
        let die_usd = t.wafer_price.0 / (dies_per_wafer * good);
        let package_usd = (mm2 + stacks * t.stack_area.0) * t.package_price.0 + t.test_price.0;
        Some(Self {
            technology: t.name.clone(),
            parts,
            mm2,
            most_mm2: t.most_area.0,
            static_w,
            chip_w,
            stacks_w: memory / 1e9 * system.memory.0.power.0,
            idle_share: if chip_w > 0.0 { idle / chip_w } else { 1.0 },
            dies_per_wafer,
            good,
            die_usd,
            package_usd,
            chip_usd: area.price_over_cost * (die_usd + package_usd),
        })
    }
}

/// Bytes/s that a chip sends over its links: a link in each dimension, two in a ring that says so, one to each other chip of a fully
/// connected one.
fn sent(system: &System) -> f64 {
    let dimensions = system.network.dimensions.iter().enumerate().filter(|(_, d)| d.size > 1);
    dimensions
        .map(|(i, d)| {
            let links = match system.network.topology_of(i) {
                Topology::Ring => d.link.0.ring_links as f64,
                Topology::Switch => 1.0,
                Topology::FullyConnected => (d.size - 1) as f64,
            };
            links * d.link.0.bandwidth.0
        })
        .sum()
}

impl System {
    /// Writes what is summed of the chip into its price and power. The same again after the network has changed.
    pub(crate) fn sum_up(&mut self) {
        if let Some(die) = Die::of(self) {
            let chip = &mut self.chip.0;
            (chip.price, chip.power, chip.idle_share) = (Price(die.chip_usd), Power(die.chip_w), Share(die.idle_share));
        }
    }

    /// The die, if it is larger than can be made.
    pub fn too_large(&self) -> Option<Die> {
        Die::of(self).filter(Die::too_large)
    }

    /// The system with no limit on its dies: what it would do if they could be made bounds all that have less.
    pub(crate) fn without_die_limit(&self) -> Self {
        let mut system = self.clone();
        if let Some(area) = &mut system.chip.0.area {
            area.technology.0.most_area.0 = f64::MAX;
        }
        system
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::spec::Node;
    use crate::system::price;

    /// A technology of round numbers, with more lines.
    pub(crate) fn technology_text(more: &str) -> String {
        format!(
            "{{name: T, source: 'assumed: test', mac: {{bf16: {{area: 200 um2, energy: 0.5 pJ/FLOP}}}}, vector_lane: 10000 um2, \
             core: 0.1 mm2, sram: 1 MB/mm2, dram: {{hbm: {{area: 10 mm2, energy: 1 pJ/bit}}}}, link_area: 0.1 mm2/(GB/s), \
             link_energy: 5 pJ/bit, other_share: 0.2, static_power: 0.1 W/mm2, most_frequency: 2 GHz, most_area: 858 mm2, \
             wafer_price: $10000, wafer_diameter: 300 mm, defects: 0.1 /cm2, package_price: $0.5/mm2, stack_area: 100 mm2, \
             test_price: $100{more}}}"
        )
    }

    pub(crate) fn technology(more: &str) -> Technology {
        Reader::read(&Node::parse("t", &technology_text(more)).unwrap()).unwrap()
    }

    fn text(chip: &str, memory: &str) -> String {
        format!(
            "{{name: s, source: test, chip: {{name: c, source: 'assumed: test', style: dataflow, cores: 100, lanes: 32, stages: 25, \
             frequency: 1 GHz, vector_peak: 4 TFLOP/s, sram: 100 MB, efficiency: 1{chip}}}, memory: {{name: m, source: 'assumed: test', \
             bandwidth: 500 GB/s, capacity: 16 GB, price: $1/(GB/s), power: 0.03 W/(GB/s){memory}}}, network: {{topology: torus-2d, \
             dimensions: [{{size: 4, link: {{name: l, source: 'assumed: test', bandwidth: 50 GB/s, ring_links: 2, price: $0/(GB/s), \
             power: 0 W/(GB/s)}}}}, {{size: 1, link: {{name: l, source: 'assumed: test', bandwidth: 50 GB/s, price: $0/(GB/s), power: 0 \
             W/(GB/s)}}}}]}}}}"
        )
    }

    fn system(chip: &str, memory: &str) -> Result<System, String> {
        System::build(&Node::parse("s", &text(chip, memory)).unwrap()).map_err(|p| p.to_string())
    }

    const STACKS: &str = ", stacks: 4, interface: hbm";

    fn area(more: &str) -> String {
        format!(", area: {{technology: {}{more}}}", technology_text(""))
    }

    /// By hand: 80,000 units of 200 um2 are 16 mm2 and 80 W; 2,000 lanes 20 mm2; 100 cores 10 mm2; 100 MB 100 mm2; four stacks 40 mm2 and
    /// 2 TB/s at 1 pJ/bit 16 W; 100 GB/s of links 10 mm2 and 4 W: 196 mm2 are four fifths of 245 mm2, which draw 24.5 W.
    #[test]
    fn a_die_by_hand() {
        let system = system(&area(""), STACKS).unwrap();
        let die = Die::of(&system).unwrap();
        let mm2: Vec<f64> = die.parts.iter().map(|part| part.mm2).collect();
        for (found, expected) in mm2.iter().zip([16.0, 20.0, 10.0, 100.0, 40.0, 10.0, 49.0]) {
            assert!((found - expected).abs() < 1e-9, "{mm2:?}");
        }
        assert!((die.mm2 - 245.0).abs() < 1e-9 && (die.chip_w - 124.5).abs() < 1e-9, "{die:?}");
        assert!((die.package_w() - 184.5).abs() < 1e-9 && (die.idle_share - 28.5 / 124.5).abs() < 1e-12);
        // 288.514 - 42.576 dies, ((1 - exp(-0.245)) / 0.245)^2 of them good; 645 mm2 of package.
        assert!((die.dies_per_wafer - 245.938).abs() < 1e-2 && (die.good - 0.786_7).abs() < 1e-3, "{die:?}");
        assert!((die.die_usd - 10000.0 / die.dies_per_wafer / die.good).abs() < 1e-9);
        assert!((die.package_usd - 422.5).abs() < 1e-9 && (die.chip_usd - die.die_usd - 422.5).abs() < 1e-9);
        // The one path of prices has it: four chips, each with 2 TB/s of memory.
        let (cost, power) = (price::cost(&system), price::power(&system));
        assert!((cost.chips - 4.0 * die.chip_usd).abs() < 1e-9 && (cost.memory - 4.0 * 2000.0).abs() < 1e-9);
        assert!((power.chips - 4.0 * 124.5).abs() < 1e-9 && (power.memory - 4.0 * 60.0).abs() < 1e-9);
    }

    #[test]
    fn spares_and_margins_by_hand() {
        let more =
            ", spare_cores: 0.5, spare_stacks: 1, critical_share: 0.5, price_over_cost: 3, source: 'assumed: test'";
        let die = Die::of(&system(&area(more), STACKS).unwrap()).unwrap();
        // Half as many units, lanes and cores again, and a fifth interface: 229 mm2 + a quarter.
        assert!((die.mm2 - (196.0 + 23.0 + 10.0) * 1.25).abs() < 1e-9, "{die:?}");
        assert!((die.chip_usd - 3.0 * (die.die_usd + die.package_usd)).abs() < 1e-9);
        let ad: f64 = die.mm2 * 0.5 * 0.001;
        assert!((die.good - ((1.0 - (-ad).exp()) / ad).powi(2)).abs() < 1e-12);
    }

    #[test]
    fn what_is_stated_twice_or_not_at_all() {
        let both = system(&format!("{}, price: $1, power: 1 W", area("")), STACKS).unwrap_err();
        assert!(both.contains("chip.price: it is summed") && both.contains("chip.power: it is summed"), "{both}");
        let none = system("", STACKS).unwrap_err();
        assert!(none.contains("chip.price: missing") && none.contains("chip.power: missing"), "{none}");
        let stacks = system(&area(""), "").unwrap_err();
        assert!(stacks.contains("memory.stacks: missing") && stacks.contains("memory.interface: missing"), "{stacks}");
        let kind = system(&area(""), ", stacks: 4, interface: ddr").unwrap_err();
        assert!(kind.contains("expected an interface that T has: hbm, found \"ddr\""), "{kind}");
        let mac = system(&area(", mac: fp3"), STACKS).unwrap_err();
        assert!(mac.contains("expected a unit that T has: bf16, found \"fp3\""), "{mac}");
        let source = system(&area(", spare_cores: 0.1"), STACKS).unwrap_err();
        assert!(source.contains("spare_cores is a number, and needs its source"), "{source}");
    }

    #[test]
    fn a_die_above_the_limit_is_too_large() {
        let small = system(&area(""), STACKS).unwrap();
        assert_eq!(small.too_large(), None);
        let mut large = small;
        large.chip.0.sram.0 = 700e6;
        let die = large.too_large().unwrap();
        assert!((die.mm2 - 995.0).abs() < 1e-9 && die.most_mm2 == 858.0);
        assert_eq!(large.without_die_limit().too_large(), None);
    }
}
