//! Linking, conversion and replay of traces: hand-made ones against schedules derived by hand, recorded ones against properties, and
//! those of `../shared` (where present) against measured figures.

use flowspace::trace::chakra::{self, CommGroups, CommType, Node, NodeType, Value};
use flowspace::trace::convert::{Conversion, write_to};
use flowspace::trace::host::{self, HostTrace};
use flowspace::trace::kineto::{self, KinetoTrace};
use flowspace::trace::link::{EdgeKind, LinkError, LinkReport, LinkedTrace, NodeKind, Ns, Steps, file, link};
use flowspace::trace::replay::{Delays, PathShare, Replay, ReplayError, Timing, recorded, replay};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const US: Ns = 1000;

fn ours(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name)
}

/// The folder of shared traces, where there is one.
fn shared() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = ["../shared/traces", "../../shared/traces"].iter().map(|p| root.join(p)).find(|p| p.is_dir());
    if found.is_none() {
        println!("no ../shared/traces: recorded GPU traces are not tested");
    }
    found
}

fn device(path: &Path) -> KinetoTrace {
    kineto::read(path).unwrap_or_else(|e| panic!("{e}"))
}

fn both(host_path: &Path, device_path: &Path) -> (LinkedTrace, LinkReport) {
    let host = host::read(host_path).unwrap_or_else(|e| panic!("{e}"));
    link(Some(&host), &device(device_path), &Steps::All).unwrap_or_else(|e| panic!("{}: {e}", device_path.display()))
}

