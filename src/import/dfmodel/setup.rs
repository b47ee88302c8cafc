//! What a file of any generation says, without the schema's differences: graph, system, prices and settings. Everything
//! that would not make sense is a fault here, with its place.

use super::schema::Generation;
use super::tree::{Fault, Message, Place};
use super::typed::join;
use crate::model::Strategy;
use crate::system::network::Arrangement;
use crate::system::options::Overlap;

/// What a kernel computes, as DFModel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A product with a weight.
    Weight,
    /// A product of two tensors.
    TwoTensors,
    /// Elementwise.
    Elementwise,
}

/// DFModel's words for communication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comm {
    /// All-reduce.
    AllReduce,
    /// All-to-all.
    AllToAll,
    /// All-gather.
    AllGather,
    /// All-reduce of a gradient, once an iteration.
    Gradient,
    /// One rank to another.
    PointToPoint,
    /// One rank to all.
    Broadcast,
}

/// A kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// Where it stood.
    pub place: Place,
    /// Unique name.
    pub name: String,
    /// What it computes.
    pub form: Form,
    /// Problems side by side.
    pub outer: u64,
    /// Rows.
    pub m: u64,
    /// Contracted size, 1 where there is none.
    pub k: u64,
    /// Columns.
    pub n: u64,
    /// Whether it runs on the matrix units without contracting anything: two FLOP an element.
    pub systolic: bool,
    /// Whether it has no sizes: it computes nothing, and at most communicates.
    pub empty: bool,
    /// Whether it belongs to the backward pass.
    pub backward: bool,
    /// Partition.
    pub config: i64,
    /// Whether the file says so; else it is the field's default.
    pub config_stated: bool,
    /// Strategy, where a sharding pass has run.
    pub sharding: Option<Strategy>,
    /// Whether tiles are cut from `k`.
    pub tiled_k: bool,
    /// Whether tiles are cut from `n`.
    pub tiled_n: bool,
    /// Columns of a tile, where the fusion pass has run.
    pub shard_n: Option<u64>,
    /// Contracted size of a shard and tile, likewise.
    pub shard_k: Option<u64>,
    /// Bytes of the output, where the file says.
    pub output_bytes: Option<f64>,
    /// Bytes of the weight, where the file says.
    pub weight_bytes: Option<f64>,
    /// What it communicates by itself.
    pub comms: Vec<(Comm, f64)>,
    /// DRAM bytes beyond tensors and weight.
    pub memory_bytes: f64,
}

/// An edge between kernels, by index.
#[derive(Debug, Clone, PartialEq)]
pub struct Edge {
    /// Where it stood.
    pub place: Place,
    /// Index of the producer.
    pub from: usize,
    /// Index of the consumer.
    pub to: usize,
}

/// One dimension of the network; the innermost first.
#[derive(Debug, Clone, PartialEq)]
pub struct Dim {
    /// Its letter.
    pub letter: char,
    /// Chips along it; none where the solver was to choose.
    pub size: Option<u64>,
    /// GB/s.
    pub bandwidth: f32,
    /// W/(GB/s), where given.
    pub power: Option<f32>,
    /// The parallelism it serves, where given.
    pub par: Option<String>,
}

/// The system with its prices.
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    /// Where it says how many chips it has.
    pub place: Place,
    /// Where its topology stood.
    pub network_place: Place,
    /// Chips.
    pub chips: u64,
    /// Names of the system and of the chip.
    pub names: (Option<String>, Option<String>),
    /// Cores, lanes, stages.
    pub cores: [u64; 3],
    /// Bytes of on-chip memory.
    pub sram: f32,
    /// GHz.
    pub frequency: f32,
    /// ns a hop.
    pub latency: Option<f32>,
    /// GB/s.
    pub dram_bandwidth: f32,
    /// Bytes; none without limit.
    pub dram_capacity: Option<f32>,
    /// Its arrangement.
    pub arrangement: Arrangement,
    /// Its dimensions.
    pub dims: Vec<Dim>,
    /// Chips of a high-bandwidth domain.
    pub domain: Option<u64>,
    /// Prices: link, switch, DRAM by GB/s; a chip.
    pub prices: [Option<f32>; 4],
    /// Powers: switch, DRAM by GB/s; a chip.
    pub powers: [Option<f32>; 3],
}

/// The sizes of a transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Llm {
    /// Hidden size.
    pub hidden: u64,
    /// Size of a head.
    pub head_dim: u64,
    /// Heads.
    pub heads: u64,
    /// Tokens.
    pub seq: u64,
    /// Layers.
    pub layers: u64,
    /// Layers that the graph holds.
    pub layers_in_graph: u64,
    /// Columns of a tile, and where it says so; none where the solver was to choose.
    pub tile: Option<(u64, Place)>,
}

