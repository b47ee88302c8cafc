//! Process technologies: what a function costs in area, energy and dollars, and what of a wafer is good.
//!
//! With A the area of a die, d the diameter of the wafer, D the density of defects and c the share of the die in which a defect costs it:
//!
//! ```text
//! dies of a wafer      N = pi (d/2)^2 / A - pi d / sqrt(2 A)            (de Vries, IEEE Trans. Semiconductor Manufacturing 18, 2005: the usual first-order form)
//! yield, Poisson       Y = exp(-c A D)
//! yield, Murphy        Y = ((1 - exp(-c A D)) / (c A D))^2              (Murphy, Proc. IEEE 52, 1964)
//! neg. binomial        Y = (1 + c A D / alpha)^-alpha                   (Stapper, IBM J. Res. Dev. 27, 1983; alpha: clustering)
//! good die             wafer price / (N Y)
//! ```

use super::source::{Source, check_sources};
use crate::spec::{
    Node, Reader,
    read::{Share, Table},
};
use crate::units::{
    Area, AreaPerBandwidth, CapacityPerArea, DefectDensity, EnergyPerByte, EnergyPerFlop, Frequency, Length,
    PowerPerArea, Price, PricePerArea,
};

crate::choice! {
    /// How the share of good dies follows from the density of defects.
    pub enum YieldModel ("a yield model") {
        /// Defects fall independently of each other: exp(-AD).
        Poisson = "poisson",
        /// Their density varies over wafers as a triangle: ((1 - exp(-AD)) / AD)^2.
        Murphy = "murphy",
        /// It varies as a gamma distribution: (1 + AD / alpha)^-alpha, alpha being `clustering`.
        NegativeBinomial = "negative_binomial",
    }
}

crate::spec! {
    /// A multiply-accumulate unit for one data type.
    #[derive(Copy)]
    pub struct Mac ("a multiply-accumulate unit") {
        /// Area of one unit.
        area: Area,
        /// Energy of one FLOP (half a multiply-accumulate), with the operands' way to the unit.
        energy: EnergyPerFlop,
    }
}

crate::spec! {
    /// The interface to one stack of a kind of memory.
    #[derive(Copy)]
    pub struct StackPort ("an interface to a memory stack") {
        /// Area of physical interface and controller for one stack.
        area: Area,
        /// Energy on the die for data read or written.
        energy: EnergyPerByte,
    }
}

crate::spec! {
    /// A process technology.
    pub struct Technology ("a technology", check: check) {
        /// Name for titles.
        name: String,
        /// Where each number comes from.
        source: Source,
        /// Multiply-accumulate units by data type.
        mac: Table<Mac>,
        /// Area of one vector lane: a multiply-add of 32 bits a cycle, with its share of registers' ports, issue, integer and other units.
        vector_lane: Area,
        /// Area of a core beyond its units and memory: sequencer and port to the network on the chip.
        core: Area,
        /// Memory by area, with its periphery.
        sram: CapacityPerArea,
        /// Interfaces to stacked memory, by the memory's `interface`.
        dram: Table<StackPort>,
        /// Area of links (transceivers and controllers), by the bandwidth that a chip sends.
        link_area: AreaPerBandwidth,
        /// Energy of links at both ends of a byte, drawn whatever the traffic.
        link_energy: EnergyPerByte,
        /// Share of the die that none of these is: network on the chip, host interface, clocks, test, gaps.
        other_share: Share,
        /// Power that area draws whatever it does (leakage, clock tree).
        static_power: PowerPerArea,
        /// The highest clock that these areas and energies hold for.
        most_frequency: Frequency,
        /// The largest die that can be exposed.
        most_area: Area,
        /// Price of a processed wafer.
        wafer_price: Price,
        /// Its diameter.
        wafer_diameter: Length,
        /// Defects that kill what they hit.
        defects: DefectDensity,
        /// How the share of good dies follows from them.
        yield_model: YieldModel = YieldModel::Murphy,
        /// The parameter alpha of `negative_binomial`.
        clustering: Option<f64>,
        /// Price of interposer and package, by the area of die and stacks on it.
        package_price: PricePerArea,
        /// Area of a memory stack on the package.
        stack_area: Area,
        /// Price of assembly and test of one package.
        test_price: Price,
    }
}

/// The fields of a technology that are numbers.
const NUMBERS: [&str; 19] = [
    "mac",
    "vector_lane",
    "core",
    "sram",
    "dram",
    "link_area",
    "link_energy",
    "other_share",
    "static_power",
    "most_frequency",
    "most_area",
    "wafer_price",
    "wafer_diameter",
    "defects",
    "yield_model",
    "clustering",
    "package_price",
    "stack_area",
    "test_price",
];

