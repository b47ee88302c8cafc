//! The split of the cores, against every choice of options.

use crate::properties::check;
use crate::properties::random::core_options;
use flowspace::mapping::tiling::split;
use flowspace::model::compute::CoreOption;
use proptest::prelude::*;

#[test]
fn split_is_brute_force() {
    check(5000, &(prop::collection::vec(core_options(), 0..=5), 1..=24u64), |(kernels, cores)| {
        let views: Vec<&[CoreOption]> = kernels.iter().map(Vec::as_slice).collect();
        let mut best: Option<f64> = None;
        let choices = kernels.iter().map(Vec::len).product::<usize>();
        for mut code in 0..choices {
            let (mut used, mut slowest) = (0, 0.0_f64);
            for options in &kernels {
                let option = options[code % options.len()];
                code /= options.len();
                used += option.cores;
                slowest = slowest.max(option.seconds);
            }
            if used <= cores {
                best = Some(best.map_or(slowest, |b| b.min(slowest)));
            }
        }
        let found = split(&views, cores);
        prop_assert_eq!(found.as_ref().map(|(s, _)| *s), best);
        if let Some((seconds, chosen)) = found {
            let options: Vec<CoreOption> = kernels.iter().zip(&chosen).map(|(o, i)| o[*i]).collect();
            prop_assert!(options.iter().map(|o| o.cores).sum::<u64>() <= cores);
            prop_assert!(options.iter().all(|o| o.seconds <= seconds));
        }
        Ok(())
    });
}
