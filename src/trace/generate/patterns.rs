//! Small traces that try one thing each: the fourteen that `chakra_generator` makes.

use super::{collective, metadata, node};
use crate::trace::Text;
use crate::trace::chakra::{Attr, CommType, Kind, Metadata, Node, NodeType, Scalar, Value};

/// A pattern, named as `chakra_generator` names its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Pattern {
    /// One metadata node with an attribute of every type.
    OneMetadataNodeAllTypes,
    /// One load from remote memory.
    OneRemoteMemLoadNode,
    /// One store to remote memory.
    OneRemoteMemStoreNode,
    /// One computation.
    OneCompNode,
    /// Two computations side by side.
    TwoCompNodesIndependent,
    /// Two computations, the second behind the first.
    TwoCompNodesDependent,
    /// One all-reduce.
    AllReduce,
    /// One all-to-all.
    AllToAll,
    /// One all-gather.
    AllGather,
    /// One reduce-scatter.
    ReduceScatter,
    /// One broadcast.
    Broadcast,
    /// One barrier.
    Barrier,
    /// One send, without a peer.
    OneCommSendNode,
    /// One receive, without a peer.
    OneCommRecvNode,
}

/// Sizes of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Of a computation, us.
    pub runtime_us: u64,
    /// Of a tensor that is loaded, stored, sent or received, bytes.
    pub tensor_bytes: u64,
    /// Of a collective, bytes.
    pub comm_bytes: i64,
}

/// The trace of each rank.
pub fn trace(pattern: Pattern, sizes: Sizes) -> (Metadata, Vec<Node>) {
    let comp = |id| {
        let mut node = node(id, "COMP_NODE".into(), NodeType::Comp);
        node.duration_micros = sizes.runtime_us;
        node
    };
    let tensor =
        |kind: NodeType| vec![node(0, kind.name(), kind).with("tensor_size", Scalar::Uint64(sizes.tensor_bytes))];
    let coll = |kind: CommType| {
        let bytes = if kind == CommType::Barrier { 0 } else { sizes.comm_bytes };
        vec![collective(0, kind.name().into(), kind, bytes)]
    };
    let nodes = match pattern {
        Pattern::OneMetadataNodeAllTypes => vec![every_type()],
        Pattern::OneRemoteMemLoadNode => tensor(NodeType::MemLoad),
        Pattern::OneRemoteMemStoreNode => tensor(NodeType::MemStore),
        Pattern::OneCompNode => vec![comp(0)],
        Pattern::TwoCompNodesIndependent => vec![comp(0), comp(1)],
        Pattern::TwoCompNodesDependent => vec![comp(0), Node { data_deps: vec![0], ..comp(1) }],
        Pattern::AllReduce => coll(CommType::AllReduce),
        Pattern::AllToAll => coll(CommType::AllToAll),
        Pattern::AllGather => coll(CommType::AllGather),
        Pattern::ReduceScatter => coll(CommType::ReduceScatter),
        Pattern::Broadcast => coll(CommType::Broadcast),
        Pattern::Barrier => coll(CommType::Barrier),
        Pattern::OneCommSendNode => tensor(NodeType::Send),
        Pattern::OneCommRecvNode => tensor(NodeType::Recv),
    };
    (metadata(Vec::new()), nodes)
}

/// One attribute of each kind, alone and as a list.
fn every_type() -> Node {
    let mut out = Node::new(0, "METADATA_NODE".into(), NodeType::Metadata);
    for kind in Kind::ALL {
        let (one, other) = two(kind);
        let name = kind.name();
        // Remarks stand where Chakra's file has them.
        let fixed = matches!(kind, Kind::Fixed32 | Kind::Fixed64 | Kind::Sfixed32 | Kind::Sfixed64 | Kind::Bytes);
        let doc = if fixed { "" } else { name };
        out.attrs.push(Attr { doc: doc.into(), ..Attr::new(name, one.clone()) });
        let items = match kind {
            Kind::Bool => (0..10).map(|i| Scalar::Bool(i % 2 == 0)).collect(),
            Kind::String => (12345..12355).map(|i| Scalar::String(i.to_string().into())).collect(),
            Kind::Bytes => (12345..12355).map(|i| Scalar::Bytes(i.to_string().into_bytes().into())).collect(),
            _ => vec![positive(one), other],
        };
        let value = Some(Value::List(kind, items));
        out.attrs.push(Attr { name: format!("{name}_list").into(), doc: Text::default(), value, unknown: Vec::new() });
    }
    out
}

/// In lists the first number is positive.
fn positive(scalar: Scalar) -> Scalar {
    match scalar {
        Scalar::Sint32(n) => Scalar::Sint32(n.abs()),
        Scalar::Sint64(n) => Scalar::Sint64(n.abs()),
        Scalar::Sfixed32(n) => Scalar::Sfixed32(n.abs()),
        Scalar::Sfixed64(n) => Scalar::Sfixed64(n.abs()),
        other => other,
    }
}

/// The values of numbers in Chakra's file.
fn two(kind: Kind) -> (Scalar, Scalar) {
    const LONG: (u64, u64) = (9_876_543_210, 1_234_567_890);
    let signed = (LONG.0 as i64, LONG.1 as i64);
    match kind {
        Kind::Double => (Scalar::Double(1.2345), Scalar::Double(2.3456)),
        Kind::Float => (Scalar::Float(1.2345), Scalar::Float(2.3456)),
        Kind::Int32 => (Scalar::Int32(12345), Scalar::Int32(23456)),
        Kind::Int64 => (Scalar::Int64(signed.0), Scalar::Int64(signed.1)),
        Kind::Uint32 => (Scalar::Uint32(12345), Scalar::Uint32(23456)),
        Kind::Uint64 => (Scalar::Uint64(LONG.0), Scalar::Uint64(LONG.1)),
        Kind::Sint32 => (Scalar::Sint32(-12345), Scalar::Sint32(-23456)),
        Kind::Sint64 => (Scalar::Sint64(-signed.0), Scalar::Sint64(-signed.1)),
        Kind::Fixed32 => (Scalar::Fixed32(12345), Scalar::Fixed32(23456)),
        Kind::Fixed64 => (Scalar::Fixed64(LONG.0), Scalar::Fixed64(LONG.1)),
        Kind::Sfixed32 => (Scalar::Sfixed32(-12345), Scalar::Sfixed32(-23456)),
        Kind::Sfixed64 => (Scalar::Sfixed64(-signed.0), Scalar::Sfixed64(-signed.1)),
        Kind::Bool => (Scalar::Bool(true), Scalar::Bool(false)),
        Kind::String => (Scalar::String("12345".into()), Scalar::String("12346".into())),
        Kind::Bytes => (Scalar::Bytes(b"12345".as_slice().into()), Scalar::Bytes(b"12346".as_slice().into())),
    }
}
