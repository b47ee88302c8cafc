//! Min-sum: the least value of a sum of terms of few variables each, by eliminating one variable after another
//! (non-serial dynamic programming: Bertelè and Brioschi, 1972).
//!
//! Eliminating a variable replaces the terms that it is in by their least sum over its values, a term of its neighbours.
//! What that costs is exponential in the number of neighbours alone. Of equally cheap choices (within rounding) each
//! variable, from the one eliminated last to the first, takes the value that the caller prefers.
//!
//! Where that would take too large a table, or too long, [`near`] gives a choice that is good: variables that would make large
//! tables are fixed instead, one after another, and then each variable takes its best value beside the others.

use crate::deadline::Deadline;

/// Most entries of one table.
const MOST_ENTRIES: usize = 1 << 18;

/// Most entries of one table where a good choice is enough.
const FEW_ENTRIES: usize = 1 << 10;

/// Most rounds in which every variable takes its best value beside the others.
const ROUNDS: usize = 20;

/// Relative difference within which two choices cost the same.
const TIE: f64 = 1e-12;

/// A term: a cost for each choice of its variables, the last variable fastest.
#[derive(Debug, Clone)]
pub struct Term {
    scope: Vec<usize>,
    table: Vec<f64>,
}

/// The least choice.
#[derive(Debug, Clone, PartialEq)]
pub enum Least {
    /// The value of each variable, and the sum.
    Found(Vec<usize>, f64),
    /// Every choice costs infinitely much.
    Infeasible,
    /// A table would have too many entries.
    TooWide,
    /// The deadline passed.
    OutOfTime,
}

impl Term {
    /// A term of one variable.
    pub fn of_one(variable: usize, table: Vec<f64>) -> Self {
        Self { scope: vec![variable], table }
    }

    /// A term from its cost function, over variables that differ. `None` when it has too many entries.
    pub fn new(scope: Vec<usize>, sizes: &[usize], mut cost: impl FnMut(&[usize]) -> f64) -> Option<Self> {
        let entries = entries(&scope, sizes)?;
        let mut at = vec![0; scope.len()];
        let mut table = Vec::with_capacity(entries);
        for _ in 0..entries {
            table.push(cost(&at));
            for (value, v) in at.iter_mut().zip(&scope).rev() {
                *value += 1;
                if *value < sizes[*v] {
                    break;
                }
                *value = 0;
            }
        }
        Some(Self { scope, table })
    }

    /// The term over some values of each variable: `kept` are those, ascending.
    pub fn among(&self, sizes: &[usize], kept: &[Vec<usize>]) -> Self {
        let scope = self.scope.as_slice();
        if scope.iter().all(|v| kept[*v].len() == sizes[*v]) {
            return self.clone();
        }
        let mut from = vec![0];
        for v in scope {
            from = from.iter().flat_map(|at| kept[*v].iter().map(move |value| at * sizes[*v] + value)).collect();
        }
        Self { scope: scope.to_vec(), table: from.into_iter().map(|at| self.table[at]).collect() }
    }

    /// The term of the same variables whose costs are what `f` makes of those of both.
    pub fn with(mut self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        self.table.iter_mut().zip(&other.table).for_each(|(a, b)| *a = f(*a, *b));
        self
    }

    /// Changes every cost.
    pub fn map(&mut self, f: impl Fn(f64) -> f64) {
        self.table.iter_mut().for_each(|cost| *cost = f(*cost));
    }
}

/// Entries of a table over `scope`; `None` beyond the limit.
fn entries(scope: &[usize], sizes: &[usize]) -> Option<usize> {
    let count = scope.iter().try_fold(1usize, |count, v| count.checked_mul(sizes[*v]));
    count.filter(|count| *count <= MOST_ENTRIES)
}

/// The least sum of the terms. `preference` ranks the values of a variable, the smallest first.
pub fn least(
    terms: Vec<Term>,
    sizes: &[usize],
    preference: impl Fn(usize, usize) -> usize,
    deadline: Deadline,
) -> Least {
    if sizes.contains(&0) {
        return Least::Infeasible;
    }
    let mut pool = Pool::new(terms, sizes);
    match pool.run(MOST_ENTRIES, Wide::Ends(deadline)) {
        Ok(steps) if pool.rest.is_finite() => Least::Found(values(&steps, sizes, pool.rest, preference), pool.rest),
        Ok(_) => Least::Infeasible,
        Err(ended) => ended,
    }
}

