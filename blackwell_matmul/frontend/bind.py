"""`bind`: from a script, its arguments and a schedule to the complete definition of one program.

tilus's own call path picks schedules in a process pool, writes to disk and needs a GPU. It also raises if a keyword is
part of the autotune space. Here a keyword restricts the space, and nothing is built.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blackwell_matmul.base.errors import BlackwellMatmulError, InputError
from blackwell_matmul.base.validation import attribute, integer, number, plain_text, same, shown, spelled
from blackwell_matmul.frontend.faults.tilus_compat import check_target, import_tilus, target_names
from blackwell_matmul.hardware.gpus import target_of
from blackwell_matmul.problem.elements import require_element
from blackwell_matmul.problem.problem import Schedule, as_pins


@dataclass(frozen=True, eq=False)
class Bound:
    """A script class with everything that one program depends on, and the arguments of one call.

    init_kwargs: for `__init__`. args: aligned with the parameters of `__call__`, defaults applied. consts: the
    parameters annotated int, float, bool or str. kernel_args: the others, with their values. divisibility: for each
    integer kernel argument that is not negative, the divisor that tilus compiles for. It is the greatest common divisor
    of the argument and the class's number in `divisors`, or 1. tilus assumes an argument with a known divisor to be >=
    0 (`analyze_scalar`), so negative ones have no entry.
    """

    script_cls: type
    init_kwargs: Mapping[str, Any]
    args: tuple[Any, ...]
    consts: Mapping[str, Any]
    kernel_args: Mapping[str, Any]
    divisibility: Mapping[str, int]


def bind(
    script: Any, args: Sequence[Any], *, schedule: Mapping[str, object] | Schedule | None = None, target: str
) -> Bound:
    """Return the first candidate of `bind_all`."""
    return bind_all(script, args, schedule=schedule, target=target)[0]


def bind_all(
    script: Any, args: Sequence[Any], *, schedule: Mapping[str, object] | Schedule | None = None, target: str
) -> list[Bound]:
    """Yield every way to build `script` for these arguments, best first; raise InputError if there is none.

    `script` is a tilus.Script class, the result of calling such a class, or an object with `script_cls` and `pins`. A
    class with a classmethod `complete(pins, args, target)` chooses its `__init__` arguments itself; any other class has
    an autotune space, and `schedule` keeps the matching rows of it.
    """
    import_tilus()
    check_target(target)
    script_cls, rows, pins, call = bind_call(script, args)
    wanted = _merge(script_cls, pins, as_pins(schedule))
    candidates = _candidates(script_cls, rows, wanted, call["args"], target)
    return [Bound(script_cls=script_cls, init_kwargs=candidate, **call) for candidate in candidates]


def bind_call(
    script: Any, args: Sequence[Any]
) -> tuple[type, list[dict[str, Any]] | None, Mapping[str, Any], dict[str, Any]]:
    """Return the script class, the rows that its instance already chose (or None), its pinned arguments, and the fields
    of `Bound` that depend on the call; raise InputError if `script` is no kernel, or is not called so."""
    script_cls, rows, pins = _unpack(script)
    check_functions(script_cls)
    return script_cls, rows, pins, _bind_call(script_cls, tuple(args))


DEFAULT_TARGET = "sm_100a"


def target_for(script: Any, target: object = None) -> str:
    """Return the target to build for: the given one, also by a GPU's name; else the class's own target; else
    `DEFAULT_TARGET`.

    A class may say in `targets`, a tuple, which there are for it, for the sentence that refuses any other.
    """
    script_cls = attribute(script, "script_cls") or script
    if target is not None:
        offered = attribute(script_cls, "targets")
        return check_target(target_of(target) or target, offered if isinstance(offered, tuple) else ())
    named = plain_text(attribute(script_cls, "target"))
    return named if named is not None and named in target_names() else DEFAULT_TARGET


def _unpack(script: Any) -> tuple[type, list[dict[str, Any]] | None, Mapping[str, Any]]:
    """Return the script class, the rows that its instance already chose (or None) and its pinned arguments."""
    from tilus import InstantiatedScript, Script

    if isinstance(script, InstantiatedScript):
        return script.script_cls, [dict(row) for row in script.schedules], {}
    if isinstance(script, type) and issubclass(script, Script):
        return script, None, {}
    script_cls = attribute(script, "script_cls")
    known = isinstance(script_cls, type) and issubclass(script_cls, Script)
    if known and isinstance(attribute(script, "pins"), Mapping):
        return script.script_cls, None, script.pins
    raise InputError(f"{shown(script)} is no kernel; give a tilus.Script class or what calling it returns.")


def check_functions(script_cls: type) -> None:
    """Raise InputError if `__init__` or `__call__` is no function; tilus reads the source of both."""
    for name in ("__init__", "__call__"):
        found = inspect.getattr_static(script_cls, name)
        if not inspect.isfunction(found):
            raise InputError(f"{name} of {script_cls.__name__} is {shown(found)}; it must be a function with self.")


def _merge(script_cls: type, pins: Mapping[str, Any], schedule: Mapping[str, Any]) -> dict[str, Any]:
    """Return pins and schedule together; a name that `__init__` lacks or two values for one name are refused."""
    known, open_ended = _init_parameters(script_cls)
    for name in (*pins, *schedule):
        if name not in known and not open_ended:
            raise InputError(f"{script_cls.__name__} has no {_offered(script_cls, name, known)}.")
    for name in pins:
        if name in schedule and not same(schedule[name], pins[name]):
            raise InputError(
                f"{script_cls.__name__} was made with {name}={shown(pins[name])} and the schedule says "
                f"{name}={shown(schedule[name])}; give one of the two."
            )
    return {**pins, **schedule}


def _offered(script_cls: type, name: object, known: Iterable[str]) -> str:
    """Return the names that a wrong name is none of: a class's `knobs`, or the parameters of its `__init__`."""
    knobs = attribute(script_cls, "knobs")
    if isinstance(knobs, tuple):
        return f"knob {shown(name)}; its knobs are {', '.join(map(str, knobs))}"
    names = ", ".join(known)
    return f"schedule parameter {shown(name)}; {f'its parameters are {names}' if names else 'it has no parameters'}"


