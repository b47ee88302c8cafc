//! What is to be finished before the next merge: every point of a grid, or those that a search of the front asks for next.

use super::{PARTS, PartsError, Plan};
use crate::spec::node::io_reason;
use crate::study::store::{Folder, cannot};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs;

const ROUNDS: &str = "rounds";

/// The points of a round, as its file says them.
#[derive(Serialize, Deserialize)]
struct Asked {
    points: Vec<u64>,
}

/// A round of parts.
#[derive(Debug)]
pub(super) struct Round {
    /// Of a search, from 0; a grid has one round without a number.
    pub number: Option<u32>,
    /// How many parts it is in.
    pub parts: u64,
    /// Points of the grid.
    total: u64,
    /// The points of a search.
    points: Vec<u64>,
}

impl Round {
    /// The one that is under way.
    pub fn now(plan: &Plan) -> Result<Self, PartsError> {
        if plan.study.spec.search.is_none() {
            let (parts, total) = (plan.sheet.parts, plan.sheet.of.points);
            return Ok(Self { number: None, parts, total, points: Vec::new() });
        }
        let next = (0..).find(|number| !plan.under(ROUNDS, "").path(&name(*number)).exists()).unwrap_or(0);
        Self::numbered(plan, next.saturating_sub(1))
    }

    /// One of a search.
    pub fn numbered(plan: &Plan, number: u32) -> Result<Self, PartsError> {
        let path = plan.under(ROUNDS, "").path(&name(number));
        let bad = |reason: String| PartsError::NoPlan { path: path.clone(), reason };
        let text = fs::read_to_string(&path).map_err(|e| bad(io_reason(&e)))?;
        let Asked { points } = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        let parts = plan.sheet.parts.min(points.len() as u64).max(1);
        Ok(Self { number: Some(number), parts, total: plan.sheet.of.points, points })
    }

    /// Plans one of a search.
    pub fn begin(plan: &Plan, number: u32, points: Vec<u64>) -> Result<u64, PartsError> {
        let folder: Folder = plan.under(ROUNDS, "");
        folder.create()?;
        let count = points.len() as u64;
        let text = serde_json::to_string(&Asked { points }).map_err(|e| cannot(&folder.path(ROUNDS))(e.into()))?;
        folder.write(&name(number), format!("{text}\n").as_bytes())?;
        Ok(count)
    }

    /// How many points it has.
    pub fn count(&self) -> u64 {
        if self.number.is_some() { self.points.len() as u64 } else { self.total }
    }

    /// What the names of a part's files begin with.
    pub fn stem(&self, part: u64) -> String {
        match self.number {
            None => format!("{part:05}"),
            Some(round) => format!("{round:03}-{part:05}"),
        }
    }

    /// The points of a part, ascending.
    pub fn points_of(&self, part: u64) -> Vec<u64> {
        match self.number {
            None => (0..self.total).filter(|point| part_of(*point, self.parts) == part).collect(),
            Some(_) => {
                let mine = |(at, _): &(usize, &u64)| *at as u64 % self.parts == part;
                self.points.iter().enumerate().filter(mine).map(|(_, point)| *point).collect()
            }
        }
    }

    /// The parts that are not finished, ascending.
    pub fn missing(&self, plan: &Plan) -> Result<Vec<u64>, PartsError> {
        let path = plan.folder.path(PARTS);
        let mut there = HashSet::new();
        // Read anew, not asked for name by name: a shared file system remembers for a while which names were not there.
        for entry in fs::read_dir(&path).map_err(cannot(&path))? {
            there.insert(entry.map_err(cannot(&path))?.file_name().to_string_lossy().into_owned());
        }
        Ok((0..self.parts).filter(|part| !there.contains(&table(&self.stem(*part)))).collect())
    }
}

fn name(number: u32) -> String {
    format!("{number:03}.json")
}

/// Name of the table of a part.
pub(super) fn table(stem: &str) -> String {
    format!("{stem}.csv")
}

/// Which of `parts` a point is in: neighbours, which cost alike, come to different ones (the finaliser of `SplitMix64`).
pub(super) fn part_of(point: u64, parts: u64) -> u64 {
    let mut z = point.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % parts.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_in_one_part_and_parts_are_alike() {
        let mut sizes = [0_u32; 64];
        (0..100_000).for_each(|point| sizes[part_of(point, 64) as usize] += 1);
        assert_eq!(sizes.iter().sum::<u32>(), 100_000);
        assert!(sizes.iter().all(|size| (1_300..1_850).contains(size)), "{sizes:?}");
        let points: Vec<u64> = (0..23).map(|i| 7 * i).collect();
        for round in [
            Round { number: None, parts: 5, total: 160, points: Vec::new() },
            Round { number: Some(2), parts: 5, total: 160, points },
        ] {
            let mut all: Vec<u64> = (0..5).flat_map(|part| round.points_of(part)).collect();
            all.sort_unstable();
            assert_eq!(all.len() as u64, round.count());
            all.dedup();
            assert_eq!(all.len() as u64, round.count());
        }
    }
}
