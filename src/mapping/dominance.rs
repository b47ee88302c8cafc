//! When one fusion problem makes another needless.

use super::instance::{Compute, Instance};

/// Whether `a` costs no more than `b` in every term and needs no more SRAM: then its optimum is no worse.
pub fn dominates(a: &Instance, b: &Instance) -> bool {
    let no_more = |x: f64, y: f64| x <= y * (1.0 + 1e-12);
    no_more(a.base_sram_bytes, b.base_sram_bytes)
        && no_more(a.goal.constant, b.goal.constant)
        && a.kernels.iter().zip(&b.kernels).all(|(x, y)| {
            let compute = match (&x.compute, &y.compute) {
                (Compute::Seconds(x), Compute::Seconds(y)) => no_more(*x, *y),
                _ => false,
            };
            compute
                && no_more(x.network_s, y.network_s)
                && no_more(x.serial_s, y.serial_s)
                && no_more(x.resident_bytes, y.resident_bytes)
                && no_more(x.dram_bytes, y.dram_bytes)
                && x.pieces <= y.pieces
        })
        && a.tensors.iter().zip(&b.tensors).all(|(x, y)| {
            no_more(x.store_bytes, y.store_bytes)
                && no_more(x.store_buffer, y.store_buffer)
                && no_more(x.live_bytes, y.live_bytes)
                && x.uses.iter().zip(&y.uses).all(|(x, y)| {
                    no_more(x.load_bytes, y.load_bytes)
                        && no_more(x.load_buffer, y.load_buffer)
                        && no_more(x.onchip_buffer, y.onchip_buffer)
                        && no_more(x.lag, y.lag)
                })
        })
}

/// Whether two instances differ in SRAM alone, and in how long pipelines fill.
pub fn same_costs(a: &Instance, b: &Instance) -> bool {
    let same = |x: f64, y: f64| (x - y).abs() <= 1e-12 * x.abs().max(y.abs());
    let constant = same(a.goal.constant, b.goal.constant);
    constant
        && a.kernels.iter().zip(&b.kernels).all(|(x, y)| {
            same(x.dram_bytes, y.dram_bytes)
                && same(x.network_s, y.network_s)
                && x.compute == y.compute
                && x.pieces == y.pieces
        })
        && a.tensors.iter().zip(&b.tensors).all(|(x, y)| same(x.store_bytes, y.store_bytes))
}
