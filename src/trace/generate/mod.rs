//! Chakra traces from nothing recorded: from ASTRA-sim's text workloads ([`layers`]), and small patterns that try one thing each
//! ([`patterns`]), as Chakra's own tools (`chakra_converter Text`, `chakra_generator`, version 1.0.0) make them. Ids begin at 0 on each rank.

pub mod layers;
pub mod patterns;

use super::TraceError;
use super::chakra::{Attr, CommType, Metadata, Node, NodeType, Scalar, VERSION, Writer};
use super::output::{fill, no_other_run};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Written {
    /// Ranks, which is files.
    pub ranks: u64,
    /// Nodes of all ranks.
    pub nodes: u64,
    /// Time of computation of all ranks, us.
    pub compute_us: u128,
    /// Bytes of all ranks by kind of communication (`comm_size`).
    pub bytes: BTreeMap<String, u128>,
}

/// Writes the same trace for each rank: `PREFIX.<rank>.et`.
///
/// # Errors
/// [`TraceError`] when a file cannot be written.
pub fn write(
    folder: &Path,
    prefix: &str,
    ranks: u64,
    metadata: &Metadata,
    nodes: &[Node],
) -> Result<Written, TraceError> {
    no_other_run(folder, prefix, |rank| rank < ranks, false)?;
    std::fs::create_dir_all(folder).map_err(|e| TraceError::io(folder, &e))?;
    for rank in 0..ranks {
        let path = folder.join(format!("{prefix}.{rank}.et"));
        let all = |out: &mut super::output::Out| -> io::Result<()> {
            let mut writer = Writer::new(out, metadata)?;
            nodes.iter().try_for_each(|n| writer.node(n))
        };
        fill(Some(&path), all).map_err(|e| TraceError::io(&path, &e))?;
    }
    let mut written = Written { ranks, nodes: nodes.len() as u64 * ranks, ..Written::default() };
    for node in nodes {
        if node.kind == NodeType::Comp {
            written.compute_us += u128::from(node.duration_micros) * u128::from(ranks);
        }
        if let (Some(kind), Some(bytes)) = (node.comm_type(), node.uint("comm_size")) {
            *written.bytes.entry(kind.name().into()).or_default() += u128::from(bytes) * u128::from(ranks);
        }
    }
    Ok(written)
}

fn metadata(attrs: Vec<Attr>) -> Metadata {
    Metadata { version: VERSION.into(), attrs, unknown: Vec::new() }
}

/// A node on the device: ASTRA-sim passes over communication that does not say so.
fn node(id: usize, name: String, kind: NodeType) -> Node {
    Node::new(id as u64, name.into(), kind).with("is_cpu_op", Scalar::Bool(false))
}

fn collective(id: usize, name: String, kind: CommType, bytes: i64) -> Node {
    node(id, name, NodeType::Coll)
        .with("comm_type", Scalar::Int64(kind.number()))
        .with("comm_size", Scalar::Int64(bytes))
}
