//! Closed forms by hand for every family of operators.

use super::*;

fn t(storage: usize, shape: &[u64]) -> Arg {
    Arg::Tensor(TensorArg {
        storage,
        offset: 0,
        shape: shape.to_vec(),
        strides: None,
        element_bytes: 4,
        element: Element::Float,
    })
}

fn ints(values: &[i64]) -> Arg {
    Arg::List(values.iter().map(|v| Arg::Int(*v)).collect())
}

fn call(op: &str, inputs: Vec<Arg>, outputs: Vec<Arg>) -> Call {
    Call { op: op.into(), inputs, outputs, mutated: Vec::new(), returned: Vec::new() }
}

fn plain(op: &str, inputs: Vec<Arg>, outputs: Vec<Arg>) -> Cost {
    cost(&call(op, inputs, outputs), &Options::default())
}

#[test]
fn matrix_products() {
    let mm = plain("mm", vec![t(0, &[3, 5]), t(1, &[5, 7])], vec![t(2, &[3, 7])]);
    assert_eq!((mm.flop, mm.counted), (Some(210), Some(210)));
    // Bytes by hand: (15 + 35) x 4 read, 21 x 4 written.
    assert_eq!((mm.read_bytes, mm.written_bytes), (200, 84));
    let addmm = plain("addmm", vec![t(9, &[7]), t(0, &[3, 5]), t(1, &[5, 7])], vec![t(2, &[3, 7])]);
    assert_eq!((addmm.flop, addmm.counted), (Some(210), Some(210)));
    let bmm = plain("bmm", vec![t(0, &[2, 3, 5]), t(1, &[2, 5, 7])], vec![t(2, &[2, 3, 7])]);
    assert_eq!(bmm.flop, Some(420));
    let linear = plain("linear", vec![t(0, &[2, 3, 5]), t(1, &[7, 5])], vec![t(2, &[2, 3, 7])]);
    assert_eq!((linear.flop, linear.counted), (Some(2 * 6 * 5 * 7), None));
    let wrong = plain("mm", vec![t(0, &[3, 5]), t(1, &[4, 7])], vec![t(2, &[3, 7])]);
    assert_eq!(wrong.flop, None, "sizes that do not fit have no FLOP");
    assert_eq!(plain("mv", vec![t(0, &[4, 6]), t(1, &[6])], vec![t(2, &[4])]).flop, Some(48));
}

/// 2 x 2 x 3 x (4 x 5 x 7) for 2 x 3 matrices of 4 x 5 by 5 x 7, which are broadcast where one has a single one; rows alone by a matrix are as `linear`;
/// vectors are a row and a column. It is a product where it counts, which torch's counter does not know by that name.
#[test]
fn matmul_of_any_dimensions() {
    let matmul = |a: &[u64], b: &[u64]| plain("matmul", vec![t(0, a), t(1, b)], vec![t(2, &[1])]);
    let whole = matmul(&[2, 3, 4, 5], &[2, 3, 5, 7]);
    assert_eq!((whole.class, whole.flop, whole.counted), (Class::Product, Some(2 * 6 * 140), None));
    assert_eq!(matmul(&[2, 1, 4, 5], &[3, 5, 7]).flop, Some(2 * 6 * 140));
    assert_eq!(matmul(&[2, 3, 4, 5], &[5, 7]).flop, Some(2 * 6 * 140));
    assert_eq!(matmul(&[4, 5], &[3, 5, 7]).flop, Some(2 * 3 * 140));
    assert_eq!((matmul(&[5], &[5]).flop, matmul(&[3, 4, 5], &[5]).flop), (Some(10), Some(120)));
    assert_eq!((matmul(&[2, 4, 5], &[3, 5, 7]).flop, matmul(&[2, 4, 5], &[2, 6, 7]).flop), (Some(0), Some(0)));
}

