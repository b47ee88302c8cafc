//! One event, as written.

use super::{Dims, Extra};
use crate::trace::collective::list_of_integers;
use crate::trace::intern::Interner;
use crate::trace::raw::{Key, Raw, field};
use crate::trace::{Collective, Text};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// An event before it is judged.
#[derive(Default)]
pub(super) struct RawEvent<'a> {
    pub(super) phase: Option<Cow<'a, str>>,
    pub(super) category: Option<Cow<'a, str>>,
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) pid: Option<Raw<'a>>,
    pub(super) tid: Option<Raw<'a>>,
    pub(super) id: Option<Raw<'a>>,
    pub(super) ts: Option<&'a RawValue>,
    pub(super) dur: Option<&'a RawValue>,
    pub(super) args: Vec<(Cow<'a, str>, Raw<'a>)>,
}

impl<'de> Deserialize<'de> for RawEvent<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EventVisitor;
        impl<'de> Visitor<'de> for EventVisitor {
            type Value = RawEvent<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event (an object)")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut out = RawEvent::default();
                while let Some(Key(key)) = map.next_key()? {
                    match &*key {
                        "ph" => out.phase = Some(field::<A, Key<'de>>(&mut map, "ph")?.0),
                        "cat" => out.category = Some(field::<A, Key<'de>>(&mut map, "cat")?.0),
                        "name" => out.name = Some(field::<A, Key<'de>>(&mut map, "name")?.0),
                        "pid" => out.pid = Some(field(&mut map, "pid")?),
                        "tid" => out.tid = Some(field(&mut map, "tid")?),
                        "id" => out.id = Some(field(&mut map, "id")?),
                        "ts" => out.ts = Some(field(&mut map, "ts")?),
                        "dur" => out.dur = Some(field(&mut map, "dur")?),
                        "args" => out.args = field::<A, Arguments<'de>>(&mut map, "args")?.0,
                        _ => {
                            map.next_value::<serde::de::IgnoredAny>()?;
                        }
                    }
                }
                Ok(out)
            }
        }
        deserializer.deserialize_map(EventVisitor)
    }
}

/// The arguments: an object, or `null`.
struct Arguments<'a>(Vec<(Cow<'a, str>, Raw<'a>)>);

impl<'de> Deserialize<'de> for Arguments<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ArgumentsVisitor;
        impl<'de> Visitor<'de> for ArgumentsVisitor {
            type Value = Arguments<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of arguments")
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Arguments(Vec::new()))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut out = Vec::new();
                while let Some(Key(key)) = map.next_key()? {
                    let value = field(&mut map, &key)?;
                    out.push((key, value));
                }
                Ok(Arguments(out))
            }
        }
        deserializer.deserialize_any(ArgumentsVisitor)
    }
}

/// Numbers that many events have.
#[derive(Default)]
pub(super) struct Numbers {
    pub(super) external_id: Option<i64>,
    pub(super) record_function_id: Option<u64>,
    pub(super) event_index: Option<i64>,
    pub(super) correlation: Option<i64>,
    pub(super) stream: Option<i64>,
    pub(super) device: Option<i64>,
    pub(super) sequence: Option<i64>,
    pub(super) fwd_thread: Option<i64>,
    pub(super) bytes: Option<u64>,
    pub(super) graph_node: Option<u64>,
    pub(super) graph: Option<u64>,
}

/// Arguments of an event: the numbers that many have, and what few have.
type Sorted = (Numbers, Option<Box<Extra>>);

/// Sorts the arguments of an event; an error is a field and a message.
pub(super) fn arguments(args: &[(Cow<'_, str>, Raw<'_>)], strings: &mut Interner) -> Result<Sorted, (String, String)> {
    let mut n = Numbers::default();
    let mut extra = Extra::default();
    let mut any = false;
    for (key, value) in args {
        let wrong = |what: &str| (format!("args.{key}"), format!("expected {what}, found {}", value.kind()));
        let integer = || value.integer().ok_or_else(|| wrong("an integer"));
        let unsigned = || value.unsigned().ok_or_else(|| wrong("an integer of at least 0"));
        match &**key {
            "External id" | "external id" => n.external_id = Some(integer()?),
            "Record function id" => n.record_function_id = Some(unsigned()?),
            "Ev Idx" | "Profiler Event Index" => n.event_index = Some(integer()?),
            "correlation" => n.correlation = Some(integer()?),
            "stream" => n.stream = Some(integer()?),
            "device" => n.device = Some(integer()?),
            "Sequence number" => n.sequence = Some(integer()?),
            "Fwd thread id" => n.fwd_thread = Some(integer()?),
            // HIP writes a range of addresses for some calls: what is no number is of no use.
            "bytes" => n.bytes = value.unsigned(),
            "graph node id" => n.graph_node = value.unsigned(),
            "graph id" => n.graph = value.unsigned(),
            other => any |= rare(&mut extra, other, value, strings),
        }
    }
    Ok((n, any.then(|| Box::new(extra))))
}

