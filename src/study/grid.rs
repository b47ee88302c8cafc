//! A study loaded: the grid of its points, each made on demand from its index.

use super::axis::{self, Axis, Override};
use super::executed;
use super::field::{FieldPath, Root, set};
use super::mix;
use super::placed;
use super::rule::{self, Rule};
use super::spec::{Position, SolveSpec, StudySpec};
use super::store::KeyStart;
use crate::mapping::request::why_a_graph;
use crate::mapping::{Infeasible, Request};
use crate::place::ActorGraph;
use crate::plan::use_faults;
use crate::progress::Steps;
use crate::spec::read::Ref;
use crate::spec::{Loader, Node, Problem, Problems, Reader, Value, catalogue::Kind};
use crate::system::budget::{Fitted, Unfit};
use crate::system::options::Precision;
use crate::system::{Chip, System};
use crate::workload::language::{LanguageModel, is_language_model};
use crate::workload::{Workload, WorkloadSpec};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A study: its specification and the grid of its points. Nothing of the grid is held in memory but the axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Study {
    /// As the file states it.
    pub spec: StudySpec,
    /// The axes, the first slowest.
    pub axes: Vec<Axis>,
    /// What depends on several axes at once.
    pub rules: Vec<Rule>,
    /// Of a sample the points of the grid.
    sample: Option<Vec<u64>>,
    solve: Node,
    file: String,
    /// The files that were read for it.
    read: BTreeSet<PathBuf>,
    built: Built,
}

/// What was built of a study so far, by the overrides that made it (by address: they stand still in the study).
#[derive(Debug, Clone, Default)]
struct Built(Arc<Parts>);

#[derive(Debug, Default)]
struct Parts {
    /// Workloads: points of a study seldom have more than a few different ones.
    workloads: Mutex<HashMap<Vec<usize>, Shared>>,
    /// Trees of systems that no thread is at work on. From one point to the next mostly the last fields change.
    trees: Mutex<Vec<Tree>>,
}

/// The tree of a point's system.
#[derive(Debug)]
struct Tree {
    made_by: Vec<usize>,
    paths: Vec<FieldPath>,
    node: Node,
    /// Its chip as read, where no rounding came after.
    chip: Option<Ref<Chip>>,
}

/// Studies are equal whatever was built of them.
impl PartialEq for Built {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A workload and its part of a key.
type Shared = (Arc<Workload>, Arc<KeyStart>);

/// Most workloads kept.
const MOST_BUILT: usize = 64;

/// One point of the grid, built.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The workload.
    pub workload: Arc<Workload>,
    /// What the point's key hashes of the workload.
    pub key_start: Arc<KeyStart>,
    /// The language model, where its executions or servings on a chip with `kernels` are searched; `workload` then holds a graph of its sizes, for names
    /// and batches alone.
    pub language: Option<Box<LanguageModel>>,
    /// Whether the workload is a language model that is mapped as one graph.
    pub language_as_graph: bool,
    /// The actor graph, where it is placed on cores (`solve.place`).
    pub actors: Option<Arc<ActorGraph>>,
    /// The system; placements have none.
    pub system: Option<System>,
    /// How it is solved.
    pub solve: SolveSpec,
    /// How the system was fitted to the budget, or why it is over it; `None` without a budget.
    pub fitted: Option<Result<Fitted, Infeasible>>,
}

impl Point {
    /// The request to the search.
    pub fn request(&self) -> Request {
        let mut request = self.solve.request();
        if let (true, Some(system)) = (self.language_as_graph, &self.system) {
            let of_graphs = self.solve.of_graphs();
            let settings: Vec<String> = of_graphs.iter().map(|field| format!("solve.{field}")).collect();
            request.as_graph = Some(why_a_graph(&settings, system));
        }
        if !self.solve.partitions.0.is_empty() {
            request.pins.partition = vec![None; self.workload.kernels.len()];
            for (name, position) in &self.solve.partitions.0 {
                if let Some(k) = self.workload.kernel_index(name) {
                    request.pins.partition[k] = Some(position.0);
                }
            }
        }
        request
    }
}

