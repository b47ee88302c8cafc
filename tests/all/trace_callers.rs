//! FLOP of host traces whose callers are wrong: as much as with the times of the device trace, or it is said what is not certain.

use flowspace::trace::lower::coverage::{Coverage, coverage};
use flowspace::trace::lower::host::Steps;
use flowspace::trace::lower::program::Part;
use flowspace::trace::lower::{Request, load};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Recorded traces beside the checkout, where there are any.
fn shared() -> Option<PathBuf> {
    let found = ["../shared/traces", "../../shared/traces"].iter().map(|p| root().join(p)).find(|p| p.is_dir());
    if found.is_none() {
        println!("no recorded traces beside the checkout: this check is skipped");
    }
    found
}

/// A folder of its own for each test.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("trace_callers_{name}"));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn counted(file: &Path, kineto: Option<&Path>) -> Coverage {
    let request = Request { steps: Steps::All, kineto: kineto.map(PathBuf::from), ..Request::default() };
    coverage(&load(file, &request).unwrap_or_else(|e| panic!("{}: {e}", file.display())))
}

fn of_linked(host: &Path, device: &Path, dir: &Path) -> Coverage {
    let out = dir.join("linked.et");
    let told = Command::new(env!("CARGO_BIN_EXE_flowspace"))
        .args(["trace", "link", "--host"])
        .arg(host)
        .arg("--device")
        .arg(device)
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    counted(&out, None)
}

fn read(file: &Path) -> Value {
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flowspace::trace::input::open(file).unwrap(), &mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn id(node: &Value, field: &str) -> u64 {
    node[field].as_u64().unwrap()
}

/// The trace as the observer writes it where the operator of this name, about a third down the list of them, never leaves the stack: all that
/// is called later by one of its callers seems to be called by it.
fn never_left(trace: &Value, name: &str) -> Option<Value> {
    let mut trace = trace.clone();
    let nodes = trace["nodes"].as_array_mut()?;
    let mut of_name: Vec<(u64, u64)> =
        nodes.iter().filter(|n| n["name"] == name).map(|n| (id(n, "id"), id(n, "ctrl_deps"))).collect();
    of_name.sort_unstable();
    let &(stays, mut above) = of_name.get(of_name.len() / 3)?;
    let callers: std::collections::HashMap<u64, u64> =
        nodes.iter().map(|n| (id(n, "id"), id(n, "ctrl_deps"))).collect();
    let mut below = std::collections::HashSet::new();
    while above > 1 && below.insert(above) {
        above = callers[&above];
    }
    for n in nodes.iter_mut().filter(|n| n["id"].as_u64() > Some(stays)) {
        if below.contains(&id(n, "ctrl_deps")) && !n["name"].as_str().unwrap().starts_with("[pytorch") {
            n["ctrl_deps"] = stays.into();
        }
    }
    Some(trace)
}

#[test]
fn an_operator_that_never_leaves_the_stack_hides_nothing() {
    let dir = folder("stack");
    let of = |name: &str, side: &str| root().join(format!("tests/traces/torch_{name}_{side}.json.gz"));
    for (trace, names) in [
        ("mlp", &["aten::mm", "aten::addmm", "aten::relu", "aten::empty"][..]),
        ("attention", &["aten::mm", "aten::addmm", "aten::add_"][..]),
    ] {
        let (host, device) = (of(trace, "host"), of(trace, "device"));
        let whole = counted(&host, None);
        assert_eq!(whole.untrusted, None);
        for name in names {
            let file = dir.join("broken.json");
            std::fs::write(&file, never_left(&read(&host), name).unwrap().to_string()).unwrap();
            let found = counted(&file, None);
            assert_eq!(found.counted, whole.counted, "{trace} {name}");
            let untrusted = found.untrusted.unwrap();
            assert!(untrusted.calls > 0 && untrusted.flop <= found.flop, "{trace} {name}: {untrusted:?}");
            let timed = counted(&file, Some(&device));
            assert_eq!((timed.flop, timed.calls, timed.untrusted), (whole.flop, whole.calls, None), "{trace} {name}");
            assert_eq!(of_linked(&file, &device, &dir).flop, whole.flop, "{trace} {name}");
        }
    }
}

/// Callers that are not in the file: their callees are counted, and their share is told.
#[test]
fn lost_callers_lose_no_work() {
    let dir = folder("lost");
    let host = root().join("tests/traces/torch_mlp_host.json.gz");
    let whole = counted(&host, None);
    let mut cut = read(&host);
    let nodes = cut["nodes"].as_array_mut().unwrap();
    nodes.retain(|n| !n["name"].as_str().unwrap().contains("AddmmBackward") && n["name"] != "aten::linear");
    let file = dir.join("cut.json");
    std::fs::write(&file, cut.to_string()).unwrap();
    let found = counted(&file, None);
    assert_eq!((found.flop, found.counted), (whole.flop, whole.counted));
    // All products of the trace stood in what is lost.
    assert!(found.untrusted.unwrap().flop >= whole.counted, "{:?}", found.untrusted);
    for command in ["flops", "lower"] {
        let out = Command::new(env!("CARGO_BIN_EXE_flowspace")).args(["trace", command]).arg(&file).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && text.contains("not certain: "), "{text}");
    }
    // The lost frames of the backward pass are known by what stands before them.
    let parts = |c: &Coverage, part| c.by_part.get(&part).copied().unwrap_or(0);
    assert_eq!(parts(&found, Part::Optimiser), parts(&whole, Part::Optimiser));
    assert!(parts(&found, Part::Backward) >= parts(&whole, Part::Backward) / 2, "{:?}", found.by_part);
}

