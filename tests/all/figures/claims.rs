//! The tables of docs/claims.md: what DFModel's paper claims, beside what its semantics and our model give.

use super::expression::{Data, fits, write};
use super::source::{Sources, table as read_table};
use std::collections::BTreeMap;

type Row = BTreeMap<String, String>;

/// Chips that fuse kernels, over chips that run them one by one.
struct Pair {
    words: &'static str,
    fusing: &'static [&'static str],
    alone: &'static [&'static str],
}
const PAIRS: [Pair; 2] = [
    Pair { words: "SN30, WSE-2 over H100, TPU v4", fusing: &["sn30", "wse-2"], alone: &["h100", "tpu-v4"] },
    Pair { words: "SN30 over H100", fusing: &["sn30"], alone: &["h100"] },
];
/// Claims 1 to 3: what is compared, by which column, and what the paper says.
const CHIPS: [(&str, &str, &str); 3] = [
    ("1. performance", "utilization", "1.52"),
    ("2. cost efficiency", "flop_per_s_per_usd", "1.59"),
    ("3. power efficiency", "flop_per_s_per_w", "1.60"),
];

fn rows(id: &str, sources: &mut Sources) -> Result<Vec<Row>, String> {
    match sources.data(id)? {
        Data::Table(rows) => Ok(rows),
        _ => Err(format!("{id} is no study")),
    }
}

fn number(row: &Row, column: &str) -> Result<f64, String> {
    let text = row.get(column).ok_or_else(|| format!("there is no column {column}"))?;
    text.parse().map_err(|_| format!("{column} is {text:?}, no number"))
}

/// The mean of a column over the solved rows of some chips; none where no such row is solved.
fn mean(rows: &[Row], column: &str, filters: &str, chips: &[&str]) -> Result<Option<f64>, String> {
    let (mut sum, mut count) = (0.0, 0);
    for row in rows {
        let chip = row.get("chip").is_some_and(|chip| chips.contains(&chip.as_str()));
        if chip && fits(row, filters)? && !row.get(column).is_none_or(String::is_empty) {
            sum += number(row, column)?;
            count += 1;
        }
    }
    Ok((count > 0).then(|| sum / f64::from(count)))
}

/// How many times the mean of the chips that fuse is that of the others.
fn ratio(rows: &[Row], column: &str, filters: &str, of: &Pair) -> Result<f64, String> {
    match (mean(rows, column, filters, of.fusing)?, mean(rows, column, filters, of.alone)?) {
        (Some(fusing), Some(alone)) => Ok(fusing / alone),
        _ => Err(format!("no solved rows of {filters}")),
    }
}

fn times(value: f64) -> Result<String, String> {
    write(value, ".2f")
}

/// Solved rows that are proven, of all that are solved.
fn proven(rows: &[Row], filters: &str) -> Result<String, String> {
    let (mut optimal, mut all) = (0, 0);
    for row in rows {
        if fits(row, filters)? && row.get("iteration_s").is_some_and(|s| !s.is_empty()) {
            all += 1;
            optimal += usize::from(row.get("status").is_some_and(|s| s == "optimal"));
        }
    }
    Ok(format!("{optimal} of {all}"))
}

/// Seconds of the one row that fits.
fn seconds(rows: &[Row], filters: &str) -> Result<f64, String> {
    for row in rows {
        if fits(row, filters)? {
            return number(row, "iteration_s");
        }
    }
    Err(format!("no row has {filters}"))
}

/// How the chip computes in DFModel's setting with or without overlap.
fn share(overlap: &str) -> &'static str {
    if overlap == "full" { "0.9" } else { "lanes_stages" }
}

/// Stored seconds of a run of `LLM/dataflow_mapping`.
fn stored(run: &str, sources: &mut Sources) -> Result<f64, String> {
    let table = read_table(&sources.root().join("tests/golden/claims.csv"))?;
    let row = table.iter().find(|row| row.get("run").is_some_and(|r| r == run));
    number(row.ok_or_else(|| format!("no stored run {run}"))?, "seconds")
}

/// The workloads of DFModel's 640 points, and the class of measured points that is nearest to each.
const TASKS: [(&str, Option<(&str, &str)>); 4] = [
    ("gpt3-1t", Some(("training-published", "GPUs and TPUs"))),
    ("dlrm-0.8t", None),
    ("hpl-1m", Some(("hpl", "in 64-bit words, other chips"))),
    ("fft-2-40", None),
];

/// Mean error of a class of measured points.
fn band(class: &str, sources: &mut Sources) -> Result<String, String> {
    let Data::Json(answer) = sources.data("validate")? else { return Err("validate is no JSON".into()) };
    let mut classes = answer["classes"].as_array().into_iter().flatten();
    let found = classes.find(|c| c["name"] == class).and_then(|c| c["mape_pct"].as_f64());
    write(found.ok_or_else(|| format!("no class {class}"))? / 100.0, ".1%").map(|share| format!("{share} %"))
}

