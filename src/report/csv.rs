//! The columns of `results.csv`, defined once: name, meaning, value. The header ends in the unit where there is one.
//!
//! A column says which of two values is better, where one is: fronts and best points follow it.
//! A row is the point's index and its label on each axis, then [`COLUMNS`], then [`TRAILING`]. Numbers are printed in
//! the shortest form that reads back as the same number. A value that a row does not have (the time of a point that
//! has no mapping) is empty.

use super::executed::{self, Executed, Placement, Served};
use super::plot::Better;
use crate::graph::Workload;
use crate::mapping::search::Record;
use crate::mapping::{Answer, Infeasible, Status};
use crate::model::rate::{HALF, chip_peak, computed_word};
use crate::model::stages;
use crate::plan::{Bottleneck, PartitionFigures, Plan};
use crate::system::budget::Fitted;
use crate::system::economics::Spent;
use crate::system::price::ByPart;
use crate::system::{Die, System, price};
use csv::StringRecord;
use std::fmt::Write as _;

/// How a point ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A plan and the record of its search.
    Mapped(Box<Plan>, Box<Record>),
    /// The best execution of a language model.
    Executed(Box<Executed>),
    /// The best layout for serving a language model.
    Served(Box<Served>),
    /// The best placement of actors on cores.
    Placed(Box<Placement>),
    /// No plan exists.
    Infeasible(Infeasible),
    /// The point could not be solved, and why.
    Failed(String),
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Mapped(plan, record) => Self::Mapped(plan, record),
            Answer::Infeasible(reason) => Self::Infeasible(reason),
        }
    }
}

/// What a row is made from.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The workload, unless it could not be built.
    pub workload: Option<&'a Workload>,
    /// The system, unless it could not be built.
    pub system: Option<&'a System>,
    /// How the system was fitted to a budget, where there is one.
    pub fitted: Option<&'a Fitted>,
    /// How the point ended.
    pub outcome: &'a Outcome,
}

/// A column of the results.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its header; it ends in the unit where there is one.
    pub name: &'static str,
    /// What it holds.
    pub doc: &'static str,
    /// Which of two values is better; `None` where neither is (a choice, a size, a resource that is given).
    pub better: Option<Better>,
    value: Source,
}

