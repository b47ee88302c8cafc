//! What a front is made of: objectives and constraints over columns of the results, each as a product of what a search finds and of what
//! the system states.

use crate::report::csv::{self, COLUMNS};
use crate::report::plot::Better;
use crate::spec::nearest::nearest;
use crate::spec::{FromNode, Node, Reader, Value, schema::Definitions};
use crate::system::System;
use crate::units::{Power, Price, Quantity, Seconds};
use serde::Serialize;
use serde_json::json;
use std::fmt;

crate::spec! {
    /// Search the front of the grid instead of solving every point: the points that are best in several columns at once, and the proof that
    /// no other point is better than them by more than a tolerance. Of each axis the program must know how it acts (`order` of an axis).
    pub struct SearchSpec ("a search of the front", check: check_search) {
        /// The objectives: `max COLUMN` or `min COLUMN`, two to four.
        front: Vec<Aim>,
        /// How much worse than any point of the grid the point that stands for it may be, in every objective: a percentage (`1 %`) or a share.
        within: Tolerance = Tolerance(0.0),
        /// What every point of the front keeps: `COLUMN <= VALUE` or `COLUMN >= VALUE`, in the column's unit or with one (`power_w <= 2 MW`).
        constraints: Vec<Constraint> = Vec::new(),
        /// Points that are asked for at the same time, as many as can be solved at once: more of them make a few more solves, and fewer rounds of them.
        at_once: u64 = 4,
    }
}

/// A share, written as a percentage or as a number below 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Tolerance(pub f64);

impl FromNode for Tolerance {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let found = match &node.value {
            Value::Scalar { text, .. } => match text.trim().strip_suffix('%') {
                Some(percent) => percent.trim().parse::<f64>().ok().map(|p| p / 100.0),
                None => text.trim().parse::<f64>().ok(),
            },
            _ => None,
        };
        found.filter(|share| (0.0..1.0).contains(share)).map(Self).or_else(|| {
            reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
            None
        })
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "anyOf": [{ "type": "string" }, { "type": "number" }] })
    }
    fn expected() -> String {
        "a percentage of 0 % to below 100 %, or a share of 0 to below 1".into()
    }
}

/// What a value of a column is made of, smaller being better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Measure {
    /// The column.
    pub column: &'static str,
    /// Whether larger values are better.
    pub higher: bool,
    /// The column that a search finds.
    searched: Option<&'static str>,
    /// The column that the system states.
    given: Option<&'static str>,
}

/// Columns that are proportional to the time of an iteration or to one over it: what the search minimises.
const SEARCHED: [&str; 4] = ["samples_per_s", "tokens_per_s", "flop_per_s", "iteration_s"];

/// Columns by price or power, what is found, and what is given.
const RATIOS: [(&str, &str, &str); 6] = [
    ("samples_per_s_per_musd", "samples_per_s", "cost_usd"),
    ("samples_per_s_per_mw", "samples_per_s", "power_w"),
    ("tokens_per_s_per_usd", "tokens_per_s", "cost_usd"),
    ("tokens_per_s_per_w", "tokens_per_s", "power_w"),
    ("flop_per_s_per_usd", "flop_per_s", "cost_usd"),
    ("flop_per_s_per_w", "flop_per_s", "power_w"),
];

impl Measure {
    /// Of a column.
    ///
    /// # Errors
    /// Why a box of points has no bound in it.
    pub fn of(column: &str) -> Result<Self, String> {
        let known: Vec<&'static str> = Self::columns().collect();
        let Some(column) = known.iter().copied().find(|name| *name == column) else {
            let all: Vec<&str> = COLUMNS.iter().map(|c| c.name).collect();
            return Err(match (all.contains(&column), nearest(column, &known)) {
                (true, _) => format!(
                    "{column} has no bound over many systems at once, as it may rise and fall with what they have; there is {}",
                    known.join(", ")
                ),
                (false, Some(near)) => format!("there is no column {column:?}; did you mean {near:?}?"),
                (false, None) => format!("there is no column {column:?}; there is {}", known.join(", ")),
            });
        };
        let higher = csv::better(column) == Some(Better::Higher);
        let ratio = RATIOS.iter().find(|(name, _, _)| *name == column);
        let searched = SEARCHED.iter().copied().find(|name| *name == column);
        Ok(match (ratio, searched) {
            (Some((_, searched, given)), _) => Self { column, higher, searched: Some(searched), given: Some(given) },
            (None, Some(searched)) => Self { column, higher, searched: Some(searched), given: None },
            (None, None) => Self { column, higher, searched: None, given: Some(column) },
        })
    }

