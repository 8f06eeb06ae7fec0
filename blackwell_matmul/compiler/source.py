"""Translates a Program to CUDA C++ for the device, and records the Python line of each line of CUDA C++.

tilus's passes and code generator do the work. This module drops the host code, corrects synchronisation
(`tilus_faults`) and carries lines. A mark, a comment with a line's number, replaces tilus's comment at the start of
each instruction. This module imports tilus at its top: import it after `import_tilus`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilus.drivers import optimize_ir_module
from tilus.hidet.backend.codegen import UpdatedCUDACodeGen
from tilus.hidet.ir.expr import Call
from tilus.hidet.ir.func import Function
from tilus.hidet.ir.functors import IRRewriter
from tilus.hidet.ir.stmt import AsmStmt, AssignStmt, BlackBoxStmt, DeclareStmt, EvaluateStmt, ForStmt, SeqStmt
from tilus.hidet.ir.tools import collect, infer_type
from tilus.hidet.ir.utils.call_graph import CallGraph
from tilus.hidet.utils.doc import NewLine, Text
from tilus.ir.instructions import FormatPrintInst, PrintTensorInst

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.compiler import lone_cta, marks, tilus_faults
from blackwell_matmul.compiler.divided_once import divided_once
from blackwell_matmul.frontend.faster.hidet_rules import quick_rules
from blackwell_matmul.frontend.faster.hidet_visits import quick_hidet_visits
from blackwell_matmul.frontend.faults import tilus_compat
from blackwell_matmul.frontend.faults.tilus_arithmetic import sound_arithmetic
from blackwell_matmul.frontend.program import Location, Program
from blackwell_matmul.frontend.recording import declared_vars, instructions, walk

KERNEL, INTERNAL = "cuda_kernel", "cuda_internal"
"""tilus's kinds of functions: launched from the host, and called by device code."""

PRELUDE = """\
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
struct alignas(128) CUtensorMap { uint64_t opaque[16]; };
"""
"""Declarations for every kernel: NVRTC has no standard headers, and cuda.h is for the host."""

CLUSTER = """\
namespace cooperative_groups {
struct cluster {
  __device__ void sync() const {
    asm volatile ("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  }
  template <class T> __device__ T *map_shared_rank(T *address, int rank) const {
    T *mapped;
    asm ("mapa.u64 %0, %1, %2;" : "=l"(mapped) : "l"(address), "r"(rank));
    return mapped;
  }
  __device__ unsigned block_rank() const { unsigned r; asm ("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
};
__device__ inline cluster this_cluster() { return cluster(); }
}  // namespace cooperative_groups
"""
"""Parts of cooperative_groups.h that tilus uses. The whole header takes ten times longer to compile than a kernel."""

_HEADERS = (
    ("require_fp16", "#include <cuda_fp16.h>\n"),
    ("require_bf16", "#include <cuda_bf16.h>\ntypedef __nv_bfloat16 bfloat16_t;\n"),
    ("require_fp8", "#include <tilus/cuda/float8_e4m3.h>\n#include <tilus/cuda/float8_e5m2.h>\n"),
    ("require_tf32", "typedef float tfloat32_t;\n"),
    ("require_complex", "#include <tilus/cuda/complex.h>\n"),
)

UNNEEDED_PASSES = frozenset(
    (name, 0)
    for name in ("RuleBasedSimplifyPass", "HoistLoopInvariantsPass", "InlineFunctionPass", "InstantiateSymbolsPass")
)
"""Passes of hidet without effect on the source text, as tests show. The first pass runs again later, and NVVM does the
second. tilus makes neither functions to inline nor symbols."""

_MARK = "//@"


