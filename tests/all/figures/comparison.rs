//! The tables of docs/gpu-vs-dataflow.md, from the rows of its two studies.

use super::expression::significant;
use super::source::Sources;
use super::tables::{Row, cell, number, rows};

/// Which rate of a row is compared: what is generated, or what is trained.
fn rate(row: &Row, per: &str) -> Option<f64> {
    let of = |column: &str| number(row, &format!("{column}{per}")).ok().filter(|x| x.is_finite() && *x > 0.0);
    of("generated_per_s").or_else(|| of("tokens_per_s"))
}

fn distinct<'r>(rows: &'r [Row], column: &str) -> Result<Vec<&'r str>, String> {
    let mut out: Vec<&str> = Vec::new();
    for row in rows {
        let label = cell(row, column)?;
        if !out.contains(&label) {
            out.push(label);
        }
    }
    Ok(out)
}

/// Chips x tasks: tokens a second with the error that predictions of their class had; `*` not validated; or what is short.
pub fn rates(equal: &str, sources: &mut Sources) -> Result<String, String> {
    let all = rows("gpu-vs-dataflow", sources)?;
    let (chips, tasks) = (distinct(&all, "chip")?, distinct(&all, "task")?);
    let mut out = format!("| {equal} | {} |\n|---|{}|\n", tasks.join(" | "), vec!["---"; tasks.len()].join("|"));
    for chip in chips {
        let mut line = format!("| {chip} |");
        for task in &tasks {
            let is = |row: &&Row| {
                row.get("chip").is_some_and(|c| c == chip)
                    && row.get("task").is_some_and(|t| t == task)
                    && row.get("equal").is_some_and(|e| e == equal)
            };
            let row = all.iter().find(is).ok_or_else(|| format!("no row of {chip} {task} {equal}"))?;
            let text = match rate(row, "") {
                Some(rate) => {
                    let band = number(row, "error_band_pct").map_or("*".into(), |band| format!(" ±{band:.0} %"));
                    format!("{}{band} ({})", significant(rate, 3), cell(row, "chips")?)
                }
                None => format!("no: {}", why(cell(row, "reason")?)),
            };
            line.push_str(&format!(" {text} |"));
        }
        out.push_str(&format!("{line}\n"));
    }
    Ok(out)
}

/// What a point without a plan is short of.
fn why(reason: &str) -> &str {
    if reason.contains("not known") {
        return "not known";
    }
    reason.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map_or("failed", |(resource, _)| resource)
}

/// Whether a chip is one that fuses.
fn is_dataflow(chip: &str) -> bool {
    ["sn30", "sn40l", "wse-2"].contains(&chip)
}

/// Tasks x kinds of equality: the best, the best of the other kind of chip, and how far apart they are beside the errors of both.
pub fn winners(sources: &mut Sources) -> Result<String, String> {
    let all = rows("gpu-vs-dataflow", sources)?;
    let mut out =
        String::from("| task | equal | best | best of the others | apart | told apart |\n|---|---|---|---|---|---|\n");
    for task in distinct(&all, "task")? {
        for equal in distinct(&all, "equal")? {
            let here = all.iter().filter(|row| {
                row.get("task").is_some_and(|t| t == task) && row.get("equal").is_some_and(|e| e == equal)
            });
            // Budgets are not used up alike: what was paid for counts.
            let per = match equal {
                "price" => "_per_usd",
                "power" => "_per_w",
                _ => "",
            };
            let mut found: Vec<(f64, &str, Option<f64>)> = Vec::new();
            for row in here {
                if let Some(rate) = rate(row, per) {
                    found.push((rate, cell(row, "chip")?, number(row, "error_band_pct").ok()));
                }
            }
            found.sort_by(|a, b| b.0.total_cmp(&a.0));
            let Some(best) = found.first() else {
                out.push_str(&format!("| {task} | {equal} | none fits | | | |\n"));
                continue;
            };
            let other = found.iter().find(|f| is_dataflow(f.1) != is_dataflow(best.1));
            let Some(other) = other else {
                out.push_str(&format!("| {task} | {equal} | {} | none fits | | |\n", best.1));
                continue;
            };
            let apart = best.0 / other.0;
            let told = match (best.2, other.2) {
                (Some(a), Some(b)) => {
                    if apart > (1.0 + a / 100.0) * (1.0 + b / 100.0) {
                        "yes"
                    } else {
                        "no"
                    }
                }
                _ => "not validated",
            };
            out.push_str(&format!("| {task} | {equal} | {} | {} | {apart:.2} | {told} |\n", best.1, other.1));
        }
    }
    Ok(out)
}

