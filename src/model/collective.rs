//! Time of a collective among the chips of a group.
//!
//! A group spans one or more network dimensions, innermost first. S is the bytes of the whole tensor (for all-to-all:
//! the bytes one chip holds), n the chips along a dimension, B the bandwidth of a link in one direction, a its latency, L the
//! links of this bandwidth that a chip has in a ring (1: B is all that it sends; 2: to each neighbour).
//!
//! | topology | all-reduce | all-gather, reduce-scatter | all-to-all |
//! |---|---|---|---|
//! | ring | 2(n-1)/n S/(LB) + 2(n-1)a | (n-1)/n S/(LB) + (n-1)a | floor(n^2/4)/n S/(LB) + floor(n/2) a |
//! | part of a ring, L = 2 | 2(n-1)/n S/B + 2(n-1)a | (n-1)/n S/B + (n-1)a | floor(n^2/4)/n S/B + (n-1)a |
//! | part of a ring, L = 1, n > 2 | 2(n+1)/n S/B + 2(n-1)a | (n+1)/n S/B + (n-1)a | floor((n^2-1)/2)/n S/B + (n-1)a |
//! | switch | 2(n-1)/n S/B + 2 ceil(log2 n) a | (n-1)/n S/B + ceil(log2 n) a | (n-1)/n S/B + a |
//! | fully connected | 2/n S/B + 2a | S/(n B) + a | S/(n B) + a |
//!
//! In a ring everything but a message to a neighbour uses all that a chip can send: reductions in two halves, one each way round,
//! where there are two links; of an all-to-all each byte the shorter way, together floor(n^2/4)/n S byte-hops a chip (the sum of
//! min(d, n - d) over the distances d, of S/n bytes each). A part of a ring is a line: its ends do not meet. Its end chips have one link to all others, which sets the time of
//! a gather where the links to both neighbours are of B each; where B is all that a chip sends, chip i of n passes on i + 1 of the n pieces one way and n - i the other, n + 1 in
//! all (of two chips one each); with the chips of a - 1 other groups between two of them a n + 1 (of two 2a - 1). Of an all-to-all the link in the middle carries floor(n^2/4) of the n^2 messages each way, and the chips beside it send floor((n^2-1)/2); with other groups between the most of (i+1)(n-i-1) + (2a-1) i (n-i) over i.
//! Chips of a group that lie a hops apart in a ring share its links with the a - 1 groups between them: B/a, a latencies and a times the energy a hop.
//! Behind a switch the better of ring and tree latency is taken (the tree's, for n > 2). Several
//! dimensions compose hierarchically: reduce-scatter in one after the other on what is left, all-gather back. The dimension that takes least time a byte that a chip sends goes first
//! (the innermost of equals), which is the fastest order: of two with c and c' it saves (c' - c)(1 - 1/n)(1 - 1/n') S. An all-to-all is cut in chunks that take the dimensions in different orders, so all dimensions work at once and the one
//! with the least bandwidth for its part counts. A broadcast is cut in chunks that follow each other through a ring or a tree:
//! S/B (in a ring S/(LB); in a part of one with L = 1 2S/B, both ways from a root inside it) + latency of the way; among fully connected chips, or when that is faster, it is scattered and gathered, 2S/(nB) + 2a.

use super::dfmodel::prices;
use crate::graph::{CollectiveKind, Kernel, Scope};
use crate::system::options::{Charge, GradientLink, ModelOptions, NetworkModel, Pipeline};
use crate::system::serving::Collectives;
use crate::system::{System, Topology};
use std::borrow::Cow;

/// One dimension of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupDimension {
    /// Its topology.
    pub topology: Topology,
    /// Chips of the group along it.
    pub size: u64,
    /// Bytes/s of a link in one direction.
    pub bandwidth: f64,
    /// Links of this bandwidth that a chip has in a ring.
    pub ring_links: u64,
    /// Whether it is a part of a ring, whose ends do not meet.
    pub open: bool,
    /// Hops from one chip of the group to the next in a ring, of which bandwidth, latency and joules here are already those of all.
    pub apart: u64,
    /// Seconds a hop.
    pub latency: f64,
    /// Joules a byte beyond what the link draws idle ([`super::energy`]).
    pub byte_j: f64,
    /// Bytes/s of a link in one direction before what is lost of it.
    pub wire: f64,
    /// Share of it at which the switch adds up what chips send; `None` where it cannot.
    pub sums: Option<f64>,
}

