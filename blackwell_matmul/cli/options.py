"""Options that several commands share, and the conversion of their values.

Values are checked before torch and tilus are imported, as these imports are slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import number
from blackwell_matmul.hardware.gpus import gpu_named, target_named
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED
from blackwell_matmul.problem.form import PLAIN, Form
from blackwell_matmul.problem.problem import (
    BITS,
    EIGHT_BITS,
    MAX_ORDERS,
    MAX_WORKERS,
    Problem,
    Schedule,
    plain_dtype,
    plain_policy,
    plain_seed,
    positive,
)
from blackwell_matmul.scheduling.ladders import BLOCK_SCALED_LADDER

if TYPE_CHECKING:
    from blackwell_matmul.harness.calls.kernel_call import KernelCall

OWN_TARGET = "the kernel's own, or sm_100a"
Sizes = tuple[int, int, int]


def checked(check: Callable[[str], str]) -> Callable[[str | None], str | None]:
    return lambda value: None if value is None else check(value)


def known_kernel(name: str) -> str:
    from blackwell_matmul.harness.calls.user_kernel import check_name

    check_name(name)
    return name


def known_gpu(name: str) -> str:
    """Return a GPU's name or target unchanged; raise InputError if it is unknown."""
    gpu_named(name)
    return name


def known_executor(name: str) -> str:
    from blackwell_matmul.jobs.executors import known

    return known(name)


def known_timed_gpu(name: str, option: str = "gpu") -> str:
    from blackwell_matmul.hardware.gpu_figures import timed_gpu

    return timed_gpu(name, option)


def flag(name: str, text: str) -> Any:
    """Return a typer option without a value. text: its help."""
    return typer.Option(name, help=text)


def word(metavar: str, text: str, *names: str, default: str = "", check: Callable[[str], str] | None = None) -> Any:
    """Return a typer option with a value. text: its help. names: names of the option; empty: the parameter's name.

    default: text about the default, for the help; "": the parameter's default. check: function that returns the value,
    or raises InputError.
    """
    callback = None if check is None else checked(check)
    return typer.Option(*names, metavar=metavar, help=text, show_default=default or True, callback=callback)


KERNEL_GPU = "one that the kernel is for"
TARGET_TEXT = "The GPU as the compiler calls it, such as sm_100a; in place of --gpu."
TimedGpu = Annotated[
    str | None, word("NAME", "The GPU by name, such as B200.", "--gpu", default=KERNEL_GPU, check=known_timed_gpu)
]
TimedTarget = Annotated[
    str | None, word("GPU", TARGET_TEXT, "--target", check=lambda name: known_timed_gpu(name, "target"))
]
Size = Annotated[
    tuple[str, str, str] | None,
    word("M N K", "C[M, N] = A[M, K] @ B[N, K].T, in elements.", default="1024 1024 1024"),
]
Json = Annotated[bool, flag("--json", "Print the result as one JSON object.")]

NAMES_TEXT = "v0–v6, s0–s2, h0–h7, g0–g1, blackwell, hopper, few, gemv"
"""Names of all kernels for help texts; v0–v6 means v0, v1, .. v6."""

Kernel = Annotated[
    str,
    typer.Argument(
        metavar="KERNEL",
        help=f"A rung ({NAMES_TEXT}), or a script of your own: my_kernel.py:MyScript.",
        callback=checked(known_kernel),
    ),
]
Dtype = Annotated[
    str | None,
    word(
        "|".join(BITS),
        "Type of A and B, and of C, which is bf16 where they have 8 bits or less.",
        "--dtype",
        default="fp16; mxfp8 for s0–s2 and g1",
        check=plain_dtype,
    ),
]
Pins = Annotated[str, word("KNOB=VALUE,...", "Arguments of the kernel to pin; it chooses the others.", "--schedule")]
Target = Annotated[
    str | None,
    word("GPU", "B200, or as the compiler calls it, sm_100a.", "--target", default=OWN_TARGET, check=target_named),
]
Workers = Annotated[str | None, word("INTEGER", "Processes to simulate with.", "--workers", default="one a core")]
POLICIES_TEXT = "When asynchronous operations complete: adversarial (as late as is legal), eager or random."
Policy = Annotated[str, word("POLICY", POLICIES_TEXT, "--policy", check=plain_policy)]


