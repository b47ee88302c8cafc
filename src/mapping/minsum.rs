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
pub fn least(sum: Sum, preference: impl Fn(usize, usize) -> usize, deadline: Deadline) -> Least {
    let sizes = sum.sizes;
    if sizes.contains(&0) {
        return Least::Infeasible;
    }
    let mut pool = Pool::new(sum);
    match pool.run(MOST_ENTRIES, Wide::Ends(deadline)) {
        Ok(steps) if pool.rest.is_finite() => Least::Found(pool.values(&steps, preference), pool.rest),
        Ok(_) => Least::Infeasible,
        Err(ended) => ended,
    }
}

/// A choice whose sum is finite and, by bounded work, small; `None` where the way there is a dead end, which does not prove that there is none.
pub fn near(terms: &[Term], sizes: &[usize], preference: impl Fn(usize, usize) -> usize) -> Option<Vec<usize>> {
    if sizes.contains(&0) {
        return None;
    }
    let mut sum = Sum::new(sizes);
    terms.iter().for_each(|term| sum.add(term, 1.0));
    let mut pool = Pool::new(sum);
    let steps = pool.run(FEW_ENTRIES, Wide::Fixes).ok().filter(|_| pool.rest.is_finite())?;
    let mut chosen = pool.values(&steps, preference);
    improve(terms, sizes, &mut chosen);
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

/// Terms to be summed, their tables and scopes one behind the other: thousands of small ones are summed again and again.
pub struct Sum<'s> {
    sizes: &'s [usize],
    tables: Vec<f64>,
    scopes: Vec<usize>,
    pieces: Vec<Piece>,
}

/// A term's part of the tables and scopes.
#[derive(Debug, Clone, Copy)]
struct Piece {
    scope: (usize, usize),
    /// Where its table begins.
    table: usize,
    /// Whether it is still to be summed.
    waits: bool,
}

impl<'s> Sum<'s> {
    /// Of no term yet, over variables of so many values.
    pub fn new(sizes: &'s [usize]) -> Self {
        let room = 16 * sizes.len();
        let (tables, scopes) = (Vec::with_capacity(8 * room), Vec::with_capacity(room));
        Self { sizes, tables, scopes, pieces: Vec::with_capacity(room) }
    }

    /// Adds a term times a factor of at least zero; what costs infinitely much still does.
    pub fn add(&mut self, term: &Term, factor: f64) {
        let table = self.tables.len();
        match factor == 1.0 {
            true => self.tables.extend_from_slice(&term.table),
            false => self.tables.extend(term.table.iter().map(|c| if c.is_finite() { c * factor } else { *c })),
        }
        self.push(&term.scope, table);
    }

    /// Adds a term of one variable.
    pub fn add_of_one(&mut self, variable: usize, costs: impl Iterator<Item = f64>) {
        let table = self.tables.len();
        self.tables.extend(costs);
        self.push(&[variable], table);
    }

    /// Variables of one value take no part: they have one row in every table.
    fn push(&mut self, scope: &[usize], table: usize) {
        let from = self.scopes.len();
        self.scopes.extend(scope.iter().filter(|v| self.sizes[**v] > 1));
        self.pieces.push(Piece { scope: (from, self.scopes.len()), table, waits: true });
    }
}

/// What became of a variable.
enum Step {
    /// It was eliminated: the sum of its terms, itself the last of the scope.
    Eliminated(Piece),
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

/// No further term of a variable.
const LAST: usize = usize::MAX;

/// Terms that are still to be summed, and where each variable is.
struct Pool<'s> {
    sum: Sum<'s>,
    /// Of each variable its first and last place in the scopes, and of each place the term and the variable's next.
    of: Vec<(usize, usize)>,
    places: Vec<(usize, usize)>,
    /// Terms whose places are known.
    known: usize,
    /// What is known for certain: terms whose variables are all gone.
    rest: f64,
    /// Which variables were seen in a round, and the round.
    seen: Vec<usize>,
    round: usize,
}

impl<'s> Pool<'s> {
    fn new(sum: Sum<'s>) -> Self {
        let n = sum.sizes.len();
        let places = Vec::with_capacity(2 * sum.scopes.len());
        let mut pool = Self { sum, of: vec![(LAST, LAST); n], places, known: 0, rest: 0.0, seen: vec![0; n], round: 0 };
        pool.note();
        pool
    }

