//! Chakra execution traces (MLCommons), schema 0.0.4 and 1.0.0: a file is a sequence of (varint length, message), one `GlobalMetadata` and
//! then `Node`s; one file a rank.
//!
//! The reader is our own, not the one that prost generates, for three reasons: errors name byte, node and field; names and attributes, which
//! repeat on every node, are held once; what it reads it writes again byte by byte. Tests hold it against prost's.

pub mod graph;
pub mod groups;
pub mod json;
mod json_text;
pub mod pass;
pub(crate) mod plain;
pub mod read;
pub mod text;
pub mod value;
mod wire;
pub mod write;

pub use groups::CommGroups;
pub use pass::{Pass, Stored};
pub use read::{Reader, read, read_from};
pub use value::{Attr, Kind, Scalar, Value};
pub use write::{Made, Writer, write};

use super::Text;

/// What Chakra writes into a file today.
pub const VERSION: &str = "0.0.4";

/// A trace of one rank.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    /// Version and attributes of the whole.
    pub metadata: Metadata,
    /// Nodes in the file's order.
    pub nodes: Vec<Node>,
    /// What is odd but was read all the same.
    pub warnings: Vec<String>,
}

/// The first message of a file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metadata {
    /// Version of the schema; may be empty.
    pub version: String,
    /// Attributes of the whole.
    pub attrs: Vec<Attr>,
    /// Fields that the schema does not have, as they stood.
    pub unknown: Vec<u8>,
}

/// Kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum NodeType {
    /// None given.
    #[default]
    Invalid,
    /// Says something about the run.
    Metadata,
    /// Load from (remote) memory.
    MemLoad,
    /// Store to (remote) memory.
    MemStore,
    /// Computation.
    Comp,
    /// Point-to-point send.
    Send,
    /// Point-to-point receive.
    Recv,
    /// Collective.
    Coll,
    /// A number that the schema does not have.
    Other(i32),
}

impl NodeType {
    /// From the number in the file.
    pub fn from_number(number: i32) -> Self {
        match number {
            0 => Self::Invalid,
            1 => Self::Metadata,
            2 => Self::MemLoad,
            3 => Self::MemStore,
            4 => Self::Comp,
            5 => Self::Send,
            6 => Self::Recv,
            7 => Self::Coll,
            other => Self::Other(other),
        }
    }

    /// The number in the file.
    pub fn number(self) -> i32 {
        match self {
            Self::Invalid => 0,
            Self::Metadata => 1,
            Self::MemLoad => 2,
            Self::MemStore => 3,
            Self::Comp => 4,
            Self::Send => 5,
            Self::Recv => 6,
            Self::Coll => 7,
            Self::Other(number) => number,
        }
    }

    /// The name in the schema; a number for what it does not have.
    pub fn name(self) -> String {
        match self {
            Self::Invalid => "INVALID_NODE".into(),
            Self::Metadata => "METADATA_NODE".into(),
            Self::MemLoad => "MEM_LOAD_NODE".into(),
            Self::MemStore => "MEM_STORE_NODE".into(),
            Self::Comp => "COMP_NODE".into(),
            Self::Send => "COMM_SEND_NODE".into(),
            Self::Recv => "COMM_RECV_NODE".into(),
            Self::Coll => "COMM_COLL_NODE".into(),
            Self::Other(number) => number.to_string(),
        }
    }

    /// From the name in the schema, or a number.
    pub fn from_name(name: &str) -> Option<Self> {
        (0..8).map(Self::from_number).find(|t| t.name() == name).or_else(|| name.parse().ok().map(Self::from_number))
    }

    /// Whether it communicates.
    pub fn communicates(self) -> bool {
        matches!(self, Self::Send | Self::Recv | Self::Coll)
    }
}

/// Kinds of collective, with the numbers of attribute `comm_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CommType {
    /// 0
    AllReduce,
    /// 1
    Reduce,
    /// 2
    AllGather,
    /// 3
    Gather,
    /// 4
    Scatter,
    /// 5
    Broadcast,
    /// 6
    AllToAll,
    /// 7
    ReduceScatter,
    /// 8
    ReduceScatterBlock,
    /// 9
    Barrier,
}

