//! Critical paths and reports: a small trace by hand, every recorded trace of the project's own, and HTA 0.6.1: where `HTA_CRITICAL_PATHS` names a file of its runs (`traces: {PATH: {runs: [{annotation, instance, ...}]}}`, the paths
//! below the folder above the file's), every count, length and share must be equal.

use flowspace::trace::critical::compat::{Compat, EdgeType, Table, WhatIf, Window};
use flowspace::trace::critical::what_if::{self, Changes, Choice};
use flowspace::trace::critical::{Events, Graph, Part, Peers, Run, Slack, overlay, shares, tiling, window as clip};
use flowspace::trace::report;
use serde_json::{Value, json};
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// One thread, one stream; times in us. A launches K1; B launches K2 and ends; then the thread waits for the device.
///
/// ```text
/// thread: A 0 ... [launch 10-20] ... 100, B 100 [launch 102-105] 110, cudaDeviceSynchronize 110-200
/// stream:              K1 30-80                        K2 150-190
/// ```
fn by_hand() -> String {
    let event = |cat: &str, name: &str, tid: u32, ts: u32, dur: u32, args: Value| json!({"ph": "X", "cat": cat, "name": name, "pid": if tid == 7 { 0 } else { 100 }, "tid": tid, "ts": ts, "dur": dur, "args": args});
    let kernel = |n: u32| json!({"stream": 7, "device": 0, "correlation": n});
    let events = [
        event("cpu_op", "A", 1, 0, 100, json!({})),
        event("cuda_runtime", "cudaLaunchKernel", 1, 10, 10, json!({"correlation": 1})),
        event("cpu_op", "B", 1, 100, 10, json!({})),
        event("cuda_runtime", "cudaLaunchKernel", 1, 102, 3, json!({"correlation": 2})),
        event("cuda_runtime", "cudaDeviceSynchronize", 1, 110, 90, json!({})),
        event("kernel", "gemm_1", 7, 30, 50, kernel(1)),
        event("kernel", "gemm_2", 7, 150, 40, kernel(2)),
    ];
    json!({ "traceEvents": events }).to_string()
}

fn read(text: &str) -> Events {
    Events::read_from(Cursor::new(text.as_bytes().to_vec()), Path::new("by hand")).unwrap()
}

fn path(events: &Events, graph: &Graph, run: &Run) -> Vec<(Part, i64)> {
    tiling::by_part(&tiling::tile(events, graph, run, &Peers::default()))
}

#[test]
fn every_microsecond_by_hand() {
    let events = read(&by_hand());
    let graph = clip(&events, "", &(0..=0)).unwrap();
    let run = Run::recorded(&graph);
    // From the end: the call returns 190-200 after K2 150-190, which began 48 us after its launch began at 102 (100-102: B); before
    // that A 20-100, its launch 10-20, A 0-10.
    let expected =
        [(Part::Compute, 40_000), (Part::Launch, 58_000), (Part::Blocking, 10_000), (Part::HostOperator, 92_000)];
    assert_eq!(path(&events, &graph, &run), expected);
    // K1 could end at 150, when K2 begins (the typical time between operations is unknown, 0).
    let slack = Slack::new(&graph);
    let of = |name: &str| {
        let unit =
            graph.units.iter().position(|u| events.list.get(u.event as usize).is_some_and(|e| events.name(e) == name));
        slack.ns[unit.unwrap()]
    };
    assert_eq!((of("gemm_1"), of("gemm_2"), of("A")), (70_000, 0, 0));
    let next = shares::next_paths(&events, &graph, &run.decided, &slack, 5);
    assert_eq!((next[0].slack_ns, next[0].longest.as_str(), next[0].events.as_slice()), (70_000, "gemm_1", &[5][..]));
    // The host after its second launch call, 105-110, could end at 190.
    assert_eq!((next.len(), next[1].slack_ns, next[1].own_ns), (2, 80_000, 5_000));
}

