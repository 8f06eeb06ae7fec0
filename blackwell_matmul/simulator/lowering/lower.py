"""Lowering of a Program's tile view to Python: one generator function that every warp of every CTA runs.

Control flow and scalars become Python statements; each instruction becomes a call of its lowering's closure. The
generated lines are mapped back to the kernel's, for errors. A second function, `scan`, has the same control flow and
scalars alone, and logs the steps of a warp (`replay/`).
"""

from __future__ import annotations

import ast
import itertools
import linecache
import math
import types
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from blackwell_matmul.base.errors import BlackwellMatmulError, CompileError, InputError, UnsupportedError
from blackwell_matmul.frontend.faults.tilus_compat import deep
from blackwell_matmul.frontend.program import Location, Program
from blackwell_matmul.simulator.arithmetic import Told, Undefined
from blackwell_matmul.simulator.description import Again, Description, Instruction
from blackwell_matmul.simulator.expressions import BOOL, NAMESPACE, ScalarWriter, free_variables, kept
from blackwell_matmul.simulator.lowering.accumulators import ordinary_use
from blackwell_matmul.simulator.lowering.context import LoweringContext, Moved, report_undefined
from blackwell_matmul.simulator.lowering.deferrable import deferrable
from blackwell_matmul.simulator.lowering.scan import ACQUIRES, SCAN_NAMESPACE
from blackwell_matmul.simulator.lowering.unwritten import Unwritten
from blackwell_matmul.simulator.machine.barrier import BARRIER_BYTES, mapped
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.registers import ThreadGroup
from blackwell_matmul.simulator.semantics import description_of
from blackwell_matmul.simulator.semantics.cluster import require_rank
from blackwell_matmul.simulator.types import Element, element

_OF_GRID = {f"{name}.{axis}": f"{name}_{axis}" for name in ("blockIdx", "gridDim") for axis in "xyz"}
_OF_CLUSTER = [f"{name}_{axis}" for name in ("clusterBlockIdx", "clusterDim", "clusterIdx") for axis in "xyz"]
_BUILT_IN = {**_OF_GRID, **{name: name for name in (*_OF_CLUSTER, "clusterBlockRank", "clusterSize")}}
"""Names of hidet's variables in `main`."""


Main = Callable[[Warp], Iterator[Any]]


class Source(NamedTuple):
    """A global tensor with tiles. multiple: step of the last coordinate that TMA needs."""

    number: int
    rank: int
    multiple: int


@dataclass(frozen=True, eq=False)
class Lowered:
    """A Program ready to run. main(warp): generator of a warp's steps. grid(arguments): the launch's dimensions.

    written: names of the parameters whose memory the program may write; None if unknown. cluster: its extents; its
    CTAs run together. interacts: True if all CTAs depend on each other (semaphores, global workspaces) and run
    together. cancels: True if its clusters take over others (cluster_schedule.py).

    scan(warp, log, places): computes a warp's steps, without their effects; None if they are not known ahead.
    repeatable: True if the steps are known, and can be replayed for another CTA (`replay/`). values: callables that
    move values, with their global tiles. sources: tensors that have a list in `places`. calls: by callable, tilus's
    instruction and its place in the program.
    """

    program: Program
    source: str
    main: Main
    grid: Callable[[dict[str, Any]], tuple[int, int, int]]
    num_warps: int
    cluster: tuple[int, int, int]
    interacts: bool
    cancels: bool
    written: frozenset[str] | None
    lines: dict[int, Location]
    scan: Callable[[Any, list[Any], list[list[int]]], None] | None
    repeatable: bool
    values: dict[str, Moved | None]
    sources: tuple[Source, ...]
    calls: dict[str, tuple[Any, Instruction]]
    counts: dict[str, int] = field(default_factory=dict)

    def main_with(self, wrap: Callable[[Callable[..., Any], Moved | None], Callable[..., Any]]) -> Main:
        """Return `main` with `wrap` around each callable that moves values."""
        mine = self.main.__globals__
        return self.main_of({name: wrap(mine[name], moved) for name, moved in self.values.items()})

    def main_of(self, callables: Mapping[str, Callable[..., Any]]) -> Main:
        """Return `main` with other callables."""
        return types.FunctionType(self.main.__code__, {**self.main.__globals__, **callables})

    def location_of_error(self, error: BaseException) -> Location | None:
        """Return the kernel's line for the innermost generated line of a traceback."""
        found, trace = None, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.main.__code__.co_filename:
                found = self.lines.get(trace.tb_lineno)
            trace = trace.tb_next
        return found


