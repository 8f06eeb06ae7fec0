"""Scripts from a user's file: loading, example arguments and references.

`load("my_kernel.py:MyScript")` runs the file as a separate module. The module's name hides no other module, its imports
from its folder are its own (`helper_modules.py`), and no bytecode is written. Two conventions define a call:

- `__call__(m, n, k, a, b, c)`, with any names, is a matmul: C[m, n] = A[m, k] @ B[n, k].T in fp16 or bf16.
- `example_args(m, n, k)` in the class's module returns the arguments of one call of any kind.

`reference(*args)` in the module takes a copy of these arguments, before the run. It returns the expected outputs by
parameter name or position: `{"y_ptr": tensor}`. `tolerance = (rtol, atol)` replaces the tolerances of `outputs`.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from blackwell_matmul import kernels
from blackwell_matmul.base.digests import digest
from blackwell_matmul.base.errors import BlackwellMatmulError, InputError
from blackwell_matmul.base.validation import attribute, number, plain_text, shown, spelled
from blackwell_matmul.frontend import import_tilus
from blackwell_matmul.frontend.bind import check_functions
from blackwell_matmul.harness.calls.helper_modules import HelperModules, Loader
from blackwell_matmul.kernels import known_rung
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED
from blackwell_matmul.problem.form import Form
from blackwell_matmul.problem.problem import KNOBS, SIXTEEN_BITS, TORCH_NAMES, Problem, Schedule, as_pins

if TYPE_CHECKING:
    from blackwell_matmul.harness.outputs import Tolerance

EXAMPLE = "my_kernel.py:MyScript"
DEFAULT_SIZE = (1024, 1024, 1024)
_FILE = re.compile(r"(?P<file>.*\.py)(:(?P<script>[^/\\]*))?", re.DOTALL)


Pins = str | Schedule | Mapping[str, object] | None
"""Pinned arguments of `__init__`, as text (`block_m=128,swizzle=true`), as a `Schedule`, or by name."""


@dataclass(frozen=True)
class UserKernel:
    """A script class, and the functions of its module; None for a missing function. source: text that named the kernel;
    "": a class was given."""

    script_cls: type
    folder: Path | None
    example_args: Callable[..., Any] | None = None
    reference: Callable[..., Any] | None = None
    tolerance: Tolerance | None = None
    source: str = ""

    @property
    def name(self) -> str:
        return self.script_cls.__name__

    @property
    def is_rung(self) -> bool:
        return bool(self.source) and not names_a_file(self.source)

    @property
    def is_of_the_space(self) -> bool:
        """Return True if the kernel has knobs, and all are fields of `Schedule`."""
        knobs = getattr(self.script_cls, "knobs", None) or ()
        return bool(knobs) and KNOBS.keys() >= set(knobs)

    @property
    def takes_forms(self) -> bool:
        """Return True if the kernel computes a product of any `Form` with the epilogues of `Epilogue`."""
        from blackwell_matmul.kernels.parts.epilogue import EpilogueScript

        found = self.script_cls
        finishes = issubclass(found, EpilogueScript) and found.finish is EpilogueScript.finish
        return finishes and "a_ptr" in self.parameters

    @property
    def takes_scales(self) -> bool:
        """Return True if the kernel multiplies block-scaled operands."""
        from blackwell_matmul.kernels.host.block_scaled import ScaledMatmulScript

        return issubclass(self.script_cls, ScaledMatmulScript)

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """Return the parameters of `__call__`, by name, without self."""
        return dict(list(inspect.signature(self.script_cls.__call__).parameters.items())[1:])

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Make the file's folder importable inside the block, and turn an exit of its code into InputError."""
        try:
            with importable(self.folder):
                yield
        except SystemExit as error:
            raise InputError(f"{self.name} exits while it is compiled; a kernel cannot.") from error


def names_a_file(text: str) -> bool:
    """Return True for `my_kernel.py` or `my_kernel.py:MyScript`, False for a kernel's name."""
    return _FILE.fullmatch(text) is not None


