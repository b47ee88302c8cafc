//! What answers claim, to the letter: `golden/statements.txt` has a command and the sentence that its JSON states for each kind of
//! answer. `FLOWSPACE_BLESS=1 cargo test --release --test all statement::` writes it anew; read it.

use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// Each command, without `flowspace` and `--format json`, in the folder of the sources.
const COMMANDS: &[&str] = &[
    // Optimal over all shardings, for each objective.
    "map --workload workloads/gpt3-175b-forward.yaml --system systems/sn10-8-torus-2d.yaml",
    "map --workload tests/errors/base/transformer.yaml --system tests/errors/base/system.yaml --objective energy",
    "map --workload tests/errors/base/transformer.yaml --system tests/errors/base/system.yaml --objective cost",
    "map --workload workloads/gpt3-175b-forward.yaml --system systems/h100-dgx-8.yaml --split-dimensions --micro-batch search",
    // Given the sharding.
    "map --workload workloads/gpt3-175b-forward.yaml --system systems/sn10-8-torus-2d.yaml --sharding two-pass --solver highs",
    "map --workload workloads/gpt3-175b-forward.yaml --system systems/sn10-8-torus-2d.yaml --model dfmodel",
    // Decisions of the user.
    "map --workload workloads/gpt3-175b-forward.yaml --system systems/sn10-8-torus-2d.yaml --tp 4 --tiles 8 --max-partitions 7",
    "map --workload workloads/hpl-1m.yaml --system systems/sn10-8-torus-2d.yaml",
    "map --plan tests/golden/fixed-plan.yaml",
    // Stopped.
    "map --workload workloads/gpt3-1t-training.yaml --system systems/sn30-1024-torus-2d.yaml --joint-nodes 1",
    "map --workload workloads/gpt3-1t-training.yaml --system systems/sn30-1024-torus-2d.yaml --joint-nodes 1 --gap 0.5",
    "map --workload workloads/gpt3-1t-training.yaml --system systems/sn30-1024-torus-2d.yaml --time-limit 1ns",
    "map --workload workloads/dlrm-0.8t.yaml --system systems/sn10-8-torus-2d.yaml",
    // Executions and serving of language models.
    "map --workload workloads/language/gpt3-6.7b.yaml --system systems/h100-dgx-8.yaml",
    "map --workload workloads/language/gpt3-6.7b.yaml --system systems/h100-dgx-8.yaml --tp 8 --recompute none",
    "map --workload workloads/language/gpt3-6.7b.yaml --system systems/h100-dgx-8.yaml --execution tests/golden/fixed-execution.yaml",
    "map --workload workloads/language/gpt3-6.7b.yaml --system systems/h100-dgx-8.yaml --time-limit 1ns",
    "map --workload workloads/language/megatron-1008b.yaml --system systems/h100-dgx-8.yaml",
    "map --workload workloads/language/gpt3-6.7b.yaml --system systems/sn10-8-torus-2d.yaml",
    "map --workload workloads/language/gpt3-6.7b.yaml --system systems/sn10-8-torus-2d.yaml --recompute full --tp 4",
    "map --workload workloads/language/gpt3-6.7b.yaml --system systems/sn10-8-torus-2d.yaml --sharding two-pass",
    "map --workload workloads/language/llama3-8b-serving.yaml --system systems/a100-40gb-4.yaml --batch 1..256",
    "map --workload workloads/language/llama3-8b-serving.yaml --system systems/a100-40gb-4.yaml --max-tpot 1us",
    // None.
    "map --workload workloads/gpt3-1t-training.yaml --system systems/sn10-8-torus-2d.yaml",
    "map --workload workloads/gpt3-1t-training.yaml --system systems/sn10-8-torus-2d.yaml --model dfmodel",
];

fn statement(command: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_flowspace"))
        .args(command.split_whitespace())
        .args(["--format", "json"])
        .current_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")))
        .output()
        .unwrap();
    let value: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{command}: {e}\n{}", String::from_utf8_lossy(&output.stderr)));
    let of = |key: &str| value[key].as_str().unwrap_or("-").to_string();
    format!("$ flowspace {command}\n{} by {}: {}\n", of("status"), of("solver"), of("statement"))
}

#[test]
fn sentences_are_as_reviewed() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/statements.txt");
    let said: String = COMMANDS.iter().map(|command| statement(command)).collect::<Vec<_>>().join("\n");
    if std::env::var_os("FLOWSPACE_BLESS").is_some() {
        std::fs::write(&path, &said).unwrap();
    }
    assert_eq!(said, std::fs::read_to_string(&path).unwrap_or_default());
}
