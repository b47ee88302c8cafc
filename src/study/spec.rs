//! The notation of a study file.

use super::axis;
use super::field::{FieldPath, Fields, Root};
use super::front::SearchSpec;
use super::mix::{self, Mean, TaskSpec};
use super::placed::PlaceSpec;
use super::range;
use super::sample::Sample;
use crate::execution::Pins;
use crate::mapping::degrees::Wanted;
use crate::mapping::request::{self, JOINT_NODES, engine_from_word};
use crate::mapping::search::{Engine, MicroBatch, Objective, Passes, Request};
use crate::mapping::solver::{Limits, Solver};
use crate::plan::DimensionUse;
use crate::report::csv;
use crate::report::figures::{FigureSpec, unknown_columns};
use crate::spec::nearest::nearest;
use crate::spec::read::{Name, Table};
use crate::spec::{FromNode, Node, Reader, Value, schema::Definitions};
use crate::system::System;
use crate::system::budget::BudgetSpec;
use crate::system::economics::Economics;
use crate::units::Seconds;
use crate::workload::WorkloadSpec;
use serde::Serialize;
use serde_json::json;
use std::collections::HashSet;

crate::spec! {
    /// A study: a base workload, a base system, and axes that change fields of them. Its points are all combinations of
    /// the axes' values, the first axis slowest. What a combination sets may depend on several axes: `rules`.
    pub struct StudySpec ("a study", check: check_study) {
        /// Name, for the output folder and titles: letters, digits, `-`, `_` and `.`.
        name: Name,
        /// The question it answers.
        question: Option<String>,
        /// Where its composition comes from.
        source: Option<String>,
        /// The workload that the axes start from; needed unless there are several (`workloads`).
        workload: Option<WorkloadTree>,
        /// Several workloads, for all of which each design is solved: they are the values of a first axis `task`, whose last value `mix` is their
        /// weighted mean. A search of the front is one of the mix.
        workloads: Vec<TaskSpec> = Vec::new(),
        /// Which mean the mix is.
        mean: Mean = Mean::Geometric,
        /// The system that the axes start from; studies of placements (`solve.place`) have none.
        system: Option<SystemTree>,
        /// What is varied.
        axes: Vec<AxisSpec>,
        /// What depends on several axes at once.
        rules: Vec<RuleSpec> = Vec::new(),
        /// So many points of the grid instead of all, spread evenly over every axis: `500 sobol`, or `500 sobol seed 2` for others.
        sample: Option<Sample>,
        /// How each point is solved.
        solve: SolveSpec = SolveSpec::default(),
        /// Solve no more points than the front needs, and prove that the others are no better.
        search: Option<SearchSpec>,
        /// What is drawn.
        plots: PlotSpec = PlotSpec { heatmap: None, figures: Vec::new() },
    }
}

crate::spec! {
    /// One axis: one `field` and its `values`, several `fields` whose values change together, or named `points` of any fields. Fields start with `workload.`,
    /// `system.` or `solve.`; `workload` or `system` alone stands for the whole; `*` stands for every entry of a list
    /// (`system.network.dimensions.*.link`).
    pub struct AxisSpec ("an axis", check: check_axis) {
        /// Name, the header of its column: letters, digits, `-` and `_`.
        name: Name,
        /// The field that takes the values.
        field: Option<String>,
        /// Its values. A file is labelled by its name without folder and extension, anything else by its text. An item may be a range of them, both ends
        /// included: `1..1024`, `100..2000 GB/s step 100`, `1..8 TB/s log 12` (twelve, apart by one factor), `0.1..0.9 linear 5`. For a
        /// search of the front `1..8 TB/s continuous` is every value between: the ends of 1,024 intervals, or of as many as stand behind it, are solved as needed.
        values: Option<Vec<Node>>,
        /// Fields that change together: of each a list of values (or ranges), all of the same length. The values of the first are the labels.
        fields: Option<Table<Vec<Node>>>,
        /// For each label the fields it sets, and to what.
        points: Option<Table<Table<Node>>>,
        /// How its values act, for a search of the front. Left out, it is known for a bandwidth, capacity, SRAM or frequency.
        order: Option<AxisOrder>,
    }
}

