"""Emitters of the block-scaled instructions: tcgen05 for sm_100f (sm_100a, sm_103a), mma.sync for sm_120f (sm_120a,
sm_121a), the conversion to e2m1 for both, atom.inc for every target, and setmaxnreg for sm_90a and later."""

from __future__ import annotations

from typing import Any

from tilus.backends.emitter import BaseInstEmitter, register_emitter
from tilus.backends.emitters.cuda.tcgen05.smem_desc import SharedMatrixDescriptor
from tilus.hidet.ir.dtypes import int32, uint16, uint32, uint64
from tilus.hidet.ir.expr import as_expr, cast, logical_or
from tilus.hidet.ir.stmt import asm
from tilus.ir.layout.cuda.tcgen05.smem import canonicalize_shared_layout
from tilus.ir.layout.ops import divide
from tilus.target import nvgpu_sm90a, nvgpu_sm100f, nvgpu_sm120f

from blackwell_matmul.lang.instructions import (
    AtomicIncInst,
    DotScaledInst,
    PackE2m1Inst,
    SetMaxRegistersInst,
    Tcgen05CopyScalesInst,
    Tcgen05MmaScaledInst,
    Tcgen05ViewScalesInst,
)
from blackwell_matmul.lang.kinds import ATOM_COLUMNS, COLUMN_ROWS, FRAGMENTS, STEP_BYTES
from blackwell_matmul.problem.block_scaled import ATOM_BYTES

COPY_PTX = (
    "{{ .reg.pred leader; setp.ne.u32 leader, %2, 0; @leader tcgen05.cp.cta_group::{group}.32x128b.warpx4 [%0], %1; }}"
)
MULTIPLY_PTX = (
    "{{ .reg.pred leader, enable; setp.ne.u32 leader, %7, 0; setp.ne.u32 enable, %6, 0;"
    " @leader {opcode} [%0], %1, %2, %3, [%4], [%5], enable; }}"
)


class _Emitter(BaseInstEmitter):
    """Base class of the tcgen05 emitters."""

    def descriptor(self, name: str, address: Any, lbo: int, sbo: int, swizzle: int) -> Any:
        """Return a variable that holds a shared-memory matrix descriptor. lbo, sbo: byte offsets of the descriptor."""
        encoded = SharedMatrixDescriptor(address, lbo, sbo, 0, 0, swizzle).encoded()
        return self.declare_var(name, tp=uint64, init=encoded)

    def issue(self, template: str, *inputs: Any) -> None:
        """Emit PTX that only the elected lane executes. The lane's predicate is the last input."""
        self.append(asm(template, inputs=[*inputs, self.contexts.leader_lane_ctx.leader_lane], is_volatile=True))


@register_emitter(Tcgen05ViewScalesInst, target=nvgpu_sm100f)
class ViewScalesEmitter(BaseInstEmitter):
    """Emits no PTX: the output has the address of the input's columns."""

    def emit(self, inst: Any) -> None:
        self.assign(self.get_or_allocate_var(inst.output), self.tensor2var[inst.inputs[0]])


@register_emitter(Tcgen05CopyScalesInst, target=nvgpu_sm100f)
class CopyScalesEmitter(_Emitter):
    """Emits a tcgen05.cp for each atom.

    In shared memory, atoms along K are adjacent; in tensor memory, atoms along the rows. An MMA thus reads its scales
    from adjacent columns.
    """

    def emit(self, inst: Any) -> None:
        self.assert_is_warp_aligned(inst, "copy_scales is executed by a warp")
        target, source = inst.inputs
        atoms, tiles = target.shape[:2]
        address, column = self.shared_tensor_shared_space_addr[source], self.tensor2var[target]
        for tile in range(tiles):
            for atom in range(atoms):
                start = address + (tile * atoms + atom) * ATOM_BYTES
                found = self.descriptor("scales", start, lbo=16, sbo=128, swizzle=0)
                self.issue(COPY_PTX.format(group=inst.cta_group), column + (atom * tiles + tile) * ATOM_COLUMNS, found)


