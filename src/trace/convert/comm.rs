//! Communication in the terms of Chakra: kind, bytes, group, peers.

use crate::trace::chakra::{CommGroups, CommType, Made, NodeType};
use crate::trace::collective::host_collective;
use crate::trace::host::RECORD_PARAM_COMMS;
use crate::trace::link::{LinkedNode, LinkedTrace};
use crate::trace::{Collective, Text};
use std::collections::{BTreeMap, HashMap};

/// A communication operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommCall {
    /// Name as recorded.
    pub name: Text,
    /// Kind of the node.
    pub kind: NodeType,
    /// Kind of the collective; none for point-to-point operations.
    pub collective: Option<CommType>,
    /// Bytes as `comm_size` means them: what this rank contributes to an all-gather or gather, the whole buffer otherwise.
    pub bytes: u64,
}

impl CommCall {
    /// A word for reports.
    pub fn word(&self) -> &'static str {
        match (self.kind, self.collective) {
            (NodeType::Send, _) => "SEND",
            (NodeType::Recv, _) => "RECV",
            (_, Some(c)) => c.name(),
            _ => "?",
        }
    }
}

/// What a name means: a collective or one side of a transfer. Names of PyTorch (`allreduce_coalesced`, `_allgather_base`), of its
/// annotations (`nccl:all_reduce`) and of kernels (`ncclDevKernel_AllReduce_Sum_f16_RING_LL`).
fn meaning(name: &str) -> Option<(NodeType, Option<CommType>)> {
    // Letters alone, small: `all_reduce`, `AllReduce` and `allreduce` are one.
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    use CommType::*;
    // Longer words first: `allreduce` holds `reduce`.
    const WORDS: [(&str, CommType); 15] = [
        ("allreduce", AllReduce),
        ("crossdevicereduce", AllReduce),
        ("reducescatterblock", ReduceScatterBlock),
        ("reducescatter", ReduceScatter),
        ("allgather", AllGather),
        ("alltoall", AllToAll),
        ("a2a", AllToAll),
        ("broadcast", Broadcast),
        ("bcast", Broadcast),
        ("barrier", Barrier),
        ("gather", Gather),
        ("scatter", Scatter),
        ("multimemall", AllReduce),
        ("twoshotall", AllReduce),
        ("reduce", Reduce),
    ];
    // A kernel for both directions says nothing about which one is meant.
    if !plain.contains("sendrecv") {
        if plain.contains("isend") || plain.ends_with("send") {
            return Some((NodeType::Send, None));
        }
        if plain.contains("irecv") || plain.ends_with("recv") || plain.ends_with("recvanysource") {
            return Some((NodeType::Recv, None));
        }
    }
    WORDS.iter().find(|(word, _)| plain.contains(word)).map(|&(_, c)| (NodeType::Coll, Some(c)))
}

/// Bytes of an element, from PyTorch's name of the type (`Half`, `c10::Half`, `float`) or NCCL's (`f16`).
pub fn element_bytes(dtype: &str) -> Option<u64> {
    let plain = dtype.strip_prefix("c10::").unwrap_or(dtype).to_ascii_lowercase();
    Some(match plain.as_str() {
        "double" | "float64" | "f64" | "long" | "long int" | "int64" | "int64_t" | "complex<float>"
        | "complexfloat" | "u64" | "i64" | "uint64" => 8,
        "complex<double>" | "complexdouble" => 16,
        "float" | "float32" | "f32" | "int" | "int32" | "u32" | "i32" | "uint32" | "complexhalf" | "complex<half>" => 4,
        "half" | "float16" | "f16" | "bfloat16" | "bf16" | "short" | "int16" | "uint16" => 2,
        "byte" | "char" | "bool" | "unsigned char" | "signed char" | "uint8" | "int8" | "u8" | "i8" => 1,
        other if other.starts_with("float8") || other.starts_with("f8") => 1,
        _ => return None,
    })
}

/// Bytes of one operation.
fn bytes(c: &Collective, kind: Option<CommType>) -> u64 {
    let size = c.dtype.as_deref().and_then(element_bytes).unwrap_or(0);
    let (input, output) = (c.in_elems.unwrap_or(0), c.out_elems.unwrap_or(0));
    let elements = match kind {
        Some(CommType::AllGather | CommType::Gather) => input,
        Some(CommType::Scatter) => output.max(1).min(if input == 0 { u64::MAX } else { input }),
        Some(CommType::Barrier) => 0,
        _ => input.max(output),
    };
    elements.saturating_mul(size)
}

