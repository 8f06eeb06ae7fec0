"""Boxes of TMA: over some dimensions of a view, where the tensor map and the instruction have the rank of the view, and
such as no GPU copies.
"""

from __future__ import annotations

import importlib
import re
from collections import OrderedDict
from contextlib import nullcontext

import compiler_scripts
import pytest
import torch
from compiler_samples import script_bundle

from blackwell_matmul import simulate
from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.compiler import Bundle
from blackwell_matmul.frontend.faults import tilus_compat


def ranks(bundle: Bundle) -> tuple[list[int], list[int]]:
    """Of the tensor maps, and of the instructions that use them."""
    copies = re.findall(r"cp\.async\.bulk\.tensor\.(\d)d", bundle.ptx)
    return [len(each.dims) for each in bundle.plan.tensor_maps], [int(rank) for rank in copies]


def test_maps_of_the_whole_view() -> None:
    bundle = script_bundle("PlaneCopy", 3, "array", "array")
    assert ranks(bundle) == ([3, 3], [3, 3])
    x, y = bundle.plan.tensor_maps
    assert (x.pointer, x.dims, x.strides_bytes, x.box) == ("x_ptr", (16, 10, 4), (64, 640), (8, 8, 1))
    assert (y.pointer, y.dims, y.strides_bytes, y.box) == ("y_ptr", (16, 4, 10), (64, 256), (8, 1, 8))


def test_the_map_of_tilus_has_another_rank_than_its_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("blackwell_matmul.frontend.build"), "_cache", OrderedDict())
    monkeypatch.setattr(tilus_compat, "boxes_of_full_rank", nullcontext)
    assert ranks(script_bundle("PlaneCopy", 3, "array", "array")) == ([2, 2], [3, 3])


@pytest.mark.parametrize(
    "load_at, store_at, text",
    [
        ([0, 6], [0, 0], r"TMA load of g_x at \[\.\., 6\]: .* 6 elements of 4 bytes = 24 bytes, is no multiple of 16"),
        ([0, 0], [0, 2], r"TMA store to g_y at \[0, 2\]: .* 2 elements of 4 bytes = 8 bytes, is no multiple of 16"),
        ([0, 0], [0, -4], r"TMA store to g_y at \[0, -4\]: a store takes no negative coordinate"),
        (
            [0, 0],
            [-1, 0],
            r"TMA store to g_y at \[-1, 0\]: a store takes no negative .* dimension 0 is",
        ),
    ],
)
def test_boxes_that_begin_where_none_can(load_at: list[int], store_at: list[int], text: str) -> None:
    with pytest.raises(CompileError, match=rf"Boxes cannot be launched for any argument: {text}.*compiler_scripts\.py"):
        script_bundle("Boxes", 0, "array", "array", load_at=load_at, store_at=store_at)


def test_boxes_whose_rows_are_longer_than_the_swizzle() -> None:
    at = {"load_at": [-1, -4], "store_at": [1, 4]}
    assert script_bundle("Boxes", 0, "array", "array", swizzled=True, **at).plan.tensor_maps[0].swizzle == "128B"
    assert script_bundle("Boxes", 0, "array", "array", columns=64, **at).plan.tensor_maps[0].swizzle == "NONE"
    text = r"TMA cannot copy boxes of \(64, 8\) elements of FLOAT32 with swizzle 128B; .* no longer than the swizzle"
    with pytest.raises(CompileError, match=text):
        script_bundle("Boxes", 0, "array", "array", columns=64, swizzled=True, **at)
    x, y = torch.zeros(16, 64), torch.zeros(16, 64)
    run = simulate(compiler_scripts.Boxes(columns=64, swizzled=True, **at), 0, x, y, target="sm_90a")
    assert "a row of the tile is 256 bytes, and its swizzle permutes 128" in run.findings[0].message


def test_the_simulator_copies_the_same_box() -> None:
    x, y = torch.arange(640.0).reshape(4, 10, 16), torch.zeros(10, 4, 16)
    assert simulate(compiler_scripts.PlaneCopy, 3, x, y, target="sm_90a").ok
    expected = torch.zeros(10, 4, 16)
    expected[2:10, 3, 8:16] = x[3, 1:9, 4:12]
    assert torch.equal(y, expected)
