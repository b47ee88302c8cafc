//! Chips.

use super::area::{self, AreaSpec};
use super::kernels::Kernels;
use super::source::{Source, check_sources};
use super::stack::Stack;
use crate::spec::{
    FromNode, Node, Reader, Value,
    read::{Fraction, Ref, Share},
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
        json!({ "anyOf": [Fraction::schema(definitions), { "const": "lanes_stages" }] })
    }
    fn expected() -> String {
        "a fraction of the peak such as 0.9, or lanes_stages".into()
    }
}

crate::spec! {
    /// A chip: cores of `lanes` x `stages` multiply-accumulate units, and its on-chip memory. Of a chip that runs kernel by kernel its datasheet is
    /// enough: with peaks and units in the section `kernels`, cores, lanes, stages, clock and the way to compute may be left out.
    pub struct Chip ("a chip", complete: complete, check: check) {
        /// Name for rows and titles.
        name: String,
        /// Where each number comes from.
        source: Source,
        /// Execution style.
        style: Style,
        /// Cores (tensor-core slices, pattern compute units, matrix units). Left out: the `units` of `kernels`.
        cores: u64 => 0,
        /// Lanes (systolic width) of a core. Left out beside `kernels`: 16.
        lanes: u64 => 0,
        /// Stages (systolic height) of a core. Left out beside `kernels`: 16.
        stages: u64 => 0,
        /// Clock. Left out: that at which the arrays of all cores reach the peak of 16-bit types of `kernels`.
        frequency: Frequency => Frequency(0.0),
        /// Peak rate of vector work (elementwise, norms) where it differs from the matrix rate
        /// 2 x cores x lanes x stages x frequency.
        vector_peak: Option<FlopRate>,
        /// On-chip memory that software can fill.
        sram: Bytes,
        /// Share of the peak that a kernel reaches: a constant; or `lanes_stages`, by whole lanes and stages. Not of a chip that runs kernel by
        /// kernel and has `kernels`: these say it (tiles in waves over its units, shares of peak and bandwidth).
        efficiency: Efficiency => Efficiency::Waves,
        /// Time from one kernel (kernel by kernel) or partition (dataflow) to the next. Not beside such `kernels`, whose `launch` it is.
        launch_overhead: Seconds = Seconds(0.0),
        /// How single kernels behave. On a chip that runs kernel by kernel they are all there is to know of its speed, for graphs and language models alike;
        /// of a dataflow chip they are what its software reaches (`--software stack`), and their `peak` tells at what part of the lanes' rate, which is that of words of
        /// 16 bits, other words are computed (words of 32 and 64 bits only where a peak is stated).
        kernels: Option<Kernels>,
        /// What current software of this chip does (`software: generic` of a system, and of one that names no stack); left out: what that of chips of its style
        /// in general does.
        generic: Option<Ref<Stack>>,
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

impl Chip {
    /// What current software of it does.
    pub fn generic(&self) -> &Ref<Stack> {
        self.generic.as_ref().unwrap_or(Stack::generic(self.style))
    }

    /// What serves on it where nothing else is named: that of its style in general where its own says nothing of serving; `None` where neither does.
    pub fn serving(&self) -> Option<&Stack> {
        [self.generic(), Stack::generic(self.style)]
            .into_iter()
            .map(|stack| &stack.0)
            .find(|stack| stack.serving.is_some())
    }

    /// The kernels by which it computes graphs and language models alike, in waves of tiles: those that it states, if it runs kernel by kernel.
    pub fn waves(&self) -> Option<&Kernels> {
        self.kernels.as_ref().filter(|_| self.style == Style::KernelByKernel)
    }

    /// Whether the kernels of a partition are a pipeline of tiles, which fills and drains. Chips that compute by waves have none.
    pub fn pipelines_tiles(&self) -> bool {
        self.style == Style::Dataflow
    }
}

/// Edge of the arrays that a datasheet's peak is written as where it states none: only their product with the clock counts.
const EDGE: u64 = 16;

/// What a datasheet leaves out of a chip that runs kernel by kernel.
fn complete(chip: &mut Chip) {
    let Some(kernels) = chip.kernels.as_ref().filter(|_| chip.style == Style::KernelByKernel) else { return };
    let or = |stated: u64, derived: u64| if stated == 0 { derived } else { stated };
    chip.cores = or(chip.cores, kernels.units);
    (chip.lanes, chip.stages) = (or(chip.lanes, EDGE), or(chip.stages, EDGE));
    if chip.frequency.0 == 0.0 {
        let of_words = ["fp16", "bf16"].iter().filter_map(|word| kernels.peak_of(word)).reduce(f64::max);
        let peak = of_words.or(kernels.peak.0.iter().map(|(_, rate)| rate.0).reduce(f64::max)).unwrap_or(0.0);
        chip.frequency = Frequency(peak / (2.0 * chip.cores as f64 * chip.lanes as f64 * chip.stages as f64));
    }
}

fn check(chip: &Chip, node: &Node, reader: &mut Reader) {
    let derived = chip.waves().is_some();
    let expected = [
        ("cores", u64::expected()),
        ("lanes", u64::expected()),
        ("stages", u64::expected()),
        ("frequency", Frequency::expected()),
        ("efficiency", Efficiency::expected()),
    ];
    let lacking: Vec<_> = expected.into_iter().filter(|(field, _)| !derived && node.get(field).is_none()).collect();
    if !lacking.is_empty() {
        for (field, expected) in lacking {
            reader.within(field, |r| r.problem(node, format!("missing; expected {expected}")));
        }
        return;
    }
    let mut twice = false;
    if derived {
        for (field, instead) in [
            (
                "efficiency",
                "`kernels.efficiency` and its like say it; a constant share of the peak is of a chip without `kernels` (`h100-dfmodel`)",
            ),
            ("launch_overhead", "`kernels.launch` says it"),
        ] {
            if let Some(at) = node.get(field) {
                twice = true;
                let message = format!("not beside `kernels` of a chip that runs kernel by kernel: {instead}");
                reader.within(field, |r| r.problem(at, message));
            }
        }
    }
    if twice {
        return;
    }
    check_sources(&chip.source, &NUMBERS, node, reader);
    area::check_chip(chip, node, reader);
    let mut positive = |field: &str, value: f64| {
        if value <= 0.0 {
            let at = node.get(field).unwrap_or(node);
            reader.within(field, |r| r.problem(at, format!("expected more than zero, found {}", at.describe())));
        }
    };
    // What is left out was derived; a clock that is stated has to be one.
    let stated = node.get("frequency").and_then(|at| Reader::read::<Frequency>(at).ok());
    // Below one hertz or byte the coefficients of the MILP leave the range of floating point.
    positive("frequency", stated.unwrap_or(chip.frequency).0.floor());
    positive("sram", chip.sram.0.floor());
    positive("vector_peak", chip.vector_peak.map_or(1.0, |v| v.0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Problems;

    fn chip(text: &str) -> Result<Chip, Problems> {
        Reader::read(&Node::parse("chip.yaml", text).unwrap())
    }

    /// 4 units at 16 x 16 of 2 FLOP a cycle are 2,048 FLOP a cycle: 2.048 TFLOP/s at 1 GHz.
    #[test]
    fn a_datasheet_is_a_chip() {
        let text = "name: D\nstyle: kernel_by_kernel\nsram: 1 MiB\nprice: $1\npower: 1 W\nsource: \"datasheet: D\"\n\
                    kernels: { peak: { bf16: 2.048 TFLOP/s, fp8: 4.096 TFLOP/s }, units: 4, source: \"datasheet: D\" }\n";
        let derived = chip(text).unwrap();
        assert_eq!((derived.cores, derived.lanes, derived.stages), (4, 16, 16));
        assert_eq!((derived.frequency.0, derived.efficiency), (1e9, Efficiency::Waves));
        let stated = chip(&format!("{text}lanes: 32\n")).unwrap();
        assert_eq!((stated.lanes, stated.stages, stated.frequency.0), (32, 16, 0.5e9));
        // What the kernels say is not said twice.
        let twice = chip(&format!("{text}efficiency: 0.5\nlaunch_overhead: 5 us\n")).unwrap_err().to_string();
        assert!(twice.contains("efficiency: not beside") && twice.contains("launch_overhead: not beside"), "{twice}");
        // A dataflow chip, and one without kernels, state all of it.
        let dataflow = chip(&text.replace("kernel_by_kernel", "dataflow")).unwrap_err().to_string();
        let bare = chip(text.split("kernels").next().unwrap()).unwrap_err().to_string();
        for field in ["cores", "lanes", "stages", "frequency", "efficiency"] {
            assert!(dataflow.contains(&format!("{field}: missing")), "{dataflow}");
        }
        assert!(bare.contains("missing") && !bare.contains("more than zero"), "{bare}");
    }
}
