//! A pass over a Kineto trace that holds nothing: each event is handed on as it is written, with the few arguments that timelines
//! need. [`super::read`] keeps whole events; what only counts and orders them keeps less.

use super::time::nanoseconds;
use super::walk::{Nobody, Reader, Wrong, short, walk};
use super::written::{Arguments, Written};
use crate::trace::error::TraceErrors;
use crate::trace::raw::Raw;
use crate::trace::{detect, input};
use std::borrow::Cow;
use std::io::Read;
use std::path::Path;

/// An event as written, with the arguments that are handed on.
pub(crate) type Seen<'a> = Written<'a, SeenArgs<'a>>;

/// The arguments that are handed on.
#[derive(Debug, Default)]
pub(crate) struct SeenArgs<'a> {
    /// `External id`.
    pub external: Option<Raw<'a>>,
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

impl<'a> Arguments<'a> for SeenArgs<'a> {
    fn wants(key: &str) -> bool {
        matches!(
            key,
            "External id"
                | "external id"
                | "stream"
                | "correlation"
                | "device"
                | "bytes"
                | "memory bandwidth (GB/s)"
                | "wait_on_stream"
                | "wait_on_cuda_event_record_corr_id"
                | "Collective name"
                | "Process Group Name"
        )
    }
    fn put(&mut self, key: Cow<'a, str>, value: Raw<'a>) {
        let slot = match &*key {
            "External id" | "external id" => &mut self.external,
            "stream" => &mut self.stream,
            "correlation" => &mut self.correlation,
            "device" => &mut self.device,
            "bytes" => &mut self.bytes,
            "memory bandwidth (GB/s)" => &mut self.bandwidth,
            "wait_on_stream" => &mut self.wait_on_stream,
            "wait_on_cuda_event_record_corr_id" => &mut self.wait_on_record,
            "Collective name" => &mut self.collective,
            _ => &mut self.group,
        };
        *slot = Some(value);
    }
}

impl Seen<'_> {
    /// A time in nanoseconds; an error is a field and a message.
    pub(crate) fn nanoseconds(field: &str, text: Option<&str>) -> Result<i64, Wrong> {
        let text = text.ok_or_else(|| (field.to_owned(), "missing".to_owned()))?;
        nanoseconds(text).ok_or_else(|| (field.to_owned(), format!("expected microseconds, found {}", short(text))))
    }
}

struct Scanner<F>(F);

impl<F: FnMut(u32, &Seen<'_>) -> Result<(), Wrong>> Reader for Scanner<F> {
    type Args<'a> = SeenArgs<'a>;
    type Beside = Nobody;
    fn event<'a>(&mut self, index: u32, event: &Seen<'a>) -> Result<(), Wrong> {
        (self.0)(index, event)
    }
    fn join(&mut self, later: Nobody, _: u32) {
        match later {}
    }
}

/// Reads a file, plain or gzip, into a reader.
///
/// # Errors
/// As [`scan`].
pub(crate) fn into<T: Reader>(path: &Path, reader: &mut T) -> Result<(), TraceErrors> {
    into_from(input::open(path)?, path, reader).map_err(|faults| detect::instead(path, detect::Format::Kineto, faults))
}

/// Reads uncompressed bytes into a reader; `path` is for messages.
///
/// # Errors
/// As [`scan`].
pub(crate) fn into_from<T: Reader>(source: impl Read, path: &Path, reader: &mut T) -> Result<(), TraceErrors> {
    walk(source, path, reader)
}

/// Hands every event of a file, plain or gzip, with its place in `traceEvents` to `each`.
///
/// # Errors
/// [`TraceErrors`]: what cannot be read, with byte, event and field; up to twenty faulty events at once.
pub(crate) fn scan(path: &Path, each: impl FnMut(u32, &Seen<'_>) -> Result<(), Wrong>) -> Result<(), TraceErrors> {
    into(path, &mut Scanner(each))
}

/// Hands every event of uncompressed bytes to `each`; `path` is for messages.
///
/// # Errors
/// As [`scan`].
pub(crate) fn scan_from(
    source: impl Read,
    path: &Path,
    each: impl FnMut(u32, &Seen<'_>) -> Result<(), Wrong>,
) -> Result<(), TraceErrors> {
    into_from(source, path, &mut Scanner(each))
}
