//! Branch and bound over boxes of a grid: the points that are best in several measures at once, and the proof that all others are
//! no better than them within a tolerance.
//!
//! Along an *ordered* axis what a search finds never gets worse and what is given (a price, a power) never falls. So no point of a box is
//! better than what the search could find at the box's highest corner at the price of its lowest. A box that some solved point reaches
//! within the tolerance, in every objective, is closed without a look inside; so is one whose highest corner is infeasible, or whose
//! bound breaks a constraint. Of the boxes that are open the one furthest from what was found is taken first: its highest corner is solved
//! if nothing known bounds it well enough, and it is halved along one of its ordered axes. Axes that are not ordered are enumerated.
//!
//! That an axis acts so is taken as given, and checked on all pairs of solved points. The lowest corner of each box that the search begins
//! with is solved too: no front needs it, but an axis that runs the other way round would close that box by its highest corner alone.
//!
//! Along a *continuous* axis the points are the ends of intervals, and each stands for all that lies between it and the one before it: a box
//! then has its lowest corner one value lower, where no point of it is cheaper. Of a single interval the upper end is solved, and if that does
//! not close it nothing does: the tolerance that is proven is then that of the widest interval.
//!
//! Every measure is a product of what a search finds and of what is given, smaller being better: `1 / samples_per_s`, `cost_usd`, or
//! `cost_usd / samples_per_s`.

use super::known::{Broken, Known};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

/// Relative difference that rounding explains.
pub(super) const ROUNDING: f64 = 1e-9;

/// As how many values a continuous axis counts where the widest axis of a box is looked for.
const VALUES: f64 = 16.0;

/// What is asked of the points.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Values of each axis, by rank: along an ordered axis from the least to the most.
    pub sizes: Vec<usize>,
    /// How each axis acts.
    pub orders: Vec<Order>,
    /// Of which (ordered) axes what lies between two values counts too.
    pub continuous: Vec<bool>,
    /// The first measures are objectives; those after them are constraints.
    pub objectives: usize,
    /// The largest value of each constraint.
    pub limits: Vec<f64>,
    /// How much worse than a point, in any objective, the point that stands for it may be.
    pub within: f64,
    /// Boxes whose corners are solved at the same time: a stated number, so that the result does not depend on the threads.
    pub at_once: usize,
}

/// How an axis acts on what a search finds.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// Nobody says.
    Unordered,
    /// More is never worse.
    Amounts,
    /// More is never worse, and better by no more than the factor between these values, by rank; what fits is the same for all.
    Rates(Vec<f64>),
}

impl Question {
    /// The lowest corner of what a box stands for, from its lowest ranks.
    fn floor(&self, low: &[usize]) -> Vec<usize> {
        low.iter().zip(&self.continuous).map(|(at, continuous)| at.saturating_sub(usize::from(*continuous))).collect()
    }

    /// Ranks with none along ordered axes: points that share them can say something of each other.
    pub fn choice(&self, at: &[usize]) -> Vec<usize> {
        let choice = |(at, order): (&usize, &Order)| if *order == Order::Unordered { *at } else { 0 };
        at.iter().zip(&self.orders).map(choice).collect()
    }

    /// Ranks along the axes that say what fits.
    pub fn limiting(&self, at: &[usize]) -> Vec<usize> {
        let amounts = at.iter().zip(&self.orders).filter(|(_, order)| **order == Order::Amounts);
        amounts.map(|(at, _)| *at).collect()
    }
}

/// What a search found at a point.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// A plan: what each measure has of it, and the least that any plan of the point could have.
    Plan {
        /// Of the plan.
        searched: Vec<f64>,
        /// Of any plan.
        least: Vec<f64>,
    },
    /// No plan exists.
    Infeasible,
    /// The point could not be solved.
    Failed,
}

/// The points, by their ranks.
pub trait Points {
    /// What ends a search.
    type Error;
    /// What each measure has of the point itself (1 where it has nothing of it); `None` where the point cannot be built.
    fn given(&self, at: &[usize]) -> Option<Vec<f64>>;
    /// Whether a point can be built at all.
    fn stands(&self, _at: &[usize]) -> bool {
        true
    }
    /// Which points a point is compared with: those of the same number.
    fn class(&self, _at: &[usize]) -> usize {
        0
    }
    /// Solves points; fewer than were asked for when the user ends it.
    fn solve(&mut self, points: &[Vec<usize>]) -> Result<Vec<Found>, Self::Error>;
}

