"""`first-light`: test on this machine's GPU what this package claims about it, and write a report."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.cli.options import Json, decimal, integer, known_gpu, word
from blackwell_matmul.cli.output import finish
from blackwell_matmul.cli.views import terminal
from blackwell_matmul.hardware.gpus import gpu_named

if TYPE_CHECKING:
    from blackwell_matmul.cli.first_light.kit import Kit
    from blackwell_matmul.hardware.gpus import Gpu

KIT_NAME, REPORT_NAME, COMPARE = "kit.zip", "report", "compare"
DEVICES = ("gpu", "emulator")

Words = Annotated[
    list[str] | None, typer.Argument(metavar="[KIT | compare A B]", help="A prepared kit; or two reports.")
]
Minutes = Annotated[str, word("MINUTES", "After so long, no further item begins.", "--minutes")]
Out = Annotated[
    str, word("PATH", "The report's folder, or the kit's file.", "--out", "-o", default="report/, or kit.zip")
]
KIT_TEXT = "Compile a kit for this GPU, on any machine, and run nothing."
Prepare = Annotated[str, word("GPU", KIT_TEXT, check=lambda name: name and known_gpu(name))]
Device = Annotated[str, word("gpu|emulator", "Where to run: on this machine's GPU, or on its CPU.")]
OfGpu = Annotated[str, word("GPU", "The GPU that the emulator stands for.", "--gpu", check=known_gpu)]
Limit = Annotated[str, word("SECONDS", "The longest that an item may be silent.")]


def first_light(
    words: Words = None,
    minutes: Minutes = "60",
    out: Out = "",
    prepare: Prepare = "",
    device: Device = "gpu",
    gpu: OfGpu = "B200",
    limit: Limit = "120",
    as_json: Json = False,
) -> None:
    """Test on this machine's GPU what this package claims about it, and write a page and a JSON file.

    Exit code 0: all claims that were tested hold. 1: a claim does not hold, or an item crashed or hung. 2: bad input,
    or could not run.

    Examples:

    - `blackwell-matmul first-light -o report/`
    - `blackwell-matmul first-light --prepare B200 -o kit.zip`
    - `blackwell-matmul first-light kit.zip -o report/`
    - `blackwell-matmul first-light --device emulator --gpu B200 -o report/`
    - `blackwell-matmul first-light compare mine/ yours/report.json`

    A crash or a hang ends only its item. A later run continues where the first one ended. report/index.html is the page
    to read, and report/report.json the file to send. The report names no host, user or path.
    """
    given, seconds = list(words or ()), integer("--limit", limit)
    if given[:1] == [COMPARE]:
        _compare(given[1:], as_json)
    allowed = decimal(minutes)
    if allowed is None or not 0 < allowed <= 10_000:
        raise InputError(f"--minutes is {shown(minutes)}; it must be a number from 0 to 10,000.")
    if device not in DEVICES:
        raise InputError(f"--device is {shown(device)}; it must be gpu or emulator.")
    if len(given) > 1:
        raise InputError(f"there are {len(given)} words; first-light takes one kit, or compare and two reports.")
    if prepare:
        _prepare(prepare, Path(out or KIT_NAME), as_json)
    _run(given[0] if given else None, Path(out or REPORT_NAME), device, gpu, allowed, seconds, as_json)


# --- prepare


def _prepare(name: str, file: Path, as_json: bool) -> NoReturn:
    from blackwell_matmul.cli.first_light import kit

    gpu = gpu_named(name)
    with tempfile.TemporaryDirectory(prefix="first-light-") as folder, terminal.telling(as_json) as tell:
        made = kit.prepare(gpu, Path(folder), tell)
        kit.pack(Path(folder), file)
    size, refused = file.stat().st_size / 1e6, dict(made.refused)
    text = f"{file}  a kit for {gpu}: {len(made.cases)} kernels, {size:.1f} MB"
    lines = "\n".join([text, *(f"not in it: {each}: {why}" for each, why in refused.items())])
    record = {"kit": str(file), "gpu": gpu.name, "arch": gpu.arch, "kernels": len(made.cases), "refused": refused}
    finish(as_json, lambda: record, lambda: lines)


# --- run


def _run(
    given: str | None, out: Path, device: str, gpu_name: str, minutes: float, limit_s: int, as_json: bool
) -> NoReturn:
    from blackwell_matmul.cli.first_light import run_report, running_items
    from blackwell_matmul.harness.bench.results import require_writable

    gpu = _gpu(device, gpu_name)
    require_writable(out)
    with terminal.telling(as_json) as tell, _kit(given, gpu, out, device, tell) as found:
        run = running_items.FirstLightRun(found, gpu, device, out, minutes, tell, limit_s)
        run.run()
        rows, missing = list(run.rows), run.missing()
    made = run_report.record(rows, gpu, device != "gpu", missing, _command(), _machine(gpu, device))
    page, counts = run_report.save(made, out), made["counts"]
    text = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    left = f"; {missing} items are left: start again" if missing else ""
    bad = [f"{row['stage']}: {row['item']}: {row['told']}" for row in rows if row["status"] in ("not held", "failed")]
    lines = "\n".join([*bad, f"{gpu}: {text}{left}", f"look at {page}; send {out / run_report.REPORT}"])
    finish(as_json, lambda: made, lambda: lines, not counts["not held"] and not counts["failed"])


def _command() -> str:
    """Return the command line of this process, without paths."""
    from blackwell_matmul.cli.first_light.cases import without_paths

    return without_paths(shlex.join(["blackwell-matmul", *sys.argv[1:]]))


def _gpu(device: str, name: str) -> Gpu:
    from blackwell_matmul.harness.bench.bench_machine import gpu_at_hand

    return gpu_at_hand() if device == "gpu" else gpu_named(name)


@contextmanager
def _kit(given: str | None, gpu: Gpu, out: Path, device: str, tell: Callable[[str], None]) -> Iterator[Kit]:
    """Yield the given kit, or the kit in the report's folder. The first run compiles the latter."""
    from blackwell_matmul.cli.first_light import kit

    if given is not None:
        with kit.unpacked(Path(given)) as found:
            kit.require_for(found, gpu, given)
            yield found
        return
    folder = out / "kit"
    found = (
        kit.opened_folder(folder) if (folder / kit.KIT).is_file() else kit.prepare(gpu, folder, tell, device != "gpu")
    )
    kit.require_for(found, gpu, str(folder))
    yield found


