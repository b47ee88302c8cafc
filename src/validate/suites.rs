//! The suites that are part of the program: one folder under `validation/` each, compiled in, so that `flowspace validate` gives the
//! same answer wherever it runs.

use super::bounds::Bounds;
use super::read::{self, Faults, File};
use super::row::{HplSizes, Row};
use crate::spec::{Node, Problems, Reader};
use crate::system::System;

/// A suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suite {
    /// Its name: that of its folder.
    pub name: &'static str,
    /// What it holds.
    pub about: &'static str,
    text: &'static str,
}

macro_rules! suite {
    ($name:literal, $about:literal) => {
        Suite { name: $name, about: $about, text: include_str!(concat!("../../validation/", $name, "/points.csv")) }
    };
}

/// Every suite.
pub const SUITES: [Suite; 7] = [
    suite!("megatron-sc21", "Megatron-LM on up to 3,072 A100 (Narayanan et al. 2021, tables 1 and 2)"),
    suite!("korthikanti", "full against selective recomputation on A100 (Korthikanti et al. 2022, table 5)"),
    suite!("training", "MT-NLG, PaLM, Llama 3, MLPerf and MaxText runs"),
    suite!("kernels", "matrix products and kernels of a GPT-3 layer (LLMCompass; best-shape products)"),
    suite!("inference", "Llama 2 and 3 on A100 and SN40L (LLM-Inference-Bench)"),
    suite!("memory", "memory in closed form, and what fits 80 GB (Korthikanti et al. 2022)"),
    suite!("hpl", "LU factorisation on large machines (TOP500)"),
];

/// The bounds that classes are held against.
const BOUNDS: &str = include_str!("../../validation/bounds.yaml");

impl Suite {
    /// The suite of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SUITES.iter().find(|s| s.name == name)
    }

    /// Its points.
    ///
    /// # Errors
    /// [`Faults`] of its file.
    pub fn read(&self) -> Result<File, Faults> {
        read::read(&format!("validation/{}/points.csv", self.name), self.text.as_bytes())
    }
}

/// The bounds that are shipped.
///
/// # Errors
/// All [`Problems`] of the file.
pub fn bounds() -> Result<Bounds, Problems> {
    Reader::read(&Node::parse("validation/bounds.yaml", BOUNDS)?)
}

macro_rules! machine {
    ($name:literal) => {
        ($name, include_str!(concat!("../../validation/hpl/hpl-", $name, ".yaml")))
    };
}

/// System files of `validation/hpl`.
const MACHINES: [(&str, &str); 6] = [
    machine!("frontier-2022"),
    machine!("frontier-2023"),
    machine!("fugaku"),
    machine!("summit"),
    machine!("sierra"),
    machine!("hgx-h100"),
];

/// The shipped system file of a run of HPL, by its row's columns: the file's name in `system`, or the machine's words there and as many chips
/// ("Frontier (Slingshot-11)" with 36,992). What the row is called says nothing.
pub fn hpl_machine(row: &Row) -> Option<&'static str> {
    let file = row.system.strip_suffix(".yaml");
    let bare = file.unwrap_or(&row.system);
    let bare = bare.strip_prefix("hpl-").unwrap_or(bare);
    if let Some((_, text)) = MACHINES.iter().find(|(name, _)| *name == bare) {
        return Some(text);
    }
    if file.is_some() {
        return None;
    }
    let lower = row.system.to_lowercase();
    let there: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).collect();
    // Years tell runs of one machine apart, as their chips do.
    let of_name = |name: &str| name.split('-').filter(|w| w.parse::<u64>().is_err()).all(|w| there.contains(&w));
    let chips = |text: &str| System::build(&Node::parse("validation/hpl", text).ok()?).ok().map(|s| s.chip_count());
    let mut found = MACHINES.iter().filter(|(name, _)| of_name(name)).map(|(_, text)| *text);
    match row.chips {
        Some(stated) => found.find(|text| chips(text) == Some(stated)),
        None => found.next().filter(|_| found.next().is_none()),
    }
}

/// The sizes of the shipped row that ran on that system file.
pub fn hpl_sizes(system: &str) -> Option<HplSizes> {
    let rows = Suite::named("hpl")?.read().ok()?.rows;
    rows.into_iter().find(|row| hpl_machine(row) == Some(system)).map(|row| row.hpl)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_folder_is_a_suite_and_reads() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("validation");
        let folders: BTreeSet<String> = std::fs::read_dir(root)
            .unwrap()
            .filter_map(Result::ok)
            .filter(|e| e.path().is_dir())
            .map(|e| e.file_name().to_string_lossy().into_owned())
            // Chips whose published areas and powers technologies are held against (tests/all/codesign.rs): no suite of rows.
            .filter(|name| name != "dies")
            .collect();
        assert_eq!(folders, SUITES.iter().map(|s| s.name.to_string()).collect());
        let mut ids = BTreeSet::new();
        for suite in &SUITES {
            let file = suite.read().unwrap_or_else(|e| panic!("{e}"));
            assert!(file.remarks.is_empty(), "{:?}", file.remarks);
            for row in file.rows {
                assert!(!row.source.is_empty(), "{}: {} has no source", suite.name, row.id);
                assert!(ids.insert(row.id.clone()), "{} is in two suites", row.id);
            }
        }
    }

    #[test]
    fn every_machine_of_the_table_has_a_system() {
        for row in Suite::named("hpl").unwrap().read().unwrap().rows {
            let system = hpl_machine(&row);
            assert!(system.is_some() && row.hpl.n > row.hpl.nb, "{}", row.id);
            assert_eq!(hpl_sizes(system.unwrap()), Some(row.hpl), "{}", row.id);
        }
    }

    /// What a row is called decides nothing, its columns do.
    #[test]
    fn machines_are_those_of_the_columns() {
        let mut row = Suite::named("hpl").unwrap().read().unwrap().rows.remove(0);
        for (system, chips, name) in [
            ("one HGX H100 node", Some(8), Some("hgx-h100")),
            ("Frontier (Slingshot-11)", Some(36_992), Some("frontier-2022")),
            ("Frontier", Some(36_864), Some("frontier-2023")),
            ("Frontier", Some(64), None),
            ("Frontier", None, None),
            ("Fugaku (Tofu-D 6D mesh/torus)", Some(158_976), Some("fugaku")),
            ("Summit (fat tree)", None, Some("summit")),
            ("hpl-sierra.yaml", None, Some("sierra")),
            ("my/summit.yaml", None, None),
            ("h100-dgx-8", Some(8), None),
            ("Aurora (partial)", None, None),
        ] {
            for id in ["hpl-summit", "frontier-2022", "mine"] {
                (row.id, row.system, row.chips) = (id.into(), system.into(), chips);
                assert_eq!(hpl_machine(&row), MACHINES.iter().find(|m| Some(m.0) == name).map(|m| m.1), "{system}");
            }
        }
    }
}
