//! One pass over a Kineto trace that holds nothing: each event is handed on as it is written, with the few arguments that timelines
//! need. [`super::read`] keeps whole events; what only counts and orders them keeps less.

use super::read::{label, short};
use super::time::nanoseconds;
use crate::trace::error::{MOST_ERRORS, TraceError, TraceErrors};
use crate::trace::json::{Cutter, JsonFault};
use crate::trace::raw::{Key, Raw, field};
use crate::trace::{detect, input};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::io::Read;
use std::path::Path;

/// An event as written; what it lacks is `None`.
#[derive(Debug, Default)]
pub(crate) struct Seen<'a> {
    /// Position in `traceEvents`.
    pub index: u32,
    /// `ph`.
    pub phase: Option<Cow<'a, str>>,
    /// `cat`.
    pub category: Option<Cow<'a, str>>,
    /// `name`.
    pub name: Option<Cow<'a, str>>,
    /// `pid`.
    pub pid: Option<Raw<'a>>,
    /// `tid`.
    pub tid: Option<Raw<'a>>,
    /// `ts`, as written.
    pub ts: Option<&'a RawValue>,
    /// `dur`, as written.
    pub dur: Option<&'a RawValue>,
    /// Arguments.
    pub args: SeenArgs<'a>,
}

/// The arguments that are handed on.
#[derive(Debug, Default)]
pub(crate) struct SeenArgs<'a> {
    pub stream: Option<Raw<'a>>,
    pub correlation: Option<Raw<'a>>,
    pub device: Option<Raw<'a>>,
    pub bytes: Option<Raw<'a>>,
    /// `memory bandwidth (GB/s)`, as Kineto computes it.
    pub bandwidth: Option<Raw<'a>>,
    pub wait_on_stream: Option<Raw<'a>>,
    pub wait_on_record: Option<Raw<'a>>,
    pub collective: Option<Raw<'a>>,
    pub group: Option<Raw<'a>>,
}

impl Seen<'_> {
    /// A time in nanoseconds; an error is a field and a message.
    pub(crate) fn nanoseconds(field: &str, text: Option<&RawValue>) -> Result<i64, (String, String)> {
        let text = text.ok_or_else(|| (field.to_owned(), "missing".to_owned()))?.get();
        nanoseconds(text).ok_or_else(|| (field.to_owned(), format!("expected microseconds, found {}", short(text))))
    }
}

