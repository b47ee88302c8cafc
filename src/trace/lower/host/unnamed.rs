//! Nodes that nobody knows: what they read and write, as far as the nodes around them tell.

use super::*;

impl<'t> Walk<'t> {
    /// Nodes nobody knows, with nothing below them that counts.
    pub(super) fn unregistered(&mut self, node: &'t HostNode, op: &str, part: Part) -> bool {
        let backward_frame = node.scope == 1 || op.starts_with("autograd::engine") || op.contains("AccumulateGrad");
        let annotation =
            node.scope == 7 || op.starts_with("## ") || op.starts_with("Optimizer.") || op.starts_with("ProfilerStep#");
        let by_name = guessed(op).is_some() || node.kernel_backend.is_some();
        if (backward_frame || annotation) && !by_name {
            return false;
        }
        let has_tensors = node.input_tensors().any(Tensor::is_defined);
        let has_results = node.output_tensors().any(Tensor::is_defined);
        if has_results {
            self.call(node, op, part, None);
            return true;
        }
        // Results of a Python function are not recorded: they are what was allocated below it, on the device of the largest.
        let mut made: Vec<&'t Tensor> = self.allocated_below(node);
        if made.is_empty() && by_name {
            made = self.fresh.values().filter(|(_, caller)| *caller == node.parent).map(|(t, _)| *t).collect();
            made.sort_by_key(|t| t.storage_id);
        }
        let Some(device) = made.iter().max_by_key(|t| t.bytes()).map(|t| t.device.clone()) else { return false };
        made.retain(|t| t.device == device);
        if !has_tensors && !by_name {
            return false;
        }
        self.call(node, op, part, Some(made));
        true
    }

    pub(super) fn allocated_below(&self, node: &HostNode) -> Vec<&'t Tensor> {
        let mut found: Vec<&'t Tensor> = Vec::new();
        let mut waiting: Vec<u64> = vec![node.id];
        let mut seen = HashSet::new();
        while let Some(id) = waiting.pop() {
            if !seen.insert(id) {
                continue;
            }
            for child in self.children.get(&id).into_iter().flatten() {
                if class_of(plain_name(&child.name)) == Class::Allocation {
                    for t in child.output_tensors().filter(|t| t.is_defined() && t.num_elem > 0) {
                        if found.iter().all(|f| f.storage_id != t.storage_id) {
                            found.push(t);
                        }
                    }
                }
                waiting.push(child.id);
            }
        }
        found.sort_by_key(|t| std::cmp::Reverse(t.bytes()));
        found
    }

    pub(super) fn inferred_inputs(&self, node: &HostNode, made: &[&Tensor]) -> Vec<HostArg> {
        let mut at = self.nodes.get(&node.parent).copied();
        for _ in 0..64 {
            let Some(here) = at.filter(|n| !n.is_root()) else { break };
            if here.input_tensors().any(Tensor::is_defined) {
                return here.inputs.clone();
            }
            at = self.nodes.get(&here.parent).copied();
        }
        let size = made.iter().map(|t| t.num_elem).max().unwrap_or(0);
        let mut storages: Vec<(u64, usize)> = self
            .current
            .iter()
            .filter(|(_, v)| !self.read.contains(v))
            .filter(|(_, v)| {
                self.program.values.get(**v).is_some_and(|x| x.elements == size && matches!(x.origin, Origin::Made(_)))
            })
            .map(|(s, v)| (*s, *v))
            .collect();
        storages.sort_by_key(|(_, v)| *v);
        let mut found: Vec<HostArg> = Vec::new();
        let mut taken: HashSet<u64> = made.iter().map(|t| t.storage_id).collect();
        for t in &self.looked_at {
            if taken.insert(t.storage_id) {
                found.push(HostArg::Tensor(Box::new((*t).clone())));
            }
        }
        for (storage, value) in storages {
            if taken.insert(storage)
                && let (Some(v), Some(like)) = (self.program.values.get(value), made.first())
            {
                found.push(HostArg::Tensor(Box::new(Tensor {
                    storage_id: storage,
                    offset: 0,
                    num_elem: v.elements,
                    elem_bytes: v.element_bytes,
                    shape: v.shape.iter().map(|s| i64::try_from(*s).unwrap_or(i64::MAX)).collect(),
                    strides: None,
                    ..(*like).clone()
                })));
            }
        }
        found
    }
}
