//! On which system a measured training run is predicted: `validation/machines.yaml`.

use super::accelerators;
use super::boxes;
use super::point::{Point, stated_recompute};
use super::predict::NotPredicted;
use crate::execution::search::Pins;
use crate::execution::{Execution, Machine, Offload, Recompute, Schedule, Zero};
use crate::spec::{Loader, Problems, Reader, catalogue, read::Ref};
use crate::system::System;
use crate::workload::language::{DataType, LanguageModel};
use std::path::Path;

crate::spec! {
    /// A machine that measured runs ran on.
    pub struct Known ("a machine") {
        /// The chip, by our name.
        chip: String,
        /// A part of the row's accelerator (`40GB`); left out: any.
        accelerator: Option<String>,
        /// The class of measurements; left out: any.
        class: Option<String>,
        /// A part of the row's source; left out: any.
        of: Option<String>,
        /// The divided training state that a row states; left out: any, or none.
        runs_zero: Option<Zero>,
        /// Its system; the sizes of the dimensions from `grows` on are those of the row.
        system: Ref<System>,
        /// The dimension, counted from 1 at the innermost, that takes the chips that are left.
        grows: u64,
        /// Divided training state, where a row does not say.
        zero: Option<Zero>,
        /// Pieces of layers of a stage, where a row does not say.
        chunks: Option<u64>,
        /// What is computed again, where a row does not say.
        recompute: Option<Recompute>,
        /// Whether its software reduces gradients beside the backward pass.
        overlap_dp: bool = false,
        /// Whether its software runs tensor-parallel collectives beside products.
        overlap_tp: bool = false,
    }
}

crate::spec! {
    /// Machines, of which the first that suits is taken.
    pub struct MachineList ("machines") {
        /// The machines.
        machines: Vec<Known>,
    }
}

/// The compiled-in list.
///
/// # Errors
/// All [`Problems`] of its files.
pub fn shipped() -> Result<Vec<Known>, Problems> {
    from(Path::new(&format!("{}validation/machines.yaml", catalogue::SCHEME)))
}

/// The list of a file.
///
/// # Errors
/// All [`Problems`] of the file and those it names.
pub fn from(path: &Path) -> Result<Vec<Known>, Problems> {
    Ok(Reader::read::<MachineList>(&Loader.load(path, None)?)?.machines)
}

impl Known {
    fn suits(&self, chip: &str, point: &Point) -> bool {
        let row = &point.row;
        self.chip == chip
            && self.accelerator.as_deref().is_none_or(|part| row.accelerator.contains(part))
            && self.class.as_deref().is_none_or(|c| c == point.class.word())
            && (self.runs_zero.is_none() || self.runs_zero == point.notes.zero)
            && self.of.as_deref().is_none_or(|part| row.source.contains(part))
    }

    /// A point's execution with what the machine's software does where the row does not say.
    pub fn completes(&self, point: &Point, stated: &Execution) -> Execution {
        let mut execution = stated.clone();
        if let Some(zero) = self.zero.filter(|_| point.notes.zero.is_none()) {
            execution.zero = zero;
        }
        if let Some(chunks) = self.chunks.filter(|_| point.row.interleave.is_none() && execution.pp > 1) {
            execution.chunks = chunks;
            execution.schedule = if chunks > 1 { Schedule::Interleaved } else { execution.schedule };
        }
        if let Some(recompute) = self.recompute.filter(|_| point.row.recompute.is_empty()) {
            execution.recompute = recompute;
        }
        execution.overlap_dp |= self.overlap_dp && !point.notes.dp_not_overlapped;
        execution.overlap_tp |= self.overlap_tp && execution.tp > 1;
        // That a source divides the training state says nothing of what its software hides.
        execution.overlap_dp &= self.software_overlaps();
        execution
    }

    /// Whether its software can reduce gradients beside the backward pass.
    fn software_overlaps(&self) -> bool {
        self.system.0.stack.as_ref().is_none_or(|stack| stack.0.overlap_dp)
    }

    /// What is known of an execution whose degrees are not stated.
    pub fn pins(&self, point: &Point) -> Pins {
        Pins {
            chips: point.row.chips,
            tp: point.row.tp,
            pp: point.row.pp,
            dp: point.row.dp,
            cp: Some(point.notes.cp.unwrap_or(1)),
            micro_batch: point.row.micro_batch,
            zero: point.notes.zero.or(self.zero),
            recompute: stated_recompute(&point.row, &point.notes, point.source).or(self.recompute),
            offload: Some(Offload::None),
            overlap_dp: Some(self.overlap_dp && !point.notes.dp_not_overlapped),
            overlap_tp: Some(self.overlap_tp),
            ..Pins::default()
        }
    }

    /// The system with `chips` chips in `slices`.
    fn of_size(&self, chips: u64, slices: u64) -> System {
        let mut system = self.system.0.clone();
        let dimensions = &mut system.network.dimensions;
        let grows = (self.grows as usize).clamp(1, dimensions.len().max(1)) - 1;
        let mut left = chips.div_ceil(slices.max(1));
        for (i, dimension) in dimensions.iter_mut().enumerate() {
            dimension.size = match i.cmp(&grows) {
                std::cmp::Ordering::Less => dimension.size.min(left),
                std::cmp::Ordering::Equal => left,
                std::cmp::Ordering::Greater => slices.max(1),
            };
            if i <= grows {
                left = left.div_ceil(dimension.size.max(1));
            }
        }
        system.chips = None;
        system
    }
}

