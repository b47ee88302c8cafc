//! Studies: a grid of points over fields of workloads and systems, run in parallel, resumable.
//!
//! [`spec`] is the notation of a study file; [`field`] checks and applies the fields it names; [`axis`], [`rule`] and
//! [`grid`] turn it into points, each made on demand; [`sweep`] solves them, and [`store`] keeps the results so that a run can be
//! killed at any moment and continued by the same command.

pub mod again;
pub mod axis;
mod blind;
pub mod dry;
mod executed;
pub mod field;
pub mod front;
pub mod grid;
pub mod mix;
pub mod parts;
pub mod placed;
pub mod progress;
mod range;
pub mod rule;
pub mod sample;
pub mod spec;
pub mod store;
pub mod sweep;

pub use grid::{Point, Study};
pub use store::MODEL_REVISION;
pub use sweep::{RunOptions, StudyError, Summary, run};

#[cfg(test)]
mod tests;
