//! Systems of equal price, power or number of chips: one dimension of the network of a point's system is scaled to the
//! largest size that the budget pays for.
//!
//! Price and power (at full use, `system::price`) and the number of chips do not fall when a dimension grows, so that the
//! largest size is found by bisection. Rounding is always down, to a size of the set that is allowed: no system is over its budget.

use super::{System, price};
use crate::spec::{FromNode, Node, Reader, Value, schema::Definitions};
use crate::units::{Power, Price};
use serde::Serialize;
use serde_json::json;
use std::fmt;

crate::choice! {
    /// Sizes that a scaled dimension may have.
    pub enum Sizes ("a set of sizes") {
        /// One, three or five times a power of two: what layers, heads and samples can mostly be divided among.
        Divisible = "divisible",
        /// Any whole number, which a model may have no execution on, or a much slower one than on fewer.
        Whole = "whole",
        /// Powers of two, which layers, heads and batches are more often multiples of.
        PowerOfTwo = "power_of_two",
    }
}

crate::spec! {
    /// What every system of a study may cost, draw or have: one dimension of its network is scaled to meet it. Exactly
    /// one of cost, power and chips.
    pub struct BudgetSpec ("a budget", check: check) {
        /// Price of the whole system.
        cost: Option<Price>,
        /// Power of the whole system at full use.
        power: Option<Power>,
        /// Number of chips.
        chips: Option<u64>,
        /// The dimension that is scaled: outermost, innermost, or its position counted from 0 (the innermost).
        dimension: Scaled = Scaled::Outermost,
        /// Sizes that it may have; the largest within the budget is taken.
        sizes: Sizes = Sizes::Divisible,
    }
}

fn check(budget: &BudgetSpec, node: &Node, reader: &mut Reader) {
    let given = [budget.cost.is_some(), budget.power.is_some(), budget.chips.is_some()];
    let count = given.iter().filter(|g| **g).count();
    if count != 1 {
        reader.problem(node, format!("expected exactly one of cost, power and chips, found {count} of them"));
    }
}

/// Which dimension is scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scaled {
    /// The last.
    Outermost,
    /// The first.
    Innermost,
    /// By position.
    At(usize),
}

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outermost => f.write_str("outermost"),
            Self::Innermost => f.write_str("innermost"),
            Self::At(i) => write!(f, "{i}"),
        }
    }
}

impl Serialize for Scaled {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromNode for Scaled {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let read = match &node.value {
            Value::Scalar { text, .. } => match text.as_str() {
                "outermost" => Some(Self::Outermost),
                "innermost" => Some(Self::Innermost),
                digits => digits.parse().ok().filter(|i| *i < 6).map(Self::At),
            },
            _ => None,
        };
        if read.is_none() {
            reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
        }
        read
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "anyOf": [{ "enum": ["outermost", "innermost"] }, { "type": "integer", "minimum": 0, "maximum": 5 }] })
    }
    fn expected() -> String {
        "outermost, innermost, or a position from 0 to 5".into()
    }
}

/// What is held equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Price.
    Cost,
    /// Power at full use.
    Power,
    /// Chips.
    Chips,
}

impl Kind {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Power => "power",
            Self::Chips => "chips",
        }
    }
    fn unit(self) -> &'static str {
        match self {
            Self::Cost => "$",
            Self::Power => "W",
            Self::Chips => "chips",
        }
    }
    fn noun(self) -> &'static str {
        match self {
            Self::Cost => "price",
            Self::Power => "power",
            Self::Chips => "number",
        }
    }
    /// Whether the chips have one.
    fn known(self, system: &System) -> bool {
        match self {
            Self::Cost => price::cost(system).known().is_finite(),
            Self::Power => price::power(system).known().is_finite(),
            Self::Chips => true,
        }
    }
    fn of(self, system: &System) -> f64 {
        match self {
            Self::Cost => price::cost(system).total(),
            Self::Power => price::power(system).total(),
            Self::Chips => system.chip_count() as f64,
        }
    }
}

/// How a system was fitted to a budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fitted {
    /// What is held equal.
    pub kind: Kind,
    /// The budget, in dollars, watts or chips.
    pub limit: f64,
    /// What of it the system takes.
    pub used: f64,
    /// Position of the scaled dimension; `None` for a single chip, which has none to scale.
    pub dimension: Option<usize>,
    /// Its size.
    pub size: u64,
}

/// Why a system was not fitted.
#[derive(Debug, Clone, PartialEq)]
pub enum Unfit {
    /// Its smallest size is over the budget.
    Over {
        /// What it takes.
        needed: f64,
        /// The budget.
        available: f64,
        /// Unit of both.
        unit: &'static str,
        /// What would mend it.
        remedy: String,
    },
    /// The budget does not suit the system: the message.
    Wrong(String),
}

impl Sizes {
    /// The largest of the set that is not above a size.
    fn largest(self, size: u64) -> u64 {
        let odd: &[u64] = match self {
            Self::Whole => return size,
            Self::Divisible => &[1, 3, 5],
            Self::PowerOfTwo => &[1],
        };
        let doubled = |odd: &u64| size.checked_div(*odd)?.checked_ilog2().map(|twos| odd << twos);
        odd.iter().filter_map(doubled).max().unwrap_or(1)
    }
}

