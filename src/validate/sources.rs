//! What the runs of a source were, where their rows do not say: `sources` and `whole_runs` of `validation/chips.yaml`.
//!
//! A source is a repository or a paper. Its runs have one software, one way of counting FLOP and a few habits that no column states; each stands there
//! once, with its reason, and a person can correct it. The first entry that suits counts: entries that name a stack or say `trains` are of training, the
//! others of all else.

use super::accelerators;
use super::row::Row;
use crate::execution::{Recompute, Zero};
use crate::spec::read::Ref;
use crate::system::{Memory, Stack};
use crate::workload::language::{DataType, FlopCount, Head, Types};

crate::choice! {
    /// What a source counts as FLOP of a training step.
    pub enum Counted ("a count of FLOP") {
        /// Three times the products of the forward pass, and the whole square of attention.
        Products = "products",
        /// The same with the part of the square that the mask leaves.
        MaskedProducts = "masked_products",
        /// Korthikanti et al. 2022, equation 7.
        MegatronModel = "megatron_model",
        /// Narayanan et al. 2021, equation 3: with whole layers computed again.
        MegatronRecomputed = "megatron_recomputed",
        /// Chowdhery et al. 2022, appendix B.
        PalmModel = "palm_model",
        /// Three times the products of the forward pass without gates of perceptrons, and half of the square of attention in every layer.
        UngatedProducts = "ungated_products",
    }
}

impl Counted {
    /// The count of the closed forms.
    pub fn flop(self) -> FlopCount {
        match self {
            Self::Products => FlopCount::Products,
            Self::MaskedProducts => FlopCount::MaskedProducts,
            Self::MegatronModel => FlopCount::MegatronModel,
            Self::MegatronRecomputed => FlopCount::MegatronRecomputed,
            Self::PalmModel => FlopCount::PalmModel,
            Self::UngatedProducts => FlopCount::UngatedProducts,
        }
    }
}

crate::choice! {
    /// What of a model is trained.
    pub enum Trained ("what is trained") {
        /// All of it.
        All = "all",
        /// Adapters, or vectors in front of a prompt, beside frozen weights.
        Adapters = "adapters",
        /// The head alone: layers are computed forward only.
        Head = "head",
    }
}

crate::spec! {
    /// Runs that train a part of their model.
    pub struct Partly ("runs that train a part of their model") {
        /// A part of the row's source; left out: any.
        of: Option<String>,
        /// A part of the row's workload; left out: any.
        workload: Option<String>,
        /// A part of the row's notes; left out: any.
        says: Option<String>,
        /// Where that is said.
        because: String,
        /// What is trained.
        trained: Trained,
    }
}

/// What a row's run trains: what it states, else what the list of such runs says, else adapters where its words name them.
pub fn trained(row: &Row) -> Trained {
    let within = |part: &Option<String>, text: &str| part.as_deref().is_none_or(|part| text.contains(part));
    let suits = |run: &&Partly| {
        within(&run.of, &row.source) && within(&run.workload, &row.workload) && within(&run.says, &row.notes)
    };
    let listed = || accelerators::shipped().ok()?.partly_trained.iter().find(suits).map(|run| run.trained);
    let adapted = || is_of(row, &["lora", "qlora", "dora", "peft"]).then_some(Trained::Adapters);
    row.trained.or_else(listed).or_else(adapted).unwrap_or(Trained::All)
}

/// Words that say of another word beside them that it does not hold.
const DENIALS: [&str; 12] =
    ["no", "non", "not", "o", "without", "unlike", "than", "vs", "versus", "off", "disabled", "false"];

/// Whether a row is of one of these `things`: its workload has the word, or a clause of its notes begins with it, and nothing beside the word denies it.
pub fn is_of(row: &Row, things: &[&str]) -> bool {
    let words = |text: &str| -> Vec<String> {
        let lower = text.to_ascii_lowercase();
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_owned).collect()
    };
    let is = |word: &String, list: &[&str]| list.contains(&word.as_str());
    let workload = words(&row.workload);
    let in_workload = workload.iter().enumerate().any(|(i, word)| {
        let beside = [i.checked_sub(1), i.checked_sub(2), Some(i + 1)].into_iter().flatten();
        is(word, things) && !beside.filter_map(|i| workload.get(i)).any(|word| is(word, &DENIALS))
    });
    in_workload
        || row.notes.split(';').map(words).any(|clause| {
            let led = clause.iter().find(|word| !is(word, &["with", "by", "bnb"]));
            led.is_some_and(|word| is(word, things)) && !clause.iter().any(|word| is(word, &DENIALS))
        })
}

