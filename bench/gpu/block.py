"""A transformer block with torch's products and with ours in their place: losses, copies, times, memory, kernels.

    python bench/gpu/block.py --out bench/results/block.json

Attention, a SwiGLU MLP and a mixture of experts, in bf16; for inference also with weights and activations of 8 bits.
Three blocks have the same weights: `torch`; `ours`, which multiplies by `linear`, `grouped_matmul` and `scaled_mm`; and
`ours gated`, whose MLP has gate and up in columns in turn, for the epilogue of `linear`. They are trained for some
steps, called eagerly and by torch.compile, and timed in turn, so that a ratio is of one run. The losses of the same
block in fp32 say what rounding alone does. With `--device cpu --size small` all but the times is of the simulator.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import blackwell_matmul as ours

STEPS, RATE = 5, 0.03
"""Of stochastic gradient descent."""
WARM, ROUNDS = 3, 20
"""Calls before any is timed; of all in turn."""
CHOSEN = 2
"""Experts of each token."""
LARGEST = 448.0
"""Of e4m3."""


@dataclass(frozen=True)
class Shape:
    """Of a block. inner: of the MLP; expert_inner: of each expert."""

    batch: int
    tokens: int
    width: int
    heads: int
    inner: int
    experts: int
    expert_inner: int


SIZES = {"large": Shape(2, 2048, 4096, 32, 11008, 8, 2048), "small": Shape(2, 32, 64, 4, 96, 8, 48)}


# --- what multiplies


@dataclass(frozen=True)
class Products:
    """linear(x, w[n, k], residual), grouped(x, w[groups, n, k], ends), scaled(a[m, k], b[k, n], scale_a, scale_b).

    gated: of linear(x, w) with w's rows in turn of gate and up, silu(gate) * up; None: gate and up lie in halves.
    """

    linear: Callable[..., Tensor]
    grouped: Callable[[Tensor, Tensor, Tensor], Tensor]
    scaled: Callable[..., Tensor]
    gated: Callable[[Tensor, Tensor], Tensor] | None = None


def torch_products(device: str) -> Products:
    def linear(x: Tensor, w: Tensor, residual: Tensor | None = None) -> Tensor:
        made = functional.linear(x, w)
        return made if residual is None else residual + made

    def grouped(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
        return torch._grouped_mm(x, w.mT, offs=ends)

    def scaled(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
        if device == "cpu":  # where torch 2.11 has no scales by row
            return (a.float() @ b.float() * scale_a * scale_b).bfloat16()
        return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16)

    return Products(linear, grouped if _groups_have_gradients(device) else one_by_one, scaled)


def _groups_have_gradients(device: str) -> bool:
    """Of torch._grouped_mm, in this torch."""
    where: dict[str, Any] = {"device": device, "dtype": torch.bfloat16, "requires_grad": True}
    x, w = torch.ones(32, 16, **where), torch.ones(2, 32, 16, **where)
    ends = torch.tensor([16, 32], dtype=torch.int32, device=device)
    try:
        torch._grouped_mm(x, w.mT, offs=ends).float().square().sum().backward()
    except (AttributeError, RuntimeError) as error:
        print(f"torch's experts one by one: {error}", file=sys.stderr, flush=True)
        return False
    return x.grad is not None and w.grad is not None


def one_by_one(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    """A linear layer for each group; the host waits for the ends."""
    begins = [0, *ends.tolist()]
    return torch.cat([functional.linear(x[begins[i] : begins[i + 1]], each) for i, each in enumerate(w)])


def our_products(device: str, *, gated: bool = False) -> Products:
    simulate = device == "cpu"

    def linear(x: Tensor, w: Tensor, residual: Tensor | None = None) -> Tensor:
        return ours.linear(x, w, residual=residual, simulate=simulate)

    def grouped(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
        return ours.grouped_matmul(x, w.mT, ends, simulate=simulate)

    def scaled(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
        return ours.scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16, simulate=simulate)

    def swiglu(x: Tensor, w: Tensor) -> Tensor:
        return ours.linear(x, w, None, "swiglu", simulate=simulate)

    return Products(linear, grouped, scaled, swiglu if gated else None)


def contenders(device: str) -> dict[str, Products]:
    return {
        "torch": torch_products(device),
        "ours": our_products(device),
        "ours gated": our_products(device, gated=True),
    }


# --- the block


class Block(nn.Module):
    """x + attention, + MLP, + experts; of x[batch, tokens, width]. Weights are [n, k]."""

    def __init__(self, shape: Shape, by: Products, **where: Any) -> None:
        super().__init__()
        self.shape, self.by = shape, by
        width, inner, experts, expert_inner = shape.width, shape.inner, shape.experts, shape.expert_inner
        sizes = {
            "qkv": (3 * width, width),
            "out": (width, width),
            "gate_up": (2 * inner, width),
            "down": (width, inner),
            "router": (experts, width),
            "experts_in": (experts, 2 * expert_inner, width),
            "experts_out": (experts, width, expert_inner),
        }
        for name, size in sizes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(size, **where) / size[-1] ** 0.5))
        for name in ("attention_norm", "mlp_norm", "experts_norm"):
            self.register_parameter(name, nn.Parameter(torch.ones(width, **where)))

    def forward(self, x: Tensor) -> Tensor:
        return self.mixture(self.mlp(self.attention(x)))

    def multiply(self, x: Tensor, name: str, residual: Tensor | None = None) -> Tensor:
        return self.by.linear(x, getattr(self, name), residual)

    def normed(self, x: Tensor, name: str) -> Tensor:
        return functional.rms_norm(x, (self.shape.width,), getattr(self, name), 1e-5)

    def attention(self, x: Tensor) -> Tensor:
        qkv = self.multiply(self.normed(x, "attention_norm"), "qkv")
        heads = (each.unflatten(-1, (self.shape.heads, -1)).transpose(1, 2) for each in qkv.chunk(3, -1))
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.multiply(seen.transpose(1, 2).flatten(2), "out", x)

    def mlp(self, x: Tensor) -> Tensor:
        z = self.normed(x, "mlp_norm")
        inner = _halves_gated(self.multiply(z, "gate_up")) if self.by.gated is None else self.by.gated(z, self.gate_up)
        return self.multiply(inner, "down", x)

    def mixture(self, x: Tensor) -> Tensor:
        """Each token goes to those of its experts, by their rows in the order of the experts."""
        z = self.normed(x, "experts_norm").flatten(0, 1)
        share, expert = self.multiply(z, "router").float().softmax(-1).topk(CHOSEN)
        order = expert.flatten().argsort(stable=True)
        every = torch.arange(self.shape.experts, device=x.device)
        ends = (expert.flatten()[:, None] == every).sum(0).cumsum(0).to(torch.int32)
        inner = _halves_gated(self.by.grouped(z[order // CHOSEN], self.experts_in, ends))
        made = self.by.grouped(inner, self.experts_out, ends)[order.argsort()].unflatten(0, (-1, CHOSEN))
        return x + (made * share[..., None].to(x.dtype)).sum(1).view_as(x)


def _halves_gated(z: Tensor) -> Tensor:
    gate, up = z.chunk(2, -1)
    return functional.silu(gate) * up


class EightBits(Block):
    """The same for inference, with the weights of attention and MLP in e4m3, and what they multiply, too: a scale for
    each row of either."""

    def keep_eight_bits(self) -> EightBits:
        for name in ("qkv", "out", "gate_up", "down"):
            w, scale = eight_bits(getattr(self, name).detach())
            self.register_buffer(f"{name}_bits", w)
            self.register_buffer(f"{name}_scale", scale.T.contiguous())
        return self

    def multiply(self, x: Tensor, name: str, residual: Tensor | None = None) -> Tensor:
        if not hasattr(self, f"{name}_bits"):
            return super().multiply(x, name, residual)
        a, scale = eight_bits(x.flatten(0, -2))
        made = self.by.scaled(a, getattr(self, f"{name}_bits").T, scale, getattr(self, f"{name}_scale"))
        made = made.unflatten(0, x.shape[:-1])
        return made if residual is None else residual + made


def eight_bits(x: Tensor) -> tuple[Tensor, Tensor]:
    """x[m, k] in e4m3 and what to multiply its rows by, [m, 1]."""
    scale = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / LARGEST
    return (x.float() / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale


def with_weights(weights: Mapping[str, Tensor], made: Block) -> Block:
    """Those of a block with gate and up in halves."""
    kept = dict(weights)
    if made.by.gated is not None:
        kept["gate_up"] = torch.stack(kept["gate_up"].chunk(2), 1).flatten(0, 1)
    made.load_state_dict(kept)
    return made


# --- what a run is on


@dataclass(frozen=True)
class Setting:
    """x and wanted: [batch, tokens, width], bf16. weights: of a block with gate and up in halves."""

    shape: Shape
    device: str
    x: Tensor
    wanted: Tensor
    weights: Mapping[str, Tensor]
    by: Mapping[str, Products]

    @classmethod
    def made(cls, size: str, device: str) -> Setting:
        torch.manual_seed(0)
        shape, where = SIZES[size], {"device": device, "dtype": torch.bfloat16}
        x, wanted = (torch.randn(shape.batch, shape.tokens, shape.width, **where) for _ in range(2))
        by = contenders(device)
        return cls(shape, device, x, wanted, Block(shape, by["torch"], **where).state_dict(), by)

    def blocks(self, kind: type[Block] = Block) -> dict[str, Block]:
        where = {"device": self.device, "dtype": torch.bfloat16}
        return {name: with_weights(self.weights, kind(self.shape, by, **where)) for name, by in self.by.items()}

    def compiled(self, block: Block, mode: str) -> Callable[[Tensor], Tensor]:
        """mode: "eager", or one of torch.compile's; in the simulator nothing is generated."""
        if mode == "eager":
            return block
        return torch.compile(block, backend="aot_eager") if self.device == "cpu" else torch.compile(block, mode=mode)

    @property
    def modes(self) -> tuple[str, ...]:
        return ("eager", "default") if self.device == "cpu" else ("eager", "default", "reduce-overhead")


