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

/// Claims 1 to 3 by workload: both models, over the 80 systems each, without overlap.
pub fn chips(sources: &mut Sources) -> Result<String, String> {
    let theirs = rows("design-space-dfmodel", sources)?;
    let ours = rows("design-space", sources)?;
    let mut out = String::from(
        "| claim | the paper | chips | workload | DFModel's semantics | our model |\n|---|---|---|---|---|---|\n",
    );
    let tasks = ["gpt3-1t", "dlrm-0.8t", "hpl-1m", "fft-2-40"];
    for (claim, column, paper) in CHIPS {
        for pair in &PAIRS {
            let head = format!("| {claim} | {paper} | {} |", pair.words);
            let mut sums = [0.0; 2];
            for task in tasks {
                let filters = format!("task={task},overlap=none");
                let both = [ratio(&theirs, column, &filters, pair)?, ratio(&ours, column, &filters, pair)?];
                (sums[0], sums[1]) = (sums[0] + both[0], sums[1] + both[1]);
                out += &format!("{head} {task} | {} | {} |\n", times(both[0])?, times(both[1])?);
            }
            let [theirs, ours] = sums.map(|sum| times(sum / tasks.len() as f64));
            out += &format!("{head} **mean of the four** | **{}** | **{}** |\n", theirs?, ours?);
        }
    }
    let proofs = [proven(&theirs, "overlap=none")?, proven(&ours, "overlap=none")?];
    out += &format!("| points proven optimal | | | all | {} | {} |\n", proofs[0], proofs[1]);
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
        "| claim | overlap | the paper | stored logs | DFModel's semantics | our model | ours at 0.45 of the peak |\n|---|---|---|---|---|---|---|\n",
    );
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
            out += &format!("| {claim} | {overlap} | {paper} | {} |\n", values.join(" | "));
        }
    }
    out += &format!(
        "| points proven optimal | | | | {} | {} | |\n",
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
