//! The sharding problem solved exactly by eliminating one kernel after another (`minsum.rs`).
//!
//! The cost of a choice is a sum of terms of few kernels each: a kernel's own cost, whether the pair of a link can be, and
//! the conversions of a group, each paid once. Layout graphs are nearly trees: a training layer of GPT has terms of a
//! handful of kernels with at most four strategies each.
//!
//! A group whose tensor one kernel makes has a variable of its own, the set of layouts that are paid for, so that many
//! readers give many small terms instead of a large one.
//!
//! Of equally cheap choices (within rounding) each kernel, from the one eliminated last to the first, takes the strategy
//! that `preference` names first.

use super::minsum::{self, Least, Sum, Term};
use super::sharding::{Link, Problem, price};
use crate::deadline::Deadline;
use crate::model::layout::{Layout, Strategy};

/// The answer of the elimination.
#[derive(Debug, Clone, PartialEq)]
pub enum Eliminated {
    /// Index of the strategy of each kernel, and the cost.
    Chosen(Vec<usize>, f64),
    /// No strategies agree.
    Infeasible,
    /// Too many kernels depend on each other at once.
    TooWide,
    /// The deadline passed.
    OutOfTime,
}

/// Which of equally cheap strategies is taken: rows before columns, from which tiles are cut too (so that a shard of
/// them fills fewer tiles), whole results before partial sums, anything before doing all the work on every chip.
pub(super) fn preference(strategy: Strategy) -> usize {
    match strategy {
        Strategy::Outer => 0,
        Strategy::M => 1,
        Strategy::N => 2,
        Strategy::K => 3,
        Strategy::Replicate => 4,
    }
}

/// Solves a problem.
pub fn eliminate(problem: &Problem, deadline: Deadline) -> Eliminated {
    if problem.open.iter().any(Vec::is_empty) {
        return Eliminated::Infeasible;
    }
    let Some(between) = Between::of(problem) else { return Eliminated::TooWide };
    match between.least(problem, |k, s| problem.cost[k][s], 1.0, deadline) {
        Least::TooWide => Eliminated::TooWide,
        Least::OutOfTime => Eliminated::OutOfTime,
        Least::Infeasible => Eliminated::Infeasible,
        Least::Found(mut values, _) => {
            values.truncate(problem.open.len());
            let cost = price(problem, &values);
            Eliminated::Chosen(values, cost)
        }
    }
}

/// A choice that costs little, by bounded work, and what it costs; `None` where none was found.
pub(super) fn near(problem: &Problem) -> Option<(Vec<usize>, f64)> {
    let Between { coupled: mut terms, paid, sizes } = Between::of(problem)?;
    terms.extend(problem.cost.iter().enumerate().map(|(k, cost)| Term::of_one(k, cost.clone())));
    terms.extend(paid);
    let mut values = minsum::near(&terms, &sizes, rank(problem))?;
    values.truncate(problem.open.len());
    let cost = price(problem, &values);
    cost.is_finite().then_some((values, cost))
}

fn rank(problem: &Problem) -> impl Fn(usize, usize) -> usize {
    |variable, value| problem.open.get(variable).map_or(0, |open| preference(open[value]))
}

/// The terms of a problem between kernels.
pub(super) struct Between {
    coupled: Vec<Term>,
    /// What conversions cost.
    paid: Vec<Term>,
    /// Values of each variable.
    sizes: Vec<usize>,
}

impl Between {
    /// `None` when a term is too large.
    pub(super) fn of(problem: &Problem) -> Option<Self> {
        let mut sizes: Vec<usize> = problem.open.iter().map(Vec::len).collect();
        let coupled = couplings(problem, &sizes)?;
        let mut paid = Vec::new();
        let mut of_group: Vec<Vec<&Link>> = vec![Vec::new(); problem.groups.len()];
        for link in &problem.links {
            if let Some(g) = link.group {
                of_group[g].push(link);
            }
        }
        for (costs, links) in problem.groups.iter().zip(of_group) {
            let of = |pair: &(Layout, Layout)| costs.get(pair).copied().unwrap_or(0.0);
            group_terms(&|pair| of(pair) > 0.0, &of, links, &mut sizes, &mut paid)?;
        }
        Some(Self { coupled, paid, sizes })
    }

    /// The least of what the strategies of kernels cost by themselves (by kernel and place among its open ones) and of their conversions times a factor.
    pub(super) fn least(
        &self,
        problem: &Problem,
        own: impl Fn(usize, usize) -> f64,
        factor: f64,
        deadline: Deadline,
    ) -> Least {
        let mut sum = Sum::new(&self.sizes);
        self.coupled.iter().for_each(|term| sum.add(term, 1.0));
        for (k, open) in problem.open.iter().enumerate() {
            sum.add_of_one(k, (0..open.len()).map(|s| own(k, s)));
        }
        self.paid.iter().for_each(|term| sum.add(term, factor));
        minsum::least(sum, rank(problem), deadline)
    }
}

