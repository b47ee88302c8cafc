//! All ranks of a run as PyTorch records them: host traces, Kineto traces, or both of each rank, in one folder.
//!
//! Files are told apart by content, ranks by the file's name. Groups are told apart by their ranks where these are recorded: names are
//! pointers in old builds, which differ from process to process.

use super::{Comm, Kind, Rank};
use crate::trace::chakra::NodeType;
use crate::trace::convert::{CommCall, comm_call, host_calls, recorded_call};
use crate::trace::detect::{Format, detect};
use crate::trace::error::{TraceError, TraceErrors};
use crate::trace::host::{self, HostTrace, RECORD_PARAM_COMMS, check};
use crate::trace::link::{LinkedTrace, Steps, link};
use crate::trace::{Collective, kineto};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The two traces of one rank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pair {
    /// PyTorch execution trace.
    pub host: Option<PathBuf>,
    /// Kineto trace.
    pub device: Option<PathBuf>,
}

/// Ranks of a group that a trace lists, by the group's label.
pub type Listed = BTreeMap<String, Vec<u64>>;

/// Most ranks that a group of first rank, stride and size is written out for.
const MOST_RANKS: u64 = 1 << 20;

/// The pairs in a folder, or those whose names begin with the last part of `place`. Empty where there are none.
///
/// # Errors
/// [`TraceError`]: two host or two device traces of one rank; a trace whose name holds no rank.
pub fn pairs(place: &Path) -> Result<BTreeMap<u64, Pair>, TraceError> {
    let folder = if place.is_dir() { place } else { place.parent().unwrap_or(Path::new("")) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let wanted = if place.is_dir() { None } else { place.file_name().map(|n| n.to_string_lossy().into_owned()) };
    let entries = std::fs::read_dir(folder).map_err(|e| TraceError::io(folder, &e))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).filter(|p| p.is_file()).collect();
    paths.sort();
    let mut found: BTreeMap<u64, Pair> = BTreeMap::new();
    for path in paths {
        let Some(name) = path.file_name().map(|n| n.to_string_lossy().into_owned()) else { continue };
        let json = name.strip_suffix(".gz").unwrap_or(&name).ends_with(".json");
        if !json || wanted.as_ref().is_some_and(|w| !name.starts_with(w.as_str())) {
            continue;
        }
        let format = match detect(&path) {
            Ok(format @ (Format::Host | Format::Kineto)) => format,
            _ => continue,
        };
        let Some(rank) = rank_of(&name) else {
            return Err(TraceError::new(
                &path,
                "the name holds no rank: expected one such as host.3.json or run_rank3_et.json.gz",
            ));
        };
        let pair = found.entry(rank).or_default();
        let place = if format == Format::Host { &mut pair.host } else { &mut pair.device };
        if let Some(other) = place.replace(path.clone()) {
            return Err(TraceError::new(
                &path,
                format!(
                    "rank {rank} has another file of format \"{}\": {}; name one run as FOLDER/BEGINNING",
                    format.name(),
                    other.display()
                ),
            ));
        }
    }
    Ok(found)
}

