//! What is certain of the tensors at the ends of a block in a set of shardings of its chain.

use super::super::relaxed::{Open, least};
use super::{Blocks, Set};
use crate::graph::{Collective, Scope, Use};
use crate::model::Strategy;
use crate::model::layout::{Layout, conversion, produced};
use crate::system::options::NetworkModel;
use crate::workload::{CollectiveKind, Phase, Tensor, Workload};

/// What is said of a block's ends: the inputs that lie smaller in the DRAM than their readers want them, and the results that lie smaller there than they are made; bytes that
/// results take there beyond what the block by itself says; and the conversions that its kernels pay.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Ends {
    /// Tensor of the block, whether readers of the backward pass, and the factor.
    scaled: Vec<(usize, bool, f64)>,
    /// Kernel of the block, and bytes of a sample on a chip.
    stored: Vec<(usize, f64)>,
    /// Kernel of the block.
    converted: Vec<(usize, Collective)>,
}

impl Ends {
    /// A block of which the tensors at its ends are as they are said to be.
    pub(super) fn given_to(&self, graph: &Workload) -> Workload {
        let mut w = Workload { repeat: 1, ..graph.clone() };
        for (k, collective) in &self.converted {
            w.kernels[*k].collectives.push(collective.clone());
        }
        for (k, bytes) in &self.stored {
            let kernel = &mut w.kernels[*k];
            // A kernel whose own bytes are shared keeps them so: less of what it stores is a bound too.
            if kernel.extra_dram_on_each || kernel.extra_dram_bytes == 0.0 {
                kernel.extra_dram_bytes += bytes;
                kernel.extra_dram_on_each = true;
            }
        }
        let word = w.word_bytes;
        for (id, backward, factor) in &self.scaled {
            let smaller = w.tensors[*id].word_or(word) * factor;
            let whole = w.tensors[*id].producer.is_some()
                || w.tensors[*id].consumers.iter().all(|u| (w.kernels[u.kernel].phase != Phase::Forward) == *backward);
            if whole {
                w.tensors[*id].word = Some(smaller);
                continue;
            }
            // No partition has readers of both passes, so that those of one may read a tensor of their own.
            let in_backward = |u: &Use| (w.kernels[u.kernel].phase != Phase::Forward) == *backward;
            let (own, others): (Vec<Use>, Vec<Use>) = w.tensors[*id].consumers.iter().copied().partition(in_backward);
            let name =
                format!("{} of the {} pass", w.tensors[*id].name, if *backward { "backward" } else { "forward" });
            let apart = Tensor { name, consumers: own, word: Some(smaller), ..w.tensors[*id].clone() };
            w.tensors[*id].consumers = others;
            w.tensors.push(apart);
        }
        w
    }
}

