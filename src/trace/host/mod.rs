//! PyTorch's execution trace: what the execution trace observer of the profiler writes, as JSON.
//!
//! Schemas 1.0.1 (flat nodes), 1.0.2-chakra.0.0.4 to 1.1.1 (attributes in a list). Layouts are told apart by what a node holds, not by the
//! schema's number, since builds between two numbers have either; an unknown minor version is read with a warning.

mod args;
pub mod check;
mod comms;
mod read;

pub(crate) use args::arguments_of;
pub use read::{read, read_from};

use super::{Collective, Text};
use std::collections::HashMap;

/// Name of the operator whose arguments describe a collective.
pub const RECORD_PARAM_COMMS: &str = "record_param_comms";

/// One execution trace: the call tree of one process.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostTrace {
    /// Schema as written, e.g. `1.1.1-chakra.0.0.4`.
    pub schema: String,
    /// Process id.
    pub pid: Option<i64>,
    /// When the trace began, as written.
    pub time: Option<String>,
    /// Beginning, ms of the machine's steady clock.
    pub start_ts: Option<i64>,
    /// End, ms of the machine's steady clock.
    pub finish_ts: Option<i64>,
    /// The operators, in the file's order (children may come before their parents).
    pub nodes: Vec<HostNode>,
    /// What is odd but was read all the same.
    pub warnings: Vec<String>,
}

impl HostTrace {
    /// Place of each node by its id; of two nodes with one id, the first.
    pub fn index(&self) -> HashMap<u64, usize> {
        let mut index = HashMap::with_capacity(self.nodes.len());
        for (i, node) in self.nodes.iter().enumerate() {
            index.entry(node.id).or_insert(i);
        }
        index
    }

    /// Process groups that the trace announces.
    pub fn process_groups(&self) -> Vec<ProcessGroup> {
        comms::process_groups(&self.nodes)
    }
}

/// One operator call or annotation.
#[derive(Debug, Clone, PartialEq)]
pub struct HostNode {
    /// Unique in the file.
    pub id: u64,
    /// `aten::mm`, `autograd::engine::evaluate_function: ...`, ...
    pub name: Text,
    /// Id of the caller (`parent`, later `ctrl_deps`); 1 is the process, 0 nothing.
    pub parent: u64,
    /// Record-function id: Kineto's `Record function id`. 0 for the roots.
    pub rf_id: Option<u64>,
    /// Id of the forward operator's caller, for backward operators; 0 for none.
    pub fw_parent: u64,
    /// Autograd's sequence number; -1 for none.
    pub seq_id: i64,
    /// Kind of record function: 0 function, 1 backward function, 2 TorchScript, 3 kernel function dtype, 4 custom class, 5 build
    /// feature, 6 lite interpreter, 7 user scope, 8 static runtime op, 9 static runtime model.
    pub scope: u64,
    /// Thread, numbered by the observer.
    pub tid: u64,
    /// Thread of the forward operator, for backward operators; 0 for none.
    pub fw_tid: u64,
    /// Signature of the operator; empty for none.
    pub op_schema: Text,
    /// Arguments.
    pub inputs: Vec<Arg>,
    /// Results.
    pub outputs: Vec<Arg>,
    /// `triton` and the like, for generated kernels.
    pub kernel_backend: Option<Text>,
    /// Source of a generated kernel.
    pub kernel_file: Option<Text>,
    /// Arguments of a collective, from attributes (1.1.0 on) or from the inputs of [`RECORD_PARAM_COMMS`] (before).
    pub collective: Option<Box<Collective>>,
    /// Start in us, where another tool's linker wrote one (ET+).
    pub ts_us: Option<i64>,
    /// Duration in us, where another tool's linker wrote one (ET+).
    pub dur_us: Option<i64>,
    /// Attributes not named above, as text; empty ones are left out.
    pub others: Vec<(Text, Text)>,
}

