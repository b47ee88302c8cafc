#!/usr/bin/env bash
# Opens reports in a real browser (Debian's chromium, headless), uses them as a reader does, and fails where something is not as it should be:
# errors of scripts, points that do not show their plan, brushes, tables, names that become elements, pages wider than the window or larger than
# 5 MB for 10^4 points.
#
#   scripts/report-check.sh                 of studies it runs itself
#   scripts/report-check.sh report.html ... of these pages
#
# Exit codes: 0 sound, 1 not, 69 no browser and no way to install one.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v chromium >/dev/null 2>&1; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing chromium" >&2
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null || true
    fi
    if ! command -v chromium >/dev/null 2>&1; then
        echo "error: reports are checked in chromium, which is not here; install it (Debian: apt-get install chromium)" >&2
        exit 69
    fi
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# browse FILE WIDTH: the page after its scripts ran, to standard output; what the browser's console says to $work/console.
browse() {
    rm -rf "$work/profile"
    mkdir "$work/profile"
    timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
        --disable-component-update --disable-sync --user-data-dir="$work/profile" --enable-logging=stderr --window-size="$2,1000" \
        --virtual-time-budget=10000 --dump-dom "file://$1" 2>"$work/stderr" || {
        tail -n 5 "$work/stderr" >&2
        echo "error: chromium failed or took more than a minute" >&2
        return 1
    }
    grep -E 'CONSOLE' "$work/stderr" >"$work/console" || true
}

bad=0
check() {
    # Errors of the page's own scripts are gathered before they run; the check runs after them.
    awk -v test="$PWD/scripts/report-check.js" '
        /<head>/ { print; print "<script>const faults = []; addEventListener(\"error\", e => faults.push(\"error: \" + e.message)); addEventListener(\"securitypolicyviolation\", e => faults.push(\"refused: \" + e.blockedURI));</script>"; next }
        /^<\/body>/ { print "<script>"; while ((getline line < test) > 0) print line; print "</script>" }
        { print }' "$1" >"$work/page.html"
    for width in 1280 400; do
        browse "$work/page.html" "$width" >"$work/dom" || { bad=1; continue; }
        found=$(sed -n '/<pre id="checked">/,/END/p' "$work/dom")
        if [ -s "$work/console" ]; then
            bad=1
            echo "$1 ($width wide): the console says" >&2
            head -n 5 "$work/console" >&2
        fi
        case $found in
            *'<pre id="checked">SOUND '*) echo "$1 ($width wide): sound, $(wc -c <"$1") bytes" ;;
            *'<pre id="checked">FAULTS'*) bad=1; echo "$1 ($width wide): $found" >&2 ;;
            *) bad=1; echo "$1 ($width wide): the check did not run to its end" >&2 ;;
        esac
    done
}

if [ $# -gt 0 ]; then
    for page in "$@"; do check "$page"; done
    exit "$bad"
fi

flowspace() { cargo run --release --locked --quiet ${FLOWSPACE_FEATURES:+--features "$FLOWSPACE_FEATURES"} -- "$@"; }

# A study as shipped, one with a proof of a front, points without a plan and names that want to be code.
flowspace study run studies/quickstart.yaml --out "$work/quickstart" >/dev/null 2>&1
check "$work/quickstart/report.html"

mkdir "$work/hostile"
cat >"$work/hostile/workload.yaml" <<'END'
kind: dfmodel_layer
name: "</script><script>faults.push('a name ran')</script><img src=x onerror=faults.push(1)>"
source: made up
hidden: 256
heads: 4
head_dim: 64
seq: 64
layers: 4
pass: forward
global_batch: 8
END
cat >"$work/hostile/study.yaml" <<'END'
name: hostile
question: "<b>Is</b> <!-- <script> & ' \" text? \u2028"
workload: workload.yaml
system:
  name: "&lt;four&gt; <svg onload=faults.push(2)>"
  source: made up
  chip: {name: "chip\"'><i>", source: assumed here, style: dataflow, cores: 16, lanes: 8, stages: 4, frequency: 1 GHz, sram: 4 MB, efficiency: 0.9, price: $100, power: 10 W}
  memory: {name: mem, source: assumed here, bandwidth: 100 GB/s, capacity: 1 GB, price: $1/(GB/s), power: 0.1 W/(GB/s)}
  network:
    topology: ring
    dimensions: [{size: 4, link: {name: wire, source: assumed here, bandwidth: 10 GB/s, price: $1/(GB/s), power: 0.1 W/(GB/s)}}]
axes:
  - name: memory
    points:
      "</script><img src=x onerror=faults.push(3)>": {system.memory.capacity: 1 kB}
      "<!--<script>": {system.memory.capacity: 1 GB}
  - {name: bandwidth, field: system.memory.bandwidth, values: [50 GB/s, 100 GB/s, 200 GB/s]}
END
# Points without a plan: exit code 2.
flowspace study run "$work/hostile/study.yaml" --out "$work/hostile/out" >/dev/null 2>&1 || [ $? -eq 2 ]
check "$work/hostile/out/report.html"

# 10^4 points, each number different from all others: rows of the first study again and again.
mkdir "$work/large"
awk -F, -v OFS=, 'NR == 1 { print; for (i = 1; i <= NF; i++) name[i] = $i; next } { row[NR - 2] = $0 }
    END {
        srand(1)
        for (n = 0; n < 10000; n++) {
            fields = split(row[n % (NR - 1)], f, ",")
            line = n
            for (i = 2; i <= fields; i++) {
                v = f[i]
                if (v ~ /^[0-9]+\.[0-9e-]+$/ && name[i] != "gap") v = sprintf("%.15g", v * (0.5 + rand()))
                else if (name[i] == "cost_usd" || name[i] == "power_w") v = sprintf("%.15g", v * (0.5 + rand()))
                else if (name[i] == "partition_times_s") { parts = split(v, p, "|"); v = ""; for (j = 1; j <= parts; j++) { split(p[j], t, "/"); v = v (j > 1 ? "|" : "") sprintf("%.15g/%.15g/%.15g/%.15g", t[1] * rand(), t[2] * rand(), t[3] * rand(), t[4] * rand()) } }
                line = line OFS v
            }
            print line
        }
    }' "$work/quickstart/results.csv" >"$work/large/results.csv"
flowspace study report "$work/large/results.csv" >/dev/null
check "$work/large/report.html"
size=$(wc -c <"$work/large/report.html")
if [ "$size" -gt 5000000 ]; then
    bad=1
    echo "a report of 10000 points has $size bytes, more than 5000000" >&2
fi
exit "$bad"
