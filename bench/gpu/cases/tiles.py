"""Loads and stores with offsets and tails, shared memory, copies, TMA, shapes of registers, thread groups."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Sequence

import torch

from cases.made import WHOLE, Case, Made, Type, blank, source, values

HELD = ("boolean", "int8", "uint16", "int32", "int64", "float8_e4m3", "float16", "bfloat16", "float32", "float64")
TILES = ((16, 32), (8, 64), (32, 8), (64, 16), (16, 1), (1, 128))


def cases() -> Iterator[Case]:
    for maker in (copies, shifted, converting, through_shared, asynchronous, boxes, shapes, groups):
        yield from maker()


def _rows(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def copies() -> Iterator[Case]:
    """A matrix in tiles, the last of which hang over."""
    for kind, tile, warps in itertools.product(HELD, TILES, (1, 4)):
        yield Case(f"copy/{kind}/{_rows(tile)}/{warps}", functools.partial(copy, WHOLE[kind], tile, warps))


def copy(kind: Type, tile: tuple[int, int], warps: int) -> Made:
    rows, columns = tile
    body = f"""
    g_x = self.global_view(x_ptr, dtype={kind.name}, shape=[m, n], strides=[row, 1])
    g_y = self.global_view(y_ptr, dtype={kind.name}, shape=[m, n])
    offsets = [self.blockIdx.x * {rows}, self.blockIdx.y * {columns}]
    self.store_global(g_y, self.load_global(g_x, offsets=offsets, shape=[{rows}, {columns}]), offsets=offsets)
    """
    blocks = f"(m + {rows - 1}) // {rows}, (n + {columns - 1}) // {columns}"
    text = source("m: int32, n: int32, row: int32, x_ptr: void_p, y_ptr: void_p", body, warps, blocks)
    sizes = ((37, 61, 61), (16, 32, 40), (1, 1, 1), (33, 7, 129))
    return Made([(m, n, row, values(kind, m * row), blank(kind, m, n)) for m, n, row in sizes], text)


SHIFTS = ((0, 0), (1, 3), (-1, 0), (0, -3), (-5, -7), (10, 40), (5, 24), (100, 100), (2, -1))


def shifted() -> Iterator[Case]:
    """A tile at an offset, which may lie outside: as a parameter, a constant, by blocks, and from memory."""
    for kind, how, side in itertools.product(
        ("int32", "float16", "int8"), ("parameter", "constant", "block", "tensor"), ("load", "store")
    ):
        for number in range(len(SHIFTS)) if how == "constant" else (0,):
            yield Case(f"shift/{side}/{how}/{kind}/{number}", functools.partial(shift, WHOLE[kind], how, side, number))


def shift(kind: Type, how: str, side: str, number: int) -> Made:
    row, column = SHIFTS[number]
    lines = {
        "parameter": "r: int32 = down\nc: int32 = right",
        "constant": f"r: int32 = {row}\nc: int32 = {column}",
        "block": "r: int32 = self.blockIdx.x * 8 - 3\nc: int32 = self.blockIdx.y * 16 - 5",
        "tensor": "g_o = self.global_view(o_ptr, dtype=int32, shape=[2])\nr: int32 = g_o[0].item()\nc: int32 = g_o[1].item()",
    }[how].splitlines()
    load, store = ("[r, c]", "[0, 0]") if side == "load" else ("[0, 0]", "[r, c]")
    lines += [
        f"g_x = self.global_view(x_ptr, dtype={kind.name}, shape=[13, 45])",
        f"g_y = self.global_view(y_ptr, dtype={kind.name}, shape=[13, 45])",
        f"x = self.load_global(g_x, offsets={load}, shape=[8, 16])",
        f"self.store_global(g_y, x, offsets={store})",
    ]
    text = source(
        "down: int32, right: int32, o_ptr: ~int32, x_ptr: void_p, y_ptr: void_p", "\n".join(lines), blocks="1"
    )
    shifts = SHIFTS if how in ("parameter", "tensor") else [(row, column)]
    x = values(kind, 13 * 45)
    launches = [(r, c, torch.tensor([r, c], dtype=torch.int32), x, blank(kind, 13, 45)) for r, c in shifts]
    return Made(launches, text)


def converting() -> Iterator[Case]:
    """Stores and copies between types, which convert nothing."""
    for kind, other in itertools.permutations(("int8", "int32", "float16", "bfloat16", "float32", "float8_e4m3"), 2):
        for how in ("store_global", "store_shared", "copy_async", "tma"):
            yield Case(f"between/{how}/{kind}/{other}", functools.partial(between, how, WHOLE[kind], WHOLE[other]))


def between(how: str, kind: Type, other: Type) -> Made:
    view = f"g_x = self.global_view(x_ptr, dtype={kind.name}, shape=[16, 32])"
    out = f"g_y = self.global_view(y_ptr, dtype={other.name}, shape=[16, 32])"
    load = "x = self.load_global(g_x, offsets=[0, 0], shape=[16, 32])"
    shared = f"s = self.shared_tensor(dtype={other.name}, shape=[16, 32])"
    from_shared = "self.store_global(g_y, self.load_shared(s), offsets=[0, 0])"
    lines = {
        "store_global": [load, "self.store_global(g_y, x, offsets=[0, 0])"],
        "store_shared": [load, shared, "self.store_shared(s, x)", "self.sync()", from_shared],
        "copy_async": [
            shared,
            "self.copy_async(g_x, s, offsets=[0, 0])",
            "self.copy_async_wait_all()",
            "self.sync()",
            from_shared,
        ],
        "tma": [shared, *_TMA_LOAD.format(offsets="[0, 0]", dims="None").splitlines(), from_shared],
    }[how]
    text = source("x_ptr: void_p, y_ptr: void_p", "\n".join([view, out, *lines]))
    return Made([(values(kind, 512).view(16, 32), blank(other, 16, 32))], text)


def through_shared() -> Iterator[Case]:
    """Registers to shared memory and back: as it is, transposed, permuted, reshaped, a row of it."""
    for kind, tile, warps, how in itertools.product(
        HELD, ((16, 32), (32, 64)), (1, 4), ("same", "transpose", "reshape", "row")
    ):
        yield Case(
            f"shared/{how}/{kind}/{_rows(tile)}/{warps}", functools.partial(shared, WHOLE[kind], tile, warps, how)
        )


def shared(kind: Type, tile: tuple[int, int], warps: int, how: str) -> Made:
    m, n = tile
    what, left = {
        "same": ("s", [m, n]), "transpose": ("s.transpose()", [n, m]), "row": ("s[3]", [n]),
        "reshape": (f"self.reshape_shared(s, [{m // 2}, {n * 2}])", [m // 2, n * 2]),
    }[how]  # fmt: skip
    body = f"""
    g_x = self.global_view(x_ptr, dtype={kind.name}, shape=[{m}, {n}])
    s = self.shared_tensor(dtype={kind.name}, shape=[{m}, {n}])
    self.store_shared(s, self.load_global(g_x, offsets=[0, 0], shape=[{m}, {n}]))
    self.sync()
    g_y = self.global_view(y_ptr, dtype={kind.name}, shape={left})
    self.store_global(g_y, self.load_shared({what}), offsets={[0 for _ in left]})
    """
    text = source("x_ptr: void_p, y_ptr: void_p", body, warps)
    return Made([(values(kind, m * n).view(m, n), blank(kind, *left))], text)


def asynchronous() -> Iterator[Case]:
    """copy_async of a tile that may hang over on each side."""
    for kind, tile, warps in itertools.product(
        ("int8", "int32", "float16", "float32", "float64"), ((16, 32), (8, 64), (32, 16)), (1, 4)
    ):
        for checked in (True, False):
            key = f"copy_async/{kind}/{_rows(tile)}/{warps}/{'checked' if checked else 'unchecked'}"
            yield Case(key, functools.partial(cp_async, WHOLE[kind], tile, warps, checked))


def cp_async(kind: Type, tile: tuple[int, int], warps: int, checked: bool) -> Made:
    m, n = tile
    body = f"""
    g_x = self.global_view(x_ptr, dtype={kind.name}, shape=[rows, {n * 2}])
    s = self.shared_tensor(dtype={kind.name}, shape=[{m}, {n}])
    self.copy_async(g_x, s, offsets=[down, right], check_bounds={checked})
    self.copy_async_commit_group()
    self.copy_async_wait_group(0)
    self.sync()
    g_y = self.global_view(y_ptr, dtype={kind.name}, shape=[{m}, {n}])
    self.store_global(g_y, self.load_shared(s), offsets=[0, 0])
    """
    text = source("rows: int32, down: int32, right: int32, x_ptr: void_p, y_ptr: void_p", body, warps)
    places = ((0, 0), (5, n // 2), (m // 2, n), (m + 9, n + n // 2), (100, 0)) if checked else ((0, 0), (5, n // 2))
    rows = m + 11
    x = values(kind, rows * n * 2)
    return Made([(rows, down, right, x, blank(kind, m, n)) for down, right in places], text)


# --- TMA

_TMA_LOAD = """\
arrived = self.mbarrier.alloc(counts=1)
self.sync()
with self.single_warp():
    with self.single_thread():
        self.mbarrier.arrive_and_expect_tx(arrived, transaction_bytes=s.nbytes)
    self.tma.global_to_shared(src=g_x, dst=s, offsets={offsets}, dims={dims}, mbarrier=arrived)
