//! An answer for a person, and for a program.

use super::money::{Account, minimized};
use crate::mapping::Infeasible;
use crate::mapping::compare::Compared;
use crate::mapping::request::LeftOpen;
use crate::mapping::search::{Record, Request};
use crate::model::stages::{self, StageFigures};
use crate::plan::{Figures, Plan};
use crate::report::statement;
use crate::system::System;
use crate::units::{Bytes, Seconds};
use crate::workload::Workload;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Map, Value, json};

/// The answer as text: the plan's figures, then what is proven of it.
pub fn text(plan: &Plan, record: &Record, request: &Request) -> String {
    let fusion = record.fusion.as_ref().map_or(String::new(), |f| {
        let nodes = f.nodes.map_or("?".into(), |n| n.to_string());
        format!(", fusion MILP {} in {nodes} nodes, {:.3} s", f.status, f.seconds)
    });
    format!(
        "{}{}\nstatus: {} (gap {:.2e})\n{}\nlooked at: {} assignments of dimensions, {} sets of shardings, {} fusion problems{fusion}; {} in {:.3} s\nengine: {}\n",
        figures_text(plan),
        super::money::running(&Account::of_plan(plan), &record.economics, minimized(record)),
        record.status,
        record.gap(),
        statement::of_mapping(plan, request, record),
        record.assignments,
        record.joint_nodes,
        record.solved,
        record.solver,
        record.solve_s,
        record.engine
    )
}

/// What the engines found, as a table.
pub fn compared(rows: &[Compared]) -> String {
    let mut table = plain();
    table.set_header(["sub-problem", "engine", "status", "objective", "bound", "seconds", "agrees"]);
    for row in rows {
        table.add_row([
            row.problem.clone(),
            row.engine.clone(),
            row.status.clone(),
            row.objective.map_or("-".into(), |v| format!("{v:.9e}")),
            row.bound.map_or("-".into(), |v| format!("{v:.9e}")),
            format!("{:.3}", row.seconds),
            row.agrees.map_or("-", |yes| if yes { "yes" } else { "NO" }).to_string(),
        ]);
    }
    align(&mut table, &[3, 4, 5]);
    format!("\n{table}\n")
}

/// The plan's figures as text.
pub fn figures_text(plan: &Plan) -> String {
    let f = &plan.figures;
    let i = &f.iteration;
    let total = f.iteration_s();
    let mut out = format!("{} on {} ({} chips)\n\n", plan.workload.name, plan.system.name, plan.system.chip_count());

    let (rows, cols) = plan.decisions.grid();
    let mut facts = if plan.workload.is_spread() {
        vec![("process grid", format!("{rows} x {cols}")), ("tiles", plan.decisions.tiles.to_string())]
    } else {
        vec![
            ("TP", f.tp.to_string()),
            ("PP", f.pp.to_string()),
            ("DP", f.dp.to_string()),
            ("tiles", plan.decisions.tiles.to_string()),
            ("microbatch", plan.workload.micro_batch.to_string()),
            ("microbatches", i.microbatches.to_string()),
            ("layers/stage", plan.layers_of_stages()),
        ]
    };
    facts.extend([
        ("iteration", Seconds(total).to_string()),
        ("samples/s", significant(f.samples_per_s(&plan.workload))),
        ("utilization", percent(f.utilization)),
    ]);
    let mut head = plain();
    head.set_header(facts.iter().map(|(name, _)| *name));
    head.add_row(facts.iter().map(|(_, value)| value.as_str()));
    out.push_str(&format!("{head}\n\n"));

    let layer: [f64; 4] = f.partitions.iter().fold([0.0; 4], |sum, p| {
        [sum[0] + p.compute_s, sum[1] + p.dram_s, sum[2] + p.network_s, sum[3] + p.overhead_s]
    });
    let filling: f64 = f.partitions.iter().map(|p| p.filling_s).sum();
    let mut time = plain();
    let blocks = plan.blocks();
    let unit = if blocks.len() > 1 { "one of each block, one pass" } else { "one layer, one pass" };
    time.set_header(["iteration", "time", "share", unit, "time"]);
    let parts = [
        ("layers", i.work_s),
        ("pipeline bubble", i.bubble_s),
        ("between stages", i.p2p_s),
        ("gradient reduction", i.gradient_s),
        ("optimizer", i.optimizer_s),
    ];
    let layers = [
        ("compute", layer[0]),
        ("DRAM", layer[1]),
        ("network", layer[2]),
        if filling > 0.0 { ("overhead, filling", layer[3] + filling) } else { ("overhead", layer[3]) },
        ("together", f.layer_s),
    ];
    for ((name, seconds), (part, part_s)) in parts.iter().zip(&layers) {
        time.add_row([
            (*name).to_string(),
            Seconds(*seconds).to_string(),
            percent(seconds / total),
            (*part).to_string(),
            Seconds(*part_s).to_string(),
        ]);
    }
    align(&mut time, &[1, 2, 4]);
    let weights = if plan.decisions.weights_on_chip { "; weights stay on chip" } else { "" };
    out.push_str(&format!("{time}\n(parts of a layer overlap: {}{weights})\n", plan.system.overlap()));
    if blocks.len() > 1 {
        let each = blocks.iter().map(|(name, repeat, seconds)| format!("{name} {repeat} x {}", Seconds(*seconds)));
        out.push_str(&format!("(blocks: {})\n", each.collect::<Vec<_>>().join(", ")));
    }
    out.push('\n');

    let m = &f.memory;
    let mut memory = plain();
    memory.set_header([
        "DRAM of a chip",
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "held",
        "caches",
        "waiting tensors",
        "total",
        "capacity",
    ]);
    memory.add_row([
        String::new(),
        Bytes(m.weights).to_string(),
        Bytes(m.gradients).to_string(),
        Bytes(m.optimizer).to_string(),
        Bytes(m.activations).to_string(),
        Bytes(m.held).to_string(),
        Bytes(m.caches).to_string(),
        Bytes(m.live).to_string(),
        Bytes(m.total()).to_string(),
        f.dram_capacity.map_or("no limit".into(), |c| format!("{} ({} used)", Bytes(c), percent(m.total() / c))),
    ]);
    out.push_str(&format!("{memory}\n{}\n", unequal_stages(f)));

    out.push_str(&format!("{}\n\n", partitions(plan)));

    out.push_str(&super::money::table(&Account::of_plan(plan)));
    out
}