@dataclass(frozen=True)
class DeviceSource:
    """CUDA C++ with one kernel. text: readable form. lines: line of the Python kernel for each line, or None."""

    text: str
    kernel: str
    lines: tuple[Location | None, ...]

    @property
    def numbered(self) -> str:
        """Return the text for the compiler, with a `#line` before each line: every instruction of the cubin has a line
        of the Python kernel.

        Small device functions become macros around a lambda. Inlined code would belong to the function's line; a
        macro's expansion belongs to the line that uses the macro.
        """
        return "\n".join(_numbered(self.text, self.lines)) + "\n"


@dataclass(frozen=True, eq=False)
class LoweredModule:
    """A hidet module after all passes, with numbered marks. locations: line of the Python kernel of each mark."""

    module: Any
    locations: tuple[Location, ...]


def lower(program: Program) -> LoweredModule:
    """Run hidet's passes; raise CompileError, one sentence, if a pass fails."""
    locations: list[Location] = []
    marked: Any = None
    with tilus_compat.target(program.target):
        try:
            with (
                tilus_compat.without_hidet_passes(UNNEEDED_PASSES),
                tilus_compat.hidet_by_name(),
                tilus_compat.declared_copies(),
                sound_arithmetic(),
                quick_rules(),
                divided_once(),
                quick_hidet_visits(),
            ):
                marked = _marked(program, locations)
                return LoweredModule(optimize_ir_module(marked, Path()), tuple(locations))
        except Exception as error:
            reason = tilus_faults.reason(error)
            line = _line_without_code(marked, locations, tilus_faults.without_code(error))
            where = f"{program.name} does not compile for {program.target}"
            raise CompileError(f"{where}: {reason}{'' if line is None else f' ({line})'}.") from error


def device_source(lowered: LoweredModule, program: Program, entry: Location | None = None) -> DeviceSource:
    """Return the device functions as text. entry: line of the script's `__call__`."""
    codegen = DeviceCodegen(program)
    with tilus_compat.target(program.target), quick_hidet_visits():
        text = str(codegen(lowered.module))
    placed = list(_placed(text, lowered.locations, entry))
    assert codegen.kernel is not None
    return DeviceSource(
        "".join(f"{line}\n" for line, _ in placed),
        codegen.kernel,
        tuple(location for _, location in placed),
    )


# --- lines


def _instruction_lines(program: Program) -> Iterator[Location | None]:
    """Yield the line of each instruction before which tilus writes a comment, in order."""
    for inst in instructions(program.final):
        if not isinstance(inst, (PrintTensorInst, FormatPrintInst)):
            yield program.location_of(program.origins.get(inst))


def _variable_lines(program: Program) -> dict[int, list[Location | None]]:
    """Return each scalar variable's lines, by id: of its loop, or of its declaration and assignments in order."""
    found: dict[int, list[Location | None]] = {}
    for node in walk(program.tile.body):
        for var in declared_vars(node):
            found.setdefault(id(var), []).append(program.location_of(node))
    return found


def _marked(program: Program, locations: list[Location]) -> Any:
    """Return the lowered module with a mark at each new script line. `locations` receives the marks' lines."""
    marker = _Marker(program, locations)
    functions = dict(program.lowered.functions)
    for name, function in functions.items():
        if function.kind == KERNEL:
            functions[name] = marker.rewrite(function)
    return program.lowered.copy().reset_funcs(functions, program.lowered.global_vars)


