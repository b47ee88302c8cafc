//! What running a system costs: electricity, the share of its price that wears off, and the run they are counted for.
//!
//! Let P be the price of the system in dollars, T the seconds of an iteration, E its joules (`model::energy`), L the
//! seconds over which the price is written off, e the price of a joule, q the facility's factor (PUE). Then
//!
//! ```text
//! capital of an iteration   P T / L
//! energy of an iteration    q e E
//! iterations of a run       tokens / (tokens of a sample * batch), samples / batch, or as stated; not rounded
//! run                       iterations * (capital + energy)
//! ```

use crate::spec::{FromNode, Node, Reader, Value, schema::Definitions};
use crate::units::{PricePerEnergy, Years};
use serde::Serialize;
use serde_json::json;
use std::fmt;

crate::spec! {
    /// Prices of running a system, and the run they are counted for.
    #[derive(Copy)]
    pub struct Economics ("economics", check: check) {
        /// Price of electricity.
        electricity: PricePerEnergy = Economics::default().electricity,
        /// Years over which the price of the system is written off, evenly.
        amortization: Years = Economics::default().amortization,
        /// Energy of the facility over energy of the system (power usage effectiveness), at least 1.
        pue: f64 = Economics::default().pue,
        /// Length of the whole run, such as `300e9 tokens`, `1e9 samples` or `95_000 iterations`.
        run: Option<RunLength>,
    }
}

impl Default for Economics {
    /// $0.10/kWh, four years, a facility that needs nothing itself, no run.
    fn default() -> Self {
        Self { electricity: PricePerEnergy(0.10 / 3.6e6), amortization: Years(4.0 * 31_557_600.0), pue: 1.0, run: None }
    }
}

fn check(economics: &Economics, node: &Node, reader: &mut Reader) {
    let mut say = |field: &str, what: &str| {
        let at = node.get(field).unwrap_or(node);
        reader.within(field, |r| r.problem(at, format!("expected {what}, found {}", at.describe())));
    };
    if economics.pue < 1.0 {
        say("pue", "at least 1: a facility draws what the system draws, and more");
    }
    if economics.amortization.0 < 1.0 {
        say("amortization", "at least a second");
    }
}

/// The length of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunLength {
    /// Tokens.
    Tokens(f64),
    /// Samples.
    Samples(f64),
    /// Iterations.
    Iterations(f64),
}

impl RunLength {
    /// Reads `300e9 tokens`.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected {}, found {text:?}", Self::expected());
        let (number, unit) = text.trim().split_once(char::is_whitespace).ok_or_else(wrong)?;
        let amount: f64 = number.replace('_', "").parse().map_err(|_| wrong())?;
        if !(amount.is_finite() && amount > 0.0) {
            return Err(wrong());
        }
        match unit.trim() {
            "tokens" => Ok(Self::Tokens(amount)),
            "samples" => Ok(Self::Samples(amount)),
            "iterations" => Ok(Self::Iterations(amount)),
            _ => Err(wrong()),
        }
    }

    /// Iterations of the run, each of a batch of samples of so many tokens; `None` for tokens where samples have none.
    pub fn iterations(self, batch: u64, tokens_per_sample: Option<u64>) -> Option<f64> {
        let batch = batch as f64;
        match self {
            Self::Tokens(tokens) => tokens_per_sample.map(|each| tokens / (each as f64 * batch)),
            Self::Samples(samples) => Some(samples / batch),
            Self::Iterations(iterations) => Some(iterations),
        }
    }
}

impl fmt::Display for RunLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens(n) => write!(f, "{n} tokens"),
            Self::Samples(n) => write!(f, "{n} samples"),
            Self::Iterations(n) => write!(f, "{n} iterations"),
        }
    }
}

impl FromNode for RunLength {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let read = match &node.value {
            Value::Scalar { text, .. } => Self::parse(text).ok(),
            _ => None,
        };
        if read.is_none() {
            reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
        }
        read
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "string", "description": Self::expected(), "examples": ["300e9 tokens"] })
    }
    fn expected() -> String {
        "the length of a run such as \"300e9 tokens\" (or samples, iterations)".into()
    }
}

/// Dollars, by what they are spent on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spent {
    /// The share of the system's price that wears off.
    pub capital: f64,
    /// Electricity.
    pub energy: f64,
}

impl Spent {
    /// The sum.
    pub fn total(&self) -> f64 {
        self.capital + self.energy
    }
}

impl Economics {
    /// Dollars of one iteration of `seconds` and `joules` on a system of the given price.
    pub fn iteration(&self, price: f64, seconds: f64, joules: f64) -> Spent {
        Spent { capital: price * seconds / self.amortization.0, energy: self.pue * self.electricity.0 * joules }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: $4 M over 4 years is $1 M a year; 36.525 days of it are $100,000. 1 MW for those 3,155,760 s is 876.6 MWh,
    /// at $100/MWh and PUE 1.5 $131,490.
    #[test]
    fn dollars_by_hand() {
        let economics = Economics { pue: 1.5, ..Economics::default() };
        let seconds = 36.525 * 86400.0;
        let spent = economics.iteration(4e6, seconds, 1e6 * seconds);
        assert!((spent.capital - 100_000.0).abs() < 1e-6, "{}", spent.capital);
        assert!((spent.energy - 131_490.0).abs() < 1e-6, "{}", spent.energy);
        assert_eq!(spent.total(), spent.capital + spent.energy);
    }

    #[test]
    fn lengths_are_read_with_their_unit_alone() {
        assert_eq!(RunLength::parse("300e9 tokens"), Ok(RunLength::Tokens(300e9)));
        assert_eq!(RunLength::parse("95_000  iterations"), Ok(RunLength::Iterations(95_000.0)));
        for wrong in
            ["300e9", "tokens", "-1 tokens", "0 samples", "inf samples", "NaN samples", "3 epochs", "", "1tokens"]
        {
            assert!(RunLength::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// 300e9 tokens in batches of 1536 samples of 2048 tokens are 95,367.43 iterations.
    #[test]
    fn iterations_of_a_run() {
        let found = RunLength::Tokens(300e9).iterations(1536, Some(2048)).unwrap();
        assert!((found - 95_367.431_640_625).abs() < 1e-9, "{found}");
        assert_eq!(RunLength::Samples(3072.0).iterations(1536, None), Some(2.0));
        assert_eq!(RunLength::Tokens(1.0).iterations(1536, None), None);
    }
}
