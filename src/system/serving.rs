//! How a software stack serves language models: kernels of a layer, cache of keys and values, pipelines.
//!
//! Part of a [`Stack`](super::Stack), whose `source.serving` says where the numbers come from.

use crate::spec::{
    Node, Reader,
    read::{Fraction, Share},
};
use crate::units::Seconds;

crate::choice! {
    /// How the cache of keys and values lies in memory.
    pub enum CacheLayout ("a layout of the cache") {
        /// Room for prompt and answer of each sequence, reserved from the beginning.
        Contiguous = "contiguous",
        /// Blocks of `cache_block` tokens as they are needed (Kwon et al. 2023, arXiv 2309.06180); sequences are admitted only if all
        /// their blocks will fit, so that none is ever evicted.
        Paged = "paged",
        /// The length that a graph was compiled for: `cache_block` tokens, doubled until prompt and answer are below it. Every step
        /// reads all of it.
        Compiled = "compiled",
    }
}

crate::spec! {
    /// How a software stack serves language models.
    #[derive(Copy)]
    pub struct Serving ("the serving of language models", check: check) {
        /// Kernels of a layer in one step, products and attention included.
        layer_kernels: u64 = 8,
        /// Time from one kernel to the next in a step; left out: the chip's `launch`.
        kernel: Option<Seconds>,
        /// Bytes that norms, residuals and functions move over what each kernel's inputs and outputs hold; 0 where layers stay on chip.
        elementwise: f64 = 1.0,
        /// Time of an all-reduce beyond its bytes and hops.
        all_reduce: Seconds = Seconds(0.0),
        /// Share of the reached bandwidth at which a step reads the cache.
        cache_efficiency: Fraction = Fraction(1.0),
        /// The same where several query heads share keys and values; left out: as `cache_efficiency`.
        grouped_cache_efficiency: Option<Fraction>,
        /// Layout of the cache.
        cache: CacheLayout = CacheLayout::Paged,
        /// Tokens of a block of the cache.
        cache_block: u64 = 64,
        /// Share of the memory that weights leave which the cache may take.
        cache_share: Share = Share(0.9),
        /// Host time of a step for each sequence.
        step_sequence: Seconds = Seconds(0.0),
        /// Time before the first token beyond the prompt's pass.
        request: Seconds = Seconds(0.0),
        /// Whether prompts are read one after the other, so that a sequence has its first token after its own.
        separate_prompts: bool = false,
        /// Whether microbatches of a pipeline run on its stages at the same time. Where not, each waits for the one before to
        /// leave the last stage.
        overlapped_stages: bool = true,
    }
}

fn check(serving: &Serving, node: &Node, reader: &mut Reader) {
    let mut say = |field: &str, message: String| {
        let at = node.get(field).unwrap_or(node).clone();
        reader.within(field, |r| r.problem(&at, message));
    };
    for (field, value) in [("layer_kernels", serving.layer_kernels), ("cache_block", serving.cache_block)] {
        if value > 1 << 24 {
            say(field, format!("expected at most {}, found {value}", 1 << 24));
        }
    }
    if serving.elementwise > 1000.0 {
        say("elementwise", format!("expected at most 1000, found {}", serving.elementwise));
    }
}

impl Serving {
    /// Software without host time whose pages have one token, on all the memory that weights leave.
    pub fn ideal() -> Self {
        Self {
            layer_kernels: 8,
            kernel: None,
            elementwise: 1.0,
            all_reduce: Seconds(0.0),
            cache_efficiency: Fraction(1.0),
            grouped_cache_efficiency: None,
            cache: CacheLayout::Paged,
            cache_block: 1,
            cache_share: Share(1.0),
            step_sequence: Seconds(0.0),
            request: Seconds(0.0),
            separate_prompts: false,
            overlapped_stages: true,
        }
    }

    /// Tokens that a sequence of `tokens` tokens has room for in the cache.
    pub fn reserved(&self, tokens: u64) -> u64 {
        let block = self.cache_block.max(1);
        match self.cache {
            CacheLayout::Contiguous => tokens,
            CacheLayout::Paged => tokens.div_ceil(block).saturating_mul(block),
            CacheLayout::Compiled => {
                let mut room = block;
                while room <= tokens {
                    room = room.saturating_mul(2);
                    if room == u64::MAX {
                        break;
                    }
                }
                room
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_in_the_cache_by_hand() {
        let serving = |cache, cache_block| Serving { cache, cache_block, ..Serving::ideal() };
        assert_eq!(serving(CacheLayout::Contiguous, 64).reserved(2049), 2049);
        assert_eq!(serving(CacheLayout::Paged, 64).reserved(2049), 2112);
        assert_eq!(serving(CacheLayout::Compiled, 4096).reserved(4095), 4096);
        // The end of the answer needs a place of its own.
        assert_eq!(serving(CacheLayout::Compiled, 4096).reserved(4096), 8192);
        assert_eq!(serving(CacheLayout::Compiled, 3).reserved(u64::MAX - 1), u64::MAX);
    }

    #[test]
    fn a_section_that_says_nothing_is_usual_software() {
        let node = Node::parse("s.yaml", "{}").unwrap();
        let serving = Reader::read::<Serving>(&node).unwrap();
        assert_eq!((serving.layer_kernels, serving.cache, serving.cache_block), (8, CacheLayout::Paged, 64));
        let bad = Node::parse("s.yaml", "{layer_kernels: 99999999, elementwise: 2000}").unwrap();
        let errors = Reader::read::<Serving>(&bad).unwrap_err().to_string();
        assert!(errors.contains("layer_kernels") && errors.contains("elementwise"), "{errors}");
    }
}
