//! Files: the cores of a chip (`--cores`), an actor graph written out (`kind: actors`), pins.

use super::cores::{Core, Cores, Network, Wire};
use super::graph::{Actor, ActorGraph, Channel, Kind, Work};
use crate::spec::catalogue::Kind as CatalogueKind;
use crate::spec::{Loader, Node, Problem, Problems, Reader, Value, read::Table};
use crate::system::source::Source;
use crate::units::{Bandwidth, Bytes, Flop, FlopRate, Seconds};
use std::path::Path;

/// Most cores of a file.
const MOST_CORES: u64 = 1 << 20;

crate::spec! {
    /// A wire between cores.
    pub struct WireSpec ("a wire between cores") {
        /// Time a message takes beside its bytes, a unit of distance.
        latency: Seconds = Seconds(0.0),
        /// Bytes a second.
        bandwidth: Bandwidth,
    }
}

crate::spec! {
    /// One level of nested groups of cores.
    pub struct LevelSpec ("a level of cores") {
        /// Groups of the level below (cores, on the innermost level) that share the wire.
        size: u64,
        /// Time a message takes beside its bytes.
        latency: Seconds = Seconds(0.0),
        /// Bytes a second between two cores of different groups of the level below.
        bandwidth: Bandwidth,
    }
}

crate::spec! {
    /// A mesh of cores, numbered row by row; the distance is the number of hops.
    pub struct MeshSpec ("a mesh of cores") {
        /// Rows.
        rows: u64,
        /// Columns.
        columns: u64,
        /// Time of one hop.
        latency: Seconds = Seconds(0.0),
        /// Bytes a second of one link.
        bandwidth: Bandwidth,
    }
}

crate::spec! {
    /// Distances between groups of cores (NUMA nodes), as ACPI's SLIT has them.
    pub struct DistanceSpec ("a matrix of distances") {
        /// One row for each core, or for each group of equally many cores that follow each other.
        matrix: Vec<Vec<f64>>,
        /// Time a message takes beside its bytes, a unit of distance.
        latency: Seconds = Seconds(0.0),
        /// Bytes a second.
        bandwidth: Bandwidth,
    }
}

crate::spec! {
    /// What joins the cores: one of the three.
    pub struct NetworkSpec ("a network between cores", check: check_network) {
        /// Nested groups, innermost first; one level is one price for all.
        levels: Option<Vec<LevelSpec>>,
        /// A mesh.
        mesh: Option<MeshSpec>,
        /// Distances.
        distances: Option<DistanceSpec>,
    }
}

crate::spec! {
    /// Equal processing elements.
    pub struct CoreSpec ("processing elements", check: check_core) {
        /// What they are called; they are numbered where there are several.
        name: String,
        /// How many.
        count: u64 = 1,
        /// Rate of matrix products and convolutions.
        matrix: FlopRate,
        /// Rate of all other arithmetic.
        vector: FlopRate,
        /// Bytes a second between a core and the memory it works on.
        memory_bandwidth: Bandwidth,
        /// Time of a firing beside its work.
        firing_overhead: Seconds = Seconds(0.0),
        /// How much faster than the core of a profile it runs what was measured there.
        speed: f64 = 1.0,
        /// Bytes for the state of its actors and the FIFOs they read; left out: not limited.
        memory: Option<Bytes>,
    }
}

crate::spec! {
    /// The cores of a chip.
    pub struct CoresSpec ("the cores of a chip", check: check_cores) {
        /// Name for rows and titles.
        name: String,
        /// Where each number comes from.
        source: Source,
        /// Processing elements, in the order of their numbers.
        cores: Vec<CoreSpec>,
        /// A transfer between two actors of one core; left out: it takes no time.
        local: Option<WireSpec>,
        /// Transfers between cores.
        network: NetworkSpec,
    }
}

/// The fields that are numbers with a source.
const NUMBERS: [&str; 9] =
    ["count", "matrix", "vector", "memory_bandwidth", "firing_overhead", "speed", "memory", "local", "network"];

