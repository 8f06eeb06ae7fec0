"""Faults planted in compiled code, one at a time: does the emulator notice? `python bench/ptx_mutants.py`

For each rung, every instruction of its PTX can be dropped, its guard turned round, one bit of an immediate flipped; and
in the launch plan a tensor map's swizzle, box or stride be another. Some of them are drawn with a seed. A mutant runs
on a small problem of integers in several orders of completion, until one shows: wrong (numbers), stop (a sentence that
names the line), hang (a deadlock, found at once, or an endless loop), or fault (of the emulator itself). What survives
all orders is put to a rule that says why it must, or listed with its line.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from blackwell_matmul.base.digests import package_digest
from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.base.files import write_json
from blackwell_matmul.compiler import Bundle, compile
from blackwell_matmul.emulator.emulate import of_bundle
from blackwell_matmul.emulator.parser import Address, Number, Statement, parse
from blackwell_matmul.emulator.scheduler import Choices
from blackwell_matmul.jobs.running_trials import DIED, Job, run
from blackwell_matmul.kernels import rung
from blackwell_matmul_studies.scripts import ExecutorOption, RowsOption, rows_of, script

RUNGS = ("v0", "v1", "v2", "v3", "v4", "v5", "v6", "h0", "h2", "h7", "hopper", "g0")
SIZE = (200, 136, 200)
CHOICES = (
    Choices("late"), Choices("eager"), Choices("copies last"), Choices("products last"), Choices("newest"),
    *(Choices("random", seed) for seed in range(3)),
)  # fmt: skip
RESULT = Path(__file__).parent / "results" / "ptx_mutants.json"

WHY = {
    r"fence|membar": "a fence orders accesses; here memory is one, and each is seen at once",
    r"griddepcontrol": "one grid runs here",
    r"tcgen05\.wait::ld": "a load of tensor memory is done at once here, and ptxas waits for its registers",
    r"relinquish": "one CTA at a time has an SM's tensor memory here",
    r"try_wait.*(hint)": "the time that try_wait may take is a hint",
    r"ret": "the kernel ends there anyway",
    r"prefetch|cache_hint|createpolicy": "a hint",
}
Mutant = tuple[str, str, int, int]
"""rung, kind, index of the statement or map, index of the immediate and bit."""


# --- making


def bundle_of(name: str) -> tuple[Bundle, tuple[Any, ...]]:
    m, n, k = SIZE
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-3, 4, (rows, k), generator=generator).half() for rows in (m, n))
    c = torch.full((m, n), float("nan"), dtype=torch.float16)
    bundle = compile(rung(name), m, n, k, a, b, c)
    return bundle, tuple(bundle.ordered(m=m, n=n, k=k, a_ptr=a, b_ptr=b, c_ptr=c))


def mutants(name: str) -> Iterator[Mutant]:
    bundle, _ = bundle_of(name)
    for index, each in enumerate(statements(bundle)):
        yield name, "drop", index, 0
        if each.guard is not None:
            yield name, "guard", index, 0
        for place, operand in enumerate(each.operands):
            if isinstance(operand, Number) and not each.opcode.startswith("bra"):
                bits = range(64 if "64" in each.opcode or "tcgen05" in each.opcode else 32)
                yield from ((name, "bit", index, 64 * place + bit) for bit in _some(bits, operand))
            elif isinstance(operand, Address) and operand.offset:
                yield name, "offset", index, place
    for index in range(len(bundle.plan.tensor_maps)):
        yield from ((name, f"map {what}", index, 0) for what in ("swizzle", "box", "stride"))


def _some(bits: range, operand: Number) -> list[int]:
    """Low bits, where small numbers are, and all that a wide constant has."""
    value = int(operand.value)
    top = max(4, min(len(bits), value.bit_length() if value >= 0 else 8))
    return list(bits)[:top]


def statements(bundle: Bundle) -> list[Statement]:
    return parse(bundle.ptx).kernels[bundle.plan.kernel].instructions


def mutated(bundle: Bundle, mutant: Mutant) -> tuple[Bundle, Any, Statement | None]:
    """The bundle and module with the fault, and the statement as it was."""
    _, kind, index, detail = mutant
    module = parse(bundle.ptx)
    if kind.startswith("map"):
        return _other_map(bundle, kind.split()[1], index), module, None
    code = module.kernels[bundle.plan.kernel].instructions
    was = code[index]
    code[index] = _changed(was, kind, detail)
    return bundle, module, was


def _changed(was: Statement, kind: str, detail: int) -> Statement:
    if kind == "drop":
        return dataclasses.replace(was, opcode="pmevent", operands=(Number(0),), guard=None)
    if kind == "guard":
        assert was.guard is not None
        return dataclasses.replace(was, guard=(was.guard[0], not was.guard[1]))
    place, bit = divmod(detail, 64)
    operands: list[Any] = list(was.operands)
    if kind == "offset":
        operands[detail] = dataclasses.replace(operands[detail], offset=operands[detail].offset + 8)
    else:
        operands[place] = dataclasses.replace(operands[place], value=int(operands[place].value) ^ 1 << bit)
    return dataclasses.replace(was, operands=tuple(operands))


def _other_map(bundle: Bundle, what: str, index: int) -> Bundle:
    found = bundle.plan.tensor_maps[index]
    changes: dict[str, Any] = {
        "swizzle": {"swizzle": {"128B": "64B", "64B": "32B", "32B": "NONE", "NONE": "32B"}[found.swizzle]},
        "box": {"box": (*found.box[:-1], ("//", found.box[-1], 2))},
        "stride": {"strides_bytes": (("+", found.strides_bytes[0], 16), *found.strides_bytes[1:])},
    }[what]
    maps = [
        dataclasses.replace(each, **changes) if at == index else each for at, each in enumerate(bundle.plan.tensor_maps)
    ]
    return dataclasses.replace(bundle, plan=dataclasses.replace(bundle.plan, tensor_maps=tuple(maps)))


# --- judging


def named(mutant: Mutant) -> dict[str, Any]:
    fields = dict(zip(("rung", "kind", "place", "detail"), mutant, strict=True))
    return fields | {"size": SIZE, "code": package_digest()}


_bundles: dict[str, tuple[Bundle, tuple[Any, ...]]] = {}


def judge(mutant: Mutant) -> dict[str, Any]:
    torch.set_num_threads(1)
    name = mutant[0]
    if name not in _bundles:
        _bundles[name] = bundle_of(name)
    bundle, (*sizes, a, b, _) = _bundles[name]
    changed, module, was = mutated(bundle, mutant)
    wanted = (a.double() @ b.double().T).half()
    row = {"text": was.text[:120], "line": str(was.location and was.location.line)} if was else {}
    for choices in CHOICES:
        c = torch.full_like(wanted, float("nan"))
        try:
            of_bundle(changed, module, (*sizes, a, b, c), choices)
        except BlackwellMatmulError as error:
            text = str(error)
            how = "hang" if "deadlock" in text or "endless" in text else "fault" if "emulator fails" in text else "stop"
            return {**row, "outcome": how, "order": choices.order, "sentence": text[:160]}
        if not torch.equal(c, wanted):
            return {**row, "outcome": "wrong", "order": choices.order}
    return {**row, "outcome": "survives", "why": _why(bundle, (*sizes, a, b), mutant, was)}


def _why(bundle: Bundle, operands: tuple[Any, ...], mutant: Mutant, was: Statement | None) -> str:
    """Why no order can show it; empty where no rule says so."""
    if was is None:
        return ""
    if not _is_reached(bundle, operands, mutant[2]):
        return "the instruction does not run on this problem"
    for pattern, why in WHY.items():
        if re.search(pattern, was.opcode):
            return why
    return _why_bit(was, *divmod(mutant[3], 64)) if mutant[1] == "bit" else ""


def _why_bit(was: Statement, place: int, bit: int) -> str:
    operand = was.operands[place]
    value = int(operand.value) if isinstance(operand, Number) else 0
    if value == 50000:
        return "the time that try_wait may take is a hint"
    if was.opcode == "or.b64" and value >> 46 and 16 <= bit < 30:
        return "the leading offset of a swizzled K-major matrix is not read"
    if was.opcode.startswith("and") and value & value + 1 == 0:
        return "a bit of a mask that no value here has, or needs to lose"
    if was.opcode.startswith("add") and bit < 4 and "shr" not in was.text:
        return "the low 4 bits of an address are no part of a descriptor"
    if was.opcode.startswith("bar"):
        return "another barrier of the CTA, which all of its threads take"
    if was.opcode.startswith("setp") and value == 0:
        return "a predicate of 0 or 1 against another number"
    return ""


def _is_reached(bundle: Bundle, operands: tuple[Any, ...], index: int) -> bool:
    """Whether a trap in the instruction's place stops the kernel."""
    module = parse(bundle.ptx)
    code = module.kernels[bundle.plan.kernel].instructions
    code[index] = dataclasses.replace(code[index], opcode="trap", operands=())
    *_, a, b = operands
    c = torch.empty(len(a), len(b), dtype=torch.float16)
    try:
        of_bundle(bundle, module, (*operands, c), CHOICES[0])
    except BlackwellMatmulError:
        return True
    return False


