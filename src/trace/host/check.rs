//! Whether a host trace can be believed: callers form a tree, sizes are sizes.
//!
//! `trace info` shows such faults and goes on; what counts FLOP or bytes must stop at them, since a dropped or repeated
//! subtree and a wrapped size give numbers that look like any other.

use super::{HostNode, HostTrace, Tensor};
use crate::trace::chakra::graph::{self, Links};
use crate::trace::error::TraceError;
use std::path::Path;

/// Most elements of a tensor: what a double counts exactly, eight thousand times the largest tensor ever trained.
pub const MOST_ELEMENTS: u64 = 1 << 53;
/// Most bytes of one element: four times the largest dtype of PyTorch (complex128).
const MOST_ELEMENT_BYTES: u64 = 64;

/// Callers of the nodes. 0 and 1 stand for no caller and for the process, which older builds do not write.
pub fn callers(trace: &HostTrace) -> Vec<Links> {
    let known = trace.index();
    let has_caller = |n: &HostNode| n.parent > 1 || (known.contains_key(&n.parent) && n.parent != n.id);
    trace
        .nodes
        .iter()
        .map(|n| Links { id: n.id, data: Vec::new(), ctrl: if has_caller(n) { vec![n.parent] } else { Vec::new() } })
        .collect()
}

/// Every fault of a trace that would make its numbers wrong: ids that stand twice, callers that are not there or
/// that call themselves, tensors whose sizes are negative, absurd or not those of their elements.
pub fn faults(trace: &HostTrace, path: &Path) -> Vec<TraceError> {
    faults_with(trace, &callers(trace), path)
}

/// The same but for callers that are not there, which can be done without.
pub fn faults_but_lost_callers(trace: &HostTrace, path: &Path) -> Vec<TraceError> {
    let known = trace.index();
    let mut links = callers(trace);
    links.iter_mut().for_each(|l| l.ctrl.retain(|c| known.contains_key(c)));
    faults_with(trace, &links, path)
}

fn faults_with(trace: &HostTrace, callers: &[Links], path: &Path) -> Vec<TraceError> {
    let mut errors: Vec<TraceError> = graph::faults(callers, path)
        .into_iter()
        .map(|e| {
            let of_callers = matches!(e.field.as_deref(), Some("ctrl_deps" | "data_deps or ctrl_deps"));
            if of_callers { e.field("ctrl_deps (caller)") } else { e }
        })
        .collect();
    for node in &trace.nodes {
        for (field, args) in [("inputs", &node.inputs), ("outputs", &node.outputs)] {
            for (i, arg) in args.iter().enumerate() {
                for t in arg.tensors().filter(|t| t.is_defined()) {
                    if let Some(message) = fault(t) {
                        errors.push(TraceError::new(path, message).node(node.id).field(format!("{field}[{i}]")));
                    }
                }
            }
        }
    }
    errors
}

fn fault(t: &Tensor) -> Option<String> {
    if let Some(size) = t.shape.iter().find(|s| **s < 0) {
        return Some(format!("shape {:?}: expected sizes of at least 0, found {size}", t.shape));
    }
    if let Some(stride) = t.strides.iter().flatten().find(|s| **s < 0) {
        return Some(format!("strides: expected at least 0, found {stride}"));
    }
    if t.elem_bytes > MOST_ELEMENT_BYTES {
        return Some(format!("expected elements of at most {MOST_ELEMENT_BYTES} B, found {} B", t.elem_bytes));
    }
    let elements = t.shape.iter().try_fold(1u64, |n, s| n.checked_mul(u64::try_from(*s).ok()?));
    let too_large = |n: u64| n > MOST_ELEMENTS;
    match elements {
        Some(n) if !too_large(n) => {}
        _ => return Some(format!("shape {:?} holds more than {MOST_ELEMENTS} elements", t.shape)),
    }
    if too_large(t.num_elem) || too_large(t.offset) {
        return Some(format!("{} elements from {} on: expected at most {MOST_ELEMENTS} of each", t.num_elem, t.offset));
    }
    // Old builds write no shape for some tensors; one of no dimensions has one element.
    if !t.shape.is_empty() && elements != Some(t.num_elem) {
        return Some(format!("shape {:?} does not hold the {} elements stated", t.shape, t.num_elem));
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::trace::host::read_from;
    use std::path::Path;

    fn text(nodes: &str) -> String {
        format!(r#"{{"schema":"1.0.1","nodes":[{nodes}]}}"#)
    }

    fn node(id: u64, parent: u64, elements: &str, shape: &str) -> String {
        format!(
            r#"{{"id":{id},"name":"aten::relu","parent":{parent},"rf_id":1,"fw_parent":0,"seq_id":-1,"scope":0,"tid":1,"fw_tid":0,"op_schema":"",
            "inputs":[],"input_shapes":[],"input_types":[],"outputs":[[1,2,0,{elements},4,"cpu"]],"output_shapes":[{shape}],"output_types":["Tensor(float)"]}}"#
        )
    }

    fn found(nodes: &[String]) -> Vec<String> {
        let trace = read_from(text(&nodes.join(",")).as_bytes(), Path::new("f")).unwrap();
        super::faults(&trace, Path::new("f")).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_fault_is_named() {
        assert!(found(&[node(2, 1, "6", "[2,3]"), node(3, 2, "1", "[]")]).is_empty());
        for (nodes, part) in [
            (vec![node(2, 1, "6", "[2,3]"), node(2, 1, "6", "[2,3]")], "node 2: id: another node"),
            (vec![node(2, 9, "6", "[2,3]")], "node 2: ctrl_deps (caller): there is no node 9"),
            (vec![node(2, 3, "6", "[2,3]"), node(3, 2, "6", "[2,3]")], "waits for itself, through 2, 3"),
            (vec![node(2, 1, "6", "[2,-3]")], "node 2: outputs[0]: shape [2, -3]: expected sizes of at least 0"),
            (vec![node(2, 1, "6", "[4294967296,4294967296]")], "more than 9007199254740992 elements"),
            (vec![node(2, 1, "9007199254740993", "[]")], "expected at most 9007199254740992"),
            (vec![node(2, 1, "7", "[2,3]")], "does not hold the 7 elements"),
        ] {
            let errors = found(&nodes);
            assert!(errors.iter().any(|e| e.contains(part)), "{part}: {errors:?}");
        }
    }
}
