//! The free inner search of chips that run kernel by kernel: what is possible with the kernels that the chip's file has.
//!
//! A layer's mapping ([`super::mapping`]) is searched over every way to divide each matrix, every attention kernel or none, and every fusion; kernels, collectives and bytes are
//! priced as those of a stack, one of whose decisions they are, so that what the stack does is one of the mappings ([`Machine::possible`] says by which numbers).
//!
//! The sums that a pass is made of are sums over four parts of the layer (attention's matrices, core, perceptron, the rest), and a mapping's choice for a part decides that part
//! alone. So each choice of a part is priced once, and their product is small enough to be gone through whole: that is the elimination, on a graph without width. A fusion never takes
//! longer where it is only left out bytes and launches, so that three of them are always taken; sums with norms compete with what the stack's own elementwise kernels reach.
//!
//! A mapping is dropped if another is no worse in each of: forward pass, backward pass without gradients of weights, these, kept and working bytes. An iteration does not become
//! slower when one of these becomes less, whatever schedule, ZeRO, offload and overlap: so one of those left is the best, and their least bounds the cell. Where joules count,
//! it must use no more FLOP, seconds of arithmetic, bytes and joules of links either.

use super::block::{Best, BlockKey, BlockPass, Blocks, Inner, Space};
use super::layer::{Division, Kernels, Sums};
use super::machine::{Machine, Sent};
use super::mapping::{Branch, Core, Fusions, LayerMapping, branch_collectives, branches, more_bytes};
use super::policy::{layer_bytes, layer_pass};
use super::spec::Recompute;
use crate::deadline::Deadline;
use crate::workload::language::LanguageModel;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// What is possible for a model on a machine.
pub struct Possible<'a> {
    machine: &'a Machine,
    model: &'a LanguageModel,
    peak: f64,
    /// Whether tokens may be divided, and weights gathered.
    gathers: bool,
    /// Whether joules count beside seconds.
    joules: bool,
    priced: RefCell<HashMap<Division, Rc<Priced>>>,
}

/// What a mapping is compared by: seconds and bytes kept, then what counts joules.
const PARTS: usize = 26;

/// Divisions whose prices are kept at once.
const MOST: usize = 20_000;

/// The mappings of a kind of layer that may be best, each with its sums.
type Layers = Vec<(LayerMapping, Sums)>;

/// The prices of a division.
struct Priced {
    plain: Layers,
    experts: Layers,
    embedding: Sums,
    head: Sums,
}

impl<'a> Possible<'a> {
    /// Of a machine made by [`Machine::possible`].
    ///
    /// # Errors
    /// A sentence that names the data type for which the chip states no peak.
    pub fn new(machine: &'a Machine, model: &'a LanguageModel) -> Result<Self, String> {
        Ok(Self {
            machine,
            model,
            peak: machine.peak(model)?,
            gathers: true,
            joules: false,
            priced: RefCell::default(),
        })
    }

    /// With every matrix divided as stacks do.
    pub fn without_gathers(self) -> Self {
        Self { gathers: false, ..self }
    }

    /// For an objective that counts joules: a mapping beats another if it also uses no more of anything.
    pub fn with_joules(self, joules: bool) -> Self {
        Self { joules, ..self }
    }

