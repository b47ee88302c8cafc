//! The nodes of one rank's trace while it is written, with the attributes that ASTRA-sim's feeder reads.

use super::Written;
use crate::trace::chakra::{Attr, CommType, Metadata, Node, NodeType, Scalar, VERSION, Writer};
use std::io::{self, Write};

/// A name of the metadata.
pub(super) fn text(name: &str, value: &str) -> Attr {
    Attr::new(name, Scalar::String(value.into()))
}

/// A number of the metadata, or a size.
pub(super) fn number(name: &str, value: u64) -> Attr {
    Attr::new(name, Scalar::Int64(i64::try_from(value).unwrap_or(i64::MAX)))
}

/// The metadata of a trace: who wrote it, and what `attrs` say.
pub(super) fn metadata(attrs: Vec<Attr>) -> Metadata {
    let generator = text("generator", concat!("flowspace ", env!("CARGO_PKG_VERSION")));
    Metadata { version: VERSION.into(), attrs: [vec![generator], attrs].concat(), unknown: Vec::new() }
}

/// Nodes, numbered as they come.
pub(super) struct Nodes<'a, W> {
    writer: Writer<W>,
    /// Counts of all ranks.
    pub(super) written: &'a mut Written,
    id: u64,
}

impl<'a, W: Write> Nodes<'a, W> {
    pub(super) fn new(out: W, metadata: &Metadata, written: &'a mut Written) -> io::Result<Self> {
        Ok(Self { writer: Writer::new(out, metadata)?, written, id: 0 })
    }

    pub(super) fn finish(self) -> io::Result<()> {
        self.writer.finish().flush()
    }

    fn put(&mut self, name: &str, kind: NodeType, deps: &[u64], micros: u64, attrs: Vec<Attr>) -> io::Result<u64> {
        let mut node = Node::new(self.id, name.into(), kind);
        node.data_deps = deps.to_vec();
        node.data_deps.sort_unstable();
        node.data_deps.dedup();
        node.duration_micros = micros;
        node.attrs = attrs;
        node.attrs.push(Attr::new("is_cpu_op", Scalar::Bool(false)));
        self.writer.node(&node)?;
        self.id += 1;
        self.written.nodes += 1;
        Ok(node.id)
    }

    /// Computation: FLOP, DRAM bytes, microseconds.
    pub(super) fn compute(
        &mut self,
        name: &str,
        deps: &[u64],
        (flop, bytes, micros): (u64, u64, u64),
    ) -> io::Result<u64> {
        // ASTRA-sim divides both ways: neither may be 0.
        let attrs = vec![number("num_ops", flop.max(1)), Attr::new("tensor_size", Scalar::Uint64(bytes.max(1)))];
        self.put(name, NodeType::Comp, deps, micros, attrs)
    }

    /// A collective of a group; `bytes` as `comm_size` means them.
    pub(super) fn collective(
        &mut self,
        name: &str,
        deps: &[u64],
        group: &str,
        kind: CommType,
        bytes: u64,
    ) -> io::Result<u64> {
        let attrs = vec![
            Attr::new("comm_type", Scalar::Int64(kind.number())),
            number("comm_size", bytes),
            text("pg_name", group),
        ];
        *self.written.bytes.entry(kind.name().into()).or_default() += u128::from(bytes);
        self.put(&format!("{name}, {}", kind.name()), NodeType::Coll, deps, 0, attrs)
    }

    /// One end of a message between the ranks `src` and `dst`.
    pub(super) fn message(
        &mut self,
        name: &str,
        deps: &[u64],
        kind: NodeType,
        (src, dst): (u64, u64),
        tag: u64,
        bytes: u64,
    ) -> io::Result<u64> {
        let small = |n: u64| Scalar::Int32(i32::try_from(n).unwrap_or(i32::MAX));
        let attrs = vec![
            Attr::new("comm_src", small(src)),
            Attr::new("comm_dst", small(dst)),
            // It may come round again after 2^31 messages.
            Attr::new("comm_tag", small(tag % (1 << 31))),
            number("comm_size", bytes),
        ];
        let word = if kind == NodeType::Send { "SEND" } else { "RECV" };
        *self.written.bytes.entry(word.into()).or_default() += u128::from(bytes);
        self.put(&format!("{name}, {word}"), kind, deps, 0, attrs)
    }
}
