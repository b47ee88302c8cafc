"""Reads Chakra traces with protobuf's own Python package and checks what ASTRA-sim's feeder and workload layer ask of them (docs/astra-sim.md).

Usage: python3 scripts/et_check.py [--times-alone] [--replay] FOLDER...

Each FOLDER has PREFIX.RANK.et of one run and perhaps comm_group.json. --times-alone: computation has its time and nothing else (text workloads, patterns).
--replay: runs the ranks by the rules of ASTRA-sim's workload layer as well (one node of the CPU, one of computation and one collective in flight on each rank, the
smallest id first; recorded durations; rings of 300 x 2^30 bytes/s and 500 ns) and prints when each ends. It is no ASTRA-sim: no chunks, no congestion, no messages.
Nothing of flowspace is used: the messages are built from the field numbers of Chakra's et_def.proto. Prints a line a folder and its faults; exit code 1 if
there are any, 3 if the package google.protobuf is not installed.
"""
import collections
import glob
import gzip
import heapq
import json
import os
import sys

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError:
    print("the package protobuf is not installed", file=sys.stderr)
    sys.exit(3)

Field = descriptor_pb2.FieldDescriptorProto
# Values of an attribute in the order of their field numbers, from 3 on: a scalar, then a list.
KINDS = "double float int32 int64 uint32 uint64 sint32 sint64 fixed32 fixed64 sfixed32 sfixed64 bool string bytes".split()
# The kind by which the feeder reads each attribute: another one is read as 0.
READ_AS = {
    "num_ops": "int64", "comm_type": "int64", "comm_size": "int64", "tensor_size": "uint64", "comm_src": "int32", "comm_dst": "int32",
    "comm_tag": "int32", "is_cpu_op": "bool", "pg_name": "string",
}
INVALID, METADATA, COMPUTE, SEND, RECEIVE, COLLECTIVE = 0, 1, 4, 5, 6, 7
# All-reduce, all-gather, broadcast, all-to-all, reduce-scatter: the others make the simulator stop.
SIMULATED = (0, 2, 5, 6, 7)


def messages():
    """Classes of GlobalMetadata and Node."""
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="et", syntax="proto3")

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for number, (field, kind, *more) in enumerate(fields, 1):
            put(made, field, number, kind, *more)
        return made

    def put(made, name, number, kind, repeated=False, oneof=None):
        field = made.field.add(name=name, number=number, label=3 if repeated else 1)
        scalar = getattr(Field, "TYPE_" + kind.upper(), None)
        field.type = scalar or Field.TYPE_MESSAGE
        if not scalar:
            field.type_name = ".et." + kind
        if oneof is not None:
            field.oneof_index = oneof

    attribute = message("AttributeProto", ("name", "string"), ("doc_string", "string"))
    attribute.oneof_decl.add(name="value")
    for i, kind in enumerate(KINDS):
        message(kind + "List", ("values", kind, True))
        put(attribute, kind + "_val", 3 + 2 * i, kind, False, 0)
        put(attribute, kind + "_list", 4 + 2 * i, kind + "List", False, 0)
    message("IOInfo", ("values", "string"), ("shapes", "string"), ("types", "string"))
    message("GlobalMetadata", ("version", "string"), ("attr", "AttributeProto", True))
    message(
        "Node", ("id", "uint64"), ("name", "string"), ("type", "int32"), ("ctrl_deps", "uint64", True), ("data_deps", "uint64", True),
        ("start_time_micros", "uint64"), ("duration_micros", "uint64"), ("inputs", "IOInfo"), ("outputs", "IOInfo"),
        ("attr", "AttributeProto", True),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName("et." + name)) for name in ("GlobalMetadata", "Node")]


GlobalMetadata, Node = messages()


