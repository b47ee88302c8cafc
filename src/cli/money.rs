//! Price, power, energy and running costs of an answer, for a person and for a program.

use super::present::{align, plain, significant};
use crate::execution::{Prediction, inference};
use crate::mapping::request::Objective;
use crate::mapping::search::Record;
use crate::model::energy::Energy;
use crate::plan::Plan;
use crate::system::System;
use crate::system::economics::{Economics, Spent};
use crate::system::price::{self, ByPart};
use crate::workload::language::LanguageModel;
use serde_json::{Value, json};

/// A token as it is counted: its word, and the keys of joules by it and of how many come in a second.
#[derive(Debug, Clone, Copy)]
struct Token {
    word: &'static str,
    by: &'static str,
    rate: &'static str,
}

impl Token {
    const ANY: Self = Self { word: "token", by: "j_per_token", rate: "tokens_per_s" };
    /// A batch that generates counts the tokens that it generates, and says so in every key.
    const GENERATED: Self = Self { word: "generated token", by: "j_per_generated_token", rate: "generated_per_s" };
}

/// What money is counted of: an iteration of a mapped graph, or of an execution; a batch that is served.
pub struct Account {
    /// `an iteration` or `the batch`.
    what: &'static str,
    /// Of what an objective is minimised: that, or `a token`.
    minimized: &'static str,
    /// `sample` or `request`.
    each: &'static str,
    /// Chips that are used, and all that the system has.
    chips: [u64; 2],
    cost: ByPart,
    power: ByPart,
    idle: ByPart,
    energy: Energy,
    seconds: f64,
    batch: u64,
    tokens_per_sample: Option<u64>,
    j_per_sample: f64,
    /// What is counted as a token.
    token: Token,
    j_per_token: Option<f64>,
    tokens_per_s: Option<f64>,
}

impl Account {
    /// Of a plan.
    pub fn of_plan(plan: &Plan) -> Self {
        let f = &plan.figures;
        Self {
            what: "an iteration",
            minimized: "an iteration",
            each: "sample",
            chips: [plan.system.chip_count(); 2],
            cost: f.cost,
            power: f.power,
            idle: price::idle_power(&plan.system),
            energy: f.energy,
            seconds: f.iteration_s(),
            batch: plan.workload.global_batch,
            tokens_per_sample: plan.workload.tokens_per_sample,
            j_per_sample: f.j_per_sample(&plan.workload),
            token: Token::ANY,
            j_per_token: f.j_per_token(&plan.workload),
            tokens_per_s: f.tokens_per_s(&plan.workload),
        }
    }

    /// Of an execution.
    pub fn of_execution(prediction: &Prediction, model: &LanguageModel, system: &System) -> Self {
        Self {
            what: "an iteration",
            minimized: "an iteration",
            each: "sample",
            chips: [prediction.chips, system.chip_count()],
            cost: price::cost(system),
            power: price::power(system),
            idle: price::idle_power(system),
            energy: prediction.energy,
            seconds: prediction.time.total,
            batch: model.global_batch,
            tokens_per_sample: Some(model.seq),
            j_per_sample: prediction.j_per_sample(),
            token: Token::ANY,
            j_per_token: Some(prediction.j_per_token()),
            tokens_per_s: Some(prediction.tokens_per_s),
        }
    }

    /// Of a batch that is served: tokens are those that are generated, or those of the prompts where none is.
    pub fn of_serving(prediction: &inference::Prediction, system: &System) -> Self {
        let tokens = prediction.tokens();
        Self {
            what: "the batch",
            minimized: "a token",
            each: "request",
            chips: [system.chip_count(); 2],
            cost: price::cost(system),
            power: price::power(system),
            idle: price::idle_power(system),
            energy: prediction.energy,
            seconds: prediction.latency_s,
            batch: prediction.batch,
            tokens_per_sample: None,
            j_per_sample: prediction.energy.total() / prediction.batch as f64,
            token: if prediction.generated_per_s > 0.0 { Token::GENERATED } else { Token::ANY },
            j_per_token: Some(prediction.energy.total() / tokens),
            tokens_per_s: Some(tokens / prediction.latency_s),
        }
    }

    /// Joules of the whole system; not a number where the chips state no power: the rest is a part of it alone.
    fn joules(&self, joules: f64) -> f64 {
        self.power.if_known(joules)
    }

    /// That chips stand idle which are paid for; empty where none does.
    fn idle_chips(&self) -> String {
        match self.chips {
            [used, all] if used < all => {
                format!("({used} of {all} chips are used; money, power and energy are of all {all})\n")
            }
            _ => String::new(),
        }
    }

    /// Dollars of an iteration; not a number where the chips state no price or no power.
    fn spent(&self, e: &Economics) -> Spent {
        e.iteration(self.cost.known(), self.seconds, self.joules(self.energy.total()))
    }
}

/// What was minimised: its value and bound.
pub type Minimized = (Objective, f64, f64);

/// Of a record.
pub fn minimized(record: &Record) -> Minimized {
    (record.objective, record.value, record.bound)
}

