//! What a study keeps on disk, and how it survives being killed.
//!
//! `journal.jsonl` gets a line as each point finishes: its key, its values, and a checksum. The key is a hash of all
//! that the values depend on, so a line is good for any study that contains the same point, and a changed chip number
//! makes lines useless rather than wrong. Lines that are cut off or do not match their checksum are passed over.
//! `results.csv` is written in study order from the same values, so its bytes do not depend on threads or
//! interruptions. Wall-clock figures are in `timings.csv` alone.

use super::grid::Point;
use crate::report::csv::{COLUMNS, FAILED, LEADING, TRAILING};
use crate::spec::node::io_reason;
use crate::workload::Workload;
use csv::StringRecord;
use serde::{Serialize, Serializer};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Raised whenever the model computes something else from the same inputs, so that journals of before are not used.
pub const MODEL_REVISION: u32 = 39;

/// Name of the results.
pub use crate::report::table::RESULTS;
/// Name of the wall-clock figures.
pub const TIMINGS: &str = "timings.csv";
/// Name of the journal.
pub const JOURNAL: &str = "journal.jsonl";
const LOCK: &str = ".lock";

/// A hash of everything that a row depends on: the workload, the system, the solve settings, the version of this
/// program and the revision of its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; 16]);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What the key of a point hashes first: its workload. Points that share one share this.
#[derive(Debug, Clone, Default)]
pub struct KeyStart(blake3::Hasher);

impl KeyStart {
    /// Of a workload.
    ///
    /// # Errors
    /// A text when the workload cannot be written as JSON (it always can).
    pub fn of(workload: &Workload) -> Result<Self, String> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"{\"workload\":");
        hasher.update(&serde_json::to_vec(workload).map_err(|e| e.to_string())?);
        Ok(Self(hasher))
    }
}

impl PartialEq for KeyStart {
    fn eq(&self, other: &Self) -> bool {
        self.0.finalize() == other.0.finalize()
    }
}

impl Key {
    /// The key of a point.
    ///
    /// # Errors
    /// A text when the point cannot be written as JSON (it always can).
    pub fn of(point: &Point) -> Result<Self, String> {
        // The workload comes first, as the points that have it share that part of the hash.
        let text = |value: Result<String, serde_json::Error>| value.map_err(|e| e.to_string());
        let language = match &point.language {
            Some(model) => format!(",\"language\":{}", text(serde_json::to_string(model))?),
            None => String::new(),
        };
        let actors = match &point.actors {
            Some(graph) => format!(",\"actors\":{}", text(serde_json::to_string(graph.as_ref()))?),
            None => String::new(),
        };
        let content = format!(
            ",\"system\":{},\"solve\":{},\"version\":{:?},\"model\":{MODEL_REVISION}{language}{actors}}}",
            text(serde_json::to_string(&point.system))?,
            text(serde_json::to_string(&point.solve))?,
            env!("CARGO_PKG_VERSION"),
        );
        let hash = point.key_start.0.clone().update(content.as_bytes()).finalize();
        let mut key = [0; 16];
        key.iter_mut().zip(hash.as_bytes()).for_each(|(to, from)| *to = *from);
        Ok(Self(key))
    }

    /// The key of a mean of points: of their keys, and of how they are weighted.
    pub(super) fn of_mix(keys: &[Self], weights: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        for key in keys {
            hasher.update(&key.0);
        }
        let hash = hasher.update(weights.as_bytes()).finalize();
        let mut key = [0; 16];
        key.iter_mut().zip(hash.as_bytes()).for_each(|(to, from)| *to = *from);
        Self(key)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut key = [0; 16];
        let digits = text.as_bytes();
        if digits.len() != 2 * key.len() {
            return None;
        }
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(key))
    }
}

/// The result of a point: the values of [`COLUMNS`], and the seconds it took.
#[derive(Debug, Clone, PartialEq)]
pub struct Solved {
    /// Values of [`COLUMNS`].
    pub values: Arc<StringRecord>,
    /// Wall-clock seconds of its search.
    pub solve_s: f64,
}

impl Solved {
    /// The value of a column.
    pub fn get(&self, column: &str) -> &str {
        Self::position(column).and_then(|i| self.values.get(i)).unwrap_or_default()
    }

    /// Where a column stands in [`Solved::values`].
    pub fn position(column: &str) -> Option<usize> {
        COLUMNS.iter().position(|c| c.name == column)
    }
}

