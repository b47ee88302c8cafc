//! Any graph, written kernel by kernel (`kind: graph`).
//!
//! DFModel's edges join kernels; ours join a tensor to an operand. Which operand an edge is follows from its size, as in
//! DFModel itself: of the ways to read the tensor as an operand (plain or transposed, streamed or stationary) the first that
//! fits is taken. An edge that fits no operand becomes a view, a tensor of any shape that is read whole; the operand then
//! comes from outside, and the report says so.

use super::known::Family;
use super::setup::{Comm, Edge, Form, Kernel, Setup, Workload};
use super::tree::Fault;
use super::{Common, Note};
use crate::model::Strategy;
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;

/// The workload file.
pub(super) fn tree(setup: &Setup, common: &Common, notes: &mut Vec<Note>, faults: &mut Vec<Fault>) -> Json {
    let repeat = match &setup.settings.workload {
        Workload::Llm(llm) => {
            if !llm.layers.is_multiple_of(llm.layers_in_graph) {
                let text = format!("{} layers are no multiple of the {} in the graph", llm.layers, llm.layers_in_graph);
                faults.push(Fault::whole(text));
            }
            (llm.layers / llm.layers_in_graph.max(1)).max(1)
        }
        Workload::Other(word, numbers) => {
            let list: Vec<String> = numbers.iter().map(|(n, v)| format!("{n} {v}")).collect();
            let text = format!("the kernels say what is computed ({})", list.join(", "));
            notes.push(Note::ignored(word.clone(), None, text));
            1
        }
        Workload::Unnamed => 1,
    };
    // A transformer communicates within its tensor-parallel group, everything else among all chips.
    let scope = if matches!(setup.settings.workload, Workload::Llm(_)) { "tensor" } else { "all" };
    let mut inputs: Vec<Json> = Vec::new();
    let mut kernels: Vec<Map<String, Json>> = Vec::new();
    let mut consumed = vec![false; setup.kernels.len()];
    let mut reads: Vec<Vec<&Edge>> = vec![Vec::new(); setup.kernels.len()];
    for edge in &setup.edges {
        if let Some(list) = reads.get_mut(edge.to) {
            list.push(edge);
        }
    }
    let forward: HashMap<&str, &Kernel> =
        setup.kernels.iter().filter(|k| !k.backward && k.form == Form::Weight).map(|k| (k.name.as_str(), k)).collect();
    for (kernel, edges) in setup.kernels.iter().zip(&reads) {
        let mut out = base(kernel, &forward, scope, setup, notes);
        let read = operands(kernel, edges, setup, &mut out, &mut inputs);
        let mut views = Vec::new();
        for (edge, used) in edges.iter().zip(read) {
            consumed[edge.from] = true;
            if !used {
                let from = setup.kernels.get(edge.from);
                views.push(from.map_or(String::new(), output));
                if !kernel.empty && !from.is_some_and(|from| from.empty) {
                    notes.push(viewed(edge, kernel, setup));
                }
            }
        }
        if !views.is_empty() {
            out.insert("views".into(), json!(views));
        }
        out.insert("output".into(), json!(output(kernel)));
        if !kernel.empty {
            check_bytes(kernel, common, notes);
        }
        kernels.push(out);
    }
    if repeat > 1 {
        carry(setup, &reads, &consumed, &mut kernels, &mut inputs);
        if !inputs.iter().any(|i| i.get("carried_from").is_some()) {
            let text = "no tensor that leaves the graph has the size of one that enters it: nothing passes between its repetitions";
            notes.push(Note::changed("dataflow_graph", None, text));
        }
    }
    let outputs: Vec<String> =
        setup.kernels.iter().zip(&consumed).filter(|(_, used)| !**used).map(|(k, _)| output(k)).collect();
    json!({
        "kind": "graph",
        "name": common.name,
        "source": common.source,
        "word": format!("{} B", common.word),
        "training": setup.kernels.iter().any(|k| k.backward),
        "repeat": repeat,
        "global_batch": common.global_batch,
        "micro_batch": common.micro_batch,
        "held": super::system::bytes(held(setup, common)),
        "inputs": inputs,
        "outputs": outputs,
        "kernels": kernels,
    })
}