/// What the system costs and draws, part by part, and the energy of an iteration.
pub fn table(f: &Account) -> String {
    let mut money = plain();
    money.set_header(["", "chips", "memory", "links", "switches", "total"]);
    let energy = format!("energy of {}", f.what);
    for (what, part, unit) in [
        ("price", &f.cost, "$"),
        ("power", &f.power, "W"),
        ("of it idle", &f.idle, "W"),
        (&energy, &f.energy.parts(), "J"),
        ("of it idle", &f.energy.idle, "J"),
    ] {
        // Where chips state no price or power, theirs is unknown, and so is the sum.
        let known = part.chips > 0.0;
        let cell = |x: f64| match unit {
            _ if !known && x == 0.0 => "not stated".to_string(),
            "$" => format!("${}", significant(x)),
            unit => format!("{} {unit}", significant(x)),
        };
        money.add_row([
            what.to_string(),
            cell(part.chips),
            cell(part.memory),
            cell(part.links),
            cell(part.switches),
            if known { cell(part.total()) } else { "not stated".to_string() },
        ]);
    }
    align(&mut money, &[1, 2, 3, 4, 5]);
    let token = f.token.word;
    let by_token = match (f.tokens_per_s, f.j_per_token) {
        (Some(tokens), Some(joules)) => format!(
            "; by {token} {} J, {} {token}s/s, {} {token}s/s/$, {} {token}s/s/W",
            significant(joules),
            significant(tokens),
            stated(tokens / f.cost.known()),
            stated(tokens / f.power.known())
        ),
        _ => String::new(),
    };
    if f.power.stated().is_none() {
        let tokens = f.tokens_per_s.map(|tokens| {
            format!("; {} {token}s/s, {} {token}s/s/$", significant(tokens), stated(tokens / f.cost.known()))
        });
        return format!(
            "{money}\n(energy not stated: the chips state no power{})\n{}",
            tokens.unwrap_or_default(),
            f.idle_chips()
        );
    }
    format!(
        "{money}\n(mean power {} W; by {} {} J{by_token})\n{}",
        significant(f.energy.total() / f.seconds),
        f.each,
        significant(f.j_per_sample),
        f.idle_chips()
    )
}

/// A number for people; what is not one is not known, since a part of it is not stated.
pub(super) fn stated(x: f64) -> String {
    if x.is_nan() { "not stated".into() } else { significant(x) }
}

/// What running it costs, and what was minimised where that is not time.
pub fn running(f: &Account, e: &Economics, (objective, value, bound): Minimized) -> String {
    let spent = f.spent(e);
    let mut out = match spent.total().is_nan() {
        true => format!("what {} costs is not known: the chips state no price or no power\n", f.what),
        false => format!(
            "{} costs ${} (${} of the system's price over {} years, ${} of electricity at ${}/kWh, PUE {})\n",
            f.what,
            significant(spent.total()),
            significant(spent.capital),
            significant(e.amortization.0 / 31_557_600.0),
            significant(spent.energy),
            significant(e.electricity.0 * 3.6e6),
            e.pue
        ),
    };
    if let Some(run) = e.run {
        out.push_str(&match run.iterations(f.batch, f.tokens_per_sample) {
            Some(n) => format!(
                "a run of {run}: {} iterations, {} days, {} MWh, ${}\n",
                significant(n),
                significant(n * f.seconds / 86_400.0),
                stated(n * f.joules(f.energy.total()) / 3.6e9),
                stated(n * spent.total())
            ),
            None => format!("a run of {run}: the workload does not say how many tokens a sample has\n"),
        });
    }
    if objective != Objective::Time {
        out.push_str(&format!(
            "minimized: {objective} of {what}, {value:.6e} {unit}, no mapping below {bound:.6e} {unit}\n",
            what = f.minimized,
            unit = objective.unit()
        ));
    }
    out
}

/// Energy, and figures by sample and by token.
pub fn energy_json(f: &Account) -> Value {
    let tokens = f.tokens_per_s;
    let Token { by, rate, .. } = f.token;
    let (by_dollar, by_watt) = (format!("{rate}_per_usd"), format!("{rate}_per_w"));
    json!({
        "energy_j": f.joules(f.energy.total()),
        "parts_j": f.energy.parts(),
        "idle_j": f.energy.idle,
        "used_j": f.energy.used,
        "mean_power_w": f.joules(f.energy.total() / f.seconds),
        "j_per_sample": f.joules(f.j_per_sample),
        by: f.j_per_token.map(|j| f.joules(j)),
        rate: tokens,
        by_dollar: tokens.map(|t| t / f.cost.known()),
        by_watt: tokens.map(|t| t / f.power.known()),
    })
}

/// Dollars of an iteration and of the run.
pub fn running_json(f: &Account, e: &Economics) -> Value {
    let spent = f.spent(e);
    let iterations = e.run.and_then(|run| run.iterations(f.batch, f.tokens_per_sample));
    let missing = e.run.filter(|_| iterations.is_none());
    json!({
        "run": e.run.map(|run| run.to_string()),
        "run_unknown_because": missing.map(|_| "the workload does not say how many tokens a sample has"),
        "electricity_usd_per_kwh": e.electricity.0 * 3.6e6,
        "amortization_s": e.amortization.0,
        "pue": e.pue,
        "iteration_capital_usd": spent.capital,
        "iteration_energy_usd": spent.energy,
        "iteration_usd": spent.total(),
        "run_iterations": iterations,
        "run_s": iterations.map(|n| n * f.seconds),
        "run_j": iterations.map(|n| n * f.joules(f.energy.total())),
        "run_usd": iterations.map(|n| n * spent.total()),
    })
}