def read(path):
    """Metadata and nodes: messages behind their lengths. A length of 0 is the end for Chakra's tools."""
    with open(path, "rb") as f:
        data = f.read()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    at, found = 0, []
    while at < len(data):
        length = shift = 0
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if length == 0:
            raise ValueError(f"{path}: a message of no bytes ends the trace")
        found.append(data[at : at + length])
        at += length
    return GlobalMetadata.FromString(found[0]), [Node.FromString(node) for node in found[1:]]


def check(folder, times_alone):
    """Ranks, nodes, and faults with their numbers."""
    faults = collections.Counter()
    listed = os.path.join(folder, "comm_group.json")
    groups = {}
    if os.path.exists(listed):
        with open(listed) as f:
            groups = json.load(f)
    # 0 is all ranks; a number is multiplied by a million, in 32 bits.
    faults.update(f"group {name!r} of comm_group.json is no number from 1 to 2147" for name in groups if not (name.isdigit() and 1 <= int(name) <= 2147))
    sent, received, nodes = collections.Counter(), collections.Counter(), 0
    said = collections.defaultdict(dict)
    files = sorted(glob.glob(os.path.join(folder, "*.et")), key=lambda path: int(path.split(".")[-2]))
    for path in files:
        rank = int(path.split(".")[-2])
        metadata, trace = read(path)
        if not metadata.version:
            faults["metadata without version"] += 1
        seen = set()
        for node in trace:
            attrs = {a.name: a for a in node.attr}
            if len(attrs) < len(node.attr):
                faults["an attribute twice"] += 1
            for name, kind in READ_AS.items():
                if name in attrs and attrs[name].WhichOneof("value") != kind + "_val":
                    faults[f"{name} is a {attrs[name].WhichOneof('value')}, read as {kind}"] += 1
            value = lambda name: getattr(attrs[name], READ_AS[name] + "_val") if name in attrs else None
            if node.id in seen:
                faults["an id twice"] += 1
            if any(d not in seen for d in [*node.data_deps, *node.ctrl_deps]):
                faults["a dependency on no node before it"] += 1
            seen.add(node.id)
            if "is_cpu_op" not in attrs:
                faults["no is_cpu_op"] += 1
            if node.type in (INVALID, METADATA):
                faults["an invalid or metadata node"] += 1
            if node.type == COMPUTE and not value("is_cpu_op") and not times_alone and not (value("num_ops") and value("tensor_size")):
                faults["computation of the device without num_ops or tensor_size"] += 1
            if node.type in (SEND, RECEIVE, COLLECTIVE):
                if value("is_cpu_op"):
                    faults["communication on the CPU"] += 1
                if not value("comm_size") or value("comm_size") < (4 if node.type == COLLECTIVE else 0):
                    faults["communication without bytes, or a collective of less than 4"] += 1
            if node.type == COLLECTIVE:
                group, kind = value("pg_name"), value("comm_type")
                if kind not in SIMULATED:
                    faults[f"a collective of type {kind}"] += 1
                if group is not None and rank not in groups.get(group, []):
                    faults[f"group {group!r} does not list rank {rank}"] += 1
                # All-to-alls of their own sizes too make ranks wait for each other for ever.
                said[group].setdefault(rank, []).append((kind, value("comm_size")))
            if node.type in (SEND, RECEIVE):
                message = tuple(value(name) for name in ("comm_src", "comm_dst", "comm_tag", "comm_size"))
                if message[0 if node.type == SEND else 1] != rank:
                    faults["a message of another rank"] += 1
                (sent if node.type == SEND else received)[message] += 1
        nodes += len(trace)
    unmatched = sum(((sent - received) + (received - sent)).values())
    if unmatched:
        faults["messages without their other end"] += unmatched
    for group, ranks in said.items():
        if len(set(map(tuple, ranks.values()))) > 1:
            faults[f"ranks of group {group!r} call other collectives"] += 1
    return len(files), nodes, faults


# Bytes a second and seconds of a link, and how often a ring of n ranks passes the n-th part of what comm_size counts: all-reduce, all-gather (a part is the whole), others.
BANDWIDTH, LATENCY = 300 * 2**30, 500e-9


