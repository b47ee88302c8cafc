//! `flowspace place simulate` and `place export`, end to end.

use super::scratch::Scratch;
use std::path::Path;

/// a and c on one core, b on another; 1, 3 and 1 us a firing, FIFOs of one token: 5 us an iteration by hand (see the unit tests).
fn profile(folder: &Path, size: u64) {
    let fifo = |from: &str, to: &str| {
        format!(
            "\t\t<fifo-connection source=\"{from}\" source-port=\"Out\" target=\"{to}\" target-port=\"In\" size=\"{size}\" token-size=\"4\" \
             bandwidth=\"1000\"/>\n"
        )
    };
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<configuration>\n\t<partitioning>\n\t\t<partition id=\"0\" \
         scheduling=\"ROUND_ROBIN\">\n\t\t\t<instance id=\"a\" complexity=\"1000000\"/>\n\t\t\t<instance id=\"c\" complexity=\"1000000\"/>\n\t\t\
         </partition>\n\t\t<partition id=\"1\" scheduling=\"ROUND_ROBIN\">\n\t\t\t<instance id=\"b\" complexity=\"3000000\"/>\n\t\t</partition>\n\t\
         </partitioning>\n\t<connections>\n{}{}\t</connections>\n</configuration>\n",
        fifo("a", "b"),
        fifo("b", "c")
    );
    std::fs::write(folder.join("profile.xml"), text).unwrap();
}

#[test]
fn a_profile_is_simulated_sized_and_drawn() {
    let scratch = Scratch::new("profile");
    profile(&scratch.0, 1);
    let text = scratch.succeed(&["place", "simulate", "profile.xml", "--iterations", "1000000"]);
    assert!(
        text.contains(
            "5.000 us an iteration, 200000.000000 iterations/s; the most loaded core needs 3.000 us (60.00 %)"
        ),
        "{text}"
    );
    assert!(text.contains("a run of 1000000 iterations takes 5.000 s"), "{text}");
    profile(&scratch.0, 100);
    let words = [
        "place",
        "simulate",
        "profile.xml",
        "--sizes",
        "--format",
        "json",
        "--out",
        "sized.xml",
        "--figures",
        "f",
        "--timeline",
        "t.json",
    ];
    let json: serde_json::Value = serde_json::from_str(&scratch.succeed(&words)).unwrap();
    assert_eq!(json["steady"]["iteration_s"], 3e-6);
    assert_eq!(json["sizes"]["bytes"], 16.0);
    assert_eq!(json["sizes"]["proof"], "exhaustive");
    let sized = std::fs::read_to_string(scratch.0.join("sized.xml")).unwrap();
    assert_eq!(sized.matches("size=\"2\" token-size=\"4\"").count(), 2, "{sized}");
    for name in ["gantt.svg", "gantt.png", "placement.svg", "placement.png"] {
        assert!(std::fs::metadata(scratch.0.join("f").join(name)).unwrap().len() > 1_000, "{name}");
    }
    let timeline: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(scratch.0.join("t.json")).unwrap()).unwrap();
    let events = timeline["traceEvents"].as_array().unwrap();
    assert!(events.iter().filter(|e| e["ph"] == "X").count() >= 12);
    assert!(events.iter().any(|e| e["name"] == "b" && e["tid"] == 1 && e["dur"] == 3.0), "{events:?}");
    trace_events(&timeline, &["core 0", "core 1"]);
    // From the empty machine on: the first firing is that of the source, at 0.
    scratch.succeed(&["place", "simulate", "profile.xml", "--timeline", "s.json", "--from-start", "--recorded", "9"]);
    let timeline: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(scratch.0.join("s.json")).unwrap()).unwrap();
    trace_events(&timeline, &["core 0", "core 1"]);
    let first = timeline["traceEvents"].as_array().unwrap().iter().find(|e| e["ph"] == "X").unwrap();
    assert_eq!((&first["name"], first["ts"].as_f64()), (&"a".into(), Some(0.0)), "{first}");
}

