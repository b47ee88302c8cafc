//! FLOP of matrix products, convolutions, attention and recurrent layers: two a multiply-add.
//!
//! `counted` is what `torch.utils.flop_counter` (PyTorch 2.15, `flop_registry`) counts for the call, `flop` what is
//! done. They differ for causal attention where the discount is asked for, for the weight gradient of a grouped
//! convolution (the counter takes all input channels instead of those of a group), and for what the counter does not
//! know.

use super::Options;
use super::call::{Arg, Call, TensorArg, product};

/// FLOP of a call that multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flop {
    /// Done.
    pub flop: u64,
    /// Counted by `torch.utils.flop_counter`; `None` where it does not know the operator.
    pub counted: Option<u64>,
}

fn both(flop: u64) -> Option<Flop> {
    Some(Flop { flop, counted: Some(flop) })
}

fn ours(flop: u64) -> Option<Flop> {
    Some(Flop { flop, counted: None })
}

/// Convolutions, forward.
const CONVOLUTIONS: [&str; 13] = [
    "convolution",
    "_convolution",
    "cudnn_convolution",
    "miopen_convolution",
    "mkldnn_convolution",
    "_slow_conv2d_forward",
    "convolution_overrideable",
    "slow_conv3d_forward",
    "_conv_depthwise2d",
    "conv_depthwise3d",
    "thnn_conv2d",
    "cudnn_convolution_relu",
    "cudnn_convolution_transpose",
];
/// Convolutions, backward.
const CONVOLUTIONS_BACKWARD: [&str; 3] =
    ["convolution_backward", "convolution_backward_overrideable", "_slow_conv2d_backward"];

/// Whether an operator is a convolution, forward or backward.
pub fn is_convolution(op: &str) -> bool {
    CONVOLUTIONS.contains(&op) || CONVOLUTIONS_BACKWARD.contains(&op)
}

/// FLOP of the call; `None` if it is no such operator, or its shapes are not those of the operator.
pub fn flop(call: &Call, options: &Options) -> Option<Flop> {
    let t = |i| call.tensor(i);
    match call.op.as_str() {
        "mm" | "_int_mm" => matrix(t(0)?, t(1)?).map(|f| Flop { counted: (call.op == "mm").then_some(f), flop: f }),
        "addmm" | "_addmm_activation" | "addmm_" => both(matrix(t(1)?, t(2)?)?),
        "_scaled_mm" => both(matrix(t(0)?, t(1)?)?),
        "bmm" => both(batched(t(0)?, t(1)?)?),
        "baddbmm" | "baddbmm_" => both(batched(t(1)?, t(2)?)?),
        "linear" | "mkldnn_linear" | "mkl_linear" => {
            let (x, w) = (t(0)?, t(1)?);
            ours(mul(&[2, x.elements(), rows_of(w)]))
        }
        "matmul" => ours(multiplied(t(0)?, t(1)?)?),
        "mv" => ours(mul(&[2, t(0)?.elements()])),
        "addmv" | "addmv_" => ours(mul(&[2, t(1)?.elements()])),
        "dot" | "vdot" => ours(mul(&[2, t(0)?.elements()])),
        "addr" | "addr_" => ours(mul(&[2, t(0)?.elements()])),
        // [tokens, k] by [experts, k, n]: each row meets one expert's matrix; [experts, m, k] by [k, tokens]: each expert's rows meet its part of the columns.
        "_grouped_mm" | "_scaled_grouped_mm" => {
            let (x, w) = (t(0)?, t(1)?);
            let of_columns = x.shape.len() == 3 && w.shape.len() == 2;
            let groups = if of_columns { (*x.shape.first()?).max(1) } else { 1 };
            ours(mul(&[2, x.elements() / groups, w.last()]))
        }
        op if CONVOLUTIONS.contains(&op) => {
            let transposed = match call.op.as_str() {
                "convolution" | "_convolution" | "convolution_overrideable" => {
                    call.inputs.get(6).and_then(Arg::flag).unwrap_or(false)
                }
                "cudnn_convolution_transpose" => true,
                _ => false,
            };
            let (x, w, out) = (t(0)?, t(1)?, call.output(0)?);
            let positions = if transposed { x } else { out };
            let flop = convolution(positions, *x.shape.first()?, w)?;
            let known = [
                "convolution",
                "_convolution",
                "cudnn_convolution",
                "_slow_conv2d_forward",
                "convolution_overrideable",
            ];
            Some(Flop { flop, counted: known.contains(&call.op.as_str()).then_some(flop) })
        }
        "convolution_backward" | "convolution_backward_overrideable" => convolution_backward(call),
        "_slow_conv2d_backward" => {
            let mask = mask_of(call, call.inputs.len().checked_sub(1)?);
            let one = convolution(t(0)?, *t(0)?.shape.first()?, t(2)?)?;
            ours(mul(&[one, u64::from(mask[0]) + u64::from(mask[1])]))
        }
        op if op.contains("dot_product") && op.contains("attention")
            || op.starts_with("_flash_attention")
            || op.starts_with("_efficient_attention") =>
        {
            attention(call, options)
        }
        "mkldnn_rnn_layer" => {
            let (x, w1, w2) = (t(0)?, t(1)?, t(2)?);
            let steps = x.elements() / x.last().max(1);
            ours(mul(&[2, steps, w1.elements().saturating_add(w2.elements())]))
        }
        "mkldnn_rnn_layer_backward" => {
            let (x, w1, w2) = (t(0)?, t(1)?, t(3)?);
            let steps = x.elements() / x.last().max(1);
            // The gradient of the input and that of the weight: two products for each of the forward pass.
            ours(mul(&[4, steps, w1.elements().saturating_add(w2.elements())]))
        }
        "_cudnn_rnn" | "_cudnn_rnn_backward" | "miopen_rnn" => {
            let x = t(0)?;
            let mut weights = Vec::new();
            call.inputs.get(1)?.tensors(&mut weights);
            let matrices =
                weights.iter().filter(|w| w.shape.len() == 2).fold(0u64, |n, w| n.saturating_add(w.elements()));
            let passes = if call.op.ends_with("backward") { 4 } else { 2 };
            ours(mul(&[passes, x.elements() / x.last().max(1), matrices]))
        }
        _ => None,
    }
}

