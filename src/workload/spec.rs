//! A workload file: its `kind:` says which source builds the graph.

use super::{
    Workload, dfmodel_layer::DfmodelLayer, dlrm::DlrmSpec, explicit::GraphSpec, fft::FftSpec, hpl::HplSpec,
    huggingface, hyena::HyenaSpec, language::LanguageModel, mamba::MambaSpec, residual::ResidualSpec, trace::TraceSpec,
};
use crate::graph::GraphError;
use crate::spec::nearest::meant;
use crate::spec::{
    FileKind, FromNode, Loader, Node, Origin, Problem, Problems, Reader, Value, catalogue::Kind, schema::Definitions,
};
use crate::units::Bytes;
use serde::Serialize;
use serde_json::json;
use std::path::Path;

/// Most times that a graph is repeated: divisions of its layers into stages are looked at one by one.
const MOST_REPEATS: u64 = 1 << 20;
/// What `kind:` may be.
const KINDS: [&str; 10] =
    ["language_model", "dfmodel_layer", "dlrm", "residual_network", "mamba", "hyena", "hpl", "fft", "graph", "trace"];

/// What became of the kind that had layers alone.
const FORMER: &str = "`transformer` is no kind any more: `language_model` has the layers with embedding and head, in training (`pass: training`) and in use \
                      (`pass: inference`, `generated: TOKENS`), on every chip; the layer of DFModel's rows is `dfmodel_layer`";

/// A workload as a file states it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum WorkloadSpec {
    /// `kind: language_model`
    Language(Box<LanguageModel>),
    /// `kind: dfmodel_layer`
    Layer(DfmodelLayer),
    /// `kind: dlrm`
    Dlrm(DlrmSpec),
    /// `kind: residual_network`
    Residual(ResidualSpec),
    /// `kind: hpl`
    Hpl(HplSpec),
    /// `kind: fft`
    Fft(FftSpec),
    /// `kind: mamba`
    Mamba(MambaSpec),
    /// `kind: hyena`
    Hyena(HyenaSpec),
    /// `kind: graph`
    Graph(GraphSpec),
    /// `kind: trace`
    Trace(TraceSpec),
}

impl FromNode for WorkloadSpec {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.entries(node, "a workload")?;
        let kind = match node.get("kind").map(|n| &n.value) {
            Some(Value::Scalar { text, .. }) => text.as_str(),
            _ => "",
        };
        match kind {
            "language_model" => LanguageModel::from_node(node, reader).map(|m| Self::Language(Box::new(m))),
            "dfmodel_layer" => DfmodelLayer::from_node(node, reader).map(Self::Layer),
            "dlrm" => DlrmSpec::from_node(node, reader).map(Self::Dlrm),
            "residual_network" => ResidualSpec::from_node(node, reader).map(Self::Residual),
            "hpl" => HplSpec::from_node(node, reader).map(Self::Hpl),
            "fft" => FftSpec::from_node(node, reader).map(Self::Fft),
            "mamba" => MambaSpec::from_node(node, reader).map(Self::Mamba),
            "hyena" => HyenaSpec::from_node(node, reader).map(Self::Hyena),
            "graph" => GraphSpec::from_node(node, reader).map(Self::Graph),
            "trace" => TraceSpec::from_node(node, reader).map(Self::Trace),
            _ => {
                if let Some(other) = FileKind::of_tree(node).filter(|kind| *kind != FileKind::Workload) {
                    reader.problem(node, other.instead_of("a workload"));
                    return None;
                }
                let at = node.get("kind").unwrap_or(node);
                if kind == "transformer" {
                    reader.within("kind", |r| r.problem(at, FORMER));
                    return None;
                }
                let found = if node.get("kind").is_some() { at.describe() } else { "none".into() };
                let meant = meant(kind, &KINDS);
                let kinds = KINDS.join(", ");
                reader.within("kind", |r| {
                    r.problem(at, format!("expected a kind of workload: {kinds}, found {found}{meant}"))
                });
                None
            }
        }
    }
    fn schema(definitions: &mut Definitions) -> serde_json::Value {
        // A file that only changes another (`from:`) may fit several kinds.
        json!({ "anyOf": [
            LanguageModel::schema(definitions),
            DfmodelLayer::schema(definitions),
            DlrmSpec::schema(definitions),
            ResidualSpec::schema(definitions),
            HplSpec::schema(definitions),
            FftSpec::schema(definitions),
            MambaSpec::schema(definitions),
            HyenaSpec::schema(definitions),
            GraphSpec::schema(definitions),
            TraceSpec::schema(definitions),
        ] })
    }
    fn expected() -> String {
        "a workload".into()
    }
}

impl WorkloadSpec {
    /// Loads the tree of a workload file, or of the workload of that name in the catalogue, references followed. `trace:PATH` stands for a file of `kind: trace`
    /// ([`TraceSpec::tree`]), `hf:PATH` for the language model of a `config.json` ([`huggingface`]).
    ///
    /// # Errors
    /// The [`Problems`] of loading.
    pub fn load(path: &Path) -> Result<Node, Problems> {
        if let Some(tree) = path.to_str().and_then(TraceSpec::tree) {
            return Ok(tree);
        }
        if let Some(imported) = path.to_str().and_then(huggingface::named) {
            return Ok(imported?.tree);
        }
        let node = Loader.open(path, Some(Kind::Workload))?;
        Ok(Loader.expand_as(&node, "", Some(Kind::Workload))?)
    }

