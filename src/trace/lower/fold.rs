//! Repeated layers: the longest stretch of kernels that follows itself, in the forward pass and in the backward pass,
//! becomes one layer with `repeat`.
//!
//! Kernels are compared by what they do (operation, sizes, FLOP, the slots and sizes of what they read and write; not by measured times); the stretch that
//! explains most FLOP wins, the shorter of equals. Where it may begin at several kernels it begins where the fewest bytes pass from
//! one layer to the next. Then the connections are compared: every layer must read the same results of itself, of the layer before
//! (forward) or after (backward), and of its own forward pass. A stretch that fails this is not folded, and the reason is given.

use crate::graph::WeightOf;
use crate::graph::{Kernel, Phase, Slot, Tensor, Use, Workload};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What folding found, and what it leaves out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Folded {
    /// Layers.
    pub layers: u64,
    /// Kernels of a layer.
    pub kernels: usize,
    /// FLOP of a sample in all layers.
    pub flop: f64,
    /// FLOP of a sample in kernels before, after and between the layers, which the folded graph does not have.
    pub outside_flop: f64,
    /// Those kernels, most FLOP first: name and FLOP of a sample.
    pub outside: Vec<(String, f64)>,
    /// Weights of products outside: elements.
    pub outside_weights: f64,
}

/// Longest sequence searched: the search is quadratic.
const MOST_KERNELS: usize = 20_000;