impl GroupDimension {
    /// Bytes/s that a chip sends in a ring; of a part of one those of its ends.
    fn ring_bandwidth(&self) -> f64 {
        if self.open { self.bandwidth } else { self.ring_links as f64 * self.bandwidth }
    }

    /// Whether a chip in the middle of a part of a ring has to share one link's bandwidth between its neighbours.
    fn is_shared_line(&self) -> bool {
        self.open && self.ring_links == 1 && (self.size > 2 || self.apart > 1)
    }

    /// Pieces that the busiest chip of such a line passes on in a reduction, for each of the groups that lie among each other.
    fn passed_on(&self) -> f64 {
        let (n, a) = (self.size as f64, self.apart as f64);
        if self.size > 2 { (a * n + 1.0) / a } else { (2.0 * a - 1.0) / a }
    }

    /// Messages that it passes on in an all-to-all, likewise.
    fn messages_passed_on(&self) -> f64 {
        let (n, a) = (self.size, self.apart);
        let of = |i: u64| ((i + 1) * (n - i - 1) + (2 * a - 1) * i * (n - i)) as f64 / a as f64;
        // Concave in the place of the chip, and largest at n/2 - 1/(2a).
        of((n - 1) / 2).max(of(n / 2))
    }

    /// What a group of `size` chips, each `apart` hops from the next, has of a dimension of `whole` chips.
    pub(crate) fn part(self, size: u64, apart: u64, whole: u64) -> Self {
        if self.topology != Topology::Ring {
            return Self { size, ..self };
        }
        let hops = apart as f64;
        Self {
            size,
            open: size.saturating_mul(apart) < whole,
            apart,
            bandwidth: self.bandwidth / hops,
            wire: self.wire / hops,
            latency: self.latency * hops,
            byte_j: self.byte_j * hops,
            ..self
        }
    }

    /// Seconds for each byte that a chip sends in a reduction.
    fn seconds_a_byte(&self) -> f64 {
        let n = self.size as f64;
        match self.topology {
            Topology::Ring if self.is_shared_line() => self.passed_on() / (n - 1.0) / self.bandwidth,
            Topology::Ring => 1.0 / self.ring_bandwidth(),
            Topology::Switch => 1.0 / self.bandwidth,
            Topology::FullyConnected => 1.0 / ((n - 1.0) * self.bandwidth),
        }
    }

    /// Seconds, without bytes and for each, in which every chip sends to the next and the last to the first. In a part of a ring that goes back over all links.
    pub fn around(&self) -> (f64, f64) {
        let back = if self.open { (self.size - 1) as f64 } else { 1.0 };
        let ways = if self.is_shared_line() { 2.0 } else { 1.0 };
        (back * self.latency, ways / self.bandwidth)
    }

    /// Byte-hops a chip for each byte of an all-to-all.
    pub fn all_to_all_hops(&self) -> f64 {
        let n = self.size as f64;
        match self.topology {
            // The distances |i - j| of all pairs add up to n (n^2 - 1)/3.
            Topology::Ring if self.open => (n * n - 1.0) / 3.0 / n,
            Topology::Ring => ring_hops(self.size),
            _ => (n - 1.0) / n,
        }
    }
}

/// The extent of a group along a dimension of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its chips.
    pub chips: u64,
    /// Hops from one of them to the next.
    pub apart: u64,
}

impl Extent {
    /// Chips beside each other.
    pub fn neighbours(chips: u64) -> Self {
        Self { chips, apart: 1 }
    }
}

