"""`fused_linear`: a backend of torch.compile that fuses a linear layer and its activation into one kernel.

model = torch.compile(model, backend=fused_linear())

The backend rewrites torch.compile's graph, then calls another backend. Nothing in this package uses it by default.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.nn import functional

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.kernels.host.matmul import HALVES
from blackwell_matmul.ops.functions import linear
from blackwell_matmul.problem.form import check_flag

LINEAR_FUNCTIONS = (functional.linear, torch._C._nn.linear)
GELU = (functional.gelu, torch._C._nn.gelu)
OTHERS: Mapping[Any, str] = {torch.relu: "relu", functional.relu: "relu", functional.silu: "silu"}
MODES = (
    torch._C._set_grad_enabled,
    torch.amp.autocast_mode._enter_autocast,
    torch.amp.autocast_mode._exit_autocast,
    torch.autograd.grad_mode._enter_inference_mode,
    torch.autograd.grad_mode._exit_inference_mode,
)
"""Functions that change grad mode, autocast or inference mode for later nodes. No fusion crosses such a change."""
Backend = Callable[..., Any]


def fused_linear(backend: str | Backend = "inductor", *, simulate: bool = False) -> Backend:
    """Return a backend for `torch.compile(backend=...)`.

    The backend replaces a linear layer of 16-bit tensors and its activation by `blackwell_matmul.linear`, if nothing
    else reads the layer's result. Then `backend` compiles the graph, with torch.compile's `mode` and `options`.
    simulate: True also runs CPU tensors, in the simulator.
    """
    check_flag("simulate", simulate)
    if not (isinstance(backend, str) or callable(backend)):
        raise InputError(f"backend is {shown(backend)}; it must be a name of torch.compile, or a function.")

    def compiled(graph: GraphModule, inputs: list[Tensor], **how: Any) -> Any:
        fuse(graph, simulate)
        return _inner(backend, **how)(graph, inputs)

    return compiled


def _inner(backend: str | Backend, **how: Any) -> Callable[[GraphModule, list[Tensor]], Any]:
    """Return the function of the inner backend. how: the mode and options given to torch.compile."""
    from torch._dynamo.backends.registry import lookup_backend

    if backend == "inductor" and how:  # inductor's function in torch's registry takes neither mode nor options
        return cast(Backend, torch._TorchCompileInductorWrapper(how.get("mode"), how.get("options"), None))
    return functools.partial(lookup_backend(backend) if isinstance(backend, str) else backend, **how)


def fuse(graph: GraphModule, simulate: bool = False) -> int:
    """Rewrite a graph of torch's functions in place; return the number of fused layers.

    The fused node stands in the place of the linear layer: later nodes may change the operands in place.
    """
    found = list(_layers(graph, simulate))
    for layer, activated, activation in found:
        with graph.graph.inserting_before(layer):
            made = graph.graph.call_function(linear, (*_operands(layer), activation), {"simulate": simulate})
        made.meta = dict(activated.meta)
        activated.replace_all_uses_with(made)
        graph.graph.erase_node(activated)
        graph.graph.erase_node(layer)
    graph.recompile()
    return len(found)


def _layers(graph: GraphModule, simulate: bool) -> Iterator[tuple[Node, Node, str]]:
    if any(_derives(node) for node in graph.graph.nodes):
        return
    modes, region = 0, {}  # region: number of mode changes before each node
    for node in graph.graph.nodes:
        modes += node.target in MODES
        region[node] = modes
        activation, layer = _activation(node), _argument(node, 0, "input")
        if not activation or not isinstance(layer, Node) or layer.target not in LINEAR_FUNCTIONS:
            continue
        if region[layer] == modes and len(layer.users) == 1 and _ours(layer, simulate):
            yield layer, node, activation


def _derives(node: Node) -> bool:
    """Return True if a node belongs to torch.func or forward mode, which `linear` does not support."""
    where = f"{getattr(node.target, '__module__', '')}.{getattr(node.target, '__name__', '')}"
    return node.op == "call_function" and ("functorch" in where or "_dual" in where)


def _argument(node: Node, place: int, name: str) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name)


def _operands(layer: Node) -> tuple[Any, Any, Any]:
    return _argument(layer, 0, "input"), _argument(layer, 1, "weight"), _argument(layer, 2, "bias")


def _activation(node: Node) -> str:
    """Return the name of the activation that a graph node applies; "" for other nodes and for in-place activations."""
    if node.op != "call_function" or _argument(node, 1, "inplace") or node.kwargs.get("out") is not None:
        return ""
    if node.target in GELU:
        return "gelu_tanh" if node.kwargs.get("approximate") == "tanh" else "gelu"
    return OTHERS.get(node.target, "")


def _ours(layer: Node, simulate: bool) -> bool:
    """Return True if a kernel accepts the types and shapes of the layer's tensors."""
    x, w, bias = map(_example, _operands(layer))
    given = [x, w] if bias is None else [x, w, bias]
    return (
        all(isinstance(each, Tensor) and _taken(each, simulate) for each in given)
        and x.dim() > 0
        and w.dim() == 2
        and (bias is None or bias.shape == w.shape[:1])
        and layer.kwargs.get("out") is None
    )


def _example(operand: Any) -> Any:
    return operand.meta.get("example_value") if isinstance(operand, Node) else operand


def _taken(x: Tensor, simulate: bool) -> bool:
    return x.dtype in HALVES and (x.is_cuda or (simulate and x.device.type == "cpu"))