fn check(technology: &Technology, node: &Node, reader: &mut Reader) {
    check_sources(&technology.source, &NUMBERS, node, reader);
    let mut say = |field: &str, what: &str| {
        let at = node.get(field).unwrap_or(node);
        reader.within(field, |r| r.problem(at, format!("expected {what}, found {}", at.describe())));
    };
    for (field, value) in [
        ("sram", technology.sram.0),
        ("most_area", technology.most_area.0),
        ("wafer_diameter", technology.wafer_diameter.0),
        ("most_frequency", technology.most_frequency.0),
    ] {
        if value <= 0.0 {
            say(field, "more than zero");
        }
    }
    if technology.other_share.0 >= 1.0 {
        say("other_share", "a share below 1");
    }
    if technology.mac.0.is_empty() {
        say("mac", "at least one data type");
    }
    if technology.most_area.0 > 0.0 && technology.dies_per_wafer(technology.most_area.0) < 1.0 {
        say("wafer_diameter", "a wafer that holds at least one die of most_area");
    }
    match (technology.yield_model, technology.clustering) {
        (YieldModel::NegativeBinomial, None) => {
            let at = node.get("yield_model").unwrap_or(node);
            reader.within("clustering", |r| r.problem(at, "missing; yield_model negative_binomial needs it"));
        }
        (YieldModel::NegativeBinomial, Some(alpha)) if alpha <= 0.0 => say("clustering", "more than zero"),
        (YieldModel::Poisson | YieldModel::Murphy, Some(_)) => {
            say("clustering", "nothing, as negative_binomial alone has it");
        }
        _ => {}
    }
}

impl Technology {
    /// Whole dies of an area on a wafer, to first order; not rounded. Dies as large as the wafer have less than one.
    pub fn dies_per_wafer(&self, mm2: f64) -> f64 {
        let d = self.wafer_diameter.0;
        let around = std::f64::consts::PI * d / (2.0 * mm2).sqrt();
        // The form ends where dies are nearly as large as the wafer; past that it would fall below zero.
        (std::f64::consts::PI * d * d / 4.0 / mm2 - around).max(1e-6)
    }

    /// Share of dies that are good; `mm2`: the area in which a defect costs the die.
    pub fn yield_of(&self, mm2: f64) -> f64 {
        let hits = mm2 * self.defects.0;
        match self.yield_model {
            YieldModel::Poisson => (-hits).exp(),
            // The limit for few defects, where the quotient loses its digits.
            YieldModel::Murphy if hits < 1e-8 => 1.0,
            YieldModel::Murphy => (-(-hits).exp_m1() / hits).powi(2),
            YieldModel::NegativeBinomial => {
                let alpha = self.clustering.unwrap_or(1.0);
                (1.0 + hits / alpha).powf(-alpha)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::area::tests::technology;
    use super::*;

    /// A die of 100 mm2 on a wafer of 300 mm: 706.86 - 66.64 dies; one defect a cm2 hits each once on average.
    #[test]
    fn dies_and_yields_by_hand() {
        let mut t = technology("");
        let n = t.dies_per_wafer(100.0);
        assert!((n - (706.858_347 - 66.643_244)).abs() < 1e-5, "{n}");
        t.defects = DefectDensity(0.01);
        let e = std::f64::consts::E;
        for (model, expected) in [
            (YieldModel::Poisson, 1.0 / e),
            (YieldModel::Murphy, (1.0 - 1.0 / e).powi(2)),
            (YieldModel::NegativeBinomial, 1.5f64.powi(-2)),
        ] {
            t.yield_model = model;
            t.clustering = Some(2.0);
            let found = t.yield_of(100.0);
            assert!((found - expected).abs() < 1e-12, "{model}: {found}");
            assert_eq!(t.yield_of(0.0), 1.0, "{model}");
        }
    }

    /// Larger dies are fewer and worse, by every model.
    #[test]
    fn larger_dies_cost_more() {
        let mut t = technology("");
        t.clustering = Some(3.0);
        for model in YieldModel::ALL {
            t.yield_model = *model;
            let areas: Vec<f64> = (1..400).map(|i| f64::from(i * i)).collect();
            let cost: Vec<f64> = areas.iter().map(|a| 1.0 / (t.dies_per_wafer(*a) * t.yield_of(*a))).collect();
            assert!(cost.windows(2).all(|w| w[0] < w[1] && w[1].is_finite()), "{model}");
        }
    }
}