/// The partitions of a plan as a table.
pub(super) fn partitions(plan: &Plan) -> Table {
    let mut table = plain();
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(118);
    table.set_header(["#", "kernels:sharding", "compute", "DRAM", "network", "time", "SRAM", "limited by"]);
    for (p, figures) in plan.figures.partitions.iter().enumerate() {
        let kernels: Vec<String> = figures
            .kernels
            .iter()
            .map(|name| {
                let k = plan.workload.kernel_index(name);
                let strategy = k.map_or("", |k| plan.decisions.sharding[k].word());
                if strategy == "replicate" { name.clone() } else { format!("{name}:{strategy}") }
            })
            .collect();
        table.add_row([
            p.to_string(),
            kernels.join(" "),
            Seconds(figures.compute_s).to_string(),
            Seconds(figures.dram_s).to_string(),
            Seconds(figures.network_s).to_string(),
            Seconds(figures.time_s).to_string(),
            format!("{} ({})", Bytes(figures.sram_bytes), percent(figures.sram_bytes / plan.system.chip.0.sram.0)),
            figures.bottleneck().word().to_string(),
        ]);
    }
    align(&mut table, &[2, 3, 4, 5, 6]);
    table
}

/// Where the stages of a pipeline differ: which takes longest, which holds most.
fn unequal_stages(f: &Figures) -> String {
    let unequal = f.stages.iter().any(|s| s.layers != f.stages[0].layers);
    match (stages::slowest(&f.stages), stages::fullest(&f.stages)) {
        (Some((slow, slowest)), Some((full, fullest))) if unequal => format!(
            "(stages are not equal: stage {slow} takes longest, {} a microbatch, with {} layers; stage {full} holds most, {}, \
             with {} layers)\n",
            Seconds(slowest.time_s()),
            slowest.layers,
            Bytes(fullest.memory.total()),
            fullest.layers
        ),
        _ => String::new(),
    }
}

pub(super) fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

pub(super) fn align(table: &mut Table, right: &[usize]) {
    for column in right {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Four significant digits, thousands in groups.
pub(super) fn significant(x: f64) -> String {
    if x.abs() >= 1000.0 {
        let digits = format!("{x:.0}");
        let mut out = String::new();
        for (i, c) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                out.push('_');
            }
            out.push(c);
        }
        return out;
    }
    let decimals = match x.abs() {
        a if a >= 100.0 => 1,
        a if a >= 10.0 => 2,
        a if a >= 1.0 => 3,
        _ => 4,
    };
    format!("{x:.decimals$}")
}

/// One stage of a pipeline.
fn stage_json(s: usize, stage: &StageFigures) -> Value {
    json!({
        "stage": s, "layers": stage.layers, "pass_s": stage.pass_s, "hand_over_s": stage.hand_over_s,
        "gradient_s": stage.gradient_s, "optimizer_s": stage.optimizer_s, "of_blocks": stage.of_blocks,
        "total_bytes": stage.memory.total(), "bytes": stage.memory,
    })
}