/// Arguments that few events have; `true` when it was one of them.
fn rare(extra: &mut Extra, key: &str, value: &Raw<'_>, strings: &mut Interner) -> bool {
    let mut text = || value.text().filter(|t| !t.is_empty()).map(|t| strings.get(t));
    match key {
        "kind" => extra.kind = text(),
        "kernel_backend" => extra.kernel_backend = text(),
        "kernel_file" => extra.kernel_file = text(),
        "cuda_sync_kind" => extra.sync.get_or_insert_default().kind = text(),
        "wait_on_stream" => extra.sync.get_or_insert_default().on_stream = value.integer(),
        "wait_on_cuda_event_record_corr_id" => extra.sync.get_or_insert_default().on_correlation = value.integer(),
        "wait_on_cuda_event_id" => extra.sync.get_or_insert_default().on_event = value.integer(),
        "grid" | "block" | "registers per thread" | "shared memory" => return launch(extra, key, value),
        "Input Dims" => extra.operands.get_or_insert_default().dims = all_dims(value),
        "Input Strides" => extra.operands.get_or_insert_default().strides = all_dims(value),
        "Input type" => extra.operands.get_or_insert_default().types = texts(value, strings),
        "Concrete Inputs" => extra.operands.get_or_insert_default().values = texts(value, strings),
        _ => return collective(extra, key, value, strings),
    }
    true
}

fn launch(extra: &mut Extra, key: &str, value: &Raw<'_>) -> bool {
    let three = || -> Option<[u32; 3]> {
        let list = value.integers()?;
        let numbers: Vec<u32> = list.iter().map(|&i| u32::try_from(i).ok()).collect::<Option<_>>()?;
        numbers.try_into().ok()
    };
    match key {
        // Generated kernels write a text here.
        "grid" => match three() {
            Some(grid) => extra.launch.get_or_insert_default().grid = grid,
            None => return false,
        },
        "block" => match three() {
            Some(block) => extra.launch.get_or_insert_default().block = block,
            None => return false,
        },
        "registers per thread" => {
            extra.launch.get_or_insert_default().registers = value.unsigned().and_then(|u| u32::try_from(u).ok());
        }
        _ => extra.launch.get_or_insert_default().shared_bytes = value.unsigned(),
    }
    true
}

fn collective(extra: &mut Extra, key: &str, value: &Raw<'_>, strings: &mut Interner) -> bool {
    const KNOWN: [&str; 17] = [
        "Collective name",
        "dtype",
        "In msg nelems",
        "Out msg nelems",
        "In split size",
        "Out split size",
        "Group size",
        "Process Group Name",
        "Process Group Description",
        "Process Group Ranks",
        "Global rank start",
        "Global rank stride",
        "Rank",
        "Src Rank",
        "Dst Rank",
        "Seq",
        "Is asynchronized op",
    ];
    let known = KNOWN.contains(&key);
    if !known {
        return false;
    }
    let c: &mut Collective = extra.collective.get_or_insert_default();
    let split = || match value.integers() {
        Some(list) => list.iter().filter_map(|&i| u64::try_from(i).ok()).collect(),
        None => value.text().and_then(list_of_integers).unwrap_or_default(),
    };
    let mut text = || value.text().filter(|t| !t.is_empty()).map(|t| strings.get(t));
    match key {
        "Collective name" => c.name = text(),
        "dtype" => c.dtype = text(),
        "Process Group Name" => c.group = text(),
        "Process Group Description" => c.group_desc = text(),
        "In msg nelems" => c.in_elems = value.unsigned(),
        "Out msg nelems" => c.out_elems = value.unsigned(),
        "Group size" => c.group_size = value.unsigned(),
        "In split size" => c.in_split = split(),
        "Out split size" => c.out_split = split(),
        "Process Group Ranks" => c.group_ranks = split(),
        "Global rank start" => c.rank_start = value.integer(),
        "Global rank stride" => c.rank_stride = value.integer(),
        "Rank" => c.rank = value.integer(),
        "Src Rank" => c.src = value.integer(),
        "Dst Rank" => c.dst = value.integer(),
        "Seq" => c.seq = value.integer(),
        _ => {
            c.asynchronous = match value {
                Raw::Bool(b) => Some(*b),
                other => other.integer().map(|i| i != 0),
            }
        }
    }
    true
}

fn texts(value: &Raw<'_>, strings: &mut Interner) -> Vec<Text> {
    value.list().unwrap_or_default().iter().map(|v| strings.get(v.text().unwrap_or_default())).collect()
}

fn all_dims(value: &Raw<'_>) -> Vec<Dims> {
    value.list().unwrap_or_default().iter().map(dims).collect()
}

/// Depth is bounded by that of the JSON text, which serde bounds at 128.
fn dims(value: &Raw<'_>) -> Dims {
    match value {
        Raw::List(items) if items.iter().any(|i| i.list().is_some()) => Dims::Many(items.iter().map(dims).collect()),
        other => Dims::One(other.integers().unwrap_or_default()),
    }
}
