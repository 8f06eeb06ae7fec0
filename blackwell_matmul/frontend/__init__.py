"""Frontend: a tilus script becomes a `Program`, for a named target and without a GPU.

`bind` checks the arguments and finds the schedule. `build` runs tilus once and keeps the data of the simulator and the
compiler. `fingerprint` names everything that a program depends on. Importing this package imports no tilus.

May import: base, hardware, problem.
"""

from __future__ import annotations

from blackwell_matmul.frontend.bind import Bound, bind, bind_all, bind_call, target_for
from blackwell_matmul.frontend.build import build, build_first
from blackwell_matmul.frontend.faults.tilus_compat import import_tilus, target, target_names
from blackwell_matmul.frontend.identity import IdentityMap
from blackwell_matmul.frontend.program import Location, Program, SharedAllocation

__all__ = [
    "Bound",
    "IdentityMap",
    "Location",
    "Program",
    "SharedAllocation",
    "bind",
    "bind_all",
    "bind_call",
    "build",
    "build_first",
    "import_tilus",
    "target",
    "target_for",
    "target_names",
]
