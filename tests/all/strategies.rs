//! What chips of a tensor-parallel group may do with a kernel, where the best is seen by eye.

use super::hpc::{LINK, mapped, system, workload};
use flowspace::model::Strategy;

/// Products of small weights with many tokens: each chip takes its tokens and the whole weights, and nothing is sent. Per chip, of
/// n = 262,144 / 8 tokens: a product 2 * 256 * 256 n FLOP at 100 TFLOP/s, longer than its DRAM; a norm reads 256 n words of 2 B at 1 TB/s
/// and the first writes as many.
#[test]
fn tokens_of_small_products_are_split() {
    let w = workload(
        "{kind: graph, name: g, source: 'assumed: test', word: 2 B, global_batch: 1, micro_batch: 1,
          inputs: [{name: x, rows: 256, cols: 262144}],
          kernels: [
            {name: P1, op: gemm_weight, m: 256, k: 256, n: 262144, rhs: x, output: a},
            {name: N1, op: norm, m: 256, n: 262144, inputs: [a], output: b},
            {name: P2, op: gemm_weight, m: 256, k: 256, n: 262144, rhs: b, output: c},
            {name: N2, op: norm, m: 256, n: 262144, inputs: [c], output: y}]}",
    );
    let network = format!("  topology: switch\n  dimensions:\n    - {{size: 8, {LINK}}}");
    let plan = mapped(&w, &system(&network, "compute_memory"));
    assert_eq!(plan.decisions.sharding, [Strategy::N; 4]);
    let tokens = 262_144.0 / 8.0;
    let (product, norm) = (2.0 * 256.0 * 256.0 * tokens / 100e12, 256.0 * tokens * 2.0 / 1e12);
    let expected = 2.0 * product + 3.0 * norm;
    assert!((plan.figures.iteration_s() / expected - 1.0).abs() < 1e-12, "{} {expected}", plan.figures.iteration_s());
}

/// Three heads on two chips: each chip has all of them and half of the queries, or one of the chips would wait for the other. Two heads on four
/// chips: each on two of them, which read least so.
#[test]
fn heads_need_not_divide_the_chips() {
    for (heads, chips, wanted) in [(3, 2, Strategy::N), (2, 4, Strategy::Outer), (4, 2, Strategy::Outer)] {
        let w = workload(&format!(
            "{{kind: graph, name: g, source: 'assumed: test', word: 2 B, global_batch: 1, micro_batch: 1,
              inputs: [{{name: q, rows: {}, cols: 512}}, {{name: k, rows: {}, cols: 64}}],
              kernels: [{{name: scores, op: gemm, outer: {heads}, m: 512, k: 64, n: 512, lhs: k, rhs: q, output: s}},
                        {{name: softmax, op: norm, outer: {heads}, m: 512, n: 512, inputs: [s], output: p}}]}}",
            64 * heads,
            512 * heads,
        ));
        let network = format!("  topology: switch\n  dimensions:\n    - {{size: {chips}, {LINK}}}");
        let plan = mapped(&w, &system(&network, "compute_memory"));
        assert_eq!(plan.decisions.sharding, [wanted; 2], "{heads} heads on {chips} chips");
    }
}