def check_name(kernel: str) -> None:
    """Raise InputError unless the text is a kernel's name or a readable file. The file is not run."""
    named = _FILE.fullmatch(kernel)
    if named is None:
        known_rung(kernel)
    else:
        _existing(named["file"])


def find(kernel: Any) -> UserKernel:
    """Return the class and the functions of its module; raise InputError for a value that is no kernel."""
    if isinstance(kernel, UserKernel):
        return kernel
    if isinstance(kernel, str) and not names_a_file(kernel):
        return UserKernel(kernels.rung(kernel), None, source=kernel)
    script: Any = kernel if isinstance(kernel, str) else attribute(kernel, "script_cls") or kernel
    return load(script)


def load(script: str | type) -> UserKernel:
    """Return the class and the functions of its module.

    script: a class, or `my_kernel.py:MyScript`. The class's name may be left out if the file has one script.
    """
    import_tilus()
    if isinstance(script, str):
        named = _FILE.fullmatch(script)
        if named is None:
            raise InputError(f"script is {shown(script)}; give a file and a class, such as {EXAMPLE!r}.")
        module = load_module(named["file"])
        return replace(_with_module(_script_class(module, named["script"] or ""), module), source=script)
    if not _is_script(script):
        raise InputError(f"script is {shown(script)}; give a tilus.Script class, or {EXAMPLE!r}.")
    return _with_module(script, sys.modules.get(script.__module__))


def _is_script(value: object) -> bool:
    import tilus

    return isinstance(value, type) and issubclass(value, tilus.Script)


def _with_module(script_cls: type, module: ModuleType | None) -> UserKernel:
    check_functions(script_cls)
    found: dict[str, Any] = {name: getattr(module, name, None) for name in ("example_args", "reference", "tolerance")}
    for name in ("example_args", "reference"):
        if found[name] is not None and not callable(found[name]):
            raise InputError(f"{name} beside {script_cls.__name__} is {shown(found[name])}; it must be a function.")
    _check_tolerance(script_cls, found["tolerance"])
    file = getattr(module, "__file__", None)
    return UserKernel(script_cls, Path(file).resolve().parent if file else None, **found)


def _check_tolerance(script_cls: type, value: Any) -> None:
    parts = [number(part) for part in value] if isinstance(value, (tuple, list)) else []
    if value is not None and not (len(parts) == 2 and all(part is not None and part >= 0 for part in parts)):
        wanted = "it must be (rtol, atol), two numbers from 0"
        raise InputError(f"tolerance beside {script_cls.__name__} is {shown(value)}; {wanted}.")


# --- the file


def load_module(path: str) -> ModuleType:
    """Run a file as a module with a unique name, and return the module; raise InputError if the file fails."""
    file = _existing(path)
    name = f"_script_{re.sub(r'[^0-9A-Za-z]', '_', file.stem)}_{digest(bytes(file))[:8]}"
    loader = Loader(name, str(file), name, HelperModules(file.parent, name))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # inspect finds a class's source by sys.modules
    try:
        with importable(file.parent):
            loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(name, None)
        if isinstance(error, (Exception, SystemExit)):
            raise InputError(_load_failure(path, file, error)) from error
        raise
    return module


def _existing(path: str) -> Path:
    try:
        file = Path(path).resolve()
        if file.is_file():
            file.open("rb").close()
            return file
        reason = "it is a folder" if file.is_dir() else "there is no such file"
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    raise InputError(f"cannot read {shown(path)}: {reason}.")


_found: list[tuple[list[str], bool]] = []
"""`sys.path` and `sys.dont_write_bytecode` before each active block of `importable`, of all threads."""

_entering = threading.Lock()


@contextmanager
def importable(folder: Path | None) -> Iterator[None]:
    """Allow imports from `folder` inside the block, after all libraries, and write no bytecode.

    Blocks of several threads may overlap. The end of the last block restores the state before the first block.
    """
    with _entering:
        _found.append((list(sys.path), sys.dont_write_bytecode))
        sys.path[len(sys.path) :] = [str(folder)] if folder else []
        sys.dont_write_bytecode = True
    try:
        yield
    finally:
        with _entering:
            path, written = _found.pop()
            if not _found:
                sys.path[:], sys.dont_write_bytecode = path, written


