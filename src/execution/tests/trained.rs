//! What of a model is trained, and what sending tokens to experts moves.

use super::*;
use crate::workload::language::Head;

/// Adapters: no products for gradients of weights, nothing of these reduced or held but themselves; what is read and written beside products comes on top. Of
/// rank 16 on queries, keys, values and output of 1,024 channels a layer has 16 x 4 x 2,048 weights of its own, which are held, reduced and renewed.
#[test]
fn adapters_leave_weights_as_they_are() {
    let m = machine(&Parts::default());
    let whole = gpt(6, 1024, 8, 512, 24);
    let frozen = LanguageModel { adapters: Some(16), ..whole.clone() };
    let e = execution(1, 1, 4, 1);
    let (all, few) = (predict_any(&m, &whole, &e).unwrap(), predict_any(&m, &frozen, &e).unwrap());
    let own = 6.0 * 16.0 * 4.0 * 2048.0;
    let state = crate::execution::state::StateBytes::training(&whole.types);
    let held = (few.memory.device.gradients, few.memory.device.optimizer);
    assert_eq!(held, (own * state.gradients, own * state.optimizer));
    assert_eq!(few.memory.device.weights - all.memory.device.weights, own * state.weights);
    assert!(few.time.optimizer > 0.0 && few.time.optimizer < 0.2 * all.time.optimizer);
    let twice = predict_any(&m, &LanguageModel { adapters: Some(32), ..whole.clone() }, &e).unwrap();
    assert_eq!(twice.memory.device.gradients, 2.0 * held.0);
    assert!(few.time.forward > all.time.forward && few.time.backward < all.time.backward);
    // Of three products with a weight, two.
    let attention = 3.0 * whole.attention_flop_per_token(512.0) * 512.0;
    let flop = |p: &crate::execution::predict::Prediction| p.blocks.plain.flop * 6.0 + p.blocks.head.flop;
    let rest = flop(&all) - attention;
    assert!((flop(&few) / (attention + rest * 2.0 / 3.0) - 1.0).abs() < 0.2, "{} {}", flop(&few), flop(&all));
}

/// A head that is trained alone: layers and embedding are computed as forward as ever and not backward, and keep nothing; of the head, one matrix, the gradient of
/// its weights alone is computed, reduced and taken a step by.
#[test]
fn a_head_alone_asks_for_no_gradients() {
    let m = machine(&Parts { stack: HOST, ..Parts::default() });
    let whole = LanguageModel { tied_embeddings: false, ..gpt(6, 1024, 8, 512, 24) };
    let alone = LanguageModel { head_alone: true, ..whole.clone() };
    let e = execution(1, 1, 4, 1);
    let (all, few) = (predict_any(&m, &whole, &e).unwrap(), predict_any(&m, &alone, &e).unwrap());
    close(few.time.forward, all.time.forward, 1e-12);
    let division = BlockKey::of(&e).division;
    let peak = m.peak(&alone).unwrap();
    let head = Kernels::new(&m, &alone, division, peak).head();
    let backward: Vec<_> = head.iter().filter(|k| k.phase != Phase::Forward).collect();
    assert_eq!(backward.iter().map(|k| k.name).collect::<Vec<_>>(), ["head", "loss"]);
    let seconds: f64 = backward.iter().map(|k| k.seconds).sum();
    close(few.time.backward, few.microbatches as f64 * seconds, 1e-12);
    // 1024 channels by the words, of all weights but the last norm's.
    let words = 1024.0 * whole.vocab.unwrap() as f64;
    close(few.memory.device.optimizer, 12.0 * words, 1e-12);
    close(few.time.optimizer / all.time.optimizer, words / whole.parameters().total(), 1e-9);
    // Tensor-parallel, context-parallel chips and those of experts send nothing backward, and layers keep nothing, whatever a stack keeps.
    let experts = LanguageModel { experts: model("layers: 4, hidden: 512, heads: 8, vocab: 51200, seq: 256, global_batch: 4, experts: { count: 8, top_k: 2, ffn: 256 }").experts, ..alone.clone() };
    let keeps = machine(&Parts { stack: ", norm_memory: 4 B, keeps_gathered: true", ..Parts::default() });
    for (model, e) in [
        (&alone, Execution { sequence_parallel: true, ..execution(2, 1, 2, 1) }),
        (&alone, Execution { cp: 2, ..execution(1, 1, 2, 1) }),
        (&experts, Execution { ep: 2, ..execution(1, 1, 4, 1) }),
    ] {
        let p = predict_any(&keeps, model, &e).unwrap();
        let layer = if model.experts.is_some() { p.blocks.experts } else { p.blocks.plain };
        assert_eq!((layer.backward_pass, layer.kept), (0.0, 0.0));
        close(layer.forward_pass, layer.forward + layer.exposed.tp + layer.exposed.cp + layer.exposed.ep, 1e-12);
        assert!(layer.exposed.tp + layer.exposed.cp + layer.exposed.ep + layer.exposed.hidden > 0.0);
    }
    // It comes in one piece, which nothing is beside.
    let pair = Execution { overlap_dp: true, ..execution(1, 1, 2, 1) };
    let p = predict_any(&m, &alone, &pair).unwrap();
    let links = IterationLinks::of(&m, 1, 1, 1, 2, 1);

    close(p.time.dp, 2.0 * links.replicas.at(2.0 * words), 1e-12);
    let pass = |p: &crate::execution::predict::Prediction| p.blocks.plain.forward_pass;
    close(pass(&few), pass(&all), 1e-12);
    assert_eq!(few.blocks.plain.backward_pass, 0.0);
    close(few.memory.device.gradients, 2.0 * words, 1e-12);
    assert!(few.memory.device.activations < 0.1 * all.memory.device.activations);
}