_CLUSTER_SYNC = "this_cluster.sync"
_numbers = itertools.count()


class Lowering:
    """Writes the generated source. One method for each kind of tilus statement."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.scan: list[str] = []
        self.locations: dict[int, Location] = {}
        self.depth = 1
        self.namespace: dict[str, Any] = dict(NAMESPACE)
        self.variables: dict[int, str] = {}
        self.tensors: dict[int, str] = {}
        self.keep: list[Any] = []  # keeps objects alive whose ids are keys above
        self.num_warps = program.tile.metadata.num_warps
        self.groups = [ThreadGroup(0, program.threads)]
        self.loops: list[ThreadGroup] = []  # the threads of each loop around
        self.interacts = self.cancels = False
        self.viewed: set[int] = set()
        self.lets: dict[int, Any] = {}
        self.literals: set[str] = set()  # names that a let binds to a number
        self.barriers: dict[int, tuple[int, int]] = {}  # by tensor of barriers: first address, count
        self.items: dict[int, str] = {}  # by tensor with one known number: its Python text
        self.foreseen: set[int] = set()  # tensors of numbers that `scan` knows, too
        self.address_tensors, self.assigned = address_tensors(program)
        self.divided = assigned_by_some_lanes(program.tile.body, self.groups[0])
        self.deferrable = deferrable(program)
        self.used_later = _used_later(program) | self.deferrable.accumulators
        self.unwritten = Unwritten(program, self.constant)
        self.instructions: list[tuple[Any, Description]] = []
        self.sources: dict[int, Source] = {}  # the global tensors with tiles at a place
        self.values: dict[str, Moved | None] = {}  # the callables that move values
        self.calls: dict[str, tuple[Any, Instruction]] = {}  # all callables
        self.known_ahead = self.repeatable = True
        self.here: Location | None = None
        self.tellers: dict[Location | None, str] = {}

    # names

    def variable(self, var: Any) -> str:
        name = getattr(var, "name", None)
        if name in _BUILT_IN:
            return _BUILT_IN[name]
        if id(var) not in self.variables:
            raise UnsupportedError(
                f"The simulator cannot use {name or var} at {self.here}: it differs from thread to thread."
            )
        return self.variables[id(var)]

    def read(self, var: Any) -> str:
        """Return the text of a variable's value, which must be equal in all lanes that read it."""
        name, here = self.variable(var), self.groups[-1]
        if all(here.is_part_of(group) for group in self.divided.get(id(var), ())):
            return name
        self.known_ahead = False
        return f"{self.constant(agreed(here, self.here))}(w, {name}, {name}_by)"

    def declare(self, var: Any) -> str:
        hint = "".join(c for c in (var.hint or "") if c.isalnum() or c == "_")
        name = self.variables[id(var)] = f"v{len(self.variables)}_{hint}"
        self.keep.append(var)
        return name

    def constant(self, value: Any) -> str:
        return kept(value, self.namespace)

    def scalar(self, expression: Any, target: Element | None = None) -> str:
        """Return Python source of a scalar expression, or of its value in a variable of the type `target`."""
        if isinstance(expression, (bool, int, float, str)):
            return repr(expression)
        writer = ScalarWriter(self.read, self.namespace, self._teller())
        try:
            return writer.write(expression) if target is None else writer.write_as(expression, target)
        except (CompileError, UnsupportedError) as error:
            raise self._located(error) from None

    def _teller(self) -> str:
        """Return the name of this line's reporter of undefined arithmetic."""
        if self.here not in self.tellers:
            self.tellers[self.here] = self.constant(teller(self.here))
        return self.tellers[self.here]

    def _located(self, error: BlackwellMatmulError) -> BlackwellMatmulError:
        """Return the error with the line added, unless its message has a line."""
        text, where = str(error), str(self.here)
        if isinstance(error, CompileError):
            program = self.program
            return CompileError(f"{program.name} does not compile for {program.target}: {text} ({where}).")
        return error if self.here is None or where in text else UnsupportedError(f"{text} It is used at {where}.")

    def value_of(self, tensor: Any) -> str:
        if id(tensor) not in self.tensors:
            raise UnsupportedError(f"The simulator found {tensor} used at {self.here} before it was made.")
        return self.tensors[id(tensor)]

    def is_defined(self, tensor: Any) -> bool:
        return id(tensor) in self.tensors

    def define(self, tensor: Any) -> str:
        if id(tensor) not in self.tensors:
            self.tensors[id(tensor)] = f"t{len(self.tensors)}"
            self.keep.append(tensor)
        return self.tensors[id(tensor)]

    def is_deferrable(self, tensor: Any) -> bool:
        return id(tensor) in self.deferrable.tensors

    def source_of(self, tensor: Any, rank: int, multiple: int) -> int:
        known = self.sources.get(id(tensor), Source(len(self.sources), rank, 1))
        self.sources[id(tensor)] = known._replace(multiple=math.lcm(known.multiple, multiple))
        return known.number

    # lines

    def emit(self, text: str, scanned: str | None = None) -> None:
        """Add a line. scanned: its text in `scan`, if another; "": none."""
        self.lines.append("    " * self.depth + text)
        if self.here is not None:
            self.locations[len(self.lines)] = self.here
        if scanned != "":
            self.scan.append("    " * self.depth + (scanned or text))

    def loop(self, head: str, body: Any, scanned: str | None = None) -> None:
        self.loops.append(self.groups[-1])
        self.block(head, body, scanned)
        self.loops.pop()

    def block(self, head: str, body: Any, scanned: str | None = None) -> None:
        self.emit(head, scanned)
        self.depth += 1
        before = len(self.lines), len(self.scan)
        self.visit(body)
        if len(self.lines) == before[0]:
            self.emit("pass")
        elif len(self.scan) == before[1]:
            self.scan.append("    " * self.depth + "pass")
        self.depth -= 1

    def visit(self, stmt: Any) -> None:
        method = getattr(self, f"visit_{type(stmt).__name__}", None)
        if method is None:
            raise UnsupportedError(f"The simulator does not know the statement {type(stmt).__name__} at {self.here}.")
        location = self.program.location_of(stmt)
        if location is not None:
            self.here = location
        method(stmt)

    def visit_SeqStmt(self, stmt: Any) -> None:
        for child in stmt.seq:
            self.visit(child)

    def visit_ForStmt(self, stmt: Any) -> None:
        extent = self.scalar(stmt.extent)
        name = self.declare(stmt.iter_var)
        if self._changes(stmt.body, stmt.extent, stmt.iter_var):
            self._loop_that_reads_again(name, extent, stmt.body)
        else:
            rounds = "range(" if extent.isdigit() else f"{self.constant(rounds_of(self.here))}(w, "
            self.loop(f"for {name} in {rounds}{extent}):", stmt.body, f"for {name} in _turns(log, {extent}):")

    def _changes(self, body: Any, extent: Any, index: Any) -> bool:
        """Return True if a loop's body assigns to its index or to a variable of its bounds."""
        from blackwell_matmul.frontend.recording import walk

        used = {id(index), *(() if isinstance(extent, int) else map(id, free_variables(extent)))}
        return any(id(getattr(node, "var", None)) in used for node in walk(body) if type(node).__name__ == "AssignStmt")

    def _loop_that_reads_again(self, name: str, extent: str, body: Any) -> None:
        """Write C's loop, whose bound is computed before every iteration; Python's range is computed once."""
        self.emit(f"{name} = -1")
        self._while(f"({name} := {name} + 1) < {extent}", body)

    def visit_WhileStmt(self, stmt: Any) -> None:
        self._while(self.scalar(stmt.cond, BOOL), stmt.body)

    def _while(self, condition: str, body: Any) -> None:
        turns, stop = f"n{len(self.lines)}", self.constant(endless_loop(self.here))
        self.emit(f"{turns} = 0")
        self.emit(f"while {condition}:", f"while _taken(log, {condition}):")
        self.emit(f"    {turns} += 1")
        self.emit(f"    if {turns} > {MAX_TURNS}: {stop}(w)")
        self.depth += 1
        self.loops.append(self.groups[-1])
        self.visit(body)
        self.loops.pop()
        self.depth -= 1

    def visit_IfStmt(self, stmt: Any) -> None:
        condition = self.scalar(stmt.cond, BOOL)
        self.block(f"if {condition}:", stmt.then_body, f"if _taken(log, {condition}):")
        if stmt.else_body is not None:
            self.block("else:", stmt.else_body)

    def visit_BreakStmt(self, stmt: Any) -> None:
        self._leave("break", self.groups[-1].leaves_out_lanes_of(self.loops[-1]))

    def visit_ReturnStmt(self, stmt: Any) -> None:
        self._leave("return", self.groups[-1].leaves_out_lanes_of(self.groups[0]))

    def _leave(self, word: str, divides: bool) -> None:
        """Leave a loop or the kernel, which all lanes of a warp must do."""
        if divides:
            self.emit(f"{self.constant(divided(word, self.here))}(w)", "")
        self.emit(word)

    def visit_LetStmt(self, stmt: Any) -> None:
        for var, value in zip(stmt.bind_vars, stmt.bind_values, strict=True):
            text = self.typed(var, value)
            self.lets[id(var)] = value
            self.emit(f"{self.declare(var)} = {text}")
            if _is_literal(text):
                self.literals.add(self.variables[id(var)])
        self.visit(stmt.body)

    def visit_DeclareStmt(self, stmt: Any) -> None:
        text = "0" if stmt.init is None else self.typed(stmt.var, stmt.init)
        self.emit(f"{self.declare(stmt.var)} = {text}")
        self._note_lanes(stmt.var)

    def visit_AssignStmt(self, stmt: Any) -> None:
        self.emit(f"{self.variable(stmt.var)} = {self.typed(stmt.var, stmt.value)}")
        self._note_lanes(stmt.var)

    def _note_lanes(self, var: Any) -> None:
        """Record which lanes assign a variable, if others read it."""
        if id(var) in self.divided:
            self.emit(f"{self.variable(var)}_by = {self.constant(self.groups[-1])}", "")

    def typed(self, var: Any, value: Any) -> str:
        """Return the text of a value converted to the variable's type; a pointer is a number."""
        return self.scalar(value, element(var.type) if var.type.is_data_type() else None)

    def visit_EvaluateStmt(self, stmt: Any) -> None:
        from tilus.ir.instructions import ClusterSyncThreadsInst

        if getattr(getattr(stmt.expr, "func_var", None), "name", None) != _CLUSTER_SYNC:
            raise UnsupportedError(f"The simulator does not evaluate `{stmt.expr}` as a statement, at {self.here}.")
        self.instruction(ClusterSyncThreadsInst.create())  # tilus has the instruction, and writes a call

    def visit_ThreadGroupStmt(self, stmt: Any) -> None:
        parent = self.groups[-1]
        group = group_of(stmt, parent)
        self.groups.append(group)
        if group.warps == parent.warps:
            self.visit(stmt.body)
        else:
            self.block(f"if {group.warps.start} <= wi < {group.warps.stop}:", stmt.body)
        self.groups.pop()

    def visit_TensorItemPtrStmt(self, stmt: Any) -> None:
        from blackwell_matmul.simulator.semantics.views import item_address

        self.repeatable = False  # another CTA may have another address
        call, pointer = self.constant(item_address(self.here)), self.declare(stmt.ptr_var)
        self.emit(f"{pointer} = {call}(w, {self.value_of(stmt.tensor)})", f"{pointer} = 0")

    def visit_TensorItemValueStmt(self, stmt: Any) -> None:
        from blackwell_matmul.simulator.semantics.views import ITEM, item_value

        if id(stmt.tensor) in self.items:
            self.emit(f"{self.declare(stmt.var)} = {self.items[id(stmt.tensor)]}")
            return
        self.known_ahead = False
        for line in self.unwritten.read(stmt.tensor, Instruction(ITEM, self.groups[-1], self.here)):
            self.emit(line, "")
        call = self.constant(item_value(stmt.tensor, self.groups[-1], self.here))
        self.emit(f"{self.declare(stmt.var)} = {call}(w, {self.value_of(stmt.tensor)})")

    def visit_InstStmt(self, stmt: Any) -> None:
        self.instruction(stmt.inst)

    def instruction(self, inst: Any) -> None:
        self.here = self.program.location_of(inst) or self.here
        if self._is_barrier_address(inst) or self._is_part_of_response(inst):
            return
        description, lower = description_of(inst, str(self.here))
        self.instructions.append((inst, description))
        self.interacts |= description.ties_ctas
        self.cancels |= description.cancels
        context = LoweringContext(self, inst, description, self.groups[-1], self.here)
        try:
            function = lower(inst, context)
        except (CompileError, UnsupportedError) as error:
            raise self._located(error) from None
        if function is None:
            return
        self._watch_registers(inst, context)
        self._follow_unwritten(inst, context, function)
        constant = self.constant(function)
        self._note(constant, context)
        call = f"{constant}({', '.join(['w', *context.arguments])})"
        self._emit_call(call, context, inst)

    def _note(self, constant: str, context: LoweringContext) -> None:
        """Record an instruction for replay, and in `scan` its non-constant scalars and its place."""
        self.calls[constant] = context.inst, context.instruction
        self.repeatable &= context.description.again is not None
        if context.description.again is Again.VALUES:
            self.values[constant] = context.moved
        if "acquire" in context.description.awaited:
            self.scan.append("    " * self.depth + f"note({ACQUIRES!r})")
        for text in context.logged:
            if not (_is_literal(text) or text in self.literals):
                self.scan.append("    " * self.depth + f"note({text})")
        if context.moved is not None:
            offsets = context.arguments[context.moved.offsets]
            self.scan.append("    " * self.depth + f"place{context.moved.source}({offsets})")

    def _is_barrier_address(self, inst: Any) -> bool:
        """Handle addresses of barriers, also of other CTAs, as numbers without registers: they are fixed."""
        kind = type(inst).__name__
        if kind == "AllocBarrierInst" and inst in self.program.barriers:
            self._barriers_at(inst, self.program.barriers[inst])
        target = inst.inputs[0] if kind == "AssignInst" else inst.output
        if kind == "AllocBarrierInst" or id(target) not in self.address_tensors:
            return False
        if kind == "SliceRegisterInst":
            first, count = self.barriers[id(inst.inputs[0])]
            address = self.constant(barrier_address(first, count, self.program.name_of(inst.inputs[0]), self.here))
            self._address(inst.output, f"{address}(w, {self.scalar(inst.offsets[0])})")
        elif kind == "MapSharedAddrInst":
            there, ctas = self.constant(mapped_address(self.here)), math.prod(self._cluster())
            here, rank = self.items[id(inst.inputs[0])], self.scalar(inst.target_rank)
            self._address(inst.output, f"{there}(w, {here}, {rank}, {ctas})")
        else:
            self._address(inst.inputs[0], self.items[id(inst.inputs[1])])
        return True

    def _barriers_at(self, inst: Any, first: int) -> None:
        self.barriers[id(inst.output)] = (first, len(inst.counts))
        if id(inst.output) in self.assigned & self.address_tensors:
            self._address(inst.output, str(first))
        elif len(inst.counts) == 1 and id(inst.output) not in self.assigned:
            self.items[id(inst.output)] = str(first)

    def _address(self, tensor: Any, text: str) -> None:
        """Assign the single element of a register tensor, an address, to a new variable."""
        name = f"a_{self.define(tensor)}"
        self.emit(f"{name} = {text}")
        self.items[id(tensor)] = name

    def _is_part_of_response(self, inst: Any) -> bool:
        """Handle a number of a CLC response, which needs no registers either."""
        if type(inst).__name__ != "SliceRegisterInst" or id(inst.inputs[0]) not in self.foreseen:
            return False
        whole, number = self.value_of(inst.inputs[0]), self.scalar(inst.offsets[0])
        self.emit(f"{self.define(inst.output)} = {whole}[{number}]")
        self.items[id(inst.output)] = self.value_of(inst.output)
        return True

    def _watch_registers(self, inst: Any, context: LoweringContext) -> None:
        """Check that registers which an asynchronous operation fills or adds to are used only after its wait."""
        handed_on = any(map(self.is_deferrable, (*inst.inputs, inst.output)))
        if context.description.registers_later or handed_on:
            return
        in_place = inst.output is None and context.description.writes_registers
        for i, tensor in enumerate(inst.inputs):
            if id(tensor) in self.used_later:
                self._watch(tensor, context, write=in_place and i == 0)

    def _watch(self, tensor: Any, context: LoweringContext, write: bool) -> None:
        use = self.constant(ordinary_use(context, context.name(tensor, "the registers"), write))
        self.emit(f"if w.filling or w.wgmmas is not None or w.sums: {use}(w, {self.value_of(tensor)})", "")

    def _follow_unwritten(self, inst: Any, context: LoweringContext, function: Callable[..., Any]) -> None:
        """Track registers that nothing has written, and report values that depend on them."""
        for line in self.unwritten.lines(inst, context, function):
            self.emit(line, "")
            self.repeatable &= not context.by_value

    def _target(self, output: Any) -> str:
        """Return the target of a result: its name, or the registers that an earlier view of the tensor shares."""
        again = self.is_defined(output) and id(output) in self.viewed
        self.repeatable &= not again
        return f"{self.define(output)}{'[...]' if again else ''} = "

    def _emit_call(self, call: str, context: LoweringContext, inst: Any) -> None:
        name = context.description.name
        self.emit(f"counts[{name!r}] += 1", "")
        target = self._target(inst.output) if inst.output is not None else ""
        if context.result is not None:
            target = f"{self.declare(context.result)} = "
        foreseen = f"{target}{context.foreseen}" if context.foreseen else ""
        if context.kind == "steps":
            self.emit(f"{target}yield from {call}", foreseen)
        elif context.kind == "blocking":
            self.emit(f"b = {call}", "")
            self.emit("if b is not None:", "")
            self.emit("    yield b", "")
        else:
            self.emit(f"{target}{call}", foreseen)
        if foreseen:
            self.foreseen.add(id(inst.output))
        self.known_ahead &= context.result is None or bool(foreseen)
        if id(inst.output) in self.used_later and not context.description.registers_later:
            self._watch(inst.output, context, write=True)
        if context.kind == "exit":
            self.emit("return")
        if context.description.shares:
            self.viewed |= {id(inst.output), id(inst.inputs[0])}

    # the whole program

    def run(self) -> Lowered:
        metadata = self.program.tile.metadata
        for _, var in self.program.params:
            self.declare(var)
        head = self._head()
        self.lines = list(head)
        self.visit(self.program.tile.body)
        number = next(_numbers)
        source = "\n".join(self.lines) + "\n"
        filename = f"<{self.program.name} lowered {number}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        counts: dict[str, int] = defaultdict(int)
        self.namespace["counts"] = counts
        exec(compile(source, filename, "exec"), self.namespace)
        lowered = Lowered(
            self.program, source, self.namespace["main"], self._grid(metadata), self.num_warps,
            self._cluster(), self.interacts, self.cancels, self.written(), self.locations, self._scan(),
            self.known_ahead and self.repeatable, self.values, tuple(self.sources.values()), self.calls, counts,
        )  # fmt: skip
        weakref.finalize(lowered, linecache.cache.pop, filename, None).atexit = False
        return lowered

    def _scan(self) -> Callable[[Any, list[Any], list[list[int]]], None] | None:
        if not self.known_ahead:
            return None
        head = ["def scan(w, log, places):", "    note = log.append", *self._names()]
        head += [f"    place{i} = places[{i}].extend" for i in range(len(self.sources))]
        namespace = {**self.namespace, **SCAN_NAMESPACE}  # with the constants that the lines above have named
        exec("\n".join([*head, *self.scan]), namespace)
        scan: Callable[[Any, list[Any], list[list[int]]], None] = namespace["scan"]
        return scan

    def written(self) -> frozenset[str] | None:
        """Return the parameters that stores write to; None if a pointer is computed and may address any of them."""
        from tilus.ir.tensor import GlobalTensor

        names = {id(var): name for name, var in self.program.params}
        roots: dict[int, str | None] = {}
        stored: set[str | None] = set()
        for inst, description in self.instructions:
            globals_ = [tensor for tensor in inst.inputs if isinstance(tensor, GlobalTensor)]
            if description.stores:
                stored |= {roots.get(id(tensor)) for tensor in globals_} or {None}
            elif hasattr(inst, "ptr") and isinstance(inst.output, GlobalTensor):
                roots[id(inst.output)] = names.get(id(self.origin(inst.ptr)))
            elif isinstance(inst.output, GlobalTensor):
                roots[id(inst.output)] = roots.get(id(globals_[0])) if globals_ else None
        return None if None in stored else frozenset(name for name in stored if name is not None)

    def origin(self, pointer: Any) -> Any:
        """Return the variable that a pointer expression starts from, through casts and lets."""
        while type(pointer).__name__ == "Cast" or id(pointer) in self.lets:
            pointer = pointer.expr if type(pointer).__name__ == "Cast" else self.lets[id(pointer)]
        return pointer

    def _cluster(self) -> tuple[int, int, int]:
        x, y, z = (int(extent) for extent in self.program.tile.metadata.cluster_blocks)
        return x, y, z

    def _head(self) -> list[str]:
        return ["def main(w):", *self._names(), *self.unwritten.head(), "    if False: yield"]

    def _names(self) -> list[str]:
        arguments = [
            f"    {self.variables[id(var)]} = {self._argument(name, var)}" for name, var in self.program.params
        ]
        return [
            "    wi = w.index",
            "    blockIdx_x, blockIdx_y, blockIdx_z = w.cta.position",
            "    gridDim_x, gridDim_y, gridDim_z = w.cta.grid.dimensions",
            *self._cluster_names(),
            *arguments,
        ]

    def _argument(self, name: str, var: Any) -> str:
        """Return the text of an argument with the value that the kernel sees: a float is rounded to its type."""
        text = f"w.cta.grid.arguments[{name!r}]"
        floating = hasattr(var.type, "nbits") and var.type.is_float()
        return f"{self.constant(element(var.type).dtype.type)}({text})" if floating else text

    def _cluster_names(self) -> list[str]:
        """Return the lines of the cluster's variables (PTX ISA, "Special Registers": %cluster_ctaid and others)."""
        shape = self._cluster()
        lines = [f"    clusterBlockRank, clusterSize = w.cta.rank, {math.prod(shape)}"]
        for axis, extent in zip("xyz", shape, strict=True):
            lines.append(f"    clusterIdx_{axis}, clusterBlockIdx_{axis} = divmod(blockIdx_{axis}, {extent})")
            lines.append(f"    clusterDim_{axis} = {extent}")
        return lines

    def _grid(self, metadata: Any) -> Callable[[dict[str, Any]], tuple[int, int, int]]:
        self.tellers[self.here] = self.constant(grid_teller(self.program.name))
        texts = [self.scalar(e) for e in metadata.grid_blocks]
        used = {id(v) for e in metadata.grid_blocks if not isinstance(e, int) for v in free_variables(e)}
        head = "".join(
            f"{self.variables[id(var)]} = arguments[{name!r}]; " for name, var in self.program.params if id(var) in used
        )
        exec(f"def grid(arguments): w = None; {head}return ({', '.join(texts)},)", self.namespace)
        return self.namespace["grid"]