/// The rank in a file's name: the number behind `rank` or `worker`, else the last number that stands by itself.
fn rank_of(name: &str) -> Option<u64> {
    let lower = name.to_ascii_lowercase();
    let number = |text: &str| -> Option<u64> {
        let digits: String =
            text.trim_start_matches(['_', '-', '.']).chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    for word in ["rank", "worker"] {
        if let Some(rank) = lower.match_indices(word).find_map(|(i, w)| number(lower.get(i + w.len()..)?)) {
            return Some(rank);
        }
    }
    lower.split(['_', '-', '.']).rev().find_map(|part| part.parse().ok())
}

/// Reads one rank. Faults of its graph are added to `faults`, ranks of its groups to `listed`.
///
/// # Errors
/// [`TraceErrors`]: files that cannot be read, or that do not belong together.
pub fn rank(number: u64, pair: &Pair, listed: &mut Listed, faults: &mut Vec<TraceError>) -> Result<Rank, TraceErrors> {
    let host = pair.host.as_deref().map(host::read).transpose()?;
    if let (Some(trace), Some(path)) = (&host, &pair.host) {
        faults.extend(check::faults(trace, path));
    }
    let path = pair.host.clone().or_else(|| pair.device.clone()).unwrap_or_default();
    let (comms, nodes) = match (&pair.device, &host) {
        (Some(device), _) => {
            let trace = kineto::read(device)?;
            if let Some(said) = trace.distributed.rank.filter(|said| *said != number) {
                let message = format!("the file says rank {said}, its name rank {number}");
                faults.push(TraceError::new(device, message).field("distributedInfo.rank"));
            }
            let (linked, _) = link(host.as_ref(), &trace, &Steps::All)
                .map_err(|e| TraceErrors::from(TraceError::new(device, e.to_string())))?;
            (of_linked(&linked, listed), linked.nodes.len())
        }
        (None, Some(trace)) => (of_host(trace, listed), trace.nodes.len()),
        (None, None) => (Vec::new(), 0),
    };
    Ok(Rank { rank: number, path, nodes: nodes as u64, computations: 0, stated: BTreeMap::new(), comms })
}

fn of_linked(linked: &LinkedTrace, listed: &mut Listed) -> Vec<Comm> {
    let known: BTreeMap<&str, &[u64]> =
        linked.groups.iter().filter(|g| !g.ranks.is_empty()).map(|g| (g.name.as_str(), g.ranks.as_slice())).collect();
    let mut calls: Vec<(i64, u32, CommCall)> = linked
        .device_nodes()
        .filter_map(|i| {
            let node = linked.node(i).filter(|n| n.is_communication())?;
            Some((node.start_ns, i, comm_call(linked, node)?))
        })
        .collect();
    for (i, of) in host_calls(linked) {
        calls.extend(linked.node(i).map(|n| (n.start_ns, i, of.call)));
    }
    calls.sort_by_key(|(start, i, _)| (*start, *i));
    calls
        .into_iter()
        .filter_map(|(_, i, call)| {
            let collective = linked.node(i).and_then(|n| n.collective.as_deref());
            comm(u64::from(i), &call, collective, &known, listed)
        })
        .collect()
}

fn of_host(trace: &HostTrace, listed: &mut Listed) -> Vec<Comm> {
    let groups = trace.process_groups();
    let known: BTreeMap<&str, &[u64]> =
        groups.iter().filter(|g| !g.ranks.is_empty()).map(|g| (g.name.as_str(), g.ranks.as_slice())).collect();
    let mut nodes: Vec<_> = trace.nodes.iter().filter(|n| &*n.name == RECORD_PARAM_COMMS).collect();
    nodes.sort_by_key(|n| n.id);
    nodes
        .into_iter()
        .filter_map(|n| {
            let collective = n.collective.as_deref()?;
            comm(n.id, &recorded_call(collective)?, Some(collective), &known, listed)
        })
        .collect()
}

fn comm(
    node: u64,
    call: &CommCall,
    collective: Option<&Collective>,
    known: &BTreeMap<&str, &[u64]>,
    listed: &mut Listed,
) -> Option<Comm> {
    let unsigned = |v: Option<i64>| v.and_then(|v| u64::try_from(v).ok());
    let kind = match (call.kind, call.collective) {
        (NodeType::Send, _) => Kind::Send,
        (NodeType::Recv, _) => Kind::Recv,
        (_, Some(kind)) => Kind::Collective(kind),
        _ => return None,
    };
    let peer = match kind {
        Kind::Send => Some(unsigned(collective.and_then(|c| c.dst))?),
        Kind::Recv => Some(unsigned(collective.and_then(|c| c.src))?),
        Kind::Collective(_) => None,
    };
    let bytes = collective.filter(|c| c.in_elems.is_some() && c.dtype.is_some()).map(|_| call.bytes);
    // Several groups may hide where none is named, each with an order of its own: at least each kind is matched with its like.
    let unnamed = || matches!(kind, Kind::Collective(_)).then(|| format!("unnamed, {}", kind.name()));
    let group = collective.and_then(|c| group(c, known, listed)).or_else(unnamed);
    Some(Comm { node, kind, bytes, group, peer, tag: 0, computed: None, behind: None })
}

/// The label of a group: its ranks where they are known, else its name, else its size.
fn group(c: &Collective, known: &BTreeMap<&str, &[u64]>, listed: &mut Listed) -> Option<String> {
    let name = c.group.as_deref();
    let counted = || {
        let (start, stride) = (u64::try_from(c.rank_start?).ok()?, u64::try_from(c.rank_stride?).ok()?);
        let size = c.group_size.filter(|s| *s <= MOST_RANKS && (stride > 0 || *s == 1))?;
        (0..size).map(|i| start.checked_add(stride.checked_mul(i)?)).collect::<Option<Vec<u64>>>()
    };
    let ranks = if c.group_ranks.is_empty() {
        name.and_then(|n| known.get(n)).map(|r| r.to_vec()).or_else(counted)
    } else {
        Some(c.group_ranks.clone())
    };
    if let Some(ranks) = ranks {
        let label = label(&ranks);
        listed.insert(label.clone(), ranks);
        return Some(label);
    }
    // A pointer names nothing outside its process.
    let pointer = name.is_some_and(|n| n.parse::<u64>().is_ok_and(|n| n > u64::from(u32::MAX)));
    match (name.filter(|_| !pointer), c.group_size) {
        (Some(name), _) => Some(name.to_owned()),
        (None, Some(size)) => Some(format!("one of {size} ranks")),
        (None, None) => None,
    }
}

fn label(ranks: &[u64]) -> String {
    let gaps: BTreeSet<i128> = ranks.windows(2).map(|w| i128::from(w[1]) - i128::from(w[0])).collect();
    match (ranks.first(), ranks.last(), gaps.len()) {
        (Some(first), Some(last), 1) if ranks.len() > 8 => {
            format!("{first}..{last} by {}", gaps.first().copied().unwrap_or(1))
        }
        _ => ranks.iter().map(u64::to_string).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_in_names() {
        for (name, rank) in [
            ("megatron_et_3.json.gz", Some(3)),
            ("host.1.json.gz", Some(1)),
            ("worker2_step_12.1694128201545.pt.trace.json.gz", Some(2)),
            ("gpt2_2block_tp2_rank1_et.json.gz", Some(1)),
            ("torch_ddp_rank0_device.json", Some(0)),
            ("rank-7.json", Some(7)),
            ("trace.json", None),
        ] {
            assert_eq!(rank_of(name), rank, "{name}");
        }
    }

    #[test]
    fn labels_of_groups() {
        let known = BTreeMap::new();
        let mut listed = Listed::new();
        let counted = Collective {
            rank_start: Some(1),
            rank_stride: Some(2),
            group_size: Some(3),
            group: Some("93825114103440".into()),
            ..Collective::default()
        };
        assert_eq!(group(&counted, &known, &mut listed).as_deref(), Some("1,3,5"));
        assert_eq!(listed["1,3,5"], [1, 3, 5]);
        let pointer = Collective { rank_start: None, ..counted.clone() };
        assert_eq!(group(&pointer, &known, &mut listed).as_deref(), Some("one of 3 ranks"));
        let hostile = Collective { rank_start: Some(i64::MAX), rank_stride: Some(i64::MAX), ..counted };
        assert_eq!(group(&hostile, &known, &mut listed).as_deref(), Some("one of 3 ranks"));
        assert_eq!(label(&(0..64).collect::<Vec<_>>()), "0..63 by 1");
        assert_eq!(label(&[4]), "4");
    }
}