crate::spec! {
    /// A source of measured runs.
    pub struct Source ("a source of measured runs") {
        /// A part of the row's source: a repository, or a paper's number.
        of: String,
        /// Chips, by our names; left out: any.
        chips: Vec<String> = Vec::new(),
        /// The model, by the name in its file; left out: any.
        model: Option<String>,
        /// A part of the row's notes or of its system; left out: any.
        says: Option<String>,
        /// Why what follows is so.
        because: String,
        /// The software of training; left out, and without `trains`: an entry of inference and kernels.
        stack: Option<Ref<Stack>>,
        /// The software of inference, where rows do not name it.
        serves: Option<Ref<Stack>>,
        /// Whether it is an entry of training although it names no software: that is its machine's.
        trains: bool = false,
        /// Whether so many users send a request each as soon as their last is answered.
        closed_loop: bool = false,
        /// Whether replicas of the attention divide the experts among them.
        experts_among_replicas: bool = false,
        /// Whether the tensor-parallel ranks of models with experts are such replicas.
        attention_by_replicas: bool = false,
        /// Type of perceptrons where it is another.
        perceptron: Option<DataType>,
        /// Type of keys and values of served models where it is another.
        cache: Option<DataType>,
        /// Whether each rank of a chip serves a batch of its own.
        ranks_alone: bool = false,
        /// Chips that it ran on by one of their names in `chips`, where its rows say less of them.
        machine: Option<String>,
        /// Whether times are those of kernels as a profiler records them, without the way from one to the next.
        profiled: bool = false,
        /// Whether switches add up where they can.
        switch_sums: bool = true,
        /// What products compute in: in training where a row does not say and the chip has it, in inference whatever type of weights a row says.
        computes: Option<DataType>,
        /// What its printed rates of FLOP count.
        counts: Option<Counted>,
        /// What printed rates of FLOP of runs count that compute whole layers again; left out: the same.
        counts_recomputed: Option<Counted>,
        /// Types of weights, gradients and optimiser; left out: those of mixed precision.
        types: Option<Types>,
        /// Divided training state, where a row does not say.
        zero: Option<Zero>,
        /// What is computed again, where a row does not say.
        recompute: Option<Recompute>,
        /// What a row's word `selective` means.
        selective: Option<Recompute>,
        /// Whether tensor-parallel chips divide sequences, where a row does not say.
        sequence_parallel: bool = false,
        /// Most pieces of layers of a stage, where a row does not say: the most that divide its layers.
        chunks: Option<u64>,
        /// Tokens of a sample, or of a served model's prompt, where a row does not say.
        seq: Option<u64>,
        /// Samples that a chip computes before gradients are reduced, where a row does not say.
        batch_of_chip: Option<u64>,
        /// Whether the tokens, samples and recomputation of its rows are another run's, which those that stand here take the place of.
        corrects: bool = false,
        /// Whether the samples of a microbatch are those of a chip, whatever group of chips computes them.
        micro_batch_of_chip: bool = false,
        /// Whether batches are printed in tokens.
        batch_in_tokens: bool = false,
        /// Samples that what loads and prepares them hands to a chip in a second; left out: as many as it takes.
        prepared_per_s: Option<f64>,
        /// Divided training state of pipelines, where a row does not say; left out: as of others.
        zero_in_pipelines: Option<Zero>,
        /// Pipeline stages of a replica, where a row states no degrees.
        stages: Option<u64>,
        /// Whether all chips are replicas where a row states no degrees.
        replicas_alone: bool = false,
        /// Memory of the host that holds the optimiser's state and computes its step.
        host_memory: Option<Ref<Memory>>,
        /// Tokens of a sample that are computed on average, where runs leave padding out; left out: all.
        real_tokens: Option<u64>,
        /// Classes among which a head of its own chooses for each sample, in place of the model's.
        classes: Option<u64>,
        /// What comes after the last layer, in place of the model's.
        head: Option<Head>,
        /// Most tensor-parallel chips, where a row states no degrees.
        most_tp: Option<u64>,
        /// Whether gradients are reduced beside the backward pass.
        overlap_dp: bool = true,
        /// Whether tensor-parallel collectives run beside products.
        overlap_tp: bool = false,
    }
}

