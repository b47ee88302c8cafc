//! Measured attention kernels: `attention fwd B=2 S=16384 H=16 D=128 causal`, or `D=192/128` where queries and values differ.

use super::notes::Notes;
use crate::model::attention_kernel::FusedAttentionWork;
use crate::workload::language::DataType;

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
        if workload.contains("deterministic") {
            return Err("no model of kernels that add gradients in one order".into());
        }
        let of = |name: &str| workload.split_whitespace().find_map(|word| word.strip_prefix(name));
        let number = |name: &str, what: &str| {
            of(name)
                .and_then(|v| v.parse::<u64>().ok())
                .filter(|v| (1..=1 << 30).contains(v))
                .ok_or_else(|| format!("{what} ({name}...) are not stated"))
        };
        let (samples, seq, heads) = (number("B=", "samples")?, number("S=", "tokens")?, number("H=", "heads")?);
        let sizes = of("D=").unwrap_or_default();
        let (key, value) = sizes.split_once('/').unwrap_or((sizes, sizes));
        let size = |text: &str| {
            text.parse::<u64>().ok().filter(|v| (1..=4096).contains(v)).ok_or("the size of heads (D=...) is not stated")
        };
        if text.contains("causality not stated") {
            return Err("whether the mask is causal is not stated".into());
        }
        Ok(Self {
            heads: samples.saturating_mul(heads),
            seq,
            key_width: size(key)?,
            value_width: size(value)?,
            causal: workload.ends_with(" causal"),
            backward,
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
        for (workload, missing) in [
            ("attention B=2 S=4096 H=16 D=128", "fwd"),
            ("attention fwd S=4096 H=16 D=128", "samples"),
            ("attention fwd B=2 S=4096 H= D=128", "heads"),
            ("attention fwd B=2 S=4096 H=16", "size of heads"),
            ("attention bwd (deterministic) B=2 S=4096 H=16 D=128", "one order"),
        ] {
            assert!(read(workload).unwrap_err().contains(missing), "{workload}");
        }
    }
}
