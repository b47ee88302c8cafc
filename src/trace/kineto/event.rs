//! What the arguments of an event say.

use super::written::Arguments;
use super::{Dims, Extra};
use crate::trace::collective::list_of_integers;
use crate::trace::intern::Interner;
use crate::trace::raw::Raw;
use crate::trace::{Collective, Text};
use std::borrow::Cow;

/// All arguments of an event.
#[derive(Default)]
pub(super) struct All<'a>(pub(super) Vec<(Cow<'a, str>, Raw<'a>)>);

impl<'a> Arguments<'a> for All<'a> {
    fn wants(_: &str) -> bool {
        true
    }
    fn put(&mut self, key: Cow<'a, str>, value: Raw<'a>) {
        self.0.push((key, value));
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
