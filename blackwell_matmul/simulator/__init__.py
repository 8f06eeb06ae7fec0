"""The machine on a CPU: the simulator computes values, checks the order of accesses and reports.

`engine` runs warps and completes asynchronous operations; `listener` has the class whose methods a listener overrides.
The room imports no kernel.

May import: base, frontend, problem, simulator.lowering, simulator.machine, simulator.order, simulator.replay,
simulator.semantics, simulator.trace.
"""

from blackwell_matmul.frontend.faults.tilus_compat import import_tilus

import_tilus()  # a script's own `import tilus` works after this, also without git, and on a Mac

from blackwell_matmul.simulator.findings import Event, Finding, Run, Severity  # noqa: E402
from blackwell_matmul.simulator.simulate import simulate  # noqa: E402

__all__ = ["Event", "Finding", "Run", "Severity", "simulate"]
