//! Recorded traces: Chakra, PyTorch and Kineto, and what is made of them.
//!
//! Every reader streams: it holds the graph it builds and one piece of the text, never the text. Strings that repeat are held once
//! ([`Text`]). What cannot be read is a [`TraceError`] that names the file, the byte, the node and the field.

pub mod chakra;
pub mod collective;
pub mod convert;
pub mod critical;
pub mod detect;
pub mod error;
pub mod fx;
pub mod fx_nodes;
pub mod generate;
pub mod graphs;
pub mod host;
pub mod input;
pub mod intern;
pub(crate) mod json;
pub mod kineto;
pub mod link;
pub mod lower;
pub mod names;
pub mod ops;
pub mod output;
pub(crate) mod raw;
pub mod replay;
pub mod report;
pub mod runs;
pub mod schema;
pub mod summary;
pub mod timeline;

pub use collective::Collective;
pub use error::{TraceError, TraceErrors};
pub use intern::{Interner, Text};
