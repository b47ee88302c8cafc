//! Which kernel a set of shardings is split by.
//!
//! The bound of a set is that of its least part, so that the best kernel to split by is the one whose least part has the greatest bound: a search that splits by others
//! doubles its sets and raises nothing. What a kernel's parts are bounded by is known by bounding them, which costs as much as searching them; so it is tried for a few kernels of a set, the likeliest first, until each
//! kernel has been tried often enough for the mean of what it brought to stand for it (reliability branching; Achterberg, Koch and Martin, Branching rules revisited, Operations Research Letters 33, 2005).

/// Tries of a kernel after which their mean stands for it.
const RELIABLE: u32 = 16;

/// Kernels of a set that are tried in a row without a better one among them.
const IN_VAIN: u32 = 8;

/// What the mean over all parts counts beside the least of them.
const MEAN: f64 = 1.0 / 6.0;

/// What splitting by a kernel brought.
#[derive(Debug, Clone, Copy, Default)]
struct Gain {
    sum: f64,
    tries: u32,
}

/// What splitting by each kernel brought, of a search.
#[derive(Debug, Clone)]
pub struct Gains(Vec<Gain>);

impl Gains {
    /// Of so many kernels.
    pub fn new(kernels: usize) -> Self {
        Self(vec![Gain::default(); kernels])
    }

    /// The best of `kernels`, the likeliest first; none of none. `parts` bounds the parts of the set that a kernel splits it in: each as the share of the set's gap that it closes, 1 where it is closed.
    ///
    /// # Errors
    /// Those of `parts`.
    pub fn best<E>(
        &mut self,
        kernels: &[usize],
        mut parts: impl FnMut(usize) -> Result<Vec<f64>, E>,
    ) -> Result<Option<usize>, E> {
        let mut best: Option<(f64, usize)> = None;
        let mut in_vain = 0;
        for k in kernels {
            let known = self.0[*k];
            let score = if known.tries >= RELIABLE {
                known.sum / f64::from(known.tries)
            } else if in_vain < IN_VAIN {
                self.learn(*k, &parts(*k)?)
            } else {
                continue;
            };
            if best.is_none_or(|(most, _)| score > most) {
                (best, in_vain) = (Some((score, *k)), 0);
            } else {
                in_vain += 1;
            }
        }
        Ok(best.map(|(_, k)| k))
    }

    /// Notes what splitting by a kernel brought, and weighs it.
    fn learn(&mut self, k: usize, parts: &[f64]) -> f64 {
        let least = parts.iter().copied().fold(1.0, f64::min);
        let mean = if parts.is_empty() { 1.0 } else { parts.iter().sum::<f64>() / parts.len() as f64 };
        let score = (1.0 - MEAN) * least + MEAN * mean;
        let gain = &mut self.0[k];
        *gain = Gain { sum: gain.sum + score, tries: gain.tries + 1 };
        score
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// The best of `kernels` where kernel `k` closes `closes[k]`, and the kernels that were tried.
    fn best(gains: &mut Gains, kernels: &[usize], closes: &[&[f64]]) -> (Option<usize>, Vec<usize>) {
        let mut tried = Vec::new();
        let parts = |k: usize| {
            tried.push(k);
            Ok::<_, Infallible>(closes[k].to_vec())
        };
        let Ok(found) = gains.best(kernels, parts);
        (found, tried)
    }

    #[test]
    fn the_least_part_counts_most() {
        // A kernel that closes one part whole and nothing of the other leaves the bound where it was.
        let closes: [&[f64]; 3] = [&[1.0, 0.0], &[0.4, 0.3], &[0.2, 0.2, 0.2]];
        assert_eq!(best(&mut Gains::new(3), &[0, 1, 2], &closes), (Some(1), vec![0, 1, 2]));
        assert_eq!(best(&mut Gains::new(3), &[], &closes), (None, vec![]));
        // Of kernels alike the likeliest.
        assert_eq!(best(&mut Gains::new(2), &[1, 0], &[&[0.5], &[0.5]]).0, Some(1));
    }

    #[test]
    fn what_was_tried_often_is_known_and_what_is_unlikely_is_not_tried() {
        let closes: [&[f64]; 2] = [&[0.1, 0.1], &[0.2, 0.2]];
        let mut gains = Gains::new(2);
        for _ in 0..RELIABLE {
            assert_eq!(best(&mut gains, &[0, 1], &closes), (Some(1), vec![0, 1]));
        }
        // Whatever it would bring now.
        assert_eq!(best(&mut gains, &[0, 1], &[&[0.9], &[0.0]]), (Some(1), vec![]));
        let many: Vec<&[f64]> = std::iter::repeat_n([0.1].as_slice(), 20).collect();
        let all: Vec<usize> = (0..20).collect();
        let first_and_in_vain = (0..=IN_VAIN as usize).collect();
        assert_eq!(best(&mut Gains::new(20), &all, &many), (Some(0), first_and_in_vain));
    }
}
