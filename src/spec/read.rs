//! Reading nodes into typed structures, collecting every problem on the way.

use super::kind::FileKind;
use super::nearest::{meant, nearest};
use super::node::{Loader, Node, Origin, Value};
use super::schema::Definitions;
use crate::units::Quantity;
use serde::Serialize;
use serde_json::json;
use std::any::Any;
use std::borrow::Cow;
use std::fmt;

/// One thing wrong with an input: where, which field, what was found and what would fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// File and line.
    pub origin: Origin,
    /// The field, dotted from the top of its file (`memory.bandwidth`); empty for the file as a whole.
    pub field: String,
    /// What was found and what would fit.
    pub message: String,
}

impl std::error::Error for Problem {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.origin.file.is_empty() {
            write!(f, "{}", self.origin.file)?;
            if self.origin.line > 0 {
                write!(f, ":{}", self.origin.line)?;
            }
            f.write_str(": ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// All problems of an input, in file order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

/// The state of one reading: the path to the node at hand and the problems so far.
#[derive(Debug, Default)]
pub struct Reader {
    /// Loads referenced files.
    pub loader: Loader,
    problems: Vec<Problem>,
    path: Vec<Cow<'static, str>>,
    /// A part of the structure at the top that need not be read: its key and its value.
    known: Option<(&'static str, Box<dyn Any>)>,
}

impl Reader {
    /// Reads a whole structure from `node`.
    ///
    /// # Errors
    /// All [`Problems`] found.
    pub fn read<T: FromNode>(node: &Node) -> Result<T, Problems> {
        let mut reader = Self::default();
        let value = T::from_node(node, &mut reader);
        reader.finish_with(value, node)
    }

    /// A reader of a structure whose part `key` was read before from the same node.
    pub fn knowing<T: FromNode>(key: &'static str, part: T) -> Self {
        Self { known: Some((key, Box::new(part))), ..Self::default() }
    }

    /// Ends a reading: the value, or all problems in file order.
    ///
    /// # Errors
    /// All [`Problems`] noted, if any.
    pub fn finish_with<T>(mut self, value: Option<T>, node: &Node) -> Result<T, Problems> {
        match value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => {
                if self.problems.is_empty() {
                    self.problem(node, "cannot be read");
                }
                self.problems.sort_by(|a, b| {
                    (a.origin.file.as_ref(), a.origin.line).cmp(&(b.origin.file.as_ref(), b.origin.line))
                });
                self.problems.dedup();
                Err(Problems(self.problems))
            }
        }
    }

    /// The field at hand, dotted.
    pub fn field(&self) -> String {
        self.path.join(".")
    }

    /// Notes a problem of `node` at the field at hand.
    pub fn problem(&mut self, node: &Node, message: impl Into<String>) {
        self.problems.push(Problem { origin: node.origin.clone(), field: self.field(), message: message.into() });
    }

    /// Notes a problem that is already placed.
    pub fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Reads below `segment`.
    pub fn within<T>(&mut self, segment: impl Into<String>, f: impl FnOnce(&mut Self) -> T) -> T {
        self.below(Cow::Owned(segment.into()), f)
    }

    fn below<T>(&mut self, segment: Cow<'static, str>, f: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(segment);
        let value = f(self);
        self.path.pop();
        value
    }

    /// The entries of a mapping, or a problem.
    pub fn entries<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n [(String, Origin, Node)]> {
        match &node.value {
            Value::Map(entries) => Some(entries),
            _ => {
                self.problem(
                    node,
                    format!("expected {what} (a mapping of keys and values), found {}", node.describe()),
                );
                None
            }
        }
    }

    /// Refuses keys that are not in `known`, naming the nearest. Where the keys are mostly those of another kind of file than
    /// `due`, that alone is said and the reading ends.
    pub fn unknown_keys(&mut self, node: &Node, due: &str, known: &[&str]) -> Option<()> {
        let Value::Map(entries) = &node.value else { return Some(()) };
        if let Some(kind) = another_kind(node, entries, due, known) {
            self.problem(node, kind.instead_of(due));
            return None;
        }
        // A name stands in headings, rows and figures.
        if let Some(name) = node.get("name")
            && matches!(&name.value, Value::Scalar { text, .. } if text.trim().is_empty() || text.contains('\n'))
        {
            self.within("name", |r| r.problem(name, format!("expected a text on one line, found {}", name.describe())));
        }
        for (key, origin, _) in entries {
            if !known.contains(&key.as_str()) {
                let remedy = match nearest(key, known) {
                    _ if key == "<<" => "YAML's merge keys are not read; `from: PATH` takes over a file".into(),
                    Some(near) => format!("did you mean {near:?}?"),
                    None => format!("known keys: {}", known.join(", ")),
                };
                let field = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.field()) };
                self.problems.push(Problem {
                    origin: origin.clone(),
                    field,
                    message: format!("unknown key; {remedy}"),
                });
            }
        }
        Some(())
    }

