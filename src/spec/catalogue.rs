//! The catalogue: the specification files under `systems/`, `workloads/`, `studies/` and `validation/`, compiled in, so that they
//! are there wherever the program runs.
//!
//! A path that begins with `catalogue:` names one of them by its place in the repository; references between them are relative,
//! as on disk. Those that a user would name have a [`Kind`] and a name: the file's own without its extension (`h100`,
//! `llama3-70b`), after that of the folder for studies in one (`dfmodel-joint`). Two kinds may use one name; `chips/h100` says
//! which is meant.

use super::nearest::nearest;
use super::node::{Node, Value};
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

/// What the paths of compiled-in files begin with.
pub const SCHEME: &str = "catalogue:";

/// Path in the repository, and text; sorted by path (made by `build.rs`).
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/catalogue.rs"));

/// Kinds of files that have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `systems/chips`
    Chip,
    /// `systems/memories`
    Memory,
    /// `systems/links`
    Link,
    /// `systems/switches`
    Switch,
    /// `systems/stacks`
    Stack,
    /// `systems/cores`
    Cores,
    /// `systems/technologies`
    Technology,
    /// `systems`, `systems/clusters`, `validation/hpl`, `validation/dies`
    System,
    /// `workloads`
    Workload,
    /// `studies`
    Study,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Chip,
        Self::Memory,
        Self::Link,
        Self::Switch,
        Self::Stack,
        Self::Cores,
        Self::Technology,
        Self::System,
        Self::Workload,
        Self::Study,
    ];

    /// The word for one.
    pub fn word(self) -> &'static str {
        match self {
            Self::Chip => "chip",
            Self::Memory => "memory",
            Self::Link => "link",
            Self::Switch => "switch",
            Self::Stack => "stack",
            Self::Cores => "cores",
            Self::Technology => "technology",
            Self::System => "system",
            Self::Workload => "workload",
            Self::Study => "study",
        }
    }

    /// The word for several, as in `flowspace list chips` and `chips/h100`.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Chip => "chips",
            Self::Memory => "memories",
            Self::Link => "links",
            Self::Switch => "switches",
            Self::Stack => "stacks",
            Self::Cores => "cores",
            Self::Technology => "technologies",
            Self::System => "systems",
            Self::Workload => "workloads",
            Self::Study => "studies",
        }
    }

    /// The kind that either word is for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| [kind.word(), kind.plural()].contains(&word))
    }

    /// The kind of file that a field names: that of its last part that is a word (`system.network.dimensions.0.link`).
    pub fn of_field(field: &str) -> Option<Self> {
        let word = field.rsplit('.').find(|part| part.starts_with(|c: char| c.is_ascii_alphabetic()))?;
        match word {
            "offload" => Some(Self::Memory),
            "software" => Some(Self::Stack),
            // A chip's `cores` are a number.
            "cores" => None,
            _ => Self::ALL.into_iter().find(|kind| kind.word() == word),
        }
    }

    /// Kind and name of the file at `path` of the repository; `None` where it is none that a user names.
    fn of_path(path: &str) -> Option<(Self, String)> {
        let parts: Vec<&str> = path.strip_suffix(".yaml")?.split('/').collect();
        let (kind, name) = match parts.as_slice() {
            ["systems", "chips", name] => (Self::Chip, name.to_string()),
            ["systems", "memories", name] => (Self::Memory, name.to_string()),
            ["systems", "links", name] => (Self::Link, name.to_string()),
            ["systems", "switches", name] => (Self::Switch, name.to_string()),
            ["systems", "stacks", name] => (Self::Stack, name.to_string()),
            ["systems", "cores", name] => (Self::Cores, name.to_string()),
            ["systems", "technologies", name] => (Self::Technology, name.to_string()),
            ["systems", name] | ["systems", "clusters", name] | ["validation", "hpl" | "dies", name] => {
                (Self::System, name.to_string())
            }
            ["workloads", .., name] => (Self::Workload, name.to_string()),
            ["studies", rest @ ..] => (Self::Study, rest.join("-")),
            _ => return None,
        };
        Some((kind, name))
    }
}

