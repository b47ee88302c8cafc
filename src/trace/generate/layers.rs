//! ASTRA-sim's text workloads: a line with the kind of parallelism, a line with the number of layers, and a line a layer with twelve words:
//! name, a number that is not used, then time (us), collective and bytes of the forward pass, of the gradient of the input and of that of
//! the weight, and the time of the update (not used, as Chakra does not use it).
//!
//! What depends on what is Chakra's `text_converter.py` (1.0.0, read for its rules), with two differences: a collective of kind `NONE` is no
//! node (Chakra writes an all-reduce of its bytes, nothing as a rule; what waited for it waits for what it would have waited for), and every
//! node says that it is on the device.

use super::{collective, metadata, node};
use crate::trace::chakra::{Attr, CommType, Metadata, Node, NodeType, Scalar};
use crate::trace::error::{MOST_ERRORS, TraceError, TraceErrors};
use crate::trace::input;
use std::io::Read as _;
use std::path::Path;

/// No list of layers is longer, bytes.
const LONGEST: u64 = 1 << 28;

/// How the layers are shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parallelism {
    /// Collectives alone, one a layer.
    Micro,
    /// Gradients of weights are reduced.
    Data,
    /// Results and gradients of inputs are exchanged.
    Model,
    /// Both; two names for it.
    Hybrid {
        /// The collective of an input's gradient has a name of its own.
        named: bool,
    },
    /// Tables are shared out, everything else is repeated; the last layer that the tables' exchange runs beside.
    Dlrm(usize),
}

/// Time and collective of one pass of a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    micros: u64,
    comm: Option<(CommType, i64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Layer {
    name: String,
    forward: Part,
    input: Part,
    weight: Part,
}

/// A workload in text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layers {
    parallelism: Parallelism,
    layers: Vec<Layer>,
    text: String,
}

impl Layers {
    /// Reads a file.
    ///
    /// # Errors
    /// [`TraceErrors`] with line, word and what would fit.
    pub fn read(path: &Path) -> Result<Self, TraceErrors> {
        let mut text = String::new();
        let read = input::open(path)?.take(LONGEST + 1).read_to_string(&mut text);
        read.map_err(|e| TraceError::new(path, format!("cannot be read as a list of layers: {e}")))?;
        if text.len() as u64 > LONGEST {
            return Err(TraceError::new(path, "longer than 256 MiB: this is no list of layers").into());
        }
        Self::parse(&text, path)
    }

