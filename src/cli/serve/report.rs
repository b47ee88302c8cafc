//! What `flowspace serve` tells of its runs: tables, notes, loads.csv, requests.csv, figures.

use super::{Come, Failure, ServeArgs, Tried};
use crate::cli::present::{align, percent, plain, significant};
use crate::execution::inference::arrivals::{Answer, Spread, Tally};
use crate::execution::inference::{Layout, Server};
use crate::report::figures::{FigureKind, FigureSpec, draw_figure};
use crate::report::statement;
use crate::report::table::Table;
use crate::spec::read::Name;
use crate::system::System;
use crate::system::serving::PromptsRead;
use crate::units::Seconds;
use crate::workload::language::LanguageModel;
use serde_json::{Value, json};
use std::path::Path;

/// Times that a run is to be longer than a request takes, so that its begin and end count for little.
const SHORT: f64 = 10.0;

/// Requests of each user below which a run says little of a steady state.
const FEW: u64 = 4;

/// All that was asked for.
pub(super) struct Run<'a> {
    pub(super) args: &'a ServeArgs,
    pub(super) model: &'a LanguageModel,
    pub(super) system: &'a System,
    pub(super) server: &'a Server,
    pub(super) layouts: usize,
    pub(super) tried: &'a [Tried],
    /// Which loads are left out, and why.
    pub(super) left_out: Option<String>,
}

/// Tokens a second that a user sees: one over the mean time for each further token; 0 where there is none.
fn of_user(served: &Tally) -> f64 {
    served.tpot_s.map_or(0.0, |s| 1.0 / s.mean)
}

