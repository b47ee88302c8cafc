//! Section 5 of docs/model.md: arithmetic.

use super::case::{Efficiency, Kernel, Machine, Op, Pass, Waves};
use super::graph::{Local, Sharded, along_k};

/// A kernel's seconds on so many of the chip's cores, for a microbatch: what `lanes_stages` chooses from; or seconds alone.
pub enum Seconds {
    Alone(f64),
    /// Of 1, 2, 3 ... cores.
    ByCores(Vec<f64>),
}

/// Sizes of one tile.
pub fn tile(sharded: &Sharded, k: usize) -> Local {
    let mut local = sharded.local(k);
    if along_k(&sharded.graph.kernels[k]) {
        local.k = local.k.div_ceil(sharded.tiles);
    } else {
        local.n = local.n.div_ceil(sharded.tiles);
    }
    local
}

/// Tiles of a kernel that are not empty.
pub fn tiles(sharded: &Sharded, k: usize) -> u64 {
    let local = sharded.local(k);
    sharded.filled(if along_k(&sharded.graph.kernels[k]) { local.k } else { local.n })
}

pub fn is_product(kernel: &Kernel) -> bool {
    matches!(kernel.op, Op::Weight | Op::Pair) && !kernel.lookup
}

/// FLOP that a kernel states, or a look-up has.
fn stated(kernel: &Kernel) -> Option<f64> {
    match (kernel.lookup, kernel.pass) {
        (true, Pass::GradientOfWeight) => Some(kernel.k as f64 * kernel.n as f64),
        (true, _) => Some((kernel.outer * kernel.m) as f64 * kernel.n as f64),
        (false, _) => kernel.flop,
    }
}

/// FLOP of a sample, unsharded.
pub fn whole_flop(kernel: &Kernel) -> f64 {
    let size = (kernel.outer * kernel.m) as f64 * kernel.n as f64;
    stated(kernel).unwrap_or(if is_product(kernel) { 2.0 * size * kernel.k as f64 } else { size })
}

pub fn tile_flop(sharded: &Sharded, k: usize) -> f64 {
    let kernel = &sharded.graph.kernels[k];
    let tile = tile(sharded, k);
    let size = tile.rows() as f64 * tile.k as f64 * tile.n as f64;
    match stated(kernel) {
        Some(flop) => flop * size / (kernel.outer as f64 * kernel.m as f64 * kernel.k as f64 * kernel.n as f64),
        None if is_product(kernel) => 2.0 * size,
        None => tile.rows() as f64 * tile.n as f64,
    }
}

/// Peak that utilization is measured by.
pub fn peak(machine: &Machine, word: u64) -> f64 {
    match &machine.efficiency {
        Efficiency::Waves(waves) => fastest(&waves.peaks, word).1,
        _ => 2.0 * machine.lanes as f64 * machine.stages as f64 * machine.cores as f64 * frequency(machine, word),
    }
}

/// The clock at which lanes do such words.
fn frequency(machine: &Machine, word: u64) -> f64 {
    let stated = fastest(&machine.peaks, word).1 / fastest(&machine.peaks, 2).1;
    let share = match machine.peaks.is_empty() {
        true => 1.0,
        false if stated == 0.0 => (2.0 / word as f64).min(1.0),
        false => stated,
    };
    machine.frequency * share
}