impl HostNode {
    /// Whether this is the root of the process or of a thread.
    pub fn is_root(&self) -> bool {
        let name = &*self.name;
        (name.starts_with("[pytorch|profiler|execution_trace|")
            || name.starts_with("[pytorch|profiler|execution_graph|"))
            && name.ends_with(']')
    }

    /// Tensors among the inputs, those in lists included, in order.
    pub fn input_tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs.iter().flat_map(Arg::tensors)
    }

    /// Tensors among the outputs, those in lists included, in order.
    pub fn output_tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.outputs.iter().flat_map(Arg::tensors)
    }
}

/// An argument or a result of an operator.
#[derive(Debug, Clone, PartialEq)]
pub enum Arg {
    /// A tensor.
    Tensor(Box<Tensor>),
    /// An integer.
    Int(i64),
    /// A floating-point number (`inf` and `nan` included).
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A string.
    Str(Text),
    /// A device, `cuda:0`.
    Device(Text),
    /// Nothing.
    None,
    /// A list or tuple.
    List(Vec<Arg>),
    /// Anything of which only the kind is recorded: `Object`, `Storage`, `Stream`, ...
    Other(Text),
}

impl Arg {
    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The integer, if it is one (a truth value counts as 0 or 1).
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(i) => Some(*i),
            Self::Bool(b) => Some(i64::from(*b)),
            _ => None,
        }
    }

    /// The items, if it is a list.
    pub fn list(&self) -> Option<&[Arg]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// The integers, if it is a list of integers.
    pub fn ints(&self) -> Option<Vec<i64>> {
        self.list()?.iter().map(Arg::int).collect()
    }

    /// Every tensor in it, in order.
    pub fn tensors(&self) -> Tensors<'_> {
        Tensors { rest: vec![std::slice::from_ref(self).iter()] }
    }
}

/// The tensors of an argument: see [`Arg::tensors`].
#[derive(Debug)]
pub struct Tensors<'a> {
    rest: Vec<std::slice::Iter<'a, Arg>>,
}

impl<'a> Iterator for Tensors<'a> {
    type Item = &'a Tensor;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(items) = self.rest.last_mut() {
            match items.next() {
                None => {
                    self.rest.pop();
                }
                Some(Arg::Tensor(tensor)) => return Some(tensor),
                Some(Arg::List(inner)) => self.rest.push(inner.iter()),
                Some(_) => {}
            }
        }
        None
    }
}

/// A tensor as an operator saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// The tensor object; recycled by PyTorch's allocator of ids.
    pub tensor_id: u64,
    /// Its storage; views share one. 0 for an undefined tensor. Recycled: an allocation starts a new life.
    pub storage_id: u64,
    /// First element in the storage, in elements.
    pub offset: u64,
    /// Number of elements.
    pub num_elem: u64,
    /// Bytes of an element.
    pub elem_bytes: u64,
    /// `cuda:0`, `cpu`, `meta`; empty for an undefined tensor.
    pub device: Text,
    /// Element type as PyTorch's C++ names it, without the compiler's spelling: `float`, `long`, `c10::Half`, ...
    pub dtype: Text,
    /// Extents.
    pub shape: Box<[i64]>,
    /// Distances between elements, in elements (1.1.1 on).
    pub strides: Option<Box<[i64]>>,
}

impl Tensor {
    /// Whether there is a tensor at all.
    pub fn is_defined(&self) -> bool {
        self.storage_id != 0 || !self.device.is_empty()
    }

    /// Bytes of its elements.
    pub fn bytes(&self) -> u64 {
        self.num_elem.saturating_mul(self.elem_bytes)
    }
}

/// A process group, as `## process_group:init ##` announces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessGroup {
    /// Name: usually a number.
    pub name: String,
    /// Description: `default_pg`, `TENSOR_MODEL_PARALLEL_GROUP`, ...
    pub desc: String,
    /// Backend: `cuda:nccl`.
    pub backend: String,
    /// Global ranks; for a group of all ranks PyTorch writes none.
    pub ranks: Vec<u64>,
    /// Number of ranks.
    pub size: Option<u64>,
}
