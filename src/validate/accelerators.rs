//! Chips by the names that measurements give them, the boxes they come in, and the software that rows name: `validation/chips.yaml`.

use super::row::Row;
use super::sources::{Partly, Queued, Source, WholeRun};
use crate::execution::Recompute;
use crate::spec::{
    Loader, Problems, Reader, catalogue,
    read::{Fraction, Ref},
};
use crate::system::kernels::Kernels;
use crate::system::{Chip, Link, Memory, Stack, Style, Topology};
use crate::workload::WorkloadSpec;
use crate::workload::language::{DataType, LanguageModel};
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
        /// Its memory where kernels were timed by themselves, and where what is served fills the other; left out: the same.
        larger_memory: Option<Ref<Memory>>,
        /// Ranks that software sees in a chip (NeuronCores), by which some tables count degrees.
        ranks: u64 = 1,
        /// Chips of a box.
        size: u64 = 1,
        /// Link in the box.
        link: Option<Ref<Link>>,
        /// Topology of the box.
        topology: Topology = Topology::Switch,
        /// Dimensions of the torus that chips of a box are cut from, each a `topology` of its own.
        torus: u64 = 1,
        /// Share of links that collectives reach.
        efficiency: Fraction = Fraction(0.8),
        /// A chip's link to other boxes.
        outer: Option<Ref<Link>>,
        /// Memory beside it that training may put states and activations in.
        offload: Option<Ref<Memory>>,
        /// What it is taken to run where a row names nothing; left out: what current software of the chip does.
        stack: Option<Ref<Stack>>,
        /// What calls its operators one by one.
        operators: Option<Ref<Stack>>,
    }
}

crate::spec! {
    /// Software that rows name.
    pub struct Named ("software that rows name") {
        /// A part of a row's system or notes.
        word: String,
        /// Its chips; left out: any.
        chips: Vec<String> = Vec::new(),
        /// A part of the first clause of the notes; left out: any.
        clause: Option<String>,
        /// A part of the notes; left out: any.
        says: Option<String>,
        /// A part of the row's source; left out: any.
        of: Option<String>,
        /// Of collectives by themselves alone.
        collectives: bool = false,
        /// Where it is said that these runs have it, where the word alone does not.
        because: Option<String>,
        /// What its training computes again where a row does not say.
        recompute: Option<Recompute>,
        /// The software.
        stack: Ref<Stack>,
    }
}

crate::spec! {
    /// A model that rows name and state no sizes of.
    pub struct NamedModel ("a model that rows name") {
        /// Parts of its names, in small letters and digits alone; of all models the longest that fits counts.
        names: Vec<String>,
        /// The model; left out: one that this program has no description of, which keeps shorter names from fitting.
        model: Option<Ref<WorkloadSpec>>,
        /// Layers that rows state of it, where that is not their number here.
        stated_layers: Option<u64>,
    }
}

crate::spec! {
    /// What measurements name.
    pub struct List ("chips and software of measurements") {
        /// Chips.
        chips: Vec<Listed>,
        /// Software, of which the first that suits counts.
        software: Vec<Named> = Vec::new(),
        /// What the runs of a source were.
        sources: Vec<Source> = Vec::new(),
        /// Samples that whole runs take.
        whole_runs: Vec<WholeRun> = Vec::new(),
        /// Requests that are queued at once, of which the first that suits counts.
        queued: Vec<Queued> = Vec::new(),
        /// Runs that train a part of their model, of which the first that suits counts.
        partly_trained: Vec<Partly> = Vec::new(),
        /// Models.
        models: Vec<NamedModel> = Vec::new(),
    }
}

impl Listed {
    /// What it runs where a row names nothing.
    pub fn software(&self) -> &Ref<Stack> {
        self.stack.as_ref().unwrap_or(self.chip.0.generic())
    }
}

static LIST: OnceLock<Result<List, Problems>> = OnceLock::new();
static AS_NEW: OnceLock<List> = OnceLock::new();

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

