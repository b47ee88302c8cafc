//! Which files of the catalogue the measured points were predicted with, so that it can be said how far a part may be trusted.
//!
//! A chip, a software stack or a system is validated by a class of measurements where a point of that class is predicted with it: a
//! system and its parts where `validation/machines.yaml` gives it to a shipped training run (or to a class that is not shipped but is
//! named there); the parts of the boxes of inference; the machines of HPL.

use super::bounds::Bound;
use super::class::Class;
use super::point::{Point, Task};
use super::suites::{self, SUITES};
use super::{accelerators, inference, machines};
use crate::spec::catalogue::{self, Entry, Kind};
use crate::spec::{Loader, Node, Problems, Value};
use crate::workload::language::LanguageModel;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

/// How far off a class of measurements is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassError {
    /// The class.
    pub class: Class,
    /// Mean absolute error in per cent: as last measured, or the bound it is held to.
    pub pct: f64,
    /// Whether it was measured; else `pct` is the bound.
    pub measured: bool,
}

/// Classes by the path of a file of the catalogue.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Coverage(BTreeMap<&'static str, BTreeSet<Class>>);

impl Coverage {
    /// What the shipped measurements cover.
    ///
    /// # Errors
    /// All [`Problems`] of the shipped files.
    pub fn shipped() -> Result<Self, Problems> {
        let mut found = Self::default();
        let known = machines::shipped()?;
        let systems = systems_of_machines()?;
        // Classes that are not shipped are named in the list of machines.
        for (machine, system) in known.iter().zip(&systems) {
            if let (Some(class), Some(system)) = (machine.class.as_deref().and_then(Class::from_word), system) {
                found.add_whole(system, class)?;
            }
        }
        for suite in &SUITES {
            let Ok(file) = suite.read() else { continue };
            for point in file.rows.into_iter().map(Point::new).filter(|p| p.incomplete.is_none()) {
                match &point.task {
                    Task::Training => {
                        let used = machines::machine(&known, &point).ok().and_then(|(_, machine)| machine);
                        let index = used.and_then(|used| known.iter().position(|k| std::ptr::eq(k, used)));
                        if let Some(system) = index.and_then(|i| systems.get(i).copied().flatten()) {
                            found.add_whole(system, point.class)?;
                        } else if let (Some(listed), Some(stack)) = (
                            accelerators::known(&point.row.accelerator),
                            point.source.and_then(|source| source.stack.as_ref()),
                        ) {
                            let titles = [(Kind::Chip, &listed.chip.0.name), (Kind::Stack, &stack.0.name)];
                            for (kind, name) in titles {
                                let named = |e: &&Entry| e.kind == kind && e.title() == Some(name.as_str());
                                catalogue::entries().iter().filter(named).for_each(|e| found.add(e, point.class));
                            }
                        }
                    }
                    Task::Hpl => {
                        let shipped = suites::hpl_machine(&point.row);
                        let entry = catalogue::entries().iter().find(|e| Some(e.text) == shipped);
                        entry.into_iter().for_each(|e| found.add(e, point.class));
                    }
                    _ => {
                        let Some((chip, stack)) = inference::parts(&point) else { continue };
                        for (kind, name) in [(Kind::Chip, Some(chip)), (Kind::Stack, stack)] {
                            let named = |e: &&Entry| e.kind == kind && name.is_some_and(|n| e.title() == Some(n));
                            catalogue::entries().iter().filter(named).for_each(|e| found.add(e, point.class));
                        }
                    }
                }
            }
        }
        Ok(found)
    }

    fn add(&mut self, entry: &Entry, class: Class) {
        self.0.entry(entry.path).or_default().insert(class);
    }

    /// A system with its chip and its stack.
    fn add_whole(&mut self, system: &'static Entry, class: Class) -> Result<(), Problems> {
        self.add(system, class);
        let parts = system.references()?.into_iter().map(|(_, _, entry)| entry);
        parts.filter(|e| matches!(e.kind, Kind::Chip | Kind::Stack)).for_each(|e| self.add(e, class));
        Ok(())
    }

    /// The errors of the classes that the file at `path` of the catalogue was part of, the largest first; none where it was not
    /// validated.
    ///
    /// # Errors
    /// All [`Problems`] of the shipped bounds.
    pub fn of(&self, path: &str) -> Result<Vec<ClassError>, Problems> {
        let bounds = suites::bounds()?;
        let classes = self.0.get(path).into_iter().flatten();
        let mut errors: Vec<ClassError> = classes
            .filter_map(|class| {
                let bound = bounds.of(*class)?;
                Some(ClassError { class: *class, pct: bound.band(), measured: bound.measured_mape_pct.is_some() })
            })
            .collect();
        errors.sort_by(|one, other| other.pct.total_cmp(&one.pct));
        Ok(errors)
    }
}

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Training steps.
    Training,
    /// Serving.
    Inference,
}

