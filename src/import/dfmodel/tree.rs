//! A file of DFModel as a tree of fields that know where they stood: what the text reader and the binary reader both
//! give. Every field remembers whether anybody looked at it, so that what an import leaves out can be reported.

use prost_reflect::{DynamicMessage, FieldDescriptor, MessageDescriptor};
use std::cell::Cell;
use std::fmt;

/// Where something stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In a text, both counted from one.
    Line {
        /// Line.
        line: usize,
        /// Column, in characters.
        column: usize,
    },
    /// In a binary file: bytes before it.
    Byte(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { line, .. } => write!(f, "line {line}"),
            Self::Byte(offset) => write!(f, "byte {offset}"),
        }
    }
}

/// One thing wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Option<Place>,
    /// The field, dotted from the top; empty for the file as a whole.
    pub field: String,
    /// What was found and what would fit.
    pub message: String,
    /// Whether it is a field that the schema does not have: such a field can be skipped.
    pub unknown: bool,
    /// How much of the file it leaves unread, in fields: what tells the schema that fits best.
    pub weight: usize,
}

impl Fault {
    /// A fault of a field.
    pub fn at(place: Place, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: Some(place), field: field.into(), message: message.into(), unknown: false, weight: 1 }
    }

    /// A field that the schema does not have, with `weight` fields in it.
    pub fn unknown(place: Place, field: impl Into<String>, message: impl Into<String>, weight: usize) -> Self {
        Self { unknown: true, weight, ..Self::at(place, field, message) }
    }

    /// A fault of the file as a whole.
    pub fn whole(message: impl Into<String>) -> Self {
        Self { place: None, field: String::new(), message: message.into(), unknown: false, weight: 1 }
    }
}

/// What a line about a field has in common with others of its kind: field and message without names in brackets or quotes, and
/// without numbers.
pub fn kind(field: &str, message: &str) -> String {
    let mut out = String::new();
    let mut until = None;
    for c in field.chars().chain("\n".chars()).chain(message.chars()) {
        match (until, c) {
            (Some(end), c) if c == end => until = None,
            (Some(_), _) => {}
            (None, '[') => until = Some(']'),
            (None, '"') => until = Some('"'),
            (None, c) if c.is_ascii_digit() => {
                if !out.ends_with('#') {
                    out.push('#');
                }
            }
            (None, c) => out.push(c),
        }
    }
    out
}

/// Everything wrong with a file, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// The file, as the user named it.
    pub file: String,
    /// What is wrong with it.
    pub list: Vec<Fault>,
}

impl std::error::Error for Faults {}

impl Faults {
    /// The faults, those of one kind (the same field of a kind of message, the same words but for names and numbers) behind their first: how
    /// many more there are, and where.
    fn grouped(&self) -> Vec<(&Fault, Vec<Place>)> {
        let mut groups: Vec<(String, &Fault, Vec<Place>)> = Vec::new();
        for fault in &self.list {
            let kind = kind(&fault.field, &fault.message);
            match groups.iter_mut().find(|(known, first, _)| *known == kind && first.place.is_some()) {
                Some((_, _, more)) => more.extend(fault.place),
                None => groups.push((kind, fault, Vec::new())),
            }
        }
        groups.into_iter().map(|(_, first, more)| (first, more)).collect()
    }
}

/// Places that are named one by one.
const MOST_PLACES: usize = 4;

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (fault, more)) in self.grouped().into_iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.file)?;
            match fault.place {
                Some(Place::Line { line, column }) => write!(f, ":{line}:{column}")?,
                Some(Place::Byte(offset)) => write!(f, ": byte {offset}")?,
                None => {}
            }
            if !fault.field.is_empty() {
                write!(f, ": {}", plain(&fault.field))?;
            }
            write!(f, ": {}", plain(&fault.message))?;
            if !more.is_empty() {
                let named: Vec<String> = more.iter().take(MOST_PLACES).map(ToString::to_string).collect();
                let rest = if more.len() > MOST_PLACES { ", ..." } else { "" };
                write!(f, " (and {} more like it: {}{rest})", more.len(), named.join(", "))?;
            }
        }
        Ok(())
    }
}

/// A text of the file in our own: on one line, without characters that steer a terminal or end a comment.
pub fn plain(text: &str) -> String {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
    text.chars().map(|c| if breaks(c) { '\u{fffd}' } else { c }).collect()
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A finite number, as a 32-bit field holds it.
    Float(f32),
    /// A text.
    Text(String),
    /// A word of an enum, by its number.
    Enum(i32),
    /// A message.
    Message(Message),
}

/// A field that stands in the file.
#[derive(Debug, Clone)]
pub struct Field {
    /// What the schema says of it.
    pub desc: FieldDescriptor,
    /// Where it stood.
    pub place: Place,
    /// Its value.
    pub value: Value,
    seen: Cell<bool>,
}

impl PartialEq for Field {
    /// The same field with the same value, wherever it stood.
    fn eq(&self, other: &Self) -> bool {
        self.desc == other.desc && self.value == other.value
    }
}

