//! All ranks of a run: one Chakra trace each, or the host and Kineto traces of each, and the groups. Only what communicates is kept.

mod degrees;
mod matching;
mod pipeline;
pub mod recorded;

pub use degrees::{Degrees, Family, Layout, layout};
pub use matching::{Mismatch, check, uneven};

use super::chakra::pass::{Fault, Pass, Visitor};
use super::chakra::{self, CommGroups, CommType, Metadata, Node, NodeType, graph};
use super::error::{TraceError, TraceErrors};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a rank says to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A collective.
    Collective(CommType),
    /// A send to the peer.
    Send,
    /// A receive from the peer.
    Recv,
}

impl Kind {
    /// The name in the schema, `SEND` or `RECV`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Collective(kind) => kind.name(),
            Self::Send => "SEND",
            Self::Recv => "RECV",
        }
    }
}

/// One communication of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comm {
    /// The node.
    pub node: u64,
    /// What.
    pub kind: Kind,
    /// Bytes (`comm_size`), where recorded.
    pub bytes: Option<u64>,
    /// Group (`pg_name`); none is all ranks.
    pub group: Option<String>,
    /// The other end of a send or receive.
    pub peer: Option<u64>,
    /// Tag of a send or receive.
    pub tag: i64,
    /// Nodes of computation that come before it; none where that is not known.
    pub computed: Option<u64>,
    /// The last of the nodes that it waits for: messages of one pass wait for the same.
    pub behind: Option<u64>,
}

/// The communication of one rank, in the order in which the feeder issues it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rank {
    /// Its number, from the file's name.
    pub rank: u64,
    /// Its file.
    pub path: PathBuf,
    /// Nodes of the file.
    pub nodes: u64,
    /// Those of them that compute.
    pub computations: u64,
    /// Degrees that the file states in its metadata.
    pub stated: BTreeMap<String, u64>,
    /// What it says to others.
    pub comms: Vec<Comm>,
}

/// A run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Ranks by number.
    pub ranks: Vec<Rank>,
    /// Ranks of each group, as listed in `comm_group.json` or, for groups that are not listed there, the ranks that use them.
    pub groups: BTreeMap<String, Vec<u64>>,
    /// Groups whose ranks are not listed anywhere.
    pub inferred: BTreeSet<String>,
    /// Faults of the files' graphs.
    pub faults: Vec<TraceError>,
    /// Whether it is as PyTorch recorded it: else simulators read it.
    pub recorded: bool,
}

