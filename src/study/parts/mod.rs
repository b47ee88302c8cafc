//! A study in parts, which processes on any machines of a shared folder finish.
//!
//! Files decide: a part is finished when its table stands under `parts/`, where it gets by a rename, and nothing else says so. Each
//! process writes a journal of its own and reads those of all others of its part, so processes that end at any moment, and several
//! at work on one part, cost time and never a row. Nothing is deleted.
//!
//! A grid is one round of parts. A search of the front has several: what it solves next follows from what was found, so [`Plan::merge`] plays
//! the search again with the rows of all rounds and either ends it or plans the next round.
//!
//! ```text
//! plan.json                 what the folder belongs to, once
//! inputs/                   the files of the study
//! rounds/000.json           points of a round of a search
//! parts/00017.csv           rows of a finished part (003-00017.csv in a search)
//! timings/00017.csv         seconds of its points
//! journal/00017.ATTEMPT     points as they finish, a file each process
//! begun/00017.ATTEMPT       points as they are begun and end
//! ```

mod apart;
mod inputs;
mod merge;
mod round;
mod work;

pub use inputs::{Copied, INPUTS};
pub use merge::{Joined, Merged};
pub use work::{WorkOptions, Worked};

use super::front::{self, Replayed};
use super::grid::Study;
use super::store::{Folder, JOURNAL, StoreError, cannot, lock};
use super::sweep::{MAX_POINTS, StudyError};
use crate::report::manifest::Manifest;
use crate::spec::Problems;
use crate::spec::node::io_reason;
use inputs::Places;
use round::Round;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Most parts of a study.
pub const MOST_PARTS: u64 = 1_000;

/// Name of what a folder of parts belongs to.
pub const PLAN: &str = "plan.json";
const FORMAT: u32 = 2;
const PARTS: &str = "parts";
const TIMES: &str = "timings";
const JOURNALS: &str = "journal";

/// What a folder of parts belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sheet {
    /// Of the folder.
    pub format: u32,
    /// File of the study, from the root, when it was planned.
    pub file: PathBuf,
    /// The copy that is worked with, from this folder; none where it is the file itself.
    pub copy: Option<PathBuf>,
    /// Parts of a round.
    pub parts: u64,
    /// Folders of earlier runs whose points are taken over.
    pub reuse: Vec<PathBuf>,
    /// Program and inputs; those in this folder by their path in it.
    pub of: Manifest,
}

/// Why a study in parts cannot be planned, worked at or merged.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    /// As of a study that is run whole.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// A folder that is none of a planned study.
    #[error("{} cannot be read: {reason}; `flowspace study plan` makes such a folder", path.display())]
    NoPlan {
        /// Its plan.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The folder, the program and the study do not belong together.
    #[error("{}: {what} was {was} when the study was planned and is {is} now; {with}", path.display())]
    Differs {
        /// The folder.
        path: PathBuf,
        /// What differs.
        what: String,
        /// In the folder.
        was: String,
        /// Now.
        is: String,
        /// What can be done.
        with: &'static str,
    },
    /// The folder has another plan.
    #[error("{} holds a plan already, with {what}; name another folder with --out", path.display())]
    Planned {
        /// The folder.
        path: PathBuf,
        /// What is another there.
        what: &'static str,
    },
    /// A file of the study that cannot be copied.
    #[error("{} is not copied into the folder of the run: {reason}; with --no-copy the study's files stay where they are, and every machine must see them there", path.display())]
    Uncopied {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A part that the study does not have.
    #[error("there is no part {part}: the study has {parts} now, 0 to {}", parts - 1)]
    NoPart {
        /// Asked for.
        part: u64,
        /// How many there are.
        parts: u64,
    },
    /// A point that the study does not have.
    #[error("there is no point {point}: the study has {points}, from 0")]
    NoPoint {
        /// Asked for.
        point: u64,
        /// How many there are.
        points: u64,
    },
    /// No process for a point that others ended in the middle of.
    #[error("point {point} ended the processes that were at it, and {} cannot be started to solve it by itself: {reason}", path.display())]
    NoProcess {
        /// The program.
        path: PathBuf,
        /// The point.
        point: u64,
        /// Why.
        reason: String,
    },
    /// Parts are not finished.
    #[error("{missing} of {parts} parts are not finished: {which}; finish each with `flowspace study work {} --part N`", path.display())]
    Incomplete {
        /// The folder.
        path: PathBuf,
        /// How many.
        missing: usize,
        /// All parts.
        parts: u64,
        /// Their numbers.
        which: String,
    },
    /// A finished part that is not as it was written.
    #[error("{}: {reason}; move the file away and finish part {part} again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The part.
        part: u64,
        /// What is wrong.
        reason: String,
    },
    /// Two attempts proved different things of one point.
    #[error(
        "the point of key {key} was solved twice, and both results are proven and differ: {column} is {a} in one and {b} in {}; please report it",
        path.display()
    )]
    Disagree {
        /// Its key.
        key: String,
        /// What differs.
        column: &'static str,
        /// In one attempt.
        a: String,
        /// In the other.
        b: String,
        /// The journal of the other.
        path: PathBuf,
    },
}

