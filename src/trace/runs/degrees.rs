//! What a run tells about its parallelism: messages tell of a pipeline ([`super::pipeline`]), groups of ranks of the rest.
//!
//! Groups of one size and stride that a rank calls in the same turn are a family. What it is for is told by when it is called and by whom it contains:
//!
//! | called | what |
//! |---|---|
//! | between stages of a pipeline | ends (a tied embedding) |
//! | for all-to-alls alone, beside other families | experts (EP) |
//! | after all computation but the optimiser's; or to gather before anything was computed or received; or to scatter first and gather at the very end | data (DP): gradients, sharded parameters, sharded optimiser. Of several the largest; the others are those of experts |
//! | otherwise, inside a group of data | context (CP) |
//! | otherwise, around a group of tensors | all chips of a stage |
//! | otherwise | tensors (TP) |
//!
//! Of several families that are left where nothing tells data (recorded runs, whose computation is not ordered here) the one with most calls is tensors'. What the files state in their metadata is compared,
//! and taken where calls leave a degree open.

use super::pipeline::{Pipelines, pipelines};
use super::{Comm, CommType, Kind, Rank, Run};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Fields of a trace's metadata that are compared.
pub(super) const STATED: [&str; 7] = ["tp", "pp", "dp", "cp", "ep", "chunks", "microbatches"];

/// Groups of one size and stride, which together hold each rank once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Family {
    /// Ranks of a group: the degree.
    pub size: u64,
    /// Distance between neighbours of a group; none when it varies.
    pub stride: Option<u64>,
    /// Number of groups.
    pub groups: u64,
    /// Ranks that are in one of them.
    pub ranks: u64,
    /// Collectives of one rank by kind: calls and bytes (most of all ranks).
    pub calls: BTreeMap<String, (u64, u64)>,
    /// What it is likely to be.
    pub role: &'static str,
}

/// Degrees; none where nothing tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Degrees {
    /// Tensor parallelism.
    pub tp: Option<u64>,
    /// Stages.
    pub pp: Option<u64>,
    /// Data parallelism.
    pub dp: Option<u64>,
    /// Context parallelism.
    pub cp: Option<u64>,
    /// Expert parallelism, inside data and context.
    pub ep: Option<u64>,
    /// Chunks of a stage.
    pub chunks: Option<u64>,
}

impl Degrees {
    /// With their names, as the metadata of a trace has them.
    pub fn named(&self) -> [(&'static str, Option<u64>); 6] {
        let Self { tp, pp, dp, cp, ep, chunks } = *self;
        [("tp", tp), ("pp", pp), ("dp", dp), ("cp", cp), ("ep", ep), ("chunks", chunks)]
    }
}

/// The parallelism of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// Ranks with a file.
    pub ranks: u64,
    /// Degrees found in groups, by stride.
    pub families: Vec<Family>,
    /// Stages of the pipeline, if the messages are those of pipelines of one length.
    pub pipeline: Option<u64>,
    /// Messages go round in rings: collectives that were written out as messages, not a pipeline.
    pub rings: bool,
    /// What groups and messages tell.
    pub degrees: Degrees,
    /// What all files state.
    pub stated: BTreeMap<String, u64>,
    /// Where the two differ: name, stated, told.
    pub differ: Vec<(&'static str, u64, u64)>,
}

/// Calls and bytes by kind of collective.
type Calls = BTreeMap<String, (u64, u64)>;

/// A family while it is collected.
#[derive(Debug, Default)]
struct Found {
    size: u64,
    stride: Option<u64>,
    /// The ranks of each group.
    sets: BTreeSet<Vec<u64>>,
    calls: Calls,
    only_all_to_all: bool,
    across_stages: bool,
    /// Of each rank whether it calls as data parallelism does; none where that is not known.
    data: Option<bool>,
    role: &'static str,
}

const DATA: &str = "data parallelism";
const TENSOR: &str = "tensor parallelism";
const CONTEXT: &str = "context parallelism";
const EXPERT: &str = "expert parallelism";
const SOME: &str = "some ranks only";

impl Found {
    fn ranks(&self) -> u64 {
        self.sets.iter().map(|s| s.len() as u64).sum()
    }

