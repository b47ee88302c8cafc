//! Synchronisation events (`cuda_sync`): which kernel a wait waits for, and what waits.

use super::graph::{EdgeType, Graph};
use super::queue;
use super::table::{Row, Table};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// The end of the last kernel of each stream, streams in the order of their first kernel.
#[derive(Default)]
pub(super) struct Last(Vec<(i64, u32)>);

impl Last {
    pub(super) fn of(&self, stream: i64) -> Option<u32> {
        self.0.iter().find(|l| l.0 == stream).map(|l| l.1)
    }

    pub(super) fn set(&mut self, stream: i64, node: u32) {
        match self.0.iter_mut().find(|l| l.0 == stream) {
            Some(slot) => slot.1 = node,
            None => self.0.push((stream, node)),
        }
    }
}

/// Launches by time: when, and the row of the kernel.
type Launched = Vec<(f64, u32)>;

/// What was launched before an event was recorded, and what after a stream was told to wait.
pub(super) struct Waits {
    /// By the correlation of the call that records a CUDA event: the kernel launched last before it.
    source: HashMap<i64, u32, RandomState>,
    /// By the index of the call that tells a stream to wait: the kernel launched first after it.
    next: HashMap<i64, u32, RandomState>,
    kinds: [Option<u32>; 4],
}

impl Waits {
    /// Reads them off a trace.
    ///
    /// # Errors
    /// A message: a CUDA event that is recorded on two streams.
    pub(super) fn new(table: &Table) -> Result<Self, String> {
        let is_launch = queue::launches(table);
        let kernel = |row: &Row| table.row(row.partner).filter(|&k| table.rows[k].stream != -1 && row.partner > 0);
        // Launch calls by time: (time, row of the call, row of the kernel).
        let mut launches: Vec<(f64, u32, u32)> = Vec::new();
        for (at, row) in table.rows.iter().enumerate().filter(|(_, r)| is_launch(r)) {
            if let Some(k) = kernel(row) {
                launches.push((row.ts, at as u32, k as u32));
            }
        }
        launches.sort_by(|a, b| a.0.total_cmp(&b.0));
        let kinds = ["Stream Wait Event", "Event Sync", "Stream Sync", "Context Sync"].map(|n| table.symbols.find(n));
        let mut waits = Self { source: HashMap::default(), next: HashMap::default(), kinds };
        waits.sources(table, &launches)?;
        waits.nexts(table, &launches);
        Ok(waits)
    }

    fn sources(&mut self, table: &Table, launches: &[(f64, u32, u32)]) -> Result<(), String> {
        // Which stream of which device an event was recorded on, is told by those who wait for it.
        let mut recorded_on: HashMap<i64, (i64, u32), RandomState> = HashMap::default();
        for row in table.rows.iter().filter(|r| r.wait_stream > -1) {
            let on = (row.wait_stream, row.pid);
            if *recorded_on.entry(row.wait_record).or_insert(on) != on && row.wait_record != -1 {
                return Err(format!(
                    "event {}: the CUDA event of correlation {} is recorded on two streams or devices: HTA 0.6.1 stops here",
                    row.index, row.wait_record
                ));
            }
        }
        let Some(record) = table.symbols.find("cudaEventRecord") else { return Ok(()) };
        let mut by_stream: HashMap<(i64, u32), Launched, RandomState> = HashMap::default();
        for &(ts, _, k) in launches {
            let row = &table.rows[k as usize];
            by_stream.entry((row.stream, row.pid)).or_default().push((ts, k));
        }
        for row in table.rows.iter().filter(|r| r.name == record) {
            let Some(launched) = recorded_on.get(&row.correlation).and_then(|on| by_stream.get(on)) else { continue };
            let before = launched.partition_point(|l| l.0 <= row.ts);
            if let Some(&(_, k)) = before.checked_sub(1).and_then(|i| launched.get(i)) {
                self.source.insert(row.correlation, k);
            }
        }
        Ok(())
    }

    fn nexts(&mut self, table: &Table, launches: &[(f64, u32, u32)]) {
        let Some(wait) = table.symbols.find("cudaStreamWaitEvent") else { return };
        let mut by_thread: HashMap<(u32, u32, i64), Launched, RandomState> = HashMap::default();
        for &(ts, call, k) in launches {
            let (call, stream) = (&table.rows[call as usize], table.rows[k as usize].stream);
            by_thread.entry((call.pid, call.tid, stream)).or_default().push((ts, k));
        }
        for row in table.rows.iter().filter(|r| r.name == wait && r.partner > 0) {
            let Some(on) = table.row(row.partner).map(|p| table.rows[p].stream).filter(|s| *s != -1) else { continue };
            let Some(launched) = by_thread.get(&(row.pid, row.tid, on)) else { continue };
            let after = launched.partition_point(|l| l.0 < row.ts);
            if let Some(&(_, k)) = launched.get(after) {
                self.next.insert(row.index.into(), k);
            }
        }
    }

    /// Adds the edges of a synchronisation, or plans them for the kernel that will wait.
    pub(super) fn carry_out(
        &self,
        graph: &mut Graph<'_>,
        row: &Row,
        last: &Last,
        planned: &mut HashMap<u32, u32, RandomState>,
    ) {
        let [wait, event, stream, context] = self.kinds.map(|k| k == Some(row.name));
        let source = self.source.get(&row.wait_record).copied();
        let call = graph.table.row(row.partner);
        let to_host = |graph: &mut Graph<'_>, end: u32| {
            if let Some((_, to)) = call.and_then(|c| graph.ends(c)) {
                graph.add(end, to, EdgeType::Sync, false, None);
            }
        };
        if wait {
            if let Some((next, source)) = self.next.get(&row.partner).copied().zip(source) {
                planned.insert(next, source);
            }
        } else if event {
            if let Some((_, end)) = source.and_then(|s| graph.ends(s as usize)) {
                to_host(graph, end);
            }
        } else if stream {
            if let Some(end) = last.of(row.stream) {
                to_host(graph, end);
            }
        } else if context {
            last.0.iter().for_each(|l| to_host(graph, l.1));
        }
    }
}
