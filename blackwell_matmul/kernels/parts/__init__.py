"""Parts: device code that several kernels share, a subject a file; a kernel inlines the methods that it calls."""

from __future__ import annotations

from blackwell_matmul.frontend.faults.tilus_compat import import_tilus

# The kernel files import tilus by name, on machines too where a plain import of tilus 0.2.0 fails.
import_tilus()
