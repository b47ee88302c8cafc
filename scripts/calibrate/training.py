#!/usr/bin/env python3
"""Constants of the A100 and its training stacks, fitted to measured iterations.

    training.py DATA report       errors of the shipped constants by class
    training.py DATA fit [SECONDS] least squares from START, then a local search on mean error and bias (150 s)
    training.py DATA leave-out    every model left out in turn, fitted again, predicted

DATA is a folder with vtrain_single_node.csv, vtrain_multi_node.csv and published_points.csv. Needs numpy and scipy.
The model is that of src/execution in vector form: one row an entry, equal stages, ends on the first and last of them.
"""
import csv
import sys
import time
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

PEAK, HBM, UNITS = 312e12, 2.039e12, 108
VOCABULARY = 51200
# Start, least, most; then what is shipped in systems/ (README.md says where).
CONSTANTS = {
    "product": (0.85, 0.6, 1.0, 0.846),  # share of the peak, products
    "batched": (0.5, 0.1, 1.0, 0.2412),  # the same, batched products
    "memory": (0.78, 0.7, 0.9, 0.7012),  # share of the memory's bandwidth
    "launch": (3e-6, 1e-6, 7e-6, 4.363e-6),
    "forward": (0.9e-3, 0.1e-3, 3e-3, 0.8774e-3),  # host, a layer
    "backward": (1.2e-3, 0.1e-3, 4e-3, 2.278e-3),
    "again": (0.9e-3, 0.1e-3, 5e-3, 3.607e-3),
    "peer": (0.05e-3, 0, 0.5e-3, 31.68e-6),  # host, a collective and peer
    "iteration": (10e-3, 0, 80e-3, 72.9e-6),
    "microbatch": (2e-3, 0, 20e-3, 82.5e-6),
    "exponent": (2.0, 1.0, 8.0, 4.516),  # of the smooth maximum of host and device
    "nvlink": (230e9, 180e9, 250e9, 205.96e9),
    "collective": (20e-6, 10e-6, 150e-6, 59.84e-6),
    "outer": (0.8, 0.4, 1.0, 0.9977),  # share of the links between boxes
    "outer_latency": (30e-6, 5e-6, 300e-6, 156.0e-6),
    "optimizer": (30.0, 12, 60, 17.38),  # bytes a weight
    "hand_over": (0.5e-3, 0, 5e-3, 0.3334e-3),
    "tile": (0.8, 0.3, 1.0, 0.9994),  # exponent of the rates of smaller tiles
    "fill": (0.0, 0, 3e-6, 2.733e-9),
    "accumulate": (10.0, 8, 12, 8.274),  # bytes a gradient and microbatch
    "head_alone": (0.35, 0.1, 1.0, 0.5434),  # rate of an undivided head, single nodes
    "loose": (1.5, 0.5, 6.0, 4.389),  # elementwise traffic, single nodes
    "fused": (1.0, 0.6, 2.0, 0.7066),  # the same, Megatron-LM
    "beside": (0.8, 0, 1.0, 0.6054),  # backward collectives beside products, Megatron-LM of 2022
}
NAMES = list(CONSTANTS)
START, LEAST, MOST, SHIPPED = (np.array([c[i] for c in CONSTANTS.values()]) for i in range(4))
TILES = [(256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.9), (256, 64, 0.8)]
TILES += [(64, 256, 0.8), (128, 64, 0.7), (64, 128, 0.7), (64, 64, 0.5)]
# Aim of the mean error of a class in per cent, and its weight in the local search.
AIMS = {"single": (8, 1.0), "nodes": (6.5, 3.0), "table1": (4.5, 0.6), "table5": (3, 0.8)}


def load(folder):
    rows = []

    def add(cls, x, chips, ms, chunks=1, full=True, sequence=False):
        number = {k: int(x[k]) for k in ("global_batch", "micro_batch", "hidden", "heads", "layers", "seq", "tp", "dp", "pp")}
        rows.append({"cls": cls, "chips": chips, "ms": ms, "v": chunks, "full": full, "sp": sequence, **number})

    for file, cls in (("single", "single"), ("multi", "nodes")):
        for x in csv.DictReader(open(folder / f"vtrain_{file}_node.csv")):
            add(cls, x, int(x["gpus"]), float(x["iteration_ms"]))
    for x in csv.DictReader(open(folder / "published_points.csv")):
        known = x["metric"] == "iteration_time" and x["accelerator"] == "A100-80GB" and x["tp"]
        if known and not x["id"].endswith("zero3"):
            cls = "table1" if x["id"].startswith("megatron21") else "table5" if x["id"].startswith("korth") else "other"
            full, sequence = x["recompute"] == "full", x["seq_parallel"] == "yes"
            add(cls, x, int(x["chips"]), float(x["value"]) * 1000, int(x["interleave"] or 1), full, sequence)
    return {k: np.array([r[k] for r in rows], None if k == "cls" else float) for k in rows[0]}


