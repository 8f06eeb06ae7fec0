"""Facts that tilus does not keep: the source line of each instruction, the Python name of each tensor and barrier.

`NamingTranspiler` notes both while tilus reads a script; `Recorder` follows them through the passes and remembers which
instruction became which; `RecordingCodegen` notes the addresses that code generation picks. This module imports tilus
at its top: import it after `import_tilus`.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tilus.backends.codegen import FunctionCodegen
from tilus.hidet.ir.dtypes import int32, uint32
from tilus.hidet.ir.expr import Var, logical_and
from tilus.hidet.ir.primitives.cuda.elect import shfl_sync_i32
from tilus.hidet.ir.type import DataType
from tilus.ir.func import Function
from tilus.ir.inst import Instruction
from tilus.ir.instructions import AllocBarrierInst
from tilus.ir.stmt import DeclareStmt, InstStmt, LetStmt, SeqStmt, Stmt, ThreadGroupStmt
from tilus.ir.tensor import SharedTensor, Tensor
from tilus.lang.constructs.state import Class
from tilus.lang.script import Script

from blackwell_matmul.base.validation import shown
from blackwell_matmul.frontend.access_bytes import BY_POINTER, access_bytes
from blackwell_matmul.frontend.faults.reductions import WARP
from blackwell_matmul.frontend.identity import IdentityMap
from blackwell_matmul.frontend.messages.raised import Refusal, one_of
from blackwell_matmul.frontend.messages.written import Statements
from blackwell_matmul.frontend.program import Location, SharedAllocation
from blackwell_matmul.frontend.python.python_names import OwningScope
from blackwell_matmul.frontend.python.python_statements import PythonTranspiler, check_undecorated

BARRIER_BYTES = 8

LONGEST_NAME = 60
"""Maximum characters of source text that serve as the name of an unnamed value."""


def children(node: Any) -> Sequence[Any]:
    """Return the statements and the instruction directly inside a statement."""
    if isinstance(node, InstStmt):
        return (node.inst,)
    if isinstance(node, SeqStmt):
        return tuple(node.seq)
    bodies = (getattr(node, name, None) for name in ("body", "then_body", "else_body"))
    return [body for body in bodies if body is not None]


def walk(node: Any) -> Iterator[Any]:
    """Yield each statement and instruction from `node` down, in program order."""
    left = [node]
    while left:
        node = left.pop()
        yield node
        left += reversed(children(node))


def instructions(function: Function) -> list[Instruction]:
    return [node for node in walk(function.body) if isinstance(node, Instruction)]


def operands(inst: Instruction) -> tuple[Tensor, ...]:
    return inst.inputs if inst.output is None else (*inst.inputs, inst.output)


def declared_vars(stmt: Any) -> Iterable[Var]:
    """Yield the scalar variables that a statement brings into scope."""
    if isinstance(stmt, LetStmt):
        return tuple(stmt.bind_vars)
    singles = (getattr(stmt, name, None) for name in ("var", "ptr_var", "iter_var"))
    return [var for var in singles if isinstance(var, Var)]


class Recorder:
    """Lines, names and ancestry of the nodes of one run of tilus."""

    def __init__(self) -> None:
        self._lines: IdentityMap[Location] = IdentityMap()
        self._declared: IdentityMap[Location] = IdentityMap()
        self._names: IdentityMap[str] = IdentityMap()
        self._texts: IdentityMap[tuple[ast.AST, str]] = IdentityMap()
        self._item_of: IdentityMap[Tensor] = IdentityMap()
        self._parent: IdentityMap[Any] = IdentityMap()
        self._attributes: dict[str, Location] = {}
        self._failure: tuple[Exception, Any] | None = None
        self.function: Function | None = None

    # --- told by the transpiler

    def locate(self, node: Any, line: Location) -> None:
        """Give `node` and all that is inside it and has no line yet this line."""
        if node in self._lines:
            return
        self._lines[node] = line
        if isinstance(node, DeclareStmt):
            self._declared[node.var] = line
        for child in children(node):
            self.locate(child, line)

    def name(self, value: Any, text: str) -> None:
        """Bind a name to a tensor or variable; an existing name is kept."""
        self._names.setdefault(value, text)
        tensor = self._item_of.get(value)
        if tensor is not None:
            self._names.setdefault(tensor, text)

    def rename(self, value: Any, old: str, new: str) -> None:
        """Replace the owner in a name: `self.full` becomes `pipe.full` once the object is called pipe."""
        text = self._names.get(value, "")
        if text.startswith(old):
            self._names[value] = new + text.removeprefix(old)

    def text(self, value: Any, node: ast.AST, owner: str) -> None:
        """Note the source text of a value, which is used if no name is bound to it."""
        self._texts.setdefault(value, (node, owner))

    def attribute(self, text: str, line: Location) -> None:
        """Record the line that sets an attribute such as `self.attrs.warps`."""
        self._attributes[text] = line

    def item(self, var: Var, tensor: Tensor) -> None:
        self._item_of[var] = tensor

    # --- told by the passes

    def rewritten(self, old: Any, new: Any) -> None:
        if isinstance(old, Function) and isinstance(new, Function):
            self.function = new
        if isinstance(old, (Instruction, Stmt, Tensor)) and isinstance(new, (Instruction, Stmt, Tensor)):
            self._descend(new, old)

    def _descend(self, new: Any, old: Any) -> None:
        """Record `old` as the parent of `new`, and of instructions that a pass put inside of `new`."""
        if new in self._parent or new in self._lines or new in self._texts:
            return
        self._parent[new] = old
        if not isinstance(old, (Instruction, InstStmt)) and not isinstance(new, InstStmt):
            return
        if isinstance(new, Instruction) and isinstance(old, Instruction):
            self._descend_output(new, old)
        for child in children(new):
            self._descend(child, old)

    def _descend_output(self, new: Instruction, old: Instruction) -> None:
        """Give the output of an instruction the name of its original's output, or else of its original's input."""
        source = next((tensor for tensor in reversed(operands(old))), None)
        if source is not None and new.output is not None and new.output is not source:
            self._descend(new.output, source)

    def failed(self, node: Any, error: Exception) -> None:
        """Record the innermost instruction or statement that a pass visited when it raised."""
        if isinstance(node, (Instruction, Stmt)) and (self._failure is None or self._failure[0] is not error):
            self._failure = (error, node)

    # --- asked at the end

    def ancestry(self, node: Any) -> Iterator[Any]:
        """Yield `node`, its parent, and so on, up to the script's own statement."""
        while node is not None:
            yield node
            node = self._parent.get(node)

    def line_of(self, node: Any) -> Location | None:
        for ancestor in self.ancestry(node):
            line = self._lines.get(ancestor)
            if line is None and isinstance(ancestor, LetStmt):
                # tilus turns declarations into lets while it visits the sequence around them
                line = self._declared.get(ancestor.bind_vars[0])
            if line is not None:
                return line
        return None

    def name_of(self, value: Any) -> str | None:
        for ancestor in self.ancestry(value):
            if ancestor in self._names:
                return self._names[ancestor]
        if value in self._item_of:
            return self.name_of(self._item_of[value])
        texts = (self._texts[ancestor] for ancestor in self.ancestry(value) if ancestor in self._texts)
        return next((source_text(*text) for text in texts), None)

    def was_given(self, value: Any, keyword: str) -> bool:
        """Return True if the call behind a value has an argument of this name, or `**` that may have it."""
        texts = (self._texts[ancestor] for ancestor in self.ancestry(value) if ancestor in self._texts)
        node, _ = next(texts, (None, ""))
        return isinstance(node, ast.Call) and any(each.arg in (keyword, None) for each in node.keywords)

    def line_of_failure(self, errors: Sequence[BaseException]) -> Location | None:
        """Return the line of the node that a pass or code generation visited when it raised one of `errors`."""
        if self._failure is None or not any(self._failure[0] is error for error in errors):
            return None
        return self.line_of(self._failure[1])

    def line_of_attribute(self, reason: str) -> Location | None:
        """Return the line that set the attribute named in a reason; None if the reason names none."""
        return next((line for text, line in self._attributes.items() if text in reason), None)

    def lines(self, function: Function) -> IdentityMap[Location]:
        return IdentityMap((node, line) for node in walk(function.body) if (line := self.line_of(node)) is not None)

    def names(self, function: Function) -> IdentityMap[str]:
        named = ((value, name) for value in _named_values(function) if (name := self.name_of(value)) is not None)
        return IdentityMap([*self._names.items(), *named])

    def origins(self, nodes: Iterable[Any], tile: Iterable[Any]) -> IdentityMap[Any]:
        """Map each node after the passes to its node of the tile view, where there is one."""
        known = IdentityMap((node, None) for node in tile)
        found = ((node, next((each for each in self.ancestry(node) if each in known), None)) for node in nodes)
        return IdentityMap((node, origin) for node, origin in found if origin is not None)