/// The trace event format, as Perfetto and chrome://tracing read it: complete events (a begin has its end in it) with times from 0 on, in order and one after another
/// on each track, tracks that each have one name, and nothing that is neither.
fn trace_events(timeline: &serde_json::Value, tracks: &[&str]) {
    assert!(["ms", "ns"].contains(&timeline["displayTimeUnit"].as_str().unwrap()));
    let mut names = std::collections::BTreeMap::new();
    let mut until = std::collections::BTreeMap::new();
    for e in timeline["traceEvents"].as_array().unwrap() {
        let track = (e["pid"].as_u64().unwrap(), e["tid"].as_u64().unwrap());
        let name = e["name"].as_str().unwrap();
        match e["ph"].as_str().unwrap() {
            "M" => {
                assert_eq!(name, "thread_name");
                let named = e["args"]["name"].as_str().unwrap();
                assert!(names.insert(track, named).is_none(), "{track:?} has two names");
            }
            "X" => {
                let (start, took) = (e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap());
                let free = until.insert(track, start + took).unwrap_or(0.0);
                assert!(took >= 0.0 && start >= free - 1e-6, "{e}: the core is busy until {free}");
                assert!(!name.is_empty() && e["args"]["iteration"].is_u64(), "{e}");
            }
            other => panic!("an event of the kind {other}: {e}"),
        }
    }
    assert!(until.keys().all(|track| names.contains_key(track)), "a track without a name");
    assert_eq!(names.into_values().collect::<Vec<_>>(), tracks);
}

/// XML to .xcf and back is the file it was, but for what the forms do not share.
#[test]
fn forms_are_converted() {
    let scratch = Scratch::new("forms");
    profile(&scratch.0, 7);
    scratch.succeed(&["place", "export", "profile.xml", "--to", "xcf", "--out", "p.xcf"]);
    let xcf = std::fs::read_to_string(scratch.0.join("p.xcf")).unwrap();
    assert!(
        xcf.contains("<network id=\"profile\"/>") && xcf.contains("<connection source=\"a\" source-port=\"Out\""),
        "{xcf}"
    );
    let back = scratch.succeed(&["place", "export", "p.xcf", "--to", "xml"]);
    assert_eq!(back, std::fs::read_to_string(scratch.0.join("profile.xml")).unwrap());
}

/// Placed, simulated, exported, imported, simulated again: the same steady state, and the placement is checked.
#[test]
fn a_placement_goes_through_a_mapping_file_and_back() {
    let scratch = Scratch::new("round");
    let graph = "kind: actors\nname: filter\nbatch: 4\nactors:\n  - {name: source, kernel: data, time: 1 us}\n  - {name: low, time: 30 us}\n  \
                 - {name: sum, time: 10 us}\nchannels:\n  - {from: source, to: low, token: 4 kB, capacity: 2}\n  - {from: low, to: sum, token: 4 kB, \
                 capacity: 2}\n";
    let cores = "name: four\nsource: \"assumed: a test\"\ncores:\n  - {name: core, count: 4, matrix: 1 GFLOP/s, vector: 1 GFLOP/s, memory_bandwidth: 1 \
                 GB/s, memory: 64 kB}\nnetwork: {levels: [{size: 4, bandwidth: 1 GB/s}]}\n";
    std::fs::write(scratch.0.join("g.yaml"), graph).unwrap();
    std::fs::write(scratch.0.join("c.yaml"), cores).unwrap();
    scratch.succeed(&["place", "--workload", "g.yaml", "--cores", "c.yaml", "--out", "p.yaml"]);
    let simulated = |file: &str| -> serde_json::Value {
        let text = scratch.succeed(&["place", "simulate", file, "--format", "json", "--transfers", "free"]);
        serde_json::from_str(&text).unwrap()
    };
    let first = simulated("p.yaml");
    assert_eq!(first["steady"]["iteration_s"], 3e-5);
    for form in ["xml", "xcf"] {
        let mapping = format!("m.{form}");
        scratch.succeed(&["place", "export", "p.yaml", "--to", form, "--out", &mapping]);
        scratch.succeed(&["place", "import", &mapping, "--workload", "g.yaml", "--cores", "c.yaml", "--out", "q.yaml"]);
        scratch.succeed(&["check", "q.yaml"]);
        assert_eq!(simulated("q.yaml"), first);
    }
    // With weights the mapping file is a profile: placed by it, the same.
    scratch.succeed(&["place", "export", "p.yaml", "--weights", "--out", "w.xml"]);
    assert_eq!(simulated("w.xml")["steady"]["iteration_s"], 3e-5);
    let text = scratch.succeed(&["place", "--workload", "g.yaml", "--cores", "c.yaml", "--profile", "w.xml"]);
    assert!(text.contains("bottleneck 30.00 us"), "{text}");
}