crate::spec! {
    /// Samples that whole runs take.
    pub struct WholeRun ("samples that whole runs take") {
        /// A part of the row's source.
        of: String,
        /// A part of the row's workload.
        workload: String,
        /// Where the numbers come from.
        because: String,
        /// Batches, ascending.
        batches: Vec<u64>,
        /// Samples that a run of each of these batches takes; between two of them what a power law gives, beyond them those of the nearest.
        samples: Vec<u64>,
    }
}

crate::spec! {
    /// Requests that are queued at once where a server is measured under full load.
    pub struct Queued ("requests that are queued at once") {
        /// A part of the row's source.
        of: String,
        /// A part of the row's notes; left out: any.
        says: Option<String>,
        /// Where the numbers come from.
        because: String,
        /// Tokens of prompt, of answer, and requests of a run of these lengths.
        runs: Vec<Vec<u64>>,
        /// Batches that its steps are recorded for, ascending: a step of fewer sequences is filled up to the next; left out: steps of any size.
        recorded: Vec<u64> = Vec::new(),
    }
}

/// Requests of a row's run of these lengths that are queued at once, and the batches that its steps are recorded for; `None` where its source does not say.
pub fn queued(row: &Row, lengths: (u64, u64)) -> Option<(u64, &'static [u64])> {
    let queue = accelerators::shipped().ok()?.queued.iter().find(|queue| queue.suits(row))?;
    Some((queue.requests(lengths)?, &queue.recorded))
}

impl Queued {
    fn suits(&self, row: &Row) -> bool {
        row.source.contains(&self.of) && self.says.as_deref().is_none_or(|words| row.notes.contains(words))
    }

    /// Requests of a run of these lengths, where it is listed.
    fn requests(&self, (prompt, generated): (u64, u64)) -> Option<u64> {
        self.runs.iter().find_map(|run| match run.as_slice() {
            [p, g, requests] if (*p, *g) == (prompt, generated) => Some(*requests),
            _ => None,
        })
    }
}

impl WholeRun {
    /// Steps of a run with batches of so many samples.
    fn steps(&self, batch: u64) -> Option<f64> {
        let log = |n: &u64| (*n.max(&1) as f64).ln();
        let known: Vec<(f64, f64)> = self.batches.iter().map(log).zip(self.samples.iter().map(log)).collect();
        let at = log(&batch);
        let samples = match known.iter().position(|(of, _)| *of >= at) {
            Some(0) => known.first()?.1,
            None => known.last()?.1,
            Some(i) => {
                let ((a, from), (b, to)) = (known[i - 1], known[i]);
                from + (to - from) * (at - a) / (b - a)
            }
        };
        Some(samples.exp() / batch.max(1) as f64)
    }
}

/// Steps of the whole run of a row, where its source says how many samples that takes.
pub fn steps(row: &Row) -> Option<f64> {
    let suits = |run: &&WholeRun| row.source.contains(&run.of) && row.workload.contains(&run.workload);
    accelerators::shipped().ok()?.whole_runs.iter().find(suits)?.steps(row.global_batch?)
}

