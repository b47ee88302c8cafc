//! The command line: one file a sub-command. `main.rs` parses, calls and exits; everything that can be tested is here.