/// A solved point.
#[derive(Debug, Clone, PartialEq)]
pub struct Solved {
    /// Its ranks.
    pub at: Vec<usize>,
    /// What was found.
    pub found: Found,
    /// What is given of each measure.
    pub given: Option<Vec<f64>>,
    /// Whether no other solved point that keeps the constraints is better.
    pub on_front: bool,
}

/// Points by how they were settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settled {
    /// Solved.
    pub solved: u64,
    /// In boxes that a solved point reaches within the tolerance.
    pub reached: u64,
    /// In boxes below an infeasible corner.
    pub infeasible: u64,
    /// In boxes that keep no constraint.
    pub outside: u64,
    /// In boxes of which nothing is given, as of chips without a price: they are compared with none.
    pub unknown: u64,
    /// In boxes of which neither the lowest nor the highest point could be solved: they are compared with none.
    pub failed: u64,
    /// In boxes that are still open, for the search was stopped.
    pub open: u64,
}

impl Settled {
    /// All of them, each counted once.
    pub fn all(&self) -> u64 {
        let Self { solved, reached, infeasible, outside, unknown, failed, open } = *self;
        solved + reached + infeasible + outside + unknown + failed + open
    }
}

/// The outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct Covered {
    /// Every point that was solved, in that order.
    pub solved: Vec<Solved>,
    /// All points of the grid.
    pub settled: Settled,
    /// No point of the space is better than a point of the front by more than this, in any objective.
    pub within: f64,
    /// Axes whose intervals are too wide for the tolerance that was asked for.
    pub wide: Vec<usize>,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended<E> {
    /// From the points.
    Points(E),
    /// Two points that break the order of the axes: the second has no less of anything. The measure, or none where the second is
    /// infeasible.
    Disorder {
        /// Ranks of the point with less.
        low: Vec<usize>,
        /// Ranks of the point with more.
        high: Vec<usize>,
        /// Which measure.
        measure: Option<usize>,
        /// Whether it is what is given that falls.
        given: bool,
    },
}

/// A part of the grid.
#[derive(Debug, Clone)]
struct Part {
    low: Vec<usize>,
    high: Vec<usize>,
    /// What is given at the lowest corner of what it stands for.
    given: Vec<f64>,
    /// The least that a search could find at the highest corner, as far as is known.
    least: Vec<f64>,
    /// Whether the highest corner was solved.
    solved: bool,
    /// What its points are compared with.
    class: usize,
    /// How far it is from what was found, when last looked.
    excess: f64,
    /// In order of making.
    made: u64,
}

impl Part {
    fn bound(&self, measure: usize) -> f64 {
        self.given[measure] * self.least[measure]
    }

    fn bounds(&self, measures: usize) -> Vec<f64> {
        (0..measures).map(|measure| self.bound(measure)).collect()
    }