def _counted(rows: list[dict[str, Any]], field: str) -> dict[str, dict[str, int]]:
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for row in rows:
        found[row[field]][row["outcome"]] += 1
    return {name: dict(counts) for name, counts in found.items()}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in row.items() if field not in ("size", "code")}


def main(
    rungs: Annotated[str, typer.Option(help="with commas")] = ",".join(RUNGS),
    sample: Annotated[int, typer.Option(help="mutants of each rung, drawn; 0: all")] = 300,
    executor: ExecutorOption = "processes:2",
    rows_file: RowsOption = "",
    result: Annotated[Path, typer.Option(help="where the summary goes")] = RESULT,
) -> None:
    """Run them, and write what became of them."""
    start, wanted = time.perf_counter(), []
    for name in rungs.split(","):
        every = list(mutants(name))
        wanted += random.Random(name).sample(every, min(sample or len(every), len(every)))
    rows = run(Job("mutants", wanted, judge, named), rows_of(rows_file, "ptx_mutants"), executor)
    rows = [{**row, "outcome": "fault"} if DIED in row else row for row in rows]
    rows.sort(key=lambda row: (row["rung"], row["place"], row["kind"], row["detail"]))
    outcomes = {
        name: dict(collections.Counter(row["outcome"] for row in rows if row["rung"] == name))
        for name in rungs.split(",")
    }
    kinds = {
        kind: dict(collections.Counter(row["outcome"] for row in rows if row["kind"] == kind))
        for kind in sorted({row["kind"] for row in rows})
    }
    survivors = [row for row in rows if row["outcome"] == "survives"]
    write_json(result, {
        "what": "emulated; no GPU", "size": SIZE, "mutants": len(rows), "seconds": round(time.perf_counter() - start),
        "outcomes": outcomes, "kinds": kinds,
        "first noticed in": dict(collections.Counter(row.get("order") for row in rows)),
        "survivors with a reason": dict(collections.Counter(row["why"] for row in survivors if row["why"])),
        "survivors without": [_shown(row) for row in survivors if not row["why"]],
    })  # fmt: skip
    print(json.dumps(outcomes, indent=1), json.dumps(kinds, indent=1), len(survivors), "survive")


if __name__ == "__main__":
    script(main)