    /// Reads one field of a mapping; `None` after a noted problem.
    pub fn key<T: FromNode>(&mut self, node: &Node, key: &'static str, default: Option<T>) -> Option<T> {
        if self.path.is_empty()
            && let Some((_, part)) = self.known.take_if(|(known, _)| *known == key)
            && let Ok(part) = part.downcast::<T>()
        {
            return Some(*part);
        }
        match node.get(key) {
            Some(child) if child.value != Value::Null => self.below(Cow::Borrowed(key), |r| T::from_node(child, r)),
            _ => match T::absent().or(default) {
                Some(value) => Some(value),
                None => {
                    self.within(key, |r| r.problem(node, format!("missing; expected {}", T::expected())));
                    None
                }
            },
        }
    }
}

/// The kind of file that `node` is instead of the one that is `due`: where a key tells it, or at least half of its keys are unknown there, of those that
/// not every kind has.
fn another_kind(node: &Node, entries: &[(String, Origin, Node)], due: &str, known: &[&str]) -> Option<FileKind> {
    let own: Vec<&str> =
        entries.iter().map(|(key, _, _)| key.as_str()).filter(|k| !["name", "source"].contains(k)).collect();
    let unknown = own.iter().filter(|key| !known.contains(key)).count();
    let kind = FileKind::of_tree(node).filter(|_| unknown > 0)?;
    if unknown * 2 < own.len() && !kind.is_marked() {
        return None;
    }
    // The structures inside a file have names of their own ("a transformer"): they are no other kind of file.
    (FileKind::due(due) && kind.name() != due).then_some(kind)
}

/// A type that is read from a node and described by a JSON Schema.
pub trait FromNode: Sized + 'static {
    /// Reads the value; on failure notes the problems and gives `None`.
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self>;
    /// The JSON Schema of the notation.
    fn schema(definitions: &mut Definitions) -> serde_json::Value;
    /// What is expected, for messages ("a bandwidth such as \"3.35 TB/s\"").
    fn expected() -> String;
    /// The value of a key that is not there; `None` where the key is required.
    fn absent() -> Option<Self> {
        None
    }
    /// The value as a file would state it, for defaults in schemas and documentation.
    fn written(&self) -> serde_json::Value
    where
        Self: Serialize,
    {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// The text of a scalar; `expected` is asked for the message alone, as most texts are what they should be.
fn text_of<'n>(node: &'n Node, reader: &mut Reader, expected: impl FnOnce() -> String) -> Option<&'n str> {
    match &node.value {
        Value::Scalar { text, .. } => Some(text),
        _ => {
            reader.problem(node, format!("expected {}, found {}", expected(), node.describe()));
            None
        }
    }
}

/// One of several words, which `of` knows; `expected` says which.
pub fn word<T>(
    node: &Node,
    reader: &mut Reader,
    of: fn(&str) -> Option<T>,
    known: &[&str],
    expected: fn() -> String,
) -> Option<T> {
    let text = match &node.value {
        Value::Scalar { text, .. } => text.as_str(),
        _ => "",
    };
    of(text).or_else(|| {
        reader.problem(node, format!("expected {}, found {}{}", expected(), node.describe(), meant(text, known)));
        None
    })
}

impl<Q: Quantity + 'static> FromNode for Q {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = text_of(node, reader, Self::expected)?;
        match Q::parse(text) {
            Ok(value) => Some(value),
            Err(reason) => {
                let (expected, units) = (Self::expected(), reason.units::<Q>());
                reader.problem(node, format!("expected {expected}, found {}: {reason}{units}", node.describe()));
                None
            }
        }
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "string", "description": Self::expected(), "examples": [Q::EXAMPLE] })
    }
    fn expected() -> String {
        format!("{} such as {:?}", Q::NAME, Q::EXAMPLE)
    }
    fn written(&self) -> serde_json::Value {
        self.shortest().into()
    }
}

/// A text without control characters: they would reach a terminal as commands.
fn harmless<'t>(text: &'t str, node: &Node, reader: &mut Reader) -> Option<&'t str> {
    let Some(control) = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t')) else { return Some(text) };
    let message = format!("expected a text, found the control character U+{:04X} in it", u32::from(control));
    reader.problem(node, message);
    None
}

/// A name: a non-empty text without line breaks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(pub String);

impl FromNode for Name {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = text_of(node, reader, Self::expected)?;
        if text.trim().is_empty() || text.contains('\n') {
            reader.problem(node, format!("expected a text on one line, found {}", node.describe()));
            return None;
        }
        harmless(text, node, reader).map(|text| Self(text.to_string()))
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "string", "minLength": 1 })
    }
    fn expected() -> String {
        "a text".into()
    }
}

