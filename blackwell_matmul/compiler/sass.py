"""Counts a cubin's SASS instructions for copies, MMAs, synchronisation and spills, read with NVIDIA's disassembler
nvdisasm (a pip package)."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from blackwell_matmul.base.errors import UnsupportedError

FAMILIES: Mapping[str, str] = {
    "UTMALDG": "TMA load",
    "UTMASTG": "TMA store",
    "UTC": "tcgen05",
    "LDTM": "tcgen05.ld",
    "STTM": "tcgen05.st",
    "HGMMA": "wgmma",
    "QGMMA": "wgmma",
    "HMMA": "mma.sync",
    "QMMA": "mma.sync",
    "LDGSTS": "cp.async",
    "LDSM": "ldmatrix",
    "STSM": "stmatrix",
    "SYNCS": "mbarrier",
    "BAR": "CTA barrier",
    "UCGABAR": "cluster barrier",
    "PREEXIT": "griddepcontrol, next may start",
    "ACQBULK": "griddepcontrol.wait",
    "FENCE": "fence",
    "STL": "spill, store",
    "LDL": "spill, load",
}
"""PTX or CUDA name of the instructions, by the beginning of their SASS opcode."""

_PLACE = re.compile(r'//## File "(?P<file>.*?)", line (?P<line>\d+)')
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][A-Z0-9_.]*)")


@dataclass(frozen=True)
class SassInstruction:
    """A SASS opcode of the kernel, its count, and its lines of the Python kernel."""

    opcode: str
    meaning: str
    count: int
    places: tuple[tuple[str, int], ...]


def instructions_that_matter(cubin: bytes) -> list[SassInstruction]:
    """Return the instructions of `FAMILIES`, in order of appearance; raise UnsupportedError without a disassembler."""
    found: dict[str, list[tuple[str, int]]] = {}
    for opcode, place in _instructions(disassembled(cubin)):
        if _family(opcode):
            found.setdefault(opcode, []).append(place)
    return [SassInstruction(op, _family(op), len(all_), tuple(sorted(set(all_)))) for op, all_ in found.items()]


def disassembled(cubin: bytes) -> str:
    """Return a cubin's SASS, with a comment at each new line of the Python kernel."""
    program = _nvdisasm()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        made = subprocess.run([program, "-g", "-c", str(file)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise UnsupportedError(f"nvdisasm cannot read the cubin: {' '.join(made.stderr.split())[:200].rstrip('.')}.")
    return made.stdout


def _nvdisasm() -> str:
    try:
        from cuda import pathfinder

        found = pathfinder.find_nvidia_binary_utility("nvdisasm") or shutil.which("nvdisasm")
    except ImportError:
        found = shutil.which("nvdisasm")
    if found is None:
        raise UnsupportedError("Showing SASS needs nvdisasm, which `pip install nvidia-cuda-nvdisasm` brings.")
    return found


def _instructions(sass: str) -> Iterator[tuple[str, tuple[str, int]]]:
    place = ("", 0)
    for line in sass.splitlines():
        told = _PLACE.search(line)
        if told:
            place = (told["file"], int(told["line"]))
        instruction = _INSTRUCTION.match(line)
        if instruction:
            yield instruction["opcode"], place


def _family(opcode: str) -> str:
    return next((meaning for start, meaning in FAMILIES.items() if opcode.startswith(start)), "")
