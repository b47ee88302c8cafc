//! Requests that come one by one: continuous batching, pass by pass (Yu et al. 2022, Orca; Kwon et al. 2023, arXiv 2309.06180; pieces of prompts: Agrawal et
//! al. 2024, Sarathi-Serve, arXiv 2403.02310). docs/serving.md, "Requests that come one by one", has the rules.
//!
//! A pass takes what [`Steps`] say of its rows: one of each sequence that makes a token, and those of the prompts that it reads. A request has its first token
//! at the end of the pass that reads the last of its prompt, and leaves with its last. It goes to the replica that has the fewest. Keys and values are counted
//! in blocks as [`memory::kept`] counts them; where steps need more than there is, the request that got its place last loses it and reads again what it had.

mod replica;
mod requests;
#[cfg(test)]
mod tests;

pub use requests::{Request, poisson, read};

use replica::{Event, Replica};

use super::{Layout, Refusal, Server, Steps, Uses, check_degrees, memory};
use crate::deadline::Deadline;
use crate::execution::energy::Power;
use crate::model::energy::Energy;
use crate::system::serving::CacheLayout;
use crate::units::Ordered;
use crate::workload::language::LanguageModel;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// What a server is given to do.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// Requests, in the order of their arrivals.
    pub requests: &'a [Request],
    /// Users of whom each sends the next request when the last is answered; the arrivals of the requests count for nothing then.
    pub users: Option<u64>,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Answer {
    /// Its number, in the order in which requests are given.
    pub id: usize,
    /// When it came, s.
    pub arrival_s: f64,
    /// Tokens of its prompt.
    pub prompt: u64,
    /// Tokens generated.
    pub generated: u64,
    /// The replica that served it.
    pub replica: usize,
    /// When its first token was there, s.
    pub first_s: f64,
    /// When its last was.
    pub end_s: f64,
}

impl Answer {
    /// From the request to its first token, s.
    pub fn ttft_s(&self) -> f64 {
        self.first_s - self.arrival_s
    }

    /// For each further token, s; `None` where there is none.
    pub fn tpot_s(&self) -> Option<f64> {
        let further = self.generated.saturating_sub(1);
        (further > 0).then(|| (self.end_s - self.first_s) / further as f64)
    }

    /// From the request to its last token, s.
    pub fn latency_s(&self) -> f64 {
        self.end_s - self.arrival_s
    }

    /// Whether its first token is there after `from` and not after `to`.
    fn begins_within(&self, from: f64, to: f64) -> bool {
        self.first_s > from && self.first_s <= to
    }

    /// Of its tokens those made after `from` and not after `to`: the first, and the others evenly between it and the last.
    fn generated_within(&self, from: f64, to: f64) -> f64 {
        let made = |at: f64| match self.end_s > self.first_s {
            true => ((at - self.first_s) / (self.end_s - self.first_s)).clamp(0.0, 1.0),
            false => 0.0,
        };
        let further = self.generated.saturating_sub(1) as f64;
        further * (made(to) - made(from))
            + if self.begins_within(from, to) { self.generated.min(1) as f64 } else { 0.0 }
    }
}

/// Mean and percentiles: of n sorted values the ceil(n p)th.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Half are not above it.
    pub p50: f64,
    /// Nine of ten.
    pub p90: f64,
    /// 95 of a hundred.
    pub p95: f64,
    /// 99 of a hundred.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of values; of none all are 0.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let at = |share: f64| {
            sorted.get(((n as f64 * share).ceil() as usize).clamp(1, n.max(1)) - 1).copied().unwrap_or(0.0)
        };
        let mean = if n > 0 { sorted.iter().sum::<f64>() / n as f64 } else { 0.0 };
        Self { mean, p50: at(0.5), p90: at(0.9), p95: at(0.95), p99: at(0.99), max: at(1.0) }
    }
}

