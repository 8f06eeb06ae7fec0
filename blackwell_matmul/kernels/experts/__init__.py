"""Grouped GEMM of a mixture of experts, and the gradient of its weights, for Blackwell and Hopper."""

from __future__ import annotations

from blackwell_matmul.frontend.faults.tilus_compat import import_tilus

# The kernel files import tilus. On some machines that works only after this call.
import_tilus()
