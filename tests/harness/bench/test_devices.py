"""Buffers and poison on the CPU; groups and graphs on a GPU that only counts; telemetry from a made-up nvidia-smi."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict
from types import SimpleNamespace

import pytest
import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.harness.bench import contenders, devices, tasks
from blackwell_matmul.harness.bench.devices import Cpu, Cuda, Telemetry, device_named, sets_needed
from blackwell_matmul.harness.bench.protocol import Settings
from blackwell_matmul.problem.problem import Problem


@pytest.mark.parametrize(
    ("size", "count"), [((8192, 8192, 8192), 2), ((4096, 4096, 4096), 3), ((1024, 1024, 1024), 21), ((1, 64, 64), 512)]
)
def test_operands_rotate_through_twice_the_l2(size, count):
    problem, l2_bytes = Problem(*size), 60 << 20
    m, n, k = size
    assert sets_needed(problem, l2_bytes) == count
    others_bytes = (count - 1) * 2 * (m * k + n * k + m * n)
    assert others_bytes >= 2 * l2_bytes or count == devices.MAX_SETS


def test_inputs_are_random_repeatable_and_make_results_of_order_one():
    a, b = Cpu().operands(Problem(64, 48, 256), seed=3)
    again = Cpu().operands(Problem(64, 48, 256), seed=3)
    other = Cpu().operands(Problem(64, 48, 256), seed=4)
    assert torch.equal(a, again[0]) and torch.equal(b, again[1]) and not torch.equal(a, other[0])
    assert 0.9 < (a.float() @ b.float().T).std().item() < 1.1


def test_a_poisoned_output_tells_what_was_written_around_it():
    poisoned = Cpu().poisoned(Problem(5, 7, 3))
    assert poisoned.c.shape == (5, 7) and poisoned.c.is_contiguous() and poisoned.c.isnan().all()
    assert poisoned.c.data_ptr() % 16 == 0
    poisoned.c.fill_(1)
    assert poisoned.untouched_around()
    poisoned.room[devices.GUARD_ELEMENTS - 1] = 0
    assert not poisoned.untouched_around()
    poisoned.refill()
    assert poisoned.untouched_around() and poisoned.c.isnan().all()


def test_devices_by_name():
    assert isinstance(device_named("cpu"), Cpu)
    for name in ("gpu", "cuda:x", "cuda:-1"):
        with pytest.raises(InputError, match=r"device is .*; it must be cuda, cuda:N or cpu\."):
            device_named(name)


# --- a GPU that counts


class Counted:
    """torch.cuda, as far as `Cuda` uses it: each call takes call_us, on a clock that events read."""

    def __init__(self, call_us: float, refuses_graphs: bool = False) -> None:
        self.call_us, self.refuses_graphs = call_us, refuses_graphs
        self.now_us, self.calls, self.recording = 0.0, 0, None

    def call(self, a, b, c) -> None:
        if self.recording is not None:
            self.recording.append(1)
            return
        self.calls += 1
        self.now_us += self.call_us

    def install(self, monkeypatch) -> None:
        outer = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at_us = outer.now_us

            def synchronize(self):
                pass

            def elapsed_time(self, other):
                return (other.at_us - self.at_us) / 1000

        class CUDAGraph:
            def replay(self):
                for _ in self.launches:
                    outer.call(None, None, None)

        @contextlib.contextmanager
        def graph(made):
            if outer.refuses_graphs:
                raise RuntimeError("operation not permitted when stream is capturing")
            outer.recording = made.launches = []
            yield
            outer.recording = None

        properties = SimpleNamespace(name="Counted", L2_cache_size=1 << 20, uuid="abc")
        fakes = {"Event": Event, "CUDAGraph": CUDAGraph, "graph": graph, "synchronize": lambda: None}
        fakes |= {"set_device": lambda device: None, "get_device_properties": lambda index: properties}
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)


SETS = [(None, None, None)] * 4


@pytest.mark.parametrize(
    ("call_us", "calls_of_a_run"),
    [(1.0, 15_000), (100.0, 160), (2_000.0, 8), (50_000.0, 8)],
)
def test_a_group_takes_its_time_and_half_ahead_and_uses_all_sets(monkeypatch, call_us, calls_of_a_run):
    counted = Counted(call_us)
    counted.install(monkeypatch)
    run, how = Cuda().group(counted.call, SETS, group_us=10_000.0)
    assert how == "graph"
    before = counted.calls
    assert run() == pytest.approx(call_us)
    ran = counted.calls - before
    assert ran % len(SETS) == 0 and ran == pytest.approx(calls_of_a_run, rel=0.05)


def test_what_cannot_be_captured_is_called(monkeypatch):
    counted = Counted(100.0, refuses_graphs=True)
    counted.install(monkeypatch)
    run, how = Cuda().group(counted.call, SETS, group_us=10_000.0)
    assert how == "calls" and run() == pytest.approx(100.0)


def test_a_replay_gives_what_the_capture_made(monkeypatch):
    counted = Counted(1.0)
    counted.install(monkeypatch)
    result = torch.zeros(2)
    replay = Cuda().replayed(lambda: counted.call(None, None, None) or result)
    assert counted.calls == 0 and replay() is result and counted.calls == 1


class OnCounted(Cuda):
    """The counting GPU, with its tensors on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.torch_device = torch.device("cpu")

    def telemetry(self):
        return Telemetry(None)