/// Finds the files of a run: a folder, or the common beginning `PREFIX` of `PREFIX.<rank>.et`.
///
/// # Errors
/// [`TraceError`]: several prefixes in one folder, two files of one rank. Nothing found is no error.
pub fn files(place: &Path) -> Result<BTreeMap<u64, PathBuf>, TraceError> {
    let folder = if place.is_dir() { place } else { place.parent().unwrap_or(Path::new("")) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let wanted = if place.is_dir() { None } else { place.file_name().map(|n| n.to_string_lossy().into_owned()) };
    let entries = std::fs::read_dir(folder).map_err(|e| TraceError::io(folder, &e))?;
    let mut found: BTreeMap<String, BTreeMap<u64, PathBuf>> = BTreeMap::new();
    for entry in entries {
        let path = entry.map_err(|e| TraceError::io(folder, &e))?.path();
        let Some((prefix, rank)) = path.file_name().and_then(|n| parts(&n.to_string_lossy())) else { continue };
        if wanted.as_ref().is_some_and(|w| *w != prefix) {
            continue;
        }
        if let Some(other) = found.entry(prefix).or_default().insert(rank, path.clone()) {
            return Err(TraceError::new(&path, format!("rank {rank} has another file: {}", other.display())));
        }
    }
    let mut sets = found.into_iter();
    match (sets.next(), sets.next()) {
        (Some((_, ranks)), None) => Ok(ranks),
        (None, _) => Ok(BTreeMap::new()),
        (Some((one, _)), Some((other, _))) => Err(TraceError::new(
            place,
            format!("there are several runs here ({one:?}, {other:?}, ...): name one as FOLDER/PREFIX"),
        )),
    }
}

/// Prefix and rank of `PREFIX.<rank>.et` or `PREFIX.<rank>.et.gz`.
fn parts(name: &str) -> Option<(String, u64)> {
    let stem = name.strip_suffix(".gz").unwrap_or(name).strip_suffix(".et")?;
    let (prefix, rank) = stem.rsplit_once('.')?;
    Some((prefix.to_owned(), rank.parse().ok()?))
}

/// Loads all ranks. `groups` is a `comm_group.json`; without, `comm_group.json` beside the traces is used where there is one.
///
/// # Errors
/// [`TraceErrors`]: files that cannot be read, all of them.
pub fn load(place: &Path, groups: Option<&Path>) -> Result<Run, TraceErrors> {
    let files = files(place)?;
    let pairs = if files.is_empty() { recorded::pairs(place)? } else { BTreeMap::new() };
    if files.is_empty() && pairs.is_empty() {
        let what = if place.is_file() {
            "this is one file: give the folder of a run, or FOLDER/PREFIX where its files are called PREFIX.<rank>.et"
        } else if place.is_dir() {
            "there are neither files PREFIX.<rank>.et here nor host or Kineto traces (JSON) with a rank in their names"
        } else {
            "there is no such folder, and there are neither files PREFIX.<rank>.et nor host or Kineto traces (JSON) with a rank in their names that begin so"
        };
        return Err(TraceError::new(place, what).into());
    }
    let beside =
        files.values().next().and_then(|p| p.parent()).map(|p| p.join("comm_group.json")).filter(|p| p.is_file());
    let listed = match groups.or(beside.as_deref()) {
        Some(path) => CommGroups::read(path)?,
        None => CommGroups::default(),
    };
    let mut errors = Vec::new();
    let mut run = Run {
        ranks: Vec::new(),
        groups: listed.0,
        inferred: BTreeSet::new(),
        faults: Vec::new(),
        recorded: files.is_empty(),
    };
    for (number, path) in files {
        match rank(number, &path, &mut run.faults) {
            Ok(rank) => run.ranks.push(rank),
            Err(e) => errors.extend(e.0),
        }
    }
    for (number, pair) in &pairs {
        match recorded::rank(*number, pair, &mut run.groups, &mut run.faults) {
            Ok(rank) => run.ranks.push(rank),
            Err(e) => errors.extend(e.0),
        }
    }
    if !errors.is_empty() {
        return Err(TraceErrors(errors));
    }
    for rank in &run.ranks {
        for name in rank.comms.iter().filter_map(|c| c.group.as_ref()) {
            if run.inferred.contains(name) || !run.groups.contains_key(name) {
                run.inferred.insert(name.clone());
                let members = run.groups.entry(name.clone()).or_default();
                if members.last() != Some(&rank.rank) {
                    members.push(rank.rank);
                }
            }
        }
    }
    Ok(run)
}

/// Reads one rank, node by node; of nodes that do not communicate only the dependencies are kept, and only until the order is known.
fn rank(number: u64, path: &Path, faults: &mut Vec<TraceError>) -> Result<Rank, TraceErrors> {
    let mut seen = Seen {
        number,
        path,
        faults,
        links: Vec::new(),
        comms: BTreeMap::new(),
        computes: Vec::new(),
        stated: BTreeMap::new(),
    };
    let pass = chakra::Stored::open(path)?.pass(&mut seen);
    let Seen { links, mut comms, computes, stated, faults, .. } = seen;
    match pass {
        Ok(()) => {}
        Err(Fault::Input(errors)) => return Err(errors),
        Err(Fault::Output(e)) => return Err(TraceError::io(path, &e).into()),
    }
    faults.extend(graph::faults(&links, path));
    let nodes = links.len() as u64;
    let mut computations = 0;
    let mut in_order = Vec::with_capacity(comms.len());
    for i in graph::order(&links) {
        if let Some(mut comm) = comms.remove(&i) {
            comm.computed = Some(computations);
            in_order.push(comm);
        }
        computations += u64::from(computes.get(i) == Some(&true));
    }
    Ok(Rank { rank: number, path: path.to_path_buf(), nodes, computations, stated, comms: in_order })
}

/// What is kept of a rank's file.
struct Seen<'a> {
    number: u64,
    path: &'a Path,
    faults: &'a mut Vec<TraceError>,
    links: Vec<graph::Links>,
    comms: BTreeMap<usize, Comm>,
    /// Whether each node computes.
    computes: Vec<bool>,
    stated: BTreeMap<String, u64>,
}