/// How far to trust our model on a workload, in a cell: no chip that fuses is validated on any of them.
fn nearest(class: Option<(&str, &str)>, sources: &mut Sources) -> Result<String, String> {
    match class {
        Some((class, on)) => Ok(format!("not validated; nearest {class} ({on}), {}", band(class, sources)?)),
        None => Ok("not validated".into()),
    }
}

/// A figure of the sentences: `ratio MODEL COLUMN PAIR TASK` (`mean`: of the four workloads), `below MODEL COLUMN PAIR` (on how many of the four the ratio is below
/// one), `assumed MODEL COLUMN PAIR VARIANT SHARE`, `least STUDY SLOW MODEL` (of all settings of a study), `band CLASS`, `stored COLUMN RUN OTHER` (how many times
/// the other run's), `utilization RUN`.
pub fn value(rest: &str, sources: &mut Sources) -> Result<String, String> {
    let words: Vec<&str> = rest.split(' ').collect();
    let pair = |word: &str| PAIRS.iter().find(|p| (word == "sn30") == (p.fusing.len() == 1)).ok_or("no such pair");
    let space = |model: &str| if model == "dfmodel" { "design-space-dfmodel" } else { "design-space" };
    let of_task = |rows: &[Row], column: &str, of: &Pair, task: &str| {
        ratio(rows, column, &format!("task={task},overlap=none"), of)
    };
    match words[..] {
        ["ratio", model, column, of, task] => {
            let rows = rows(space(model), sources)?;
            let all: Vec<f64> = (TASKS.iter())
                .filter(|(name, _)| task == "mean" || *name == task)
                .map(|(name, _)| of_task(&rows, column, pair(of)?, name))
                .collect::<Result<_, String>>()?;
            times(all.iter().sum::<f64>() / all.len() as f64)
        }
        ["below", model, column, of] => {
            let rows = rows(space(model), sources)?;
            let mut below = 0;
            for (task, _) in TASKS {
                below += usize::from(of_task(&rows, column, pair(of)?, task)? < 1.0);
            }
            Ok(below.to_string())
        }
        ["assumed", model, column, of, variant, share] => {
            let rows = rows("claims-dataflow-chips", sources)?;
            times(ratio(&rows, column, &format!("model={model},share={share},variant={variant}"), pair(of)?)?)
        }
        ["least", study, slow, model] => {
            let rows = rows(study, sources)?;
            let mut least = f64::INFINITY;
            for row in rows.iter().filter(|r| r["mapping"] == slow && r["model"] == model) {
                let at = format!("model={model},share={},overlap={}", row["share"], row["overlap"]);
                for fused in ["dataflow-8x1", "dataflow-4x2"] {
                    let fused = seconds(&rows, &format!("{at},mapping={fused}"))?;
                    least = least.min(number(row, "iteration_s")? / fused);
                }
            }
            times(least)
        }
        ["band", class] => band(class, sources),
        ["stored", column, run, other] => {
            let [run, other] = [stored_row(run, sources)?, stored_row(other, sources)?];
            let per = |row: &Row| -> Result<f64, String> {
                let whole = number(row, "flop")? / number(row, "seconds")?;
                Ok(match column {
                    "throughput" => whole,
                    "share" => whole / number(row, "chips")? / number(row, "chip_gflops")?,
                    _ => whole / number(row, column)?,
                })
            };
            let value = per(&run)? / per(&other)?;
            if value < 1.0 { write(value, ".2g") } else { times(value) }
        }
        ["utilization", run] => {
            let row = stored_row(run, sources)?;
            let peak = number(&row, "chips")? * number(&row, "chip_gflops")? * 1e9;
            times(number(&row, "flop")? / number(&row, "seconds")? / peak)
        }
        _ => Err(format!("no figure of claims is called {rest}")),
    }
}

fn stored_row(run: &str, sources: &mut Sources) -> Result<Row, String> {
    let table = read_table(&sources.root().join("tests/golden/claims-stored.csv"))?;
    table.into_iter().find(|row| row.get("run").is_some_and(|r| r == run)).ok_or_else(|| format!("no stored run {run}"))
}

/// Claims 1 to 3 by workload: both models, over the 80 systems each, without overlap.
pub fn chips(sources: &mut Sources) -> Result<String, String> {
    let theirs = rows("design-space-dfmodel", sources)?;
    let ours = rows("design-space", sources)?;
    let mut out = String::from(
        "| claim | the paper | chips | workload | DFModel's semantics | our model | our model's band |\n|---|---|---|---|---|---|---|\n",
    );
    for (claim, column, paper) in CHIPS {
        for pair in &PAIRS {
            let head = format!("| {claim} | {paper} | {} |", pair.words);
            let mut sums = [0.0; 2];
            for (task, class) in TASKS {
                let filters = format!("task={task},overlap=none");
                let both = [ratio(&theirs, column, &filters, pair)?, ratio(&ours, column, &filters, pair)?];
                (sums[0], sums[1]) = (sums[0] + both[0], sums[1] + both[1]);
                let band = nearest(class, sources)?;
                out += &format!("{head} {task} | {} | {} | {band} |\n", times(both[0])?, times(both[1])?);
            }
            let [theirs, ours] = sums.map(|sum| times(sum / TASKS.len() as f64));
            out += &format!("{head} **mean of the four** | **{}** | **{}** | |\n", theirs?, ours?);
        }
    }
    let proofs = [proven(&theirs, "overlap=none")?, proven(&ours, "overlap=none")?];
    out += &format!("| points proven optimal | | | all | {} | {} | |\n", proofs[0], proofs[1]);
    Ok(out)
}

