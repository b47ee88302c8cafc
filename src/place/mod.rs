//! Actors on the cores of a chip.
//!
//! [`graph`] has actors and channels, [`cores`] processing elements and what a transfer between them takes, [`placement`] which
//! actor lies on which core and what follows. This stands beside `mapping`: neither imports the other.

pub mod cores;
pub mod graph;
pub mod placement;

pub use cores::{Core, Cores};
pub use graph::{Actor, ActorGraph, Channel, Kind, Work};
pub use placement::{Figures, Objective, Placement, Solved};
