//! Seconds of one kernel that is called by itself: what microbenchmarks measure.
//!
//! An operator of a framework that is called and waited for costs the host [`Stack::operators`](crate::system::Stack) of its name, then its kernel
//! runs. Two inputs of a softmax or a layer norm are read (once for the sums, once to use them) and one is written: 3 passes over
//! its tensor; functions take 2.

use crate::execution::inference::Server;
use crate::model::attention_kernel::{FusedAttentionWork, FusedKernel};
use crate::model::kernel_time::Product;
use crate::system::System;
use crate::workload::language::DataType;

/// A chip that single kernels are timed on.
#[derive(Debug, Clone)]
pub struct Bench {
    server: Server,
    batched_efficiency: f64,
    launch: f64,
    peaks: Vec<(String, f64)>,
    attention: Vec<(String, FusedKernel)>,
}

/// An operator of a framework.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operator {
    /// A matrix product.
    Matmul(Product),
    /// The same with elements stored in so many bytes; which of left operand, right operand and result are in memory, the others on chip.
    Stored(Product, f64, [bool; 3]),
    /// A batch of matrix products of attention.
    Batched(Product),
    /// A softmax over so many numbers.
    Softmax(f64),
    /// A layer norm over so many numbers.
    LayerNorm(f64),
    /// A function of so many numbers.
    Function(f64),
}

impl Bench {
    /// Of a system whose chip has `kernels`.
    ///
    /// # Errors
    /// As [`Server::new`].
    pub fn new(system: &System) -> Result<Self, String> {
        let server = Server::new(system)?;
        let Some(kernels) = &system.chip.0.kernels else {
            return Err(format!("chip {}: single kernels need a section `kernels`", system.chip.0.name));
        };
        Ok(Self {
            server,
            batched_efficiency: kernels.burst_of("").batched_efficiency.0,
            launch: kernels.launch.0,
            peaks: kernels.peak.0.iter().map(|(word, rate)| (word.clone(), rate.0)).collect(),
            attention: kernels.fused_attention.0.iter().map(|(n, k)| (n.clone(), FusedKernel::new(k))).collect(),
        })
    }

    /// The same, of kernels as a profiler records them: without the way from one to the next.
    pub fn profiled(self, system: &System) -> Self {
        let start = system.chip.0.kernels.as_ref().map_or(self.launch, |kernels| kernels.start.0);
        Self { launch: self.launch.min(start), ..self }
    }

    /// The same where words of 32 bits are multiplied with all their bits.
    pub fn exact(mut self) -> Self {
        let of = |peaks: &[(String, f64)], name: &str| peaks.iter().position(|(word, _)| word == name);
        if let (Some(rounded), Some(exact)) = (of(&self.peaks, "fp32"), of(&self.peaks, "fp32_ieee")) {
            self.peaks[rounded].1 = self.peaks[exact].1;
        }
        self
    }

    /// The peak for a type; 16-bit types stand for each other.
    fn peak(&self, precision: DataType) -> Result<f64, String> {
        self.peak_and_product(precision).map(|(peak, _)| peak)
    }

    /// The same, and FLOP/s of the best product.
    fn peak_and_product(&self, precision: DataType) -> Result<(f64, f64), String> {
        let of = |t: DataType| {
            let found = self.peaks.iter().find(|(w, _)| w == t.word());
            found.map(|(_, rate)| (*rate, rate * self.server.efficiency(t)))
        };
        let other = match precision {
            DataType::Bf16 => DataType::Fp16,
            DataType::Fp16 => DataType::Bf16,
            _ => precision,
        };
        of(precision)
            .or_else(|| of(other))
            .ok_or_else(|| format!("{}: the chip states no peak for {precision}", self.server.machine.name))
    }

    fn host(&self, name: &str) -> f64 {
        let operators = self.server.machine.stack.operators.as_ref();
        operators.and_then(|t| t.0.iter().find(|(word, _)| word == name)).map_or(0.0, |(_, s)| s.0)
    }

