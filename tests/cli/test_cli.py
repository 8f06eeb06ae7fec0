"""The command line: what it prints where, its exit codes, and that no line of arguments ends in a traceback."""

import dataclasses
import inspect
import io
import json
import os
import re
import subprocess
import sys
import time
import warnings
from contextlib import redirect_stdout
from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.models import OptionInfo

import blackwell_matmul.simulator
from blackwell_matmul import cli, kernels
from blackwell_matmul.base.errors import CompileError, InputError, SimulationError, UnsupportedError
from blackwell_matmul.cli.views import terminal
from blackwell_matmul.frontend.program import Location
from blackwell_matmul.problem.problem import BITS, Schedule
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
        for done in (3, 8):
            if options["progress"]:
                options["progress"](done, 8)
            time.sleep(self.seconds)
        torch.matmul(a, b.T, out=c)
        c[0, 0] += 100 if self.wrong else 0
        return Run("Fake", options["target"], {"block_m": 32, "block_n": 32}, (2, 2, 1), 0.25, self.findings)


class FakeRung:
    knobs = Schedule.knob_names()


def fake_rung(name):
    if name != "v1":
        raise InputError(f"{name!r} is no rung; the rungs are v1.")
    return FakeRung


@pytest.fixture
def simulator(monkeypatch):
    fake = FakeSimulator()
    monkeypatch.setattr(blackwell_matmul.simulator, "simulate", fake, raising=False)
    monkeypatch.setattr(kernels, "rung", fake_rung, raising=False)
    return fake


@pytest.fixture
def command(simulator, command_line):
    return command_line


def test_a_right_product_is_one_line_and_exit_code_0(command):
    code, out, err = command("run", "v1", *SMALL, "--dtype", "bf16")
    assert code == 0 and err == ""
    assert out.startswith("Fake  64x64x32 bf16  block_m=32,block_n=32  correct: ")
    assert out.endswith("simulated in 0.25 s on the CPU\n") and out.count("\n") == 1


def test_options_reach_the_simulator(command, simulator):
    command("run", "v1", *SMALL, "--schedule", "block_m=128, stages=3", "--seed", "7", "--target", "sm_103a")
    ((_, size, dtype, options),) = simulator.calls
    assert size == (64, 64, 32) and dtype == torch.float16
    others = {"policy": "adversarial", "workers": None, "progress": None}
    assert options == {"schedule": {"block_m": 128, "stages": 3}, "target": "sm_103a", "seed": 7, **others}
    command("run", "v1", *SMALL, "--policy", "eager", "--workers", "3")
    assert (simulator.calls[1][3]["policy"], simulator.calls[1][3]["workers"]) == ("eager", 3)


def test_the_defaults(command, simulator):
    command("run", "v1")
    ((_, size, dtype, options),) = simulator.calls
    assert size == (1024, 1024, 1024) and dtype == torch.float16
    assert (options["schedule"], options["target"], options["seed"]) == (None, None, 0)


def test_a_wrong_product_is_exit_code_1(command, simulator):
    simulator.wrong = True
    code, out, err = command("run", "v1", *SMALL)
    assert code == 1 and err == ""
    assert "wrong: 1 of 4096 elements in 1 of 4 tiles of 32x32 (tile (0, 0)), rows 0 and columns 0" in out


def test_findings_are_listed_and_errors_among_them_are_exit_code_1(command, simulator):
    simulator.findings = (RACE, RACE)
    code, out, _ = command("run", "v1", *SMALL)
    assert code == 1
    assert "with 2 errors found" in out and out.count("  error race\n    two writers.\n    v1.py:3\n") == 2
    simulator.findings = (dataclasses.replace(RACE, severity=Severity.UNGUARANTEED),)
    assert command("run", "v1", *SMALL)[0] == 0


