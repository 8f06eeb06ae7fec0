"""The ladder for data-center Blackwell: each rung adds one idea to the rung below.

Read `v0.py` first, then `diff v0.py v1.py`, and so on up.
"""

from __future__ import annotations

from blackwell_matmul.frontend.faults.tilus_compat import import_tilus

# The kernel files import tilus. On some machines that works only after this call.
import_tilus()
