//! What is known of a space: the points that were solved, and what they say of the others.
//!
//! Where a point has no less of anything than another (its ranks along every ordered axis are no lower, those of other axes are the same), a
//! search finds no less good a plan at it. And along an axis of *rates* (bandwidths, clocks) more is better by no more than the factor between
//! the values: a time is made of sums and maxima of amounts over rates, so that rates k times as high divide the time of every mapping, and so
//! the least of all, by k at most. Both together bound what a search could find at a point by every point that was solved:
//!
//! ```text
//! least(s) >= least(r) / k    k = the largest factor over the axes along which s has more than r, all of them axes of rates
//! found(s) <= found(r) * k    k = the same from s to r
//! ```
//!
//! Whether a point has a plan at all is a question of what fits, which no rate changes: points that differ in rates alone all have one, or none has.
//!
//! The points lie in a k-d tree for each choice of the values that are not ordered, each node with the best of its points, so that a look takes
//! a small part of them.

use super::cover::{Found, Order, Question, ROUNDING, Solved};
use std::collections::HashMap;

/// Points of a leaf.
const LEAF: usize = 16;

/// The solved points and what they say.
#[derive(Debug, Default)]
pub struct Known {
    solved: Vec<Solved>,
    places: HashMap<Vec<usize>, usize>,
    groups: HashMap<Vec<usize>, Group>,
}

/// Points that differ along ordered axes alone.
#[derive(Debug, Default)]
struct Group {
    tree: Tree,
    /// Points that are not in the tree yet.
    recent: Vec<usize>,
    /// Ranks along the axes that say what fits, of points that have no plan; of each pair the one with more.
    infeasible: Vec<(Vec<usize>, usize)>,
    /// The same of points that have one; of each pair the one with less.
    feasible: Vec<(Vec<usize>, usize)>,
}

#[derive(Debug, Default)]
struct Tree {
    /// Points in the order of the tree: those of a node stand together.
    points: Vec<usize>,
    /// The root first; children stand behind their parent.
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    low: Vec<usize>,
    high: Vec<usize>,
    /// Per measure: the highest least value of its points, and the lowest value found. Empty where none has a plan.
    most_least: Vec<f64>,
    least_found: Vec<f64>,
    begin: usize,
    end: usize,
    /// The first child, the second one behind it; none of a leaf.
    children: Option<(usize, usize)>,
}

/// Two points that break the order: the one with less, and the one with more of everything that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct Broken {
    /// Ranks of the point with less.
    pub low: Vec<usize>,
    /// Ranks of the point with more.
    pub high: Vec<usize>,
    /// The measure; none where it is about having a plan.
    pub measure: Option<usize>,
}

fn values(found: &Found) -> Option<(&[f64], &[f64])> {
    match found {
        Found::Plan { searched, least } => Some((searched, least)),
        Found::Infeasible | Found::Failed => None,
    }
}

/// Whether no rank of the first is above that of the second.
fn no_more(a: &[usize], b: &[usize]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b)
}

impl Known {
    /// All of them, in the order of solving.
    pub fn solved(&self) -> &[Solved] {
        &self.solved
    }

    /// The same, when the search has ended.
    pub fn into_solved(self) -> Vec<Solved> {
        self.solved
    }

    /// Whether a point was solved.
    pub fn has(&self, at: &[usize]) -> bool {
        self.places.contains_key(at)
    }

    /// Whether a point could not be solved.
    pub fn failed(&self, at: &[usize]) -> bool {
        self.places.get(at).is_some_and(|place| self.solved[*place].found == Found::Failed)
    }

    /// Solved points between two corners that agree along the axes without an order.
    pub fn inside(&self, question: &Question, low: &[usize], high: &[usize]) -> u64 {
        if low == high {
            return u64::from(self.has(low));
        }
        let Some(group) = self.groups.get(&question.choice(low)) else { return 0 };
        group.count(&self.solved, low, high)
    }

    /// The least that a search could find at a point, per measure; infinite where it has no plan.
    pub fn least(&self, question: &Question, at: &[usize], least: &mut [f64]) {
        let Some(group) = self.groups.get(&question.choice(at)) else { return };
        if group.has_none(&question.limiting(at)).is_some() {
            least.fill(f64::INFINITY);
            return;
        }
        for (measure, least) in least.iter_mut().enumerate() {
            let look = Look { question, solved: &self.solved, at, measure };
            *least = look.greatest_least(group, *least).0;
        }
    }

