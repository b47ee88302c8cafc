"""Measures what `flowspace trace` takes: processor time (user and system), wall time, peak memory of the process.

Usage: python3 scripts/trace-speed.py [--flowspace PROGRAM] [--traces FOLDER] [--work FOLDER] [--runs N] [--only WORD] [--large]

FOLDER has the recorded traces (`../shared/traces` beside the checkout); the long files are made of them in the work folder by repetition, times, ids
and correlations moved on: 45 MB and 225 MB of Kineto, 233 MB of .et; with --large 10 million Kineto entries (2 GB). Each command runs N
times (5); the run with the least processor time counts, and the largest memory. Prints the table of docs/performance.md.
"""
import argparse
import datetime
import gzip
import json
import os
import subprocess
import sys
import time

KINETO = "hta/param_resnet_rtx2080ti_kineto.json.gz"
CHAKRA = "mlcommons-chakra/chakra.0.et.gz"
HOST = "param/1.0.3-chakra.0.0.4/resnet_1gpu_et.json.gz"
DEVICE = "HolisticTraceAnalysis/nccl_data.json.gz"
# Seconds of Chakra's own tools on this pair, measured on an idle machine of two cores (docs/traces-linked.md).
CHAKRAS = {"link": 9.7, "convert": 4.3}


def repeat_kineto(source, times, out):
    """A Kineto trace, several times one after another."""
    with gzip.open(source, "rt") as f:
        trace = json.load(f)
    events = trace.pop("traceEvents")
    work = [e for e in events if e.get("ph") == "X" and "dur" in e and e.get("cat") != "Trace"]
    span = max(e["ts"] + e["dur"] for e in work) - min(e["ts"] for e in work) + 1000
    top = max(e.get("args", {}).get("correlation", 0) for e in work) + 1000
    # Numbers that move stand between marks, so that each time only they are made text anew.
    mark = "\x7f"

    def marked(event):
        event = dict(event)
        if "ts" in event:
            event["ts"] = f"{mark}t{event['ts']}{mark}"
        if isinstance(event.get("id"), int):
            event["id"] = f"{mark}c{event['id']}{mark}"
        args = event.get("args", {})
        if "correlation" in args:
            moved = {k: f"{mark}c{args[k]}{mark}" for k in ("External id", "correlation") if k in args}
            event["args"] = {**args, **moved}
        return json.dumps(event, ensure_ascii=False).replace(f'"{mark}', mark).replace(f'{mark}"', mark)

    def pieces(events):
        parts = ",\n".join(map(marked, events)).split(mark)
        return parts[::2], [(p[0] == "t", json.loads(p[1:])) for p in parts[1::2]]

    whole, again = pieces(events), pieces([e for e in events if e.get("ph") != "M"])
    with open(out, "w") as f:
        f.write(json.dumps(trace)[:-1] + ', "traceEvents": [\n')
        for n in range(times):
            texts, numbers = again if n else whole
            moved = [str(number + n * (span if time else top)) for time, number in numbers] + [""]
            f.write((",\n" if n else "") + "".join(t + m for t, m in zip(texts, moved)))
        f.write("\n]}\n")


def repeat_chakra(program, source, times, out):
    """A Chakra trace, several times one after another: as lines of JSON, then turned into .et."""
    text = subprocess.run([program, "trace", "to-json", "--form", "lines", source], check=True, capture_output=True).stdout
    first, *nodes = text.decode().splitlines()
    nodes = [json.loads(n) for n in nodes]
    top = max(int(n.get("id", 0)) for n in nodes) + 1
    with open(out + ".json", "w") as f:
        f.write(first + "\n")
        for n in range(times):
            for node in nodes:
                moved = {"id": str(int(node.get("id", 0)) + n * top)}
                for key in ("ctrlDeps", "dataDeps"):
                    if key in node:
                        moved[key] = [str(int(d) + n * top) for d in node[key]]
                f.write(json.dumps({**node, **moved}) + "\n")
    subprocess.run([program, "trace", "to-et", out + ".json", "--out", out], check=True)
    os.remove(out + ".json")


def made(work, name, how, *arguments):
    """A file of the work folder, made by a process of its own: the peak memory of a child counts from this process's."""
    path = os.path.join(work, name)
    if not os.path.exists(path):
        subprocess.run([sys.executable, __file__, how, *map(str, arguments), path + ".part"], check=True)
        os.rename(path + ".part", path)
    return path


def measure(command, runs):
    """Least processor time with its wall time, s, and largest memory, MB, of some runs."""
    best, peak = None, 0
    for _ in range(runs):
        begin = time.monotonic()
        null = os.open(os.devnull, os.O_WRONLY)
        child = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
        _, status, used = os.wait4(child, 0)
        os.close(null)
        if status:
            sys.exit(f"{' '.join(command)} failed")
        took = (used.ru_utime + used.ru_stime, time.monotonic() - begin)
        best = min(best or took, took)
        peak = max(peak, used.ru_maxrss / 1000)
    return (*best, peak)


def main():
    if sys.argv[1:2] == ["--repeat-kineto"]:
        return repeat_kineto(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    if sys.argv[1:2] == ["--repeat-chakra"]:
        return repeat_chakra(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flowspace", default=os.path.join(root, "target/release/flowspace"))
    parser.add_argument("--traces", default=os.path.join(root, "../shared/traces"))
    parser.add_argument("--work", default=os.path.join(root, "target/trace-speed"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", help="commands that hold this text")
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    source = lambda name: os.path.join(args.traces, name)
    out = lambda name: os.path.join(args.work, name)
    kineto = lambda times: made(args.work, f"kineto-{times}.json", "--repeat-kineto", source(KINETO), times)
    chakra = made(args.work, "chakra-70.et", "--repeat-chakra", args.flowspace, source(CHAKRA), 70)
    cases = [
        ("critical-path", [kineto(2)], None),
        ("critical-path --compat hta-0.6.1", [kineto(2)], None),
        ("report", [kineto(2)], None),
        ("timeline", [kineto(10)], "t.json"),
        ("info", [chakra], None),
        ("to-json", [chakra], "c.json"),
        ("to-et", [chakra], "c.et"),
        ("to-dot", [chakra], "c.dot"),
        ("to-graphml", [chakra], "c.graphml"),
        ("timeline", [chakra], "t.json"),
        ("link --host", [source(HOST), "--device", source(DEVICE)], "linked.et"),
        ("convert", [out("linked.et")], "converted.et"),
    ]
    if args.large:
        cases.append(("critical-path", [kineto(90)], None))
    print(f"{datetime.date.today()}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {args.runs} runs\n")
    print("| `flowspace trace` | input | CPU, s | wall, s | peak memory, MB | Chakra's tool |\n|---|---|---|---|---|---|")
    for name, inputs, output in (c for c in cases if not args.only or args.only in c[0]):
        command = [args.flowspace, "trace", *name.split(), *inputs, *(["--out", out(output)] if output else [])]
        cpu, wall, peak = measure(command, args.runs)
        files = [f for f in inputs if not f.startswith("--")]
        sizes = " + ".join(f"{os.path.getsize(f) / 1e6:.1f}" for f in files)
        word = name.split()[0]
        theirs = f"{CHAKRAS[word]} s: {CHAKRAS[word] / cpu:.0f} times" if word in CHAKRAS else ""
        names = ", ".join(os.path.basename(f) for f in files)
        print(f"| `{name}` | {names}, {sizes} MB | {cpu:.2f} | {wall:.2f} | {peak:.0f} | {theirs} |", flush=True)


main()
