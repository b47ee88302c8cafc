//! Every integration test, in one binary: linking the solvers twenty times took longer than most of the tests.

mod calculon;
mod catalogue;
mod cli;
mod dfmodel_studies;
mod energy;
mod errors;
mod figures;
mod golden;
mod help;
mod hpc;
mod import;
mod inference;
mod limits;
mod names;
mod pages;
mod place;
mod properties;
mod rooms;
mod study;
mod study_sharing;
mod trace_formats;
mod trace_fuzz;
mod trace_link;
mod trace_lower;
mod trace_tools;
mod validate;
