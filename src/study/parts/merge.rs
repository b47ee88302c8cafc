//! The parts of a round joined: to the results of a grid, or to what a search of the front asks for next.

use super::round::{Round, part_of, table};
use super::{PARTS, PartsError, Plan, TIMES, ranges};
use crate::report::columns::{Columns, Layout};
use crate::report::csv::{COLUMNS, FAILED, INFEASIBLE, TRAILING};
use crate::study::front::{self, FrontSummary, Replayed};
use crate::study::store::{Key, RESULTS, Rows, Solved, Store, TIMINGS, cannot, header, lock};
use crate::study::sweep::{Finished, TIMING};
use csv::{Reader, ReaderBuilder, StringRecord};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rows of the parts that are finished, where others are not.
pub const PARTIAL: &str = "partial.csv";

/// The rows of a grid, joined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Joined {
    /// The table.
    pub results: PathBuf,
    /// Rows in it.
    pub rows: u64,
    /// Rows without a plan since none exists.
    pub infeasible: u64,
    /// Rows of points that could not be solved.
    pub failed: u64,
}

/// What a merge came to.
#[derive(Debug)]
pub enum Merged {
    /// The results of a grid.
    Grid(Joined),
    /// The front of a search, and the rounds it took.
    Front(Box<FrontSummary>, u32),
    /// The search goes on with another round of so many points.
    Next {
        /// Its number.
        round: u32,
        /// Its points.
        points: u64,
        /// The parts they are in.
        parts: u64,
    },
}

/// Time between two looks for parts that are not there yet.
const LOOK: Duration = Duration::from_millis(500);

/// A table of a part being read.
struct Part {
    reader: Reader<BufReader<File>>,
    /// For each column of the whole table its place in this one.
    places: Vec<Option<usize>>,
    row: StringRecord,
}

impl Part {
    fn cell(&self, at: usize) -> &str {
        self.places.get(at).copied().flatten().and_then(|place| self.row.get(place)).unwrap_or_default()
    }

    /// Reads the next row; whether there is one.
    fn next(&mut self) -> csv::Result<bool> {
        self.reader.read_record(&mut self.row)
    }
}

impl Plan {
    /// Joins the finished parts: row by row in the order of the study, with the columns that `columns` keeps. Parts that are not there
    /// are waited for that long: files of other machines take a while to be seen.
    ///
    /// # Errors
    /// [`PartsError`] when parts are missing or damaged: results of before stay as they are then.
    pub fn merge(&self, columns: &Columns, wait: Duration) -> Result<Merged, PartsError> {
        let round = Round::now(self)?;
        let clock = Instant::now();
        let missing = loop {
            let missing = round.missing(self)?;
            if missing.is_empty() || clock.elapsed() >= wait {
                break missing;
            }
            std::thread::sleep(LOOK);
        };
        if !missing.is_empty() {
            return Err(PartsError::Incomplete {
                path: self.path.clone(),
                missing: missing.len(),
                parts: round.parts,
                which: ranges(&missing),
            });
        }
        match (&self.study.spec.search, round.number) {
            (Some(search), Some(last)) => self.search_on(search, last),
            _ => {
                let _lock = lock(&self.folder, self.study.name())?;
                self.join(&round, TIMES, TIMINGS, &TIMING, |_| Layout::whole(TIMING.len()), &[])?;
                Ok(Merged::Grid(self.join_rows(&round, RESULTS, columns, &[])?))
            }
        }
    }

    /// The rows of the finished parts of a grid alone, in a table of their own.
    ///
    /// # Errors
    /// [`PartsError`] when a part is damaged.
    pub fn partial(&self, columns: &Columns) -> Result<Joined, PartsError> {
        let round = Round::now(self)?;
        self.join_rows(&round, PARTIAL, columns, &round.missing(self)?)
    }

    fn join_rows(&self, round: &Round, to: &str, columns: &Columns, without: &[u64]) -> Result<Joined, PartsError> {
        let header = header(self.study.axis_names());
        let labels =
            || self.study.axes.iter().map(|axis| axis.values.iter().map(|value| value.label.as_str()).collect());
        let layout = |filled: &[bool]| Layout::of(&header, filled, labels(), columns);
        self.join(round, PARTS, to, &header, layout, without)
    }

