//! Located YAML trees, and the loading of files into them.

use super::catalogue::{self, Kind};
use super::kind::FileKind;
use super::read::Problem;
use saphyr_parser::{Event, Parser, ScalarStyle};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a node stood: file and line (1-based).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The file as the user named it, or a pseudo-name such as `<command line>`.
    pub file: Arc<str>,
    /// Line, 1-based; 0 where there is none.
    pub line: usize,
}

impl Origin {
    /// An origin without a line, for values that come from the command line.
    pub fn named(name: &str) -> Self {
        Self { file: Arc::from(name), line: 0 }
    }
}

/// A value of YAML with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where it stood.
    pub origin: Origin,
    /// What it is.
    pub value: Value,
}

/// The three shapes of YAML, and nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An empty value, `~` or `null`.
    Null,
    /// A scalar: its text, and whether it was quoted (a quoted scalar is a string whatever it looks like).
    Scalar {
        /// The text.
        text: String,
        /// Quoted or block style.
        quoted: bool,
    },
    /// A sequence.
    List(Vec<Node>),
    /// A mapping in file order; each key with its own place.
    Map(Vec<(String, Origin, Node)>),
}

/// Deepest nesting read: specifications need about eight levels, and a bound keeps hostile input off the stack.
const MAX_DEPTH: usize = 64;
/// Most nodes of one file.
const MAX_NODES: usize = 2_000_000;

impl Node {
    /// A plain scalar at `origin`.
    pub fn scalar(text: impl Into<String>, origin: Origin) -> Self {
        Self { origin, value: Value::Scalar { text: text.into(), quoted: false } }
    }

    /// The child under `key`, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(k, _, _)| k == key).map(|(_, _, n)| n),
            _ => None,
        }
    }

    /// What was found, for messages: a short text of the value.
    pub fn describe(&self) -> String {
        match &self.value {
            Value::Null => "nothing".into(),
            Value::Scalar { text, .. } => {
                let short: String = text.chars().take(60).collect();
                if short.len() < text.len() { format!("{short:?}...") } else { format!("{short:?}") }
            }
            Value::List(items) => format!("a list of {}", items.len()),
            Value::Map(_) => "a mapping".into(),
        }
    }

    /// As a JSON value, for emitting YAML and for content keys. Plain scalars that are JSON numbers or booleans
    /// become those; everything else is a string.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as J;
        match &self.value {
            Value::Null => J::Null,
            Value::Scalar { text, quoted: true } => J::String(text.clone()),
            Value::Scalar { text, quoted: false } => match text.as_str() {
                "true" => J::Bool(true),
                "false" => J::Bool(false),
                _ => {
                    serde_json::from_str::<serde_json::Number>(text).map_or_else(|_| J::String(text.clone()), J::Number)
                }
            },
            Value::List(items) => J::Array(items.iter().map(Node::to_json).collect()),
            Value::Map(entries) => J::Object(entries.iter().map(|(k, _, n)| (k.clone(), n.to_json())).collect()),
        }
    }

    /// Parses one YAML document. All syntax problems of the scanner are one [`Problem`]: YAML cannot be read past its
    /// first syntax error.
    ///
    /// # Errors
    /// A [`Problem`] with the line for syntax errors, duplicate keys, several documents, or nesting beyond bounds.
    pub fn parse(file: &str, text: &str) -> Result<Node, Problem> {
        let mut builder =
            Builder { file: Arc::from(file), parser: Parser::new_from_str(text), nodes: 0, anchors: Vec::new() };
        builder.document()
    }
}

impl serde::Serialize for Node {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

struct Builder<'t> {
    file: Arc<str>,
    parser: Parser<'t, saphyr_parser::StrInput<'t>>,
    nodes: usize,
    anchors: Vec<(usize, Node)>,
}

