//! Workloads as actor graphs: every kind of file the program reads.
//!
//! * FX graphs: one actor a call (`getitem` folded), measured where the file has times: whole microseconds, at least one. Between two
//!   actors one channel, its token the largest tensor. Parameters and buffers are state.
//! * Other traces: one actor a call of the recorded step; views are none.
//! * All other workloads: one actor a kernel, its FLOP and bytes those of one iteration's samples; repeated blocks written out as often as
//!   asked. Weights (a backward kernel's too) and caches are state.
//! * `kind: actors`: as written.

use super::graph::{Actor, ActorGraph, Channel, Fixed, Kind, Work};
use super::spec::ActorsSpec;
use crate::spec::{Node, Problem, Problems, Reader, Value};
use crate::trace::lower::{self, FileKind};
use crate::trace::ops::{Class, Options};
use crate::trace::{TraceErrors, fx_nodes};
use crate::workload::trace::TraceSpec;
use crate::workload::{Phase, Tensor, Workload, WorkloadSpec};
use std::path::Path;

/// How a workload becomes actors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Build {
    /// Most copies of a repeated block; `None`: all of them.
    pub unroll: Option<u64>,
    /// Samples of one iteration; `None`: a microbatch of the workload.
    pub batch: Option<u64>,
    /// Count FLOP and bytes even where there are measured times.
    pub counted: bool,
}

/// Most actors of a graph.
pub const MOST_ACTORS: usize = 1 << 18;

/// The tree of a workload file, or of `trace:PATH`.
///
/// # Errors
/// The [`Problems`] of loading.
pub fn load(path: &Path) -> Result<Node, Problems> {
    WorkloadSpec::load(path)
}

/// The actor graph of a tree.
///
/// # Errors
/// All [`Problems`] of the workload.
pub fn build(node: &Node, options: Build) -> Result<ActorGraph, Problems> {
    let word = |key: &str| match node.get(key).map(|n| &n.value) {
        Some(Value::Scalar { text, .. }) => text.as_str(),
        _ => "",
    };
    let refuse = |message: &str| -> Result<ActorGraph, Problems> {
        Err(Problem { origin: node.origin.clone(), field: String::new(), message: message.into() }.into())
    };
    let fixed = options.batch.is_some();
    match word("kind") {
        "actors" if fixed => refuse("--batch: an actor graph states its samples; change `batch` in the file"),
        "actors" => ActorsSpec::build(node),
        "trace" if fixed => refuse(
            "--batch: a trace was recorded with its samples; give a trace of that batch, or others of the same graph with --other-batches",
        ),
        "trace" => recorded(node, options),
        _ => {
            let workload = WorkloadSpec::build(node)?;
            of_workload(&workload, options)
                .map_err(|message| Problem { origin: node.origin.clone(), field: "kernels".into(), message })?
                .checked(&node.origin)
        }
    }
}

/// Adds to the graph of a workload that is counted what the model says of the samples of each number of replicas from `low` to `high`; traces and
/// written graphs are known with their own samples alone.
///
/// # Errors
/// All [`Problems`] of the workload.
pub fn shares(node: &Node, options: Build, graph: &mut ActorGraph, (low, high): (u64, u64)) -> Result<(), Problems> {
    if matches!(node.get("kind").map(|n| &n.value), Some(Value::Scalar { text, .. }) if text == "actors" || text == "trace")
    {
        return Ok(());
    }
    for r in (low.max(2)..=high.min(graph.batch)).filter(|r| graph.batch.is_multiple_of(*r)) {
        graph.others.push(build(node, Build { batch: Some(graph.batch / r), ..options })?);
    }
    Ok(())
}

fn kind(class: Class) -> Kind {
    match class {
        Class::Product | Class::Convolution | Class::Attention | Class::Recurrent => Kind::Matrix,
        Class::View | Class::Allocation | Class::Host | Class::Collective | Class::Copy | Class::Lookup => Kind::Data,
        _ => Kind::Vector,
    }
}

fn channel(source: usize, source_port: &str, target: usize, target_port: &str, bytes: f64) -> Channel {
    Channel {
        source,
        source_port: source_port.into(),
        target,
        target_port: target_port.into(),
        produced: 1,
        consumed: 1,
        initial: 0,
        token_bytes: bytes,
        capacity: None,
    }
}