crate::choice! {
    /// How the values of an axis act.
    pub enum AxisOrder ("an order of an axis") {
        /// Each is never slower, and neither price nor power of it is lower, than of the one before it.
        Ascending = "ascending",
        /// The same from the last to the first.
        Descending = "descending",
        /// Nothing is known: a search of the front looks at each.
        Unordered = "unordered",
    }
}

crate::spec! {
    /// Fields that are set for some combinations of labels, such as the sizes of a network that has other ones for another
    /// workload. A rule is applied right after the last of the axes it names; later rules go over earlier ones.
    pub struct RuleSpec ("a rule") {
        /// For which labels: a label or a list of them for each axis that matters. All must hold.
        when: Table<Labels>,
        /// The fields it sets, and to what.
        set: Table<Node>,
    }
}

/// One name (a label, a column), or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Labels(pub Vec<Name>);

impl FromNode for Labels {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.value {
            Value::List(items) if items.is_empty() => {
                reader.problem(node, "the list is empty; give at least one name");
                None
            }
            Value::List(_) => Vec::from_node(node, reader).map(Self),
            Value::Scalar { .. } => Name::from_node(node, reader).map(|name| Self(vec![name])),
            _ => {
                reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
                None
            }
        }
    }
    fn schema(definitions: &mut Definitions) -> serde_json::Value {
        let one = Name::schema(definitions);
        json!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
    fn expected() -> String {
        "a name or a list of names".into()
    }
}

crate::choice! {
    /// What decides the fusion problem of a point.
    pub enum SolverWord ("a solver") {
        /// The shortest path, and HiGHS for every MILP that is still needed.
        Auto = "auto",
        /// The shortest path and HiGHS always: the two must agree.
        Highs = "highs",
        /// Likewise with CBC; in builds with the cargo feature `cbc`.
        Cbc = "cbc",
        /// The shortest path alone.
        Exact = "exact",
    }
}

crate::choice! {
    /// A part of a system whose time a search may be blind to.
    pub enum Part ("a part of a system") {
        /// Time of DRAM traffic; its capacity still counts.
        Memory = "memory",
        /// Time of communication.
        Network = "network",
    }
}

crate::spec! {
    /// How a point is solved. Degrees and tile count that are left out are searched.
    pub struct SolveSpec ("solve settings", check: check_solve) {
        /// The solver.
        solver: SolverWord = SolverWord::Auto,
        /// Relative gap at which a solve stops.
        gap: f64 = 1e-6,
        /// Most branch-and-bound nodes of a solve, or `none`.
        nodes: NodeLimit = NodeLimit(Some(20_000)),
        /// Most seconds of a point. One that is stopped by it is marked as not reproducible.
        seconds: Option<f64>,
        /// Random seed of the solver.
        seed: Seed = Seed(0),
        /// Tiles that a sample is cut into.
        tiles: Option<u64>,
        /// Tensor parallelism.
        tp: Option<u64>,
        /// Pipeline parallelism.
        pp: Option<u64>,
        /// Data parallelism.
        dp: Option<u64>,
        /// What each dimension of the network serves, the innermost first, where not only the degrees are given.
        network_use: Vec<DimensionUse> = Vec::new(),
        /// Most partitions of a layer.
        max_partitions: Option<u64>,
        /// Position of the partition of some kernels, from 0: what a vendor's compiler does, with the others free.
        partitions: Table<Position> = Table::default(),
        /// Whether a network dimension may be divided among tensor, pipeline and data parallelism.
        split_dimensions: bool = false,
        /// What is minimised.
        objective: Objective = Objective::Time,
        /// How sharding and fusion are searched.
        sharding: Passes = Passes::Auto,
        /// Most sets of shardings that the joint search looks at; of language models on chips that fuse those of all cuts together, of which a gap below 1 % takes a hundredth.
        joint_nodes: u64 = JOINT_NODES,
        /// Where the size of a microbatch comes from.
        micro_batch: MicroBatch = MicroBatch::Given,
        /// Prices of running the system, and the length of the run.
        economics: Economics = Economics::default(),
        /// What every system may cost, draw or have; a dimension of its network is scaled to it.
        budget: Option<BudgetSpec>,
        /// Costs that the search does not see: the plan it finds without them is priced with all. The row's bound is that
        /// of the blind search.
        blind_to: Vec<Part> = Vec::new(),
        /// Language models on chips with `kernels:`: decisions of the execution that are given (`schedule`, `recompute`, `zero`, ...; degrees here
        /// or above). When serving, `tp`, `pp`, `dp`, `ep` alone.
        execution: Pins = Pins::default(),
        /// Limits for the serving of language models.
        serving: ServingSpec = ServingSpec::default(),
        /// Executions by `software: free`: what the software that there is takes, too, and what of the difference is host, fusion, sharding, ...
        difference: bool = false,
        /// Place the workload's actors on the cores of a chip instead of mapping it.
        place: Option<PlaceSpec>,
    }
}

