"""What a case is: a kernel of another compiler, its launch, the data that it runs on and what it must compute.

`Case` is how the families in `kernels/` write one. `compiled` makes PTX and a plain record of it, which needs the
compiler (Triton, or CuTe DSL) but no GPU; `run.py` needs the record and the PTX alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

TRITON_TYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
}

MAP_TYPES = [
    "UINT8",
    "UINT16",
    "UINT32",
    "INT32",
    "UINT64",
    "INT64",
    "FLOAT16",
    "FLOAT32",
    "FLOAT32_FTZ",
    "FLOAT64",
    "BFLOAT16",
    "TFLOAT32",
    "TFLOAT32_FTZ",
    "16U4_ALIGN8B",
    "16U4_ALIGN16B",
    "16U6_ALIGN16B",
]
"""CU_TENSOR_MAP_DATA_TYPE_ by the number in Triton's metadata, which orders three of them as PTX does, not cuda.h."""

SWIZZLES = ("NONE", "32B", "64B", "128B")


@dataclass(frozen=True)
class Tensor:
    """A tensor of a case. exact, random: recipes of its values (`data.py`); fill: the one value of an output."""

    shape: tuple[int, ...]
    dtype: str
    exact: Mapping[str, Any] = field(default_factory=dict)
    random: Mapping[str, Any] = field(default_factory=dict)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    def record(self) -> dict[str, Any]:
        return {"shape": self.shape, "dtype": self.dtype, "exact": self.exact, "random": self.random or self.exact}


@dataclass(frozen=True)
class Descriptor:
    """A tensor map that the host makes. layout: Gluon's layout in shared memory; None: Triton chooses it."""

    tensor: str
    block: tuple[int, ...]
    layout: Any = None
    padding: str = "zero"
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    tf32: bool = False


@dataclass(frozen=True)
class Constant:
    """A `constexpr` parameter."""

    value: Any


@dataclass(frozen=True)
class Launch:
    """A kernel's name and launch, and the recipe of each parameter."""

    kernel: str
    block: int
    shared_bytes: int
    arguments: list[dict[str, Any]]
    ctas: int = 1


Argument = str | int | float | Descriptor | Constant
"""A tensor by its name, a scalar, a tensor map or a constant."""


@dataclass(frozen=True)
class Case:
    """One kernel and one launch. arguments: by parameter; a 1 becomes a constant, as Triton makes it.

    reference: a function of `references.py` and its options, which names tensors. exact: on exact data nothing is
    rounded but into the output's type, so that the result must be equal. compile: makes PTX and launch by another
    compiler than Triton. races: what the compiler left unordered, for code that is right only where asynchronous
    operations are quick.
    """

    name: str
    family: str
    kernel: Any
    grid: tuple[int, ...]
    tensors: Mapping[str, Tensor]
    arguments: Mapping[str, Argument]
    reference: tuple[str, Mapping[str, Any]]
    targets: tuple[int, ...] = (90, 100)
    options: Mapping[str, Any] = field(default_factory=dict)
    gluon: bool = False
    compile: Callable[[], tuple[str, Launch]] | None = None
    exact: bool = True
    races: str = ""


def compiled(case: Case, target: int) -> tuple[str, dict[str, Any]]:
    """PTX and record of a case for an architecture. Whatever the compiler raises goes through."""
    if case.compile is not None:
        ptx, launch = case.compile()
        return ptx, _record(case, ptx, launch)
    import triton
    from triton.backends.compiler import GPUTarget

    made = triton.compile(_source(case), target=GPUTarget("cuda", target, 32), options=dict(case.options))
    ptx, metadata = made.asm["ptx"], made.metadata
    arguments = _matched(ptx, [*_arguments(case, metadata), *_scratch(case, metadata)])
    launch = Launch(metadata.name, 32 * metadata.num_warps, metadata.shared, arguments, metadata.num_ctas)
    return ptx, _record(case, ptx, launch)


def _source(case: Case) -> Any:
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    signature, constants, attributes = {}, {}, {}
    for position, name in enumerate(case.kernel.arg_names):
        argument = case.arguments[name]
        constant = isinstance(argument, Constant) or (isinstance(argument, int) and argument == 1)
        signature[name] = "constexpr" if constant else _type(case, argument)
        if constant:
            constants[name] = argument.value if isinstance(argument, Constant) else argument
        elif isinstance(argument, str) or (isinstance(argument, int) and argument % 16 == 0):
            attributes[(position,)] = [["tt.divisibility", 16]]
    kind = GluonASTSource if case.gluon else ASTSource
    return kind(fn=case.kernel, signature=signature, constexprs=constants, attrs=attributes)


def _type(case: Case, argument: Argument) -> str:
    if isinstance(argument, str):
        return "*" + TRITON_TYPES[case.tensors[argument].dtype]
    if isinstance(argument, Descriptor):
        element = TRITON_TYPES[case.tensors[argument.tensor].dtype]
        layout = f",{argument.layout!r}" if argument.layout is not None else ""
        return f"tensordesc<{element}[{','.join(map(str, argument.block))}]{layout}>"
    return "fp32" if isinstance(argument, float) else "i32"


