"""CUDA's driver and runtime for programs that launch kernels: each launch is executed by the emulator.

`program` runs a command with shared libraries in place of CUDA's (`libraries`, `host.c`). They send each call to this
process (`channel`), in which `driver` and `runtime` have a function for each entry point (`entries`). `host` has the
memory and the modules, `images` the PTX in them.
"""

from blackwell_matmul.emulator.cuda_runtime.program import run

__all__ = ["run"]
