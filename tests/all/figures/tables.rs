//! Whole tables of the documents, made from the answers of commands (and, of the stored runs, by the test that holds them).

use super::claims;
use super::comparison;
use super::expression::{Data, fits, grouped, significant, write};
use super::source::{SKIPPED, Sources, table as read_table};
use crate::{calculon, golden};
use flowspace::mapping::request::JOINT_NODES;
use flowspace::validate::Class;
use flowspace::validate::coverage::Work;
use flowspace::validate::metric::{Metric, Unit};
use std::collections::BTreeMap;

pub type Row = BTreeMap<String, String>;

/// The table `name`.
pub fn table(name: &str, sources: &mut Sources) -> Result<String, String> {
    if let Some(task) = name.strip_prefix("comparison-steps ") {
        return comparison::steps(task, sources);
    }
    if let Some(equal) = name.strip_prefix("comparison ") {
        return comparison::rates(equal, sources);
    }
    match name {
        "hpl" => hpl(sources),
        "joint-gain" => joint_gain(sources),
        "joint-80" => joint_80(sources),
        "stages" => stages(sources),
        "claims-chips" => claims::chips(sources),
        "claims-assumptions" => claims::assumptions(sources),
        "claims-mappings" => claims::mappings(sources),
        "claims-times" => claims::times_of_mappings(sources),
        "comparison-winners" => comparison::winners(sources),
        "comparison-flips" => comparison::flips(sources),
        "dfmodel" => Ok(dfmodel()),
        "dfmodel-state-space" => Ok(state_space()),
        "dfmodel-hpc" => Ok(hpc()),
        "accuracy" => accuracy("points", sources),
        "accuracy-shipped" => accuracy("validate", sources),
        "accuracy-inference" => accuracy_inference(sources),
        "accuracy-long" => accuracy_long(sources),
        "accuracy-attention" => accuracy_attention(sources),
        "accuracy-others" => accuracy("points-kernels", sources),
        "accuracy-dataflow" => accuracy_dataflow(sources),
        "accuracy-as-new" => accuracy_as_new(sources),
        "accuracy-fits" => accuracy_fits(sources),
        "accuracy-serving" => accuracy_serving(sources),
        "calculon-measured" => beside_calculon(|t| &t.measured),
        "calculon-classes" => beside_calculon(|t| &t.classes),
        "calculon-causes" => beside_calculon(|t| &t.causes),
        "calculon-memory" => beside_calculon(|t| &t.memory),
        _ => Err(format!("there is no table {name}")),
    }
}

/// The figure `name`, of those that no single command says.
pub fn value(name: &str, sources: &mut Sources) -> Result<String, String> {
    if let Some((column, chip)) = name.strip_prefix("winners ").and_then(|rest| rest.split_once(' ')) {
        return winners(column, chip, sources);
    }
    if let Some(rest) = name.strip_prefix("claims ") {
        return claims::value(rest, sources);
    }
    if let Some(rest) = name.strip_prefix("as-new ") {
        return as_new(rest, sources);
    }
    match name {
        // The largest saving of a free mapping over DFModel's stored one in the same semantics, per cent.
        "dfmodel-gain" => {
            // A vendor's partitions are no answer of its solver.
            let solved = golden::rows().iter().filter(|row| !row.id.contains("vendor"));
            let gains = solved.filter_map(|row| Some(1.0 - row.same.parse::<f64>().ok()? / row.stored));
            write(gains.fold(0.0, f64::max), ".1%")
        }
        "joint-nodes" => Ok(grouped(JOINT_NODES as f64)),
        "classes" => Ok(Class::ALL.iter().map(|class| format!("`{class}`")).collect::<Vec<_>>().join(", ")),
        // A model that is also there as it is served counts once.
        "models" => {
            let files = std::fs::read_dir(sources.root().join("workloads/language")).map_err(|e| e.to_string())?;
            let names =
                files.filter_map(|file| Some(file.ok()?.file_name().to_str()?.trim_end_matches(".yaml").to_string()));
            let names: Vec<String> = names.collect();
            let served =
                |name: &str| name.strip_suffix("-serving").is_some_and(|model| names.iter().any(|n| n == model));
            Ok(names.iter().filter(|name| !served(name)).count().to_string())
        }
        _ => Err(format!("there is no value {name}")),
    }
}

