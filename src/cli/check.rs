//! `flowspace check`: a plan's figures, derived again from its decisions.

use super::{Failure, output, present};
use crate::plan::{Plan, file};
use crate::spec::Loader;
use crate::spec::kind::FileKind;
use clap::Args;
use std::fmt::Display;
use std::path::PathBuf;

/// Arguments of `flowspace check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Plan file, execution or serving file of a language model, or placement file.
    pub plan: PathBuf,
    /// Accept changed decisions: print what they give, do not compare with the file's `result`.
    #[arg(long)]
    pub recost: bool,
    /// Write the plan with its figures derived again to this file.
    #[arg(long, value_name = "FILE")]
    pub plan_out: Option<PathBuf>,
}

/// Derives, prints, compares.
///
/// # Errors
/// [`Failure`]: bad input, decisions that break a rule, figures that differ.
pub fn run(args: &CheckArgs) -> Result<i32, Failure> {
    let node = Loader.load(&args.plan, None)?;
    if crate::place::file::is_placement(&node) {
        return placement(args, &node);
    }
    if FileKind::of_tree(&node) == Some(FileKind::Execution) {
        return super::execution_file::check(args, &node);
    }
    if FileKind::of_tree(&node) == Some(FileKind::Serving) {
        return super::serving_file::check(args, &node);
    }
    output::check(&args.plan_out, output::files(&node))?;
    let read = file::read(&node)?;
    let named = [&node, &read.workload_node, &read.system_node].into_iter().flat_map(output::files);
    output::check(&args.plan_out, named)?;
    let figures = crate::check::derive(&read.workload, &read.system, &read.decisions).map_err(|broken| {
        Failure::input(format!("{}: the plan is not feasible:\n{}", args.plan.display(), broken.join("\n")))
    })?;
    if let (Some(result), false) = (&read.result, args.recost) {
        compared(&args.plan.display(), "decisions", &result.differences(&figures))?;
    }
    let plan = Plan { workload: read.workload, system: read.system, decisions: read.decisions, figures };
    super::print(&present::figures_text(&plan));
    if read.result.is_some() && !args.recost {
        super::print("the figures of the file follow from its decisions\n");
    }
    if let Some(path) = &args.plan_out {
        let text = file::write(&read.workload_node, &read.system_node, &plan).map_err(Failure::input)?;
        output::write(path, text)?;
    }
    Ok(0)
}

/// Refuses a file that states other figures than those of its decisions, or of its placement; each difference is a line.
pub(super) fn compared(file: &dyn Display, of: &str, differences: &[String]) -> Result<(), Failure> {
    if differences.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = differences.iter().map(|d| format!("{file}: result.{d}")).collect();
    Err(Failure::input(format!(
        "{file}: result: the figures are not those of the {of} (--recost derives new ones)\n{}",
        lines.join("\n")
    )))
}

/// A placement.
fn placement(args: &CheckArgs, node: &crate::spec::Node) -> Result<i32, Failure> {
    let shown = args.plan.display();
    if args.plan_out.is_some() {
        return Err(Failure::input(format!(
            "{shown}: --plan-out writes plans; a placement is written by `flowspace place`"
        )));
    }
    let read = crate::place::file::read(node)?;
    let figures = crate::place::check::derive(&read)
        .map_err(|broken| Failure::input(format!("{shown}: the placement is not feasible:\n{}", broken.join("\n"))))?;
    if let (Some(result), false) = (&read.result, args.recost) {
        compared(&shown, "placement", &crate::place::check::differences(&read, result, &figures))?;
    }
    super::print(&format!(
        "bottleneck {}, largest over mean {:.4}, {} between cores, {} of {} cores used\n",
        crate::units::Seconds(figures.bottleneck_s),
        figures.imbalance,
        crate::units::Bytes(figures.cut_bytes),
        figures.used,
        read.cores.len()
    ));
    if read.result.is_some() && !args.recost {
        super::print("the figures of the file follow from its placement\n");
    }
    Ok(0)
}
