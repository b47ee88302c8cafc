//! What ATen operators mean: FLOP and bytes of a call from the shapes of its tensors.
//!
//! [`cost`] answers for one call. FLOP follow two conventions, kept apart: [`Cost::counted`] is what
//! `torch.utils.flop_counter` counts, so that totals can be compared exactly; [`Cost::flop`] is what is done, vector
//! operators included ([`vector`] has the table, [`product`] the products). Bytes are the distinct spans of storage read and
//! written: a view reads nothing, a broadcast dimension counts once.

pub mod call;
mod elementwise;
pub mod names;
pub mod product;
pub mod vector;
pub mod work;

pub use call::{Arg, Call, Element, TensorArg, plain_name};
pub use vector::Class;

use vector::Side;

/// How calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Options {
    /// Leave out the masked half of fused attention that is causal. `torch.utils.flop_counter` does not.
    pub causal_discount: bool,
}

/// What one call costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// What kind of operator it is.
    pub class: Class,
    /// FLOP done; `None` where neither name nor shapes tell.
    pub flop: Option<u64>,
    /// The FLOP are inferred from the name of a kernel, not from an operator's definition.
    pub estimated: bool,
    /// FLOP of `torch.utils.flop_counter`; `None` where it does not know the operator.
    pub counted: Option<u64>,
    /// Bytes read, each span once.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Whether the bytes are those that are moved: the call names the tensors it reads and writes, and either its operator's definition is known or no
    /// argument is a pool of which it may touch a part ([`may_touch_a_part`]); of such a pool the bytes are an upper bound.
    pub bytes_known: bool,
}

impl Cost {
    /// Bytes moved.
    pub fn bytes(&self) -> u64 {
        self.read_bytes.saturating_add(self.written_bytes)
    }
    /// Whether it takes no time on a device: a view, an allocation, a question of the host.
    pub fn is_free(&self) -> bool {
        matches!(self.class, Class::View | Class::Allocation | Class::Host)
    }
}

/// The class of a call by its name alone.
pub fn class_of(op: &str) -> Class {
    if names::is_collective(op) {
        return Class::Collective;
    }
    if let Some(class) = product_class(op) {
        return class;
    }
    match vector::known(op) {
        Some((class, _, _)) => class,
        None => names::guessed(op).map_or(Class::Unknown, |(class, _)| class),
    }
}

/// Whether the operator's definition is known: its call is counted as a whole, whatever it calls in turn.
pub fn is_registered(op: &str) -> bool {
    product_class(op).is_some() || vector::known(op).is_some_and(|(class, _, _)| class != Class::Composite)
}

fn product_class(op: &str) -> Option<Class> {
    if (op.contains("dot_product") && op.contains("attention") && op != "scaled_dot_product_attention")
        || op.starts_with("_flash_attention")
        || op.starts_with("_efficient_attention")
    {
        return Some(Class::Attention);
    }
    match op {
        "mm" | "_int_mm" | "addmm" | "addmm_" | "_addmm_activation" | "_scaled_mm" | "bmm" | "baddbmm" | "baddbmm_"
        | "mv" | "addmv" | "addmv_" | "dot" | "vdot" | "addr" | "addr_" | "_grouped_mm" | "_scaled_grouped_mm"
        | "mkldnn_linear" | "mkl_linear" => Some(Class::Product),
        _ if product::is_convolution(op) => Some(Class::Convolution),
        "mkldnn_rnn_layer" | "mkldnn_rnn_layer_backward" | "_cudnn_rnn" | "_cudnn_rnn_backward" | "miopen_rnn" => {
            Some(Class::Recurrent)
        }
        _ => None,
    }
}

