//! Models that measurements name: what their name says and their columns do not.
//!
//! A row has layers, hidden size, heads and vocabulary; whether a perceptron is gated, how many key-value heads there are and how wide
//! it is follows from the family and, within it, from the sizes. Sources: the files under `workloads/language`.

use super::accelerators;
use super::notes::Notes;
use super::row::{Origin, Row};
use crate::spec::{
    Loader, Reader,
    catalogue::{self, Entry},
};
use crate::workload::WorkloadSpec;
use crate::workload::language::is_language_model;
use crate::workload::language::{Biases, LanguageModel, ModelPass, Norm, Position, Types, spec::Kind};
use crate::workload::language::{DataType, Head};
use std::sync::LazyLock;

/// (layers, hidden): key-value heads, width of the perceptron, size of a head.
type Member = ((u64, u64), (u64, u64, u64));

/// A family of models.
struct Family {
    /// Words of the workload, any of which names it; lower case.
    words: &'static [&'static str],
    norm: Norm,
    position: Position,
    biases: Biases,
    gated: bool,
    dropout: bool,
    tied: bool,
    parallel: bool,
    /// Vocabulary where the row has none.
    vocab: u64,
    /// Tokens of a sample where the row has none.
    seq: Option<u64>,
    /// Window of attention.
    window: Option<u64>,
    /// Tokens of its longest context, where that is one for all its models.
    longest: Option<u64>,
    /// Its models.
    members: &'static [Member],
}

/// GPT as Megatron-LM trains it: the family of everything that does not name another.
const GPT: Family = Family {
    words: &[],
    norm: Norm::Layer,
    position: Position::Learned,
    biases: Biases::All,
    gated: false,
    dropout: true,
    tied: true,
    parallel: false,
    vocab: 51200,
    seq: None,
    window: None,
    longest: None,
    members: &[],
};

/// Llama and what is built like it.
const LLAMA: Family = Family {
    words: &["llama"],
    norm: Norm::Rms,
    position: Position::Rotary,
    biases: Biases::None,
    gated: true,
    dropout: false,
    tied: false,
    parallel: false,
    vocab: 32000,
    seq: None,
    window: None,
    longest: Some(4096),
    members: &[
        ((32, 4096), (32, 11008, 128)),
        ((40, 5120), (40, 13824, 128)),
        ((80, 8192), (8, 28672, 128)),
        ((126, 16384), (8, 53248, 128)),
    ],
};

const FAMILIES: [Family; 7] = [
    Family {
        words: &["llama-3", "llama3"],
        longest: Some(8192),
        vocab: 128256,
        members: &[((32, 4096), (8, 14336, 128)), ((80, 8192), (8, 28672, 128)), ((126, 16384), (8, 53248, 128))],
        ..LLAMA
    },
    LLAMA,
    Family {
        words: &["mistral"],
        window: Some(4096),
        longest: Some(32768),
        members: &[((32, 4096), (8, 14336, 128))],
        ..LLAMA
    },
    Family {
        words: &["palm"],
        norm: Norm::Layer,
        tied: true,
        parallel: true,
        vocab: 256_000,
        longest: None,
        members: &[((118, 18432), (1, 73728, 256))],
        ..LLAMA
    },
    // LLM Foundry's benchmark: learned positions (its parameters grow with the sequence), neither biases nor dropout.
    Family { words: &["mpt"], biases: Biases::None, dropout: false, vocab: 50368, ..GPT },
    // MaxText's decoder: gated only where the notes say so; its default length and vocabulary.
    Family { words: &["maxtext"], gated: false, vocab: 32000, seq: Some(2048), longest: None, members: &[], ..LLAMA },
    Family {
        words: &["bloom"],
        position: Position::Alibi,
        dropout: false,
        vocab: 250_880,
        members: &[((70, 14336), (112, 57344, 128))],
        ..GPT
    },
];

/// How far the parameters of a model's sizes may be off those that its source prints: of one that is taken to be the same, and of one that may be.
const SAME_WITHIN: f64 = 0.03;
const PARAMETERS_WITHIN: f64 = 0.08;

/// How many times the parameters that a name says, which are rounded and leave things out, may be those of the model that it is taken for.
const NAMED_WITHIN: f64 = 1.7;

fn all_parameters(model: &LanguageModel) -> f64 {
    model.parameters().total()
}

