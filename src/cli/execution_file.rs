//! Execution files: read as the question of `map --plan`, written as its answer, derived again by `check`.

use super::check::{CheckArgs, told};
use super::executed::{Answer, text};
use super::execution::{given, read_model};
use super::map::MapArgs;
use super::{Failure, output};
use crate::deadline::Deadline;
use crate::execution::file::{ExecutionResult, Whole, Written};
use crate::execution::inference::file::ServingFile;
use crate::execution::search::{Pins, ROUNDING};
use crate::execution::{Execution, ExecutionFile, Machine, inference};
use crate::mapping::executions::Executions;
use crate::mapping::solver::Limits;
use crate::plan::file::Stated;
use crate::report::statement;
use crate::spec::kind::FileKind;
use crate::spec::{Loader, Node, Reader};
use crate::system::System;
use crate::system::economics::Economics;
use crate::workload::WorkloadSpec;
use crate::workload::language::{LanguageModel, ModelPass};
use std::path::Path;

/// What a question is about: the trees of a workload and a system, and the execution file that they are from.
pub(super) struct Trees {
    pub workload: Node,
    pub system: Node,
    pub file: Option<Question>,
}

/// What a file with decisions asks to search anew.
pub(super) enum Question {
    Execution(Box<ExecutionFile>),
    Serving(Box<ServingFile>),
}

impl Trees {
    pub(super) fn execution(&self) -> Option<&ExecutionFile> {
        match &self.file {
            Some(Question::Execution(file)) => Some(file),
            _ => None,
        }
    }

    pub(super) fn serving(&self) -> Option<&ServingFile> {
        match &self.file {
            Some(Question::Serving(file)) => Some(file),
            _ => None,
        }
    }
}

pub(super) enum Source {
    /// No workload and system, and no execution file with both.
    None,
    /// Files that `map` reads, or reports.
    Others,
    Of(Trees),
    Refused(Failure),
}

/// The workload and the system, given or in an execution file. Problems of files are reported by `map`, all at once, unless they are ours to read.
pub(super) fn source(args: &MapArgs) -> Source {
    if let Some(path) = &args.plan {
        let Ok(node) = Loader.load(path, None) else { return Source::Others };
        let read = match FileKind::of_tree(&node) {
            Some(FileKind::Execution) => {
                Whole::read(&node).map(|whole| (whole.workload, whole.tree, Question::Execution(Box::new(whole.file))))
            }
            Some(FileKind::Serving) => inference::file::Whole::read(&node)
                .map(|whole| (whole.workload, whole.tree, Question::Serving(Box::new(whole.file)))),
            _ => return Source::None,
        };
        return match read {
            Ok((workload, system, file)) => Source::Of(Trees { workload, system, file: Some(file) }),
            Err(problems) => Source::Refused(problems.into()),
        };
    }
    let (Some(workload), Some(system)) = (&args.workload, &args.system) else { return Source::None };
    match (WorkloadSpec::load(workload), System::load(system)) {
        (Ok(workload), Ok(system)) => Source::Of(Trees { workload, system, file: None }),
        _ => Source::Others,
    }
}

pub(super) fn read_file(path: &Path) -> Result<(ExecutionFile, Node), Failure> {
    let node = Loader.load(path, None)?;
    let node = Loader.expand(&node, "")?;
    Ok((Reader::read::<ExecutionFile>(&node)?, node))
}

pub(super) fn read_execution(path: &Path) -> Result<Execution, Failure> {
    Ok(read_file(path)?.0.execution)
}

/// A sentence about a file, which it names where it does not yet.
pub(super) fn of_file(file: &dyn std::fmt::Display, sentence: String) -> Failure {
    let file = file.to_string();
    Failure::input(if sentence.starts_with(&file) { sentence } else { format!("{file}: execution: {sentence}") })
}