def _used_later(program: Program) -> frozenset[int]:
    """Return the register tensors that asynchronous operations fill, or use in place. tilus 0.2.0 infers no layout
    through a view, so none of them has a second view."""
    from tilus.ir.tensor import RegisterTensor

    from blackwell_matmul.frontend.recording import instructions

    found = set[int]()
    for inst in instructions(program.tile):
        if description_of(inst, str(program.location_of(inst)))[0].registers_later:
            tensors = inst.inputs if inst.output is None else [inst.output]
            found |= {id(tensor) for tensor in tensors if isinstance(tensor, RegisterTensor)}
    return frozenset(found)


def address_tensors(program: Program) -> tuple[set[int], set[int]]:
    """Return the register tensors that hold nothing but the address of a barrier, also another CTA's; and the assigned
    tensors."""
    from blackwell_matmul.frontend.recording import instructions, operands

    every = instructions(program.tile)
    assigned = {id(inst.inputs[0]) for inst in every if "Assign" in type(inst).__name__}
    made = {id(inst.output): inst for inst in every if inst in program.barriers}
    slices = [inst for inst in every if _is_slice(inst) and id(inst.inputs[0]) in made.keys() - assigned]
    found = {key for key, inst in made.items() if len(inst.counts) == 1} - {id(inst.inputs[0]) for inst in slices}
    found |= {id(inst.output) for inst in slices}
    found |= {id(inst.output) for inst in every if type(inst).__name__ == "MapSharedAddrInst"}
    while True:
        other = {id(t) for inst in every if not _moves_address(inst, made, found) for t in operands(inst)}
        if not found & other:
            return found, assigned
        found -= other


