//! What a search minimises, and what it counts for the seconds and the joules of an iteration.
//!
//! An objective counts `second` for each second of an iteration and `joule` for each joule that use adds ([`super::energy`]); idle power is counted with the seconds:
//!
//! | objective | second | joule |
//! |---|---|---|
//! | time | 1 | 0 |
//! | energy | idle watts of the system | 1 |
//! | cost | price / write-off time + q e * idle watts | q e |
//!
//! (e: price of a joule, q: PUE.)

use super::energy;
use crate::system::economics::Economics;
use crate::system::{System, price};

crate::choice! {
    /// What is minimised.
    pub enum Objective ("an objective") {
        /// Seconds of an iteration.
        Time = "time",
        /// Joules of an iteration, idle power included.
        Energy = "energy",
        /// Dollars of an iteration: the share of the system's price that wears off in it, and its electricity.
        Cost = "cost",
    }
}

impl Objective {
    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Time => "s",
            Self::Energy => "J",
            Self::Cost => "$",
        }
    }
}

/// What an objective counts for seconds and for joules of an iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worth {
    /// A second.
    pub second: f64,
    /// A joule beyond the idle power.
    pub joule: f64,
}

impl Worth {
    /// Of time.
    pub const TIME: Self = Self { second: 1.0, joule: 0.0 };

    /// Of an objective on a system.
    ///
    /// # Errors
    /// A sentence: the chips state no price or power, or the objective is zero for everything.
    pub fn of(objective: Objective, economics: &Economics, system: &System) -> Result<Self, String> {
        let unknown = match objective {
            Objective::Time => None,
            _ if price::power(system).known().is_nan() => Some("power (0 W)"),
            Objective::Energy => None,
            Objective::Cost => price::cost(system).known().is_nan().then_some("price ($0)"),
        };
        if let Some(what) = unknown {
            return Err(format!(
                "the objective {objective} is not known: the chip {} states no {what}, and the rest of the system is a part of it alone",
                system.chip.0.name
            ));
        }
        let idle_w = price::idle_power(system).total();
        let joule_usd = economics.pue * economics.electricity.0;
        let worth = match objective {
            Objective::Time => return Ok(Self::TIME),
            Objective::Energy => Self { second: idle_w, joule: 1.0 },
            Objective::Cost => Self {
                second: price::cost(system).total() / economics.amortization.0 + joule_usd * idle_w,
                joule: joule_usd,
            },
        };
        let rates = energy::rates(system);
        let links = system.network.dimensions.iter().map(|d| energy::link_byte_j(&d.link.0, &system.model));
        let by_use = rates.busy_w + rates.flop_j + rates.dram_byte_j + links.sum::<f64>();
        if worth.second + worth.joule * by_use <= 0.0 {
            return Err(format!(
                "the objective {objective} is zero for every mapping: the parts of the system have no price or power, or \
                 electricity none"
            ));
        }
        Ok(worth)
    }

    /// Of an iteration of so many seconds, of which use adds so many joules.
    pub fn value(&self, seconds: f64, joules: f64) -> f64 {
        self.second * seconds + self.joule * joules
    }
}
