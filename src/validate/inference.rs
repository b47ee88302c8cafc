//! Inference and single kernels: which machine a measurement was taken on, and what the models say of it.

use super::accelerators::{self, Listed};
use super::attention::AttentionCore;
use super::metric::Served;
use super::point::{Point, Task};
use super::predict::{NotPredicted, Prediction};
use super::{boxes, machines, sources};
use crate::deadline::Deadline;
use crate::execution::inference::arrivals::{Answer, Load, Request, serve, unfit};
use crate::execution::inference::{self, Layout, Refusal, Server, predict};
use crate::execution::machine::{Peers, Traffic};
use crate::execution::single_kernel::{Bench, Operator};
use crate::model::kernel_time::Product;
use crate::spec::read::{Ref, Share};
use crate::system::{Memory, Stack};
use crate::units::Bytes;
use crate::workload::language::{DataType, LanguageModel};

fn listed(point: &Point) -> Result<&'static Listed, NotPredicted> {
    let row = &point.row;
    known(point).ok_or_else(|| {
        NotPredicted::because(format!("no description of the machine {:?} with {:?}", row.accelerator, row.system))
    })
}

/// The chips of a row: those that its source ran on where that is known better.
fn known(point: &Point) -> Option<&'static Listed> {
    let machine = point.source.and_then(|source| source.machine.as_deref());
    accelerators::known(machine.unwrap_or(&point.row.accelerator))
}

/// The chip that single kernels or inference of a point were measured on, and the software, by their names; `None` for other tasks, and for
/// machines that are not described.
pub fn parts(point: &Point) -> Option<(&'static str, Option<&'static str>)> {
    let listed = known(point)?;
    let chip = listed.chip.0.name.as_str();
    match &point.task {
        Task::Inference { .. } => Some((chip, Some(stack_of(point, listed).0.name.as_str()))),
        Task::Matmul { .. } | Task::BestMatmul { .. } | Task::LayerKernel { .. } | Task::Attention(_) => {
            Some((chip, listed.operators.as_ref().map(|s| s.0.name.as_str())))
        }
        _ => None,
    }
}

