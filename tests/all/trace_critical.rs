//! Critical paths against HTA 0.6.1: where `HTA_CRITICAL_PATHS` names a file of its runs (`traces: {PATH: {runs: [{annotation, instance, ...}]}}`, the paths
//! below the folder above the file's), every count, length and share must be equal.

use flowspace::trace::critical::compat::{Compat, EdgeType, Table, WhatIf, Window};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn window(run: &Value) -> Window {
    let at = |v: &Value| v.as_u64().unwrap() as usize;
    let instances = match &run["instance"] {
        Value::Null => 0..=0,
        Value::Array(ends) => at(&ends[0])..=at(&ends[1]),
        one => at(one)..=at(one),
    };
    Window { annotation: run["annotation"].as_str().unwrap().to_owned(), instances }
}

/// Compares one run; what differs is returned.
fn differences(table: &Table, run: &Value) -> Vec<String> {
    let launch_edges = run["add_zero_weight_launch_edges"].as_bool().unwrap();
    let ours = match (Compat::new(table, &window(run), launch_edges), run["exception"].as_str()) {
        (Err(_), Some(_)) => return Vec::new(),
        (Err(message), None) => return vec![format!("refused: {message}")],
        (Ok(_), Some(theirs)) => return vec![format!("HTA stops: {theirs}")],
        (Ok(ours), None) => ours,
    };
    let mut out = Vec::new();
    let mut same = |what: &str, ours: f64, theirs: &Value| {
        let theirs = theirs.as_f64().unwrap_or(0.0);
        if (ours - theirs).abs() > 1e-9 * theirs.abs() {
            out.push(format!("{what}: {ours} against {theirs}"));
        }
    };
    let graph = &ours.graph;
    let by_type = |edges: &[&flowspace::trace::critical::compat::Edge], kind: EdgeType| {
        let of = edges.iter().filter(|e| e.kind == kind);
        (of.clone().count() as f64, of.map(|e| e.weight).sum::<f64>())
    };
    same("clipped", graph.clipped.len() as f64, &run["clipped_events"]);
    same("node list", graph.nodes.len() as f64, &run["node_list_len"]);
    same("nodes", graph.seen.len() as f64, &run["graph_nodes"]);
    same("edges", graph.edges.len() as f64, &run["graph_edges"]);
    let all: Vec<_> = graph.edges.iter().collect();
    let critical: Vec<_> = ours.edges().collect();
    for kind in EdgeType::ALL {
        let (count, sum) = by_type(&all, kind);
        same(kind.name(), count, &run["edges_by_type"][kind.name()]);
        same(&format!("weight {}", kind.name()), sum, &run["weight_by_type_us"][kind.name()]);
        same(
            &format!("critical {}", kind.name()),
            by_type(&critical, kind).0,
            &run["critical_edges_by_type"][kind.name()],
        );
    }
    let negative = graph.edges.iter().filter(|e| e.weight <= -1.0).count();
    same("negative", negative as f64, &run["negative_weight_edges_clamped"]);
    same("span", ours.span(), &run["graph_span_us"]);
    same("length", ours.length, &run["critical_path_length_us"]);
    let ends: Vec<f64> = ours.nodes().map(|n| n.ts).collect();
    same("critical span", ends[ends.len() - 1] - ends[0], &run["critical_path_span_us"]);
    same("critical nodes", ours.nodes().count() as f64, &run["critical_nodes"]);
    same("critical edges", critical.len() as f64, &run["critical_edges"]);
    same("critical events", ours.events().len() as f64, &run["critical_events"]);
    let breakdown = ours.breakdown();
    for (name, us) in run["breakdown_us"].as_object().unwrap() {
        same(name, breakdown.get(name.as_str()).copied().unwrap_or(0.0), us);
    }
    let theirs = run["breakdown_us"].as_object().unwrap();
    assert!(breakdown.keys().all(|k| theirs.contains_key(*k) || breakdown[k] == 0.0), "{breakdown:?}");
    for (name, what, factor) in [
        ("gpu_kernels_x0.5", WhatIf::Device, 0.5),
        ("gpu_comm_kernels_x0", WhatIf::Communication, 0.0),
        ("cpu_ops_x0.5", WhatIf::Host, 0.5),
        ("launch_delay_x0", WhatIf::LaunchDelay, 0.0),
        ("kernel_kernel_delay_x0", WhatIf::KernelKernelDelay, 0.0),
    ] {
        same(name, ours.what_if(what, factor), &run["whatif_length_us"][name]);
    }
    if let Some(ids) = run["critical_event_ids"].as_array() {
        let ids: Vec<u32> = ids.iter().map(|i| i.as_u64().unwrap() as u32).collect();
        if ids != ours.events() {
            out.push("other critical events".into());
        }
    }
    for (at, top) in run["top_critical_events"].as_array().into_iter().flatten().enumerate() {
        let us = ours.by_event().get(at).map_or(0.0, |e| e.1);
        if us != top["us"].as_f64().unwrap() {
            out.push(format!("top event {at}: {us} against {top}"));
        }
    }
    out
}

#[test]
fn equal_to_hta_in_every_stored_run() {
    let Some(file) = std::env::var_os("HTA_CRITICAL_PATHS").map(PathBuf::from) else { return };
    let document: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let above = file.parent().and_then(Path::parent).unwrap();
    let (mut runs, mut wrong) = (0, 0);
    for (path, entry) in document["traces"].as_object().unwrap() {
        let table = Table::read(&above.join(path)).unwrap_or_else(|e| panic!("{e}"));
        for run in entry["runs"].as_array().unwrap() {
            runs += 1;
            let found = differences(&table, run);
            if !found.is_empty() {
                wrong += 1;
                let edges = run["add_zero_weight_launch_edges"].as_bool().unwrap();
                println!("{path} {:?} {} launch edges {edges}:", run["annotation"], run["instance"]);
                found.iter().for_each(|f| println!("    {f}"));
            }
        }
    }
    println!("{runs} runs, {wrong} differ");
    assert_eq!((wrong, runs > 100), (0, true));
}
