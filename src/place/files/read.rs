//! XML into a [`Configuration`], with every fault at its line and column.

use super::{Configuration, Connection, Fault, Faults, Form, Generator, Instance, Medium, Partition};
use crate::spec::nearest::nearest;
use roxmltree::{Document, Node, ParsingOptions};
use std::collections::HashMap;

/// Largest file read.
const MOST_BYTES: usize = 64 << 20;
/// Most elements, texts and comments.
const MOST_NODES: u32 = 4_000_000;
/// Most faults told of one file.
const MOST_FAULTS: usize = 100;

/// Reads a file.
///
/// # Errors
/// All [`Faults`]; a file that is not XML has one.
pub fn read(file: &str, bytes: &[u8]) -> Result<Configuration, Faults> {
    let whole =
        |at, message: String| Faults { file: file.into(), list: vec![Fault { at, field: String::new(), message }] };
    if bytes.len() > MOST_BYTES {
        return Err(whole(None, format!("{} bytes; at most {MOST_BYTES} are read", bytes.len())));
    }
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let before = &bytes[..e.valid_up_to()];
        let line = 1 + before.iter().filter(|b| **b == b'\n').count() as u32;
        let column = 1 + before.iter().rev().take_while(|b| **b != b'\n').count() as u32;
        whole(Some((line, column)), "not UTF-8; write the file in UTF-8".into())
    })?;
    let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|e| match e {
        roxmltree::Error::DtdDetected => {
            let at = text.find("<!DOCTYPE").map(|i| position(text, i));
            whole(at, "a document type; take it out: entities are not expanded".into())
        }
        roxmltree::Error::NodesLimitReached => whole(None, format!("more than {MOST_NODES} elements and texts")),
        // These know no place: the file ends too early.
        roxmltree::Error::NoRootNode | roxmltree::Error::UnclosedRootNode | roxmltree::Error::UnexpectedEndOfStream => {
            whole(Some(position(text, text.len())), "the file ends here, before it is complete".into())
        }
        other => {
            // The library writes "at LINE:COLUMN" at the end, which stands in front here.
            let text = other.to_string();
            let reason = text.rsplit_once(" at ").map_or(text.as_str(), |(reason, _)| reason);
            whole(Some((other.pos().row, other.pos().col)), format!("not valid XML: {reason}"))
        }
    })?;
    let mut reader = Reader { document: &document, faults: Vec::new(), found: 0, form: Form::Xml };
    let configuration = reader.configuration(document.root_element());
    let (mut faults, found) = (reader.faults, reader.found);
    if faults.is_empty() {
        return Ok(configuration);
    }
    faults.sort_by_key(|f| f.at);
    if found > MOST_FAULTS {
        let message = format!("{} more faults are not told", found - MOST_FAULTS);
        faults.push(Fault { at: None, field: String::new(), message });
    }
    Err(Faults { file: file.into(), list: faults })
}

fn position(text: &str, at: usize) -> (u32, u32) {
    let before = text.get(..at).unwrap_or(text);
    let line = 1 + before.matches('\n').count() as u32;
    let column = 1 + before.chars().rev().take_while(|c| *c != '\n').count() as u32;
    (line, column)
}

struct Reader<'d, 't> {
    document: &'d Document<'t>,
    faults: Vec<Fault>,
    found: usize,
    form: Form,
}

impl<'d, 't> Reader<'d, 't> {
    fn fault(&mut self, offset: usize, field: String, message: String) {
        self.found += 1;
        if self.found <= MOST_FAULTS {
            let at = self.document.text_pos_at(offset);
            self.faults.push(Fault { at: Some((at.row, at.col)), field, message });
        }
    }

    /// The line of an offset. It takes a walk through the text, so it is asked for faults alone.
    fn line(&self, offset: usize) -> u32 {
        self.document.text_pos_at(offset).row
    }

    fn fault_of(&mut self, node: Node<'d, 't>, message: String) {
        self.fault(node.range().start, path(node), message);
    }