impl Builder<'_> {
    fn problem(&self, line: usize, message: impl Into<String>) -> Problem {
        Problem { origin: Origin { file: self.file.clone(), line }, field: String::new(), message: message.into() }
    }

    fn next(&mut self) -> Result<(Event<'_>, usize), Problem> {
        let file = self.file.clone();
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, span.start.line())),
            Some(Err(e)) => Err(Problem {
                origin: Origin { file, line: e.marker().line() },
                field: String::new(),
                message: format!("not valid YAML: {}", e.info()),
            }),
            None => Err(Problem {
                origin: Origin { file, line: 0 },
                field: String::new(),
                message: "the file ends where a value is due".into(),
            }),
        }
    }

    fn document(&mut self) -> Result<Node, Problem> {
        loop {
            let (event, _) = self.next()?;
            match event {
                Event::StreamStart | Event::Nothing => {}
                Event::DocumentStart(_) => break,
                _ => return Err(self.problem(1, "the file is empty; a mapping of keys and values is due")),
            }
        }
        let root = self.node(0)?;
        loop {
            let (event, line) = self.next()?;
            match event {
                Event::DocumentEnd | Event::Nothing => {}
                Event::StreamEnd => return Ok(root),
                _ => return Err(self.problem(line, "a second YAML document starts here; one file holds one document")),
            }
        }
    }

    fn node(&mut self, depth: usize) -> Result<Node, Problem> {
        let (event, line) = self.next()?;
        let owned = match event {
            Event::Scalar(text, style, anchor, _) => Owned::Scalar(text.into_owned(), style, anchor),
            Event::SequenceStart(anchor, _) => Owned::List(anchor),
            Event::MappingStart(anchor, _) => Owned::Map(anchor),
            Event::Alias(id) => Owned::Alias(id),
            Event::SequenceEnd | Event::MappingEnd => Owned::End,
            _ => return Err(self.problem(line, "a value is due here")),
        };
        self.finish(owned, line, depth)
    }

    fn finish(&mut self, event: Owned, line: usize, depth: usize) -> Result<Node, Problem> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(self.problem(line, format!("more than {MAX_NODES} values in one file")));
        }
        if depth > MAX_DEPTH {
            return Err(self.problem(line, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let origin = Origin { file: self.file.clone(), line };
        let (value, anchor) = match event {
            Owned::Scalar(text, style, anchor) => {
                let quoted = style != ScalarStyle::Plain;
                let empty = !quoted && matches!(text.as_str(), "" | "~" | "null");
                (if empty { Value::Null } else { Value::Scalar { text, quoted } }, anchor)
            }
            Owned::List(anchor) => {
                let mut items = Vec::new();
                loop {
                    let node = self.child(depth)?;
                    match node {
                        Some(node) => items.push(node),
                        None => break,
                    }
                }
                (Value::List(items), anchor)
            }
            Owned::Map(anchor) => {
                let mut entries: Vec<(String, Origin, Node)> = Vec::new();
                while let Some(key) = self.child(depth)? {
                    let Value::Scalar { text, .. } = key.value else {
                        return Err(
                            self.problem(key.origin.line, format!("a key must be a word, found {}", key.describe()))
                        );
                    };
                    if let Some((_, first, _)) = entries.iter().find(|(k, _, _)| *k == text) {
                        let message = format!("key {text:?} stands twice (first on line {})", first.line);
                        return Err(self.problem(key.origin.line, message));
                    }
                    let Some(node) = self.child(depth)? else {
                        return Err(self.problem(key.origin.line, format!("key {text:?} has no value")));
                    };
                    entries.push((text, key.origin, node));
                }
                (Value::Map(entries), anchor)
            }
            Owned::Alias(id) => {
                let found = self.anchors.iter().find(|(a, _)| *a == id).map(|(_, n)| n.clone());
                let Some(node) = found else {
                    return Err(self.problem(line, "an alias to an anchor that is not complete"));
                };
                // Aliases are copies: count them, or a few lines could unfold into gigabytes.
                self.nodes += count(&node);
                if self.nodes > MAX_NODES {
                    return Err(self.problem(line, format!("aliases unfold to more than {MAX_NODES} values")));
                }
                return Ok(node);
            }
            Owned::End => return Err(self.problem(line, "a value is due here")),
        };
        let node = Node { origin, value };
        if anchor > 0 {
            self.anchors.push((anchor, node.clone()));
        }
        Ok(node)
    }

    /// The next child of a collection, `None` at its end.
    fn child(&mut self, depth: usize) -> Result<Option<Node>, Problem> {
        let (event, line) = self.next()?;
        let owned = match event {
            Event::SequenceEnd | Event::MappingEnd => return Ok(None),
            Event::Scalar(text, style, anchor, _) => Owned::Scalar(text.into_owned(), style, anchor),
            Event::SequenceStart(anchor, _) => Owned::List(anchor),
            Event::MappingStart(anchor, _) => Owned::Map(anchor),
            Event::Alias(id) => Owned::Alias(id),
            _ => Owned::End,
        };
        self.finish(owned, line, depth + 1).map(Some)
    }
}

/// An event without borrow on the parser.
enum Owned {
    Scalar(String, ScalarStyle, usize),
    List(usize),
    Map(usize),
    Alias(usize),
    End,
}

fn count(node: &Node) -> usize {
    1 + match &node.value {
        Value::List(items) => items.iter().map(count).sum(),
        Value::Map(entries) => entries.iter().map(|(_, _, n)| count(n)).sum(),
        _ => 0,
    }
}

/// Loads files and follows references relative to the file that makes them. Where there is no such file, a reference may be the
/// name of one in the [`catalogue`].
#[derive(Debug, Default, Clone)]
pub struct Loader;

/// Largest specification file read.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Why a pipe is refused: a file may be read more than once, and relative paths in it need its folder.
const NOT_READ_TWICE: &str =
    "standard input, pipes and devices are not read here; write the text to a file and name that";
/// Most files that name each other in a row.
const MOST_IN_A_ROW: usize = 16;

thread_local! {
    /// The files read since [`Loader::noting`] began.
    static READ: RefCell<Option<BTreeSet<PathBuf>>> = const { RefCell::new(None) };
}

impl Loader {
    /// Does something, and says which files this thread read meanwhile; a file that leaves nothing in a tree (`from:` alone) is among them.
    pub fn noting<T>(work: impl FnOnce() -> T) -> (T, BTreeSet<PathBuf>) {
        let before = READ.replace(Some(BTreeSet::new()));
        let done = work();
        (done, READ.replace(before).unwrap_or_default())
    }

    /// Reads and parses `path`.
    ///
    /// # Errors
    /// A [`Problem`] when the file is missing, unreadable, larger than 64 MiB, not UTF-8, or not YAML.
    pub fn load(&self, path: &Path, from: Option<(&Origin, &str)>) -> Result<Node, Problem> {
        let (origin, field) = match from {
            Some((origin, field)) => (origin.clone(), field.to_string()),
            None => (Origin { file: Arc::from(path.display().to_string()), line: 0 }, String::new()),
        };
        if let Some((name, text)) = catalogue::text(path) {
            return Node::parse(&name, text);
        }
        let fail = |message: String| Problem { origin: origin.clone(), field: field.clone(), message };
        let shown = path.display().to_string();
        if shown.is_empty() {
            return Err(fail("no file is named".into()));
        }
        let unreadable = |e: &std::io::Error| {
            let fetched = if shown.contains("://") { "; addresses are not fetched" } else { "" };
            fail(format!("cannot read file {shown:?}: {}{fetched}", io_reason(e)))
        };
        let meta = std::fs::metadata(path).map_err(|e| match shown.as_str() {
            "-" => fail(NOT_READ_TWICE.into()),
            _ => unreadable(&e),
        })?;
        if meta.is_dir() {
            return Err(fail(format!("{shown:?} is a folder, not a file")));
        }
        if !meta.is_file() {
            return Err(fail(NOT_READ_TWICE.into()));
        }
        if meta.len() > MAX_FILE_BYTES {
            return Err(fail(format!("{shown:?} is larger than 64 MiB")));
        }
        let bytes = std::fs::read(path).map_err(|e| unreadable(&e))?;
        READ.with_borrow_mut(|read| read.as_mut().map(|read| read.insert(path.to_path_buf())));
        let text = String::from_utf8(bytes).map_err(|e| {
            let utf_16 = matches!(e.as_bytes(), [0xff, 0xfe, ..] | [0xfe, 0xff, ..]);
            let instead = if utf_16 { " but UTF-16; save it as UTF-8" } else { "" };
            fail(format!("{shown:?} is not UTF-8 text{instead}"))
        })?;
        let parsed = Node::parse(&shown, &text);
        if !matches!(parsed, Ok(Node { value: Value::Map(_), .. }))
            && let Some(kind @ (FileKind::Table | FileKind::Trace | FileKind::Mapping)) = FileKind::of_text(&text)
        {
            let origin = Origin { file: Arc::from(shown), line: 1 };
            return Err(Problem { origin, field, message: kind.instead_of("a file of YAML") });
        }
        parsed
    }

    /// Reads and parses the file at `path`, or the one of `kind` that is called so in the [`catalogue`]: a path goes before a name.
    ///
    /// # Errors
    /// As [`Self::load`]; a name that the catalogue does not have.
    pub fn open(&self, path: &Path, kind: Option<Kind>) -> Result<Node, Problem> {
        let name = path.to_string_lossy();
        self.open_at(path, &name, kind, None)
    }

    fn open_at(
        &self,
        path: &Path,
        name: &str,
        kind: Option<Kind>,
        from: Option<(&Origin, &str)>,
    ) -> Result<Node, Problem> {
        if path.is_file() || catalogue::text(path).is_some() {
            return self.load(path, from);
        }
        match catalogue::find(name, kind) {
            Ok(entry) => self.load(&entry.file(), from),
            Err(instead) => self.load(path, from).map_err(|mut problem| {
                if !instead.is_empty() && !path.exists() && name != "-" {
                    problem.message = format!("{}; {instead}", problem.message);
                }
                problem
            }),
        }
    }

    /// The path a reference in `origin`'s file points to.
    pub fn resolve(&self, origin: &Origin, reference: &str) -> PathBuf {
        if reference.starts_with(catalogue::SCHEME) {
            return PathBuf::from(reference);
        }
        if let Some(path) = catalogue::resolve(&origin.file, reference).filter(|_| origin.line > 0) {
            return path;
        }
        let reference = Path::new(reference);
        match Path::new(origin.file.as_ref()).parent() {
            Some(dir) if reference.is_relative() && origin.line > 0 => dir.join(reference),
            _ => reference.to_path_buf(),
        }
    }

    /// Replaces every reference below `node` at `field`: a scalar becomes the file it names; a mapping with `from:`
    /// becomes that file overlaid with the mapping's other keys.
    ///
    /// # Errors
    /// The [`Problem`] of loading the file.
    pub fn expand(&self, node: &Node, field: &str) -> Result<Node, Problem> {
        self.expand_as(node, field, Kind::of_field(field))
    }

    /// The same, for references to files of a kind.
    ///
    /// # Errors
    /// The [`Problem`] of loading the file.
    pub fn expand_as(&self, node: &Node, field: &str, kind: Option<Kind>) -> Result<Node, Problem> {
        // The whole of a file begins the trail; a part of it may name the file again, for another part.
        let trail: &[Arc<str>] = if field.is_empty() { std::slice::from_ref(&node.origin.file) } else { &[] };
        self.expand_after(node, field, kind, trail)
    }

    /// `trail`: the files on the way here.
    fn expand_after(&self, node: &Node, field: &str, kind: Option<Kind>, trail: &[Arc<str>]) -> Result<Node, Problem> {
        let Value::Scalar { text, .. } = &node.value else { return self.expand_from(node.clone(), field, kind, trail) };
        let path = self.resolve(&node.origin, text);
        let loaded = self.open_at(&path, text, kind, Some((&node.origin, field)))?;
        let file = &loaded.origin.file;
        let circle = trail.iter().position(|before| before == file);
        if circle.is_some() || trail.len() >= MOST_IN_A_ROW {
            let way: Vec<&str> = trail[circle.unwrap_or(0)..].iter().chain([file]).map(AsRef::as_ref).collect();
            let what = match circle {
                Some(_) => "files name each other in a circle".to_string(),
                None => format!("more than {MOST_IN_A_ROW} files name one another in a row"),
            };
            return Err(Problem {
                origin: node.origin.clone(),
                field: field.into(),
                message: format!("{what}: {}", way.join(" -> ")),
            });
        }
        let trail = [trail, std::slice::from_ref(file)].concat();
        self.expand_from(loaded, field, kind, &trail)
    }

    fn expand_from(&self, node: Node, field: &str, kind: Option<Kind>, trail: &[Arc<str>]) -> Result<Node, Problem> {
        let Value::Map(entries) = &node.value else { return Ok(node) };
        let Some((_, _, base)) = entries.iter().find(|(k, _, _)| k == "from") else { return Ok(node) };
        let mut base = self.expand_after(base, field, kind, trail)?;
        for (key, origin, value) in entries.iter().filter(|(k, _, _)| k != "from") {
            base.set(key, origin.clone(), value.clone());
        }
        Ok(base)
    }
}

impl Node {
    /// Adds the files that this was read from, and those that it names for programs that are not YAML (`path`, `kineto` of a trace).
    pub fn files(&self, found: &mut BTreeSet<PathBuf>) {
        found.insert(PathBuf::from(self.origin.file.as_ref()));
        match &self.value {
            Value::List(items) => items.iter().for_each(|item| item.files(found)),
            Value::Map(entries) => {
                for (key, _, child) in entries {
                    child.files(found);
                    if let (Value::Scalar { text, .. }, "path" | "kineto") = (&child.value, key.as_str()) {
                        found.insert(Loader.resolve(&child.origin, text));
                    }
                }
            }
            Value::Null | Value::Scalar { .. } => {}
        }
    }

    /// Replaces the child at `path` (keys, `*` for every entry of a list) by what the reference there names, so that
    /// the tree no longer depends on other files.
    ///
    /// # Errors
    /// The [`Problem`] of loading a file.
    pub fn inline(&mut self, path: &[&str], loader: &Loader) -> Result<(), Problem> {
        self.inline_below(path, "", loader)
    }

    fn inline_below(&mut self, path: &[&str], field: &str, loader: &Loader) -> Result<(), Problem> {
        let Some((first, rest)) = path.split_first() else {
            *self = loader.expand(self, field)?;
            return Ok(());
        };
        let below = |name: &str| if field.is_empty() { name.to_string() } else { format!("{field}.{name}") };
        match &mut self.value {
            Value::List(items) if *first == "*" => items
                .iter_mut()
                .enumerate()
                .try_for_each(|(i, item)| item.inline_below(rest, &below(&format!("[{i}]")), loader)),
            Value::Map(entries) => entries
                .iter_mut()
                .filter(|(key, _, node)| key == first && node.value != Value::Null)
                .try_for_each(|(key, _, node)| node.inline_below(rest, &below(key), loader)),
            _ => Ok(()),
        }
    }

    /// Sets `key` of a mapping, replacing what was there; a node that is no mapping becomes one.
    pub fn set(&mut self, key: &str, origin: Origin, node: Node) {
        if let Value::Map(entries) = &mut self.value {
            match entries.iter_mut().find(|(k, _, _)| k == key) {
                Some(entry) => *entry = (key.to_string(), origin, node),
                None => entries.push((key.to_string(), origin, node)),
            }
        } else {
            self.value = Value::Map(vec![(key.to_string(), origin, node)]);
        }
    }
}

/// Most bytes that are read of a pipe or a device, which may have no end.
const MOST_OF_PIPE: u64 = 256 << 20;

/// Reads all of a file, and of a pipe or a device so much as a table may have.
///
/// # Errors
/// What the operating system says; a pipe or a device that goes on.
pub fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    let most = if file.metadata()?.is_file() { u64::MAX } else { MOST_OF_PIPE };
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(std::io::Error::other("it is a pipe or a device of more than 256 MiB: write it to a file first")),
        false => Ok(bytes),
    }
}

