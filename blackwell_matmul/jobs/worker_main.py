"""Child process of a worker: reads tasks, one per line of JSON, runs them, and reports steps and outcomes.

Its arguments are the modules to import before the first task.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
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
    tasks: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    for module in sys.argv[1:]:
        with suppress(Exception):  # a task that needs the module reports the error
            import_module(module)
    while _run_task(tasks.get(), out):
        pass
    os._exit(0)  # a GPU that hangs would hold up an orderly end


def _run_task(task: Mapping[str, Any], out: TextIO) -> bool:
    """Run a task; return True if this process can continue."""
    found, broken = outcome(task, lambda what: _report(out, {"step": what}))
    _report(out, found)
    return not broken


def outcome(task: Mapping[str, Any], step: Callable[[str], None]) -> tuple[dict[str, Any], bool]:
    """Return the report of a task, and True if this process is unusable afterwards, as after a failed kernel."""
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
            return {"refused": str(error), "step": at}, False
        return {"failed": str(error).rstrip("."), "step": at}, True
    except Exception as error:
        return {"failed": spelled(error), "step": at}, True


def _function(name: str) -> Callable[..., dict[str, Any]]:
    module, _, inside = name.partition(":")
    found: Callable[..., dict[str, Any]] = getattr(import_module(module), inside)
    return found


def call(step: Callable[[str], None], pickled: str) -> dict[str, Any]:
    """Return the row of a pickled function and its arguments, as sent by `worker.WorkerPool.submit`."""
    function, arguments, named = pickle.loads(base64.b64decode(pickled))
    row: dict[str, Any] = function(*arguments, **named)
    return row


def _own_stdout() -> TextIO:
    """Return the pipe to the parent; other prints go to stderr."""
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return pipe


def _report(pipe: TextIO, message: Mapping[str, Any]) -> None:
    pipe.write(f"{MESSAGE_PREFIX}{json.dumps(message)}\n")
    pipe.flush()


def _listen(tasks: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Queue the tasks from stdin. At its end, kill this process and its children: the parent may have died."""
    for line in sys.stdin:
        tasks.put(json.loads(line))
    if hasattr(os, "getsid") and os.getsid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)  # also kills processes that a compiler has started
    os._exit(1)


if __name__ == "__main__":
    main()
