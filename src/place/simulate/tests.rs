//! Schedules by hand, a second simulation that is as plain as can be, and the state space searched whole.

use super::deadlock::{Kind, verdict};
use super::net::{Buffer, Fifo, Net};
use super::sizes::{Proof, smallest};
use super::steady;
use super::ticks::Ticks;
use super::trace::{From, record};
use super::{Limits, Outcome, Steady, makespan, simulate};
use crate::model::divisors::gcd;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::HashSet;

/// (source, target, produced, consumed, initial, capacity).
type Edge = (usize, usize, u32, u32, u32, u32);

fn net(seconds: &[f64], repetitions: &[u64], core_of: &[usize], edges: &[Edge]) -> Net {
    let fifo = |(buffer, &(source, target, produced, consumed, initial, _)): (usize, &Edge)| Fifo {
        source,
        target,
        produced,
        consumed,
        initial,
        delay: 0.0,
        buffer,
    };
    Net {
        actors: (0..seconds.len()).map(|a| format!("a{a}")).collect(),
        seconds: seconds.to_vec(),
        repetitions: repetitions.to_vec(),
        core_of: core_of.to_vec(),
        cores: (0..core_of.iter().max().map_or(0, |c| c + 1)).map(|c| format!("c{c}")).collect(),
        fifos: edges.iter().enumerate().map(fifo).collect(),
        buffers: edges
            .iter()
            .map(|e| Buffer { capacity: e.5, token_bytes: 4.0, name: format!("a{}.out", e.0) })
            .collect(),
    }
}

fn steady_of(net: &Net) -> Steady {
    match simulate(net, &net.capacities(), Limits::default()) {
        Ok(Outcome::Steady(steady)) => steady,
        other => panic!("{other:?}"),
    }
}

/// a (1 s) and c (1 s) on core 0, b (3 s) on core 1, a -> b -> c, FIFOs of `p` and `q` tokens.
fn triangle(p: u32, q: u32) -> Net {
    net(&[1.0, 3.0, 1.0], &[1, 1, 1], &[0, 1, 0], &[(0, 1, 1, 1, 0, p), (1, 2, 1, 1, 0, q)])
}

/// FIFOs of one token: b gives its room back when it ends, at 4; then c (it is its turn), a from 5 to 6, b from 6: 5 s an
/// iteration, from the start of a to the end of c 1 + 3 + 1.
#[test]
fn a_schedule_by_hand() {
    let steady = steady_of(&triangle(1, 1));
    assert_eq!(steady.iteration_s, 5.0);
    assert_eq!(steady.bottleneck_s, 3.0);
    assert_eq!(steady.utilisation, [0.4, 0.6]);
    let latency = steady.latency.unwrap();
    assert_eq!((latency.least_s, latency.most_s), (5.0, 5.0));
    assert_eq!(steady.alone_s, Some(5.0));
    // a's token lies in the FIFO from the start of a to the end of b: 4 of 5 s. b's from the start of b to the end of c: 4 of 5.
    assert_eq!([steady.fills[0].mean, steady.fills[1].mean], [0.8, 0.8]);
    assert!(steady.exact);
    // Room for two before b: a works ahead, b still waits for c to give its room back: 3 + 1.
    assert_eq!(steady_of(&triangle(2, 1)).iteration_s, 4.0);
    assert_eq!(steady_of(&triangle(1, 2)).iteration_s, 5.0);
    // Room for two everywhere: b never waits.
    let steady = steady_of(&triangle(2, 2));
    assert_eq!(steady.iteration_s, 3.0);
    assert_eq!(steady.parts[0].iterations, 1);
    let firings = record(&triangle(1, 1), &[1, 1], From::Start, 2, 100, Limits::default()).unwrap();
    let times: Vec<(usize, f64, u64)> = firings.iter().map(|f| (f.actor, f.start_s, f.iteration)).collect();
    assert_eq!(times, [(0, 0.0, 0), (1, 1.0, 0), (2, 4.0, 0), (0, 5.0, 1), (1, 6.0, 1), (2, 9.0, 1)]);
    assert_eq!(makespan(&triangle(1, 1), &[1, 1], 100_000, Limits::default()).unwrap(), Some(500_000.0));
}

/// The smallest sizes of the schedule by hand are two and two: 16 bytes.
#[test]
fn smallest_sizes_by_hand() {
    let found = smallest(&triangle(64, 64), Limits::default()).unwrap().unwrap();
    assert_eq!((found.capacities.as_slice(), found.bytes, found.proof), (&[2, 2][..], 16.0, Proof::Exhaustive));
    assert_eq!(found.iteration_s, 3.0);
}

