"""What is computed and how: `Problem` and `Schedule`, printable frozen dataclasses and nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from blackwell_matmul.errors import InputError

DTYPES = {"fp16": 2, "bf16": 2}
"""Element types of A, B and C that the ladder serves today, with their size in bytes."""


@dataclass(frozen=True)
class Problem:
    """C[m, n] = A[m, k] @ B[n, k].T with A, B and C of one 16-bit type and fp32 accumulation.

    m, n, k are element counts; `dtype` is a key of `DTYPES`.
    """

    m: int
    n: int
    k: int
    dtype: str = "fp16"

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
                raise InputError(f"{name} is {value!r}; it must be an integer from 1 to 2147483647.")
        if self.dtype not in DTYPES:
            raise InputError(f"dtype is {self.dtype!r}; it must be one of {', '.join(DTYPES)}.")

    @property
    def element_bytes(self) -> int:
        return DTYPES[self.dtype]

    @property
    def flops(self) -> int:
        """Floating-point operations of the product: one multiply and one add for each m, n, k."""
        return 2 * self.m * self.n * self.k

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k} {self.dtype}"


@dataclass(frozen=True)
class Schedule:
    """The tuning knobs of a rung; a knob that the rung does not have is None.

    block_m, block_n, block_k: the tile of C that one CTA computes and its step along k, in elements.
    e_block_n: the width of an epilogue strip, in columns of C. stages: shared-memory buffers of A and B.
    """

    block_m: int | None = None
    block_n: int | None = None
    block_k: int | None = None
    e_block_n: int | None = None
    stages: int | None = None

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """The knobs that are set, as (name, value), in declaration order."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                yield field.name, value

    def as_dict(self) -> dict[str, int]:
        return dict(self)

    def matches(self, pins: Mapping[str, object]) -> bool:
        """True when every pinned knob has the pinned value here."""
        return all(getattr(self, name, None) == value for name, value in pins.items())

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self)

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Read `block_m=128,stages=3`; raise InputError that names the word which does not fit."""
        knobs = [field.name for field in dataclasses.fields(cls)]
        values: dict[str, int] = {}
        for word in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = (piece.strip() for piece in word.partition("="))
            if name not in knobs:
                raise InputError(f"schedule names {name!r}; the knobs are {', '.join(knobs)}.")
            if not (value.isascii() and value.isdigit() and 0 < int(value[:10]) < 2**31):
                raise InputError(f"schedule gives {name} the value {value!r}; it must be a positive integer.")
            if name in values:
                raise InputError(f"schedule names {name} twice; give it once.")
            values[name] = int(value)
        return cls(**values)
