//! Numbers written short, with the multipliers engineers use.

/// The label of a linear tick: all ticks of an axis use the multiplier of the largest and enough decimals for `step`.
pub(crate) fn tick_label(value: f64, step: f64, largest: f64) -> String {
    if value.abs() < step * 1e-6 {
        return "0".to_string();
    }
    let (scale, suffix) = multiplier(largest);
    let step = step / scale;
    let decimals = (0..=9).find(|d| {
        let scaled = step * 10_f64.powi(*d);
        (scaled - scaled.round()).abs() < 1e-6 * scaled.abs()
    });
    format!("{:.*}{suffix}", decimals.unwrap_or(9) as usize, value / scale)
}

const PREFIXES: [&str; 5] = ["k", "M", "G", "T", "P"];

/// The factor numbers of this size are divided by, and what is written instead.
fn multiplier(size: f64) -> (f64, String) {
    let exponent = (size * (1.0 + 1e-12)).log10().floor();
    if (3.0..18.0).contains(&exponent) {
        let group = (exponent / 3.0) as usize;
        (10_f64.powi(3 * group as i32), PREFIXES[group - 1].to_string())
    } else if (-2.0..3.0).contains(&exponent) {
        (1.0, String::new())
    } else {
        (10_f64.powf(exponent), format!("e{exponent}"))
    }
}

/// What to divide numbers up to `largest` by, and the prefix of their unit then: 1e9 and `G` for 3.2e10.
pub(crate) fn magnitude(largest: f64) -> (f64, String) {
    if largest.is_finite() && largest >= 1e3 {
        let exponent = (largest * (1.0 + 1e-12)).log10().floor();
        let group = ((exponent / 3.0) as usize).min(PREFIXES.len());
        return (10_f64.powi(3 * group as i32), PREFIXES[group - 1].to_string());
    }
    (1.0, String::new())
}

/// A number in three digits: `1.2k`, `3.4M`, `0.05`, `5e-3`. The unit belongs into the axis title.
pub fn short_number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_string();
    }
    // Rust rounds to three digits here, so 999.9 becomes 1.00e3 and gets the right multiplier.
    let text = format!("{value:.2e}");
    let Some((digits, exponent)) =
        text.split_once('e').and_then(|(d, e)| Some((d.parse::<f64>().ok()?, e.parse::<i32>().ok()?)))
    else {
        return text;
    };
    let (left, suffix) = match exponent {
        3..18 => (exponent % 3, PREFIXES[(exponent / 3 - 1) as usize].to_string()),
        -2..3 => (exponent, String::new()),
        _ => (0, format!("e{exponent}")),
    };
    let decimals = (2 - left).max(0) as usize;
    let mut number = format!("{:.decimals$}", digits * 10_f64.powi(left));
    if number.contains('.') {
        number.truncate(number.trim_end_matches('0').trim_end_matches('.').len());
    }
    number + &suffix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magnitudes_have_prefixes() {
        for (largest, scale, prefix) in
            [(0.7, 1.0, ""), (999.0, 1.0, ""), (1e3, 1e3, "k"), (3.2e10, 1e9, "G"), (1e21, 1e15, "P")]
        {
            assert_eq!(magnitude(largest), (scale, prefix.to_string()), "{largest}");
        }
        assert_eq!(magnitude(f64::INFINITY).0, 1.0);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (1234.0, "1.23k"),
            (999.96, "1k"),
            (999_600.0, "1M"),
            (3.4e6, "3.4M"),
            (0.005, "5e-3"),
            (0.05, "0.05"),
            (123.4, "123"),
            (-2500.0, "-2.5k"),
            (1e21, "1e21"),
            (1e15, "1P"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
            (12.345, "12.3"),
            (9.999e17, "1e18"),
            (1e-300, "1e-300"),
        ] {
            assert_eq!(short_number(value), text, "{value}");
        }
    }
}
