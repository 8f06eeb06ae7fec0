"""How a child begins: forked from a process of ours that has done its imports and waits, or as a process of its own.

The imports take a core five seconds, and a dozen children at once take all cores of a machine for as long. Linux alone
forks: elsewhere what system libraries do does not survive it.
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
from typing import IO, Any, Protocol

from blackwell_matmul.base.processes import end_with_children
from blackwell_matmul.harness.bench.template import BEGAN

FORKS = sys.platform == "linux"
CHILD = (sys.executable, "-m", "blackwell_matmul.harness.bench.child")
TEMPLATE = (sys.executable, "-m", "blackwell_matmul.harness.bench.template")

BY_NVML = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""For the template: tvm-ffi asks torch for a GPU when it is imported, and no fork survives torch's asking CUDA."""

OF_A_CHILD = "CUDA_VISIBLE_DEVICES"
"""The one variable that children of a template may have different: imports do not read it."""

Environment = Mapping[str, str]


class Begun(Protocol):
    """A child at work: reads tasks, writes what it has done."""

    @property
    def stdin(self) -> IO[str]: ...

    @property
    def stdout(self) -> IO[str]: ...

    def why(self) -> tuple[int, str]:
        """Its exit code, or minus the signal that ended it, and what it wrote to stderr; waits for its end."""

    def end(self) -> None:
        """With all that it has started; once, since the number of a process that has ended may be another's."""


def begin(module: str, environment: Environment) -> Begun:
    """module: what is imported before there is work."""
    if not FORKS:
        return Fresh((*CHILD, module), environment)
    with _lock:
        return Forked(_template_of(module, environment), environment)


def prepare(module: str) -> None:
    """Have the imports under way from here on, for children that are needed soon."""
    if FORKS:
        with _lock:
            _template_of(module, os.environ)


class Fresh:
    """A process of its own."""

    def __init__(self, command: tuple[str, ...], environment: Environment) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by end()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            text=True, errors="replace", start_new_session=True, env=environment,
        )  # fmt: skip
        assert self._process.stdin and self._process.stdout
        self.stdin: IO[str] = self._process.stdin
        self.stdout: IO[str] = self._process.stdout

    def why(self) -> tuple[int, str]:
        return self._process.wait(), text_of(self._errors)

    def end(self) -> None:
        end_with_children(self._process)
        self._process.wait()
        close(self.stdin, self._errors)


class Forked:
    """Forked from a template. A process between the two waits for its end, and ends it when it is told to."""

    def __init__(self, template: Template, environment: Environment) -> None:
        self._template, self._errors = template, tempfile.TemporaryFile()  # noqa: SIM115  closed by end()
        self._over = False
        (tasks, stdin), (stdout, answers) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(stdin, "w"), os.fdopen(stdout, errors="replace")
        self._status, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as about, theirs:
            about.write(json.dumps(dict(environment)).encode())
            about.seek(0)
            template.send([about.fileno(), tasks, answers, self._errors.fileno(), theirs.fileno()])
        os.close(tasks)
        os.close(answers)

    def why(self) -> tuple[int, str]:
        said = self._rest()
        if self._over or said == BEGAN:  # it was ended by us, or who stood between was, and it leaves
            return -signal.SIGKILL, ""
        return (int(said.removeprefix(BEGAN)), text_of(self._errors)) if said else self._template.why()

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
            self._status.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)  # an error where it has not begun, and will not
            while self._status.recv(64):
                pass
        close(self.stdin, self._errors, self._status)


class Template:
    """The process that imports. Once it has, it leaves when its socket is closed, as it is when this process ends."""

    def __init__(self, module: str, environment: Environment) -> None:
        self._errors, self._asked = tempfile.TemporaryFile(), False  # noqa: SIM115  as long as this object
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                (*TEMPLATE, str(theirs.fileno()), module), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=self._errors, start_new_session=True, env={**environment, **BY_NVML}, pass_fds=[theirs.fileno()],
            )  # fmt: skip

    @property
    def there(self) -> bool:
        return self._process.poll() is None

    def send(self, files: list[int]) -> None:
        self._asked = True
        with suppress(BrokenPipeError, ConnectionResetError):  # it died already; the child's status tells
            socket.send_fds(self._socket, [b"f"], files)

    def why(self) -> tuple[int, str]:
        return self._process.wait(), text_of(self._errors)

    def close(self) -> None:
        """It leaves when it has imported and has forked all that it was asked for. Children may still ask why."""
        self._socket.close()
        if not self._asked:
            self.end()

    def end(self) -> None:
        """At once; its children leave when their stdin is closed."""
        self._process.kill()
        self._process.wait()


_lock = threading.Lock()
_kept: dict[Any, Template] = {}
"""The latest, by all that its imports may depend on."""


def _template_of(module: str, environment: Environment) -> Template:
    imported = tuple(sorted((name, value) for name, value in environment.items() if name != OF_A_CHILD))
    key = os.getpid(), _folder(), module, imported
    if key not in _kept or not _kept[key].there:
        _leave()
        _end_at_exit()
        _kept[key] = Template(module, environment)
    return _kept[key]


def _folder() -> str:
    """Of this process, which may be gone."""
    with suppress(OSError):
        return os.getcwd()
    return ""


def leave() -> None:
    """Keep no template: each has hundreds of MB."""
    with _lock:
        _leave()


def _leave() -> None:
    while _kept:
        _kept.popitem()[1].close()


@functools.cache
def _end_at_exit() -> None:
    atexit.register(_end)


def _end() -> None:
    for (number, *_), template in _kept.items():
        if number == os.getpid():
            template.end()


def text_of(file: IO[bytes]) -> str:
    with suppress(ValueError):  # it was closed meanwhile
        file.seek(0)
        return file.read().decode(errors="replace")
    return ""


def close(*each: Any) -> None:
    for one in each:
        with suppress(OSError):
            one.close()
