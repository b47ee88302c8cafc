//! `flowspace map` of a language model with `pass: inference` onto a chip with `kernels:`: every layout and batch, the best of them.

use super::Failure;
use super::args::time;
use super::execution_file::{Trees, refuse_twice};
use super::interrupt::Interrupt;
use super::map::{Format, MapArgs};
use super::money::stated;
use super::money::{self, Account};
use super::present::{align, plain, significant};
use super::serving_file;
use crate::check::serving::{self, Figures};
use crate::deadline::Deadline;
use crate::execution::inference::file::Decision;
use crate::execution::inference::search::{Goal, Reached};
use crate::execution::inference::{Layout, Limits, Outcome, Prediction, Server, Wanted, search_until};
use crate::execution::not_within;
use crate::execution::search::Aim;
use crate::model::objective::Objective;
use crate::progress::Waiting;
use crate::report::statement;
use crate::solver::record::Status;
use crate::system::economics::Economics;
use crate::system::{System, price};
use crate::units::{Bytes, Seconds};
use crate::workload::language::LanguageModel;
use clap::Args;
use comfy_table::Table;
use serde_json::{Value, json};

/// Decisions and limits of inference.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Inference of language models (chips with `kernels:`)")]
pub struct InferenceArgs {
    /// Batches to try: numbers and ranges such as 1,4,16 or 1..256 (a range takes its powers of two and its ends). The workload's
    /// global_batch if left out.
    #[arg(long, value_name = "LIST", value_parser = batches)]
    pub batch: Option<Batches>,
    /// Longest time to the first token, such as 500ms, of the sequence that waits longest.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub max_ttft: Option<f64>,
    /// Longest time for each further token, such as 20ms, of the last token.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub max_tpot: Option<f64>,
    /// What the best is: throughput (generated tokens a second) or latency (until the last token). [default: throughput]
    #[arg(long, value_name = "GOAL", value_parser = goal)]
    pub goal: Option<Goal>,
}

