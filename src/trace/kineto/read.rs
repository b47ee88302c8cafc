//! Reading a Kineto trace, event by event.

use super::event::{All, arguments};
use super::time::nanoseconds;
use super::walk::{Nobody, Reader, Wrong, short, walk};
use super::written::Written;
use super::{Category, DeviceProperties, Distributed, Event, Flow, KinetoTrace, Track};
use crate::trace::error::TraceErrors;
use crate::trace::host::ProcessGroup;
use crate::trace::intern::Interner;
use crate::trace::raw::Raw;
use crate::trace::{detect, input};
use serde_json::Value;
use std::io::Read;
use std::path::Path;

/// Reads a Kineto trace from a file, plain or gzip.
///
/// # Errors
/// [`TraceErrors`]: what cannot be read, with byte, event and field; up to twenty faulty events at once.
pub fn read(path: &Path) -> Result<KinetoTrace, TraceErrors> {
    read_from(input::open(path)?, path).map_err(|faults| detect::instead(path, detect::Format::Kineto, faults))
}

/// Reads a Kineto trace from uncompressed bytes; `path` is for messages.
///
/// # Errors
/// As [`read`].
pub fn read_from(source: impl Read, path: &Path) -> Result<KinetoTrace, TraceErrors> {
    let mut reader = Whole { strings: Interner::default(), trace: KinetoTrace::default() };
    walk(source, path, &mut reader)?;
    Ok(reader.trace)
}

/// Keeps everything.
struct Whole {
    strings: Interner,
    trace: KinetoTrace,
}

impl Reader for Whole {
    type Args<'a> = All<'a>;
    type Beside = Nobody;
    const ABOUT: &'static [&'static str] = &["deviceProperties", "distributedInfo", "baseTimeNanoseconds", "traceName"];

    fn about(&mut self, key: &str, value: &Value) {
        match key {
            "deviceProperties" => self.trace.devices = devices(value),
            "distributedInfo" => self.trace.distributed = distributed(value),
            "baseTimeNanoseconds" => self.trace.base_time_ns = value.as_i64(),
            _ => self.trace.trace_name = value.as_str().map(str::to_owned),
        }
    }

    fn event<'a>(&mut self, _: u32, event: &Written<'a, All<'a>>) -> Result<(), Wrong> {
        self.keep(event)
    }

    fn join(&mut self, later: Nobody, _: u32) {
        match later {}
    }
}

impl Whole {
    /// Keeps or counts one event; an error is a field and a message.
    fn keep(&mut self, raw: &Written<'_, All<'_>>) -> Result<(), Wrong> {
        let missing = |field: &str| (field.to_owned(), "missing".to_owned());
        let phase = raw.phase.as_deref().ok_or_else(|| missing("ph"))?;
        let category = raw.category.as_deref().unwrap_or_default();
        let time = |field: &str, text: Option<&str>| match text {
            None => Err(missing(field)),
            Some(t) => {
                nanoseconds(t).ok_or_else(|| (field.to_owned(), format!("expected microseconds, found {}", short(t))))
            }
        };
        if matches!(phase, "s" | "f") && category == "fwdbwd" {
            let id = raw.id.as_ref().and_then(Raw::integer).ok_or_else(|| missing("id"))?;
            let flow = Flow {
                id,
                start: phase == "s",
                pid: self.track(raw.pid.as_ref(), "pid")?,
                tid: self.track(raw.tid.as_ref(), "tid")?,
                ts_ns: time("ts", raw.ts)?,
            };
            self.trace.flows.push(flow);
            return Ok(());
        }
        if phase != "X" {
            let name = if phase == "M" { raw.name.as_deref().unwrap_or_default() } else { category };
            let key = format!("{phase} {name}").trim_end().to_owned();
            // Few kinds exist; a file that makes up more is not worth the memory.
            let full = self.trace.not_kept.len() >= 1000 && !self.trace.not_kept.contains_key(&key);
            *self.trace.not_kept.entry(if full { "other".to_owned() } else { key }).or_default() += 1;
            return Ok(());
        }
        let name = raw.name.as_deref().ok_or_else(|| missing("name"))?;
        let category = self.category(category);
        let (n, extra) = arguments(&raw.args.0, &mut self.strings)?;
        let dur_ns = match raw.dur {
            // The span of an operator that never returned has no duration.
            None => 0,
            some => time("dur", some)?,
        };
        if dur_ns < 0 {
            return Err(("dur".to_owned(), format!("expected a duration of at least 0, found {dur_ns} ns")));
        }
        let tid = self.track(raw.tid.as_ref(), "tid")?;
        let stream = n.stream.or_else(|| if category.on_device() { tid.number() } else { None });
        let event = Event {
            name: self.strings.get(name),
            pid: self.track(raw.pid.as_ref(), "pid")?,
            tid,
            ts_ns: time("ts", raw.ts)?,
            dur_ns,
            external_id: n.external_id,
            record_function_id: n.record_function_id,
            event_index: n.event_index,
            correlation: n.correlation,
            stream,
            device: n.device,
            sequence: n.sequence,
            fwd_thread: n.fwd_thread,
            bytes: n.bytes,
            graph_node: n.graph_node,
            graph: n.graph,
            extra,
            category,
        };
        event
            .ts_ns
            .checked_add(event.dur_ns)
            .ok_or_else(|| ("dur".to_owned(), "the event ends beyond 2^63 ns".to_owned()))?;
        self.trace.events.push(event);
        Ok(())
    }

