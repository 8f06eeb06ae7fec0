"""Settings of the GPU's board that nvidia-smi knows."""

from __future__ import annotations

import subprocess

UNKNOWN = "unknown"


def ecc_mode() -> str:
    """Return whether ECC is enabled, as nvidia-smi says it."""
    command = ["nvidia-smi", "--query-gpu=ecc.mode.current", "--format=csv,noheader", "-i", "0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return done.stdout.strip() or UNKNOWN
