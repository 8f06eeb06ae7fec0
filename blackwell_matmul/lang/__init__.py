"""Block-scaled products, counters and registers for tilus scripts: types, scales in tensor memory, the products.

tilus 0.2.0 lacks them. This room adds classes and replaces none of tilus's. A line in a script's class adds the
instructions: `tcgen05 = BlockScaled()` those of tcgen05, `mma_sync = BlockScaledWarps()` those of mma.sync, and
`rounded = Rounded()` exactly rounded arithmetic and conversions, which make block-scaled data. `atomic = Atomics()`
adds counters that all CTAs share, and `setmaxnreg = MaxRegisters()` gives registers to the warpgroups that multiply.

May import: frontend, problem.
"""

from __future__ import annotations

from blackwell_matmul.frontend.faults.tilus_compat import import_tilus

import_tilus()

from blackwell_matmul.lang import emitters, layouts  # noqa: E402
from blackwell_matmul.lang.byte_types import float4_e2m1x2, float8_e8m0  # noqa: E402
from blackwell_matmul.lang.group import Atomics, BlockScaled, BlockScaledWarps, MaxRegisters, Rounded  # noqa: E402
from blackwell_matmul.lang.kinds import FORMATS, Format  # noqa: E402

__all__ = [
    "FORMATS",
    "Atomics",
    "BlockScaled",
    "BlockScaledWarps",
    "Format",
    "MaxRegisters",
    "Rounded",
    "emitters",
    "float4_e2m1x2",
    "float8_e8m0",
    "layouts",
]
