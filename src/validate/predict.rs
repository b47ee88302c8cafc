//! Who predicts a point.

use super::metric::{Metric, Served};
use super::point::{Point, Task};
use crate::execution::machine::Traffic;

use super::{closed_form, hpl, inference, machines, machines::Known, training};

/// What a predictor says of a point. [`metric::express`](super::metric::express) turns it into the row's unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Prediction {
    /// Seconds of what was timed: one training step, one batch of sequences from prompt to last token, one kernel, one
    /// collective.
    Seconds(f64),
    /// Bytes of one chip.
    Bytes(f64),
    /// A batch of sequences.
    Served(Served),
    /// Whether it fits the memory.
    Fits(bool),
    /// The row's own quantity in its base unit: FLOP/s, a share of 1, 1/s, bytes/s.
    InRowsQuantity(f64),
}

/// Why a point is not predicted: one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotPredicted(pub String);

impl NotPredicted {
    /// With a reason.
    pub fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// Predicts measured points.
pub trait Predictor: Sync {
    /// The prediction of a point whose statement is complete ([`Point::incomplete`] is asked before).
    ///
    /// # Errors
    /// [`NotPredicted`] with the reason.
    fn predict(&self, point: &Point) -> Result<Prediction, NotPredicted>;

    /// The software that it is predicted with: that which the row or its source names, or what is taken where they name none.
    fn software(&self, _: &Point) -> Option<String> {
        None
    }
}

/// The models of this program, by task.
#[derive(Debug, Clone)]
pub struct Models {
    /// The machines that training runs ran on.
    pub machines: Vec<Known>,
}

impl Predictor for Models {
    fn predict(&self, point: &Point) -> Result<Prediction, NotPredicted> {
        if let Metric::Unmodelled(why) = point.row.metric {
            return Err(NotPredicted::because(why));
        }
        match &point.task {
            Task::Memory => closed_form::memory(point),
            Task::Hpl => hpl::predict(&point.row),
            Task::Training => training::step(&self.machines, point),
            Task::Inference { .. } => inference::batch(point),
            Task::Matmul { .. } | Task::BestMatmul { .. } => inference::product(point),
            Task::Attention(core) => inference::attention(point, core),
            Task::LayerKernel { name, decode_after } => inference::layer_kernel(point, name, *decode_after),
            Task::AllReduce { bytes } => inference::collective(point, Traffic::AllReduce, *bytes),
            Task::AllToAll { bytes } => inference::collective(point, Traffic::AllToAll, *bytes),
            Task::Gather { bytes } => inference::collective(point, Traffic::Gather, *bytes),
            Task::Other { reason } => Err(NotPredicted::because(reason.clone())),
        }
    }

    fn software(&self, point: &Point) -> Option<String> {
        match &point.task {
            Task::Training => machines::system(&self.machines, point).ok()?.0.stack.map(|stack| stack.0.name),
            _ => inference::parts(point)?.1.map(str::to_owned),
        }
    }
}