/// The language models of the catalogue.
fn catalogue_models() -> &'static [LanguageModel] {
    static MODELS: LazyLock<Vec<LanguageModel>> = LazyLock::new(|| {
        let of = |entry: &Entry| {
            let node = Loader.load(&entry.file(), None).ok().filter(is_language_model)?;
            match Reader::read::<WorkloadSpec>(&node) {
                Ok(WorkloadSpec::Language(model)) => Some(*model),
                _ => None,
            }
        };
        catalogue::entries().iter().filter(|e| e.path.starts_with("workloads/language/")).filter_map(of).collect()
    });
    &MODELS
}

/// The model whose parameters are those that the row states: as its family is built, else the one that it names, else the catalogue's of these sizes where no name says
/// more, else with the perceptron that the parameters leave. Printed parameters are often rounded.
fn explained(
    row: &Row,
    model: LanguageModel,
    of_family: bool,
    assumed: &mut Vec<String>,
) -> Result<LanguageModel, String> {
    let Some(stated) = row.params_b.map(|p| p * 1e9) else { return Ok(model) };
    let off = |model: &LanguageModel| (all_parameters(model) / stated - 1.0).abs();
    if off(&model) <= SAME_WITHIN {
        return Ok(model);
    }
    let same = |m: &&LanguageModel| (m.layers, m.hidden, m.heads) == (model.layers, model.hidden, model.heads);
    // Another model has its own layers and the row's vocabulary.
    let as_stated = |found: &LanguageModel| LanguageModel { vocab: row.vocab.or(found.vocab), ..found.clone() };
    let named = named(row).filter(same).filter(|found| off(found) <= PARAMETERS_WITHIN);
    if named.is_none() && of_family && off(&model) <= PARAMETERS_WITHIN {
        return Ok(model);
    }
    let distance = |found: &LanguageModel| off(&as_stated(found));
    let nearest = catalogue_models().iter().filter(same).min_by(|a, b| distance(a).total_cmp(&distance(b)));
    if let Some(found) = named.or(nearest.filter(|found| distance(found) <= SAME_WITHIN)) {
        assumed.push(format!("layers as those of {}", found.name));
        return Ok(LanguageModel {
            name: model.name,
            source: model.source,
            types: model.types,
            pass: model.pass,
            seq: model.seq,
            max_positions: None,
            generated: model.generated,
            global_batch: model.global_batch,
            dropout: model.dropout && found.dropout,
            ..as_stated(found)
        });
    }
    if off(&model) <= PARAMETERS_WITHIN {
        return Ok(model);
    }
    // A head that is not the embedding's matrix.
    let apart = LanguageModel { tied_embeddings: false, ..model.clone() };
    if model.tied_embeddings && off(&apart) <= SAME_WITHIN {
        assumed.push("a head of its own, as its parameters say".into());
        return Ok(apart);
    }
    let (layers, h) = (model.layers as f64, model.hidden as f64);
    let matrices = if model.gated { 3.0 } else { 2.0 };
    let width = model.ffn() as f64 + (stated - all_parameters(&model)) / (layers * matrices * h);
    // Of attention with fewer key-value heads the perceptron takes what it leaves; beyond that there are experts or other blocks.
    if (1.0..=6.0).contains(&(width / h)) {
        let ffn = ((width / 64.0).round() * 64.0) as u64;
        assumed.push(format!("a perceptron of {ffn}, as its parameters say"));
        if model.kv_heads.is_none() {
            assumed.push("as many heads of keys and values as of queries".into());
        }
        return Ok(LanguageModel { ffn: Some(ffn), ..model });
    }
    Err(format!(
        "its {:.4} billion parameters are not those of its layers ({:.4}): experts, or other blocks, whose sizes are not stated",
        stated / 1e9,
        all_parameters(&model) / 1e9
    ))
}

/// The model that a row names in `validation/chips.yaml`, where what sizes the row states are its own.
pub fn named(row: &Row) -> Option<&'static LanguageModel> {
    named_and_layers(row).map(|(model, _)| model)
}

/// The same, and how many of its layers a row has: all that it states, or of a model with experts the first; what of other models a row states says as much by
/// itself.
fn named_and_layers(row: &Row) -> Option<(&'static LanguageModel, u64)> {
    let same = |stated: Option<u64>, own: u64| stated.is_none_or(|n| n == own);
    let (model, stated) = accelerators::model(&row.workload)?;
    if !(same(row.hidden, model.hidden) && same(row.heads, model.heads)) {
        return None;
    }
    // A smaller model of the same series has sizes of its own.
    let near = |billions: &f64| {
        let counts = model.parameters();
        [counts.total(), counts.active()]
            .iter()
            .any(|own| (1.0 / NAMED_WITHIN..=NAMED_WITHIN).contains(&(billions * 1e9 / own)))
    };
    let sizes: Vec<f64> = row.params_b.into_iter().chain(billions_in(&row.workload)).collect();
    if !sizes.is_empty() && !sizes.iter().any(near) {
        return None;
    }
    let whole = row.hidden.is_some() && row.heads.is_some() && model.experts.is_some();
    match row.layers.filter(|n| *n != stated) {
        None => Some((model, model.layers)),
        Some(first) => (whole && (1..stated).contains(&first)).then_some((model, first)),
    }
}

