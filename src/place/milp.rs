//! Placement as a mixed-integer programme: a formulation with prefix variables, and the one of streamblocks-partitioning.
//!
//! **Prefix variables.** In a chain of stages `y[i,p]` says that actor i lies on a core of number p or less, so `x[i,p] = y[i,p] - y[i,p-1]` says that it lies on p:
//!
//! * P1 `y[i,p] >= y[i,p-1]`
//! * P2 `y[u,p] >= y[v,p]` for every edge that waits: no edge goes back, and no core is like another, so that there is no symmetry
//! * P3 `T >= sum_i t[i,p] x[i,p] + L_p` (load; `L_p`: local transfers, objectives `sum` (apart) and `per_core`)
//! * P4 `c[e] >= y[u,p] - y[v,p]` (edge e = (u, v) is cut); `c[e] >= x[u,p] - x[v,p]` where it may go back
//! * P5 `d[e,p] >= |x[u,p] - x[v,p]|`, `T >= sum_e s_e d[e,p]` (`per_core`)
//! * P6 `l[e,p] >= x[u,p] + x[v,p] - 1`, `L_p = sum_e l_e l[e,p]`
//! * P7 `sum_i bytes_i x[i,p] <= memory_p`; pins fix `x`
//! * P8 `sum_i t[i,p] x[i,p] <= cap` (objective `cut`)
//!
//! Free placements have `x` themselves, `sum_p x[i,p] = 1`, and (on equal cores) actor i on one of the first i + 1. Minimised is T, T + L + sum s_e c_e, T, or sum bytes_e c_e.
//! Transfers are priced at the least distance: where cores are unequally far, the answer bounds.
//!
//! **B3** (streamblocks-partitioning): `d[i,p]`; B1 one core each; B3 restricted growth, as `d[j,p] <= sum_{i<j} d[i,p-1]`; B4 the last core is used;
//! B5 `l[c,p]`, B6 `x[c,p,q]` as ANDs; B7 load, B8 local transfers, B9 transfers across; minimise T + L + X. With their indicators (2) nothing else would be said.

use super::instance::Instance;
use super::placement::Objective;
use crate::solver::Milp;

/// A model and where its assignment stands.
#[derive(Debug, Clone)]
pub struct Model {
    /// The programme; its objective is in units of `unit`.
    pub milp: Milp,
    /// Seconds or bytes that its objective counts as one.
    pub unit: f64,
    /// Columns of each actor: prefixes in a chain, cores otherwise.
    columns: Vec<Vec<usize>>,
    prefix: bool,
    /// Columns that are the largest of sums: T and L.
    tops: Vec<usize>,
}

/// `x[i,p]` as terms.
fn on(model: &Model, k: usize, i: usize, p: usize, factor: f64) -> (Vec<(usize, f64)>, f64) {
    let columns = &model.columns[i];
    if !model.prefix {
        return (vec![(columns[p], factor)], 0.0);
    }
    let mut terms = Vec::with_capacity(2);
    let mut constant = 0.0;
    if p + 1 < k {
        terms.push((columns[p], factor))
    } else {
        constant += factor
    }
    if p > 0 {
        terms.push((columns[p - 1], -factor));
    }
    (terms, constant)
}