    /// The elements within a node, by their names in small letters; those that are not `known` are faults, as is any text.
    fn children(&mut self, node: Node<'d, 't>, known: &[&str]) -> Vec<(String, Node<'d, 't>)> {
        let mut list = Vec::new();
        for child in node.children() {
            if child.is_text() && child.text().is_some_and(|t| !t.trim().is_empty()) {
                let found: String = child.text().unwrap_or("").trim().chars().take(40).collect();
                self.fault_of(child, format!("expected elements, found the text {found:?}"));
            }
            if !child.is_element() {
                continue;
            }
            let name = child.tag_name().name();
            let small = if self.form == Form::Capital { name.to_lowercase() } else { name.to_string() };
            if known.contains(&small.as_str()) {
                list.push((small, child));
            } else {
                let remedy = remedy(&small, known);
                self.fault_of(child, format!("unknown element; {remedy}"));
            }
        }
        list
    }

    /// Refuses attributes that are not `known`. Those of other name spaces (schema locations) are passed over.
    fn attributes(&mut self, node: Node<'d, 't>, known: &[&str]) {
        for a in node.attributes().filter(|a| a.namespace().is_none() && !known.contains(&a.name())) {
            let remedy = remedy(a.name(), known);
            self.fault(a.range().start, format!("{}@{}", path(node), a.name()), format!("unknown attribute; {remedy}"));
        }
    }

    fn text(&mut self, node: Node<'d, 't>, name: &str) -> Option<String> {
        node.attribute(name).map(str::to_string)
    }

    fn needed(&mut self, node: Node<'d, 't>, names: &[&str], what: &str) -> String {
        match names.iter().find_map(|name| node.attribute(*name)) {
            Some(text) if !text.trim().is_empty() => text.to_string(),
            found => {
                let is = if found.is_some() { "empty" } else { "missing" };
                self.fault(
                    node.range().start,
                    format!("{}@{}", path(node), names[0]),
                    format!("{is}; expected {what}"),
                );
                String::new()
            }
        }
    }

    fn number(&mut self, node: Node<'d, 't>, name: &str, least: u64) -> Option<u64> {
        let attribute = node.attributes().find(|a| a.name() == name && a.namespace().is_none())?;
        match attribute.value().parse::<u64>() {
            Ok(value) if (least..=1 << 53).contains(&value) => Some(value),
            _ => {
                let found: String = attribute.value().chars().take(40).collect();
                let message = format!("expected a whole number from {least} to 2^53, found {found:?}");
                self.fault(attribute.range().start, format!("{}@{name}", path(node)), message);
                None
            }
        }
    }

    fn flag(&mut self, node: Node<'d, 't>, name: &str) -> Option<bool> {
        let attribute = node.attributes().find(|a| a.name() == name && a.namespace().is_none())?;
        match attribute.value() {
            "true" => Some(true),
            "false" => Some(false),
            other => {
                let message = format!("expected true or false, found {other:?}");
                self.fault(attribute.range().start, format!("{}@{name}", path(node)), message);
                None
            }
        }
    }