/// Takes every chip as if it were new: of those that run kernel by kernel what the datasheet states, with the middle of what was measured of the other
/// chips of its kind, which are those that the same current software is for; where none of them was measured, of all others. In the box that it comes in, with what current software of its kind does, whatever a row says ran. To be called before anything is looked up.
///
/// # Errors
/// All [`Problems`] of the list.
pub fn take_as_new() -> Result<(), Problems> {
    let list = shipped()?;
    // The chips of its kind, and all others.
    let others = |of: &Listed| -> [Vec<&Kernels>; 2] {
        let mut names = vec![of.chip.0.name.as_str()];
        let mut kernels = [Vec::new(), Vec::new()];
        for listed in list.chips.iter().filter(|l| l.chip.0.style == Style::KernelByKernel) {
            let chip = &listed.chip.0;
            if !names.contains(&chip.name.as_str()) {
                names.push(&chip.name);
                let same = listed.software().0.name == of.software().0.name;
                kernels[usize::from(!same)].extend(chip.kernels.as_ref());
            }
        }
        kernels
    };
    let mut new = List { software: Vec::new(), ..list.clone() };
    // What runs of a source were stays known, but for their software.
    for source in &mut new.sources {
        source.serves = None;
        let of_chip = list.chips.iter().find(|l| source.chips.first().is_none_or(|name| *name == l.chip.0.name));
        if let (Some(listed), Some(stack)) = (of_chip, &mut source.stack) {
            *stack = listed.software().clone();
        }
    }
    for (listed, known) in new.chips.iter_mut().zip(&list.chips) {
        if known.chip.0.style != Style::KernelByKernel {
            continue;
        }
        if let Some(kernels) = &mut listed.chip.0.kernels {
            let [kind, rest] = others(known);
            *kernels = kernels.of_datasheet(&kind, &rest)?;
        }
        listed.operators = None;
    }
    let _ = AS_NEW.set(new);
    Ok(())
}

/// The list that counts: the compiled-in one where no other was taken.
///
/// # Errors
/// All [`Problems`] of its files.
pub fn shipped() -> Result<&'static List, Problems> {
    if let Some(list) = AS_NEW.get() {
        return Ok(list);
    }
    let path = format!("{}validation/chips.yaml", catalogue::SCHEME);
    LIST.get_or_init(|| from(Path::new(&path))).as_ref().map_err(Clone::clone)
}

/// The chip a measurement names, with as much memory as the name says.
pub fn known(name: &str) -> Option<&'static Listed> {
    let chips = &shipped().ok()?.chips;
    let of = |name: &str| {
        let fits = |listed: &Listed| listed.names.iter().filter(|n| is_called(name, n)).map(String::len).max();
        let all = chips.iter().filter_map(|listed| Some((fits(listed)?, listed)));
        all.max_by_key(|(length, _)| *length).map(|(_, listed)| listed)
    };
    let found = of(name).or_else(|| {
        let mut words = name.split_whitespace().skip_while(|word| MAKERS.contains(&plain(word).as_str())).peekable();
        words.peek()?;
        of(&words.collect::<Vec<_>>().join(" "))
    })?;
    let Some(stated) = gigabytes_in(name) else { return Some(found) };
    let has = |listed: &&Listed| {
        listed.memory.0.capacity.is_some_and(|bytes| (bytes.0 / 1e9 / stated - 1.0).abs() < SAME_MEMORY_WITHIN)
    };
    let link = |listed: &Listed| listed.link.as_ref().map(|link| link.0.name.clone());
    let alike = |l: &&Listed| l.chip.0.name == found.chip.0.name && link(l) == link(found) && l.larger_memory.is_none();
    Some(chips.iter().find(|l| has(l) && alike(l)).unwrap_or(found))
}

/// How far the gigabytes of a name, of ten or of two, may be off a memory's capacity.
const SAME_MEMORY_WITHIN: f64 = 0.1;

/// Gigabytes that a chip's name says it has: `A100-SXM4-40GB`, `A100 PCIe 40 GB`.
fn gigabytes_in(name: &str) -> Option<f64> {
    let lower = name.to_ascii_lowercase();
    lower.match_indices("gb").find_map(|(at, _)| {
        let before = lower[..at].trim_end();
        let digits = before.len() - before.bytes().rev().take_while(u8::is_ascii_digit).count();
        before[digits..].parse().ok().filter(|n: &f64| *n > 0.0)
    })
}

