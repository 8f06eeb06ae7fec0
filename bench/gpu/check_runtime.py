"""The whole path on a real GPU: compile, load, launch, compare. Needs torch with CUDA and this package, nothing else.

    python bench/gpu/check_runtime.py --bundles FOLDER --make-bundles     # anywhere, no GPU needed
    python bench/gpu/check_runtime.py --bundles FOLDER --out FOLDER       # on the GPU; OUT in the environment does too

Every check is a process of its own with a time limit, so that one that hangs or fails leaves the others alone. Results
go to results.json after each; a second run does what is missing or failed (--again: everything). --dry-run calls the
checks that can run against a recording driver, which says nothing about numbers. --only NAME runs one check.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT), str(ROOT / "bench")]
TARGET = "sm_90a"
LIMIT_S = 150
ODD_M = (1, 63, 129, 333, 896, 1000, 1792, 2432)
"""896, 1792 and 2432: tiles in groups, which a wrong division leaves unwritten."""

CHECKS: dict[str, Callable[[], dict[str, Any]]] = {}
NEEDS_NUMBERS: set[str] = set()


class Skipped(Exception):
    """The check does not apply to this machine."""


def check(function: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    CHECKS[function.__name__] = function
    return function


# --- small tools


def torch() -> Any:
    import torch

    return torch


def dry() -> bool:
    return bool(os.environ.get("CHECK_RUNTIME_DRY"))


def needs_gpu() -> None:
    if dry():
        raise Skipped("needs a GPU")


def put(tensor: Any) -> Any:
    """A tensor on the GPU; in a dry run one that says so."""
    if not dry():
        return tensor.cuda()
    from fake_gpu import OnGpu

    return OnGpu.of(tensor)


def random(*shape: int, seed: int = 0) -> Any:
    generator = torch().Generator().manual_seed(seed)
    return put(torch().randn(*shape, generator=generator).half())


def poisoned(rows: int, columns: int) -> tuple[Any, Any]:
    """An output full of NaN, and the room around it, where nothing may be written."""
    room = put(torch().full((rows + 16, columns), float("nan"), dtype=torch().float16))
    return room[8 : rows + 8], room


def untouched(room: Any) -> bool:
    return bool(room[:8].isnan().all() and room[-8:].isnan().all())


def product_error(c: Any, a: Any, b: Any) -> dict[str, Any]:
    """The largest error against float64, next to torch's own, in units of the largest element of the result."""
    expected = a.double() @ b.double().T
    scale = expected.abs().max().item()
    ours = ((c.double() - expected).abs().max() / scale).item()
    theirs = (((a @ b.T).double() - expected).abs().max() / scale).item()
    return {"error": ours, "torch_error": theirs, "unwritten": int(c.isnan().sum())}


def assert_product(c: Any, a: Any, b: Any, room: Any, label: str) -> dict[str, Any]:
    if dry():
        return {"dry": True}
    torch().cuda.synchronize()
    found = product_error(c, a, b)
    assert found["unwritten"] == 0, f"{label}: {found['unwritten']} elements of C were never written"
    assert found["error"] <= 2 * found["torch_error"], f"{label}: {found}"
    assert untouched(room), f"{label}: wrote outside of C"
    return found


def kernels() -> dict[str, Any]:
    from kernels.copy import TmaCopy
    from kernels.counts import ThroughWorkspace
    from kernels.dot import DotMatmul

    from blackwell_matmul_studies.wgmma_kernels.wgmma_serial import WgmmaMatmul

    return {"copy": TmaCopy, "dot": DotMatmul, "wgmma": WgmmaMatmul, "counts": ThroughWorkspace}


def operands(m: int, n: int = 1024, k: int = 256) -> tuple[Any, Any, Any, Any]:
    c, room = poisoned(m, n)
    return random(m, k), random(n, k, seed=1), c, room


