"""Connection to a program that calls CUDA: receives the program's calls, and accesses its memory.

During a call the program waits in `host.c` and executes requests: read or write its memory, call one of its functions,
exit. The requests have the numbers of `host.c`.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import Any

ARGUMENTS = 12
"""Number of words in a call; entry points with fewer arguments ignore the last words."""

RESULT, READ, WRITE, LENGTH, ALLOCATE, RELEASE, CALL, EXIT = range(8)

_REQUEST = struct.Struct(f"<{1 + ARGUMENTS}Q")
_ORDER_FORMAT = struct.Struct("<5Q")
_PEER = struct.Struct("3i")


class Ended(Exception):
    """The program has ended in the middle of a call."""


class Channel:
    """Connection to one program. process: the program's process ID."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.process = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0]

    def call(self) -> tuple[int, tuple[int, ...]] | None:
        """Return the next call's number and arguments; None if the program has ended."""
        try:
            number, *arguments = _REQUEST.unpack(self._received(_REQUEST.size))
        except (Ended, OSError):
            return None
        return number, tuple(arguments)

    def give(self, result: int) -> None:
        self._order(RESULT, result)

    def end(self, status: int) -> None:
        """End the program with an exit status, after its output is printed."""
        self._order(EXIT, status)

    # --- memory

    def read(self, address: int, nbytes: int) -> bytes:
        if not nbytes:
            return b""
        self._order(READ, address, nbytes)
        return self._received(nbytes)

    def write(self, address: int, data: Any) -> None:
        if len(data):
            self._order(WRITE, address, len(data))
            self.connection.sendall(data)

    def words(self, address: int, format: str) -> tuple[Any, ...]:
        """Return the values at an address of the program. format: as of `struct`."""
        return struct.unpack(f"<{format}", self.read(address, struct.calcsize(f"<{format}")))

    def put(self, address: int, format: str, *values: Any) -> None:
        """Write values to an address of the program; do nothing for a null address. format: as of `struct`."""
        if address:
            self.write(address, struct.pack(f"<{format}", *values))

    def string(self, address: int) -> str:
        self._order(LENGTH, address)
        return self.read(address, self._word()).decode(errors="replace")

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory in the program; 0 if the program has no memory left."""
        self._order(ALLOCATE, nbytes)
        return self._word()

    def release(self, address: int) -> None:
        self._order(RELEASE, address)

    def call_back(self, function: int, arguments: Iterable[int]) -> None:
        """Call a function of the program with up to three integer arguments."""
        self._order(CALL, function, *arguments)
        self._word()

    # --- bytes

    def _order(self, kind: int, *values: int) -> None:
        self.connection.sendall(_ORDER_FORMAT.pack(kind, *(*values, 0, 0, 0, 0)[:4]))

    def _word(self) -> int:
        return int.from_bytes(self._received(8), "little")

    def _received(self, nbytes: int) -> bytes:
        data = bytearray(nbytes)
        view = memoryview(data)
        while view:
            count = self.connection.recv_into(view)
            if not count:
                raise Ended
            view = view[count:]
        return bytes(data)
