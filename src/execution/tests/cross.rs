//! Attention of a decoder to an encoder.

use super::*;

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
