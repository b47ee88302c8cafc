//! A [`Configuration`] as canonical XML: one order of attributes, one indentation (tabs in the runtime's form, four blanks in `.xcf`).

use super::{Configuration, Form};
use std::fmt::Write as _;

/// The text of a file; the older form is written as `.xcf`.
///
/// # Errors
/// A name with characters that XML cannot hold.
pub fn write(configuration: &Configuration) -> Result<String, String> {
    let xcf = configuration.form != Form::Xml;
    let mut out = Writer {
        text: "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".into(),
        tab: if xcf { "    " } else { "\t" },
        fault: None,
    };
    out.open(0, "configuration", &[]);
    if xcf {
        out.empty(1, "network", &[("id", Some(configuration.network.clone().unwrap_or_default()))]);
    }
    out.open(1, "partitioning", &[]);
    for p in &configuration.partitions {
        let mut attributes = vec![("id", Some(p.id.to_string()))];
        if xcf {
            attributes.push(("pe", p.pe.clone()));
        }
        attributes.push(("scheduling", p.scheduling.clone()));
        if xcf {
            attributes.push(("code-generator", p.generator.clone()));
            attributes.push(("host", p.host.map(|h| h.to_string())));
        }
        out.open(2, "partition", &attributes);
        for i in &p.instances {
            out.empty(
                3,
                "instance",
                &[("id", Some(i.id.clone())), ("complexity", i.complexity.map(|c| c.to_string()))],
            );
        }
        out.close(2, "partition");
    }
    out.close(1, "partitioning");
    if xcf {
        out.open(1, "code-generators", &[]);
        for g in &configuration.generators {
            let attributes = [("id", Some(g.id.clone())), ("platform", Some(g.platform.clone()))];
            out.with_parameters("code-generator", &attributes, &g.parameters);
        }
        out.close(1, "code-generators");
        if !configuration.media.is_empty() {
            out.open(1, "media", &[]);
            for m in &configuration.media {
                let attributes: Vec<(&str, Option<String>)> =
                    m.attributes.iter().map(|(k, v)| (k.as_str(), Some(v.clone()))).collect();
                out.with_parameters(&m.kind, &attributes, &m.parameters);
            }
            out.close(1, "media");
        }
    }
    out.open(1, "connections", &[]);
    for c in &configuration.connections {
        let number = |n: Option<u64>| n.map(|n| n.to_string());
        let mut attributes = vec![
            ("source", Some(c.source.0.clone())),
            ("source-port", Some(c.source.1.clone())),
            ("target", Some(c.target.0.clone())),
            ("target-port", Some(c.target.1.clone())),
            ("size", number(c.size)),
            ("token-size", number(c.token_size)),
            ("bandwidth", number(c.bandwidth)),
        ];
        if xcf {
            attributes.push(("medium", c.medium.clone()));
        }
        out.empty(2, if xcf { "connection" } else { "fifo-connection" }, &attributes);
    }
    out.close(1, "connections");
    out.close(0, "configuration");
    out.fault.map_or(Ok(out.text), Err)
}

struct Writer {
    text: String,
    tab: &'static str,
    fault: Option<String>,
}

impl Writer {
    fn line(&mut self, depth: usize, name: &str, attributes: &[(&str, Option<String>)], end: &str) {
        for _ in 0..depth {
            self.text.push_str(self.tab);
        }
        let _ = write!(self.text, "<{name}");
        for (key, value) in attributes {
            if let Some(value) = value {
                let _ = write!(self.text, " {key}=\"");
                self.escaped(value);
                self.text.push('"');
            }
        }
        self.text.push_str(end);
        self.text.push('\n');
    }

    fn open(&mut self, depth: usize, name: &str, attributes: &[(&str, Option<String>)]) {
        self.line(depth, name, attributes, ">");
    }

    fn empty(&mut self, depth: usize, name: &str, attributes: &[(&str, Option<String>)]) {
        self.line(depth, name, attributes, "/>");
    }

    fn close(&mut self, depth: usize, name: &str) {
        for _ in 0..depth {
            self.text.push_str(self.tab);
        }
        let _ = writeln!(self.text, "</{name}>");
    }

    fn with_parameters(&mut self, name: &str, attributes: &[(&str, Option<String>)], parameters: &[(String, String)]) {
        if parameters.is_empty() {
            return self.empty(2, name, attributes);
        }
        self.open(2, name, attributes);
        for (key, value) in parameters {
            self.empty(3, "parameter", &[("key", Some(key.clone())), ("value", Some(value.clone()))]);
        }
        self.close(2, name);
    }

    fn escaped(&mut self, value: &str) {
        for c in value.chars() {
            match c {
                '&' => self.text.push_str("&amp;"),
                '<' => self.text.push_str("&lt;"),
                '>' => self.text.push_str("&gt;"),
                '"' => self.text.push_str("&quot;"),
                // A reader turns these into blanks otherwise.
                '\t' | '\n' | '\r' => {
                    let _ = write!(self.text, "&#{};", u32::from(c));
                }
                '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                    let name = value.escape_debug();
                    self.fault.get_or_insert_with(|| {
                        format!("the name \"{name}\" holds a character that XML cannot; rename it")
                    });
                }
                c => self.text.push(c),
            }
        }
    }
}
