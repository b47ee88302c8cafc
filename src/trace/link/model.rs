//! A linked trace: what ran on the host and on the devices of one rank, when, and what waited for what.

use crate::trace::{Collective, Text};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// A point in time: nanoseconds since [`LinkedTrace::origin_ns`].
pub type Ns = i64;

/// Host and device activity of one rank in one graph.
///
/// Nodes are in an order in which every node comes after what it needs to begin (its caller, the call that launched it, the
/// operation before it on its stream); edges refer to places in it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkedTrace {
    /// Nanoseconds of the profiler's clock at time 0.
    pub origin_ns: i64,
    /// Schema of the host trace, where there was one.
    pub host_schema: Option<Text>,
    /// Name of the devices, where recorded: `NVIDIA A100-SXM4-80GB`.
    pub device_name: Option<Text>,
    /// Global rank, where recorded.
    pub rank: Option<u64>,
    /// Ranks of the run, where recorded.
    pub world_size: Option<u64>,
    /// Process groups.
    pub groups: Vec<Group>,
    /// Host threads.
    pub threads: Vec<Thread>,
    /// Streams of the devices.
    pub streams: Vec<Stream>,
    /// Operators, runtime calls and device operations.
    pub nodes: Vec<LinkedNode>,
    /// What waited for what, beyond the order of a thread, which the nodes' times give.
    pub edges: Vec<Edge>,
}

/// A process group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// Name, by which collectives refer to it.
    pub name: String,
    /// Description.
    pub desc: String,
    /// Global ranks; empty when unknown.
    pub ranks: Vec<u64>,
    /// Number of ranks, where known.
    pub size: Option<u64>,
}

/// A host thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Process.
    pub pid: i64,
    /// Thread.
    pub tid: i64,
}

/// A stream of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stream {
    /// Device.
    pub device: i64,
    /// Stream.
    pub stream: i64,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A framework's operator on the host.
    Operator,
    /// A user's annotation on the host: a profiler step, a module, a phase.
    Annotation,
    /// A call of the device's runtime or driver.
    Call,
    /// A kernel.
    Kernel,
    /// A copy by the device.
    Memcpy,
    /// A fill by the device.
    Memset,
}

impl NodeKind {
    /// Every kind, in the order of the file form's numbers.
    pub const ALL: [Self; 6] = [Self::Operator, Self::Annotation, Self::Call, Self::Kernel, Self::Memcpy, Self::Memset];

    /// Whether it runs on a device.
    pub fn on_device(self) -> bool {
        matches!(self, Self::Kernel | Self::Memcpy | Self::Memset)
    }

    /// The word of the file form.
    pub fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Annotation => "annotation",
            Self::Call => "call",
            Self::Kernel => "kernel",
            Self::Memcpy => "memcpy",
            Self::Memset => "memset",
        }
    }
}

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkedNode {
    /// Name as recorded.
    pub name: Text,
    /// What it is.
    pub kind: NodeKind,
    /// Place in [`LinkedTrace::threads`], or in [`LinkedTrace::streams`] for what runs on a device.
    pub place: u32,
    /// Start.
    pub start_ns: Ns,
    /// Duration.
    pub dur_ns: u64,
    /// Whether it was timed; if not, `start_ns` only says where in its thread's order it stands.
    pub timed: bool,
    /// Host: the innermost host node around it. Device: the operator or annotation that caused it.
    pub parent: Option<u32>,
    /// The call that launched it, for device nodes.
    pub launch: Option<u32>,
    /// Collective or point-to-point arguments, where recorded.
    pub collective: Option<Box<Collective>>,
    /// What only the host trace or only the device trace knows.
    pub facts: Facts,
}

impl LinkedNode {
    /// End.
    pub fn end_ns(&self) -> Ns {
        self.start_ns.saturating_add(i64::try_from(self.dur_ns).unwrap_or(i64::MAX))
    }

    /// When one end of it is.
    pub fn at(&self, end: End) -> Ns {
        match end {
            End::Start => self.start_ns,
            End::Finish => self.end_ns(),
        }
    }

    /// Whether it marks a step of the profiler.
    pub fn is_step(&self) -> bool {
        self.kind == NodeKind::Annotation && self.name.starts_with("ProfilerStep")
    }

    /// Whether it is a kernel that moves data between devices.
    pub fn is_communication(&self) -> bool {
        self.kind == NodeKind::Kernel && is_communication_kernel(&self.name)
    }

    /// The facts of the host trace, if it was in there.
    pub fn host(&self) -> Option<&HostFacts> {
        match &self.facts {
            Facts::Host(facts) => Some(facts),
            _ => None,
        }
    }

    /// The facts of the device trace, for device nodes.
    pub fn device(&self) -> Option<&DeviceFacts> {
        match &self.facts {
            Facts::Device(facts) => Some(facts),
            _ => None,
        }
    }
}

/// Whether a kernel of this name communicates: NCCL and RCCL, and the collectives that frameworks bring themselves.
pub fn is_communication_kernel(name: &str) -> bool {
    // Names of kernels are long, and every kernel is asked about several times: one pass, that stops at rare pairs of letters only.
    let text = name.as_bytes();
    let pairs = text.iter().zip(text.iter().skip(1)).enumerate();
    pairs.filter_map(|(at, (a, b))| Some((at, rare_pair(*a, *b)?))).any(|(at, words)| {
        words.iter().any(|(before, word)| {
            let start = at.checked_sub(*before);
            let found = start.and_then(|start| text.get(start..start + word.len()));
            found.is_some_and(|w| w.eq_ignore_ascii_case(word.as_bytes()))
        })
    })
}

