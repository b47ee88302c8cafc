//! Overlays of critical paths: what the Trace Event Format asks of a file that Perfetto and chrome://tracing show as it is meant.

use super::trace_tools::{out, root, scratch, text};
use flowspace::trace::critical::Part;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Colours that Catapult reserves (tracing/base/color_scheme.html): others are an error there.
const COLOURS: [&str; 23] = [
    "thread_state_uninterruptible",
    "thread_state_iowait",
    "thread_state_running",
    "thread_state_runnable",
    "thread_state_sleeping",
    "thread_state_unknown",
    "background_memory_dump",
    "light_memory_dump",
    "detailed_memory_dump",
    "vsync_highlight_color",
    "generic_work",
    "good",
    "bad",
    "terrible",
    "black",
    "grey",
    "white",
    "yellow",
    "olive",
    "rail_response",
    "rail_animation",
    "rail_idle",
    "rail_load",
];

/// Process and thread, numbers of 32 bits as Perfetto keeps them.
fn track(event: &Value) -> (u32, u32) {
    let number = |field: &str| event[field].as_u64().and_then(|n| u32::try_from(n).ok());
    number("pid").zip(number("tid")).unwrap_or_else(|| panic!("no number of 32 bits: {event}"))
}

fn ns(value: &Value) -> i64 {
    let exact = value.as_f64().unwrap_or_else(|| panic!("no number: {value}")) * 1000.0;
    // Perfetto cuts, Catapult keeps the fraction: both have to come to the same.
    assert_eq!(exact.trunc(), exact.round(), "{value}");
    exact as i64
}

fn is_own(event: &Value) -> bool {
    event["cat"] == "critical_path"
}