crate::spec! {
    /// Limits for the serving of language models; the batch is the workload's `global_batch`.
    #[derive(Default)]
    pub struct ServingSpec ("limits of serving") {
        /// Longest time to the first token, of the sequence that waits longest.
        max_ttft: Option<Seconds>,
        /// Longest time for each further token, of the last one.
        max_tpot: Option<Seconds>,
    }
}

crate::spec! {
    /// What is drawn beside the figures that every study has.
    pub struct PlotSpec ("plots") {
        /// The heat map; by default the first axes are its rows, the last its columns.
        heatmap: Option<HeatmapSpec>,
        /// Further figures, any number.
        figures: Vec<FigureSpec> = Vec::new(),
    }
}

crate::spec! {
    /// Heat maps of one or several values. A cell shows the fastest of its points.
    pub struct HeatmapSpec ("a heat map") {
        /// Names of the axes whose labels are the rows.
        rows: Vec<Name>,
        /// Names of the axes whose labels are the columns.
        cols: Vec<Name> = Vec::new(),
        /// The column of the results that colours the cells, or several for a figure each.
        value: Labels = Labels(vec![Name("utilization".to_string())]),
        /// Names of axes: each combination of their labels has a panel of its own, all in one figure.
        panels: Vec<Name> = Vec::new(),
        /// Names of axes: each combination of their labels has a figure of its own.
        figures: Vec<Name> = Vec::new(),
    }
}

/// A number of nodes, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct NodeLimit(pub Option<u64>);

impl FromNode for NodeLimit {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.value {
            Value::Scalar { text, .. } if text == "none" => Some(Self(None)),
            Value::Scalar { text, .. } if text.replace('_', "").parse::<u64>().is_ok() => {
                u64::from_node(node, reader).map(|nodes| Self(Some(nodes)))
            }
            _ => {
                reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
                None
            }
        }
    }
    fn schema(definitions: &mut Definitions) -> serde_json::Value {
        json!({ "anyOf": [u64::schema(definitions), { "const": "none" }] })
    }
    fn expected() -> String {
        "a whole number of at least 1, or none".into()
    }
}

/// A random seed: any whole number that a solver takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Seed(pub u32);

impl FromNode for Seed {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.value {
            Value::Scalar { text, .. } => text.parse::<u32>().ok().filter(|s| *s <= MAX_SEED).map(Self),
            _ => None,
        }
        .or_else(|| {
            reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
            None
        })
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "integer", "minimum": 0, "maximum": MAX_SEED })
    }
    fn expected() -> String {
        format!("a whole number of 0 to {MAX_SEED}")
    }
}

/// Position of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Position(pub usize);

impl FromNode for Position {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let found = match &node.value {
            Value::Scalar { text, .. } => text.parse::<usize>().ok().filter(|p| *p < MOST_POSITIONS).map(Self),
            _ => None,
        };
        found.or_else(|| {
            reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
            None
        })
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "integer", "minimum": 0, "maximum": MOST_POSITIONS - 1 })
    }
    fn expected() -> String {
        format!("a whole number of 0 to {}", MOST_POSITIONS - 1)
    }
}

/// Partitions that can be named: as many as a graph has kernels at most.
const MOST_POSITIONS: usize = 100_000;

/// Largest seed that HiGHS takes.
const MAX_SEED: u32 = 0x7fff_ffff;

