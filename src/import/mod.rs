//! Files of other tools, read into ours: one folder a tool.

pub mod calculon;
pub mod dfmodel;
