//! DFModel's files, imported: golden pairs, the stored runs of `tests/golden/dfmodel` written as DFModel writes them and
//! imported again, round trips between text and bytes, and damaged files.
//!
//! `tests/import/NAME.txt` is an input, `NAME.expect` the report and the files that come of it.
//! `FLOWSPACE_BLESS=1 cargo test --test all import::` writes the expectations anew; read them.

use flowspace::check;
use flowspace::import::dfmodel::load::load;
use flowspace::import::dfmodel::schema::Generation;
use flowspace::import::dfmodel::tree::Message;
use flowspace::import::dfmodel::{Imported, Options, import, text, typed, wire};
use flowspace::model::Strategy;
use flowspace::plan::file::{self, PlanFile};
use flowspace::spec::{Loader, Node};
use flowspace::system::network::Topology;
use flowspace::system::options::Overlap;
use flowspace::system::{Efficiency, Style, System};
use flowspace::workload::{Axis, Op, Phase, WorkloadSpec};
use prost_reflect::DynamicMessage;
use prost_reflect::prost::Message as _;
use prost_reflect::text_format::FormatOptions;
use std::fmt::Write as _;
use std::path::PathBuf;

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// The inputs of the golden pairs: name and text.
fn inputs() -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = std::fs::read_dir(folder("import"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "txt"))
        .map(|p| (p.file_stem().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(&p).unwrap()))
        .collect();
    found.sort();
    assert!(found.len() >= 5);
    found
}

fn options(name: &str, generation: Option<Generation>) -> Options {
    Options { generation, skip_unknown: false, name: name.into() }
}

fn good(name: &str, text: &str) -> Imported {
    import(&format!("{name}.txt"), text.as_bytes(), &options(name, None)).unwrap_or_else(|e| panic!("{e}"))
}

fn file_of<'i>(imported: &'i Imported, part: &str) -> Option<&'i str> {
    let ending = format!("-{part}.yaml");
    imported.files.iter().find(|(name, _)| name.ends_with(&ending)).map(|(_, text)| text.as_str())
}

fn node(imported: &Imported, part: &str) -> Node {
    Node::parse(part, file_of(imported, part).unwrap()).unwrap()
}

