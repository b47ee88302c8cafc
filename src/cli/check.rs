//! `flowspace check`: a plan's figures, derived again from its decisions.

use super::{Failure, output, present};
use crate::plan::{Plan, file};
use crate::spec::Loader;
use crate::spec::kind::FileKind;
use clap::Args;
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
    let differences = read.result.as_ref().map(|result| result.differences(&figures));
    let plan = Plan { workload: read.workload, system: read.system, decisions: read.decisions, figures };
    told(args, "decisions", differences, &present::figures_text(&plan))?;
    if let Some(path) = &args.plan_out {
        let text = file::write(&read.workload_node, &read.system_node, &plan).map_err(Failure::input)?;
        output::write(path, text)?;
    }
    Ok(0)
}

/// Prints what follows from a file, of whose stated figures `differences` are those that do not; none where it states none, or is not asked for them.
///
/// # Errors
/// [`Failure`]: figures that differ, each a line.
pub(super) fn told(args: &CheckArgs, of: &str, differences: Option<Vec<String>>, text: &str) -> Result<(), Failure> {
    let file = args.plan.display();
    let differences = differences.filter(|_| !args.recost);
    let lines: Vec<String> = differences.iter().flatten().map(|d| format!("{file}: result.{d}")).collect();
    if !lines.is_empty() {
        return Err(Failure::input(format!(
            "{file}: result: the figures are not those of the {of} (--recost derives new ones)\n{}",
            lines.join("\n")
        )));
    }
    super::print(text);
    if differences.is_some() {
        super::print(&format!("the figures of the file follow from its {of}\n"));
    }
    Ok(())
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
    let differences = read.result.as_ref().map(|result| crate::place::check::differences(&read, result, &figures));
    let text = format!(
        "bottleneck {}, largest over mean {:.4}, {} between cores, {} of {} cores used\n",
        crate::units::Seconds(figures.bottleneck_s),
        figures.imbalance,
        crate::units::Bytes(figures.cut_bytes),
        figures.used,
        read.cores.len()
    );
    told(args, "placement", differences, &text)?;
    Ok(0)
}
