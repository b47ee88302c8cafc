//! DFModel's `setup.txt`, `dse.txt` and `dse.pb`, of every generation, as our workload, system, study and plan files.
//!
//! The way: [`load`] reads text ([`text`], [`typed`]) or bytes ([`wire`]) under the schema of a generation ([`schema`]) into a
//! tree ([`tree`]); [`setup`] takes from it what the generations have in common and refuses what makes no sense; [`known`]
//! recognises the graphs that our generators make, [`graph`] writes any other graph kernel by kernel; [`system`]
//! and [`study`] write the rest. What a file says and we do not take is a [`Note`]; what it does not say and we need, too.

pub mod graph;
mod kernels;
pub mod known;
pub mod load;
pub mod schema;
pub mod setup;
pub mod study;
pub mod system;
pub mod text;
pub mod tree;
pub mod typed;
pub mod wire;

use crate::spec::{Node, Problem, Problems};
use crate::system::System;
use crate::workload::WorkloadSpec;
use schema::Generation;
use serde_json::Value as Json;
use setup::Setup;
use std::fmt;
use tree::{Fault, Faults, Message, Place, plain};

/// What became of something that did not go straight into our files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The file says it; nothing of ours says it.
    Ignored,
    /// The file does not say it; this was taken.
    Assumed,
    /// It means something else here than there.
    Changed,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What became of it.
    pub kind: Kind,
    /// The field.
    pub field: String,
    /// Where it stood first.
    pub place: Option<Place>,
    /// What to know.
    pub text: String,
}

impl Note {
    /// A field that was left out.
    pub fn ignored(field: impl Into<String>, place: Option<Place>, text: impl Into<String>) -> Self {
        Self { kind: Kind::Ignored, field: field.into(), place, text: text.into() }
    }
    /// A value that the file does not give.
    pub fn assumed(field: impl Into<String>, text: impl Into<String>) -> Self {
        Self { kind: Kind::Assumed, field: field.into(), place: None, text: text.into() }
    }
    /// A meaning that changed.
    pub fn changed(field: impl Into<String>, place: Option<Place>, text: impl Into<String>) -> Self {
        Self { kind: Kind::Changed, field: field.into(), place, text: text.into() }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.kind {
            Kind::Ignored => "ignored",
            Kind::Assumed => "assumed",
            Kind::Changed => "changed",
        };
        write!(f, "{word}: {}", plain(&self.field))?;
        if let Some(place) = self.place {
            write!(f, " ({place})")?;
        }
        if self.text.is_empty() { Ok(()) } else { write!(f, ": {}", plain(&self.text)) }
    }
}

/// How to read a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Its generation; found out if left out.
    pub generation: Option<Generation>,
    /// Whether fields that no schema has are left out instead of refused.
    pub skip_unknown: bool,
    /// Name of the files written, and of workload and system in them.
    pub name: String,
}

/// What an import gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The generation that the file was read as.
    pub generation: Generation,
    /// File names (without folder) and their texts.
    pub files: Vec<(String, String)>,
    /// What was left out, assumed or changed, in file order.
    pub notes: Vec<Note>,
}

/// Our trees before they are written.
struct Trees {
    workload: Json,
    system: Json,
    study: Json,
    plan: Option<Json>,
}

