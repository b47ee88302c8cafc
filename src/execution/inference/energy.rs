//! What serving uses of chips, memories and links, and the joules of a batch (docs/serving.md, "Energy").

use super::step::Seconds;
use crate::model::energy::Rates;
use crate::system::price::ByPart;
use serde::Serialize;
use std::ops::{Add, AddAssign};

/// What work uses beside its seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Uses {
    /// Seconds in which products and attention compute, whatever they wait for memory.
    pub arithmetic_s: f64,
    /// FLOP of products and attention.
    pub flop: f64,
    /// Bytes to and from the chip's memory.
    pub dram_bytes: f64,
    /// Joules of links.
    pub link_j: f64,
}

impl Uses {
    /// So many times.
    pub fn times(self, n: f64) -> Self {
        Self {
            arithmetic_s: n * self.arithmetic_s,
            flop: n * self.flop,
            dram_bytes: n * self.dram_bytes,
            link_j: n * self.link_j,
        }
    }

    /// Joules by part.
    pub fn joules(&self, rates: &Rates) -> ByPart {
        ByPart {
            chips: self.arithmetic_s * rates.busy_w + self.flop * rates.flop_j,
            memory: self.dram_bytes * rates.dram_byte_j,
            links: self.link_j,
            switches: 0.0,
        }
    }
}

impl Add for Uses {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            arithmetic_s: self.arithmetic_s + other.arithmetic_s,
            flop: self.flop + other.flop,
            dram_bytes: self.dram_bytes + other.dram_bytes,
            link_j: self.link_j + other.link_j,
        }
    }
}

impl AddAssign for Uses {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Seconds of a kernel, and what it uses.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Kernel {
    /// Seconds.
    pub seconds: f64,
    /// What it uses.
    pub uses: Uses,
}

impl Kernel {
    /// Of a kernel that only moves bytes.
    pub fn moving(seconds: f64, bytes: f64) -> Self {
        Self { seconds, uses: Uses { dram_bytes: bytes, ..Uses::default() } }
    }
}

impl Add for Kernel {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { seconds: self.seconds + other.seconds, uses: self.uses + other.uses }
    }
}

impl AddAssign for Kernel {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// A pass on one chip: seconds by what they are spent on, and what it uses.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spent {
    /// Seconds.
    pub seconds: Seconds,
    /// What it uses.
    pub uses: Uses,
}

impl Spent {
    /// So many times.
    pub fn times(&self, n: f64) -> Self {
        Self { seconds: self.seconds.times(n), uses: self.uses.times(n) }
    }

    /// One after the other.
    pub fn plus(&self, other: &Self) -> Self {
        Self { seconds: self.seconds.plus(&other.seconds), uses: self.uses + other.uses }
    }
}