/// Bytes that a chip's links in a ring of `n` carry for each byte of an all-to-all: each goes the shorter way round.
fn ring_hops(n: u64) -> f64 {
    (n * n / 4) as f64 / n as f64
}

/// The dimensions that a group has in a system, innermost first; `extents[i]` is its extent along network dimension i.
/// A dimension larger than the model's high-bandwidth domain counts as two: the domain on the network's innermost
/// link, and the rest on its own (of the innermost dimension: on the next one's).
pub fn group(system: &System, extents: &[Extent]) -> Vec<GroupDimension> {
    let domain = system.model.high_bandwidth_domain;
    let on_link = |link: usize, topology: Topology, size: u64| {
        let reached = system.network.dimensions[link].efficiency.0;
        let link = &system.network.dimensions[link].link.0;
        let latency = if system.model.latencies == Charge::Charged { link.latency.0 } else { 0.0 };
        let byte_j = super::energy::link_byte_j(link, &system.model);
        GroupDimension {
            topology,
            size,
            bandwidth: reached * link.bandwidth.0,
            ring_links: link.ring_links,
            open: false,
            apart: 1,
            latency,
            byte_j,
            wire: link.bandwidth.0,
            sums: link.sums.map(|share| share.0),
        }
    };
    let mut dimensions = Vec::new();
    for (i, &Extent { chips: size, apart }) in extents.iter().enumerate().filter(|(_, e)| e.chips > 1) {
        let topology = system.network.topology_of(i);
        if domain > 1 && size > domain && size.is_multiple_of(domain) {
            // What the innermost dimension has more than a domain goes over the next dimension's links.
            let outside = i.max(usize::from(system.network.dimensions.len() > 1));
            dimensions.push(on_link(0, system.network.topology_of(0), domain));
            dimensions.push(on_link(outside, topology, size / domain));
        } else {
            let whole = system.network.dimensions[i].size;
            dimensions.push(on_link(i, topology, size).part(size, apart, whole));
        }
    }
    dimensions
}

/// Chips of a group.
pub fn ranks(group: &[GroupDimension]) -> u64 {
    group.iter().map(|d| d.size).product()
}

/// Seconds of a collective of `bytes` in a group. A group of one chip needs none.
pub fn seconds(kind: CollectiveKind, group: &[GroupDimension], bytes: f64, options: &ModelOptions) -> f64 {
    if ranks(group) <= 1 || bytes <= 0.0 {
        return 0.0;
    }
    match options.network_model {
        NetworkModel::Dfmodel => prices::seconds(kind, group, bytes, options.all_reduce_passes),
        NetworkModel::Flowspace => hierarchical(kind, group, bytes),
    }
}

/// The dimensions of a group in the order in which a reduction takes them.
pub fn in_order(group: &[GroupDimension]) -> Cow<'_, [GroupDimension]> {
    // From the inside, as a rule.
    if group.is_sorted_by_key(GroupDimension::seconds_a_byte) {
        return Cow::Borrowed(group);
    }
    let mut out = group.to_vec();
    out.sort_by(|a, b| a.seconds_a_byte().total_cmp(&b.seconds_a_byte()));
    Cow::Owned(out)
}

fn hierarchical(kind: CollectiveKind, group: &[GroupDimension], bytes: f64) -> f64 {
    match kind {
        CollectiveKind::AllReduce => 2.0 * hierarchical(CollectiveKind::ReduceScatter, group, bytes),
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter => {
            let mut left = bytes;
            let mut time = 0.0;
            for d in in_order(group).iter() {
                time += reduce_scatter(d, left);
                left /= d.size as f64;
            }
            time
        }
        CollectiveKind::AllToAll => {
            let latency: f64 = group.iter().map(|d| all_to_all(d, 0.0)).sum();
            let slowest = group.iter().map(|d| all_to_all(d, bytes) - all_to_all(d, 0.0)).fold(0.0, f64::max);
            slowest + latency
        }
        CollectiveKind::PointToPoint => group.iter().map(|d| d.latency + bytes / d.bandwidth).fold(0.0, f64::max),
        CollectiveKind::Broadcast => {
            let latency: f64 = group.iter().map(|d| broadcast(d, 0.0)).sum();
            let slowest = group.iter().map(|d| broadcast(d, bytes) - broadcast(d, 0.0)).fold(0.0, f64::max);
            slowest + latency
        }
    }
}