#[test]
fn golden_pairs() {
    let mut different = Vec::new();
    for (name, text) in inputs() {
        let imported = good(&name, &text);
        let mut found = format!("generation {}\n", imported.generation);
        imported.notes.iter().for_each(|n| writeln!(found, "{n}").unwrap());
        imported.files.iter().for_each(|(file, text)| write!(found, "--- {file}\n{text}").unwrap());
        let path = folder("import").join(format!("{name}.expect"));
        if std::env::var_os("FLOWSPACE_BLESS").is_some() {
            std::fs::write(&path, &found).unwrap();
        } else if std::fs::read_to_string(&path).unwrap_or_default() != found {
            different.push(format!("{name}: found\n{found}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// A file means the same as text and as bytes; each can be made of the other; our readers and those of prost-reflect agree.
#[test]
fn text_and_bytes_round_trip() {
    let stored = stored_runs().into_iter().map(|(id, plan)| (id.clone(), written(&id, &plan)));
    for (name, text) in inputs().into_iter().chain(stored) {
        let loaded = load(&format!("{name}.txt"), text.as_bytes(), None, false).unwrap();
        let message = &loaded.message;
        let desc = loaded.generation.descriptor().unwrap();
        let theirs = DynamicMessage::parse_text_format(desc.clone(), &text).unwrap();
        assert_eq!(message.to_dynamic(), theirs, "{name}: text");

        let bytes = message.to_dynamic().encode_to_vec();
        let (back, faults) = wire::read(&desc, &bytes);
        assert!(faults.is_empty(), "{name}: {faults:?}");
        assert_eq!(back.to_dynamic(), DynamicMessage::decode(desc.clone(), bytes.as_slice()).unwrap(), "{name}: bytes");

        let again = back.to_dynamic().to_text_format_with_options(&FormatOptions::new().pretty(true));
        let (fields, faults) = text::read(&again);
        assert!(faults.is_empty(), "{name}: {faults:?}");
        let mut faults = Vec::new();
        let last: Message = typed::message(&desc, &fields, "", &mut faults);
        assert!(faults.is_empty(), "{name}: {faults:?}");
        assert_eq!(last, back, "{name}: text -> bytes -> text");

        // The files are the same but for the report on top.
        let from_text = import("run.txt", text.as_bytes(), &options("run", Some(loaded.generation))).unwrap();
        let from_bytes = import("run.pb", &bytes, &options("run", Some(loaded.generation))).unwrap();
        let bodies = |i: &Imported| -> Vec<String> {
            let body = |t: &String| t.lines().filter(|l| !l.starts_with('#')).collect::<Vec<_>>().join("\n");
            i.files.iter().map(|(_, t)| body(t).replace("run.pb", "run.txt")).collect()
        };
        assert_eq!(bodies(&from_text), bodies(&from_bytes), "{name}");
    }
}

/// Without being told, a binary file is read as the generation that wrote it, or as one that reads it alike.
#[test]
fn generations_of_binary_files_are_told_apart() {
    for (name, text) in inputs() {
        let loaded = load(&format!("{name}.txt"), text.as_bytes(), None, false).unwrap();
        let bytes = loaded.message.to_dynamic().encode_to_vec();
        let found = load(&format!("{name}.pb"), &bytes, None, false).unwrap_or_else(|e| panic!("{e}"));
        let expected = match loaded.generation {
            Generation::Miscellany => Generation::PerfectOverlap,
            other => other,
        };
        assert_eq!(found.generation, expected, "{name}");
        let renamed = load(&name, &bytes, None, false).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(renamed.generation, expected, "{name}: a name without ending");
    }
}

// --- the stored runs ---------------------------------------------------------------------------------------------------------

fn stored_runs() -> Vec<(String, PlanFile)> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder("golden/dfmodel")).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let plan = file::read(&Loader.load(&path, None).unwrap()).unwrap();
        (path.file_stem().unwrap().to_string_lossy().into_owned(), plan)
    };
    // Token-by-token and state-space graphs come as written-out graphs, under names of their own.
    // Those of the oldest notations and of Calculon's network have no writer here.
    let apart = ["hyena", "mamba", "llama3", "hpl-first", "dlrm-first", "gpt3-1T-calculon", "gpt3-1.5B-wse2"];
    let as_graphs = |id: &str| apart.iter().any(|family| id.starts_with(family));
    let found: Vec<(String, PlanFile)> = paths.into_iter().map(read).filter(|(id, _)| !as_graphs(id)).collect();
    assert!(found.len() >= 16);
    found
}

/// DFModel's names of the transformer's kernels, from its generator.
fn their_name(ours: &str) -> String {
    let (stem, ending) = match ours.strip_suffix("_upd") {
        Some(stem) => (stem, "_bwd_weight_update"),
        None => (ours, ""),
    };
    let stem = match stem {
        "Add_Prev" => "Add_Prev_Layer",
        "LN1" => "LayerNorm_1",
        "LN2" => "LayerNorm_2",
        "LN2_bwd" => "LayerNorm_2_bwd",
        "MHA1" => "MHA_GEMM_1",
        "MHA2" => "MHA_GEMM_2",
        "PROJ" => "PROJ_GEMM",
        "PROJ_bwd" => "PROJ_GEMM_bwd",
        "MHA2_bwd_P" => "MHA_GEMM_2_bwd1",
        "MHA2_bwd_V" => "MHA_GEMM_2_bwd2",
        "MHA1_bwd_Q" => "MHA_GEMM_1_bwd1",
        "MHA1_bwd_K" => "MHA_GEMM_1_bwd2",
        other => other,
    };
    format!("{stem}{ending}")
}

/// A stored run as DFModel's passes leave it (`dse_final.txt`): the notation of the files under `LLM/dataflow_mapping` (read
/// there), with the sizes, degrees and the mapping of our golden file.
fn written(id: &str, plan: &PlanFile) -> String {
    let (w, s, d) = (&plan.workload, &plan.system, &plan.decisions);
    let first = id.starts_with("g1-");
    let miscellany = s.model.all_reduce_passes == 2;
    let tp: u64 = d.uses.iter().map(|u| u.tp).product();
    let family = plan.workload_node.get("kind").unwrap().describe().trim_matches('"').to_string();
    let mut out = "dataflow_graph {\n".to_string();
    // Kernels keep the order of the generator, which is DFModel's.
    for (i, k) in w.kernels.iter().enumerate() {
        let unit = if k.is_gemm() { "SYSTOLIC" } else { "SIMD" };
        let pass = if k.phase == Phase::Forward { "FWD" } else { "BWD" };
        let shape = &k.shape;
        let (form, read) = match k.op {
            // DFModel declares the matrices of a transform as weights without bytes.
            Op::Gemm if family == "fft" => ("gemm_input1_weight", 1),
            Op::GemmWeight => ("gemm_input1_weight", 1),
            Op::Gemm => ("gemm_input1_input2", 2),
            _ if k.name.starts_with("Add_") && k.name != "Add_Prev" => ("elementwise_input1_input2", 2),
            _ => ("elementwise_input1", 1),
        };
        let word = w.word_bytes;
        let bytes = shape.rows() as f64 * shape.n as f64 * word;
        let strategy = d.sharding[i];
        let cut = |axis: Axis, with: Strategy| {
            let by = if strategy == with { tp } else { 1 };
            let tiles = if k.tiled == axis { d.tiles } else { 1 };
            shape.along(axis).div_ceil(by).div_ceil(tiles)
        };
        writeln!(out, "  kernels {{\n    name: {:?}\n    id: {}", their_name(&k.name), i + 1).unwrap();
        if d.partition[i] > 0 {
            writeln!(out, "    config: {}", d.partition[i]).unwrap();
        }
        writeln!(out, "    fwd_bwd: {pass}\n    type: {unit}\n    {form} {{").unwrap();
        writeln!(out, "      outer: {}\n      M: {}\n      N: {}", shape.outer, shape.m, shape.n).unwrap();
        let names =
            if read == 1 { vec!["input_tensor_size"] } else { vec!["input_tensor_1_size", "input_tensor_2_size"] };
        names.iter().for_each(|n| writeln!(out, "      {n}: {}", bytes as f32).unwrap());
        if k.is_gemm() {
            writeln!(out, "      K: {}", shape.k).unwrap();
            writeln!(out, "      shard_K: {}", cut(Axis::K, Strategy::K)).unwrap();
        }
        if k.op == Op::GemmWeight {
            writeln!(out, "      weight_tensor_size: {}", (shape.rows() as f64 * shape.k as f64 * word) as f32)
                .unwrap();
        }
        let sharding = match strategy {
            Strategy::Outer => "OUTER_SHARDING",
            Strategy::M => "M_SHARDING",
            Strategy::K => "K_SHARDING",
            Strategy::N => "N_SHARDING",
            Strategy::Replicate => "NO_SHARDING",
        };
        writeln!(out, "      output_tensor_size: {}\n      sharding: {sharding}", bytes as f32).unwrap();
        writeln!(out, "      shard_N: {}", cut(Axis::N, Strategy::N)).unwrap();
        let tiling = match k.tiled {
            _ if family != "dfmodel_layer" => "NO_TILING",
            Axis::K => "K_TILING",
            _ => "N_TILING",
        };
        writeln!(out, "      tiling: {tiling}").unwrap();
        let comm = match (k.phase, strategy) {
            (Phase::BackwardWeight, _) => Some("ALL_REDUCE_PERIODIC"),
            (_, Strategy::K) => Some("ALL_REDUCE"),
            _ => None,
        };
        if let Some(comm) = comm {
            writeln!(out, "      communication_type: {comm}\n      communication_size: {}", bytes as f32).unwrap();
        }
        for (collective, ending) in k.collectives.iter().zip(["", "_2"]) {
            let kind = collective.kind.word().to_uppercase();
            writeln!(out, "      communication_type{ending}: {kind}").unwrap();
            writeln!(out, "      communication_size{ending}: {}", collective.bytes as f32).unwrap();
        }
        if k.extra_dram_bytes > 0.0 {
            writeln!(out, "      memory_size: {}", k.extra_dram_bytes as f32).unwrap();
        }
        out.push_str("    }\n  }\n");
    }
    let mut id_of_edge = 0;
    for tensor in &w.tensors {
        for user in tensor.consumers.iter().filter(|_| tensor.producer.is_some()) {
            id_of_edge += 1;
            let from = tensor.producer.unwrap() + 1;
            writeln!(out, "  connections {{ startIdx: {from} endIdx: {} id: {id_of_edge} }}", user.kernel + 1).unwrap();
        }
    }
    let chip = &s.chip.0;
    let memory = &s.memory.0;
    let gbs = |x: f64| x / 1e9;
    writeln!(out, "}}\nsystem {{\n  num_chip: {}\n  accelerator {{", s.chip_count()).unwrap();
    writeln!(out, "    core: {} systolic_width: {} systolic_height: {}", chip.cores, chip.lanes, chip.stages).unwrap();
    writeln!(out, "    sram_cap: {} freq: {}", chip.sram.0, chip.frequency.0 / 1e9).unwrap();
    let dram = format!("dram_bw: {} dram_cap: {}", gbs(memory.bandwidth.0), memory.capacity.map_or(0.0, |c| c.0));
    if first {
        writeln!(out, "    {dram}\n  }}").unwrap();
    } else {
        writeln!(out, "  }}\n  memory {{ {dram} }}").unwrap();
    }
    let topology: Vec<&str> = (0..d.uses.len())
        .map(|i| match s.network.topology_of(i) {
            Topology::Ring => "r",
            Topology::Switch => "sw",
            Topology::FullyConnected => "fc",
        })
        .collect();
    writeln!(out, "  {} {{", topology.join("_")).unwrap();
    for ((dimension, used), letter) in s.network.dimensions.iter().zip(&d.uses).zip(["x", "y", "z"]) {
        let link = gbs(dimension.link.0.bandwidth.0);
        writeln!(out, "    {letter}: {} link_bw_{letter}: {link}", dimension.size).unwrap();
        let par = if used.tp > 1 {
            "TP"
        } else if used.pp > 1 {
            "PP"
        } else {
            "DP"
        };
        if !first && family == "dfmodel_layer" {
            writeln!(out, "    par_{letter}: {par:?}").unwrap();
        }
    }
    out.push_str("  }\n");
    if s.model.high_bandwidth_domain > 1 {
        writeln!(out, "  HBD: {}", s.model.high_bandwidth_domain).unwrap();
    }
    let switch = s.network.switch.as_ref().unwrap();
    let link = &s.network.dimensions[0].link.0;
    writeln!(out, "}}\ncost {{\n  link_unit_price: {}\n  switch_unit_price: {}", link.price.0, switch.0.price.0)
        .unwrap();
    writeln!(out, "  dram_unit_price: {}", memory.price.0).unwrap();
    if !first {
        writeln!(out, "  accelerator_price: {}\n  accelerator_power: {}", chip.price.0, chip.power.0).unwrap();
        writeln!(out, "  dram_unit_power: {}\n  switch_unit_power: {}", memory.power.0, switch.0.power.0).unwrap();
        for (dimension, letter) in s.network.dimensions.iter().zip(["x", "y", "z"]) {
            writeln!(out, "  link_unit_power_{letter}: {}", dimension.link.0.power.0).unwrap();
        }
    }
    out.push_str("}\n");
    let batches = format!("global_batch_size: {} micro_batch_size: {}", w.global_batch, w.micro_batch);
    let number = |key: &str| plan.workload_node.get(key).unwrap().describe().trim_matches('"').to_string();
    let sizes = match family.as_str() {
        "dlrm" => format!(
            "dlrm {{ num_table: {} emb_dim: {} row: {} global_batch_size: {} num_copy: 1 }}",
            number("tables"),
            number("dim"),
            number("rows"),
            w.global_batch
        ),
        "hpl" => format!("hpl {{ n: {} b: {} num_copy: 1 }}", number("n"), number("block")),
        "fft" => format!("fft {{ length: {} num_copy: 1 }}", number("length")),
        _ => {
            let head = w.kernels.iter().find(|k| k.name == "Q").unwrap().shape;
            let sizes = format!(
                "hidden_dim: {} head_dim: {} num_head: {} seq_len: {} num_layer: {}",
                head.k, head.m, head.outer, head.n, w.repeat
            );
            match (first, miscellany) {
                (true, _) => format!("llm {{ {sizes} }} {batches}"),
                (_, true) => format!("llm {{ {sizes} {batches} tile_size: 2048 }}"),
                _ => format!("llm {{ {sizes} {batches} num_layer_in_graph: 1 }}"),
            }
        }
    };
    let dataflow = chip.style == Style::Dataflow;
    let style = if dataflow { "DATAFLOW" } else { "KERNEL_BY_KERNEL" };
    let most = d.partition.iter().max().unwrap() + 1;
    let util = match chip.efficiency {
        Efficiency::Constant(u) => format!("compute_util: {}", u.0),
        Efficiency::LanesStages | Efficiency::Waves => String::new(),
    };
    let common = format!("execution_style: {style} num_config: {most} {util} word: {}", w.word_bytes);
    if first {
        let style = if dataflow { "FLASHATTENTION" } else { "KERNEL_BY_KERNEL" };
        writeln!(out, "training {{ {sizes} num_config: {most} optimization: {style} word: 2 }}").unwrap();
    } else if miscellany {
        let full = s.overlap() == Overlap::Full;
        writeln!(out, "miscellany {{ {sizes} {common} perfect_overlap: {full} }}").unwrap();
    } else {
        let overlap = match s.overlap() {
            Overlap::Full => "PERFECT_OVERLAP",
            Overlap::None => "NO_OVERLAP",
            Overlap::ComputeMemory => "OVERLAP_COMPUTE_MEMORY",
        };
        writeln!(out, "execution {{ {sizes} {common} overlap: {overlap} }}").unwrap();
    }
    if !first {
        out.push_str("gurobi { thread: 144 gap: 0.001 time: 180 }\n");
    }
    out
}

/// What comes of a stored run is the run: the same workload, a system with the same numbers, the same mapping, and so the
/// stored time, FLOP, utilisation, price and power.
#[test]
fn stored_runs_come_back_with_their_figures() {
    let mut with_result = 0;
    for (id, plan) in stored_runs() {
        let imported = good(&id, &written(&id, &plan));
        let workload = WorkloadSpec::build(&node(&imported, "workload")).unwrap();
        let mut expected = plan.workload.clone();
        expected.name = workload.name.clone();
        assert_eq!(workload, expected, "{id}");
        let kind = |n: &Node| n.get("kind").map(Node::describe);
        assert_eq!(kind(&node(&imported, "workload")), kind(&plan.workload_node), "{id}");

        let system = System::build(&node(&imported, "system")).unwrap();
        let (found, stored) = (&system, &plan.system);
        assert_eq!(found.network.topology, stored.network.topology, "{id}");
        assert_eq!(found.overlap(), stored.overlap(), "{id}");
        let mut model = stored.model.clone();
        model.tile_counts = found.model.tile_counts;
        assert_eq!(found.model, model, "{id}");
        // DFModel's fields are 32-bit floats.
        let numbers = |s: &System| -> Vec<f32> {
            let (chip, memory) = (&s.chip.0, &s.memory.0);
            let mut all = vec![chip.cores as f64, chip.lanes as f64, chip.stages as f64, chip.sram.0];
            all.extend([chip.frequency.0, memory.bandwidth.0, memory.capacity.map_or(0.0, |c| c.0)]);
            for d in &s.network.dimensions {
                all.extend([d.size as f64, d.link.0.bandwidth.0, d.link.0.price.0]);
            }
            all.iter().map(|x| *x as f32).collect()
        };
        assert_eq!(numbers(found), numbers(stored), "{id}");

        // The plan names its workload and system by file.
        let place = std::env::temp_dir().join(format!("flowspace-import-{}-{id}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        imported.files.iter().for_each(|(name, text)| std::fs::write(place.join(name), text).unwrap());
        let read = file::read(&Loader.load(&place.join(format!("{id}-plan.yaml")), None).unwrap());
        let study = flowspace::study::Study::load(&place.join(format!("{id}-study.yaml")));
        std::fs::remove_dir_all(&place).unwrap();
        let read = read.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(read.decisions, plan.decisions, "{id}");
        assert_eq!(study.unwrap_or_else(|e| panic!("{e}")).axes.len(), 1, "{id}");
        let Some(result) = &plan.result else { continue };
        with_result += 1;
        let figures = check::derive(&read.workload, &read.system, &read.decisions).unwrap();
        assert_eq!(result.differences(&figures), Vec::<String>::new(), "{id}");
    }
    assert!(with_result >= 14, "{with_result}");
}

/// A changed size is no longer the generator's layer: the graph is written out, and the report says why.
#[test]
fn a_graph_of_its_own_is_written_out() {
    let (id, plan) = stored_runs().into_iter().find(|(id, _)| id == "gpt3-175B-sn10-kbk-8x1").unwrap();
    let text = written(&id, &plan);
    let gated = text.replacen("M: 49152", "M: 32768", 1);
    let imported = good("gated", &gated);
    assert!(file_of(&imported, "workload").unwrap().contains("kind: graph"));
    let why = imported.notes.iter().find(|n| n.text.contains("written kernel by kernel")).unwrap();
    assert!(why.text.contains("FFN0"), "{why}");

    // Unchanged but for one more byte of DRAM, the graph is the generator's: same kernels, tensors, operands and FLOP.
    let marked = text.replacen("tiling: N_TILING", "tiling: N_TILING memory_size: 1", 1);
    let imported = good("marked", &marked);
    let graph = WorkloadSpec::build(&node(&imported, "workload")).unwrap();
    assert_eq!(graph.flop_per_iteration(), plan.workload.flop_per_iteration());
    assert_eq!(graph.edges(), plan.workload.edges());
    assert_eq!(graph.carried_bytes(), plan.workload.carried_bytes());
    let slots = |w: &flowspace::workload::Workload| -> Vec<(usize, usize, flowspace::workload::Slot)> {
        let of = |t: &flowspace::workload::Tensor| -> Vec<_> {
            t.producer.map_or(Vec::new(), |p| t.consumers.iter().map(|u| (p, u.kernel, u.slot)).collect())
        };
        let mut all: Vec<_> = w.tensors.iter().flat_map(of).collect();
        all.sort();
        all
    };
    assert_eq!(slots(&graph), slots(&plan.workload));
}

// --- damaged files -----------------------------------------------------------------------------------------------------------

/// Numbers without pattern (xorshift, seed 1).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (n.max(1) as u64)).unwrap()
    }
}

/// Damaged files are refused with a reason or read; whatever is written reads again. Nothing panics.
#[test]
fn damaged_files_never_panic() {
    let words = [
        "0",
        "-1",
        "nan",
        "inf",
        "1e39",
        "9223372036854775807",
        "99999999999999999999",
        "\"",
        "{",
        "}",
        "[",
        "TP",
        "true",
    ];
    let mut dice = Dice(1);
    let mut read = 0;
    for (name, text) in inputs() {
        let bytes =
            load(&format!("{name}.txt"), text.as_bytes(), None, false).unwrap().message.to_dynamic().encode_to_vec();
        for _ in 0..400 {
            let mut damaged = bytes.clone();
            for _ in 0..=dice.below(3) {
                let at = dice.below(damaged.len());
                match dice.below(4) {
                    0 => damaged.truncate(at),
                    1 => damaged[at] ^= 1 << dice.below(8),
                    2 => damaged.insert(at, dice.below(256) as u8),
                    _ => {
                        damaged.remove(at);
                    }
                }
                if damaged.is_empty() {
                    break;
                }
            }
            read += usize::from(attempt("damaged.pb", &damaged));
        }
        for _ in 0..400 {
            let mut tokens: Vec<&str> = text.split_inclusive([' ', '\n']).collect();
            for _ in 0..=dice.below(2) {
                let at = dice.below(tokens.len());
                match dice.below(3) {
                    0 => tokens[at] = words[dice.below(words.len())],
                    1 => {
                        tokens.remove(at);
                    }
                    _ => tokens.truncate(at + 1),
                }
            }
            read += usize::from(attempt("damaged.txt", tokens.concat().as_bytes()));
        }
    }
    assert!(read > 100, "only {read} of the damaged files were still read");
}

/// Whether a file is read; what is written of it must read again, and a refusal has a reason.
fn attempt(file: &str, bytes: &[u8]) -> bool {
    match import(file, bytes, &options("damaged", None)) {
        Ok(imported) => {
            WorkloadSpec::build(&node(&imported, "workload")).unwrap();
            System::build(&node(&imported, "system")).unwrap();
            true
        }
        Err(faults) => {
            assert!(!faults.list.is_empty() && faults.list.iter().all(|f| !f.message.is_empty()), "{faults}");
            false
        }
    }
}
