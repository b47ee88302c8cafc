//! The graphs that our generators make, recognised in a list of kernels: same kernels in the same order, same sizes, same
//! edges, same traffic, nothing more. Such a file becomes the generator's few lines instead of the graph.

use super::setup::{Comm, Form, Kernel, Llm, Setup, Workload as Named};
use super::{Common, Note};
use crate::graph::{Axis, CollectiveKind};
use crate::graph::{Op, Phase, Workload};
use crate::model::Strategy;
use crate::plan::DimensionUse;
use crate::spec::{FromNode, Node, Reader};
use crate::workload::dfmodel_layer::DfmodelLayer;
use crate::workload::dlrm::DlrmSpec;
use crate::workload::fft::FftSpec;
use crate::workload::hpl::HplSpec;
use serde_json::{Value as Json, json};

/// Families of workloads that have a generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Transformers.
    Transformer,
    /// Recommendation models.
    Dlrm,
    /// High-Performance Linpack.
    Hpl,
    /// Fourier transforms.
    Fft,
}

impl Family {
    /// The family that the settings of a run name, if it has a generator.
    pub fn named(setup: &Setup) -> Option<Self> {
        match &setup.settings.workload {
            Named::Llm(_) => Some(Self::Transformer),
            Named::Other(word, _) => match word.as_str() {
                "dlrm" => Some(Self::Dlrm),
                "hpl" => Some(Self::Hpl),
                "fft" => Some(Self::Fft),
                _ => None,
            },
            Named::Unnamed => None,
        }
    }

    /// What DFModel does with the dimensions of a network that do not say what they serve (model.md section 5): a replica
    /// of a recommendation model on each chip; for HPL all but the last dimension are rows of the process grid, the last
    /// its columns; the transforms of an FFT are shared by all chips. None for transformers, whose dimensions say it.
    pub fn uses(self, sizes: &[u64]) -> Option<Vec<DimensionUse>> {
        let last = sizes.len().saturating_sub(1);
        let of = |(i, size): (usize, &u64)| match self {
            Self::Dlrm => DimensionUse { dp: *size, ..DimensionUse::NONE },
            Self::Hpl if i == last => DimensionUse { cols: *size, ..DimensionUse::NONE },
            _ => DimensionUse { rows: *size, ..DimensionUse::NONE },
        };
        (self != Self::Transformer).then(|| sizes.iter().enumerate().map(of).collect())
    }
}

/// A graph recognised.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// Its workload file.
    pub tree: Json,
    /// Our names of the kernels, in file order.
    pub names: Vec<String>,
}

/// Recognises the graph of a generator.
///
/// # Errors
/// Why it is none.
pub(super) fn recognise(setup: &Setup, common: &Common, notes: &mut Vec<Note>) -> Result<Known, String> {
    match (&setup.settings.workload, Family::named(setup)) {
        (Named::Llm(llm), _) => transformer(setup, common, llm),
        (Named::Other(_, numbers), Some(Family::Dlrm)) => dlrm(setup, common, numbers, notes),
        (Named::Other(_, numbers), Some(Family::Hpl)) => hpl(setup, common, numbers),
        (Named::Other(_, numbers), Some(Family::Fft)) => fft(setup, common, numbers, notes),
        (Named::Other(word, _), _) => Err(format!("there is no generator of {word}")),
        (Named::Unnamed, _) => Err("the settings name no kind of workload".into()),
    }
}

/// Reads a tree of ours as a specification and builds its graph, not reordered.
fn built<T: FromNode>(tree: &Json, build: impl Fn(&T) -> Workload) -> Result<Workload, String> {
    let text = serde_saphyr::to_string(tree).map_err(|e| e.to_string())?;
    let node = Node::parse("workload", &text).map_err(|p| p.to_string())?;
    let spec: T = Reader::read(&node)
        .map_err(|p| p.0.first().map_or(String::new(), |p| format!("{}: {}", p.field, p.message)))?;
    Ok(build(&spec))
}

