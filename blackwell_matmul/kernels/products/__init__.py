"""Kernels of `matmul`, `linear`, `bmm`, `scaled_mm` and `tune`, made from the last rungs of the ladders. Further
kernels add sums over parts of K, and quantise.
"""

from __future__ import annotations

from blackwell_matmul.frontend.faults.tilus_compat import import_tilus

# The kernel files import tilus. On some machines that works only after this call.
import_tilus()
