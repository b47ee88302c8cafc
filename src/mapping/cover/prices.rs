//! The greatest prices of the kernels of each colour that keep the rule: an LP proposes, a search over unions of pieces disposes.

use super::Piece;
use crate::deadline::Deadline;
use crate::mapping::instance::{CAPACITY_TOLERANCE, Instance, combine, piped};
use crate::mapping::solver::{Limits, Milp, Solver, solve};

/// Most unions looked at while prices are found, and most rounds of it.
const MOST_UNIONS: usize = 2_000_000;
const ROUNDS: usize = 60;
/// Most unions looked at in one round that begin with one piece.
const UNIONS_A_PIECE: usize = 20_000;

/// Unions between two looks at the clock.
const LOOK: usize = 16;

/// Sums over a union of pieces.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    fluid_s: f64,
    compute_s: f64,
    dram_bytes: f64,
    network_s: f64,
    serial_s: f64,
    sram_bytes: f64,
    /// Part of a pass by which the last kernel begins after the first: of pieces that share no tensor the longest.
    lag: f64,
    price: f64,
}

impl Sums {
    fn with(&self, piece: &Piece, price: f64) -> Self {
        Self {
            fluid_s: self.fluid_s + piece.fluid_s,
            compute_s: self.compute_s.max(piece.compute_s),
            dram_bytes: self.dram_bytes + piece.dram_bytes,
            network_s: self.network_s + piece.network_s,
            serial_s: self.serial_s + piece.serial_s,
            sram_bytes: self.sram_bytes + piece.sram_bytes,
            lag: self.lag.max(piece.lag),
            price: self.price + price,
        }
    }
}

/// The search for prices.
pub(super) struct Pricing<'a> {
    instance: &'a Instance,
    pieces: Vec<Piece>,
    /// Kernels of each colour.
    counts: Vec<f64>,
    /// Unions that may still be looked at.
    left: usize,
    deadline: Deadline,
}

/// A union that prices break, and the factor by which they must be lowered for it.
struct Broken {
    union: Vec<usize>,
    ratio: f64,
}

impl<'a> Pricing<'a> {
    pub(super) fn new(instance: &'a Instance, pieces: Vec<Piece>, counts: Vec<f64>, deadline: Deadline) -> Self {
        Self { instance, pieces, counts, left: MOST_UNIONS, deadline }
    }

    fn value(&self, sums: &Sums) -> f64 {
        let i = self.instance;
        let compute = sums.fluid_s.max(sums.compute_s);
        let dram = sums.dram_bytes / i.dram_bytes_per_s;
        let pace = combine(i.overlap, compute, dram, sums.network_s);
        let time = piped(pace, sums.lag) + sums.serial_s + i.partition_overhead_s;
        i.goal.value(time, compute, sums.dram_bytes)
    }

