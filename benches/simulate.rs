//! Speed of the simulation of firings: `cargo bench --bench simulate`. `items` are firings.

use divan::counter::ItemsCount;
use flowspace::place::simulate::net::{Buffer, Fifo};
use flowspace::place::simulate::{Limits, Net, advance, makespan, simulate};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    divan::main();
}

/// A chain of `n` actors of unlike lengths, dealt out to `cores` cores in stretches; FIFOs of `capacity` tokens.
fn chain(n: usize, cores: usize, capacity: u32) -> Net {
    let seconds = (0..n).map(|a| 1e-6 * (10 + a * 7919 % 31) as f64).collect();
    let fifo =
        |a: usize| Fifo { source: a - 1, target: a, produced: 1, consumed: 1, initial: 0, delay: 0.0, buffer: a - 1 };
    Net {
        actors: (0..n).map(|a| format!("a{a}")).collect(),
        seconds,
        repetitions: vec![1; n],
        core_of: (0..n).map(|a| a * cores / n).collect(),
        cores: (0..cores).map(|c| format!("c{c}")).collect(),
        fifos: (1..n).map(fifo).collect(),
        buffers: (1..n).map(|a| Buffer { capacity, token_bytes: 4.0, name: format!("a{}.out", a - 1) }).collect(),
    }
}

/// Firings alone, without any search for a period.
#[divan::bench(args = [(1, 1), (16, 4), (176, 8), (1000, 16), (1000, 64), (10000, 64)], sample_count = 5)]
fn firings(bencher: divan::Bencher, (actors, cores): (usize, usize)) {
    const FIRINGS: u64 = 2_000_000;
    let net = chain(actors, cores, 8);
    let capacities = net.capacities();
    bencher.counter(ItemsCount::new(FIRINGS)).bench(|| advance(&net, &capacities, FIRINGS).expect("a chain runs"));
}

/// 10^5 tokens through 1,000 actors: the regime is found, whole periods are passed over.
#[divan::bench(args = [1, 16, 64], sample_count = 5)]
fn a_run_of_100_000_tokens_through_1000_actors(bencher: divan::Bencher, cores: usize) {
    let net = chain(1_000, cores, 8);
    let capacities = net.capacities();
    bencher.bench(|| makespan(&net, &capacities, 100_000, Limits::default()).expect("a chain runs"));
}

/// Regime, latency and fills.
#[divan::bench(args = [(176, 8), (1000, 64)], sample_count = 5)]
fn steady_state(bencher: divan::Bencher, (actors, cores): (usize, usize)) {
    let net = chain(actors, cores, 8);
    let capacities = net.capacities();
    bencher.bench(|| simulate(&net, &capacities, Limits::default()).expect("a chain runs"));
}