fn positive(node: &Node, reader: &mut Reader, field: &'static str, value: f64) {
    if !(value > 0.0 && value.is_finite()) {
        let at = node.get(field).unwrap_or(node);
        reader.within(field, |r| r.problem(at, format!("expected more than zero, found {}", at.describe())));
    }
}

fn check_core(core: &CoreSpec, node: &Node, reader: &mut Reader) {
    positive(node, reader, "matrix", core.matrix.0);
    positive(node, reader, "vector", core.vector.0);
    positive(node, reader, "memory_bandwidth", core.memory_bandwidth.0);
    positive(node, reader, "speed", core.speed);
    positive(node, reader, "memory", core.memory.map_or(1.0, |m| m.0));
}

fn check_network(network: &NetworkSpec, node: &Node, reader: &mut Reader) {
    let given = [network.levels.is_some(), network.mesh.is_some(), network.distances.is_some()];
    if given.iter().filter(|g| **g).count() != 1 {
        reader.problem(node, "expected one of levels, mesh and distances");
    }
    if network.levels.as_ref().is_some_and(Vec::is_empty) {
        reader.problem(node, "levels: the list is empty; give one level for one price");
    }
    let wires = network.levels.iter().flatten().map(|l| l.bandwidth);
    let wires =
        wires.chain(network.mesh.iter().map(|m| m.bandwidth)).chain(network.distances.iter().map(|d| d.bandwidth));
    if wires.into_iter().any(|b| b.0 <= 0.0) {
        reader.problem(node, "expected a bandwidth of more than zero");
    }
}

fn check_cores(cores: &CoresSpec, node: &Node, reader: &mut Reader) {
    let count = cores.cores.iter().fold(0u64, |sum, c| sum.saturating_add(c.count));
    let at = node.get("cores").unwrap_or(node);
    if count == 0 || count > MOST_CORES {
        reader.within("cores", |r| r.problem(at, format!("expected 1 to {MOST_CORES} cores, found {count}")));
    }
    let mut seen = std::collections::HashSet::new();
    for core in cores.cores.iter().filter(|c| !seen.insert(c.name.as_str())) {
        reader.within("cores", |r| r.problem(at, format!("two groups are called {:?}; rename one", core.name)));
    }
    let at = node.get("network").unwrap_or(node);
    let holds = match (&cores.network.levels, &cores.network.mesh, &cores.network.distances) {
        (Some(levels), ..) => levels.iter().fold(1u64, |product, l| product.saturating_mul(l.size)),
        (_, Some(mesh), _) => mesh.rows.saturating_mul(mesh.columns),
        (.., Some(distances)) => {
            let rows = distances.matrix.len() as u64;
            let square = distances.matrix.iter().all(|row| row.len() as u64 == rows);
            if !square || rows == 0 || !count.is_multiple_of(rows) {
                reader.within("network.distances", |r| {
                    r.problem(
                        at,
                        format!(
                            "expected a square matrix whose rows divide the {count} cores evenly, found {rows} rows"
                        ),
                    );
                });
            }
            count
        }
        _ => count,
    };
    if holds != count {
        reader.within("network", |r| r.problem(at, format!("the network joins {holds} cores, but there are {count}")));
    }
    if cores.local.as_ref().is_some_and(|l| l.bandwidth.0 <= 0.0) {
        reader.within("local", |r| r.problem(node, "expected a bandwidth of more than zero"));
    }
    let Source::Each(table) = &cores.source else { return };
    let entries = match node.get("cores").map(|n| &n.value) {
        Some(Value::List(items)) => items.as_slice(),
        _ => &[],
    };
    for field in NUMBERS {
        let there = node.get(field).or_else(|| entries.iter().find_map(|e| e.get(field)));
        if let Some(at) = there
            && !table.0.iter().any(|(f, _)| f == field)
        {
            reader.within(field, |r| r.problem(at, format!("this number has no source: add {field:?} under source")));
        }
    }
    let at = node.get("source").unwrap_or(node);
    for (field, _) in table.0.iter().filter(|(f, _)| !NUMBERS.contains(&f.as_str())) {
        let message = format!("{field:?} is not a number of cores; their numbers: {}", NUMBERS.join(", "));
        reader.within("source", |r| r.problem(at, message));
    }
}