/// Bytes that all chips hold together beside weights (model.md section 5, "DRAM capacity"): embedding tables, the matrix of
/// HPL, the data of an FFT.
fn held(setup: &Setup, common: &Common) -> f64 {
    let Workload::Other(_, numbers) = &setup.settings.workload else { return 0.0 };
    let of = |names: &[&str]| -> f64 {
        numbers.iter().find(|(n, _)| names.contains(&n.as_str())).map_or(0.0, |(_, v)| *v as f64)
    };
    let elements = match Family::named(setup) {
        Some(Family::Dlrm) => of(&["num_table"]) * of(&["row"]) * of(&["emb_dim", "emb"]),
        Some(Family::Hpl) => of(&["n"]) * of(&["n"]),
        Some(Family::Fft) => of(&["length"]),
        _ => 0.0,
    };
    elements * common.word as f64
}

/// Name of the tensor that a kernel writes.
fn output(kernel: &Kernel) -> String {
    format!("{}.out", kernel.name)
}

/// What a kernel is, without its operands.
fn base(
    kernel: &Kernel,
    forward: &HashMap<&str, &Kernel>,
    scope: &str,
    setup: &Setup,
    notes: &mut Vec<Note>,
) -> Map<String, Json> {
    let mut out = Map::new();
    let mut put = |key: &str, value: Json| {
        out.insert(key.into(), value);
    };
    put("name", json!(kernel.name));
    put(
        "op",
        json!(match kernel.form {
            Form::Weight => "gemm_weight",
            Form::TwoTensors => "gemm",
            Form::Elementwise if kernel.empty => "opaque",
            Form::Elementwise => "elementwise",
        }),
    );
    if kernel.systolic {
        put("flop", json!(format!("{} FLOP", 2.0 * kernel.rows() as f64 * kernel.n as f64)));
    }
    if kernel.empty {
        put("flop", json!("0 FLOP"));
        notes.push(Note::changed(
            format!("dataflow_graph.kernels[{}]", kernel.name),
            Some(kernel.place),
            "has no sizes: it computes nothing, and its tensor is one element",
        ));
    }
    if kernel.outer > 1 {
        put("outer", json!(kernel.outer));
        if let Some(tp) = super::study::tensor_degree(setup).filter(|tp| !kernel.outer.is_multiple_of(*tp)) {
            put("outer_cut", json!(true));
            notes.push(Note::changed(
                format!("dataflow_graph.kernels[{}].outer", kernel.name),
                Some(kernel.place),
                format!("{tp} chips do not divide the {}: their rows are divided, as there", kernel.outer),
            ));
        }
    }
    put("m", json!(kernel.m));
    if kernel.form != Form::Elementwise {
        put("k", json!(kernel.k));
    }
    put("n", json!(kernel.n));
    let update = kernel.backward && kernel.is_update();
    if kernel.backward {
        put("phase", json!(if update { "backward_weight" } else { "backward_input" }));
    }
    if update || (kernel.backward && kernel.form == Form::Weight) {
        match owner(kernel, update, forward) {
            Some(owner) => put("weight_of", json!(owner)),
            None => notes.push(Note::changed(
                format!("dataflow_graph.kernels[{}]", kernel.name),
                Some(kernel.place),
                "no forward kernel with this weight, by name and size; it counts as a weight of its own",
            )),
        }
    }
    if kernel.tiled_k && !update {
        notes.push(Note::changed(
            format!("dataflow_graph.kernels[{}].tiling", kernel.name),
            Some(kernel.place),
            "only the gradient of a weight is tiled along K here; this kernel is along N",
        ));
    }
    if kernel.memory_bytes > 0.0 {
        put("extra_dram", json!(super::system::bytes(kernel.memory_bytes)));
        put("extra_dram_on_each", json!(true));
    }
    let made = collectives(kernel, update, scope, setup, notes);
    if !made.is_empty() {
        put("collectives", json!(made));
    }
    out
}

/// The forward kernel whose weight a backward kernel uses or whose gradient it makes: by its name without the ending, and
/// by the size of the weight.
fn owner<'s>(kernel: &Kernel, update: bool, forward: &HashMap<&'s str, &Kernel>) -> Option<&'s str> {
    let elements = if update { (kernel.rows(), kernel.n) } else { (kernel.rows(), kernel.k) };
    let elements = u128::from(elements.0) * u128::from(elements.1);
    let endings = ["_bwd_weight_update", "_weight_update", "_bwd", "_upd"];
    let stem = endings.iter().find_map(|e| kernel.name.strip_suffix(e))?;
    let (name, owner) = forward.get_key_value(stem)?;
    (u128::from(owner.rows()) * u128::from(owner.k) == elements).then_some(*name)
}