/// Why the output folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Something cannot be read or written.
    #[error("cannot write {}: {}", path.display(), io_reason(source))]
    Write {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another run is at work in the folder.
    #[error("{} is in use by another run; wait for it to end, or name another folder with --out", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds the results of another study.
    #[error("{} holds the results of the study {owner:?}; name another folder with --out", path.display())]
    Other {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: String,
    },
}

/// A folder that tables are written into: each beside its old one under a name of this process, then put in its place at once.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    /// Ends the names of files that are not whole yet, so that two processes do not write the same one.
    unfinished: String,
}

impl Folder {
    /// A folder that one process at a time writes into, or several that have each an ending of their own.
    pub fn new(path: &Path, ending: &str) -> Self {
        Self { path: path.to_path_buf(), unfinished: format!("{ending}.new") }
    }

    /// The path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Creates the folder and those above it.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be.
    pub fn create(&self) -> Result<(), StoreError> {
        if self.path.symlink_metadata().is_ok() && !self.path.is_dir() {
            return Err(cannot(&self.path)(io::Error::other("it is there, but it is no folder")));
        }
        fs::create_dir_all(&self.path).map_err(cannot(&self.path))
    }

    /// Starts a CSV file that grows row by row.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be written.
    pub fn rows(&self, name: &str, header: &[&str]) -> Result<Rows<BufWriter<File>>, StoreError> {
        let path = self.path(name);
        let file = File::create(&path).map_err(cannot(&path))?;
        let mut rows = Rows::new(BufWriter::new(file), path, header)?;
        rows.flush()?;
        Ok(rows)
    }

    /// Writes a whole file beside the old one and puts it in its place at once.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be written; nothing is left of it then.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf, StoreError> {
        self.put(name, |path| {
            let mut file = File::create(path)?;
            file.write_all(content)?;
            file.sync_all()
        })
    }

    /// Fills a file beside the old one and puts it in its place at once.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be written; nothing is left of it then.
    pub fn put(&self, name: &str, fill: impl FnOnce(&Path) -> io::Result<()>) -> Result<PathBuf, StoreError> {
        let (temporary, path) = (self.path(&self.temporary(name)), self.path(name));
        let written = fill(&temporary).and_then(|()| fs::rename(&temporary, &path)).and_then(|()| self.sync());
        written.map_err(|source| {
            let _ = fs::remove_file(&temporary);
            cannot(&path)(source)
        })?;
        Ok(path)
    }

    /// Writes a whole CSV file beside the old one and puts it in its place at once.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be written.
    pub fn replace(
        &self,
        name: &str,
        header: &[&str],
        fill: impl FnOnce(&mut Rows<BufWriter<File>>) -> Result<(), StoreError>,
    ) -> Result<PathBuf, StoreError> {
        let temporary = self.temporary(name);
        let mut rows = self.rows(&temporary, header)?;
        let filled = fill(&mut rows).and_then(|()| rows.finish());
        let path = self.path(name);
        let placed = filled.and_then(|_| fs::rename(self.path(&temporary), &path).map_err(cannot(&path)));
        if placed.is_err() {
            let _ = fs::remove_file(self.path(&temporary));
        }
        placed.map(|()| path)
    }

    fn temporary(&self, name: &str) -> String {
        format!(".{name}.{}", self.unfinished)
    }

    /// A name in a folder is on the disk when the folder is.
    fn sync(&self) -> io::Result<()> {
        if cfg!(unix) { File::open(&self.path)?.sync_all() } else { Ok(()) }
    }
}

/// The error of a file that cannot be written.
pub(super) fn cannot(path: &Path) -> impl Fn(io::Error) -> StoreError {
    let path = path.to_path_buf();
    move |source| StoreError::Write { path: path.clone(), source }
}

/// A journal being written, by one process alone.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Lines that are not in the file yet.
    lines: String,
}

