//! Reading and writing of recorded traces.

use flowspace::trace::chakra::{self, Attr, CommType, Kind, Metadata, Node, NodeType, Scalar, Trace, Value};
use flowspace::trace::detect::{self, Format, Loaded};
use flowspace::trace::{TraceErrors, host, input, kineto};
use prost::Message as _;
use std::io::{Cursor, Read as _};
use std::path::{Path, PathBuf};

/// Folder of recorded traces beside the checkout, where there is one.
fn shared() -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let found = root.ancestors().skip(1).take(2).map(|a| a.join("shared/traces")).find(|p| p.is_dir());
    if found.is_none() {
        println!("no folder shared/traces: skipped");
    }
    found
}

/// The Rust types that prost makes of `proto/chakra.proto`: the reference against which our own reader is tested.
#[allow(clippy::all)] // generated
mod generated {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/proto/generated/chakra.rs"));
}

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
}

fn bytes_of(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    input::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// A trace with every kind of attribute, scalar and list, and everything else a node can have.
fn everything() -> Trace {
    let scalars = vec![
        Scalar::Double(-0.5),
        Scalar::Float(1.5e38),
        Scalar::Int32(i32::MIN),
        Scalar::Int64(i64::MIN),
        Scalar::Uint32(u32::MAX),
        Scalar::Uint64(u64::MAX),
        Scalar::Sint32(i32::MIN),
        Scalar::Sint64(i64::MAX),
        Scalar::Fixed32(7),
        Scalar::Fixed64(u64::MAX),
        Scalar::Sfixed32(-7),
        Scalar::Sfixed64(i64::MIN),
        Scalar::Bool(false),
        Scalar::String("grün".into()),
        Scalar::Bytes([0, 255].into()),
    ];
    assert_eq!(scalars.iter().map(Scalar::kind).collect::<Vec<_>>(), Kind::ALL);
    let mut node = Node::new(u64::MAX, "all".into(), NodeType::Other(-3));
    node.ctrl_deps = vec![1, 300];
    node.data_deps = vec![2];
    node.start_micros = 1 << 40;
    node.duration_micros = 3;
    node.inputs = Some(chakra::Io { values: "[1]".into(), shapes: "[[]]".into(), ..Default::default() });
    node.outputs = Some(chakra::Io::default());
    for scalar in &scalars {
        let kind = scalar.kind();
        node.attrs.push(Attr::new(kind.name(), scalar.clone()));
        let mut list = Attr::new(format!("{}s", kind.name()), scalar.clone());
        list.value = Some(Value::List(kind, vec![scalar.clone(), scalar.clone()]));
        list.doc = "a remark".into();
        node.attrs.push(list.clone());
        list.value = Some(Value::List(kind, Vec::new()));
        node.attrs.push(list);
    }
    node.attrs.push(Attr { name: "bare".into(), doc: "".into(), value: None, unknown: Vec::new() });
    let coll = Node::new(2, "c".into(), NodeType::Coll)
        .with("comm_type", Scalar::Int64(CommType::AllToAll.number()))
        .with("is_cpu_op", Scalar::Bool(false));
    Trace {
        metadata: Metadata {
            version: chakra::VERSION.into(),
            attrs: vec![Attr::new("schema", Scalar::String("1.1.1".into()))],
            unknown: Vec::new(),
        },
        nodes: vec![Node::new(1, "".into(), NodeType::Comp), coll, node],
        warnings: Vec::new(),
    }
}

fn read_bytes(bytes: &[u8]) -> Result<Trace, TraceErrors> {
    chakra::read_from(Cursor::new(bytes.to_vec()), Path::new("t.et"))
}

#[test]
fn what_is_written_is_read_and_written_again() {
    let trace = everything();
    let bytes = chakra::write::to_bytes(&trace);
    let again = read_bytes(&bytes).unwrap();
    assert_eq!(again, trace);
    assert_eq!(chakra::write::to_bytes(&again), bytes);
    assert_eq!(again.nodes[1].comm_type(), Some(CommType::AllToAll));
}

/// prost's generated reader and writer are the reference: same messages, same bytes.
#[test]
fn prost_reads_and_writes_the_same() {
    let bytes = chakra::write::to_bytes(&everything());
    let mut rest = bytes.as_slice();
    let mut again = Vec::new();
    let metadata = generated::GlobalMetadata::decode_length_delimited(&mut rest).unwrap();
    metadata.encode_length_delimited(&mut again).unwrap();
    while !rest.is_empty() {
        let node = generated::Node::decode_length_delimited(&mut rest).unwrap();
        node.encode_length_delimited(&mut again).unwrap();
    }
    assert_eq!(again, bytes);
}

/// Found by mutation: node 0 with nothing in it is an empty message, at which readers stop; it is written with its id.
#[test]
fn an_empty_node_is_not_lost() {
    let trace =
        chakra::json::read_from(&b"{\"version\": \"0.0.4\"}{}{\"id\": \"1\"}"[..], Path::new("t.json")).unwrap();
    assert_eq!(trace.nodes.len(), 2);
    let bytes = chakra::write::to_bytes(&trace);
    let again = read_bytes(&bytes).unwrap();
    assert_eq!(again.nodes, trace.nodes);
    assert_eq!(chakra::write::to_bytes(&again), bytes);
}

#[test]
fn packed_files_are_read_and_written() {
    let folder = scratch("packed");
    let trace = everything();
    let (plain, packed) = (folder.join("t.et"), folder.join("t.et.gz"));
    chakra::write(&trace, &plain).unwrap();
    chakra::write(&trace, &packed).unwrap();
    assert_eq!(bytes_of(&plain), bytes_of(&packed));
    assert_ne!(std::fs::read(&plain).unwrap(), std::fs::read(&packed).unwrap());
    assert_eq!(chakra::read(&packed).unwrap(), trace);
}

fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("trace_formats_{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Text protobuf and every form of JSON hold the whole trace: what is read back encodes to the same bytes.
#[test]
fn text_and_json_hold_everything() {
    let mut trace = everything();
    // JSON has no place for an enumeration's number beyond the schema below zero in every reader; the text has.
    trace.nodes[2].kind = NodeType::Comp;
    let bytes = chakra::write::to_bytes(&trace);
    let folder = scratch("forms");
    let forms = [
        ("a.json", Some(chakra::json::Form::Array)),
        ("b.json", Some(chakra::json::Form::Lines)),
        ("c.json", Some(chakra::json::Form::Jsonizer)),
        ("d.txt", None),
    ];
    for (name, form) in forms {
        let path = folder.join(name);
        let mut out = Vec::new();
        match form {
            Some(form) => {
                let mut writer = chakra::json::JsonWriter::new(&mut out, form, &trace.metadata).unwrap();
                trace.nodes.iter().for_each(|n| writer.node(n).unwrap());
                writer.finish().unwrap();
            }
            None => {
                let mut writer = chakra::text::TextWriter::new(&mut out, &trace.metadata).unwrap();
                trace.nodes.iter().for_each(|n| writer.node(n).unwrap());
                writer.finish();
            }
        }
        std::fs::write(&path, &out).unwrap();
        let expected = if form.is_some() { Format::ChakraJson } else { Format::ChakraText };
        assert_eq!(detect::detect(&path).unwrap(), expected, "{name}");
        let read =
            detect::load_chakra(&path).unwrap_or_else(|e| panic!("{name}: {e}\n{}", String::from_utf8_lossy(&out)));
        assert_eq!(chakra::write::to_bytes(&read), bytes, "{name}: {}", String::from_utf8_lossy(&out));
    }
}

#[test]
fn the_feeders_json_is_read() {
    let folder = scratch("feeder");
    let path = folder.join("f.json");
    let text = r#"{"workload_graph": [
        {"Id": 5, "Name": "a", "NodeType": 4, "runtime": 3, "is_cpu_op": true, "data_deps": [], "ctrlDeps": [2]},
        {"Id": 6, "Name": "b", "NodeType": 7, "is_cpu_op": false, "data_deps": [5], "comm_type": 0, "comm_size": 64, "comm_priority": 1}
    ]}"#;
    std::fs::write(&path, text).unwrap();
    assert_eq!(detect::detect(&path).unwrap(), Format::FeederJson);
    let trace = detect::load_chakra(&path).unwrap();
    assert_eq!(trace.nodes.len(), 2);
    assert_eq!((trace.nodes[0].duration_micros, trace.nodes[0].ctrl_deps.as_slice()), (3, &[2][..]));
    assert_eq!(trace.nodes[1].comm_type(), Some(CommType::AllReduce));
    assert_eq!(trace.nodes[1].attr("comm_size"), Some(&Value::One(Scalar::Int64(64))));

    std::fs::write(&path, r#"{"workload_graph": [{"Id": 5, "Name": "a", "NodeType": 4, "runtime": "x"}, {"Id": 6}]}"#)
        .unwrap();
    let errors = detect::load_chakra(&path).unwrap_err();
    assert_eq!(errors.0.len(), 2);
    assert!(errors.to_string().contains("node 5: runtime: expected an integer of at least 0, found \"x\""), "{errors}");
    assert!(errors.to_string().contains("node 6: Name: missing"), "{errors}");
}

/// Legacy files, built by hand from the field tables of their schemas.
#[test]
fn legacy_schemas_are_refused_by_name() {
    // 0.0.1: first message a node: id 1, name, type, tensor_loc (5), num_ops (12).
    let first = [&[0x08, 1, 0x12, 1, b'x', 0x18, 3, 0x28, 1, 0x60, 5][..]];
    // 0.0.2: id, name, type, inputs as string (5), attribute (11).
    let second = [&[0x08, 1, 0x12, 1, b'x', 0x18, 3, 0x2a, 1, b'i', 0x5a, 2, 0x0a, 0][..]];
    // 0.0.3: metadata whose field 1 is an attribute, then a node with strings in 6 and an attribute in 11.
    let third = [&[0x0a, 3, 0x0a, 1, b'v'][..], &[0x08, 1, 0x12, 1, b'x', 0x32, 1, b's', 0x5a, 2, 0x0a, 0]];
    for (messages, name) in [(&first[..], "0.0.1"), (&second[..], "0.0.2"), (&third[..], "0.0.3")] {
        let mut bytes = Vec::new();
        for message in messages {
            bytes.push(message.len() as u8);
            bytes.extend_from_slice(message);
        }
        let errors = read_bytes(&bytes).unwrap_err();
        assert_eq!(errors.0.len(), 1, "{errors}");
        assert!(errors.to_string().contains("legacy schema") && errors.to_string().contains(name), "{errors}");
    }
}

#[test]
fn faults_of_et_name_byte_node_and_field() {
    let good = chakra::write::to_bytes(&everything());
    let message = |bytes: &[u8]| read_bytes(bytes).unwrap_err().to_string();
    assert!(message(b"").contains("empty"));
    // Cut inside the last message.
    let cut = message(&good[..good.len() - 3]);
    assert!(cut.contains(&format!("byte {}", good.len() - 3)) && cut.contains("ends inside a message"), "{cut}");
    assert!(cut.contains("node #2"), "{cut}");
    // A node whose type is a string: metadata of 0 bytes, then id 9 and field 3 of the wrong wire type.
    let wrong = message(&[0, 5, 0x08, 9, 0x1a, 1, b'x']);
    assert_eq!(wrong, "t.et: byte 4: node 9: type: expected a varint, found a string or message (field 3)");
    // A name that is not UTF-8.
    let utf8 = message(&[0, 6, 0x08, 9, 0x12, 2, b'a', 0xff]);
    assert_eq!(utf8, "t.et: byte 7: node 9: name: this is not UTF-8");
    // A length that leaves the message.
    assert!(message(&[0, 4, 0x08, 9, 0x12, 200, 1]).contains("byte"));
    // Several faulty nodes at once.
    let two = read_bytes(&[0, 3, 0x08, 1, 0x3b, 3, 0x08, 2, 0x3b]).unwrap_err();
    assert_eq!(two.0.len(), 2, "{two}");
    // No Chakra trace at all.
    assert!(message(&[0xff; 40]).contains("no Chakra trace"));
}

/// Every recorded file is read, or refused for a reason that names it.
#[test]
fn every_recorded_file_is_read_or_refused_by_name() {
    let Some(folder) = shared() else { return };
    let mut all = Vec::new();
    files(&folder, &mut all);
    let traces = all.iter().filter(|p| {
        let name = p.to_string_lossy();
        [".et", ".json", ".et.gz", ".json.gz"].iter().any(|e| name.ends_with(e))
    });
    let mut read = 0;
    for path in traces {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match detect::load(path) {
            Ok((format, Loaded::Chakra(trace))) => {
                assert!(!trace.nodes.is_empty(), "{name}");
                if format == Format::Chakra {
                    let bytes = chakra::write::to_bytes(&trace);
                    assert!(bytes == bytes_of(path), "{name}: written again, it has other bytes");
                }
            }
            Ok((_, Loaded::Host(trace))) => {
                assert!(!trace.nodes.is_empty() && trace.warnings.is_empty(), "{name}: {:?}", trace.warnings);
                for node in trace.nodes.iter().filter(|n| &*n.name == host::RECORD_PARAM_COMMS) {
                    assert!(node.collective.as_ref().is_some_and(|c| c.name.is_some()), "{name}: node {}", node.id);
                }
            }
            Ok((_, Loaded::Kineto(trace))) => assert!(!trace.events.is_empty(), "{name}"),
            Ok((_, Loaded::CommGroups(groups))) => assert_eq!(groups.0.len(), 16),
            Err(e) => {
                assert!(name.contains("_fx") || name.contains("flop_counter"), "{e}");
                assert!(e.to_string().contains(&name) && e.0.len() == 1, "{e}");
                continue;
            }
        }
        read += 1;
    }
    println!("{read} files read");
}

/// Figures of recorded files, counted by other means: SOURCES.md and a JSON parser.
#[test]
fn recorded_figures() {
    let Some(folder) = shared() else { return };
    let resnet = host::read(&folder.join("param/1.0.3-chakra.0.0.4/resnet_1gpu_et.json.gz")).unwrap();
    assert_eq!((resnet.schema.as_str(), resnet.nodes.len()), ("1.0.3-chakra.0.0.4", 14_391));
    let device = kineto::read(&folder.join("HolisticTraceAnalysis/nccl_data.json.gz")).unwrap();
    let count = |c: kineto::Category| device.events.iter().filter(|e| e.category == c).count();
    assert_eq!((count(kineto::Category::Kernel), count(kineto::Category::Memset)), (2_700, 114));
    assert_eq!((count(kineto::Category::CpuOp), count(kineto::Category::Memcpy)), (14_346, 960));
    assert_eq!(device.distributed.world_size, Some(2));
    let collectives =
        |c: kineto::Category| device.events.iter().filter(|e| e.category == c && e.collective().is_some()).count();
    assert_eq!((collectives(kineto::Category::Kernel), collectives(kineto::Category::CpuOp)), (21, 27));
    let old = chakra::read(&folder.join("mlcommons-chakra/chakra.0.et.gz")).unwrap();
    assert_eq!(old.nodes.len(), 3_664);
    assert_eq!(old.nodes.iter().filter(|n| n.kind == NodeType::Coll).count(), 21);
    assert_eq!(old.nodes.iter().filter(|n| n.comm_type().is_some()).count(), 7);
    let kinds = chakra::read(&folder.join("generated-chakra-tools/one_metadata_node_all_types.0.et")).unwrap();
    let arms: std::collections::HashSet<String> =
        kinds.nodes.iter().flat_map(|n| &n.attrs).filter_map(|a| a.value.as_ref()).map(Value::arm).collect();
    assert_eq!(arms.len(), 30);
}
