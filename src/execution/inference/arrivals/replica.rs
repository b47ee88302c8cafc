//! One replica that requests come to and go from, pass by pass.

use super::Request;
use crate::execution::inference::{Pass, Steps, Uses, memory};
use crate::system::serving::PromptsRead;
use crate::workload::language::{AttentionCount, seen_in};
use std::collections::VecDeque;

/// A request that has a place in the cache.
#[derive(Debug, Clone, Copy)]
struct Active {
    /// Which request.
    id: usize,
    /// Its tokens that are in the cache.
    cached: u64,
    /// Tokens that are to be read before the next is made: the prompt, and after a loss of its place what had been made too.
    to_read: u64,
    /// Tokens that it has made.
    made: u64,
    /// Tokens that it is to make.
    wanted: u64,
    /// Tokens of cache that are held for it.
    held: f64,
}

impl Active {
    fn reads(&self) -> bool {
        self.cached < self.to_read
    }
}

/// What a pass goes through.
#[derive(Debug, Clone, Default)]
struct Work {
    /// Places of those that make a token.
    steps: Vec<usize>,
    /// Places of those that read, and how many tokens.
    pieces: Vec<(usize, u64)>,
}

/// What a pass did to a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// Its first token is there (or its prompt read, where nothing is generated).
    First(usize),
    /// Its last token is there.
    End(usize),
}

/// Requests of one replica.
pub struct Replica<'a> {
    steps: Steps<'a>,
    reads: PromptsRead,
    /// Tokens of cache there is room for.
    room: f64,
    waiting: VecDeque<Active>,
    active: Vec<Active>,
    /// Requests that ended with the last pass.
    leaving: usize,
    /// When its next pass can begin.
    pub clock: f64,
    /// Seconds in which it computes.
    pub busy_s: f64,
    /// Requests at once, times seconds.
    pub at_once_s: f64,
    /// Passes.
    pub passes: u64,
    /// Requests that lost their place in the cache and read again.
    pub preempted: u64,
    /// What its chips use.
    pub uses: Uses,
}

impl<'a> Replica<'a> {
    /// Of a replica with room for so many tokens.
    pub fn new(steps: Steps<'a>, room: f64) -> Self {
        Self {
            // Where every token sees all others a prompt cannot be cut.
            reads: if steps.model.generates() { steps.server.serving.prompts_read } else { PromptsRead::Before },
            steps,
            room,
            waiting: VecDeque::new(),
            active: Vec::new(),
            leaving: 0,
            clock: 0.0,
            busy_s: 0.0,
            at_once_s: 0.0,
            passes: 0,
            preempted: 0,
            uses: Uses::default(),
        }
    }

    /// Tokens of cache that a sequence of so many takes.
    pub fn kept(&self, tokens: u64) -> f64 {
        memory::kept(&self.steps, tokens)
    }

    /// Requests that it has to do.
    pub fn outstanding(&self) -> usize {
        self.waiting.len() + self.active.len()
    }

    /// Requests that are there at `at`: those too that the pass under way ends.
    pub fn there(&self, at: f64) -> usize {
        self.outstanding() + if self.clock > at { self.leaving } else { 0 }
    }

    /// Requests that have no place yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a request that is there at `at`.
    pub fn take(&mut self, id: usize, request: &Request, at: f64) {
        if self.outstanding() == 0 {
            self.clock = self.clock.max(at);
        }
        self.waiting.push_back(Active {
            id,
            cached: 0,
            to_read: request.prompt,
            made: 0,
            wanted: request.generated,
            held: 0.0,
        });
    }

    /// Tokens of cache that a request needs to have a place: of its prompt and the token after it, or of all that it will have.
    fn needed(&self, a: &Active) -> f64 {
        // Of the tokens that it is yet to make the last is never in the cache.
        let further = a.wanted.saturating_sub(a.made).saturating_sub(1);
        self.kept(a.to_read + if self.steps.server.serving.admits_whole { further } else { further.min(1) })
    }

    /// Gives places to those that wait, in order, beside the `held` tokens of cache, while `budget` tokens of prompts are left: adds what they read in this pass.
    fn admit(&mut self, mut held: f64, mut budget: u64, pieces: &mut Vec<(usize, u64)>) {
        let serving = &self.steps.server.serving;
        // Prompts that are not read together are microbatches of their own.
        let most = if serving.separate_prompts { self.steps.layout.pp as usize } else { usize::MAX };
        while let Some(next) = self.waiting.front().copied() {
            let whole = self.reads != PromptsRead::Pieces;
            // A prompt that is longer than a pass, and may not be cut, has one of its own.
            let fits = budget > 0 && (!whole || next.to_read <= budget || pieces.is_empty());
            let places = (self.active.len() as u64) < serving.most_sequences.max(1);
            let needed = self.needed(&next);
            if !fits || !places || held + needed > self.room || pieces.len() >= most {
                break;
            }
            self.waiting.pop_front();
            held += needed;
            let read = if whole { next.to_read } else { next.to_read.min(budget) };
            budget = budget.saturating_sub(read);
            pieces.push((self.active.len(), read));
            self.active.push(Active { held: needed, ..next });
        }
    }

