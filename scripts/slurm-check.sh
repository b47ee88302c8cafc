#!/usr/bin/env bash
# Runs studies on a real Slurm: a controller and three nodes on this machine's loopback, made for this and gone with it. A node is killed in the
# middle of its part, parts are lost and finished again, parts go on after their limit, a search submits its own rounds; every time the results
# must be byte for byte those of `flowspace study run`. About two minutes; every wait is bounded, nothing depends on how long something took.
#
#   scripts/slurm-check.sh
#
# Debian's Slurm (slurm-wlm, munge) is installed where it is missing and can be. Exit codes: 0 all held, 1 not, 69 no Slurm and no way to install it, or
# it does not start on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! { command -v slurmctld && command -v munged; } >/dev/null; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing slurm-wlm and munge" >&2
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge iproute2 procps >/dev/null || true
    fi
    if ! { command -v slurmctld && command -v munged; } >/dev/null; then
        echo "error: parts of studies are tried on Slurm, which is not here; install it (Debian: apt-get install slurm-wlm munge)" >&2
        exit 69
    fi
fi

# The program, before the network goes away; FLOWSPACE_PROGRAM names one that is built.
if [ -z "${FLOWSPACE_PROGRAM:-}" ]; then
    cargo build --release --locked --quiet ${FLOWSPACE_FEATURES:+--features "$FLOWSPACE_FEATURES"}
    export FLOWSPACE_PROGRAM=${CARGO_TARGET_DIR:-$PWD/target}/release/flowspace
fi
flowspace=$FLOWSPACE_PROGRAM
# Where the kernel lets us: processes, network and name of our own. Nothing stays behind, nothing else is seen, nothing leaves the machine.
own=(unshare --net --pid --fork --kill-child --mount-proc --uts)
if [ -z "${FLOWSPACE_SLURM_OWN:-}" ] && command -v ip >/dev/null 2>&1 && "${own[@]}" true 2>/dev/null; then
    export FLOWSPACE_SLURM_OWN=1
    # With loopback alone a second address is needed: glibc looks for none of IPv4 otherwise.
    exec "${own[@]}" bash -c 'ip link set lo up && ip addr add 127.0.0.2/8 dev lo && hostname localhost && exec "$@"' own "$0" "$@"
fi

