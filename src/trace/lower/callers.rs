//! Who called whom, where a host trace is wrong about it.
//!
//! The observer writes as the caller of an operator whatever stands on top of its thread's stack. An operator that ends on another thread
//! (an asynchronous collective) never leaves that stack, so all that follows on the thread seems to be called by it; a cut file
//! names callers that are not there. Since an operator is counted as a whole, whatever it calls in turn, all of this would be lost.
//!
//! With times ([`by_time`]) there is no doubt: the caller is what was open on the thread. Without ([`mend`]) an operator is believed to have
//! called another only if it may ([`may_call`]) and if what it called so far is no more work than its own; else it had ended before, and what
//! follows is called by whoever called it. The operators concerned are handed on: their share of the FLOP is said
//! ([`super::coverage::Coverage::untrusted`]).

use super::host::part_of;
use super::program::Part;
use crate::trace::chakra::graph;
use crate::trace::host::{Arg as HostArg, HostNode, HostTrace, check};
use crate::trace::ops::names::is_collective;
use crate::trace::ops::{Arg, Call, Class, Options, class_of, cost, is_registered, plain_name};
use std::collections::{HashMap, HashSet};

/// Work that callees may do beyond their caller's own: a matrix operator's callees multiply what it multiplies.
const MATRIX_SLACK: f64 = 1.05;
/// The same of all other operators, whose callees go through its elements several times.
const VECTOR_SLACK: f64 = 32.0;

/// Puts the callers of a linked trace in, which are those by time. Returns the nodes whose caller is nowhere.
pub fn by_time(trace: &mut HostTrace, callers: &HashMap<u64, u64>) -> HashSet<u64> {
    let known: HashSet<u64> = trace.nodes.iter().map(|n| n.id).collect();
    let mut lost = HashSet::new();
    for node in trace.nodes.iter_mut().filter(|n| !n.is_root()) {
        node.parent = callers.get(&node.id).copied().unwrap_or(node.parent);
        if node.parent > 1 && !known.contains(&node.parent) {
            node.parent = 1;
            lost.insert(node.id);
        }
    }
    lost
}

/// An operator that is counted as a whole, and what it called so far.
struct Holder {
    class: Class,
    /// A call of c10d: it hands on to its backend, never to another call of c10d. One that does not wait for its end never leaves its thread's stack.
    c10d: bool,
    /// FLOP of its own, products alone; unknown where its shapes do not tell.
    matrix: Option<f64>,
    vector: f64,
    spent_matrix: f64,
    spent_vector: f64,
}

/// Mends callers by what operators may call. Returns the nodes whose place is not certain: those that were moved, and all below them.
pub fn mend(trace: &mut HostTrace) -> HashSet<u64> {
    let index: HashMap<u64, usize> = trace.index();
    let order = order(trace);
    // The last frame of each thread.
    let mut frames: HashMap<u64, u64> = HashMap::new();
    let mut uncertain: HashSet<u64> = HashSet::new();
    let mut ended: HashSet<u64> = HashSet::new();
    let mut holders: HashMap<u64, Holder> = HashMap::new();
    // Callees whose work their caller has been charged with, and what stands in them.
    let mut counted: HashSet<u64> = HashSet::new();
    // Operators that are counted as a whole where nothing around them is.
    let mut whole: HashSet<u64> = HashSet::new();
    // The counted operator that a node is or stands in.
    let mut within: HashMap<u64, u64> = HashMap::new();
    for i in order {
        let Some(node) = trace.nodes.get(i).filter(|n| !n.is_root()) else { continue };
        let id = node.id;
        let mut parent = node.parent;
        let mut moved = parent > 1 && !index.contains_key(&parent);
        if moved {
            // It came after the last frame of its thread: of the forward pass, the backward pass or the optimiser.
            parent = frames.get(&node.tid).copied().unwrap_or(1);
        }
        match part_of(node) {
            Some(Part::Gradients) => {}
            // Next comes the forward pass: a lost caller is rarer in the optimiser than after it, or after the gradients are set to nothing.
            Some(Part::Optimiser) => drop(frames.insert(node.tid, parent)),
            _ if is_frame(node) => drop(frames.insert(node.tid, id)),
            _ => {}
        }
        // Who had ended has no more callees; parents stand before their callees here, so this ends.
        while ended.contains(&parent) {
            parent = above_of(trace, &index, parent);
            moved = true;
        }
        let op = plain_name(&node.name);
        let class = class_of(op);
        let counts = (is_registered(op) && class != Class::View && class != Class::Host) || is_collective(op);
        let mut own = None;
        if let Some(&holder) = within.get(&parent).filter(|h| !ended.contains(h))
            && let Some(h) = holders.get_mut(&holder)
        {
            let frame = is_frame(node);
            let fits = if frame || counts {
                let own = own.insert(work(node, class));
                // What a callee calls in turn is a part of the callee's work.
                let another = h.c10d && node.name.starts_with("c10d::");
                !frame && !another && may_call(h.class, class) && (counted.contains(&parent) || h.takes(own))
            } else {
                true
            };
            if fits && (counts || counted.contains(&parent)) {
                counted.insert(id);
            }
            if !fits {
                // What stands right above it and is not counted by itself was called after the holder, too: it goes to the holder's caller
                // as a whole.
                let outer = above_of(trace, &index, holder);
                let (mut top, mut at) = (id, parent);
                while at != holder && !whole.contains(&at) {
                    (top, at) = (at, above_of(trace, &index, at));
                }
                while at != outer {
                    ended.insert(at);
                    at = above_of(trace, &index, at);
                }
                moved = true;
                if top == id {
                    parent = outer;
                } else {
                    if let Some(n) = index.get(&top).and_then(|i| trace.nodes.get_mut(*i)) {
                        n.parent = outer;
                    }
                    uncertain.insert(top);
                    let outside = within.get(&outer).copied();
                    let mut at = parent;
                    while at != outer {
                        match outside {
                            Some(next) => within.insert(at, next),
                            None => within.remove(&at),
                        };
                        at = above_of(trace, &index, at);
                    }
                }
            }
        }
        if counts {
            whole.insert(id);
        }
        let holder = match within.get(&parent).copied().filter(|h| !ended.contains(h)) {
            Some(h) => Some(h),
            None if counts => {
                let node = trace.nodes.get(i);
                let c10d = node.is_some_and(|n| n.name.starts_with("c10d::"));
                let own = own.or_else(|| node.map(|n| work(n, class)));
                own.map(|own| holders.insert(id, Holder::new(class, own, c10d)));
                Some(id)
            }
            None => None,
        };
        if let Some(h) = holder {
            within.insert(id, h);
        }
        if moved || uncertain.contains(&parent) {
            uncertain.insert(id);
        }
        if let Some(n) = trace.nodes.get_mut(i) {
            n.parent = parent;
        }
    }
    uncertain
}

