//! What the chips of a plan say to each other in one pass over a layer, partition by partition.
//!
//! The collectives are those that the model charges (`model::layout`: which conversion is which collective); their seconds are added up again
//! and must be the plan's, so that nothing is forgotten and nothing invented.

use crate::graph::{CollectiveKind, Phase, Scope, Use};
use crate::model::collective;
use crate::model::compute::{Tiling, gradient_bytes, tensor_bytes};
use crate::model::layout::{Layout, conversion, produced, required};
use crate::model::ranks::Group;
use crate::model::schedule::{microbatches, samples_per_pass};
use crate::plan::{Plan, agree, own_groups};
use crate::system::options::{Charge, Fanout, GradientReduction};
use crate::trace::chakra::CommType;

/// The repetition of a block that is next to another block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Of a block before: the first.
    First,
    /// Of a block behind: the last.
    Last,
}

/// One collective of a pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Comm {
    /// Among whom.
    pub(super) group: Group,
    /// Which.
    pub(super) kind: CommType,
    /// `comm_size`: for an all-gather the bytes that each rank contributes, else those of each rank's buffer.
    pub(super) bytes: u64,
    /// How often, one after another.
    pub(super) times: u64,
    /// Not in each repetition of its block, but in this one: what goes from block to block is converted once a microbatch.
    pub(super) only: Option<End>,
}

impl Comm {
    /// One of these, in each repetition of its block.
    pub(super) fn new(group: Group, kind: CommType, bytes: f64) -> Self {
        Self { group, kind, bytes: whole_bytes(bytes), times: 1, only: None }
    }

    /// Whether it is in repetition `unit` of a block that is repeated so often.
    pub(super) fn is_in(&self, unit: u64, repeats: u64) -> bool {
        match self.only {
            None => true,
            Some(End::First) => unit == 0,
            Some(End::Last) => unit + 1 == repeats,
        }
    }
}

/// A collective and the kernel that the model charges it to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Paid {
    /// The kernel, as the workload counts them.
    pub(super) kernel: usize,
    /// It brings the kernel what it reads; otherwise it passes on what the kernel made.
    pub(super) ahead: bool,
    /// The collective.
    pub(super) comm: Comm,
}

/// Collectives of each partition for one pass.
pub(super) fn of_partitions(plan: &Plan) -> Result<Vec<Vec<Paid>>, String> {
    let Lists { mut comms, seconds } = lists(plan)?;
    comms.truncate(plan.figures.partitions.len());
    for (i, (figures, derived)) in plan.figures.partitions.iter().zip(&seconds).enumerate() {
        if !agree(figures.network_s, *derived, 1e-6) {
            return Err(format!(
                "internal error, please report it: the collectives of partition {i} take {derived:e} s, the plan says {:e} s",
                figures.network_s
            ));
        }
    }
    Ok(comms)
}

struct Lists {
    comms: Vec<Vec<Paid>>,
    seconds: Vec<f64>,
}

fn lists(plan: &Plan) -> Result<Lists, String> {
    let (w, options, d) = (&plan.workload, &plan.system.model, &plan.decisions);
    let f = &plan.figures;
    let own = own_groups(&plan.system, &d.uses);
    let (tensor_group, data_group) = (own.tensor.clone(), own.data.clone());
    let samples = samples_per_pass(w, options);
    let mut out = Lists { comms: vec![Vec::new(); f.partitions.len()], seconds: vec![0.0; f.partitions.len()] };
    let mut put = |kernel: usize, ahead: bool, comm: Option<Comm>, seconds: f64| {
        let p = d.partition.get(kernel).copied().unwrap_or_default();
        if let (Some(list), Some(sum)) = (out.comms.get_mut(p), out.seconds.get_mut(p)) {
            list.extend(comm.map(|comm| Paid { kernel, ahead, comm }));
            *sum += seconds;
        }
    };
    for (k, kernel) in w.kernels.iter().enumerate() {
        for c in &kernel.collectives {
            let (group, ranks) = match c.scope {
                Scope::Tensor => (Group::Tensor, f.tp),
                Scope::Data => (Group::Replicas, f.dp),
                Scope::All => (Group::Stage, f.tp * f.dp),
                Scope::GridRow | Scope::GridColumn => {
                    return Err(format!("kernel {}: a process grid has no Chakra trace yet", kernel.name));
                }
            };
            let share = if c.kind == CollectiveKind::AllToAll { f.tp as f64 } else { 1.0 };
            put(k, false, comm(group, c.kind, c.bytes * samples / share, ranks, c.times)?, 0.0);
        }
        put(k, false, None, collective::own_seconds(kernel, &own, samples, options));
        if w.training && options.gradient_reduction == GradientReduction::PerMicrobatch {
            let strategy = *d.sharding.get(k).ok_or("a kernel without strategy")?;
            let bytes = gradient_bytes(kernel, strategy, f.tp, w.word_bytes) / microbatches(w, options, f.dp);
            let one =
                if bytes > 0.0 { comm(Group::Replicas, CollectiveKind::AllReduce, bytes, f.dp, 1)? } else { None };
            put(k, false, one, collective::gradient_seconds(&data_group, bytes, options));
        }
    }
    for (id, tensor) in w.tensors.iter().enumerate() {
        let Some(producer) = tensor.producer else { continue };
        let strategy = |k: usize| d.sharding.get(k).copied().ok_or("a kernel without strategy");
        let made = produced(strategy(producer)?, options.layouts);
        let forward = |k: usize| w.kernels.get(k).is_some_and(|kernel| kernel.phase == Phase::Forward);
        let block = |k: usize| w.kernels.get(k).map_or(0, |kernel| kernel.block);
        let next =
            w.tensors.iter().filter(|t| options.boundary_tensors == Charge::Charged && t.carried_from == Some(id));
        let (inside, across): (Vec<&Use>, Vec<&Use>) =
            tensor.consumers.iter().partition(|u| block(u.kernel) == block(producer));
        let readers = (inside.into_iter().map(|u| (u, false)))
            .chain(next.flat_map(|t| t.consumers.iter().map(|u| (u, true))))
            .chain(across.into_iter().map(|u| (u, false)));
        let mut done: Vec<(bool, Layout)> = Vec::new();
        for (u, next_layer) in readers {
            let kernel = w.kernels.get(u.kernel).ok_or("a reader that does not exist")?;
            let wanted = required(kernel, u.slot, strategy(u.kernel)?, options.layouts);
            let crosses = !next_layer && block(u.kernel) != block(producer);
            // The producer pays for readers of its phase and of the next layer, the first reader of another phase for itself.
            let at_producer = next_layer || crosses || forward(producer) == forward(u.kernel);
            if options.tensor_fanout == Fanout::Shared && done.contains(&(at_producer, wanted)) {
                continue;
            }
            done.push((at_producer, wanted));
            let Ok(Some(kind)) = conversion(made, wanted) else { continue };
            let bytes = samples
                * match kind {
                    CollectiveKind::AllToAll => {
                        tensor_bytes(tensor, made, f.tp, Tiling::new(d.tiles, options), w.word_bytes).0
                    }
                    _ => tensor.bytes(w.word_bytes),
                };
            let seconds = collective::seconds(kind, &tensor_group, bytes, options);
            // Between blocks the one that is repeated less pays, the reader's of equals.
            let fewer = w.repeats(block(u.kernel)) <= w.repeats(block(producer));
            let (payer, other) =
                if !at_producer || (crosses && fewer) { (u.kernel, producer) } else { (producer, u.kernel) };
            let (only, share) = match crosses {
                true if block(other) < block(payer) => (Some(End::First), w.repeats(block(payer)) as f64),
                true => (Some(End::Last), w.repeats(block(payer)) as f64),
                false => (None, 1.0),
            };
            let comm = comm(Group::Tensor, kind, bytes, f.tp, 1)?.map(|comm| Comm { only, ..comm });
            put(payer, payer != producer, comm, seconds / share);
        }
    }
    Ok(out)
}

