//! What names tell of calls that no operator is registered for: generated kernels, functions of Python, collectives.

use super::Class;

/// What the name of an unregistered kernel or Python function tells, if it tells anything: class and estimated FLOP an
/// element of its output.
pub fn guessed(name: &str) -> Option<(Class, f64)> {
    let lower = name.to_ascii_lowercase();
    let back = lower.contains("backward") || lower.contains("bwd");
    if let Some(rest) = lower.strip_prefix("triton_") {
        // triton_<kind>_fused_<names of the operators fused>_<number>
        let words = rest.split("fused_").nth(1).unwrap_or("");
        let fused = words
            .split('_')
            .filter(|w| {
                !w.is_empty() && w.parse::<u64>().is_err() && !matches!(*w, "view" | "clone" | "copy" | "to" | "native")
            })
            .count();
        return Some((Class::Generated, (fused as f64).max(1.0)));
    }
    let norm = lower.contains("layernorm")
        || lower.contains("layer_norm")
        || lower.contains("ln_fwd")
        || lower.contains("ln_bwd");
    if norm {
        return Some((Class::Norm, if back { 13.0 } else { 8.0 }));
    }
    if lower.contains("rmsnorm") || lower.contains("rms_norm") {
        return Some((Class::Norm, if back { 9.0 } else { 4.0 }));
    }
    if lower.contains("softmax") {
        return Some((Class::Softmax, if back { 4.0 } else { 5.0 }));
    }
    if lower.contains("gelu") || lower.contains("silu") || lower.contains("swiglu") || lower.contains("dropout") {
        return Some((Class::Elementwise, 1.0));
    }
    None
}

/// Whether a name is a collective's: `c10d::allreduce_`, `nccl:all_reduce`, `record_param_comms`, `_c10d_functional...`.
pub fn is_collective(name: &str) -> bool {
    ["c10d::", "nccl:", "gloo:", "_c10d_functional", "c10d_functional", "rccl:", "mpi:", "ucc:", "hccl:", "xccl:"]
        .iter()
        .any(|p| name.starts_with(p))
        || name == "record_param_comms"
}
