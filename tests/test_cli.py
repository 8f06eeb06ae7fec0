"""The command line: what it prints where, its exit codes, and that no line of arguments ends in a traceback."""

import dataclasses
import json
import os
import subprocess
import sys
import time

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blackwell_matmul.simulator
from blackwell_matmul import cli, kernels
from blackwell_matmul.errors import CompileError, InputError, SimulationError, UnsupportedError
from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.findings import Finding, Run, Severity

RACE = Finding("race", Severity.ERROR, "two writers.", location=Location("v1.py", 3))
SMALL = ("--size", "64", "64", "32")


@dataclasses.dataclass
class FakeSimulator:
    """Computes C with torch, then breaks it or adds findings as told."""

    findings: tuple = ()
    error: BaseException | None = None
    wrong: bool = False
    seconds: float = 0.0
    calls: list = dataclasses.field(default_factory=list)

    def __call__(self, script, m, n, k, a, b, c, **options):
        self.calls.append((script, (m, n, k), c.dtype, options))
        if self.error is not None:
            raise self.error
        time.sleep(self.seconds)
        torch.matmul(a, b.T, out=c)
        c[0, 0] += 100 if self.wrong else 0
        return Run("Fake", options["target"], {"block_m": 32, "block_n": 32}, (2, 2, 1), 0.25, self.findings)


def fake_rung(name):
    if name != "v1":
        raise InputError(f"{name!r} is no rung; the rungs are v1.")
    return object


@pytest.fixture
def simulator(monkeypatch):
    fake = FakeSimulator()
    monkeypatch.setattr(blackwell_matmul.simulator, "simulate", fake, raising=False)
    monkeypatch.setattr(kernels, "rung", fake_rung, raising=False)
    return fake


@pytest.fixture
def command(simulator, capsys):
    def run(*argv):
        code = cli.main(argv)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return run


def test_a_right_product_is_one_line_and_exit_code_0(command):
    code, out, err = command("run", "v1", *SMALL, "--dtype", "bf16")
    assert code == 0 and err == ""
    assert out.startswith("v1  64x64x32 bf16  block_m=32,block_n=32  correct: ")
    assert out.endswith("simulated in 0.25 s on the CPU\n") and out.count("\n") == 1


def test_options_reach_the_simulator(command, simulator):
    command("run", "v1", *SMALL, "--schedule", "block_m=128, stages=3", "--seed", "7", "--target", "sm_103a")
    ((_, size, dtype, options),) = simulator.calls
    assert size == (64, 64, 32) and dtype == torch.float16
    assert options == {"schedule": {"block_m": 128, "stages": 3}, "target": "sm_103a", "seed": 7}


def test_the_defaults(command, simulator):
    command("run", "v1")
    ((_, size, dtype, options),) = simulator.calls
    assert size == (1024, 1024, 1024) and dtype == torch.float16
    assert options == {"schedule": None, "target": "sm_100a", "seed": 0}


def test_a_wrong_product_is_exit_code_1(command, simulator):
    simulator.wrong = True
    code, out, err = command("run", "v1", *SMALL)
    assert code == 1 and err == ""
    assert "wrong: 1 of 4096 elements in 1 of 4 tiles of 32x32 (tile (0, 0)), rows 0 and columns 0" in out


def test_findings_are_listed_and_errors_among_them_are_exit_code_1(command, simulator):
    simulator.findings = (RACE, RACE)
    code, out, _ = command("run", "v1", *SMALL)
    assert code == 1
    assert "with 2 errors found" in out and out.count("\n  error race: two writers. (v1.py:3)") == 2
    simulator.findings = (dataclasses.replace(RACE, severity=Severity.UNGUARANTEED),)
    assert command("run", "v1", *SMALL)[0] == 0