fn mul(factors: &[u64]) -> u64 {
    product(factors)
}

fn rows_of(w: &TensorArg) -> u64 {
    if w.shape.len() == 2 { w.shape[0] } else { 1 }
}

/// (m, k) by (k, n): 2 m k n.
fn matrix(a: &TensorArg, b: &TensorArg) -> Option<u64> {
    match (a.shape.as_slice(), b.shape.as_slice()) {
        ([m, k], [k2, n]) if k == k2 => Some(mul(&[2, *m, *k, *n])),
        _ => None,
    }
}

/// (b, m, k) by (b, k, n): 2 b m k n.
fn batched(a: &TensorArg, b: &TensorArg) -> Option<u64> {
    match (a.shape.as_slice(), b.shape.as_slice()) {
        ([p, m, k], [p2, k2, n]) if p == p2 && k == k2 => Some(mul(&[2, *p, *m, *k, *n])),
        _ => None,
    }
}

/// (..., m, k) by (..., k, n), the leading sizes broadcast against each other; vectors are one row, or one column: 2 batch m k n.
fn multiplied(a: &TensorArg, b: &TensorArg) -> Option<u64> {
    let (leading_a, [m, k]) = match a.shape.as_slice() {
        [k] => (&[][..], [1, *k]),
        [leading @ .., m, k] => (leading, [*m, *k]),
        [] => return None,
    };
    let (leading_b, [k2, n]) = match b.shape.as_slice() {
        [k] => (&[][..], [*k, 1]),
        [leading @ .., k, n] => (leading, [*k, *n]),
        [] => return None,
    };
    let mut flop = mul(&[2, m, k, n]);
    let longest = leading_a.len().max(leading_b.len());
    for at in 0..longest {
        // From the last size; what is not there is one.
        let size = |s: &[u64]| s.len().checked_sub(at + 1).map_or(1, |i| s[i]);
        flop = match (size(leading_a), size(leading_b)) {
            (x, y) if x == y || y == 1 => flop.saturating_mul(x),
            (1, y) => flop.saturating_mul(y),
            _ => return None,
        };
    }
    (k == k2).then_some(flop)
}

/// Every position of the smaller image meets the whole filter once: 2 batch positions filter (channels out)
/// (channels in of a group). `weight` is (out, in / groups, filter...), transposed (in, out / groups, filter...).
fn convolution(positions: &TensorArg, batch: u64, weight: &TensorArg) -> Option<u64> {
    let spatial = positions.shape.get(2..)?;
    Some(mul(&[2, batch, product(spatial), weight.elements()]))
}

