//! The page of equations (docs/model.md), written again from the page alone: random graphs of one repeated layer on random systems,
//! mapped by the program or with decisions drawn blindly, and every figure of the plan derived here, and whether it keeps the rules.
//! Nothing of the program's model, checker or search is used; what is shared is the YAML that this test writes, the figures that the
//! program prints, and the fields that only generators of workloads fill. Chains of blocks are neither on the page nor here.
//!
//! `FLOWSPACE_EQUATIONS=20` draws twenty times as many cases.

mod case;
mod compute;
mod derive;
mod graph;
mod iteration;
mod network;
mod random;
mod tally;

use case::{Graph, Machine};
use derive::{Decisions, Model};
use flowspace::mapping::request::{MapError, Pins};
use flowspace::mapping::{Answer, Request, map};
use flowspace::spec::Node;
use flowspace::system::System;
use flowspace::workload::{Workload, WorkloadSpec};
use graph::Strategy;
use random::Random;
use serde_json::Value;
use tally::Tally;

/// Where plans come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// The search at its defaults.
    Search,
    /// Decisions drawn blindly, figures by `check --recost`.
    Drawn,
    /// Decisions drawn blindly that keep the rules, pinned in a search.
    Pinned,
}

fn read(graph: &Graph, machine: &Machine) -> (Workload, System) {
    let (w, s) = (graph.yaml(), machine.yaml());
    let workload = Node::parse("w.yaml", &w).map(|n| WorkloadSpec::build(&n));
    let workload = workload.unwrap_or_else(|e| panic!("{e}\n{w}")).unwrap_or_else(|e| panic!("{e}\n{w}"));
    let system = Node::parse("s.yaml", &s).map(|n| System::build(&n));
    let system = system.unwrap_or_else(|e| panic!("{e}\n{s}")).unwrap_or_else(|e| panic!("{e}\n{s}"));
    (patched(graph, workload), system)
}

/// What generators of workloads state and files of graphs do not.
fn patched(graph: &Graph, mut workload: Workload) -> Workload {
    use case::Slot as S;
    use flowspace::graph::Slot as T;
    for (i, kernel) in graph.kernels.iter().enumerate() {
        let theirs = &mut workload.kernels[i];
        theirs.passes = kernel.passes;
        theirs.lhs_shared = kernel.lhs_shared;
        theirs.cache_bytes = kernel.cache;
        for (t, slot) in &kernel.reads {
            let slot = match slot {
                S::Reshaped => T::Reshaped,
                S::Shared => T::Shared,
                S::Lhs if kernel.lhs_shared > 1 => T::Lhs,
                S::LhsT if kernel.lhs_shared > 1 => T::LhsT,
                _ => continue,
            };
            let tensor = workload.tensors.iter_mut().find(|x| x.name == format!("t{t}")).unwrap();
            tensor.consumers.iter_mut().find(|u| u.kernel == i).unwrap().slot = slot;
        }
    }
    for (i, tensor) in graph.tensors.iter().enumerate() {
        workload.tensors.iter_mut().find(|x| x.name == format!("t{i}")).unwrap().in_place = tensor.in_place;
    }
    workload
}

const STRATEGIES: [(Strategy, flowspace::model::Strategy); 5] = {
    use flowspace::model::Strategy as S;
    [
        (Strategy::Outer, S::Outer),
        (Strategy::M, S::M),
        (Strategy::K, S::K),
        (Strategy::N, S::N),
        (Strategy::Replicate, S::Replicate),
    ]
};

fn ours(theirs: &flowspace::plan::Decisions) -> Decisions {
    let strategy = |s: &flowspace::model::Strategy| STRATEGIES.iter().find(|(_, theirs)| theirs == s).unwrap().0;
    Decisions {
        uses: theirs.uses.iter().map(|u| [u.tp, u.pp, u.dp]).collect(),
        stages: theirs.stages.clone(),
        strategy: theirs.sharding.iter().map(strategy).collect(),
        tiles: theirs.tiles,
        on_chip: theirs.weights_on_chip,
        partition: theirs.partition.clone(),
    }
}

fn theirs(ours: &Decisions) -> flowspace::plan::Decisions {
    let use_of = |u: &[u64; 3]| flowspace::plan::DimensionUse { tp: u[0], pp: u[1], dp: u[2], rows: 1, cols: 1 };
    let strategy = |s: &Strategy| STRATEGIES.iter().find(|(ours, _)| ours == s).unwrap().1;
    flowspace::plan::Decisions {
        uses: ours.uses.iter().map(use_of).collect(),
        stages: ours.stages.clone(),
        sharding: ours.strategy.iter().map(strategy).collect(),
        tiles: ours.tiles,
        weights_on_chip: ours.on_chip,
        partition: ours.partition.clone(),
    }
}

