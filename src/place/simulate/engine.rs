//! The simulation itself: firings one after another, in whole ticks.
//!
//! Rules. An actor may fire when each FIFO it reads holds `consumed` tokens and each it writes has room for `produced`. At the start
//! of a firing its tokens are taken and its room is claimed; at the end the room of the tokens read is given back and the tokens
//! written appear (or, where a transfer takes time, when they arrive). A core runs one firing at a time to its end. It looks at its
//! actors in turn, from the one after the last that fired, takes the first that may fire, and sleeps when none may; a neighbour that
//! brings tokens or room wakes it. What ends at one instant is booked before any core chooses, so that the order of the cores
//! does not matter.
//!
//! Actors that share an output buffer of size K with several readers need `K - fill >= produced` for the reader that lags most:
//! the same as one FIFO of size K for each reader.
//!
//! Data: one record a FIFO (those of a writer side by side) and a count of what each actor still waits for, so that a firing touches its
//! own FIFOs alone; a bit for each actor that may fire, by core, with a second level of bits over its words; a heap of ends.

mod build;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What looks on while firings run; the empty one costs nothing.
pub(super) trait Observer {
    /// Whether it does.
    const LOOKS: bool = true;
    /// A firing of `actor` starts.
    fn start(&mut self, _engine: &Engine, _actor: usize) {}
    /// A firing of `actor` has ended and its tokens are booked.
    fn finish(&mut self, _engine: &Engine, _actor: usize) {}
    /// A firing starts or ends, and the room of `fifo` (in the order of the engine) is about to change by it.
    fn fill(&mut self, _engine: &Engine, _fifo: usize) {}
}

/// Nobody looks on.
impl Observer for () {
    const LOOKS: bool = false;
}

#[derive(Debug, Clone, PartialEq)]
struct Slot {
    /// Tokens the reader may take.
    tokens: u32,
    /// Room the writer may claim.
    space: u32,
    produced: u32,
    consumed: u32,
    source: u32,
    target: u32,
}

#[derive(Debug, Clone, PartialEq)]
struct Actor {
    /// Conditions that do not hold: FIFOs with too few tokens or too little room, and one for good at its last firing.
    missing: u32,
    core: u32,
    /// Its place in the turn of its core, and the word that has its bit.
    turn: u32,
    word: u32,
    /// Its reads: a range of `Engine::reads`.
    reads: (u32, u32),
    /// Its writes: a range of the FIFOs.
    writes: (u32, u32),
    seconds: u64,
    /// Firings started.
    fired: u64,
    /// No more than these.
    limit: u64,
}

#[derive(Debug, Clone, PartialEq)]
struct Core {
    /// Actor that runs, or [`NONE`].
    running: u32,
    /// When it ends.
    end: u64,
    /// Where the next look starts.
    next: u32,
    /// Its part of the turns and, in words of 64, of the bits.
    turns: (u32, u32),
    words: (u32, u32),
    /// Its part of the second level.
    over: u32,
    /// Woken at this instant.
    woken: bool,
}

/// When, and what ends or arrives: one number, so that the heap compares without a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct End(u128);

impl End {
    #[inline]
    fn new(time: u64, what: u32) -> Self {
        Self(u128::from(time) << 64 | u128::from(what))
    }
    #[inline]
    fn time(self) -> u64 {
        (self.0 >> 64) as u64
    }
    #[inline]
    fn what(self) -> u32 {
        self.0 as u32
    }
}

const NONE: u32 = u32::MAX;
/// Times are set back to zero beyond this, so that they never overflow.
const FAR: u64 = 1 << 62;

/// Whose turn it is on each core.
#[derive(Debug, Clone)]
struct Turns {
    cores: Vec<Core>,
    /// Actors by core, in turn.
    actors: Vec<u32>,
    ready: Vec<u64>,
    /// Words of `ready` that are not zero, for cores that have several.
    over: Vec<u64>,
    /// Cores that may choose.
    woken: Vec<u32>,
}