impl CoresSpec {
    /// Loads the tree of a cores file, references followed.
    ///
    /// # Errors
    /// The [`Problem`] of loading.
    pub fn load(path: &Path) -> Result<Node, Problem> {
        let node = Loader.open(path, Some(CatalogueKind::Cores))?;
        Loader.expand_as(&node, "", Some(CatalogueKind::Cores))
    }

    /// Reads a tree.
    ///
    /// # Errors
    /// All [`Problems`].
    pub fn build(node: &Node) -> Result<Cores, Problems> {
        Ok(Reader::read::<Self>(node)?.cores())
    }

    /// The cores, one by one.
    pub fn cores(&self) -> Cores {
        let mut cores = Vec::new();
        for group in &self.cores {
            for i in 0..group.count {
                cores.push(Core {
                    name: if group.count == 1 { group.name.clone() } else { format!("{}.{i}", group.name) },
                    speed: group.speed,
                    rates: [group.matrix.0, group.vector.0],
                    memory_bandwidth: group.memory_bandwidth.0,
                    firing_overhead: group.firing_overhead.0,
                    memory: group.memory.map_or(f64::INFINITY, |m| m.0),
                });
            }
        }
        let wire = |latency: Seconds, bandwidth: Bandwidth| Wire { latency: latency.0, bandwidth: bandwidth.0 };
        let network = match (&self.network.levels, &self.network.mesh, &self.network.distances) {
            (_, Some(m), _) => Network::Mesh { rows: m.rows, columns: m.columns, wire: wire(m.latency, m.bandwidth) },
            (.., Some(d)) => {
                let each = cores.len() / d.matrix.len().max(1);
                let row = |p: usize| (0..cores.len()).map(|q| d.matrix[p / each][q / each]).collect();
                Network::Matrix { distances: (0..cores.len()).map(row).collect(), wire: wire(d.latency, d.bandwidth) }
            }
            (levels, ..) => {
                let levels = levels.iter().flatten();
                Network::Levels(levels.map(|l| (l.size, wire(l.latency, l.bandwidth))).collect())
            }
        };
        let local = self.local.as_ref().map_or(Wire::FREE, |l| wire(l.latency, l.bandwidth));
        Cores { name: self.name.clone(), cores, local, network }
    }
}

crate::choice! {
    /// The word `actors`.
    pub enum ActorsKind ("a kind of workload") {
        /// An actor graph.
        Actors = "actors",
    }
}

crate::spec! {
    /// An actor: measured (`time`) or counted (`flop` and `moved`).
    pub struct ActorSpec ("an actor", check: check_actor) {
        /// Unique name.
        name: String,
        /// Kind of its kernel.
        kernel: Kind = Kind::Vector,
        /// Mean time of a firing on a core of speed 1.
        time: Option<Seconds>,
        /// Standard deviation of that.
        deviation: Seconds = Seconds(0.0),
        /// FLOP of a firing.
        flop: Option<Flop>,
        /// Bytes that a firing reads and writes.
        moved: Option<Bytes>,
        /// Bytes it holds from one firing to the next.
        state: Bytes = Bytes(0.0),
    }
}

crate::spec! {
    /// A FIFO between two actors.
    pub struct ChannelSpec ("a channel") {
        /// The actor that writes.
        from: String,
        /// The actor that reads.
        to: String,
        /// Port of the writer; left out: `out`.
        from_port: String = "out".into(),
        /// Port of the reader; left out: the writer's name.
        to_port: Option<String>,
        /// Tokens a firing of the writer writes.
        produced: u64 = 1,
        /// Tokens a firing of the reader reads.
        consumed: u64 = 1,
        /// Tokens there at the start: `0` or more.
        initial: f64 = 0.0,
        /// Bytes of a token.
        token: Bytes,
        /// Tokens it holds at most; left out: chosen.
        capacity: Option<f64>,
    }
}