def product(batch, m, n, k, q, efficiency):
    rate, bandwidth = PEAK / UNITS * efficiency, HBM * q["memory"]
    best = None
    for rows, columns, share in TILES:
        for splits in (1, 2, 4) if rows * columns >= 128 * 128 else (1,):
            waves = np.ceil(batch * np.ceil(m / rows) * np.ceil(n / columns) * splits / UNITS)
            t = waves * (2 * rows * columns * (k / splits) / (rate * share ** q["tile"]) + q["fill"])
            t = t + (0 if splits == 1 else batch * m * n * 8 * splits / bandwidth)
            best = t if best is None else np.minimum(best, t)
    return np.maximum(best, 2 * batch * (m * k + k * n + m * n) / bandwidth) + q["launch"]


def vector(size, kernels, q):
    return size / (HBM * q["memory"]) + kernels * q["launch"]


def predict(constants, d):
    """Seconds of an iteration of each row."""
    q = dict(zip(NAMES, constants))
    b, s, h, a, t, p, r, layers, v = (d[k] for k in ("micro_batch", "seq", "hidden", "heads", "tp", "pp", "dp", "layers", "v"))
    V = VOCABULARY
    single, nodes, late = d["cls"] == "single", d["cls"] == "nodes", d["cls"] == "table5"
    # vTrain's single-node rows are faster than the peak allows with recomputation.
    full = np.where(single, 0.0, d["full"])
    outer = q["outer"] * np.where(single | nodes, 12.5e9, 25e9)
    accumulate = np.where(single | late, q["accumulate"] - 4, q["accumulate"])
    loose = np.where(single, q["loose"], q["fused"])
    reduced = np.where(single, 1, 2)
    m = d["global_batch"] / (r * b)
    tokens, scores, dim = b * s, 2 * b * a / t * s * s, h / a
    whole = 2 * tokens * h
    part = np.where(d["sp"] > 0, whole / t, whole)
    e, eb = q["product"], q["batched"]

    def sum_of(shapes):
        return sum(product(1, *shape, q, e) for shape in shapes)

    f_mm = sum_of([(tokens, 3 * h / t, h), (tokens, h, h / t), (tokens, 4 * h / t, h), (tokens, h, 4 * h / t)])
    b_mm = sum_of([(tokens, h, 3 * h / t), (tokens, h / t, h), (tokens, h, 4 * h / t), (tokens, 4 * h / t, h)])
    b_mm = b_mm + sum_of([(3 * h / t, h, tokens), (h, h / t, tokens), (4 * h / t, h, tokens), (h, 4 * h / t, tokens)])
    core = product(b * a / t, s, s, dim, q, eb) + product(b * a / t, s, dim, s, q, eb)
    softmax = vector(4.5 * scores, 3, q)
    forward = f_mm + core + softmax + vector(loose * 11 * part + 16 * whole / t, 9, q)
    backward = b_mm + 2 * core + vector(5.5 * scores, 3, q) + vector(loose * 12 * part + 20 * whole / t, 14, q)
    backward = backward + 12 * h * h / t * accumulate / (HBM * q["memory"])
    # Tensor parallelism: one all-reduce, within a box and beyond.
    inside, boxes = np.minimum(t, 8), np.ceil(t / 8)
    once = 2 * (inside - 1) / inside * whole / q["nvlink"] + q["collective"] * (inside > 1)
    once = once + np.where(boxes > 1, 2 * (boxes - 1) / boxes * whole / inside / outer + 2 * q["outer_latency"], 0)
    once = np.where(t > 1, once, 0)
    peers = 2 * q["peer"] * (inside - 1)

    def slower(device, host):
        return (device ** q["exponent"] + host ** q["exponent"]) ** (1 / q["exponent"])

    again = np.where(full > 0, forward + 2 * once, np.where(d["sp"] > 0, core + softmax, 0))
    host_again = np.where(full > 0, q["again"] + peers, 0)
    f = slower(forward + 2 * once, q["forward"] + peers)
    g = slower(backward + 2 * once * np.where(late, 1 - q["beside"], 1) + again, q["backward"] + peers + host_again)
    # Ends.
    eh = np.where((t > 1) | ~single, 1.0, q["head_alone"]) * e
    head = product(1, tokens, V / t, h, q, eh) + product(1, tokens, h, V / t, q, eh) + product(1, V / t, h, tokens, q, eh)
    head = head + vector(tokens * V / t * 22, 8, q) + vector(8 * part, 4, q) + once
    embedding = vector(6 * whole, 6, q) + once
    # Stages.
    link = np.where(t * r >= 8, outer, q["nvlink"])
    hop = np.where(p > 1, 2 * (whole / t / link + q["outer_latency"]) + q["hand_over"], 0)
    stage = layers / p * (f + g) + hop
    longest = np.where(p > 1, stage + np.maximum(head, embedding), stage + head + embedding) + q["microbatch"]
    total = m * longest + (p - 1) * stage / v + np.where(v > 1, m * (v - 1) * hop, 0)
    # Gradients, optimiser, tied embedding.
    weights = (12 * h * h + 13 * h) * layers / p / t + V * h / t
    size = weights * 2 * reduced
    near = np.minimum(r, np.maximum(1, 8 / t))
    far = r / near
    total = total + np.where(near > 1, 2 * (near - 1) / near * size / q["nvlink"], 0)
    total = total + np.where(far > 1, 2 * (far - 1) / far * size / near / outer + far * q["outer_latency"], 0)
    total = total + weights * q["optimizer"] / (HBM * q["memory"]) + q["iteration"]
    return total + np.where(p > 1, 2 * V * h / t * reduced / outer, 0)