/// In how many settings of DFModel's 640 points, with overlap, a chip has the most of a column.
fn winners(column: &str, chip: &str, sources: &mut Sources) -> Result<String, String> {
    let mut best: BTreeMap<Vec<&str>, (f64, &str)> = BTreeMap::new();
    let rows = rows("design-space", sources)?;
    for row in rows.iter().filter(|row| row.get("overlap").is_some_and(|o| o == "full")) {
        let setting =
            ["task", "topology", "memory", "link"].map(|axis| cell(row, axis)).into_iter().collect::<Result<_, _>>()?;
        let Ok(value) = number(row, column) else { continue };
        let entry = best.entry(setting).or_insert((f64::NEG_INFINITY, ""));
        if value > entry.0 {
            *entry = (value, cell(row, "chip")?);
        }
    }
    Ok(best.values().filter(|(_, winner)| *winner == chip).count().to_string())
}

pub fn rows(id: &str, sources: &mut Sources) -> Result<Vec<Row>, String> {
    match sources.data(id)? {
        Data::Table(rows) => Ok(rows),
        _ => Err(format!("{id} is no study")),
    }
}

pub fn cell<'r>(row: &'r Row, column: &str) -> Result<&'r str, String> {
    row.get(column).map(String::as_str).ok_or_else(|| format!("there is no column {column}"))
}

pub fn number(row: &Row, column: &str) -> Result<f64, String> {
    let text = cell(row, column)?;
    text.parse().map_err(|_| format!("{column} is {text:?}, no number"))
}

fn one<'r>(rows: &'r [Row], filters: &str) -> Result<&'r Row, String> {
    let mut found = None;
    for row in rows {
        if fits(row, filters)? {
            found = Some(row);
        }
    }
    found.ok_or_else(|| format!("no row has {filters}"))
}

fn signed(share: f64, decimals: usize) -> String {
    write(share, &format!("+.{decimals}%")).map_or(String::new(), |text| format!("{text} %"))
}

/// FLOP/s of HPL beside the published ones.
fn hpl(sources: &mut Sources) -> Result<String, String> {
    let rows = rows("hpl", sources)?;
    let points = read_table(&sources.root().join("validation/hpl/points.csv"))?;
    let mut out = String::from(
        "| machine | chips | published, PFLOP/s | not hidden | error | hidden | error | grid (not hidden) |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (machine, title) in [
        ("frontier-2022", "Frontier, Nov. 2022"),
        ("frontier-2023", "Frontier, June 2023"),
        ("fugaku", "Fugaku"),
        ("summit", "Summit"),
        ("sierra", "Sierra"),
        ("hgx-h100", "one HGX H100"),
    ] {
        let published = number(one(&points, &format!("machine={machine}"))?, "rmax_pflops")?;
        let apart = one(&rows, &format!("machine={machine},overlap=compute_memory"))?;
        let hidden = one(&rows, &format!("machine={machine},overlap=full"))?;
        let chip = cell(apart, "chip_name")?.split(' ').next().unwrap_or_default();
        let rate = |row: &Row| Ok::<f64, String>(number(row, "flop_per_s")? / 1e15);
        let (low, high) = (rate(apart)?, rate(hidden)?);
        out.push_str(&format!(
            "| {title} | {} {chip} | {} | {} | {} | {} | {} | {} |\n",
            grouped(number(apart, "chips")?),
            significant(published, 4),
            significant(low, 4),
            signed(low / published - 1.0, 1),
            significant(high, 4),
            signed(high / published - 1.0, 1),
            cell(apart, "process_grid")?.replace('x', " x "),
        ));
    }
    Ok(out)
}

