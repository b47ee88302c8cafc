"""Records the small PyTorch traces in tests/traces: execution trace and Kineto trace of the same run, on the CPU.

Usage: python scripts/record_traces.py [OUT_DIR]      (needs PyTorch, any build with the gloo backend, and for gpt2 transformers)

Writes torch_<case>[_rank<r>]_{host,device}.json.gz. Cases:
  mlp         two training steps of a two-layer perceptron with AdamW
  attention   one training step of one attention block with a convolution in front
  gpt2        one training step of a GPT-2 of Hugging Face: 6 layers, hidden 32, dropout, random weights
  ddp         two processes: DistributedDataParallel, one training step
  collectives two processes: one call of each collective and one send/receive pair
  pipeline, ring, gather, sequence, sharded, experts
              four processes, one training step, one rank kept (host trace alone): a pipeline of four stages and two microbatches; attention with keys
              and values passed around a ring; with keys and values gathered in pairs, gradients summed across them; a block whose tokens are split
              between its products; weights gathered before use; tokens sent to their experts
Cases may be named: python scripts/record_traces.py OUT_DIR pipeline ring
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

WORLD = 2  # of `collectives`


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


class Gather(torch.autograd.Function):
    """Joins the ranks' parts along the first axis; gradients are summed into the parts."""

    @staticmethod
    def forward(ctx, part, group):
        ctx.group = group
        whole = part.new_empty(part.shape[0] * dist.get_world_size(group), *part.shape[1:])
        dist.all_gather_into_tensor(whole, part.contiguous(), group=group)
        return whole

    @staticmethod
    def backward(ctx, grad):
        part = grad.new_empty(grad.shape[0] // dist.get_world_size(ctx.group), *grad.shape[1:])
        dist.reduce_scatter_tensor(part, grad.contiguous(), group=ctx.group)
        return part, None


class Scatter(torch.autograd.Function):
    """Sums the ranks' tensors, each keeps its part along the first axis."""

    @staticmethod
    def forward(ctx, whole, group):
        ctx.group = group
        part = whole.new_empty(whole.shape[0] // dist.get_world_size(group), *whole.shape[1:])
        dist.reduce_scatter_tensor(part, whole.contiguous(), group=group)
        return part

    @staticmethod
    def backward(ctx, grad):
        whole = grad.new_empty(grad.shape[0] * dist.get_world_size(ctx.group), *grad.shape[1:])
        dist.all_gather_into_tensor(whole, grad.contiguous(), group=ctx.group)
        return whole, None


class Exchange(torch.autograd.Function):
    """Sends an equal part of the rows to each rank."""

    @staticmethod
    def forward(ctx, rows, group):
        ctx.group = group
        out = torch.empty_like(rows)
        dist.all_to_all_single(out, rows.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous(), group=ctx.group)
        return out, None


def pipeline(rank):
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(2, 8, 32)

    def step():
        kept = []
        for n in range(2):
            given = x[n].clone()
            if rank > 0:
                dist.recv(given, rank - 1)
            given.requires_grad_(rank > 0)
            out = net(given)
            kept.append((given, out))
            if rank < 3:
                dist.send(out.detach(), rank + 1)
        for given, out in kept:
            if rank < 3:
                grad = torch.empty_like(out)
                dist.recv(grad, rank + 1)
                out.backward(grad)
            else:
                out.square().mean().backward()
            if rank > 0:
                dist.send(given.grad, rank - 1)
        opt.step()
        opt.zero_grad()

    return step


def ring(rank):
    qkv, proj = nn.Linear(32, 96), nn.Linear(32, 32)
    x = torch.randn(1, 16, 32)

    def step():
        with torch.no_grad():
            q, k, v = qkv(x).view(1, 16, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
            total = F.scaled_dot_product_attention(q, k, v)
            block = torch.stack((k, v))
            for _ in range(3):
                nearer = torch.empty_like(block)
                send, recv = dist.isend(block, (rank + 1) % 4), dist.irecv(nearer, (rank - 1) % 4)
                send.wait(), recv.wait()
                block = nearer
                # Not the sum that an attention over all blocks weighs: the work and the messages are the same.
                total = total + F.scaled_dot_product_attention(q, block[0], block[1])
            proj(total.transpose(1, 2).reshape(1, 16, 32))

    return step


def gather(rank):
    near = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    across = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    qkv, proj = nn.Linear(32, 96), nn.Linear(32, 32)
    params = [*qkv.parameters(), *proj.parameters()]
    opt = torch.optim.SGD(params, lr=0.1)
    x = torch.randn(16, 32)

    def step():
        q, k, v = qkv(x).view(16, 3, 4, 8).unbind(1)
        k, v = Gather.apply(k, near), Gather.apply(v, near)
        q, k, v = (t.transpose(0, 1).unsqueeze(0) for t in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v)
        proj(a.squeeze(0).transpose(0, 1).reshape(16, 32)).square().mean().backward()
        for p in params:
            dist.all_reduce(p.grad, group=across)
        opt.step()
        opt.zero_grad()

    return step


def sequence(rank):
    norm, up, down = nn.LayerNorm(32), nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False)
    opt = torch.optim.SGD([p for m in (norm, up, down) for p in m.parameters()], lr=0.1)
    x = torch.randn(8, 32)

    def step():
        y = x
        for _ in range(2):
            y = y + Scatter.apply(down(F.gelu(up(Gather.apply(norm(y), None)))), None)
        norm(y).square().mean().backward()
        opt.step()
        opt.zero_grad()

    return step


def sharded(rank):
    shards = [nn.Parameter(torch.randn(8, 32) / 6) for _ in range(3)]
    opt = torch.optim.SGD(shards, lr=0.1)
    x = torch.randn(16, 32)

    def step():
        y = x
        for shard in shards:
            y = torch.relu(F.linear(y, Gather.apply(shard, None)))
        y.square().mean().backward()
        opt.step()
        opt.zero_grad()

    return step


def experts(rank):
    gate, up, down = nn.Linear(32, 4), nn.Linear(32, 64), nn.Linear(64, 32)
    opt = torch.optim.SGD([p for m in (gate, up, down) for p in m.parameters()], lr=0.1)
    x = torch.randn(16, 32)

    def step():
        y = x
        for _ in range(2):
            weight, order = gate(y).softmax(-1).max(-1)
            rows = Exchange.apply(y[order.argsort()] * weight[:, None], None)
            y = y + Exchange.apply(down(F.gelu(up(rows))), None)
        y.square().mean().backward()
        opt.step()
        opt.zero_grad()

    return step


# Processes and, where one rank is kept, which.
WORLDS = {
    ddp: (2, None),
    collectives: (2, None),
    pipeline: (4, 1),
    ring: (4, 0),
    gather: (4, 0),
    sequence: (4, 0),
    sharded: (4, 0),
    experts: (4, 0),
}


def worker(rank, out, store, name):
    torch.set_num_threads(1)
    torch.manual_seed(7)
    case = globals()[name]
    world, kept = WORLDS[case]
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world)
    prefix = os.path.join(out, f"torch_{name}_rank{rank}")
    record(prefix, case(rank), 1)
    if kept is not None:
        os.remove(prefix + "_device.json.gz")
        if rank != kept:
            os.remove(prefix + "_host.json.gz")
    dist.barrier()
    dist.destroy_process_group()


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "tests/traces"
    wanted = sys.argv[2:]
    os.makedirs(out, exist_ok=True)
    torch.set_num_threads(1)
    for case, steps in ((mlp, 2), (attention, 1), (gpt2, 1)):
        if not wanted or case.__name__ in wanted:
            torch.manual_seed(7)
            record(os.path.join(out, "torch_" + case.__name__), case(), steps)
    for case, (world, _) in WORLDS.items():
        if not wanted or case.__name__ in wanted:
            with tempfile.TemporaryDirectory() as folder:
                mp.spawn(worker, args=(out, os.path.join(folder, "store"), case.__name__), nprocs=world)
    print("recorded with PyTorch", torch.__version__)


if __name__ == "__main__":
    main()