/// A compiled-in file that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its kind.
    pub kind: Kind,
    /// Its name, of which its kind has one.
    pub name: String,
    /// Its path in the repository.
    pub path: &'static str,
    /// Its text.
    pub text: &'static str,
}

impl Entry {
    /// The `name:` that its file states.
    pub fn title(&self) -> Option<&'static str> {
        self.text.lines().find_map(|line| line.strip_prefix("name: ")).map(str::trim)
    }

    /// The path that [`Loader`](super::Loader) takes for it.
    pub fn file(&self) -> PathBuf {
        PathBuf::from(format!("{SCHEME}{}", self.path))
    }

    /// The files with names that this one refers to, with the line and the text of each reference.
    ///
    /// # Errors
    /// The [`Problem`](super::Problem) of a file that is not YAML.
    pub fn references(&self) -> Result<Vec<(usize, String, &'static Entry)>, super::Problem> {
        fn gather(node: &Node, found: &mut Vec<(usize, String, &'static Entry)>) {
            match &node.value {
                Value::Scalar { text, .. } => {
                    let path = resolve(&node.origin.file, text);
                    let entry = path.and_then(|path| entries().iter().find(|entry| entry.file() == path));
                    found.extend(entry.map(|entry| (node.origin.line, text.clone(), entry)));
                }
                Value::List(items) => items.iter().for_each(|item| gather(item, found)),
                Value::Map(entries) => entries.iter().for_each(|(_, _, child)| gather(child, found)),
                Value::Null => {}
            }
        }
        let mut found = Vec::new();
        gather(&Node::parse(&self.file().to_string_lossy(), self.text)?, &mut found);
        Ok(found)
    }

    /// The text with its references by name instead of by path, so that it means the same in any folder.
    ///
    /// # Errors
    /// As [`Self::references`].
    pub fn portable(&self) -> Result<String, super::Problem> {
        let mut lines: Vec<String> = self.text.lines().map(str::to_string).collect();
        for (line, reference, entry) in self.references()? {
            if let Some(text) = line.checked_sub(1).and_then(|i| lines.get_mut(i)) {
                *text = text.replacen(&reference, &entry.name, 1);
            }
        }
        Ok(lines.join("\n") + "\n")
    }
}

/// Every file with a name, by kind and name.
pub fn entries() -> &'static [Entry] {
    static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
        let named = |(path, text): &(&'static str, &'static str)| {
            let (kind, name) = Kind::of_path(path)?;
            Some(Entry { kind, name, path, text })
        };
        let mut entries: Vec<Entry> = FILES.iter().filter_map(named).collect();
        entries.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
        entries
    });
    &ENTRIES
}

/// Paths of all compiled-in files in the repository.
pub fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(path, _)| *path)
}

/// What `reference` points to from the compiled-in file `file`, without `.` and `..`; `None` where `file` is none, or the
/// reference leads out of the catalogue.
pub fn resolve(file: &str, reference: &str) -> Option<PathBuf> {
    let folder = Path::new(file.strip_prefix(SCHEME)?).parent()?;
    let path = normal(&folder.join(reference))?;
    Some(PathBuf::from(format!("{SCHEME}{path}")))
}

