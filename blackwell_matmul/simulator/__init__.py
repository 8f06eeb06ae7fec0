"""The machine on a CPU: it computes the values, checks the ordering and reports. It knows no kernel."""

from blackwell_matmul.frontend.tilus_compat import import_tilus

import_tilus()  # so that a script's own `import tilus` works after this, also where git is missing, and on a Mac

from blackwell_matmul.simulator.findings import Event, Finding, Run, Severity  # noqa: E402
from blackwell_matmul.simulator.simulate import simulate  # noqa: E402

__all__ = ["Event", "Finding", "Run", "Severity", "simulate"]
