//! Batch split: copies of the graph side by side, each with its share of the samples.
//!
//! r replicas take B / r samples each. A *distributor* reads the B samples and sends each replica its share; a *collector* takes their results. Each moves
//! every byte twice, in and out; they lie among the cores of the first and of the last replica, and are placed with their actors. Latency is the time from
//! the first firing of an iteration to its last; throughput is B over the bottleneck.
//!
//! **Work of fewer samples.** Where the graph is known with other numbers of samples ([`ActorGraph::others`]: counted by the model, or measured), every
//! number of an actor and every token is the one found there, else on the line through the two nearest (time, FLOP and bytes are a fixed and a linear
//! part then). Of a graph known once, with share s = (B / r) / B:
//!
//! | | |
//! |---|---|
//! | counted | FLOP x s; weights + (bytes - weights) x s; the overhead of a firing is paid by each |
//! | measured | fixed + (time - fixed) x s, where fixed is what the actor states, else the overhead of a firing + weights / memory bandwidth of the first core, at most the time |
//! | actors without samples ([`Fixed::All`]) | as they are, their tokens too |
//! | tokens; what comes from outside | x s |
//! | state | as it is: each replica holds its own |

use super::cores::{Core, Cores};
use super::graph::{Actor, ActorGraph, Channel, Fixed, Kind, Work};
use super::placement::Figures;
use serde::Serialize;

/// Name of the actor that divides the samples.
pub const DISTRIBUTOR: &str = "distributor";
/// Name of the actor that brings the results together.
pub const COLLECTOR: &str = "collector";

/// The graph with `samples` samples; `core` is what measured work is thought to have run on, at speed 1.
pub fn with_samples(graph: &ActorGraph, samples: u64, core: &Core) -> ActorGraph {
    if samples == graph.batch {
        return graph.clone();
    }
    let mut known: Vec<&ActorGraph> = graph.others.iter().chain([graph]).collect();
    known.sort_by_key(|g| g.batch);
    if let Some(found) = known.iter().find(|g| g.batch == samples) {
        return ActorGraph { others: graph.others.clone(), ..(*found).clone() };
    }
    let Some(after) = (known.len() > 1).then(|| known.iter().position(|g| g.batch > samples).unwrap_or(known.len()))
    else {
        return scaled(graph, samples, core);
    };
    let high = after.clamp(1, known.len() - 1);
    let (a, b) = (known[high - 1], known[high]);
    let at = (samples as f64 - a.batch as f64) / (b.batch as f64 - a.batch as f64);
    let line = |x: f64, y: f64| (x + (y - x) * at).max(0.0);
    let actor = |(x, y): (&Actor, &Actor)| Actor {
        work: match (x.work, y.work) {
            (Work::Measured { seconds: s, deviation: d }, Work::Measured { seconds: t, deviation: e }) => {
                Work::Measured { seconds: line(s, t), deviation: line(d, e) }
            }
            (Work::Counted { flop: f, bytes: c }, Work::Counted { flop: g, bytes: d }) => {
                Work::Counted { flop: line(f, g), bytes: line(c, d) }
            }
            // Measured here and counted there: what is nearer.
            (one, other) => {
                if at < 0.5 {
                    one
                } else {
                    other
                }
            }
        },
        state_bytes: line(x.state_bytes, y.state_bytes),
        outside: x.outside.zip(y.outside).map(|((i, o), (j, p))| (line(i, j), line(o, p))),
        ..y.clone()
    };
    let channel =
        |(x, y): (&Channel, &Channel)| Channel { token_bytes: line(x.token_bytes, y.token_bytes), ..y.clone() };
    ActorGraph {
        actors: a.actors.iter().zip(&b.actors).map(actor).collect(),
        channels: a.channels.iter().zip(&b.channels).map(channel).collect(),
        batch: samples,
        name: graph.name.clone(),
        others: graph.others.clone(),
    }
}

