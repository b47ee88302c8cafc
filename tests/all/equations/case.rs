//! A workload and a system as this test states them, and the YAML that says so to the program.

use std::fmt::Write as _;

/// What a kernel computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Weight,
    Pair,
    Elementwise,
    Norm,
    Opaque,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    Forward,
    GradientOfInput,
    GradientOfWeight,
}

/// How a kernel reads a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    Data,
    Rhs,
    RhsT,
    Lhs,
    LhsT,
    Reshaped,
    Aligned,
    Shared,
    View,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collective {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    PointToPoint,
    Broadcast,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    Tensor,
    Data,
    All,
}

#[derive(Debug, Clone)]
pub struct Own {
    pub kind: Collective,
    pub bytes: f64,
    pub scope: Scope,
    pub times: u64,
}

#[derive(Debug, Clone)]
pub struct Kernel {
    pub op: Op,
    pub pass: Pass,
    pub outer: u64,
    pub m: u64,
    pub k: u64,
    pub n: u64,
    pub window: u64,
    pub weight_of: Option<usize>,
    pub lookup: bool,
    pub flop: Option<f64>,
    pub extra_dram: f64,
    pub own: Vec<Own>,
    pub reads: Vec<(usize, Slot)>,
    /// Outer problems that share one stationary operand, and bytes of a cache: not stated in files of graphs.
    pub lhs_shared: u64,
    pub passes: u64,
    pub cache: f64,
}

#[derive(Debug, Clone)]
pub struct Tensor {
    pub rows: u64,
    pub columns: u64,
    pub maker: Option<usize>,
    /// One of the parts of what its maker writes.
    pub part: bool,
    pub output: bool,
    pub carried_from: Option<usize>,
    /// Written over what its maker read: not stated in files of graphs.
    pub in_place: bool,
}

#[derive(Debug, Clone)]
pub struct Graph {
    pub word: u64,
    pub training: bool,
    /// Layers.
    pub repeat: u64,
    pub batch: u64,
    pub micro: u64,
    pub held: f64,
    pub tensors: Vec<Tensor>,
    pub kernels: Vec<Kernel>,
}

#[derive(Debug, Clone)]
pub struct Tile {
    pub rows: u64,
    pub columns: u64,
    pub rate: f64,
    pub splits: u64,
}

#[derive(Debug, Clone)]
pub struct Burst {
    pub efficiency: f64,
    pub batched: f64,
    pub memory: f64,
    pub wait: f64,
    pub at_once: u64,
}

