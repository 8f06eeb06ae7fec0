"""Tiles that no MMA multiplies are refused alike by all that builds a program; what tilus makes of them otherwise."""

from __future__ import annotations

import importlib
import inspect
import re
from contextlib import nullcontext
from typing import Any

import pytest
import torch

pytest.importorskip("tilus")

import tilus
from mma_scripts import ByTensorMemory, ByWarpgroup, ByWarps

from blackwell_matmul import CompileError, check, compile, emulate, predict, simulate
from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.frontend.faults import mma_tiles, tilus_compat

OF_TORCH = {"float16": torch.float16, "float8_e4m3": torch.float8_e4m3fn, "float32": torch.float32}
OF_TORCH |= {"bfloat16": torch.bfloat16, "int8": torch.int8, "int32": torch.int32, "tfloat32": torch.float32}


class Tile:
    """A script and its knobs; tilus does not give them back."""

    def __init__(self, script: Any, **knobs: Any) -> None:
        every = inspect.signature(script.__init__).parameters
        defaults = {name: each.default for name, each in every.items() if name != "self"}
        self.script, self.knobs, self.all = script, knobs, {"ctas": 1, **defaults, **knobs}

    def __str__(self) -> str:
        return f"{self.script.__name__}({', '.join(f'{name}={value}' for name, value in self.knobs.items())})"

    def made(self) -> Any:
        return self.script(**self.knobs)

    def operands(self) -> tuple[torch.Tensor, ...]:
        """Small integers, and a result that is not there yet."""
        m, n, k, ctas, dtype, acc = (self.all[name] for name in ("m", "n", "k", "ctas", "dtype", "acc"))
        generator = torch.Generator().manual_seed(0)
        a, b = (torch.randint(-3, 4, (ctas * rows, k), generator=generator).to(OF_TORCH[dtype.name]) for rows in (m, n))
        return a, b, torch.full((ctas * m, ctas * n), -99.0).to(OF_TORCH[acc.name])


COLUMNS_FIRST = [1, 3, 5]
"""The halves of a row before its pairs, of a thread: wgmma has the pairs first."""

TENSOR, WARPGROUP = "M = 128, N = 8 and K = {} of {}", "M = 64, N = 8 and K = {} of {}"
PAIR, WARPS = "M = 256, N = 16 to 256 and K = 16 of float16", "M = 16, N = 8 and K = {} of {}"

STEPS: list[tuple[Tile, str, tuple[int, int, int]]] = [
    *(
        (Tile(ByTensorMemory, k=k), TENSOR.format(16, "float16"), (128, 64, near))
        for k, near in ((8, 16), (24, 32), (72, 80))
    ),
    *((Tile(ByTensorMemory, n=n), TENSOR.format(16, "float16"), (128, n + 4, 32)) for n in (12, 20, 68)),
    (Tile(ByTensorMemory, m=64), TENSOR.format(16, "float16"), (128, 64, 32)),
    (
        Tile(ByTensorMemory, k=48, dtype=tilus.float8_e4m3),
        TENSOR.replace("N = 8", "N = 8 to 256").format(32, "float8_e4m3"),
        (128, 64, 64),
    ),
    (Tile(ByTensorMemory, ctas=2, k=24), PAIR, (256, 128, 32)),
    (Tile(ByTensorMemory, ctas=2, n=20), PAIR, (256, 48, 32)),
    (Tile(ByTensorMemory, ctas=2, n=136), PAIR, (256, 256, 32)),
    *(
        (Tile(ByWarpgroup, k=k), WARPGROUP.format(16, "float16"), (64, 64, near))
        for k, near in ((8, 16), (24, 32), (40, 48))
    ),
    (Tile(ByWarpgroup, m=96), WARPGROUP.format(16, "float16"), (128, 64, 64)),
    (Tile(ByWarpgroup, n=20), WARPGROUP.format(16, "float16"), (64, 24, 64)),
    (Tile(ByWarpgroup, k=48, dtype=tilus.int8, acc=tilus.int32), WARPGROUP.format(32, "int8"), (64, 64, 64)),
    (Tile(ByWarpgroup, k=20, dtype=tilus.tfloat32), WARPGROUP.format(8, "tfloat32"), (64, 64, 24)),
    *((Tile(ByWarps, k=k), WARPS.format(16, "float16"), (64, 64, near)) for k, near in ((8, 16), (24, 32))),
    (Tile(ByWarps, m=72), WARPS.format(16, "float16"), (80, 64, 64)),
    (Tile(ByWarps, k=24, dtype=tilus.int8, acc=tilus.int32), WARPS.format(32, "int8"), (64, 64, 32)),
]
OTHERS: list[tuple[Tile, str]] = [
    (Tile(ByWarpgroup, local_modes=COLUMNS_FIRST), "the registers of r_c are not laid out as wgmma writes them"),
    (Tile(ByWarpgroup, acc=tilus.int32), "wgmma has no instruction that multiplies float16 into int32"),
    (
        Tile(ByTensorMemory, acc=tilus.float16),
        "writes a column of tensor memory for each float16, and tilus 0.2.0 has two",
    ),
]