@contextlib.contextmanager
def fresh_cache() -> Iterator[Path]:
    before = os.environ.get("BLACKWELL_MATMUL_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BLACKWELL_MATMUL_CACHE"] = folder
        try:
            yield Path(folder)
        finally:
            os.environ.pop("BLACKWELL_MATMUL_CACHE")
            if before is not None:
                os.environ["BLACKWELL_MATMUL_CACHE"] = before


def python(code: str, cache: Path | None = None) -> subprocess.Popen[str]:
    """A child that runs `code` with these tools at hand."""
    environment = {**os.environ, **({"BLACKWELL_MATMUL_CACHE": str(cache)} if cache else {})}
    paths = [str(each) for each in (HERE, ROOT, ROOT / "bench", ROOT / "tests" / "runtime")]
    text = f"import sys\nsys.path[:0] = {paths!r}\n{DRY_SETUP}{code}"
    return subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


DRY_SETUP = """
import check_runtime
check_runtime.install_fake()
"""


def output_of(child: subprocess.Popen[str]) -> str:
    out, err = child.communicate(timeout=LIMIT_S - 20)
    assert child.returncode == 0, f"the child ended with {child.returncode}: {err.strip().splitlines()[-3:]}"
    return out


# --- does it compute


@check
def products_compiled_here() -> dict[str, Any]:
    """mma.sync and wgmma, TMA and mbarriers, at odd M; outputs poisoned; compared with float64."""
    results = {}
    for name in ("dot", "wgmma"):
        kernel = kernels()[name]()
        for m in ODD_M:
            a, b, c, room = operands(m)
            assert kernel(m, 1024, 256, a, b, c) is None
            results[f"{name} m={m}"] = assert_product(c, a, b, room, f"{name} m={m}")
    return results


@check
def copies_compiled_here() -> dict[str, Any]:
    """TMA in both directions, exact, at odd M."""
    kernel = kernels()["copy"]()
    for m in ODD_M:
        x, (y, room) = random(m, 256), poisoned(m, 256)
        kernel(m, 256, x, y)
        assert dry() or (torch().equal(x, y) and untouched(room)), f"m = {m}: y differs from x"
    return {"sizes": len(ODD_M)}


def bundle_folder(name: str) -> Path:
    folder = os.environ.get("CHECK_RUNTIME_BUNDLES")
    if not folder or not (Path(folder) / name).is_dir():
        raise Skipped("no carried bundles; make them with --make-bundles")
    return Path(folder) / name


@check
def products_from_carried_bundles() -> dict[str, Any]:
    """What another machine compiled, loaded from its folder; at every M."""
    from blackwell_matmul import load

    results = {}
    for name in ("dot", "wgmma"):
        kernel = load(bundle_folder(name))
        for m in ODD_M:
            a, b, c, room = operands(m)
            kernel(m, a, b, c)
            results[f"{name} m={m}"] = assert_product(c, a, b, room, f"{name} m={m}")
    return results


WITHOUT_TILUS = """
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tilus", "tvm_ffi"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
from check_runtime import assert_product, bundle_folder, operands
from blackwell_matmul.runtime import load
a, b, c, room = operands(1792)
load(bundle_folder("dot"))(1792, a, b, c)
assert_product(c, a, b, room, "dot")
assert "tilus" not in sys.modules
print("ok")
"""


@check
def bundles_without_tilus() -> dict[str, Any]:
    bundle_folder("dot")
    assert output_of(python(WITHOUT_TILUS)) == "ok\n"
    return {}


@check
def a_workspace_is_cleared_for_each_launch() -> dict[str, Any]:
    needs_gpu()
    kernel, n = kernels()["counts"](), 10000
    x = torch().arange(n, device="cuda", dtype=torch().float32)
    for _ in range(20):
        y = torch().full_like(x, float("nan"))
        kernel(n, x, y)
        assert torch().equal(x, y), "the workspace was not zero"
    return {"launches": 20}