/// FLOP and bytes of a call.
pub fn cost(call: &Call, options: &Options) -> Cost {
    let class = class_of(&call.op);
    let blank = Cost {
        class,
        flop: Some(0),
        estimated: false,
        counted: None,
        read_bytes: 0,
        written_bytes: 0,
        bytes_known: true,
    };
    if blank.is_free() {
        return blank;
    }
    let (read, written) = (reads(call), writes(call));
    let named = !read.is_empty() || !written.is_empty();
    let mut cost =
        Cost { read_bytes: span_bytes(&read), written_bytes: span_bytes(&written), bytes_known: named, ..blank };
    if class == Class::Lookup || of_bags(call).is_some() {
        // Only the rows asked for are read: as many as are looked up (or, scattering, as the source has), and the indices.
        let table = read.first().filter(|_| class == Class::Lookup).map_or(u64::MAX, |t| t.bytes());
        let indices: Vec<&TensorArg> = read.iter().copied().filter(|t| t.element != Element::Float).collect();
        let rows = looked_up_bytes(call).unwrap_or(cost.written_bytes);
        let moved = rows.min(table.max(1)).max(span_bytes(&indices));
        cost.read_bytes = cost.read_bytes.min(moved.saturating_add(span_bytes(&indices)));
    }
    cost.bytes_known &= !may_touch_a_part(call, &read, &written);
    if let Some(f) = product::flop(call, options) {
        cost.flop = Some(f.flop);
        cost.counted = f.counted;
        // With nothing below it that counts, it multiplies by itself.
        if class == Class::Composite {
            cost.class = Class::Product;
        }
        return cost;
    }
    if product_class(&call.op).is_some() {
        cost.flop = None;
        return cost;
    }
    if class == Class::Collective {
        return cost;
    }
    match vector::known(&call.op) {
        Some((Class::Pool, factor, side)) => {
            let window = if side == Side::Output { pool_window(call) } else { 1 };
            cost.flop = Some((elements(call, side) as f64 * factor) as u64).map(|f| f.saturating_mul(window));
        }
        Some((Class::Lookup, _, _)) if call.op.starts_with("_embedding_bag") && !call.op.contains("backward") => {
            let rows = call.tensor(1).map_or(0, TensorArg::elements);
            cost.flop = Some(rows.saturating_mul(call.tensor(0).map_or(0, TensorArg::last)));
        }
        Some((_, factor, side)) => cost.flop = Some((elements(call, side) as f64 * factor) as u64),
        None => match names::guessed(&call.op) {
            Some((_, factor)) if named => {
                let size =
                    elements(call, Side::Output).max(if written.is_empty() { elements(call, Side::Input) } else { 0 });
                cost.flop = Some((size as f64 * factor) as u64);
                cost.estimated = true;
            }
            _ => cost.flop = None,
        },
    }
    cost
}

/// An argument is far larger than another one where it has as many times its bytes.
const FAR_LARGER: u64 = 8;

/// Whether an operator whose definition is not known may touch only a part of an argument, a pool from which it takes rows or into which it writes some:
/// its largest argument is far larger than everything of other sizes, results included; no result of the pool's size is made; and something says that a
/// part may be meant: integers (indices, positions, tables of pages), or that the pool is the only argument of its size while there are results. Of kernels
/// made by a compiler only the latter tells (they are given their results and seeds as arguments), and those that reduce (`triton_red_`, `triton_per_`)
/// read all of their argument.
pub fn may_touch_a_part(call: &Call, read: &[&TensorArg], written: &[&TensorArg]) -> bool {
    let reduces = call.op.starts_with("triton_red_") || call.op.starts_with("triton_per_");
    let known = product_class(&call.op).is_some() || vector::known(&call.op).is_some() || of_bags(call).is_some();
    if known || reduces || names::is_collective(&call.op) {
        return false;
    }
    let arguments = call.input_tensors();
    let Some(pool) = arguments.iter().max_by_key(|t| t.bytes()).filter(|t| t.bytes() > 0) else { return false };
    let is_far = |t: &TensorArg| t.bytes().saturating_mul(FAR_LARGER) <= pool.bytes();
    let as_large = |tensors: &[&TensorArg]| tensors.iter().filter(|t| t.shape == pool.shape).count();
    let far = read.iter().chain(written).all(|t| t.shape == pool.shape || is_far(t));
    let handed_back: Vec<&TensorArg> = call.returned.iter().filter_map(|i| call.tensor(*i)).collect();
    let made = as_large(&call.output_tensors()) > as_large(&handed_back);
    let indices = arguments.iter().any(|t| t.element == Element::Int && !t.shape.is_empty() && is_far(t))
        && names::guessed(&call.op).is_none_or(|(class, _)| class != Class::Generated);
    let alone = as_large(&arguments) == 1 && !written.is_empty();
    far && !made && (indices || alone)
}

/// Bytes of the rows that a call looks up in its first argument, each look-up once, but no more than there are; `None` for other calls.
pub fn looked_up_bytes(call: &Call) -> Option<u64> {
    if let Some(bytes) = of_bags(call) {
        return Some(bytes);
    }
    let table = call.tensor(0)?;
    let rows = match call.op.as_str() {
        // Bags are summed: more rows are read than written.
        "embedding" | "_embedding_bag" | "_embedding_bag_forward_only" => {
            let each = table.last().saturating_mul(table.element_bytes);
            call.tensor(1)?.elements().saturating_mul(each)
        }
        "index_select" | "gather" | "index" | "take" | "_unsafe_index" | "masked_select" => {
            call.output(0)?.elements().saturating_mul(table.element_bytes)
        }
        _ => return None,
    };
    Some(rows.min(table.bytes()))
}

