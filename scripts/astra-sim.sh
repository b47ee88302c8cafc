#!/bin/bash
# Builds ASTRA-sim's analytical backend from its sources and runs it on Chakra traces that flowspace wrote (docs/astra-sim.md).
#
#   scripts/astra-sim.sh SOURCES PREFIX RANKS [GB/s [NANOSECONDS [TOPOLOGY]]]
#
# SOURCES: a checkout of astra-sim with its submodules. PREFIX: the beginning of the traces' names (PREFIX.0.et, ...), with comm_group.json
# beside them. One dimension of RANKS chips; bandwidth of a link in 2^30 bytes/s (300), latency of a link (500), Ring, Switch or
# FullyConnected (Switch). SPLITS= chunks of a collective (1: more pay the latency once each). ROOFLINE=1 takes computation from num_ops and tensor_size at PEAK TFLOP/s (312) and MEMORY GB/s (2039)
# instead of the recorded durations.
set -euo pipefail
if [ $# -lt 3 ]; then
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
fi
sources=$1 prefix=$2 ranks=$3 bandwidth=${4:-300} latency=${5:-500} topology=${6:-Switch}
[ -f "$sources/build/astra_analytical/build.sh" ] || { echo "$sources: no checkout of astra-sim (build/astra_analytical/build.sh is missing)" >&2; exit 1; }
for ((rank = 0; rank < ranks; rank++)); do
    [ -f "$prefix.$rank.et" ] || { echo "$prefix.$rank.et is missing: the traces of $ranks ranks are expected" >&2; exit 1; }
done
case $topology in Ring | Switch | FullyConnected) ;; *) echo "topology $topology: expected Ring, Switch or FullyConnected" >&2; exit 1 ;; esac

binary=$(find "$sources/build/astra_analytical/build" -type f -name 'AstraSim_Analytical_Congestion_Unaware' -perm -u+x -print -quit 2>/dev/null || true)
if [ -z "$binary" ]; then
    (cd "$sources" && bash build/astra_analytical/build.sh)
    binary=$(find "$sources/build/astra_analytical/build" -type f -name 'AstraSim_Analytical_Congestion_Unaware' -perm -u+x -print -quit)
fi
[ -n "$binary" ] || { echo "the build made no AstraSim_Analytical_Congestion_Unaware" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
declare -A implementation=([Ring]=ring [Switch]=halvingDoubling [FullyConnected]=direct)
algorithm=${implementation[$topology]}
beside="$(dirname "$prefix")/comm_group.json"
# Halving and doubling need a power of two, of every group: others never end.
sizes=$ranks
if [ -f "$beside" ]; then sizes="$sizes $(python3 -c 'import json, sys; print(*{len(g) for g in json.load(open(sys.argv[1])).values()})' "$beside")"; fi
for size in $sizes; do
    if [ "$algorithm" = halvingDoubling ] && [ $((size & (size - 1))) -ne 0 ]; then algorithm=ring; fi
done
# `direct` sends to all others at once, each at the full rate of the link, which only a fully connected network can; `direct1` to one after the other.
exchange=direct1
if [ "$topology" = FullyConnected ]; then exchange=direct; fi
cat >"$work/network.yml" <<YML
topology: [ $topology ]
npus_count: [ $ranks ]
bandwidth: [ $bandwidth ]
latency: [ $latency ]
YML
cat >"$work/system.json" <<JSON
{
  "scheduling-policy": "LIFO",
  "endpoint-delay": 10,
  "active-chunks-per-dimension": 1,
  "preferred-dataset-splits": ${SPLITS:-1},
  "all-reduce-implementation": ["$algorithm"],
  "all-gather-implementation": ["$algorithm"],
  "reduce-scatter-implementation": ["$algorithm"],
  "all-to-all-implementation": ["$exchange"],
  "collective-optimization": "localBWAware",
  "local-mem-bw": ${MEMORY:-2039},
  "peak-perf": ${PEAK:-312},
  "roofline-enabled": ${ROOFLINE:-0}
}
JSON
echo '{"memory-type": "NO_MEMORY_EXPANSION"}' >"$work/memory.json"
groups=()
if [ -f "$beside" ]; then groups=(--comm-group-configuration="$beside"); fi
# A run in which ranks wait for each other for ever ends without an error: count those that end. Some versions crash behind the last one.
"$binary" --workload-configuration="$prefix" --system-configuration="$work/system.json" --network-configuration="$work/network.yml" \
    --remote-memory-configuration="$work/memory.json" --logging-folder="$work/log" "${groups[@]}" 2>&1 | tee "$work/out" || true
ended=$(grep -c 'sys\[[0-9]*\] finished' "$work/out" || true)
[ "$ended" -eq "$ranks" ] || { echo "$ended of $ranks ranks ended" >&2; exit 1; }
