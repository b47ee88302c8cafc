//! An assignment that is kept up while actors move, and its improvement by moves and swaps (Kernighan and Lin 1970, Fiduccia and
//! Mattheyses 1982), for every objective.

use super::instance::Instance;
use super::placement::Objective;
use std::time::Instant;

/// What an assignment is worth: what it breaks, the objective, and how uneven it is; the smaller the better, the first counts most.
pub type Worth = (f64, f64, f64);

/// An assignment and its sums.
#[derive(Debug, Clone)]
pub struct Assignment<'i, 'g> {
    instance: &'i Instance<'g>,
    /// Core of each actor.
    pub core_of: Vec<usize>,
    busy: Vec<u64>,
    local: Vec<f64>,
    port: Vec<f64>,
    memory: Vec<f64>,
    across: f64,
    cut: f64,
}

impl<'i, 'g> Assignment<'i, 'g> {
    /// The sums of `core_of`.
    pub fn new(instance: &'i Instance<'g>, core_of: Vec<usize>) -> Self {
        let k = instance.k;
        let mut new = Self {
            instance,
            core_of,
            busy: vec![0; k],
            local: vec![0.0; k],
            port: vec![0.0; k],
            memory: vec![0.0; k],
            across: 0.0,
            cut: 0.0,
        };
        for i in 0..instance.n {
            let p = new.core_of[i];
            new.busy[p] += instance.on(i, p);
            new.memory[p] += instance.bytes[i];
        }
        for e in 0..instance.edges.len() {
            new.edge(e, 1.0);
        }
        new
    }

    /// Adds (or, with -1, takes off) what an edge costs where its ends lie now.
    fn edge(&mut self, e: usize, sign: f64) {
        let edge = &self.instance.edges[e];
        let (p, q) = (self.core_of[edge.from], self.core_of[edge.to]);
        let (distance, wire) = self.instance.cores.between(p, q);
        let seconds = sign * edge.seconds(distance, wire);
        if p == q {
            self.local[p] += seconds;
        } else {
            self.port[p] += seconds;
            self.port[q] += seconds;
            self.across += seconds;
            self.cut += sign * edge.bytes;
        }
    }

    /// Moves an actor.
    pub fn apply(&mut self, i: usize, q: usize) {
        let p = self.core_of[i];
        let instance = self.instance;
        let touching = || instance.outgoing[i].iter().chain(&instance.incoming[i]);
        touching().for_each(|e| self.edge(*e, -1.0));
        self.busy[p] -= instance.on(i, p);
        self.busy[q] += instance.on(i, q);
        self.memory[p] -= instance.bytes[i];
        self.memory[q] += instance.bytes[i];
        self.core_of[i] = q;
        touching().for_each(|e| self.edge(*e, 1.0));
    }

    /// The objective, in seconds or bytes.
    pub fn objective(&self) -> f64 {
        let busy = || self.busy.iter().map(|t| *t as f64 / self.instance.rate);
        match self.instance.request.objective {
            Objective::Bottleneck => busy().fold(0.0, f64::max),
            Objective::Sum => {
                busy().fold(0.0, f64::max) + self.local.iter().copied().fold(0.0, f64::max) + self.across.max(0.0)
            }
            Objective::PerCore => {
                let cores = busy().zip(&self.local).zip(&self.port);
                cores.map(|((b, l), x)| (b + l).max(*x)).fold(0.0, f64::max)
            }
            Objective::Cut => self.cut.max(0.0),
        }
    }

    /// What it breaks: shares by which memories and the load are exceeded.
    fn broken(&self) -> f64 {
        let memory = self
            .memory
            .iter()
            .zip(&self.instance.cores.cores)
            .map(|(m, core)| if core.memory.is_finite() { (m / core.memory - 1.0 - 1e-12).max(0.0) } else { 0.0 });
        let over =
            |cap: u64| -> f64 { self.busy.iter().map(|b| b.saturating_sub(cap) as f64 / (cap.max(1)) as f64).sum() };
        memory.sum::<f64>() + self.instance.cap.map_or(0.0, over)
    }

