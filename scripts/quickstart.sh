#!/usr/bin/env bash
# Builds flowspace and runs the quickstart study: results.csv and figures in outputs/quickstart.
# Usage: scripts/quickstart.sh [--no-milp] [options of `flowspace study run`]
set -euo pipefail
cd "$(dirname "$0")/.."
features=()
minutes="some minutes on two cores, a good part of it for the MILP solver HiGHS"
if [ "${1:-}" = --no-milp ]; then
    shift
    features=(--no-default-features)
    minutes="a few minutes on two cores, without a MILP engine"
    . scripts/setup.sh no-milp
else
    . scripts/setup.sh
fi
echo "flowspace: building; the first time that takes $minutes. Then 12 points in seconds." >&2
cargo build --release --locked ${features[@]+"${features[@]}"}
# Exit code 2 says that some points are infeasible, which is part of this study's answer.
status=0
cargo run --release --locked --quiet ${features[@]+"${features[@]}"} -- study run studies/quickstart.yaml "$@" || status=$?
[ "$status" -eq 0 ] || [ "$status" -eq 2 ] || exit "$status"
