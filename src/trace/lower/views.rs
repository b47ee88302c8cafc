//! What a view makes of sizes, strides and offset, where the file does not say.

use crate::trace::ops::{Arg, TensorArg};

/// Strides of a tensor without gaps.
pub fn contiguous(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1u64; shape.len()];
    for i in (0..shape.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1].saturating_mul(shape[i + 1].max(1));
    }
    strides
}

/// Results of a view operator whose results have the sizes `shapes`. `None` if the first argument is no tensor. Where the
/// strides cannot be derived they are left unknown; the value looked into is known all the same.
pub fn apply<'s>(op: &str, inputs: &[Arg], shapes: impl Iterator<Item = Option<&'s [u64]>>) -> Option<Vec<Arg>> {
    let source = inputs.first()?.tensor()?;
    let integer = |i: usize| match inputs.get(i) {
        Some(Arg::Int(n)) => Some(*n),
        _ => None,
    };
    let dims = source.shape.len();
    let axis = |i: i64| usize::try_from(if i < 0 { i + dims as i64 } else { i }).ok().filter(|a| *a < dims);
    let mut results = Vec::new();
    let mut along = 0u64; // how far split and unbind have come
    for shape in shapes {
        let Some(shape) = shape else {
            results.push(Arg::None);
            continue;
        };
        let mut view = TensorArg { shape: shape.to_vec(), strides: None, ..source.clone() };
        let strides = source.strides.as_deref().filter(|s| s.len() == dims);
        let placed: Option<(u64, Vec<u64>)> = strides.and_then(|strides| match op {
            "t" | "numpy_T" | "mT" | "adjoint" => {
                let mut s = strides.to_vec();
                s.reverse();
                Some((0, s))
            }
            "transpose" | "swapaxes" | "swapdims" => {
                let (a, b) = (axis(integer(1)?)?, axis(integer(2)?)?);
                let mut s = strides.to_vec();
                s.swap(a, b);
                Some((0, s))
            }
            "permute" => {
                let order = inputs.get(1)?.list()?;
                let s: Option<Vec<u64>> = order
                    .iter()
                    .map(|o| if let Arg::Int(i) = o { axis(*i).and_then(|a| strides.get(a).copied()) } else { None })
                    .collect();
                Some((0, s?))
            }
            "expand" | "expand_as" | "broadcast_tensors" => {
                let extra = shape.len().checked_sub(dims)?;
                let mut s = vec![0; extra];
                s.extend(
                    source
                        .shape
                        .iter()
                        .zip(strides)
                        .zip(&shape[extra..])
                        .map(|((from, st), to)| if from == to { *st } else { 0 }),
                );
                Some((0, s))
            }
            "select" => {
                let (a, index) = (axis(integer(1)?)?, integer(2)?);
                let index = if index < 0 { index + source.shape[a] as i64 } else { index };
                let mut s = strides.to_vec();
                let stride = s.remove(a);
                Some((u64::try_from(index).ok()?.saturating_mul(stride), s))
            }
            "slice" => {
                let a = axis(integer(1).unwrap_or(0))?;
                let start = integer(2).unwrap_or(0);
                let start = if start < 0 { start + source.shape[a] as i64 } else { start };
                let step = integer(4).unwrap_or(1).max(1) as u64;
                let mut s = strides.to_vec();
                let stride = s[a];
                s[a] = stride.saturating_mul(step);
                Some((u64::try_from(start).ok()?.min(source.shape[a]).saturating_mul(stride), s))
            }
            "unbind" => {
                let a = axis(integer(1).unwrap_or(0))?;
                let mut s = strides.to_vec();
                let stride = s.remove(a);
                let offset = along.saturating_mul(stride);
                along = along.saturating_add(1);
                Some((offset, s))
            }
            "split" | "split_with_sizes" | "chunk" => {
                let a = axis(integer(2).unwrap_or(0))?;
                let offset = along.saturating_mul(strides[a]);
                along = along.saturating_add(*shape.get(a)?);
                Some((offset, strides.to_vec()))
            }
            "detach" | "alias" | "lift_fresh" | "resolve_conj" | "resolve_neg" => Some((0, strides.to_vec())),
            _ => Some((0, regrouped(&source.shape, strides, shape)?)),
        });
        if let Some((offset, strides)) = placed
            && strides.len() == shape.len()
        {
            view.offset = source.offset.saturating_add(offset);
            view.strides = Some(strides);
        }
        results.push(Arg::Tensor(view));
    }
    Some(results)
}