def ring(kind, size, n):
    """Seconds of a collective on a ring."""
    steps = 2 * (n - 1) if kind == 0 else n - 1
    return steps * (LATENCY + (size if kind == 2 else size / n) / BANDWIDTH)


def replay(folder):
    """When each rank ends, s. Collectives begin when all ranks with a file have come to them, and take what their whole group takes."""
    files = sorted(glob.glob(os.path.join(folder, "*.et")), key=lambda path: int(path.split(".")[-2]))
    with open(os.path.join(folder, "comm_group.json")) as f:
        groups = json.load(f)
    present = [int(path.split(".")[-2]) for path in files]
    groups[""] = present
    ranks = []
    for path in files:
        nodes = read(path)[1]
        place = {node.id: i for i, node in enumerate(nodes)}
        before = [set(node.data_deps) | set(node.ctrl_deps) for node in nodes]
        behind = [[] for _ in nodes]
        for i, ids in enumerate(before):
            for d in ids:
                behind[place[d]].append(i)
        attrs = [{a.name: a for a in node.attr} for node in nodes]
        where = ["cpu" if a["is_cpu_op"].bool_val else "said" if n.type == COLLECTIVE else "gpu" for a, n in zip(attrs, nodes)]
        ready = {kind: [i for i, ids in enumerate(before) if not ids and where[i] == kind] for kind in ("cpu", "gpu", "said")}
        ranks.append((nodes, attrs, where, [len(b) for b in before], behind, ready, set(), collections.Counter()))
    ends, running, waiting, number = [0.0] * len(ranks), [], collections.defaultdict(list), 0

    def issue(at, now):
        nonlocal number
        nodes, attrs, where, _, _, ready, busy, called = ranks[at]
        for kind in ready:
            if kind in busy or not ready[kind]:
                continue
            i = heapq.heappop(ready[kind])
            busy.add(kind)
            if kind != "said":
                number += 1
                heapq.heappush(running, (now + max(1, nodes[i].duration_micros) * 1e-6, number, at, i))
                continue
            group = attrs[i]["pg_name"].string_val if "pg_name" in attrs[i] else ""
            call = waiting[group, called[group]]
            called[group] += 1
            call.append((at, i))
            if len(call) == sum(rank in groups[group] for rank in present):
                seconds = ring(attrs[i]["comm_type"].int64_val, attrs[i]["comm_size"].int64_val, len(groups[group]))
                for one in call:
                    number += 1
                    heapq.heappush(running, (now + seconds, number, *one))

    for at in range(len(ranks)):
        issue(at, 0.0)
    done = 0
    while running:
        now, _, at, i = heapq.heappop(running)
        nodes, _, where, left, behind, ready, busy, _ = ranks[at]
        busy.discard(where[i])
        ends[at] = now
        done += 1
        for j in behind[i]:
            left[j] -= 1
            if left[j] == 0:
                heapq.heappush(ready[where[j]], j)
        issue(at, now)
    if done < sum(len(rank[0]) for rank in ranks):
        raise ValueError(f"{folder}: {done} nodes ran, the others wait for each other")
    return ends


def main():
    folders = [a for a in sys.argv[1:] if not a.startswith("--")]
    if not folders or set(sys.argv[1:]) - set(folders) - {"--times-alone", "--replay"}:
        sys.exit(__doc__)
    wrong = False
    for folder in folders:
        ranks, nodes, faults = check(folder, "--times-alone" in sys.argv)
        print(f"{folder}: {ranks} ranks, {nodes} nodes, {sum(faults.values())} faults")
        for fault, n in sorted(faults.items()):
            print(f"  {fault}: {n}")
        wrong |= bool(faults) or not ranks
        if "--replay" in sys.argv:
            print("  ends, ms: " + ", ".join(f"{1e3 * end:.3f}" for end in replay(folder)))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
