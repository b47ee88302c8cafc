//! Predicted against measured: the points that are shipped under `validation/`, or a file of the user's, and the error of each
//! class of them.
//!
//! The way of a row: [`read`] takes it from a CSV file into a [`Row`]; [`notes`] and [`models`] add what its notes
//! and its model's name say, and [`point`] makes a [`Point`] of it: a task with a model, an execution and a machine;
//! [`class`] says what kind of measurement it is; a [`Predictor`] predicts it, or says why not; [`metric`] turns the prediction into
//! the row's own unit; [`mod@score`] adds up the classes and holds them against [`bounds`]; [`report`] prints and draws.

pub mod accelerators;
pub mod attention;
pub mod bounds;
pub mod boxes;
pub mod class;
pub mod closed_form;
pub mod coverage;
pub mod graphs;
pub mod hpl;
pub mod inference;
mod lookup;
pub mod machines;
pub mod metric;
pub mod models;
pub mod notes;
pub mod point;
pub mod predict;
pub mod read;
pub mod report;
pub mod row;
pub mod score;
pub mod sources;
pub mod suites;
pub mod traces;
pub mod training;

pub use class::Class;
pub use metric::{Metric, Unit};
pub use point::{Point, Task};
pub use predict::{NotPredicted, Prediction, Predictor};
pub use row::Row;
pub use score::{Outcome, Scores, score};

#[cfg(test)]
mod tests;
