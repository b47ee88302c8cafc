//! Ideals (sets closed under predecessors) of some of the actors, in the order that the edges impose on these.

use super::instance::Instance;
use std::collections::HashMap;

/// Ideals of chosen actors, smaller ones first.
#[derive(Debug, Clone)]
pub struct Ideals {
    /// The chosen actors, in topological order.
    pub members: Vec<usize>,
    /// Words of one set.
    words: usize,
    sets: Vec<u64>,
    /// From each ideal: the member that joins (its position in `members`) and the ideal it leads to.
    pub next: Vec<Vec<(u32, u32)>>,
}

/// Most bytes of sets.
const MOST_BYTES: usize = 256 << 20;

/// Which actors come immediately before each member, walking through actors that are none; and which of these are on the way.
#[derive(Debug, Clone)]
pub struct Near {
    /// Members, as positions, immediately before each member.
    pub before: Vec<Vec<usize>>,
    /// Actors that are no members, between each member and the members before it.
    pub fringe: Vec<Vec<usize>>,
}

/// Walks back from every member; `reverse` turns all edges round.
pub fn near(instance: &Instance, members: &[usize], reverse: bool) -> Near {
    let mut position = vec![usize::MAX; instance.n];
    members.iter().enumerate().for_each(|(m, a)| position[*a] = m);
    let mut before = Vec::with_capacity(members.len());
    let mut fringe = Vec::with_capacity(members.len());
    let mut seen = vec![usize::MAX; instance.n];
    for (m, a) in members.iter().enumerate() {
        let (mut found, mut passed, mut stack) = (Vec::new(), Vec::new(), vec![*a]);
        while let Some(at) = stack.pop() {
            let list = if reverse { &instance.outgoing[at] } else { &instance.incoming[at] };
            for e in list.iter().map(|e| &instance.edges[*e]).filter(|e| e.waits) {
                let other = if reverse { e.to } else { e.from };
                if seen[other] == m {
                    continue;
                }
                seen[other] = m;
                if position[other] == usize::MAX {
                    passed.push(other);
                    stack.push(other);
                } else {
                    found.push(position[other]);
                }
            }
        }
        before.push(found);
        fringe.push(passed);
    }
    Near { before, fringe }
}

impl Ideals {
    /// All ideals, if they are at most `limit`.
    pub fn of(members: Vec<usize>, near: &Near, limit: usize) -> Option<Self> {
        let n = members.len();
        let words = n.div_ceil(64).max(1);
        let mut after = vec![Vec::new(); n];
        for (m, list) in near.before.iter().enumerate() {
            list.iter().for_each(|b| after[*b].push(m));
        }
        // Sets are told apart by a sum of random words of their members, and compared where these are equal.
        let mut word = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = || {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            word
        };
        let keys: Vec<u64> = (0..n).map(|_| random()).collect();
        let mut sets = vec![0u64; words];
        let mut next: Vec<Vec<(u32, u32)>> = Vec::new();
        let mut level: Vec<(u32, u64, Vec<u32>)> =
            vec![(0, 0, (0..n).filter(|m| near.before[*m].is_empty()).map(|m| m as u32).collect())];
        while !level.is_empty() {
            let mut known: HashMap<u64, Vec<u32>, foldhash::fast::FixedState> = HashMap::default();
            let mut coming: Vec<(u32, u64, Vec<u32>)> = Vec::new();
            for (id, key, ready) in &level {
                let mut ways = Vec::with_capacity(ready.len());
                let base = *id as usize * words;
                for &m in ready {
                    let mut set = sets[base..base + words].to_vec();
                    set[m as usize / 64] |= 1 << (m % 64);
                    let key = key.wrapping_add(keys[m as usize]);
                    let same = known
                        .get(&key)
                        .and_then(|ids| ids.iter().copied().find(|i| sets[*i as usize * words..][..words] == set[..]));
                    let to = match same {
                        Some(to) => to,
                        None => {
                            let to = (sets.len() / words) as u32;
                            if to as usize >= limit || sets.len() * 8 > MOST_BYTES {
                                return None;
                            }
                            let inside = |m: usize| set[m / 64] >> (m % 64) & 1 == 1;
                            let mut ready: Vec<u32> = ready.iter().copied().filter(|r| *r != m).collect();
                            ready.extend(
                                after[m as usize]
                                    .iter()
                                    .filter(|s| near.before[**s].iter().all(|b| inside(*b)))
                                    .map(|s| *s as u32),
                            );
                            sets.extend_from_slice(&set);
                            known.entry(key).or_default().push(to);
                            coming.push((to, key, ready));
                            to
                        }
                    };
                    ways.push((m, to));
                }
                next.push(ways);
            }
            level = coming;
        }
        Some(Self { members, words, sets, next })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.next.len()
    }
    /// Never: the empty set is one.
    pub fn is_empty(&self) -> bool {
        self.next.is_empty()
    }
    /// Whether ideal `id` has the member at position `m`.
    pub fn has(&self, id: usize, m: usize) -> bool {
        self.sets[id * self.words + m / 64] >> (m % 64) & 1 == 1
    }
}

/// Prefixes of one order as ideals: what remains of all when one order is followed.
pub fn prefixes(order: Vec<usize>) -> Ideals {
    let n = order.len();
    let words = n.div_ceil(64).max(1);
    let mut sets = vec![0u64; words * (n + 1)];
    for id in 1..=n {
        let (done, rest) = sets.split_at_mut(id * words);
        rest[..words].copy_from_slice(&done[(id - 1) * words..]);
        rest[(id - 1) / 64] |= 1 << ((id - 1) % 64);
    }
    let next = (0..=n).map(|id| if id < n { vec![(id as u32, id as u32 + 1)] } else { Vec::new() }).collect();
    Ideals { members: order, words, sets, next }
}
