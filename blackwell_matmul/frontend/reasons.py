"""From whatever tilus raises to one sentence: what it refuses, and where in the script.

tilus answers with dumps of whole programs, with one message for every internal error, or with an empty
assertion. The reason is dug out here; the original stays the cause.
"""

from __future__ import annotations

import difflib
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from tilus.backends.codegen import CodeGenerationFailed
from tilus.ir.inst import Instruction
from tilus.ir.instructions import DotInst
from tilus.ir.layout.inference import verify_layouts
from tilus.ir.layout.inference.inference import LayoutInferenceError
from tilus.ir.tensor import RegisterTensor, SharedTensor, TMemoryTensor
from tilus.ir.tools.verifier import Diagnostic, VerificationError
from tilus.lang.script import Script
from tilus.lang.transpiler.common import TilusProgramError

from blackwell_matmul.frontend import phrases
from blackwell_matmul.frontend.lacking import lacking
from blackwell_matmul.frontend.program import Location
from blackwell_matmul.frontend.recording import Recorder, RecordingCodegen, instructions, operands
from blackwell_matmul.validation import said

LONGEST_REASON = 400
"""Characters of a whole reason."""


def sentence(
    script_cls: type, target: str, error: BaseException, recorder: Recorder, codegen: RecordingCodegen | None
) -> str:
    """What the user reads: <Script> does not compile for <target>: <reason> (file:line)."""
    try:
        reason, line = _explain(error, target, recorder, codegen)
    except Exception:  # what a script put into tilus's tensors can make any word about them fail
        reason, line = _plain_reason(error), None
    if _forgot_super(error):
        reason, line = "its __init__ does not call super().__init__(), which must come first", _line_of_init(script_cls)
    errors = _chain(error)
    line = line or recorder.line_of_failure(errors) or _line_in_frames(errors, recorder)
    line = line or recorder.line_of_attribute(reason) or _line_in_script(script_cls, error)
    text = " ".join(reason.split()).rstrip(".:")
    text = text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"
    return f"{script_cls.__name__} does not compile for {target}: {text} ({line})."


def _chain(error: BaseException) -> list[BaseException]:
    """The error and its causes, outermost first."""
    errors = [error]
    while errors[-1].__cause__ is not None:
        errors.append(errors[-1].__cause__)
    return errors


def _explain(
    error: BaseException, target: str, recorder: Recorder, codegen: RecordingCodegen | None
) -> tuple[str, Location | None]:
    if isinstance(error, TilusProgramError):
        return _script_reason(error), _script_line(error)
    if isinstance(error, VerificationError):
        diagnostic = error.diagnostics.diagnostics[0]
        return _diagnostic_reason(diagnostic), recorder.line_of(diagnostic.context)
    if isinstance(error, LayoutInferenceError):
        return _layout_reason(error, recorder)
    if isinstance(error, CodeGenerationFailed) and codegen is not None:
        return _emitter_reason(error, target, recorder, codegen)
    if codegen is not None and codegen.contexts.tcgen05_ctx.allocated_tmemory_tensors and "dealloc" in str(error):
        return _tensor_memory_reason(recorder, codegen)
    return _plain_reason(error), None


def _forgot_super(error: BaseException) -> bool:
    return any(isinstance(each, AttributeError) and each.name == "_attrs" for each in _chain(error))


def _line_of_init(script_cls: Any) -> Location:
    code = script_cls.__init__.__code__
    return Location(code.co_filename, code.co_firstlineno)


