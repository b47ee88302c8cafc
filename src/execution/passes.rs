//! In which order a stage takes the passes of its microbatches, schedule by schedule.
//!
//! GPipe: all forward, then all backward. 1F1B (Narayanan et al. 2021, arXiv 2104.04473, section 2.2.1): as many forward passes ahead as stages are
//! behind, then one forward, one backward. Interleaved (the same, 2.2.2, and the warm-up of Megatron-LM): microbatches go through a stage's chunks
//! in groups of pp; 2 (stages behind) + (chunks - 1) pp passes ahead. Zero bubble (Qi et al. 2023, arXiv 2401.10241, ZB-H1): the order of 1F1B; stage s
//! takes the gradients of weights s microbatches after those of inputs, so that the last stage passes its gradients on early and has the weights'
//! for its end.

use super::spec::{Execution, Schedule};

/// What is done for a microbatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pass {
    /// Forward.
    Forward,
    /// Backward; under zero bubble without gradients of weights.
    Backward,
    /// Gradients of weights, where they are taken by themselves.
    Weight,
}

impl Pass {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Weight => "weight gradients",
        }
    }
}

/// One pass of one microbatch through one chunk of a stage's layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Step {
    /// Which.
    pub pass: Pass,
    /// Microbatch.
    pub microbatch: u64,
    /// Chunk; 0 where the schedule is not interleaved.
    pub chunk: u64,
}

/// The order of passes: a schedule over stages and chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Which.
    pub schedule: Schedule,
    /// Stages of the pipeline.
    pub stages: u64,
    /// Pieces of layers that a stage holds, where the schedule is interleaved.
    pub chunks: u64,
}

impl Order {
    /// That of an execution.
    pub fn of(e: &Execution) -> Self {
        Self { schedule: e.schedule, stages: e.pp.max(1), chunks: e.chunks }
    }

    /// Pieces of layers that a stage holds.
    pub fn chunks(&self) -> u64 {
        if self.schedule == Schedule::Interleaved { self.chunks.max(1) } else { 1 }
    }

    /// Why there is no such order of so many microbatches.
    pub fn refusal(&self, microbatches: u64) -> Option<String> {
        (self.schedule == Schedule::Interleaved && !microbatches.is_multiple_of(self.stages)).then(|| {
            format!(
                "an interleaved schedule needs microbatches that pp = {} divides, found {microbatches}",
                self.stages
            )
        })
    }

    /// The steps of a stage, in order. An interleaved schedule needs microbatches that the stages divide.
    pub fn steps(&self, stage: u64, microbatches: u64) -> Vec<Step> {
        let (pp, m, chunks) = (self.stages.max(1), microbatches, self.chunks());
        let total = m * chunks;
        let behind = pp.saturating_sub(stage + 1);
        let ahead = match self.schedule {
            Schedule::GPipe => total,
            Schedule::OneForwardOneBackward | Schedule::ZeroBubble => behind,
            Schedule::Interleaved => 2 * behind + (chunks - 1) * pp,
        };
        let ahead = ahead.min(total);
        let place = |k: u64| {
            let group = pp * chunks;
            if chunks == 1 { (k, 0) } else { (k / group * pp + k % pp, k % group / pp) }
        };
        let forward = |k: u64| {
            let (microbatch, chunk) = place(k);
            Step { pass: Pass::Forward, microbatch, chunk }
        };
        let backward = |k: u64| {
            let (microbatch, chunk) = place(k);
            Step { pass: Pass::Backward, microbatch, chunk: chunks - 1 - chunk }
        };
        let weight = |microbatch: u64| Step { pass: Pass::Weight, microbatch, chunk: 0 };
        let mut out: Vec<Step> = (0..ahead).map(forward).collect();
        let split = self.schedule == Schedule::ZeroBubble;
        for k in 0..total {
            if ahead + k < total {
                out.push(forward(ahead + k));
            }
            out.push(backward(k));
            if split && k >= stage {
                out.push(weight(k - stage));
            }
        }
        if split {
            out.extend((total.saturating_sub(stage)..total).map(weight));
        }
        out
    }