impl From<StoreError> for PartsError {
    fn from(error: StoreError) -> Self {
        Self::Study(error.into())
    }
}

impl From<Problems> for PartsError {
    fn from(problems: Problems) -> Self {
        Self::Study(problems.into())
    }
}

/// A planned study.
#[derive(Debug)]
pub struct Plan {
    folder: Folder,
    path: PathBuf,
    /// What it belongs to.
    pub sheet: Sheet,
    /// The study.
    pub study: Study,
    /// What was copied, where it was planned just now.
    pub copied: Option<Copied>,
}

/// How a study is planned.
#[derive(Debug, Clone, Copy)]
pub struct PlanOptions<'a> {
    /// Plan more than [`MAX_POINTS`] points.
    pub yes: bool,
    /// Folders of earlier runs whose points are taken over.
    pub reuse: &'a [PathBuf],
    /// Whether the study's files are copied into the folder.
    pub copy: bool,
}

/// The path from the root, as work may begin in another folder; a name of the catalogue stays one.
fn from_root(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// Plans a study into a folder; planning the same again changes nothing. `describe` says which program and inputs a study is run with.
///
/// # Errors
/// [`PartsError`] when the study is wrong or too large, or the folder holds something else.
pub fn plan(
    file: &Path,
    out: &Path,
    parts: impl FnOnce(&Study) -> u64,
    options: PlanOptions<'_>,
    describe: impl Fn(&Study) -> Manifest,
) -> Result<Plan, PartsError> {
    let file = from_root(file);
    let study = Study::load(&file)?;
    let points = study.count().ok_or(StudyError::Endless)?;
    if points > MAX_POINTS && !options.yes && study.spec.search.is_none() {
        return Err(StudyError::TooMany { points }.into());
    }
    let outlook = study.outlook();
    if !outlook.every.is_empty() {
        return Err(Problems(outlook.every).into());
    }
    if outlook.none_stands {
        return Err(StudyError::NoneStands { points, problems: Problems(outlook.some) }.into());
    }
    let reuse: Vec<PathBuf> = options.reuse.iter().map(|path| from_root(path)).collect();
    for folder in &reuse {
        journals(folder, None)?;
    }
    let parts = parts(&study).clamp(1, MOST_PARTS).min(points.max(1));
    let folder = Folder::new(out, "");
    let _lock = lock(&folder, study.name())?;
    // Of the catalogue nothing is to be copied: it travels in the program.
    let places = Some(Places::of(&study)).filter(|places| options.copy && places.files.contains_key(&file));
    let mut sheet = Sheet { format: FORMAT, file, copy: None, parts, reuse, of: describe(&study) };
    if folder.path(PLAN).exists() {
        let plan = open(out, describe)?;
        same_inputs(out, &plan.sheet.of, &Places::of(&study).renamed(sheet.of, &plan.sheet.of), FILES)?;
        if plan.sheet.copy.is_some() != places.is_some() {
            return Err(PartsError::Planned { path: out.into(), what: "other files (its own copies, or the study's)" });
        }
        let Sheet { parts, reuse, .. } = &plan.sheet;
        return match (*parts == sheet.parts, *reuse == sheet.reuse) {
            (true, true) => Ok(plan),
            (false, _) => Err(PartsError::Planned { path: out.into(), what: "another number of parts" }),
            (true, false) => Err(PartsError::Planned { path: out.into(), what: "other folders to take points from" }),
        };
    }
    for name in [JOURNALS, PARTS, TIMES, apart::BEGUN] {
        Folder::new(&folder.path(name), "").create()?;
    }
    let (study, copied) = match places {
        None => (study, None),
        Some(places) => {
            let (study, copied) = places.copy(&sheet.file, out)?;
            let of = describe(&study).within(out);
            // What was looked at is what was copied.
            same_inputs(out, &places.renamed(sheet.of, &of), &of, FILES)?;
            (sheet.of, sheet.copy) = (of, places.files.get(&sheet.file).cloned());
            (study, Some(copied))
        }
    };
    let plan = Plan { folder, path: out.to_path_buf(), sheet, study, copied };
    if let Some(search) = &plan.study.spec.search
        && let Replayed::Wants(points) = front::replay(&plan.study, search, &HashMap::new())?
    {
        Round::begin(&plan, 0, points)?;
    }
    let text = serde_json::to_string_pretty(&plan.sheet).map_err(|e| cannot(&plan.folder.path(PLAN))(e.into()))?;
    plan.folder.write(PLAN, format!("{text}\n").as_bytes())?;
    Ok(plan)
}

/// Opens the folder of a planned study, if this program and the study's files are those of the plan.
///
/// # Errors
/// [`PartsError`] when it is none, or something has changed since.
pub fn open(path: &Path, describe: impl Fn(&Study) -> Manifest) -> Result<Plan, PartsError> {
    let folder = Folder::new(path, "");
    let file = folder.path(PLAN);
    let bad = |reason: String| PartsError::NoPlan { path: file.clone(), reason };
    let text = fs::read_to_string(&file).map_err(|e| bad(io_reason(&e)))?;
    let sheet: Sheet = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    let same = |what: &str, was: String, is: String, with| match was == is {
        true => Ok(()),
        false => Err(PartsError::Differs { path: path.to_path_buf(), what: what.to_string(), was, is, with }),
    };
    let program = "finish it with the program that planned it, or plan it anew in another folder";
    same("the format of the folder", sheet.format.to_string(), FORMAT.to_string(), program)?;
    if sheet.parts == 0 {
        return Err(bad("it states no parts".into()));
    }
    let (study, is, files) = match &sheet.copy {
        None => {
            let study = Study::load(&sheet.file)?;
            let is = describe(&study);
            (study, is, FILES)
        }
        Some(copy) => {
            let study = Study::load(&path.join(copy))?;
            let is = describe(&study).within(path);
            (study, is, COPIES)
        }
    };
    let was = &sheet.of;
    same("the version of the program", was.version.clone(), is.version.clone(), program)?;
    same("the commit of the program", was.commit.clone(), is.commit.clone(), program)?;
    same("the revision of the model", was.model_revision.to_string(), is.model_revision.to_string(), program)?;
    same("the list of engines", was.engines.join(", "), is.engines.join(", "), program)?;
    same_inputs(path, was, &is, files)?;
    same("the number of points", was.points.to_string(), is.points.to_string(), files)?;
    Ok(Plan { folder, path: path.to_path_buf(), sheet, study, copied: None })
}

/// What can be done where the study's files are others than those that were planned with.
const FILES: &str = "put the study and the files it names back as they were, or plan it anew in another folder (--reuse takes over points that are the same)";
/// The same of their copies.
const COPIES: &str = "the parts are worked at with the copies in this folder: put them back as they were, or plan it anew in another folder (--reuse takes over points that are the same)";

/// Whether inputs are those of before, by their digests.
fn same_inputs(path: &Path, was: &Manifest, is: &Manifest, with: &'static str) -> Result<(), PartsError> {
    let digests = |of: &Manifest| -> BTreeMap<String, String> {
        of.inputs.iter().map(|input| (input.file.clone(), input.blake3.clone())).collect()
    };
    let (before, now) = (digests(was), digests(is));
    for file in before.keys().chain(now.keys()) {
        let digest =
            |of: &BTreeMap<String, String>| of.get(file).map_or("none".to_string(), |d| d.chars().take(16).collect());
        let (was, is) = (digest(&before), digest(&now));
        if was != is {
            let what = format!("the digest of {file}");
            return Err(PartsError::Differs { path: path.to_path_buf(), what, was, is, with });
        }
    }
    Ok(())
}

/// The journals of a folder: those whose names begin so, or all, and that of a run of the whole study.
fn journals(folder: &Path, begin: Option<&str>) -> Result<Vec<PathBuf>, StoreError> {
    let mut found = Vec::new();
    let whole = folder.join(JOURNAL);
    if begin.is_none() && whole.exists() {
        found.push(whole);
    }
    let own = folder.join(JOURNALS);
    match fs::read_dir(&own) {
        Ok(entries) => {
            for entry in entries {
                let entry = entry.map_err(cannot(&own))?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if begin.is_none_or(|begin| name.starts_with(begin)) {
                    found.push(entry.path());
                }
            }
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound && !found.is_empty() => {}
        Err(e) => return Err(cannot(&own)(e)),
    }
    found.sort();
    Ok(found)
}

/// How far a planned study is, from its files alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Progress {
    /// Name of the study.
    pub study: String,
    /// Points of its grid.
    pub points: u64,
    /// The round of a search, from 0.
    pub round: Option<u32>,
    /// Points that a search asked for so far, all rounds together.
    pub asked: Option<u64>,
    /// Parts of the round.
    pub parts: u64,
    /// Parts that are finished.
    pub finished: u64,
    /// Those that are not: how often each was begun, and lines in its journals, those that are cut off or double included.
    pub missing: BTreeMap<u64, Open>,
    /// Whether results were written.
    pub merged: bool,
}

/// A part that is not finished.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Open {
    /// Processes that began it.
    pub attempts: u64,
    /// Lines of their journals.
    pub lines: u64,
    /// Points that processes began and did not end, and how many; those that still run are among them.
    pub within: BTreeMap<u64, u32>,
}

