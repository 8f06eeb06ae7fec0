"""`trace`: write the predicted timeline of one SM to a file, without the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.files import TIMELINE_ENDINGS, file_to_write
from blackwell_matmul.cli import options
from blackwell_matmul.cli.form_options import NO_FORM, FormWords, takes_form
from blackwell_matmul.cli.options import Dtype, Json, Kernel, Pins, Size, TimedGpu, TimedTarget
from blackwell_matmul.cli.output import finish, named
from blackwell_matmul.cli.views import terminal

if TYPE_CHECKING:
    from blackwell_matmul.simulator.trace.timeline import Timeline


def _output(name: str) -> str:
    file_to_write("-o", name, TIMELINE_ENDINGS)
    return name


@takes_form
def trace(
    kernel: Kernel,
    output: Annotated[str, options.word("FILE", "A .html, .json, .svg or .png file.", "--output", "-o", check=_output)],
    size: Size = None,
    dtype: Dtype = None,
    schedule: Pins = "",
    gpu: TimedGpu = None,
    target: TimedTarget = None,
    cycles: Annotated[tuple[str, str] | None, options.word("START END", "These cycles alone.", default="all")] = None,
    as_json: Json = False,
    form: FormWords = NO_FORM,
) -> None:
    """Draw the predicted timeline of one SM: warps, TMA, tensor core and mbarriers.

    Nothing is measured. The file's suffix selects a page, Chrome's trace format, or a picture.

    Exit code 0: written. 1: the kernel does not end. 2: could not draw.

    Examples:

    - `blackwell-matmul trace v2 --gpu B200 --size 1024 1024 1024 -o v2.html`
    - `blackwell-matmul trace v5 --size 8192 8192 8192 -o v5.json`
    - `blackwell-matmul trace v3 --cycles 4000 9000 -o v3.svg`

    A browser opens a page, ui.perfetto.dev opens JSON. SVG and PNG are pictures; PNG needs `blackwell-matmul[png]`.
    """
    request, window = options.kernel_request(kernel, size, dtype, schedule, form.form, form.batches), _window(cycles)
    named_gpu = options.one_gpu(gpu, target)
    with terminal.progress("predicting", quiet=as_json):
        from blackwell_matmul.harness.predicting import trace_call

        timeline = trace_call(request.resolved(None, named_gpu))
    if window is not None:
        timeline = _cut(timeline, *window)
    timeline.save(output)
    record = {"kernel": timeline.kernel, "gpu": timeline.gpu, "predicted": True, "part": timeline.part, "file": output}
    record |= {"cycles": [timeline.start_cycles, timeline.end_cycles], "events": len(timeline.events)}
    text = f"{output}: {timeline.title}; {timeline.part}, {len(timeline.events)} events."
    finish(as_json, lambda: named(kernel, record), lambda: terminal.printable(text))


def _window(cycles: tuple[str, str] | None) -> tuple[int, int] | None:
    if cycles is None:
        return None
    start, end = (options.integer(f"{name} of --cycles", text) for name, text in zip(("START", "END"), cycles))
    if not 0 <= start < end:
        raise InputError(f"--cycles is {start} {end}; START must be at least 0, and END more than START.")
    return start, end


def _cut(timeline: Timeline, start: int, end: int) -> Timeline:
    if start >= timeline.end_cycles:
        raise InputError(f"--cycles starts at {start}; the run is over after {timeline.end_cycles:.0f} cycles.")
    cut = timeline.between(start, end)
    if not cut.events:
        first = min(each.start_cycles for each in timeline.events)
        last = max(each.end_cycles for each in timeline.events)
        raise InputError(
            f"--cycles is {start} {end}, where nothing happens; there are events from cycle {first:.0f} to {last:.0f}."
        )
    return cut
