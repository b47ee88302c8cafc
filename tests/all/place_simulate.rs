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