def _is_slice(inst: Any) -> bool:
    return type(inst).__name__ == "SliceRegisterInst" and not inst.output.shape


def _moves_address(inst: Any, made: Mapping[int, Any], found: set[int]) -> bool:
    """Return True if a scalar variable can replace the instruction."""
    kind = type(inst).__name__
    if kind == "AllocBarrierInst":
        return True
    if _is_slice(inst):
        return id(inst.output) in found and id(inst.inputs[0]) not in found
    moves = kind in ("MapSharedAddrInst", "AssignInst")
    tensors = [t for t in (*inst.inputs, inst.output) if t is not None] if moves else []
    return moves and all(id(tensor) in found for tensor in tensors)


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except ValueError:
        return False
    return True


def barrier_address(first: int, count: int, name: str | None, location: Location | None) -> Callable[[Warp, int], int]:
    """Return the address of barriers[i], with i checked."""

    def address(warp: Warp, index: int) -> int:
        if not 0 <= index < count:
            message = f"index {index} leaves {name}, which has {count} barrier{'s' * (count > 1)}"
            raise warp.cta.stop("out-of-bounds", message, location)
        return first + BARRIER_BYTES * index

    return address


def mapped_address(location: Location | None) -> Callable[[Warp, int, int, int], int]:
    """Return map_shared_addr, with the rank checked."""

    def address(warp: Warp, here: int, rank: int, ctas: int) -> int:
        require_rank(warp, rank, ctas, "map_shared_addr", location)
        return int(mapped(here, rank))

    return address


