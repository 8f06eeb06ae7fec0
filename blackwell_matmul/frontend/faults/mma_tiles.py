"""Tiles that no MMA multiplies. tilus 0.2.0 multiplies a part of them, without an error.

- It divides M, N and K of a tile by those of an instruction and drops the remainder. For k = 24 it multiplies 16, and
  for k = 8 nothing.
- It packs two float16 into a column of tensor memory. tcgen05.mma writes a column for each element of D (as CUTLASS
  allocates them, mma_traits_sm100.hpp), so it writes beyond the allocated columns.
- It requires no layout of an accumulator of wgmma. The instruction writes one fixed layout (PTX ISA, "wgmma: Register
  Fragments ... D"), so columns would be exchanged.

Each refusal is removable when tilus refuses the tile.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tilus.hidet.ir.primitives.cuda.wgmma import WgmmaConfig
from tilus.hidet.ir.type import data_type
from tilus.ir.inst import Instruction
from tilus.ir.instructions import DotInst
from tilus.ir.instructions.cuda.mma_dot import AtomicMmaConfig
from tilus.ir.instructions.cuda.tcgen05 import Tcgen05MmaSSInst
from tilus.ir.instructions.cuda.wgmma import WgmmaMmaSSInst
from tilus.ir.layout import RegisterLayout

from blackwell_matmul.frontend.faults.register_slices import Modes, indices_of, modes_of

Shape = tuple[int, int, int]
"""M, N and K."""

WARPGROUP = 128
"""Number of threads that execute a wgmma. A thread holds two neighbouring elements of a row."""

K_BITS = 256
"""Bits of a row of A that one wgmma or tcgen05.mma multiplies. Elements of less than a byte count as 8 bits."""

MOST_N = 256
"""The largest N of one instruction; only for kind::f16 and one CTA, tilus splits wider tiles into several."""


class MmaTile(NamedTuple):
    """The name of an instruction, and the tiles that it multiplies: multiples of steps, and at most `most`."""

    name: str
    steps: Shape
    most: tuple[float, float, float] = (math.inf, math.inf, math.inf)

    def nearest(self, tile: Shape) -> Shape:
        """Return the tile rounded up to the instruction's steps, and limited to its largest one."""
        m, n, k = (min(-(-x // step) * step, most) for x, step, most in zip(tile, self.steps, self.most, strict=True))
        return int(m), int(n), int(k)

    def __str__(self) -> str:
        m, n, k = (
            f"{step}" if most in (step, math.inf) else f"{step} to {most}"
            for step, most in zip(self.steps, self.most, strict=True)
        )
        return f"M = {m}, N = {n} and K = {k}"


def refusal(inst: Instruction) -> str | None:
    """Return the reason why no instruction multiplies this tile, and a remedy; None: one does, or tilus itself reports
    the reason."""
    if not isinstance(inst, (DotInst, WgmmaMmaSSInst, Tcgen05MmaSSInst)):
        return None
    tile, known = _tile(inst), _mmas(inst)
    if tile is None or not known:
        return None
    if any(each.nearest(tile) == tile for each in known):
        return _wrong_sum(inst)
    taken = known[-1]
    return (
        f"{taken.name} has M, N and K {tile}, and an instruction works on {taken} of {inst.inputs[0].dtype.name}; take "
        f"multiples of these, such as {taken.nearest(tile)} (what is loaded beyond a matrix is zero)"
    )


def _tile(inst: Any) -> Shape | None:
    """Return M, N and K; None if the operands' shapes do not match."""
    a, b, d = ([int(extent) for extent in tensor.shape] for tensor in inst.inputs)
    ctas = getattr(inst, "cta_group", 1)
    if not len(a) == len(b) == len(d) == 2 or a[1] != b[0] or d != [a[0], b[1] * ctas]:
        return None
    return a[0] * ctas, b[1] * ctas, a[1]


def _mmas(inst: Any) -> Sequence[MmaTile]:
    """Return the MMA instructions for these element types; the last one is tilus's default."""
    dtype = inst.inputs[0].dtype
    if isinstance(inst, DotInst):
        types = dtype, inst.inputs[1].dtype, inst.inputs[2].dtype
        every = AtomicMmaConfig.all_configs().values()
        found = [each for each in every if types == (each.operand_type, each.operand_type, each.acc_type)]
        return [MmaTile("dot", (each.m, each.n, each.k)) for each in found if each.vec_k == 1]
    k = K_BITS // max(dtype.nbits, 8)
    if isinstance(inst, WgmmaMmaSSInst):
        return [MmaTile("wgmma", (64, 8, k))]
    rows, divided = 128 * inst.cta_group, inst.cta_group == 1 and dtype.nbits == 16
    step = 8 * inst.cta_group  # PTX ISA 9.1, "tcgen05.mma: Matrix Shape", table 39
    return [MmaTile("tcgen05.mma", (rows, step, k), (rows, math.inf if divided else MOST_N, math.inf))]


def _wrong_sum(inst: Any) -> str | None:
    """Return the reason why the accumulator's type is wrong for the instruction; None if it is right."""
    a, b, d = inst.inputs
    if isinstance(inst, Tcgen05MmaSSInst) and d.dtype.is_float() and d.dtype.nbits < 32:
        return (
            f"tcgen05.mma writes a column of tensor memory for each {d.dtype.name}, and tilus 0.2.0 has two in each; "
            f"take an accumulator of float32, and .to({d.dtype.name}) of what tcgen05.load gives"
        )
    if not isinstance(inst, WgmmaMmaSSInst):
        return None
    types = {data_type(each.output_dtype).name: None for each in WgmmaConfig.all() if _multiplies(each, a, b)}
    if not types or d.dtype.name in types:
        return None
    return f"wgmma has no instruction that multiplies {a.dtype.name} into {d.dtype.name}; {' or '.join(types)} works"


def _multiplies(config: WgmmaConfig, a: Any, b: Any) -> bool:
    return (config.a_input_dtype, config.b_input_dtype) == (a.dtype.short_name, b.dtype.short_name)


def layout_refusal(inst: Instruction, name: str) -> str | None:
    """Return the reason why the layout of a wgmma's accumulator, called `name`, differs from the layout that the
    instruction writes."""
    if not isinstance(inst, WgmmaMmaSSInst) or _is_as_written(inst):
        return None
    return (
        f"the registers of {name} are not laid out as wgmma writes them (two neighbours of a row in each thread), so "
        "that its columns would be exchanged; leave out annotate_layout, of it and of what goes into it"
    )


def _is_as_written(inst: WgmmaMmaSSInst) -> bool:
    a, b, d = inst.inputs
    m, n, k = int(d.shape[0]), int(d.shape[1]), int(a.shape[1])
    _, mma_n, _ = inst.get_inst_mnk(m, n, k, a.dtype, b.dtype, d.dtype)
    layout = d.as_register_tensor().layout
    size = layout.spatial_size, layout.local_size
    return size == (WARPGROUP, m * n // WARPGROUP) and _writes(modes_of(layout), mma_n)


@functools.lru_cache(maxsize=256)
def _writes(modes: Modes, mma_n: int) -> bool:
    """Return True if instructions with this N write a layout with these modes."""
    layout = RegisterLayout(*modes)
    places = [(thread, 0) for thread in range(WARPGROUP)] + [(0, register) for register in range(layout.local_size)]
    across = layout.shape[1] // mma_n
    return all(
        indices_of(layout, register, thread) == _fragment(thread, register, across, mma_n)
        for thread, register in places
    )


def _fragment(thread: int, register: int, across: int, mma_n: int) -> list[int]:
    """Return the row and column of a register, if `across` instructions of that N lie side by side (PTX ISA, "wgmma:
    Register Fragments ... D"). They are a sum of a part of the thread and a part of the register."""
    tile, index = divmod(register, 64 * mma_n // WARPGROUP)
    row = tile // across * 64 + thread // 32 * 16 + thread % 32 // 4 + index // 2 % 2 * 8
    return [row, tile % across * mma_n + index // 4 * 8 + thread % 4 * 2 + index % 2]
