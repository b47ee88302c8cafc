//! The one pass over a Kineto trace: what is before and behind the events, event after event, and what is wrong with them. Readers say what
//! they keep.

use super::quick;
use super::scan::SeenArgs;
use super::written::{Arguments, Written};
use crate::trace::error::{MOST_ERRORS, TraceError, TraceErrors};
use crate::trace::json::{Cutter, JsonFault};
use serde_json::Value;
use std::io::Read;
use std::path::Path;

/// An error of an event: a field and a message.
pub(crate) type Wrong = (String, String);

/// A reader.
pub(crate) trait Reader {
    /// The arguments that it keeps.
    type Args<'a>: Arguments<'a>;
    /// What reads a later part of the events at the same time.
    type Beside: Reader<Beside = Self::Beside> + Send;
    /// Makes one; `None` where events have to come one after another.
    const BESIDE: Option<fn() -> Self::Beside> = None;
    /// Keys beside `traceEvents` whose values it wants.
    const ABOUT: &'static [&'static str] = &[];
    /// Takes the value of such a key.
    fn about(&mut self, _key: &str, _value: &Value) {}
    /// Takes the event at a place in `traceEvents`.
    fn event<'a>(&mut self, index: u32, event: &Written<'a, Self::Args<'a>>) -> Result<(), Wrong>;
    /// Takes over what another one read of the events that follow; places are so much higher than that one knew.
    fn join(&mut self, later: Self::Beside, places: u32);
}

/// No reader: for those whose events have to come one after another.
#[derive(Debug)]
pub(crate) enum Nobody {}

impl Reader for Nobody {
    type Args<'a> = SeenArgs<'a>;
    type Beside = Self;
    fn event<'a>(&mut self, _: u32, _: &Written<'a, SeenArgs<'a>>) -> Result<(), Wrong> {
        match *self {}
    }
    fn join(&mut self, _: Self, _: u32) {}
}

/// Shows all of uncompressed bytes to a reader; `path` is for messages.
///
/// # Errors
/// [`TraceErrors`]: what cannot be read, with byte, event and field; up to twenty faulty events at once.
pub(super) fn walk<T: Reader>(source: impl Read, path: &Path, reader: &mut T) -> Result<(), TraceErrors> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let halvings = if T::BESIDE.is_some() { processors.ilog2().min(3) } else { 0 };
    let mut walk = Walk { path, reader, errors: Vec::new(), halvings, misses: 0 };
    if let Err(fault) = walk.outer(&mut Cutter::new(source)) {
        walk.errors.push(TraceError::new(path, fault.message).at(fault.byte));
    }
    if walk.errors.is_empty() { Ok(()) } else { Err(TraceErrors(walk.errors)) }
}

/// Bytes that are looked at as text at once, least and most: few where events are not plain, for they are looked at again.
const WINDOW: (usize, usize) = (1 << 12, 1 << 16);
/// Bytes of a part that one of several threads reads, least and usual ones: starting a thread takes as long as reading a few thousand.
const PART: (usize, usize) = (1 << 16, 1 << 18);
/// So many guesses where an event begins may be wrong before there are no more.
const MOST_MISSES: u32 = 8;

/// The text that bytes begin with.
fn text(bytes: &[u8]) -> &str {
    let valid = |e: std::str::Utf8Error| std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default();
    std::str::from_utf8(bytes).unwrap_or_else(valid)
}

/// Behind the first bracket after the middle that looks like an event's end before another event. In an argument it may look so, too.
fn middle(bytes: &[u8]) -> Option<usize> {
    let blank = |b: &&u8| b.is_ascii_whitespace();
    let half = bytes.len() / 2;
    let (before, behind) = bytes.split_at(half);
    let mut commas = behind.iter().enumerate().take(WINDOW.1).filter(|(_, b)| **b == b',').map(|(at, _)| half + at);
    commas.find_map(|at| {
        let opens = bytes.get(at + 1..)?.iter().find(|b| !blank(b)) == Some(&b'{');
        let end = at - bytes.get(before.len()..at)?.iter().rev().take_while(blank).count();
        (opens && end > half && bytes.get(end - 1) == Some(&b'}')).then_some(end)
    })
}

struct Walk<'w, T> {
    path: &'w Path,
    reader: &'w mut T,
    errors: Vec<TraceError>,
    /// How often a window is halved, for threads to read the parts.
    halvings: u32,
    /// Guesses that were wrong.
    misses: u32,
}