/// What may stand before a chip's name.
const MAKERS: [&str; 10] =
    ["nvidia", "geforce", "tesla", "amd", "instinct", "radeon", "intel", "google", "graphcore", "cerebras"];

/// Words after a chip's name that make another product of it.
const OTHERS: [&str; 10] = ["ti", "super", "laptop", "mobile", "max", "maxq", "xt", "xtx", "gre", "d"];

/// Whether a measurement's name of a chip is one that begins so, in small letters and digits alone: `a100` of `A100-SXM 80GB`, and not `a10` of it. A digit that follows at once, a letter
/// by itself (`L40G`) or a word such as `Ti` is of another product.
fn is_called(name: &str, short: &str) -> bool {
    let mut wanted = short.chars();
    let mut next = wanted.next();
    let mut rest = name;
    while let Some(letter) = next {
        let Some(own) = rest.chars().next() else { return false };
        rest = &rest[own.len_utf8()..];
        if own.is_ascii_alphanumeric() {
            if own.to_ascii_lowercase() != letter {
                return false;
            }
            next = wanted.next();
        }
    }
    let letters = |text: &str| text.chars().take_while(char::is_ascii_alphabetic).count();
    let at_once = letters(rest);
    let ends = |text: &str| !text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let is_other = rest.starts_with(|c: char| c.is_ascii_digit()) || (at_once == 1 && ends(&rest[1..]));
    let after = rest.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let word = after.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap_or_default();
    // `Gaudi 2` is no `gaudi`.
    let is_numbered = !short.contains(|c: char| c.is_ascii_digit()) && after.starts_with(|c: char| c.is_ascii_digit());
    !is_other && !is_numbered && !OTHERS.contains(&plain(word).as_str())
}

/// What a row's words name.
fn named(words: &str) -> Option<&'static NamedModel> {
    let texts = [plain(words), plain(&without_versions(words))];
    let is_in = |name: &&String| texts.iter().any(|text| text.contains(name.as_str()));
    let fits = |named: &NamedModel| named.names.iter().filter(is_in).map(String::len).max();
    let models = &shipped().ok()?.models;
    models.iter().filter_map(|named| Some((fits(named)?, named))).max_by_key(|(length, _)| *length).map(|(_, n)| n)
}

/// The language model that a row's words name, and the layers that are stated of it; `None` where no name fits.
pub fn model(words: &str) -> Option<(&'static LanguageModel, u64)> {
    let named = named(words)?;
    match &named.model.as_ref()?.0 {
        WorkloadSpec::Language(model) => Some((model, named.stated_layers.unwrap_or(model.layers))),
        _ => None,
    }
}

/// The model that a row's words name which is a graph and no language model.
pub fn graph(words: &str) -> Option<&'static WorkloadSpec> {
    let spec = &named(words)?.model.as_ref()?.0;
    spec.as_replicas().is_some().then_some(spec)
}

/// Words without the letter that begins a version: `LLaMA V2 7B` is `LLaMA 2 7B` elsewhere.
fn without_versions(words: &str) -> String {
    let letters: Vec<char> = words.chars().collect();
    let is_version = |at: usize| {
        matches!(letters[at], 'v' | 'V')
            && letters.get(at + 1).is_some_and(char::is_ascii_digit)
            && at.checked_sub(1).is_none_or(|before| !letters[before].is_ascii_alphanumeric())
    };
    (0..letters.len()).filter(|at| !is_version(*at)).map(|at| letters[at]).collect()
}

fn plain(words: &str) -> String {
    words.chars().filter(|c| c.is_ascii_alphanumeric()).collect::<String>().to_ascii_lowercase()
}

/// Peak of products in a type, FLOP/s, of 32 bits with all of them where `exact`; `None` where it is not known. 16-bit types stand for each other.
pub fn peak(name: &str, precision: DataType, exact: bool) -> Option<f64> {
    let chip = &known(name)?.chip.0;
    let kernels = chip.kernels.as_ref()?;
    let other = match precision {
        DataType::Fp16 => "bf16",
        DataType::Bf16 => "fp16",
        DataType::Fp32 if exact => return kernels.peak_of("fp32_ieee").or_else(|| kernels.peak_of("fp32")),
        _ => return kernels.peak_of(precision.word()),
    };
    kernels.peak_of(precision.word()).or_else(|| kernels.peak_of(other))
}