/// The asynchronous all-reduce of DDP, which stays on the stack of our own recording: optimiser and copies are no part of it.
#[test]
fn ddp_has_its_optimiser() {
    let dir = folder("ddp");
    let of = |side: &str| root().join(format!("tests/traces/torch_ddp_rank0_{side}.json.gz"));
    let (host, device) = (of("host"), of("device"));
    let linked = of_linked(&host, &device, &dir);
    assert_eq!(linked.flop, 189_456);
    assert_eq!(counted(&host, None).flop, linked.flop);
    assert_eq!(counted(&host, Some(&device)).flop, linked.flop);
}

/// Host traces and device traces of one run: the host trace alone, with the times beside it, and linked have the same FLOP.
#[test]
fn every_pair_agrees() {
    let Some(root) = shared() else { return };
    let mut pairs: Vec<(String, String)> = Vec::new();
    for r in 0..4 {
        let megatron = "astra-sim/megatron-tp8/megatron_";
        pairs.push((format!("{megatron}et_{r}.json.gz"), format!("{megatron}kineto_{r}.json.gz")));
        let worker = std::fs::read_dir(root.join("param/dlrm"))
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .find(|n| n.starts_with(&format!("worker{r}_")))
            .unwrap();
        pairs.push((format!("param/dlrm/dlrm_eg_{r}.json.gz"), format!("param/dlrm/{worker}")));
    }
    for r in 0..2 {
        let ddp = "generated-torch-cpu/gpt_ddp/";
        pairs.push((format!("{ddp}host.{r}.json.gz"), format!("{ddp}device.{r}.json.gz")));
    }
    for (host, device) in [
        ("generated-torch-cpu/opzoo/host.0", "generated-torch-cpu/opzoo/device.0"),
        ("param/1.0.3-chakra.0.0.4/resnet_1gpu_et", "HolisticTraceAnalysis/nccl_data"),
        ("param/resnet_1gpu_et_1.1.1", "hta/param_resnet_rtx2080ti_kineto"),
        (
            "HolisticTraceAnalysis/execution_trace/benchmark_simple_add_et",
            "HolisticTraceAnalysis/execution_trace/benchmark_simple_add_trace",
        ),
    ] {
        pairs.push((format!("{host}.json.gz"), format!("{device}.json.gz")));
    }
    for name in [
        "gpt2_2block_tp2_rank0",
        "gpt2_2block_tp2_rank1",
        "gpt2_2layer_b2_train",
        "gpt2_block_b4_train",
        "mlp6_ddp2_rank0",
        "mlp6_ddp2_rank1",
        "resnet50_b4_train",
    ] {
        pairs.push((format!("torch/{name}_et.json.gz"), format!("torch/{name}_kineto.json.gz")));
    }
    let dir = folder("pairs");
    for (host, device) in &pairs {
        let (host, device) = (root.join(host), root.join(device));
        let sums = |c: &Coverage| (c.counted, c.flop);
        let alone = sums(&counted(&host, None));
        assert!(alone.1 > 0, "{}", host.display());
        assert_eq!(alone, sums(&counted(&host, Some(&device))), "{} with times", host.display());
        assert_eq!(alone, sums(&of_linked(&host, &device, &dir)), "{} linked", host.display());
    }
    assert_eq!(pairs.len(), 21);
}
