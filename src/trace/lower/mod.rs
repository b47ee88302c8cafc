//! From a recorded step to a workload: [`load`] opens a trace or graph as a [`Program`], [`lower`] turns it into a
//! kernel / tensor graph with the sizes of one sample, unsharded, and folds its layers.

pub mod build;
mod callers;
pub mod coverage;
pub mod fold;
pub mod host;
pub mod measured;
mod microbatch;
pub mod parallel;
pub mod program;
pub mod recover;
pub mod report;
pub mod sound;
pub mod views;

use super::{TraceError, TraceErrors, chakra, detect, fx, input, kineto, link, ops::Options};
use crate::graph::Workload;
use coverage::Coverage;
use host::Steps;
use program::Program;
use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

crate::choice! {
    /// Whether repeated layers are folded.
    pub enum Fold ("a folding") {
        /// Every kernel of the step, `repeat: 1`.
        None = "none",
        /// The repeated layer alone, with its `repeat`; kernels before and after the layers are left out and reported.
        Layer = "layer",
    }
}

/// How a trace is lowered. `None` of a number: as the trace tells.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Which step.
    pub steps: Steps,
    /// FLOP of causal attention without the masked half.
    pub causal_discount: bool,
    /// Fold layers.
    pub fold: Fold,
    /// Samples of the recorded step on one rank.
    pub batch: Option<u64>,
    /// Tensor-parallel degree of the recording.
    pub tp: Option<u64>,
    /// Data-parallel degree of the recording.
    pub dp: Option<u64>,
    /// Stages of the recorded pipeline.
    pub pp: Option<u64>,
    /// Expert-parallel degree of the recording.
    pub ep: Option<u64>,
    /// Bytes of one element.
    pub word: Option<f64>,
    /// Samples of one iteration.
    pub global_batch: Option<u64>,
    /// Samples of one microbatch.
    pub micro_batch: Option<u64>,
    /// The Kineto trace of the same run, whose times go to the kernels.
    pub kineto: Option<PathBuf>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            steps: Steps::Steady,
            causal_discount: false,
            fold: Fold::None,
            batch: None,
            tp: None,
            dp: None,
            pp: None,
            ep: None,
            word: None,
            global_batch: None,
            micro_batch: None,
            kineto: None,
        }
    }
}

/// A workload made of a trace, and what there is to know about it.
#[derive(Debug, Clone)]
pub struct Lowered {
    /// The checked graph.
    pub workload: Workload,
    /// FLOP and bytes by operator, and what is unknown.
    pub coverage: Coverage,
    /// Degrees of the recording.
    pub parallel: parallel::Parallel,
    /// Samples of one microbatch of the recorded step on one rank.
    pub batch: u64,
    /// Microbatches of the recorded step, each of `batch` samples: the graph is one of them.
    pub microbatches: u64,
    /// Calls not in the graph.
    pub left_out: build::LeftOut,
    /// FLOP of a sample of the unfolded graph.
    pub unfolded_flop: f64,
    /// Kernels of the unfolded graph.
    pub unfolded_kernels: usize,
    /// What folding found, if it was asked for.
    pub folded: Option<fold::Folded>,
    /// Remarks for the reader.
    pub notes: Vec<String>,
}

/// How a field of a request is given: in words for a message.
pub(super) fn given(field: &str) -> String {
    format!("`--{0}`, or `?{field}=` of a reference", field.replace('_', "-"))
}

/// Kinds of file that can be lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// PyTorch execution trace.
    Host,
    /// FX graph.
    Fx,
    /// Kineto trace.
    Kineto,
    /// A host and a device trace, linked (`flowspace trace link`).
    Linked,
}

/// Tells the kind of a file from its first 64 KiB.
///
/// # Errors
/// When it cannot be read, or is none of them.
pub fn kind(path: &Path) -> Result<FileKind, TraceErrors> {
    let mut head = Vec::new();
    input::open(path)?
        .take(1 << 16)
        .read_to_end(&mut head)
        .map_err(|e| TraceError::new(path, format!("cannot be read: {e}")))?;
    if head.trim_ascii().is_empty() {
        return Err(TraceError::new(path, "the file is empty").into());
    }
    let text = String::from_utf8_lossy(&head);
    let binary = !matches!(head.trim_ascii_start().first(), Some(b'{' | b'['));
    if binary && text.contains(link::file::MARK) {
        Ok(FileKind::Linked)
    } else if text.contains("aten-fx-json") {
        Ok(FileKind::Fx)
    } else if ["\"traceEvents\"", "\"schemaVersion\"", "\"deviceProperties\""].iter().any(|w| text.contains(w)) {
        Ok(FileKind::Kineto)
    } else if text.contains("\"schema\"") || text.contains("\"nodes\"") {
        Ok(FileKind::Host)
    } else if binary && chakra::Reader::new(std::io::Cursor::new(head), path).is_ok() {
        Err(TraceError::new(
            path,
            "a Chakra trace names no tensors and no shapes, so FLOP and bytes cannot be told; give the PyTorch execution trace it was \
             made of, or a trace linked by `flowspace trace link --host HOST --device KINETO`",
        )
        .into())
    } else {
        let none =
            "expected a PyTorch execution trace, an FX graph (aten-fx-json/1) or a linked trace, found none of them";
        Err(detect::detect(path).err().unwrap_or_else(|| TraceError::new(path, none)).into())
    }
}

