#!/usr/bin/env bash
# Compares every figure that a document states with what the program says, and runs the commands that documents show.
#
#   scripts/figures.sh             what takes seconds
#   scripts/figures.sh --full      also the studies that take minutes
#   scripts/figures.sh --write     writes the documents anew (with --full: all of them)
#
# FLOWSPACE_POINTS=FOLDER and FLOWSPACE_TRACES=FOLDER add measured points and recorded traces that are not shipped, FLOWSPACE_FIGURES_ONLY=PART,PART takes documents whose path has a PART.
set -euo pipefail
cd "$(dirname "$0")/.."
for option in "$@"; do
    case "$option" in
        --write) export FLOWSPACE_FIGURES=write FLOWSPACE_BLESS=1 ;;
        --full) export FLOWSPACE_FIGURES_FULL=1 ;;
        *)
            echo "usage: scripts/figures.sh [--write] [--full]" >&2
            exit 1
            ;;
    esac
done
. scripts/setup.sh cbc
cargo test --release --locked --features cbc,parquet --test all -- --nocapture figures:: pages::