    /// Microbatches of which a stage holds activations, in units of all its layers.
    pub fn in_flight(&self, stage: u64, microbatches: f64) -> f64 {
        let (p, v) = (self.stages as f64, self.chunks() as f64);
        let behind = p - stage as f64;
        match self.schedule {
            Schedule::GPipe => microbatches,
            Schedule::OneForwardOneBackward => behind.min(microbatches),
            // Beside those whose gradients of weights are late.
            Schedule::ZeroBubble => behind.min(microbatches - self.delayed(stage, microbatches)),
            Schedule::Interleaved => ((2.0 * (behind - 1.0) + (v - 1.0) * p + 1.0) / v).min(microbatches),
        }
    }

    /// Microbatches whose gradients of weights a stage has still to take when it holds most: all that come so late, but the one whose backward pass begins.
    pub fn delayed(&self, stage: u64, microbatches: f64) -> f64 {
        if self.schedule == Schedule::ZeroBubble { (stage as f64).min((microbatches - 1.0).max(0.0)) } else { 0.0 }
    }

    /// Microbatches whose scores the last stage's head holds at once.
    pub fn scored(&self, stage: u64, microbatches: f64) -> f64 {
        if self.schedule == Schedule::GPipe { microbatches } else { 1.0 + self.delayed(stage, microbatches) }
    }

