//! Serving files: written as the answer of `map`, derived again by `check`.

use super::check::{CheckArgs, told};
use super::execution::read_model;
use super::{Failure, output};
use crate::execution::inference::file::{self, Decision, Whole};
use crate::execution::inference::{Prediction, Server};
use crate::plan::file::Stated;
use crate::spec::{Node, Origin, Problem};
use crate::system::System;
use crate::workload::language::{LanguageModel, ModelPass};
use std::path::Path;

/// A serving file's figures, derived again from its decisions: `flowspace check`.
///
/// # Errors
/// [`Failure`]: bad input, decisions that break a rule, figures that differ.
pub(super) fn check(args: &CheckArgs, node: &Node) -> Result<i32, Failure> {
    output::check(&args.plan_out, output::files(node))?;
    let Whole { file, workload, tree, system } = Whole::read(node)?;
    let named = [node, &workload, &tree].into_iter().flat_map(output::files);
    output::check(&args.plan_out, named)?;
    let shown = args.plan.display();
    let Some(model) = read_model(&workload).filter(|model| model.pass == ModelPass::Inference) else {
        return Err(Failure::input(format!(
            "{shown}: workload: a serving file is of a language model with `pass: inference`"
        )));
    };
    let within = |field: &str, message: String| {
        let at = node.get(field).unwrap_or(node);
        Problem { origin: at.origin.clone(), field: field.into(), message }
    };
    let server = Server::new(&system).map_err(|e| within("system", e))?;
    let predicted = file.serve.predict(&server, &model).map_err(|e| within("serve", e))?;
    let stated = file.result.as_ref().filter(|result| !result.is_empty());
    // What the file says is compared with what the checker derives, not with what was predicted.
    let derived = super::inference::checked(&predicted, &model, &system)?;
    let differences = stated.map(|result| result.differences(&derived.result(&system)));
    told(args, "decisions", differences, &super::inference::given(&predicted, &model, &system))?;
    if let Some(path) = &args.plan_out {
        write(path, &predicted, (&file.source, &file.pin), (&model, &system), (&workload, &tree))?;
    }
    Ok(0)
}

pub(super) fn write(
    path: &Path,
    predicted: &Prediction,
    (source, pin): (&str, &[Decision]),
    of: (&LanguageModel, &System),
    (workload, tree): (&Node, &Node),
) -> Result<(), Failure> {
    let mut tree = System::inlined(tree)?;
    // What the prediction stands for, where the command line says it.
    if let Some(software) = of.1.software {
        let origin = Origin::named("<command line>");
        tree.set("software", origin.clone(), Node::scalar(software.to_string(), origin));
    }
    output::write(path, file::write(predicted, (source, pin), of, (workload, &tree)).map_err(Failure::input)?)
}