@check
def simulator_and_gpu_agree() -> dict[str, Any]:
    """One script, CPU tensors and CUDA tensors: small integers are exact in any order, random numbers nearly so."""
    needs_gpu()
    kernel, (m, n, k) = kernels()["dot"](), (129, 256, 192)
    small = [torch().randint(-3, 4, shape).half() for shape in ((m, k), (n, k))]
    rough = [torch().randn(*shape).half() for shape in ((m, k), (n, k))]
    differences = {}
    for label, (a, b) in {"integers": small, "random": rough}.items():
        on_cpu, on_gpu = torch().zeros(m, n).half(), torch().zeros(m, n).half().cuda()
        from blackwell_matmul import simulate

        run = simulate(kernel, m, n, k, a, b, on_cpu, target=TARGET)
        assert run.ok, str(run.findings[0])
        kernel(m, n, k, a.cuda(), b.cuda(), on_gpu)
        scale = on_cpu.double().abs().max().item()
        differences[label] = (on_cpu.double() - on_gpu.cpu().double()).abs().max().item() / scale
    assert differences["integers"] == 0, differences
    assert differences["random"] <= 2 * torch().finfo(torch().float16).eps, differences
    return differences


# --- streams, graphs, threads


@check
def a_captured_graph_replays() -> dict[str, Any]:
    """Launches in a graph read what the tensors hold at the replay; a copy, a product and a workspace."""
    needs_gpu()
    dot, counts = kernels()["dot"](), kernels()["counts"]()
    a, b, c, room = operands(1792)
    x = torch().arange(5000, device="cuda", dtype=torch().float32)
    y = torch().zeros_like(x)
    dot(1792, 1024, 256, a, b, c)
    counts(5000, x, y)
    graph = torch().cuda.CUDAGraph()
    with torch().cuda.graph(graph):
        dot(1792, 1024, 256, a, b, c)
        counts(5000, x, y)
    for seed in range(3):
        a.copy_(random(1792, 256, seed=10 + seed))
        x.add_(1)
        c.fill_(float("nan"))
        y.fill_(float("nan"))
        graph.replay()
        assert_product(c, a, b, room, f"replay {seed}")
        assert torch().equal(x, y), "the workspace in the graph was not cleared"
    return {"replays": 3}


@check
def a_first_call_can_be_captured() -> dict[str, Any]:
    """Compiled and loaded while the stream is captured, in torch's default (global) mode."""
    needs_gpu()
    a, b, c, room = operands(333)
    torch().cuda.synchronize()
    graph = torch().cuda.CUDAGraph()
    with fresh_cache(), torch().cuda.graph(graph):
        kernels()["dot"]()(333, 1024, 256, a, b, c)
    assert c.isnan().all(), "the kernel ran during the capture"
    graph.replay()
    return assert_product(c, a, b, room, "first call in a capture")


def chain(calls: int, steps: list[Callable[[Any, Any], None]], x: Any, y: Any, between: Callable[[Any], Any]) -> None:
    """Each call reads what the one before has written, and overwrites what that one has read."""
    for number in range(calls):
        between(y)
        steps[number % len(steps)](x, y)
        x, y = y, x


def captured(run: Callable[[], None]) -> Callable[[], None]:
    """The same calls as a graph."""
    run()
    graph = torch().cuda.CUDAGraph()
    with torch().cuda.graph(graph):
        run()
    return graph.replay


def permuted(given: Any, orders: list[Any], calls: int) -> Any:
    for number in range(calls):
        given = given[:, orders[number % len(orders)]]
    return given


