//! Layers that do not all follow each other: where a layer of another kind stands between stretches of the same layer (one attention of its own, a
//! layer of experts), each stretch is a block of a chain, and what stands between two is a block of its own, not repeated.
//!
//! Found are whole copies of the layer that repeats most, ahead of its longest stretch and behind it, in both passes. Blocks are connected by what their
//! kernels read in the recording: the first layer of a block what the last one of the block before made, in the backward pass the other way. A
//! chain whose blocks are not connected so, or of which a tensor goes further than to the next block, is not folded as one
//! ([`crate::graph::chain`] has the rules).

use super::assemble::{Layers, layer, outside};
use super::{Folded, FoldedBlock, Search};
use crate::graph::{Block, Slot, Tensor, Use, Workload};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The layers found, and the same layers elsewhere with what is between them.
pub(super) fn chained(search: &Search<'_>, layers: &Layers) -> Option<(Workload, Folded)> {
    let parts = parts(search, layers)?;
    let whole = search.whole;
    let mut blocks = Vec::with_capacity(parts.len());
    let (mut stretches, mut betweens) = (0, 0);
    for (layers, is_between) in parts {
        let (word, n) = if is_between { ("between", &mut betweens) } else { ("layers", &mut stretches) };
        *n += 1;
        blocks.push(Part::new(whole, layers, format!("{word}_{n}"))?);
    }
    join(whole, &blocks)
}

/// Copies of a layer among kernels in their order, the nearest first: where each begins. `order` ends, or begins, where the layers that are known do.
fn copies(order: &[usize], signatures: &[usize], template: &[usize], from_the_end: bool) -> Vec<usize> {
    let (n, w) = (order.len(), template.len());
    let is_copy = |start: usize| {
        let here = order.get(start..start + w);
        here.is_some_and(|here| here.iter().zip(template).all(|(k, t)| signatures.get(*k) == signatures.get(*t)))
    };
    let (mut out, mut at) = (Vec::new(), 0);
    while w > 0 && at + w <= n {
        let start = if from_the_end { n - at - w } else { at };
        let found = is_copy(start);
        if found {
            out.push(start);
        }
        at += if found { w } else { 1 };
    }
    out
}

