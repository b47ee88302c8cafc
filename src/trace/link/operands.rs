//! A device trace's own operators as nodes of a host trace: what `record_shapes` kept of their arguments.
//!
//! Shapes, types, strides and scalars are recorded, tensors' identities and results are not. So each argument is a storage of its own, and
//! the first result has the sizes that the operator's definition gives it ([`result`]); an operator that
//! writes in place hands its first argument back. FLOP and bytes can be told from that; what one operator hands to another cannot.

use crate::trace::Text;
use crate::trace::host::{Arg, HostNode, Tensor};
use crate::trace::kineto::{Dims, Event, Operands};
use crate::trace::ops::plain_name;
use std::collections::HashMap;

/// Bytes of an element of a type as Kineto names it; `None` for what is no tensor.
fn element_bytes(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "double" | "long" | "long int" | "c10::complex<float>" => 8,
        "float" | "int" | "unsigned int" => 4,
        "c10::Half" | "c10::BFloat16" | "short" | "short int" => 2,
        "bool" | "unsigned char" | "signed char" | "char" => 1,
        name if name.starts_with("c10::Float8") => 1,
        _ => return None,
    })
}

/// The type that most operators of a trace take first: that of the tensors in lists, whose types are not recorded.
pub(super) fn usual_type(events: &[Event]) -> Option<Text> {
    let mut count: HashMap<&Text, usize> = HashMap::new();
    for first in events.iter().filter_map(|e| e.operands()?.types.first()).filter(|t| element_bytes(t).is_some()) {
        *count.entry(first).or_default() += 1;
    }
    count.into_iter().max_by_key(|(name, n)| (*n, (*name).clone())).map(|(name, _)| name.clone())
}

/// The operator or annotation of an event, as a host trace would have it. `id` numbers operators in the order of their starts.
pub(super) fn host_node(event: &Event, id: u64, tid: u64, usual: Option<&Text>) -> HostNode {
    let mut storage = id.saturating_mul(1 << 20);
    let inputs = event.operands().map(|o| arguments(o, usual, &mut storage)).unwrap_or_default();
    let op = plain_name(&event.name);
    let outputs = result(op, &inputs).map(|(shape, dtype)| match inputs.first() {
        Some(first @ Arg::Tensor(_)) if op.ends_with('_') && !op.ends_with("__") => first.clone(),
        _ => tensor(shape, None, &dtype, &mut storage),
    });
    HostNode {
        id,
        name: event.name.clone(),
        parent: 1,
        rf_id: event.record_function_id,
        fw_parent: 0,
        seq_id: event.sequence.unwrap_or(-1),
        scope: u64::from(event.name.starts_with("autograd::engine")),
        tid,
        fw_tid: event.fwd_thread.and_then(|t| u64::try_from(t).ok()).unwrap_or(0),
        op_schema: Text::from(""),
        inputs,
        outputs: outputs.into_iter().collect(),
        kernel_backend: None,
        kernel_file: None,
        collective: None,
        ts_us: None,
        dur_us: None,
        others: Vec::new(),
    }
}

fn tensor(shape: Vec<i64>, strides: Option<Box<[i64]>>, dtype: &Text, storage: &mut u64) -> Arg {
    *storage = storage.saturating_add(1);
    let elements = shape.iter().fold(1u64, |n, s| n.saturating_mul(u64::try_from(*s).unwrap_or(0)));
    Arg::Tensor(Box::new(Tensor {
        tensor_id: *storage,
        storage_id: *storage,
        offset: 0,
        num_elem: elements,
        elem_bytes: element_bytes(dtype).unwrap_or(4),
        device: Text::from("cuda:0"),
        dtype: dtype.clone(),
        shape: shape.into(),
        strides,
    }))
}

