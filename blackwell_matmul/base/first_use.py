"""Names of a package that are imported on first use, so that importing the package is quick."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

Homes = Mapping[str, Sequence[str]]


def on_first_use(package: str, homes: Homes, unlisted: Homes = MappingProxyType({})) -> Callable[[str], object]:
    """Set a package's `__all__`, and return the package's `__getattr__`, which imports a name on first use.

    homes, unlisted: names by module of the package; `__all__` lists only the names of homes.
    """
    listed = _homes_of(homes)
    vars(sys.modules[package])["__all__"] = sorted(listed)
    home_of = {**listed, **_homes_of(unlisted)}

    def found(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return found


def _homes_of(homes: Homes) -> dict[str, str]:
    return {name: home for home, names in homes.items() for name in names}
