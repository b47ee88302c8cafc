//! Models that measurements name: what their name says and their columns do not.
//!
//! A row has layers, hidden size, heads and vocabulary; whether a perceptron is gated, how many key-value heads there are and how wide
//! it is follows from the family and, within it, from the sizes. Sources: the files under `workloads/language`.

use super::notes::Notes;
use super::row::Row;
use crate::workload::language::{Biases, LanguageModel, ModelPass, Norm, Position, Types, spec::Kind};
use crate::workload::language::{DataType, Head};

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
        vocab: 128256,
        members: &[((32, 4096), (8, 14336, 128)), ((80, 8192), (8, 28672, 128)), ((126, 16384), (8, 53248, 128))],
        ..LLAMA
    },
    LLAMA,
    Family { words: &["mistral"], window: Some(4096), members: &[((32, 4096), (8, 14336, 128))], ..LLAMA },
    Family {
        words: &["palm"],
        norm: Norm::Layer,
        tied: true,
        parallel: true,
        vocab: 256_000,
        members: &[((118, 18432), (1, 73728, 256))],
        ..LLAMA
    },
    // LLM Foundry's benchmark: learned positions (its parameters grow with the sequence), neither biases nor dropout.
    Family { words: &["mpt"], biases: Biases::None, dropout: false, vocab: 50368, ..GPT },
    // MaxText's decoder: gated only where the notes say so; its default length and vocabulary.
    Family { words: &["maxtext"], gated: false, vocab: 32000, seq: Some(2048), members: &[], ..LLAMA },
    Family {
        words: &["bloom"],
        position: Position::Alibi,
        dropout: false,
        vocab: 250_880,
        members: &[((70, 14336), (112, 57344, 128))],
        ..GPT
    },
];

/// The model of a row and what had to be assumed of it.
///
/// # Errors
/// What the row does not state and no name says: a sentence.
pub fn model(row: &Row, notes: &Notes, batch: u64, pass: ModelPass) -> Result<(LanguageModel, Vec<String>), String> {
    let workload = row.workload.to_ascii_lowercase();
    let family = FAMILIES.iter().find(|f| f.words.iter().any(|w| workload.contains(w))).unwrap_or(&GPT);
    let (Some(layers), Some(hidden), Some(heads)) = (row.layers, row.hidden, row.heads) else {
        return Err("layers, hidden size or heads are not stated".into());
    };
    let mut assumed = Vec::new();
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
    let precision = notes.precision;
    let types = Types {
        // 8-bit runs keep weights and activations in 16 bits and convert before products.
        compute: precision.filter(|p| matches!(p, DataType::Fp8 | DataType::Int8)),
        ..Types::default()
    };
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
        max_positions: None,
        parallel_block: family.parallel,
        vocab: Some(vocab),
        embedding_width: None,
        tied_embeddings: family.tied,
        token_types: None,
        embedding_norm: family.position == Position::Alibi,
        final_norm: true,
        head: Head::Vocabulary,
        classes: None,
        head_bias: false,
        biases: family.biases,
        dropout: family.dropout && pass == ModelPass::Training,
        causal: true,
        window: family.window,
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
    Ok((model, assumed))
}