/// The formulation with prefix variables (or, without stages, core by core); `bound` seconds or bytes below which no placement is.
pub fn model(instance: &Instance, bound: f64, unit: f64) -> Model {
    let (n, k) = (instance.n, instance.k);
    let request = instance.request;
    let objective = request.objective;
    let mut model =
        Model { milp: Milp::default(), unit, columns: Vec::new(), prefix: request.acyclic, tops: Vec::new() };
    let weight = |ticks: u64| ticks as f64 / instance.rate / unit;
    let wire = instance.least_wire();
    for i in 0..n {
        let count = if model.prefix { k - 1 } else { k };
        let columns: Vec<usize> = (0..count)
            .map(|p| model.milp.binary(format!("{}_{i}_{p}", if model.prefix { 'y' } else { 'x' }), 0.0))
            .collect();
        let single = instance.alike()
            && !instance.pinned()
            && instance.cores.cores.iter().all(|c| c.memory == instance.cores.cores[0].memory)
            && instance.one_price();
        for (p, c) in columns.iter().enumerate() {
            let column = &mut model.milp.columns[*c];
            match request.pins[i] {
                Some(q) if model.prefix => (column.lower, column.upper) = if p >= q { (1.0, 1.0) } else { (0.0, 0.0) },
                Some(q) => (column.lower, column.upper) = if p == q { (1.0, 1.0) } else { (0.0, 0.0) },
                None if !model.prefix && single && p > i => column.upper = 0.0,
                None => {}
            }
        }
        model.columns.push(columns);
    }
    for i in 0..n {
        if model.prefix {
            for p in 1..k.saturating_sub(1) {
                let (this, before) = (model.columns[i][p], model.columns[i][p - 1]);
                model.milp.at_least(format!("P1_{i}_{p}"), vec![(this, 1.0), (before, -1.0)], 0.0);
            }
        } else {
            let terms = model.columns[i].iter().map(|c| (*c, 1.0)).collect();
            model.milp.equal(format!("P1_{i}"), terms, 1.0);
        }
    }
    if model.prefix {
        for (e, edge) in instance.edges.iter().enumerate().filter(|(_, e)| e.waits) {
            for p in 0..k.saturating_sub(1) {
                let (u, v) = (model.columns[edge.from][p], model.columns[edge.to][p]);
                model.milp.at_least(format!("P2_{e}_{p}"), vec![(u, 1.0), (v, -1.0)], 0.0);
            }
        }
    }
    let timed = objective != Objective::Cut;
    let bottleneck = timed.then(|| model.milp.continuous("T".into(), f64::INFINITY, 1.0));
    if let (Some(t), false) = (bottleneck, objective == Objective::Sum) {
        model.milp.columns[t].lower = bound / unit;
    } else if let Some(t) = bottleneck {
        model.milp.columns[t].lower = weight(instance.load_bound());
    }
    let cuts = matches!(objective, Objective::Cut | Objective::Sum);
    if cuts {
        for (e, edge) in instance.edges.iter().enumerate() {
            let price = if timed { edge.seconds(1.0, wire) } else { edge.bytes } / unit;
            if price == 0.0 {
                continue;
            }
            let c = model.milp.continuous(format!("c_{e}"), 1.0, price);
            for p in 0..if model.prefix && edge.waits { k - 1 } else { k } {
                let mut terms = vec![(c, 1.0)];
                let mut right = 0.0;
                if model.prefix && edge.waits {
                    terms.extend([(model.columns[edge.from][p], -1.0), (model.columns[edge.to][p], 1.0)]);
                } else {
                    let (from, a) = on(&model, k, edge.from, p, -1.0);
                    let (to, b) = on(&model, k, edge.to, p, 1.0);
                    terms.extend(from.into_iter().chain(to));
                    right -= a + b;
                }
                model.milp.at_least(format!("P4_{e}_{p}"), terms, right);
            }
        }
    }
    let local = instance.cores.local;
    let local_seconds = |e: &super::instance::Edge| e.seconds(1.0, local) / unit;
    let has_local = matches!(objective, Objective::Sum | Objective::PerCore)
        && instance.edges.iter().any(|e| local_seconds(e) > 0.0);
    let largest_local =
        (has_local && objective == Objective::Sum).then(|| model.milp.continuous("L".into(), f64::INFINITY, 1.0));
    model.tops = bottleneck.into_iter().chain(largest_local).collect();
    for p in 0..k {
        let mut load: Vec<(usize, f64)> = Vec::new();
        let mut memory: Vec<(usize, f64)> = Vec::new();
        let (mut load_constant, mut memory_constant) = (0.0, 0.0);
        let room = instance.cores.cores[p].memory;
        for i in 0..n {
            let (terms, constant) = on(&model, k, i, p, weight(instance.on(i, p)));
            load.extend(terms);
            load_constant += constant;
            if room.is_finite() {
                let (terms, constant) = on(&model, k, i, p, instance.bytes[i] / room);
                memory.extend(terms);
                memory_constant += constant;
            }
        }
        if has_local {
            let mut inside = Vec::new();
            for (e, edge) in instance.edges.iter().enumerate() {
                let l = model.milp.continuous(format!("l_{e}_{p}"), 1.0, 0.0);
                let (from, a) = on(&model, k, edge.from, p, -1.0);
                let (to, b) = on(&model, k, edge.to, p, -1.0);
                let terms = std::iter::once((l, 1.0)).chain(from).chain(to).collect();
                model.milp.at_least(format!("P6_{e}_{p}"), terms, -1.0 - a - b);
                inside.push((l, local_seconds(edge)));
            }
            match largest_local {
                Some(largest) => {
                    let terms = std::iter::once((largest, 1.0)).chain(inside.iter().map(|(l, s)| (*l, -s))).collect();
                    model.milp.at_least(format!("P6L_{p}"), terms, 0.0);
                }
                None => load.extend(inside),
            }
        }
        if let Some(t) = bottleneck {
            let terms = std::iter::once((t, 1.0)).chain(load.iter().map(|(c, a)| (*c, -a))).collect();
            model.milp.at_least(format!("P3_{p}"), terms, load_constant);
        }
        if objective == Objective::PerCore {
            let mut port = vec![(bottleneck.unwrap_or(0), 1.0)];
            for (e, edge) in instance.edges.iter().enumerate() {
                let seconds = edge.seconds(1.0, wire) / unit;
                if seconds == 0.0 {
                    continue;
                }
                let d = model.milp.continuous(format!("d_{e}_{p}"), 1.0, 0.0);
                for sign in [1.0, -1.0] {
                    let (from, a) = on(&model, k, edge.from, p, -sign);
                    let (to, b) = on(&model, k, edge.to, p, sign);
                    let terms = std::iter::once((d, 1.0)).chain(from).chain(to).collect();
                    model.milp.at_least(
                        format!("P5_{e}_{p}_{}", if sign > 0.0 { "out" } else { "in" }),
                        terms,
                        -(a + b),
                    );
                }
                port.push((d, -seconds));
            }
            model.milp.at_least(format!("P5T_{p}"), port, 0.0);
        }
        if room.is_finite() {
            model.milp.at_most(format!("P7_{p}"), memory, 1.0 - memory_constant);
        }
        if let Some(cap) = instance.cap {
            let scale = weight(cap).max(f64::MIN_POSITIVE);
            let terms = load.iter().map(|(c, a)| (*c, a / scale)).collect();
            model.milp.at_most(format!("P8_{p}"), terms, 1.0 - load_constant / scale);
        }
    }
    model
}