/// What a server did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tally {
    /// Degrees.
    pub layout: Layout,
    /// Requests a second that came, from the first to the last; of users that wait for answers none is given.
    pub offered_per_s: Option<f64>,
    /// Requests answered a second, from the first arrival to the last token; of users while all of them have asked again and none has asked for the last time.
    pub answered_per_s: f64,
    /// Tokens generated a second, in the same time.
    pub generated_per_s: f64,
    /// Tokens a second of answers that are made and of prompts whose first token is there.
    pub tokens_per_s: f64,
    /// Generated tokens a second and chip (all tokens where nothing is generated).
    pub per_chip: f64,
    /// Seconds to the first token.
    pub ttft_s: Spread,
    /// Seconds for each further token of a request; `None` where none makes any.
    pub tpot_s: Option<Spread>,
    /// Seconds to the last token.
    pub latency_s: Spread,
    /// Requests with a place in the cache at once, mean over time and sum over replicas.
    pub at_once: f64,
    /// Requests that had no place when the last one came.
    pub waiting_at_last: u64,
    /// Share of the time in which replicas compute.
    pub busy: f64,
    /// Times that a request lost its place and was read again.
    pub preempted: u64,
    /// Passes of all replicas.
    pub passes: u64,
    /// From the first arrival to the last token, s.
    pub seconds: f64,
    /// Joules, all chips.
    pub energy: Energy,
    /// Every request.
    #[serde(skip)]
    pub answers: Vec<Answer>,
}

impl Tally {
    /// Of the requests those with a first token and further ones within so many seconds.
    pub fn within(&self, ttft_s: Option<f64>, tpot_s: Option<f64>) -> f64 {
        let kept = |a: &&Answer| {
            ttft_s.is_none_or(|most| a.ttft_s() <= most)
                && tpot_s.is_none_or(|most| a.tpot_s().is_none_or(|tpot| tpot <= most))
        };
        self.answers.iter().filter(kept).count() as f64 / self.answers.len().max(1) as f64
    }
}

/// Why software that serves batches of a fixed size, or one prompt a pass, is not simulated.
pub fn unfit(server: &Server, model: &LanguageModel) -> Option<String> {
    let name = &server.machine.stack.name;
    let fixed = matches!(server.serving.cache, CacheLayout::Static | CacheLayout::Compiled | CacheLayout::Bucketed);
    if model.generates() && fixed {
        return Some(format!(
            "{name} keeps keys and values in tensors of a fixed size (cache: {}): its batches begin and end together, and no requests come and go",
            server.serving.cache.word()
        ));
    }
    server.serving.prompts_alone.then(|| {
        format!("{name} runs graphs that are compiled for one prompt (prompts_alone): no requests come and go")
    })
}

/// Tokens of cache that a replica has room for, on its fullest stage, beside the buffers of the longest `prompt` and the scores of as many sequences as are there at
/// once if all take what they do on average (`each` tokens): the most of `share` that have room beside their own scores. `longest` are tokens of prompt and answer.
fn room(steps: &Steps, (prompt, longest): (u64, u64), share: u64, each: f64) -> f64 {
    let serving = &steps.server.serving;
    let rows = prompt.min(serving.most_tokens) as f64;
    let stages = memory::Stages::of(steps);
    // Scores are those of a microbatch.
    let scored = |n: u64| n.div_ceil(steps.layout.pp.max(1)) as f64;
    let free = |n: u64| stages.free(steps, longest, rows, scored(n)).unwrap_or(f64::INFINITY);
    let (mut low, mut high) = (1, share.min(serving.most_sequences).max(1) + 1);
    while high - low > 1 {
        let n = low + (high - low) / 2;
        if n as f64 * each <= free(n) { low = n } else { high = n }
    }
    free(low)
}

