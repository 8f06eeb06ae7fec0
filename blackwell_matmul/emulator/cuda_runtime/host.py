"""CUDA state of one program: its device memory, modules, handles and launches.

Device memory has addresses that no program uses. A kernel may also access the program's own memory, as on a GPU with
address translation. The mapping around such an address is copied, and changed bytes are written back after the launch.
"""

from __future__ import annotations

import bisect
import itertools
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.emulator.arguments import UNCLEARED_BYTE
from blackwell_matmul.emulator.cuda_runtime.channel import Channel
from blackwell_matmul.emulator.cuda_runtime.images import Read, ptx_of
from blackwell_matmul.emulator.lanes import Array
from blackwell_matmul.emulator.loading import MAX_SHARED_BYTES, LaunchShape, loaded, variable_addresses, verified
from blackwell_matmul.emulator.order.order_listener import OrderListener
from blackwell_matmul.emulator.order.ptx_findings import PtxReport
from blackwell_matmul.emulator.parser import Entry, Module, parse
from blackwell_matmul.emulator.scheduler import Choices, Extents
from blackwell_matmul.emulator.spaces import RESERVED_BYTES, WINDOW_BITS, GlobalSpace, Memory, Undefined

DEVICE_START = 0x10 << WINDOW_BITS
"""First address of device memory. Linux never gives a program addresses in this range."""

DEFAULT_SHARED_BYTES = 48 << 10
"""Maximum bytes of a CTA's shared memory without the function's attribute (CUDA programming guide, "Shared Memory")."""

CONTEXT = 1
"""Handle of the only context."""

INVALID_VALUE, OUT_OF_MEMORY, INVALID_IMAGE, INVALID_HANDLE, NOT_FOUND, NOT_SUPPORTED = 1, 2, 200, 400, 500, 801
ILLEGAL_STATE = 401
COOPERATIVE_TOO_LARGE = 720
"""Error code of a cooperative launch whose CTAs cannot all run at the same time."""

MAX_DYNAMIC_SHARED, COOPERATIVE, CLUSTER_DIMENSION = 8, 2, 4
"""CUDA's numbers of a function attribute and of two launch attributes (driver API, "Data types used by CUDA
driver")."""


class Refused(Exception):
    """Raised to end a call with an error code, as CUDA does."""

    def __init__(self, code: int) -> None:
        self.code = code


@dataclass(frozen=True, slots=True)
class EmulatedGpu:
    """The GPU that a program sees. architecture: 100 for sm_100a. sms: number of SMs."""

    architecture: int
    sms: int
    memory_bytes: int

    @property
    def name(self) -> str:
        return f"emulated sm_{self.architecture}"


@dataclass(eq=False)
class LoadedModule:
    """A loaded module. kept: addresses of its variables, which persist between launches."""

    ptx: str
    kept: dict[str, int] = field(default_factory=dict)

    @cached_property
    def parsed(self) -> Module:
        return parse(self.ptx)

    @cached_property
    def kernels(self) -> dict[str, Function]:
        return {name: Function(self, entry) for name, entry in self.parsed.kernels.items()}

    def kernel(self, name: str) -> Function:
        if name not in self.kernels:
            raise Refused(NOT_FOUND)
        return self.kernels[name]


@dataclass(eq=False)
class Function:
    """A kernel, with the attributes that the program has set."""

    module: LoadedModule
    entry: Entry
    attributes: dict[int, int] = field(default_factory=dict)

    @property
    def shared_bytes(self) -> int:
        """Return the bytes of static shared memory that the kernel declares."""
        variables = [*self.module.parsed.variables, *self.entry.variables]
        return sum(each.nbytes or 0 for each in variables if each.space == "shared")

    @property
    def most_dynamic_bytes(self) -> int:
        return self.attributes.get(MAX_DYNAMIC_SHARED, DEFAULT_SHARED_BYTES - self.shared_bytes)

    @property
    def architecture(self) -> int:
        """Return the architecture of the PTX's target: 90 for sm_90a. CUB chooses its tuning by this number."""
        return int(self.module.parsed.target.removeprefix("sm_").rstrip("af"))

    @property
    def most_threads(self) -> int:
        bounds = self.entry.directives
        return prod(bounds.get(".reqntid") or bounds.get(".maxntid") or (1024,))


