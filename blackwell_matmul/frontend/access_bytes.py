"""Bytes that one access of emitted code covers, by an address that is a multiple of these bytes.

Code generation joins neighbouring elements of a thread into accesses of up to 16 bytes. Only offsets decide on the
width: the address of the tensor is taken as a multiple. A GPU stops at any other address (PTX ISA, "Addresses as
Operands").
"""

from __future__ import annotations

import re
from typing import Any

from tilus.hidet.ir.expr import Call
from tilus.hidet.ir.stmt import DeclareStmt
from tilus.hidet.ir.tools import collect
from tilus.ir import instructions as tilus
from tilus.ir.inst import Instruction

BY_POINTER: tuple[type[Instruction], ...] = (
    tilus.LoadGlobalGenericInst, tilus.StoreGlobalGenericInst, tilus.CopyAsyncGenericInst,
)  # fmt: skip
"""Instructions that access global memory by a pointer. Code generation replaces all others by these."""

COPY = re.compile(r"cuda_cp_async_size_(\d+)_")


def access_bytes(code: Any) -> int:
    """Return the bytes of the widest joined access in the code of one instruction; 1 without one."""
    return max(map(_bytes, collect(code, (DeclareStmt, Call))), default=1)


def _bytes(node: Any) -> int:
    if isinstance(node, Call):
        copy = COPY.match(node.func_var.name)
        return int(copy[1]) if copy else 1
    return int(node.var.type.base_type.nbytes) if node.var.hint == "mem_ptr" else 1
