"""Lines of a function, if its file is unchanged since the import.

tilus reads a method's source from its file when the kernel is built. Python runs the code that it read at the import.
If the file has changed in between, tilus would read other lines, without an error.
"""

from __future__ import annotations
import __future__

import functools
import linecache
import operator
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

from blackwell_matmul.base.digests import is_file_as_imported
from blackwell_matmul.frontend.fingerprint import nested_code
from blackwell_matmul.frontend.messages.raised import Refusal

_FUTURE = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)


def _age_ns() -> int:
    """Return the age of this process in ns; every module was imported within it."""
    try:
        ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 10**9 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return time.time_ns()  # of a file of any age it could be


_BEGUN_NS = time.time_ns() - _age_ns()


def own_lines(find: Callable[[Any], tuple[list[str], int]]) -> Callable[[Any], tuple[list[str], int]]:
    """Return an `inspect.getsourcelines` that refuses lines which have become another function's."""

    def found(function: Any) -> tuple[list[str], int]:
        code = getattr(function, "__code__", function)  # others ask of a code, or of a class
        if isinstance(code, CodeType) and not _is_of(code):
            if os.path.exists(code.co_filename):
                linecache.cache.pop(code.co_filename, None)  # its times and sizes may be those of another text
            if not _is_of(code):
                raise Refusal(
                    f"{code.co_filename} has been edited since {code.co_qualname} was imported from line "
                    f"{code.co_firstlineno} of it, and tilus would read the new lines; import it again"
                )
        return find(function)

    return found


def _is_of(code: CodeType) -> bool:
    """Return True if the source lines of a code object compile to it, or if there are no lines."""
    file = code.co_filename
    linecache.checkcache(file)
    lines = linecache.getlines(file)
    if not lines or is_file_as_imported(file):
        return True
    made = _made_of("".join(lines), file, code.co_flags & _FUTURE)
    return made is None or code in made or not _has_changed(file)


@functools.lru_cache(64)
def _made_of(text: str, file: str, flags: int) -> frozenset[CodeType] | None:
    """Return all code objects that a text compiles to; None if the text is not pure Python, such as a notebook cell
    with magics."""
    try:
        return frozenset(nested_code(compile(text, file, "exec", flags, dont_inherit=True)))
    except (SyntaxError, ValueError):
        return None if not os.path.exists(file) else frozenset()


def _has_changed(file: str) -> bool:
    """Return True if a file was written since this process began, and for text without a file. Import hooks make other
    code from an unchanged file, which is no fault."""
    try:
        found = os.stat(file)
    except OSError:
        return True
    return max(found.st_mtime_ns, found.st_ctime_ns) > _BEGUN_NS
