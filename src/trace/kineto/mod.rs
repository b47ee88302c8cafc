//! Kineto's traces: the Chrome JSON that PyTorch's profiler exports.
//!
//! Times are kept in whole nanoseconds: the file's microseconds, whole or decimal, are converted digit by digit.

mod event;
mod quick;
mod read;
mod scan;
mod time;
mod walk;
mod written;

pub use read::{read, read_from};
pub(crate) use scan::{Seen, SeenArgs, into, into_from, scan, scan_from};
pub use time::nanoseconds;
pub(crate) use walk::{Reader, Wrong};

use super::{Collective, Text};
use std::collections::BTreeMap;
use std::fmt;

/// One trace: what one process and its devices did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KinetoTrace {
    /// Complete events (`ph: X`), in the file's order.
    pub events: Vec<Event>,
    /// Arrows from forward operators to their backward operators (`fwdbwd`); those from calls to kernels say no more than
    /// [`Event::correlation`] does and are only counted.
    pub flows: Vec<Flow>,
    /// Rank, world size and groups.
    pub distributed: Distributed,
    /// The devices of the machine.
    pub devices: Vec<DeviceProperties>,
    /// What to add to times for nanoseconds since 1970.
    pub base_time_ns: Option<i64>,
    /// Name that the profiler gave the trace.
    pub trace_name: Option<String>,
    /// Events that are not kept, by phase and category (`i`, `M process_name`, `s ac2g`, ...), with their number.
    pub not_kept: BTreeMap<String, u64>,
    /// What is odd but was read all the same.
    pub warnings: Vec<String>,
}

/// Kind of an event, old and new names of categories taken together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// An operator on the CPU (`cpu_op`, `Operator`).
    CpuOp,
    /// A range named by the user or by PyTorch (`user_annotation`).
    UserAnnotation,
    /// The same range on a device (`gpu_user_annotation`).
    GpuUserAnnotation,
    /// A call of the runtime: CUDA, HIP and others (`cuda_runtime`, `Runtime`, ...).
    Runtime,
    /// A call of the driver (`cuda_driver`).
    Driver,
    /// A kernel on a device (`kernel`, `Kernel`).
    Kernel,
    /// A copy on a device (`gpu_memcpy`, `Memcpy`).
    Memcpy,
    /// A fill on a device (`gpu_memset`, `Memset`).
    Memset,
    /// A synchronisation (`cuda_sync`).
    Sync,
    /// A Python function.
    PythonFunction,
    /// Time lost to profiling.
    Overhead,
    /// The span of the profiler.
    Span,
    /// Any other.
    Other(Text),
}

impl Category {
    /// Whether it runs on a device: kernel, copy or fill.
    pub fn on_device(&self) -> bool {
        matches!(self, Self::Kernel | Self::Memcpy | Self::Memset)
    }

    /// Whether it is a call of runtime or driver.
    pub fn is_call(&self) -> bool {
        matches!(self, Self::Runtime | Self::Driver)
    }

    /// The name in use today.
    pub fn name(&self) -> &str {
        match self {
            Self::CpuOp => "cpu_op",
            Self::UserAnnotation => "user_annotation",
            Self::GpuUserAnnotation => "gpu_user_annotation",
            Self::Runtime => "cuda_runtime",
            Self::Driver => "cuda_driver",
            Self::Kernel => "kernel",
            Self::Memcpy => "gpu_memcpy",
            Self::Memset => "gpu_memset",
            Self::Sync => "cuda_sync",
            Self::PythonFunction => "python_function",
            Self::Overhead => "overhead",
            Self::Span => "Trace",
            Self::Other(name) => name,
        }
    }
}

/// A process or thread: a number, or a name (`Spans`, `Traces`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Track {
    /// A number.
    Number(i64),
    /// A name.
    Name(Text),
}

impl Track {
    /// The number, if it is one.
    pub fn number(&self) -> Option<i64> {
        match self {
            Self::Number(n) => Some(*n),
            Self::Name(_) => None,
        }
    }
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// A complete event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Kind.
    pub category: Category,
    /// Operator, call or kernel.
    pub name: Text,
    /// Process; for device events the device.
    pub pid: Track,
    /// Thread; for device events the stream.
    pub tid: Track,
    /// Start, ns on the trace's clock.
    pub ts_ns: i64,
    /// Duration, ns.
    pub dur_ns: i64,
    /// `External id`: ties calls and device events to the CPU operator.
    pub external_id: Option<i64>,
    /// `Record function id`: the execution trace's `rf_id`.
    pub record_function_id: Option<u64>,
    /// `Ev Idx` (old: `Profiler Event Index`).
    pub event_index: Option<i64>,
    /// Ties a call to the device events it caused.
    pub correlation: Option<i64>,
    /// Stream.
    pub stream: Option<i64>,
    /// Device.
    pub device: Option<i64>,
    /// Autograd's sequence number.
    pub sequence: Option<i64>,
    /// Thread of the forward operator.
    pub fwd_thread: Option<i64>,
    /// Bytes of a copy or fill.
    pub bytes: Option<u64>,
    /// Node of the CUDA graph that the event runs; 0 or none outside graphs.
    pub graph_node: Option<u64>,
    /// CUDA graph that the event belongs to.
    pub graph: Option<u64>,
    /// What else there is, for the kinds of event that have it.
    pub extra: Option<Box<Extra>>,
}