fn mask_of(call: &Call, position: usize) -> [bool; 3] {
    let mut mask = [true; 3];
    if let Some(items) = call.inputs.get(position).and_then(Arg::list) {
        for (m, item) in mask.iter_mut().zip(items) {
            *m = item.flag().unwrap_or(true);
        }
    }
    mask
}

/// `convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding,
/// groups, output_mask)`: the gradient of the input and that of the weight cost as much as the forward pass each.
fn convolution_backward(call: &Call) -> Option<Flop> {
    let (grad, x, w) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let transposed = call.inputs.get(7).and_then(Arg::flag).unwrap_or(false);
    let groups = call.inputs.get(9).and_then(Arg::number).map_or(1, |g| (g as u64).max(1));
    let mask = mask_of(call, 10);
    let batch = *x.shape.first()?;
    let one = convolution(if transposed { x } else { grad }, batch, w)?;
    let (mut flop, mut counted) = (0u64, 0u64);
    if mask[0] {
        flop = flop.saturating_add(one);
        counted = counted.saturating_add(one);
    }
    if mask[1] {
        flop = flop.saturating_add(one);
        counted = counted.saturating_add(one.saturating_mul(groups));
    }
    Some(Flop { flop, counted: Some(counted) })
}

/// Scaled dot-product attention, forward: two products (queries by keys, weights by values); backward: five (the
/// scores again, and two gradients for each product).
///
/// `_scaled_dot_product_*` holds (batch, heads, tokens, size); the operators below them (batch, tokens, heads, size).
fn attention(call: &Call, options: &Options) -> Option<Flop> {
    let backward = call.op.ends_with("backward");
    let first = usize::from(backward);
    let (q, k, v) = (call.tensor(first)?, call.tensor(first + 1)?, call.tensor(first + 2)?);
    let tokens_second = !call.op.contains("dot_product");
    let axes = |t: &TensorArg| match t.shape.as_slice() {
        [b, s, h, d] if tokens_second => Some((*b, *h, *s, *d)),
        [b, h, s, d] => Some((*b, *h, *s, *d)),
        _ => None,
    };
    let ((b, h, sq, dq), (_, _, sk, _), (_, _, _, dv)) = (axes(q)?, axes(k)?, axes(v)?);
    let scores = mul(&[b, h, sq, sk]);
    let sizes = if backward {
        dq.saturating_mul(6).saturating_add(dv.saturating_mul(4))
    } else {
        dq.saturating_add(dv).saturating_mul(2)
    };
    let counted = scores.saturating_mul(sizes);
    let flop = if options.causal_discount && is_causal(call) {
        // Query i (from 1) meets the keys up to i.
        let triangle = |n: u64| n.saturating_mul(n.saturating_add(1)) / 2;
        let met = triangle(sq.min(sk)).saturating_add(sq.saturating_sub(sk).saturating_mul(sk));
        mul(&[b, h, met, sizes])
    } else {
        counted
    };
    let unknown = call.op.starts_with("_fused") || call.op.contains("overrideable");
    Some(Flop { flop, counted: (!unknown).then_some(counted) })
}

/// The flag `is_causal`: the only truth value among the inputs that is one of the two the schema may hold; of the flash
/// and efficient operators it is the first truth value that follows the tensors and the dropout probability.
pub(super) fn is_causal(call: &Call) -> bool {
    let flags: Vec<bool> =
        call.inputs.iter().filter_map(|a| if let Arg::Bool(b) = a { Some(*b) } else { None }).collect();
    match call.op.as_str() {
        // (q, k, v, bias, compute_log_sumexp, dropout_p, is_causal)
        "_scaled_dot_product_efficient_attention" | "_scaled_dot_product_cudnn_attention" => {
            flags.get(1).copied().unwrap_or(false)
        }
        "_scaled_dot_product_cudnn_attention_backward" => flags.first().copied().unwrap_or(false),
        // custom_mask_type: 0 none, 1 and 2 causal.
        op if op.starts_with("_efficient_attention") => call.inputs.iter().any(|a| matches!(a, Arg::Int(1 | 2))),
        "_scaled_dot_product_efficient_attention_backward" => flags.last().copied().unwrap_or(false),
        _ => flags.first().copied().unwrap_or(false),
    }
}