/// Stretches of layers in the order of the forward pass, with what is between them (`true`).
fn parts(search: &Search<'_>, layers: &Layers) -> Option<Vec<(Layers, bool)>> {
    let template = layers.template()?;
    let (front, back) = template.split_at(layers.width);
    let span = |order: &[usize], kernels: Vec<usize>| -> Option<(usize, usize)> {
        let kernels: HashSet<usize> = kernels.into_iter().collect();
        let is = |k: &usize| kernels.contains(k);
        Some((order.iter().position(is)?, order.iter().rposition(is)? + 1))
    };
    let own = span(&search.forward, layers.of(0..layers.width))?;
    let with_backward = !back.is_empty();
    let own_back = match with_backward {
        true => span(&search.backward, layers.of(layers.width..template.len()))?,
        false => (0, 0),
    };
    // Begin of each copy in both passes, the nearest first. What is ahead in one pass is behind in the other.
    let beside = |ahead: bool| -> Vec<(usize, usize)> {
        let of = |order: &[usize], (start, end): (usize, usize), layer: &[usize], ahead: bool| -> Vec<usize> {
            let (list, first) = if ahead { (order.get(..start), 0) } else { (order.get(end..), end) };
            let found = copies(list.unwrap_or_default(), &search.signatures, layer, ahead);
            found.into_iter().map(|at| at + first).collect()
        };
        let forward = of(&search.forward, own, front, ahead);
        if !with_backward {
            return forward.into_iter().map(|at| (at, 0)).collect();
        }
        forward.into_iter().zip(of(&search.backward, own_back, back, !ahead)).collect()
    };
    let (w, v) = (front.len(), back.len());
    // Stretches: first and last copy's begin in both passes.
    let stretches = |ahead: bool| -> Vec<Vec<(usize, usize)>> {
        let mut out: Vec<Vec<(usize, usize)>> = Vec::new();
        for copy in beside(ahead) {
            let follows = |last: &(usize, usize)| {
                let step = |a: usize, b: usize, ahead: bool, w: usize| if ahead { b + w == a } else { a + w == b };
                step(last.0, copy.0, ahead, w) && (!with_backward || step(last.1, copy.1, !ahead, v))
            };
            match out.last_mut() {
                Some(run) if run.last().is_some_and(follows) => run.push(copy),
                _ => out.push(vec![copy]),
            }
        }
        out
    };
    let made = |run: Vec<(usize, usize)>, ahead: bool| -> Layers {
        let mut run = run;
        if ahead {
            run.reverse();
        }
        let slices = |order: &[usize], at: usize, w: usize| order.get(at..at + w).unwrap_or_default().to_vec();
        let forward: Vec<Vec<usize>> = run.iter().map(|c| slices(&search.forward, c.0, w)).collect();
        let backward: Vec<Vec<usize>> =
            run.iter().filter(|_| with_backward).map(|c| slices(&search.backward, c.1, v)).collect();
        Layers::new(&forward, &backward)
    };
    let mut list: Vec<Layers> = stretches(true).into_iter().rev().map(|run| made(run, true)).collect();
    let alone = list.is_empty();
    list.push(layers.clone());
    list.extend(stretches(false).into_iter().map(|run| made(run, false)));
    if list.len() < 2 {
        return None;
    }
    // The outermost ones have layers at their ends that differ a little.
    if let Some(first) = list.first_mut().filter(|_| !alone) {
        *first = search.extended_at(first.clone(), true);
    }
    if let Some(last) = list.last_mut() {
        *last = search.extended_at(last.clone(), false);
    }
    let mut out: Vec<(Layers, bool)> = Vec::with_capacity(2 * list.len());
    for next in list {
        if let Some((before, _)) = out.last() {
            let gap = |order: &[usize], places: std::ops::Range<usize>, turned: bool| -> Option<Vec<usize>> {
                let (one, other) = (span(order, before.of(places.clone()))?, span(order, next.of(places))?);
                let (end, start) = if turned { (other.1, one.0) } else { (one.1, other.0) };
                Some(order.get(end..start)?.to_vec())
            };
            let ahead = gap(&search.forward, 0..w, false)?;
            let behind = if with_backward { gap(&search.backward, w..w + v, true)? } else { Vec::new() };
            // Copies with nothing between them were refused as layers of one stretch.
            if ahead.is_empty() {
                return None;
            }
            out.push((Layers::new(&[ahead], &[behind]), true));
        }
        out.push((next, false));
    }
    Some(out)
}

/// A block: its layers, the graph of one of them, and its kernels by their places in it.
struct Part {
    name: String,
    layers: Layers,
    graph: Workload,
    folded: Folded,
}

impl Part {
    fn new(whole: &Workload, layers: Layers, name: String) -> Option<Self> {
        let (graph, folded) = layer(whole, &layers).ok()?;
        Some(Self { name, layers, graph, folded })
    }

    /// Where a kernel of the recording stands in a layer of this block, the first or the last one.
    fn places(&self, last: bool) -> HashMap<usize, usize> {
        let layer = self.layers.end(last);
        layer.iter().enumerate().filter_map(|(at, k)| Some(((*k)?, at))).collect()
    }
}

/// A read that crosses from block to block: of a tensor of one, by a kernel, which was a read of an input of the other.
struct Crossing {
    /// The input, as the other block has it.
    input: (usize, usize),
    reader: Use,
    /// What is read instead.
    made: (usize, usize),
}

