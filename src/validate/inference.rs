//! Inference and single kernels: which machine a measurement was taken on, and what the models say of it.

use super::accelerators;
use super::attention::AttentionCore;
use super::boxes::{self, NVLINK_3, Parts, SN40L_NODE};
use super::point::{Point, Task};
use super::predict::{NotPredicted, Prediction};
use crate::execution::inference::{Layout, Server, predict};
use crate::execution::single_kernel::{Bench, Operator};
use crate::model::kernel_time::Product;
use crate::workload::language::{DataType, LanguageModel};

/// Chips that single kernels were timed on: our name of it, parts, host time of an operator.
const BENCHES: [(&str, Parts); 9] = {
    const fn bench(chip: &'static str, memory: &'static str, stack: Option<&'static str>) -> Parts {
        Parts { chip, memory, stack, links: Some(NVLINK_3) }
    }
    [
        ("A100", bench("chips/a100", "memories/a100-80gb-hbm2e", Some("stacks/pytorch-operators-a100"))),
        // The die of the H200.
        ("H100", bench("chips/h200", "memories/h100-80gb-hbm3", None)),
        ("H200", bench("chips/h200", "memories/h200-141gb-hbm3e", None)),
        ("GH200", bench("chips/gh200", "memories/gh200-96gb-hbm3", None)),
        ("MI210", bench("chips/mi210", "memories/mi210-64gb-hbm2e", Some("stacks/pytorch-operators-mi210"))),
        ("MI250X", bench("chips/mi250x", "memories/mi250x-128gb-hbm2e", None)),
        ("MI300X", bench("chips/mi300x", "memories/mi300x-192gb-hbm3", None)),
        ("Gaudi 2", bench("chips/gaudi-2", "memories/gaudi-2-96gb-hbm2e", None)),
        ("Gaudi 3", bench("chips/gaudi-3", "memories/gaudi-3-128gb-hbm2e", None)),
    ]
};

fn unknown(point: &Point) -> NotPredicted {
    NotPredicted::because(format!(
        "no description of the machine {:?} with {:?}",
        point.row.accelerator, point.row.system
    ))
}

/// The parts of the machine that single kernels or inference of a point were measured on; `None` for other tasks, and for machines that
/// are not described.
pub fn parts(point: &Point) -> Option<Parts> {
    match &point.task {
        Task::Inference { .. } => served_by(point),
        Task::Matmul { .. } | Task::BestMatmul { .. } | Task::LayerKernel { .. } | Task::Attention(_) => {
            bench_of(point)
        }
        _ => None,
    }
}

fn bench_of(point: &Point) -> Option<Parts> {
    let name = accelerators::known(&point.row.accelerator).map(|a| a.name);
    BENCHES.iter().find(|(known, _)| Some(*known) == name).map(|(_, parts)| *parts)
}

fn bench(point: &Point) -> Result<Bench, NotPredicted> {
    let parts = bench_of(point).ok_or_else(|| unknown(point))?;
    let system = boxes::system(&parts, point.row.chips.unwrap_or(1)).map_err(NotPredicted)?;
    Bench::new(&system).map_err(NotPredicted)
}

/// Seconds of a matrix product, or the rate of the best.
///
/// # Errors
/// [`NotPredicted`]: a chip that is not described.
pub fn product(point: &Point) -> Result<Prediction, NotPredicted> {
    let bench = bench(point)?;
    match &point.task {
        Task::Matmul { m, n, k, precision } => {
            let product = Product { batch: 1.0, m: *m as f64, n: *n as f64, k: *k as f64 };
            bench.operator(&Operator::Matmul(product), *precision).map(Prediction::Seconds).map_err(NotPredicted)
        }
        Task::BestMatmul { precision, shape } => {
            bench.best_product(*precision, *shape).map(Prediction::InRowsQuantity).map_err(NotPredicted)
        }
        _ => Err(NotPredicted::because("no matrix product")),
    }
}

/// Seconds of an attention kernel, as the kernel that the notes name or the chip's first.
///
/// # Errors
/// [`NotPredicted`]: a chip that is not described, a kernel that it does not have.
pub fn attention(point: &Point, core: &AttentionCore) -> Result<Prediction, NotPredicted> {
    let name = point.notes.attention_kernel.as_deref();
    bench(point)?
        .attention(&core.work(), core.backward, core.precision, name)
        .map(Prediction::Seconds)
        .map_err(NotPredicted)
}

