//! What is simulated: actors with seconds a firing on numbered cores, FIFOs with capacities, nothing else.

use crate::model::divisors::gcd;
use crate::place::{ActorGraph, Cores, Placement};

crate::choice! {
    /// What a transfer between two actors takes in the simulation.
    pub enum Transfers ("a rule for transfers") {
        /// Nothing: tokens are there when the firing ends.
        Free = "free",
        /// Time, but no core: tokens arrive the seconds of the transfer after the firing ends, however many are under way.
        Delay = "delay",
        /// The core of the writer: each firing takes the seconds of its transfers longer.
        Core = "core",
    }
}

/// A FIFO.
#[derive(Debug, Clone, PartialEq)]
pub struct Fifo {
    /// Actor that writes.
    pub source: usize,
    /// Actor that reads.
    pub target: usize,
    /// Tokens a firing of the source writes.
    pub produced: u32,
    /// Tokens a firing of the target reads.
    pub consumed: u32,
    /// Tokens in it at the start.
    pub initial: u32,
    /// Seconds between the end of a firing and the arrival of its tokens.
    pub delay: f64,
    /// The buffer it lies in: FIFOs of one output share one.
    pub buffer: usize,
}

/// One buffer per output, shared by its readers.
#[derive(Debug, Clone, PartialEq)]
pub struct Buffer {
    /// Tokens it holds.
    pub capacity: u32,
    /// Bytes of a token.
    pub token_bytes: f64,
    /// For messages: actor and port.
    pub name: String,
}

/// Actors on cores, and the FIFOs between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Net {
    /// Names of the actors.
    pub actors: Vec<String>,
    /// Seconds of one firing of each.
    pub seconds: Vec<f64>,
    /// Firings of each in one iteration.
    pub repetitions: Vec<u64>,
    /// Core of each.
    pub core_of: Vec<usize>,
    /// Names of the cores.
    pub cores: Vec<String>,
    /// FIFOs.
    pub fifos: Vec<Fifo>,
    /// Buffers.
    pub buffers: Vec<Buffer>,
}

/// Why there is nothing to simulate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// A count beyond what the simulation holds.
    #[error("the FIFO {0} counts {1} tokens; the simulation holds at most {MOST_TOKENS}: make its tokens larger")]
    TooManyTokens(String, u64),
    /// A FIFO that cannot hold what lies in it.
    #[error("the FIFO {0} holds {1} tokens and starts with {2}; give it a size of at least {2}")]
    Overfull(String, u32, u32),
    /// A FIFO that holds nothing.
    #[error("the FIFO {0} has a size of 0 tokens; give it at least {1}")]
    NoCapacity(String, u64),
    /// Times that are no times.
    #[error("the actor {0:?} takes {1} s a firing; a finite time of at least 0 s is due")]
    Seconds(String, String),
    /// Nothing takes any time.
    #[error("no firing of {} takes any time, so that no rate follows; state the time of at least one (a profile, FLOP or a firing overhead of the cores)", .0.join(", "))]
    NoTime(Vec<String>),
    /// Fewer or more figures than actors.
    #[error("the placement has cores for {0} actors and the graph has {1}; place this graph again")]
    OtherGraph(usize, usize),
    /// A core that does not exist.
    #[error("the actor {0:?} is placed on core {1}; the cores are 0 to {2}")]
    NoCore(String, usize, usize),
    /// Rates that no number of firings balances, and the like.
    #[error("{0}")]
    Graph(String),
    /// More firings in one iteration than are simulated.
    #[error(
        "one iteration takes {0} firings; at most {MOST_FIRINGS} are simulated: choose token counts with smaller ratios"
    )]
    TooManyFirings(u128),
}

/// Most tokens of one FIFO.
pub const MOST_TOKENS: u64 = 1 << 31;
/// Most firings of one iteration.
pub const MOST_FIRINGS: u128 = 100_000_000;
/// Bytes of a FIFO whose size nobody states: the runtime's (4,096 bytes / token size, at least one token).
pub const DEFAULT_BYTES: f64 = 4096.0;