/// beta = 0 means that the tensor to be added is never read: Megatron's scores.
#[test]
fn baddbmm_without_beta_does_not_read_its_first_argument() {
    let args = |beta| vec![t(9, &[2, 3, 7]), t(0, &[2, 3, 5]), t(1, &[2, 5, 7]), Arg::Float(beta), Arg::Float(1.0)];
    let out = || vec![t(2, &[2, 3, 7])];
    assert_eq!(plain("baddbmm", args(0.0), out()).read_bytes, (30 + 70) * 4);
    assert_eq!(plain("baddbmm", args(1.0), out()).read_bytes, (30 + 70 + 42) * 4);
}

/// Input (2, 8, 6, 6), 4 groups, 3 x 3, output (2, 12, 4, 4): weight (12, 2, 3, 3).
/// 2 x 2 x 16 x (12 x 2 x 9) = 13,824.
#[test]
fn grouped_convolution_forward_and_backward() {
    let forward = plain(
        "convolution",
        vec![
            t(0, &[2, 8, 6, 6]),
            t(1, &[12, 2, 3, 3]),
            Arg::None,
            ints(&[1, 1]),
            ints(&[0, 0]),
            ints(&[1, 1]),
            Arg::Bool(false),
            ints(&[0, 0]),
            Arg::Int(4),
        ],
        vec![t(2, &[2, 12, 4, 4])],
    );
    assert_eq!((forward.flop, forward.counted), (Some(13_824), Some(13_824)));
    let backward = |mask: [bool; 3]| {
        plain(
            "convolution_backward",
            vec![
                t(3, &[2, 12, 4, 4]),
                t(0, &[2, 8, 6, 6]),
                t(1, &[12, 2, 3, 3]),
                ints(&[12]),
                ints(&[1, 1]),
                ints(&[0, 0]),
                ints(&[1, 1]),
                Arg::Bool(false),
                ints(&[0, 0]),
                Arg::Int(4),
                Arg::List(mask.iter().map(|b| Arg::Bool(*b)).collect()),
            ],
            vec![t(4, &[2, 8, 6, 6]), t(5, &[12, 2, 3, 3]), t(6, &[12])],
        )
    };
    let both = backward([true, true, false]);
    // The counter takes the weight gradient of all 8 channels instead of the 2 of a group: 4 times too much.
    assert_eq!((both.flop, both.counted), (Some(27_648), Some(13_824 * 5)));
    assert_eq!(backward([true, false, false]).flop, Some(13_824));
    assert_eq!(backward([false, true, true]).counted, Some(13_824 * 4));
}

#[test]
fn transposed_convolution_counts_the_positions_of_its_input() {
    let forward = plain(
        "convolution",
        vec![
            t(0, &[1, 4, 3, 3]),
            t(1, &[4, 2, 2, 2]),
            Arg::None,
            ints(&[2, 2]),
            ints(&[0, 0]),
            ints(&[1, 1]),
            Arg::Bool(true),
            ints(&[0, 0]),
            Arg::Int(1),
        ],
        vec![t(2, &[1, 2, 6, 6])],
    );
    assert_eq!(forward.flop, Some(2 * 9 * 32));
}

/// Two heads, 4 queries, 4 keys, size 8: 2 x 2 x (4 x 4) x (8 + 8) = 1,024; a causal mask leaves 10 of 16 pairs.
#[test]
fn attention_with_and_without_the_causal_discount() {
    let qkv = || vec![t(0, &[1, 2, 4, 8]), t(1, &[1, 2, 4, 8]), t(2, &[1, 2, 4, 8])];
    let op = "_scaled_dot_product_flash_attention_for_cpu";
    let mut args = qkv();
    args.extend([Arg::Float(0.0), Arg::Bool(true)]);
    let forward = call(op, args, vec![t(3, &[1, 2, 4, 8])]);
    assert_eq!(cost(&forward, &Options::default()).flop, Some(1024));
    let discounted = cost(&forward, &Options { causal_discount: true });
    assert_eq!((discounted.flop, discounted.counted), (Some(640), Some(1024)));
    let mut args = vec![t(4, &[1, 2, 4, 8])];
    args.extend(qkv());
    let backward = plain(&format!("{op}_backward"), args, vec![t(5, &[1, 2, 4, 8])]);
    assert_eq!(backward.flop, Some(2 * 16 * 2 * (3 * 8 + 2 * 8)), "five products");
}

