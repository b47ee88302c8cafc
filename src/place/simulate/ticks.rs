//! Seconds as whole ticks, so that a state which comes again is the same to the bit.

use super::net::Net;

/// The unit of the simulation's clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ticks {
    /// Seconds of one tick.
    pub seconds: f64,
    /// Whether every time of the net is a whole number of ticks as it stands.
    pub exact: bool,
}

/// The longest time takes at most 2^50 ticks: a time is off by at most 2^-51 of the longest one.
const MOST: f64 = (1u64 << 50) as f64;

impl Ticks {
    /// The unit for a net: the coarsest decimal fraction of a second of which every time is a multiple, as far as the
    /// doubles tell; else the longest time / 2^50.
    pub fn of_net(net: &Net) -> Self {
        let times = || net.seconds.iter().copied().chain(net.fifos.iter().map(|f| f.delay));
        let longest = times().fold(0.0, f64::max);
        for power in 0..=18 {
            let rate = 10f64.powi(power);
            if longest * rate > MOST {
                break;
            }
            let whole = |t: f64| (t * rate - (t * rate).round()).abs() <= 4.0 * f64::EPSILON * t * rate;
            if times().all(whole) {
                return Self { seconds: 1.0 / rate, exact: true };
            }
        }
        Self { seconds: if longest > 0.0 { longest / MOST } else { 1.0 }, exact: false }
    }

    /// Ticks of a time.
    pub fn of(&self, seconds: f64) -> u64 {
        (seconds / self.seconds).round() as u64
    }

    /// Seconds of a number of ticks. Decimal units divide, which rounds once: 12 ticks of 0.1 s are 1.2 s.
    pub fn seconds_of(&self, ticks: u128) -> f64 {
        if self.exact { ticks as f64 / (1.0 / self.seconds).round() } else { ticks as f64 * self.seconds }
    }
}