class _Marker(IRRewriter):
    """Puts marks into a kernel from tilus's code generator; hidet's passes treat them as comments."""

    def __init__(self, program: Program, locations: list[Location]) -> None:
        super().__init__()
        self._locations = locations
        self._instructions = _instruction_lines(program)
        self._variables = _variable_lines(program)

    def visit_SeqStmt(self, stmt: SeqStmt) -> SeqStmt:
        marked: list[Any] = []
        for each in stmt.seq:
            marked += [*self._mark(self._line_of(each)), self.visit(each)]
        return SeqStmt(marked)

    def visit_BlackBoxStmt(self, stmt: BlackBoxStmt) -> Any:
        text = stmt.template_string
        if not text.startswith("/*") or text.startswith("/*\n * ThreadGroup("):
            return super().visit_BlackBoxStmt(stmt)
        return SeqStmt(self._mark(next(self._instructions, None)))

    def _line_of(self, stmt: Any) -> Location | None:
        if not isinstance(stmt, (ForStmt, DeclareStmt, AssignStmt)):
            return None
        lines = self._variables.get(id(stmt.loop_var if isinstance(stmt, ForStmt) else stmt.var))
        return lines.pop(0) if lines else None

    def _mark(self, location: Location | None) -> list[BlackBoxStmt]:
        if location is None:
            return []
        self._locations.append(location)
        return [BlackBoxStmt(f"{_MARK}{len(self._locations) - 1}")]


def _line_without_code(module: Any, locations: Sequence[Location], function: tuple[str, str] | None) -> Location | None:
    """Return the line of the first call of a function without code in tilus; None if there is none. function: name and
    element type."""
    here: Location | None = None
    if function is None:
        return None
    for each in collect(module, (BlackBoxStmt, Call)):
        if isinstance(each, BlackBoxStmt):
            mark = each.template_string.partition(_MARK)[2]
            here = locations[int(mark)] if mark else here
        elif each.func_var.name.endswith(f"_{function[0]}") and _kind(each) == function[1]:
            return here
    return None


def _kind(call: Call) -> str:
    """Return the name of the type of a call's first argument; "" if there is none."""
    return str(getattr(infer_type(call.args[0]), "name", "")) if call.args else ""


def _placed(text: str, locations: Sequence[Location], entry: Location | None) -> Iterator[tuple[str, Location | None]]:
    """Yield each line of the text with its Python line; a mark becomes a comment that quotes the Python line."""
    here: Location | None = None
    for line in text.splitlines():
        code = line.lstrip()
        if code.startswith('extern "C" __global__'):
            here = entry
        elif line == "}":
            here = None
        if not code.startswith(_MARK):
            yield line, here
            continue
        found = locations[int(code[len(_MARK) :])]
        if found != here:
            here = found
            quoted = here.code.rstrip("\\")
            yield f"{line[: len(line) - len(code)]}// {here.short}  {quoted}".rstrip(), here


_INLINED = re.compile(r"static __device__ __forceinline__ (?P<type>.+?) ?(?P<name>\w+)\((?P<parameters>.*)\) \{")


def _numbered(text: str, places: Sequence[Location | None]) -> Iterator[str]:
    lines = iter(zip(text.splitlines(), places))
    for line, place in lines:
        head = _INLINED.fullmatch(line)
        if head is not None:
            yield _as_macro(head, [body for body, _ in itertools.takewhile(lambda pair: pair[0] != "}", lines)])
            continue
        if place is not None:
            yield f"#line {place.line} {_c_string('/' + place.import_path)}"
        yield line


def _as_macro(head: re.Match[str], body: Sequence[str]) -> str:
    function = f"[]({head['parameters']}) __attribute__((always_inline)) -> {head['type']}"
    return f"#define {head['name']} ({function} {{ {' '.join(line.strip() for line in body)} }})"


def _c_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# --- code generation