/// A reason for an I/O error a user understands, without the operating system's error number.
pub fn io_reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        std::io::ErrorKind::IsADirectory => "it is a folder".into(),
        std::io::ErrorKind::AlreadyExists => "a file of that name is in the way".into(),
        std::io::ErrorKind::NotADirectory => "a part of its path is a file, not a folder".into(),
        // The number that the operating system has for it says nothing to a user.
        _ => error.to_string().split(" (os error").next().unwrap_or_default().to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_parsing() {
        let node = Node::parse("a.yaml", "x: 1\ny:\n  z: [a, \"2\"]\n").unwrap();
        let z = node.get("y").and_then(|y| y.get("z")).unwrap();
        assert_eq!(z.origin.line, 3);
        let Value::List(items) = &z.value else { panic!("a list") };
        assert_eq!(items[1].value, Value::Scalar { text: "2".into(), quoted: true });
    }

    #[test]
    fn refuses_duplicates_bombs_and_depth() {
        let twice = Node::parse("a.yaml", "x: 1\nx: 2\n").unwrap_err();
        assert!(twice.to_string().contains("stands twice"), "{twice}");
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for i in 1..9 {
            let refs = vec![format!("*a{}", i - 1); 10].join(",");
            bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
        }
        assert!(Node::parse("b.yaml", &bomb).unwrap_err().message.contains("unfold"));
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert!(Node::parse("c.yaml", &deep).is_err());
        assert!(Node::parse("d.yaml", "").is_err());
        assert!(Node::parse("e.yaml", "a: b\n---\nc: d\n").is_err());
    }
}