impl CommType {
    /// All, by number.
    pub const ALL: [Self; 10] = [
        Self::AllReduce,
        Self::Reduce,
        Self::AllGather,
        Self::Gather,
        Self::Scatter,
        Self::Broadcast,
        Self::AllToAll,
        Self::ReduceScatter,
        Self::ReduceScatterBlock,
        Self::Barrier,
    ];

    /// From the number in the file.
    pub fn from_number(number: i64) -> Option<Self> {
        usize::try_from(number).ok().and_then(|n| Self::ALL.get(n).copied())
    }

    /// The number in the file.
    pub fn number(self) -> i64 {
        self as i64
    }

    /// The name in the schema.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "ALL_REDUCE",
            Self::Reduce => "REDUCE",
            Self::AllGather => "ALL_GATHER",
            Self::Gather => "GATHER",
            Self::Scatter => "SCATTER",
            Self::Broadcast => "BROADCAST",
            Self::AllToAll => "ALL_TO_ALL",
            Self::ReduceScatter => "REDUCE_SCATTER",
            Self::ReduceScatterBlock => "REDUCE_SCATTER_BLOCK",
            Self::Barrier => "BARRIER",
        }
    }
}

/// Values, shapes and types of inputs or outputs, as the converters write them: one string each.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Io {
    /// Values.
    pub values: Text,
    /// Shapes.
    pub shapes: Text,
    /// Types.
    pub types: Text,
    /// Fields that the schema does not have, as they stood.
    pub unknown: Vec<u8>,
}

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Unique in the file.
    pub id: u64,
    /// Name.
    pub name: Text,
    /// Kind.
    pub kind: NodeType,
    /// Nodes that control this one.
    pub ctrl_deps: Vec<u64>,
    /// Nodes whose results this one needs.
    pub data_deps: Vec<u64>,
    /// Start, us.
    pub start_micros: u64,
    /// Duration, us.
    pub duration_micros: u64,
    /// Inputs.
    pub inputs: Option<Io>,
    /// Outputs.
    pub outputs: Option<Io>,
    /// Everything else.
    pub attrs: Vec<Attr>,
    /// Fields that the schema does not have, as they stood.
    pub unknown: Vec<u8>,
}

impl Default for Node {
    fn default() -> Self {
        Self::new(0, "".into(), NodeType::Invalid)
    }
}

impl Node {
    /// A node without dependencies and attributes.
    pub fn new(id: u64, name: Text, kind: NodeType) -> Self {
        Self {
            id,
            name,
            kind,
            ctrl_deps: Vec::new(),
            data_deps: Vec::new(),
            start_micros: 0,
            duration_micros: 0,
            inputs: None,
            outputs: None,
            attrs: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with(mut self, name: impl Into<Text>, value: Scalar) -> Self {
        self.attrs.push(Attr::new(name, value));
        self
    }

    /// Value of an attribute.
    pub fn attr(&self, name: &str) -> Option<&Value> {
        self.attrs.iter().find(|a| &*a.name == name)?.value.as_ref()
    }

    /// An attribute as an integer, whatever its arm (numbers, truth values, numbers in strings).
    pub fn int(&self, name: &str) -> Option<i64> {
        self.attr(name)?.int()
    }

    /// An attribute as an integer of at least 0, whatever its arm.
    pub fn uint(&self, name: &str) -> Option<u64> {
        self.attr(name)?.uint()
    }

    /// An attribute as a number, whatever its arm.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.attr(name)?.number()
    }

    /// An attribute as a truth value, whatever its arm (0 is false).
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.attr(name)?.flag()
    }

    /// An attribute as text, whatever its arm.
    pub fn text(&self, name: &str) -> Option<String> {
        self.attr(name)?.text()
    }

    /// Kind of the collective (`comm_type`).
    pub fn comm_type(&self) -> Option<CommType> {
        if self.kind == NodeType::Coll { CommType::from_number(self.int("comm_type")?) } else { None }
    }

    /// Name of its process group (`pg_name`); none means all ranks.
    pub fn group(&self) -> Option<String> {
        self.text("pg_name").filter(|g| !g.is_empty())
    }

    /// All dependencies: data, then control.
    pub fn deps(&self) -> impl Iterator<Item = u64> + '_ {
        self.data_deps.iter().chain(&self.ctrl_deps).copied()
    }
}