/// The entry of a row, of training or of all else; `model` is the name of its model's file, where it is known.
pub fn of(row: &Row, trains: bool, model: Option<&str>) -> Option<&'static Source> {
    let chip = accelerators::known(&row.accelerator).map(|listed| listed.chip.0.name.as_str());
    let suits = |source: &&Source| {
        row.source.contains(&source.of)
            && (source.stack.is_some() || source.trains) == trains
            && source.says.as_deref().is_none_or(|words| row.notes.contains(words) || row.system.contains(words))
            && (source.chips.is_empty() || source.chips.iter().any(|name| Some(name.as_str()) == chip))
            && (source.model.is_none() || source.model.as_deref() == model)
    };
    accelerators::shipped().ok()?.sources.iter().find(suits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Node, Reader};
    use crate::validate::read;

    fn queue(text: &str) -> Result<Queued, String> {
        Reader::read(&Node::parse("q.yaml", text).unwrap()).map_err(|e| e.to_string())
    }

    fn row(source: &str, notes: &str) -> Row {
        let text = format!(
            "id,workload,metric,value,unit,source,notes\na,Llama 2 7B,output_tokens_per_s,1,tok/s,{source},{notes}\n"
        );
        read::read("rows.csv", text.as_bytes()).unwrap_or_else(|e| panic!("{e}")).rows.remove(0)
    }

    /// Lengths that are listed have their requests, others none; steps are of any size where no batches stand there.
    #[test]
    fn queues_are_those_of_a_source_and_of_lengths() {
        let read =
            queue("{of: an/engine, says: v2, because: its page, runs: [[128, 64, 3000], [64, 128, 500]]}").unwrap();
        assert!(read.recorded.is_empty());
        assert_eq!((read.requests((128, 64)), read.requests((64, 128))), (Some(3000), Some(500)));
        assert_eq!(read.requests((128, 128)), None);
        assert!(read.suits(&row("https://x/an/engine/y", "engine v2")));
        assert!(!read.suits(&row("https://x/an/engine/y", "engine v1")));
        assert!(!read.suits(&row("https://x/another/y", "engine v2")));
        let any = queue("{of: an/engine, because: its page, runs: [], recorded: [1, 8]}").unwrap();
        assert_eq!((any.recorded.as_slice(), any.requests((128, 64))), ([1, 8].as_slice(), None));
        assert!(any.suits(&row("an/engine", "")));
    }

    /// A clause that begins with the word counts, and none that mentions or denies it.
    #[test]
    fn what_notes_say_a_row_is_of() {
        let of = |notes: &str| is_of(&row("x", notes), &["qlora", "lora", "nf4"]);
        for said in ["LoRA", "BF16; LoRA rank 8", "with QLoRA", "PyTorch; bnb.nf4"] {
            assert!(of(said), "{said}");
        }
        for not in
            ["2x slower than the LoRA run", "unlike LoRA rows", "bnb nf4 off", "LoRA disabled", "use_lora=False", ""]
        {
            assert!(!of(not), "{not}");
        }
    }

    /// The tables that are shipped, by their version.
    #[test]
    fn shipped_queues_by_version() {
        let of = |notes: &str, lengths| queued(&row("https://github.com/NVIDIA/TensorRT-LLM/x", notes), lengths);
        let (requests, recorded) = of("TensorRT-LLM v1.0; weights FP8", (1000, 2000)).unwrap();
        assert_eq!((requests, recorded.first(), recorded.contains(&384)), (1500, Some(&1), true));
        assert_eq!(of("TensorRT-LLM v0.17; weights FP8", (1000, 1000)), Some((3000, [].as_slice())));
        assert_eq!((of("TensorRT-LLM v1.0", (1, 1)), of("TensorRT-LLM v0.9", (1000, 1000))), (None, None));
    }

    #[test]
    fn queues_without_their_parts_are_refused() {
        let why = queue("{of: an/engine, runs: [[128, 64]], batches: [1]}").unwrap_err();
        assert!(why.contains("because") && why.contains("batches"), "{why}");
    }

    /// Twice the batch, 1.5 times the samples: between them the square roots of both.
    #[test]
    fn samples_between_two_batches_follow_a_power_law() {
        let run = WholeRun {
            of: String::new(),
            workload: String::new(),
            because: String::new(),
            batches: vec![100, 200],
            samples: vec![1000, 1500],
        };
        let steps = |batch| run.steps(batch).unwrap();
        assert!(
            (steps(100) - 10.0).abs() < 1e-9 && (steps(50) - 20.0).abs() < 1e-9 && (steps(1500) - 1.0).abs() < 1e-9
        );
        let between = 1000.0 * (141.0f64 / 100.0).powf(1.5f64.ln() / 2f64.ln()) / 141.0;
        assert!((steps(141) / between - 1.0).abs() < 1e-9);
    }
}