    /// The prices of the colours with the greatest bound that the rounds find.
    pub(super) fn raise(&mut self, upper: f64) -> Option<Vec<f64>> {
        let colours = self.counts.len();
        // Prices in units of which the bound is about one a kernel.
        let unit = upper / self.counts.iter().sum::<f64>();
        let mut lp = Milp::default();
        for (c, count) in self.counts.iter().enumerate() {
            lp.continuous(format!("l{c}"), upper / unit, -count);
        }
        for piece in 0..self.pieces.len() {
            self.row(&mut lp, &[piece], unit);
        }
        let total = |prices: &[f64], counts: &[f64]| prices.iter().zip(counts).map(|(p, n)| p * n).sum::<f64>();
        let mut best = 0.0;
        let mut inside: Option<Vec<f64>> = None;
        let mut kept = false;
        for _ in 0..ROUNDS {
            if self.deadline.is_over() {
                break;
            }
            let seconds = self.deadline.left();
            let limits = Limits { solver: Solver::Highs, seconds, nodes: None, ..Limits::default() };
            let Ok(solved) = solve(&lp, &limits, None) else { break };
            let Some(outside) = solved.values else { break };
            let outside: Vec<f64> = outside.iter().map(|x| x.max(0.0) * unit).collect();
            // Nothing better is left than what the LP says.
            if total(&outside, &self.counts) <= best * (1.0 + 1e-7) {
                break;
            }
            // Between the best prices that keep the rule and the LP's: the LP's alone jump about.
            let prices: Vec<f64> = match &inside {
                Some(inside) if !kept => (0..colours).map(|c| 0.5 * (inside[c] + outside[c])).collect(),
                _ => outside,
            };
            let (factor, rows) = self.broken(&prices);
            kept = rows.is_empty();
            match factor {
                Some(factor) if factor * total(&prices, &self.counts) > best => {
                    best = factor * total(&prices, &self.counts);
                    inside = Some(prices.iter().map(|p| p * factor).collect());
                }
                // No rule is known to be broken, nor that none is.
                None if kept => break,
                _ => {}
            }
            if self.left == 0 || best >= upper * (1.0 - 1e-9) {
                break;
            }
            for row in &rows {
                self.row(&mut lp, &row.union, unit);
            }
        }
        // Rules are kept to a billionth.
        let inside = inside.filter(|_| best > 0.0)?;
        Some(inside.iter().map(|price| price * (1.0 - 2e-9)).collect())
    }

    /// A rule of the LP.
    fn row(&self, lp: &mut Milp, union: &[usize], unit: f64) {
        let sums = union.iter().fold(Sums::default(), |sums, p| sums.with(&self.pieces[*p], 0.0));
        let terms = union
            .iter()
            .flat_map(|p| self.pieces[*p].kernels.iter().map(|(c, count)| (*c, f64::from(*count))))
            .collect();
        lp.at_most(format!("r{}", lp.rows.len()), terms, self.value(&sums) / unit);
    }

    /// The factor by which prices must be lowered to keep every rule (`None` where not all unions could be looked at), and for each
    /// first piece the union that breaks it most.
    fn broken(&mut self, prices: &[f64]) -> (Option<f64>, Vec<Broken>) {
        let of = |piece: &Piece| piece.kernels.iter().map(|(c, n)| prices[*c] * f64::from(*n)).sum::<f64>();
        let price: Vec<f64> = self.pieces.iter().map(of).collect();
        // What earns nothing by itself earns nothing in company.
        let mut order: Vec<usize> = (0..self.pieces.len()).filter(|p| price[*p] > 0.0).collect();
        order.sort_by(|a, b| self.pieces[*b].sram_bytes.total_cmp(&self.pieces[*a].sram_bytes).then(a.cmp(b)));
        let weights = weights(&self.pieces);
        let mut factor = Some(1.0);
        let mut rows = Vec::new();
        for at in 0..order.len() {
            let mut most = Broken { union: Vec::new(), ratio: 1.0 };
            let first = order[at];
            let sums = Sums::default().with(&self.pieces[first], price[first]);
            // What is left out proves nothing.
            let left = if self.deadline.is_over() { 0 } else { self.left.min(UNIONS_A_PIECE) };
            let mut spare = self.counts.clone();
            self.pieces[first].kernels.iter().for_each(|(c, n)| spare[*c] -= f64::from(*n));
            let mut walk = Walk {
                pricing: self,
                price: &price,
                weights: &weights,
                most: &mut most,
                union: vec![first],
                spare,
                left,
            };
            let whole = walk.from(&sums, &order[at..]).is_some();
            let used = left - walk.left;
            self.left -= used;
            factor = factor.filter(|_| whole).map(|f: f64| f.min(most.ratio));
            if most.ratio < 1.0 {
                rows.push(most);
            }
        }
        rows.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        rows.truncate(60);
        (factor, rows)
    }
}

