"""CUDA's driver and runtime for programs that launch kernels: each launch is executed by the emulator.

`running` runs a command with shared libraries in place of CUDA's (`libraries`, `host.c`). They send each call to this
process (`channel`), in which `driver_calls` and `runtime_calls` have a function for each entry point (`entry_points`).
`host` has the memory and the modules, `images` the PTX in them. `for_python` and `for_torch` run in the program.
"""

from blackwell_matmul.emulator.cuda_runtime.running import run

__all__ = ["run"]