/// Reads the bytes of `file` and writes our files.
///
/// # Errors
/// All [`Faults`].
pub fn import(file: &str, bytes: &[u8], options: &Options) -> Result<Imported, Faults> {
    let loaded = load::load(file, bytes, options.generation, options.skip_unknown)?;
    let refuse = |mut list: Vec<Fault>| {
        list.sort_by_key(|f| f.place);
        Faults { file: file.into(), list }
    };
    let setup = setup::read(loaded.generation, &loaded.message).map_err(refuse)?;
    let mut notes = loaded.notes;
    if !loaded.certain {
        notes.push(uncertain(&loaded.message, loaded.generation));
    }
    let trees = convert(file, &setup, &options.name, &mut notes).map_err(refuse)?;
    notes.extend(unread(&loaded.message));
    notes.sort_by_key(|n| (n.kind, n.place));
    notes.dedup();
    let notes = grouped(notes);
    let name = &options.name;
    let mut files = Vec::new();
    let mut file_of = |part: &str, tree: &Json, what: &str| -> Result<(), Faults> {
        let body =
            serde_saphyr::to_string(tree).map_err(|e| refuse(vec![Fault::whole(format!("cannot write YAML: {e}"))]))?;
        let head = header(file, loaded.generation, what, part, &notes);
        files.push((format!("{name}-{part}.yaml"), format!("{head}{}\n", body.trim_end())));
        Ok(())
    };
    file_of("workload", &trees.workload, "its graph")?;
    file_of("system", &trees.system, "its system, prices and overlap")?;
    file_of("study", &trees.study, "its settings: DFModel's formulas beside ours")?;
    if let Some(plan) = &trees.plan {
        file_of("plan", plan, "the mapping that DFModel's passes wrote into it")?;
    }
    check(&files).map_err(refuse)?;
    Ok(Imported { generation: loaded.generation, files, notes })
}

fn convert(file: &str, setup: &Setup, name: &str, notes: &mut Vec<Note>) -> Result<Trees, Vec<Fault>> {
    let mut faults = Vec::new();
    let common = Common::of(file, setup, name, notes, &mut faults);
    let (workload, names) = match known::recognise(setup, &common, notes) {
        Ok(known) => (known.tree, known.names),
        Err(why) => {
            if known::Family::named(setup).is_some() {
                notes.push(Note::changed("dataflow_graph", None, format!("written kernel by kernel: {why}")));
            }
            let names = setup.kernels.iter().map(|k| k.name.clone()).collect();
            (graph::tree(setup, &common, notes, &mut faults), names)
        }
    };
    // Only the generators' kernels can be spread over a process grid.
    let spread = workload.get("kind").is_some_and(|k| k == "hpl" || k == "fft");
    if system::squared(setup) {
        let text = "squared, as the stored runs in words of 4 B count; those in words of 2 B count bisection";
        notes.push(Note::assumed("all_to_all_messages", text));
    }
    let system = system::tree(setup, &common, notes, &mut faults);
    let study = study::tree(setup, &common, &names, notes, &mut faults);
    let plan = study::plan(setup, &common, &names, spread, notes);
    if faults.is_empty() { Ok(Trees { workload, system, study, plan }) } else { Err(faults) }
}

/// What several of our files say alike.
struct Common {
    name: String,
    /// `derived: imported from ...`
    source: String,
    word: u64,
    global_batch: u64,
    micro_batch: u64,
}