    fn track(&mut self, raw: Option<&Raw<'_>>, field: &str) -> Result<Track, (String, String)> {
        match raw {
            None => Ok(Track::Number(0)),
            Some(Raw::Int(i)) => Ok(Track::Number(*i)),
            Some(Raw::Str(text)) => Ok(Track::Name(self.strings.get(text))),
            Some(other) => Err((field.to_owned(), format!("expected a number or a name, found {}", other.kind()))),
        }
    }

    fn category(&mut self, written: &str) -> Category {
        Category::known(written).unwrap_or_else(|| Category::Other(self.strings.get(written)))
    }
}

impl Category {
    /// The kind that a category's name stands for, old and new names taken together; `None` for any other name.
    pub(crate) fn known(written: &str) -> Option<Self> {
        Some(match written {
            "cpu_op" | "Operator" => Self::CpuOp,
            "user_annotation" => Self::UserAnnotation,
            "gpu_user_annotation" => Self::GpuUserAnnotation,
            "kernel" | "Kernel" | "mtia_ccp_events" => Self::Kernel,
            "gpu_memcpy" | "Memcpy" => Self::Memcpy,
            "gpu_memset" | "Memset" => Self::Memset,
            "cuda_sync" => Self::Sync,
            "python_function" => Self::PythonFunction,
            "overhead" => Self::Overhead,
            "Trace" => Self::Span,
            "Runtime" => Self::Runtime,
            other if other.ends_with("_runtime") => Self::Runtime,
            other if other.ends_with("_driver") => Self::Driver,
            _ => return None,
        })
    }
}

fn devices(value: &Value) -> Vec<DeviceProperties> {
    let number = |d: &Value, keys: &[&str]| keys.iter().find_map(|k| d.get(k)).and_then(Value::as_u64);
    value
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .map(|d| DeviceProperties {
            id: number(d, &["id"]),
            name: d.get("name").and_then(Value::as_str).map(str::to_owned),
            memory_bytes: number(d, &["totalGlobalMem"]),
        })
        .collect()
}

fn distributed(value: &Value) -> Distributed {
    let text = |v: &Value, key: &str| v.get(key).and_then(Value::as_str).map(str::to_owned);
    let number = |v: &Value, key: &str| v.get(key).and_then(Value::as_u64);
    let groups = value.get("pg_config").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    Distributed {
        backend: text(value, "backend"),
        rank: number(value, "rank"),
        world_size: number(value, "world_size"),
        groups: groups
            .iter()
            .map(|g| ProcessGroup {
                name: text(g, "pg_name").unwrap_or_default(),
                desc: text(g, "pg_desc").unwrap_or_default(),
                backend: text(g, "backend_config").unwrap_or_default(),
                ranks: g
                    .get("ranks")
                    .and_then(Value::as_array)
                    .map(|r| r.iter().filter_map(Value::as_u64).collect())
                    .unwrap_or_default(),
                size: number(g, "pg_size"),
            })
            .collect(),
    }
}
