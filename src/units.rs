//! Physical quantities as types: parsed from text with a unit, never from a bare number.
//!
//! Every quantity is an `f64` in one base unit (bytes, seconds, bytes/s, FLOP/s, hertz, watts, dollars). Decimal and
//! binary prefixes are kept apart: `80 GB` is 80e9 bytes, `80 GiB` is 80 * 2^30 bytes. Underscores may group digits.

use serde::Serialize;
use std::fmt;

/// Why a text is not the quantity it should be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum QuantityError {
    /// The text carries no unit.
    #[error("{found:?} has no unit")]
    MissingUnit {
        /// What was found.
        found: String,
    },
    /// The unit is not one of this quantity.
    #[error("{unit:?} is not a unit of {quantity}")]
    WrongUnit {
        /// The unit found.
        unit: String,
        /// The quantity wanted.
        quantity: &'static str,
    },
    /// The part before the unit is not a number.
    #[error("{found:?} is not a number{}", if found.contains(',') { " (a number has a decimal point, and _ between groups of digits)" } else { "" })]
    NotANumber {
        /// What was found.
        found: String,
    },
    /// The number is infinite, NaN, or negative.
    #[error("{found} is too large, negative or not a number")]
    OutOfRange {
        /// What was found.
        found: String,
    },
}

impl QuantityError {
    /// The units that would fit, where the unit is at fault, and the one that is likely meant.
    pub fn units<Q: Quantity>(&self) -> String {
        let meant = match self {
            Self::MissingUnit { .. } => String::new(),
            Self::WrongUnit { unit, .. } => meant(unit, Q::UNITS),
            Self::NotANumber { .. } | Self::OutOfRange { .. } => return String::new(),
        };
        let units: Vec<&str> = Q::UNITS.iter().map(|(unit, _)| *unit).collect();
        format!("{meant} (units: {})", units.join(", "))
    }
}

/// `; did you mean "Gb/s"?` of `Gbps`: the units that differ in how they are written alone.
fn meant(unit: &str, units: &[(&str, f64)]) -> String {
    let bare = |text: &str| -> String {
        let text: String = text.chars().filter(|c| !c.is_whitespace() && !"()".contains(*c)).collect();
        let ends = [("ps", "/s"), ("seconds", "s"), ("second", "s"), ("sec", "s"), ("watts", "W"), ("watt", "W")];
        let short = ends.iter().find_map(|(end, unit)| Some(format!("{}{unit}", text.strip_suffix(end)?)));
        short.unwrap_or(text)
    };
    let unit = bare(unit);
    // `Gb` are bits and `GB` bytes; `gb` may be either.
    let bits = |text: &str| text.contains('b') && text.contains(char::is_uppercase);
    let same = |exact: bool| {
        let all_small = unit == unit.to_lowercase();
        let fits = |name: &str| match (exact, bare(name)) {
            (true, name) => name == unit,
            (false, name) => name.eq_ignore_ascii_case(&unit) && (all_small || bits(&name) == bits(&unit)),
        };
        units.iter().map(|(name, _)| *name).filter(|name| fits(name)).collect::<Vec<_>>()
    };
    let found = Some(same(true)).filter(|found| !found.is_empty()).unwrap_or_else(|| same(false));
    let found: Vec<String> = found.iter().map(|name| format!("{name:?}")).collect();
    if found.is_empty() { String::new() } else { format!("; did you mean {}?", found.join(" or ")) }
}

/// The largest value in a base unit: beyond what anything has, and far enough from the largest number that sums and products of quantities have an end.
const LARGEST: f64 = 1e36;

