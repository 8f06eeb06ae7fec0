"""print_tensor, printf and assume."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from clean import clean, only
from scripts_control import Prints, Promise

from blackwell_matmul.simulator import simulate
from blackwell_matmul.simulator.semantics.debug import python_format


def test_prints(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.from_numpy(np.random.default_rng(0).integers(-9, 9, (2, 64))).float() / 8
    run = clean(Prints(), 21, x)
    first, tensor, shared = run.printed
    assert "CTA (1, 0, 0), warp 0" in first
    assert "scripts_control.py:" in first
    assert first.endswith("] n = 21, 42,  0.12, %")
    head, *rows = tensor.split("\n")
    assert head.endswith("] x: float32[2, 64]")
    assert rows[0] == "[[" + ", ".join(f"{v:6.3f}" for v in x[0].tolist()) + "]"
    assert rows[1] == " [" + ", ".join(f"{v:6.3f}" for v in x[1].tolist()) + "]]"
    assert shared.split("\n")[1] == "[[" + ", ".join(f"{v:.1f}" for v in x[0].tolist()) + "]"
    assert capsys.readouterr().out == "".join(f"{text}\n" for text in run.printed)


@pytest.mark.parametrize(
    ("text", "values", "want"),
    [
        ("%d %5d|%-4d|", (1, 2, 3), "1     2|3   |"),
        ("%u %lu %llu %hhd", (1, 2, 3, 4), "1 2 3 4"),
        ("0x%x %08lX", (255, 171), "0xff 000000AB"),
        ("%p", (4096,), "0x1000"),
        ("%6.2f %e", (1.5, 2.0), "  1.50 2.000000e+00"),
        ("100%%", (), "100%"),
    ],
)
def test_formats_of_c(text: str, values: tuple[object, ...], want: str) -> None:
    assert python_format(text) % values == want


def test_a_promise_that_holds() -> None:
    y = torch.zeros(32, dtype=torch.int32)
    clean(Promise(), 48, y)
    assert torch.equal(y, torch.full((32,), 48, dtype=torch.int32))


def test_a_broken_promise() -> None:
    finding = only(simulate(Promise(), 40, torch.zeros(32, dtype=torch.int32)), "assumption-false")
    assert "n = 40" in finding.message
    assert finding.location is not None
    with open(finding.location.file) as file:
        assert "self.assume(n % 16 == 0)" in file.read().splitlines()[finding.location.line - 1]
