//! Speeds of the trace readers: `cargo bench --features cbc --bench trace`. `docs/traces.md` keeps a dated table.
//!
//! The Chakra file of 100 MB is made here, with nodes as a converter writes them. The recorded ResNet pair is read where the folder
//! `shared/traces` lies beside the checkout.

use divan::Bencher;
use divan::counter::BytesCount;
use flowspace::trace::chakra::{self, Attr, Io, Metadata, Node, NodeType, Scalar, Writer};
use flowspace::trace::{host, input, kineto};
use std::io::{Cursor, Read as _};
use std::path::{Path, PathBuf};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    divan::main();
}

/// About `megabytes` of nodes: name, dependencies, inputs and outputs as text, eleven attributes.
fn synthetic(megabytes: usize) -> Vec<u8> {
    let mut writer =
        Writer::new(Vec::new(), &Metadata { version: "0.0.4".into(), ..Metadata::default() }).expect("memory");
    let schema = "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor";
    let mut size = 0;
    let mut id = 0u64;
    while size < megabytes * 1_000_000 {
        let mut node = Node::new(
            id,
            ["aten::addmm", "aten::add_", "ampere_sgemm_128x64_tn"][id as usize % 3].into(),
            NodeType::Comp,
        );
        node.data_deps = vec![id.saturating_sub(1)];
        node.ctrl_deps = vec![id.saturating_sub(7)];
        node.duration_micros = id % 97;
        let values =
            format!("[[{id}, {}, 0, 4096, 4, 'cuda:0'], [{}, 12, 0, 1048576, 4, 'cuda:0'], 1, 1]", id + 1, id + 2);
        node.inputs = Some(Io {
            values: values.into(),
            shapes: "[[64, 64], [1024, 1024], [], []]".into(),
            types: "['Tensor(float)', 'Tensor(float)', 'Int', 'Int']".into(),
            unknown: Vec::new(),
        });
        node.outputs = Some(Io {
            values: format!("[[{id}, 7, 0, 4096, 4, 'cuda:0']]").into(),
            shapes: "[[64, 64]]".into(),
            types: "['Tensor(float)']".into(),
            unknown: Vec::new(),
        });
        for name in ["rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "stream"] {
            node.attrs.push(Attr::new(name, Scalar::Int64((id % 1000) as i64)));
        }
        node.attrs.push(Attr::new("op_schema", Scalar::String(schema.into())));
        node.attrs.push(Attr::new("is_cpu_op", Scalar::Bool(true)));
        node.attrs.push(Attr::new("num_ops", Scalar::Int64(1 << 30)));
        node.attrs.push(Attr::new("tensor_size", Scalar::Uint64(1 << 20)));
        writer.node(&node).expect("memory");
        size += 560;
        id += 1;
    }
    writer.finish()
}

/// A Chakra trace of 100 MB into memory.
#[divan::bench(sample_count = 5)]
fn read_chakra_100_mb(bencher: Bencher<'_, '_>) {
    let bytes = synthetic(100);
    bencher.counter(BytesCount::new(bytes.len())).bench_local(|| {
        chakra::read_from(Cursor::new(bytes.as_slice()), Path::new("bench")).expect("its own bytes").nodes.len()
    });
}

/// The same, node by node, none kept.
#[divan::bench(sample_count = 5)]
fn stream_chakra_100_mb(bencher: Bencher<'_, '_>) {
    let bytes = synthetic(100);
    bencher.counter(BytesCount::new(bytes.len())).bench_local(|| {
        let reader = chakra::Reader::new(Cursor::new(bytes.as_slice()), Path::new("bench")).expect("its own bytes");
        reader.map(|node| node.expect("its own bytes").id).max()
    });
}

/// Writing it.
#[divan::bench(sample_count = 5)]
fn write_chakra_100_mb(bencher: Bencher<'_, '_>) {
    let trace = chakra::read_from(Cursor::new(synthetic(100)), Path::new("bench")).expect("its own bytes");
    bencher.bench_local(|| chakra::write::to_bytes(&trace).len());
}

/// A recorded file, unpacked; nothing where the folder is not.
fn recorded(name: &str) -> Option<Vec<u8>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = root.ancestors().skip(1).take(2).map(|a| a.join("shared/traces").join(name)).find(|p| p.is_file())?;
    let mut bytes = Vec::new();
    input::open(&path).ok()?.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The execution trace of ResNet-50 (11.9 MB of JSON).
#[divan::bench(sample_count = 10)]
fn read_host_resnet(bencher: Bencher<'_, '_>) {
    let Some(bytes) = recorded("param/1.0.3-chakra.0.0.4/resnet_1gpu_et.json.gz") else { return };
    bencher.counter(BytesCount::new(bytes.len())).bench_local(|| {
        host::read_from(Cursor::new(bytes.as_slice()), Path::new("bench")).expect("a recorded trace").nodes.len()
    });
}

/// The Kineto trace of ResNet-50 (9.8 MB of JSON).
#[divan::bench(sample_count = 10)]
fn read_kineto_resnet(bencher: Bencher<'_, '_>) {
    let Some(bytes) = recorded("HolisticTraceAnalysis/nccl_data.json.gz") else { return };
    bencher.counter(BytesCount::new(bytes.len())).bench_local(|| {
        kineto::read_from(Cursor::new(bytes.as_slice()), Path::new("bench")).expect("a recorded trace").events.len()
    });
}