    /// Seconds of a product on the device alone.
    ///
    /// # Errors
    /// The chip states no peak for the type.
    pub fn product(&self, product: &Product, precision: DataType) -> Result<f64, String> {
        // Results have at least 16 bits.
        let words = [precision.bytes(), precision.bytes(), precision.bytes().max(2.0)];
        self.product_of(product, precision, words, precision.bytes())
    }

    /// The same of operands and result that move so many bytes an element, of `word` bytes where they are unpacked.
    fn product_of(&self, p: &Product, precision: DataType, words: [f64; 3], word: f64) -> Result<f64, String> {
        let (_, rate) = self.peak_and_product(precision)?;
        let kernels = &self.server.kernels;
        Ok(kernels.product(p, kernels.fed(rate, word), words) + self.launch)
    }

    /// Host and device of an operator that is called by itself.
    fn called(&self, name: &str, device: f64) -> f64 {
        if self.server.machine.stack.operators_queued { self.host(name).max(device) } else { self.host(name) + device }
    }

    /// FLOP/s of the fastest product: of the shape, or of one so large that nothing but the best tile counts.
    ///
    /// # Errors
    /// The chip states no peak for the type.
    pub fn best_product(&self, precision: DataType, shape: Option<(u64, u64, u64)>) -> Result<f64, String> {
        match shape {
            Some((m, n, k)) => {
                let product = Product { batch: 1.0, m: m as f64, n: n as f64, k: k as f64 };
                Ok(product.flop() / self.product(&product, precision)?)
            }
            None => self.peak_and_product(precision).map(|(_, rate)| rate),
        }
    }

    /// Seconds of an operator that is called and waited for.
    ///
    /// # Errors
    /// The chip states no peak for the type.
    pub fn operator(&self, operator: &Operator, precision: DataType) -> Result<f64, String> {
        let vector = |passes: f64, numbers: f64| {
            self.server.kernels.vector(passes * numbers * precision.bytes(), 0.0) + self.launch
        };
        Ok(match operator {
            Operator::Matmul(p) => self.called("matmul", self.product(p, precision)?),
            Operator::Stored(p, word, in_memory) => {
                let words = in_memory.map(|moved| if moved { *word } else { 0.0 });
                self.called("matmul", self.product_of(p, precision, words, *word)?)
            }
            Operator::Batched(p) => {
                let rate = self.peak(precision)? * self.batched_efficiency;
                self.host("matmul") + self.server.kernels.product(p, rate, [precision.bytes(); 3]) + self.launch
            }
            Operator::Softmax(n) => self.host("softmax") + vector(3.0, *n),
            Operator::LayerNorm(n) => self.host("layernorm") + vector(3.0, *n),
            Operator::Function(n) => self.host("gelu") + vector(2.0, *n),
        })
    }

    /// Seconds of attention in one kernel, forward or backward, in any order or in one: the kernel of that name, or the chip's first.
    ///
    /// # Errors
    /// The chip states no such kernel, or no peak for the type.
    pub fn attention(
        &self,
        work: &FusedAttentionWork,
        (backward, ordered): (bool, bool),
        precision: DataType,
        name: Option<&str>,
    ) -> Result<f64, String> {
        let chip = &self.server.machine.name;
        let peak = self.peak(precision)?;
        let found = self.attention.iter().find(|(known, _)| name.is_none_or(|name| name == known));
        let (_, kernel) = found.ok_or_else(|| format!("{chip}: no attention kernel {}", name.unwrap_or("at all")))?;
        let kernel = &if ordered { kernel.in_order() } else { *kernel };
        let times = &self.server.kernels;
        let cost = if backward { work.backward(kernel, times, peak) } else { work.forward(kernel, times, peak) };
        Ok(self.host("attention") + cost.seconds + self.launch)
    }

