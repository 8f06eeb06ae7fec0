"""`emulate`: PTX and arguments in, results in the tensors that were given."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blackwell_matmul.compiler.bundle import Bundle
from blackwell_matmul.compiler.plan import Launch, TensorMap
from blackwell_matmul.emulator import instructions, tensor_map
from blackwell_matmul.emulator.code import Builder, Executable, Unknown
from blackwell_matmul.emulator.lanes import LANES, WORDS, Array
from blackwell_matmul.emulator.machine import ClusterState, CtaState, WarpState
from blackwell_matmul.emulator.parser import SIZES, Entry, Module, Variable, float_bits, parse
from blackwell_matmul.emulator.scheduler import ORDERS, Execution
from blackwell_matmul.emulator.spaces import PARAM, RANK, RESERVED_BYTES, GlobalSpace, Memory
from blackwell_matmul.errors import InputError
from blackwell_matmul.validation import shown

assert instructions  # their functions are registered

TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121")
MAX_SHARED_BYTES = 227 * 1024
Extents = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Emulation:
    """What a run took. instructions: of warps; ctas: that ran; operations: asynchronous ones that completed."""

    kernel: str
    target: str
    ctas: int
    instructions: int


def emulate(
    code: Bundle | str | Path,
    *args: object,
    grid: Sequence[int] | int | None = None,
    block: Sequence[int] | int | None = None,
    cluster: Sequence[int] | int | None = None,
    shared_bytes: int = 0,
    kernel: str | None = None,
    order: str = "late",
    seed: int = 0,
) -> Emulation:
    """Execute compiled code on the CPU: a bundle of this project, or any PTX as a path or as text.

    args: for a bundle, those of `bundle.plan.parameters`, and its plan says the rest. For other PTX one for each
    `.param`: a tensor or array for a pointer (written in place; None is a null pointer), a number, or a `TensorMap`
    whose `pointer` is a tensor. grid, cluster: in CTAs; block: in threads; shared_bytes: dynamic. kernel: which one,
    where there are several. order: when asynchronous operations complete, one of `ORDERS`; seed: of "random".

    Raises InputError for what does not fit, and EmulationError, one sentence with the line of the PTX, where the code
    has no meaning, waits for ever or does not end.
    """
    if order not in ORDERS:
        raise InputError(f"order is {shown(order)}; there are {', '.join(ORDERS)}.")
    if isinstance(code, Bundle):
        if grid is not None or block is not None or cluster is not None or shared_bytes:
            raise InputError("a bundle says its own grid, block, cluster and shared memory; leave them out.")
        return _of_bundle(code, args, order, seed)
    module = parse(_text(code))
    chosen = _kernel(module, kernel)
    extents = [_extents(name, value) for name, value in (("grid", grid), ("block", block), ("cluster", cluster))]
    memory = GlobalSpace()
    values = _parameters(chosen, args, memory)
    return _run(module, chosen, memory, values, (extents[0], extents[1], extents[2]), shared_bytes, order, seed)


def _text(code: str | Path) -> str:
    if isinstance(code, str) and "\n" in code:
        return code
    try:
        return Path(code).read_text()
    except (OSError, UnicodeDecodeError, TypeError) as error:
        raise InputError(f"cannot read PTX from {shown(code)}: {getattr(error, 'strerror', None) or error}.") from error


def _kernel(module: Module, name: str | None) -> Entry:
    if not module.target.startswith(TARGETS):
        raise InputError(f"this PTX is for {module.target}; emulated are {', '.join(TARGETS)}.")
    if name is None and len(module.kernels) == 1:
        return next(iter(module.kernels.values()))
    if name not in module.kernels:
        asked = "which kernel?" if name is None else f"there is no kernel {name!r}:"
        raise InputError(f"{asked} this PTX has {', '.join(module.kernels)}.")
    return module.kernels[name]


def _extents(name: str, value: Sequence[int] | int | None) -> Extents:
    given = (1,) if value is None else (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(given) <= 3 or not all(isinstance(each, int) and each >= 1 for each in given):
        raise InputError(f"{name} is {shown(value)}; it takes one to three positive numbers.")
    padded = (*given, 1, 1)
    return padded[0], padded[1], padded[2]


# --- arguments


def _of_bundle(bundle: Bundle, args: Sequence[object], order: str, seed: int) -> Emulation:
    memory = GlobalSpace()
    names = [parameter.name for parameter in bundle.plan.parameters]
    values = [_value(memory, name, each) for name, each in itertools.zip_longest(names, args, fillvalue="")]
    launch = bundle.plan.evaluate(values[: len(args)])
    if launch.is_empty:
        return Emulation(bundle.plan.kernel, bundle.target, 0, 0)
    module = parse(bundle.ptx)
    kernel = _kernel(module, bundle.plan.kernel)
    images = [tensor_map.image(each, _number(each.pointer)) for each in launch.tensor_maps]
    spaces = [
        memory.add(f"workspace {index}", np.zeros(_number(each.nbytes), np.uint8)).base
        for index, each in enumerate(launch.workspaces)
    ]
    raw = [_packed(kernel, place, _plan_value(launch, place, images, spaces)) for place in range(len(launch.arguments))]
    extents = launch.grid, launch.block, launch.cluster
    return _run(module, kernel, memory, raw, extents, launch.dynamic_shared_bytes, order, seed)


def _number(value: Any) -> int:
    """An expression of a plan that was evaluated."""
    return int(value)


def _plan_value(launch: Launch, place: int, images: list[bytes], spaces: list[int]) -> Any:
    argument = launch.arguments[place]
    if argument.kind == "tensor_map":
        return images[argument.value]  # type: ignore[index]
    return spaces[argument.value] if argument.kind == "workspace" else argument.value  # type: ignore[index]


def _value(memory: GlobalSpace, name: str, given: object) -> Any:
    """A number as it is; a tensor as its address."""
    return given if isinstance(given, (int, float)) else _placed(memory, name, given)


def _placed(memory: GlobalSpace, name: str, tensor: Any) -> int:
    """The address of a tensor's first element; tensors that share memory do so here."""
    data, offset = _bytes_of(name, tensor)
    for each in memory.memories:
        if each.data.ctypes.data == data.ctypes.data and each.nbytes == data.size:
            return each.base + offset
    return memory.add(name, data).base + offset


