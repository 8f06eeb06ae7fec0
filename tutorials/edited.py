"""`edited`: a copy of a kernel with a piece of its text replaced, for experiments. The kernel itself stays as it is."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import sys
import tempfile
from pathlib import Path

_folder = tempfile.TemporaryDirectory(prefix="edited-")
_numbers = itertools.count(1)


def edited(kernel: type, old: str, new: str) -> type:
    """The class of `kernel`, from a copy of its file in which `new` stands for the line or piece of text `old`.

    tilus reads the source of a script from its file, so the copy is a file too; it goes when Python exits.
    """
    text = Path(inspect.getfile(kernel)).read_text(encoding="utf-8")
    if text.count(old) == 0:
        raise ValueError(f"{inspect.getfile(kernel)} does not contain {old!r}")
    file = Path(_folder.name) / f"edited_{next(_numbers)}.py"
    file.write_text(text.replace(old, new), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[file.stem] = module  # where a copy of the copy finds its text
    return getattr(module, kernel.__name__)