/// What a communication kernel does: by its recorded collective, by what called it, by its name.
pub fn comm_call(trace: &LinkedTrace, node: &LinkedNode) -> Option<CommCall> {
    let collective = node.collective.as_deref();
    let mut found = collective.and_then(|c| c.name.as_deref()).and_then(meaning);
    let mut at = node.parent;
    while let (None, Some(n)) = (found, at.and_then(|a| trace.node(a))) {
        if n.name.starts_with("nccl:")
            || n.name.starts_with("c10d::")
            || host_collective(&n.name).is_some()
            || n.name.starts_with("rccl:")
        {
            found = meaning(&n.name);
        }
        at = n.parent;
    }
    // The kernel's own name last: it may say SendRecv of an all-to-all.
    let (kind, of) = found.or_else(|| meaning(node.name.split('(').next().unwrap_or_default()))?;
    let bytes = collective.map_or(0, |c| bytes(c, of));
    Some(CommCall { name: node.name.clone(), kind, collective: of, bytes })
}

/// What recorded arguments say by themselves.
pub fn recorded_call(c: &Collective) -> Option<CommCall> {
    let name = c.name.clone()?;
    let (kind, collective) = meaning(&name)?;
    Some(CommCall { name, kind, collective, bytes: bytes(c, collective) })
}

/// Fewest bytes of a collective: ASTRA-sim cuts it into four chunks, and waits for ever for an all-gather of empty ones.
const LEAST_BYTES: u64 = 4;

/// As simulators can run it: barriers are what PyTorch makes of them for NCCL, an all-reduce of one element, and collectives have at least [`LEAST_BYTES`].
pub(super) fn simulated(call: CommCall) -> CommCall {
    let least = if call.collective.is_some() { LEAST_BYTES } else { 0 };
    let collective = match call.collective {
        Some(CommType::Barrier) => Some(CommType::AllReduce),
        other => other,
    };
    CommCall { collective, bytes: call.bytes.max(least), ..call }
}

/// A collective that the host carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCall {
    /// What it is.
    pub call: CommCall,
    /// How long it takes.
    pub dur_ns: u64,
    /// The node whose time that is: the caller, or an annotation of the thread that carries it out.
    pub carrier: u32,
}

/// Collectives that the host itself carries out, by the node that calls them. There are none where
/// communication kernels run. They are read from `record_param_comms`; where the backend records none (gloo), from the `c10d::` operators,
/// and from the `gloo:` annotations that belong to none of these (buckets of `DistributedDataParallel`).
pub fn host_calls(trace: &LinkedTrace) -> HashMap<u32, HostCall> {
    let mut found = HashMap::new();
    if trace.nodes.iter().any(LinkedNode::is_communication) {
        return found;
    }
    let call = |node: &LinkedNode| recorded_call(node.collective.as_deref()?);
    let host = || (0u32..).zip(&trace.nodes).filter(|(_, n)| !n.kind.on_device() && n.timed);
    for (i, node) in host().filter(|(_, n)| &*n.name == RECORD_PARAM_COMMS) {
        found.extend(call(node).map(|call| (i, HostCall { call, dur_ns: node.dur_ns, carrier: i })));
    }
    if !found.is_empty() {
        return found;
    }
    // Nodes are in order of time: an annotation carries out the last operator before it that has none yet.
    let mut open: Option<u32> = None;
    for (i, node) in host() {
        if node.name.starts_with("c10d::") {
            if let Some(call) = call(node) {
                found.insert(i, HostCall { call, dur_ns: node.dur_ns, carrier: i });
                open = Some(i);
            }
        } else if host_collective(&node.name).is_some() {
            match open.take().and_then(|o| found.get_mut(&o)) {
                Some(of) => (of.dur_ns, of.carrier) = (node.dur_ns, i),
                None => {
                    found.extend(call(node).map(|call| (i, HostCall { call, dur_ns: node.dur_ns, carrier: i })));
                }
            }
        }
    }
    found
}

/// Largest number of a group: ASTRA-sim multiplies it by a million, in 32 bits.
const MOST_GROUPS: u32 = 2147;

/// Process groups by the numbers that simulators want, from 1 on (0 is all ranks there): names that are small numbers stay, others get the next free number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Groups {
    number: BTreeMap<String, u32>,
    ranks: BTreeMap<u32, Vec<u64>>,
}

impl Groups {
    /// The groups of a linked trace beside those of ranks before: groups of the same ranks are one, and no number has two meanings.
    pub fn new(trace: &LinkedTrace, known: &CommGroups) -> Self {
        let mut out = Self::default();
        let small =
            |name: &str| name.parse::<u32>().ok().filter(|&n| (1..=MOST_GROUPS).contains(&n) && n.to_string() == name);
        out.ranks.extend(known.0.iter().filter_map(|(name, ranks)| Some((small(name)?, ranks.clone()))));
        let before = out.ranks.keys().copied().max();
        let own = trace.groups.iter().filter_map(|g| small(&g.name)).max();
        let mut free = before.max(own).map_or(1, |n| n.saturating_add(1));
        for g in &trace.groups {
            // Its own number if that is free or means the same; else that of a group of the same ranks; else a new one.
            let fits = |n: &u32| out.ranks.get(n).is_none_or(|ranks| g.ranks.is_empty() || *ranks == g.ranks);
            let same = || out.ranks.iter().find(|(_, r)| !g.ranks.is_empty() && **r == g.ranks).map(|(n, _)| *n);
            let number = small(&g.name).filter(fits).or_else(same).unwrap_or_else(|| {
                let n = free;
                free = free.saturating_add(1);
                n
            });
            out.number.insert(g.name.clone(), number);
            if !g.ranks.is_empty() {
                out.ranks.insert(number, g.ranks.clone());
            }
        }
        out
    }

