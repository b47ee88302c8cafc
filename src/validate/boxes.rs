//! Systems of chips that measurements name, on which a row is predicted whose machine is not listed.

use super::accelerators::Listed;
use crate::spec::read::{Fraction, Ref};
use crate::system::network::{Arrangement, Network};
use crate::system::{Dimension, Memory, ModelOptions, Stack, System};
use crate::units::{Bandwidth, Bytes, FlopRate};

/// The system of so many chips of a kind: within a box, or in boxes joined by the chips' outer links.
///
/// # Errors
/// A sentence: the chip has no link of that kind.
pub fn system(listed: &Listed, memory: &Ref<Memory>, stack: Option<&Ref<Stack>>, chips: u64) -> Result<System, String> {
    let name = &listed.chip.0.name;
    let mut dimensions = Vec::new();
    let mut add = |size: u64, link: Option<&Ref<crate::system::Link>>, topology, efficiency, what: &str| {
        if size > 1 {
            let link = link.ok_or_else(|| format!("no {what} is known of {name}"))?.clone();
            dimensions.push(Dimension { size, link, topology: Some(topology), efficiency });
        }
        Ok::<(), String>(())
    };
    let inner = chips.min(listed.size);
    for side in sides(inner, listed.torus) {
        add(side, listed.link.as_ref(), listed.topology, listed.efficiency, "link between chips")?;
    }
    let outer = listed.outer.as_ref();
    add(chips.div_ceil(inner.max(1)), outer, crate::system::Topology::Switch, Fraction(0.8), "link between boxes")?;
    let topology = if dimensions.is_empty() { Arrangement::SingleChip } else { Arrangement::Custom };
    Ok(System {
        name: name.clone(),
        source: "the machine of a measurement".into(),
        chip: listed.chip.clone(),
        memory: Ref(memory.0.clone().of_sram(listed.chip.0.sram)),
        offload: listed.offload.clone(),
        software: None,
        stack: stack.cloned(),
        network: Network { topology, dimensions, switch: None },
        chips: None,
        overlap: None,
        model: ModelOptions::flowspace(),
    })
}

/// Sides of the torus of so many dimensions that a part of so many chips is, from the shortest: those that are closest to each other, as the shapes of
/// slices that Google lists are (<https://docs.cloud.google.com/tpu/docs/v5p>: 4 x 8 x 8, 8 x 8 x 16, 16 x 16 x 24; from 4 x 4 x 4 on whole tori).
fn sides(chips: u64, dimensions: u64) -> Vec<u64> {
    let mut left = chips;
    (1..=dimensions.max(1))
        .rev()
        .map(|more| {
            // The longest side that leaves the others no shorter one.
            let fits =
                |side: &u64| left.is_multiple_of(*side) && side.checked_pow(more as u32).is_some_and(|all| all <= left);
            let side = if more == 1 { left } else { (1..=left.isqrt()).rev().find(fits).unwrap_or(1) };
            left /= side.max(1);
            side
        })
        .collect()
}

/// A share of each chip of a system: its peak, memory and bandwidth.
pub fn part_of_chip(mut system: System, share: f64) -> System {
    let memory = &mut system.memory.0;
    memory.bandwidth = Bandwidth(memory.bandwidth.0 * share);
    memory.capacity = memory.capacity.map(|c| Bytes(c.0 * share));
    if let Some(kernels) = &mut system.chip.0.kernels {
        kernels.peak.0.iter_mut().for_each(|(_, rate)| *rate = FlopRate(rate.0 * share));
        kernels.units = ((kernels.units as f64 * share).round() as u64).max(1);
    }
    system
}

/// A system whose chips work on `side` x `side` of their cores, with all of their memory.
pub fn cores_of_chip(system: &System, side: u64) -> System {
    let mut system = system.clone();
    let chip = &mut system.chip.0;
    let cores = side.saturating_mul(side).min(chip.cores);
    let share = cores as f64 / chip.cores as f64;
    chip.cores = cores;
    system.memory.0.bandwidth = Bandwidth(system.memory.0.bandwidth.0 * share);
    if let Some(kernels) = &mut chip.kernels {
        kernels.peak.0.iter_mut().for_each(|(_, rate)| *rate = FlopRate(rate.0 * share));
    }
    system
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{FromNode, Loader, Reader, catalogue};
    use crate::validate::accelerators::{known, shipped};
    use std::path::Path;

    fn part<T: FromNode>(name: &str) -> Result<T, String> {
        let path = format!("{}systems/{name}.yaml", catalogue::SCHEME);
        let node = Loader.load(Path::new(&path), None).map_err(|e| e.to_string())?;
        // One may begin with another (`from`).
        let node = Loader.expand_as(&node, "", None).map_err(|e| e.to_string())?;
        Reader::read(&node).map_err(|e| e.to_string())
    }

    #[test]
    fn every_part_is_read_as_what_it_is() {
        let names = catalogue::paths().filter_map(|p| p.strip_prefix("systems/")?.strip_suffix(".yaml"));
        for name in names {
            let read = match name.split('/').next() {
                Some("chips") => part::<crate::system::Chip>(name).map(|_| ()),
                Some("memories") => part::<crate::system::Memory>(name).map(|_| ()),
                Some("links") => part::<crate::system::Link>(name).map(|_| ()),
                Some("switches") => part::<crate::system::SwitchPart>(name).map(|_| ()),
                Some("cores") => part::<crate::place::spec::CoresSpec>(name).map(|_| ()),
                Some("technologies") => part::<crate::system::technology::Technology>(name).map(|_| ()),
                Some("stacks") => part::<crate::system::Stack>(name).map(|_| ()),
                _ => part::<System>(name).map(|_| ()),
            };
            assert_eq!(read, Ok(()), "{name}");
        }
        assert!(part::<crate::system::Chip>("chips/none").is_err());
    }

    #[test]
    fn slices_have_the_shapes_that_are_listed() {
        for shape in [[4, 4, 4], [4, 4, 8], [4, 8, 8], [8, 8, 8], [8, 8, 16], [8, 16, 16], [16, 16, 16], [16, 16, 24]] {
            assert_eq!(sides(shape.iter().product(), 3), shape);
        }
        assert_eq!(
            (sides(64, 1), sides(64, 2), sides(1, 3), sides(2, 3)),
            (vec![64], vec![8, 8], vec![1; 3], vec![1, 1, 2])
        );
    }

    /// 12 H100 are a box of eight and half of another; half a chip has half of everything.
    #[test]
    fn boxes_by_hand() {
        for listed in &shipped().unwrap().chips {
            assert_eq!(system(listed, &listed.memory, Some(listed.software()), 1).unwrap().chip_count(), 1);
        }
        let h100 = known("H100").unwrap();
        let sizes = |chips| -> Vec<u64> {
            let system = system(h100, &h100.memory, None, chips).unwrap();
            system.network.dimensions.iter().map(|d| d.size).collect()
        };
        assert_eq!((sizes(4), sizes(12), sizes(1)), (vec![4], vec![8, 2], vec![]));
        let half = part_of_chip(system(h100, &h100.memory, None, 1).unwrap(), 0.5);
        assert_eq!((half.memory.0.capacity.unwrap().0, half.memory.0.bandwidth.0), (40.0 * 1024f64.powi(3), 1.675e12));
        assert_eq!(half.chip.0.kernels.unwrap().peak_of("bf16"), Some(494.7e12));
        assert!(system(known("WSE-2").unwrap(), &h100.memory, None, 2).unwrap_err().contains("between boxes"));
    }
}