/// Where the weights of a graph with `samples` samples come from.
pub fn source_of_weights(graph: &ActorGraph, samples: u64) -> String {
    let mut known: Vec<u64> = graph.others.iter().map(|g| g.batch).chain([graph.batch]).collect();
    known.sort_unstable();
    if known.contains(&samples) {
        return "as counted or measured with these".into();
    }
    if known.len() == 1 {
        return format!("of {} the part that does not depend on samples, and the share of the rest", known[0]);
    }
    let high = known.iter().position(|n| *n > samples).unwrap_or(known.len()).clamp(1, known.len() - 1);
    format!("on the line through those with {} and {}", known[high - 1], known[high])
}

/// The graph with other samples, from itself alone.
fn scaled(graph: &ActorGraph, samples: u64, core: &Core) -> ActorGraph {
    let share = samples as f64 / graph.batch as f64;
    let work = |a: &Actor| match (a.work, a.fixed) {
        (work, Fixed::All) => work,
        (Work::Measured { seconds, deviation }, fixed) => {
            let fixed = match fixed {
                Fixed::Seconds(s) => s,
                Fixed::Weights(w) => (core.firing_overhead + w / core.memory_bandwidth) * core.speed,
                Fixed::All => seconds,
            };
            let fixed = fixed.min(seconds);
            let less = fixed + (seconds - fixed) * share;
            let part = if seconds > 0.0 { less / seconds } else { share };
            Work::Measured { seconds: less, deviation: deviation * part }
        }
        (Work::Counted { flop, bytes }, fixed) => {
            let weights = if let Fixed::Weights(w) = fixed { w.min(bytes) } else { 0.0 };
            Work::Counted { flop: flop * share, bytes: weights + (bytes - weights) * share }
        }
    };
    let actor = |a: &Actor| Actor {
        work: work(a),
        outside: if a.fixed == Fixed::All { a.outside } else { a.outside.map(|(i, o)| (i * share, o * share)) },
        ..a.clone()
    };
    let channel = |c: &Channel| match graph.actors[c.source].fixed {
        Fixed::All => c.clone(),
        _ => Channel { token_bytes: c.token_bytes * share, ..c.clone() },
    };
    ActorGraph {
        actors: graph.actors.iter().map(actor).collect(),
        channels: graph.channels.iter().map(channel).collect(),
        batch: samples,
        name: graph.name.clone(),
        others: Vec::new(),
    }
}

/// Why `other` is not `graph` with another number of samples.
///
/// # Errors
/// The first difference, in words.
pub fn same_graph(graph: &ActorGraph, other: &ActorGraph) -> Result<(), String> {
    if other.batch == graph.batch {
        return Err(format!("it has {} samples as the workload has; give one with another number", graph.batch));
    }
    let name = |a: Option<&Actor>| a.map_or_else(|| "no more actors".to_string(), |a| format!("{:?}", a.name));
    let most = graph.actors.len().max(other.actors.len());
    let differs = |i: &usize| graph.actors.get(*i).map(|a| &a.name) != other.actors.get(*i).map(|a| &a.name);
    if let Some(i) = (0..most).find(differs) {
        let (one, two) = (name(graph.actors.get(i)), name(other.actors.get(i)));
        return Err(format!("it is not the same graph: actor {i} of the workload is {one}, and here there is {two}"));
    }
    let ends = |c: &Channel| (c.source, c.target, c.produced, c.consumed, c.initial);
    if graph.channels.iter().map(ends).ne(other.channels.iter().map(ends)) {
        return Err("it is not the same graph: its channels join other actors, or move other numbers of tokens".into());
    }
    Ok(())
}

/// What the ends of the graph exchange with the outside in a firing: taken in, given out.
///
/// Where nobody says, an actor that reads no other takes as much as it hands on, and one that writes to no other gives as much as it reads; weights that
/// were transposed are no samples.
fn ends(graph: &ActorGraph) -> Vec<(f64, f64)> {
    let n = graph.actors.len();
    let (mut reads, mut writes) = (vec![false; n], vec![false; n]);
    let (mut hands_on, mut takes) = (vec![0.0f64; n], vec![0.0f64; n]);
    for c in graph.channels.iter().filter(|c| c.source != c.target) {
        writes[c.source] = true;
        if graph.actors[c.source].fixed == Fixed::All {
            continue;
        }
        reads[c.target] = true;
        hands_on[c.source] = hands_on[c.source].max(c.token_bytes * c.produced as f64);
        takes[c.target] = takes[c.target].max(c.token_bytes * c.consumed as f64);
    }
    let end = |i: usize| match (graph.actors[i].fixed, graph.actors[i].outside) {
        (Fixed::All, _) => (0.0, 0.0),
        (_, Some(known)) => known,
        _ => (if reads[i] { 0.0 } else { hands_on[i] }, if writes[i] { 0.0 } else { takes[i] }),
    };
    (0..n).map(end).collect()
}