def _init_parameters(script_cls: type) -> tuple[dict[str, inspect.Parameter], bool]:
    """Return the parameters of `__init__` after self, by name, and whether it takes any other keyword."""
    parameters = list(inspect.signature(script_cls.__init__).parameters.values())[1:]  # type: ignore[misc]
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    known = {parameter.name: parameter for parameter in parameters if parameter.kind not in kinds}
    return known, any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


# --- candidates


def _candidates(
    script_cls: type, rows: list[dict[str, Any]] | None, wanted: dict[str, Any], args: tuple[Any, ...], target: str
) -> list[dict[str, Any]]:
    complete = getattr(script_cls, "complete", None)
    if rows is None and callable(complete):
        return [_completed(script_cls, complete, wanted, args, target)]
    space = _space(script_cls)
    tuned = {name for row in space for name in row}
    rows = space if rows is None else rows
    restricting = {name: value for name, value in wanted.items() if name in tuned}
    kept = [{**row, **wanted} for row in rows if all(same(row[name], restricting[name]) for name in restricting)]
    if not kept:
        raise InputError(_no_candidate(script_cls, rows, restricting))
    return [_with_defaults(script_cls, row) for row in kept]


def _completed(
    script_cls: type, complete: Callable[..., Any], wanted: dict[str, Any], args: tuple[Any, ...], target: str
) -> dict[str, Any]:
    try:
        row = complete(wanted, args, target)
    except BlackwellMatmulError:
        raise
    except Exception as error:
        raise InputError(f"complete of {script_cls.__name__} raises {spelled(error)}.") from error
    if not isinstance(row, Mapping):
        raise InputError(f"complete of {script_cls.__name__} returned {shown(row)}; it must return a dict.")
    return dict(row)