/// Chips: what of the software's time each step to what is possible saves, per cent, in the rows of a task at equal number.
pub fn steps(task: &str, sources: &mut Sources) -> Result<String, String> {
    const STEPS: [&str; 8] =
        ["host", "fusion", "sharding", "overlap", "recomputation", "schedule", "degrees", "mapping"];
    let all = rows("gpu-vs-dataflow", sources)?;
    let mut out =
        format!("| {task} | software | {} | possible |\n|---|---|{}---|\n", STEPS.join(" | "), "---|".repeat(8));
    for row in all.iter().filter(|row| {
        row.get("task").is_some_and(|t| t == task) && row.get("equal").is_some_and(|equal| equal == "chips")
    }) {
        // What its software was measured with is not beside the wafer that its graphs are mapped onto.
        if cell(row, "chip")? == "wse-2" {
            continue;
        }
        let seconds = |column: &str| number(row, column).ok().filter(|x| x.is_finite());
        let Some(software) = seconds("software_iteration_s") else {
            out.push_str(&format!("| {} | does not fit |{}\n", cell(row, "chip")?, " |".repeat(9)));
            continue;
        };
        let saved = STEPS.map(|step| {
            let saved = seconds(&format!("saved_{step}_s"));
            saved.map_or(String::new(), |saved| format!("{:.1} %", 100.0 * saved / software + 0.0))
        });
        out.push_str(&format!(
            "| {} | {} s | {} | {} s |\n",
            cell(row, "chip")?,
            significant(software, 3),
            saved.join(" | "),
            significant(number(row, "iteration_s")?, 3)
        ));
    }
    Ok(out)
}

/// The value between tried ones at which `of` reaches `level`, or why there is none.
fn flip(tried: &[(f64, f64)], level: f64, unit: &str) -> String {
    for pair in tried.windows(2) {
        let [(x0, y0), (x1, y1)] = [pair[0], pair[1]];
        if (y0 - level) * (y1 - level) <= 0.0 && y0 != y1 {
            let x = x0 + (x1 - x0) * (level - y0) / (y1 - y0);
            return format!("{}{unit}", significant(x, 2));
        }
    }
    match (tried.first(), tried.last()) {
        (Some((low, y)), Some((high, _))) => {
            format!("{} ({low} to {high})", if *y > level { "wins" } else { "loses" })
        }
        _ => "-".into(),
    }
}

/// The numbers that were tried: how their labels begin and end, and their unit.
const TRIED: [(&str, &str, &str); 4] =
    [("share-", "", ""), ("launch-", "us", " us"), ("vector-", "T", " TFLOP/s"), ("dram-", "", "")];

/// Each dataflow chip beside each other chip: its rate for its price over the other's, which is also the price of the other, of its own, at which they tie; and at
/// which value of one number of one of them.
pub fn flips(sources: &mut Sources) -> Result<String, String> {
    let all = rows("gpu-vs-dataflow-sensitivity", sources)?;
    let (chips, labels) = (distinct(&all, "chip")?, distinct(&all, "number")?);
    let of = |chip: &str, label: &str| {
        let is = |r: &&Row| r.get("chip").is_some_and(|c| c == chip) && r.get("number").is_some_and(|n| n == label);
        rate(all.iter().find(is)?, "_per_usd")
    };
    let tried = |chip: &str, (prefix, suffix, _): (&str, &str, &str)| {
        let value = |label: &str| label.strip_prefix(prefix)?.strip_suffix(suffix)?.parse::<f64>().ok();
        let mut tried: Vec<(f64, f64)> =
            labels.iter().filter_map(|label| Some((value(label)?, of(chip, label)?))).collect();
        tried.sort_by(|a, b| a.0.total_cmp(&b.0));
        tried
    };
    let mut out = String::from(
        "| | over | rate for the price | ties at share of the peak | of the other | at launch | at vector rate | at share of DRAM |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for chip in chips.iter().filter(|chip| is_dataflow(chip)) {
        for other in chips.iter().filter(|chip| !is_dataflow(chip)) {
            let (Some(own), Some(level)) = (of(chip, "as-stated"), of(other, "as-stated")) else {
                out.push_str(&format!("| {chip} | {other} | does not fit | | | | | |\n"));
                continue;
            };
            let at = |number: (&str, &str, &str)| {
                let tried = tried(chip, number);
                let moves = tried.iter().any(|(_, y)| (y / tried[0].1 - 1.0).abs() > 1e-3);
                if moves { flip(&tried, level, number.2) } else { "does not matter".into() }
            };
            // Where the other one wins, this one loses.
            let theirs = match flip(&tried(other, TRIED[0]), own, "") {
                text if text.starts_with("wins") => text.replacen("wins", "loses", 1),
                text => text.replacen("loses", "wins", 1),
            };
            out.push_str(&format!(
                "| {chip} | {other} | {:.2} | {} | {} | {} | {} | {} |\n",
                own / level,
                at(TRIED[0]),
                theirs,
                at(TRIED[1]),
                at(TRIED[2]),
                at(TRIED[3])
            ));
        }
    }
    Ok(out)
}
