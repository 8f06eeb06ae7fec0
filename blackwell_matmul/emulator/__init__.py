"""Executes PTX on the CPU: what the GPU would get, with its addresses, swizzles, descriptors, phases and predicates.

A second witness beside the simulator, which judges the script: nothing here is shared with it. The text is parsed
(`parser`), each instruction becomes a Python function that acts on 32 lanes at once (`code`, `instructions`), and
`scheduler` runs warps and asynchronous operations over the state in `machine` and `spaces`.

May import: base, compiler.
"""

from blackwell_matmul.compiler.plan import TensorMap
from blackwell_matmul.emulator.emulate import Emulation, emulate
from blackwell_matmul.emulator.scheduler import ORDERS

__all__ = ["ORDERS", "Emulation", "TensorMap", "emulate"]
