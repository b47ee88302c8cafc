#!/usr/bin/env bash
# Runs every test, with CBC as the second solver, and with tables in Parquet.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh cbc
echo "flowspace: building the tests; the first time that takes some minutes. Then they run for some more." >&2
cargo test --release --locked -p flowspace -p flowspace-highs --features cbc,parquet "$@"