#[test]
fn what_if_by_hand() {
    let events = read(&by_hand());
    let graph = clip(&events, "", &(0..=0)).unwrap();
    let step = |scale: Vec<(&str, f64)>, no_launch| {
        let scale = scale.into_iter().map(|(c, f)| (Choice::parse(c).unwrap(), f)).collect();
        what_if::run(&events, &graph, &Changes { scale, no_launch, ..Changes::default() }).map(|r| r.step_ns())
    };
    assert_eq!(step(vec![], false), Ok(200_000));
    // K2 takes nothing: it ends at 150, and the call returns 10 us later.
    assert_eq!(step(vec![("name~GEMM", 0.0)], false), Ok(160_000));
    // Only K1, which nobody waits for; twice as long it ends at 130, before K2 begins; 4 times as long at 230, then K2 to 270.
    assert_eq!(step(vec![("name~gemm_1", 0.0)], false), Ok(200_000));
    assert_eq!(step(vec![("name~gemm_1", 2.0)], false), Ok(200_000));
    assert_eq!(step(vec![("name~gemm_1", 4.0)], false), Ok(280_000));
    // A takes 90, K2 is launched at 92 and runs to 132, the call returns at 142.
    assert_eq!(step(vec![], true), Ok(142_000));
    // Host twice as fast: K2 is launched at 51, begins at 99, ends at 139, the call returns 5 us later.
    assert_eq!(step(vec![("host", 0.5)], false), Ok(144_000));
    assert!(step(vec![("name~conv", 0.5)], false).unwrap_err().to_string().contains("name~conv"));
    assert!(Choice::parse("conv").unwrap_err().contains("name~TEXT"));
}

/// One thread, two streams; times in us, the window 0-1000. The products of stream 7 end at 450, the all-reduce of stream 20 at 400; the synchronisation
/// 160-460 takes 10 us after the later one, then 540 us follow. The all-reduce four times as long ends at 200 + 800 = 1000: 1010 + 540 = 1550.
/// `mmk` half as long: `addk` ends at 300, the all-reduce at 400 as before, 410 + 540 = 950; the same without any products. The all-reduce may
/// end 450 - 400 = 50 later. A synchronisation of one stream says nothing of the others.
#[test]
fn a_device_is_waited_for_with_all_its_streams() {
    let trace = |call: &str| {
        let event = |cat: &str, name: &str, tid: u32, ts: u32, dur: u32, args: Value| json!({"ph": "X", "cat": cat, "name": name, "pid": if tid == 1 { 100 } else { 0 }, "tid": tid, "ts": ts, "dur": dur, "args": args});
        let kernel = |stream: u32, n: u32| json!({"stream": stream, "device": 0, "correlation": n});
        let launch = |ts: u32, n: u32| event("cuda_runtime", "cudaLaunchKernel", 1, ts, 10, json!({"correlation": n}));
        let events = [
            event("user_annotation", "ProfilerStep#1", 1, 0, 1000, json!({})),
            launch(30, 11),
            launch(80, 12),
            launch(120, 13),
            event("cuda_runtime", call, 1, 160, 300, json!({})),
            event("kernel", "mmk", 7, 50, 300, kernel(7, 11)),
            event("kernel", "addk", 7, 350, 100, kernel(7, 12)),
            event("kernel", "ncclDevKernel_AllReduce", 20, 200, 200, kernel(20, 13)),
        ];
        read(&json!({ "traceEvents": events }).to_string())
    };
    for call in ["cudaDeviceSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize"] {
        let events = trace(call);
        let graph = clip(&events, "ProfilerStep", &(0..=0)).unwrap();
        let step = |choice: &str, factor| {
            let scale = vec![(Choice::parse(choice).unwrap(), factor)];
            what_if::run(&events, &graph, &Changes { scale, ..Changes::default() }).unwrap().step_ns() / 1000
        };
        let steps =
            [("device", 1.0), ("communication", 4.0), ("name~mmk", 0.5), ("compute", 0.0)].map(|(c, f)| step(c, f));
        assert_eq!(steps, [1000, 1550, 950, 950], "{call}");
        let slack = Slack::new(&graph);
        let of = |name: &str| {
            let named = |u: &flowspace::trace::critical::graph::Unit| {
                events.list.get(u.event as usize).is_some_and(|e| events.name(e).contains(name))
            };
            slack.ns[graph.units.iter().position(named).unwrap()] / 1000
        };
        assert_eq!((of("AllReduce"), of("addk")), (50, 0), "{call}");
        // What was recorded stays what it is: the operation that ended last is on the path, the all-reduce is not.
        let parts = path(&events, &graph, &Run::recorded(&graph));
        assert!(parts.iter().all(|p| p.0 != Part::Communication), "{parts:?}");
    }
    let events = trace("cudaStreamSynchronize");
    let graph = clip(&events, "ProfilerStep", &(0..=0)).unwrap();
    let scale = vec![(Choice::Communication, 4.0)];
    let run = what_if::run(&events, &graph, &Changes { scale, ..Changes::default() }).unwrap();
    assert_eq!(run.step_ns(), 1_000_000);
}

