//! The host trace inside a linked trace, so that a linked file can be lowered without the two files it was made from.
//!
//! Arguments are kept in Python's notation. Strides are not kept.

use super::{Facts, Io, LinkedNode, LinkedTrace, python};
use crate::trace::error::MOST_ERRORS;
use crate::trace::host::{Arg, HostNode, HostTrace, arguments_of};
use crate::trace::ops::{Class, class_of, is_registered, plain_name};
use crate::trace::raw::Raw;
use crate::trace::{Collective, Interner, TraceError, TraceErrors};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::path::Path;

/// The nodes of the host trace, in the order of their ids; `path` is for messages.
///
/// # Errors
/// Nodes whose arguments are not in the notation of linked traces; a trace linked without a host trace.
pub fn host_trace(linked: &LinkedTrace, path: &Path) -> Result<HostTrace, TraceErrors> {
    with_arguments(linked, path, |_| true, |_| true)
}

/// Those nodes alone that tell what calls do: an operator that is counted counts as a whole, whatever it calls in turn ([`crate::trace::lower::host`]). What
/// is called so, which is most nodes, is left out, but for allocations and collectives; they then belong to the operator that counts.
///
/// # Errors
/// As [`host_trace`], of the nodes whose arguments are read.
pub fn counted(linked: &LinkedTrace, path: &Path) -> Result<HostTrace, TraceErrors> {
    // By name: whether it counts as a whole, and whether it allocates.
    let mut known: HashMap<&str, (bool, bool), RandomState> = HashMap::default();
    // Callers stand before what they call.
    let mut whole = vec![(false, false); linked.nodes.len()];
    for (at, node) in linked.nodes.iter().enumerate().filter(|(_, n)| n.host().is_some()) {
        let (counts, allocates) = *known.entry(&*node.name).or_insert_with_key(|name| {
            let (op, free) = (plain_name(name), [Class::View, Class::Host, Class::Allocation]);
            let class = class_of(op);
            (is_registered(op) && !free.contains(&class), class == Class::Allocation)
        });
        whole[at] = (counts, allocates);
    }
    // Whether a node is called by one that counts as a whole.
    let mut inside = vec![false; linked.nodes.len()];
    for (at, node) in linked.nodes.iter().enumerate() {
        let above = node.parent.map(|p| p as usize).filter(|p| *p < at);
        inside[at] = above.is_some_and(|p| inside[p] || whole[p].0);
    }
    let wanted = |at: usize| !inside[at] || whole[at].1;
    with_arguments(linked, path, wanted, |at| wanted(at) || linked.nodes[at].collective.is_some())
}

/// The nodes that are `kept`, with the arguments of those that are `wanted`.
fn with_arguments(
    linked: &LinkedTrace,
    path: &Path,
    wanted: impl Fn(usize) -> bool,
    kept: impl Fn(usize) -> bool,
) -> Result<HostTrace, TraceErrors> {
    let mut trace =
        HostTrace { schema: linked.host_schema.as_deref().unwrap_or("").to_owned(), ..HostTrace::default() };
    let (mut strings, mut lists, mut spare) = (Interner::default(), Lists::default(), python::Spare::new());
    let mut errors = Vec::new();
    for (at, node) in linked.nodes.iter().enumerate() {
        let Facts::Host(facts) = &node.facts else { continue };
        if !kept(at) {
            continue;
        }
        let parent = caller(linked, node.parent, &kept);
        let mut args = |io, field: &str| -> Vec<Arg> {
            if !wanted(at) {
                return Vec::new();
            }
            arguments(io, &mut lists, &mut spare, &mut strings).unwrap_or_else(|message| {
                errors.push(TraceError::new(path, message).node(at).field(field));
                Vec::new()
            })
        };
        let (inputs, outputs) = (args(&facts.inputs, "inputs"), args(&facts.outputs, "outputs"));
        if errors.len() >= MOST_ERRORS {
            break;
        }
        trace.nodes.push(HostNode {
            id: facts.id,
            name: node.name.clone(),
            parent,
            rf_id: facts.rf_id,
            fw_parent: facts.fw_parent,
            seq_id: facts.seq_id,
            scope: facts.scope,
            tid: facts.tid,
            fw_tid: facts.fw_tid,
            op_schema: facts.op_schema.clone(),
            inputs,
            outputs,
            kernel_backend: None,
            kernel_file: None,
            collective: collective(node.collective.as_deref(), linked),
            ts_us: None,
            dur_us: None,
            others: Vec::new(),
        });
    }
    if !errors.is_empty() {
        return Err(TraceErrors(errors));
    }
    if trace.nodes.is_empty() {
        return Err(TraceError::new(
            path,
            "this trace was linked without a host trace, so it names no tensors: link it with --host",
        )
        .into());
    }
    trace.nodes.sort_by_key(|n| n.id);
    Ok(trace)
}