impl Run<'_> {
    fn limited(&self) -> bool {
        self.args.max_ttft.is_some() || self.args.max_tpot.is_some()
    }

    fn within(&self, served: &Tally) -> f64 {
        served.within(self.args.max_ttft, self.args.max_tpot)
    }

    /// Joules for each generated token, of the prompts where nothing is generated.
    fn joules(served: &Tally) -> f64 {
        let sum = |of: fn(&Answer) -> u64| served.answers.iter().map(|a| of(a) as f64).sum::<f64>();
        let generated = sum(|a| a.generated);
        served.energy.total() / if generated > 0.0 { generated } else { sum(|a| a.prompt) }
    }

    pub(super) fn text(&self) -> String {
        let (model, system) = (self.model, self.system);
        let what = match &self.args.requests {
            Some(path) => format!("requests of {}", path.display()),
            None => format!("prompts of {} tokens, {} generated", model.seq, model.generated.unwrap_or(0)),
        };
        let mut out = format!("{} on {} ({} chips): {what}\n\n", model.name, system.name, system.chip_count());
        let mut table = plain();
        let load = match self.tried.first().map(|t| t.come) {
            Some(Come::Users(_)) => "users",
            Some(Come::Rate(_)) => "requests/s",
            _ => "requests",
        };
        let mut header = vec![
            load,
            "TP",
            "PP",
            "DP",
            "EP",
            "answered/s",
            "generated/s",
            "per chip",
            "per user",
            "first token p50",
            "p90",
            "p99",
            "per token p50",
            "p99",
            "latency p50",
            "p99",
            "at once",
            "busy",
        ];
        if self.limited() {
            header.push("within limits");
        }
        let columns: Vec<usize> = (0..header.len()).collect();
        table.set_header(header);
        for tried in self.tried {
            let s = &tried.served[tried.best];
            let seconds = |s: f64| Seconds(s).to_string();
            let tpot = |of: fn(&Spread) -> f64| s.tpot_s.as_ref().map_or_else(|| "-".into(), |all| seconds(of(all)));
            let mut row = vec![tried.come.text()];
            row.extend([s.layout.tp, s.layout.pp, s.layout.dp, s.layout.ep].map(|n| n.to_string()));
            row.extend([s.answered_per_s, s.generated_per_s, s.per_chip, of_user(s)].map(significant));
            row.extend([s.ttft_s.p50, s.ttft_s.p90, s.ttft_s.p99].map(seconds));
            row.extend([tpot(|s| s.p50), tpot(|s| s.p99)]);
            row.extend([s.latency_s.p50, s.latency_s.p99].map(seconds));
            row.extend([significant(s.at_once), percent(s.busy)]);
            if self.limited() {
                row.push(percent(self.within(s)));
            }
            table.add_row(row);
        }
        align(&mut table, &columns);
        out.push_str(&format!("{table}\n\n"));
        self.notes().iter().for_each(|note| out.push_str(&format!("{note}\n")));
        out.push_str(&format!(
            "Each row is the best of {} layouts on all chips ({}), every one served the same requests pass by pass ({}seed {}); a simulation of what the software does, no bound. Prompts are read {}.\n{}\n",
            self.layouts,
            match (self.limited(), self.tried.first().map(|t| t.come)) {
                (true, _) => "most answers within the limits",
                (_, Some(Come::Users(_))) => "most answers",
                _ => "least mean latency",
            },
            self.requests(),
            self.args.seed,
            match self.server.serving.prompts_read {
                PromptsRead::Before => "whole, before the steps of others (prompts_read: before)",
                PromptsRead::Beside => "whole, beside the steps of others (prompts_read: beside)",
                PromptsRead::Pieces => "in pieces beside the steps of others (prompts_read: pieces)",
            },
            statement::serving_software(self.system)
        ));
        let front = self.front();
        if !front.is_empty() {
            let mut table = plain();
            table.set_header(["users", "TP", "PP", "DP", "EP", "tokens/s/user", "tokens/s/chip", "first token p50"]);
            for (users, s) in front {
                let mut row = vec![users.to_string()];
                row.extend([s.layout.tp, s.layout.pp, s.layout.dp, s.layout.ep].map(|n| n.to_string()));
                row.extend([significant(of_user(s)), significant(s.per_chip), Seconds(s.ttft_s.p50).to_string()]);
                table.add_row(row);
            }
            align(&mut table, &[0, 1, 2, 3, 4, 5, 6, 7]);
            out.push_str(&format!("\nNo layout and number of users has more of both:\n\n{table}\n"));
        }
        out
    }

    /// How many requests a run has, of the smallest and the largest load.
    fn requests(&self) -> String {
        let of = |t: &Tried| t.served[t.best].answers.len();
        let (least, most) = (self.tried.iter().map(of).min(), self.tried.iter().map(of).max());
        match (least, most) {
            (Some(least), Some(most)) if least < most => format!("{least} to {most} of them; "),
            (_, Some(most)) => format!("{most} of them; "),
            _ => String::new(),
        }
    }

    /// What is to be known of the best of each load, a line each.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.left_out.iter().cloned().collect();
        for tried in self.tried {
            let s = &tried.served[tried.best];
            let (load, n) = (tried.come.named(), s.answers.len());
            if !matches!(tried.come, Come::Users(_)) && s.latency_s.mean * SHORT > s.seconds {
                let longer = match tried.come {
                    Come::Recorded => "",
                    _ => ": more requests (--count) say more of a steady state",
                };
                notes.push(format!(
                    "{load}: a request takes {} and the run {}, so that its begin and end count for much in what is answered a second{longer}",
                    Seconds(s.latency_s.mean),
                    Seconds(s.seconds)
                ));
            }
            if let Come::Users(users) = tried.come
                && (n as u64) < users.saturating_mul(FEW)
            {
                notes.push(format!(
                    "{load}: {n} requests are fewer than {FEW} of each, so that their common begin counts for much: more requests (--count) say more of a steady state"
                ));
            }
            if s.waiting_at_last * 20 > n as u64 && !matches!(tried.come, Come::Users(_)) {
                notes.push(format!(
                    "{load}: {} of {n} wait for a place when the last one comes; where a longer run has more of them waiting, they are more than it answers",
                    s.waiting_at_last
                ));
            }
            if self.limited() && self.within(s) == 0.0 {
                notes.push(format!("{load}: no layout keeps the limits in any request"));
            }
            if s.preempted > 0 {
                notes.push(format!(
                    "{load}: {} times a request lost its place in the cache and was read again",
                    s.preempted
                ));
            }
        }
        notes
    }

    /// Of all layouts and numbers of users those that none beats in tokens a second of a user and of a chip, the fastest for a user first.
    fn front(&self) -> Vec<(u64, &Tally)> {
        let users = |t: &Tried| if let Come::Users(users) = t.come { Some(users) } else { None };
        let mut all: Vec<(u64, &Tally)> = self
            .tried
            .iter()
            .filter_map(|t| Some((users(t)?, t)))
            .flat_map(|(n, t)| t.served.iter().map(move |s| (n, s)))
            .collect();
        all.sort_by(|a, b| of_user(b.1).total_cmp(&of_user(a.1)).then(b.1.per_chip.total_cmp(&a.1.per_chip)));
        let mut most = 0.0;
        all.retain(|(_, s)| {
            let more = s.per_chip > most;
            most = s.per_chip.max(most);
            more
        });
        all
    }

    /// The fields of a line of loads.csv.
    fn fields(&self, tried: &Tried, at: usize) -> Vec<(&'static str, String)> {
        let s = &tried.served[at];
        let Layout { tp, pp, dp, ep } = s.layout;
        let (load, rate, users) = match tried.come {
            Come::Rate(rate) => ("rate", Some(rate), None),
            Come::Users(users) => ("users", None, Some(users)),
            Come::Recorded => ("recorded", s.offered_per_s, None),
        };
        let experts = if ep > 1 { format!(" EP {ep}") } else { String::new() };
        let mut fields = vec![
            ("load", load.to_string()),
            ("rate_per_s", rate.map_or_else(String::new, |r| r.to_string())),
            ("users", users.map_or_else(String::new, |n| n.to_string())),
            ("tp", tp.to_string()),
            ("pp", pp.to_string()),
            ("dp", dp.to_string()),
            ("ep", ep.to_string()),
            ("layout", format!("TP {tp} PP {pp}{experts}")),
            ("best", if at == tried.best { "yes" } else { "no" }.to_string()),
        ];
        // A field that there is no value of is empty.
        let tpot = |of: fn(&Spread) -> f64| s.tpot_s.as_ref().map_or(f64::NAN, of);
        let numbers = [
            ("answered_per_s", s.answered_per_s),
            ("generated_per_s", s.generated_per_s),
            ("tokens_per_s_user", of_user(s)),
            ("tokens_per_s_chip", s.per_chip),
            ("ttft_mean_s", s.ttft_s.mean),
            ("ttft_p50_s", s.ttft_s.p50),
            ("ttft_p90_s", s.ttft_s.p90),
            ("ttft_p95_s", s.ttft_s.p95),
            ("ttft_p99_s", s.ttft_s.p99),
            ("tpot_mean_s", tpot(|s| s.mean)),
            ("tpot_p50_s", tpot(|s| s.p50)),
            ("tpot_p90_s", tpot(|s| s.p90)),
            ("tpot_p95_s", tpot(|s| s.p95)),
            ("tpot_p99_s", tpot(|s| s.p99)),
            ("latency_mean_s", s.latency_s.mean),
            ("latency_p50_s", s.latency_s.p50),
            ("latency_p99_s", s.latency_s.p99),
            ("within_limits", self.within(s)),
            ("at_once", s.at_once),
            ("waiting_at_last", s.waiting_at_last as f64),
            ("busy", s.busy),
            ("preempted", s.preempted as f64),
            ("j_per_token", Self::joules(s)),
            ("seconds", s.seconds),
        ];
        let written = |value: f64| if value.is_nan() { String::new() } else { value.to_string() };
        fields.extend(numbers.map(|(name, value)| (name, written(value))));
        fields
    }

    /// loads.csv: a line of each load and layout.
    pub(super) fn csv(&self) -> String {
        let lines = self.tried.iter().flat_map(|t| (0..t.served.len()).map(move |at| self.fields(t, at)));
        let mut out = String::new();
        for fields in lines {
            let (names, values): (Vec<&str>, Vec<String>) = fields.into_iter().unzip();
            if out.is_empty() {
                out = names.join(",") + "\n";
            }
            out.push_str(&(values.join(",") + "\n"));
        }
        out
    }

    pub(super) fn to_json(&self) -> Value {
        let of = |s: &Tally| {
            let mut object = serde_json::to_value(s).unwrap_or(Value::Null);
            if let Value::Object(map) = &mut object {
                map.insert("tokens_per_s_user".into(), json!(of_user(s)));
                map.insert("j_per_token".into(), json!(Self::joules(s)));
                map.insert("within_limits".into(), json!(self.within(s)));
            }
            object
        };
        json!({
            "workload": self.model.name,
            "system": self.system.name,
            "statement": statement::serving_software(self.system),
            "prompts_read": self.server.serving.prompts_read.word(),
            "seed": self.args.seed,
            "max_ttft_s": self.args.max_ttft,
            "max_tpot_s": self.args.max_tpot,
            "notes": self.notes(),
            "layouts": self.layouts,
            "loads": self.tried.iter().map(|t| json!({
                "rate_per_s": if let Come::Rate(rate) = t.come { Some(rate) } else { None },
                "users": if let Come::Users(users) = t.come { Some(users) } else { None },
                "requests": t.served[t.best].answers.len(),
                "best": of(&t.served[t.best]),
                "served": t.served.iter().map(of).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
            "front": self.front().into_iter().map(|(users, s)| json!({
                "users": users, "layout": s.layout, "tokens_per_s_user": of_user(s), "tokens_per_s_chip": s.per_chip, "ttft_p50_s": s.ttft_s.p50,
            })).collect::<Vec<_>>(),
        })
    }

    /// loads.csv, requests.csv of the best layout of each load, and a figure.
    pub(super) fn write(&self, folder: &Path) -> Result<(), Failure> {
        let loads = folder.join("loads.csv");
        let keep = |path: &Path, text: &str| {
            std::fs::write(path, text).map_err(|e| Failure::input(format!("{}: {e}", path.display())))
        };
        keep(&loads, &self.csv())?;
        let mut requests =
            String::from("load,value,id,arrival_s,prompt,generated,replica,first_token_s,end_s,ttft_s,tpot_s\n");
        for t in self.tried {
            let load = match t.come {
                Come::Rate(rate) => format!("rate,{rate}"),
                Come::Users(users) => format!("users,{users}"),
                Come::Recorded => "recorded,".into(),
            };
            for a in &t.served[t.best].answers {
                let tpot = a.tpot_s().map_or_else(String::new, |s| s.to_string());
                requests.push_str(&format!(
                    "{load},{},{},{},{},{},{},{},{},{tpot}\n",
                    a.id,
                    a.arrival_s,
                    a.prompt,
                    a.generated,
                    a.replica,
                    a.first_s,
                    a.end_s,
                    a.ttft_s()
                ));
            }
        }
        keep(&folder.join("requests.csv"), &requests)?;
        let by_users = self.tried.iter().all(|t| matches!(t.come, Come::Users(_)));
        let name = |text: &str| Some(Name(text.into()));
        let mut spec = FigureSpec::of(if by_users { FigureKind::Pareto } else { FigureKind::Scatter });
        let stem = if by_users {
            (spec.x, spec.y) = (name("tokens_per_s_user"), name("tokens_per_s_chip"));
            (spec.x_label, spec.y_label) = (Some("tokens/s of a user".into()), Some("tokens/s of a chip".into()));
            spec.max = vec![Name("tokens_per_s_user".into()), Name("tokens_per_s_chip".into())];
            spec.group = name("layout");
            "front"
        } else if self.tried.len() > 1 {
            (spec.x, spec.y) = (name("rate_per_s"), name("ttft_p99_s"));
            (spec.x_label, spec.y_label) =
                (Some("requests a second".into()), Some("first token, 99th percentile (s)".into()));
            spec.group = name("layout");
            spec.log_y = Some(true);
            "latency"
        } else {
            return Ok(());
        };
        let table = Table::read(&loads).map_err(|e| Failure::input(e.to_string()))?;
        let drawn = draw_figure(&table, &spec, &folder.join(stem)).map_err(|e| Failure::input(e.to_string()))?;
        drawn.left_out.iter().for_each(|reason| say!("note: not drawn: {reason}"));
        Ok(())
    }
}
