//! What is asked of the search, and what it answers.

use super::degrees::Wanted;
use super::joint::MOST_KERNELS;
use super::record::{Infeasible, SolveRecord, Status, relative_gap};
use super::shortage::Change;
use super::solver::{Limits, Solver, SolverError};
use super::waits::Wait;
use crate::deadline::is_interrupted;
use crate::model::Strategy;
pub use crate::model::objective::Objective;
use crate::plan::{Decisions, DimensionUse, Plan};
use crate::spec::nearest::meant;
use crate::system::economics::Economics;
use crate::system::options::Preset;
use crate::system::{Style, System};
use serde::Serialize;

/// Which engine decides the fusion problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// The shortest path, and the MILP where that cannot prove its answer.
    Auto,
    /// The shortest path alone.
    Exact,
    /// The shortest path, and the MILP always: the two must agree.
    Milp,
}

crate::choice! {
    /// How sharding and fusion are searched.
    pub enum Passes ("passes of the search") {
        /// Joint for a graph of at most 128 kernels under the model `flowspace`, else two passes (and the joint search where these
        /// find nothing that fits).
        Auto = "auto",
        /// All shardings of an assignment of dimensions, each with its best tiles and partitions.
        Joint = "joint",
        /// The sharding that is best by its own objective first, tiles and partitions for it after (DFModel).
        TwoPass = "two_pass",
    }
}

crate::choice! {
    /// Where the size of a microbatch comes from.
    pub enum MicroBatch ("a microbatch") {
        /// The workload states it.
        Given = "given",
        /// Searched among the divisors of a replica's samples.
        Search = "search",
    }
}

/// Sets of shardings that a search may look at: about half a minute of one core where all are looked at.
pub const JOINT_NODES: u64 = 15_000;

/// So many times as many are looked at where that closes a gap of more than [`WIDE_GAP`].
pub const JOINT_STEPS: u64 = 4;

/// A gap that is wide.
pub const WIDE_GAP: f64 = 0.01;

/// Decisions that are fixed beforehand.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pins {
    /// Use of each network dimension.
    pub uses: Option<Vec<DimensionUse>>,
    /// Strategy of each kernel.
    pub sharding: Vec<Option<Strategy>>,
    /// Partition of each kernel, by position.
    pub partition: Vec<Option<usize>>,
}

/// A plan known beforehand.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// Samples of its microbatches.
    pub micro_batch: u64,
    /// What it decides.
    pub decisions: Decisions,
}

impl From<&Plan> for Known {
    fn from(plan: &Plan) -> Self {
        Self { micro_batch: plan.workload.micro_batch, decisions: plan.decisions.clone() }
    }
}

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Why a language model is mapped as one graph, where it is one and others on this kind of system have their executions searched.
    pub as_graph: Option<String>,
    /// Degrees asked for.
    pub wanted: Wanted,
    /// Tile count asked for.
    pub tiles: Option<u64>,
    /// Most partitions.
    pub max_partitions: Option<usize>,
    /// Decisions fixed beforehand.
    pub pins: Pins,
    /// Engine of the fusion problem.
    pub engine: Engine,
    /// Solver and its limits.
    pub limits: Limits,
    /// What is minimised.
    pub objective: Objective,
    /// Prices of running the system: for the objective `cost`, and for figures in dollars.
    pub economics: Economics,
    /// How sharding and fusion are searched.
    pub passes: Passes,
    /// Most sets of shardings that the joint search looks at.
    pub joint_nodes: u64,
    /// Where the size of a microbatch comes from.
    pub micro_batch: MicroBatch,
    /// Plans to begin with: as far as one keeps to what is asked, the answer is no worse.
    pub known: Vec<Known>,
    /// What units wait for beside their partitions, in one stage and no figure of the plan: part of the value that is minimised, and of its bound.
    pub waits: Vec<Wait>,
    /// Shardings of a chain to look at first.
    pub shardings: Vec<Vec<Strategy>>,
    /// Whether any plan will do: the search ends with its first, unproven, and a point without one is not asked what would mend it.
    pub any: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            as_graph: None,
            wanted: Wanted::default(),
            tiles: None,
            max_partitions: None,
            pins: Pins::default(),
            engine: Engine::Auto,
            limits: Limits::default(),
            objective: Objective::Time,
            economics: Economics::default(),
            passes: Passes::Auto,
            joint_nodes: JOINT_NODES,
            micro_batch: MicroBatch::Given,
            known: Vec::new(),
            waits: Vec::new(),
            shardings: Vec::new(),
            any: false,
        }
    }
}