def teller(location: Location | None) -> Callable[[Warp], Told]:
    """Return the function that reports a warp's arithmetic which C leaves undefined, at one line."""
    return lambda warp: lambda code: report_undefined(warp, code, location)


def grid_teller(kernel: str) -> Callable[[None], Told]:
    """Return the function that reports undefined arithmetic of a grid, which has no warp: a division by zero is an
    error."""

    def told(code: Undefined) -> None:
        if code == "division-by-zero":
            raise InputError(f"{kernel} divides by zero in attrs.blocks, so that its grid has no extent.")

    return lambda _: told


def assigned_by_some_lanes(body: Any, parent: ThreadGroup) -> dict[int, list[ThreadGroup]]:
    """Return, by variable, the partial-warp groups that assign it although it is declared outside of them."""
    from blackwell_matmul.frontend.recording import children, walk

    found: dict[int, list[ThreadGroup]] = defaultdict(list)
    kind = type(body).__name__
    group = group_of(body, parent) if kind == "ThreadGroupStmt" else parent
    if group.leaves_out_lanes_of(parent):
        inside = list(walk(body.body))
        own = {id(node.var) for node in inside if type(node).__name__ == "DeclareStmt"}
        assigned = {id(node.var) for node in inside if type(node).__name__ == "AssignStmt"}
        found.update({var: [group] for var in assigned - own})
    for child in children(body):
        for var, groups in assigned_by_some_lanes(child, group).items():
            found[var] += groups
    return found


