//! How far off a class of points may be before `flowspace validate` fails.

use super::class::Class;
use crate::spec::{Node, Reader, read::Table};

crate::spec! {
    /// The bound of one class.
    pub struct Bound ("the bound of a class") {
        /// Mean absolute error, in per cent.
        mape_pct: f64,
        /// Mean signed error, in per cent, either way; left out: a third of `mape_pct`.
        bias_pct: Option<f64>,
        /// Mean absolute error as last measured over all rows of the class, in per cent: what a prediction of this class may be trusted to.
        measured_mape_pct: Option<f64>,
        /// Why this bound.
        reason: String,
    }
}

crate::spec! {
    /// The bounds of all classes that have one.
    pub struct Bounds ("bounds of classes", check: check) {
        /// When and by which command the `measured_mape_pct` were measured.
        measured: Option<String>,
        /// What nine training steps of ten on chips left out whole (datasheet, software of its kind) are off at most, in per cent.
        unseen_training_pct: Option<f64>,
        /// The same of serving.
        unseen_inference_pct: Option<f64>,
        /// Bounds by class.
        classes: Table<Bound>,
    }
}

fn check(bounds: &Bounds, node: &Node, reader: &mut Reader) {
    for (name, _) in &bounds.classes.0 {
        if Class::from_word(name).is_none() {
            let words: Vec<&str> = Class::ALL.iter().map(|c| c.word()).collect();
            let at = node.get("classes").and_then(|c| c.get(name)).unwrap_or(node).clone();
            reader.within(format!("classes.{name}"), |r| {
                r.problem(&at, format!("no class; classes: {}", words.join(", ")))
            });
        }
    }
}

impl Bounds {
    /// The bound of a class.
    pub fn of(&self, class: Class) -> Option<&Bound> {
        self.classes.0.iter().find(|(name, _)| name == class.word()).map(|(_, bound)| bound)
    }
}

impl Bound {
    /// The error that a prediction of the class may be expected to have, in per cent: as measured, else the bound.
    pub fn band(&self) -> f64 {
        self.measured_mape_pct.unwrap_or(self.mape_pct)
    }

    /// The bound of the signed error, in per cent.
    pub fn bias(&self) -> f64 {
        self.bias_pct.unwrap_or(self.mape_pct / 3.0)
    }
}
