//! Stages of a pipeline that need not be equal: what each holds, and the time of an iteration over all of them.
//!
//! A *unit* is one repetition of a layer; units form a chain and a stage is a run of them, at least one. Let stage s (of
//! PP, from 0) have n_s units of A seconds each, h the seconds of a hand-over, and T_s = n_s A + h one microbatch's time on it.
//! With b microbatches, one forward and one backward in turns (1F1B) take
//!
//! ```text
//! sum_s T_s + (b - 1) max_s T_s  +  max_s (gradient reduction + optimiser)
//! ```
//!
//! The first microbatch passes every stage once; each later one leaves the slowest stage max T after the one before it. Equal
//! stages T give (b + PP - 1) T. It is the formula of executions too (`execution/schedule.rs`). Against a schedule written out
//! event by event it is exact where the last stage is one of the slowest, and at most (PP - 1) times the forward time of the
//! slowest stage too long elsewhere (the tests below hold it against that schedule).
//!
//! Stage s keeps the activations of min(PP - s, b) microbatches (Narayanan et al., SC 2021, section 2.2: a stage starts
//! backward when as many microbatches are under way as there are stages from it on). So early stages hold more, and where the
//! DRAM is short the first stages have fewer layers. DFModel's schedules know none of that: there each stage has
//! ceil(layers / PP) layers and holds what the first one does.

use super::memory::DramNeed;
use super::schedule::Iteration;
use crate::system::options::Pipeline;
use serde::Serialize;

/// Most stages of a pipeline that are listed one by one.
pub const MOST_STAGES: u64 = 1 << 20;

/// One stage of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageFigures {
    /// Its layers (units).
    pub layers: u64,
    /// Of each block.
    pub of_blocks: Vec<u64>,
    /// Seconds of one microbatch, forward and backward, without the hand-over.
    pub pass_s: f64,
    /// Seconds of its hand-over for one microbatch.
    pub hand_over_s: f64,
    /// Seconds of its gradient reduction that nothing hides, once an iteration.
    pub gradient_s: f64,
    /// Seconds of its optimiser's pass, once an iteration.
    pub optimizer_s: f64,
    /// DRAM of one of its chips.
    pub memory: DramNeed,
}

impl StageFigures {
    /// Seconds of one microbatch on the stage.
    pub fn time_s(&self) -> f64 {
        self.pass_s + self.hand_over_s
    }

    /// Seconds of what it does once an iteration.
    pub fn update_s(&self) -> f64 {
        self.gradient_s + self.optimizer_s
    }
}

/// Units of each block in each stage, from the units of each stage and the repetitions of the blocks.
pub fn of_blocks(stages: &[u64], repeats: &[u64]) -> Vec<Vec<u64>> {
    let mut left = repeats.to_vec();
    let mut block = 0;
    let of_stage = |units: &u64| {
        let mut units = *units;
        let mut out = vec![0; repeats.len()];
        while units > 0 && block < left.len() {
            let taken = units.min(left[block]);
            out[block] += taken;
            left[block] -= taken;
            units -= taken;
            block += usize::from(left[block] == 0);
        }
        out
    };
    stages.iter().map(of_stage).collect()
}

/// The iteration of stages one by one, of 1F1B.
pub fn iteration(stages: &[StageFigures], microbatches: f64) -> Iteration {
    let later = microbatches - 1.0;
    let (pass_s, hand_over_s, layers) =
        slowest(stages).map_or((0.0, 0.0, 0), |(_, s)| (s.pass_s, s.hand_over_s, s.layers));
    let updates = stages.iter().map(|s| (s.gradient_s, s.optimizer_s));
    let update = updates.reduce(|a, b| if b.0 + b.1 > a.0 + a.1 { b } else { a }).unwrap_or((0.0, 0.0));
    Iteration {
        work_s: microbatches * pass_s,
        bubble_s: stages.iter().map(|s| s.pass_s).sum::<f64>() - pass_s,
        p2p_s: stages.iter().map(|s| s.hand_over_s).sum::<f64>() + later * hand_over_s,
        gradient_s: update.0,
        optimizer_s: update.1,
        microbatches,
        layers_per_stage: stages.iter().map(|s| s.layers).max().unwrap_or(layers),
    }
}

/// The stage that takes longest; the first of equals.
pub fn slowest(stages: &[StageFigures]) -> Option<(usize, &StageFigures)> {
    stages.iter().enumerate().reduce(|a, b| if b.1.time_s() > a.1.time_s() { b } else { a })
}

/// The stage whose chips hold most; the first of equals.
pub fn fullest(stages: &[StageFigures]) -> Option<(usize, &StageFigures)> {
    stages.iter().enumerate().reduce(|a, b| if b.1.memory.total() > a.1.memory.total() { b } else { a })
}

/// Microbatches whose activations a stage (from 0) holds at once. `microbatches` of DFModel's schedules are no whole number.
pub fn in_flight(pipeline: Pipeline, pp: u64, stage: u64, microbatches: f64) -> u64 {
    let behind = match pipeline {
        Pipeline::OneForwardOneBackward => pp.saturating_sub(stage).max(1),
        Pipeline::Dfmodel | Pipeline::DfmodelFirst => pp,
    };
    (behind as f64).min(microbatches.max(1.0)) as u64
}

/// Layers of each stage where nothing asks for another division: as even as can be, the longer ones last, since those hold
/// fewer microbatches. DFModel's stages all have as many as the longest.
pub fn even(pipeline: Pipeline, layers: u64, pp: u64) -> Vec<u64> {
    let pp = pp.max(1);
    match pipeline {
        Pipeline::OneForwardOneBackward => (0..pp).map(|s| layers / pp + u64::from(pp - s <= layers % pp)).collect(),
        Pipeline::Dfmodel | Pipeline::DfmodelFirst => vec![layers.div_ceil(pp); pp as usize],
    }
}

