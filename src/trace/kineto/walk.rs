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
        let mut index = 0u32;
        while cutter.more(index == 0, b']')? {
            cutter.peek()?;
            let byte = cutter.byte();
            let quick = quick::event(cutter.ahead()).map(|(event, used)| (self.event(index, byte, &event), used));
            let (result, used) = match quick {
                Some(done) => done,
                None => {
                    let (byte, text) = cutter.value()?;
                    let result = match serde_json::from_slice(text) {
                        Ok(event) => self.event(index, byte, &event),
                        Err(e) => {
                            let node = format!("traceEvents[{index}]");
                            Err(TraceError::new(self.path, e.to_string()).at(byte).node(node))
                        }
                    };
                    (result, 0)
                }
            };
            cutter.advance(used);
            if let Err(error) = result {
                self.errors.push(error);
                if self.errors.len() >= MOST_ERRORS {
                    return Ok(());
                }
            }
            let message = "more than 4 billion events are more than this reader counts";
            index = index.checked_add(1).ok_or(JsonFault { byte, message: message.into() })?;
        }
        Ok(())
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
