#!/usr/bin/env bash
# Builds flowspace and runs the quickstart study: results.csv and figures in outputs/quickstart.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh
# Exit code 2 says that some points are infeasible, which is part of this study's answer.
status=0
cargo run --release --locked --quiet -- study run studies/quickstart.yaml "$@" || status=$?
[ "$status" -eq 0 ] || [ "$status" -eq 2 ] || exit "$status"