fn normal(path: &Path) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::ParentDir => {
                parts.pop()?;
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

/// Path with the scheme, and text, of the compiled-in file at `path`; `None` where the path has no scheme or there is no such file.
pub fn text(path: &Path) -> Option<(String, &'static str)> {
    let wanted = normal(Path::new(path.to_str()?.strip_prefix(SCHEME)?))?;
    FILES.iter().find(|(known, _)| *known == wanted).map(|(known, text)| (format!("{SCHEME}{known}"), *text))
}

/// Whether a text may be a name of the catalogue: a word, or kind and word.
fn could_be_name(text: &str) -> bool {
    let text = text.strip_prefix(SCHEME).unwrap_or(text);
    let word = text.split_once('/').filter(|(kind, _)| Kind::from_word(kind).is_some()).map_or(text, |(_, word)| word);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !word.is_empty() && word.chars().all(plain) && !word.starts_with('.') && !is_file_name(word)
}

fn is_file_name(text: &str) -> bool {
    [".yaml", ".yml", ".json", ".txt", ".csv", ".gz"].iter().any(|end| text.to_ascii_lowercase().ends_with(end))
}

/// The file called `name` (of `kind`, where one is due), or one sentence that says what there is instead.
///
/// # Errors
/// The sentence; empty where `name` is none that a catalogue could have and reminds of nothing in it.
pub fn find(name: &str, kind: Option<Kind>) -> Result<&'static Entry, String> {
    if !could_be_name(name) {
        return Err(reminder(name, kind));
    }
    let name = name.strip_prefix(SCHEME).unwrap_or(name);
    let (stated, word) = match name.split_once('/') {
        Some((stated, word)) => (Kind::from_word(stated), word),
        None => (None, name),
    };
    let called: Vec<&Entry> =
        entries().iter().filter(|entry| entry.name == word && stated.is_none_or(|s| s == entry.kind)).collect();
    let fits: Vec<&&'static Entry> = called.iter().filter(|entry| kind.is_none_or(|k| k == entry.kind)).collect();
    match (fits.as_slice(), called.as_slice()) {
        ([entry], _) => Ok(entry),
        ([_, _, ..], _) => {
            let forms: Vec<String> = fits.iter().map(|e| format!("{}/{}", e.kind.plural(), e.name)).collect();
            Err(format!("the catalogue has several files of this name; write {}", forms.join(" or ")))
        }
        ([], [other, ..]) => Err(of_another_kind(other, kind)),
        ([], []) => Err(unknown(word, kind.or(stated))),
    }
}

/// What a file's name that is not on disk reminds of.
fn reminder(path: &str, kind: Option<Kind>) -> String {
    let stem = Path::new(path).file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let known = entries().iter().find(|entry| entry.name == stem && kind.is_none_or(|k| k == entry.kind));
    known.map_or(String::new(), |entry| format!("the catalogue has the {} {}", entry.kind.word(), entry.name))
}

/// A name that is of another kind than is due: which, and what of the due kind has it.
fn of_another_kind(entry: &Entry, due: Option<Kind>) -> String {
    let Some(due) = due else { return String::new() };
    let refers = |other: &&Entry| {
        other.references().is_ok_and(|found| found.iter().any(|(_, _, e)| e.path == entry.path)) && other.kind == due
    };
    let with: Vec<&str> = entries().iter().filter(refers).map(|e| e.name.as_str()).take(8).collect();
    let with = if with.is_empty() {
        format!("`flowspace list {}` prints what there is", due.plural())
    } else {
        format!("{} with it: {}", due.plural(), with.join(", "))
    };
    let article = |kind: Kind| if kind == Kind::System { "a system".to_string() } else { format!("a {}", kind.word()) };
    format!("{} is {} of the catalogue, and {} is due; {with}", entry.name, article(entry.kind), article(due))
}

