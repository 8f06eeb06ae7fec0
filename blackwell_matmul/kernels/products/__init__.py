"""Products: the kernels of `matmul`, `linear`, `bmm`, `scaled_mm` and `tune`, which grew out of the ladders, the
kernel that adds up parts of K, and the kernel of `quantize`.
"""

from __future__ import annotations

from blackwell_matmul.frontend.faults.tilus_compat import import_tilus

# The kernel files import tilus by name, on machines too where a plain import of tilus 0.2.0 fails.
import_tilus()
