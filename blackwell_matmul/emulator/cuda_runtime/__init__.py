"""CUDA driver and CUDA runtime for unmodified programs; the emulator executes each kernel that a program launches.

`running` runs a command with shared libraries in place of CUDA's (`libraries`, `host.c`). The libraries send each call
to this process (`channel`). `driver_calls` and `runtime_calls` have a function for each entry point; `entry_points`
lists all. `host` has the memory and the modules, `images` the PTX in module images. `for_python` and `for_torch` run
inside the program.
"""

from blackwell_matmul.emulator.cuda_runtime.running import run

__all__ = ["run"]