/// What a look at a sample of the points found before any is solved.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outlook {
    /// Problems that every point of the sample has: the study itself is wrong.
    pub every: Vec<Problem>,
    /// Problems that some have: those points will fail.
    pub some: Vec<Problem>,
    /// Whether no point of the whole grid can be built, each for a reason of its own perhaps.
    pub none_stands: bool,
    /// Language models are searched in some and mapped as one graph in others.
    pub unlike: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn addresses(changes: &[&Override]) -> Vec<usize> {
    changes.iter().map(|c| std::ptr::from_ref(*c) as usize).collect()
}

fn word(node: &Node) -> String {
    if let Value::Scalar { text, .. } = &node.value { text.clone() } else { String::new() }
}

/// HPL of another order is another run: where a study sets the order, the name says it, so that orders do not compete.
fn sized(tree: &mut Node, changes: &[&Override]) {
    let sets = |field: &str| {
        let mut paths = changes.iter().filter(|c| c.path.root == Root::Workload).map(|c| c.path.segments.as_slice());
        paths.any(|segments| matches!(segments, [only] if only == field))
    };
    if tree.get("kind").map(word).as_deref() != Some("hpl") || !sets("n") || sets("name") {
        return;
    }
    if let (Some(name), Some(n)) = (tree.get("name"), tree.get("n")) {
        let name = Node::scalar(format!("{} n={}", word(name), word(n).replace('_', "")), name.origin.clone());
        tree.set("name", name.origin.clone(), name);
    }
}

/// Most points looked at before the run.
const SAMPLE: u64 = 256;

/// Most points of which all are built to say that none can be.
const MOST_LOOKED_AT: u64 = 100_000;

