//! Batch split: copies of the graph side by side, each with its share of the samples.
//!
//! r replicas take B / r samples each. A *distributor* reads the B samples and sends each replica its share; a *collector* takes their results. What scales
//! with the samples (measured seconds, FLOP, bytes that are no weights, tokens) is divided by r; state is held by every replica. Latency is the time from
//! the first firing of an iteration to its last; throughput is B over the bottleneck.

use super::cores::Cores;
use super::graph::{Actor, ActorGraph, Channel, Kind, Work};
use super::placement::Figures;
use serde::Serialize;

/// Name of the actor that divides the samples.
pub const DISTRIBUTOR: &str = "distributor";
/// Name of the actor that brings the results together.
pub const COLLECTOR: &str = "collector";

/// One replica's part: the graph with its share of the samples.
pub fn share(graph: &ActorGraph, replicas: u64) -> ActorGraph {
    let share = 1.0 / replicas as f64;
    let work = |work: Work| match work {
        Work::Measured { seconds, deviation } => {
            Work::Measured { seconds: seconds * share, deviation: deviation * share }
        }
        Work::Counted { flop, bytes } => Work::Counted { flop: flop * share, bytes: bytes * share },
    };
    ActorGraph {
        actors: graph.actors.iter().map(|a| Actor { work: work(a.work), ..a.clone() }).collect(),
        channels: graph.channels.iter().map(|c| Channel { token_bytes: c.token_bytes * share, ..c.clone() }).collect(),
        batch: graph.batch / replicas,
        ..graph.clone()
    }
}

/// The graph `replicas` times, joined by distributor and collector; one replica is the graph itself.
///
/// # Errors
/// Replicas that do not divide the samples.
pub fn replicated(graph: &ActorGraph, replicas: u64) -> Result<ActorGraph, String> {
    if replicas == 1 {
        return Ok(graph.clone());
    }
    if replicas == 0 || !graph.batch.is_multiple_of(replicas) {
        let fits: Vec<String> =
            (1..=graph.batch.min(1 << 16)).filter(|r| graph.batch.is_multiple_of(*r)).map(|r| r.to_string()).collect();
        return Err(format!(
            "{replicas} replicas do not divide the {} samples of {:?}; these do: {}",
            graph.batch,
            graph.name,
            fits.join(", ")
        ));
    }
    for name in [DISTRIBUTOR, COLLECTOR] {
        if graph.actor(name).is_some() {
            return Err(format!("{:?} has an actor called {name:?}; rename it to have replicas", graph.name));
        }
    }
    let part = share(graph, replicas);
    let n = graph.actors.len();
    let mut reads = vec![false; n];
    let mut writes = vec![false; n];
    graph.channels.iter().filter(|c| c.source != c.target).for_each(|c| {
        reads[c.target] = true;
        writes[c.source] = true;
    });
    // What lies at the ends is not in the graph: a source is fed as much as it hands on.
    let widest = |end: &dyn Fn(&Channel) -> bool| {
        graph.channels.iter().filter(|c| end(c)).map(|c| c.token_bytes * c.produced as f64).fold(0.0, f64::max)
    };
    let fed: Vec<f64> = (0..n).map(|i| if reads[i] { 0.0 } else { widest(&|c| c.source == i) }).collect();
    let given: Vec<f64> = (0..n).map(|i| if writes[i] { 0.0 } else { widest(&|c| c.target == i) }).collect();
    let mover = |name: &str, bytes: f64| Actor {
        name: name.into(),
        kind: Kind::Data,
        work: Work::Counted { flop: 0.0, bytes: 2.0 * bytes },
        state_bytes: 0.0,
    };
    let mut actors = vec![mover(DISTRIBUTOR, fed.iter().sum())];
    let mut channels = Vec::new();
    for r in 0..replicas {
        let first = actors.len();
        actors.extend(part.actors.iter().map(|a| Actor { name: format!("{}.r{r}", a.name), ..a.clone() }));
        channels.extend(part.channels.iter().map(|c| Channel {
            source: first + c.source,
            target: first + c.target,
            ..c.clone()
        }));
        for i in (0..n).filter(|i| !reads[*i]) {
            channels.push(joint(0, &format!("out{r}"), first + i, "samples", fed[i] / replicas as f64));
        }
    }
    let collector = actors.len();
    actors.push(mover(COLLECTOR, given.iter().sum()));
    for r in 0..replicas as usize {
        for i in (0..n).filter(|i| !writes[*i]) {
            channels.push(joint(
                1 + r * n + i,
                "results",
                collector,
                &format!("in{r}_{i}"),
                given[i] / replicas as f64,
            ));
        }
    }
    // An actor that fires q times an iteration does so in every replica: the joints move all its tokens at once.
    let mut joined = ActorGraph { name: format!("{} x {replicas}", graph.name), actors, channels, batch: graph.batch };
    let firings = graph.repetitions().map_err(|e| e.to_string())?;
    for c in &mut joined.channels {
        if c.source == 0 {
            c.produced = firings[(c.target - 1) % n];
            c.token_bytes /= c.produced as f64;
        } else if c.target == collector {
            c.consumed = firings[(c.source - 1) % n];
            c.token_bytes /= c.consumed as f64;
        }
    }
    Ok(joined)
}

