"""Instructions that copy bytes between tensors of two types, where Python would convert.

tilus 0.2.0 converts no type in a copy. Only `store_shared`, `assign` and the tensor copies of TMA refuse unequal
types; other copies compile. `store_global` of float32 registers into a float16 view converts, unless a thread holds
several elements in a row. Then it writes 4 bytes for each element, over its neighbours. Signed and unsigned integers
of one width have the same bytes. Removable when tilus converts, or refuses everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tilus.hidet.ir.tools import infer_type
from tilus.hidet.ir.type import DataType, PointerType
from tilus.ir import instructions as tilus
from tilus.ir.inst import Instruction
from tilus.ir.instructions.cuda import cp_async_tensor, tcgen05
from tilus.ir.tensor import RegisterTensor

INTO: Mapping[type[Instruction], str] = {
    tilus.StoreGlobalInst: "store_global",
    tilus.StoreSharedInst: "store_shared",
    tilus.CopyAsyncInst: "copy_async",
    tilus.CopyAsyncBulkGlobalToSharedInst: "a bulk copy",
    tilus.CopyAsyncBulkGlobalToClusterSharedInst: "a bulk copy",
    tilus.CopyAsyncBulkSharedToGlobalInst: "a bulk copy",
    tilus.CopyAsyncBulkSharedToClusterSharedInst: "a bulk copy",
    cp_async_tensor.CopyAsyncTensorGlobalToSharedInst: "tma.global_to_shared",
    cp_async_tensor.CopyAsyncTensorSharedToGlobalInst: "tma.shared_to_global",
    tcgen05.Tcgen05StoreInst: "tcgen05.store",
    tcgen05.Tcgen05CopyInst: "tcgen05.copy",
    tilus.AssignInst: "assign",
    tilus.SliceAssignInst: "an assignment to a slice",
}
"""Into their first input, from their second."""

OUT_OF: Mapping[type[Instruction], str] = {
    tilus.LoadGlobalInst: "load_global",
    tilus.LoadSharedInst: "load_shared",
    tcgen05.Tcgen05LoadInst: "tcgen05.load",
    tilus.SliceRegisterInst: "a slice",
    tilus.ShuffleUpInst: "shuffle_up",
    tilus.ShuffleDownInst: "shuffle_down",
    tilus.RepeatInst: "repeat",
    tilus.RepeatInterleaveInst: "repeat_interleave",
    tilus.SqueezeInst: "squeeze",
    tilus.UnsqueezeInst: "unsqueeze",
    tilus.TransposeInst: "transpose",
}
"""Into their output, from their first input."""

BY_POINTER: Mapping[type[Instruction], str] = {
    tilus.LoadGlobalGenericInst: "load_global_generic",
    tilus.StoreGlobalGenericInst: "store_global_generic",
    tilus.CopyAsyncGenericInst: "copy_async_generic",
}
"""Between a tensor and elements of the type that a pointer points to."""


class Copy(NamedTuple):
    """Source and target of a copy: tensors; None for memory behind a pointer."""

    name: str
    source: Any
    target: Any
    source_type: DataType
    target_type: DataType

    @property
    def remedy(self) -> str:
        converts = isinstance(self.source, RegisterTensor)
        return (
            f".to({self.target_type.name}) first" if converts else "give both the same type, and convert in registers"
        )


def changed(inst: Instruction) -> Copy | None:
    """Return the instruction as a `Copy` if source and destination differ in type; None for any other instruction."""
    copy = _copy(inst)
    return None if copy is None or _same_bytes(copy.source_type, copy.target_type) else copy


def _copy(inst: Instruction) -> Copy | None:
    kind = type(inst)
    if kind in INTO:
        target, source = inst.inputs[:2]
        return Copy(INTO[kind], source, target, source.dtype, target.dtype)
    if kind in OUT_OF:
        return Copy(OUT_OF[kind], inst.inputs[0], inst.output, inst.inputs[0].dtype, inst.output.dtype)
    return _by_pointer(inst) if kind in BY_POINTER else None


def _by_pointer(inst: Any) -> Copy | None:
    pointer = infer_type(inst.ptr)
    if not isinstance(pointer, PointerType) or not isinstance(pointer.base_type, DataType):
        return None
    name, element = BY_POINTER[type(inst)], pointer.base_type
    if isinstance(inst, tilus.StoreGlobalGenericInst):
        return Copy(name, inst.inputs[0], None, inst.inputs[0].dtype, element)
    target = inst.output or inst.inputs[0]
    return Copy(name, None, target, element, target.dtype)


def _same_bytes(a: DataType, b: DataType) -> bool:
    integers = all(each.is_integer() and each.name != "bool" for each in (a, b))
    return bool(a == b or (integers and a.nbits == b.nbits))
