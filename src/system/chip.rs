//! Chips.

use super::area::{self, AreaSpec};
use super::kernels::Kernels;
use super::source::{Source, check_sources};
use crate::spec::{
    FromNode, Node, Reader, Value,
    read::{Fraction, Share},
    schema::Definitions,
};
use crate::units::{Bytes, EnergyPerFlop, FlopRate, Frequency, Power, Price, Seconds};
use serde::Serialize;
use serde_json::json;

crate::choice! {
    /// How a chip executes a graph.
    pub enum Style ("an execution style") {
        /// Several kernels share the chip in space and pass tiles to each other; partitions run one after another.
        Dataflow = "dataflow",
        /// One kernel at a time.
        KernelByKernel = "kernel_by_kernel",
    }
}

/// How much of the peak a kernel reaches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Efficiency {
    /// A constant fraction of the peak.
    Constant(Fraction),
    /// From the quantisation of the kernel to whole lanes and stages of whole cores, with the best integer split of
    /// the cores among the kernels of a partition.
    LanesStages,
    /// From the chip's `kernels`: tiles in waves over its units.
    Waves,
}

impl FromNode for Efficiency {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.value {
            Value::Scalar { text, .. } if text == "lanes_stages" => Some(Self::LanesStages),
            Value::Scalar { text, .. } if text == "waves" => Some(Self::Waves),
            Value::Scalar { text, .. } if text.parse::<f64>().is_ok() => {
                Fraction::from_node(node, reader).map(Self::Constant)
            }
            _ => {
                reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
                None
            }
        }
    }
    fn schema(definitions: &mut Definitions) -> serde_json::Value {
        json!({ "anyOf": [Fraction::schema(definitions), { "const": "lanes_stages" }, { "const": "waves" }] })
    }
    fn expected() -> String {
        "a fraction of the peak such as 0.9, lanes_stages, or waves".into()
    }
}

crate::spec! {
    /// A chip: cores of `lanes` x `stages` multiply-accumulate units, and its on-chip memory.
    pub struct Chip ("a chip", check: check) {
        /// Name for rows and titles.
        name: String,
        /// Where each number comes from.
        source: Source,
        /// Execution style.
        style: Style,
        /// Cores (tensor-core slices, pattern compute units, matrix units).
        cores: u64,
        /// Lanes (systolic width) of a core.
        lanes: u64,
        /// Stages (systolic height) of a core.
        stages: u64,
        /// Clock.
        frequency: Frequency,
        /// Peak rate of vector work (elementwise, norms) where it differs from the matrix rate
        /// 2 x cores x lanes x stages x frequency.
        vector_peak: Option<FlopRate>,
        /// On-chip memory that software can fill.
        sram: Bytes,
        /// Share of the peak that a kernel reaches: a constant; `lanes_stages`, by whole lanes and stages; or `waves`, as the chip's
        /// `kernels` compute on a GPU or TPU (tiles, waves, share of the memory's bandwidth, launch).
        efficiency: Efficiency,
        /// Time from one kernel (kernel by kernel) or partition (dataflow) to the next.
        launch_overhead: Seconds = Seconds(0.0),
        /// How single kernels behave: for executions of language models, and for graphs where `efficiency` is `waves`.
        kernels: Option<Kernels>,
        /// What its area, power and price are summed from; then `price`, `power` and `idle_share` are left out.
        area: Option<AreaSpec>,
        /// Price of one chip; needed unless it is summed from `area`.
        price: Price = Price(0.0),
        /// Power of one chip at work; needed unless it is summed from `area`.
        power: Power = Power(0.0),
        /// Share of the power that it draws whether it computes or waits.
        idle_share: Share = Share(0.2),
        /// Energy of one FLOP beyond that; where it is left out, the rest of the power while it computes.
        energy_per_flop: Option<EnergyPerFlop>,
    }
}

/// The fields of a chip that are hardware numbers.
const NUMBERS: [&str; 12] = [
    "cores",
    "lanes",
    "stages",
    "frequency",
    "vector_peak",
    "sram",
    "efficiency",
    "launch_overhead",
    "price",
    "power",
    "idle_share",
    "energy_per_flop",
];

fn check(chip: &Chip, node: &Node, reader: &mut Reader) {
    check_sources(&chip.source, &NUMBERS, node, reader);
    area::check_chip(chip, node, reader);
    let mut positive = |field: &str, value: f64| {
        if value <= 0.0 {
            let at = node.get(field).unwrap_or(node);
            reader.within(field, |r| r.problem(at, format!("expected more than zero, found {}", at.describe())));
        }
    };
    // Below one hertz or byte the coefficients of the MILP leave the range of floating point.
    positive("frequency", chip.frequency.0.floor());
    positive("sram", chip.sram.0.floor());
    positive("vector_peak", chip.vector_peak.map_or(1.0, |v| v.0));
    if chip.efficiency == Efficiency::Waves {
        let at = node.get("efficiency").unwrap_or(node);
        let mut lacks = |what: &str| reader.within("efficiency", |r| r.problem(at, format!("waves {what}")));
        if chip.kernels.is_none() {
            lacks("needs the section `kernels` (peaks, units, tiles, shares; systems/chips/a100.yaml has one)");
        }
        if chip.style == Style::Dataflow {
            lacks(
                "is how a chip of style kernel_by_kernel computes; a dataflow chip takes a fraction of the peak, or lanes_stages",
            );
        }
    }
}
