"""What keeps the suite fast on a machine that does other things too; no test depends on it."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Here and in the processes that tests start. The tensors are small; threads of torch that wait for one another on busy
cores take twenty times as long as one."""