/// The collectives that a kernel makes by itself, in our words.
fn collectives(kernel: &Kernel, update: bool, scope: &str, setup: &Setup, notes: &mut Vec<Note>) -> Vec<Json> {
    let mut made = Vec::new();
    for (comm, bytes) in &kernel.comms {
        let field = format!("dataflow_graph.kernels[{}].communication_type", kernel.name);
        let mut leave = |text: &str| notes.push(Note::ignored(field.clone(), Some(kernel.place), text));
        let kind = match comm {
            // Training says it: gradients are reduced over the data-parallel replicas.
            Comm::Gradient if update => continue,
            Comm::AllReduce if kernel.sharding == Some(Strategy::K) => {
                leave("found by DFModel's sharding pass; derived again here");
                continue;
            }
            Comm::AllReduce => "all_reduce",
            Comm::AllToAll => "all_to_all",
            Comm::AllGather => "all_gather",
            Comm::PointToPoint => "point_to_point",
            Comm::Broadcast => "broadcast",
            Comm::Gradient => {
                leave("only the gradient of a weight is reduced once an iteration");
                continue;
            }
        };
        let bytes = if *comm == Comm::AllToAll { super::known::sent(setup, *bytes) } else { *bytes };
        made.push(json!({ "kind": kind, "size": super::system::bytes(bytes), "scope": scope }));
    }
    made
}

/// Gives the operands their tensors; says for each edge whether it is one of them.
fn operands(
    kernel: &Kernel,
    edges: &[&Edge],
    setup: &Setup,
    out: &mut Map<String, Json>,
    inputs: &mut Vec<Json>,
) -> Vec<bool> {
    let mut used = vec![false; edges.len()];
    let tensor = |e: &Edge| -> (u64, u64) { setup.kernels.get(e.from).map_or((0, 0), |k| (k.rows(), k.n)) };
    let name = |e: &Edge| setup.kernels.get(e.from).map_or(String::new(), output);
    if kernel.form == Form::Elementwise {
        let (mut read, mut aligned) = (Vec::new(), Vec::new());
        for (edge, used) in edges.iter().zip(&mut used) {
            let (rows, cols) = tensor(edge);
            // What has its rows or its columns lies along it, as one column that is added to a cache does.
            *used = rows == kernel.rows() || cols == kernel.n;
            match (rows, cols) == (kernel.rows(), kernel.n) {
                true => read.push(name(edge)),
                false if *used && !kernel.empty => aligned.push(name(edge)),
                false => *used = false,
            }
        }
        for (field, names) in [("inputs", read), ("aligned", aligned)] {
            if !names.is_empty() {
                out.insert(field.into(), json!(names));
            }
        }
        return used;
    }
    let outer = if kernel.form == Form::TwoTensors { kernel.outer } else { 1 };
    // Plain and transposed size of an operand.
    let rhs = [(outer.saturating_mul(kernel.k), kernel.n), (outer.saturating_mul(kernel.n), kernel.k)];
    let lhs = [(outer.saturating_mul(kernel.m), kernel.k), (outer.saturating_mul(kernel.k), kernel.m)];
    let fit =
        |e: usize, sizes: &[(u64, u64); 2]| edges.get(e).and_then(|edge| sizes.iter().position(|s| *s == tensor(edge)));
    let fits = |sizes: &[(u64, u64); 2]| -> Vec<(usize, usize)> {
        (0..edges.len()).filter_map(|e| Some((e, fit(e, sizes)?))).collect()
    };
    // (edge, transposed) of either operand: the first pair that fits both, else one that fits either.
    let streamed = fits(&rhs);
    let mut chosen = (streamed.first().copied(), None);
    if kernel.form == Form::TwoTensors {
        let still = fits(&lhs);
        // Of two lists the first pair of different entries is among the first two of each.
        let pair = streamed.iter().take(2).find_map(|r| Some((*r, *still.iter().take(2).find(|l| l.0 != r.0)?)));
        chosen = match pair {
            Some((r, l)) => (Some(r), Some(l)),
            None if streamed.is_empty() => (None, still.first().copied()),
            None => (streamed.first().copied(), None),
        };
    }
    let mut operand = |word: &str, found: Option<(usize, usize)>, size: (u64, u64)| match found {
        Some((edge, transposed)) => {
            used[edge] = true;
            out.insert(word.into(), json!(name(edges[edge])));
            if transposed == 1 {
                out.insert(format!("{word}_transposed"), json!(true));
            }
        }
        None => {
            let from_outside = format!("{}.{word}", kernel.name);
            inputs.push(json!({ "name": from_outside, "rows": size.0, "cols": size.1 }));
            out.insert(word.into(), json!(from_outside));
        }
    };
    operand("rhs", chosen.0, rhs[0]);
    if kernel.form == Form::TwoTensors {
        operand("lhs", chosen.1, lhs[0]);
    }
    used
}

