//! What a study was run with: `manifest.json` beside its results. Everything but the date follows from the program and its inputs.
//!
//! It names the files that were written by their digests, so that a table that was changed afterwards is not taken for the one that was proven.

use super::table::{RESULTS, TableError};
use crate::spec::catalogue;
use crate::spec::node::io_reason;
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Its name.
pub const MANIFEST: &str = "manifest.json";

/// A file and what was in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// Its path as the study names it, or its name in the output folder.
    pub file: String,
    /// BLAKE3 of its bytes, 64 hexadecimal digits.
    pub blake3: String,
}

/// What a study was run with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Name of the study.
    pub study: String,
    /// The question it answers.
    pub question: Option<String>,
    /// Where its composition comes from.
    pub source: Option<String>,
    /// Its file, as it was named; of the catalogue by `catalogue:`.
    pub file: String,
    /// Points of its grid.
    pub points: u64,
    /// Version of this program.
    pub version: String,
    /// The commit it was built from.
    pub commit: String,
    /// What proves.
    pub engines: Vec<String>,
    /// Revision of the model: raised whenever the same inputs give other numbers.
    pub model_revision: u32,
    /// When the run ended: UTC, `2026-01-31T23:59:59Z`.
    pub ended: String,
    /// The files it was run from, those of the catalogue by `catalogue:`.
    pub inputs: Vec<Digest>,
    /// The tables it wrote.
    pub outputs: Vec<Digest>,
}

impl Digest {
    /// Of a file on disk or in the catalogue; `None` where it cannot be read.
    pub fn of(path: &Path) -> Option<Self> {
        let mut hasher = blake3::Hasher::new();
        match catalogue::text(path) {
            Some((_, text)) => hasher.update(text.as_bytes()),
            None => hasher.update_reader(std::fs::File::open(path).ok()?).ok()?,
        };
        Some(Self { file: path.display().to_string(), blake3: hasher.finalize().to_string() })
    }

    /// Of a file in `folder`, under its name there.
    pub fn within(folder: &Path, name: &str) -> Option<Self> {
        Self::of(&folder.join(name)).map(|digest| Self { file: name.to_string(), ..digest })
    }
}

impl Manifest {
    /// Reads the one beside a table; `None` where there is none.
    ///
    /// # Errors
    /// A text where it is none.
    pub fn beside(table: &Path) -> Result<Option<Self>, TableError> {
        let path = folder(table).join(MANIFEST);
        let fail = |reason: String| TableError::Read { path: path.clone(), reason };
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| fail(e.to_string())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(fail(io_reason(&e))),
        }
    }

    /// The same, with the inputs that lie in a folder named as from there: a planned study carries its inputs with it.
    #[must_use]
    pub fn within(mut self, folder: &Path) -> Self {
        let folder = normal(folder);
        let inside = |file: &str| {
            let path = normal(Path::new(file));
            // From here every relative path is inside.
            let inside = folder.as_os_str().is_empty() && path.is_relative() && !path.starts_with("..");
            let rest = if inside { Some(path.as_path()) } else { path.strip_prefix(&folder).ok() };
            rest.map_or(file.to_string(), |rest| rest.display().to_string())
        };
        self.file = inside(&self.file);
        self.inputs.iter_mut().for_each(|input| input.file = inside(&input.file));
        self.inputs.sort_by(|a, b| a.file.cmp(&b.file));
        self
    }

    /// Whether the file of this name in `folder` is still the one that was written.
    pub fn vouches(&self, folder: &Path, name: &str) -> bool {
        let written = self.outputs.iter().find(|output| output.file == name);
        written.is_some_and(|written| Digest::within(folder, name).as_ref() == Some(written))
    }

    /// Whether the table is still the one that was written.
    pub fn is_of(&self, table: &Path) -> bool {
        table.file_name().is_some_and(|name| name == RESULTS) && self.vouches(&folder(table), RESULTS)
    }
}

/// A path without `.`, and without `..` but at its beginning.
pub fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::Normal(_))) => {
                out.pop();
            }
            // Above the root is the root.
            Component::ParentDir if out.has_root() => {}
            other => out.push(other),
        }
    }
    out
}

/// The folder of a file.
pub fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// The present moment in UTC, `2026-01-31T23:59:59Z`.
pub fn now() -> String {
    utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Seconds since the beginning of 1970 as a date of the Gregorian calendar. Years begin in March, so that the leap day is a year's last;
/// 400 years have 146,097 days.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let known = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, text) in known {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn files_are_known_by_what_is_in_them() {
        let folder = std::env::temp_dir().join(format!("flowspace-manifest-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let table = folder.join(RESULTS);
        std::fs::write(&table, "a\n").unwrap();
        let manifest = Manifest {
            study: "s".into(),
            question: None,
            source: None,
            file: "s.yaml".into(),
            points: 1,
            version: "1".into(),
            commit: "c".into(),
            engines: vec!["e".into()],
            model_revision: 1,
            ended: now(),
            inputs: vec![Digest::of(Path::new("catalogue:systems/chips/h100.yaml")).unwrap()],
            outputs: vec![Digest::within(&folder, RESULTS).unwrap()],
        };
        assert_eq!(Manifest::beside(&table).unwrap(), None);
        std::fs::write(folder.join(MANIFEST), serde_json::to_string(&manifest).unwrap()).unwrap();
        assert_eq!(Manifest::beside(&table).unwrap().as_ref(), Some(&manifest));
        assert!(manifest.is_of(&table) && !manifest.vouches(&folder, "front.json"));
        std::fs::write(&table, "b\n").unwrap();
        assert!(!manifest.is_of(&table));
        std::fs::write(folder.join(MANIFEST), "{").unwrap();
        assert!(Manifest::beside(&table).unwrap_err().to_string().contains(MANIFEST));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