/// Parameters that words name, in billions: `16B`, `124M`; not those of an expert (`8x7B`) or of a token (`A3B`), nor tokens (`4M tokens`, `1M context`).
fn billions_in(words: &str) -> Vec<f64> {
    let letters = words.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < letters.len() {
        let is_number = |i: usize| letters.get(i).is_some_and(|l| l.is_ascii_digit() || *l == b'.');
        let begin = at;
        while is_number(at) {
            at += 1;
        }
        let unit = match letters.get(at).filter(|_| at > begin) {
            Some(b'b' | b'B') => Some(1.0),
            Some(b'm' | b'M') => Some(1e-3),
            _ => None,
        };
        let alone = |i: Option<usize>| i.and_then(|i| letters.get(i)).is_none_or(|l| !l.is_ascii_alphanumeric());
        let next = words.get(at + 1..).unwrap_or_default().split_whitespace().next().unwrap_or_default();
        let of_tokens = OF_TOKENS.iter().any(|word| next.to_ascii_lowercase().starts_with(word));
        if let (Some(unit), true) = (unit, alone(begin.checked_sub(1)) && alone(Some(at + 1)) && !of_tokens)
            && let Ok(number) = words[begin..at].parse::<f64>()
        {
            found.push(number * unit);
        }
        at = at.max(begin + 1);
    }
    found
}

/// What a number before is no model's.
const OF_TOKENS: [&str; 5] = ["token", "context", "sequence", "batch", "bit"];

/// The model of a row that names it: its sizes, the row's samples.
fn of_named(
    row: &Row,
    notes: &Notes,
    (batch, pass, types): (u64, ModelPass, Types),
    (found, layers): (&LanguageModel, u64),
) -> Result<(LanguageModel, Vec<String>), String> {
    let mut assumed = vec![format!("sizes of {}", found.name)];
    let lengths = notes.prompt_and_generated.filter(|_| pass == ModelPass::Inference);
    let seq = lengths.map(|(prompt, _)| prompt).or(row.seq).unwrap_or_else(|| {
        assumed.push(format!("sequences of {} tokens", found.seq));
        found.seq
    });
    // An encoder that serves gives its last hidden channels, where it is not said to predict words.
    let serves = pass == ModelPass::Inference && !found.causal;
    let unread = serves && found.head == Head::MaskedTokens && !row.workload.contains("MaskedLM");
    if unread {
        assumed.push("no head".into());
    }
    if layers < found.layers {
        assumed.push(format!("its first {layers} layers"));
    }
    let model = LanguageModel {
        layers,
        seq,
        vocab: found.vocab.or(row.vocab),
        max_positions: found.max_positions.map(|most| most.max(seq)),
        generated: lengths.map(|(_, generated)| generated),
        types,
        pass,
        dropout: found.dropout && pass == ModelPass::Training,
        global_batch: batch,
        head: if unread { Head::None } else { found.head },
        ..found.clone()
    };
    Ok((model, assumed))
}

/// Types of a model whose products are in the type that a row states.
fn types(notes: &Notes, perceptron: Option<DataType>, pass: ModelPass) -> Types {
    let narrow = notes.precision.filter(|p| !matches!(p, DataType::Bf16 | DataType::Fp16));
    let types = match (notes.widened, narrow, pass) {
        (Some(weights), _, _) => {
            Types { weights, compute: notes.precision.or(Some(DataType::Bf16)), ..Types::default() }
        }
        // Training in 8 bits keeps weights and activations in 16 bits and converts before products; served weights are stored as they are multiplied.
        (None, Some(t), ModelPass::Inference) => {
            // Checkpoints of 8 and 4 bits come with keys and values in 8.
            let cache = matches!(t, DataType::Fp4 | DataType::Fp8).then_some(DataType::Fp8);
            Types { weights: t, compute: narrow, perceptron, cache, ..Types::default() }
        }
        (None, None, ModelPass::Inference) => Types { perceptron, ..Types::default() },
        // All of 32 bits: no copies, no other types.
        (None, Some(t @ DataType::Fp32), _) => {
            Types { weights: t, activations: t, compute: Some(t), ..Types::default() }
        }
        _ => Types { compute: narrow, ..Types::default() },
    };
    Types { cache: notes.cache.or(types.cache), ..types }
}