def test_json_is_one_object_on_one_line(command, simulator):
    simulator.findings = (RACE,)
    code, out, err = command("run", "v1", *SMALL, "--json")
    assert code == 1 and err == "" and out.count("\n") == 1
    record = json.loads(out)
    assert (record["rung"], record["ok"], record["correct"], record["simulated"]) == ("v1", False, True, True)
    assert record["findings"][0]["location"] == "v1.py:3"


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (["run", "v9"], "'v9' is no rung; the rungs are v1."),
        (["run", "v1", "--dtype", "fp64"], "dtype is 'fp64'; it must be one of fp16, bf16."),
        (["run", "v1", "--size", "0", "1", "1"], "m is 0; it must be an integer from 1 to 2147483647."),
        (["run", "v1", "--size", "1", "-5", "1"], "n is -5; it must be an integer from 1 to 2147483647."),
        (["run", "v1", "--size", "1", "1", "9" * 30], f"k is {'9' * 30}; it must be"),
        (["run", "v1", "--size", "1", "1"], "Option '--size' requires 3 arguments; see blackwell-matmul --help."),
        (["run", "v1", "--size", "1", "1", "nan"], "k of --size is 'nan'; it must be an integer."),
        (["run", "v1", "--size", "1", "1", "9" * 5000], f"k of --size is '{'9' * 100}'; it must be"),
        (["run", "v1", "--size", "2147483647", "2147483647", "1"], "GiB for A, B, C and the check; this machine has"),
        (["run", "v1", "--schedule", "block_x=1"], "schedule names 'block_x'; the knobs are block_m"),
        (["run", "v1", "--schedule", "block_m=NaN"], "schedule gives block_m the value 'NaN'"),
        (["run", "v1", "--schedule", "block_m=-128"], "schedule gives block_m the value '-128'"),
        (["run", "v1", "--schedule", "block_m=²"], "schedule gives block_m the value '²'"),
        (["run", "v1", "--seed", "-1"], "seed is -1; it must be an integer from 0 to 2**63 - 1."),
        (["run", "v1", "--seed", "x"], "--seed is 'x'; it must be an integer."),
        (["run"], "Missing argument"),
        (["run", "v1", "v2"], "unexpected extra argument"),
        (["run", "v1", "--sise", "1"], "No such option"),
        (["fly"], "No such command 'fly'"),
    ],
)
def test_bad_input_is_one_sentence_on_stderr_and_exit_code_2(command, argv, sentence):
    code, out, err = command(*argv)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and sentence in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "error, code, sentence",
    [
        (UnsupportedError("no such thing."), 2, "error: no such thing.\n"),
        (CompileError("V1 does not compile."), 2, "error: V1 does not compile.\n"),
        (SimulationError("deadlock: warp 0 waits."), 1, "error: deadlock: warp 0 waits.\n"),
        (MemoryError(), 2, "error: this machine's memory is too small for it; choose a smaller size.\n"),
        (OSError(28, "No space left on device"), 2, "error: No space left on device.\n"),
        (KeyboardInterrupt(), 130, "error: interrupted.\n"),
        (KeyError("[red]x"), 2, "error: a fault of blackwell-matmul itself, KeyError: '[red]x' (set "),
    ],
)
def test_whatever_stops_the_run_is_one_sentence(command, simulator, error, code, sentence):
    simulator.error = error
    got, out, err = command("run", "v1", *SMALL)
    assert (got, out) == (code, "") and err.startswith(sentence) and err.count("\n") == 1


def test_a_fault_of_ours_can_be_traced(command, simulator, monkeypatch):
    monkeypatch.setenv(cli.TRACEBACK_VARIABLE, "1")
    simulator.error = KeyError("x")
    with pytest.raises(KeyError):
        command("run", "v1", *SMALL)


def test_help_and_version(command):
    for argv in ([], ["--help"]):
        code, out, err = command(*argv)
        assert (code, err) == (0, "") and "run" in out
    code, out, _ = command("run", "--help")
    assert code == 0 and "blackwell-matmul run v2 --size 512 768 1000 --dtype bf16" in out
    assert command("--version")[1].startswith("blackwell-matmul ")


def test_the_spinner_waits_and_needs_a_terminal(simulator, capsys, monkeypatch):
    monkeypatch.setattr(cli, "PROGRESS_AFTER_SECONDS", 0.05)
    simulator.seconds = 0.3
    cli.main(["run", "v1", *SMALL])
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich believe in a terminal
    cli.main(["run", "v1", *SMALL])
    assert "v1 64x64x32 fp16: simulating and checking" in capsys.readouterr().err
    cli.main(["run", "v1", *SMALL, "--json"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_who_left_is_no_traceback(options):
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, "-m", "blackwell_matmul.cli", "run", "v1", "--size", "8", "8", "8", *options]
    done = subprocess.run(argv, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (2, "")


SLOW_MODULES = ("torch", "tilus", "numpy")


@pytest.mark.parametrize("argv", [["--help"], ["run", "--help"], ["--version"]])
def test_help_loads_neither_torch_nor_tilus(argv):
    code = f"import sys; from blackwell_matmul.cli import main; main({argv}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(SLOW_MODULES) & set(done.stderr.split())


def test_importing_the_package_loads_no_slow_module_and_knows_its_names():
    code = "import sys, blackwell_matmul as b; print(*sys.modules); b.Problem, b.Schedule, b.InputError, b.__version__"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {*SLOW_MODULES, "rich", "typer"} & set(done.stdout.split())


WORDS = st.one_of(
    st.sampled_from(["run", "v1", "v2", "--size", "--dtype", "--schedule", "--seed", "--target", "--json", "--help"]),
    st.sampled_from(
        ["", "-", "--", "=", "--size=1", "-1", "0", "64", "bf16", "fp16", "nan", "inf", "1e9", "block_m=1"]
    ),
    st.sampled_from(["block_m=128,stages=2", "stages=", "=,=", "９", "\udcff", "[bold]", "\x1b[2J", "9" * 400]),
    st.integers(-(2**70), 2**70).map(str),
    st.text(max_size=12),
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(WORDS, max_size=7), runs=st.booleans())
def test_no_line_of_arguments_ends_in_a_traceback(command, words, runs):
    argv = ["run", "v1", "--size", "8", "8", "8", *words] if runs else words
    code, out, err = command(*argv)
    assert code in (0, 2)
    assert (err.startswith("error: ") and out == "") if code == 2 else err == ""
    assert err.count("\n") <= 1
    assert "a fault of" not in err