impl Journal {
    /// Opens a journal to go on with it, and reads what it has: results by key, and how many lines say nothing that can be used.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read or written.
    pub fn resume(path: PathBuf) -> Result<(Self, HashMap<Key, Solved>, u64), StoreError> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(&path).map_err(cannot(&path))?;
        let mut known = HashMap::new();
        let kept = |key, solved| {
            known.insert(key, solved);
        };
        let damaged = read_journal(&file, kept).map_err(cannot(&path))?;
        end_last_line(&mut file).map_err(cannot(&path))?;
        Ok((Self { path, file, lines: String::new() }, known, damaged))
    }

    /// Begins a journal that is not there yet.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be written, or is there.
    pub fn begin(path: PathBuf) -> Result<Self, StoreError> {
        let file = OpenOptions::new().create_new(true).append(true).open(&path).map_err(cannot(&path))?;
        Ok(Self { path, file, lines: String::new() })
    }

    /// Adds a finished point to what [`Journal::write_down`] appends. Points that failed are left out: the next run tries them again.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be put in words.
    pub fn note(&mut self, key: Key, solved: &Solved) -> Result<(), StoreError> {
        if solved.get("status") == FAILED {
            return Ok(());
        }
        let body = Body { key: key.to_string(), solve_s: solved.solve_s, values: Values(&solved.values) };
        let body = serde_json::to_string(&body).map_err(|e| cannot(&self.path)(e.into()))?;
        [PREFIX, &checksum(&body), MIDDLE, &body, SUFFIX, "\n"].into_iter().for_each(|part| self.lines.push_str(part));
        Ok(())
    }

    /// Appends what was noted to the file, in one write: a kill leaves at most one line cut off.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be written.
    pub fn write_down(&mut self) -> Result<(), StoreError> {
        let written = self.file.write_all(self.lines.as_bytes());
        self.lines.clear();
        written.map_err(cannot(&self.path))
    }

    /// Waits until what was written is on the disk.
    ///
    /// # Errors
    /// [`StoreError`] when it does not get there.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.write_down()?;
        self.file.sync_data().map_err(cannot(&self.path))
    }
}

/// An output folder, locked for one run.
#[derive(Debug)]
pub struct Store {
    /// Where its tables are.
    pub folder: Folder,
    /// What is finished.
    pub journal: Journal,
    /// What is amiss with it, for the user: points that were solved once are solved anew.
    pub notes: Vec<String>,
    /// Held for the life of the run; the operating system lets go of it however the run ends.
    _lock: File,
}

impl Store {
    /// Opens the folder of a study, creating it where needed, and reads its journal.
    ///
    /// # Errors
    /// [`StoreError`] when the folder cannot be written, another run is at work in it, or it is another study's.
    pub fn open(path: &Path, study: &str) -> Result<(Self, HashMap<Key, Solved>), StoreError> {
        let folder = Folder::new(path, "");
        let lock = lock(&folder, study)?;
        let results = folder.path(RESULTS).exists();
        let (journal, known, damaged) = Journal::resume(folder.path(JOURNAL))?;
        let path = journal.path.display();
        let mut notes = Vec::new();
        if damaged > 0 {
            notes.push(format!(
                "{path}: {damaged} lines are damaged, cut off or of another version, and were passed over: their points were solved anew"
            ));
        } else if results && known.is_empty() {
            notes.push(format!("{path} had no points, though {RESULTS} lies beside it: all points were solved anew"));
        }
        Ok((Self { folder, journal, notes, _lock: lock }, known))
    }
}

/// Creates a folder, takes it for a study, and locks it until what is returned is dropped.
///
/// # Errors
/// [`StoreError`] when it cannot be written, another run is at work in it, or it is another study's.
pub(super) fn lock(folder: &Folder, study: &str) -> Result<File, StoreError> {
    folder.create()?;
    let path = folder.path(LOCK);
    let lock = OpenOptions::new().create(true).append(true).open(&path).map_err(cannot(&path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(StoreError::InUse { path: folder.path.clone() }),
        // A file system without locks: then one run at a time is up to the user.
        Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => {}
        Err(TryLockError::Error(e)) => return Err(cannot(&path)(e)),
    }
    // The lock says whose the folder is.
    let owner = fs::read_to_string(&path).unwrap_or_default();
    match owner.lines().next().filter(|owner| !owner.is_empty()) {
        Some(owner) if owner != study => Err(StoreError::Other { path: folder.path.clone(), owner: owner.into() }),
        Some(_) => Ok(lock),
        None => writeln!(&lock, "{study}").map_err(cannot(&path)).map(|()| lock),
    }
}

/// A CSV file being written.
#[derive(Debug)]
pub struct Rows<W: Write> {
    writer: csv::Writer<W>,
    path: PathBuf,
}

impl<W: Write> Rows<W> {
    /// A table that begins with its header; `path` is for messages.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be written.
    pub fn new(to: W, path: PathBuf, header: &[&str]) -> Result<Self, StoreError> {
        let mut rows = Self { writer: csv::Writer::from_writer(to), path };
        rows.push(header.iter().copied())?;
        Ok(rows)
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be written.
    pub fn push<'f>(&mut self, fields: impl IntoIterator<Item = &'f str>) -> Result<(), StoreError> {
        self.writer.write_record(fields).map_err(|e| cannot(&self.path)(io::Error::other(e)))
    }

    /// Hands what was added to the operating system.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be written.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.writer.flush().map_err(cannot(&self.path))
    }
}