@register_emitter(Tcgen05MmaScaledInst, target=nvgpu_sm100f)
class MmaScaledEmitter(_Emitter):
    """Emits a tcgen05.mma for each 32 bytes along K."""

    def emit(self, inst: Any) -> None:
        self.assert_is_warp_aligned(inst, "mma_scaled is executed by a warp")
        a, b, d, scale_a, scale_b = inst.inputs
        kind, (m, n) = inst.kind, d.shape
        template = MULTIPLY_PTX.format(opcode=kind.opcode(inst.cta_group))
        shifted = self.tensor2var[scale_b] + cast(inst.first_row // COLUMN_ROWS, self.tensor2var[scale_b].type)
        for step in range(a.shape[1] // STEP_BYTES):
            atom, _ = kind.place(step)
            enable = logical_or(inst.enable_input_d, as_expr(step != 0))
            self.issue(
                template,
                self.tensor2var[d],
                self._operand("a", a, a.layout, step),
                self._operand("b", b, b.layout.transpose(), step),
                self.declare_var("product", tp=uint32, init=uint32(kind.descriptor(m * inst.cta_group, n, step))),
                self.tensor2var[scale_a] + atom * scale_a.shape[1] * ATOM_COLUMNS,
                shifted + atom * scale_b.shape[1] * ATOM_COLUMNS,
                self.declare_var("enable", tp=uint32, init=cast(enable, uint32)),
            )

    def _operand(self, name: str, tensor: Any, layout: Any, step: int) -> Any:
        """Return the shared-memory descriptor of an operand for the MMA number `step` along K."""
        canonical = canonicalize_shared_layout(layout, tensor.dtype)
        if canonical is None or canonical.major_kind != "K":
            raise ValueError(f"{name} of mma_scaled does not lie K-major, with rows of K that TMA can swizzle")
        start = canonical.swizzled_cute_layout.layout(0, step * STEP_BYTES)
        address = self.shared_tensor_shared_space_addr[tensor] + start
        return self.descriptor(name, address, canonical.LBO, canonical.SBO, canonical.swizzle_mode.encode())


DOT_PTX = (
    "{opcode} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}},"
    " %10, {{%11, %12}}, %13, {{%14, %15}};"
)
"""PTX of an mma.sync with scales. Operands: D, A, B, C, then three for A's scales and three for B's. These are the
register, the index of the byte in the register, and the index of the thread that supplies the register."""


@register_emitter(DotScaledInst, target=nvgpu_sm120f)
class DotScaledEmitter(BaseInstEmitter):
    """Emits an mma.sync for each 16 rows, 8 columns and 32 bytes along K of a warp.

    The inner loop is along K: each element of D adds its products in the order of K.
    """

    def emit(self, inst: Any) -> None:
        a, b, c, _, _ = inst.inputs
        d, kind = inst.output, inst.kind
        template, sums = DOT_PTX.format(opcode=kind.mma_sync(a.dtype, b.dtype)), self.get_or_allocate_var(d, "d")
        tiles, of_a, of_b = (divide(t.layout, f) for t, f in ((d, FRAGMENTS.lc), (a, FRAGMENTS.la), (b, FRAGMENTS.lb)))
        with self.for_range(d.local_size) as place:
            self.buffer_store(sums, [place], self.tensor2var[c][place])
        for tile in range(tiles.local_size):
            i, j = map(int, tiles.get_global(local_index=tile, spatial_index=0))
            for step in range(a.shape[1] // STEP_BYTES):
                words_a = self._words(a, int(of_a.get_local((i, step))), 4)
                words_b = self._words(b, int(of_b.get_local((step, j))), 2)
                scales_a = self._scales(inst.inputs[3], i * FRAGMENTS.m, kind.place(step), 2)
                scales_b = self._scales(inst.inputs[4], j * FRAGMENTS.n, kind.place(step), 1)
                self.append(
                    asm(
                        template,
                        output_inputs=[sums[4 * tile + each] for each in range(4)],
                        inputs=[*words_a, *words_b, *scales_a, *scales_b],
                        is_volatile=True,
                    )
                )

    def _words(self, tensor: Any, fragment: int, count: int) -> list[Any]:
        """Return the 32-bit registers of a fragment. count: number of registers."""
        start = cast(~self.tensor2var[tensor][4 * count * fragment], ~uint32)
        return [start[each] for each in range(count)]

    def _scales(self, tensor: Any, row: int, place: tuple[int, int], lanes: int) -> tuple[Any, Any, Any]:
        """Return the register of scales for an MMA's rows, the index of the first byte, and the index of the threads.

        row: first row of the MMA. place: as `ScaledKind.place` returns it. lanes: number of threads, of each four, that
        supply scales.
        """
        (atom, byte), groups, layout = place, tensor.shape[3], tensor.layout
        rows = groups * COLUMN_ROWS
        where = (row // rows, atom, row % COLUMN_ROWS, row % rows // COLUMN_ROWS, 0)
        word, thread = int(layout.get_local(where)), int(layout.get_spatial(where)[0])
        register = cast(~self.tensor2var[tensor][word], ~uint32)[0]
        return register, uint16(byte), uint16(thread % 4 // lanes)


PACK_PTX = (
    "{ .reg .b8 a, b, c, d;"
    " cvt.rn.satfinite.e2m1x2.f32 a, %2, %1; cvt.rn.satfinite.e2m1x2.f32 b, %4, %3;"
    " cvt.rn.satfinite.e2m1x2.f32 c, %6, %5; cvt.rn.satfinite.e2m1x2.f32 d, %8, %7;"
    " mov.b32 %0, {a, b, c, d}; }"
)
"""PTX that packs eight floats into a register. cvt puts its second source in the low four bits (PTX ISA, "cvt")."""


@register_emitter(PackE2m1Inst, target=nvgpu_sm100f)
@register_emitter(PackE2m1Inst, target=nvgpu_sm120f)
class PackE2m1Emitter(BaseInstEmitter):
    """Emits four cvt for each eight elements."""

    def emit(self, inst: Any) -> None:
        x, packed = self.tensor2var[inst.inputs[0]], self.get_or_allocate_var(inst.output)
        with self.for_range(inst.output.local_size // 4) as word:
            register = cast(~packed[4 * word], ~uint32)[0]
            self.append(asm(PACK_PTX, outputs=[register], inputs=[x[8 * word + each] for each in range(8)]))


INC_PTX = (
    "{ .reg .pred first; .reg .b32 lane; mov.u32 lane, %laneid; setp.eq.u32 first, lane, 0;"
    " @first atom.relaxed.gpu.inc.u32 %0, [%1], %2; shfl.sync.idx.b32 %0, %0, 0, 31, 0xffffffff; }"
)
"""PTX of an increment by lane 0, whose result all lanes get."""


@register_emitter(AtomicIncInst)
class AtomicIncEmitter(BaseInstEmitter):
    """Emits an atom.inc of one thread and a shuffle."""

    def emit(self, inst: Any) -> None:
        self.assert_is_warp_aligned(inst, "atomic.inc is executed by a warp")
        counter = self.declare_var("counter", tp=~int32, init=inst.counter)
        old = self.get_or_allocate_var(inst.output, "old")
        self.append(asm(INC_PTX, outputs=[old[0]], inputs=[counter, cast(inst.last, uint32)], is_volatile=True))


@register_emitter(SetMaxRegistersInst, target=nvgpu_sm90a)
@register_emitter(SetMaxRegistersInst, target=nvgpu_sm100f)
@register_emitter(SetMaxRegistersInst, target=nvgpu_sm120f)
class SetMaxRegistersEmitter(BaseInstEmitter):
    """Emits a setmaxnreg.

    With a launch bound of one CTA, threads start with all registers that an SM has for them. Without the bound, ptxas
    chooses the number and may drop setmaxnreg (ptxas of CUDA 13.0, C7508).
    """

    def emit(self, inst: Any) -> None:
        self._codegen.builder.extend_attrs({"cuda.min_blocks": 1})
        self.append(asm(f"setmaxnreg.{inst.action}.sync.aligned.u32 {inst.count};", is_volatile=True))
