//! Chips by the names that measurements give them, the boxes they come in, and the software that rows name: `validation/chips.yaml`.

use super::row::Row;
use crate::spec::{
    Loader, Problems, Reader, catalogue,
    read::{Fraction, Ref},
};
use crate::system::{Chip, Link, Memory, Stack, Topology};
use crate::workload::language::DataType;
use std::path::Path;
use std::sync::OnceLock;

crate::spec! {
    /// A chip that measurements name, in the box that it comes in.
    pub struct Listed ("a chip that measurements name") {
        /// Beginnings of its names, in small letters and digits alone; of all chips the longest that fits counts.
        names: Vec<String>,
        /// The chip.
        chip: Ref<Chip>,
        /// Its memory.
        memory: Ref<Memory>,
        /// Its memory where kernels were timed by themselves; left out: the same.
        bench_memory: Option<Ref<Memory>>,
        /// Ranks that software sees in a chip (NeuronCores), by which some tables count degrees.
        ranks: u64 = 1,
        /// Chips of a box.
        size: u64 = 1,
        /// Link in the box.
        link: Option<Ref<Link>>,
        /// Topology of the box.
        topology: Topology = Topology::Switch,
        /// Share of links that collectives reach.
        efficiency: Fraction = Fraction(0.8),
        /// A chip's link to other boxes.
        outer: Option<Ref<Link>>,
        /// What current software of its kind does.
        stack: Ref<Stack>,
        /// What calls its operators one by one.
        operators: Option<Ref<Stack>>,
    }
}

crate::spec! {
    /// Software that rows name.
    pub struct Named ("software that rows name") {
        /// A part of a row's system or notes.
        word: String,
        /// The chip; left out: any.
        chip: Option<String>,
        /// A part of the first clause of the notes; left out: any.
        clause: Option<String>,
        /// The software.
        stack: Ref<Stack>,
    }
}

crate::spec! {
    /// What measurements name.
    pub struct List ("chips and software of measurements") {
        /// Chips.
        chips: Vec<Listed>,
        /// Software, of which the first that suits counts.
        software: Vec<Named> = Vec::new(),
    }
}

static LIST: OnceLock<Result<List, Problems>> = OnceLock::new();

fn from(path: &Path) -> Result<List, Problems> {
    Reader::read(&Loader.load(path, None)?)
}

/// Takes the list of a file instead of the compiled-in one; to be called before anything is looked up.
///
/// # Errors
/// All [`Problems`] of the file and those it names.
pub fn take_from(path: &Path) -> Result<(), Problems> {
    let list = from(path)?;
    let _ = LIST.set(Ok(list));
    Ok(())
}

/// The list that counts: the compiled-in one where no other was taken.
///
/// # Errors
/// All [`Problems`] of its files.
pub fn shipped() -> Result<&'static List, Problems> {
    let path = format!("{}validation/chips.yaml", catalogue::SCHEME);
    LIST.get_or_init(|| from(Path::new(&path))).as_ref().map_err(Clone::clone)
}

/// The chip a measurement names.
pub fn known(name: &str) -> Option<&'static Listed> {
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric()).collect::<String>().to_ascii_lowercase();
    let fits = |listed: &Listed| listed.names.iter().filter(|n| plain.starts_with(n.as_str())).map(String::len).max();
    let chips = &shipped().ok()?.chips;
    chips.iter().filter_map(|listed| Some((fits(listed)?, listed))).max_by_key(|(length, _)| *length).map(|(_, l)| l)
}

/// Peak of products in a type, FLOP/s; `None` where it is not known. 16-bit types stand for each other.
pub fn peak(name: &str, precision: DataType) -> Option<f64> {
    let chip = &known(name)?.chip.0;
    let kernels = chip.kernels.as_ref()?;
    let other = match precision {
        DataType::Fp16 => "bf16",
        DataType::Bf16 => "fp16",
        _ => return kernels.peak_of(precision.word()),
    };
    kernels.peak_of(precision.word()).or_else(|| kernels.peak_of(other))
}

/// The software that a row names, if it is known.
pub fn software(row: &Row, chip: &str) -> Option<&'static Ref<Stack>> {
    let first = row.notes.split(';').next().unwrap_or_default();
    let suits = |named: &&Named| {
        [&row.system, &row.notes].iter().any(|text| text.contains(&named.word))
            && named.chip.as_deref().is_none_or(|c| c == chip)
            && named.clause.as_deref().is_none_or(|part| first.contains(part))
    };
    shipped().ok()?.software.iter().find(suits).map(|named| &named.stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_measurements_are_recognised() {
        for (name, ours) in [
            ("A100-80GB", "A100"),
            ("A100 SXM", "A100"),
            ("H100-80GB 700W", "H100"),
            ("H100 PCIe", "H100 PCIe"),
            ("H200-141GB", "H200"),
            ("TPUv5p", "TPU v5p"),
            ("TPU7x", "TPU v7"),
            ("Gaudi 3", "Gaudi 3"),
            ("V100-32GB", "V100"),
            ("WSE-2", "WSE-2"),
            ("IPU GC200 (Mk2)", "IPU Mk2"),
            ("SN30 (4 of 8 tiles)", "SN30"),
            ("Trainium2", "Trainium 2"),
            ("MI250X", "MI250X"),
        ] {
            assert_eq!(known(name).map(|l| l.chip.0.name.as_str()), Some(ours), "{name}");
        }
        assert!(known("Abacus").is_none() && known("").is_none());
        assert_eq!(peak("A100", DataType::Fp8), None);
        assert_eq!(peak("H100", DataType::Bf16), Some(989.4e12));
        assert_eq!(known("A100-40GB").unwrap().memory.0.capacity.unwrap().0, 40.0 * 1024f64.powi(3));
    }
}
