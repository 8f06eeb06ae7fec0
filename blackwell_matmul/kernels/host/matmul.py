"""Base class of the matmul kernels. It checks the arguments of a call and chooses a schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import has_memory, same, shown
from blackwell_matmul.hardware.gpus import GPUS, Gpu, gpu_for_target
from blackwell_matmul.problem.problem import (
    C_BYTES,
    DTYPE_OF_TORCH,
    EIGHT_BITS,
    INT32_MAX,
    SIXTEEN_BITS,
    TORCH_NAMES,
    Problem,
    c_dtype,
    features_of,
    plain_features,
    positive,
)
from blackwell_matmul.runtime.script import Script
from blackwell_matmul.scheduling import rules, space
from blackwell_matmul.scheduling.cost_model import EARLY_PRODUCTS, EARLY_WEIGHTS

ALIGNMENT_BYTES = 16
"""Divisor of a tensor's address, in bytes: TMA requires it, and the widest cp.async copies 16 bytes."""

HALVES, BYTES = (tuple(getattr(torch, TORCH_NAMES[name]) for name in names) for names in (SIXTEEN_BITS, EIGHT_BITS))
"""torch's types of A and B: those of 16 bits, and those of 8 bits."""

_TILUS_NAMES = {
    "fp16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3", "e5m2": "float8_e5m2", "fp32": "float32",
}  # fmt: skip


