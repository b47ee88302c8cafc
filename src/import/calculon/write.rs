//! Our trees from Calculon's.

use super::schema::{
    ActivationRecompute, App, AttentionType, Datatype, Exec, ProcessingMode, Rate, Sys, TensorComm, TensorOverlap,
};
use super::{Kind, Notes};
use crate::spec::read::Table;
use serde_json::{Map, Value as Json, json};

/// The vocabulary of every model there (a constant of its code, used to print a parameter count).
const VOCABULARY: u64 = 51200;

fn source(exec: &str) -> String {
    format!("derived: imported from Calculon's files ({exec})")
}

/// Our word for its types.
fn word(datatype: Datatype) -> &'static str {
    match datatype {
        Datatype::Float8 => "fp8",
        Datatype::Float16 => "fp16",
        Datatype::Float32 => "fp32",
        Datatype::Bfloat16 => "bf16",
    }
}

/// The workload: a language model.
pub(super) fn workload(app: &App, exec: &Exec, name: &str, notes: &mut Notes) -> Json {
    use Kind::{Assumed, Changed};
    let part = "workload";
    notes.add(Assumed, part, "vocab", format!("{VOCABULARY}, the constant by which Calculon prints parameter counts; it has no embedding, head or loss in its time and memory, we have"));
    notes.add(
        Assumed,
        part,
        "position, norm, biases, dropout",
        "learned positions, layer norms, biases and dropout as GPT-3 has; Calculon has the norms and dropouts alone",
    );
    notes.add(Assumed, part, "causal", "true: Calculon computes the whole square of attention");
    notes.add(Assumed, part, "types", "32-bit gradients, master weights and moments, as its 12 bytes of optimiser a weight say; Calculon keeps one block's gradients in 32 bits and the rest in the type of the weights");
    let mut model = json!({
        "kind": "language_model",
        "name": name,
        "source": source(name),
        "layers": app.num_blocks,
        "hidden": app.hidden,
        "heads": app.attn_heads,
        "head_dim": app.attn_size,
        "ffn": app.feedforward,
        "norm": "layer",
        "position": "learned",
        "vocab": VOCABULARY,
        "tied_embeddings": true,
        "biases": "all",
        "dropout": exec.training,
        "types": types(exec.datatype),
        "pass": if exec.training { "training" } else { "inference" },
        "seq": app.seq_size,
        "global_batch": exec.batch_size,
    });
    if let (AttentionType::Multiquery, Some(map)) = (exec.attention_type, model.as_object_mut()) {
        map.insert("kv_heads".into(), json!(1));
        notes.add(
            Changed,
            part,
            "attention_type",
            "one key-value head throughout; in Calculon multiquery narrows two products and no activation",
        );
    }
    model
}

fn types(datatype: Datatype) -> Json {
    match datatype {
        // Eight bits are the type of products: weights and activations stay in 16.
        Datatype::Float8 => json!({ "weights": "bf16", "activations": "bf16", "compute": "fp8" }),
        other => json!({ "weights": word(other), "activations": word(other) }),
    }
}