    /// The columns that have a measure.
    fn columns() -> impl Iterator<Item = &'static str> {
        let ratios = RATIOS.iter().map(|(name, _, _)| *name);
        SEARCHED.into_iter().chain(csv::given_columns()).chain(ratios)
    }

    /// What the system states of it; `None` where it states none, as a chip without a price.
    pub fn given(&self, system: &System) -> Option<f64> {
        match self.given {
            Some(column) => csv::of_system(column, system).map(|value| value * self.scale()).filter(|v| v.is_finite()),
            None => Some(1.0),
        }
    }

    /// Of what is given, in the unit of the column.
    fn scale(&self) -> f64 {
        if self.column.ends_with("_per_musd") || self.column.ends_with("_per_mw") { 1e-6 } else { 1.0 }
    }

    /// What a row says of it, by the value of a column.
    pub fn searched(&self, value: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        match self.searched {
            Some("iteration_s") => value("iteration_s"),
            Some(rate) => value(rate).map(|rate| 1.0 / rate),
            None => Some(1.0),
        }
        .filter(|value| value.is_finite())
    }

    /// Whether a search has a part in it.
    pub fn is_searched(&self) -> bool {
        self.searched.is_some()
    }

    /// The name of what the system states.
    pub fn given_column(&self) -> Option<&'static str> {
        self.given
    }
}

/// An objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Aim(pub Measure);

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.0.higher { "max" } else { "min" }, self.0.column)
    }
}

impl FromNode for Aim {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = match &node.value {
            Value::Scalar { text, .. } => text.as_str(),
            _ => "",
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let read = match words.as_slice() {
            [direction @ ("max" | "min"), column] => {
                Measure::of(column).and_then(|measure| match (*direction == "max") == measure.higher {
                    true => Ok(Self(measure)),
                    false => Err(format!(
                        "{column} is better when {}; write {} {column}",
                        if measure.higher { "higher" } else { "lower" },
                        if measure.higher { "max" } else { "min" },
                    )),
                })
            }
            _ => Err(format!("expected {}, found {}", Self::expected(), node.describe())),
        };
        read.map_err(|message| reader.problem(node, message)).ok()
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "string" })
    }
    fn expected() -> String {
        "an objective, as max samples_per_s or min cost_usd".into()
    }
}

/// A constraint, in the measure's own direction: a value that is smaller being better is at most `limit`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Constraint {
    /// Of what.
    pub measure: Measure,
    /// The largest value, smaller being better.
    pub limit: f64,
    /// As it is written.
    pub text: String,
}

impl Constraint {
    /// Whether a value of its column keeps it; what has none does.
    pub fn keeps(&self, value: f64) -> bool {
        let slack = 1.0 + 1e-9;
        value.is_nan()
            || if self.measure.higher { value * self.limit * slack >= 1.0 } else { value <= self.limit * slack }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let sign = ["<=", ">="].into_iter().find_map(|sign| text.split_once(sign).map(|parts| (sign, parts)));
        let Some((sign, (column, value))) = sign else {
            return Err(format!("expected {}, found {text:?}", Self::expected()));
        };
        let measure = Measure::of(column.trim())?;
        if (sign == ">=") != measure.higher {
            return Err(format!(
                "{} is better when {}, so that {sign} cannot close any part of the space; write {}",
                measure.column,
                if measure.higher { "higher" } else { "lower" },
                if measure.higher { ">=" } else { "<=" }
            ));
        }
        let value = in_unit(measure.column, value.trim())?;
        if !(value.is_finite() && value > 0.0) {
            return Err(format!("expected a value above zero, found {value}"));
        }
        let limit = if measure.higher { 1.0 / value } else { value };
        Ok(Self { measure, limit, text: text.split_whitespace().collect::<Vec<_>>().join(" ") })
    }
}

