//! Executions of a language model on a system: which inner search answers for its blocks, the search over them, and the check of what it found.
//!
//! Where the memory is the chip's SRAM and there is a second tier, the best mapping has two ways to be: all that is not offloaded lies in the SRAM, which partitions share; or partitions
//! have all of the SRAM and the second tier is the memory (`offload: streamed`). They are two searches, each on a machine of its own; the better of the answers counts, and the
//! lesser of the bounds.

use super::free::Free;
use super::solver::Limits;
use crate::check;
use crate::deadline::Deadline;
use crate::execution::block::{BlockKey, Blocks, Inner};
use crate::execution::file::{ExecutionFile, LayerSpec};
use crate::execution::machine::other_types;
use crate::execution::memory::MemoryByKind;
use crate::execution::policy::Policy;
use crate::execution::possible::Possible;
use crate::execution::predict::{Mapped, keep_better, of_blocks, predict_by, suits};
use crate::execution::search::{Aim, search_below, search_by};
use crate::execution::{Execution, Found, Machine, Offload, Pins, Prediction, Refusal};
use crate::model::objective::Objective;
use crate::model::rate::chip_peak;
use crate::plan::Plan;
use crate::spec::{Node, Problem};
use crate::system::economics::Economics;
use crate::system::{Software, Style, System};
use crate::workload::language::{DataType, LanguageModel};
use std::sync::Arc;

/// A model on a system.
pub struct Executions<'a> {
    /// The system as numbers.
    pub machine: Machine,
    system: &'a System,
    model: &'a LanguageModel,
    by: By,
    /// The same where the second tier is the memory, which executions with `offload: streamed` are of.
    streamed: Option<Box<Streamed>>,
    aim: Aim,
}

/// A system whose second tier is its memory.
struct Streamed {
    system: System,
    machine: Machine,
    free: Free,
    /// SRAM of a chip.
    sram: f64,
}

impl Streamed {
    /// Of a system whose memory is on chip, with a second tier.
    fn of(own: &System, model: &LanguageModel, limits: &Limits) -> Result<Option<Box<Self>>, String> {
        let Some(second) = own.offload.clone().filter(|_| own.memory.0.on_chip) else { return Ok(None) };
        let system = System { memory: second, offload: None, ..own.clone() };
        let free = Free::new(&system, model, limits)?;
        Ok(Some(Box::new(Self { machine: Machine::of_graphs(&system), sram: own.chip.0.sram.0, free, system })))
    }

    /// Says of a prediction what it is on the system itself: what the memory holds is in the second tier, and the SRAM has what partitions fill.
    fn moved(&self, prediction: &mut Prediction, plan: Option<&Plan>) {
        prediction.execution.offload = Offload::Streamed;
        let working = plan.map_or(0.0, |plan| plan.figures.sram_bytes());
        let memory = &mut prediction.memory;
        (memory.second_tier, memory.second_capacity) = (memory.device.total(), memory.capacity);
        (memory.device, memory.capacity) = (MemoryByKind { working, ..MemoryByKind::default() }, Some(self.sram));
    }
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

/// Why blocks cannot be mapped as graphs: a graph's products run in the words of its activations, and the chip states another peak for the words that the model's products
/// have, or none.
fn other_words(system: &System, model: &LanguageModel) -> Option<String> {
    let chip = &system.chip.0;
    let kernels = chip.kernels.as_ref()?;
    let (wanted, words) = (model.types.products(), model.types.activations);
    let of = |t: DataType| chip_peak(chip, &system.model, t.bytes());
    let why = match kernels.peak_of(wanted.word()) {
        None => format!("the chip states no peak for {wanted}"),
        Some(peak) if wanted.bytes() != words.bytes() && (peak / of(words) - 1.0).abs() > 1e-3 => {
            format!(
                "a graph's products run at the chip's peak for the activations' {words}, and that for {wanted} is another"
            )
        }
        Some(_) => return None,
    };
    let there: Vec<&str> = kernels.peak.0.iter().map(|(word, _)| word.as_str()).collect();
    let said = other_types(&system.name, &why, model, &there);
    Some(format!("{said}: state `types` of the workload, or another software"))
}

impl<'a> Executions<'a> {
    /// With the software that the system stands for. `limits` are those of the free search.
    ///
    /// # Errors
    /// A sentence: why there are none on this system.
    pub fn new(system: &'a System, model: &'a LanguageModel, limits: &Limits) -> Result<Self, String> {
        if let Some(die) = system.too_large() {
            return Err(format!("infeasible (die): {}", die.beyond_limit()));
        }
        let (machine, by) = match (system.software(), &system.stack) {
            (Software::Free, _) if system.chip.0.style == Style::KernelByKernel => {
                (Machine::possible(system)?, By::Kernels)
            }
            (Software::Free, _) => {
                if let Some(why) = other_words(system, model) {
                    return Err(why);
                }
                let free = Box::new(Free::new(system, model, limits)?);
                (Machine::of_graphs(system), By::Graph(free))
            }
            _ => (Machine::new(system)?, By::Stack),
        };
        let streamed = if let By::Graph(_) = by { Streamed::of(system, model, limits)? } else { None };
        Ok(Self { machine, system, model, by, streamed, aim: Aim::TIME })
    }