/// Weights of compute, DRAM and network, each a weighted mean that the longest of them is at least.
fn weights(pieces: &[Piece]) -> Vec<[f64; 3]> {
    const STEPS: u32 = 6;
    let network = pieces.iter().any(|p| p.network_s > 0.0);
    let mut out = Vec::new();
    for a in 0..=STEPS {
        for b in 0..=STEPS - a {
            let rest = STEPS - a - b;
            if network || rest == 0 {
                out.push([a, b, rest].map(|x| f64::from(x) / f64::from(STEPS)));
            }
        }
    }
    out
}

/// The search over the unions that begin with one piece.
struct Walk<'a, 'b> {
    pricing: &'a Pricing<'b>,
    price: &'a [f64],
    weights: &'a [[f64; 3]],
    most: &'a mut Broken,
    union: Vec<usize>,
    /// Kernels of each colour that are not in the union.
    spare: Vec<f64>,
    /// Unions that may still be looked at.
    left: usize,
}

impl Walk<'_, '_> {
    /// Looks at the union under way and adds to it pieces of a list, none before the last one of the union.
    fn from(&mut self, sums: &Sums, list: &[usize]) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        if self.left.is_multiple_of(LOOK) && self.pricing.deadline.is_over() {
            self.left = 0;
            return None;
        }
        let value = self.pricing.value(sums);
        if sums.price * self.most.ratio > value * (1.0 + 1e-9) {
            *self.most = Broken { union: self.union.clone(), ratio: value / sums.price };
        }
        let room = self.pricing.instance.sram_bytes * (1.0 + 2.0 * CAPACITY_TOLERANCE)
            - self.pricing.instance.base_sram_bytes
            - sums.sram_bytes;
        let fitting: Vec<usize> = list
            .iter()
            .copied()
            .filter(|p| {
                let piece = &self.pricing.pieces[*p];
                piece.sram_bytes <= room
                    && piece.kernels.iter().all(|(c, n)| f64::from(*n) <= self.spare[*c])
                    && self.union.last().is_none_or(|last| {
                        piece.own.iter().zip(&self.pricing.pieces[*last].beside).all(|(own, beside)| own & !beside == 0)
                    })
            })
            .collect();
        if fitting.is_empty() || !self.may_break(sums, &fitting, room) {
            return Some(());
        }
        for (i, &p) in fitting.iter().enumerate() {
            let more = sums.with(&self.pricing.pieces[p], self.price[p]);
            self.union.push(p);
            self.pricing.pieces[p].kernels.iter().for_each(|(c, n)| self.spare[*c] -= f64::from(*n));
            self.from(&more, &fitting[i..])?;
            self.pricing.pieces[p].kernels.iter().for_each(|(c, n)| self.spare[*c] += f64::from(*n));
            self.union.pop();
        }
        Some(())
    }

    /// Whether, for all that the weights say, pieces of a list in the room left may break the rule more than the worst known.
    fn may_break(&self, sums: &Sums, list: &[usize], room: f64) -> bool {
        let i = self.pricing.instance;
        let second = i.goal.second;
        self.weights.iter().all(|w| {
            let worth = |price: f64, fluid: f64, bytes: f64, network: f64, serial: f64| {
                let dram = bytes / i.dram_bytes_per_s;
                // More pieces begin no earlier.
                let time = piped(w[0] * fluid + w[1] * dram + w[2] * network, sums.lag) + serial;
                price * self.most.ratio - i.goal.value(time, fluid, bytes)
            };
            let own = worth(sums.price, sums.fluid_s, sums.dram_bytes, sums.network_s, sums.serial_s)
                - second * i.partition_overhead_s;
            let mut densest: f64 = 0.0;
            for &p in list {
                let piece = &self.pricing.pieces[p];
                let gain = worth(self.price[p], piece.fluid_s, piece.dram_bytes, piece.network_s, piece.serial_s);
                if gain > 0.0 {
                    densest = densest.max(if piece.sram_bytes > 0.0 { gain / piece.sram_bytes } else { f64::INFINITY });
                }
            }
            let more = if densest > 0.0 { densest * room } else { 0.0 };
            own + more > 0.0
        })
    }
}
