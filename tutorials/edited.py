"""`edited`: a copy of a kernel with a piece of its text replaced, for experiments. The kernel itself stays as it is."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import itertools
import re
import sys
import tempfile
from pathlib import Path

_folder = tempfile.TemporaryDirectory(prefix="edited-")
_numbers = itertools.count(1)


def edited(kernel: type, old: str, new: str) -> type:
    """Return the class of `kernel`, from a copy of its file in which `new` stands for the line or piece of text `old`.

    If a part has this text and the kernel does not, the part is copied into the file (`with_part`). tilus reads the
    source of a script from its file, so the copy is a file too; it goes when Python exits.
    """
    text = Path(inspect.getfile(kernel)).read_text(encoding="utf-8")
    text = text if old in text else with_part(text, old)
    if old not in text:
        raise ValueError(f"{inspect.getfile(kernel)} does not contain {old!r}")
    file = Path(_folder.name) / f"edited_{next(_numbers)}.py"
    file.write_text(text.replace(old, new), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[file.stem] = module  # where a copy of the copy finds its text
    return getattr(module, kernel.__name__)


def with_part(text: str, old: str) -> str:
    """Return the text of a kernel, with the first of its parts that contains `old` in place of its import."""
    for line, name in re.findall(r"^(from (blackwell_matmul\.kernels\.parts\.\w+) import .*\n)", text, re.M):
        part = inspect.getsource(importlib.import_module(name))
        if old in part:
            return text.replace(line, part.split('"""\n', 1)[1].strip() + "\n\n\n")
    return text
