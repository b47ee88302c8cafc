//! Networks: a list of dimensions, innermost first, each with a topology of its own.

use super::source::{Source, check_sources};
use crate::spec::{
    Node, Reader,
    read::{Fraction, Ref, Share},
};
use crate::units::{Bandwidth, EnergyPerByte, PowerPerBandwidth, PricePerBandwidth, Seconds};

crate::choice! {
    /// The topology of one dimension.
    pub enum Topology ("a topology of one dimension") {
        /// Each chip has a link to either neighbour.
        Ring = "ring",
        /// Each chip has a link to every other.
        FullyConnected = "fully_connected",
        /// Each chip has a port to one crossbar.
        Switch = "switch",
    }
}

crate::choice! {
    /// A named arrangement of dimensions, innermost first.
    pub enum Arrangement ("a topology") {
        /// One chip, no network.
        SingleChip = "single-chip",
        /// One ring.
        Ring = "ring",
        /// All to all.
        FullyConnected = "fully-connected",
        /// One switch.
        Switch = "switch",
        /// Rings in two dimensions.
        Torus2d = "torus-2d",
        /// Rings in three dimensions.
        Torus3d = "torus-3d",
        /// Fully connected groups, fully connected with each other.
        Dragonfly = "dragonfly",
        /// A ring inside the box, a switch between boxes.
        Dgx1 = "dgx-1",
        /// A switch inside the box, a switch between boxes.
        Dgx2 = "dgx-2",
        /// A ring inside the box, boxes fully connected.
        ZionEx = "zionex",
        /// A ring inside the box, two levels of switches.
        Dgx1TwoLevel = "dgx-1-two-level",
        /// Three levels of switches.
        SwitchThreeLevel = "switch-three-level",
        /// Each dimension states its own topology.
        Custom = "custom",
    }
}

impl Arrangement {
    /// Topologies of its dimensions, innermost first; `None` where each dimension states its own.
    pub fn topologies(self) -> Option<&'static [Topology]> {
        use Topology::{FullyConnected as F, Ring as R, Switch as S};
        Some(match self {
            Self::SingleChip => &[],
            Self::Ring => &[R],
            Self::FullyConnected => &[F],
            Self::Switch => &[S],
            Self::Torus2d => &[R, R],
            Self::Torus3d => &[R, R, R],
            Self::Dragonfly => &[F, F],
            Self::Dgx1 => &[R, S],
            Self::Dgx2 => &[S, S],
            Self::ZionEx => &[R, F],
            Self::Dgx1TwoLevel => &[R, S, S],
            Self::SwitchThreeLevel => &[S, S, S],
            Self::Custom => return None,
        })
    }
}

crate::spec! {
    /// A kind of link.
    pub struct Link ("a link", check: check_link) {
        /// Name for rows and titles.
        name: String,
        /// Where each number comes from.
        source: Source,
        /// Bandwidth in one direction between a chip and its switch, or each chip that it is joined to; in a ring to both neighbours
        /// together, or to each of them (`ring_links`).
        bandwidth: Bandwidth,
        /// Links of this bandwidth that a chip has in a ring: 1, it is all that a chip sends; 2, one to each neighbour, so that
        /// collectives go both ways round.
        ring_links: u64 = 1,
        /// Time for the first byte from one chip to the next.
        latency: Seconds = Seconds(0.0),
        /// Share of it that an all-reduce reaches where its switch adds up what chips send, in serving by software with a library of collectives (`collectives` of
        /// its stack); training, `ideal` and `free` run rings. Left out: its switch cannot.
        sums: Option<Fraction>,
        /// Price by bandwidth.
        price: PricePerBandwidth,
        /// Power by bandwidth, at full use of it.
        power: PowerPerBandwidth,
        /// Share of the power that it draws whatever the traffic: a link that is up sends symbols all the time.
        idle_share: Share = Share(1.0),
        /// Energy of a byte beyond that; where it is left out, the rest of the power by bandwidth.
        energy_per_byte: Option<EnergyPerByte>,
    }
}