/// A run.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    fifos: Vec<Slot>,
    delays: Vec<u64>,
    /// FIFO of the net at each place, for those who look on.
    pub(super) fifo_at: Vec<u32>,
    reads: Vec<u32>,
    actors: Vec<Actor>,
    turns: Turns,
    /// Ends of firings (the core) and arrivals (cores + FIFO).
    ends: BinaryHeap<Reverse<End>>,
    /// Ticks since `epoch`.
    now: u64,
    epoch: u128,
    /// Firings ended so far.
    firings: u64,
    /// Actor whose firings count iterations: its firings in one, and those ended.
    reference: usize,
    per_iteration: u64,
    ended: u64,
    /// Whether any transfer takes time.
    late: bool,
}

/// Why a run came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// The reference actor has ended (at least) one more iteration.
    Sample,
    /// Everybody sleeps.
    Asleep,
    /// The firings allowed are over.
    Limit,
}

impl Engine {
    /// Ticks since the start.
    pub(super) fn time(&self) -> u128 {
        self.epoch + u128::from(self.now)
    }

    /// Firings ended since the start.
    pub(super) fn firings(&self) -> u64 {
        self.firings
    }

    /// Iterations that the reference actor has ended.
    #[inline]
    pub(super) fn iterations(&self) -> u64 {
        self.ended / self.per_iteration
    }

    /// Firings of an actor started since the start.
    pub(super) fn fired(&self, actor: usize) -> u64 {
        self.actors[actor].fired
    }

    /// Core of an actor.
    pub(super) fn core(&self, actor: usize) -> usize {
        self.actors[actor].core as usize
    }

    /// Tokens in a FIFO or claimed, at the place `fifo`, of `capacity`.
    pub(super) fn fill(&self, fifo: usize, capacity: u32) -> u32 {
        capacity - self.fifos[fifo].space
    }

    /// Whether the core of an actor sleeps at this instant.
    pub(super) fn idle(&self, actor: usize) -> bool {
        let core = &self.turns.cores[self.actors[actor].core as usize];
        core.running == NONE && !core.woken
    }