impl InferenceArgs {
    /// The options that were typed.
    pub fn typed(&self) -> Vec<&'static str> {
        let given = [
            ("--batch", self.batch.is_some()),
            ("--max-ttft", self.max_ttft.is_some()),
            ("--max-tpot", self.max_tpot.is_some()),
            ("--goal", self.goal.is_some()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }
}

/// Batches, ascending and different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batches(pub Vec<u64>);

/// Largest batch.
const MOST: u64 = 1 << 32;

/// Reads them.
///
/// # Errors
/// What would fit.
pub(super) fn batches(text: &str) -> Result<Batches, String> {
    let wrong = || format!("expected batches such as 8, 1,4,16 or 1..256, of at most {MOST}, found {text:?}");
    let number = |t: &str| t.trim().parse::<u64>().ok().filter(|n| (1..=MOST).contains(n)).ok_or_else(wrong);
    let mut found = Vec::new();
    for piece in text.split(',') {
        match piece.split_once("..") {
            None => found.push(number(piece)?),
            Some((from, to)) => {
                let (from, to) = (number(from)?, number(to)?);
                if from > to {
                    return Err(wrong());
                }
                found.extend([from, to]);
                found.extend((0..33).map(|e| 1u64 << e).filter(|n| (from..=to).contains(n)));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(Batches(found))
}

fn goal(text: &str) -> Result<Goal, String> {
    let words: Vec<&str> = Goal::ALL.iter().map(|g| g.word()).collect();
    Goal::from_word(text).ok_or_else(|| super::args::none_of(text, &words))
}

/// Searches and prints.
///
/// # Errors
/// [`Failure`]: a chip or model that inference cannot be predicted for, nothing that fits or keeps to the limits.
pub(super) fn run(args: &MapArgs, model: &LanguageModel, system: &System, trees: &Trees) -> Result<i32, Failure> {
    let server = Server::new(system).map_err(Failure::input)?;
    let economics = super::map::economics(args);
    let given = &args.inference;
    let mut wanted = Wanted {
        tp: args.tp,
        pp: args.pp,
        dp: args.dp,
        ep: args.execution.ep,
        batches: given.batch.as_ref().map_or_else(|| vec![model.global_batch], |b| b.0.clone()),
        limits: Limits { ttft_s: given.max_ttft, tpot_s: given.max_tpot },
        goal: given.goal.unwrap_or(Goal::Throughput),
        aim: Aim::of(args.objective, &economics, system).map_err(Failure::input)?,
    };
    if let Some(file) = trees.serving() {
        let typed = [
            ("--tp", Decision::Tp, wanted.tp.is_some()),
            ("--pp", Decision::Pp, wanted.pp.is_some()),
            ("--dp", Decision::Dp, wanted.dp.is_some()),
            ("--ep", Decision::Ep, wanted.ep.is_some()),
            ("--batch", Decision::Batch, given.batch.is_some()),
        ];
        let twice = typed.iter().filter(|(_, decision, typed)| *typed && file.pin.contains(decision));
        refuse_twice(&twice.map(|(option, ..)| *option).collect::<Vec<_>>())?;
        file.pin(&mut wanted);
    }
    let _interrupt = Interrupt::of_search();
    let waiting = Waiting::begin("searching", args.time_limit);
    let outcome = search_until(&server, model, &wanted, Deadline::after(args.time_limit));
    drop(waiting);
    let outcome = outcome.map_err(Failure::input)?;
    let proven = statement::of_serving(&outcome, wanted.sought(), args.time_limit, system);
    if outcome.best.is_none() {
        let reason = if outcome.stopped { not_within() } else { reason(&outcome, &wanted.limits) };
        if args.format == Format::Json {
            let object = json!({ "workload": model.name, "system": system.name, "status": status(&outcome), "statement": proven, "reason": reason });
            super::print(&format!("{object:#}\n"));
        }
        return Err(Failure::input(reason));
    }
    for best in outcome.by_batch.iter().filter_map(|of| of.best.as_ref()) {
        checked(best, model, system)?;
    }
    let how = How { wanted: &wanted, economics: &economics, proven: &proven };
    super::print(&match args.format {
        Format::Text => text(&outcome, model, system, &how),
        Format::Json => format!("{:#}\n", to_json(&outcome, model, system, &server, &how)),
    });
    if let (Some(path), Some(best)) = (&args.plan_out, &outcome.best) {
        let all = outcome.predicted + outcome.out_of_memory;
        let source = format!("flowspace map: the best {} of {all} layouts and batches", wanted.sought().1);
        let pin = trees.serving().map_or(&[][..], |file| &file.pin);
        serving_file::write(path, best, (&source, pin), (model, system), (&trees.workload, &trees.system))?;
    }
    Ok(0)
}

/// The prediction, if the checker derives the same figures from its decisions.
///
/// # Errors
/// [`Failure`]: it does not, which is a fault of the program.
pub(super) fn checked(p: &Prediction, model: &LanguageModel, system: &System) -> Result<Figures, Failure> {
    serving::verify(system, model, p).map_err(|e| {
        Failure::input(format!("internal error, please report it: the checker refuses the plan of serving: {e}"))
    })
}

/// What was searched for.
struct How<'a> {
    wanted: &'a Wanted,
    economics: &'a Economics,
    proven: &'a str,
}

/// One prediction, of decisions that are given.
pub(super) fn given(p: &Prediction, model: &LanguageModel, system: &System) -> String {
    let mut table = header(model);
    table.add_row(row(p, system));
    align(&mut table, &COLUMNS);
    format!(
        "{}{table}\n\n{}\n\n{}\n{}",
        title(model, system),
        statement::serving_software(system),
        details(p, system),
        money::table(&Account::of_serving(p, system))
    )
}

/// How a search ended.
fn status(outcome: &Outcome) -> &'static str {
    match &outcome.best {
        _ if outcome.stopped => Status::out_of_time().word(),
        Some(_) => "optimal",
        None => "infeasible",
    }
}

fn reason(outcome: &Outcome, limits: &Limits) -> String {
    match &outcome.nearest {
        Some(nearest) if outcome.predicted == 0 => format!("infeasible: no layout fits; nearest is {nearest}"),
        _ => format!(
            "infeasible: none of {} layouts and batches keeps to the limits ({} more do not fit the memory); {}",
            outcome.predicted,
            outcome.out_of_memory,
            reachable(limits, outcome.least_ttft, outcome.least_tpot)
        ),
    }
}

/// What the limits are set against: the least that any layout reaches of each that is given.
fn reachable(limits: &Limits, ttft: Option<Reached>, tpot: Option<Reached>) -> String {
    let given = [
        ("--max-ttft", "to the first token", limits.ttft_s, ttft),
        ("--max-tpot", "for each further token", limits.tpot_s, tpot),
    ];
    let told: Vec<String> = given
        .into_iter()
        .filter_map(|(option, what, limit, reached)| {
            let (limit, reached) = (limit?, reached?);
            let Layout { tp, pp, dp, ep } = reached.layout;
            let verdict = if reached.seconds > limit { "above" } else { "within" };
            Some(format!(
                "the least time {what} is {} (batch {}, TP {tp} PP {pp} DP {dp} EP {ep}), {verdict} {option} {}",
                Seconds(reached.seconds),
                reached.batch,
                Seconds(limit)
            ))
        })
        .collect();
    let both = told.len() == 2 && told.iter().all(|line| line.contains("within"));
    format!("{}{}", told.join("; "), if both { "; no layout keeps both" } else { "" })
}

/// Why a batch has no row, for each that has none.
fn none_because(outcome: &Outcome, limits: &Limits) -> String {
    let mut out = String::new();
    for of in outcome.by_batch.iter().filter(|of| of.best.is_none()) {
        let why = if of.predicted == 0 {
            format!("none of {} layouts fits the memory", of.out_of_memory)
        } else {
            reachable(limits, of.least_ttft, of.least_tpot)
        };
        out.push_str(&format!("batch {}: {why}\n", of.batch));
    }
    if out.is_empty() { out } else { out + "\n" }
}

/// Generated (or read) tokens a second of the whole system, per dollar of its price and per watt at full use; not a number where the chips state none.
fn per_price_and_power(p: &Prediction, system: &System) -> (f64, f64) {
    let rate = p.per_chip * p.layout.chips() as f64;
    (rate / price::cost(system).known(), rate / price::power(system).known())
}

fn row(p: &Prediction, system: &System) -> [String; 14] {
    let (dollar, watt) = per_price_and_power(p, system);
    let l = &p.layout;
    [
        p.batch.to_string(),
        l.tp.to_string(),
        l.pp.to_string(),
        l.dp.to_string(),
        l.ep.to_string(),
        p.at_once.to_string(),
        Seconds(p.last_ttft_s).to_string(),
        Seconds(p.tpot_s).to_string(),
        Seconds(p.last_tpot_s).to_string(),
        Seconds(p.latency_s).to_string(),
        significant(if p.generated_per_s > 0.0 { p.generated_per_s } else { p.tokens_per_s }),
        significant(p.per_chip),
        stated(dollar),
        stated(watt),
    ]
}

fn text(outcome: &Outcome, model: &LanguageModel, system: &System, how: &How<'_>) -> String {
    let wanted = how.wanted;
    let mut table = header(model);
    for of in &outcome.by_batch {
        match &of.best {
            Some(p) => table.add_row(row(p, system)),
            None => table.add_row([of.batch.to_string(), "none".into()]),
        };
    }
    align(&mut table, &COLUMNS);
    let mut out = format!("{}{table}\n\n{}", title(model, system), none_because(outcome, &wanted.limits));
    let Some(p) = &outcome.best else { return out };
    out.push_str(&format!(
        "{}: batch {}, TP {} PP {} DP {} EP {}, {} wave{}\n{}\n\n",
        match wanted.aim.objective {
            Objective::Time => format!("best {}", wanted.goal),
            _ => format!("least {}", wanted.sought().1),
        },
        p.batch,
        p.layout.tp,
        p.layout.pp,
        p.layout.dp,
        p.layout.ep,
        p.waves,
        if p.waves == 1 { "" } else { "s" },
        how.proven
    ));
    out.push_str(&details(p, system));
    let account = Account::of_serving(p, system);
    out.push_str(&format!("\n{}", money::table(&account)));
    let value = p.value(&wanted.aim.worth) / p.tokens();
    let bound = if outcome.stopped { 0.0 } else { value };
    out.push_str(&money::running(&account, how.economics, (wanted.aim.objective, value, bound)));
    out
}

/// The columns of the table, all numbers.
const COLUMNS: [usize; 14] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13];

fn title(model: &LanguageModel, system: &System) -> String {
    format!(
        "{} on {} ({} chips): prompts of {} tokens, {} generated\n\n",
        model.name,
        system.name,
        system.chip_count(),
        model.seq,
        model.generated.unwrap_or(0)
    )
}

fn header(model: &LanguageModel) -> Table {
    let mut table = plain();
    table.set_header([
        "batch",
        "TP",
        "PP",
        "DP",
        "EP",
        "at once",
        "first token",
        "per token",
        "last token",
        "latency",
        // The unit of the three columns after it too.
        if model.generated.unwrap_or(0) > 0 { "generated/s" } else { "prompt tokens/s" },
        "per chip",
        "per $",
        "per W",
    ]);
    table
}

/// What the prompts and a step are spent on, and the memory.
fn details(p: &Prediction, system: &System) -> String {
    let mut out = String::new();
    let mut spent = plain();
    spent.set_header(["", "prompts", "mean step"]);
    for (name, prompt, step) in [
        ("weights", p.prompt.weights, p.step.weights),
        ("attention", p.prompt.attention, p.step.attention),
        ("vector", p.prompt.vector, p.step.vector),
        ("kernel starts", p.prompt.kernels, p.step.kernels),
        ("network", p.prompt.network, p.step.network),
        ("host", p.prompt.host, p.step.host),
    ] {
        if prompt + step > 0.0 {
            spent.add_row([name.to_string(), Seconds(prompt).to_string(), Seconds(step).to_string()]);
        }
    }
    align(&mut spent, &[1, 2]);
    out.push_str(&format!("{spent}\n\n"));
    let mut memory = plain();
    memory.set_header(["memory of a chip", "bytes"]);
    for (name, bytes) in [
        ("weights", p.memory.weights),
        ("keys and values", p.memory.cache),
        ("buffers", p.memory.buffers),
        ("sum", p.memory.total()),
    ] {
        memory.add_row([name.to_string(), Bytes(bytes).to_string()]);
    }
    if let Some(capacity) = system.memory.0.capacity {
        memory.add_row(["capacity".to_string(), capacity.to_string()]);
    }
    align(&mut memory, &[1]);
    out.push_str(&format!("{memory}\n"));
    out
}

fn prediction_json(p: &Prediction, system: &System, economics: &Economics) -> Value {
    let (dollar, watt) = per_price_and_power(p, system);
    let mut object = serde_json::to_value(p).unwrap_or(Value::Null);
    if let Value::Object(map) = &mut object {
        // Of the same tokens as `per_chip`.
        let tokens = if p.generated_per_s > 0.0 { "generated" } else { "tokens" };
        map.insert(format!("{tokens}_per_s_per_usd"), json!(dollar));
        map.insert(format!("{tokens}_per_s_per_w"), json!(watt));
        let account = Account::of_serving(p, system);
        map.insert("energy".into(), money::energy_json(&account));
        map.insert("money".into(), money::running_json(&account, economics));
    }
    object
}

fn to_json(outcome: &Outcome, model: &LanguageModel, system: &System, server: &Server, how: &How<'_>) -> Value {
    let wanted = how.wanted;
    json!({
        "workload": model.name,
        "system": system.name,
        "status": status(outcome),
        "statement": how.proven,
        "goal": (wanted.aim.objective == Objective::Time).then_some(wanted.goal),
        "objective": wanted.aim.objective,
        "unit": wanted.aim.objective.unit(),
        "value_by_token": outcome.best.as_ref().map(|p| p.value(&wanted.aim.worth) / p.tokens()),
        "prompt_tokens": model.seq,
        "generated_tokens": model.generated.unwrap_or(0),
        "capacity_bytes": server.machine.capacity,
        "best": outcome.best.as_ref().map(|p| prediction_json(p, system, how.economics)),
        "by_batch": outcome.by_batch.iter().map(|of| json!({
            "batch": of.batch,
            "predicted": of.predicted,
            "out_of_memory": of.out_of_memory,
            "least_ttft_s": of.least_ttft.map(|r| r.seconds),
            "least_tpot_s": of.least_tpot.map(|r| r.seconds),
            "best": of.best.as_ref().map(|p| prediction_json(p, system, how.economics)),
        })).collect::<Vec<_>>(),
        "predicted": outcome.predicted,
        "within_limits": outcome.within_limits,
        "out_of_memory": outcome.out_of_memory,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_numbers_and_ranges() {
        assert_eq!(batches("8"), Ok(Batches(vec![8])));
        assert_eq!(batches("16, 1,4,4"), Ok(Batches(vec![1, 4, 16])));
        assert_eq!(batches("3..20"), Ok(Batches(vec![3, 4, 8, 16, 20])));
        for wrong in ["", "0", "4..1", "-1", "1..", "x", "1,,2", "99999999999999999999", "1..99999999999"] {
            assert!(batches(wrong).is_err(), "{wrong}");
        }
    }
}
