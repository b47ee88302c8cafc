"""Records small ATen graphs (format aten-fx-json/1) for tests/traces, with the FLOP that PyTorch itself counts.

Usage: python scripts/record_fx.py [OUT_DIR]      (needs PyTorch; no GPU)

Writes torch_fx_<case>.json.gz. Cases:
  block_infer  one decoder block, forward only: torch.export and its core decompositions
  block_train  the same block with a loss: the joint forward and backward graph of AOTAutograd
  conv_infer   a grouped and a plain convolution with batch norm and pooling

A file holds {format, model, batch, mode, torch, flops, nodes}. A node holds {id, name, op, target, kind, args, kwargs, out}:
`kind` of a placeholder is param, buffer or input; an argument is {"ref": name} or a literal; `out` lists shape, dtype and bytes of each
result. `flops` is the total of torch.utils.flop_counter over one run of the graph, which flowspace must reproduce.
"""
import gzip
import json
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._functorch.aot_autograd import aot_export_module
from torch.utils.flop_counter import FlopCounterMode

WIDTH, HEADS, TOKENS, BATCH = 32, 4, 16, 2


class Block(nn.Module):
    """A decoder block with causal attention."""

    def __init__(self):
        super().__init__()
        self.before = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.behind = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        heads = self.qkv(self.before(x)).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = heads.unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.behind(x))))


class WithLoss(nn.Module):
    """A block and a loss, for the joint graph."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x, y):
        return (F.mse_loss(self.block(x), y),)


class Convolutions(nn.Module):
    """A grouped convolution, a plain one, and what usually stands around them."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(4, 8, 3, padding=1, groups=2)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 16, 3, stride=2, padding=1)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return self.second(x).mean((2, 3))


def result(value):
    """Shape, dtype and bytes of one result; null for what is no tensor."""
    if not isinstance(value, torch.Tensor):
        return {"shape": None}
    return {
        "shape": list(value.shape),
        "dtype": str(value.dtype).removeprefix("torch."),
        "bytes": value.numel() * value.element_size(),
    }


def argument(value):
    """An argument as the format has it."""
    if isinstance(value, torch.fx.Node):
        return {"ref": value.name}
    if isinstance(value, (list, tuple)):
        return [argument(v) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {type(value).__name__: str(value).removeprefix("torch.")}


class Record(torch.fx.Interpreter):
    """Runs a graph and keeps what every node gave."""

    def __init__(self, graph):
        super().__init__(graph)
        self.results = {}

    def run_node(self, node):
        value = super().run_node(node)
        listed = value if isinstance(value, (list, tuple)) else [value]
        self.results[node.name] = [result(v) for v in listed]
        return value


def write(folder, case, mode, graph, values, kinds):
    """Runs the graph once, counts, and writes its file."""
    record = Record(graph)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        record.run(*values)
    nodes = [
        {
            "id": i,
            "name": node.name,
            "op": node.op,
            "target": str(node.target),
            "kind": kinds.get(node.name),
            "args": argument(node.args),
            "kwargs": {key: argument(v) for key, v in node.kwargs.items()},
            "out": record.results.get(node.name, []) if node.op != "output" else [],
        }
        for i, node in enumerate(graph.graph.nodes)
    ]
    document = {
        "format": "aten-fx-json/1",
        "model": case.split("_")[0],
        "batch": BATCH,
        "mode": mode,
        "torch": torch.__version__,
        "flops": int(counter.get_total_flops()),
        "nodes": nodes,
    }
    path = os.path.join(folder, f"torch_fx_{case}.json.gz")
    with open(path, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=9, mtime=0) as out:
        out.write(json.dumps(document, separators=(",", ":")).encode())
    print(path, document["flops"], "FLOP,", len(nodes), "nodes")


def infer(folder, case, model, inputs):
    """The exported forward graph."""
    program = torch.export.export(model.eval(), inputs).run_decompositions()
    signature, state = program.graph_signature, {**program.state_dict, **program.constants}
    kinds, values, given = {}, [], iter(inputs)
    for node in (n for n in program.graph_module.graph.nodes if n.op == "placeholder"):
        for kind, names in (
            ("param", signature.inputs_to_parameters),
            ("buffer", signature.inputs_to_buffers),
            ("buffer", signature.inputs_to_lifted_tensor_constants),
        ):
            if node.name in names:
                kinds[node.name] = kind
                values.append(state[names[node.name]])
                break
        else:
            kinds[node.name] = "input"
            values.append(next(given))
    write(folder, case, "infer", program.graph_module, values, kinds)


def train(folder, case, model, inputs):
    """The joint graph: forward, backward, gradients."""
    graph, signature = aot_export_module(model.train(), inputs, trace_joint=True, output_loss_index=0)
    parameters, buffers, given = dict(model.named_parameters()), dict(model.named_buffers()), iter(inputs)
    kinds, values = {}, []
    for node in (n for n in graph.graph.nodes if n.op == "placeholder"):
        if node.name in signature.inputs_to_parameters:
            kinds[node.name] = "param"
            values.append(parameters[signature.inputs_to_parameters[node.name]].detach())
        elif node.name in signature.inputs_to_buffers:
            kinds[node.name] = "buffer"
            values.append(buffers[signature.inputs_to_buffers[node.name]])
        else:
            kinds[node.name] = "input"
            values.append(next(given))
    write(folder, case, "train", graph, values, kinds)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "tests", "traces")
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(BATCH, TOKENS, WIDTH)
    infer(folder, "block_infer", Block(), (x,))
    train(folder, "block_train", WithLoss(Block()), (x, torch.randn_like(x)))
    infer(folder, "conv_infer", Convolutions(), (torch.randn(BATCH, 4, 16, 16),))


if __name__ == "__main__":
    main()