impl Field {
    /// A field that nobody has looked at.
    pub fn new(desc: FieldDescriptor, place: Place, value: Value) -> Self {
        Self { desc, place, value, seen: Cell::new(false) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.desc.name()
    }

    /// Marks it as used.
    pub fn mark(&self) {
        self.seen.set(true);
    }

    /// Whether it says something: proto3 takes zero, no and the empty text for a field that is not there.
    pub fn is_set(&self) -> bool {
        match &self.value {
            Value::Int(n) => *n != 0,
            Value::Bool(b) => *b,
            Value::Float(x) => *x != 0.0,
            Value::Text(t) => !t.is_empty(),
            Value::Enum(n) => *n != 0,
            Value::Message(_) => true,
        }
    }

    /// Its value as a person would write it.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::Int(n) => n.to_string(),
            Value::Bool(b) => b.to_string(),
            Value::Float(x) => x.to_string(),
            Value::Text(t) => {
                let short: String = t.chars().take(60).collect();
                format!("{short:?}")
            }
            Value::Enum(n) => self.word(*n),
            Value::Message(_) => "{...}".into(),
        }
    }

    /// The word of an enum's number, or the number.
    fn word(&self, number: i32) -> String {
        let kind = self.desc.kind();
        let word = kind.as_enum().and_then(|e| e.get_value(number).map(|v| v.name().to_string()));
        word.unwrap_or_else(|| number.to_string())
    }
}

/// A message: its fields in file order.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// What the schema says of it.
    pub desc: MessageDescriptor,
    /// Its fields.
    pub fields: Vec<Field>,
}

impl Message {
    /// The field called `name`, now used; none where the file or this generation does not have it.
    pub fn get(&self, name: &str) -> Option<&Field> {
        let found = self.fields.iter().find(|f| f.name() == name)?;
        found.mark();
        Some(found)
    }

    /// A whole number, if it stands there and is not zero.
    pub fn int(&self, name: &str) -> Option<(i64, Place)> {
        match self.get(name) {
            Some(Field { value: Value::Int(n), place, .. }) if *n != 0 => Some((*n, *place)),
            _ => None,
        }
    }

    /// A number, if it stands there and is not zero.
    pub fn float(&self, name: &str) -> Option<(f32, Place)> {
        match self.get(name) {
            Some(Field { value: Value::Float(x), place, .. }) if *x != 0.0 => Some((*x, *place)),
            _ => None,
        }
    }

    /// A text that is not empty.
    pub fn text(&self, name: &str) -> Option<(&str, Place)> {
        match self.get(name) {
            Some(Field { value: Value::Text(t), place, .. }) if !t.is_empty() => Some((t, *place)),
            _ => None,
        }
    }

    /// Whether a truth value says yes.
    pub fn yes(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Field { value: Value::Bool(true), .. }))
    }

    /// The word of an enum, unless it is its zero.
    pub fn word(&self, name: &str) -> Option<(String, Place)> {
        match self.get(name) {
            Some(field) => match &field.value {
                Value::Enum(n) if *n != 0 => Some((field.word(*n), field.place)),
                _ => None,
            },
            None => None,
        }
    }

    /// A message.
    pub fn message(&self, name: &str) -> Option<(&Message, Place)> {
        match self.get(name) {
            Some(Field { value: Value::Message(m), place, .. }) => Some((m, *place)),
            _ => None,
        }
    }

    /// Every message of a repeated field.
    pub fn messages<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Message, Place)> {
        self.fields.iter().filter(move |f| f.name() == name).filter_map(|f| match &f.value {
            Value::Message(m) => {
                f.mark();
                Some((m, f.place))
            }
            _ => None,
        })
    }

    /// Of the fields of a `oneof`, the one that stands there.
    pub fn one_of(&self, oneof: &str) -> Option<(&str, &Message, Place)> {
        self.fields.iter().find_map(|f| match &f.value {
            Value::Message(m) if f.desc.containing_oneof().is_some_and(|o| o.name() == oneof) => {
                f.mark();
                Some((f.name(), m, f.place))
            }
            _ => None,
        })
    }

    /// Fields that say something and that nobody looked at, each with its path, in file order.
    pub fn unseen(&self) -> Vec<(String, &Field)> {
        let mut out = Vec::new();
        let mut open: Vec<(String, &Message)> = vec![(String::new(), self)];
        while let Some((path, message)) = open.pop() {
            for field in &message.fields {
                let path = if path.is_empty() { field.name().to_string() } else { format!("{path}.{}", field.name()) };
                match &field.value {
                    Value::Message(inner) if !inner.fields.is_empty() => open.push((path, inner)),
                    _ if !field.seen.get() && field.is_set() => out.push((path, field)),
                    _ => {}
                }
            }
        }
        out.sort_by_key(|(_, field)| field.place);
        out
    }

    /// The same as a message of `prost-reflect`, for writing as text or bytes.
    pub fn to_dynamic(&self) -> DynamicMessage {
        use prost_reflect::Value as Dynamic;
        let mut out = DynamicMessage::new(self.desc.clone());
        for field in &self.fields {
            let value = match &field.value {
                Value::Int(n) => Dynamic::I64(*n),
                Value::Bool(b) => Dynamic::Bool(*b),
                Value::Float(x) => Dynamic::F32(*x),
                Value::Text(t) => Dynamic::String(t.clone()),
                Value::Enum(n) => Dynamic::EnumNumber(*n),
                Value::Message(m) => Dynamic::Message(m.to_dynamic()),
            };
            if field.desc.is_list() {
                if let Some(list) = out.get_field_mut(&field.desc).as_list_mut() {
                    list.push(value);
                }
            } else {
                out.set_field(&field.desc, value);
            }
        }
        out
    }
}
