//! `flowspace serve`: requests that come one by one to a system that serves a language model, simulated pass by pass.

mod report;

use report::Run;

use super::args::{positive, seed, time, word};
use super::interrupt::Interrupt;
use super::present::significant;
use super::{Failure, output, print};
use crate::deadline::Deadline;
use crate::execution::inference::arrivals::{Load, Request, Tally, poisson, read, serve};
use crate::execution::inference::search::{Goal, layouts, no_layouts};
use crate::execution::inference::{Layout, Limits, Refusal, Server, Wanted};
use crate::execution::search::Aim;
use crate::model::objective::Objective;
use crate::progress::Waiting;
use crate::system::economics::Economics;
use crate::system::serving::PromptsRead;
use crate::system::{Software, System};
use crate::workload::WorkloadSpec;
use crate::workload::language::{LanguageModel, ModelPass};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

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