/// An execution that stands alone, and its model.
pub(super) fn read_whole(node: &Node, file: &dyn std::fmt::Display) -> Result<(Whole, LanguageModel), Failure> {
    let whole = Whole::read(node)?;
    match read_model(&whole.workload).filter(|model| model.pass == ModelPass::Training) {
        Some(model) => Ok((whole, model)),
        None => Err(Failure::input(format!("{file}: workload: an execution is of a language model's training"))),
    }
}

/// Refuses decisions that a file keeps and an option gives.
pub(super) fn refuse_twice(twice: &[&str]) -> Result<(), Failure> {
    match twice.is_empty() {
        true => Ok(()),
        false => Err(Failure::input(format!(
            "{}: given twice: under `pin` of the file and as an option; leave one out",
            twice.join(", ")
        ))),
    }
}

/// The decisions that options and a file keep together.
///
/// # Errors
/// [`Failure`]: one that both give.
pub(super) fn pins_of(file: &ExecutionFile, options: Pins) -> Result<Pins, Failure> {
    let (typed, kept) = (given(&options), file.pins());
    let twice: Vec<&str> = given(&kept).into_iter().filter(|name| typed.contains(name)).collect();
    refuse_twice(&twice)?;
    Ok(options.or(kept))
}

/// An execution file's figures, derived again from its decisions: `flowspace check`.
///
/// # Errors
/// [`Failure`]: bad input, decisions that break a rule, figures that differ.
pub(super) fn check(args: &CheckArgs, node: &Node) -> Result<i32, Failure> {
    output::check(&args.plan_out, output::files(node))?;
    let shown = args.plan.display();
    let (Whole { file, workload, tree, system }, model) = read_whole(node, &shown)?;
    let named = [node, &workload, &tree].into_iter().flat_map(output::files);
    output::check(&args.plan_out, named)?;
    let clock = Deadline::never();
    let executions = Executions::new(&system, &model, &Limits::default()).map_err(Failure::input)?;
    if executions.decides_blocks() && file.mappings().is_empty() {
        return Err(Failure::input(format!(
            "{shown}: the mapping of the blocks is missing (`layer` or `blocks`), without which nothing follows: `flowspace map --execution` searches it, and --plan-out writes it"
        )));
    }
    let (prediction, plan) = executions.given(&file, node, clock).map_err(|e| of_file(&shown, e))?;
    let stated = file.result.as_ref().filter(|result| !result.is_empty());
    let differences = stated.map(|result| result.differences(&ExecutionResult::of(&prediction, &system)));
    let statement = statement::of_given_execution(&system, true);
    let answer = Answer { prediction, found: None, plan, seconds: clock.seconds(), statement };
    let text = text(&answer, &model, &system, &executions.machine, &Economics::default());
    told(args, "decisions", differences, &text)?;
    if let Some(path) = &args.plan_out {
        let written = Written {
            source: file.source,
            pin: file.pin,
            prediction: &answer.prediction,
            plan: answer.plan.as_deref(),
            machine: &executions.machine,
            model: &model,
            system: &system,
            trees: Some((&workload, &tree)),
        };
        output::write(path, written.text().map_err(Failure::input)?)?;
    }
    Ok(0)
}

pub(super) fn write(
    path: &Path,
    answer: &Answer,
    (model, system, machine): (&LanguageModel, &System, &Machine),
    trees: &Trees,
) -> Result<(), Failure> {
    let source = match &answer.found {
        Some(found) if found.gap() > ROUNDING => {
            let (what, gap) = (found.objective, found.gap());
            format!("flowspace map: the least {what} that was found among {} executions (gap {gap:.2e})", found.covered)
        }
        Some(found) => format!("flowspace map: the least {} of {} executions", found.objective, found.covered),
        None => "flowspace map: predicted as given".into(),
    };
    let tree = System::inlined(&trees.system)?;
    let written = Written {
        source,
        pin: trees.execution().map_or_else(Vec::new, |file| file.pin.clone()),
        prediction: &answer.prediction,
        plan: answer.plan.as_deref(),
        machine,
        model,
        system,
        trees: Some((&trees.workload, &tree)),
    };
    output::write(path, written.text().map_err(Failure::input)?)
}
