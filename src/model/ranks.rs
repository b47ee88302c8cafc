//! The one numbering of ranks, and the groups that parallelism makes of them.
//!
//! A rank is a chip; chips are numbered through the network's dimensions, innermost first. Along a dimension tensor parallelism is innermost, then
//! context, then data parallelism, the stages of a pipeline outermost. An execution divides all chips in this order, a plan each dimension of the network
//! by itself. With t chips of a tensor-parallel group, c of context, d of data and p stages:
//!
//! | group | chips | apart |
//! |---|---|---|
//! | tensor | t | 1 |
//! | context | c | t |
//! | expert | e | t |
//! | replicas | c d | t |
//! | replicas of an expert | c d / e | t e |
//! | all chips of a stage | t c d | 1 |
//! | pipeline | p | t c d |
//! | its ends | 2 | t c d (p - 1) |

use super::collective::Extent;

/// Degrees of parallelism, along one dimension of a network or of all chips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallelism {
    /// Tensor parallelism.
    pub tp: u64,
    /// Context parallelism.
    pub cp: u64,
    /// Expert parallelism, inside context and data parallelism.
    pub ep: u64,
    /// Data parallelism.
    pub dp: u64,
    /// Stages of a pipeline.
    pub pp: u64,
}

/// Chips that talk to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Those that divide tensors.
    Tensor,
    /// Those that divide a sample's tokens.
    Context,
    /// Those that divide experts.
    Expert,
    /// Those that hold the same weights outside experts.
    Replicas,
    /// Those that hold the same experts.
    ExpertReplicas,
    /// All chips of a stage.
    Stage,
    /// One chip of each stage.
    Pipeline,
    /// First and last of a pipeline.
    Ends,
}

impl Parallelism {
    /// Of nothing: one chip.
    pub const ONE: Self = Self { tp: 1, cp: 1, ep: 1, dp: 1, pp: 1 };

    /// Chips that hold the same weights outside experts.
    pub fn replicas(&self) -> u64 {
        self.cp.saturating_mul(self.dp)
    }

    /// Chips of a stage.
    fn stage(&self) -> u64 {
        self.tp.saturating_mul(self.replicas())
    }

    /// All chips.
    pub fn chips(&self) -> u64 {
        self.stage().saturating_mul(self.pp)
    }

    /// How many chips a group has, and how far they are apart.
    pub fn group(&self, group: Group) -> Extent {
        let (replicas, stage) = (self.replicas(), self.stage());
        let (chips, apart) = match group {
            Group::Tensor => (self.tp, 1),
            Group::Context => (self.cp, self.tp),
            Group::Expert => (self.ep, self.tp),
            Group::Replicas => (replicas, self.tp),
            Group::ExpertReplicas => (replicas / self.ep.max(1), self.tp.saturating_mul(self.ep)),
            Group::Stage => (stage, 1),
            Group::Pipeline => (self.pp, stage),
            Group::Ends => (self.pp.min(2), stage.saturating_mul(self.pp.saturating_sub(1).max(1))),
        };
        Extent { chips, apart }
    }
}

/// Where a rank stands: in its tensor-parallel group, among the replicas (context inside data), in the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Number in the tensor-parallel group.
    pub tensor: u64,
    /// Number among the replicas.
    pub replica: u64,
    /// Stage.
    pub stage: u64,
}

/// The ranks of a system that is divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks {
    whole: Parallelism,
    dimensions: Vec<Parallelism>,
}

impl Ranks {
    /// Of dimensions, innermost first. Context and expert parallelism are of chips that count as one dimension.
    pub fn new(dimensions: Vec<Parallelism>) -> Self {
        let whole = dimensions.iter().fold(Parallelism::ONE, |a, b| Parallelism {
            tp: a.tp * b.tp,
            cp: a.cp * b.cp,
            ep: a.ep * b.ep,
            dp: a.dp * b.dp,
            pp: a.pp * b.pp,
        });
        Self { whole, dimensions }
    }

    /// All of them.
    pub fn count(&self) -> u64 {
        self.whole.chips()
    }

    /// Where a rank stands.
    pub fn place(&self, rank: u64) -> Place {
        let (mut rest, mut place) = (rank, Place { tensor: 0, replica: 0, stage: 0 });
        let mut inside = Parallelism::ONE;
        for d in &self.dimensions {
            let c = rest % d.chips();
            rest /= d.chips();
            place.tensor += inside.tp * (c % d.tp);
            place.replica += inside.dp * (c / d.tp % d.replicas());
            place.stage += inside.pp * (c / d.stage());
            inside.tp *= d.tp;
            inside.dp *= d.replicas();
            inside.pp *= d.pp;
        }
        place
    }

