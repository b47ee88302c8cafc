//! One part of a round finished: its points solved, each noted in the journal of this process, and at the end its table.

use super::apart::Apart;
use super::round::{Round, table};
use super::{JOURNALS, PARTS, PartsError, Plan, TIMES, journals};
use crate::mapping::Status;
use crate::report::csv::{COLUMNS, INFEASIBLE, LEADING};
use crate::study::progress::{Progress, Show};
use crate::study::store::{Folder, Journal, Key, Rows, Solved, StoreError, cannot, header, read_journal};
use crate::study::sweep::{self, Row, Shared, TIMING, Wanted};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How a part is worked at.
#[derive(Debug, Clone)]
pub struct WorkOptions {
    /// Which.
    pub part: u64,
    /// Points solved at the same time.
    pub jobs: usize,
    /// Time after which no further point is begun.
    pub budget: Option<Duration>,
    /// Longest time between two waits for the disk.
    pub checkpoint: Duration,
    /// The program that solves points by themselves in whose middle processes ended; where it is left out they are solved with the others.
    pub program: Option<PathBuf>,
    /// Whether to tell how far it is.
    pub show: Show,
    /// Set from elsewhere to stop.
    pub stop: Arc<AtomicBool>,
}

/// How the work at a part ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worked {
    /// Points of the part.
    pub points: u64,
    /// Points with a row.
    pub finished: u64,
    /// Points that earlier attempts, or folders to take points from, had solved.
    pub known: u64,
    /// Points solved now.
    pub solved: u64,
    /// Whether the part stands.
    pub whole: bool,
    /// Lines of earlier attempts that are damaged: their points were solved anew.
    pub damaged: u64,
}

impl Plan {
    /// Finishes a part, until the budget is used up or `stop` is set.
    ///
    /// # Errors
    /// [`PartsError`] when there is no such part, or a file cannot be written; what was finished before is kept.
    pub fn work(self, options: &WorkOptions) -> Result<Worked, PartsError> {
        let until = options.budget.map(|budget| Instant::now() + budget);
        let (part, round) = (options.part, Round::now(&self)?);
        if part >= round.parts {
            return Err(PartsError::NoPart { part, parts: round.parts });
        }
        let (stem, mut points) = (round.stem(part), round.points_of(part));
        let count = points.len() as u64;
        if self.under(PARTS, "").path(&table(&stem)).exists() {
            return Ok(Worked { points: count, finished: count, known: count, solved: 0, whole: true, damaged: 0 });
        }
        let (known, damaged) = self.known(&stem)?;
        // The clock tells processes of one number on different machines apart.
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let attempt = format!("{}-{clock:x}", std::process::id());
        let mut journal = Journal::begin(self.under(JOURNALS, "").path(&format!("{stem}.{attempt}")))?;
        let (out, timings) = (self.under(PARTS, &attempt), self.under(TIMES, &attempt));
        let apart = Apart::new(
            &self.folder,
            &self.path,
            (part, &stem, &attempt),
            options.program.clone(),
            options.stop.clone(),
        )?;
        apart.order(&mut points);
        let apart = Arc::new(apart);
        let pool = sweep::pool(options.jobs, count)?;
        let mut shared = Shared::new(self.study, sweep::solver(), known, options.stop.clone());
        shared.wanted = Wanted::These(points);
        let each = apart.clone();
        shared.each = Some(Box::new(move |shared, point| each.finish(shared, point)));
        let shared = Arc::new(shared);
        let mut progress = Progress::new(options.show, count);
        let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
        let mut synced = Instant::now();
        let mut solved = 0;
        let driven = shared.drive(&pool, until, |finished| {
            for finished in finished {
                if let Some(key) = finished.key.filter(|_| finished.fresh) {
                    journal.note(key, &finished.solved)?;
                }
                solved += u64::from(finished.fresh);
                rows.insert(finished.index, Row::new(finished, rows.len() as u64 + 1));
                progress.step();
            }
            progress.tick();
            journal.write_down()?;
            if synced.elapsed() >= options.checkpoint {
                synced = Instant::now();
                journal.sync()?;
            }
            Ok(())
        });
        let left = apart.leave();
        driven?;
        progress.finish();
        journal.sync()?;
        left?;
        let (finished, whole) = (rows.len() as u64, rows.len() as u64 == count);
        if whole {
            // The table of the part last: it says that all is there.
            timings.replace(&table(&stem), &TIMING, |to| {
                rows.iter().try_for_each(|(index, row)| sweep::push_timing(to, *index, row))
            })?;
            let heatmap = sweep::heatmap(&shared.study);
            write_part(&out, &table(&stem), &shared.study, &heatmap, &rows)?;
        }
        Ok(Worked { points: count, finished, known: finished - solved.min(finished), solved, whole, damaged })
    }

