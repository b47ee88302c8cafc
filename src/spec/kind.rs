//! Which kind of file one is, told by its contents: so that a file given where another kind is due is named, instead of every
//! key of it being unknown.

use super::node::{Node, Value};

/// Kinds of file that may be taken for one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A workload.
    Workload,
    /// A system.
    System,
    /// A chip.
    Chip,
    /// A memory.
    Memory,
    /// A link.
    Link,
    /// A software stack.
    Stack,
    /// A study.
    Study,
    /// A plan of a graph.
    Plan,
    /// An execution of a language model.
    Execution,
    /// How a language model is served.
    Serving,
    /// A process technology.
    Technology,
    /// The cores of a chip.
    Cores,
    /// A placement of actors on cores.
    Placement,
    /// Bounds of classes of measured points.
    Bounds,
    /// Systems that measured runs are predicted on.
    Machines,
    /// A table: CSV.
    Table,
    /// A recorded trace.
    Trace,
    /// A mapping file or profile of an actor runtime.
    Mapping,
}

/// Bytes at the start of a text that are looked at.
const LOOKED_AT: usize = 1 << 16;

impl FileKind {
    const ALL: [Self; 18] = [
        Self::Workload,
        Self::System,
        Self::Chip,
        Self::Memory,
        Self::Link,
        Self::Stack,
        Self::Study,
        Self::Plan,
        Self::Execution,
        Self::Serving,
        Self::Technology,
        Self::Cores,
        Self::Placement,
        Self::Bounds,
        Self::Machines,
        Self::Table,
        Self::Trace,
        Self::Mapping,
    ];

    /// Its name, as the structures read from such files have it ("a system").
    pub fn name(self) -> &'static str {
        match self {
            Self::Workload => "a workload",
            Self::System => "a system",
            Self::Chip => "a chip",
            Self::Memory => "a memory",
            Self::Link => "a link",
            Self::Stack => "a software stack",
            Self::Study => "a study",
            Self::Plan => "a plan",
            Self::Execution => "an execution file",
            Self::Serving => "a serving file",
            Self::Technology => "a technology",
            Self::Cores => "the cores of a chip",
            Self::Placement => "a placement",
            Self::Bounds => "bounds of classes",
            Self::Machines => "machines",
            Self::Table => "a table (CSV)",
            Self::Trace => "a recorded trace",
            Self::Mapping => "a mapping file of an actor runtime (XML)",
        }
    }

    /// Whether a structure of this name is a file of its own.
    pub fn due(name: &str) -> bool {
        Self::ALL.iter().any(|kind| kind.name() == name)
    }

    /// Whether one key alone tells it, which no other kind of file has.
    pub fn is_marked(self) -> bool {
        matches!(self, Self::Plan | Self::Serving | Self::Study | Self::Placement | Self::Trace)
    }

    /// What takes such a file.
    fn taken_by(self) -> &'static str {
        match self {
            Self::Workload => "--workload takes it",
            Self::System => "--system takes it",
            Self::Chip => "the key `chip` of a system names it",
            Self::Memory => "the key `memory` of a system names it",
            Self::Link => "a dimension of a system's network names it",
            Self::Stack => "the key `stack` of a system names it",
            Self::Study => "`flowspace study run` runs it, `flowspace plot` draws the results.csv of the run",
            Self::Plan => "`flowspace check`, `flowspace explain` and `flowspace map --plan` take it",
            Self::Execution => {
                "`flowspace map --execution` takes it, and with a workload and a system in it `flowspace check`, `flowspace explain` and `flowspace map --plan`"
            }
            Self::Serving => "`flowspace check` and `flowspace map --plan` take it",
            Self::Technology => "the key `technology` under `area` of a chip names it",
            Self::Cores => "`flowspace place --cores` takes it",
            Self::Placement => "`flowspace check` takes it",
            Self::Bounds => "`flowspace validate --bounds` takes it",
            Self::Machines => "`flowspace validate --machines` takes it",
            Self::Table => "`flowspace plot` takes results, `flowspace validate --points` measured points",
            Self::Mapping => {
                "`flowspace place simulate` and `flowspace place import` take it, `flowspace place --profile` takes its weights"
            }
            Self::Trace => "`--workload trace:FILE` maps it, `flowspace trace info` says what it holds",
        }
    }

    /// The kind of a tree, by keys that one kind alone has.
    pub fn of_tree(node: &Node) -> Option<Self> {
        let has = |key: &str| node.get(key).is_some();
        let map = matches!(node.value, Value::Map(_));
        let word = |key: &str| matches!(node.get(key).map(|n| &n.value), Some(Value::Scalar { .. }));
        let kinds: [(Self, bool); 16] = [
            (Self::Trace, has("traceEvents") || (has("schema") && has("nodes"))),
            (Self::Plan, has("flowspace_plan")),
            (Self::Placement, has("flowspace_placement")),
            (Self::Cores, has("cores") && has("network") && !has("chip")),
            (Self::Study, has("axes") && (has("workload") || has("system"))),
            (Self::Serving, has("serve")),
            (
                Self::Execution,
                has("execution")
                    || (has("pin") && (has("result") || has("layer") || has("blocks")) && !has("network_use")),
            ),
            (Self::System, has("network") && (has("chip") || has("memory"))),
            (Self::Workload, word("kind")),
            (Self::Technology, has("wafer_price") && has("most_area")),
            (Self::Chip, (has("cores") && has("frequency")) || (has("style") && has("sram"))),
            (
                Self::Stack,
                has("serving")
                    || has("product_share")
                    || has("operators")
                    || has("attention")
                    || has("host_layer_forward")
                    || has("host_microbatch")
                    || has("vector_kernels_forward"),
            ),
            (Self::Link, has("bandwidth") && has("latency")),
            (Self::Memory, has("bandwidth") && (has("capacity") || has("capacity_price"))),
            (Self::Bounds, has("classes")),
            (Self::Machines, has("machines")),
        ];
        kinds.into_iter().find(|(_, is)| map && *is).map(|(kind, _)| kind)
    }

    /// The kind of a file's text; `None` where it is none of ours.
    pub fn of_text(text: &str) -> Option<Self> {
        let mut end = text.len().min(LOOKED_AT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let head = text[..end].trim_start_matches('\u{feff}').trim_start();
        if head.starts_with('{') {
            let traced = ["\"traceEvents\"", "\"schema\"", "\"deviceProperties\""];
            return traced.iter().any(|key| head.contains(key)).then_some(Self::Trace);
        }
        if head.starts_with('<') && (head.contains("<configuration") || head.contains("<Configuration")) {
            return Some(Self::Mapping);
        }
        if is_table(head) {
            return Some(Self::Table);
        }
        Node::parse("", text).ok().and_then(|node| Self::of_tree(&node))
    }

    /// What to say of a file of this kind where `due` ("a workload") is wanted.
    pub fn instead_of(self, due: &str) -> String {
        format!("this is {}, not {due}: {}", self.name(), self.taken_by())
    }
}