def errors(constants, d):
    return predict(constants, d) * 1000 / d["ms"] - 1


def report(constants, d):
    error = 100 * errors(constants, d)
    for cls in ("single", "nodes", "table1", "table5", "other"):
        x = error[d["cls"] == cls]
        worst = x[abs(x).argmax()]
        print(f"{cls:7} n {len(x):3}  mean {abs(x).mean():5.2f} %  signed {x.mean():+5.2f} %  worst {worst:+5.1f} %")


def squares(start, d, keep=None, most=None):
    weight = {"single": 1 / np.sqrt(684 / 200), "nodes": 1.2, "other": 0.3, "table5": 4, "table1": 2.5}
    w = np.array([weight[c] for c in d["cls"]])
    keep = np.ones(len(w), bool) if keep is None else keep
    x0 = np.clip(start, LEAST + 1e-9 * (MOST - LEAST), MOST - 1e-9 * (MOST - LEAST))
    found = least_squares(
        lambda x: (w * np.log1p(errors(x, d)))[keep], x0, bounds=(LEAST, MOST), max_nfev=most, loss="soft_l1",
        f_scale=0.1, diff_step=1e-3, x_scale=np.maximum(abs(x0), 1e-9))
    return found.x


def local(start, d, seconds):
    """Random steps on the sum of mean errors over their aims, with a penalty for bias."""
    span = MOST - LEAST

    def value(z):
        error = 100 * errors(LEAST + span / (1 + np.exp(-z)), d)
        out = 0
        for cls, (aim, weight) in AIMS.items():
            x = error[d["cls"] == cls]
            out += weight * abs(x).mean() / aim + weight * max(0, abs(x.mean()) / (aim / 3) - 0.8) * 0.5
        return out

    x = np.clip((start - LEAST) / span, 1e-12, 1 - 1e-12)
    z = np.clip(np.log(x / (1 - x)), -6, 6)
    best, step, random = value(z), np.full(len(z), 0.5), np.random.default_rng(1)
    until = time.time() + seconds
    while time.time() < until:
        i, y = random.integers(len(z)), z.copy()
        if random.random() < 0.7:
            y[i] += random.normal() * step[i]
        else:
            y += random.normal(size=len(z)) * 0.1
        y = np.clip(y, -7, 7)
        new = value(y)
        if new < best:
            best, z, step[i] = new, y, min(step[i] * 1.5, 3)
        else:
            step[i] = max(step[i] * 0.95, 0.02)
    return LEAST + span / (1 + np.exp(-z))


def leave_out(d):
    key = np.array([f"{int(h)}x{int(n)}" for h, n in zip(d["hidden"], d["layers"])])
    sums = {}
    for model in sorted(set(key[d["cls"] != "other"])):
        # A model is left out in every class that has it.
        error = 100 * errors(squares(SHIPPED, d, key != model, 8), d)
        for cls in AIMS:
            x = error[(key == model) & (d["cls"] == cls)]
            if len(x):
                sums.setdefault(cls, []).extend(x)
                print(f"{cls:7} {model:10} n {len(x):3}  mean {abs(x).mean():5.2f} %  signed {x.mean():+5.2f} %", flush=True)
    for cls, x in sums.items():
        print(f"{cls:7} together   n {len(x):3}  mean {np.mean(np.abs(x)):5.2f} %  signed {np.mean(x):+5.2f} %")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    d = load(Path(sys.argv[1]))
    if sys.argv[2] == "report":
        report(SHIPPED, d)
    elif sys.argv[2] == "fit":
        found = local(squares(START, d), d, float(sys.argv[3]) if len(sys.argv) > 3 else 150)
        for name, value, shipped in zip(NAMES, found, SHIPPED):
            print(f"{name:14} {value:.4g} (shipped {shipped:.4g})")
        report(found, d)
    elif sys.argv[2] == "leave-out":
        leave_out(d)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
