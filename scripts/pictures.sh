#!/usr/bin/env bash
# Runs the studies whose pictures README and docs/gpu-vs-dataflow.md show and draws these anew into docs/figures, those of DFModel's studies too
# (scripts/dfmodel-studies.sh). Results stay in outputs/.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh
cargo build --release --locked
run() { target/release/flowspace study run "studies/$1.yaml"; }
run gpt3-1t-80-systems
cp outputs/gpt3-1t-80-systems/{pareto-cost,heatmap-utilization}.png docs/figures/
run gpu-vs-dataflow
cp outputs/gpu-vs-dataflow/stack.svg docs/figures/gpu-vs-dataflow-stack.svg
cp outputs/gpu-vs-dataflow/free.svg docs/figures/gpu-vs-dataflow-free.svg
run gpu-vs-dataflow-sensitivity
cp outputs/gpu-vs-dataflow-sensitivity/heatmap-tokens_per_s_per_usd.svg docs/figures/gpu-vs-dataflow-sensitivity.svg
scripts/dfmodel-studies.sh