/// The software that the row names, that its source says, or what current software of that kind of chip does.
fn stack_of(point: &Point, listed: &'static Listed) -> &'static Ref<Stack> {
    let said = || point.source.and_then(|source| source.serves.as_ref());
    accelerators::software(&point.row, &listed.chip.0.name).or_else(said).unwrap_or(listed.software())
}

fn bench(point: &Point) -> Result<Bench, NotPredicted> {
    let listed = listed(point)?;
    if listed.chip.0.kernels.as_ref().is_some_and(|kernels| kernels.units == 1) {
        return Err(NotPredicted::because(format!(
            "kernels by themselves on {} are bound by signals across its cores, of which there is no model",
            listed.chip.0.name
        )));
    }
    let memory = listed.larger_memory.as_ref().unwrap_or(&listed.memory);
    let chips = point.row.chips.unwrap_or(1);
    let operators = accelerators::software(&point.row, &listed.chip.0.name).filter(|s| s.0.operators.is_some());
    let system = boxes::system(listed, memory, operators.or(listed.operators.as_ref()), chips).map_err(NotPredicted)?;
    let bench = Bench::new(&system).map_err(NotPredicted)?;
    let is_exact = matches!(point.task, Task::Matmul { exact: true, .. } | Task::BestMatmul { exact: true, .. });
    let bench = if is_exact { bench.exact() } else { bench };
    Ok(if point.source.is_some_and(|source| source.profiled) { bench.profiled(&system) } else { bench })
}

/// Seconds of a collective over all chips of a row.
///
/// # Errors
/// [`NotPredicted`]: a chip that is not described.
pub fn collective(point: &Point, traffic: Traffic, bytes: f64) -> Result<Prediction, NotPredicted> {
    let listed = listed(point)?;
    let chips = point.row.chips.ok_or_else(|| NotPredicted::because("the number of chips is not stated"))?;
    let system = boxes::system(listed, &listed.memory, Some(stack_of(point, listed)), chips).map_err(NotPredicted)?;
    let server = Server::new(&system).map_err(NotPredicted)?;
    Ok(Prediction::Seconds(server.collective(
        traffic,
        Peers::alone(chips, 1),
        bytes,
        point.source.is_none_or(|source| source.switch_sums),
    )))
}

/// Seconds of a matrix product, or the rate of the best.
///
/// # Errors
/// [`NotPredicted`]: a chip that is not described.
pub fn product(point: &Point) -> Result<Prediction, NotPredicted> {
    let bench = bench(point)?;
    match (&point.task, point.task.product()) {
        (Task::Matmul { precision, stored, .. }, Some(product)) => {
            let operator = match stored {
                Some((word, in_memory)) => Operator::Stored(product, *word, *in_memory),
                None => Operator::Matmul(product),
            };
            bench.operator(&operator, *precision).map(Prediction::Seconds).map_err(NotPredicted)
        }
        (Task::BestMatmul { precision, shape, .. }, _) => {
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
        .attention(&core.work(), (core.backward, core.ordered), core.precision, name)
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

/// Largest batch that a server is tried with where the source says that it was saturated.
const MOST_AT_ONCE: u64 = 2048;

/// A batch that was served on a chip with one of its memories.
struct Run {
    server: Server,
    model: LanguageModel,
    layout: Layout,
    /// Whether all that is on a chip's cores, and no part of them, served it.
    on_all_cores: bool,
    found: inference::Prediction,
}

/// The batch on a point's chips with the memory that its name stands for: the larger one, and its bytes, where what was served had no room in the other.
fn run_with_room(point: &Point, listed: &'static Listed) -> Result<(Run, Option<f64>), NotPredicted> {
    let ran = |run: &Run| run.found.waves == 1 || !point.notes.one_batch;
    let own = run(point, listed, &listed.memory);
    let Some(larger) = listed.larger_memory.as_ref().filter(|_| !own.as_ref().is_ok_and(ran)) else {
        return own.map(|run| (run, None));
    };
    match run(point, listed, larger) {
        Ok(run) if ran(&run) => Ok((run, larger.0.capacity.map(|bytes| bytes.0))),
        _ => own.map(|run| (run, None)),
    }
}

/// A batch from the prompts to the last token; where the source states none, the one with the highest rate.
///
/// # Errors
/// [`NotPredicted`]: a machine that is not described, or a model that does not fit it.
pub fn batch(point: &Point) -> Result<Prediction, NotPredicted> {
    let listed = listed(point)?;
    let Task::Inference { prompt, generated, phase } = point.task else {
        return Err(NotPredicted::because("no batch of sequences"));
    };
    let (Run { server, model, layout, on_all_cores, found }, larger_memory) = run_with_room(point, listed)?;
    // Users that each wait for an answer, as the source or the row's words say; the latter where requests come and go and there is time to follow them.
    let steps = found.batch.saturating_mul(generated).saturating_mul(ROUNDS as u64);
    let follows = unfit(&server, &model).is_none() && on_all_cores && steps <= MOST_STEPS;
    let users = point.source.is_some_and(|source| source.closed_loop)
        || (found.batch > 1 && point.notes.users == Some(found.batch) && follows);
    let (latency, first, token) = match users {
        true => by_users(&server, &model, layout, found.batch)
            .map_err(|refusal| NotPredicted::because(refusal.to_string()))?,
        false => (found.latency_s, found.ttft_s, found.tpot_s),
    };
    Ok(Prediction::Served(Served {
        batch: found.batch as f64,
        prompt: prompt as f64,
        generated: generated as f64,
        phase,
        latency,
        first,
        token,
        bytes: found.memory.total(),
        larger_memory,
    }))
}

/// The batch on chips with a memory.
fn run(point: &Point, listed: &'static Listed, memory: &Ref<Memory>) -> Result<Run, NotPredicted> {
    let (Some(model), Some(e)) = (&point.model, &point.execution) else {
        return Err(NotPredicted::because("the model or its layout is not stated"));
    };
    let Task::Inference { prompt, generated, .. } = point.task else {
        return Err(NotPredicted::because("no batch of sequences"));
    };
    let chips = point.row.chips.unwrap_or(1);
    let mut system = boxes::system(listed, memory, Some(stack_of(point, listed)), chips).map_err(NotPredicted)?;
    if let Some(share) = point.row.share_of_chip {
        system = boxes::part_of_chip(system, share);
    }
    // Ranks of a chip that are replicas, each with a batch of the row's size.
    let replicas = if point.source.is_some_and(|source| source.ranks_alone) { listed.ranks.max(1) } else { 1 };
    if replicas > 1 {
        system = boxes::part_of_chip(system, 1.0 / replicas as f64);
    }
    // A mesh of cores that is part of a wafer, the prompts' and the tokens'; weights may lie outside of it.
    let mut on_mesh = Vec::new();
    for side in point.notes.meshes(&stack_of(point, listed).0.name) {
        on_mesh.push(Server::new(&boxes::cores_of_chip(&system, side)).map_err(NotPredicted)?);
    }
    let mut server = Server::new(&system).map_err(NotPredicted)?;
    server.steady = point.row.global_batch.is_none();
    let queue = sources::queued(&point.row, (prompt, generated)).filter(|_| server.steady);
    server.recorded = queue.map_or_else(Vec::new, |(_, recorded)| recorded.to_vec());
    server.ranks = listed.ranks as f64;
    let mut model = machines::in_types_of(&server.machine, model);
    (model.seq, model.generated) = (prompt, (generated > 0).then_some(generated));
    if server.serving.pads_heads && !model.heads.is_multiple_of(e.tp.max(1)) {
        model.head_dim = Some(model.head_dim());
        model.heads = model.heads.next_multiple_of(e.tp);
    }
    let layout = Layout { tp: e.tp, pp: e.pp, dp: e.dp * replicas, ep: e.ep };
    let on = |server: &Server, batch: u64| {
        let [Some(prompts), Some(tokens)] = [on_mesh.first(), on_mesh.last()] else {
            return predict(server, &model, layout, batch);
        };
        let first = predict(prompts, &model, layout, batch)?;
        let then = predict(tokens, &model, layout, batch)?;
        let latency_s = first.latency_s + generated.saturating_sub(1) as f64 * (then.tpot_s - first.tpot_s);
        Ok(inference::Prediction { tpot_s: then.tpot_s, latency_s, ..first })
    };
    let of = |batch: u64| on(&server, batch);
    let found = match (point.row.global_batch, queue) {
        // It ran, and at once where it was one batch: where a chip is nearly full, what is else kept free was used.
        (Some(batch), _) => {
            let found = of(batch * replicas);
            let at_once = |found: &inference::Prediction| found.waves == 1 || !point.notes.one_batch;
            let full = || {
                let mut full = server.clone();
                (full.machine.stack.memory_reserve, full.serving.memory_limit) = (Bytes(0.0), Share(1.0));
                full.serving.cache_share = Share(1.0);
                on(&full, batch * replicas).ok()
            };
            match found {
                Ok(found) if at_once(&found) => Ok(found),
                Ok(found) => Ok(full().filter(|full| full.waves == 1).unwrap_or(found)),
                Err(refusal) => full().ok_or(refusal),
            }
        }
        (None, Some((requests, _))) => of(requests),
        (None, None) => {
            let mut best = of(layout.dp);
            let mut batch = 2;
            while batch <= MOST_AT_ONCE {
                if let (Ok(next), Ok(known)) = (of(batch * layout.dp), &best)
                    && next.tokens_per_s > known.tokens_per_s
                {
                    best = Ok(next);
                }
                batch *= 2;
            }
            best
        }
    };
    let found = found.map_err(|refusal| NotPredicted::because(refusal.to_string()))?;
    let on_all_cores = on_mesh.is_empty();
    Ok(Run { server, model, layout, on_all_cores, found })
}

/// Requests that each user of a run sends, of which the first and the last do not count: users begin and end together.
const ROUNDS: usize = 10;

/// Most tokens of a run whose users its words alone name: what is followed in a second or so.
const MOST_STEPS: u64 = 20_000_000;

/// Most users of a run, for whose requests there is memory and time.
const MOST_USERS: usize = 10_000;

/// Seconds of as many answers as users, to the first token, and for each further one, means of a run of users that wait for answers.
fn by_users(server: &Server, model: &LanguageModel, layout: Layout, users: u64) -> Result<(f64, f64, f64), Refusal> {
    let one = Request { arrival_s: 0.0, prompt: model.seq, generated: model.generated.unwrap_or(0) };
    let each = usize::try_from(users).ok().filter(|users| *users <= MOST_USERS);
    let each = each.ok_or_else(|| Refusal::System(format!("{users} users: at most {MOST_USERS} are simulated")))?;
    let requests = vec![one; each * ROUNDS];
    let load = Load { requests: &requests, users: Some(users) };
    let never = || Refusal::System("the run did not end".into());
    let run = serve(server, model, layout, &load, Deadline::never())?.ok_or_else(never)?;
    let counted = run.answers.get(each..requests.len() - each).unwrap_or(&run.answers);
    let mean = |of: fn(&Answer) -> f64| counted.iter().map(of).sum::<f64>() / counted.len().max(1) as f64;
    Ok((users as f64 / run.answered_per_s, mean(Answer::ttft_s), mean(|a| a.tpot_s().unwrap_or(0.0))))
}