impl FromNode for String {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = text_of(node, reader, Self::expected)?;
        harmless(text, node, reader).map(str::to_string)
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "string" })
    }
    fn expected() -> String {
        "a text".into()
    }
}

impl FromNode for bool {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.value {
            Value::Scalar { text, .. } if text == "true" => Some(true),
            Value::Scalar { text, .. } if text == "false" => Some(false),
            _ => {
                reader.problem(node, format!("expected true or false, found {}", node.describe()));
                None
            }
        }
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "boolean" })
    }
    fn expected() -> String {
        "true or false".into()
    }
}

/// Largest count read: above it products of counts leave the integers that `f64` holds exactly.
const MAX_COUNT: u64 = 1 << 50;

/// A count of at least one.
impl FromNode for u64 {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = text_of(node, reader, Self::expected)?;
        match text.replace('_', "").parse::<u64>() {
            Ok(value) if (1..=MAX_COUNT).contains(&value) => Some(value),
            _ => {
                let digits = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '_');
                let most = if digits && text.trim_matches(['0', '_']).len() > 15 {
                    format!(" and at most {MAX_COUNT}")
                } else {
                    String::new()
                };
                reader.problem(node, format!("expected {}{most}, found {}", Self::expected(), node.describe()));
                None
            }
        }
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "integer", "minimum": 1 })
    }
    fn expected() -> String {
        "a whole number of at least 1".into()
    }
}

/// A fraction above 0 and at most 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Fraction(pub f64);

impl FromNode for Fraction {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = text_of(node, reader, Self::expected)?;
        match text.parse::<f64>() {
            Ok(value) if value > 0.0 && value <= 1.0 => Some(Self(value)),
            _ => {
                reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
                None
            }
        }
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 })
    }
    fn expected() -> String {
        "a fraction above 0 and at most 1, such as 0.9".into()
    }
}

/// A share from 0 to 1, both included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Share(pub f64);

impl FromNode for Share {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = text_of(node, reader, Self::expected)?;
        match text.parse::<f64>() {
            Ok(value) if (0.0..=1.0).contains(&value) => Some(Self(value)),
            _ => {
                reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
                None
            }
        }
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "number", "minimum": 0, "maximum": 1 })
    }
    fn expected() -> String {
        "a share from 0 to 1, such as 0.2".into()
    }
}

/// A plain number, finite and at least zero, for result fields without a unit.
impl FromNode for f64 {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = text_of(node, reader, Self::expected)?;
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => Some(value),
            _ => {
                reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
                None
            }
        }
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "number", "minimum": 0 })
    }
    fn expected() -> String {
        "a number of at least 0".into()
    }
}

impl<T: FromNode> FromNode for Option<T> {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        T::from_node(node, reader).map(Some)
    }
    fn schema(definitions: &mut Definitions) -> serde_json::Value {
        T::schema(definitions)
    }
    fn expected() -> String {
        T::expected()
    }
    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: FromNode> FromNode for Vec<T> {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let Value::List(items) = &node.value else {
            reader.problem(node, format!("expected a list, found {}", node.describe()));
            return None;
        };
        let read: Vec<Option<T>> = items
            .iter()
            .enumerate()
            .map(|(i, item)| reader.within(format!("[{i}]"), |r| T::from_node(item, r)))
            .collect();
        read.into_iter().collect()
    }
    fn schema(definitions: &mut Definitions) -> serde_json::Value {
        json!({ "type": "array", "items": T::schema(definitions) })
    }
    fn expected() -> String {
        format!("a list, each entry {}", T::expected())
    }
}

/// A mapping from names to values, in file order.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Table<T>(pub Vec<(String, T)>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: FromNode> FromNode for Table<T> {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let entries = reader.entries(node, "a table")?;
        let read: Vec<Option<(String, T)>> = entries
            .iter()
            .map(|(key, _, child)| reader.within(key.clone(), |r| T::from_node(child, r)).map(|v| (key.clone(), v)))
            .collect();
        read.into_iter().collect::<Option<Vec<_>>>().map(Table)
    }
    fn schema(definitions: &mut Definitions) -> serde_json::Value {
        json!({ "type": "object", "additionalProperties": T::schema(definitions) })
    }
    fn expected() -> String {
        "a mapping of names to values".into()
    }
}

/// Any YAML, kept as the tree it is (overrides of a study, an embedded specification).
impl FromNode for Node {
    fn from_node(node: &Node, _: &mut Reader) -> Option<Self> {
        Some(node.clone())
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({})
    }
    fn expected() -> String {
        "a value".into()
    }
}

/// A structure written in place, or named by file (`chips/h100.yaml`, relative to the file that names it), or a file
/// with some keys replaced (`{from: chips/h100.yaml, cores: 100}`).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Ref<T>(pub T);