/// Slices that a machine's description begins with: `2x v5p-512 slice`, and not `8x A100`, which are chips.
fn slices(system: &str) -> u64 {
    system
        .split_once('x')
        .filter(|(_, what)| ["slice", "pod"].iter().any(|word| what.contains(word)))
        .and_then(|(count, _)| count.trim().parse().ok())
        .filter(|n| (1..=4096).contains(n))
        .unwrap_or(1)
}

/// The machine a point ran on, with as many chips as it took, and its entry in the list; without one, the box of its chip with the software that the
/// row names or, if it names none, what current software of that kind of chip does.
///
/// # Errors
/// [`NotPredicted`]: no description of the machine, or no number of chips.
pub fn machine<'a>(list: &'a [Known], point: &Point) -> Result<(Machine, Option<&'a Known>), NotPredicted> {
    let (system, known) = system(list, point)?;
    Ok((Machine::new(&system).map_err(NotPredicted)?, known))
}

/// The same as a system.
///
/// # Errors
/// As [`machine`].
pub fn system<'a>(list: &'a [Known], point: &Point) -> Result<(System, Option<&'a Known>), NotPredicted> {
    let row = &point.row;
    let chips = row.chips.ok_or_else(|| NotPredicted::because("the number of chips is not stated"))?;
    let other = point.source.and_then(|source| source.machine.as_deref()).and_then(accelerators::known);
    let listed = other.or(accelerators::known(&row.accelerator));
    let chip = listed.map_or(row.accelerator.as_str(), |l| l.chip.0.name.as_str());
    let known = list.iter().find(|k| k.suits(chip, point));
    let named = accelerators::software(row, chip).or(point.source.and_then(|source| source.stack.as_ref()));
    let known = known.filter(|_| named.is_none());
    let mut system = match (known, listed) {
        (Some(known), _) => known.of_size(chips, slices(&row.system)),
        (None, Some(listed)) => {
            let stack = named.unwrap_or(listed.software());
            boxes::system(listed, &listed.memory, Some(stack), chips).map_err(NotPredicted)?
        }
        (None, None) => return Err(NotPredicted::because(format!("no description of a machine with {chip}"))),
    };
    if let Some(host) = point.source.and_then(|source| source.host_memory.as_ref()) {
        system.offload = Some(host.clone());
    }
    if let Some(share) = row.share_of_chip {
        system = boxes::part_of_chip(system, share);
    }
    Ok((system, known))
}

/// The degrees that a row states, of an execution that is searched.
pub fn stated(point: &Point) -> Pins {
    let row = &point.row;
    let cp = Some(point.notes.cp.unwrap_or(1));
    // With one sample a microbatch, as many replicas as samples are computed at once.
    let replicas = row.global_batch.zip(point.notes.accumulation).zip(row.chips);
    let replicas = replicas.filter(|((batch, times), _)| batch % times == 0).map(|((b, times), c)| (b / times).min(c));
    let source = point.source;
    Pins {
        tp: row.tp,
        pp: row.pp,
        dp: row.dp.or(replicas),
        cp,
        zero: point.notes.zero.or(source.and_then(|s| s.zero)),
        recompute: stated_recompute(row, &point.notes, source)
            .or(source.and_then(|s| s.recompute))
            .or_else(|| accelerators::usual_recompute(row)),
        ..Pins::default()
    }
}

/// A model whose products are in the 16-bit type that a machine's chip has, where they are in the other.
pub fn in_types_of(machine: &Machine, model: &LanguageModel) -> LanguageModel {
    let mut model = model.clone();
    let none = (0.0, 0.0);
    let other = match model.types.compute {
        None => Some(DataType::Fp16),
        Some(DataType::Bf16) => Some(DataType::Fp16),
        Some(DataType::Fp16) => Some(DataType::Bf16),
        Some(_) => None,
    };
    if let Some(other) = other.filter(|_| machine.rate_of(model.types.products(), none) == none) {
        model.types.compute = Some(other);
    }
    model
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_reads_and_grows() {
        for known in shipped().unwrap() {
            for (chips, slices) in [(8, 1), (512, 1), (1024, 2)] {
                let system = known.of_size(chips, slices);
                let several = (known.grows as usize) < known.system.0.network.dimensions.len();
                if several || slices == 1 {
                    assert_eq!(system.chip_count(), chips, "{}", system.name);
                }
                assert!(Machine::new(&system).is_ok());
            }
        }
    }

    #[test]
    fn slices_from_words() {
        assert_eq!(slices("2x v5p-512 slice (3D torus)"), 2);
        assert_eq!(slices("16x v5e-256 pod"), 16);
        assert_eq!(slices("Selene DGX A100 (8 GPU, 8x HDR)"), 1);
        assert_eq!(slices("0x slices"), 1);
        assert_eq!(slices("8x A100-80GB"), 1);
    }
}
