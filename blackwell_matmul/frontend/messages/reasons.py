"""One sentence for each error of tilus: the fault, and its line in the script.

tilus answers with dumps of whole programs, with one message for every internal error, or with an empty assertion. The
reason is dug out here; the original stays the cause.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from tilus.backends.codegen import CodeGenerationFailed
from tilus.ir.inst import Instruction
from tilus.ir.instructions import DotInst, ReduceInst
from tilus.ir.instructions.generic import ElementwiseBinaryBaseInst
from tilus.ir.layout.inference import verify_layouts
from tilus.ir.layout.inference.inference import LayoutInferenceError
from tilus.ir.stmt import AssignStmt
from tilus.ir.tensor import RegisterTensor, SharedTensor, TMemoryTensor
from tilus.ir.tools.verifier import Diagnostic, VerificationError
from tilus.lang.transpiler.common import TilusProgramError

from blackwell_matmul.frontend.messages import phrases
from blackwell_matmul.frontend.messages.lacking import lacking
from blackwell_matmul.frontend.messages.raised import chain, innermost, plain_reason
from blackwell_matmul.frontend.messages.script_reasons import script_line, script_reason
from blackwell_matmul.frontend.program import Location
from blackwell_matmul.frontend.recording import Recorder, RecordingCodegen, instructions, operands, walk

LONGEST_REASON = 400
"""Characters of a whole reason."""


def sentence(
    script_cls: type, target: str, error: BaseException, recorder: Recorder, codegen: RecordingCodegen | None
) -> str:
    """Return the sentence for the user: <Script> does not compile for <target>: <reason> (file:line)."""
    try:
        reason, line = _explain(error, target, recorder, codegen)
    except Exception:  # what a script put into tilus's tensors can make any word about them fail
        reason, line = plain_reason(error), None
    errors = chain(error)
    if any(isinstance(each, AttributeError) and each.name == "_attrs" for each in errors):
        reason, line = "its __init__ does not call super().__init__(), which must come first", _line_of_init(script_cls)
    line = line or recorder.line_of_failure(errors) or _line_in_frames(errors, recorder)
    line = line or recorder.line_of_attribute(reason) or _line_in_script(script_cls, error)
    text = " ".join(reason.split()).rstrip(".:")
    text = text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"
    return f"{script_cls.__name__} does not compile for {target}: {text} ({line})."


def _explain(
    error: BaseException, target: str, recorder: Recorder, codegen: RecordingCodegen | None
) -> tuple[str, Location | None]:
    if isinstance(error, TilusProgramError):
        return script_reason(error), script_line(error)
    if isinstance(error, VerificationError):
        diagnostic = error.diagnostics.diagnostics[0]
        return _diagnostic_reason(diagnostic), recorder.line_of(diagnostic.context)
    if isinstance(error, LayoutInferenceError):
        return _layout_reason(error, recorder)
    if isinstance(error, CodeGenerationFailed) and codegen is not None:
        return _emitter_reason(error, target, recorder, codegen)
    if codegen is not None and "dealloc" in str(error) and codegen.contexts.tcgen05_ctx.allocated_tmemory_tensors:
        return _tensor_memory_reason(recorder, codegen)
    if codegen is not None and "has not been allocated yet" in str(error):
        return _deallocated_reason(recorder, codegen)
    unknown = _unknown_before_launch(error)
    return _variable_reason(unknown, recorder) if unknown else (plain_reason(error), None)


def _unknown_before_launch(error: BaseException) -> list[Any]:
    """Return the variables that the launch needs but that parameters alone do not determine."""
    text = str(error)
    if text.startswith("Used variables") and (found := innermost(error, "lower_param_only_param", "illegal_vars")):
        return list(found["illegal_vars"])
    if text.startswith("Expression is not grid-inv") and (
        found := innermost(error, "rewrite_to_grid_invariant", "self")
    ):
        return [var for var in found["used_vars"] if var not in found["self"].grid_invariants]
    return []


def _variable_reason(variables: Sequence[Any], recorder: Recorder) -> tuple[str, Location | None]:
    var, body = variables[0], recorder.function.body if recorder.function is not None else None
    name = recorder.name_of(var)
    shown = f"`{name}`" if name else "a value"
    known = "the grid, a global tensor or a view for TMA has its extents from it, before the kernel runs"
    assignment = next((node for node in walk(body) if isinstance(node, AssignStmt) and node.var is var), None)
    if assignment is None:
        return f"{shown} is computed in the kernel, and {known}; compute those from parameters alone", None
    value = f"give the new value a name of its own, as in `{name}_1: {getattr(var.type, 'name', 'int32')} = ...`"
    return f"{shown} is assigned here, and {known}; {value}", recorder.line_of(assignment)


def _line_of_init(script_cls: Any) -> Location:
    code = script_cls.__init__.__code__
    return Location(code.co_filename, code.co_firstlineno)


def _line_in_frames(errors: Sequence[BaseException], recorder: Recorder) -> Location | None:
    """Return the line of the instruction that tilus's rules of layouts handled when they raised."""
    frames = [frame for error in errors for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        for value in list(frame.f_locals.values()):
            line = recorder.line_of(value) if isinstance(value, Instruction) else None
            if line is not None:
                return line
    return None


def _diagnostic_reason(diagnostic: Diagnostic) -> str:
    items = [", ".join(map(str, item)) if isinstance(item, (list, tuple)) else item for item in diagnostic.items]
    return phrases.plain_sentence(str(diagnostic.message).format(*items))


def _layout_reason(error: LayoutInferenceError, recorder: Recorder) -> tuple[str, Location | None]:
    """Name the tensors or the instruction, where tilus prints the program."""
    function = recorder.function
    if function is not None and str(error).startswith("Layout verification failed"):
        for inst in verify_layouts(function):
            if isinstance(inst, DotInst) and inst.inputs[0].dtype != inst.inputs[1].dtype:
                a, b = (_named(recorder, tensor) for tensor in inst.inputs[:2])
                return f"dot multiplies one type, and here {a} and {b}; convert one with .to(dtype)", recorder.line_of(
                    inst
                )
            values = ", ".join(_named(recorder, tensor) for tensor in operands(inst))
            which = "both operands" if _is_outer(inst) else "one of them"
            way_out = f"pass {which} through shared memory (store_shared, sync, load_shared)"
            if isinstance(inst, ReduceInst) and not inst.keepdim:
                way_out = f"keep the dimension, with keepdim=True, or {way_out}"
            if any(isinstance(tensor, RegisterTensor) and not tensor.shape for tensor in inst.inputs):
                way_out = "a reduction without dim leaves one number; name the dimension, as in dim=1, keepdim=True"
            what = type(inst).__name__.removesuffix("Inst")
            return f"{what} cannot work with the layouts of {values}; {way_out}", recorder.line_of(inst)
    if function is not None and "could infer" in str(error):
        missing = list(_without_layout(instructions(function)))
        if missing:
            values = ", ".join(dict.fromkeys(_named(recorder, tensor) for _, tensor in missing))
            return f"no rule can infer a layout for {values}; {_way_out(missing)}", recorder.line_of(missing[0][0])
    return plain_reason(error), None


def _way_out(missing: Sequence[tuple[Instruction, Any]]) -> str:
    """Return a remedy for tiles without a layout; the remedy for an outer product differs from the remedy for a
    load."""
    if all(isinstance(tensor, RegisterTensor) and not tensor.shape for _, tensor in missing):
        return "these are single numbers, and a choice between two is `a if n > 0 else b`"
    annotate = "give it one with self.annotate_layout"
    outer = next((inst for inst, _ in missing if _is_outer(inst)), None)
    if outer is None:
        return f"use it with a tensor that was loaded or multiplied, or {annotate}"
    shape = list(map(int, outer.register_output.shape))
    whole = f"or combine each with a tile of shape {shape} that was loaded"
    return f"an outer product of a row and a column says nothing of where its elements lie; {annotate}, {whole}"


def _is_outer(inst: Instruction) -> bool:
    """Return True for an outer product: neither operand has the whole shape."""
    if not isinstance(inst, ElementwiseBinaryBaseInst):
        return False
    return all(tuple(tensor.shape) != tuple(inst.register_output.shape) for tensor in inst.inputs)


def _without_layout(insts: list[Instruction]) -> Iterator[tuple[Instruction, Any]]:
    spaces = (RegisterTensor, SharedTensor, TMemoryTensor)
    for inst in insts:
        for tensor in operands(inst):
            if isinstance(tensor, spaces) and tensor.optional_layout is None:
                yield inst, tensor


def _named(recorder: Recorder, tensor: Any) -> str:
    shape = "x".join(str(extent) for extent in tensor.shape)
    dtype = getattr(tensor.dtype, "name", tensor.dtype)
    return f"{recorder.name_of(tensor) or 'a tensor'} ({dtype} {shape})".replace(" )", ")")


def _emitter_reason(
    error: CodeGenerationFailed, target: str, recorder: Recorder, codegen: RecordingCodegen
) -> tuple[str, Location | None]:
    for inst in instructions(codegen.function):
        if codegen.resolve_inst_emitter(type(inst)) is None:
            return lacking(type(inst).__name__, target), recorder.line_of(inst)
    return plain_reason(error), None


def _tensor_memory_reason(recorder: Recorder, codegen: RecordingCodegen) -> tuple[str, Location | None]:
    leaked = codegen.contexts.tcgen05_ctx.allocated_tmemory_tensors
    values = ", ".join(sorted(_named(recorder, tensor) for tensor in leaked))
    lines = [recorder.line_of(inst) for inst in codegen.emitted if inst.output in leaked]
    reason = f"tensor memory is not deallocated before the end of the kernel: {values}"
    return reason, next(iter(lines), None)


def _deallocated_reason(recorder: Recorder, codegen: RecordingCodegen) -> tuple[str, Location | None]:
    """Return the reason and line of a second deallocation. codegen: code generation, which stopped at that dealloc."""
    last = codegen.emitted[-1]
    tensor = last.inputs[0]
    same = [inst for inst in codegen.emitted[:-1] if isinstance(inst, type(last)) and inst.inputs[0] is tensor]
    before = f" at line {line.line}" if same and (line := recorder.line_of(same[0])) else ""
    reason = f"{_named(recorder, tensor)} has been deallocated before{before}; one tcgen05.dealloc goes with each alloc"
    return reason, recorder.line_of(last)


def _line_in_script(script_cls: type, error: BaseException) -> Location:
    """Return the innermost running line of the script's own file, else the line of `__call__`."""
    code: Any = script_cls.__call__.__code__
    frames = [frame for cause in chain(error) for frame in traceback.extract_tb(cause.__traceback__)]
    own = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    return Location(code.co_filename, (own[-1] if own else None) or code.co_firstlineno)