    /// FIFOs (places) for whose room an actor waits.
    pub(super) fn wants_room(&self, actor: usize) -> impl Iterator<Item = usize> + '_ {
        let (from, to) = self.actors[actor].writes;
        (from as usize..to as usize).filter(|f| self.fifos[*f].space < self.fifos[*f].produced)
    }

    /// Whether an actor has all tokens it reads.
    pub(super) fn has_tokens(&self, actor: usize) -> bool {
        let (from, to) = self.actors[actor].reads;
        self.reads[from as usize..to as usize].iter().all(|f| {
            let fifo = &self.fifos[*f as usize];
            fifo.tokens >= fifo.consumed
        })
    }

    /// Every actor's firings are `by` more, and the clock `ticks` later: whole periods that need not be run.
    pub(super) fn jump(&mut self, by: impl Fn(usize) -> u64, ticks: u128) {
        for (a, actor) in self.actors.iter_mut().enumerate() {
            actor.fired += by(a);
        }
        self.ended += by(self.reference);
        self.epoch += ticks;
    }

    /// The actors fire `limit(a)` times at most, counted from the start: not fewer than they have.
    pub(super) fn limit(&mut self, limit: impl Fn(usize) -> u64) {
        for a in 0..self.actors.len() {
            self.actors[a].limit = limit(a);
            if self.actors[a].fired >= self.actors[a].limit {
                if self.actors[a].missing == 0 {
                    self.turns.unready(&self.actors[a]);
                }
                self.actors[a].missing += 1;
            }
        }
    }

    /// Runs until the reference actor has ended an iteration, all sleep, or `most` firings have ended since the start.
    pub(super) fn run<O: Observer>(&mut self, observer: &mut O, most: u64) -> Pause {
        let cores = self.turns.cores.len() as u32;
        // What the reference actor has ended when its next iteration is whole: no division for every firing.
        let due = (self.iterations() + 1).saturating_mul(self.per_iteration);
        loop {
            // Cores that may choose, at this instant.
            while let Some(core) = self.turns.woken.pop() {
                if let Some(actor) = self.turns.choose(core as usize) {
                    self.start(actor, core as usize, observer);
                }
            }
            let Some(Reverse(end)) = self.ends.peek() else { return Pause::Asleep };
            self.now = end.time();
            while let Some(Reverse(end)) = self.ends.peek().copied() {
                if end.time() != self.now {
                    break;
                }
                self.ends.pop();
                let what = end.what();
                if what < cores { self.finish(what as usize, observer) } else { self.arrive((what - cores) as usize) }
            }
            if self.now >= FAR {
                self.set_back();
            }
            if self.ended >= due {
                return Pause::Sample;
            }
            if self.firings >= most {
                return Pause::Limit;
            }
        }
    }

    fn set_back(&mut self) {
        let now = self.now;
        self.epoch += u128::from(now);
        self.ends = self.ends.drain().map(|Reverse(end)| Reverse(End::new(end.time() - now, end.what()))).collect();
        for core in self.turns.cores.iter_mut().filter(|c| c.running != NONE) {
            core.end -= now;
        }
        self.now = 0;
    }

    #[inline]
    fn start<O: Observer>(&mut self, actor: usize, core: usize, observer: &mut O) {
        if O::LOOKS {
            observer.start(self, actor);
            let (from, to) = self.actors[actor].writes;
            for f in from..to {
                observer.fill(self, f as usize);
            }
        }
        let record = &mut self.actors[actor];
        let fifos = self.fifos.as_mut_slice();
        let mut missing = 0;
        for f in &self.reads[record.reads.0 as usize..record.reads.1 as usize] {
            let fifo = &mut fifos[*f as usize];
            fifo.tokens -= fifo.consumed;
            missing += u32::from(fifo.tokens < fifo.consumed);
        }
        for fifo in &mut fifos[record.writes.0 as usize..record.writes.1 as usize] {
            fifo.space -= fifo.produced;
            missing += u32::from(fifo.space < fifo.produced);
        }
        record.fired += 1;
        missing += u32::from(record.fired >= record.limit);
        // It could fire, so nothing was missing.
        record.missing = missing;
        if missing > 0 {
            self.turns.unready(record);
        }
        let end = self.now + record.seconds;
        let turn = record.turn + 1;
        let record = &mut self.turns.cores[core];
        record.running = actor as u32;
        record.end = end;
        record.next = if turn == record.turns.1 - record.turns.0 { 0 } else { turn };
        self.ends.push(Reverse(End::new(end, core as u32)));
    }

    #[inline]
    fn finish<O: Observer>(&mut self, core: usize, observer: &mut O) {
        let actor = self.turns.cores[core].running as usize;
        self.turns.free(core);
        self.firings += 1;
        self.ended += u64::from(actor == self.reference);
        let Actor { reads, writes, .. } = self.actors[actor];
        if O::LOOKS {
            for i in reads.0..reads.1 {
                observer.fill(self, self.reads[i as usize] as usize);
            }
        }
        let (fifos, actors) = (self.fifos.as_mut_slice(), self.actors.as_mut_slice());
        for f in &self.reads[reads.0 as usize..reads.1 as usize] {
            let fifo = &mut fifos[*f as usize];
            let before = fifo.space;
            fifo.space += fifo.consumed;
            if before < fifo.produced && fifo.space >= fifo.produced {
                self.turns.gained(&mut actors[fifo.source as usize]);
            }
        }
        if self.late {
            for f in writes.0..writes.1 {
                match self.delays[f as usize] {
                    0 => self.arrive(f as usize),
                    delay => {
                        let what = self.turns.cores.len() as u32 + f;
                        self.ends.push(Reverse(End::new(self.now + delay, what)));
                    }
                }
            }
        } else {
            for fifo in &mut fifos[writes.0 as usize..writes.1 as usize] {
                if fifo.arrive() {
                    self.turns.gained(&mut actors[fifo.target as usize]);
                }
            }
        }
        observer.finish(self, actor);
    }

    #[inline]
    fn arrive(&mut self, f: usize) {
        let fifo = &mut self.fifos[f];
        if fifo.arrive() {
            self.turns.gained(&mut self.actors[fifo.target as usize]);
        }
    }

    /// Whether two states are the same but for the clock and the counts: what follows is the same then.
    pub(super) fn same(&self, other: &Self) -> bool {
        let phase = |e: &Self| e.ended % e.per_iteration;
        self.fifos == other.fifos
            && phase(self) == phase(other)
            && self.turns.cores.iter().zip(&other.turns.cores).all(|(a, b)| {
                a.running == b.running
                    && a.next == b.next
                    && a.woken == b.woken
                    && (a.running == NONE || a.end - self.now == b.end - other.now)
            })
            && (!self.late || self.arrivals() == other.arrivals())
    }

    fn arrivals(&self) -> Vec<(u64, u32)> {
        let mut list: Vec<(u64, u32)> =
            self.ends.iter().map(|Reverse(end)| (end.time() - self.now, end.what())).collect();
        list.sort_unstable();
        list
    }
}

