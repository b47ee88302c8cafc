//! Properties of the engines and of the whole search: random cases against brute force written here, one engine against
//! another, hand-derived cases that make each constraint family bind, and what more hardware may do to an answer.
//!
//! Every run draws the same cases (a fixed seed, no persistence file); `FLOWSPACE_CASES=10` draws ten times as many, the first ones the same.

mod blocks;
mod constraints;
mod energy;
mod fusion;
mod joint;
mod joint_graphs;
mod known;
mod random;
mod search;
mod serving;
mod sharding;
mod shortage;
mod stages;
mod tiling;
mod waits;
mod wide;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// Runs `test` on `cases` values of `strategy`, times the whole number `FLOWSPACE_CASES`; a failure is shrunk and printed.
fn check<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = Config { cases: drawn(cases), failure_persistence: None, max_shrink_iters: 4096, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    if let Err(failure) = runner.run(strategy, test) {
        panic!("{failure}");
    }
}

/// Cases that are drawn where so many are asked for; one is one.
fn drawn(cases: u32) -> u32 {
    let times: u32 = std::env::var("FLOWSPACE_CASES").map_or(1, |n| n.parse().expect("FLOWSPACE_CASES: a number"));
    if cases > 1 { cases * times } else { cases }
}

/// Cases with an answer and without one: a test whose cases are nearly all of one kind says little.
#[derive(Default)]
struct Tally(std::cell::Cell<(u32, u32)>);

impl Tally {
    fn count(&self, feasible: bool) {
        let (with, without) = self.0.get();
        self.0.set(if feasible { (with + 1, without) } else { (with, without + 1) });
    }

    /// At least a tenth of either kind.
    fn is_even(&self, what: &str) {
        let (with, without) = self.0.get();
        println!("{what}: {with} feasible, {without} not");
        assert!(
            10 * with >= with + without && 10 * without >= with + without,
            "{what}: {with} feasible, {without} not"
        );
    }
}

/// Whether two numbers are one to a tolerance relative to the larger (absolute below one).
fn near(a: f64, b: f64, tolerance: f64) -> bool {
    a == b || (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1.0)
}