/// The same trace as HTA counts it: the blocking call weighs nothing, and the path ends with K2.
#[test]
fn compatible_by_hand() {
    let table = Table::read_from(Cursor::new(by_hand().into_bytes()), Path::new("by hand")).unwrap();
    let found = Compat::new(&table, &Window::default(), false).unwrap();
    let count = |kind| found.graph.edges.iter().filter(|e| e.kind == kind).count();
    // The launches do not overlap: no edge of the lock between them.
    assert_eq!(EdgeType::ALL.map(count), [9, 2, 2, 0, 0]);
    // A 10, launch 10, A 80, B 2, launch delay 48, K2 40.
    assert_eq!((found.graph.seen.len(), found.length, found.span()), (14, 190.0, 200.0));
    let parts: Vec<(&str, f64)> = found.breakdown().into_iter().filter(|b| b.1 > 0.0).collect();
    assert_eq!(parts, [("cpu_bound", 102.0), ("gpu_compute_bound", 40.0), ("gpu_kernel_launch_overhead", 48.0)]);
    assert_eq!(found.events(), [0, 1, 2, 3, 6]);
    assert_eq!(found.what_if(WhatIf::LaunchDelay, 0.0), 142.0);
    let past = Window { annotation: "A".into(), instances: 3..=3 };
    assert!(Compat::new(&table, &past, false).err().unwrap().contains("counted from 0"));
    let none = Window { annotation: "xyz".into(), ..Window::default() };
    assert!(Compat::new(&table, &none, false).err().unwrap().contains("xyz"));
}

#[test]
fn report_by_hand() {
    let table = Table::read_from(Cursor::new(by_hand().into_bytes()), Path::new("by hand")).unwrap();
    let found = report::report(&table, 1);
    let t = found.temporal.unwrap();
    assert_eq!((t.kernel_us, t.compute_us, t.idle_us, t.non_compute_us), (160.0, 90.0, 70.0, 0.0));
    // K2 was launched at 102, after K1 had ended.
    assert_eq!((found.idle[0].category, found.idle[0].idle_us, found.idle.len()), ("host_wait", 70.0, 2));
    let l = &found.launches;
    assert_eq!((l.count, l.cpu_us, l.gpu_us, l.delay_us, l.delay_max_us), (2, 13.0, 90.0, 55.0, 45.0));
    assert_eq!((found.top.len(), found.top[0].name.as_str()), (1, "gemm_1"));
    assert_eq!((found.queues[0].summary.count, found.queues[0].summary.max), (4, 1.0));
    assert!(report::diff(&table, &table).is_empty());
}

/// A second rank whose kernel took 30 us: it came last, and of our 50 us 20 are waiting.
#[test]
fn waiting_for_a_peer_is_told_apart() {
    let text = |start: u32, dur: u32| {
        let args = json!({"stream": 7, "device": 0, "correlation": 1, "Process Group Name": "0", "Collective name": "allreduce"});
        json!({"traceEvents": [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 0, "dur": 5, "args": {"correlation": 1}},
            {"ph": "X", "cat": "kernel", "name": "ncclKernel_AllReduce", "pid": 0, "tid": 7, "ts": start, "dur": dur, "args": args},
        ]})
        .to_string()
    };
    let (ours, theirs) = (read(&text(10, 50)), read(&text(1000, 30)));
    let graph = clip(&ours, "", &(0..=0)).unwrap();
    let run = Run::recorded(&graph);
    assert_eq!(path(&ours, &graph, &run), [(Part::Communication, 50_000), (Part::Launch, 10_000)]);
    let told = tiling::by_part(&tiling::tile(&ours, &graph, &run, &Peers::new(&ours, &[theirs])));
    assert_eq!(told, [(Part::PeerWait, 20_000), (Part::Transfer, 30_000), (Part::Launch, 10_000)]);
}