/// A choice whose sum is finite and, by bounded work, small; `None` where the way there is a dead end, which does not prove that there is none.
pub fn near(terms: Vec<Term>, sizes: &[usize], preference: impl Fn(usize, usize) -> usize) -> Option<Vec<usize>> {
    if sizes.contains(&0) {
        return None;
    }
    let mut pool = Pool::new(terms.clone(), sizes);
    let steps = pool.run(FEW_ENTRIES, Wide::Fixes).ok().filter(|_| pool.rest.is_finite())?;
    let mut chosen = values(&steps, sizes, pool.rest, preference);
    improve(&terms, sizes, &mut chosen);
    Some(chosen)
}

/// Each variable in turn takes its best value beside the others, until none changes.
fn improve(terms: &[Term], sizes: &[usize], chosen: &mut [usize]) {
    let mut of: Vec<Vec<&Term>> = vec![Vec::new(); sizes.len()];
    terms.iter().for_each(|term| term.scope.iter().for_each(|v| of[*v].push(term)));
    for _ in 0..ROUNDS {
        let mut changed = false;
        for (v, size) in sizes.iter().enumerate().filter(|(_, size)| **size > 1) {
            let old = chosen[v];
            let mut sum = |value: usize| -> f64 {
                chosen[v] = value;
                of[v]
                    .iter()
                    .map(|term| term.table[term.scope.iter().fold(0, |at, w| at * sizes[*w] + chosen[*w])])
                    .sum()
            };
            let (mut best, mut least) = (old, sum(old) * (1.0 - TIE));
            for value in 0..*size {
                let sum = sum(value);
                if sum < least {
                    (best, least) = (value, sum);
                }
            }
            chosen[v] = best;
            changed |= best != old;
        }
        if !changed {
            return;
        }
    }
}

/// The values of the variables, from the one eliminated last to the first.
fn values(steps: &[Step], sizes: &[usize], sum: f64, preference: impl Fn(usize, usize) -> usize) -> Vec<usize> {
    let mut values = vec![0; sizes.len()];
    let tie = TIE * sum.abs();
    for step in steps.iter().rev() {
        let joined = match step {
            Step::Fixed(variable, value) => {
                values[*variable] = *value;
                continue;
            }
            Step::Eliminated(joined) => joined,
        };
        let Some((variable, others)) = joined.scope.split_last() else { continue };
        let row = others.iter().fold(0, |at, v| at * sizes[*v] + values[*v]) * sizes[*variable];
        let row = &joined.table[row..row + sizes[*variable]];
        let least = row.iter().copied().fold(f64::INFINITY, f64::min);
        let tied = (0..row.len()).filter(|i| row[*i] <= least + tie);
        values[*variable] = tied.min_by_key(|i| (preference(*variable, *i), *i)).unwrap_or(0);
    }
    values
}

/// What became of a variable.
enum Step {
    /// It was eliminated: the sum of its terms, itself the last of the scope.
    Eliminated(Term),
    /// It got a value.
    Fixed(usize, usize),
}

/// What is done where a table would be too large.
#[derive(Clone, Copy)]
enum Wide {
    /// Nothing: it ends there; and at the deadline.
    Ends(Deadline),
    /// A variable gets a value.
    Fixes,
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
        let mut pool =
            Self { sizes, terms: Vec::with_capacity(2 * terms.len()), of: vec![Vec::new(); sizes.len()], rest: 0.0 };
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

    /// Entries of the table that eliminating a variable makes, the largest number where that is more than `most`; and its neighbours.
    fn price(&self, v: usize, most: usize) -> (usize, usize) {
        let neighbours = self.neighbours(v);
        let size = entries(&neighbours, self.sizes).and_then(|n| n.checked_mul(self.sizes[v]));
        (size.filter(|size| *size <= most).unwrap_or(usize::MAX), neighbours.len())
    }

    /// Replaces the terms of a variable by their least sum; gives that sum's table before the least is taken.
    fn eliminate(&mut self, v: usize, others: Vec<usize>) -> Option<Term> {
        let mine = self.take(v);
        let mut scope = others.clone();
        scope.push(v);
        let joined = join(&mine, scope, self.sizes)?;
        let rows = joined.table.chunks(self.sizes[v]);
        let table = rows.map(|row| row.iter().copied().fold(f64::INFINITY, f64::min)).collect();
        self.push(Term { scope: others, table });
        Some(joined)
    }