    /// Stages that a pass of a stage's chunk comes from and goes to: the chunks follow each other around the stages.
    pub fn neighbours(&self, stage: u64, pass: Pass, chunk: u64) -> [Option<u64>; 2] {
        let (pp, piece) = (self.stages.max(1), chunk * self.stages.max(1) + stage);
        let ahead = (piece + 1 < pp * self.chunks()).then_some((piece + 1) % pp);
        let back = piece.checked_sub(1).map(|p| p % pp);
        match pass {
            _ if pp == 1 => [None, None],
            Pass::Forward => [back, ahead],
            Pass::Backward => [ahead, back],
            Pass::Weight => [None, None],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::{Offload, Recompute, Zero};
    use crate::spec::{Node, Reader};
    use std::collections::{BTreeMap, BTreeSet};

    fn plain() -> Execution {
        Execution {
            tp: 1,
            pp: 1,
            dp: 1,
            ep: 1,
            cp: 1,
            micro_batch: 1,
            schedule: Schedule::OneForwardOneBackward,
            chunks: 1,
            recompute: Recompute::None,
            sequence_parallel: false,
            zero: Zero::Off,
            offload: Offload::None,
            overlap_dp: false,
            overlap_tp: false,
        }
    }

    /// Runs all stages side by side, each in its order: nobody may wait for ever, and no stage keeps more than the memory model says.
    fn runs(e: &Execution, m: u64) {
        let orders: Vec<Vec<Step>> = (0..e.pp).map(|s| Order::of(e).steps(s, m)).collect();
        let mut done: BTreeSet<(u64, Step)> = BTreeSet::new();
        let mut next = vec![0usize; orders.len()];
        // Microbatches that a stage keeps, and of those those whose gradients of weights are late.
        let mut kept = vec![0i64; orders.len()];
        let mut late = vec![0i64; orders.len()];
        loop {
            let mut moved = false;
            for (s, list) in (0..e.pp).zip(&orders) {
                while let Some(&step) = list.get(next[s as usize]) {
                    let with = |pass, chunk| Step { pass, chunk, ..step };
                    let last = s + 1 == e.pp;
                    let before = match step.pass {
                        Pass::Forward if s > 0 => Some((s - 1, step)),
                        Pass::Forward if step.chunk > 0 => Some((e.pp - 1, with(Pass::Forward, step.chunk - 1))),
                        Pass::Forward => None,
                        Pass::Backward if !last => Some((s + 1, step)),
                        Pass::Backward if step.chunk + 1 < e.chunks => Some((0, with(Pass::Backward, step.chunk + 1))),
                        Pass::Backward => Some((s, with(Pass::Forward, step.chunk))),
                        Pass::Weight => Some((s, with(Pass::Backward, step.chunk))),
                    };
                    if before.is_some_and(|b| !done.contains(&b)) {
                        break;
                    }
                    match step.pass {
                        Pass::Forward => kept[s as usize] += 1,
                        Pass::Backward => {
                            assert!(done.contains(&(s, with(Pass::Forward, step.chunk))), "{e:?} stage {s}: {step:?}");
                            if e.schedule == Schedule::ZeroBubble {
                                late[s as usize] += 1;
                            } else {
                                kept[s as usize] -= 1;
                            }
                        }
                        Pass::Weight => {
                            kept[s as usize] -= 1;
                            late[s as usize] -= 1;
                        }
                    }
                    let delayed = Order::of(e).delayed(s, m as f64);
                    // That whose backward pass has just ended is at work.
                    assert!(late[s as usize] <= delayed as i64 + 1, "{e:?} stage {s}: {} late", late[s as usize]);
                    let most = ((Order::of(e).in_flight(s, m as f64) + delayed) * e.chunks as f64).round() as i64;
                    assert!(kept[s as usize] <= most, "{e:?} stage {s} keeps {} of {most}", kept[s as usize]);
                    assert!(done.insert((s, step)), "{step:?} twice");
                    next[s as usize] += 1;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        let mut counts: BTreeMap<Pass, u64> = BTreeMap::new();
        done.iter().for_each(|(_, step)| *counts.entry(step.pass).or_default() += 1);
        let each = e.pp * m * e.chunks;
        assert_eq!(counts[&Pass::Forward], each, "{e:?}, {m}: somebody waits for ever");
        assert_eq!(counts[&Pass::Backward], each, "{e:?}, {m}");
        let weights = if e.schedule == Schedule::ZeroBubble { each } else { 0 };
        assert_eq!(counts.get(&Pass::Weight).copied().unwrap_or(0), weights);
    }

    #[test]
    fn every_schedule_runs_to_its_end() {
        for pp in 1..=6 {
            for m in 1..=13 {
                for schedule in [Schedule::GPipe, Schedule::OneForwardOneBackward, Schedule::ZeroBubble] {
                    runs(&Execution { pp, schedule, ..plain() }, m);
                }
            }
            for chunks in (2..=4).filter(|_| pp > 1) {
                for groups in 1..=3 {
                    let e = Execution { pp, chunks, schedule: Schedule::Interleaved, ..plain() };
                    runs(&e, groups * pp);
                }
            }
        }
    }

    #[test]
    fn orders_by_hand() {
        let of = |e: &Execution, stage, m| {
            let word = |s: &Step| format!("{}{}", ["F", "B", "W"][s.pass as usize], s.microbatch);
            Order::of(e).steps(stage, m).iter().map(word).collect::<Vec<_>>().join(" ")
        };
        let e = |schedule| Execution { pp: 3, schedule, ..plain() };
        assert_eq!(of(&e(Schedule::GPipe), 1, 2), "F0 F1 B0 B1");
        assert_eq!(of(&e(Schedule::OneForwardOneBackward), 0, 4), "F0 F1 F2 B0 F3 B1 B2 B3");
        assert_eq!(of(&e(Schedule::ZeroBubble), 0, 3), "F0 F1 F2 B0 W0 B1 W1 B2 W2");
        assert_eq!(of(&e(Schedule::ZeroBubble), 2, 3), "F0 B0 F1 B1 F2 B2 W0 W1 W2");
        let two = Execution { pp: 2, chunks: 2, ..e(Schedule::Interleaved) };
        // The last stage: two ahead, chunk by chunk in groups of two.
        assert_eq!(of(&two, 1, 2), "F0 F1 F0 B0 F1 B1 B0 B1");
    }

    #[test]
    fn microbatches_in_flight_by_schedule() {
        let text = |schedule: &str| -> Order {
            let e: Execution =
                Reader::read(&Node::parse("e", &format!("{{pp: 8, schedule: {schedule}}}")).unwrap()).unwrap();
            Order::of(&e)
        };
        assert_eq!(text("1f1b").in_flight(0, 64.0), 8.0);
        assert_eq!(text("1f1b").in_flight(0, 3.0), 3.0);
        assert_eq!(text("gpipe").in_flight(0, 64.0), 64.0);
        assert_eq!(text("interleaved, chunks: 3").in_flight(0, 64.0), 8.0 * (1.0 + 7.0 / 24.0));
    }
}
