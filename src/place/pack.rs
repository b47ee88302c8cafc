//! Actors on cores without regard to channels: what a stream of firings may do. The least bottleneck is the problem P || Cmax (or R || Cmax).

use super::instance::Instance;

/// The largest actors first, each where it ends soonest (Graham 1969), pins first.
pub fn longest_first(instance: &Instance) -> Vec<usize> {
    let mut core_of = vec![0; instance.n];
    let mut busy = vec![0u64; instance.k];
    let mut memory = vec![0.0; instance.k];
    let mut order: Vec<usize> = (0..instance.n).collect();
    order.sort_by_key(|i| (instance.request.pins[*i].is_none(), std::cmp::Reverse(instance.ticks[0][*i])));
    for i in order {
        let fits = |p: usize| memory[p] + instance.bytes[i] <= instance.cores.cores[p].memory;
        let least = |p: &usize| (!fits(*p), busy[*p] + instance.on(i, *p));
        let p = instance.request.pins[i].or_else(|| (0..instance.k).min_by_key(least)).unwrap_or(0);
        core_of[i] = p;
        busy[p] += instance.on(i, p);
        memory[p] += instance.bytes[i];
    }
    core_of
}

/// A bound of P || Cmax that sees that actors cannot be cut: of the m largest actors, some core has at least ceil(m / k), so the sum of as many of the
/// smallest of these.
pub fn whole_actors(instance: &Instance) -> u64 {
    let mut weights: Vec<u64> =
        (0..instance.n).map(|i| instance.ticks.iter().map(|t| t[i]).min().unwrap_or(0)).collect();
    weights.sort_unstable_by(|a, b| b.cmp(a));
    let mut best = 0;
    let mut each = 1;
    // h k + 1 actors: some core has h + 1 of them.
    while each * instance.k < instance.n && each < 64 {
        let last = each * instance.k;
        best = best.max(weights[last - each..=last].iter().sum());
        each += 1;
    }
    best
}
