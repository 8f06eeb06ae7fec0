"""`Form`: layouts, batches and types of a product. `Epilogue`: operations on the product before C is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import accepts, integer, number, plain_text, shown

ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu", "swiglu")
"""Activation functions. swiglu: column j of C is silu(column 2j) * (column 2j + 1), so that C has half the columns."""

BLOCK_SCALES = {"1x128 1x128": (1, 1), "1x128 128x128": (1, 128), "128x128 1x128": (128, 1)}
"""Number of rows of A and of rows of B that share a scale, by the value of `Epilogue.scale`. Along K, 128 elements
share a scale."""

SCALED_K = 128
"""Elements along k of a block that shares a scale. A block has 1 row or 128 rows."""

PADDED_SCALES = 4
"""Divisor of the number of scales in a contiguous line, padding included: TMA reads lines of multiples of 16 bytes.
torch and cuBLAS do not pad 1x128 scales."""

SCALES = ("none", "tensor", "rowwise", *BLOCK_SCALES)
SCALE_WORDS = {"scaled": "tensor", "scaled_rows": "rowwise", "scaled_blocks": "1x128 128x128"}
"""Values of `Epilogue.scale`, by their words in the text of `Epilogue.parse`."""
MAJORS = {"a_major": ("k", "m"), "b_major": ("k", "n")}
OUTPUT_DTYPES = ("", "fp16", "bf16", "fp32")
MAX_STRIDE = 2**31 - 1
MAX_FACTOR = (2 - 2**-23) * 2.0**127
"""Largest fp32 number, the limit of alpha and beta."""
LAYOUTS = {"tn": ("k", "k"), "nn": ("m", "k"), "tt": ("k", "n"), "nt": ("m", "n")}
"""a_major and b_major by cuBLAS's two letters, the first for A. A: t is contiguous along k, n along m. B: t is
contiguous along n, n along k."""


@dataclass(frozen=True)
class Epilogue:
    """C = activation(alpha * scale_a * scale_b * (A @ B.T) + beta * residual + bias), in fp32, then in C's type.

    bias: True adds a vector of N. residual: True adds an M x N matrix, not read where beta is 0. activation: one of
    `ACTIVATIONS`. scale: "tensor", one scale for A and one for B; "rowwise", one for each row of A and each column of
    C. Scales of `BLOCK_SCALES` each multiply a sum of 128 products along K. bias and residual have C's type, scales are
    fp32.
    """

    bias: bool = False
    residual: bool = False
    activation: str = "none"
    scale: str = "none"
    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        for name in ("bias", "residual"):
            check_flag(name, getattr(self, name))
        object.__setattr__(self, "activation", _one_of("activation", self.activation, ACTIVATIONS))
        object.__setattr__(self, "scale", _one_of("scale", self.scale, SCALES))
        for name in ("alpha", "beta"):
            object.__setattr__(self, name, _factor(name, getattr(self, name)))

    def __str__(self) -> str:
        """Return the fields that differ from their defaults, such as "bias gelu"."""
        said = [name for name in ("bias", "residual") if getattr(self, name)]
        said += [f"{self.scale} scales"] if self.scale != "none" else []
        said += [f"{name}={getattr(self, name):g}" for name in ("alpha", "beta") if getattr(self, name) != 1]
        return " ".join(said + [self.activation] * (self.activation != "none"))

    @classmethod
    def parse(cls, text: str, alpha: float = 1.0, beta: float = 1.0) -> Epilogue:
        """Return the epilogue of a text such as "bias,gelu"; raise InputError for an unknown or repeated word."""
        words = plain_text(text)
        if words is None:
            raise InputError(f"epilogue is {shown(text)}; it must be text such as 'bias,gelu'.")
        known = ("bias", "residual", *SCALE_WORDS, *ACTIVATIONS[1:])
        named: dict[str, Any] = {}
        for word in filter(None, (part.strip() for part in words.split(","))):
            if word not in known:
                raise InputError(f"epilogue names {shown(word)}; the words are {', '.join(known)}.")
            kind = "scale" if word in SCALE_WORDS else "activation" if word in ACTIVATIONS else word
            if kind in named:
                raise InputError(f"epilogue names a second {kind}, {word}; give one.")
            named[kind] = SCALE_WORDS.get(word, word if kind == "activation" else True)
        if not named and words:
            raise InputError(f"epilogue is {shown(text)}, which names nothing; the words are {', '.join(known)}.")
        return cls(**named, alpha=alpha, beta=beta)

    @property
    def columns_of_c(self) -> int:
        """Return the number of columns of the product that make one column of C."""
        return 2 if self.activation == "swiglu" else 1


@dataclass(frozen=True, repr=False)
class Form:
    """Layout of a product's matrices in memory, and its epilogue.

    a_major, b_major: dimension along which A[m, k] and B[n, k] are contiguous. a_stride, b_stride: leading dimension in
    elements; 0: packed. a_batched, b_batched: True if each batch has its own matrix; a_batch_stride, b_batch_stride:
    elements from a batch's matrix to the next; 0: packed. c_stride: leading dimension of C; 0: packed. out: C's type;
    "": the type of `problem.c_dtype`. fast_accum: True if 8-bit products may accumulate in the tensor cores alone, on
    Hopper with less precision than fp32. divides_k: True if K is cut into as many parts as there are batches. Batch i
    of C is then the sum over part i of one product.
    """

    a_major: str = "k"
    b_major: str = "k"
    a_stride: int = 0
    b_stride: int = 0
    a_batched: bool = True
    b_batched: bool = True
    a_batch_stride: int = 0
    b_batch_stride: int = 0
    c_stride: int = 0
    out: str = ""
    fast_accum: bool = False
    divides_k: bool = False
    epilogue: Epilogue = field(default_factory=Epilogue)

    def __post_init__(self) -> None:
        for name, offered in MAJORS.items():
            object.__setattr__(self, name, _one_of(name, getattr(self, name), offered))
        object.__setattr__(self, "out", _one_of("out", self.out, OUTPUT_DTYPES))
        for name in ("fast_accum", "divides_k"):
            check_flag(name, getattr(self, name))
        for name in ("a_stride", "b_stride", "a_batch_stride", "b_batch_stride", "c_stride"):
            found = integer(getattr(self, name), 0, MAX_STRIDE)
            if found is None:
                raise InputError(
                    f"{name} is {shown(getattr(self, name))}; it must be an integer from 0 to {MAX_STRIDE}."
                )
            object.__setattr__(self, name, found)

    @property
    def swapped(self) -> Form:
        """Return the form with A and B exchanged."""
        return replace(
            self,
            a_major={"n": "m"}.get(self.b_major, "k"),
            b_major={"m": "n"}.get(self.a_major, "k"),
            a_stride=self.b_stride,
            b_stride=self.a_stride,
            a_batched=self.b_batched,
            b_batched=self.a_batched,
            a_batch_stride=self.b_batch_stride,
            b_batch_stride=self.a_batch_stride,
        )

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Form:
        """Return the form of a dict that `dataclasses.asdict` made."""
        return cls(**{**record, "epilogue": Epilogue(**record.get("epilogue", {}))})

    def __repr__(self) -> str:
        return f"Form({self})"

    def __str__(self) -> str:
        """Return the fields that differ from their defaults, such as "b_major=n, bias gelu"."""
        fields = ((name, getattr(self, name)) for name in vars(self) if name != "epilogue")
        said = [f"{name}={value}" for name, value in fields if value != getattr(PLAIN, name)]
        return ", ".join(said + [str(self.epilogue)] * (self.epilogue != PLAIN.epilogue))


def block_scale_shapes(scale: str, m: int, n: int, k: int) -> tuple[tuple[int, int], ...]:
    """Return the shapes of the scales of A and of B that a kernel takes. scale: a key of `BLOCK_SCALES`."""
    blocks_k = -(-k // SCALED_K)
    lines = (
        (blocks_k, rows) if rows_per_scale == 1 else (-(-rows // rows_per_scale), blocks_k)
        for rows, rows_per_scale in zip((m, n), BLOCK_SCALES[scale])
    )
    return tuple((count, -(-scales // PADDED_SCALES) * PADDED_SCALES) for count, scales in lines)


def check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InputError(f"{name} is {shown(value)}; it must be True or False.")


def check_progress(value: object, arguments: str = "CTAs done, CTAs in all") -> None:
    """Raise InputError unless a value is None or takes two arguments, which `arguments` names for the message."""
    if value is not None and not accepts(value, 2):
        raise InputError(f"progress is {shown(value)}; it must be a function of ({arguments}), or None.")


def _factor(name: str, value: object) -> float:
    found = number(value)
    if found is None:
        raise InputError(f"{name} is {shown(value)}; it must be a number.")
    if not abs(found) <= MAX_FACTOR:  # also refuses NaN
        raise InputError(
            f"{name} is {shown(value)}; it must be a finite number, from -{MAX_FACTOR:.3g} to {MAX_FACTOR:.3g}."
        )
    return found


def _one_of(name: str, value: object, offered: tuple[str, ...]) -> str:
    found = plain_text(value)
    if found is None or found not in offered:
        raise InputError(f"{name} is {shown(value)}; it must be one of {', '.join(map(repr, offered))}.")
    return found


PLAIN = Form()
"""Default form: packed K-major operands, C without epilogue."""