impl Blocks<'_> {
    /// What is certain of a block's ends in a set.
    pub(super) fn ends(&self, b: usize, set: &Set) -> Ends {
        let w = self.search.workload;
        let graph = &self.search.blocks[b].0;
        let block = |k: usize| w.kernels[k].block;
        let mut out = Ends::default();
        for (id, kernels) in &self.crossing {
            let tensor = &w.tensors[*id];
            let (Some(p), true) = (tensor.producer, kernels.iter().any(|k| block(*k) == b)) else { continue };
            let Some(at) = graph.tensors.iter().position(|t| t.name == tensor.name) else { continue };
            let counts = set.tiles.map_or(self.tiles.clone(), |t| vec![t]);
            let factor = |of: &dyn Fn(u64) -> f64| counts.iter().map(|t| of(*t)).fold(f64::INFINITY, f64::min);
            match block(p) == b {
                true if self.is_stored_for_others(*id) => {
                    let more = factor(&|t| {
                        let (whole, alone) = self.stored(*id, &set.open, t);
                        whole - alone
                    });
                    let share = factor(&|t| {
                        let (whole, alone) = self.stored(*id, &set.open, t);
                        whole / alone
                    });
                    // Less than by itself is less of the tensor: bytes that a kernel moves are never below nothing, which searches rely on.
                    if more > 0.0 {
                        out.stored.push((self.place(p).1, more));
                    } else if share < 1.0 {
                        out.scaled.push((at, false, share));
                    }
                }
                true => {}
                false => {
                    for backward in [false, true] {
                        let read = |u: &&Use| {
                            block(u.kernel) == b && (w.kernels[u.kernel].phase != Phase::Forward) == backward
                        };
                        let readers: Vec<&Use> = tensor.consumers.iter().filter(read).collect();
                        let share = |t: u64| {
                            let (stored, _) = self.stored(*id, &set.open, t);
                            let of = |u: &&Use| {
                                let widest =
                                    set.open[u.kernel].iter().map(|s| self.bytes(tensor, self.wanted(u, *s), t));
                                stored / widest.fold(0.0, f64::max)
                            };
                            readers.iter().map(of).fold(1.0, f64::min)
                        };
                        let factor = factor(&share);
                        if factor < 1.0 && !readers.is_empty() {
                            out.scaled.push((at, backward, factor));
                        }
                    }
                }
            }
            self.conversions((*id, p), kernels, set, (b, &mut out.converted));
        }
        out
    }

    /// Bytes of a sample of a tensor as it lies in the DRAM, at least ([`super::super::instance`]: as the widest of those readers wants it that it is
    /// converted for, else as it is made); and as the block by itself has it, at most.
    fn stored(&self, id: usize, open: &Open, tiles: u64) -> (f64, f64) {
        let w = self.search.workload;
        let tensor = &w.tensors[id];
        let Some(p) = tensor.producer else { return (f64::INFINITY, f64::INFINITY) };
        let made = |s: Strategy| self.bytes(tensor, produced(s, self.search.system.model.layouts), tiles);
        let block = |k: usize| w.kernels[k].block;
        let forward = |k: usize| w.kernels[k].phase == Phase::Forward;
        let more = |u: &Use| w.repeats(block(u.kernel)) > w.repeats(block(p));
        let carried = w.tensors.iter().filter(|t| t.carried_from == Some(id)).flat_map(|t| &t.consumers);
        let here = |u: &&Use| forward(u.kernel) == forward(p) && block(u.kernel) == block(p);
        let own: Vec<&Use> = tensor.consumers.iter().filter(here).chain(carried).collect();
        let others = |u: &&Use| forward(u.kernel) == forward(p) && block(u.kernel) != block(p) && more(u);
        let others: Vec<&Use> = tensor.consumers.iter().filter(others).collect();
        let least_of = |u: &&Use| least(&open[u.kernel], |s| self.bytes(tensor, self.wanted(u, s), tiles));
        let most_of =
            |u: &&Use| open[u.kernel].iter().map(|s| self.bytes(tensor, self.wanted(u, *s), tiles)).fold(0.0, f64::max);
        let whole = own.iter().chain(&others).map(least_of).fold(0.0, f64::max);
        let alone = own.iter().map(most_of).fold(0.0, f64::max);
        let most_made = open[p].iter().map(|s| made(*s)).fold(0.0, f64::max);
        (
            if own.is_empty() && others.is_empty() { least(&open[p], made) } else { whole },
            if own.is_empty() { most_made } else { alone },
        )
    }

    /// Whether readers in other blocks, and none in its own, say how a tensor lies in the DRAM: those in its own would, too, in the block by itself.
    fn is_stored_for_others(&self, id: usize) -> bool {
        let w = self.search.workload;
        let tensor = &w.tensors[id];
        let Some(p) = tensor.producer else { return false };
        let block = |k: usize| w.kernels[k].block;
        let same_pass =
            |u: &&Use| (w.kernels[u.kernel].phase == Phase::Forward) == (w.kernels[p].phase == Phase::Forward);
        let own = tensor.consumers.iter().filter(same_pass).any(|u| block(u.kernel) == block(p))
            || w.tensors.iter().any(|t| t.carried_from == Some(id) && !t.consumers.is_empty());
        !own && tensor.consumers.iter().filter(same_pass).any(|u| w.repeats(block(u.kernel)) > w.repeats(block(p)))
    }

    /// The conversions of a tensor from one block to another that kernels of a block pay once a microbatch, where all is decided.
    fn conversions(
        &self,
        (id, p): (usize, usize),
        kernels: &[usize],
        set: &Set,
        (b, out): (usize, &mut Vec<(usize, Collective)>),
    ) {
        let w = self.search.workload;
        let options = &self.search.system.model;
        let flowspace = options.network_model == NetworkModel::Flowspace;
        // Whole it is padded least.
        let tiles = set.tiles.or((self.tiles.len() == 1).then(|| self.tiles[0])).unwrap_or(1);
        if !flowspace || kernels.iter().any(|k| set.open[*k].len() > 1) {
            return;
        }
        let tensor = &w.tensors[id];
        let block = |k: usize| w.kernels[k].block;
        let forward = |k: usize| w.kernels[k].phase == Phase::Forward;
        let made = produced(set.open[p][0], options.layouts);
        let wanted = |u: &Use| self.wanted(u, set.open[u.kernel][0]);
        let carried = w.tensors.iter().filter(|t| t.carried_from == Some(id)).flat_map(|t| &t.consumers);
        let inside = tensor.consumers.iter().filter(|u| block(u.kernel) == block(p) && forward(u.kernel) == forward(p));
        let mut paid: Vec<Layout> = inside.chain(carried).map(wanted).collect();
        for u in tensor.consumers.iter().filter(|u| block(u.kernel) != block(p)) {
            let to = wanted(u);
            if paid.contains(&to) {
                continue;
            }
            paid.push(to);
            let fewer = w.repeats(block(u.kernel)) <= w.repeats(block(p));
            let payer = if fewer { u.kernel } else { p };
            // Paid once by a block that is repeated it is next to nothing of a unit.
            if block(payer) != b || w.repeats(b) > 1 {
                continue;
            }
            if let Ok(Some(kind)) = conversion(made, to) {
                let bytes = match kind {
                    CollectiveKind::AllToAll => self.bytes(tensor, made, tiles) * self.degrees.tp as f64,
                    _ => tensor.bytes(w.word_bytes),
                };
                let (_, at) = self.place(payer);
                out.push((at, Collective { kind, bytes, scope: Scope::Tensor, times: 1 }));
            }
        }
    }
}
