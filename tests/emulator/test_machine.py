"""Tensor memory, and who has allocated what of it (`emulator/machine.py`)."""

from __future__ import annotations

import numpy as np
import pytest

from blackwell_matmul.emulator.lanes import ALL, filled, first, indices, lanes, mask_of
from blackwell_matmul.emulator.machine import TensorMemory
from blackwell_matmul.emulator.spaces import Undefined


def test_columns_are_allocated_side_by_side_until_there_are_none() -> None:
    memory = TensorMemory()
    assert [memory.allocate(each) for each in (128, 256, 64, 128, 64, 32)] == [0, 256, 128, None, 192, None]
    del memory.allocated[128]
    assert memory.allocate(32) == 128


def test_what_was_allocated_anew_is_unwritten() -> None:
    memory = TensorMemory()
    memory.allocate(32)
    memory.write(np.arange(4), np.arange(4), np.full(4, 9, np.uint32))
    assert memory.read(np.arange(4), np.arange(4)).tolist() == [9] * 4
    with pytest.raises(Undefined, match="reads tensor memory that nothing has written, at lane 0, column 1"):
        memory.read(np.arange(4)[:, None], np.arange(4)[None, :])
    memory.allocated.clear()
    memory.allocate(32)
    with pytest.raises(Undefined, match="that nothing has written"):
        memory.read(np.array([0]), np.array([0]))


def test_columns_that_are_not_allocated() -> None:
    memory = TensorMemory()
    memory.allocate(64)
    memory.check(0, 64, "reads")
    with pytest.raises(Undefined, match="reads columns 32 to 64 of tensor memory, not all allocated"):
        memory.check(32, 33, "reads")


def test_masks() -> None:
    assert indices(0b1010) == (1, 3) and first(0b1010) == 1 and lanes(5)[:3].tolist() == [True, False, True]
    assert all(mask_of(lanes(mask)) == mask for mask in (0, 1, ALL, 0x80000001))
    assert filled(-1, 8)[31] == (1 << 64) - 1 and filled(1 << 100, 16).tobytes()[:16] == (1 << 100).to_bytes(
        16, "little"
    )