    /// Gives a variable the value whose terms are least in sum, each by itself.
    fn fix(&mut self, v: usize) -> usize {
        let mine = self.take(v);
        let size = self.sizes[v];
        let mut least = vec![0.0; size];
        // Entries of a term between two values of the variable.
        let stride = |term: &Term| -> usize {
            let behind = term.scope.iter().skip_while(|w| **w != v).skip(1);
            behind.map(|w| self.sizes[*w]).product()
        };
        for term in &mine {
            let mut of_value = vec![f64::INFINITY; size];
            for (at, cost) in term.table.iter().enumerate() {
                let value = &mut of_value[at / stride(term) % size];
                *value = value.min(*cost);
            }
            least.iter_mut().zip(of_value).for_each(|(sum, cost)| *sum += cost);
        }
        let value = (0..size).min_by(|a, b| least[*a].total_cmp(&least[*b])).unwrap_or(0);
        for term in mine {
            let stride = stride(&term);
            let table = term.table.iter().enumerate().filter(|(at, _)| at / stride % size == value);
            let table = table.map(|(_, cost)| *cost).collect();
            let scope = term.scope.into_iter().filter(|w| *w != v).collect();
            self.push(Term { scope, table });
        }
        value
    }

    /// The terms that a variable is in, which are the pool's no more.
    fn take(&mut self, v: usize) -> Vec<Term> {
        std::mem::take(&mut self.of[v]).into_iter().filter_map(|t| self.terms[t].take()).collect()
    }

    /// Eliminates all variables, the one with the smallest table next (of equals the first). The least sum is the rest that is left.
    fn run(&mut self, most: usize, wide: Wide) -> Result<Vec<Step>, Least> {
        let sizes = self.sizes;
        let mut steps = Vec::with_capacity(sizes.len());
        let mut open: Vec<usize> = (0..sizes.len()).filter(|v| sizes[*v] > 1).collect();
        let mut prices: Vec<(usize, usize)> =
            (0..sizes.len()).map(|v| if sizes[v] > 1 { self.price(v, most) } else { (0, 0) }).collect();
        while let Some(mut at) = (0..open.len()).min_by_key(|i| (prices[open[*i]].0, open[*i])) {
            let too_large = prices[open[at]].0 == usize::MAX;
            match wide {
                Wide::Ends(_) if too_large => return Err(Least::TooWide),
                Wide::Ends(deadline) if deadline.is_over() => return Err(Least::OutOfTime),
                // The variable beside most others opens most.
                Wide::Fixes if too_large => {
                    let beside = |i: &usize| (prices[open[*i]].1, std::cmp::Reverse(open[*i]));
                    at = (0..open.len()).max_by_key(beside).unwrap_or(at);
                }
                _ => {}
            }
            let v = open.remove(at);
            let neighbours = self.neighbours(v);
            if too_large {
                let value = self.fix(v);
                steps.push(Step::Fixed(v, value));
            } else {
                steps.push(Step::Eliminated(self.eliminate(v, neighbours.clone()).ok_or(Least::TooWide)?));
            }
            for w in neighbours {
                prices[w] = self.price(w, most);
            }
        }
        Ok(steps)
    }
}

/// The sum of terms over a common scope.
fn join(terms: &[Term], scope: Vec<usize>, sizes: &[usize]) -> Option<Term> {
    let mut table = vec![0.0; entries(&scope, sizes)?];
    let mut strides = vec![0; scope.len()];
    let mut at = vec![0; scope.len()];
    for term in terms {
        // How far an entry of the term moves when a variable of the scope goes up by one.
        for (stride, v) in strides.iter_mut().zip(&scope) {
            *stride = match term.scope.iter().position(|w| w == v) {
                Some(at) => term.scope[at + 1..].iter().map(|w| sizes[*w]).product(),
                None => 0,
            };
        }
        let mut from = 0;
        for entry in &mut table {
            *entry += term.table[from];
            for (i, v) in scope.iter().enumerate().rev() {
                at[i] += 1;
                from += strides[i];
                if at[i] < sizes[*v] {
                    break;
                }
                from -= strides[i] * sizes[*v];
                at[i] = 0;
            }
        }
    }
    Some(Term { scope, table })
}
