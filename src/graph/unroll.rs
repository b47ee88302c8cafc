//! A repeated layer written out: the graph of several repetitions, one after the other.

use super::{Kernel, Phase, Tensor, Use, WeightOf, Workload};

/// The graph of `copies` repetitions as one, itself repeated as often as its copies fit the original's. What one repetition
/// hands to the next becomes a tensor inside: forward from each copy to the next one, backward from each to the one
/// before. Kernels and tensors are named after their copy (`FFN0.3`). Copies run in their order forward, and in the opposite
/// order backward.
pub fn unrolled(workload: &Workload, copies: u64) -> Workload {
    let copies = usize::try_from(copies.max(1)).unwrap_or(usize::MAX).min(1 << 16);
    let n = workload.kernels.len();
    let forward: Vec<usize> = (0..n).filter(|k| workload.kernels[*k].phase == Phase::Forward).collect();
    let backward: Vec<usize> = (0..n).filter(|k| workload.kernels[*k].phase != Phase::Forward).collect();
    // Position of each kernel of each copy.
    let mut at = vec![vec![0; n]; copies];
    let mut order: Vec<(usize, usize)> = Vec::with_capacity(n * copies);
    order.extend((0..copies).flat_map(|c| forward.iter().map(move |k| (c, *k))));
    order.extend((0..copies).rev().flat_map(|c| backward.iter().map(move |k| (c, *k))));
    order.iter().enumerate().for_each(|(i, (c, k))| at[*c][*k] = i);
    let kernels = order
        .iter()
        .map(|(c, k)| {
            let kernel = &workload.kernels[*k];
            Kernel {
                name: format!("{}.{c}", kernel.name),
                weight_of: kernel.weight_of.map(|owner| WeightOf { kernel: at[*c][owner.kernel] }),
                ..kernel.clone()
            }
        })
        .collect();
    let mut tensors: Vec<Tensor> = Vec::new();
    let mut place = vec![vec![0; workload.tensors.len()]; copies];
    for c in 0..copies {
        for (t, tensor) in workload.tensors.iter().enumerate() {
            place[c][t] = tensors.len();
            let consumers = tensor.consumers.iter().map(|u| Use { kernel: at[c][u.kernel], ..*u }).collect();
            let producer = tensor.producer.map(|p| at[c][p]);
            let name = format!("{}.{c}", tensor.name);
            tensors.push(Tensor { name, producer, consumers, carried_from: None, ..tensor.clone() });
        }
    }
    // What is carried is read where it was made; at the ends of the chain it still comes from, or goes, outside.
    let mut gone = vec![false; tensors.len()];
    let mut joined = vec![false; tensors.len()];
    let mut outer: Vec<(usize, usize)> = Vec::new();
    for (t, tensor) in workload.tensors.iter().enumerate() {
        let Some(from) = tensor.carried_from else { continue };
        let made_forward = workload.tensors[from].producer.is_none_or(|p| workload.kernels[p].phase == Phase::Forward);
        for c in 0..copies {
            let earlier = if made_forward { c.checked_sub(1) } else { (c + 1 < copies).then_some(c + 1) };
            match earlier {
                Some(earlier) => {
                    let readers = std::mem::take(&mut tensors[place[c][t]].consumers);
                    tensors[place[earlier][from]].consumers.extend(readers);
                    gone[place[c][t]] = true;
                    joined[place[earlier][from]] = true;
                }
                None => {
                    let last = if made_forward { copies - 1 } else { 0 };
                    outer.push((place[c][t], place[last][from]));
                }
            }
        }
    }
    for (id, joined) in joined.iter().enumerate() {
        tensors[id].output &= !joined;
    }
    for (to, from) in outer {
        tensors[to].carried_from = Some(from);
    }
    let kept: Vec<usize> = (0..tensors.len()).filter(|i| !gone[*i]).collect();
    let tensors = kept
        .iter()
        .map(|i| Tensor {
            carried_from: tensors[*i].carried_from.and_then(|from| kept.binary_search(&from).ok()),
            ..tensors[*i].clone()
        })
        .collect();
    Workload {
        name: format!("{} x {copies}", workload.name),
        kernels,
        tensors,
        repeat: (workload.repeat / copies as u64).max(1),
        ..workload.clone()
    }
}