crate::spec! {
    /// An actor graph written out.
    pub struct ActorsSpec ("an actor graph") {
        /// The word `actors`.
        kind: ActorsKind,
        /// Name for rows and titles.
        name: String,
        /// Where it comes from.
        source: Option<String>,
        /// Samples of one iteration.
        batch: u64 = 1,
        /// The actors.
        actors: Vec<ActorSpec>,
        /// The channels.
        channels: Vec<ChannelSpec> = Vec::new(),
    }
}

fn check_actor(actor: &ActorSpec, node: &Node, reader: &mut Reader) {
    let counted = actor.flop.is_some() || actor.moved.is_some();
    if counted == actor.time.is_some() {
        reader.problem(node, "expected either time, or flop and moved");
    }
}

impl ActorsSpec {
    /// The checked graph of a tree.
    ///
    /// # Errors
    /// All [`Problems`].
    pub fn build(node: &Node) -> Result<ActorGraph, Problems> {
        let spec: Self = Reader::read(node)?;
        let item = |field: &str, i: usize| match node.get(field).map(|n| &n.value) {
            Some(Value::List(items)) => items.get(i).map_or(node.origin.clone(), |n| n.origin.clone()),
            _ => node.origin.clone(),
        };
        let mut problems = Vec::new();
        let index: std::collections::HashMap<&str, usize> =
            spec.actors.iter().enumerate().map(|(i, a)| (a.name.as_str(), i)).collect();
        let names: Vec<&str> = spec.actors.iter().map(|a| a.name.as_str()).collect();
        let mut channels = Vec::new();
        for (i, c) in spec.channels.iter().enumerate() {
            let mut end = |field: &str, name: &str| {
                let found = index.get(name).copied();
                if found.is_none() {
                    let remedy = crate::spec::read::nearest(name, &names)
                        .map_or_else(|| "write it under actors".to_string(), |near| format!("did you mean {near:?}?"));
                    problems.push(Problem {
                        origin: item("channels", i),
                        field: format!("channels.[{i}].{field}"),
                        message: format!("no actor is called {name:?}; {remedy}"),
                    });
                }
                found
            };
            let (source, target) = (end("from", &c.from), end("to", &c.to));
            let mut whole = |field: &str, value: f64| {
                if value.fract() != 0.0 || value > 1e15 {
                    problems.push(Problem {
                        origin: item("channels", i),
                        field: format!("channels.[{i}].{field}"),
                        message: format!("expected a whole number of tokens, found {value}"),
                    });
                }
                value as u64
            };
            let initial = whole("initial", c.initial);
            let capacity = c.capacity.map(|v| whole("capacity", v));
            if let (Some(source), Some(target)) = (source, target) {
                channels.push(Channel {
                    source,
                    source_port: c.from_port.clone(),
                    target,
                    target_port: c.to_port.clone().unwrap_or_else(|| c.from.clone()),
                    produced: c.produced,
                    consumed: c.consumed,
                    initial,
                    token_bytes: c.token.0,
                    capacity,
                });
            }
        }
        if spec.actors.is_empty() {
            problems.push(Problem {
                origin: item("actors", 0),
                field: "actors".into(),
                message: "the list is empty; give at least one actor".into(),
            });
        }
        if !problems.is_empty() {
            return Err(Problems(problems));
        }
        let actor = |a: &ActorSpec| Actor {
            name: a.name.clone(),
            kind: a.kernel,
            work: match a.time {
                Some(time) => Work::Measured { seconds: time.0, deviation: a.deviation.0 },
                None => Work::Counted { flop: a.flop.map_or(0.0, |f| f.0), bytes: a.moved.map_or(0.0, |b| b.0) },
            },
            state_bytes: a.state.0,
        };
        let actors = spec.actors.iter().map(actor).collect();
        let graph = ActorGraph { name: spec.name.clone(), actors, channels, batch: spec.batch };
        graph.checked(&node.get("actors").unwrap_or(node).origin)
    }
}

