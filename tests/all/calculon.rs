//! Our predictions beside Calculon's: recorded cases of the folder `shared` beside the checkout, where there is one.
//!
//! `cargo test --release --features cbc --test all calculon:: -- --nocapture side_by_side` prints every case and the tables of `docs/calculon.md`, which `figures` checks.

use flowspace::execution::inference::{self, Layout, Server};
use flowspace::execution::predict::{Prediction, predict_any};
use flowspace::execution::{Execution, ExecutionFile, Machine};
use flowspace::import::calculon::{Input, import};
use flowspace::spec::read::{Fraction, Table};
use flowspace::spec::{Node, Reader};
use flowspace::system::System;
use flowspace::units::Seconds;
use flowspace::workload::language::{LanguageModel, ModelPass};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The folder of recorded cases, where there is one.
fn shared() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = ["../shared/reference", "../../shared/reference"].iter().map(|p| root.join(p)).find(|p| p.is_dir());
    if found.is_none() {
        println!("no folder shared/reference: skipped");
    }
    found
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A row of the file as an object.
fn object(names: &Value, row: &Value) -> Map<String, Value> {
    let names = names.as_array().unwrap().iter().map(|n| n.as_str().unwrap().to_string());
    names.zip(row.as_array().unwrap().iter().cloned()).collect()
}

/// Ways in which our spaces of executions differ: a case may be refused for one of these alone.
const REFUSED: [&str; 2] = ["pieces of layers (pp x chunks", "an interleaved schedule needs microbatches"];

/// Seconds of what both models know, in this order.
const PARTS: [&str; 8] = ["kernels", "again", "tp", "pp", "bubble", "dp", "optimizer", "offload"];

/// A case with the answers of both.
struct Case {
    id: String,
    label: String,
    class: &'static str,
    theirs: f64,
    their_bytes: f64,
    their_parts: [f64; 8],
    ours: f64,
    our_bytes: f64,
    our_parts: [f64; 8],
    host: f64,
    /// Of ours: what products take longer than at Calculon's 95 % of the peak, what embedding and head take, and what software does (host
    /// code, start of collectives).
    products: f64,
    ends: f64,
    software: f64,
    measured: Option<f64>,
    /// Bytes of ours less theirs: weights, gradients, optimiser, activations with ends and buffers.
    memory: [f64; 4],
}

/// Our cluster with as many boxes as the case takes; `inner` chips to a box.
fn cluster(file: &str, chips: u64, inner: u64) -> System {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("systems/clusters").join(file);
    let mut system = System::build(&System::load(&path).unwrap()).unwrap();
    let sizes = [inner, chips.div_ceil(inner).max(1)];
    for (dimension, size) in system.network.dimensions.iter_mut().zip(sizes) {
        dimension.size = size;
    }
    system
}

fn number(map: &Map<String, Value>, name: &str) -> f64 {
    map[name].as_f64().unwrap()
}

/// What decides how far apart the two may be; the first that holds.
fn class(exec: &Map<String, Value>, h100: bool) -> &'static str {
    let on = |name: &str| exec[name].as_bool().unwrap();
    let is = |name: &str, word: &str| exec[name].as_str().unwrap() == word;
    if !on("training") {
        "inference"
    } else if on("weight_offload") || on("activations_offload") || on("optimizer_offload") {
        "offload"
    } else if number(exec, "tensor_par_net") > 0.0 && number(exec, "tensor_par") > 1.0 {
        "tp on the outer network"
    } else if is("datatype", "float8") {
        "H100, 8-bit products"
    } else {
        let full = is("activation_recompute", "full");
        match (h100, !is("tensor_par_overlap", "none"), full) {
            (false, true, _) => "A100, tp overlapped",
            (false, _, true) => "A100, full recomputation",
            (false, ..) => "A100, selective or none",
            (true, true, _) => "H100, tp overlapped",
            (true, _, true) => "H100, full recomputation",
            (true, ..) => "H100, selective or none",
        }
    }
}

/// A prediction, and what of it products (against `fast`), ends and software take.
fn training(
    machine: &Machine,
    fast: &Machine,
    model: &LanguageModel,
    e: &Execution,
) -> Result<(Prediction, [f64; 3]), String> {
    let p = predict_any(machine, model, e)?;
    let products = p.time.total - predict_any(fast, model, e)?.time.total;
    // The same without embedding and head worth the name, and with software that costs nothing.
    let small =
        LanguageModel { vocab: Some(1), position: flowspace::workload::language::Position::None, ..model.clone() };
    let ends = p.time.total - predict_any(machine, &small, e)?.time.total;
    let mut free = machine.clone();
    let zero = Seconds(0.0);
    let s = &mut free.stack;
    (s.host_layer_forward, s.host_layer_backward, s.host_layer_recompute) = (zero, zero, zero);
    (s.host_attention_recompute, s.host_collective_peer, s.host_microbatch) = (zero, zero, zero);
    (s.host_hand_over, s.host_iteration, s.collective_overhead) = (zero, zero, zero);
    let software = p.time.total - predict_any(&free, model, e)?.time.total;
    Ok((p, [products, ends, software]))
}

