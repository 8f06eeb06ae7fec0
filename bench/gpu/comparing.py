"""One case of `differential.py`, in a process of its own: simulated, compiled, launched on a GPU or executed by the
emulator, and the bytes compared.
"""

from __future__ import annotations

import collections
import inspect
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from cases import case_of, own
from cases.made import WHOLE, Made, target
from explanations import EXACT, Bound, Pairs

from blackwell_matmul.base.errors import BlackwellMatmulError, DriverError, EmulationError, UnsupportedError
from blackwell_matmul.compiler import compile, nvrtc
from blackwell_matmul.emulator import emulate
from blackwell_matmul.frontend import bind
from blackwell_matmul.frontend.recording import instructions
from blackwell_matmul.runtime import load
from blackwell_matmul.simulator import simulate
from blackwell_matmul.simulator.simulate import prepare

DEVICE = "cuda"
ROOM_BYTES = 4096
"""Around each tensor on the GPU; a store that misses shows there."""
FILL = 0x5A
SHOWN = 4
HARMLESS = frozenset({"never-written"})
"""Findings that excuse no difference: a case may leave a part of its output alone."""

HELD = {"bool": torch.bool, **{name: kind.torch for name, kind in WHOLE.items()}}
"""By tilus's name of a type what holds it."""

WORST_FIRST = (
    "error", "DIFFERENT", "not-emulated", "simulate-refuses", "compile-refuses", "finding", "rounding", "nan-bits",
    "both-refuse", "equal", "no-gpu", "nothing",
)  # fmt: skip
Row = dict[str, Any]


Launch = Callable[[Any, Mapping[str, Any]], tuple[list[Any], list[int]]]
"""Executes a bundle on arguments by name: those after it, and which tensors (by number) it wrote around."""


def compare(step: Callable[[str], None], key: str, gpu: bool, record: bool = False, emulator: bool = False) -> Row:
    """The row of a case, with what the GPU computed to `record`. What breaks this process (a launch that fails) is
    raised. emulator: it takes the GPU's place."""
    launch = emulated if emulator else launched if gpu else None
    torch.set_num_threads(1)
    start = time.perf_counter()
    try:
        step("make")
        rows = [row for made in kernels_of(key, step) for row in launches_of(step, made, launch)]
        kept = {"recorded": [row.get("computed") for row in rows]} if record else {}
        row = {**worst(rows), **kept}
    except BrokenGpuError:
        raise
    except Exception as error:
        row = {"outcome": "error", "sentence": f"{type(error).__name__}: {error}"[:400]}
    row.pop("computed", None)
    return {"key": key, **row, "seconds": round(time.perf_counter() - start, 3)}


def kernels_of(key: str, step: Callable[[str], None]) -> list[Made]:
    return own.calls_of(key, step) if key.startswith("test/") else [case_of(key).make()]


def worst(rows: Sequence[Row]) -> Row:
    """The row that says most, with the launches and times of all."""
    if not rows:
        return {"outcome": "nothing"}
    chosen = min(rows, key=lambda row: WORST_FIRST.index(row["outcome"]))
    times = collections.Counter[str]()
    for row in rows:
        times.update(row.get("times", {}))
    launches = sum(row.get("launches", 1) for row in rows)
    return {**chosen, "launches": launches, "times": {name: round(value, 3) for name, value in times.items()}}


class BrokenGpuError(Exception):
    """What is left of this process's GPU after a launch that failed nobody knows."""


def launches_of(step: Callable[[str], None], made: Made, launch: Launch | None) -> list[Row]:
    """All launches of a kernel, up to the first that both refuse."""
    script, rows = made.kernel(), []
    for arguments in made.launches:
        rows.append(one_launch(step, script, arguments, made, launch))
        if rows[-1]["outcome"] == "both-refuse":
            break
    return rows