/// Two threads of one process, times in us: the forward operator calls a collective that gloo's thread carries out, waits for it in its own time, and goes on;
/// then another one is called, and the thread waits for it in Python. A third thread only asks whether the device is done, and ends last.
///
/// ```text
/// main: Linear 0 ............................ 100   mm 120-130 [c10d 130-135]      add 190-200
///         [c10d 10-20]            60 (own time)
/// gloo:           all_reduce 15-60                     all_reduce 140-185
/// watchdog:                                                   cudaEventQuery 150-180, 205-206
/// ```
fn on_the_host(start: u32, first: u32) -> String {
    let event = |cat: &str, name: &str, tid: u32, ts: u32, dur: u32| json!({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start + ts, "dur": dur, "args": {}});
    let mut events = vec![
        event("Operator", "ProfilerStep#3", 1, 0, 200),
        event("cpu_op", "Linear", 1, 0, 100),
        event("cpu_op", "c10d::allreduce_", 1, 10, 10),
        event("cpu_op", "aten::mm", 1, 120, 10),
        event("cpu_op", "c10d::allreduce_", 1, 130, 5),
        event("cpu_op", "aten::add", 1, 190, 10),
        event("user_annotation", "gloo:all_reduce", 2, 60 - first, first),
        event("user_annotation", "gloo:all_reduce", 2, 140, 45),
        event("cuda_runtime", "cudaEventQuery", 3, 205, 1),
    ];
    events.extend((150..180).map(|at| event("cuda_runtime", "cudaEventQuery", 3, at, 1)));
    json!({ "traceEvents": events }).to_string()
}

#[test]
fn collectives_of_the_host_are_waited_for() {
    let events = read(&on_the_host(0, 45));
    let graph = clip(&events, "", &(0..=0)).unwrap();
    let run = Run::recorded(&graph);
    // From the end: idle 200-206 (nobody waits for the one that asks), add 190-200, handed on 185-190, gloo 140-185, called 130-140; mm 120-130, the step
    // 100-120, Linear 60-100, gloo 15-60, called 10-15, Linear 0-10.
    let expected = [
        (Part::Communication, 90_000),
        (Part::Launch, 15_000),
        (Part::HostOperator, 70_000),
        (Part::Interpreter, 20_000),
        (Part::Idle, 11_000),
    ];
    assert_eq!(path(&events, &graph, &run), expected);
    assert_eq!(run.step_ns(), 206_000);
    // Both, and the time to where they began, are their callers'.
    let found = tiling::tile(&events, &graph, &run, &Peers::default());
    let shares = shares::shares(&events, &graph, &found, &Slack::new(&graph), 0, shares::By::Operator);
    assert_eq!((shares[0].name.as_str(), shares[0].critical_ns), ("c10d::allreduce_", 105_000));
    // Without communication Linear goes on when its call has returned (20, not 60), and add begins 45 us earlier.
    let scale = vec![(Choice::Communication, 0.0)];
    let faster = what_if::run(&events, &graph, &Changes { scale, ..Changes::default() }).unwrap();
    assert_eq!(faster.step_ns(), 121_000);
    // The other rank came 10 us later to the first one: 10 of our 45 us are waiting.
    let theirs = read(&on_the_host(1000, 35));
    let told = tiling::by_part(&tiling::tile(&events, &graph, &run, &Peers::new(&events, &[theirs])));
    assert_eq!(told[..2], [(Part::PeerWait, 10_000), (Part::Transfer, 80_000)]);
}

/// A number that ties a call to its operation is read whole or refused: one that was passed over would untie them.
#[test]
fn correlations_that_cannot_be_read_are_refused() {
    for (written, found) in [("18446744073709551615", "18446744073709551615"), ("1.5", "1.5"), ("\"x\"", "\"x\"")] {
        let text = by_hand().replacen("\"correlation\":1", &format!("\"correlation\":{written}"), 1);
        let refused = Events::read_from(Cursor::new(text.into_bytes()), Path::new("by hand")).unwrap_err().to_string();
        assert!(refused.contains("args.correlation: expected a whole number below 2^63"), "{refused}");
        assert!(refused.contains(found) && refused.contains("by hand"), "{refused}");
    }
    let largest = by_hand().replace("\"correlation\":1", "\"correlation\":9223372036854775807");
    assert!(Events::read_from(Cursor::new(largest.into_bytes()), Path::new("by hand")).is_ok());
}

