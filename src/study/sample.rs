//! A sample of a grid instead of all its points: `sample: 500 sobol`.
//!
//! Points of a scrambled Sobol' sequence (Sobol' 1967; scrambling by Owen 1995 as hashed by Burley 2020) fill a space of many axes more evenly than random ones: each
//! axis' values come up about equally often from the first points on. A sample of more points begins with the points of the smaller one.

use crate::spec::{FromNode, Node, Reader, Value, schema::Definitions};
use serde::Serialize;
use serde_json::json;
use std::collections::HashSet;
use std::fmt;

/// Which points of a grid are solved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// How many.
    pub points: u64,
    /// Other seeds give other points.
    pub seed: u32,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sobol", self.points)?;
        if self.seed == 0 { Ok(()) } else { write!(f, " seed {}", self.seed) }
    }
}

impl Serialize for Sample {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Most points of a sample.
const MOST: u64 = 1_000_000;
/// Points of the sequence that are looked at for one of a sample: some come to points of the grid that others came to.
const DRAWS_A_POINT: u32 = 16;

impl FromNode for Sample {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let found = match &node.value {
            Value::Scalar { text, .. } => parse(text),
            _ => None,
        };
        found.or_else(|| {
            reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
            None
        })
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "string" })
    }
    fn expected() -> String {
        format!("a number of points to {MOST} and how they are chosen, as 500 sobol or 500 sobol seed 2")
    }
}

fn parse(text: &str) -> Option<Sample> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (points, seed) = match words.as_slice() {
        [points, "sobol"] => (points, "0"),
        [points, "sobol", "seed", seed] => (points, *seed),
        _ => return None,
    };
    let points = points.parse().ok().filter(|n| (1..=MOST).contains(n))?;
    Some(Sample { points, seed: seed.parse().ok()? })
}

impl Sample {
    /// The points of a grid with axes of these sizes, by their index (the last axis fastest), each once, in the order of the sequence.
    ///
    /// # Errors
    /// What does not fit: fewer points in the grid, or more axes than the sequence has.
    pub fn of(&self, sizes: &[usize]) -> Result<Vec<u64>, String> {
        let grid = sizes.iter().try_fold(1_u64, |count, size| count.checked_mul(*size as u64));
        let grid = grid.ok_or("the grid has more than 2^64 points; take values out of its axes")?;
        if self.points > grid {
            return Err(format!("expected at most the {grid} points of the grid, found {}", self.points));
        }
        if sizes.len() > sobol_burley::NUM_DIMENSIONS as usize {
            return Err(format!("a sample has at most {} axes, found {}", sobol_burley::NUM_DIMENSIONS, sizes.len()));
        }
        let mut seen = HashSet::new();
        let mut points = Vec::new();
        for draw in 0..DRAWS_A_POINT * self.points as u32 {
            let value = |(axis, size): (usize, &usize)| {
                let at = sobol_burley::sample(draw, axis as u32, self.seed);
                ((f64::from(at) * *size as f64) as usize).min(size.saturating_sub(1)) as u64
            };
            let index =
                sizes.iter().enumerate().fold(0, |index, (axis, size)| index * *size as u64 + value((axis, size)));
            if seen.insert(index) {
                points.push(index);
            }
            if points.len() as u64 == self.points {
                return Ok(points);
            }
        }
        // What a sequence that has met most of a small grid does not meet soon.
        points.extend(
            (0..grid).filter(|index| !seen.contains(index)).take((self.points as usize).saturating_sub(points.len())),
        );
        Ok(points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_an_axis_comes_up_alike() {
        let sizes = [4, 8, 16, 3];
        let points = Sample { points: 256, seed: 0 }.of(&sizes).unwrap();
        assert_eq!(points.iter().collect::<HashSet<_>>().len(), 256);
        let mut divisor = 1;
        for size in sizes.iter().rev() {
            let mut counts = vec![0_usize; *size];
            points.iter().for_each(|point| counts[(point / divisor) as usize % size] += 1);
            divisor *= *size as u64;
            let even = 256 / size;
            assert!(counts.iter().all(|n| n.abs_diff(even) <= even / 4 + 1), "{size}: {counts:?}");
        }
        // More points begin with these; another seed has others; all of a grid is the grid.
        let more = Sample { points: 300, seed: 0 }.of(&sizes).unwrap();
        assert_eq!(more[..256], points[..]);
        assert_ne!(Sample { points: 256, seed: 1 }.of(&sizes).unwrap(), points);
        let mut all = Sample { points: 60, seed: 0 }.of(&[3, 20]).unwrap();
        all.sort_unstable();
        assert_eq!(all, (0..60).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_no_sample() {
        assert_eq!(parse("500 sobol"), Some(Sample { points: 500, seed: 0 }));
        assert_eq!(parse("500 sobol seed 7").unwrap().to_string(), "500 sobol seed 7");
        for text in [
            "",
            "500",
            "0 sobol",
            "-1 sobol",
            "500 halton",
            "500 sobol seed",
            "500 sobol seed x",
            "1e3 sobol",
            "1000001 sobol",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert!(Sample { points: 61, seed: 0 }.of(&[3, 20]).unwrap_err().contains("60 points"));
        assert!(Sample { points: 1, seed: 0 }.of(&[2; 70]).is_err());
        assert!(Sample { points: 1, seed: 0 }.of(&[1; 300]).is_err());
    }
}