fn arguments(o: &Operands, usual: Option<&Text>, storage: &mut u64) -> Vec<Arg> {
    let count = o.dims.len().max(o.types.len());
    (0..count)
        .map(|i| {
            let dtype = o.types.get(i);
            let value = o.values.get(i).map_or("", |v| v);
            match (o.dims.get(i), dtype) {
                (Some(Dims::One(shape)), Some(dtype)) if element_bytes(dtype).is_some() => {
                    let strides = match o.strides.get(i) {
                        Some(Dims::One(s)) if s.len() == shape.len() => Some(s.clone()),
                        _ => None,
                    };
                    tensor(shape.to_vec(), strides, dtype, storage)
                }
                (Some(Dims::Many(list)), _) if value.is_empty() => {
                    let Some(usual) = usual else { return Arg::None };
                    let one = |d: &Dims| match d {
                        Dims::One(shape) => tensor(shape.to_vec(), None, usual, storage),
                        Dims::Many(_) => Arg::None,
                    };
                    Arg::List(list.iter().map(one).collect())
                }
                _ => scalar(value),
            }
        })
        .collect()
}

/// A scalar or list of scalars, as `Concrete Inputs` spells them: `1`, `0.5`, `False`, `[0, 0]`; nothing for what was not recorded.
fn scalar(text: &str) -> Arg {
    let text = text.trim();
    if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        let items = inner.split(',').map(str::trim).filter(|t| !t.is_empty());
        return Arg::List(items.map(scalar).collect());
    }
    match text {
        "" | "None" => Arg::None,
        "True" => Arg::Bool(true),
        "False" => Arg::Bool(false),
        _ => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(i), _) => Arg::Int(i),
            (_, Ok(f)) => Arg::Float(f),
            _ => Arg::Str(Text::from(text)),
        },
    }
}

/// Sizes and type of an operator's first result, where its definition and its arguments tell them.
fn result(op: &str, inputs: &[Arg]) -> Option<(Vec<i64>, Text)> {
    let at = |i: usize| inputs.get(i).and_then(Arg::tensor);
    let matrix = |a: usize, b: usize| -> Option<(Vec<i64>, Text)> {
        let (x, w) = (at(a)?, at(b)?);
        let (columns, rows) = (w.shape.last()?, x.shape.split_last()?.1);
        Some((rows.iter().chain([columns]).copied().collect(), x.dtype.clone()))
    };
    let like = |i: usize| at(i).map(|t| (t.shape.to_vec(), t.dtype.clone()));
    match op {
        "mm" | "bmm" => matrix(0, 1),
        "_int_mm" => matrix(0, 1).map(|(shape, _)| (shape, Text::from("int"))),
        "_scaled_mm" => typed(matrix(0, 1), inputs.get(6)),
        "_grouped_mm" => typed(grouped(at(0)?, at(1)?, at(2)), inputs.get(4)),
        "_scaled_grouped_mm" => typed(grouped(at(0)?, at(1)?, at(4)), inputs.get(7)),
        "mv" => Some((vec![*at(0)?.shape.first()?], at(0)?.dtype.clone())),
        "addmv" | "addmv_" => Some((vec![*at(1)?.shape.first()?], at(1)?.dtype.clone())),
        "dot" | "vdot" => Some((vec![1], at(0)?.dtype.clone())),
        "outer" | "ger" => {
            Some(([at(0)?, at(1)?].iter().flat_map(|t| t.shape.iter()).copied().collect(), at(0)?.dtype.clone()))
        }
        "addr" | "addr_" => {
            Some(([at(1)?, at(2)?].iter().flat_map(|t| t.shape.iter()).copied().collect(), at(1)?.dtype.clone()))
        }
        "addmm" | "baddbmm" | "_addmm_activation" | "addmm_" | "baddbmm_" => matrix(1, 2),
        "matmul" => {
            let (x, w) = (at(0)?, at(1)?);
            let leading = |t: &Tensor| t.shape[..t.shape.len().saturating_sub(2)].to_vec();
            let mut shape = broadcast([leading(x), leading(w)].iter().map(Vec::as_slice))?;
            shape.extend(x.shape.len().checked_sub(2).map(|i| x.shape[i]));
            shape.extend(w.shape.last().filter(|_| w.shape.len() > 1));
            Some((shape, x.dtype.clone()))
        }
        "linear" | "mkldnn_linear" => {
            let (x, w) = (at(0)?, at(1)?);
            let rows = x.shape.split_last()?.1;
            Some((rows.iter().chain(w.shape.first()).copied().collect(), x.dtype.clone()))
        }
        // (input, weight, bias, stride, padding, dilation, ...); cuDNN's and MIOpen's have the padding first.
        // transposed, padding of the result, groups follow.
        "convolution" | "_convolution" | "convolution_overrideable" if inputs.get(6).and_then(Arg::int) == Some(1) => {
            spread(inputs, [3, 4, 5, 7, 8])
        }
        "convolution" | "_convolution" | "convolution_overrideable" => convolved(inputs, 3, 4, 5),
        "cudnn_convolution" => convolved(inputs, 3, 2, 4),
        "cudnn_convolution_transpose" => spread(inputs, [4, 2, 5, 3, 6]),
        "miopen_convolution" => convolved(inputs, 4, 3, 5),
        "embedding" => {
            let (table, indices) = (at(0)?, at(1)?);
            Some((indices.shape.iter().chain(table.shape.last()).copied().collect(), table.dtype.clone()))
        }
        "index_select" | "gather" | "index" => None,
        "cat" | "stack" => {
            let list = inputs.first()?.list()?;
            let elements = list.iter().filter_map(Arg::tensor).map(|t| t.num_elem).fold(0u64, u64::saturating_add);
            let first = list.iter().find_map(Arg::tensor)?;
            Some((vec![i64::try_from(elements).ok()?], first.dtype.clone()))
        }
        "sum" | "mean" | "argmax" | "argmin" | "any" | "all" | "norm" | "var" | "std" => {
            Some((vec![1], at(0)?.dtype.clone()))
        }
        _ if op.contains("norm") => like(0),
        _ if op.contains("softmax") || op.contains("pool") => like(0),
        _ if op.contains("attention") && !op.contains("backward") => like(0),
        _ if op.starts_with("_foreach") || op.starts_with("_fused") => None,
        _ => {
            // One result an element, broadcast. Sizes that do not go together are no operands of one element: the result is as the first.
            match broadcast(inputs.iter().filter_map(Arg::tensor).map(|t| &*t.shape)) {
                Some(shape) => Some((shape, at(0)?.dtype.clone())),
                None => like(0),
            }
        }
    }
}

