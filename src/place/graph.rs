//! Actors and the channels between them.
//!
//! An actor fires: it takes `consumed` tokens from each channel that ends at it, computes, and puts `produced` tokens on each
//! channel that starts at it (synchronous dataflow: the numbers never change). A channel is a FIFO of `token_bytes` each.
//!
//! **Repetitions.** The least whole numbers `q` with `q[source] x produced = q[target] x consumed` for every channel: as often
//! each actor fires in one iteration of the graph, after which every FIFO holds what it held before.

use crate::spec::{Problem, Problems};
use serde::Serialize;

crate::choice! {
    /// The kind of kernel an actor runs; cores have a rate for each.
    pub enum Kind ("a kind of kernel") {
        /// Matrix products and convolutions.
        Matrix = "matrix",
        /// Everything that makes one result of few operands: activations, norms, additions, pooling.
        Vector = "vector",
        /// Moves or renames data and computes nothing: views, copies, concatenations, distribution and collection.
        Data = "data",
    }
}

/// What one firing of an actor takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Measured on a core of speed 1 ([`super::cores::Core::speed`]).
    Measured {
        /// Mean seconds of one firing.
        seconds: f64,
        /// Standard deviation of these; zero where the profile has one figure alone.
        deviation: f64,
    },
    /// Counted: its time follows from the rates of the core.
    Counted {
        /// FLOP of one firing.
        flop: f64,
        /// Bytes that one firing reads and writes.
        bytes: f64,
    },
}

/// What of a firing stays as it is when it has fewer samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fixed {
    /// Reading so many bytes of its state, and the overhead of a firing.
    Weights(f64),
    /// So many of the measured seconds.
    Seconds(f64),
    /// Everything, its tokens too: it has no samples, as a weight that is transposed.
    All,
}

/// One actor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Actor {
    /// Unique name.
    pub name: String,
    /// Kind of its kernel.
    pub kind: Kind,
    /// What one firing takes.
    pub work: Work,
    /// Bytes it holds from one firing to the next: parameters, tables, caches. They lie in the memory of its core.
    pub state_bytes: f64,
    /// What of a firing does not depend on its samples.
    pub fixed: Fixed,
    /// Bytes that a firing takes from outside the graph, and that it gives there; `None` where nobody says.
    pub outside: Option<(f64, f64)>,
}

/// A FIFO from a port of one actor to a port of another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Channel {
    /// Index of the actor that writes.
    pub source: usize,
    /// Its port.
    pub source_port: String,
    /// Index of the actor that reads.
    pub target: usize,
    /// Its port.
    pub target_port: String,
    /// Tokens that one firing of the source writes.
    pub produced: u64,
    /// Tokens that one firing of the target reads.
    pub consumed: u64,
    /// Tokens that lie in it at the start.
    pub initial: u64,
    /// Bytes of one token.
    pub token_bytes: f64,
    /// Tokens it holds at most; `None` where that is to be chosen.
    pub capacity: Option<u64>,
}

/// Actors and channels, checked: every index is valid, no name stands twice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ActorGraph {
    /// Name for rows and titles.
    pub name: String,
    /// Actors, in the order of their file.
    pub actors: Vec<Actor>,
    /// Channels.
    pub channels: Vec<Channel>,
    /// Samples of one iteration.
    pub batch: u64,
    /// The same graph with other numbers of samples, as measured or counted: replicas take their weights from these.
    #[serde(skip)]
    pub others: Vec<ActorGraph>,
}

/// A fault of an actor graph.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActorError {
    /// Two actors of one name.
    #[error("two actors are called {0:?}; rename one")]
    Twice(String),
    /// The channels ask for different numbers of firings.
    #[error(
        "the channel {source_actor:?} -> {target_actor:?} moves {produced} tokens in and {consumed} out a firing, which no number of firings balances with the other channels; change one of the two"
    )]
    Unbalanced {
        /// The actor that writes.
        source_actor: String,
        /// The actor that reads.
        target_actor: String,
        /// Tokens a firing writes.
        produced: u64,
        /// Tokens a firing reads.
        consumed: u64,
    },
    /// A firing that moves nothing.
    #[error("the channel {0:?} -> {1:?} moves no token; give it at least one token a firing on both ends")]
    Empty(String, String),
    /// A FIFO that can hold nothing.
    #[error("the FIFO {0:?} -> {1:?} has a capacity of 0 tokens; give it at least 1")]
    NoCapacity(String, String),
    /// A circle of channels without an initial token: nobody can fire first.
    #[error(
        "the actors {} wait for each other and no channel between them holds an initial token; put initial tokens on one of these channels", .0.join(" -> ")
    )]
    Starved(Vec<String>),
    /// A circle that runs, but whose initial tokens serve a part of an iteration alone: its actors take turns, and none of them is first.
    #[error(
        "the actors {} take turns several times an iteration (their initial tokens serve a part of it), so that a placement finds no order among them; make them one actor, or put the tokens of a whole iteration of the reader on one of these channels", .0.join(" -> ")
    )]
    Turns(Vec<String>),
    /// The balance asks for more firings than can be counted.
    #[error("an iteration takes more than {0} firings of one actor; choose token counts with smaller ratios")]
    TooMany(u64),
}