/// Claims 1 to 3 by what was assumed: GPT-3 1T on 16 systems.
pub fn assumptions(sources: &mut Sources) -> Result<String, String> {
    let rows = rows("claims-dataflow-chips", sources)?;
    let mut out = String::from(
        "| chips | variant | share of the peak | performance, DFModel | cost, DFModel | power, DFModel | performance, ours | cost, ours | power, ours |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for pair in &PAIRS {
        for variant in ["as-published", "all-fuse", "no-launch", "equal-price"] {
            for share in ["0.45", "0.9"] {
                out += &format!("| {} | {variant} | {share} |", pair.words);
                for model in ["dfmodel", "flowspace"] {
                    for (_, column, _) in CHIPS {
                        let filters = format!("model={model},share={share},variant={variant}");
                        out += &format!(" {} |", times(ratio(&rows, column, &filters, pair)?)?);
                    }
                }
                out.push('\n');
            }
        }
    }
    Ok(out)
}

/// Claims 4 and 5: times of mappings on eight SN10.
pub fn mappings(sources: &mut Sources) -> Result<String, String> {
    let alone = rows("claims-kernel-by-kernel", sources)?;
    let vendor = rows("claims-vendor", sources)?;
    let mut out = String::from(
        "| claim | overlap | the paper | stored logs | DFModel's semantics | our model | ours at 0.45 of the peak | our model's band |\n|---|---|---|---|---|---|---|---|\n",
    );
    let band = nearest(Some(("inference-kernels", "serving on SN40L among others")), sources)?;
    let claims = [
        ("4. over kernel by kernel", "kbk-8x1", "6.13", &alone),
        ("5. over the vendor's", "vendor-8x1", "1.52", &vendor),
    ];
    for (claim, slow, paper, rows) in claims {
        for overlap in ["full", "none"] {
            let of = |model: &str, share: &str| -> Result<f64, String> {
                let at = |mapping: &str| format!("model={model},share={share},overlap={overlap},mapping={mapping}");
                Ok(seconds(rows, &at(slow))? / seconds(rows, &at("dataflow-4x2"))?)
            };
            let logs =
                stored(&format!("{slow}-{overlap}"), sources)? / stored(&format!("dataflow-4x2-{overlap}"), sources)?;
            let paper = if overlap == "full" { paper } else { "" };
            let share = share(overlap);
            let values = [logs, of("dfmodel", share)?, of("flowspace", share)?, of("flowspace", "0.45")?];
            let values: Vec<String> = values.into_iter().map(times).collect::<Result<_, _>>()?;
            out += &format!("| {claim} | {overlap} | {paper} | {} | {band} |\n", values.join(" | "));
        }
    }
    out += &format!(
        "| points proven optimal | | | | {} | {} | | |\n",
        proven(&alone, "model=dfmodel")? + " and " + &proven(&vendor, "model=dfmodel")?,
        proven(&alone, "model=flowspace")? + " and " + &proven(&vendor, "model=flowspace")?
    );
    Ok(out)
}

/// Seconds behind claims 4 and 5.
pub fn times_of_mappings(sources: &mut Sources) -> Result<String, String> {
    let alone = rows("claims-kernel-by-kernel", sources)?;
    let vendor = rows("claims-vendor", sources)?;
    let mut out = String::from(
        "| mapping | overlap | stored, s | DFModel's semantics, s | our model, s |\n|---|---|---|---|---|\n",
    );
    let mappings = [("kbk-8x1", &alone), ("vendor-8x1", &vendor), ("dataflow-8x1", &alone), ("dataflow-4x2", &alone)];
    for (mapping, rows) in mappings {
        for overlap in ["full", "none"] {
            let share = share(overlap);
            let of = |model: &str| {
                seconds(rows, &format!("model={model},share={share},overlap={overlap},mapping={mapping}"))
            };
            let logged = stored(&format!("{mapping}-{overlap}"), sources)?;
            let values = [logged, of("dfmodel")?, of("flowspace")?].map(|s| write(s, ".2f"));
            let values: Vec<String> = values.into_iter().collect::<Result<_, _>>()?;
            out += &format!("| {mapping} | {overlap} | {} |\n", values.join(" | "));
        }
    }
    Ok(out)
}