    /// What it is worth.
    pub fn worth(&self) -> Worth {
        let uneven = match self.instance.request.objective {
            Objective::Cut => 0.0,
            _ => self.busy.iter().map(|b| (*b as f64 / self.instance.rate).powi(2)).sum(),
        };
        (self.broken(), self.objective(), uneven)
    }

    /// Whether an actor may lie on a core where the others are: its pin, and in a chain of stages its neighbours.
    pub fn allowed(&self, i: usize, q: usize) -> bool {
        let instance = self.instance;
        if instance.request.pins[i].is_some_and(|p| p != q) {
            return false;
        }
        !instance.request.acyclic || {
            let (low, high) = self.window(i);
            (low..=high).contains(&q)
        }
    }

    /// The stages between the neighbours of an actor.
    fn window(&self, i: usize) -> (usize, usize) {
        let instance = self.instance;
        let edges = |list: &'i [usize]| list.iter().map(|e| &instance.edges[*e]).filter(|e| e.waits);
        let low = edges(&instance.incoming[i]).map(|e| self.core_of[e.from]).max().unwrap_or(0);
        let high = edges(&instance.outgoing[i]).map(|e| self.core_of[e.to]).min().unwrap_or(instance.k - 1);
        (low, high)
    }

    /// Cores worth trying: those of neighbours, those next to it, the emptiest.
    fn candidates(&self, i: usize, emptiest: &[usize], out: &mut Vec<usize>) {
        let instance = self.instance;
        out.clear();
        let p = self.core_of[i];
        out.extend(instance.outgoing[i].iter().map(|e| self.core_of[instance.edges[*e].to]));
        out.extend(instance.incoming[i].iter().map(|e| self.core_of[instance.edges[*e].from]));
        out.extend([p.saturating_sub(1), (p + 1).min(instance.k - 1)]);
        if instance.request.acyclic {
            let (low, high) = self.window(i);
            out.extend(emptiest.iter().copied().filter(|q| (low..=high).contains(q)).take(4));
        } else {
            out.extend(emptiest.iter().copied().take(4));
        }
        out.sort_unstable();
        out.dedup();
        out.retain(|q| *q != p && self.allowed(i, *q));
    }

    fn emptiest(&self) -> Vec<usize> {
        let mut cores: Vec<usize> = (0..self.instance.k).collect();
        cores.sort_by_key(|p| self.busy[*p]);
        cores
    }
}

fn less(a: Worth, b: Worth) -> bool {
    const EPS: f64 = 1e-12;
    let below = |x: f64, y: f64| x < y - EPS * y.abs();
    let equal = |x: f64, y: f64| (x - y).abs() <= EPS * x.abs().max(y.abs());
    below(a.0, b.0) || equal(a.0, b.0) && (below(a.1, b.1) || equal(a.1, b.1) && below(a.2, b.2))
}

/// The better of two assignments.
pub fn better(a: &Assignment, b: &Assignment) -> bool {
    less(a.worth(), b.worth())
}

/// Improves `start` until no pass brings anything or the time is over.
pub fn refine<'i, 'g>(start: Assignment<'i, 'g>, until: Instant) -> Assignment<'i, 'g> {
    let mut best = start;
    loop {
        let before = best.worth();
        best = level(best, until);
        best = pass(best, until);
        if !less(best.worth(), before) || Instant::now() >= until {
            return best;
        }
    }
}

/// One move, or two at once: actor and core.
type Moves = [Option<(usize, usize)>; 2];

