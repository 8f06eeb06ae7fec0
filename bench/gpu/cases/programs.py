"""Programs at random: 3 to 8 statements over two small tiles, two scalars and a shared tile.

The key is program/TYPE/SEED/COUNT. A program of COUNT statements is the beginning of that of the same seed with more,
so that the smallest one that differs is found with `--only`. The seed alone brings a program back, on every machine.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator

from explanations import CONTRACTED, EXACT

from cases.made import WHOLE, Case, Made, Type, blank, source, tame, values

TYPES = ("float32", "int32", "float16", "bfloat16", "int8")
SEEDS = 250
M, N = 16, 32

STATEMENTS = (
    "x = x + y", "x = x - y", "y = x * 2", "x = x * y", "y = y + k", "x = x + 3", "y = -y",
    "x = self.maximum(x, y)", "y = self.where(x > y, x, y)", "x = self.where(x == y, y, x)", "y = self.square(y)",
    "x = x + self.max(y, dim=1, keepdim=True)", "y = y - self.min(x, dim=0, keepdim=True)",
    "x = self.cast(self.cast(x, dtype={other}), dtype={kind})", "y = self.cast(y, dtype={other}).to({kind})",
    "x = x + self.load_global(g_x, offsets=[{a}, {b}], shape=[16, 32])",
    "y = self.load_global(g_y, offsets=[k, {b}], shape=[16, 32])",
    "k = (k * {a} + n) % 13", "k = k + n // {c}", "k = min(k, n - {a})", "k = k if k > {a} else n",
    "for i in range({c}):\n    x += i", "for i in range(n):\n    k += i * {a}", "for i in range(k, n, {c}):\n    y += x",
    "if k > {a}:\n    x += y\nelse:\n    y += x", "if n % {c} == {a}:\n    k += 1\n    x += k",
    "while k > {c}:\n    k = k // 2\n    y += 1",
    "self.store_shared(s, x)\nself.sync()\nx = self.load_shared(s)\nself.sync()",
    "self.store_shared(s, y)\nself.sync()\ny = self.load_shared(self.reshape_shared(s, [32, 16]).transpose())\nself.sync()",
    "self.store_global(g_z, x, offsets=[{a}, {b}])\nself.sync()",
    "with self.single_warp():\n    self.store_global(g_w, self.register_tensor(dtype=int32, shape=[32], init=lambda i: i + k), offsets=[{b}])\nself.sync()",
)  # fmt: skip


def cases() -> Iterator[Case]:
    for kind in TYPES:
        for seed in range(SEEDS):
            count = random.Random(seed).randint(3, 8)
            yield Case(f"program/{kind}/{seed}/{count}", functools.partial(program, kind, seed, count))


def of_key(key: str) -> Case:
    """Also a program that is shorter or longer than the one of the list."""
    _, kind, seed, count = key.split("/")
    return Case(key, functools.partial(program, kind, int(seed), int(count)))


def program(kind: str, seed: int, count: int) -> Made:
    draw = random.Random(f"{kind} {seed}")
    others = [other for other in ("float32", "int32", "float16", "int8", "uint8") if other != kind]
    lines = _beginning(kind)
    for _ in range(count):
        statement = draw.choice(STATEMENTS)
        numbers = {"a": draw.randint(0, 4), "b": draw.randint(0, 20), "c": draw.randint(1, 5)}
        lines += statement.format(kind=kind, other=draw.choice(others), **numbers).splitlines()
    lines += [
        "self.sync()",
        "self.store_global(g_x, x, offsets=[2, 5])",
        "self.store_global(g_y, y, offsets=[0, 0])",
        "self.store_global(g_k, self.register_tensor(dtype=int32, shape=[1], init=lambda i: k), offsets=[0])",
    ]
    pointers = ", ".join(f"{name}_ptr: void_p" for name in ("x", "y", "z", "w", "k"))
    text = source(f"n: int32, {pointers}", "\n".join(lines), warps=draw.choice((1, 2, 4)))
    return Made(_launches(WHOLE[kind], seed), text, bound=CONTRACTED if WHOLE[kind].is_float else EXACT)


def _beginning(kind: str) -> list[str]:
    views = [f"g_{name} = self.global_view({name}_ptr, dtype={kind}, shape=[19, 40])" for name in "xyz"]
    return [
        *views,
        "g_w = self.global_view(w_ptr, dtype=int32, shape=[48])",
        "g_k = self.global_view(k_ptr, dtype=int32, shape=[1])",
        f"s = self.shared_tensor(dtype={kind}, shape=[16, 32])",
        "k: int32 = n * 2 - 3",
        "x = self.load_global(g_x, offsets=[0, 0], shape=[16, 32])",
        "y = self.load_global(g_y, offsets=[1, 9], shape=[16, 32])",
    ]


def _launches(kind: Type, seed: int) -> list[tuple[object, ...]]:
    """Of small numbers, and of edge values."""
    int32, wild = WHOLE["int32"], values(kind, 19 * 40, seed).view(19, 40)
    calm = tame(kind, 19, 40, seed=seed)
    return [(n, x, calm, blank(kind, 19, 40), blank(int32, 48), blank(int32, 1)) for n, x in ((3, calm), (7, wild))]
