"""Every workaround for tilus 0.2.0, each next to the fault that makes it necessary.

Nothing here changes an installed file. What is replaced in the running process is replaced inside a
context manager, under one lock, and put back.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Protocol

from blackwell_matmul.errors import InputError
from blackwell_matmul.wording import plain_text, shown

lock = threading.RLock()
"""Held while a target is set or a hook is in place: tilus keeps both in module globals."""


def import_tilus() -> ModuleType:
    """Import tilus, also where git or cuda.bindings is missing; the second call costs nothing."""
    module = sys.modules.get("tilus")
    if module is not None and hasattr(module, "Script"):
        return module
    with lock, _git_may_be_missing(), _cuda_bindings_may_be_missing():
        return importlib.import_module("tilus")


@contextmanager
def _git_may_be_missing() -> Iterator[None]:
    """tilus/option.py runs `git rev-parse` on import and catches CalledProcessError only.

    Without a git binary the import ends in FileNotFoundError. Removable when option.py catches OSError.
    """
    run = subprocess.run

    def run_git(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except OSError as error:
            command = args[0] if args else kwargs.get("args")
            if isinstance(command, list) and command[:1] == ["git"]:
                raise subprocess.CalledProcessError(127, command) from error
            raise

    subprocess.run = run_git
    try:
        yield
    finally:
        subprocess.run = run


@contextmanager
def _cuda_bindings_may_be_missing() -> Iterator[None]:
    """tilus/lang/modules/cuda.py imports cuda.bindings.runtime, which tilus does not declare.

    There is no wheel of it for macOS. tilus uses it for `get_device_properties` alone, so a stand-in that
    says so is enough. It leaves sys.modules again, so that nobody else takes it for the real one.
    Removable when tilus imports it at the call.
    """
    added = [] if _importable("cuda.bindings.runtime") else _add_stubs()
    try:
        yield
    finally:
        for name in added:
            sys.modules.pop(name, None)


def _importable(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def _add_stubs() -> list[str]:
    """Put a stand-in for cuda.bindings.runtime into sys.modules; return the names that were added."""
    runtime = ModuleType("cuda.bindings.runtime")
    runtime.cudaDeviceProp = type("cudaDeviceProp", (), {})  # type: ignore[attr-defined]
    runtime.cudaGetDeviceProperties = _no_device_properties  # type: ignore[attr-defined]
    bindings = ModuleType("cuda.bindings")
    bindings.runtime = runtime  # type: ignore[attr-defined]
    package = sys.modules.get("cuda") or ModuleType("cuda")
    stubs = {"cuda": package, "cuda.bindings": bindings, "cuda.bindings.runtime": runtime}
    added = [name for name in stubs if name not in sys.modules]
    sys.modules.update(stubs)
    return added


def _no_device_properties(device: int) -> Any:
    raise RuntimeError("Device properties need the package cuda-bindings and a GPU; this machine lacks the package.")


def target_names() -> tuple[str, ...]:
    """The names that `target` accepts, e.g. "sm_100a", oldest first."""
    targets = importlib.import_module("tilus.target")
    return tuple("sm_" + name.removeprefix("nvgpu_sm") for name in vars(targets) if name.startswith("nvgpu_sm"))


def check_target(name: object, offered: Sequence[str] = ()) -> str:
    """The name as plain text; InputError, with those offered or else all, unless tilus knows this target."""
    import_tilus()
    known = plain_text(name)
    if known is None or known not in target_names():
        choice = offered or target_names()
        raise InputError(f"target is {shown(name)}; it must be {'one of ' * (len(choice) > 1)}{', '.join(choice)}.")
    return known


@contextmanager
def target(name: str) -> Iterator[Any]:
    """Make `name` tilus's current target inside the block, and restore what was there.

    tilus keeps the target in a module global and, when it is unset, asks torch for a GPU and raises without
    one. Its setter refuses None, so that the global is put back by hand.
    """
    check_target(name)
    targets: Any = importlib.import_module("tilus.target")
    with lock:
        before = targets._target
        targets.set_current_target(getattr(targets, "nvgpu_sm" + name.removeprefix("sm_")))
        try:
            yield targets.get_current_target()
        finally:
            targets._target = before


class RewriteObserver(Protocol):
    """What `observe_rewrites` tells: a node became another node, or its visit failed."""

    def rewritten(self, old: Any, new: Any) -> None: ...

    def failed(self, node: Any, error: Exception) -> None: ...


@contextmanager
def observe_rewrites(observer: RewriteObserver) -> Iterator[None]:
    """Report to `observer` each node that one of this thread's tilus passes replaces.

    tilus IR carries neither lines nor names, and its passes have no hook for either. All of them visit nodes
    through `IRFunctor.visit`, the one place to follow a node from pass to pass. Removable when tilus IR
    keeps locations.
    """
    functor: Any = importlib.import_module("tilus.ir.functors.functor").IRFunctor
    with lock:
        visit = functor.visit
        functor.visit = _observed(visit, observer)
        try:
            yield
        finally:
            functor.visit = visit


def _observed(visit: Callable[[Any, Any], Any], observer: RewriteObserver) -> Callable[[Any, Any], Any]:
    owner, here = threading.get_ident(), threading.get_ident

    def observed_visit(self: Any, node: Any) -> Any:
        try:
            result = visit(self, node)
        except Exception as error:
            if here() == owner:
                observer.failed(node, error)
            raise
        if result is not node and result is not None and here() == owner:
            observer.rewritten(node, result)
        return result

    return observed_visit


@contextmanager
def restore_scopes() -> Iterator[None]:
    """Drop the scopes that a failing transpilation leaves behind.

    `Scope.__exit__` returns early on an exception and `_scope_stack` keeps its entries, so that each refused
    script would leak its locals into the process.
    """
    builder: Any = importlib.import_module("tilus.lang.transpiler.builder")
    scope, depth = builder._current_scope, len(builder._scope_stack)
    try:
        yield
    finally:
        builder._current_scope = scope
        del builder._scope_stack[depth:]


FRAGMENT_K = 16
"""The K of the 16-bit types, for which tilus's layout of an accumulator is right."""