    fn configuration(&mut self, root: Node<'d, 't>) -> Configuration {
        let mut out = Configuration {
            form: Form::Xml,
            network: None,
            partitions: Vec::new(),
            generators: Vec::new(),
            media: Vec::new(),
            connections: Vec::new(),
        };
        let name = root.tag_name().name();
        self.form = match name {
            "Configuration" => Form::Capital,
            "configuration" => Form::Xml,
            _ => {
                self.fault_of(root, format!("expected the element configuration, found {name}"));
                return out;
            }
        };
        if self.form == Form::Xml
            && root.children().any(|c| matches!(c.tag_name().name(), "network" | "code-generators"))
        {
            self.form = Form::Xcf;
        }
        out.form = self.form;
        self.attributes(root, if self.form == Form::Capital { &["name", "version"] } else { &[] });
        if self.form == Form::Capital {
            out.network = self.text(root, "name");
        }
        let known: &[&str] = match self.form {
            Form::Xml => &["partitioning", "connections"],
            Form::Xcf => &["network", "partitioning", "code-generators", "media", "connections"],
            // The older form has its connections at the top, too.
            Form::Capital => &["partitioning", "connections", "connection", "fifo-connection", "backends", "media"],
        };
        let mut seen: HashMap<String, ()> = HashMap::new();
        for (name, node) in self.children(root, known) {
            if !matches!(name.as_str(), "connection" | "fifo-connection") && seen.insert(name.clone(), ()).is_some() {
                self.fault_of(node, format!("a second element {name}; one is due"));
            }
            match name.as_str() {
                "network" => {
                    self.attributes(node, &["id"]);
                    out.network = Some(self.needed(node, &["id"], "the name of the network"));
                }
                "partitioning" => self.partitioning(node, &mut out),
                "code-generators" => self.generators(node, &mut out),
                "media" if self.form == Form::Xcf => self.media(node, &mut out),
                "connections" => {
                    for (_, node) in self.children(node, &["connection", "fifo-connection"]) {
                        self.connection(node, &mut out);
                    }
                }
                "connection" | "fifo-connection" => self.connection(node, &mut out),
                // Backends and media of the older form say nothing of a placement.
                _ => {}
            }
        }
        if !seen.contains_key("partitioning") {
            self.fault_of(root, "no element partitioning; it says which actor lies on which core".into());
        }
        self.names(root, &out);
        out
    }

    fn partitioning(&mut self, node: Node<'d, 't>, out: &mut Configuration) {
        let mut ids: HashMap<u64, usize> = HashMap::new();
        let mut actors: HashMap<String, usize> = HashMap::new();
        for (_, partition) in self.children(node, &["partition"]) {
            let known: &[&str] = match self.form {
                Form::Xml => &["id", "scheduling"],
                Form::Xcf => &["id", "pe", "scheduling", "code-generator", "host"],
                Form::Capital => &["id", "pe", "scheduling", "backend", "backend-id", "host"],
            };
            self.attributes(partition, known);
            self.needed(partition, &["id"], "the number of the core");
            let id = self.number(partition, "id", 0);
            if let Some(id) = id
                && let Some(first) = ids.insert(id, partition.range().start)
            {
                let first = self.line(first);
                self.fault_of(
                    partition,
                    format!("a second partition {id} (first on line {first}); give each core one"),
                );
            }
            let mut instances = Vec::new();
            let inner: &[&str] = if self.form == Form::Capital { &["instance", "memory"] } else { &["instance"] };
            for (name, instance) in self.children(partition, inner) {
                if name == "memory" {
                    continue;
                }
                self.attributes(instance, &["id", "complexity"]);
                let id = self.needed(instance, &["id"], "the name of the actor");
                if !id.is_empty()
                    && let Some(first) = actors.insert(id.clone(), instance.range().start)
                {
                    let first = self.line(first);
                    let message = format!("the actor {id:?} stands twice (first on line {first}); place it once");
                    self.fault_of(instance, message);
                }
                let complexity = self.number(instance, "complexity", 0);
                instances.push(Instance { id, complexity });
            }
            out.partitions.push(Partition {
                id: id.unwrap_or(0),
                pe: self.text(partition, "pe"),
                scheduling: self.text(partition, "scheduling"),
                generator: self.text(partition, "code-generator"),
                host: self.flag(partition, "host"),
                instances,
            });
        }
    }

    fn parameters(&mut self, node: Node<'d, 't>) -> Vec<(String, String)> {
        let mut list = Vec::new();
        for (_, parameter) in self.children(node, &["parameter"]) {
            self.attributes(parameter, &["key", "value"]);
            let key = self.needed(parameter, &["key"], "a key");
            list.push((key, self.text(parameter, "value").unwrap_or_default()));
        }
        list
    }

