#!/usr/bin/env python3
"""Constants of inference: products and kernels on A100 and MI210, serving on A100 (TensorRT-LLM) and SN40L.

    inference.py DATA report       errors of the shipped constants, row by row
    inference.py DATA fit          the constants that were fitted, and every model left out in turn

DATA is a folder with published_points.csv. Needs numpy and scipy. The model is that of src/execution/inference in a few lines: products by
tiles and waves, caches by their bytes, collectives by hops and bytes, waves where the cache does not fit.
"""
import csv
import math
import re
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

# Rows, columns, rate, most splits of k.
TILES = [(256, 128, 1.0, 4), (128, 256, 1.0, 4), (128, 128, 0.9, 4), (256, 64, 0.8, 4)]
TILES += [(64, 256, 0.8, 4), (128, 64, 0.7, 1), (64, 128, 0.7, 1), (64, 64, 0.5, 1)]
FILL = 2.175e-9
# Set by hand against the rows that docs/accuracy-inference.md names; `host` is published by LLMCompass.
A100 = dict(peak=312e12, hbm=2.039e12, memory=0.87, units=108, efficiency=0.92, batched=0.6, launch=5e-6,
            host=dict(product=21e-6, softmax=12e-6, norm=45e-6, function=45e-6), link=210e9, reduce=24e-6)
MI210 = dict(peak=181e12, hbm=1.638e12, memory=0.75, units=104, efficiency=0.68, launch=0, wait=42e-9, host=dict(product=34e-6))
# Fitted (start, least, most, shipped). Caches: share of the bandwidth that products reach.
TENSORRT = dict(kernel=(6e-6, 2e-6, 1.2e-5, 8.3e-6), grouped=(0.7, 0.35, 1.0, 0.624), sequence=(1e-5, 0, 5e-5, 32e-6))
SAMBANOVA = dict(hop=(0.5e-6, 0, 1e-5, 0.15e-6), cache=(0.32, 0.1, 1.0, 0.3175), request=(0.03, 0, 0.1, 65e-3))
MODELS = {
    "llama-2-7b": (32, 4096, 32, 32, 11008, 32000),
    "llama-2-70b": (80, 8192, 64, 8, 28672, 32000),
    "llama-3-8b": (32, 4096, 32, 8, 14336, 128256),
    "llama-3-70b": (80, 8192, 64, 8, 28672, 128256),
    "mistral-7b": (32, 4096, 32, 8, 14336, 32000),
}


def product(c, batch, m, n, k, efficiency=None):
    rate, bandwidth = c["peak"] * (efficiency or c["efficiency"]), c["hbm"] * c["memory"]
    best = math.inf
    for rows, columns, share, most in TILES:
        splits = 1
        while splits <= most:
            waves = math.ceil(batch * math.ceil(m / rows) * math.ceil(n / columns) * splits / c["units"])
            t = waves * (2 * rows * columns * (k / splits) / (rate / c["units"] * share) + FILL)
            best = min(best, t + (8 * splits * batch * m * n / bandwidth if splits > 1 else 0))
            splits *= 2
    if "wait" in c:
        tiles = min(batch * math.ceil(m / r) * math.ceil(n / q) for r, q, _, _ in TILES[:3])
        best = max(best, math.ceil(tiles / (4 * c["units"])) * k * c["wait"])
    return max(best, 2 * batch * (m * k + k * n + m * n) / bandwidth) + c["launch"]