impl Slot {
    /// Tokens of a firing arrive. Whether the reader has enough with these.
    #[inline]
    fn arrive(&mut self) -> bool {
        let before = self.tokens;
        self.tokens += self.produced;
        before < self.consumed && self.tokens >= self.consumed
    }
}

impl Turns {
    /// A condition of an actor holds now.
    #[inline]
    fn gained(&mut self, actor: &mut Actor) {
        actor.missing -= 1;
        if actor.missing == 0 {
            self.ready(actor);
        }
    }

    /// An actor may fire.
    #[inline]
    fn ready(&mut self, actor: &Actor) {
        let Actor { core: index, turn, word, .. } = *actor;
        let core = &mut self.cores[index as usize];
        self.ready[word as usize] |= 1 << (turn % 64);
        if core.words.1 - core.words.0 > 1 {
            let word = turn / 64;
            self.over[(core.over + word / 64) as usize] |= 1 << (word % 64);
        }
        if core.running == NONE && !core.woken {
            core.woken = true;
            self.woken.push(index);
        }
    }

    /// An actor may not fire.
    #[inline]
    fn unready(&mut self, actor: &Actor) {
        let Actor { core, turn, word, .. } = *actor;
        let bits = &mut self.ready[word as usize];
        *bits &= !(1 << (turn % 64));
        if *bits == 0 {
            let core = &self.cores[core as usize];
            if core.words.1 - core.words.0 > 1 {
                let word = turn / 64;
                self.over[(core.over + word / 64) as usize] &= !(1 << (word % 64));
            }
        }
    }

    /// A core has ended its firing.
    #[inline]
    fn free(&mut self, core: usize) {
        let record = &mut self.cores[core];
        record.running = NONE;
        if !record.woken {
            record.woken = true;
            self.woken.push(core as u32);
        }
    }

    /// The next actor of a woken core that may fire, in turn.
    #[inline]
    fn choose(&mut self, core: usize) -> Option<usize> {
        let core = &mut self.cores[core];
        core.woken = false;
        let words = &self.ready[core.words.0 as usize..core.words.1 as usize];
        let first = (core.next / 64) as usize;
        let ahead = words.get(first)? & (!0 << (core.next % 64));
        let (word, bits) = if ahead != 0 {
            (first, ahead)
        } else if words.len() == 1 {
            (0, words[0])
        } else {
            let over = &self.over[core.over as usize..core.over as usize + words.len().div_ceil(64)];
            let word = next_bit(over, first + 1).or_else(|| next_bit(over, 0))?;
            (word, words[word])
        };
        let turn = (bits != 0).then(|| word as u32 * 64 + bits.trailing_zeros())?;
        Some(self.actors[(core.turns.0 + turn) as usize] as usize)
    }
}

fn next_bit(words: &[u64], from: usize) -> Option<usize> {
    let first = from / 64;
    let ahead = words.get(first)? & (!0 << (from % 64));
    if ahead != 0 {
        return Some(first * 64 + ahead.trailing_zeros() as usize);
    }
    words[first + 1..]
        .iter()
        .position(|w| *w != 0)
        .map(|i| (first + 1 + i) * 64 + words[first + 1 + i].trailing_zeros() as usize)
}
