//! What names of kernels say, by HTA's patterns: communication `^nccl|^hip|^hccl|ncclKernel`, memory `^(hip)?Memcpy|^(hip)?Memset|^dma`.

/// Whether a kernel communicates, by its name.
pub fn is_hta_communication(name: &str) -> bool {
    ["nccl", "hip", "hccl"].iter().any(|p| name.starts_with(p)) || name.contains("ncclKernel")
}

/// Whether a device event copies or fills memory, by its name.
pub fn is_hta_memory(name: &str) -> bool {
    let name = name.strip_prefix("hip").filter(|n| n.starts_with("Mem")).unwrap_or(name);
    ["Memcpy", "Memset", "dma"].iter().any(|p| name.starts_with(p))
}

/// A kernel's name without template arguments, arguments and what stands before its last word.
pub fn short(name: &str) -> String {
    if is_hta_memory(name) || !name.contains(['<', '(']) {
        return name.to_owned();
    }
    let mut out: Vec<char> = Vec::with_capacity(name.len());
    for c in name.replace("->", "").chars() {
        let opening = match c {
            '>' => '<',
            ')' => '(',
            _ => {
                out.push(c);
                continue;
            }
        };
        // What a closing bracket has no opening for goes as a whole.
        out.truncate(out.iter().rposition(|o| *o == opening).unwrap_or(0));
    }
    let text: String = out.into_iter().collect();
    text.rsplit(' ').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shortened_from_the_inside() {
        assert_eq!(short("void at::native::add<float, f<int> >(float*, int)"), "at::native::add");
        assert_eq!(short("ncclKernel_AllReduce_RING(ncclWorkElem)"), "ncclKernel_AllReduce_RING");
        assert_eq!(short("Memcpy HtoD (Pinned -> Device)"), "Memcpy HtoD (Pinned -> Device)");
        assert_eq!(short("aten::mm"), "aten::mm");
        assert!(is_hta_memory("hipMemcpy x") && is_hta_memory("dma_x") && !is_hta_memory("x Memcpy"));
        assert!(is_hta_communication("hipMemcpy") && is_hta_communication("a ncclKernel b"));
        assert!(!is_hta_communication("gemm"));
    }
}