@check
def an_early_start_reads_nothing_early() -> dict[str, Any]:
    """Kernels start while those before them still run. Chains of products with permutations are exact: a call that read
    before the one in front of it had written, or wrote before that had read, would show. Split tiles (their workspaces
    are used again at once), several rungs in turns, torch's kernels between them or not, plain calls and graphs.
    """
    needs_gpu()
    from blackwell_matmul import HopperMatmulV2, HopperMatmulV5, HopperMatmulV7

    m, size, half = 128, 1024, torch().float16
    kernels_in_turn = (HopperMatmulV7(split_k=2), HopperMatmulV5(), HopperMatmulV2())
    orders = [torch().randperm(size, generator=torch().Generator().manual_seed(seed)).cuda() for seed in range(3)]
    weights = [torch().eye(size, device="cuda", dtype=half)[order] for order in orders]
    steps = [
        lambda x, y, kernel=kernel, weight=weight: kernel(m, size, size, x, weight, y)
        for kernel, weight in zip(kernels_in_turn, weights)
    ]
    given, found = random(m, size), {}
    for label, between in {"back to back": lambda y: None, "a fill between": lambda y: y.fill_(float("nan"))}.items():
        for how, calls, repeats in (("calls", 300, 5), ("graph", 60, 50)):
            x, y = given.clone(), torch().empty_like(given)
            run = functools.partial(chain, calls, steps, x, y, between)
            run = captured(run) if how == "graph" else run
            expected = permuted(given, orders, calls)
            for repeat in range(repeats):
                x.copy_(given)
                run()
                assert torch().equal(x, expected), f"{label}, {how}: wrong after {repeat} repeats"
            found[f"{label}, {how}"] = calls * repeats
    return found


@check
def streams_are_torchs() -> dict[str, Any]:
    """On the current stream, in its order: a launch waits for what that stream does, and not for the others."""
    needs_gpu()
    cuda, dot = torch().cuda, kernels()["dot"]()
    a, b, c, _ = operands(1792)
    dot(1792, 1024, 256, a, b, c)
    streams = [cuda.Stream() for _ in range(4)]
    sources = [random(1792, 256, seed=seed) for seed in range(4)]
    lates, outputs = [torch().zeros_like(a) for _ in streams], [poisoned(1792, 1024) for _ in streams]
    cuda.synchronize()
    for stream, source, late, (out, _) in zip(streams, sources, lates, outputs):
        with cuda.stream(stream):
            cuda._sleep(100_000_000)
            late.copy_(source)
            dot(1792, 1024, 256, late, b, out)
    waiting = [not stream.query() for stream in streams]
    assert all(waiting), f"a call waited for the GPU: {waiting}"
    for seed, (late, (out, around)) in enumerate(zip(lates, outputs)):
        assert_product(out, late, b, around, f"stream {seed}")
    return {"still queued after the calls": waiting}


@check
def a_thread_that_never_used_cuda() -> dict[str, Any]:
    failures: list[str] = []
    dot = kernels()["dot"]()
    a, b, c, room = operands(333)

    def work() -> None:
        try:
            dot(333, 1024, 256, a, b, c)
        except Exception as error:
            failures.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures, failures
    return assert_product(c, a, b, room, "from a thread")


@check
def several_gpus() -> dict[str, Any]:
    needs_gpu()
    count = torch().cuda.device_count()
    if count < 2:
        raise Skipped("one GPU")
    dot = kernels()["dot"]()
    for device in reversed(range(count)):
        a, b = (random(rows, 256).to(f"cuda:{device}") for rows in (1792, 1024))
        c = torch().full((1792, 1024), float("nan"), dtype=torch().float16, device=f"cuda:{device}")
        dot(1792, 1024, 256, a, b, c)
        torch().cuda.synchronize(device)
        found = product_error(c, a, b)
        assert found["unwritten"] == 0 and found["error"] <= 2 * found["torch_error"], (device, found)
    return {"gpus": count}


# --- the cache

ONE_CALL = """
from check_runtime import assert_product, kernels, operands
a, b, c, room = operands(1792)
kernels()["dot"]()(1792, 1024, 256, a, b, c)
assert_product(c, a, b, room, "dot")
print("ok")
"""


@check
def two_processes_share_a_cache() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        children = [python(ONE_CALL, Path(folder)) for _ in range(2)]
        assert [output_of(child) for child in children] == ["ok\n", "ok\n"]
        found = len(list(Path(folder).rglob("bundle.json")))
    assert found == 1, f"{found} entries"
    return {"entries": found}