    fn points(&self) -> u64 {
        self.low.iter().zip(&self.high).map(|(low, high)| (high - low + 1) as u64).product()
    }
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Part {}
impl PartialOrd for Part {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Part {
    fn cmp(&self, other: &Self) -> Ordering {
        self.excess.total_cmp(&other.excess).then(other.made.cmp(&self.made))
    }
}

/// Objectives of the points of a front, and the places of those among the solved; by the first objective.
type Front = Vec<(Vec<f64>, usize)>;

struct Search<'q, P: Points> {
    question: &'q Question,
    points: P,
    known: Known,
    /// Of each class the points of the front.
    fronts: BTreeMap<usize, Front>,
    heap: BinaryHeap<Part>,
    /// Single intervals whose upper end is solved, and which that did not close.
    narrow: Vec<Part>,
    settled: Settled,
    made: u64,
}

/// Covers a grid.
///
/// # Errors
/// [`Ended`].
pub fn cover<P: Points>(question: &Question, points: P) -> Result<(Covered, P), Ended<P::Error>> {
    let mut search = Search {
        question,
        points,
        known: Known::default(),
        fronts: BTreeMap::new(),
        heap: BinaryHeap::new(),
        narrow: Vec::new(),
        settled: Settled::default(),
        made: 0,
    };
    let finished = search.begin()? && search.run()?;
    let Search { known, fronts, heap, narrow, mut settled, points, .. } = search;
    let mut within = question.within;
    let mut wide = Vec::new();
    for part in narrow {
        // What was found after it may close it.
        let front = fronts.get(&part.class).map_or(&[][..], Vec::as_slice);
        let excess = distance(front, &part.bounds(question.objectives));
        if excess > question.within + ROUNDING {
            within = within.max(excess);
            let floor = question.floor(&part.low);
            wide.extend((0..floor.len()).filter(|axis| floor[*axis] < part.high[*axis]));
        }
    }
    wide.sort_unstable();
    wide.dedup();
    if !finished {
        for part in heap {
            settled.open += part.points() - known.inside(question, &part.low, &part.high);
            within = within.max(part.excess);
        }
    }
    let mut solved = known.into_solved();
    fronts.values().flatten().for_each(|(_, at)| solved[*at].on_front = true);
    settled.solved = solved.len() as u64;
    debug_assert_eq!(settled.all(), question.sizes.iter().map(|n| *n as u64).product::<u64>());
    Ok((Covered { solved, settled, within, wide }, points))
}

impl<P: Points> Search<'_, P> {
    /// A part for each choice of the axes that are not ordered, and its lowest corner; whether those were solved.
    fn begin(&mut self) -> Result<bool, Ended<P::Error>> {
        let Question { sizes, orders, .. } = self.question;
        let ordered: Vec<bool> = orders.iter().map(|order| *order != Order::Unordered).collect();
        if sizes.contains(&0) {
            return Ok(true);
        }
        let mut low = vec![0; sizes.len()];
        let mut lowest = Vec::new();
        loop {
            let high: Vec<usize> = low
                .iter()
                .zip(sizes)
                .zip(&ordered)
                .map(|((at, n), ordered)| if *ordered { n - 1 } else { *at })
                .collect();
            let measures = self.measures();
            let parts = self.heap.len();
            self.add(low.clone(), high, vec![0.0; measures], false)?;
            if self.heap.len() > parts {
                lowest.push(low.clone());
            }
            // The next choice, the last axis fastest.
            let Some(axis) = (0..sizes.len()).rev().find(|i| !ordered[*i] && low[*i] + 1 < sizes[*i]) else {
                return self.ask(&lowest);
            };
            low[axis] += 1;
            (axis + 1..sizes.len()).filter(|i| !ordered[*i]).for_each(|i| low[i] = 0);
        }
    }

    fn measures(&self) -> usize {
        self.question.objectives + self.question.limits.len()
    }

    /// A part of what is still to be settled; a point that was solved already is none.
    fn add(&mut self, low: Vec<usize>, high: Vec<usize>, least: Vec<f64>, solved: bool) -> Result<(), Ended<P::Error>> {
        let floor = self.question.floor(&low);
        let given = self.points.given(&floor);
        // Prices are known without a solve: their order is checked at every corner.
        if let (Some(a), Some(b)) = (&given, self.points.given(&high))
            && let Some(measure) = falls(a, &b)
        {
            return Err(Ended::Disorder { low: floor, high, measure: Some(measure), given: true });
        }
        if given.is_none() && self.points.given(&high).is_none() {
            let points: u64 = low.iter().zip(&high).map(|(low, high)| (high - low + 1) as u64).product();
            let stands = self.points.stands(&low) || self.points.stands(&high);
            if !stands {
                // A row says why.
                self.ask(std::slice::from_ref(&low))?;
            }
            let closed = if stands { &mut self.settled.unknown } else { &mut self.settled.failed };
            *closed += points - self.known.inside(self.question, &low, &high);
            return Ok(());
        }
        let given = given.unwrap_or_else(|| vec![0.0; self.measures()]);
        let class = self.points.class(&low);
        let mut part = Part { low, high, given, least, solved, class, excess: f64::INFINITY, made: self.made };
        self.made += 1;
        self.learn(&mut part);
        if let Some(part) = self.still_open(part) {
            self.heap.push(part);
        }
        Ok(())
    }

