//! Specification files that are compiled in, so that what the program validates itself against is there wherever it runs.
//!
//! A path that begins with `built-in/` names one of them; references between them are relative, as on disk.

use std::path::{Component, Path};

/// First part of the paths of compiled-in files.
pub const ROOT: &str = "built-in";

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../", $path)))),*]
    };
}

/// Path in the repository, and text.
const FILES: &[(&str, &str)] = files![
    "validation/machines.yaml",
    "systems/chips/a100.yaml",
    "systems/chips/gaudi-2.yaml",
    "systems/chips/gaudi-3.yaml",
    "systems/chips/gh200.yaml",
    "systems/chips/h100.yaml",
    "systems/chips/h200.yaml",
    "systems/chips/mi210.yaml",
    "systems/chips/mi250x.yaml",
    "systems/chips/mi300x.yaml",
    "systems/chips/sn40l.yaml",
    "systems/chips/tpu-v4.yaml",
    "systems/chips/tpu-v5e.yaml",
    "systems/chips/tpu-v5p.yaml",
    "systems/clusters/dgx-h100.yaml",
    "systems/clusters/gaudi2-hls2.yaml",
    "systems/clusters/megascale.yaml",
    "systems/clusters/selene-2021.yaml",
    "systems/clusters/selene-2022.yaml",
    "systems/clusters/selene-deepspeed.yaml",
    "systems/clusters/selene-zero3.yaml",
    "systems/clusters/tpu-v4-slices.yaml",
    "systems/clusters/tpu-v5e-pods.yaml",
    "systems/clusters/tpu-v5p-slices.yaml",
    "systems/clusters/vtrain-cluster.yaml",
    "systems/clusters/vtrain-node.yaml",
    "systems/links/gaudi2-roce-inner.yaml",
    "systems/links/gaudi2-roce-outer.yaml",
    "systems/links/infiniband-hdr-half.yaml",
    "systems/links/infiniband-hdr.yaml",
    "systems/links/infiniband-ndr.yaml",
    "systems/links/nvlink-3.yaml",
    "systems/links/nvlink.yaml",
    "systems/links/sn40l-node.yaml",
    "systems/links/tpu-dcn.yaml",
    "systems/links/tpu-v4-ici-ring.yaml",
    "systems/links/tpu-v5e-ici-ring.yaml",
    "systems/links/tpu-v5p-ici-ring.yaml",
    "systems/memories/a100-40gb-hbm2.yaml",
    "systems/memories/a100-80gb-hbm2e.yaml",
    "systems/memories/gaudi-2-96gb-hbm2e.yaml",
    "systems/memories/gaudi-3-128gb-hbm2e.yaml",
    "systems/memories/gh200-96gb-hbm3.yaml",
    "systems/memories/h100-80gb-hbm3.yaml",
    "systems/memories/h200-141gb-hbm3e.yaml",
    "systems/memories/mi210-64gb-hbm2e.yaml",
    "systems/memories/mi250x-128gb-hbm2e.yaml",
    "systems/memories/mi300x-192gb-hbm3.yaml",
    "systems/memories/sn40l-hbm.yaml",
    "systems/memories/tpu-host-dram.yaml",
    "systems/memories/tpu-v4-hbm2.yaml",
    "systems/memories/tpu-v5e-hbm2.yaml",
    "systems/memories/tpu-v5p-hbm2e.yaml",
    "systems/stacks/deepspeed-zero3.yaml",
    "systems/stacks/megatron-deepspeed-nodes.yaml",
    "systems/stacks/megatron-deepspeed.yaml",
    "systems/stacks/megatron-lm-2021.yaml",
    "systems/stacks/megatron-lm-2022.yaml",
    "systems/stacks/nemo-2023.yaml",
    "systems/stacks/pytorch-operators-a100.yaml",
    "systems/stacks/pytorch-operators-mi210.yaml",
    "systems/stacks/sambanova.yaml",
    "systems/stacks/tensorrt-llm-overlapped.yaml",
    "systems/stacks/tensorrt-llm.yaml",
    "systems/stacks/xla.yaml",
];

/// Paths of the compiled-in files in the repository.
pub fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(path, _)| *path)
}

/// The text of the file at `path`; `None` where the path is not of a compiled-in file or there is none.
pub fn text(path: &Path) -> Option<&'static str> {
    let mut parts: Vec<&str> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::ParentDir => {
                parts.pop()?;
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    let (first, rest) = parts.split_first()?;
    let wanted = rest.join("/");
    FILES.iter().find(|(known, _)| *first == ROOT && *known == wanted).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_files_and_nowhere_else() {
        assert!(text(Path::new("built-in/validation/machines.yaml")).is_some());
        assert!(text(Path::new("built-in/systems/../validation/./machines.yaml")).is_some());
        for other in
            ["validation/machines.yaml", "built-in", "built-in/../../etc", "/built-in/validation/machines.yaml", ""]
        {
            assert!(text(Path::new(other)).is_none(), "{other}");
        }
    }
}