def one_launch(
    step: Callable[[str], None], script: Any, arguments: Sequence[Any], made: Made, launch: Launch | None
) -> Row:
    times: dict[str, float] = {}
    options = {"target": target(), "schedule": made.schedule}
    step("simulate")
    with timed(times, "simulate"):
        simulated, run, refused = simulated_of(script, arguments, made)
    step("compile")
    with timed(times, "compile"):
        bundle, not_compiled = _or_sentence(lambda: compile(script, *arguments, **options))
    row: Row = {"times": times, "arguments": told(arguments)}
    if run is None or bundle is None:
        outcome = "compile-refuses" if run else "simulate-refuses" if bundle else "both-refuse"
        return {**row, "outcome": outcome, "sentence": refused or not_compiled}
    found = sorted({finding.code for finding in run.findings} - HARMLESS)
    row |= {"findings": found} if found else {}
    if made.broken and not found:
        return {**row, "outcome": "DIFFERENT", "sentence": "this stops a GPU, and the simulator reports nothing"}
    if made.broken or any(finding.fatal for finding in run.findings) or (found and not made.text):
        return {**row, "outcome": "finding"}  # its kernel may never end
    if launch is None:
        return {**row, "outcome": "no-gpu"}
    step("launch")
    named = by_name(script, arguments, made)
    with timed(times, "launch"):
        try:
            computed, outside = launch(bundle, named)
        except (EmulationError, UnsupportedError) as error:
            outcome = "finding" if found else "not-emulated" if isinstance(error, UnsupportedError) else "DIFFERENT"
            return {**row, "outcome": outcome, "sentence": str(error)}
    types = types_of(script, arguments, made)
    told_ = outcome_of(simulated, computed, outside, made.bound, bool(found), types, arguments)
    if told_["outcome"] == "DIFFERENT" and made.bound.contracts and not outside:
        uncontracted, _ = launch(without_contraction(script, arguments, options), named)
        if outcome_of(simulated, uncontracted, [], EXACT, False, types)["outcome"] in ("equal", "nan-bits"):
            told_ = {**told_, "outcome": "rounding", "why": made.bound.why}
    return {**row, **told_, "computed": changed(arguments, computed)}


def simulated_of(script: Any, arguments: Sequence[Any], made: Made) -> tuple[list[Any], Any, str]:
    """The arguments as the simulator leaves them, the run, and the sentence that refuses one."""
    ours = [each.clone() if isinstance(each, torch.Tensor) else each for each in arguments]
    call: dict[str, Any] = {"target": target(), "schedule": made.schedule, "workers": 1, "trace": False}
    run, refused = _or_sentence(lambda: simulate(script, *ours, **call))
    return ours, run, refused


def without_contraction(script: Any, arguments: Sequence[Any], options: Any) -> Any:
    """The kernel without a fused multiply-add that its text has not."""
    usual = nvrtc.OPTIONS
    nvrtc.OPTIONS = (*usual, "--fmad=false")  # type: ignore[assignment]
    try:
        return compile(script, *arguments, **options, cache=False)
    finally:
        nvrtc.OPTIONS = usual


def by_name(script: Any, arguments: Sequence[Any], made: Made) -> dict[str, Any]:
    """The arguments of the call, those with a default too, by the names of the script's parameters."""
    bound = bind(script, arguments, schedule=made.schedule, target=target())
    return dict(zip(list(inspect.signature(bound.script_cls.__call__).parameters)[1:], bound.args, strict=True))


def types_of(script: Any, arguments: Sequence[Any], made: Made) -> list[torch.dtype | None]:
    """For each argument the type in which the kernel views it, where that is one that torch has."""
    _, lowered = prepare(script, tuple(arguments), made.schedule, target())
    params = {id(var): name for name, var in lowered.program.params}
    seen: dict[str, set[str]] = collections.defaultdict(set)
    for inst in instructions(lowered.program.tile):
        if type(inst).__name__ == "GlobalViewInst":
            seen[params.get(id(inst.ptr), "")].add(inst.output.dtype.name)
    single = {name: HELD.get(min(kinds)) for name, kinds in seen.items() if len(kinds) == 1}
    return [single.get(name) for name in by_name(script, arguments, made)]


def outcome_of(
    simulated: Sequence[Any],
    computed: Sequence[Any],
    outside: Sequence[int],
    bound: Bound,
    excused: bool,
    types: Sequence[torch.dtype | None] = (),
    arguments: Sequence[Any] = (),
) -> Row:
    """What a launch shows. outside: the tensors (by number) around which it wrote. types: those to compare in."""
    rows = list(differing(simulated, computed, bound, types, arguments))
    if outside:
        rows.insert(0, {"outcome": "DIFFERENT", "outside": list(outside)})
    if not rows:
        return {"outcome": "equal"}
    chosen = min(rows, key=lambda row: WORST_FIRST.index(row["outcome"]))
    return {**chosen, "outcome": "finding"} if excused and chosen["outcome"] == "DIFFERENT" else chosen


