//! Specification files: YAML with a memory of where everything stood.
//!
//! A file becomes a tree of [`Node`]s that know their file, line and column; references to other files are followed
//! ([`Loader`]), and names lead into the [`catalogue`]; a [`Reader`] turns nodes into typed structures and collects *every* problem of a file instead of
//! stopping at the first (which is why serde does not do this job). The `spec!` macro defines a
//! structure once: its reader, its JSON Schema ([`schema`]) and its documentation come from that one definition.

pub mod catalogue;
pub mod kind;
pub mod markdown;
pub mod nearest;
pub mod node;
pub mod read;
pub mod schema;

pub use kind::FileKind;
pub use node::{Loader, Node, Origin, Value};
pub use read::{FromNode, Problem, Problems, Reader};