fn joint(source: usize, source_port: &str, target: usize, target_port: &str, bytes: f64) -> Channel {
    Channel {
        source,
        source_port: source_port.into(),
        target,
        target_port: target_port.into(),
        produced: 1,
        consumed: 1,
        initial: 0,
        token_bytes: bytes,
        capacity: None,
    }
}

/// One point of the front over replicas and the cores of each.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Replicas.
    pub replicas: u64,
    /// Cores of each replica.
    pub depth: u64,
    /// Samples a second.
    pub throughput: f64,
    /// Seconds of one iteration from its first firing to its last.
    pub latency_s: f64,
    /// Seconds of the slowest core.
    pub bottleneck_s: f64,
    /// Relative gap of the bottleneck.
    pub gap: f64,
    /// Whether no other point has more throughput and less latency.
    pub on_front: bool,
}

/// Seconds of one iteration alone on the cores: every core fires its actors one at a time, in topological order, when their tokens have come.
///
/// # Errors
/// A fault of the graph, in words.
pub fn latency(graph: &ActorGraph, cores: &Cores, core_of: &[usize]) -> Result<f64, String> {
    let firings = graph.repetitions().map_err(|e| e.to_string())?;
    let order = graph.order().map_err(|e| e.to_string())?;
    let mut into: Vec<Vec<usize>> = vec![Vec::new(); graph.actors.len()];
    for (c, channel) in graph.channels.iter().enumerate() {
        if channel.source != channel.target && channel.initial < firings[channel.target] * channel.consumed {
            into[channel.target].push(c);
        }
    }
    let mut ends = vec![0.0f64; graph.actors.len()];
    let mut free = vec![0.0f64; cores.len()];
    for i in order {
        let p = core_of[i];
        let mut ready = free[p];
        for c in into[i].iter().map(|c| &graph.channels[*c]) {
            let (distance, wire) = cores.between(core_of[c.source], p);
            let messages = firings[c.source] as f64;
            let bytes = messages * c.produced as f64 * c.token_bytes;
            ready = ready.max(ends[c.source] + messages * distance * wire.latency + bytes / wire.bandwidth);
        }
        ends[i] = ready + firings[i] as f64 * cores.cores[p].firing_seconds(&graph.actors[i]);
        free[p] = ends[i];
    }
    Ok(ends.into_iter().fold(0.0, f64::max))
}

/// A point of a placement.
///
/// # Errors
/// As [`latency`].
pub fn point(
    graph: &ActorGraph,
    cores: &Cores,
    core_of: &[usize],
    figures: &Figures,
    (replicas, depth, gap): (u64, u64, f64),
) -> Result<Point, String> {
    // Cores and their ports work at the same time; the slower of both sets the pace.
    let pace = figures.busy_s.iter().zip(&figures.local_s).zip(&figures.port_s);
    let pace = pace.map(|((b, l), x)| (b + l).max(*x)).fold(0.0, f64::max);
    Ok(Point {
        replicas,
        depth,
        throughput: graph.batch as f64 / pace,
        latency_s: latency(graph, cores, core_of)?,
        bottleneck_s: figures.bottleneck_s,
        gap,
        on_front: false,
    })
}

/// Marks the points that no other beats.
pub fn mark_front(points: &mut [Point]) {
    for i in 0..points.len() {
        let p = &points[i];
        let beaten = points.iter().any(|q| {
            q.throughput >= p.throughput
                && q.latency_s <= p.latency_s
                && (q.throughput > p.throughput || q.latency_s < p.latency_s)
        });
        points[i].on_front = !beaten;
    }
}