/// Folds an unfolded graph whose kernels are in the order they ran.
///
/// # Errors
/// Why there is no layer to fold.
pub fn fold(whole: &Workload) -> Result<(Workload, Folded), String> {
    if whole.kernels.len() > MOST_KERNELS {
        return Err(format!(
            "{} kernels are more than the {MOST_KERNELS} that are searched for layers",
            whole.kernels.len()
        ));
    }
    let signatures = signatures(whole);
    let forward: Vec<usize> = (0..whole.kernels.len()).filter(|k| whole.kernels[*k].phase == Phase::Forward).collect();
    let backward: Vec<usize> = (0..whole.kernels.len()).filter(|k| whole.kernels[*k].phase != Phase::Forward).collect();
    let stretches = periods(whole, &forward, &signatures);
    let forward_flop: f64 = forward.iter().map(|k| whole.kernels[*k].flop()).sum();
    let mut reason = match stretches.first() {
        None => return Err("no stretch of kernels of the forward pass follows itself".into()),
        Some(s) if s.flop < LEAST_SHARE * forward_flop => {
            let share = 100.0 * s.flop / forward_flop.max(1.0);
            return Err(format!(
                "the longest stretch that follows itself holds {share:.1} % of the FLOP of the forward pass"
            ));
        }
        Some(_) => String::new(),
    };
    let back = periods(whole, &backward, &signatures);
    let worth: Vec<Stretch> = stretches.into_iter().filter(|s| s.flop >= LEAST_SHARE * forward_flop).take(20).collect();
    // The first or last layer may differ (no gradient of the input, another activation): then one or two fewer are folded.
    for stretch in (0..3)
        .flat_map(|fewer| worth.iter().filter_map(move |s| s.with(s.count.checked_sub(fewer)?)))
        .collect::<Vec<_>>()
        .iter()
    {
        for start in starts(whole, &forward, stretch) {
            let layers: Vec<Vec<usize>> =
                (0..stretch.count).map(|j| forward[start + j * stretch.period..][..stretch.period].to_vec()).collect();
            if backward.is_empty() {
                match assemble(whole, &layers, &[]) {
                    Ok(done) => return Ok(done),
                    Err(why) => keep_first(&mut reason, why),
                }
                continue;
            }
            for b in back.iter().filter(|b| b.count >= stretch.count).take(20) {
                let last = b.start + b.run + b.period;
                for from in b.start..=(last - stretch.count * b.period) {
                    let mut behind: Vec<Vec<usize>> =
                        (0..stretch.count).map(|j| backward[from + j * b.period..][..b.period].to_vec()).collect();
                    behind.reverse();
                    if !belong(whole, &layers, &behind) {
                        keep_first(
                            &mut reason,
                            "no stretch of the backward pass belongs to the layers of the forward pass".into(),
                        );
                        continue;
                    }
                    match assemble(whole, &layers, &behind) {
                        Ok(done) => return Ok(done),
                        Err(why) => keep_first(&mut reason, why),
                    }
                }
            }
            if reason.is_empty() {
                reason = format!("the backward pass does not repeat {} times as the forward pass does", stretch.count);
            }
        }
    }
    Err(reason)
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

impl Stretch {
    /// The same stretch with so many layers, at least two.
    fn with(&self, count: usize) -> Option<Self> {
        (count >= 2).then(|| Self { count, ..self.clone() })
    }
}

/// Bytes of an element as a number that can be compared: 0 for those of the graph.
fn bits(word: Option<f64>) -> u64 {
    word.map_or(0, f64::to_bits)
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
        for u in &t.consumers {
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

/// Stretches that follow themselves, most FLOP first, then the shortest period.
fn periods(whole: &Workload, order: &[usize], signatures: &[usize]) -> Vec<Stretch> {
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
            if run >= period {
                let start = i - run;
                let count = (run + period) / period;
                let flop = sums[start + count * period] - sums[start];
                found.push(Stretch { start, period, run, count, flop });
            }
            run = 0;
        }
    }
    found.sort_by(|a, b| {
        let near = (a.flop - b.flop).abs() <= 0.02 * a.flop.max(b.flop);
        let by_flop = if near { std::cmp::Ordering::Equal } else { b.flop.total_cmp(&a.flop) };
        by_flop.then(a.period.cmp(&b.period)).then(a.start.cmp(&b.start))
    });
    found
}

/// Where the layers of a stretch may begin, the cheapest cut first.
fn starts(whole: &Workload, order: &[usize], stretch: &Stretch) -> Vec<usize> {
    let place: HashMap<usize, usize> = order.iter().enumerate().map(|(i, k)| (*k, i)).collect();
    let slack = stretch.run + stretch.period - stretch.count * stretch.period;
    let cut = |start: usize| -> f64 {
        let at = start + stretch.period;
        whole
            .tensors
            .iter()
            .filter(|t| {
                let made = t.producer.and_then(|p| place.get(&p)).is_some_and(|p| *p < at && *p >= start);
                made && t.consumers.iter().any(|u| place.get(&u.kernel).is_some_and(|c| *c >= at))
            })
            .map(|t| t.rows as f64 * t.cols as f64)
            .sum()
    };
    let mut all: Vec<(usize, f64)> = (stretch.start..=stretch.start + slack).map(|s| (s, cut(s))).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    all.into_iter().map(|(s, _)| s).take(32).collect()
}

/// Whether each backward stretch uses weights of its own layer only.
fn belong(whole: &Workload, layers: &[Vec<usize>], behind: &[Vec<usize>]) -> bool {
    layers
        .iter()
        .zip(behind)
        .all(|(layer, back)| back.iter().all(|k| whole.kernels[*k].weight_of.is_none_or(|w| layer.contains(&w.kernel))))
}

/// Where an operand of a layer's kernel comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// Kernel of the same layer, and which of its results.
    Same(usize, usize),
    /// Kernel of the neighbour: the layer before in the forward pass, behind in the backward pass.
    Neighbour(usize, usize),
    /// Anything else: rows, columns, and bytes of an element that are not the graph's (as bits; 0 for none).
    Outside(u64, u64, u64),
}

type Edges = BTreeSet<(usize, Source, Slot)>;