    fn branches(&self, division: &Division, of_attention: bool, with_experts: bool) -> &'static [Branch] {
        let all = branches(self.model, division, of_attention, with_experts);
        if self.gathers { all } else { &all[..1] }
    }

    fn cores(&self) -> Vec<Core> {
        (0..self.machine.attention_kernels.len()).map(Core::Kernel).chain([Core::Unfused]).collect()
    }

    fn kernels(&self, division: Division) -> Kernels<'a> {
        Kernels::new(self.machine, self.model, division, self.peak)
    }

    /// The mappings of a layer with the sums of their parts, without those that another beats in each part.
    fn layers(&self, division: Division, with_experts: bool) -> Layers {
        let of = |branch: Branch, core: Core, sums: bool| LayerMapping {
            attention: branch,
            perceptron: branch,
            core,
            fused: Fusions { sums, ..Fusions::ALL },
        };
        let part =
            |mapping: LayerMapping, i: usize| Sums::of(&self.kernels(division).by(&mapping).part(i, with_experts));
        let cores = self.cores();
        let attention = self.branches(&division, true, with_experts);
        let perceptron = self.branches(&division, false, with_experts);
        let by_branch = |all: &[Branch], i: usize| -> Vec<(Branch, Sums)> {
            all.iter().map(|b| (*b, part(of(*b, cores[0], true), i))).collect()
        };
        let (attention, perceptron) = (by_branch(attention, 0), by_branch(perceptron, 2));
        // What is re-ordered depends on whether the core is one kernel.
        let middle = |core: Core| {
            let own = part(of(Branch::WEIGHTS, core, true), 1);
            let rest = |sums: bool| (sums, own.plus(&part(of(Branch::WEIGHTS, core, sums), 3)));
            [true, false].map(rest).map(move |(sums, s)| (core, sums, s))
        };
        let middle: Vec<(Core, bool, Sums)> = cores.iter().flat_map(|core| middle(*core)).collect();
        let travels = |all: &[(Branch, Sums)], of_attention: bool| -> Vec<[Sent; 3]> {
            let of = |branch| branch_collectives(self.machine, self.model, &division, branch, of_attention);
            all.iter().map(|(b, _)| if division.tp > 1 { of(*b) } else { [Sent::default(); 3] }).collect()
        };
        let (by_attention, by_perceptron) = (travels(&attention, true), travels(&perceptron, false));
        let mut out: Vec<(LayerMapping, Sums, [f64; PARTS])> = Vec::new();
        for ((a, of_attention), first) in attention.iter().zip(&by_attention) {
            for ((p, of_perceptron), second) in perceptron.iter().zip(&by_perceptron) {
                let matrices = of_attention.plus(of_perceptron);
                let travelling = [0, 1, 2].map(|i| first[i] + second[i]);
                for (core, sums, rest) in &middle {
                    let mapping = LayerMapping { attention: *a, perceptron: *p, ..of(*a, *core, *sums) };
                    let sums = matrices.plus(rest);
                    let parts = self.parts(&division, &mapping, &sums, travelling);
                    // Differences of sums are equal up to rounding.
                    let beats =
                        |a: &[f64; PARTS], b: &[f64; PARTS]| a.iter().zip(b).all(|(a, b)| *a <= b + 1e-12 * b.abs());
                    if !out.iter().any(|(.., known)| beats(known, &parts)) {
                        out.retain(|(.., known)| !beats(&parts, known));
                        out.push((mapping, sums, parts));
                    }
                }
            }
        }
        out.into_iter().map(|(mapping, sums, _)| (mapping, sums)).collect()
    }

    /// Seconds, bytes and what is used of a mapping such that one with less of each is no worse, whatever is computed again or runs beside what. More products hide more of what
    /// travels, but no more than they take.
    fn parts(&self, division: &Division, mapping: &LayerMapping, s: &Sums, travelling: [Sent; 3]) -> [f64; PARTS] {
        let (kept, working) = more_bytes(self.model, division, Recompute::None, mapping);
        let timed = [
            s.forward_attention,
            s.forward_products,
            s.forward - s.forward_attention - s.forward_products,
            s.backward_attention,
            s.backward_products,
            s.backward() - s.backward_attention - s.backward_products,
            s.backward_input,
            s.backward_weight,
            travelling[0].seconds,
            travelling[1].seconds,
            travelling[2].seconds,
            kept,
            working,
            f64::from(u8::from(mapping.core == Core::Unfused)),
        ];
        let [core, products, backward] = s.arithmetic;
        let used = [
            s.attention_flop,
            s.forward_flop - s.attention_flop,
            s.backward_flop,
            core,
            products,
            backward,
            s.bytes[1],
            s.bytes[0] - s.bytes[1],
            s.bytes[2],
            travelling[0].joules,
            travelling[1].joules,
            travelling[2].joules,
        ];
        let mut out = [0.0; PARTS];
        out[..timed.len()].copy_from_slice(&timed);
        if self.joules {
            out[timed.len()..].copy_from_slice(&used);
        }
        out
    }

    fn priced(&self, division: Division) -> Rc<Priced> {
        let mut known = self.priced.borrow_mut();
        if known.len() >= MOST {
            known.clear();
        }
        let of = || {
            let layers = |there: bool, with| if there { self.layers(division, with) } else { Vec::new() };
            Rc::new(Priced {
                plain: layers(self.model.dense_layers() > 0, false),
                experts: layers(self.model.expert_layers() > 0, true),
                embedding: Sums::of(&self.kernels(division).embedding()),
                head: Sums::of(&self.kernels(division).head()),
            })
        };
        known.entry(division).or_insert_with(of).clone()
    }

    /// The passes of given mappings of a layer without and with experts.
    ///
    /// # Errors
    /// Which of them is none of the space, or is missing, and a sentence.
    pub fn given(
        &self,
        key: &BlockKey,
        mappings: [Option<&LayerMapping>; 2],
    ) -> Result<Blocks, (&'static str, String)> {
        let division = key.division;
        let there = [self.model.dense_layers() > 0, self.model.expert_layers() > 0];
        let layer = |with_experts: bool| {
            let i = usize::from(with_experts);
            let word = ["layer", "expert_layer"][i];
            let mapping = match mappings[i] {
                Some(_) if !there[i] => return Err((word, format!("{} has no such layers", self.model.name))),
                _ if !there[i] => return Ok(BlockPass::default()),
                Some(mapping) => mapping,
                None => return Err((word, format!("is missing, and {} has such layers", self.model.name))),
            };
            for (of_attention, branch, name) in
                [(true, mapping.attention, "attention"), (false, mapping.perceptron, "perceptron")]
            {
                if !self.branches(&division, of_attention, with_experts).contains(&branch) {
                    let (first, last) = (branch.first, branch.last);
                    let message = format!(
                        "{name} has no division with first {first} and last {last} among {} chips in this execution",
                        division.tp
                    );
                    return Err((word, message));
                }
            }
            let kernels = self.kernels(division).by(mapping).layer(with_experts);
            Ok(layer_pass(self.machine, self.model, key, with_experts, mapping, &Sums::of(&kernels)))
        };
        let ends = [Sums::of(&self.kernels(division).embedding()), Sums::of(&self.kernels(division).head())];
        let around = Blocks::of_ends(self.machine, self.model, key, [&ends[0], &ends[1]]);
        Ok(Blocks { plain: layer(false)?, experts: layer(true)?, ..around })
    }

    /// The passes of a kind of layer of which none is worse than another in everything; one without kernels where the model has no such layer.
    fn passes(&self, key: &BlockKey, layers: &Layers, with_experts: bool) -> Vec<BlockPass> {
        let mut out: Vec<BlockPass> = Vec::new();
        for (mapping, sums) in layers {
            let pass = layer_pass(self.machine, self.model, key, with_experts, mapping, sums);
            if out.iter().any(|known| is_as_good(known, &pass, self.joules)) {
                continue;
            }
            out.retain(|known| !is_as_good(&pass, known, self.joules));
            out.push(pass);
        }
        if out.is_empty() {
            out.push(BlockPass::default());
        }
        out
    }
}