/// What the joint search gains over two passes.
fn joint_gain(sources: &mut Sources) -> Result<String, String> {
    let rows = rows("joint-gain", sources)?;
    let mut out = String::from(
        "| case | two passes, s | joint, s | saved | joint bound | TP x PP x DP |\n|---|---|---|---|---|---|\n",
    );
    for joint in rows.iter().filter(|r| r.get("passes").is_some_and(|p| p == "joint")) {
        let case = cell(joint, "case")?;
        let two = number(one(&rows, &format!("case={case},passes=two_pass"))?, "iteration_s")?;
        let whole = number(joint, "iteration_s")?;
        let bound = match cell(joint, "status")? {
            "optimal" => "optimal".to_string(),
            _ => format!("gap {} %", write(number(joint, "gap")?, ".1%")?),
        };
        out.push_str(&format!(
            "| {case} | {} | {} | {} | {bound} | {}x{}x{} |\n",
            significant(two, 6),
            significant(whole, 6),
            saved(1.0 - whole / two),
            cell(joint, "tp")?,
            cell(joint, "pp")?,
            cell(joint, "dp")?,
        ));
    }
    Ok(out)
}

/// A saving, nothing where there is none.
fn saved(share: f64) -> String {
    if share.abs() < 1e-12 { "0".into() } else { format!("{:.2} %", 100.0 * share) }
}

/// The same over the 80 systems: how many gain, and how much.
fn joint_80(sources: &mut Sources) -> Result<String, String> {
    let (joint, two) = (rows("joint-80-systems", sources)?, rows("joint-80-systems-two-pass", sources)?);
    let mut out =
        String::from("| chips, memory | points that gain | saved by those | most saved by |\n|---|---|---|---|\n");
    for (title, chips, memories) in [
        ("H100, TPU v4", ["h100", "tpu-v4"].as_slice(), ["ddr", "hbm"].as_slice()),
        ("SN30, DDR", &["sn30"], &["ddr"]),
        ("SN30, HBM", &["sn30"], &["hbm"]),
        ("WSE-2, DDR", &["wse-2"], &["ddr"]),
        ("WSE-2, HBM", &["wse-2"], &["hbm"]),
    ] {
        let mut gains: Vec<(f64, String)> = Vec::new();
        let mut all = 0;
        for row in &joint {
            if !chips.contains(&cell(row, "chip")?) || !memories.contains(&cell(row, "memory")?) {
                continue;
            }
            all += 1;
            let other = one(&two, &format!("point={}", cell(row, "point")?))?;
            // A point that two passes find no plan for gains one, which is no share.
            let (Ok(before), Ok(after)) = (number(other, "iteration_s"), number(row, "iteration_s")) else { continue };
            let gain = 1.0 - after / before;
            if gain > 1e-9 {
                gains.push((gain, format!("{}, {}", cell(row, "topology")?, cell(row, "link")?)));
            }
        }
        gains.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (range, most) = match gains.as_slice() {
            [] => ("0".to_string(), "-".to_string()),
            [.., (most, _)] if *most < 1e-4 => ("below 0.01 %".into(), "-".into()),
            [(least, _), .., (most, what)] => (format!("{:.2} - {:.2} %", 100.0 * least, 100.0 * most), what.clone()),
            [(only, what)] => (format!("{:.2} %", 100.0 * only), what.clone()),
        };
        out.push_str(&format!("| {title} | {} of {all} | {range} | {most} |\n", gains.len()));
    }
    Ok(out)
}

/// Divisions of layers into stages.
fn stages(sources: &mut Sources) -> Result<String, String> {
    let rows = rows("stages", sources)?;
    let mut out = String::from(
        "| `case` of the study | workload | memory a chip | layers of the stages | iteration | slowest stage, one microbatch |\n|---|---|---|---|---|---|\n",
    );
    for (case, what, memory) in [
        ("ample", "GPT-3 175B, DFModel's layers (`workloads/gpt3-175b-training.yaml`)", "96 GiB"),
        ("60-two-pass", "the same, `--sharding two-pass`", "60 GiB"),
        ("60", "the same, all shardings", "60 GiB"),
        ("56-two-pass", "the same, `--sharding two-pass`", "56 GiB"),
        ("56", "the same, all shardings", "56 GiB"),
        ("whole", "GPT-3 175B (`workloads/language/gpt3-175b.yaml`), embedding, layers and head", "96 GiB"),
        ("large-head", "GPT-2 XL (`workloads/language/gpt2-xl.yaml`)", "96 GiB"),
    ] {
        let row = one(&rows, &format!("case={case}"))?;
        let stopped = match cell(row, "status")? {
            "optimal" => String::new(),
            _ => format!(", stopped with a gap of {} %", write(number(row, "gap")?, ".1%")?),
        };
        out.push_str(&format!(
            "| {case} | {what} | {memory} | {} | {}{stopped} | {} ms |\n",
            cell(row, "stage_layers")?.replace('+', " + "),
            seconds(number(row, "iteration_s")?),
            significant(1e3 * number(row, "slowest_stage_s")?, 4),
        ));
    }
    Ok(out)
}