/// Holds an overlay against the rules; gives the names of tracks and the number of arrows.
pub(super) fn obeys(drawn: &Value) -> (BTreeSet<String>, usize) {
    let events = drawn["traceEvents"].as_array().unwrap();
    let of = |ph: &'static str| events.iter().filter(move |e| e["ph"] == ph);
    let mut tracks: BTreeMap<(u32, u32), Vec<&Value>> = BTreeMap::new();
    for e in of("X") {
        let (at, takes) = (ns(&e["ts"]), ns(&e["dur"]));
        // Perfetto leaves out what begins before zero.
        assert!(at >= 0 && takes >= 0, "{e}");
        assert!(e["name"].as_str().is_some_and(|name| !name.is_empty()), "{e}");
        if let Some(colour) = e.get("cname") {
            assert!(COLOURS.contains(&colour.as_str().unwrap()), "{e}");
        }
        tracks.entry(track(e)).or_default().push(e);
    }
    // Slices of a track lie inside each other or apart, in the order in which they are written; those of the path follow each other.
    for (place, slices) in &tracks {
        let mut open: Vec<i64> = Vec::new();
        let mut last = 0;
        for e in slices {
            let (begin, end) = (ns(&e["ts"]), ns(&e["ts"]) + ns(&e["dur"]));
            open.truncate(open.iter().take_while(|other| **other > begin).count());
            let stretch = is_own(e) && e.get("cname").is_some();
            // What ran or was waited for fills the stretch before it.
            let inner = is_own(e) && !stretch;
            assert!((inner || begin >= last) && open.last().is_none_or(|other| end <= *other), "track {place:?}: {e}");
            assert!(!stretch || begin == last, "track {place:?}: {e}");
            assert_eq!(is_own(e), is_own(slices[0]), "the path shares its track");
            last = match (stretch, inner) {
                (true, _) => end,
                (_, true) => last,
                _ => begin,
            };
            open.push(end);
        }
    }
    // Perfetto gives a slice the colour of its name, Catapult that of the file: of each part both have one. What ran or was waited for fills its stretch.
    let own: Vec<&Value> = of("X").filter(|e| is_own(e)).collect();
    let (mut colours, mut parts) = (BTreeMap::new(), BTreeMap::new());
    for (before, e) in [None].into_iter().chain(own.iter().map(Some)).zip(&own) {
        let Some(colour) = e.get("cname").map(Value::to_string) else {
            assert!(
                before.is_some_and(|b| b.get("cname").is_some() && b["ts"] == e["ts"] && b["dur"] == e["dur"]),
                "{e}"
            );
            continue;
        };
        let name = e["name"].to_string();
        assert_eq!(e["name"], e["args"]["part"]);
        assert_eq!(*colours.entry(name.clone()).or_insert_with(|| colour.clone()), colour, "{e}");
        assert_eq!(*parts.entry(colour).or_insert_with(|| name.clone()), name, "{e}");
    }
    let own: Vec<&(u32, u32)> = tracks.iter().filter(|(_, slices)| is_own(slices[0])).map(|(place, _)| place).collect();
    assert!(own.len() <= 1 && tracks.keys().all(|place| own.iter().all(|o| place == *o || place.0 != o.0)));
    // Every process and every track has one name, and no two have the same.
    let mut named: BTreeMap<(&str, u32, u32), &str> = BTreeMap::new();
    for e in of("M").filter(|e| e["name"] == "process_name" || e["name"] == "thread_name") {
        let (pid, tid) = track(e);
        let kind = e["name"].as_str().unwrap();
        let key = (kind, pid, if kind == "thread_name" { tid } else { 0 });
        assert!(named.insert(key, e["args"]["name"].as_str().unwrap()).is_none(), "named twice: {e}");
    }
    let mut names = BTreeSet::new();
    let mut processes: BTreeMap<String, u32> = BTreeMap::new();
    for (pid, tid) in tracks.keys() {
        let of = |kind, tid| *named.get(&(kind, *pid, tid)).unwrap_or_else(|| panic!("{pid} {tid} has no {kind}"));
        // As Perfetto writes them: the number of a process behind its name.
        let process = match of("process_name", 0) {
            kind @ ("process" | "device") => format!("{kind} {pid}"),
            name => name.to_owned(),
        };
        let thread = of("thread_name", *tid);
        assert_eq!(*processes.entry(process.clone()).or_insert(*pid), *pid, "two processes are called {process}");
        assert!(names.insert(format!("{process} / {thread}")), "two tracks are called {process} / {thread}");
    }
    // Arrows: a begin and an end for each id, each inside a slice that is on the path, not backwards, from one track to another.
    let slice_at = |e: &Value| {
        let at = ns(&e["ts"]);
        let inside = |s: &&&Value| ns(&s["ts"]) <= at && at < ns(&s["ts"]) + ns(&s["dur"]);
        tracks.get(&track(e)).and_then(|slices| slices.iter().rfind(inside).copied())
    };
    let mut arrows: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    events.iter().filter(|e| matches!(e["ph"].as_str(), Some("s" | "t" | "f"))).for_each(|e| {
        arrows.entry(e["id"].as_u64().unwrap()).or_default().push(e);
    });
    for pair in arrows.values() {
        let [from, to] = pair.as_slice() else { panic!("{pair:?}") };
        assert!(from["ph"] == "s" && to["ph"] == "f" && to["bp"] == "e" && from["cat"] == to["cat"], "{pair:?}");
        assert!(ns(&from["ts"]) <= ns(&to["ts"]) && track(from) != track(to), "{pair:?}");
        for end in pair {
            let slice = slice_at(end).unwrap_or_else(|| panic!("an arrow's end is in no slice: {end}"));
            assert_eq!(slice["args"]["critical"], 1, "{end}: {slice}");
        }
    }
    (names, arrows.len())
}

/// Perfetto's colour of a slice by its name: hue and lightness of HSLuv, at a saturation of 80 (`hslForSlice`; digits do not count).
fn hue_and_lightness(name: &str) -> (i64, i64) {
    // Numbers of a browser: a product that a double rounds, of which 32 bits stay.
    let mix = |hash: i32, c: char| (f64::from(hash ^ c as i32) * 16_777_619.0) as i64 as i32;
    let hash = |text: &str, many: i64| i64::from(text.chars().fold(0x11c_9dc5, mix)).abs() % many;
    (hash(name, 360), hash(&format!("{name}x"), 40) + 40)
}

/// No two parts look alike in either viewer.
#[test]
fn parts_have_colours_of_their_own() {
    // As Perfetto v37 computes them.
    assert_eq!(hue_and_lightness("compute"), (200, 72));
    assert_eq!(hue_and_lightness("communication: waits for a peer"), (330, 74));
    for (at, a) in Part::ALL.iter().enumerate() {
        for b in &Part::ALL[at + 1..] {
            assert_ne!(a.colour(), b.colour());
            let ((hue, light), (other, lighter)) = (hue_and_lightness(a.word()), hue_and_lightness(b.word()));
            let apart = (hue - other).abs().min(360 - (hue - other).abs());
            assert!(
                apart >= 15 || (light - lighter).abs() >= 8,
                "{} ({hue}, {light}), {} ({other}, {lighter})",
                a.word(),
                b.word()
            );
        }
    }
}