self.mbarrier.wait(arrived, phase=0)"""
_TMA_STORE = """\
self.fence.proxy_async(space="shared")
self.sync()
with self.single_warp():
    self.tma.shared_to_global(s, g_y, offsets={offsets}, dims={dims})
    self.tma.commit_group()
    self.tma.wait_group(0)"""


BROKEN = tuple(
    (side, kind, number)
    for side, kinds in (("load", ("float16", "uint8")), ("store", ("float32", "bfloat16", "int32")))
    for kind in kinds
    for number in (0, 1)
)
"""Copies that stop an H200, all of which the simulator has to report; they are not launched."""


def boxes() -> Iterator[Case]:
    """Boxes of 1 to 5 dimensions, inside and clipped, some over a part of the view's dimensions."""
    for kind, rank, number in itertools.product(
        ("float16", "float32", "bfloat16", "int32", "uint8", "float8_e4m3"), range(1, 6), range(6)
    ):
        for side in ("load", "store"):
            yield Case(f"tma/{side}/{kind}/{rank}/{number}", functools.partial(box, side, WHOLE[kind], rank, number))
    for side, kind, number in BROKEN:
        key = f"tma/broken/{side}/{kind}/{number}"
        yield Case(key, functools.partial(box, side, WHOLE[kind], 2 + number % 2, number, broken=True))