#[test]
fn vector_operators() {
    let x = || t(0, &[4, 6]);
    let y = || vec![t(1, &[4, 6])];
    assert_eq!(plain("gelu", vec![x()], y()).flop, Some(24));
    assert_eq!(plain("_softmax", vec![x(), Arg::Int(-1)], y()).flop, Some(120));
    assert_eq!(plain("native_layer_norm", vec![x(), ints(&[6]), t(5, &[6]), t(6, &[6])], y()).flop, Some(192));
    assert_eq!(plain("sum", vec![x()], vec![t(1, &[])]).flop, Some(24));
    assert_eq!(plain("clone", vec![x()], y()).flop, Some(0));
    let view = plain("view", vec![x()], vec![t(0, &[24])]);
    assert!(view.is_free() && view.bytes() == 0);
    let in_place = Call {
        op: "add_".into(),
        inputs: vec![x(), t(2, &[4, 6])],
        outputs: vec![x()],
        mutated: vec![0],
        returned: vec![0],
    };
    let c = cost(&in_place, &Options::default());
    assert_eq!((c.flop, c.read_bytes, c.written_bytes), (Some(24), 192, 96), "the same span is written once");
    let copy = Call {
        op: "copy_".into(),
        inputs: vec![x(), t(2, &[4, 6])],
        outputs: vec![x()],
        mutated: vec![0],
        returned: vec![0],
    };
    assert_eq!(cost(&copy, &Options::default()).read_bytes, 96, "the target of a copy is not read");
    let pool = plain(
        "max_pool2d_with_indices",
        vec![t(0, &[1, 2, 6, 6]), ints(&[3, 3])],
        vec![t(1, &[1, 2, 2, 2]), t(2, &[1, 2, 2, 2])],
    );
    assert_eq!(pool.flop, Some(8 * 9));
    let foreach = plain("_foreach_add_", vec![Arg::List(vec![t(0, &[3]), t(1, &[5])]), Arg::Float(1.0)], vec![]);
    assert_eq!(foreach.flop, Some(8));
}

#[test]
fn look_ups_read_the_rows_they_take() {
    let table = t(0, &[1000, 16]);
    let tokens = Arg::Tensor(TensorArg {
        storage: 1,
        offset: 0,
        shape: vec![10],
        strides: None,
        element_bytes: 8,
        element: Element::Int,
    });
    let c = plain("embedding", vec![table, tokens], vec![t(2, &[10, 16])]);
    assert_eq!((c.flop, c.read_bytes, c.written_bytes), (Some(0), 640 + 80, 640));
    // Three tables of a million rows of 64 in one call, 600 indices of 30 bags of ten samples: 600 rows of 64, and the 600 + 31 + 4 numbers of 8 bytes.
    let list = |storage, n| match t(storage, &[n]) {
        Arg::Tensor(tensor) => Arg::Tensor(TensorArg { element: Element::Int, element_bytes: 8, ..tensor }),
        other => other,
    };
    let bags = vec![t(4, &[192_000_000]), list(5, 4), Arg::Int(192), list(6, 600), list(7, 31), Arg::Int(0)];
    let c = plain("fbgemm::split_embedding_codegen_lookup_adagrad_function", bags, vec![t(8, &[10, 192])]);
    assert_eq!((c.read_bytes, c.written_bytes), (600 * 64 * 4 + 635 * 8, 10 * 192 * 4));
}

#[test]
fn kernels_known_by_name_are_estimates_and_unknown_ones_unknown() {
    let c = plain("triton_poi_fused_add_mul_tanh_0", vec![t(0, &[10])], vec![t(1, &[10])]);
    assert_eq!((c.class, c.flop, c.estimated), (Class::Generated, Some(30), true));
    assert_eq!(plain("triton_poi_fused_add_0", vec![], vec![]).flop, None);
    let c = plain("mylib::secret", vec![t(0, &[10])], vec![t(1, &[10])]);
    assert_eq!((c.class, c.flop, c.bytes(), c.bytes_known), (Class::Unknown, None, 80, true));
}

