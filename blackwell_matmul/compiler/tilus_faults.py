"""Faults in the code of tilus 0.2.0, and corrections for the device source and the launch plan.

- `memory_clobbered`: inline assembly that accesses memory or synchronises, without a "memory" clobber.
- `fenced`: tcgen05 operations at synchronisation of threads, without the fences that PTX requires.
- `isolated_wait`: wgmma registers that are read before their wait (a fault of ptxas that tilus triggers).
- `stores_unseen`: `__restrict__` pointers to memory that TMA stores, too.
- `in_parentheses`, `through_float`: casts that are invalid C++.
- `rounded`: products that ptxas flushes.
- `not_finite`: infinity and NaN as literals.
- `without_cta_group`: a qualifier that only sm_10x has, on every target.
- `without_lone_cluster`: clusters of one CTA, if a kernel asks for none.
- `fastdiv_m` and `fastdiv_s` in `plan`: a multiplier of 33 bits, truncated to 32 in tilus's host code; the launch plan
  has the right numbers.
- `shared_bytes_missing`: a check of the launch's shared memory.

A test shows each fault in tilus's own output.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from blackwell_matmul.frontend.messages.lacking import no_code
from blackwell_matmul.frontend.program import Program

# --- memory clobbers

_ADDRESS = re.compile(r"\[\s*(%\d|[A-Za-z_])")
_SYNCHRONISES = re.compile(
    r"\b(mbarrier|barrier|bar|fence|membar|cp\.async|tcgen05|wgmma|griddepcontrol|clusterlaunchcontrol|setmaxnreg)\."
)


def memory_clobbered(template: str) -> bool:
    """Return True if inline PTX accesses memory or orders other accesses.

    The compiler treats an asm statement without a "memory" clobber as arithmetic. The compiler may move loads and
    stores across the statement, and drop or move a non-volatile statement (CUDA, "Inline PTX Assembly in CUDA"). tilus
    omits the clobber on most waits, arrivals, fences, matrix loads and stores. Where a primitive has a clobber, hidet's
    `IRRewriter.visit_AsmStmt` loses it when a pass rewrites an operand. Removable when both are fixed.
    """
    return not template or bool(_ADDRESS.search(template) or _SYNCHRONISES.search(template))


# --- tcgen05.fence

_ARRIVES = re.compile(
    r"\b(mbarrier\.arrive|cp\.async\.mbarrier\.arrive|barrier\.cluster\.arrive|(bar|barrier)(\.cta)?\.(sync|arrive|red))\b"
)
_WAITS = re.compile(r"\b(mbarrier\.(try|test)_wait|barrier\.cluster\.wait|(bar|barrier)(\.cta)?\.(sync|red))\b")
_TCGEN05 = re.compile(r"\btcgen05\.")

BEFORE_SYNC = "tcgen05.fence::before_thread_sync;"
AFTER_SYNC = "tcgen05.fence::after_thread_sync;"
THREAD_SYNCS = {"__syncthreads", "cooperative_groups::this_cluster().sync"}
"""Synchronisations that are function calls in CUDA C++; all others are inline PTX."""


def uses_tcgen05(templates: Iterable[str]) -> bool:
    return any(_TCGEN05.search(template) for template in templates)


def fenced(template: str) -> str:
    """Return a synchronisation with fences that order its thread's tcgen05 operations against other threads.

    tcgen05 operations are asynchronous, and thread synchronisation does not order them. A fence must precede the
    arrival after issued operations, and follow the wait before later operations. Source: PTX, "Tensorcore 5th
    Generation Family Instructions", "Memory Consistency Model", tcgen05.fence::before_thread_sync and
    ::after_thread_sync; tcgen05.commit implies the first. tilus 0.2.0 has no such instruction. So every synchronisation
    of a kernel with tcgen05 gets the fences. Removable when tilus has fences and the kernels use them.
    """
    before = BEFORE_SYNC + " " if _ARRIVES.search(template) else ""
    after = " " + AFTER_SYNC if _WAITS.search(template) else ""
    return before + template + after


# --- wgmma waits

_WGMMA_WAIT = re.compile(r"\s*(wgmma\.wait_group\.sync\.aligned\s+(\d+);)\s*")


def keeps_wgmma_in_flight(templates: Iterable[str]) -> bool:
    """Return True if some wait leaves a wgmma group pending. Without such a wait, ptxas kept the order in all tests."""
    waits = [wait for wait in map(_WGMMA_WAIT.fullmatch, templates) if wait]
    return any(int(wait[2]) > 0 for wait in waits)


def isolated_wait(template: str) -> str:
    """Return a `wgmma.wait_group` alone in its basic block, inside a loop that runs once; ptxas cannot know the count.

    ptxas (13.0 to 13.5 at least) moves reads of accumulators above their wait while other groups are in flight. After
    `wait_group(1)` in a loop and `wait_group(0)` after it, registers were converted before the last MMA had written
    them. No clobber or operand prevents that, as the order in the PTX is right. A separate basic block does. The block
    also keeps ptxas from turning waits into `wait_group(0)`, which serialises MMAs. A running warp's activemask is
    never 0, which ptxas does not know. Removable when ptxas keeps the order.
    """
    wait = _WGMMA_WAIT.fullmatch(template)
    if wait is None:
        return template
    condition = "activemask.b32 lanes; setp.eq.u32 again, lanes, 0;"
    return f"{{ .reg .pred again; .reg .u32 lanes; WAIT: {wait[1]} {condition} @again bra WAIT; }}"


# --- pointers

_BULK_STORE = re.compile(r"\bcp\.(reduce\.)?async\.bulk\b[^;]*\.global\.shared")


def stores_unseen(templates: Iterable[str]) -> bool:
    """Return True if a kernel stores to global memory by bulk copies, which the compiler does not see.

    tilus declares every pointer `__restrict__`: no other pointer writes its memory. A kernel that stores a tile by TMA
    and reads the tile back then uses `ld.global.nc`, which may return stale data (PTX, "ld.global.nc"). Without
    `__restrict__` the load is an ordinary load. Removable when tilus drops `__restrict__`.
    """
    return any(_BULK_STORE.search(template) for template in templates)


# --- refusals


def reason(error: Exception) -> str:
    """Return the reason why a pass of tilus failed, as a clause without tilus's terminal colours."""
    function = without_code(error)
    if function is not None:
        return no_code(*function)
    return f"a pass of tilus fails with {type(error).__name__}: {_plain(error)[:300].rstrip('.')}"


