//! A `config.json` with a memory of where everything stood: fields by their several names, and what is wrong with them.

use crate::spec::{Node, Origin, Problem, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// A configuration under reading: every problem, and every thing that was assumed or left out, is noted.
#[derive(Debug)]
pub struct Config<'n> {
    node: &'n Node,
    /// Values of fields that are left out, as the class of the model has them: a part of a file states what differs alone.
    defaults: Vec<(&'static str, &'static str)>,
    /// What this is a part of.
    outer: Option<&'n Node>,
    /// Names that were asked for, those of one thing together.
    asked: RefCell<BTreeSet<&'static str>>,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// What was assumed or left out: one sentence each.
    pub notes: Vec<String>,
}

/// A value and where it stood.
#[derive(Debug, Clone, PartialEq)]
pub struct Found<T> {
    /// The value.
    pub value: T,
    /// Where it stood.
    pub origin: Origin,
}

/// Largest count read: above it products of counts leave the integers that `f64` holds exactly.
const MAX_COUNT: u64 = 1 << 50;
/// Fields of a whole file that count for a part of it (`text_config`) which does not state them.
const OUTER: [&str; 5] = ["tie_word_embeddings", "torch_dtype", "dtype", "quantization_config", "compression_config"];

/// Whether a field, or the mapping that it is in, counts for a part of its file.
fn counts_within(key: &str) -> bool {
    let mapping = key.split_once('.').map_or(key, |(mapping, _)| mapping);
    OUTER.contains(&mapping)
}

/// The field of a tree, dots leading into mappings, if it has a value.
fn field<'n>(whole: &'n Node, key: &str) -> Option<&'n Node> {
    let node = key.split('.').try_fold(whole, |node, part| node.get(part))?;
    (node.value != Value::Null).then_some(node)
}

/// The whole number that a text is, as `4096` or as `4096.0`, which programs that know no other numbers write.
fn whole_number(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        (number.fract() == 0.0 && (0.0..=MAX_COUNT as f64).contains(&number)).then_some(number as u64)
    })
}

