//! The graph of one layer, made of all layers: their connections have to be the same.

use super::{Folded, bits, is_scalar};
use crate::graph::{Kernel, Phase, Slot, Tensor, Use, WeightOf, Workload};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

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

/// The kernels of the layers by their place in a layer, those of the forward pass first.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Layers {
    /// A layer each, in the order of the forward pass; `None` where one at the ends lacks what the others have.
    slots: Vec<Vec<Option<usize>>>,
    /// Kernels of the forward pass in a layer.
    pub(super) width: usize,
    /// The layers that have every kernel and no others between them.
    full: Range<usize>,
    /// Kernels more than the others, of the layers at the ends.
    more: usize,
}

impl Layers {
    pub(super) fn new(forward: &[Vec<usize>], backward: &[Vec<usize>]) -> Self {
        let slots = forward
            .iter()
            .enumerate()
            .map(|(j, layer)| layer.iter().chain(backward.get(j).into_iter().flatten()).copied().map(Some).collect())
            .collect();
        let width = forward.first().map_or(0, Vec::len);
        Self { slots, width, full: 0..forward.len(), more: 0 }
    }

    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// The layer that the folded graph is made of: a whole one, with one before it if there is such a one.
    fn typical(&self) -> usize {
        (self.full.start + 1).min(self.full.end.saturating_sub(1))
    }

    /// Kernels of a whole layer.
    pub(super) fn template(&self) -> Option<Vec<usize>> {
        self.slots.get(self.typical())?.iter().copied().collect()
    }

    /// The kernels at some places of all layers.
    pub(super) fn of(&self, places: Range<usize>) -> Vec<usize> {
        self.slots.iter().flat_map(|l| l.iter().take(places.end).skip(places.start).flatten().copied()).collect()
    }

    /// The first layer or the last: its kernels by their places.
    pub(super) fn end(&self, last: bool) -> &[Option<usize>] {
        let layer = if last { self.slots.last() } else { self.slots.first() };
        layer.map_or(&[], Vec::as_slice)
    }

    /// These layers and one more, ahead of the first or behind the last.
    pub(super) fn with(&self, slots: Vec<Option<usize>>, more: usize, ahead: bool) -> Self {
        let mut out = self.clone();
        out.more += more;
        let whole = more == 0 && slots.iter().all(Option::is_some);
        if ahead {
            out.slots.insert(0, slots);
            let start = if whole && self.full.start == 0 { 0 } else { self.full.start + 1 };
            out.full = start..self.full.end + 1;
        } else {
            out.slots.push(slots);
            out.full.end += usize::from(whole && self.full.end == self.slots.len());
        }
        out
    }

    /// Kernels that layers at the ends lack.
    fn missing(&self) -> usize {
        self.slots.iter().flatten().filter(|s| s.is_none()).count()
    }
}

/// What the kernels of each layer read.
fn edges(
    whole: &Workload,
    layers: &Layers,
    place: &HashMap<usize, (usize, usize)>,
    results: &HashMap<usize, Vec<usize>>,
) -> Vec<Edges> {
    let mut edges = vec![Edges::new(); layers.count()];
    let reads_more: HashSet<usize> =
        whole.tensors.iter().filter(|t| !is_scalar(t)).flat_map(|t| t.consumers.iter().map(|u| u.kernel)).collect();
    for (i, t) in whole.tensors.iter().enumerate() {
        let maker = t.producer.and_then(|p| place.get(&p).map(|x| (p, *x)));
        for u in t.consumers.iter().filter(|u| !(is_scalar(t) && reads_more.contains(&u.kernel))) {
            let Some((layer, at)) = place.get(&u.kernel).copied() else { continue };
            let outside = Source::Outside(t.rows, t.cols, bits(t.word));
            let from = match maker {
                Some((p, (j, from))) => {
                    let which = results.get(&p).and_then(|r| r.iter().position(|x| *x == i)).unwrap_or(0);
                    // What the layer before made in the forward pass (read in both), or the one behind in the backward pass.
                    let neighbour =
                        if from < layers.width { j + 1 == layer } else { at >= layers.width && j == layer + 1 };
                    if j == layer {
                        Source::Same(from, which)
                    } else if neighbour {
                        Source::Neighbour(from, which)
                    } else {
                        outside
                    }
                }
                None => outside,
            };
            if let Some(list) = edges.get_mut(layer) {
                list.insert((at, from, u.slot));
            }
        }
    }
    edges
}

