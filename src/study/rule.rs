//! Rules of a study: fields that depend on several axes at once, so that the grid need not be a pure product.
//!
//! The labels of a study are a product of its axes; what a combination of labels *sets* need not be. `link: nvlink` may
//! stand for the innermost dimension with one workload and for all of them with another; a topology may have other sizes
//! for another workload. A rule says for which labels it holds and which fields it then sets. It is applied right after
//! the last of the axes it names, so an axis after it can still change part of what it set.

use super::axis::{Axis, Override, field_override};
use super::field::FieldPath;
use super::spec::{RuleSpec, StudySpec};
use crate::spec::nearest::nearest;
use crate::spec::{Node, Origin, Reader, Value};
use crate::system::budget::Scaled;
use std::collections::{BTreeSet, HashSet};

/// A rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// For which values of which axes it holds: position of the axis, positions of its values. Axes that are not named
    /// may have any value.
    pub when: Vec<(usize, BTreeSet<usize>)>,
    /// The fields it sets.
    pub overrides: Vec<Override>,
}

impl Rule {
    /// Whether it holds for a choice of one value an axis.
    pub fn holds(&self, choice: &[usize]) -> bool {
        self.when.iter().all(|(axis, values)| choice.get(*axis).is_some_and(|value| values.contains(value)))
    }

    /// The last of the axes it names: it is applied right after that.
    pub fn after(&self) -> usize {
        self.when.iter().map(|(axis, _)| *axis).max().unwrap_or(0)
    }

    /// Whether it holds wherever `other` does.
    fn covers(&self, other: &Self) -> bool {
        self.when
            .iter()
            .all(|(axis, values)| other.when.iter().any(|(also, fewer)| also == axis && fewer.is_subset(values)))
    }
}

/// Resolves the rules of a study; notes every problem.
pub(super) fn resolve(specs: &[RuleSpec], node: &Node, axes: &[Axis], reader: &mut Reader) -> Option<Vec<Rule>> {
    let items = match node.get("rules").map(|rules| &rules.value) {
        Some(Value::List(items)) => items.as_slice(),
        _ => &[],
    };
    let read: Vec<Option<Rule>> = specs
        .iter()
        .zip(items)
        .enumerate()
        .map(|(i, (spec, item))| reader.within(format!("rules.[{i}]"), |r| rule(spec, item, axes, r)))
        .collect();
    read.into_iter().collect()
}

fn rule(spec: &RuleSpec, node: &Node, axes: &[Axis], reader: &mut Reader) -> Option<Rule> {
    let when = reader.within("when", |r| conditions(spec, node.get("when").unwrap_or(node), axes, r));
    let set = node.get("set").unwrap_or(node);
    let overrides = reader.within("set", |r| {
        let Value::Map(fields) = &set.value else { return None };
        if fields.is_empty() {
            r.problem(set, "expected at least one field and what it is set to");
        }
        let read: Vec<_> = fields.iter().map(|(field, place, value)| field_override(field, place, value, r)).collect();
        read.into_iter().collect::<Option<Vec<_>>>()
    });
    Some(Rule { when: when?, overrides: overrides? })
}

fn conditions(
    spec: &RuleSpec,
    node: &Node,
    axes: &[Axis],
    reader: &mut Reader,
) -> Option<Vec<(usize, BTreeSet<usize>)>> {
    if spec.when.0.is_empty() {
        reader.problem(
            node,
            "expected at least one axis; what holds for every point belongs into workload, system or solve",
        );
        return None;
    }
    let names: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
    let mut whole = true;
    let mut when = Vec::new();
    for (name, labels) in &spec.when.0 {
        let at = node.get(name).unwrap_or(node);
        let Some(position) = names.iter().position(|n| n == name) else {
            reader.within(name.clone(), |r| r.problem(at, unknown("axis", name, &names)));
            whole = false;
            continue;
        };
        if axes[position].continuous {
            let message =
                format!("axis {name:?} is continuous: what holds at one of its values says nothing of those beside it");
            reader.within(name.clone(), |r| r.problem(at, message));
            whole = false;
            continue;
        }
        let known: Vec<&str> = axes[position].values.iter().map(|value| value.label.as_str()).collect();
        let mut values = BTreeSet::new();
        for label in &labels.0 {
            match known.iter().position(|k| *k == label.0) {
                Some(value) => {
                    values.insert(value);
                }
                None => {
                    let what = format!("value of axis {name:?} called");
                    reader.within(name.clone(), |r| r.problem(at, unknown(&what, &label.0, &known)));
                    whole = false;
                }
            }
        }
        when.push((position, values));
    }
    whole.then_some(when)
}

fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(near) => format!("there is no {what} {name:?}; did you mean {near:?}?"),
        None => format!("there is no {what} {name:?}; there is {}", known.join(", ")),
    }
}

