//! What of a language model does not fit together.

use super::spec::{Head, LanguageModel, ModelPass, Position};
use crate::spec::{Node, Reader};

/// Notes what single fields of a language model cannot show.
pub(super) fn check(model: &LanguageModel, node: &Node, reader: &mut Reader) {
    let mut sizes = vec![
        ("layers", model.layers, 1u64 << 20),
        ("hidden", model.hidden, 1 << 24),
        ("heads", model.heads, 1 << 20),
        ("head_dim", model.head_dim(), 1 << 20),
        ("ffn", model.ffn(), 1 << 26),
        ("vocab", model.vocab.unwrap_or(1), 1 << 30),
        ("max_positions", model.max_positions.unwrap_or(1), 1 << 30),
        ("seq", model.seq, 1 << 26),
        ("segment_memory", model.segment_memory.unwrap_or(1), 1 << 26),
        ("scored_words", model.scored_words.unwrap_or(1), 1 << 30),
        ("generated", model.generated.unwrap_or(1), 1 << 26),
        ("global_batch", model.global_batch, 1 << 40),
    ];
    sizes.retain(|(_, value, most)| value > most);
    crate::workload::spec::check_sizes(&sizes, node, reader);

    let mut say = |field: &str, message: String| {
        let at = node.get(field).unwrap_or(node).clone();
        reader.within(field, |r| r.problem(&at, message));
    };
    let kv = model.kv_heads();
    if kv > model.heads || !model.heads.is_multiple_of(kv) {
        say("kv_heads", format!("expected a divisor of the {} heads, found {kv}", model.heads));
    }
    if model.head_dim.is_none() && model.latent_attention.is_none() && !model.hidden.is_multiple_of(model.heads) {
        say("head_dim", format!("missing; a hidden size of {} is no multiple of {} heads", model.hidden, model.heads));
    }
    if let Some(experts) = &model.experts {
        if experts.top_k > experts.count {
            say("experts", format!("top_k: expected at most the {} experts, found {}", experts.count, experts.top_k));
        }
        if experts.first_dense_layers.unwrap_or(0) > model.layers {
            say("experts", format!("first_dense_layers: expected at most the {} layers", model.layers));
        }
        if experts.shared.is_none() && (experts.shared_ffn.is_some() || experts.shared_gate) {
            say("experts", "shared_ffn and shared_gate are of shared experts; shared is left out".into());
        }
        if experts.capacity_factor.is_some_and(|c| c <= 0.0) {
            say("experts", "capacity_factor: expected more than zero".into());
        }
        for (what, value, most) in [
            ("count", experts.count, 1u64 << 20),
            ("ffn", experts.ffn, 1 << 26),
            ("shared", experts.shared.unwrap_or(1), 1 << 20),
            ("shared_ffn", experts.shared_ffn.unwrap_or(1), 1 << 26),
        ] {
            if value > most {
                say("experts", format!("{what}: expected at most {most}, found {value}"));
            }
        }
    }
    if let Some(l) = &model.latent_attention {
        if model.kv_heads.is_some() {
            say("kv_heads", "latent_attention has as many heads of keys and values as of queries".into());
        }
        let widest = l.q_rank.unwrap_or(1).max(l.kv_rank).max(l.rope_dim).max(l.nope_dim).max(l.v_dim);
        if widest > 1 << 20 {
            say("latent_attention", format!("expected widths of at most {}, found {widest}", 1 << 20));
        }
    }
    if model.norms_per_layer.is_some_and(|n| n > 16) {
        say("norms_per_layer", "expected at most 16".into());
    }
    if model.qk_norm.is_some() && model.latent_attention.is_some() {
        say("qk_norm", "latent_attention has norms of its own".into());
    }
    match (model.full_attention_layers, model.window) {
        (Some(_), None) => say("full_attention_layers", "without a window every layer sees all tokens".into()),
        (Some(full), _) if full > model.layers => {
            say("full_attention_layers", format!("expected at most the {} layers, found {full}", model.layers));
        }
        _ => {}
    }
    if let Some(width) = model.embedding_width {
        if model.patches.is_some() || !matches!(model.head, Head::Vocabulary | Head::None) {
            say("embedding_width", "only models of words with the head vocabulary or none have it".into());
        }
        if width > 1 << 24 {
            say("embedding_width", format!("expected at most {}, found {width}", 1 << 24));
        }
    }
    if model.scored_words.is_some_and(|n| n > model.head_outputs()) {
        say("scored_words", format!("expected at most the {} outputs of the head", model.head_outputs()));
    }
    if model.position == Position::Relative && (model.latent_attention.is_some() || model.pass == ModelPass::Inference)
    {
        say("position", "relative positions are described for training with heads of keys and values alone".into());
    }
    if model.segment_memory.is_some() && model.position != Position::Relative {
        say("segment_memory", "a segment before is attended to by relative positions alone".into());
    }
    if let Some(n) = model.encoder_layers {
        let described =
            model.latent_attention.is_none() && model.experts.is_none() && model.pass == ModelPass::Training;
        if n >= model.layers {
            say("encoder_layers", format!("expected fewer than the {} layers, found {n}", model.layers));
        } else if !described || model.position == Position::Relative || model.frozen() {
            say(
                "encoder_layers",
                "an encoder is described for training with heads of keys and values and plain perceptrons".into(),
            );
        }
    }
    if model.adapters.is_some() && model.head_alone {
        say("head_alone", "either adapters are trained or the head alone".into());
    }
    if model.head_alone && model.head == Head::None {
        say("head_alone", "the model has no head that could be trained".into());
    }
    if model.head_alone && model.tied_embeddings {
        say("head_alone", "the head is the embedding again (tied_embeddings), which would be trained with it".into());
    }
    if model.head_bias && model.head != Head::Vocabulary {
        say("head_bias", format!("the head {} has its biases already, or none", model.head));
    }
    match (&model.patches, model.vocab) {
        (Some(p), _) if p.size > p.image || p.image > 1 << 16 || p.channels > 1 << 16 => {
            say("patches", format!("expected patches within an image of at most {} pixels an edge", 1 << 16));
        }
        (Some(p), _) if p.tokens() != model.seq => {
            say("seq", format!("expected the {} tokens of an image, found {}", p.tokens(), model.seq));
        }
        (None, None) => say("vocab", "missing; a model of words has a vocabulary".into()),
        (Some(_), Some(_)) => say("vocab", "a model of images has no vocabulary".into()),
        _ => {}
    }
    match (model.head, model.classes, model.vocab) {
        (Head::Classes, None, _) => say("classes", "missing; the head classes needs their number".into()),
        (Head::Vocabulary | Head::MaskedTokens, _, None) => say("head", format!("{} needs a vocab", model.head)),
        _ => {}
    }
    let last = model.seq.saturating_add(model.generated.unwrap_or(0).saturating_sub(1));
    if let Some(most) = model.max_positions.filter(|most| model.position == Position::Learned && last > *most) {
        say("max_positions", format!("expected at least the {last} tokens that are read and passed on, found {most}"));
    }
    if model.classes.is_some_and(|c| c > 1 << 30) {
        say("classes", format!("expected at most {}", 1 << 30));
    }
    if model.token_types.is_some_and(|t| t > 1 << 30) {
        say("token_types", format!("expected at most {}", 1 << 30));
    }
    if model.pass == ModelPass::Training && model.generated.is_some() {
        say("generated", "only the pass inference generates tokens".into());
    }
    if model.generated.is_some() && model.causal && !model.generates() {
        say("generated", format!("a model with the head {} generates nothing", model.head));
    }
    if model.pass == ModelPass::Inference && model.scored_words.is_some() {
        say("scored_words", "serving chooses among all words; fewer are scored in training alone".into());
    }
    if model.generated.is_some() && !model.causal {
        say("generated", "a model that is not causal generates nothing".into());
    }
}