    /// Reads a text; `path` is for messages.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, TraceErrors> {
        let at = |line: usize, message: String| TraceError::new(path, format!("line {line}: {message}"));
        let mut lines = text.lines().enumerate().map(|(i, l)| (i + 1, l.trim())).filter(|(_, l)| !l.is_empty());
        let (line, first) = lines.next().ok_or_else(|| TraceError::new(path, "the file is empty"))?;
        let words: Vec<&str> = first.split_whitespace().collect();
        let parallelism = parallelism(&words).map_err(|m| at(line, m))?;
        let (line, count) = lines.next().ok_or_else(|| at(line + 1, "expected the number of layers".into()))?;
        let count: usize =
            count.parse().map_err(|_| at(line, format!("expected the number of layers, found {count:?}")))?;
        let (mut layers, mut errors) = (Vec::new(), Vec::new());
        let mut last = line;
        for (line, words) in lines {
            last = line;
            match layer(words) {
                Ok(layer) => layers.push(layer),
                Err(message) => errors.push(at(line, message)),
            }
            if errors.len() >= MOST_ERRORS {
                break;
            }
        }
        if !errors.is_empty() {
            return Err(TraceErrors(errors));
        }
        if layers.len() != count {
            return Err(at(last, format!("{count} layers are announced, {} are there", layers.len())).into());
        }
        match parallelism {
            _ if layers.is_empty() => Err(at(last, "expected at least one layer".into()).into()),
            Parallelism::Dlrm(bottom) if bottom + 1 >= layers.len() => {
                let most = layers.len().saturating_sub(2);
                Err(at(1, format!("the last bottom layer is {bottom}; of {count} layers it may be 0 to {most}")).into())
            }
            _ => Ok(Self { parallelism, layers, text: text.replace("\r\n", "\n") }),
        }
    }

    /// Nodes of a rank, without the work of making them: an upper bound.
    pub fn most_nodes(&self, passes: u64) -> u128 {
        6 * self.layers.len() as u128 * u128::from(passes)
    }

    /// The trace of each rank.
    pub fn trace(&self, passes: u64) -> (Metadata, Vec<Node>) {
        let mut sheet = Sheet { nodes: Vec::new() };
        let mut updated = vec![None; self.layers.len()];
        for _ in 0..passes {
            match self.parallelism {
                Parallelism::Micro => self.micro(&mut sheet),
                Parallelism::Data => self.data(&mut sheet, &mut updated),
                Parallelism::Model => self.model(&mut sheet, &mut updated, false, false),
                Parallelism::Hybrid { named } => self.model(&mut sheet, &mut updated, true, named),
                Parallelism::Dlrm(bottom) => self.dlrm(&mut sheet, &mut updated, bottom),
            }
        }
        let text = |name: &str, value: &str| Attr::new(name, Scalar::String(value.into()));
        (metadata(vec![text("schema", "1.0.2-chakra.1.0.0"), text("input_file", &self.text)]), sheet.nodes)
    }

    fn micro(&self, sheet: &mut Sheet) {
        for layer in &self.layers {
            sheet.comm(&layer.name, &layer.weight, &[]);
        }
    }

    /// `updated`: what the pass before ended each layer with.
    fn data(&self, sheet: &mut Sheet, updated: &mut [Option<u64>]) {
        let mut before = None;
        for (layer, done) in self.layers.iter().zip(updated.iter()) {
            before = Some(sheet.comp(&layer.name, "FWD", &layer.forward, &[before, *done]));
        }
        for (i, (layer, done)) in self.layers.iter().zip(updated).enumerate().rev() {
            let weight = sheet.comp(&layer.name, "BWD_WG", &layer.weight, &[before]);
            *done = Some(sheet.comm(&layer.name, &layer.weight, &[Some(weight)]).unwrap_or(weight));
            if i > 0 {
                before = Some(sheet.comp(&layer.name, "BWD_IG", &layer.input, &[Some(weight)]));
            }
        }
    }

    fn model(&self, sheet: &mut Sheet, updated: &mut [Option<u64>], reduced: bool, named: bool) {
        let mut before = None;
        for (layer, done) in self.layers.iter().zip(updated.iter()) {
            let deps = if reduced { [*done, before] } else { [before, *done] };
            let comp = sheet.comp(&layer.name, "FWD", &layer.forward, &deps);
            before = Some(sheet.comm(&layer.name, &layer.forward, &[Some(comp)]).unwrap_or(comp));
        }
        let mut waits = [before, None];
        for (i, (layer, done)) in self.layers.iter().zip(updated).enumerate().rev() {
            let input = sheet.comp(&layer.name, "BWD_IG", &layer.input, &waits);
            let name = if named { format!("{}_IG_COMM_", layer.name) } else { layer.name.clone() };
            let passed = if i > 0 { sheet.comm(&name, &layer.input, &[Some(input)]) } else { None };
            let weight = sheet.comp(&layer.name, "BWD_WG", &layer.weight, &[Some(input)]);
            waits = [Some(weight), passed];
            let reduction = if reduced { sheet.comm(&layer.name, &layer.weight, &[Some(weight)]) } else { None };
            *done = Some(reduction.unwrap_or(weight));
        }
    }

    fn dlrm(&self, sheet: &mut Sheet, updated: &mut [Option<u64>], bottom: usize) {
        let (mut before, mut tables) = (None, None);
        for (i, (layer, done)) in self.layers.iter().zip(updated.iter()).enumerate() {
            let exchanged = if i == bottom { tables } else { None };
            let comp = sheet.comp(&layer.name, "FWD", &layer.forward, &[*done, before, exchanged]);
            before = Some(comp);
            if layer.forward.comm.is_some_and(|(kind, _)| kind == CommType::AllToAll) {
                let comm = sheet.comm(&layer.name, &layer.forward, &[Some(comp)]);
                tables = if i == 0 { comm } else { tables };
            }
        }
        let mut returned = None;
        for (i, (layer, done)) in self.layers.iter().zip(updated).enumerate().rev() {
            let gradients = if i == 0 { returned } else { None };
            let weight = sheet.comp(&layer.name, "BWD_WG", &layer.weight, &[before, gradients]);
            *done = Some(sheet.comm(&layer.name, &layer.weight, &[Some(weight)]).unwrap_or(weight));
            if i == 0 {
                continue;
            }
            let input = sheet.comp(&layer.name, "BWD_IG", &layer.input, &[Some(weight)]);
            before = Some(input);
            if i == bottom + 1
                && let Some(first) = self.layers.first()
            {
                returned = sheet.comm(&first.name, &first.input, &[Some(input)]);
            }
        }
    }
}