    /// The rank that stands in a place.
    pub fn rank(&self, place: Place) -> u64 {
        let (mut left, mut rank, mut begin) = (place, 0, 1);
        for d in &self.dimensions {
            let here =
                Place { tensor: left.tensor % d.tp, replica: left.replica % d.replicas(), stage: left.stage % d.pp };
            rank += begin * (here.tensor + d.tp * here.replica + d.stage() * here.stage);
            begin *= d.chips();
            left = Place { tensor: left.tensor / d.tp, replica: left.replica / d.replicas(), stage: left.stage / d.pp };
        }
        rank
    }

    /// The first member of the group that a place belongs to; none of ends where it is at neither.
    pub fn head(&self, group: Group, place: Place) -> Option<Place> {
        let of = |n: u64| place.replica / n * n;
        Some(match group {
            Group::Tensor => Place { tensor: 0, ..place },
            Group::Context => Place { replica: of(self.whole.cp), ..place },
            Group::Expert => Place { replica: of(self.whole.ep), ..place },
            Group::Replicas => Place { replica: 0, ..place },
            Group::ExpertReplicas => Place { replica: place.replica % self.whole.ep, ..place },
            Group::Stage => Place { tensor: 0, replica: 0, ..place },
            Group::Ends if place.stage > 0 && place.stage + 1 < self.whole.pp => return None,
            Group::Pipeline | Group::Ends => Place { stage: 0, ..place },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const ALL: [Group; 8] = [
        Group::Tensor,
        Group::Context,
        Group::Expert,
        Group::Replicas,
        Group::ExpertReplicas,
        Group::Stage,
        Group::Pipeline,
        Group::Ends,
    ];

    fn members(ranks: &Ranks, group: Group) -> Vec<Vec<u64>> {
        let mut out: BTreeMap<Place, Vec<u64>> = BTreeMap::new();
        for rank in 0..ranks.count() {
            let place = ranks.place(rank);
            assert_eq!(ranks.rank(place), rank);
            if let Some(head) = ranks.head(group, place) {
                out.entry(head).or_default().push(rank);
            }
        }
        out.into_values().collect()
    }

    /// Of all divisions of small numbers: the members of each group are as many and as far apart as the table says.
    #[test]
    fn groups_have_their_extents() {
        let degrees = [1u64, 2, 3];
        let mut seen = 0;
        for tp in degrees {
            for (cp, dp, pp) in
                degrees.iter().flat_map(|c| degrees.map(|d| (*c, d))).flat_map(|(c, d)| degrees.map(|p| (c, d, p)))
            {
                for ep in (1..=cp * dp).filter(|ep| (cp * dp).is_multiple_of(*ep)) {
                    let whole = Parallelism { tp, cp, ep, dp, pp };
                    let ranks = Ranks::new(vec![whole]);
                    for group in ALL {
                        let Extent { chips, apart } = whole.group(group);
                        for set in members(&ranks, group) {
                            let wanted: Vec<u64> = (0..chips).map(|i| set[0] + i * apart).collect();
                            assert_eq!(set, wanted, "{whole:?} {group:?}");
                            seen += 1;
                        }
                    }
                }
            }
        }
        assert!(seen > 1000);
    }

    /// Over several dimensions each group is the product of its parts in them.
    #[test]
    fn groups_lie_on_their_dimensions() {
        let of = |tp, dp, pp| Parallelism { tp, dp, pp, ..Parallelism::ONE };
        let dimensions = [of(2, 1, 2), of(1, 3, 1), of(2, 2, 2)];
        let ranks = Ranks::new(dimensions.to_vec());
        assert_eq!(ranks.count(), 4 * 3 * 8);
        let coordinates = |rank: u64| [rank % 4, rank / 4 % 3, rank / 12];
        for group in [Group::Tensor, Group::Replicas, Group::Pipeline, Group::Stage] {
            for set in members(&ranks, group) {
                let first = coordinates(set[0]);
                let mut wanted = vec![0];
                for (d, begin) in dimensions.iter().zip([1, 4, 12]) {
                    let Extent { chips, apart } = d.group(group);
                    wanted = (0..chips).flat_map(|i| wanted.iter().map(move |w| w + i * apart * begin)).collect();
                }
                let base: u64 = first.iter().zip([1, 4, 12]).map(|(c, begin)| c * begin).sum();
                assert_eq!(set, wanted.iter().map(|w| w + base).collect::<Vec<_>>(), "{group:?}");
            }
        }
    }
}