impl Rows<BufWriter<File>> {
    /// Ends the file, so that it is on the disk: before it takes another's place, or when it is whole.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be written.
    pub fn finish(self) -> Result<PathBuf, StoreError> {
        let Self { writer, path } = self;
        let file = writer.into_inner().map_err(|e| io::Error::other(e.to_string()));
        let file = file.and_then(|buffered| buffered.into_inner().map_err(io::IntoInnerError::into_error));
        match file.and_then(|file| file.sync_all()) {
            Ok(()) => Ok(path),
            Err(source) => Err(cannot(&path)(source)),
        }
    }
}

/// The header of the results of a study with these axes.
pub fn header<'a>(axes: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    std::iter::once(LEADING.0)
        .chain(axes)
        .chain(COLUMNS.iter().map(|c| c.name))
        .chain(TRAILING.iter().map(|(name, _)| *name))
        .collect()
}

/// What a line of the journal says, under its checksum.
#[derive(Serialize)]
struct Body<'a> {
    key: String,
    solve_s: f64,
    values: Values<'a>,
}

/// Values by column.
struct Values<'a>(&'a StringRecord);

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(COLUMNS.iter().map(|c| c.name).zip(self.0.iter()))
    }
}

const PREFIX: &str = "{\"sum\":\"";
const MIDDLE: &str = "\",\"body\":";
const SUFFIX: &str = "}";

fn checksum(body: &str) -> String {
    blake3::hash(body.as_bytes()).to_hex().chars().take(32).collect()
}

/// The whole lines of a journal, one after the other; how many others there are, but for a last one that was cut off.
pub(super) fn read_journal(file: &File, mut each: impl FnMut(Key, Solved)) -> io::Result<u64> {
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(0))?;
    let mut line = Vec::new();
    let mut damaged = 0;
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(damaged);
        }
        match std::str::from_utf8(&line).ok().and_then(read_line) {
            Some((key, solved)) => each(key, solved),
            None => damaged += u64::from(line.ends_with(b"\n")),
        }
    }
}

/// A line of the journal, if it is whole, matches its checksum, and has exactly the columns of this version.
fn read_line(line: &str) -> Option<(Key, Solved)> {
    let (sum, rest) = line.strip_prefix(PREFIX)?.split_once(MIDDLE)?;
    let body = rest.strip_suffix('\n')?.strip_suffix(SUFFIX)?;
    if checksum(body) != sum {
        return None;
    }
    let body: Json = serde_json::from_str(body).ok()?;
    let key = Key::parse(body.get("key")?.as_str()?)?;
    let solve_s = body.get("solve_s")?.as_f64()?;
    let values = body.get("values")?.as_object()?;
    if values.len() != COLUMNS.len() {
        return None;
    }
    let values: Option<StringRecord> =
        COLUMNS.iter().map(|c| values.get(c.name).and_then(Json::as_str)).collect::<Option<Vec<_>>>().map(Into::into);
    Some((key, Solved { values: Arc::new(values?), solve_s }))
}

/// A kill may have cut off the last line; what is appended must not continue it.
fn end_last_line(journal: &mut File) -> io::Result<()> {
    if journal.seek(SeekFrom::End(0))? == 0 {
        return Ok(());
    }
    journal.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    journal.read_exact(&mut last)?;
    if last != *b"\n" {
        journal.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back() {
        let key = Key([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 254, 255]);
        assert_eq!(Key::parse(&key.to_string()), Some(key));
        assert_eq!(Key::parse("zz"), None);
        assert_eq!(Key::parse(&"é".repeat(16)), None);
    }

    #[test]
    fn damaged_lines_are_passed_over() {
        let body = "{\"key\":\"00\"}";
        let good = format!("{PREFIX}{}{MIDDLE}{body}{SUFFIX}\n", checksum(body));
        assert!(read_line(&good).is_none(), "a key of the wrong length");
        assert!(read_line(&good[..good.len() - 3]).is_none());
        assert!(read_line(&good.replace("00", "01")).is_none());
        assert!(read_line("").is_none());
        assert!(read_line("{}\n").is_none());
    }
}
