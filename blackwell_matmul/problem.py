"""What is computed and how: `Problem` and `Schedule`, printable frozen dataclasses and nothing else."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blackwell_matmul.errors import InputError
from blackwell_matmul.validation import integer, plain_text, same, shown

DTYPES = {"fp16": 2, "bf16": 2}
"""Element types of A, B and C that the ladder serves today, with their size in bytes."""

MMAS = ("tcgen05", "wgmma", "mma.sync")
"""The instructions that multiply: into tensor memory on data-center Blackwell; into registers on Hopper; from registers
into registers everywhere."""

INT32_MAX = 2**31 - 1


def positive(name: str, value: object) -> int:
    """`value` as an int that a kernel's int32 holds; InputError if it is none."""
    found = integer(value, 1, INT32_MAX)
    if found is None:
        raise InputError(f"{name} is {shown(value)}; it must be an integer from 1 to {INT32_MAX}.")
    return found


def plain_seed(value: object) -> int:
    """`value` as an int that may be a seed; InputError if it is none."""
    found = integer(value, 0, 2**63 - 1)
    if found is None:
        raise InputError(f"seed is {shown(value)}; it must be an integer from 0 to 2**63 - 1.")
    return found


POLICIES = ("adversarial", "eager", "random")
"""When the simulator completes asynchronous operations."""


def plain_policy(value: object) -> str:
    """`value` as the name of a policy; InputError if it is none."""
    found = plain_text(value)
    if found is None or found not in POLICIES:
        raise InputError(f"policy is {shown(value)}; it must be one of {', '.join(POLICIES)}.")
    return found


def plain_dtype(value: object) -> str:
    """`value` as a key of `DTYPES`; InputError if it is none."""
    found = plain_text(value)
    if found is None or found not in DTYPES:
        raise InputError(f"dtype is {shown(value)}; it must be one of {', '.join(DTYPES)}.")
    return found


MAX_WORKERS = 1024
"""Processes that simulate, at most."""

MAX_ORDERS = 10_000
"""Of warps and completions that one check runs, at most."""


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
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        object.__setattr__(self, "dtype", plain_dtype(self.dtype))

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
    consumers: warpgroups that share a tile. group_m: tiles along m that come before the next along n. cluster_m: CTAs
    along m that read their tile of B once for all of them. split_k: CTAs that compute a tile together.
    mma: the instruction that multiplies, a key of `MMAS`; no knob, the rung has it.
    """

    block_m: int | None = None
    block_n: int | None = None
    block_k: int | None = None
    e_block_n: int | None = None
    stages: int | None = None
    consumers: int | None = None
    group_m: int | None = None
    cluster_m: int | None = None
    split_k: int | None = None
    mma: str = dataclasses.field(default="tcgen05", kw_only=True)

    def __post_init__(self) -> None:
        for name, value in self:
            object.__setattr__(self, name, positive(name, value))
        if plain_text(self.mma) not in MMAS:
            raise InputError(f"mma is {shown(self.mma)}; it must be one of {', '.join(MMAS)}.")

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """The knobs that are set, as (name, value), in declaration order."""
        for name in self.knob_names():
            value = getattr(self, name)
            if value is not None:
                yield name, value

    @classmethod
    def knob_names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in dataclasses.fields(cls) if field.name != "mma")

    def as_dict(self) -> dict[str, int]:
        return dict(self)

    def matches(self, pins: Mapping[str, object]) -> bool:
        """True when every pinned knob has the pinned value here."""
        return all(same(getattr(self, name, None), value) for name, value in pins.items())

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self)

    @classmethod
    def parse(cls, text: str, knobs: Sequence[str] | None = None) -> Schedule:
        """Read `block_m=128,stages=3`; raise InputError that names the word which does not fit.

        knobs: those that may be named, as a rung has them; None is every one.
        """
        words = plain_text(text)
        if words is None:
            raise InputError(f"schedule is {shown(text)}; it must be text such as 'block_m=128,stages=3'.")
        known = cls.knob_names() if knobs is None else knobs
        values: dict[str, Any] = {}
        for word in filter(None, (part.strip() for part in words.split(","))):
            name, _, value = (piece.strip() for piece in word.partition("="))
            if name not in known:
                raise InputError(f"schedule names {shown(name)}; the knobs are {', '.join(known)}.")
            if not re.fullmatch("[0-9]{1,10}", value):
                raise InputError(f"schedule gives {name} the value {shown(value)}; it must be a positive integer.")
            if name in values:
                raise InputError(f"schedule names {name} twice; give it once.")
            values[name] = int(value)
        return cls(**values)


def as_pins(schedule: object) -> dict[str, object]:
    """What a schedule pins, by name: a `Schedule`, a mapping, or None for nothing."""
    if schedule is None:
        return {}
    if not isinstance(schedule, (Schedule, Mapping)):
        raise InputError(f"schedule is {shown(schedule)}; it must be a Schedule or a mapping of names to values.")
    pins: dict[str, object] = dict(schedule)
    for name in pins:
        if not isinstance(name, str):
            raise InputError(f"schedule names {shown(name)}; a knob's name is text.")
    return pins
