"""`blackwell-matmul bench`: without a GPU, with bad input, compiling ahead, drawing, and its exit codes and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from blackwell_matmul.hardware import detect
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.harness.bench import bench_machine, request, session
from blackwell_matmul.harness.bench.results import BenchRow, Machine, SuiteResults
from blackwell_matmul.problem.form import Epilogue, Form
from blackwell_matmul.problem.problem import Problem

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
WGMMA = f"{ROOT}/bench/blackwell_matmul_studies/wgmma_kernels/wgmma_serial.py:WgmmaMatmul"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(command_line: Command, tmp_path, monkeypatch) -> Command:
    monkeypatch.chdir(tmp_path)
    return partial(command_line, "bench")


@pytest.fixture
def h200(monkeypatch):
    """A machine with an H200, on which nothing runs: what would run is in the list that this gives."""
    ran = []

    def run(plan, book, bundles, gpu, tell):
        ran.append(plan)
        for contender, case in plan.pairs():
            if book.get(contender.name, case.problem) is None:
                book.put(BenchRow(contender.name, case.problem, case.band, reason="correct: exact."))

    monkeypatch.setattr(bench_machine, "gpu_at_hand", lambda: GPUS["H200"])
    monkeypatch.setattr(bench_machine, "LADDERS", {"sm_90a": ("h2", "h1", "h0")})
    monkeypatch.setattr(session, "run", run)
    return ran


def test_without_a_gpu_one_sentence_says_what_would_work(command: Command, monkeypatch) -> None:
    monkeypatch.setattr(detect, "detect", lambda: ())
    assert "rung is 'v9'; the rungs are" in command("--rungs", "v9")[2]
    code, out, err = command()
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert "`blackwell-matmul run v1` simulates" in err and "--compile-only" in err


def test_torch_without_cuda_is_named(command: Command, monkeypatch) -> None:
    monkeypatch.setattr(detect, "detect", lambda: (object(),))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, err = command()
    assert code == 2 and "install a CUDA build of torch." in err


def test_the_ladder_of_this_gpu_bottom_first_and_cublas(command: Command, h200) -> None:
    code, out, _ = command()
    (plan,) = h200
    assert code == 0 and [each.name for each in plan.contenders] == ["cublas", "h0", "h1", "h2"]
    assert {case.problem.m for case in plan.cases} == {1024, 2048, 4096, 8192} and plan.time
    assert "h2: correct: exact." in out and "Written: bench_results/results.json" in out
    assert Path("bench_results/results.json").is_file()


def test_options_make_the_plan(command: Command, h200) -> None:
    argv = ["--size", "10", "20", "30", "--rungs", f"v1,{WGMMA},triton", "--dtype", "bf16", "--rounds", "7"]
    command(*argv, "--limit", "33", "--out", "o", "--baselines")
    (plan,) = h200
    assert [each.name for each in plan.contenders] == [
        *("cublas", "v1", "WgmmaMatmul", "triton", "torch.compile"),
    ]
    assert [case.problem for case in plan.cases] == [Problem(10, 20, 30, "bf16")]
    assert (plan.settings.rounds, plan.limit_s, plan.repetitions) == (7, 33, 0)


def test_a_form_is_of_every_problem_and_its_rungs_take_part(command: Command, h200, monkeypatch) -> None:
    monkeypatch.setattr(bench_machine, "LADDERS", {"sm_90a": ("hopper", "h2")})
    gelu = Form("m", "k", out="fp32", epilogue=Epilogue(bias=True, activation="gelu"))
    words = ("--layout", "nn", "--epilogue", "bias,gelu", "--out-dtype", "fp32")
    code, out, _ = command("--size", "64", "96", "128", *words, "--batch", "3", "--dtype", "bf16", "--out", "o")
    command("--suite", "odd", "--epilogue", "bias,gelu", "--dtype", "bf16")
    command("--size", "64", "64", "64", "--dtype", "e4m3", "--epilogue", "scaled_rows")
    one, odd, small = h200
    assert code == 0 and [each.name for each in one.contenders] == ["cublas", "hopper"]
    assert [case.problem for case in one.cases] == [Problem(64, 96, 128, "bf16", gelu, 3)]
    assert "3 x 64x96x128 bf16, a_major=m, out=fp32, bias gelu" in out and Path("o/results.json").is_file()
    assert {case.band for case in odd.cases} == {"odd, bias gelu"} and len(odd.cases) == 24
    assert [case.problem.dtype for case in small.cases] == ["e4m3"]
    again = SuiteResults(Path("o"), "size", Machine("H200", "sm_90a", 132, 989))
    assert [row.problem for row in again] == [one.cases[0].problem] * 2


def test_block_scaled_rungs_take_part_on_the_gpus_that_have_them(command: Command, h200, monkeypatch) -> None:
    command("s2", "--size", "64", "64", "64", "--dtype", "nvfp4", "--out-dtype", "fp32")
    command("s1", "s2", "--out", "o")
    monkeypatch.setattr(bench_machine, "gpu_at_hand", lambda: GPUS["B200"])
    command("--dtype", "mxfp8,nvfp4", "--out", "p")
    monkeypatch.setattr(bench_machine, "gpu_at_hand", lambda: GPUS["GB10"])
    command("--dtype", "mxfp4", "--suite", "odd", "--out", "q")
    one, two, ladder, geforce = h200
    assert [case.problem for case in one.cases] == [Problem(64, 64, 64, "nvfp4", Form(out="fp32"))]
    assert [each.name for each in two.contenders] == ["cublas", "s1", "s2"]
    assert {case.problem.dtype for case in two.cases} == {"mxfp8", "mxfp4", "nvfp4"}
    assert [each.name for each in ladder.contenders] == ["cublas", "s0", "s1", "s2"]
    assert [each.name for each in geforce.contenders] == ["cublas", "g1"] and len(geforce.cases) == 24


def test_stress_repeats_and_is_not_timed_and_llm_takes_the_best(command: Command, h200) -> None:
    command("--suite", "stress", "--repetitions", "12")
    command("--suite", "llm")
    stress, llm = h200
    assert (stress.repetitions, stress.time) == (12, False)
    assert [each.name for each in llm.contenders] == ["cublas", "h2"] and llm.time


def test_again_forgets_what_it_measures_anew(command: Command, h200, monkeypatch) -> None:
    command("--size", "8", "8", "8")
    seen = []
    monkeypatch.setattr(session, "run", lambda plan, book, *rest: seen.append(len(list(book))))
    command("--size", "8", "8", "8")
    command("--size", "8", "8", "8", "--rungs", "v2", "--again")
    assert seen == [4, 3]


def test_something_wrong_is_exit_code_1_and_json_is_one_object(command: Command, h200, monkeypatch) -> None:
    def run(plan, book, *rest):
        book.put(BenchRow("h2", Problem(8, 8, 8), status="wrong", reason="wrong: all of it."))

    monkeypatch.setattr(session, "run", run)
    code, out, err = command("--size", "8", "8", "8", "--json")
    record = json.loads(out)
    assert (code, err, out.count("\n")) == (1, "", 1)
    assert record["machine"]["gpu"] == "H200" and record["machine"]["peak_tflops"] == 989
    assert record["suites"]["size"]["rows"][0]["reason"] == "wrong: all of it."


def test_a_gpu_without_rungs_is_named_unless_somebody_brings_one(command: Command, h200, monkeypatch) -> None:
    monkeypatch.setattr(bench_machine, "LADDERS", {"sm_100a": ("v2",)})
    code, _, err = command()
    assert code == 2 and "there is no rung for H200 (sm_90a) yet; there are some for sm_100a" in err
    assert command("--rungs", WGMMA)[0] == 0


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (
            ["--suite", "all"],
            "suite is 'all'; the suites are ladder, llm, odd, stress, torch-compile, triton-tma, bandwidth.",
        ),
        (["--suite", "size"], "suite is 'size'; the suites are"),
        (["--size", "8", "8", "8", "--suite", "x"], "suite is 'x'; the suites are"),
        (["--dtype", "fp8"], "dtype is 'fp8'; it must be one of fp16, bf16, e4m3, e5m2, mxfp8, mxfp4, nvfp4."),
        (["--epilogue", "tanh"], "epilogue names 'tanh'; the words are bias, residual"),
        (["--out-dtype", "fp8"], "--out is 'fp8'; it must be one of fp16, bf16, fp32."),
        (["--batch", "0"], "--batch is 0; it must be an integer from 1"),
        (["--batch", "2", "--baselines"], "--baselines are plain products of 16 bits; leave it out"),
        (["--dtype", "e4m3", "--baselines"], "--baselines are plain products of 16 bits; leave it out"),
        (["--dtype", "nvfp4,bf16"], "mxfp8, mxfp4, nvfp4 have rungs of their own, so measure them in another call."),
        (
            ["--dtype", "nvfp4", "--batch", "2"],
            "rungs with block scales compute one product of K-major matrices alone.",
        ),
        (["--dtype", "nvfp4"], "no rung for H200 (sm_90a) multiplies block-scaled operands; s0, s1, s2, g1 do"),
        (["--dtype", "nvfp4", "--baselines"], "--baselines are plain products of 16 bits; leave it out"),
        (["s9"], "rung is 's9'; the rungs are"),
        (["--layout", "nn"], "no rung for H200 (sm_90a) computes anything but plain products; blackwell and hopper do"),
        (["--rounds", "0"], "--rounds is 0; it must be from 1 to 100000."),
        (["--limit", "x"], "--limit is 'x'; it must be an integer."),
        (["--size", "0", "1", "1"], "m is 0; it must be an integer from 1"),
        (["--draw", "nowhere"], "nowhere has no results.json; bench --out nowhere makes one."),
        (["--compile-only", "--target", "sm_1"], "target is 'sm_1'; it must be a GPU (B200, "),
        (["--compile-only", "--target", "sm_90a", "--rungs", "v9"], "rung is 'v9'; the rungs are"),
        (["--rungs", "v1,v9"], "rung is 'v9'; the rungs are"),
        (["--rungs", "my.py:X"], "cannot read 'my.py': there is no such file."),
    ],
)
def test_bad_input_is_one_sentence(command: Command, h200, argv: list[str], words: str) -> None:
    code, _, err = command(*argv)
    assert code == 2 and words in err and err.rstrip().endswith("."), err


def test_compiling_ahead_fills_a_folder_without_a_gpu(command: Command) -> None:
    argv = ("--compile-only", "--target", "sm_90a", "--rungs", WGMMA, "--size", "300", "512", "128", "--out", "o")
    code, out, err = command(*argv)
    assert code == 0 and "Compiled for sm_90a in o/bundles" in out and "compiled 1 of 1: WgmmaMatmul" in err
    assert (Path("o") / "bundles" / "index.json").is_file()
    code, _, err = command(*argv)
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (0, "Nothing is compiled."),
        (1, "The other kernel is compiled for H200 in o; copy this folder to the machine with the GPU, for bench"),
        (5, "The other 5 kernels are compiled for H200 in o; copy this folder"),
    ],
)
def test_what_was_refused_is_told_beside_what_is_there(
    command: Command, monkeypatch, count: int, sentence: str
) -> None:
    monkeypatch.setattr(request.Request, "compile", lambda *_: (Path("o"), ["h2 8x8x7 fp16: no."], count))
    code, out, _ = command("--compile-only", "--target", "H200")
    assert code == 1 and out.startswith(f"h2 8x8x7 fp16: no.\n{sentence}") and "carry" not in out


def test_drawing_needs_no_gpu(command: Command) -> None:
    book = SuiteResults(Path("o"), "ladder", Machine("H200", "sm_90a", 132, 989.0))
    book.save()
    assert command("--draw", "o") == (0, "nothing was timed, so nothing is drawn\n", "")


def test_a_result_that_is_none_is_not_overwritten(command: Command, h200) -> None:
    Path("bench_results").mkdir()
    Path("bench_results/results.json").write_text("{}")
    code, _, err = command()
    assert code == 2 and "is no result of this version of bench" in err and not h200
    assert Path("bench_results/results.json").read_text() == "{}"


def test_a_folder_that_cannot_be_written_to_is_refused_before_any_work(command: Command, monkeypatch) -> None:
    monkeypatch.setattr(session, "compile_missing", lambda *_: pytest.fail("work was done"))
    Path("file").touch()
    code, out, err = command("--compile-only", "--out", "file")
    assert (code, out) == (2, "")
    assert err == "error: cannot write to the folder file/bundles: Not a directory; choose another with --out.\n"


def test_the_peak_is_of_this_board_alone() -> None:
    from dataclasses import replace

    h200 = GPUS["H200"]
    assert bench_machine.peak_tflops(replace(h200, name="H200")) == 989
    assert bench_machine.peak_tflops(replace(h200, name="H100 80GB HBM3")) == 989
    assert bench_machine.peak_tflops(replace(h200, name="H100 PCIe", sm_count=114)) is None
    assert bench_machine.peak_tflops(replace(h200, name="H20", sm_count=78)) is None
    assert bench_machine.peak_tflops(replace(GPUS["B200"], name="GB200", sm_count=152)) == 2500


def test_the_request_reads_bundles_from_where_it_writes_them() -> None:
    made = request.Request(out=Path("o"))
    assert made.index(GPUS["H200"]).folder == Path("o") / "bundles"
    assert request.Request(bundles=Path("b")).index(GPUS["H200"]).folder == Path("b")