/// A name that nothing has: the nearest, or what there is.
fn unknown(word: &str, kind: Option<Kind>) -> String {
    let near = |of: Option<Kind>| {
        let names: Vec<&str> =
            entries().iter().filter(|e| of.is_none_or(|k| k == e.kind)).map(|e| e.name.as_str()).collect();
        nearest(&word.to_ascii_lowercase(), &names)
    };
    let what = kind.map_or("file", Kind::word);
    if let Some(name) = near(kind) {
        return format!("the catalogue has no {what} of this name; did you mean {name:?}?");
    }
    if let Some(kind) = kind {
        let names: Vec<&str> = entries().iter().filter(|e| e.kind == kind).map(|e| e.name.as_str()).collect();
        // The part before the first dash is what chips and models are called: everything of that family is near, and then what shares
        // another part.
        let parts = |name: &str| -> Vec<String> { name.split(['-', '_']).map(str::to_ascii_lowercase).collect() };
        let wanted = parts(word);
        let of_family = |name: &&&str| parts(name).first() == wanted.first();
        let shares = |name: &&&str| parts(name).iter().any(|part| part.len() > 2 && wanted.contains(part));
        let others = names.iter().filter(|name| !of_family(name) && shares(name));
        let alike: Vec<&str> = names.iter().filter(of_family).chain(others).copied().take(8).collect();
        if !alike.is_empty() {
            return format!("the catalogue has no {what} of this name; near it: {}", alike.join(", "));
        }
        let some: Vec<&str> = names.iter().take(6).copied().collect();
        let more = if names.len() > some.len() { ", ..." } else { "" };
        let all = kind.plural();
        return format!(
            "the catalogue has no {what} of this name; {} {all}: {}{more} (`flowspace list {all}`)",
            names.len(),
            some.join(", ")
        );
    }
    let kinds: Vec<&str> = Kind::ALL.into_iter().map(Kind::plural).collect();
    format!("the catalogue has no file of this name; `flowspace list` prints them: {}", kinds.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_files_and_nowhere_else() {
        let found = |path: &str| text(Path::new(path)).map(|(path, _)| path);
        assert_eq!(found("catalogue:validation/machines.yaml").as_deref(), Some("catalogue:validation/machines.yaml"));
        let roundabout = found("catalogue:systems/../validation/./machines.yaml");
        assert_eq!(roundabout.as_deref(), Some("catalogue:validation/machines.yaml"));
        for other in ["validation/machines.yaml", "catalogue:", "catalogue:../../etc", "catalogue:/validation", ""] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn references_stay_inside() {
        let from = |reference: &str| resolve("catalogue:systems/clusters/dgx-h100.yaml", reference);
        assert_eq!(from("../chips/h100.yaml"), Some(PathBuf::from("catalogue:systems/chips/h100.yaml")));
        assert_eq!(from("../../../../etc/passwd"), None);
        assert_eq!(from("/etc/passwd"), None);
        assert_eq!(resolve("systems/base-64.yaml", "chips/h100.yaml"), None);
    }

    #[test]
    fn names_by_kind_and_field() {
        assert_eq!(find("h100", Some(Kind::Chip)).unwrap().path, "systems/chips/h100.yaml");
        assert_eq!(find("chips/h100", None).unwrap().path, "systems/chips/h100.yaml");
        assert_eq!(find("catalogue:chip/h100", None).unwrap().path, "systems/chips/h100.yaml");
        assert_eq!(find("dfmodel-joint", Some(Kind::Study)).unwrap().path, "studies/dfmodel/joint.yaml");
        assert_eq!(Kind::of_field("system.network.dimensions.0.link"), Some(Kind::Link));
        assert_eq!(Kind::of_field("network.dimensions.[1].link"), Some(Kind::Link));
        assert_eq!(Kind::of_field("offload"), Some(Kind::Memory));
        assert_eq!(Kind::of_field("system.network.switch"), Some(Kind::Switch));
        assert_eq!(Kind::of_field(""), None);
    }

    #[test]
    fn names_that_are_not_there() {
        let says = |name: &str, kind: Option<Kind>| find(name, kind).unwrap_err();
        assert!(says("h100-dgx-9", Some(Kind::System)).contains("did you mean \"h100-dgx-8\""));
        let chip = says("h100", Some(Kind::System));
        assert!(chip.starts_with("h100 is a chip of the catalogue, and a system is due; systems with it: "), "{chip}");
        assert!(says("h100-cluster-of-mine", Some(Kind::System)).contains("near it: h100-dgx-1-1024"));
        assert!(says("qqqqqqq", Some(Kind::Workload)).contains("`flowspace list workloads`"));
        assert!(says("qqqqqqq", None).contains("chips, memories, links"));
        assert_eq!(says("folder/of/mine.yaml", Some(Kind::System)), "");
        assert_eq!(says("systems/h100-dgx-8.yaml", Some(Kind::System)), "the catalogue has the system h100-dgx-8");
    }

    #[test]
    fn portable_texts_name_what_they_refer_to() {
        let entry = find("dgx-h100", Some(Kind::System)).unwrap();
        let text = entry.portable().unwrap();
        assert!(text.contains("chip: h100\n") && text.contains("link: infiniband-ndr,"), "{text}");
        assert!(!text.contains(".yaml"), "{text}");
    }
}
