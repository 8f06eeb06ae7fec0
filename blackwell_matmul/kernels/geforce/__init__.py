"""The ladder for GPUs with TMA and without tcgen05 or wgmma: RTX 50 series, GB10. G0 runs on Hopper, too."""

from __future__ import annotations

from blackwell_matmul.frontend.faults.tilus_compat import import_tilus

# The kernel files import tilus. On some machines that works only after this call.
import_tilus()