fn seconds(value: f64) -> String {
    if value < 1.0 { format!("{} ms", significant(value * 1e3, 4)) } else { format!("{} s", significant(value, 4)) }
}

/// The stored runs of DFModel, row by row.
fn dfmodel() -> String {
    let mut out = String::from(
        "| run | stored, s | its solver | same semantics, s | own model, same degrees | own model, free | why they differ |\n|---|---|---|---|---|---|---|\n",
    );
    for row in golden::rows() {
        out.push_str(&format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            row.id,
            golden::digits(row.stored),
            row.solver,
            row.same,
            row.own_pinned,
            row.own_free,
            row.reason
        ));
    }
    out
}

/// The stored runs of state-space models, in microseconds.
fn state_space() -> String {
    let mut out = String::from("| run | stored, us | pinned, us | free, us |\n|---|---|---|---|\n");
    let us = |s: f64| format!("{:.6}", s * 1e6);
    for row in golden::rows().iter().filter(|r| r.id.starts_with("hyena") || r.id.starts_with("mamba")) {
        let free = row.same.parse::<f64>().map_or_else(|_| row.same.clone(), us);
        out.push_str(&format!("| {} | {} | {} | {free} |\n", row.id, us(row.stored), us(row.pinned)));
    }
    out
}

/// The stored runs of recommendation, HPL and Fourier transforms.
fn hpc() -> String {
    let what = [
        (
            "dlrm-0.8T-h100-example",
            "gradients: bytes are added to nanoseconds (`gradient_link: byte_per_ns`); the all-to-all of this run is 1/1,024 of the pooled bytes",
        ),
        (
            "dlrm-A-a100-zionex",
            "gradients as above; all-to-all: N^2/4 messages through the cut of a dimension (`all_to_all_messages: bisection`; later versions `pairs`)",
        ),
        (
            "hpl-1M-h100-example",
            "a panel is one product (s x s)(s x B) on a process grid (`steps: gemm`); the first 64 of 512 panels",
        ),
        ("hpl-selene-a100-8100", "as above; 64 panels are all of them"),
        (
            "fft-h100-2dtorus-hbm-nvlink",
            "two steps of dense radix-32 products; all-to-all of all data once; no SRAM limit (`sram_limit: ignored`)",
        ),
        ("fft-wse2-3dtorus-hbm-nvlink", "as above; a 3-D torus is cut [xy, xz, yz]"),
        ("fft-fp32-a100-4096", "radix 4; N^2 messages (`all_to_all_messages: squared`)"),
        ("dlrm-0.8T-h100-2dtorus-hbm-nvlink", "as the first row; the all-to-all is of all pooled bytes"),
        (
            "dlrm-first-A-a100",
            "first generation: a minibatch a pass, embeddings and weights after the partition's time, no gradients; `memory_size` is of a chip",
        ),
        (
            "hpl-first-8192",
            "first generation: four kernels a panel, (Y - 1)/2 times the panel's broadcast, each chip a replica",
        ),
    ];
    let mut out =
        String::from("| run | stored, s | pinned, s | free, s | what the code does |\n|---|---|---|---|---|\n");
    let rows = golden::rows();
    for (id, text) in what {
        for row in rows.iter().filter(|r| r.id == id) {
            let free = row.same.parse::<f64>().map_or_else(|_| row.same.clone(), |s| format!("{s:.6}"));
            out.push_str(&format!("| {id} | {:.6} | {:.6} | {free} | {text} |\n", row.stored, row.pinned));
        }
    }
    out
}

