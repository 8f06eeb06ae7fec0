"""What tilus 0.2.0 emits wrongly, and the corrections, applied where the device source and the launch plan are written.

- `memory_clobbered`: inline assembly that touches memory or synchronises, without telling the compiler.
- `fenced`: tcgen05 operations next to synchronisation of threads, without the fences that PTX asks for.
- `isolated_wait`: registers of a wgmma that are read before the wait for it (a fault of ptxas, which tilus meets).
- `stores_unseen`: a promise that a pointer is the only way to its memory, where TMA stores there too.
- `in_parentheses`, `through_float`: casts that are no C++.
- `rounded`: products that ptxas takes for flushed ones.
- `not_finite`: infinity and NaN as literals.
- `without_cta_group`: a qualifier that only sm_10x has, on every target.
- `without_lone_cluster`: clusters of one CTA, where a kernel has none.
- `fastdiv_m` and `fastdiv_s` in `plan`: a multiplier of 33 bits, truncated to 32. It is host code in tilus, so that
  putting the right numbers into the launch plan is all that it takes: the device multiplies and shifts by whatever it
  is given.
- `shared_bytes_missing`: a guard, see there.

Each has a test that shows the fault in what tilus itself generates.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from blackwell_matmul.frontend.program import Program

# --- memory clobbers

_ADDRESS = re.compile(r"\[\s*(%\d|[A-Za-z_])")
_SYNCHRONISES = re.compile(
    r"\b(mbarrier|barrier|bar|fence|membar|cp\.async|tcgen05|wgmma|griddepcontrol|clusterlaunchcontrol|setmaxnreg)\."
)


def memory_clobbered(template: str) -> bool:
    """Whether a piece of inline PTX reads or writes memory, or orders what others do with it.

    Without a "memory" clobber the compiler takes an asm statement for arithmetic on its operands: it may move ordinary
    loads and stores across it, and drop or move one that is not volatile (CUDA "Inline PTX Assembly in CUDA"). tilus
    has no clobber on most waits, arrivals, fences, matrix loads and stores, and where the DSL's primitive asks for one,
    hidet's `IRRewriter.visit_AsmStmt` loses it as soon as a pass rewrites an operand. Removable when both are mended.
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
"""Synchronisations that CUDA C++ has a function for; all others are inline PTX."""


def uses_tcgen05(templates: Iterable[str]) -> bool:
    return any(_TCGEN05.search(template) for template in templates)


def fenced(template: str) -> str:
    """A synchronisation with the fences that order the tcgen05 operations of its thread against those of others.

    tcgen05 operations are asynchronous and ordinary synchronisation of threads does not order them: the side that has
    issued some fences before it arrives, the side that will issue some fences after it has waited (PTX, "Tensorcore 5th
    Generation Family Instructions", "Memory Consistency Model": tcgen05.fence::before_thread_sync and
    ::after_thread_sync; tcgen05.commit holds the first already). tilus 0.2.0 has no such instruction. The fences go to
    every synchronisation of a kernel that uses tcgen05: which operations surround it is not looked at. Removable when
    the DSL has the fences and the kernels use them.
    """
    before = BEFORE_SYNC + " " if _ARRIVES.search(template) else ""
    after = " " + AFTER_SYNC if _WAITS.search(template) else ""
    return before + template + after


# --- wgmma waits

_WGMMA_WAIT = re.compile(r"\s*(wgmma\.wait_group\.sync\.aligned\s+(\d+);)\s*")


def keeps_wgmma_in_flight(templates: Iterable[str]) -> bool:
    """Whether some wait leaves a group of wgmma pending. Where none does, ptxas keeps the order, as far as was seen."""
    waits = [wait for wait in map(_WGMMA_WAIT.fullmatch, templates) if wait]
    return any(int(wait[2]) > 0 for wait in waits)


def isolated_wait(template: str) -> str:
    """A `wgmma.wait_group` alone in its basic block: a loop that is never repeated, which the assembler cannot know.

    Where groups are in flight and the accumulators are read after the wait, ptxas (13.0 to 13.5 at least) moves some of
    the reads up, over the wait that they are for: after `wait_group(1)` in a loop and `wait_group(0)` behind it, the
    first and the last pair of registers were converted before the last MMA had written them. No clobber or operand of
    the asm statement changes that, for the order in the PTX is right already. Between two blocks such reads stay where
    they are, and waits that ptxas would otherwise make `wait_group(0)`, one MMA at a time, stay what they are: on an
    H100 a tile of 128x128 went from 367 to 546 TFLOPS, and one of 64x256 from wrong to right at the same speed. A
    running warp's activemask is never 0, and ptxas does not guess at it. Removable when ptxas keeps the order.
    """
    wait = _WGMMA_WAIT.fullmatch(template)
    if wait is None:
        return template
    condition = "activemask.b32 lanes; setp.eq.u32 again, lanes, 0;"
    return f"{{ .reg .pred again; .reg .u32 lanes; WAIT: {wait[1]} {condition} @again bra WAIT; }}"


