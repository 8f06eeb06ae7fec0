"""Process of the fork server: imports once, then forks children on request of `fork_server`.

Its arguments are its socket's number and the modules. The process has one thread and uses no GPU: threads and CUDA do
not survive a fork. Each message has five files: the child's environment, stdin, stdout, stderr, and a socket. On that
socket an intermediate process reports the child's start and exit code.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from importlib import import_module

from blackwell_matmul.base.processes import collect_seldom
from blackwell_matmul.jobs import worker_main

STARTED = b"!"
FILES_PER_MESSAGE = 5


def main() -> None:
    collect_seldom()
    asked = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        with suppress(Exception):  # a task that needs the module reports the error
            import_module(module)
    gc.freeze()  # else each child would copy the pages to which the collector writes
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the intermediate processes
    while files := socket.recv_fds(asked, 1, FILES_PER_MESSAGE)[1]:
        if os.fork() == 0:
            asked.close()
            _supervise(*files)
        for file in files:
            os.close(file)
    os._exit(0)


def _supervise(about: int, stdin: int, stdout: int, stderr: int, status: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    parent = socket.socket(fileno=status)
    with suppress(OSError):
        parent.send(STARTED)
    number = os.fork()
    if number == 0:
        parent.close()
        _begin(about, stdin, stdout, stderr)
    for file in (about, stdin, stdout, stderr):
        os.close(file)
    threading.Thread(target=_tell_end, args=(number, parent), daemon=True).start()
    with suppress(OSError):
        parent.recv(1)
    os.kill(number, signal.SIGKILL)
    with suppress(ProcessLookupError):  # the child has no process group yet
        os.killpg(number, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(number, 0)  # then its GPU memory is free
    os._exit(0)


def _tell_end(number: int, parent: socket.socket) -> None:
    """Report a child's exit without reaping: its process number must stay reserved until its group has ended."""
    with suppress(OSError):  # it was reaped already, or nobody reads the socket
        found = os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT)
        assert found is not None
        parent.send(b"%d\n" % (found.si_status if found.si_code == os.CLD_EXITED else -found.si_status))


def _begin(about: int, stdin: int, stdout: int, stderr: int) -> None:
    os.setsid()
    for number, file in enumerate((stdin, stdout, stderr)):
        os.dup2(file, number)
        os.close(file)
    with os.fdopen(about) as text:
        environment = json.load(text)
    if _has_used_cuda():
        os.execve(sys.executable, [sys.executable, "-m", worker_main.__name__, *sys.argv[2:]], environment)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin, sys.argv = os.fdopen(0), sys.argv[:1]
    worker_main.main()


def _has_used_cuda() -> bool:
    """Return True if an import has used CUDA, which then fails after a fork."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda._is_in_bad_fork()


if __name__ == "__main__":
    main()
