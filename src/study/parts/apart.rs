//! Points that end their process: what a process is at is on the disk before it begins, so that those after it know in the middle of which points
//! others ended. After two such ends a point is solved in a process of its own; if that one ends too, the point has failed, with the reason, and the rest goes
//! on.
//!
//! Others end for reasons of their own (a node is lost, a job is cancelled), and processes that still run look as if they had ended: neither costs more than a
//! process. What a point came to is the same in either.
//!
//! `begun/00017.ATTEMPT` has a line for each point: `+ 123` when it is begun, `- 123` when it has ended.

use super::{PartsError, Plan};
use crate::report::csv::{COLUMNS, Facts, Outcome, values};
use crate::spec::node::io_reason;
use crate::study::store::{Folder, Key, Solved, StoreError, cannot};
use crate::study::sweep::{Finished, Shared, solver};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Folder of what was begun.
pub(super) const BEGUN: &str = "begun";

/// Ends in the middle of a point after which it gets a process of its own.
const ENDS: u32 = 2;

/// Time between two looks at a process.
const LOOK: Duration = Duration::from_millis(20);

/// How often a process ended in the middle of each point of a part.
pub(super) fn ends(run: &Folder, stem: &str) -> Result<BTreeMap<u64, u32>, StoreError> {
    let path = run.path(BEGUN);
    let mut ends = BTreeMap::new();
    let begin = format!("{stem}.");
    for entry in fs::read_dir(&path).map_err(cannot(&path))? {
        let entry = entry.map_err(cannot(&path))?;
        if !entry.file_name().to_string_lossy().starts_with(&begin) {
            continue;
        }
        let bytes = fs::read(entry.path()).map_err(cannot(&entry.path()))?;
        let mut open = BTreeSet::new();
        // A line that was cut off says nothing.
        for line in String::from_utf8_lossy(&bytes).split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            match line.split_once(' ').and_then(|(sign, point)| Some((sign, point.parse::<u64>().ok()?))) {
                Some(("+", point)) => open.insert(point),
                Some(("-", point)) => open.remove(&point),
                _ => false,
            };
        }
        open.into_iter().for_each(|point| *ends.entry(point).or_default() += 1);
    }
    Ok(ends)
}

/// What keeps the points of a part apart.
pub(super) struct Apart {
    run: PathBuf,
    part: u64,
    /// The program that solves a point by itself; where there is none points are solved here.
    program: Option<PathBuf>,
    ends: BTreeMap<u64, u32>,
    /// Where the answer of a process goes, but for the point.
    answers: PathBuf,
    begun: Mutex<Begun>,
    stop: Arc<AtomicBool>,
}

struct Begun {
    path: PathBuf,
    file: File,
    open: BTreeSet<u64>,
    /// The first thing that went wrong: the file cannot be written, or no process started.
    error: Option<PartsError>,
}

impl Begun {
    fn note(&mut self, sign: &str, point: u64) {
        if let Err(error) = self.file.write_all(format!("{sign} {point}\n").as_bytes()) {
            let error = cannot(&self.path)(error).into();
            self.error.get_or_insert(error);
        }
    }
}

/// What a process that solves one point answers.
#[derive(Serialize, Deserialize)]
struct Answer {
    key: Option<String>,
    /// Values of the columns and seconds; none before it is solved.
    row: Option<(Vec<String>, f64)>,
}

