"""Compile foreign kernels to PTX, with all that is needed to run and judge them: NAME.ptx and NAME.json each.

    python -m venv triton_venv && triton_venv/bin/pip install triton==3.9.0
    triton_venv/bin/python bench/foreign/make.py build/foreign
    triton_venv/bin/python bench/foreign/make.py build/foreign --only maps_f16

No GPU is needed, and of this project nothing. What does not compile is listed with its reason in `refused.json`.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # unset is the same, with a warning

from case import Case, compiled

FAMILIES = ("triton_matmuls", "triton_scaled", "triton_others", "gluon_hopper", "gluon_blackwell")


def main() -> int:
    options = _options()
    options.folder.mkdir(parents=True, exist_ok=True)
    chosen = [
        (case, target) for case in _cases() for target in case.targets if options.only in f"{case.name}_sm{target}"
    ]
    if options.list:
        print(*(f"{case.name}_sm{target}" for case, target in chosen), sep="\n")
        return 0
    refused = {}
    for case, target in chosen:
        name = f"{case.name}_sm{target}"
        reason = _write(case, target, options.folder / name, options.small)
        print(f"{name}: {reason or 'written'}", flush=True)
        if reason:
            refused[name] = reason
    (options.folder / "refused.json").write_text(json.dumps(refused, indent=2) + "\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--small", action="store_true", help="gzip the PTX, without its debug sections")
    parser.add_argument("--list", action="store_true", help="print the names alone")
    return parser.parse_args()


def _cases() -> Iterator[Case]:
    for family in FAMILIES:
        if (Path(__file__).parent / "kernels" / f"{family}.py").exists():
            yield from importlib.import_module(f"kernels.{family}").cases()


def _write(case: Case, target: int, path: Path, small: bool) -> str:
    """Why there is no case; empty where it was written. In a process of its own: some refusals end it."""
    sys.stdout.flush()
    told = path.with_suffix(".why")
    child = os.fork()
    if not child:
        os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), sys.stderr.fileno())
        os._exit(_inside(case, target, path, small))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    text = told.read_text()
    told.unlink()
    return _reason(text, code) if code else ""


def _inside(case: Case, target: int, path: Path, small: bool) -> int:
    try:
        ptx, record = compiled(case, target)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    record["name"] = path.name
    _save(path, ptx, record, small)
    return 0


def _save(path: Path, ptx: str, record: dict[str, Any], small: bool) -> None:
    path.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    if small:
        path.with_suffix(".ptx.gz").write_bytes(gzip.compress(_bare(ptx).encode(), mtime=0))
    else:
        path.with_suffix(".ptx").write_text(ptx)


def _bare(ptx: str) -> str:
    """PTX without its debug sections, which hold paths of the machine that compiled it."""
    code = ptx.split("\t.section\t.debug")[0]
    return re.sub(r"^\s*\.(?:file|loc)\b.*\n", "", code, flags=re.MULTILINE)


def _reason(text: str, code: int) -> str:
    """What the compiler said first of all."""
    said = re.findall(r"error: (.*)|(Assertion .*)|^(\w*(?:Error|Exception)\b.*)", text, re.MULTILINE)
    ended = f"ended by signal {-code}: " if code < 0 else ""
    return ended + ("".join(said[0]) if said and said[0][0] else " ".join(text.split())[-300:])


if __name__ == "__main__":
    raise SystemExit(main())
