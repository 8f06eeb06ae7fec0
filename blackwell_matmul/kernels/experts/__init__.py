"""Experts: the grouped GEMM of a mixture of experts and the gradient of its weights, for Blackwell and Hopper."""

from __future__ import annotations

from blackwell_matmul.frontend.faults.tilus_compat import import_tilus

# The kernel files import tilus by name, on machines too where a plain import of tilus 0.2.0 fails.
import_tilus()
