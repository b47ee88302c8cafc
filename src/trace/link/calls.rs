//! Collectives of backends that record no `record_param_comms` (gloo): from the arguments of the `c10d::` operators, and of the
//! `gloo:` annotations of the threads that carry them out.

use crate::trace::Collective;
use crate::trace::collective::host_collective;
use crate::trace::host::{Arg, HostNode};

/// The collective that an operator's arguments describe.
pub(crate) fn of_arguments(node: &HostNode) -> Option<Collective> {
    let sum = |arg: Option<&Arg>| arg.map(|a| a.tensors().fold(0u64, |n, t| n.saturating_add(t.num_elem)));
    let dtype = || node.input_tensors().next().map(|t| t.dtype.clone());
    if let Some(name) = host_collective(&node.name) {
        let elements = node.input_tensors().fold(0u64, |n, t| n.saturating_add(t.num_elem));
        let elements = Some(elements);
        return Some(Collective {
            name: Some(name.into()),
            dtype: dtype(),
            in_elems: elements,
            out_elems: elements,
            ..Collective::default()
        });
    }
    let name = node.name.strip_prefix("c10d::")?;
    // These take outputs first, then inputs; the others work in place.
    let apart = ["allgather", "gather", "scatter", "alltoall"].iter().any(|w| name.contains(w));
    let (output, input) =
        if apart { (node.inputs.first(), node.inputs.get(1)) } else { (node.inputs.first(), node.inputs.first()) };
    let peer = ["send", "recv_"].contains(&name).then(|| {
        node.inputs.iter().find_map(|a| match a {
            Arg::Int(peer) => Some(*peer),
            _ => None,
        })
    });
    Some(Collective {
        name: Some(name.trim_end_matches('_').into()),
        dtype: dtype(),
        in_elems: sum(input),
        out_elems: sum(output),
        rank: peer.flatten(),
        ..Collective::default()
    })
}
