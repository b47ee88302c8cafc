//! Measured attention kernels: `attention fwd B=2 S=16384 H=16 D=128 causal`, or `D=192/128` where queries and values differ.

use super::notes::Notes;
use crate::model::attention_kernel::FusedAttentionWork;
use crate::workload::language::DataType;

/// Channels of all heads together in FlashAttention's benchmarks (its `benchmark_attn.py`: hidden size 2,048).
const CHANNELS: u64 = 2048;

/// An attention kernel that was timed by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionCore {
    /// Samples x heads.
    pub heads: u64,
    /// Tokens of a sample.
    pub seq: u64,
    /// Size of a query or key.
    pub key_width: u64,
    /// Size of a value.
    pub value_width: u64,
    /// Whether a token sees those before it alone.
    pub causal: bool,
    /// The backward pass.
    pub backward: bool,
    /// Gradients are added up in one order (deterministic).
    pub ordered: bool,
    /// Heads are not stated: as many as make 2,048 channels, as FlashAttention's benchmarks take.
    pub usual_heads: bool,
    /// Its operands.
    pub precision: DataType,
}

impl AttentionCore {
    /// What a row says in its workload; heads from its column where the words have none.
    ///
    /// # Errors
    /// What is not stated.
    pub fn read(workload: &str, notes: &Notes, text: &str) -> Result<Self, String> {
        let mut words = workload.split_whitespace();
        let backward = match words.nth(1) {
            Some("fwd") => false,
            Some("bwd") => true,
            _ => return Err("whether it is the forward (fwd) or the backward pass (bwd) is not stated".into()),
        };
        let of = |name: &str| workload.split_whitespace().find_map(|word| word.strip_prefix(name));
        let number = |name: &str, what: &str| {
            of(name)
                .and_then(|v| v.parse::<u64>().ok())
                .filter(|v| (1..=1 << 30).contains(v))
                .ok_or_else(|| format!("{what} ({name}...) are not stated"))
        };
        let (samples, seq) = (number("B=", "samples")?, number("S=", "tokens")?);
        let sizes = of("D=").unwrap_or_default();
        let (key, value) = sizes.split_once('/').unwrap_or((sizes, sizes));
        let size = |text: &str| {
            text.parse::<u64>().ok().filter(|v| (1..=4096).contains(v)).ok_or("the size of heads (D=...) is not stated")
        };
        let (key_width, value_width) = (size(key)?, size(value)?);
        // A row of a benchmark that sweeps lengths and sizes of heads, whose table leaves the heads out.
        let usual_heads = of("H=") == Some("") && CHANNELS.is_multiple_of(key_width);
        let heads = if usual_heads { CHANNELS / key_width } else { number("H=", "heads")? };
        if text.contains("causality not stated") {
            return Err("whether the mask is causal is not stated".into());
        }
        Ok(Self {
            heads: samples.saturating_mul(heads),
            seq,
            key_width,
            value_width,
            causal: workload.ends_with(" causal"),
            backward,
            ordered: workload.contains("deterministic"),
            usual_heads,
            precision: notes.precision.unwrap_or(DataType::Fp16),
        })
    }

    /// FLOP as benchmarks count them: 2 s^2 (d_qk + d_v) a head, half of it with a causal mask, 2.5 times as many backward.
    pub fn printed_flop(&self) -> f64 {
        let s = self.seq as f64;
        let forward = 2.0 * self.heads as f64 * s * s * (self.key_width + self.value_width) as f64;
        forward * if self.causal { 0.5 } else { 1.0 } * if self.backward { 2.5 } else { 1.0 }
    }

    /// What a kernel has to do.
    pub fn work(&self) -> FusedAttentionWork {
        let s = self.seq as f64;
        FusedAttentionWork {
            heads: self.heads as f64,
            kv_heads: self.heads as f64,
            queries: s,
            keys: s,
            seen: if self.causal { (s + 1.0) / 2.0 } else { s },
            edges: f64::from(u8::from(self.causal)),
            key_width: self.key_width as f64,
            value_width: self.value_width as f64,
            word: self.precision.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_from_words() {
        let read = |workload: &str| AttentionCore::read(workload, &Notes::default(), "");
        let core = read("attention bwd B=2 S=4096 H=16 D=192/128 causal").unwrap();
        assert_eq!((core.heads, core.seq, core.key_width, core.value_width), (32, 4096, 192, 128));
        assert!(core.causal && core.backward);
        assert_eq!(core.printed_flop(), 2.5 * 32.0 * 4096.0 * 4096.0 * 320.0);
        assert_eq!(core.work().flop() * 2.5 / core.printed_flop(), 4097.0 / 4096.0);
        assert!(!read("attention fwd B=2 S=4096 H=16 D=128 non-causal").unwrap().causal);
        assert!(read("attention bwd (deterministic) B=2 S=4096 H=16 D=128 non-causal").unwrap().ordered);
        let sweep = read("attention fwd B=8 S=4096 H= D=64 causal");
        assert_eq!(sweep.map(|c| (c.heads, c.usual_heads)), Ok((8 * 32, true)));
        for (workload, missing) in [
            ("attention B=2 S=4096 H=16 D=128", "fwd"),
            ("attention fwd S=4096 H=16 D=128", "samples"),
            ("attention fwd B=2 S=4096 H= D=192", "heads"),
            ("attention fwd B=2 S=4096 H=16", "size of heads"),
        ] {
            assert!(read(workload).unwrap_err().contains(missing), "{workload}");
        }
    }
}