/// Serves requests.
///
/// # Errors
/// [`Refusal`]: degrees that do not divide, software that no requests come and go in, a request that has no room at all; `None` in place of an answer
/// where the deadline ended it.
pub fn serve(
    server: &Server,
    model: &LanguageModel,
    layout: Layout,
    load: &Load<'_>,
    deadline: Deadline,
) -> Result<Option<Tally>, Refusal> {
    check_degrees(model, &layout).map_err(Refusal::Degrees)?;
    if let Some(why) = unfit(server, model) {
        return Err(Refusal::System(why));
    }
    if let Some(whole) = server.without_windows(model) {
        return serve(server, &whole, layout, load, deadline);
    }
    let steps = Steps::new(server, model, layout).map_err(Refusal::System)?;
    let replicas = layout.dp.max(1);
    let most = |of: fn(&Request) -> u64| load.requests.iter().map(of).max().unwrap_or(1);
    let longest = (most(|r| r.prompt), most(|r| r.prompt.saturating_add(r.generated)));
    let share = (load.requests.len() as u64).min(load.users.unwrap_or(u64::MAX)).div_ceil(replicas);
    let in_cache = |r: &Request| {
        memory::kept(&steps, r.prompt.saturating_add(r.generated).saturating_sub(u64::from(r.generated > 0)))
    };
    let each = load.requests.iter().map(in_cache).sum::<f64>() / load.requests.len().max(1) as f64;
    let room = room(&steps, longest, share, each);
    let fleet: Vec<Replica<'_>> = (0..replicas).map(|_| Replica::new(steps, room)).collect();
    for (id, request) in load.requests.iter().enumerate() {
        let tokens = request.prompt.saturating_add(request.generated);
        if model.max_positions.is_some_and(|most| tokens > most) {
            return Err(Refusal::System(format!(
                "request {id}: {} tokens of prompt and {} generated are more than the {} positions of {}",
                request.prompt,
                request.generated,
                model.max_positions.unwrap_or(0),
                model.name
            )));
        }
        if request.generated > 0 && !model.generates() {
            return Err(Refusal::System(format!(
                "request {id}: {} tokens generated: {} has no head of next words and generates none",
                request.generated, model.name
            )));
        }
        let needed = in_cache(request);
        if needed > room {
            return Err(Refusal::System(format!(
                "request {id}: the keys and values of {needed:.0} tokens have no room in the memory of a replica, which keeps {room:.0} beside the weights: more chips to a replica, or narrower types"
            )));
        }
    }
    Ok(Run::new(fleet, load, &steps).run(deadline))
}

/// A simulation under way.
struct Run<'a, 'b> {
    fleet: Vec<Replica<'b>>,
    /// Those that have something to do, by when their next pass can begin.
    busy: BTreeSet<(Ordered, usize)>,
    load: &'a Load<'a>,
    layout: Layout,
    /// Requests to come that are known, by time and number.
    due: BinaryHeap<Reverse<(Ordered, usize)>>,
    times: Vec<f64>,
    /// Number of the next request of a user.
    next: usize,
    answers: Vec<Answer>,
    left: usize,
    power: &'b Power,
    /// Seconds before a request is in the queue of its replica.
    asked: f64,
    waiting_at_last: u64,
}

impl<'a, 'b> Run<'a, 'b> {
    fn new(fleet: Vec<Replica<'b>>, load: &'a Load<'a>, steps: &Steps<'b>) -> Self {
        let n = load.requests.len();
        let blank = |(id, r): (usize, &Request)| Answer {
            id,
            arrival_s: r.arrival_s,
            prompt: r.prompt,
            generated: r.generated,
            replica: 0,
            first_s: 0.0,
            end_s: 0.0,
        };
        let mut run = Self {
            fleet,
            busy: BTreeSet::new(),
            load,
            layout: steps.layout,
            power: &steps.server.machine.power,
            due: BinaryHeap::new(),
            times: vec![0.0; n],
            next: 0,
            answers: load.requests.iter().enumerate().map(blank).collect(),
            left: n,
            asked: steps.asked(),
            waiting_at_last: 0,
        };
        match load.users {
            Some(users) => (0..users.min(n as u64)).for_each(|_| run.ask(0.0)),
            None => load.requests.iter().for_each(|r| run.ask(r.arrival_s)),
        }
        run
    }

    /// The next request, at `at`.
    fn ask(&mut self, at: f64) {
        let id = self.next;
        if id >= self.times.len() {
            return;
        }
        self.next += 1;
        self.answers[id].arrival_s = at;
        self.times[id] = at + self.asked;
        self.due.push(Reverse((Ordered(self.times[id]), id)));
    }

    /// To the last answer; `None` where the deadline ends it before.
    fn run(mut self, deadline: Deadline) -> Option<Tally> {
        let mut rounds = 0u64;
        while self.left > 0 {
            rounds += 1;
            if rounds.is_multiple_of(1024) && deadline.is_over() {
                return None;
            }
            // The replica whose next pass begins first; requests that come before it are given out first.
            let next = self.busy.first().map(|(at, replica)| (*replica, at.0));
            let due = self.due.peek().map(|Reverse((_, id))| *id);
            match (due, next) {
                (Some(id), at) if at.is_none_or(|(_, clock)| self.times[id] <= clock) => {
                    self.due.pop();
                    self.give(id);
                }
                (_, Some((replica, _))) => self.pass(replica),
                (_, None) => break,
            }
        }
        Some(self.served())
    }