class MatmulScript(Script):
    """C[m, n] = A[m, k] @ B[n, k].T, called with (m, n, k, a, b, c) on row-major tensors; c is written.

    A, B and C are fp16 or bf16. With tcgen05, A and B may also be e4m3 or e5m2; C is then bf16.

    A subclass names its `features`. They determine its knobs, which are parameters of its `__init__` after `dtype`. A
    persistent kernel also takes the number of SMs, `sm_count`.
    """

    features: ClassVar[tuple[str, ...]] = ()
    """Features of the kernel: keys of `problem.FEATURES`. A subclass that names only `knobs` gets the features that
    have these knobs."""

    knobs: ClassVar[tuple[str, ...]] = ()
    target: ClassVar[str] = "sm_100a"
    """Target for which the kernel is simulated and compiled by default."""

    targets: ClassVar[tuple[str, ...]] = ()
    """Targets of known GPUs for which the kernel can be compiled. They follow from `mma` and `features`."""

    mma: ClassVar[str] = "tcgen05"
    """MMA instruction of the kernel, one of `problem.MMAS`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "features" in vars(cls):
            cls.features = plain_features(cls.features)
            cls.knobs = vars(cls).get("knobs", space.knobs_of(cls.features, cls.mma))
        elif "knobs" in vars(cls):
            cls.features = features_of(cls.knobs)
        cls.targets = rules.targets(cls.mma, cls.features)

    @classmethod
    def complete(
        cls, pins: Mapping[str, object], args: Sequence[Any], target: str, gpu: Gpu | None = None
    ) -> dict[str, object]:
        """Return the arguments of `__init__` for a call: the type of the elements, and a schedule with the pins.

        gpu: GPU for which the schedule is chosen; None: the GPU that represents the target.
        """
        import tilus

        cls.check_arguments(*args)
        knobs = dict(pins)
        problem, of_call = cls.problem_of(knobs, *args)
        element_type = cls.type_named(problem.dtype)
        pinned_type = knobs.pop("dtype", element_type)
        if not same(pinned_type, element_type) and not same(pinned_type, element_type.name):
            name = getattr(pinned_type, "name", "") if isinstance(pinned_type, tilus.DataType) else shown(pinned_type)
            raise InputError(f"dtype is pinned to {name} and the tensors are {args[3].dtype}; leave dtype out.")
        gpu = gpu or cls._gpu(target)
        fixed = {"sm_count": knobs.pop("sm_count", gpu.sm_count)} if "persistent" in cls.features else {}
        schedule = space.choose(cls, problem, gpu, knobs)
        return {"dtype": element_type, **schedule.as_dict(), **fixed, **of_call}

    @classmethod
    def problem_of(cls, knobs: dict[str, object], *args: Any) -> tuple[Problem, dict[str, object]]:
        """Return the problem of a call, and further arguments of `__init__`; remove their pins from `knobs`."""
        m, n, k, a = args[:4]
        return Problem(int(m), int(n), int(k), DTYPE_OF_TORCH[str(a.dtype)]), {}

    @staticmethod
    def type_named(name: str) -> Any:
        """Return tilus's type for a key of `problem.DTYPES`, or for "fp32"."""
        import tilus

        return getattr(tilus, _TILUS_NAMES[name])

    @staticmethod
    def type_of_c(dtype: Any) -> Any:
        """Return tilus's type of C for tilus's type of A and B, by the rule of `problem.c_dtype`."""
        import tilus

        return dtype if dtype.nbytes == C_BYTES else tilus.bfloat16

    @classmethod
    def starts_early(cls, arguments: Mapping[str, Any]) -> Any:
        """Return the condition under which a grid may start before the preceding grid ends: the problem is small.

        The condition is never met with neighbours=1, where CTAs must start in order. The value is an expression of a
        launch plan (`compiler.plan.Expr`). arguments: the kernel's constants, and each parameter of a call as a number
        or as its name.
        """
        if arguments.get("neighbours") == 1:
            return 0
        if not arguments.keys() >= set("mnk"):  # a subclass has other parameters
            return 1
        m, n, k = (arguments[name] for name in "mnk")
        weights = ("*", n, k)
        return ("and", ("<=", weights, EARLY_WEIGHTS), ("<=", ("*", m, weights), EARLY_PRODUCTS))

    @classmethod
    def _gpu(cls, target: str) -> Gpu:
        """Return the GPU that represents a target, also one that `why_not` refuses; raise InputError if unknown."""
        if target in {gpu.arch for gpu in GPUS.values()}:
            return gpu_for_target(target)
        offered = ", ".join(cls.targets)
        raise InputError(f"target is {shown(target)}; {cls.__name__} can be compiled for {offered}.")

    @classmethod
    def check_arguments(cls, m: Any, n: Any, k: Any, a: Any, b: Any, c: Any) -> None:
        """Raise InputError for arguments that no schedule can run."""
        m, n, k = (size(name, value) for name, value in (("m", m), ("n", n), ("k", k)))
        tensors = {"a": a, "b": b, "c": c}
        for name, tensor in tensors.items():
            check_is_tensor(name, tensor)
        for name, tensor in (("a", a), ("b", b)):
            check_dtype(name, tensor)
        check_same("type", {"a": str(a.dtype), "b": str(b.dtype)})
        _check_type_of_c(a, c)
        check_device(tensors)
        for name, dims in (("a", "mk"), ("b", "nk"), ("c", "mn")):
            check_shape(name, tensors[name], dims, {"m": m, "n": n, "k": k})
        for name, tensor in tensors.items():
            check_layout(name, tensor)
        check_memory_of_c(c, {"a": a, "b": b})


MOST = INT32_MAX - 255
"""Maximum m, n, k and number of batches: kernels round sizes up to whole tiles in 32 bits."""


def size(name: str, value: Any) -> int:
    """Return m, n or k as an int from 1 to `MOST`; raise InputError for any other value."""
    found = positive(name, value)
    if found > MOST:
        raise InputError(f"{name} is {found}; kernels count tiles in 32 bits, for {MOST} at most.")
    return found


