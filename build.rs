//! Lists the files of the catalogue, so that they travel in the binary; and notes the commit.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Folders whose specification files are compiled in.
const CATALOGUE: [&str; 4] = ["systems", "workloads", "studies", "validation"];

/// The paths of the `.yaml` files below `folder`, with `/` between folders.
fn specifications(folder: &Path, found: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            specifications(&path, found)?;
        } else if path.extension().is_some_and(|e| e == "yaml") {
            let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
            found.push(parts.join("/"));
        }
    }
    Ok(())
}

/// A slice of paths and texts, sorted by path: included by `src/spec/catalogue.rs`.
fn catalogue() -> Result<String, Box<dyn std::error::Error>> {
    let mut paths = Vec::new();
    for folder in CATALOGUE {
        println!("cargo:rerun-if-changed={folder}");
        specifications(Path::new(folder), &mut paths)?;
    }
    paths.sort();
    let mut list = String::from("&[\n");
    for path in paths {
        writeln!(list, "({path:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/\", {path:?}))),")?;
    }
    list.push(']');
    Ok(list)
}

/// The commit that this is built from: of the repository whose root this folder is, or as `cargo package` noted it. `None` without git.
fn commit() -> Option<String> {
    if let Ok(note) = std::fs::read_to_string(".cargo_vcs_info.json") {
        let hash = note.split("\"sha1\"").nth(1)?.split('"').nth(1)?;
        return Some(hash.chars().take(12).collect());
    }
    let git = |words: &[&str]| {
        let output = std::process::Command::new("git").args(words).output().ok().filter(|o| o.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    // A copy inside another repository has that one's commits, which say nothing of it.
    let root = Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()?;
    if root != std::env::current_dir().ok()?.canonicalize().ok()? {
        return None;
    }
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        // Of a file that is not there cargo would say each time that it changed.
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(commit) = commit() {
        println!("cargo:rustc-env=FLOWSPACE_COMMIT={commit}");
    }
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("catalogue.rs"), catalogue()?)?;
    Ok(())
}