def test_json_is_one_object_on_one_line(command, simulator):
    simulator.findings = (RACE,)
    code, out, err = command("run", "v1", *SMALL, "--json")
    assert code == 1 and err == "" and out.count("\n") == 1
    record = json.loads(out)
    assert (record["kernel"], record["rung"], record["simulated"]) == ("Fake", "v1", True)
    assert (record["ok"], record["correct"]) == (False, True)
    assert record["findings"][0]["location"] == "v1.py:3"


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (["run", "v9"], "rung is 'v9'; the rungs are v0, v1, v2, "),
        (["run", "v1", "--target", "B100"], "target is 'B100'; it must be a GPU (B200, "),
        (["run", "v1", "--policy", "lazy"], "policy is 'lazy'; it must be one of adversarial, eager, random."),
        (["check", "v1", "--orders", "0"], "--orders is 0; it must be an integer from 1 to 10000."),
        (["run", "v1", "--dtype", "fp64"], f"dtype is 'fp64'; it must be one of {', '.join(BITS)}."),
        (["run", "v1", "--size", "0", "1", "1"], "m is 0; it must be an integer from 1 to 2147483647."),
        (["run", "v1", "--size", "1", "-5", "1"], "n is -5; it must be an integer from 1 to 2147483647."),
        (["run", "v1", "--size", "1", "1", "9" * 30], f"k is {'9' * 30}; it must be"),
        (["check"], "Missing argument 'KERNEL'; see blackwell-matmul check --help."),
        (["run", "v1", "--size", "1", "1"], "Option '--size' requires 3 arguments; see blackwell-matmul --help."),
        (["run", "v1", "--size", "1", "1", "nan"], "k of --size is 'nan'; it must be an integer."),
        (["run", "v1", "--size", "1", "1", "9" * 5000], f"k of --size is '{'9' * 100}'; it must be"),
        (["run", "v1", "--size", "2147483647", "2147483647", "1"], "GiB, with the simulator's copies and the check"),
        (["run", "v1", "--schedule", "block_x=1"], "schedule names 'block_x'; the knobs are block_m"),
        (["run", "v1", "--schedule", ","], "schedule is ',', which names no knob; one is block_m=128."),
        (["run", "hopper", "--epilogue", ","], "epilogue is ',', which names nothing; the words are bias, residual, "),
        (["run", "v1", "--schedule", "block_m=NaN"], "schedule gives block_m the value 'NaN'"),
        (["run", "v1", "--schedule", "block_m=-128"], "schedule gives block_m the value '-128'"),
        (["run", "v1", "--schedule", "block_m=²"], "schedule gives block_m the value '²'"),
        (["run", "v1", "--seed", "-1"], "seed is -1; it must be an integer from 0 to 2**63 - 1."),
        (["run", "v1", "--seed", "x"], "--seed is 'x'; it must be an integer."),
        (["run", "v1", "--workers", "x"], "--workers is 'x'; it must be an integer."),
        (["run", "v1", "--workers", "0"], "--workers is 0; it must be an integer from 1 to 1024."),
        (["check", "v1", "--workers", "1025"], "--workers is 1025; it must be an integer from 1 to 1024."),
        (["compile", "v2", "-o", ""], "-o is ''; it must be a folder"),
        (
            ["run", "mine.txt:X"],
            "g1, blackwell, hopper, few, gemv; a script of your own is given as my_kernel.py:MyScript.",
        ),
        (["run", "/tmp"], "g1, blackwell, hopper, few, gemv; a script of your own is given as my_kernel.py:MyScript."),
        (["run", "none.py:X"], "cannot read 'none.py': there is no such file."),
        (["schedules", "v1", "--gpu", "B100"], "gpu is 'B100'; it must be a GPU (B200, GB200, B300"),
        (["schedules", "v1", "--target", "sm_1"], "target is 'sm_1'; it must be a GPU (B200, "),
        (["schedules", "v1", "--target", "sm_100a", "--gpu", "B200"], "give one of the two."),
        (["schedules", "v1", "--size", "1", "x", "1"], "n of --size is 'x'; it must be an integer."),
        (["schedules", "x.py"], "cannot read 'x.py': there is no such file."),
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


