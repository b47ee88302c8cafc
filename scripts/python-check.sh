#!/usr/bin/env bash
# Builds the wheel of the Python package (python/), installs it into an environment of its own, and runs its tests against the program; then has protobuf's own
# Python package read the Chakra traces that the program writes (scripts/et_check.py).
#
#   scripts/python-check.sh
#
# Debian's python3 and venv are installed where they are missing and can be; maturin, pandas, polars, protobuf and pytest come from PyPI in the versions of
# python/requirements-test.txt. Exit codes: 0 all held, 1 not, 69 no Python, no PyPI, and no way to them.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
environment() { python3 -m venv "$work/venv" >/dev/null 2>&1; }
if ! environment; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing python3 and its venv" >&2
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-venv >/dev/null || true
    fi
    rm -rf "$work/venv"
    if ! environment; then
        echo "error: the Python package is tested in an environment of its own, for which there is no python3 with venv; install it (Debian: apt-get install python3 python3-venv)" >&2
        exit 69
    fi
fi
if ! "$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-input -r python/requirements-test.txt; then
    echo "error: the Python package is tested with what python/requirements-test.txt names, which is not to be had from PyPI here" >&2
    exit 69
fi

cargo build --release --locked --quiet ${FLOWSPACE_FEATURES:+--features "$FLOWSPACE_FEATURES"}
program=${CARGO_TARGET_DIR:-$PWD/target}/release/flowspace
cp "$program" "$work/flowspace"
# For this machine, not for many: no libraries are put into the wheel. The library is that of the program: cargo compiles it once for both.
"$work/venv/bin/maturin" build --release --locked --quiet --compatibility linux --interpreter "$work/venv/bin/python" --manifest-path python/Cargo.toml \
    --out "$work/wheel" ${FLOWSPACE_FEATURES:+--features "flowspace/${FLOWSPACE_FEATURES//,/,flowspace/}"}
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-input "$work"/wheel/*.whl
ls -l "$work"/wheel/*.whl | awk '{ print $NF ": " $5 " bytes" }'
# Away from the sources: what is tested is what was installed.
cp -r python/tests "$work/tests"
FLOWSPACE=$work/flowspace FLOWSPACE_ROOT=$PWD "$work/venv/bin/python" -m pytest -q -p no:cacheprovider "$work/tests"
# The page's example.
awk '/^```python$/ { on = 1; next } /^```$/ { on = 0 } on' docs/python.md >"$work/page.py"
(cd "$work" && cp -r "$OLDPWD/systems" "$OLDPWD/workloads" "$OLDPWD/studies" . && venv/bin/python page.py)
# Traces by another reader: a test that leaves it out where the package is missing must find it here.
PATH=$work/venv/bin:$PATH FLOWSPACE_PROTOBUF=1 cargo test --release --locked --quiet ${FLOWSPACE_FEATURES:+--features "$FLOWSPACE_FEATURES"} --test all \
    trace_generate::files_obey_the_simulator