# --- the record


def _record(case: Case, ptx: str, launch: Launch) -> dict[str, Any]:
    grid = (*case.grid, 1, 1)[:3]
    name, options = case.reference
    return {
        "name": case.name,
        "family": case.family,
        "target": re.search(r"^\.target (\w+)", ptx, re.MULTILINE)[1],  # type: ignore[index]
        "kernel": launch.kernel,
        "grid": (grid[0] * launch.ctas, *grid[1:]),
        "block": (launch.block, 1, 1),
        "cluster": (launch.ctas, 1, 1),
        "shared_bytes": launch.shared_bytes,
        "tensors": {key: tensor.record() for key, tensor in case.tensors.items()},
        "arguments": launch.arguments,
        "reference": {"reference": name, **options},
        "exact": case.exact,
        **({"races": case.races} if case.races else {}),
        "opcodes": dict(sorted(asynchronous(ptx).items())),
    }


def _arguments(case: Case, metadata: Any) -> Iterator[dict[str, Any]]:
    """What the launcher of Triton passes for each parameter, in order."""
    descriptors = iter(metadata.tensordesc_meta or ())
    for name in case.kernel.arg_names:
        argument = case.arguments[name]
        if isinstance(argument, Descriptor):
            tensor = case.tensors[argument.tensor]
            shape, strides = argument.shape or tensor.shape, argument.strides or tensor.strides
            yield {"map": _map(argument, shape, strides, next(descriptors))}
            yield from ({"value": value, "type": "32"} for value in shape)
            yield from ({"value": value, "type": "64"} for value in strides)
        elif isinstance(argument, str):
            yield {"tensor": argument}
        elif not isinstance(argument, Constant) and argument != 1:
            yield {"value": argument, "type": "32"}


def _map(
    argument: Descriptor, shape: tuple[int, ...], strides: tuple[int, ...], how: Mapping[str, Any]
) -> dict[str, Any]:
    dims = (*shape[:-1], shape[-1] * (2 if how["fp4_padded"] else 1))
    return {
        "tensor": argument.tensor,
        "dtype": "TFLOAT32" if argument.tf32 else MAP_TYPES[how["elem_type"]],
        "dims": dims[::-1],
        "strides_bytes": [stride * how["elem_size"] for stride in strides[:-1]][::-1],
        "box": how["block_size"][::-1],
        "element_strides": [1] * len(dims),
        "interleave": "NONE",
        "swizzle": SWIZZLES[how["swizzle"]],
        "l2_promotion": "L2_128B",
        "oob_fill": "NAN_REQUEST_ZERO_FMA" if argument.padding == "nan" else "NONE",
    }


def _scratch(case: Case, metadata: Any) -> Iterator[dict[str, Any]]:
    """The two pointers after the kernel's own parameters; 0 bytes is a null pointer."""
    programs = math.prod(case.grid) * metadata.num_ctas
    yield {"scratch": metadata.global_scratch_size * programs}
    yield {"scratch": metadata.profile_scratch_size * programs}


def _matched(ptx: str, arguments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The arguments, held against the `.param` list of the entry; ValueError where they differ."""
    entry = re.search(r"\.entry \w+\((.*?)\)", ptx, re.DOTALL)
    kinds = [_kind(line) for line in entry[1].split(",\n")]  # type: ignore[index]
    wanted = [_wanted(argument) for argument in arguments]
    if kinds != wanted:
        raise ValueError(f"the kernel takes {kinds} and would be given {wanted}")
    return [{key: value for key, value in argument.items() if key != "type"} for argument in arguments]


def _kind(parameter: str) -> str:
    if "[128]" in parameter:
        return "map"
    return "pointer" if ".ptr" in parameter else re.search(r"\.[a-z](\d+)", parameter)[1]  # type: ignore[index]


def _wanted(argument: Mapping[str, Any]) -> str:
    return "map" if "map" in argument else argument.get("type", "pointer")


# --- opcodes

ASYNCHRONOUS = ("mbarrier", "tcgen05", "wgmma", "cp.", "clusterlaunchcontrol", "tensormap", "barrier.cluster", "mapa")


def instructions(ptx: str) -> Iterator[tuple[str, str]]:
    """(opcode with all its suffixes, the line) of each instruction, also of those that share a line in braces."""
    body = re.sub(r"/\*.*?\*/", " ", re.sub(r"//[^\n]*", "", ptx), flags=re.DOTALL)
    for statement in re.split(r"[;{}\n]\s*", re.sub(r"\{([^{};]*)\}", r"<\1>", body)):
        line = " ".join(statement.split())
        found = re.match(r"(?:@!?%?\w+ )?([a-z][a-z0-9_]*(?:(?:\.|::)\w+)*)(?= |$)", line)
        if found and not line.endswith(":"):
            yield found[1], line.replace("<", "{").replace(">", "}")


def asynchronous(ptx: str) -> Counter[str]:
    """How often each opcode of barriers, copies, tensor cores and clusters stands in the text."""
    return Counter(opcode for opcode, _ in instructions(ptx) if opcode.startswith(ASYNCHRONOUS))
