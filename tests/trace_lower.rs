//! Traces and graphs become workloads: FLOP, phases, folding, re-targeting.

use flowspace::trace::lower::coverage::coverage;
use flowspace::trace::lower::host::{self, Steps};
use flowspace::trace::lower::program::Program;
use flowspace::trace::ops::Options;
use flowspace::trace::{fx, host as host_trace};
use std::path::{Path, PathBuf};

/// The reference data beside the checkout, where there is any.
fn shared() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = ["../shared", "../../shared"].iter().map(|p| root.join(p)).find(|p| p.is_dir());
    if found.is_none() {
        println!("no reference data beside the checkout: this check is skipped");
    }
    found
}

fn program(path: &Path, steps: Steps) -> Program {
    let trace = host_trace::read(path).unwrap_or_else(|e| panic!("{e}"));
    host::program(&trace, "trace", steps, &Options::default(), &|_| None).unwrap()
}

/// Two steps of a GPT under DDP, 6,088,032,256 FLOP each by torch.utils.flop_counter.
#[test]
fn gpt_ddp_has_the_flop_of_torchs_counter() {
    let Some(shared) = shared() else { return };
    for rank in 0..2 {
        let p = program(&shared.join(format!("traces/generated-torch-cpu/gpt_ddp/host.{rank}.json.gz")), Steps::All);
        let c = coverage(&p);
        assert_eq!(c.counted, 12_176_064_512, "{:?}", c.ops);
        assert!(c.unknown.is_empty(), "{:?}", c.unknown);
    }
}

/// Every graph and every training trace of torch_flops.json, exactly, in total and by operator.
#[test]
fn models_have_the_flop_of_torchs_counter() {
    let Some(shared) = shared() else { return };
    let golden: serde_json::Value =
        serde_json::from_slice(&std::fs::read(shared.join("reference/torch_flops.json")).unwrap()).unwrap();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(shared.join("traces/torch")).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut checked = 0;
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap().to_string();
        let Some((model, b)) = ["gpt2_2layer", "gpt2_block", "resnet50"]
            .iter()
            .find_map(|m| name.strip_prefix(&format!("{m}_b")).map(|rest| (*m, rest.split('_').next().unwrap().to_string())))
        else {
            continue;
        };
        let p = if name.contains("_fx") {
            fx::read(&file, &Options::default()).unwrap()
        } else if name.contains("_et") {
            program(&file, Steps::All)
        } else {
            continue;
        };
        let c = coverage(&p);
        let batch = &golden["models"][model]["batches"][&b];
        let (key, by_op) = if name.contains("infer") {
            ("forward_flops", "forward_by_op")
        } else {
            ("forward_backward_flops", "forward_backward_by_op")
        };
        assert_eq!(Some(c.counted), batch[key].as_u64(), "{name}: {:#?}", c.ops);
        for row in &c.ops {
            let wanted = batch[by_op][format!("aten.{}", row.op)].as_u64();
            assert_eq!(row.counted, wanted, "{name}: {}", row.op);
        }
        assert!(c.unknown.is_empty(), "{name}: {:?}", c.unknown);
        checked += 1;
    }
    assert_eq!(checked, 16);
}