impl<'n> Config<'n> {
    /// Of a tree.
    pub fn new(node: &'n Node) -> Self {
        Self {
            node,
            defaults: Vec::new(),
            outer: None,
            asked: RefCell::default(),
            problems: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Of a part of this.
    pub fn part(&self, node: &'n Node) -> Self {
        Self { outer: Some(self.node), ..Self::new(node) }
    }

    /// From here on fields that are left out have these values of the class.
    pub fn add_defaults(&mut self, defaults: &[(&'static str, &'static str)]) {
        self.defaults.extend_from_slice(defaults);
    }

    /// The place of the whole.
    pub fn origin(&self) -> Origin {
        self.node.origin.clone()
    }

    /// Notes a problem of a field.
    pub fn problem(&mut self, field: &str, origin: &Origin, message: impl Into<String>) {
        let problem = Problem { origin: origin.clone(), field: field.into(), message: message.into() };
        // A field may be asked for twice.
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Notes what was assumed or left out.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        // A size of the class may be asked for twice.
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// The first of several fields that has a value; dots lead into mappings.
    pub fn find(&self, keys: &[&'static str]) -> Option<(&'static str, &'n Node)> {
        self.asked.borrow_mut().extend(keys);
        let own = keys.iter().find_map(|key| field(self.node, key).map(|node| (*key, node)));
        own.or_else(|| {
            let outer = self.outer?;
            let mut counting = keys.iter().filter(|key| counts_within(key));
            counting.find_map(|key| field(outer, key).map(|node| (*key, node)))
        })
    }

    /// Every field that has a value, in the order of the file.
    pub fn fields(&self) -> impl Iterator<Item = (&'n str, &'n Node)> + use<'n> {
        let entries: &[(String, Origin, Node)] = match &self.node.value {
            Value::Map(entries) => entries,
            _ => &[],
        };
        entries.iter().filter(|(_, _, node)| node.value != Value::Null).map(|(key, _, node)| (key.as_str(), node))
    }

    /// Fields that have a value and that nothing asked for, in the order of the file; where only parts of a mapping were asked for, its other
    /// parts, after a dot.
    pub fn unread(&self) -> Vec<String> {
        let asked = self.asked.borrow();
        let within = |key: &str| asked.iter().any(|a| a.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')));
        let mut unread = Vec::new();
        for (key, node) in self.fields().filter(|(key, _)| !asked.contains(key)) {
            match &node.value {
                Value::Map(parts) if within(key) => {
                    let names = parts.iter().filter(|(_, _, part)| part.value != Value::Null);
                    let dotted = names.map(|(part, _, _)| format!("{key}.{part}"));
                    unread.extend(dotted.filter(|name| !asked.contains(name.as_str())));
                }
                _ => unread.push(key.to_string()),
            }
        }
        unread
    }

    /// The text of a scalar.
    pub fn text(&self, keys: &[&'static str]) -> Option<&'n str> {
        match self.find(keys).map(|(_, node)| &node.value) {
            Some(Value::Scalar { text, .. }) => Some(text),
            _ => None,
        }
    }

    /// The count that the class has where the file does not name any of these fields: `null` is a value of its own.
    pub fn of_class(&self, keys: &[&'static str]) -> Option<u64> {
        self.class_value(keys)?.1.parse().ok()
    }

    fn class_value(&self, keys: &[&'static str]) -> Option<(&'static str, &'static str)> {
        let named = keys.iter().any(|key| self.node.get(key).is_some());
        self.defaults.iter().find(|(key, _)| !named && keys.contains(key)).copied()
    }

    fn default_of(&mut self, keys: &[&'static str]) -> Option<&'static str> {
        let (key, value) = self.class_value(keys)?;
        self.note(format!("{key} {value}, which the class has where the file says nothing"));
        Some(value)
    }

    /// A count of at least one, if it is there.
    pub fn count(&mut self, keys: &[&'static str]) -> Option<Found<u64>> {
        let Some((key, node)) = self.find(keys) else {
            let value = self.default_of(keys)?.parse().ok()?;
            return Some(Found { value, origin: self.origin() });
        };
        let parsed = match &node.value {
            Value::Scalar { text, quoted: false } => whole_number(text).filter(|n| (1..=MAX_COUNT).contains(n)),
            _ => None,
        };
        if parsed.is_none() {
            let found = node.describe();
            self.problem(key, &node.origin, format!("expected a whole number of at least 1, found {found}"));
        }
        parsed.map(|value| Found { value, origin: node.origin.clone() })
    }

    /// A count that may also be zero, which is none.
    pub fn count_or_none(&mut self, keys: &[&'static str]) -> Option<Found<u64>> {
        if self.text(keys).and_then(whole_number) == Some(0) { None } else { self.count(keys) }
    }

    /// A count that has to be there.
    pub fn need(&mut self, keys: &[&'static str]) -> Option<Found<u64>> {
        let found = self.count(keys);
        if found.is_none() && self.find(keys).is_none() {
            let (first, rest) = keys.split_first()?;
            let also = if rest.is_empty() { String::new() } else { format!(" (nor {})", rest.join(", ")) };
            let origin = self.origin();
            self.problem(first, &origin, format!("missing{also}; expected a whole number of at least 1"));
        }
        found
    }

    /// A truth; `default` where it is left out.
    pub fn flag(&mut self, keys: &[&'static str], default: bool) -> bool {
        let Some((key, node)) = self.find(keys) else { return default };
        match &node.value {
            Value::Scalar { text, quoted: false } if text == "true" => true,
            Value::Scalar { text, quoted: false } if text == "false" => false,
            _ => {
                let found = node.describe();
                self.problem(key, &node.origin, format!("expected true or false, found {found}"));
                default
            }
        }
    }

    /// A number of at least zero, if it is there.
    pub fn number(&mut self, keys: &[&'static str]) -> Option<f64> {
        let (key, node) = self.find(keys)?;
        let parsed = match &node.value {
            Value::Scalar { text, quoted: false } => text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0),
            _ => None,
        };
        if parsed.is_none() {
            let found = node.describe();
            self.problem(key, &node.origin, format!("expected a number of at least 0, found {found}"));
        }
        parsed
    }
}
