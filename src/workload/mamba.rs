//! Mamba: a selective state-space model (Gu and Dao 2023, arXiv 2312.00752), forward over whole sequences or token by
//! token.
//!
//! Let h be the hidden size, e = expand h the channels, N the states of a channel, R the rank of the step size, w the
//! taps of the convolution, S the tokens. Weight GEMMs (rows, contracted, columns): IN_X, IN_Z (e, h, S); DT_LOW (R, e, S);
//! BC (2N, e, S); DT (e, R, S); OUT (h, e, S). Along the tokens, each channel by itself: the convolution, 2w FLOP an element
//! and one of the activation, and the scan h_t = a_t h_(t-1) + b_t with a = exp(dt A), b = dt x B, and y = C h + D x.
//!
//! FLOP of the scan, for each channel and token: for each state 2 (dt A, exp), 1 (dt x times B), 2 (C h), and the recurrence;
//! besides 4 (softplus of dt, dt x, D x + y). The recurrence takes 2 where it runs token after token. In a parallel scan, r
//! tokens at a time stand side by side and pairs (a, b) are combined with 3 FLOP: Hillis-Steele (Comm. ACM 1986) combines
//! log2 r times an element, Blelloch (IEEE ToC 1989) twice, and either once more for what the r tokens before hand over.
//!
//! Cycles (chips whose efficiency is `lanes_stages`): a multiply-add, or any other operation, of a lane is one pass. A step of
//! a parallel scan is one pass for each of the two parts of a pair, unless a unit that lets lanes exchange operands
//! (`scan_unit`) does all steps of r tokens at once. The sequential scan has e lanes to fill, the parallel one e r.
//!
//! Not in the graph: embedding, head, biases, the weights of the convolution (e w), A and D (e N + e).
//!
//! `graph: dfmodel` is DFModel's graph (fengqian-ayce/DFModel, `generator/generate_Mamba_*.py`): projections of h to h, no
//! states, the tokens on the lanes and the h channels one after another, a kernel for every step of the scan. The
//! tensors between those kernels are counted as one channel, as there.

use super::builder::Builder;
use crate::graph::{Op, Phase, Slot, Workload};
use crate::spec::{Node, Reader};
use crate::units::Bytes;

crate::choice! {
    /// The word `mamba`.
    pub enum Kind ("a kind of workload") {
        /// A selective state-space model.
        Mamba = "mamba",
    }
}

crate::choice! {
    /// How the recurrence along the tokens is computed.
    pub enum Scan ("a scan") {
        /// Token after token.
        Sequential = "sequential",
        /// `radix` tokens side by side, each step combining all of them (Hillis-Steele).
        HillisSteele = "hillis_steele",
        /// `radix` tokens side by side, in a tree up and down (Blelloch).
        Blelloch = "blelloch",
    }
}

crate::choice! {
    /// Which graph stands for a layer.
    pub enum Graph ("a graph of a layer") {
        /// The layer as published.
        Mamba = "mamba",
        /// DFModel's: no states, tokens on lanes, a kernel a step.
        Dfmodel = "dfmodel",
    }
}

crate::choice! {
    /// What is computed.
    pub enum Pass ("a pass") {
        /// Whole sequences.
        Forward = "forward",
        /// `seq` new tokens, from states that lie in DRAM: generation.
        Decode = "decode",
    }
}

crate::spec! {
    /// A Mamba model: identical layers of projections, a convolution and a selective scan.
    pub struct MambaSpec ("a Mamba model", check: check) {
        /// The word `mamba`.
        kind: Kind,
        /// Name for rows and titles.
        name: String,
        /// Where the sizes come from.
        source: String,
        /// Hidden size.
        hidden: u64,
        /// Channels of the scan, in hidden sizes.
        expand: u64 = 2,
        /// States of a channel.
        state: u64 = 16,
        /// Taps of the convolution.
        conv: u64 = 4,
        /// Rank of the step size; left out: hidden / 16, rounded up.
        dt_rank: Option<u64>,
        /// Tokens of one sample; in decode, new ones.
        seq: u64,
        /// Layers.
        layers: u64,
        /// Bytes of one element of weights, activations and states.
        word: Bytes = Bytes(2.0),
        /// What is computed.
        pass: Pass = Pass::Forward,
        /// How the recurrence is computed. Decode runs it sequentially.
        scan: Scan = Scan::Sequential,
        /// Tokens that a parallel scan has side by side, a power of two. In DFModel's graph: tokens that one step combines.
        radix: u64 = 2,
        /// Whether a chip does all steps of a parallel scan over `radix` tokens in one pass.
        scan_unit: bool = false,
        /// Which graph stands for a layer. `dfmodel` uses hidden, seq and the scan alone.
        graph: Graph = Graph::Mamba,
        /// Samples of one iteration.
        global_batch: u64,
        /// Samples of one microbatch.
        micro_batch: u64 = 1,
    }
}

