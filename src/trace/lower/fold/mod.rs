//! Repeated layers: the longest stretch of kernels that follows itself, in the forward pass and in the backward pass,
//! becomes one layer with `repeat`.
//!
//! Kernels are compared by what they do (operation, sizes, FLOP, the slots and sizes of what they read and write; not by measured times); the stretch that
//! explains most FLOP wins, the shorter of equals. Where it may begin at several kernels it begins where the fewest bytes pass from
//! one layer to the next, and with one layer fewer where it would otherwise begin inside a layer of another kind (`bordered`). Then the connections are compared: every layer must read the same results of itself, of the layer before
//! (forward) or after (backward), and of its own forward pass. A stretch that fails this is not folded, and the reason is given. At both ends layers
//! are added that differ a little from the others (`align`). Where a layer of another kind stands between stretches of the same layer, all of them
//! become a chain of blocks (`chain`).

mod align;
mod assemble;
mod chain;

use crate::graph::{Phase, Slot, Tensor, Workload};
use assemble::{Layers, assemble};
use serde::Serialize;
use std::collections::HashMap;

/// What folding found, and what it leaves out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Folded {
    /// Layers.
    pub layers: u64,
    /// Kernels of a layer.
    pub kernels: usize,
    /// FLOP of a sample in all layers, as if all were whole.
    pub flop: f64,
    /// FLOP of a sample of these that the first or the last layer lacks in the recording.
    pub lacking_flop: f64,
    /// FLOP of a sample in kernels before, after and between the layers, which the folded graph does not have.
    pub outside_flop: f64,
    /// Those kernels, most FLOP first: name and FLOP of a sample.
    pub outside: Vec<(String, f64)>,
    /// Weights of products outside: elements.
    pub outside_weights: f64,
    /// The blocks of a chain, in the order of the forward pass; none where all layers are alike.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<FoldedBlock>,
}

/// A block of a folded chain: layers that follow each other, or what stands between two stretches of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoldedBlock {
    /// Its name.
    pub name: String,
    /// Repetitions.
    pub repeat: u64,
    /// Kernels of one.
    pub kernels: usize,
}

/// Longest sequence searched: the search is quadratic.
const MOST_KERNELS: usize = 20_000;

/// Folds an unfolded graph whose kernels are in the order they ran; `chain` lets layers that do not all follow each other become several blocks.
///
/// # Errors
/// Why there is no layer to fold.
pub fn fold(whole: &Workload, chain: bool) -> Result<(Workload, Folded), String> {
    if whole.kernels.len() > MOST_KERNELS {
        return Err(format!(
            "{} kernels are more than the {MOST_KERNELS} that are searched for layers",
            whole.kernels.len()
        ));
    }
    let signatures = signatures(whole);
    let of = |forward: bool| -> Vec<usize> {
        (0..whole.kernels.len()).filter(|k| (whole.kernels[*k].phase == Phase::Forward) == forward).collect()
    };
    let search = Search { whole, forward: of(true), backward: of(false), signatures };
    let mut reason = String::new();
    // Whole layers first; then models of so few layers that only one is whole.
    for least in [1.0, LEAST_RUN] {
        let found = match search.passes(least, &mut reason) {
            Some(layers) => search.extended(layers),
            None => continue,
        };
        let blocks = if chain { chain::chained(&search, &found) } else { None };
        return blocks.map_or_else(|| assemble(whole, &found), Ok);
    }
    Err(reason)
}

struct Search<'a> {
    whole: &'a Workload,
    /// Kernels of the forward pass in their order.
    forward: Vec<usize>,
    /// The others.
    backward: Vec<usize>,
    /// What each kernel does.
    signatures: Vec<usize>,
}