/// The model of a row and what had to be assumed of it.
///
/// # Errors
/// What the row does not state and no name says: a sentence.
pub fn model(
    row: &Row,
    notes: &Notes,
    perceptron: Option<DataType>,
    batch: u64,
    pass: ModelPass,
) -> Result<(LanguageModel, Vec<String>), String> {
    let workload = row.workload.to_ascii_lowercase();
    let types = types(notes, perceptron, pass);
    // Rows of inference that state sizes are of models as they are served, of which the catalogue's have training's batches and lengths alone.
    let open = row.layers.is_none() || row.hidden.is_none();
    if let Some(found) = named_and_layers(row)
        .filter(|(found, _)| row.origin == Origin::Ours && (pass == ModelPass::Training || open || !found.causal))
    {
        return of_named(row, notes, (batch, pass, types), found);
    }
    let family = FAMILIES.iter().find(|f| f.words.iter().any(|w| workload.contains(w))).unwrap_or(&GPT);
    let (Some(layers), Some(hidden)) = (row.layers, row.hidden) else {
        return Err("layers or hidden size are not stated".into());
    };
    let mut assumed = Vec::new();
    let heads = row.heads.unwrap_or_else(|| {
        let size = if hidden < 4096 { 64 } else { 128 };
        assumed.push(format!("heads of {size}"));
        hidden.div_ceil(size)
    });
    let seq = match (notes.prompt_and_generated, row.seq, family.seq) {
        (Some((prompt, _)), _, _) => prompt,
        (None, Some(seq), _) => seq,
        (None, None, Some(seq)) => {
            assumed.push(format!("sequences of {seq} tokens"));
            seq
        }
        (None, None, None) => return Err("the sequence length is not stated".into()),
    };
    let vocab = row.vocab.unwrap_or_else(|| {
        assumed.push(format!("a vocabulary of {}", family.vocab));
        family.vocab
    });
    let member = family.members.iter().find(|((l, h), _)| (*l, *h) == (layers, hidden)).map(|(_, sizes)| *sizes);
    let head_dim = notes.head_dim.or(member.map(|m| m.2));
    if head_dim.is_none() && (heads == 0 || hidden % heads != 0) {
        return Err(format!("{heads} heads do not divide a hidden size of {hidden}"));
    }
    let name = if row.workload.is_empty() { row.id.clone() } else { row.workload.clone() };
    let model = LanguageModel {
        kind: Kind::LanguageModel,
        name,
        source: row.source.clone(),
        layers,
        hidden,
        heads,
        kv_heads: notes.kv_heads.or(member.map(|m| m.0)),
        head_dim,
        ffn: notes.ffn.or(member.map(|m| m.1)),
        gated: family.gated || notes.gated,
        norm: family.norm,
        norms_per_layer: None,
        norm_shifts: None,
        qk_norm: None,
        position: family.position,
        max_positions: family.longest,
        parallel_block: family.parallel,
        vocab: Some(vocab),
        embedding_width: None,
        tied_embeddings: family.tied,
        token_types: None,
        embedding_norm: family.position == Position::Alibi,
        final_norm: true,
        head: Head::Vocabulary,
        classes: None,
        scored_words: None,
        head_bias: false,
        biases: family.biases,
        adapters: None,
        head_alone: false,
        dropout: family.dropout && pass == ModelPass::Training,
        causal: true,
        window: family.window,
        segment_memory: None,
        encoder_layers: None,
        full_attention_layers: None,
        latent_attention: None,
        experts: None,
        patches: None,
        types,
        pass,
        seq,
        generated: notes.prompt_and_generated.map(|(_, generated)| generated),
        global_batch: batch,
    };
    if notes.ffn.is_some() || row.origin != Origin::Ours {
        return Ok((model, assumed));
    }
    let model = explained(row, model, !family.words.is_empty(), &mut assumed)?;
    Ok((model, assumed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_a_name_says() {
        assert_eq!(billions_in("DeepSeek-V3 16B MoE train"), [16.0]);
        assert_eq!(billions_in("Qwen3 30B-A3B, GPT-2 124M"), [30.0, 0.124]);
        assert_eq!(billions_in("Mixtral-8x7B 4bit, Llama2-7B; 1.5B"), [7.0, 1.5]);
        assert!(billions_in("B, .B 8 B payload \u{b5}B").is_empty());
    }
}
