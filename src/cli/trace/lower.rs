//! `flowspace trace lower`.

use crate::cli::args::{none_of, positive, quantity, whole};
use crate::cli::map::Format;
use crate::cli::{Failure, output};
use crate::spec::Problems;
use crate::trace::lower::{Fold, report};
use crate::units::Bytes;
use crate::workload::trace::{Kind, StepNumber, TraceSpec};
use crate::workload::write;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `flowspace trace lower`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct LowerArgs {
    /// PyTorch execution trace, FX graph (aten-fx-json/1) or linked trace, plain or gzip.
    pub file: PathBuf,
    /// Kineto trace of the same run: measured times go to the kernels.
    #[arg(long, value_name = "FILE")]
    pub kineto: Option<PathBuf>,
    /// Write the workload to this file.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Fold the repeated layer: none or layer. Kernels outside the layers are then left out, and listed.
    #[arg(long, value_name = "FOLD", default_value = "none")]
    pub fold: String,
    /// Number of the step; the one with most work if left out.
    #[arg(long, value_name = "N", value_parser = whole)]
    pub step: Option<u64>,
    /// Count causal attention without the masked half.
    #[arg(long)]
    pub causal_discount: bool,
    /// Samples of the recorded step on one rank; as the trace tells if left out.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub batch: Option<u64>,
    /// Tensor-parallel degree of the recording; as the collectives tell if left out.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub tp: Option<u64>,
    /// Data-parallel degree of the recording; as the collectives tell if left out.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub dp: Option<u64>,
    /// Stages of the recorded pipeline; as its process groups tell if left out.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub pp: Option<u64>,
    /// Expert-parallel degree of the recording; as the all-to-alls tell if left out.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub ep: Option<u64>,
    /// Size of one element, such as 2B; that of most values if left out.
    #[arg(long, value_name = "SIZE", value_parser = element)]
    pub word: Option<Bytes>,
    /// Samples of one iteration; those of the recorded step if left out.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub global_batch: Option<u64>,
    /// Samples of one microbatch; those of the recorded step on one rank if left out.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub micro_batch: Option<u64>,
    /// Name of the workload.
    #[arg(long)]
    pub name: Option<String>,
    /// Format of the report on standard output.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

fn element(text: &str) -> Result<Bytes, String> {
    match quantity::<Bytes>(text)? {
        size if size.0 >= 1.0 && size.0.fract() == 0.0 => Ok(size),
        _ => Err(format!("expected whole bytes, at least one, found {text:?}")),
    }
}

/// Lowers, reports, writes.
///
/// # Errors
/// [`Failure`]: the file cannot be read or lowered, the output cannot be written.
pub fn run(args: &LowerArgs) -> Result<i32, Failure> {
    output::check(&args.out, [Some(&args.file), args.kineto.as_ref()].into_iter().flatten().cloned())?;
    let fold = Fold::from_word(&args.fold)
        .ok_or_else(|| Failure::input(format!("--fold: {}", none_of(&args.fold, &["none", "layer"]))))?;
    let spec = TraceSpec {
        kind: Kind::Trace,
        name: args.name.clone(),
        source: None,
        path: args.file.display().to_string(),
        kineto: args.kineto.as_ref().map(|k| k.display().to_string()),
        step: args.step.map(StepNumber),
        fold,
        causal_discount: args.causal_discount,
        batch: args.batch,
        tp: args.tp,
        dp: args.dp,
        pp: args.pp,
        ep: args.ep,
        word: args.word,
        global_batch: args.global_batch,
        micro_batch: args.micro_batch,
    };
    let node = TraceSpec::tree("trace:").ok_or_else(|| Failure::input("internal error: no tree"))?;
    // All of it is of the file that was named.
    let told = |problems: Problems| problems.0.iter().map(|p| p.message.as_str()).collect::<Vec<_>>().join("\n");
    let lowered = spec.lower(&node).map_err(|problems| Failure::input(told(problems)))?;
    let text = match args.format {
        Format::Text => report::lowered_text(&lowered),
        Format::Json => {
            let json = serde_json::to_string_pretty(&report::lowered_json(&lowered))
                .map_err(|e| Failure::input(e.to_string()))?;
            format!("{json}\n")
        }
    };
    crate::cli::print(&text);
    if let Some(out) = &args.out {
        output::write(out, write::graph(&lowered.workload, &spec.source_text()))?;
    }
    Ok(0)
}
