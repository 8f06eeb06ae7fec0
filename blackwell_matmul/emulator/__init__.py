"""Executes PTX on the CPU, with its addresses, swizzles, descriptors, phases and predicates.

The emulator shares no code with the simulator, which judges the script. `parser` reads the text. `code` and
`instructions` turn each instruction into a Python function. The function acts on the lanes of a warp, or of a row:
several warps at the same instruction. `scheduler` runs rows and asynchronous operations on the state in `machine` and
`spaces`. An `emulation_listener` gets the events of a run; `order` has a listener.

May import: base, compiler.
"""

from blackwell_matmul.compiler.plan import TensorMap
from blackwell_matmul.emulator.emulate import Emulation, emulate
from blackwell_matmul.emulator.order.ptx_check import check_ptx
from blackwell_matmul.emulator.scheduler import ORDERS, Limit

__all__ = ["ORDERS", "Emulation", "Limit", "TensorMap", "check_ptx", "emulate"]