# --- pointers

_BULK_STORE = re.compile(r"\bcp\.(reduce\.)?async\.bulk\b[^;]*\.global\.shared")


def stores_unseen(templates: Iterable[str]) -> bool:
    """Whether a kernel stores to global memory by bulk copies, which the compiler does not see.

    tilus declares every pointer `__restrict__`, a promise that what is read through it is written through no other way.
    A kernel that stores a tile by TMA and reads it back gets `ld.global.nc` for that, which may give what was there
    before (PTX, "ld.global.nc"). Without the promise it is an ordinary load. Removable when tilus leaves it out.
    """
    return any(_BULK_STORE.search(template) for template in templates)


# --- casts


def in_parentheses(text: Any) -> Any:
    """A sum or product that tilus casts back to a narrow type, `(int8_t)(a + b)`, in parentheses of its own.

    Where an expression stands alone tilus strips its first and last parenthesis, and leaves `int8_t)(a + b`. Removable
    when it looks whether the two belong together.
    """
    from tilus.hidet.utils.doc import Text

    return Text("(") + text + ")" if _CAST.match(str(text)) else text


_CAST = re.compile(r"\(\w+\)\(")


def through_float(cast: Any, source: Any) -> Any:
    """A cast between the two 8-bit floats by way of float, which is exact; C++ has none from one to the other.
    Removable when tilus casts so itself."""
    from tilus.hidet.ir.dtypes import float32
    from tilus.hidet.ir.expr import Cast

    names = {getattr(source, "name", ""), getattr(cast.target_type, "name", "")}
    return Cast(Cast(cast.expr, float32), cast.target_type) if names == {"float8_e4m3", "float8_e5m2"} else cast


def rounded(template: str) -> str:
    """A product of float32 that says how it rounds.

    tilus decodes numbers below a byte with `mul.f32`, whose operand is a denormal number, and not a flushed one. Where
    the product becomes a float64 (cvt.ftz.f64.f32) ptxas 13.0 flushes that operand: 0.1875 of a float6_e3m2 was 0 on an
    H200, and is right with .rn. Removable when tilus writes the rounding.
    """
    return template.replace("mul.f32 ", "mul.rn.f32 ")


# --- literals


def not_finite(value: object, dtype: str) -> str:
    """Infinity and NaN as CUDA C++; "" for any other literal.

    tilus prints Python's spelling with an f behind it, `inff` and `nanf`, which NVRTC takes for names that nobody
    declared. Removable when its `scalar_literal` knows them.
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
    """A bulk tensor copy without `.cta_group::1`, for targets that lack it; where they have it, it says nothing new.

    tilus puts it on every `tma.global_to_shared`, and ptxas refuses: "Feature '.cta_group::1' not supported on .target
    'sm_90a'" (PTX, "cp.async.bulk.tensor": .cta_group is for sm_100a and its family). Removable once tilus emits it for
    sm_10x alone, as its main branch does.
    """
    if target.startswith("sm_10") or "cp.async.bulk.tensor" not in template:
        return template
    return template.replace(".cta_group::1", "")


# --- clusters


def without_lone_cluster(attrs: Mapping[str, Any], lone: bool) -> dict[str, Any]:
    """A kernel's attributes without a cluster of one CTA, which tilus gives to every kernel that asks for none.

    The hardware deals clusters out one to a GPC in turn, and CTAs without a cluster so that neighbours share a GPC.
    There, requests for the same data at about the same time become one request to the L2. With clusters of one, that is
    lost: HopperMatmulV5 took 1.39 GB out of an H200's L2 for 4096 cubed in fp16 (h200_ncu.json), and takes 1.05 GB
    without (h200_counters.json), which made it 2 % faster. What a script can ask, such as the CTA's rank, answers as in
    a cluster of one (PTX, "%cluster_ctarank"). Removable once tilus leaves `__cluster_dims__` out.
    """
    return {name: value for name, value in attrs.items() if not (lone and name == "cuda.cluster_dim")}


# --- shared memory


def shared_bytes_missing(program: Program) -> int:
    """How many bytes of shared memory the program uses beyond those that its launch asks for; 0 where all is well.

    Upstream's pull request 158 mends a launch that asked for too little: scratch memory lies at the next multiple of
    128 bytes, and the padding was not counted. In 0.2.0 the fault cannot show, for all that lies below is rounded up to
    128 bytes; the release that places barriers without rounding is a later one. This guards against meeting it
    unawares.
    """
    ends = [allocation.address + allocation.nbytes for allocation in program.shared.values()]
    if program.workspace is not None:
        ends.append(program.workspace.address + program.workspace.nbytes)
    if program.barrier_address is not None:
        ends += [address + 8 * len(inst.counts) for inst, address in program.barriers.items()]
    return max(0, max(ends, default=0) - program.dynamic_shared_bytes)