/// Waits for gloo in recorded traces of data parallelism on processors are communication, and what moved the bytes is named.
#[test]
fn recorded_waits_for_gloo_are_communication() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/traces/torch_ddp_rank0_device.json.gz");
    let events = Events::read(&file).unwrap();
    let graph = clip(&events, "", &(0..=0)).unwrap();
    let found = tiling::tile(&events, &graph, &Run::recorded(&graph), &Peers::default());
    let named = |s: &&flowspace::trace::critical::Stretch| {
        let event = events.list.get(graph.units[s.unit as usize].event as usize);
        event.is_some_and(|e| events.name(e).starts_with("gloo:"))
    };
    let of = |part: Part| found.iter().filter(|s| s.part == part).map(|s| s.end - s.start).sum::<i64>();
    let longest = found.iter().filter(|s| s.part == Part::Communication).filter(named).map(|s| s.end - s.start).max();
    assert!(of(Part::Communication) > 0 && longest > Some(0), "{:?}", tiling::by_part(&found));
    // No gap in which a collective ended stands as the interpreter's.
    let ends: Vec<i64> = (events.list.iter().filter(|e| events.name(e).starts_with("gloo:"))).map(|e| e.end).collect();
    let waits = |s: &&flowspace::trace::critical::Stretch| {
        s.part == Part::Interpreter && ends.iter().any(|e| s.start < *e && *e < s.end)
    };
    assert_eq!(found.iter().filter(waits).count(), 0);
}

/// The tiling holds on every trace: stretches follow each other without gaps from the window's begin to its end, and running the graph
/// gives the recorded times back to the nanosecond.
fn holds(events: &Events, annotation: &str) {
    let Ok(graph) = clip(events, annotation, &(0..=0)) else { return };
    let run = Run::recorded(&graph);
    for (at, unit) in graph.units.iter().enumerate() {
        assert_eq!((run.start[at], run.end[at]), (unit.start, unit.end), "{:?}", unit);
    }
    let path = tiling::tile(events, &graph, &run, &Peers::default());
    assert!(path.windows(2).all(|w| w[0].end == w[1].start));
    let (first, last) =
        (path.first().map_or(graph.window.0, |s| s.start), path.last().map_or(graph.window.1, |s| s.end));
    assert_eq!((first, last), graph.window);
    let slack = Slack::new(&graph);
    assert!(path.iter().filter(|s| s.unit == s.after).all(|s| slack.ns[s.unit as usize] == 0));
    let unchanged = what_if::run(events, &graph, &Changes::default()).unwrap();
    assert_eq!(unchanged.step_ns(), graph.window.1 - graph.window.0);
    let faster = what_if::run(events, &graph, &Changes { no_launch: true, ..Changes::default() }).unwrap();
    assert!(faster.step_ns() <= unchanged.step_ns());
    let mut drawn = Vec::new();
    overlay::write(events, &graph, &path, &slack, overlay::Show::All, &mut drawn).unwrap();
    let drawn: Value = serde_json::from_slice(&drawn).unwrap();
    super::trace_overlay::obeys(&drawn);
    // A slice that has its colour from the file is a stretch.
    let stretches = drawn["traceEvents"].as_array().unwrap().iter().filter(|e| e.get("cname").is_some());
    assert_eq!(stretches.count(), path.len());
}

#[test]
fn every_own_trace_is_tiled() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let mut traces = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        if let Ok(events) = Events::read(&file) {
            traces += 1;
            holds(&events, "");
            holds(&events, "ProfilerStep");
        }
    }
    assert!(traces >= 5, "{traces}");
}

/// Operations that take no time on another system are operations that are removed.
#[test]
fn durations_of_another_system_are_taken() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let mut compared = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let Ok(events) = Events::read(&entry.unwrap().path()) else { continue };
        let Ok(graph) = clip(&events, "", &(0..=0)) else { continue };
        let device = events.list.iter().filter(|e| e.kind.on_device());
        let durations = device.map(|e| ((e.start, e.correlation.max(0)), 0)).collect();
        let other = what_if::run(&events, &graph, &Changes { durations, ..Changes::default() }).unwrap();
        let scale = vec![(Choice::Device, 0.0)];
        let Ok(removed) = what_if::run(&events, &graph, &Changes { scale, ..Changes::default() }) else { continue };
        assert_eq!(other.step_ns(), removed.step_ns());
        compared += 1;
    }
    assert!(compared >= 3, "{compared}");
}

