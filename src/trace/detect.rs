//! Which format a file has, by its content.

use super::chakra::CommGroups;
use super::error::{TraceError, TraceErrors};
use super::json::{Cutter, JsonFault};
use super::{chakra, host, input, kineto};
use crate::spec::FileKind;
use std::io::{Chain, Cursor, Read};
use std::path::Path;

/// Formats of trace files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Chakra, binary (`.et`).
    Chakra,
    /// Chakra as protocol buffers' JSON: a list, lines, or one object after another.
    ChakraJson,
    /// Chakra as the feeder's JSON (`workload_graph`).
    FeederJson,
    /// Chakra as text protobuf.
    ChakraText,
    /// PyTorch's execution trace.
    Host,
    /// Kineto's Chrome trace.
    Kineto,
    /// `comm_group.json`.
    CommGroups,
    /// A graph of ATen nodes exported from Torch FX.
    TorchFx,
}

impl Format {
    /// A name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chakra => "Chakra .et",
            Self::ChakraJson => "Chakra JSON",
            Self::FeederJson => "Chakra feeder JSON",
            Self::ChakraText => "Chakra text protobuf",
            Self::Host => "PyTorch execution trace",
            Self::Kineto => "Kineto trace",
            Self::CommGroups => "communication groups",
            Self::TorchFx => "Torch FX graph",
        }
    }
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Loaded {
    /// A Chakra trace, whatever its form.
    Chakra(chakra::Trace),
    /// PyTorch's execution trace.
    Host(host::HostTrace),
    /// Kineto's trace.
    Kineto(kineto::KinetoTrace),
    /// Process groups.
    CommGroups(CommGroups),
}

/// Detects and reads a file.
///
/// # Errors
/// [`TraceErrors`]: what cannot be read, with byte, node and field; a format that no reader here is for, by its name.
pub fn load(path: &Path) -> Result<(Format, Loaded), TraceErrors> {
    let format = detect(path)?;
    Ok((
        format,
        match format {
            Format::Chakra => Loaded::Chakra(chakra::read(path)?),
            Format::ChakraJson | Format::FeederJson => Loaded::Chakra(chakra::json::read(path)?),
            Format::ChakraText => Loaded::Chakra(chakra::text::read(path)?),
            Format::Host => Loaded::Host(host::read(path)?),
            Format::Kineto => Loaded::Kineto(kineto::read(path)?),
            Format::CommGroups => Loaded::CommGroups(CommGroups::read(path)?),
            Format::TorchFx => {
                return Err(TraceError::new(
                    path,
                    "this is a graph exported from Torch FX; it is a workload, not a recorded trace: use it with `flowspace map`",
                )
                .into());
            }
        },
    ))
}

/// Reads a Chakra trace in any of its forms.
///
/// # Errors
/// As [`load`]; a file of another format is refused by that format's name.
pub fn load_chakra(path: &Path) -> Result<chakra::Trace, TraceErrors> {
    match load(path)? {
        (_, Loaded::Chakra(trace)) => Ok(trace),
        (format, _) => Err(TraceError::new(
            path,
            format!(
                "expected a Chakra trace, found a file of format \"{}\" (`flowspace trace convert` makes one)",
                format.name()
            ),
        )
        .into()),
    }
}

/// Which format a file has.
///
/// # Errors
/// [`TraceError`] when it cannot be opened, or is of no known format.
pub fn detect(path: &Path) -> Result<Format, TraceError> {
    let fault = |e: std::io::Error| TraceError::new(path, format!("cannot be read: {e}"));
    let mut source = input::open(path)?;
    let mut head = Vec::new();
    source.by_ref().take(1 << 12).read_to_end(&mut head).map_err(fault)?;
    let snapshot = [&b"\"device_traces\""[..], b"\"segments\""].iter().any(|k| head.windows(k.len()).any(|w| w == *k));
    let unknown = || {
        if snapshot {
            return TraceError::new(
                path,
                "this is a snapshot of a device's memory (torch.cuda.memory), which is no trace of operators: record one with torch.profiler",
            );
        }
        TraceError::new(
            path,
            "this JSON is no trace: expected `traceEvents` (Kineto), `schema` and `nodes` (PyTorch's execution trace), \
             `workload_graph` (Chakra's feeder) or Chakra's protobuf JSON",
        )
    };
    match opening(&head) {
        Opening::Empty => Err(TraceError::new(path, "the file is empty")),
        Opening::Binary => Ok(Format::Chakra),
        Opening::Text => Ok(Format::ChakraText),
        Opening::Other(line) => Err(TraceError::new(
            path,
            match FileKind::of_text(&String::from_utf8_lossy(&head)) {
                Some(kind) => kind.instead_of("a recorded trace"),
                None => format!(
                    "expected a trace (Chakra .et, JSON or text protobuf; PyTorch or Kineto JSON), found a text that begins with {line:?}"
                ),
            },
        )),
        Opening::Json => {
            let mut cutter = Cutter::new(Cursor::new(head).chain(source));
            match of_json(&mut cutter) {
                Ok(Some(format)) => Ok(format),
                Ok(None) => Err(unknown()),
                Err(e) => Err(TraceError::new(path, e.message).at(e.byte)),
            }
        }
    }
}

/// What a file is instead of what a reader took it for: the fault of [`detect`] or another format, where that finds one, else the reader's own.
pub(crate) fn instead(path: &Path, wanted: Format, faults: TraceErrors) -> TraceErrors {
    match detect(path) {
        Ok(found) if found == wanted => faults,
        Ok(found) => {
            let what = format!("expected a {}, found a file of format {:?}", wanted.name(), found.name());
            TraceError::new(path, what).into()
        }
        Err(fault) => fault.into(),
    }
}

