//! What an answer proves, in one sentence: over which space, what was given beforehand, or what is left open and which option closes
//! it. Text, JSON and `explain` take it from here.

use crate::deadline::is_interrupted;
use crate::execution::search::ROUNDING;
use crate::execution::{Found, inference};
use crate::mapping::request::{LeftOpen, MicroBatch, Objective, Passes, Record, Request};
use crate::mapping::tiling::streamed_size;
use crate::plan::Plan;
use crate::system::options::TileCounts;
use crate::system::{Software, Style, System};
use crate::workload::Workload;

/// A share as a person reads it: two digits, in per cent.
fn percent(share: f64) -> String {
    let p = 100.0 * share;
    if p >= 0.01 { format!("{p:.2} %") } else { format!("{p:.1e} %") }
}

/// Words that a list of parts is given in.
fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

/// What better than the answer would mean.
fn better(objective: Objective) -> &'static str {
    match objective {
        Objective::Time => "is faster",
        Objective::Energy => "needs less energy",
        Objective::Cost => "costs less",
    }
}

/// How much better, of a share.
fn less(objective: Objective) -> &'static str {
    match objective {
        Objective::Time => "faster",
        Objective::Energy => "less energy",
        Objective::Cost => "cheaper",
    }
}

/// What is searched, and what is not: with the words for both.
struct Space {
    over: String,
    /// The sharding is not searched: what looks at others.
    one_sharding: Option<&'static str>,
    given: Vec<String>,
}

impl Space {
    fn of(workload: &Workload, system: &System, request: &Request, joint: bool) -> Self {
        let pins = &request.pins;
        let n = workload.kernels.len();
        let pinned = pins.sharding.iter().filter(|s| s.is_some()).count();
        let placed = pins.partition.iter().filter(|p| p.is_some()).count();
        let wanted = &request.wanted;
        let mut over: Vec<String> = Vec::new();
        let mut given: Vec<String> = Vec::new();
        let grid = workload.is_spread();
        // A smaller system may do better: fewer chips are another system.
        if system.chip_count() > 1 && pins.uses.is_none() {
            given.push(format!("all {} chips", system.chip_count()));
        }
        match pins.uses {
            Some(_) => given.push("the use of the network".into()),
            None if grid => over.push("process grids".into()),
            None => over.push("assignments of dimensions".into()),
        }
        for (name, degree) in [("TP", wanted.tp), ("PP", wanted.pp), ("DP", wanted.dp)] {
            given.extend(degree.map(|d| format!("{name} = {d}")));
        }
        if pins.uses.is_none() && system.has_dimension_to_divide() && !wanted.split {
            given.push("whole dimensions".into());
        }
        match request.micro_batch {
            MicroBatch::Search => over.push("microbatches".into()),
            MicroBatch::Given if !grid => given.push(format!("microbatches of {}", workload.micro_batch)),
            MicroBatch::Given => {}
        }
        if joint && pinned < n {
            over.push("shardings".into());
        }
        match pinned {
            0 => {}
            all if all == n => given.push("the sharding".into()),
            some => given.push(format!("the sharding of {some} of {n} kernels")),
        }
        match request.tiles {
            Some(tiles) => given.push(format!("{tiles} tiles")),
            None => {
                over.push("tile counts".into());
                let streamed = streamed_size(workload);
                if streamed > 1 && system.chip.0.pipelines_tiles() && system.model.tile_counts == TileCounts::Divisors {
                    given.push(format!("tile counts that divide {streamed}"));
                }
            }
        }
        if workload.is_chain() && system.chip.0.pipelines_tiles() {
            given.push("streamed weights".into());
        }
        match placed {
            0 => over.push("partitions".into()),
            all if all == n => given.push("the partitions".into()),
            some => {
                over.push("partitions".into());
                given.push(format!("the partitions of {some} of {n} kernels"));
            }
        }
        given.extend(request.max_partitions.map(|most| format!("at most {most} partitions")));
        let one_sharding = match () {
            () if joint || pinned == n || grid => None,
            () if request.passes == Passes::TwoPass => {
                Some("--sharding joint, in a study solve.sharding, searches all")
            }
            () => Some("--sharding joint, in a study solve.sharding, searches others"),
        };
        Self { over: list(&over), one_sharding, given }
    }