def group_of(stmt: Any, parent: ThreadGroup) -> ThreadGroup:
    """Return the threads of a statement; -1 lets the hardware choose, and code generation takes the first."""
    begin = parent.begin + max(stmt.thread_begin, 0)
    return ThreadGroup(begin, stmt.num_threads, elected=stmt.thread_begin < 0 and stmt.num_threads == 1)


def agreed(here: ThreadGroup, location: Location | None) -> Callable[[Warp, Any, ThreadGroup], Any]:
    """Return the function of a variable's value in lanes of one warp, if all of them have it."""

    def value(warp: Warp, value: Any, by: ThreadGroup) -> Any:
        assigned, reads = by.mask(warp.index), here.mask(warp.index)
        if not reads & ~assigned:
            return value
        raise warp.cta.stop(
            "thread-dependent-scalar",
            f"{assigned.bit_count()} of the lanes of warp {warp.index} assigned a variable that is read here, and the"
            " other lanes still have its old value; assign it outside of that thread group, or read it inside alone",
            location,
        )

    return value


def divided(word: str, location: Location | None) -> Callable[[Warp], None]:
    """Return a function that reports a `break` or `return` by a part of a warp, which the simulator cannot execute."""

    def stop(warp: Warp) -> None:
        raise warp.cta.stop(
            "thread-dependent-scalar",
            f"some lanes of warp {warp.index} {word} here, and the others go on without them; {word} outside of that"
            " thread group, where all lanes of a warp do",
            location,
        )

    return stop


MAX_TURNS = 1_000_000


def endless_loop(location: Location | None) -> Callable[[Warp], None]:
    """Return the function that ends a loop after more iterations than any kernel needs."""

    def stop(warp: Warp) -> None:
        message = f"a loop of warp {warp.index} has made {MAX_TURNS} turns without an end"
        raise warp.cta.stop("livelock", message, location)

    return stop


def rounds_of(location: Location | None) -> Callable[[Warp, int], Iterable[int]]:
    """Return the function that counts a for loop's iterations, and ends one with more than any kernel needs."""
    stop = endless_loop(location)

    def many(warp: Warp) -> Iterator[int]:
        yield from range(MAX_TURNS)
        stop(warp)

    return lambda warp, extent: range(extent) if extent <= MAX_TURNS else many(warp)


def lower(program: Program) -> Lowered:
    """Lower the tile view; UnsupportedError names an unknown statement or instruction with its line."""
    with deep():
        return Lowering(program).run()