def box(side: str, kind: Type, rank: int, number: int, broken: bool = False) -> Made:
    draw = random.Random(f"{side} {kind.name} {rank} {number}")
    inner = 128 // kind.nbits  # 16 bytes
    shape = [draw.randint(2, 9) for _ in range(rank - 1)] + [inner * draw.randint(2, 6)]
    size = [draw.choice((1, 2, 4, 8)) for _ in range(rank - 1)] + [inner * draw.choice((1, 2, 4))]
    dims: list[int] | None = None
    if number == 5 and rank > 1:  # a part of the dimensions, the last among them
        dims = sorted([*draw.sample(range(rank - 1), draw.randint(0, rank - 2)), rank - 1])
        size = [size[dim] for dim in dims]
    offsets = ", ".join(f"o{dim}" for dim in range(rank))
    zeros = [0 for _ in size]
    whole, part = f"shape={shape}", f"shape={size}"
    lines = [f"s = self.shared_tensor(dtype={kind.name}, {part})"]
    if side == "load":
        lines += [f"g_x = self.global_view(x_ptr, dtype={kind.name}, {whole})"]
        lines += _TMA_LOAD.format(offsets=f"[{offsets}]", dims=dims).splitlines()
        lines += [f"g_y = self.global_view(y_ptr, dtype={kind.name}, {part})"]
        lines += [f"self.store_global(g_y, self.load_shared(s), offsets={zeros})"]
    else:
        lines += [f"g_x = self.global_view(x_ptr, dtype={kind.name}, {part})"]
        lines += [f"g_y = self.global_view(y_ptr, dtype={kind.name}, {whole})"]
        lines += [f"self.store_shared(s, self.load_global(g_x, offsets={zeros}, {part}))"]
        lines += _TMA_STORE.format(offsets=f"[{offsets}]", dims=dims).splitlines()
    scalars = ", ".join(f"o{dim}: int32" for dim in range(rank))
    text = source(f"{scalars}, x_ptr: void_p, y_ptr: void_p", "\n".join(lines))
    places = [[0] * rank, _place(draw, shape, inner, 0, 0), _place(draw, shape, inner, -2 if side == "load" else 0, 2)]
    if broken:
        places = [_broken_place(draw, shape, inner, side, number)]
    into, out = (shape, size) if side == "load" else (size, shape)
    count = 1
    for extent in into:
        count *= extent
    launches = [(*place, values(kind, count).view(into), blank(kind, *out)) for place in places]
    return Made(launches, text, broken=broken)