fn read(shared: &Path, file: &Value, case: &Value, measured: &BTreeMap<String, f64>) -> Result<Case, String> {
    let word = |key: &str| case[key].as_str().unwrap().to_string();
    let (id, app, system) = (word("id"), word("app"), word("system"));
    let exec = object(&file["exec_fields"], &case["exec"]);
    let out = object(&file["out_fields"], &case["out"]);
    let text = |folder: &str, name: &str| {
        std::fs::read_to_string(shared.join("calculon").join(folder).join(format!("{name}.json"))).unwrap()
    };
    let (app_text, system_text) = (text("apps", &app), text("systems", &system));
    let exec_text = serde_json::to_string(&exec).unwrap();
    let input = |name: &'static str, text| Input { name, text };
    let imported = import(
        input("app.json", &app_text),
        input("exec.json", &exec_text),
        input("system.json", &system_text),
        "case",
    )
    .map_err(|e| format!("{id}: {e}"))?;
    let tree = |part: &str| {
        let (name, text) = imported.files.iter().find(|(name, _)| name.contains(part)).unwrap();
        Node::parse(name, text).unwrap()
    };
    let model = Reader::read::<LanguageModel>(&tree("workload")).unwrap();
    let e = Reader::read::<ExecutionFile>(&tree("execution")).unwrap().execution;
    let n = |name: &str| number(&out, name);
    let class = class(&exec, system.starts_with("h100"));
    let chips = number(&exec, "num_procs") as u64;
    let inner = if system.contains("nvl64") { 64 } else { 8 };
    let name = if system.starts_with("h100") { "dgx-h100.yaml" } else { "selene-2022.yaml" };
    let ours = cluster(name, chips, inner.min(chips));
    let theirs: Value = serde_json::from_str(&system_text).unwrap();
    let label = format!(
        "{app} {system} tp {} pp {} dp {} v {} b {}/{} {}{}",
        e.tp,
        e.pp,
        e.dp,
        e.chunks,
        model.global_batch,
        e.micro_batch,
        e.recompute,
        if e.sequence_parallel { " sp" } else { "" }
    );
    let mut found = Case {
        id: id.clone(),
        label,
        class,
        theirs: n("total_time"),
        their_bytes: n("proc_mem_tier1_cap_req"),
        their_parts: [
            n("fw_time") + n("bw_time"),
            n("recompute_time"),
            n("tp_comm_exposed_time") + n("recomm_exposed_time"),
            n("pp_comm_exposed_time"),
            n("bubble_time"),
            n("dp_comm_exposed_time"),
            n("optim_step_time"),
            n("fw_offload_exposed_time") + n("bw_offload_exposed_time"),
        ],
        ours: 0.0,
        our_bytes: 0.0,
        our_parts: [0.0; 8],
        host: 0.0,
        products: 0.0,
        ends: 0.0,
        software: 0.0,
        memory: [0.0; 4],
        measured: measured.get(&id).copied(),
    };
    if model.pass == ModelPass::Inference {
        let server = Server::new(&ours).map_err(|e| format!("{id}: {e}"))?;
        let layout = Layout { tp: e.tp, pp: e.pp, dp: e.dp, ep: 1 };
        let p = inference::predict(&server, &model, layout, model.global_batch).map_err(|e| format!("{id}: {e}"))?;
        (found.ours, found.our_bytes) = (p.latency_s, p.memory.total());
        let s = &p.prompt;
        found.our_parts = [s.weights + s.attention + s.vector, 0.0, s.network, 0.0, 0.0, 0.0, 0.0, 0.0];
        found.host = s.kernels + s.host;
        return Ok(found);
    }
    // Theirs overlaps where it is asked to, and offloads over its second tier: so does ours here.
    let tier = &theirs["mem2"];
    let bandwidth = tier["GBps"].as_f64().unwrap() * 1e9 * tier["MB_efficiency"][0][1].as_f64().unwrap_or(1.0);
    let machine = |system: &System| {
        let mut machine = Machine::new(system).map_err(|e| format!("{id}: {e}"))?;
        (machine.stack.overlap_dp, machine.stack.overlap_tp) = (true, true);
        machine.second_tier = Some((bandwidth, None));
        Ok::<Machine, String>(machine)
    };
    let mut fast = ours.clone();
    let kernels = fast.chip.0.kernels.as_mut().unwrap();
    (kernels.efficiency, kernels.type_efficiency) = (Fraction(0.95), Table(Vec::new()));
    let answer = training(&machine(&ours)?, &machine(&fast)?, &model, &e);
    let (p, [products, ends, software]) = answer.map_err(|e| format!("{id}: {e}"))?;
    let d = &p.memory.device;
    let activations = d.activations + d.working + d.head + d.buffers;
    found.memory = [
        d.weights - n("weight_space"),
        d.gradients - n("weight_grad_space"),
        d.optimizer - n("optimizer_space"),
        activations - n("act_space") - n("act_checkpoint_size") - n("act_grad_space"),
    ];
    let t = &p.time;
    found.ours = t.total;
    found.our_bytes = p.memory.device.total();
    found.our_parts =
        [t.forward + t.backward, t.recompute, t.tp + t.cp, t.hand_over, t.bubble, t.dp, t.optimizer, t.offload];
    found.host = t.host;
    (found.products, found.ends, found.software) = (products, ends, software);
    Ok(found)
}