fn check(spec: &MambaSpec, node: &Node, reader: &mut Reader) {
    super::spec::check_batches(spec.global_batch, spec.micro_batch, spec.word, node, reader);
    let mut say = |field: &str, message: String| {
        let at = node.get(field).unwrap_or(node).clone();
        reader.within(field, |r| r.problem(&at, message));
    };
    for (field, value, most) in [
        ("hidden", spec.hidden, 1u64 << 24),
        ("expand", spec.expand, 1 << 8),
        ("state", spec.state, 1 << 16),
        ("conv", spec.conv, 1 << 16),
        ("dt_rank", spec.dt_rank.unwrap_or(1), 1 << 24),
        ("seq", spec.seq, 1 << 26),
        ("layers", spec.layers, 1 << 20),
    ] {
        if value > most {
            say(field, format!("expected at most {most}, found {value}"));
        }
    }
    if spec.scan != Scan::Sequential && (!spec.radix.is_power_of_two() || !(2..=spec.seq).contains(&spec.radix)) {
        say("radix", format!("expected a power of two of at least 2 and at most seq, found {}", spec.radix));
    }
    if spec.pass == Pass::Decode && (spec.scan != Scan::Sequential || spec.graph != Graph::Mamba) {
        say("pass", "decode runs the published graph with the sequential scan".into());
    }
    if spec.scan_unit && spec.scan == Scan::Sequential {
        say("scan_unit", "is for the parallel scans".into());
    }
}

impl MambaSpec {
    /// The workload: one layer, repeated.
    pub fn build(&self) -> Workload {
        let b = match self.graph {
            Graph::Mamba => self.published(),
            Graph::Dfmodel => self.dfmodel(),
        };
        b.repeated(&self.name, self.layers, self.word, (self.global_batch, self.micro_batch), false, self.seq)
    }

    fn log2_radix(&self) -> u64 {
        u64::from(self.radix.max(2).ilog2())
    }

    /// FLOP and passes of one element of the recurrence (one state, one token).
    fn recurrence(&self) -> (f64, u64) {
        let steps = self.log2_radix();
        match self.scan {
            Scan::Sequential => (2.0, 1),
            Scan::HillisSteele => (3.0 * (steps + 1) as f64, 2 * (if self.scan_unit { 1 } else { steps } + 1)),
            Scan::Blelloch => (9.0, 2 * (if self.scan_unit { 2 } else { 2 * steps } + 1)),
        }
    }

