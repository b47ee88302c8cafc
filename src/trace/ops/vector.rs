//! What operators other than products do to each element: their class and their FLOP.
//!
//! Conventions, one FLOP for each addition, multiplication, comparison or elementary function (exp, tanh, erf, sqrt count
//! one), per element of the side named:
//!
//! | operators | FLOP | why |
//! |---|---|---|
//! | elementwise, activations | 1 an output element | as DFModel and fvcore |
//! | `addcmul`, `addcdiv`, `lerp` | 3 | multiply, multiply, add |
//! | layer, batch, group norm | 8 an input element | mean 1, variance 3, normalise 2, scale and shift 2 |
//! | RMS norm | 4 | square, add, scale, weight |
//! | their backward | 13, RMS 9 | normalised input again 2, sums over the batch 3, sums over the row 3, input gradient 5 |
//! | softmax, log-softmax | 5, backward 4 | maximum, subtract, exp, sum, divide |
//! | reductions | 1 an input element, variance 3 | |
//! | pooling | window elements an output element | backward: 1 a gradient element |
//! | embedding bag | 1 an element added up | |
//! | Adam | 14 a parameter, SGD 4, Adagrad 6 | Kingma and Ba 2015, algorithm 1, with weight decay |
//! | copies, fills, look-ups, random numbers | 0 | no floating-point arithmetic |
//! | sort, top-k | 0 | comparisons of keys only |

/// Kinds of operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Re-reads memory with other sizes and strides: free.
    View,
    /// Takes memory without touching it: free.
    Allocation,
    /// Asks something of the host: free on the device.
    Host,
    /// Made of other operators, which are counted instead.
    Composite,
    /// Matrix product.
    Product,
    /// Convolution.
    Convolution,
    /// Fused attention.
    Attention,
    /// Recurrent layer.
    Recurrent,
    /// Normalisation over rows.
    Norm,
    /// Softmax.
    Softmax,
    /// One result an element.
    Elementwise,
    /// Sums, means, maxima.
    Reduction,
    /// Moves elements.
    Copy,
    /// Writes without reading.
    Fill,
    /// Reads rows by index.
    Lookup,
    /// Sorting.
    Sort,
    /// Pooling and resampling.
    Pool,
    /// Updates parameters.
    Optimiser,
    /// Communicates.
    Collective,
    /// A kernel made by a compiler (Triton), known by its name.
    Generated,
    /// Nothing known but its tensors.
    Unknown,
}

/// The side whose elements are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The largest result.
    Output,
    /// The largest input.
    Input,
    /// The first input (a list: all of it).
    First,
}