def _load_failure(path: str, file: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        where = Path(error.filename).name if error.filename and Path(error.filename) != file else path
        return f"{where}:{error.lineno or 1} is not Python: {' '.join(error.msg.split())[:300].rstrip('.')}."
    if isinstance(error, SystemExit):
        return f"{path} exits while it is loaded; put what it does under `if __name__ == '__main__':`."
    return f"{_line_of(error, file, path)} raises {spelled(error)}."


def _line_of(error: BaseException, file: Path | None, shown: str) -> str:
    """Return the innermost line of the user's file in an error's traceback, such as `my_kernel.py:12`."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if file is not None and frame.filename == str(file)]
    return f"{shown}:{lines[-1]}" if lines else shown


def _script_class(module: ModuleType, name: str) -> type:
    own = [key for key, value in vars(module).items() if _is_script(value) and value.__module__ == module.__name__]
    file = Path(str(module.__file__)).name
    scripts = f"its scripts are {', '.join(own)}" if own else "it has no tilus.Script class"
    if not name:
        if len(own) == 1:
            return vars(module)[own[0]]
        several = f"several scripts ({', '.join(own)}); say which, as in {file}:{(own or [''])[0]}"
        which = several if own else "no tilus.Script class"
        raise InputError(f"{file} has {which}.")
    found = vars(module).get(name)
    if found is None:
        raise InputError(f"{file} has no class {name[:100]!r}; {scripts}.")
    if not _is_script(found):
        kind = "another class" if isinstance(found, type) else f"an object of type {type(found).__name__}"
        raise InputError(f"{name} in {file} is no tilus.Script class but {kind}; {scripts}.")
    return found


# --- the call


def example_call(kernel: UserKernel, size: Sequence[int] | None) -> tuple[Any, ...]:
    """Return the arguments that `example_args` returns. size: (m, n, k); None: its defaults."""
    assert kernel.example_args is not None
    sizes = () if size is None else tuple(size)
    try:
        inspect.signature(kernel.example_args).bind(*sizes)
    except TypeError:
        trouble = "does not take M, N and K" if sizes else "cannot be called without a size"
        raise InputError(
            f"example_args beside {kernel.name} {trouble}; it must be example_args(m, n, k), with defaults where "
            "the size may be left out."
        ) from None
    args = call_beside(kernel, kernel.example_args, *sizes)
    if not isinstance(args, (tuple, list)):
        raise InputError(f"example_args beside {kernel.name} returned {shown(args)}; it must return a tuple.")
    _require_each(kernel, args)
    return tuple(args)


def _require_each(kernel: UserKernel, args: Sequence[Any]) -> None:
    """Raise InputError unless the kernel's `__call__` takes this number of arguments."""
    required = [name for name, each in kernel.parameters.items() if each.default is inspect.Parameter.empty]
    if not len(required) <= len(args) <= len(kernel.parameters):
        count = f"{len(required)} to " * (len(required) < len(kernel.parameters)) + str(len(kernel.parameters))
        names = ", ".join(kernel.parameters)
        raise InputError(f"{kernel.name} takes {count} arguments ({names}) but got {len(args)} from example_args.")


def call_beside(kernel: UserKernel, function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a function in the user's file. Its errors become an InputError with the line."""
    try:
        with importable(kernel.folder):
            return function(*args)
    except BlackwellMatmulError:
        raise
    except (Exception, SystemExit) as error:
        code = getattr(function, "__code__", None)
        file = Path(code.co_filename) if code else None
        where = _line_of(error, file, file.name if file else "it")
        name = getattr(function, "__name__", "a function")
        raise InputError(f"{name} beside {kernel.name} cannot be used: {where} raises {spelled(error)}.") from error


def expected_outputs(kernel: UserKernel, args: tuple[Any, ...]) -> dict[int, Any]:
    """Return the outputs of `reference` for these arguments, by the argument's position."""
    assert kernel.reference is not None
    names = list(kernel.parameters)
    outputs = call_beside(kernel, kernel.reference, *args)
    if not isinstance(outputs, Mapping) or not outputs:
        pointers = [name for name, value in zip(names, args) if hasattr(value, "shape")]
        example = f"{{{(pointers or names or ['c_ptr'])[-1]!r}: tensor}}"
        raise InputError(f"reference beside {kernel.name} returned {shown(outputs)}; return a dict like {example}.")
    return {_position(kernel, names[: len(args)], key, args): value for key, value in outputs.items()}


def _position(kernel: UserKernel, names: list[str], key: object, args: tuple[Any, ...]) -> int:
    position = names.index(key) if isinstance(key, str) and key in names else key
    known = isinstance(position, int) and not isinstance(position, bool) and 0 <= position < len(args)
    if not known or not hasattr(args[position], "shape"):  # type: ignore[call-overload]
        tensors = ", ".join(name for name, value in zip(names, args) if hasattr(value, "shape"))
        raise InputError(f"reference beside {kernel.name} names {shown(key)}; its tensors are {tensors or 'none'}.")
    return position  # type: ignore[return-value]


# --- the matmul convention

_PROBLEM_DTYPES = {TORCH_NAMES[dtype]: dtype for dtype in SIXTEEN_BITS}


def matmul_problem(kernel: UserKernel, size: Sequence[int], dtype: str | None, form: Form, batches: int) -> Problem:
    """Return the problem of a script that is called with (m, n, k, a, b, c). Typed pointers determine its type.

    size: m, n and k; empty: 1024 each. Raises InputError if pointers and dtype do not fit a matmul.
    """
    pointers = {} if kernel.is_rung or kernel.takes_forms or kernel.takes_scales else _matmul_pointers(kernel)
    typed = {name: pointer for name, pointer in pointers.items() if pointer != "void"}
    for name, pointer in typed.items():
        if pointer not in _PROBLEM_DTYPES or pointer != next(iter(typed.values())):
            raise InputError(
                f"{kernel.name} is called with {name}: ~{pointer}; as a matmul, its pointers must be all ~float16, "
                "all ~bfloat16, or void_p; for other types write example_args and reference beside the class."
            )
        if dtype is not None and plain_text(dtype) != _PROBLEM_DTYPES[pointer]:
            raise InputError(
                f"dtype is {shown(dtype)} and {kernel.name} is called with {name}: ~{pointer}; leave dtype out."
            )
    known = next(iter(BLOCK_SCALED)) if kernel.takes_scales else "fp16"
    default = next((_PROBLEM_DTYPES[pointer] for pointer in typed.values()), known)
    m, n, k = size or DEFAULT_SIZE
    return Problem(m, n, k, default if dtype is None else dtype, form, batches)


def _matmul_pointers(kernel: UserKernel) -> dict[str, str]:
    """Return the element types of the three pointers, by name; raise InputError if `__call__` is not a matmul's."""
    kinds = {name: _annotation(parameter.annotation) for name, parameter in kernel.parameters.items()}
    if "text" in kinds.values():
        raise InputError(
            f"the parameters of {kernel.name}.__call__ are annotated with text, and tilus needs the types themselves: "
            "remove `from __future__ import annotations` and the quotes."
        )
    numbers, pointers = list(kinds.items())[:3], dict(list(kinds.items())[3:])
    if len(kinds) == 6 and all(kind == "integer" for _, kind in numbers):
        if all(kind.startswith("~") for kind in pointers.values()):
            return {name: kind[1:] for name, kind in pointers.items()}
    raise InputError(
        f"{kernel.name} is called with ({', '.join(kinds)}), and nothing says what these are: make it (m, n, k, a, b, "
        "c), annotated as three integers and three pointers, for C = A @ B.T, or write example_args(m, n, k) beside "
        "the class, which returns the arguments of a call."
    )


def _annotation(annotation: Any) -> str:
    """Return the kind of a parameter: `integer`, a pointer such as `~float16`, `text`, or `other`."""
    from tilus.hidet.ir.type import DataType, PointerType

    if isinstance(annotation, str):
        return "text"
    if annotation is int or (isinstance(annotation, DataType) and annotation.is_integer()):
        return "integer"
    if isinstance(annotation, PointerType):
        base = annotation.base_type
        return f"~{base.name}" if isinstance(base, DataType) else "~void" if "Void" in type(base).__name__ else "other"
    return "other"


# --- the schedule


def pins_of(found: UserKernel, schedule: Pins, problem: Problem | None = None) -> dict[str, object]:
    """Return the pinned arguments of the kernel's `__init__`, in the types of its annotations.

    problem: problem of a matmul. Its type is pinned as `dtype` if `__init__` requires a dtype that the schedule lacks.
    """
    if isinstance(schedule, str) and found.is_rung:
        pins: dict[str, object] = dict(kernels.parse_schedule(found.source, schedule))
    elif schedule is None:
        pins = {}
    else:
        pins = read_schedule(found, schedule if isinstance(schedule, str) else as_pins(schedule))
    if problem is None or "dtype" in pins or not _requires_dtype(found):
        return pins
    return {**pins, "dtype": _data_type("dtype", problem.dtype)}


def read_schedule(kernel: UserKernel, schedule: str | Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of `__init__` in a text such as `swizzle=true,stages=3`, in the types of its annotations.

    Values without an annotation become an integer, a number, True, False or None if they look like one. A mapping is
    unchanged, except names of tilus types.
    """
    parameters = inspect.signature(kernel.script_cls.__init__).parameters  # type: ignore[misc]
    pairs = _pairs(schedule) if isinstance(schedule, str) else dict(schedule)
    parse = isinstance(schedule, str)
    wanted = {name: each.annotation for name, each in parameters.items()}
    nothing = inspect.Parameter.empty
    return {name: _value(name, value, wanted.get(name, nothing), parse) for name, value in pairs.items()}


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in word.partition("="))
        if not equals or not name.isidentifier():
            raise InputError(f"schedule has {shown(word)}; it must be NAME=VALUE, with commas between.")
        if name in pairs:
            raise InputError(f"schedule names {name[:100]!r} twice; give it once.")
        pairs[name] = value
    return pairs


_WORDS = {"true": True, "false": False, "none": None}
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def _value(name: str, value: Any, wanted: Any, parse: bool) -> Any:
    from tilus.hidet.ir.type import DataType

    if isinstance(value, str) and (wanted is DataType or "DataType" in str(wanted)):
        return _data_type(name, value)
    if not parse or wanted is str:
        return value
    read = _literal(value)
    if (wanted is int and type(read) is not int) or (wanted is bool and type(read) is not bool):
        kind = "an integer" if wanted is int else "true or false"
        raise InputError(f"schedule gives {name} the value {shown(value)}; it must be {kind}.")
    if wanted is float and (isinstance(read, bool) or not isinstance(read, (int, float))):
        raise InputError(f"schedule gives {name} the value {shown(value)}; it must be a number.")
    return float(read) if wanted is float else read


def _literal(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def _data_type(name: str, text: str) -> Any:
    import tilus
    from tilus.hidet.ir.type import DataType

    aliases = {short: long for long, short in _PROBLEM_DTYPES.items()}
    found = getattr(tilus, aliases.get(text, text), None)
    if not isinstance(found, DataType):
        raise InputError(f"schedule gives {name} the value {shown(text)}; it must be a tilus type such as float16.")
    return found


def _requires_dtype(kernel: UserKernel) -> bool:
    from tilus.hidet.ir.type import DataType

    parameter = inspect.signature(kernel.script_cls.__init__).parameters.get("dtype")  # type: ignore[misc]
    chooses = callable(getattr(kernel.script_cls, "complete", None))
    asks = parameter is not None and parameter.default is inspect.Parameter.empty and parameter.annotation is DataType
    return asks and not chooses