/// Compares the connections of the layers and makes one of them the folded graph.
pub(super) fn assemble(whole: &Workload, layers: &Layers) -> Result<(Workload, Folded), String> {
    let (workload, folded) = layer(whole, layers)?;
    let checked =
        workload.checked().map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    Ok((checked, folded))
}

/// Kernels of the recording that are not among some, most FLOP first, with FLOP of a sample; and elements of weights of products among them.
pub(super) fn outside(whole: &Workload, inside: impl Fn(usize) -> bool) -> (Vec<(String, f64)>, f64) {
    let (mut left, mut weights) = (Vec::new(), 0.0);
    for (_, k) in whole.kernels.iter().enumerate().filter(|(i, _)| !inside(*i)) {
        left.push((k.name.clone(), k.flop()));
        weights += if k.owns_weight() { k.weight_elements() } else { 0.0 };
    }
    left.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    (left, weights)
}

/// The same, its kernels in the order of a layer's places, not yet checked.
pub(super) fn layer(whole: &Workload, layers: &Layers) -> Result<(Workload, Folded), String> {
    let (count, width, f) = (layers.count(), layers.width, layers.typical());
    let typical = layers.template().ok_or("no layer is whole")?;
    let size = typical.len();
    // Kernel -> (layer, position).
    let place: HashMap<usize, (usize, usize)> = (layers.slots.iter().enumerate())
        .flat_map(|(j, l)| l.iter().enumerate().filter_map(move |(p, k)| Some(((*k)?, (j, p)))))
        .collect();
    let mut results: HashMap<usize, Vec<usize>> = HashMap::new();
    for (i, t) in whole.tensors.iter().enumerate() {
        if let Some(p) = t.producer {
            results.entry(p).or_default().push(i);
        }
    }
    let edges = edges(whole, layers, &place, &results);
    let kind = |layer: usize, wanted: fn(&Source, usize) -> bool| -> Edges {
        edges.get(layer).into_iter().flatten().filter(|(_, from, _)| wanted(from, width)).cloned().collect()
    };
    let same: fn(&Source, usize) -> bool = |from, _| matches!(from, Source::Same(..));
    let ahead: fn(&Source, usize) -> bool = |from, width| matches!(from, Source::Neighbour(p, _) if *p < width);
    let behind: fn(&Source, usize) -> bool = |from, width| matches!(from, Source::Neighbour(p, _) if *p >= width);
    let other: fn(&Source, usize) -> bool = |from, _| matches!(from, Source::Outside(..));
    // The first layer has no neighbour in the forward pass, the last none in the backward pass; beside a layer that lacks something a whole one
    // reads other things too.
    let most = |wanted: fn(&Source, usize) -> bool| -> Edges {
        let whole_first = |j: &usize| (layers.full.contains(j), kind(*j, wanted).len(), usize::MAX - j);
        (0..count).max_by_key(whole_first).map(|j| kind(j, wanted)).unwrap_or_default()
    };
    let from_before = if layers.full.len() > 1 || f > 0 { kind(f, ahead) } else { most(ahead) };
    let from_behind = match (0..count).find(|j| layers.full.contains(j) && layers.full.contains(&(j + 1))) {
        Some(j) => kind(j, behind),
        None => (0..count).map(|j| kind(j, behind)).max_by_key(BTreeSet::len).unwrap_or_default(),
    };
    let expected: Edges = kind(f, same).into_iter().chain(from_before).chain(from_behind).collect();
    let mut loose = BTreeSet::new();
    for layer in 0..count {
        let there = |at: usize, j: Option<usize>| {
            j.is_some_and(|j| layers.slots.get(j).and_then(|l| l.get(at)).is_some_and(Option::is_some))
        };
        let can = |(at, from, _): &&(usize, Source, Slot)| {
            let source = match *from {
                Source::Same(p, _) => there(p, Some(layer)),
                Source::Neighbour(p, _) if p < width => there(p, layer.checked_sub(1)),
                Source::Neighbour(p, _) => there(p, Some(layer + 1)),
                Source::Outside(..) => false,
            };
            source && there(*at, Some(layer))
        };
        let wanted: Edges = expected.iter().filter(can).cloned().collect();
        let found: Edges = edges.get(layer).into_iter().flatten().filter(|e| !other(&e.1, width)).cloned().collect();
        if wanted == found {
            continue;
        }
        let beside = |j: usize| j < count && !layers.full.contains(&j);
        if !(beside(layer) || beside(layer + 1) || layer.checked_sub(1).is_some_and(beside)) {
            return Err(format!("layer {layer} of {count} has the kernels of the others, but reads other tensors"));
        }
        loose.extend(wanted.symmetric_difference(&found).map(|(at, ..)| (layer, *at)));
    }
    // Whoever read what is lacking reads something else, and what is more stands between two.
    if loose.len() > 2 * (layers.missing() + layers.more) {
        let (layer, _) = loose.first().copied().unwrap_or_default();
        return Err(format!("layer {layer} of {count} reads other tensors than the others"));
    }
    let inner = |j: &usize| {
        *j > 0 && layers.full.contains(&(j - 1)) && layers.full.contains(j) && layers.full.contains(&(j + 1))
    };
    let inside: Vec<Edges> = (0..count).filter(inner).map(|j| kind(j, other)).collect();
    if inside.windows(2).any(|pair| pair.first() != pair.last()) {
        return Err(format!("the {count} layers have the same kernels, but read other tensors of what is outside"));
    }
    // What all layers read from outside, those that have the reader.
    let mut shared = kind(f, other);
    for (j, layer) in layers.slots.iter().enumerate() {
        let own = kind(j, other);
        shared.retain(|e| own.contains(e) || layer.get(e.0).is_some_and(Option::is_none));
    }
    let names = names(whole, &typical);
    let mut kernels = Vec::with_capacity(size);
    for (at, k) in typical.iter().enumerate() {
        let kernel = &whole.kernels[*k];
        let weight_of = match kernel.weight_of {
            Some(w) => match place.get(&w.kernel) {
                Some((j, owner)) if *j == f => Some(WeightOf { kernel: *owner }),
                _ => return Err(format!("kernel {} uses the weight of another layer", kernel.name)),
            },
            None => None,
        };
        // Measured, so never quite equal: the mean of the layers.
        let alike: Vec<usize> = layers.of(at..at + 1);
        let extra_dram_bytes =
            alike.iter().map(|k| whole.kernels[*k].extra_dram_bytes).sum::<f64>() / alike.len().max(1) as f64;
        kernels.push(Kernel { name: names[at].clone(), weight_of, extra_dram_bytes, ..kernel.clone() });
    }
    let mut merged = expected;
    merged.extend(shared);
    let mut tensors: Vec<Tensor> = Vec::new();
    let mut made: HashMap<(usize, usize), usize> = HashMap::new();
    for (at, k) in typical.iter().enumerate() {
        let own = results.get(k).cloned().unwrap_or_default();
        for (which, i) in own.iter().enumerate() {
            let t = &whole.tensors[*i];
            let suffix = if own.len() > 1 { format!(".{which}") } else { String::new() };
            // Read outside its layer, in any of the layers.
            let leaves = layers.slots.iter().enumerate().any(|(j, l)| {
                l.get(at).copied().flatten().and_then(|k| results.get(&k)).and_then(|r| r.get(which)).is_some_and(|i| {
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
    let mut inputs: BTreeMap<(u64, u64, u64), usize> = BTreeMap::new();
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
                let entry = *inputs.entry((rows, cols, word)).or_insert(next);
                if entry == next {
                    let word = (word != 0).then(|| f64::from_bits(word));
                    let name = format!("outside.{}", inputs.len());
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
    let (left, outside_weights) = outside(whole, |kernel| place.contains_key(&kernel));
    let lacking = (layers.slots.iter())
        .flat_map(|l| l.iter().zip(&kernels).filter(|(slot, _)| slot.is_none()))
        .fold(0.0, |sum, (_, kernel)| sum + kernel.flop());
    let folded = Folded {
        layers: count as u64,
        kernels: size,
        flop: layer_flop * count as f64,
        lacking_flop: lacking,
        outside_flop: left.iter().fold(0.0, |sum, (_, f)| sum + f),
        outside: left,
        outside_weights,
        blocks: Vec::new(),
    };
    Ok((Workload { kernels, tensors, repeat: count as u64, ..whole.clone() }, folded))
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