def without_code(error: Exception) -> tuple[str, str] | None:
    """Return the function's name and element type if a pass failed because tilus has no code for them; else None."""
    unknown = _NO_CODE.search(_plain(error))
    return None if unknown is None else tuple(filter(None, unknown.groups()))


def _plain(error: Exception) -> str:
    return " ".join(re.sub(r"\x1b\[\d*m", "", str(error)).split())


_NO_CODE = re.compile(
    r"Math function (\w+) for (\w+) data has not been implemented|(\w+) is not supported for (\w+)|"
    r"Can not dispatch generic primitive function generic_(\w+) to device cuda and dtype (\w+)"
)
"""Pattern of tilus's message for an elementwise function without code for an element type."""


# --- casts


def in_parentheses(text: Any) -> Any:
    """Return a sum or product that tilus casts to a narrow type, `(int8_t)(a + b)`, in parentheses of its own.

    tilus strips the first and last parenthesis of a whole expression and leaves `int8_t)(a + b`. Removable when tilus
    checks that the two parentheses match.
    """
    from tilus.hidet.utils.doc import Text

    return Text("(") + text + ")" if _CAST.match(str(text)) else text


_CAST = re.compile(r"\(\w+\)\(")


def through_float(cast: Any, source: Any) -> Any:
    """Return a cast between two 8-bit float types through float32, which is exact; C++ has no direct cast. Removable
    when tilus does the same."""
    from tilus.hidet.ir.dtypes import float32
    from tilus.hidet.ir.expr import Cast

    names = {getattr(source, "name", ""), getattr(cast.target_type, "name", "")}
    return Cast(Cast(cast.expr, float32), cast.target_type) if names == {"float8_e4m3", "float8_e5m2"} else cast


