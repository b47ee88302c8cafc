#!/usr/bin/env bash
# Runs DFModel's studies and draws their figures anew into docs/figures (SVG). Results stay in outputs/.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh
cargo build --release --locked
run() { target/release/flowspace study run "studies/dfmodel/$1.yaml"; }
keep() { cp "outputs/dfmodel-$1/$2.svg" "docs/figures/dfmodel-$3.svg"; }
run design-space
keep design-space heatmap-utilization-full utilization
keep design-space heatmap-utilization-none utilization-no-overlap
keep design-space heatmap-flop_per_s_per_usd-full cost-efficiency
keep design-space heatmap-flop_per_s_per_w-full power-efficiency
run design-space-dfmodel
keep design-space-dfmodel heatmap-utilization-none utilization-dfmodel
for study in mapping sram-dram joint rail-only; do
    run "$study"
    keep "$study" heatmap-utilization "$study"
done
run memory-3d
keep memory-3d heatmap-flop_per_s memory-3d