work=$(mktemp -d)
daemons=()
finish() {
    local status=$?
    # Why last: of a long output the end is read.
    [ "$status" -eq 0 ] || { tail -n 12 "$work"/slurm/*.log "$work"/run*/logs/*.log; cat "$work"/why; } >&2 2>/dev/null || true
    for pid in "${daemons[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
    # What a node started outlives the node.
    for pid in $(pgrep -x slurmstepd; pgrep -f '^slurmstepd: '); do
        grep -qF "$work/" <<<"$(ls -l "/proc/$pid/fd" 2>/dev/null)" || continue
        kill -9 $(pgrep -P "$pid") "$pid" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap finish EXIT
begun=$(date +%s)
say() { echo "[$(($(date +%s) - begun)) s] $*"; }
fail() {
    echo "error: $*" | tee "$work/why" >&2
    exit 1
}
# until_true SECONDS WHAT COMMAND...: tries until it is true.
until_true() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || fail "waited in vain: $what"
        sleep 0.1
    done
}

# --- the cluster ---------------------------------------------------------------------------------------------------------------------------
slurm=$work/slurm
nodes=(n1 n2 n3)
base=$((20000 + RANDOM % 10000))
host=$(hostname -s)
mkdir -p "$slurm"/{munge,state,spool.n1,spool.n2,spool.n3}
chmod 700 "$slurm/munge"
{
    echo "ClusterName=check"
    echo "SlurmctldHost=$host(127.0.0.1)"
    echo "SlurmctldPort=$base"
    echo "SlurmdPort=$((base + 10))"
    echo "SlurmUser=$(id -un)"
    echo "SlurmdUser=$(id -un)"
    echo "AuthType=auth/munge"
    # A job that is queued again waits that long; less than 5 s is refused with a line in the log, and means 120 s.
    echo "AuthInfo=socket=$slurm/munge/socket,cred_expire=5"
    echo "CredType=cred/munge"
    echo "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny"
    echo "StateSaveLocation=$slurm/state"
    echo "SlurmdSpoolDir=$slurm/spool.%n"
    echo "SlurmctldPidFile=$slurm/slurmctld.pid"
    echo "SlurmdPidFile=$slurm/slurmd.%n.pid"
    echo "SlurmctldLogFile=$slurm/slurmctld.log"
    echo "SlurmdLogFile=$slurm/slurmd.%n.log"
    # No control groups, no accounting: a container has neither.
    echo "ProctrackType=proctrack/linuxproc"
    echo "TaskPlugin=task/none"
    echo "JobAcctGatherType=jobacct_gather/none"
    echo "AccountingStorageType=accounting_storage/none"
    echo "MpiDefault=none"
    echo "SwitchType=switch/none"
    # By default the scheduler looks once a minute.
    echo "SchedulerType=sched/builtin"
    echo "SchedulerParameters=sched_interval=1,sched_min_interval=100000,batch_sched_delay=0"
    echo "SelectType=select/cons_tres"
    echo "SelectTypeParameters=CR_Core"
    echo "SlurmdParameters=config_overrides"
    echo "ReturnToService=2"
    echo "SlurmdTimeout=5"
    echo "MessageTimeout=5"
    echo "TCPTimeout=1"
    echo "KillWait=2"
    echo "TreeWidth=65533"
    # Parts 4 and 5 are in an array of their own.
    echo "MaxArraySize=4"
    echo "JobRequeue=1"
    echo "RebootProgram=/bin/true"
    for i in 1 2 3; do
        echo "NodeName=n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$((base + 10 + i)) CPUs=1 RealMemory=2000 State=UNKNOWN"
    done
    echo "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
} >"$slurm/slurm.conf"
export SLURM_CONF=$slurm/slurm.conf
head -c 128 /dev/urandom >"$slurm/munge/key"
chmod 600 "$slurm/munge/key"
# daemon NAME COMMAND...: its process number in $slurm/NAME.process.
daemon() {
    "${@:2}" >"$slurm/$1.out" 2>&1 &
    daemons+=($!)
    echo $! >"$slurm/$1.process"
    # Its end is no news of this shell's.
    disown
}
daemon munged munged --foreground --force --socket="$slurm/munge/socket" --key-file="$slurm/munge/key" --pid-file="$slurm/munge/pid" \
    --seed-file="$slurm/munge/seed" --log-file="$slurm/munge/log" --origin=127.0.0.1
until_true 20 "munge's socket" test -S "$slurm/munge/socket"
daemon controller slurmctld -D -f "$SLURM_CONF"
for node in "${nodes[@]}"; do daemon "$node" slurmd -D -N "$node" -f "$SLURM_CONF"; done
idle() { [ "$(timeout 3 sinfo -h -t idle -o %D 2>/dev/null | tr -d ' ')" = 3 ]; }
# Nodes of Slurm want /sys/fs/cgroup, though they use it for nothing here, and a machine may lack more: that is no fault of the studies.
waited=$((SECONDS + 60))
until idle; do
    if [ "$SECONDS" -ge "$waited" ]; then
        grep -h "error:" "$slurm"/*.out | tail -n 5 >&2 || true
        echo "error: Slurm does not start on this machine: parts of studies are not tried on it" >&2
        exit 69
    fi
    sleep 0.1
done
say "$(slurmctld -V): three nodes are idle"

# --- the studies ---------------------------------------------------------------------------------------------------------------------------
# Points of a quarter of a second each: of what a point is given by default it would take several, and part 4 would take many passes.
cp -r workloads systems "$work/"
cat >"$work/grid.yaml" <<'END'
name: grid
workload: workloads/language/gpt3-175b.yaml
system: systems/sn10-8-torus-2d.yaml
axes:
  - {name: sram, field: system.chip.sram, values: [100 MB, 140 MB, 180 MB, 220 MB, 260 MB, 300 MB, 320 MB]}
  - {name: memory, field: system.memory.bandwidth, values: [100 GB/s, 140 GB/s, 180 GB/s, 220 GB/s, 260 GB/s, 300 GB/s, 350 GB/s, 400 GB/s, 500 GB/s, 600 GB/s]}
solve: {joint_nodes: 40}
END
cat >"$work/search.yaml" <<'END'
name: search
workload: workloads/language/gpt3-175b.yaml
system: systems/sn10-8-torus-2d.yaml
axes:
  - {name: sram, field: system.chip.sram, values: [100 MB, 140 MB, 180 MB, 220 MB, 260 MB, 300 MB, 320 MB]}
  - {name: memory, field: system.memory.bandwidth, values: [100 GB/s, 140 GB/s, 180 GB/s, 220 GB/s, 260 GB/s, 300 GB/s, 350 GB/s, 400 GB/s, 500 GB/s, 600 GB/s]}
search: {front: [max samples_per_s, min cost_usd], within: 0.1 %, at_once: 6}
solve: {joint_nodes: 40}
END
cd "$work"
for study in grid search; do
    "$flowspace" study run $study.yaml --out $study --no-plots >/dev/null 2>&1 || [ $? -eq 2 ]
done
say "$(wc -l <grid/results.csv) and $(wc -l <search/results.csv) lines of results on this machine"
same() { cmp "$1/results.csv" "$2/results.csv"; }
# No `| grep -q` here or below: it ends at the first match, what writes to it may end by that, and the shell takes that for a failure.
gone() {
    local jobs
    jobs=$(squeue -h -o %i 2>/dev/null) && [ -z "$jobs" ]
}
there() { [ -s "$1" ]; }

# 1. A node dies in the middle of a part.
"$flowspace" study plan grid.yaml --out run --parts 6 >/dev/null
"$flowspace" study submit run --time 10min --cpus 1 --max-running 3 >submitted 2>/dev/null
grep -q ' 4$' submitted || fail "no second array: $(cat submitted)"
node=""
# A part that has noted a point, its line whole, and its node.
noted() {
    local part
    for part in 0 1 2 3; do
        [ -e "run/parts/0000$part.csv" ] && continue
        [ "$(cat run/journal/0000$part.* 2>/dev/null | wc -l)" -gt 0 ] || continue
        node=$(squeue -h -r -t R -o '%K %N %j' | awk -v part=$part '$1 == part && $3 ~ /^flowspace-grid/ && !found { print $2; found = 1 }')
        [ -n "$node" ] && { part_killed=$part; return 0; }
    done
    return 1
}
until_true 120 "a part under way" noted
# All at once, as power goes: the daemon of the node, that of the job, its script, and the program. One that saw the next end would report it.
parent() { ps -o ppid= -p "$1" 2>/dev/null | tr -d ' '; }
doomed=("$(cat "slurm/$node.process")")
for pid in $(pgrep -f "study work .*/run --part"); do
    grep -qzx "SLURMD_NODENAME=$node" "/proc/$pid/environ" 2>/dev/null || continue
    # The script's command line names the program as well.
    for job in $(pgrep -x slurmstepd; pgrep -f '^slurmstepd: '); do
        for script in $(pgrep -P "$job"); do
            { [ "$script" = "$pid" ] || [ "$script" = "$(parent "$pid")" ]; } && doomed+=("$job" "$script" "$pid")
        done
    done
done
kill -9 "${doomed[@]}" 2>/dev/null || true
say "node $node killed with part $part_killed"
scontrol update "nodename=$node" state=down reason=check
until_true 300 "the merge after the loss of a node" there run/results.csv
until_true 60 "an empty queue" gone
same grid run || fail "the results after the loss of a node are not those of one machine"
cat run/logs/*_"$part_killed".log
grep -Eq "^part $part_killed: .* [1-9][0-9]* of them known from before" run/logs/*_"$part_killed".log || fail "the part that was queued again began anew"
say "the part went on elsewhere; the results are those of one machine"
daemon "$node" slurmd -D -N "$node" -f "$SLURM_CONF"
scontrol update "nodename=$node" state=resume 2>/dev/null || true

# 2. A part is lost: the merge names it, one job brings it back.
rm run/parts/00003.csv run/results.csv
status=0
"$flowspace" study merge run --no-plots >/dev/null 2>message || status=$?
[ "$status" -eq 4 ] && grep -q "1 of 6 parts are not finished: 3;" message || fail "merge without part 3: $status, $(cat message)"
"$flowspace" study submit run --time 10min --cpus 1 >/dev/null 2>/dev/null
until_true 120 "the merge of the part that was lost" there run/results.csv
until_true 60 "an empty queue" gone
same grid run || fail "the results with a part finished again differ"
# 3. All of it once more: nothing is solved, nothing changes.
"$flowspace" study submit run --time 10min --cpus 1 --parts all >/dev/null 2>/dev/null
until_true 120 "an empty queue" gone
same grid run || fail "submitted twice, the results differ"
say "a lost part was finished again; submitted twice nothing changed"

# 4. Parts that need longer than their limit.
"$flowspace" study plan grid.yaml --out run-again --parts 2 >/dev/null
"$flowspace" study submit run-again --time 6s --cpus 1 >/dev/null 2>/dev/null
until_true 300 "parts that go on after their limit" there run-again/results.csv
until_true 60 "an empty queue" gone
same grid run-again || fail "the results of parts that went on differ"
passes=$(grep -c '^part 0: ' "$(ls run-again/logs/*_0.log)")
[ "$passes" -gt 1 ] || fail "part 0 took one pass"
say "part 0 went on $((passes - 1)) times after its limit; the results are those of one machine"

# 5. A search of the front submits its own rounds.
"$flowspace" study plan search.yaml --out run-search --parts 3 >/dev/null
"$flowspace" study submit run-search --time 10min --cpus 1 >/dev/null 2>/dev/null
until_true 600 "the end of a search" there run-search/front.json
until_true 60 "an empty queue" gone
same search run-search || fail "the points that a search solved differ"
cmp search/front.json run-search/front.json || fail "what a search proved differs"
say "a search of $(ls run-search/rounds | wc -l) rounds proved what one machine proves"