    /// Notes where the variables of new terms are.
    fn note(&mut self) {
        while let Some(piece) = self.sum.pieces.get_mut(self.known) {
            let (from, to) = piece.scope;
            if from == to {
                piece.waits = false;
                self.rest += self.sum.tables.get(piece.table).copied().unwrap_or(0.0);
            }
            self.places.resize(from, (0, LAST));
            for at in from..to {
                self.places.push((self.known, LAST));
                let (first, last) = &mut self.of[self.sum.scopes[at]];
                match *last {
                    LAST => *first = at,
                    before => self.places[before].1 = at,
                }
                *last = at;
            }
            self.known += 1;
        }
    }

    fn scope(&self, piece: Piece) -> &[usize] {
        &self.sum.scopes[piece.scope.0..piece.scope.1]
    }

    /// The terms that a variable is in, in the order in which they came.
    fn terms_of(&self, v: usize) -> impl Iterator<Item = usize> + '_ {
        let mut at = self.of[v].0;
        let next = move || {
            let (term, next) = *self.places.get(at)?;
            at = next;
            Some(term)
        };
        std::iter::from_fn(next).filter(|term| self.sum.pieces[*term].waits)
    }

    /// Calls `f` with each of the other variables of the terms that a variable is in, each once.
    fn each_neighbour(&mut self, v: usize, mut f: impl FnMut(usize)) {
        self.round += 1;
        let mut seen = std::mem::take(&mut self.seen);
        seen[v] = self.round;
        for term in self.terms_of(v) {
            for w in self.scope(self.sum.pieces[term]) {
                if seen[*w] != self.round {
                    seen[*w] = self.round;
                    f(*w);
                }
            }
        }
        self.seen = seen;
    }

    /// Entries of the table that eliminating a variable makes, the largest number where that is more than `most`; and its neighbours.
    fn price(&mut self, v: usize, most: usize) -> (usize, usize) {
        let sizes = self.sum.sizes;
        let (mut neighbours, mut size) = (0, Some(sizes[v]));
        self.each_neighbour(v, |w| {
            neighbours += 1;
            size = size.and_then(|size| size.checked_mul(sizes[w])).filter(|size| *size <= most);
        });
        (size.filter(|size| *size <= most).unwrap_or(usize::MAX), neighbours)
    }

    /// Replaces the terms of a variable by their least sum over its neighbours, ascending; gives that sum's table before the least is taken.
    fn eliminate(&mut self, v: usize, others: &[usize]) -> Piece {
        let joined = self.join(v, others);
        let table = self.sum.tables.len();
        let size = self.sum.sizes[v];
        for from in (joined.table..table).step_by(size) {
            let row = &self.sum.tables[from..from + size];
            let least = row.iter().copied().fold(f64::INFINITY, f64::min);
            self.sum.tables.push(least);
        }
        self.sum.push(others, table);
        self.note();
        joined
    }

    /// The sum of the terms of a variable, which wait no more; itself the last of the scope.
    fn join(&mut self, v: usize, others: &[usize]) -> Piece {
        let (sizes, size) = (self.sum.sizes, self.sum.sizes[v]);
        let table = self.sum.tables.len();
        let rows: usize = others.iter().map(|w| sizes[*w]).product();
        self.sum.tables.resize(table + rows * size, 0.0);
        let (known, joined) = self.sum.tables.split_at_mut(table);
        let mut strides = vec![0; others.len()];
        let mut at = vec![0; others.len()];
        let mut next = self.of[v].0;
        while let Some(&(term, after)) = self.places.get(next) {
            next = after;
            let piece = &mut self.sum.pieces[term];
            if !std::mem::take(&mut piece.waits) {
                continue;
            }
            // How far an entry of the term moves when a variable goes up by one.
            let mut own = 0;
            strides.fill(0);
            let mut stride = 1;
            for w in self.sum.scopes[piece.scope.0..piece.scope.1].iter().rev() {
                match others.binary_search(w) {
                    Ok(i) => strides[i] = stride,
                    Err(_) => own = stride,
                }
                stride *= sizes[*w];
            }
            let mut from = piece.table;
            for row in joined.chunks_exact_mut(size) {
                row.iter_mut().enumerate().for_each(|(value, entry)| *entry += known[from + value * own]);
                for (i, w) in others.iter().enumerate().rev() {
                    at[i] += 1;
                    from += strides[i];
                    if at[i] < sizes[*w] {
                        break;
                    }
                    from -= strides[i] * sizes[*w];
                    at[i] = 0;
                }
            }
        }
        let from = self.sum.scopes.len();
        self.sum.scopes.extend_from_slice(others);
        self.sum.scopes.push(v);
        Piece { scope: (from, self.sum.scopes.len()), table, waits: false }
    }

    /// Gives a variable the value whose terms are least in sum, each by itself.
    fn fix(&mut self, v: usize) -> usize {
        let mine: Vec<usize> = self.terms_of(v).collect();
        let (sizes, size) = (self.sum.sizes, self.sum.sizes[v]);
        let mut least = vec![0.0; size];
        // Entries of a term, and between two values of the variable.
        let shape = |pool: &Self, term: usize| -> (usize, usize) {
            let scope = pool.scope(pool.sum.pieces[term]);
            let behind = scope.iter().skip_while(|w| **w != v).skip(1);
            (scope.iter().map(|w| sizes[*w]).product(), behind.map(|w| sizes[*w]).product())
        };
        for term in &mine {
            let (entries, stride) = shape(self, *term);
            let table = self.sum.pieces[*term].table;
            let mut of_value = vec![f64::INFINITY; size];
            for (at, cost) in self.sum.tables[table..table + entries].iter().enumerate() {
                let value = &mut of_value[at / stride % size];
                *value = value.min(*cost);
            }
            least.iter_mut().zip(of_value).for_each(|(sum, cost)| *sum += cost);
        }
        let value = (0..size).min_by(|a, b| least[*a].total_cmp(&least[*b])).unwrap_or(0);
        for term in mine {
            let (entries, stride) = shape(self, term);
            self.sum.pieces[term].waits = false;
            let piece = self.sum.pieces[term];
            let scope: Vec<usize> = self.scope(piece).iter().copied().filter(|w| *w != v).collect();
            let table = self.sum.tables.len();
            for at in (0..entries).filter(|at| at / stride % size == value) {
                let cost = self.sum.tables[piece.table + at];
                self.sum.tables.push(cost);
            }
            self.sum.push(&scope, table);
        }
        self.note();
        value
    }

    /// Eliminates all variables, the one with the smallest table next (of equals the first). The least sum is the rest that is left.
    fn run(&mut self, most: usize, wide: Wide) -> Result<Vec<Step>, Least> {
        let sizes = self.sum.sizes;
        let mut steps = Vec::with_capacity(sizes.len());
        let mut open: Vec<usize> = (0..sizes.len()).filter(|v| sizes[*v] > 1).collect();
        let mut prices: Vec<(usize, usize)> =
            (0..sizes.len()).map(|v| if sizes[v] > 1 { self.price(v, most) } else { (0, 0) }).collect();
        let mut neighbours = Vec::new();
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
            neighbours.clear();
            self.each_neighbour(v, |w| neighbours.push(w));
            neighbours.sort_unstable();
            if too_large {
                let value = self.fix(v);
                steps.push(Step::Fixed(v, value));
            } else {
                steps.push(Step::Eliminated(self.eliminate(v, &neighbours)));
            }
            for w in &neighbours {
                prices[*w] = self.price(*w, most);
            }
        }
        Ok(steps)
    }

    /// The values of the variables, from the one eliminated last to the first.
    fn values(&self, steps: &[Step], preference: impl Fn(usize, usize) -> usize) -> Vec<usize> {
        let sizes = self.sum.sizes;
        let mut values = vec![0; sizes.len()];
        let tie = TIE * self.rest.abs();
        for step in steps.iter().rev() {
            let joined = match step {
                Step::Fixed(variable, value) => {
                    values[*variable] = *value;
                    continue;
                }
                Step::Eliminated(joined) => *joined,
            };
            let Some((variable, others)) = self.scope(joined).split_last() else { continue };
            let row = others.iter().fold(0, |at, v| at * sizes[*v] + values[*v]) * sizes[*variable];
            let row = &self.sum.tables[joined.table + row..joined.table + row + sizes[*variable]];
            let least = row.iter().copied().fold(f64::INFINITY, f64::min);
            let tied = (0..row.len()).filter(|i| row[*i] <= least + tie);
            values[*variable] = tied.min_by_key(|i| (preference(*variable, *i), *i)).unwrap_or(0);
        }
        values
    }
}