impl Request {
    /// How many sets of shardings are looked at beyond [`Request::joint_nodes`], as long as that closes a gap of more than [`WIDE_GAP`]: none where another
    /// number than the default was asked for.
    pub fn more_sets(&self) -> u64 {
        if self.joint_nodes == JOINT_NODES { (JOINT_STEPS - 1) * JOINT_NODES } else { 0 }
    }

    /// Whether sharding and fusion of a graph of so many kernels are one search.
    pub fn is_joint(&self, system: &System, kernels: usize) -> bool {
        let free = self.pins.partition.iter().all(Option::is_none) && self.max_partitions.is_none();
        let chosen = system.model.preset == Preset::Flowspace && kernels <= MOST_KERNELS && free;
        self.passes == Passes::Joint || (self.passes == Passes::Auto && chosen)
    }

    /// Whether a point that two passes call infeasible is searched jointly: their sharding does not see the memory.
    pub fn tries_jointly(&self, system: &System, kernels: usize) -> bool {
        let may = self.passes == Passes::Auto && system.model.preset == Preset::Flowspace;
        may && !self.is_joint(system, kernels)
    }
}

/// What proves the bound of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// The plan reaches the closed-form bound.
    ClosedForm,
    /// Shortest path over all ideals.
    ShortestPath,
    /// A relaxation of a wide graph: kernels covered by partitions in no order (`mapping/cover.rs`), or those that nothing waits for
    /// spread over all partitions (`mapping/relaxed.rs`).
    Relaxation,
    /// The MILP solver's bound.
    Milp,
}

/// What keeps an answer from its proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOpen {
    /// The seconds were over.
    Seconds,
    /// The user ended it.
    Interrupted,
    /// As many sets of shardings were looked at as the joint search may.
    Sets,
    /// A MILP has had its nodes.
    Nodes,
    /// The graph has more kernels, or ideals, than sets of its shardings are bounded for.
    TooLarge,
    /// The bound is a relaxation's, and nothing says that it can be reached.
    Relaxation,
    /// The search took some costs to be free.
    Blind,
}

impl LeftOpen {
    /// What a deadline that is over leaves open.
    pub fn out_of_time() -> Self {
        if is_interrupted() { Self::Interrupted } else { Self::Seconds }
    }

    /// The status of an answer that it leaves open.
    pub fn status(self) -> Status {
        match self {
            Self::Seconds => Status::TimeLimit,
            Self::Interrupted => Status::Interrupted,
            Self::Blind => Status::Blind,
            Self::Sets | Self::Nodes | Self::TooLarge | Self::Relaxation => Status::NodeLimit,
        }
    }

    /// What ended a search that has no plan.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Seconds => "no plan within the limit of seconds",
            Self::Interrupted => "no plan before the interruption",
            Self::Nodes => "no plan within the limit of nodes of a MILP",
            Self::Sets => "no plan among the sets of shardings that were looked at",
            Self::TooLarge | Self::Relaxation | Self::Blind => "no plan in the part of the space that was looked at",
        }
    }

    /// What may be done about that.
    fn advice(self, instead: Option<Change>) -> String {
        let goes_on = match self {
            Self::Seconds => Some("raise --time-limit (in a study solve.seconds)"),
            Self::Interrupted => Some("run it again, for longer"),
            Self::Nodes => Some("raise --node-limit (in a study solve.nodes)"),
            Self::Sets => Some("raise --joint-nodes (in a study solve.joint_nodes)"),
            Self::TooLarge | Self::Relaxation | Self::Blind => None,
        };
        match (instead, goes_on) {
            (Some(change), Some(goes_on)) => format!("with {change} there is one; or {goes_on}"),
            (Some(change), None) => format!("with {change} there is one"),
            (None, Some(goes_on)) => goes_on.into(),
            (None, None) => "no option goes on".into(),
        }
    }
}

