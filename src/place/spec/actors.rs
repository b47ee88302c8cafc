//! Files: an actor graph written out (`kind: actors`), and pins.

use crate::place::cores::Cores;
use crate::place::graph::{Actor, ActorGraph, Channel, Fixed, Kind, Work};
use crate::spec::{Node, Problem, Problems, Reader, Value, read::Table};
use crate::units::{Bytes, Flop, Seconds};

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
        /// Bytes of the state that each firing reads, however many samples it has; left out: all of them.
        weights: Option<Bytes>,
        /// Part of `time` that stays as it is when a firing has fewer samples; left out: the overhead of a firing and one reading of the weights.
        fixed: Option<Seconds>,
        /// It has no samples: it does the same however many others have, as a weight that is transposed.
        constant: bool = false,
        /// Bytes that a firing takes from outside the graph; left out: an actor that reads no other takes as many as it writes.
        takes: Option<Bytes>,
        /// Bytes that a firing gives to the outside; left out: an actor that writes to no other gives as many as it reads.
        gives: Option<Bytes>,
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
    let mut say = |field: &str, message: String| {
        let at = node.get(field).unwrap_or(node);
        reader.within(field, |r| r.problem(at, message));
    };
    if let Some(weights) = actor.weights.filter(|w| w.0 > actor.state.0) {
        say("weights", format!("{weights} are read of a state of {}; expected at most that", actor.state));
    }
    match (actor.fixed, actor.time) {
        (Some(fixed), Some(time)) if fixed.0 > time.0 => {
            say("fixed", format!("{fixed} of a firing of {time} stay; expected at most that"));
        }
        (Some(_), None) => say("fixed", "it is a part of time, which is not given; take it out".into()),
        _ => {}
    }
    if actor.constant && (actor.fixed.is_some() || actor.weights.is_some()) {
        say("constant", "then all of it stays as it is: take out fixed and weights".into());
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
        let mut seen = std::collections::HashSet::new();
        for (i, name) in names.iter().enumerate().filter(|(_, name)| !seen.insert(**name)) {
            problems.push(Problem {
                origin: item("actors", i),
                field: format!("actors.[{i}].name"),
                message: format!("two actors are called {name:?}; rename one"),
            });
        }
        let mut channels = Vec::new();
        for (i, c) in spec.channels.iter().enumerate() {
            let mut end = |field: &str, name: &str| {
                let found = index.get(name).copied();
                if found.is_none() {
                    let remedy = crate::spec::nearest::nearest(name, &names)
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
            if capacity == Some(0) {
                problems.push(Problem {
                    origin: item("channels", i),
                    field: format!("channels.[{i}].capacity"),
                    message: "expected at least 1 token, found 0: a FIFO that holds nothing passes nothing on".into(),
                });
            }
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
            fixed: match (a.constant, a.fixed) {
                (true, _) => Fixed::All,
                (_, Some(seconds)) => Fixed::Seconds(seconds.0),
                _ => Fixed::Weights(a.weights.map_or(a.state.0, |w| w.0)),
            },
            outside: (a.takes.is_some() || a.gives.is_some())
                .then(|| (a.takes.map_or(0.0, |b| b.0), a.gives.map_or(0.0, |b| b.0))),
        };
        let actors = spec.actors.iter().map(actor).collect();
        let graph = ActorGraph { name: spec.name.clone(), actors, channels, batch: spec.batch, others: Vec::new() };
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
        match a.fixed {
            Fixed::Weights(w) if w < a.state_bytes => {
                map.insert("weights".into(), json!(bytes(w)));
            }
            Fixed::Weights(_) => {}
            Fixed::Seconds(s) => {
                map.insert("fixed".into(), json!(seconds(s)));
            }
            Fixed::All => {
                map.insert("constant".into(), json!(true));
            }
        }
        if let Some((takes, gives)) = a.outside {
            map.insert("takes".into(), json!(bytes(takes)));
            map.insert("gives".into(), json!(bytes(gives)));
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
            problem(match crate::spec::nearest::nearest(actor, &actors) {
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