/// A number of the settings.
fn number(numbers: &[(String, u64)], names: &[&str]) -> Result<u64, String> {
    let found = numbers.iter().find(|(name, _)| names.contains(&name.as_str()));
    found.map(|(_, n)| *n).ok_or_else(|| format!("{} is missing", names.join(" or ")))
}

fn transformer(setup: &Setup, common: &Common, llm: &Llm) -> Result<Known, String> {
    if llm.layers_in_graph != 1 {
        return Err(format!("it holds {} layers", llm.layers_in_graph));
    }
    let pass = match setup.kernels.len() {
        18 => "forward",
        41 => "training",
        n => return Err(format!("it has {n} kernels; a layer of the generator has 18, or 41 with the backward pass")),
    };
    if let Some(tp) = super::study::tensor_degree(setup).filter(|tp| !llm.heads.is_multiple_of(*tp)) {
        return Err(format!(
            "{tp} chips do not divide the {} heads; DFModel cuts them, which only a graph can state",
            llm.heads
        ));
    }
    let attempt = |heads: bool| {
        let mut tree = json!({
            "kind": "dfmodel_layer",
            "name": common.name,
            "source": common.source,
            "hidden": llm.hidden,
            "heads": llm.heads,
            "head_dim": llm.head_dim,
            "seq": llm.seq,
            "layers": llm.layers,
            "word": format!("{} B", common.word),
            "pass": pass,
            "global_batch": common.global_batch,
            "micro_batch": common.micro_batch,
        });
        if let (true, Some(map)) = (heads, tree.as_object_mut()) {
            map.insert("heads_in_qk_backward".into(), json!(true));
        }
        let ours = built(&tree, DfmodelLayer::build)?;
        same(setup, &ours, common, Family::Transformer)?;
        Ok(Known { tree, names: names(&ours) })
    };
    // DFModel's generator declares Q_bwd and K_bwd with the heads side by side.
    let heads = pass == "training" && llm.heads.saturating_mul(llm.head_dim) == llm.hidden;
    let first: Result<Known, String> = attempt(heads);
    match first {
        Err(why) if heads => attempt(false).map_err(|_: String| why),
        other => other,
    }
}

fn dlrm(setup: &Setup, common: &Common, numbers: &[(String, u64)], notes: &mut Vec<Note>) -> Result<Known, String> {
    let forward: Vec<&Kernel> = setup.kernels.iter().filter(|k| !k.backward).collect();
    let (Some(first), Some(last_bottom)) =
        (forward.first(), forward.iter().position(|k| k.comms.iter().any(|(c, _)| *c == Comm::AllToAll)))
    else {
        return Err("no forward kernel makes an all-to-all".into());
    };
    let widths: Vec<u64> = forward.iter().map(|k| k.m).collect();
    let (bottom, top) = widths.split_at(last_bottom + 1);
    let exchange = forward[last_bottom].comms.first().map_or(0.0, |(_, bytes)| sent(setup, *bytes));
    let rows = number(numbers, &["row"]).unwrap_or_else(|_| {
        notes.push(Note::assumed("dlrm.row", "1: the tables take no space"));
        1
    });
    let tables = number(numbers, &["num_table"])?;
    let dim = number(numbers, &["emb_dim", "emb"])?;
    // Look-ups of a table and item, from the bytes that they read.
    let lookups =
        forward[last_bottom].memory_bytes / (tables as f64 * dim as f64 * first.n as f64 * common.word as f64);
    if lookups.round() < 1.0 || (lookups / lookups.round() - 1.0).abs() > 1e-5 {
        return Err(format!("its memory_size is {lookups} look-ups a table and item"));
    }
    let tree = json!({
        "kind": "dlrm",
        "name": common.name,
        "source": common.source,
        "dense": first.k,
        "bottom": bottom,
        "top": top,
        "interaction": "chain",
        "tables": tables,
        "rows": rows,
        "dim": dim,
        "lookups": lookups.round() as u64,
        "exchange": super::system::bytes(exchange),
        "minibatch": first.n,
        "pass": if forward.len() == setup.kernels.len() { "forward" } else { "training" },
        "global_batch": common.global_batch,
        "micro_batch": common.micro_batch,
        "word": format!("{} B", common.word),
    });
    let ours = built(&tree, DlrmSpec::build)?;
    same(setup, &ours, common, Family::Dlrm)?;
    Ok(Known { tree, names: names(&ours) })
}

