//! What a call asks of a chip's libraries: its products by their sizes, its type, its bytes and how they lie ([`crate::model::library`]).
//!
//! What the recorded kernels of the call tell by their names is taken too, since it holds on every chip: whether operands lie with strides
//! (PyTorch then takes other kernels), whether layouts are converted, whether words of 32 bits are multiplied with all their bits.

use super::call::{Arg, product};
use super::product::is_convolution;
use super::{Call, Class, Cost, Element, TensorArg, reads, writes};
use crate::model::attention_kernel::FusedAttentionWork;
use crate::model::kernel_time::Product;
use crate::model::library::{self, Access, Arithmetic, Word};

/// A call as work of a library, done in the kernels of these names; `None` where FLOP or bytes are not known. Words of 32 bits are multiplied as
/// the kernels' names tell, else as PyTorch does unless told otherwise (TF32 in convolutions, all bits in products: `torch.backends`, since 1.12).
pub fn work(call: &Call, cost: &Cost, kernels: &[&str]) -> Option<library::Call> {
    if cost.class == Class::Collective || !(cost.bytes_known || cost.is_free()) {
        return None;
    }
    let flop = cost.flop? as f64;
    let arithmetic = match cost.class {
        Class::Product => match sizes(call) {
            Some(p) if p.batch > 1.0 => Arithmetic::Batched(p),
            Some(p) => Arithmetic::Product(p),
            None => Arithmetic::Matrix(flop),
        },
        Class::Convolution => convolution(call, flop).map_or(Arithmetic::Matrix(flop), Arithmetic::Convolution),
        Class::Attention => {
            attention(call).map_or(Arithmetic::Matrix(flop), |(w, back)| Arithmetic::Attention(w, back))
        }
        Class::Recurrent => Arithmetic::Matrix(flop),
        _ => Arithmetic::Vector(flop),
    };
    let exact = kernels.iter().find_map(|k| exact(k));
    let exact = exact.unwrap_or(!is_convolution(&call.op) && cost.class != Class::Recurrent);
    let layouts = kernels.iter().filter(|k| k.contains("nchwToNhwc") || k.contains("nhwcToNchw")).count();
    Some(library::Call {
        arithmetic,
        word: word(call, exact),
        bytes: cost.bytes() as f64 * passes(call, cost),
        access: access(call, cost, kernels),
        converted: converted(call, layouts),
        kernels: kernels.len() as f64,
    })
}

/// Whether calls of a class multiply matrices.
pub fn multiplies(class: Class) -> bool {
    matches!(class, Class::Product | Class::Convolution | Class::Attention | Class::Recurrent)
}

/// Times that a call goes through its tensors, relative to once: statistics over a batch, and rows too long for a block, are read again.
fn passes(call: &Call, cost: &Cost) -> f64 {
    match cost.class {
        // Input in, in again, result out; backward input and gradient twice in.
        Class::Norm if call.op.contains("batch_norm") => {
            if call.op.contains("backward") {
                5.0 / 3.0
            } else {
                1.5
            }
        }
        // PyTorch keeps rows of up to 1,024 elements in registers; of longer ones it takes maximum, sum and result one after another.
        Class::Softmax if !call.op.contains("backward") && call.tensor(0).is_some_and(|t| t.last() > 1024) => 2.0,
        _ => 1.0,
    }
}

fn access(call: &Call, cost: &Cost, kernels: &[&str]) -> Access {
    let named = |part: &str| kernels.iter().any(|k| k.contains(part));
    let strided =
        (named("elementwise_kernel") && !named("vectorized_elementwise_kernel")) || named("CatArrayBatchedCopy");
    match cost.class {
        // Their statistics are sums along whole planes.
        Class::Norm if call.op.contains("batch_norm") => Access::Stream,
        Class::Norm | Class::Softmax | Class::Pool => Access::Rows,
        Class::Reduction => Access::Reduce,
        _ if strided => Access::Rearrange,
        Class::Copy if !named("vectorized_elementwise_kernel") && !named("Memcpy") => Access::Rearrange,
        _ => Access::Stream,
    }
}

/// Bytes that conversions of layouts move: of the input first, then the weight and the result.
fn converted(call: &Call, layouts: usize) -> f64 {
    let mut tensors = call.input_tensors();
    tensors.truncate(2);
    tensors.extend(writes(call).first());
    tensors.iter().take(layouts).map(|t| 2.0 * t.bytes() as f64).sum()
}

/// Bytes of an element of the floating-point type that operands are brought to: the widest of those with dimensions. A scalar among these (a number
/// of Python's is a tensor of 8 bytes without dimensions) does not raise their type (`torch.result_type`), nor does it tell that of a result.
pub fn float_bytes(call: &Call) -> Option<u64> {
    fn widest<'t>(tensors: impl Iterator<Item = &'t TensorArg>) -> Option<u64> {
        tensors.filter(|t| t.element == Element::Float).map(|t| t.element_bytes).max()
    }
    let operands = reads(call);
    widest(operands.iter().copied().filter(|t| !t.shape.is_empty()))
        .or_else(|| widest(writes(call).into_iter()))
        .or_else(|| widest(operands.into_iter()))
}