/// What the error of a class grows by where only the chip, or only the stack, was part of it: what a stack left out costs beside one that is not.
const BESIDE: f64 = 2.0;

/// The error in per cent that a prediction may be expected to have: that of the worst class of this work which both the chip and the stack were part of;
/// twice that of the worst which one of them was; else what predictions from datasheets with generic software are off on machines that nothing was fitted to.
/// So for models of a kind that none of the rows is of: with an encoder beside the decoder, or trained with frozen weights.
pub fn band(chip: &str, stack: &str, work: Work, model: &LanguageModel) -> Option<f64> {
    static COVERAGE: LazyLock<Option<Coverage>> = LazyLock::new(|| Coverage::shipped().ok());
    let coverage = COVERAGE.as_ref()?;
    let of = |kind: Kind, name: &str| -> BTreeSet<Class> {
        let named = |e: &&Entry| e.kind == kind && e.title() == Some(name);
        let of_entry = |e: &Entry| coverage.0.get(e.path).cloned().unwrap_or_default();
        let all = catalogue::entries().iter().filter(named).flat_map(of_entry);
        all.filter(|class| class.work() == Some(work)).collect()
    };
    let bounds = suites::bounds().ok()?;
    let worst = |classes: &mut dyn Iterator<Item = &Class>| {
        classes.filter_map(|class| bounds.of(*class)).map(Bound::band).reduce(f64::max)
    };
    let (chip, stack) = (of(Kind::Chip, chip), of(Kind::Stack, stack));
    let unseen = match work {
        Work::Training => bounds.unseen_training_pct,
        Work::Inference => bounds.unseen_inference_pct,
    };
    if model.encoder_layers.is_some() || (work == Work::Training && model.frozen()) {
        return unseen;
    }
    worst(&mut chip.intersection(&stack))
        .or_else(|| worst(&mut chip.union(&stack)).map(|pct| (pct * BESIDE).min(unseen.unwrap_or(f64::INFINITY))))
        .or(unseen)
}

/// The system of each entry of `validation/machines.yaml`.
fn systems_of_machines() -> Result<Vec<Option<&'static Entry>>, Problems> {
    let node = Loader.load(Path::new(&format!("{}validation/machines.yaml", catalogue::SCHEME)), None)?;
    let Some(Value::List(items)) = node.get("machines").map(|n| &n.value) else { return Ok(Vec::new()) };
    let system = |item: &Node| match item.get("system").map(|n| (&n.origin, &n.value)) {
        Some((origin, Value::Scalar { text, .. })) => {
            let path = catalogue::resolve(&origin.file, text)?;
            catalogue::entries().iter().find(|entry| entry.file() == path)
        }
        _ => None,
    };
    Ok(items.iter().map(system).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who ran what: machines.yaml and the suites, by hand.
    #[test]
    fn parts_have_the_classes_they_were_measured_in() {
        let coverage = Coverage::shipped().unwrap();
        let classes = |path: &str| -> Vec<Class> { coverage.of(path).unwrap().iter().map(|e| e.class).collect() };
        assert!(classes("systems/clusters/selene-2022.yaml").contains(&Class::Korthikanti));
        assert!(classes("systems/clusters/selene-2021.yaml").contains(&Class::MegatronSc21));
        assert_eq!(classes("systems/clusters/vtrain-node.yaml"), [Class::VtrainSingleNode]);
        assert!(classes("systems/clusters/dgx-h100.yaml").contains(&Class::TrainingPublished));
        assert_eq!(classes("systems/chips/sn40l.yaml"), [Class::InferenceKernels]);
        assert!(classes("systems/stacks/megatron-lm-2022.yaml").contains(&Class::Korthikanti));
        assert_eq!(classes("validation/hpl/hpl-summit.yaml"), [Class::Hpl]);
        assert!(classes("systems/chips/wse-2.yaml").is_empty());
        assert!(classes("systems/h100-dgx-8.yaml").is_empty());
        let a100 = coverage.of("systems/chips/a100.yaml").unwrap();
        assert!(a100.len() >= 5 && a100.windows(2).all(|w| w[0].pct >= w[1].pct), "{a100:?}");
        assert!(!coverage.of("validation/hpl/hpl-summit.yaml").unwrap()[0].measured);
    }
}