class DeviceCodegen(UpdatedCUDACodeGen):
    """tilus's CUDA C++ generator for a module's device functions, with the corrections of `tilus_faults`."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.kernel: str | None = None
        self._target = program.target
        self._lone_cta = program.lone_cta
        self._tcgen05 = False
        self._in_flight = False
        self._early_start = program.early_start
        self._bulk_stores = False

    def visit_IRModule(self, module: Any) -> Any:
        self.ir_module = module
        nodes = [node.func for node in CallGraph(module).reversed_order if node.func.kind in (KERNEL, INTERNAL)]
        templates = [stmt.template_string for function in nodes for stmt in collect(function.body, AsmStmt)]
        self._tcgen05 = tilus_faults.uses_tcgen05(templates)
        self._in_flight = tilus_faults.keeps_wgmma_in_flight(templates)
        self._bulk_stores = tilus_faults.stores_unseen(templates)
        functions = "\n".join(str(self(function)) for function in nodes) + "\n"
        return Text(PRELUDE + self._headers(functions) + functions)

    def _headers(self, functions: str) -> str:
        headers = [text for name, text in _HEADERS if getattr(self, name)]
        cluster = CLUSTER if "cooperative_groups::" in functions else ""
        timeline = marks.DEVICE_CODE if "timeline_row(" in functions else ""
        return "".join(dict.fromkeys(headers)) + cluster + timeline

    def visit_Function(self, function: Any) -> Any:
        if function.kind != KERNEL:
            return super().visit_Function(function)
        self.kernel = self.canonize_funcname(function.name)
        attrs = tilus_faults.without_lone_cluster(function.attrs, self._lone_cta)
        launched = Function(function.name, function.params, function.body, function.ret_type, function.kind, attrs)
        text = str(super().visit_Function(launched))
        return Text(text.replace("static __global__", 'extern "C" __global__', 1))

    def param_declare_v2(self, func_kind: str, v: Any) -> Any:
        """Declare pointers without `__restrict__` if the kernel has bulk stores or starts early. The compiler does not
        see the stores of bulk copies, nor those of a preceding grid that still runs. So no load may become
        "ld.global.nc", which is for data that nobody writes while the kernel runs (PTX ISA)."""
        text = super().param_declare_v2(func_kind, v)
        return Text(str(text).replace(" __restrict__ ", " ")) if self._bulk_stores or self._early_start else text

    def binary_arith_op(self, e: Any, op: str) -> Any:
        return tilus_faults.in_parentheses(super().binary_arith_op(e, op))

    def visit_Add(self, e: Any) -> Any:
        return tilus_faults.in_parentheses(super().visit_Add(e))

    def visit_Cast(self, e: Any) -> Any:
        return super().visit_Cast(tilus_faults.through_float(e, self.type_infer(e.expr)))

    def visit_Neg(self, e: Any) -> Any:
        return "(-(" + self(e.a) + "))"  # tilus writes --5 for a variable that is known to be -5

    def visit_DataType(self, dtype: Any) -> Any:
        name = getattr(dtype, "cuda_name", None)  # a type that tilus does not know
        return Text(name) if name else super().visit_DataType(dtype)

    def scalar_literal(self, value: Any, dtype: Any) -> Any:
        return Text(tilus_faults.not_finite(value, dtype.name) or str(super().scalar_literal(value, dtype)))

    def visit_AsmStmt(self, stmt: AsmStmt) -> Any:
        template = tilus_faults.rounded(tilus_faults.without_cta_group(stmt.template_string, self._target))
        clobbered = stmt.memory_fence or tilus_faults.memory_clobbered(template)
        if self._lone_cta:
            template = lone_cta.at_home(template)
        if self._in_flight:
            template = tilus_faults.isolated_wait(template)
        if self._tcgen05:
            template = tilus_faults.fenced(template)
        operands = [list(zip(stmt.output_labels, stmt.output_exprs)), list(zip(stmt.input_labels, stmt.input_exprs))]
        return super().visit_AsmStmt(AsmStmt(template, *operands, stmt.is_volatile or clobbered, clobbered))

    def visit_EvaluateStmt(self, stmt: EvaluateStmt) -> Any:
        doc = super().visit_EvaluateStmt(stmt)
        if self._tcgen05 and str(doc).strip().removesuffix("();") in tilus_faults.THREAD_SYNCS:
            return _asm(tilus_faults.BEFORE_SYNC) + doc + _asm(tilus_faults.AFTER_SYNC)
        return doc


def _asm(template: str) -> Any:
    return NewLine() + Text(f'asm volatile ("{template}" ::: "memory");')