/// The chip's `kernels`.
#[derive(Debug, Clone)]
pub struct Waves {
    pub peaks: Vec<(&'static str, f64)>,
    pub units: u64,
    pub tiles: Vec<Tile>,
    pub efficiency: f64,
    pub by_type: Vec<(&'static str, f64)>,
    pub batched: f64,
    pub fill: f64,
    pub memory: f64,
    pub launch: f64,
    pub burst: Option<Burst>,
}

#[derive(Debug, Clone)]
pub enum Efficiency {
    Share(f64),
    LanesStages,
    Waves(Waves),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    Full,
    ComputeMemory,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    Ring,
    Switch,
    Full,
}

#[derive(Debug, Clone)]
pub struct Dimension {
    pub size: u64,
    pub topology: Topology,
    pub bandwidth: f64,
    pub ring_links: u64,
    pub latency: f64,
    pub efficiency: f64,
    pub power: f64,
    pub idle: f64,
    pub per_byte: Option<f64>,
}

#[derive(Debug, Clone)]
pub struct Machine {
    pub dataflow: bool,
    pub cores: u64,
    pub lanes: u64,
    pub stages: u64,
    pub frequency: f64,
    pub vector_peak: Option<f64>,
    /// Stated peaks of lanes; by waves the kernels have them.
    pub peaks: Vec<(&'static str, f64)>,
    pub sram: f64,
    pub efficiency: Efficiency,
    pub launch: f64,
    pub power: f64,
    pub idle: f64,
    pub per_flop: Option<f64>,
    pub bandwidth: f64,
    pub capacity: Option<f64>,
    pub memory_power: f64,
    pub memory_idle: f64,
    pub memory_per_byte: Option<f64>,
    pub dimensions: Vec<Dimension>,
    pub switch_power: f64,
    pub overlap: Option<Overlap>,
    /// Whether filling is left out.
    pub no_filling: bool,
}

impl Graph {
    /// Tensors that a kernel writes.
    pub fn made_by(&self, kernel: usize) -> impl Iterator<Item = usize> + '_ {
        self.tensors.iter().enumerate().filter(move |(_, t)| t.maker == Some(kernel)).map(|(i, _)| i)
    }

    pub fn yaml(&self) -> String {
        let mut out = String::new();
        let yes = self.training;
        let _ = write!(
            out,
            "kind: graph\nname: random\nsource: 'assumed: a test'\nword: {} B\ntraining: {yes}\nglobal_batch: {}\nmicro_batch: {}\nheld: {} B\nrepeat: {}\n",
            self.word, self.batch, self.micro, self.held, self.repeat
        );
        let _ = writeln!(out, "inputs:");
        for (i, t) in self.tensors.iter().enumerate().filter(|(_, t)| t.maker.is_none()) {
            let carried = t.carried_from.map_or(String::new(), |from| format!(", carried_from: t{from}"));
            let _ = writeln!(out, "  - {{ name: t{i}, rows: {}, cols: {}{carried} }}", t.rows, t.columns);
        }
        let leaving: Vec<String> =
            self.tensors.iter().enumerate().filter(|(_, t)| t.output).map(|(i, _)| format!("t{i}")).collect();
        let _ = writeln!(out, "outputs: [{}]\nkernels:", leaving.join(", "));
        for (i, kernel) in self.kernels.iter().enumerate() {
            let _ = writeln!(out, "  - {{ name: k{i}{} }}", self.kernel(i, kernel));
        }
        out
    }

    fn kernel(&self, i: usize, kernel: &Kernel) -> String {
        let op = match kernel.op {
            Op::Weight => "gemm_weight",
            Op::Pair => "gemm",
            Op::Elementwise => "elementwise",
            Op::Norm => "norm",
            Op::Opaque => "opaque",
        };
        let mut out = format!(", op: {op}, outer: {}, m: {}, n: {}", kernel.outer, kernel.m, kernel.n);
        if matches!(kernel.op, Op::Weight | Op::Pair) {
            let _ = write!(out, ", k: {}, window: {}", kernel.k, kernel.window);
        }
        match kernel.pass {
            Pass::Forward => {}
            Pass::GradientOfInput => out.push_str(", phase: backward_input"),
            Pass::GradientOfWeight => out.push_str(", phase: backward_weight"),
        }
        if let Some(owner) = kernel.weight_of {
            let _ = write!(out, ", weight_of: k{owner}");
        }
        if kernel.lookup {
            out.push_str(", lookup: true");
        }
        if let Some(flop) = kernel.flop {
            let _ = write!(out, ", flop: {flop} FLOP");
        }
        if kernel.extra_dram > 0.0 {
            let _ = write!(out, ", extra_dram: {} B", kernel.extra_dram);
        }
        let of = |slots: &[Slot]| -> Vec<String> {
            kernel.reads.iter().filter(|(_, s)| slots.contains(s)).map(|(t, _)| format!("t{t}")).collect()
        };
        // Slots that no file states are written as views, and put right by the test.
        let mut views = vec![Slot::View, Slot::Reshaped, Slot::Shared];
        let mut operands = vec![
            (Slot::Rhs, "rhs"),
            (Slot::RhsT, "rhs_transposed: true, rhs"),
            (Slot::Lhs, "lhs"),
            (Slot::LhsT, "lhs_transposed: true, lhs"),
        ];
        if kernel.lhs_shared > 1 {
            views.extend([Slot::Lhs, Slot::LhsT]);
            operands.truncate(2);
        }
        for (field, slots) in [("inputs", vec![Slot::Data]), ("views", views), ("aligned", vec![Slot::Aligned])] {
            if !of(&slots).is_empty() {
                let _ = write!(out, ", {field}: [{}]", of(&slots).join(", "));
            }
        }
        for (slot, field) in operands {
            for tensor in of(&[slot]) {
                let _ = write!(out, ", {field}: {tensor}");
            }
        }
        let mut parts = Vec::new();
        for t in self.made_by(i) {
            let tensor = &self.tensors[t];
            if tensor.part {
                parts.push(format!("{{ name: t{t}, rows: {}, cols: {} }}", tensor.rows, tensor.columns));
            } else {
                let _ = write!(out, ", output: t{t}");
            }
        }
        if !parts.is_empty() {
            let _ = write!(out, ", parts: [{}]", parts.join(", "));
        }
        if !kernel.own.is_empty() {
            let each: Vec<String> = kernel.own.iter().map(Own::yaml).collect();
            let _ = write!(out, ", collectives: [{}]", each.join(", "));
        }
        out
    }
}

impl Own {
    fn yaml(&self) -> String {
        let kind = match self.kind {
            Collective::AllReduce => "all_reduce",
            Collective::AllGather => "all_gather",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::AllToAll => "all_to_all",
            Collective::PointToPoint => "point_to_point",
            Collective::Broadcast => "broadcast",
        };
        let scope = match self.scope {
            Scope::Tensor => "tensor",
            Scope::Data => "data",
            Scope::All => "all",
        };
        format!("{{ kind: {kind}, size: {} B, scope: {scope}, times: {} }}", self.bytes, self.times)
    }
}

impl Machine {
    pub fn chips(&self) -> u64 {
        self.dimensions.iter().map(|d| d.size).product()
    }

    pub fn yaml(&self) -> String {
        let source = "source: 'assumed: a test'";
        let style = if self.dataflow { "dataflow" } else { "kernel_by_kernel" };
        // Kernels say how fast they are and what a launch takes.
        let stated = |efficiency: &str| format!(", efficiency: {efficiency}, launch_overhead: {} s", self.launch);
        let computes = match &self.efficiency {
            Efficiency::Share(u) => stated(&u.to_string()),
            Efficiency::LanesStages => stated("lanes_stages"),
            Efficiency::Waves(_) => String::new(),
        };
        let mut chip = format!(
            "name: c, {source}, style: {style}, cores: {}, lanes: {}, stages: {}, frequency: {} Hz, sram: {} B{computes}, \
             price: $1000, power: {} W, idle_share: {}",
            self.cores, self.lanes, self.stages, self.frequency, self.sram, self.power, self.idle
        );
        if let Some(peak) = self.vector_peak {
            let _ = write!(chip, ", vector_peak: {peak} FLOP/s");
        }
        if let Some(joules) = self.per_flop {
            let _ = write!(chip, ", energy_per_flop: {} pJ/FLOP", joules * 1e12);
        }
        if let Efficiency::Waves(waves) = &self.efficiency {
            let _ = write!(chip, ", kernels: {}", waves.yaml());
        } else if !self.peaks.is_empty() {
            let _ = write!(
                chip,
                ", kernels: {{ {source}, peak: {}, units: 1, tiles: [{{ rows: 1, columns: 1 }}], efficiency: 1, batched_efficiency: 1, \
                 memory_efficiency: 0.8, launch: 0 s }}",
                table(&self.peaks, " FLOP/s")
            );
        }
        let per_byte = |j: Option<f64>| j.map_or(String::new(), |j| format!(", energy_per_byte: {} pJ/B", j * 1e12));
        let capacity = self.capacity.map_or(String::new(), |c| format!(", capacity: {c} B"));
        let memory = format!(
            "name: m, {source}, bandwidth: {} B/s{capacity}, price: $1/(GB/s), power: {} W/(GB/s), idle_share: {}{}",
            self.bandwidth,
            self.memory_power,
            self.memory_idle,
            per_byte(self.memory_per_byte)
        );
        let mut dimensions = Vec::new();
        for d in &self.dimensions {
            let topology = match d.topology {
                Topology::Ring => "ring",
                Topology::Switch => "switch",
                Topology::Full => "fully_connected",
            };
            dimensions.push(format!(
                "    - {{ size: {}, topology: {topology}, efficiency: {}, link: {{ name: l, {source}, bandwidth: {} B/s, ring_links: {}, latency: {} s, \
                 price: $1/(GB/s), power: {} W/(GB/s), idle_share: {}{} }} }}\n",
                d.size,
                d.efficiency,
                d.bandwidth,
                d.ring_links,
                d.latency,
                d.power,
                d.idle,
                per_byte(d.per_byte)
            ));
        }
        let overlap = match self.overlap {
            Some(Overlap::Full) => "overlap: full\n",
            Some(Overlap::ComputeMemory) => "overlap: compute_memory\n",
            Some(Overlap::None) => "overlap: none\n",
            None => "",
        };
        let model = if self.no_filling { "model: { pipeline_filling: ignored }\n" } else { "" };
        format!(
            "name: s\n{source}\n{model}chip: {{ {chip} }}\nmemory: {{ {memory} }}\n{overlap}network:\n  topology: custom\n  switch: {{ name: x, \
             {source}, price: $1/(GB/s), power: {} W/(GB/s) }}\n  dimensions:\n{}",
            self.switch_power,
            dimensions.concat()
        )
    }
}

/// Figures by name.
fn table(pairs: &[(&str, f64)], unit: &str) -> String {
    let each: Vec<String> = pairs.iter().map(|(name, v)| format!("{name}: {v}{unit}")).collect();
    format!("{{ {} }}", each.join(", "))
}

impl Waves {
    fn yaml(&self) -> String {
        let tiles: Vec<String> = self
            .tiles
            .iter()
            .map(|t| format!("{{ rows: {}, columns: {}, rate: {}, splits: {} }}", t.rows, t.columns, t.rate, t.splits))
            .collect();
        let burst = self.burst.as_ref().map_or(String::new(), |b| {
            format!(
                ", burst: {{ efficiency: {}, batched_efficiency: {}, memory_efficiency: {}, wait: {} s, tiles_at_once: {} }}",
                b.efficiency, b.batched, b.memory, b.wait, b.at_once
            )
        });
        let types = if self.by_type.is_empty() {
            String::new()
        } else {
            format!(", type_efficiency: {}", table(&self.by_type, ""))
        };
        format!(
            "{{ source: 'assumed: a test', peak: {}, units: {}, tiles: [{}], efficiency: {}{types}, batched_efficiency: {}, fill: {} s, \
             memory_efficiency: {}, launch: {} s{burst} }}",
            table(&self.peaks, " FLOP/s"),
            self.units,
            tiles.join(", "),
            self.efficiency,
            self.batched,
            self.fill,
            self.memory,
            self.launch
        )
    }
}
