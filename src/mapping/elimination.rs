//! The sharding problem solved exactly by eliminating one kernel after another (min-sum, or non-serial dynamic
//! programming: Bertelè and Brioschi, 1972).
//!
//! The cost of a choice is a sum of terms of few kernels each: a kernel's own cost, whether the pair of a link can be, and
//! the conversions of a group, each paid once. Eliminating a kernel replaces the terms that it is in by their least sum
//! over its strategies, a term of its neighbours. What that costs is exponential in the number of neighbours alone, and
//! layout graphs are nearly trees: a training layer of GPT has terms of a handful of kernels with at most four
//! strategies each.
//!
//! A group whose tensor one kernel makes has a variable of its own, the set of layouts that are paid for, so that many
//! readers give many small terms instead of a large one.
//!
//! Of equally cheap choices (within rounding) each kernel, from the one eliminated last to the first, takes the strategy
//! that `preference` names first.

use super::sharding::{Link, Problem, price};
use crate::model::layout::{Layout, Strategy};
use std::collections::BTreeMap;

/// Most entries of one table; beyond, the problem is left to the MILP.
const MOST_ENTRIES: usize = 1 << 16;

/// Relative difference within which two choices cost the same.
const TIE: f64 = 1e-12;

/// The answer of the elimination.
#[derive(Debug, Clone, PartialEq)]
pub enum Eliminated {
    /// Index of the strategy of each kernel, and the cost.
    Chosen(Vec<usize>, f64),
    /// No strategies agree.
    Infeasible,
    /// Too many kernels depend on each other at once.
    TooWide,
}

/// A term: a cost for each choice of its variables, the last variable fastest.
#[derive(Debug, Clone)]
struct Term {
    scope: Vec<usize>,
    table: Vec<f64>,
}

impl Term {
    /// A term from its cost function. `None` when it has too many entries.
    fn new(scope: Vec<usize>, sizes: &[usize], cost: impl Fn(&[usize]) -> f64) -> Option<Self> {
        let entries = entries(&scope, sizes)?;
        let mut at = vec![0; scope.len()];
        let mut table = Vec::with_capacity(entries);
        for _ in 0..entries {
            table.push(cost(&at));
            advance(&mut at, &scope, sizes);
        }
        Some(Self { scope, table })
    }
}

/// Entries of a table over `scope`; `None` beyond the limit.
fn entries(scope: &[usize], sizes: &[usize]) -> Option<usize> {
    let count = scope.iter().try_fold(1usize, |count, v| count.checked_mul(sizes[*v]));
    count.filter(|count| *count <= MOST_ENTRIES)
}

fn advance(at: &mut [usize], scope: &[usize], sizes: &[usize]) {
    for (value, v) in at.iter_mut().zip(scope).rev() {
        *value += 1;
        if *value < sizes[*v] {
            return;
        }
        *value = 0;
    }
}

/// Which of equally cheap strategies is taken: rows before columns, from which tiles are cut too (so that a shard of
/// them fills fewer tiles), whole results before partial sums, anything before doing all the work on every chip.
fn preference(strategy: Strategy) -> usize {
    match strategy {
        Strategy::Outer => 0,
        Strategy::M => 1,
        Strategy::N => 2,
        Strategy::K => 3,
        Strategy::Replicate => 4,
    }
}

/// A variable that was eliminated: the sum of its terms, itself the last of the scope.
struct Step {
    joined: Term,
}