fn check_link(link: &Link, node: &Node, reader: &mut Reader) {
    check_sources(
        &link.source,
        &["bandwidth", "ring_links", "latency", "sums", "price", "power", "idle_share", "energy_per_byte"],
        node,
        reader,
    );
    if link.bandwidth.0 < 1.0 {
        let at = node.get("bandwidth").unwrap_or(node);
        reader.within("bandwidth", |r| r.problem(at, format!("expected at least 1 B/s, found {}", at.describe())));
    }
    if !(1..=2).contains(&link.ring_links) {
        let at = node.get("ring_links").unwrap_or(node);
        let text =
            format!("expected 1 (all that a chip sends in a ring) or 2 (to each neighbour), found {}", link.ring_links);
        reader.within("ring_links", |r| r.problem(at, text));
    }
}

crate::spec! {
    /// The switches of a network.
    pub struct SwitchPart ("a switch", check: check_switch) {
        /// Name.
        name: String,
        /// Where each number comes from.
        source: Source,
        /// Price by bandwidth of the ports.
        price: PricePerBandwidth,
        /// Power by bandwidth of the ports, drawn whatever the traffic.
        power: PowerPerBandwidth,
    }
}

fn check_switch(switch: &SwitchPart, node: &Node, reader: &mut Reader) {
    check_sources(&switch.source, &["price", "power"], node, reader);
}

crate::spec! {
    /// One dimension of a network.
    pub struct Dimension ("a network dimension") {
        /// Chips (or boxes) along it.
        size: u64,
        /// Its link.
        link: Ref<Link>,
        /// Its topology, where the network's is `custom`.
        topology: Option<Topology>,
        /// Share of the link's bandwidth that collectives reach (protocol, contention).
        efficiency: Fraction = Fraction(1.0),
    }
}

crate::spec! {
    /// The network between chips.
    pub struct Network ("a network", check: check) {
        /// Arrangement of the dimensions.
        topology: Arrangement,
        /// Dimensions, innermost first.
        dimensions: Vec<Dimension> = Vec::new(),
        /// Its switches (and routers); needed for cost and power.
        switch: Option<Ref<SwitchPart>>,
    }
}

fn check(network: &Network, node: &Node, reader: &mut Reader) {
    let at = node.get("dimensions").unwrap_or(node);
    match network.topology.topologies() {
        Some(expected) if expected.len() != network.dimensions.len() => reader.within("dimensions", |r| {
            r.problem(
                at,
                format!(
                    "topology {} has {} dimension(s), found {}",
                    network.topology,
                    expected.len(),
                    network.dimensions.len()
                ),
            );
        }),
        Some(expected) => {
            for (i, (dimension, topology)) in network.dimensions.iter().zip(expected).enumerate() {
                if dimension.topology.is_some_and(|t| t != *topology) {
                    reader.within(format!("dimensions.[{i}].topology"), |r| {
                        r.problem(
                            at,
                            format!(
                                "topology {} has a {topology} here; leave it out, or name the network custom",
                                network.topology
                            ),
                        );
                    });
                }
            }
        }
        None => {
            for (i, dimension) in network.dimensions.iter().enumerate() {
                if dimension.topology.is_none() {
                    reader.within(format!("dimensions.[{i}].topology"), |r| {
                        r.problem(at, "missing; each dimension of a custom network states its topology");
                    });
                }
            }
        }
    }
    if network.dimensions.len() > 6 {
        reader.within("dimensions", |r| r.problem(at, "expected at most 6 dimensions"));
    }
    let chips = network.dimensions.iter().try_fold(1u64, |p, d| p.checked_mul(d.size));
    if chips.is_none_or(|c| c > 1 << 32) {
        reader.within("dimensions", |r| r.problem(at, "the dimensions have more than 2^32 chips"));
    }
}

impl Network {
    /// Chips of the whole network.
    pub fn chips(&self) -> u64 {
        self.dimensions.iter().fold(1, |p, d| p.saturating_mul(d.size))
    }
    /// Topology of dimension `i`.
    pub fn topology_of(&self, i: usize) -> Topology {
        let named = self.topology.topologies().and_then(|t| t.get(i).copied());
        named.or(self.dimensions.get(i).and_then(|d| d.topology)).unwrap_or(Topology::Ring)
    }
}