/// What blocks next to each other read of each other.
fn crossings(whole: &Workload, parts: &[Part]) -> Vec<Crossing> {
    let mut reads: HashMap<(usize, Slot), Vec<usize>> = HashMap::new();
    let mut results: HashMap<usize, Vec<usize>> = HashMap::new();
    for (i, t) in whole.tensors.iter().enumerate() {
        t.consumers.iter().for_each(|u| reads.entry((u.kernel, u.slot)).or_default().push(i));
        if let Some(p) = t.producer {
            results.entry(p).or_default().push(i);
        }
    }
    let mut out = Vec::new();
    let mut cross = |maker: usize, reader: usize| {
        let Some((from, to)) = parts.get(maker).zip(parts.get(reader)) else { return };
        // Layers next to the other block: what is made in the last one goes to the first one, backward the other way.
        let forward = maker < reader;
        let (makers, readers) = (from.places(forward), to.layers.end(!forward));
        for (input, t) in to.graph.tensors.iter().enumerate().filter(|(_, t)| t.producer.is_none()) {
            for u in &t.consumers {
                let Some(kernel) = readers.get(u.kernel).copied().flatten() else { continue };
                // Of several operands of a kind the one that the other block made.
                let made_there = |read: &usize| {
                    let w = whole.tensors.get(*read)?;
                    let maker = w.producer.filter(|_| (w.rows, w.cols, w.word) == (t.rows, t.cols, t.word))?;
                    Some((*read, maker, *makers.get(&maker)?))
                };
                let Some((read, maker_kernel, at)) =
                    reads.get(&(kernel, u.slot)).and_then(|list| list.iter().find_map(made_there))
                else {
                    continue;
                };
                let which = results.get(&maker_kernel).and_then(|list| list.iter().position(|w| *w == read));
                let mut own = from.graph.tensors.iter().enumerate().filter(|(_, w)| w.producer == Some(at));
                let Some((made, _)) = which.and_then(|which| own.nth(which)) else { continue };
                out.push(Crossing { input: (reader, input), reader: *u, made: (maker, made) });
            }
        }
    };
    for one in 1..parts.len() {
        cross(one - 1, one);
        cross(one, one - 1);
    }
    out
}