    /// Joins tables of parts into one. `layout` is told which columns some row fills.
    fn join(
        &self,
        round: &Round,
        from: &str,
        to: &str,
        header: &[&str],
        layout: impl Fn(&[bool]) -> Layout,
        without: &[u64],
    ) -> Result<Joined, PartsError> {
        let mut filled = vec![false; header.len()];
        let mut parts = HashMap::new();
        for part in (0..round.parts).filter(|part| !without.contains(part)) {
            let read = self.part(round, from, part, header)?;
            read.places.iter().zip(&mut filled).for_each(|(place, filled)| *filled |= place.is_some());
            parts.insert(part, read);
        }
        let layout = layout(&filled);
        let damaged = |part: u64, reason: String| {
            let path = self.under(from, "").path(&table(&round.stem(part)));
            PartsError::Damaged { path, part, reason }
        };
        let status = header.iter().position(|name| *name == "status");
        let mut joined = Joined::default();
        let mut wrong = None;
        let stop = || cannot(&self.folder.path(to))(io::Error::other("a part is damaged"));
        let written = self.folder.replace(to, &layout.header(header), |out: &mut Rows<_>| {
            for point in 0..round.count() {
                let number = part_of(point, round.parts);
                let Some(part) = parts.get_mut(&number) else { continue };
                let read = part.next().unwrap_or(false);
                if !read || part.cell(0).parse() != Ok(point) {
                    wrong = Some(damaged(number, format!("the row of point {point} is not where it is due")));
                    return Err(stop());
                }
                out.push(layout.row(|at| part.cell(at)))?;
                joined.rows += 1;
                match status.map(|at| part.cell(at)) {
                    Some(INFEASIBLE) => joined.infeasible += 1,
                    Some(FAILED) => joined.failed += 1,
                    _ => {}
                }
            }
            for (number, part) in &mut parts {
                if part.next().unwrap_or(true) {
                    wrong = Some(damaged(*number, "it has more rows than points".into()));
                    return Err(stop());
                }
            }
            Ok(())
        });
        match wrong {
            Some(wrong) => Err(wrong),
            None => Ok(Joined { results: written?, ..joined }),
        }
    }

    /// Opens the table of a part.
    fn part(&self, round: &Round, from: &str, part: u64, header: &[&str]) -> Result<Part, PartsError> {
        let path = self.under(from, "").path(&table(&round.stem(part)));
        let file = File::open(&path).map_err(cannot(&path))?;
        let mut reader = ReaderBuilder::new().from_reader(BufReader::new(file));
        let found = reader.headers().cloned().unwrap_or_default();
        let places: Vec<Option<usize>> =
            header.iter().map(|name| found.iter().position(|found| found == *name)).collect();
        // The point, and its labels where the table has them.
        let labels = if header == TIMING { 1 } else { 1 + self.study.axes.len() };
        let whole = places.iter().take(labels).all(Option::is_some);
        if !whole || places.iter().flatten().count() != found.len() {
            return Err(PartsError::Damaged { path, part, reason: "its columns are not those of the study".into() });
        }
        Ok(Part { reader, places, row: StringRecord::new() })
    }

    /// Plays a search again with the rows of all rounds: it ends, or asks for more.
    fn search_on(&self, search: &front::SearchSpec, last: u32) -> Result<Merged, PartsError> {
        let mut solved = HashMap::new();
        for number in 0..=last {
            self.read_round(&Round::numbered(self, number)?, &mut solved)?;
        }
        match front::replay(&self.study, search, &solved)? {
            Replayed::Wants(points) => {
                let _lock = lock(&self.folder, self.study.name())?;
                let points = Round::begin(self, last + 1, points)?;
                Ok(Merged::Next { round: last + 1, points, parts: points.min(self.sheet.parts) })
            }
            Replayed::Whole(covered) => {
                let (store, _) = Store::open(&self.path, self.study.name())?;
                let found = front::write(&self.study, search, &covered, solved, store)?;
                Ok(Merged::Front(Box::new(found), last + 1))
            }
        }
    }

    /// The rows of a round that is finished.
    fn read_round(&self, round: &Round, solved: &mut HashMap<u64, Finished>) -> Result<(), PartsError> {
        let header = header(self.study.axis_names());
        let first = 1 + self.study.axes.len();
        let key = TRAILING.iter().position(|(name, _)| *name == "key").map_or(0, |at| first + COLUMNS.len() + at);
        for part in 0..round.parts {
            let damaged = |from: &str, reason: String| PartsError::Damaged {
                path: self.under(from, "").path(&table(&round.stem(part))),
                part,
                reason,
            };
            let mut rows = self.part(round, PARTS, part, &header)?;
            let mut times = self.part(round, TIMES, part, &TIMING)?;
            for point in round.points_of(part) {
                let next = |part: &mut Part, from: &str| match part.next() {
                    Ok(true) if part.cell(0).parse() == Ok(point) => Ok(()),
                    _ => Err(damaged(from, format!("the row of point {point} is not where it is due"))),
                };
                next(&mut rows, PARTS)?;
                next(&mut times, TIMES)?;
                let values: StringRecord = (first..first + COLUMNS.len()).map(|at| rows.cell(at)).collect();
                let solve_s = times.cell(2).parse().unwrap_or(0.0);
                let key = Key::parse(rows.cell(key));
                let row = Solved { values: Arc::new(values), solve_s };
                solved.insert(point, Finished { index: point, key, solved: row, fresh: false });
            }
        }
        Ok(())
    }
}