/// The execution.
pub(super) fn execution(app: &App, exec: &Exec, name: &str, notes: &mut Notes) -> Json {
    use Kind::{Changed, Ignored};
    let part = "execution";
    let mut out = Map::new();
    let mut put = |key: &str, value: Json| {
        out.insert(key.into(), value);
    };
    put("tp", json!(exec.tensor_par));
    put("pp", json!(exec.pipeline_par));
    put("dp", json!(exec.data_par));
    put("micro_batch", json!(exec.microbatch_size));
    let chunks = exec.pipeline_interleaving;
    put("schedule", json!(if chunks > 1 { "interleaved" } else { "1f1b" }));
    put("chunks", json!(chunks));
    let recompute = match exec.activation_recompute {
        ActivationRecompute::None => "none",
        ActivationRecompute::AttnOnly => "selective",
        ActivationRecompute::Full => "full",
    };
    put("recompute", json!(recompute));
    let parallel = exec.tensor_par > 1;
    let sequence = exec.tensor_par_comm_type == TensorComm::Sequence && parallel;
    put("sequence_parallel", json!(sequence));
    match exec.tensor_par_comm_type {
        TensorComm::Between => notes.add(
            Changed,
            part,
            "tensor_par_comm_type",
            "p2p_rs_ag as ar: what goes from stage to stage is not divided among the tensor-parallel chips",
        ),
        TensorComm::Sequence if !parallel => {
            notes.add(Ignored, part, "tensor_par_comm_type", "rs_ag means nothing without tensor parallelism")
        }
        _ => {}
    }
    put("zero", json!(if exec.optimizer_sharding { 1 } else { 0 }));
    if exec.optimizer_sharding {
        notes.add(Changed, part, "optimizer_sharding", "ZeRO-1: optimiser states are divided; Calculon divides the gradients it keeps too, with the traffic of ZeRO-1");
    }
    let offload = match (exec.weight_offload, exec.activations_offload, exec.optimizer_offload) {
        (false, false, false) => "none",
        (false, false, true) => "optimizer",
        (false, true, false) => "activations",
        (true, false, _) => "weights",
        (_, true, _) => "all",
    };
    put("offload", json!(offload));
    let meant = match offload {
        "weights" if !exec.optimizer_offload => Some("weights without optimiser states: both here"),
        "all" if !(exec.weight_offload && exec.optimizer_offload) => Some("activations and one more: all three here"),
        _ => None,
    };
    if let Some(text) = meant {
        notes.add(Changed, part, "weight_offload, activations_offload, optimizer_offload", text);
    }
    put("overlap_dp", json!(exec.data_par_overlap));
    put("overlap_tp", json!(exec.tensor_par_overlap != TensorOverlap::None && parallel));
    match exec.tensor_par_overlap {
        TensorOverlap::None => {}
        kind if parallel => notes.add(
            Changed,
            part,
            "tensor_par_overlap",
            format!("{kind} as overlap_tp: how it is tiled is our model's"),
        ),
        _ => notes.add(Ignored, part, "tensor_par_overlap", "means nothing without tensor parallelism"),
    }
    if exec.seq_par_ag_redo {
        notes.add(
            Ignored,
            part,
            "seq_par_ag_redo",
            "under sequence parallelism gathered activations are never kept here",
        );
    } else if sequence && exec.activation_recompute != ActivationRecompute::Full {
        notes.add(
            Changed,
            part,
            "seq_par_ag_redo",
            "false: Calculon keeps gathered activations whole; here they are gathered again",
        );
    }
    if !app.num_blocks.is_multiple_of(exec.pipeline_par) {
        notes.add(Changed, part, "pipeline_par", format!("{} blocks on {} stages: an uneven division here; Calculon fills up every stage and takes one block's time off the bubble for each that is missing", app.num_blocks, exec.pipeline_par));
    }
    if exec.fused_activation {
        notes.add(
            Ignored,
            part,
            "fused_activation",
            "the activation function's input is kept; Calculon leaves it out of the memory, and of nothing else",
        );
    }
    let nets = [exec.tensor_par_net.0, exec.pipeline_par_net.0, exec.data_par_net.0];
    notes.add(Ignored, part, "tensor_par_net, pipeline_par_net, data_par_net", format!("{nets:?}: which dimension serves which parallelism follows from their order here, tensor parallelism innermost"));
    json!({ "name": name, "source": source(name), "execution": out })
}

/// The rate for a type; [`super::import`] has made sure that there is one.
fn rate(rates: &Table<Rate>, datatype: Datatype) -> Option<&Rate> {
    rates.0.iter().find(|(name, _)| name == datatype.word()).map(|(_, rate)| rate)
}

