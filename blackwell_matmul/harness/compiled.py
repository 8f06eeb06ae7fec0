"""`compile` for any kernel, a rung or a user's script, for a size or its own arguments; nothing is run."""

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
    """Compile a kernel for a call of this size, or with these arguments; no GPU is needed.

    kernel: "v1", "my_kernel.py:MyScript", a script class, or a kernel with pins. m, n, k: the size, or m a `Problem`;
    or, with tensors on any device, all arguments of its `__call__`. Constants among them (annotated int) are compiled
    in; `bundle.serves` lists them. dtype, schedule, target, form: those of `run_matmul`. cache: use the cache in memory
    and on disk. timeline: records of each warp; the kernel then takes a buffer as last argument (`timeline_buffer`),
    which `measured_timeline` reads.

    Raises InputError, CompileError or UnsupportedError, each one sentence, if the script cannot be compiled.
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
"""Instructions into which tilus's passes convert accesses of tensors in global memory."""


def mark_names() -> dict[str, str]:
    """Return the name on a timeline of each marked instruction, for tilus's classes before and after its passes."""
    from blackwell_matmul.simulator.semantics import DESCRIPTIONS

    names = {name: each.mark for name, (each, _) in DESCRIPTIONS.items() if each.mark}
    return names | {made: names[name] for name, made in BY_POINTER.items()}