def _space(script_cls: Any) -> list[dict[str, Any]]:
    """Return the rows of the autotune space, in tilus's order; one empty row where there is none.

    tilus splits the names of a subspace at ", " only; here a bare comma does as well.
    """
    debug, space = script_cls.debug_schedule, getattr(script_cls, "_autotune_space", {})
    for name, value in (("debug_schedule", debug or {}), ("_autotune_space", space)):
        if not isinstance(value, Mapping):
            raise InputError(f"{name} of {script_cls.__name__} is {shown(value)}; it must be a dict.")
    if debug:
        return [dict(debug)]
    subspaces = []
    for key, choices in space.items():
        names = [name.strip() for name in key.split(",")]
        subspaces.append([dict(zip(names, choice if len(names) > 1 else [choice], strict=True)) for choice in choices])
    return [{k: v for part in parts for k, v in part.items()} for parts in itertools.product(*subspaces)]


def _no_candidate(script_cls: type, rows: list[dict[str, Any]], restricting: Mapping[str, Any]) -> str:
    asked = ", ".join(f"{name}={shown(value)}" for name, value in restricting.items())
    if not rows:
        return f"The autotune space of {script_cls.__name__} has no schedule."
    choices = {name: list(dict.fromkeys(shown(row[name]) for row in rows)) for name in restricting}
    offered = "; ".join(f"{name}: {_listed(values)}" for name, values in choices.items())
    if all(shown(value) in choices[name] for name, value in restricting.items()):
        offered += ", though not in this combination"
    return f"No schedule of {script_cls.__name__} has {asked}; its space offers {offered}."


def _listed(values: Sequence[str], most: int = 12) -> str:
    return ", ".join([*values[:most], f"and {len(values) - most} more"] if len(values) > most else values)


def _with_defaults(script_cls: type, row: dict[str, Any]) -> dict[str, Any]:
    known, open_ended = _init_parameters(script_cls)
    surplus = [name for name in row if name not in known]
    if surplus and not open_ended:
        names = ", ".join(map(shown, surplus))
        raise InputError(f"The space of {script_cls.__name__} names {names}, which its __init__ does not take.")
    empty = inspect.Parameter.empty
    missing = [name for name, p in known.items() if name not in row and p.default is empty]
    if missing:
        names, every = ", ".join(missing), ", ".join(known)
        raise InputError(
            f"{script_cls.__name__} needs a value for {names}; give it in the schedule, whose parameters are {every}."
        )
    return {**{name: p.default for name, p in known.items() if p.default is not empty}, **row}


# --- the arguments of the call


def _bind_call(script_cls: type, args: tuple[Any, ...]) -> dict[str, Any]:
    """Return the fields of `Bound` that depend on the call."""
    params = _call_parameters(script_cls)
    args = _complete_args(script_cls, params, args)
    values = [
        _check(script_cls.__name__, name, annotation, value)
        for name, annotation, value in zip(params.param_names, params.param_types, args, strict=True)
    ]
    named = [(params.param_names[i], values[i]) for i in range(len(values))]
    divisors = getattr(script_cls, "divisors", {})
    return {
        "args": tuple(values),
        "consts": dict(named[i] for i in params.const_params),
        "kernel_args": dict(named[i] for i in params.kernel_params),
        "divisibility": {
            name: math.gcd(value, divisors.get(name, 1))
            for name, value in (named[i] for i in params.tuning_params)
            if value >= 0
        },
    }


def _call_parameters(script_cls: type) -> Any:
    """Return tilus's analysis of the parameters of `__call__`; its errors are raised as InputError."""
    from tilus.lang.instantiated_script import CallParameters

    from blackwell_matmul.frontend.messages.parameters import no_kernel

    try:
        return CallParameters(script_cls)
    except ValueError as error:
        raise no_kernel(script_cls, error) from error


