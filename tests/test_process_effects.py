"""What an import and each use leave changed in a process: what docs/process.md names, and nothing else."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PAGE = (Path(__file__).parents[1] / "docs" / "process.md").read_text(encoding="utf-8")

USES = """
import atexit, decimal, faulthandler, gc, io, json, linecache, locale, logging, multiprocessing, os, random, signal, sys
import threading, warnings
from contextlib import redirect_stdout
try:
    import resource
except ImportError:
    resource = None
import numpy as np
import torch

torch.zeros(2) @ torch.zeros(2)
A, B, C = torch.randn(128, 64).half(), torch.randn(64, 64).half(), torch.empty(128, 64).half()
out = sys.stdout


def blas():
    from blackwell_matmul.simulator.parallel import _blas

    return [each["num_threads"] for each in _blas().info()]


STATUS = "/proc/self/status"


def state():
    found = {f"signal {number}": str(signal.getsignal(number)) for number in range(1, 32)}
    found |= {
        "blocked signals": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), len(gc.callbacks)),
        "numpy": (np.geterr(), str(np.get_printoptions()), str(np.random.get_state()[1][:9])),
        "torch": (torch.get_num_threads(), torch.is_grad_enabled(), str(torch.get_default_dtype())),
        "seed of torch": torch.random.get_rng_state().tolist(),
        "random": hash(random.getstate()),
        "warnings": ([str(each) for each in warnings.filters], str(warnings.showwarning), list(sys.warnoptions)),
        "recursion": sys.getrecursionlimit(),
        "faulthandler": faulthandler.is_enabled(),
        "locale": locale.setlocale(locale.LC_ALL),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "paths": (list(sys.path), len(sys.path_hooks), sys.dont_write_bytecode, [str(each) for each in sys.meta_path]),
        "hooks": [str(each) for each in (sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook)],
        "stdout": (sys.stdout is out, sys.stdout.errors),
        "trace": (sys.gettrace(), sys.getprofile()),
        "threads": sorted(each.name for each in threading.enumerate()),
        "children": [each.name for each in multiprocessing.active_children()],
        "root logger": (logging.root.level, [str(each) for each in logging.root.handlers]),
        "loggers": sorted(name for name in logging.root.manager.loggerDict),
        "limits": resource and [resource.getrlimit(each) for each in range(10)],
        "subprocess.run": str(__import__("subprocess").run),
        "atexit": atexit._ncallbacks(),
        "missing modules": sorted(name for name, module in sys.modules.items() if module is None),
        "lowered lines": sorted(name for name in linecache.cache if name.startswith("<")),
        "decimal": str(decimal.getcontext()),
        "umask": os.path.exists(STATUS) and [line for line in open(STATUS) if line.startswith("Umask")],
    }
    return found


def change(before, after):
    if isinstance(before, list) and isinstance(after, list):
        gone = [each for each in before if each not in after]
        return {"gone": gone, "new": [each for each in after if each not in before]}
    return [before, after]


changes = []


def use(name, act):
    global last
    with redirect_stdout(io.StringIO()):
        act()
    now = state()
    changes.extend([name, key, change(last[key], now[key])] for key in now if now[key] != last[key])
    last = now


last = state()


def names():
    global b
    import blackwell_matmul as b

    [getattr(b, name) for name in b.__all__ if name not in ("all_gather_matmul", "matmul_reduce_scatter")]


use("import", names)
threads = blas()
use("the BLAS's controller", lambda: None)
use("simulate", lambda: b.simulate(b.BlackwellMatmulV1, 128, 64, 64, A, B, C))
use("simulate in two processes", lambda: b.simulate(b.BlackwellMatmulV1, 128, 64, 64, A, B, C, workers=2))
use("check", lambda: b.check("v1", 128, 64, 64, orders=2))
use("compile and emulate", lambda: b.emulate(b.compile("v1", 128, 64, 64), 128, A, B, C))
use("predict", lambda: b.predict("v1", 128, 64, 64, explained=False))
use("run_matmul", lambda: b.run_matmul("v1", 128, 64, 64))
use("matmul", lambda: b.linear(A.clone().requires_grad_(), B, simulate=True).sum().backward())


def refused():
    for act in (lambda: b.simulate(b.BlackwellMatmulV1, 128, 64, 63, A, B, C), lambda: b.run_matmul("/none.py:X")):
        try:
            act()
        except b.InputError:
            continue
        raise AssertionError


use("bad input", refused)
from blackwell_matmul.cli import main

last = state()
with open(os.devnull, "w") as nowhere:
    before, sys.stdout = sys.stdout, nowhere
    main(["schedules", "v1", "--size", "128", "64", "64", "--json"])
    main(["no-command"])
    assert nowhere.errors == "strict"
    sys.stdout = before
use("the command line", lambda: None)
assert blas() == threads
print(json.dumps(changes))
"""


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, object]]:
    """Of a process that imports and uses the package: the use, what is changed after it, and from what to what."""
    file = tmp_path_factory.mktemp("uses") / "uses.py"
    file.write_text(USES)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stderr
    found = [tuple(each) for each in json.loads(done.stdout.splitlines()[-1])]
    print("\n".join(map(str, found)))
    return found


def of(changes: list[tuple[str, str, object]], what: str) -> list[tuple[str, object]]:
    return [(use, each) for use, changed, each in changes if changed == what]


def test_what_stays_changed_is_named(changes: list[tuple[str, str, object]]) -> None:
    named = {"loggers", "atexit", "missing modules", "lowered lines", "random", "paths"}
    assert {what for _, what, _ in changes} == named


def test_a_finder_of_old_names(changes: list[tuple[str, str, object]]) -> None:
    ((use, (before, after)),) = of(changes, "paths")
    assert use == "import" and before[:3] == after[:3]
    new = [each for each in after[3] if each not in before[3]]
    assert len(new) == 1 and "OldNames" in new[0] and len(after[3]) == len(before[3]) + 1
    assert "| a finder in `sys.meta_path` | this package is imported |" in PAGE


def test_a_function_for_the_end(changes: list[tuple[str, str, object]]) -> None:
    ((use, (before, after)),) = of(changes, "atexit")
    assert use == "import" and after == before + 1
    assert "| a function of `atexit` | tilus is imported |" in PAGE


def test_loggers(changes: list[tuple[str, str, object]]) -> None:
    new = [name for _, each in of(changes, "loggers") for name in each["new"]]
    assert {"tilus"} <= {name.partition(".")[0] for name in new} <= {"tilus", "filelock", "tvm_ffi"}
    assert "| loggers of tilus, and of what tilus imports | tilus is imported |" in PAGE


def test_the_module_that_is_missing(changes: list[tuple[str, str, object]]) -> None:
    ((_, missing),) = of(changes, "missing modules")
    assert missing == {"gone": [], "new": ["tilus.hidet.ir.compute"]}
    assert '| `sys.modules["tilus.hidet.ir.compute"]` is None | tilus is imported |' in PAGE


def test_lines_of_lowered_kernels(changes: list[tuple[str, str, object]]) -> None:
    new = [name for _, each in of(changes, "lowered lines") for name in each["new"]]
    assert new and all(re.fullmatch(r"<Blackwell\w+ lowered \d+>", name) for name in new)
    assert "| entries of `linecache` such as `<MyKernel lowered 0>` | a kernel is simulated |" in PAGE


def test_a_random_number(changes: list[tuple[str, str, object]]) -> None:
    assert [use for use, _ in of(changes, "random")] == ["the command line"]
    assert "| one number is drawn from Python's `random` | the command line shows a result or an error |" in PAGE