impl<T: Reader> Walk<'_, T> {
    fn outer<R: Read>(&mut self, cutter: &mut Cutter<R>) -> Result<(), JsonFault> {
        // Chrome's format allows the bare list of events, too.
        if cutter.peek()? == Some(b'[') {
            self.events(cutter)?;
            return if self.errors.is_empty() { cutter.end() } else { Ok(()) };
        }
        cutter.enter_object()?;
        let (mut first, mut events) = (true, false);
        while let Some(key) = cutter.key(first)? {
            first = false;
            if key == "traceEvents" {
                events = true;
                self.events(cutter)?;
                if self.errors.len() >= MOST_ERRORS {
                    return Ok(());
                }
                continue;
            }
            let (byte, text) = cutter.value()?;
            if T::ABOUT.contains(&key.as_str()) {
                let value: Value = serde_json::from_slice(text)
                    .map_err(|e| JsonFault { byte, message: format!("`{key}`: this is not JSON: {e}") })?;
                self.reader.about(&key, &value);
            }
        }
        cutter.end()?;
        if events { Ok(()) } else { Err(cutter.fault("`traceEvents` is missing: this is no Kineto trace")) }
    }

    fn events<R: Read>(&mut self, cutter: &mut Cutter<R>) -> Result<(), JsonFault> {
        cutter.enter_array()?;
        let (mut index, mut window) = (0u32, WINDOW.0);
        loop {
            let byte = cutter.byte();
            let bytes = cutter.ahead(window);
            let used = self.plain(bytes.get(..window).unwrap_or(bytes), byte, &mut index);
            cutter.advance(used);
            if self.errors.len() >= MOST_ERRORS {
                return Ok(());
            }
            if used > 0 {
                let most = if self.halvings > 0 { PART.1 << self.halvings } else { WINDOW.1 };
                window = (2 * window).min(most);
                continue;
            }
            window = (window / 2).max(WINDOW.0);
            if !cutter.more(index == 0, b']')? {
                return Ok(());
            }
            let (byte, text) = cutter.value()?;
            let result = match serde_json::from_slice(text) {
                Ok(event) => self.event(index, byte, &event),
                Err(e) => Err(TraceError::new(self.path, e.to_string()).at(byte).node(format!("traceEvents[{index}]"))),
            };
            self.errors.extend(result.err());
            if self.errors.len() >= MOST_ERRORS {
                return Ok(());
            }
            let message = "more than 4 billion events are more than this reader counts";
            index = index.checked_add(1).ok_or(JsonFault { byte, message: message.into() })?;
        }
    }

    /// Takes the plain events that bytes begin with, each but the file's first one behind its comma; gives their length. `byte` is where the
    /// bytes begin. Of many bytes the later half is read at the same time, from where an event seems to begin: what is read there counts if the
    /// events before end at that place.
    fn plain(&mut self, bytes: &[u8], byte: u64, index: &mut u32) -> usize {
        let apart = self.halvings > 0 && bytes.len() >= 2 * PART.0;
        let beside = T::BESIDE.filter(|_| apart).map(|make| make());
        let Some((end, mut later)) = beside.and_then(|later| Some((middle(bytes)?, later))) else {
            return self.row(text(bytes), byte, index);
        };
        let (front, back) = bytes.split_at(end);
        let (path, halvings) = (self.path, self.halvings - 1);
        let read_later = || {
            // Not the file's first event: its place is told from one on.
            let (mut walk, mut next) = (Walk { path, reader: &mut later, errors: Vec::new(), halvings, misses: 0 }, 1);
            let used = walk.plain(back, byte, &mut next);
            (used, next, walk.errors.is_empty())
        };
        let (used, found) = std::thread::scope(|scope| {
            // Without another thread the later half is read after the first one.
            let thread = std::thread::Builder::new().spawn_scoped(scope, read_later);
            self.halvings -= 1;
            let used = self.plain(front, byte, index);
            self.halvings += 1;
            (used, thread.ok().and_then(|t| t.join().ok()))
        });
        let Some((more, next, sound)) = found else { return used };
        if used < front.len() {
            self.misses += 1;
            self.halvings = if self.misses < MOST_MISSES { self.halvings } else { 0 };
            return used;
        }
        // What is wrong there is found again, with its place.
        match index.checked_add(next - 1).filter(|_| sound && self.errors.is_empty()) {
            Some(sum) => {
                self.reader.join(later, *index - 1);
                *index = sum;
                used + more
            }
            None => used,
        }
    }

    /// The same, one event after another.
    fn row(&mut self, text: &str, byte: u64, index: &mut u32) -> usize {
        let blanks = |at: usize| {
            let behind = text.as_bytes().get(at..).unwrap_or_default();
            at + behind.iter().take_while(|b| matches!(b, b' ' | b'\n' | b'\t' | b'\r')).count()
        };
        let mut used = 0;
        while *index < u32::MAX && self.errors.len() < MOST_ERRORS {
            let mut at = blanks(used);
            if *index > 0 {
                if text.as_bytes().get(at) != Some(&b',') {
                    break;
                }
                at = blanks(at + 1);
            }
            let mut event = Written::default();
            let Some(length) = text.get(at..).and_then(|t| quick::event(t, &mut event)) else { break };
            let result = self.event(*index, byte + at as u64, &event);
            self.errors.extend(result.err());
            used = at + length;
            *index += 1;
        }
        used
    }

    fn event<'a>(&mut self, index: u32, byte: u64, event: &Written<'a, T::Args<'a>>) -> Result<(), TraceError> {
        self.reader.event(index, event).map_err(|(field, message)| {
            let node = match event.name.as_deref() {
                Some(name) => format!("traceEvents[{index}] ({})", short(name)),
                None => format!("traceEvents[{index}]"),
            };
            TraceError::new(self.path, message).at(byte).node(node).field(field)
        })
    }
}

/// The first characters of a text, for messages.
pub(super) fn short(text: &str) -> String {
    text.chars().take(40).collect()
}
