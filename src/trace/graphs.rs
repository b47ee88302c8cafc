//! The graph of a Chakra trace for other programs: Graphviz and GraphML.

use super::Text;
use super::chakra::pass::{Fault, Nodes, Pass};
use super::chakra::{Node, NodeType};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;

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
/// [`Fault`]: a trace that cannot be read, or the writer underneath.
pub fn dot(trace: &impl Pass, mut out: impl Write) -> Result<(), Fault> {
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
    trace.pass(&mut Nodes(|node: &Node| {
        writeln!(out, "  {} [label={}, fillcolor=\"{}\"];", node.id, quote(&label(node)), colour(node.kind))?;
        for dep in &node.data_deps {
            writeln!(out, "  {dep} -> {};", node.id)?;
        }
        for dep in &node.ctrl_deps {
            writeln!(out, "  {dep} -> {} [style=dashed];", node.id)?;
        }
        Ok(())
    }))?;
    Ok(writeln!(out, "}}")?)
}

/// Text that may stand in XML.
fn escape(text: &str) -> Cow<'_, str> {
    // XML 1.0 has no place for most control characters, not even escaped.
    let unfit = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || matches!(c, '\u{fffe}' | '\u{ffff}');
    if !text.contains(|c| matches!(c, '&' | '<' | '>' | '"') || unfit(c)) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if unfit(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out.into()
}

/// Writes GraphML, with type, duration and every attribute that is one value.
///
/// # Errors
/// [`Fault`]: a trace that cannot be read, or the writer underneath.
pub fn graphml(trace: &impl Pass, mut out: impl Write) -> Result<(), Fault> {
    // Attributes are declared before the first node, so that the names are gathered in a pass of their own.
    let mut names: HashMap<Text, usize> = HashMap::new();
    let mut order: Vec<Text> = Vec::new();
    trace.pass(&mut Nodes(|node: &Node| {
        for attr in &node.attrs {
            if !names.contains_key(&attr.name) && attr.value.as_ref().is_some_and(|v| v.text().is_some()) {
                names.insert(attr.name.clone(), order.len());
                order.push(attr.name.clone());
            }
        }
        Ok(())
    }))?;
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(out, "<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">")?;
    for (key, kind) in [("name", "string"), ("type", "string"), ("start_micros", "long"), ("duration_micros", "long")] {
        writeln!(out, "  <key id=\"{key}\" for=\"node\" attr.name=\"{key}\" attr.type=\"{kind}\"/>")?;
    }
    for (i, name) in order.iter().enumerate() {
        writeln!(out, "  <key id=\"a{i}\" for=\"node\" attr.name=\"{}\" attr.type=\"string\"/>", escape(name))?;
    }
    writeln!(out, "  <key id=\"dep\" for=\"edge\" attr.name=\"dependency\" attr.type=\"string\"/>")?;
    writeln!(out, "  <graph id=\"trace\" edgedefault=\"directed\">")?;
    trace.pass(&mut Nodes(|node: &Node| {
        writeln!(out, "    <node id=\"n{}\">", node.id)?;
        writeln!(out, "      <data key=\"name\">{}</data>", escape(&node.name))?;
        writeln!(out, "      <data key=\"type\">{}</data>", node.kind.name())?;
        writeln!(out, "      <data key=\"start_micros\">{}</data>", node.start_micros)?;
        writeln!(out, "      <data key=\"duration_micros\">{}</data>", node.duration_micros)?;
        for attr in &node.attrs {
            let text = attr.value.as_ref().and_then(|v| v.text());
            if let (Some(text), Some(i)) = (text, names.get(&attr.name)) {
                writeln!(out, "      <data key=\"a{i}\">{}</data>", escape(&text))?;
            }
        }
        writeln!(out, "    </node>")?;
        for (kind, deps) in [("data", &node.data_deps), ("control", &node.ctrl_deps)] {
            for dep in deps {
                let target = node.id;
                writeln!(
                    out,
                    "    <edge source=\"n{dep}\" target=\"n{target}\"><data key=\"dep\">{kind}</data></edge>"
                )?;
            }
        }
        Ok(())
    }))?;
    Ok(writeln!(out, "  </graph>\n</graphml>")?)
}