/// Takes actors off the fullest core, one move or swap after another.
fn level<'i, 'g>(mut at: Assignment<'i, 'g>, until: Instant) -> Assignment<'i, 'g> {
    let instance = at.instance;
    if instance.request.objective == Objective::Cut {
        return at;
    }
    for _ in 0..4 * instance.n {
        if Instant::now() >= until {
            break;
        }
        let Some(worst) = (0..instance.k).max_by_key(|p| (at.busy[*p], std::cmp::Reverse(*p))) else { break };
        let now = at.worth();
        let there: Vec<usize> = (0..instance.n).filter(|i| at.core_of[*i] == worst).collect();
        let emptiest = at.emptiest();
        let mut best: Option<(Worth, Moves)> = None;
        let keep = |worth: Worth, moves: Moves, best: &mut Option<(Worth, Moves)>| {
            if less(worth, now) && best.as_ref().is_none_or(|(w, _)| less(worth, *w)) {
                *best = Some((worth, moves));
            }
        };
        for &i in &there {
            for &q in emptiest.iter().filter(|q| **q != worst) {
                if at.busy[q] + instance.on(i, q) >= at.busy[worst] || !at.allowed(i, q) {
                    continue;
                }
                at.apply(i, q);
                keep(at.worth(), [Some((i, q)), None], &mut best);
                at.apply(i, worst);
            }
        }
        if best.is_none() && there.len() * instance.n <= 4_000_000 {
            for &i in &there {
                for j in (0..instance.n).filter(|j| at.core_of[*j] != worst).collect::<Vec<_>>() {
                    let q = at.core_of[j];
                    let (out, inn) = (instance.on(i, worst), instance.on(j, worst));
                    if inn >= out || at.busy[q] - instance.on(j, q) + instance.on(i, q) >= at.busy[worst] {
                        continue;
                    }
                    for moves in [[(i, q), (j, worst)], [(j, worst), (i, q)]] {
                        let [first, second] = moves;
                        if !at.allowed(first.0, first.1) {
                            continue;
                        }
                        let back = at.core_of[first.0];
                        at.apply(first.0, first.1);
                        if at.allowed(second.0, second.1) {
                            let home = at.core_of[second.0];
                            at.apply(second.0, second.1);
                            keep(at.worth(), [Some(first), Some(second)], &mut best);
                            at.apply(second.0, home);
                            at.apply(first.0, back);
                            break;
                        }
                        at.apply(first.0, back);
                    }
                }
                if best.is_some() {
                    break;
                }
            }
        }
        let Some((_, moves)) = best else { break };
        moves.into_iter().flatten().for_each(|(i, q)| at.apply(i, q));
    }
    at
}

/// One pass of Fiduccia and Mattheyses: every actor moves at most once, the best first even where it costs something; kept is the best
/// point on the way.
fn pass<'i, 'g>(mut at: Assignment<'i, 'g>, until: Instant) -> Assignment<'i, 'g> {
    let instance = at.instance;
    let mut best = at.worth();
    let mut moves: Vec<(usize, usize)> = Vec::new();
    let mut kept = 0;
    let mut locked = vec![false; instance.n];
    let mut queue: Vec<usize> = (0..instance.n).collect();
    let mut gain: Vec<Option<(Worth, usize)>> = vec![None; instance.n];
    let mut candidates = Vec::new();
    // A pass that found nothing better for so long will not.
    let patience = 50 + instance.n / 20;
    while Instant::now() < until && moves.len() < kept + patience {
        let emptiest = at.emptiest();
        for i in queue.drain(..) {
            gain[i] = None;
            if locked[i] {
                continue;
            }
            let home = at.core_of[i];
            at.candidates(i, &emptiest, &mut candidates);
            for &q in &candidates {
                at.apply(i, q);
                let worth = at.worth();
                if gain[i].is_none_or(|(w, _)| less(worth, w)) {
                    gain[i] = Some((worth, q));
                }
                at.apply(i, home);
            }
        }
        let mut chosen: Option<(Worth, usize, usize)> = None;
        for (i, g) in gain.iter().enumerate() {
            if let Some((worth, q)) = g
                && !locked[i]
                && chosen.is_none_or(|(w, ..)| less(*worth, w))
                && at.allowed(i, *q)
            {
                chosen = Some((*worth, i, *q));
            }
        }
        let Some((_, i, q)) = chosen else { break };
        moves.push((i, at.core_of[i]));
        at.apply(i, q);
        locked[i] = true;
        gain[i] = None;
        let worth = at.worth();
        if less(worth, best) {
            best = worth;
            kept = moves.len();
        }
        let touching = instance.outgoing[i].iter().chain(&instance.incoming[i]);
        queue.extend(touching.map(|e| &instance.edges[*e]).map(|e| if e.from == i { e.to } else { e.from }));
    }
    for (i, home) in moves.drain(kept..).rev() {
        at.apply(i, home);
    }
    at
}