/// A physical quantity: its name in messages, an example, and the units it can be written in.
pub trait Quantity: Copy + Sized {
    /// Name with article, as messages say it.
    const NAME: &'static str;
    /// An example of the notation.
    const EXAMPLE: &'static str;
    /// Units and their factor to the base unit. The first entry is the base unit.
    const UNITS: &'static [(&'static str, f64)];

    /// From a value in the base unit.
    fn from_base(value: f64) -> Self;
    /// The value in the base unit.
    fn base(self) -> f64;

    /// Reads `<number> <unit>`; `$30_000` is read for quantities whose unit is the dollar.
    ///
    /// # Errors
    /// [`QuantityError`] when the unit is missing or another quantity's, or the number is not finite and >= 0.
    fn parse(text: &str) -> Result<Self, QuantityError> {
        let text = text.trim();
        let (number, unit) = split_number(text);
        // The micro sign and the Greek letter.
        let unit = unit.trim().replace(['\u{b5}', '\u{3bc}'], "u");
        if number.is_empty() {
            return Err(QuantityError::NotANumber { found: text.into() });
        }
        if unit.is_empty() {
            return Err(QuantityError::MissingUnit { found: text.into() });
        }
        let factor = Self::UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, factor)| *factor)
            .ok_or(QuantityError::WrongUnit { unit, quantity: Self::NAME })?;
        let value: f64 =
            number.replace('_', "").parse().map_err(|_| QuantityError::NotANumber { found: number.clone() })?;
        if !value.is_finite() || value < 0.0 {
            return Err(QuantityError::OutOfRange { found: text.into() });
        }
        let base = value * factor;
        if base > LARGEST {
            return Err(QuantityError::OutOfRange { found: text.into() });
        }
        Ok(Self::from_base(base))
    }

    /// The shortest text that [`Quantity::parse`] reads as this value (to the last bit or two, which division by a unit's factor
    /// may cost): in the unit that needs the fewest digits, of several the first. Nothing is nothing in the base unit.
    fn shortest(self) -> String {
        let write = |value: f64, unit: &str| match unit.strip_prefix('$') {
            Some(per) => format!("${value}{per}"),
            None => format!("{value} {unit}"),
        };
        let base = Self::UNITS.first().map_or("", |(unit, _)| unit);
        if self.base() == 0.0 {
            return write(0.0, base);
        }
        let near = |read: Self| (read.base() - self.base()).abs() <= 1e-15 * self.base().abs();
        let exact = |text: &String| Self::parse(text).is_ok_and(near);
        let rounded = |value: f64| format!("{value:.14e}").parse().unwrap_or(value);
        let texts = Self::UNITS.iter().flat_map(|(unit, factor)| {
            let value = self.base() / factor;
            [write(rounded(value), unit), write(value, unit)]
        });
        texts.filter(exact).min_by_key(String::len).unwrap_or_else(|| write(self.base(), base))
    }
}

/// Splits `"$2/(GB/s)"` into `("2", "$/(GB/s)")` and `"900 GB/s"` into `("900", "GB/s")`.
fn split_number(text: &str) -> (String, String) {
    let (dollar, rest) = match text.strip_prefix('$') {
        Some(rest) => ("$", rest.trim_start()),
        None => ("", text),
    };
    for word in ["NaN", "nan", ".nan", ".NaN", "inf", ".inf", "-.inf", "-inf", "+inf"] {
        if let Some(unit) = rest.strip_prefix(word) {
            return (word.trim_start_matches('.').replace("-.", "-"), format!("{dollar}{}", unit.trim()));
        }
    }
    let bytes = rest.as_bytes();
    let mut end = 0;
    while end < bytes.len() {
        let c = bytes[end];
        let exponent_sign = end > 0 && (c == b'+' || c == b'-') && matches!(bytes[end - 1], b'e' | b'E');
        // `e` belongs to the number only when a digit or sign follows: `3e9 B` but not `3 exaflop`.
        let exponent = end > 0
            && (c == b'e' || c == b'E')
            && bytes.get(end + 1).is_some_and(|n| n.is_ascii_digit() || *n == b'+' || *n == b'-');
        let leading_sign = end == 0 && (c == b'-' || c == b'+');
        // A decimal comma is none, but belongs to what is not a number then.
        let comma = c == b',' && bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
        if c.is_ascii_digit() || c == b'.' || c == b'_' || comma || exponent || exponent_sign || leading_sign {
            end += 1;
        } else {
            break;
        }
    }
    (rest[..end].to_string(), format!("{dollar}{}", rest[end..].trim()))
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $text:literal, $example:literal, [$(($unit:literal, $factor:expr)),+ $(,)?]) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);
        impl Quantity for $name {
            const NAME: &'static str = $text;
            const EXAMPLE: &'static str = $example;
            const UNITS: &'static [(&'static str, f64)] = &[$(($unit, $factor)),+];
            fn from_base(value: f64) -> Self { Self(value) }
            fn base(self) -> f64 { self.0 }
        }
    };
}