@contextmanager
def wgmma_fragments() -> Iterator[None]:
    """Lay out an accumulator of wgmma as the instruction writes it, whatever the types of A and B are.

    PTX ISA, "wgmma: Register Fragments": each thread holds two neighbours of a row of D. tilus's rule takes K / 8 of
    them, which is two for fp16 and bf16 alone: with fp8, int8 and tf32 columns of D would be exchanged. Removable when
    `generate_wgmma_register_layout` does not depend on K.
    """
    rule: Any = importlib.import_module("tilus.ir.layout.inference.inference_rules.wgmma")
    with lock:
        layout = rule.generate_wgmma_register_layout
        rule.generate_wgmma_register_layout = lambda m, n, mma_m, mma_n, _: layout(m, n, mma_m, mma_n, FRAGMENT_K)
        try:
            yield
        finally:
            rule.generate_wgmma_register_layout = layout


WGMMA_N_MOST, WGMMA_N_STEP = 256, 8
"""PTX ISA, "wgmma.mma_async": N of floating-point types. Of integers it is a multiple of 16 from 32 on."""


@contextmanager
def widest_wgmma() -> Iterator[None]:
    """Multiply a tile with the widest instructions that divide it.

    tilus takes the largest power of two in N: seven instructions of N = 32 for 224 columns, which read A seven times
    from shared memory and are bound by that, 1.6 times as slow on an H200 as one of N = 224. Removable when
    `WgmmaMmaSSInst.get_inst_mnk` knows the other N.
    """
    inst: Any = importlib.import_module("tilus.ir.instructions.cuda.wgmma").WgmmaMmaSSInst
    with lock:
        narrow = inst.__dict__["get_inst_mnk"]

        def widest(m: int, n: int, k: int, *types: Any) -> tuple[int, int, int]:
            mma_m, mma_n, mma_k = narrow.__func__(m, n, k, *types)
            return mma_m, max(mma_n, _widest(n)) if types[-1].is_float() else mma_n, mma_k

        inst.get_inst_mnk = staticmethod(widest)
        try:
            yield
        finally:
            inst.get_inst_mnk = narrow


def _widest(n: int) -> int:
    return max((each for each in range(WGMMA_N_STEP, WGMMA_N_MOST + 1, WGMMA_N_STEP) if n % each == 0), default=0)


@contextmanager
def workspace_bytes() -> Iterator[None]:
    """Ask for as many bytes of global memory as `global_tensor` needs.

    tilus asks for as many bytes as the tensor has bits: eight times too much, at each launch. Removable when
    `AllocateGlobalInstEmitter` divides the bits by 8.
    """
    context: Any = importlib.import_module("tilus.backends.contexts.gmem_alloc_ctx").GlobalMemoryAllocationContext
    with lock:
        allocate = context.allocate_global_memory
        context.allocate_global_memory = lambda self, nbytes, clean: allocate(self, (nbytes + 7) // 8, clean)
        try:
            yield
        finally:
            context.allocate_global_memory = allocate


@contextmanager
def without_hidet_passes(unneeded: Collection[tuple[str, int]]) -> Iterator[None]:
    """Leave passes out of `tilus.drivers.optimize_ir_module`: (name, 0) is the first pass of this name, and so on.

    The driver's list is fixed, and two of its passes take a third of the time to do nothing that shows in the source.
    Removable when tilus runs each pass once, or its driver takes a list.
    """
    transforms: Any = importlib.import_module("tilus.hidet.transforms")
    with lock:
        lower_with = transforms.lower_with
        transforms.lower_with = lambda module, passes: lower_with(module, _needed(passes, unneeded))
        try:
            yield
        finally:
            transforms.lower_with = lower_with


def _needed(passes: Sequence[Any], unneeded: Collection[tuple[str, int]]) -> list[Any]:
    seen: Counter[str] = Counter()
    needed = []
    for each in passes:
        if (each.name, seen[each.name]) not in unneeded:
            needed.append(each)
        seen[each.name] += 1
    return needed
