//! Which ranks are in a group of a generated trace: those that the plan's use of the network says, or the execution's degrees.

use crate::scratch::Scratch;
use flowspace::model::collective::Extent;
use flowspace::model::ranks::{Group, Parallelism};
use flowspace::plan::{DimensionUse, file};
use flowspace::spec::Loader;
use flowspace::trace::chakra::{self, CommGroups, NodeType};
use std::collections::BTreeSet;
use std::path::Path;

/// The ranks of a group that begins at rank 0, by the extents of its parts along dimensions.
fn of(uses: &[DimensionUse], extent: fn(&DimensionUse) -> Extent) -> BTreeSet<u64> {
    let (mut out, mut begin) = (BTreeSet::from([0]), 1);
    for u in uses {
        let Extent { chips, apart } = extent(u);
        out = (0..chips).flat_map(|i| out.iter().map(move |r| r + i * apart * begin)).collect();
        begin *= u.chips();
    }
    out
}

/// Every group that rank 0 is in lies where the plan says, and the others beside it.
#[test]
fn groups_of_plans_lie_on_their_dimensions() {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors/base");
    let link = base.join("link.yaml").display().to_string();
    let scratch = Scratch::new("trace_ranks_plans");
    scratch.write(
        "w.yaml",
        "kind: language_model\nname: whole\nsource: \"assumed: a test\"\nhidden: 1024\nheads: 16\nseq: 1024\nlayers: 4\nvocab: 8192\nglobal_batch: 16\n",
    );
    let mut divided = 0;
    for (sizes, [tp, pp, dp]) in [
        (&[8][..], [2, 2, 2]),
        (&[8], [2, 1, 4]),
        (&[2, 4], [2, 2, 2]),
        (&[4, 2], [2, 2, 2]),
        (&[2, 2, 2], [2, 2, 2]),
        (&[2, 4], [1, 4, 2]),
        (&[4, 2], [1, 2, 4]),
    ] {
        let dimensions: String =
            sizes.iter().map(|n| format!("    - {{ size: {n}, topology: ring, link: {link} }}\n")).collect();
        scratch.write(
            "s.yaml",
            &format!(
                "name: eight\nsource: \"assumed: a test\"\nchip: {{ from: {0}/chip.yaml, style: kernel_by_kernel }}\nmemory: {{ from: {0}/memory.yaml, \
                 capacity: 64 GB }}\nnetwork:\n  topology: custom\n  dimensions:\n{dimensions}",
                base.display()
            ),
        );
        let degrees = [tp, pp, dp].map(|n: u64| n.to_string());
        let common =
            ["map", "--workload", "w.yaml", "--system", "s.yaml", "--split-dimensions", "--plan-out", "plan.yaml"];
        scratch.succeed(&[&common[..], &["--tp", &degrees[0], "--pp", &degrees[1], "--dp", &degrees[2]]].concat());
        let uses = file::read(&Loader.load(&scratch.0.join("plan.yaml"), None).unwrap()).unwrap().decisions.uses;
        divided += usize::from(uses.iter().any(DimensionUse::is_divided));
        let _ = std::fs::remove_dir_all(scratch.0.join("out"));
        scratch.succeed(&["trace", "generate", "--plan", "plan.yaml", "--out", "out"]);
        let groups = CommGroups::read(&scratch.0.join("out/comm_group.json")).unwrap();
        let (tensor, data, stages) =
            (of(&uses, DimensionUse::tensor), of(&uses, DimensionUse::data), of(&uses, DimensionUse::stages));
        let (mut seen, mut pipeline) = ([0; 2], BTreeSet::from([0]));
        for rank in 0..8 {
            let nodes = chakra::read(&scratch.0.join(format!("out/trace.{rank}.et"))).unwrap().nodes;
            for node in &nodes {
                if node.kind == NodeType::Coll {
                    let ranks = &groups.0[&node.group().unwrap()];
                    assert!(ranks.contains(&rank));
                    let first = ranks[0];
                    let found: BTreeSet<u64> = ranks.iter().map(|r| r - first).collect();
                    let gradients = node.name.starts_with("gradients");
                    assert_eq!(found, if gradients { data.clone() } else { tensor.clone() }, "{uses:?} {}", node.name);
                    seen[usize::from(gradients)] += 1;
                } else if node.kind == NodeType::Send {
                    let (from, to) = (node.uint("comm_src").unwrap(), node.uint("comm_dst").unwrap());
                    assert_eq!(from, rank);
                    if stages.contains(&from) {
                        pipeline.extend([from, to]);
                    }
                }
            }
        }
        assert_eq!(pipeline, stages, "{uses:?}");
        assert_eq!(seen.map(|n| n > 0), [tp > 1, dp > 1], "{uses:?}");
    }
    assert!(divided > 1, "no dimension is divided, so that nothing is tested");
}

/// Groups of executions have the strides that the model charges their collectives at.
#[test]
fn groups_of_executions_have_their_strides() {
    let scratch = Scratch::new("trace_ranks_executions");
    let system = Path::new(env!("CARGO_MANIFEST_DIR")).join("systems/clusters/selene-2022.yaml");
    let system = system.display().to_string();
    scratch.write(
        "m.yaml",
        "{kind: language_model, name: some, source: a test, layers: 4, hidden: 256, heads: 8, vocab: 1024, tied_embeddings: true, seq: 128, \
         global_batch: 32, experts: {count: 4, top_k: 2, ffn: 256, first_dense_layers: 1}}",
    );
    for [tp, cp, ep, dp, pp] in [[2, 2, 4, 2, 2], [2, 2, 2, 2, 4], [1, 2, 2, 4, 1], [4, 1, 2, 4, 2]] {
        scratch.write(
            "e.yaml",
            &format!(
                "name: e\nsource: a test\nexecution: {{tp: {tp}, cp: {cp}, ep: {ep}, dp: {dp}, pp: {pp}, micro_batch: 1}}\n"
            ),
        );
        let _ = std::fs::remove_dir_all(scratch.0.join("out"));
        let args = ["--workload", "m.yaml", "--system", &system, "--execution", "e.yaml", "--out", "out"];
        scratch.succeed(&[&["trace", "generate"], &args[..]].concat());
        let whole = Parallelism { tp, cp, ep, dp, pp };
        let groups = CommGroups::read(&scratch.0.join("out/comm_group.json")).unwrap();
        use Group::*;
        let wanted: BTreeSet<(u64, u64)> = [Tensor, Context, Expert, Replicas, ExpertReplicas, Ends]
            .map(|group| whole.group(group))
            .into_iter()
            .filter(|extent| extent.chips > 1)
            .map(|extent| (extent.chips, extent.apart))
            .collect();
        let mut found = BTreeSet::new();
        for ranks in groups.0.values() {
            let strides: BTreeSet<u64> = ranks.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert_eq!(strides.len(), 1, "{whole:?}: {ranks:?}");
            found.insert((ranks.len() as u64, *strides.first().unwrap()));
        }
        assert_eq!(found, wanted, "{whole:?}");
        // A message goes to the next stage, or back.
        let apart = whole.group(Pipeline).apart;
        for node in chakra::read(&scratch.0.join("out/trace.0.et")).unwrap().nodes {
            if node.kind == NodeType::Send {
                assert_eq!(node.uint("comm_dst"), Some(apart), "{whole:?}");
            }
        }
    }
}
