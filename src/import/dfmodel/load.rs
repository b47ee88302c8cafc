//! Which kind of file it is, text or binary, and of which generation.

use super::schema::Generation;
use super::tree::{Fault, Faults, Message, Place, Value};
use super::{Note, text, typed, wire};

/// The two notations of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// Text protobuf: `setup.txt`, `dse.txt`.
    Text,
    /// Binary protobuf: `dse.pb`.
    Binary,
}

/// A file as read.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Its generation.
    pub generation: Generation,
    /// Whether the file says so, or the user; false where two generations read it alike.
    pub certain: bool,
    /// Its notation.
    pub notation: Notation,
    /// Its fields.
    pub message: Message,
    /// Unknown fields that were skipped.
    pub notes: Vec<Note>,
}

/// Largest file read: DFModel's largest are a few MB.
const MAX_BYTES: usize = 256 << 20;

/// In which order generations are preferred that read a file equally well. `perfect-overlap` and `overlap` differ in one
/// field that both may lack; of the others only damaged files are read alike.
const PREFERENCE: [Generation; 9] = [
    Generation::PerfectOverlap,
    Generation::Overlap,
    Generation::Training,
    Generation::Parallel,
    Generation::Variant,
    Generation::Flat,
    Generation::Torus,
    Generation::Batch,
    Generation::Miscellany,
];

/// Reads the bytes of `file`. With `skip_unknown`, fields that no schema has become notes instead of faults.
///
/// # Errors
/// All [`Faults`] under the generation that fits best, or under the one asked for.
pub fn load(file: &str, bytes: &[u8], asked: Option<Generation>, skip_unknown: bool) -> Result<Loaded, Faults> {
    let refuse = |message: String| Faults { file: file.into(), list: vec![Fault::whole(message)] };
    if bytes.len() > MAX_BYTES {
        return Err(refuse(format!("{} bytes; expected at most {MAX_BYTES}", bytes.len())));
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(refuse("the file is empty; a DSE message is due, as text or binary".into()));
    }
    let notation = notation(file, bytes);
    let mut fields = Vec::new();
    let mut syntax = Vec::new();
    if notation == Notation::Text {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(e) => {
                let at = e.valid_up_to();
                let message = "not UTF-8, so no text; a binary file's name ends in .pb".to_string();
                return Err(Faults { file: file.into(), list: vec![Fault::at(Place::Byte(at), "", message)] });
            }
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if is_csv(file, text) {
            return Err(refuse(CSV.into()));
        }
        (fields, syntax) = text::read(text);
        if fields.first().is_some_and(|f| f.name == "kernels" || f.name == "connections") {
            return Err(refuse(GRAPH_ALONE.into()));
        }
    }

    let read = |generation: Generation| -> Option<(Message, Vec<Fault>)> {
        let desc = generation.descriptor()?;
        Some(match notation {
            Notation::Binary => wire::read(&desc, bytes),
            Notation::Text => {
                let mut faults = Vec::new();
                let message = typed::message(&desc, &fields, "", &mut faults);
                (message, faults)
            }
        })
    };
    let tried: Vec<Generation> = asked.map_or(PREFERENCE.to_vec(), |g| vec![g]);
    let mut best: Option<(usize, Generation, Message, Vec<Fault>)> = None;
    let mut equals = 0;
    for generation in tried {
        let Some((message, faults)) = read(generation) else { continue };
        let unread: usize = faults.iter().map(|f| f.weight).sum();
        let score = 2 * unread + usize::from(implausible(&message));
        match &best {
            Some((least, ..)) if score > *least => {}
            // `miscellany` differs from its successor in name alone, so no binary file tells them apart; `parallel` has the fields of
            // `training` and more.
            Some((least, ..)) if score == *least => {
                equals += usize::from(!matches!(generation, Generation::Miscellany | Generation::Parallel));
            }
            _ => {
                best = Some((score, generation, message, faults));
                equals = 0;
            }
        }
    }
    let Some((_, generation, message, found)) = best else {
        return Err(refuse("internal error, please report it: this build has no schemas of DFModel".into()));
    };
    // Behind a broken bracket fields stand in the wrong message, so that naming them would mislead.
    let found = if syntax.is_empty() { found } else { Vec::new() };
    let mut faults = syntax;
    let mut notes = Vec::new();
    let mut skipped = false;
    for fault in found {
        if fault.unknown && skip_unknown {
            notes.push(Note::ignored(fault.field.clone(), fault.place, fault.message));
        } else {
            skipped |= fault.unknown;
            faults.push(fault);
        }
    }
    if !faults.is_empty() {
        faults.sort_by_key(|f| f.place);
        if skipped {
            faults.push(Fault::whole(format!(
                "read as generation {generation}, which fits best; --generation names another, --skip-unknown leaves such fields out"
            )));
        } else if notation == Notation::Binary && bytes.iter().all(|b| matches!(b, 9 | 10 | 13 | 32..=126)) {
            faults.push(Fault::whole("it looks like a text: the name of a text file ends in .txt"));
        }
        return Err(Faults { file: file.into(), list: faults });
    }
    let certain = asked.is_some() || (equals == 0 && notation == Notation::Text);
    Ok(Loaded { generation, certain, notation, message, notes })
}

/// Text or binary: by the name of the file, else by control characters, which every binary file has.
fn notation(file: &str, bytes: &[u8]) -> Notation {
    let ending = file.rsplit_once('.').map(|(_, e)| e.to_ascii_lowercase()).unwrap_or_default();
    match ending.as_str() {
        "pb" | "bin" => Notation::Binary,
        "txt" | "pbtxt" | "textproto" | "prototxt" | "csv" => Notation::Text,
        _ if std::str::from_utf8(bytes).is_err() => Notation::Binary,
        _ if bytes.iter().any(|b| *b < 32 && !b.is_ascii_whitespace()) => Notation::Binary,
        _ => Notation::Text,
    }
}

/// Why the files of the first version are not read.
const CSV: &str = "a CSV table of DFModel's first version (accelerator, system, topology, cost, kernels, connections and buffers in \
files of their own), which is not read: it has neither the sizes of the operands nor the settings of a run. Write the workload \
as `kind: graph` (columns name, outer, M, K, N and connections.csv are its kernels) and the system as systems/*.yaml; docs/import.md \
says which column goes where";

/// Why the output of a generator alone is not read.
const GRAPH_ALONE: &str = "kernels and connections without `dataflow_graph { ... }` around them: the output of one of DFModel's \
generators. A setup holds it, and system, cost and execution beside it; put them together as DFModel's README does";

fn is_csv(file: &str, text: &str) -> bool {
    let first = text.lines().find(|l| !l.trim().is_empty()).unwrap_or_default();
    let heads = ["name;", "startidx;", "link_unit_price;"];
    file.to_ascii_lowercase().ends_with(".csv")
        || heads.iter().any(|h| first.trim().to_ascii_lowercase().starts_with(h))
}

/// Whether a file of the first kind has a topology without sizes, as when `single_chip` is read as the ring that took its
/// number later.
fn implausible(message: &Message) -> bool {
    let Some(system) = message.fields.iter().find(|f| f.name() == "system") else { return false };
    let Value::Message(system) = &system.value else { return false };
    system.fields.iter().any(|f| match &f.value {
        Value::Message(m) => m.desc.name() == "Dimensions" && m.fields.is_empty(),
        _ => false,
    })
}
