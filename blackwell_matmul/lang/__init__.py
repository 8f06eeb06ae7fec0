"""Block-scaled products for tilus scripts: types, scales in tensor memory or registers, and the products.

tilus 0.2.0 has none of them. This room adds classes beside those of tilus and replaces none. A script gets the
instructions by the line `tcgen05 = BlockScaled()` in its class, or by `mma_sync = BlockScaledWarps()` those of warps.
`rounded = Rounded()` gives what makes such data: arithmetic that rounds exactly, and the conversions.

May import: frontend, problem.
"""

from __future__ import annotations

from blackwell_matmul.frontend.faults.tilus_compat import import_tilus

import_tilus()

from blackwell_matmul.lang import emitters, layouts  # noqa: E402
from blackwell_matmul.lang.byte_types import float4_e2m1x2, float8_e8m0  # noqa: E402
from blackwell_matmul.lang.group import BlockScaled, BlockScaledWarps, Rounded  # noqa: E402
from blackwell_matmul.lang.kinds import FORMATS, Format  # noqa: E402

__all__ = [
    "FORMATS",
    "BlockScaled",
    "BlockScaledWarps",
    "Format",
    "Rounded",
    "emitters",
    "float4_e2m1x2",
    "float8_e8m0",
    "layouts",
]