# --- the parts


Row = dict[str, Any]
Runs = dict[str, Callable[[], Any]]


def training(setting: Setting) -> Iterator[Row]:
    """Losses of some steps, then forward and backward by the clock."""
    exact = losses(_reference(setting), setting.x.float(), setting.wanted.float())
    yield {"part": "training", "mode": "fp32", "contender": "torch", "losses": exact}
    for mode in setting.modes[:2]:
        rows, runs = [], {}
        for name, block in setting.blocks().items():
            row = {"part": "training", "mode": mode, "contender": name}
            rows.append(row)
            with failing_alone(row):
                runs[name] = _trained(setting, row, block, mode, exact)
        measure(setting, rows, runs)
        yield from rows
        forget()


def _reference(setting: Setting) -> Block:
    by = Products(setting.by["torch"].linear, one_by_one, setting.by["torch"].scaled)
    return with_weights(setting.weights, Block(setting.shape, by, device=setting.device))


def _trained(setting: Setting, row: Row, block: Block, mode: str, exact: list[float]) -> Callable[[], Any]:
    """What is timed afterwards."""
    torch._dynamo.utils.counters.clear()
    call, began = setting.compiled(block, mode), time.perf_counter()
    row["losses"] = losses(block, setting.x, setting.wanted, call)
    row["off_fp32"] = max(abs(a / b - 1) for a, b in zip(row["losses"], exact, strict=True))
    row["seconds"], row["graph_breaks"] = round(time.perf_counter() - began, 1), graph_breaks()
    if mode == "eager" and block.by.linear is not setting.by["torch"].linear:
        row |= copied(lambda: one_step(block, setting.x, setting.wanted))
    return lambda: one_step(block, setting.x, setting.wanted, call)


