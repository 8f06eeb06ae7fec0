"""Generated parts of pages: the difference of a rung and the one below, and times measured on an H200.

`<!-- measured: fp16 -->` stands before a table of bench/results/h200_ladder.json, `<!-- gained: h2 -->` before the
speed of a rung relative to the one below, `<!-- changed: h2 -->` before the difference of the two files, and
`<!-- changed: h2 without comments -->` before that of their code alone.
"""

from __future__ import annotations

import difflib
import json
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "blackwell_matmul" / "kernels"
LADDERS = {"h": KERNELS / "hopper", "v": KERNELS / "blackwell", "s": KERNELS / "blackwell"}
BELOW = {"blackwell": "v6", "s0": "v1", "s1": "v4", "s2": "v6"}
"""The last rung, below a product; the rung of which one with block scales is made."""
RUNGS = tuple(f"h{number}" for number in range(8))
NOW = {"h4": "h5", "h5": "h6", "h6": "h7"}
"""What the rungs of the measurement are called now; since then, H3 with an order of tiles is H4."""
SIZES = (1024, 2048, 4096, 8192)

_MARK = re.compile(
    r"(<!-- (?P<what>measured|gained|changed): (?P<of>[\w ]+) -->\n)(?:(?:(?!<!--).)*<!-- end -->\n)?", re.S
)


def filled(page: str) -> str:
    """The page with what its marks stand for; each ends with an end mark."""
    made = {"measured": table, "gained": gained, "changed": changed}
    return _MARK.sub(lambda mark: f"{mark[1]}{made[mark['what']](mark['of'])}<!-- end -->\n", page)


@cache
def tflops(dtype: str) -> dict[str, dict[int, float]]:
    """By contender and size, of the median time."""
    results = json.loads((ROOT / "bench" / "results" / "h200_ladder.json").read_text(encoding="utf-8"))
    found: dict[str, dict[int, float]] = {}
    for row in results["suites"]["ladder"]["rows"]:
        if row["problem"]["dtype"] == dtype:
            name, size = NOW.get(row["contender"], row["contender"]), row["problem"]["m"]
            found.setdefault(name, {})[size] = 2 * size**3 / row["timing"]["median_us"] / 1e6
    return found


def table(dtype: str) -> str:
    rows = [("cublas", "cuBLAS"), *((rung, f"[{rung.upper()}](#{rung})") for rung in RUNGS)]
    head = "".join(f" {size} |" for size in SIZES)
    return f"\n| {dtype} |{head}\n|---|{'---:|' * len(SIZES)}\n" + "".join(_row(dtype, *row) for row in rows) + "\n"


def _row(dtype: str, name: str, label: str) -> str:
    known = tflops(dtype)
    if name not in known:
        return f"| {label} |{' – |' * len(SIZES)}\n"
    cells = [f" {known[name][size]:.0f} ({known[name][size] / known['cublas'][size]:.0%}) |" for size in SIZES]
    return f"| {label} |{''.join(cells)}\n"


def gained(rung: str) -> str:
    """How many times as fast as the last rung below that was measured."""
    known = tflops("fp16")
    below = next(each for each in reversed(RUNGS[: RUNGS.index(rung)]) if each in known)
    times = [f"{known[rung][size] / known[below][size]:.2f}" for size in SIZES]
    sizes = f"{', '.join(map(str, SIZES[:-1]))} and {SIZES[-1]}"
    return f"Measured, in fp16: {', '.join(times[:-1])} and {times[-1]} times {below.upper()}, at {sizes}.\n"


def changed(which: str) -> str:
    """Return the unified difference of a kernel and the one below, folded; which: "h2" or "h2 without comments"."""
    name, _, less = which.partition(" ")
    below = BELOW.get(name) or f"{name[0]}{int(name[1:]) - 1}"
    before, after = (_class(_file(each), not less) for each in (below, name))
    lines = difflib.unified_diff(before, after, n=1, lineterm="")
    shown = [line if not line.startswith("@@") else "@@" for line in list(lines)[2:]]
    added, taken = (sum(line.startswith(sign) for line in shown) for sign in "+-")
    title = f"{below.upper()} to {name.upper()}: {added} lines more, {taken} less"
    body = "\n".join(shown)
    return f'<details markdown="1">\n<summary>{title}</summary>\n\n```diff\n{body}\n```\n\n</details>\n'


def _file(name: str) -> Path:
    folder = KERNELS / "products" if name == "blackwell" else LADDERS[name[0]]
    return folder / (f"{name}.py" if name in BELOW else f"v{name[1:]}.py")


def _class(file: Path, comments: bool) -> list[str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    body = lines[next(i for i, line in enumerate(lines) if line.startswith("class ")) :]
    return [line for line in body if comments or not line.lstrip().startswith("#")]
