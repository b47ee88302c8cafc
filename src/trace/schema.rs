//! The Rust types of `proto/chakra.proto`, generated at build time.
#![allow(missing_docs, clippy::all)] // generated: the schema itself is the documentation

include!(concat!(env!("OUT_DIR"), "/flowspace.chakra.rs"));
