//! Whether a graph can run for ever with its FIFOs; if not, why, and what mends it.
//!
//! A firing takes tokens and room that nobody else may take, so one that may start may still start after any other (the net is
//! persistent): whether all sleep in the end does not depend on times, cores or turns. And what completes one iteration is back at its
//! first state (Lee and Messerschmitt, 1987). So tokens are played without a clock until every actor has fired its repetitions; what
//! is stuck before deadlocks in every placement, and nothing else does.
//!
//! - **cyclic**: stuck even with boundless FIFOs. Actors in a circle wait for each other's tokens; only more initial tokens help.
//! - **artificial**: stuck with these FIFOs alone. Somewhere in the circle a writer waits for room; a larger buffer helps.
//!
//! What mends it: along the circle the least of its buffers (or its tokens) grows until the actor that waits for it may fire, until no
//! circle is left; then everything that grew is taken back as far as it goes. More tokens and more room never stop a firing, so one
//! such pass leaves amounts of which none can be one less.

use super::net::{Buffer, Fifo, Net};
use crate::place::graph::{ActorGraph, Channel};
use serde::Serialize;

crate::choice! {
    /// Kinds of deadlock.
    pub enum Kind ("a kind of deadlock") {
        /// Too few initial tokens in a circle.
        Cyclic = "cyclic",
        /// A buffer that is too small.
        Artificial = "artificial",
    }
}

/// What an actor of the circle waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The actor that waits.
    pub actor: usize,
    /// The FIFO.
    pub fifo: usize,
    /// Whether it waits for room (else for tokens).
    pub room: bool,
    /// Tokens, or room, that there are.
    pub found: u32,
    /// Tokens, or room, that a firing needs.
    pub needed: u32,
}

/// One change that, with the others, mends the deadlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// The buffer (artificial) or the FIFO (cyclic).
    pub what: usize,
    /// Size in tokens, or initial tokens, as it is.
    pub from: u32,
    /// As it must be.
    pub to: u32,
}

/// A deadlock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deadlock {
    /// Which.
    pub kind: Kind,
    /// A circle of actors that wait for each other: each for the next, the last for the first.
    pub circle: Vec<Wait>,
    /// What mends it: buffers to enlarge, or FIFOs to start with more tokens.
    pub remedy: Vec<Remedy>,
}

impl Deadlock {
    /// The verdict as lines of text.
    pub fn describe(&self, net: &Net) -> Vec<String> {
        let mut lines = vec![match self.kind {
            Kind::Cyclic => {
                "cyclic deadlock: actors wait for each other's tokens, whatever the sizes of the FIFOs".to_string()
            }
            Kind::Artificial => "artificial deadlock: a FIFO is too small".to_string(),
        }];
        for wait in &self.circle {
            let Wait { found, needed, .. } = wait;
            let what = if wait.room { "room for" } else { "" };
            let actor = &net.actors[wait.actor];
            let what = if what.is_empty() { String::new() } else { format!("{what} ") };
            lines.push(format!(
                "  {actor:?} needs {what}{needed} tokens in {}, and there are {found}",
                net.fifo_name(wait.fifo)
            ));
        }
        for Remedy { what, from, to } in &self.remedy {
            lines.push(match self.kind {
                Kind::Cyclic => {
                    format!("  remedy: start {} with {to} tokens (it starts with {from})", net.fifo_name(*what))
                }
                Kind::Artificial => {
                    let Some(buffer) = net.buffers.get(*what) else { continue };
                    let readers: Vec<String> = net
                        .fifos
                        .iter()
                        .enumerate()
                        .filter(|(_, f)| f.buffer == *what)
                        .map(|(i, _)| net.fifo_name(i))
                        .collect();
                    let bytes = if buffer.token_bytes > 0.0 {
                        format!(", {} bytes", f64::from(*to) * buffer.token_bytes)
                    } else {
                        String::new()
                    };
                    format!("  remedy: a size of {to} tokens{bytes} for {} (it is {from})", readers.join(", "))
                }
            });
        }
        lines
    }
}