/// A table of Calculon's recorded cases, which are not shipped.
fn beside_calculon(table: fn(&calculon::Tables) -> &String) -> Result<String, String> {
    calculon::tables().map(|tables| table(tables).clone()).ok_or_else(|| format!("{SKIPPED}Calculon's cases"))
}

/// Errors by class of points.
fn accuracy(id: &str, sources: &mut Sources) -> Result<String, String> {
    let Data::Json(answer) = sources.data(id)? else { return Err(format!("{id} is no JSON")) };
    let mut out = String::from(
        "| class | points | mean abs. error | median | signed | worst | bound | look-up | source left out |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for class in answer["classes"].as_array().into_iter().flatten() {
        let figure = |key: &str| class[key].as_f64();
        let (Some(mean), Some(median), Some(signed)) = (figure("mape_pct"), figure("median_pct"), figure("bias_pct"))
        else {
            continue;
        };
        let share = |value: f64| format!("{value:+.1} %").replace("-0.0", "+0.0");
        let other = |key: &str| figure(key).map_or("-".into(), |e| format!("{e:.1} %"));
        out.push_str(&format!(
            "| {} | {} of {} | {mean:.1} % | {median:.1} % | {} | {} | {} | {} | {} |\n",
            class["name"].as_str().unwrap_or_default(),
            class["n"],
            class["points"],
            share(signed),
            figure("worst_pct").map_or("-".into(), share),
            figure("bound_mape_pct").map_or("-".into(), |b| format!("{b} %")),
            other("neighbour_pct"),
            other("left_out_pct"),
        ));
    }
    Ok(out)
}

/// A group of points by the beginning of their names: its title, whether a name is of it, and what stands around its figures.
type Group = (&'static str, fn(&str) -> bool, &'static str);

/// Errors of inference and kernels by where the points come from.
fn accuracy_inference(sources: &mut Sources) -> Result<String, String> {
    let groups: [Group; 9] = [
        ("products on A100", |id| id.starts_with("mm-a100"), ""),
        ("products on MI210", |id| id.starts_with("mm-mi210"), ""),
        ("kernels of a GPT-3 layer, four A100", |id| id.starts_with("layer-"), ""),
        ("best-shape products", |id| id.starts_with("best-"), ""),
        ("LLM-Inference-Bench, A100 40 GB", |id| id.starts_with("lib-a100"), ""),
        ("LLM-Inference-Bench, eight SN40L", |id| id.starts_with("lib-sn40l"), ""),
        ("AMD, vLLM 0.9 to 0.11 on eight MI300X", |id| id.starts_with("amd-vllm"), ""),
        ("Oracle, vLLM of 2024 on eight MI300X", |id| id.starts_with("oracle-vllm"), ""),
        ("class", |_| true, "**"),
    ];
    accuracy_of("validate", "inference-kernels products", &groups, sources)
}

/// Errors of training at long sequences and odd shapes: the rows that constants were calibrated on by themselves.
fn accuracy_long(sources: &mut Sources) -> Result<String, String> {
    let groups: [Group; 9] = [
        ("MPT 1.3B, A100 (calibrated on)", |id| id.starts_with("llmfoundry-a100") && id.contains("-1b-"), ""),
        ("MPT 7B, A100", |id| id.starts_with("llmfoundry-a100") && id.contains("-7b-"), ""),
        ("MPT 125M, A100", |id| id.starts_with("llmfoundry-a100") && id.contains("-125m-"), ""),
        (
            "MPT 1.3B, H100 (calibrated on)",
            |id| id.starts_with("llmfoundry-h100") && id.contains("-1b-") && !id.ends_with("fp8"),
            "",
        ),
        ("MPT 7B, H100", |id| id.starts_with("llmfoundry-h100") && id.contains("-7b-"), ""),
        ("MPT 1.3B, H100 in FP8", |id| id.starts_with("llmfoundry-h100") && id.ends_with("fp8"), ""),
        ("BLOOM, heads of 108", |id| id.starts_with("bloom-") && id.contains("h13824-a128"), ""),
        ("BLOOM, other heads", |id| id.starts_with("bloom-") && !id.contains("h13824-a128"), ""),
        ("all", |_| true, "**"),
    ];
    accuracy_of("points-long", "training-published", &groups, sources)
}

