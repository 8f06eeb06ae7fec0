"""Calls of scripts on CUDA tensors: compiled on first use for the tensors' GPU, then launched.

A process keeps compiled code by all its inputs: class, arguments of `__init__`, constants of the call, divisibility,
GPU. Most rungs have n and k as constants, the products no size. The schedule is chosen as for CPU tensors, for the
tensors' GPU.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from blackwell_matmul.base.errors import BlackwellMatmulError, CompileError, InputError, UnsupportedError
from blackwell_matmul.compiler import cache, entries
from blackwell_matmul.hardware.gpus import Gpu, gpu_for_target
from blackwell_matmul.problem.problem import OF_THE_PROBLEM
from blackwell_matmul.runtime.calls import Calls
from blackwell_matmul.runtime.device import gpu_at
from blackwell_matmul.runtime.launch import Prepared
from blackwell_matmul.runtime.load import Loaded, load
from blackwell_matmul.runtime.recent import Recent
from blackwell_matmul.runtime.winners import pins_for_call

if TYPE_CHECKING:
    from blackwell_matmul.compiler.bundle import Bundle
    from blackwell_matmul.frontend import Bound

KEPT_KERNELS = 512
CALLS_FOLDER = "calls"
"""Folder of the cache whose records give a bundle's key by the inputs of a call."""

_loaded: Recent[Hashable, Loaded] = Recent(KEPT_KERNELS)


class HasScript(Protocol):
    """Protocol of a script class with pinned knobs."""

    script_cls: Any
    pins: Mapping[str, object]


class ScriptCalls:
    """Calls of one kernel object on CUDA tensors, checked by the `check_arguments` of its script's class."""

    def __init__(self, kernel: HasScript) -> None:
        self._kernel = kernel
        self._check: Callable[..., None] | None = getattr(kernel.script_cls, "check_arguments", None)
        self._calls = Calls(self.prepare)
        self._chosen: Recent[Hashable, tuple[Loaded, tuple[int, ...]]] = Recent(KEPT_KERNELS)
        self._is_same = _check_of(kernel)
        self._count = len(inspect.signature(kernel.script_cls.__call__).parameters) - 1
        self.launch = self._calls.launch

    def attempt(self, arguments: Sequence[object]) -> bool:
        """Launch and return True for all arguments in order, integers and plain CUDA tensors; else return False."""
        if not self._is_same():
            self._forget()
        return len(arguments) == self._count and self._calls.attempt(arguments)

    def _forget(self) -> None:
        """Drop launches that were made before a change of the script."""
        self._is_same = _check_of(self._kernel)
        self._calls, self._chosen = Calls(self.prepare), Recent(KEPT_KERNELS)
        self.launch = self._calls.launch

    def prepare(self, arguments: Sequence[object], device: int, stream: int) -> Prepared:
        """Return the launch for all arguments of a call, in order, checked and packed."""
        loaded, places = self.code(arguments, device)
        return loaded.prepare([arguments[place] for place in places], device, stream)

    def code(self, arguments: Sequence[object], device: int) -> tuple[Loaded, tuple[int, ...]]:
        """Check all arguments of a call. Return the compiled kernel, and the indices of the arguments that the kernel
        takes."""
        if self._check is not None:
            self._check(*arguments)
        key = _kind(arguments, device)
        found = None if key is None else self._chosen.get(key)
        if found is None:
            found = _compiled(self._kernel, arguments, device)
            if key is not None:
                self._chosen.put(key, found)
        return found


def _check_of(kernel: HasScript) -> Callable[[], bool]:
    """Return a function, called before each launch, that returns True if the script is unchanged. For a user's script
    it compares everything, in 5 to 30 us. For a kernel of this package it compares the classes and the constants of
    their modules, in 2 to 9 us."""
    means = _meaning_of(kernel)
    ours = kernel.script_cls.__module__.startswith("blackwell_matmul.")
    return means.same_names if ours else means.same