def _or_sentence(call: Callable[[], Any]) -> tuple[Any, str]:
    try:
        return call(), ""
    except BlackwellMatmulError as error:
        return None, str(error)


@contextmanager
def timed(times: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    times[name] = times.get(name, 0.0) + time.perf_counter() - start


def launched(bundle: Any, named: Mapping[str, Any]) -> tuple[list[Any], list[int]]:
    """The arguments as the GPU leaves them, and which tensors (by number) it wrote around."""
    placed = {name: roomed(each) if isinstance(each, torch.Tensor) else (each, None) for name, each in named.items()}
    try:
        load(bundle)(*(placed[parameter.name][0] for parameter in bundle.plan.parameters))
        torch.cuda.synchronize()
    except (DriverError, RuntimeError) as error:
        raise BrokenGpuError(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error
    back = [each.cpu() if room is not None else each for each, room in placed.values()]
    outside = [n for n, (_, room) in enumerate(placed.values()) if room is not None and not untouched(room)]
    return back, outside


def emulated(bundle: Any, named: Mapping[str, Any]) -> tuple[list[Any], list[int]]:
    """As `launched`; a store around a tensor stops the emulator."""
    copies = {name: each.clone() if isinstance(each, torch.Tensor) else each for name, each in named.items()}
    emulate(bundle, *(copies[parameter.name] for parameter in bundle.plan.parameters))
    return list(copies.values()), []


def roomed(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A copy on the GPU in the middle of a room of its own, with its dimensions in the same order in memory."""
    outermost_first = sorted(range(tensor.ndim), key=tensor.stride, reverse=True)
    in_memory = tensor.permute(outermost_first)
    raw = in_memory.contiguous().view(-1).view(torch.uint8)
    room = torch.full((len(raw) + 2 * ROOM_BYTES,), FILL, dtype=torch.uint8, device=DEVICE)
    inside = room[ROOM_BYTES : ROOM_BYTES + len(raw)]
    inside.copy_(raw)
    copy = inside.view(tensor.dtype).view(in_memory.shape)
    return copy.permute([outermost_first.index(each) for each in range(tensor.ndim)]), room


def untouched(room: torch.Tensor) -> bool:
    return bool((room[:ROOM_BYTES] == FILL).all() and (room[-ROOM_BYTES:] == FILL).all())


def differing(
    simulated: Sequence[Any],
    computed: Sequence[Any],
    bound: Bound,
    types: Sequence[torch.dtype | None] = (),
    arguments: Sequence[Any] = (),
) -> Iterator[Row]:
    """What each tensor that is not the same shows."""
    for number, (ours, theirs, kind) in enumerate(itertools.zip_longest(simulated, computed, types)):
        if isinstance(ours, torch.Tensor):
            found = difference(viewed(ours, kind), viewed(theirs, kind), bound, arguments)
            if found:
                yield {"argument": number, **found}


def viewed(tensor: torch.Tensor, kind: torch.dtype | None) -> torch.Tensor:
    """The same bytes, flat, in a type if they fill its elements."""
    raw = tensor.contiguous().view(-1).view(torch.uint8)
    return raw.view(kind or tensor.dtype) if len(raw) % (kind or tensor.dtype).itemsize == 0 else raw


def difference(ours: torch.Tensor, theirs: torch.Tensor, bound: Bound, arguments: Sequence[Any] = ()) -> Row:
    """How far apart two flat tensors are; empty where each byte is the same."""
    width = ours.element_size()
    one, other = (each.view(torch.uint8).view(-1, width) for each in (ours, theirs))
    places = (one != other).any(dim=1).nonzero().flatten()
    if not len(places):
        return {}
    row = {
        "differ": len(places), "of": ours.numel(), "at": places[:SHOWN].tolist(),
        "simulated": shown(one, ours, places), "gpu": shown(other, theirs, places),
    }  # fmt: skip
    a, b = (each[places].contiguous().view(-1).view(ours.dtype).double() for each in (one, other))
    if ours.dtype.is_floating_point and bool((a.isnan() & b.isnan()).all()):
        return {"outcome": "nan-bits", **row}
    pairs = Pairs(a, b, places, ours.dtype, ours, arguments)
    if ours.dtype.is_floating_point:
        ulps = float(pairs.ulps().max())
        row["ulps"] = ulps if np.isfinite(ulps) else "inf"
    if bound.within is not None and bool(bound.within(pairs).all()):
        return {"outcome": "rounding", "why": bound.why, **row}
    return {"outcome": "DIFFERENT", **row}


# --- what the GPU computed, for a machine without one


def changed(arguments: Sequence[Any], computed: Sequence[Any]) -> dict[str, str]:
    """The bytes of each tensor that a launch changed, by its number: up to the last that is another, in hexadecimal,
    which compresses to less than base64 does."""
    found = {}
    for number, (before, after) in enumerate(zip(arguments, computed)):
        if isinstance(before, torch.Tensor):
            one, other = (viewed(each, torch.uint8) for each in (before, after))
            places = (one != other).nonzero().flatten()
            if len(places):
                found[str(number)] = other[: int(places[-1]) + 1].numpy().tobytes().hex()
    return found


def compare_recorded(step: Callable[[str], None], key: str, record: Row, emulator: bool = False) -> Row:
    """As `compare`, with a record (the outcome then, and what the GPU computed) in the place of a GPU. emulator: it is
    held to the record, and not the simulator.
    """
    made = case_of(key).make()
    script, rows = made.kernel(), []
    for arguments, recorded in zip(made.launches, record["launches"]):
        step("emulate" if emulator else "simulate")
        rows.append((_emulated_against if emulator else _against)(script, arguments, made, recorded))
    return {"key": key, **worst(rows)}


def _against(script: Any, arguments: Sequence[Any], made: Made, recorded: Mapping[str, str] | None) -> Row:
    """recorded: None where it was not launched, since both refused or a finding was fatal.

    A script that does not compile any more is refused by `compile` alike, whatever it computed then.
    """
    simulated, run, refused = simulated_of(script, arguments, made)
    if run is None:
        alike = recorded is None or " does not compile for " in refused
        return {"outcome": "both-refuse" if alike else "simulate-refuses", "sentence": refused}
    found = {finding.code for finding in run.findings} - HARMLESS
    if recorded is None:
        return {"outcome": "finding" if found else "nothing", "sentence": "it refused or had a finding"}
    computed = [_restored(each, recorded.get(str(number))) for number, each in enumerate(arguments)]
    types = types_of(script, arguments, made)
    return outcome_of(simulated, computed, [], made.bound, bool(found), types, arguments)


def _emulated_against(script: Any, arguments: Sequence[Any], made: Made, recorded: Mapping[str, str] | None) -> Row:
    """The compiled code ran there and runs here, so that nothing excuses a difference."""
    if recorded is None:
        return {"outcome": "both-refuse"}
    bundle = compile(script, *arguments, target=target(), schedule=made.schedule)
    try:
        ours, _ = emulated(bundle, by_name(script, arguments, made))
    except UnsupportedError as error:
        return {"outcome": "not-emulated", "sentence": str(error)}
    computed = [_restored(each, recorded.get(str(number))) for number, each in enumerate(arguments)]
    return outcome_of(ours, computed, [], made.bound, False, types_of(script, arguments, made), arguments)


def _restored(argument: Any, text: str | None) -> Any:
    if text is None:
        return argument
    after = argument.clone()
    start = torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)
    after.view(-1).view(torch.uint8)[: len(start)] = start
    return after


def shown(raw: torch.Tensor, flat: torch.Tensor, places: torch.Tensor) -> list[str]:
    """The first values that differ, and their bytes."""
    first = places[:SHOWN]
    values = raw[first].contiguous().view(-1).view(flat.dtype)
    numbers = values.float() if flat.dtype.is_floating_point and flat.element_size() == 1 else values
    bits = ["".join(f"{byte:02x}" for byte in reversed(each)) for each in raw[first].tolist()]
    return [f"{number} (0x{bits})" for number, bits in zip(numbers.tolist(), bits, strict=True)]


def told(arguments: Sequence[Any]) -> list[str]:
    return [
        f"{str(each.dtype).removeprefix('torch.')}{list(each.shape)}" if isinstance(each, torch.Tensor) else repr(each)
        for each in arguments
    ]
