"""Which environment variables the installed torch and Triton read: one that no file of theirs names does nothing.

People set variables that some guide names, and measure noise.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from blackwell_matmul_studies.torch_compile.configurations import VARIABLES, unknown

GUIDES = (
    "ENABLE_TMA",
    "ENABLE_MMA_V3",
    "TRITON_ENABLE_TMA",
    "ENABLE_TMA_LOAD_FOR_TEMPLATE_EPILOGUE",
    "TORCHINDUCTOR_TRITON_CUDAGRAPHS",
    "TORCHINDUCTOR_TRITON_USE_BLOCK_PTR",
    "TORCHINDUCTOR_USE_TENSOR_DESCRIPTOR",
)
"""Variables that guides and scripts set beside inductor's own. Triton read the first two in 2023; the fourth is of a
later torch than 2.11; some are guesses from an option's name."""

_NAME = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def looked_up(step: Callable[[str], None]) -> dict[str, Any]:
    """A trial: of the variables that set something, and of those that guides name, which are read."""
    step("searching torch and Triton for variables")
    names = (*VARIABLES.values(), *GUIDES)
    found = read(names, sources())
    return {
        "read": [name for name in names if name in found],
        "unread": [name for name in names if name not in found],
        "unknown": unknown(),
    }


def sources() -> Iterator[Path]:
    """Where inductor, dynamo and Triton read their environment, the compiled part of Triton included."""
    for folder in (*_folders("torch", ("_inductor", "_dynamo", "compiler", "utils")), *_folders("triton", ("",))):
        yield from folder.rglob("*.py")
        yield from folder.glob("_C/*.so")


def _folders(package: str, inside: Sequence[str]) -> list[Path]:
    spec = find_spec(package)
    roots = [] if spec is None else [Path(root) for root in spec.submodule_search_locations or ()]
    return [root / each for root in roots for each in inside]


def read(names: Iterable[str], files: Iterable[Path]) -> set[str]:
    """Those of the names that stand in some file, each as a whole word."""
    missing, found = set(names), set[str]()
    for file in files:
        if missing and file.stat().st_size:
            with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as text:
                seen = {name for name in missing if _has_word(text, name.encode())}
            found, missing = found | seen, missing - seen
    return found


def _has_word(text: mmap.mmap, word: bytes) -> bool:
    at = text.find(word)
    while at >= 0:
        after = at + len(word)
        if not ((at and text[at - 1] in _NAME) or (after < len(text) and text[after] in _NAME)):
            return True
        at = text.find(word, after)
    return False