    /// The same with the effort of so many sets of shardings, where blocks are mapped as graphs.
    pub fn with_sets(self, sets: u64) -> Self {
        let by = match self.by {
            By::Graph(free) => By::Graph(Box::new(free.with_sets(sets))),
            by => by,
        };
        let of_streamed = |of: Box<Streamed>| Box::new(Streamed { free: of.free.with_sets(sets), ..*of });
        Self { by, streamed: self.streamed.map(of_streamed), ..self }
    }

    /// The same for another objective than time.
    ///
    /// # Errors
    /// A sentence: it is zero for everything on this system.
    pub fn aimed(self, objective: Objective, economics: &Economics) -> Result<Self, String> {
        Ok(Self { aim: Aim::of(objective, economics, self.system)?, ..self })
    }

    /// Whether the mapping of blocks is a decision, and not the software's.
    pub fn decides_blocks(&self) -> bool {
        !matches!(self.by, By::Stack)
    }

    /// Calls `with` with the inner search.
    fn inner<T>(&self, with: impl FnOnce(&dyn Inner) -> Result<T, Refusal>) -> Result<T, Refusal> {
        match &self.by {
            By::Graph(free) => with(free.as_ref()),
            By::Kernels => {
                let possible = Possible::new(&self.machine, self.model).map_err(Refusal::Invalid)?;
                with(&possible.with_joules(self.aim.worth.joule > 0.0))
            }
            By::Stack => with(&Policy::new(&self.machine, self.model).map_err(Refusal::Invalid)?),
        }
    }

    /// The best execution that pins leave, checked.
    ///
    /// # Errors
    /// A sentence: model, machine and pins do not suit each other.
    pub fn search(&self, pins: &Pins, deadline: Deadline) -> Result<Found, String> {
        let streamed = self.streamed.as_ref().filter(|_| pins.offload.is_none_or(|o| o == Offload::Streamed));
        if pins.offload == Some(Offload::Streamed)
            && let Some(of) = streamed
        {
            return self.search_streamed(of, (pins, None), deadline);
        }
        let mine = if streamed.is_some() { deadline.part(0.5) } else { deadline };
        let found = self.inner(|inner| {
            search_by(inner, &self.machine, self.model, pins, &self.aim, mine).map_err(Refusal::Invalid)
        });
        let found = found.map_err(|e| e.to_string())?;
        if let Some(prediction) = &found.best {
            self.check(prediction, found.plan.as_deref())?;
        }
        let Some(of) = streamed else { return Ok(found) };
        let known = found.best.as_ref().map(|_| found.value);
        Ok(found.or(self.search_streamed(of, (pins, known), deadline)?))
    }

    /// The best execution of those whose second tier is the memory, if it is better than one that is known.
    fn search_streamed(
        &self,
        of: &Streamed,
        (pins, known): (&Pins, Option<f64>),
        deadline: Deadline,
    ) -> Result<Found, String> {
        let pins = Pins { offload: None, ..pins.clone() };
        let mut found = search_below(&of.free, &of.machine, self.model, &pins, (&self.aim, known), deadline)?;
        if let Some(prediction) = &mut found.best {
            check_by((&of.system, &of.machine), self.model, prediction, found.plan.as_deref())?;
            of.moved(prediction, found.plan.as_deref());
        }
        if let Some((e, _)) = &mut found.least {
            e.offload = Offload::Streamed;
        }
        Ok(found)
    }

    /// The machine of an execution with the free search of its blocks, and the execution there, where its second tier is the memory.
    fn streamed(&self, e: &Execution) -> Option<(&Streamed, Execution)> {
        let of = self.streamed.as_deref().filter(|_| e.offload == Offload::Streamed)?;
        Some((of, Execution { offload: Offload::None, ..e.clone() }))
    }

    /// What a given execution takes, checked, and the mapping of its blocks.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn predict(&self, e: &Execution, deadline: Deadline) -> Result<(Prediction, Option<Arc<Plan>>), Refusal> {
        if let Some((of, e)) = self.streamed(e) {
            let (mut prediction, plan) = predict_by(&of.free, &of.machine, self.model, &e, deadline)?;
            check_by((&of.system, &of.machine), self.model, &prediction, plan.as_deref()).map_err(Refusal::Invalid)?;
            of.moved(&mut prediction, plan.as_deref());
            return Ok((prediction, plan));
        }
        let (prediction, plan) = self.inner(|inner| predict_by(inner, &self.machine, self.model, e, deadline))?;
        self.check(&prediction, plan.as_deref()).map_err(Refusal::Invalid)?;
        Ok((prediction, plan))
    }