    /// All of it in words.
    fn words(&self) -> String {
        let mut out = match self.over.is_empty() {
            true => "with every decision given".to_string(),
            false => format!("over all {}", self.over),
        };
        if let Some(others) = self.one_sharding {
            out.push_str(&format!(", each assignment with the one sharding that two passes take ({others})"));
        }
        if !self.given.is_empty() && !self.over.is_empty() {
            out.push_str(&format!("; given: {}", self.given.join(", ")));
        }
        out
    }
}

/// What is left out of the time of pipelines, where a chip has them.
fn filling(system: &System) -> &'static str {
    let is_left_out = system.leaves_out_filling();
    if is_left_out {
        " Not counted: filling and draining of pipelines of tiles (`model: pipeline_filling: ignored`)."
    } else {
        ""
    }
}

/// That all-reduces of what is possible are rings, where a switch could add up what chips send.
fn in_switch(system: &System) -> &'static str {
    let could = system.network.dimensions.iter().any(|d| d.link.0.sums.is_some());
    if could { " Not counted: all-reduces that switches add up (`sums` of a link); they are rings." } else { "" }
}

/// What a language model was taken for, after what is said of its answer.
fn taken_as(said: String, request: &Request) -> String {
    match &request.as_graph {
        Some(why) => format!(
            "{said} The language model was mapped as one graph (1F1B, nothing computed again, no ZeRO; of serving one step of one token): {why}."
        ),
        None => said,
    }
}

/// Of a mapping.
pub fn of_mapping(plan: &Plan, request: &Request, record: &Record) -> String {
    let said = proven(&plan.workload, &plan.system, request, record);
    let shared = if record.shares_sram { ON_CHIP } else { "" };
    taken_as(said + shared + filling(&plan.system), request)
}

/// What is proven of a mapping.
fn proven(workload: &Workload, system: &System, request: &Request, record: &Record) -> String {
    let space = Space::of(workload, system, request, record.covers_sharding);
    let all = space.words();
    let what = better(record.objective);
    let gap = record.gap();
    if space.over.is_empty() && space.one_sharding.is_none() {
        return "A fixed plan: every decision is given, and nothing was searched.".into();
    }
    match record.left {
        None if gap <= 1e-9 => format!("Optimal: nothing {what} {all}."),
        None => format!(
            "Optimal within the gap of {} that was asked for: nothing is more than {} {} {all}.",
            percent(request.limits.gap),
            percent(gap),
            less(record.objective)
        ),
        Some(left) => {
            let known = match request.known.is_empty() && record.objective == Objective::Time {
                true => "",
                false => " (no plan known beforehand is better)",
            };
            format!(
                "Not proven: something up to {} {} may exist {all}{known}; {}.",
                percent(gap),
                less(record.objective),
                open(left, request)
            )
        }
    }
}

/// What an interruption leaves open.
const INTERRUPTED: &str = "the search was interrupted: the same command, left to run, goes on";

/// Why something is left open, and what closes it.
fn open(left: LeftOpen, request: &Request) -> String {
    match left {
        LeftOpen::Seconds => format!(
            "the search stopped at its {} s: a longer --time-limit (in a study solve.seconds) goes on",
            request.limits.seconds.unwrap_or_default()
        ),
        LeftOpen::Interrupted => INTERRUPTED.into(),
        LeftOpen::Sets => {
            let most = match request.more_sets() {
                0 => String::new(),
                more => format!(" to {}", request.joint_nodes + more),
            };
            format!(
                "the search of shardings stopped at {}{most} sets of them: more --joint-nodes (in a study solve.joint_nodes) go on",
                request.joint_nodes
            )
        }
        LeftOpen::Nodes => format!(
            "a MILP stopped at {} nodes: a larger --node-limit (in a study solve.nodes) goes on",
            request.limits.nodes.unwrap_or_default()
        ),
        LeftOpen::TooLarge => {
            "of a graph of so many kernels or ideals the shardings are bounded as a whole only; no option closes it"
                .into()
        }
        LeftOpen::Relaxation => {
            "the bound of its partitions is a relaxation, which need not be reached; no option closes it".into()
        }
        LeftOpen::Blind => {
            "it was chosen by a search that took some costs to be free (solve.blind_to); without that it is the best"
                .into()
        }
    }
}

