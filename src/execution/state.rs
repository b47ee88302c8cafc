//! Bytes of weights, gradients and optimiser states for each parameter.
//!
//! Mixed precision with Adam (Micikevicius et al. 2017, arXiv 1710.03740; Rajbhandari et al. 2019, arXiv 1910.02054, section 3.1):
//! weights and gradients of the types stated, a master copy where weights have fewer bits than it, and two moments. 16-bit
//! weights with 32-bit gradients are 2 + 4 + 4 + 8 = 18 bytes; with 16-bit gradients 16.

use super::Zero;
use crate::workload::language::{DataType, Types};

/// Bytes of one parameter by kind.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StateBytes {
    /// Weights as the products read them.
    pub weights: f64,
    /// Gradients.
    pub gradients: f64,
    /// The optimiser's own copy of the weights, and Adam's moments.
    pub optimizer: f64,
}

impl StateBytes {
    /// Of training.
    pub fn training(types: &Types) -> Self {
        let master = if types.master == types.weights { 0.0 } else { types.master.bytes() };
        Self {
            weights: types.weights.bytes(),
            gradients: types.gradients.bytes() + types.arriving.map_or(0.0, DataType::bytes),
            optimizer: master + 2.0 * types.moments.bytes(),
        }
    }

    /// Bytes that Adam reads and writes for one parameter: gradient and states, what products read of it, which it reads too where there is no copy of more bits.
    pub fn optimizer_traffic(types: &Types) -> f64 {
        let own = if types.master == types.weights { 2.0 } else { 1.0 };
        own * types.weights.bytes() + types.gradients.bytes() + 2.0 * Self::training(types).optimizer
    }

    /// Of inference: weights alone.
    pub fn inference(types: &Types) -> Self {
        Self { weights: types.weights.bytes(), ..Self::default() }
    }

    /// On one of `replicas` chips that divide what `zero` says.
    pub fn divided(self, zero: Zero, replicas: u64) -> Self {
        let n = replicas.max(1) as f64;
        let part = |bytes: f64, from: Zero| if zero >= from { bytes / n } else { bytes };
        Self {
            weights: part(self.weights, Zero::Weights),
            gradients: part(self.gradients, Zero::Gradients),
            optimizer: part(self.optimizer, Zero::Optimizer),
        }
    }

    /// All kinds.
    pub fn total(&self) -> f64 {
        self.weights + self.gradients + self.optimizer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn recipes_by_hand() {
        let bf16 = Types::default();
        assert_eq!(StateBytes::training(&bf16).total(), 18.0);
        let beside = Types { arriving: Some(DataType::Bf16), ..bf16 };
        assert_eq!(StateBytes::training(&beside).gradients, 6.0);
        let fp16 = Types { weights: DataType::Fp16, gradients: DataType::Fp16, ..bf16 };
        assert_eq!(StateBytes::training(&fp16).total(), 16.0);
        let fp32 = Types { weights: DataType::Fp32, ..bf16 };
        assert_eq!(StateBytes::training(&fp32).total(), 16.0);
        // 2 written, 4 and 12 read, 12 written; without a copy 4 and 4 of the weights, 4 of the gradient, twice the moments' 8.
        assert_eq!(StateBytes::optimizer_traffic(&bf16), 30.0);
        assert_eq!(StateBytes::optimizer_traffic(&fp32), 28.0);
        assert_eq!(StateBytes::inference(&Types { weights: DataType::Fp8, ..bf16 }).total(), 1.0);
    }

    /// Rajbhandari et al. 2019, figure 1: 7.5e9 parameters of 2 + 2 + 12 bytes on 64 chips: 120, 31.4, 16.6 and 1.9 GB.
    #[test]
    fn zero_divides_as_its_paper_prints() {
        let fp16 = Types { weights: DataType::Fp16, gradients: DataType::Fp16, ..Types::default() };
        let state = StateBytes::training(&fp16);
        for (zero, gigabytes) in
            [(Zero::Off, 120.0), (Zero::Optimizer, 31.4), (Zero::Gradients, 16.6), (Zero::Weights, 1.9)]
        {
            let found = 7.5 * state.divided(zero, 64).total();
            assert!((found - gigabytes).abs() < 0.05, "{zero}: {found} {gigabytes}");
        }
    }
}
