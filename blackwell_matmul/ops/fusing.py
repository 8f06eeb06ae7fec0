"""`fused_linear`: a backend of torch.compile that makes one kernel of a linear layer and its activation.

    model = torch.compile(model, backend=fused_linear())

Off unless it is asked for: what torch.compile hands on is rewritten, and then given to another backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.nn import functional

from blackwell_matmul.errors import InputError
from blackwell_matmul.kernels.matmul import HALVES
from blackwell_matmul.ops.functions import linear
from blackwell_matmul.ops.operand_checks import check_simulate
from blackwell_matmul.validation import shown

LINEAR = (functional.linear, torch._C._nn.linear)
GELU = (functional.gelu, torch._C._nn.gelu)
OTHERS: Mapping[Any, str] = {torch.relu: "relu", functional.relu: "relu", functional.silu: "silu"}
Backend = Callable[[GraphModule, list[torch.Tensor]], Any]


def fused_linear(backend: str | Backend = "inductor", *, simulate: bool = False) -> Backend:
    """What `torch.compile(backend=...)` takes: each activation of a linear layer of 16-bit tensors, that nobody else
    reads before it, becomes `blackwell_matmul.linear`; then `backend` compiles the rest.

    simulate: CPU tensors too, in the simulator.
    """
    check_simulate(simulate)
    if not (isinstance(backend, str) or callable(backend)):
        raise InputError(f"backend is {shown(backend)}; it must be a name of torch.compile, or a function.")

    def compiled(graph: GraphModule, inputs: list[torch.Tensor]) -> Any:
        from torch._dynamo.backends.registry import lookup_backend

        fuse(graph, simulate)
        return (lookup_backend(backend) if isinstance(backend, str) else backend)(graph, inputs)

    return compiled


def fuse(graph: GraphModule, simulate: bool = False) -> int:
    """Rewrite a graph of torch's functions in place; how many layers became one kernel."""
    found = list(_layers(graph, simulate))
    for layer, activated, activation in found:
        x, w, *bias = layer.args
        given = (bias or [layer.kwargs.get("bias")])[0]
        with graph.graph.inserting_before(activated):
            made = graph.graph.call_function(linear, (x, w, given, activation), {"simulate": simulate})
        made.meta = dict(activated.meta)
        activated.replace_all_uses_with(made)
        graph.graph.erase_node(activated)
        graph.graph.erase_node(layer)
    graph.recompile()
    return len(found)


def _layers(graph: GraphModule, simulate: bool) -> Iterator[tuple[Node, Node, str]]:
    for node in graph.graph.nodes:
        activation = _activation(node)
        layer = node.args[0] if activation and node.args else None
        if isinstance(layer, Node) and layer.target in LINEAR and len(layer.users) == 1 and _ours(layer, simulate):
            yield layer, node, activation


def _activation(node: Node) -> str:
    """By our name; "" for what is none."""
    if node.target in GELU:
        return "gelu_tanh" if node.kwargs.get("approximate") == "tanh" else "gelu"
    return "" if node.kwargs.get("inplace") else OTHERS.get(node.target, "")


def _ours(layer: Node, simulate: bool) -> bool:
    """Whether all its tensors are what a kernel takes."""
    tensors = [each.meta.get("example_value") for each in layer.all_input_nodes]
    return all(
        isinstance(each, torch.Tensor)
        and each.dtype in HALVES
        and (each.is_cuda or (simulate and each.device.type == "cpu"))
        for each in tensors
    )