/// Why the net cannot run for ever with these capacities; `None` where it can.
pub fn verdict(net: &Net, capacities: &[u32]) -> Option<Deadlock> {
    let tokens: Vec<u32> = net.fifos.iter().map(|f| f.initial).collect();
    let boundless = vec![BOUNDLESS; net.buffers.len()];
    if let Err(stuck) = play(net, &boundless, &tokens) {
        let circle = stuck.circle(net, &boundless);
        return Some(Deadlock { kind: Kind::Cyclic, remedy: more_tokens(net, tokens, &boundless), circle });
    }
    let stuck = play(net, capacities, &tokens).err()?;
    let circle = stuck.circle(net, capacities);
    Some(Deadlock { kind: Kind::Artificial, remedy: more_room(net, capacities, &tokens), circle })
}

/// Whether a graph whose actors fire so often an iteration can run for ever with boundless FIFOs.
pub fn runs(graph: &ActorGraph, repetitions: &[u64]) -> bool {
    let count = |tokens: u64| u32::try_from(tokens).unwrap_or(BOUNDLESS);
    let fifo = |(i, c): (usize, &Channel)| Fifo {
        source: c.source,
        target: c.target,
        produced: count(c.produced),
        consumed: count(c.consumed),
        initial: count(c.initial),
        delay: 0.0,
        buffer: i,
    };
    let buffer = |c: &Channel| Buffer { capacity: BOUNDLESS, token_bytes: c.token_bytes, name: c.source_port.clone() };
    let net = Net {
        actors: graph.actors.iter().map(|a| a.name.clone()).collect(),
        seconds: vec![0.0; graph.actors.len()],
        repetitions: repetitions.to_vec(),
        core_of: vec![0; graph.actors.len()],
        cores: vec![String::new()],
        fifos: graph.channels.iter().enumerate().map(fifo).collect(),
        buffers: graph.channels.iter().map(buffer).collect(),
    };
    let tokens: Vec<u32> = net.fifos.iter().map(|f| f.initial).collect();
    play(&net, &vec![BOUNDLESS; net.buffers.len()], &tokens).is_ok()
}

/// Room that no iteration fills.
const BOUNDLESS: u32 = u32::MAX;

/// Where everybody waits.
struct Stuck {
    tokens: Vec<u64>,
    fired: Vec<u64>,
}

/// Plays one iteration.
fn play(net: &Net, capacities: &[u32], initial: &[u32]) -> Result<(), Stuck> {
    let n = net.actors.len();
    let mut reads: Vec<Vec<usize>> = vec![Vec::new(); n];
    let mut writes: Vec<Vec<usize>> = vec![Vec::new(); n];
    for (i, f) in net.fifos.iter().enumerate() {
        reads[f.target].push(i);
        writes[f.source].push(i);
    }
    let room = |f: usize| match capacities[net.fifos[f].buffer] {
        BOUNDLESS => u64::MAX / 2,
        capacity => u64::from(capacity),
    };
    let mut tokens: Vec<u64> = initial.iter().map(|t| u64::from(*t)).collect();
    let mut fired = vec![0u64; n];
    let mut list: Vec<usize> = (0..n).rev().collect();
    let mut listed = vec![true; n];
    while let Some(a) = list.pop() {
        listed[a] = false;
        let mut times = net.repetitions[a] - fired[a];
        for f in &reads[a] {
            times = times.min(tokens[*f] / u64::from(net.fifos[*f].consumed));
        }
        for f in &writes[a] {
            // During a firing both what is read and what is written lie in the FIFO: also in one from the actor to itself.
            let free = room(*f).saturating_sub(tokens[*f]);
            times = times.min(free / u64::from(net.fifos[*f].produced));
        }
        if times == 0 {
            continue;
        }
        fired[a] += times;
        for f in &reads[a] {
            tokens[*f] -= times * u64::from(net.fifos[*f].consumed);
        }
        for f in &writes[a] {
            tokens[*f] += times * u64::from(net.fifos[*f].produced);
        }
        let touched =
            reads[a].iter().map(|f| net.fifos[*f].source).chain(writes[a].iter().map(|f| net.fifos[*f].target));
        for b in touched.chain([a]) {
            if !listed[b] {
                listed[b] = true;
                list.push(b);
            }
        }
    }
    if fired.iter().zip(&net.repetitions).all(|(f, q)| f == q) { Ok(()) } else { Err(Stuck { tokens, fired }) }
}