/// What must agree; `None` when a term is too large.
pub(super) fn couplings(problem: &Problem, sizes: &[usize]) -> Option<Vec<Term>> {
    let coupled = problem.links.iter().filter(|link| link.pairs.iter().flatten().any(Option::is_none));
    let term = |link: &Link| {
        pair_term(link.from, link.to, sizes, |a, b| if link.pairs[a][b].is_some() { 0.0 } else { f64::INFINITY })
    };
    coupled.map(term).collect()
}

/// A term of two kernels, which may be one.
fn pair_term(from: usize, to: usize, sizes: &[usize], cost: impl Fn(usize, usize) -> f64) -> Option<Term> {
    if from == to {
        return Term::new(vec![from], sizes, |at| cost(at[0], at[0]));
    }
    Term::new(vec![from, to], sizes, |at| cost(at[0], at[1]))
}

/// A conversion: from a layout to another.
type Pair = (Layout, Layout);

/// What the conversions of a group, of some links, cost: whether one counts at all, and how much. Which variables and terms there are
/// depends on the first alone, so that the same group in two units gives terms that can be added.
pub(super) fn group_terms(
    counts: &dyn Fn(&Pair) -> bool,
    cost: &dyn Fn(&Pair) -> f64,
    mut links: Vec<&Link>,
    sizes: &mut Vec<usize>,
    out: &mut Vec<Term>,
) -> Option<()> {
    let counts = |pair: Option<Pair>| pair.is_some_and(|p| counts(&p));
    let paid = |pair: Option<Pair>| pair.filter(|p| counts(Some(*p))).map_or(0.0, |p| cost(&p));
    links.retain(|link| link.pairs.iter().flatten().any(|pair| counts(*pair)));
    if links.is_empty() {
        return Some(());
    }
    if let [link] = links.as_slice() {
        out.push(pair_term(link.from, link.to, sizes, |a, b| paid(link.pairs[a][b]))?);
        return Some(());
    }
    // The layouts that must be paid for, by strategy of the producer.
    let from = links[0].from;
    let mut wanted: Vec<Layout> = Vec::new();
    let mut made: Vec<Option<Layout>> = vec![None; sizes[from]];
    let mut one_producer = links.iter().all(|link| link.from == from && link.to != from);
    for link in &links {
        if !one_producer {
            break;
        }
        for (a, row) in link.pairs.iter().enumerate() {
            for pair in row.iter().flatten().filter(|pair| counts(Some(**pair))) {
                if !wanted.contains(&pair.1) {
                    wanted.push(pair.1);
                }
                one_producer &= made[a].is_none_or(|layout| layout == pair.0);
                made[a] = Some(pair.0);
            }
        }
    }
    if !one_producer {
        let mut scope: Vec<usize> = links.iter().flat_map(|link| [link.from, link.to]).collect();
        scope.sort_unstable();
        scope.dedup();
        let position = |k: usize| scope.partition_point(|v| *v < k);
        let cost = |at: &[usize]| {
            let mut pairs: Vec<Pair> =
                links.iter().filter_map(|link| link.pairs[at[position(link.from)]][at[position(link.to)]]).collect();
            pairs.sort_unstable();
            pairs.dedup();
            pairs.into_iter().map(|pair| paid(Some(pair))).sum()
        };
        out.push(Term::new(scope.clone(), sizes, cost)?);
        return Some(());
    }
    let set = sizes.len();
    sizes.push(1 << wanted.len());
    out.push(Term::new(vec![from, set], sizes, |at| {
        let bought = wanted.iter().enumerate().filter(|(i, _)| at[1] >> i & 1 == 1);
        bought.map(|(_, to)| made[at[0]].map_or(0.0, |from| paid(Some((from, *to))))).sum()
    })?);
    for link in links {
        let mut scope = vec![from, link.to, set];
        scope.sort_unstable();
        let position = |v: usize| scope.partition_point(|w| *w < v);
        let (a, b, s) = (position(from), position(link.to), position(set));
        let cost = |at: &[usize]| match link.pairs[at[a]][at[b]] {
            Some(pair) if counts(Some(pair)) => {
                let bought = wanted.iter().position(|to| *to == pair.1).is_some_and(|i| at[s] >> i & 1 == 1);
                if bought { 0.0 } else { f64::INFINITY }
            }
            _ => 0.0,
        };
        out.push(Term::new(scope.clone(), sizes, cost)?);
    }
    Some(())
}
