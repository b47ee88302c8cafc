//! The processing elements of a chip: rates by kind of kernel, memory, and what a transfer between two of them takes.
//!
//! Seconds of one firing on a core: measured ones are divided by its speed; counted ones are the larger of FLOP / rate and
//! bytes / memory bandwidth (roofline), and the overhead of a firing is added to these.
//!
//! Seconds of a transfer of S bytes from core p to core q: `distance(p, q) x latency + S / bandwidth` of the network between them; inside a core
//! `latency + S / bandwidth` of [`Cores::local`].

use super::graph::{Actor, Kind, Work};
use serde::Serialize;

/// What a transfer takes: a latency, and a bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Wire {
    /// Seconds a unit of distance.
    pub latency: f64,
    /// Bytes a second.
    pub bandwidth: f64,
}

impl Wire {
    /// Costs nothing.
    pub const FREE: Self = Self { latency: 0.0, bandwidth: f64::INFINITY };
    /// Seconds of `bytes` over `distance`.
    pub fn seconds(&self, distance: f64, bytes: f64) -> f64 {
        distance * self.latency + bytes / self.bandwidth
    }
}

/// One processing element.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Core {
    /// Unique name.
    pub name: String,
    /// How much faster than the core of the profile it runs what was measured.
    pub speed: f64,
    /// FLOP a second by kind of kernel: matrix, vector, data (which has none: its bytes count alone).
    pub rates: [f64; 2],
    /// Bytes a second between the core and what it reads and writes.
    pub memory_bandwidth: f64,
    /// Seconds that each firing takes besides: the scheduler, the call.
    pub firing_overhead: f64,
    /// Bytes that the state of its actors and the FIFOs they read may take; infinite where it is not limited.
    pub memory: f64,
}

impl Core {
    /// Seconds of one firing of `actor`.
    pub fn firing_seconds(&self, actor: &Actor) -> f64 {
        match actor.work {
            Work::Measured { seconds, .. } => seconds / self.speed,
            Work::Counted { flop, bytes } => {
                let compute = match actor.kind {
                    Kind::Matrix => flop / self.rates[0],
                    Kind::Vector => flop / self.rates[1],
                    Kind::Data => 0.0,
                };
                compute.max(bytes / self.memory_bandwidth) + self.firing_overhead
            }
        }
    }
}

/// How far cores are from each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Nested groups, innermost first: `size` of the level below share a wire (48 cores a socket, 4 sockets). Two cores talk over the wire of the
    /// innermost group that holds both; the distance is 1.
    Levels(Vec<(u64, Wire)>),
    /// Rows x columns of a mesh, numbered row by row; the distance is the hops along rows and columns.
    Mesh {
        /// Rows.
        rows: u64,
        /// Columns.
        columns: u64,
        /// One hop.
        wire: Wire,
    },
    /// Distances as measured (ACPI's SLIT), one row a core.
    Matrix {
        /// Distance from each core to each.
        distances: Vec<Vec<f64>>,
        /// A distance of 1.
        wire: Wire,
    },
}

/// The cores of a chip.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cores {
    /// Name for rows and titles.
    pub name: String,
    /// The cores, in the order of their numbers.
    pub cores: Vec<Core>,
    /// A transfer inside a core.
    pub local: Wire,
    /// A transfer between two.
    pub network: Network,
}

impl Cores {
    /// How many.
    pub fn len(&self) -> usize {
        self.cores.len()
    }
    /// Whether there are none (a file is refused then).
    pub fn is_empty(&self) -> bool {
        self.cores.is_empty()
    }
    /// The first `count` cores alone, as far from each other as they were.
    #[must_use]
    pub fn first(&self, count: usize) -> Self {
        let network = match &self.network {
            Network::Matrix { distances, wire } => Network::Matrix {
                distances: distances.iter().take(count).map(|row| row.iter().take(count).copied().collect()).collect(),
                wire: *wire,
            },
            other => other.clone(),
        };
        Self { cores: self.cores.iter().take(count).cloned().collect(), network, ..self.clone() }
    }
    /// The wire between two cores and their distance.
    pub fn between(&self, p: usize, q: usize) -> (f64, Wire) {
        if p == q {
            return (1.0, self.local);
        }
        match &self.network {
            Network::Levels(levels) => {
                let (mut a, mut b) = (p as u64, q as u64);
                for (size, wire) in levels {
                    (a, b) = (a / size, b / size);
                    if a == b {
                        return (1.0, *wire);
                    }
                }
                (1.0, levels.last().map_or(Wire::FREE, |(_, wire)| *wire))
            }
            Network::Mesh { columns, wire, .. } => {
                let at = |core: usize| (core as u64 / columns, core as u64 % columns);
                let ((r, c), (s, d)) = (at(p), at(q));
                ((r.abs_diff(s) + c.abs_diff(d)) as f64, *wire)
            }
            Network::Matrix { distances, wire } => (distances[p][q], *wire),
        }
    }
    /// Seconds of a transfer of `bytes` from one core to another, or inside one.
    pub fn transfer_seconds(&self, p: usize, q: usize, bytes: f64) -> f64 {
        let (distance, wire) = self.between(p, q);
        wire.seconds(distance, bytes)
    }
}
