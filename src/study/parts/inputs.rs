//! The files that a study was planned with, copied into its folder: workers on other machines need that folder alone, and what becomes of the files
//! themselves does not matter any more.
//!
//! They lie below `inputs/` as they lay below the lowest folder that no way to any of them leaves, so that references between them hold, those with `..`
//! too. What is named by an absolute path is not reached by such a reference; it stays where it is, and [`Copied::left`] says so.

use super::PartsError;
use crate::report::manifest::{Digest, Manifest, normal};
use crate::spec::catalogue::SCHEME;
use crate::spec::node::io_reason;
use crate::study::Study;
use crate::study::store::Folder;
use crate::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};

/// Folder of the copies in that of a planned study.
pub const INPUTS: &str = "inputs";

/// Most bytes copied.
pub const MOST_BYTES: u64 = 1 << 30;

/// What was copied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// How many files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were not, as they are named by an absolute path.
    pub left: Vec<PathBuf>,
}

/// Where the files of a study go.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The place of each below the folder of a planned study.
    pub files: BTreeMap<PathBuf, PathBuf>,
    /// Folders that references lead through.
    folders: BTreeSet<PathBuf>,
}

/// The way to a file: the folders that are entered, and those of them that it must not lie above.
fn way(path: &Path) -> (BTreeSet<PathBuf>, Vec<PathBuf>) {
    let (mut at, mut entered, mut low) = (PathBuf::new(), BTreeSet::new(), Vec::new());
    let folder = path.parent().unwrap_or(Path::new(""));
    for component in folder.components() {
        if component == Component::ParentDir {
            at.pop();
            low.push(at.clone());
        } else {
            at.push(component);
        }
        entered.insert(at.clone());
    }
    low.push(at);
    (entered, low)
}

fn shared(a: PathBuf, b: &Path) -> PathBuf {
    a.components().zip(b.components()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
}

impl Places {
    /// Of the files of a study; of the catalogue none.
    pub fn of(study: &Study) -> Self {
        let files: Vec<PathBuf> =
            study.files().into_iter().filter(|file| !file.starts_with(SCHEME) && file.is_file()).collect();
        let ways: Vec<_> = files.iter().map(|file| way(file)).collect();
        let Some(root) = ways.iter().flat_map(|(_, low)| low).cloned().reduce(|a, b| shared(a, &b)) else {
            return Self::default();
        };
        let below = |path: &Path| path.strip_prefix(&root).ok().map(|rest| Path::new(INPUTS).join(rest));
        Self {
            folders: ways.iter().flat_map(|(entered, _)| entered).filter_map(|folder| below(folder)).collect(),
            files: files
                .into_iter()
                .filter_map(|file| Some((below(&normal(&file))?, file)))
                .map(|(to, file)| (file, to))
                .collect(),
        }
    }

    /// Inputs under the names of their copies, but for those that `known` has under their own.
    pub fn renamed(&self, mut of: Manifest, known: &Manifest) -> Manifest {
        for input in &mut of.inputs {
            let own = known.inputs.iter().any(|known| known.file == input.file);
            if let Some(place) = self.files.get(Path::new(&input.file)).filter(|_| !own) {
                input.file = place.display().to_string();
            }
        }
        of
    }

    /// Copies the files; the study read from the copies, and what was copied.
    pub fn copy(&self, file: &Path, run: &Path) -> Result<(Study, Copied), PartsError> {
        let mut bytes = 0;
        for from in self.files.keys() {
            bytes += fs::metadata(from).map_err(|e| refused(from, io_reason(&e)))?.len();
        }
        if bytes > MOST_BYTES {
            let [all, most] = [bytes, MOST_BYTES].map(|n| Bytes(n as f64).to_string());
            return Err(refused(file, format!("the study's files have {all} together, more than {most}")));
        }
        for folder in &self.folders {
            Folder::new(&run.join(folder), "").create()?;
        }
        let mut made = BTreeSet::new();
        for (from, to) in &self.files {
            if copy_one(from, &run.join(to))? {
                made.insert(to.clone());
            }
        }
        let Some(place) = self.files.get(file) else {
            return Err(refused(file, "it is no file of its own".into()));
        };
        let study = Study::load(&run.join(place))?;
        // What the copies name is a copy, or lies where it lay since its path is absolute.
        let mut copied = Copied::default();
        let inside = normal(&run.join(INPUTS));
        let mut used = BTreeSet::new();
        for file in study.files().iter().map(|file| normal(file)) {
            match file.strip_prefix(&inside) {
                Ok(place) => {
                    copied.files += 1;
                    copied.bytes += fs::metadata(&file).map_err(|e| refused(&file, io_reason(&e)))?.len();
                    used.insert(Path::new(INPUTS).join(place));
                }
                Err(_) if file.is_file() => copied.left.push(file),
                Err(_) => {}
            }
        }
        for needless in made.difference(&used) {
            let path = run.join(needless);
            fs::remove_file(&path).map_err(|e| refused(&path, io_reason(&e)))?;
        }
        Ok((study, copied))
    }
}

fn refused(path: &Path, reason: String) -> PartsError {
    PartsError::Uncopied { path: path.to_path_buf(), reason }
}

/// Copies a file; whether it was not there. One of the same name stays where it is the same, and is never written over.
fn copy_one(from: &Path, to: &Path) -> Result<bool, PartsError> {
    let digest = |path: &Path| Digest::of(path).map(|digest| digest.blake3);
    let folder = Folder::new(to.parent().unwrap_or(Path::new("")), "");
    folder.create()?;
    let there = to.symlink_metadata().is_ok();
    if !there {
        let name = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let fill = |path: &Path| {
            let mut out = File::create(path)?;
            io::copy(&mut File::open(from)?, &mut out)?;
            out.sync_all()
        };
        folder.put(&name, fill)?;
    }
    if digest(from).is_none() || digest(from) != digest(to) {
        return Err(refused(from, format!("{} is there and another file", to.display())));
    }
    Ok(!there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_followed_as_the_system_follows_them() {
        let (entered, low) = way(Path::new("/a/s/t/../../lib/x.yaml"));
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(entered.into_iter().collect::<Vec<_>>(), paths(&["/", "/a", "/a/lib", "/a/s", "/a/s/t"]));
        assert_eq!(low, paths(&["/a/s", "/a", "/a/lib"]));
        assert_eq!(shared("/a/b/c".into(), Path::new("/a/bc")), Path::new("/a"));
        for (path, plain) in [("/a/./b/../c", "/a/c"), ("../x", "../x"), ("r/../../y", "../y"), ("./z", "z")] {
            assert_eq!(normal(Path::new(path)), Path::new(plain), "{path}");
        }
    }
}