impl Common {
    fn of(file: &str, setup: &Setup, name: &str, notes: &mut Vec<Note>, faults: &mut Vec<Fault>) -> Self {
        let s = &setup.settings;
        let base = file.rsplit(['/', '\\']).next().unwrap_or(file);
        let word = s.word.unwrap_or_else(|| {
            let guessed = setup.kernels.iter().find_map(|k| {
                let word = k.output_bytes? / (k.rows() as f64 * k.n as f64);
                (1..=64u64).find(|w| (word / *w as f64 - 1.0).abs() < 1e-5)
            });
            let from = if guessed.is_some() { "from the size of an output tensor" } else { "half precision" };
            notes.push(Note::assumed("word", format!("{} B, {from}", guessed.unwrap_or(2))));
            guessed.unwrap_or(2)
        });
        let first = setup.generation.is_first();
        let micro_batch = s.micro_batch.map_or_else(
            || {
                let found = if first { study::first_micro_batch(setup, word) } else { None };
                let why = if found.is_some() {
                    "the most that the DRAM holds, as that generation's solver takes"
                } else {
                    ""
                };
                let found = found.unwrap_or(1);
                notes.push(Note::assumed(
                    "micro_batch_size",
                    format!("{found}{}{why}", if why.is_empty() { "" } else { ", " }),
                ));
                found
            },
            |(size, _)| size,
        );
        let global_batch = s.global_batch.unwrap_or_else(|| {
            notes.push(Note::assumed("global_batch_size", format!("{micro_batch}, one microbatch")));
            micro_batch
        });
        if let Some((micro, place)) = s.micro_batch.filter(|(micro, _)| *micro > global_batch) {
            let text = format!("expected at most the global_batch_size of {global_batch}, found {micro}");
            faults.push(Fault::at(place, "micro_batch_size", text));
        }
        let (global_batch, micro_batch) = match known::Family::named(setup) {
            // A kernel's columns are a minibatch, and so is a pass.
            Some(known::Family::Dlrm) if first => {
                let minibatches = global_batch.div_ceil(micro_batch.max(1));
                let text = format!("{minibatches} minibatches of {micro_batch} items, which is what a pass computes");
                notes.push(Note::changed("global_batch_size", None, text));
                (minibatches, 1)
            }
            // Each chip is a replica that computes what the kernels say.
            Some(known::Family::Hpl) if first => {
                let text = format!(
                    "{} samples: the utilisation of that generation counts each chip as a replica",
                    setup.system.chips
                );
                notes.push(Note::changed("global_batch_size", None, text));
                (setup.system.chips, 1)
            }
            _ => (global_batch, micro_batch),
        };
        Self {
            name: name.into(),
            source: format!("derived: imported from DFModel's {base} (generation {})", setup.generation),
            word,
            global_batch,
            micro_batch,
        }
    }
}

/// Notes of one kind about several kernels or connections as one line.
fn grouped(notes: Vec<Note>) -> Vec<Note> {
    let mut groups: Vec<(String, Note, usize)> = Vec::new();
    for note in notes {
        // Whole files and settings are named one by one.
        let kind = format!("{:?} {}", note.kind, tree::kind(&note.field, &note.text));
        match groups.iter_mut().find(|(known, ..)| *known == kind && note.field.contains('[')) {
            Some((_, _, more)) => *more += 1,
            None => groups.push((kind, note, 0)),
        }
    }
    let of = |(_, mut note, more): (String, Note, usize)| {
        if more > 0 {
            note.text = format!("{} (and {more} more like it)", note.text);
        }
        note
    };
    groups.into_iter().map(of).collect()
}

/// Which generations read the file alike.
fn uncertain(root: &Message, generation: Generation) -> Note {
    let text = match generation {
        Generation::PerfectOverlap => {
            "nothing in it tells perfect-overlap from overlap, nor (in a binary file) from miscellany, which counts an all-reduce \
             twice; --generation decides"
        }
        Generation::Overlap => "by its fields; --generation decides",
        Generation::Flat | Generation::Torus => {
            "a binary file does not tell flat from torus, which number fully connected and ring networks of one dimension \
             otherwise; --generation decides"
        }
        _ => "the schema that fits best; --generation decides",
    };
    let first = root.fields.first().map(|f| f.place);
    Note::assumed(
        format!("generation {generation}"),
        text.to_string() + if first.is_none() { " (empty file)" } else { "" },
    )
}

/// The fields that nobody looked at: one note for each path.
fn unread(root: &Message) -> Vec<Note> {
    let mut paths: Vec<(String, Place, String, usize)> = Vec::new();
    for (path, field) in root.unseen() {
        match paths.iter_mut().find(|(p, ..)| *p == path) {
            Some((_, _, _, count)) => *count += 1,
            None => paths.push((path, field.place, field.shown(), 1)),
        }
    }
    let note = |(path, place, shown, count): (String, Place, String, usize)| {
        let why = reason(&path);
        let found = if count > 1 { format!("{count} values") } else { shown };
        let text = if why.is_empty() { found } else { format!("{found}; {why}") };
        Note::ignored(path, Some(place), text)
    };
    paths.into_iter().map(note).collect()
}