impl Event {
    /// End, ns.
    pub fn end_ns(&self) -> i64 {
        self.ts_ns.saturating_add(self.dur_ns)
    }

    /// Arguments of the collective, if it is one.
    pub fn collective(&self) -> Option<&Collective> {
        self.extra.as_ref()?.collective.as_ref()
    }

    /// What a synchronisation waits for.
    pub fn sync(&self) -> Option<&Sync> {
        self.extra.as_ref()?.sync.as_ref()
    }

    /// How a kernel was launched.
    pub fn launch(&self) -> Option<&Launch> {
        self.extra.as_ref()?.launch.as_ref()
    }

    /// Shapes and types of a CPU operator's inputs.
    pub fn operands(&self) -> Option<&Operands> {
        self.extra.as_ref()?.operands.as_ref()
    }

    /// Number of the profiler's step, if this is its annotation (`ProfilerStep#7`).
    pub fn profiler_step(&self) -> Option<u64> {
        match self.category {
            Category::UserAnnotation | Category::CpuOp => self.name.strip_prefix("ProfilerStep#")?.parse().ok(),
            _ => None,
        }
    }
}

/// Arguments that few events have.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Extra {
    /// Of a collective, on kernels and on `record_param_comms`.
    pub collective: Option<Collective>,
    /// Of a synchronisation.
    pub sync: Option<Sync>,
    /// Of a kernel.
    pub launch: Option<Launch>,
    /// Of a CPU operator.
    pub operands: Option<Operands>,
    /// Kind of a copy as recorded (`HtoD`), or of anything else that has one.
    pub kind: Option<Text>,
    /// `kernel_backend` of generated kernels.
    pub kernel_backend: Option<Text>,
    /// `kernel_file` of generated kernels.
    pub kernel_file: Option<Text>,
}

/// Arguments of a synchronisation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sync {
    /// `Stream Sync`, `Event Sync`, `Context Sync`, `Stream Wait Event`.
    pub kind: Option<Text>,
    /// Stream whose event is waited for.
    pub on_stream: Option<i64>,
    /// Correlation of the call that recorded the event waited for.
    pub on_correlation: Option<i64>,
    /// The event waited for.
    pub on_event: Option<i64>,
}

/// How a kernel was launched.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Launch {
    /// Blocks, by dimension.
    pub grid: [u32; 3],
    /// Threads of a block, by dimension.
    pub block: [u32; 3],
    /// Registers of a thread.
    pub registers: Option<u32>,
    /// Shared memory of a block, bytes.
    pub shared_bytes: Option<u64>,
}

/// Shapes and types of a CPU operator's inputs; all lists have one entry an input.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Operands {
    /// Extents.
    pub dims: Vec<Dims>,
    /// Element types, or `Scalar`, `ScalarList`, `TensorList`, or nothing.
    pub types: Vec<Text>,
    /// Distances between elements; empty where not recorded.
    pub strides: Vec<Dims>,
    /// Values of scalars as text; empty where not recorded.
    pub values: Vec<Text>,
}

/// Extents of a tensor, or of each tensor of a list.
#[derive(Debug, Clone, PartialEq)]
pub enum Dims {
    /// One tensor; also what is no tensor (no extents).
    One(Box<[i64]>),
    /// A list of tensors.
    Many(Vec<Dims>),
}

/// An arrow between two events.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Both ends have the same.
    pub id: i64,
    /// Whether this is where it starts.
    pub start: bool,
    /// Process.
    pub pid: Track,
    /// Thread.
    pub tid: Track,
    /// Time, ns.
    pub ts_ns: i64,
}

/// Where the process stood among others.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Distributed {
    /// `nccl`, `gloo`, ...
    pub backend: Option<String>,
    /// Rank of the process.
    pub rank: Option<u64>,
    /// Number of ranks.
    pub world_size: Option<u64>,
    /// Process groups.
    pub groups: Vec<super::host::ProcessGroup>,
}

/// A device of the machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceProperties {
    /// Number.
    pub id: Option<u64>,
    /// `NVIDIA A100-SXM4-80GB`.
    pub name: Option<String>,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
}
