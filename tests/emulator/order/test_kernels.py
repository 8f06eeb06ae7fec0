"""Whole kernels: those of other compilers and of this one have no error but for written reasons; mutants have."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from blackwell_matmul import check_ptx, compile
from blackwell_matmul.emulator.order.ptx_findings import PtxReport
from blackwell_matmul.kernels import rung

TESTS = Path(__file__).resolve().parents[2]
FOREIGN = TESTS / "emulator" / "foreign"
sys.path[:0] = [str(TESTS.parent / "bench" / "foreign"), str(TESTS / "simulator")]

from run import argument, ptx_of, tensors_of  # noqa: E402
from tensor_core_scripts import LastMma  # noqa: E402

REASONS = {"sum_under_lock_sm90": {"data-race"}}
"""Errors with a reason: all warps load the sum that thread 0 then stores, and no barrier is between the two."""


def report_of(name: str, change: Any = lambda text: text) -> PtxReport:
    path = FOREIGN / f"{name}.json"
    record = json.loads(path.read_text())
    tensors = tensors_of(record, "exact")
    launch = {key: tuple(record[key]) for key in ("grid", "block", "cluster")}
    arguments = [argument(each, tensors) for each in record["arguments"]]
    more = {"shared_bytes": record["shared_bytes"], "kernel": record["kernel"]}
    return check_ptx(change(ptx_of(path)), *arguments, **launch, **more)


@pytest.mark.parametrize("name", sorted(path.stem for path in FOREIGN.glob("*.json")))
def test_a_foreign_kernel_has_no_error_without_a_reason(name: str) -> None:
    report = report_of(name)
    assert {each.code for each in report.errors} == REASONS.get(name, set()) and not report.stopped


def test_scales_with_columns_of_their_own_for_each_stage_rely_on_no_order() -> None:
    """The copy of scales behind the MMA that reads the same columns is not promised by PTX."""
    assert not report_of(CUTE).unpromised


@pytest.mark.parametrize("half", [-1, 0, 64])
def test_products_that_share_a_part_of_their_accumulators_rely_on_an_order(half: int) -> None:
    a = torch.ones(128, 64, dtype=torch.float16)
    report = check_ptx(compile(LastMma(half=half), a, target="sm_100a"), a)
    assert report.ok and {each.code for each in report.unpromised} == ({"order-not-promised"} if half >= 0 else set())
    assert all("tcgen05.mma" in text for each in report.unpromised for text in (each.first.text, each.second.text))


def without(pattern: str, which: int = 0) -> Any:
    """A change that leaves out the instruction that matches a pattern."""

    def change(text: str) -> str:
        found = list(re.finditer(rf"^\s*(@\S+\s+)?{pattern}[^;]*;", text, re.MULTILINE))[which]
        return text[: found.start()] + text[found.end() :]

    return change


def passing(which: int = 0) -> Any:
    """A change that makes a wait on an mbarrier pass at once."""

    def change(text: str) -> str:
        found = list(re.finditer(r"mbarrier\.try_wait\S*\s+(\S+?),[^;]*;", text))[which]
        return text[: found.start()] + f"setp.eq.u32 {found[1]}, 0, 0;" + text[found.end() :]

    return change


TCGEN05 = "tcgen05_bf16_nt_64x64x64_swizzle64_64_64x64_16x256b_w4_sm100"
WGMMA = "wgmma_f16_tn_64x64x64_swizzle64_64_n64_w4_sm90"
CUTE = "cute_nvfp4_128x128x256_s2_sm100"
MUTANTS = [
    (TCGEN05, "the wait for the load", passing(0), "read-before-complete"),
    (TCGEN05, "the wait for the product", passing(-1), "read-before-complete"),
    (TCGEN05, "the wait of tcgen05.ld", without(r"tcgen05\.wait::ld"), "read-before-complete"),
    (TCGEN05, "the commit", without(r"tcgen05\.commit"), "deadlock"),
    (TCGEN05, "the fence of the result", without(r"fence\.proxy\.async", -1), "missing-proxy-fence"),
    (WGMMA, "the wait for the products", without(r"wgmma\.wait_group"), "read-before-complete"),
    (WGMMA, "the fence of the registers", without(r"wgmma\.fence"), "missing-wgmma-fence"),
    (WGMMA, "the fence of the result", without(r"fence\.proxy\.async", -1), "missing-proxy-fence"),
    (CUTE, "the wait for the loads", passing(1), "read-before-complete"),
    (CUTE, "the wait for a free stage", passing(0), "overwritten-in-flight"),
    (CUTE, "the wait for the products", passing(2), "read-before-complete"),
    ("cluster_rows_to_columns_sm90", "the barrier of the cluster", without(r"barrier\.cluster\.wait"), "data-race"),
]


@pytest.mark.parametrize(("name", "what", "change", "code"), MUTANTS, ids=lambda each: str(each)[:24])
def test_a_mutant_has_the_finding_of_what_is_left_out(name: str, what: str, change: Any, code: str) -> None:
    assert code in {each.code for each in report_of(name, change).errors}


@pytest.mark.parametrize("name", ["v2", "v4", "v6", "h3", "h6", "h7"])
def test_the_compiled_code_of_a_rung_has_no_error(name: str) -> None:
    """Three turns of a ring, and a tail of each extent."""
    m, n, k = 137, 72, 264
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-3, 4, (rows, k), generator=generator).half() for rows in (m, n))
    c = torch.full((m, n), float("nan"), dtype=torch.float16)
    bundle = compile(rung(name), m, n, k, a, b, c)
    report = check_ptx(bundle, *bundle.ordered(m=m, n=n, k=k), a, b, c)
    assert report.ok and {each.code for each in report.unpromised} <= {"missing-wgmma-fence"}
    assert torch.equal(c, (a.double() @ b.double().T).half())