def rounded(template: str) -> str:
    """Return a float32 product with explicit rounding.

    tilus decodes types of less than 8 bits with `mul.f32` on a denormal operand, which must not be flushed. ptxas 13.0
    flushes the operand if the product becomes a float64 (cvt.ftz.f64.f32); .rn prevents that. Removable when tilus
    writes the rounding.
    """
    return template.replace("mul.f32 ", "mul.rn.f32 ")


# --- literals


def not_finite(value: object, dtype: str) -> str:
    """Return infinity or NaN as CUDA C++; "" for any other literal.

    tilus prints `inff` and `nanf`, which NVRTC takes for undeclared names. Removable when tilus's `scalar_literal`
    handles both.
    """
    if not isinstance(value, float) or math.isfinite(value) or dtype not in _FLOAT_NAMES:
        return ""
    bits = struct.pack(">f", value).hex()
    return f"({_FLOAT_NAMES[dtype]})__int_as_float(0x{bits})"


_FLOAT_NAMES = {
    "float64": "double", "float32": "float", "tfloat32": "float", "float16": "half", "bfloat16": "bfloat16_t",
    "float8_e4m3": "float8_e4m3", "float8_e5m2": "float8_e5m2",
}  # fmt: skip


# --- .cta_group


def without_cta_group(template: str, target: str) -> str:
    """Return a bulk tensor copy without `.cta_group::1` for targets that lack it; elsewhere the qualifier is redundant.

    tilus puts it on every `tma.global_to_shared`, and ptxas refuses: "Feature '.cta_group::1' not supported on .target
    'sm_90a'" (PTX, "cp.async.bulk.tensor": .cta_group needs the sm_100a family). Removable when tilus emits it for
    sm_10x alone, as its main branch does.
    """
    if target.startswith("sm_10") or "cp.async.bulk.tensor" not in template:
        return template
    return template.replace(".cta_group::1", "")


# --- clusters


def without_lone_cluster(attrs: Mapping[str, Any], lone: bool) -> dict[str, Any]:
    """Return a kernel's attributes without a cluster of one CTA, which tilus adds if a kernel asks for none.

    Hardware places clusters on GPCs in turn. CTAs without a cluster are placed so that neighbours share a GPC. There,
    simultaneous requests for the same data merge into one request to the L2; clusters of one CTA lose this. Queries
    such as the CTA's rank answer as in a cluster of one (PTX, "%cluster_ctarank"). Removable when tilus leaves
    `__cluster_dims__` out.
    """
    return {name: value for name, value in attrs.items() if not (lone and name == "cuda.cluster_dim")}


# --- shared memory


def shared_bytes_missing(program: Program) -> int:
    """Return the bytes of shared memory that the launch lacks; 0 if the launch asks for enough.

    Upstream's pull request 158 fixes a launch that asked for too little: padding of scratch memory to 128 bytes was not
    counted. In 0.2.0 the fault cannot occur, as the memory below is rounded up to 128 bytes. A later release places
    barriers without rounding.
    """
    ends = [allocation.address + allocation.nbytes for allocation in program.shared.values()]
    if program.workspace is not None:
        ends.append(program.workspace.address + program.workspace.nbytes)
    if program.barrier_address is not None:
        ends += [address + 8 * len(inst.counts) for inst, address in program.barriers.items()]
    return max(0, max(ends, default=0) - program.dynamic_shared_bytes)
