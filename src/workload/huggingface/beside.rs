//! Sizes that stand beside the usual ones: heads of keys and values, widths under other names, classes, lists of plain layers.

use super::Tree;
use super::config::{Config, Found};
use super::parts::{self, KV_HEADS};
use crate::spec::{Node, Value};

/// Falcon's model types.
const FALCON: [&str; 3] = ["falcon", "RefinedWeb", "RefinedWebModel"];

/// Whether attention is over compressed keys and values, as stated or as the class has it.
pub(super) fn is_latent(c: &mut Config) -> bool {
    const RANK: &[&str] = &["kv_lora_rank"];
    c.flag(&["use_mla"], true) && (c.find(RANK).is_some() || c.of_class(RANK).is_some())
}

/// Heads of keys and values, as stated or as the class has them; `None`: as many as heads.
pub(super) fn kv_heads(c: &mut Config, kind: &str, heads: Option<&Found<u64>>) -> Option<Found<u64>> {
    // ChatGLM's heads of keys and values count where this is true.
    let grouped = c.flag(&["multi_query_attention"], false);
    let keys: &[&'static str] = if grouped { &["multi_query_group_num"] } else { KV_HEADS };
    let one = is_one(c, kind, grouped);
    let origin = c.find(&["multi_query"]).map_or(c.origin(), |(_, node)| node.origin.clone());
    let single = one.then_some(Found { value: 1, origin });
    if FALCON.contains(&kind) {
        if parts::is_new_falcon(c, kind) {
            return c.count(keys);
        }
        // Whatever number stands there: the code looks at `multi_query` alone.
        c.find(KV_HEADS);
        return single;
    }
    if let (Some(heads), Some(class), None) = (heads, c.of_class(keys), c.find(keys))
        && !heads.value.is_multiple_of(class)
    {
        c.note(format!("as many heads of keys and values as of queries: the {class} of the class do not divide them"));
        return None;
    }
    let stated = c.count(keys);
    if c.find(keys).is_some() { stated } else { stated.or(single) }
}

/// Whether one head of keys and values serves all, as several fields say it.
fn is_one(c: &mut Config, kind: &str, grouped: bool) -> bool {
    let named = |word: Option<&str>| word.is_some_and(|word| word.to_ascii_lowercase().starts_with("multiquery"));
    let by_word = named(c.text(&["attention_head_type"])) || named(c.text(&["attn_config.attn_type"]));
    let class = ["falcon", "gpt_bigcode"].contains(&kind);
    if class && c.find(&["multi_query"]).is_none() {
        c.note("multi_query true, which the class has where the file says nothing");
    }
    c.flag(&["multi_query"], grouped || class) || by_word
}

/// What the stated heads of keys and values are called.
pub(super) fn kv_key(c: &Config) -> &'static str {
    let stated = c.find(KV_HEADS).or_else(|| c.find(&["multi_query_group_num"]));
    stated.map_or(KV_HEADS[0], |(key, _)| key)
}

/// Half a width: Qwen 1 and Molmo state that of both halves of a gated perceptron.
pub(super) fn halved(width: Found<u64>) -> Found<u64> {
    Found { value: width.value / 2, origin: width.origin }
}

/// Whether a field is called as widths of perceptrons are, those of experts aside.
fn is_width(key: &str) -> bool {
    const NAMES: [&str; 6] = ["dff", "hidden_dim", "n_ff", "d_inner", "inner_dim", "mlp_dim"];
    const ENDS: [&str; 6] =
        ["intermediate_size", "ffn_dim", "ff_dim", "ffn_hidden_size", "mlp_hidden_size", "ffn_size"];
    let experts = ["expert", "moe", "shared"].iter().any(|part| key.contains(part));
    !experts && (NAMES.contains(&key) || ENDS.iter().any(|end| key.ends_with(end)))
}

/// Fields that nothing reads and that are called as widths are.
fn widths<'n>(c: &Config<'n>) -> Vec<(&'n str, &'n Node)> {
    let unread = c.unread();
    let number = |node: &Node| matches!(&node.value, Value::Scalar { text, .. } if text.parse::<f64>().is_ok());
    let wide = |(key, node): &(&str, &Node)| is_width(key) && number(node) && unread.iter().any(|name| name == key);
    c.fields().filter(wide).collect()
}

/// The end of a message about a missing width: what stands there instead.
pub(super) fn other_widths(c: &Config) -> String {
    let names: Vec<&str> = widths(c).iter().map(|(key, _)| *key).collect();
    if names.is_empty() { String::new() } else { format!(" (found, and not read: {})", names.join(", ")) }
}

/// Tells that four times the hidden size is taken for the width of a perceptron, unless a field that is not read may state it.
pub(super) fn usual_width(c: &mut Config, name: &str, hidden: Option<&Found<u64>>) {
    if let Some((key, node)) = widths(c).first().copied() {
        let message = format!("found {}, which is not known to be {name}; expected {name}", node.describe());
        c.problem(key, &node.origin, message);
    } else if let Some(hidden) = hidden {
        c.note(format!("{name} 4 x {}, as nothing says it", hidden.value));
    }
}

/// Words narrower than the hidden size, which two families have; others call the rows of their embedding so.
pub(super) fn words(c: &mut Config, tree: &mut Tree, kind: &str, hidden: Option<&Found<u64>>) {
    let keys: &[&'static str] = match kind {
        "albert" | "electra" => &["embedding_size"],
        "opt" => &["word_embed_proj_dim"],
        _ => return,
    };
    let (Some(width), Some(hidden)) = (c.count(keys), hidden) else { return };
    if width.value > hidden.value {
        let message = format!("expected at most the hidden size of {}, found {}", hidden.value, width.value);
        c.problem(keys[0], &width.origin, message);
    } else if width.value < hidden.value {
        tree.set("embedding_width", &width.origin, width.value);
    }
}

/// First layers of a plain perceptron as `mlp_layer_types` lists them.
pub(super) fn listed_dense(c: &mut Config) -> Option<Found<u64>> {
    let (key, node) = c.find(&["mlp_layer_types"])?;
    let Value::List(items) = &node.value else { return None };
    let plain = |item: &Node| matches!(&item.value, Value::Scalar { text, .. } if text == "dense");
    let first = items.iter().take_while(|item| plain(item)).count();
    if items.iter().skip(first).any(plain) {
        c.problem(key, &node.origin, "expected \"dense\" for the first layers alone: there is no field for others");
    }
    (first > 0).then(|| Found { value: first as u64, origin: node.origin.clone() })
}

/// Classes of a head of them: as many as their names, else as a field says, else as the class has them.
pub(super) fn classes(c: &mut Config, tree: &mut Tree, kind: &str) {
    let named = match c.find(&["id2label"]).map(|(_, node)| (&node.origin, &node.value)) {
        Some((origin, Value::Map(entries))) if !entries.is_empty() => {
            Some(Found { value: entries.len() as u64, origin: origin.clone() })
        }
        _ => c.count(&["num_labels"]),
    };
    let found = named.unwrap_or_else(|| {
        let value = if kind == "vit" {
            c.note("1000 classes, as of ImageNet: neither id2label nor num_labels says how many");
            1000
        } else {
            c.note("2 classes, as the class has: neither id2label nor num_labels says how many");
            2
        };
        Found { value, origin: c.origin() }
    });
    tree.set("classes", &found.origin, found.value);
}