/// The software that a row names, if it is known.
pub fn software(row: &Row, chip: &str) -> Option<&'static Ref<Stack>> {
    named_software(row, chip).map(|named| &named.stack)
}

/// What the software that a row names computes again where the row does not say.
pub fn usual_recompute(row: &Row) -> Option<Recompute> {
    named_software(row, &known(&row.accelerator)?.chip.0.name)?.recompute
}

fn named_software(row: &Row, chip: &str) -> Option<&'static Named> {
    let first = row.notes.split(';').next().unwrap_or_default();
    let within = |part: &Option<String>, text: &str| part.as_deref().is_none_or(|part| text.contains(part));
    let suits = |named: &&Named| {
        [&row.system, &row.notes].iter().any(|text| text.contains(&named.word))
            && (named.chips.is_empty() || named.chips.iter().any(|c| c == chip))
            && within(&named.clause, first)
            && within(&named.says, &row.notes)
            && within(&named.of, &row.source)
            && (!named.collectives || row.is_collective())
    };
    shipped().ok()?.software.iter().find(suits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_by_their_longest_name() {
        let of = |words| model(words).map(|(model, layers)| (model.name.as_str(), layers));
        assert_eq!(of("DeepSeekV3 pre-train"), Some(("DeepSeek-V3 671B with MTP", 61)));
        assert_eq!(of("DeepSeekV3 (w/o MTP) pre-train"), Some(("DeepSeek-V3 671B", 61)));
        assert_eq!(of("Llama-3.1-8B pre-train"), Some(("Llama 3 8B", 32)));
        // Named, so that nothing shorter fits, and without a model.
        assert_eq!(of("Nemotron_3_Nano pre-train"), None);
        assert_eq!(of("Abacus"), None);
        assert_eq!(of("LLaMA V2 7B train"), of("LLaMA 2 7B train"));
        assert_eq!(without_versions("LLaMA V2 7B, v3.1 DeepSeek-V3 NVFP4 V"), "LLaMA 2 7B, 3.1 DeepSeek-3 NVFP4 V");
    }

    #[test]
    fn a_name_that_goes_on_is_of_another_product() {
        for name in ["L40G", "A4000", "RTX 4080 SUPER", "RTX 5080 Ti", "RTX 4090 Laptop GPU", "T400", "RTX 4090 D"] {
            let found = known(name).map(|l| l.chip.0.name.as_str());
            assert!(found.is_none(), "{name}: {found:?}");
        }
        assert_eq!(known("RTX 3090Ti 24 GB").map(|l| l.chip.0.name.as_str()), Some("RTX 3090 Ti"));
        for (name, short, same) in [
            ("A100-SXM4-80GB", "a100", true),
            ("A100-SXM4-80GB", "a10", false),
            ("L40S", "l40", false),
            ("L40 (PCIe)", "l40", true),
            ("Gaudi 2C", "gaudi", false),
            ("RTX 4090 Max Q", "rtx4090", false),
            ("V100S PCIe", "v100", false),
            ("RTX 4090, 24 GB", "rtx4090", true),
            ("TPUv5p-512", "tpuv5p", true),
        ] {
            assert_eq!(is_called(name, short), same, "{name} {short}");
        }
    }

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
            ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
            ("AMD Instinct MI300X", "MI300X"),
        ] {
            assert_eq!(known(name).map(|l| l.chip.0.name.as_str()), Some(ours), "{name}");
        }
        assert!(known("Abacus").is_none() && known("").is_none());
        assert_eq!(peak("A100", DataType::Fp8, false), None);
        assert_eq!(peak("H100", DataType::Bf16, false), Some(989.4e12));
        assert_eq!(known("A100-40GB").unwrap().memory.0.capacity.unwrap().0, 40.0 * 1024f64.powi(3));
    }
}
