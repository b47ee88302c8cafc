//! `flowspace import`: files of other tools, read into ours.

use super::Failure;
use crate::import::dfmodel::schema::Generation;
use crate::import::dfmodel::{Options, import};
use crate::spec::node::io_reason;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

/// Tools whose files are read.
#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// DFModel's setup.txt, dse.txt or dse.pb of any generation: a workload, a system and a study file, and a plan file where
    /// its passes have filled in a mapping. What it ignored or assumed goes to standard error and on top of the files.
    Dfmodel(DfmodelArgs),
}

/// Arguments of `flowspace import dfmodel`.
#[derive(Debug, Args)]
pub struct DfmodelArgs {
    /// The file: text (.txt) or binary (.pb) protobuf.
    pub file: PathBuf,
    /// Folder for the files written; made if it does not exist.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Name of the files written; by default the file's own, or its folder's where it is called setup or dse.
    #[arg(long, value_name = "NAME", value_parser = plain)]
    pub name: Option<String>,
    /// The file's generation: batch, torus, flat, variant, training, miscellany, perfect-overlap or overlap; found out if
    /// left out.
    #[arg(long, value_name = "GENERATION", value_parser = generation)]
    pub generation: Option<Generation>,
    /// Leave out fields that no schema has, instead of refusing the file.
    #[arg(long)]
    pub skip_unknown: bool,
    /// Write over files that exist.
    #[arg(long)]
    pub force: bool,
}

fn generation(text: &str) -> Result<Generation, String> {
    let words: Vec<&str> = Generation::ALL.iter().map(|g| g.word()).collect();
    Generation::from_word(text).ok_or_else(|| format!("expected {}, found {text:?}", words.join(", ")))
}

fn plain(text: &str) -> Result<String, String> {
    let fits = !text.is_empty()
        && !text.starts_with(['.', '-'])
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if fits { Ok(text.into()) } else { Err("expected letters, digits, -, _ and . alone".into()) }
}

/// Carries out an import.
///
/// # Errors
/// [`Failure`]: a file that cannot be read or makes no sense; files that would be overwritten.
pub fn run(command: &ImportCommand) -> Result<i32, Failure> {
    let ImportCommand::Dfmodel(args) = command;
    let file = args.file.display().to_string();
    let bytes =
        std::fs::read(&args.file).map_err(|e| Failure::input(format!("cannot read {file:?}: {}", io_reason(&e))))?;
    let options = Options {
        generation: args.generation,
        skip_unknown: args.skip_unknown,
        name: args.name.clone().unwrap_or_else(|| name_of(&args.file)),
    };
    let imported = import(&file, &bytes, &options).map_err(|faults| Failure::input(faults.to_string()))?;
    let paths: Vec<PathBuf> = imported.files.iter().map(|(name, _)| args.out.join(name)).collect();
    if let Some(path) = paths.iter().find(|p| p.exists() && !args.force) {
        let path = path.display();
        return Err(Failure::input(format!(
            "{path} exists; --force writes over it, --out or --name puts the files elsewhere"
        )));
    }
    let failed = |path: &Path, e: &std::io::Error| {
        Failure::input(format!("cannot write {:?}: {}", path.display().to_string(), io_reason(e)))
    };
    std::fs::create_dir_all(&args.out).map_err(|e| failed(&args.out, &e))?;
    for ((_, text), path) in imported.files.iter().zip(&paths) {
        std::fs::write(path, text).map_err(|e| failed(path, &e))?;
    }
    for note in &imported.notes {
        eprintln!("{file}: {note}");
    }
    let mut list = format!("read as generation {}\n", imported.generation);
    for path in &paths {
        list.push_str(&format!("wrote {}\n", path.display()));
    }
    super::print(&list);
    Ok(0)
}

/// A name for the files: that of the file, or of the run's folder where every run's file is called alike.
fn name_of(path: &Path) -> String {
    let stem = |p: &Path| p.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let mut name = stem(path);
    if matches!(name.as_str(), "setup" | "dse" | "dse_sharded" | "dse_final") {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
        let folder = folder.and_then(|p| if p.ends_with("user_input") { p.parent() } else { Some(p) });
        let found = folder.and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
        name = found.filter(|n| n.chars().any(|c| c.is_ascii_alphanumeric())).unwrap_or(name);
    }
    let clean: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    let clean = clean.trim_start_matches(['.', '-']);
    if clean.is_empty() { "imported".into() } else { clean.into() }
}
