//! METIS (Karypis and Kumar 1998) through the crate `metis`, in builds with the cargo feature of that name: recursive bisection and k-way, with ticks as
//! weights of vertices and bytes as weights of edges, as the runtime of StreamBlocks calls it. It ignores the direction of edges.

use super::instance::Instance;

/// Whether this build has it.
pub const BUILT: bool = cfg!(feature = "metis");

/// What recursive bisection and k-way give; nothing where METIS is not built or refuses. Pinned actors lie where they must; edges may go back.
pub fn starts(instance: &Instance) -> Vec<Vec<usize>> {
    let mut found = raw(instance);
    for core_of in &mut found {
        for (i, pin) in instance.request.pins.iter().enumerate() {
            if let Some(p) = pin {
                core_of[i] = *p;
            }
        }
    }
    found
}

/// Ends standard output, to be called last of all: METIS' C warns there by itself ("Cannot bisect a graph with 0 vertices!", where an actor weighs more than
/// a core's part), and what its library has buffered would be written at the exit, after an answer in JSON.
pub fn end_output() {
    #[cfg(feature = "metis")]
    if RAN.load(std::sync::atomic::Ordering::Relaxed) {
        use std::io::Write as _;
        let _ = std::io::stdout().flush();
        if let Ok(nowhere) = std::fs::File::options().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&nowhere);
        }
    }
}

/// Whether METIS ran in this process.
#[cfg(feature = "metis")]
static RAN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

#[cfg(not(feature = "metis"))]
fn raw(_: &Instance) -> Vec<Vec<usize>> {
    Vec::new()
}

#[cfg(feature = "metis")]
fn raw(instance: &Instance) -> Vec<Vec<usize>> {
    use std::collections::BTreeMap;
    let (n, k) = (instance.n, instance.k);
    if n == 0 || k < 2 || k > n {
        return Vec::new();
    }
    let mut near: Vec<BTreeMap<usize, f64>> = vec![BTreeMap::new(); n];
    for e in &instance.edges {
        *near[e.from].entry(e.to).or_default() += e.bytes;
        *near[e.to].entry(e.from).or_default() += e.bytes;
    }
    RAN.store(true, std::sync::atomic::Ordering::Relaxed);
    // METIS counts in 32 bits: totals are scaled to stay below a quarter of that.
    const MOST: f64 = 500_000_000.0;
    let total: f64 = instance.ticks[0].iter().map(|t| *t as f64).sum();
    let bytes: f64 = instance.edges.iter().map(|e| e.bytes).sum();
    // As the runtime's graphs are weighted: microseconds and KiB, where these fit.
    let time = (1e6 / instance.rate).min(MOST / total.max(1.0));
    let size = (1.0 / 1024.0f64).min(MOST / bytes.max(1.0));
    let whole = |x: f64| (x.round() as metis::Idx).max(1);
    let mut xadj: Vec<metis::Idx> = vec![0];
    let (mut adjncy, mut adjwgt): (Vec<metis::Idx>, Vec<metis::Idx>) = (Vec::new(), Vec::new());
    for list in &near {
        for (other, weight) in list {
            adjncy.push(*other as metis::Idx);
            adjwgt.push(whole(weight * size));
        }
        xadj.push(adjncy.len() as metis::Idx);
    }
    let vwgt: Vec<metis::Idx> = instance.ticks[0].iter().map(|t| whole(*t as f64 * time)).collect();
    let build = || {
        let graph = metis::Graph::new(1, k as metis::Idx, &xadj, &adjncy).ok()?;
        Some(graph.set_vwgt(&vwgt).set_adjwgt(&adjwgt))
    };
    let mut parts = Vec::new();
    for recursive in [true, false] {
        let mut part = vec![0 as metis::Idx; n];
        let Some(graph) = build() else { continue };
        let done = if recursive { graph.part_recursive(&mut part) } else { graph.part_kway(&mut part) };
        if done.is_ok() {
            parts.push(part.iter().map(|p| (*p as usize).min(k - 1)).collect());
        }
    }
    parts
}