    /// Whether each group of the other lies in one of these.
    fn holds(&self, other: &Self) -> bool {
        let inside = |set: &Vec<u64>| self.sets.iter().any(|own| set.iter().all(|r| own.binary_search(r).is_ok()));
        other.sets.iter().all(inside)
    }
}

/// Recovers the parallelism of a run.
pub fn layout(run: &Run) -> Layout {
    let stated = stated(run);
    let pipelines = pipelines(run, stated.get("microbatches").copied());
    let mut families = families(run, &pipelines);
    // Of a large run often only some ranks are recorded: the groups tell of the others.
    let sets = families.iter().flat_map(|f| f.sets.iter().flatten());
    let world: BTreeSet<u64> = run.ranks.iter().map(|r| r.rank).chain(sets.copied()).collect();
    let world = world.len() as u64;
    name_roles(&mut families, world);
    let degrees = degrees(&families, &pipelines, world, run.ranks.iter().all(|r| r.computations > 0));
    let told = |(name, value): (&'static str, Option<u64>)| Some((name, *stated.get(name)?, value?));
    let differ = degrees.named().into_iter().filter_map(told).filter(|(_, stated, told)| stated != told).collect();
    let out = |f: Found| Family {
        size: f.size,
        stride: f.stride,
        groups: f.sets.len() as u64,
        ranks: f.ranks(),
        calls: f.calls,
        role: f.role,
    };
    Layout {
        ranks: run.ranks.len() as u64,
        families: families.into_iter().map(out).collect(),
        pipeline: pipelines.stages,
        rings: pipelines.rings,
        degrees,
        stated,
        differ,
    }
}

/// What every file states, with one value.
fn stated(run: &Run) -> BTreeMap<String, u64> {
    let mut out = run.ranks.first().map(|r| r.stated.clone()).unwrap_or_default();
    out.retain(|name, value| run.ranks.iter().all(|r| r.stated.get(name) == Some(value)));
    out
}

fn families(run: &Run, pipelines: &Pipelines) -> Vec<Found> {
    let all: Vec<u64> = run.ranks.iter().map(|r| r.rank).collect();
    // By size, stride and the turn in which a rank comes to it: two families may have groups alike.
    let mut found: BTreeMap<(u64, u64, usize), Found> = BTreeMap::new();
    for rank in &run.ranks {
        let known = rank.computations > 0;
        // Groups in the order of their first calls, with these calls.
        let mut groups: Vec<(Vec<u64>, Option<&str>, Vec<usize>)> = Vec::new();
        for (at, comm) in rank.comms.iter().enumerate() {
            if !matches!(comm.kind, Kind::Collective(_)) {
                continue;
            }
            let mut members = match &comm.group {
                None => all.clone(),
                Some(name) => run.groups.get(name).cloned().unwrap_or_default(),
            };
            if members.len() < 2 {
                continue;
            }
            members.sort_unstable();
            // Recorders make several names for one set of ranks.
            let name = comm.group.as_deref().filter(|_| known);
            match groups.iter_mut().find(|(m, n, _)| (m, *n) == (&members, name)) {
                Some((_, _, calls)) => calls.push(at),
                None => groups.push((members, name, vec![at])),
            }
        }
        let mut turns: BTreeMap<(u64, u64), usize> = BTreeMap::new();
        for (members, _, calls) in groups {
            let size = members.len() as u64;
            let gaps: BTreeSet<u64> = members.windows(2).filter_map(|w| Some(w.get(1)? - w.first()?)).collect();
            let stride = gaps.first().copied().filter(|_| gaps.len() == 1);
            let key = (stride.unwrap_or(u64::MAX), size);
            let turn = turns.entry(key).or_default();
            let family = found.entry((key.0, key.1, *turn)).or_insert_with(|| Found {
                size,
                stride,
                only_all_to_all: true,
                data: known.then_some(true),
                ..Found::default()
            });
            *turn += 1;
            let mut own = Calls::new();
            for comm in calls.iter().filter_map(|at| rank.comms.get(*at)) {
                let Kind::Collective(kind) = comm.kind else { continue };
                family.only_all_to_all &= kind == CommType::AllToAll;
                let entry = own.entry(kind.name().into()).or_default();
                entry.0 += 1;
                entry.1 = entry.1.saturating_add(comm.bytes.unwrap_or(0));
            }
            for (kind, (count, bytes)) in own {
                let most = family.calls.entry(kind).or_default();
                (most.0, most.1) = (most.0.max(count), most.1.max(bytes));
            }
            let stages: Vec<_> = members.iter().filter_map(|m| pipelines.of.get(m)).collect();
            family.across_stages |= stages.iter().collect::<BTreeSet<_>>().len() < stages.len();
            family.data = family.data.filter(|_| known).map(|data| data && is_data(rank, &calls));
            family.sets.insert(members);
        }
    }
    found.into_values().collect()
}

/// Whether a rank calls a group as data parallelism does (above).
fn is_data(rank: &Rank, calls: &[usize]) -> bool {
    let call = |at: &usize| match rank.comms.get(*at)? {
        Comm { kind: Kind::Collective(kind), computed: Some(computed), .. } => Some((*kind, *computed)),
        _ => None,
    };
    let comms: Vec<(CommType, u64)> = calls.iter().filter_map(call).collect();
    let last = rank.computations;
    if comms.iter().all(|(_, computed)| computed + 1 >= last) {
        return true;
    }
    let gathers = |kind: CommType| kind == CommType::AllGather;
    let scatters = |kind: CommType| kind == CommType::ReduceScatter;
    // Parameters: gathered before there is anything else, and twice as often as gradients are scattered.
    let count = |which: &dyn Fn(CommType) -> bool| comms.iter().filter(|(kind, _)| which(*kind)).count();
    let (gathered, scattered) = (count(&gathers), count(&scatters));
    let parameters = comms.first().is_some_and(|(kind, computed)| gathers(*kind) && *computed == 0)
        && gathered + scattered == comms.len()
        && gathered == 2 * scattered;
    // Gradients scattered as they come, weights gathered when all is done.
    let first_gather = comms.iter().position(|(kind, _)| gathers(*kind)).unwrap_or(comms.len());
    let (before, behind) = comms.split_at(first_gather);
    let optimiser = !behind.is_empty()
        && behind.iter().all(|(kind, computed)| gathers(*kind) && *computed == last)
        && before.iter().all(|(kind, _)| scatters(*kind));
    parameters || optimiser
}

fn name_roles(families: &mut [Found], world: u64) {
    let calls = |f: &Found| f.calls.values().map(|(count, _)| *count).sum::<u64>();
    let several = families.len() > 1;
    let known = families.iter().any(|f| f.data.is_some());
    for f in families.iter_mut() {
        f.role = match () {
            () if f.across_stages => "ends of the pipeline (a tied embedding)",
            () if f.only_all_to_all && several => EXPERT,
            () if f.data == Some(true) => DATA,
            () => "",
        };
    }
    let replicas =
        families.iter().enumerate().filter(|(_, f)| f.role == DATA).max_by_key(|(i, f)| (f.size, usize::MAX - i));
    let replicas = replicas.map(|(i, _)| i);
    let replicas = replicas.and_then(|i| families.get(i).map(|f| (i, f)));
    // What is left: of several that do not lie in each other, and with nothing that tells data, calls decide.
    let open = |f: &Found| f.role.is_empty() && f.ranks() == world;
    let inside = |f: &Found| replicas.is_some_and(|(_, r)| r.holds(f));
    let around = |f: &Found| families.iter().any(|o| open(o) && !inside(o) && o.size < f.size && f.holds(o));
    let left: Vec<&Found> = families.iter().filter(|f| open(f) && !inside(f) && !around(f)).collect();
    let most = left.iter().map(|f| calls(f)).max().unwrap_or(0);
    let by_calls = replicas.is_none() && left.len() > 1;
    let role = |(i, f): (usize, &Found)| match f.role {
        DATA if replicas.is_some_and(|(r, _)| r != i) => "experts' data parallelism",
        "" if !open(f) => SOME,
        "" if inside(f) => CONTEXT,
        "" if around(f) => "all chips of a stage",
        "" if by_calls && calls(f) == most => "tensor parallelism (the most calls)",
        "" if by_calls => "data parallelism (few calls)",
        "" if known => TENSOR,
        "" => "tensor or data parallelism",
        role => role,
    };
    let roles: Vec<&'static str> = families.iter().enumerate().map(role).collect();
    families.iter_mut().zip(roles).for_each(|(f, role)| f.role = role);
}

fn degrees(families: &[Found], pipelines: &Pipelines, world: u64, known: bool) -> Degrees {
    let mut out = Degrees { chunks: pipelines.chunks, ..Degrees::default() };
    out.pp = pipelines.stages.or_else(|| pipelines.of.is_empty().then_some(1));
    if out.pp == Some(1) {
        out.chunks = Some(1);
    }
    let open = families.iter().any(|f| f.data.is_none() || f.role == SOME);
    let Some(stages) = out.pp.filter(|_| !open && known) else { return out };
    // The size of a role's groups, 1 where it has none; none where it has several.
    let size = |role: &str| {
        let sizes: BTreeSet<u64> = families.iter().filter(|f| f.role.starts_with(role)).map(|f| f.size).collect();
        if sizes.len() > 1 { None } else { Some(sizes.first().copied().unwrap_or(1)) }
    };
    let (Some(tp), Some(cp), Some(ep)) = (size(TENSOR), size(CONTEXT), size(EXPERT)) else { return out };
    let chips = tp * stages;
    // Replicas that say nothing to each other are replicas too.
    let replicas = world / chips.max(1);
    let fits =
        replicas * chips == world && replicas.is_multiple_of(cp) && size(DATA).is_none_or(|d| d == 1 || d == replicas);
    if fits {
        (out.tp, out.cp, out.ep, out.dp) = (Some(tp), Some(cp), Some(ep), Some(replicas / cp));
    }
    out
}