/// A transfer of 2 s: tokens arrive later, the room is held meanwhile, and enough room hides it.
#[test]
fn transfers_take_time_but_no_core() {
    let mut slow = triangle(2, 2);
    slow.fifos[0].delay = 2.0;
    // One iteration alone: 1 + 2 + 3 + 1.
    assert_eq!(steady_of(&slow).alone_s, Some(7.0));
    // A token of a holds its room 1 + 2 + 3 s, and when b gives it back c goes before a: two places give two each 7 s.
    assert_eq!(steady_of(&slow).iteration_s, 3.5);
    slow.buffers[0].capacity = 3;
    assert_eq!(steady_of(&slow).iteration_s, 3.0);
    slow.buffers[0].capacity = 1;
    // a ends at 1, arrival at 3, b to 6, then c before a: 7, a to 8.
    assert_eq!(steady_of(&slow).iteration_s, 7.0);
}

/// 2 tokens in, 3 out: 2 + 3 - 1 places are needed, 3 do not do.
#[test]
fn a_buffer_too_small_is_artificial() {
    let stuck = |capacity| {
        let net = net(&[1.0, 1.0], &[3, 2], &[0, 1], &[(0, 1, 2, 3, 0, capacity)]);
        verdict(&net, &net.capacities())
            .map(|d| (d.kind, d.remedy.iter().map(|r| (r.what, r.from, r.to)).collect::<Vec<_>>(), d.describe(&net)))
    };
    let (kind, remedy, text) = stuck(3).unwrap();
    assert_eq!((kind, remedy.as_slice()), (Kind::Artificial, &[(0, 3, 4)][..]));
    assert_eq!(
        text,
        [
            "artificial deadlock: a FIFO is too small",
            "  \"a0\" needs room for 2 tokens in \"a0\" -> \"a1\", and there are 1",
            "  \"a1\" needs 3 tokens in \"a0\" -> \"a1\", and there are 2",
            "  remedy: a size of 4 tokens, 16 bytes for \"a0\" -> \"a1\" (it is 3)",
        ]
    );
    assert!(stuck(4).is_none());
}

/// A circle without tokens; one token on the way back mends it.
#[test]
fn a_circle_without_tokens_is_cyclic() {
    let circle = |initial| {
        let edges = [(0, 1, 1, 1, 0, 4), (1, 2, 1, 1, 0, 4), (2, 1, 1, 1, initial, 4)];
        net(&[1.0; 3], &[1; 3], &[0, 1, 2], &edges)
    };
    let found = verdict(&circle(0), &[4; 3]).unwrap();
    assert_eq!(found.kind, Kind::Cyclic);
    let remedy: Vec<_> = found.remedy.iter().map(|r| (r.what, r.from, r.to)).collect();
    assert_eq!(remedy, [(2, 0, 1)]);
    // One token goes round a1 and a2 in 2 s: slower than any core.
    let steady = steady_of(&circle(1));
    assert_eq!((steady.iteration_s, steady.bottleneck_s), (2.0, 1.0));
}

/// Two parts that have nothing to do with each other have a period each.
#[test]
fn parts_are_simulated_apart() {
    let two = net(&[1.0, 1.0, 0.3, 0.7], &[1; 4], &[0, 1, 2, 3], &[(0, 1, 1, 1, 0, 2), (2, 3, 1, 1, 0, 2)]);
    let steady = steady_of(&two);
    let parts: Vec<(f64, &[usize])> = steady.parts.iter().map(|p| (p.iteration_s, p.actors.as_slice())).collect();
    assert_eq!(parts, [(1.0, &[0, 1][..]), (0.7, &[2, 3][..])]);
    assert_eq!(steady.iteration_s, 1.0);
}