def _meaning_of(kernel: HasScript) -> Any:
    from blackwell_matmul.frontend.fingerprint import meaning

    return meaning(kernel.script_cls)


def _kind(arguments: Sequence[object], device: int) -> Hashable | None:
    """Return all inputs that choose a call's code: arguments without addresses, and GPU; None if not hashable."""
    key = tuple(_kind_of(each) if isinstance(each, Tensor) else (type(each), each, str(each)) for each in arguments)
    try:
        hash(key)
    except TypeError:
        return None
    return key, device


def _kind_of(tensor: Tensor) -> Hashable:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad


def _compiled(kernel: HasScript, arguments: Sequence[object], device: int) -> tuple[Loaded, tuple[int, ...]]:
    """Return the code of the tuned schedule. If that fails, as a schedule tuned for another m may, return the code of
    the schedule chosen without tuning."""
    gpu = gpu_at(device)
    tuned = _tuned(kernel, arguments, gpu)
    if tuned:
        with suppress(BlackwellMatmulError):
            return _found(kernel, tuned, arguments, gpu, device)
    return _found(kernel, {}, arguments, gpu, device)


def _found(
    kernel: HasScript, tuned: Mapping[str, object], arguments: Sequence[object], gpu: Gpu, device: int
) -> tuple[Loaded, tuple[int, ...]]:
    file = _entry(kernel.script_cls, {**tuned, **kernel.pins}, arguments, gpu)
    found = _known(entries.read_key(file), kernel, gpu)
    if found is None:
        found = _made(kernel, tuned, arguments, gpu, device)
        entries.keep_key(file, found.bundle.key)
    return found, _places(found.bundle, kernel)


def _entry(script_cls: type, pins: Mapping[str, object], arguments: Sequence[object], gpu: Gpu) -> Path | None:
    """Return the file of the record with the key of a call's bundle. With a record, a call neither chooses a schedule
    nor builds the script. None if nothing is stored, as for scripts outside this package."""
    from blackwell_matmul.compiler.compiling import versions

    return entries.place(CALLS_FOLDER, script_cls, dict(pins), list(map(_plain, arguments)), gpu, dict(versions()))


def _plain(argument: object) -> object:
    if not isinstance(argument, Tensor):
        return argument
    return [list(argument.shape), argument.stride(), str(argument.dtype)]


def _known(key: str | None, kernel: HasScript, gpu: Gpu) -> Loaded | None:
    """Return the loaded bundle of a key; None if there is none, or if it belongs to another script or GPU."""
    if key is None:
        return None
    found = _loaded.get(key)
    if found is None and (bundle := cache.read(key)) is not None:
        found = load(bundle)
        _loaded.put(key, found)
    ours = found is not None and (found.bundle.name, found.bundle.target) == (kernel.script_cls.__name__, gpu.arch)
    return found if ours else None


def _places(bundle: Bundle, kernel: HasScript) -> tuple[int, ...]:
    """Return the indices of a call's arguments that the compiled code takes."""
    names = list(inspect.signature(kernel.script_cls.__call__).parameters)[1:]
    return tuple(names.index(each.name) for each in bundle.plan.parameters)


def _made(kernel: HasScript, tuned: Mapping[str, object], arguments: Sequence[object], gpu: Gpu, device: int) -> Loaded:
    """Return the code for a schedule, compiled unless this process has it already."""
    try:
        bound = _bound(kernel, tuned, arguments, gpu)
        key = _key(kernel, bound, gpu.arch)
        found = None if key is None else _loaded.get(key)
        if found is None:
            found = load(_compile(kernel, bound, gpu))
            found = _loaded.get(found.bundle.key) or found
            for each in (found.bundle.key, key):
                if each is not None:
                    _loaded.put(each, found)
        return found
    except CompileError as error:
        reason = str(error).rstrip(".")
        raise UnsupportedError(f"{reason}; {_what_runs(kernel, gpu, device)}") from error


