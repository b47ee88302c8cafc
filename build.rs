//! Compiles the schemas in `proto/` to Rust types, and keeps their descriptors for reading and writing text protobuf.

use prost_build::Config;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut schemas: Vec<PathBuf> =
        std::fs::read_dir("proto")?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    schemas.retain(|path| path.extension().is_some_and(|e| e == "proto"));
    schemas.sort();
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.open_files(&schemas)?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    Config::new().compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