/// Seconds of a kernel of one layer by its name in LLMCompass's data: queries, keys and values are three products there.
///
/// # Errors
/// [`NotPredicted`]: another name, a chip that is not described.
pub fn layer_kernel(point: &Point, name: &str, decode_after: Option<u64>) -> Result<Prediction, NotPredicted> {
    let Some(model) = &point.model else { return Err(NotPredicted::because("the model is not stated")) };
    let bench = bench(point)?;
    let tp = point.execution.as_ref().map_or(1, |e| e.tp);
    let batch = point.row.global_batch.unwrap_or(1) as f64;
    let (operators, all_reduce) = kernel_of_layer(model, name, tp, batch, decode_after)
        .ok_or_else(|| NotPredicted::because(format!("no kernel of the name {name:?} in a layer")))?;
    if let Some(bytes) = all_reduce {
        return Ok(Prediction::Seconds(bench.all_reduce(tp, bytes)));
    }
    let (operator, count) = operators;
    let each = bench.operator(&operator, DataType::Fp16).map_err(NotPredicted)?;
    Ok(Prediction::Seconds(count * each))
}

/// What a kernel's name means: an operator and how often it is called, or the bytes of an all-reduce.
fn kernel_of_layer(
    model: &LanguageModel,
    name: &str,
    tp: u64,
    batch: f64,
    decode_after: Option<u64>,
) -> Option<((Operator, f64), Option<f64>)> {
    let t = tp as f64;
    let (h, d) = (model.hidden as f64, model.head_dim() as f64);
    let (attention, perceptron) = ((model.heads * model.head_dim()) as f64 / t, model.ffn() as f64 / t);
    let heads = batch * model.heads as f64 / t;
    // Decode: one token of each sequence that sees the whole cache.
    let (queries, keys) = match decode_after {
        Some(context) => (1.0, context as f64),
        None => (model.seq as f64, model.seq as f64),
    };
    let tokens = batch * queries;
    let matmul = |n: f64, k: f64| Operator::Matmul(Product { batch: 1.0, m: tokens, n, k });
    let core = |n: f64, k: f64| Operator::Batched(Product { batch: heads, m: queries, n, k });
    let one = |operator| Some(((operator, 1.0), None));
    match name {
        "Q_K_V" => Some(((matmul(attention, h), 3.0), None)),
        "Q_mul_K" => one(core(keys, d)),
        "A_mul_V" => one(core(d, keys)),
        "Wo_proj" => one(matmul(h, attention)),
        "W1_proj" => one(matmul(perceptron, h)),
        "W2_proj" => one(matmul(h, perceptron)),
        "Softmax" => one(Operator::Softmax(heads * queries * keys)),
        "GeLU" => one(Operator::Function(tokens * perceptron)),
        _ if name.starts_with("LayerNorm") => one(Operator::LayerNorm(tokens * h)),
        _ if name.starts_with("AllReduce") => Some(((Operator::Function(0.0), 0.0), Some(tokens * h * 2.0))),
        _ => None,
    }
}

/// The parts of the server that a row of LLM-Inference-Bench names.
fn served_by(point: &Point) -> Option<Parts> {
    match accelerators::known(&point.row.accelerator).map(|a| a.name) {
        // Polaris nodes: A100 of 40 GB. The later series of runs labels its layouts TP, PP and Hybrid TP = ...; in it microbatches
        // overlap on the stages of a pipeline.
        Some("A100") if point.row.system.contains("TensorRT") => {
            let first = point.row.notes.split(';').next().unwrap_or_default();
            let later = !first.contains("Parallelism");
            let stack = if later { "stacks/tensorrt-llm-overlapped" } else { "stacks/tensorrt-llm" };
            Some(Parts {
                chip: "chips/a100",
                memory: "memories/a100-40gb-hbm2",
                stack: Some(stack),
                links: Some(NVLINK_3),
            })
        }
        Some("SN40L") => Some(Parts {
            chip: "chips/sn40l",
            memory: "memories/sn40l-hbm",
            stack: Some("stacks/sambanova"),
            links: Some(SN40L_NODE),
        }),
        _ => None,
    }
}

/// The server that a row of LLM-Inference-Bench names.
fn server(point: &Point) -> Result<Server, NotPredicted> {
    let parts = served_by(point).ok_or_else(|| unknown(point))?;
    let system = boxes::system(&parts, point.row.chips.unwrap_or(1)).map_err(NotPredicted)?;
    Server::new(&system).map_err(NotPredicted)
}

/// Seconds of a batch from the prompts to the last token.
///
/// # Errors
/// [`NotPredicted`]: a machine that is not described, or a model that does not fit it.
pub fn batch(point: &Point) -> Result<Prediction, NotPredicted> {
    let (Some(model), Some(e)) = (&point.model, &point.execution) else {
        return Err(NotPredicted::because("the model or its layout is not stated"));
    };
    let layout = Layout { tp: e.tp, pp: e.pp, dp: e.dp, ep: e.ep };
    let found = predict(&server(point)?, model, layout, model.global_batch);
    found.map(|p| Prediction::Seconds(p.latency_s)).map_err(|refusal| NotPredicted::because(refusal.to_string()))
}