/// The system: as many chips as the execution has.
pub(super) fn system(sys: &Sys, exec: &Exec, name: &str, notes: &mut Notes) -> Json {
    use Kind::{Assumed, Changed, Ignored};
    let part = "system";
    let all = source(name);
    let matrix = rate(&sys.matrix, exec.datatype);
    let peak = matrix.map_or(1.0, |r| r.tflops);
    let efficiency = matrix.map_or(1.0, |r| r.gflops_efficiency.best());
    notes.add(
        Changed,
        part,
        "matrix.gflops_efficiency",
        format!("{efficiency} for every product, that of the largest; Calculon has steps by the FLOP of a call"),
    );
    notes.add(Ignored, part, "vector.gflops_efficiency", "vector work runs at its peak");
    notes.add(
        Assumed,
        part,
        "chip.cores, lanes, stages, frequency",
        "100 cores of 16 x 16 at the clock that gives the stated peak",
    );
    notes.add(Assumed, part, "chip.sram", "64 MiB; Calculon has no on-chip memory");
    notes.add(
        Assumed,
        part,
        "chip.launch_overhead",
        "5 us a kernel, as the A100 and H100 files of systems/chips; Calculon has none",
    );
    notes.add(Assumed, part, "price, power", "none");
    let chip = json!({
        "name": "chip",
        "source": all,
        "style": "kernel_by_kernel",
        "cores": 100,
        "lanes": 16,
        "stages": 16,
        // 2 x 100 x 16 x 16 FLOP a cycle.
        "frequency": format!("{} GHz", peak * 1e3 / 51200.0),
        "vector_peak": format!("{} TFLOP/s", rate(&sys.vector, exec.datatype).map_or(peak, |r| r.tflops)),
        "sram": "64 MiB",
        "efficiency": efficiency,
        "launch_overhead": "5 us",
        "price": "$0",
        "power": "0 W",
    });
    let memory_share = sys.mem1.efficiency.best();
    notes.add(
        Changed,
        part,
        "mem1.MB_efficiency",
        format!("{memory_share} of the bandwidth always, that of the largest accesses; Calculon has steps by bytes"),
    );
    let memory = json!({
        "name": "first tier",
        "source": all,
        "bandwidth": format!("{} GB/s", sys.mem1.gbps * memory_share),
        "capacity": format!("{} GiB", sys.mem1.gib),
        "price": "$0/(GB/s)",
        "power": "0 W/(GB/s)",
    });
    if sys.mem2.gib > 0.0 {
        notes.add(
            Ignored,
            part,
            "mem2",
            format!("{} GiB at {} GB/s: a system has one tier of memory yet", sys.mem2.gib, sys.mem2.gbps),
        );
    }
    let mut dimensions = Vec::new();
    let mut left = exec.num_procs;
    for (i, net) in sys.networks.iter().enumerate() {
        let last = i + 1 == sys.networks.len();
        // Tiers are flat: the inner one holds at most its size of the chips, the last one the rest.
        let size = if last { left } else { largest_divisor(left, net.size) };
        left /= size.max(1);
        if size == 1 && (i > 0 || sys.networks.len() > 1) {
            continue;
        }
        dimensions.push(json!({
            "size": size,
            "topology": "switch",
            "link": {
                "name": format!("network {i}"),
                "source": all,
                "bandwidth": format!("{} GB/s", net.bandwidth * net.efficiency),
                "latency": format!("{} us", net.latency * 1e6),
                "price": "$0/(GB/s)",
                "power": "0 W/(GB/s)",
            },
        }));
        if !last && size < net.size && exec.num_procs > net.size {
            notes.add(
                Changed,
                part,
                &format!("networks[{i}].size"),
                format!("{size} of {}: {} chips do not fill more", net.size, exec.num_procs),
            );
        }
    }
    notes.add(Changed, part, "networks.bandwidth", "times its efficiency");
    notes.add(
        Changed,
        part,
        "networks.latency",
        "of one step of a collective; in Calculon of the whole collective, whatever its members",
    );
    notes.add(Ignored, part, "networks.ops", "collectives are those of a switch: ring or tree, or within the network where the model has it; Calculon states a factor for each");
    notes.add(Ignored, part, "networks.processor_usage", "communication takes nothing from a chip's arithmetic yet");
    notes.add(Ignored, part, "networks.must_be_filled", "a rule of its search");
    let overlap = match sys.processing_mode {
        ProcessingMode::NoOverlap => "none",
        ProcessingMode::Roofline => "compute_memory",
    };
    json!({
        "name": name,
        "source": all,
        "chip": chip,
        "memory": memory,
        "network": if dimensions.is_empty() {
            json!({ "topology": "single-chip" })
        } else {
            json!({ "topology": "custom", "dimensions": dimensions })
        },
        "chips": exec.num_procs,
        "overlap": overlap,
    })
}

/// The largest divisor of `n` that is at most `most`.
fn largest_divisor(n: u64, most: u64) -> u64 {
    (1..=most.min(n)).rev().find(|d| n.is_multiple_of(*d)).unwrap_or(1)
}