/// The type of [`float_bytes`]: a chip multiplies at the rate of the wider operand.
fn word(call: &Call, exact: bool) -> Word {
    match float_bytes(call) {
        Some(1) => Word::Byte,
        Some(4) if exact => Word::Exact,
        Some(4) => Word::Single,
        Some(8) => Word::Double,
        _ => Word::Half,
    }
}

/// Sizes of a matrix product.
fn sizes(call: &Call) -> Option<Product> {
    let (a, b) = match call.op.as_str() {
        "addmm" | "addmm_" | "baddbmm" | "baddbmm_" | "_addmm_activation" => (call.tensor(1)?, call.tensor(2)?),
        _ => (call.tensor(0)?, call.tensor(1)?),
    };
    let [m, n, k, batch] = match (a.shape.as_slice(), b.shape.as_slice()) {
        ([batch, m, k], [_, _, n]) => [*m, *n, *k, *batch],
        (x, [n, k]) if call.op.contains("linear") => [product(x) / (*k).max(1), *n, *k, 1],
        ([m, k], [_, n]) => [*m, *n, *k, 1],
        _ => return None,
    };
    Some(Product { batch: batch as f64, m: m as f64, n: n as f64, k: k as f64 })
}

/// A convolution as the products it is made of: channels out by positions over channels in times the filter; backward the input's gradient,
/// and the weight's, which contracts over the positions.
fn convolution(call: &Call, flop: f64) -> Option<Vec<Product>> {
    let backward = call.op.contains("backward");
    let (x, w) = if backward { (call.tensor(1)?, call.tensor(2)?) } else { (call.tensor(0)?, call.tensor(1)?) };
    let (out, inner) = (*w.shape.first()?, *w.shape.get(1)?);
    let groups = (x.shape.get(1)? / inner.max(1)).max(1);
    let filter = product(w.shape.get(2..)?).max(1) as f64;
    let mask = |i: usize| match call.inputs.get(10).and_then(Arg::list) {
        Some(m) if backward => m.get(i).and_then(Arg::flag).unwrap_or(true),
        _ => true,
    };
    let parts = if backward { u64::from(mask(0)) + u64::from(mask(1)) } else { 1 };
    let positions = flop / parts.max(1) as f64 / 2.0 / TensorArg::elements(w).max(1) as f64;
    let (rows, inner) = ((out / groups) as f64, inner as f64);
    let one = |m: f64, n: f64, k: f64| Product { batch: groups as f64, m, n, k };
    Some(if !backward {
        vec![one(rows, positions, inner * filter)]
    } else {
        let input = mask(0).then(|| one(inner * filter, positions, rows));
        let weight = mask(1).then(|| one(rows, inner * filter, positions));
        input.into_iter().chain(weight).collect()
    })
}

/// Attention, and whether it is its backward pass.
fn attention(call: &Call) -> Option<(FusedAttentionWork, bool)> {
    let backward = call.op.ends_with("backward");
    let first = usize::from(backward);
    let tokens_second = !call.op.contains("dot_product");
    let axes = |t: &TensorArg| match t.shape.as_slice() {
        [b, s, h, d] if tokens_second => Some([b.saturating_mul(*h), *s, *d].map(|n| n as f64)),
        [b, h, s, d] => Some([b.saturating_mul(*h), *s, *d].map(|n| n as f64)),
        _ => None,
    };
    let ([heads, queries, key_width], [kv_heads, keys, _]) =
        (axes(call.tensor(first)?)?, axes(call.tensor(first + 1)?)?);
    let [_, _, value_width] = axes(call.tensor(first + 2)?)?;
    let causal = super::product::is_causal(call);
    let seen = if causal { (keys + 1.0) / 2.0 } else { keys };
    let word = call.tensor(first)?.element_bytes as f64;
    let edges = if causal { 1.0 } else { 0.0 };
    Some((FusedAttentionWork { heads, kv_heads, queries, keys, seen, edges, key_width, value_width, word }, backward))
}

