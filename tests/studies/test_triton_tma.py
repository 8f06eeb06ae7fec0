"""The study "triton-tma" with kernels that stand for Triton's, on the processor, and its screen on a made-up rows."""

from __future__ import annotations

import re
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.cli.views import terminal
from blackwell_matmul.harness.bench.protocol import Settings
from blackwell_matmul.harness.bench.results import Machine
from blackwell_matmul_studies import interleaved, trials_of, triton_tma
from blackwell_matmul_studies.study_results import StudyResults, TrialRow
from blackwell_matmul_studies.tma_configurations import KNOWN, TmaConfiguration
from blackwell_matmul_studies.views import triton_tma_view

COMPILED = SimpleNamespace(n_regs=90, n_spills=0, metadata=SimpleNamespace(shared=98328))


class Kernels:
    """In place of baselines/triton_kernels.py."""

    def __init__(self, spoil=lambda output: None) -> None:
        self.spoil, self.options = spoil, []

    def gemm(self, a, b, c, kind, block, **options):
        self.options.append((kind, block, options))
        c.copy_(a @ b.T)
        self.spoil(c)
        return COMPILED

    def copy(self, x, y, kind, block, **options):
        self.options.append((kind, block, options))
        y.copy_(x)
        self.spoil(y)
        return COMPILED


@pytest.fixture
def on_cpu(monkeypatch):
    def use(kernels):
        monkeypatch.setattr(interleaved, "triton_kernels", lambda: kernels)
        monkeypatch.setattr(interleaved, "INTERLEAVED_SETTINGS", Settings(rounds=2, group_us=1, warmup_s=0.0))
        return kernels

    return use


def test_trials_are_few_enough_and_name_what_they_do():
    for quick, count in ((False, 3 * 18), (True, 10)):
        trials = trials_of("triton-tma")(quick)
        assert len(trials) == count == len({trial.name for trial in trials})
        for trial in trials:
            module, _, function = trial.do.partition(":")
            kernel, size, configuration = trial.name.split(" ", 2)
            assert module == triton_tma.__name__ and function == kernel and callable(getattr(triton_tma, function))
            assert trial.arguments == {"size": int(size), "configuration": configuration}
            assert TmaConfiguration.parse(configuration) in KNOWN[kernel]


def test_a_few_have_both_kinds():
    quick = trials_of("triton-tma")(True)
    for kernel in KNOWN:
        kinds = [
            TmaConfiguration.parse(t.arguments["configuration"]).conservative for t in quick if t.do.endswith(kernel)
        ]
        assert set(kinds) == {True, False}


def test_a_product_is_checked_timed_and_described(on_cpu):
    kernels, steps = on_cpu(Kernels()), []
    found = triton_tma.gemm(steps.append, 32, "64x128x32 s3 w8", "cpu")
    assert kernels.options[0] == ("host", (64, 128, 32), {"num_stages": 3, "num_warps": 8})
    assert (found["registers"], found["spills"], found["shared_bytes"]) == (90, 0, 98328)
    assert found["tflops"] == pytest.approx(2 * 32**3 / found["mine"]["median_us"] / 1e6)
    assert found["of_torch"] == pytest.approx(found["torch"]["median_us"] / found["mine"]["median_us"])
    assert found["error"] <= 2 * found["torch_error"] and found["first_call_s"] >= 0
    assert steps[:2] == ["compiling", "checking"]


def test_a_copy_counts_what_is_read_and_written(on_cpu):
    on_cpu(Kernels())
    found = triton_tma.copy(lambda what: None, 64, "64x64 s1 w4", "cpu")
    assert found["gb_per_s"] == pytest.approx(2 * 64 * 64 * 2 / found["mine"]["median_us"] / 1e3)


@pytest.mark.parametrize(("kernel", "configuration"), [("gemm", "64x64x32 s1 w4"), ("copy", "64x64 s1 w4")])
def test_a_wrong_result_is_not_timed(on_cpu, kernel, configuration):
    on_cpu(Kernels(lambda output: output[3:5, 7].add_(1)))
    steps = []
    with pytest.raises(interleaved.WrongResult, match=r"wrong: .*C\[|2 of 1024 elements of y differ"):
        getattr(triton_tma, kernel)(steps.append, 32, configuration, "cpu")
    assert "torch" not in steps


def test_too_large_a_configuration_is_refused_with_the_numbers(on_cpu):
    class OutOfResources(Exception):
        required, limit, name = 655392, 232448, "shared memory"

    def refuse(output):
        raise OutOfResources

    on_cpu(Kernels(refuse))
    with pytest.raises(UnsupportedError, match=r"^it needs 655392 bytes of shared memory, and this GPU has 232448\.$"):
        triton_tma.gemm(lambda what: None, 32, "256x256x128 s5 w16", "cpu")


