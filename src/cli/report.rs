//! `flowspace study report`; and the manifest that `study run` writes.

use super::{Failure, help, output};
use crate::report::html::{self, REPORT};
use crate::report::manifest::{Digest, MANIFEST, Manifest, folder, now};
use crate::report::paper::{self, Markup};
use crate::report::table::RESULTS;
use crate::study::front::{FRONT, PROOF};
use crate::study::{MODEL_REVISION, Study};
use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `flowspace study report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The results.csv (or front.csv) of a study, or the folder it lies in.
    pub results: PathBuf,
    /// One HTML file with everything in it: this is what is written if nothing else is asked for.
    #[arg(long, conflicts_with_all = ["latex", "markdown"])]
    pub html: bool,
    /// The fronts as LaTeX tables, with the rules of the package booktabs.
    #[arg(long, conflicts_with = "markdown")]
    pub latex: bool,
    /// The fronts as Markdown tables.
    #[arg(long)]
    pub markdown: bool,
    /// Columns of a table; the axes and the usual figures if left out.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Every row in a table, not the fronts alone.
    #[arg(long)]
    pub all: bool,
    /// The file to write; report.html beside the results if left out, tables on standard output.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Writes the report.
///
/// # Errors
/// [`Failure`]: no results of a study, a column that is not there, a file that cannot be written.
pub fn run(args: &ReportArgs) -> Result<i32, Failure> {
    let path = if args.results.is_dir() { args.results.join(RESULTS) } else { args.results.clone() };
    let markup = match (args.latex, args.markdown) {
        (true, _) => Some(Markup::Latex),
        (_, true) => Some(Markup::Markdown),
        _ if args.all || !args.columns.is_empty() => {
            return Err(Failure::input(
                "--columns and --all are for tables (--latex, --markdown): a page has every column",
            ));
        }
        _ => None,
    };
    let out = args.out.clone().or_else(|| markup.is_none().then(|| folder(&path).join(REPORT)));
    if let Some(out) = &out {
        let beside = [RESULTS, MANIFEST, PROOF].map(|name| folder(&path).join(name));
        output::check([out], beside.into_iter().chain([path.clone()]))?;
    }
    let table = super::rows::read(&path)?;
    let text = match markup {
        None => html::page(&table).map_err(|e| Failure::input(e.to_string()))?,
        Some(markup) => {
            paper::table(&table, markup, &args.columns, args.all).map_err(|e| Failure::input(e.to_string()))?
        }
    };
    match out {
        Some(out) => {
            output::write(&out, text)?;
            super::print(&format!("{}\n", out.display()));
        }
        None => super::print(&text),
    }
    Ok(0)
}

/// What the manifest of a study says before it is run: its inputs are those that were read.
pub(super) fn manifest(study: &Study) -> Manifest {
    Manifest {
        study: study.name().to_string(),
        question: study.spec.question.clone(),
        source: study.spec.source.clone(),
        file: study.file().to_string(),
        points: study.count().unwrap_or(u64::MAX),
        version: env!("CARGO_PKG_VERSION").to_string(),
        commit: help::commit().to_string(),
        engines: crate::solver::engines().iter().map(|engine| engine.to_string()).collect(),
        model_revision: MODEL_REVISION,
        ended: String::new(),
        inputs: study.files().iter().filter_map(|file| Digest::of(file)).collect(),
        outputs: Vec::new(),
    }
}

/// Writes the manifest beside the tables of a run that is finished.
///
/// # Errors
/// [`Failure`] where it cannot be written.
pub(super) fn write_manifest(mut manifest: Manifest, out: &Path, searched: bool, parquet: bool) -> Result<(), Failure> {
    let tables: &[&str] = if searched { &[RESULTS, FRONT] } else { &[RESULTS] };
    let typed = |name: &&str| crate::report::parquet::beside(Path::new(name)).display().to_string();
    let mut names: Vec<String> = tables.iter().map(|name| (*name).to_string()).collect();
    names.extend(tables.iter().filter(|_| parquet).map(typed));
    names.extend(searched.then(|| PROOF.to_string()));
    manifest.outputs = names.iter().filter_map(|name| Digest::within(out, name)).collect();
    manifest.ended = now();
    let text = serde_json::to_string_pretty(&manifest).map_err(|e| Failure::input(format!("internal error: {e}")))?;
    output::write(&out.join(MANIFEST), text + "\n")
}

/// Writes the page of a run; a line for standard error where there is none.
///
/// # Errors
/// [`Failure`] where it cannot be written.
pub(super) fn write_page(results: &Path) -> Result<Result<PathBuf, String>, Failure> {
    let path = folder(results).join(REPORT);
    match html::read_page(results) {
        Ok(page) => output::write(&path, page).map(|()| Ok(path)),
        Err(reason) => Ok(Err(reason.to_string())),
    }
}