/// Sizes broadcast against each other: as many dimensions as the longest has, each the largest; `None` where they do not go together.
fn broadcast<'s>(shapes: impl Iterator<Item = &'s [i64]>) -> Option<Vec<i64>> {
    let mut shape: Vec<i64> = Vec::new();
    for sizes in shapes {
        if sizes.len() > shape.len() {
            let mut longer = vec![1; sizes.len() - shape.len()];
            longer.append(&mut shape);
            shape = longer;
        }
        let skip = shape.len() - sizes.len();
        for (mine, other) in shape.iter_mut().skip(skip).zip(sizes) {
            if *mine != 1 && *other != 1 && *mine != *other {
                return None;
            }
            *mine = if *mine == 1 { *other } else { *mine };
        }
    }
    Some(shape)
}

/// A result in the type that an argument names by its number among PyTorch's (c10/core/ScalarType.h), where it names one of those that products have.
fn typed(result: Option<(Vec<i64>, Text)>, named: Option<&Arg>) -> Option<(Vec<i64>, Text)> {
    let word = match named.and_then(Arg::int) {
        Some(5) => "c10::Half",
        Some(6) => "float",
        Some(15) => "c10::BFloat16",
        _ => return result,
    };
    result.map(|(shape, _)| (shape, Text::from(word)))
}

/// Sizes of the result of products by groups, which end at `ends`: rows, columns or the contracted dimension are divided among them, or every group has its own.
fn grouped(x: &Tensor, w: &Tensor, ends: Option<&Tensor>) -> Option<(Vec<i64>, Text)> {
    let columns = *w.shape.last()?;
    let shape = match (&x.shape[..], w.shape.len()) {
        ([rows, _], 3) | ([_, rows, _], 2) => vec![*rows, columns],
        ([groups, rows, _], 3) => vec![*groups, *rows, columns],
        ([rows, _], 2) => vec![*ends?.shape.first()?, *rows, columns],
        _ => return None,
    };
    Some((shape, x.dtype.clone()))
}