fn log2_ceil(n: u64) -> f64 {
    f64::from(64 - (n.max(1) - 1).leading_zeros())
}

/// All-reduce on one dimension.
pub fn all_reduce(d: &GroupDimension, bytes: f64) -> f64 {
    2.0 * reduce_scatter(d, bytes)
}

/// Reduce-scatter, or all-gather, on one dimension.
pub fn reduce_scatter(d: &GroupDimension, bytes: f64) -> f64 {
    let n = d.size as f64;
    match d.topology {
        Topology::Ring if d.is_shared_line() => d.passed_on() / n * bytes / d.bandwidth + (n - 1.0) * d.latency,
        Topology::Ring => (n - 1.0) / n * bytes / d.ring_bandwidth() + (n - 1.0) * d.latency,
        Topology::Switch => (n - 1.0) / n * bytes / d.bandwidth + log2_ceil(d.size) * d.latency,
        Topology::FullyConnected => bytes / (n * d.bandwidth) + d.latency,
    }
}

/// Broadcast on one dimension, in chunks short beside `bytes`.
pub fn broadcast(d: &GroupDimension, bytes: f64) -> f64 {
    let n = d.size as f64;
    match d.topology {
        Topology::Ring => {
            let ways = if d.is_shared_line() { 2.0 } else { 1.0 };
            ways * bytes / d.ring_bandwidth() + (n - 1.0) * d.latency
        }
        Topology::Switch => bytes / d.bandwidth + log2_ceil(d.size) * d.latency,
        Topology::FullyConnected => {
            (bytes / d.bandwidth + d.latency).min(2.0 * bytes / (n * d.bandwidth) + 2.0 * d.latency)
        }
    }
}

/// All-to-all on one dimension.
pub fn all_to_all(d: &GroupDimension, bytes: f64) -> f64 {
    let n = d.size as f64;
    match d.topology {
        Topology::Ring if d.is_shared_line() => {
            d.messages_passed_on() / n * bytes / d.bandwidth + (n - 1.0) * d.latency
        }
        Topology::Ring if d.open => ring_hops(d.size) * bytes / d.bandwidth + (n - 1.0) * d.latency,
        Topology::Ring => ring_hops(d.size) * bytes / d.ring_bandwidth() + (d.size / 2) as f64 * d.latency,
        Topology::Switch => (n - 1.0) / n * bytes / d.bandwidth + d.latency,
        Topology::FullyConnected => bytes / (n * d.bandwidth) + d.latency,
    }
}

/// Bytes/s that a chip sends to all others of its dimension together.
fn sends(d: &GroupDimension) -> f64 {
    match d.topology {
        Topology::Ring => d.ring_bandwidth(),
        Topology::Switch => d.bandwidth,
        Topology::FullyConnected => (d.size - 1) as f64 * d.bandwidth,
    }
}

