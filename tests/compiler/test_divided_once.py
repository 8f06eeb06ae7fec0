"""A division before a loop stays before it; tilus itself puts it into the loop."""

from __future__ import annotations

import re
from contextlib import nullcontext

import pytest
from compiler_samples import rung_program

from blackwell_matmul.compiler import source
from blackwell_matmul.compiler.source import device_source, lower

LOADS = re.compile(r"tilus_cuda_cp_async_bulk_tensor_\w*shared_global\w*\((.*)\);")


def loads(name: str) -> list[str]:
    program = rung_program(name)
    return LOADS.findall(device_source(lower(program), program).text)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h5", "h6", "h7"])
def test_the_place_of_a_tile_is_found_once(name: str) -> None:
    found = loads(name)
    assert found
    assert not any(re.search(r"[/%] v_\d", each) for each in found)


def test_tilus_finds_it_with_each_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "divided_once", nullcontext)
    assert any(re.search(r"[/%] v_\d", each) for each in loads("h6"))
