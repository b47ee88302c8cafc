//! An execution of a language model for a person, and as JSON.

use super::money::{self, Account};
use super::present::{align, percent, plain, significant};
use crate::execution::file::LayerSpec;
use crate::execution::mapping::{Branch, Core, LayerMapping};
use crate::execution::schedule::IterationTime;
use crate::execution::search::Found;
use crate::execution::{Machine, Prediction};
use crate::mapping::search::Objective;
use crate::plan::Plan;
use crate::report::statement;
use crate::system::economics::Economics;
use crate::system::{Software, System};
use crate::units::{Bytes, Seconds};
use crate::workload::language::LanguageModel;
use serde_json::json;
use std::sync::Arc;

/// A prediction and, where it was searched for, what proves it.
pub(super) struct Answer {
    pub prediction: Prediction,
    pub found: Option<Found>,
    pub seconds: f64,
    /// The mapping of the blocks, where it is one of graphs.
    pub plan: Option<Arc<Plan>>,
    /// What is proven, in one sentence.
    pub statement: String,
}

pub(super) fn no_plan_json(
    model: &LanguageModel,
    system: &System,
    status: &str,
    (proven, reason): (&str, &str),
) -> String {
    let object = json!({
        "workload": model.name, "system": system.name, "status": status, "statement": proven, "reason": reason,
    });
    format!("{object:#}\n")
}

/// A mapping of a layer in words.
fn mapped(mapping: &LayerMapping, machine: &Machine) -> String {
    let branch = |b: Branch| format!("{}, {}", b.first.word(), b.last.word());
    let core = match mapping.core {
        Core::Unfused => "products and vector work".into(),
        Core::Kernel(i) => {
            machine.attention_kernels.get(i).map_or_else(|| "one kernel".into(), |(name, _)| format!("kernel {name}"))
        }
    };
    let fused = mapping.fused.words();
    format!(
        "attention divides {} (first product, last); its core is {core}; perceptron divides {}; fused: {}",
        branch(mapping.attention),
        branch(mapping.perceptron),
        if fused.is_empty() { "nothing".into() } else { fused.join(", ") }
    )
}

/// An iteration, part by part.
pub(super) fn parts(t: &IterationTime) -> String {
    let mut time = plain();
    time.set_header(["iteration", "time", "share"]);
    for (name, seconds) in [
        ("forward", t.forward),
        ("backward", t.backward),
        ("recomputation", t.recompute),
        ("tensor parallelism", t.tp),
        ("context parallelism", t.cp),
        ("expert parallelism", t.ep),
        ("between stages", t.hand_over),
        ("pipeline bubble", t.bubble),
        ("data parallelism", t.dp),
        ("optimizer", t.optimizer),
        ("host", t.host),
        ("offload", t.offload),
    ] {
        if seconds > 0.0 {
            time.add_row([name.to_string(), Seconds(seconds).to_string(), percent(seconds / t.total)]);
        }
    }
    align(&mut time, &[1, 2]);
    let hidden = Seconds(t.hidden);
    format!("{time}\n(communication that is waited for; {hidden} more run beside other work)")
}