impl Search<'_> {
    /// Layers that are alike, all of them whole; where stretches need not follow themselves whole (`least` below 1), one that the next to it continues.
    fn passes(&self, least: f64, reason: &mut String) -> Option<Layers> {
        let (whole, forward, backward) = (self.whole, &self.forward, &self.backward);
        let stretches = periods(whole, forward, &self.signatures, least);
        let forward_flop: f64 = forward.iter().map(|k| whole.kernels[*k].flop()).sum();
        match stretches.first() {
            None => {
                keep_first(reason, "no stretch of kernels of the forward pass follows itself".into());
                return None;
            }
            Some(s) if s.flop < LEAST_SHARE * forward_flop => {
                let share = 100.0 * s.flop / forward_flop.max(1.0);
                let why = format!(
                    "the longest stretch that follows itself holds {share:.1} % of the FLOP of the forward pass"
                );
                keep_first(reason, why);
                return None;
            }
            Some(_) => {}
        }
        let back = periods(whole, backward, &self.signatures, least);
        let heavy = stretches.into_iter().filter(|s| s.flop >= LEAST_SHARE * forward_flop).take(20);
        let worth: Vec<Stretch> = heavy.flat_map(|s| self.bordered(&s).into_iter().chain([s])).collect();
        let single = least < 1.0;
        let mut tries = if single { MOST_TRIES / 5 } else { MOST_TRIES };
        let mut fits = |layers: Layers, reason: &mut String| -> Option<Layers> {
            tries = tries.checked_sub(1)?;
            let layers = if single { Some(self.extended(layers)).filter(|l| l.count() > 1)? } else { layers };
            match self.both(&layers).and_then(|()| assemble(whole, &layers)) {
                Ok(_) => Some(layers),
                Err(why) => {
                    keep_first(reason, why);
                    None
                }
            }
        };
        // The first or last layer may differ (no gradient of the input, another activation): then one or two fewer are folded.
        let counts = |s: &Stretch| -> Vec<usize> {
            if single { vec![1] } else { (0..3).filter_map(|n| s.count.checked_sub(n)).filter(|n| *n > 1).collect() }
        };
        for stretch in &worth {
            for count in counts(stretch) {
                // Of fewer layers than follow each other the most that those at the ends can be added to.
                let mut best: Option<Layers> = None;
                let mut keep = |layers: Layers| -> bool {
                    let layers = if count < stretch.count { self.extended(layers) } else { layers };
                    let enough = layers.count() >= stretch.count;
                    if best.as_ref().is_none_or(|b| layers.count() > b.count()) {
                        best = Some(layers);
                    }
                    enough
                };
                'starts: for start in starts(whole, forward, stretch, count).into_iter().take(32) {
                    let layers: Vec<Vec<usize>> =
                        (0..count).map(|j| forward[start + j * stretch.period..][..stretch.period].to_vec()).collect();
                    if backward.is_empty() {
                        if fits(Layers::new(&layers, &[]), reason).is_some_and(&mut keep) {
                            break 'starts;
                        }
                        continue;
                    }
                    for b in back.iter().filter(|b| b.count >= count).take(20) {
                        for from in starts(whole, backward, b, count) {
                            let mut behind: Vec<Vec<usize>> =
                                (0..count).map(|j| backward[from + j * b.period..][..b.period].to_vec()).collect();
                            behind.reverse();
                            if !belong(whole, &layers, &behind) {
                                keep_first(
                                    reason,
                                    "no stretch of the backward pass belongs to the layers of the forward pass".into(),
                                );
                                continue;
                            }
                            if fits(Layers::new(&layers, &behind), reason).is_some_and(&mut keep) {
                                break 'starts;
                            }
                        }
                    }
                    if reason.is_empty() {
                        *reason = format!("the backward pass does not repeat {count} times as the forward pass does");
                    }
                }
                if best.is_some() {
                    return best;
                }
            }
        }
        None
    }

    /// The stretch with one layer fewer, where that is what its layers are: between two layers of another kind that begin and end as the others do, the end of
    /// the one, the layers, and the beginning of the other follow themselves once more often than the layers. Told by two things: between these layers fewer
    /// elements pass, and what is left over at an end is the end of a layer whose beginning stands further ahead, or the beginning of one that ends further behind.
    fn bordered(&self, stretch: &Stretch) -> Option<Stretch> {
        let (count, w) = (stretch.count.checked_sub(1).filter(|n| *n > 1)?, stretch.period);
        let cheapest = |count| cuts(self.whole, &self.forward, stretch, count).first().copied();
        let ((start, least), (_, most)) = (cheapest(count)?, cheapest(stretch.count)?);
        if least >= most {
            return None;
        }
        let end = stretch.start + stretch.run + w;
        let signatures = |kernels: &[usize]| kernels.iter().map(|k| self.signatures[*k]).collect::<Vec<usize>>();
        let layer = self.forward.get(start..start + w)?;
        let flop = |kernels: &[usize]| kernels.iter().map(|k| self.whole.kernels[*k].flop()).sum::<f64>();
        let of_layer = flop(layer);
        let stands_in = |rest: Option<&[usize]>, place: Option<&[usize]>| -> bool {
            let (Some(rest), Some(place)) = (rest.filter(|r| flop(r) > align::LIGHT * of_layer), place) else {
                return false;
            };
            let (rest, place) = (signatures(rest), signatures(place));
            place.windows(rest.len()).any(|window| window == rest)
        };
        let (front, back) = (start - stretch.start, end - (start + count * w));
        let told = stands_in(layer.get(..w.saturating_sub(front)), self.forward.get(..stretch.start))
            || stands_in(layer.get(back..), self.forward.get(end..));
        let flop = flop(self.forward.get(start..start + count * w)?);
        told.then_some(Stretch { start, period: w, run: (count - 1) * w, count, flop })
    }

    /// Whether the layers hold about as much of the backward pass as of the forward pass: where no weight tells what belongs together, kernels of another part of
    /// the model may repeat as often.
    fn both(&self, layers: &Layers) -> Result<(), String> {
        let flop = |kernels: &[usize]| kernels.iter().fold(0.0, |sum, k| sum + self.whole.kernels[*k].flop());
        let share = |part: &[usize], all: f64| if all > 0.0 { flop(part) / all } else { 1.0 };
        let forward = share(&layers.of(0..layers.width), flop(&self.forward));
        let backward = share(&layers.of(layers.width..usize::MAX), flop(&self.backward));
        if self.backward.is_empty() || backward >= LEAST_BEHIND * forward {
            return Ok(());
        }
        Err(format!(
            "what repeats {} times in both passes holds {:.1} % of the FLOP of the forward pass, but {:.1} % of the backward pass",
            layers.count(),
            100.0 * forward,
            100.0 * backward
        ))
    }

    /// With the layers at both ends that differ a little from the others.
    fn extended(&self, layers: Layers) -> Layers {
        self.extended_at(self.extended_at(layers, true), false)
    }

    /// The same at one end: ahead of the first, or behind the last.
    fn extended_at(&self, mut layers: Layers, ahead: bool) -> Layers {
        while let Some(more) =
            align::extended(self.whole, &self.signatures, (&self.forward, &self.backward), &layers, ahead)
                .filter(|more| assemble(self.whole, more).is_ok())
        {
            layers = more;
        }
        layers
    }
}