/// Words that tell communication and have this pair of letters, with how many letters stand before it.
#[inline]
fn rare_pair(a: u8, b: u8) -> Option<&'static [(usize, &'static str)]> {
    // Lower case, but for signs: whole words are compared after.
    Some(match (a | 0x20, b | 0x20) {
        (b'c', b'c') => &[(1, "nccl"), (1, "rccl")],
        (b's', b'c') => &[(1, "msccl")],
        (b'v', b's') => &[(1, "nvshmem")],
        (b'l', b't') => &[(2, "multimem_all")],
        (b'o', b's') => &[(2, "cross_device_reduce")],
        (b't', b'w') => &[(0, "two_shot_all")],
        _ => return None,
    })
}

/// Facts of a node beyond name and time.
#[derive(Debug, Clone, PartialEq)]
pub enum Facts {
    /// None: a host node that only the device trace has, or a runtime call.
    None,
    /// Of the host trace.
    Host(Box<HostFacts>),
    /// Of the device trace.
    Device(DeviceFacts),
}

/// What the host trace says about an operator.
#[derive(Debug, Clone, PartialEq)]
pub struct HostFacts {
    /// Id in the host trace.
    pub id: u64,
    /// Record-function id.
    pub rf_id: Option<u64>,
    /// Autograd's sequence number; -1 for none.
    pub seq_id: i64,
    /// Kind of record function.
    pub scope: u64,
    /// Id in the host trace of the forward operator's caller; 0 for none.
    pub fw_parent: u64,
    /// Thread of the forward operator; 0 for none.
    pub fw_tid: u64,
    /// Thread, numbered by the observer.
    pub tid: u64,
    /// Signature; empty for none.
    pub op_schema: Text,
    /// Arguments.
    pub inputs: Io,
    /// Results.
    pub outputs: Io,
}

/// Arguments or results as Chakra's files hold them: lists in Python's notation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Io {
    /// Values; a tensor is `[id, storage, offset, elements, bytes, device]`.
    pub values: Text,
    /// Shapes.
    pub shapes: Text,
    /// Types.
    pub types: Text,
}

/// What the device trace says about a device operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceFacts {
    /// The number that ties it to its launch; 0 for none.
    pub correlation: i64,
    /// Bytes of a copy or a fill, where recorded.
    pub bytes: Option<u64>,
    /// Whether it belongs to a launched graph.
    pub graph: bool,
}

/// Why one thing waited for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EdgeKind {
    /// A call launched a device operation.
    Launch,
    /// Operations of one stream run in order.
    Stream,
    /// A stream waited for an event of another stream.
    Event,
    /// An operation of a launched graph followed one on another stream of the same graph.
    Graph,
    /// The host waited for a device: synchronisation of a stream, an event or a device, or a blocking copy.
    Host,
    /// A thread went on when another had got somewhere.
    Wake,
    /// A backward operator needs what its forward operator kept.
    Backward,
}

impl EdgeKind {
    /// Every kind, in the order of the file form's numbers.
    pub const ALL: [Self; 7] =
        [Self::Launch, Self::Stream, Self::Event, Self::Graph, Self::Host, Self::Wake, Self::Backward];

    /// A word for reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Stream => "stream order",
            Self::Event => "event",
            Self::Graph => "graph order",
            Self::Host => "host waits",
            Self::Wake => "thread wakes",
            Self::Backward => "backward",
        }
    }
}

/// One end of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// Its start.
    Start,
    /// Its end.
    Finish,
}

/// One thing waited for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// What was waited for.
    pub from: u32,
    /// Its end that mattered.
    pub from_end: End,
    /// What waited.
    pub to: u32,
    /// Its end that waited.
    pub to_end: End,
    /// Why.
    pub kind: EdgeKind,
    /// Whether the traces do not say so themselves and times and habits of the runtime were used.
    pub inferred: bool,
}

impl LinkedTrace {
    /// The node at a place.
    pub fn node(&self, at: u32) -> Option<&LinkedNode> {
        self.nodes.get(at as usize)
    }

    /// For each node, whether it is a kernel that moves data between devices. Kernels are many, their names few and long.
    pub fn communicating(&self) -> Vec<bool> {
        let mut known: HashMap<&str, bool, RandomState> = HashMap::default();
        let mut communicates = |name| *known.entry(name).or_insert_with_key(|name| is_communication_kernel(name));
        self.nodes.iter().map(|n| n.kind == NodeKind::Kernel && communicates(&*n.name)).collect()
    }

    /// Places of the device operations.
    pub fn device_nodes(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.nodes).filter(|(_, n)| n.kind.on_device()).map(|(i, _)| i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communication_kernels() {
        for name in [
            "ncclDevKernel_AllReduce_Sum_f16_RING_LL(x)",
            "ncclKernel_SendRecv",
            "void cross_device_reduce_1stage",
            "void nncNVSHMEM",
            "multimem_all_reduce",
            "void mscclKernel",
            "symm::two_shot_all",
        ] {
            assert!(is_communication_kernel(name), "{name}");
        }
        assert!(is_communication_kernel("RCCL_generic"));
        assert!(!is_communication_kernel("ampere_fp16_s1688gemm"));
        for name in ["", "n", "ncc", "tncc", "multimem_al", "two_shot_reduce"] {
            assert!(!is_communication_kernel(name), "{name}");
        }
    }
}