/// Host node of the nearest caller that is a kept one; 1, the process, if there is none.
fn caller(linked: &LinkedTrace, mut above: Option<u32>, kept: impl Fn(usize) -> bool) -> u64 {
    loop {
        let Some((at, n)) = above.and_then(|a| Some((a as usize, linked.node(a)?))) else { return 1 };
        match n.host().filter(|_| kept(at)) {
            Some(f) => return f.id,
            None => above = n.parent,
        }
    }
}

/// Who called each host node, by id: those that were timed by time, the others as the host trace says.
pub fn callers(linked: &LinkedTrace) -> HashMap<u64, u64> {
    let of = |n: &LinkedNode| n.host().map(|f| (f.id, caller(linked, n.parent, |_| true)));
    linked.nodes.iter().filter_map(of).collect()
}

/// Arguments of a collective, if they say which group it is made in: an operator that knows only its tensors leaves that to its callees.
fn collective(found: Option<&Collective>, linked: &LinkedTrace) -> Option<Box<Collective>> {
    let mut c = found.filter(|c| c.group.is_some() || c.group_size.is_some())?.clone();
    let group = c.group.as_deref().and_then(|name| linked.groups.iter().find(|g| g.name == name));
    c.group_size = c.group_size.or_else(|| group.and_then(|g| g.size));
    Some(Box::new(c))
}

/// Shapes and types that were read, by their texts: each step has them again.
type Lists<'a> = HashMap<&'a str, Vec<Raw<'a>>, RandomState>;

/// So many are held.
const MOST_LISTS: usize = 1 << 14;

fn arguments<'a>(
    io: &'a Io,
    lists: &mut Lists<'a>,
    spare: &mut python::Spare<'a>,
    strings: &mut Interner,
) -> Result<Vec<Arg>, String> {
    let mut read = |what: &str, text| {
        python::list(text, spare).map_err(|e| format!("{what}: expected a list in Python's notation: {e}"))
    };
    let values = read("values", &io.values)?;
    if lists.len() >= MOST_LISTS {
        lists.clear();
    }
    // Where there are no arguments, there are no shapes and types of them.
    if values.is_empty() && &*io.shapes == "[]" && &*io.types == "[]" {
        return Ok(Vec::new());
    }
    for (what, text) in [("shapes", &*io.shapes), ("types", &*io.types)] {
        if !lists.contains_key(text) {
            lists.insert(text, read(what, text)?);
        }
    }
    let list = |text: &str| lists.get(text).map(Vec::as_slice).unwrap_or_default();
    let found = arguments_of(&values, list(&io.shapes), list(&io.types), None, strings);
    python::give_back(values, spare);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::host::read_from;
    use crate::trace::link::io;

    /// Every node of a recorded trace of our own comes back with the arguments it had, but for strides.
    #[test]
    fn arguments_come_back() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/torch_mlp_host.json.gz");
        let trace = read_from(crate::trace::input::open(&file).unwrap(), &file).unwrap();
        let mut strings = Interner::default();
        fn plain(arg: &Arg) -> Arg {
            match arg {
                Arg::Tensor(t) => {
                    let mut t = t.clone();
                    t.strides = None;
                    Arg::Tensor(t)
                }
                Arg::List(items) => Arg::List(items.iter().map(plain).collect()),
                other => other.clone(),
            }
        }
        for node in &trace.nodes {
            let facts = io::facts(node);
            let back = arguments(&facts.inputs, &mut Lists::default(), &mut python::Spare::new(), &mut strings)
                .unwrap_or_else(|e| panic!("{e}: {:?}", facts.inputs));
            assert_eq!(back.len(), node.inputs.len(), "{}", node.name);
            for (a, b) in back.iter().zip(&node.inputs) {
                match (a, plain(b)) {
                    (Arg::Tensor(a), Arg::Tensor(b)) => assert_eq!(a, &b),
                    (Arg::List(a), Arg::List(b)) => assert_eq!(a.len(), b.len()),
                    (Arg::Int(a), Arg::Int(b)) => assert_eq!(*a, b),
                    _ => {}
                }
            }
        }
    }
}