/// An actor graph as the tree that [`ActorsSpec`] reads.
pub fn tree(graph: &ActorGraph) -> serde_json::Value {
    use serde_json::{Map, json};
    let bytes = |b: f64| format!("{b} B");
    let seconds = |s: f64| format!("{s} s");
    let actor = |a: &Actor| {
        let mut map = Map::new();
        map.insert("name".into(), json!(a.name));
        map.insert("kernel".into(), json!(a.kind.word()));
        match a.work {
            Work::Measured { seconds: s, deviation } => {
                map.insert("time".into(), json!(seconds(s)));
                if deviation > 0.0 {
                    map.insert("deviation".into(), json!(seconds(deviation)));
                }
            }
            Work::Counted { flop, bytes: b } => {
                map.insert("flop".into(), json!(format!("{flop} FLOP")));
                map.insert("moved".into(), json!(bytes(b)));
            }
        }
        if a.state_bytes > 0.0 {
            map.insert("state".into(), json!(bytes(a.state_bytes)));
        }
        serde_json::Value::Object(map)
    };
    let channel = |c: &Channel| {
        let mut map = Map::new();
        map.insert("from".into(), json!(graph.actors[c.source].name));
        map.insert("to".into(), json!(graph.actors[c.target].name));
        map.insert("from_port".into(), json!(c.source_port));
        map.insert("to_port".into(), json!(c.target_port));
        if c.produced != 1 {
            map.insert("produced".into(), json!(c.produced));
        }
        if c.consumed != 1 {
            map.insert("consumed".into(), json!(c.consumed));
        }
        if c.initial != 0 {
            map.insert("initial".into(), json!(c.initial));
        }
        map.insert("token".into(), json!(bytes(c.token_bytes)));
        if let Some(capacity) = c.capacity {
            map.insert("capacity".into(), json!(capacity));
        }
        serde_json::Value::Object(map)
    };
    json!({
        "kind": "actors",
        "name": graph.name,
        "batch": graph.batch,
        "actors": graph.actors.iter().map(actor).collect::<Vec<_>>(),
        "channels": graph.channels.iter().map(channel).collect::<Vec<_>>(),
    })
}

/// Pins: the core (its name, or its number) of each actor named.
///
/// # Errors
/// All [`Problems`]: names that are not there.
pub fn pins(node: &Node, graph: &ActorGraph, cores: &Cores) -> Result<Vec<Option<usize>>, Problems> {
    let table: Table<String> = Reader::read(node)?;
    let mut pins = vec![None; graph.actors.len()];
    let mut problems = Vec::new();
    let actors: Vec<&str> = graph.actors.iter().map(|a| a.name.as_str()).collect();
    let names: Vec<&str> = cores.cores.iter().map(|c| c.name.as_str()).collect();
    for (actor, core) in &table.0 {
        let origin = node.get(actor).map_or(node.origin.clone(), |n| n.origin.clone());
        let mut problem = |message: String| {
            problems.push(Problem { origin: origin.clone(), field: actor.clone(), message });
        };
        let i = graph.actor(actor);
        if i.is_none() {
            problem(match crate::spec::read::nearest(actor, &actors) {
                Some(near) => format!("no actor of {:?} is called {actor:?}; did you mean {near:?}?", graph.name),
                None => format!("no actor of {:?} is called {actor:?}; take the line out", graph.name),
            });
        }
        let number = core.parse::<usize>().ok().filter(|p| *p < cores.len());
        let p = names.iter().position(|n| n == core).or(number);
        if p.is_none() {
            problem(format!(
                "{:?} has no core {core:?}: give a name such as {:?}, or a number from 0 to {}",
                cores.name,
                names.first().copied().unwrap_or(""),
                cores.len() - 1
            ));
        }
        if let (Some(i), Some(p)) = (i, p) {
            pins[i] = Some(p);
        }
    }
    if problems.is_empty() { Ok(pins) } else { Err(Problems(problems)) }
}
