#!/usr/bin/env bash
# Runs every test, with CBC as the second solver.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh cbc
cargo test --release --locked --features cbc "$@"