fn hpl(setup: &Setup, common: &Common, numbers: &[(String, u64)]) -> Result<Known, String> {
    let tree = json!({
        "kind": "hpl",
        "name": common.name,
        "source": common.source,
        "n": number(numbers, &["n"])?,
        "block": number(numbers, &["b"])?,
        "iterations": setup.kernels.len(),
        "steps": "gemm",
        "word": format!("{} B", common.word),
    });
    let ours = built(&tree, HplSpec::build)?;
    same(setup, &ours, common, Family::Hpl)?;
    Ok(Known { tree, names: names(&ours) })
}

fn fft(setup: &Setup, common: &Common, numbers: &[(String, u64)], notes: &mut Vec<Note>) -> Result<Known, String> {
    let Some(first) = setup.kernels.first() else { return Err("it has no kernels".into()) };
    // The generator's transforms are as long as the root of the length, rounded down.
    let (stated, length) = (number(numbers, &["length"])?, first.m.saturating_mul(first.m));
    if stated != length {
        let text = format!("{length}, the square of the transforms' {}; the file says {stated}", first.m);
        notes.push(Note::changed("fft.length", None, text));
    }
    // Powers of two first: a radix and its half may give one number of products.
    let powers = (1..=16).map(|bits| 1u64 << bits);
    let radix = powers.chain(2..=4096).find(|r| crate::workload::fft::contracted(first.m, *r) == first.k);
    let tree = json!({
        "kind": "fft",
        "name": common.name,
        "source": common.source,
        "length": length,
        "method": "gemm",
        "radix": radix.ok_or(format!("K of {} is 4 log2({})/log2(r) r for no r", first.k, first.m))?,
        "word": format!("{} B", common.word),
    });
    let ours = built(&tree, FftSpec::build)?;
    same(setup, &ours, common, Family::Fft)?;
    Ok(Known { tree, names: names(&ours) })
}

fn names(workload: &Workload) -> Vec<String> {
    workload.kernels.iter().map(|k| k.name.clone()).collect()
}

/// Whether two sizes in bytes are one, as 32-bit floats hold them.
fn alike(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-5 * one.abs().max(other.abs())
}

/// Bytes that a chip sends in an all-to-all: the first generation states what it sends to each other chip.
pub(super) fn sent(setup: &Setup, bytes: f64) -> f64 {
    if setup.generation.is_first() { bytes * setup.system.chips as f64 } else { bytes }
}