/// Most chips of a network.
const MOST_CHIPS: u64 = 1 << 32;

impl BudgetSpec {
    fn kind(&self) -> Option<(Kind, f64)> {
        let cost = self.cost.map(|c| (Kind::Cost, c.0));
        let power = self.power.map(|p| (Kind::Power, p.0));
        cost.or(power).or(self.chips.map(|c| (Kind::Chips, c as f64)))
    }

    /// Scales the system to the budget.
    ///
    /// # Errors
    /// [`Unfit`]: no size is within the budget, or none is over it; there is no such dimension.
    pub fn fit(&self, system: &mut System) -> Result<Fitted, Unfit> {
        let Some((kind, limit)) = self.kind() else { return Err(Unfit::Wrong("states no budget".into())) };
        let dimensions = system.network.dimensions.len();
        // Of memories and links alone any number would seem to be paid for.
        if kind != Kind::Chips && !kind.known(system) {
            let chip = &system.chip.0.name;
            return Err(Unfit::Over {
                needed: f64::NAN,
                available: limit,
                unit: kind.unit(),
                remedy: format!(
                    "the {} of the chip {chip} is not known; state it in its file to compare at equal {}",
                    kind.noun(),
                    kind.noun()
                ),
            });
        }
        let over = |used: f64, what: &str| Unfit::Over {
            needed: used,
            available: limit,
            unit: kind.unit(),
            remedy: format!(
                "{what} takes {} of {used} {unit}, the budget is {limit} {unit}; raise it or choose a smaller system",
                kind.word(),
                unit = kind.unit()
            ),
        };
        let position = match self.dimension {
            _ if dimensions == 0 => {
                let used = kind.of(system);
                let fitted = Fitted { kind, limit, used, dimension: None, size: 1 };
                return if used <= limit { Ok(fitted) } else { Err(over(used, "a single chip")) };
            }
            Scaled::Outermost => dimensions - 1,
            Scaled::Innermost => 0,
            Scaled::At(i) if i < dimensions => i,
            Scaled::At(i) => {
                return Err(Unfit::Wrong(format!(
                    "there is no dimension {i}: the network has {dimensions}, counted from 0"
                )));
            }
        };
        let others = system.network.dimensions.iter().enumerate().filter(|(i, _)| *i != position);
        let others: u64 = others.fold(1, |p, (_, d)| p.saturating_mul(d.size));
        let most = (MOST_CHIPS / others.max(1)).max(1);
        system.chips = None;
        let mut used = |size: u64| {
            system.network.dimensions[position].size = size;
            system.sum_up();
            kind.of(system)
        };
        let least = used(1);
        if least > limit {
            return Err(over(least, &format!("dimension {position} of size 1")));
        }
        // low fits, high does not (or is out of reach).
        let (mut low, mut high) = (1, most + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if used(middle) <= limit { low = middle } else { high = middle }
        }
        let size = self.sizes.largest(low);
        let used = used(size);
        if low == most {
            return Err(Unfit::Wrong(format!(
                "the budget of {limit} {} pays for more than 2^32 chips; lower it, or give the parts of the system their {}",
                kind.unit(),
                kind.word()
            )));
        }
        Ok(Fitted { kind, limit, used, dimension: Some(position), size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(topology: &str, sizes: &[u64], price: &str) -> System {
        let part = "source: 'assumed: test'";
        let dimensions: Vec<String> = sizes
            .iter()
            .map(|s| {
                format!(
                    "{{size: {s}, link: {{name: l, {part}, bandwidth: 10 GB/s, price: {price}/(GB/s), power: 0.1 W/(GB/s)}}}}"
                )
            })
            .collect();
        let text = format!(
            "{{name: s, source: test, chip: {{name: c, {part}, style: dataflow, cores: 10, lanes: 10, stages: 5, \
             frequency: 1 GHz, sram: 1 GB, efficiency: 1, price: {price}000, power: 100 W}}, memory: {{name: m, {part}, \
             bandwidth: 100 GB/s, price: {price}/(GB/s), power: 0.1 W/(GB/s)}}, network: {{topology: {topology}, \
             dimensions: [{}], switch: {{name: x, {part}, price: {price}/(GB/s), power: 0.5 W/(GB/s)}}}}}}",
            dimensions.join(", ")
        );
        System::build(&Node::parse("test", &text).unwrap()).unwrap()
    }

    fn budget(text: &str) -> BudgetSpec {
        Reader::read(&Node::parse("test", text).unwrap()).unwrap()
    }

    /// By hand, a switch of n chips: n (1000 + 100 + 10 + 10) dollars above four chips, without the port's 10 below.
    #[test]
    fn iso_cost_by_hand() {
        for (dollars, size, used) in
            [(11_200.0, 10, 11_200.0), (11_199.0, 9, 10_080.0), (4_440.0, 4, 4_440.0), (5_599.0, 4, 4_440.0)]
        {
            let mut s = system("switch", &[3], "$1");
            let fitted = budget(&format!("{{cost: ${dollars}, sizes: whole}}")).fit(&mut s).unwrap();
            assert_eq!((fitted.size, fitted.used, fitted.dimension), (size, used, Some(0)), "{dollars}");
            assert_eq!(s.chip_count(), size);
        }
        let mut s = system("switch", &[3], "$1");
        let fitted = budget("{cost: $11_200, sizes: power_of_two}").fit(&mut s).unwrap();
        assert_eq!((fitted.size, fitted.used), (8, 8960.0));
    }

    /// A dollar less than 33 chips, 33 chips, 40 chips and 163 chips cost: 32 = 2^5, 32, 40 = 5 x 2^3, 160 = 5 x 2^5; 7 chips are 6 = 3 x 2, 6 or 4.
    #[test]
    fn sizes_are_those_that_models_are_divided_among() {
        for (chips, dollars, divisible, two) in [
            (32, 33 * 1120 - 1, 32, 32),
            (33, 33 * 1120, 32, 32),
            (40, 40 * 1120, 40, 32),
            (163, 163 * 1120, 160, 128),
            (7, 7 * 1120, 6, 4),
        ] {
            for (sizes, size) in [
                ("", divisible),
                (", sizes: divisible", divisible),
                (", sizes: power_of_two", two),
                (", sizes: whole", chips),
            ] {
                let fitted =
                    budget(&format!("{{cost: ${dollars}{sizes}}}")).fit(&mut system("switch", &[3], "$1")).unwrap();
                // Four chips have no switch: $10 a chip less.
                let each = if size > 4 { 1120 } else { 1110 };
                assert_eq!((fitted.size, fitted.used), (size, (size * each) as f64), "{dollars} {sizes}");
            }
        }
        for n in 1..1000_u64 {
            let allowed = |m: &u64| [1, 3, 5].contains(&(m >> m.trailing_zeros()));
            assert_eq!(Some(Sizes::Divisible.largest(n)), (1..=n).rev().find(allowed));
            assert_eq!(Some(Sizes::PowerOfTwo.largest(n)), (1..=n).rev().find(|m| m.is_power_of_two()));
        }
    }

    /// Power of a 2 x n torus: 2n (100 + 10) and its links 2n (1 + 1), and routers 2 * 2n/2 * 10 + 2 * 2n/n * 10 GB/s at
    /// 0.5 W above four chips: 234 n + 20. 1 kW pays for n = 4 (956 W); chips are counted.
    #[test]
    fn iso_power_and_iso_chips_by_hand() {
        let mut s = system("torus-2d", &[2, 7], "$1");
        let fitted = budget("{power: 1 kW}").fit(&mut s).unwrap();
        assert_eq!((fitted.size, fitted.dimension), (4, Some(1)));
        assert!((fitted.used - 956.0).abs() < 1e-9, "{}", fitted.used);
        let mut s = system("torus-2d", &[2, 7], "$1");
        let fitted = budget("{chips: 100, dimension: innermost, sizes: whole}").fit(&mut s).unwrap();
        assert_eq!((fitted.size, fitted.used, fitted.dimension), (14, 98.0, Some(0)));
        assert_eq!(budget("{chips: 100, dimension: 1, sizes: whole}").fit(&mut s).unwrap().size, 7);
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let mut s = system("torus-2d", &[8, 8], "$1");
        let Err(Unfit::Over { needed, available, unit, .. }) = budget("{cost: $100}").fit(&mut s) else {
            panic!("fits")
        };
        assert!(needed > available && unit == "$", "{needed} {available}");
        let wrong = |budget: BudgetSpec, mut s: System| match budget.fit(&mut s) {
            Err(Unfit::Wrong(message)) => message,
            other => panic!("{other:?}"),
        };
        let message = wrong(budget("{chips: 8, dimension: 3}"), system("torus-2d", &[8, 8], "$1"));
        assert!(message.contains("no dimension 3: the network has 2"), "{message}");
        let message = wrong(budget("{cost: $100}"), system("torus-2d", &[8, 8], "$0.00000000001"));
        assert!(message.contains("more than 2^32 chips"), "{message}");
        let message = wrong(budget("{cost: $100, sizes: power_of_two}"), system("torus-2d", &[8, 8], "$0.00000000001"));
        assert!(message.contains("more than 2^32 chips"), "{message}");
        // Chips without a price are not free: the rest of the system would seem to pay for any number of them.
        let Err(Unfit::Over { needed, remedy, .. }) =
            budget("{cost: $100}").fit(&mut system("torus-2d", &[8, 8], "$0"))
        else {
            panic!("free chips")
        };
        assert!(needed.is_nan() && remedy.contains("the price of the chip c is not known"), "{remedy}");
        let mut single = system("single-chip", &[], "$1");
        assert_eq!(budget("{cost: $2000}").fit(&mut single).unwrap().dimension, None);
        assert!(matches!(budget("{cost: $1}").fit(&mut single), Err(Unfit::Over { .. })));
    }
}