/// What sets fields of a point: an axis, or a rule.
enum Step<'s> {
    Axis(usize, &'s Axis),
    Rule(usize, &'s Rule),
}

impl<'s> Step<'s> {
    /// The distinct fields it sets, each where it is first set.
    fn fields(&self) -> Vec<(&'s FieldPath, &'s Origin)> {
        let mut seen = HashSet::new();
        let all: Vec<&Override> = match self {
            Self::Axis(_, axis) => axis.values.iter().flat_map(|value| &value.overrides).collect(),
            Self::Rule(_, rule) => rule.overrides.iter().collect(),
        };
        all.into_iter().filter(|o| seen.insert(&o.path)).map(|o| (&o.path, &o.origin)).collect()
    }
}

/// What sets a field that something later sets again, or sets a whole of which it is part, changes nothing; its labels
/// would lie. A rule may do that to the axes it names: that is what it is for.
pub(super) fn overwritten(axes: &[Axis], rules: &[Rule], reader: &mut Reader) {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for (i, axis) in axes.iter().enumerate() {
        steps.push(Step::Axis(i, axis));
        steps.extend(rules.iter().enumerate().filter(|(_, r)| r.after() == i).map(|(j, rule)| Step::Rule(j, rule)));
    }
    // The axis of several workloads is none of the file's list.
    let first = axes.iter().take_while(|axis| axis.mixes).count();
    for (n, later) in steps.iter().enumerate() {
        for earlier in &steps[..n] {
            let excused = match (earlier, later) {
                (Step::Axis(i, _), Step::Rule(_, rule)) => rule.when.iter().any(|(axis, _)| axis == i),
                (Step::Rule(_, before), Step::Rule(_, rule)) => !rule.covers(before),
                (_, Step::Axis(..)) => false,
            };
            if excused {
                continue;
            }
            let before = earlier.fields();
            let clash = later.fields().into_iter().find_map(|(path, origin)| {
                before.iter().find(|(hidden, _)| path.hides(hidden)).map(|(hidden, _)| (path, origin, *hidden))
            });
            let Some((path, origin, hidden)) = clash else { continue };
            let (place, remedy) = match later {
                Step::Axis(i, _) if path == hidden => (format!("axes.[{}]", i - first), "set it in one place"),
                Step::Axis(i, _) => (format!("axes.[{}]", i - first), "put this axis first"),
                Step::Rule(j, _) => (format!("rules.[{j}]"), "name that axis under when, or set it in one place"),
            };
            let owner = match earlier {
                Step::Axis(_, axis) => format!("axis {:?}", axis.name),
                Step::Rule(j, _) => format!("rule {j}"),
            };
            let at = Node { origin: origin.clone(), value: Value::Null };
            let message = format!("sets {path}, so that {hidden} of {owner} has no effect; {remedy}");
            reader.within(place, |r| r.problem(&at, message));
        }
    }
}

/// A size that an axis sets and a budget then scales changes nothing; its labels would lie.
pub(super) fn under_budget(spec: &StudySpec, axes: &[Axis], reader: &mut Reader) {
    let fields =
        || axes.iter().enumerate().flat_map(|(i, axis)| Step::Axis(i, axis).fields().into_iter().map(move |f| (i, f)));
    let budget = spec.solve.budget.as_ref().map(|budget| budget.dimension);
    let of_axis = || fields().any(|(_, (path, _))| path.to_string() == "solve.budget").then_some(Scaled::Outermost);
    let network =
        spec.system.as_ref().and_then(|system| system.0.get("network")).and_then(|network| network.get("dimensions"));
    let (Some(scaled), Some(Value::List(dimensions))) = (budget.or_else(of_axis), network.map(|d| &d.value)) else {
        return;
    };
    // Where an axis sets the network itself, which dimension is scaled is not known before its points are built.
    let whole = |path: &FieldPath| path.to_string().starts_with("system") && path.segments.len() < 3;
    if fields().any(|(_, (path, _))| whole(path) && path.segments.first().is_none_or(|part| part == "network")) {
        return;
    }
    let at = match scaled {
        Scaled::Outermost => dimensions.len().saturating_sub(1),
        Scaled::Innermost => 0,
        Scaled::At(at) => at,
    };
    for (i, (path, origin)) in fields() {
        let [network, list, entry, size] = path.segments.as_slice() else { continue };
        let is_it = entry.parse() == Ok(at) || (entry == "*" && dimensions.len() == 1);
        if (network.as_str(), list.as_str(), size.as_str()) == ("network", "dimensions", "size") && is_it {
            let at = Node { origin: origin.clone(), value: Value::Null };
            let message = format!(
                "sets {path}, which the budget of the study scales, so that it has no effect; leave the axis out, or let the budget scale another dimension (solve.budget.dimension)"
            );
            let first = axes.iter().take_while(|axis| axis.mixes).count();
            reader.within(format!("axes.[{}]", i - first), |r| r.problem(&at, message));
        }
    }
}
