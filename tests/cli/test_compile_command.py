"""`blackwell-matmul compile`: what it prints and writes, and how it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from blackwell_matmul import cli
from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.compiler import Bundle, sass

pytest.importorskip("cuda.bindings.nvrtc")

SCRIPT = """
import torch, tilus
from tilus import float32, int32
from tilus.utils import cdiv

class Twice(tilus.Script):
    def __call__(self, n: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = cdiv(n, 128)
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[n])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[n])
        x = self.load_global(g_x, offsets=[self.blockIdx.x * 128], shape=[128])
        self.store_global(g_y, x + x, offsets=[self.blockIdx.x * 128])

def example_args(m=4, n=5, k=6):
    return m, torch.zeros(m), torch.zeros(m)
"""


@pytest.mark.slow
def test_a_form_serves_sizes_and_not_pointers(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compile", "blackwell", "--size", "256", "256", "256", "--epilogue", "gelu"]) == 0
    assert "any m, n, k and batches with n a multiple of 8." in capsys.readouterr().out


def test_a_rung(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert cli.main(["compile", "v1", "--size", "512", "512", "256", "-o", str(out)]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("BlackwellMatmulV1 for sm_100a, ")
    assert "any m with n = 512 and k = 256." in told.out
    assert "no spills" in told.out and "limited by shared memory" in told.out
    assert re.search(r"^  starts +when the kernel before it has ended$", told.out, re.MULTILINE)
    bundle = Bundle.load(out)
    assert bundle.consts == {"n": 512, "k": 256}
    assert bundle.plan.evaluate([512, 16, 32, 48]).grid[0] == 4
    assert told.err == ""


def test_a_timeline(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["compile", "h2", "--size", "128", "64", "128", "--check", "-o", str(tmp_path / "out")]
    assert cli.main([*words, "--timeline", "256"]) == 0
    told = capsys.readouterr().out
    assert "writes      up to 256 records of each warp, into a last argument\n" in told and "correct" in told
    marks = Bundle.load(tmp_path / "out").marks
    assert marks is not None and (marks.events, marks.warps) == (256, 4) and marks.marks[0][1].startswith("v2.py:")
    for records, why in (("0", "timeline is 0; it must be"), ("x", "--timeline is 'x'; it must be an integer.")):
        assert cli.main([*words, "--timeline", records]) == 2
        assert why in capsys.readouterr().err


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compile", "v2", "--dtype", "bf16", "--schedule", "stages=3", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["schedule"]["stages"] == 3 and record["schedule"]["dtype"] == "bfloat16"
    assert record["resources"]["registers"] > 0 and record["timeline"] is None
    assert record["plan"]["kernel"] == "tilus_blackwell_matmul_v2_kernel"


def test_a_script_of_the_users(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "my_kernel.py"
    file.write_text(SCRIPT)
    assert cli.main(["compile", f"{file}:Twice", "--target", "sm_90a", "-o", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().out
    assert "Twice for sm_90a" in told
    assert re.search(r"^  starts +while the kernel before it ends$", told, re.MULTILINE)
    assert cli.main(["compile", "h4", "--target", "sm_90a", "--size", "64", "256", "512"]) == 0
    assert re.search(r"^  starts +while the kernel before it ends, where", capsys.readouterr().out, re.MULTILINE)
    assert "my_kernel.py:10" in (tmp_path / "out" / "kernel.cu").read_text()


REFERENCE = """
def example_args(n=300):
    return n, torch.arange(float(n)), torch.zeros(n)

def reference(n, x_ptr, y_ptr):
    return {{"y_ptr": {what}}}
"""


@pytest.mark.parametrize(("what", "code", "says"), [("x_ptr * 2", 0, "correct"), ("x_ptr * 3", 1, "wrong: 299 of 300")])
def test_a_script_with_a_reference_is_checked(
    what: str, code: int, says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, out = tmp_path / "my_kernel.py", tmp_path / "out"
    file.write_text(SCRIPT + REFERENCE.format(what=what))
    assert cli.main(["compile", f"{file}:Twice", "--check", "-o", str(out)]) == code
    assert says in capsys.readouterr().out and out.exists() is (code == 0)


def test_what_nothing_says_the_result_of_is_not_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "my_kernel.py"
    file.write_text(SCRIPT)
    assert cli.main(["compile", f"{file}:Twice", "--check"]) == 2
    assert "give its file a reference(...)" in capsys.readouterr().err


@pytest.mark.process
def test_sass(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        sass._nvdisasm()
    except UnsupportedError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("COLUMNS", "80")
    for name, opcodes in {
        "v2": ("UTMALDG.2D", "UTMASTG.2D", "UTCHMMA", "UTCBAR", "SYNCS"),
        "h6 --schedule cluster_m=2": ("UTMALDG.2D.MULTICAST", "HGMMA", "UCGABAR_ARV", "PREEXIT", "ACQBULK"),
    }.items():
        assert cli.main(["compile", *name.split(), "--sass"]) == 0
        lines = capsys.readouterr().out.splitlines()
        for opcode in opcodes:
            (line, *_) = [line for line in lines if line.startswith(opcode)]
            assert f"{name[:2].replace('h', 'v')}.py:" in line


def test_sass_without_a_disassembler(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise UnsupportedError("Showing SASS needs nvdisasm.")

    monkeypatch.setattr(sass, "_nvdisasm", missing)
    assert cli.main(["compile", "v1", "--sass"]) == 2
    assert capsys.readouterr().err == "error: Showing SASS needs nvdisasm.\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["v9"], "rung is 'v9'"),
        (["v1", "--target", "sm_1"], "target is 'sm_1'"),
        (["v2", "--target", "sm_90a"], "no tcgen05"),
        (["v1", "--size", "100", "100", "100"], "TMA needs a multiple of 16"),
        (["v1", "--schedule", "block_m=7"], "block_m"),
        (["v1", "--dtype", "fp12"], "dtype"),
        (["nowhere.py:K"], "cannot read 'nowhere.py'"),
        (["v1", "-o", "/dev/null/out"], "cannot write the bundle"),
    ],
)
def test_bad_input(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compile", *arguments]) == 2
    out = capsys.readouterr()
    assert text in out.err and out.err.count("\n") == 1
    assert out.out == ""