impl<'de> Deserialize<'de> for Seen<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SeenVisitor;
        impl<'de> Visitor<'de> for SeenVisitor {
            type Value = Seen<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event (an object)")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut out = Seen::default();
                while let Some(Key(key)) = map.next_key()? {
                    match &*key {
                        "ph" => out.phase = Some(field::<A, Key<'de>>(&mut map, "ph")?.0),
                        "cat" => out.category = Some(field::<A, Key<'de>>(&mut map, "cat")?.0),
                        "name" => out.name = Some(field::<A, Key<'de>>(&mut map, "name")?.0),
                        "pid" => out.pid = Some(field(&mut map, "pid")?),
                        "tid" => out.tid = Some(field(&mut map, "tid")?),
                        "ts" => out.ts = Some(field(&mut map, "ts")?),
                        "dur" => out.dur = Some(field(&mut map, "dur")?),
                        "args" => out.args = field(&mut map, "args")?,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(out)
            }
        }
        deserializer.deserialize_map(SeenVisitor)
    }
}

impl<'de> Deserialize<'de> for SeenArgs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ArgsVisitor;
        impl<'de> Visitor<'de> for ArgsVisitor {
            type Value = SeenArgs<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of arguments")
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(SeenArgs::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut out = SeenArgs::default();
                while let Some(Key(key)) = map.next_key()? {
                    let slot = match &*key {
                        "stream" => &mut out.stream,
                        "correlation" => &mut out.correlation,
                        "device" => &mut out.device,
                        "bytes" => &mut out.bytes,
                        "memory bandwidth (GB/s)" => &mut out.bandwidth,
                        "wait_on_stream" => &mut out.wait_on_stream,
                        "wait_on_cuda_event_record_corr_id" => &mut out.wait_on_record,
                        "Collective name" => &mut out.collective,
                        "Process Group Name" => &mut out.group,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    *slot = Some(field(&mut map, &key)?);
                }
                Ok(out)
            }
        }
        deserializer.deserialize_any(ArgsVisitor)
    }
}

/// Hands every event of a file, plain or gzip, to `each`; an error of `each` is a field and a message.
///
/// # Errors
/// [`TraceErrors`]: what cannot be read, with byte, event and field; up to twenty faulty events at once.
pub(crate) fn scan(
    path: &Path,
    each: impl FnMut(&Seen<'_>) -> Result<(), (String, String)>,
) -> Result<(), TraceErrors> {
    scan_from(input::open(path)?, path, each).map_err(|faults| detect::instead(path, faults))
}

/// Hands every event of uncompressed bytes to `each`; `path` is for messages.
///
/// # Errors
/// As [`scan`].
pub(crate) fn scan_from(
    source: impl Read,
    path: &Path,
    mut each: impl FnMut(&Seen<'_>) -> Result<(), (String, String)>,
) -> Result<(), TraceErrors> {
    let mut errors = Vec::new();
    if let Err(fault) = outer(&mut Cutter::new(source), path, &mut errors, &mut each) {
        errors.push(TraceError::new(path, fault.message).at(fault.byte));
    }
    if errors.is_empty() { Ok(()) } else { Err(TraceErrors(errors)) }
}

fn outer<R: Read>(
    cutter: &mut Cutter<R>,
    path: &Path,
    errors: &mut Vec<TraceError>,
    each: &mut impl FnMut(&Seen<'_>) -> Result<(), (String, String)>,
) -> Result<(), JsonFault> {
    // Chrome's format allows the bare list of events, too.
    if cutter.peek()? == Some(b'[') {
        events(cutter, path, errors, each)?;
        return if errors.is_empty() { cutter.end() } else { Ok(()) };
    }
    cutter.enter_object()?;
    let (mut first, mut found) = (true, false);
    while let Some(key) = cutter.key(first)? {
        first = false;
        if key == "traceEvents" {
            found = true;
            events(cutter, path, errors, each)?;
            if errors.len() >= MOST_ERRORS {
                return Ok(());
            }
        } else {
            cutter.value()?;
        }
    }
    cutter.end()?;
    if found { Ok(()) } else { Err(cutter.fault("`traceEvents` is missing: this is no Kineto trace")) }
}

fn events<R: Read>(
    cutter: &mut Cutter<R>,
    path: &Path,
    errors: &mut Vec<TraceError>,
    each: &mut impl FnMut(&Seen<'_>) -> Result<(), (String, String)>,
) -> Result<(), JsonFault> {
    cutter.enter_array()?;
    let mut index = 0u32;
    while let Some((byte, text)) = cutter.element(index == 0)? {
        let result = match serde_json::from_slice::<Seen<'_>>(text) {
            Ok(mut seen) => {
                seen.index = index;
                each(&seen).map_err(|(field, message)| {
                    let node = label(index.into(), seen.name.as_deref());
                    TraceError::new(path, message).at(byte).node(node).field(field)
                })
            }
            Err(e) => Err(TraceError::new(path, e.to_string()).at(byte).node(format!("traceEvents[{index}]"))),
        };
        if let Err(error) = result {
            errors.push(error);
            if errors.len() >= MOST_ERRORS {
                return Ok(());
            }
        }
        let message = "more than 4 billion events are more than this reader counts";
        index = index.checked_add(1).ok_or(JsonFault { byte, message: message.into() })?;
    }
    Ok(())
}
