//! `flowspace trace flops`.

use crate::cli::Failure;
use crate::cli::args::whole;
use crate::cli::map::Format;
use crate::trace::lower::host::Steps;
use crate::trace::lower::{Request, coverage::coverage, load, report};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `flowspace trace flops`.
#[derive(Debug, Args)]
pub struct FlopsArgs {
    /// PyTorch execution trace, FX graph (aten-fx-json/1) or linked trace, plain or gzip.
    pub file: PathBuf,
    /// Kineto trace of the same run: measured times go to the kernels.
    #[arg(long, value_name = "FILE")]
    pub kineto: Option<PathBuf>,
    /// Only this step; the whole trace if left out.
    #[arg(long, value_name = "N", value_parser = whole)]
    pub step: Option<u64>,
    /// Count causal attention without the masked half.
    #[arg(long)]
    pub causal_discount: bool,
    /// Format on standard output.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Counts and prints.
///
/// # Errors
/// [`Failure`]: the file cannot be read.
pub fn run(args: &FlopsArgs) -> Result<i32, Failure> {
    let request = Request {
        steps: args.step.map_or(Steps::All, Steps::Number),
        causal_discount: args.causal_discount,
        kineto: args.kineto.clone(),
        ..Request::default()
    };
    let program = load(&args.file, &request).map_err(|e| Failure::input(e.to_string()))?;
    let found = coverage(&program);
    let text = match args.format {
        Format::Text => {
            let notes: String = program.notes.iter().map(|n| format!("note: {n}\n")).collect();
            format!("{}{notes}", report::coverage_text(&found))
        }
        Format::Json => {
            let json = serde_json::to_string_pretty(&found).map_err(|e| Failure::input(e.to_string()))?;
            format!("{json}\n")
        }
    };
    crate::cli::print(&text);
    Ok(0)
}