const KI: f64 = 1024.0;

quantity!(
    /// An amount of data, in bytes.
    Bytes, "a size", "80 GiB",
    [("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12), ("PB", 1e15),
     ("KiB", KI), ("MiB", KI * KI), ("GiB", KI * KI * KI), ("TiB", KI * KI * KI * KI)]
);
quantity!(
    /// A bandwidth, in bytes per second.
    Bandwidth, "a bandwidth", "3.35 TB/s",
    [("B/s", 1.0), ("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9), ("TB/s", 1e12), ("PB/s", 1e15),
     ("MiB/s", KI * KI), ("GiB/s", KI * KI * KI), ("TiB/s", KI * KI * KI * KI),
     ("Gb/s", 1e9 / 8.0), ("Tb/s", 1e12 / 8.0)]
);
quantity!(
    /// A rate of floating-point operations, in FLOP per second.
    FlopRate, "a FLOP rate", "312 TFLOP/s",
    [("FLOP/s", 1.0), ("MFLOP/s", 1e6), ("GFLOP/s", 1e9), ("TFLOP/s", 1e12), ("PFLOP/s", 1e15), ("EFLOP/s", 1e18)]
);
quantity!(
    /// A number of floating-point operations.
    Flop, "a number of FLOP", "2.5 GFLOP",
    [("FLOP", 1.0), ("kFLOP", 1e3), ("MFLOP", 1e6), ("GFLOP", 1e9), ("TFLOP", 1e12), ("PFLOP", 1e15), ("EFLOP", 1e18)]
);
quantity!(
    /// A time, in seconds.
    Seconds, "a time", "5 us",
    [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("min", 60.0), ("h", 3600.0)]
);
quantity!(
    /// A frequency, in hertz.
    Frequency, "a frequency", "1.8 GHz",
    [("Hz", 1.0), ("kHz", 1e3), ("MHz", 1e6), ("GHz", 1e9)]
);
quantity!(
    /// A power, in watts.
    Power, "a power", "700 W",
    [("W", 1.0), ("mW", 1e-3), ("kW", 1e3), ("MW", 1e6)]
);
quantity!(
    /// A price, in US dollars.
    Price, "a price", "$30_000",
    [("$", 1.0), ("USD", 1.0), ("$M", 1e6), ("$B", 1e9)]
);
quantity!(
    /// A price by bandwidth, in US dollars per GB/s (the unit in which DFModel prices memory, links and switches).
    PricePerBandwidth, "a price by bandwidth", "$2/(GB/s)",
    [("$/(GB/s)", 1.0), ("USD/(GB/s)", 1.0)]
);
quantity!(
    /// A power by bandwidth, in watts per GB/s.
    PowerPerBandwidth, "a power by bandwidth", "0.0104 W/(GB/s)",
    [("W/(GB/s)", 1.0), ("mW/(GB/s)", 1e-3)]
);
quantity!(
    /// A price by capacity, in US dollars per byte.
    PricePerCapacity, "a price by capacity", "$10/GB",
    [("$/B", 1.0), ("$/GB", 1e-9), ("$/GiB", 1.0 / (KI * KI * KI)), ("$/TB", 1e-12), ("USD/GB", 1e-9), ("USD/GiB", 1.0 / (KI * KI * KI))]
);
quantity!(
    /// Energy for moving data, in joules per byte.
    EnergyPerByte, "an energy by data", "7 pJ/bit",
    [("J/B", 1.0), ("nJ/B", 1e-9), ("pJ/B", 1e-12), ("pJ/bit", 8e-12)]
);
quantity!(
    /// Energy of arithmetic, in joules per floating-point operation.
    EnergyPerFlop, "an energy of arithmetic", "0.5 pJ/FLOP",
    [("J/FLOP", 1.0), ("nJ/FLOP", 1e-9), ("pJ/FLOP", 1e-12), ("fJ/FLOP", 1e-15)]
);
quantity!(
    /// A price of electricity, in US dollars per joule.
    PricePerEnergy, "a price of electricity", "$0.10/kWh",
    [("$/J", 1.0), ("$/kWh", 1.0 / 3.6e6), ("$/MWh", 1.0 / 3.6e9), ("USD/kWh", 1.0 / 3.6e6)]
);
quantity!(
    /// A span of years, in seconds (a year has 365.25 days).
    Years, "a span of years", "4 years",
    [("s", 1.0), ("years", 31_557_600.0), ("year", 31_557_600.0), ("months", 31_557_600.0 / 12.0), ("days", 86_400.0)]
);

quantity!(
    /// An area of silicon, in square millimetres.
    Area, "an area", "826 mm2",
    [("mm2", 1.0), ("um2", 1e-6), ("cm2", 100.0)]
);
quantity!(
    /// An area by bandwidth, in square millimetres per GB/s.
    AreaPerBandwidth, "an area by bandwidth", "0.11 mm2/(GB/s)",
    [("mm2/(GB/s)", 1.0)]
);
quantity!(
    /// A density of memory, in bytes per square millimetre.
    CapacityPerArea, "a density of memory", "1.5 MiB/mm2",
    [("B/mm2", 1.0), ("kB/mm2", 1e3), ("MB/mm2", 1e6), ("KiB/mm2", KI), ("MiB/mm2", KI * KI)]
);
quantity!(
    /// A power by area, in watts per square millimetre.
    PowerPerArea, "a power by area", "0.1 W/mm2",
    [("W/mm2", 1.0), ("mW/mm2", 1e-3)]
);
quantity!(
    /// A price by area, in US dollars per square millimetre.
    PricePerArea, "a price by area", "$0.5/mm2",
    [("$/mm2", 1.0), ("USD/mm2", 1.0)]
);
quantity!(
    /// A density of defects, by square millimetre.
    DefectDensity, "a density of defects", "0.1 /cm2",
    [("/mm2", 1.0), ("/cm2", 0.01)]
);
quantity!(
    /// A length, in millimetres.
    Length, "a length", "300 mm",
    [("mm", 1.0), ("cm", 10.0), ("m", 1000.0)]
);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(
            f,
            self.0,
            &[(KI.powi(4), "TiB"), (KI.powi(3), "GiB"), (KI.powi(2), "MiB"), (KI, "KiB"), (1.0, "B")],
        )
    }
}

