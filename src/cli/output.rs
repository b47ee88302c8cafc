//! What commands write, by one rule: a folder that is named is made where it is missing, the folder of a file that is named must be there. No
//! output lies over an input or over another output. All of it is looked at before a command begins its work.

use super::Failure;
use crate::spec::{Node, node::io_reason};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn refused(path: &Path, why: &str) -> Failure {
    Failure::input(format!("cannot write {:?}: {why}", path.display().to_string()))
}

/// Fails where one of the files that are to be written cannot be, is one of `inputs`, or is another of them.
///
/// # Errors
/// [`Failure`] for the first of them.
pub(super) fn check<'p>(
    outputs: impl IntoIterator<Item = &'p PathBuf>,
    inputs: impl IntoIterator<Item = PathBuf>,
) -> Result<(), Failure> {
    let inputs: BTreeSet<PathBuf> = inputs.into_iter().filter_map(|input| input.canonicalize().ok()).collect();
    let mut taken = BTreeSet::new();
    for path in outputs {
        if path.is_dir() {
            return Err(refused(path, "it is a folder"));
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            return Err(refused(path, &format!("there is no folder {:?}", folder.display().to_string())));
        }
        // A link counts as what it leads to; what is not there yet lies in its folder.
        let in_folder = || Some(folder.canonicalize().ok()?.join(path.file_name()?));
        let Some(place) = path.canonicalize().ok().or_else(in_folder) else {
            return Err(refused(path, "it names no file"));
        };
        // What is written to a device is not lost by being written twice.
        let is_file = place.is_file() || !place.exists();
        if is_file && inputs.contains(&place) {
            return Err(refused(path, "it is an input of this command; give another name"));
        }
        if is_file && !taken.insert(place) {
            return Err(refused(path, "another output of this command goes there; give another name"));
        }
    }
    Ok(())
}

/// The files that a tree was read from.
pub(super) fn files(tree: &Node) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    tree.files(&mut found);
    found.into_iter().collect()
}

/// Makes a folder, and those above it.
///
/// # Errors
/// [`Failure`] where something is in the way.
pub(super) fn make_folder(folder: &Path) -> Result<(), Failure> {
    if folder.as_os_str().is_empty() {
        return Ok(());
    }
    std::fs::create_dir_all(folder)
        .map_err(|e| Failure::input(format!("cannot create {}: {}", folder.display(), io_reason(&e))))
}

/// Writes a file.
///
/// # Errors
/// [`Failure`] where that is not possible.
pub(super) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    std::fs::write(path, contents).map_err(|e| failed(path, &e))
}

/// A file that could not be written.
pub(super) fn failed(path: &Path, error: &std::io::Error) -> Failure {
    refused(path, &io_reason(error))
}