    /// Room for the tokens that steps add: the request that has its place for the shortest time loses it where there is none, and reads again. Returns what
    /// all of them hold.
    fn make_room(&mut self) -> f64 {
        loop {
            let next = |a: &Active| if a.reads() { a.held } else { self.kept(a.cached + 1).max(a.held) };
            let needed: f64 = self.active.iter().map(next).sum();
            if needed <= self.room || self.active.len() <= 1 {
                let held: Vec<f64> = self.active.iter().map(next).collect();
                self.active.iter_mut().zip(held).for_each(|(a, held)| a.held = held);
                return needed;
            }
            if let Some(last) = self.active.pop() {
                // With what it had made, the last token included, which is not in the cache yet.
                let to_read = if last.reads() { last.to_read } else { last.cached + 1 };
                self.waiting.push_front(Active { cached: 0, held: 0.0, to_read, ..last });
                self.preempted += 1;
            }
        }
    }

    fn plan(&mut self) -> Work {
        let held = self.make_room();
        let most = self.steps.server.serving.most_tokens.max(1);
        let mut work = Work::default();
        if self.reads == PromptsRead::Before {
            self.admit(held, most, &mut work.pieces);
            if !work.pieces.is_empty() {
                return work;
            }
        }
        work.steps = (0..self.active.len()).filter(|i| !self.active[*i].reads()).collect();
        let mut budget = most.saturating_sub(work.steps.len() as u64);
        for (i, a) in self.active.iter().enumerate().filter(|(_, a)| a.reads()) {
            let read = (a.to_read - a.cached).min(budget);
            budget -= read;
            if read > 0 {
                work.pieces.push((i, read));
            }
        }
        if self.reads != PromptsRead::Before {
            self.admit(held, budget, &mut work.pieces);
        }
        work
    }

    /// Seconds of a pass, and what it uses.
    fn spent(&self, work: &Work) -> (f64, Uses) {
        let (model, server, layout) = (self.steps.model, self.steps.server, &self.steps.layout);
        let (count, sequences) = (work.steps.len() as f64, (work.steps.len() + work.pieces.len()) as u64);
        let read: u64 = work.pieces.iter().map(|(_, n)| n).sum();
        let rows = count + read as f64;
        // Its sequences are cut in as many microbatches as `map` cuts a batch in; but a prompt is in one, however many stages there are.
        let cut = sequences.max(1).div_ceil(sequences.div_ceil(layout.pp.max(1)).max(1)) as f64;
        let longest = work.pieces.iter().map(|(_, n)| *n).max().unwrap_or(0) as f64;
        let microbatches = cut.min(rows / longest.max(rows / cut));
        // Of windows, what a token sees is no more than these.
        let over = |full: &dyn Fn(f64) -> f64| model.over_layers(|| full(f64::INFINITY), |w| full(w as f64));
        let mean = |sum: f64, of: f64| if of > 0.0 { sum / of } else { 0.0 };
        let context: f64 = work.steps.iter().map(|i| over(&|w| (self.active[*i].cached as f64 + 1.0).min(w))).sum();
        let seen_of = |(i, n): &(usize, u64)| {
            if !model.generates() {
                return *n as f64 * model.mean_attended(*n, AttentionCount::Masked);
            }
            let (from, n) = (self.active[*i].cached as f64, *n as f64);
            over(&|window| seen_in(window, from, n))
        };
        let seen: f64 = work.pieces.iter().map(seen_of).sum();
        let before: f64 = work.pieces.iter().map(|(i, _)| over(&|w| (self.active[*i].cached as f64).min(w))).sum();
        let ends = |(i, n): &&(usize, u64)| self.active[*i].cached + n >= self.active[*i].to_read;
        let chosen = count + work.pieces.iter().filter(ends).count() as f64;
        // Others that divide the experts are taken to have as much.
        let beside = self.steps.beside(sequences, sequences.saturating_mul(layout.ep));
        // Of steps alone, rows that fill one up have no context.
        let each = rows / microbatches;
        let filled = if read == 0 { server.rows_of_step(each) } else { each };
        let added = filled - each;
        let pass = Pass::Mixed {
            steps: count / microbatches + added,
            context: mean(context, count) * each / filled,
            seen: mean(seen, read as f64),
            before: before / microbatches,
        };
        let spent = beside.through((1.0, microbatches), (filled, chosen / microbatches + added), pass);
        let others = (layout.ep.max(1) - 1) as f64;
        let waited = 1.0 + server.serving.replica_wait.0 * others * read as f64 / rows.max(1.0);
        let host = if count > 0.0 { server.serving.step.0 + count * server.serving.step_sequence.0 } else { 0.0 };
        (spent.seconds.total() * waited + host, spent.uses)
    }

    /// One pass of what there is to do: what happened to whom when it ended (`clock`). There is room for every request, so that one at least is served.
    pub fn pass(&mut self) -> Vec<Event> {
        let work = self.plan();
        let (seconds, uses) = self.spent(&work);
        self.at_once_s += self.active.len() as f64 * seconds;
        self.busy_s += seconds;
        self.clock += seconds;
        self.passes += 1;
        self.uses += uses;
        let mut events = Vec::new();
        for &(i, n) in &work.pieces {
            let a = &mut self.active[i];
            a.cached += n;
            if !a.reads() {
                if a.made == 0 {
                    events.push(Event::First(a.id));
                }
                a.made += 1;
            }
        }
        for &i in &work.steps {
            let a = &mut self.active[i];
            a.cached += 1;
            a.made += 1;
            // What is read again after a loss of the place.
            a.to_read = a.cached;
        }
        let over = |a: &Active| !a.reads() && a.made >= a.wanted.max(1);
        events.extend(self.active.iter().filter(|a| over(a)).map(|a| Event::End(a.id)));
        let before = self.active.len();
        self.active.retain(|a| !over(a));
        self.leaving = before - self.active.len();
        events
    }
}
