//! What strategies spend on the links: the collectives that follow from one, the conversions between two, in seconds and in joules, and
//! the least of both over a set.

use super::relaxed::{Open, Relaxation, least};
use crate::graph::{Axis, CollectiveKind, Kernel, Tensor, Use};
use crate::model::Strategy;
use crate::model::collective;
use crate::model::compute::{Tiling, gradient_bytes, local};
use crate::model::energy;
use crate::model::layout::{Layout, conversion, produced};
use crate::system::options::{Charge, Fanout, GradientReduction, Layouts};

impl Relaxation<'_> {
    /// Whether joules of the links count in the objective, and some of the tensor-parallel group's or the replicas' cost any.
    pub fn counts_links(&self) -> bool {
        let groups = [&self.degrees.tp_group, &self.degrees.dp_group];
        self.rates.link_j > 0.0 && groups.into_iter().flatten().any(|d| d.byte_j > 0.0)
    }

    /// What kernels count in the objective wherever they run, beside arithmetic and DRAM traffic: FLOP, and joules of links.
    pub(super) fn least_use(&self, open: &Open, tiles: u64) -> f64 {
        let mut value = 0.0;
        if self.rates.flop > 0.0 {
            let of = |k: usize| least(&open[k], |s| self.search.kernel_flop(k, self.degrees, s, tiles));
            value += self.rates.flop * (0..open.len()).map(of).sum::<f64>();
        }
        if self.rates.link_j > 0.0 {
            let own = |k: usize| least(&open[k], |s| self.own_joules(self.kernel(k), s, tiles));
            let joules = |tensor: &Tensor, made, wanted| self.convert_j(tensor, made, wanted, tiles);
            let converted = if self.counts_links() { self.conversions(open, &joules) } else { Vec::new() };
            value += self.rates.link_j * ((0..open.len()).map(own).sum::<f64>() + converted.iter().sum::<f64>());
        }
        value
    }

    /// What a kernel with a strategy counts so: its FLOP, and the joules of its own collectives.
    pub(super) fn own_use(&self, k: usize, s: Strategy, tiles: u64) -> f64 {
        let flop = if self.rates.flop > 0.0 { self.search.kernel_flop(k, self.degrees, s, tiles) } else { 0.0 };
        let joules = if self.rates.link_j > 0.0 { self.own_joules(self.kernel(k), s, tiles) } else { 0.0 };
        self.rates.flop * flop + self.rates.link_j * joules
    }

    /// Bytes that partial sums of a kernel's result are reduced over in its group, and those that its gradient is over in each pass.
    fn reduced(&self, kernel: &Kernel, s: Strategy, tiles: u64) -> (Option<f64>, Option<f64>) {
        let (w, options, t) = (self.search.workload, &self.search.system.model, self.degrees.tp);
        let partial = (options.layouts == Layouts::Dfmodel && s == Strategy::K).then(|| {
            let here = local(kernel, s, t, Tiling::new(tiles, options));
            let tiles = if kernel.tiled == Axis::K { 1.0 } else { here.tiles as f64 };
            here.rows as f64 * here.n as f64 * kernel.word_or(w.word_bytes) * tiles * self.samples
        });
        let each_pass = w.training && options.gradient_reduction == GradientReduction::PerMicrobatch;
        let gradient = each_pass.then(|| gradient_bytes(kernel, s, t, w.word_bytes) / self.passes);
        (partial, gradient)
    }

    /// Seconds of collectives that follow from a kernel's own strategy.
    pub(super) fn own_network(&self, kernel: &Kernel, s: Strategy, tiles: u64) -> f64 {
        let options = &self.search.system.model;
        let (partial, gradient) = self.reduced(kernel, s, tiles);
        let mut seconds = 0.0;
        if let Some(bytes) = partial {
            seconds += collective::seconds(CollectiveKind::AllReduce, &self.degrees.tp_group, bytes, options);
        }
        if let Some(bytes) = gradient {
            seconds += collective::gradient_seconds(&self.degrees.dp_group, bytes, options);
        }
        seconds
    }

    /// Joules of links of a kernel's own collectives, and of those that follow from its strategy.
    fn own_joules(&self, kernel: &Kernel, s: Strategy, tiles: u64) -> f64 {
        let (partial, gradient) = self.reduced(kernel, s, tiles);
        let of = |bytes: Option<f64>, group| {
            bytes.map_or(0.0, |bytes| energy::collective_j(CollectiveKind::AllReduce, group, bytes))
        };
        energy::own_j(kernel, &self.degrees.own, self.samples)
            + of(partial, &self.degrees.tp_group)
            + of(gradient, &self.degrees.dp_group)
    }

    /// The collective that brings a tensor from the layout in which `made` leaves it to one that a reader wants, and its bytes: none
    /// where it lies so already, an error where that cannot be.
    fn conversion(
        &self,
        tensor: &Tensor,
        (made, wanted): (Layout, Layout),
        tiles: u64,
    ) -> Result<Option<(CollectiveKind, f64)>, ()> {
        let kind = conversion(made, wanted).map_err(|_| ())?;
        Ok(kind.map(|kind| {
            let full = tensor.bytes(self.search.workload.word_bytes);
            let bytes = match (self.layouts(), kind) {
                (Layouts::Dfmodel, _) | (_, CollectiveKind::AllToAll) => self.bytes(tensor, made, tiles).0,
                _ => full,
            };
            (kind, bytes * self.samples)
        }))
    }

    /// Seconds of a conversion; infinite where it cannot be.
    pub(super) fn convert(&self, tensor: &Tensor, made: Layout, wanted: Layout, tiles: u64) -> f64 {
        match self.conversion(tensor, (made, wanted), tiles) {
            Ok(None) => 0.0,
            Ok(Some((kind, bytes))) => {
                collective::seconds(kind, &self.degrees.tp_group, bytes, &self.search.system.model)
            }
            Err(()) => f64::INFINITY,
        }
    }

    /// Joules of links of a conversion; infinite where it cannot be.
    pub(super) fn convert_j(&self, tensor: &Tensor, made: Layout, wanted: Layout, tiles: u64) -> f64 {
        match self.conversion(tensor, (made, wanted), tiles) {
            Ok(None) => 0.0,
            Ok(Some((kind, bytes))) => energy::collective_j(kind, &self.degrees.tp_group, bytes),
            Err(()) => f64::INFINITY,
        }
    }

    /// What conversions cost that each kernel cannot avoid paying, in the unit of `convert`.
    pub(super) fn conversions(&self, open: &Open, convert: &dyn Fn(&Tensor, Layout, Layout) -> f64) -> Vec<f64> {
        let (w, options) = (self.search.workload, &self.search.system.model);
        let shared = options.tensor_fanout == Fanout::Shared;
        let mut seconds = vec![0.0; w.kernels.len()];
        for (id, tensor) in w.tensors.iter().enumerate() {
            let Some(p) = tensor.producer else { continue };
            let carried = self.next[id].iter().flat_map(|c| &w.tensors[*c].consumers);
            let carried = carried.filter(|_| options.boundary_tensors == Charge::Charged);
            let here: Vec<&Use> =
                tensor.consumers.iter().filter(|u| self.same_phase(p, u.kernel)).chain(carried).collect();
            let of_reader =
                |made: Layout, u: &Use| least(&open[u.kernel], |b| convert(tensor, made, self.wanted(u, b)));
            let paid = least(&open[p], |a| {
                let made = produced(a, options.layouts);
                if !shared {
                    return here.iter().map(|u| of_reader(made, u)).sum();
                }
                // Readers that have no choice: each layout once. Of the others, the dearest.
                let mut fixed: Vec<Layout> = Vec::new();
                let mut dearest: f64 = 0.0;
                for u in &here {
                    match open[u.kernel].as_slice() {
                        [one] => fixed.push(self.wanted(u, *one)),
                        _ => dearest = dearest.max(of_reader(made, u)),
                    }
                }
                fixed.sort_unstable();
                fixed.dedup();
                let sum: f64 = fixed.iter().map(|to| convert(tensor, made, *to)).sum();
                sum.max(dearest)
            });
            if paid.is_finite() {
                seconds[p] += paid;
            }
            // In another phase the first reader pays for its layout whatever the others want.
            let others = tensor.consumers.iter().filter(|u| !self.same_phase(p, u.kernel));
            for u in others.take(if shared { 1 } else { usize::MAX }) {
                let paid = least(&open[p], |a| of_reader(produced(a, options.layouts), u));
                if paid.is_finite() {
                    seconds[u.kernel] += paid;
                }
            }
        }
        seconds
    }
}