    /// The tree that a text such as `hf:config.json?seq=2048` or `trace:run.json` in a file stands for; its path is relative to that file. `None` for
    /// other texts.
    pub fn named(text: &str, at: &Origin) -> Option<Result<Node, Problems>> {
        let scheme = [huggingface::SCHEME, "trace:"].into_iter().find(|scheme| text.starts_with(scheme))?;
        let rest = &text[scheme.len()..];
        let path = Loader.resolve(at, rest.split('?').next().unwrap_or(rest));
        let fields = rest.find('?').map_or("", |start| &rest[start..]);
        let text = format!("{scheme}{}{fields}", path.display());
        TraceSpec::tree(&text).map(Ok).or_else(|| huggingface::named(&text).map(|read| read.map(|i| i.tree)))
    }

    /// The name of a model that replicas train by themselves, each with samples of its own; `None` for other kinds.
    pub fn as_replicas(&self) -> Option<&str> {
        match self {
            Self::Dlrm(d) => Some(&d.name),
            Self::Residual(r) => Some(&r.name),
            _ => None,
        }
    }

    /// The graph of such a model whose `replicas` train `samples` samples together, `at_once` of a replica's at a time, in words of so many bytes.
    pub fn of_replicas(&self, samples: u64, replicas: u64, at_once: u64, word: Bytes) -> Option<Workload> {
        let built = match self {
            // A minibatch is what a replica takes at once; an iteration has one of each replica, or several.
            Self::Dlrm(d) => {
                let global_batch = samples / at_once.max(1);
                DlrmSpec { minibatch: at_once, global_batch, micro_batch: 1, word, ..d.clone() }.build()
            }
            Self::Residual(r) => {
                ResidualSpec { global_batch: samples, micro_batch: at_once, word, ..r.clone() }.build()
            }
            _ => return None,
        };
        built.checked().ok().filter(|w| replicas > 0 && w.global_batch >= replicas)
    }

    /// Reads a tree and builds the checked graph.
    ///
    /// # Errors
    /// All [`Problems`] of the specification or of the graph.
    pub fn build(node: &Node) -> Result<Workload, Problems> {
        let spec: Self = Reader::read(node)?;
        let built = match &spec {
            Self::Layer(l) => l.build(),
            Self::Language(m) => m.build(node).map_err(Problems)?,
            Self::Dlrm(d) => d.build(),
            Self::Residual(r) => r.build(),
            Self::Hpl(h) => h.build(),
            Self::Fft(f) => f.build(),
            Self::Mamba(m) => m.build(),
            Self::Hyena(h) => h.build(),
            Self::Graph(g) => g.build(node)?,
            Self::Trace(t) => t.build(node)?,
        };
        if built.repeat > MOST_REPEATS {
            let key = ["repeat", "layers"].into_iter().find(|key| node.get(key).is_some()).unwrap_or_default();
            let at = node.get(key).unwrap_or(node);
            let message = format!("expected at most {MOST_REPEATS}, found {}", built.repeat);
            return Err(Problem { origin: at.origin.clone(), field: key.into(), message }.into());
        }
        built.checked().map_err(|errors| {
            Problems(
                errors
                    .into_iter()
                    .map(|e| {
                        let subject = match &e {
                            GraphError::Cycle(names) => names.first().cloned(),
                            GraphError::Size { kernel, .. } => Some(kernel.clone()),
                            GraphError::Phase { reader, .. } => Some(reader.clone()),
                            GraphError::Chain { kernel, .. } => Some(kernel.clone()),
                        };
                        Problem {
                            origin: kernel_origin(node, subject.as_deref()),
                            field: "kernels".into(),
                            message: e.to_string(),
                        }
                    })
                    .collect(),
            )
        })
    }
}

/// The line of the kernel called `name`, or of the file.
fn kernel_origin(node: &Node, name: Option<&str>) -> crate::spec::Origin {
    let named = |item: &&Node| match item.get("name").map(|n| &n.value) {
        Some(Value::Scalar { text, .. }) => Some(text.as_str()) == name,
        _ => false,
    };
    match node.get("kernels").map(|k| &k.value) {
        Some(Value::List(items)) => items.iter().find(named).map_or(node.origin.clone(), |n| n.origin.clone()),
        _ => node.origin.clone(),
    }
}

/// Refuses sizes above `most`, past which products leave the exact integers of `f64`.
pub(super) fn check_sizes(sizes: &[(&str, u64, u64)], node: &Node, reader: &mut Reader) {
    for (field, value, most) in sizes.iter().filter(|(_, value, most)| value > most) {
        let at = node.get(field).unwrap_or(node);
        reader.within(*field, |r| r.problem(at, format!("expected at most {most}, found {value}")));
    }
}

/// What every kind of workload demands of its batches and word.
pub(super) fn check_batches(global: u64, micro: u64, word: Bytes, node: &Node, reader: &mut Reader) {
    if micro > global {
        let at = node.get("micro_batch").unwrap_or(node);
        reader.within("micro_batch", |r| {
            r.problem(at, format!("expected at most the global_batch of {global}, found {micro}"));
        });
    }
    if word.0 <= 0.0 || word.0 > 64.0 {
        let at = node.get("word").unwrap_or(node);
        reader.within("word", |r| {
            r.problem(at, format!("expected a size above 0 B and at most 64 B, found {}", at.describe()))
        });
    }
}
