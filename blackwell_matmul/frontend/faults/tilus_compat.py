"""Every workaround for tilus 0.2.0, each next to the fault that makes it necessary.

Nothing here changes an installed file. Each replacement in the running process happens inside a context manager, under
one lock, and is undone.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import os
import shutil
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.processes import uncollected
from blackwell_matmul.base.validation import plain_text, shown

lock = threading.RLock()
"""Lock for changes of tilus's module globals: its target and replaced functions."""

if hasattr(os, "register_at_fork"):  # else a child has what another thread set, and waits for that thread for ever
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


@contextmanager
def replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Replace or add attributes inside the block, under `lock`. changes: the owner, the name and the value of each."""
    with lock, ExitStack() as stack:
        for owner, name, value in changes:
            there = hasattr(owner, name)
            stack.callback(*((setattr, owner, name, _attribute(owner, name)) if there else (delattr, owner, name)))
            setattr(owner, name, value)
        yield


@contextmanager
def mended(*mends: tuple[Any, str, Callable[[Any], Any]]) -> Iterator[None]:
    """Replace attributes inside the block, each by the result of a function of the attribute as it was."""
    with lock, replaced(*[(owner, name, mend(_attribute(owner, name))) for owner, name, mend in mends]):
        yield


def given(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a mend: in the place of an attribute stands the function, which gets the attribute as it was, and then the
    arguments of the call."""

    def mend(original: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            return function(known, *args, **kwargs)

        is_static = isinstance(original, staticmethod)
        known = original.__func__ if is_static else original
        return staticmethod(called) if is_static else called

    return mend


def in_place_of(module: str, place: str) -> Callable[[Callable[..., Any]], Callable[[], AbstractContextManager[None]]]:
    """Return a decorator: in its block, a function stands in the place of an attribute of a module of tilus, `name` or
    `Class.name`, and is `given` that."""

    def decorated(function: Callable[..., Any]) -> Callable[[], AbstractContextManager[None]]:
        @functools.wraps(function)
        def inside() -> AbstractContextManager[None]:
            *classes, name = place.split(".")
            owner = functools.reduce(getattr, classes, importlib.import_module(f"tilus.{module}"))
            return mended((owner, name, given(function)))

        return inside

    return decorated


def _attribute(owner: Any, name: str) -> Any:
    """Return an attribute of an object; of a class without binding, so that a static method stays static."""
    return vars(owner).get(name, getattr(owner, name))


def import_tilus() -> ModuleType:
    """Import tilus, also without git or cuda.bindings. A second call costs nothing."""
    _compute_is_missing()
    module = sys.modules.get("tilus")
    if module is not None and hasattr(module, "Script"):
        _tell_instances_apart()
        _tell_zeros_apart()
        return module
    with lock, _git_may_be_missing(), _cuda_bindings_may_be_missing(), _limits_stay(), uncollected():
        module = importlib.import_module("tilus")
        _tell_instances_apart()
        _tell_zeros_apart()
        return module


@functools.cache
def _tell_instances_apart() -> None:
    """Distinguish instances of a script by the values of their arguments. tilus caches an instance by its class and
    arguments, and 0.0 equals -0.0 there, and 1 equals True. It also ignores later changes of the defaults of `__init__`
    and of the autotune space. This replacement is never undone and holds for tilus's own calls too. An instance is
    cached by the meaning of its class and arguments. Removable when `InstantiatedScriptCache` does the same.
    """
    from blackwell_matmul.frontend.fingerprint import INSTANCE, meaning, named_value

    instances: Any = importlib.import_module("tilus.lang.instantiated_script")
    kept = instances.InstantiatedScriptCache.cache

    def get(cls: Any, script_cls: type, script_args: Sequence[Any], script_kwargs: Any) -> Any:
        key = (
            script_cls,
            meaning(script_cls, INSTANCE).name,
            named_value(tuple(script_args)),
            named_value(script_kwargs),
        )
        found = None if None in key else kept.get(key)
        if found is None:
            found = _instance(instances.InstantiatedScript, script_cls, script_args, script_kwargs)
            kept.update({} if None in key else {key: found})
        return found

    instances.InstantiatedScriptCache.get = classmethod(get)


def _instance(made: Any, script_cls: type, args: Sequence[Any], kwargs: Any) -> Any:
    """Return an instance of a script; raise InputError where its `__call__` can be no kernel."""
    from blackwell_matmul.frontend.messages.parameters import no_kernel

    try:
        return made(script_cls, args, kwargs)
    except ValueError as error:
        if all(frame.name != "extract_params" for frame in traceback.extract_tb(error.__traceback__)):
            raise
        raise no_kernel(script_cls, error) from error


@functools.cache
def _tell_zeros_apart() -> None:
    """Distinguish the constants 0.0 and -0.0. tilus has one constant for both: the one that a process meets first. This
    replacement is never undone, and the simulator's own expressions use it too. Removable when the key of
    `Constant._constant_pool` distinguishes them.
    """
    constant: Any = importlib.import_module("tilus.hidet.ir.expr").Constant
    known = {_signed((each.value, name)): each for (_, name), each in constant._constant_pool.items()}
    constant._constant_pool = _SignedPool(known)


class _SignedPool(dict[Any, Any]):
    """Constants by (value, type), in which -0.0 is another value than 0.0."""

    def __contains__(self, key: Any) -> bool:
        return super().__contains__(_signed(key))

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(_signed(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_signed(key), value)


def _signed(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*key, math.copysign(1, key[0])) if key[0] == 0 else key


@functools.cache
def _compute_is_missing() -> None:
    """Declare tilus.hidet.ir.compute as missing. tilus/hidet/ir/expr.py imports it at each subscript of a tensor, and
    continues without it.

    There is no such module, and Python looks for it on the disk each time: seven thousand times in `import tilus`.
    Removable when `tensor_rank` imports nothing.
    """
    found = PathFinder.find_spec("tilus")
    places = found.submodule_search_locations or () if found else ()
    if not any(any(Path(place, "hidet", "ir").glob("compute*")) for place in places):
        sys.modules.setdefault("tilus.hidet.ir.compute", None)  # type: ignore[arg-type]


@contextmanager
def _git_may_be_missing() -> Iterator[None]:
    """tilus/option.py runs `git rev-parse` on import and catches CalledProcessError only.

    Without a git binary the import ends in FileNotFoundError. Removable when option.py catches OSError.
    """
    if shutil.which("git"):
        yield
        return
    run = subprocess.run

    def run_git(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except OSError as error:
            command = args[0] if args else kwargs.get("args")
            if isinstance(command, list) and command[:1] == ["git"]:
                raise subprocess.CalledProcessError(127, command) from error
            raise

    with replaced((subprocess, "run", run_git)):
        yield


@contextmanager
def _cuda_bindings_may_be_missing() -> Iterator[None]:
    """Import tilus without cuda.bindings.runtime, which tilus/lang/modules/cuda.py imports but tilus does not declare.

    There is no wheel of it for macOS. tilus uses it for `get_device_properties` alone, so a stand-in without that
    function is enough. The stand-in is removed from sys.modules afterwards, so that no other code takes it for the
    real module. Removable when tilus imports it at the call.
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


@contextmanager
def _limits_stay() -> Iterator[None]:
    """Import tilus without its changes of process-wide limits.

    tilus/hidet/utils/stack_limit.py raises Python's recursion limit to 100,000 calls, more than a thread's stack can
    hold, and the stack of child processes to 512 MiB. An empty stand-in replaces this module during the import. `deep`
    raises limits where needed. Removable when the import raises nothing.
    """
    name = "tilus.hidet.utils.stack_limit"
    sys.modules[name] = ModuleType(name)
    try:
        yield
    finally:
        sys.modules.pop(name, None)


DEPTH = 10_000
"""Maximum depth of nested calls. hopper takes a thousand, a sum of 900 terms more than 5,000. The 8 MiB of a thread's
stack had room for 20,000, half of them through C, in Python 3.11."""


@contextmanager
def deep() -> Iterator[None]:
    """Allow recursion of `DEPTH` calls, for functions that walk through tilus's nodes."""
    with lock:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(max(before, DEPTH))
        try:
            yield
        finally:
            sys.setrecursionlimit(before)


def target_names() -> tuple[str, ...]:
    """Return the names that `target` accepts, e.g. "sm_100a", oldest first."""
    targets = importlib.import_module("tilus.target")
    return tuple("sm_" + name.removeprefix("nvgpu_sm") for name in vars(targets) if name.startswith("nvgpu_sm"))


def check_target(name: object, offered: Sequence[str] = ()) -> str:
    """Return the name as plain text; InputError unless tilus knows this target. offered: names for the message; empty:
    all."""
    import_tilus()
    known = plain_text(name)
    if known is None or known not in target_names():
        choice = offered or target_names()
        raise InputError(f"target is {shown(name)}; it must be {'one of ' * (len(choice) > 1)}{', '.join(choice)}.")
    return known


@contextmanager
def target(name: str) -> Iterator[Any]:
    """Make `name` tilus's current target inside the block, and restore what was there.

    tilus keeps the target in a module global. If the global is unset, tilus takes torch's GPU, and raises without one.
    Its setter refuses None, so that the global is put back by hand.
    """
    check_target(name)
    targets: Any = importlib.import_module("tilus.target")
    with lock, deep():
        before = targets._target
        targets.set_current_target(getattr(targets, "nvgpu_sm" + name.removeprefix("sm_")))
        try:
            yield targets.get_current_target()
        finally:
            targets._target = before


def observe_rewrites(
    rewritten: Callable[[Any, Any], None], failed: Callable[[Any, Exception], None]
) -> AbstractContextManager[None]:
    """Report each node that one of this thread's tilus passes replaces, with the new one, or fails at.

    tilus IR has neither lines nor names, and its passes have no hook for either. All passes visit nodes through
    `IRFunctor.visit`, the only place to follow a node from pass to pass. Removable when tilus IR keeps locations.
    """
    functor: Any = importlib.import_module("tilus.ir.functors.functor").IRFunctor
    return mended((functor, "visit", lambda visit: _observed(visit, rewritten, failed)))


def _observed(
    visit: Callable[[Any, Any], Any], rewritten: Callable[[Any, Any], None], failed: Callable[[Any, Exception], None]
) -> Callable[[Any, Any], Any]:
    owner, here = threading.get_ident(), threading.get_ident

    def observed_visit(self: Any, node: Any) -> Any:
        try:
            result = visit(self, node)
        except Exception as error:
            if here() == owner:
                failed(node, error)
            raise
        if result is not node and result is not None and here() == owner:
            rewritten(node, result)
        return result

    return observed_visit


@contextmanager
def restore_scopes() -> Iterator[None]:
    """Drop the scopes that a failed transpilation leaves.

    `Scope.__exit__` returns early on an exception, and `_scope_stack` keeps its entries. So every refused script would
    leak its locals into the process.
    """
    builder: Any = importlib.import_module("tilus.lang.transpiler.builder")
    scope, depth = builder._current_scope, len(builder._scope_stack)
    try:
        yield
    finally:
        builder._current_scope = scope
        del builder._scope_stack[depth:]


FRAGMENT_K = 16
"""K of an MMA of 16-bit types, for which tilus's layout of an accumulator is right."""


@in_place_of("ir.layout.inference.inference_rules.wgmma", "generate_wgmma_register_layout")
def wgmma_fragments(layout: Any, m: int, n: int, mma_m: int, mma_n: int, _: int) -> Any:
    """Lay out an accumulator of wgmma as the instruction writes it, for all types of A and B.

    A thread holds two neighbours of a row of D (PTX ISA, "wgmma: Register Fragments"). tilus's rule takes K / 8
    neighbours, which is two for fp16 and bf16 alone. With fp8, int8 and tf32, columns of D would be exchanged.
    Removable when `generate_wgmma_register_layout` does not depend on K.
    """
    return layout(m, n, mma_m, mma_n, FRAGMENT_K)


WGMMA_N = 256, 8
"""The most, and the step: N of floating-point types (PTX ISA, "wgmma.mma_async"). Of integers, from 32 on, it is 16."""


@in_place_of("ir.instructions.cuda.wgmma", "WgmmaMmaSSInst.get_inst_mnk")
def widest_wgmma(narrow: Any, m: int, n: int, k: int, *types: Any) -> tuple[int, int, int]:
    """Multiply a tile with the widest instructions whose N divides the tile.

    tilus takes the largest power of two in N: for 224 columns, seven instructions of N = 32. They read A seven times
    from shared memory, which bounds their time. On an H200 they take 1.6 times as long as one instruction of N = 224.
    Removable when `WgmmaMmaSSInst.get_inst_mnk` knows the other N.
    """
    mma_m, mma_n, mma_k = narrow(m, n, k, *types)
    return mma_m, max(mma_n, _widest(n, *WGMMA_N)) if types[-1].is_float() else mma_n, mma_k


@in_place_of("backends.emitters.cuda.wgmma", "SharedMatrixDescriptor.encoded")
def wgmma_descriptors(_: Any, self: Any) -> Any:
    """Encode the address of an operand of wgmma once, and add k-steps to the encoded address.

    tilus encodes each descriptor anew: for every wgmma the compiler adds, shifts and masks both addresses, in
    sequence. With tiles of few columns that takes longer than the wgmma. An address in shared memory has 18 bits,
    without the last four in the descriptor (PTX ISA, "Matrix Descriptor Format"), so no step carries. The start of the
    operand must still be masked: the bits above are the rank of the CTA in the cluster. On an H200 256x2112x7168 took
    24.3 us in tiles of 64x64, and 22.5 us with this change. Removable when `SharedMatrixDescriptor.encoded` adds to
    the encoded address.
    """
    from tilus.hidet.ir.dtypes import uint32, uint64

    base, step_bytes = _base_and_offset(self.addr)
    fixed = (self.lbo >> 4) << 16 | (self.sbo >> 4) << 32 | self.base_offset << 49 | self.swizzle_mode << 62
    return uint64(fixed) | uint64((uint32(base >> 4) & uint32(0x3FFF)) + uint32(step_bytes >> 4))


def _base_and_offset(address: Any) -> tuple[Any, int]:
    from tilus.hidet.ir.expr import Add, Constant

    if isinstance(address, Add) and isinstance(address.b, Constant):
        return address.a, int(address.b.value)
    return address, 0


def _widest(n: int, most: int, step: int) -> int:
    return max((each for each in range(step, most + 1, step) if n % each == 0), default=0)


@in_place_of("backends.emitters.cuda.wgmma", "wgmma_async")
def one_wgmma(multiply: Any, *args: Any, trans_a: int, trans_b: int) -> Any:
    """Compile only the called variant of a wgmma with a new N.

    `wgmma_async` makes all 48 variants of an instruction (signs and orders), and transpiles their Python. That takes
    longer than the rest of the kernel. tilus's own variants are made first: tilus makes all of them at once, and none
    of them twice. Removable when `wgmma_async` makes only the variant that it calls.
    """
    made: Any = importlib.import_module("tilus.hidet.ir.primitives.cuda.wgmma")
    found = None
    for bits in dict.fromkeys([(0, 0), (trans_a, trans_b)]):
        with replaced((made, "product", functools.partial(_variant, (1, 1, 1, *bits)))):
            found = multiply(*args, trans_a=bits[0], trans_b=bits[1])
    return found


def _variant(wanted: Sequence[int], *choices: Sequence[int | None]) -> list[tuple[int | None, ...]]:
    """Return only the wanted combination for an A in shared memory; none for an A in registers."""
    if len(choices) != len(wanted):
        return []
    return [tuple(value if value in choice else choice[0] for value, choice in zip(wanted, choices))]


TCGEN05_N = 256, 16
"""Largest N of a tcgen05.mma, and the step of N (PTX ISA, "tcgen05.mma: Matrix Shape", M = 128 and 256)."""


@contextmanager
def tcgen05_mma() -> Iterator[None]:
    """Multiply on every GPU that has tcgen05.mma, with the widest instructions whose N divides the tile.

    tilus registers its emitter for sm_100a alone; sm_103a (B300) takes the same code for kind::f16 and kind::f8f6f4.
    tilus also takes the largest power of two in N: for 192 columns, three instructions of N = 64. They read A three
    times from shared memory, which bounds their time. Removable when the emitter is registered for sm_100f and
    `get_inst_mnk` knows the other N.
    """
    emitter: Any = importlib.import_module("tilus.backends.emitters.cuda.tcgen05.mma").TMemoryMmaSSEmitter
    inst: Any = importlib.import_module("tilus.ir.instructions.cuda.tcgen05").Tcgen05MmaSSInst
    family: Any = importlib.import_module("tilus.target").nvgpu_sm100f
    with _widest_tcgen05():
        registered = emitter.REGISTRY[inst]
        emitter.REGISTRY[inst] = {**registered, family: emitter}
        try:
            yield
        finally:
            emitter.REGISTRY[inst] = registered


@in_place_of("backends.emitters.cuda.tcgen05.mma", "TMemoryMmaSSEmitter.get_inst_mnk")
def _widest_tcgen05(narrow: Any, kind: Any, cta_group: int, m: int, n: int, k: int) -> tuple[int, int, int]:
    mma_m, mma_n, mma_k = narrow(kind, cta_group, m, n, k)
    return mma_m, max(mma_n, _widest(n, *TCGEN05_N)), mma_k


@contextmanager
def products() -> Iterator[None]:
    """Apply all corrections of the instructions that multiply, inside the block."""
    with wgmma_fragments(), widest_wgmma(), wgmma_descriptors(), one_wgmma(), tcgen05_mma(), modes_kept_apart():
        yield


@in_place_of("backends.emitters.smem", "dynamic_shared_memory")
def shared_of_any_type(known: Any, byte_offset: Any, dtype: Any) -> Any:
    """Allocate shared tensors of all types. tilus has a function for the address of most, and none for int16, uint16,
    int64 and float64: "Can not find primitive function". Removable when it has."""
    from tilus.hidet.ir.expr import cast
    from tilus.hidet.ir.primitives.func import is_primitive_function

    if is_primitive_function(f"cuda_dynamic_shared_memory_{dtype.name}"):
        return known(byte_offset, dtype)
    return cast(known(byte_offset, "uint8"), ~dtype)


@in_place_of("backends.contexts.gmem_alloc_ctx", "GlobalMemoryAllocationContext.allocate_global_memory")
def workspace_bytes(allocate: Any, self: Any, nbytes: Any, clean: bool) -> Any:
    """Ask for as many bytes of global memory as `global_tensor` needs.

    tilus asks for as many bytes as the tensor has bits: eight times too much, at each launch. Removable when
    `AllocateGlobalInstEmitter` divides the bits by 8.
    """
    return allocate(self, (nbytes + 7) // 8, clean)


_NAMELESS = ("float16", "int64")
"""Modules of `tilus.hidet.ir.primitives.cuda.math` that use `hidet`."""


def hidet_by_name() -> AbstractContextManager[None]:
    """Let max and min of float16, and int64 to float16, be compiled.

    Their modules use `hidet.option` and `hidet.ir` and import neither, so that tilus ends in a NameError. Every target
    here is newer than the sm_80 that they ask for. Removable when they import what they use.
    """
    math: Any = importlib.import_module("tilus.hidet.ir.primitives.cuda.math")
    cuda = SimpleNamespace(get_arch_pair=lambda: (9, 0))
    hidet = SimpleNamespace(option=SimpleNamespace(cuda=cuda), ir=importlib.import_module("tilus.hidet.ir"))
    return replaced(*((getattr(math, name), "hidet", hidet) for name in _NAMELESS))


def boxes_of_full_rank() -> AbstractContextManager[None]:
    """Describe the whole view to TMA. The box has extent 1 in the dimensions that `dims` leaves out.

    tilus describes only the dimensions in `dims`, but gives the instruction a coordinate for each dimension of the
    view. A map of rank 2 with `cp.async.bulk.tensor.3d` is an illegal instruction (PTX, "cp.async.bulk.tensor": the
    ranks are equal). Removable when `create_tensor_map` and the coordinates have the same rank.
    """
    tensors: Any = importlib.import_module("tilus.backends.emitters.cuda.cp_async_tensor")
    emitter = tensors.CopyAsyncTensorBaseEmitter
    boxed: dict[Any, list[int]] = {}

    def view_whole(resolve: Any, self: Any, view: Any, offsets: Sequence[Any], dims: Sequence[int]) -> Any:
        info = resolve(self, view, offsets, range(len(view.shape)))
        boxed[info] = sorted(dims)
        return info

    def create(made: Any, self: Any, info: Any, shared: Any, dtype: Any) -> Any:
        extents = dict(zip(boxed.pop(info), shared.shape, strict=True))
        box = tuple(extents.get(dim, 1) for dim in range(len(info.shape)))
        return made(self, info, dataclasses.replace(shared, shape=box), dtype)

    views = emitter, "resolve_global_tensor_info", given(view_whole)
    return mended(views, (emitter, "create_tensor_map", given(create)))


@in_place_of("ir.utils.lineardec", "Linear.__mul__")
def strides_that_are_products(multiply: Any, self: Any, other: Any) -> Any:
    """Give TMA the stride of a tensor of several matrices, such as m * 136 of [batches, m, 136].

    `Linear.__mul__` drops the product of two terms without coordinates: the stride is 0, and every matrix the first.
    Removable when it keeps the last coefficient.
    """
    if self.is_empty() or other.is_empty() or not (self.is_constant() and other.is_constant()):
        return multiply(self, other)
    return type(self).from_constant(len(self), self[-1] * other[-1])


def exact_casts() -> AbstractContextManager[None]:
    """Cast vectors of small types as their formats define, and leave the source unchanged.

    `NvgpuCastInstEmitter` has three faults:

    - `extract_bits_to_uint32` puts the second part of an element that crosses a byte 16 - nbits too low, when it
      extracts to the high bits (float6_e3m2: elements 5 and 6 of 8).
    - int8 and int4 to float16 flip the sign bits of the source itself, which later readers get.
    - nan of float8_e4m3 becomes 480.

    Removable when these are mended.
    """
    emitter: Any = importlib.import_module("tilus.backends.emitters.cast").NvgpuCastInstEmitter
    return mended(
        (emitter, "extract_bits_to_uint32", given(_extracted_low)),
        (emitter, "cast_i8_to_f16", given(_cast_a_copy)),
        (emitter, "cast_i4_to_f16", given(_cast_a_copy)),
        (emitter, "cast_f8e4m3_to_f16", lambda _: emitter.cast_generic),
        (emitter, "cast_f8e4m3_to_bf16", lambda _: emitter.cast_generic),
    )


def _extracted_low(extract: Any, self: Any, src_uint8: Any, i: int, size: int, nbits: int, pos: str) -> Any:
    """Extract to the low bits, which is right, and shift: two elements of a word, in 16 bits each."""
    low = extract(self, src_uint8, i, size, nbits, "low")
    return low if pos == "low" else self.declare_var("p", low.type, init=low << (16 - nbits))


def _cast_a_copy(method: Any, self: Any, src: Any, dst: Any) -> None:
    """Cast by a method, which writes to its source, a copy of the source."""
    emitters: Any = importlib.import_module("tilus.backends.emitters.cast")
    words, rest = divmod(self.size * emitters.get_data_type(src.type).nbits, 32)
    if rest:
        method(self, src, dst)
        return
    pointer = emitters.tensor_pointer_var("source", shape=[words], dtype="uint32")
    source = self.declare(pointer, init=emitters.cast(src, ~emitters.uint32))
    copied = self.declare(emitters.tensor_var("copied", shape=[words], dtype=emitters.uint32))
    with self.for_range(extent=words) as i:
        self.buffer_store(buf=copied, indices=[i], value=source[i])
    method(self, copied, dst)


def is_integer(kind: Any) -> bool:
    """Return True for a type of integers of tilus, of any width and sign."""
    return bool(kind.is_data_type() and kind.is_integer())


def of_any_sign(program: Any, params: Collection[Any]) -> Any:
    """Return the tilus program without assumptions about the signs of these parameters.

    `analyze_scalar` assumes a parameter with a known divisor to be >= 0, for every type. tilus then drops conditions,
    and the lower bound of `load_global` and `store_global`, which access the row before. A parameter gets a divisor
    with the call or by `self.assume`. Removable when tilus assumes only unsigned types to be >= 0.
    """
    (function,) = program.functions.values()
    divisors = {var: divisor for var, divisor in function.metadata.param2divisibility.items() if var not in params}
    return program.with_function(function.with_metadata(function.metadata.with_param2divisibility(divisors)))


def signed_bounds() -> AbstractContextManager[None]:
    """Bound products, quotients and remainders, and find their divisors, as C computes them.

    tilus's `ScalarSet` takes `x % 4` to be >= 0, and x times a negative number to be >= 0 for x >= 0. It divides as if
    all numbers were positive. So conditions that hold for negative numbers vanish. It takes `x // 12` to be even for x
    = 8, 16, ... Removable when it looks at signs, and divides divisors only without a remainder.
    """
    scalars: Any = importlib.import_module("tilus.ir.analyzers.scalar_analyzer")
    kind = scalars.ScalarSet
    return replaced(
        (kind, "__mul__", _computed(kind, _product, lambda a, b: a.divisibility * b.divisibility)),
        (kind, "__floordiv__", _computed(kind, _quotient, _divisor_of_quotient)),
        (kind, "__mod__", _computed(kind, _remainder, lambda a, b: math.gcd(a.divisibility, b.divisibility))),
    )


Range = tuple[float, float]
"""Minimum and maximum of a set of integers, infinite without a limit."""


def _computed(kind: Any, bounds: Callable[[Range, Range], Range], divisor: Callable[[Any, Any], int]) -> Any:
    """Return a method of ScalarSet that computes the limits of a result and a common divisor of its values."""

    def computed(a: Any, b: Any) -> Any:
        if a.is_empty() or b.is_empty():
            return kind.empty_set()
        limits = bounds(_range(a), _range(b))
        return kind(divisor(a, b), *(int(each) if math.isfinite(each) else None for each in limits))

    return computed


def _divisor_of_quotient(a: Any, b: Any) -> int:
    low, high = _range(b)
    return a.divisibility // abs(int(low)) if low == high != 0 and a.divisibility % low == 0 else 1


def _range(scalars: Any) -> Range:
    low, high = scalars.lower_bound, scalars.upper_bound
    return -math.inf if low is None else low, math.inf if high is None else high


def _product(a: Range, b: Range) -> Range:
    corners = [x * y if x and y else 0 for x in a for y in b]  # infinity times zero is nan
    return min(corners), max(corners)


def _quotient(a: Range, b: Range) -> Range:
    """Return the bounds of C's quotient: towards zero for a positive divisor; for any other, all values no further from
    zero than the dividend."""
    if b[0] < 0:
        most = max(abs(a[0]), abs(a[1]))
        return -most, most
    corners = [_toward_zero(x, max(y, 1)) for x in a for y in b]
    return min(corners), max(corners)


def _toward_zero(a: float, b: float) -> float:
    if math.isinf(b):
        return 0
    return a if math.isinf(a) else math.copysign(abs(int(a)) // int(b), a)


def _remainder(a: Range, b: Range) -> Range:
    """Bound a remainder: it has the dividend's sign and is closer to zero than the divisor; by 0 it is the dividend."""
    if b == (0, 0) or (-b[0] < a[0] and a[1] < b[0]):
        return a
    most = max(abs(b[0]), abs(b[1])) - 1
    return (0 if a[0] >= 0 else -most), (0 if a[1] <= 0 else most)


@in_place_of("ir.layout.mfunction.mfunction", "canonicalize_multi_function")
def modes_kept_apart(_: Any, func: Any) -> Any:
    """Infer the layouts of a dot whose M, K and N have n and n + 1 instructions, such as K = 80 with M = 64.

    `canonicalize_multi_function` merges modes if the extent of one is that of the last plus one: it takes extents for
    indices. Then `mode_groups` finds no dimension in the merged mode ("Cannot group the modes"). Unmerged modes mean
    the same. Removable when it compares indices, and `mode_groups` takes merged modes.
    """
    kept = [mode for mode, extent in enumerate(func.mode_shape) if extent > 1]
    number = {mode: place for place, mode in enumerate(kept)}
    modes = [number.get(mode, mode) for mode in func.modes if mode < 0 or mode in number]
    return type(func).create(func.shape, [func.mode_shape[mode] for mode in kept], modes)


@in_place_of("backends.transforms.inline_register_tensor", "InlineRegisterTensorRewriter.__init__")
def declared_copies(init: Any, self: Any, copies: Any) -> None:
    """Keep a copy of a copy of registers if its source is removed.

    `InlineRegisterTensorPass` drops a copy y of x, and replaces reads of y by x. It does not replace y in copies of y.
    After `squeeze` of `unsqueeze`, the kernel reads y, which nothing declares. Removable when its rewriter follows one
    copy to the next.
    """
    init(self, {copy: of for copy, of in copies.items() if of.rhs not in copies})


def without_hidet_passes(unneeded: Collection[tuple[str, int]]) -> AbstractContextManager[None]:
    """Leave passes out of `tilus.drivers.optimize_ir_module`: (name, 0) is the first pass of this name, and so on.

    The driver's list is fixed, and two of its passes take a third of the time to do nothing that shows in the source.
    Removable when tilus runs each pass once, or its driver takes a list.
    """
    transforms: Any = importlib.import_module("tilus.hidet.transforms")

    lower: Any = transforms.lower_with
    return replaced((transforms, "lower_with", lambda module, passes: lower(module, _needed(passes, unneeded))))


def _needed(passes: Sequence[Any], unneeded: Collection[tuple[str, int]]) -> list[Any]:
    seen: Counter[str] = Counter()
    needed = []
    for each in passes:
        if (each.name, seen[each.name]) not in unneeded:
            needed.append(each)
        seen[each.name] += 1
    return needed