def losses(block: Block, x: Tensor, wanted: Tensor, call: Callable[[Tensor], Tensor] | None = None) -> list[float]:
    optimizer = torch.optim.SGD(block.parameters(), lr=RATE)
    found = []
    for _ in range(STEPS):
        found.append(one_step(block, x, wanted, call).detach())
        optimizer.step()
    return [float(each) for each in found]


def one_step(block: Block, x: Tensor, wanted: Tensor, call: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """Forward and backward; half of the square of a token's distance to what is wanted, their mean."""
    block.zero_grad()
    off = (block if call is None else call)(x).float() - wanted.float()
    loss = off.square().sum(-1).mean() / 2
    loss.backward()
    return loss


def inference(setting: Setting, kind: type[Block] = Block) -> Iterator[Row]:
    part = "inference" if kind is Block else "inference, 8 bits"
    blocks = setting.blocks(kind)
    if kind is EightBits:
        blocks = {name: block.keep_eight_bits() for name, block in blocks.items() if block.by.gated is None}
    with torch.no_grad():
        expected = blocks["torch"](setting.x).float()
    for mode in setting.modes:
        rows, runs = [], {}
        for name, block in blocks.items():
            row = {"part": part, "mode": mode, "contender": name}
            rows.append(row)
            with failing_alone(row):
                runs[name] = _inferred(setting, row, block, mode, expected)
        measure(setting, rows, runs)
        yield from rows
        forget()


def _inferred(setting: Setting, row: Row, block: Block, mode: str, expected: Tensor) -> Callable[[], Any]:
    torch._dynamo.utils.counters.clear()
    call, began = setting.compiled(block, mode), time.perf_counter()

    @torch.no_grad()
    def run() -> Tensor:
        if mode == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        return call(setting.x)

    found = [run().float() for _ in range(WARM)][-1]
    row["off_torch"] = float((found - expected).abs().mean() / expected.abs().mean())
    row["seconds"], row["graph_breaks"] = round(time.perf_counter() - began, 1), graph_breaks()
    if mode == "eager" and block.by.linear is not setting.by["torch"].linear:
        row |= copied(run)
    return run


class failing_alone:
    """What one contender fails with is its row's, and the others go on."""

    def __init__(self, row: Row) -> None:
        self._row = row

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, Exception):
            return False
        traceback.print_exception(error)
        self._row["error"] = f"{type(error).__name__}: {str(error)[:500]}"
        return True