    fn front(&self, class: usize) -> &[(Vec<f64>, usize)] {
        self.fronts.get(&class).map_or(&[], Vec::as_slice)
    }

    /// What the solved points say of a part's highest corner.
    fn learn(&self, part: &mut Part) {
        if !part.solved {
            self.known.least(self.question, &part.high, &mut part.least);
            part.solved = self.known.has(&part.high);
        }
    }

    /// The part with its distance from what was found, unless that settles it.
    fn still_open(&mut self, mut part: Part) -> Option<Part> {
        let Question { objectives, limits, within, .. } = self.question;
        let outside = |(i, limit): (usize, &f64)| part.bound(objectives + i) > limit * (1.0 + ROUNDING);
        let closed = if part.least.contains(&f64::INFINITY) {
            Some(&mut self.settled.infeasible)
        } else if limits.iter().enumerate().any(outside) {
            Some(&mut self.settled.outside)
        } else {
            part.excess = distance(self.front(part.class), &part.bounds(*objectives));
            (part.excess <= within + ROUNDING).then_some(&mut self.settled.reached)
        };
        if let Some(closed) = closed {
            // Those that are solved count as solved.
            *closed += part.points() - self.known.inside(self.question, &part.low, &part.high);
            return None;
        }
        if self.known.failed(&part.high) && self.known.failed(&part.low) {
            self.settled.failed += part.points() - self.known.inside(self.question, &part.low, &part.high);
            return None;
        }
        if part.solved && part.low == part.high {
            if self.question.floor(&part.low) != part.high {
                self.narrow.push(part);
            }
            return None;
        }
        Some(part)
    }

    /// Whether a part stays open whatever is found at its highest corner, as points with less show how good that is at least.
    fn stays_open(&self, part: &Part) -> bool {
        let Question { objectives, limits, within, .. } = self.question;
        let most = self.known.most(self.question, &part.high);
        // Of a single point, and of parts of which nothing is known, the corner has to be solved.
        if part.low == part.high || most.contains(&f64::INFINITY) {
            return false;
        }
        let values: Vec<f64> = most.iter().zip(&part.given).map(|(most, given)| most * given).collect();
        let (aims, kept) = values.split_at(*objectives);
        kept.iter().zip(limits).all(|(value, limit)| value <= limit)
            && distance(self.front(part.class), aims) > within + ROUNDING
    }

    /// Settles the parts; whether it ran to its end.
    fn run(&mut self) -> Result<bool, Ended<P::Error>> {
        loop {
            let mut corners: Vec<Part> = Vec::new();
            while corners.len() < self.question.at_once {
                let Some(mut part) = self.heap.pop() else { break };
                self.learn(&mut part);
                let Some(part) = self.still_open(part) else { continue };
                // What was found meanwhile has come nearer to it than to others.
                if self.heap.peek().is_some_and(|next| next.excess > part.excess) {
                    self.heap.push(part);
                    continue;
                }
                if self.known.failed(&part.high) && !self.known.has(&part.low) {
                    // Where its lowest corner fails too nothing is said of what lies between.
                    let low = part.low.clone();
                    self.heap.push(part);
                    if !self.ask(&[low])? {
                        return Ok(false);
                    }
                } else if part.solved || self.stays_open(&part) {
                    self.split(&part)?;
                } else if corners.iter().any(|other| other.high == part.high) {
                    // Its corner is being solved.
                    self.heap.push(part);
                    break;
                } else {
                    corners.push(part);
                }
            }
            if corners.is_empty() {
                return Ok(true);
            }
            let at: Vec<Vec<usize>> = corners.iter().map(|part| part.high.clone()).collect();
            let ended = !self.ask(&at)?;
            for mut part in corners {
                self.learn(&mut part);
                if let Some(part) = self.still_open(part) {
                    self.heap.push(part);
                }
            }
            if ended {
                return Ok(false);
            }
        }
    }

