"""Counters that all CTAs share."""

from __future__ import annotations

import pytest
import torch
from counting_script import Numbered, NumberedByCaller

from blackwell_matmul import CompileError, UnsupportedError, check, compile, emulate, predict, simulate

CTAS, COUNT = 3, 40


def arguments() -> tuple[int, int, torch.Tensor]:
    """Return the arguments of a call: the CTAs, the numbers, and who took each number."""
    return CTAS, COUNT, torch.zeros(COUNT, dtype=torch.int32)


def test_each_number_is_taken_once_and_the_counter_is_zero_again() -> None:
    called = arguments()
    assert not simulate(Numbered, *called).findings and called[2].unique().tolist() == [1, 2, 3]


def test_ctas_that_share_a_counter_of_the_caller_run_together() -> None:
    called, counter = arguments(), torch.zeros(1, dtype=torch.int32)
    assert not simulate(NumberedByCaller, *called, counter, workers=2).findings
    assert called[2].unique().tolist() == [1, 2, 3] and not counter.any()


def test_no_order_of_the_ctas_finds_a_fault() -> None:
    assert check(Numbered, *arguments()).ok


def test_a_counter_that_is_not_zero_at_the_end_is_told() -> None:
    (finding,) = simulate(Numbered(last=1), *arguments()).findings
    assert finding.code == "workspace-left-dirty" and "leaves 43 in g_counter[1]" in finding.message


def test_the_emulator_counts_as_the_simulator() -> None:
    called = arguments()
    bundle = compile(Numbered, *called)
    assert bundle.ptx.count("atom.relaxed.gpu.inc.u32") == 1
    (workspace,) = bundle.plan.workspaces
    assert workspace.clear and not workspace.kept, "a script may leave other numbers"
    emulate(bundle, *called)
    assert set(called[2].tolist()) <= {1, 2, 3} and called[2].all()


def test_the_time_of_a_count_is_not_predicted() -> None:
    told = r"no predicted time: CTAs of all SMs count by atomic\.inc \(.*counting_script\.py:\d+\) and one SM is timed"
    with pytest.raises(UnsupportedError, match=told):
        predict(Numbered, *arguments())


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"wide": True}, r"counter of atomic\.inc is the address of an int32 in global memory"),
        ({"whole": True}, r"counter of atomic\.inc is the address of an int32 in global memory"),
        ({"warps": 2}, r"atomic\.inc is executed by one warp, in self\.single_warp\(\); here are 64 threads"),
    ],
)
def test_a_misuse_is_one_sentence_at_its_statement(knobs: dict[str, object], sentence: str) -> None:
    with pytest.raises(CompileError, match=sentence + r".*counting_script\.py:\d+\)\.$"):
        compile(Numbered(**knobs), *arguments())
