"""View of a bundle, as text and JSON: supported sizes, resources, important instructions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blackwell_matmul.cli.views.tables import Column, TableRow, numbers, table
from blackwell_matmul.compiler import sass
from blackwell_matmul.compiler.bundle import FILES, RECORD, Bundle
from blackwell_matmul.compiler.plan import Expr

if TYPE_CHECKING:
    from rich.console import RenderableType

    from blackwell_matmul.harness import Result, ScriptResult

SASS_COLUMNS = (Column("instruction"), *numbers("count"), Column("is", long="wraps"), Column("lines", long="wraps"))
PLACES_SHOWN = 3
"""Maximum number of kernel lines that are shown for one instruction."""


def bundle_record(
    bundle: Bundle, folder: str | None, with_sass: bool, checked: Result | ScriptResult | None
) -> dict[str, Any]:
    """Return a bundle as a dict for JSON, without its code."""
    resources = bundle.resources
    return {
        "kernel": bundle.name,
        "target": bundle.target,
        "serves": bundle.serves,
        "consts": bundle.consts,
        "schedule": bundle.schedule,
        "resources": None if resources is None else {name: getattr(resources, name) for name in resources.__slots__},
        "cubin_bytes": len(bundle.cubin),
        "plan": bundle.plan.as_dict(),
        "timeline": None if bundle.marks is None else bundle.marks.events,
        "versions": bundle.versions,
        "key": bundle.key,
        "folder": folder,
        "checked": None if checked is None else checked.as_dict(),
        **({"sass": [_instruction_record(each) for each in _matter(bundle)]} if with_sass else {}),
    }


def bundle_lines(
    bundle: Bundle, folder: str | None, with_sass: bool, checked: Result | ScriptResult | None
) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text.assemble((bundle.name, "bold"), f" for {bundle.target}, {len(bundle.cubin)} bytes of code")
    rows = (TableRow((name, Text(value))) for name, value in _facts(bundle, folder, checked))
    yield table((Column(), Column(long="folds")), rows, padding=(0, 0, 0, 2), show_header=False)
    if with_sass:
        yield Text("")
        rows = (TableRow((each.opcode, str(each.count), each.meaning, _places(each))) for each in _matter(bundle))
        yield table(SASS_COLUMNS, rows)


def _facts(bundle: Bundle, folder: str | None, checked: Result | ScriptResult | None) -> Iterator[tuple[str, str]]:
    yield "serves", bundle.serves.removeprefix("Serves ")
    if bundle.schedule:
        yield "schedule", ", ".join(f"{name}={value}" for name, value in bundle.schedule.items())
    yield from _resources(bundle)
    if bundle.marks is not None:
        yield "writes", f"up to {bundle.marks.events} records of each warp, into a last argument"
    yield "starts", _start(bundle.plan.early_start)
    yield "made with", f"NVRTC {bundle.versions.get('nvrtc')}, tilus {bundle.versions.get('tilus')}"
    if checked is not None:
        asked = getattr(checked, "problem", "its example_args")
        yield "checked", f"{asked}, {checked.message.rstrip('.')}, {checked.time}"
    if folder is not None:
        yield "written to", f"{Path(folder)}{os.sep}: {', '.join([*FILES.values(), RECORD])}"


def _start(early: Expr) -> str:
    if isinstance(early, int):
        return "while the kernel before it ends" if early else "when the kernel before it has ended"
    return "while the kernel before it ends, where the problem is small"


def _resources(bundle: Bundle) -> Iterator[tuple[str, str]]:
    found = bundle.resources
    if found is None:
        yield "resources", "not reported by this NVRTC"
        return
    spilled = f"{found.spill_bytes} bytes spilled" if found.spill_bytes else "no spills"
    yield "registers", f"{found.registers} a thread, {spilled}"
    shared = "depends on the arguments" if found.dynamic_shared_bytes is None else f"{found.dynamic_shared_bytes} bytes"
    yield "shared", f"{shared} a CTA" + (f", {found.static_shared_bytes} static" if found.static_shared_bytes else "")
    if found.ctas_per_sm is not None:
        noun = "CTA" if found.ctas_per_sm == 1 else "CTAs"
        yield "occupancy", f"{found.ctas_per_sm} {noun} of {found.warps} warps an SM, limited by {found.limited_by}"


def _matter(bundle: Bundle) -> list[sass.SassInstruction]:
    return sass.instructions_that_matter(bundle.cubin)


def _instruction_record(instruction: sass.SassInstruction) -> dict[str, Any]:
    places = [f"{file}:{line}" for file, line in instruction.places]
    return {"opcode": instruction.opcode, "is": instruction.meaning, "count": instruction.count, "at": places}


def _places(instruction: sass.SassInstruction) -> str:
    """Return the kernel lines of an instruction, such as `v2.py:62, 63, 85`."""
    texts, file = [], ""
    for path, line in instruction.places[:PLACES_SHOWN]:
        name = Path(path).name
        texts.append(str(line) if name == file else f"{name}:{line}")
        file = name
    more = len(instruction.places) - PLACES_SHOWN
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")