/// The nodes so far.
struct Sheet {
    nodes: Vec<Node>,
}

impl Sheet {
    fn put(&mut self, mut node: Node, deps: &[Option<u64>]) -> u64 {
        for dep in deps.iter().flatten() {
            if !node.data_deps.contains(dep) {
                node.data_deps.push(*dep);
            }
        }
        let id = node.id;
        self.nodes.push(node);
        id
    }

    fn comp(&mut self, layer: &str, phase: &str, part: &Part, deps: &[Option<u64>]) -> u64 {
        let mut node = node(self.nodes.len(), format!("COMP_NODE_{layer}_{phase}"), NodeType::Comp);
        node.duration_micros = part.micros;
        self.put(node, deps)
    }

    fn comm(&mut self, layer: &str, part: &Part, deps: &[Option<u64>]) -> Option<u64> {
        let (kind, bytes) = part.comm?;
        let name = format!("COMM_COLL_NODE_{layer}_{}", kind.name().replace('_', ""));
        Some(self.put(collective(self.nodes.len(), name, kind, bytes), deps))
    }
}

fn parallelism(words: &[&str]) -> Result<Parallelism, String> {
    Ok(match words.first().copied().unwrap_or_default() {
        "MICRO" => Parallelism::Micro,
        "DATA" => Parallelism::Data,
        "MODEL" => Parallelism::Model,
        "HYBRID_DATA_MODEL" => Parallelism::Hybrid { named: true },
        "HYBRID_MODEL_DATA" => Parallelism::Hybrid { named: false },
        kind @ ("HYBRID_DLRM" | "HYBRID_DLRM_ENHANCED") => {
            let bottom = words.get(1).and_then(|w| w.parse().ok());
            Parallelism::Dlrm(bottom.ok_or_else(|| format!("expected the last bottom layer's number after {kind}"))?)
        }
        other => {
            return Err(format!(
                "expected MICRO, DATA, MODEL, HYBRID_DATA_MODEL, HYBRID_MODEL_DATA, HYBRID_DLRM or HYBRID_DLRM_ENHANCED, found {:?}",
                other.chars().take(40).collect::<String>()
            ));
        }
    })
}

fn layer(line: &str) -> Result<Layer, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, _, rest @ ..] = words.as_slice() else {
        return Err(format!("expected 12 words, found {}", words.len()));
    };
    let [f_time, f_kind, f_bytes, i_time, i_kind, i_bytes, w_time, w_kind, w_bytes, _update, ..] = rest else {
        return Err(format!("expected 12 words, found {}", words.len()));
    };
    let part = |of: &str, time: &str, kind: &str, bytes: &str| -> Result<Part, String> {
        let micros = time.parse().map_err(|_| format!("{of}: expected a time (whole microseconds), found {time:?}"))?;
        let kind = match kind {
            "NONE" => None,
            "ALLREDUCE" => Some(CommType::AllReduce),
            "ALLGATHER" => Some(CommType::AllGather),
            "REDUCESCATTER" => Some(CommType::ReduceScatter),
            "ALLTOALL" => Some(CommType::AllToAll),
            other => {
                let known = "NONE, ALLREDUCE, ALLGATHER, REDUCESCATTER or ALLTOALL";
                return Err(format!("{of}: expected {known}, found {other:?}"));
            }
        };
        let size: Option<i64> = bytes.parse().ok().filter(|b| *b >= 0);
        let size = size.ok_or_else(|| format!("{of}: expected whole bytes, found {bytes:?}"))?;
        Ok(Part { micros, comm: kind.map(|k| (k, size)) })
    };
    Ok(Layer {
        name: (*name).to_owned(),
        forward: part("forward pass", f_time, f_kind, f_bytes)?,
        input: part("input's gradient", i_time, i_kind, i_bytes)?,
        weight: part("weight's gradient", w_time, w_kind, w_bytes)?,
    })
}