/// Solves a problem.
pub fn eliminate(problem: &Problem) -> Eliminated {
    let kernels = problem.open.len();
    let mut sizes: Vec<usize> = problem.open.iter().map(Vec::len).collect();
    if sizes.contains(&0) {
        return Eliminated::Infeasible;
    }
    let Some(terms) = terms(problem, &mut sizes) else { return Eliminated::TooWide };
    let Some((steps, rest)) = run(terms, &sizes) else { return Eliminated::TooWide };
    if !rest.is_finite() {
        return Eliminated::Infeasible;
    }
    let mut values = vec![0; sizes.len()];
    let tie = TIE * rest.abs();
    for Step { joined } in steps.iter().rev() {
        let Some((variable, others)) = joined.scope.split_last() else { continue };
        let row = others.iter().fold(0, |at, v| at * sizes[*v] + values[*v]) * sizes[*variable];
        let row = &joined.table[row..row + sizes[*variable]];
        let least = row.iter().copied().fold(f64::INFINITY, f64::min);
        let tied = (0..row.len()).filter(|i| row[*i] <= least + tie);
        let open = problem.open.get(*variable);
        values[*variable] = tied.min_by_key(|i| (open.map(|open| preference(open[*i])), *i)).unwrap_or(0);
    }
    values.truncate(kernels);
    let cost = price(problem, &values);
    Eliminated::Chosen(values, cost)
}

/// The terms of a problem, with variables for groups added to `sizes`; `None` when one is too large.
fn terms(problem: &Problem, sizes: &mut Vec<usize>) -> Option<Vec<Term>> {
    let mut out = Vec::new();
    for (k, cost) in problem.cost.iter().enumerate() {
        out.push(Term { scope: vec![k], table: cost.clone() });
    }
    for link in &problem.links {
        if link.pairs.iter().flatten().any(Option::is_none) {
            out.push(pair_term(link.from, link.to, sizes, |a, b| {
                if link.pairs[a][b].is_some() { 0.0 } else { f64::INFINITY }
            })?);
        }
    }
    let mut of_group: Vec<Vec<&Link>> = vec![Vec::new(); problem.groups.len()];
    for link in &problem.links {
        if let Some(g) = link.group {
            of_group[g].push(link);
        }
    }
    for (g, links) in of_group.into_iter().enumerate() {
        group_terms(&problem.groups[g], links, sizes, &mut out)?;
    }
    Some(out)
}

/// A term of two kernels, which may be one.
fn pair_term(from: usize, to: usize, sizes: &[usize], cost: impl Fn(usize, usize) -> f64) -> Option<Term> {
    if from == to {
        return Term::new(vec![from], sizes, |at| cost(at[0], at[0]));
    }
    Term::new(vec![from, to], sizes, |at| cost(at[0], at[1]))
}

/// What the conversions of a group, of some links, cost.
fn group_terms(
    costs: &BTreeMap<(Layout, Layout), f64>,
    mut links: Vec<&Link>,
    sizes: &mut Vec<usize>,
    out: &mut Vec<Term>,
) -> Option<()> {
    let paid = |pair: Option<(Layout, Layout)>| pair.and_then(|p| costs.get(&p)).copied().unwrap_or(0.0);
    links.retain(|link| link.pairs.iter().flatten().any(|pair| paid(*pair) > 0.0));
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
            for pair in row.iter().flatten().filter(|pair| paid(Some(**pair)) > 0.0) {
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
            let mut pairs: Vec<(Layout, Layout)> =
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
            Some(pair) if paid(Some(pair)) > 0.0 => {
                let bought = wanted.iter().position(|to| *to == pair.1).is_some_and(|i| at[s] >> i & 1 == 1);
                if bought { 0.0 } else { f64::INFINITY }
            }
            _ => 0.0,
        };
        out.push(Term::new(scope.clone(), sizes, cost)?);
    }
    Some(())
}

/// Terms that are still to be summed, and where each variable is.
struct Pool<'s> {
    sizes: &'s [usize],
    terms: Vec<Option<Term>>,
    of: Vec<Vec<usize>>,
    /// What is known for certain: terms whose variables are all gone.
    rest: f64,
}

impl<'s> Pool<'s> {
    fn new(terms: Vec<Term>, sizes: &'s [usize]) -> Self {
        let mut pool = Self { sizes, terms: Vec::new(), of: vec![Vec::new(); sizes.len()], rest: 0.0 };
        terms.into_iter().for_each(|term| pool.push(term));
        pool
    }