    /// What a search finds at a point at most, per measure; infinite where nothing is known of it.
    pub fn most(&self, question: &Question, at: &[usize]) -> Vec<f64> {
        let measures = question.objectives + question.limits.len();
        let group = self.groups.get(&question.choice(at));
        let of = |measure| {
            let look = Look { question, solved: &self.solved, at, measure };
            group.map_or(f64::INFINITY, |group| look.least_found(group, f64::INFINITY).0)
        };
        (0..measures).map(of).collect()
    }

    /// Keeps a point, after a look at whether it agrees with the others.
    ///
    /// # Errors
    /// [`Broken`] where two points show that the order does not hold.
    pub fn take(&mut self, question: &Question, new: Solved) -> Result<(), Broken> {
        let place = self.solved.len();
        let group = self.groups.entry(question.choice(&new.at)).or_default();
        let limiting = question.limiting(&new.at);
        match &new.found {
            Found::Failed => {}
            Found::Infeasible => {
                if let Some((_, low)) = group.feasible.iter().find(|(ranks, _)| no_more(ranks, &limiting)) {
                    return Err(Broken { low: self.solved[*low].at.clone(), high: new.at, measure: None });
                }
                if group.has_none(&limiting).is_none() {
                    group.infeasible.retain(|(ranks, _)| !no_more(ranks, &limiting));
                    group.infeasible.push((limiting, place));
                }
            }
            Found::Plan { searched, least } => {
                if let Some(high) = group.has_none(&limiting) {
                    return Err(Broken { low: new.at, high: self.solved[high].at.clone(), measure: None });
                }
                for measure in 0..searched.len() {
                    let look = Look { question, solved: &self.solved, at: &new.at, measure };
                    let above = look.greatest_least(group, searched[measure] * (1.0 + ROUNDING));
                    let below = look.least_found(group, least[measure] * (1.0 - ROUNDING));
                    let (low, high) = match (above.1, below.1) {
                        (Some(high), _) => (&new.at, &self.solved[high].at),
                        (None, Some(low)) => (&self.solved[low].at, &new.at),
                        (None, None) => continue,
                    };
                    return Err(Broken { low: low.clone(), high: high.clone(), measure: Some(measure) });
                }
                if !group.feasible.iter().any(|(ranks, _)| no_more(ranks, &limiting)) {
                    group.feasible.retain(|(ranks, _)| !no_more(&limiting, ranks));
                    group.feasible.push((limiting, place));
                }
            }
        }
        group.recent.push(place);
        self.places.insert(new.at.clone(), place);
        self.solved.push(new);
        // Built anew when a look at the rest has become a good part of one at all.
        if group.recent.len() > LEAF.max(group.tree.points.len() / 8) {
            let mut points = std::mem::take(&mut group.tree.points);
            points.append(&mut group.recent);
            group.tree = Tree::new(&self.solved, points);
        }
        Ok(())
    }
}

impl Group {
    /// A point without a plan that has no less of what limits than these ranks.
    fn has_none(&self, limiting: &[usize]) -> Option<usize> {
        self.infeasible.iter().find(|(ranks, _)| no_more(limiting, ranks)).map(|(_, place)| *place)
    }

    fn count(&self, solved: &[Solved], low: &[usize], high: &[usize]) -> u64 {
        let inside = |place: &&usize| no_more(low, &solved[**place].at) && no_more(&solved[**place].at, high);
        let mut count = self.recent.iter().filter(inside).count();
        let mut open: Vec<usize> = if self.tree.nodes.is_empty() { vec![] } else { vec![0] };
        while let Some(node) = open.pop() {
            let node = &self.tree.nodes[node];
            if no_more(low, &node.low) && no_more(&node.high, high) {
                count += node.end - node.begin;
            } else if no_more(&node.low, high) && no_more(low, &node.high) {
                match node.children {
                    Some((a, b)) => open.extend([a, b]),
                    None => count += self.tree.points[node.begin..node.end].iter().filter(inside).count(),
                }
            }
        }
        count as u64
    }
}

/// A look at what the points of a group say of one, in one measure.
struct Look<'k> {
    question: &'k Question,
    solved: &'k [Solved],
    at: &'k [usize],
    measure: usize,
}