fn alone(path: &Path) -> (LinkedTrace, LinkReport) {
    link(None, &device(path), &Steps::All).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn from_text(text: &str) -> (LinkedTrace, LinkReport) {
    let trace = kineto::read_from(std::io::Cursor::new(text.as_bytes().to_vec()), Path::new("text")).unwrap();
    link(None, &trace, &Steps::All).unwrap()
}

fn node(trace: &LinkedTrace, name: &str) -> usize {
    trace.nodes.iter().position(|n| n.name.starts_with(name)).unwrap_or_else(|| panic!("no node {name}"))
}

/// Starts of device operations, us after the origin.
fn starts(trace: &LinkedTrace, r: &Replay) -> BTreeMap<String, Ns> {
    let name = |i: u32| trace.nodes[i as usize].name.split(['_', '(']).next().unwrap().to_owned();
    trace
        .device_nodes()
        .map(|i| (format!("{}{}", name(i), trace.nodes[i as usize].dur_ns / 1000), r.start_ns[i as usize] / US))
        .collect()
}

fn scaled(trace: &LinkedTrace, of: impl Fn(&flowspace::trace::link::LinkedNode) -> f64) -> Replay {
    replay(trace, Delays::Typical, |_, n| (n.dur_ns as f64 * of(n)).round() as u64).unwrap()
}

// ---------------------------------------------------------------- hand-made traces

#[test]
fn streams_events_and_synchronisation() {
    let (trace, report) = alone(&ours("kineto_streams.json"));
    assert_eq!((report.kernels.total, report.kernels.launched, report.kernels.owned), (4, 4, 4));
    let kinds: BTreeMap<EdgeKindWord, usize> = count_edges(&trace);
    // Four launches; gemm -> gemm -> relu; gemm_second -> all-reduce; both streams' last operations -> the synchronising call.
    assert_eq!(kinds, BTreeMap::from([("event", 1), ("host waits", 2), ("launch", 4), ("stream order", 2)]));
    assert!(trace.edges.iter().all(|e| !e.inferred));
    check_streams_schedule(&trace);
}

/// The same without the profiler's synchronisation events, and with HIP's names: the runtime's habits give the same schedule.
#[test]
fn waits_are_inferred_where_the_profiler_did_not_record_them() {
    let text = std::fs::read_to_string(ours("kineto_streams.json")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|l| !l.contains("\"cuda_sync\"")).collect();
    let mut text = lines
        .join("\n")
        .replace("cudaLaunch", "hipLaunch")
        .replace("cudaStream", "hipStream")
        .replace("cudaDevice", "hipDevice");
    text = text.replace("},\n]}", "}\n]}");
    let (trace, _) = from_text(&text);
    let event: Vec<_> = trace.edges.iter().filter(|e| e.kind == EdgeKind::Event).collect();
    assert_eq!(event.len(), 1);
    assert!(event[0].inferred);
    assert_eq!(event[0].from as usize, node(&trace, "gemm_second"));
    check_streams_schedule(&trace);
}

fn check_streams_schedule(trace: &LinkedTrace) {
    let timing = Timing::new(trace, Delays::Typical).unwrap();
    assert_eq!(timing.typical.launch_ns[0], 8 * US);
    assert_eq!(timing.typical.gap_ns[0], 2 * US);
    assert_eq!(timing.typical.event_ns, 3 * US);
    assert_eq!(timing.unexplained_ns, [0; 4]);

    let r = timing.replay(trace, |_, n| n.dur_ns);
    let f = &r.figures;
    assert_eq!(f, &recorded(trace), "an unchanged trace gives back its schedule");
    assert_eq!((f.step_ns(), f.compute_ns, f.communication_ns), (200 * US, 120 * US, 60 * US));
    // The all-reduce runs from 105 to 165, computation from 104 to 144; busy are 20-70, 72-102, 104-165.
    assert_eq!((f.exposed_communication_ns, f.hidden_communication_ns, f.idle_ns), (21 * US, 39 * US, 59 * US));
    // launch call 12, latency 8, gemm 50, gap 2, gemm 30, event 3, all-reduce 60, return 5, host 30.
    let path = &r.path;
    assert_eq!(path.length_ns(), 200 * US);
    assert_eq!(path.share_ns(PathShare::Compute), 80 * US);
    assert_eq!(path.share_ns(PathShare::Communication), 60 * US);
    assert_eq!(path.share_ns(PathShare::Launch), 8 * US);
    assert_eq!(path.share_ns(PathShare::Gap), 5 * US);
    assert_eq!(path.share_ns(PathShare::Handover), 5 * US);
    assert_eq!(path.share_ns(PathShare::Host) + path.share_ns(PathShare::HostOutside), 42 * US);

    let step = |f: &dyn Fn(&flowspace::trace::link::LinkedNode) -> f64| scaled(trace, f).figures.step_ns() / US;
    // Half the communication: it ends at 135, relu at 144 now decides: 144 + 5 + 30.
    assert_eq!(step(&|n| if n.is_communication() { 0.5 } else { 1.0 }), 179);
    // No device time at all: the call returns 5 us after it began at 90, and 30 us follow.
    assert_eq!(step(&|_| 0.0), 125);
    // Everything twice: 20-120, 122-182, all-reduce 185-305, so 305 + 5 + 30.
    assert_eq!(step(&|_| 2.0), 340);
    let r = scaled(trace, |_| 0.0);
    // The launches decide: 12 + 8, 32 + 8, 52 + 8, 72 + 8.
    assert_eq!(starts(trace, &r).into_values().collect::<BTreeSet<_>>(), BTreeSet::from([20, 40, 60, 80]));
}

#[test]
fn a_launched_graph_on_two_streams() {
    let (trace, report) = alone(&ours("kineto_graph.json"));
    assert_eq!(report.graph_operations, 4);
    assert_eq!((report.device_owned(), report.device_total()), (4, 4));
    let pairs: BTreeSet<(usize, usize)> =
        trace.edges.iter().filter(|e| e.kind == EdgeKind::Graph).map(|e| (e.from as usize, e.to as usize)).collect();
    let (fork, fill, join) = (node(&trace, "fork"), node(&trace, "Memset"), node(&trace, "join"));
    assert_eq!(pairs, BTreeSet::from([(fork, fill), (fill, join)]));
    let r = replay(&trace, Delays::Typical, |_, n| n.dur_ns).unwrap();
    assert_eq!(r.figures, recorded(&trace));
    // Half the fill: 52-72, join 74-84, the host 6 us later.
    let r = scaled(&trace, |n| if n.kind == NodeKind::Memset { 0.5 } else { 1.0 });
    assert_eq!(r.start_ns[join], 74 * US);
    assert_eq!(r.figures.span_ns, 90 * US);
}

#[test]
fn recorded_delays_give_back_the_recorded_schedule() {
    for name in ["kineto_streams.json", "kineto_graph.json", "torch_ddp_rank0_device.json.gz"] {
        let (trace, _) = alone(&ours(name));
        let r = replay(&trace, Delays::Recorded, |_, n| n.dur_ns).unwrap();
        assert_eq!(r.figures, recorded(&trace), "{name}");
    }
}

#[test]
fn a_cycle_is_named() {
    let (mut trace, _) = alone(&ours("kineto_streams.json"));
    let e = *trace.edges.iter().find(|e| e.kind == EdgeKind::Stream).unwrap();
    let back = flowspace::trace::link::Edge { from: e.to, to: e.from, ..e };
    trace.edges.push(back);
    match replay(&trace, Delays::Typical, |_, n| n.dur_ns) {
        Err(ReplayError::Cycle(names)) => assert!(names.contains("gemm"), "{names}"),
        other => panic!("{other:?}"),
    }
    trace.edges.clear();
    trace.edges.push(flowspace::trace::link::Edge { from: 1000, ..e });
    assert!(matches!(replay(&trace, Delays::Typical, |_, n| n.dur_ns), Err(ReplayError::Dangling { node: 1000, .. })));
}

#[test]
fn converted_by_hand() {
    let (trace, _) = alone(&ours("kineto_streams.json"));
    let (bytes, groups) = converted(&trace);
    let et = chakra::read_from(std::io::Cursor::new(bytes), Path::new("converted")).unwrap();
    let of = |name: &str| et.nodes.iter().find(|n| n.name.starts_with(name)).unwrap();
    let all_reduce = of("nccl");
    assert_eq!(all_reduce.kind, NodeType::Coll);
    assert_eq!(all_reduce.comm_type(), Some(CommType::AllReduce));
    assert_eq!(all_reduce.int("comm_size"), Some(2048)); // 1024 halves
    // Group 0 of the recording: to simulators that is all ranks.
    assert_eq!(all_reduce.group().as_deref(), Some("1"));
    assert_eq!(groups, "{\n  \"1\": [0, 1, 2, 3]\n}\n");
    assert_eq!((all_reduce.start_micros, all_reduce.duration_micros), (105, 60));
    assert_eq!(all_reduce.int("start_ns"), Some(105_000));
    // Its operator, and the GEMM whose event its stream waits for.
    assert_eq!(all_reduce.data_deps, [of("c10d").id, of("gemm_second").id]);
    assert_eq!(of("gemm_second").data_deps.len(), 2);
    // Half of `aten::mm` is the operator's own time: nothing is in it but a call, which belongs to it.
    assert_eq!(of("aten::mm").int("exclusive_ns"), Some(10_000));
    assert_eq!(of("ProfilerStep").int("exclusive_ns"), Some(200_000 - 40_000 - 75_000)); // less operators and waiting
}

// ---------------------------------------------------------------- matching

/// A host trace whose ids the device trace does not know.
fn without_ids(device: &mut KinetoTrace, external: impl Fn(usize, u64) -> i64) {
    let mut order: Vec<usize> = (0..device.events.len()).collect();
    order.sort_by_key(|&i| device.events[i].record_function_id);
    for (k, i) in order.into_iter().enumerate() {
        let e = &mut device.events[i];
        if let Some(id) = e.record_function_id.take() {
            e.external_id = Some(external(k, id));
        }
    }
}

fn mlp() -> (HostTrace, KinetoTrace) {
    (host::read(&ours("torch_mlp_host.json.gz")).unwrap(), device(&ours("torch_mlp_device.json.gz")))
}

#[test]
fn by_constant_offset() {
    let (host, mut device) = mlp();
    let (by_id, _) = link(Some(&host), &device, &Steps::All).unwrap();
    without_ids(&mut device, |_, id| id as i64 + 17);
    let (by_offset, report) = link(Some(&host), &device, &Steps::All).unwrap();
    assert_eq!((report.matching.by_id, report.matching.offset), (0, Some(17)));
    assert_eq!(report.host_matched, report.host_total);
    assert_eq!(by_id, by_offset);
}

#[test]
fn by_order_where_offsets_jump() {
    let (host, mut device) = mlp();
    let (by_id, _) = link(Some(&host), &device, &Steps::All).unwrap();
    // Offsets that change all the time, and operators lost on both sides.
    without_ids(&mut device, |k, id| id as i64 + 1 + 13 * (k as i64 / 40));
    let lost: Vec<usize> = (0..device.events.len()).filter(|i| i % 97 == 5).collect();
    for i in lost.iter().rev() {
        device.events.remove(*i);
    }
    let (by_order, report) = link(Some(&host), &device, &Steps::All).unwrap();
    assert!(report.matching.by_order > 0 && report.matching.offset_pieces > 3, "{report:?}");
    assert!(report.host_matched + lost.len() >= report.host_total, "{}", report.text());
    // Hardly any operator is taken for another one.
    let place = |t: &LinkedTrace| -> BTreeMap<u64, Ns> {
        t.nodes.iter().filter(|n| n.timed).filter_map(|n| Some((n.host()?.id, n.start_ns + t.origin_ns))).collect()
    };
    let (right, found) = (place(&by_id), place(&by_order));
    let wrong = found.iter().filter(|(id, at)| right.get(id) != Some(at)).count();
    assert!(wrong <= found.len() / 50, "{wrong} of {} are wrong", found.len());
}

#[test]
fn nothing_in_common_is_an_error() {
    let (mut host, device) = mlp();
    for n in &mut host.nodes {
        if !n.is_root() {
            n.name = format!("other::{}", n.name).into();
        }
    }
    match link(Some(&host), &device, &Steps::All) {
        Err(e @ LinkError::NothingMatched { .. }) => assert!(e.to_string().contains("different programs"), "{e}"),
        other => panic!("{:?}", other.map(|(_, r)| r)),
    }
    assert_eq!(link(None, &KinetoTrace::default(), &Steps::All).unwrap_err(), LinkError::Empty);
    // Kernels alone, of which nothing is known.
    let mut device = self::device(&ours("kineto_streams.json"));
    device.events.retain(|e| e.category.on_device());
    for e in &mut device.events {
        e.external_id = None;
    }
    assert_eq!(link(None, &device, &Steps::All).unwrap_err(), LinkError::NoLaunch(4));
}

#[test]
fn chosen_steps() {
    let (host, device) = mlp();
    let all = link(Some(&host), &device, &Steps::All).unwrap().0;
    let steps: Vec<u64> = device.events.iter().filter_map(|e| e.profiler_step()).collect();
    assert_eq!(steps.len(), 2);
    let one = link(Some(&host), &device, &Steps::Numbers(vec![steps[1]])).unwrap().0;
    assert_eq!(one.nodes.iter().filter(|n| n.is_step()).count(), 1);
    assert!(one.nodes.len() < all.nodes.len() * 2 / 3 && one.nodes.len() > all.nodes.len() / 3);
    let error = link(Some(&host), &device, &Steps::Numbers(vec![99])).unwrap_err().to_string();
    assert!(error.contains("99") && error.contains(&steps[0].to_string()), "{error}");
    let (trace, _) = alone(&ours("kineto_streams.json"));
    assert_eq!(trace.rank, Some(1));
}

// ---------------------------------------------------------------- properties over all traces

type EdgeKindWord = &'static str;

fn count_edges(trace: &LinkedTrace) -> BTreeMap<EdgeKindWord, usize> {
    let mut out = BTreeMap::new();
    for e in &trace.edges {
        *out.entry(e.kind.word()).or_default() += 1;
    }
    out
}

fn converted(trace: &LinkedTrace) -> (Vec<u8>, String) {
    let mut conversion = Conversion::new(trace, &CommGroups::default());
    let mut out = Vec::new();
    write_to(trace, &mut conversion, &mut out).unwrap();
    (out, conversion.groups.file().text())
}

/// What must hold for any linked trace, its file, its conversion and its replay.
fn properties(name: &str, trace: &LinkedTrace) {
    // Every node comes after its parent and its launch.
    for (i, n) in trace.nodes.iter().enumerate() {
        assert!(
            n.parent.is_none_or(|p| (p as usize) < i) && n.launch.is_none_or(|l| (l as usize) < i),
            "{name}: node {i}"
        );
        assert_eq!(n.kind.on_device(), n.device().is_some(), "{name}: node {i}");
    }
    // The file form loses nothing and is byte-stable.
    let mut bytes = Vec::new();
    file::write_to(trace, &mut bytes).unwrap();
    let again =
        file::read_from(std::io::Cursor::new(bytes.clone()), Path::new(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(again == *trace, "{name}: the file form lost something");
    let mut twice = Vec::new();
    file::write_to(&again, &mut twice).unwrap();
    assert!(bytes == twice, "{name}: not byte-stable");

    let (et, groups) = converted(trace);
    assert!(converted(&again) == (et.clone(), groups), "{name}: conversion is not byte-stable");
    let et = chakra::read_from(std::io::Cursor::new(et), Path::new(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (mut seen, mut rounded) = (HashSet::new(), 0);
    for n in &et.nodes {
        for d in n.deps() {
            assert!(d < n.id && seen.contains(&d), "{name}: node {} depends on {d}", n.id);
        }
        assert!(seen.insert(n.id), "{name}: node {} twice", n.id);
        let arm = |key: &str| n.attr(key).map(Value::arm);
        assert_eq!(arm("is_cpu_op").as_deref(), Some("bool_val"), "{name}: node {}", n.id);
        if n.kind.communicates() {
            assert_eq!(n.flag("is_cpu_op"), Some(false), "{name}: a simulator refuses communication of the host");
            assert_eq!(arm("comm_size").as_deref(), Some("int64_val"));
            match n.kind {
                NodeType::Coll => assert!(n.comm_type().is_some() && arm("comm_type").as_deref() == Some("int64_val")),
                _ => assert!(
                    ["comm_src", "comm_dst", "comm_tag"].iter().all(|k| arm(k).is_none_or(|a| a == "int32_val"))
                ),
            }
            assert!(arm("pg_name").is_none_or(|a| a == "string_val"));
            assert!(n.text("pg_name").is_none_or(|g| g.parse::<i32>().is_ok()));
        }
        let (start, exact) = (n.start_micros, n.int("start_ns"));
        assert!(exact.is_none_or(|ns| ns < 0 || ns as u64 / 1000 == start), "{name}: node {}", n.id);
        let exact = n.int("exclusive_ns").or_else(|| n.int("duration_ns"));
        // A collective of the host has a node of its own, with its own time.
        if let Some(exact) = exact.filter(|_| !n.kind.communicates() || n.int("stream").is_some()) {
            let more = n.duration_micros as i64 * 1000 - exact;
            assert!(more.abs() <= 1000, "{name}: node {}", n.id);
            rounded += more;
        }
    }
    // Whole microseconds of threads and streams add up to their time: ten thousand operators of 600 ns are 6 and not 10 ms.
    let rows = trace.threads.len() + trace.streams.len();
    assert!(rounded.abs() <= 500 * rows as i64, "{name}: {rounded} ns more on {rows} threads and streams");
    let devices = trace.device_nodes().count();
    assert!(et.nodes.iter().filter(|n| n.flag("is_cpu_op") == Some(false)).count() >= devices, "{name}");

    // Recorded delays give the recorded schedule back; less work never takes longer.
    let back = replay(trace, Delays::Recorded, |_, n| n.dur_ns).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (a, b) = (back.figures.span_ns, recorded(trace).span_ns);
    assert!((a - b).abs() <= b / 100 + 20 * US, "{name}: {a} for {b}");
    let timing = Timing::new(trace, Delays::Typical).unwrap();
    let spans: Vec<Ns> = [0.0, 0.5, 1.0, 2.0]
        .iter()
        .map(|f| timing.replay(trace, |_, n| (n.dur_ns as f64 * f).round() as u64).figures.span_ns)
        .collect();
    assert!(spans.windows(2).all(|w| w[0] <= w[1]), "{name}: {spans:?}");
    // The path explains the whole time.
    let r = timing.replay(trace, |_, n| n.dur_ns);
    assert!((r.path.shares.iter().map(|(_, ns)| ns).sum::<Ns>() - r.end_ns.iter().max().unwrap()).abs() <= 1, "{name}");
}

#[test]
fn our_recorded_traces() {
    for case in ["mlp", "attention", "ddp_rank0", "ddp_rank1", "collectives_rank0", "collectives_rank1"] {
        let (h, d) = (ours(&format!("torch_{case}_host.json.gz")), ours(&format!("torch_{case}_device.json.gz")));
        let (trace, report) = both(&h, &d);
        let only_groups = report.host_unmatched.keys().all(|n| n.contains("process_group:init"));
        assert!(only_groups && report.operators_matched == report.operators_total, "{case}: {}", report.text());
        properties(case, &trace);
        properties(case, &alone(&d).0);
    }
    for name in ["kineto_streams.json", "kineto_graph.json"] {
        properties(name, &alone(&ours(name)).0);
    }
}

#[test]
fn collectives_of_the_host() {
    let mut kinds = BTreeSet::new();
    for rank in 0..2u64 {
        let file = |side: &str| ours(&format!("torch_collectives_rank{rank}_{side}.json.gz"));
        let (trace, _) = both(&file("host"), &file("device"));
        assert_eq!((trace.rank, trace.world_size), (Some(rank), Some(2)));
        let (bytes, groups) = converted(&trace);
        assert_eq!(groups, "{\n  \"1\": [0, 1]\n}\n");
        let et = chakra::read_from(std::io::Cursor::new(bytes), Path::new("collectives")).unwrap();
        // The time of a collective is that of its own node, not the annotation's too that carries it out.
        let carriers: Vec<&Node> = et.nodes.iter().filter(|n| n.name.starts_with("gloo:")).collect();
        assert!(carriers.len() > 5, "{carriers:?}");
        for n in carriers.iter().filter(|n| n.flag("is_cpu_op") == Some(true)) {
            assert_eq!(n.int("exclusive_ns"), Some(0), "{}", n.name);
        }
        for n in et.nodes.iter().filter(|n| n.kind.communicates()) {
            kinds.insert(n.comm_type().map_or(n.kind.name(), |c| c.name().to_owned()));
            assert_eq!(n.group().as_deref(), Some("1"), "{}", n.name);
            if n.comm_type() == Some(CommType::AllReduce) {
                // A barrier is the sum of one element.
                let bytes = if n.name.contains("barrier") { 4 } else { 64 * 4 };
                assert_eq!(n.int("comm_size"), Some(bytes), "{}", n.name);
            }
            if n.comm_type() == Some(CommType::AllGather) {
                assert_eq!(n.int("comm_size"), Some(64 * 4), "what one rank contributes");
            }
            if n.kind == NodeType::Send {
                assert_eq!((n.int("comm_src"), n.int("comm_dst")), (Some(0), Some(1)));
            }
            if n.kind == NodeType::Recv {
                assert_eq!((n.int("comm_src"), n.int("comm_dst")), (Some(0), Some(1)));
            }
        }
    }
    let wanted = [
        "ALL_GATHER",
        "ALL_REDUCE",
        "ALL_TO_ALL",
        "BROADCAST",
        "COMM_RECV_NODE",
        "COMM_SEND_NODE",
        "GATHER",
        "REDUCE",
        "REDUCE_SCATTER",
        "SCATTER",
    ];
    assert_eq!(kinds, wanted.iter().map(|s| (*s).to_owned()).collect());
}

#[test]
fn broken_linked_files_are_refused_with_their_place() {
    let (trace, _) = alone(&ours("kineto_streams.json"));
    let mut bytes = Vec::new();
    file::write_to(&trace, &mut bytes).unwrap();
    let read = |bytes: &[u8]| file::read_from(std::io::Cursor::new(bytes.to_vec()), Path::new("broken"));
    for cut in 0..bytes.len() {
        let _ = read(&bytes[..cut]); // an error or a shorter trace, never a panic
    }
    let mut flipped = bytes.clone();
    for i in 0..bytes.len() {
        for bit in 0..8 {
            flipped[i] ^= 1 << bit;
            if let Ok(trace) = read(&flipped) {
                let _ = replay(&trace, Delays::Typical, |_, n| n.dur_ns);
                let _ = converted(&trace);
            }
            flipped[i] ^= 1 << bit;
        }
    }
    let et = chakra::read_from(std::io::Cursor::new(converted(&trace).0), Path::new("x")).unwrap();
    let mut plain = Vec::new();
    let mut writer = chakra::Writer::new(&mut plain, &et.metadata).unwrap();
    for n in &et.nodes {
        writer.node(n).unwrap();
    }
    let error = read(&plain).unwrap_err().to_string();
    assert!(error.contains("no linked trace") && error.contains("GlobalMetadata"), "{error}");
}

// ---------------------------------------------------------------- the program

fn flowspace(args: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_flowspace")).args(args).env_remove("RUST_BACKTRACE").output().unwrap();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (out.status.code().unwrap_or(-1), text(&out.stdout), text(&out.stderr))
}

#[test]
fn on_the_command_line() {
    let folder = std::env::temp_dir().join(format!("flowspace-link-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    let streams = ours("kineto_streams.json").display().to_string();
    let (code, out, err) = flowspace(&["trace", "link", "--device", &streams, "--out", &at("linked.et.gz")]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("kernels: 4 of 4 (100 %) with an operator"), "{out}");
    let (code, out, err) = flowspace(&["trace", "convert", &at("linked.et.gz"), "--out", &at("run")]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("ALL_REDUCE: 1, 2048 bytes"), "{out}");
    assert!(folder.join("run.1.et").is_file() && folder.join("comm_group.json").is_file());
    let (code, out, err) =
        flowspace(&["trace", "replay", &at("linked.et.gz"), "--scale", "communication=0.5", "--format", "json"]);
    assert_eq!(code, 0, "{err}");
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["replayed"]["step_ns"], 179_000);
    assert_eq!(value["recorded"]["step_ns"], 200_000);
    let (code, out, _) = flowspace(&["trace", "replay", "--device", &streams]);
    assert!(code == 0 && out.contains("critical path: 0.200 ms"), "{out}");
    for (args, wanted) in [
        (vec!["trace", "replay", &at("run.1.et")], "no linked trace"),
        (vec!["trace", "replay", &at("linked.et.gz"), "--scale", "nothing=2"], "no such device operation"),
        (vec!["trace", "link", "--device", &streams, "--steps", "7"], "step 7 is not in the trace; it has 1"),
        (vec!["trace", "replay"], "give a linked trace"),
        (vec!["trace", "link", "--device", &at("missing.json")], "missing.json"),
    ] {
        let (code, _, err) = flowspace(&args);
        assert!(code == 1 && err.contains(wanted), "{args:?}: {code} {err}");
    }
    // Traces of different programs share operators by name.
    let pair = |host: &str, device: &str| {
        let path = |name: String| ours(&name).display().to_string();
        let (host, device) =
            (path(format!("torch_{host}_host.json.gz")), path(format!("torch_{device}_device.json.gz")));
        flowspace(&["trace", "link", "--host", &host, "--device", &device])
    };
    let (code, _, err) = pair("mlp", "attention");
    assert!(code == 1 && err.contains("not two traces of one run: 28.9 % of the host trace's"), "{code} {err}");
    let (code, _, err) = pair("ddp_rank0", "mlp");
    assert!(code == 0 && err.contains("may not be two traces of one run: 76.1 %"), "{code} {err}");
    let (code, _, err) = pair("mlp", "mlp");
    assert!(code == 0 && err.is_empty(), "{code} {err}");
    std::fs::remove_dir_all(&folder).unwrap();
}

// ---------------------------------------------------------------- recorded GPU traces, where present

#[test]
fn shared_pairs() {
    let Some(root) = shared() else { return };
    let pair = |h: &str, d: &str| both(&root.join(h), &root.join(d));
    let (resnet, report) =
        pair("param/1.0.3-chakra.0.0.4/resnet_1gpu_et.json.gz", "HolisticTraceAnalysis/nccl_data.json.gz");
    assert_eq!((report.host_matched, report.host_total), (14_388, 14_388));
    assert_eq!((report.kernels.owned, report.memcpys.owned, report.memsets.owned), (2700, 960, 114));
    properties("resnet", &resnet);
    for rank in 0..4 {
        let (trace, report) = pair(
            &format!("astra-sim/megatron-tp8/megatron_et_{rank}.json.gz"),
            &format!("astra-sim/megatron-tp8/megatron_kineto_{rank}.json.gz"),
        );
        assert_eq!((report.host_matched, report.matching.offset), (5422, Some(2)));
        assert_eq!((report.device_owned(), report.device_total()), (777, 777));
        properties("megatron", &trace);
        let file = std::fs::read_dir(root.join("param/dlrm")).unwrap().map(|e| e.unwrap().path());
        let device = file
            .into_iter()
            .find(|p| p.file_name().unwrap().to_string_lossy().starts_with(&format!("worker{rank}")))
            .unwrap();
        let (trace, report) = both(&root.join(format!("param/dlrm/dlrm_eg_{rank}.json.gz")), &device);
        assert!(report.host_matched >= 1662 && report.host_total == 1672, "{}", report.text());
        assert_eq!(report.kernels.owned, report.kernels.launched);
        properties("dlrm", &trace);
    }
    let folder = "HolisticTraceAnalysis/execution_trace/benchmark_simple_add";
    let (trace, report) = pair(&format!("{folder}_et.json.gz"), &format!("{folder}_trace.json.gz"));
    assert_eq!((report.host_matched, report.kernels.owned), (36, 4));
    properties("simple_add", &trace);
    let (trace, report) = alone(&root.join("HolisticTraceAnalysis/trace_diff_test_dlrm_2gpu.json.gz"));
    assert_eq!(report.graph_operations, 5046);
    let graph = trace.nodes.iter().filter(|n| n.device().is_some_and(|d| d.graph));
    assert!(graph.clone().all(|n| n.launch.is_some() && n.parent.is_some()));
    properties("trace_diff", &trace);
    for name in
        ["gpt2_2layer_b2_train", "gpt2_block_b4_train", "gpt2_2block_tp2_rank0", "mlp6_ddp2_rank1", "resnet50_b4_train"]
    {
        let (trace, report) = pair(&format!("torch/{name}_et.json.gz"), &format!("torch/{name}_kineto.json.gz"));
        assert_eq!(report.operators_matched, report.operators_total, "{name}");
        properties(name, &trace);
    }
}

#[test]
fn shared_replays() {
    let Some(root) = shared() else { return };
    let folder = root.join("astra-sim/megatron-tp8");
    let (trace, _) = both(&folder.join("megatron_et_0.json.gz"), &folder.join("megatron_kineto_0.json.gz"));
    let r = replay(&trace, Delays::Typical, |_, n| n.dur_ns).unwrap();
    assert_eq!((r.figures.compute_ns / 1_000_000, r.figures.communication_ns / 1_000_000), (131, 241));
    let measured = 603.24e6;
    assert!((r.figures.step_ns() as f64 / measured - 1.0).abs() < 0.05, "{:?}", r.figures);
    let half = scaled(&trace, |n| if n.is_communication() { 0.5 } else { 1.0 });
    let floor = scaled(&trace, |_| 0.0);
    assert!(floor.figures.step_ns() <= half.figures.step_ns() && half.figures.step_ns() <= r.figures.step_ns());
    assert!(half.figures.exposed_communication_ns * 2 <= r.figures.exposed_communication_ns + 1_000_000);

    // A step that communication bounds: 8.7 ms of all-to-all and all-reduce are on the path of DLRM's rank 1.
    let device = root.join("param/dlrm/worker1_step_12.1694128201556.pt.trace.json.gz");
    let (trace, _) = both(&root.join("param/dlrm/dlrm_eg_1.json.gz"), &device);
    let r = replay(&trace, Delays::Typical, |_, n| n.dur_ns).unwrap();
    let on_path = r.path.share_ns(PathShare::Communication);
    let half = scaled(&trace, |n| if n.is_communication() { 0.5 } else { 1.0 });
    let saved = r.figures.step_ns() - half.figures.step_ns();
    assert!(saved > on_path / 4 && saved <= on_path / 2 + 100 * US, "saved {saved} of {on_path}");

    // Steps bound by the device: within 5 % on average, and over all within 2 %.
    let (trace, _) = alone(&root.join("HolisticTraceAnalysis/trace_diff_test_dlrm_2gpu.json.gz"));
    let (r, was) = (replay(&trace, Delays::Typical, |_, n| n.dur_ns).unwrap(), recorded(&trace));
    assert!((r.figures.step_ns() as f64 / was.step_ns() as f64 - 1.0).abs() < 0.05);
}

/// HolisticTraceAnalysis' critical path lengths, where its definition can be followed.
#[test]
fn shared_critical_paths() {
    let Some(root) = shared() else { return };
    let text = std::fs::read_to_string(root.join("../reference/hta_critical_path.json")).unwrap();
    let reference: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut agreed = 0;
    for (name, entry) in reference["traces"].as_object().unwrap() {
        let Some(run) =
            entry["runs"].as_array().unwrap().iter().find(|r| r["annotation"] == "" && r["success"] == true)
        else {
            continue;
        };
        let path = root.join("..").join(name);
        let (trace, _) = alone(&path);
        let ours = Timing::new(&trace, Delays::Recorded).unwrap().work_ns(&trace) as f64 / 1e3;
        let theirs = run["critical_path_length_us"].as_f64().unwrap();
        println!("{name}: {ours:.0} us, HTA {theirs:.0} us, {:+.2} %", 100.0 * (ours / theirs - 1.0));
        // The others differ by definition: HTA leaves out the last step, operations before the first operator, or threads.
        const AGREE: [(&str, f64); 9] = [
            ("benchmark_simple_add_trace", 0.001),
            ("cuda_event_sync", 0.001),
            ("critical_path/simple_add", 0.001),
            ("sglang", 0.001),
            ("mi300x_timesformer", 0.005),
            ("mi300x_qwen05b", 0.01),
            ("h100_timesformer", 0.01),
            ("triton_example", 0.02),
            ("b200_vllm", 0.02),
        ];
        if let Some((_, within)) = AGREE.iter().find(|(part, _)| name.contains(part)) {
            assert!((ours / theirs - 1.0).abs() <= *within, "{name}: {ours} us, HTA {theirs} us");
            agreed += 1;
        }
    }
    assert_eq!(agreed, 9);
}

/// What a replay does not explain is told by kind, and the longest of it by name: of six kernels that begin 5 us after their calls one begins 800 us late.
#[test]
fn delays_without_explanation_are_named() {
    let mut events = Vec::new();
    for n in 0..6u64 {
        let (call, late) = (1000 * n, if n == 3 { 800 } else { 0 });
        events.push(format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{call},"dur":2,"args":{{"correlation":{}}}}}"#,
            n + 1
        ));
        events.push(format!(
            r#"{{"ph":"X","cat":"kernel","name":"k{n}","pid":0,"tid":7,"ts":{},"dur":10,"args":{{"correlation":{},"device":0,"stream":7}}}}"#,
            call + 5 + late,
            n + 1
        ));
    }
    let (trace, _) = from_text(&format!(r#"{{"traceEvents":[{}]}}"#, events.join(",")));
    let timing = Timing::new(&trace, Delays::Typical).unwrap();
    let named: Vec<(Ns, &str)> =
        timing.unexplained_longest.iter().map(|l| (l.0, &*trace.nodes[l.1 as usize].name)).collect();
    assert_eq!((named, timing.unexplained_ns), (vec![(800 * US, "k3")], [800 * US, 0, 0, 0]));
}
