"""Compile foreign kernels to PTX, with all that is needed to run and judge them: NAME.ptx and NAME.json each.

    python -m venv triton_venv && triton_venv/bin/pip install triton==3.9.0 nvidia-cutlass-dsl==4.8.1
    triton_venv/bin/python bench/foreign/make.py build/foreign
    triton_venv/bin/python bench/foreign/make.py build/foreign --only maps_f16
    triton_venv/bin/python bench/foreign/make.py tests/emulator/foreign --sample   # the few that the tests emulate

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

FAMILIES = ("triton_matmuls", "triton_scaled", "triton_others", "gluon_hopper", "gluon_blackwell", "cute_scaled")


SAMPLE = (
    "pointers_f16_nn_64x64x32_s2_w4_masked_sm120",
    "device_maps_e4m3_64x64x64_s1_w4_odd_sm100",
    "scaled_e2m1_e2m1_by16_128x64x64_s1_w4_sm100",
    "softmax_float16_200_sm90",
    "box_float16_16x32_nan_low_sm90",
    "copy_device_maps_int8_sm90",
    "sum_under_lock_sm90",
    "wgmma_f16_tn_64x64x64_swizzle64_64_n64_w4_sm90",
    "wgmma_unswizzled_down_across_sm90",
    "tma_reduce_add_float16_sm90",
    "cluster_rows_to_columns_sm90",
    "tcgen05_bf16_nt_64x64x64_swizzle64_64_64x64_16x256b_w4_sm100",
    "tcgen05_cp_swizzle32_128x16_by16_sm100",
    "gluon_scatter_sm100",
    "cluster_async_store_sm90",
    "specialized_bf16_128x64x64_s2_w8_sm100",
    "pair_bf16_128x64_ctas2_sm100",
    "taken_over_sm100",
    "cute_nvfp4_128x128x256_s2_sm100",
)
"""One case each of what an emulator has to know: small problems, a second each."""


def main() -> int:
    options = _options()
    options.folder.mkdir(parents=True, exist_ok=True)
    chosen = {name: made for name, made in _cases() if _wanted(name, options)}
    if options.list:
        print(*chosen, sep="\n")
        return 0
    refused = {}
    for name, (case, target) in chosen.items():
        reason = _write(case, target, options.folder / name, options.sample)
        print(f"{name}: {reason or 'written'}", flush=True)
        if reason:
            refused[name] = reason
    if not options.sample:
        (options.folder / "refused.json").write_text(json.dumps(refused, indent=2) + "\n")
    return int(options.sample and bool(refused))


def _wanted(name: str, options: argparse.Namespace) -> bool:
    return options.only in name and (not options.sample or name in SAMPLE)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--sample", action="store_true", help="those of SAMPLE, packed, without their debug sections")
    parser.add_argument("--list", action="store_true", help="print the names alone")
    return parser.parse_args()


def _cases() -> Iterator[tuple[str, tuple[Case, int]]]:
    """Each case for each of its targets, by its full name."""
    for family in FAMILIES:
        for case in importlib.import_module(f"kernels.{family}").cases():
            yield from ((f"{case.name}_sm{target}", (case, target)) for target in case.targets)


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