fn work(time_us: Option<f64>, flop: f64, bytes: f64, options: Build) -> Work {
    match time_us.filter(|_| !options.counted) {
        Some(us) => Work::Measured { seconds: us.round_ties_even().max(1.0) / 1e6, deviation: 0.0 },
        None => Work::Counted { flop, bytes },
    }
}

/// A trace: of `kind: trace`.
fn recorded(node: &Node, options: Build) -> Result<ActorGraph, Problems> {
    let spec: TraceSpec = Reader::read(node)?;
    let path = spec.file(node);
    let origin = node.get("path").map_or(node.origin.clone(), |n| n.origin.clone());
    let refuse = |errors: &TraceErrors| {
        let problem = |e: &crate::trace::TraceError| Problem {
            origin: origin.clone(),
            field: "path".into(),
            message: e.to_string(),
        };
        Problems(errors.0.iter().map(problem).collect())
    };
    let request = lower::Request { kineto: spec.device(node), ..spec.request() };
    let counting = Options { causal_discount: spec.causal_discount };
    let mut graph = match lower::kind(&path).map_err(|e| refuse(&e))? {
        FileKind::Fx => {
            let found = fx_nodes::read(&path, &counting).map_err(|e| refuse(&e))?;
            let actors = found
                .nodes
                .iter()
                .map(|n| Actor {
                    name: n.name.clone(),
                    kind: kind(n.class),
                    work: work(n.time_us, n.flop, n.bytes, options),
                    state_bytes: n.state_bytes,
                    fixed: match n.constant {
                        true => Fixed::All,
                        // Of a table a firing reads the rows it looks up.
                        false if n.class == Class::Lookup => Fixed::Weights(0.0),
                        false => Fixed::Weights(n.state_bytes),
                    },
                    outside: Some((n.input_bytes, n.output_bytes)),
                })
                .collect();
            let mut channels = Vec::new();
            for (i, n) in found.nodes.iter().enumerate() {
                let name = |j: usize| found.nodes[j].name.as_str();
                channels.extend(n.reads.iter().map(|(j, bytes)| channel(*j, name(*j), i, name(*j), *bytes)));
            }
            ActorGraph { name: found.name, actors, channels, batch: found.batch.unwrap_or(1), others: Vec::new() }
        }
        _ => of_program(&lower::load(&path, &request).map_err(|e| refuse(&e))?, options),
    };
    if let Some(name) = &spec.name {
        graph.name.clone_from(name);
    }
    if graph.actors.is_empty() || graph.actors.len() > MOST_ACTORS {
        let found = graph.actors.len();
        let message = format!("{}: expected 1 to {MOST_ACTORS} calls, found {found}", path.display());
        return Err(Problem { origin, field: "path".into(), message }.into());
    }
    graph.checked(&origin)
}

/// The calls of a recorded step.
fn of_program(program: &lower::program::Program, options: Build) -> ActorGraph {
    use lower::program::Origin;
    let name = |i: usize| format!("{}_{}", program.steps[i].call.op, program.steps[i].node);
    let mut actors: Vec<Actor> = Vec::with_capacity(program.steps.len());
    let mut channels: Vec<Channel> = Vec::new();
    let mut twice = std::collections::HashMap::new();
    for (i, step) in program.steps.iter().enumerate() {
        let mut state_bytes = 0.0;
        let first = channels.len();
        for v in &step.reads {
            let Some(value) = program.values.get(*v) else { continue };
            let bytes = value.elements as f64 * value.element_bytes as f64;
            match value.origin {
                Origin::Parameter => state_bytes += bytes,
                Origin::Made(j) if j < i => match channels[first..].iter_mut().find(|c| c.source == j) {
                    Some(known) => known.token_bytes = known.token_bytes.max(bytes),
                    None => channels.push(channel(j, &name(j), i, &name(j), bytes)),
                },
                _ => {}
            }
        }
        // Two steps of one node cannot share a name.
        let count = twice.entry(name(i)).or_insert(0u32);
        *count += 1;
        actors.push(Actor {
            name: if *count == 1 { name(i) } else { format!("{}.{count}", name(i)) },
            kind: kind(step.cost.class),
            work: work(
                step.seconds.map(|s| s * 1e6),
                step.cost.flop.unwrap_or(0) as f64,
                step.cost.bytes() as f64,
                options,
            ),
            state_bytes,
            fixed: Fixed::Weights(if step.cost.class == Class::Lookup { 0.0 } else { state_bytes }),
            outside: None,
        });
    }
    ActorGraph { name: program.name.clone(), actors, channels, batch: program.batch.unwrap_or(1), others: Vec::new() }
}