impl Apart {
    /// Of one process at a part.
    pub fn new(
        run: &Folder,
        of: &Path,
        (part, stem, attempt): (u64, &str, &str),
        program: Option<PathBuf>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, StoreError> {
        let folder = Folder::new(&run.path(BEGUN), "");
        let ends = ends(run, stem)?;
        let path = folder.path(&format!("{stem}.{attempt}"));
        let file = OpenOptions::new().create_new(true).append(true).open(&path).map_err(cannot(&path))?;
        let answers = folder.path(&format!(".{stem}.{attempt}"));
        let begun = Mutex::new(Begun { path, file, open: BTreeSet::new(), error: None });
        Ok(Self { run: of.to_path_buf(), part, program, ends, answers, begun, stop })
    }

    /// Points in the order in which they are begun: those in whose middle processes ended come last.
    pub fn order(&self, points: &mut [u64]) {
        points.sort_by_key(|point| (self.ends.get(point).copied().unwrap_or(0), *point));
    }

    fn begun(&self) -> MutexGuard<'_, Begun> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finishes a point, here or in a process of its own; not where work stops, or no process can be started.
    pub fn finish(&self, shared: &Shared, point: u64) -> Option<Finished> {
        if let Some(program) = self.program.as_ref().filter(|_| self.ends.get(&point).is_some_and(|ends| *ends >= ENDS))
        {
            return self.alone(program, point).unwrap_or_else(|error| {
                let failed = PartsError::NoProcess { path: program.clone(), point, reason: io_reason(&error) };
                self.begun().error.get_or_insert(failed);
                None
            });
        }
        {
            let mut begun = self.begun();
            begun.open.insert(point);
            begun.note("+", point);
        }
        let finished = shared.finish(point);
        let mut begun = self.begun();
        begun.open.remove(&point);
        begun.note("-", point);
        Some(finished)
    }

    /// Says of the points that are still under way that nothing ended in their middle: this process leaves them.
    ///
    /// # Errors
    /// [`PartsError`] where what was begun could not be written, or a process not be started.
    pub fn leave(&self) -> Result<(), PartsError> {
        let mut begun = self.begun();
        for point in std::mem::take(&mut begun.open) {
            begun.note("-", point);
        }
        begun.error.take().map_or(Ok(()), Err)
    }

    /// A point in a process of its own, which ends when this one does.
    fn alone(&self, program: &Path, point: u64) -> io::Result<Option<Finished>> {
        let mut answer = self.answers.clone().into_os_string();
        answer.push(format!(".{point}"));
        let answer = PathBuf::from(answer);
        let mut child = Command::new(program)
            .args(["study", "work"])
            .arg(&self.run)
            .args(["--part", &self.part.to_string(), "--point", &point.to_string(), "--into"])
            .arg(&answer)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let ended = self.wait(&mut child);
        let found = fs::read(&answer).ok().and_then(|bytes| serde_json::from_slice::<Answer>(&bytes).ok());
        let _ = fs::remove_file(&answer);
        let Some((status, said)) = ended? else { return Ok(None) };
        let (key, row) = found.map_or((None, None), |found| (found.key, found.row));
        let finished =
            |solved| Finished { index: point, key: key.and_then(|key| Key::parse(&key)), solved, fresh: true };
        if let Some((row, solve_s)) = row.filter(|(row, _)| row.len() == COLUMNS.len()) {
            return Ok(Some(finished(Solved { values: Arc::new(row.into()), solve_s })));
        }
        let ends = self.ends.get(&point).copied().unwrap_or(0);
        let said = said.lines().next_back().map(|line| format!(": {line}")).unwrap_or_default();
        let outcome = Outcome::Failed(format!(
            "{ends} processes ended in the middle of this point, and one that had nothing else to do {}{said}",
            how(status)
        ));
        let row = values(&Facts { workload: None, system: None, fitted: None, outcome: &outcome });
        Ok(Some(finished(Solved { values: row.into(), solve_s: 0.0 })))
    }

    /// How a process ended, and the end of what it said; `None` where this one is to stop, which ends it.
    fn wait(&self, child: &mut Child) -> io::Result<Option<(ExitStatus, String)>> {
        // Read meanwhile: a pipe that is full would hold it up.
        let said = child.stderr.take().map(|from| std::thread::spawn(move || last_of(from)));
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if self.stop.load(Ordering::Relaxed) {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            std::thread::sleep(LOOK);
        };
        Ok(Some((status, said.and_then(|said| said.join().ok()).unwrap_or_default())))
    }
}

/// Bytes kept of what a process said.
const MOST_SAID: usize = 4096;

/// The last of what a process says, until its end.
fn last_of(mut from: impl Read) -> String {
    let (mut kept, mut bytes) = (Vec::new(), [0; MOST_SAID]);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        kept.extend_from_slice(bytes.get(..count).unwrap_or_default());
        kept.drain(..kept.len().saturating_sub(MOST_SAID));
    }
    String::from_utf8_lossy(&kept).trim_end().to_string()
}