/// Compares the file's graph with a generator's.
fn same(setup: &Setup, ours: &Workload, common: &Common, family: Family) -> Result<(), String> {
    if setup.kernels.len() != ours.kernels.len() {
        return Err(format!("it has {} kernels, the generator's {}", setup.kernels.len(), ours.kernels.len()));
    }
    for (theirs, ours) in setup.kernels.iter().zip(&ours.kernels) {
        let form = match ours.op {
            Op::GemmWeight => Form::Weight,
            Op::Gemm => Form::TwoTensors,
            _ => Form::Elementwise,
        };
        let s = &ours.shape;
        let sizes = (theirs.outer, theirs.m, theirs.k, theirs.n);
        // DFModel declares the matrices of a transform as weights without bytes.
        let constant = family == Family::Fft && theirs.form == Form::Weight && theirs.weight_bytes.is_none();
        if sizes != (s.outer, s.m, s.k, s.n) || (theirs.form != form && !constant) {
            return Err(format!(
                "kernel {:?} (outer {}, M {}, K {}, N {}) is not the generator's {:?} (outer {}, M {}, K {}, N {})",
                theirs.name, sizes.0, sizes.1, sizes.2, sizes.3, ours.name, s.outer, s.m, s.k, s.n
            ));
        }
        if theirs.backward != (ours.phase != Phase::Forward) {
            return Err(format!("kernel {:?} is of the other pass", theirs.name));
        }
        if !alike(theirs.memory_bytes, ours.extra_dram_bytes) {
            return Err(format!("kernel {:?} has a memory_size of {} B", theirs.name, theirs.memory_bytes));
        }
        if family == Family::Transformer && theirs.tiled_k != (ours.tiled == Axis::K) {
            return Err(format!("kernel {:?} is tiled along another dimension than the generator's", theirs.name));
        }
        let gradient = theirs.rows() as f64 * theirs.n as f64 * common.word as f64;
        let own: Vec<(Comm, f64)> = theirs
            .comms
            .iter()
            .filter(|(comm, bytes)| match comm {
                Comm::Gradient => !(ours.phase == Phase::BackwardWeight && alike(*bytes, gradient)),
                // Written by the sharding pass for a contracted shard.
                Comm::AllReduce => theirs.sharding != Some(Strategy::K),
                _ => true,
            })
            .copied()
            .collect();
        let equal = own.len() == ours.collectives.len()
            && own.iter().zip(&ours.collectives).all(|((comm, bytes), c)| {
                let kind = match comm {
                    Comm::AllToAll => CollectiveKind::AllToAll,
                    Comm::AllGather => CollectiveKind::AllGather,
                    Comm::PointToPoint => CollectiveKind::PointToPoint,
                    Comm::Broadcast => CollectiveKind::Broadcast,
                    Comm::AllReduce | Comm::Gradient => CollectiveKind::AllReduce,
                };
                let bytes = if *comm == Comm::AllToAll { sent(setup, *bytes) } else { *bytes };
                kind == c.kind && alike(bytes, c.bytes)
            });
        if !equal {
            return Err(format!("kernel {:?} does not communicate what the generator's does", theirs.name));
        }
        check_bytes(theirs, common)?;
    }
    edges(setup, ours)
}

fn edges(setup: &Setup, ours: &Workload) -> Result<(), String> {
    let mut wanted: Vec<(usize, usize)> = ours
        .tensors
        .iter()
        .filter_map(|t| Some((t.producer?, t)))
        .flat_map(|(p, t)| t.consumers.iter().map(move |u| (p, u.kernel)))
        .collect();
    let mut found: Vec<(usize, usize)> = setup.edges.iter().map(|e| (e.from, e.to)).collect();
    wanted.sort_unstable();
    found.sort_unstable();
    let name = |k: usize| setup.kernels.get(k).map_or("", |k| k.name.as_str());
    if let Some((from, to)) = found.iter().find(|e| wanted.binary_search(e).is_err()) {
        return Err(format!("the generator has no edge from {:?} to {:?}", name(*from), name(*to)));
    }
    if let Some((from, to)) = wanted.iter().find(|e| found.binary_search(e).is_err()) {
        return Err(format!("the generator has an edge from {:?} to {:?}", name(*from), name(*to)));
    }
    if wanted.len() == found.len() { Ok(()) } else { Err("an edge stands twice".into()) }
}

/// Whether the bytes that the file gives are those of its sizes.
fn check_bytes(kernel: &Kernel, common: &Common) -> Result<(), String> {
    let word = common.word as f64;
    let sizes = [
        (kernel.output_bytes, kernel.rows() as f64 * kernel.n as f64 * word, "output"),
        (kernel.weight_bytes, kernel.rows() as f64 * kernel.k as f64 * word, "weight"),
    ];
    for (stated, derived, what) in sizes {
        if let Some(stated) = stated.filter(|s| !alike(*s, derived)) {
            return Err(format!("kernel {:?} states {stated} B of {what}, its sizes give {derived}", kernel.name));
        }
    }
    Ok(())
}