def _named_values(function: Function) -> Iterator[Any]:
    yield from function.params
    for node in walk(function.body):
        yield from operands(node) if isinstance(node, Instruction) else declared_vars(node)


def source_text(node: ast.AST, owner: str) -> str:
    """Return the source of an expression on one line, with `self` called by its owner's name."""
    text = " ".join(ast.unparse(node).split())
    text = re.sub(r"\bself\b(?=\.)", lambda _: owner, text)
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


class NamingScope(OwningScope):
    """Transpiler scope that reports each binding of a name to a value."""

    _transpiler: NamingTranspiler

    def bind(self, name: str, var_or_value: Any) -> None:
        super().bind(name, var_or_value)
        self._transpiler.christen(self.lookup(name), self._transpiler.alias(name))


class SourcePlace(NamedTuple):
    """Current position of the transpiler: syntax node and line."""

    node: ast.AST
    line: Location


class NamingTranspiler(PythonTranspiler):
    """tilus's transpiler, telling a `Recorder` the line of each statement and the name of each value."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._places: list[SourcePlace] = []
        self._aliases: dict[str, str] = {}
        self._objects: IdentityMap[str] = IdentityMap()
        self._statements = Statements(recorder.name_of)

    def transpile(self, script: Script, name2consts: Any, name2divisibility: Any) -> Function:
        # tilus declares scalar parameters before it visits the first statement
        code = inspect.unwrap(type(script).__call__).__code__
        self._places = [SourcePlace(ast.Name("__call__"), Location(code.co_filename, code.co_firstlineno))]
        check_undecorated(type(script).__call__)
        return super().transpile(script, name2consts, name2divisibility)

    def visit(self, node: Any) -> Any:
        place = self._place(node)
        if place is None:
            return super().visit(node)
        depth, start = len(self._stack), len(self._stack[-1])
        self._places.append(place)
        try:
            result = super().visit(node)
        finally:
            self._places.pop()
        if isinstance(node, ast.stmt):
            # loops, branches and thread groups reach the stack without `append`
            for stmt in self._stack[depth - 1][start:]:
                self._recorder.locate(stmt, place.line)
        return result

    def _place(self, node: Any) -> SourcePlace | None:
        # a call is where its function's name ends: `.wait(` of a chain broken over several lines
        line = node.func.end_lineno if isinstance(node, ast.Call) else getattr(node, "lineno", None)
        if line is None or not isinstance(node, (ast.stmt, ast.expr)):
            return None
        return SourcePlace(node, self._line(line))

    def _line(self, line: int) -> Location:
        """Return a line of the file that is read; for a tilus.Class in another file, the line of the call in the
        kernel."""
        shared = self.file != self._places[0].line.file and isinstance(self.lookup("self"), Class)
        return self._places[-1].line if shared else Location(self.file, self.start_lineno + line - 1)

    def append(self, inst_or_stmt: Any) -> None:
        super().append(inst_or_stmt)
        self._recorder.locate(self._stack[-1][-1], self._places[-1].line)
        output = getattr(inst_or_stmt, "output", None)
        if output is not None and not isinstance(output.dtype, DataType):
            found = one_of(output.dtype) if isinstance(output.dtype, type) else shown(output.dtype)
            raise Refusal(f"{found} stands where tilus takes a type, as in float16 without quotes")
        if output is not None:
            self._recorder.text(output, self._places[-1].node, self._owner())
        if isinstance(inst_or_stmt, Instruction):
            fault = self._statements.fault(inst_or_stmt, self._places[-1].line)
            if fault is not None:
                raise Refusal(fault)

    def tensor_item_value(self, tensor: Tensor) -> Var:
        var = super().tensor_item_value(tensor)
        self._recorder.item(var, tensor)
        return var

    def scope(self) -> NamingScope:
        return NamingScope(self)

    def visit_Call(self, expr: ast.Call) -> Any:
        if isinstance(expr.func, ast.Name) and expr.func.id == "print" and self.lookup("print") is None:
            raise Refusal(
                "print in a kernel prints while the kernel is compiled, once; self.printf('%d', x) prints numbers when "
                "it runs, self.print_tensor('x', x) a tile"
            )
        return super().visit_Call(expr)

    def visit_Subscript(self, expr: ast.Subscript) -> Any:
        result = super().visit_Subscript(expr)
        if isinstance(result, (Tensor, Var)):
            self._recorder.name(result, source_text(expr, self._owner()))
        return result

    def process_name_assign(self, name: str, rhs: Any, type_annotation: ast.expr | None = None) -> None:
        fresh = self.lookup(name) is None
        super().process_name_assign(name, rhs, type_annotation)
        if fresh and name != "_":
            self.christen(rhs, self.alias(name))

    def process_attribute_assign(self, lhs: ast.Attribute, rhs: Any, type_annotation: ast.expr | None = None) -> None:
        text = ast.unparse(lhs)
        owned = source_text(lhs, self._owner())
        if text.startswith("self.attrs."):
            self._recorder.attribute(text, self._places[-1].line)
        # tilus binds `self.full` as `self_full`
        self._aliases[text.replace(".", "_")] = owned
        try:
            super().process_attribute_assign(lhs, rhs, type_annotation)
        finally:
            del self._aliases[text.replace(".", "_")]
        self.christen(rhs, owned)

    def alias(self, name: str) -> str:
        return self._aliases.get(name, name)

    def christen(self, value: Any, text: str) -> None:
        """Name a tensor or variable, each element of a list of them, or a helper object."""
        if isinstance(value, (Tensor, Var)):
            self._recorder.name(value, text)
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], (Tensor, Var, Class)):
            for index, element in enumerate(value):
                self.christen(element, f"{text}[{index}]")
        elif isinstance(value, Class) and text != "self" and value not in self._objects:
            self._christen_object(value, "self.", text)

    def _christen_object(self, value: Class, old: str, text: str) -> None:
        """Name a helper object `text`, and rename the objects that it named `self.…` while it was built."""
        self._objects[value] = text
        for attribute in list(vars(value).values()):
            self._rename(attribute, old, text + ".")

    def _rename(self, value: Any, old: str, new: str) -> None:
        if isinstance(value, (Tensor, Var)):
            self._recorder.rename(value, old, new)
        elif isinstance(value, (list, tuple)):
            for element in value:
                self._rename(element, old, new)
        elif isinstance(value, Class) and self._objects.get(value, "").startswith(old):
            known = self._objects[value]
            self._christen_object(value, known + ".", new + known.removeprefix(old))

    def _owner(self) -> str:
        """Return the name of `self` in the method that is being read."""
        return self._objects.get(self.lookup("self"), "self")


def _kind(node: Any) -> str:
    """Return the comment for an instruction; `compiler.source` replaces it by the script's line."""
    return type(node).__name__