# --- values


def problem_of(kernel: str, size: Sizes | None, dtype: str | None, form: Form = PLAIN, batches: int = 1) -> Problem:
    """Return the problem of a command. Without a dtype the type is fp16, or mxfp8 for a block-scaled kernel."""
    m, n, k = size or (1024, 1024, 1024)
    first = next(iter(BLOCK_SCALED)) if kernel in BLOCK_SCALED_LADDER else "fp16"
    return Problem(m, n, k, first if dtype is None else dtype, form, batches)


def sizes_of(size: tuple[str, str, str] | None, least: int = 1) -> Sizes | None:
    if size is None:
        return None
    m, n, k = (positive(name, integer(f"{name} of --size", text), least) for name, text in zip("mnk", size))
    return m, n, k


DEFAULT_EMULATED_SIZE = (512, 512, 512)
"""Default M, N and K of an emulated problem, which takes one or two seconds."""


@dataclass(frozen=True)
class KernelRequest:
    """Kernel, size, type, pins and form that a command names."""

    kernel: str
    size: Sizes | None
    dtype: str | None
    schedule: str
    form: Form = PLAIN
    batches: int = 1

    @property
    def names_a_file(self) -> bool:
        from blackwell_matmul.harness.calls.user_kernel import names_a_file

        return names_a_file(self.kernel)

    @property
    def title(self) -> str:
        return self.kernel if self.names_a_file else f"{self.kernel} {self.problem}"

    @property
    def problem(self) -> Problem:
        return problem_of(self.kernel, self.size, self.dtype, self.form, self.batches)

    def resolved(self, seed: int | None, target: str | None) -> KernelCall:
        from blackwell_matmul.harness.calls.kernel_call import resolve

        more: Any = {"size": self.size, "batches": self.batches, "target": target, "seed": seed}
        return resolve(self.kernel, (), self.dtype, self.schedule, self.form, **more)


def kernel_request(
    kernel: str, size: tuple[str, str, str] | None, dtype: str | None, schedule: str, form: Form, batches: int
) -> KernelRequest:
    """Return the request of these options; raise InputError for values that do not fit.

    The names of knobs are checked only for kernels of this package; a user's class checks its own.
    """
    from blackwell_matmul.harness.calls.user_kernel import names_a_file

    if dtype in EIGHT_BITS and (form.a_major, form.b_major) != (PLAIN.a_major, PLAIN.b_major):
        raise InputError(f"--dtype is {dtype}, of 8 bits, which is read contiguous along k alone; give --layout tn.")
    least = 0 if names_a_file(kernel) else 1  # example_args of a file may accept 0
    request = KernelRequest(kernel, sizes_of(size, least), dtype, schedule, form, batches)
    if not request.names_a_file:
        Schedule.parse(schedule)
    return request


def one_gpu(gpu: str | None, target: str | None) -> str | None:
    if gpu is not None and target is not None:
        raise InputError("--gpu and --target name the same thing; give one of the two.")
    return gpu if target is None else target


def seed_of(text: str) -> int:
    return plain_seed(integer("--seed", text))


def orders_of(text: str | None) -> int | None:
    """Return the value of --orders; None without the option."""
    return None if text is None else _between("--orders", text, MAX_ORDERS)


def workers_of(text: str | None) -> int | None:
    """Return the value of --workers; None without the option."""
    return None if text is None else _between("--workers", text, MAX_WORKERS)


def words_of(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(","))))


def integer(name: str, text: str) -> int:
    """Return an option's text as an integer; raise InputError for other texts. name: the option, for the message."""
    if not re.fullmatch(r"[+-]?[0-9]{1,100}", text):
        raise InputError(f"{name} is {text[:100]!r}; it must be an integer.")
    return int(text)


def decimal(text: str) -> float | None:
    """Return a text as a finite number; None for any other text."""
    try:
        return number(float(text))
    except ValueError:
        return None


def _between(name: str, text: str, most: int) -> int:
    """Return an option's text as an integer from 1 to most; raise InputError for other texts."""
    count = integer(name, text)
    if not 1 <= count <= most:
        raise InputError(f"{name} is {text[:100]}; it must be an integer from 1 to {most}.")
    return count
