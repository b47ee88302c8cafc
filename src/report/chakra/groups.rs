//! The groups of a run's ranks with their names.

use crate::model::ranks::{Group, Place, Ranks};
use crate::trace::chakra::CommGroups;
use std::collections::{BTreeMap, BTreeSet};

/// Ranks, and the names of their groups of more than one.
pub(super) struct Groups {
    pub(super) ranks: Ranks,
    names: BTreeMap<(Group, Place), String>,
}

impl Groups {
    /// Those that `used` names; with them what comm_group.json says.
    pub(super) fn new(ranks: Ranks, used: &BTreeSet<Group>) -> (Self, CommGroups) {
        let mut members: BTreeMap<(Group, Place), Vec<u64>> = BTreeMap::new();
        for rank in 0..ranks.count() {
            let place = ranks.place(rank);
            for group in used {
                if let Some(head) = ranks.head(*group, place) {
                    members.entry((*group, head)).or_default().push(rank);
                }
            }
        }
        let (mut names, mut groups) = (BTreeMap::new(), CommGroups::default());
        for (i, (head, ranks)) in members.into_iter().filter(|(_, ranks)| ranks.len() > 1).enumerate() {
            let name = (i + 1).to_string();
            names.insert(head, name.clone());
            groups.0.insert(name, ranks);
        }
        (Self { ranks, names }, groups)
    }

    /// The name of the group that a place belongs to; none of one rank.
    pub(super) fn name(&self, group: Group, place: Place) -> Option<&str> {
        let head = self.ranks.head(group, place)?;
        self.names.get(&(group, head)).map(String::as_str)
    }
}
