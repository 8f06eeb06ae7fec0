"""Device code that several kernels share. tilus inlines the methods into the kernels that call them."""

from __future__ import annotations

from blackwell_matmul.frontend.faults.tilus_compat import import_tilus

# The kernel files import tilus. On some machines that works only after this call.
import_tilus()