enum Opening {
    Empty,
    Binary,
    Text,
    Json,
    /// A text of no known format, with its first line.
    Other(String),
}

/// The first bytes: a binary trace may begin with a byte that looks like a blank or a brace, but not with two such in a row.
fn opening(head: &[u8]) -> Opening {
    let mut rest = head.iter().copied().skip_while(u8::is_ascii_whitespace).peekable();
    let Some(first) = rest.next() else {
        return if head.is_empty() { Opening::Empty } else { Opening::Json };
    };
    let second = rest.find(|b| !b.is_ascii_whitespace());
    match (first, second) {
        (b'{', None | Some(b'"' | b'}')) | (b'[', None | Some(b'{' | b']')) => Opening::Json,
        _ => {
            let trimmed = head.trim_ascii_start();
            let words: [&[u8]; 3] = [b"metadata", b"node", b"#"];
            if words.iter().any(|w| trimmed.starts_with(w)) {
                Opening::Text
            } else if is_prose(head) {
                let line = trimmed.split(|b| *b == b'\n').next().unwrap_or_default();
                Opening::Other(String::from_utf8_lossy(line).trim_end().chars().take(40).collect())
            } else {
                Opening::Binary
            }
        }
    }
}

/// Whether nothing but a text begins like this. Every node of a `.et` has bytes that no text has (tags 8 and 18); metadata alone that would look
/// like a text has never been written.
fn is_prose(head: &[u8]) -> bool {
    if head.len() < 64 {
        return head.iter().all(|b| matches!(b, b'\t' | b'\n' | b'\r' | b' '..=b'~'));
    }
    head.iter().all(|b| matches!(b, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..))
        && std::str::from_utf8(&head[..head.len().min(64)]).map_or_else(|e| e.valid_up_to() > 60, |_| true)
}

fn of_json<R: Read>(cutter: &mut Cutter<Chain<Cursor<Vec<u8>>, R>>) -> Result<Option<Format>, JsonFault> {
    if cutter.peek()? == Some(b'[') {
        cutter.enter_array()?;
        return Ok(match cutter.element(true)? {
            Some((_, text)) if has_key(text, "ph") => Some(Format::Kineto),
            Some((_, text)) if text.first() == Some(&b'{') => Some(Format::ChakraJson),
            _ => None,
        });
    }
    cutter.enter_object()?;
    let mut keys: Vec<String> = Vec::new();
    let mut groups = true;
    while let Some(key) = cutter.key(keys.is_empty())? {
        match key.as_str() {
            "traceEvents" | "schemaVersion" | "deviceProperties" | "distributedInfo" => {
                return Ok(Some(Format::Kineto));
            }
            "schema" => return Ok(Some(Format::Host)),
            "workload_graph" => return Ok(Some(Format::FeederJson)),
            "format" => {
                let (_, value) = cutter.value()?;
                if String::from_utf8_lossy(value).contains("fx") {
                    return Ok(Some(Format::TorchFx));
                }
            }
            _ => {
                groups &= cutter.peek()? == Some(b'[') && key.parse::<i64>().is_ok();
                cutter.value()?;
            }
        }
        keys.push(key);
        if keys.len() > 10_000 && !groups {
            return Ok(None);
        }
    }
    let chakra = ["version", "attr", "id", "name", "type"];
    Ok(if keys.is_empty() {
        // Empty metadata, if a node follows.
        (cutter.peek()? == Some(b'{')).then_some(Format::ChakraJson)
    } else if groups {
        Some(Format::CommGroups)
    } else if keys.iter().all(|k| chakra.contains(&k.as_str()) || cutter_known(k)) {
        Some(Format::ChakraJson)
    } else {
        None
    })
}

/// Other keys of a node in protocol buffers' JSON.
fn cutter_known(key: &str) -> bool {
    [
        "ctrlDeps",
        "dataDeps",
        "startTimeMicros",
        "durationMicros",
        "inputs",
        "outputs",
        "ctrl_deps",
        "data_deps",
        "start_time_micros",
        "duration_micros",
    ]
    .contains(&key)
}

fn has_key(text: &[u8], wanted: &str) -> bool {
    let mut cutter = Cutter::new(text);
    let mut look = || -> Result<bool, JsonFault> {
        cutter.enter_object()?;
        let mut first = true;
        while let Some(key) = cutter.key(first)? {
            first = false;
            if key == wanted {
                return Ok(true);
            }
            cutter.value()?;
        }
        Ok(false)
    };
    look().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_told_from_binary_traces() {
        let layers = "MODEL\t\n6\t\nlayer_64_1_mlp0\t-1\t32291\tALLGATHER\t37632\t32291\tALLREDUCE\t37632\t12864\n";
        assert!(matches!(opening(layers.as_bytes()), Opening::Other(line) if line == "MODEL"));
        let program = format!("\"\"\"A program.\n{}", "x = 1\n".repeat(20));
        assert!(matches!(opening(program.as_bytes()), Opening::Other(_)));
        // Metadata with a version of 32 letters announces its length with a quotation mark; a node follows.
        let mut binary = b"\"\n ".to_vec();
        binary.extend([b'a'; 32]);
        binary.extend([4, 8, 1, 40, 4]);
        binary.extend([b'b'; 64]);
        assert!(matches!(opening(&binary), Opening::Binary));
        assert!(matches!(opening(b"node { id: 1 }"), Opening::Text));
        assert!(matches!(opening(b""), Opening::Empty));
    }
}