/// Why a language model is mapped as one graph: settings that only graphs have, or a chip without `kernels`.
pub fn why_a_graph(settings: &[String], system: &System) -> String {
    let chip = &system.chip.0;
    if settings.is_empty() || (chip.kernels.is_none() && chip.style == Style::KernelByKernel) {
        return format!("the chip {} has no `kernels:`", chip.name);
    }
    let without = if settings.len() == 1 { "it" } else { "them" };
    format!(
        "{} of graphs; without {without} all executions are searched, which may be faster",
        match settings {
            [one] => format!("{one} is"),
            all => format!("{} are", all.join(", ")),
        }
    )
}

/// The record of an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// How the search ended.
    pub status: Status,
    /// What was minimised.
    pub objective: Objective,
    /// Its value for an iteration, in its unit.
    pub value: f64,
    /// No mapping in the space searched has a smaller value.
    pub bound: f64,
    /// What keeps it from its proof; none where it is proven as nearly as was asked for.
    pub left: Option<LeftOpen>,
    /// Prices of running the system.
    pub economics: Economics,
    /// What proves the bound.
    pub proof: Proof,
    /// Nodes of all MILPs.
    pub nodes: u64,
    /// Seconds of the search.
    pub solve_s: f64,
    /// The engine that ran: `highs` or `cbc` where a MILP was solved, else `exact`.
    pub solver: String,
    /// What solved the winner's fusion problem, and why that was taken.
    pub engine: String,
    /// Its seed.
    pub seed: u32,
    /// Whether the same inputs give the same answer: no solve was stopped by seconds.
    pub reproducible: bool,
    /// The sharding solve of the winner; objective in seconds or bytes as the model's options say.
    pub sharding: SolveRecord,
    /// The MILP solve of the winner's fusion problem, in seconds of a layer; none where its answer was known.
    pub fusion: Option<SolveRecord>,
    /// Assignments of network dimensions considered.
    pub assignments: usize,
    /// Fusion problems solved.
    pub solved: usize,
    /// Whether the bound covers every sharding of every assignment; else it holds given the one that each has.
    pub covers_sharding: bool,
    /// Sets of shardings that the joint search looked at.
    pub joint_nodes: u64,
    /// Whether it is of a language model that was mapped as one graph.
    pub as_graph: bool,
    /// Whether the memory is on chip, so that partitions and what is held shared the SRAM (`rooms.rs`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shares_sram: bool,
    /// Of a chain whose shardings are not all closed: what a unit of each block and a microbatch take at least in a mapping that is faster, in seconds, with what it waits for beside its partitions.
    pub blocks_s: Vec<f64>,
}

impl Record {
    /// (value - bound) / value.
    pub fn gap(&self) -> f64 {
        relative_gap(self.value, self.bound)
    }
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A plan and its record.
    Mapped(Box<Plan>, Box<Record>),
    /// No plan exists; why.
    Infeasible(Infeasible),
}

/// A request that cannot be answered.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MapError {
    /// The request contradicts its inputs.
    #[error("{0}")]
    Request(String),
    /// Something ended the search before it had a plan.
    #[error("{}, which does not prove that there is none: {}", left.reason(), left.advice(*instead))]
    NoPlanYet {
        /// What.
        left: LeftOpen,
        /// A change of the request with which there is a plan, where one was looked for.
        instead: Option<Change>,
    },
    /// The solver failed.
    #[error(transparent)]
    Solver(#[from] SolverError),
    /// Two computations that must agree do not: a fault of this program.
    #[error("internal error, please report it: {what}: {one} against {other}")]
    Disagreement {
        /// What was computed twice.
        what: String,
        /// One result.
        one: f64,
        /// The other.
        other: f64,
    },
}

/// The engine and solver that a word names, as `--solver` takes it.
///
/// # Errors
/// A message where there is none of that name, or not in this build.
pub fn engine_from_word(word: &str) -> Result<(Engine, Solver), String> {
    match word {
        "auto" => Ok((Engine::Auto, Solver::Highs)),
        "exact" => Ok((Engine::Exact, Solver::Highs)),
        other => match Solver::from_word(other) {
            Some(solver) if solver.is_built() => Ok((Engine::Milp, solver)),
            Some(solver) => Err(SolverError::NotBuilt(solver).to_string()),
            None => {
                let meant = meant(other, &["auto", "highs", "cbc", "exact"]);
                Err(format!("--solver {other:?}: expected auto, highs, cbc or exact{meant}"))
            }
        },
    }
}