/// Which kind of workload the settings name.
#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    /// A transformer.
    Llm(Llm),
    /// Another, by DFModel's word for it, with its numbers in file order.
    Other(String, Vec<(String, u64)>),
    /// None.
    Unnamed,
}

/// The settings of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Kind of workload.
    pub workload: Workload,
    /// Samples of an iteration.
    pub global_batch: Option<u64>,
    /// Samples of a microbatch, and where it says so.
    pub micro_batch: Option<(u64, Place)>,
    /// Whether several kernels share the chip.
    pub dataflow: Option<bool>,
    /// Most partitions.
    pub partitions: Option<u64>,
    /// What overlaps.
    pub overlap: Option<Overlap>,
    /// Share of the peak; none: lanes and stages.
    pub utilization: Option<f32>,
    /// Bytes of an element.
    pub word: Option<u64>,
    /// Whether an all-reduce is a reduce-scatter and an all-gather: twice one of them.
    pub two_passes: bool,
    /// Whether weights take no time and no space on chip.
    pub without_weights: bool,
}

/// A whole file.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Its generation.
    pub generation: Generation,
    /// Kernels in file order.
    pub kernels: Vec<Kernel>,
    /// Edges in file order.
    pub edges: Vec<Edge>,
    /// The system.
    pub system: System,
    /// The settings.
    pub settings: Settings,
}

/// Largest size along one axis, as `kind: graph` allows.
pub(super) const MAX_SIZE: i64 = 1 << 31;

/// Reads a tree.
///
/// # Errors
/// All faults.
pub fn read(generation: Generation, root: &Message) -> Result<Setup, Vec<Fault>> {
    let mut reader = Reader { faults: Vec::new() };
    let (kernels, edges) = reader.graph(root);
    let system = reader.system(root);
    let settings = reader.settings(generation, root);
    match (system, settings) {
        (Some(system), Some(settings)) if reader.faults.is_empty() => {
            Ok(Setup { generation, kernels, edges, system, settings })
        }
        _ => {
            if reader.faults.is_empty() {
                reader.faults.push(Fault::whole("cannot be read"));
            }
            reader.faults.sort_by_key(|f| f.place);
            Err(reader.faults)
        }
    }
}

/// The state of a reading.
pub(super) struct Reader {
    pub(super) faults: Vec<Fault>,
}

impl Reader {
    pub(super) fn say(&mut self, place: Place, field: impl Into<String>, message: impl Into<String>) {
        self.faults.push(Fault::at(place, field, message));
    }

    /// A whole number of 1 to `most`; zero counts as not there.
    pub(super) fn count(&mut self, of: &Message, name: &str, path: &str, most: i64) -> Option<u64> {
        let (n, place) = of.int(name)?;
        if (1..=most).contains(&n) {
            return u64::try_from(n).ok();
        }
        self.say(place, join(path, name), format!("expected a whole number of 1 to {most}, found {n}"));
        None
    }

    /// Bytes of a tensor: -1 is how the oldest notation writes that there is none.
    pub(super) fn bytes(&mut self, of: &Message, name: &str, path: &str) -> Option<f64> {
        match of.float(name) {
            Some((x, _)) if x == -1.0 && of.desc.name().starts_with("Batch_") => None,
            _ => self.positive(of, name, path).map(f64::from),
        }
    }

    /// Likewise, but it must be there.
    pub(super) fn needed(&mut self, of: &Message, name: &str, path: &str, place: Place, most: i64) -> u64 {
        let faults = self.faults.len();
        let found = self.count(of, name, path, most);
        if found.is_none() && faults == self.faults.len() {
            let place = of.get(name).map_or(place, |f| f.place);
            self.say(place, join(path, name), "missing or zero; expected at least 1");
        }
        found.unwrap_or(1)
    }

    /// A number above zero; zero counts as not there.
    pub(super) fn positive(&mut self, of: &Message, name: &str, path: &str) -> Option<f32> {
        let (x, place) = of.float(name)?;
        if x > 0.0 {
            return Some(x);
        }
        self.say(place, join(path, name), format!("expected more than zero, found {x}"));
        None
    }

    pub(super) fn needed_number(&mut self, of: &Message, name: &str, path: &str, place: Place) -> f32 {
        let faults = self.faults.len();
        let found = self.positive(of, name, path);
        if found.is_none() && faults == self.faults.len() {
            let place = of.get(name).map_or(place, |f| f.place);
            self.say(place, join(path, name), "missing or zero; expected more than zero");
        }
        found.unwrap_or(1.0)
    }