def kernel(row_id):
    """Milliseconds of a row of LLMCompass; None for others."""
    if "llmcompass-mm" in row_id:
        c = A100 if "a100" in row_id else MI210
        m, k, n = map(int, row_id.split("-")[-1].split("x"))
        return 1e3 * (product(c, 1, m, n, k) + c["host"]["product"])
    if "gpt3layer" not in row_id:
        return None
    c, name, h, batch = A100, row_id.split("-")[-1], 12288, 8
    decode = "decode" in row_id
    tokens, seen, asked = (batch, 3072, 1) if decode else (batch * 2048, 2048, 2048)
    heads, bandwidth, host, x = 24 * batch, c["hbm"] * c["memory"], c["host"], 2 * tokens * h
    vector = lambda size, what: size / bandwidth + c["launch"] + host[what]
    of = {
        "Q_K_V": lambda: 3 * (product(c, 1, tokens, h // 4, h) + host["product"]),
        "Wo_proj": lambda: product(c, 1, tokens, h, h // 4) + host["product"],
        "W1_proj": lambda: product(c, 1, tokens, h, h) + host["product"],
        "W2_proj": lambda: product(c, 1, tokens, h, h) + host["product"],
        "Q_mul_K": lambda: product(c, heads, asked, seen, 128, c["batched"]) + host["product"],
        "A_mul_V": lambda: product(c, heads, asked, 128, seen, c["batched"]) + host["product"],
        "Softmax": lambda: vector(6 * heads * asked * seen, "softmax"),
        "LayerNorm_MHA": lambda: vector(3 * x, "norm"),
        "LayerNorm_FFN": lambda: vector(3 * x, "norm"),
        "GeLU": lambda: vector(2 * x, "function"),
        "AllReduce_MHA": lambda: 1.5 * x / c["link"] + c["reduce"],
        "AllReduce_FFN": lambda: 1.5 * x / c["link"] + c["reduce"],
    }
    return 1e3 * of[name]()


def tensorrt(model, batch, tp, pp, overlapped, seq, q):
    """Seconds of a batch on A100 of 40 GB: `seq` tokens read, as many written."""
    layers, h, heads, shared, ffn, words = MODELS[model]
    d, memory = h // heads, 1.555e12 * 0.87
    c = dict(peak=312e12, hbm=1.555e12, memory=0.87, units=108, efficiency=0.92, launch=q["kernel"])
    weights = 2 * ((h * (heads + 2 * shared) * d + heads * d * h + 3 * h * ffn) * layers + 2 * words * h)
    per_token = 4 * shared * d * layers
    # Of what weights leave, 0.9 is cache: as many sequences at once.
    most = max(1, int((40 * 1024**3 - weights / (tp * pp)) * 0.9 / (per_token / (tp * pp)) // (2 * seq)))

    def layer(rows, seen, prompt):
        t = product(c, 1, rows, (heads + 2 * shared) * d / tp, h) + product(c, 1, rows, h, heads * d / tp)
        t += product(c, 1, rows, 2 * ffn / tp, h) + product(c, 1, rows, h, ffn / tp)
        if prompt:
            t += 2 * rows * seen * h / tp / (c["peak"] * 0.5)
        else:
            share = 1 if shared == heads or overlapped else q["grouped"]
            t += rows * seen * 4 * shared * d / tp / (memory * share)
        t += 4 * c["launch"] + 4 * (6 * rows * h + 3 * rows * ffn / tp) / memory
        if tp > 1:
            t += 2 * (20e-6 + 2 * math.ceil(math.log2(tp)) * 1e-6 + 4 * (tp - 1) / tp * rows * h / 210e9)
        return t

    def wave(n):
        count = math.ceil(n / math.ceil(batch / pp))
        each = n / count
        head = lambda rows: product(c, 1, rows, words / tp, h) + 16 * rows * words / memory
        read = layer(each * seq, seq, True) * layers / pp
        step = layer(each, 1.5 * seq, False) * layers / pp
        host = seq * n * q["sequence"]
        if pp == 1:
            return read + head(n) + seq * (step + head(n)) + host
        hop = each * h * 2 / 200e9
        if overlapped:
            return read * (count + pp - 1) + seq * (pp * (step + hop) + head(each)) + host
        return count * (pp * read + head(each) + seq * (pp * (step + hop) + head(each))) + host

    full, rest = divmod(batch, most)
    return full * wave(min(most, batch)) + (wave(rest) if rest else 0)


def sambanova(model, batch, seq, q):
    layers, h, heads, shared, ffn, words = MODELS[model]
    d, chips, bandwidth = h // heads, 8, 8 * 1.6e12
    weights = 2 * ((h * (heads + 2 * shared) * d + heads * d * h + 3 * h * ffn) * layers + words * h)
    compiled = 4096
    while 2 * seq >= compiled:
        compiled *= 2
    reduce = lambda size: 2 * layers * (2 / chips * size / 5e10 + 2 * q["hop"])
    step = weights / (bandwidth * 0.93) + batch * 4 * shared * d * layers * compiled / (bandwidth * 0.93 * q["cache"])
    step += reduce(2 * batch * h)
    read = max(batch * seq * weights / (638e12 * chips * 0.9), weights / (bandwidth * 0.93))
    return read + reduce(2 * batch * seq * h) + q["request"] + seq * step


def serving(rows, chip, q):
    """(id, predicted / measured - 1) of rates."""
    out = []
    for r in rows:
        if not r["id"].startswith("lib") or chip not in r["id"]:
            continue
        model = next(k for k in MODELS if k in r["id"])
        batch, seq, n, notes = int(r["global_batch"]), int(r["seq"]), int(r["chips"]), r["notes"]
        if chip == "a100":
            overlapped = notes.startswith(("TP", "PP", "Hybrid"))
            if r["tp"]:
                tp, pp = int(r["tp"]), int(r["pp"])
            else:
                tp, pp = (2, 2) if notes.startswith("Hyb") else (n, 1) if notes.startswith("TP") else (1, n)
            t = tensorrt(model, batch, tp, pp, overlapped, seq, q)
        else:
            t = sambanova(model, batch, seq, q)
        out.append((r["id"], 2 * batch * seq / t / float(r["value"]) - 1))
    return out


def fit(rows, chip, constants, scale, without=None):
    names = list(constants)
    start, least, most = ([constants[n][i] for n in names] for i in range(3))
    rows = [r for r in rows if without is None or without not in r["id"]]
    found = least_squares(
        lambda x: [math.log1p(e) for _, e in serving(rows, chip, dict(zip(names, x)))], start, bounds=(least, most),
        loss="soft_l1", f_scale=scale, diff_step=1e-3, x_scale=np.abs(start) + 1e-12)
    return dict(zip(names, found.x))


def summary(errors):
    x = 100 * np.array([e for _, e in errors])
    return f"n {len(x)}  mean {abs(x).mean():.2f} %  signed {x.mean():+.2f} %  worst {x[abs(x).argmax()]:+.1f} %"


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in ("report", "fit"):
        sys.exit(__doc__)
    table = csv.DictReader(open(Path(sys.argv[1]) / "published_points.csv"))
    rows = [r for r in table if re.match(r"lib|llmcompass", r["id"])]
    single = [(r["id"], kernel(r["id"]) / float(r["value"]) - 1) for r in rows if kernel(r["id"])]
    for chip, constants, scale in (("a100", TENSORRT, 0.08), ("sn40", SAMBANOVA, 0.05)):
        shipped = {k: v[3] for k, v in constants.items()}
        errors = serving(rows, chip, shipped)
        if sys.argv[2] == "report":
            for name, error in single + errors if chip == "a100" else errors:
                print(f"{name:48} {100 * error:+6.1f} %")
        print(chip, "shipped:", summary(errors))
        if sys.argv[2] == "fit":
            found = fit(rows, chip, constants, scale)
            print(chip, "fitted:", {k: float(f"{v:.4g}") for k, v in found.items()}, summary(serving(rows, chip, found)))
            for model in MODELS:
                out = [r for r in rows if model in r["id"]]
                if serving(out, chip, shipped):
                    print("  without", model, summary(serving(out, chip, fit(rows, chip, constants, scale, model))))
    if sys.argv[2] == "report":
        print("kernels:", summary(single))


if __name__ == "__main__":
    main()
