"""Registers that nothing has written: found where memory, a scalar or a product depends on them, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import unwritten_scripts
from clean import clean, only
from orders import ORDERS, line_of, lines, run_in
from tilus import float16, float32, int8, int32
from unwritten_scripts import Elements, Matmul, Rows, Scalar, Viewed, Wgmma

from blackwell_matmul import check, cli
from blackwell_matmul.simulator import Finding, simulate

CODE = "uninitialised-read"


def operands(dtype: torch.dtype = torch.float16, m: int = 64, n: int = 64, k: int = 128) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-3, 4, (rows, k), generator=generator).to(dtype) for rows in (m, n))
    return [m, n, k, a, b, torch.zeros(m, n, dtype=dtype if dtype.is_floating_point else torch.int32)]


# accumulators


@pytest.mark.parametrize(
    "types, dtype, zero", [((float16, float32), torch.float16, "0.0"), ((int8, int32), torch.int8, "0")], ids=str
)
def test_an_accumulator_of_mma(types: tuple[Any, Any], dtype: torch.dtype, zero: str) -> None:
    """Also where the product of integers only is wrong. Each warp of the four CTAs says it, once."""
    found = only(simulate(Matmul(*types), *operands(dtype), workers=1), CODE)
    made, used = line_of(Matmul, "# made"), line_of(Matmul, "# used")
    assert lines(found) == (used, made) and found.count == 8
    assert (found.tensor, found.box, found.agents) == ("acc", ((0, 32), (0, 16)), ("warp 0",))
    assert found.message.startswith(
        "dot by warp 0 reads acc[0:32, 0:16], of which nothing has written 16 of 16 elements"
    )
    assert found.message.endswith(found.advice) and found.advice.startswith(f"give acc init={zero} at {found.other}")


def test_a_cleared_accumulator() -> None:
    m, n, k, a, b, c = operands()
    clean(Matmul(cleared=True), m, n, k, a, b, c)
    assert torch.equal(c, (a.float() @ b.float().T).half())


def test_an_accumulator_of_wgmma() -> None:
    """Of two mma the first is told of, by each of the four warps."""
    a, b, d = np.ones((64, 64), np.float16), np.ones((32, 64), np.float16), np.zeros((64, 32), np.float32)
    for order in ORDERS[:3]:
        found = only(run_in(order, Wgmma(), a, b, d, target="sm_90a"), CODE)
        assert lines(found) == (line_of(Wgmma, "# used"), line_of(Wgmma, "# made")) and found.count == 4
        assert "16 of 16 elements a lane" in found.message


def test_check_finds_it() -> None:
    report = check(Matmul, *operands(), orders=2)
    assert not report.ok and [(f.code, f.seeds) for f in report.findings] == [(CODE, (0, 1))]
    assert "==> give acc init=0.0 at line " in str(report)


def test_the_commands_say_it(capsys: pytest.CaptureFixture[str]) -> None:
    """`check` by its exit code, and `run` beside what is wrong."""
    kernel = [f"{Path(unwritten_scripts.__file__)}:Matmul", "--size", "32", "32", "64"]
    assert cli.main(["check", *kernel]) == 1
    assert "\nerror uninitialised-read\n  dot by warp 0 reads acc[0:32, 0:16], of which" in capsys.readouterr().out
    assert cli.main(["run", *kernel]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "wrong: 1024 of 1024 elements" in out and "with 1 error found" in out
    assert "error uninitialised-read" in out and "give acc init=0.0 at" in out


def test_values_alone_are_not_followed() -> None:
    run = simulate(Matmul(), *operands(), workers=1, checks=False)
    assert run.findings == ()


# elements


def elements(case: str, n: int) -> tuple[tuple[Finding, ...], torch.Tensor, torch.Tensor]:
    """Findings, x and y. Columns from n on are not written where the case goes by columns."""
    x, y = torch.arange(1.0, 129.0).reshape(32, 4), torch.zeros(32, 4)
    return simulate(Elements(case), n, x, y, workers=1).findings, x, y


WRITTEN: dict[str, tuple[int, Any]] = {
    "assigned": (0, lambda x: x),
    "assigned in one branch": (4, lambda x: x),
    "assigned from the second turn on": (3, lambda x: 3 * x),
    "columns": (4, lambda x: x),
    "columns, and the others are replaced": (2, lambda x: x),
    "the result of an instruction": (0, lambda x: 2 * x),
    "made again in each turn": (1, lambda x: x),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_what_is_written_after_all(case: str) -> None:
    n, expected = WRITTEN[case]
    findings, x, y = elements(case, n)
    assert findings == () and torch.equal(y, expected(x))


def test_what_is_not_stored() -> None:
    """The two columns that lie outside of the tensor, and were never written."""
    findings, x, y = elements("columns, and the others are not stored", 2)
    assert findings == () and torch.equal(y.view(-1)[:64].view(32, 2), 2 * x[:, :2])


UNWRITTEN: dict[str, tuple[int, int, str]] = {
    "added to": (2, 0, "nothing has written 4 of 4 elements a lane"),
    "assigned in one branch": (3, 0, "nothing has written 4 of 4 elements a lane"),
    "columns": (3, 3, "nothing has written 1 of 4 elements a lane"),
    "columns, one copied from another": (1, 1, "nothing has written 3 of 4 elements a lane"),
    "the others are taken": (2, 2, "nothing has written 2 of 4 elements a lane"),
    "made again in each turn": (2, 0, "4 of 4 elements a lane come from registers of z that nothing has written since"),
    "moved about": (0, 0, "nothing has written 4 of 4 elements a lane"),
}


@pytest.mark.parametrize("case", UNWRITTEN)
def test_what_is_not(case: str) -> None:
    n, first, words = UNWRITTEN[case]
    findings, _, _ = elements(case, n)
    assert [f.code for f in findings] == [CODE]
    made = "# in the loop" if "come from" in words else "# made"
    assert lines(findings[0]) == (line_of(Elements, "# used"), line_of(Elements, made))
    assert findings[0].box == ((0, 32), (first, 4)) and words in findings[0].message


def test_lanes_that_differ() -> None:
    found = only(simulate(Rows(), torch.zeros(32, 1), workers=1), CODE)
    assert found.box == ((16, 32), (0, 1)) and "16 of 32 elements of the warp" in found.message


# other names, and scalars


@pytest.mark.parametrize(
    "case, tensor, box",
    [
        ("", "x", ((0, 32), (0, 2))),
        ("written in part", "x", ((0, 32), (1, 2))),
        ("as nibbles", "wide", ((0, 32), (0, 16))),
    ],
)
def test_a_view_of_unwritten_registers(case: str, tensor: str, box: tuple[Any, ...]) -> None:
    found = only(simulate(Viewed(case), torch.zeros(128, dtype=torch.int32), workers=1), CODE)
    assert (found.tensor, found.box) == (tensor, box)
    assert found.other is not None and found.other.line == line_of(Viewed, "# made")


@pytest.mark.parametrize("case", ["written through the view", "written, and read through the view"])
def test_a_view_shares_what_is_written(case: str) -> None:
    y = torch.zeros(64, dtype=torch.int32)
    clean(Viewed(case), y)
    assert (y.view(torch.float16) == 1).all()


def test_a_scalar() -> None:
    found = only(simulate(Scalar(), torch.zeros(1, dtype=torch.int32), workers=1), CODE)
    assert lines(found) == (line_of(Scalar, "# used"), line_of(Scalar, "# made"))
    assert found.message.startswith("item() by warp 0 reads x[0], of which 1 of 1 elements a lane come from registers")