    /// What an execution takes by the mapping that its file gives, checked; where it gives none, as [`Self::predict`].
    ///
    /// # Errors
    /// Sentences, with file and line where the file is wrong.
    pub fn given(
        &self,
        file: &ExecutionFile,
        node: &Node,
        deadline: Deadline,
    ) -> Result<(Prediction, Option<Arc<Plan>>), String> {
        let e = &file.execution;
        let keys = file.mappings();
        if keys.is_empty() {
            return self.predict(e, deadline).map_err(|e| e.to_string());
        }
        let at = |key: &str| node.get(key).unwrap_or(node).origin.clone();
        let say = |key: &str, message: String| Problem { origin: at(key), field: key.into(), message }.to_string();
        let takes: &[&str] = match self.by {
            By::Stack => &[],
            By::Kernels => &["layer", "expert_layer"],
            By::Graph(_) => &["blocks"],
        };
        let others: Vec<String> = keys
            .iter()
            .filter(|key| !takes.contains(key))
            .map(|key| {
                let (system, software) = (&self.system.name, self.system.software());
                let instead = match takes {
                    [] => "the software decides the mapping of blocks; `--software free` (`software: free` of the system) takes it".to_string(),
                    takes => format!("there, mappings stand under {}", takes.join(" and ")),
                };
                say(key, format!("is no part of an execution on {system} with software: {software}: {instead}"))
            })
            .collect();
        if !others.is_empty() {
            return Err(others.join("\n"));
        }
        let streamed = self.streamed(e);
        let (system, machine, e) = match &streamed {
            Some((of, e)) => (&of.system, &of.machine, e),
            None => (self.system, &self.machine, e),
        };
        suits(machine, self.model, e)?;
        let key = BlockKey::of(e);
        let mappings: Vec<(Blocks, Option<Arc<Plan>>)> = match &self.by {
            By::Stack => return self.predict(e, deadline).map_err(|e| e.to_string()),
            By::Kernels => {
                let of = |word: &str, spec: &Option<LayerSpec>| {
                    let spec = spec.as_ref().map(|spec| spec.mapping(&self.machine));
                    spec.transpose().map_err(|message| {
                        let core = node.get(word).and_then(|layer| layer.get("core"));
                        let origin = core.map_or_else(|| at(word), |core| core.origin.clone());
                        Problem { origin, field: format!("{word}.core"), message }.to_string()
                    })
                };
                let (plain, experts) = (of("layer", &file.layer)?, of("expert_layer", &file.expert_layer)?);
                let possible = Possible::new(&self.machine, self.model)?;
                let given = possible.given(&key, [plain.as_ref(), experts.as_ref()]);
                vec![(given.map_err(|(word, message)| say(word, message))?, None)]
            }
            By::Graph(free) => {
                let free = streamed.as_ref().map_or(free.as_ref(), |(of, _)| &of.free);
                if let Some(why) = free.space().refuses(e) {
                    return Err(why);
                }
                let cut = free.cut(&key)?;
                let stands = node.get("blocks").unwrap_or(node);
                let Some(spec) = &file.blocks else { return Err(say("blocks", "is missing".into())) };
                let decisions = spec.decisions(&cut.0, stands).map_err(|e| e.to_string())?;
                let given = free
                    .given(&key, cut, decisions)
                    .map_err(|broken| say("blocks", format!("the mapping is not feasible:\n{}", broken.join("\n"))))?;
                given.into_iter().map(|(blocks, plan)| (blocks, Some(Arc::new(plan)))).collect()
            }
        };
        let mut best: Option<Mapped> = None;
        for (blocks, plan) in mappings {
            keep_better(&mut best, (of_blocks(machine, self.model, e, blocks)?, plan));
        }
        let Some((mut prediction, plan)) = best else { return Err(say("blocks", "is missing".into())) };
        if !prediction.memory.fits() {
            return Err(say("execution", format!("is not feasible: {}", prediction.memory.need())));
        }
        check_by((system, machine), self.model, &prediction, plan.as_deref())?;
        if let Some((of, _)) = streamed {
            of.moved(&mut prediction, plan.as_deref());
        }
        Ok((prediction, plan))
    }

    fn check(&self, prediction: &Prediction, plan: Option<&Plan>) -> Result<(), String> {
        check_by((self.system, &self.machine), self.model, prediction, plan)
    }
}

fn check_by(
    on: (&System, &Machine),
    model: &LanguageModel,
    prediction: &Prediction,
    plan: Option<&Plan>,
) -> Result<(), String> {
    check::execution::verify(on, model, prediction, plan)
        .map_err(|e| format!("internal error, please report it: the checker refuses the execution: {e}"))
}
