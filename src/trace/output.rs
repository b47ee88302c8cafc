//! Writing what is made of traces: to a file, gzip where its name ends in `.gz`, or to standard output.

use super::TraceError;
use flate2::{Compression, write::GzEncoder};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Where bytes go.
#[derive(Debug)]
pub enum Target {
    /// A file.
    Plain(File),
    /// A file, packed.
    Packed(Box<GzEncoder<File>>),
    /// Standard output.
    Standard(io::Stdout),
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Packed(packed) => packed.write(bytes),
            Self::Standard(out) => out.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Packed(packed) => packed.flush(),
            Self::Standard(out) => out.flush(),
        }
    }
}

/// An output with a buffer before it.
pub type Out = BufWriter<Target>;

/// Opens a file or, without one, standard output; lets `write` fill it; closes it. A file that could not be filled is removed: half a
/// file is worse than none.
///
/// # Errors
/// Those of `write`, and of the file.
pub fn fill<E: From<io::Error>>(path: Option<&Path>, write: impl FnOnce(&mut Out) -> Result<(), E>) -> Result<(), E> {
    let target = match path {
        None => Target::Standard(io::stdout()),
        Some(path) if path.extension().is_some_and(|e| e == "gz") => {
            Target::Packed(Box::new(GzEncoder::new(File::create(path)?, Compression::fast())))
        }
        Some(path) => Target::Plain(File::create(path)?),
    };
    let mut out = BufWriter::with_capacity(1 << 18, target);
    let result = write(&mut out).and_then(|()| close(out).map_err(E::from));
    // What a link leads to, or a device, is not ours to remove. That a file cannot be removed changes nothing about the failure.
    if let (Err(_), Some(path)) = (&result, path)
        && std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file())
    {
        let _ = std::fs::remove_file(path);
    }
    result
}

/// Fails where a folder holds traces of another run that would be taken for ranks of the one that is written: `PREFIX.<rank>.et` of a rank that is not among
/// `written`; where `groups` are written too, traces of any other beginning, for which the folder's `comm_group.json` stands as well.
///
/// # Errors
/// [`TraceError`]: the first of them.
pub fn no_other_run(
    folder: &Path,
    prefix: &str,
    written: impl Fn(u64) -> bool,
    groups: bool,
) -> Result<(), TraceError> {
    // A folder that is not there, or cannot be read, is the writer's to report.
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    let mut names: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort_unstable();
    for name in names {
        let stem = name.strip_suffix(".gz").unwrap_or(&name).strip_suffix(".et");
        let Some((beginning, rank)) = stem.and_then(|s| s.rsplit_once('.')) else { continue };
        let Ok(rank) = rank.parse::<u64>() else { continue };
        let why = match beginning == prefix {
            true if written(rank) => continue,
            true => "it would be taken for a rank of what is written now",
            false if groups => "comm_group.json of the folder is that of one run",
            false => continue,
        };
        let message =
            format!("{name} is of another run: {why}; remove it (and the others of that run), or name another folder");
        return Err(TraceError::new(folder, message));
    }
    Ok(())
}

fn close(out: Out) -> io::Result<()> {
    match out.into_inner().map_err(io::IntoInnerError::into_error)? {
        Target::Packed(packed) => packed.finish()?.flush(),
        mut other => other.flush(),
    }
}