    fn published(&self) -> Builder {
        use Op::{Elementwise, GemmWeight, Norm};
        use Phase::Forward;
        use Slot::{Data, Reshaped, Rhs, Shared};
        let (h, s, n) = (self.hidden, self.seq, self.state);
        let e = self.expand * h;
        let rank = self.dt_rank.unwrap_or(h.div_ceil(16));
        let elements = e as f64 * s as f64;
        let mut b = Builder::default();
        let norm = b.add("NORM", Norm, Forward, (1, h, 1, s), &[]);
        let x = b.add("IN_X", GemmWeight, Forward, (1, e, h, s), &[(norm, Rhs)]);
        let z = b.add("IN_Z", GemmWeight, Forward, (1, e, h, s), &[(norm, Rhs)]);
        let conv = b.add("CONV", Elementwise, Forward, (e, 1, 1, s), &[(x, Data)]);
        b.work(conv, elements * (2 * self.conv + 1) as f64, self.conv + 1);
        let low = b.add("DT_LOW", GemmWeight, Forward, (1, rank, e, s), &[(conv, Rhs)]);
        let bc = b.add("BC", GemmWeight, Forward, (1, 2 * n, e, s), &[(conv, Rhs)]);
        let dt = b.add("DT", GemmWeight, Forward, (1, e, rank, s), &[(low, Rhs)]);
        let (flop, passes) = self.recurrence();
        let together = if self.scan == Scan::Sequential { 1 } else { self.radix };
        // Side by side on the lanes, the tokens of a channel are rows, and all must be at hand in that order.
        let slot = if together == 1 { Data } else { Reshaped };
        let shape = (e, together, 1, s.div_ceil(together));
        let scan = b.add("SCAN", Elementwise, Forward, shape, &[(conv, slot), (dt, slot), (bc, Shared)]);
        b.work(scan, elements * (n as f64 * (5.0 + flop) + 4.0), n * (4 + passes) + 3);
        let gate = b.add("GATE", Elementwise, Forward, (1, e, 1, s), &[(scan, slot), (z, Data)]);
        b.work(gate, elements * 2.0, 2);
        let out = b.add("OUT", GemmWeight, Forward, (1, h, e, s), &[(gate, Rhs)]);
        let add = b.add("ADD", Elementwise, Forward, (1, h, 1, s), &[(out, Data)]);
        b.carry("layer.in", add, &[(norm, Data), (add, Data)]);
        if self.pass == Pass::Decode {
            // The states, and the last inputs of the convolution, are read, renewed and kept.
            for (kernel, words) in [(scan, e * n), (conv, e * (self.conv - 1))] {
                b.kernels[kernel].cache_bytes = words as f64 * self.word.0;
                b.kernels[kernel].extra_dram_bytes = 2.0 * words as f64 * self.word.0;
            }
        }
        b
    }

    fn dfmodel(&self) -> Builder {
        use Op::{Elementwise, GemmWeight, Opaque};
        use Phase::Forward;
        use Slot::{Data, Reshaped, Rhs};
        let (h, s) = (self.hidden, self.seq);
        let elements = h as f64 * s as f64;
        let mut b = Builder::default();
        let proj1 = b.add("Proj1", GemmWeight, Forward, (1, h, h, s), &[]);
        let proj2 = b.add("Proj2", GemmWeight, Forward, (1, h, h, s), &[]);
        let conv = b.add("Conv", Opaque, Forward, (1, s, 1, 1), &[(proj1, Reshaped)]);
        b.work(conv, 2.0 * elements, h);
        let steps = self.log2_radix();
        let mut last = conv;
        if self.scan == Scan::Sequential {
            last = b.add("Scan", Opaque, Forward, (1, 1, 1, s), &[(conv, Reshaped)]);
            b.work(last, elements, h);
        } else {
            let k = if self.scan == Scan::Blelloch { 2 } else { steps };
            let levels = u64::from(s.next_power_of_two().ilog2());
            for stage in 0..levels.div_ceil(steps) {
                last = b.add(format!("Scan_stage_{stage}"), Opaque, Forward, (1, s, 1, 1), &[(last, Data)]);
                b.work(last, 2.0 * k as f64 * elements, if self.scan_unit { h } else { h * k });
            }
        }
        let multiply = b.add("Multiply", Elementwise, Forward, (1, s, 1, h), &[(last, Reshaped), (proj2, Reshaped)]);
        let proj3 = b.add("Proj3", GemmWeight, Forward, (1, h, h, s), &[(multiply, Reshaped)]);
        b.carry("layer.in", proj3, &[(proj1, Rhs), (proj2, Rhs)]);
        b
    }
}

#[cfg(test)]
mod tests {
    use crate::graph::{Kernel, Workload};
    use crate::spec::Node;
    use crate::workload::WorkloadSpec;

    fn read(more: &str) -> Workload {
        let text = format!("{{kind: mamba, name: m, source: 'a test', layers: 1, global_batch: 1, {more}}}");
        WorkloadSpec::build(&Node::parse("test", &text).unwrap()).unwrap_or_else(|e| panic!("{e}"))
    }