    // --- system --------------------------------------------------------------------------------------------------------

    fn system(&mut self, root: &Message) -> Option<System> {
        let Some((system, place)) = root.message("system") else {
            self.faults.push(Fault::whole("system is missing"));
            return None;
        };
        let Some((chip, chip_place)) = system.message("accelerator") else {
            self.say(place, "system.accelerator", "missing");
            return None;
        };
        let at = "system.accelerator";
        let limit = 1 << 32;
        let chips = self.needed(system, "num_chip", "system", place, limit);
        let cores = [
            self.needed(chip, "core", at, chip_place, limit),
            self.needed(chip, "systolic_width", at, chip_place, 1 << 20),
            self.needed(chip, "systolic_height", at, chip_place, 1 << 20),
        ];
        let sram = self.needed_number(chip, "sram_cap", at, chip_place);
        let frequency = self.needed_number(chip, "freq", at, chip_place);
        // The first generations keep the memory with the chip.
        let (memory, memory_path, memory_place) = match system.message("memory") {
            Some((memory, place)) => (memory, "system.memory", place),
            None => (chip, at, chip_place),
        };
        let dram_bandwidth = self.needed_number(memory, "dram_bw", memory_path, memory_place);
        let dram_capacity = self.positive(memory, "dram_cap", memory_path);
        let cost = root.message("cost").map(|(c, _)| c);
        let mut price = |name: &str| cost.and_then(|c| self.positive(c, name, "cost"));
        let prices = [
            price("link_unit_price"),
            price("switch_unit_price"),
            price("dram_unit_price"),
            price("accelerator_price"),
        ];
        let powers = [price("switch_unit_power"), price("dram_unit_power"), price("accelerator_power")];
        let (arrangement, dims, network_place) = self.network(system, place, cost)?;
        let system = System {
            place: system.get("num_chip").map_or(place, |f| f.place),
            network_place,
            chips,
            names: (system.text("name").map(|(n, _)| n.to_string()), chip.text("name").map(|(n, _)| n.to_string())),
            cores,
            sram,
            frequency,
            latency: self.positive(chip, "link_latency", at),
            dram_bandwidth,
            dram_capacity,
            arrangement,
            dims,
            domain: self.count(system, "HBD", "system", limit),
            prices,
            powers,
        };
        Some(system)
    }

    fn network(
        &mut self,
        system: &Message,
        place: Place,
        cost: Option<&Message>,
    ) -> Option<(Arrangement, Vec<Dim>, Place)> {
        let (word, message, at) = match (system.one_of("topology_variant"), system.word("topo")) {
            (Some((word, message, at)), _) => (word.to_string(), message, at),
            (None, Some((word, at))) => (word, system, at),
            (None, None) => {
                self.say(
                    place,
                    "system",
                    "no topology: one of r, sw, fc, r_r, r_fc, r_sw, sw_sw, fc_fc, r_r_r, ... is due",
                );
                return None;
            }
        };
        let (arrangement, letters): (Arrangement, &str) = match word.as_str() {
            "single_chip" | "SINGLE_CHIP" => (Arrangement::SingleChip, ""),
            "r" | "ring_1d" => (Arrangement::Ring, "x"),
            "sw" => (Arrangement::Switch, "x"),
            "fc" | "fc_1d" => (Arrangement::FullyConnected, "x"),
            "r_r" | "torus_2d" | "TORUS_2D" => (Arrangement::Torus2d, "xy"),
            "r_fc" => (Arrangement::ZionEx, "xy"),
            "r_sw" | "dgx_1_2d" | "DGX_1" => (Arrangement::Dgx1, "xy"),
            "sw_sw" | "dgx_2_2d" | "DGX_2" => (Arrangement::Dgx2, "xy"),
            "fc_fc" | "dragonfly_2d" | "DRAGONFLY" => (Arrangement::Dragonfly, "xy"),
            "r_r_r" | "torus_3d" | "TORUS_3D" => (Arrangement::Torus3d, "xyz"),
            "r_sw_sw" => (Arrangement::Dgx1TwoLevel, "xyz"),
            "sw_sw_sw" => (Arrangement::SwitchThreeLevel, "xyz"),
            "r_r_r_r" => (Arrangement::Custom, "wxyz"),
            other => {
                self.say(at, "system", format!("topology {other:?} is not known here"));
                return None;
            }
        };
        let path = format!("system.{word}");
        let dims = letters
            .chars()
            .map(|letter| Dim {
                letter,
                size: self.count(message, &letter.to_string(), &path, 1 << 32),
                bandwidth: self.needed_number(message, &format!("link_bw_{letter}"), &path, at),
                power: cost.and_then(|c| self.positive(c, &format!("link_unit_power_{letter}"), "cost")),
                par: message.text(&format!("par_{letter}")).map(|(p, _)| p.to_string()),
            })
            .collect();
        Some((arrangement, dims, at))
    }