def _place(draw: random.Random, shape: Sequence[int], inner: int, before: int, beyond: int) -> list[int]:
    """Where a box begins: the innermost coordinate at a multiple of 16 bytes, without which the copy is an illegal
    instruction; a store has no negative one either (CUDA programming guide, tensor copies)."""
    outer = [draw.randint(before, extent + beyond) for extent in shape[:-1]]
    return [*outer, inner * draw.randint(before, shape[-1] // inner + beyond)]


def _broken_place(draw: random.Random, shape: Sequence[int], inner: int, side: str, number: int) -> list[int]:
    place = _place(draw, shape, inner, 0, 0)
    if side == "store" and number % 2:
        place[draw.randrange(len(shape))] = -inner
    else:
        place[-1] += draw.choice((1, inner // 2, inner - 1)) if inner > 2 else 1
    return place


# --- shapes of register tensors

SHAPES = {
    "transpose": ("x.transpose()", [32, 16]),
    "squeeze": ("self.squeeze(self.unsqueeze(x, dim=1), dim=1)", [16, 32]),
    "unsqueeze": ("self.unsqueeze(x, dim=0)", [1, 16, 32]),
    "repeat": ("self.repeat(x, [2, 1])", [32, 32]),
    "repeat_columns": ("self.repeat(x, [1, 3])", [16, 96]),
    "interleave": ("self.repeat_interleave(x, [2, 1])", [32, 32]),
    "interleave_columns": ("self.repeat_interleave(x, [1, 2])", [16, 64]),
    "row": ("x[3]", [32]),
    "column": ("x[:, 5]", [16]),
    "where": ("self.where(x == x, x, x)", [16, 32]),
    "broadcast_row": ("x + self.load_global(g_x, offsets=[2, 0], shape=[1, 32])", [16, 32]),
    "broadcast_column": ("x + self.load_global(g_x, offsets=[0, 7], shape=[16, 1])", [16, 32]),
}  # fmt: skip
LAYOUTS = {
    "inferred": "", "rows": "local(16, 1).spatial(1, 32)", "columns": "replicated(1, 1, num_workers=2).spatial(16, 1).local(1, 32)",
    "blocked": "spatial(4, 8).local(4, 4)", "mixed": "local(2, 1).spatial(8, 4).local(1, 8)",
}  # fmt: skip


def shapes() -> Iterator[Case]:
    for name, kind, layout in itertools.product(SHAPES, ("int32", "float16", "int8", "float64"), LAYOUTS):
        yield Case(f"shape/{name}/{kind}/{layout}", functools.partial(shape, name, WHOLE[kind], layout))


def shape(name: str, kind: Type, layout: str) -> Made:
    what, left = SHAPES[name]
    annotated = f"self.annotate_layout(x, {LAYOUTS[layout]})" if LAYOUTS[layout] else ""
    body = f"""
    g_x = self.global_view(x_ptr, dtype={kind.name}, shape=[16, 32])
    x = self.load_global(g_x, offsets=[0, 0], shape=[16, 32])
    {annotated}
    y = {what}
    self.store_global(self.global_view(y_ptr, dtype={kind.name}, shape={left}), y, offsets={[0 for _ in left]})
    """
    text = source("x_ptr: void_p, y_ptr: void_p", body, warps=1)
    return Made([(values(kind, 512).view(16, 32), blank(kind, *left))], text)


# --- thread groups

GROUPS = {
    "thread": "with self.single_thread():\n    {0}", "thread_5": "with self.single_thread(thread=5):\n    {0}",
    "warp": "with self.single_warp():\n    {0}", "warp_2": "with self.single_warp(2):\n    {0}",
    "warps": "with self.warp_group(1, 2):\n    {0}", "threads": "with self.thread_group(32, 64):\n    {0}",
    "few": "with self.thread_group(48, 16):\n    {0}", "all": "if True:\n    {0}",
    "nested": "with self.thread_group(64, 64):\n    with self.single_warp(1):\n        {0}",
    "condition": "if n > 3:\n    with self.single_warp(1):\n        {0}",
    "loop": "for k in range(n):\n    with self.single_warp(1):\n        {0}\n    self.sync()",
}  # fmt: skip


def groups() -> Iterator[Case]:
    for name, what in itertools.product(GROUPS, ("fill", "sum", "shared", "count")):
        yield Case(f"group/{name}/{what}", functools.partial(group, name, what))


def group(name: str, what: str) -> Made:
    inner = {
        "fill": "self.store_global(g_y, self.register_tensor(dtype=int32, shape=[16], init=lambda i: i * 3 + n), offsets=[8])",
        "sum": "self.store_global(g_y, self.sum(self.load_global(g_x, offsets=[0, 0], shape=[8, 64]), dim=1), offsets=[4])",
        "shared": "self.store_shared(s, self.load_shared(s) + n)",
        "count": "self.store_global(g_y, self.register_tensor(dtype=int32, shape=[1], init=lambda i: self.current_num_threads), offsets=[9])",
    }[what]  # fmt: skip
    lines = [
        "g_x = self.global_view(x_ptr, dtype=int32, shape=[8, 64])",
        "g_y = self.global_view(y_ptr, dtype=int32, shape=[64])",
        "s = self.shared_tensor(dtype=int32, shape=[64])",
        "self.store_shared(s, self.load_global(g_x[2], offsets=[0], shape=[64]))",
        "self.sync()",
        *GROUPS[name].format(inner).splitlines(),
        "self.sync()",
        "self.store_global(self.global_view(z_ptr, dtype=int32, shape=[64]), self.load_shared(s), offsets=[0])",
    ]
    text = source("n: int32, x_ptr: ~int32, y_ptr: ~int32, z_ptr: ~int32", "\n".join(lines), warps=4)
    int32 = WHOLE["int32"]
    x = values(WHOLE["int8"], 512).view(8, 64).int()
    return Made([(n, x, blank(int32, 64), blank(int32, 64)) for n in (0, 5)], text)
