"""Compile a kernel by the name that the command line knows it by, for arguments of a size; nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blackwell_matmul.harness.kernel_call import KernelCall, Pins, resolve

if TYPE_CHECKING:
    from blackwell_matmul.compiler import Bundle


def compile_kernel(
    kernel: str,
    size: Sequence[int] | None = None,
    dtype: str | None = None,
    schedule: Pins = None,
    *,
    target: str | None = None,
    cache: bool = True,
) -> Bundle:
    """The bundle of a rung ("v1"), or of a script of the user's ("my_kernel.py:MyScript").

    size, dtype and schedule are those of `run_matmul` and `run_script`. Raises InputError, CompileError or
    UnsupportedError.
    """
    return compile_call(resolve(kernel, size, dtype, schedule), target=target, cache=cache)


def compile_call(call: KernelCall, *, target: str | None = None, cache: bool = True) -> Bundle:
    from blackwell_matmul.compiler import compile

    with call.loaded():
        return compile(call.script, *call.arguments, schedule=call.pins or None, target=target, cache=cache)
