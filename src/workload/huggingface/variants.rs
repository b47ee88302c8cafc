//! What fields say against what the code of a family fixes: positions, gates, who sees whom, and the head.

use super::config::Config;
use super::families::{Family, architecture};
use crate::workload::language::{Head, Position};

/// Encoders of learned positions that a field may replace.
const ENCODERS: [&str; 5] = ["bert", "roberta", "camembert", "xlm-roberta", "electra"];

/// Changes a family by what fields say; the head of a part of a file (`within`) is that of the whole.
pub(super) fn apply(c: &mut Config, kind: &str, family: &mut Family, within: bool) {
    positions(c, kind, family);
    gates(c, family);
    sight(c, family);
    if !within {
        head(c, kind, family);
    }
}

/// Positions that `position_embedding_type` names: of BERT and its like it decides, and distances between tokens have no field.
fn positions(c: &mut Config, kind: &str, family: &mut Family) {
    const KEY: &str = "position_embedding_type";
    let Some((key, node)) = c.find(&[KEY]) else { return };
    let named = c.text(&[KEY]).unwrap_or_default().to_ascii_lowercase();
    if named.starts_with("relative") {
        let message = format!(
            "found {}: distances between tokens with a table in each layer; expected absolute, rotary or alibi: there is no field for others",
            node.describe()
        );
        c.problem(key, &node.origin, message);
        return;
    }
    if !ENCODERS.contains(&kind) {
        return;
    }
    match named.as_str() {
        "absolute" | "learned" => family.position = Position::Learned,
        "alibi" => family.position = Position::Alibi,
        "rotary" | "rope" => family.position = Position::Rotary,
        _ => {
            let message = format!("expected absolute, rotary or alibi, found {}", node.describe());
            c.problem(key, &node.origin, message);
        }
    }
}

/// Gates of a perceptron that has none by its family, or of a guessed family.
fn gates(c: &mut Config, family: &mut Family) {
    const KEYS: [&str; 4] = ["feed_forward_type", "feed_forward_proj", "hidden_act", "activation_function"];
    if family.gated {
        return;
    }
    for key in KEYS {
        let Some(word) = c.text(&[key]) else { continue };
        let lower = word.to_ascii_lowercase();
        if lower.contains("glu") || lower.starts_with("gated") {
            family.gated = true;
            c.note(format!("a gated perceptron ({key} {word})"));
            return;
        }
    }
}

/// Whether a token sees those behind it, which some models state against their family.
fn sight(c: &mut Config, family: &mut Family) {
    const BOTH: &str = "use_bidirectional_attention";
    if !family.causal && c.flag(&["is_decoder"], false) {
        family.causal = true;
        c.note("a token sees those before it alone (is_decoder)");
    }
    let both = match c.text(&[BOTH]) {
        Some("vision") => {
            c.note(format!("left out: {BOTH} of the tokens of one image"));
            false
        }
        Some(word) => matches!(word, "true" | "all"),
        None => false,
    };
    if both || !c.flag(&["is_causal"], true) || !c.flag(&["causal"], true) {
        if family.causal {
            c.note("every token sees all (use_bidirectional_attention, or is_causal false)");
        }
        family.causal = false;
    }
}

/// The head of a decoder by its architecture: of classes, or none at all.
fn head(c: &mut Config, kind: &str, family: &mut Family) {
    // ChatGLM's head is in its `Model`.
    if family.head != Head::Vocabulary || kind == "chatglm" {
        return;
    }
    let Some(name) = architecture(c) else { return };
    const WORDS: [&str; 5] = ["LMHead", "CausalLM", "ConditionalGeneration", "DoubleHeads", "Chat"];
    const OTHERS: [&str; 4] = ["ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice", "ForRewardModel"];
    if name.ends_with("ForSequenceClassification") {
        family.head = Head::Classes;
    } else if OTHERS.iter().any(|end| name.ends_with(end)) {
        c.note(format!("left out: the head of {name}"));
        family.head = Head::None;
    } else if name.ends_with("Model") && !WORDS.iter().any(|part| name.contains(part)) {
        c.note(format!("no head: {name} ends with its last layer"));
        family.head = Head::None;
    } else {
        return;
    }
    // A bias is of the words that no head maps to.
    family.head_bias = false;
}
