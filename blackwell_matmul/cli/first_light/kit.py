"""Kits: all kernels that `first-light` runs on a GPU, compiled on any machine, in one zip file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.files import write_json
from blackwell_matmul.base.records import content_of, parsed
from blackwell_matmul.base.zip_files import unzipped, zip_folder
from blackwell_matmul.cli.first_light import cases
from blackwell_matmul.cli.first_light.cases import Case
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.bench.bench_machine import ladder
from blackwell_matmul.harness.bench.request import Request
from blackwell_matmul.jobs.worker import compiled_in_pool

KIT, KIT_FORMAT = "kit.json", 2
KIT_TASKS = "blackwell_matmul.cli.first_light.item_tasks"
STAGE_OF: Mapping[str, str] = {
    "prepare_micro": "micro", "prepare": "values", "prepare_timeline": "timelines", "prepare_speed": "ladder",
}  # fmt: skip
"""Name of the stage, by the task that compiles for it."""
PREPARE_LIMIT_S = 300.0
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Kit:
    """A prepared kit.

    cases, timelines, speeds: results of the tasks that compiled them. refused: reasons why a case has no bundle, by
    stage and case.
    """

    folder: Path
    gpu: str
    arch: str
    cases: tuple[Mapping[str, Any], ...]
    timelines: tuple[Mapping[str, Any], ...]
    speeds: tuple[Mapping[str, Any], ...]
    refused: Mapping[str, str]

    @property
    def bench(self) -> Path:
        return self.folder / "bench"

    def bundle(self, entry: Mapping[str, Any]) -> Path:
        return self.folder / str(entry["folder"])


def ladder_request(kit_folder: Path, out: Path) -> Request:
    """Return the request of the ladder's benchmark, with bundles from a kit."""
    return Request(size=cases.LADDER_SIZES[-1], dtypes=("fp16",), rounds=7, out=out, bundles=kit_folder / "bench")


def prepare(gpu: Gpu, folder: Path, tell: Tell, emulated: bool = False) -> Kit:
    """Compile all items for a GPU into a folder, and return the kit.

    emulated: True leaves out the timed problems, which need a GPU. Raises UnsupportedError if no kernel exists for this
    GPU's target.
    """
    ladder(gpu)
    made, refused = _compiled(gpu, folder, tell, emulated)
    if not emulated:
        ladder_request(folder, folder).compile(gpu.name, tell)  # a refused kernel becomes a row of the run
    record = {
        "format": KIT_FORMAT, "gpu": gpu.name, "arch": gpu.arch, "cases": made["prepare"],
        "timelines": made["prepare_timeline"], "speeds": made["prepare_speed"], "refused": refused,
    }  # fmt: skip
    write_json(folder / KIT, record)
    return opened_folder(folder)


def _compiled(gpu: Gpu, folder: Path, tell: Tell, emulated: bool) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Compile all items; return the results of each task in order, and the reasons of refused items, by name."""
    items: list[tuple[str, Case | None]] = [("prepare_micro", None)]
    items += [("prepare", case) for case in cases.value_cases(gpu.arch)]
    items += [("prepare_timeline", case) for case in cases.timeline_cases(gpu.arch, emulated)]
    if not emulated:
        items += [("prepare_speed", case) for case in cases.speed_cases(gpu.arch)]
    named = {f"{STAGE_OF[task]}: {case or 'microbenchmarks'}": (task, case) for task, case in items}
    tasks = {name: _task(*item, gpu, folder) for name, item in named.items()}
    outcomes = compiled_in_pool(tasks, PREPARE_LIMIT_S, KIT_TASKS, tell)
    made: dict[str, list[Any]] = {task: [] for task in STAGE_OF}
    for name, outcome in outcomes.items():
        if outcome.result is not None:
            made[named[name][0]].append(outcome.result)
    return made, {name: outcome.why for name, outcome in outcomes.items() if outcome.result is None}


def _task(task: str, case: Case | None, gpu: Gpu, folder: Path) -> dict[str, Any]:
    about = {} if case is None else {"case": vars(case)}
    return {"do": f"{KIT_TASKS}:{task}", "target": gpu.arch, "folder": str(folder), **about}


# --- files


pack = partial(zip_folder, what="the kit")


@contextmanager
def unpacked(file: Path) -> Iterator[Kit]:
    """Yield the kit of a zip file, in a folder that is removed after the block; raise InputError for other files."""
    with unzipped(file, "kit", "`first-light --prepare` makes one") as folder:
        yield opened_folder(folder, str(file))


def opened_folder(folder: Path, name: str = "") -> Kit:
    """Return the kit in a folder; raise InputError for any other folder. name: name of the kit, for messages."""
    text = name or str(folder)
    try:
        record = parsed(content_of(folder / KIT))
        form = record["format"]
        entries: Any = {name: tuple(record[name]) for name in ("cases", "timelines", "speeds")}
        kit = Kit(folder, record["gpu"], record["arch"], refused=record["refused"], **entries)
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{text} is no kit: {KIT} is missing or damaged; `first-light --prepare` makes one."
        ) from error
    if form != KIT_FORMAT:
        raise InputError(f"{text} is a kit of format {form}, and this version reads {KIT_FORMAT}; prepare it again.")
    return kit


def require_for(kit: Kit, gpu: Gpu, name: str) -> None:
    if kit.arch != gpu.arch:
        raise InputError(
            f"{name} was made for a {kit.gpu} ({kit.arch}) and this GPU is {gpu}; prepare one for it: "
            f"blackwell-matmul first-light --prepare {gpu.name!r} -o kit.zip."
        )