/// Two pools of 100,000 rows of 8 numbers (3.2 MB each) get 100 rows: 100 x 8 x 4 = 3,200 B of each source, 800 B of indices. What is moved is at least
/// twice 6,400 + 800 B; the sum over all arguments is an upper bound. Integers or a small result say that a part may be meant: a norm in place does not,
/// nor does what makes a result of the pool's size, nor a reduction.
#[test]
fn bytes_of_a_pool_are_an_upper_bound_where_its_operator_is_not_known() {
    let list = |storage, n| match t(storage, &[n]) {
        Arg::Tensor(tensor) => Arg::Tensor(TensorArg { element: Element::Int, element_bytes: 8, ..tensor }),
        other => other,
    };
    let (rows, pool) = (|i| t(i, &[100, 8]), |i| t(i, &[100_000, 8]));
    let set = || vec![rows(0), rows(1), pool(2), pool(3), list(4, 100)];
    let c = plain("memory_pool__set_kv_buffer_impl_353", set(), vec![rows(5)]);
    assert_eq!((c.bytes_known, c.bytes()), (false, 2 * 3_200_000 + 3 * 3_200 + 800));
    let known = |op: &str, inputs, outputs| plain(op, inputs, outputs).bytes_known;
    assert!(!known("lib::take", vec![pool(0), list(1, 100)], vec![rows(2)]), "reads rows");
    assert!(!known("triton_poi_fused_embedding_0", vec![pool(0), list(1, 100)], vec![rows(2)]));
    assert!(!known("lib::first", vec![pool(0)], vec![rows(2)]), "a small result of one large argument");
    assert!(known("triton_red_fused_sum_0", vec![pool(0)], vec![rows(2)]), "a reduction reads all");
    assert!(known("triton_poi_fused_dropout_0", vec![pool(0), list(1, 1), pool(2)], vec![]));
    assert!(known("lib::scaled", vec![pool(0), list(1, 100)], vec![pool(2)]), "all of the result is written");
    assert!(known("lib::rmsnorm", vec![pool(0), pool(1), t(2, &[8])], vec![]));
    assert!(known("lib::moved", vec![t(0, &[700, 8]), list(1, 100)], vec![rows(2)]), "22,400 B are no 8 times 3,200 B");
    assert!(known("embedding", vec![pool(0), list(1, 100)], vec![rows(2)]), "an operator that is known");
    let in_place = Call {
        op: "lib::put_".into(),
        inputs: vec![pool(0), list(1, 100), rows(2)],
        outputs: vec![pool(0)],
        mutated: vec![0],
        returned: vec![0],
    };
    assert!(!cost(&in_place, &Options::default()).bytes_known);
}

/// 4 x 6 floats, read as version 1 of the storage and written as version 2: 96 B each way, not 96 + 192. A buffer that is changed
/// but not handed back (the running mean of a batch norm) is written besides the results, though it looks like one of them.
#[test]
fn what_is_written_in_place_counts_once() {
    let relu = Call {
        op: "relu_".into(),
        inputs: vec![t(1, &[4, 6])],
        outputs: vec![t(2, &[4, 6])],
        mutated: vec![0],
        returned: vec![0],
    };
    let c = cost(&relu, &Options::default());
    assert_eq!((c.read_bytes, c.written_bytes), (96, 96));
    let norm = Call {
        op: "_native_batch_norm_legit".into(),
        inputs: vec![t(1, &[4, 6]), t(3, &[6])],
        outputs: vec![t(2, &[4, 6]), t(4, &[6])],
        mutated: vec![1],
        returned: Vec::new(),
    };
    assert_eq!(cost(&norm, &Options::default()).written_bytes, 96 + 24 + 24);
}
