//! `flowspace import`: files of other tools, read into ours.

use super::{Failure, args::none_of, output};
use crate::import::calculon::Input;
use crate::import::dfmodel::schema::Generation;
use crate::import::dfmodel::{Options, import};
use crate::spec::{FileKind, Reader, node::io_reason, node::read_bounded};
use crate::workload::{huggingface, language::LanguageModel};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

/// Tools whose files are read.
#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// DFModel's setup.txt, dse.txt or dse.pb of any generation: a workload, a system and a study file, and a plan file where
    /// its passes have filled in a mapping. What it ignored or assumed goes to standard error and on top of the files.
    Dfmodel(DfmodelArgs),
    /// Calculon's application, execution and system files: a workload, an execution and a system file. What it ignored, assumed
    /// or changed goes to standard error and on top of the files.
    Calculon(CalculonArgs),
    /// A model's config.json as Hugging Face has it: a workload file of kind language_model, on standard output or to --out. What it
    /// assumed or left out goes to standard error and on top of the file. `--workload hf:config.json` reads it without a file between.
    Hf(HfArgs),
}

/// Arguments of `flowspace import hf`.
#[derive(Debug, Args)]
pub struct HfArgs {
    /// The config.json.
    #[arg(value_name = "CONFIG.json")]
    pub config: PathBuf,
    /// Set a field of the language model, as in --set pass=inference --set seq=2048 --set types.weights=fp8: pass, sequence length and
    /// batch are not in a config.json. May be given several times.
    #[arg(long, value_name = "FIELD=VALUE", value_parser = setting)]
    pub set: Vec<(String, String)>,
    /// Write to this file.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write over a file that exists.
    #[arg(long)]
    pub force: bool,
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.into(), value.into())),
        _ => Err(format!("expected FIELD=VALUE such as seq=2048, found {text:?}")),
    }
}

/// Arguments of `flowspace import calculon`.
#[derive(Debug, Args)]
pub struct CalculonArgs {
    /// The application: sizes of the model.
    #[arg(value_name = "APP.json")]
    pub app: PathBuf,
    /// The execution: degrees, batch, recomputation.
    #[arg(value_name = "EXECUTION.json")]
    pub execution: PathBuf,
    /// The system: rates, memories, networks.
    #[arg(value_name = "SYSTEM.json")]
    pub system: PathBuf,
    /// Folder for the files written; made if it does not exist.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Name of the files written; by default the execution file's own.
    #[arg(long, value_name = "NAME", value_parser = plain)]
    pub name: Option<String>,
    /// Write over files that exist.
    #[arg(long)]
    pub force: bool,
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
    Generation::from_word(text).ok_or_else(|| none_of(text, &words))
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
    match command {
        ImportCommand::Dfmodel(args) => dfmodel(args),
        ImportCommand::Calculon(args) => calculon(args),
        ImportCommand::Hf(args) => hf(args),
    }
}

fn dfmodel(args: &DfmodelArgs) -> Result<i32, Failure> {
    let file = args.file.display().to_string();
    let bytes = read(&args.file)?;
    let options = Options {
        generation: args.generation,
        skip_unknown: args.skip_unknown,
        name: args.name.clone().unwrap_or_else(|| name_of(&args.file)),
    };
    let imported = import(&file, &bytes, &options).map_err(|faults| {
        // What is one of our own files has faults of DFModel's notation on every line.
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        Failure::input(match FileKind::of_text(text) {
            Some(kind) => format!("{file}: {}", kind.instead_of("a file of DFModel")),
            None if text.trim_start().starts_with(['{', '[', '<']) => {
                let what = if text.trim_start().starts_with('<') { "XML" } else { "JSON" };
                format!("{file}: this looks like {what}; DFModel's files are protobuf, as text (.txt) or binary (.pb)")
            }
            None => faults.to_string(),
        })
    })?;
    let written = write(&args.out, &imported.files, args.force)?;
    for note in &imported.notes {
        say!("{file}: {note}");
    }
    super::print(&format!("read as generation {}\n{written}", imported.generation));
    Ok(0)
}

fn calculon(args: &CalculonArgs) -> Result<i32, Failure> {
    let paths = [&args.app, &args.execution, &args.system];
    let names = paths.map(|p| p.display().to_string());
    let mut texts = Vec::new();
    let mut unreadable = Vec::new();
    for (path, name) in paths.into_iter().zip(&names) {
        match read(path).map(String::from_utf8) {
            Ok(Ok(text)) => texts.push(text),
            Ok(Err(e)) => {
                let at = e.utf8_error().valid_up_to();
                unreadable.push(format!("{name}: byte {at}: not UTF-8, so not JSON"));
            }
            Err(failure) => unreadable.push(failure.message),
        }
    }
    let [app, execution, system] = texts.as_slice() else {
        return Err(Failure::input(unreadable.join("\n")));
    };
    let [app_name, execution_name, system_name] = &names;
    let name = args.name.clone().unwrap_or_else(|| name_of(&args.execution));
    let imported = crate::import::calculon::import(
        Input { name: app_name, text: app },
        Input { name: execution_name, text: execution },
        Input { name: system_name, text: system },
        &name,
    )?;
    let written = write(&args.out, &imported.files, args.force)?;
    for note in &imported.notes {
        say!("{}: {note}", note.part);
    }
    super::print(&written);
    Ok(0)
}

fn hf(args: &HfArgs) -> Result<i32, Failure> {
    let imported = huggingface::read(&args.config, &args.set)?;
    // What the file could not be read as is told now, with the lines of the configuration.
    Reader::read::<LanguageModel>(&imported.tree)?;
    let text = huggingface::yaml(&imported, &args.config.display().to_string());
    tell(&args.config.display().to_string(), &imported.notes);
    match &args.out {
        None => super::print(&text),
        Some(path) => {
            output::check([path], [args.config.clone()])?;
            super::print(&write_all(&[(path.clone(), text)], args.force)?);
        }
    }
    Ok(0)
}

fn tell(file: &str, notes: &[String]) {
    notes.iter().for_each(|note| say!("{file}: {note}"));
}

/// Tells on standard error what is assumed of a workload that is a configuration (`hf:config.json`); nothing of others. What is wrong
/// with it is told where it is read.
pub(super) fn tell_assumed(workload: Option<&Path>) {
    if let Some(text) = workload.and_then(Path::to_str)
        && let Some(Ok(imported)) = huggingface::named(text)
    {
        tell(text.split('?').next().unwrap_or(text), &imported.notes);
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    read_bounded(path)
        .map_err(|e| Failure::input(format!("cannot read {:?}: {}", path.display().to_string(), io_reason(&e))))
}

/// Writes files into a folder; gives the lines that say so.
fn write(out: &Path, files: &[(String, String)], force: bool) -> Result<String, Failure> {
    output::make_folder(out)?;
    let files: Vec<(PathBuf, String)> = files.iter().map(|(name, text)| (out.join(name), text.clone())).collect();
    write_all(&files, force)
}

fn write_all(files: &[(PathBuf, String)], force: bool) -> Result<String, Failure> {
    if let Some((path, _)) = files.iter().find(|(path, _)| path.exists() && !force) {
        let path = path.display();
        return Err(Failure::input(format!("{path} exists; --force writes over it, another --out puts it elsewhere")));
    }
    files.iter().try_for_each(|(path, text)| output::write(path, text))?;
    Ok(files.iter().map(|(path, _)| format!("wrote {}\n", path.display())).collect())
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