impl Visitor for Seen<'_> {
    fn metadata(&mut self, metadata: &Metadata) -> std::io::Result<()> {
        let number = |a: &chakra::Attr| Some((a.name.to_string(), a.value.as_ref()?.uint()?));
        self.stated =
            metadata.attrs.iter().filter(|a| degrees::STATED.contains(&&*a.name)).filter_map(number).collect();
        Ok(())
    }

    fn node(&mut self, node: &Node) -> std::io::Result<()> {
        if let Some(found) = comm(node, self.number, self.path, self.faults) {
            self.comms.insert(self.links.len(), found);
        }
        self.computes.push(node.kind == NodeType::Comp && node.flag("is_cpu_op") != Some(true));
        self.links.push(graph::Links::from(node));
        Ok(())
    }
}

/// What a node says to others. CPU operators that only launch a collective say nothing.
fn comm(node: &Node, rank: u64, path: &Path, faults: &mut Vec<TraceError>) -> Option<Comm> {
    if !node.kind.communicates() {
        return None;
    }
    let fault = |field: &str, message: &str| TraceError::new(path, message).node(node.id).field(field);
    let kind = match node.kind {
        NodeType::Send => Kind::Send,
        NodeType::Recv => Kind::Recv,
        _ => match (node.comm_type(), node.flag("is_cpu_op")) {
            (Some(kind), _) => Kind::Collective(kind),
            (None, Some(true)) => return None,
            (None, _) => {
                let message = match node.attr("comm_type") {
                    Some(value) => format!("expected 0 to 9, found {}", value.text().unwrap_or_else(|| value.arm())),
                    None => "a collective without type".to_owned(),
                };
                faults.push(fault("comm_type", &message));
                return None;
            }
        },
    };
    let peer_field = if kind == Kind::Send { "comm_dst" } else { "comm_src" };
    let peer = match kind {
        Kind::Collective(_) => None,
        Kind::Send | Kind::Recv => match node.uint(peer_field) {
            Some(peer) => Some(peer),
            None => {
                faults.push(fault(peer_field, "a message without its other end"));
                return None;
            }
        },
    };
    let own_field = if kind == Kind::Send { "comm_src" } else { "comm_dst" };
    if peer.is_some() && node.uint(own_field).is_some_and(|own| own != rank) {
        faults.push(fault(own_field, &format!("this is the trace of rank {rank}")));
    }
    Some(Comm {
        node: node.id,
        kind,
        bytes: node.uint("comm_size"),
        group: node.group(),
        peer,
        tag: node.int("comm_tag").unwrap_or(0),
        computed: None,
        behind: node.data_deps.iter().chain(&node.ctrl_deps).max().copied(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        assert_eq!(parts("llm.12.et"), Some(("llm".into(), 12)));
        assert_eq!(parts("a.b.0.et.gz"), Some(("a.b".into(), 0)));
        assert_eq!(parts("llm.et"), None);
        assert_eq!(parts("llm.x.et"), None);
        assert_eq!(parts("comm_group.json"), None);
    }
}
