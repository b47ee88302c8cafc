//! Simulated annealing (Kirkpatrick, Gelatt, Vecchi 1983): for free placements whose transfers count, where moves and swaps that must each pay
//! get stuck. The seed is fixed and so is the number of steps, so that a run gives the same again.

use super::instance::Instance;
use super::refine::Assignment;
use std::time::Instant;

/// Most steps of one run.
const MOST_STEPS: u64 = 1_500_000;
/// Steps of one run for each pair of actors.
const STEPS_A_PAIR: u64 = 120;
/// How much more than its share of the objective a broken limit costs.
const PENALTY: f64 = 20.0;

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn even(state: &mut u64) -> f64 {
    (random(state) >> 11) as f64 / (1u64 << 53) as f64
}

/// The best assignment on the way from `start`; heat is counted in shares of the objective `scale`.
pub fn anneal<'i, 'g>(
    instance: &'i Instance<'g>,
    start: Assignment<'i, 'g>,
    (scale, seed): (f64, u64),
    until: Instant,
) -> Assignment<'i, 'g> {
    if instance.n < 2 || instance.k < 2 {
        return start;
    }
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ (seed + 1).wrapping_mul(0x2545_f491_4f6c_dd1d);
    let scale = scale.max(f64::MIN_POSITIVE);
    let (hot, cold) = (0.1f64, 1e-3f64);
    let energy = |a: &Assignment| {
        let (broken, objective, _) = a.worth();
        objective / scale + PENALTY * broken
    };
    let mut at = start.clone();
    let mut now = energy(&at);
    let mut best = start;
    let mut moved: Vec<(usize, usize)> = Vec::new();
    let steps = (STEPS_A_PAIR * (instance.n as u64).pow(2)).min(MOST_STEPS);
    for step in 0..steps {
        if step % 4096 == 0 && Instant::now() >= until {
            break;
        }
        let heat = hot * (cold / hot).powf(step as f64 / steps as f64);
        // Mostly one end of an edge joins the other; sometimes any actor goes anywhere, or two change places.
        let kind = random(&mut state) % 16;
        let (i, q) = if kind < 11 && !instance.edges.is_empty() {
            let e = &instance.edges[random(&mut state) as usize % instance.edges.len()];
            let (i, j) = if random(&mut state) & 1 == 0 { (e.from, e.to) } else { (e.to, e.from) };
            (i, at.core_of[j])
        } else {
            (random(&mut state) as usize % instance.n, random(&mut state) as usize % instance.k)
        };
        let p = at.core_of[i];
        if p == q || !at.allowed(i, q) {
            continue;
        }
        // What moves, in this order: the actor; or a run of its neighbours on the same core with it; or, in exchange, another one.
        moved.clear();
        moved.push((i, p));
        at.apply(i, q);
        if kind % 2 == 1 {
            let most = 2 + random(&mut state) as usize % 8;
            let mut next = 0;
            while next < moved.len() && moved.len() < most {
                let (a, _) = moved[next];
                next += 1;
                let near = instance.outgoing[a].iter().chain(&instance.incoming[a]).map(|e| &instance.edges[*e]);
                for b in near.map(|e| if e.from == a { e.to } else { e.from }) {
                    if moved.len() < most && at.core_of[b] == p && at.allowed(b, q) {
                        at.apply(b, q);
                        moved.push((b, p));
                    }
                }
            }
        }
        if kind >= 8 {
            let j = random(&mut state) as usize % instance.n;
            if at.core_of[j] == q && moved.iter().all(|(a, _)| *a != j) && at.allowed(j, p) {
                at.apply(j, p);
                moved.push((j, q));
            }
        }
        let then = energy(&at);
        if then <= now || even(&mut state) < ((now - then) / heat).exp() {
            now = then;
            if super::refine::better(&at, &best) {
                best = at.clone();
            }
        } else {
            moved.iter().rev().for_each(|(a, home)| at.apply(*a, *home));
        }
    }
    best
}