impl<T: FromNode> FromNode for Ref<T> {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        if matches!(node.value, Value::Map(_)) && node.get("from").is_none() {
            // Nothing to expand: nothing to copy.
            return T::from_node(node, reader).map(Ref);
        }
        let expanded = match reader.loader.expand(node, &reader.field()) {
            Ok(expanded) => expanded,
            Err(problem) => {
                reader.push(problem);
                return None;
            }
        };
        T::from_node(&expanded, reader).map(Ref)
    }
    fn schema(definitions: &mut Definitions) -> serde_json::Value {
        json!({ "anyOf": [
            { "type": "string", "description": "path of a file, relative to this one, or a name of the catalogue" },
            T::schema(definitions)
        ] })
    }
    fn expected() -> String {
        format!("the path of a file, or {}", T::expected())
    }
}

/// Defines a structure of a specification file once: its fields, their notation, defaults and documentation. Expands
/// to the structure, its [`FromNode`] reader (unknown keys refused, all problems collected) and its JSON Schema.
///
/// A field is required unless it has a default (`= value`), a value to be completed (`=> value`) or is an `Option`. `complete: f` names a
/// function `fn(&mut Self)` that derives what was left out from other fields, `check: f` a function `fn(&Self, &Node, &mut Reader)` that
/// notes what single fields cannot show.
#[macro_export]
macro_rules! spec {
    (
        $(#[doc = $doc:literal])+
        $(#[derive($($derive:ident),*)])?
        pub struct $name:ident ($title:literal $(, complete: $complete:path)? $(, check: $check:path)?) {
            $(
                $(#[doc = $fdoc:literal])+
                $field:ident $(as $key:literal)? : $ty:ty $(= $default:expr)? $(=> $blank:expr)?
            ),* $(,)?
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize $($(, $derive)*)?)]
        pub struct $name {
            $( $(#[doc = $fdoc])+ pub $field: $ty, )*
        }
        impl $crate::spec::FromNode for $name {
            fn from_node(node: &$crate::spec::Node, reader: &mut $crate::spec::Reader) -> Option<Self> {
                reader.entries(node, $title)?;
                reader.unknown_keys(node, $title, &[$( $crate::spec!(@key $field $($key)?) ),*])?;
                $( let $field: Option<$ty> =
                    reader.key(node, $crate::spec!(@key $field $($key)?), $crate::spec!(@default $($default)? $($blank)?)); )*
                #[allow(unused_mut, reason = "only where a part is completed from others")]
                let mut value = Self { $( $field: $field?, )* };
                $( $complete(&mut value); )?
                $( $check(&value, node, reader); )?
                Some(value)
            }
            fn schema(definitions: &mut $crate::spec::schema::Definitions) -> serde_json::Value {
                definitions.define(stringify!($name), |definitions| {
                    let mut object =
                        $crate::spec::schema::Object::new(stringify!($name), $title, concat!($($doc, "\n"),+));
                    $( object.field::<$ty>(
                        definitions,
                        $crate::spec!(@key $field $($key)?),
                        concat!($($fdoc, "\n"),+),
                        $crate::spec!(@default $($default)?),
                        $crate::spec!(@blank $($blank)?),
                    ); )*
                    object.finish(definitions)
                })
            }
            fn expected() -> String { $title.into() }
        }
    };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
    (@default) => { None };
    (@default $default:expr) => { Some($default) };
    (@blank) => { false };
    (@blank $blank:expr) => { true };
}

/// Defines an enumeration written as one of several words.
#[macro_export]
macro_rules! choice {
    (
        $(#[doc = $doc:literal])+
        pub enum $name:ident ($title:literal) {
            $( $(#[doc = $vdoc:literal])+ $variant:ident = $text:literal ),* $(,)?
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
        pub enum $name { $( $(#[doc = $vdoc])+ #[serde(rename = $text)] $variant ),* }
        impl $name {
            /// Every value, in order of definition.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// The word for it in files.
            pub fn word(self) -> &'static str {
                match self { $( Self::$variant => $text ),* }
            }
            /// The value a word stands for.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $( $text => Some(Self::$variant), )* _ => None }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.pad(self.word()) }
        }
        impl $crate::spec::FromNode for $name {
            fn from_node(node: &$crate::spec::Node, reader: &mut $crate::spec::Reader) -> Option<Self> {
                $crate::spec::read::word(node, reader, Self::from_word, &[$($text),*], <Self as $crate::spec::FromNode>::expected)
            }
            fn schema(_: &mut $crate::spec::schema::Definitions) -> serde_json::Value {
                serde_json::json!({
                    "description": concat!($($doc, "\n"),+).trim(),
                    "oneOf": [ $( { "const": $text, "description": concat!($($vdoc, "\n"),+).trim() } ),* ]
                })
            }
            fn expected() -> String { format!("{}: {}", $title, [$($text),*].join(", ")) }
        }
    };
}