fn keep_first(reason: &mut String, why: String) {
    if reason.is_empty() {
        *reason = why;
    }
}

/// A run: `run` kernels equal those a period later.
#[derive(Debug, Clone, PartialEq)]
struct Stretch {
    start: usize,
    period: usize,
    run: usize,
    count: usize,
    flop: f64,
}

/// Least share of the forward pass that is worth folding.
const LEAST_SHARE: f64 = 0.1;
/// Least share of a layer that another one continues, where no layer follows itself whole.
const LEAST_RUN: f64 = 0.6;
/// Least share of the backward pass in the layers, of their share of the forward pass.
const LEAST_BEHIND: f64 = 0.5;
/// Layers put together to see whether they fit: a search that finds none ends.
const MOST_TRIES: usize = 500;

/// Bytes of an element as a number that can be compared: 0 for those of the graph.
fn bits(word: Option<f64>) -> u64 {
    word.map_or(0, f64::to_bits)
}

/// Whether a tensor is one number. Recorders give numbers the storages of whatever was freed, so that who made one tells nothing.
fn is_scalar(t: &Tensor) -> bool {
    t.rows.saturating_mul(t.cols) <= 1
}

/// Numbers that are equal for kernels that do the same.
fn signatures(whole: &Workload) -> Vec<usize> {
    let mut texts: Vec<String> = whole
        .kernels
        .iter()
        .map(|k| {
            format!(
                "{:?} {:?} {:?} {} {:?}",
                k.op,
                k.phase,
                k.shape,
                k.window,
                (
                    k.flop.map(f64::to_bits),
                    bits(k.word),
                    k.collectives.iter().map(|c| (c.kind, c.scope)).collect::<Vec<_>>()
                )
            )
        })
        .collect();
    let mut reads: Vec<Vec<(Slot, u64, u64, u64)>> = vec![Vec::new(); whole.kernels.len()];
    for t in &whole.tensors {
        for u in t.consumers.iter().filter(|_| !is_scalar(t)) {
            reads[u.kernel].push((u.slot, t.rows, t.cols, bits(t.word)));
        }
        if let Some(p) = t.producer {
            texts[p].push_str(&format!(" > {} {} {}", t.rows, t.cols, bits(t.word)));
        }
    }
    let mut numbers: HashMap<String, usize> = HashMap::new();
    texts
        .into_iter()
        .zip(&mut reads)
        .map(|(text, reads)| {
            reads.sort_unstable();
            let next = numbers.len();
            *numbers.entry(format!("{text} {reads:?}")).or_insert(next)
        })
        .collect()
}

