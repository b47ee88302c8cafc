//! Measured times of kernels, brought to the calls that caused them.
//!
//! A linked trace knows for each kernel, copy and fill the operator around its launch. Its time goes to the call of the program that
//! counts this operator: the operator itself, or the nearest caller that is counted as a whole. What no counted call caused is a
//! call of its own, under the kernel's name: its time is known, its bytes only where the device recorded them.
//!
//! **Opaque kernels.** Where the FLOP of a call are not known (or only estimated from a name) its time must say what it costs. The
//! graph then gets, besides the bytes of the tensors, as many bytes as the recording device would have moved in that time at
//! the rate its other vector kernels reached ([`bandwidth`]): on another chip such a kernel takes the same time but for the
//! ratio of the memory bandwidths.

use super::program::{Part, Program, Step};
use crate::trace::Text;
use crate::trace::host::HostTrace;
use crate::trace::link::{LinkedTrace, NodeKind};
use crate::trace::ops::names::is_collective;
use crate::trace::ops::{Call, Class, Cost};
use std::collections::{BTreeMap, HashMap};

/// One kernel, copy or fill.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Name of the kernel.
    pub name: Text,
    /// Duration.
    pub ns: u64,
    /// Bytes of a copy or fill, where recorded.
    pub bytes: Option<u64>,
    /// Whether it communicates.
    pub communication: bool,
}

/// Device operations of a linked trace by the host operator that caused them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// Id of the host node, and what it launched, in order.
    of_node: BTreeMap<u64, Vec<Operation>>,
    /// Operations that no node of the host trace caused, and their time.
    pub without_owner: (u64, u64),
}

impl Measured {
    /// Collects them.
    pub fn of(linked: &LinkedTrace) -> Self {
        let mut found = Self::default();
        for at in linked.device_nodes() {
            let Some(node) = linked.node(at) else { continue };
            let mut owner = node.parent;
            // Callers stand before their callees, so this ends; a file that says otherwise is refused by its reader.
            let id = loop {
                let Some(n) = owner.and_then(|o| linked.node(o)) else { break None };
                match n.host() {
                    Some(facts) => break Some(facts.id),
                    None => owner = n.parent,
                }
            };
            match id {
                Some(id) => found.of_node.entry(id).or_default().push(Operation {
                    name: node.name.clone(),
                    ns: node.dur_ns,
                    bytes: node.device().and_then(|d| d.bytes),
                    communication: node.kind == NodeKind::Kernel && node.is_communication(),
                }),
                None => {
                    found.without_owner.0 += 1;
                    found.without_owner.1 = found.without_owner.1.saturating_add(node.dur_ns);
                }
            }
        }
        found
    }

    /// Gives the calls of a program their times, and adds what no call caused. `inside` tells whether a host node belongs to the
    /// recorded step; `part` in which part of it a node is. Values must be linked afterwards.
    pub fn attach(
        &self,
        program: &mut Program,
        trace: &HostTrace,
        inside: &dyn Fn(u64) -> bool,
        part: &dyn Fn(u64) -> Part,
    ) {
        let callers: HashMap<u64, u64> = trace.nodes.iter().map(|n| (n.id, n.parent)).collect();
        let mut step_of: HashMap<u64, usize> = HashMap::new();
        for (i, step) in program.steps.iter_mut().enumerate() {
            step_of.entry(step.node).or_insert(i);
            step.seconds = None;
        }
        let mut added: Vec<Step> = Vec::new();
        for (&owner, operations) in self.of_node.iter().filter(|(owner, _)| inside(**owner)) {
            let mut at = Some(owner);
            let mut left = trace.nodes.len();
            let counted = loop {
                let Some(id) = at else { break None };
                if let Some(step) = step_of.get(&id) {
                    break Some(*step);
                }
                left = left.saturating_sub(1);
                at = callers.get(&id).copied().filter(|_| left > 0);
            };
            for operation in operations {
                let seconds = operation.ns as f64 * 1e-9;
                match counted.and_then(|i| program.steps.get_mut(i)) {
                    // Communication inside another call is no work of that call.
                    Some(step) if !operation.communication || is_collective(&step.call.op) => {
                        step.seconds = Some(step.seconds.unwrap_or(0.0) + seconds);
                    }
                    _ => added.push(alone(owner, operation, part(owner))),
                }
            }
        }
        if self.without_owner.0 > 0 {
            let (count, ns) = self.without_owner;
            program.notes.push(format!(
                "{count} device operations ({:.3} ms) belong to no operator of the host trace; they are not counted",
                ns as f64 * 1e-6
            ));
        }
        program.steps.extend(added);
        // Stable: what a node launched comes after the calls of nodes with smaller ids.
        program.steps.sort_by_key(|s| s.node);
    }
}