/// Seconds of an all-reduce (`halves` 2), or of an all-gather or reduce-scatter (1), as a library of collectives runs it: of a ring through all chips
/// with the protocol of the shortest, of short or of long messages, and of a sum in the switch of the only box, the fastest.
///
/// ```text
/// bus    = min over dimensions of (chips inside it) x what a chip sends there
/// ring   = halves (n-1)/n S / bus  +  halves x boxes x latency of the switch between them
/// switch = (1 + 1/n) S / (link x share at which it adds up)           (each chip sends all, and gets its part and the others' sums)
/// ```
pub fn by_library(group: &[GroupDimension], library: &Collectives, halves: f64, bytes: f64, switches: bool) -> f64 {
    let n = ranks(group) as f64;
    if n <= 1.0 || bytes <= 0.0 {
        return 0.0;
    }
    let (mut bus, mut inside) = (f64::INFINITY, 1.0);
    for (i, d) in group.iter().enumerate() {
        bus = bus.min(inside * if i > 0 { d.wire * library.outer_share.0 } else { sends(d) });
        inside *= d.size as f64;
    }
    let boxes = group.iter().skip(1).filter(|d| d.topology == Topology::Switch);
    let steps = halves * boxes.map(|d| d.size as f64 * d.latency).sum::<f64>();
    let ring = |start: f64, share: f64| start + halves * (n - 1.0) / n * bytes / (bus * share) + steps;
    let mut best = ring(library.short_start.0, library.short_share.0).min(ring(library.long_start.0, 1.0));
    if let ([only], true) = (group, switches && halves > 1.0)
        && let (Topology::Switch, Some(share)) = (only.topology, only.sums)
    {
        best = best.min(library.long_start.0 + (1.0 + 1.0 / n) * bytes / (only.wire * share));
    }
    best.min(shortest(library, bytes) + steps).max(library.least.0)
}

/// Seconds of a message of a few kilobytes, whose words say themselves that they are there.
fn shortest(library: &Collectives, bytes: f64) -> f64 {
    library.shortest_rate.map_or(f64::INFINITY, |rate| library.least.0 + bytes / rate.0)
}

/// Seconds of an all-to-all of which each chip holds `bytes`, as a library of collectives runs it: messages straight from chip to chip with the protocol of short or of long ones,
/// along every dimension at once.
///
/// ```text
/// max over dimensions of (share of the chips that lie along it, and along none further out) x S / what a chip sends there
/// ```
pub fn all_to_all_by_library(group: &[GroupDimension], library: &Collectives, bytes: f64) -> f64 {
    let n = ranks(group) as f64;
    if n <= 1.0 || bytes <= 0.0 {
        return 0.0;
    }
    let (mut slowest, mut hops, mut inside) = (0.0_f64, 0.0, 1.0);
    for (i, d) in group.iter().enumerate() {
        let reached = inside * d.size as f64;
        let rate = if i > 0 { d.wire * library.outer_share.0 } else { sends(d) };
        let over = if d.topology == Topology::Ring {
            d.all_to_all_hops() / (d.size as f64 - 1.0) * d.size as f64
        } else {
            1.0
        };
        slowest = slowest.max((reached - inside) / n * over * bytes / rate);
        if i > 0 {
            hops += d.latency;
        }
        inside = reached;
    }
    let all = |start: f64, share: f64| start + slowest / share + hops;
    let best = all(library.short_start.0, library.short_share.0).min(all(library.long_start.0, 1.0));
    best.min(shortest(library, bytes) + hops).max(library.least.0)
}

/// The groups in which a kernel's own collectives run, each innermost dimension first.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnGroups {
    /// The tensor-parallel group.
    pub tensor: Vec<GroupDimension>,
    /// The data-parallel group.
    pub data: Vec<GroupDimension>,
    /// All chips, pipeline stages apart.
    pub all: Vec<GroupDimension>,
    /// A row of the process grid: as many chips as the grid has columns.
    pub row: Vec<GroupDimension>,
    /// A column of the process grid.
    pub column: Vec<GroupDimension>,
}

impl OwnGroups {
    /// The group of a scope.
    pub fn of(&self, scope: Scope) -> &[GroupDimension] {
        match scope {
            Scope::Tensor => &self.tensor,
            Scope::Data => &self.data,
            Scope::All => &self.all,
            Scope::GridRow => &self.row,
            Scope::GridColumn => &self.column,
        }
    }
}

