//! `flowspace serve`: requests that come one by one to a system that serves a language model, simulated pass by pass.

use super::args::{positive, seed, time, word};
use super::interrupt::Interrupt;
use super::present::{align, percent, plain, significant};
use super::{Failure, output, print};
use crate::deadline::Deadline;
use crate::execution::inference::arrivals::{Answer, Load, Request, Spread, Tally, poisson, read, serve};
use crate::execution::inference::search::{Goal, layouts, no_layouts};
use crate::execution::inference::{Layout, Limits, Refusal, Server, Wanted};
use crate::execution::search::Aim;
use crate::model::objective::Objective;
use crate::progress::Waiting;
use crate::report::figures::{FigureKind, FigureSpec, draw_figure};
use crate::report::statement;
use crate::report::table::Table;
use crate::spec::read::Name;
use crate::system::economics::Economics;
use crate::system::serving::PromptsRead;
use crate::system::{Software, System};
use crate::units::Seconds;
use crate::workload::WorkloadSpec;
use crate::workload::language::{LanguageModel, ModelPass};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Arguments of `flowspace serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Workload with `pass: inference`, or the name of one in the catalogue; hf:config.json?pass=inference&seq=1024&generated=256. Its prompt and answer
    /// are those of every request, where no file says others.
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub workload: PathBuf,
    /// System file, or the name of one in the catalogue.
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub system: PathBuf,
    /// CSV of requests with columns arrival_s, prompt, generated (or TIMESTAMP, ContextTokens, GeneratedTokens). With --rate or --users its lengths alone count.
    #[arg(long, value_name = "FILE.csv", help_heading = "Input")]
    pub requests: Option<PathBuf>,
    /// Requests a second that come at random (Poisson): one, or several such as 1,2,4.
    #[arg(long, value_name = "LIST", value_parser = rates, conflicts_with = "users", help_heading = "Load")]
    pub rate: Option<Rates>,
    /// Users of whom each sends the next request when the last is answered: numbers and ranges such as 1,8 or 1..256 (powers of two and both ends).
    #[arg(long, value_name = "LIST", value_parser = super::inference::batches, help_heading = "Load")]
    pub users: Option<super::inference::Batches>,
    /// Requests of a run. [default: all of a file, else 1000; of users eight each and 100 at least]
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Load")]
    pub count: Option<u64>,
    /// Seed of the arrivals.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed, help_heading = "Load")]
    pub seed: u32,
    /// Longest time to the first token that is good enough.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, help_heading = "Load")]
    pub max_ttft: Option<f64>,
    /// Longest mean time for each further token of a request that is good enough.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, help_heading = "Load")]
    pub max_tpot: Option<f64>,
    /// Tensor parallelism; every one is tried if left out.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Decisions (all are tried where left out)")]
    pub tp: Option<u64>,
    /// Pipeline stages.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Decisions (all are tried where left out)")]
    pub pp: Option<u64>,
    /// Replicas.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Decisions (all are tried where left out)")]
    pub dp: Option<u64>,
    /// Replicas among which experts are divided.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Decisions (all are tried where left out)")]
    pub ep: Option<u64>,
    /// How prompts are read; what the software does if left out.
    #[arg(long, value_name = "WORD", value_parser = word!(PromptsRead), help_heading = "Decisions (all are tried where left out)")]
    pub prompts_read: Option<PromptsRead>,
    /// stack, generic or ideal, as for `flowspace map`.
    #[arg(long, value_name = "WORD", value_parser = word!(Software), help_heading = "Decisions (all are tried where left out)")]
    pub software: Option<Software>,
    /// Time of all runs together, such as 30s.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, help_heading = "Output")]
    pub time_limit: Option<f64>,
    /// Folder for loads.csv, requests.csv and figures; made if it does not exist.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Format on standard output.
    #[arg(long, value_enum, default_value_t = Format::Text, help_heading = "Output")]
    pub format: Format,
}

/// Formats of what was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for a person.
    Text,
    /// One JSON object.
    Json,
    /// One line a load and layout.
    Csv,
}

/// Rates, in requests a second, ascending and different.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates(Vec<f64>);

fn rates(text: &str) -> Result<Rates, String> {
    let wrong =
        || format!("expected requests a second such as 4 or 0.5,1,2, each from 0.000001 to 1000000, found {text:?}");
    let one =
        |t: &str| t.trim().parse::<f64>().ok().filter(|r| r.is_finite() && (1e-6..=1e6).contains(r)).ok_or_else(wrong);
    let mut found = text.split(',').map(one).collect::<Result<Vec<_>, _>>()?;
    found.sort_by(f64::total_cmp);
    found.dedup();
    Ok(Rates(found))
}

/// Times that a run is to be longer than a request takes, so that its begin and end count for little.
const SHORT: f64 = 10.0;

/// Requests of each user below which a run says little of a steady state.
const FEW: u64 = 4;

/// Most requests of a run.
const MOST: u64 = 10_000_000;

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Come {
    /// So many a second, at random.
    Rate(f64),
    /// From so many users.
    Users(u64),
    /// As a file says.
    Recorded,
}

impl Come {
    fn text(self) -> String {
        match self {
            Self::Rate(rate) => significant(rate),
            Self::Users(users) => users.to_string(),
            Self::Recorded => "as recorded".into(),
        }
    }

    /// In a sentence.
    fn named(self) -> String {
        let unit = match self {
            Self::Rate(_) => " requests/s",
            Self::Users(1) => " user",
            Self::Users(_) => " users",
            Self::Recorded => "",
        };
        self.text() + unit
    }
}

/// A load, and what every layout that it has room in did.
struct Tried {
    come: Come,
    served: Vec<Tally>,
    /// Which of them is best.
    best: usize,
}

/// The command.
///
/// # Errors
/// [`Failure`]: bad input, nothing that has room.
pub fn run(args: &ServeArgs) -> Result<i32, Failure> {
    super::import::tell_assumed(Some(&args.workload));
    let (model, system) = load(args)?;
    let mut server = Server::new(&system).map_err(Failure::input)?;
    if let Some(reads) = args.prompts_read {
        server.serving.prompts_read = reads;
    }
    let recorded = args.requests.as_deref().map(read).transpose().map_err(Failure::input)?;
    check_count(args, recorded.as_deref())?;
    let all: Vec<Come> = match (&args.rate, &args.users, &recorded) {
        (Some(rates), _, _) => rates.0.iter().map(|rate| Come::Rate(*rate)).collect(),
        (_, Some(users), _) => users.0.iter().map(|users| Come::Users(*users)).collect(),
        (None, None, Some(_)) => vec![Come::Recorded],
        (None, None, None) => {
            return Err(Failure::input(
                "how requests come is not said: --rate (requests a second), --users, or --requests FILE.csv",
            ));
        }
    };
    if let Some(folder) = &args.out {
        output::make_folder(folder)?;
    }
    let wanted = Wanted {
        tp: args.tp,
        pp: args.pp,
        dp: args.dp,
        ep: args.ep,
        batches: Vec::new(),
        limits: Limits::default(),
        goal: Goal::Throughput,
        aim: Aim::of(Objective::Time, &Economics::default(), &system).map_err(Failure::input)?,
    };
    let layouts = layouts(&model, server.machine.chips, &wanted);
    if layouts.is_empty() {
        return Err(Failure::input(no_layouts(&model, server.machine.chips, &wanted)));
    }
    let _interrupt = Interrupt::of_search();
    let waiting = Waiting::begin("serving", args.time_limit);
    let deadline = Deadline::after(args.time_limit);
    let (mut tried, mut left_out) = (Vec::new(), None);
    for come in all {
        let requests = requests(come, &model, recorded.as_deref(), args);
        match one(come, &requests, (&server, &model, &layouts), args, deadline)? {
            Some(done) => tried.push(done),
            None if tried.is_empty() => return Err(Failure::input(format!("{ENDED}: {LESS}"))),
            None => {
                left_out =
                    Some(format!("{ENDED} in {}: that load and those after it are left out: {LESS}", come.named()));
                break;
            }
        }
    }
    drop(waiting);
    let run =
        Run { args, model: &model, system: &system, server: &server, layouts: layouts.len(), tried: &tried, left_out };
    if let Some(folder) = &args.out {
        run.write(folder)?;
    }
    print(&match args.format {
        Format::Text => run.text(),
        Format::Json => format!("{:#}\n", run.to_json()),
        Format::Csv => run.csv(),
    });
    if args.format == Format::Csv {
        run.notes().iter().for_each(|note| say!("note: {note}"));
    }
    Ok(0)
}

/// The model and the system, all problems of both files at once.
fn load(args: &ServeArgs) -> Result<(LanguageModel, System), Failure> {
    let model = WorkloadSpec::load(&args.workload).map_err(Failure::from).and_then(|node| {
        // Its mistakes as `map` tells them.
        crate::spec::Reader::read::<WorkloadSpec>(&node).map_err(Failure::from)
    });
    let system =
        System::load(&args.system).map_err(Failure::from).and_then(|n| System::build(&n).map_err(Failure::from));
    let (model, mut system) = super::map::both(model, system)?;
    let name = args.workload.display();
    let WorkloadSpec::Language(model) = model else {
        return Err(Failure::input(format!(
            "{name}: expected a language model (kind: language_model): nothing else is served"
        )));
    };
    if model.pass != ModelPass::Inference {
        return Err(Failure::input(format!(
            "{name}: pass: {}: expected inference, with seq (a prompt) and generated (an answer)",
            model.pass.word()
        )));
    }
    system.software = args.software.or(system.software);
    Ok((*model, system))
}

/// What `--count` can be: of users more than there are, as the others would never ask; of a file as it is recorded no more than it has.
fn check_count(args: &ServeArgs, recorded: Option<&[Request]>) -> Result<(), Failure> {
    let users = args.users.as_ref().and_then(|users| users.0.iter().max().copied());
    let most = match recorded {
        Some(all) if args.rate.is_none() && users.is_none() => (all.len() as u64).min(MOST),
        _ => MOST,
    };
    let least = users.map_or(1, |users| users.saturating_add(1));
    if least > most {
        return Err(Failure::input(format!("--users: expected fewer than {MOST}")));
    }
    match args.count {
        Some(n) if n < least => Err(Failure::input(format!(
            "--count {n}: expected at least {least}: of {} users the others would never ask, or none a second time",
            least - 1
        ))),
        Some(n) if n > most => Err(Failure::input(format!(
            "--count {n}: expected at most {most}{}",
            if most < MOST { ", the requests that the file has (--rate and --users go through it again)" } else { "" }
        ))),
        _ => Ok(()),
    }
}

/// The requests of a load.
fn requests(come: Come, model: &LanguageModel, recorded: Option<&[Request]>, args: &ServeArgs) -> Vec<Request> {
    let one = [Request { arrival_s: 0.0, prompt: model.seq, generated: model.generated.unwrap_or(0) }];
    let lengths = recorded.unwrap_or(&one);
    let count = args.count.unwrap_or(match (come, recorded) {
        (Come::Users(users), _) => {
            users.saturating_mul(8).clamp(100, MOST).max(recorded.map_or(0, |all| all.len() as u64))
        }
        (_, Some(all)) => all.len() as u64,
        _ => 1000,
    });
    let count = usize::try_from(count.min(MOST)).unwrap_or(1);
    match come {
        // No more than there are.
        Come::Recorded => lengths.iter().copied().take(count).collect(),
        Come::Users(_) => lengths.iter().copied().cycle().take(count).collect(),
        Come::Rate(rate) => {
            let all: Vec<Request> = lengths.iter().copied().cycle().take(count).collect();
            poisson(&all, rate, u64::from(args.seed))
        }
    }
}

const ENDED: &str = "the time limit or an interruption ended it";
const LESS: &str = "fewer requests (--count), fewer loads or given degrees take less";

/// A load on every layout; `None` where the deadline ends it before.
fn one(
    come: Come,
    requests: &[Request],
    (server, model, layouts): (&Server, &LanguageModel, &[Layout]),
    args: &ServeArgs,
    deadline: Deadline,
) -> Result<Option<Tried>, Failure> {
    let load = Load { requests, users: if let Come::Users(users) = come { Some(users) } else { None } };
    let (mut all, mut refused) = (Vec::new(), Vec::<(Layout, Refusal)>::new());
    for layout in layouts {
        match serve(server, model, *layout, &load, deadline) {
            Ok(Some(served)) => all.push(served),
            Ok(None) => return Ok(None),
            Err(refusal) => refused.push((*layout, refusal)),
        }
    }
    if all.is_empty() {
        // The one with most chips to a replica, where most fits.
        let of = |(layout, _): &&(Layout, Refusal)| layout.tp * layout.pp * layout.ep;
        let why = refused.iter().rev().max_by_key(of).map_or_else(String::new, |(Layout { tp, pp, dp, ep }, why)| {
            format!("TP {tp} PP {pp} DP {dp} EP {ep}: {why}")
        });
        return Err(Failure::input(format!("infeasible: none of {} layouts serves them; {why}", refused.len())));
    }
    // Within limits the most answers that keep them, of equal ones (and without limits) the least mean latency; of users the most answers.
    let limited = args.max_ttft.is_some() || args.max_tpot.is_some();
    let good = |s: &Tally| match come {
        _ if limited => s.within(args.max_ttft, args.max_tpot) * s.answered_per_s,
        Come::Users(_) => s.answered_per_s,
        _ => 0.0,
    };
    let better = |a: &Tally, b: &Tally| {
        let (one, other) = (good(a), good(b));
        if (one - other).abs() > 1e-9 * other.abs() {
            one > other
        } else {
            a.latency_s.mean < b.latency_s.mean * (1.0 - 1e-9)
        }
    };
    let best = (1..all.len()).fold(0, |best, i| if better(&all[i], &all[best]) { i } else { best });
    Ok(Some(Tried { come, served: all, best }))
}

/// All that was asked for.
struct Run<'a> {
    args: &'a ServeArgs,
    model: &'a LanguageModel,
    system: &'a System,
    server: &'a Server,
    layouts: usize,
    tried: &'a [Tried],
    /// Which loads are left out, and why.
    left_out: Option<String>,
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

    fn text(&self) -> String {
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
    fn notes(&self) -> Vec<String> {
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
    fn csv(&self) -> String {
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

    fn to_json(&self) -> Value {
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
    fn write(&self, folder: &Path) -> Result<(), Failure> {
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