/// Opens a trace or graph as a program.
///
/// # Errors
/// All faults of the file; a step that is not there; a Kineto trace without shapes, which names no tensors.
pub fn load(path: &Path, request: &Request) -> Result<Program, TraceErrors> {
    let options = Options { causal_discount: request.causal_discount };
    let kind = kind(path)?;
    if let (Some(device), FileKind::Fx | FileKind::Linked | FileKind::Kineto) = (&request.kineto, kind) {
        let what = match kind {
            FileKind::Fx => "an FX graph",
            FileKind::Linked => "a linked trace, which has its times,",
            _ => "another, which has its own times,",
        };
        return Err(TraceError::new(device, format!("a Kineto trace beside {what} is of no use: leave it out"))
            .field("kineto")
            .into());
    }
    let stem = path.file_name().and_then(|n| n.to_str()).map_or("trace", |n| n.split('.').next().unwrap_or(n));
    let program = match kind {
        FileKind::Fx => fx::read(path, &options)?,
        FileKind::Host => {
            let mut trace = super::host::read(path)?;
            let linked = request.kineto.as_deref().map(|device| times(&trace, device)).transpose()?;
            let uncertain = match &linked {
                Some((_, callers)) => callers::by_time(&mut trace, callers),
                None => {
                    sound::host(&trace, path)?;
                    callers::mend(&mut trace)
                }
            };
            if linked.is_some() {
                sound::host(&trace, path)?;
            }
            let mut program = host::program_with(
                &trace,
                stem,
                request.steps,
                &options,
                &|node| node.dur_us.and_then(|d| (d >= 0).then_some(d as f64 * 1e-6)),
                linked.as_ref().map(|(measured, _)| measured),
            )
            .map_err(|e| TraceError::new(path, e))?;
            program.notes.extend(trace.warnings);
            program.uncertain = uncertain;
            program
        }
        FileKind::Linked => {
            let linked = link::file::read(path)?;
            of_linked(&linked, path, stem, request, &options)?
        }
        FileKind::Kineto => {
            let device = kineto::read(path)?;
            let (linked, _) =
                link::link(None, &device, &link::Steps::All).map_err(|e| TraceError::new(path, e.to_string()))?;
            of_linked(&linked, path, stem, request, &options)?
        }
    };
    sound::program(&program, path)?;
    Ok(program)
}

/// A linked trace as a program. Of a device trace alone the operators' arguments have sizes but no identity: no kernel hands anything on.
fn of_linked(
    linked: &link::LinkedTrace,
    path: &Path,
    stem: &str,
    request: &Request,
    options: &Options,
) -> Result<Program, TraceErrors> {
    let trace = link::unlink::host_trace(linked, path)?;
    sound::host(&trace, path)?;
    if linked.host_schema.is_none() && trace.nodes.iter().all(|n| n.input_tensors().next().is_none()) {
        return Err(TraceError::new(
            path,
            "this trace was recorded without a host trace and without shapes, so it names no tensors: record it with \
             `profile(record_shapes=True)`, or give the execution trace of the same run (ExecutionTraceObserver) with this file as `--kineto` \
             (`?kineto=` of a reference), or link the two (`flowspace trace link --host HOST --device THIS`)",
        )
        .into());
    }
    let measured = measured::Measured::of(linked);
    let mut program = host::program_with(&trace, stem, request.steps, options, &|_| None, Some(&measured))
        .map_err(|e| TraceError::new(path, e))?;
    if linked.host_schema.is_none() {
        program.notes.push(
            "a Kineto trace alone gives tensors sizes but no identity: each kernel reads and writes memory of its own, and nothing says which \
             one hands what to which; the execution trace of the same run would (ExecutionTraceObserver; this file is then its `--kineto`)"
                .into(),
        );
    }
    Ok(program)
}

