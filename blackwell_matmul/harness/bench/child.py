"""Child process of a measurement: reads tasks, several in a line of JSON, runs them, and reports steps and results.

Its arguments are modules to import before there is work.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, TextIO

from blackwell_matmul.base.processes import collect_seldom

MESSAGE_PREFIX = "blackwell-matmul: "
"""Prefix of this process's own lines; libraries may print others."""


def main() -> None:
    collect_seldom()
    out = _own_stdout()
    given: queue.SimpleQueue[list[dict[str, Any]]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(given,), daemon=True).start()
    for module in sys.argv[1:]:
        with suppress(Exception):  # whose task it is says why
            import_module(module)
    while all(_done(task, out) for task in given.get()):
        pass
    os._exit(0)  # a GPU that hangs would hold up an orderly end


def _done(task: Mapping[str, Any], out: TextIO) -> bool:
    """Run a task; return true if this process can continue."""
    ended, broken = _ended(task, lambda what: _say(out, {"step": what}))
    _say(out, ended)
    return not broken


def _ended(task: Mapping[str, Any], step: Callable[[str], None]) -> tuple[dict[str, Any], bool]:
    """Return the report of a task, and true if the process is unusable after a failed kernel."""
    from blackwell_matmul.base.errors import BlackwellMatmulError, DriverError
    from blackwell_matmul.base.validation import spelled

    at = ""

    def told(what: str) -> None:
        nonlocal at
        at = what
        step(what)

    arguments = {name: value for name, value in task.items() if name != "do"}
    try:
        return {"result": _function(task["do"])(told, **arguments)}, False
    except BlackwellMatmulError as error:
        if not isinstance(error, DriverError):
            return {"refused": str(error), "at": at}, False
        return {"failed": str(error).rstrip("."), "at": at}, True
    except Exception as error:
        return {"failed": spelled(error), "at": at}, True


def _function(name: str) -> Callable[..., dict[str, Any]]:
    module, colon, inside = name.partition(":")
    if not colon:
        from blackwell_matmul.harness.bench.tasks import TASKS

        return TASKS[name]
    found: Callable[..., dict[str, Any]] = getattr(import_module(module), inside)
    return found


def _own_stdout() -> TextIO:
    """Return the pipe to the parent; other prints go to stderr."""
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return pipe


def _say(pipe: TextIO, message: Mapping[str, Any]) -> None:
    pipe.write(f"{MESSAGE_PREFIX}{json.dumps(message)}\n")
    pipe.flush()


def _listen(given: queue.SimpleQueue[list[dict[str, Any]]]) -> None:
    """Pass on the tasks. At the end of stdin, kill this process: its parent may have been killed."""
    for line in sys.stdin:
        given.put(json.loads(line))
    if hasattr(os, "getsid") and os.getsid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with the processes that a compiler has started here
    os._exit(1)


if __name__ == "__main__":
    main()