    // --- settings ------------------------------------------------------------------------------------------------------

    fn settings(&mut self, generation: Generation, root: &Message) -> Option<Settings> {
        let block = generation.settings();
        let Some((message, place)) = root.message(block) else {
            self.faults.push(Fault::whole(format!(
                "{block} is missing (of this generation, {generation}; others call it training, miscellany or execution)"
            )));
            return None;
        };
        let variant = message.one_of("workload_variant");
        let limit = 1 << 40;
        let flat = matches!(generation, Generation::Batch | Generation::Torus | Generation::Flat);
        let inner = variant.map_or(message, |(_, inner, _)| inner);
        let workload = match variant {
            Some(("llm", llm, at)) => Workload::Llm(self.llm(llm, &join(block, "llm"), at)),
            // The first settings of all are a transformer's.
            None if flat && message.fields.iter().any(|f| f.name() == "hidden_dim" && f.is_set()) => {
                Workload::Llm(self.llm(message, block, place))
            }
            Some((word, other, _)) if word != "other" => {
                let path = join(block, word);
                let batches = ["global_batch_size", "num_copy"];
                let numbers = other
                    .fields
                    .iter()
                    .filter(|f| !batches.contains(&f.name()))
                    .filter_map(|f| Some((f.name().to_string(), self.count(other, f.name(), &path, 1 << 62)?)))
                    .collect();
                Workload::Other(word.to_string(), numbers)
            }
            _ => Workload::Unnamed,
        };
        let mut batch = |name: &str| {
            let found = self.count(message, name, block, limit);
            found.or_else(|| variant.and_then(|(word, _, _)| self.count(inner, name, &join(block, word), limit)))
        };
        let (global_batch, micro_batch) = (batch("global_batch_size"), batch("micro_batch_size"));
        let micro_place = message.get("micro_batch_size").or_else(|| inner.get("micro_batch_size")).map(|f| f.place);
        let style = message.word("execution_style").or_else(|| message.word("optimization")).map(|(w, _)| w);
        let overlap = match message.word("overlap") {
            Some((word, _)) => Some(match word.as_str() {
                "PERFECT_OVERLAP" => Overlap::Full,
                "NO_OVERLAP" => Overlap::None,
                _ => Overlap::ComputeMemory,
            }),
            // Where it is a truth value, leaving it out says no.
            None if matches!(
                generation,
                Generation::PerfectOverlap | Generation::Miscellany | Generation::Parallel
            ) =>
            {
                Some(if message.yes("perfect_overlap") { Overlap::Full } else { Overlap::None })
            }
            None => generation.is_first().then_some(Overlap::Full),
        };
        let utilization = self.positive(message, "compute_util", block);
        if let (Some(u), Some(field)) = (utilization.filter(|u| *u > 1.0), message.get("compute_util")) {
            self.say(field.place, join(block, "compute_util"), format!("expected a fraction of the peak, found {u}"));
        }
        Some(Settings {
            workload,
            global_batch,
            micro_batch: micro_batch.zip(micro_place),
            dataflow: style.as_deref().map(|s| s != "KERNEL_BY_KERNEL"),
            // Kernel by kernel the number of partitions is that of the kernels; the field is then left unread.
            partitions: style
                .as_deref()
                .is_none_or(|s| s != "KERNEL_BY_KERNEL")
                .then(|| self.count(message, "num_config", block, 1 << 20))
                .flatten(),
            overlap,
            utilization,
            word: self.count(message, "word", block, 64),
            two_passes: message.yes("separate_rs_ag_for_ar"),
            without_weights: message.yes("skip_initiation_buffer"),
        })
    }

    fn llm(&mut self, llm: &Message, path: &str, place: Place) -> Llm {
        let tile = ["tile_size", "seq_tile_size"].iter().find_map(|name| {
            let size = self.count(llm, name, path, MAX_SIZE)?;
            Some((size, llm.get(name)?.place))
        });
        Llm {
            hidden: self.needed(llm, "hidden_dim", path, place, 1 << 24),
            head_dim: self.needed(llm, "head_dim", path, place, 1 << 20),
            heads: self.needed(llm, "num_head", path, place, 1 << 20),
            seq: self.needed(llm, "seq_len", path, place, 1 << 26),
            layers: self.needed(llm, "num_layer", path, place, 1 << 20),
            layers_in_graph: self.count(llm, "num_layer_in_graph", path, 1 << 20).unwrap_or(1),
            tile,
        }
    }
}
