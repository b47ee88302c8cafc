//! Executions of a language model on a system: which inner search answers for its blocks, the search over them, and the check of what it found.

use super::free::Free;
use super::solver::Limits;
use crate::check;
use crate::deadline::Deadline;
use crate::execution::block::Inner;
use crate::execution::policy::Policy;
use crate::execution::possible::Possible;
use crate::execution::predict::predict_by;
use crate::execution::search::search_by;
use crate::execution::{Execution, Found, Machine, Pins, Prediction, Refusal};
use crate::plan::Plan;
use crate::system::{Software, Style, System};
use crate::workload::language::LanguageModel;
use std::sync::Arc;

/// A model on a system.
pub struct Executions<'a> {
    /// The system as numbers.
    pub machine: Machine,
    model: &'a LanguageModel,
    by: By,
}

/// What answers for a block.
enum By {
    /// A software stack.
    Stack,
    /// The best of what chips that run kernel by kernel can do.
    Kernels,
    /// The best mapping of its graph.
    Graph(Box<Free>),
}

impl<'a> Executions<'a> {
    /// With the software that the system stands for. `limits` are those of the free search.
    ///
    /// # Errors
    /// A sentence: why there are none on this system.
    pub fn new(system: &System, model: &'a LanguageModel, limits: &Limits) -> Result<Self, String> {
        if let Some(die) = system.too_large() {
            return Err(format!("infeasible (die): {}", die.beyond_limit()));
        }
        match (system.software(), &system.stack) {
            (Software::Free, _) if system.chip.0.style == Style::KernelByKernel => {
                Ok(Self { machine: Machine::possible(system)?, model, by: By::Kernels })
            }
            (Software::Free, _) => {
                let free = Box::new(Free::new(system, model, limits)?);
                Ok(Self { machine: Machine::of_graphs(system), model, by: By::Graph(free) })
            }
            (Software::Stack, None) => Err(format!("software: stack, but {} names none (`stack:`)", system.name)),
            _ => Ok(Self { machine: Machine::new(system)?, model, by: By::Stack }),
        }
    }

    /// Calls `with` with the inner search.
    fn inner<T>(&self, with: impl FnOnce(&dyn Inner) -> Result<T, Refusal>) -> Result<T, Refusal> {
        match &self.by {
            By::Graph(free) => with(free.as_ref()),
            By::Kernels => with(&Possible::new(&self.machine, self.model).map_err(Refusal::Invalid)?),
            By::Stack => with(&Policy::new(&self.machine, self.model).map_err(Refusal::Invalid)?),
        }
    }

    /// The best execution that pins leave, checked.
    ///
    /// # Errors
    /// A sentence: model, machine and pins do not suit each other.
    pub fn search(&self, pins: &Pins, deadline: Deadline) -> Result<Found, String> {
        let found =
            self.inner(|inner| search_by(inner, &self.machine, self.model, pins, deadline).map_err(Refusal::Invalid));
        let found = found.map_err(|e| e.to_string())?;
        if let Some(prediction) = &found.best {
            self.check(prediction, found.plan.as_deref())?;
        }
        Ok(found)
    }

    /// What a given execution takes, checked, and the mapping of its blocks.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn predict(&self, e: &Execution, deadline: Deadline) -> Result<(Prediction, Option<Arc<Plan>>), Refusal> {
        let (prediction, plan) = self.inner(|inner| predict_by(inner, &self.machine, self.model, e, deadline))?;
        self.check(&prediction, plan.as_deref()).map_err(Refusal::Invalid)?;
        Ok((prediction, plan))
    }

    fn check(&self, prediction: &Prediction, plan: Option<&Plan>) -> Result<(), String> {
        check::execution::verify(&self.machine, self.model, prediction, plan)
            .map_err(|e| format!("internal error, please report it: the checker refuses the execution: {e}"))
    }
}
