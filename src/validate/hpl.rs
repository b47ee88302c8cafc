//! HPL on machines that published a result, by the model of the graph and its mapping.

use super::predict::{NotPredicted, Prediction};
use super::suites;
use crate::mapping::degrees::Wanted;
use crate::mapping::{Answer, Request, map};
use crate::spec::Node;
use crate::system::System;
use crate::workload::WorkloadSpec;

/// FLOP/s of a run that `validation/hpl` describes: 2/3 n^3 + 3/2 n^2 FLOP, as HPL counts them, over the predicted time.
///
/// # Errors
/// [`NotPredicted`]: a machine that has no description, or no mapping.
pub fn predict(run: &str) -> Result<Prediction, NotPredicted> {
    let Some(described) = suites::hpl_run(run) else {
        return Err(NotPredicted::because(format!("no description of the machine {run} under validation/hpl")));
    };
    let text = format!("{{kind: hpl, name: HPL, source: validation, n: {}, block: {}}}", described.n, described.block);
    let failed = |e: &dyn std::fmt::Display| NotPredicted::because(format!("{run}: {e}"));
    let tree = Node::parse("validation/hpl", &text).map_err(|e| failed(&e))?;
    let workload = WorkloadSpec::build(&tree).map_err(|e| failed(&e))?;
    let file = format!("validation/hpl/hpl-{run}.yaml");
    let tree = Node::parse(&file, described.system).map_err(|e| failed(&e))?;
    let system = System::build(&tree).map_err(|e| failed(&e))?;
    let request = Request { wanted: Wanted { split: true, ..Wanted::default() }, ..Request::default() };
    match map(&workload, &system, &request).map_err(|e| failed(&e))? {
        Answer::Mapped(plan, _) => {
            let n = described.n as f64;
            let flop = 2.0 / 3.0 * n.powi(3) + 1.5 * n * n;
            Ok(Prediction::InRowsQuantity(flop / plan.figures.iteration_s()))
        }
        Answer::Infeasible(reason) => Err(failed(&reason)),
    }
}