/// The formulation of streamblocks-partitioning, for comparison: free placements on equal cores at one price.
pub fn b3(instance: &Instance, unit: f64) -> Model {
    let (n, k) = (instance.n, instance.k);
    let mut model = Model { milp: Milp::default(), unit, columns: Vec::new(), prefix: false, tops: Vec::new() };
    let weight = |ticks: u64| ticks as f64 / instance.rate / unit;
    let (wire, local) = (instance.least_wire(), instance.cores.local);
    for i in 0..n {
        model.columns.push((0..k).map(|p| model.milp.binary(format!("d_{i}_{p}"), 0.0)).collect());
    }
    for j in 0..n {
        let terms = model.columns[j].iter().map(|c| (*c, 1.0)).collect();
        model.milp.equal(format!("B1_{j}"), terms, 1.0);
        for p in 1..k {
            let terms = (0..j).map(|i| (model.columns[i][p - 1], 1.0)).chain([(model.columns[j][p], -1.0)]).collect();
            model.milp.at_least(format!("B3_{j}_{p}"), terms, 0.0);
        }
    }
    if k <= n {
        let terms = (0..n).map(|i| (model.columns[i][k - 1], 1.0)).collect();
        model.milp.at_least("B4".into(), terms, 1.0);
    }
    let t = model.milp.continuous("Texec".into(), f64::INFINITY, 1.0);
    let l = model.milp.continuous("Tlc".into(), f64::INFINITY, 1.0);
    model.tops = vec![t, l];
    for p in 0..k {
        let load = (0..n).map(|i| (model.columns[i][p], -weight(instance.on(i, p))));
        let terms = std::iter::once((t, 1.0)).chain(load).collect();
        model.milp.at_least(format!("B7_{p}"), terms, 0.0);
        let mut inside = vec![(l, 1.0)];
        for (c, edge) in instance.edges.iter().enumerate() {
            let both = model.milp.continuous(format!("l_{c}_{p}"), 1.0, 0.0);
            let (s, u) = (model.columns[edge.from][p], model.columns[edge.to][p]);
            model.milp.at_least(format!("B5_{c}_{p}"), vec![(both, 1.0), (s, -1.0), (u, -1.0)], -1.0);
            inside.push((both, -edge.seconds(1.0, local) / unit));
            for q in (0..k).filter(|q| *q != p) {
                let price = edge.seconds(1.0, wire) / unit;
                let x = model.milp.continuous(format!("x_{c}_{p}_{q}"), 1.0, price);
                let u = model.columns[edge.to][q];
                model.milp.at_least(format!("B6_{c}_{p}_{q}"), vec![(x, 1.0), (s, -1.0), (u, -1.0)], -1.0);
            }
        }
        model.milp.at_least(format!("B8_{p}"), inside, 0.0);
    }
    model
}

impl Model {
    /// The core of each actor in a point.
    pub fn core_of(&self, values: &[f64], k: usize) -> Vec<usize> {
        let of = |columns: &Vec<usize>| {
            if self.prefix {
                columns.iter().filter(|c| values[**c] < 0.5).count()
            } else {
                let by = |a: &usize, b: &usize| values[columns[*a]].total_cmp(&values[columns[*b]]);
                (0..columns.len()).max_by(by).unwrap_or(0)
            }
        };
        self.columns.iter().map(|c| of(c).min(k - 1)).collect()
    }

    /// The point of an assignment, its continuous columns at the least values the rows allow; `None` if it breaks a row (a symmetric copy).
    pub fn point(&self, core_of: &[usize]) -> Option<Vec<f64>> {
        let mut values = vec![0.0; self.milp.columns.len()];
        for (i, columns) in self.columns.iter().enumerate() {
            for (p, c) in columns.iter().enumerate() {
                let there = if self.prefix { core_of[i] <= p } else { core_of[i] == p };
                values[*c] = f64::from(u8::from(there));
            }
        }
        self.milp.complete(&mut values);
        // T and L stand before what they are the largest of.
        for row in self.milp.rows.iter().filter(|r| !r.equal) {
            let Some((c, a)) = row.terms.iter().find(|(c, _)| self.tops.contains(c)) else { continue };
            let rest: f64 = row.terms.iter().filter(|(d, _)| d != c).map(|(d, b)| b * values[*d]).sum();
            values[*c] = values[*c].max((row.right - rest) / a);
        }
        self.milp.broken(&values).is_none().then_some(values)
    }
}