/// Errors of training on dataflow chips: the rows that shares were calibrated on, and the others.
fn accuracy_dataflow(sources: &mut Sources) -> Result<String, String> {
    fn steps(id: &str, mode: &str) -> bool {
        id.starts_with("dabench-sn30") && id.contains(mode) && id.ends_with("-rdu")
    }
    let groups: [Group; 9] = [
        ("SambaFlow O3, hidden 1,600 (calibrated on)", |id| steps(id, "-o3-h1600-"), ""),
        ("SambaFlow O3, hidden 1,024, 1,280, 3,200", |id| steps(id, "-o3-") && !id.contains("-h1600-"), ""),
        ("SambaFlow O0, hidden 1,600 (calibrated on)", |id| steps(id, "-o0-h1600-"), ""),
        ("SambaFlow O0, hidden 1,024 and 1,280", |id| steps(id, "-o0-") && !id.contains("-h1600-"), ""),
        ("Poplar, GPT-2 on four GC200, batches of 64, 512, 4,096 (calibrated on)", poplar_calibrated, ""),
        ("Poplar, the same, other batches", |id| id.starts_with("caraml-gc200-gpt") && !poplar_calibrated(id), ""),
        ("Poplar, BERT-large of MLPerf", |id| id.starts_with("mlperf") && id.contains("ipu-pod"), ""),
        ("CS-2, GPT (set by hand between two sources)", |id| id.contains("cs2-gp"), ""),
        ("CS-2, BERT-large of 128 tokens", |id| id.contains("cs2-bert"), ""),
    ];
    accuracy_of("points-kernels", "dataflow-training", &groups, sources)
}

/// Errors by chip as known and as if it were new (docs/accuracy.md): chips with ten rows and more that both predict.
fn accuracy_as_new(sources: &mut Sources) -> Result<String, String> {
    let mut errors = |id: &str| -> Result<BTreeMap<(String, String), f64>, String> {
        let Data::Json(answer) = sources.data(id)? else { return Err(format!("{id} is no JSON")) };
        let of = |row: &serde_json::Value| {
            let key = (row["chip"].as_str()?.to_string(), row["id"].as_str()?.to_string());
            Some((key, row["error_pct"].as_f64()?))
        };
        Ok(answer["rows"].as_array().into_iter().flatten().filter_map(of).collect())
    };
    let (known, new) = (errors("points-known")?, errors("points-as-new")?);
    let mut chips: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for ((chip, id), error) in &new {
        if let Some(before) = known.get(&(chip.clone(), id.clone())) {
            chips.entry(chip).or_default().push((*before, *error));
        }
    }
    let mut out = String::from(
        "| chip | rows | median as known | median as new | mean as new | signed | within 30 % |\n|---|---|---|---|---|---|---|\n",
    );
    let mut all = Vec::new();
    let mut line = |title: &str, rows: &[(f64, f64)]| {
        let n = rows.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| rows.iter().map(of).sum::<f64>() / n;
        let median = |of: fn(&(f64, f64)) -> f64| {
            let mut errors: Vec<f64> = rows.iter().map(of).collect();
            errors.sort_by(f64::total_cmp);
            (errors[(errors.len() - 1) / 2] + errors[errors.len() / 2]) / 2.0
        };
        out.push_str(&format!(
            "| {title} | {} | {:.1} % | {:.1} % | {:.1} % | {:+.1} % | {:.0} % |\n",
            rows.len(),
            median(|r| r.0.abs()),
            median(|r| r.1.abs()),
            mean(|r| r.1.abs()),
            mean(|r| r.1),
            100.0 * rows.iter().filter(|r| r.1.abs() <= 30.0).count() as f64 / n,
        ));
    };
    for (chip, rows) in chips.iter().filter(|(_, rows)| rows.len() >= 10) {
        line(chip, rows);
        all.extend_from_slice(rows);
    }
    line("**all of these**", &all);
    Ok(out)
}

