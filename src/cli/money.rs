//! Price, power, energy and running costs of an answer, for a person and for a program.

use super::present::{align, plain, significant};
use crate::mapping::search::{Objective, Record};
use crate::plan::Plan;
use crate::system::price;
use serde_json::{Value, json};

/// What the system costs and draws, part by part, and the energy of an iteration.
pub fn table(plan: &Plan) -> String {
    let f = &plan.figures;
    let mut money = plain();
    money.set_header(["", "chips", "memory", "links", "switches", "total"]);
    let idle = price::idle_power(&plan.system);
    for (what, part, unit) in [
        ("price", &f.cost, "$"),
        ("power", &f.power, "W"),
        ("of it idle", &idle, "W"),
        ("energy of an iteration", &f.energy.parts(), "J"),
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
    let by_token = match (f.tokens_per_s(&plan.workload), f.j_per_token(&plan.workload)) {
        (Some(tokens), Some(joules)) => format!(
            "; by token {} J, {} tokens/s, {} tokens/s/$, {} tokens/s/W",
            significant(joules),
            significant(tokens),
            significant(tokens / f.cost.total()),
            significant(tokens / f.power.total())
        ),
        _ => String::new(),
    };
    format!(
        "{money}\n(mean power {} W; by sample {} J{by_token})\n",
        significant(f.energy.total() / f.iteration_s()),
        significant(f.j_per_sample(&plan.workload))
    )
}

/// What running it costs, and what was minimised where that is not time.
pub fn running(plan: &Plan, record: &Record) -> String {
    let (f, e) = (&plan.figures, &record.economics);
    let spent = e.iteration(f.cost.total(), f.iteration_s(), f.energy.total());
    let mut out = format!(
        "an iteration costs ${} (${} of the system's price over {} years, ${} of electricity at ${}/kWh, PUE {})\n",
        significant(spent.total()),
        significant(spent.capital),
        significant(e.amortization.0 / 31_557_600.0),
        significant(spent.energy),
        significant(e.electricity.0 * 3.6e6),
        e.pue
    );
    if let Some(run) = e.run {
        out.push_str(&match run.iterations(&plan.workload) {
            Some(n) => format!(
                "a run of {run}: {} iterations, {} days, {} MWh, ${}\n",
                significant(n),
                significant(n * f.iteration_s() / 86_400.0),
                significant(n * f.energy.total() / 3.6e9),
                significant(n * spent.total())
            ),
            None => format!("a run of {run}: the workload does not say how many tokens a sample has\n"),
        });
    }
    if record.objective != Objective::Time {
        out.push_str(&format!(
            "minimized: {} of an iteration, {:.6e} {unit}, no mapping below {:.6e} {unit}\n",
            record.objective,
            record.value,
            record.bound,
            unit = record.objective.unit()
        ));
    }
    out
}

/// Energy, and figures by sample and by token.
pub fn energy_json(plan: &Plan) -> Value {
    let f = &plan.figures;
    let tokens = f.tokens_per_s(&plan.workload);
    json!({
        "energy_j": f.energy.total(),
        "parts_j": f.energy.parts(),
        "idle_j": f.energy.idle,
        "used_j": f.energy.used,
        "mean_power_w": f.energy.total() / f.iteration_s(),
        "j_per_sample": f.j_per_sample(&plan.workload),
        "j_per_token": f.j_per_token(&plan.workload),
        "tokens_per_s": tokens,
        "tokens_per_s_per_usd": tokens.map(|t| t / f.cost.total()),
        "tokens_per_s_per_w": tokens.map(|t| t / f.power.total()),
    })
}

/// Dollars of an iteration and of the run.
pub fn running_json(plan: &Plan, record: &Record) -> Value {
    let (f, e) = (&plan.figures, &record.economics);
    let spent = e.iteration(f.cost.total(), f.iteration_s(), f.energy.total());
    let iterations = e.run.and_then(|run| run.iterations(&plan.workload));
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
        "run_s": iterations.map(|n| n * f.iteration_s()),
        "run_j": iterations.map(|n| n * f.energy.total()),
        "run_usd": iterations.map(|n| n * spent.total()),
    })
}