macro_rules! tree {
    ($(#[doc = $doc:literal])+ $name:ident, $root:expr, $typed:ty) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(transparent)]
        pub struct $name(pub Node);

        impl FromNode for $name {
            fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
                let path = FieldPath { root: $root, segments: Vec::new() };
                let mut problems = Vec::new();
                let tree = Fields::get().freeze(node, &path, &mut problems);
                let read = problems.is_empty();
                problems.into_iter().for_each(|problem| reader.push(problem));
                read.then_some(Self(tree))
            }
            fn schema(definitions: &mut Definitions) -> serde_json::Value {
                json!({ "anyOf": [
                    { "type": "string", "description": "path of a file, relative to this one, or a name of the catalogue" },
                    <$typed>::schema(definitions)
                ] })
            }
            fn expected() -> String {
                format!("the path of a file, or {}", <$typed>::expected())
            }
        }
    };
}

tree!(
    /// The tree of a workload with every file it names read in. It is not read into a [`WorkloadSpec`] yet: the axes may
    /// fill in what is missing.
    WorkloadTree,
    Root::Workload,
    WorkloadSpec
);
tree!(
    /// The tree of a system with every file it names read in.
    SystemTree,
    Root::System,
    System
);

impl Default for SolveSpec {
    fn default() -> Self {
        Self {
            solver: SolverWord::Auto,
            gap: 1e-6,
            nodes: NodeLimit(Some(20_000)),
            seconds: None,
            seed: Seed(0),
            tiles: None,
            tp: None,
            pp: None,
            dp: None,
            network_use: Vec::new(),
            max_partitions: None,
            partitions: Table::default(),
            split_dimensions: false,
            objective: Objective::Time,
            sharding: Passes::Auto,
            joint_nodes: JOINT_NODES,
            micro_batch: MicroBatch::Given,
            economics: Economics::default(),
            budget: None,
            blind_to: Vec::new(),
            execution: Pins::default(),
            serving: ServingSpec::default(),
            difference: false,
            place: None,
        }
    }
}

impl SolveSpec {
    /// The decisions of an execution that are given, here or under `execution`.
    pub fn pins(&self) -> Pins {
        let e = &self.execution;
        Pins { tp: e.tp.or(self.tp), pp: e.pp.or(self.pp), dp: e.dp.or(self.dp), ..e.clone() }
    }

    /// The settings among these that are of the mapping of a graph alone, by their fields.
    pub fn of_graphs(&self) -> Vec<&'static str> {
        let all = [
            ("blind_to", !self.blind_to.is_empty()),
            ("tiles", self.tiles.is_some()),
            ("network_use", !self.network_use.is_empty()),
            ("max_partitions", self.max_partitions.is_some()),
            ("partitions", !self.partitions.0.is_empty()),
            ("split_dimensions", self.split_dimensions),
            ("sharding", self.sharding != Passes::Auto),
            ("solver", self.solver != SolverWord::Auto),
        ];
        all.into_iter().filter(|(_, stated)| *stated).map(|(field, _)| field).collect()
    }

    /// The settings among these that are of executions and servings alone, by their fields.
    pub fn of_executions(&self) -> Vec<&'static str> {
        let all = [
            ("execution", self.execution != Pins::default()),
            ("serving", self.serving.max_ttft.is_some() || self.serving.max_tpot.is_some()),
        ];
        all.into_iter().filter(|(_, stated)| *stated).map(|(field, _)| field).collect()
    }

    /// The request that these settings make of the search.
    pub fn request(&self) -> Request {
        let (engine, solver) = match self.solver {
            SolverWord::Auto => (Engine::Auto, Solver::Highs),
            SolverWord::Highs => (Engine::Milp, Solver::Highs),
            SolverWord::Cbc => (Engine::Milp, Solver::Cbc),
            SolverWord::Exact => (Engine::Exact, Solver::Highs),
        };
        let pins = request::Pins {
            uses: (!self.network_use.is_empty()).then(|| self.network_use.clone()),
            ..request::Pins::default()
        };
        Request {
            pins,
            wanted: Wanted { tp: self.tp, pp: self.pp, dp: self.dp, split: self.split_dimensions },
            tiles: self.tiles,
            max_partitions: self.max_partitions.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            engine,
            limits: Limits { solver, gap: self.gap, seconds: self.seconds, nodes: self.nodes.0, seed: self.seed.0 },
            objective: self.objective,
            economics: self.economics,
            passes: self.sharding,
            joint_nodes: self.joint_nodes,
            micro_batch: self.micro_batch,
            ..Request::default()
        }
    }
}

