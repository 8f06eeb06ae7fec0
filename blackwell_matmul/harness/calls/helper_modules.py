"""Modules in the folder of a user's file: each file imports those of its own folder.

Python keeps one module of a name, so a second file would get the first file's `common.py`. Here each loaded file has
its own modules, also for imports inside functions. Their names in `sys.modules` have the file's name as a prefix, so
that their objects can be pickled. A module never hides a library, and no bytecode is written next to a file.
"""

from __future__ import annotations

import builtins
import linecache
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from threading import RLock
from types import CodeType, ModuleType
from typing import Any

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OURS = ("blackwell_matmul", "tilus")

_lock = RLock()
"""Lock that is held while a file's modules are in `sys.modules` under their plain names."""


class Loader(SourceFileLoader):
    """Loader of a file's current source, without bytecode. Imports in the file go through `beside`.

    name: name of the module in `sys.modules` and in its classes.
    """

    def __init__(self, fullname: str, path: str, name: str, beside: HelperModules) -> None:
        super().__init__(fullname, path)
        self.beside, self._name = beside, name

    def get_code(self, fullname: str) -> CodeType:
        linecache.cache.pop(self.path, None)
        return self.source_to_code(self.get_data(self.path), self.path)

    def exec_module(self, module: ModuleType) -> None:
        module.__name__ = self._name
        vars(module)["__builtins__"] = self.beside.builtins
        sys.modules[self._name] = module
        try:
            super().exec_module(module)
        except BaseException:
            sys.modules.pop(self._name, None)
            raise


class HelperModules:
    """Modules of a folder that one file imports. prefix: prefix of their names in `sys.modules`."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder, self._prefix = folder, prefix
        self._modules: dict[str, ModuleType] = {}
        self._hidden: dict[str, ModuleType] = {}
        self._tops: set[str] = set()
        self._depth = 0
        self.builtins: dict[str, Any] = {**vars(builtins), "__import__": self._import}

    def _import(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        top = (globals["__package__"] if level else name).partition(".")[0]
        if not self._has(top):
            return builtins.__import__(name, globals, locals, fromlist, level)
        with self._named_plainly(top):
            return builtins.__import__(name, globals, locals, fromlist, level)

    def _has(self, top: str) -> bool:
        """Return True if the folder has this module or package, no library has it, and none is imported from elsewhere.

        top: first part of a module's name.
        """
        if top in self._tops:
            return True
        place = self._folder / top
        if not top or not (place.is_dir() or place.with_suffix(".py").is_file()) or _is_of_a_library(top):
            return False
        file = getattr(sys.modules.get(top), "__file__", None)
        return file is None or self._folder not in Path(file).parents

    @contextmanager
    def _named_plainly(self, top: str) -> Iterator[None]:
        """Give the folder's modules their plain names in sys.modules inside the block, in place of others."""
        with _lock:
            self._enter(top)
            try:
                yield
            finally:
                self._leave()

    def _enter(self, top: str) -> None:
        if top not in self._tops:
            self._tops.add(top)
            self._hidden |= {name: sys.modules.pop(name) for name in _of_tops({top})}
        if self._depth == 0:
            self._hidden |= {name: sys.modules.pop(name) for name in _of_tops(self._tops)}
            sys.modules.update(self._modules)
            sys.meta_path.insert(0, self)
        self._depth += 1

    def _leave(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            sys.meta_path.remove(self)
            self._modules = {name: sys.modules.pop(name) for name in _of_tops(self._tops)}
            sys.modules.update(self._hidden)
            self._hidden = {}

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module in the folder or its packages; None for other modules.

        `sys.meta_path` has this object while a module is imported.
        """
        if name.partition(".")[0] not in self._tops:
            return None
        spec = PathFinder.find_spec(name, [str(self._folder)] if path is None else path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Loader(name, str(spec.origin), f"{self._prefix}.{name}", self)
        return spec


def _of_tops(tops: set[str]) -> list[str]:
    return [name for name in [*sys.modules] if name.partition(".")[0] in tops]


def _is_of_a_library(name: str) -> bool:
    """Return True if the standard library, an installed package or this package has a module of that name."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top in _OURS:
        return True
    spec = PathFinder.find_spec(top)
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]
    return any(place.startswith(_LIBRARIES) for place in places)