/// A device operation as a call of its own.
fn alone(node: u64, operation: &Operation, part: Part) -> Step {
    let class = if operation.communication { Class::Collective } else { Class::Unknown };
    let name = operation.name.replace("(anonymous namespace)::", "");
    let plain: String = name.split(['(', '<']).next().unwrap_or("kernel").trim_start_matches("void ").trim().into();
    Step {
        node,
        call: Call { op: plain, inputs: Vec::new(), outputs: Vec::new(), mutated: Vec::new(), returned: Vec::new() },
        cost: Cost {
            class,
            flop: operation.communication.then_some(0),
            estimated: false,
            counted: None,
            read_bytes: 0,
            written_bytes: operation.bytes.unwrap_or(0),
            bytes_known: operation.bytes.is_some(),
        },
        part,
        sequence: None,
        seconds: Some(operation.ns as f64 * 1e-9),
        reads: Vec::new(),
        writes: Vec::new(),
        comm: None,
        inferred: true,
    }
}

/// Bytes a second that the recording's vector kernels reached: all their bytes over all their time. `None` if none was measured.
pub fn bandwidth(program: &Program) -> Option<f64> {
    let (mut bytes, mut seconds) = (0.0, 0.0);
    for step in &program.steps {
        let vector = matches!(
            step.cost.class,
            Class::Elementwise | Class::Copy | Class::Norm | Class::Softmax | Class::Reduction | Class::Fill
        );
        if let Some(s) = step.seconds.filter(|s| vector && *s > 0.0 && step.cost.bytes_known) {
            bytes += step.cost.bytes() as f64;
            seconds += s;
        }
    }
    (bytes > 0.0 && seconds > 0.0).then(|| bytes / seconds)
}

/// Bytes that stand for the time of a call whose FLOP are not known, beyond those of its tensors; 0 for all other calls.
pub fn extra_bytes(step: &Step, bandwidth: Option<f64>) -> f64 {
    let unknown = step.cost.flop.is_none() || step.cost.estimated;
    match (step.seconds, bandwidth) {
        (Some(s), Some(rate)) if unknown && step.cost.class != Class::Collective => {
            (s * rate - step.cost.bytes() as f64).max(0.0)
        }
        _ => 0.0,
    }
}

/// What a reader should know of the kernels that stand for measured time, if there are any.
pub fn note(program: &Program) -> Option<String> {
    let rate = bandwidth(program)?;
    let (mut calls, mut bytes, mut seconds) = (0u64, 0.0, 0.0);
    for step in program.steps.iter().filter(|s| matches!(s.part, Part::Forward | Part::Backward)) {
        let extra = extra_bytes(step, Some(rate));
        if extra > 0.0 {
            calls += 1;
            bytes += extra;
            seconds += step.seconds.unwrap_or(0.0);
        }
    }
    (calls > 0).then(|| {
        format!(
            "{calls} calls whose FLOP are unknown or estimated ({:.3} ms) carry {:.3} GB besides their tensors, so that they take their \
             measured time at the {:.0} GB/s that the recording's vector kernels reach",
            seconds * 1e3,
            bytes * 1e-9,
            rate * 1e-9
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(op: &str, flop: Option<u64>, bytes: u64, seconds: f64) -> Step {
        let mut step = alone(
            1,
            &Operation { name: op.into(), ns: (seconds * 1e9) as u64, bytes: Some(bytes), communication: false },
            Part::Forward,
        );
        step.cost.flop = flop;
        step.cost.class = if flop.is_some() { Class::Elementwise } else { Class::Unknown };
        step
    }

    /// 3 GB in 2 ms + 1 GB in 2 ms: 1 TB/s. An unknown kernel of 5 ms that names 2 GB of tensors then stands for 3 GB more.
    #[test]
    fn time_becomes_bytes_at_the_rate_of_the_recording() {
        let program = Program {
            steps: vec![
                step("add", Some(1), 3_000_000_000, 0.002),
                step("mul", Some(1), 1_000_000_000, 0.002),
                step("mystery", None, 2_000_000_000, 0.005),
            ],
            ..Program::default()
        };
        let rate = bandwidth(&program).unwrap();
        assert!((rate - 1e12).abs() < 1.0, "{rate}");
        assert_eq!(extra_bytes(&program.steps[0], Some(rate)), 0.0);
        assert!((extra_bytes(&program.steps[2], Some(rate)) - 3e9).abs() < 1.0);
        assert_eq!(extra_bytes(&program.steps[2], None), 0.0);
        assert_eq!(bandwidth(&Program::default()), None);
    }

    #[test]
    fn kernel_names_are_cut_at_their_arguments() {
        let kernel = |name: &str| {
            alone(7, &Operation { name: name.into(), ns: 5, bytes: None, communication: false }, Part::Forward)
        };
        let s = kernel("void at::native::vectorized<4, float>(int)");
        assert_eq!((s.call.op.as_str(), s.node, s.cost.bytes_known), ("at::native::vectorized", 7, false));
        assert_eq!(kernel("void (anonymous namespace)::softmax_warp<float>(int)").call.op, "softmax_warp");
        assert_eq!(kernel("triton_red_0").call.op, "triton_red_0");
    }
}
