//! The graph of a Chakra trace for other programs: Graphviz and GraphML.

use super::chakra::{Node, NodeType, Trace};
use std::io::{self, Write};

/// Fill of a node by its kind.
fn colour(kind: NodeType) -> &'static str {
    match kind {
        NodeType::Comp => "#cfe2f3",
        NodeType::Coll => "#f9cb9c",
        NodeType::Send | NodeType::Recv => "#fff2cc",
        NodeType::MemLoad | NodeType::MemStore => "#d9ead3",
        _ => "#eeeeee",
    }
}

/// A first line for a node's label, and what else is of interest.
fn label(node: &Node) -> String {
    let mut lines = vec![format!("{} {}", node.id, node.name), node.kind.name()];
    if let Some(kind) = node.comm_type() {
        lines.push(kind.name().to_owned());
    }
    if let Some(bytes) = node.uint("comm_size") {
        lines.push(format!("{bytes} B"));
    }
    if node.duration_micros > 0 {
        lines.push(format!("{} us", node.duration_micros));
    }
    lines.join("\n")
}

/// Writes Graphviz: data dependencies drawn, control dependencies dashed.
///
/// # Errors
/// Those of the writer underneath.
pub fn dot(trace: &Trace, mut out: impl Write) -> io::Result<()> {
    let quote = |text: &str| {
        let inner: String = text
            .chars()
            .map(|c| match c {
                '"' => "\\\"".to_owned(),
                '\\' => "\\\\".to_owned(),
                '\n' => "\\n".to_owned(),
                c if c.is_control() => " ".to_owned(),
                c => c.to_string(),
            })
            .collect();
        format!("\"{inner}\"")
    };
    writeln!(out, "digraph trace {{\n  node [shape=box, style=filled, fontname=\"sans-serif\"];")?;
    for node in &trace.nodes {
        writeln!(out, "  {} [label={}, fillcolor=\"{}\"];", node.id, quote(&label(node)), colour(node.kind))?;
    }
    for node in &trace.nodes {
        for dep in &node.data_deps {
            writeln!(out, "  {dep} -> {};", node.id)?;
        }
        for dep in &node.ctrl_deps {
            writeln!(out, "  {dep} -> {} [style=dashed];", node.id)?;
        }
    }
    writeln!(out, "}}")
}

/// Writes GraphML, with type, duration and every attribute that is one value.
///
/// # Errors
/// Those of the writer underneath.
pub fn graphml(trace: &Trace, mut out: impl Write) -> io::Result<()> {
    let escape = |text: &str| -> String {
        text.chars()
            .map(|c| match c {
                '&' => "&amp;".to_owned(),
                '<' => "&lt;".to_owned(),
                '>' => "&gt;".to_owned(),
                '"' => "&quot;".to_owned(),
                // XML 1.0 has no place for these, not even escaped.
                c if c.is_control() && !matches!(c, '\n' | '\t') || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                    "\u{fffd}".to_owned()
                }
                c => c.to_string(),
            })
            .collect()
    };
    let mut names: Vec<&str> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for attr in trace.nodes.iter().flat_map(|n| &n.attrs) {
        if attr.value.as_ref().and_then(|v| v.text()).is_some() && seen.insert(&*attr.name) {
            names.push(&attr.name);
        }
    }
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(out, "<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">")?;
    for (key, kind) in [("name", "string"), ("type", "string"), ("start_micros", "long"), ("duration_micros", "long")] {
        writeln!(out, "  <key id=\"{key}\" for=\"node\" attr.name=\"{key}\" attr.type=\"{kind}\"/>")?;
    }
    for (i, name) in names.iter().enumerate() {
        writeln!(out, "  <key id=\"a{i}\" for=\"node\" attr.name=\"{}\" attr.type=\"string\"/>", escape(name))?;
    }
    writeln!(out, "  <key id=\"dep\" for=\"edge\" attr.name=\"dependency\" attr.type=\"string\"/>")?;
    writeln!(out, "  <graph id=\"trace\" edgedefault=\"directed\">")?;
    let places: std::collections::HashMap<&str, usize> = names.iter().enumerate().map(|(i, n)| (*n, i)).collect();
    for node in &trace.nodes {
        writeln!(out, "    <node id=\"n{}\">", node.id)?;
        writeln!(out, "      <data key=\"name\">{}</data>", escape(&node.name))?;
        writeln!(out, "      <data key=\"type\">{}</data>", node.kind.name())?;
        writeln!(out, "      <data key=\"start_micros\">{}</data>", node.start_micros)?;
        writeln!(out, "      <data key=\"duration_micros\">{}</data>", node.duration_micros)?;
        for attr in &node.attrs {
            let text = attr.value.as_ref().and_then(|v| v.text());
            if let (Some(text), Some(i)) = (text, places.get(&*attr.name)) {
                writeln!(out, "      <data key=\"a{i}\">{}</data>", escape(&text))?;
            }
        }
        writeln!(out, "    </node>")?;
    }
    for node in &trace.nodes {
        for (kind, deps) in [("data", &node.data_deps), ("control", &node.ctrl_deps)] {
            for dep in deps {
                writeln!(
                    out,
                    "    <edge source=\"n{dep}\" target=\"n{}\"><data key=\"dep\">{kind}</data></edge>",
                    node.id
                )?;
            }
        }
    }
    writeln!(out, "  </graph>\n</graphml>")
}