def test_a_warning_is_one_line_without_the_code_that_gives_it(capsys):
    shown = warnings.showwarning
    with terminal.plain_warnings():
        warnings.simplefilter("always")
        warnings.warn("kernels are not kept in /ro:\n Read-only file system.", RuntimeWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: kernels are not kept in /ro: Read-only file system.\n"
    assert warnings.showwarning is shown


def test_options_whose_placeholder_is_their_name_spell_it() -> None:
    """typer 0.27 calls an option --SUITE when its metavar is SUITE and nothing else is said."""
    for command in cli.app.registered_commands:
        for name, parameter in inspect.signature(command.callback, eval_str=True).parameters.items():
            for option in getattr(parameter.annotation, "__metadata__", ()):
                shared = getattr(option, "metavar", None) == name.upper() and isinstance(option, OptionInfo)
                assert not shared or f"--{name}" in (option.default, *option.param_decls), (command.callback, name)


def test_every_type_that_a_rung_takes_is_named(command):
    for name in ("run", "check", "compile", "predict", "trace", "tune", "schedules"):
        assert "fp16|bf16|e4m3|e5m2" in command(name, "--help")[1]


def test_no_help_names_a_type_of_python(command):
    """Nor beside the options that typer adds: --install-completion and --help."""
    for name in ("", *(each.name or each.callback.__name__ for each in cli.app.registered_commands)):
        out = command(*filter(None, (name, "--help")))[1]
        assert "--help " in out and "<" not in out, name
    assert "--install-completion" in command("--help")[1]


def test_help_and_version(command):
    for argv in ([], ["--help"]):
        code, out, err = command(*argv)
        assert (code, err) == (0, "") and "run" in out and "blackwell-matmul schedules v2" in out
    code, out, _ = command("schedules", "--help")
    assert code == 0 and "blackwell-matmul schedules v1 --size 512 512 100 --json" in out
    code, out, _ = command("run", "--help")
    assert code == 0 and "blackwell-matmul run v2 --size 512 768 1000 --dtype bf16" in out
    assert command("--version")[1].startswith("blackwell-matmul ")


def test_the_spinner_waits_and_needs_a_terminal(simulator, capsys, monkeypatch):
    monkeypatch.setattr(terminal, "PROGRESS_AFTER_SECONDS", 0.05)
    simulator.seconds = 0.3
    cli.main(["run", "v1", *SMALL])
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich believe in a terminal
    cli.main(["run", "v1", *SMALL])
    err = capsys.readouterr().err
    assert "v1 64x64x32 fp16: 3 of 8 CTAs simulated" in err and "v1 64x64x32 fp16: checking" in err
    cli.main(["run", "v1", *SMALL, "--json"])
    assert capsys.readouterr().err == ""


def test_long_work_is_told_by_a_line_without_a_terminal(simulator, capsys, monkeypatch):
    monkeypatch.setattr(terminal, "LINE_AFTER_SECONDS", 0.05)
    simulator.seconds = 0.3
    cli.main(["run", "v1", *SMALL])
    assert capsys.readouterr().err == "v1 64x64x32 fp16: at work for 0 s, and not done yet\n"
    cli.main(["run", "v1", *SMALL, "--json"])
    assert capsys.readouterr().err == ""


COMMAND = (sys.executable, "-m", "blackwell_matmul")


@pytest.fixture
def left():
    """A pipe whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stdout:
        yield stdout


@pytest.mark.parametrize("argv", [["run", "v1", *SMALL], ["--help"], ["run", "--help"], ["--version"], []])
def test_a_reader_who_left_is_no_traceback(argv, left, simulator, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", left)
    assert cli.main(argv) == 2
    left.flush()  # nothing is left for the end of the process
    assert capsys.readouterr().err == ""


@pytest.mark.process
@pytest.mark.parametrize("argv", [["run", "--help"], ["--version"]])
def test_a_process_whose_reader_left_says_nothing(argv, left):
    done = subprocess.run([*COMMAND, *argv], stdout=left, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (2, b"")


FULL = "/dev/full"
"""A device that takes nothing, as a full disk."""

WITHOUT_FULL = pytest.mark.skipif(not os.path.exists(FULL), reason="has no device that is always full")


@WITHOUT_FULL
@pytest.mark.parametrize("argv", [["run", "v1", *SMALL], ["run", "v1", *SMALL, "--json"], ["--help"], ["--version"]])
def test_a_full_disk_is_one_sentence_and_no_verdict(argv, simulator, monkeypatch, capsys):
    with open(FULL, "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert cli.main(argv) == 2
        full.flush()  # nothing is left for the end of the process
    err = capsys.readouterr().err
    assert "No space left on device" in err and err.startswith("error: ") and err.count("\n") == 1


@pytest.mark.process
@WITHOUT_FULL
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_an_error_that_nobody_can_be_told_keeps_its_exit_code(more):
    for out in (FULL, os.devnull):
        with open(FULL, "w") as full, open(out, "w") as stdout:
            done = subprocess.run([*COMMAND, "run", "v9", *more], stdout=stdout, stderr=full)
        assert done.returncode == 2


@pytest.mark.process
def test_a_closed_stdout_is_refused_before_anything_runs():
    closed = partial(os.close, 1)
    done = subprocess.run([*COMMAND, "run", "v1", "--json"], stderr=subprocess.PIPE, text=True, preexec_fn=closed)
    assert done.returncode == 2 and done.stderr.startswith("error: stdout is closed,")


@pytest.mark.parametrize(("argv", "lost"), [(["run", "--help"], "v0?v6"), (["run", "v9\u2013"], "")])
def test_a_terminal_of_ascii_gets_question_marks(argv, lost, monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    err = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    cli.main(argv)
    out.flush(), err.flush()
    assert b"fault of" not in err.buffer.getvalue()
    assert out.buffer.getvalue().isascii() and lost.encode() in out.buffer.getvalue()


@pytest.mark.parametrize(
    "argv, code", [(["run", "v9"], 2), (["check", "v1", "--size", "0", "1", "1"], 2), (["fly"], 2), (["run", "v1"], 1)]
)
def test_with_json_an_error_is_an_object_on_stdout_too(command, simulator, argv, code):
    simulator.error = SimulationError("deadlock: warp 0 waits.")
    got, out, err = command(*argv, "--json")
    assert got == code and out.count("\n") == 1
    assert f"error: {json.loads(out)['error']}\n" == err


def test_a_gpu_is_given_by_name_or_by_target(command, simulator):
    for named in ("B300", "b300", "sm_103a"):
        command("run", "v1", *SMALL, "--target", named)
    assert {options["target"] for *_, options in simulator.calls} == {"sm_103a"}


SLOW_MODULES = ("torch", "tilus", "numpy")

REFUSED = """
fly
run v9
run v1 --sise 1
run v1 --policy x
run v1 --seed -1
run v1 --size 0 0 0
run v1 --schedule block_x=1
run v1 --workers 0
run x.py:Y
check v9
check v1 --target x
check v1 --orders 0
check v1 --schedule stages=x
compile v9
compile v1 --dtype x
compile v1 --size a 1 1
schedules v9
schedules v1 --gpu B100
schedules v1 --target sm_1
tune v9
tune v1 --size 0 1 1
verify x
bench --suite x
bench --rungs v9
bench --dtype x
bench --rounds 0
bench --compile-only --target x
"""


@pytest.mark.process
def test_what_can_be_refused_is_without_torch_and_tilus():
    code = (
        "import sys; from blackwell_matmul.cli import main\n"
        f"for line in {REFUSED.strip()!r}.splitlines():\n"
        f"    assert main(line.split()) == 2 and not {set(SLOW_MODULES)} & set(sys.modules), line"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("error: ") == len(REFUSED.split("\n")) - 2


@pytest.mark.process
def test_help_loads_no_slow_module():
    """Of all commands, one after the other in a fresh process."""
    lines = [
        ["--version"],
        ["--help"],
        *([each.name or each.callback.__name__, "--help"] for each in cli.app.registered_commands),
    ]
    code = f"import sys; from blackwell_matmul.cli import main; print([main(each) for each in {lines}], *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    codes, *modules = done.stdout.splitlines()[-1].rpartition("] ")[::2]
    assert set(codes) <= set("[0, ") and "blackwell_matmul.cli" in modules[0].split()
    assert not {*SLOW_MODULES, "numpy", "cuda", "matplotlib"} & set(modules[0].split())


@pytest.mark.process
def test_importing_the_package_loads_no_slow_module_and_knows_its_names():
    code = "import sys, blackwell_matmul as b; print(*sys.modules); b.Problem, b.Schedule, b.InputError, b.__version__"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {*SLOW_MODULES, "rich", "typer"} & set(done.stdout.split())


WORDS = st.one_of(
    st.sampled_from(["run", "v1", "v2", "--size", "--dtype", "--schedule", "--seed", "--target", "--json", "--help"]),
    st.sampled_from(
        ["schedules", "--gpu", "--all", "--policy", "--workers", "x.py", "x.py:Y", ".py:", "B200", "eager"]
    ),
    st.sampled_from(
        ["", "-", "--", "=", "--size=1", "-1", "0", "64", "bf16", "fp16", "nan", "inf", "1e9", "block_m=1"]
    ),
    st.sampled_from(["block_m=128,stages=2", "stages=", "=,=", "９", "\udcff", "[bold]", "\x1b[2J", "9" * 400]),
    st.integers(-(2**70), 2**70).map(str),
    st.text(max_size=12),
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(WORDS, max_size=7), runs=st.booleans())
def test_no_line_of_arguments_ends_in_a_traceback(command, words, runs):
    argv = ["run", "v1", "--size", "8", "8", "8", *words] if runs else words
    code, out, err = command(*argv)
    assert code in (0, 2)
    assert err.startswith("error: ") if code == 2 else err == ""
    options = argv[: argv.index("--")] if "--" in argv else argv  # what follows is no option
    assert code != 2 or (list(json.loads(out)) == ["error"] if "--json" in options else out == "")
    assert err.count("\n") <= 1
    assert "a fault of" not in err


# --- schedules


@pytest.fixture
def listed(capsys):
    """The real kernels: listing schedules simulates nothing."""

    def run(*argv):
        code = cli.main(["schedules", *argv])
        out, err = capsys.readouterr()
        assert err == ""
        return code, out

    return run


def test_schedules_lists_all_and_marks_the_chosen_one(listed):
    code, out = listed("v2", "--size", "4096", "4096", "4096")
    rows = [line.split() for line in out.splitlines()]
    assert code == 0 and "435 can run" in out
    assert "BlackwellMatmulV2  4096x4096x4096 fp16 on B200 (sm_100a): 720 schedules" in out
    assert rows[6] == [">", "128", "256", "64", "64", "2", "512", "114820", "256", "218360"]
    assert "and 411 more, with more predicted cycles; --all lists them" in out
    assert "> chosen: block_m=128,block_n=256,block_k=64,e_block_n=64,stages=2" in out
    assert "512 tiles of C for 148 SMs, 4 tiles at most for each; 218360 cycles predicted, and at least" in out
    _, every = listed("v2", "--size", "4096", "4096", "4096", "--all")
    cycles = [int(line.split()[-1]) for line in every.splitlines() if re.match(r"[> ] +128 ", line)]
    assert len(cycles) == 720 and all(this < 1.01 * after for this, after in pairwise(cycles[:435]))


def test_rejected_schedules_share_rows_and_reasons_and_all_gives_each_its_own(listed):
    _, out = listed("v2", "--size", "4096", "4096", "4096")
    assert "92 cannot run" in out and "B 64..256x64 and the rest take 233604..606340 bytes and a CTA on sm_100a" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["128", "192", "64", "16,32,64", "6..12", "249988..508036", "256"] in rows
    _, every = listed("v2", "--size", "4096", "4096", "4096", "--all")
    assert ["128", "256", "64", "32", "6", "303236", "256"] in [line.split() for line in every.splitlines()]


@pytest.mark.parametrize("argv", [["--gpu", "h100"], ["--target", "sm_120a"], ["--size", "8", "8", "9"]])
def test_when_none_can_run_the_exit_code_is_1(listed, argv):
    code, out = listed("v1", *argv)
    assert code == 1 and "54 cannot run" in out and "> chosen: none\n  No schedule can run it.\n" in out


def test_schedules_as_json_has_every_row_with_its_reasons(listed):
    code, out = listed("v2", "--size", "4096", "4096", "4096", "--json")
    record = json.loads(out)
    assert code == 0 and out.count("\n") == 1
    assert list(record) == [
        *("kernel", "rung", "m", "n", "k", "dtype", "gpu", "target", "count", "runnable", "chosen", "rule", "why"),
        "schedules",
    ]
    assert (record["count"], record["runnable"], len(record["schedules"])) == (720, 435, 720)
    assert sum(row["chosen"] for row in record["schedules"]) == 1
    assert all(row["ok"] == (not row["reasons"]) for row in record["schedules"])


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "check", "schedules", "compile"])
def test_every_record_begins_with_the_class_and_the_rung(capsys, tmp_path, command):
    file = tmp_path / "my_kernel.py"
    file.write_text("from blackwell_matmul import BlackwellMatmulV1\n\n\nclass Mine(BlackwellMatmulV1):\n    pass\n")
    for asked, named in (("V1", ["BlackwellMatmulV1", "v1"]), (f"{file}:Mine", ["Mine", None])):
        assert cli.main([command, asked, *SMALL, "--json"]) == 0
        record = json.loads(capsys.readouterr().out)
        assert list(record)[:2] == ["kernel", "rung"] and [record["kernel"], record["rung"]] == named


@pytest.mark.slow
def test_a_form_is_said_in_words_and_named_in_the_result(capsys):
    words = ["--layout", "nt", "--epilogue", "bias,gelu", "--batch", "2"]
    assert cli.main(["run", "blackwell", *SMALL, *words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["batches"] == 2 and (record["form"]["a_major"], record["form"]["b_major"]) == ("m", "n")
    assert record["form"]["epilogue"]["activation"] == "gelu" and record["form"]["epilogue"]["bias"]
    assert cli.main(["compile", "hopper", *SMALL, "--epilogue", "scaled,silu", "--out", "fp32", "--check"]) == 0
    assert "out=fp32, tensor scales silu, correct" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["schedules", "v6", *SMALL, "--layout", "nn"]) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["blackwell", "--layout", "nn", "--dtype", "e4m3"],
            "which is read contiguous along k alone; give --layout tn.",
        ),
        (["blackwell", "--layout", "kk"], "--layout is 'kk'; it must be one of tn, nn, tt, nt."),
        (
            ["blackwell", "--epilogue", "gely"],
            "epilogue names 'gely'; the words are bias, residual, scaled, scaled_rows, scaled_blocks, relu",
        ),
        (["blackwell", "--epilogue", "relu,gelu"], "epilogue names a second activation, gelu; give one."),
        (["blackwell", "--alpha", "x"], "--alpha is 'x'; it must be a number."),
        (["blackwell", "--alpha", "inf"], "alpha is inf; it must be a finite number"),
        (["blackwell", "--epilogue", "residual", "--beta", "nan"], "beta is nan; it must be a finite number"),
        (["blackwell", "--beta", "2"], "--beta is '2', for a residual, and there is none; add --epilogue residual."),
        (["blackwell", "--batch", "0"], "--batch is 0; it must be an integer from 1"),
        (["blackwell", "--out", "e4m3"], "--out is 'e4m3'; it must be one of fp16, bf16, fp32."),
        (
            ["h2", "--batch", "2"],
            "HopperMatmulV2 computes one product of K-major matrices, without 2 batches; blackwell and hopper",
        ),
    ],
)
def test_words_that_are_no_form_are_one_sentence(capsys, words, sentence):
    assert cli.main(["run", *words]) == 2
    text = " ".join(capsys.readouterr().err.split())
    assert sentence in text and text.count("error:") == 1


WIDEST = ["h7", "--size", "16384", "16384", "16384"]


@pytest.mark.slow
@pytest.mark.parametrize("argv", [["v0", "--size", "1", "1", "1"], ["v2", "--size", "8", "100000", "12"], WIDEST])
def test_no_line_of_schedules_is_wider_than_a_terminal(monkeypatch, listed, argv):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    code, out = listed(*argv)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in out.splitlines()]
    assert code in (0, 1) and "\x1b[" in out and max(map(len, lines)) <= 80 and "…" not in out
    cut = [i for i, line in enumerate(lines) if re.fullmatch(r" *[0-9]+( +[0-9]+){0,3} *", line)]
    assert all(lines[i - 1].rstrip().endswith("..") for i in cut), "a number is broken"


def test_a_schedule_goes_on_below_after_a_comma(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    pins = "block_m=128,block_n=256,block_k=64,stages=4"
    assert terminal.broken(f"V  1x1x1  {pins}").splitlines() == [
        "V  1x1x1  block_m=128,block_n=256,",
        "block_k=64,stages=4",
    ]
    monkeypatch.delenv("FORCE_COLOR")
    assert terminal.broken(pins * 9) == pins * 9


def test_the_result_goes_to_stdout_after_progress_that_was_seen(monkeypatch, capsys):
    """The bar starts while stdout is sent to stderr, as `compile` does."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(terminal, "PROGRESS_AFTER_SECONDS", 0.05)
    with terminal.progress("v1", quiet=False), redirect_stdout(sys.stderr):
        time.sleep(0.3)
    print("the result")
    out, err = capsys.readouterr()
    assert out == "the result\n" and "compiling" in err
