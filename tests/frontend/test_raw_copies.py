"""Copies between tensors of two types: refused, by simulate and compile alike, or of the same bytes."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from copy_scripts import Copies
from tilus import float16, float32, int8, int32, uint32
from tilus.ir import instructions as tilus_instructions
from tilus.ir.inst import Instruction

from blackwell_matmul import simulate
from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.frontend import bind, build
from blackwell_matmul.frontend.faults.raw_copies import BY_POINTER, INTO, OUT_OF

WAYS = (
    "store_global", "copy_async", "store_shared", "assign", "an assignment to a slice", "tma.global_to_shared",
    "tma.shared_to_global", "tcgen05.store",
)  # fmt: skip
VERIFIED = {"store_shared", "assign"}
"""Where tilus itself refuses, also what would be the same bytes."""

OTHER = """
AllocateGlobalInst AllocateRegisterInst AllocateSharedInst GlobalViewInst ViewInst Tcgen05AllocInst Tcgen05ViewInst
SliceGlobalInst SliceSharedInst Tcgen05SliceInst ReshapeSharedInst PermuteSharedInst MapSharedAddrInst
FreeSharedInst Tcgen05DeallocInst Tcgen05RelinquishAllocPermitInst AnnotateLayoutInst
CastInst ElementwiseUnaryInst ElementwiseBinaryInst NegInst AbsInst ClipInst AddInst SubInst MulInst DivInst ModInst
WhereInst ReduceInst DotInst SimtDotInst WgmmaMmaSSInst WgmmaMmaRSInst Tcgen05MmaSSInst Tcgen05MmaTSInst
FormatPrintInst PrintTensorInst
""".split()
"""Instructions that make, name, reinterpret or compute: they convert, by rules of their own, or move nothing."""


def calls(a: Any, b: Any) -> tuple[Any, ...]:
    return 0, torch.arange(128 * 64).remainder(100).to(torch_type(a)), torch.zeros(128 * 64, dtype=torch_type(b))


def torch_type(kind: Any) -> torch.dtype:
    found = getattr(torch, kind.name)
    assert isinstance(found, torch.dtype)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(("a", "b"), [(float32, float16), (float16, float32), (int8, int32), (int32, float32)])
def test_types_that_differ_are_refused(how: str, a: Any, b: Any) -> None:
    bound = bind(Copies, calls(a, b), schedule={"how": how, "a": a, "b": b}, target="sm_100a")
    with pytest.raises(CompileError) as refusal:
        build(bound, "sm_100a")
    said = str(refusal.value)
    assert said.count("\n") == 0 and "copy_scripts.py:" in said and a.name in said and b.name in said
    assert how in VERIFIED or f"{how} from" in said


@pytest.mark.slow
@pytest.mark.parametrize("how", [way for way in WAYS if way not in VERIFIED and not way.startswith("tma")])
@pytest.mark.parametrize(("a", "b"), [(int32, uint32), (float32, float32)])
def test_the_same_bytes_are_copied(how: str, a: Any, b: Any) -> None:
    arguments = calls(a, b)
    assert simulate(Copies, *arguments, schedule={"how": how, "a": a, "b": b}, target="sm_100a").ok
    assert np.array_equal(arguments[1].numpy(), arguments[2].numpy())


def test_the_sentence() -> None:
    with pytest.raises(
        CompileError,
        match=r"Copies does not compile for sm_90a: store_global from tile \(float32\) to y \(float16\) copies "
        r"raw bytes in tilus 0\.2\.0; \.to\(float16\) first \(.*copy_scripts\.py:\d+\)\.$",
    ):
        simulate(
            Copies,
            *calls(float32, float16),
            schedule={"how": "store_global", "a": float32, "b": float16},
            target="sm_90a",
        )


def test_every_instruction_of_tilus_is_known() -> None:
    """One that moves data and is in no table would be a copy that nobody looks at."""
    from tilus.ir.instructions.cuda import clc, cluster_sync, cp_async_tensor, mapa, tcgen05, wgmma

    modules = (tilus_instructions, clc, cluster_sync, cp_async_tensor, mapa, tcgen05, wgmma)
    kinds = {kind for module in modules for kind in vars(module).values() if inspect.isclass(kind)}
    known = {*INTO, *OUT_OF, *BY_POINTER}
    rest = {kind.__name__ for kind in kinds if issubclass(kind, Instruction) and kind not in known}
    moving = {name for name in rest if not any(word in name for word in ("Base", *SIGNALS))} - {"Instruction"}
    assert moving - set(OTHER) == set()


SIGNALS = ("Barrier", "Group", "Fence", "Sync", "Wait", "Commit", "Semaphore", "Control", "Exit", "Nop", "Assume")