/// The times of a Kineto trace, by the nodes of the host trace of the same run, and who called these nodes by time.
fn times(
    trace: &super::host::HostTrace,
    device: &Path,
) -> Result<(measured::Measured, HashMap<u64, u64>), TraceErrors> {
    let device_trace = kineto::read(device)?;
    let (linked, _) = link::link(Some(trace), &device_trace, &link::Steps::All)
        .map_err(|e| TraceError::new(device, e.to_string()).field("kineto"))?;
    Ok((measured::Measured::of(&linked), link::unlink::callers(&linked)))
}

/// Lowers a program.
///
/// # Errors
/// What is wrong with the request or the graph, in words.
pub fn lower(program: &Program, request: &Request) -> Result<Lowered, String> {
    let coverage = coverage::coverage(program);
    let recorded = program;
    let split = microbatch::split(program);
    let microbatches = split.as_ref().map_or(1, |(count, _)| *count);
    let program = split.as_ref().map_or(program, |(_, one)| one);
    sound::request(program, request)?;
    let mut parallel =
        parallel::find(program, parallel::Asked { tp: request.tp, dp: request.dp, pp: request.pp, ep: request.ep });
    if split.is_some() {
        parallel.recovered.table = recover::recover(recorded).table;
    }
    let batch = request.batch.unwrap_or_else(|| build::batch(program)).max(1);
    let mut notes = program.notes.clone();
    if request.batch.is_none() && batch == 1 && program.batch != Some(1) {
        notes.push(format!(
            "no size divides every product of the forward pass: the whole step is one sample (otherwise {})",
            given("batch")
        ));
    }
    let word = request.word.unwrap_or_else(|| common_word(program));
    let built = build::build(program, &parallel, batch, (word, request.word.is_none()));
    if built.workload.kernels.is_empty() {
        return Err(format!(
            "the step has no kernel of a forward or backward pass; another one may have ({})",
            given("step")
        ));
    }
    let mut whole = built.workload;
    whole.global_batch = request.global_batch.unwrap_or(batch.saturating_mul(parallel.dp).saturating_mul(microbatches));
    if let Some(micro) = request.micro_batch.filter(|m| *m > whole.global_batch) {
        let global = whole.global_batch;
        return Err(format!(
            "micro_batch: expected at most the {global} samples of an iteration, found {micro}; more samples: {}",
            given("global_batch")
        ));
    }
    whole.micro_batch = request.micro_batch.unwrap_or(batch).min(whole.global_batch).max(1);
    let whole = whole
        .checked()
        .map_err(|errors| errors.iter().take(20).map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    let (unfolded_flop, unfolded_kernels) =
        (whole.kernels.iter().map(crate::graph::Kernel::flop).sum(), whole.kernels.len());
    let (workload, folded) = match request.fold {
        Fold::None => (whole, None),
        Fold::Layer => {
            let (w, f) = fold::fold(&whole, parallel.pp <= 1).map_err(|e| {
                format!(
                    "no repeated layer to fold: {e}; `--fold none` (`fold: none`, or no `?fold=`) takes the whole step"
                )
            })?;
            (w, Some(f))
        }
    };
    let workload = stages(workload, &parallel, folded.is_some(), &mut notes);
    notes.extend(parallel.notes.iter().cloned());
    notes.extend(measured::note(program));
    Ok(Lowered {
        workload,
        coverage,
        parallel,
        batch,
        microbatches,
        left_out: built.left_out,
        unfolded_flop,
        unfolded_kernels,
        folded,
        notes,
    })
}

/// The layers of all stages of a recorded pipeline, of which the trace has one.
fn stages(mut workload: Workload, parallel: &parallel::Parallel, folded: bool, notes: &mut Vec<String>) -> Workload {
    if parallel.pp > 1 && folded {
        workload.repeat = workload.repeat.saturating_mul(parallel.pp);
        let layers = workload.repeat / parallel.pp;
        notes.push(format!("{layers} layers of one stage of {}: the graph has {}", parallel.pp, workload.repeat));
    } else if parallel.pp > 1 {
        notes.push(format!(
            "the graph is one stage of {}; the layers of all: {} with the value layer",
            parallel.pp,
            given("fold")
        ));
    }
    workload
}

/// The element size that most bytes of floating-point values have.
fn common_word(program: &Program) -> f64 {
    let mut bytes: std::collections::BTreeMap<u64, u64> = std::collections::BTreeMap::new();
    for v in program.values.iter().filter(|v| v.float && v.element_bytes > 0) {
        let sum = bytes.entry(v.element_bytes).or_insert(0);
        *sum = sum.saturating_add(v.elements);
    }
    bytes.into_iter().max_by_key(|(_, n)| *n).map_or(4.0, |(b, _)| b as f64)
}