/// The chain of the blocks; `None` where it breaks a chain's rules.
fn join(whole: &Workload, parts: &[Part]) -> Option<(Workload, Folded)> {
    let crossings = crossings(whole, parts);
    let connected = |one: usize| crossings.iter().any(|c| c.input.0 == one && c.made.0 + 1 == one);
    if !(1..parts.len()).all(connected) {
        return None;
    }
    let firsts = |count: fn(&Workload) -> usize| -> Vec<usize> {
        parts
            .iter()
            .scan(0, |sum, p| {
                let first = *sum;
                *sum += count(&p.graph);
                Some(first)
            })
            .collect()
    };
    let (kernel_of, tensor_of) = (firsts(|g| g.kernels.len()), firsts(|g| g.tensors.len()));
    let (mut kernels, mut tensors) = (Vec::new(), Vec::<Tensor>::new());
    for (block, part) in parts.iter().enumerate() {
        let (k, t) = (*kernel_of.get(block)?, *tensor_of.get(block)?);
        for kernel in &part.graph.kernels {
            let mut kernel = kernel.clone();
            kernel.name = format!("{}.{}", part.name, kernel.name);
            kernel.block = block;
            if let Some(owner) = &mut kernel.weight_of {
                owner.kernel += k;
            }
            kernels.push(kernel);
        }
        for tensor in &part.graph.tensors {
            let mut tensor = tensor.clone();
            tensor.name = format!("{}.{}", part.name, tensor.name);
            tensor.producer = tensor.producer.map(|p| p + k);
            tensor.carried_from = tensor.carried_from.map(|c| c + t);
            tensor.consumers.iter_mut().for_each(|u| u.kernel += k);
            tensors.push(tensor);
        }
    }
    // Readers go from the inputs to what is made elsewhere.
    let mut moved: BTreeMap<usize, Vec<(Use, usize)>> = BTreeMap::new();
    for c in &crossings {
        let id = |(block, tensor): (usize, usize)| Some(tensor_of.get(block)? + tensor);
        let reader = Use { kernel: c.reader.kernel + kernel_of.get(c.input.0)?, ..c.reader };
        moved.entry(id(c.input)?).or_default().push((reader, id(c.made)?));
    }
    for (input, readers) in moved {
        let carried = tensors.get(input)?.carried_from;
        tensors.get_mut(input)?.consumers.retain(|u| !readers.iter().any(|(r, _)| r == u));
        if carried.is_some() {
            // What is carried inside a block comes from one place outside of it.
            let made = readers.first()?.1;
            let alone = tensors.get(input)?.consumers.is_empty() && readers.iter().all(|(_, other)| *other == made);
            if !alone || tensors.get(made)?.carried_from.is_some() {
                return None;
            }
            tensors.get_mut(made)?.carried_from = carried;
        }
        for (reader, made) in readers {
            tensors.get_mut(made)?.consumers.push(reader);
        }
    }
    let inside: HashSet<usize> = parts.iter().flat_map(|p| p.layers.of(0..usize::MAX)).collect();
    // Of what is not repeated only what others than the blocks read leaves the graph.
    for (block, part) in parts.iter().enumerate().filter(|(_, p)| p.layers.count() == 1) {
        let layer = part.layers.end(false);
        for tensor in tensors.iter_mut().filter(|t| t.output) {
            let Some(at) = tensor.producer.and_then(|p| p.checked_sub(kernel_of[block])) else { continue };
            let Some(kernel) = layer.get(at).copied().flatten() else { continue };
            let of_kernel = whole.tensors.iter().filter(|w| w.producer == Some(kernel));
            let leaves = |w: &Tensor| w.output || w.consumers.iter().any(|u| !inside.contains(&u.kernel));
            tensor.output = of_kernel.filter(|w| (w.rows, w.cols) == (tensor.rows, tensor.cols)).any(leaves)
                || tensor.consumers.is_empty();
        }
    }
    // Inputs that nobody reads any more go.
    let kept: Vec<bool> = tensors.iter().map(|t| t.producer.is_some() || !t.consumers.is_empty()).collect();
    let place: Vec<usize> = kept
        .iter()
        .scan(0, |next, kept| {
            let at = *next;
            *next += usize::from(*kept);
            Some(at)
        })
        .collect();
    let mut list: Vec<Tensor> = tensors.into_iter().zip(&kept).filter(|(_, k)| **k).map(|(t, _)| t).collect();
    for tensor in &mut list {
        tensor.carried_from = tensor.carried_from.and_then(|from| place.get(from).copied());
    }
    let of = |p: &Part| Block { name: p.name.clone(), repeat: p.layers.count() as u64 };
    let blocks: Vec<Block> = parts.iter().map(of).collect();
    let repeat = blocks.iter().map(|b| b.repeat).sum();
    let workload = Workload { kernels, tensors: list, repeat, blocks, ..whole.clone() }.checked().ok()?;
    let sum = |value: fn(&Folded) -> f64| parts.iter().map(|p| value(&p.folded)).sum::<f64>();
    let (left, outside_weights) = outside(whole, |kernel| inside.contains(&kernel));
    let folded = Folded {
        layers: repeat,
        kernels: workload.kernels.len(),
        flop: sum(|f| f.flop),
        lacking_flop: sum(|f| f.lacking_flop),
        outside_flop: left.iter().fold(0.0, |sum, (_, f)| sum + f),
        outside: left,
        outside_weights,
        blocks: parts
            .iter()
            .map(|p| FoldedBlock { name: p.name.clone(), repeat: p.layers.count() as u64, kernels: p.folded.kernels })
            .collect(),
    };
    Some((workload, folded))
}