def _bound(kernel: HasScript, tuned: Mapping[str, object], arguments: Sequence[object], gpu: Gpu) -> Bound:
    """Return the first way to build the script for these arguments on this GPU."""
    from blackwell_matmul.frontend import bind_all

    try:
        schedule = _schedule(kernel, tuned, arguments, gpu)
        return bind_all(_completed(kernel), arguments, schedule=schedule, target=gpu.arch)[0]
    except InputError as error:
        if _runs_elsewhere(kernel, arguments, gpu):
            raise CompileError(str(error)) from error
        raise


def _completed(kernel: HasScript) -> Any:
    """Return the script class if its `complete` chooses schedules for a GPU; else the kernel."""
    return kernel.script_cls if _chooses(kernel) else kernel


def _chooses(kernel: HasScript) -> bool:
    """Return True if the class has a `complete` that takes a GPU."""
    complete = getattr(kernel.script_cls, "complete", None)
    return complete is not None and "gpu" in inspect.signature(complete).parameters


def _schedule(
    kernel: HasScript, tuned: Mapping[str, object], arguments: Sequence[object], gpu: Gpu
) -> Mapping[str, object] | None:
    """Return the tuned schedule, or the choice of the class's own `complete`; None to let the compiler choose."""
    if not _chooses(kernel):
        return tuned or None
    chosen: Mapping[str, object] = kernel.script_cls.complete({**tuned, **kernel.pins}, arguments, gpu.arch, gpu=gpu)
    return chosen


def _tuned(kernel: HasScript, arguments: Sequence[object], gpu: Gpu) -> Mapping[str, object]:
    """Return a tuned schedule, if the user pins none."""
    pinned = kernel.pins.keys() - {*OF_THE_PROBLEM}
    return {} if pinned else pins_for_call(kernel.script_cls, kernel.pins, arguments, gpu)


def _runs_elsewhere(kernel: HasScript, arguments: Sequence[object], gpu: Gpu) -> bool:
    """Return True if the call works on the script's own target: then the GPU is the obstacle, not the arguments."""
    from blackwell_matmul.frontend import target_for

    home = target_for(kernel)
    if gpu.arch == home:
        return False
    try:
        _bound(kernel, {}, arguments, gpu_for_target(home))
    except InputError:
        return False
    return True


def _what_runs(kernel: HasScript, gpu: Gpu, device: int) -> str:
    """Return a clause on what else runs: scripts that this GPU supports, and CPU tensors. For a class with `complete`,
    the first error has listed the GPUs already."""
    simulated = "CPU tensors are simulated."
    if hasattr(kernel.script_cls, "complete"):
        return simulated
    able = [name for name in ("tcgen05", "wgmma", "tma") if name in gpu.features]
    return f"GPU {device} ({gpu.name}) runs scripts with {', '.join(able)} and mma.sync, and {simulated}"


def _key(kernel: HasScript, bound: Bound, target: str) -> Hashable | None:
    """Return all inputs of the code; None if an input cannot be compared: then the code is not cached."""
    from blackwell_matmul.frontend.build import named_values

    key = bound.script_cls, target, _meaning_of(kernel).name, named_values(bound)
    return None if None in key else key


def _compile(kernel: HasScript, bound: Bound, gpu: Gpu) -> Bundle:
    """Compile without using the GPU, so that a call during stream capture may compile."""
    from blackwell_matmul.compiler import compile

    chosen = bound.init_kwargs if hasattr(kernel.script_cls, "complete") else None
    return compile(_completed(kernel), *bound.args, schedule=chosen, target=gpu.arch)


def compiled_ahead(kernel: HasScript, arguments: Sequence[object], gpu: Gpu) -> tuple[Path | None, Bundle]:
    """Compile a call for a GPU, which may be absent. Return the cache record that later calls look up, and the bundle.

    The schedule is chosen by the cost model; tuned schedules are ignored.
    """
    from blackwell_matmul.compiler import known_code
    from blackwell_matmul.compiler.compiling import versions

    bound = _bound(kernel, {}, arguments, gpu)
    return known_code.place([bound], gpu.arch, versions()), _compile(kernel, bound, gpu)