def _line_in_frames(errors: Sequence[BaseException], recorder: Recorder) -> Location | None:
    """The line of the instruction that tilus held where it raised: the rules of layouts are no visitors."""
    frames = [frame for error in errors for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        for value in list(frame.f_locals.values()):
            line = recorder.line_of(value) if isinstance(value, Instruction) else None
            if line is not None:
                return line
    return None


def _script_reason(error: TilusProgramError) -> str:
    """The message, or that of the exception behind tilus's one phrase for all others."""
    causes = _chain(error)
    if error.msg.startswith("Internal exception") and len(causes) > 1:
        last = causes[-1]
        if isinstance(last, NotImplementedError) and not said(last):
            return phrases.untranslated(error.obj)
        if isinstance(last, NotImplementedError) and isinstance(last.args[0], tuple):
            return f"a call that returns {len(last.args[0])} values stands alone; give them names, as in `a, _ = ...`"
        return phrases.told(str(last.msg)) if isinstance(last, TilusProgramError) else _plain_reason(last)
    if error.msg.startswith("Unexpected assignee"):
        return _assignee_reason(error)
    return phrases.told(str(error.msg))


def _assignee_reason(error: TilusProgramError) -> str:
    """tilus names the type of what cannot be assigned; here the name, and whose it is."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "process_name_assign" and "bound_value" in frame.f_locals:
            name, value = frame.f_locals["name"], frame.f_locals["bound_value"]
            if _is_global_of(error.file, name, value):
                return f"`{name}` is also a global name of this file; tilus cannot assign it, so rename one of them"
            what = f"a Python {type(value).__name__}, which tilus cannot assign again"
            return f"`{name}` is {what}; declare it as a variable of the kernel, as in `{name}: int32 = ...`"
    return phrases.told(str(error.msg))


def _is_global_of(file: str, name: str, value: object) -> bool:
    modules = [module for module in list(sys.modules.values()) if getattr(module, "__file__", None) == file]
    return any(vars(module).get(name) is value for module in modules)


def _script_line(error: TilusProgramError) -> Location | None:
    line = getattr(error.obj, "lineno", None)
    return None if line is None else Location(error.file, error.start_lineno + line - 1)


def _diagnostic_reason(diagnostic: Diagnostic) -> str:
    items = [", ".join(map(str, item)) if isinstance(item, (list, tuple)) else item for item in diagnostic.items]
    return phrases.told(str(diagnostic.message).format(*items))


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
            way_out = "pass one of them through shared memory (store_shared, sync, load_shared)"
            what = type(inst).__name__.removesuffix("Inst")
            return f"{what} cannot work with the layouts of {values}; {way_out}", recorder.line_of(inst)
    if function is not None and "could infer" in str(error):
        missing = list(_without_layout(instructions(function)))
        if missing:
            values = ", ".join(dict.fromkeys(_named(recorder, tensor) for _, tensor in missing))
            way_out = "use it with a tensor that was loaded or multiplied, or give it one with self.annotate_layout"
            return f"no rule can infer a layout for {values}; {way_out}", recorder.line_of(missing[0][0])
    return _plain_reason(error), None


def _without_layout(insts: list[Instruction]) -> Iterator[tuple[Instruction, Any]]:
    spaces = (RegisterTensor, SharedTensor, TMemoryTensor)
    for inst in insts:
        for tensor in operands(inst):
            if isinstance(tensor, spaces) and tensor.optional_layout is None:
                yield inst, tensor


def _named(recorder: Recorder, tensor: Any) -> str:
    shape = "x".join(str(extent) for extent in tensor.shape)
    dtype = getattr(tensor.dtype, "name", tensor.dtype)
    return f"{recorder.name_of(tensor) or 'a tensor'} ({dtype} {shape})"


def _emitter_reason(
    error: CodeGenerationFailed, target: str, recorder: Recorder, codegen: RecordingCodegen
) -> tuple[str, Location | None]:
    for inst in instructions(codegen.function):
        if codegen.resolve_inst_emitter(type(inst)) is None:
            return lacking(type(inst).__name__, target), recorder.line_of(inst)
    return _plain_reason(error), None


def _tensor_memory_reason(recorder: Recorder, codegen: RecordingCodegen) -> tuple[str, Location | None]:
    leaked = codegen.contexts.tcgen05_ctx.allocated_tmemory_tensors
    values = ", ".join(sorted(_named(recorder, tensor) for tensor in leaked))
    lines = [recorder.line_of(inst) for inst in codegen.emitted if inst.output in leaked]
    reason = f"tensor memory is not deallocated before the end of the kernel: {values}"
    return reason, next(iter(lines), None)


def _plain_reason(error: BaseException) -> str:
    if isinstance(error, AttributeError) and error.name is not None:
        return _attribute_reason(error)
    text = said(error)
    if text and type(error).__module__ == "builtins" and isinstance(error, (KeyError, TypeError)):
        return phrases.told(f"{type(error).__name__}: {text}")
    if text:
        return phrases.told(text)
    if isinstance(error, NotImplementedError):
        return phrases.untranslated(None)
    frames = traceback.extract_tb(error.__traceback__)
    rule = (frames[-1].line or "").removeprefix("assert ") if frames else ""
    return phrases.told(f"tilus wants `{rule}`, which does not hold" if rule else type(error).__name__)


def _attribute_reason(error: AttributeError) -> str:
    """What has no such attribute, and which are near."""
    owner = "self" if isinstance(error.obj, Script) else f"a {type(error.obj).__name__}"
    near = difflib.get_close_matches(str(error.name), dir(error.obj), n=2)
    return f"{owner} has no {error.name}" + (f"; it has {' and '.join(near)}" if near else "")


def _line_in_script(script_cls: type, error: BaseException) -> Location:
    """The deepest line of the script's own file that was running, else the line of `__call__`."""
    code: Any = script_cls.__call__.__code__
    frames = [frame for cause in _chain(error) for frame in traceback.extract_tb(cause.__traceback__)]
    own = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    return Location(code.co_filename, (own[-1] if own else None) or code.co_firstlineno)