/// Seconds of the collectives that a kernel makes by itself, for `samples` samples. Those of one scope follow each
/// other; scopes use different links and run at once (DFModel takes the largest too: model.md section 5, HPL). Each chip
/// exchanges its share of a tensor-parallel group's bytes.
pub fn own_seconds(kernel: &Kernel, groups: &OwnGroups, samples: f64, options: &ModelOptions) -> f64 {
    let share = ranks(&groups.tensor) as f64;
    Scope::ALL
        .iter()
        .map(|scope| {
            let group = groups.of(*scope);
            let seconds = kernel.collectives.iter().filter(|c| c.scope == *scope).map(|c| {
                let bytes = c.bytes * samples;
                c.times as f64
                    * match (c.kind, options.network_model) {
                        (CollectiveKind::AllToAll, NetworkModel::Dfmodel) => {
                            prices::all_to_all(group, bytes / share, options.all_to_all_messages)
                        }
                        // The panels of the first generation, whose chips are replicas.
                        (CollectiveKind::Broadcast, NetworkModel::Dfmodel)
                            if options.pipeline == Pipeline::DfmodelFirst =>
                        {
                            prices::first_broadcast(group, bytes)
                        }
                        (CollectiveKind::AllToAll, NetworkModel::Flowspace) => {
                            self::seconds(c.kind, group, bytes / share, options)
                        }
                        _ => self::seconds(c.kind, group, bytes, options),
                    }
            });
            seconds.sum::<f64>()
        })
        .fold(0.0, f64::max)
}

