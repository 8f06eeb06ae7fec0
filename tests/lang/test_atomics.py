"""Counters that all CTAs share."""

from __future__ import annotations

import pytest
import torch
from counting_script import Numbered

from blackwell_matmul import CompileError, UnsupportedError, check, compile, emulate, predict, simulate

CTAS, COUNT = 3, 40


def test_each_number_is_taken_once_and_the_counter_is_zero_again() -> None:
    taken = torch.zeros(COUNT, dtype=torch.int32)
    report = simulate(Numbered, CTAS, COUNT, taken)
    assert report.ok and not report.findings
    assert taken.unique().tolist() == [1, 2, 3]


def test_no_order_of_the_ctas_finds_a_fault() -> None:
    assert check(Numbered, CTAS, COUNT, torch.zeros(COUNT, dtype=torch.int32)).ok


def test_a_counter_that_is_not_zero_at_the_end_is_told() -> None:
    (finding,) = simulate(Numbered, CTAS, COUNT, torch.zeros(COUNT, dtype=torch.int32), schedule={"last": 1}).findings
    assert finding.code == "workspace-left-dirty" and "leaves 43 in g_counter[1]" in finding.message


def test_the_emulator_counts_as_the_simulator() -> None:
    taken = torch.zeros(COUNT, dtype=torch.int32)
    bundle = compile(Numbered, CTAS, COUNT, taken)
    assert bundle.ptx.count("atom.relaxed.gpu.inc.u32") == 1
    emulate(bundle, CTAS, COUNT, taken)
    assert set(taken.tolist()) <= {1, 2, 3} and taken.all()


def test_the_time_of_a_count_is_not_predicted() -> None:
    with pytest.raises(UnsupportedError, match=r"The time of atomic\.inc at .*counting_script\.py:\d+ is not known"):
        predict(Numbered, CTAS, COUNT, torch.zeros(COUNT, dtype=torch.int32))


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
        compile(Numbered(**knobs), CTAS, COUNT, torch.zeros(COUNT, dtype=torch.int32))