/// Measured seconds by case: table 5 of Korthikanti et al. 2022 is cases s001 to s008 in its order.
fn measured(shared: &Path, file: &Value) -> BTreeMap<String, f64> {
    let table = json(&shared.join("calculon/selene_validation.json"));
    let rows = table["table5_seconds"].as_array().unwrap();
    let cases = file["cases"].as_array().unwrap();
    let mut out = BTreeMap::new();
    for row in rows {
        let note = format!("{}_{}", row["app"].as_str().unwrap(), row["mode"].as_str().unwrap());
        let same = |c: &&Value| c["note"] == note.as_str() && c["system"] == "a100_80g" && c["group"] == "selene_tab5";
        let case = cases.iter().find(same).unwrap_or_else(|| panic!("no case {note}"));
        out.insert(case["id"].as_str().unwrap().to_string(), row["measured"].as_f64().unwrap());
    }
    out
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let all: Vec<f64> = values.collect();
    all.iter().sum::<f64>() / (all.len() as f64).max(1.0)
}

/// The tables of docs/calculon.md.
pub struct Tables {
    /// The measured cases.
    pub measured: String,
    /// Ratios by class.
    pub classes: String,
    /// Where the difference in time lies.
    pub causes: String,
    /// Where the difference in memory lies.
    pub memory: String,
}

/// The tables, where the recorded cases are there.
pub fn tables() -> Option<&'static Tables> {
    static TABLES: std::sync::LazyLock<Option<Tables>> = std::sync::LazyLock::new(|| {
        let (found, refused) = compared()?;
        Some(Tables {
            measured: measured_cases(&found),
            classes: format!("{}| refused | {} | | | | | | |\n", classes(&found), refused.len()),
            causes: causes(&found),
            memory: memory_causes(&found),
        })
    });
    TABLES.as_ref()
}

/// Every feasible case, and the reasons of those that are refused.
fn compared() -> Option<(Vec<Case>, Vec<String>)> {
    let shared = shared()?;
    let file = json(&shared.join("calculon_cases.json"));
    let measured = measured(&shared, &file);
    let cases: Vec<&Value> = file["cases"].as_array().unwrap().iter().filter(|c| c["status"] == "ok").collect();
    assert_eq!(cases.len(), 103);
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for case in cases {
        match read(&shared, &file, case, &measured) {
            Ok(case) => found.push(case),
            Err(reason) => refused.push(reason),
        }
    }
    Some((found, refused))
}

/// Every feasible case imports, and is predicted or refused for a listed reason.
#[test]
fn side_by_side() {
    let Some((found, refused)) = compared() else { return };
    for reason in &refused {
        assert!(REFUSED.iter().any(|known| reason.contains(known)), "{reason}");
    }
    assert_eq!(found.len() + refused.len(), 103);
    assert_eq!(found.iter().filter(|c| c.measured.is_some()).count(), 8);
    println!("| case | class | ours, s | Calculon, s | ratio | ours, GiB | Calculon, GiB | ratio | measured, s |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let gib = 1024f64.powi(3);
    for c in &found {
        assert!(c.ours.is_finite() && c.ours > 0.0 && c.our_bytes > 0.0, "{}", c.id);
        println!(
            "| {} {} | {} | {:.3} | {:.3} | {:.2} | {:.1} | {:.1} | {:.2} | {} |",
            c.id,
            c.label,
            c.class,
            c.ours,
            c.theirs,
            c.ours / c.theirs,
            c.our_bytes / gib,
            c.their_bytes / gib,
            c.our_bytes / c.their_bytes,
            c.measured.map_or_else(String::new, |m| format!("{m:.2}"))
        );
    }
    refused.iter().for_each(|reason| println!("refused: {reason}"));
    println!("\n{}\n{}\n{}\n{}", classes(&found), causes(&found), memory_causes(&found), measured_cases(&found));
    assert!(off(&found, |c| c.ours) <= 3.5);
}

/// Mean absolute error over the measured cases, in per cent.
fn off(found: &[Case], f: impl Fn(&Case) -> f64) -> f64 {
    100.0 * mean(found.iter().filter_map(|c| c.measured.map(|m| (f(c) / m - 1.0).abs())))
}

/// Both models against the eight measurements.
fn measured_cases(found: &[Case]) -> String {
    let mut out = String::from("| model, recomputation | measured, s | ours, s | Calculon, s |\n|---|---|---|---|\n");
    for c in found {
        if let Some(seconds) = c.measured {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "| {} {} | {seconds:.2} | {:.2} | {:.2} |", c.id, c.label, c.ours, c.theirs);
        }
    }
    let (ours, theirs) = (off(found, |c| c.ours), off(found, |c| c.theirs));
    let _ = writeln!(out, "| **mean absolute error** | | **{ours:.2} %** | **{theirs:.2} %** |");
    out
}

