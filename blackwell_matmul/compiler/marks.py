"""Timelines: instrumented kernels record the start and end of their instructions.

The kernel's last argument is a buffer in global memory with a row for each warp. Before and after each marked
instruction, every executing warp writes a record to its row: the low half of %clock64 and the mark's number. %clock64
counts cycles of one SM, and SMs differ. %globaltimer is one clock for all SMs, in ns, but steps by 32 ns or more. So
each warp writes both clocks at its start and end, which aligns the SMs and shows their clock rate. In between, the low
half of %clock64 suffices for instructions below 2**32 cycles.

A row is a header of 64 bytes and 8 bytes for each record; surplus records are counted, not written. A row with count 0
was not written, so zero the buffer before the launch. An instrumented kernel never starts early. A mark costs a read of
the clock, a store and some seven instructions; fences wait for the stores. Arithmetic has no marks, as a compiler moves
it across them. This module imports tilus at its top: import it after `import_tilus`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tilus.hidet.ir.dtypes import int64
from tilus.hidet.ir.expr import Call, Var
from tilus.hidet.ir.func import Function
from tilus.hidet.ir.functors import IRRewriter
from tilus.hidet.ir.stmt import BlackBoxStmt, IfStmt, LaunchKernelStmt, SeqStmt, Stmt
from tilus.hidet.ir.tools import collect
from tilus.hidet.ir.type import FuncType, PointerType
from tilus.ir.instructions import FormatPrintInst, PrintTensorInst

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.compiler.bundle import Marks
from blackwell_matmul.frontend.program import Location, Program
from blackwell_matmul.frontend.recording import BARRIER_BYTES, instructions

PARAMETER = "timeline"
"""Name of the additional kernel parameter, the buffer."""

HEADER_BYTES, RECORD_BYTES = 64, 8
MOST_RECORDED_EVENTS = 1 << 24
WARP = 32

DEVICE_CODE = """\
static __device__ __forceinline__ uint64_t timeline_row(uint64_t rows, uint32_t warps, uint32_t row_bytes) {
  uint64_t cta = blockIdx.x + (uint64_t)(gridDim.x) * (blockIdx.y + (uint64_t)(gridDim.y) * blockIdx.z);
  uint64_t row = rows + (cta * warps + threadIdx.x / 32) * row_bytes;
  asm volatile ("{.reg .pred p; .reg .b64 ns, at; .reg .b32 sm; setp.eq.u32 p, %4, 0; mov.u64 ns, %%globaltimer; mov.u64 at, %%clock64; mov.u32 sm, %%smid; @p st.global.v2.b64 [%0], {ns, at}; @p st.global.v4.b32 [%0+16], {sm, %1, %2, %3};}" : : "l"(row), "r"(blockIdx.x), "r"(blockIdx.y), "r"(blockIdx.z), "r"(threadIdx.x % 32) : "memory");
  return row;
}

static __device__ __forceinline__ void timeline_mark(uint32_t & at, uint64_t row, uint32_t writes, uint32_t most, uint32_t what) {
  asm volatile ("{.reg .pred p; .reg .b64 to; .reg .b32 now; setp.ne.u32 p, %2, 0; setp.lt.and.u32 p, %0, %3, p; mov.u32 now, %%clock; mad.wide.u32 to, %0, 8, %1; @p st.global.v2.b32 [to+64], {now, %4}; add.u32 %0, %0, 1;}" : "+r"(at) : "l"(row), "r"(writes), "r"(most), "r"(what) : "memory");
}

static __device__ __forceinline__ void timeline_meet(uint32_t & at) {
  asm volatile ("redux.sync.max.u32 %0, %0, 0xffffffff;" : "+r"(at));
}

static __device__ __forceinline__ uint32_t timeline_barrier(uint32_t address) {
  extern __align__(128) __shared__ uint8_t dynamic_smem[];
  uint32_t start = 0;
  asm ("{.reg .b64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a;}" : "=r"(start) : "l"(dynamic_smem));
  return (address - start) / 8 << 16;
}

static __device__ __forceinline__ void timeline_end(uint32_t at, uint64_t row) {
  asm volatile ("{.reg .pred p; .reg .b64 ns, at; setp.eq.u32 p, %2, 0; mov.u64 ns, %%globaltimer; mov.u64 at, %%clock64; @p st.global.v2.b64 [%0+32], {ns, at}; @p st.global.b32 [%0+48], %1;}" : : "l"(row), "r"(at), "r"(threadIdx.x % 32) : "memory");
}

