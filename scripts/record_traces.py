"""Records the small PyTorch traces in tests/traces: execution trace and Kineto trace of the same run, on the CPU.

Usage: python scripts/record_traces.py [OUT_DIR]      (needs PyTorch, any build with the gloo backend, and for gpt2 transformers)

Writes torch_<case>[_rank<r>]_{host,device}.json.gz. Cases:
  mlp         two training steps of a two-layer perceptron with AdamW
  attention   one training step of one attention block with a convolution in front
  gpt2        one training step of a GPT-2 of Hugging Face: 6 layers, hidden 32, dropout, random weights
  ddp         two processes: DistributedDataParallel, one training step
  collectives two processes: one call of each collective and one send/receive pair
"""
import gzip
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

WORLD = 2


def pack(path):
    """Replaces a JSON file by its gzip, without the indentation and without a time stamp."""
    with open(path) as f:
        data = json.load(f)
    os.remove(path)
    for key in ("traceName",):  # a path of the machine
        data.pop(key, None)
    text = json.dumps(data, separators=(",", ":")).encode()
    with open(path + ".gz", "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as f:
        f.write(text)


def record(prefix, step, active):
    host, device = prefix + "_host.json", prefix + "_device.json"
    observer = ExecutionTraceObserver().register_callback(host)
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=1, active=active, repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(device),
        execution_trace_observer=observer,
    ) as p:
        for _ in range(1 + active):
            step()
            p.step()
    pack(host)
    pack(device)


def mlp():
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
    opt = torch.optim.AdamW(net.parameters())
    x, y = torch.randn(16, 32), torch.randn(16, 8)

    def step():
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()

    return step


def attention():
    conv = nn.Conv1d(8, 32, 3, padding=1)
    norm, qkv, out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
    params = [p for m in (conv, norm, qkv, out) for p in m.parameters()]
    opt = torch.optim.SGD(params, lr=0.1)
    x = torch.randn(2, 8, 16)

    def step():
        t = conv(x).transpose(1, 2)
        q, k, v = qkv(norm(t)).view(2, 16, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out(a.transpose(1, 2).reshape(2, 16, 32)).square().mean().backward()
        opt.step()
        opt.zero_grad()

    return step


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=6, n_embd=32, n_head=2, n_positions=32, vocab_size=100, attn_implementation="sdpa")
    model = GPT2LMHeadModel(config).train()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = torch.randint(0, 100, (2, 16))

    def step():
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        opt.step()
        opt.zero_grad()

    return step


def ddp(rank):
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = torch.randn(16, 32), torch.randn(16, 8)

    def step():
        F.mse_loss(net(x), y).backward()
        opt.step()
        opt.zero_grad()

    return step


def collectives(rank):
    part, whole = torch.randn(64), torch.randn(64 * WORLD)
    parts = [torch.empty(64) for _ in range(WORLD)]

    def step():
        dist.all_reduce(part)
        dist.reduce(part, 0)
        dist.broadcast(part, 1)
        dist.all_gather(parts, part)
        dist.all_gather_into_tensor(whole, part)
        dist.gather(part, parts if rank == 0 else None, 0)
        dist.scatter(part, parts if rank == 0 else None, 0)
        dist.all_to_all_single(torch.empty_like(whole), whole)
        dist.reduce_scatter_tensor(part, whole)
        dist.barrier()
        if rank == 0:
            dist.send(part, 1)
        else:
            dist.recv(part, 0)
        dist.all_reduce(part, async_op=True).wait()

    return step


def worker(rank, out, store, name):
    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=WORLD)
    step = {"ddp": ddp, "collectives": collectives}[name](rank)
    record(os.path.join(out, f"torch_{name}_rank{rank}"), step, 1)
    dist.barrier()
    dist.destroy_process_group()


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "tests/traces"
    os.makedirs(out, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(7)
    record(os.path.join(out, "torch_mlp"), mlp(), 2)
    record(os.path.join(out, "torch_attention"), attention(), 1)
    record(os.path.join(out, "torch_gpt2"), gpt2(), 1)
    for name in ("ddp", "collectives"):
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(worker, args=(out, os.path.join(folder, "store"), name), nprocs=WORLD)
    print("recorded with PyTorch", torch.__version__)


if __name__ == "__main__":
    main()
