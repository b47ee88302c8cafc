//! Files: the cores of a chip (`--cores`) here; an actor graph written out (`kind: actors`) and pins in `actors`.

mod actors;

pub use actors::{ActorSpec, ActorsKind, ActorsSpec, ChannelSpec, pins, tree};

use super::cores::{Core, Cores, Network, Wire};
use crate::spec::catalogue::Kind as CatalogueKind;
use crate::spec::{Loader, Node, Problem, Problems, Reader, Value};
use crate::system::source::Source;
use crate::units::{Bandwidth, Bytes, FlopRate, Seconds};
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
