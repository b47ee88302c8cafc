//! A collective as a trace records it: the arguments that PyTorch's `record_param_comms` and Kineto's events share.

use super::Text;
use super::chakra::CommType;

/// Arguments of one collective or point-to-point call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Collective {
    /// As recorded: `allreduce`, `_allgather_base`, `send`, ...
    pub name: Option<Text>,
    /// Element type as recorded: `Float`, `Half`, ...
    pub dtype: Option<Text>,
    /// Elements of this rank's input.
    pub in_elems: Option<u64>,
    /// Elements of this rank's output.
    pub out_elems: Option<u64>,
    /// Input split sizes of an all-to-all, as elements of the first dimension a rank.
    pub in_split: Vec<u64>,
    /// Output split sizes.
    pub out_split: Vec<u64>,
    /// First global rank of the group.
    pub rank_start: Option<i64>,
    /// Distance between global ranks of the group.
    pub rank_stride: Option<i64>,
    /// Name of the process group.
    pub group: Option<Text>,
    /// Description of the process group.
    pub group_desc: Option<Text>,
    /// Ranks in the group.
    pub group_size: Option<u64>,
    /// Global ranks of the group, where listed.
    pub group_ranks: Vec<u64>,
    /// Rank of the caller in the group (or the peer, for point-to-point calls), where recorded.
    pub rank: Option<i64>,
    /// Sender of a point-to-point call.
    pub src: Option<i64>,
    /// Receiver of a point-to-point call.
    pub dst: Option<i64>,
    /// Sequence number in the group.
    pub seq: Option<i64>,
    /// Whether the caller did not wait.
    pub asynchronous: Option<bool>,
}

/// What a recorded name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// A collective.
    Collective(CommType),
    /// A point-to-point send.
    Send,
    /// A point-to-point receive.
    Recv,
    /// Waits for another, or does not communicate by itself.
    Wait,
}

impl Call {
    /// From a name as PyTorch's backends record it: `allreduce`, `_allgather_base`, `all_to_allv`, ...; `None` for names unknown.
    pub fn from_name(name: &str) -> Option<Self> {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        let collective = |kind| Some(Self::Collective(kind));
        // Longer names come before what they contain: reducescatter before reduce, allgather before gather.
        const NAMES: [(&str, CommType); 10] = [
            ("reducescatter", CommType::ReduceScatter),
            ("allreduce", CommType::AllReduce),
            ("allgather", CommType::AllGather),
            ("alltoall", CommType::AllToAll),
            ("broadcast", CommType::Broadcast),
            ("barrier", CommType::Barrier),
            ("gather", CommType::Gather),
            ("scatter", CommType::Scatter),
            ("reduce", CommType::Reduce),
            ("bcast", CommType::Broadcast),
        ];
        match plain.as_str() {
            "wait" | "init" | "startcoalescing" | "endcoalescing" | "coalesced" => return Some(Self::Wait),
            _ => {}
        }
        if let Some((_, kind)) = NAMES.iter().find(|(word, _)| plain.contains(word)) {
            return collective(*kind);
        }
        if plain.contains("send") {
            return Some(Self::Send);
        }
        plain.contains("recv").then_some(Self::Recv)
    }

    /// A name for people: that of Chakra's schema, or `SEND`, `RECV`, `WAIT`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Collective(kind) => kind.name(),
            Self::Send => "SEND",
            Self::Recv => "RECV",
            Self::Wait => "WAIT",
        }
    }
}

/// Bytes of an element, from a type's name as PyTorch's backends (`Half`) or its C++ (`c10::Half`) write it; `None` for names unknown.
pub fn element_bytes(dtype: &str) -> Option<u64> {
    let plain = dtype.rsplit("::").next().unwrap_or(dtype).to_ascii_lowercase();
    Some(match plain.as_str() {
        "double" | "float64" | "long" | "long int" | "int64" | "uint64" | "complexfloat" | "complex<float>" => 8,
        "float" | "float32" | "int" | "int32" | "uint32" | "complexhalf" | "complex<half>" => 4,
        "half" | "float16" | "bfloat16" | "short" | "short int" | "int16" | "uint16" => 2,
        "byte" | "char" | "bool" | "unsigned char" | "signed char" | "int8" | "uint8" => 1,
        "complexdouble" | "complex<double>" => 16,
        other if other.starts_with("float8") => 1,
        _ => return None,
    })
}

impl Collective {
    /// What it is, from its recorded name.
    pub fn call(&self) -> Option<Call> {
        Call::from_name(self.name.as_deref()?)
    }

    /// Bytes of this rank's input.
    pub fn in_bytes(&self) -> Option<u64> {
        self.in_elems?.checked_mul(element_bytes(self.dtype.as_deref()?)?)
    }
}

/// Integers of a list written as text: `[0, 1, 2]`, also with `...` in it (Kineto cuts long lists short); `None` when cut short
/// or when anything else stands there.
pub fn list_of_integers(text: &str) -> Option<Vec<u64>> {
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner.split(',').map(|item| item.trim().parse().ok()).collect()
}

/// The collective or message that a host thread's range carries out, by the range's name: backends that compute on the host have threads of their own for
/// them (gloo). Ranges of others (`nccl:...`) only hand work to the device.
pub(crate) fn host_collective(range: &str) -> Option<&str> {
    range.strip_prefix("gloo:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_calls() {
        for (name, call) in [
            ("allreduce", Call::Collective(CommType::AllReduce)),
            ("allreduce_coalesced", Call::Collective(CommType::AllReduce)),
            ("_allgather_base", Call::Collective(CommType::AllGather)),
            ("all_gather_into_tensor_coalesced", Call::Collective(CommType::AllGather)),
            ("_reduce_scatter_base", Call::Collective(CommType::ReduceScatter)),
            ("all_to_allv", Call::Collective(CommType::AllToAll)),
            ("broadcast", Call::Collective(CommType::Broadcast)),
            ("_reduce_oop", Call::Collective(CommType::Reduce)),
            ("gather", Call::Collective(CommType::Gather)),
            ("scatter", Call::Collective(CommType::Scatter)),
            ("barrier", Call::Collective(CommType::Barrier)),
            ("send", Call::Send),
            ("recv", Call::Recv),
            ("recvAnysource", Call::Recv),
            ("wait", Call::Wait),
        ] {
            assert_eq!(Call::from_name(name), Some(call), "{name}");
        }
        assert_eq!(Call::from_name("dance"), None);
    }

    #[test]
    fn bytes_of_a_collective() {
        let c = Collective { dtype: Some("c10::Half".into()), in_elems: Some(3), ..Default::default() };
        assert_eq!(c.in_bytes(), Some(6));
        assert_eq!(element_bytes("c10::complex<float>"), Some(8));
        assert_eq!(element_bytes("Float8_e4m3fn"), Some(1));
        assert_eq!(element_bytes("quaternion"), None);
    }

    #[test]
    fn lists_in_text() {
        assert_eq!(list_of_integers("[0, 1, 7]"), Some(vec![0, 1, 7]));
        assert_eq!(list_of_integers("[]"), Some(vec![]));
        assert_eq!(list_of_integers("[0, 1, ..., 7]"), None);
        assert_eq!(list_of_integers(""), None);
    }
}
