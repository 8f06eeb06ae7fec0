"""Block-scaled formats in torch's types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import plain_text, shown
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED


@dataclass(frozen=True)
class TorchFormat:
    """Format of a block-scaled operand.

    elements: all types that elements may have; `quantize` returns the first. scale: type of the scales. per_byte:
    elements in a byte. block: elements along k that share a scale.
    """

    name: str
    elements: tuple[torch.dtype, ...]
    scale: torch.dtype
    per_byte: int
    block: int

    @property
    def element(self) -> torch.dtype:
        return self.elements[0]

    @property
    def largest(self) -> float:
        return BLOCK_SCALED[self.name].largest

    def scales(self, rows: int, k: int) -> int:
        """Return the number of scales of rows x k elements, padded to whole atoms."""
        return BLOCK_SCALED[self.name].scales(rows, k)


FORMATS: Mapping[str, TorchFormat] = MappingProxyType(
    {
        name: TorchFormat(
            name,
            tuple(getattr(torch, one) for one in each.elements),
            getattr(torch, each.scale),
            each.per_byte,
            each.block,
        )
        for name, each in BLOCK_SCALED.items()
    }
)


def format_of(dtype: object, said: str = "dtype") -> TorchFormat:
    """Return the format of this name; raise InputError, with all names, for other values. said: the argument's
    name."""
    found = FORMATS.get(plain_text(dtype) or "")
    if found is None:
        raise InputError(f"{said} is {shown(dtype)}; it must be one of {', '.join(FORMATS)}.")
    return found


# --- elements of fp4

MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes of e2m1, by the low three bits; the highest bit is the sign (OCP Microscaling Formats v1.0)."""


def unpacked(data: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the values [.., k] of e2m1 data [.., k / 2], two elements in a byte, the even element in the low four
    bits."""
    pairs = data.view(torch.uint8)
    codes = torch.stack((pairs & 15, pairs >> 4), -1).flatten(-2)
    values = torch.tensor((*MAGNITUDES, *(-each for each in MAGNITUDES)), dtype=dtype, device=data.device)
    return values[codes.int()]
