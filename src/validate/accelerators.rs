//! Chips by the names that measurements give them, and the peaks that published utilisations refer to.
//!
//! Peaks are dense ones of datasheets. They serve to read published shares of a peak, not to predict.

use crate::workload::language::DataType;

/// A chip that measurements name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accelerator {
    /// Our name.
    pub name: &'static str,
    /// Beginnings of its names in measurements, in lower case without blanks, dashes and underscores.
    aliases: &'static [&'static str],
    /// Peak of 16-bit products, FLOP/s.
    pub fp16: f64,
    /// Peak of 8-bit products, FLOP/s.
    pub fp8: Option<f64>,
}

/// Chips, the longest names first where one begins like another.
const CHIPS: [Accelerator; 16] = {
    const fn chip(name: &'static str, aliases: &'static [&'static str], fp16: f64, fp8: Option<f64>) -> Accelerator {
        Accelerator { name, aliases, fp16, fp8 }
    }
    [
        // NVIDIA datasheets and whitepapers of 2017, 2020, 2022, 2023.
        chip("V100", &["v100", "teslav100"], 125e12, None),
        chip("A100", &["a100"], 312e12, None),
        chip("GH200", &["gh200"], 989.4e12, Some(1978.9e12)),
        chip("H100 PCIe", &["h100pcie"], 756e12, Some(1513e12)),
        chip("H100", &["h100"], 989.4e12, Some(1978.9e12)),
        chip("H200", &["h200"], 989.4e12, Some(1978.9e12)),
        // Google Cloud TPU documentation. The v5e has 8-bit integers, not floating point, at twice the rate.
        chip("TPU v4", &["tpuv4"], 275e12, None),
        chip("TPU v5e", &["tpuv5e", "tpuv5lite"], 197e12, Some(394e12)),
        chip("TPU v5p", &["tpuv5p"], 459e12, Some(918e12)),
        // AMD datasheets: MI250X both dies together, as the papers count one accelerator of two.
        chip("MI250X", &["mi250x"], 383e12, None),
        chip("MI210", &["mi210"], 181e12, None),
        chip("MI300X", &["mi300x"], 1307.4e12, Some(2614.9e12)),
        // Intel whitepapers of Gaudi 2 and 3.
        chip("Gaudi 2", &["gaudi2"], 432e12, Some(865e12)),
        chip("Gaudi 3", &["gaudi3"], 1677e12, Some(1677e12)),
        // Prabhakar et al. 2024 (arXiv 2405.07518), table of the SN40L: 638 TFLOP/s of BF16.
        chip("SN40L", &["sn40l"], 638e12, None),
        // Abts et al. 2020, "Think Fast" (ISCA): 205 TFLOP/s of FP16 at 1 GHz; the measured ones ran at 900 MHz.
        chip("GroqChip 1", &["groqchip1", "groqtsp"], 184.3e12, None),
    ]
};

/// The chip a measurement names.
pub fn known(name: &str) -> Option<&'static Accelerator> {
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric()).collect::<String>().to_ascii_lowercase();
    CHIPS.iter().find(|chip| chip.aliases.iter().any(|alias| plain.starts_with(alias)))
}

/// Peak of products in a type, FLOP/s; `None` where it is not known.
pub fn peak(name: &str, precision: DataType) -> Option<f64> {
    let chip = known(name)?;
    match precision {
        DataType::Fp16 | DataType::Bf16 => Some(chip.fp16),
        DataType::Fp8 | DataType::Int8 => chip.fp8,
        DataType::Fp32 => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_measurements_are_recognised() {
        for (name, ours) in [
            ("A100-80GB", "A100"),
            ("A100 SXM", "A100"),
            ("H100-80GB 700W", "H100"),
            ("H100-SXM5-80GB", "H100"),
            ("H200-141GB", "H200"),
            ("TPUv5p", "TPU v5p"),
            ("TPUv4", "TPU v4"),
            ("Gaudi 3", "Gaudi 3"),
            ("V100-32GB", "V100"),
        ] {
            assert_eq!(known(name).map(|c| c.name), Some(ours), "{name}");
        }
        assert!(known("WSE-2").is_none() && known("").is_none());
        assert_eq!(peak("A100", DataType::Fp8), None);
        assert_eq!(peak("H100", DataType::Bf16), Some(989.4e12));
    }
}