class RecordingCodegen(FunctionCodegen):
    """tilus's code generation, which records addresses, widths and emitted instructions."""

    def __init__(self) -> None:
        super().__init__()
        self.printer = _kind
        self.emitted: list[Instruction] = []
        self.shared: IdentityMap[SharedAllocation] = IdentityMap()
        self._first_barrier: IdentityMap[int] = IdentityMap()
        self.access_bytes: IdentityMap[int] = IdentityMap()
        self.barrier_block: SharedAllocation | None = None
        self._emitting = False
        smem = self.contexts.smem_alloc_ctx
        self._allocate = smem.allocate_shared_tensor
        smem.allocate_shared_tensor = self._record_allocation

    def _record_allocation(self, tensor: SharedTensor, nbytes: int) -> int:
        address: int = self._allocate(tensor, nbytes=nbytes)
        allocation = SharedAllocation(address, nbytes)
        if self._emitting:
            self.shared[tensor] = allocation
        else:
            # the barriers are placed once, when all instructions are out
            self.barrier_block = allocation
        return address

    def visit_Instruction(self, inst: Instruction) -> None:
        self.emitted.append(inst)
        if isinstance(inst, AllocBarrierInst):
            self._first_barrier[inst] = len(self.contexts.barrier_alloc_ctx.barriers)
        self._emitting = True
        try:
            super().visit_Instruction(inst)
        finally:
            self._emitting = False
        if isinstance(inst, BY_POINTER):
            self.access_bytes[inst] = access_bytes(self.builder.scope_stack[-1][-1])

    def visit_ThreadGroupStmt(self, stmt: ThreadGroupStmt) -> None:
        """Select a group of whole warps by the warp index.

        ptxas then knows that all threads of a warp take the same branch, and keeps shared values in uniform registers.
        The loops over k-tiles of H7 lose up to a quarter of their instructions, and two CTAs for a tile of 128x256 no
        longer spill. tilus 0.2.0 does so only if the number of surrounding threads is a power of two. For threads 32
        to 95 of 128 it then selects the first 64.
        """
        stack, before = self.thread_group_stack, self.current_thread
        begin, threads = stmt.thread_begin, stmt.num_threads
        if begin < 0 or any(n % WARP for n in (begin, threads, *stack.thread_begin, *stack.num_threads)):
            super().visit_ThreadGroupStmt(stmt)
            return
        self.builder.comment(
            f"ThreadGroup(thread_begin={begin}, thread_end={begin + threads}, num_threads={threads})", style="/*"
        )
        with self.builder.if_then(cond=_is_in_group(before, begin, threads)):
            self._current_thread = self.builder.declare_var("tid", tp=int32, init=before - begin)
            stack.push(thread_begin=begin, num_threads=threads)
            self.visit(stmt.body)
            stack.pop()
        self._current_thread = before

    @property
    def barrier_addresses(self) -> IdentityMap[int]:
        """Return a map from each `mbarrier.alloc` to the address of its first barrier."""
        base = self.barrier_block.address if self.barrier_block else 0
        return IdentityMap((inst, base + BARRIER_BYTES * index) for inst, index in self._first_barrier.items())

    @property
    def dynamic_shared_bytes(self) -> int:
        return int(self.builder.attrs.get("cuda.dynamic_smem_bytes", 0))

    @property
    def workspace(self) -> SharedAllocation | None:
        """Return the scratch memory for emitters: after all other shared memory, aligned to 128 bytes."""
        smem = self.contexts.smem_alloc_ctx
        if smem.shared_workspace_var is None:
            return None
        address = (smem.smem_allocator.maximum_allocated + 127) // 128 * 128
        return SharedAllocation(address, smem.shared_workspace_bytes)


def _is_in_group(thread: Any, begin: int, threads: int) -> Any:
    if begin % threads == 0:
        return _same_in_warp(thread // threads) == begin // threads
    warp = _same_in_warp(thread // WARP)
    return logical_and(begin // WARP <= warp, warp < (begin + threads) // WARP)


def _same_in_warp(value: Any) -> Any:
    """Return a value that all threads of a warp share, in a form that ptxas recognises."""
    return shfl_sync_i32(uint32(0xFFFFFFFF), value, int32(0))
