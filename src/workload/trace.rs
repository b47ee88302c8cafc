//! Recorded traces and exported graphs as workloads: `kind: trace`.

use super::explicit::GraphSpec;
use super::{Workload, write};
use crate::spec::schema::Definitions;
use crate::spec::{FromNode, Loader, Node, Origin, Problem, Problems, Reader, Value};
use crate::trace::lower::{self, Fold, Lowered, Request, host::Steps};
use crate::units::Bytes;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

crate::choice! {
    /// The word `trace`.
    pub enum Kind ("a kind of workload") {
        /// A recorded trace or an exported graph.
        Trace = "trace",
    }
}

/// Number of a step; recorders count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(transparent)]
pub struct StepNumber(pub u64);

impl FromNode for StepNumber {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let number = match &node.value {
            Value::Scalar { text, .. } => text.parse::<u64>().ok().map(Self),
            _ => None,
        };
        if number.is_none() {
            reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
        }
        number
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        serde_json::json!({ "type": "integer", "minimum": 0 })
    }
    fn expected() -> String {
        "the number of a step, a whole number of at least 0".into()
    }
}

crate::spec! {
    /// A recorded step: a PyTorch execution trace or an FX graph, whose kernels become the graph. What is left out is what
    /// the trace tells.
    pub struct TraceSpec ("a trace", check: check) {
        /// The word `trace`.
        kind: Kind,
        /// Name for rows and titles; left out: that of the model or file.
        name: Option<String>,
        /// Where the trace comes from.
        source: Option<String>,
        /// The file, plain or gzip, relative to this one.
        path: String,
        /// The Kineto trace of the same run, relative to this file: its times go to the kernels.
        kineto: Option<String>,
        /// Number of the step; left out: the one with most work.
        step: Option<StepNumber>,
        /// Fold repeated layers. Kernels outside the layers are then left out.
        fold: Fold = Fold::None,
        /// Count causal attention without the masked half.
        causal_discount: bool = false,
        /// Samples of the recorded step on one rank.
        batch: Option<u64>,
        /// Tensor-parallel degree that the trace was recorded with: sizes are scaled back by it.
        tp: Option<u64>,
        /// Data-parallel degree that the trace was recorded with.
        dp: Option<u64>,
        /// Stages of the pipeline that the trace was recorded with: folded layers are those of all stages.
        pp: Option<u64>,
        /// Expert-parallel degree that the trace was recorded with: the experts of all ranks are held.
        ep: Option<u64>,
        /// Bytes of one element.
        word: Option<Bytes>,
        /// Samples of one iteration; left out: those of the recorded step on all replicas.
        global_batch: Option<u64>,
        /// Samples of one microbatch; left out: those of the recorded step on one rank.
        micro_batch: Option<u64>,
    }
}

fn check(spec: &TraceSpec, node: &Node, reader: &mut Reader) {
    if spec.path.is_empty() {
        reader.within("path", |r| r.problem(node.get("path").unwrap_or(node), "no file is named"));
    }
    for (field, message) in lower::sound::numbers(&spec.request()) {
        let at = node.get(field).unwrap_or(node);
        reader.within(field, |r| r.problem(at, message));
    }
}

/// Graphs made so far, by content of the file and request: the points of a study ask for the same one many times.
static MADE: LazyLock<Mutex<HashMap<[u8; 32], Workload>>> = LazyLock::new(Mutex::default);
/// Most graphs kept.
const MOST_KEPT: usize = 64;

impl TraceSpec {
    /// The tree that `trace:PATH` stands for; `None` for other texts. Fields may follow as in a URL:
    /// `trace:run/host.json.gz?fold=layer&global_batch=64`.
    pub fn tree(text: &str) -> Option<Node> {
        let rest = text.strip_prefix("trace:")?;
        let origin = Origin::named("<command line>");
        let (path, fields) = rest.split_once('?').unwrap_or((rest, ""));
        let mut node = Node { origin: origin.clone(), value: Value::Map(Vec::new()) };
        node.set("kind", origin.clone(), Node::scalar("trace", origin.clone()));
        node.set(
            "path",
            origin.clone(),
            Node { origin: origin.clone(), value: Value::Scalar { text: path.into(), quoted: true } },
        );
        for field in fields.split('&').filter(|f| !f.is_empty()) {
            let (key, value) = field.split_once('=').unwrap_or((field, "true"));
            node.set(key, origin.clone(), Node::scalar(value, origin.clone()));
        }
        Some(node)
    }