/// Seconds to reduce gradients of `bytes` among the replicas.
pub fn gradient_seconds(group: &[GroupDimension], bytes: f64, options: &ModelOptions) -> f64 {
    match (options.network_model, options.gradient_link) {
        _ if ranks(group) <= 1 => 0.0,
        (NetworkModel::Flowspace, GradientLink::Links) => seconds(CollectiveKind::AllReduce, group, bytes, options),
        _ => prices::gradient_seconds(group, bytes, options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::read::Fraction;
    use crate::units::Seconds;

    fn dimension(topology: Topology, size: u64, latency: f64) -> GroupDimension {
        GroupDimension {
            topology,
            size,
            bandwidth: 100e9,
            ring_links: 1,
            open: false,
            apart: 1,
            latency,
            byte_j: 0.0,
            wire: 100e9,
            sums: None,
        }
    }

    /// By hand, 1 GB over 100 GB/s in lines of a ring of 8: four chips pass on pieces of a quarter, of which a chip receives three (7.5 ms at 100 GB/s a neighbour), and where 100 GB/s is
    /// all that a chip sends, five of them (12.5 ms). Of an all-to-all the middle link carries 4 sixteenths of four chips' GB each way; the chips beside it send 7. Every second
    /// chip of the ring: four that meet, on half of the links.
    #[test]
    fn parts_of_rings_by_hand() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-15, "{a} {b}");
        let of = |links, size, apart| {
            GroupDimension { ring_links: links, ..dimension(Topology::Ring, 8, 0.0) }.part(size, apart, 8)
        };
        near(reduce_scatter(&of(2, 4, 1), 1e9), 7.5e-3);
        near(reduce_scatter(&of(1, 4, 1), 1e9), 12.5e-3);
        near(reduce_scatter(&of(1, 2, 1), 1e9), 5e-3);
        near(all_to_all(&of(2, 4, 1), 1e9), 10e-3);
        near(all_to_all(&of(1, 4, 1), 1e9), 17.5e-3);
        near(all_to_all(&of(1, 2, 1), 1e9), 5e-3);
        near(broadcast(&of(1, 4, 1), 1e9), 20e-3);
        assert!(!of(2, 4, 2).open && of(2, 3, 2).open && !of(2, 8, 1).open);
        near(reduce_scatter(&of(2, 4, 2), 1e9), 7.5e-3);
        near(of(2, 4, 2).latency, 2.0 * of(2, 4, 1).latency);
        near(of(2, 4, 1).all_to_all_hops(), 1.25);
    }

    /// Lines that lie among each other, where a chip shares one bandwidth between its neighbours: what the busiest chip passes on, counted piece by piece and message by message.
    #[test]
    fn lines_among_each_other_carry_what_is_counted() {
        for (n, a) in (2..8u64).flat_map(|n| (1..6u64).map(move |a| (n, a))) {
            let d = dimension(Topology::Ring, 64, 0.0).part(n, a, 64);
            let (mut gathers, mut messages) = (vec![0u64; (n * a) as usize], vec![0u64; (n * a) as usize]);
            for r in 0..a {
                for i in 0..n {
                    // The piece of chip i goes to both ends; its message to each other chip.
                    (i * a + r..(n - 1) * a + r).chain(r + 1..=i * a + r).for_each(|p| gathers[p as usize] += 1);
                    for j in 0..n {
                        let (p, q) = (i * a + r, j * a + r);
                        (p..q).chain(q + 1..=p).for_each(|p| messages[p as usize] += 1);
                    }
                }
            }
            // 100 GB/s for one whole hop, n pieces of a GB.
            let most = |of: &[u64]| of.iter().copied().max().unwrap_or(0) as f64 * 0.01;
            let near = |x: f64, y: f64| assert!((x - y).abs() < 1e-12 * y, "{n} chips {a} apart: {x} {y}");
            near(reduce_scatter(&d, n as f64 * 1e9), most(&gathers));
            near(all_to_all(&d, n as f64 * 1e9), most(&messages));
        }
    }

    /// Hops of an all-to-all in a line, and bytes that its busiest chip and link carry, counted message by message.
    #[test]
    fn lines_carry_what_their_messages_ask() {
        for n in 2..12u64 {
            let d = dimension(Topology::Ring, 16, 0.0).part(n, 1, 16);
            let (mut hops, mut right, mut sends) = (0, vec![0u64; n as usize], vec![0u64; n as usize]);
            for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
                hops += i.abs_diff(j);
                (i..j).for_each(|k| right[k as usize] += 1);
                (i..j).chain(j + 1..=i).for_each(|k| sends[k as usize] += 1);
            }
            assert!((d.all_to_all_hops() * (n * n) as f64 - hops as f64).abs() < 1e-9, "{n}");
            let most = |of: &[u64]| of.iter().copied().max().unwrap_or(0) as f64 / (n * n) as f64;
            let both = |ring_links| all_to_all(&GroupDimension { ring_links, ..d }, 100e9) / n as f64;
            assert!((both(2) - most(&right)).abs() < 1e-12 && (both(1) - most(&sends)).abs() < 1e-12, "{n}");
        }
    }

    /// The order of the dimensions of a reduction is the best of all orders.
    #[test]
    fn reductions_take_the_fastest_order() {
        let kinds = [Topology::Ring, Topology::Switch, Topology::FullyConnected];
        let dims: Vec<GroupDimension> = kinds
            .iter()
            .enumerate()
            .map(|(i, kind)| GroupDimension { bandwidth: 30e9 * (i + 1) as f64, ..dimension(*kind, 4, 0.0) })
            .collect();
        let found = hierarchical(CollectiveKind::ReduceScatter, &dims, 1e9);
        let mut least = f64::INFINITY;
        for (a, b, c) in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)] {
            let (a, b, c) = (&dims[a], &dims[b], &dims[c]);
            least = least.min(reduce_scatter(a, 1e9) + reduce_scatter(b, 1e9 / 4.0) + reduce_scatter(c, 1e9 / 16.0));
        }
        assert!((found - least).abs() < 1e-15, "{found} {least}");
    }

    /// By hand: 8 chips, 100 GB/s, 1 GB. Ring 2*7/8*10 ms = 17.5 ms; fully connected 2/8*10 ms = 2.5 ms.
    #[test]
    fn all_reduce_by_hand() {
        let ring = dimension(Topology::Ring, 8, 0.0);
        let full = dimension(Topology::FullyConnected, 8, 0.0);
        assert!((all_reduce(&ring, 1e9) - 17.5e-3).abs() < 1e-15);
        assert!((all_reduce(&full, 1e9) - 2.5e-3).abs() < 1e-15);
    }

    /// Latency: ring 2(n-1)a = 14 us; switch 2 log2(8) a = 6 us; so a torus and a switch group differ.
    #[test]
    fn ring_and_switch_differ_by_latency() {
        let ring = all_reduce(&dimension(Topology::Ring, 8, 1e-6), 1e6);
        let switch = all_reduce(&dimension(Topology::Switch, 8, 1e-6), 1e6);
        assert!((ring - switch - 8e-6).abs() < 1e-15);
    }

    /// All-reduce over two dimensions moves as much as one ring over all chips: 2(n-1)/n with n = n1 n2.
    #[test]
    fn hierarchy_moves_what_one_ring_moves() {
        let options = ModelOptions::flowspace();
        let two = [dimension(Topology::Ring, 4, 0.0), dimension(Topology::Ring, 8, 0.0)];
        let one = [dimension(Topology::Ring, 32, 0.0)];
        let a = seconds(CollectiveKind::AllReduce, &two, 1e9, &options);
        let b = seconds(CollectiveKind::AllReduce, &one, 1e9, &options);
        assert!((a / b - 1.0).abs() < 1e-12, "{a} {b}");
    }

    /// By hand: 8 chips behind a switch that adds up at half of 100 GB/s; 1 GB. A ring takes 2 x 7/8 x 10 ms, the switch 9/8 x 20 ms; both after 2 s.
    #[test]
    fn libraries_take_the_fastest_way() {
        let lib = Collectives {
            least: Seconds(1.0),
            shortest_rate: None,
            short_start: Seconds(0.5),
            short_share: Fraction(0.01),
            long_start: Seconds(2.0),
            outer_share: Fraction(0.5),
        };
        let box_of = |sums| GroupDimension { sums, ..dimension(Topology::Switch, 8, 0.0) };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        near(by_library(&[box_of(None)], &lib, 2.0, 1e9, true), 2.0175);
        near(by_library(&[box_of(Some(1.0))], &lib, 2.0, 1e9, true), 2.01125);
        near(by_library(&[box_of(Some(1.0))], &lib, 2.0, 1e9, false), 2.0175);
        // Half of it by the short protocol: half a second and 7/8 GB at 1 GB/s. Half as much again by the long one.
        near(by_library(&[box_of(Some(1.0))], &lib, 1.0, 1e9, true), 1.375);
        near(by_library(&[box_of(Some(1.0))], &lib, 1.0, 8e9, true), 2.07);
        // Short ones: 2 x 7/8 x 10 kB at 1 GB/s after half a second, but never below one.
        near(by_library(&[box_of(None)], &lib, 2.0, 1e4, true), 1.0);
        // Two boxes: eight links of 100 GB/s leave each, of which half is reached: 400 GB/s, more than a chip sends. Both ways over the border of either box.
        let two = [box_of(None), dimension(Topology::Switch, 2, 0.25)];
        near(by_library(&two, &lib, 2.0, 1e9, true), 2.0 + 2.0 * 15.0 / 16.0 * 0.01 + 4.0 * 0.25);
        assert_eq!(by_library(&[], &lib, 2.0, 1e9, true), 0.0);
        // The shortest say themselves that they are there: a tenth of a second and 100 B at 1 kB/s.
        let lib = Collectives { least: Seconds(0.1), shortest_rate: Some(crate::units::Bandwidth(1e3)), ..lib };
        near(by_library(&[box_of(None)], &lib, 2.0, 100.0, true), 0.2);
        near(by_library(&[box_of(None)], &lib, 2.0, 1e4, true), 0.5 + 2.0 * 7.0 / 8.0 * 1e-5);
        // All to all: 7/8 of 1 GB at 100 GB/s in a box; of two boxes half of it over a chip's link between them, at 50 GB/s, and its hop.
        near(all_to_all_by_library(&[box_of(None)], &lib, 8e9), 2.0 + 7.0 / 8.0 * 0.08);
        near(all_to_all_by_library(&two, &lib, 8e9), 2.0 + 0.5 * 0.16 + 0.25);
        assert_eq!(all_to_all_by_library(&[], &lib, 1e9), 0.0);
    }

    #[test]
    fn one_chip_communicates_nothing() {
        let options = ModelOptions::flowspace();
        assert_eq!(seconds(CollectiveKind::AllReduce, &[], 1e9, &options), 0.0);
    }
}