    /// Variables of one value take no part: they have one row in every table.
    fn push(&mut self, mut term: Term) {
        term.scope.retain(|v| self.sizes[*v] > 1);
        if term.scope.is_empty() {
            self.rest += term.table.first().copied().unwrap_or(0.0);
            return;
        }
        for v in &term.scope {
            self.of[*v].push(self.terms.len());
        }
        self.terms.push(Some(term));
    }

    /// The other variables of the terms that a variable is in, ascending.
    fn neighbours(&self, v: usize) -> Vec<usize> {
        let terms = self.of[v].iter().filter_map(|t| self.terms[*t].as_ref());
        let mut out: Vec<usize> = terms.flat_map(|t| t.scope.iter().copied()).filter(|w| *w != v).collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Entries of the table that eliminating a variable makes; the largest number where that is too many.
    fn price(&self, v: usize) -> usize {
        let size = entries(&self.neighbours(v), self.sizes).and_then(|n| n.checked_mul(self.sizes[v]));
        size.filter(|size| *size <= MOST_ENTRIES).unwrap_or(usize::MAX)
    }

    /// Replaces the terms of a variable by their least sum; gives that sum's table before the least is taken.
    fn eliminate(&mut self, v: usize) -> Option<Term> {
        let mine: Vec<Term> =
            std::mem::take(&mut self.of[v]).into_iter().filter_map(|t| self.terms[t].take()).collect();
        let mut scope: Vec<usize> = mine.iter().flat_map(|t| t.scope.iter().copied()).filter(|w| *w != v).collect();
        scope.sort_unstable();
        scope.dedup();
        let others = scope.clone();
        scope.push(v);
        let joined = join(&mine, scope, self.sizes)?;
        let rows = joined.table.chunks(self.sizes[v]);
        let table = rows.map(|row| row.iter().copied().fold(f64::INFINITY, f64::min)).collect();
        self.push(Term { scope: others, table });
        Some(joined)
    }
}

/// Eliminates all variables, the one with the smallest table next (of equals the first). The least cost is what is left.
fn run(terms: Vec<Term>, sizes: &[usize]) -> Option<(Vec<Step>, f64)> {
    let mut pool = Pool::new(terms, sizes);
    let mut steps = Vec::with_capacity(sizes.len());
    let mut open: Vec<usize> = (0..sizes.len()).filter(|v| sizes[*v] > 1).collect();
    let mut prices: Vec<usize> = (0..sizes.len()).map(|v| if sizes[v] > 1 { pool.price(v) } else { 0 }).collect();
    while let Some(at) = (0..open.len()).min_by_key(|i| (prices[open[*i]], open[*i])) {
        let v = open.remove(at);
        if prices[v] == usize::MAX {
            return None;
        }
        let neighbours = pool.neighbours(v);
        steps.push(Step { joined: pool.eliminate(v)? });
        for w in neighbours {
            prices[w] = pool.price(w);
        }
    }
    Some((steps, pool.rest))
}

/// The sum of terms over a common scope.
fn join(terms: &[Term], scope: Vec<usize>, sizes: &[usize]) -> Option<Term> {
    // Of each term, how far an entry moves when a variable of the scope goes up by one.
    let strides: Vec<Vec<usize>> = terms
        .iter()
        .map(|term| {
            scope
                .iter()
                .map(|v| match term.scope.iter().position(|w| w == v) {
                    Some(at) => term.scope[at + 1..].iter().map(|w| sizes[*w]).product(),
                    None => 0,
                })
                .collect()
        })
        .collect();
    Term::new(scope, sizes, |at| {
        let entry = |strides: &[usize]| strides.iter().zip(at).map(|(s, a)| s * a).sum::<usize>();
        terms.iter().zip(&strides).map(|(term, strides)| term.table[entry(strides)]).sum()
    })
}
