//! The transformer layer that our generator makes, recognised in a list of kernels: same kernels in the same order, same
//! sizes, same edges, nothing more.

use super::Common;
use super::setup::{Comm, Form, Kernel, Llm, Setup, Workload};
use crate::model::Strategy;
use crate::units::Bytes;
use crate::workload::graph::Axis;
use crate::workload::transformer::{Kind, Pass, TransformerSpec};
use crate::workload::{Op, Phase};
use serde_json::{Value as Json, json};

/// A layer recognised.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Its workload file.
    pub tree: Json,
    /// Our names of the kernels, in file order.
    pub names: Vec<String>,
}

/// Recognises the layer.
///
/// # Errors
/// Why the graph is not the generator's.
pub(super) fn recognise(setup: &Setup, common: &Common) -> Result<Layer, String> {
    let Workload::Llm(llm) = &setup.settings.workload else {
        return Err("the settings do not name a transformer".into());
    };
    if llm.layers_in_graph != 1 {
        return Err(format!("it holds {} layers", llm.layers_in_graph));
    }
    let pass = match setup.kernels.len() {
        18 => Pass::Forward,
        41 => Pass::Training,
        n => return Err(format!("it has {n} kernels; a layer of the generator has 18, or 41 with the backward pass")),
    };
    // DFModel's generator declares Q_bwd and K_bwd with the heads side by side.
    let with_heads = compare(setup, common, llm, pass, true);
    match with_heads {
        Ok(layer) => Ok(layer),
        Err(why) => compare(setup, common, llm, pass, false).map_err(|_| why),
    }
}

fn compare(setup: &Setup, common: &Common, llm: &Llm, pass: Pass, heads: bool) -> Result<Layer, String> {
    let heads_in_qk_backward = heads && pass == Pass::Training && llm.heads.saturating_mul(llm.head_dim) == llm.hidden;
    let spec = TransformerSpec {
        kind: Kind::Transformer,
        name: common.name.clone(),
        source: common.source.clone(),
        hidden: llm.hidden,
        heads: llm.heads,
        head_dim: llm.head_dim,
        seq: llm.seq,
        layers: llm.layers,
        word: Bytes(common.word as f64),
        pass,
        global_batch: common.global_batch,
        micro_batch: common.micro_batch,
        heads_in_qk_backward,
    };
    let ours = spec.build();
    for (theirs, ours) in setup.kernels.iter().zip(&ours.kernels) {
        let form = match ours.op {
            Op::GemmWeight => Form::Weight,
            Op::Gemm => Form::TwoTensors,
            _ => Form::Elementwise,
        };
        let s = &ours.shape;
        let sizes = (theirs.outer, theirs.m, theirs.k, theirs.n);
        if sizes != (s.outer, s.m, s.k, s.n) || theirs.form != form {
            return Err(format!(
                "kernel {:?} (outer {}, M {}, K {}, N {}) is not the generator's {:?} (outer {}, M {}, K {}, N {})",
                theirs.name, sizes.0, sizes.1, sizes.2, sizes.3, ours.name, s.outer, s.m, s.k, s.n
            ));
        }
        if theirs.backward != (ours.phase != Phase::Forward) {
            return Err(format!("kernel {:?} is of the other pass", theirs.name));
        }
        if theirs.memory_bytes > 0.0 {
            return Err(format!("kernel {:?} has a memory_size", theirs.name));
        }
        if theirs.tiled_k != (ours.tiled == Axis::K) {
            return Err(format!("kernel {:?} is tiled along another dimension than the generator's", theirs.name));
        }
        let gradient = theirs.rows() as f64 * theirs.n as f64 * common.word as f64;
        for (comm, bytes) in &theirs.comms {
            let expected = match comm {
                Comm::Gradient => ours.phase == Phase::BackwardWeight && (bytes / gradient - 1.0).abs() < 1e-5,
                // Written by the sharding pass for a contracted shard.
                Comm::AllReduce => theirs.sharding == Some(Strategy::K),
                _ => false,
            };
            if !expected {
                return Err(format!("kernel {:?} communicates {bytes} B by itself", theirs.name));
            }
        }
        check_bytes(theirs, common)?;
    }
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
    if let Some((from, to)) = found.iter().find(|e| !wanted.contains(e)) {
        return Err(format!("the generator has no edge from {:?} to {:?}", name(*from), name(*to)));
    }
    if let Some((from, to)) = wanted.iter().find(|e| !found.contains(e)) {
        return Err(format!("the generator has an edge from {:?} to {:?}", name(*from), name(*to)));
    }
    if wanted.len() != found.len() {
        return Err("an edge stands twice".into());
    }
    let mut tree = json!({
        "kind": "transformer",
        "name": spec.name,
        "source": spec.source,
        "hidden": spec.hidden,
        "heads": spec.heads,
        "head_dim": spec.head_dim,
        "seq": spec.seq,
        "layers": spec.layers,
        "word": format!("{} B", common.word),
        "pass": spec.pass,
        "global_batch": spec.global_batch,
        "micro_batch": spec.micro_batch,
    });
    if let (true, Some(map)) = (heads_in_qk_backward, tree.as_object_mut()) {
        map.insert("heads_in_qk_backward".into(), json!(true));
    }
    Ok(Layer { tree, names: ours.kernels.iter().map(|k| k.name.clone()).collect() })
}

/// Whether the bytes that the file gives are those of its sizes.
fn check_bytes(kernel: &Kernel, common: &Common) -> Result<(), String> {
    let word = common.word as f64;
    let sizes = [
        (kernel.output_bytes, kernel.rows() as f64 * kernel.n as f64 * word, "output"),
        (kernel.weight_bytes, kernel.rows() as f64 * kernel.k as f64 * word, "weight"),
    ];
    for (stated, derived, what) in sizes {
        if let Some(stated) = stated.filter(|s| (s / derived - 1.0).abs() > 1e-5) {
            return Err(format!("kernel {:?} states {stated} B of {what}, its sizes give {derived}", kernel.name));
        }
    }
    Ok(())
}
