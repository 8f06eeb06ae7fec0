"""Tiles that CTAs take as they come have the bits of the fixed order, and each edge of the queue is needed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from blackwell_matmul import HopperMatmul, InputError, compile, emulate, simulate
from blackwell_matmul.kernels.parts import tile_order
from blackwell_matmul.kernels.products import hopper
from blackwell_matmul.problem.form import Epilogue

SIZES = 512, 640, 192
ALONE = {"cluster_m": 1, "cluster_n": 1, "neighbours": 1, "sm_count": 3}
NEIGHBOURS = {**ALONE, "neighbours": 2, "sm_count": 4}
PAIRS = {"cluster_m": 2, "cluster_n": 1, "neighbours": 1, "sm_count": 4}
RECTANGLES = {"cluster_m": 2, "cluster_n": 2, "neighbours": 1, "sm_count": 8}
OTHERS = {"block_m": 128, "block_n": 128, "consumers": 2, "split_k": 1, "swap_ab": 0, "stages": 2}


def arguments() -> tuple[Any, ...]:
    torch.manual_seed(0)
    m, n, k = SIZES
    a, b = (torch.randn(rows, k).to(torch.bfloat16) for rows in (m, n))
    return m, n, k, a, b, torch.zeros(m, n, dtype=torch.bfloat16)


def simulated(**knobs: Any) -> tuple[Any, torch.Tensor]:
    called = arguments()
    return simulate(HopperMatmul(**OTHERS, **knobs), *called, policy="eager"), called[-1]


def emulated(**knobs: Any) -> torch.Tensor:
    called = arguments()
    bundle = compile(HopperMatmul(**OTHERS, **knobs), *called, target="sm_90a")
    assert all(workspace.kept for workspace in bundle.plan.workspaces), "zeros are there for the next launch"
    emulate(bundle, *called)
    return called[-1]


@pytest.mark.parametrize("knobs", [ALONE, PAIRS], ids=["alone", "pairs"])
def test_a_queue_has_the_bits_of_the_fixed_order(knobs: dict[str, int]) -> None:
    assert torch.equal(emulated(**knobs, queue=1), emulated(**knobs))


@pytest.mark.parametrize("knobs", [ALONE, NEIGHBOURS, PAIRS, RECTANGLES], ids=["alone", "neighbours", "pairs", "2x2"])
def test_a_queue_is_clean_and_right(knobs: dict[str, int]) -> None:
    run, c = simulated(**knobs, queue=1)
    _, _, _, a, b, _ = arguments()
    assert not run.findings
    torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=2**-8, atol=1e-3)


def test_a_queue_with_fewer_tiles_than_ctas_has_nothing_to_give() -> None:
    run, c = simulated(**ALONE | {"sm_count": 64}, queue=1)
    assert not run.findings
    torch.testing.assert_close(c, simulated(**ALONE)[1])


def test_scales_of_blocks_follow_the_order_along_k() -> None:
    m, n, k = 128, 256, 384
    torch.manual_seed(0)
    a, b = (torch.randn(rows, k).to(torch.float8_e4m3fn) for rows in (m, n))
    scale_a, scale_b = torch.rand(k // 128, m), torch.rand(n // 128, 4)  # rows of 16 bytes
    c = torch.empty(m, n, dtype=torch.bfloat16)
    form = Epilogue(scale="1x128 128x128")
    kernel = HopperMatmul(form=form, **OTHERS | ALONE | {"block_m": 64, "consumers": 1, "sm_count": 1}, queue=1)
    assert not simulate(kernel, m, n, k, a, b, c, 0, 0, scale_a, scale_b, 1).findings
    whole_a = a.double() * scale_a.T.double().repeat_interleave(128, 1)
    whole_b = b.double() * scale_b[:, :3].double().repeat_interleave(128, 0).repeat_interleave(128, 1)
    torch.testing.assert_close(c.double(), whole_a @ whole_b.T, rtol=2**-8, atol=1e-5)


def test_any_other_value_is_refused() -> None:
    with pytest.raises(InputError, match="queue is 2; it must be 0, or 1 for tiles as they come"):
        simulated(**ALONE, queue=2)


PLANTED = [
    ("self.sync()  # every thread has read the number", "", "data-race"),
    ("            self.number.wait_empty()\n", "", "data-race"),
    ("        self.number.wait_full()\n", "", "data-race"),
    ("            self.passed.wait_full()\n", "", "data-race"),
    ('empties=ctas - 1, scope="cluster"', "empties=ctas - 1", "relaxed-wait"),
    ("empties=readers + 1", "empties=readers", "data-race"),
    (
        "            self.passed.wait_empty()\n            self.assign",
        "            self.assign",
        "data-race",
    ),
    ("                self.passed.wait_empty()\n                r_zero", "                r_zero", "data-race"),
    ("last=count - 1)", "last=count)", "workspace-left-dirty"),
]


@pytest.mark.parametrize(("line", "changed", "code"), PLANTED, ids=[line.strip()[:40] for line, *_ in PLANTED])
def test_a_queue_with_a_fault_is_told(
    line: str, changed: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, _, rest = Path(tile_order.__file__).read_text(encoding="utf-8").partition("class FixedOrder")
    _, name, queue = rest.partition("class TileQueue")
    assert line in queue
    file = tmp_path / "changed_tile_order.py"
    base = "from blackwell_matmul.kernels.parts.tile_order import FixedOrder\n"
    file.write_text(before + base + name + queue.replace(line, changed), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(hopper, "TileQueue", module.TileQueue)
    run, _ = simulated(**PAIRS, queue=1)
    assert code in {finding.code for finding in run.findings}
