//! The suites that are part of the program: one folder under `validation/` each, compiled in, so that `flowspace validate` gives the
//! same answer wherever it runs.

use super::bounds::Bounds;
use super::read::{self, Faults, File};
use super::row::{HplSizes, Row};
use crate::spec::{Node, Problems, Reader};

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

/// Names of runs in other tables.
const ALSO: [(&str, &str); 1] = [("8xh100", "hgx-h100")];

/// The shipped system file of a run of HPL, by the file that its row names, or by the row's own name.
pub fn hpl_machine(row: &Row) -> Option<&'static str> {
    let named = |machine: &str| {
        let machine = ALSO.iter().find(|(other, _)| *other == machine).map_or(machine, |(_, ours)| ours);
        MACHINES.iter().find(|(name, _)| *name == machine).map(|(_, text)| *text)
    };
    let bare = |text: &'_ str| -> String {
        let text = text.strip_suffix(".yaml").unwrap_or(text);
        text.strip_prefix("hpl-").unwrap_or(text).to_string()
    };
    named(&bare(&row.system)).or_else(|| named(&bare(&row.id)))
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
        let mut row = Suite::named("hpl").unwrap().read().unwrap().rows.remove(0);
        (row.id, row.system) = ("hpl-8xh100".into(), "8 x H100".into());
        assert_eq!(hpl_machine(&row), MACHINES.iter().find(|m| m.0 == "hgx-h100").map(|m| m.1));
        (row.id, row.system) = ("aurora-2023".into(), "aurora".into());
        assert_eq!(hpl_machine(&row), None);
    }
}