pub(super) fn text(
    answer: &Answer,
    model: &LanguageModel,
    system: &System,
    machine: &Machine,
    economics: &Economics,
) -> String {
    let p = &answer.prediction;
    let e = &p.execution;
    let mut out = format!("{} on {} ({} of {} chips)\n\n", model.name, system.name, p.chips, system.chip_count());
    let mut head = plain();
    head.set_header([
        "TP",
        "PP",
        "DP",
        "CP",
        "EP",
        "microbatch",
        "microbatches",
        "iteration",
        "samples/s",
        "tokens/s",
        "MFU",
        "HFU",
    ]);
    head.add_row([
        e.tp.to_string(),
        e.pp.to_string(),
        e.dp.to_string(),
        e.cp.to_string(),
        e.ep.to_string(),
        e.micro_batch.to_string(),
        p.microbatches.to_string(),
        Seconds(p.time.total).to_string(),
        significant(p.samples_per_s),
        significant(p.tokens_per_s),
        percent(p.model_flop_utilization),
        percent(p.hardware_flop_utilization),
    ]);
    out.push_str(&format!("{head}\n\n"));
    let mut decisions = plain();
    decisions.set_header([
        "schedule",
        "chunks",
        "recompute",
        "sequence parallel",
        "ZeRO",
        "offload",
        "overlap DP",
        "overlap TP",
    ]);
    let yes = |b: bool| if b { "yes" } else { "no" }.to_string();
    decisions.add_row([
        e.schedule.to_string(),
        e.chunks.to_string(),
        e.recompute.to_string(),
        // The plan of a graph says by which kernels' columns.
        if answer.plan.is_some() { "in the plan".into() } else { yes(e.sequence_parallel) },
        e.zero.to_string(),
        e.offload.to_string(),
        yes(e.overlap_dp),
        yes(e.overlap_tp),
    ]);
    out.push_str(&format!("{decisions}\n\n"));
    out.push_str(&format!("{}\n\n", parts(&p.time)));
    let mut memory = plain();
    memory.set_header(["memory of a chip", "bytes"]);
    for (name, bytes) in p.memory.device.kinds() {
        if bytes > 0.0 {
            memory.add_row([name.to_string(), Bytes(bytes).to_string()]);
        }
    }
    let total = p.memory.device.total();
    let of = p.memory.capacity.map_or("no limit".into(), |c| format!("of {} ({} used)", Bytes(c), percent(total / c)));
    memory.add_row(["together".to_string(), format!("{} {of}", Bytes(total))]);
    if p.memory.second_tier > 0.0 {
        memory.add_row(["in the second tier".to_string(), Bytes(p.memory.second_tier).to_string()]);
    }
    out.push_str(&format!("{memory}\n(stage {}, which holds most)\n\n", p.memory.stage));
    if system.software() == Software::Free {
        for (name, pass) in [("layer", &p.blocks.plain), ("expert layer", &p.blocks.experts)] {
            if let Some(mapping) = &pass.mapping {
                out.push_str(&format!("{name}: {}\n\n", mapped(mapping, machine)));
            }
        }
    }
    if let Some(plan) = &answer.plan {
        let blocks = plan.blocks();
        let each = blocks.iter().map(|(name, repeat, seconds)| format!("{name} {repeat} x {}", Seconds(*seconds)));
        let blocks = each.collect::<Vec<_>>().join(", ");
        out.push_str(&format!(
            "{}\n(one microbatch on {} chips: {blocks}; {} tiles)\n\n",
            super::present::partitions(plan),
            e.tp,
            plan.decisions.tiles
        ));
    }
    let account = Account::of_execution(p, model, system);
    let minimized =
        answer.found.as_ref().map_or((Objective::Time, p.time.total, 0.0), |f| (f.objective, f.value, f.bound));
    out.push_str(&format!("{}{}", money::table(&account), money::running(&account, economics, minimized)));
    out.push_str(&match &answer.found {
        Some(f) => format!(
            "status: {} (gap {:.2e})\n{}\nlooked at: {} predicted, {} too large, {} of {} cells left out by their bound, {} blocks; {:.3} s\n",
            f.status(),
            f.gap(),
            answer.statement,
            f.evaluated,
            f.too_large,
            f.pruned,
            f.cells,
            f.blocks,
            answer.seconds
        ),
        None => format!("status: predicted\n{}\n{:.3} s\n", answer.statement, answer.seconds),
    });
    out
}

pub(super) fn to_json(
    answer: &Answer,
    model: &LanguageModel,
    system: &System,
    machine: &Machine,
    economics: &Economics,
) -> serde_json::Value {
    let p = &answer.prediction;
    let (cost, power) = (crate::system::price::cost(system), crate::system::price::power(system));
    let mut object = json!({
        "workload": model.name,
        "system": system.name,
        "status": answer.found.as_ref().map_or("predicted", Found::status),
        "execution": p.execution,
        "chips": p.chips,
        "system_chips": system.chip_count(),
        "microbatches": p.microbatches,
        "iteration_s": p.time.total,
        "iteration_parts_s": p.time,
        "samples_per_s": p.samples_per_s,
        "tokens_per_s": p.tokens_per_s,
        "model_flop_utilization": p.model_flop_utilization,
        "hardware_flop_utilization": p.hardware_flop_utilization,
        "memory": {
            "stage": p.memory.stage,
            "bytes": p.memory.device,
            "total_bytes": p.memory.device.total(),
            "capacity_bytes": p.memory.capacity,
            "second_tier_bytes": p.memory.second_tier,
        },
        "cost_usd": cost.known(),
        "power_w": power.known(),
        "solve_s": answer.seconds,
    });
    let account = Account::of_execution(p, model, system);
    object["energy"] = money::energy_json(&account);
    object["running"] = money::running_json(&account, economics);
    object["statement"] = json!(answer.statement);
    object["software"] = json!(statement::software_name(system));
    if system.software() == Software::Free {
        for (name, pass) in [("layer", &p.blocks.plain), ("expert_layer", &p.blocks.experts)] {
            if let Some(mapping) = &pass.mapping {
                object["mapping"][name] = json!(LayerSpec::of(mapping, machine));
            }
        }
    }
    if let Some(plan) = &answer.plan {
        object["blocks"] = json!({
            "tiles": plan.decisions.tiles,
            "partitions": plan.figures.partitions,
            "sharding": plan.workload.kernels.iter().zip(&plan.decisions.sharding)
                .map(|(kernel, strategy)| (kernel.name.clone(), json!(strategy.word())))
                .collect::<serde_json::Map<_, _>>(),
        });
    }
    if let Some(f) = &answer.found {
        object["minimized"] = json!(f.objective.to_string());
        object["objective"] = json!(f.value);
        object["bound"] = json!(f.bound);
        object["objective_unit"] = json!(f.objective.unit());
        object["gap"] = json!(f.gap());
        object["proof"] = json!({
            "covered": f.covered, "evaluated": f.evaluated, "too_large": f.too_large, "unmapped": f.unmapped, "cells": f.cells,
            "pruned_cells": f.pruned, "blocks": f.blocks,
        });
    }
    object
}