/// `copies` of `part` behind a distributor and before a collector, where these are asked for; those move the samples of all `replicas`.
fn joined(
    part: &ActorGraph,
    replicas: u64,
    copies: u64,
    distributor: bool,
    collector: bool,
) -> Result<ActorGraph, String> {
    let firings = part.repetitions().map_err(|e| e.to_string())?;
    let ends = ends(part);
    let n = part.actors.len();
    let moved = |end: &dyn Fn(&(f64, f64)) -> f64| {
        ends.iter().zip(&firings).map(|(e, q)| end(e) * *q as f64).sum::<f64>() * replicas as f64
    };
    let mover = |name: &str, bytes: f64| Actor {
        name: name.into(),
        kind: Kind::Data,
        work: Work::Counted { flop: 0.0, bytes: 2.0 * bytes },
        state_bytes: 0.0,
        fixed: Fixed::Weights(0.0),
        outside: None,
    };
    let mut actors = Vec::new();
    let mut channels = Vec::new();
    if distributor {
        actors.push(mover(DISTRIBUTOR, moved(&|e| e.0)));
    }
    let before = actors.len();
    for r in 0..copies {
        let first = actors.len();
        let name = |a: &Actor| if copies == 1 { a.name.clone() } else { format!("{}.r{r}", a.name) };
        actors.extend(part.actors.iter().map(|a| Actor { name: name(a), ..a.clone() }));
        channels.extend(part.channels.iter().map(|c| Channel {
            source: first + c.source,
            target: first + c.target,
            ..c.clone()
        }));
    }
    let last = actors.len();
    if collector {
        actors.push(mover(COLLECTOR, moved(&|e| e.1)));
    }
    // An actor that fires q times an iteration does so in every replica: the joints move all its tokens at once.
    let mut joint = |source: (usize, String, u64), target: (usize, String, u64), bytes: f64| {
        channels.push(Channel {
            source: source.0,
            source_port: source.1,
            target: target.0,
            target_port: target.1,
            produced: source.2,
            consumed: target.2,
            initial: 0,
            token_bytes: bytes,
            capacity: None,
        });
    };
    for r in 0..copies as usize {
        for i in 0..n {
            let (q, at) = (firings[i], before + r * n + i);
            if distributor && ends[i].0 > 0.0 {
                joint((0, format!("out{r}"), q), (at, "samples".into(), 1), ends[i].0);
            }
            if collector && ends[i].1 > 0.0 {
                joint((at, "results".into(), 1), (last, format!("in{r}_{i}"), q), ends[i].1);
            }
        }
    }
    let batch = part.batch * replicas;
    Ok(ActorGraph { name: format!("{} x {replicas}", part.name), actors, channels, batch, others: Vec::new() })
}

/// The graph `replicas` times, joined by distributor and collector; one replica is the graph itself.
///
/// # Errors
/// Replicas that do not divide the samples.
pub fn replicated(graph: &ActorGraph, replicas: u64, core: &Core) -> Result<ActorGraph, String> {
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
    joined(&with_samples(graph, graph.batch / replicas, core), replicas, replicas, true, true)
}

/// What the cores of one replica run: the first has the distributor too, the last the collector, those between neither.
///
/// # Errors
/// A fault of the graph, in words.
pub fn own(part: &ActorGraph, replicas: u64, r: u64) -> Result<ActorGraph, String> {
    joined(part, replicas, 1, r == 0, r + 1 == replicas)
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