/// Whether no execution is faster, or fits, or (where joules count) uses less, with `b` where it is not, does not, or does not, with `a`.
fn is_as_good(a: &BlockPass, b: &BlockPass, joules: bool) -> bool {
    // Of one execution context and expert parallelism are as busy by every mapping.
    let busy = |p: &BlockPass| [p.forward_busy[0], p.backward_busy[0]];
    let timed = |p: &BlockPass| {
        let [forward, backward] = busy(p);
        [p.forward_pass, p.backward_pass - p.weight, p.weight, p.kept, p.working, forward, backward]
    };
    let used = |p: &BlockPass| [p.flop, p.arithmetic, p.dram_bytes, p.exposed.joules];
    let least = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| a <= b);
    least(&timed(a), &timed(b)) && (!joules || least(&used(a), &used(b)))
}

/// The least of each part.
fn least(passes: &[BlockPass]) -> BlockPass {
    let mut out = passes[0];
    for p in &passes[1..] {
        out.forward_pass = out.forward_pass.min(p.forward_pass);
        out.backward_pass = out.backward_pass.min(p.backward_pass);
        for g in 0..3 {
            out.forward_busy[g] = out.forward_busy[g].min(p.forward_busy[g]);
            out.backward_busy[g] = out.backward_busy[g].min(p.backward_busy[g]);
        }
        out.kept = out.kept.min(p.kept);
        out.working = out.working.min(p.working);
        out.flop = out.flop.min(p.flop);
        out.arithmetic = out.arithmetic.min(p.arithmetic);
        out.dram_bytes = out.dram_bytes.min(p.dram_bytes);
        out.exposed.joules = out.exposed.joules.min(p.exposed.joules);
    }
    out
}

impl Inner for Possible<'_> {
    fn bound(&self, key: &BlockKey) -> Blocks {
        let priced = self.priced(key.division);
        Blocks {
            plain: least(&self.passes(key, &priced.plain, false)),
            experts: least(&self.passes(key, &priced.experts, true)),
            ..Blocks::of_ends(self.machine, self.model, key, [&priced.embedding, &priced.head])
        }
    }

    fn held(&self, key: &BlockKey) -> Blocks {
        // No core keeps less than one kernel.
        let cores = self.cores();
        Blocks::holding(self.machine, self.model, key, |with_experts| {
            let mut least = (f64::INFINITY, f64::INFINITY);
            for attention in self.branches(&key.division, true, with_experts) {
                for perceptron in self.branches(&key.division, false, with_experts) {
                    let (attention, perceptron) = (*attention, *perceptron);
                    let mapping = LayerMapping { attention, perceptron, core: cores[0], fused: Fusions::ALL };
                    let (kept, working) = layer_bytes(&self.machine.stack, self.model, key, with_experts, &mapping);
                    least = (least.0.min(kept), least.1.min(working));
                }
            }
            least
        })
    }

    fn best(&self, key: &BlockKey, bound: &Blocks, _: u32, _: Deadline) -> Result<Vec<Best>, String> {
        let priced = self.priced(key.division);
        let experts = self.passes(key, &priced.experts, true);
        let mut out = Vec::new();
        for plain in self.passes(key, &priced.plain, false) {
            for experts in &experts {
                let blocks = Blocks { plain, experts: *experts, ..*bound };
                out.push(Best { blocks, least: blocks, effort: None, plan: None });
            }
        }
        Ok(out)
    }

    fn space(&self) -> Space {
        Space { divides: true, exact: false }
    }
}