    /// Seconds of an all-reduce of `bytes` among `chips` neighbours.
    pub fn all_reduce(&self, chips: u64, bytes: f64) -> f64 {
        self.server.all_reduce(super::machine::Peers::alone(chips, 1), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Node;

    /// A chip of 1 GFLOP/s and 8 B/s of which half is reached, 2 s a launch; operators of 10 to 13 s.
    fn system() -> System {
        let text = "{name: tiny, source: 'assumed: test', network: {topology: switch, dimensions: [{size: 4, link: \
            {name: l, source: 'assumed: test', bandwidth: 4 B/s, latency: 0.5 s, price: $1/(GB/s), power: 1 W/(GB/s)}}]}, \
            memory: {name: m, source: 'assumed: test', bandwidth: 8 B/s, price: $1/(GB/s), power: 1 W/(GB/s)}, \
            chip: {name: c, source: 'assumed: test', style: kernel_by_kernel, cores: 1, lanes: 1, stages: 1, frequency: 1 GHz, \
            sram: 1 MB, price: $1, power: 1 W, kernels: {source: 'assumed: test', peak: {fp16: 1 GFLOP/s, fp8: 2 GFLOP/s}, \
            units: 1, tiles: [{rows: 1, columns: 1}], efficiency: 0.5, batched_efficiency: 0.5, memory_efficiency: 0.25, launch: 2 s, \
            burst: {efficiency: 0.8, batched_efficiency: 0.4, memory_efficiency: 0.5}}}, \
            stack: {name: s, source: 'assumed: test', serving: {all_reduce: 7 s}, \
            operators: {matmul: 10 s, softmax: 11 s, layernorm: 12 s, gelu: 13 s}}}";
        System::build(&Node::parse("s.yaml", text).unwrap()).unwrap()
    }

    fn bench() -> Bench {
        Bench::new(&system()).unwrap()
    }

    /// 13 s of bytes and 10 s of the host; of the 2 s to the next kernel a profiler records what starting takes.
    #[test]
    fn profilers_leave_out_the_way_to_the_next_kernel() {
        let p = Product { batch: 1.0, m: 2.0, n: 3.0, k: 4.0 };
        let seconds = bench().profiled(&system()).operator(&Operator::Matmul(p), DataType::Fp16).unwrap();
        assert!((seconds - 23.0 - 1.5e-6).abs() < 1e-9, "{seconds}");
    }

    #[test]
    fn operators_by_hand() {
        let bench = bench();
        let p = Product { batch: 1.0, m: 2.0, n: 3.0, k: 4.0 };
        // (8 + 12 + 6) x 2 B at 4 B/s, launch, host.
        assert_eq!(bench.operator(&Operator::Matmul(p), DataType::Fp16), Ok(13.0 + 2.0 + 10.0));
        assert_eq!(bench.operator(&Operator::Matmul(p), DataType::Bf16), Ok(25.0));
        assert_eq!(bench.operator(&Operator::Softmax(8.0), DataType::Fp16), Ok(12.0 + 2.0 + 11.0));
        assert_eq!(bench.operator(&Operator::LayerNorm(8.0), DataType::Fp16), Ok(12.0 + 2.0 + 12.0));
        assert_eq!(bench.operator(&Operator::Function(8.0), DataType::Fp16), Ok(8.0 + 2.0 + 13.0));
        assert!(bench.operator(&Operator::Matmul(p), DataType::Fp32).unwrap_err().contains("fp32"));
    }

    #[test]
    fn best_products_and_all_reduce_by_hand() {
        let bench = bench();
        assert_eq!(bench.best_product(DataType::Fp8, None), Ok(1.6e9));
        // 48 FLOP; 8 + 12 B in and 6 x 2 B out at 4 B/s, launch.
        assert_eq!(bench.best_product(DataType::Fp8, Some((2, 3, 4))), Ok(48.0 / 10.0));
        // Four behind a switch: 2 x 3/4 x 8 B at 4 B/s, 2 x 2 hops, the software's 7 s.
        assert!((bench.all_reduce(4, 8.0) - (3.0 + 2.0 + 7.0)).abs() < 1e-9);
        assert_eq!(bench.all_reduce(1, 8.0), 0.0);
    }
}