    /// What was solved before, by other attempts at the part and in folders to take points from; and how many lines of journals are damaged.
    fn known(&self, stem: &str) -> Result<(HashMap<Key, Solved>, u64), PartsError> {
        let mut files = journals(&self.path, Some(&format!("{stem}.")))?;
        for folder in &self.sheet.reuse {
            files.extend(journals(folder, None)?);
        }
        let mut known = HashMap::new();
        let (mut wrong, mut damaged) = (None, 0);
        for path in files {
            let file = File::open(&path).map_err(cannot(&path))?;
            damaged += read_journal(&file, |key, solved| match known.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(solved);
                }
                Entry::Occupied(mut entry) => match better(entry.get(), &solved) {
                    Ok(false) => {}
                    Ok(true) => {
                        entry.insert(solved);
                    }
                    Err(column) => {
                        let [a, b] = [entry.get(), &solved].map(|row| row.get(column).to_string());
                        let path = path.to_path_buf();
                        wrong.get_or_insert(PartsError::Disagree { key: key.to_string(), column, a, b, path });
                    }
                },
            })
            .map_err(cannot(&path))?;
        }
        wrong.map_or(Ok((known, damaged)), Err)
    }
}

/// Relative difference of two proven times that rounding explains.
const ROUNDING: f64 = 1e-9;

/// Whether a second result of the same point is better than the first: proven, or with the smaller gap. Results differ where a limit of seconds
/// ended a search alone.
///
/// # Errors
/// The column in which two proven results differ.
fn better(first: &Solved, second: &Solved) -> Result<bool, &'static str> {
    if first.values == second.values {
        return Ok(false);
    }
    let proven = |row: &Solved| [Status::Optimal.word(), INFEASIBLE].contains(&row.get("status"));
    match (proven(first), proven(second)) {
        (true, true) if first.get("status") != second.get("status") => Err("status"),
        (true, true) => {
            let [a, b] = [first, second].map(|row| row.get("iteration_s").parse::<f64>().unwrap_or(0.0));
            if (a - b).abs() <= ROUNDING * a.abs().max(b.abs()) { Ok(false) } else { Err("iteration_s") }
        }
        (false, true) => Ok(true),
        (true, false) => Ok(false),
        (false, false) => {
            let gap = |row: &Solved| row.get("gap").parse::<f64>().unwrap_or(f64::INFINITY);
            Ok(gap(second) < gap(first))
        }
    }
}

/// Writes the table of a part: columns that none of its rows fills are left out.
fn write_part(
    out: &Folder,
    name: &str,
    study: &super::Study,
    heatmap: &str,
    rows: &BTreeMap<u64, Row>,
) -> Result<(), StoreError> {
    let header = header(study.axis_names());
    let labels = 1 + study.axes.len();
    let mut filled = vec![false; header.len()];
    filled.iter_mut().take(labels).for_each(|filled| *filled = true);
    for (index, row) in rows {
        let point = index.to_string();
        let fields = sweep::fields(&point, study, heatmap, *index, row);
        fields.zip(&mut filled).for_each(|(text, filled)| *filled |= !text.is_empty());
    }
    let kept: Vec<&str> = header.iter().zip(&filled).filter(|(_, filled)| **filled).map(|(name, _)| *name).collect();
    debug_assert_eq!((kept.first(), COLUMNS.len() + labels < header.len()), (Some(&LEADING.0), true));
    out.replace(name, &kept, |to: &mut Rows<_>| {
        rows.iter().try_for_each(|(index, row)| {
            let point = index.to_string();
            let fields = sweep::fields(&point, study, heatmap, *index, row);
            to.push(fields.zip(&filled).filter(|(_, filled)| **filled).map(|(text, _)| text))
        })
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(status: &str, time: &str, gap: &str) -> Solved {
        let value = |name: &str| match name {
            "status" => status.to_string(),
            "iteration_s" => time.to_string(),
            "gap" => gap.to_string(),
            _ => String::new(),
        };
        let values: Vec<String> = COLUMNS.iter().map(|c| value(c.name)).collect();
        Solved { values: Arc::new(values.into()), solve_s: 0.0 }
    }

    #[test]
    fn of_two_results_the_proven_one_stays_and_two_proofs_agree() {
        let (optimal, feasible) = (Status::Optimal.word(), "feasible");
        let proven = row(optimal, "2", "0");
        assert_eq!(better(&proven, &proven), Ok(false));
        assert_eq!(better(&row(feasible, "3", "0.1"), &proven), Ok(true));
        assert_eq!(better(&proven, &row(feasible, "3", "0.1")), Ok(false));
        assert_eq!(better(&row(feasible, "3", "0.1"), &row(feasible, "4", "0.05")), Ok(true));
        assert_eq!(better(&proven, &row(optimal, "2.0000000000001", "0")), Ok(false));
        assert_eq!(better(&proven, &row(optimal, "2.1", "0")), Err("iteration_s"));
        assert_eq!(better(&proven, &row(INFEASIBLE, "", "")), Err("status"));
    }
}