/// Bytes of the rows that a look-up of FBGEMM sums up, of several tables in one call (`fbgemm::split_embedding_codegen_lookup_..._function`): its indices
/// come right before the offsets of its bags, one bag a table and sample, and every result has the columns of all tables; rows count with the mean of these.
fn of_bags(call: &Call) -> Option<u64> {
    if !(call.op.contains("embedding") && call.op.contains("lookup")) {
        return None;
    }
    let out = call.output(0).filter(|t| t.shape.len() == 2 && t.element == Element::Float)?;
    let tensors = || call.inputs.iter().filter_map(Arg::tensor);
    let table = tensors().filter(|t| t.element == Element::Float).map(TensorArg::bytes).max()?;
    let (samples, columns) = (out.shape[0].max(1), out.last());
    let lists: Vec<&TensorArg> = tensors().filter(|t| t.element != Element::Float && t.shape.len() == 1).collect();
    let bags = |t: &TensorArg| t.elements().checked_sub(1).filter(|n| *n > 0 && n.is_multiple_of(samples));
    let (indices, tables) = lists.windows(2).rev().find_map(|pair| Some((pair[0], bags(pair[1])? / samples)))?;
    let row = columns.checked_div(tables)?.saturating_mul(out.element_bytes);
    Some(indices.elements().saturating_mul(row).min(table))
}

/// Window of a pooling call: its second argument.
fn pool_window(call: &Call) -> u64 {
    let sizes: Vec<u64> = match call.inputs.get(1) {
        Some(Arg::List(items)) => items.iter().filter_map(Arg::number).map(|n| n.max(1.0) as u64).collect(),
        Some(Arg::Int(n)) => vec![(*n).max(1) as u64; 2],
        _ => Vec::new(),
    };
    match (sizes.len(), call.tensor(0).map_or(0, |t| t.shape.len())) {
        // One number stands for every spatial dimension.
        (1, dims) if dims > 2 => sizes[0].saturating_pow((dims as u32).saturating_sub(2)),
        _ => call::product(&sizes),
    }
}

fn elements(call: &Call, side: Side) -> u64 {
    let largest = |tensors: Vec<&TensorArg>| tensors.into_iter().map(TensorArg::elements).max().unwrap_or(0);
    match side {
        Side::Output => {
            let out = largest(writes(call));
            // A list of results (foreach) is one result each.
            match call.outputs.first() {
                Some(Arg::List(_)) => writes(call).iter().fold(0u64, |n, t| n.saturating_add(t.elements())),
                _ => out,
            }
        }
        Side::Input => largest(call.input_tensors()),
        Side::First => {
            let mut first = Vec::new();
            if let Some(a) = call.inputs.first() {
                a.tensors(&mut first);
            }
            first.iter().fold(0u64, |n, t| n.saturating_add(t.elements()))
        }
    }
}

/// Operators whose first argument is only written.
fn overwrites_first(op: &str) -> bool {
    matches!(
        op,
        "copy_"
            | "zero_"
            | "fill_"
            | "bernoulli_"
            | "normal_"
            | "uniform_"
            | "random_"
            | "exponential_"
            | "_foreach_zero_"
            | "_foreach_copy_"
    )
}

/// The tensors a call reads.
pub fn reads(call: &Call) -> Vec<&TensorArg> {
    if class_of(&call.op) == Class::Fill {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (i, arg) in call.inputs.iter().enumerate() {
        if i == 0 && overwrites_first(&call.op) {
            continue;
        }
        // beta = 0: the tensor to be added is not looked at.
        if i == 0
            && matches!(call.op.as_str(), "baddbmm" | "addmm" | "addmv" | "baddbmm_" | "addmm_" | "addmv_")
            && call.inputs.get(3).and_then(Arg::number) == Some(0.0)
        {
            continue;
        }
        // An `out` tensor is written, not read.
        let keyword_out = call.mutated.contains(&i) && i > 0 && !call.op.ends_with('_');
        if !keyword_out {
            arg.tensors(&mut found);
        }
    }
    found
}

/// The tensors a call writes: its results, and the inputs it changes.
pub fn writes(call: &Call) -> Vec<&TensorArg> {
    let mut found = call.output_tensors();
    for i in call.mutated.iter().filter(|i| !call.returned.contains(i)) {
        if let Some(arg) = call.inputs.get(*i) {
            arg.tensors(&mut found);
        }
    }
    if found.is_empty()
        && call.op.ends_with('_')
        && !call.op.ends_with("__")
        && let Some(first) = call.inputs.first()
    {
        first.tensors(&mut found);
    }
    found
}

/// Bytes of the union of the spans of some tensors. A strided window counts its own elements, placed from its offset on.
pub fn span_bytes(tensors: &[&TensorArg]) -> u64 {
    let span = |t: &&TensorArg| {
        let start = t.offset.saturating_mul(t.element_bytes);
        (t.storage, start, start.saturating_add(t.bytes()))
    };
    let mut spans: Vec<(usize, u64, u64)> = tensors.iter().map(span).collect();
    spans.sort_unstable();
    let (mut total, mut of, mut end) = (0u64, None, 0);
    for (storage, from, to) in spans {
        if of.replace(storage) != Some(storage) {
            end = 0;
        }
        total = total.saturating_add(to.saturating_sub(from.max(end)));
        end = end.max(to);
    }
    total
}

#[cfg(test)]
mod tests;