impl Stuck {
    /// What an actor waits for first: tokens before room.
    fn wait(&self, net: &Net, capacities: &[u32], actor: usize) -> Option<Wait> {
        let held = |i: usize| u32::try_from(self.tokens[i]).unwrap_or(u32::MAX);
        let tokens = net.fifos.iter().enumerate().filter(|(i, f)| f.target == actor && held(*i) < f.consumed);
        let empty =
            tokens.map(|(i, f)| Wait { actor, fifo: i, room: false, found: held(i), needed: f.consumed }).next();
        empty.or_else(|| {
            net.fifos.iter().enumerate().filter(|(_, f)| f.source == actor).find_map(|(i, f)| {
                let found = capacities[f.buffer].saturating_sub(held(i));
                (found < f.produced).then_some(Wait { actor, fifo: i, room: true, found, needed: f.produced })
            })
        })
    }

    /// A circle of waits: from an actor that has not fired enough, to the one it waits for, until one comes again.
    fn circle(&self, net: &Net, capacities: &[u32]) -> Vec<Wait> {
        let late = (0..net.actors.len()).find(|a| self.fired[*a] < net.repetitions[*a]);
        let mut seen = vec![usize::MAX; net.actors.len()];
        let mut path: Vec<Wait> = Vec::new();
        let Some(mut at) = late else { return path };
        while seen[at] == usize::MAX {
            seen[at] = path.len();
            let Some(wait) = self.wait(net, capacities, at) else { return path };
            let fifo = &net.fifos[wait.fifo];
            at = if wait.room { fifo.target } else { fifo.source };
            path.push(wait);
        }
        path.split_off(seen[at])
    }
}

/// Larger buffers with which the net runs.
fn more_room(net: &Net, capacities: &[u32], tokens: &[u32]) -> Vec<Remedy> {
    let mut grown = capacities.to_vec();
    while let Err(stuck) = play(net, &grown, tokens) {
        let circle = stuck.circle(net, &grown);
        let short = circle.iter().filter(|w| w.room);
        let cost = |w: &&Wait| f64::from(w.needed - w.found) * net.buffers[net.fifos[w.fifo].buffer].token_bytes;
        // Without a full FIFO in the circle the net would be stuck with boundless ones too, and the caller knows it is not.
        let Some(wait) = short.min_by(|a, b| cost(a).total_cmp(&cost(b))) else { return Vec::new() };
        grown[net.fifos[wait.fifo].buffer] += wait.needed - wait.found;
    }
    take_back(capacities, grown, |grown| play(net, grown, tokens).is_ok())
}

/// More initial tokens with which the net runs.
fn more_tokens(net: &Net, tokens: Vec<u32>, boundless: &[u32]) -> Vec<Remedy> {
    let mut grown = tokens.clone();
    while let Err(stuck) = play(net, boundless, &grown) {
        let circle = stuck.circle(net, boundless);
        // The circle closes where its data come back: the FIFO that goes from a later actor to an earlier one.
        let back = circle.iter().filter(|w| !w.room).max_by_key(|w| {
            let f = &net.fifos[w.fifo];
            (f.source as i64 - f.target as i64, std::cmp::Reverse(w.fifo))
        });
        let Some(wait) = back else { return Vec::new() };
        grown[wait.fifo] += wait.needed - wait.found;
    }
    take_back(&tokens, grown, |grown| play(net, boundless, grown).is_ok())
}

/// Takes back as much of what grew as `runs` allows, one after another, and lists the rest.
fn take_back(from: &[u32], mut grown: Vec<u32>, runs: impl Fn(&[u32]) -> bool) -> Vec<Remedy> {
    for i in 0..grown.len() {
        let (mut low, mut high) = (from[i], grown[i]);
        while low < high {
            let middle = low + (high - low) / 2;
            grown[i] = middle;
            if runs(&grown) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        grown[i] = high;
    }
    let changed = from.iter().zip(grown).enumerate().filter(|(_, (from, to))| *from != to);
    changed.map(|(what, (from, to))| Remedy { what, from: *from, to }).collect()
}
