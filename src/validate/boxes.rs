//! Boxes of chips that inference and single kernels were measured on, from shipped parts.

use crate::spec::{FromNode, Loader, Reader, catalogue, read::Fraction, read::Ref};
use crate::system::network::{Arrangement, Network};
use crate::system::{Dimension, ModelOptions, System};
use std::path::Path;

/// Links among the chips of a box.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Links {
    /// Their file.
    pub part: &'static str,
    /// Their topology.
    pub topology: Arrangement,
    /// Share of their bandwidth that collectives reach.
    pub efficiency: f64,
}

/// NVLink of A100: 0.7 of it is what LLMCompass's all-reduce of 403 MB among four reaches.
pub const NVLINK_3: Links = Links { part: "links/nvlink-3", topology: Arrangement::Switch, efficiency: 0.7 };

/// Every SN40L of a node to every other.
pub const SN40L_NODE: Links =
    Links { part: "links/sn40l-node", topology: Arrangement::FullyConnected, efficiency: 1.0 };

/// A box of chips: shipped parts by folder and name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parts {
    /// Chip.
    pub chip: &'static str,
    /// Memory.
    pub memory: &'static str,
    /// Software, where it is known.
    pub stack: Option<&'static str>,
    /// Links; left out where one chip works alone.
    pub links: Option<Links>,
}

fn part<T: FromNode>(name: &str) -> Result<T, String> {
    let path = format!("{}systems/{name}.yaml", catalogue::SCHEME);
    let node = Loader.load(Path::new(&path), None).map_err(|e| e.to_string())?;
    Reader::read(&node).map_err(|e| e.to_string())
}

/// The system of so many chips.
///
/// # Errors
/// A sentence: a part that is not shipped, or has a mistake.
pub fn system(parts: &Parts, chips: u64) -> Result<System, String> {
    let network = match parts.links.filter(|_| chips > 1) {
        Some(links) => {
            let efficiency = Fraction(links.efficiency);
            let dimension = Dimension { size: chips, link: Ref(part(links.part)?), topology: None, efficiency };
            Network { topology: links.topology, dimensions: vec![dimension], switch: None }
        }
        None => Network { topology: Arrangement::SingleChip, dimensions: Vec::new(), switch: None },
    };
    Ok(System {
        name: parts.chip.trim_start_matches("chips/").to_string(),
        source: "the machine of a measurement".into(),
        chip: Ref(part(parts.chip)?),
        memory: Ref(part(parts.memory)?),
        offload: None,
        software: None,
        stack: parts.stack.map(part).transpose()?.map(Ref),
        network,
        chips: None,
        overlap: None,
        model: ModelOptions::flowspace(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
                Some("stacks") => part::<crate::system::Stack>(name).map(|_| ()),
                _ => part::<System>(name).map(|_| ()),
            };
            assert_eq!(read, Ok(()), "{name}");
        }
        assert!(part::<crate::system::Chip>("chips/none").is_err());
    }
}