    fn kernel<'a>(w: &'a Workload, name: &str) -> &'a Kernel {
        &w.kernels[w.kernel_index(name).unwrap()]
    }

    /// Mamba 2.8B by hand (h 2560, e 5120, N 16, R 160, 64 layers): a layer has 2 x 5120 x 2560 + 160 x 5120 + 32 x 5120 +
    /// 5120 x 160 + 2560 x 5120 = 41,123,840 weights in GEMMs; 64 of them 2.632e9. With the embedding of 50,280 x 2560
    /// tokens that is 2.761e9, the 2.8B of its name (biases, A, D, convolution and norms: 0.3 %).
    #[test]
    fn weights_by_hand() {
        let w = read("hidden: 2560, seq: 2048");
        let weights: f64 = w.kernels.iter().map(Kernel::weight_elements).sum();
        assert_eq!(weights, 41_123_840.0);
        let all = 64.0 * weights + 50_280.0 * 2560.0;
        assert!((all / 2.8e9 - 1.0).abs() < 0.02, "{all}");
    }

    /// By hand: 4 channels, 2 states, 8 tokens. Sequential: 32 (2 x 7 + 4) = 576 FLOP, 2 x 5 + 3 passes. Hillis-Steele over 8
    /// tokens: a state costs 5 + 3 (3 + 1) = 17, so 32 (34 + 4) = 1216; passes 2 (4 + 2 x 4) + 3 = 27, with a unit 2 (4 + 4) + 3.
    /// Blelloch: 5 + 9 = 14, so 32 (28 + 4) = 1024; passes 2 (4 + 2 x 7) + 3 = 39.
    #[test]
    fn scans_by_hand() {
        let base = "hidden: 4, expand: 1, state: 2, seq: 8";
        for (more, flop, passes, rows, cols) in [
            ("scan: sequential", 576.0, 13, 4, 8),
            ("scan: hillis_steele, radix: 8", 1216.0, 27, 32, 1),
            ("scan: hillis_steele, radix: 8, scan_unit: true", 1216.0, 19, 32, 1),
            ("scan: blelloch, radix: 8", 1024.0, 39, 32, 1),
        ] {
            let w = read(&format!("{base}, {more}"));
            let scan = kernel(&w, "SCAN");
            assert_eq!((scan.flop(), scan.passes), (flop, passes), "{more}");
            assert_eq!((scan.shape.rows(), scan.shape.n), (rows, cols), "{more}");
        }
        let w = read(base);
        // 32 elements: 2 x 4 taps and the activation.
        assert_eq!(kernel(&w, "CONV").flop(), 32.0 * 9.0);
    }

    /// By hand: a token of decode reads and writes 4 x 2 states and 4 x 3 inputs of the convolution, of two bytes.
    #[test]
    fn decode_keeps_states_in_dram() {
        let w = read("hidden: 4, expand: 1, state: 2, seq: 1, pass: decode");
        assert_eq!(kernel(&w, "SCAN").extra_dram_bytes, 32.0);
        assert_eq!(kernel(&w, "CONV").extra_dram_bytes, 48.0);
        let kept: f64 = w.kernels.iter().map(|k| k.cache_bytes).sum();
        assert_eq!(kept, 40.0);
    }

    /// Printed FLOP, kernels and edges of DFModel's stored runs
    /// SSM/Mamba/{serialscan,parallelscan_wo_hw,hsscan_w_hw,bscan_w_hw}/1M_RDU (fengqian-ayce/DFModel, f9cda5e3787e).
    #[test]
    fn dfmodels_graphs_have_their_flop() {
        for (scan, flop, kernels, edges) in [
            ("scan: sequential", 6_576_668_672.0, 6, 5),
            ("scan: hillis_steele", 7_885_291_520.0, 25, 24),
            ("scan: hillis_steele, radix: 32, scan_unit: true", 7_885_291_520.0, 9, 8),
            ("scan: blelloch, radix: 32, scan_unit: true", 7_079_985_152.0, 9, 8),
        ] {
            let w = read(&format!("graph: dfmodel, hidden: 32, seq: 1048576, {scan}"));
            assert_eq!((w.kernels.len(), w.edges()), (kernels, edges), "{scan}");
            assert_eq!(w.flop_per_iteration(), flop, "{scan}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (more, word) in [
            ("scan: blelloch, radix: 3", "radix"),
            ("scan: blelloch, radix: 64", "radix"),
            ("scan_unit: true", "scan_unit"),
            ("pass: decode, graph: dfmodel", "pass"),
            ("state: 99999999", "state"),
        ] {
            let text =
                format!("{{kind: mamba, name: m, source: s, hidden: 8, seq: 32, layers: 1, global_batch: 1, {more}}}");
            let error = WorkloadSpec::build(&Node::parse("test", &text).unwrap()).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
