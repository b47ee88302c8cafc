//! Systems: chips, memories, networks, and by which model they are evaluated.
//!
//! A system file composes parts by reference: it names a chip, a memory and the dimensions of a network. Every
//! hardware number carries its source ([`source`]).

pub mod area;
pub mod budget;
pub mod chip;
pub mod economics;
pub mod kernels;
pub mod memory;
pub mod network;
pub mod options;
pub mod price;
pub mod serving;
pub mod source;
pub mod stack;
pub mod technology;

pub use area::Die;
pub use chip::{Chip, Efficiency, Style};
pub use kernels::{Kernels, Tile};
pub use memory::Memory;
pub use network::{Dimension, Link, Network, SwitchPart, Topology};
pub use options::{MemoryPrice, ModelOptions, NetworkModel, Overlap};
pub use serving::Serving;
pub use stack::Stack;
pub use technology::Technology;

use crate::spec::{FromNode, Loader, Node, Problem, Problems, Reader, catalogue::Kind, read::Ref};
use crate::units::Bytes;
use options::Charge;
use std::path::Path;

crate::choice! {
    /// What an execution of a language model stands for.
    pub enum Software ("a software") {
        /// What the system's stack takes.
        Stack = "stack",
        /// What current software of the chip takes: its file's `generic`, else the stacks `generic` and `generic-dataflow` of the catalogue.
        Generic = "generic",
        /// What software without cost takes that shards and fuses as stacks do: no host, the chip's fastest attention kernel, and of every number the best that
        /// the system's stack, generic software and software without cost reach.
        Ideal = "ideal",
        /// What is possible: shardings, fusions and tiles of every block are searched.
        Free = "free",
    }
}

crate::spec! {
    /// A system: many equal chips, each with its memory, joined by a network.
    pub struct System ("a system", check: check) {
        /// Name for rows and titles.
        name: String,
        /// What the system is and where its composition comes from.
        source: String,
        /// The chip.
        chip: Ref<Chip>,
        /// The memory beside each chip.
        memory: Ref<Memory>,
        /// A second tier of memory beside each chip, to which an execution may offload: its bandwidth is that of the way there.
        offload: Option<Ref<Memory>>,
        /// The software stack, for executions of language models ([`stack`]); left out: what `software` says.
        stack: Option<Ref<Stack>>,
        /// What trains and serves a language model: the stack, generic or ideal software, or the best mapping there is; left out: the stack (generic
        /// software without one) on chips that run kernel by kernel, the best mapping on dataflow chips.
        software: Option<Software>,
        /// The network between chips.
        network: Network,
        /// Number of chips; where given it must be the product of the network's dimensions.
        chips: Option<u64>,
        /// Which of compute, DRAM traffic and network of a partition overlap; by default all three on dataflow chips,
        /// compute and DRAM traffic on chips that run kernel by kernel.
        overlap: Option<Overlap>,
        /// The performance model and its options.
        model: ModelOptions = ModelOptions::flowspace(),
    }
}

fn check(system: &System, node: &Node, reader: &mut Reader) {
    let product = system.network.chips();
    if let Some(chips) = system.chips.filter(|c| *c != product) {
        let sizes: Vec<String> = system.network.dimensions.iter().map(|d| d.size.to_string()).collect();
        let product_text = match sizes.as_slice() {
            [] => "1 (single chip)".into(),
            [one] => one.clone(),
            _ => format!("{} = {product}", sizes.join(" x ")),
        };
        let at = node.get("chips").unwrap_or(node);
        reader.within("chips", |r| {
            r.problem(at, format!("{chips} chips, but the network's dimensions have {product_text}"))
        });
    }
    area::check_memory(system, node, reader);
    check_on_chip(system, node, reader);
    stack::check_names(system, node, reader);
    if system.model.memory_price != MemoryPrice::Bandwidth {
        let offload = system.offload.as_ref().map(|memory| ("offload", &memory.0));
        for (part, memory) in std::iter::once(("memory", &system.memory.0)).chain(offload) {
            let mut needs = |field: &str, there: bool| {
                if !there {
                    let at = node.get(part).unwrap_or(node);
                    reader.within(format!("{part}.{field}"), |r| {
                        r.problem(at, format!("missing; model.memory_price {} needs it", system.model.memory_price));
                    });
                }
            };
            needs("capacity", memory.capacity.is_some());
            needs("capacity_price", memory.capacity_price.is_some());
        }
    }
}

/// A memory on chip is all of the SRAM, and a part of the chip; it is no second tier.
fn check_on_chip(system: &System, node: &Node, reader: &mut Reader) {
    let mut say = |part: &str, field: &str, message: String| {
        let at = node.get(part).unwrap_or(node);
        let at = at.get(field).unwrap_or(at);
        reader.within(format!("{part}.{field}"), |r| r.problem(at, message));
    };
    let (memory, sram) = (&system.memory.0, system.chip.0.sram);
    if memory.on_chip {
        if let Some(capacity) = memory.capacity.filter(|capacity| *capacity != sram) {
            let chip = &system.chip.0.name;
            say(
                "memory",
                "capacity",
                format!(
                    "a memory on chip (`on_chip: true`) is all of the SRAM of {chip}, {sram}: leave it out, found {capacity}"
                ),
            );
        }
        if memory.stacks.is_some() {
            say("memory", "stacks", "a memory on chip has no stacks".into());
        }
        let unit = memory.capacity_price.map_or(0.0, |price| price.0);
        for (field, value) in [("price", memory.price.0), ("capacity_price", unit), ("power", memory.power.0)] {
            if value > 0.0 {
                say("memory", field, "a memory on chip is a part of it, and of its price and power: expected 0".into());
            }
        }
    }
    if system.offload.as_ref().is_some_and(|memory| memory.0.on_chip) {
        say("offload", "on_chip", "a second tier is beside the chip: expected a memory without `on_chip`".into());
    }
}

