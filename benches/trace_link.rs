//! Speeds of linking, converting and replaying: `cargo bench --features cbc --bench trace_link`. `docs/traces-linked.md` keeps dated figures.
//!
//! The traces of `tests/traces` are always measured, the larger pairs of `../shared/traces` where present.

use flowspace::trace::convert::{Conversion, write_to};
use flowspace::trace::link::{LinkedTrace, Steps, file, link};
use flowspace::trace::replay::{Delays, Timing};
use flowspace::trace::{host, kineto};
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    divan::main();
}

/// Name, host trace, device trace.
const PAIRS: [(&str, &str, &str); 3] = [
    ("mlp", "tests/traces/torch_mlp_host.json.gz", "tests/traces/torch_mlp_device.json.gz"),
    (
        "megatron",
        "../shared/traces/astra-sim/megatron-tp8/megatron_et_0.json.gz",
        "../shared/traces/astra-sim/megatron-tp8/megatron_kineto_0.json.gz",
    ),
    (
        "resnet",
        "../shared/traces/param/1.0.3-chakra.0.0.4/resnet_1gpu_et.json.gz",
        "../shared/traces/HolisticTraceAnalysis/nccl_data.json.gz",
    ),
];

/// A file beside the checkout, or one level further up.
fn find(path: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    [root.join(path), root.join("..").join(path)].into_iter().find(|p| p.is_file())
}

fn files() -> Vec<(&'static str, PathBuf, PathBuf)> {
    PAIRS.iter().filter_map(|&(name, h, d)| Some((name, find(h)?, find(d)?))).collect()
}

fn names() -> Vec<&'static str> {
    files().into_iter().map(|(name, _, _)| name).collect()
}

fn linked(name: &str) -> LinkedTrace {
    let (_, h, d) = files().into_iter().find(|f| f.0 == name).expect("a listed pair");
    let (host, device) = (host::read(&h).expect("a host trace"), kineto::read(&d).expect("a device trace"));
    link(Some(&host), &device, &Steps::All).expect("a pair").0
}

/// Both files read, linked, and the linked trace encoded: what `flowspace trace link` does, on one thread.
#[divan::bench(sample_count = 10, args = names())]
fn link_files(bencher: divan::Bencher, name: &str) {
    let (_, h, d) = files().into_iter().find(|f| f.0 == name).expect("a listed pair");
    bencher.bench(|| {
        let (host, device) = (host::read(&h).expect("a host trace"), kineto::read(&d).expect("a device trace"));
        let (trace, _) = link(Some(&host), &device, &Steps::All).expect("a pair");
        let mut out = Vec::new();
        file::write_to(&trace, &mut out).expect("memory");
        out
    });
}

/// A linked trace decoded and converted: what `flowspace trace convert` does.
#[divan::bench(sample_count = 20, args = names())]
fn convert_file(bencher: divan::Bencher, name: &str) {
    let mut bytes = Vec::new();
    file::write_to(&linked(name), &mut bytes).expect("memory");
    bencher.bench(|| {
        let trace = file::read_from(Cursor::new(&bytes), Path::new("memory")).expect("a linked trace");
        let mut out = Vec::new();
        write_to(&trace, &mut Conversion::new(&trace, &Default::default()), &mut out).expect("memory");
        out
    });
}

/// Dependencies built and replayed once.
#[divan::bench(sample_count = 20, args = names())]
fn replay_once(bencher: divan::Bencher, name: &str) {
    let trace = linked(name);
    bencher.bench(|| Timing::new(&trace, Delays::Typical).expect("a linked trace").replay(&trace, |_, n| n.dur_ns));
}

/// Replayed again with other durations.
#[divan::bench(sample_count = 20, args = names())]
fn replay_again(bencher: divan::Bencher, name: &str) {
    let trace = linked(name);
    let timing = Timing::new(&trace, Delays::Typical).expect("a linked trace");
    bencher.bench(|| timing.replay(&trace, |_, n| n.dur_ns / 2));
}
