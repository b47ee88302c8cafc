//! Section 8 of docs/model.md, and the joules of section 11.

use super::case::{Collective, Dimension, Topology};

/// The chips of a group along one dimension.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    pub n: u64,
    /// Hops from one to the next.
    pub apart: u64,
    pub link: &'a Dimension,
}

impl Side<'_> {
    fn is_ring(&self) -> bool {
        self.link.topology == Topology::Ring
    }

    /// Hops that share a link, in a ring.
    fn shared(&self) -> f64 {
        if self.is_ring() { self.apart as f64 } else { 1.0 }
    }

    pub fn bandwidth(&self) -> f64 {
        self.link.bandwidth * self.link.efficiency / self.shared()
    }

    pub fn latency(&self) -> f64 {
        self.link.latency * self.shared()
    }

    fn is_line(&self) -> bool {
        self.is_ring() && self.n * self.apart < self.link.size
    }

    /// A line of more than two chips whose links to both neighbours share one bandwidth.
    fn is_narrow_line(&self) -> bool {
        self.is_line() && self.link.ring_links == 1 && (self.n > 2 || self.apart > 1)
    }

    /// What a chip sends in a ring, the end of a line to its one neighbour.
    fn round(&self) -> f64 {
        if self.is_line() { self.bandwidth() } else { self.link.ring_links as f64 * self.bandwidth() }
    }

    /// Joules of a byte from one chip of the group to the next.
    pub fn per_byte(&self) -> f64 {
        per_byte(self.link) * self.shared()
    }

    fn log(&self) -> f64 {
        let mut rounds = 0;
        while (1_u64 << rounds) < self.n {
            rounds += 1;
        }
        f64::from(rounds)
    }

    /// Term of S and term of latency of a reduce-scatter.
    fn scatter(&self, bytes: f64) -> (f64, f64) {
        let (n, b, a) = (self.n as f64, self.bandwidth(), self.latency());
        match self.link.topology {
            Topology::Ring if self.is_narrow_line() => {
                let h = self.apart as f64;
                let pieces = if self.n > 2 { h * n + 1.0 } else { 2.0 * h - 1.0 };
                (pieces / h / n * bytes / b, (n - 1.0) * a)
            }
            Topology::Ring => ((n - 1.0) / n * bytes / self.round(), (n - 1.0) * a),
            Topology::Switch => ((n - 1.0) / n * bytes / b, self.log() * a),
            Topology::Full => (bytes / (n * b), a),
        }
    }

    fn all_to_all(&self, bytes: f64) -> (f64, f64) {
        let (n, b, a) = (self.n as f64, self.bandwidth(), self.latency());
        match self.link.topology {
            Topology::Ring if self.is_narrow_line() => {
                let h = self.apart;
                let sent = (0..self.n).map(|i| (i + 1) * (self.n - i - 1) + (2 * h - 1) * i * (self.n - i)).max();
                (sent.unwrap() as f64 / h as f64 / n * bytes / b, (n - 1.0) * a)
            }
            Topology::Ring if self.is_line() => ((self.n * self.n / 4) as f64 / n * bytes / b, (n - 1.0) * a),
            Topology::Ring => ((self.n * self.n / 4) as f64 / n * bytes / self.round(), (self.n / 2) as f64 * a),
            Topology::Switch => ((n - 1.0) / n * bytes / b, a),
            Topology::Full => (bytes / (n * b), a),
        }
    }

    /// On several dimensions what a scatter and a gather cost more in latency than one message counts with the term of S.
    fn broadcast(&self, bytes: f64) -> (f64, f64) {
        let (n, b, a) = (self.n as f64, self.bandwidth(), self.latency());
        match self.link.topology {
            Topology::Ring if self.is_narrow_line() => (2.0 * bytes / b, (n - 1.0) * a),
            Topology::Ring => (bytes / self.round(), (n - 1.0) * a),
            Topology::Switch => (bytes / b, self.log() * a),
            Topology::Full => ((bytes / b).min(2.0 * bytes / (n * b) + a), a),
        }
    }
}

/// By the time that a reduction's byte takes a chip to send: the S term over the bytes sent.
fn fastest_first<'a, 'b>(group: &'b [Side<'a>]) -> Vec<&'b Side<'a>> {
    let mut sides: Vec<&Side> = group.iter().filter(|s| s.n > 1).collect();
    let pace = |s: &Side| s.scatter(1e9).0 / (s.n as f64 - 1.0) * s.n as f64;
    sides.sort_by(|x, y| {
        let (x, y) = (pace(x), pace(y));
        if (x - y).abs() <= 1e-12 * x { std::cmp::Ordering::Equal } else { x.total_cmp(&y) }
    });
    sides
}

pub fn seconds(kind: Collective, bytes: f64, group: &[Side]) -> f64 {
    let sides = fastest_first(group);
    if sides.is_empty() || bytes == 0.0 {
        return 0.0;
    }
    let scatter = || {
        let (mut left, mut sum) = (bytes, 0.0);
        for side in &sides {
            let (term, latency) = side.scatter(left);
            sum += term + latency;
            left /= side.n as f64;
        }
        sum
    };
    // The slowest term of S and the sum of the latencies.
    let at_once = |of: &dyn Fn(&Side) -> (f64, f64)| {
        let all = sides.iter().map(|side| of(side));
        let (slowest, latency) = all.fold((0.0_f64, 0.0), |a, (term, latency)| (a.0.max(term), a.1 + latency));
        slowest + latency
    };
    match kind {
        Collective::AllReduce => 2.0 * scatter(),
        Collective::ReduceScatter | Collective::AllGather => scatter(),
        Collective::AllToAll => at_once(&|s| s.all_to_all(bytes)),
        Collective::Broadcast => at_once(&|s| s.broadcast(bytes)),
        Collective::PointToPoint => sides.iter().map(|s| s.latency() + bytes / s.bandwidth()).fold(0.0, f64::max),
    }
}

/// Joules of a byte on a link beyond its idle power.
fn per_byte(link: &Dimension) -> f64 {
    link.per_byte.unwrap_or((1.0 - link.idle) * link.power / 1e9)
}

/// The side of least bandwidth.
pub fn slowest<'a, 'b>(group: &'b [Side<'a>]) -> Option<&'b Side<'a>> {
    group.iter().filter(|s| s.n > 1).min_by(|a, b| a.bandwidth().total_cmp(&b.bandwidth()))
}

/// Joules of one chip's links.
pub fn joules(kind: Collective, bytes: f64, group: &[Side]) -> f64 {
    if kind == Collective::PointToPoint {
        return slowest(group).map_or(0.0, |s| bytes * s.per_byte());
    }
    let (mut left, mut sum) = (bytes, 0.0);
    for side in fastest_first(group) {
        let n = side.n as f64;
        let sent = match kind {
            Collective::AllReduce => 2.0 * (n - 1.0) / n * left,
            Collective::AllToAll if side.is_line() => (n * n - 1.0) / (3.0 * n) * left,
            Collective::AllToAll if side.is_ring() => (side.n * side.n / 4) as f64 / n * left,
            _ => (n - 1.0) / n * left,
        };
        sum += sent * side.per_byte();
        if kind != Collective::AllToAll {
            left /= n;
        }
    }
    sum
}