impl System {
    /// Loads the tree of a system file, or of the system of that name in the catalogue.
    ///
    /// # Errors
    /// The [`Problem`] of loading.
    pub fn load(path: &Path) -> Result<Node, Problem> {
        let node = Loader.open(path, Some(Kind::System))?;
        Loader.expand_as(&node, "", Some(Kind::System))
    }

    /// Reads a tree.
    ///
    /// # Errors
    /// All [`Problems`].
    pub fn build(node: &Node) -> Result<Self, Problems> {
        Self::build_by(Reader::default(), node)
    }

    /// Reads a tree whose chip was read before: `chip` must be what [`System::build`] makes of its node.
    ///
    /// # Errors
    /// All [`Problems`] of the other parts.
    pub fn build_with(chip: Ref<Chip>, node: &Node) -> Result<Self, Problems> {
        Self::build_by(Reader::knowing("chip", chip), node)
    }

    fn build_by(mut reader: Reader, node: &Node) -> Result<Self, Problems> {
        let system = Self::from_node(node, &mut reader);
        let mut system: Self = reader.finish_with(system, node)?;
        system.memory.0 = system.memory.0.stacked().of_sram(system.chip.0.sram);
        system.offload = system.offload.map(|memory| Ref(memory.0.stacked()));
        if system.model.precision == options::Precision::Float32 {
            // The unit of these fields is the giga.
            let round = |value: f64| system.model.precision.round(value / 1e9) * 1e9;
            system.chip.0.frequency.0 = round(system.chip.0.frequency.0);
            system.memory.0.bandwidth.0 = round(system.memory.0.bandwidth.0);
        }
        system.sum_up();
        Ok(system)
    }

    /// The tree with every reference replaced by what it names.
    ///
    /// # Errors
    /// The [`Problem`] of loading a file.
    pub fn inlined(node: &Node) -> Result<Node, Problem> {
        let mut tree = Loader.expand_as(node, "", Some(Kind::System))?;
        for path in [
            &["chip"][..],
            &["chip", "area", "technology"],
            &["chip", "generic"],
            &["memory"],
            &["offload"],
            &["stack"],
            &["network", "dimensions", "*", "link"],
            &["network", "switch"],
        ] {
            tree.inline(path, &Loader)?;
        }
        Ok(tree)
    }

    /// Whether what the memory holds and what partitions buffer share the SRAM.
    pub fn shares_sram(&self) -> bool {
        self.memory.0.on_chip && self.model.sram_limit == Charge::Charged
    }

    /// The same where the memory's limit is known; blocks of executions are mapped without one.
    pub fn holds_in_sram(&self) -> bool {
        self.shares_sram() && self.memory.0.capacity.is_some()
    }

    /// The same where partitions have so many bytes of SRAM and the memory, which is beside them, so many.
    pub fn divided(&self, room: f64, memory: f64) -> Self {
        let mut out = self.clone();
        out.memory.0.on_chip = false;
        out.memory.0.capacity = Some(Bytes(memory));
        out.chip.0.sram = Bytes(room);
        out
    }

    /// With so many bytes of SRAM, and of the memory where that is on chip.
    pub fn set_sram(&mut self, bytes: f64) {
        self.chip.0.sram = Bytes(bytes);
        if self.memory.0.on_chip {
            self.memory.0.capacity = Some(Bytes(bytes));
        }
    }

    /// The number of chips.
    pub fn chip_count(&self) -> u64 {
        self.network.chips()
    }

    /// What an execution of a language model on it stands for.
    pub fn software(&self) -> Software {
        self.software.unwrap_or(match (self.chip.0.style, &self.stack) {
            (Style::Dataflow, _) => Software::Free,
            (Style::KernelByKernel, Some(_)) => Software::Stack,
            (Style::KernelByKernel, None) => Software::Generic,
        })
    }

    /// Whether its chips pipeline tiles and filling and draining of these pipelines is not counted.
    pub fn leaves_out_filling(&self) -> bool {
        self.model.pipeline_filling == Charge::Ignored && self.chip.0.pipelines_tiles()
    }

    /// Whether strategies may share dimension `i` of the network: a part of a ring is a line, which DFModel's collectives do not know.
    pub fn divides(&self, i: usize) -> bool {
        self.model.network_model == NetworkModel::Flowspace || self.network.topology_of(i) != Topology::Ring
    }

    /// Whether there is a dimension that they may share.
    pub fn has_dimension_to_divide(&self) -> bool {
        self.network.dimensions.iter().enumerate().any(|(i, d)| d.size > 1 && self.divides(i))
    }

    /// Overlap in force.
    pub fn overlap(&self) -> Overlap {
        self.overlap.unwrap_or(match self.chip.0.style {
            Style::Dataflow => Overlap::Full,
            Style::KernelByKernel => Overlap::ComputeMemory,
        })
    }
}