/// A value in a column's unit, or with one.
fn in_unit(column: &str, text: &str) -> Result<f64, String> {
    fn read<Q: Quantity>(text: &str) -> Result<f64, String> {
        Q::parse(text).map(Quantity::base).map_err(|e| format!("{e}{}", e.units::<Q>()))
    }
    match text.parse::<f64>() {
        Ok(value) => Ok(value),
        Err(_) if column.ends_with("_usd") && !column.contains("_per_") => read::<Price>(text),
        Err(_) if column.ends_with("_w") && !column.contains("_per_") => read::<Power>(text),
        Err(_) if column == "iteration_s" => read::<Seconds>(text),
        Err(_) => Err(format!("expected a number, found {text:?}")),
    }
}

impl FromNode for Constraint {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let read = match &node.value {
            Value::Scalar { text, .. } => Self::parse(text),
            _ => Err(format!("expected {}, found {}", Self::expected(), node.describe())),
        };
        read.map_err(|message| reader.problem(node, message)).ok()
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "string" })
    }
    fn expected() -> String {
        "a constraint, as power_w <= 2 MW or samples_per_s >= 10".into()
    }
}

fn check_search(search: &SearchSpec, node: &Node, reader: &mut Reader) {
    let at = node.get("front").unwrap_or(node);
    let mut say = |message: String| reader.within("front", |r| r.problem(at, message));
    if !(2..=4).contains(&search.front.len()) {
        say(format!("expected two to four objectives, found {}", search.front.len()));
    }
    for (i, aim) in search.front.iter().enumerate() {
        if search.front[..i].contains(aim) {
            say(format!("{} stands twice", aim.0.column));
        }
    }
    if !search.front.iter().any(|aim| aim.0.is_searched()) {
        say("no objective depends on a mapping; `study run` without search prices every point at once".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_are_products_of_what_is_found_and_given() {
        let value = |column: &str| (column == "samples_per_s").then_some(4.0);
        let ratio = Measure::of("samples_per_s_per_musd").unwrap();
        assert_eq!((ratio.higher, ratio.searched(value), ratio.given), (true, Some(0.25), Some("cost_usd")));
        let price = Measure::of("cost_usd").unwrap();
        assert_eq!((price.higher, price.searched(value), price.is_searched()), (false, Some(1.0), false));
        assert!(Measure::of("utilization").unwrap_err().contains("may rise and fall"));
        assert!(Measure::of("sample_per_s").unwrap_err().contains("did you mean \"samples_per_s\""));
        for (column, _, _) in RATIOS {
            assert!(Measure::of(column).unwrap().higher, "{column}");
        }
    }

    #[test]
    fn constraints_have_units_and_directions() {
        let power = Constraint::parse("power_w <= 2 MW").unwrap();
        assert_eq!((power.limit, power.measure.column), (2e6, "power_w"));
        assert_eq!(Constraint::parse("samples_per_s >= 4").unwrap().limit, 0.25);
        assert_eq!(Constraint::parse("cost_usd <= $10_000_000").unwrap().limit, 1e7);
        assert_eq!(Constraint::parse("iteration_s<=20 ms").unwrap().limit, 0.02);
        assert!(power.keeps(2e6) && !power.keeps(2.1e6) && power.keeps(f64::NAN));
        let rate = Constraint::parse("samples_per_s >= 4").unwrap();
        assert!(rate.keeps(4.0) && !rate.keeps(3.9));
        for (text, part) in [
            ("power_w < 2", "expected a constraint"),
            ("power_w >= 2 MW", "write <="),
            ("power_w <= 2 GB", "is not a unit of a power"),
            ("samples_per_s >= fast", "expected a number"),
            ("cost_usd <= 0", "above zero"),
        ] {
            let message = Constraint::parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