/// The kernels of a workload, its blocks written out.
fn of_workload(workload: &Workload, options: Build) -> Result<ActorGraph, String> {
    let samples = options.batch.unwrap_or(workload.micro_batch);
    let word = workload.word_bytes;
    let copies: Vec<u64> = (0..workload.block_count())
        .map(|b| options.unroll.map_or(workload.repeats(b), |most| workload.repeats(b).min(most)).max(1))
        .collect();
    let total: u64 = workload.kernels.iter().fold(0, |sum, k| sum.saturating_add(copies[k.block]));
    if total == 0 || total > MOST_ACTORS as u64 {
        return Err(format!(
            "expected 1 to {MOST_ACTORS} actors, found {total}; write out fewer repetitions with --unroll"
        ));
    }
    let forward = |k: usize| workload.kernels[k].phase == Phase::Forward;
    // Position of each copy of each kernel: forward in their order, backward in the opposite one.
    let mut at: Vec<Vec<usize>> = workload.kernels.iter().map(|k| vec![0; copies[k.block] as usize]).collect();
    let mut order: Vec<(usize, u64)> = Vec::with_capacity(total as usize);
    for pass in [true, false] {
        let blocks: Vec<usize> = if pass { (0..copies.len()).collect() } else { (0..copies.len()).rev().collect() };
        for b in blocks {
            let numbers: Vec<u64> = if pass { (0..copies[b]).collect() } else { (0..copies[b]).rev().collect() };
            for c in numbers {
                let members =
                    (0..workload.kernels.len()).filter(|k| workload.kernels[*k].block == b && forward(*k) == pass);
                order.extend(members.map(|k| (k, c)));
            }
        }
    }
    order.iter().enumerate().for_each(|(i, (k, c))| at[*k][*c as usize] = i);
    let size = |t: &Tensor| t.bytes(word) * samples as f64;
    let mut moved = vec![0.0; workload.kernels.len()];
    for t in &workload.tensors {
        t.producer.into_iter().chain(t.consumers.iter().map(|u| u.kernel)).for_each(|k| moved[k] += size(t));
    }
    let actors = order
        .iter()
        .map(|(k, c)| {
            let kernel = &workload.kernels[*k];
            let weights = kernel.weight_elements() * kernel.word_or(word);
            let read = if kernel.lookup { 0.0 } else { weights };
            Actor {
                name: if copies[kernel.block] == 1 { kernel.name.clone() } else { format!("{}.{c}", kernel.name) },
                kind: if kernel.is_gemm() { Kind::Matrix } else { Kind::Vector },
                work: Work::Counted {
                    flop: kernel.flop() * samples as f64,
                    bytes: moved[*k] + read + kernel.extra_dram_bytes * samples as f64,
                },
                state_bytes: weights + kernel.cache_bytes * samples as f64,
                fixed: Fixed::Weights(read),
                outside: None,
            }
        })
        .collect();
    let mut channels = Vec::new();
    for tensor in &workload.tensors {
        for u in &tensor.consumers {
            let block = workload.kernels[u.kernel].block;
            let before = tensor.carried_from.and_then(|f| workload.tensors.get(f)).and_then(|f| f.producer);
            for c in 0..copies[block] {
                // What one repetition hands on is read where the one before wrote it; the first reads what begins the chain.
                let earlier = before.and_then(|p| {
                    let previous =
                        if forward(p) { c.checked_sub(1) } else { Some(c + 1).filter(|c| *c < copies[block]) };
                    previous.map(|previous| (p, previous))
                });
                let source = match (earlier, tensor.producer) {
                    (Some(found), _) => Some(found),
                    (None, Some(p)) if workload.kernels[p].block == block => Some((p, c)),
                    (None, Some(p)) if forward(p) => Some((p, copies[workload.kernels[p].block] - 1)),
                    (None, Some(p)) => Some((p, 0)),
                    (None, None) => None,
                };
                let Some((p, from)) = source else { continue };
                let from = from.min(copies[workload.kernels[p].block] - 1);
                let (source, target) = (at[p][from as usize], at[u.kernel][c as usize]);
                if source != target {
                    channels.push(channel(source, &tensor.name, target, &tensor.name, size(tensor)));
                }
            }
        }
    }
    let name =
        if copies.iter().any(|c| *c > 1) { format!("{} unrolled", workload.name) } else { workload.name.clone() };
    Ok(ActorGraph { name, actors, channels, batch: samples, others: Vec::new() })
}
