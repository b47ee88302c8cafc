//! Versions of storages: what a tensor of the trace is a window into.

use super::*;

impl<'t> Walk<'t> {
    /// An input; a storage that nobody wrote was there before the step.
    pub(super) fn read_arg(&mut self, arg: &HostArg) -> Arg {
        match arg {
            HostArg::Tensor(t) if t.is_defined() => {
                let value = match self.current.get(&t.storage_id) {
                    Some(v) => *v,
                    None => {
                        let v = self.add_value(t, format!("in{}", t.storage_id), None);
                        self.current.insert(t.storage_id, v);
                        v
                    }
                };
                if let Some(v) = self.program.values.get_mut(value)
                    && !matches!(v.origin, Origin::Made(_))
                {
                    v.elements = v.elements.max(t.num_elem);
                }
                tensor_arg(t, value)
            }
            HostArg::Tensor(_) | HostArg::None => Arg::None,
            HostArg::Int(i) => Arg::Int(*i),
            HostArg::Float(f) => Arg::Float(*f),
            HostArg::Bool(b) => Arg::Bool(*b),
            HostArg::Str(s) | HostArg::Device(s) | HostArg::Other(s) => Arg::Text(s.to_string()),
            HostArg::List(items) => Arg::List(items.iter().map(|i| self.read_arg(i)).collect()),
        }
    }

    pub(super) fn write_arg(
        &mut self,
        arg: &HostArg,
        op: &str,
        node: u64,
        changed: &mut Map<u64, usize>,
        read: &[u64],
        writes: &mut Vec<usize>,
    ) -> Arg {
        match arg {
            HostArg::Tensor(t) if t.is_defined() => {
                if let Some(value) = changed.get(&t.storage_id) {
                    return tensor_arg(t, *value);
                }
                if read.binary_search(&t.storage_id).is_ok()
                    && let Some(value) = self.current.get(&t.storage_id)
                {
                    // A result that is an argument, unchanged.
                    return tensor_arg(t, *value);
                }
                let value = self.new_version(t, op, node, false);
                changed.insert(t.storage_id, value);
                writes.push(value);
                tensor_arg(t, value)
            }
            HostArg::List(items) => {
                Arg::List(items.iter().map(|i| self.write_arg(i, op, node, changed, read, writes)).collect())
            }
            _ => Arg::None,
        }
    }

    /// A new version of a tensor's storage; in place, what it does not cover stays.
    pub(super) fn new_version(&mut self, t: &Tensor, op: &str, node: u64, in_place: bool) -> usize {
        let old = self.current.get(&t.storage_id).copied();
        let whole = old.and_then(|v| self.program.values.get(v)).map_or(0, |v| v.elements);
        let allocated = self.fresh.remove(&t.storage_id).map_or(0, |(a, _)| a.num_elem);
        let before = old.filter(|_| in_place && t.num_elem < whole);
        let value = self.add_value(t, format!("{}_{node}", op.rsplit(':').next().unwrap_or(op)), before);
        if let Some(v) = self.program.values.get_mut(value) {
            v.elements = v.elements.max(if in_place { whole } else { 0 }).max(allocated);
            v.origin = Origin::Made(self.program.steps.len());
        }
        self.current.insert(t.storage_id, value);
        value
    }

    pub(super) fn add_value(&mut self, t: &Tensor, name: String, before: Option<usize>) -> usize {
        self.program.values.push(Value {
            name,
            shape: sizes(t),
            elements: t.num_elem,
            element_bytes: t.elem_bytes,
            float: Element::parse(&t.dtype) == Element::Float,
            origin: Origin::Input,
            before,
        });
        self.program.values.len() - 1
    }
}

pub(super) fn sizes(t: &Tensor) -> Vec<u64> {
    t.shape.iter().map(|s| u64::try_from(*s).unwrap_or(0)).collect()
}

pub(in crate::trace::lower) fn tensor_arg(t: &Tensor, value: usize) -> Arg {
    Arg::Tensor(TensorArg {
        storage: value,
        offset: t.offset,
        shape: sizes(t),
        strides: t.strides.as_ref().map(|s| s.iter().map(|x| u64::try_from(*x).unwrap_or(0)).collect()),
        element_bytes: t.elem_bytes,
        element: Element::parse(&t.dtype),
    })
}