fn near(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// A sum of parts that cancel may leave a little.
fn is_dust(a: f64, b: f64) -> bool {
    a.abs() < 1e-15 && b.abs() < 1e-15
}

/// Plans looked at, what occurred in them, and what differed.
#[derive(Default)]
struct Survey {
    tally: Tally,
    faults: Vec<String>,
}

impl Survey {
    /// Draws a case, has it mapped, derives it.
    fn look(&mut self, seed: u64, from: From) {
        let mut random = Random(seed);
        let graph = random::graph(&mut random);
        let machine = random::machine(&mut random, graph.word);
        let (workload, system) = read(&graph, &machine);
        let drawn = random::decisions(&mut random, &graph, &machine);
        let of_search = |request: &Request| match map(&workload, &system, request) {
            Ok(Answer::Mapped(plan, _)) => Some((ours(&plan.decisions), serde_json::to_value(&plan.figures).unwrap())),
            Ok(Answer::Infeasible(_)) | Err(MapError::NoPlanYet { .. }) => None,
            Err(e) => panic!("{e}\n{}{}", graph.yaml(), machine.yaml()),
        };
        let mut say = |decisions: &Decisions, what: &str| {
            let faults = &mut self.faults;
            faults.push(format!("seed {seed} {from:?}\n{}{}{decisions:?}\n{what}", graph.yaml(), machine.yaml()));
        };
        let answer = match from {
            From::Search => of_search(&Request::default()),
            From::Drawn => match flowspace::check::derive(&workload, &system, &theirs(&drawn)) {
                Ok(figures) => Some((drawn, serde_json::to_value(&figures).unwrap())),
                Err(broken) => {
                    if Model::new(&graph, &machine, &drawn).lawful() {
                        say(&drawn, &format!("by the page it keeps all rules: {} in the plan, ", broken.join("\n")));
                    }
                    None
                }
            },
            From::Pinned => {
                let there = theirs(&drawn);
                let streamed = graph.kernels.iter().map(|k| if graph::along_k(k) { k.k } else { k.n });
                let shortest = streamed.min().unwrap();
                let pins = Pins {
                    uses: Some(there.uses.clone()),
                    sharding: there.sharding.iter().map(|s| Some(*s)).collect(),
                    partition: there.partition.iter().map(|p| Some(*p)).collect(),
                };
                of_search(&Request { pins, tiles: Some(drawn.tiles.min(shortest)), ..Request::default() })
            }
        };
        let Some((decisions, printed)) = answer else {
            self.tally.add("without a plan");
            return;
        };
        let model = Model::new(&graph, &machine, &decisions);
        if !model.lawful() {
            say(&decisions, "by the page it breaks a rule of section 12: in the plan, ");
            return;
        }
        let differ = differences(&model, &printed);
        if !differ.is_empty() {
            say(&decisions, &differ.join("\n"));
        }
        self.tally.count(&model);
    }
}

/// Figures that differ.
fn differences(model: &Model, printed: &Value) -> Vec<String> {
    let mut out = Vec::new();
    for (name, value) in model.figures() {
        match printed.pointer(&name).and_then(Value::as_f64) {
            Some(theirs) if near(theirs, value) || is_dust(theirs, value) => {}
            Some(theirs) => out.push(format!("{name}: {theirs} in the plan, {value} by the page")),
            None => out.push(format!("{name}: not printed in the plan, ")),
        }
    }
    out
}

fn survey(cases: u64, from: From) -> Survey {
    let more = std::env::var("FLOWSPACE_EQUATIONS").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    let mut survey = Survey::default();
    for seed in 0..cases * more {
        survey.look(seed, from);
    }
    survey
}

/// That all figures are those of the page, and that each of these features occurred at least so often.
fn holds(survey: &Survey, features: &[(&str, u32)]) {
    if let Some(first) = survey.faults.first() {
        panic!("{} cases differ from docs/model.md, the first:\n{first}", survey.faults.len());
    }
    for (name, least) in features {
        assert!(
            survey.tally.of(name) >= *least,
            "{name}: {} times, not {least}\n{}",
            survey.tally.of(name),
            survey.tally
        );
    }
}

#[test]
fn plans_of_the_search_are_those_of_the_page() {
    holds(&survey(1500, From::Search), tally::OF_SEARCH);
}

#[test]
fn plans_drawn_blindly_are_those_of_the_page() {
    holds(&survey(5000, From::Drawn), tally::OF_DRAWN);
}

#[test]
fn pinned_plans_are_those_of_the_page() {
    holds(&survey(1500, From::Pinned), tally::OF_PINNED);
}