def predicted(script: Any, *args: Any, gpu: str) -> Any:
    return predict(script, *args, gpu=gpu, explained=False)


def refusal(run: Any, tile: Tile, **options: Any) -> str:
    with pytest.raises(CompileError) as caught:
        run(tile.made(), *tile.operands(), **options)
    return str(caught.value)


def refusals(tile: Tile) -> set[str]:
    """What all that builds a program says."""
    gpu = "H100" if tile.script is ByWarpgroup else "B200"
    return {refusal(run, tile) for run in (simulate, check, compile)} | {refusal(predicted, tile, gpu=gpu)}


@pytest.mark.parametrize("tile, steps, near", STEPS, ids=str)
def test_a_tile_between_the_steps_is_refused_by_all(tile: Tile, steps: str, near: tuple[int, int, int]) -> None:
    (said,) = refusals(tile)
    assert f"an instruction works on {steps}; take multiples of these, such as {near} (" in said
    assert re.search(r"mma_scripts\.py:\d+\)\.$", said)


@pytest.mark.parametrize("tile, why", OTHERS, ids=str)
def test_an_accumulator_that_the_instruction_does_not_write_is_refused_by_all(tile: Tile, why: str) -> None:
    (said,) = refusals(tile)
    assert why in said


@pytest.mark.slow
@pytest.mark.parametrize(
    "tile",
    [
        Tile(ByTensorMemory, n=48, k=48),
        Tile(ByTensorMemory, n=8),
        Tile(ByTensorMemory, n=40),
        Tile(ByTensorMemory, n=24, dtype=tilus.float8_e4m3),
        Tile(ByWarpgroup, n=24, k=48),
        Tile(ByWarpgroup, local_modes=[3, 1, 5]),
        Tile(ByWarps, k=80),
    ],
    ids=str,
)
def test_multiples_are_multiplied_in_full(tile: Tile) -> None:
    a, b, c = tile.operands()
    right = (a.double() @ b.double().T).to(c.dtype)
    assert simulate(tile.made(), a, b, c).ok
    assert torch.equal(c, right)
    bundle = compile(tile.made(), a, b, c, cache=False)
    c.fill_(-99)
    emulate(bundle, a, b, c)
    assert torch.equal(c, right)


@pytest.mark.parametrize("mma_n, columns", [(24, 24), (96, 192)])
def test_the_layout_that_tilus_gives_is_what_wgmma_writes(mma_n: int, columns: int) -> None:
    rule = "tilus.ir.layout.inference.inference_rules.wgmma"
    made = importlib.import_module(rule).generate_wgmma_register_layout(128, columns, 64, mma_n, mma_tiles.K_BITS // 16)
    for thread, register in ((0, 0), (5, 3), (37, 11), (127, made.local_size - 1)):
        place = mma_tiles.indices_of(made, register, thread)
        assert place == [int(each) for each in made.get_global(spatial_index=thread, local_index=register)]
        assert place == mma_tiles._fragment(thread, register, columns // mma_n, mma_n)


@pytest.mark.slow
@pytest.mark.parametrize(
    "tile, wrong",
    [
        (Tile(ByTensorMemory, k=24), "other values"),
        (Tile(ByTensorMemory, k=8), "reads tensor memory that nothing has written"),
        (Tile(ByTensorMemory, acc=tilus.float16, n=32), "other values"),
        (Tile(ByWarpgroup, k=24), "other values"),
        (Tile(ByWarpgroup, local_modes=COLUMNS_FIRST), "other values"),
    ],
    ids=str,
)
def test_what_tilus_makes_of_them(tile: Tile, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The faults: the code computes something else, or has instructions that do not exist."""
    monkeypatch.setattr(mma_tiles, "refusal", lambda inst: None)
    monkeypatch.setattr(mma_tiles, "layout_refusal", lambda inst, name: None)
    a, b, c = tile.operands()
    bundle = compile(tile.made(), a, b, c, cache=False)
    try:
        emulate(bundle, a, b, c)
    except BlackwellMatmulError as error:
        assert wrong in str(error)
    else:
        assert wrong == "other values"
        assert not torch.equal(c.double(), a.double() @ b.double().T)


def test_what_tilus_says_of_a_dot_with_one_more_instruction_along_k(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that `modes_kept_apart` works around: four instructions along M, and five along K."""
    monkeypatch.setattr(tilus_compat, "modes_kept_apart", nullcontext)
    assert "do not go into pieces of" in refusal(simulate, Tile(ByWarps, k=80, m=64, n=48))
