//! Broken traces: every reader meets truncated, flipped, spliced and emptied files of a corpus, and must answer with a trace or an error.
//!
//! `FLOWSPACE_FUZZ_CASES` sets the number of cases; `FLOWSPACE_FUZZ_SEED` another beginning.

use flowspace::trace::chakra::{self, CommGroups, graph};
use flowspace::trace::convert::{Conversion, write_to};
use flowspace::trace::critical::compat::{Compat, Table, Window};
use flowspace::trace::critical::{self, Events, Peers, Run, Slack, overlay, tiling};
use flowspace::trace::detect::{self, Loaded};
use flowspace::trace::{TraceErrors, graphs, host, kineto, link, report, summary, timeline};
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// xorshift64*: the same cases on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.next() % n as u64) as usize }
    }
}

fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let mut out = Vec::new();
    for folder in [folder.clone(), folder.join("stages")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            // Recorded traces are packed and large: the small ones written by hand have all that parsers meet.
            if path.is_file() && path.extension().is_some_and(|e| e != "md" && e != "gz") {
                out.push((path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap()));
            }
        }
    }
    out.sort();
    out
}

/// Pieces that parsers stumble over.
const PIECES: [&[u8]; 20] = [
    b"\"",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"-9223372036854775808",
    b"\\u0000",
    b"\\",
    b"\xff\xfe",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80",
    b"\x00",
    b"[[[[[[[[[[[[[[[[",
    b"<None>",
];

fn mutate(bytes: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(out.len());
        match random.below(9) {
            0 => out.truncate(at),
            1 | 2 => {
                if let Some(b) = out.get_mut(at) {
                    *b ^= 1 << random.below(8);
                }
            }
            3 => {
                let from = random.below(other.len());
                let to = (from + random.below(64)).min(other.len());
                out.splice(at..at, other[from..to].iter().copied());
            }
            4 => {
                let to = (at + random.below(32)).min(out.len());
                out.drain(at..to);
            }
            5 => {
                let piece = PIECES[random.below(PIECES.len())];
                out.splice(at..at, piece.iter().copied());
            }
            6 => {
                let to = (at + random.below(200)).min(out.len());
                let copy: Vec<u8> = out[at..to].to_vec();
                out.splice(to..to, copy);
            }
            7 => {
                // A digit becomes another: ids that dangle, repeat or go in circles.
                let digits: Vec<usize> = (0..out.len()).filter(|i| out[*i].is_ascii_digit()).collect();
                if !digits.is_empty() {
                    out[digits[random.below(digits.len())]] = b'0' + random.below(10) as u8;
                }
            }
            _ => {
                if random.below(200) == 0 {
                    out.clear();
                }
            }
        }
    }
    out
}

/// What is done with every trace that a reader accepts: nothing may panic here either, and what is written must be read again.
fn use_it(path: &Path, loaded: &Loaded) {
    let figures = summary::summary(path, detect::Format::Chakra, loaded);
    assert!(serde_json::to_string(&figures).is_ok());
    match loaded {
        Loaded::Chakra(trace) => {
            let bytes = chakra::write::to_bytes(trace);
            let again = chakra::read_from(Cursor::new(bytes.clone()), path).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(chakra::write::to_bytes(&again), bytes);
            let links: Vec<graph::Links> = trace.nodes.iter().map(graph::Links::from).collect();
            let order = graph::order(&links);
            let cyclic = graph::faults(&links, path).iter().any(|e| e.message.contains("waits for itself"));
            assert_eq!(order.len() == links.len(), !cyclic);
            graphs::dot(trace, std::io::sink()).unwrap();
            graphs::graphml(trace, std::io::sink()).unwrap();
            timeline::of_chakra(trace, std::io::sink()).unwrap();
        }
        Loaded::Kineto(trace) => {
            if let Ok((linked, _)) = link::link(None, trace, &link::Steps::All) {
                let _ = flowspace::validate::traces::of_linked("t", &linked, Some("V100"));
                let mut conversion = Conversion::new(&linked, &CommGroups::default());
                write_to(&linked, &mut conversion, &mut std::io::sink()).unwrap();
            }
        }
        Loaded::Host(trace) => {
            let _ = trace.process_groups();
            trace.nodes.iter().for_each(|n| {
                let _ = n.input_tensors().map(|t| t.bytes()).fold(0u64, u64::saturating_add);
            });
        }
        Loaded::CommGroups(groups) => {
            assert_eq!(CommGroups::parse(groups.text().as_bytes(), path).as_ref(), Ok(groups));
        }
    }
}