/// How a process ended, in words.
fn how(status: ExitStatus) -> String {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt as _;
        if let Some(signal) = status.signal() {
            let name = match signal {
                4 => " (SIGILL)",
                6 => " (SIGABRT: it gave up, as when there is no more memory)",
                7 => " (SIGBUS)",
                8 => " (SIGFPE)",
                9 => " (SIGKILL: as the system does when memory runs out)",
                11 => " (SIGSEGV)",
                15 => " (SIGTERM)",
                _ => "",
            };
            return format!("was ended by signal {signal}{name}");
        }
    }
    status.code().map_or("ended".to_string(), |code| format!("ended with exit code {code}"))
}

impl Plan {
    /// Solves one point and writes its row into a file, for a process that waits for it; ends when that one does.
    ///
    /// # Errors
    /// [`PartsError`] when there is no such point, or the file cannot be written.
    pub fn work_alone(self, point: u64, into: &Path) -> Result<(), PartsError> {
        if point >= self.sheet.of.points {
            return Err(PartsError::NoPoint { point, points: self.sheet.of.points });
        }
        // Whoever waits holds the other end of standard input.
        std::thread::spawn(|| {
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            std::process::exit(1);
        });
        let name = into.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let folder = Folder::new(into.parent().unwrap_or(Path::new("")), "");
        let put = |answer: &Answer| -> Result<(), PartsError> {
            let text = serde_json::to_vec(answer).map_err(|e| cannot(into)(e.into()))?;
            Ok(folder.write(&name, &text).map(|_| ())?)
        };
        // The key first: should this process end, it is known whose row it would have been.
        let key = self.study.point(point).ok().and_then(|point| Key::of(&point).ok()).map(|key| key.to_string());
        put(&Answer { key, row: None })?;
        let shared = Shared::new(self.study, solver(), HashMap::new(), Arc::default());
        let Finished { key, solved, .. } = shared.finish(point);
        let row = Some((solved.values.iter().map(str::to_string).collect(), solved.solve_s));
        put(&Answer { key: key.map(|key| key.to_string()), row })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_in_the_middle_are_counted_by_attempt() {
        let path = std::env::temp_dir().join(format!("flowspace-begun-{}", std::process::id()));
        let run = Folder::new(&path, "");
        fs::create_dir_all(path.join(BEGUN)).unwrap();
        let write = |name: &str, text: &str| fs::write(path.join(BEGUN).join(name), text).unwrap();
        write("00003.1-a", "+ 7\n+ 9\n- 7\n");
        write("00003.2-b", "+ 9\n+ 12\n- 9\n+ 9\n+ 1");
        write("00003.3-c", "+ 5\n- 5\n? 8\nnoise\n");
        write("00004.1-a", "+ 9\n");
        assert_eq!(ends(&run, "00003").unwrap(), BTreeMap::from([(9, 2), (12, 1)]));
        let apart = Apart::new(&run, &path, (3, "00003", "4-d"), None, Arc::default()).unwrap();
        let mut points = [5, 7, 9, 12, 20];
        apart.order(&mut points);
        assert_eq!(points, [5, 7, 20, 12, 9]);
        // What a process leaves by itself is no end.
        apart.begun().open.insert(20);
        apart.begun().note("+", 20);
        assert_eq!(ends(&run, "00003").unwrap().get(&20), Some(&1));
        apart.leave().unwrap();
        assert_eq!(ends(&run, "00003").unwrap().get(&20), None);
        fs::remove_dir_all(&path).unwrap();
    }
}