/// Most firings of one actor in one iteration.
pub const MOST_FIRINGS: u64 = 1 << 32;

impl ActorGraph {
    /// Index of the actor called `name`.
    pub fn actor(&self, name: &str) -> Option<usize> {
        self.actors.iter().position(|a| a.name == name)
    }

    /// How often each actor fires in one iteration.
    ///
    /// # Errors
    /// [`ActorError`]: a channel that cannot be balanced, or numbers too large.
    pub fn repetitions(&self) -> Result<Vec<u64>, ActorError> {
        let n = self.actors.len();
        let mut near: Vec<Vec<usize>> = vec![Vec::new(); n];
        for (c, channel) in self.channels.iter().enumerate() {
            let name = |a: usize| self.actors[a].name.clone();
            if channel.produced == 0 || channel.consumed == 0 {
                return Err(ActorError::Empty(name(channel.source), name(channel.target)));
            }
            near[channel.source].push(c);
            near[channel.target].push(c);
        }
        // Firings of each actor as a fraction of those of the first of its component.
        let mut ratio: Vec<Option<(u128, u128)>> = vec![None; n];
        let mut firings = vec![1u64; n];
        let too_many = ActorError::TooMany(MOST_FIRINGS);
        for start in 0..n {
            if ratio[start].is_some() {
                continue;
            }
            ratio[start] = Some((1, 1));
            let mut component = vec![start];
            let mut at = 0;
            while at < component.len() {
                let a = component[at];
                at += 1;
                let (up, down) = ratio[a].unwrap_or((1, 1));
                for &c in &near[a] {
                    let channel = &self.channels[c];
                    let (other, up, down) = if channel.source == a {
                        (channel.target, up * u128::from(channel.produced), down * u128::from(channel.consumed))
                    } else {
                        (channel.source, up * u128::from(channel.consumed), down * u128::from(channel.produced))
                    };
                    let divisor = gcd(up, down);
                    let found = (up / divisor, down / divisor);
                    if found.0.max(found.1) > u128::from(MOST_FIRINGS) {
                        return Err(too_many);
                    }
                    match ratio[other] {
                        None => {
                            ratio[other] = Some(found);
                            component.push(other);
                        }
                        Some(known) if known == found => {}
                        Some(_) => {
                            return Err(ActorError::Unbalanced {
                                source_actor: self.actors[channel.source].name.clone(),
                                target_actor: self.actors[channel.target].name.clone(),
                                produced: channel.produced,
                                consumed: channel.consumed,
                            });
                        }
                    }
                }
            }
            let mut common: u128 = 1;
            for a in &component {
                let (_, down) = ratio[*a].unwrap_or((1, 1));
                common = common / gcd(common, down) * down;
                if common > u128::from(MOST_FIRINGS) {
                    return Err(too_many);
                }
            }
            let counts: Vec<u128> =
                component.iter().map(|a| ratio[*a].map_or(common, |(up, down)| common / down * up)).collect();
            let divisor = counts.iter().fold(0, |d, c| gcd(d, *c)).max(1);
            for (a, count) in component.iter().zip(counts) {
                firings[*a] = u64::try_from(count / divisor)
                    .ok()
                    .filter(|f| *f <= MOST_FIRINGS)
                    .ok_or(ActorError::TooMany(MOST_FIRINGS))?;
            }
        }
        Ok(firings)
    }

    /// Bytes that pass each channel in one iteration.
    ///
    /// # Errors
    /// As [`Self::repetitions`].
    pub fn traffic(&self) -> Result<Vec<f64>, ActorError> {
        let firings = self.repetitions()?;
        Ok(self.channels.iter().map(|c| (firings[c.source] * c.produced) as f64 * c.token_bytes).collect())
    }