    /// A request to the replica that has the fewest.
    fn give(&mut self, id: usize) {
        let at = self.times[id];
        let of = |r: &Replica<'_>| (r.there(at), Ordered(r.clock));
        let fewest = self.fleet.iter().enumerate().min_by_key(|(_, r)| of(r)).map_or(0, |(i, _)| i);
        self.answers[id].replica = fewest;
        if let Some(replica) = self.fleet.get_mut(fewest) {
            replica.take(id, &self.load.requests[id], self.times[id]);
            self.busy.insert((Ordered(replica.clock), fewest));
        }
        if id + 1 == self.times.len() {
            self.waiting_at_last = self.fleet.iter().map(|r| r.waiting() as u64).sum::<u64>().saturating_sub(1);
        }
    }

    fn pass(&mut self, replica: usize) {
        self.busy.pop_first();
        let events = self.fleet[replica].pass();
        let now = self.fleet[replica].clock;
        if self.fleet[replica].outstanding() > 0 {
            self.busy.insert((Ordered(now), replica));
        }
        for event in events {
            match event {
                Event::First(id) => self.answers[id].first_s = now,
                Event::End(id) => {
                    self.answers[id].end_s = now;
                    self.left -= 1;
                    if self.load.users.is_some() {
                        // What else there is to do goes on before a user has read the answer: the pass that follows begins without the next request.
                        self.ask(now.next_up());
                    }
                }
            }
        }
    }

    /// From when to when answers of a second are counted: the whole run; of users to the last time that one of them asked, from the end of the last answer that
    /// any of them began with, or from half of that time where it is not there before.
    fn counted(&self, (begin, end): (f64, f64), last: f64) -> (f64, f64) {
        let first = |users: u64| self.answers.get(..usize::try_from(users).ok()?);
        match self.load.users.and_then(first) {
            Some(first) if last > begin => {
                (first.iter().map(|a| a.end_s).fold(0.0, f64::max).min((begin + last) / 2.0), last)
            }
            _ => (begin, end),
        }
    }

    fn served(self) -> Tally {
        let sum = |of: fn(&Replica<'_>) -> f64| self.fleet.iter().map(of).sum::<f64>();
        let begin = self.answers.iter().map(|a| a.arrival_s).fold(f64::INFINITY, f64::min);
        let end = self.answers.iter().map(|a| a.end_s).fold(0.0, f64::max);
        let last = self.answers.iter().map(|a| a.arrival_s).fold(0.0, f64::max);
        let seconds = (end - begin).max(f64::MIN_POSITIVE);
        let (n, replicas) = (self.answers.len() as f64, self.fleet.len().max(1) as f64);
        let used = self.fleet.iter().fold(Uses::default(), |all, r| all + r.uses).joules(&self.power.rates);
        let (from, to) = self.counted((begin, end), last);
        let a_second =
            |of: &dyn Fn(&Answer) -> f64| self.answers.iter().map(of).sum::<f64>() / (to - from).max(f64::MIN_POSITIVE);
        // Of an answer the part of its time that lies within.
        let answered = a_second(&|a| (a.end_s.min(to) - a.arrival_s.max(from)).max(0.0) / a.latency_s());
        let prompts = a_second(&|a| if a.begins_within(from, to) { a.prompt as f64 } else { 0.0 });
        let generated = a_second(&|a| a.generated_within(from, to));
        let rate = if self.answers.iter().any(|a| a.generated > 0) { generated } else { prompts };
        let tpot: Vec<f64> = self.answers.iter().filter_map(Answer::tpot_s).collect();
        Tally {
            layout: self.layout,
            offered_per_s: (self.load.users.is_none() && last > begin).then(|| (n - 1.0) / (last - begin)),
            answered_per_s: answered,
            generated_per_s: generated,
            tokens_per_s: generated + prompts,
            per_chip: rate / self.layout.chips() as f64,
            ttft_s: Spread::of(self.answers.iter().map(Answer::ttft_s)),
            tpot_s: (!tpot.is_empty()).then(|| Spread::of(tpot)),
            latency_s: Spread::of(self.answers.iter().map(Answer::latency_s)),
            at_once: sum(|r| r.at_once_s) / seconds,
            waiting_at_last: self.waiting_at_last,
            busy: sum(|r| r.busy_s) / (seconds * replicas),
            preempted: self.fleet.iter().map(|r| r.preempted).sum(),
            passes: self.fleet.iter().map(|r| r.passes).sum(),
            seconds,
            energy: Energy { idle: self.power.idle.times(seconds), used },
            answers: self.answers,
        }
    }
}
