"""`Problem`: the product to compute. `Schedule`: the tuning knobs of its kernel. `KNOBS`, `FEATURES`: their names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import integer, plain_text, same, shown
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED, BlockFormat
from blackwell_matmul.problem.form import PLAIN, Form

DTYPES = {"fp16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1}
"""Bytes of an element, by the types of A and B without block scales."""

C_BYTES = 2
"""Bytes of an element of C, unless `Form.out` is fp32."""

SIXTEEN_BITS = tuple(name for name, size in DTYPES.items() if size == C_BYTES)
"""Types of 16 bits in `DTYPES`. Every kernel of the ladders accepts them, and torch's `@` multiplies them."""


EIGHT_BITS = tuple(name for name, size in DTYPES.items() if size != C_BYTES)

BITS = {**{name: 8 * size for name, size in DTYPES.items()}, **{name: each.bits for name, each in BLOCK_SCALED.items()}}
"""Bits of an element, for all types that a `Problem` can have."""


def c_dtype(dtype: str) -> str:
    """Return C's default type for A and B of `dtype`: the same type, or bf16 for types of 8 bits and less."""
    return dtype if dtype in SIXTEEN_BITS else "bf16"


TORCH_NAMES = {"fp16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
"""torch's name of each type in `DTYPES`."""

DTYPE_OF_TORCH = {f"torch.{name}": dtype for dtype, name in TORCH_NAMES.items()}
"""Types in `DTYPES` by torch's printed name."""

OF_THE_PROBLEM = ("dtype", "c_dtype", "types", "form")
"""Names of the arguments of a kernel's `__init__` that follow from the problem, not from the schedule."""

MMAS = ("tcgen05", "wgmma", "mma.sync")
"""MMA instructions. tcgen05 accumulates in tensor memory, on data-center Blackwell. wgmma accumulates in registers, on
Hopper. mma.sync reads and accumulates in registers, on every GPU."""

INT32_MAX = 2**31 - 1


def positive(name: str, value: object, least: int = 1) -> int:
    """Return `value` as an int from `least` to `INT32_MAX`; raise InputError for any other value."""
    found = integer(value, least, INT32_MAX)
    if found is None:
        raise InputError(f"{name} is {shown(value)}; it must be an integer from {least} to {INT32_MAX}.")
    return found


def plain_seed(value: object) -> int:
    """Return `value` as an int from 0 to 2**63 - 1; raise InputError for any other value."""
    found = integer(value, 0, 2**63 - 1)
    if found is None:
        raise InputError(f"seed is {shown(value)}; it must be an integer from 0 to 2**63 - 1.")
    return found


def plain_workers(value: object) -> int | None:
    """Return a number of processes from 1 to `MAX_WORKERS` as an int, and None as None; raise InputError for any other
    value."""
    found = integer(value, 1, MAX_WORKERS)
    if value is not None and found is None:
        raise InputError(
            f"workers is {shown(value)}; it must be an integer from 1 to {MAX_WORKERS}, or None for one per core."
        )
    return found


POLICIES = ("adversarial", "eager", "random")
"""Policies by which the simulator orders the completions of asynchronous operations. adversarial: as late as possible;
eager: as early as possible."""


def plain_policy(value: object) -> str:
    """Return `value` if it is the name of a policy; raise InputError for any other value."""
    found = plain_text(value)
    if found is None or found not in POLICIES:
        raise InputError(f"policy is {shown(value)}; it must be one of {', '.join(POLICIES)}.")
    return found


def plain_dtype(value: object) -> str:
    """Return `value` if it is a key of `BITS`; raise InputError for any other value."""
    found = plain_text(value)
    if found is None or found not in BITS:
        raise InputError(f"dtype is {shown(value)}; it must be one of {', '.join(BITS)}.")
    return found


MAX_WORKERS = 1024
"""Maximum number of processes that simulate at the same time."""

MAX_ORDERS = 10_000
"""Maximum number of orders of warps and completions for one check."""


@dataclass(frozen=True)
class Problem:
    """C[m, n] = A[m, k] @ B[n, k].T with A and B of one type, fp32 accumulation, and C of 16 bits.

    m, n, k: numbers of elements. dtype: type of A and B, a key of `BITS`. form: layouts of A, B and C, C's type and the
    epilogue. batches: number of products.
    """

    m: int
    n: int
    k: int
    dtype: str = "fp16"
    form: Form = PLAIN
    batches: int = 1

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batches"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        object.__setattr__(self, "dtype", plain_dtype(self.dtype))
        if not isinstance(self.form, Form):
            raise InputError(f"form is {shown(self.form)}; it must be a Form.")
        if self.form.out == c_dtype(self.dtype):
            object.__setattr__(self, "form", dataclasses.replace(self.form, out=""))

    def as_dict(self) -> dict[str, Any]:
        """Return the problem as a dict for JSON, without `form` and `batches` if the problem is plain."""
        plain = {"m": self.m, "n": self.n, "k": self.k, "dtype": self.dtype}
        return plain if self.is_plain else {**plain, "form": dataclasses.asdict(self.form), "batches": self.batches}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Problem:
        """Return the problem of a dict that `as_dict` made."""
        return cls(**{**record, "form": Form.from_dict(record.get("form", {}))})

    @property
    def element_bits(self) -> int:
        return BITS[self.dtype]

    @property
    def element_bytes(self) -> int:
        """Return the bytes of an element; 0 for an element of 4 bits."""
        return self.element_bits // 8

    @property
    def format(self) -> BlockFormat | None:
        """Return the format of block-scaled operands; None for operands without scales."""
        return BLOCK_SCALED.get(self.dtype)

    @property
    def k_bytes(self) -> int:
        """Return the bytes of k elements."""
        return self.k * self.element_bits // 8

    @property
    def parts_of_k(self) -> int:
        """Return the number of parts into which K is cut (`Form.divides_k`); 1 if each batch is a whole product."""
        return self.batches if self.form.divides_k else 1

    @cached_property
    def swapped(self) -> Problem:
        """Return the problem of C.T = B @ A.T."""
        return dataclasses.replace(self, m=self.n, n=self.m, form=self.form.swapped)

    @property
    def c_bytes(self) -> int:
        """Return the bytes of an element of C."""
        return 4 if self.form.out == "fp32" else C_BYTES

    @property
    def is_plain(self) -> bool:
        """Return True for one product of packed K-major matrices without epilogue, which every kernel computes."""
        return self.form == PLAIN and self.batches == 1

    @property
    def is_plain_but_for_c(self) -> bool:
        """Return True if the problem is plain except for C's type."""
        return dataclasses.replace(self, form=dataclasses.replace(self.form, out="")).is_plain

    @property
    def a_line(self) -> int:
        """Return the leading dimension of A, in elements."""
        return self.form.a_stride or (self.k if self.form.a_major == "k" else self.m)

    @property
    def b_line(self) -> int:
        """Return the leading dimension of B, in elements."""
        return self.form.b_stride or (self.k if self.form.b_major == "k" else self.n)

    @property
    def c_line(self) -> int:
        """Return the leading dimension of C, in elements."""
        return self.form.c_stride or self.columns

    @property
    def columns(self) -> int:
        """Return the number of columns of C."""
        return self.n // self.form.epilogue.columns_of_c

    @property
    def bytes(self) -> int:
        """Return the bytes of A, B, C and the scales of blocks."""
        a = self.m * (self.batches if self.form.a_batched else 1)
        b = self.n * (self.batches if self.form.b_batched else 1)
        scales = sum(self.format.scales(rows, self.k) for rows in (a, b)) if self.format else 0
        return self.k_bytes * (a + b) + scales + self.c_bytes * self.batches * self.m * self.columns

    @property
    def flops(self) -> int:
        """Return the number of floating-point operations: 2 m n k for each product."""
        return 2 * self.batches // self.parts_of_k * self.m * self.n * self.k

    def __str__(self) -> str:
        batches = f"{self.batches} x " if self.batches > 1 else ""
        form = f", {self.form}" if self.form != PLAIN else ""
        return f"{batches}{self.m}x{self.n}x{self.k} {self.dtype}{form}"


FEATURES: Mapping[str, str] = MappingProxyType(
    {
        "tma": "A and B come by TMA, and C leaves by it, in strips of columns",
        "ring": "shared memory holds several k-tiles, loaded ahead",
        "specialised": "one warp loads, others multiply",
        "grouped": "tiles go down the rows of a group before they go on to the next column",
        "persistent": "a CTA computes tile after tile, and there is one for each SM at most",
        "queue": "CTAs can take tiles as they come, from a counter, in place of a fixed list",
        "clc": "a CTA computes tile after tile, as cluster launch control hands them out",
        "pairs": "two CTAs compute a tile together, with one MMA of twice the rows",
        "clusters": "the CTAs of a cluster lie above each other and read their tile of B once, by multicast",
        "rectangles": "a cluster's CTAs lie beside each other, too, and read their tile of A once, by multicast",
        "neighbours": "CTAs that share nothing come in clusters, too, or in no cluster and one GPC after the other",
        "split_k": "the CTAs of a cluster compute a tile together, each a part of K",
        "gathered": "of the CTAs that share K, the first one finishes the tile, and C leaves straight from registers",
        "any_size": "tiles can have 16 or 32 rows, or any width in one strip; the last ones begin within C",
        "boxes": "a k-tile can be wider than what TMA swizzles, and comes in boxes of that width",
        "swap": "A and B can change places: what is computed then is C transposed, with M on the columns of the MMA",
        "scaled": "each block of A and of B along k has a scale, by which the tensor core multiplies",
        "forms": "A and B are contiguous along k or along m and n, there may be batches, and C gets an epilogue",
    }
)
"""Descriptions of a kernel's features, by name. A kernel may combine them; its MMA instruction is no feature."""


@dataclass(frozen=True)
class Knob:
    """Metadata of a field of `Schedule`.

    values: values in the search space. feature: feature of the kernels that have the knob; "": every kernel has the
    knob. mma: the only MMA instruction whose kernels have the knob; "": any. after: knob that must also be set in a
    schedule without named features.
    """

    values: tuple[int, ...]
    feature: str = ""
    mma: str = ""
    after: str = ""


def knob(*values: int, **what: str) -> Any:
    """Return a field of `Schedule` with default None. values, what: the fields of its `Knob`."""
    return dataclasses.field(default=None, metadata={"knob": Knob(values, **what)})


@dataclass(frozen=True)
class Schedule:
    """Tuning knobs of a kernel; None for a knob that the kernel does not have.

    block_m, block_n, block_k: tile of C that one CTA or CTA pair computes, and its step along k, in elements.
    e_block_n: width of an epilogue strip, in columns of C. stages: shared-memory buffers of A and B. consumers:
    warpgroups that share a tile. group_m: number of tiles along m before the next tile along n. cluster_m: CTAs along m
    that share a tile of B by multicast. cluster_n: CTAs along n that share a tile of A by multicast. split_k: CTAs that
    compute a tile together, each a part of K. neighbours: minimum cluster size, even if CTAs share nothing. swap_ab: 1
    computes C transposed, B @ A.T; the other knobs then have m and n, and A and B, exchanged. mma: one of `MMAS`, set
    by the kernel. features: keys of `FEATURES`, set by the kernel; None: the features of the set knobs.
    """

    block_m: int | None = knob(16, 32, 64, 128, 192, 256)
    block_n: int | None = knob(16, 32, 48, *range(64, 257, 8))
    block_k: int | None = knob(16, 32, 64, 128, 256)
    e_block_n: int | None = knob(
        *(16, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 136, 144, 152, 176, 184, 232, 248), feature="tma"
    )
    stages: int | None = knob(2, 3, 4, 5, 6, 7, 8, 9, 10, 12, feature="ring", after="e_block_n")
    consumers: int | None = knob(1, 2, 3, feature="specialised", after="stages", mma="wgmma")
    group_m: int | None = knob(1, 4, 8, 16, feature="grouped", after="stages")
    cluster_m: int | None = knob(1, 2, 4, feature="clusters", after="group_m")
    cluster_n: int | None = knob(1, 2, 4, feature="rectangles", after="cluster_m")
    split_k: int | None = knob(1, 2, 4, 8, feature="split_k", after="cluster_m")
    neighbours: int | None = knob(1, 2, feature="neighbours", after="cluster_m")
    swap_ab: int | None = knob(0, 1, feature="swap", after="split_k")
    mma: str = dataclasses.field(default="tcgen05", kw_only=True)
    features: tuple[str, ...] | None = dataclasses.field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        for name, value in self:
            object.__setattr__(self, name, positive(name, value, least=min(1, *KNOBS[name].values)))
        if plain_text(self.mma) not in MMAS:
            raise InputError(f"mma is {shown(self.mma)}; it must be one of {', '.join(MMAS)}.")
        if self.features is not None:
            named = plain_features(self.features)
            told = self.gap is None and named == features_of(name for name, _ in self)
            object.__setattr__(self, "features", None if told else named)

    @property
    def gap(self) -> tuple[str, str] | None:
        """Return the first knob that is set without its required knob (`Knob.after`), and the required knob.

        None: every required knob is set.
        """
        steps = ((name, KNOBS[name].after) for name, _ in self if KNOBS[name].after)
        return next(((name, earlier) for name, earlier in steps if getattr(self, earlier) is None), None)

    @cached_property
    def kernel_features(self) -> frozenset[str]:
        """Return `features`, or the features of the set knobs if `features` is None."""
        return frozenset(features_of(name for name, _ in self) if self.features is None else self.features)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yield the set knobs as (name, value), in declaration order."""
        for name in self.knob_names():
            value = getattr(self, name)
            if value is not None:
                yield name, value

    @classmethod
    def knob_names(cls) -> tuple[str, ...]:
        return tuple(KNOBS)

    def as_dict(self) -> dict[str, int]:
        return dict(self)

    def matches(self, pins: Mapping[str, object]) -> bool:
        """Return True if every pinned knob has the pinned value."""
        return all(same(getattr(self, name, None), value) for name, value in pins.items())

    def with_known(self, values: Mapping[str, int]) -> Schedule:
        """Return a copy with these knob values, without checks of the values."""
        made = object.__new__(Schedule)
        made.__dict__.update(self.__dict__, kernel_features=self.kernel_features, **values)
        return made

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self)

    @classmethod
    def parse(cls, text: str, knobs: Sequence[str] | None = None) -> Schedule:
        """Return the schedule of a text such as `block_m=128,stages=3`; raise InputError for a word that does not fit.

        knobs: allowed names; None: the names of all knobs.
        """
        words = plain_text(text)
        if words is None:
            raise InputError(f"schedule is {shown(text)}; it must be text such as 'block_m=128,stages=3'.")
        known, whose = (cls.knob_names(), ", of which each rung has some") if knobs is None else (knobs, "")
        values: dict[str, Any] = {}
        for word in filter(None, (part.strip() for part in words.split(","))):
            name, _, value = (piece.strip() for piece in word.partition("="))
            if name not in known:
                raise InputError(f"schedule names {shown(name)}; the knobs are {', '.join(known)}{whose}.")
            if not re.fullmatch("[0-9]{1,10}", value):
                raise InputError(f"schedule gives {name} the value {shown(value)}; it must be a positive integer.")
            if name in values:
                raise InputError(f"schedule names {name} twice; give it once.")
            values[name] = int(value)
        if not values and words:
            raise InputError(f"schedule is {shown(text)}, which names no knob; one is block_m=128.")
        return cls(**values)


KNOBS: Mapping[str, Knob] = MappingProxyType(
    {field.name: field.metadata["knob"] for field in dataclasses.fields(Schedule) if "knob" in field.metadata}
)
"""Knobs by name, in the order of `Schedule`'s fields."""


def features_of(knobs: Iterable[str]) -> tuple[str, ...]:
    """Return the features that have these knobs, in the order of `FEATURES`."""
    tuned = {KNOBS[name].feature for name in KNOBS.keys() & set(knobs)}
    return tuple(name for name in FEATURES if name in tuned)


def plain_features(value: object) -> tuple[str, ...]:
    """Return `value` as keys of `FEATURES`, in their order; raise InputError for any other name."""
    names = list(value) if isinstance(value, (tuple, list)) else [value]
    for name in names:
        if plain_text(name) not in FEATURES:
            raise InputError(f"features names {shown(name)}; the features are {', '.join(FEATURES)}.")
    return tuple(name for name in FEATURES if name in names)


def as_pins(schedule: object) -> dict[str, object]:
    """Return the pinned values by knob name. schedule: a `Schedule`, a mapping, or None for no pins."""
    if schedule is None:
        return {}
    if not isinstance(schedule, (Schedule, Mapping)):
        raise InputError(f"schedule is {shown(schedule)}; it must be a Schedule or a mapping of names to values.")
    pins: dict[str, object] = dict(schedule)
    for name in pins:
        if not isinstance(name, str):
            raise InputError(f"schedule names {shown(name)}; a knob's name is text.")
    return pins
