//! A graph as a file of `kind: graph` that a person can read.

use super::{Axis, Block, Op, Phase, Slot, Workload};
use std::fmt::Write as _;

/// A word of YAML: as it is where that is safe, else quoted.
fn word(text: &str) -> String {
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
    let reserved = matches!(
        text.to_ascii_lowercase().as_str(),
        "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    if first && plain && !reserved { text.into() } else { serde_json::Value::String(text.into()).to_string() }
}

/// Bytes of an element that are not the graph's, as a further field.
fn bytes(own: Option<f64>) -> String {
    own.map_or(String::new(), |b| format!(", word: {b} B"))
}

fn list(words: &[String]) -> String {
    format!("[{}]", words.join(", "))
}

/// The file. Reading it gives the graph again.
pub fn graph(w: &Workload, source: &str) -> String {
    let mut out = String::new();
    let quoted = |text: &str| serde_json::Value::String(text.into()).to_string();
    let _ = writeln!(out, "kind: graph\nname: {}\nsource: {}", quoted(&w.name), quoted(source));
    let _ = writeln!(out, "word: {} B\ntraining: {}", w.word_bytes, w.training);
    if w.is_chain() {
        let block = |b: &Block| format!("{{ name: {}, repeat: {} }}", word(&b.name), b.repeat);
        let _ = writeln!(out, "blocks: {}", list(&w.blocks.iter().map(block).collect::<Vec<_>>()));
    } else {
        let _ = writeln!(out, "repeat: {}", w.repeat);
    }
    let _ = writeln!(out, "global_batch: {}\nmicro_batch: {}", w.global_batch, w.micro_batch);
    if let Some(tokens) = w.tokens_per_sample {
        let _ = writeln!(out, "tokens_per_sample: {tokens}");
    }
    if w.held_bytes > 0.0 {
        let _ = writeln!(out, "held: {} B", w.held_bytes);
    }
    let inputs: Vec<usize> = (0..w.tensors.len()).filter(|t| w.tensors[*t].producer.is_none()).collect();
    if !inputs.is_empty() {
        out.push_str("inputs:\n");
    }
    for t in inputs {
        let t = &w.tensors[t];
        let carried = t
            .carried_from
            .and_then(|c| w.tensors.get(c))
            .map_or(String::new(), |c| format!(", carried_from: {}", word(&c.name)));
        let own = bytes(t.word);
        let _ = writeln!(out, "  - {{ name: {}, rows: {}, cols: {}{own}{carried} }}", word(&t.name), t.rows, t.cols);
    }
    let outputs: Vec<String> = w.tensors.iter().filter(|t| t.output).map(|t| word(&t.name)).collect();
    if !outputs.is_empty() {
        let _ = writeln!(out, "outputs: {}", list(&outputs));
    }
    let between = w.tensors.iter().filter(|t| t.producer.is_some());
    let carried: Vec<String> = between
        .filter_map(|t| t.carried_from.and_then(|from| w.tensors.get(from)).map(|from| (t, from)))
        .map(|(t, from)| format!("{{ tensor: {}, from: {} }}", word(&t.name), word(&from.name)))
        .collect();
    if !carried.is_empty() {
        let _ = writeln!(out, "carried: {}", list(&carried));
    }
    out.push_str("kernels:\n");
    for (i, k) in w.kernels.iter().enumerate() {
        let mut fields = vec![format!("name: {}", word(&k.name)), format!("op: {}", k.op)];
        if k.phase != Phase::Forward {
            fields.push(format!("phase: {}", k.phase));
        }
        if k.shape.outer > 1 {
            fields.push(format!("outer: {}", k.shape.outer));
        }
        fields.push(format!("m: {}", k.shape.m));
        if k.is_gemm() {
            fields.push(format!("k: {}", k.shape.k));
        }
        fields.push(format!("n: {}", k.shape.n));
        if k.window > 1 {
            fields.push(format!("window: {}", k.window));
        }
        let read = |slot: Slot| -> Vec<String> {
            w.tensors
                .iter()
                .filter(|t| t.consumers.iter().any(|u| u.kernel == i && u.slot == slot))
                .map(|t| word(&t.name))
                .collect()
        };
        for (slot, field, transposed) in
            [(Slot::Rhs, "rhs", false), (Slot::RhsT, "rhs", true), (Slot::Lhs, "lhs", false), (Slot::LhsT, "lhs", true)]
        {
            if let Some(name) = read(slot).first() {
                fields.push(format!("{field}: {name}"));
                if transposed {
                    fields.push(format!("{field}_transposed: true"));
                }
            }
        }
        for (slot, field) in [(Slot::Data, "inputs"), (Slot::Aligned, "aligned"), (Slot::View, "views")] {
            let names = read(slot);
            if !names.is_empty() {
                fields.push(format!("{field}: {}", list(&names)));
            }
        }
        let made: Vec<usize> = (0..w.tensors.len()).filter(|t| w.tensors[*t].producer == Some(i)).collect();
        let main = made.iter().find(|t| {
            let t = &w.tensors[**t];
            (t.rows, t.cols, t.word) == (k.shape.rows(), k.shape.n, k.word)
        });
        if let Some(t) = main {
            fields.push(format!("output: {}", word(&w.tensors[*t].name)));
        }
        if let Some(own) = k.word {
            fields.push(format!("word: {own} B"));
        }
        let parts: Vec<String> = made
            .iter()
            .filter(|t| Some(*t) != main)
            .map(|t| &w.tensors[*t])
            .map(|t| format!("{{ name: {}, rows: {}, cols: {}{} }}", word(&t.name), t.rows, t.cols, bytes(t.word)))
            .collect();
        if !parts.is_empty() {
            fields.push(format!("parts: {}", list(&parts)));
        }
        if let Some(block) = w.blocks.get(k.block) {
            fields.push(format!("block: {}", word(&block.name)));
        }
        for (set, field) in [(k.extra_dram_on_each, "extra_dram_on_each: true"), (k.outer_cut, "outer_cut: true")] {
            fields.extend(set.then(|| field.into()));
        }
        if k.splits > 1 {
            fields.push(format!("splits: {}", k.splits));
        }
        if k.lookup {
            fields.push("lookup: true".into());
        }
        if let Some(flop) = k.flop.filter(|_| !k.lookup) {
            fields.push(format!("flop: {flop} FLOP"));
        }
        if k.extra_dram_bytes > 0.0 {
            fields.push(format!("extra_dram: {} B", k.extra_dram_bytes));
        }
        let own: Vec<String> = k
            .collectives
            .iter()
            .map(|c| format!("{{ kind: {}, size: {} B, scope: {}, times: {} }}", c.kind, c.bytes, c.scope, c.times))
            .collect();
        if !own.is_empty() {
            fields.push(format!("collectives: {}", list(&own)));
        }
        if let Some(owner) = k.weight_of.and_then(|o| w.kernels.get(o.kernel)) {
            fields.push(format!("weight_of: {}", word(&owner.name)));
        }
        debug_assert!(k.tiled == if k.phase == Phase::BackwardWeight { Axis::K } else { Axis::N });
        debug_assert!(k.op != Op::Gemm || !k.owns_weight());
        let _ = writeln!(out, "  - {{ {} }}", fields.join(", "));
    }
    out
}