/// What is needed is no more than what is computed where nothing is computed again, and of layers of products alone just that: all trained, with adapters, a
/// head trained alone, and a head that scores the masked words.
#[test]
fn needed_flop_are_those_that_run() {
    let m = machine(&Parts::default());
    let whole = gpt(6, 1024, 8, 512, 24);
    let e = execution(1, 1, 4, 1);
    for model in [
        whole.clone(),
        LanguageModel { adapters: Some(16), ..whole.clone() },
        LanguageModel { head_alone: true, ..whole.clone() },
        LanguageModel { head: Head::MaskedTokens, causal: false, ..whole.clone() },
    ] {
        let p = predict_any(&m, &model, &e).unwrap();
        let (needed, run) = (p.model_flop_utilization, p.hardware_flop_utilization);
        // Scores that a mask leaves out are computed, or not, as the core does.
        let masked = model.attention_flop_per_token(256.0) * 512.0 / model.needed_flop_per_sample();
        assert!(needed <= run * (1.0 + 1e-9) && needed >= run * (1.0 - 4.0 * masked), "{needed} {run} {masked}");
    }
    // By hand: a sample of 512 tokens, 6 layers of 12 h^2 weights, 2 x 2 x 256.5 x 1024 FLOP of attention a token, and the head.
    let (weights, seen) = (6.0 * 12.0 * 1024.0 * 1024.0, (1.0 + 512.0) / 2.0);
    let attention = 6.0 * 4.0 * seen * 1024.0;
    let head = 2.0 * 1024.0 * whole.vocab.unwrap() as f64;
    close(whole.needed_flop_per_sample(), 3.0 * 512.0 * (2.0 * weights + attention + head), 1e-12);
    let frozen = LanguageModel { adapters: Some(16), ..whole.clone() };
    close(frozen.needed_flop_per_sample(), 512.0 * (2.0 * (2.0 * weights + head) + 3.0 * attention), 1e-12);
    // Recomputation of what is not computed backward is none.
    let alone = LanguageModel { head_alone: true, ..whole };
    let again = Execution { recompute: Recompute::Full, ..e.clone() };
    assert_eq!(predict_any(&m, &alone, &again).unwrap().time.total, predict_any(&m, &alone, &e).unwrap().time.total);
}

/// What is moved for a token that is sent to an expert comes on top of its channels, for a chip's own tokens alone.
#[test]
fn tokens_that_are_sent_move_their_bytes() {
    let model = model(
        "layers: 4, hidden: 512, heads: 8, vocab: 51200, seq: 256, global_batch: 4, gated: true, experts: { count: 8, top_k: 2, ffn: 256 }",
    );
    let bytes = |stack: &'static str, e: &Execution| -> f64 {
        let m = machine(&Parts { stack, ..Parts::default() });
        let all = Kernels::new(&m, &model, BlockKey::of(e).division, 312e12).layer(true);
        all.iter().filter(|k| k.name == "routing" && k.phase == Phase::Forward).map(|k| k.bytes).sum()
    };
    let (one, two) = (execution(1, 1, 1, 1), Execution { sequence_parallel: true, ..execution(2, 1, 1, 1) });
    // Read and written, there and back: 256 tokens of 512 channels in 16 bits to two experts each.
    close(bytes("", &one), 4.0 * 2.0 * 256.0 * 512.0 * 2.0, 1e-12);
    close(bytes(", token_sent: 1000 B", &one) - bytes("", &one), 2.0 * 256.0 * 1000.0, 1e-12);
    close(bytes(", token_sent: 1000 B", &two) - bytes("", &two), 256.0 * 1000.0, 1e-12);
}
