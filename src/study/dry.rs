//! What a run would do: how many points, how many of them different, how long it may take. Nothing is written.

use super::again::outcome;
use super::grid::{Point, Study};
use super::store::{Key, TIMINGS};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// Most points that are built to be counted.
const MOST_BUILT: u64 = 2_000;
/// Most points that are solved for an estimate.
const MOST_SOLVED: usize = 8;
/// Seconds after which no further point is begun.
const ENOUGH: Duration = Duration::from_secs(20);

/// What a run would do.
#[derive(Debug, Clone, PartialEq)]
pub struct Dry {
    /// Axes and how many values each has.
    pub axes: Vec<(String, usize)>,
    /// Points of the grid; `None` above 2^64.
    pub points: Option<u64>,
    /// Points that were built, spread evenly over the grid.
    pub built: u64,
    /// Of them those that cannot be built.
    pub wrong: u64,
    /// Different ones among the others.
    pub different: u64,
    /// Of the different ones those that an earlier run into the folder has solved.
    pub known: u64,
    /// Where the seconds come from: points timed by earlier runs, or now.
    pub earlier: bool,
    /// Seconds of each timed point.
    pub seconds: Vec<f64>,
}

impl Dry {
    /// Points that a run would solve: of a grid that was not built whole by the shares of those that were.
    pub fn to_solve(&self) -> f64 {
        let all = self.points.map_or(f64::INFINITY, |points| points as f64);
        all * (self.different - self.known) as f64 / self.built.max(1) as f64
    }

    /// Seconds of a run with so many points at a time: by the mean of the timed points, and two standard errors of it below and above. `None` where none was timed.
    pub fn estimate(&self, jobs: usize) -> Option<(f64, f64, f64)> {
        let n = self.seconds.len() as f64;
        let mean = self.seconds.iter().sum::<f64>() / n;
        let spread = self.seconds.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let error = if n > 1.0 { 2.0 * (spread / n).sqrt() } else { mean };
        let whole = |each: f64| self.to_solve() * each / jobs.max(1) as f64;
        (n > 0.0).then(|| (whole((mean - error).max(0.0)), whole(mean), whole(mean + error)))
    }
}

/// Counts and times. Points that an earlier run into `out` solved give the seconds where there are at least as many as would be solved now; else some points are
/// solved.
pub fn look(study: &Study, out: &Path) -> Dry {
    let points = study.count();
    let total = points.unwrap_or(u64::MAX);
    let built = total.min(MOST_BUILT);
    let timed = timings(&out.join(TIMINGS));
    let mut seen = HashSet::new();
    let mut fresh: Vec<(String, Point)> = Vec::new();
    let (mut wrong, mut known) = (0, 0);
    // An even stride would meet the same value of an axis again and again.
    let spread = |i: u64| (u128::from(i) * u128::from(total) / u128::from(built.max(1))) as u64;
    let shifted = |i: u64| if built == total { i } else { (spread(i) + i) % total };
    for i in 0..built {
        let point = study.point(shifted(i)).ok().and_then(|point| Some((Key::of(&point).ok()?.to_string(), point)));
        match point {
            None => wrong += 1,
            Some((key, point)) => {
                if seen.insert(key.clone()) {
                    if timed.contains_key(&key) { known += 1 } else { fresh.push((key, point)) }
                }
            }
        }
    }
    let mut seconds: Vec<f64> = timed.into_values().collect();
    let earlier = seconds.len() >= MOST_SOLVED.min(fresh.len().max(1));
    if !earlier {
        seconds.clear();
        let begun = Instant::now();
        // By their keys, which are hashes: every so many of the grid would meet one value of an inner axis alone.
        fresh.sort_by(|a, b| a.0.cmp(&b.0));
        for (_, point) in fresh.iter().take(MOST_SOLVED) {
            if begun.elapsed() > ENOUGH {
                break;
            }
            let clock = Instant::now();
            // What fails takes its time as well.
            let _ = outcome(point);
            seconds.push(clock.elapsed().as_secs_f64());
        }
    }
    Dry {
        axes: study.axes.iter().map(|axis| (axis.name.clone(), axis.values.len())).collect(),
        points,
        built,
        wrong,
        different: seen.len() as u64,
        known,
        earlier,
        seconds,
    }
}

/// Seconds of each point that earlier runs solved, by key.
fn timings(path: &Path) -> BTreeMap<String, f64> {
    let Ok(mut reader) = csv::Reader::from_path(path) else { return BTreeMap::new() };
    let row = |row: csv::StringRecord| Some((row.get(1)?.to_string(), row.get(2)?.parse().ok()?));
    reader.records().flatten().filter_map(row).filter(|(key, _): &(String, f64)| !key.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_scale_with_what_is_left() {
        let dry = Dry {
            axes: Vec::new(),
            points: Some(1000),
            built: 100,
            wrong: 10,
            different: 80,
            known: 30,
            earlier: false,
            seconds: vec![1.0, 3.0],
        };
        assert_eq!(dry.to_solve(), 500.0);
        let (low, mean, high) = dry.estimate(2).unwrap();
        assert_eq!((mean, high - mean), (500.0, 500.0));
        assert!(low < 1e-9);
        assert_eq!(Dry { seconds: vec![2.0], ..dry.clone() }.estimate(1), Some((0.0, 1000.0, 2000.0)));
        assert_eq!(Dry { seconds: Vec::new(), ..dry }.estimate(1), None);
    }
}