/// Whether a text starts with two lines of equally many fields between commas, which YAML's lines do not.
fn is_table(head: &str) -> bool {
    let mut lines = head.lines();
    let first = lines.next().unwrap_or_default();
    let word = |field: &str| {
        let field = field.trim().trim_matches('"');
        !field.is_empty() && !field.contains(['{', '}', '[', ']', ':', '#'])
    };
    let fields = first.split(',').count();
    fields >= 3
        && first.split(',').all(word)
        && lines.next().is_none_or(|second| second.matches(',').count() + 1 >= fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn each(folder: &str, found: &mut dyn FnMut(&Path)) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.extension().is_some_and(|e| e == "yaml") {
                found(&entry);
            }
        }
    }

    #[test]
    fn every_shipped_file_is_of_its_kind() {
        let folders = [
            ("systems", FileKind::System),
            ("systems/chips", FileKind::Chip),
            ("systems/memories", FileKind::Memory),
            ("systems/links", FileKind::Link),
            ("systems/cores", FileKind::Cores),
            ("systems/technologies", FileKind::Technology),
            ("systems/stacks", FileKind::Stack),
            ("workloads", FileKind::Workload),
            ("workloads/language", FileKind::Workload),
            ("studies", FileKind::Study),
        ];
        for (folder, kind) in folders {
            each(folder, &mut |path| {
                let node = super::super::Loader.load(path, None).unwrap();
                let node = super::super::Loader.expand(&node, "").unwrap();
                assert_eq!(FileKind::of_tree(&node), Some(kind), "{}", path.display());
            });
        }
    }

    #[test]
    fn texts_are_told_apart() {
        assert_eq!(FileKind::of_text("id,metric,value\n1,time,3\n"), Some(FileKind::Table));
        assert_eq!(FileKind::of_text("{\"schemaVersion\": 1, \"traceEvents\": []}"), Some(FileKind::Trace));
        assert_eq!(FileKind::of_text("kind: hpl\nn: 4\n"), Some(FileKind::Workload));
        for none in ["", "a, b\n", "{a: 1, b: 2, c: 3}\n", "x: [1, 2, 3]\n", "\u{1F600}", "- a, b, c\n  d"] {
            assert_eq!(FileKind::of_text(none), None, "{none:?}");
        }
    }
}
