"""Fork server: a process that imports modules once and forks child processes.

Without the server, each child's imports take some seconds. Only Linux forks: the libraries of other systems do not
survive a fork.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

from blackwell_matmul.base.processes import end_with_children
from blackwell_matmul.jobs.fork_server_main import STARTED

FORKS = sys.platform == "linux"
CHILD_COMMAND = (sys.executable, "-m", "blackwell_matmul.jobs.worker_main")
SERVER_COMMAND = (sys.executable, "-m", "blackwell_matmul.jobs.fork_server_main")

NVML_CHECK_ENVIRONMENT = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Environment of the server: tvm-ffi asks torch for a GPU at import, and CUDA does not survive a fork."""

CHILD_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable that may differ between a server's children, as no import reads it."""

Environment = Mapping[str, str]


def start_child(module: str, environment: Environment) -> Child:
    """Start a child process and return it. module: imported there before the first task."""
    if not FORKS:
        return SpawnedChild((*CHILD_COMMAND, module), environment)
    with _lock:
        return ForkedChild(_server_of(module, environment), environment)


def preload(module: str) -> None:
    """Start a server and its imports, for later children."""
    if FORKS:
        with _lock:
            _server_of(module, os.environ)


class SpawnedChild:
    """A child process without a fork server, which reads tasks and writes results."""

    def __init__(self, command: tuple[str, ...], environment: Environment) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by end()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            text=True, errors="replace", start_new_session=True, env=environment,
        )  # fmt: skip
        assert self._process.stdin and self._process.stdout
        self.stdin: IO[str] = self._process.stdin
        self.stdout: IO[str] = self._process.stdout

    def exit_status(self) -> tuple[int, str]:
        """Wait for the end; return the exit code, or minus the signal, and stderr."""
        return self._process.wait(), text_of(self._errors)

    def end(self) -> None:
        """Kill the child and its children. Call it once, as the process number may be reused."""
        end_with_children(self._process)
        self._process.wait()
        close(self.stdin, self._errors)


class ForkedChild:
    """A child process that the server forks, with the methods of `SpawnedChild`. An intermediate process waits for the
    child, and kills it on request."""

    def __init__(self, server: ForkServer, environment: Environment) -> None:
        self._server, self._errors = server, tempfile.TemporaryFile()  # noqa: SIM115  closed by end()
        self._over = False
        (tasks, stdin), (stdout, answers) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(stdin, "w"), os.fdopen(stdout, errors="replace")
        self._status, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as about, theirs:
            about.write(json.dumps(dict(environment)).encode())
            about.seek(0)
            server.send([about.fileno(), tasks, answers, self._errors.fileno(), theirs.fileno()])
        os.close(tasks)
        os.close(answers)

    def exit_status(self) -> tuple[int, str]:
        said = self._rest()
        if self._over or said == STARTED:  # the child was killed by this process or by the intermediate process
            return -signal.SIGKILL, ""
        return (int(said.removeprefix(STARTED)), text_of(self._errors)) if said else self._server.exit_status()

    def _rest(self) -> bytes:
        said = b""
        with suppress(OSError):
            while not said.endswith(b"\n") and (more := self._status.recv(64)):
                said += more
        return said

    def end(self) -> None:
        self._over = True
        with suppress(OSError):
            self._status.shutdown(socket.SHUT_WR)
            self._status.recv(
                1, socket.MSG_PEEK | socket.MSG_DONTWAIT
            )  # raises if the child has not started and never will
            while self._status.recv(64):
                pass
        close(self.stdin, self._errors, self._status)


Child = SpawnedChild | ForkedChild


class ForkServer:
    """A process that has imported modules and forks. It exits when its socket closes or this process ends."""

    def __init__(self, module: str, environment: Environment) -> None:
        self._errors, self._asked = tempfile.TemporaryFile(), False  # noqa: SIM115  as long as this object
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                (*SERVER_COMMAND, str(theirs.fileno()), module),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True,
                env={**environment, **NVML_CHECK_ENVIRONMENT}, pass_fds=[theirs.fileno()],
            )  # fmt: skip

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, files: list[int]) -> None:
        self._asked = True
        with suppress(BrokenPipeError, ConnectionResetError):  # the server has died; the child's status says so
            socket.send_fds(self._socket, [b"f"], files)

    def exit_status(self) -> tuple[int, str]:
        return self._process.wait(), text_of(self._errors)

    def close(self) -> None:
        """Let the server exit after all requested forks; children may still read their status."""
        self._socket.close()
        if not self._asked:
            self.end()

    def end(self) -> None:
        """Kill the server; its children exit when their stdin closes."""
        self._process.kill()
        self._process.wait()


_lock = threading.Lock()
_kept: dict[Any, ForkServer] = {}
"""Latest server, by all inputs of its imports."""


def _server_of(module: str, environment: Environment) -> ForkServer:
    imported = tuple(sorted((name, value) for name, value in environment.items() if name != CHILD_VARIABLE))
    key = os.getpid(), _folder(), module, imported
    if key not in _kept or not _kept[key].is_alive:
        _stop_all()
        _end_at_exit()
        _kept[key] = ForkServer(module, environment)
    return _kept[key]


def _folder() -> str:
    """Return the current folder, or "" if it was removed."""
    with suppress(OSError):
        return os.getcwd()
    return ""


def stop_all() -> None:
    """Close all servers; each takes hundreds of MB."""
    with _lock:
        _stop_all()


def _stop_all() -> None:
    while _kept:
        _kept.popitem()[1].close()


@functools.cache
def _end_at_exit() -> None:
    atexit.register(_end)


def _end() -> None:
    for (number, *_), server in _kept.items():
        if number == os.getpid():
            server.end()


def text_of(file: IO[bytes]) -> str:
    with suppress(ValueError):  # the file was closed meanwhile
        file.seek(0)
        return file.read().decode(errors="replace")
    return ""


def close(*each: Any) -> None:
    for one in each:
        with suppress(OSError):
            one.close()