    /// Number of a group whose ranks are known.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.number.get(name).copied().filter(|n| self.ranks.contains_key(n))
    }

    /// As a file of groups.
    pub fn file(&self) -> CommGroups {
        CommGroups(self.ranks.iter().map(|(n, ranks)| (n.to_string(), ranks.clone())).collect())
    }
}

/// Adds the attributes of communication, with the kinds that Chakra's feeder reads.
pub(super) fn attributes(out: &mut Made<'_>, call: &CommCall, node: &LinkedNode, trace: &LinkedTrace, groups: &Groups) {
    out.kind = call.kind;
    if let Some(c) = call.collective {
        out.int("comm_type", c.number());
    }
    out.int("comm_size", i64::try_from(call.bytes).unwrap_or(i64::MAX));
    out.int32("comm_priority", 0);
    let Some(c) = node.collective.as_deref() else { return };
    if let Some(group) = c.group.as_deref() {
        if let Some(number) = groups.number(group) {
            out.text("pg_name", &number.to_string());
        }
        out.text("pg_recorded_name", group);
    }
    if let Some(desc) = &c.group_desc {
        out.text("pg_desc", desc);
    }
    if let Some(dtype) = &c.dtype {
        out.text("dtype", dtype);
    }
    if matches!(call.kind, NodeType::Send | NodeType::Recv) {
        let own = trace.rank.and_then(|r| i64::try_from(r).ok());
        // Where only the peer is recorded, it is the other side.
        let (src, dst) = match call.kind {
            NodeType::Send => (c.src.or(own), c.dst.or(c.rank)),
            _ => (c.src.or(c.rank), c.dst.or(own)),
        };
        let int = |v: Option<i64>| v.and_then(|v| i32::try_from(v).ok());
        for (key, value) in [("comm_src", int(src)), ("comm_dst", int(dst)), ("comm_tag", Some(0))] {
            if let Some(v) = value {
                out.int32(key, v);
            }
        }
    }
    for (key, value) in [("in_elems", c.in_elems), ("out_elems", c.out_elems)] {
        if let Some(v) = value {
            out.uint(key, v);
        }
    }
    for (key, list) in [("in_split", &c.in_split), ("out_split", &c.out_split)] {
        if !list.is_empty() {
            out.uints(key, list);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_collectives() {
        use CommType::*;
        for (name, wanted) in [
            ("ncclDevKernel_AllReduce_Sum_f16_RING_LL", AllReduce),
            ("ncclKernel_ReduceScatter_RING_LL_Sum_float", ReduceScatter),
            ("_allgather_base", AllGather),
            ("allgather_into_tensor_coalesced", AllGather),
            ("nccl:all_to_all", AllToAll),
            ("all_to_allv", AllToAll),
            ("broadcast", Broadcast),
            ("reduce", Reduce),
            ("gather", Gather),
            ("scatter", Scatter),
            ("barrier", Barrier),
            ("ReduceScatterBlock", ReduceScatterBlock),
            ("_reduce_scatter_base", ReduceScatter),
        ] {
            assert_eq!(meaning(name), Some((NodeType::Coll, Some(wanted))), "{name}");
        }
        assert_eq!(meaning("nccl:send"), Some((NodeType::Send, None)));
        assert_eq!(meaning("c10d::recv_"), Some((NodeType::Recv, None)));
        assert_eq!(meaning("ncclDevKernel_SendRecv"), None);
        assert_eq!(meaning("wait"), None);
        assert_eq!(meaning("ncclDevKernel_Generic"), None);
    }

    #[test]
    fn bytes_by_kind() {
        let c = Collective {
            dtype: Some("Half".into()),
            in_elems: Some(100),
            out_elems: Some(800),
            ..Collective::default()
        };
        assert_eq!(bytes(&c, Some(CommType::AllGather)), 200);
        assert_eq!(bytes(&c, Some(CommType::AllReduce)), 1600);
        assert_eq!(bytes(&c, Some(CommType::Barrier)), 0);
        let c = Collective { in_elems: Some(800), out_elems: Some(100), ..c };
        assert_eq!(bytes(&c, Some(CommType::ReduceScatter)), 1600);
        assert_eq!(bytes(&c, Some(CommType::Scatter)), 200);
        assert_eq!(element_bytes("c10::BFloat16"), Some(2));
        assert_eq!(element_bytes("Float8_e4m3fn"), Some(1));
        assert_eq!(element_bytes("quaternion"), None);
    }
}