def _machine(gpu: Gpu, device: str) -> dict[str, Any]:
    from blackwell_matmul.harness.bench import bench_machine

    if device != "gpu":
        return {"versions": bench_machine.versions()}
    return {**bench_machine.machine_of(gpu).about, **bench_machine.settings(("ecc.mode.current",))}


# --- compare


def _compare(names: list[str], as_json: bool) -> NoReturn:
    from blackwell_matmul.cli.first_light import comparing, run_report

    if len(names) != 2:
        raise InputError(f"compare takes two reports, and there are {len(names)}.")
    first, second = (run_report.load(Path(each)) for each in names)
    found, changed = comparing.pairs(first, second), comparing.changed(first, second)
    record = {
        "values": [{**vars(each), "ratio": each.ratio} for each in found],
        "changed": [dict(zip(("item", "first", "second"), each)) for each in changed],
    }
    head = f"{first['gpu']} and {second['gpu']}: {len(found)} values, {len(changed)} items with another outcome"
    lines = [head, *(f"{item}: {before}, then {after}" for item, before, after in changed)]
    lines += [f"{_ratio(each.ratio)}  {each.what}: {each.first:g} and {each.second:g} {each.unit}" for each in found]
    finish(as_json, lambda: record, lambda: "\n".join(lines))


def _ratio(value: float | None) -> str:
    return "    -" if value is None else f"{value:5.2f}"