fn check_solve(solve: &SolveSpec, node: &Node, reader: &mut Reader) {
    let mut say = |field: &str, message: String| {
        let at = node.get(field).unwrap_or(node);
        reader.within(field, |r| r.problem(at, message));
    };
    if solve.gap >= 1.0 {
        say("gap", format!("expected a relative gap below 1, found {}", solve.gap));
    }
    if solve.seconds.is_some_and(|s| s <= 0.0) {
        say("seconds", "expected more than zero; leave it out for no limit".into());
    }
    let twice = [
        ("tp", solve.tp, solve.execution.tp),
        ("pp", solve.pp, solve.execution.pp),
        ("dp", solve.dp, solve.execution.dp),
    ];
    for (degree, above, below) in twice {
        if let (Some(above), Some(below)) = (above, below)
            && above != below
        {
            say(degree, format!("{above} here, {below} under execution; state it once"));
        }
    }
    if let Err(message) = engine_from_word(solve.solver.word()) {
        say("solver", message);
    }
    if solve.place.is_some() && solve.budget.is_some() {
        say("budget", "a placement has no system whose price or power could be limited; take it out".into());
    }
}

fn check_axis(spec: &AxisSpec, node: &Node, reader: &mut Reader) {
    axis::resolve(spec, node, reader);
}

/// Whether a name is made of letters, digits and the characters of `extra`.
pub(super) fn is_plain(name: &str, extra: &str) -> bool {
    name.chars().all(|c| c.is_alphanumeric() || extra.contains(c))
}

/// Fields of `solve` with which a search of the front has no bounds, whether the study, an axis or a rule sets them, and why.
pub(super) const UNBOUNDED: [(&str, &str); 5] = [
    ("objective", "a search of the front bounds rates by the least time; take it out"),
    (
        "budget",
        "scaled to a budget more of one thing is less of another, so that no part of the space has a bound; take it out, and limit price or power by search.constraints",
    ),
    ("blind_to", "the bound of a search that is blind says nothing of other systems; take it out"),
    ("place", "the front of placements is not searched; take search out"),
    ("serving", "with limits of time more of a chip may serve less; take them out, or search out"),
];

fn check_study(study: &StudySpec, node: &Node, reader: &mut Reader) {
    let name = &study.name.0;
    if !is_plain(name, "-_.") || name.starts_with(['.', '-']) {
        let at = node.get("name").unwrap_or(node);
        reader.within("name", |r| {
            r.problem(at, format!("expected letters, digits, -, _ and . alone (it names a folder), found {name:?}"));
        });
    }
    if study.workload.is_none() && node.get("workloads").is_none() {
        let message = format!("missing; expected {}, or several workloads", WorkloadTree::expected());
        reader.within("workload", |r| r.problem(node, message));
    }
    mix::check(study, node, reader);
    match (study.system.is_some(), study.solve.place.is_some()) {
        (true, true) => {
            let at = node.get("system").unwrap_or(node);
            let message = "a placement has no system, its cores are those of solve.place; take it out";
            reader.within("system", |r| r.problem(at, message));
        }
        (false, false) => {
            let message =
                "missing; expected the path of a file, or a system (studies with solve.place alone have none)";
            reader.within("system", |r| r.problem(node, message));
        }
        _ => {}
    }
    if study.search.is_some() {
        let solve = &study.solve;
        let set = |field: &str| match field {
            "objective" => solve.objective != Objective::Time,
            "budget" => solve.budget.is_some(),
            "blind_to" => !solve.blind_to.is_empty(),
            "place" => solve.place.is_some(),
            _ => solve.serving != ServingSpec::default(),
        };
        for (field, why) in UNBOUNDED.into_iter().filter(|(field, _)| set(field)) {
            let at = node.get("solve").and_then(|solve| solve.get(field)).unwrap_or(node);
            reader.within(format!("solve.{field}"), |r| r.problem(at, why));
        }
    }
    let axes = node.get("axes").unwrap_or(node);
    if study.axes.is_empty() {
        reader.within("axes", |r| r.problem(axes, "expected at least one axis; `flowspace map` solves a single point"));
    }
    if study.search.as_ref().map_or(study.sample.is_none(), |search| search.within.0 == 0.0) {
        for (i, axis) in study.axes.iter().enumerate() {
            if axis.values.as_ref().is_some_and(|values| range::is_continuous(values)) {
                let message = match study.search {
                    Some(_) => {
                        "between two values there are always others, so that no front of a continuous axis is exact: give search.within, as 1 %"
                    }
                    None => "a continuous range is for search: or sample:; a grid has values, as 1..8 TB/s log 12",
                };
                reader.within(format!("axes.[{i}].values"), |r| r.problem(axes, message));
            }
        }
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, axis) in study.axes.iter().enumerate() {
        let name = axis.name.0.as_str();
        let at = match &axes.value {
            Value::List(items) => items.get(i).and_then(|item| item.get("name")).unwrap_or(axes),
            _ => axes,
        };
        let mut say = |message: String| reader.within(format!("axes.[{i}].name"), |r| r.problem(at, message));
        if !seen.insert(name) {
            say(format!("axis {name:?} stands twice"));
        }
        if csv::is_fixed(name) {
            say(format!("{name:?} is a column of every results.csv; choose another name"));
        }
    }
    if let Some(heatmap) = &study.plots.heatmap {
        let at = node.get("plots").and_then(|p| p.get("heatmap")).unwrap_or(node);
        reader.within("plots.heatmap", |r| check_heatmap(study, heatmap, at, r));
    }
    if let (Some(_), Some(_), Some(at)) = (&study.sample, &study.search, node.get("sample")) {
        reader.within("sample", |r| {
            r.problem(at, "a search proves what it says of every point of its grid; take sample or search out")
        });
    }
    check_figures(study, node, reader);
}

