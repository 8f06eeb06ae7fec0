"""The study "bandwidth": copies and additions with and without TMA, by tilus and by Triton, against torch's copy.

One kernel a trial: compared bit by bit, then timed in turn with torch's copy_ (and torch.add) on tensors of 512 MiB,
which no L2 holds. GB/s count the bytes read and written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from blackwell_matmul.harness.bench.devices import Cpu, device_named
from blackwell_matmul_studies import interleaved
from blackwell_matmul_studies.trial import Trial

Call = Callable[..., Any]
Block = tuple[int, ...]

COPY, ADD = "copy", "add"
SHAPES: Mapping[int, Block] = MappingProxyType(
    {
        1: (2**27,),
        2: (2**13, 2**14),
        3: (2**7, 2**10, 2**10),
        4: (2**5, 2**6, 2**8, 2**8),
        5: (2**3, 2**4, 2**5, 2**7, 2**8),
    }
)
"""2**27 elements of float32."""
BLOCKS: Mapping[int, Block] = MappingProxyType(
    {1: (256,), 2: (8, 256), 3: (2, 4, 256), 4: (2, 2, 2, 256), 5: (1, 2, 2, 2, 256)}
)
"""8 KiB each, but for one dimension: a box has at most 256 elements in each (cuTensorMapEncodeTiled)."""
TILUS_TMA, TILUS_PLAIN = "tilus TMA", "tilus without TMA"
HOST, DEVICE, TRITON_PLAIN = "Triton TMA (host)", "Triton TMA (device)", "Triton without TMA"
TORCH_COPY, TORCH_ADD = "torch copy_", "torch.add"


# --- who takes part


def trials(quick: bool) -> tuple[Trial, ...]:
    return tuple(_quick_trials() if quick else _all_trials())


def _quick_trials() -> Iterator[Trial]:
    yield from (_trial(COPY, 2, way, BLOCKS[2]) for way in (TILUS_TMA, HOST, DEVICE))
    yield _trial(COPY, 2, TILUS_TMA, (32, 256))
    yield from (_trial(COPY, 2, way) for way in (TILUS_PLAIN, TRITON_PLAIN))
    yield from (_trial(ADD, 1, way, BLOCKS[1]) for way in (TILUS_TMA, HOST))
    yield _trial(ADD, 1, HOST, (2048,))
    yield from (_trial(ADD, 1, way) for way in (TILUS_PLAIN, TRITON_PLAIN))


def _all_trials() -> Iterator[Trial]:
    yield from _quick_trials()
    yield from (_trial(COPY, 2, TILUS_TMA, (rows, 256)) for rows in (4, 16, 64))
    yield from (_trial(COPY, 2, HOST, (rows, 256)) for rows in (32, 64))
    yield _trial(COPY, 1, HOST, (2048,))
    for dims in (1, 3, 4, 5):
        yield from (_trial(COPY, dims, way, BLOCKS[dims]) for way in (TILUS_TMA, HOST, DEVICE))
    yield _trial(ADD, 1, DEVICE, BLOCKS[1])


def _trial(operation: str, dims: int, way: str, block: Block | None = None) -> Trial:
    return Trial(
        f"{operation} {dims}-D: {way}{f' {_text(block)}' if block else ''}",
        f"{__name__}:move",
        {"operation": operation, "shape": SHAPES[dims], "way": way, "block": block},
    )


def _text(block: Block) -> str:
    return "x".join(map(str, block))


# --- what a trial does


def move(
    step: interleaved.Step,
    operation: str,
    shape: Sequence[int],
    way: str,
    block: Sequence[int] | None,
    device: str = "cuda",
) -> dict[str, Any]:
    place, call = device_named(device), _WAYS[way](operation, tuple(block) if block else None)
    tensors = _tensors(operation, shape, place)
    step("compiling")
    _, first_call_s = interleaved.first_call(lambda: call(*tensors), place)
    _compare(operation, tensors)
    set_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    sets = [_tensors(operation, shape, place) for _ in interleaved.rotating(place, set_bytes)]
    calls = {way: call, TORCH_COPY: _torch_copy} | ({TORCH_ADD: _torch_add} if operation == ADD else {})
    # Plain calls, which are long enough: in a graph torch's copy_ becomes a memcpy node, which an H200 gives to a copy
    # engine, with two thirds of the bandwidth of the kernel that it is outside of one.
    timed = interleaved.timed(calls, sets, place, interleaved.INTERLEAVED_SETTINGS, step, capture=False)
    mine = {"mine": timed["timings"][way], "set_bytes": set_bytes, "first_call_s": first_call_s}
    return {**_rates(operation, way, set_bytes, timed), **mine, **timed}


def _rates(operation: str, way: str, set_bytes: int, timed: Mapping[str, Any]) -> dict[str, float]:
    """gb_per_s of the kernel and of torch's copy, which touches two of an addition's three tensors."""
    median_us = {name: timing["median_us"] for name, timing in timed["timings"].items()}
    copied_bytes = set_bytes if operation == COPY else set_bytes * 2 / 3
    gb_per_s, copy_gb_per_s = set_bytes / median_us[way] / 1e3, copied_bytes / median_us[TORCH_COPY] / 1e3
    same = TORCH_COPY if operation == COPY else TORCH_ADD
    return {
        "gb_per_s": gb_per_s, "copy_gb_per_s": copy_gb_per_s, "of_copy": gb_per_s / copy_gb_per_s,
        "of_torch": median_us[same] / median_us[way],
    }  # fmt: skip


def _tensors(operation: str, shape: Sequence[int], place: Cpu) -> tuple[torch.Tensor, ...]:
    """The inputs, and an output full of NaN."""
    inputs = [torch.randn(*shape, device=place.torch_device) for _ in range(1 if operation == COPY else 2)]
    return (*inputs, interleaved.poisoned_like(inputs[0]))


def _compare(operation: str, tensors: Sequence[torch.Tensor]) -> None:
    *inputs, output = tensors
    right = inputs[0] if operation == COPY else inputs[0] + inputs[1]
    if not torch.equal(output, right):
        raise interleaved.WrongResult(f"{int((output != right).sum())} of {right.numel()} elements are wrong")


def _torch_copy(*tensors: torch.Tensor) -> None:
    tensors[-1].copy_(tensors[0])


def _torch_add(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> None:
    torch.add(x, y, out=z)


# --- the kernels


def _tilus_tma(operation: str, block: Block | None) -> Call:
    from blackwell_matmul.kernels.primitives import TmaCopy, VectorAdd

    assert block is not None
    if operation == COPY:
        copied: Call = TmaCopy(box=block)
        return copied
    kernel = VectorAdd(block=block[0])
    return lambda x, y, z: kernel(x.numel(), x, y, z)


def _tilus_plain(operation: str, block: Block | None) -> Call:
    from blackwell_matmul_studies.plain_kernels import PlainAdd, PlainCopy

    made: Call = PlainCopy() if operation == COPY else PlainAdd()
    return made


def _triton(kind: str) -> Callable[[str, Block | None], Call]:
    def made(operation: str, block: Block | None) -> Call:
        kernels = interleaved.triton_kernels()
        if operation == COPY:
            return lambda x, y: kernels.copy(x, y, kind, block)
        return lambda x, y, z: kernels.add(x, y, z, kind, *(block or ()))

    return made


_WAYS: Mapping[str, Callable[[str, Block | None], Call]] = MappingProxyType(
    {
        TILUS_TMA: _tilus_tma,
        TILUS_PLAIN: _tilus_plain,
        HOST: _triton("host"),
        DEVICE: _triton("device"),
        TRITON_PLAIN: _triton("plain"),
    }
)