impl Look<'_> {
    /// The largest factor along the axes of which the first has more than the second; none where one of those is not of rates.
    fn factor(&self, more: &[usize], less: &[usize]) -> Option<f64> {
        let axes = self.question.orders.iter().zip(more).zip(less).filter(|((_, more), less)| more > less);
        axes.into_iter().try_fold(1.0, |most: f64, ((order, more), less)| match order {
            Order::Rates(rates) => Some(most.max(rates[*more] / rates[*less])),
            Order::Amounts => None,
            // Of one group: they are the same.
            Order::Unordered => None,
        })
    }

    /// The greatest value that points of a group bound this one by from below, and whose it is, if it is above `best`.
    fn greatest_least(&self, group: &Group, best: f64) -> (f64, Option<usize>) {
        let of_point = |place: usize| {
            let point = &self.solved[place];
            let (_, least) = values(&point.found)?;
            self.factor(self.at, &point.at).map(|k| least[self.measure] / k)
        };
        let of_node = |node: &Node| {
            let most = *node.most_least.get(self.measure)?;
            self.factor(self.at, &node.high).map(|k| most / k)
        };
        group.best(best, of_point, of_node, |a, b| a > b)
    }

    /// The least value that points of a group bound this one by from above, and whose it is, if it is below `best`.
    fn least_found(&self, group: &Group, best: f64) -> (f64, Option<usize>) {
        let of_point = |place: usize| {
            let point = &self.solved[place];
            let (found, _) = values(&point.found)?;
            self.factor(&point.at, self.at).map(|k| found[self.measure] * k)
        };
        let of_node = |node: &Node| {
            let least = *node.least_found.get(self.measure)?;
            self.factor(&node.low, self.at).map(|k| least * k)
        };
        group.best(best, of_point, of_node, |a, b| a < b)
    }
}

impl Group {
    /// The best value over the points, given what it can be at best in a node.
    fn best(
        &self,
        mut best: f64,
        of_point: impl Fn(usize) -> Option<f64>,
        of_node: impl Fn(&Node) -> Option<f64>,
        better: impl Fn(f64, f64) -> bool,
    ) -> (f64, Option<usize>) {
        let mut whose = None;
        let mut look = |best: &mut f64, places: &[usize]| {
            for place in places {
                if let Some(value) = of_point(*place).filter(|value| better(*value, *best)) {
                    (*best, whose) = (value, Some(*place));
                }
            }
        };
        look(&mut best, &self.recent);
        let nodes = &self.tree.nodes;
        let at_best = |node: usize| of_node(&nodes[node]).map(|value| (value, node));
        let mut open: Vec<(f64, usize)> = if nodes.is_empty() { vec![] } else { at_best(0).into_iter().collect() };
        while let Some((value, node)) = open.pop() {
            if !better(value, best) {
                continue;
            }
            match nodes[node].children {
                None => look(&mut best, &self.tree.points[nodes[node].begin..nodes[node].end]),
                Some((a, b)) => {
                    let (a, b) = (at_best(a), at_best(b));
                    // The more promising one is looked at first, so it goes on top.
                    let swap = matches!((a, b), (Some(a), Some(b)) if better(a.0, b.0));
                    open.extend(if swap { [b, a] } else { [a, b] }.into_iter().flatten());
                }
            }
        }
        (best, whose)
    }
}

impl Tree {
    fn new(solved: &[Solved], points: Vec<usize>) -> Self {
        let mut tree = Self { points, nodes: Vec::new() };
        if !tree.points.is_empty() {
            tree.grow(solved, 0, tree.points.len());
        }
        tree
    }

    /// The node of some points, and those below it; its place.
    fn grow(&mut self, solved: &[Solved], begin: usize, end: usize) -> usize {
        let points = &mut self.points[begin..end];
        let of = |place: usize| solved[place].at.as_slice();
        let (mut low, mut high) = (of(points[0]).to_vec(), of(points[0]).to_vec());
        let (mut most_least, mut least_found) = (Vec::new(), Vec::new());
        for place in points.iter() {
            low.iter_mut().zip(of(*place)).for_each(|(low, at)| *low = (*low).min(*at));
            high.iter_mut().zip(of(*place)).for_each(|(high, at)| *high = (*high).max(*at));
            if let Some((found, least)) = values(&solved[*place].found) {
                most_least.resize(least.len(), 0.0f64);
                least_found.resize(found.len(), f64::INFINITY);
                most_least.iter_mut().zip(least).for_each(|(a, b)| *a = a.max(*b));
                least_found.iter_mut().zip(found).for_each(|(a, b)| *a = a.min(*b));
            }
        }
        let widest = (0..low.len()).max_by_key(|axis| high[*axis] - low[*axis]);
        let axis = widest.filter(|axis| end - begin > LEAF && high[*axis] > low[*axis]);
        let node = self.nodes.len();
        let middle = points.len() / 2;
        if let Some(axis) = axis {
            points.select_nth_unstable_by_key(middle, |place| (of(*place)[axis], *place));
        }
        self.nodes.push(Node { low, high, most_least, least_found, begin, end, children: None });
        if axis.is_some() {
            let first = self.grow(solved, begin, begin + middle);
            let second = self.grow(solved, begin + middle, end);
            self.nodes[node].children = Some((first, second));
        }
        node
    }
}