/// Of a point that has no mapping.
pub fn of_infeasible(workload: &Workload, system: &System, request: &Request) -> String {
    let all = Space::of(workload, system, request, joint(workload, system, request)).words();
    taken_as(format!("Infeasible: nothing fits {all}."), request)
}

/// Whether a search that finds nothing has looked at all shardings.
fn joint(workload: &Workload, system: &System, request: &Request) -> bool {
    let n = workload.kernels.len();
    request.is_joint(system, n) || request.tries_jointly(system, n)
}

/// Of a search that something ended before it had a plan.
pub fn of_no_plan(workload: &Workload, system: &System, request: &Request, left: LeftOpen) -> String {
    let all = Space::of(workload, system, request, joint(workload, system, request)).words();
    taken_as(format!("No plan yet {all}; there may be one, as {}.", open(left, request)), request)
}

/// What ended a search that has no record of why, and what goes on.
fn stopped(seconds: Option<f64>) -> String {
    match seconds {
        Some(seconds) if !is_interrupted() => {
            format!("the search stopped at its {seconds} s: a longer --time-limit goes on")
        }
        _ => INTERRUPTED.into(),
    }
}

/// What goes on where the effort of the inner search is used up.
const SPENT: &str = "the search stopped at its effort in shardings of cuts: more --joint-nodes (in a study solve.joint_nodes), or a --time-limit (solve.seconds) up to which it goes on, may close the gap";

/// Of executions of a language model that were searched; `given` are the decisions that were not.
pub fn of_executions(found: &Found, given: &[&str], seconds: Option<f64>, system: &System) -> String {
    let on = match system.chip_count() {
        1 => String::new(),
        _ if given.contains(&"chips") => String::new(),
        chips => format!(" on all {chips} chips"),
    };
    let given = match given {
        [] => String::new(),
        some => format!("; given: {}", some.join(", ")),
    };
    let all = format!("{} executions of equal layers{on}{given}", found.covered);
    let by = match found.objective {
        Objective::Time => software(system),
        objective => {
            format!("{} Blocks are mapped for time, whatever {objective} they take.", software(system))
        }
    };
    let stopped = if found.spent { SPENT.into() } else { stopped(seconds) };
    match (&found.best, found.stopped) {
        (None, false) => format!("Infeasible: nothing fits among {all}. {by}"),
        (None, true) => {
            format!("No plan yet among {all}, which does not prove that there is none; {stopped}. {by}")
        }
        (Some(_), true) if found.gap() > ROUNDING => format!(
            "Not proven: something up to {} {} may exist among {all}; {stopped}. {by}",
            percent(found.gap()),
            less(found.objective)
        ),
        (Some(_), _) if found.gap() > ROUNDING => format!(
            "Not proven: something up to {} {} may exist among {all}; nothing goes on where a relaxation bounds the mappings of blocks, or where each cut has had all of its sets. {by}",
            percent(found.gap()),
            less(found.objective)
        ),
        (Some(_), _) => format!("Optimal: nothing {} among {all}. {by}", better(found.objective)),
    }
}

/// What is said of a memory on chip.
const ON_CHIP: &str = " The memory is the chip's SRAM, which partitions and what is held share.";

/// The same where there is a second tier.
const STREAMED: &str = " Or they have all of it, and the second tier is the memory (`offload: streamed`).";

/// What is said of software without cost on a chip for which what is possible is a mapping of graphs.
const OF_CALLS: &str = " It calls kernels and launches nothing; what is possible on this chip (`software: free`) launches and fills partitions of a graph, so that neither is a bound of the other.";