/// What nine rows of ten of `training` or `serving` keep where their chip is taken for new, per cent; of words that follow, chips that are left out.
fn as_new(words: &str, sources: &mut Sources) -> Result<String, String> {
    let mut words = words.split(' ');
    let work = match words.next() {
        Some("training") => Work::Training,
        Some("serving") => Work::Inference,
        other => return Err(format!("{other:?} is neither training nor serving")),
    };
    let without: Vec<&str> = words.collect();
    let Data::Json(answer) = sources.data("points-as-new")? else { return Err("points-as-new is no JSON".into()) };
    let error = |row: &serde_json::Value| {
        let of_work = Class::from_word(row["class"].as_str()?).and_then(Class::work) == Some(work);
        let counts = of_work && !without.contains(&row["chip"].as_str()?);
        row["error_pct"].as_f64().map(f64::abs).filter(|_| counts)
    };
    let mut errors: Vec<f64> = answer["rows"].as_array().into_iter().flatten().filter_map(error).collect();
    errors.sort_by(f64::total_cmp);
    let at = (0.9 * errors.len() as f64).ceil() as usize;
    errors.get(at.max(1) - 1).map(|error| error.ceil().to_string()).ok_or("no such rows".into())
}

/// Sizes of the memories of the catalogue, GB.
fn memories() -> Result<Vec<f64>, String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("systems/memories");
    let mut sizes = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let stated = text.lines().find_map(|line| line.strip_prefix("capacity: ")).and_then(|c| c.split_once(' '));
        let Some((number, unit)) = stated else { continue };
        let scale = match unit.trim() {
            "GB" => 1.0,
            "GiB" => 1.073_741_824,
            _ => continue,
        };
        sizes.push(number.parse::<f64>().map_err(|e| format!("{}: {e}", path.display()))? * scale);
    }
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    Ok(sizes)
}

/// Whether what was read on a chip would fit the memories that are sold, measured against predicted, by how near they are.
fn accuracy_fits(sources: &mut Sources) -> Result<String, String> {
    let Data::Json(answer) = sources.data("points-known")? else { return Err("points-known is no JSON".into()) };
    let readings = answer["rows"].as_array().into_iter().flatten().filter_map(|row| {
        let unit = row["unit"].as_str()?;
        let scale = Unit::read(unit, &Metric::PeakMemory).ok()?.factor / 1e9;
        let peak = row["class"].as_str() == Some(Class::PeakMemory.word());
        Some((row["measured"].as_f64()? * scale, row["predicted"].as_f64()? * scale)).filter(|_| peak)
    });
    let readings: Vec<(f64, f64)> = readings.collect();
    let mut out = String::from(
        "| memory within | verdicts | right | said to fit and would not | said not to fit and would |\n|---|---|---|---|---|\n",
    );
    for near in [0.05, 0.1, 0.25] {
        let (mut all, mut over, mut under) = (0, 0, 0);
        for size in memories()? {
            for (measured, predicted) in readings.iter().filter(|(m, _)| (m / size - 1.0).abs() <= near) {
                all += 1;
                over += usize::from(*measured > size && *predicted <= size);
                under += usize::from(*measured <= size && *predicted > size);
            }
        }
        let right = 100.0 * (all - over - under) as f64 / f64::from(all.max(1) as u32);
        out.push_str(&format!("| {:.0} % | {all} | {right:.0} % | {over} | {under} |\n", 100.0 * near));
    }
    Ok(out)
}

fn poplar_calibrated(id: &str) -> bool {
    id.starts_with("caraml-gc200-gpt") && ["-b64", "-b512", "-b4096"].iter().any(|batch| id.ends_with(batch))
}

