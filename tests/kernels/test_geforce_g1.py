"""G1's synchronisation and scales: each line without which it is wrong, taken out."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path
from typing import Any

import pytest

from blackwell_matmul import predict, schedules, simulate
from blackwell_matmul.harness.calls.inputs import arguments_of
from blackwell_matmul.harness.verdict import check_product
from blackwell_matmul.kernels import rung
from blackwell_matmul.problem.problem import Problem

PROBLEM = Problem(100, 128, 800, "nvfp4")
SCHEDULE = {"block_n": 64, "block_k": 128, "e_block_n": 32, "stages": 2}
DROP = "pass"

FAULTS: dict[str, tuple[str, str, int, str]] = {
    "not waited for": ("self.mbarrier.wait(tma_barrier, phase=tma_phase)", DROP, 0, "read-before-complete"),
    "one phase for all laps": ("tma_phase ^= stage == 0", DROP, 0, "wrong-phase"),
    "refilled while others read": ("self.sync()", DROP, 1, "data-race"),
    "refilled through the other proxy": ('self.fence.proxy_async(space="shared")', DROP, 0, "missing-proxy-fence"),
    "stored before it is written": ("self.sync()", DROP, 2, "data-race"),
    "stored through the other proxy": ('self.fence.proxy_async(space="shared")', DROP, 1, "missing-proxy-fence"),
    "scales not announced": (" + scales.nbytes", "", 0, "too-few-bytes"),
    "scales not loaded again": ("scales.load(stage, offset_m, offset_n, next_k, tma_barrier)", DROP, 0, "deadlock"),
    "scales of the rows before": (", first_row=offset_n % 128", "", 0, "values"),
    "scales of B for A": ("load_scales(scales.s_a[stage]", "load_scales(scales.s_b[stage]", 0, "values"),
    "more loads than k-tiles": ("min(self.stages, cdiv(k, self.block_k))", "8", 0, "out-of-bounds"),
}


def edited(old: str, new: str, nth: int, folder: Path) -> Any:
    """Return the class with the nth place that has `old` changed, from a file of its own."""
    head = Path(inspect.getfile(rung("g1"))).read_text(encoding="utf-8").split(old)
    text = old.join(head[: nth + 1]) + new + old.join(head[nth + 1 :])
    file = folder / "faulty.py"
    file.write_text(text, encoding="utf-8")
    return runpy.run_path(str(file))["GeforceMatmulG1"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_name(fault: str, tmp_path: Path) -> None:
    *change, code = FAULTS[fault]
    arguments: Any = arguments_of(PROBLEM, 0)
    ran = simulate(edited(*change, tmp_path), *arguments, schedule=SCHEDULE, workers=1)  # type: ignore[arg-type]
    found = {each.code for each in ran.findings}
    assert code in found or (code == "values" and not found and not check_product(PROBLEM, arguments[3:]).ok), found


def test_what_is_not_edited_is_right() -> None:
    arguments: Any = arguments_of(PROBLEM, 0)
    assert simulate(rung("g1"), *arguments, schedule=SCHEDULE, workers=1).ok
    assert check_product(PROBLEM, arguments[3:]).ok


@pytest.mark.slow
def test_4_bits_are_predicted_to_be_twice_as_fast_as_8() -> None:
    """In a product that the tensor cores bound; both take 32 bytes of k at a time."""
    found = {
        dtype: predict("g1", 4096, 4096, 4096, dtype=dtype, gpu="RTX 5090", explained=False)
        for dtype in ("mxfp8", "nvfp4")
    }
    ratio = found["mxfp8"].time_us / found["nvfp4"].time_us
    assert 1.7 < ratio < 2.1 and 700 < 2 * 4096**3 / found["nvfp4"].time_us / 1e6 < 1676


def test_hopper_and_the_data_center_have_other_instructions() -> None:
    for gpu in ("H200", "B200"):
        reasons = schedules("g1", 256, 256, 256, dtype="nvfp4", target=gpu).rows[0].reasons
        assert any("has no mma.sync.block_scale instructions; RTX 5090 and GB10 have them" in each for each in reasons)
