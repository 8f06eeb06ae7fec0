"""Casts, operators and reductions of register tensors, an operator and its types in each case."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import torch
from explanations import (
    DIVISION,
    EXACT,
    EXPONENTIAL,
    SQUARE_AND_ITSELF,
    Bound,
    approximate,
    index_times_scalar,
)

from cases.made import TYPES, WHOLE, Case, Made, Type, blank, calm_grid_of, grid_of, source, tame, values

BINARY = {
    "add": "x + y", "sub": "x - y", "mul": "x * y", "div": "x / y", "floordiv": "x // y", "mod": "x % y",
    "and": "x & y", "or": "x | y", "xor": "x ^ y", "shl": "x << y", "shr": "x >> y", "lt": "x < y", "le": "x <= y",
    "gt": "x > y", "ge": "x >= y", "eq": "x == y", "ne": "x != y", "maximum": "self.maximum(x, y)",
    "where": "self.where(x < y, x, y)", "pow": "x ** y",
}  # fmt: skip
MIXED = ("add", "sub", "mul", "div", "lt", "eq", "maximum")
INPLACE = {"iadd": "+=", "isub": "-=", "imul": "*=", "idiv": "/=", "imod": "%=", "ixor": "^="}
UNARY = {
    "neg": "-x", "abs": "self.abs(x)", "exp": "self.exp(x)", "exp2": "self.exp2(x)", "log": "self.log(x)",
    "sqrt": "self.sqrt(x)", "rsqrt": "self.rsqrt(x)", "square": "self.square(x)", "round": "self.round(x)",
    "clip": "self.clip(x, min=-1, max=2)", "not": "~x", "cube": "x * x * x", "muladd": "x * x + x",
}  # fmt: skip
ROUNDS = ("exp2", "log", "sqrt", "rsqrt")
ROWS, COLUMNS = 16, 32


def cases() -> Iterator[Case]:
    for maker in (casts, unary, binary, scalars_with_tiles, fills, reductions):
        yield from maker()


# --- casts


def casts() -> Iterator[Case]:
    for source_type, target in itertools.product(TYPES.values(), TYPES.values()):
        packed = source_type.packed or target.packed
        for count in (1, 2, 4, 8):
            whole = count * source_type.nbits % 8 == 0 and count * target.nbits % 8 == 0
            if source_type is not target and whole and not (source_type.packed and target.packed and count != 8):
                both_8_bytes = min(source_type.nbits, target.nbits) >= 32
                if count == 1 or packed or not (both_8_bytes and count == 2):
                    key = f"cast/{source_type.name}/{target.name}/{count}"
                    yield Case(key, functools.partial(cast, source_type, target, count))


def cast(source_type: Type, target: Type, count: int) -> Made:
    """A row a thread, `count` elements each."""
    rows = 64
    body = f"""
    {_loaded("x_ptr", source_type, count)}
    y = self.cast(x, dtype={target.name})
    {_stored("y_ptr", "y", target, count)}
    """
    text = source("x_ptr: void_p, y_ptr: void_p", body, warps=2)
    return Made([(values(source_type, rows * count), blank(target, rows * count))], text)


def _loaded(pointer: str, kind: Type, count: int) -> str:
    """64 rows of `count` elements, a row a thread; packed ones through the bytes that hold them."""
    held, width = ("uint8", count * kind.nbits // 8) if kind.packed else (kind.name, count)
    view = f"self.global_view({pointer}, dtype={held}, shape=[64, {width}])"
    lines = [
        f"self.load_global({view}, offsets=[0, 0], shape=[64, {width}])",
        f"self.annotate_layout(x, spatial(64, 1).local(1, {width}))",
    ]
    if kind.packed:
        lines[0] = f"x_bytes = {lines[0]}"
        lines[1] = lines[1].replace("(x,", "(x_bytes,")
        lines.append(f"x = self.view(x_bytes, dtype={kind.name}, layout=spatial(64, 1).local(1, {count}))")
    else:
        lines[0] = f"x = {lines[0]}"
    return "\n    ".join(lines)


def _stored(pointer: str, name: str, kind: Type, count: int) -> str:
    held, width = ("uint8", count * kind.nbits // 8) if kind.packed else (kind.name, count)
    lines = []
    if kind.packed:
        lines.append(f"self.annotate_layout({name}, spatial(64, 1).local(1, {count}))")
        lines.append(f"{name}_bytes = self.view({name}, dtype=uint8, layout=spatial(64, 1).local(1, {width}))")
        name = f"{name}_bytes"
    view = f"self.global_view({pointer}, dtype={held}, shape=[64, {width}])"
    return "\n    ".join([*lines, f"self.store_global({view}, {name}, offsets=[0, 0])"])


# --- operators

_TILE = f"offsets=[0, 0], shape=[{ROWS}, {COLUMNS}]"


def _tile(name: str, kind: str) -> str:
    return f"{name} = self.load_global(self.global_view({name}_ptr, dtype={kind}, shape=[{ROWS}, {COLUMNS}]), {_TILE})"


def _out(name: str) -> str:
    """A store of whatever type the result has."""
    return f"self.store_global(self.global_view(z_ptr, dtype={name}.dtype, shape=[{ROWS}, {COLUMNS}]), {name}, offsets=[0, 0])"


def _room() -> torch.Tensor:
    """8 bytes an element, for a result whose type tilus chooses; it is compared in the type that the kernel views."""
    return blank(WHOLE["uint64"], ROWS, COLUMNS)


def _bound(kind: Type, name: str) -> Bound:
    """How far the result of an operator may be off, where one of its operands is of this type."""
    if not kind.is_float:
        return EXACT
    if name in ROUNDS:
        return approximate(name)
    return {"exp": EXPONENTIAL, "div": DIVISION, "idiv": DIVISION, "muladd": SQUARE_AND_ITSELF}.get(name, EXACT)


def unary() -> Iterator[Case]:
    for name, kind in itertools.product(UNARY, WHOLE.values()):
        yield Case(f"unary/{name}/{kind.name}", functools.partial(one_unary, name, kind))


def one_unary(name: str, kind: Type) -> Made:
    body = f"""
    {_tile("x", kind.name)}
    z = {UNARY[name]}
    {_out("z")}
    """
    count = ROWS * COLUMNS
    x = values(kind, count).view(ROWS, COLUMNS)
    text = source("x_ptr: void_p, z_ptr: void_p", body, warps=4)
    return Made([(x, _room())], text, bound=_bound(kind, name))


def binary() -> Iterator[Case]:
    for name, kind in itertools.product(BINARY, WHOLE.values()):
        yield Case(f"binary/{name}/{kind.name}/{kind.name}", functools.partial(one_binary, name, kind, kind))
    for name, (kind, other) in itertools.product(MIXED, itertools.permutations(WHOLE.values(), 2)):
        yield Case(f"binary/{name}/{kind.name}/{other.name}", functools.partial(one_binary, name, kind, other))
    for name, (kind, other) in itertools.product(INPLACE, itertools.product(WHOLE.values(), repeat=2)):
        if kind is other or hash_of(name, kind.name, other.name) % 3 == 0:
            key = f"inplace/{name}/{kind.name}/{other.name}"
            yield Case(key, functools.partial(one_inplace, name, kind, other))


def hash_of(*names: str) -> int:
    """The same on each run, which `hash` is not."""
    return sum(31**place % 9973 * ord(letter) for place, letter in enumerate("/".join(names)))


def one_binary(name: str, kind: Type, other: Type) -> Made:
    body = f"""
    {_tile("x", kind.name)}
    {_tile("y", other.name)}
    z = {BINARY[name]}
    {_out("z")}
    """
    return _of_two(body, kind, other, _bound(max(kind, other, key=lambda each: each.is_float), name))


def one_inplace(name: str, kind: Type, other: Type) -> Made:
    body = f"""
    {_tile("x", kind.name)}
    {_tile("y", other.name)}
    x {INPLACE[name]} y
    {_out("x")}
    """
    return _of_two(body, kind, other, _bound(max(kind, other, key=lambda each: each.is_float), name))


def _of_two(body: str, kind: Type, other: Type, bound: Bound) -> Made:
    x, y = grid_of(kind, other, ROWS, COLUMNS)
    text = source("x_ptr: void_p, y_ptr: void_p, z_ptr: void_p", body, warps=4)
    calm = calm_grid_of(kind, other, ROWS, COLUMNS)
    return Made([(x, y, _room()), (*calm, _room())], text, bound=bound)


SCALARS = {
    "int32": (0, 1, 3, -1, -7, 2**31 - 1, -(2**31)), "uint32": (0, 1, 5, 2**31, 2**32 - 1),
    "int64": (0, 3, -5, 2**40), "float32": (0.0, -0.0, 1.5, -2.5, 3e9, -1.0, float("nan"), float("inf"), 1e-40),
}  # fmt: skip
WITH_SCALAR = {
    "add": "x + s", "radd": "s + x", "sub": "x - s", "rsub": "s - x", "mul": "x * s", "rmul": "s * x", "div": "x / s",
    "rdiv": "s / x", "lt": "x < s", "ge": "x >= s", "eq": "x == s", "ne": "x != s", "xor": "x ^ s",
}  # fmt: skip


def scalars_with_tiles() -> Iterator[Case]:
    for name, kind, scalar in itertools.product(WITH_SCALAR, WHOLE.values(), SCALARS):
        yield Case(f"scalar-tile/{name}/{kind.name}/{scalar}", functools.partial(with_scalar, name, kind, scalar))
    for name, kind, literal in itertools.product(
        ("add", "rsub", "mul", "div", "lt"), WHOLE.values(), ("3", "-2.5", "300")
    ):
        yield Case(f"literal-tile/{name}/{kind.name}/{literal}", functools.partial(with_literal, name, kind, literal))


def with_scalar(name: str, kind: Type, scalar: str) -> Made:
    body = f"""
    {_tile("x", kind.name)}
    z = {WITH_SCALAR[name]}
    {_out("z")}
    """
    text = source(f"s: {scalar}, x_ptr: void_p, z_ptr: void_p", body, warps=4)
    x, _ = grid_of(kind, kind, ROWS, COLUMNS)
    launches = [(value, x, _room()) for value in SCALARS[scalar]]
    bound = _bound(WHOLE["float32"] if scalar == "float32" else kind, name.removeprefix("r"))
    return Made(launches, text, bound=bound)


def with_literal(name: str, kind: Type, literal: str) -> Made:
    body = f"""
    {_tile("x", kind.name)}
    z = {WITH_SCALAR[name].replace("s", literal)}
    {_out("z")}
    """
    x, _ = grid_of(kind, kind, ROWS, COLUMNS)
    text = source("x_ptr: void_p, z_ptr: void_p", body, warps=4)
    return Made(
        [(x, _room())], text, bound=_bound(kind if "." not in literal else WHOLE["float32"], name.removeprefix("r"))
    )


def fills() -> Iterator[Case]:
    """register_tensor(init=...) of a scalar parameter, and of an index, in each type."""
    for kind, scalar in itertools.product(WHOLE.values(), SCALARS):
        yield Case(f"fill/{kind.name}/{scalar}", functools.partial(fill, kind, scalar, "s"))
        yield Case(f"fill-index/{kind.name}/{scalar}", functools.partial(fill, kind, scalar, "i * s - j"))


def fill(kind: Type, scalar: str, what: str) -> Made:
    body = f"""
    z = self.register_tensor(dtype={kind.name}, shape=[{ROWS}, {COLUMNS}], init=lambda i, j: {kind.name}({what}))
    {_out("z")}
    """
    text = source(f"s: {scalar}, z_ptr: void_p", body, warps=4)
    bound = index_times_scalar(COLUMNS) if "*" in what and scalar == "float32" else EXACT
    return Made([(value, blank(kind, ROWS, COLUMNS)) for value in SCALARS[scalar]], text, bound=bound)


# --- reductions


def reductions() -> Iterator[Case]:
    shapes = ((32, 64), (16, 8), (128, 4))
    for name, kind, dim, warps in itertools.product(
        ("sum", "max", "min", "any", "all"), WHOLE.values(), ("0", "1", "None"), (1, 4)
    ):
        for rows, columns in shapes:
            if hash_of(name, kind.name, dim, str(rows)) % 2 == 0 or rows == 32:
                if name in ("any", "all") and kind.name not in ("boolean", "int32"):
                    continue
                keep = hash_of(kind.name, dim, str(warps), str(rows)) % 2 == 0
                key = f"reduce/{name}/{kind.name}/{dim}/{warps}/{rows}x{columns}/{'keep' if keep else 'drop'}"
                yield Case(key, functools.partial(reduction, name, kind, dim, warps, rows, columns, keep))


def reduction(name: str, kind: Type, dim: str, warps: int, rows: int, columns: int, keep: bool) -> Made:
    """Of small integers, and of values at random, whose sums depend on the order."""
    left = {
        "0": [1, columns] if keep else [columns],
        "1": [rows, 1] if keep else [rows],
        "None": [1, 1] if keep else [],
    }[dim]
    offsets = [0 for _ in left]
    if left:
        store = f"self.store_global(self.global_view(z_ptr, dtype=z.dtype, shape={left}), z, offsets={offsets})"
    else:
        store = f"""value: {kind.name} = z.item()
    one = self.register_tensor(dtype={kind.name}, shape=[1], init=lambda i: value)
    self.store_global(self.global_view(z_ptr, dtype={kind.name}, shape=[1]), one, offsets=[0])"""
    body = f"""
    g_x = self.global_view(x_ptr, dtype={kind.name}, shape=[{rows}, {columns}])
    x = self.load_global(g_x, offsets=[0, 0], shape=[{rows}, {columns}])
    z = self.{name}(x, dim={dim}, keepdim={keep})
    {store}
    """
    text = source("x_ptr: void_p, z_ptr: void_p", body, warps=warps)
    out = WHOLE["uint64"] if name in ("any", "all") else kind
    count = 1
    for extent in left:
        count *= extent
    inputs = [tame(kind, rows, columns), values(kind, rows * columns).view(rows, columns)]
    if kind.is_float and kind.nbits >= 16:
        inputs.append((tame(WHOLE["float32"], rows, columns, seed=1) / 3).to(kind.torch))
    return Made([(x, blank(out, count)) for x in inputs], text)