@pytest.fixture
def counted(monkeypatch):
    made = Counted(100.0)
    made.install(monkeypatch)
    monkeypatch.setattr(tasks, "device_named", lambda name: OnCounted())
    product = lambda contender, problem, bundle: lambda a, b, c: (made.call(a, b, c), c.copy_(a @ b.T)) and None
    monkeypatch.setattr(tasks, "make_call", product)
    return made


def test_measuring_goes_through_graphs_and_events(counted):
    names = ("cublas", "other")
    given = [{"contender": asdict(contenders.function(name, "x:y")), "bundle": None} for name in names]
    steps, settings = [], asdict(Settings(rounds=4, warmup_s=0.0))
    found = tasks.measure(steps.append, given, asdict(Problem(64, 64, 64)), settings, "cuda")
    assert {name: each["median_us"] for name, each in found["timings"].items()} == dict.fromkeys(names, 100.0)
    assert {each["launched_by"] for each in found["timings"].values()} == {"graph"}
    assert found["sets"] == sets_needed(Problem(64, 64, 64), 1 << 20) and steps[:3] == ["buffers", *names]


def test_stress_calls_and_replays(counted, monkeypatch):
    monkeypatch.setattr(tasks, "BATCH", 10)
    who, steps = asdict(contenders.function("x", "x:y")), []
    options = {"bundle": None, "device": "cuda", "repetitions": 20}
    found = tasks.stress(steps.append, who, asdict(Problem(8, 8, 8)), **options)
    assert (found["calls"], found["replays"]) == (20, 20)
    assert steps == ["x", "x, call 10", "x, call 20", "x, capture", "x, replay 10", "x, replay 20"]
    assert found["different"] == 20  # nothing computes in a replay here, and the poison shows


# --- telemetry

SMI = """#!{python}
import sys, time
assert "GPU-abc" in sys.argv and "--query-gpu=clocks.sm,power.draw,temperature.gpu" in sys.argv
for clock in (1980, 1700, [], 1710):
    print("[N/A], 1, 2" if clock == [] else f"{{clock}}, 650.5, 60", flush=True)
time.sleep(60)
"""


@pytest.mark.process
def test_telemetry_is_before_during_and_after(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    telemetry = Telemetry("GPU-abc")
    lines = iter(lambda: telemetry._process.stdout.readline(), "")
    first = [next(lines) for _ in range(4)]
    telemetry._process.terminate()
    assert [devices._sample(line) for line in first] == [
        [1980, 650.5, 60], [1700, 650.5, 60], None, [1710, 650.5, 60]
    ]  # fmt: skip
    monkeypatch.setattr(telemetry._process, "communicate", lambda: ("".join(first), ""))
    assert telemetry.stop()["sm_clock_mhz"] == {"before": 1980, "during": 1710, "after": 1710}


@pytest.mark.process
def test_without_nvidia_smi_all_is_unknown(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert set(Telemetry("GPU-abc").stop().values()) == {"unknown"}
    assert set(Telemetry(None).stop().values()) == {"unknown"}