impl Study {
    /// Loads a study file, or the study of that name in the catalogue, with every file it names.
    ///
    /// # Errors
    /// All [`Problems`] of the study file: what is missing or unknown, fields that lead nowhere, labels that stand
    /// twice, files that cannot be read.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let (study, read) = Loader::noting(|| Self::read(path));
        Ok(Self { read, ..study? })
    }

    fn read(path: &Path) -> Result<Self, Problems> {
        let node = Loader.open(path, Some(Kind::Study))?;
        let node = Loader.expand_as(&node, "", Some(Kind::Study))?;
        let spec: StudySpec = Reader::read(&node)?;
        let mut reader = Reader::default();
        let items = match node.get("axes").map(|a| &a.value) {
            Some(Value::List(items)) => items.as_slice(),
            _ => &[],
        };
        let axes: Option<Vec<Axis>> =
            spec.axes.iter().zip(items).map(|(axis, item)| axis::resolve(axis, item, &mut reader)).collect();
        let axes = axes.map(|axes| mix::axis(&spec).into_iter().chain(axes).collect::<Vec<Axis>>());
        let rules = axes.as_deref().and_then(|axes| rule::resolve(&spec.rules, &node, axes, &mut reader));
        if let (Some(axes), Some(rules)) = (&axes, &rules) {
            rule::overwritten(axes, rules, &mut reader);
            rule::under_budget(&spec, axes, &mut reader);
        }
        if let (None, Some(axes), Some(rules)) = (&spec.system, &axes, &rules) {
            let set = axes.iter().flat_map(|a| &a.values).flat_map(|v| &v.overrides);
            for change in set.chain(rules.iter().flat_map(|r| &r.overrides)).filter(|c| c.path.root == Root::System) {
                let at = Node { origin: change.origin.clone(), value: Value::Null };
                reader.problem(&at, "a study of placements has no system that could be changed; take the field out");
            }
        }
        if let (Some(_), Some(axes), Some(rules)) = (&spec.search, &axes, &rules) {
            let set = axes.iter().flat_map(|a| &a.values).flat_map(|v| &v.overrides);
            let mut told: Vec<&FieldPath> = Vec::new();
            for change in set.chain(rules.iter().flat_map(|r| &r.overrides)).filter(|c| c.path.root == Root::Solve) {
                // A field of `solve`, or all of it at once.
                let sets = |field: &str| match change.path.segments.first() {
                    Some(first) => first == field,
                    None => change.value.get(field).is_some(),
                };
                let found = super::spec::UNBOUNDED.into_iter().find(|(field, _)| sets(field));
                if let Some((_, why)) = found.filter(|_| !told.contains(&&change.path)) {
                    told.push(&change.path);
                    let at = Node { origin: change.origin.clone(), value: Value::Null };
                    reader.within(change.path.to_string(), |r| r.problem(&at, why));
                }
            }
        }
        let sample = match (&spec.sample, &axes) {
            (Some(sample), Some(axes)) => {
                let sizes: Vec<usize> = axes.iter().map(|axis| axis.values.len()).collect();
                let at = node.get("sample").unwrap_or(&node);
                sample.of(&sizes).map_err(|reason| reader.within("sample", |r| r.problem(at, reason))).ok()
            }
            _ => None,
        };
        let (axes, rules) = reader.finish_with(axes.zip(rules), &node)?;
        let solve = node.get("solve").cloned().unwrap_or(Node { origin: node.origin.clone(), value: Value::Null });
        Ok(Self {
            spec,
            axes,
            rules,
            sample,
            solve,
            file: node.origin.file.to_string(),
            read: BTreeSet::new(),
            built: Built::default(),
        })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.spec.name.0
    }

    /// The files that it was read from, with those that workloads are made of (traces); of the catalogue by its scheme.
    pub fn files(&self) -> BTreeSet<PathBuf> {
        let mut found = self.read.clone();
        found.insert(PathBuf::from(&self.file));
        let set = self.axes.iter().flat_map(|a| &a.values).flat_map(|v| &v.overrides);
        let set = set.chain(self.rules.iter().flat_map(|rule| &rule.overrides)).map(|change| &change.value);
        let system = self.spec.system.as_ref().map(|tree| &tree.0);
        set.chain([self.workload()]).chain(system).for_each(|tree| tree.files(&mut found));
        found
    }

    /// The tree of the workload that the axes start from; of several the first.
    fn workload(&self) -> &Node {
        let first = self.spec.workloads.first().map(|task| &task.workload);
        // A study has one of the two.
        self.spec.workload.as_ref().or(first).map_or(&self.solve, |tree| &tree.0)
    }

    /// Names of the axes.
    pub fn axis_names(&self) -> impl Iterator<Item = &str> {
        self.axes.iter().map(|axis| axis.name.as_str())
    }

    /// The number of points, of a sample or of the grid; `None` above 2^64.
    pub fn count(&self) -> Option<u64> {
        if let Some(sample) = &self.sample {
            return Some(sample.len() as u64);
        }
        self.axes.iter().try_fold(1u64, |count, axis| count.checked_mul(axis.values.len() as u64))
    }

    /// Which value of each axis point `index` has: the digits of its place in the grid, the last axis fastest.
    fn choice(&self, index: u64) -> Vec<usize> {
        let sampled = self.sample.as_ref().and_then(|sample| sample.get(usize::try_from(index).ok()?));
        let mut rest = sampled.copied().unwrap_or(index);
        let mut choice: Vec<usize> = self
            .axes
            .iter()
            .rev()
            .map(|axis| {
                let count = (axis.values.len() as u64).max(1);
                let digit = rest % count;
                rest /= count;
                digit as usize
            })
            .collect();
        choice.reverse();
        choice
    }

    /// The point with these values of the axes.
    pub fn index(&self, choice: &[usize]) -> u64 {
        self.axes.iter().zip(choice).fold(0, |index, (axis, value)| index * axis.values.len() as u64 + *value as u64)
    }

    /// The label of each axis at point `index`.
    pub fn labels(&self, index: u64) -> Vec<&str> {
        let chosen = self.choice(index);
        self.axes.iter().zip(chosen).filter_map(|(axis, i)| axis.values.get(i)).map(|v| v.label.as_str()).collect()
    }

    /// What a choice of one value an axis sets, in order: each axis, and after it the rules that end with it.
    fn changes(&self, choice: &[usize]) -> Vec<&Override> {
        let mut changes = Vec::new();
        for (i, (axis, value)) in self.axes.iter().zip(choice).enumerate() {
            changes.extend(axis.values.get(*value).map(|v| v.overrides.as_slice()).unwrap_or_default());
            let ending = self.rules.iter().filter(|rule| rule.after() == i && rule.holds(choice));
            changes.extend(ending.flat_map(|rule| &rule.overrides));
        }
        changes
    }

    /// Builds point `index`.
    ///
    /// # Errors
    /// All [`Problems`] of its workload, its system and its solve settings.
    pub fn point(&self, index: u64) -> Result<Point, Problems> {
        let point = self.point_as_it_is(index)?;
        if !self.is_beyond(index) {
            return Ok(point);
        }
        Ok(Point { system: point.system.map(|system| system.without_die_limit()), ..point })
    }

    /// The number by which a point is asked for as if dies had no limit. Its labels are those of the point.
    pub(super) fn beyond(&self, index: u64) -> u64 {
        self.count().map_or(index, |count| index.saturating_add(count))
    }

    /// Whether a number is one of [`Study::beyond`].
    pub(super) fn is_beyond(&self, index: u64) -> bool {
        self.count().is_some_and(|count| index >= count)
    }

    fn point_as_it_is(&self, index: u64) -> Result<Point, Problems> {
        let mut solve = self.solve.clone();
        let mut problems: Vec<Problem> = Vec::new();
        let changes = self.changes(&self.choice(index));
        let of_workload = changes.iter().filter(|c| c.path.root == Root::Workload);
        let made_by: Vec<usize> = of_workload.map(|c| std::ptr::from_ref(*c) as usize).collect();
        let known = lock(&self.built.0.workloads).get(&made_by).cloned();
        let mut workload = known.is_none().then(|| self.workload().clone());
        let of_system: Vec<&Override> = changes.iter().copied().filter(|c| c.path.root == Root::System).collect();
        let system = self.system_again(&of_system);
        // What is wrong is told of a tree made from the start.
        let start = self.spec.system.as_ref().filter(|_| system.is_none());
        let mut tree_of_system = start.map(|s| s.0.clone());
        for change in &changes {
            let tree = match change.path.root {
                Root::Workload => match &mut workload {
                    Some(workload) => workload,
                    None => continue,
                },
                Root::System => match &mut tree_of_system {
                    Some(system) => system,
                    None => continue,
                },
                Root::Solve => &mut solve,
            };
            if let Err(problem) = set(tree, &change.path.segments, &change.value, &change.origin, &change.path) {
                problems.push(problem);
            }
        }
        if solve.value == Value::Null {
            solve.value = Value::Map(Vec::new());
        }
        let mut collect = |root: Root, found: Problems| {
            problems.extend(found.0.into_iter().map(|problem| self.placed(root, problem)));
        };
        let system = match (system, tree_of_system) {
            (None, Some(node)) => {
                let built = System::build(&node).map_err(|p| collect(Root::System, p)).ok();
                if let Some(system) = &built {
                    let paths = of_system.iter().map(|c| c.path.clone()).collect();
                    self.keep(Tree { made_by: addresses(&of_system), paths, node, chip: None }, system);
                }
                built
            }
            (known, _) => known,
        };
        let solve_node = solve;
        let solve = Reader::read::<SolveSpec>(&solve_node);
        let (mut language, mut language_as_graph) = (None, false);
        let workload = match (known, workload) {
            (Some(known), _) => Some(known),
            (None, None) => None,
            (None, Some(mut tree)) => {
                sized(&mut tree, &changes);
                language = system.as_ref().and_then(|system| executed::language(&tree, system, solve.as_ref().ok()));
                let built = match &language {
                    Some(model) => Ok(executed::stand_in(model)),
                    None => WorkloadSpec::build(&tree),
                };
                // What a language model becomes depends on the system: it is not kept.
                let keeps = !is_language_model(&tree);
                language_as_graph = !keeps && language.is_none();
                built.map_err(|p| collect(Root::Workload, p)).ok().map(|workload| {
                    let start = KeyStart::of(&workload).unwrap_or_default();
                    let shared: Shared = (Arc::new(workload), Arc::new(start));
                    let mut kept = lock(&self.built.0.workloads);
                    if keeps && kept.len() < MOST_BUILT {
                        kept.insert(made_by, shared.clone());
                    }
                    shared
                })
            }
        };
        let solve = solve.map_err(|p| collect(Root::Solve, p)).ok();
        let (Some((workload, key_start)), Some(solve), true) = (workload, solve, problems.is_empty()) else {
            return Err(Problems(problems));
        };
        let mut system = system.filter(|_| solve.place.is_none());
        if system.is_none() && solve.place.is_none() {
            let message = "missing; expected the path of a file, or a system (points with solve.place alone have none)";
            return Err(Problem { origin: solve_node.origin, field: "system".into(), message: message.into() }.into());
        }
        let actors = match &solve.place {
            Some(spec) => {
                let found = self.workload_tree(index).and_then(|tree| placed::actors(spec, &tree));
                Some(Arc::new(
                    found.map_err(|p| Problems(p.0.into_iter().map(|p| self.placed(Root::Workload, p)).collect()))?,
                ))
            }
            None => None,
        };
        let unknown = |(name, _): &&(String, Position)| workload.kernel_index(name).is_none();
        let unknown: Vec<Problem> = (solve.partitions.0.iter().filter(unknown))
            .map(|(name, _)| {
                let at = solve_node.get("partitions").and_then(|n| n.get(name)).unwrap_or(&solve_node);
                let names: Vec<&str> = workload.kernels.iter().map(|k| k.name.as_str()).collect();
                let near = crate::spec::nearest::nearest(name, &names);
                let message = match near {
                    Some(near) => format!("there is no kernel {name:?}; did you mean {near:?}?"),
                    None => format!("there is no kernel {name:?}"),
                };
                Problem { origin: at.origin.clone(), field: format!("solve.partitions.{name}"), message }
            })
            .collect();
        let used = system.as_ref().filter(|_| !solve.network_use.is_empty());
        let used = used.map_or(Vec::new(), |system| use_faults(&solve.network_use, system)).into_iter();
        let at = solve_node.get("network_use").unwrap_or(&solve_node);
        let used = used.map(|(field, message)| Problem {
            origin: at.origin.clone(),
            field: format!("solve.{field}"),
            message,
        });
        let unknown: Vec<Problem> = unknown.into_iter().chain(used).collect();
        if !unknown.is_empty() {
            return Err(Problems(unknown));
        }
        let fitted = match solve.budget.as_ref().zip(system.as_mut()).map(|(budget, system)| budget.fit(system)) {
            None => None,
            Some(Ok(fitted)) => Some(Ok(fitted)),
            Some(Err(Unfit::Over { needed, available, unit, remedy })) => Some(Err(Infeasible {
                resource: "budget".into(),
                needed,
                available,
                unit: unit.into(),
                remedy,
                mends: Vec::new(),
            })),
            Some(Err(Unfit::Wrong(message))) => {
                let origin = solve_node.get("budget").map_or(solve_node.origin.clone(), |n| n.origin.clone());
                return Err(Problem { origin, field: "solve.budget".into(), message }.into());
            }
        };
        Ok(Point { workload, key_start, language, language_as_graph, actors, system, solve, fitted })
    }

    /// The tree of a point's workload.
    fn workload_tree(&self, index: u64) -> Result<Node, Problems> {
        self.changed(index, Root::Workload, self.workload())
    }

    /// What a point makes of a tree.
    fn changed(&self, index: u64, root: Root, tree: &Node) -> Result<Node, Problems> {
        let mut tree = tree.clone();
        let changes = self.changes(&self.choice(index));
        for change in changes.iter().filter(|c| c.path.root == root) {
            set(&mut tree, &change.path.segments, &change.value, &change.origin, &change.path)?;
        }
        if root == Root::Workload {
            sized(&mut tree, &changes);
        }
        Ok(tree)
    }

    /// The trees of a point's workload and system, with all that its axes set; placements have no system. Budgets scale the system after it is read.
    ///
    /// # Errors
    /// [`Problems`]: a field that leads nowhere.
    pub fn trees(&self, index: u64) -> Result<(Node, Option<Node>), Problems> {
        let system = self.spec.system.as_ref().map(|tree| self.changed(index, Root::System, &tree.0)).transpose()?;
        Ok((self.workload_tree(index)?, system))
    }

    /// The file it was read from.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The system that overrides make, from the tree of another point that differs in the values of the last of them alone.
    /// `None` where there is no such tree, or something is wrong with what it becomes.
    fn system_again(&self, changes: &[&Override]) -> Option<System> {
        let mut tree = lock(&self.built.0.trees).pop()?;
        let made_by = addresses(changes);
        let same = made_by.iter().zip(&tree.made_by).take_while(|(one, other)| one == other).count();
        if made_by.len() != tree.made_by.len() {
            return None;
        }
        // Each is set where the other point has set it, and everything after it again.
        for (change, path) in changes.iter().zip(&tree.paths).skip(same) {
            if change.path != *path {
                return None;
            }
            set(&mut tree.node, &change.path.segments, &change.value, &change.origin, &change.path).ok()?;
        }
        let touched = |c: &&Override| c.path.segments.first().is_none_or(|part| part == "chip");
        if changes.iter().skip(same).any(touched) {
            tree.chip = None;
        }
        let system = match tree.chip.clone() {
            Some(chip) => System::build_with(chip, &tree.node),
            None => System::build(&tree.node),
        };
        let system = system.ok()?;
        tree.made_by = made_by;
        self.keep(tree, &system);
        Some(system)
    }

    /// Puts a tree back for the next point.
    fn keep(&self, mut tree: Tree, system: &System) {
        if tree.chip.is_none() && system.model.precision == Precision::Float64 {
            tree.chip = Some(system.chip.clone());
        }
        lock(&self.built.0.trees).push(tree);
    }

    /// In the study's own file a field is named from the study's top, not from that of the workload or the system.
    fn placed(&self, root: Root, mut problem: Problem) -> Problem {
        if problem.origin.file.as_ref() == self.file {
            let dot = if problem.field.is_empty() { "" } else { "." };
            problem.field = format!("{}{dot}{}", root.word(), problem.field);
        }
        problem
    }

    /// Builds a sample of the points, to find before a long run what is wrong with the study itself: the first points,
    /// and each value of each axis at the first value of the others.
    pub fn outlook(&self) -> Outlook {
        let Some(count) = self.count() else { return Outlook::default() };
        let mut sample: Vec<u64> = Vec::new();
        let mut stride = count;
        for axis in &self.axes {
            stride /= (axis.values.len() as u64).max(1);
            sample.extend((0..axis.values.len() as u64).take(SAMPLE as usize).map(|i| i * stride));
        }
        sample.extend(0..count.min(SAMPLE));
        sample.sort_unstable();
        sample.dedup();
        // Evenly thinned out: every axis stays in it.
        let step = (sample.len() as u64).div_ceil(SAMPLE).max(1) as usize;
        let mut every: Option<Vec<Problem>> = None;
        let mut some: Vec<Problem> = Vec::new();
        let mut stands = false;
        let steps = Steps::of("points", sample.len().div_ceil(step) as u64);
        // A language model whose executions or servings are searched, and one that is mapped as one graph.
        let mut language: [Option<u64>; 2] = [None; 2];
        for index in sample.into_iter().step_by(step) {
            let point = self.point(index);
            if let Ok(point) = &point
                && (point.language.is_some() || point.language_as_graph)
            {
                language[usize::from(point.language_as_graph)].get_or_insert(index);
            }
            let found = point.err().map(|p| p.0).unwrap_or_default();
            stands |= found.is_empty();
            steps.step();
            for problem in &found {
                if !some.contains(problem) {
                    some.push(problem.clone());
                }
            }
            every = Some(match every {
                Some(common) => common.into_iter().filter(|p| found.contains(p)).collect(),
                None => found,
            });
        }
        let every = every.unwrap_or_default();
        some.retain(|problem| !every.contains(problem));
        // A sample without a sound point is no proof; the look at all points ends with the first that is sound. Of a space that is too large for it
        // the points fail one by one.
        let none_stands = !stands && count <= MOST_LOOKED_AT && (0..count).all(|index| self.point(index).is_err());
        let unlike = match language {
            [Some(searched), Some(graph)] => Some(executed::unlike(searched, graph)),
            _ => None,
        };
        Outlook { every, some, none_stands, unlike }
    }
}