/// An axis's number in the list that is an argument; a list of one is that of all axes.
fn along(inputs: &[Arg], at: usize, axis: usize) -> Option<i64> {
    let list = inputs.get(at)?.ints()?;
    list.get(axis).or(list.first()).copied()
}

/// Sizes of a transposed convolution's result, with the places of stride, padding, dilation, the result's padding and groups among its arguments.
fn spread(inputs: &[Arg], [stride, padding, dilation, beyond, groups]: [usize; 5]) -> Option<(Vec<i64>, Text)> {
    let (x, w) = (inputs.first()?.tensor()?, inputs.get(1)?.tensor()?);
    let groups = inputs.get(groups).and_then(Arg::int)?;
    let mut shape = vec![*x.shape.first()?, w.shape.get(1)?.checked_mul(groups)?];
    for (axis, (size, filter)) in x.shape.get(2..)?.iter().zip(w.shape.get(2..)?).enumerate() {
        let [s, p, d, more] = [stride, padding, dilation, beyond].map(|at| along(inputs, at, axis));
        let reach = d?.checked_mul(filter.checked_sub(1)?)?.checked_add(1)?.checked_add(more?)?;
        let from = size.checked_sub(1)?.checked_mul(s?)?.checked_sub(p?.checked_mul(2)?)?;
        shape.push(from.checked_add(reach)?.max(0));
    }
    Some((shape, x.dtype.clone()))
}