/// A collective of `bytes` as the model counts them (those of the whole tensor); none among one rank.
fn comm(group: Group, kind: CollectiveKind, bytes: f64, ranks: u64, times: u64) -> Result<Option<Comm>, String> {
    if ranks <= 1 {
        return Ok(None);
    }
    let (kind, share) = match kind {
        CollectiveKind::AllReduce => (CommType::AllReduce, 1.0),
        CollectiveKind::AllGather => (CommType::AllGather, ranks as f64),
        CollectiveKind::ReduceScatter => (CommType::ReduceScatter, 1.0),
        CollectiveKind::AllToAll => (CommType::AllToAll, 1.0),
        CollectiveKind::Broadcast => (CommType::Broadcast, 1.0),
        CollectiveKind::PointToPoint => {
            return Err("a kernel that sends to one other chip has no Chakra trace yet".into());
        }
    };
    Ok(Some(Comm { group, kind, bytes: whole_bytes(bytes / share), times, only: None }))
}

/// Bytes as a whole number, rounded up.
pub(super) fn whole_bytes(bytes: f64) -> u64 {
    // Sums of many terms end a hair above a whole number.
    (bytes - 1e-6 * bytes.max(1.0).log10()).ceil().max(0.0) as u64
}

/// Bytes that a chip passes across a cut between two stages for one microbatch, one entry a tensor.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Crossing {
    /// Activations, to the next stage.
    pub(super) forward: Vec<u64>,
    /// Gradients, to the stage before.
    pub(super) backward: Vec<u64>,
}

impl Crossing {
    /// Between a unit of the block `before` and the next one, of the block `after`: what a block carries, or what one hands to the other, as the reader
    /// wants it.
    pub(super) fn of(plan: &Plan, before: usize, after: usize) -> Self {
        let w = &plan.workload;
        let block = |k: usize| w.kernels.get(k).map_or(0, |kernel| kernel.block);
        let mut out = Self::default();
        for tensor in &w.tensors {
            let made = |id: usize| w.tensors.get(id).and_then(|t| t.producer);
            let (maker, reader) = if before == after {
                (tensor.carried_from.map(made), before)
            } else {
                let maker = tensor.producer.filter(|p| block(*p) == before || block(*p) == after);
                (maker.map(Some), if maker.is_some_and(|p| block(p) == before) { after } else { before })
            };
            let Some(maker) = maker else { continue };
            let bytes = (tensor.consumers.iter())
                .filter(|u| block(u.kernel) == reader)
                .filter_map(|u| Some((u, w.kernels.get(u.kernel)?, plan.decisions.sharding.get(u.kernel)?)))
                .map(|(u, kernel, strategy)| {
                    let layout = required(kernel, u.slot, *strategy, plan.system.model.layouts);
                    tensor_bytes(tensor, layout, plan.figures.tp, Tiling::WHOLE, w.word_bytes).0
                })
                .reduce(f64::max);
            let Some(bytes) = bytes else { continue };
            let ahead = maker.and_then(|p| w.kernels.get(p)).is_none_or(|k| k.phase == Phase::Forward);
            let list = if ahead { &mut out.forward } else { &mut out.backward };
            list.push(whole_bytes(bytes * w.micro_batch as f64));
        }
        out
    }
}
