"""Scalar expressions and loops: what Python does, and what C does. Each case has a launch for each edge value."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator

from explanations import EXACT, SCALAR_DIVISION, Bound

from cases.made import WHOLE, Case, Made, blank, source

EDGES: dict[str, tuple[float, ...]] = {
    "int32": (0, 1, 2, -1, 5, -7, 31, 100000, 2**31 - 1, -(2**31)),
    "uint32": (0, 1, 3, 32, 70000, 2**31, 2**32 - 1),
    "int64": (0, 1, -1, 13, -100, 2**31, 2**40 + 7, 2**63 - 1, -(2**63)),
    "uint64": (0, 1, 9, 2**32, 2**63, 2**64 - 1),
    "boolean": (0, 1),
    "int8": (0, 3, -1, 127, -128),
    "uint16": (0, 2, 65535),
    "float32": (0.0, -0.0, 1.5, -2.5, 0.1, 3e9, 1e20, float("inf"), float("nan"), 1e-40),
}
BINARY = {
    "add": "a + b", "sub": "a - b", "mul": "a * b", "floordiv": "a // b", "mod": "a % b", "and": "a & b", "or": "a | b",
    "xor": "a ^ b", "shl": "a << b", "shr": "a >> b", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b",
    "eq": "a == b", "ne": "a != b", "min": "min(a, b)", "max": "max(a, b)", "booland": "a > 0 and b > 0",
    "boolor": "a > 0 or b > 0", "ternary": "a if a < b else b", "div": "a / b",
}  # fmt: skip
UNARY = {
    "neg": "-a", "not": "not a", "invert": "~a", "half": "a // 2", "rest": "a % 16", "shift": "a >> 1", "positive": "a > 0",
    "abs": "a if a >= 0 else -a", "round_up": "(a + 15) // 16 * 16", "twice": "a * 2 - 1", "last": "a - 1",
    "square": "a * a", "mid": "(a + a) // 2",
}  # fmt: skip
SMALL = ("int8", "uint16", "boolean")


def cases() -> Iterator[Case]:
    for name, a, b in itertools.product(BINARY, EDGES, EDGES):
        if (a not in SMALL and b not in SMALL) or a == b or "int32" in (a, b):
            yield Case(f"scalar/{name}/{a}/{b}", functools.partial(binary, name, a, b))
    for name, a in itertools.product(UNARY, EDGES):
        yield Case(f"scalar-unary/{name}/{a}", functools.partial(unary, name, a))
    for a, b in itertools.product(EDGES, (*EDGES, "int16", "uint8", "float16", "float64")):
        yield Case(f"scalar-cast/{a}/{b}", functools.partial(cast, a, b))
        yield Case(f"scalar-assign/{a}/{b}", functools.partial(assign, a, b))
    for seed in range(200):
        yield Case(f"expression/{seed}", functools.partial(expression, seed))
    for name in LOOPS:
        yield Case(f"loop/{name}", functools.partial(loop, name))
    for name in BRANCHES:
        yield Case(f"branch/{name}", functools.partial(branch, name))


def _put(value: str, kind: str, number: int) -> str:
    """Store a scalar as element `number` of the output of its type."""
    tile = f"self.register_tensor(dtype={kind}, shape=[1], init=lambda i: {kind}({value}))"
    return f"self.store_global(self.global_view(y_{kind}, dtype={kind}, shape=[8]), {tile}, offsets=[{number}])"


_OUTPUTS = ("int64", "int32", "float64")


def _made(
    parameters: str, value: str, launches: list[tuple[float, ...]], before: str = "", bound: Bound = EXACT
) -> Made:
    """The value through variables of three types, and straight into tiles of two."""
    lines = before.splitlines()
    for number, kind in enumerate(_OUTPUTS):
        lines += [f"w{number}: {kind} = {value}", _put(f"w{number}", kind, 0), _put(value, kind, 1)]
    lines += [f"if {value}:", f"    {_put('1', 'int32', 2)}", "else:", f"    {_put('2', 'int32', 2)}"]
    pointers = ", ".join(f"y_{kind}: ~{kind}" for kind in _OUTPUTS)
    rooms = [blank(WHOLE[kind], 8) for kind in _OUTPUTS]
    text = source(f"{parameters}, {pointers}", "\n".join(lines))
    return Made([(*values, *rooms) for values in launches], text, bound=bound)


def binary(name: str, a: str, b: str) -> Made:
    launches = list(itertools.product(EDGES[a], EDGES[b]))
    if len(launches) > 40:
        launches = random.Random(0).sample(launches, 40)
    bound = SCALAR_DIVISION if name in ("div", "floordiv") and "float32" in (a, b) else EXACT
    return _made(f"a: {a}, b: {b}", BINARY[name], launches, bound=bound)


def unary(name: str, a: str) -> Made:
    return _made(f"a: {a}", UNARY[name], [(value,) for value in EDGES[a]])


def cast(a: str, b: str) -> Made:
    return _made(f"a: {a}", f"{b}(a)", [(value,) for value in EDGES[a]])


def assign(a: str, b: str) -> Made:
    return _made(f"a: {a}", "w", [(value,) for value in EDGES[a]], before=f"w: {b} = a")


def expression(seed: int) -> Made:
    """An integer expression of four variables and some constants."""
    draw = random.Random(seed)
    kinds = [draw.choice(("int32", "int32", "uint32", "int64", "boolean")) for _ in range(4)]
    text = _tree(draw, 4)
    launches = [tuple(draw.choice(EDGES[kind]) for kind in kinds) for _ in range(20)]
    return _made(", ".join(f"{name}: {kind}" for name, kind in zip("abcd", kinds)), text, launches)


def _tree(draw: random.Random, depth: int) -> str:
    if depth == 0 or draw.random() < 0.15:
        return draw.choice(("a", "b", "c", "d", "a", "b", "1", "2", "7", "16", "255"))
    one, other = _tree(draw, depth - 1), _tree(draw, depth - 1)
    form = draw.choice(("({0} + {1})", "({0} - {1})", "({0} * {1})", "({0} // 4)", "({0} % 8)", "({0} & {1})",
                        "({0} | {1})", "({0} ^ {1})", "({0} >> 2)", "({0} << 1)", "({0} if {0} < {1} else {1})",
                        "min({0}, {1})", "max({0}, {1})", "({0} + {1})", "({0} - {1})", "int32({0})"))  # fmt: skip
    return form.format(one, other)


# --- loops and branches; `total` is what they are about

LOOPS = {
    "range": ("for i in range(n):", "total += i"),
    "start": ("for i in range(3, n):", "total += i"),
    "start_n": ("for i in range(n, 20):", "total += i"),
    "step": ("for i in range(0, n, 3):", "total += i"),
    "step_m": ("for i in range(0, 20, m + 3):", "total += i"),
    "start_step": ("for i in range(m, n, 2):", "total += i * i"),
    "down": ("for i in range(n, 0, -1):", "total = total * 3 + i"),
    "down_2": ("for i in range(20, m, -2):", "total = total * 3 + i"),
    "unroll": ("for i in self.range(0, n, 1, unroll=4):", "total = total * 3 + i"),
    "unroll_step": ("for i in self.range(m, n, 2, unroll=2):", "total = total * 3 + i"),
    "unroll_all": ('for i in self.range(0, 6, 1, unroll="all"):', "total = total * n + i"),
    "unroll_down": ('for i in self.range(6, 0, -1, unroll="all"):', "total = total * n + i"),
    "nested": ("for i in range(n):\n    for j in range(i):", "    total = total * 3 + i * 10 + j"),
    "nested_m": ("for i in range(n):\n    for j in range(m, i, 2):", "    total = total * 3 + i * 10 + j"),
    "break": ("for i in range(n):", "if i * 2 > m + 7:\n    break\ntotal = total * 3 + i"),
    "continue": ("for i in range(n):", "if i % 3 == 1:\n    continue\ntotal = total * 3 + i"),
    "inner_break": ("for i in range(n):\n    for j in range(i):", "    if j > 4:\n        break\n    total += i * 10 + j"),
    "while": ("while total < n * 5:", "total += 2"),
    "while_two": ("while total < n * 5 and total < 40:", "total += 3"),
    "while_break": ("while total < 1000:", "total += n + 20\nif total > 300:\n    break"),
    "bound_down": ("for i in range(left):", "left -= 1\ntotal += 1"),
    "bound_up": ("for i in range(0, left):", "if left < 30:\n    left += 1\ntotal += 1"),
    "step_up": ("for i in range(0, n, step):", "step += 1\ntotal += 1"),
    "start_moves": ("for i in range(first, n):", "first += 1\ntotal += i"),
    "index": ("for i in range(n):", "i += 1\ntotal += i"),
    "index_after": ("for i in range(n):\n    total += 1\nfor j in range(total):", "total += j"),
    "const": ("for i in range(5):", "total += i * n"),
    "const_step": ("for i in range(1, 12, 4):", "total = total * 5 + i"),
    "const_down": ("for i in range(9, 1, -3):", "total = total * 5 + i"),
    "empty": ("for i in range(5, 5):", "total += 100"),
    "divided": ("for i in range(n // 2):", "total += i"),
    "rounded": ("for i in range((n + 3) // 4):", "total = total * 3 + i * 4"),
    "difference": ("for i in range(n - m):", "total += 1"),
    "product": ("for i in range(m * 2, n * 2, m + 9):", "total = total * 3 + i"),
    "condition": ("for i in range(n):", "if i < m:\n    total += 1\nelif i == m:\n    total += 100\nelse:\n    total += 10000"),
    "swap": ("for i in range(n):", "spare: int32 = first\nfirst = left\nleft = spare\ntotal = total * 2 + first - left"),
    "fibonacci": ("for i in range(n):", "spare: int32 = first + step\nfirst = step\nstep = spare\ntotal = spare"),
    "redeclared": ("for i in range(n):", "here: int32 = i * 2\nhere += m\ntotal += here"),
}  # fmt: skip
_N_M = ((0, 0), (1, 0), (2, 1), (5, 2), (10, 3), (17, 5), (-3, -4), (7, -6), (3, 8))


def loop(name: str) -> Made:
    head, body = LOOPS[name]
    before = ["total: int32 = 0", "left: int32 = n", "step: int32 = 1", "first: int32 = m"]
    lines = [*before, *head.splitlines(), *(f"    {line}" for line in body.splitlines()), *_states()]
    text = source("n: int32, m: int32, y_int32: ~int32", "\n".join(lines))
    return Made([(*values, blank(WHOLE["int32"], 8)) for values in _N_M], text)


def _states() -> list[str]:
    return [_put(name, "int32", number) for number, name in enumerate(("total", "left", "step", "first"))]


BRANCHES = {
    "negative": "if n < 0:\n    total = 1",
    "not_positive": "if n <= 0:\n    total = 1\nelse:\n    total = 2",
    "both": "if n > 2 and m > 0:\n    total = 1\nelif n < 0 or m < 0:\n    total = 2\nelse:\n    total = 3",
    "nested": "if n > 2:\n    if m > 2:\n        total = 1\n    else:\n        total = 2\nelse:\n    total = 3",
    "not": "if not (n > m):\n    total = n - m",
    "chain": "if n % 3 == 0:\n    total = 10\nelif n % 3 == 1:\n    total = 11\nelse:\n    total = 12",
    "flag": "flag: boolean = n > m\nif flag:\n    total = 5\ntotal += flag",
    "negated_flag": "flag: boolean = n > m\nif not flag:\n    total = 5",
    "truth": "if n:\n    total = 1\nif m - 5:\n    total += 2",
    "ternary": "total = n if n > m else m * 2",
    "ternary_nested": "total = 1 if n < 0 else 2 if n < 5 else 3",
    "minus": "total = -n + -m",
    "floor": "total = n // 4 * 100 + n % 4",
    "floor_m": "total = n // (m + 20) * 100 + n % (m + 20)",
    "sum_compare": "if n - m < 0:\n    total = 1\nif n + m >= 0:\n    total += 2",
    "block": "if self.blockIdx.x - 3 < 0:\n    total = 1",
    "block_offset": "total = (self.blockIdx.x * 16 - 3) // 2",
    "min_max": "total = min(n, m) * 1000 + max(n, m)",
    "bits": "total = (n & 3) | (m << 2) ^ 5",
    "compare_add": "total = (n < m) + 2 * (n == m) + 4 * (n >= m)",
    "return": "total = 4\nif n > 5:\n    return",
}  # fmt: skip


def branch(name: str) -> Made:
    before = ["total: int32 = 0", "left: int32 = n", "step: int32 = 1", "first: int32 = m"]
    text = source("n: int32, m: int32, y_int32: ~int32", "\n".join([*before, BRANCHES[name], *_states()]))
    return Made([(*values, blank(WHOLE["int32"], 8)) for values in _N_M], text)
