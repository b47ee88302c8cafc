//! Reading of recorded traces.

use flowspace::trace::{host, kineto};
use std::path::PathBuf;

/// Folder of recorded traces beside the checkout, where there is one.
fn shared() -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let found = root.ancestors().skip(1).take(2).map(|a| a.join("shared/traces")).find(|p| p.is_dir());
    if found.is_none() {
        println!("no folder shared/traces: skipped");
    }
    found
}

fn files(folder: &PathBuf, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
}

#[test]
fn every_recorded_json_is_read() {
    let Some(folder) = shared() else { return };
    let mut all = Vec::new();
    files(&folder, &mut all);
    for path in all.iter().filter(|p| p.to_string_lossy().ends_with(".json.gz")) {
        let t = std::time::Instant::now();
        match (host::read(path), kineto::read(path)) {
            (Ok(h), Err(_)) => println!("{} host {} nodes {:?}", path.display(), h.nodes.len(), t.elapsed()),
            (Err(_), Ok(k)) => println!("{} kineto {} events {:?}", path.display(), k.events.len(), t.elapsed()),
            (Err(a), Err(b)) => println!("{}\n   {a}\n   {b}", path.display()),
            (Ok(_), Ok(_)) => panic!("{} is both", path.display()),
        }
    }
}