    /// Solves points; whether all of them.
    fn ask(&mut self, points: &[Vec<usize>]) -> Result<bool, Ended<P::Error>> {
        for points in points.chunks(self.question.at_once.max(1)) {
            let found = self.points.solve(points).map_err(Ended::Points)?;
            let all = found.len() == points.len();
            for (at, found) in points.iter().zip(found) {
                self.take(at.clone(), found)?;
            }
            if !all {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Halves a part along one ordered axis.
    fn split(&mut self, part: &Part) -> Result<(), Ended<P::Error>> {
        let Some(axis) = self.widest(part) else { return Ok(()) };
        let middle = (part.low[axis] + part.high[axis]) / 2;
        let (mut low, mut high) = (part.low.clone(), part.high.clone());
        high[axis] = middle;
        low[axis] = middle + 1;
        self.add(low, part.high.clone(), part.least.clone(), part.solved)?;
        self.add(part.low.clone(), high, part.least.clone(), false)
    }

    /// The axis along which a part is halved: the one with most values in it, a continuous one counting as [`VALUES`] however fine it is.
    fn widest(&self, part: &Part) -> Option<usize> {
        let Question { sizes, continuous, .. } = self.question;
        let values = |axis: &usize| {
            let inside = (part.high[*axis] - part.low[*axis]) as f64;
            if continuous[*axis] { inside * VALUES / sizes[*axis] as f64 } else { inside }
        };
        let axes = (0..part.low.len()).filter(|axis| part.high[*axis] > part.low[*axis]);
        axes.max_by(|a, b| values(a).total_cmp(&values(b)).then(b.cmp(a)))
    }

    /// Keeps a solved point, after a look at whether it agrees with the others.
    fn take(&mut self, at: Vec<usize>, found: Found) -> Result<(), Ended<P::Error>> {
        let given = self.points.given(&at);
        let Question { objectives, limits, .. } = self.question;
        let place = self.known.solved().len();
        if let (Found::Plan { searched, .. }, Some(given)) = (&found, &given) {
            let values: Vec<f64> = searched.iter().zip(given).map(|(a, b)| a * b).collect();
            let kept =
                values[*objectives..].iter().zip(limits).all(|(value, limit)| *value <= limit * (1.0 + ROUNDING));
            let values = &values[..*objectives];
            let no_worse = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| a <= b);
            let front = self.fronts.entry(self.points.class(&at)).or_default();
            if kept && !front.iter().any(|(other, _)| no_worse(other, values)) {
                front.retain(|(other, _)| !no_worse(values, other));
                let before = front.partition_point(|(other, _)| other[0] < values[0]);
                front.insert(before, (values.to_vec(), place));
            }
        }
        let broken = |Broken { low, high, measure }| Ended::Disorder { low, high, measure, given: false };
        self.known.take(self.question, Solved { at, found, given, on_front: false }).map_err(broken)
    }
}

/// How much worse than these values, in any objective, the point of a front is that is nearest to them.
fn distance(front: &[(Vec<f64>, usize)], bounds: &[f64]) -> f64 {
    let over = |(value, bound): (&f64, &f64)| if value <= bound { 0.0 } else { value / bound - 1.0 };
    let of = |(values, _): &(Vec<f64>, usize)| values.iter().zip(bounds).map(over).fold(0.0, f64::max);
    if let [first, second] = bounds {
        // Along a front of two the first rises and the second falls: the nearest is where they cross.
        let cross = front.partition_point(|(values, _)| values[0] * second <= values[1] * first);
        return front[cross.saturating_sub(1)..].iter().take(2).map(of).fold(f64::INFINITY, f64::min);
    }
    front.iter().map(of).fold(f64::INFINITY, f64::min)
}

/// The first measure of which more is given at a point with less.
fn falls(low: &[f64], high: &[f64]) -> Option<usize> {
    low.iter().zip(high).position(|(a, b)| *a > *b * (1.0 + ROUNDING))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    /// A made-up space: what a search finds falls, and what is given rises, along the ordered axes.
    #[derive(Debug, Clone)]
    struct Made {
        question: Question,
        /// For each measure and axis what each value adds to what is found, and to what is given: falling or rising where the axis is
        /// ordered.
        found: Vec<Vec<Vec<f64>>>,
        given: Vec<Vec<Vec<f64>>>,
        /// Along each axis so many of those values are one of the question's: between the others of a continuous one lie more.
        fine: Vec<usize>,
        /// Points whose ranks along the first axis are lower have no plan.
        feasible_from: usize,
        /// How far the least that could be found is below what is found.
        gap: f64,
        classes: bool,
    }

    impl Made {
        fn part(of: &[Vec<f64>], at: &[usize]) -> f64 {
            // A maximum and a sum: plateaus as bottlenecks make them, and slopes.
            let parts: Vec<f64> = of.iter().zip(at).map(|(values, i)| values[*i]).collect();
            parts.iter().copied().fold(1.0, f64::max) + 0.1 * parts.iter().sum::<f64>()
        }
        /// A point of the question among all.
        fn finely(&self, at: &[usize]) -> Vec<usize> {
            at.iter().zip(&self.fine).map(|(at, fine)| at * fine).collect()
        }
        fn values(&self, at: &[usize]) -> Option<Vec<f64>> {
            let first = &self.question.orders[0];
            if *first == Order::Amounts && at[0] < self.feasible_from {
                return None;
            }
            Some(self.found.iter().zip(&self.given).map(|(f, g)| Self::part(f, at) * Self::part(g, at)).collect())
        }
        /// Two values of an axis that nobody orders may be of different workloads.
        fn class(&self, at: &[usize]) -> usize {
            if self.classes && self.question.orders[0] == Order::Unordered { at[0] % 2 } else { 0 }
        }
        fn all(&self) -> Vec<Vec<usize>> {
            let mut all = vec![Vec::new()];
            for (size, fine) in self.question.sizes.iter().zip(&self.fine) {
                all = all
                    .iter()
                    .flat_map(|at| (0..=(size - 1) * fine).map(move |i| [at.clone(), vec![i]].concat()))
                    .collect();
            }
            all
        }
    }

    struct Asked {
        made: Made,
        solved: usize,
    }

    impl Points for Asked {
        type Error = ();
        fn class(&self, at: &[usize]) -> usize {
            self.made.class(at)
        }
        fn given(&self, at: &[usize]) -> Option<Vec<f64>> {
            let at = self.made.finely(at);
            Some(self.made.given.iter().map(|of| Made::part(of, &at)).collect())
        }
        fn solve(&mut self, points: &[Vec<usize>]) -> Result<Vec<Found>, ()> {
            self.solved += points.len();
            let found = |at: &Vec<usize>| {
                let at = self.made.finely(at);
                match self.made.values(&at) {
                    None => Found::Infeasible,
                    Some(_) => {
                        let searched: Vec<f64> = self.made.found.iter().map(|of| Made::part(of, &at)).collect();
                        let least = searched.iter().map(|value| value * (1.0 - self.made.gap)).collect();
                        Found::Plan { searched, least }
                    }
                }
            };
            Ok(points.iter().map(found).collect())
        }
    }

    fn made() -> impl Strategy<Value = Made> {
        // Of an axis that is continuous two or three values lie between those of the question.
        let axis = (1..6usize, 0..3usize, prop::collection::vec(0..3u32, 17), prop_oneof![Just(1), Just(1), 3..5usize]);
        (prop::collection::vec(axis, 1..4), 2..4usize, 0..2usize).prop_flat_map(|(axes, objectives, constraints)| {
            let sizes: Vec<usize> = axes.iter().map(|(size, ..)| *size).collect();
            let fine: Vec<usize> = axes.iter().map(|(_, kind, _, fine)| if *kind == 0 { 1 } else { *fine }).collect();
            let all: Vec<usize> = sizes.iter().zip(&fine).map(|(size, fine)| (size - 1) * fine + 1).collect();
            let order = |(size, kind, steps, fine): &(usize, usize, Vec<u32>, usize)| match kind {
                0 => Order::Unordered,
                1 => Order::Amounts,
                _ => {
                    let rates = steps.iter().scan(1.0, |rate, step| {
                        *rate += f64::from(*step);
                        Some(*rate)
                    });
                    Order::Rates(rates.take((size - 1) * fine + 1).collect())
                }
            };
            let finely: Vec<Order> = axes.iter().map(order).collect();
            let measures = objectives + constraints;
            let steps = prop::collection::vec(0..4u32, all.iter().sum::<usize>() * measures * 2);
            let limits = prop::collection::vec(2.0..40.0f64, constraints);
            let within = prop_oneof![Just(0.0), 0.01..0.5f64];
            let gap = prop_oneof![Just(0.0), 0.0..0.2f64];
            (steps, limits, within, 0..3usize, gap, any::<bool>(), 1..9usize).prop_map(
                move |(steps, limits, within, feasible_from, gap, classes, at_once)| {
                    let mut steps = steps.into_iter();
                    let mut table = |rises: bool| -> Vec<Vec<Vec<f64>>> {
                        let axis = |(size, order): (&usize, &Order), steps: &mut dyn Iterator<Item = u32>| {
                            let values: Vec<f64> = steps.take(*size).map(f64::from).collect();
                            match order {
                                Order::Unordered => return values,
                                // A part that a rate divides, and one that it does not.
                                Order::Rates(rates) if !rises => {
                                    let (divided, rest) = (3.0 * values[0], values[values.len() - 1]);
                                    return rates.iter().map(|rate| divided / rate + rest).collect();
                                }
                                Order::Rates(_) | Order::Amounts => {}
                            }
                            let mut sum = 0.0;
                            let mut values: Vec<f64> = values
                                .iter()
                                .map(|step| {
                                    sum += step;
                                    sum
                                })
                                .collect();
                            if !rises {
                                values.reverse();
                            }
                            values
                        };
                        let of = |_| all.iter().zip(&finely).map(|pair| axis(pair, &mut steps)).collect();
                        (0..measures).map(of).collect()
                    };
                    let (found, given) = (table(false), table(true));
                    let coarse = |(order, fine): (&Order, &usize)| match order {
                        Order::Rates(rates) => Order::Rates(rates.iter().step_by(*fine).copied().collect()),
                        order => order.clone(),
                    };
                    let question = Question {
                        sizes: sizes.clone(),
                        orders: finely.iter().zip(&fine).map(coarse).collect(),
                        continuous: fine.iter().map(|fine| *fine > 1).collect(),
                        objectives,
                        limits,
                        within,
                        at_once,
                    };
                    Made { question, found, given, fine: fine.clone(), feasible_from, gap, classes }
                },
            )
        })
    }

    /// Every point of the grid is reached by a point of its front within what is claimed; without a tolerance and with proven points
    /// the front is that of all points; every point is settled once.
    #[test]
    fn a_cover_is_what_all_points_say() {
        let config = Config { cases: 3000, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let [fewer, exact, between, wide] = [(); 4].map(|()| std::cell::Cell::new(0));
        let ran = runner.run(&made(), |made| {
            let question = made.question.clone();
            let all = made.all();
            let (covered, asked) = cover(&question, Asked { made: made.clone(), solved: 0 }).unwrap();
            let settled = covered.settled;
            prop_assert_eq!(settled.all(), question.sizes.iter().product::<usize>() as u64);
            let continuous = question.continuous.contains(&true);
            between.set(between.get() + u32::from(continuous && covered.wide.is_empty()));
            wide.set(wide.get() + u32::from(!covered.wide.is_empty() && covered.within.is_finite()));
            prop_assert!(covered.wide.iter().all(|axis| question.continuous[*axis]));
            prop_assert_eq!((settled.open, settled.solved), (0, asked.solved as u64));
            fewer.set(fewer.get() + u32::from(asked.solved < all.len()));
            let kept = |at: &Vec<usize>| {
                let values = made.values(at)?;
                let (objectives, constraints) = values.split_at(question.objectives);
                let keeps = constraints.iter().zip(&question.limits).all(|(a, b)| *a <= b * (1.0 + ROUNDING));
                keeps.then(|| objectives.to_vec())
            };
            prop_assert_eq!(covered.within <= question.within, covered.wide.is_empty());
            for class in 0..2 {
                let of_class = |at: &&Vec<usize>| made.class(at) == class;
                let on_front = covered.solved.iter().filter(|point| point.on_front).map(|point| &point.at);
                let mut front: Vec<Vec<f64>> =
                    on_front.filter(of_class).map(|at| kept(&made.finely(at)).unwrap()).collect();
                let values: Vec<Vec<f64>> = all.iter().filter(of_class).filter_map(kept).collect();
                for point in &values {
                    let reaches =
                        |f: &Vec<f64>| f.iter().zip(point).all(|(a, b)| *a <= b * (1.0 + covered.within + 1e-7));
                    prop_assert!(covered.within.is_infinite() || front.iter().any(reaches), "{point:?} of {front:?}");
                }
                // What differs in the last digits alone is equal.
                let rounded = |values: &Vec<f64>| values.iter().map(|v| (v * 1e9).round()).collect::<Vec<f64>>();
                let values: Vec<Vec<f64>> = values.iter().map(rounded).collect();
                front = front.iter().map(rounded).collect();
                let better = |a: &Vec<f64>, b: &Vec<f64>| a != b && a.iter().zip(b).all(|(a, b)| a <= b);
                if question.within == 0.0 && made.gap == 0.0 && !continuous {
                    let best = |of: &[Vec<f64>]| {
                        let mut best: Vec<Vec<f64>> =
                            of.iter().filter(|a| !of.iter().any(|b| better(b, a))).cloned().collect();
                        best.sort_by(|a, b| a.partial_cmp(b).unwrap());
                        best.dedup();
                        best
                    };
                    prop_assert_eq!(best(&front), best(&values));
                    exact.set(exact.get() + 1);
                }
            }
            Ok(())
        });
        ran.unwrap();
        // Both lowest corners of a box are solved as a check, which of a space this small leaves little.
        let counts = [&fewer, &exact, &between, &wide].map(std::cell::Cell::get);
        assert!(counts.iter().zip([500, 400, 100, 100]).all(|(count, least)| *count > least), "{counts:?}");
    }

    /// By hand: one axis of four values that costs 1, 2, 3, 4 and finds 8, 4, 4, 1. The third is no better than the second.
    fn by_hand() -> Made {
        Made {
            question: Question {
                sizes: vec![4],
                orders: vec![Order::Amounts],
                continuous: vec![false],
                objectives: 2,
                limits: vec![],
                within: 0.0,
                at_once: 4,
            },
            found: vec![vec![vec![8.0, 4.0, 4.0, 1.0]], vec![vec![0.0; 4]]],
            given: vec![vec![vec![0.0; 4]], vec![vec![1.0, 2.0, 3.0, 4.0]]],
            fine: vec![1],
            feasible_from: 0,
            gap: 0.0,
            classes: false,
        }
    }

    #[test]
    fn a_plateau_keeps_its_cheapest_point() {
        let made = by_hand();
        let (covered, _) = cover(&made.question, Asked { made: made.clone(), solved: 0 }).unwrap();
        let mut front: Vec<usize> = covered.solved.iter().filter(|p| p.on_front).map(|p| p.at[0]).collect();
        front.sort_unstable();
        assert_eq!(front, [0, 1, 3]);
    }

    #[test]
    fn points_that_break_the_order_are_named() {
        let mut made = by_hand();
        // The most of the axis finds worse than the rest: whoever meets both says so.
        made.found[0][0] = vec![8.0, 4.0, 4.0, 9.0];
        let Err(Ended::Disorder { low, high, measure, given }) =
            cover(&made.question, Asked { made: made.clone(), solved: 0 })
        else {
            panic!("an order that does not hold");
        };
        assert_eq!((high, measure, given), (vec![3], Some(0), false));
        assert!(low[0] < 3);
        let mut made = by_hand();
        made.given[1][0] = vec![5.0, 2.0, 3.0, 4.0];
        let ended = cover(&made.question, Asked { made: made.clone(), solved: 0 });
        assert!(matches!(ended, Err(Ended::Disorder { measure: Some(1), given: true, .. })), "{:?}", ended.err());
    }
}