def _bytes_of(name: str, tensor: Any) -> tuple[Array, int]:
    """The whole storage behind a tensor as bytes, and where the tensor starts in it."""
    if hasattr(tensor, "untyped_storage"):
        import torch

        if tensor.device.type != "cpu":
            raise InputError(f"{name} is on {tensor.device}; the emulator takes tensors on the CPU.")
        storage = torch.tensor([], dtype=torch.uint8).set_(tensor.untyped_storage())
        return storage.numpy(), tensor.data_ptr() - storage.data_ptr()
    if not isinstance(tensor, np.ndarray):
        raise InputError(f"{name} is {shown(tensor)}; a pointer takes a tensor, an array or None.")
    root = tensor
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not root.flags.c_contiguous or not root.flags.writeable:
        raise InputError(f"{name} is no array that owns writeable, contiguous memory.")
    return root.reshape(-1).view(np.uint8), tensor.ctypes.data - root.ctypes.data


def _parameters(kernel: Entry, args: Sequence[object], memory: GlobalSpace) -> list[bytes]:
    if len(args) != len(kernel.parameters):
        told = ", ".join(_declared(each) for each in kernel.parameters)
        raise InputError(f"{kernel.name} takes {len(kernel.parameters)} parameters ({told}) and got {len(args)}.")
    return [_packed(kernel, place, _foreign_value(memory, place, each)) for place, each in enumerate(args)]


def _declared(parameter: Variable) -> str:
    return f".{parameter.type}" + f"[{parameter.nbytes}]" * (parameter.nbytes != SIZES[parameter.type])


def _foreign_value(memory: GlobalSpace, place: int, given: Any) -> Any:
    name = f"argument {place}"
    if given is None:
        return 0
    if isinstance(given, TensorMap):
        return tensor_map.image(given, _placed(memory, f"the tensor of {name}", given.pointer))
    return given if isinstance(given, (int, float, bytes)) else _placed(memory, name, given)


def _packed(kernel: Entry, place: int, value: Any) -> bytes:
    """A parameter's bytes; InputError where the value does not fit its type."""
    parameter = kernel.parameters[place]
    size = parameter.nbytes or 0
    if isinstance(value, bytes):
        if len(value) != size:
            raise InputError(f"parameter {place} of {kernel.name} has {size} bytes and was given {len(value)}.")
        return value
    if parameter.type in ("f32", "f64"):
        return float_bits(float(value), size).to_bytes(size, "little")
    if not isinstance(value, (int, np.integer)) or size > 8:
        raise InputError(
            f"parameter {place} of {kernel.name} is .{parameter.type} of {size} bytes; it was given {shown(value)}."
        )
    if not -(1 << 8 * size - 1) <= value < 1 << 8 * size:
        raise InputError(f"parameter {place} of {kernel.name} has {size} bytes, in which {value} does not fit.")
    return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")


# --- the run