/// The note of an edge that no operand is.
fn viewed(edge: &Edge, reader: &Kernel, setup: &Setup) -> Note {
    let (name, rows, cols) = setup.kernels.get(edge.from).map_or(("", 0, 0), |k| (k.name.as_str(), k.rows(), k.n));
    Note::changed(
        format!("dataflow_graph.connections[{name} -> {}]", reader.name),
        Some(edge.place),
        format!(
            "the {rows} x {cols} elements of {name:?} fit no free operand of {:?} (outer {}, M {}, K {}, N {}); they are read whole, as a view",
            reader.name, reader.outer, reader.m, reader.k, reader.n
        ),
    )
}

/// Joins repetitions: the first kernel of a pass that reads nothing reads what the last one with that size wrote.
fn carry(
    setup: &Setup,
    reads: &[Vec<&Edge>],
    consumed: &[bool],
    kernels: &mut [Map<String, Json>],
    inputs: &mut Vec<Json>,
) {
    for backward in [false, true] {
        let first = setup
            .kernels
            .iter()
            .zip(reads)
            .position(|(k, reads)| k.backward == backward && k.form != Form::TwoTensors && reads.is_empty());
        let Some(first) = first else { continue };
        let entry = &setup.kernels[first];
        let read = (if entry.form == Form::Weight { entry.k } else { entry.rows() }, entry.n);
        let last = (0..setup.kernels.len()).find(|k| {
            let kernel = &setup.kernels[*k];
            let size = (kernel.rows(), kernel.n) == read;
            kernel.backward == backward && !consumed[*k] && size && !kernel.is_update() && *k != first
        });
        let Some(last) = last else { continue };
        let from = output(&setup.kernels[last]);
        if entry.form == Form::Weight {
            let name = format!("{}.rhs", entry.name);
            let input = inputs.iter_mut().filter_map(Json::as_object_mut).find(|i| i.get("name") == Some(&json!(name)));
            if let Some(input) = input {
                input.insert("carried_from".into(), json!(from));
            }
            continue;
        }
        let name = if backward { "layer.grad_in" } else { "layer.in" };
        inputs.push(json!({ "name": name, "rows": read.0, "cols": read.1, "carried_from": from }));
        if let Some(kernel) = kernels.get_mut(first) {
            kernel.insert("inputs".into(), json!([name]));
        }
    }
}

/// Notes bytes that the sizes do not give.
fn check_bytes(kernel: &Kernel, common: &Common, notes: &mut Vec<Note>) {
    let word = common.word as f64;
    let sizes = [
        (kernel.output_bytes, kernel.rows() as f64 * kernel.n as f64 * word, "output_tensor_size"),
        (kernel.weight_bytes, kernel.rows() as f64 * kernel.k as f64 * word, "weight_tensor_size"),
    ];
    for (stated, derived, field) in sizes {
        let field = format!("dataflow_graph.kernels[{}].{field}", kernel.name);
        if let Some(stated) = stated.filter(|s| (s / derived - 1.0).abs() > 1e-5) {
            let text = format!("{stated} B; the sizes give {derived} B, which count here");
            notes.push(Note::changed(field, Some(kernel.place), text));
        } else if stated.is_none() && kernel.form == Form::Weight && field.ends_with("weight_tensor_size") {
            let text = format!("none stated; the sizes give {derived} B, which count here");
            notes.push(Note::changed(field, Some(kernel.place), text));
        }
    }
}