fn above_of(trace: &HostTrace, index: &HashMap<u64, usize>, id: u64) -> u64 {
    index.get(&id).and_then(|i| trace.nodes.get(*i)).map_or(1, |n| n.parent)
}

/// Places of the nodes in the order of their starts, callers before callees.
pub fn order(trace: &HostTrace) -> Vec<usize> {
    graph::order(&check::callers(trace))
}

impl Holder {
    fn new(class: Class, own: Work, c10d: bool) -> Self {
        Self { class, c10d, matrix: own.matrix, vector: own.vector, spent_matrix: 0.0, spent_vector: 0.0 }
    }

    /// Whether it may have called so much more; if so, it did.
    fn takes(&mut self, more: &Work) -> bool {
        let (matrix, vector) = (self.spent_matrix + more.matrix.unwrap_or(0.0), self.spent_vector + more.vector);
        let fits = self.matrix.is_none_or(|own| matrix <= own * MATRIX_SLACK)
            && vector <= (self.vector + self.matrix.unwrap_or(0.0)) * VECTOR_SLACK;
        if fits {
            (self.spent_matrix, self.spent_vector) = (matrix, vector);
        }
        fits
    }
}

/// What an operator does: FLOP of products (none known: its shapes do not tell), elements of everything else.
struct Work {
    matrix: Option<f64>,
    vector: f64,
}

fn work(node: &HostNode, class: Class) -> Work {
    if matches!(class, Class::Allocation | Class::View | Class::Host) {
        return Work { matrix: Some(0.0), vector: 0.0 };
    }
    let elements = node.input_tensors().chain(node.output_tensors()).map(|t| t.num_elem as f64).sum();
    let arg = |a: &HostArg| plain(a);
    let call = Call {
        op: plain_name(&node.name).into(),
        inputs: node.inputs.iter().map(arg).collect(),
        outputs: node.outputs.iter().map(arg).collect(),
        mutated: Vec::new(),
        returned: Vec::new(),
    };
    if multiplies(class) {
        let flop = cost(&call, &Options::default()).flop;
        return Work { matrix: flop.map(|f| f as f64), vector: elements };
    }
    Work { matrix: Some(0.0), vector: elements }
}

fn plain(arg: &HostArg) -> Arg {
    match arg {
        HostArg::Tensor(t) if t.is_defined() => super::host::tensor_arg(t, 0),
        HostArg::Tensor(_) | HostArg::None => Arg::None,
        HostArg::Int(i) => Arg::Int(*i),
        HostArg::Float(f) => Arg::Float(*f),
        HostArg::Bool(b) => Arg::Bool(*b),
        HostArg::Str(s) | HostArg::Device(s) | HostArg::Other(s) => Arg::Text(s.to_string()),
        HostArg::List(items) => Arg::List(items.iter().map(plain).collect()),
    }
}

fn multiplies(class: Class) -> bool {
    matches!(class, Class::Product | Class::Convolution | Class::Attention | Class::Recurrent)
}

/// Whether a node is a frame of the program that no operator calls: a step, an optimiser, a node of the backward pass, an annotation.
fn is_frame(node: &HostNode) -> bool {
    if is_collective(&node.name) {
        return false;
    }
    matches!(node.scope, 1 | 7)
        || node.name.starts_with("autograd::engine")
        || node.name.starts_with("Optimizer.")
        || node.name.starts_with("ProfilerStep#")
        || node.name.starts_with("## ")
}

/// Whether an operator of one class, which is counted as a whole, may call one of another.
fn may_call(caller: Class, callee: Class) -> bool {
    use Class::*;
    match (caller, callee) {
        (_, Copy | Fill | Allocation | View | Host | Composite) => true,
        (Allocation, _) => false,
        (a, b) if a == b => true,
        (Collective, _) | (_, Collective) => false,
        (Product, Elementwise) => false,
        (Product, _) => false,
        (Convolution, Product | Elementwise | Reduction) => true,
        (Convolution, _) => false,
        (Attention, Product | Elementwise | Softmax | Reduction) => true,
        (Attention, _) => false,
        (Recurrent, Product | Elementwise | Softmax | Reduction | Lookup) => true,
        (Recurrent, _) => false,
        (_, b) if multiplies(b) => false,
        (Copy | Fill, _) => false,
        (_, Norm | Optimiser) => false,
        _ => true,
    }
}