/// Errors of serving by software: each calibrated on a half of its rows or less (docs/accuracy-inference.md), or on none.
fn accuracy_serving(sources: &mut Sources) -> Result<String, String> {
    let groups: [Group; 12] = [
        ("LLM-Inference-Bench, TensorRT-LLM on A100", |id| id.starts_with("lib-a100-40gb-tensorrt"), ""),
        (
            "LLM-Inference-Bench, TensorRT-LLM on H100, GH200",
            |id| {
                id.starts_with("lib-") && id.contains("h") && id.contains("0-80gb-tensorrt")
                    || id.starts_with("lib-gh200-tensorrt")
            },
            "",
        ),
        (
            "LLM-Inference-Bench, vLLM on A100, H100, GH200",
            |id| id.starts_with("lib-") && id.contains("-vllm-") && !id.contains("-mi"),
            "",
        ),
        ("LLM-Inference-Bench, vLLM on MI250 and MI300X", |id| id.starts_with("lib-mi"), ""),
        ("LLM-Inference-Bench, DeepSpeed on Gaudi 2", |id| id.starts_with("lib-gaudi2"), ""),
        ("TensorRT-LLM 0.17 under full load", |id| id.starts_with("trtllm-v0.17"), ""),
        (
            "TensorRT-LLM 1.0 and later under full load",
            |id| id.starts_with("trtllm-v1.0") || id.starts_with("trtllm-main"),
            "",
        ),
        ("TensorRT-LLM 0.9, batch stated", |id| id.starts_with("trtllm09"), ""),
        ("FasterTransformer on A100", |id| id.starts_with("ft-fast"), ""),
        ("Megatron-LM generating on A100", |id| id.starts_with("ft-mega"), ""),
        ("Tenstorrent", |id| id.starts_with("tt"), ""),
        ("WSE-2 (WaferLLM, T10, Ladder)", |id| id.starts_with("waferllm") && !id.contains("a100"), ""),
    ];
    accuracy_of("points-kernels", "inference-kernels", &groups, sources)
}

/// Errors of attention kernels by kernel and direction.
fn accuracy_attention(sources: &mut Sources) -> Result<String, String> {
    let groups: [Group; 5] = [
        ("FlashAttention-2, Hopper, forward", |id| id.starts_with("fa-hopper-2") && id.contains("-fwd-"), ""),
        ("FlashAttention-2, Hopper, backward", |id| id.starts_with("fa-hopper-2") && id.contains("-bwd-"), ""),
        ("FlashAttention-3, Hopper, forward", |id| id.starts_with("fa-hopper-3") && id.contains("-fwd-"), ""),
        ("FlashAttention-3, Hopper, backward", |id| id.starts_with("fa-hopper-3") && id.contains("-bwd-"), ""),
        ("class", |_| true, "**"),
    ];
    accuracy_of("points-kernels", "attention-kernels", &groups, sources)
}

/// Errors of a class by groups of names.
fn accuracy_of(source: &str, class: &str, groups: &[Group], sources: &mut Sources) -> Result<String, String> {
    let answer = match sources.data(source)? {
        Data::Json(answer) => answer,
        _ => return Err(format!("{source} is no JSON")),
    };
    let rows: Vec<(&str, f64)> = answer["rows"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|row| class.split(' ').any(|class| row["class"] == class))
        .filter_map(|row| Some((row["id"].as_str()?, row["error_pct"].as_f64()?)))
        .collect();
    let mut out = String::from("| points | number | mean abs. error | signed | worst |\n|---|---|---|---|---|\n");
    for (title, fits, bold) in groups {
        let chosen: Vec<&(&str, f64)> = rows.iter().filter(|(id, _)| fits(id)).collect();
        let n = chosen.len() as f64;
        let (worst, most) =
            chosen.iter().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).ok_or(format!("no points of {title}"))?;
        let mean = chosen.iter().map(|(_, e)| e.abs()).sum::<f64>() / n;
        let signed = chosen.iter().map(|(_, e)| e).sum::<f64>() / n;
        out.push_str(&format!(
            "| {bold}{title}{bold} | {bold}{}{bold} | {bold}{mean:.1} %{bold} | {bold}{signed:+.1} %{bold} | {most:+.1} % (`{worst}`) |\n",
            chosen.len()
        ));
    }
    Ok(out)
}