def test_what_is_no_refusal_stays_what_it_is(on_cpu):
    def fail(output):
        raise TypeError("no such argument")

    on_cpu(Kernels(fail))
    with pytest.raises(TypeError):
        triton_tma.gemm(lambda what: None, 32, "64x64x32 s1 w4", "cpu")


def test_without_triton_a_sentence(monkeypatch):
    monkeypatch.setattr(interleaved, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="pip install triton"):
        interleaved.triton_kernels()


# --- the screen


def result(time_us: float, torch_us: float, **rate: float):
    def timing(median_us):
        times = {"median_us": median_us, "q1_us": median_us * 0.99, "q3_us": median_us * 1.01, "least_us": median_us}
        return {**times, "rounds": 15, "launched_by": "graph"}

    return {
        **rate, "of_torch": torch_us / time_us, "mine": timing(time_us), "torch": timing(torch_us),
        "first_call_s": 1.25, "registers": 90, "spills": 0, "shared_bytes": 98328,
    }  # fmt: skip


@pytest.fixture
def results(tmp_path) -> StudyResults:
    return StudyResults(tmp_path, "triton-tma", Machine("H-made-up", "sm_90a", 132, None))


def drawn(results: StudyResults) -> str:
    return re.sub(" +", " ", terminal.rendered(triton_tma_view.lines(results)))


def test_the_screen_compares_the_best_of_each_set_by_their_own_ratios(results):
    results.put(TrialRow("gemm 4096 64x64x32 s1 w4", "done", result(600, 180, tflops=229.0)))
    results.put(TrialRow("gemm 4096 128x64x32 s1 w4", "done", result(500, 200, tflops=274.9)))
    results.put(TrialRow("gemm 4096 128x256x64 s3 w8", "done", result(250, 200, tflops=549.8)))
    results.put(TrialRow("gemm 4096 256x256x128 s5 w16", "refused", None, "ptxas: too few [registers].", "compiling"))
    results.put(TrialRow("gemm 4096 256x128x64 s3 w8", "hung", None, "no sign of life for 90 s", "checking"))
    text = drawn(results)
    assert " TFLOPS time spread of torch first call registers spills shared" in text
    assert "128x256x64 s3 w8 549.8 250.00 µs 2.0% 80.0% 1.2 s 90 0 98328" in text
    order = [text.index(words) for words in ("\nconservative", " 64x64x32 s1", "\naggressive", " 128x256x64 s3")]
    assert order == sorted(order)
    assert "128x256x64 s3 w8 is 2.00 times as fast as 128x64x32 s1 w4, the best of each set; published" in text
    assert "published for a B200: 1.84 times." in text
    assert "256x256x128 s5 w16: refused: ptxas: too few [registers]." in text
    assert "256x128x64 s3 w8: hung (checking): no sign of life for 90 s" in text


def test_the_screen_orders_kernels_and_sizes_and_needs_both_sets(results):
    results.put(TrialRow("copy 8192 64x64 s1 w4", "done", result(60, 30, gb_per_s=4473.9)))
    results.put(
        TrialRow("gemm 8192 64x64x32 s1 w4", "failed", None, "its process was ended by signal 6 (SIGABRT)", "compiling")
    )
    results.put(TrialRow("gemm 2048 128x256x64 s3 w8", "done", result(25, 20, tflops=687.2)))
    text = drawn(results)
    assert [line for line in text.splitlines() if re.fullmatch(r"\w+ \d+", line)] == [
        "gemm 2048",
        "gemm 8192",
        "copy 8192",
    ]
    assert "gemm 2048: no conservative configuration ran to compare with." in text
    assert "copy 8192: no aggressive configuration ran to compare with." in text
    assert "64x64 s1 w4 4474 60.00 µs 2.0% 50.0%" in text and " GB/s time" in text


def test_the_tables_fit_a_hundred_columns(results):
    results.put(TrialRow("gemm 4096 256x128x128 s4 w16", "done", result(12345, 10000, tflops=1549.8)))
    results.put(TrialRow("copy 4096 256x256 s5 w16", "done", result(600.05, 10000, gb_per_s=4473.9)))
    console = Console(width=100, file=StringIO())
    console.print(*triton_tma_view.lines(results))
    assert "…" not in console.file.getvalue() and "registers" in console.file.getvalue()
