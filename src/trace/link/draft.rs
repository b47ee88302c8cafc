//! Events become nodes: operators nested by time, device operations with their launch and their operator.

use super::groups::complete;
use super::matching::Matching;
use super::nest::{self, Nest, Span};
use super::{Chosen, DeviceFacts, Facts, LinkReport, LinkedNode, NodeKind, calls, io, operands};
use crate::trace::chakra::graph;
use crate::trace::host::{HostTrace, check};
use crate::trace::kineto::{Category, Event};
use std::collections::HashMap;

/// Nodes in the making.
pub(super) struct Draft<'a> {
    events: &'a [Event],
    origin: i64,
    pub(super) nodes: Vec<LinkedNode>,
    /// Event of each node; none for untimed ones.
    pub(super) event_of: Vec<Option<u32>>,
    /// One a thread.
    pub(super) nests: Vec<Nest>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(events: &'a [Event], origin: i64, chosen: &Chosen) -> Self {
        let n = chosen.host.len() + chosen.device.len();
        Self { events, origin, nodes: Vec::with_capacity(n), event_of: Vec::with_capacity(n), nests: Vec::new() }
    }

    fn push(&mut self, event: u32, kind: NodeKind, place: u32) -> Option<u32> {
        let e = self.events.get(event as usize)?;
        self.nodes.push(LinkedNode {
            name: e.name.clone(),
            kind,
            place,
            start_ns: e.ts_ns.saturating_sub(self.origin),
            dur_ns: u64::try_from(e.dur_ns).unwrap_or(0),
            timed: true,
            parent: None,
            launch: None,
            collective: e.collective().cloned().map(Box::new),
            facts: Facts::None,
        });
        self.event_of.push(Some(event));
        Some(self.nodes.len() as u32 - 1)
    }

    /// Operators, annotations and calls, nested.
    pub(super) fn host_nodes(&mut self, chosen: &Chosen, host: Option<&HostTrace>, matching: Option<&Matching>) {
        let mut host_of: HashMap<u32, u32> = HashMap::new();
        if let Some(matching) = matching {
            host_of.extend((0u32..).zip(&matching.event_of).filter_map(|(i, e)| e.map(|e| (e, i))));
        }
        let mut spans: Vec<Vec<Span>> = vec![Vec::new(); chosen.threads.len()];
        for &(event, thread) in &chosen.host {
            let Some(e) = self.events.get(event as usize) else { continue };
            let (kind, rank) = match e.category {
                Category::UserAnnotation => (NodeKind::Annotation, 0),
                Category::CpuOp if e.profiler_step().is_some() => (NodeKind::Annotation, 0),
                Category::CpuOp => (NodeKind::Operator, 1),
                _ => (NodeKind::Call, 2),
            };
            let Some(i) = self.push(event, kind, thread) else { continue };
            if let Some(node) = self.nodes.get_mut(i as usize) {
                if let Some(n) = host.zip(host_of.get(&event)).and_then(|(h, &n)| h.nodes.get(n as usize)) {
                    if node.collective.is_none() {
                        node.collective = n.collective.clone().or_else(|| calls::of_arguments(n).map(Box::new));
                    } else if let (Some(c), Some(more)) = (&mut node.collective, &n.collective) {
                        complete(c, more);
                    }
                    node.facts = Facts::Host(Box::new(io::facts(n)));
                }
                if let Some(list) = spans.get_mut(thread as usize) {
                    list.push(Span { start: node.start_ns, end: node.end_ns(), rank, node: i });
                }
            }
        }
        for list in spans {
            let nested = nest::nest(list);
            for &(node, parent) in &nested.order {
                if let Some(n) = self.nodes.get_mut(node as usize) {
                    n.parent = parent;
                }
            }
            self.nests.push(nested);
        }
        if host.is_none() {
            self.own_operands();
        }
    }

    /// Without a host trace: what the device trace itself keeps of its operators' arguments, numbered in the order of their starts.
    fn own_operands(&mut self) {
        let usual = operands::usual_type(self.events);
        let mut order: Vec<u32> = self.nests.iter().flat_map(|n| n.order.iter().map(|(node, _)| *node)).collect();
        // Stable: of one thread the outer of two that begin together stays first.
        order.sort_by_key(|&i| self.nodes.get(i as usize).map(|n| n.start_ns));
        for (id, i) in (2u64..).zip(order) {
            let event = self.event_of.get(i as usize).copied().flatten().and_then(|e| self.events.get(e as usize));
            if let (Some(node), Some(event)) = (self.nodes.get_mut(i as usize), event)
                && matches!(node.kind, NodeKind::Operator | NodeKind::Annotation)
            {
                let host = operands::host_node(event, id, u64::from(node.place) + 1, usual.as_ref());
                node.facts = Facts::Host(Box::new(io::facts(&host)));
            }
        }
    }

    /// Kernels, copies and fills, each with its launch and the operator that caused it.
    pub(super) fn device_nodes(&mut self, chosen: &Chosen, report: &mut LinkReport) {
        let mut calls: HashMap<i64, Vec<u32>> = HashMap::new();
        let mut operators: HashMap<i64, u32> = HashMap::new();
        for (i, e) in (0u32..).zip(&self.event_of) {
            let Some(e) = e.and_then(|e| self.events.get(e as usize)) else { continue };
            if e.category.is_call() {
                if let Some(c) = e.correlation.filter(|&c| c > 0) {
                    calls.entry(c).or_default().push(i);
                }
            } else if let Some(id) = e.external_id.filter(|&id| id > 0) {
                operators.entry(id).or_insert(i);
            }
        }
        for list in calls.values_mut() {
            list.sort_by_key(|&i| self.nodes.get(i as usize).map(|n| n.start_ns));
        }
        for &(event, stream) in &chosen.device {
            let Some(e) = self.events.get(event as usize) else { continue };
            let kind = match e.category {
                Category::Kernel => NodeKind::Kernel,
                Category::Memcpy => NodeKind::Memcpy,
                _ => NodeKind::Memset,
            };
            let correlation = e.correlation.filter(|&c| c > 0);
            let start = e.ts_ns.saturating_sub(self.origin);
            // A runtime call and the driver call inside it may share the number: the outer one is first. Numbers may also come again
            // in another process: then the last call before the operation is meant.
            let launch = correlation.and_then(|c| calls.get(&c)).and_then(|list| {
                let at = |i: u32| self.nodes.get(i as usize).map_or((0, 0), |n| (n.start_ns, n.end_ns()));
                let last = list.iter().copied().rfind(|&i| at(i).0 <= start).or_else(|| list.first().copied())?;
                list.iter().copied().find(|&i| at(i).0 <= at(last).0 && at(last).1 <= at(i).1)
            });
            let called = launch.and_then(|l| self.nodes.get(l as usize));
            let graph = called.is_some_and(|n| n.name.contains("GraphLaunch")) || e.graph_node.is_some_and(|g| g != 0);
            let mut owner = called.and_then(|n| n.parent);
            while let Some(n) = owner.and_then(|o| self.nodes.get(o as usize)) {
                match n.kind {
                    NodeKind::Operator => break,
                    NodeKind::Annotation if !n.is_step() => break,
                    _ => owner = n.parent,
                }
            }
            if launch.is_none() {
                owner = e.external_id.and_then(|id| operators.get(&id).copied());
            }
            report.device(kind, graph, correlation.is_some(), launch.is_some(), owner.is_some());
            let bytes = e.bytes;
            if let Some(i) = self.push(event, kind, stream)
                && let Some(node) = self.nodes.get_mut(i as usize)
            {
                node.parent = owner;
                node.launch = launch;
                node.facts = Facts::Device(DeviceFacts { correlation: correlation.unwrap_or(0), bytes, graph });
            }
        }
    }

    /// Host operators that were never timed: after the operator before them.
    pub(super) fn untimed_nodes(&mut self, host: &HostTrace, matching: &Matching, all: bool) {
        let node_of_event: HashMap<u32, u32> =
            (0u32..).zip(&self.event_of).filter_map(|(i, e)| e.map(|e| (e, i))).collect();
        // By id, callers before callees.
        let order = graph::order(&check::callers(host));
        let mut last: HashMap<u64, u32> = HashMap::new(); // observer's thread -> node
        let mut of_id: HashMap<u64, u32> = HashMap::new();
        let mut first_of_thread: HashMap<u64, u32> = HashMap::new();
        for &i in &order {
            let timed = matching.event_of.get(i).copied().flatten().and_then(|e| node_of_event.get(&e));
            if let (Some(n), Some(&node)) = (host.nodes.get(i), timed) {
                first_of_thread.entry(n.tid).or_insert(node);
            }
        }
        for i in order {
            let Some(n) = host.nodes.get(i).filter(|n| !n.is_root()) else { continue };
            if let Some(event) = matching.event_of.get(i).copied().flatten() {
                if let Some(&node) = node_of_event.get(&event) {
                    last.insert(n.tid, node);
                    of_id.insert(n.id, node);
                }
                continue;
            }
            if !all && !n.name.contains("process_group:init") {
                continue;
            }
            let before =
                last.get(&n.tid).or_else(|| first_of_thread.get(&n.tid)).and_then(|&b| self.nodes.get(b as usize));
            let (place, start_ns) = before.map_or((0, 0), |b| (b.place, b.start_ns));
            let start_ns = if last.contains_key(&n.tid) { start_ns } else { 0 };
            let parent = of_id.get(&n.parent).copied();
            // Whoever called it had begun, on the same thread.
            let caller = parent.and_then(|p| self.nodes.get(p as usize)).map(|p| (p.place, p.start_ns));
            let place = caller.map_or(place, |(place, _)| place);
            let start_ns = start_ns.max(caller.map_or(0, |(_, begun)| begun));
            self.nodes.push(LinkedNode {
                name: n.name.clone(),
                kind: NodeKind::Operator,
                place,
                start_ns,
                dur_ns: 0,
                timed: false,
                parent,
                launch: None,
                collective: n.collective.clone().or_else(|| calls::of_arguments(n).map(Box::new)),
                facts: Facts::Host(Box::new(io::facts(n))),
            });
            self.event_of.push(None);
            of_id.insert(n.id, self.nodes.len() as u32 - 1);
        }
    }
}
