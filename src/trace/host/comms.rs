//! Collectives and process groups in execution traces.

use super::{Arg, HostNode, ProcessGroup};
use crate::trace::Collective;
use crate::trace::intern::Interner;
use serde::Deserialize;

/// Reads the arguments of `record_param_comms` of builds before 1.1.0, which has them as attributes: tensors, sequence number, group
/// (a pointer, or a tuple of name and description), rank, name, input and output split, then the group's size or its first rank,
/// stride and size. Told apart by types.
pub(super) fn from_inputs(node: &HostNode) -> Option<Collective> {
    let mut args = node.inputs.iter().peekable();
    let mut found = Collective::default();
    let (mut elements, mut dtype) = (0u64, None);
    while let Some(arg) = args.peek() {
        let tensors: Vec<_> = arg.tensors().collect();
        if tensors.is_empty() && !matches!(arg, Arg::List(items) if items.is_empty()) {
            break;
        }
        for t in tensors {
            elements = elements.saturating_add(t.num_elem);
            dtype.get_or_insert_with(|| t.dtype.clone());
        }
        args.next();
    }
    found.in_elems = Some(elements);
    found.out_elems = Some(node.output_tensors().fold(0u64, |sum, t| sum.saturating_add(t.num_elem)));
    found.dtype = dtype.or_else(|| node.output_tensors().next().map(|t| t.dtype.clone()));
    let mut numbers = Vec::new();
    let mut splits = Vec::new();
    for arg in args {
        match arg {
            Arg::Str(name) => {
                found.name.get_or_insert_with(|| name.clone());
            }
            Arg::List(items) if found.name.is_none() => {
                if let [Arg::Str(group), Arg::Str(desc)] = items.as_slice() {
                    found.group = Some(group.clone());
                    found.group_desc = Some(desc.clone());
                }
            }
            Arg::List(_) => splits.push(arg.ints().unwrap_or_default()),
            Arg::Int(i) => numbers.push((found.name.is_some(), *i)),
            _ => {}
        }
    }
    found.name.as_ref()?;
    let before: Vec<i64> = numbers.iter().filter(|(after, _)| !after).map(|&(_, i)| i).collect();
    let after: Vec<i64> = numbers.iter().filter(|(after, _)| *after).map(|&(_, i)| i).collect();
    found.seq = before.first().copied();
    if let [_, pointer, rank] = before.as_slice() {
        // Builds before the tuple: a pointer tells groups of one process apart, nothing more.
        found.group = Some(pointer.to_string().into());
        found.rank = Some(*rank);
    } else if let [_, rank] = before.as_slice() {
        found.rank = Some(*rank);
    }
    match after.as_slice() {
        [size] => found.group_size = u64::try_from(*size).ok(),
        [start, stride, size] => {
            found.rank_start = Some(*start);
            found.rank_stride = Some(*stride);
            found.group_size = u64::try_from(*size).ok();
        }
        _ => {}
    }
    let unsigned = |list: &Vec<i64>| list.iter().filter_map(|&i| u64::try_from(i).ok()).collect();
    found.in_split = splits.first().map(unsigned).unwrap_or_default();
    found.out_split = splits.get(1).map(unsigned).unwrap_or_default();
    Some(found)
}

/// What an attribute of a 1.1.0 node says about a collective; `false` when it says nothing.
pub(super) fn from_attribute(
    collective: &mut Option<Box<Collective>>,
    name: &str,
    value: &crate::trace::raw::Raw<'_>,
    strings: &mut Interner,
) -> bool {
    let known = [
        "collective_name",
        "dtype",
        "in_msg_nelems",
        "out_msg_nelems",
        "in_split_size",
        "out_split_size",
        "global_rank_start",
        "global_rank_stride",
        "pg_name",
        "pg_desc",
        "pg_size",
    ];
    if !known.contains(&name) {
        return false;
    }
    let c = collective.get_or_insert_default();
    let mut text = || value.text().filter(|t| !t.is_empty()).map(|t| strings.get(t));
    match name {
        "collective_name" => c.name = text(),
        "dtype" => c.dtype = text(),
        "pg_name" => c.group = text(),
        "pg_desc" => c.group_desc = text(),
        "in_msg_nelems" => c.in_elems = value.unsigned(),
        "out_msg_nelems" => c.out_elems = value.unsigned(),
        "pg_size" => c.group_size = value.unsigned(),
        "global_rank_start" => c.rank_start = value.integer(),
        "global_rank_stride" => c.rank_stride = value.integer(),
        "in_split_size" => c.in_split = split(value),
        _ => c.out_split = split(value),
    }
    true
}

/// A split written as a list, or as a list in a string; long ones are cut short by the observer and then empty here.
fn split(value: &crate::trace::raw::Raw<'_>) -> Vec<u64> {
    match value.integers() {
        Some(list) => list.iter().filter_map(|&i| u64::try_from(i).ok()).collect(),
        None => value.text().and_then(crate::trace::collective::list_of_integers).unwrap_or_default(),
    }
}

/// One entry of the JSON in `## process_group:init ##`.
#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    pg_name: String,
    #[serde(default)]
    pg_desc: String,
    #[serde(default)]
    backend_config: String,
    #[serde(default)]
    ranks: Vec<u64>,
    #[serde(default)]
    group_size: Option<u64>,
}

/// Process groups announced by the nodes.
pub(super) fn process_groups(nodes: &[HostNode]) -> Vec<ProcessGroup> {
    let mut groups: Vec<ProcessGroup> = Vec::new();
    for node in nodes.iter().filter(|n| n.name.contains("process_group:init")) {
        for arg in &node.inputs {
            let Arg::Str(text) = arg else { continue };
            let Ok(list) = serde_json::from_str::<Vec<Written>>(text) else { continue };
            for w in list {
                let group = ProcessGroup {
                    name: w.pg_name,
                    desc: w.pg_desc,
                    backend: w.backend_config,
                    ranks: w.ranks,
                    size: w.group_size,
                };
                if !groups.contains(&group) {
                    groups.push(group);
                }
            }
        }
    }
    groups
}