/// More actors on a core than one and than 64 words of bits.
#[test]
fn long_turns() {
    for n in [64usize, 65, 130, 5_000] {
        let edges: Vec<Edge> = (1..n).map(|a| (a - 1, a, 1, 1, 0, 2)).collect();
        let chain = net(&vec![1e-3; n], &vec![1; n], &vec![0; n], &edges);
        assert_eq!(steady_of(&chain).iteration_s, n as f64 * 1e-3);
    }
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    let still = net(&[0.0, 0.0], &[1, 1], &[0, 0], &[(0, 1, 1, 1, 0, 1)]);
    let error = simulate(&still, &[1], Limits::default()).unwrap_err();
    assert!(error[0].to_string().contains("no firing of a0, a1 takes any time"), "{}", error[0]);
    let mut bad = triangle(1, 1);
    bad.seconds[1] = f64::NAN;
    assert!(simulate(&bad, &[1, 1], Limits::default()).is_err());
    // Too few firings to see a state again.
    let unsettled = simulate(&triangle(1, 1), &[1, 1], Limits { firings: 3 }).unwrap();
    assert!(matches!(unsettled, Outcome::Unsettled { firings: 3.., .. }), "{unsettled:?}");
    // A FIFO that fills for longer than the run: an average, and said to be one; with time enough the same, exactly.
    let slow = net(&[1.0, 1.01], &[1, 1], &[0, 1], &[(0, 1, 1, 1, 0, 500)]);
    for (firings, repeats) in [(10_000, false), (1_000_000, true)] {
        let Outcome::Steady(steady) = simulate(&slow, &[500], Limits { firings }).unwrap() else { panic!() };
        assert_eq!(steady.parts[0].repeats, repeats);
        let off = (steady.iteration_s - 1.01).abs();
        assert!(off <= if repeats { 1e-12 } else { 1e-3 }, "{steady:?}");
    }
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A random consistent graph of `n` actors on up to four cores. `room` is what a capacity has beyond its tokens and the largest of its rates.
fn random(seed: u64, n: usize, most_q: u64, loops: bool, mut room: impl FnMut(&mut Dice, u64) -> u64) -> Net {
    let mut dice = Dice(seed);
    let q: Vec<u64> = (0..n).map(|_| 1 + dice.below(most_q)).collect();
    let common = q.iter().fold(0, |g, q| gcd(g, *q));
    let q: Vec<u64> = q.iter().map(|q| q / common).collect();
    let mut edges = Vec::new();
    let mut edge = |dice: &mut Dice, source: usize, target: usize, initial: bool| {
        let times = 1 + dice.below(2);
        let g = gcd(q[source], q[target]);
        let (produced, consumed) = (q[target] / g * times, q[source] / g * times);
        let tokens = if initial { dice.below(produced + consumed + 2) } else { 0 };
        let capacity = tokens.max(produced).max(consumed) + room(dice, q[source] * produced);
        edges.push((source, target, produced as u32, consumed as u32, tokens as u32, capacity as u32));
    };
    // A tree, so that it is one graph, and some more.
    for target in 1..n {
        let source = dice.below(target as u64) as usize;
        edge(&mut dice, source, target, false);
    }
    for _ in 0..dice.below(n as u64) {
        let (a, b) = (dice.below(n as u64) as usize, dice.below(n as u64) as usize);
        if a != b {
            edge(&mut dice, a.min(b), a.max(b), false);
        }
    }
    if loops {
        for _ in 0..=dice.below(2) {
            let (a, b) = (dice.below(n as u64) as usize, dice.below(n as u64) as usize);
            edge(&mut dice, a.max(b), a.min(b), true);
        }
    }
    let cores = 1 + dice.below(4) as usize;
    // Some in tenths of a second, some of any length.
    let seconds: Vec<f64> = (0..n)
        .map(|_| {
            if seed.is_multiple_of(2) {
                (1 + dice.below(30)) as f64 / 10.0
            } else {
                (1 + dice.below(1 << 20)) as f64 / 1e6 / 3.0
            }
        })
        .collect();
    let core_of: Vec<usize> = (0..n).map(|_| dice.below(cores as u64) as usize).collect();
    net(&seconds, &q, &core_of, &edges)
}

/// The simulation again: at every instant everything is looked at. Start of each firing, in ticks, until `firings` have started.
fn plainly(net: &Net, capacities: &[u32], ticks: &Ticks, firings: usize) -> Vec<(u64, usize)> {
    let n = net.actors.len();
    let order: Vec<Vec<usize>> =
        (0..net.cores.len()).map(|c| (0..n).filter(|a| net.core_of[*a] == c).collect()).collect();
    let mut next = vec![0usize; order.len()];
    let mut running: Vec<Option<(u64, usize)>> = vec![None; order.len()];
    let mut tokens: Vec<i64> = net.fifos.iter().map(|f| f.initial.into()).collect();
    let mut space: Vec<i64> =
        net.fifos.iter().map(|f| i64::from(capacities[f.buffer]) - i64::from(f.initial)).collect();
    let mut started = Vec::new();
    let mut now = 0;
    loop {
        for c in 0..order.len() {
            let may = |a: usize| {
                net.fifos.iter().enumerate().all(|(i, f)| {
                    (f.target != a || tokens[i] >= f.consumed.into())
                        && (f.source != a || space[i] >= f.produced.into())
                })
            };
            if running[c].is_some() {
                continue;
            }
            let turn = (0..order[c].len()).map(|i| (next[c] + i) % order[c].len()).find(|t| may(order[c][*t]));
            if let Some(turn) = turn {
                let a = order[c][turn];
                for (i, f) in net.fifos.iter().enumerate() {
                    tokens[i] -= if f.target == a { f.consumed.into() } else { 0 };
                    space[i] -= if f.source == a { f.produced.into() } else { 0 };
                }
                running[c] = Some((now + ticks.of(net.seconds[a]), a));
                next[c] = (turn + 1) % order[c].len();
                started.push((now, a));
            }
        }
        let Some(end) = running.iter().flatten().map(|r| r.0).min() else { return started };
        now = end;
        for slot in &mut running {
            if let Some((end, a)) = *slot
                && end == now
            {
                *slot = None;
                for (i, f) in net.fifos.iter().enumerate() {
                    space[i] += if f.target == a { f.consumed.into() } else { 0 };
                    tokens[i] += if f.source == a { f.produced.into() } else { 0 };
                }
            }
        }
        if started.len() >= firings {
            return started;
        }
    }
}

/// Whether a state can be reached from which nobody fires; every order of firings is tried.
fn some_order_sleeps(net: &Net, capacities: &[u32]) -> bool {
    let first: Vec<u32> = net.fifos.iter().map(|f| f.initial).collect();
    let mut seen = HashSet::from([first.clone()]);
    let mut list = vec![first];
    while let Some(state) = list.pop() {
        let mut moved = false;
        for a in 0..net.actors.len() {
            let may = net.fifos.iter().zip(&state).all(|(f, t)| {
                (f.target != a || *t >= f.consumed) && (f.source != a || t + f.produced <= capacities[f.buffer])
            });
            if !may {
                continue;
            }
            moved = true;
            let mut after = state.clone();
            for (f, t) in net.fifos.iter().zip(&mut after) {
                *t -= if f.target == a { f.consumed } else { 0 };
                *t += if f.source == a { f.produced } else { 0 };
            }
            if seen.insert(after.clone()) {
                list.push(after);
            }
        }
        if !moved {
            return true;
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// Both simulations start the same firings at the same ticks.
    #[test]
    fn the_plain_simulation_agrees(seed in any::<u64>(), n in 2usize..9) {
        let net = random(seed, n, 4, true, |dice, tokens| dice.below(2 * tokens + 1));
        let ticks = Ticks::of_net(&net);
        let capacities = net.capacities();
        let plain = plainly(&net, &capacities, &ticks, 400);
        let recorded = record(&net, &capacities, From::Start, 1 << 30, 300, Limits::default()).unwrap();
        let mut by_actor = vec![Vec::new(); n];
        for (start, a) in &plain {
            by_actor[*a].push(ticks.seconds_of(u128::from(*start)));
        }
        let mut seen = vec![0usize; n];
        for firing in recorded.iter().take(200) {
            // Parts that are not joined are recorded each for itself, so the last ones of a part may lie beyond the plain ones.
            if let Some(start) = by_actor[firing.actor].get(seen[firing.actor]) {
                prop_assert_eq!(*start, firing.start_s);
            }
            seen[firing.actor] += 1;
        }
        if plain.len() < 400 {
            prop_assert_eq!(recorded.len(), plain.len().min(300));
            prop_assert!(verdict(&net, &capacities).is_some());
        }
    }

    /// With large FIFOs the simulated time of an iteration is that of the most loaded core.
    #[test]
    fn large_fifos_reach_the_bottleneck(seed in any::<u64>(), n in 2usize..14) {
        let net = random(seed, n, 4, false, |_, tokens| 16 * tokens);
        let steady = steady_of(&net);
        prop_assert!(
            (steady.iteration_s / steady.bottleneck_s - 1.0).abs() <= 1e-9,
            "{} {}", steady.iteration_s, steady.bottleneck_s
        );
        let busiest = steady.utilisation.iter().copied().fold(0.0, f64::max);
        prop_assert!((busiest - 1.0).abs() <= 1e-9);
        for (fill, f) in steady.fills.iter().zip(&net.fifos) {
            prop_assert!(fill.most <= net.buffers[f.buffer].capacity && fill.mean <= f64::from(fill.most) + 1e-9);
        }
        let latency = steady.latency.unwrap();
        prop_assert!(latency.most_s >= latency.mean_s - 1e-9 && latency.mean_s >= latency.least_s - 1e-9);
    }

    /// Whole periods passed over change nothing of a run.
    #[test]
    fn passing_over_periods_is_exact(seed in any::<u64>(), n in 2usize..8, iterations in 1u64..400) {
        let net = random(seed, n, 3, false, |dice, tokens| tokens + dice.below(2 * tokens + 1));
        let ticks = Ticks::of_net(&net);
        let capacities = net.capacities();
        prop_assume!(verdict(&net, &capacities).is_none());
        // The plain run starts every firing.
        prop_assume!(net.repetitions.iter().sum::<u64>() * iterations < 100_000);
        let whole = steady::whole(&net, &capacities, &ticks, iterations);
        prop_assert_eq!(steady::finite(&net, &capacities, &ticks, iterations, 1 << 40), Some(whole));
    }

    /// The verdict is that of the state space; what it says mends it, and less does not.
    #[test]
    fn verdicts_are_those_of_all_orders(seed in any::<u64>(), n in 2usize..5) {
        let net = random(seed, n, 3, true, |dice, _| dice.below(3));
        let capacities = net.capacities();
        let found = verdict(&net, &capacities);
        prop_assert_eq!(found.is_some(), some_order_sleeps(&net, &capacities));
        let Some(found) = found else { return Ok(()) };
        // Room for everything that a whole iteration can put beside the initial tokens.
        let tokens: u32 = net.fifos.iter().map(|f| f.initial + f.produced * net.repetitions[f.source] as u32).sum();
        if tokens < 40 {
            let large = vec![tokens; net.buffers.len()];
            prop_assert_eq!(found.kind == Kind::Cyclic, some_order_sleeps(&net, &large));
        }
        prop_assert!(!found.remedy.is_empty() && !found.circle.is_empty());
        let mended = |less: Option<usize>| {
            let (mut net, mut capacities) = (net.clone(), capacities.clone());
            for remedy in &found.remedy {
                let to = remedy.to - u32::from(less == Some(remedy.what));
                match found.kind {
                    Kind::Artificial => capacities[remedy.what] = to,
                    Kind::Cyclic => net.fifos[remedy.what].initial = to,
                }
            }
            if found.kind == Kind::Cyclic {
                capacities.fill(1 << 20);
            }
            verdict(&net, &capacities).is_none()
        };
        prop_assert!(mended(None));
        for remedy in &found.remedy {
            prop_assert!(!mended(Some(remedy.what)));
        }
        // Each of the circle waits for the next.
        for (i, wait) in found.circle.iter().enumerate() {
            let f = &net.fifos[wait.fifo];
            let other = if wait.room { f.target } else { f.source };
            prop_assert_eq!(other, found.circle[(i + 1) % found.circle.len()].actor);
            prop_assert!(wait.found < wait.needed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// The sizes found keep the throughput of large FIFOs, one less on any does not, and where it is claimed no sum of bytes is smaller.
    #[test]
    fn sizes_are_smallest(seed in any::<u64>(), n in 2usize..5) {
        let net = random(seed, n, 2, false, |_, tokens| 16 * tokens);
        let target = steady_of(&net).iteration_s;
        let found = smallest(&net, Limits::default()).unwrap().unwrap();
        let at = |capacities: &[u32]| match simulate(&net, capacities, Limits::default()).unwrap() {
            Outcome::Steady(steady) => steady.iteration_s,
            _ => f64::INFINITY,
        };
        let slower = |s: f64| s > target * (1.0 + 1e-12);
        prop_assert!(!slower(at(&found.capacities)), "{} {target}", at(&found.capacities));
        for b in 0..net.buffers.len() {
            let mut less = found.capacities.clone();
            less[b] -= 1;
            prop_assert!(slower(at(&less)), "{less:?}");
        }
        if found.proof == Proof::Exhaustive && net.buffers.len() <= 4 {
            let total: u32 = found.capacities.iter().sum();
            let mut list = vec![Vec::new()];
            for _ in 0..net.buffers.len() {
                list = list
                    .into_iter()
                    .flat_map(|head: Vec<u32>| (1..total).map(move |c| [head.clone(), vec![c]].concat()))
                    .filter(|sizes| sizes.iter().sum::<u32>() < total)
                    .collect();
            }
            for sizes in list.iter().take(4_000) {
                prop_assert!(slower(at(sizes)), "{sizes:?} beats {:?}", found.capacities);
            }
        }
    }
}