/// Why a field is left out, where there is more to say than that nothing here corresponds to it.
fn reason(path: &str) -> &'static str {
    let (parent, last) = path.rsplit_once('.').unwrap_or(("", path));
    match last {
        _ if path.starts_with("gurobi") => "settings of Gurobi; `solve:` of a study has ours",
        "id" | "startName" | "endName" => "repeats what the connection's ends say",
        "topological_number" | "buffer_depth" | "tensor_size" | "shard_tensor_size" | "shard_outer_M"
        | "shard_weight_size" => "found by DFModel's passes; derived again here",
        "input_tensor_size" | "input_tensor_1_size" | "input_tensor_2_size" => "follows from the sizes of the kernels",
        "input_tensor_1_id" | "input_tensor_2_id" => "the connections say it",
        "communication_type" | "communication_size" | "communication_type_2" if parent.ends_with("connections") => {
            "found by DFModel's sharding pass; derived again here"
        }
        "lane_stage_type" | "pmu" | "pmu_cap" | "placement" | "turn_off_p_and_r" => {
            "placement on the chip is not modelled"
        }
        "x" | "y" if parent == "system.accelerator" => "placement on the chip is not modelled",
        "second_dram_bw" | "second_dram_cap" => "a second tier of memory is not modelled",
        "skip_weight" => "weights count where weight_traffic says so",
        "skip_intermediate_buffer" => "tensors count: their traffic is hidden where such a run communicates",
        "sram_extra" | "dram_extra" | "num_input" | "use_effective_stage" | "effective_stage" => {
            "not modelled: the time or memory of such a kernel differs from DFModel's"
        }
        "zero_out" => "not modelled: the tensor counts",
        "skip_inter_chip_optimization" | "skip_inter_chip" => "the sharding search decides",
        "dram_bw_dse" | "net_bw_dse" | "util_threshold" | "objective" => {
            "a search over bandwidths is a study with axes here"
        }
        "num_copy" => "the system here is one copy",
        "training" => "the graph says whether it trains",
        "num_config" => "each kernel is a partition of its own in this style",
        _ => "",
    }
}

/// Builds what is to be written, so that nothing is written that does not read. A problem here is a graph or a system that
/// DFModel can express and we cannot.
fn check(files: &[(String, String)]) -> Result<(), Vec<Fault>> {
    let mut faults = Vec::new();
    for (name, text) in files {
        let build: fn(&Node) -> Result<(), Problems> = match name.rsplit('-').next() {
            Some("workload.yaml") => |n| WorkloadSpec::build(n).map(|_| ()),
            Some("system.yaml") => |n| System::build(n).map(|_| ()),
            // These name the other two by file.
            _ => |_| Ok(()),
        };
        let problems = match Node::parse(name, text) {
            Ok(node) => build(&node).err().map_or(Vec::new(), |p| p.0),
            Err(problem) => vec![problem],
        };
        let line = |p: Problem| format!("cannot be expressed as {name}: {}: {}", p.field, p.message);
        faults.extend(problems.into_iter().map(|p| Fault::whole(line(p))));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// The comment on top of a file: where it comes from, and the notes that concern it.
fn header(file: &str, generation: Generation, what: &str, part: &str, notes: &[Note]) -> String {
    let base = file.rsplit(['/', '\\']).next().unwrap_or(file);
    let base = plain(base);
    let mut head = format!("# Imported from DFModel's {base} (generation {generation}): {what}.\n");
    for note in notes.iter().filter(|n| part_of(&n.field) == part) {
        head.push_str(&format!("# {note}\n"));
    }
    head
}

/// Which of our files a field concerns.
fn part_of(field: &str) -> &'static str {
    let words = ["llm", "dlrm", "hpl", "fft", "mamba", "word", "global_batch_size", "micro_batch_size"];
    if field.starts_with("dataflow_graph") || field.split('.').any(|w| words.contains(&w) || w.ends_with("_fft_llm")) {
        "workload"
    } else if field.starts_with("system") || field.starts_with("cost") {
        "system"
    } else {
        "study"
    }
}