/// Other analyses of HTA 0.6.1: `HTA_FEATURES` names a file of its results (`traces: {PATH: {temporal_breakdown: ...}}`).
#[test]
fn reports_equal_hta_in_every_stored_trace() {
    let Some(file) = std::env::var_os("HTA_FEATURES").map(PathBuf::from) else { return };
    let text = std::fs::read_to_string(&file).unwrap().replace("NaN", "null");
    let document: Value = serde_json::from_str(&text).unwrap();
    let above = file.parent().and_then(Path::parent).unwrap();
    let (mut figures, mut wrong) = (0, 0);
    for (path, theirs) in document["traces"].as_object().unwrap() {
        let table = Table::read(&above.join(path)).unwrap_or_else(|e| panic!("{e}"));
        let ours = report::report(&table, 5);
        let mut same = |what: String, ours: Option<f64>, theirs: &Value| {
            figures += 1;
            let theirs = theirs.as_f64();
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1e-9);
            if !match (ours, theirs) {
                (Some(a), Some(b)) => near(a, b),
                (a, b) => a.is_none() == b.is_none(),
            } {
                wrong += 1;
                println!("{path} {what}: {ours:?} against {theirs:?}");
            }
        };
        let refused = |v: &Value| v["exception"].is_string();
        if let Some(t) = ours.temporal.as_ref().filter(|_| !refused(&theirs["temporal_breakdown"])) {
            let v = &theirs["temporal_breakdown"];
            same("idle".into(), Some(t.idle_us), &v["idle_time(us)"]);
            same("compute".into(), Some(t.compute_us), &v["compute_time(us)"]);
            same("other".into(), Some(t.non_compute_us), &v["non_compute_time(us)"]);
            same("all".into(), Some(t.kernel_us), &v["kernel_time(us)"]);
        }
        same("overlap".into(), ours.overlap_percent, &theirs["comm_comp_overlap_pctg"]);
        for row in theirs["kernel_type_breakdown"].as_array().unwrap() {
            let name = row["kernel_type"].as_str().unwrap();
            let found = ours.kernel_types.iter().find(|t| t.kernel_type == name);
            same(format!("type {name}"), Some(found.map_or(0.0, |t| t.sum_us)), &row["sum"]);
            same(format!("share {name}"), Some(found.map_or(0.0, |t| t.percentage)), &row["percentage"]);
        }
        for row in theirs["idle_time_breakdown"].as_array().into_iter().flatten() {
            let (stream, category) = (row["stream"].as_i64().unwrap(), row["idle_category"].as_str().unwrap());
            let found = ours.idle.iter().find(|i| i.stream == stream && i.category == category);
            same(format!("idle {stream} {category}"), found.map(|i| i.idle_us), &row["idle_time"]);
            same(format!("ratio {stream} {category}"), found.and_then(|i| i.ratio), &row["idle_time_ratio"]);
        }
        let mut series = |what: &str, found: Option<&report::stats::Summary>, row: &Value| {
            let all = [
                ("count", found.map(|s| s.count as f64)),
                ("mean", found.map(|s| s.mean)),
                ("std", found.and_then(|s| s.std)),
                ("min", found.map(|s| s.min)),
                ("25%", found.map(|s| s.q25)),
                ("50%", found.map(|s| s.q50)),
                ("75%", found.map(|s| s.q75)),
                ("max", found.map(|s| s.max)),
            ];
            all.into_iter().for_each(|(f, v)| same(format!("{what} {f}"), v, &row[f]));
        };
        for row in theirs["queue_length_summary"].as_array().into_iter().flatten() {
            let stream = row["stream"].as_i64().unwrap();
            series(&format!("queue {stream}"), ours.queues.iter().find(|q| q.of == stream).map(|q| &q.summary), row);
        }
        for row in theirs["memory_bw_summary"].as_array().into_iter().flatten() {
            let name = row["name"].as_str().unwrap();
            series(name, ours.bandwidth.iter().find(|b| b.of == name).map(|b| &b.summary), row);
        }
        let (l, v) = (&ours.launches, &theirs["cuda_kernel_launch_stats"]);
        same("launches".into(), Some(l.count as f64), &v["count"]);
        same("launch cpu".into(), Some(l.cpu_us), &v["cpu_duration_sum"]);
        same("launch gpu".into(), Some(l.gpu_us), &v["gpu_duration_sum"]);
        same("launch delay".into(), Some(l.delay_us), &v["launch_delay_sum"]);
        same("longest delay".into(), Some(l.delay_max_us).filter(|_| l.count > 0), &v["launch_delay_max"]);
    }
    println!("{figures} figures, {wrong} differ");
    assert_eq!((wrong, figures > 1000), (0, true));
}

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