/// Sizes of a convolution's result, with the places of stride, padding and dilation among its arguments.
fn convolved(inputs: &[Arg], stride: usize, padding: usize, dilation: usize) -> Option<(Vec<i64>, Text)> {
    let (x, w) = (inputs.first()?.tensor()?, inputs.get(1)?.tensor()?);
    let mut shape = vec![*x.shape.first()?, *w.shape.first()?];
    for (axis, (size, filter)) in x.shape.get(2..)?.iter().zip(w.shape.get(2..)?).enumerate() {
        let (s, p, d) = (along(inputs, stride, axis)?, along(inputs, padding, axis)?, along(inputs, dilation, axis)?);
        let reach = d.checked_mul(filter.checked_sub(1)?)?.checked_add(1)?;
        let room = size.checked_add(p.checked_mul(2)?)?.checked_sub(reach)?;
        shape.push(room.checked_div(s)?.checked_add(1)?.max(0));
    }
    Some((shape, x.dtype.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::kineto;
    use std::path::Path;

    fn nodes(events: &str) -> Vec<HostNode> {
        let text = format!("{{\"traceEvents\": [{events}]}}");
        let trace = kineto::read_from(text.as_bytes(), Path::new("t")).unwrap();
        let usual = usual_type(&trace.events);
        trace.events.iter().map(|e| host_node(e, 2, 1, usual.as_ref())).collect()
    }

    fn op(name: &str, args: &str) -> String {
        format!(
            "{{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"{name}\", \"pid\": 1, \"tid\": 1, \"ts\": 0, \"dur\": 1, \"args\": {{{args}}}}}"
        )
    }

    fn shape(node: &HostNode) -> Vec<i64> {
        node.output_tensors().next().unwrap().shape.to_vec()
    }

    #[test]
    fn results_by_hand() {
        let mm = op(
            "aten::addmm",
            r#""Input Dims": [[3], [4, 5], [5, 3], [], []], "Input type": ["float", "c10::Half", "c10::Half", "Scalar", "Scalar"], "Concrete Inputs": ["", "", "", "1", "0.5"]"#,
        );
        let conv = op(
            "aten::cudnn_convolution",
            r#""Input Dims": [[2, 3, 8, 9], [7, 3, 3, 3], [], [], []], "Input type": ["float", "float", "ScalarList", "ScalarList", "ScalarList"], "Concrete Inputs": ["", "", "[1, 0]", "[2, 2]", "[1, 1]"]"#,
        );
        let add = op("aten::add_", r#""Input Dims": [[2, 1, 4], [3, 1]], "Input type": ["float", "long int"]"#);
        let cat = op("aten::cat", r#""Input Dims": [[[2, 2], [2, 3]], []], "Input type": ["TensorList", "Scalar"]"#);
        let matmul = |dims: &str| {
            op("aten::matmul", &format!(r#""Input Dims": [{dims}], "Input type": ["c10::Half", "c10::Half"]"#))
        };
        let products = [matmul("[2, 1, 4, 5], [3, 5, 7]"), matmul("[2, 4, 5], [5]"), matmul("[4, 5], [3, 5, 7]")];
        let products: Vec<Vec<i64>> = nodes(&products.join(",")).iter().map(shape).collect();
        assert_eq!(products, [vec![2, 3, 4, 7], vec![2, 4], vec![3, 4, 7]]);
        let found = nodes(&[mm, conv, add, cat].join(","));
        assert_eq!(shape(&found[0]), [4, 3]);
        assert_eq!((&found[0].inputs[3], &found[0].inputs[4]), (&Arg::Int(1), &Arg::Float(0.5)));
        // (8 + 2 - 3) / 2 + 1 and (9 - 3) / 2 + 1.
        assert_eq!(shape(&found[1]), [2, 7, 4, 4]);
        assert_eq!(found[2].outputs[0], found[2].inputs[0], "in place");
        let joined = found[3].output_tensors().next().unwrap();
        assert_eq!((joined.num_elem, &*joined.dtype), (10, "float"), "the type that most operators have");
        let bytes: Vec<u64> = found[0].input_tensors().map(Tensor::bytes).collect();
        assert_eq!(bytes, [12, 40, 30]);
    }

    /// Rows, columns or the contracted dimension divided among groups; the type that an argument names; vectors; a transposed convolution, whose channels are the
    /// filter's second dimension and whose edge is (4 - 1) 2 - 2 + 3 + 1.
    #[test]
    fn further_results_by_hand() {
        let half = "c10::BFloat16";
        let of = |name: &str, dims: &str, types: &[&str], concrete: &str| {
            let types: Vec<String> = types.iter().map(|t| format!("{t:?}")).collect();
            let args = format!(
                r#""Input Dims": [{dims}], "Input type": [{}], "Concrete Inputs": [{concrete}]"#,
                types.join(", ")
            );
            op(name, &args)
        };
        let groups = |dims: &str| of("aten::_grouped_mm", dims, &[half, half, "int", "", ""], r#""", "", "", "", "6""#);
        let scalars =
            ["float", "float", "", "ScalarList", "ScalarList", "ScalarList", "Scalar", "ScalarList", "Scalar"];
        let transposed = of(
            "aten::convolution",
            "[2, 16, 4, 4], [16, 8, 3, 3], [], [], [], [], [], [], []",
            &scalars,
            r#""", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "True", "[1, 1]", "1""#,
        );
        let found = nodes(
            &[
                groups("[64, 128], [8, 128, 256], [8], [], []"),
                groups("[8, 32, 128], [128, 96], [8], [], []"),
                groups("[64, 128], [128, 256], [8], [], []"),
                of("aten::mv", "[6, 4], [4]", &[half, half], r#""", """#),
                of("aten::dot", "[6], [6]", &[half, half], r#""", """#),
                of("aten::ger", "[6], [4]", &[half, half], r#""", """#),
                transposed,
            ]
            .join(","),
        );
        let shapes: Vec<Vec<i64>> = found.iter().map(shape).collect();
        let right: [&[i64]; 7] = [&[64, 256], &[32, 96], &[8, 64, 256], &[6], &[1], &[6, 4], &[2, 8, 8, 8]];
        assert_eq!(shapes, right);
        assert_eq!(&*found[0].output_tensors().next().unwrap().dtype, "float");
    }

    #[test]
    fn what_is_not_recorded_stays_unknown() {
        let conv = op(
            "aten::cudnn_convolution",
            r#""Input Dims": [[2, 3, 8, 9], [7, 3, 3, 3], []], "Input type": ["float", "float", "GenericList"]"#,
        );
        let found = nodes(&[conv, op("aten::mul", "")].join(","));
        assert!(found.iter().all(|n| n.outputs.is_empty()), "{found:?}");
        assert_eq!(scalar("cuda:0"), Arg::Str(Text::from("cuda:0")));
        assert_eq!(scalar("[1, -1]"), Arg::List(vec![Arg::Int(1), Arg::Int(-1)]));
    }
}
