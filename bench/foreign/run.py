"""Emulate every case of a folder and judge what it computes; needs the PTX and its records, and no Triton.

python bench/foreign/run.py build/foreign
python bench/foreign/run.py build/foreign --order random --seed 7 --only maps_f16 --out foreign.json
"""

from __future__ import annotations

import argparse
import gzip
import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from data import dtype_of, made
from judging import judge
from references import expected

MAP_FIELDS = ("dims", "strides_bytes", "box", "element_strides")


def main() -> int:
    options = _options()
    rows = []
    for path in sorted(options.folder.glob("*.json")):
        if options.only in path.stem and path.stem != "refused":
            for data in options.data:
                rows.append(_run(path, data, options))
                print(
                    f"{rows[-1]['result']:>6} {rows[-1]['seconds']:7.2f} s  {path.stem} {data}: {rows[-1]['message']}",
                    flush=True,
                )
    _table(rows)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["result"] not in ("right", "race") for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--data", nargs="+", choices=("exact", "random"), default=("exact", "random"))
    parser.add_argument("--order", default="late")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=120, help="seconds that one case may take")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def _run(path: Path, data: str, options: argparse.Namespace) -> dict[str, Any]:
    """How one case ends: right, wrong, race (wrong, as its record says), stop (an error of the emulator) or slow."""
    record = json.loads(path.read_text())
    start = time.perf_counter()
    try:
        with _at_most(options.limit):
            right, ratio, message = outcome(path, record, data, order=options.order, seed=options.seed)
        result = "right" if right else "race" if record.get("races") else "wrong"
    except TimeoutError as error:
        result, ratio, message = "slow", None, str(error)
    except Exception as error:
        result, ratio, message = "stop", None, f"{type(error).__name__}: {error}"
    told = {"name": path.stem, "family": record["family"], "target": record["target"], "data": data, "result": result}
    return {**told, "seconds": round(time.perf_counter() - start, 3), "ratio": ratio, "message": message}


def outcome(path: Path, record: Mapping[str, Any], data: str, **how: Any) -> tuple[bool, float, str]:
    """(right, error over torch's own, a sentence) of a case; whatever stops the emulator goes through."""
    from blackwell_matmul.emulator import emulate

    tensors = tensors_of(record, data)
    wanted = expected(record["reference"], {name: values.copy() for name, values in tensors.items()})
    launch = {key: tuple(record[key]) for key in ("grid", "block", "cluster")}
    emulate(
        ptx_of(path), *(argument(each, tensors) for each in record["arguments"]),
        **launch, shared_bytes=record["shared_bytes"], kernel=record["kernel"], **how,
    )  # fmt: skip
    verdicts = [judge(name, tensors[name], each, record["exact"] and data == "exact") for name, each in wanted.items()]
    return (
        all(each.right for each in verdicts),
        max(each.ratio for each in verdicts),
        "; ".join(each.message for each in verdicts),
    )


def tensors_of(record: Mapping[str, Any], data: str) -> dict[str, np.ndarray]:
    return {
        name: made(tuple(each["shape"]), dtype_of(each["dtype"]), each[data])
        for name, each in record["tensors"].items()
    }


def ptx_of(path: Path) -> str:
    packed = path.with_suffix(".ptx.gz")
    return gzip.decompress(packed.read_bytes()).decode() if packed.exists() else path.with_suffix(".ptx").read_text()


def argument(recipe: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Any:
    """What `emulate` takes for one parameter."""
    from blackwell_matmul.compiler.plan import TensorMap

    if "map" in recipe:
        fields = {
            key: tuple(value) if key in MAP_FIELDS else value for key, value in recipe["map"].items() if key != "tensor"
        }
        return TensorMap(pointer=tensors[recipe["map"]["tensor"]], **fields)
    if "scratch" in recipe:
        return np.zeros(recipe["scratch"], np.uint8) if recipe["scratch"] else None
    if "zeros" in recipe:
        return bytes(recipe["zeros"])
    return tensors[recipe["tensor"]] if "tensor" in recipe else recipe["value"]


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError(f"still running after {seconds} s")

    previous = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def _table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("family", "target", "cases", "right", "wrong", "race", "stop", "slow", "seconds")
    for family, target in dict.fromkeys((row["family"], row["target"]) for row in rows):
        group = [row for row in rows if (row["family"], row["target"]) == (family, target)]
        counts = [
            str(sum(row["result"] == result for row in group)) for result in ("right", "wrong", "race", "stop", "slow")
        ]
        table.add_row(family, target, str(len(group)), *counts, f"{sum(row['seconds'] for row in group):.1f}")
    Console().print(table)


if __name__ == "__main__":
    raise SystemExit(main())
