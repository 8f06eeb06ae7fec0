"""`compile`: compiles any kernel, for a size or for given arguments, without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blackwell_matmul.harness.calls.kernel_call import FormOf, KernelCall, Target, resolve
from blackwell_matmul.harness.calls.user_kernel import Pins

if TYPE_CHECKING:
    from blackwell_matmul.compiler import Bundle


def compile(
    kernel: Any,
    m: Any = None,
    n: Any = None,
    k: Any = None,
    *tensors: Any,
    dtype: str | None = None,
    schedule: Pins = None,
    target: Target = None,
    form: FormOf = None,
    cache: bool = True,
    timeline: int | None = None,
) -> Bundle:
    """Compile a kernel for a call of this size or with these arguments, without a GPU; return the bundle.

    kernel: "v1", "my_kernel.py:MyScript", a script class, or a kernel with pins. m, n, k: the size, or m is a
    `Problem`. With tensors on any device, these are all arguments of the kernel's `__call__`. Arguments annotated with
    int are constants of the code; `bundle.serves` lists them. dtype, schedule, target, form: those of `run_matmul`.
    cache: True uses the cache in memory and on disk. timeline: maximum number of records of each warp. The kernel then
    takes a buffer as last argument (`timeline_buffer`), which `measured_timeline` reads.

    Raises InputError, CompileError or UnsupportedError if the script cannot be compiled.
    """
    call = resolve(kernel, (m, n, k, *tensors), dtype, schedule, form, target=target)
    return compile_call(call, cache=cache, timeline=timeline)


def compile_call(call: KernelCall, *, cache: bool = True, timeline: int | None = None) -> Bundle:
    """Compile a resolved call."""
    from blackwell_matmul.compiler import compile

    options: Any = {"cache": cache, "timeline": timeline, "marks": {} if timeline is None else mark_names()}
    with call.kernel.loaded():
        return compile(call.script, *call.arguments, schedule=call.pins or None, target=call.arch, **options)


BY_POINTER = {
    "LoadGlobalInst": "LoadGlobalGenericInst", "StoreGlobalInst": "StoreGlobalGenericInst",
    "CopyAsyncInst": "CopyAsyncGenericInst",
}  # fmt: skip
"""Instructions into which tilus's passes convert accesses of global memory, by the instructions before the passes."""


def mark_names() -> dict[str, str]:
    """Return the names of marked instructions on a timeline, by tilus's class before and after its passes."""
    from blackwell_matmul.simulator.semantics import DESCRIPTIONS

    names = {name: each.mark for name, (each, _) in DESCRIPTIONS.items() if each.mark}
    return names | {made: names[name] for name, made in BY_POINTER.items()}