@check
def a_damaged_cache_is_made_again() -> dict[str, Any]:
    damaged = []
    with tempfile.TemporaryDirectory() as folder:
        output_of(python(ONE_CALL, Path(folder)))
        for file in sorted(path for path in Path(folder).rglob("*") if path.name.startswith(("kernel.", "bundle."))):
            whole = file.read_bytes()
            file.write_bytes(whole[: len(whole) // 2] + b"\0damaged\0")
            assert output_of(python(ONE_CALL, Path(folder))) == "ok\n"
            assert file.read_bytes() == whole, f"{file.name} was not made again"
            damaged.append(file.name)
    return {"damaged": damaged}


@check
def a_cache_that_cannot_be_written() -> dict[str, Any]:
    """A folder without write permission (which stops nobody who is root), and a path below a file (which stops all)."""
    with tempfile.TemporaryDirectory() as folder:
        locked, file = Path(folder) / "locked", Path(folder) / "file"
        locked.mkdir(mode=0o555)
        file.write_text("no folder")
        for place in (locked, file / "cache"):
            assert output_of(python(ONE_CALL, place)) == "ok\n"
        written = bool(list(locked.rglob("bundle.json")))
    return {"permission was ignored (root)": written}


# --- what is refused


def refusal(call: Callable[[], object]) -> str:
    from blackwell_matmul import BlackwellMatmulError

    try:
        call()
    except BlackwellMatmulError as error:
        text = str(error)
        assert text.endswith(".") and "\n" not in text, text
        return text
    raise AssertionError("it was not refused")


@check
def a_blackwell_rung_is_refused_in_a_sentence() -> dict[str, Any]:
    from blackwell_matmul import BlackwellMatmulV2
    from blackwell_matmul.runtime.device import gpu_at

    if gpu_at(0).arch == "sm_100a":
        raise Skipped("this GPU runs it")
    a, b, c, _ = operands(64)
    text = refusal(lambda: BlackwellMatmulV2()(64, 1024, 256, a, b, c))
    assert "tcgen05" in text and gpu_at(0).name in text
    assert gpu_at(0).arch != "sm_90a" or "the kernels for sm_90a are g0, h0, " in text
    return {"sentence": text}


@check
def matmul_runs_or_says_why_not() -> dict[str, Any]:
    needs_gpu()
    from blackwell_matmul import matmul
    from blackwell_matmul.kernels import LADDERS
    from blackwell_matmul.runtime.device import gpu_at

    a, w = random(333, 256), random(1024, 256, seed=1)
    if gpu_at(0).arch not in LADDERS:
        return {"sentence": refusal(lambda: matmul(a, w.T))}
    c = torch().compile(lambda x, y: matmul(x, y.T), fullgraph=True)(a, w)
    return product_error(c, a, w)


@check
def layouts_of_matmul() -> dict[str, Any]:
    """Which operands are read as they are, what is copied, and what the copy costs: each layout against torch.mm."""
    needs_gpu()
    from blackwell_matmul import copies, matmul
    from blackwell_matmul.kernels import LADDERS
    from blackwell_matmul.runtime.device import gpu_at

    if gpu_at(0).arch not in LADDERS:
        raise Skipped(f"there is no ladder for {gpu_at(0).arch}")
    n, results = 4096, {}
    x, y = random(n, n), random(n, n, seed=1)
    for name, a, b in (("a, b.T", x, y.T), ("a, b", x, y), ("a.T, b.T", x.T, y.T), ("a.T, b", x.T, y)):
        reference = a.double() @ b.double()
        error, theirs = (float((c.double() - reference).abs().max()) for c in (matmul(a, b), a @ b))
        assert error <= 2 * theirs, (name, error, theirs)
        rounds = [(gpu_us(lambda: matmul(a, b)), gpu_us(lambda: a @ b)) for _ in range(5)]  # noqa: B023
        ours, cublas = (statistics.median(times) for times in zip(*rounds))
        results[name] = {"matmul_us": ours, "torch_us": cublas, "copies": copies(a, b)}
    return results


@check
def groups_of_rows() -> dict[str, Any]:
    """`grouped_matmul` and its gradients beside torch's: ragged, with empty groups and rows of none, and captured."""
    needs_gpu()
    from blackwell_matmul import grouped_matmul
    from blackwell_matmul.ops.grouped import FAMILIES
    from blackwell_matmul.runtime.device import gpu_at

    if gpu_at(0).arch not in FAMILIES:
        raise Skipped(f"there is no kernel for {gpu_at(0).arch}")
    m, n, k, groups, results = 8192, 4096, 2048, 16, {}
    lengths = [0, 1, 63, 64, 65, 127, 129, 0, 1000, 2000, 500, 500, 1000, 1000, 1000, 0]
    offs = torch().tensor(lengths, device="cuda").cumsum(0).int()
    covered = sum(lengths)
    x, y = random(m, k).bfloat16(), random(m, n, seed=1).bfloat16()
    w = random(groups * n, k, seed=2).bfloat16().view(groups, n, k)
    calls = {"x @ w.mT": (x, w.mT), "x @ w": (x, w.mT.contiguous()), "dy @ w": (y, w), "x.T @ dy": (x.T, y)}
    for name, (left, right) in calls.items():
        made, theirs = grouped_matmul(left, right, offs), torch()._grouped_mm(left, right, offs=offs)
        used = slice(covered if right.dim() == 3 else None)
        apart = (made[used].float() - theirs[used].float()).abs().max() / theirs[used].float().abs().max()
        assert float(apart) <= 2**-7, (name, float(apart))  # one rounding to bf16 more
        assert right.dim() == 2 or not made[covered:].any()
        rounds = [
            (
                gpu_us(lambda: grouped_matmul(left, right, offs)),  # noqa: B023
                gpu_us(lambda: torch()._grouped_mm(left, right, offs=offs)),  # noqa: B023
            )
            for _ in range(5)
        ]
        ours, torchs = (statistics.median(times) for times in zip(*rounds))
        results[name] = {"grouped_matmul_us": ours, "torch_us": torchs}
    graph = torch().cuda.CUDAGraph()
    with torch().cuda.graph(graph):
        captured = grouped_matmul(x, w.mT, offs)
    offs.copy_(torch().tensor(lengths[::-1]).cumsum(0))  # other groups, the same graph
    graph.replay()
    assert torch().equal(captured, grouped_matmul(x, w.mT, offs))
    return results


def gpu_us(call: Callable[[], Any], calls: int = 20) -> float:
    """Microseconds of the GPU for one call, of `calls` in a row."""
    begin, end = (torch().cuda.Event(enable_timing=True) for _ in range(2))
    call()
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return 1000 * float(begin.elapsed_time(end)) / calls


@check
def bad_calls_get_sentences() -> dict[str, Any]:
    from blackwell_matmul import load
    from blackwell_matmul.compiler import compile

    a, b, c, _ = operands(333)
    bundle = compile(kernels()["dot"], 333, 1024, 256, a, b, c, target=TARGET)
    other = compile(kernels()["copy"], 64, 256, a, c, target="sm_100a")
    loaded = load(bundle)
    return {
        "unaligned": refusal(lambda: loaded(332, a.flatten()[1 : 1 + 332 * 256].view(332, 256), b, c)),
        "another GPU's cubin": refusal(lambda: load(other)(64, a, c)),
        "no cubin": refusal(lambda: load(__import__("dataclasses").replace(bundle, cubin=b"nothing"))(333, a, b, c))
        if not dry()
        else "",
        "wrong type": refusal(lambda: loaded(333, a.bfloat16(), b, c)),
    }


# --- what a call costs


def cpu_us(call: Callable[[], object], calls: int = 200, rounds: int = 30) -> dict[str, float]:
    """The CPU time of one call in µs, by rounds of so many calls, with the GPU's queue emptied between them."""
    times = []
    for _ in range(rounds):
        if not dry():
            torch().cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls * 1e6)
    return {"median": round(statistics.median(times), 2), "least": round(min(times), 2)}


@check
def cpu_cost_of_a_call() -> dict[str, Any]:
    """Small sizes, so that the GPU keeps up. The same C each time, and one of 64 in turn; torch.mm beside it, twice."""
    needs_gpu()
    from blackwell_matmul import load
    from blackwell_matmul.compiler import compile

    m, n, k = 64, 256, 64
    a, b, c, _ = operands(m, n, k)
    outs, bt = [torch().empty(m, n, device="cuda", dtype=torch().float16) for _ in range(64)], b.T
    kernel = kernels()["dot"]()
    loaded = load(compile(kernel, m, n, k, a, b, c, target=TARGET))
    turn = iter(range(10**9))
    results = {
        "torch.mm": cpu_us(lambda: torch().mm(a, bt)),
        "torch.mm(out=)": cpu_us(lambda: torch().mm(a, bt, out=c)),
        "kernel, same tensors": cpu_us(lambda: kernel(m, n, k, a, b, c)),
        "kernel, 64 outputs in turn": cpu_us(lambda: kernel(m, n, k, a, b, outs[next(turn) % 64])),
        "kernel, torch.empty each": cpu_us(lambda: kernel(m, n, k, a, b, torch().empty_like(c))),
        "loaded bundle": cpu_us(lambda: loaded(m, a, b, c)),
        "torch.mm again": cpu_us(lambda: torch().mm(a, bt)),
    }
    results["new address"] = first_call_us(kernel, m, n, k, a, b)
    results["driver alone"] = driver_us(kernel, (m, n, k, a, b, c))
    fast = results["kernel, same tensors"]["median"], results["torch.mm"]["median"]
    assert fast[0] <= fast[1], f"a call costs {fast[0]} µs and torch.mm {fast[1]}: {results}"
    return results


def first_call_us(kernel: Any, m: int, n: int, k: int, a: Any, b: Any) -> dict[str, float]:
    """A call whose output has an address that was never seen."""
    room = torch().empty(4000, m, n, device="cuda", dtype=torch().float16)
    fresh = iter(room.unbind(0))
    return cpu_us(lambda: kernel(m, n, k, a, b, next(fresh)), calls=100, rounds=20)


def driver_us(kernel: Any, arguments: tuple[Any, ...]) -> dict[str, float]:
    """cuLaunchKernelEx through ctypes with everything prepared."""
    from blackwell_matmul.hardware import driver
    from blackwell_matmul.runtime.calls import call_key

    kernel(*arguments)  # packed again, if other calls have pushed it out
    packed = kernel._gpu._calls._known.get(call_key(arguments))
    launch, config = driver.entry_points().launch, ctypes.addressof(packed.config)
    return cpu_us(lambda: launch(config, packed.function, packed.packed.address, None))


@check
def cpu_cost_of_the_op() -> dict[str, Any]:
    """torch.ops' way in and out with a kernel that does nothing, since only some GPUs have rungs."""
    from blackwell_matmul import matmul
    from blackwell_matmul.ops import launching

    a, b = torch().zeros(64, 64).half(), torch().zeros(64, 64).half().T
    launching._kernel = lambda name, form: lambda *arguments: None
    wanting = a.clone().requires_grad_()
    return {
        "matmul, kernel left out": cpu_us(lambda: matmul(a, b, simulate=True), calls=100),
        "with a gradient wanted": cpu_us(lambda: matmul(wanting, b, simulate=True), calls=100),
    }


# --- running them


def install_fake() -> None:
    """In a dry run: the recording driver, and torch's side of it."""
    if not dry():
        return
    sys.path.insert(0, str(ROOT / "tests" / "runtime"))
    import fake_gpu
    import pytest

    fake = fake_gpu.FakeGpu(Path(os.environ["CHECK_RUNTIME_DRY"]))
    fake.reset()
    fake_gpu.install(pytest.MonkeyPatch())


def run_one(name: str) -> dict[str, Any]:
    install_fake()
    start = time.perf_counter()
    try:
        found = {"status": "ok", "details": CHECKS[name]()}
    except Skipped as reason:
        found = {"status": "skipped", "details": str(reason)}
    except BaseException as error:
        where = traceback.format_exc().strip().splitlines()
        found = {"status": "failed", "details": f"{type(error).__name__}: {error}", "traceback": where[-12:]}
    return {**found, "seconds": round(time.perf_counter() - start, 2)}


def in_a_child(name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        command = [sys.executable, str(Path(__file__).resolve()), "--only", name, "--write", str(file)]
        try:
            child = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return {"status": "failed", "details": f"did not end within {LIMIT_S} s", "seconds": LIMIT_S}
        if file.exists():
            return dict(json.loads(file.read_text()))
        tail = (child.stdout + child.stderr).strip().splitlines()[-6:]
        return {"status": "failed", "details": f"the process ended with {child.returncode}", "traceback": tail}


def run_all(out: Path, again: bool) -> dict[str, Any]:
    out.mkdir(parents=True, exist_ok=True)
    file = out / "results.json"
    results = json.loads(file.read_text()) if file.exists() and not again else {}
    results["machine"] = machine()
    checks = results.setdefault("checks", {})
    for name in CHECKS:
        if checks.get(name, {}).get("status") == "ok":
            continue
        checks[name] = in_a_child(name)
        print(f"{checks[name]['status']:8} {name}", flush=True)
        file.write_text(json.dumps(results, indent=1))
    return results


def machine() -> dict[str, Any]:
    import importlib.metadata as metadata

    versions = {}
    for name in ("torch", "tilus", "cuda-bindings", "nvidia-cuda-nvrtc", "blackwell-matmul"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    gpu = "a recording driver; nothing was computed" if dry() else str(torch().cuda.get_device_name())
    return {
        "gpu": gpu,
        "python": sys.version.split()[0],
        "versions": versions,
        "taken": time.strftime("%Y-%m-%d %H:%M"),
    }


def make_bundles(folder: Path) -> None:
    from blackwell_matmul.compiler import compile

    half = {"dtype": torch().float16}
    a, b, c = (torch().empty(shape, **half) for shape in ((1000, 256), (1024, 256), (1000, 1024)))
    for name in ("dot", "wgmma"):
        compile(kernels()[name], 1000, 1024, 256, a, b, c, target=TARGET).save(folder / name)
    print(f"dot and wgmma for {TARGET} in {folder}")


def table(results: dict[str, Any]) -> None:
    print(f"\n{results['machine']['gpu']}, {results['machine']['versions']}")
    for name, found in results["checks"].items():
        told = found["details"] if isinstance(found["details"], str) else ""
        print(f"{found['status']:8} {found.get('seconds', 0):7.1f} s  {name}  {told[:160]}")
    for name in ("cpu_cost_of_a_call", "cpu_cost_of_the_op"):
        details = results["checks"].get(name, {}).get("details")
        for label, value in details.items() if isinstance(details, dict) else ():
            print(f"  {label:32} {value['median']:8.2f} us median, {value['least']:8.2f} least")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ROOT / "build" / "check_runtime")))
    parser.add_argument("--bundles", type=Path, default=ROOT / "build" / "bundles")
    for flag in ("make-bundles", "again", "dry-run"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--only", choices=CHECKS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make_bundles:
        make_bundles(options.bundles)
        return 0
    os.environ.setdefault("CHECK_RUNTIME_BUNDLES", str(options.bundles.resolve()))
    with contextlib.ExitStack() as stack:
        if options.dry_run:
            os.environ["CHECK_RUNTIME_DRY"] = fake_driver(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        if options.only:
            found = run_one(options.only)
            print(json.dumps(found, indent=1))
            if options.write:
                options.write.write_text(json.dumps(found))
            return int(found["status"] == "failed")
        results = run_all(options.out, options.again)
        table(results)
        return int(any(found["status"] == "failed" for found in results["checks"].values()))


def fake_driver(folder: Path) -> str:
    sys.path.insert(0, str(ROOT / "tests" / "runtime"))
    import fake_gpu

    library, reason = fake_gpu.build(folder)
    if library is None:
        raise SystemExit(reason)
    return str(library)


if __name__ == "__main__":
    sys.exit(main())