/// Strides of `new` sizes over the same elements, if the old strides allow it (as `torch.Tensor.view` decides).
fn regrouped(old: &[u64], strides: &[u64], new: &[u64]) -> Option<Vec<u64>> {
    if old.iter().try_fold(1u64, |n, s| n.checked_mul(*s)) != new.iter().try_fold(1u64, |n, s| n.checked_mul(*s)) {
        return None;
    }
    if old.contains(&0) {
        return Some(contiguous(new));
    }
    let mut out = vec![0u64; new.len()];
    let mut at = new.len();
    let mut i = old.len();
    while i > 0 {
        // A run of old dimensions that lie behind one another without gaps.
        i -= 1;
        let base = strides[i];
        let mut count = old[i];
        while i > 0 && (old[i] == 1 || strides[i - 1] == strides[i].saturating_mul(old[i]) || old[i - 1] == 1) {
            if old[i - 1] != 1 && old[i] == 1 && strides[i - 1] != base.saturating_mul(count) {
                break;
            }
            i -= 1;
            count = count.saturating_mul(old[i]);
        }
        // The new dimensions that make it up.
        let mut left = count;
        let mut stride = base;
        while at > 0 && (left > 1 || new[at - 1] == 1) {
            at -= 1;
            out[at] = stride;
            if !left.is_multiple_of(new[at]) {
                return None;
            }
            left /= new[at];
            stride = stride.saturating_mul(new[at]);
        }
        if left != 1 {
            return None;
        }
    }
    (at == 0).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ops::Element;

    fn source(shape: &[u64]) -> Arg {
        Arg::Tensor(TensorArg {
            storage: 3,
            offset: 0,
            shape: shape.to_vec(),
            strides: Some(contiguous(shape)),
            element_bytes: 4,
            element: Element::Float,
        })
    }

    fn one(op: &str, inputs: &[Arg], shape: &[u64]) -> (u64, Option<Vec<u64>>) {
        let out = apply(op, inputs, std::iter::once(Some(shape))).unwrap();
        let t = out[0].tensor().unwrap();
        (t.offset, t.strides.clone())
    }

    /// Fused queries, keys and values of a GPT: (tokens 4, 3 x heads 2 x size 5), seen as three (heads, tokens, size).
    #[test]
    fn fused_heads_are_three_windows_of_one_value() {
        let viewed = apply("view", &[source(&[4, 30])], std::iter::once(Some(&[4u64, 3, 2, 5][..]))).unwrap();
        let order = Arg::List([1, 2, 0, 3].map(Arg::Int).to_vec());
        let permuted =
            apply("permute", &[viewed[0].clone(), order], std::iter::once(Some(&[3u64, 2, 4, 5][..]))).unwrap();
        let shape: &[u64] = &[2, 4, 5];
        let parts = apply("unbind", &permuted, [Some(shape); 3].into_iter()).unwrap();
        for (i, part) in parts.iter().enumerate() {
            let t = part.tensor().unwrap();
            assert_eq!((t.storage, t.offset, t.strides.as_deref()), (3, 10 * i as u64, Some(&[5, 30, 1][..])));
        }
    }

    #[test]
    fn each_view_by_hand() {
        assert_eq!(one("t", &[source(&[3, 5])], &[5, 3]), (0, Some(vec![1, 5])));
        assert_eq!(one("select", &[source(&[3, 5]), Arg::Int(0), Arg::Int(-1)], &[5]), (10, Some(vec![1])));
        assert_eq!(
            one("slice", &[source(&[6, 5]), Arg::Int(0), Arg::Int(2), Arg::Int(6), Arg::Int(2)], &[2, 5]),
            (10, Some(vec![10, 1]))
        );
        assert_eq!(one("expand", &[source(&[1, 5])], &[4, 5]), (0, Some(vec![0, 1])));
        assert_eq!(one("view", &[source(&[6, 5])], &[2, 3, 5]), (0, Some(vec![15, 5, 1])));
        assert_eq!(one("view", &[source(&[2, 1, 3])], &[6, 1]).1, Some(vec![1, 1]));
        // A view that needs a copy has no strides.
        let t = apply("t", &[source(&[3, 5])], std::iter::once(Some(&[5u64, 3][..]))).unwrap();
        assert_eq!(one("view", &t, &[15]), (0, None));
        assert_eq!(one("select", &[source(&[3, 5]), Arg::Int(7), Arg::Int(0)], &[5]), (0, None), "no such axis");
    }
}