/// Where a value comes from. Only mapped points have the values of a plan.
#[derive(Debug, Clone, Copy)]
enum Source {
    Text(fn(&Facts<'_>) -> Option<String>),
    Number(fn(&Facts<'_>) -> Option<f64>),
    SystemText(fn(&System) -> String),
    SystemNumber(fn(&Priced<'_>) -> Option<f64>),
    PlanText(fn(&Plan, &Record) -> String),
    PlanNumber(fn(&Plan, &Record) -> f64),
}

/// A system with what it costs and draws, summed once a row.
struct Priced<'a> {
    system: &'a System,
    cost: ByPart,
    power: ByPart,
    die: Option<Die>,
}

impl<'a> Priced<'a> {
    fn of(system: &'a System) -> Self {
        Self { system, cost: price::cost(system), power: price::power(system), die: Die::of(system) }
    }
}

const fn text(name: &'static str, doc: &'static str, value: fn(&Facts<'_>) -> Option<String>) -> Column {
    Column { name, doc, better: None, value: Source::Text(value) }
}
const fn figure(name: &'static str, doc: &'static str, value: fn(&Facts<'_>) -> Option<f64>) -> Column {
    Column { name, doc, better: None, value: Source::Number(value) }
}
const fn system_text(name: &'static str, doc: &'static str, value: fn(&System) -> String) -> Column {
    Column { name, doc, better: None, value: Source::SystemText(value) }
}
const fn system(name: &'static str, doc: &'static str, value: fn(&Priced<'_>) -> Option<f64>) -> Column {
    Column { name, doc, better: None, value: Source::SystemNumber(value) }
}
const fn plan_text(name: &'static str, doc: &'static str, value: fn(&Plan, &Record) -> String) -> Column {
    Column { name, doc, better: None, value: Source::PlanText(value) }
}
const fn plan(name: &'static str, doc: &'static str, value: fn(&Plan, &Record) -> f64) -> Column {
    Column { name, doc, better: None, value: Source::PlanNumber(value) }
}

impl Column {
    /// The column with larger values as the better ones.
    const fn higher(self) -> Self {
        Self { better: Some(Better::Higher), ..self }
    }

    /// The column with smaller values as the better ones.
    const fn lower(self) -> Self {
        Self { better: Some(Better::Lower), ..self }
    }

    /// Whether it says something of the system alone.
    pub fn is_of_system(&self) -> bool {
        matches!(self.value, Source::SystemText(_) | Source::SystemNumber(_))
    }

    /// Whether it holds numbers.
    pub fn is_number(&self) -> bool {
        matches!(self.value, Source::Number(_) | Source::SystemNumber(_) | Source::PlanNumber(_))
    }
}

/// Status word of a point without a plan because none exists.
pub const INFEASIBLE: &str = "infeasible";
/// Status word of a point that could not be solved.
pub const FAILED: &str = "failed";
/// Separates the partitions of a point.
pub const BETWEEN_PARTITIONS: char = '|';

/// The columns between the labels of the axes and [`TRAILING`].
pub const COLUMNS: &[Column] = &[
    text("workload", "Name of the workload.", |f| f.workload.map(|w| w.name.clone())),
    system_text("system", "Name of the system.", |s| s.name.clone()),
    system_text("chip_name", "Name of the chip.", |s| s.chip.0.name.clone()),
    system_text("memory_name", "Name of the memory beside each chip.", |s| s.memory.0.name.clone()),
    system_text("topology_name", "Arrangement of the network's dimensions.", |s| s.network.topology.to_string()),
    system("chips", "Number of chips.", |s| Some(s.system.chip_count() as f64)).lower(),
    text(
        "status",
        "`optimal` (proven within the gap asked for), `time_limit` or `node_limit` (the best plan found, its gap beside \
         it), `blind` (chosen by a search that did not see everything), `infeasible` (no plan exists), `failed` (the point could not be solved).",
        |f| Some(status(f.outcome)),
    ),
    text("reason", "Why the point has no plan; empty where it has one.", |f| match f.outcome {
        Outcome::Mapped(..) | Outcome::Executed(_) | Outcome::Served(_) | Outcome::Placed(_) => None,
        Outcome::Infeasible(reason) => Some(one_line(&reason.to_string())),
        Outcome::Failed(reason) => Some(one_line(reason)),
    }),
    text("short_of", "Infeasible points: what is short (`dram`, `sram`, `layers`, `batch`, ...).", |f| {
        short(f).map(|i| i.resource.clone())
    }),
    figure("short_needed", "Infeasible points: how much is needed.", |f| short(f).map(|i| i.needed)),
    figure("short_available", "Infeasible points: how much there is.", |f| short(f).map(|i| i.available)),
    text("short_unit", "Infeasible points: unit of the two.", |f| short(f).map(|i| i.unit.clone())),
    text("short_remedy", "Infeasible points: what would mend it.", |f| short(f).map(|i| one_line(&i.remedy))),
    plan("used_chips", "Executions: chips that take part; price, power, energy and `utilization` are over all of `chips`.", |_, _| f64::NAN),
    plan("tp", "Tensor parallelism: chips that share each kernel.", |p, _| p.figures.tp as f64),
    plan("pp", "Pipeline parallelism: stages.", |p, _| p.figures.pp as f64),
    plan("dp", "Data parallelism: replicas.", |p, _| p.figures.dp as f64),
    plan_text("network_use", "TP x PP x DP along each network dimension, innermost first.", |p, _| {
        let uses = p.decisions.uses.iter().map(|u| format!("{}x{}x{}", u.tp, u.pp, u.dp));
        uses.collect::<Vec<_>>().join("|")
    }),
    plan_text(
        "process_grid",
        "Rows x columns of the process grid of a workload that one shares; else empty.",
        |p, _| {
            let (rows, cols) = p.decisions.grid();
            if p.workload.is_spread() { format!("{rows}x{cols}") } else { String::new() }
        },
    ),
    plan("tile_count", "Tiles that a sample is cut into.", |p, _| p.decisions.tiles as f64),
    plan_text("weights_on_chip", "Whether a stage's weights stay on chip for the whole iteration.", |p, _| {
        p.decisions.weights_on_chip.to_string()
    }),
    plan("micro_batch", "Samples of one microbatch.", |p, _| p.workload.micro_batch as f64),
    plan("microbatches", "Microbatches of one replica in an iteration.", |p, _| p.figures.iteration.microbatches),
    plan_text("stage_layers", "Layers of each pipeline stage, runs of equal ones together: `25x2+26x3`.", |p, _| {
        stages::in_words(&p.decisions.stages)
    }),
    plan(
        "slowest_stage_s",
        "Time of one microbatch on the pipeline stage that takes longest, with its hand-over.",
        |p, _| stages::slowest(&p.figures.stages).map_or(0.0, |(_, s)| s.time_s()),
    ).lower(),
    plan("partitions", "Partitions of a layer, run one after another.", |p, _| p.figures.partitions.len() as f64),
    plan("iteration_s", "Time of one iteration.", |p, _| p.figures.iteration_s()).lower(),
    plan("gap", "(`objective` - `bound`) / `objective`.", |_, r| r.gap()).lower(),
    plan_text("proof", "What proves the bound: `closed_form`, `shortest_path`, `relaxation` or `milp`.", |_, r| {
        word(&r.proof)
    }),
    text(
        "mapped_as",
        "What a language model was taken for: `executions` (all of them are searched), `layouts` (that serve it) or `graph` (one graph: 1F1B, nothing computed again, no ZeRO; of serving one step of one token); empty for other workloads.",
        |f| match f.outcome {
            Outcome::Executed(_) => Some("executions".into()),
            Outcome::Served(_) => Some("layouts".into()),
            Outcome::Mapped(_, record) if record.as_graph => Some("graph".into()),
            _ => None,
        },
    ),
    plan_text(
        "covers_sharding",
        "Whether the bound is over all shardings; else it holds given the sharding of each assignment.",
        |_, r| r.covers_sharding.to_string(),
    ),
    plan("samples_per_s", "Throughput of the whole system.", |p, _| throughput(p)).higher(),
    plan("utilization", "FLOP of an iteration over what all chips could compute in its time.", |p, _| {
        p.figures.utilization
    }).higher(),
    plan("flop_per_iteration", "FLOP of one iteration, all chips; of executions of language models the model's own, as in `utilization`.", |p, _| p.figures.flop_per_iteration),
    plan("flop_per_s", "FLOP/s of the whole system.", |p, _| flop_rate(p)).higher(),
    plan("flop_per_s_per_usd", "FLOP/s per dollar of price.", |p, _| flop_rate(p) / p.figures.cost.known()).higher(),
    plan("flop_per_s_per_w", "FLOP/s per watt at full use.", |p, _| flop_rate(p) / p.figures.power.known()).higher(),
    plan("layer_s", "Time of one pass over one layer on one chip: the sum over its partitions.", |p, _| {
        p.figures.layer_s
    }).lower(),
    plan("compute_s", "Arithmetic of a layer pass, sum over the partitions.", |p, _| sum(p, |x| x.compute_s)).lower(),
    plan("dram_s", "DRAM traffic of a layer pass, sum over the partitions.", |p, _| sum(p, |x| x.dram_s)).lower(),
    plan("network_s", "Collectives of a layer pass, sum over the partitions.", |p, _| sum(p, |x| x.network_s)).lower(),
    plan("overhead_s", "Launches and set-up of a layer pass, sum over the partitions.", |p, _| {
        sum(p, |x| x.overhead_s)
    }).lower(),
    plan_text("bottleneck", "What limits the partitions for most of a layer pass.", |p, _| bottleneck(p).word().into()),
    plan("work_s", "Part of the iteration in which stages work.", |p, _| p.figures.iteration.work_s).lower(),
    plan("bubble_s", "Part of the iteration in which a stage waits for the pipeline.", |p, _| {
        p.figures.iteration.bubble_s
    }).lower(),
    plan("p2p_s", "Part of the iteration for transfers between stages.", |p, _| p.figures.iteration.p2p_s).lower(),
    plan("gradient_s", "Part of the iteration for the reduction of gradients that nothing hides.", |p, _| {
        p.figures.iteration.gradient_s
    }).lower(),
    plan("optimizer_s", "Part of the iteration for the optimiser.", |p, _| p.figures.iteration.optimizer_s).lower(),
    plan("weights_bytes", "DRAM of one chip: weights.", |p, _| p.figures.memory.weights).lower(),
    plan("gradients_bytes", "DRAM of one chip: gradients.", |p, _| p.figures.memory.gradients).lower(),
    plan("optimizer_bytes", "DRAM of one chip: optimiser states.", |p, _| p.figures.memory.optimizer).lower(),
    plan("activations_bytes", "DRAM of one chip: activations kept for the backward pass.", |p, _| {
        p.figures.memory.activations
    }).lower(),
    plan("held_bytes", "DRAM of one chip: its share of embedding tables or of the matrix.", |p, _| {
        p.figures.memory.held
    }).lower(),
    plan("caches_bytes", "DRAM of one chip: caches kept for the next iteration.", |p, _| p.figures.memory.caches).lower(),
    plan("live_bytes", "DRAM of one chip: tensors that wait between partitions, at most.", |p, _| {
        p.figures.memory.live
    }).lower(),
    plan("total_bytes", "DRAM of one chip: all of these, and of executions `other_bytes`.", |p, _| p.figures.memory.total()).lower(),
    system("capacity_bytes", "DRAM that one chip has; empty without limit.", |s| {
        s.system.memory.0.capacity.map(|c| c.0)
    }),
    plan("sram_peak_bytes", "On-chip memory of the partition that uses most.", |p, _| {
        p.figures.sram_bytes()
    }).lower(),
    plan("layer_flop", "FLOP of one chip in a layer pass.", |p, _| sum(p, |x| x.flop)),
    plan("layer_dram_bytes", "DRAM traffic of one chip in a layer pass.", |p, _| sum(p, |x| x.dram_bytes)).lower(),
    figure("peak_flop_per_s", "Matrix peak of one chip for the words of the workload.", |f| {
        f.system.map(|s| chip_peak(&s.chip.0, &s.model, f.workload.map_or(HALF, computed_word)))
    }),
    system("dram_bytes_per_s", "Memory bandwidth of one chip.", |s| Some(s.system.memory.0.bandwidth.0)),
    system("cost_usd", "Price of the system; this and what follows from it are empty where the chips state none ($0).", |s| Some(s.cost.known())).lower(),
    system("chips_usd", "Price of its chips.", |s| part(&s.cost, s.cost.chips)).lower(),
    system("memory_usd", "Price of its memories.", |s| part(&s.cost, s.cost.memory)).lower(),
    system("links_usd", "Price of its links.", |s| part(&s.cost, s.cost.links)).lower(),
    system("switches_usd", "Price of its switches and routers.", |s| part(&s.cost, s.cost.switches)).lower(),
    system("power_w", "Power of the system at full use; this and what follows from it are empty where the chips state none (0 W).", |s| Some(s.power.known())).lower(),
    system("chips_w", "Power of its chips.", |s| part(&s.power, s.power.chips)).lower(),
    system("memory_w", "Power of its memories.", |s| part(&s.power, s.power.memory)).lower(),
    system("links_w", "Power of its links.", |s| part(&s.power, s.power.links)).lower(),
    system("switches_w", "Power of its switches and routers.", |s| part(&s.power, s.power.switches)).lower(),
    system("die_mm2", "Area of the die of a chip; this and the next are empty where the chip's price and power are stated and not summed from its parts.", |s| s.die.as_ref().map(|die| die.mm2)).lower(),
    system("package_w", "Power of one chip at full use with the stacks of memory beside it.", |s| s.die.as_ref().map(Die::package_w)).lower(),
    // Free systems have no throughput by price: a division by zero is printed as nothing.
    plan("samples_per_s_per_musd", "Throughput per million dollars of price.", |p, _| {
        throughput(p) / (p.figures.cost.known() / 1e6)
    }).higher(),
    plan("samples_per_s_per_mw", "Throughput per megawatt.", |p, _| throughput(p) / (p.figures.power.known() / 1e6)).higher(),
    plan("nodes", "Branch-and-bound nodes of all solves.", |_, r| r.nodes as f64).lower(),
    plan_text("solver", "The engine that ran: `highs` or `cbc` where a MILP was solved, else `exact`.", |_, r| {
        r.solver.clone()
    }),
    plan("seed", "Random seed of the solver.", |_, r| f64::from(r.seed)),
    plan_text(
        "reproducible",
        "`false` where a solve was stopped by seconds: another run may end with another plan.",
        |_, r| r.reproducible.to_string(),
    ),
    plan_text("fusion_mapping", "Kernels of each partition, `A+B|C`.", |p, _| {
        join(p, |out, x| separated(out, &x.kernels, "+", |out, name| out.push_str(name)))
    }),
    plan_text(
        "partition_times_s",
        "Seconds of compute/DRAM/network/overhead of each partition in a layer pass, `c/d/n/o|...`.",
        |p, _| {
            join(p, |out, x| {
                separated(out, &[x.compute_s, x.dram_s, x.network_s, x.overhead_s], "/", |out, s| push_number(out, *s));
            })
        },
    ),
    plan_text("sharding", "Strategy of each kernel, `A:outer;B:m`.", |p, _| {
        let kernels: Vec<_> = p.workload.kernels.iter().zip(&p.decisions.sharding).collect();
        let mut out = String::new();
        separated(&mut out, &kernels, ";", |out, (kernel, strategy)| {
            [kernel.name.as_str(), ":", strategy.word()].into_iter().for_each(|text| out.push_str(text));
        });
        out
    }),
    plan_text("minimized", "What the search minimised: `time`, `energy` or `cost` of an iteration.", |_, r| {
        r.objective.to_string()
    }),
    plan("objective", "Its value.", |_, r| r.value).lower(),
    plan("bound", "No mapping in the space searched has a smaller value.", |_, r| r.bound).lower(),
    plan_text("objective_unit", "Unit of the two: `s`, `J` or `$`.", |_, r| r.objective.unit().into()),
    plan("energy_j", "Energy of an iteration, all parts, idle power included.", |p, _| energy(p)).lower(),
    plan("energy_chips_j", "Energy of an iteration: chips.", |p, _| energy_part(p, p.figures.energy.parts().chips)).lower(),
    plan("energy_memory_j", "Energy of an iteration: memories.", |p, _| energy_part(p, p.figures.energy.parts().memory)).lower(),
    plan("energy_links_j", "Energy of an iteration: links.", |p, _| energy_part(p, p.figures.energy.parts().links)).lower(),
    plan("energy_switches_j", "Energy of an iteration: switches and routers.", |p, _| {
        energy_part(p, p.figures.energy.parts().switches)
    }).lower(),
    plan("energy_idle_j", "What of the energy is drawn whatever the system does.", |p, _| {
        energy_part(p, p.figures.energy.idle.total())
    }).lower(),
    plan("mean_power_w", "Energy of an iteration over its time.", |p, _| {
        energy(p) / p.figures.iteration_s()
    }).lower(),
    plan("j_per_sample", "Energy by sample.", |p, _| energy_part(p, p.figures.j_per_sample(&p.workload))).lower(),
    plan("j_per_token", "Energy by token; empty where a sample has no tokens.", |p, _| {
        p.figures.j_per_token(&p.workload).map_or(f64::NAN, |joules| energy_part(p, joules))
    }).lower(),
    plan("tokens_per_s", "Throughput in tokens; empty where a sample has none.", |p, _| tokens(p)).higher(),
    plan("tokens_per_s_per_usd", "Throughput in tokens per dollar of price.", |p, _| {
        tokens(p) / p.figures.cost.known()
    }).higher(),
    plan(
        "tokens_per_s_per_w",
        "Throughput in tokens per watt of power at full use (per watt drawn: 1 / j_per_token).",
        |p, _| tokens(p) / p.figures.power.known(),
    ).higher(),
    plan("iteration_usd", "Dollars of an iteration: price of the system written off, and electricity.", |p, r| {
        spent(p, r).total()
    }).lower(),
    plan("iteration_capital_usd", "Of it, the share of the system's price that wears off.", |p, r| spent(p, r).capital).lower(),
    plan("iteration_energy_usd", "Of it, electricity.", |p, r| spent(p, r).energy).lower(),
    plan("run_iterations", "Iterations of the run that `solve.economics` states, not rounded.", |p, r| {
        iterations(p, r)
    }),
    plan("run_s", "Time of the run.", |p, r| iterations(p, r) * p.figures.iteration_s()).lower(),
    plan("run_kwh", "Energy of the run, without the facility's factor.", |p, r| {
        iterations(p, r) * energy(p) / 3.6e6
    }).lower(),
    plan("run_usd", "Dollars of the run.", |p, r| iterations(p, r) * spent(p, r).total()).lower(),
    text("budget_kind", "What `solve.budget` holds equal: `cost`, `power` or `chips`; empty without a budget.", |f| {
        f.fitted.map(|b| b.kind.word().to_string())
    }),
    figure("budget_limit", "The budget, in dollars, watts or chips.", |f| f.fitted.map(|b| b.limit)),
    figure("budget_used", "What of it the system takes.", |f| f.fitted.map(|b| b.used)).lower(),
    figure("scaled_dimension", "Position of the network dimension that was scaled to the budget, from 0.", |f| {
        f.fitted.and_then(|b| b.dimension).map(|d| d as f64)
    }),
    figure("scaled_size", "The size it was given; `chips` is the number of chips that this makes.", |f| {
        f.fitted.map(|b| b.size as f64)
    }),
    plan("cp", "Executions: context parallelism.", |_, _| f64::NAN),
    plan("ep", "Executions: expert parallelism.", |_, _| f64::NAN),
    plan_text("schedule", "Executions: schedule of the pipeline.", |_, _| String::new()),
    plan("chunks", "Executions: pieces of layers a stage holds.", |_, _| f64::NAN),
    plan_text("recompute", "Executions: what is computed again.", |_, _| String::new()),
    plan_text(
        "sequence_parallel",
        "Executions: whether norms and sums are divided among tensor-parallel chips.",
        |_, _| String::new(),
    ),
    plan_text("zero", "Executions: stage of ZeRO.", |_, _| String::new()),
    plan_text("offload", "Executions: what lies in the second memory tier.", |_, _| String::new()),
    plan_text("overlap_dp", "Executions: whether the reduction of gradients runs beside the backward pass.", |_, _| {
        String::new()
    }),
    plan_text("overlap_tp", "Executions: whether tensor-parallel collectives run beside products.", |_, _| {
        String::new()
    }),
    plan(
        "hardware_utilization",
        "Executions: executed FLOP of products over what all chips could compute (`utilization` counts the model's own).",
        |_, _| f64::NAN,
    ).higher(),
    plan("forward_s", "Executions: part of the iteration for forward passes, without what is waited for.", |_, _| f64::NAN).lower(),
    plan("backward_s", "Executions: part of the iteration for backward passes, without what is computed again or waited for; with the other parts (`bubble_s`, `p2p_s`, `gradient_s`, `optimizer_s`, `recompute_s`, `exposed_*_s`, `host_s`, `offload_s`) it adds up to `iteration_s`.", |_, _| f64::NAN).lower(),
    plan("recompute_s", "Executions: part of the iteration for what is computed again.", |_, _| f64::NAN).lower(),
    plan("exposed_tp_s", "Executions: tensor-parallel communication that is waited for.", |_, _| f64::NAN).lower(),
    plan("exposed_cp_s", "Executions: context-parallel communication that is waited for.", |_, _| f64::NAN).lower(),
    plan("exposed_ep_s", "Executions: expert-parallel communication that is waited for.", |_, _| f64::NAN).lower(),
    plan("hidden_s", "Executions: communication beside other work.", |_, _| f64::NAN),
    plan("host_s", "Executions: part of the iteration in which chips wait for host code.", |_, _| f64::NAN).lower(),
    plan("offload_s", "Executions: traffic to the second memory tier that is waited for.", |_, _| f64::NAN).lower(),
    plan("other_bytes", "Executions: DRAM of one chip for what kernels work in, the head, and buffers and reserve of the software.", |_, _| f64::NAN).lower(),
    plan("second_tier_bytes", "Executions: second memory tier of one chip.", |_, _| f64::NAN).lower(),
    plan("executions", "Executions, serving: how many the search covered.", |_, _| f64::NAN),
    plan_text(
        "software",
        "Executions: whose shardings and fusions the row stands for: the stack's name, `generic` or `ideal` software, or `free`: the best mapping.",
        |_, _| String::new(),
    ),
    plan("software_iteration_s", "With solve.difference: seconds of an iteration by the software that there is.", |_, _| f64::NAN).lower(),
    plan("saved_host_s", "Of the difference to what is possible: host code.", |_, _| f64::NAN),
    plan("saved_fusion_s", "Of the difference to what is possible: attention kernel, fusions, and what kernels are short of the best known.", |_, _| f64::NAN),
    plan("saved_sharding_s", "Of the difference to what is possible: dividing matrices or tokens otherwise.", |_, _| f64::NAN),
    plan("saved_overlap_s", "Of the difference to what is possible: overlap.", |_, _| f64::NAN),
    plan("saved_recomputation_s", "Of the difference to what is possible: computing other things again.", |_, _| f64::NAN),
    plan("saved_schedule_s", "Of the difference to what is possible: another schedule.", |_, _| f64::NAN),
    plan("saved_degrees_s", "Of the difference to what is possible: other degrees, microbatch and the rest.", |_, _| f64::NAN),
    plan("saved_mapping_s", "Of the difference to what is possible: the mapping of graphs and all decisions together, on dataflow chips.", |_, _| f64::NAN),
    plan(
        "error_band_pct",
        "Executions, serving: measured mean absolute error of predictions of this class (validation/bounds.yaml).",
        |_, _| f64::NAN,
    ).lower(),
    plan("served_batch", "Serving: sequences of the batch.", |_, _| f64::NAN),
    plan("served_at_once", "Serving: sequences that fit the memory at once, all replicas together.", |_, _| f64::NAN).higher(),
    plan("ttft_s", "Serving: time to the first token, in the first wave.", |_, _| f64::NAN).lower(),
    plan("last_ttft_s", "Serving: the same of the sequence that waits longest.", |_, _| f64::NAN).lower(),
    plan("tpot_s", "Serving: time for each further token, mean over the answer.", |_, _| f64::NAN).lower(),
    plan("last_tpot_s", "Serving: time for the last token.", |_, _| f64::NAN).lower(),
    plan(
        "generated_per_s",
        "Serving: generated tokens a second; empty where nothing is generated (tokens_per_s has the prompts).",
        |_, _| f64::NAN,
    ).higher(),
    plan("generated_per_s_per_chip", "Serving: the same by chip.", |_, _| f64::NAN).higher(),
    plan("generated_per_s_per_usd", "Serving: the same by dollar of price.", |_, _| f64::NAN).higher(),
    plan("generated_per_s_per_w", "Serving: the same by watt at full use.", |_, _| f64::NAN).higher(),
    plan("j_per_generated_token", "Serving: energy of the batch by generated token.", |_, _| f64::NAN).lower(),
    plan_text("place_cores_name", "Placements: name of the cores.", |_, _| String::new()),
    plan("place_cores", "Placements: cores there are.", |_, _| f64::NAN),
    plan("place_cores_used", "Placements: cores that hold an actor.", |_, _| f64::NAN).lower(),
    plan("place_actors", "Placements: actors of all replicas.", |_, _| f64::NAN),
    plan("place_replicas", "Placements: copies of the graph.", |_, _| f64::NAN),
    plan("place_bottleneck_s", "Placements: firings of the slowest core in an iteration.", |_, _| f64::NAN).lower(),
    plan("place_imbalance", "Placements: largest over mean load of the cores.", |_, _| f64::NAN).lower(),
    plan("place_across_s", "Placements: all transfers between cores.", |_, _| f64::NAN).lower(),
    plan("place_cut_bytes", "Placements: bytes between cores in an iteration.", |_, _| f64::NAN).lower(),
    plan("place_latency_s", "Placements: one iteration alone, from its first firing to its last.", |_, _| f64::NAN).lower(),
];

/// Name and meaning of the first column.
pub const LEADING: (&str, &str) = ("point", "Index of the point in the grid, from 0; the last axis is the fastest.");

/// Names and meanings of the last columns.
pub const TRAILING: [(&str, &str); 3] = [
    ("study", "Name of the study."),
    ("heatmap", "Heat maps of the study, `rows;columns;values;panels;figures`, names joined by `+`."),
    ("key", "Hash of everything the row depends on: workload, system, solve settings, version of the model."),
];

/// Whether every results file has a column of this name, so that no axis can.
pub fn is_fixed(name: &str) -> bool {
    name == LEADING.0 || COLUMNS.iter().any(|c| c.name == name) || TRAILING.iter().any(|(n, _)| *n == name)
}

/// Which values of a column of the results are better; `None` for other columns and where neither is.
pub fn better(name: &str) -> Option<Better> {
    COLUMNS.iter().find(|column| column.name == name).and_then(|column| column.better)
}

/// The values of [`COLUMNS`] for one point.
pub fn values(facts: &Facts<'_>) -> StringRecord {
    let mut record = StringRecord::with_capacity(16 << 10, COLUMNS.len());
    let priced = facts.system.map(Priced::of);
    let mapped = match facts.outcome {
        Outcome::Mapped(plan, record) => Some((plan.as_ref(), record.as_ref())),
        _ => None,
    };
    // The text of a number.
    let mut digits = String::new();
    for column in COLUMNS {
        if let Source::PlanText(_) | Source::PlanNumber(_) = column.value {
            let value = match (facts.outcome, facts.system) {
                (Outcome::Executed(x), Some(system)) => Some(executed::value(column.name, x, system)),
                (Outcome::Served(x), Some(system)) => Some(executed::served(column.name, x, system)),
                (Outcome::Placed(x), _) => Some(executed::placed(column.name, x)),
                _ => None,
            };
            if let Some(value) = value {
                record.push_field(&value.unwrap_or_default());
                continue;
            }
        }
        let figure = match column.value {
            Source::Text(f) => {
                record.push_field(&f(facts).unwrap_or_default());
                continue;
            }
            Source::SystemText(f) => {
                record.push_field(&facts.system.map(f).unwrap_or_default());
                continue;
            }
            Source::PlanText(f) => {
                record.push_field(&mapped.map(|(plan, record)| f(plan, record)).unwrap_or_default());
                continue;
            }
            Source::Number(f) => f(facts),
            Source::SystemNumber(f) => priced.as_ref().and_then(f),
            Source::PlanNumber(f) => mapped.map(|(plan, record)| f(plan, record)),
        };
        digits.clear();
        if let Some(figure) = figure {
            push_number(&mut digits, figure);
        }
        record.push_field(&digits);
    }
    record
}

/// The columns of what a system states whose smaller values are better: they need no plan.
pub fn given_columns() -> impl Iterator<Item = &'static str> {
    let given = COLUMNS.iter().filter(|c| matches!(c.value, Source::SystemNumber(_)) && c.better.is_some());
    given.map(|c| c.name)
}

/// The value of one of [`given_columns`] for a system.
pub fn of_system(column: &str, system: &System) -> Option<f64> {
    match COLUMNS.iter().find(|c| c.name == column)?.value {
        Source::SystemNumber(f) => f(&Priced::of(system)),
        _ => None,
    }
}

/// The column reference as a Markdown table.
pub fn reference() -> String {
    let mut out = String::from("| column | better | meaning |\n|---|---|---|\n");
    let mut row = |name: &str, better: Option<Better>, doc: &str| {
        let better = better.map_or("", Better::word);
        out.push_str(&format!("| `{name}` | {better} | {} |\n", doc.replace('|', "\\|")));
    };
    row(LEADING.0, None, LEADING.1);
    row("<axis>", None, "One column for each axis of the study: the point's label on it.");
    COLUMNS.iter().for_each(|column| row(column.name, column.better, column.doc));
    TRAILING.iter().for_each(|(name, doc)| row(name, None, doc));
    out
}

/// A number in the shortest form that reads back as the same; not finite: empty.
pub fn number(value: f64) -> String {
    let mut out = String::new();
    push_number(&mut out, value);
    out
}

/// Adds the text of [`number`].
fn push_number(out: &mut String, value: f64) {
    let size = value.abs();
    // Writing to a String cannot fail.
    let _ = if !value.is_finite() {
        Ok(())
    } else if size == 0.0 || (1e-4..1e15).contains(&size) {
        write!(out, "{value}")
    } else {
        write!(out, "{value:e}")
    };
}

fn status(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Mapped(_, record) => record.status.to_string(),
        Outcome::Executed(x) => x.found.status().to_string(),
        Outcome::Served(x) if x.stopped => Status::out_of_time().to_string(),
        Outcome::Served(_) => Status::Optimal.to_string(),
        Outcome::Placed(x) => x.best.status.to_string(),
        Outcome::Infeasible(_) => INFEASIBLE.to_string(),
        Outcome::Failed(_) => FAILED.to_string(),
    }
}

fn throughput(plan: &Plan) -> f64 {
    plan.figures.samples_per_s(&plan.workload)
}

/// Tokens a second; not a number where a sample has none.
fn tokens(plan: &Plan) -> f64 {
    plan.figures.tokens_per_s(&plan.workload).unwrap_or(f64::NAN)
}

/// Joules of an iteration; not a number where the power of the chips is not known.
fn energy(plan: &Plan) -> f64 {
    energy_part(plan, plan.figures.energy.total())
}

/// Joules of an iteration that are part of [`energy`].
fn energy_part(plan: &Plan, joules: f64) -> f64 {
    plan.figures.power.if_known(joules)
}

/// What a kind of part costs or draws: nothing is no number where the chips state none.
fn part(whole: &ByPart, part: f64) -> Option<f64> {
    (part > 0.0 || whole.known().is_finite()).then_some(part)
}

fn spent(plan: &Plan, record: &Record) -> Spent {
    let f = &plan.figures;
    record.economics.iteration(f.cost.known(), f.iteration_s(), energy(plan))
}

/// Iterations of the run; not a number where none is stated.
fn iterations(plan: &Plan, record: &Record) -> f64 {
    record
        .economics
        .run
        .and_then(|run| run.iterations(plan.workload.global_batch, plan.workload.tokens_per_sample))
        .unwrap_or(f64::NAN)
}

fn flop_rate(plan: &Plan) -> f64 {
    plan.figures.flop_per_iteration / plan.figures.iteration_s()
}

fn sum(plan: &Plan, part: fn(&PartitionFigures) -> f64) -> f64 {
    plan.figures.partitions.iter().map(part).sum()
}

/// What limits the partitions for most of the layer's time; of equals the first in the order of the enumeration.
fn bottleneck(plan: &Plan) -> Bottleneck {
    let kinds = [Bottleneck::Compute, Bottleneck::Dram, Bottleneck::Network, Bottleneck::Overhead];
    let mut best = (Bottleneck::Compute, 0.0);
    for kind in kinds {
        let limited = plan.figures.partitions.iter().filter(|p| p.bottleneck() == kind);
        let seconds = limited.map(|p| p.time_s).sum::<f64>();
        if seconds > best.1 {
            best = (kind, seconds);
        }
    }
    best.0
}

fn short<'a>(facts: &Facts<'a>) -> Option<&'a Infeasible> {
    match facts.outcome {
        Outcome::Infeasible(reason) => Some(reason),
        _ => None,
    }
}

/// What `add` writes of each partition.
fn join(plan: &Plan, add: fn(&mut String, &PartitionFigures)) -> String {
    let mut out = String::new();
    separated(&mut out, &plan.figures.partitions, BETWEEN_PARTITIONS.encode_utf8(&mut [0; 4]), add);
    out
}

/// Adds what `add` writes of each item, with `between` between them.
fn separated<T>(out: &mut String, items: &[T], between: &str, add: impl Fn(&mut String, &T)) {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(between);
        }
        add(out, item);
    }
}

/// The word that serde writes for a value of an enumeration.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// A text without line breaks: one line of the file is one point.
fn one_line(text: &str) -> String {
    text.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_exactly() {
        let values =
            [0.0, 1.0, 0.1, -2.5, 1e-300, 5e-324, 1.7976931348623157e308, 123456789.125, 1.0 / 3.0, 1e15, 1e-4];
        for value in values {
            assert_eq!(number(value).parse::<f64>(), Ok(value), "{}", number(value));
        }
        assert_eq!(number(f64::NAN), "");
        assert_eq!(number(f64::INFINITY), "");
        assert_eq!(number(25600.0), "25600");
        assert_eq!(number(1.5e-7), "1.5e-7");
    }

    #[test]
    fn names_are_unique_and_documented() {
        let mut names: Vec<&str> = COLUMNS.iter().map(|c| c.name).chain(TRAILING.map(|t| t.0)).collect();
        names.push(LEADING.0);
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(COLUMNS.iter().all(|c| c.doc.ends_with('.')));
        assert_eq!(reference().lines().count(), count + 3);
    }

    /// Rates by time, price, power are better when higher, what is spent (seconds, dollars, joules, watts, bytes) when lower.
    #[test]
    fn every_column_states_a_direction_that_its_unit_has() {
        // Resources that are given, and what is neither spent nor gained.
        let neither = ["peak_flop_per_s", "dram_bytes_per_s", "capacity_bytes", "hidden_s"];
        for column in COLUMNS {
            let name = column.name;
            let rate = name.ends_with("_per_s") || name.contains("_per_s_") || name.ends_with("utilization");
            let spent = ["_s", "_usd", "_j", "_w", "_kwh", "_bytes"].iter().any(|unit| name.ends_with(unit));
            if !column.is_number() || neither.contains(&name) || name.starts_with("saved_") {
                assert_eq!(column.better, None, "{name}");
            } else if rate {
                assert_eq!(column.better, Some(Better::Higher), "{name}");
            } else if spent {
                assert_eq!(column.better, Some(Better::Lower), "{name}");
            }
        }
        assert_eq!(better("tokens_per_s"), Some(Better::Higher));
        assert_eq!(better("flop_per_s_per_w"), Some(Better::Higher));
        assert_eq!(better("j_per_token"), Some(Better::Lower));
        assert_eq!((better("tp"), better("my_column")), (None, None));
        assert!(reference().contains("| `flop_per_s` | higher |"));
    }

    #[test]
    fn a_failed_point_has_a_reason_and_no_figures() {
        let outcome = Outcome::Failed("first\n  second\n".into());
        let row = values(&Facts { workload: None, system: None, fitted: None, outcome: &outcome });
        let get = |name: &str| row.get(COLUMNS.iter().position(|c| c.name == name).unwrap()).unwrap();
        assert_eq!((get("status"), get("reason"), get("iteration_s")), ("failed", "first; second", ""));
        assert_eq!(row.len(), COLUMNS.len());
    }
}
