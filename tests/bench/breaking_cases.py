"""A case of `bench/gpu/differential.py` in a file that imports nothing: the processes that break are there at once."""

from __future__ import annotations

import os
import time


def breaking(step, key: str, gpu: bool) -> dict[str, object]:
    """Its process dies at "dies" and hangs at "hangs"."""
    step("launch")
    if key == "dies":
        os._exit(3)
    if key == "hangs":
        time.sleep(600)
    return {"key": key, "outcome": "equal"}