/// What the name of a kernel tells of how words of 32 bits are multiplied: libraries name their kernels after the instruction.
fn exact(kernel: &str) -> Option<bool> {
    let has = |parts: &[&str]| parts.iter().any(|p| kernel.contains(p));
    if has(&["sgemm", "simt", "scudnn", "implicit_convolve_sgemm", "winograd", "ffma"]) {
        Some(true)
    } else if has(&["tf32", "s1688", "tensorop"]) {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Options, cost};
    use super::*;

    fn tensor(storage: usize, shape: &[u64], bytes: u64) -> Arg {
        Arg::Tensor(TensorArg {
            storage,
            offset: 0,
            shape: shape.to_vec(),
            strides: None,
            element_bytes: bytes,
            element: Element::Float,
        })
    }

    fn of(op: &str, inputs: &[Arg], output: Arg, kernels: &[&str]) -> library::Call {
        let call =
            Call { op: op.into(), inputs: inputs.to_vec(), outputs: vec![output], mutated: vec![], returned: vec![] };
        work(&call, &cost(&call, &Options::default()), kernels).unwrap()
    }

    #[test]
    fn products_by_hand() {
        let inputs = [tensor(0, &[7], 4), tensor(1, &[3, 5], 4), tensor(2, &[5, 7], 4)];
        let found = of("addmm", &inputs, tensor(3, &[3, 7], 4), &["ampere_sgemm_32x32_nn"]);
        assert_eq!(found.arithmetic, Arithmetic::Product(Product { batch: 1.0, m: 3.0, n: 7.0, k: 5.0 }));
        assert_eq!((found.word, found.bytes, found.kernels), (Word::Exact, 4.0 * (7.0 + 15.0 + 35.0 + 21.0), 1.0));
        let tf32 = of("addmm", &inputs, tensor(3, &[3, 7], 4), &["cutlass_80_tensorop_s1688gemm"]);
        assert_eq!(tf32.word, Word::Single);
        let batched =
            of("bmm", &[tensor(0, &[2, 3, 5], 2), tensor(1, &[2, 5, 7], 2)], tensor(2, &[2, 3, 7], 2), &["k"]);
        assert_eq!(batched.arithmetic, Arithmetic::Batched(Product { batch: 2.0, m: 3.0, n: 7.0, k: 5.0 }));
        assert_eq!(batched.word, Word::Half);
    }

    /// The types are those of `torch.result_type`.
    #[test]
    fn a_scalar_does_not_raise_the_type_of_tensors() {
        let bytes = |inputs: Vec<Arg>, output: Arg| {
            float_bytes(&Call { op: "mul".into(), inputs, outputs: vec![output], mutated: vec![], returned: vec![] })
        };
        let (half, scalar) = (|| tensor(0, &[8], 2), || tensor(1, &[], 8));
        let of_element = |mut arg: Arg, e: Element| {
            if let Arg::Tensor(t) = &mut arg {
                t.element = e;
            }
            arg
        };
        let whole = || of_element(tensor(0, &[8], 8), Element::Int);
        assert_eq!(bytes(vec![half(), scalar()], tensor(2, &[8], 2)), Some(2));
        assert_eq!(bytes(vec![scalar(), half()], of_element(tensor(2, &[8], 1), Element::Bool)), Some(2));
        assert_eq!(bytes(vec![half(), tensor(1, &[1], 4)], tensor(2, &[8], 4)), Some(4));
        // Integers times a number of Python's are of the default type; scalars among themselves are of theirs.
        assert_eq!(bytes(vec![whole(), scalar()], tensor(2, &[8], 4)), Some(4));
        assert_eq!(bytes(vec![scalar(), scalar()], of_element(tensor(2, &[], 1), Element::Bool)), Some(8));
        assert_eq!(bytes(vec![whole(), whole()], whole()), None);
        let scaled = of("mul", &[half(), scalar()], tensor(2, &[8], 2), &["k"]);
        assert_eq!(scaled.word, Word::Half);
    }

    /// 2 images of 3 channels, 8 x 8; 4 filters of 3 x 3 without border: 36 positions each. Input and weight change their layout.
    #[test]
    fn convolutions_by_hand() {
        let inputs = [tensor(0, &[2, 3, 8, 8], 4), tensor(1, &[4, 3, 3, 3], 4)];
        let out = tensor(2, &[2, 4, 6, 6], 4);
        let found = of("cudnn_convolution", &inputs, out, &["nchwToNhwcKernel", "nchwToNhwcKernel", "conv"]);
        assert_eq!(found.arithmetic, Arithmetic::Convolution(vec![Product { batch: 1.0, m: 4.0, n: 72.0, k: 27.0 }]));
        assert_eq!((found.word, found.converted), (Word::Single, 2.0 * 4.0 * (384.0 + 108.0)));
    }

    #[test]
    fn names_of_kernels_tell_how_memory_is_read() {
        let x = || tensor(0, &[4, 8], 4);
        let add = |kernel: &str| of("add", &[x(), tensor(1, &[8], 4)], tensor(2, &[4, 8], 4), &[kernel]).access;
        assert_eq!(add("void at::native::vectorized_elementwise_kernel<4>"), Access::Stream);
        assert_eq!(add("void at::native::elementwise_kernel<128, 2>"), Access::Rearrange);
        assert_eq!(of("sum", &[x()], tensor(2, &[4], 4), &["reduce_kernel"]).access, Access::Reduce);
        let long = of("_softmax", &[tensor(0, &[4, 2000], 4)], tensor(2, &[4, 2000], 4), &["softmax"]);
        assert_eq!((long.access, long.bytes), (Access::Rows, 2.0 * 64000.0));
    }
}