/// The overlay of a file's critical path.
fn overlay(file: &Path, show: &str, more: &[&str]) -> Value {
    // A folder a trace: tests run beside each other.
    let name = file.file_name().unwrap().to_string_lossy();
    let to = text(&scratch(&format!("overlay_of_{name}")).join(format!("{show}.json")));
    let file = text(file);
    out(&[&["trace", "critical-path", &file, "--overlay", &to, "--show", show], more].concat());
    serde_json::from_slice(&std::fs::read(to).unwrap()).unwrap()
}

/// Two streams on each of two devices, one by name; host operators and kernels that cross; a window that begins inside operators.
#[test]
fn crossing_named_and_clipped_events_by_hand() {
    let event = |cat: &str, name: &str, pid: Value, tid: Value, ts: f64, dur: f64, args: Value| json!({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args});
    let kernel = |n: u32, device: u32, stream: u32| json!({"stream": stream, "device": device, "correlation": n});
    let host = |cat, name, ts, dur, args| event(cat, name, json!(100), json!("main"), ts, dur, args);
    let events = json!([
        host("python_function", "whole", 0.0, 300.0, json!({})),
        host("user_annotation", "ProfilerStep#1", 50.0, 200.0, json!({})),
        // It ends inside the step and began before it.
        host("python_function", "enter", 40.0, 20.0, json!({})),
        host("cpu_op", "A", 60.0, 40.0, json!({})),
        host("python_function", "crossing", 95.0, 10.0, json!({})),
        host("cuda_runtime", "cudaLaunchKernel", 65.0, 5.0, json!({"correlation": 1})),
        host("cuda_runtime", "cudaLaunchKernel", 75.0, 5.0, json!({"correlation": 2})),
        host("cuda_runtime", "cudaLaunchKernel", 85.0, 5.0, json!({"correlation": 3})),
        host("cuda_runtime", "cudaDeviceSynchronize", 110.0, 130.0, json!({})),
        event("kernel", "one", json!(0), json!(7), 80.0, 40.0, kernel(1, 0, 7)),
        // Programmatic launches begin before the one ahead has ended.
        event("kernel", "two", json!(0), json!(7), 115.0, 40.0, kernel(2, 0, 7)),
        event("kernel", "three", json!(0), json!("stream 13"), 160.0, 60.0, kernel(3, 0, 13)),
        event("cpu_op", "elsewhere", json!(-1), json!(7), 100.0, 10.0, json!({})),
        event("cpu_op", "far", json!(100), json!(9_000_000_000i64), 100.0, 10.0, json!({})),
    ]);
    let file = scratch("overlay_by_hand").join("t.json");
    std::fs::write(&file, json!({"traceEvents": events}).to_string()).unwrap();
    for show in ["path", "near", "all"] {
        obeys(&overlay(&file, show, &[]));
        let (names, arrows) = obeys(&overlay(&file, show, &["--annotation", "ProfilerStep"]));
        assert!(arrows > 0 && names.contains("critical path / in order"), "{show}: {names:?}");
        let wanted = [
            "critical path / in order",
            "device 0 / stream 13",
            "device 0 / stream 7",
            "device 0 / stream 7 (2)",
            "process -1 / thread 7",
            "process 100 / main",
            "process 100 / main (2)",
            "process 100 / thread 9000000000",
        ];
        if show == "all" {
            assert_eq!(names, wanted.iter().map(|n| n.to_string()).collect());
        }
    }
}

/// Every recorded trace of the project's own and, where they are at hand, the shared ones.
#[test]
fn overlays_of_recorded_traces_obey_the_format() {
    let own = root().join("tests/traces");
    let shared = ["../shared/traces/hta", "../../shared/traces/hta"].map(|p| root().join(p));
    let mut seen = 0;
    for folder in [own].iter().chain(shared.iter().find(|p| p.is_dir())) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let file = entry.unwrap().path();
            if flowspace::trace::critical::Events::read(&file).is_err() {
                continue;
            }
            for show in ["path", "near", "all"] {
                let (names, _) = obeys(&overlay(&file, show, &[]));
                assert!(names.contains("critical path / in order"), "{}: {names:?}", file.display());
            }
            seen += 1;
        }
    }
    assert!(seen >= 5, "{seen}");
}