    fn generators(&mut self, node: Node<'d, 't>, out: &mut Configuration) {
        for (_, generator) in self.children(node, &["code-generator"]) {
            self.attributes(generator, &["id", "platform"]);
            let id = self.needed(generator, &["id"], "an id");
            let platform = self.needed(generator, &["platform"], "a platform such as multicore");
            let parameters = self.parameters(generator);
            out.generators.push(Generator { id, platform, parameters });
        }
    }

    fn media(&mut self, node: Node<'d, 't>, out: &mut Configuration) {
        for (kind, medium) in self.children(node, &["interface", "memory"]) {
            let known = ["id", "medium", "serialization", "external", "size", "shared", "reserve", "start-address"];
            self.attributes(medium, &known);
            let attributes = medium.attributes().filter(|a| a.namespace().is_none());
            let attributes = attributes.map(|a| (a.name().to_string(), a.value().to_string())).collect();
            let parameters = self.parameters(medium);
            out.media.push(Medium { kind, attributes, parameters });
        }
    }

    fn connection(&mut self, node: Node<'d, 't>, out: &mut Configuration) {
        // Connections of variables to memories say nothing of FIFOs.
        if self.form == Form::Capital && node.has_attribute("instance") {
            return;
        }
        let new = ["source", "source-port", "target", "target-port"];
        let old = ["src", "src-port", "dst", "dst-port"];
        let mut known = new.to_vec();
        known.extend(["size", "token-size", "bandwidth"]);
        if self.form != Form::Xml {
            known.extend(old);
            known.extend(["medium", "medium-id"]);
        }
        self.attributes(node, &known);
        let whats = ["the actor that writes", "its port", "the actor that reads", "its port"];
        let mut end = |i: usize| self.needed(node, &[new[i], old[i]], whats[i]);
        let (source, target) = ((end(0), end(1)), (end(2), end(3)));
        let (size, token_size) = (self.number(node, "size", 1), self.number(node, "token-size", 1));
        let bandwidth = self.number(node, "bandwidth", 0);
        let medium = self.text(node, "medium").or_else(|| self.text(node, "medium-id"));
        out.connections.push(Connection { source, target, size, token_size, bandwidth, medium });
    }

    /// Connections name actors that are placed.
    fn names(&mut self, root: Node<'d, 't>, out: &Configuration) {
        let actors: Vec<&str> = out.partitions.iter().flat_map(|p| &p.instances).map(|i| i.id.as_str()).collect();
        let set: std::collections::HashSet<&str> = actors.iter().copied().collect();
        if set.is_empty() || !self.faults.is_empty() {
            return;
        }
        let nodes = root.descendants().filter(|n| n.is_element());
        let nodes: Vec<Node> = nodes
            .filter(|n| matches!(n.tag_name().name().to_lowercase().as_str(), "connection" | "fifo-connection"))
            .filter(|n| !n.has_attribute("instance"))
            .collect();
        for (node, connection) in nodes.into_iter().zip(&out.connections) {
            for end in [&connection.source.0, &connection.target.0] {
                if !set.contains(end.as_str()) {
                    let near = nearest(end, &actors).map(|near| format!("; did you mean {near:?}?"));
                    let near = near.unwrap_or_else(|| "; place it in a partition, or take the connection out".into());
                    self.fault_of(node, format!("no partition holds the actor {end:?}{near}"));
                }
            }
        }
    }
}

fn remedy(word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(near) => format!("did you mean {near:?}?"),
        None if known.is_empty() => "none is due here".into(),
        None => format!("known here: {}", known.join(", ")),
    }
}

/// Names from the top; of a deep tree the last few.
fn path(node: Node) -> String {
    let mut names: Vec<&str> =
        node.ancestors().filter(|n| n.is_element()).take(6).map(|n| n.tag_name().name()).collect();
    names.reverse();
    names.join("/")
}