def _complete_args(script_cls: type, params: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    names = params.param_names
    defaults = [p.default for p in list(params.signature.parameters.values())[1:]]
    required = sum(default is inspect.Parameter.empty for default in defaults)
    if not required <= len(args) <= len(names):
        count = str(required) if required == len(names) else f"{required} to {len(names)}"
        raise InputError(
            f"{script_cls.__name__} takes {count} argument{'s' * (count != '1')} ({', '.join(names)}) "
            f"but got {len(args)}."
        )
    return (*args, *defaults[len(args) :])


def _check(kernel: str, name: str, annotation: Any, value: Any) -> Any:
    """Return `value` as the kernel gets it; raise InputError if it does not fit the annotation."""
    from tilus.hidet.ir.type import DataType

    if isinstance(annotation, DataType):
        return _check_scalar(kernel, name, annotation, value)
    if isinstance(annotation, type):
        return _check_const(kernel, name, annotation, value)
    address = integer(value, 0, 2**64 - 1)
    if address is not None:
        return address
    if not _is_tensor(value):
        raise InputError(f"{name} of {kernel} is {shown(value)}; it must be a tensor, an array or an address.")
    require_element(kernel, name, pointee(annotation), value)
    return value


def pointee(annotation: Any) -> str:
    """Return the name of the type that a pointer's annotation points to; "" for void_p."""
    from tilus.hidet.ir.type import DataType

    base = getattr(annotation, "base_type", None)
    return str(base.name) if isinstance(base, DataType) else ""


def _is_tensor(value: object) -> bool:
    import numpy
    import torch

    return isinstance(value, (numpy.ndarray, torch.Tensor))


_CONSTS: dict[type, Callable[[Any], object]] = {
    bool: lambda value: value if isinstance(value, bool) else None,
    int: lambda value: integer(value, -(2**63), 2**63 - 1),
    float: number,
    str: plain_text,
}


def _check_const(kernel: str, name: str, annotation: type, value: Any) -> Any:
    found = _CONSTS[annotation](value)
    if found is None:
        size = ", of at most 64 bits" if annotation is int else ""
        raise InputError(f"{name} of {kernel} is {shown(value)}; it must be of type {annotation.__name__}{size}.")
    return found


def _check_scalar(kernel: str, name: str, annotation: Any, value: Any) -> Any:
    """Return a scalar argument of the kernel; InputError if it is outside of its type's range."""
    if annotation.is_integer():
        return _check_integer(kernel, name, annotation, value)
    from blackwell_matmul.frontend.faults.tilus_arithmetic import overflows  # imports tilus at its top

    found = number(value)
    if found is None or (annotation.is_float() and overflows(found, annotation)):
        fits = f"{annotation.name}{_or_pointer(name, annotation, value)}"
        raise InputError(f"{name} of {kernel} is {shown(value)}; it must be a number that fits {fits}.")
    return found if annotation.is_float() else value


def _or_pointer(name: str, annotation: Any, value: Any) -> str:
    """Return the hint for a tensor: a `~` before the type takes a pointer. For any other value return ""."""
    return f", or annotate a pointer to a tensor with {name}: ~{annotation.name}" if _is_tensor(value) else ""


def _check_integer(kernel: str, name: str, annotation: Any, value: Any) -> int:
    # tilus counts bool among the integers, and it has no limits to ask for
    flag = annotation.name == "bool"
    low, high = (0, 1) if flag else (int(annotation.min_value), int(annotation.max_value))
    high = min(high, 2**63 - 1)  # tilus computes uint64 with other integers in int64
    found = integer(int(value) if flag and isinstance(value, bool) else value, low, high)
    if found is None:
        raise InputError(
            f"{name} of {kernel} is {shown(value)}; it must be an integer, and {annotation.name} holds {low} to {high}"
            f"{' in tilus, which computes with it in int64' * (annotation.name == 'uint64')}"
            f"{_or_pointer(name, annotation, value)}."
        )
    return found