def graph_breaks() -> int:
    return sum(torch._dynamo.utils.counters["graph_break"].values())


def forget() -> None:
    """What was compiled for the blocks before."""
    torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


# --- copies


class Listening(TorchDispatchMode):
    """Our products, and the copies that they make."""

    def __init__(self) -> None:
        super().__init__()
        self.products, self.sentences = 0, list[str]()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ops = torch.ops.blackwell_matmul
        grouped = operation is ops.grouped_matmul_launch.default
        if grouped or operation is ops.matmul_launch.default:
            self.products += 1
            a, b, *others = args
            self.sentences += ours.copies(a, b, *others[:grouped])
            self.sentences += [
                f"a tensor of strides {each.stride()} is copied."
                for each in others
                if each is not None and not each.is_contiguous()
            ]
        return operation(*args, **(kwargs or {}))


def copied(run: Callable[[], Any]) -> Row:
    with Listening() as heard:
        run()
    return {"products": heard.products, "copies": heard.sentences}


# --- on a GPU


def measure(setting: Setting, rows: list[Row], runs: Runs) -> None:
    """Medians of runs in turn, in us; memory beyond what was there before, in MiB; kernels of a run."""
    by_name = {row["contender"]: row for row in rows}
    if setting.device == "cpu" or not runs:
        return
    for name, run in runs.items():
        with failing_alone(by_name[name]):
            by_name[name] |= {"peak_mib": peak_mib(run), **launched(run)}
    times = in_turn({name: run for name, run in runs.items() if "error" not in by_name[name]})
    for name, each in times.items():
        by_name[name]["us"] = round(statistics.median(each), 1)
        if "torch" in times:
            ratios = (theirs / mine for theirs, mine in zip(times["torch"], each, strict=True))
            by_name[name]["torch / this"] = round(statistics.median(ratios), 4)