impl Plan {
    fn under(&self, name: &str, ending: &str) -> Folder {
        Folder::new(&self.folder.path(name), ending)
    }

    /// How many parts there are now.
    ///
    /// # Errors
    /// [`PartsError`] when the folder cannot be read.
    pub fn parts(&self) -> Result<u64, PartsError> {
        Ok(Round::now(self)?.parts)
    }

    /// The part of a grid that a point is in.
    pub fn part_of(&self, point: u64) -> u64 {
        round::part_of(point, self.sheet.parts)
    }

    /// The parts that are not finished, ascending.
    ///
    /// # Errors
    /// [`PartsError`] when the folder cannot be read.
    pub fn missing(&self) -> Result<Vec<u64>, PartsError> {
        Round::now(self)?.missing(self)
    }

    /// How far it is.
    ///
    /// # Errors
    /// [`PartsError`] when the folder cannot be read.
    pub fn progress(&self) -> Result<Progress, PartsError> {
        let round = Round::now(self)?;
        let mut missing = BTreeMap::new();
        for part in round.missing(self)? {
            let mut open = Open::default();
            for path in journals(&self.path, Some(&format!("{}.", round.stem(part))))? {
                open.attempts += 1;
                let file = File::open(&path).map_err(cannot(&path))?;
                open.lines += BufReader::new(file).split(b'\n').count() as u64;
            }
            open.within = apart::ends(&self.folder, &round.stem(part))?;
            missing.insert(part, open);
        }
        let asked = match round.number {
            None => None,
            Some(last) => Some((0..=last).map(|n| Round::numbered(self, n).map(|r| r.count())).sum::<Result<_, _>>()?),
        };
        Ok(Progress {
            study: self.study.name().to_string(),
            points: self.sheet.of.points,
            round: round.number,
            asked,
            parts: round.parts,
            finished: round.parts - missing.len() as u64,
            missing,
            merged: self.folder.path(super::store::RESULTS).exists(),
        })
    }
}

/// Ascending numbers as an array of jobs takes them: `3,17,40-52`.
pub fn ranges(numbers: &[u64]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let text = |(first, last): &(u64, u64)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

/// The numbers of `3,17,40-52`, ascending.
///
/// # Errors
/// What is wrong with it.
pub fn numbers(text: &str) -> Result<Vec<u64>, String> {
    let one = |number: &str| {
        let wrong = || format!("expected numbers such as 3,17,40-52, found {text:?}");
        number.trim().parse::<u64>().ok().filter(|n| *n < MOST_PARTS).ok_or_else(wrong)
    };
    let mut found = Vec::new();
    for run in text.split(',') {
        match run.split_once('-') {
            None => found.push(one(run)?),
            Some((first, last)) => found.extend(one(first)?..=one(last)?),
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_ranges() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[3, 17, 40, 41, 42]), "3,17,40-42");
        assert_eq!(numbers("3,40-42,17"), Ok(vec![3, 17, 40, 41, 42]));
        assert_eq!(numbers("5-3"), Ok(Vec::new()));
        assert!(numbers("").is_err() && numbers("1;2").is_err() && numbers("0-99999999999").is_err());
    }
}
