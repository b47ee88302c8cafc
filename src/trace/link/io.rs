//! Arguments of a host node in the notation that Chakra's converter writes: Python's, for lists, strings, truth values and nothing.

use super::{HostFacts, Io};
use crate::trace::host::{Arg, HostNode, Tensor};
use std::fmt::Write as _;

/// What a linked trace keeps of a host node.
pub(super) fn facts(node: &HostNode) -> HostFacts {
    HostFacts {
        id: node.id,
        rf_id: node.rf_id,
        seq_id: node.seq_id,
        scope: node.scope,
        fw_parent: node.fw_parent,
        fw_tid: node.fw_tid,
        tid: node.tid,
        op_schema: node.op_schema.clone(),
        inputs: io(&node.inputs),
        outputs: io(&node.outputs),
    }
}

fn io(args: &[Arg]) -> Io {
    if args.is_empty() {
        return Io { values: "[]".into(), shapes: "[]".into(), types: "[]".into() };
    }
    let (mut of_values, mut of_shapes, mut of_types) = (String::new(), String::new(), String::new());
    list(&mut of_values, args, values);
    list(&mut of_shapes, args, shapes);
    let mut plain = String::new();
    list(&mut of_types, args, |out, arg| {
        plain.clear();
        types(&mut plain, arg);
        quoted(out, &plain);
    });
    Io { values: of_values.into(), shapes: of_shapes.into(), types: of_types.into() }
}

/// Items of a list, in brackets. Depth is that of the JSON text they came from, at most 128.
fn list<T>(out: &mut String, items: &[T], mut item: impl FnMut(&mut String, &T)) {
    out.push('[');
    for (i, one) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        item(out, one);
    }
    out.push(']');
}

// Writing to a string cannot fail.
fn number(out: &mut String, value: impl std::fmt::Display) {
    let _ = write!(out, "{value}");
}

/// A string in Python's quotes: single ones, unless it holds single but no double ones.
fn quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

fn tensor(out: &mut String, t: &Tensor) {
    let _ = write!(out, "[{}, {}, {}, {}, {}, ", t.tensor_id, t.storage_id, t.offset, t.num_elem, t.elem_bytes);
    quoted(out, &t.device);
    out.push(']');
}

fn values(out: &mut String, arg: &Arg) {
    match arg {
        Arg::Tensor(t) => tensor(out, t),
        Arg::Int(i) => number(out, i),
        Arg::Float(x) if x.is_finite() => {
            let _ = write!(out, "{x:?}");
        }
        Arg::Float(x) if x.is_nan() => out.push_str("'nan'"),
        Arg::Float(x) => out.push_str(if *x > 0.0 { "'inf'" } else { "'-inf'" }),
        Arg::Bool(b) => out.push_str(if *b { "True" } else { "False" }),
        Arg::Str(text) | Arg::Device(text) => quoted(out, text),
        Arg::None => out.push_str("'<None>'"),
        Arg::List(items) => list(out, items, values),
        Arg::Other(kind) => {
            let _ = write!(out, "'<{kind}>'");
        }
    }
}

fn shapes(out: &mut String, arg: &Arg) {
    match arg {
        Arg::Tensor(t) => list(out, &t.shape, |out, extent| number(out, extent)),
        Arg::List(items) => list(out, items, shapes),
        _ => out.push_str("[]"),
    }
}

fn types(out: &mut String, arg: &Arg) {
    match arg {
        Arg::Tensor(t) => {
            let _ = write!(out, "Tensor({})", t.dtype);
        }
        Arg::Int(_) => out.push_str("Int"),
        Arg::Float(_) => out.push_str("Double"),
        Arg::Bool(_) => out.push_str("Bool"),
        Arg::Str(_) => out.push_str("String"),
        Arg::Device(_) => out.push_str("Device"),
        Arg::None => out.push_str("None"),
        Arg::List(items) => {
            out.push_str("GenericList[");
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                types(out, item);
            }
            out.push(']');
        }
        Arg::Other(kind) => out.push_str(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_s_notation() {
        let t = Tensor {
            tensor_id: 3,
            storage_id: 4,
            offset: 0,
            num_elem: 6,
            elem_bytes: 2,
            device: "cuda:0".into(),
            dtype: "c10::Half".into(),
            shape: Box::new([2, 3]),
            strides: None,
        };
        let args = [
            Arg::Tensor(Box::new(t)),
            Arg::Int(-1),
            Arg::Float(0.5),
            Arg::Bool(true),
            Arg::None,
            Arg::List(vec![Arg::Int(1), Arg::Int(2)]),
            Arg::Str("it's".into()),
            Arg::Str("a\"b'c".into()),
        ];
        let io = io(&args);
        assert_eq!(&*io.values, r#"[[3, 4, 0, 6, 2, 'cuda:0'], -1, 0.5, True, '<None>', [1, 2], "it's", 'a"b\'c']"#);
        assert_eq!(&*io.shapes, "[[2, 3], [], [], [], [], [[], []], [], []]");
        assert_eq!(
            &*io.types,
            "['Tensor(c10::Half)', 'Int', 'Double', 'Bool', 'None', 'GenericList[Int,Int]', 'String', 'String']"
        );
    }
}