fn names(found: &[Case]) -> Vec<&'static str> {
    let mut names: Vec<&str> = found.iter().map(|c| c.class).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Ratios by class.
fn classes(found: &[Case]) -> String {
    let mut out = String::from(
        "| class | cases | time: mean | least | most | memory: mean | least | most |\n|---|---|---|---|---|---|---|---|\n",
    );
    for name in names(found) {
        let of: Vec<&Case> = found.iter().filter(|c| c.class == name).collect();
        let range = |f: &dyn Fn(&Case) -> f64| {
            let (mut low, mut high) = (f64::INFINITY, 0f64);
            of.iter().for_each(|c| (low, high) = (low.min(f(c)), high.max(f(c))));
            format!("{:.2} | {low:.2} | {high:.2}", mean(of.iter().map(|c| f(c))))
        };
        let (time, memory) = (range(&|c| c.ours / c.theirs), range(&|c| c.our_bytes / c.their_bytes));
        let _ = writeln!(out, "| {name} | {} | {time} | {memory} |", of.len());
    }
    out
}

/// Where the difference lies: ours less theirs by part, in per cent of Calculon's time, mean of the class.
fn causes(found: &[Case]) -> String {
    let mut out = format!(
        "| class | together | {} | host | products | ends | software |\n|---|---|{}---|---|---|---|\n",
        PARTS.join(" | "),
        "---|".repeat(PARTS.len())
    );
    for name in names(found) {
        let of: Vec<&Case> = found.iter().filter(|c| c.class == name).collect();
        let share = |f: &dyn Fn(&Case) -> f64| format!("{:+.1}", 100.0 * mean(of.iter().map(|c| f(c) / c.theirs)));
        let parts: Vec<String> = (0..PARTS.len()).map(|i| share(&|c| c.our_parts[i] - c.their_parts[i])).collect();
        let _ = writeln!(
            out,
            "| {name} | {} | {} | {} | {} | {} | {} |",
            share(&|c| c.ours - c.theirs),
            parts.join(" | "),
            share(&|c| c.host),
            share(&|c| c.products),
            share(&|c| c.ends),
            share(&|c| c.software)
        );
        if std::env::var_os("CALCULON_CASES").is_some() {
            for c in of {
                let parts: Vec<String> = (0..PARTS.len())
                    .map(|i| format!("{:+.1}", 100.0 * (c.our_parts[i] - c.their_parts[i]) / c.theirs))
                    .collect();
                let pct = |x: f64| 100.0 * x / c.theirs;
                println!(
                    "|   {} | {:+.1} | {} | {:+.1} | {:+.1} | {:+.1} | {:+.1} |",
                    c.id,
                    pct(c.ours - c.theirs),
                    parts.join(" | "),
                    pct(c.host),
                    pct(c.products),
                    pct(c.ends),
                    pct(c.software)
                );
            }
        }
    }
    out
}

/// Where the difference in memory lies, in per cent of Calculon's first tier, without offloading.
fn memory_causes(found: &[Case]) -> String {
    let mut out = String::from(
        "| class | weights | gradients | optimizer | activations, ends, buffers |\n|---|---|---|---|---|\n",
    );
    for name in names(found).into_iter().filter(|n| !["offload", "inference"].contains(n)) {
        let of: Vec<&Case> = found.iter().filter(|c| c.class == name).collect();
        let share = |i: usize| format!("{:+.1}", 100.0 * mean(of.iter().map(|c| c.memory[i] / c.their_bytes)));
        let _ = writeln!(out, "| {name} | {} | {} | {} | {} |", share(0), share(1), share(2), share(3));
    }
    out
}
