"""`blackwell-matmul check`: exit codes, what it prints where, JSON, and bad input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from test_testing import REFERENCE, SCALE, written

from blackwell_matmul import SimulationError
from blackwell_matmul.harness import checking
from blackwell_matmul.harness.calls.kernel_call import resolve
from blackwell_matmul.kernels import NAMES
from blackwell_matmul.simulator import text as texts

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(command_line: Command) -> Command:
    return partial(command_line, "check")


@pytest.fixture
def scale(tmp_path: Path) -> str:
    return written(tmp_path, SCALE + REFERENCE)


def test_a_clean_rung_is_exit_code_0(command: Command) -> None:
    code, out, err = command("v1", "--size", "130", "72", "96", "--orders", "2", "--schedule", "block_n=64")
    assert (code, err) == (0, "")
    assert out.startswith("BlackwellMatmulV1  sm_100a  ") and "\nclean in 2 orders (seeds 0 to 1)" in out


def test_findings_are_exit_code_1_with_the_command_that_replays_them(command: Command, scale: str) -> None:
    code, out, err = command(f"{scale}:Scale", "--schedule", "wait=false", "--orders", "3", "--seed", "4")
    assert (code, err) == (1, "")
    assert f"replay: blackwell-matmul check {scale}:Scale --schedule wait=false --seed 4\n" in out
    assert "\nerror read-before-complete\n" in out and "3 of 3 orders" in out


def test_the_replay_command_shows_the_finding_again(command: Command, scale: str) -> None:
    _, out, _ = command(scale, "--schedule", "wait=false", "--orders", "2", "--seed", "9")
    line = next(line for line in out.splitlines() if "replay:" in line)
    code, again, _ = command(*line.split("blackwell-matmul check ")[1].split())
    assert code == 1 and "error read-before-complete" in again


def test_values_are_not_its_business(command: Command, scale: str) -> None:
    assert command(scale, "--schedule", "factor=3.0")[0] == 0


def test_strict_turns_what_nothing_guarantees_into_findings(command: Command, tmp_path: Path) -> None:
    """A copy that nobody uses and nobody waits for."""
    lonely = SCALE.replace(
        "self.load_shared(s_x) * self.factor", "self.load_global(g_x, offsets=[0, 0], shape=[32, 64])"
    )
    file = written(tmp_path, lonely)
    assert command(file, "--schedule", "wait=false")[0] == 0
    code, out, _ = command(file, "--schedule", "wait=false", "--strict")
    assert code == 1 and "unguaranteed in-flight-at-exit" in out and "1 unguaranteed (counted: strict)" in out


def test_a_tensor_of_another_shape_than_its_view_is_told(command: Command, tmp_path: Path) -> None:
    file = written(tmp_path, SCALE.replace("torch.randn(32, 64)", "torch.randn(64, 32)"))
    shape = "x_ptr has shape [64, 32]; the kernel takes it as [32, 64]"
    code, out, _ = command(file)
    assert code == 0 and f"\n  tensors:      {shape}\n" in out
    assert json.loads(command(file, "--json")[1])["disagreements"] == [shape, shape.replace("x_ptr", "y_ptr")]
    assert "tensors:" not in command("blackwell", "--size", "64", "64", "64", "--layout", "nn")[1]


def test_json_is_one_object_on_one_line(command: Command, scale: str) -> None:
    code, out, err = command(scale, "--schedule", "wait=false", "--json")
    record = json.loads(out)
    assert code == 1 and err == "" and out.count("\n") == 1
    assert list(record) == [
        *("kernel", "rung", "target", "schedule", "grid", "orders", "seed", "strict", "ok", "seconds", "findings"),
        *("disagreements", "coverage"),
    ]
    assert record["findings"][0]["missing"] == "wait" and record["ok"] is False


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (["v9"], f"rung is 'v9'; the rungs are {', '.join(NAMES)}."),
        (["none.py:X"], "cannot read 'none.py': there is no such file."),
        (["v1", "--orders", "0"], "orders is 0; it must be an integer from 1 to 10000."),
        (["v1", "--orders", "x"], "--orders is 'x'; it must be an integer."),
        (["v1", "--seed", "-1"], "seed is -1; it must be an integer from 0 to 2**63 - 1."),
        (["v1", "--size", "8", "8", "x"], "k of --size is 'x'; it must be an integer."),
        (["v1", "--size", "8", "8", "9"], "pad K to 16."),
        (["v1", "--schedule", "block_x=1"], "block_x"),
        (["v1", "--target", "sm_90a"], "sm_90a"),
        (["v1", "--policy", "eager"], "No such option"),
        ([], "Missing argument"),
    ],
)
def test_what_cannot_run_is_one_sentence_and_exit_code_2(command: Command, argv: list[str], sentence: str) -> None:
    code, out, err = command(*argv)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1
    assert sentence in err


def test_a_kernel_that_the_simulator_cannot_finish_could_not_run(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise SimulationError("V1 cannot go on at v1.py:3: ValueError: x.")

    monkeypatch.setattr(checking, "check_call", fail)
    assert command("v1") == (2, "", "error: V1 cannot go on at v1.py:3: ValueError: x.\n")


def test_help_has_examples_and_says_what_run_is_for(command: Command) -> None:
    code, out, _ = command("--help")
    assert code == 0 and "blackwell-matmul check v1 --size 256 256 256" in out
    assert "run compares the values" in " ".join(out.split())


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_gets_lines_of_its_width(
    command: Command, scale: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = command(scale, "--schedule", "wait=false")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in out.splitlines()]
    assert code == 1 and "\x1b[" in out and max(map(len, lines)) <= columns
    assert any("==> missing wait: " in line for line in lines)


def test_one_layout_for_a_terminal_and_for_text(command: Command, scale: str) -> None:
    _, out, _ = command(scale, "--schedule", "wait=false")
    report = checking.check_call(resolve(scale, schedule="wait=false", seed=checking.INPUT_SEED))
    same = texts.plain(
        report.paragraphs(lambda seed: f"blackwell-matmul check {scale} --schedule wait=false --seed {seed}")
    )
    hide = re.compile(r"simulated in .*")
    assert hide.sub("", out.rstrip("\n")) == hide.sub("", same)


EXCHANGE = """
.version 8.7
.target sm_90a
.address_size 64
.entry exchange(.param .u64 out)
.reqntid 64
{
.reg .b32 %r<9>;
.shared .align 4 .b8 words[256];
mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; xor.b32 %r2, %r1, 128; mov.u32 %r3, words;
add.s32 %r4, %r3, %r1; add.s32 %r5, %r3, %r2;
st.shared.b32 [%r4], %r0; BARRIER
ld.shared.b32 %r6, [%r5];
ret;
}
"""


def test_a_file_of_ptx_is_checked(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "exchange.ptx"
    file.write_text(EXCHANGE.replace("BARRIER", ""))
    code, out, err = command(str(file), "--arg", "u32[64]")
    assert (code, err) == (1, "") and out.startswith("error data-race: lane 0 of warp ") and "PTX line 12" in out
    code, out, _ = command(str(file), "--arg", "u32[64]", "--json")
    assert code == 1 and [each["code"] for each in json.loads(out)["findings"]] == ["data-race"]
    file.write_text(EXCHANGE.replace("BARRIER", "bar.sync 0;"))
    assert command(str(file), "--arg", "null") == (
        0,
        "exchange (sm_90a): errors: 0, unpromised: 0; orders: eager\n",
        "",
    )


def test_arguments_that_say_no_launch_are_exit_code_2(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "exchange.ptx"
    file.write_text(EXCHANGE.replace("BARRIER", ""))
    code, _, err = command(str(file), "--arg", "f17[64]")
    assert code == 2 and "--arg is 'f17[64]'; it takes a tensor such as f16[256,64]" in err
    code, _, err = command(str(file))
    assert code == 2 and "takes 1 parameters" in err
    code, _, err = command(str(file), "--block", "2048")
    assert code == 2 and "a block of (2048, 1, 1) has 2048 threads; a CTA has at most 1024" in err
    code, _, err = command(str(file), "--shared", "-1")
    assert code == 2 and "-1 bytes of shared memory; a CTA has from 0 to 232,448" in err
    code, _, err = command("v1", "--grid", "2")
    assert code == 2 and "are for a file of PTX or a bundle" in err
    code, _, err = command(str(tmp_path / "absent.ptx"))
    assert code == 2 and "cannot read" in err
