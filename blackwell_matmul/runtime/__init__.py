"""Launches a compiled bundle on a GPU. Its import touches no GPU and needs neither tilus nor a driver.

May import: base, compiler, frontend, hardware, problem, simulator.
"""

from blackwell_matmul.runtime.load import Loaded, load

__all__ = ["Loaded", "load"]
