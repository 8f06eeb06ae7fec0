"""Slices, permutations, reshapes and single elements of memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from clean import clean, only
from scripts_memory import Copy2D, Items, ItemsAgain, SharedParts, SliceRow, Workspace
from tilus import float32

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.simulator import Severity, simulate
from blackwell_matmul.simulator.machine.deferred import SharedStorage
from blackwell_matmul.simulator.types import element_by_name


def test_parts_of_a_shared_tensor() -> None:
    x = torch.arange(2048).remainder(997).half().reshape(4, 16, 32)
    y, z = torch.zeros(16, 32, dtype=torch.float16), torch.zeros(32, 4, 16, dtype=torch.float16)
    r = torch.zeros(64, 32, dtype=torch.float16)
    clean(SharedParts(), x, y, z, r)
    assert torch.equal(y, x[2])
    assert torch.equal(z, x.permute(2, 0, 1))
    assert torch.equal(r, x.reshape(64, 32))


@pytest.mark.parametrize("index", [0, 3])
def test_row_of_a_global_tensor(index: int) -> None:
    x, y = torch.arange(128.0).reshape(4, 32), torch.zeros(32)
    clean(SliceRow(), index, x, y)
    assert torch.equal(y, x[index])


@pytest.mark.parametrize(("index", "nearest"), [(4, 3), (-1, 0)])
def test_row_that_does_not_exist(index: int, nearest: int) -> None:
    x, y = torch.arange(128.0).reshape(4, 32), torch.zeros(32)
    finding = only(simulate(SliceRow(), index, x, y), "out-of-bounds")
    assert f"index {index} of dimension 0, which has 4 elements" in finding.message
    assert finding.location is not None
    assert torch.equal(y, x[nearest])


def test_items_and_addresses() -> None:
    x, y = torch.arange(32, dtype=torch.int32).reshape(4, 8), torch.zeros(4, dtype=torch.int32)
    x[1, 3] = 2
    clean(Items(), x, y)
    assert torch.equal(y, x[2, 2:6] + 4)


def test_an_element_that_changes_is_read_anew() -> None:
    x, y = torch.zeros(32, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    clean(ItemsAgain(), x, y)
    assert y.tolist() == [20, 22, 24, 26]


@pytest.mark.parametrize(
    ("shape", "offsets", "dims", "extents", "rectangle"),
    [
        ((3, 2, 4, 16), (1, 1, 0, 0), (2, 3), (4, 16), True),
        ((3, 2, 4, 16), (0, 1, 0, 0), (0, 2, 3), (3, 4, 16), True),
        ((3, 2, 4, 16), (0, 0, 1, 0), (0, 1, 3), (3, 2, 16), False),
        ((3, 8, 4, 4), (0, 0, 1, 0), (1, 3), (8, 4), True),
        ((24, 16), (8, 0), (0, 1), (8, 16), True),
        ((24, 16), (4, 0), (0, 1), (8, 16), False),
        ((3, 128), (0, 8), (1,), (8,), True),
        ((3, 128), (0, 8), (1,), (16,), False),
        ((3, 1, 8, 16), (2, 0, 3, 0), (1, 2), (1, 2), True),
    ],
)
def test_part_of_a_reshaped_tensor(
    shape: tuple[int, ...], offsets: tuple[int, ...], dims: tuple[int, ...], extents: tuple[int, ...], rectangle: bool
) -> None:
    """It is a rectangle again where its elements are one."""
    storage = SharedStorage("s", element_by_name("float16", 16), np.zeros((3, 8, 16), np.float32))
    part = storage.root.reshape(shape).slice(offsets, dims, extents)
    sizes = dict(zip(dims, extents, strict=True))
    picks = tuple(slice(o, o + sizes[d]) if d in sizes else o for d, o in enumerate(offsets))
    numbers = np.arange(3 * 8 * 16).reshape(shape)[picks]
    assert (part.index is None) == part.region().dense == rectangle
    assert set(part.region().flat()) == set(numbers.reshape(-1))
    part.write(numbers + 1, tuple((0, extent) for extent in extents))
    written = np.zeros(3 * 8 * 16)
    written[numbers] = numbers + 1
    np.testing.assert_array_equal(storage.data.reshape(-1), written)


def test_tensors_that_are_reached_by_an_address_alone() -> None:
    """`x.data_ptr()` for a `void_p`: the tensor is an argument, or it is named."""
    m, n = 20, 40
    x, y = torch.arange(m * n, dtype=torch.float32).reshape(m, n), torch.zeros(m, n)
    run = simulate(Copy2D(float32), m, n, n, 1, x.data_ptr(), y.data_ptr(), memory=[x, y])
    assert run.ok and not run.findings and torch.equal(x, y)
    finding = only(simulate(Copy2D(float32), m, n, n, 1, x.data_ptr(), y), "out-of-bounds")
    assert "lies in no tensor of this launch" in finding.message and "memory=[tensor]" in finding.message
    for wrong in (x, [3], None):
        with pytest.raises(InputError, match="it must be a list of CPU tensors or arrays"):
            simulate(Copy2D(float32), m, n, n, 1, x, y, memory=wrong)


def test_what_is_left_in_a_workspace_is_unknown_and_a_clean_one_has_zeros() -> None:
    y = torch.zeros(2, 32)
    left = only(simulate(Workspace(clean=True), y, workers=1), "workspace-left-dirty")
    assert left.severity is Severity.UNGUARANTEED and "leaves 1.0 in g_held[0, 0]" in left.message
    assert torch.equal(y, torch.tensor([[1.0], [0.0]]).expand(2, 32))
    finding = only(simulate(Workspace(clean=False), y, workers=1), "uninitialised-read")
    assert "reads g_held[0:2, 0:32], part of which nothing has written" in finding.message
    assert torch.equal(y[0], torch.ones(32)) and y[1].isnan().all()
