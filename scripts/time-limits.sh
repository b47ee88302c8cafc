#!/usr/bin/env bash
# How well --time-limit is kept: ten inputs whose search takes far longer than the limit, and for each the limit, the seconds on the clock, the
# seconds of processor time, the peak of memory and how the search ended. Usage: scripts/time-limits.sh [SECONDS] [BINARY]
# Needs bash, awk and GNU time; the graphs are written by awk, always the same.
set -euo pipefail
cd "$(dirname "$0")/.."
limit=${1:-5}
flowspace=${2:-target/release/flowspace}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A graph of N products. SHAPE independent: none reads another; random: each reads one or two of the sixty before it.
graph() { # N SHAPE
  awk -v n="$1" -v shape="$2" '
    function draw(most) { seed = (seed * 16807) % 2147483647; return seed % most }
    BEGIN {
      seed = 12345; split("256 512 1024 2048", size, " ")
      printf "kind: graph\nname: %s-%d\nsource: \"assumed: scripts/time-limits.sh\"\nglobal_batch: 1\n", shape, n
      printf "inputs: [{ name: x, rows: 512, cols: 2048 }]\noutputs: ["
      for (i = 0; i < n; i++) if (shape == "independent" || i >= n - 60) printf "%st%d", (i && !(shape == "random" && i == n - 60) ? ", " : ""), i
      printf "]\nkernels:\n"
      for (i = 0; i < n; i++) {
        m = size[1 + draw(4)]
        if (shape == "independent") printf "  - { name: k%d, op: gemm_weight, m: %d, k: 512, n: 2048, rhs: x, output: t%d }\n", i, m, i
        else if (i < 3) printf "  - { name: k%d, op: gemm_weight, m: 512, k: 512, n: 2048, rhs: x, output: t%d }\n", i, i
        else {
          a = i - 1 - draw(i < 60 ? i : 60); b = i - 1 - draw(i < 60 ? i : 60)
          if (draw(2) && a != b) printf "  - { name: k%d, op: elementwise, m: 512, n: 2048, inputs: [t%d, t%d], output: t%d }\n", i, a, b, i
          else printf "  - { name: k%d, op: gemm_weight, m: 512, k: 512, n: 2048, rhs: t%d, output: t%d }\n", i, a, i
        }
      }
    }'
}
model() { # BATCH
  printf 'from: %s/workloads/language/gpt3-175b.yaml\nname: batch-%s\nglobal_batch: %s\n' "$PWD" "$1" "$1"
}
for shape in independent random; do
  for n in 2000 5000; do graph $n $shape > "$work/$shape-$n.yaml"; done
done
[ "${GRAPHS:-}" = "" ] || cp "$work"/*.yaml "$GRAPHS"
lu() { # PANELS: an LU factorisation of so many panels
  printf 'kind: hpl\nname: hpl-%s\nsource: "assumed: scripts/time-limits.sh"\nn: %s\nblock: 50\n' "$1" "$(($1 * 50))"
}
lu 20000 > "$work/hpl.yaml"
for batch in 735134400 963761198400; do model $batch > "$work/$batch.yaml"; done

printf '%-52s %7s %8s %8s %8s  %s\n' input limit wall cpu MiB ended
run() { # NAME, then the arguments of map
  local name=$1 seen status
  shift
  seen=$( { command time -f '%e %U %S %M' "$flowspace" map "$@" --time-limit "${limit}s" --format json > "$work/out" 2> "$work/err"; } 2>&1 || true)
  seen=$(tail -1 "$work/err")
  status=$(grep -m1 '"status"' "$work/out" | tr -d ' ",' | cut -d: -f2 || true)
  echo "$seen" | awk -v name="$name" -v limit="$limit" -v status="${status:-$(head -1 "$work/err" | cut -c1-60)}" \
    '{ printf "%-52s %7s %8.2f %8.2f %8.0f  %s\n", name, limit, $1, $2 + $3, $4 / 1024, status }'
}
for system in sn10-single sn30-1024-torus-2d; do
  for graph in independent-2000 independent-5000 random-2000 random-5000; do
    run "$graph on $system" --workload "$work/$graph.yaml" --system systems/$system.yaml
  done
done
run "batch 735,134,400 on a100-dgx-1024" --workload "$work/735134400.yaml" --system systems/a100-dgx-1024.yaml
run "batch 963,761,198,400 on a100-dgx-1024" --workload "$work/963761198400.yaml" --system systems/a100-dgx-1024.yaml
run "HPL of 20,000 panels on h100-dgx-1024" --workload "$work/hpl.yaml" --system systems/h100-dgx-1024.yaml
run "GPT-3 1T, all shardings, split dimensions" --workload workloads/gpt3-1t-training.yaml --system systems/h100-dragonfly-1024.yaml \
  --sharding joint --split-dimensions --micro-batch search
run "GPT-3 1T, MILP named" --workload workloads/gpt3-1t-training.yaml --system systems/sn30-1024-torus-2d.yaml --solver highs