/// What executions on a system stand for.
fn software(system: &System) -> String {
    match (system.software(), &system.stack) {
        (Software::Free, _) if system.chip.0.style == Style::KernelByKernel => {
            format!(
                "What is possible: every layer by the best division of its matrices, attention kernel and fusions among those of the chip's kernels; no host is counted.{}",
                in_switch(system)
            )
        }
        (Software::Free, _) => {
            format!(
                "What is possible, no software counted: every block by its fastest mapping (sharding, tiles, partitions), where stages hand over whole activations and where they hand over parts, and where something does not fit by the fastest that keeps parts. Not in the proof: other mappings of a block that keep less.{}{}{}{}",
                if system.memory.0.on_chip { ON_CHIP } else { "" },
                if system.memory.0.on_chip && system.offload.is_some() { STREAMED } else { "" },
                filling(system),
                in_switch(system)
            )
        }
        (Software::Stack, Some(stack)) => {
            format!("What the software takes: shardings, fusions and overlaps of {}.", stack.0.name)
        }
        (Software::Generic, _) => {
            let whose = match system.chip.0.generic {
                Some(_) => "which its file names",
                None => "calibrated over several stacks",
            };
            let instead = match &system.stack {
                Some(own) => format!("in place of the system's {}", own.0.name),
                None => "the system names none".into(),
            };
            let current = &system.chip.0.generic().0.name;
            format!("What current software of this kind of chip takes ({current}, {whose}); {instead}.")
        }
        _ => {
            let of = "What ideal software takes: shardings, fusions and overlaps of a stack without cost.";
            let own = if system.chip.0.style == Style::Dataflow { OF_CALLS } else { "" };
            format!("{of}{own}{}", in_switch(system))
        }
    }
}

/// The same as a name: of the stack, `generic`, `ideal` or `free`.
pub fn software_name(system: &System) -> String {
    match (system.software(), &system.stack) {
        (Software::Stack, Some(stack)) => stack.0.name.clone(),
        (Software::Stack, None) => Software::Generic.to_string(),
        (other, _) => other.to_string(),
    }
}

/// Of an execution that was given whole.
pub fn of_given_execution(system: &System, with_mapping: bool) -> String {
    let by = software(system);
    match system.software() {
        Software::Free if with_mapping => {
            format!(
                "A fixed execution: every decision is given, the mapping of the blocks too, and nothing was searched. {by}"
            )
        }
        Software::Free => {
            format!("A fixed execution: every decision is given, and the mapping of the blocks was searched. {by}")
        }
        _ => format!("A fixed execution: every decision is given, and nothing was searched. {by}"),
    }
}

/// Of layouts for serving a language model; `(better, what)` is sought.
pub fn of_serving(
    outcome: &inference::Outcome,
    (better, what): (&str, &str),
    seconds: Option<f64>,
    system: &System,
) -> String {
    let all = outcome.predicted + outcome.out_of_memory;
    let proof = match outcome.best {
        _ if outcome.stopped => format!(
            "Not proven: others than the {all} layouts and batches that were looked at may be better; {}.",
            stopped(seconds)
        ),
        Some(_) => format!(
            "Optimal: of all {all} layouts and batches none has a {better} {what} ({} keep to the limits, {} do not fit).",
            outcome.within_limits, outcome.out_of_memory
        ),
        None => format!(
            "Infeasible: of all {all} layouts and batches none fits and keeps to the limits ({} do not fit).",
            outcome.out_of_memory
        ),
    };
    let room = if system.memory.0.capacity.is_some() {
        ""
    } else {
        " The memory states no capacity, so that everything fits."
    };
    format!("{proof} {}{room}", serving_software(system))
}

/// What serving on a system stands for.
pub fn serving_software(system: &System) -> String {
    const IDEAL: &str = "what ideal software takes, the best of what is known for this chip without host";
    let current = system.chip.0.serving();
    let current = current.map(|stack| format!("current software of this kind of chip ({})", stack.name));
    match (system.software(), &system.stack) {
        (Software::Ideal, _) => format!("Counted is {IDEAL}."),
        (Software::Generic, _) => match current {
            Some(current) => format!("Counted is what {current} takes."),
            None => "Counted is what ideal software takes: none is calibrated for serving on this kind of chip.".into(),
        },
        (_, None) => format!("Counted is {IDEAL}: the system names none."),
        (_, Some(stack)) if stack.0.serving.is_some() => format!("Counted is what {} takes.", stack.0.name),
        (_, Some(stack)) => match current {
            Some(current) => format!("Counted is what {current} takes: {} says nothing of serving.", stack.0.name),
            None => format!(
                "Counted is what ideal software takes: {} says nothing of serving, and none is calibrated for it on this kind of chip.",
                stack.0.name
            ),
        },
    }
}