/// The fastest stated type of such words, of equal ones the last.
fn fastest(peaks: &[(&'static str, f64)], word: u64) -> (&'static str, f64) {
    let names: &[&str] = match word {
        1 => &["fp8", "int8"],
        2 => &["fp16", "bf16"],
        4 => &["fp32"],
        _ => &["fp64"],
    };
    let mut best = ("", 0.0);
    for name in names {
        match peaks.iter().find(|(stated, _)| stated == name) {
            Some((_, peak)) if *peak >= best.1 => best = (name, *peak),
            _ => {}
        }
    }
    best
}

/// Bandwidth of the DRAM.
pub fn beta(machine: &Machine, training: bool) -> f64 {
    match &machine.efficiency {
        Efficiency::Waves(waves) => {
            let share = waves.burst.as_ref().filter(|_| !training).map_or(waves.memory, |b| b.memory);
            machine.bandwidth * share
        }
        _ => machine.bandwidth,
    }
}

pub fn seconds(machine: &Machine, sharded: &Sharded, k: usize) -> Seconds {
    let kernel = &sharded.graph.kernels[k];
    let peak = peak(machine, sharded.graph.word);
    let repeated = (sharded.graph.micro * tiles(sharded, k)) as f64;
    match &machine.efficiency {
        Efficiency::Share(u) => {
            let peak = if is_product(kernel) { peak } else { machine.vector_peak.unwrap_or(peak) };
            Seconds::Alone(repeated * tile_flop(sharded, k) / (u * peak))
        }
        Efficiency::LanesStages => {
            let cores = machine.cores;
            let each: Vec<f64> = (1..=cores)
                .map(|count| {
                    let fewest = options(machine, sharded, k, count).into_iter().min().unwrap();
                    repeated * fewest as f64 / frequency(machine, sharded.graph.word)
                })
                .collect();
            Seconds::ByCores(each)
        }
        Efficiency::Waves(waves) => Seconds::Alone(by_waves(machine, waves, sharded, k)),
    }
}

/// Cycles of a tile on at most `count` cores, each way to group them.
fn options(machine: &Machine, sharded: &Sharded, k: usize, count: u64) -> Vec<u64> {
    let kernel = &sharded.graph.kernels[k];
    let tile = tile(sharded, k);
    let mut out = Vec::new();
    for l in 1..=count {
        let by_lanes = |size: u64| size.div_ceil(l * machine.lanes);
        if kernel.lookup {
            out.push(by_lanes((tile_flop(sharded, k).ceil() as u64).max(1)));
        } else if is_product(kernel) {
            let h = count / l;
            out.push(by_lanes(tile.rows()) * tile.n.div_ceil(h * machine.stages) * tile.k * kernel.passes);
        } else {
            out.push(by_lanes(tile.rows()) * tile.n * kernel.passes);
        }
    }
    out
}

/// Seconds of the slowest kernel where they share the cores best.
pub fn share_cores(cores: u64, kernels: &[Vec<f64>]) -> f64 {
    let mut levels: Vec<f64> = kernels.iter().flatten().copied().collect();
    levels.sort_by(f64::total_cmp);
    for level in levels {
        let needed: Option<u64> =
            kernels.iter().map(|each| each.iter().position(|seconds| *seconds <= level).map(|at| at as u64 + 1)).sum();
        if needed.is_some_and(|n| n <= cores) {
            return level;
        }
    }
    f64::INFINITY
}

fn by_waves(machine: &Machine, waves: &Waves, sharded: &Sharded, index: usize) -> f64 {
    let (graph, kernel, local) = (sharded.graph, &sharded.graph.kernels[index], sharded.local(index));
    let s = graph.micro;
    let (kind, peak) = fastest(&waves.peaks, graph.word);
    let burst = waves.burst.as_ref().filter(|_| !graph.training);
    let weighted = kernel.op == Op::Weight || kernel.weight_of.is_some();
    let (mut batch, m, mut k, mut n) = (local.batch, local.m, local.k, local.n);
    if kernel.pass == Pass::GradientOfWeight {
        k *= s;
    } else if weighted {
        n *= s;
    } else {
        batch *= s;
    }
    let sizes = (kernel.outer * kernel.m) as f64 * kernel.n as f64 * kernel.k as f64;
    let of_stated = |doubled: f64| stated(kernel).map_or(1.0, |flop| flop / (doubled * sizes));
    if !is_product(kernel) {
        let elements = batch as f64 * m as f64 * n as f64 * k as f64;
        return elements / machine.vector_peak.unwrap_or(peak) * of_stated(1.0);
    }
    let by_type = waves.by_type.iter().find(|(name, _)| *name == kind).map(|(_, e)| *e);
    let e = match (weighted || kernel.pass == Pass::GradientOfWeight, burst) {
        (true, Some(b)) => b.efficiency,
        (true, None) => by_type.unwrap_or(waves.efficiency),
        (false, Some(b)) => b.batched,
        (false, None) => waves.batched,
    };
    let units = waves.units;
    let mut best = f64::INFINITY;
    for tile in &waves.tiles {
        let mut j = 1;
        while j <= tile.splits {
            let count = batch * m.div_ceil(tile.rows) * n.div_ceil(tile.columns) * j;
            let (r, c, part) = (tile.rows as f64, tile.columns as f64, k as f64 / j as f64);
            let rate = peak * e * tile.rate / units as f64;
            let mut time = count.div_ceil(units) as f64 * (2.0 * r * c * part / rate + waves.fill);
            if let Some(b) = burst {
                time = time.max(count.div_ceil(units * b.at_once) as f64 * part * b.wait);
            }
            if j > 1 {
                time += 8.0 * j as f64 * batch as f64 * m as f64 * n as f64 / beta(machine, graph.training);
            }
            best = best.min(time);
            j *= 2;
        }
    }
    best * of_stated(2.0)
}
