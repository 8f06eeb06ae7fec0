"""`Script`, the base class of every kernel of this package: a kernel runs on the device of its tensors.

CPU tensors run in the simulator, CUDA tensors on their GPU. To tilus a `Script` is an ordinary `tilus.Script`. Only a
call of the class differs: it returns a `Kernel`, not tilus's JIT instance.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from blackwell_matmul.base.errors import InputError, SimulationError, UnsupportedError
from blackwell_matmul.base.validation import attribute, shown
from blackwell_matmul.frontend.faults.tilus_compat import import_tilus

import_tilus()

import tilus  # noqa: E402

if TYPE_CHECKING:
    from blackwell_matmul.runtime.script_calls import ScriptCalls
    from blackwell_matmul.simulator.findings import Run


class Kernel:
    """A script class with pinned knobs, ready to be called on tensors.

    script_cls: the class. pins: fixed arguments of its `__init__`; the others are chosen per call.
    """

    _gpu: ScriptCalls | None = None

    def __init__(self, script_cls: type[Script], pins: Mapping[str, object]) -> None:
        self.script_cls = script_cls
        self.pins: Mapping[str, object] = MappingProxyType(dict(pins))

    def __reduce__(self) -> tuple[object, ...]:
        return Kernel, (self.script_cls, dict(self.pins))

    def __repr__(self) -> str:
        return f"{self.script_cls.__name__}({', '.join(f'{name}={shown(value)}' for name, value in self.pins.items())})"

    def __call__(self, *args: object, **kwargs: object) -> Run | Any:
        """Run on the device of the tensors among the arguments and write the outputs in place.

        CPU tensors are simulated, and a `Run` is returned. For CUDA tensors the kernel is compiled on first use and
        launched on torch's current stream. That call returns None at once, like torch's operations. The type is `Run |
        Any`, because types do not distinguish devices.

        Raises InputError for arguments that break a rule. Raises UnsupportedError for a device that cannot run the
        kernel, and DriverError if the driver refuses. Raises SimulationError if a finding is an error, after writing
        the outputs. `simulate` takes the same arguments and returns such findings.
        """
        if self._gpu is not None and not kwargs and self._gpu.attempt(args):
            return None
        name = self.script_cls.__name__
        check = getattr(self.script_cls, "check_arguments", None)
        takes = _without_self(self.script_cls.__call__) if check is None else inspect.signature(check)
        arguments = _bind(takes, f"{name} is called with", args, kwargs)
        device_type = _device_type(name, arguments)
        if check is not None:
            check(*arguments.values())
        if device_type == "cuda":
            self._launch(tuple(arguments.values()))
            return None
        from blackwell_matmul.simulator import simulate

        run = simulate(self, *arguments.values())
        _raise_errors(name, run)
        return run

    def _launch(self, arguments: Sequence[object]) -> None:
        if self._gpu is None:
            from blackwell_matmul.runtime.script_calls import ScriptCalls

            self._gpu = ScriptCalls(self)
        self._gpu.launch(arguments)


class Script(tilus.Script):
    """Base class of a kernel: write `__init__` (the knobs) and `__call__` (the kernel) in tilus's language.

    `MyKernel(block_m=128)` is a `Kernel`: call it on tensors. Unknown knobs raise InputError. A class may have two
    classmethods. `check_arguments` gets a call's arguments by their public names and raises InputError. `complete(pins,
    args, target)` returns all arguments of `__init__`.
    """

    knobs: ClassVar[tuple[str, ...] | None] = None
    """Names of the parameters of `__init__` that a user may pin. None: all parameters, also by position."""

    def __new__(cls, *args: object, **kwargs: object) -> Kernel:  # type: ignore[misc]
        _require_knobs(cls, args, kwargs)
        return Kernel(cls, _bind(_without_self(cls.__init__), f"{cls.__name__} has", args, kwargs, partial=True))


def _require_knobs(script_cls: type[Script], args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    if script_cls.knobs is None:
        return
    name, known = script_cls.__name__, ", ".join(script_cls.knobs)
    if args:
        raise InputError(f"{name} takes its knobs by name ({known}); it got {shown(args[0])} without one.")
    for knob in kwargs:
        if knob not in _without_self(script_cls.__init__).parameters:
            raise InputError(f"{name} has no knob {shown(knob)}; its knobs are {known}.")


def _without_self(function: Callable[..., object]) -> inspect.Signature:
    signature = inspect.signature(function)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _bind(
    signature: inspect.Signature,
    verb: str,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    partial: bool = False,
) -> dict[str, object]:
    """Return arguments by parameter name; raise InputError, which lists the parameters, if the arguments do not fit."""
    try:
        bound = (signature.bind_partial if partial else signature.bind)(*args, **kwargs)
    except TypeError as error:
        names, what = list(signature.parameters), "knobs" if partial else "arguments"
        known = f"the {what} {', '.join(names)}" if names else f"no {what}"
        raise InputError(f"{verb} {known}: {error}.") from None
    if not partial:
        bound.apply_defaults()
    return _flatten(bound)


def _flatten(bound: inspect.BoundArguments) -> dict[str, object]:
    """Return the bound arguments by name, including the contents of `**kwargs`."""
    values: dict[str, object] = {}
    for name, value in bound.arguments.items():
        gathers = bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        values.update(value if gathers else {name: value})
    return values


def _devices(arguments: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the names of the tensors among the arguments, by device; arrays without a device are on the CPU."""
    devices: dict[str, list[str]] = {}
    for name, value in arguments.items():
        if attribute(value, "shape") is not None and attribute(value, "dtype") is not None:
            devices.setdefault(str(attribute(value, "device") or "cpu"), []).append(name)
    return devices


def _device_type(kernel: str, arguments: Mapping[str, object]) -> str:
    """Return the tensors' device type, "cpu" or "cuda"."""
    devices = _devices(arguments)
    if len(devices) > 1:
        where = "; ".join(f"{', '.join(names)} on {device}" for device, names in devices.items())
        raise InputError(f"{kernel} got tensors on different devices ({where}): put all of them on one.")
    device = next(iter(devices), "cpu")
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise UnsupportedError(
            f"{kernel} got tensors on {device}: pass CUDA tensors to run it, or CPU tensors to simulate it."
        )
    return kind


def _raise_errors(kernel: str, run: Run) -> None:
    if run.ok:
        return
    errors = [finding for finding in run.findings if finding.severity.value == "error"]
    count = "1 error:" if len(errors) == 1 else f"{len(errors)} errors, the first being"
    first = str(errors[0]).removeprefix("error ")
    raise SimulationError(f"{kernel} ran with {count} {first} (simulate() returns them instead of raising).")
