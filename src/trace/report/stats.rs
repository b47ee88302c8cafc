//! Summary of a series, as pandas' `describe` computes it.

use serde::Serialize;

/// Count, mean, standard deviation of a sample, least, quartiles (linear between neighbours), greatest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Values.
    pub count: usize,
    /// Mean.
    pub mean: f64,
    /// Standard deviation with n - 1; none of a single value.
    pub std: Option<f64>,
    /// Least.
    pub min: f64,
    /// First quartile.
    pub q25: f64,
    /// Median.
    pub q50: f64,
    /// Third quartile.
    pub q75: f64,
    /// Greatest.
    pub max: f64,
}

impl Summary {
    /// `None` of no values.
    pub fn new(mut values: Vec<f64>) -> Option<Self> {
        let n = values.len();
        if n == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        let std = (n > 1).then(|| (squares / (n - 1) as f64).sqrt());
        values.sort_by(f64::total_cmp);
        let quantile = |q: f64| {
            let place = q * (n - 1) as f64;
            let low = place.floor() as usize;
            let (a, b) = (values[low], values[(low + 1).min(n - 1)]);
            a + (b - a) * (place - low as f64)
        };
        Some(Self {
            count: n,
            mean,
            std,
            min: values[0],
            q25: quantile(0.25),
            q50: quantile(0.5),
            q75: quantile(0.75),
            max: values[n - 1],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_values_by_hand() {
        let s = Summary::new(vec![4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((s.count, s.mean, s.min, s.q25, s.q50, s.q75, s.max), (4, 2.5, 1.0, 1.75, 2.5, 3.25, 4.0));
        // ((1.5^2 + 0.5^2) * 2) / 3 = 5 / 3
        assert!((s.std.unwrap() - (5.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!((Summary::new(vec![2.0]).unwrap().std, Summary::new(vec![])), (None, None));
    }
}