/// The size of a FIFO that nobody states: as the runtime has it, but never less than lets both ends fire and holds its
/// initial tokens.
pub fn default_capacity(token_bytes: f64, produced: u64, consumed: u64, initial: u64) -> u64 {
    let fit = if token_bytes > 0.0 { (DEFAULT_BYTES / token_bytes).floor() } else { DEFAULT_BYTES };
    (fit as u64).max(1).max(least_capacity(produced, consumed, initial))
}

/// The least size with which a FIFO by itself never blocks for good: `produced + consumed - g + initial mod g` with g their
/// greatest common divisor (Adé, Lauwereins and Peperstraete, DAC 1997), and its initial tokens.
pub fn least_capacity(produced: u64, consumed: u64, initial: u64) -> u64 {
    let g = gcd(produced, consumed).max(1);
    (produced + consumed - g + initial % g).max(initial)
}

impl Net {
    /// The net of a placed graph.
    ///
    /// # Errors
    /// All [`NetError`]s.
    pub fn of(
        graph: &ActorGraph,
        cores: &Cores,
        placement: &Placement,
        transfers: Transfers,
    ) -> Result<Self, Vec<NetError>> {
        let (n, m) = (graph.actors.len(), cores.len());
        if placement.core_of.len() != n {
            return Err(vec![NetError::OtherGraph(placement.core_of.len(), n)]);
        }
        let mut errors: Vec<NetError> = graph
            .actors
            .iter()
            .zip(&placement.core_of)
            .filter(|(_, core)| **core >= m)
            .map(|(actor, core)| NetError::NoCore(actor.name.clone(), *core, m.saturating_sub(1)))
            .collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        let repetitions = graph.repetitions().map_err(|e| vec![NetError::Graph(e.to_string())])?;
        let mut seconds: Vec<f64> =
            graph.actors.iter().zip(&placement.core_of).map(|(a, c)| cores.cores[*c].firing_seconds(a)).collect();
        let mut buffers: Vec<Buffer> = Vec::new();
        let mut fifos = Vec::with_capacity(graph.channels.len());
        let mut outputs = std::collections::HashMap::new();
        for (i, c) in graph.channels.iter().enumerate() {
            let (source, target) = (&graph.actors[c.source].name, &graph.actors[c.target].name);
            let name = format!("{source:?} -> {target:?}");
            let stated = placement.capacities.get(i).copied().or(c.capacity);
            let capacity = stated.unwrap_or_else(|| default_capacity(c.token_bytes, c.produced, c.consumed, c.initial));
            let mut counted = |count: u64| {
                u32::try_from(count).ok().filter(|c| u64::from(*c) <= MOST_TOKENS).unwrap_or_else(|| {
                    errors.push(NetError::TooManyTokens(name.clone(), count));
                    1
                })
            };
            let [produced, consumed, initial, capacity] =
                [c.produced, c.consumed, c.initial, capacity].map(&mut counted);
            if capacity == 0 {
                errors.push(NetError::NoCapacity(name.clone(), least_capacity(c.produced, c.consumed, c.initial)));
            } else if initial > capacity {
                errors.push(NetError::Overfull(name.clone(), capacity, initial));
            }
            let (from, to) = (placement.core_of[c.source], placement.core_of[c.target]);
            let transfer = match transfers {
                Transfers::Free => 0.0,
                _ => cores.transfer_seconds(from, to, c.produced as f64 * c.token_bytes),
            };
            let delay = if transfers == Transfers::Delay { transfer } else { 0.0 };
            if transfers == Transfers::Core {
                seconds[c.source] += transfer;
            }
            let buffer = *outputs.entry((c.source, &c.source_port)).or_insert_with(|| {
                let name = format!("{source}.{}", c.source_port);
                buffers.push(Buffer { capacity, token_bytes: c.token_bytes, name });
                buffers.len() - 1
            });
            let shared = &mut buffers[buffer];
            shared.capacity = shared.capacity.max(capacity);
            fifos.push(Fifo { source: c.source, target: c.target, produced, consumed, initial, delay, buffer });
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let actors = graph.actors.iter().map(|a| a.name.clone()).collect();
        let names = cores.cores.iter().map(|c| c.name.clone()).collect();
        let net =
            Self { actors, seconds, repetitions, core_of: placement.core_of.clone(), cores: names, fifos, buffers };
        net.check()?;
        Ok(net)
    }

    /// What a simulation relies on.
    ///
    /// # Errors
    /// All [`NetError`]s.
    pub fn check(&self) -> Result<(), Vec<NetError>> {
        let mut errors: Vec<NetError> = self
            .actors
            .iter()
            .zip(&self.seconds)
            .filter(|(_, s)| !(s.is_finite() && **s >= 0.0))
            .map(|(name, s)| NetError::Seconds(name.clone(), s.to_string()))
            .collect();
        let firings: u128 = self.repetitions.iter().map(|q| u128::from(*q)).sum();
        if firings > MOST_FIRINGS {
            errors.push(NetError::TooManyFirings(firings));
        }
        for part in self.components() {
            if !part.is_empty() && part.iter().all(|a| self.seconds[*a] == 0.0) && errors.is_empty() {
                let names: Vec<String> = part.iter().take(5).map(|a| self.actors[*a].clone()).collect();
                errors.push(NetError::NoTime(names));
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// "a -> b", for messages.
    pub fn fifo_name(&self, fifo: usize) -> String {
        let f = &self.fifos[fifo];
        format!("{:?} -> {:?}", self.actors[f.source], self.actors[f.target])
    }

    /// Bytes of all buffers at the given capacities.
    pub fn bytes(&self, capacities: &[u32]) -> f64 {
        self.buffers.iter().zip(capacities).map(|(b, c)| f64::from(*c) * b.token_bytes).sum()
    }

    /// The capacities as stated.
    pub fn capacities(&self) -> Vec<u32> {
        self.buffers.iter().map(|b| b.capacity).collect()
    }

    /// Seconds an iteration by core: the sum of `repetitions x seconds` of its actors.
    pub fn load(&self) -> Vec<f64> {
        let mut load = vec![0.0; self.cores.len()];
        for ((core, q), s) in self.core_of.iter().zip(&self.repetitions).zip(&self.seconds) {
            load[*core] += *q as f64 * s;
        }
        load
    }

    /// Actors that have nothing to do with each other: neither FIFOs nor cores join them. Each set in order of the actors.
    pub fn components(&self) -> Vec<Vec<usize>> {
        let n = self.actors.len();
        let mut root: Vec<usize> = (0..n).collect();
        fn find(root: &mut [usize], mut a: usize) -> usize {
            while root[a] != a {
                root[a] = root[root[a]];
                a = root[a];
            }
            a
        }
        let mut join = |a: usize, b: usize| {
            let (a, b) = (find(&mut root, a), find(&mut root, b));
            root[a.max(b)] = a.min(b);
        };
        for f in &self.fifos {
            join(f.source, f.target);
        }
        let mut first = vec![usize::MAX; self.cores.len()];
        for (a, core) in self.core_of.iter().enumerate() {
            if first[*core] == usize::MAX {
                first[*core] = a;
            }
            join(first[*core], a);
        }
        let mut parts: Vec<Vec<usize>> = vec![Vec::new(); n];
        for a in 0..n {
            parts[find(&mut root, a)].push(a);
        }
        parts.retain(|p| !p.is_empty());
        parts
    }

    /// The net of some actors alone, with all FIFOs between them, and which FIFOs these are. Cores and buffers stay as they are.
    pub fn part(&self, actors: &[usize]) -> (Self, Vec<usize>) {
        if actors.len() == self.actors.len() {
            return (self.clone(), (0..self.fifos.len()).collect());
        }
        let mut new = vec![usize::MAX; self.actors.len()];
        for (i, a) in actors.iter().enumerate() {
            new[*a] = i;
        }
        let kept: Vec<usize> = (0..self.fifos.len()).filter(|f| new[self.fifos[*f].source] != usize::MAX).collect();
        let fifos = kept
            .iter()
            .map(|f| &self.fifos[*f])
            .map(|f| Fifo { source: new[f.source], target: new[f.target], ..f.clone() })
            .collect();
        let part = Self {
            actors: actors.iter().map(|a| self.actors[*a].clone()).collect(),
            seconds: actors.iter().map(|a| self.seconds[*a]).collect(),
            repetitions: actors.iter().map(|a| self.repetitions[*a]).collect(),
            core_of: actors.iter().map(|a| self.core_of[*a]).collect(),
            cores: self.cores.clone(),
            fifos,
            buffers: self.buffers.clone(),
        };
        (part, kept)
    }
}