def _run(
    module: Module,
    kernel: Entry,
    memory: GlobalSpace,
    values: list[bytes],
    extents: tuple[Extents, Extents, Extents],
    shared_bytes: int,
    order: str,
    seed: int,
) -> Emulation:
    grid, block, cluster = extents
    cluster = _cluster(kernel, cluster)
    _verify(kernel, grid, block, cluster, shared_bytes)
    parameters, addresses = _placed_parameters(kernel, values)
    for variable in (*module.variables, *kernel.variables):
        if variable.space in ("global", "const"):
            data = np.zeros(variable.nbytes or 1, np.uint8)
            data[: len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
            addresses[variable.name] = memory.add(variable.name, data).base
        elif variable.space == "local":
            raise InputError(f"{kernel.name} has local memory ({variable.name}), which is not emulated.")
    shared, total = _shared_places(module, kernel, shared_bytes)
    builder = Builder(kernel.registers, kernel.labels, addresses)
    steps = _steps(builder, kernel)
    starter = _Starter(builder, (grid, block, cluster), addresses, shared, total, shared_bytes)
    clusters = [range(0, extent, size) for extent, size in zip(grid, cluster)]
    waiting = deque((x, y, z) for z, y, x in itertools.product(*reversed(clusters)))
    machine = Execution(steps, memory, waiting, starter.start, order, seed, parameters)
    machine.run()
    return Emulation(kernel.name, module.target, grid[0] * grid[1] * grid[2], machine.executed)


def _cluster(kernel: Entry, given: Extents) -> Extents:
    """As compiled into the kernel, where it is."""
    fixed = kernel.directives.get(".reqnctapercluster")
    return _extents("cluster", fixed) if fixed else given


def _verify(kernel: Entry, grid: Extents, block: Extents, cluster: Extents, shared_bytes: int) -> None:
    threads = block[0] * block[1] * block[2]
    if any(extent % size for extent, size in zip(grid, cluster)):
        raise InputError(f"a grid of {grid} CTAs is not made of clusters of {cluster}.")
    if threads > 1024:
        raise InputError(f"a block of {block} has {threads} threads; a CTA has at most 1024.")
    for directive, fits in ((".maxntid", lambda limit: threads <= limit), (".reqntid", lambda limit: threads == limit)):
        limits = kernel.directives.get(directive)
        if limits and not fits(int(np.prod(limits))):
            raise InputError(
                f"{kernel.name} is compiled for {int(np.prod(limits))} threads ({directive}) and not for {threads}."
            )
    if shared_bytes > MAX_SHARED_BYTES:
        raise InputError(f"{shared_bytes:,} bytes of shared memory; a CTA has at most {MAX_SHARED_BYTES:,}.")


def _placed_parameters(kernel: Entry, values: list[bytes]) -> tuple[Memory, dict[str, int]]:
    """The parameters' memory, each aligned, and their addresses."""
    data, addresses = bytearray(), {}
    for parameter, value in zip(kernel.parameters, values):
        data += bytes(-len(data) % max(parameter.alignment, 1))
        addresses[parameter.name] = PARAM + len(data)
        data += value
    data += bytes(-len(data) % 16)
    return Memory("the parameters", PARAM, np.frombuffer(bytes(data) or bytes(16), np.uint8)), addresses


def _shared_places(module: Module, kernel: Entry, dynamic_bytes: int) -> tuple[dict[str, int], int]:
    """Offsets of the shared variables, the dynamic ones behind the static; and the bytes of all."""
    variables = [each for each in (*module.variables, *kernel.variables) if each.space == "shared"]
    places, at = {}, RESERVED_BYTES
    for variable in sorted(variables, key=lambda each: each.nbytes is None):
        at += -at % variable.alignment
        places[variable.name] = at
        at += variable.nbytes or 0
    dynamic: list[Variable] = [each for each in variables if each.nbytes is None]
    if not dynamic:
        at += -at % 16
    return places, at + dynamic_bytes - RESERVED_BYTES


def _steps(builder: Builder, kernel: Entry) -> list[Executable]:
    steps = []
    for each in kernel.instructions:
        try:
            steps.append(builder.build(each))
        except Unknown as error:
            place = f" ({each.location.file}:{each.location.line})" if each.location else ""
            raise Unknown(f"PTX line {each.line}{place}: {each.text[:160]}: {error}.") from error
        except (IndexError, KeyError, ValueError, StopIteration) as error:
            raise Unknown(
                f"PTX line {each.line}: {each.text[:160]} is a form that is not emulated ({error!r})."
            ) from error
    return steps


class _Starter:
    """Makes the clusters of a launch, with what each warp finds in its special registers."""

    def __init__(
        self, builder: Builder, extents: tuple[Extents, Extents, Extents], addresses: dict[str, int],
        shared: dict[str, int], shared_bytes: int, dynamic_bytes: int,
    ) -> None:  # fmt: skip
        self.builder, (self.grid, self.block, self.cluster) = builder, extents
        self.addresses, self.shared = addresses, shared
        self.shared_bytes, self.dynamic_bytes = shared_bytes, dynamic_bytes

    def start(self, grid: Execution, origin: Extents) -> ClusterState:
        """The cluster whose first CTA has this index."""
        made = ClusterState(_each(int.__floordiv__, origin, self.cluster), grid)
        size = self.cluster[0] * self.cluster[1] * self.cluster[2]
        for rank in range(size):
            place = _each(int.__add__, origin, _unravelled(rank, self.cluster))
            cta = CtaState(made, rank, place, self.shared_bytes)
            threads = self.block[0] * self.block[1] * self.block[2]
            cta.warps = [self._warp(cta, warp, threads - LANES * warp) for warp in range(-(-threads // LANES))]
            made.ctas.append(cta)
        return made

    def _warp(self, cta: CtaState, index: int, threads: int) -> WarpState:
        registers = list(self.builder.slots)
        for (name, nbytes), slot in self.builder.specials.items():
            registers[slot] = _filled(self._special(name, cta, index), nbytes)
        return WarpState(cta, index, registers, threads)

    def _special(self, name: str, cta: CtaState, warp: int) -> Any:
        """The value of a special register, or the address of a variable (PTX ISA, "Special Registers")."""
        name, _, offset = name.partition("+")
        if name in self.shared:
            return (cta.rank << RANK) + self.shared[name] + int(offset or 0)
        if name in self.addresses:
            return self.addresses[name] + int(offset or 0)
        base, _, axis = name.partition(".")
        find = _SPECIALS.get(base)
        if find is None:
            raise Unknown(f"{name} is neither a variable nor a special register that is emulated.")
        value = find(self, cta, warp)
        return value["xyz".index(axis)] if axis else value


def _filled(value: Any, nbytes: int) -> Array:
    if isinstance(value, np.ndarray):
        return value.astype(WORDS[nbytes])
    return np.full(LANES, int(value) & (1 << 8 * nbytes) - 1, WORDS[nbytes])


def _unravelled(index: Any, extents: Extents) -> Any:
    return index % extents[0], index // extents[0] % extents[1], index // (extents[0] * extents[1])


def _each(function: Callable[[int, int], int], a: Extents, b: Extents) -> Extents:
    return function(a[0], b[0]), function(a[1], b[1]), function(a[2], b[2])


_LANE = np.arange(LANES)
_SPECIALS: dict[str, Callable[[_Starter, CtaState, int], Any]] = {
    "%tid": lambda run, cta, warp: _unravelled(_LANE + LANES * warp, run.block),
    "%ntid": lambda run, cta, warp: run.block,
    "%ctaid": lambda run, cta, warp: cta.index,
    "%nctaid": lambda run, cta, warp: run.grid,
    "%laneid": lambda run, cta, warp: _LANE,
    "%warpid": lambda run, cta, warp: warp,
    "%nwarpid": lambda run, cta, warp: len(cta.warps),
    "%clusterid": lambda run, cta, warp: cta.cluster.index,
    "%nclusterid": lambda run, cta, warp: _each(int.__floordiv__, run.grid, run.cluster),
    "%cluster_ctaid": lambda run, cta, warp: _unravelled(cta.rank, run.cluster),
    "%cluster_nctaid": lambda run, cta, warp: run.cluster,
    "%cluster_ctarank": lambda run, cta, warp: cta.rank,
    "%cluster_nctarank": lambda run, cta, warp: run.cluster[0] * run.cluster[1] * run.cluster[2],
    "%is_explicit_cluster": lambda run, cta, warp: 1,
    "%smid": lambda run, cta, warp: 0,
    "%nsmid": lambda run, cta, warp: 1,
    "%gridid": lambda run, cta, warp: 0,
    "%lanemask_eq": lambda run, cta, warp: 1 << _LANE,
    "%lanemask_lt": lambda run, cta, warp: (1 << _LANE) - 1,
    "%lanemask_le": lambda run, cta, warp: (2 << _LANE) - 1,
    "%lanemask_gt": lambda run, cta, warp: 0xFFFFFFFF & ~((2 << _LANE) - 1),
    "%lanemask_ge": lambda run, cta, warp: 0xFFFFFFFF & ~((1 << _LANE) - 1),
    "%clock": lambda run, cta, warp: 0,
    "%clock64": lambda run, cta, warp: 0,
    "%globaltimer": lambda run, cta, warp: 0,
    "%dynamic_smem_size": lambda run, cta, warp: run.dynamic_bytes,
    "%total_smem_size": lambda run, cta, warp: run.shared_bytes,
    "WARP_SZ": lambda run, cta, warp: LANES,
}