/// Compares the connections of the layers and makes one of them the folded graph.
fn assemble(whole: &Workload, forward: &[Vec<usize>], backward: &[Vec<usize>]) -> Result<(Workload, Folded), String> {
    let count = forward.len();
    let width = forward.first().map_or(0, Vec::len);
    let all: Vec<Vec<usize>> =
        (0..count).map(|j| forward[j].iter().chain(backward.get(j).into_iter().flatten()).copied().collect()).collect();
    let size = all.first().map_or(0, Vec::len);
    // Kernel -> (layer, position).
    let place: HashMap<usize, (usize, usize)> =
        all.iter().enumerate().flat_map(|(j, l)| l.iter().enumerate().map(move |(p, k)| (*k, (j, p)))).collect();
    let mut results: HashMap<usize, Vec<usize>> = HashMap::new();
    for (i, t) in whole.tensors.iter().enumerate() {
        if let Some(p) = t.producer {
            results.entry(p).or_default().push(i);
        }
    }
    let edges_of = |layer: usize| -> Edges {
        let mut edges = Edges::new();
        for (i, t) in whole.tensors.iter().enumerate() {
            for u in &t.consumers {
                let Some((_, at)) = place.get(&u.kernel).filter(|(j, _)| *j == layer) else { continue };
                let in_forward = *at < width;
                let from = match t.producer.and_then(|p| place.get(&p).map(|x| (p, *x))) {
                    Some((p, (j, from))) => {
                        let which = results.get(&p).and_then(|r| r.iter().position(|x| *x == i)).unwrap_or(0);
                        // What the layer before made in the forward pass (read in both), or the one behind in the backward pass.
                        let neighbour = if from < width { j + 1 == layer } else { !in_forward && j == layer + 1 };
                        if j == layer {
                            Source::Same(from, which)
                        } else if neighbour {
                            Source::Neighbour(from, which)
                        } else {
                            Source::Outside(t.rows, t.cols, bits(t.word))
                        }
                    }
                    None => Source::Outside(t.rows, t.cols, bits(t.word)),
                };
                edges.insert((*at, from, u.slot));
            }
        }
        edges
    };
    let edges: Vec<Edges> = (0..count).map(edges_of).collect();
    // The first layer has no neighbour in the forward pass, the last none in the backward pass.
    let f = 1.min(count - 1);
    let kind = |layer: usize, wanted: fn(&Source, usize) -> bool| -> Edges {
        edges[layer].iter().filter(|(_, from, _)| wanted(from, width)).cloned().collect()
    };
    let same: fn(&Source, usize) -> bool = |from, _| matches!(from, Source::Same(..));
    let ahead: fn(&Source, usize) -> bool = |from, width| matches!(from, Source::Neighbour(p, _) if *p < width);
    let behind: fn(&Source, usize) -> bool = |from, width| matches!(from, Source::Neighbour(p, _) if *p >= width);
    let other: fn(&Source, usize) -> bool = |from, _| matches!(from, Source::Outside(..));
    for layer in 0..count {
        let differs = kind(layer, same) != kind(f, same)
            || (layer > 0 && kind(layer, ahead) != kind(f, ahead))
            || (layer + 1 < count && kind(layer, behind) != kind(0, behind))
            || (layer > 0 && layer + 1 < count && kind(layer, other) != kind(f.min(count.saturating_sub(2)), other));
        if differs {
            return Err(format!("layer {layer} of {count} has the kernels of the others, but reads other tensors"));
        }
    }
    let shared: Edges =
        (0..count).map(|j| kind(j, other)).reduce(|a, b| a.intersection(&b).cloned().collect()).unwrap_or_default();
    let names = names(whole, &all[f]);
    let mut kernels = Vec::with_capacity(size);
    for (at, k) in all[f].iter().enumerate() {
        let kernel = &whole.kernels[*k];
        let weight_of = match kernel.weight_of {
            Some(w) => match place.get(&w.kernel) {
                Some((j, owner)) if *j == f => Some(WeightOf { kernel: *owner }),
                _ => return Err(format!("kernel {} uses the weight of another layer", kernel.name)),
            },
            None => None,
        };
        // Measured, so never quite equal: the mean of the layers.
        let extra_dram_bytes =
            all.iter().filter_map(|l| l.get(at)).map(|k| whole.kernels[*k].extra_dram_bytes).sum::<f64>()
                / count as f64;
        kernels.push(Kernel { name: names[at].clone(), weight_of, extra_dram_bytes, ..kernel.clone() });
    }
    let mut merged: Edges = kind(f, same);
    merged.extend(kind(f, ahead));
    merged.extend(kind(0, behind));
    merged.extend(shared);
    let mut tensors: Vec<Tensor> = Vec::new();
    let mut made: HashMap<(usize, usize), usize> = HashMap::new();
    for (at, k) in all[f].iter().enumerate() {
        let own = results.get(k).cloned().unwrap_or_default();
        for (which, i) in own.iter().enumerate() {
            let t = &whole.tensors[*i];
            let suffix = if own.len() > 1 { format!(".{which}") } else { String::new() };
            // Read outside its layer, in any of the layers.
            let leaves = all.iter().enumerate().any(|(j, l)| {
                results.get(&l[at]).and_then(|r| r.get(which)).is_some_and(|i| {
                    let t = &whole.tensors[*i];
                    t.output || t.consumers.iter().any(|u| place.get(&u.kernel).is_none_or(|(other, _)| *other != j))
                })
            });
            made.insert((at, which), tensors.len());
            let name = format!("{}.out{suffix}", names[at]);
            tensors.push(Tensor { output: leaves, word: t.word, ..Tensor::new(name, t.rows, t.cols, Some(at)) });
        }
    }
    let mut carried: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut outside: BTreeMap<(u64, u64, u64), usize> = BTreeMap::new();
    for (at, from, slot) in merged {
        let tensor = match from {
            Source::Same(p, which) => made.get(&(p, which)).copied(),
            Source::Neighbour(p, which) => {
                let Some(source) = made.get(&(p, which)).copied() else { continue };
                let next = tensors.len();
                let entry = *carried.entry((p, which)).or_insert(next);
                if entry == next {
                    let t = &tensors[source];
                    let name = if p < width { "layer.in" } else { "layer.grad_in" };
                    let copy = Tensor::new(format!("{name}.{}", names[p]), t.rows, t.cols, None);
                    let copy = Tensor { carried_from: Some(source), word: t.word, ..copy };
                    tensors[source].output = true;
                    tensors.push(copy);
                }
                Some(entry)
            }
            Source::Outside(rows, cols, word) => {
                let next = tensors.len();
                let entry = *outside.entry((rows, cols, word)).or_insert(next);
                if entry == next {
                    let word = (word != 0).then(|| f64::from_bits(word));
                    let name = format!("outside.{}", outside.len());
                    tensors.push(Tensor { word, ..Tensor::new(name, rows, cols, None) });
                }
                Some(entry)
            }
        };
        if let Some(t) = tensor.and_then(|t| tensors.get_mut(t)) {
            t.consumers.push(Use { kernel: at, slot });
        }
    }
    let layer_flop: f64 = kernels.iter().map(Kernel::flop).sum();
    let mut left: Vec<(String, f64)> = Vec::new();
    let mut outside_weights = 0.0;
    for (i, k) in whole.kernels.iter().enumerate().filter(|(i, _)| !place.contains_key(i)) {
        let _ = i;
        left.push((k.name.clone(), k.flop()));
        if k.owns_weight() {
            outside_weights += k.weight_elements();
        }
    }
    left.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let folded = Folded {
        layers: count as u64,
        kernels: size,
        flop: layer_flop * count as f64,
        outside_flop: left.iter().map(|(_, f)| f).sum(),
        outside: left,
        outside_weights,
    };
    let workload = Workload { kernels, tensors, repeat: count as u64, ..whole.clone() };
    let checked =
        workload.checked().map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    Ok((checked, folded))
}

/// Names of a layer's kernels: the operator, numbered where it stands more than once.
fn names(whole: &Workload, layer: &[usize]) -> Vec<String> {
    let base = |k: &usize| {
        let kernel = &whole.kernels[*k];
        let plain: String = kernel.name.split('_').filter(|w| w.parse::<u64>().is_err()).collect::<Vec<_>>().join("_");
        match kernel.phase {
            Phase::BackwardWeight => format!("{plain}_update"),
            Phase::BackwardInput if !plain.contains("backward") => format!("{plain}_backward"),
            _ => plain,
        }
    };
    let mut totals: HashMap<String, usize> = HashMap::new();
    layer.iter().for_each(|k| *totals.entry(base(k)).or_insert(0) += 1);
    let mut seen: HashMap<String, usize> = HashMap::new();
    layer
        .iter()
        .map(|k| {
            let name = base(k);
            let n = seen.entry(name.clone()).or_insert(0);
            *n += 1;
            if totals.get(&name).copied().unwrap_or(1) > 1 { format!("{name}.{n}") } else { name }
        })
        .collect()
}