/// The answer as one JSON object.
pub fn json(plan: &Plan, record: &Record, request: &Request) -> String {
    let f = &plan.figures;
    let m = &f.memory;
    let sharding: Map<String, Value> =
        plan.workload.kernels.iter().zip(&plan.decisions.sharding).map(|(k, s)| (k.name.clone(), json!(s))).collect();
    let partitions: Vec<Value> = f
        .partitions
        .iter()
        .map(|p| {
            json!({
                "kernels": p.kernels, "compute_s": p.compute_s, "dram_s": p.dram_s, "network_s": p.network_s,
                "overhead_s": p.overhead_s, "filling_s": p.filling_s, "time_s": p.time_s, "sram_bytes": p.sram_bytes,
                "dram_bytes": p.dram_bytes, "live_bytes": p.live_bytes, "link_j": p.link_j,
                "bottleneck": p.bottleneck(),
            })
        })
        .collect();
    let mut object = json!({
        "workload": plan.workload.name,
        "system": plan.system.name,
        "status": record.status,
        "gap": record.gap(),
        "proof": record.proof,
        "nodes": record.nodes,
        "solve_s": record.solve_s,
        "solver": record.solver,
        "seed": record.seed,
        "reproducible": record.reproducible,
        "degrees": { "tp": f.tp, "pp": f.pp, "dp": f.dp },
        "process_grid": plan.decisions.grid(),
        "network_use": plan.decisions.uses,
        "tile_count": plan.decisions.tiles,
        "weights_on_chip": plan.decisions.weights_on_chip,
        "microbatch": plan.workload.micro_batch,
        "microbatches": f.iteration.microbatches,
        "layers_per_stage": f.iteration.layers_per_stage,
        "iteration_s": f.iteration_s(),
        "iteration_parts": f.iteration,
        "layer_s": f.layer_s,
        "samples_per_s": f.samples_per_s(&plan.workload),
        "utilization": f.utilization,
        "flop_per_iteration": f.flop_per_iteration,
        "cost_usd": f.cost.known(),
        "cost_parts_usd": f.cost,
        "power_w": f.power.known(),
        "power_parts_w": f.power,
        "memory": {
            "weights_bytes": m.weights, "gradients_bytes": m.gradients, "optimizer_bytes": m.optimizer,
            "activations_bytes": m.activations, "caches_bytes": m.caches, "held_bytes": m.held, "live_bytes": m.live,
            "total_bytes": m.total(),
            "capacity_bytes": f.dram_capacity,
        },
        "sharding": sharding,
        "partitions": partitions,
        "solves": { "sharding": record.sharding, "fusion": record.fusion },
    });
    // Set one by one: the macro has a limit of keys.
    object["statement"] = json!(statement::of_mapping(plan, request, record));
    object["left_open"] = json!(record.left);
    object["stages"] = f.stages.iter().enumerate().map(|(s, stage)| stage_json(s, stage)).collect();
    let block =
        |(name, repeat, seconds): (String, u64, f64)| json!({ "name": name, "repeat": repeat, "pass_s": seconds });
    object["blocks"] = plan.blocks().into_iter().map(block).collect();
    object["objective_unit"] = json!(record.objective.unit());
    object["covers_sharding"] = json!(record.covers_sharding);
    object["joint_nodes"] = json!(record.joint_nodes);
    object["minimized"] = json!(record.objective);
    object["objective"] = json!(record.value);
    object["bound"] = json!(record.bound);
    object["energy"] = super::money::energy_json(&Account::of_plan(plan));
    object["running"] = super::money::running_json(&Account::of_plan(plan), &record.economics);
    format!("{object:#}\n")
}

/// A point without a plan yet as one JSON object.
pub fn no_plan_json(workload: &Workload, system: &System, left: LeftOpen, request: &Request) -> String {
    let object = json!({
        "workload": workload.name,
        "system": system.name,
        "status": left.status(),
        "statement": statement::of_no_plan(workload, system, request, left),
        "plan": Value::Null,
        "reason": left.reason(),
        "seed": request.limits.seed,
    });
    format!("{object:#}\n")
}

/// An infeasible point as one JSON object.
pub fn infeasible_json(workload: &Workload, system: &System, reason: &Infeasible, request: &Request) -> String {
    let object = json!({
        "workload": workload.name,
        "system": system.name,
        "status": "infeasible",
        "statement": statement::of_infeasible(workload, system, request),
        "seed": request.limits.seed,
        "infeasible": reason,
    });
    format!("{object:#}\n")
}