/// Stretches that follow themselves, of which at least the share `least` does so: most FLOP first, of those with about as many the shortest period.
fn periods(whole: &Workload, order: &[usize], signatures: &[usize], least: f64) -> Vec<Stretch> {
    let s: Vec<usize> = order.iter().map(|k| signatures[*k]).collect();
    let mut sums = vec![0.0];
    for k in order {
        sums.push(sums[sums.len() - 1] + whole.kernels[*k].flop());
    }
    let mut found = Vec::new();
    for period in 1..=s.len() / 2 {
        let mut run = 0;
        for i in 0..=s.len() - period {
            let equal = i + period < s.len() && s[i] == s[i + period];
            if equal {
                run += 1;
                continue;
            }
            if run > 0 && run as f64 >= least * period as f64 {
                let start = i - run;
                let count = (run + period) / period;
                let flop = sums[start + count * period] - sums[start];
                found.push(Stretch { start, period, run, count, flop });
            }
            run = 0;
        }
    }
    found.sort_by(|a, b| b.flop.total_cmp(&a.flop));
    let mut rest = found.as_mut_slice();
    while let Some(most) = rest.first().map(|s| s.flop) {
        let near = rest.iter().take_while(|s| s.flop >= 0.98 * most).count().max(1);
        let (group, others) = rest.split_at_mut(near);
        group.sort_by(|a, b| a.period.cmp(&b.period).then(a.start.cmp(&b.start)));
        rest = others;
    }
    found
}

/// Where the layers of a stretch may begin, the cheapest cut first.
fn starts(whole: &Workload, order: &[usize], stretch: &Stretch, count: usize) -> Vec<usize> {
    cuts(whole, order, stretch, count).into_iter().map(|(start, _)| start).collect()
}

/// The same with the elements that pass from a layer to what follows, fewest first.
fn cuts(whole: &Workload, order: &[usize], stretch: &Stretch, count: usize) -> Vec<(usize, f64)> {
    let place: HashMap<usize, usize> = order.iter().enumerate().map(|(i, k)| (*k, i)).collect();
    let slack = stretch.run + stretch.period - count * stretch.period;
    // What is made at p and last read at c passes every cut behind p, up to c and to the end of a layer that begins with p.
    let first = stretch.start + stretch.period;
    let mut passes = vec![0.0; slack + 2];
    for t in &whole.tensors {
        let Some(made) = t.producer.and_then(|p| place.get(&p)) else { continue };
        let Some(read) = t.consumers.iter().filter_map(|u| place.get(&u.kernel)).max() else { continue };
        let (from, to) = ((made + 1).max(first), (*read).min(made + stretch.period).min(first + slack));
        if from <= to {
            let elements = t.rows as f64 * t.cols as f64;
            passes[from - first] += elements;
            passes[to + 1 - first] -= elements;
        }
    }
    let mut sum = 0.0;
    let mut all: Vec<(usize, f64)> = Vec::with_capacity(slack + 1);
    for (at, change) in passes.iter().enumerate().take(slack + 1) {
        sum += change;
        all.push((stretch.start + at, sum));
    }
    all.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    all
}

/// Whether each backward stretch uses weights of its own layer only.
fn belong(whole: &Workload, layers: &[Vec<usize>], behind: &[Vec<usize>]) -> bool {
    layers
        .iter()
        .zip(behind)
        .all(|(layer, back)| back.iter().all(|k| whole.kernels[*k].weight_of.is_none_or(|w| layer.contains(&w.kernel))))
}
