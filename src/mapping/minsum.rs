//! Min-sum: the least value of a sum of terms of few variables each, by eliminating one variable after another
//! (non-serial dynamic programming: Bertelè and Brioschi, 1972).
//!
//! Eliminating a variable replaces the terms that it is in by their least sum over its values, a term of its neighbours.
//! What that costs is exponential in the number of neighbours alone. Of equally cheap choices (within rounding) each
//! variable, from the one eliminated last to the first, takes the value that the caller prefers.

/// Most entries of one table.
const MOST_ENTRIES: usize = 1 << 18;

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
pub fn least(terms: Vec<Term>, sizes: &[usize], preference: impl Fn(usize, usize) -> usize) -> Least {
    if sizes.contains(&0) {
        return Least::Infeasible;
    }
    let Some((steps, rest)) = run(terms, sizes) else { return Least::TooWide };
    if !rest.is_finite() {
        return Least::Infeasible;
    }
    let mut values = vec![0; sizes.len()];
    let tie = TIE * rest.abs();
    for joined in steps.iter().rev() {
        let Some((variable, others)) = joined.scope.split_last() else { continue };
        let row = others.iter().fold(0, |at, v| at * sizes[*v] + values[*v]) * sizes[*variable];
        let row = &joined.table[row..row + sizes[*variable]];
        let least = row.iter().copied().fold(f64::INFINITY, f64::min);
        let tied = (0..row.len()).filter(|i| row[*i] <= least + tie);
        values[*variable] = tied.min_by_key(|i| (preference(*variable, *i), *i)).unwrap_or(0);
    }
    Least::Found(values, rest)
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

    /// Entries of the table that eliminating a variable makes; the largest number where that is too many.
    fn price(&self, v: usize) -> usize {
        let size = entries(&self.neighbours(v), self.sizes).and_then(|n| n.checked_mul(self.sizes[v]));
        size.filter(|size| *size <= MOST_ENTRIES).unwrap_or(usize::MAX)
    }

    /// Replaces the terms of a variable by their least sum; gives that sum's table before the least is taken.
    fn eliminate(&mut self, v: usize, others: Vec<usize>) -> Option<Term> {
        let mine: Vec<Term> =
            std::mem::take(&mut self.of[v]).into_iter().filter_map(|t| self.terms[t].take()).collect();
        let mut scope = others.clone();
        scope.push(v);
        let joined = join(&mine, scope, self.sizes)?;
        let rows = joined.table.chunks(self.sizes[v]);
        let table = rows.map(|row| row.iter().copied().fold(f64::INFINITY, f64::min)).collect();
        self.push(Term { scope: others, table });
        Some(joined)
    }
}

/// Eliminates all variables, the one with the smallest table next (of equals the first). The least sum is what is left.
/// Of each variable eliminated the sum of its terms is kept, itself the last of the scope.
fn run(terms: Vec<Term>, sizes: &[usize]) -> Option<(Vec<Term>, f64)> {
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
        steps.push(pool.eliminate(v, neighbours.clone())?);
        for w in neighbours {
            prices[w] = pool.price(w);
        }
    }
    Some((steps, pool.rest))
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