/// Names of the axes, that of several workloads first.
fn axis_names(study: &StudySpec) -> Vec<&str> {
    let tasks = (!study.workloads.is_empty()).then_some(mix::AXIS);
    tasks.into_iter().chain(study.axes.iter().map(|a| a.name.0.as_str())).collect()
}

/// Columns that are not there, and figures that would be written over each other.
fn check_figures(study: &StudySpec, node: &Node, reader: &mut Reader) {
    let axes = axis_names(study);
    let at = node.get("plots").and_then(|p| p.get("figures")).unwrap_or(node);
    let mut stems: HashSet<String> = HashSet::new();
    for (i, figure) in study.plots.figures.iter().enumerate() {
        let at = match &at.value {
            Value::List(items) => items.get(i).unwrap_or(at),
            _ => at,
        };
        reader.within(format!("plots.figures.[{i}]"), |r| {
            for (field, problem) in unknown_columns(figure, &axes) {
                r.within(field, |r| r.problem(at.get(field).unwrap_or(at), problem));
            }
            if !stems.insert(figure.stem()) {
                r.within("name", |r| {
                    let stem = figure.stem();
                    r.problem(at, format!("another figure is written to {stem:?} too; give each a name of its own"));
                });
            }
        });
    }
}

fn check_heatmap(study: &StudySpec, heatmap: &HeatmapSpec, node: &Node, reader: &mut Reader) {
    let axes = axis_names(study);
    let known = |name: &str, of: &[&str], what: &str| match nearest(name, of) {
        Some(near) => format!("there is no {what} {name:?}; did you mean {near:?}?"),
        None => format!("there is no {what} {name:?}; there is {}", of.join(", ")),
    };
    let mut used: HashSet<&str> = HashSet::new();
    let roles =
        [("rows", &heatmap.rows), ("cols", &heatmap.cols), ("panels", &heatmap.panels), ("figures", &heatmap.figures)];
    for (field, names) in roles {
        let at = node.get(field).unwrap_or(node);
        for name in names {
            let name = name.0.as_str();
            if !axes.contains(&name) {
                reader.within(field, |r| r.problem(at, known(name, &axes, "axis")));
            } else if !used.insert(name) {
                reader.within(field, |r| r.problem(at, format!("axis {name:?} is used twice")));
            }
        }
    }
    let columns: Vec<&str> = csv::COLUMNS.iter().filter(|c| c.is_number()).map(|c| c.name).collect();
    for value in heatmap.value.0.iter().filter(|value| !columns.contains(&value.0.as_str())) {
        let at = node.get("value").unwrap_or(node);
        reader.within("value", |r| r.problem(at, known(&value.0, &columns, "column of numbers")));
    }
}