def in_turn(runs: Runs) -> dict[str, list[float]]:
    for run in runs.values():
        for _ in range(WARM):
            run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name].append(timed(run))
    return times


def timed(run: Callable[[], Any]) -> float:
    """In us, with the GPU's queue empty before: where the host is too slow, its time is in it."""
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3


def peak_mib(run: Callable[[], Any]) -> float:
    """Beyond what there is before and after: weights, and gradients where there are any."""
    run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)


def launched(run: Callable[[], Any]) -> Row:
    """By the profiler: how many kernels a run has, and those that take longest, with their number and us."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    try:
        with torch.profiler.profile(activities=activities) as profiler:
            run()
            torch.cuda.synchronize()
        events = _events(profiler)
    except Exception as error:  # a machine may keep its counters to itself: the times are worth having all the same
        return {"kernels": None, "no_kernels_because": f"{type(error).__name__}: {error}"}
    kernels = [event for event in events if event.get("cat") == "kernel"]
    moves = sum(event.get("cat") in ("gpu_memcpy", "gpu_memset") for event in events)
    return {"kernels": len(kernels), "memory_operations": moves, "longest": _longest(kernels)}


def _events(profiler: Any) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return found


def _longest(kernels: list[dict[str, Any]], shown: int = 25) -> list[list[Any]]:
    us, count = Counter[str](), Counter[str]()
    for each in kernels:
        us[each["name"][:100]] += each["dur"]
        count[each["name"][:100]] += 1
    return [[name, count[name], round(total, 1)] for name, total in us.most_common(shown)]


# --- the command


PARTS: Mapping[str, Callable[[Setting], Iterator[Row]]] = {
    "training": training,
    "inference": inference,
    "8-bits": lambda setting: inference(setting, EightBits),
}


def table(rows: list[Row]) -> Table:
    columns = ("part", "mode", "contender", "us", "torch / this", "peak_mib", "kernels", "off_fp32", "off_torch")
    shown = Table(*columns, "copies")
    for row in rows:
        values = (row.get(name, "") for name in columns)
        texts = [f"{value:.2e}" if isinstance(value, float) and value < 0.1 else str(value) for value in values]
        shown.add_row(*texts, str(len(row["copies"])) if "copies" in row else "")
    return shown


def run_parts(setting: Setting, parts: list[str], keep: Callable[[list[Row]], None]) -> list[Row]:
    """keep: is told all rows so far, each time that there are more."""
    rows: list[Row] = []
    for part in parts:
        for row in PARTS[part](setting):
            print({name: value for name, value in row.items() if name != "longest"}, flush=True)
            rows.append(row)
            keep(rows)
    return rows


def main(
    out: Annotated[Path, typer.Option(help="The JSON file to write")],
    size: Annotated[str, typer.Option(help=f"One of {', '.join(SIZES)}")] = "large",
    device: Annotated[str, typer.Option(help="cuda, or cpu for the simulator")] = "cuda",
    part: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(PARTS)}; all, if none is named")] = None,
) -> None:
    """Train, infer, compare, time; the file is written anew after each row."""
    setting = Setting.made(size, device)
    gpu = torch.cuda.get_device_name() if device == "cuda" else "simulated B200"
    about = {"gpu": gpu, "torch": torch.__version__, "shape": asdict(setting.shape), "rate": RATE}
    about["command"] = f"python bench/gpu/block.py --size {size} --device {device} --out {out.name}"

    def keep(rows: list[Row]) -> None:
        out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")

    Console(width=160).print(table(run_parts(setting, part or list(PARTS), keep)))


if __name__ == "__main__":
    typer.run(main)