"""  # noqa: E501
"""Device functions of the marks. A header has values of the warp's start: %globaltimer, %clock64, and %smid and
%ctaid.x, y, z as 32-bit words. Then follow values of the warp's end: %globaltimer, %clock64 and the number of
records."""


def marked(program: Program, events: int, names: Mapping[str, str]) -> tuple[Program, Marks]:
    """Return the program with marks, and the layout of its timeline. events: maximum records per warp, rounded up to
    even.

    names: name of each instruction to mark, by tilus's class after all passes; other instructions get no marks. Raises
    CompileError if the kernel already has a parameter of the buffer's name.
    """
    if PARAMETER in dict(program.params):
        raise CompileError(f"{program.name} has a parameter {PARAMETER} already, as a kernel with marks gets one more.")
    events += events % 2  # so that each row is aligned to 16 bytes
    rows = Var(PARAMETER, PointerType(int64))
    marker = _EventMarker(program, events, names, rows)
    functions = {name: marker.rewrite(each) for name, each in program.lowered.functions.items()}
    lowered = program.lowered.copy().reset_funcs(functions, program.lowered.global_vars)
    found = Marks(events, marker.warps, tuple(marker.found), tuple(_barrier_names(program)))
    return replace(program, lowered=lowered, params=(*program.params, (PARAMETER, rows))), found


def _barrier_names(program: Program) -> Iterator[tuple[int, str]]:
    """Yield byte offset in dynamic shared memory and name of each mbarrier."""
    for alloc, start in program.barriers.items():
        name, count = program.name_of(alloc.output) or "mbarrier", len(alloc.counts)
        for index in range(count):
            yield start + BARRIER_BYTES * index, name if count == 1 else f"{name}[{index}]"


_GROUP = re.compile(r"/\*\n \* ThreadGroup\(thread_begin=(\w+),.* num_threads=(\d+)\)")


class _EventMarker(IRRewriter):
    """Puts marks around each instruction, which is one statement after a comment of tilus.

    All lanes of a warp have the same count of records. The first lane writes if the whole warp executes an instruction.
    A single executing thread writes itself, and the other lanes then copy its count. Groups of 2 to 31 threads, and
    statements inside them, get no marks.
    """

    def __init__(self, program: Program, events: int, names: Mapping[str, str], rows: Var) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []
        self.warps = program.final.metadata.num_warps
        self._program, self._events, self._names, self._rows = program, events, names, rows
        self._instructions = (
            each for each in instructions(program.final) if not isinstance(each, (PrintTensorInst, FormatPrintInst))
        )
        self._threads = WARP * self.warps  # threads of the group that executes the visited statement

    def visit_Function(self, func: Function) -> Function:
        body = self.visit(func.body)
        if func.kind == "cuda_kernel":
            statements = body.seq if isinstance(body, SeqStmt) else (body,)
            body = SeqStmt([self._begin(), *statements, BlackBoxStmt("timeline_end(timeline_at, timeline_to);")])
        return Function(func.name, [*func.params, self._rows], body, func.ret_type, func.kind, func.attrs)

    def _begin(self) -> BlackBoxStmt:
        row_bytes = HEADER_BYTES + RECORD_BYTES * self._events
        start = f"uint64_t timeline_to = timeline_row((uint64_t)({{}}), {self.warps}, {row_bytes});"
        return BlackBoxStmt(f"{start}\nuint32_t timeline_at = 0;", self._rows)

    def visit_LaunchKernelStmt(self, stmt: LaunchKernelStmt) -> LaunchKernelStmt:
        known = stmt.func_var
        kernel = Var(known.hint, FuncType([*known.type.param_types, self._rows.type], known.type.ret_type), known.name)
        return LaunchKernelStmt(
            kernel, [*stmt.args, self._rows], stmt.grid_dim, stmt.cluster_dim, stmt.block_dim,
            stmt.shared_mem_bytes, stmt.target,
        )  # fmt: skip

    def visit_SeqStmt(self, stmt: SeqStmt) -> SeqStmt:
        made: list[Stmt] = []
        before = ""  # the comment before this statement
        for each in stmt.seq:
            comment = _comment(each)
            if comment or not before:
                made.append(self.visit(each))
            elif group := _GROUP.match(before):
                made += self._of_group(each, int(group[2]), group[1])
            else:
                made += self._of_instruction(each)
            before = comment
        return SeqStmt(made)

    def _of_group(self, stmt: Stmt, threads: int, begin: str) -> Iterator[Stmt]:
        if not isinstance(stmt, IfStmt):  # all threads execute the statement
            yield self.visit(stmt)
            return
        outer, before = self._threads, len(self.found)
        self._threads = threads if _has_marks(outer, threads, begin) else 0
        yield self.visit(stmt)
        self._threads = outer
        if len(self.found) > before and threads < WARP:
            yield BlackBoxStmt("timeline_meet(timeline_at);")

    def _of_instruction(self, stmt: Stmt) -> Iterator[Stmt]:
        inst = next(self._instructions)
        name = self._names.get(type(inst).__name__)
        if name is None or self._threads == 0:
            yield self.visit(stmt)
            return
        self.found.append((name, *_line(self._program.location_of(self._program.origins.get(inst)))))
        number = 2 * len(self.found) - 1
        yield self._mark(number)
        yield self.visit(stmt)
        yield self._mark(number + 1, *_barrier(stmt))

    def _mark(self, number: int, *barrier: Any) -> BlackBoxStmt:
        writes = "1" if self._threads == 1 else "threadIdx.x % 32 == 0"
        what = f"{number}u" + " | timeline_barrier({})" * len(barrier)
        return BlackBoxStmt(f"timeline_mark(timeline_at, timeline_to, {writes}, {self._events}, {what});", *barrier)


def _has_marks(outer: int, threads: int, begin: str) -> bool:
    """Return True if a thread group gets marks: the group is whole warps or a single thread. outer: threads of the
    enclosing group."""
    aligned = begin == "elect_any" or int(begin) % WARP == 0
    return outer == threads == 1 or (outer >= WARP and (threads == 1 or (threads % WARP == 0 and aligned)))


def _line(location: Location | None) -> tuple[str, str]:
    """Return a line's name and text."""
    return ("", "") if location is None else (location.short, location.code)


def _comment(stmt: Stmt) -> str:
    """Return the comment's text if the statement is tilus's comment on a thread group or an instruction; else ""."""
    text = stmt.template_string if isinstance(stmt, BlackBoxStmt) else ""
    return text if text.startswith("/*") else ""


def _barrier(stmt: Stmt) -> list[Any]:
    """Return a list of the shared address of the mbarrier that a statement waits for; empty without a wait."""
    calls = [call for call in collect(stmt, Call) if "mbarrier_wait" in call.func_var.name]
    return [calls[0].args[0]] if calls else []