class HostSpace(GlobalSpace):
    """Device memory, and the program's own memory while a kernel runs."""

    def __init__(self, program: Channel) -> None:
        super().__init__()
        self._next = DEVICE_START
        self.program = program
        self.pinned: dict[int, int] = {}
        self.borrowed: list[tuple[Memory, Array]] = []

    def at(self, address: int, what: str = "reads") -> Memory:
        try:
            return super().at(address, what)
        except Undefined:
            if not self._borrow(int(address)):
                raise
            return super().at(address, what)

    def has(self, address: int) -> bool:
        return address >> WINDOW_BITS == DEVICE_START >> WINDOW_BITS

    def _borrow(self, address: int) -> bool:
        """Copy the program's memory around an address, for kernels; return False if the program has no memory there."""
        start, end = self._range(address)
        if start == end:
            return False
        before = np.frombuffer(self.program.read(start, end - start), np.uint8)
        memory = Memory(f"the program's memory at {start:#x}", start, before.copy())
        memory.listener = self.listener
        place = bisect.bisect(self._bases, start)
        self._bases.insert(place, start)
        self.memories.insert(place, memory)
        self.borrowed.append((memory, before))
        return True

    def _range(self, address: int) -> tuple[int, int]:
        """Return begin and end of the program's allocation or mapping that contains an address; 0, 0 for none."""
        for start, nbytes in self.pinned.items():
            if start <= address < start + nbytes:
                return start, start + nbytes
        for line in Path(f"/proc/{self.program.process}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            start, end = (int(each, 16) for each in span.split("-"))
            if start <= address < end and rights.startswith("r"):
                return start, end
        return 0, 0

    def give_back(self) -> None:
        """Write changed bytes back into the program's memory, and drop the copies."""
        for memory, before in self.borrowed:
            self.remove(memory)
            changed = np.flatnonzero(memory.data != before)
            ends = np.flatnonzero(np.diff(changed) != 1) + 1
            for run in np.split(changed, ends) if changed.size else []:
                first, last = int(run[0]), int(run[-1]) + 1
                self.program.write(memory.base + first, memory.data[first:last].tobytes())
        self.borrowed.clear()


class Host:
    """CUDA state of one program. objects: by handle. last: error code that cudaGetLastError returns next. checked:
    called with the report of each launch; None if launches are not checked. captured: work for a graph during a stream
    capture."""

    def __init__(
        self, program: Channel, gpu: EmulatedGpu, choices: Choices, checked: Callable[[PtxReport], None] | None = None
    ) -> None:
        self.program, self.gpu, self.choices, self.checked = program, gpu, choices, checked
        self.memory = HostSpace(program)
        self.objects: dict[int, Any] = {}
        self.last = 0
        self.texts: dict[str, int] = {}
        self.told: set[str] = set()
        self.registered: dict[int, tuple[int, str]] = {}
        self.configurations: list[tuple[int, ...]] = []
        self.captured: list[Callable[[], None]] | None = None
        self._numbers = itertools.count(1)

    # --- handles

    def handle(self, item: Any) -> int:
        number = 0x1000 + 16 * len(self.objects)
        self.objects[number] = item
        return number

    def object(self, handle: int, kind: type) -> Any:
        found = self.objects.get(handle)
        if not isinstance(found, kind):
            raise Refused(INVALID_HANDLE)
        return found

    def tell(self, text: str) -> None:
        """Print a note to the user, once for each text."""
        if text not in self.told:
            self.told.add(text)
            print(f"note: {text}", file=sys.stderr, flush=True)

    def text(self, value: str) -> int:
        """Return the address of a string in the program's memory, written on first use."""
        if value not in self.texts:
            self.texts[value] = self.program.allocate(len(value) + 1)
            self.program.write(self.texts[value], value.encode() + b"\0")
        return self.texts[value]

    # --- memory

    def allocate(self, nbytes: int) -> int:
        if not nbytes:
            raise Refused(INVALID_VALUE)
        if nbytes + self.used_bytes > self.gpu.memory_bytes:
            raise Refused(OUT_OF_MEMORY)
        name = f"allocation {next(self._numbers)} of device memory"
        return self.memory.add(name, np.full(nbytes, UNCLEARED_BYTE, np.uint8)).base

    def pin(self, nbytes: int) -> int:
        """Return the address of new pinned memory in the program."""
        address = self.program.allocate(nbytes)
        if not address:
            raise Refused(OUT_OF_MEMORY)
        self.memory.pinned[address] = nbytes
        return address

    @property
    def used_bytes(self) -> int:
        return sum(each.nbytes for each in self.memory.memories)

    def free(self, address: int) -> None:
        if not address:
            return
        found = next((each for each in self.memory.memories if each.base == address), None)
        if found is None:
            raise Refused(INVALID_VALUE)
        self.memory.remove(found)

    def fetch(self, address: int, nbytes: int) -> bytes:
        """Return bytes of device memory or of the program's own memory."""
        if not self.memory.has(address):
            return self.program.read(address, nbytes)
        return self.memory.at(address).bytes(address, nbytes).tobytes() if nbytes else b""

    def store(self, address: int, data: bytes) -> None:
        if not self.memory.has(address):
            self.program.write(address, data)
        elif data:
            self.memory.at(address, "writes").bytes(address, len(data), "writes")[:] = np.frombuffer(data, np.uint8)

    # --- modules

    def load(self, address: int, data: bytes | None = None) -> LoadedModule:
        """Return the module of an image. address: of the image in the program's memory. data: the image's bytes, read
        instead of the memory."""
        read: Read = self.program.read
        string: Callable[[int], str] = self.program.string
        if data is not None:
            read, string = lambda at, nbytes: data[at : at + nbytes], lambda at: data.decode(errors="replace")
        try:
            return LoadedModule(ptx_of(read, string, address, self.gpu.architecture))
        except (struct.error, LookupError, ValueError) as error:
            if isinstance(error, BlackwellMatmulError):
                raise
            raise Refused(INVALID_IMAGE) from error

    def variable(self, module: LoadedModule, name: str) -> tuple[int, int]:
        """Return address and size in bytes of a module's variable."""
        variables = [each for each in module.parsed.variables if each.space in ("global", "const")]
        found = next((each for each in variables if each.name == name), None)
        if found is None:
            raise Refused(NOT_FOUND)
        return variable_addresses(module.parsed, variables, self.memory, module.kept)[name], found.nbytes or 0

    # --- launches

    def do(self, work: Callable[[], None]) -> None:
        """Do a stream's work at once; during a capture, keep the work for the graph."""
        if self.captured is None:
            work()
        else:
            self.captured.append(work)

    def launch(self, function: Function, shape: LaunchShape, values: list[bytes]) -> None:
        """Check a launch, and run the kernel to its end."""
        if shape.shared_bytes > function.most_dynamic_bytes or not prod(shape.grid + shape.block):
            self.tell(
                f"the launch of {function.entry.name} is refused: grid {shape.grid}, block {shape.block}, and "
                f"{shape.shared_bytes:,} bytes of dynamic shared memory, of at most {function.most_dynamic_bytes:,}."
            )
            raise Refused(INVALID_VALUE)
        if shape.cooperative and prod(shape.grid) > self.gpu.sms * blocks_per_sm(function, shape):
            raise Refused(COOPERATIVE_TOO_LARGE)
        self.do(partial(self._run, function, shape, values))

    def _run(self, function: Function, shape: LaunchShape, values: list[bytes]) -> None:
        module, entry = function.module, function.entry
        listener = OrderListener() if self.checked else None
        choices = replace(self.choices, listener=listener)
        try:
            loaded(module.parsed, entry, verified(entry, shape), values, self.memory, choices, module.kept).run()
        except BlackwellMatmulError as error:
            raise type(error)(f"kernel {entry.name}: {error}") from error
        finally:
            sys.stdout.flush()
            if self.checked and listener:
                findings = list(listener.findings.values())
                self.checked(PtxReport(entry.name, module.parsed.target, (choices.order,), findings))
        self.memory.give_back()

    def values(self, function: Function, parameters: int, extra: int = 0) -> list[bytes]:
        """Return each parameter's bytes, from an array of addresses, or from the buffer that `extra` names."""
        sizes = [each.nbytes or 0 for each in function.entry.parameters]
        if extra and not parameters:
            return self._packed(function.entry, self.program.words(extra, "5Q"))
        places = self.program.words(parameters, f"{len(sizes)}Q")
        return [self.program.read(place, nbytes) for place, nbytes in zip(places, sizes)]

    def _packed(self, entry: Entry, extra: Sequence[int]) -> list[bytes]:
        """Return each parameter's bytes from one buffer (CU_LAUNCH_PARAM_BUFFER_POINTER), in which each is aligned."""
        at, values = extra[extra.index(1) + 1], []
        start = at
        for each in entry.parameters:
            at += -(at - start) % each.alignment
            values.append(self.program.read(at, each.nbytes or 0))
            at += each.nbytes or 0
        return values


def blocks_per_sm(function: Function, shape: LaunchShape) -> int:
    """Return the number of CTAs that fit on an SM, by threads and shared memory."""
    shared_bytes = function.shared_bytes + shape.shared_bytes + RESERVED_BYTES
    return min(32, 2048 // prod(shape.block), (MAX_SHARED_BYTES + RESERVED_BYTES) // shared_bytes)


def extents(x: int, y: int, z: int) -> Extents:
    """Return the low 32 bits of three extents."""
    return x & 0xFFFFFFFF, y & 0xFFFFFFFF, z & 0xFFFFFFFF