/// The analyses of a timeline: a path that tiles its window, or a refusal.
fn timelines(path: &Path, bytes: &[u8]) {
    if let Ok(events) = Events::read_from(Cursor::new(bytes), path) {
        for annotation in ["", "a", "ProfilerStep"] {
            let Ok(graph) = critical::window(&events, annotation, &(0..=1)) else { continue };
            let run = Run::recorded(&graph);
            let path = tiling::tile(&events, &graph, &run, &Peers::default());
            assert_eq!(path.iter().map(|s| s.end - s.start).sum::<i64>(), graph.window.1 - graph.window.0);
            overlay::write(&events, &graph, &path, &Slack::new(&graph), overlay::Show::All, std::io::sink()).unwrap();
        }
    }
    if let Ok(table) = Table::read_from(Cursor::new(bytes), path) {
        let _ = report::report(&table, 3);
        for annotation in ["", "a"] {
            let window = Window { annotation: annotation.into(), instances: 0..=1 };
            if let Ok(found) = Compat::new(&table, &window, true) {
                assert!(found.edges().count() > 0 && !found.events().is_empty());
            }
        }
    }
}

fn every_reader(path: &Path, bytes: &[u8]) -> usize {
    timelines(path, bytes);
    let open = || Cursor::new(bytes.to_vec());
    let results: [Result<Loaded, TraceErrors>; 6] = [
        chakra::read_from(open(), path).map(Loaded::Chakra),
        chakra::json::read_from(open(), path).map(Loaded::Chakra),
        chakra::text::read_from(open(), path).map(Loaded::Chakra),
        host::read_from(open(), path).map(Loaded::Host),
        kineto::read_from(open(), path).map(Loaded::Kineto),
        CommGroups::parse(bytes, path).map(Loaded::CommGroups),
    ];
    if let Ok(Loaded::Kineto(trace)) = &results[4] {
        // What is held of a trace and what goes by give the same events.
        let mut drawn = Vec::new();
        timeline::of_kineto_from(Cursor::new(bytes), path, &mut drawn).unwrap();
        let drawn: serde_json::Value = serde_json::from_slice(&drawn).unwrap();
        assert_eq!(drawn["traceEvents"].as_array().map(Vec::len), Some(trace.events.len()));
    }
    let mut accepted = 0;
    for result in &results {
        match result {
            Ok(loaded) => {
                accepted += 1;
                use_it(path, loaded);
            }
            Err(errors) => assert!(!errors.0.is_empty() && !errors.to_string().is_empty()),
        }
    }
    accepted
}

#[test]
fn broken_traces_are_read_or_refused() {
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let cases = number("FLOWSPACE_FUZZ_CASES", 20_000);
    let mut random = Random(number("FLOWSPACE_FUZZ_SEED", 0x9e37_79b9_7f4a_7c15) | 1);
    let corpus = corpus();
    assert!(corpus.len() >= 10);
    for (name, bytes) in &corpus {
        assert!(every_reader(Path::new(name), bytes) >= 1, "{name} itself is not read");
    }
    let (mut accepted, path) = (0usize, Path::new("broken"));
    for case in 0..cases {
        let (name, bytes) = &corpus[random.below(corpus.len())];
        let (_, other) = &corpus[random.below(corpus.len())];
        let broken = mutate(bytes, other, &mut random);
        let result = std::panic::catch_unwind(|| every_reader(path, &broken));
        match result {
            Ok(n) => accepted += n,
            Err(_) => {
                let kept = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("panic-{case}"));
                std::fs::write(&kept, &broken).unwrap();
                panic!("case {case}, from {name}: kept as {}", kept.display());
            }
        }
    }
    println!("{cases} cases, {accepted} readings accepted");
    assert!(accepted > 0);
}

/// Files on disk: formats are told apart, gzip is unpacked or refused, and nothing panics on the way.
#[test]
fn broken_files_are_detected_or_refused() {
    use std::io::Write as _;
    let mut random = Random(77);
    let corpus = corpus();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("trace_fuzz_file");
    for _ in 0..500 {
        let (_, bytes) = &corpus[random.below(corpus.len())];
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        let packed = packed.finish().unwrap();
        let source = if random.below(2) == 0 { &packed } else { bytes };
        std::fs::write(&path, mutate(source, &packed, &mut random)).unwrap();
        match detect::load(&path) {
            Ok((_, loaded)) => use_it(&path, &loaded),
            Err(errors) => assert!(errors.to_string().contains("trace_fuzz_file")),
        }
    }
}
