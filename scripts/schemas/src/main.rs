//! Writes `proto/generated`, which is what the schemas in `proto/` compile to. It is kept in the repository, so that a build of flowspace
//! need not compile the compilers. Usage: `cargo run -p flowspace-schemas [-- --check]`: with `--check` it only says whether all is as it would write it.

use prost_build::Config;
use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let check = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => return Err(format!("{other:?}: expected --check or nothing").into()),
    };
    let proto = &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let mut schemas: Vec<PathBuf> =
        std::fs::read_dir(proto)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    schemas.retain(|path| path.extension().is_some_and(|e| e == "proto"));
    schemas.sort();
    let mut compiler = protox::Compiler::new([proto])?;
    compiler.open_files(&schemas)?;
    let out = std::env::temp_dir().join(format!("flowspace-schemas-{}", std::process::id()));
    std::fs::create_dir_all(&out)?;
    Config::new().out_dir(&out).compile_fds(compiler.file_descriptor_set())?;
    let types = std::fs::read(out.join("flowspace.chakra.rs"))?;
    std::fs::remove_dir_all(&out)?;
    for (name, made) in [("descriptors.bin", compiler.encode_file_descriptor_set()), ("chakra.rs", types)] {
        let kept = proto.join("generated").join(name);
        if !check {
            std::fs::write(&kept, &made)?;
        } else if std::fs::read(&kept)? != made {
            return Err(format!(
                "{} is not of the schemas: cargo run -p flowspace-schemas writes it anew",
                kept.display()
            )
            .into());
        }
    }
    Ok(())
}