/// Class and FLOP an element of an operator, by its plain name.
pub fn known(op: &str) -> Option<(Class, f64, Side)> {
    use Class::*;
    use Side::*;
    if let Some(rest) = op.strip_prefix("_foreach_") {
        let inner = rest.trim_end_matches('_').split('.').next().unwrap_or(rest);
        return Some(match known(inner) {
            Some((Elementwise, factor, _)) => (Elementwise, factor, First),
            Some((Copy | Fill, _, _)) => (Copy, 0.0, First),
            _ if inner == "norm" => (Reduction, 2.0, First),
            _ => (Elementwise, 1.0, First),
        });
    }
    if op.starts_with("_fused_adam") {
        return Some((Optimiser, 14.0, First));
    }
    if op.starts_with("_fused_sgd") {
        return Some((Optimiser, 4.0, First));
    }
    if op.starts_with("_fused_adagrad") {
        return Some((Optimiser, 6.0, First));
    }
    let exact = match op {
        "view"
        | "_unsafe_view"
        | "reshape"
        | "_reshape_alias"
        | "as_strided"
        | "as_strided_"
        | "t"
        | "t_"
        | "transpose"
        | "transpose_"
        | "permute"
        | "expand"
        | "expand_as"
        | "view_as"
        | "slice"
        | "select"
        | "narrow"
        | "split"
        | "split_with_sizes"
        | "chunk"
        | "unbind"
        | "unsqueeze"
        | "unsqueeze_"
        | "squeeze"
        | "squeeze_"
        | "detach"
        | "detach_"
        | "alias"
        | "view_as_real"
        | "view_as_complex"
        | "real"
        | "imag"
        | "_conj"
        | "resolve_conj"
        | "resolve_neg"
        | "lift_fresh"
        | "unflatten"
        | "unfold"
        | "diagonal"
        | "movedim"
        | "swapaxes"
        | "numpy_T"
        | "unflatten_dense_tensors"
        | "broadcast_tensors"
        | "_unsafe_index"
        | "getitem"
        | "requires_grad_"
        | "moveaxis"
        | "swapdims"
        | "adjoint"
        | "mT"
        | "<built-in function getitem>"
        | "_operator.getitem" => (View, 0.0, Output),
        "empty" | "empty_like" | "empty_strided" | "new_empty" | "new_empty_strided" | "resize_" | "resize_as_"
        | "set_" | "record_stream" | "empty_permuted" => (Allocation, 0.0, Output),
        "item"
        | "_local_scalar_dense"
        | "is_nonzero"
        | "result_type"
        | "cudnn_is_acceptable"
        | "is_pinned"
        | "equal"
        | "_nnpack_available"
        | "_has_compatible_shallow_copy_type"
        | "sym_size"
        | "_assert_async" => (Host, 0.0, Output),
        "matmul"
        | "linear"
        | "conv1d"
        | "conv2d"
        | "conv3d"
        | "conv_transpose1d"
        | "conv_transpose2d"
        | "conv_transpose3d"
        | "layer_norm"
        | "batch_norm"
        | "group_norm"
        | "rms_norm"
        | "instance_norm"
        | "_batch_norm_impl_index"
        | "softmax"
        | "log_softmax"
        | "cross_entropy_loss"
        | "nll_loss"
        | "nll_loss_nd"
        | "dropout"
        | "contiguous"
        | "to"
        | "type_as"
        | "flatten"
        | "einsum"
        | "scaled_dot_product_attention"
        | "max_pool2d"
        | "max_pool1d"
        | "max_pool3d"
        | "lstm"
        | "gru"
        | "rnn_tanh"
        | "zeros"
        | "ones"
        | "full"
        | "randn"
        | "randint"
        | "rand"
        | "embedding_bag"
        | "embedding_backward"
        | "multi_head_attention_forward"
        | "silu_and_mul"
        | "outer"
        | "concat"
        | "flatten_dense_tensors" => (Composite, 0.0, Output),
        "copy_"
        | "clone"
        | "_to_copy"
        | "cat"
        | "stack"
        | "_cat"
        | "flip"
        | "roll"
        | "_pin_memory"
        | "pin_memory"
        | "copy"
        | "constant_pad_nd"
        | "pad"
        | "repeat"
        | "tril"
        | "triu"
        | "tril_"
        | "triu_"
        | "slice_backward"
        | "select_backward"
        | "_copy_from"
        | "_copy_from_and_resize"
        | "repeat_interleave"
        | "im2col"
        | "col2im"
        | "slice_scatter"
        | "select_scatter"
        | "expand_copy"
        | "view_copy"
        | "permute_copy"
        | "split_with_sizes_copy"
        | "_chunk_cat"
        | "unfold_backward" => (Copy, 0.0, Output),
        "zero_" | "fill_" | "zeros_like" | "ones_like" | "full_like" | "new_zeros" | "new_ones" | "new_full"
        | "arange" | "scalar_tensor" | "bernoulli_" | "normal_" | "uniform_" | "random_" | "exponential_"
        | "randn_like" | "rand_like" | "zero" | "fill" | "linspace" | "eye" | "bernoulli" => (Fill, 0.0, Output),
        "embedding"
        | "index_select"
        | "index"
        | "gather"
        | "take"
        | "index_put_"
        | "_index_put_impl_"
        | "scatter_"
        | "scatter"
        | "nonzero"
        | "masked_select"
        | "_unsafe_index_put"
        | "index_put"
        | "one_hot"
        | "embedding_renorm_"
        | "index_copy_"
        | "bucketize"
        | "searchsorted"
        | "value_selecting_reduction_backward" => (Lookup, 0.0, Output),
        "embedding_dense_backward"
        | "index_add_"
        | "index_add"
        | "scatter_add_"
        | "scatter_add"
        | "embedding_sparse_backward" => (Lookup, 1.0, First),
        "_embedding_bag_backward" | "_embedding_bag_dense_backward" => (Lookup, 1.0, First),
        "_embedding_bag" | "_embedding_bag_forward_only" => (Lookup, 0.0, Output),
        "sort" | "topk" | "argsort" | "unique" | "_unique2" | "unique_consecutive" => (Sort, 0.0, Input),
        "native_layer_norm"
        | "native_batch_norm"
        | "native_group_norm"
        | "cudnn_batch_norm"
        | "_native_batch_norm_legit"
        | "_native_batch_norm_legit_functional"
        | "_native_batch_norm_legit_no_training"
        | "_batch_norm_with_update"
        | "miopen_batch_norm"
        | "_batch_norm_with_update_functional"
        | "_batch_norm_no_update" => (Norm, 8.0, Input),
        "native_layer_norm_backward"
        | "native_batch_norm_backward"
        | "native_group_norm_backward"
        | "cudnn_batch_norm_backward"
        | "batch_norm_backward"
        | "miopen_batch_norm_backward" => (Norm, 13.0, Input),
        "_fused_rms_norm" => (Norm, 4.0, Input),
        "_fused_rms_norm_backward" => (Norm, 9.0, Input),
        "_softmax" | "_log_softmax" | "_safe_softmax" | "_masked_softmax" => (Softmax, 5.0, Output),
        "_softmax_backward_data" | "_log_softmax_backward_data" | "_masked_softmax_backward" => (Softmax, 4.0, Output),
        "sum"
        | "mean"
        | "max"
        | "min"
        | "amax"
        | "amin"
        | "prod"
        | "any"
        | "all"
        | "argmax"
        | "argmin"
        | "aminmax"
        | "nansum"
        | "logsumexp"
        | "cumsum"
        | "cumsum_"
        | "cumprod"
        | "count_nonzero"
        | "_adaptive_avg_pool2d"
        | "adaptive_avg_pool2d"
        | "_amp_foreach_non_finite_check_and_unscale_" => (Reduction, 1.0, Input),
        "norm" | "linalg_vector_norm" | "_foreach_norm" => (Reduction, 2.0, Input),
        "var" | "var_mean" | "std" | "std_mean" => (Reduction, 3.0, Input),
        "mse_loss" | "smooth_l1_loss" | "l1_loss" | "huber_loss" => (Elementwise, 3.0, Input),
        "mse_loss_backward" | "smooth_l1_loss_backward" => (Elementwise, 3.0, Output),
        "binary_cross_entropy_with_logits" | "binary_cross_entropy" => (Elementwise, 8.0, Input),
        "nll_loss_forward" | "nll_loss2d_forward" => (Lookup, 1.0, Output),
        "nll_loss_backward" | "nll_loss2d_backward" => (Lookup, 0.0, Output),
        "max_pool2d_with_indices"
        | "max_pool3d_with_indices"
        | "avg_pool2d"
        | "avg_pool3d"
        | "max_pool2d_with_indices_forward"
        | "upsample_nearest2d"
        | "upsample_bilinear2d"
        | "grid_sampler_2d" => (Pool, 1.0, Output),
        "max_pool2d_with_indices_backward"
        | "max_pool3d_with_indices_backward"
        | "avg_pool2d_backward"
        | "avg_pool3d_backward"
        | "_adaptive_avg_pool2d_backward"
        | "upsample_nearest2d_backward"
        | "upsample_bilinear2d_backward" => (Pool, 1.0, First),
        "native_dropout" | "_fused_dropout" => (Elementwise, 2.0, Output),
        "addcmul" | "addcdiv" | "lerp" => (Elementwise, 3.0, Output),
        "silu_backward" => (Elementwise, 5.0, Output),
        "gelu_backward" => (Elementwise, 8.0, Output),
        _ if super::elementwise::ELEMENTWISE.contains(&op) => (Elementwise, 1.0, Output),
        _ => {
            // `add_` does what `add` does.
            let plain = op.strip_suffix('_').filter(|p| !p.ends_with('_'))?;
            return match known(plain) {
                Some((class @ (Elementwise | Reduction | Copy), factor, side)) => Some((class, factor, side)),
                _ => None,
            };
        }
    };
    Some(exact)
}
