//! The one pass over a Kineto trace: what is before and behind the events, event after event, and what is wrong with them. Readers say what
//! they keep.

use super::quick;
use super::written::{Arguments, Written};
use crate::trace::error::{MOST_ERRORS, TraceError, TraceErrors};
use crate::trace::json::{Cutter, JsonFault};
use serde_json::Value;
use std::io::Read;
use std::path::Path;

/// An error of an event: a field and a message.
pub(crate) type Wrong = (String, String);

/// A reader.
pub(super) trait Reader {
    /// The arguments that it keeps.
    type Args<'a>: Arguments<'a>;
    /// Keys beside `traceEvents` whose values it wants.
    const ABOUT: &'static [&'static str];
    /// Takes the value of such a key.
    fn about(&mut self, key: &str, value: &Value);
    /// Takes the event at a place in `traceEvents`.
    fn event<'a>(&mut self, index: u32, event: &Written<'a, Self::Args<'a>>) -> Result<(), Wrong>;
}

/// Shows all of uncompressed bytes to a reader; `path` is for messages.
///
/// # Errors
/// [`TraceErrors`]: what cannot be read, with byte, event and field; up to twenty faulty events at once.
pub(super) fn walk<T: Reader>(source: impl Read, path: &Path, reader: &mut T) -> Result<(), TraceErrors> {
    let mut walk = Walk { path, reader, errors: Vec::new() };
    if let Err(fault) = walk.outer(&mut Cutter::new(source)) {
        walk.errors.push(TraceError::new(path, fault.message).at(fault.byte));
    }
    if walk.errors.is_empty() { Ok(()) } else { Err(TraceErrors(walk.errors)) }
}

/// Bytes that are looked at as text at once, least and most: few where events are not plain, for they are looked at again.
const WINDOW: (usize, usize) = (1 << 12, 1 << 16);

/// The text that bytes begin with, at most `most` bytes of it.
fn text(bytes: &[u8], most: usize) -> &str {
    let bytes = bytes.get(..most).unwrap_or(bytes);
    let valid = |e: std::str::Utf8Error| std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default();
    std::str::from_utf8(bytes).unwrap_or_else(valid)
}

struct Walk<'w, T> {
    path: &'w Path,
    reader: &'w mut T,
    errors: Vec<TraceError>,
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
            let used = self.plain(text(cutter.ahead(), window), byte, &mut index);
            cutter.advance(used);
            if self.errors.len() >= MOST_ERRORS {
                return Ok(());
            }
            if used > 0 {
                window = (2 * window).min(WINDOW.1);
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

    /// Takes the plain events that a text begins with, each but the file's first one behind its comma; gives their length. `byte` is where the
    /// text begins.
    fn plain(&mut self, text: &str, byte: u64, index: &mut u32) -> usize {
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
