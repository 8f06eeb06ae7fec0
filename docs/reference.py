"""The pages of the reference: every public name of the package, once, and every command. `site_hooks.py` asks for them.

mkdocstrings fills in signatures and docstrings when the site is built; a name that is added to the package and to no
section here fails a test.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import blackwell_matmul

PACKAGE = Path(blackwell_matmul.__file__).parent


class Section(NamedTuple):
    """One page: its title, a line on what it is for, and its names."""

    title: str
    about: str
    names: tuple[str, ...]


SECTIONS = {
    "running": Section(
        "Run and check",
        "Simulate a kernel, check its ordering, compare its result, predict its time and what runs when. "
        "Where a function takes m, n and k, these are a size, or m is a `Problem`, or tensors follow.",
        (
            *("simulate", "check", "assert_clean", "run_matmul", "run_script", "check_matmul", "schedules"),
            *("predict", "trace", "compile", "compile_many", "emulate", "check_ptx", "load", "timeline_buffer"),
            "measured_timeline",
        ),
    ),
    "results": Section(
        "Results",
        "What those functions return.",
        (
            *("Run", "Finding", "Report", "Result", "ScriptResult", "Verdict", "ScheduleList", "Prediction"),
            *("Timeline", "Bundle", "Loaded"),
        ),
    ),
    "operations": Section(
        "Operations of torch",
        "What a model multiplies, named and called as torch's. CUDA tensors run on their GPU; CPU tensors are "
        "simulated, with `simulate=True`. With autograd, under torch.compile, and in CUDA graphs.",
        (
            *(
                "matmul",
                "linear",
                "bmm",
                "baddbmm",
                "scaled_mm",
                "scaled_grouped_mm",
                "ScaledMmMode",
                "grouped_matmul",
                "fused_linear",
                "copies",
            ),
            *("quantize", "dequantize", "all_gather_matmul", "matmul_reduce_scatter", "share_gpu"),
        ),
    ),
    "kernels": Section(
        "Kernels",
        "Products and rungs. A knob that is pinned, as in `BlackwellMatmulV1(block_m=128)`, is kept; the others "
        "are chosen. Called with (m, n, k, a, b, c), a kernel runs where its tensors live.",
        (
            "Script",
            *("BlackwellMatmul", "HopperMatmul"),
            *(f"BlackwellMatmulV{rung}" for rung in range(7)),
            *(f"BlackwellMatmulS{rung}" for rung in range(3)),
            *(f"HopperMatmulV{rung}" for rung in range(8)),
            *("GeforceMatmulV0", "GeforceMatmulG1"),
        ),
    ),
    "problems": Section(
        "Problems and GPUs",
        "What is multiplied, how, and on what.",
        ("Problem", "Form", "Epilogue", "Schedule", "Gpu", "GPUS"),
    ),
    "errors": Section(
        "Errors",
        "All that the package raises on purpose; each message is one sentence that says what would work.",
        (
            *("BlackwellMatmulError", "InputError", "CompileError", "UnsupportedError", "SimulationError"),
            *("EmulationError", "DriverError"),
        ),
    ),
}

UNWRITTEN = {"__version__": "The version that is installed, as a string."}
"""Names that are made when they are asked for, where no docstring can be."""

HOME_OF = {name: home for home, names in blackwell_matmul._HOMES.items() for name in names}
IN_A_FILE_OF_ITS_NAME = {"emulate": "emulator.emulate.emulate", "check_ptx": "emulator.order.ptx_check.check_ptx"}
"""Names for which griffe would take the file instead."""


def pages() -> dict[str, str]:
    """Path in the site to text."""
    found = {f"reference/{name}.md": _page(section) for name, section in SECTIONS.items()}
    return {"reference/index.md": _index(), **found, "reference/commands.md": _commands()}


def _index() -> str:
    lines = [
        "# Reference",
        "",
        "All of these are imported from `blackwell_matmul`; nothing is loaded before it is used.",
        "",
    ]
    for name, section in SECTIONS.items():
        links = ", ".join(f"[`{each}`]({name}.md#{_path(each)})" for each in section.names)
        lines += [f"**[{section.title}]({name}.md)**: {links}", ""]
    lines += [f"`{name}`: {text}" for name, text in UNWRITTEN.items()]
    return "\n".join([*lines, "", "The command line is [beside it](commands.md).", ""])


def _page(section: Section) -> str:
    parts = [f"# {section.title}", section.about]
    for name in section.names:
        parts += [_directive(name), *_of_its_file(name)]
    return "\n\n".join(parts) + "\n"


def _path(name: str) -> str:
    """Where griffe finds it; of a rung in its file, as the package names it for type checkers."""
    if _kernel_file(name) is not None:
        return f"blackwell_matmul.{HOME_OF[name]}.{name}"
    return f"blackwell_matmul.{IN_A_FILE_OF_ITS_NAME.get(name, name)}"


def _directive(name: str) -> str:
    """What mkdocstrings replaces; of a rung not its methods, which are the kernel."""
    members = "" if _kernel_file(name) is None else "\n      members: false"
    return f"::: {_path(name)}\n    options:\n      heading: blackwell_matmul.{name}\n      toc_label: {name}{members}"


def _kernel_file(name: str) -> Path | None:
    home = HOME_OF[name]
    return PACKAGE / (home.replace(".", "/") + ".py") if home.startswith("kernels.") else None


def _of_its_file(name: str) -> list[str]:
    """What the file of a rung says of it, and a way to the file."""
    file = _kernel_file(name)
    if file is None:
        return []
    path = file.relative_to(PACKAGE.parent).as_posix()
    return [f"{ast.get_docstring(ast.parse(file.read_text(encoding='utf-8')))}", f"[{path}](../{path})"]


def _commands() -> str:
    """Every command with its options, from typer's own description of them; pages have one title each."""
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    from blackwell_matmul.cli import PROGRAM_NAME, app

    command = get_command(app)
    text = get_docs_for_click(obj=command, ctx=command.context_class(command), name=PROGRAM_NAME, title="Commands")
    listed = re.compile(r"\*\*Commands\*\*:.*?(?=^## )", re.MULTILINE | re.DOTALL)  # with descriptions cut short
    return re.sub(r"^\$ ", "", listed.sub("", text, count=1), flags=re.MULTILINE).replace("```console", "```text")
