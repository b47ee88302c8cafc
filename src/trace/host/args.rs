//! From values, shapes, types and strides, which the observer writes as four parallel lists, to arguments.

use super::{Arg, Tensor};
use crate::trace::intern::Interner;
use crate::trace::raw::Raw;

/// Four parallel lists of one node's inputs or outputs.
#[derive(Debug, Default)]
pub(super) struct RawArgs<'a> {
    pub(super) values: Vec<Raw<'a>>,
    pub(super) shapes: Vec<Raw<'a>>,
    pub(super) types: Vec<Raw<'a>>,
    pub(super) strides: Option<Vec<Raw<'a>>>,
}

/// Arguments from the four lists; an error names the argument.
pub(super) fn arguments(raw: &RawArgs<'_>, strings: &mut Interner) -> Result<Vec<Arg>, String> {
    arguments_of(&raw.values, &raw.shapes, &raw.types, raw.strides.as_deref(), strings)
}

/// The same of lists that stand elsewhere.
pub(crate) fn arguments_of(
    values: &[Raw<'_>],
    shapes: &[Raw<'_>],
    types: &[Raw<'_>],
    strides: Option<&[Raw<'_>]>,
    strings: &mut Interner,
) -> Result<Vec<Arg>, String> {
    let mut out = Vec::with_capacity(values.len());
    for (i, value) in values.iter().enumerate() {
        let written = match types.get(i) {
            None => "",
            Some(t) => t.text().ok_or_else(|| format!("types[{i}]: expected a string, found {}", t.kind()))?,
        };
        let strides = strides.and_then(|s| s.get(i));
        let mut types = Types(written);
        let kind = types.next();
        out.push(argument(value, shapes.get(i), strides, kind, strings).map_err(|e| format!("values[{i}]: {e}"))?);
    }
    Ok(out)
}

/// Walks the types of a list: `Int,Tensor(c10::complex<float>),GenericList[Int,Int]` gives three.
struct Types<'a>(&'a str);

impl<'a> Types<'a> {
    fn next(&mut self) -> &'a str {
        let mut depth = 0usize;
        for (i, b) in self.0.bytes().enumerate() {
            match b {
                b'(' | b'[' | b'<' => depth += 1,
                b')' | b']' | b'>' => depth = depth.saturating_sub(1),
                b',' if depth == 0 => {
                    let (head, tail) = (self.0.get(..i).unwrap_or_default(), self.0.get(i + 1..).unwrap_or_default());
                    self.0 = tail;
                    return head;
                }
                _ => {}
            }
        }
        std::mem::take(&mut self.0)
    }
}

/// What stands between the first `open` and the last `close`.
fn inside(written: &str, open: u8, close: u8) -> Option<&str> {
    // They are short: a search made for long texts takes longer than to look at each byte.
    let (start, end) = (written.bytes().position(|b| b == open)?, written.bytes().rposition(|b| b == close)?);
    written.get(start + 1..end)
}

/// One argument. Depth is bounded by that of the JSON text, which serde bounds at 128.
fn argument(
    value: &Raw<'_>,
    shape: Option<&Raw<'_>>,
    strides: Option<&Raw<'_>>,
    kind: &str,
    strings: &mut Interner,
) -> Result<Arg, String> {
    if let Raw::List(items) = value {
        if kind.starts_with("Tensor(") || (kind.is_empty() && looks_like_tensor(items)) {
            return tensor(items, shape, strides, kind, strings).map(|t| Arg::Tensor(Box::new(t)));
        }
        let mut types = Types(inside(kind, b'[', b']').unwrap_or_default());
        let (shapes, strides) = (shape.and_then(Raw::list), strides.and_then(Raw::list));
        let mut out = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            let element = types.next();
            out.push(argument(item, shapes.and_then(|s| s.get(i)), strides.and_then(|s| s.get(i)), element, strings)?);
        }
        return Ok(Arg::List(out));
    }
    Ok(match value {
        Raw::Null => Arg::None,
        Raw::Bool(b) => Arg::Bool(*b),
        Raw::Int(i) if kind == "Double" => Arg::Float(*i as f64),
        Raw::Int(i) => Arg::Int(*i),
        Raw::Uint(u) => Arg::Float(*u as f64),
        Raw::Float(x) => Arg::Float(*x),
        Raw::Map => Arg::Other(strings.get(if kind.is_empty() { "Dict" } else { kind })),
        Raw::Str(text) => match kind {
            // The observer quotes what JSON has no number for.
            "Double" => text.parse().map_or_else(|_| Arg::Str(strings.get(text)), Arg::Float),
            "Device" => Arg::Device(strings.get(text)),
            "String" => Arg::Str(strings.get(text)),
            _ if &**text == "<None>" => Arg::None,
            "" => Arg::Str(strings.get(text)),
            other => Arg::Other(strings.get(other)),
        },
        Raw::List(_) => Arg::None, // handled above
    })
}

/// `[id, storage, offset, elements, bytes, device]`.
fn looks_like_tensor(items: &[Raw<'_>]) -> bool {
    matches!(items, [a, b, c, d, e, Raw::Str(_)] if [a, b, c, d, e].iter().all(|x| matches!(x, Raw::Int(_))))
}

fn tensor(
    items: &[Raw<'_>],
    shape: Option<&Raw<'_>>,
    strides: Option<&Raw<'_>>,
    kind: &str,
    strings: &mut Interner,
) -> Result<Tensor, String> {
    let [id, storage, offset, elements, bytes, device] = items else {
        return Err(format!(
            "expected a tensor of six numbers [id, storage, offset, elements, bytes of an element, device], found {} items",
            items.len()
        ));
    };
    let number = |raw: &Raw<'_>, what: &str| {
        raw.unsigned()
            .ok_or_else(|| format!("{what} of a tensor: expected an integer of at least 0, found {}", raw.kind()))
    };
    let device =
        device.text().ok_or_else(|| format!("device of a tensor: expected a string, found {}", device.kind()))?;
    let shape = match shape {
        None => Box::default(),
        Some(raw) => raw
            .integers()
            .ok_or_else(|| format!("shape of a tensor: expected a list of integers, found {}", raw.kind()))?,
    };
    let strides = match strides {
        None => None,
        Some(raw) => Some(
            raw.integers()
                .ok_or_else(|| format!("strides of a tensor: expected a list of integers, found {}", raw.kind()))?,
        ),
    };
    let written = inside(kind, b'(', b')').unwrap_or_default();
    Ok(Tensor {
        tensor_id: number(id, "id")?,
        storage_id: number(storage, "storage")?,
        offset: number(offset, "offset")?,
        num_elem: number(elements, "number of elements")?,
        elem_bytes: number(bytes, "bytes of an element")?,
        device: strings.get(device),
        dtype: strings.get(plain_type(written)),
        shape,
        strides,
    })
}

/// One spelling for what compilers spell differently.
fn plain_type(written: &str) -> &str {
    match written {
        "long int" | "int64_t" => "long",
        "short int" => "short",
        "long long" | "long long int" => "long",
        "uint8_t" => "unsigned char",
        "int8_t" => "signed char",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(values: &str, shapes: &str, types: &str, strides: Option<&str>) -> Result<Vec<Arg>, String> {
        let parse =
            |text: &str| match serde_json::from_str::<Raw<'_>>(Box::leak(text.to_owned().into_boxed_str())).unwrap() {
                Raw::List(items) => items,
                other => panic!("{other:?}"),
            };
        let raw =
            RawArgs { values: parse(values), shapes: parse(shapes), types: parse(types), strides: strides.map(parse) };
        arguments(&raw, &mut Interner::default())
    }

    #[test]
    fn a_tensor_and_scalars() {
        let args = one(
            r#"[[7,8,4,6,2,"cuda:0"], 4, 0.5, true, "<None>", "cuda:0", "x", "<Stream>", "-inf", [-1, 2]]"#,
            "[[2,3],[],[],[],[],[],[],[],[],[[],[]]]",
            r#"["Tensor(c10::Half)","Int","Double","Bool","None","Device","String","Stream","Double","GenericList[Int,Int]"]"#,
            Some("[[3,1],[],[],[],[],[],[],[],[],[]]"),
        )
        .unwrap();
        let t = args[0].tensor().unwrap();
        assert_eq!((t.tensor_id, t.storage_id, t.offset, t.num_elem, t.elem_bytes, t.bytes()), (7, 8, 4, 6, 2, 12));
        assert_eq!((&*t.dtype, &*t.shape, t.strides.as_deref()), ("c10::Half", &[2, 3][..], Some(&[3, 1][..])));
        assert_eq!(args[1], Arg::Int(4));
        assert_eq!(args[2], Arg::Float(0.5));
        assert_eq!(args[3], Arg::Bool(true));
        assert_eq!(args[4], Arg::None);
        assert_eq!(args[5], Arg::Device("cuda:0".into()));
        assert_eq!(args[6], Arg::Str("x".into()));
        assert_eq!(args[7], Arg::Other("Stream".into()));
        assert_eq!(args[8], Arg::Float(f64::NEG_INFINITY));
        assert_eq!(args[9].ints(), Some(vec![-1, 2]));
    }

    #[test]
    fn lists_of_tensors_and_tuples() {
        let args = one(
            r#"[[[1,2,0,3,4,"cpu"],[4,5,0,1,8,"cpu"]], ["0","default_pg"]]"#,
            "[[[3],[]],[[],[]]]",
            r#"["GenericList[Tensor(c10::complex<float>),Tensor(long int)]","Tuple[String,String]"]"#,
            None,
        )
        .unwrap();
        let tensors: Vec<&Tensor> = args[0].tensors().collect();
        assert_eq!(tensors.len(), 2);
        assert_eq!((&*tensors[0].dtype, &*tensors[1].dtype), ("c10::complex<float>", "long"));
        assert_eq!(&*tensors[0].shape, &[3]);
        assert_eq!(args[1], Arg::List(vec![Arg::Str("0".into()), Arg::Str("default_pg".into())]));
    }

    #[test]
    fn a_broken_tensor_is_named() {
        let error = one(r#"[[1,2,0,3,"cpu"]]"#, "[[3]]", r#"["Tensor(float)"]"#, None).unwrap_err();
        assert!(error.contains("values[0]") && error.contains("5 items"), "{error}");
        let error = one(r#"[[1,2,0,-3,4,"cpu"]]"#, "[[3]]", r#"["Tensor(float)"]"#, None).unwrap_err();
        assert!(error.contains("number of elements") && error.contains("-3"), "{error}");
    }
}