/// Why `stages` is no division of so many layers among `pp` stages; `None` where it is one.
pub fn fault(pipeline: Pipeline, layers: u64, pp: u64, stages: &[u64]) -> Option<String> {
    if pp > layers {
        return Some(format!("{pp} stages for {layers} layers"));
    }
    if pp > MOST_STAGES {
        return Some(format!("{pp} stages, expected at most {MOST_STAGES}"));
    }
    if stages.len() as u64 != pp {
        return Some(format!("PP = {pp}, but {} stages", stages.len()));
    }
    if let Some(empty) = stages.iter().position(|n| *n == 0) {
        return Some(format!("stage {empty} has no layer"));
    }
    if pipeline != Pipeline::OneForwardOneBackward {
        let most = layers.div_ceil(pp);
        let equal = stages.iter().all(|n| *n == most);
        return (!equal).then(|| format!("with this schedule every one of {pp} stages has {most} layers"));
    }
    let sum = stages.iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
    (sum != layers).then(|| format!("the stages have {sum} layers, the workload {layers}"))
}

/// Runs of equal entries, for a person: `25x2+26x3`.
pub fn in_words(layers: &[u64]) -> String {
    let runs = layers.chunk_by(|a, b| a == b);
    let word = |run: &[u64]| if run.len() > 1 { format!("{}x{}", run[0], run.len()) } else { run[0].to_string() };
    runs.map(word).collect::<Vec<_>>().join("+")
}

#[cfg(test)]
mod tests {
    use super::*;
    use Pipeline::{Dfmodel, OneForwardOneBackward as OneOne};

    /// Seconds of 1F1B written out: stage s starts with min(PP - s, b) forwards, then one backward and one forward in turns.
    /// A forward waits for the stage before, a backward for the stage after (on the last, for its own forward).
    fn event_by_event(forward: &[f64], backward: &[f64], b: usize) -> f64 {
        let pp = forward.len();
        let order = |s: usize| -> Vec<(bool, usize)> {
            let first = (pp - s).min(b);
            let mut out: Vec<(bool, usize)> = (0..first).map(|m| (false, m)).collect();
            for m in 0..b {
                out.push((true, m));
                if first + m < b {
                    out.push((false, first + m));
                }
            }
            out
        };
        let orders: Vec<_> = (0..pp).map(order).collect();
        let mut ends = vec![[vec![None; b], vec![None; b]]; pp];
        let (mut at, mut free) = (vec![0; pp], vec![0.0_f64; pp]);
        while at.iter().zip(&orders).any(|(at, order)| *at < order.len()) {
            for s in 0..pp {
                while let Some((back, m)) = orders[s].get(at[s]).copied() {
                    let ready = match (back, s) {
                        (false, 0) => Some(0.0),
                        (false, _) => ends[s - 1][0][m],
                        (true, s) if s + 1 == pp => ends[s][0][m],
                        (true, _) => ends[s + 1][1][m],
                    };
                    let Some(ready) = ready else { break };
                    free[s] = free[s].max(ready) + if back { backward[s] } else { forward[s] };
                    ends[s][usize::from(back)][m] = Some(free[s]);
                    at[s] += 1;
                }
            }
        }
        free.into_iter().fold(0.0, f64::max)
    }

    /// The formula is the schedule where the last stage is a slowest one, else at most (PP - 1) forwards of the slowest longer.
    #[test]
    fn the_formula_against_the_schedule_event_by_event() {
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        for _ in 0..2000 {
            let pp = 1 + (random() * 6.0) as usize;
            let b = 1 + (random() * 14.0) as usize;
            let layers: Vec<f64> = (0..pp).map(|_| (1.0 + random() * 7.0).floor()).collect();
            let backward: Vec<f64> = layers.iter().map(|n| 2.0 * n).collect();
            let times: Vec<f64> = layers.iter().map(|n| 3.0 * n).collect();
            let most = times.iter().fold(0.0_f64, |a, b| a.max(*b));
            let formula = times.iter().sum::<f64>() + (b as f64 - 1.0) * most;
            let events = event_by_event(&layers, &backward, b);
            assert!(events <= formula * (1.0 + 1e-12), "{layers:?} {b}: {events} {formula}");
            assert!(events >= formula - (pp as f64 - 1.0) * most / 3.0 - 1e-9, "{layers:?} {b}: {events} {formula}");
            if times.last() == Some(&most) {
                assert!((events - formula).abs() < 1e-9 * formula, "{layers:?} {b}: {events} {formula}");
            }
        }
    }

    #[test]
    fn microbatches_in_flight() {
        let of = |pp: u64, b: f64| -> Vec<u64> { (0..pp).map(|s| in_flight(OneOne, pp, s, b)).collect() };
        assert_eq!(of(4, 8.0), [4, 3, 2, 1]);
        assert_eq!(of(4, 2.0), [2, 2, 2, 1]);
        assert_eq!(of(1, 0.5), [1]);
        assert_eq!((0..3).map(|s| in_flight(Dfmodel, 3, s, 8.0)).collect::<Vec<_>>(), [3, 3, 3]);
    }

    #[test]
    fn even_divisions() {
        assert_eq!(even(OneOne, 128, 5), [25, 25, 26, 26, 26]);
        assert_eq!(even(OneOne, 6, 3), [2, 2, 2]);
        assert_eq!(even(Dfmodel, 128, 5), [26; 5]);
        assert_eq!(in_words(&even(OneOne, 128, 5)), "25x2+26x3");
        assert_eq!(in_words(&[3, 4, 3]), "3+4+3");
    }
}
