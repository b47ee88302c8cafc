//! Attention of a decoder to an encoder.

use super::*;
use crate::execution::communication::{LayerCommunication, hand_over_bytes};
use crate::execution::layer::Sums;

/// Half of the layers attend to an encoder: half as many products of attention again, scores of a square without mask, and weights of as many matrices; a
/// source has an embedding of its own.
#[test]
fn decoders_attend_to_their_encoder() {
    let of = |more: &str| {
        model(&format!(
            "layers: 4, hidden: 512, heads: 8, vocab: 51200, seq: 256, causal: false, norm: layer, biases: all, global_batch: 1{more}"
        ))
    };
    let (plain, both) = (of(""), of(", encoder_layers: 2"));
    let m = machine(&Parts { stack: ", attention: unfused", ..Parts::default() });
    let flop = |model: &LanguageModel, begins: &[&str]| -> f64 {
        let all = Kernels::new(&m, model, BlockKey::of(&execution(1, 1, 1, 1)).division, 312e12).layer(false);
        let named = |k: &&KernelTime| k.phase == Phase::Forward && begins.contains(&k.name);
        all.iter().filter(named).map(|k| k.flop).sum()
    };
    for (own, crossing) in [
        (vec!["query_key_value", "attention_out"], vec!["cross_query", "cross_key_value", "cross_out"]),
        (vec!["scores", "values"], vec![]),
    ] {
        let all: Vec<&str> = own.iter().chain(&crossing).copied().collect();
        close(flop(&both, &all), 1.5 * flop(&plain, &own), 1e-12);
    }
    let (h, layers) = (512.0, 2.0);
    close(both.parameters().total() - plain.parameters().total(), layers * (4.0 * h * h + 4.0 * h + 2.0 * h), 1e-12);
    let embedding = |model: &LanguageModel| {
        let all = Kernels::new(&m, model, BlockKey::of(&execution(1, 1, 1, 1)).division, 312e12).embedding();
        all.iter().map(|k| k.bytes).sum::<f64>()
    };
    close(embedding(&both), 2.0 * embedding(&plain), 1e-12);
    assert!(both.chain().unwrap_err().contains("not as graphs"));
}

/// Where half of the layers are a decoder's, tensor-parallel chips add up 2.5 activations a layer forward and 3 backward instead of 2 and 2, keys and values of half as many sources go
/// around besides, and stages hand on half as much again.
#[test]
fn what_a_decoder_reads_of_its_encoder_travels() {
    let plain = gpt(6, 1024, 8, 512, 8);
    let both = LanguageModel { encoder_layers: Some(3), ..plain.clone() };
    let m = machine(&Parts::default());
    let of = |model: &LanguageModel, e: &Execution| {
        let sums = Sums::of(&Kernels::new(&m, model, BlockKey::of(e).division, 312e12).layer(false));
        LayerCommunication::of(&m, model, &BlockKey::of(e).division, false, false, &sums)
    };
    let tensor = execution(4, 1, 1, 1);
    let (one, two) = (of(&plain, &tensor), of(&both, &tensor));
    close(two.forward.tp, 2.5 / 2.0 * one.forward.tp, 1e-12);
    close(two.backward.tp, 3.0 / 2.0 * one.backward.tp, 1e-12);
    close(two.forward.joules + two.backward.joules, 5.5 / 4.0 * (one.forward.joules + one.backward.joules), 1e-12);
    let around = Execution { cp: 4, ..execution(1, 1, 1, 1) };
    close(of(&both, &around).backward.busy[1], 1.5 * of(&plain, &around).backward.busy[1], 1e-12);
    let pieces = Execution { sequence_parallel: true, ..tensor };
    let gathered = |model: &LanguageModel| of(model, &pieces).backward.busy[0] - of(model, &tensor).backward.busy[0];
    close(gathered(&both), 1.5 * gathered(&plain), 1e-9);
    let division = BlockKey::of(&execution(1, 2, 1, 1)).division;
    close(hand_over_bytes(&m, &both, &division), 1.5 * hand_over_bytes(&m, &plain, &division), 1e-12);
}
