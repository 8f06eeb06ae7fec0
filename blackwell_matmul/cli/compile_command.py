"""`compile`: compile one kernel for a GPU, without the GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn, get_args

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.cli import options
from blackwell_matmul.cli.form_options import NO_FORM, FormWords, takes_form
from blackwell_matmul.cli.options import Dtype, Json, Kernel, Pins, Size, Target, flag, word
from blackwell_matmul.cli.output import finish, named
from blackwell_matmul.cli.views import terminal
from blackwell_matmul.hardware.gpus import gpu_named


def _folder(name: str) -> str:
    if not name.strip():
        raise InputError(f"-o is {name!r}; it must be a folder, which is made where it is missing.")
    return name


OptionalKernel = Annotated[str | None, *get_args(Kernel)[1:]]
Output = Annotated[str | None, word("FOLDER", "Write the bundle, or the pack's file.", "--output", "-o", check=_folder)]
PACK_TEXT = "In place of a kernel: compile those of common layers for a GPU, or take them from a file."
Packed = Annotated[str | None, word("GPU|FILE", PACK_TEXT, "--pack", default="none")]
Sass = Annotated[bool, flag("--sass", "Show the machine instructions that matter.")]
Check = Annotated[bool, flag("--check", "Execute the code on the CPU, on few rows, and judge it.")]
RECORDS_TEXT = "Let each warp write when its instructions begin and end, up to so many."
Records = Annotated[str | None, word("RECORDS", RECORDS_TEXT, default="none")]


@takes_form
def compile(
    kernel: OptionalKernel = None,
    output: Output = None,
    size: Size = None,
    dtype: Dtype = None,
    schedule: Pins = "",
    target: Target = None,
    sass: Sass = False,
    check: Check = False,
    timeline: Records = None,
    pack: Packed = None,
    as_json: Json = False,
    form: FormWords = NO_FORM,
) -> None:
    """Compile one kernel for a GPU and report its registers and shared memory, or compile the kernels of common layers.

    Exit code 0: compiled. 1: with --check, the result is wrong, and nothing is written; or a pack has no kernel. 2:
    could not compile.

    Examples:

    - `blackwell-matmul compile v2 -o out/`
    - `blackwell-matmul compile v2 --size 4096 4096 4096 --dtype bf16 --schedule stages=4 --sass`
    - `blackwell-matmul compile v6 --check -o out/`
    - `blackwell-matmul compile h7 --size 4096 4096 4096 --timeline 4096 -o out/`
    - `blackwell-matmul compile my_kernel.py:MyScript --target sm_90a -o out/ --json`
    - `blackwell-matmul compile --pack H100 -o pack.zip`
    - `blackwell-matmul compile --pack pack.zip`

    Compilation needs no GPU and no CUDA toolkit. The folder gets kernel.cu, kernel.ptx, kernel.cubin, and bundle.json
    with the launch plan. `blackwell_matmul.runtime.load(folder)` returns a function that launches it. A pack has the
    kernels of common layers. --pack compiles them into this machine's cache, or copies them there from a file.
    """
    if pack is not None:
        if any((kernel, size, dtype, schedule, target, sass, check, timeline, form.words)):
            raise InputError("--pack compiles what calls of operations need; only -o and --json go with it.")
        _pack(pack, output, as_json)
    if kernel is None:
        raise InputError("there is no kernel; name one, such as v2, or a GPU by --pack.")
    request = options.kernel_request(kernel, size, dtype, schedule, form.form, form.batches)
    records = None if timeline is None else options.integer("--timeline", timeline)
    with terminal.progress(kernel, quiet=as_json) as tell:
        from blackwell_matmul.cli.views.compile_view import bundle_lines, bundle_record
        from blackwell_matmul.harness.compiled import compile_call

        call = request.resolved(None, target)
        bundle = compile_call(call, timeline=records)
        checked = None
        if check:
            from blackwell_matmul.harness.emulated import check_compiled

            checked = check_compiled(bundle, call, tell)
    right = checked is None or checked.ok
    if output is not None and right:
        bundle.save(output)
    shown = bundle, output if right else None, sass, checked
    finish(as_json, lambda: named(kernel, bundle_record(*shown)), lambda: bundle_lines(*shown), right)


def _pack(name: str, output: str | None, as_json: bool) -> NoReturn:
    """Compile the pack of a GPU, or copy the kernels of a pack's file into the cache."""
    from blackwell_matmul.tuner import packs

    with terminal.telling(as_json) as tell:
        if Path(name).is_file():
            if output is not None:
                raise InputError(f"{name} is a pack already; -o goes with a GPU's name.")
            made, verb = packs.install(Path(name)), "copied"
        else:
            made, verb = packs.make(gpu_named(name), tell), "compiled"
    size = ""
    if output is not None:
        packs.save(made, Path(output))
        size = f"; {output}  {Path(output).stat().st_size / 1e6:.1f} MB"
    text = f"{len(made.keys)} kernels for {made.gpu} {verb} into this machine's cache{size}"
    lines = "\n".join([text, *(f"{count} problems without a kernel: {why}" for why, count in made.refused.items())])
    record = {"pack": output, "gpu": made.gpu, "kernels": len(made.keys), "refused": dict(made.refused)}
    finish(as_json, lambda: record, lambda: lines, bool(made.keys))