def check_is_tensor(name: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise InputError(f"{name} is {shown(tensor)}; it must be a torch.Tensor.")
    if tensor.layout is not torch.strided:
        raise InputError(f"{name} has layout {tensor.layout}; it must be a dense tensor ({name}.to_dense() makes one).")
    if not has_memory(tensor):
        raise InputError(f"{name} is {shown(tensor)} without memory of its own; it must be a dense tensor.")


def check_dtype(name: str, tensor: Any) -> None:
    if str(tensor.dtype) not in DTYPE_OF_TORCH:
        raise InputError(f"{name} is {tensor.dtype}; it must be {' or '.join(DTYPE_OF_TORCH)}.")


def _check_type_of_c(a: Any, c: Any) -> None:
    wanted = getattr(torch, TORCH_NAMES[c_dtype(DTYPE_OF_TORCH[str(a.dtype)])])
    if c.dtype != wanted:
        raise InputError(f"c is {c.dtype} and a is {a.dtype}; with these c must be {wanted}.")


def check_same(what: str, values: Mapping[str, str]) -> None:
    (first, expected), *others = values.items()
    for name, value in others:
        if value != expected:
            raise InputError(f"{name} is {value} and {first} is {expected}; {', '.join(values)} must share one {what}.")


def check_device(tensors: Mapping[str, Any]) -> None:
    check_same("device", {name: str(tensor.device) for name, tensor in tensors.items()})


def check_shape(name: str, tensor: Any, dims: str, sizes: Mapping[str, int]) -> None:
    shape, expected = tuple(tensor.shape), tuple(sizes[dim] for dim in dims)
    if shape != expected:
        raise InputError(f"{name} has shape {shape}; it must be ({', '.join(dims)}) = {expected}.")


def row_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor of this shape, in elements."""
    strides: tuple[int, ...] = ()
    step = 1
    for extent in shape[::-1]:
        strides = (step, *strides)
        step = step * (extent or 1)
    return strides


def check_layout(name: str, tensor: Any) -> None:
    if not tensor.is_contiguous():
        wanted = row_major_strides(tuple(tensor.shape))
        raise InputError(
            f"{name} has strides {tuple(tensor.stride())} and is not row-major and contiguous, with strides {wanted}; "
            f"{name}.contiguous() is."
        )
    if tensor.data_ptr() % ALIGNMENT_BYTES:
        raise InputError(
            f"{name} starts {tensor.data_ptr() % ALIGNMENT_BYTES} bytes past a multiple of {ALIGNMENT_BYTES}, "
            f"where it must start; {name}.clone() does."
        )


def check_memory_of_c(c: Any, read: Mapping[str, Any]) -> None:
    """Raise InputError if c requires a gradient, or shares memory with a tensor that is read. read: these by name."""
    if c.requires_grad:
        raise InputError("c requires grad, and autograd does not see what a kernel writes; pass c.detach().")
    for name, tensor in read.items():
        if share_memory(c, tensor):
            raise InputError(
                f"c shares memory with {name}, which is read while c is written; give c memory of its own."
            )


def share_memory(x: Any, y: Any) -> bool:
    """Return True if two tensors, each contiguous along some dimension, have a byte in common, or might have one.

    Neighbouring columns of one larger matrix have no byte in common. Tensors on the meta device have no memory.
    """
    if x.device.type == "meta":
        return False
    (first, last), (begin, end) = _span(x), _span(y)
    if last <= begin or end <= first:
        return False
    period = math.gcd(*_steps(x), *_steps(y))
    if not period:
        return True
    apart = (begin - first) % period
    return not (_line(x) <= apart and apart + _line(y) <= period)


def _span(x: Any) -> tuple[int, int]:
    """Return the address of the first byte of x, and the address after its last byte."""
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()


def _steps(x: Any) -> list[int]:
    """Return the strides in bytes of the dimensions whose stride is not 1."""
    return [s * x.element_size() for size, s in zip(x.shape, x.stride(), strict=True) if size > 1 and s != 1]


def _line(x: Any) -> int:
    """Return the bytes of a line: the extent of the contiguous dimension."""
    sizes = [size for size, stride in zip(x.shape, x.stride(), strict=True) if stride == 1]
    return int(max(sizes, default=1)) * int(x.element_size())