    /// An order in which every actor comes after those it waits for: channels whose initial tokens serve a whole iteration of
    /// their reader do not make it wait. Of the ready actors the earliest goes first.
    ///
    /// # Errors
    /// The circle of actors that wait for each other, for ever or by turns ([`super::simulate::deadlock`] tells which).
    pub fn order(&self) -> Result<Vec<usize>, ActorError> {
        let firings = self.repetitions()?;
        let n = self.actors.len();
        let waits = |c: &Channel| c.initial < firings[c.target] * c.consumed;
        let mut waiting = vec![0usize; n];
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); n];
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); n];
        for channel in self.channels.iter().filter(|c| waits(c)) {
            waiting[channel.target] += 1;
            next[channel.source].push(channel.target);
            before[channel.target].push(channel.source);
        }
        let mut ready: std::collections::BTreeSet<usize> = (0..n).filter(|a| waiting[*a] == 0).collect();
        let mut order = Vec::with_capacity(n);
        while let Some(a) = ready.pop_first() {
            order.push(a);
            for t in &next[a] {
                waiting[*t] -= 1;
                if waiting[*t] == 0 {
                    ready.insert(*t);
                }
            }
        }
        if order.len() == n {
            return Ok(order);
        }
        // Every actor left has one left before it, so walking back closes a circle.
        let Some(mut at) = (0..n).find(|a| waiting[*a] > 0) else { return Ok(order) };
        let mut seen: Vec<usize> = Vec::new();
        let mut place = vec![usize::MAX; n];
        while place[at] == usize::MAX {
            place[at] = seen.len();
            seen.push(at);
            match before[at].iter().find(|b| waiting[**b] > 0) {
                Some(b) => at = *b,
                None => break,
            }
        }
        let mut names: Vec<String> = seen[place[at]..].iter().map(|a| self.actors[*a].name.clone()).collect();
        names.reverse();
        if let Some(first) = names.first().cloned() {
            names.push(first);
        }
        Err(if super::simulate::deadlock::runs(self, &firings) {
            ActorError::Turns(names)
        } else {
            ActorError::Starved(names)
        })
    }

    /// Everything that is wrong with the graph, as problems of `file`.
    ///
    /// # Errors
    /// All [`ActorError`]s.
    pub fn checked(self, origin: &crate::spec::Origin) -> Result<Self, Problems> {
        let mut errors = Vec::new();
        let mut seen = std::collections::HashSet::new();
        errors.extend(self.actors.iter().filter(|a| !seen.insert(&a.name)).map(|a| ActorError::Twice(a.name.clone())));
        for c in self.channels.iter().filter(|c| c.capacity == Some(0)) {
            errors.push(ActorError::NoCapacity(self.actors[c.source].name.clone(), self.actors[c.target].name.clone()));
        }
        // Actors that take turns can be simulated; placing them names them.
        if let Err(e) = self.order()
            && !matches!(e, ActorError::Turns(_))
        {
            errors.push(e);
        }
        if errors.is_empty() {
            return Ok(self);
        }
        let problem =
            |e: ActorError| Problem { origin: origin.clone(), field: "actors".into(), message: e.to_string() };
        Err(Problems(errors.into_iter().map(problem).collect()))
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(channels: &[(usize, usize, u64, u64, u64)]) -> ActorGraph {
        let n = channels.iter().map(|c| c.0.max(c.1) + 1).max().unwrap_or(0);
        let actor = |i: usize| Actor {
            name: format!("a{i}"),
            kind: Kind::Vector,
            work: Work::Measured { seconds: 1.0, deviation: 0.0 },
            state_bytes: 0.0,
            fixed: Fixed::Seconds(0.0),
            outside: None,
        };
        let channel = |&(source, target, produced, consumed, initial): &(usize, usize, u64, u64, u64)| Channel {
            source,
            source_port: "out".into(),
            target,
            target_port: "in".into(),
            produced,
            consumed,
            initial,
            token_bytes: 4.0,
            capacity: None,
        };
        ActorGraph {
            name: "g".into(),
            actors: (0..n).map(actor).collect(),
            channels: channels.iter().map(channel).collect(),
            batch: 1,
            others: Vec::new(),
        }
    }

    /// Lee and Messerschmitt's sort of example by hand: a makes 2, b takes 3 and makes 1, c takes 2: 3 a, 2 b, 1 c.
    #[test]
    fn repetitions_by_hand() {
        let g = graph(&[(0, 1, 2, 3, 0), (1, 2, 1, 2, 0)]);
        assert_eq!(g.repetitions().unwrap(), [3, 2, 1]);
        assert_eq!(g.traffic().unwrap(), [24.0, 8.0]);
        let two = graph(&[(0, 1, 1, 1, 0), (2, 3, 2, 1, 0)]);
        assert_eq!(two.repetitions().unwrap(), [1, 1, 1, 2]);
    }

    #[test]
    fn what_does_not_balance_is_named() {
        let error = graph(&[(0, 1, 1, 1, 0), (0, 1, 2, 1, 0)]).repetitions().unwrap_err();
        assert!(error.to_string().contains("\"a0\" -> \"a1\" moves 2 tokens in and 1 out"), "{error}");
    }

    #[test]
    fn circles_need_initial_tokens() {
        let error = graph(&[(0, 1, 1, 1, 0), (1, 2, 1, 1, 0), (2, 1, 1, 1, 0)]).order().unwrap_err();
        assert_eq!(error, ActorError::Starved(vec!["a2".into(), "a1".into(), "a2".into()]));
        let fed = graph(&[(0, 1, 1, 1, 0), (1, 2, 1, 1, 0), (2, 1, 1, 1, 1)]);
        assert_eq!(fed.order().unwrap(), [0, 1, 2]);
        // a fires three times an iteration and b twice: four tokens on the way back keep both going, three do not, six serve a whole iteration.
        let circle = |initial| graph(&[(0, 1, 2, 3, 0), (1, 0, 3, 2, initial)]);
        assert!(matches!(circle(3).order(), Err(ActorError::Starved(_))), "{:?}", circle(3).order());
        assert!(matches!(circle(4).order(), Err(ActorError::Turns(_))), "{:?}", circle(4).order());
        assert!(circle(6).order().is_ok());
        let origin = crate::spec::Origin { file: "g.yaml".into(), line: 1 };
        assert!(circle(4).checked(&origin).is_ok() && circle(3).checked(&origin).is_err());
    }
}