impl Bytes {
    /// The least size that is written exactly ([`fmt::Display`]) and is not below this one: what can be typed in again.
    #[must_use]
    pub fn printed_above(self) -> Self {
        let mut at = self.0;
        for _ in 0..16 {
            let read = Self::parse(&Self(at).to_string()).map_or(at, |bytes| bytes.0);
            if read >= self.0 {
                return Self(read);
            }
            // A step of the fourth digit is a ten-thousandth to a thousandth.
            at *= 1.0 + 1e-4;
        }
        Self(at)
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(f, self.0, &[(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")])
    }
}

/// Writes `value` with the largest unit that keeps it at or above one, four significant digits.
fn write_scaled(f: &mut fmt::Formatter<'_>, value: f64, units: &[(f64, &str)]) -> fmt::Result {
    let Some(&(factor, unit)) = units.iter().find(|(factor, _)| value.abs() >= *factor).or(units.last()) else {
        return write!(f, "{value}");
    };
    let scaled = value / factor;
    let decimals = match scaled.abs() {
        x if x >= 1000.0 => 0,
        x if x >= 100.0 => 1,
        x if x >= 10.0 => 2,
        _ => 3,
    };
    if value == 0.0 { write!(f, "0 {unit}") } else { write!(f, "{scaled:.decimals$} {unit}") }
}

/// A number that is ordered, as [`f64::total_cmp`] says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ordered(pub f64);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The one in the middle of some values, the upper of two: one that is there.
pub fn middle<T: Ord + Copy>(values: &mut [T]) -> Option<T> {
    let half = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(half).1)
}

/// The median of some numbers: of an even count the mean of the two in the middle.
pub fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let half = numbers.len() / 2;
    let upper = *numbers.get(half)?;
    let lower = if numbers.len() % 2 == 1 { upper } else { numbers.get(half.checked_sub(1)?).copied()? };
    Some((lower + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_decimal_and_binary_prefixes_apart() {
        assert_eq!(Bytes::parse("80 GB"), Ok(Bytes(80e9)));
        assert_eq!(Bytes::parse("80 GiB"), Ok(Bytes(80.0 * 1024f64.powi(3))));
        assert_eq!(Bandwidth::parse("3.35TB/s"), Ok(Bandwidth(3.35e12)));
        assert_eq!(Price::parse("$30_000"), Ok(Price(30_000.0)));
        assert_eq!(Price::parse("$125M"), Ok(Price(125e6)));
        assert_eq!(Price::parse("$1.5 B"), Ok(Price(1.5e9)));
        assert_eq!(PricePerBandwidth::parse("$2/(GB/s)"), Ok(PricePerBandwidth(2.0)));
        assert_eq!(PowerPerBandwidth::parse("0.0104 W/(GB/s)"), Ok(PowerPerBandwidth(0.0104)));
        assert_eq!(Flop::parse("2.5e3 FLOP"), Ok(Flop(2500.0)));
        assert_eq!(Seconds::parse("5 us"), Ok(Seconds(5.0 * 1e-6)));
        assert_eq!(EnergyPerByte::parse("7 pJ/bit"), Ok(EnergyPerByte(7.0 * 8e-12)));
        assert_eq!(PricePerCapacity::parse("$2/GB"), Ok(PricePerCapacity(2e-9)));
        assert_eq!(PricePerEnergy::parse("$0.36/kWh"), Ok(PricePerEnergy(0.36 / 3.6e6)));
        assert_eq!(Years::parse("4 years"), Ok(Years(4.0 * 365.25 * 86400.0)));
    }

    #[test]
    fn refuses_missing_and_foreign_units_and_numbers_out_of_range() {
        assert!(matches!(Bandwidth::parse("3350"), Err(QuantityError::MissingUnit { .. })));
        assert!(matches!(Bandwidth::parse("3350 GB"), Err(QuantityError::WrongUnit { .. })));
        assert!(matches!(Bytes::parse("NaN GB"), Err(QuantityError::OutOfRange { .. })));
        assert!(matches!(Bytes::parse("inf GB"), Err(QuantityError::OutOfRange { .. })));
        assert!(matches!(Bytes::parse("-1 GB"), Err(QuantityError::OutOfRange { .. })));
        assert!(matches!(Bytes::parse("1e308 TB"), Err(QuantityError::OutOfRange { .. })));
        assert!(matches!(Bytes::parse("1.2.3 GB"), Err(QuantityError::NotANumber { .. })));
        assert!(matches!(Bytes::parse("GB"), Err(QuantityError::NotANumber { .. })));
        assert!(matches!(Bytes::parse(""), Err(QuantityError::NotANumber { .. })));
        let comma = Bandwidth::parse("3,35 TB/s").unwrap_err();
        assert!(comma.to_string().starts_with("\"3,35\" is not a number (a number has a decimal point"), "{comma}");
    }

    #[test]
    fn units_written_otherwise_are_known_or_guessed() {
        assert_eq!(Seconds::parse("5 \u{b5}s"), Seconds::parse("5 us"));
        assert_eq!(Seconds::parse("5 \u{3bc}s"), Seconds::parse("5 us"));
        fn guess<Q: Quantity>(text: &str) -> String {
            let said = Q::parse(text).map(|_| ()).unwrap_err().units::<Q>();
            said.split(" (units").next().unwrap_or_default().to_string()
        }
        for (guess, meant) in [
            (guess::<Bandwidth>("400 Gbps"), "; did you mean \"Gb/s\"?"),
            (guess::<Bandwidth>("400 gbps"), "; did you mean \"GB/s\" or \"Gb/s\"?"),
            (guess::<Frequency>("1.4 ghz"), "; did you mean \"GHz\"?"),
            (guess::<Seconds>("5 usec"), "; did you mean \"us\"?"),
            (guess::<Power>("700 watts"), "; did you mean \"W\"?"),
            (guess::<PowerPerBandwidth>("0.05 W/GB/s"), "; did you mean \"W/(GB/s)\"?"),
            (guess::<Bytes>("16 Mbit"), ""),
            (guess::<Bytes>("80 Gb"), ""),
            (guess::<Bytes>("80 gb"), "; did you mean \"GB\"?"),
        ] {
            assert_eq!(guess, meant);
        }
    }

    /// What is printed is read as the same number, is enough, and a thousandth too much at most.
    #[test]
    fn sizes_are_rounded_up_to_what_is_printed() {
        for start in [
            1.0,
            999.9,
            1000.0,
            1023.6,
            1024.0,
            3.5 * 1024.0,
            1.00001e6,
            1048575.9,
            7.77777e9,
            111.0 * 1024f64.powi(3),
            9.9e14,
        ] {
            for step in 0..50 {
                let bytes = start * 1.0137f64.powi(step);
                let above = Bytes(bytes).printed_above();
                assert_eq!(Bytes::parse(&above.to_string()), Ok(above), "{bytes}");
                assert!(above.0 >= bytes && above.0 <= bytes * 1.0011 + 1.0, "{bytes}: {above}");
                assert_eq!(above.printed_above(), above);
            }
        }
        assert_eq!(Bytes(1024.0 * 9.5).printed_above().to_string(), "9.500 KiB");
        assert_eq!(Bytes(1024.0 * 9.5 + 0.1).printed_above().to_string(), "9.501 KiB");
    }

    #[test]
    fn the_shortest_text_reads_back() {
        assert_eq!(PricePerEnergy(0.10 / 3.6e6).shortest(), "$0.1/kWh");
        assert_eq!(Years(4.0 * 31_557_600.0).shortest(), "4 year");
        assert_eq!(Seconds(0.0).shortest(), "0 s");
        assert_eq!(Price(30_000.0).shortest(), "$30000");
        assert_eq!(Price(125e6).shortest(), "$125M");
        assert_eq!(Bytes(80.0 * 1024f64.powi(3)).shortest(), "80 GiB");
    }

    #[test]
    fn what_lies_in_the_middle() {
        assert_eq!([median(vec![]), median(vec![3.0]), median(vec![5.0, 1.0])], [None, Some(3.0), Some(3.0)]);
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!([middle::<i64>(&mut []), middle(&mut [7]), middle(&mut [5, 1])], [None, Some(7), Some(5)]);
        assert_eq!(middle(&mut [4, 9, 1, 2]), Some(4));
    }

    #[test]
    fn prints_with_a_fitting_prefix() {
        assert_eq!(Bytes(80.0 * 1024f64.powi(3)).to_string(), "80.00 GiB");
        assert_eq!(Seconds(1.5e-6).to_string(), "1.500 us");
        assert_eq!(Seconds(0.0).to_string(), "0 ns");
    }
}