    /// How the trace is lowered.
    pub fn request(&self) -> Request {
        Request {
            steps: self.step.map_or(Steps::Steady, |step| Steps::Number(step.0)),
            causal_discount: self.causal_discount,
            fold: self.fold,
            batch: self.batch,
            tp: self.tp,
            dp: self.dp,
            pp: self.pp,
            ep: self.ep,
            word: self.word.map(|w| w.0),
            global_batch: self.global_batch,
            micro_batch: self.micro_batch,
            kineto: self.kineto.as_ref().map(PathBuf::from),
        }
    }

    /// The file, relative to the one that names it.
    pub fn file(&self, node: &Node) -> PathBuf {
        let origin = node.get("path").map_or(&node.origin, |n| &n.origin);
        Loader.resolve(origin, &self.path)
    }

    /// The Kineto trace, relative to the file that names it.
    pub fn device(&self, node: &Node) -> Option<PathBuf> {
        let origin = node.get("kineto").map_or(&node.origin, |n| &n.origin);
        self.kineto.as_ref().map(|path| Loader.resolve(origin, path))
    }

    /// Reads and lowers the trace.
    ///
    /// # Errors
    /// All faults of the file; why it cannot be lowered.
    pub fn lower(&self, node: &Node) -> Result<Lowered, Problems> {
        let path = self.file(node);
        let origin = node.get("path").map_or(node.origin.clone(), |n| n.origin.clone());
        let problem = |message: String| Problem { origin: origin.clone(), field: "path".into(), message };
        let request = Request { kineto: self.device(node), ..self.request() };
        let program = lower::load(&path, &request)
            .map_err(|errors| Problems(errors.0.iter().map(|e| problem(e.to_string())).collect()))?;
        let mut lowered = lower::lower(&program, &request)
            .map_err(|e| Problems(vec![problem(format!("{}: {e}", path.display()))]))?;
        if let Some(name) = &self.name {
            lowered.workload.name.clone_from(name);
        }
        Ok(lowered)
    }

    /// The graph, as it would be read from the file that [`write`](write::graph) writes: so both map alike.
    ///
    /// # Errors
    /// As [`Self::lower`].
    pub fn build(&self, node: &Node) -> Result<Workload, Problems> {
        let key = self.key(node);
        if let Some(key) = key
            && let Some(found) = MADE.lock().unwrap_or_else(PoisonError::into_inner).get(&key)
        {
            return Ok(found.clone());
        }
        let lowered = self.lower(node)?;
        let (_, workload) = explicit(&lowered.workload, &self.source_text())?;
        if let Some(key) = key {
            let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
            if made.len() >= MOST_KEPT {
                made.clear();
            }
            made.insert(key, workload.clone());
        }
        Ok(workload)
    }

    /// What to write as the source of the graph.
    pub fn source_text(&self) -> String {
        let file = Path::new(&self.path).file_name().and_then(|n| n.to_str()).unwrap_or(&self.path);
        match &self.source {
            Some(source) => format!("{source} ({file})"),
            None => format!("recorded: {file}"),
        }
    }

    /// A hash of the file's content and of the request; `None` if the file cannot be read (lowering will say why).
    fn key(&self, node: &Node) -> Option<[u8; 32]> {
        let content = std::fs::read(self.file(node)).ok()?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&content);
        if let Some(device) = self.device(node) {
            hasher.update(&std::fs::read(device).ok()?);
        }
        hasher.update(format!("{:?} {:?} {}", self.request(), self.name, self.source_text()).as_bytes());
        Some(*hasher.finalize().as_bytes())
    }
}

/// A graph written out and read again: its tree and the graph.
///
/// # Errors
/// What the reader of graph files refuses.
pub fn explicit(workload: &Workload, source: &str) -> Result<(Node, Workload), Problems> {
    let text = write::graph(workload, source);
    let node = Node::parse("<trace>", &text).map_err(|p| Problems(vec![p]))?;
    let spec: GraphSpec = Reader::read(&node)?;
    let built = spec.build(&node)?;
    let checked = built.checked().map_err(|errors| {
        Problems(
            errors
                .into_iter()
                .map(|e| Problem { origin: node.origin.clone(), field: "kernels".into(), message: e.to_string() })
                .collect(),
        )
    })?;
    Ok((node, checked))
}
