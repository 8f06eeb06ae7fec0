"""Registers that a warpgroup gives to others."""

from __future__ import annotations

import pytest
import torch
from max_registers_script import Giving

from blackwell_matmul import CompileError, check, compile, emulate, predict, simulate


def arguments() -> tuple[int, torch.Tensor]:
    return 2, torch.zeros(2, dtype=torch.int32)


def test_warpgroups_take_what_another_gives() -> None:
    called = arguments()
    assert not simulate(Giving, *called).findings and called[1].tolist() == [1, 2]
    assert check(Giving, *arguments()).ok, "in any order"


def test_the_kernel_compiles_with_all_registers_and_runs_in_the_emulator() -> None:
    called = arguments()
    bundle = compile(Giving, *called)
    assert bundle.ptx.count("setmaxnreg.dec.sync.aligned.u32 24") == 1
    assert bundle.ptx.count("setmaxnreg.inc.sync.aligned.u32 240") == 2
    assert bundle.resources.registers == 168, "of 384 threads, as the simulator assumes"
    emulate(bundle, *called)
    assert called[1].tolist() == [1, 2]


def test_an_sm_holds_one_cta_with_all_its_registers() -> None:
    """ptxas and the prediction agree."""
    assert compile(Giving, *arguments()).resources.ctas_per_sm == 1
    assert predict(Giving, *arguments(), target="H200").resident == 1


def test_a_pool_with_too_few_registers_is_a_deadlock() -> None:
    (finding,) = simulate(Giving(takes=248), *arguments()).findings
    assert finding.code == "deadlock" and "for 2048 registers for setmaxnreg.inc(248)" in finding.message


def test_a_count_in_the_wrong_direction_is_told() -> None:
    found = simulate(Giving(exchanged=True), *arguments()).findings
    assert found[0].code == "register-count"
    assert "setmaxnreg.inc(24) in threads that have 168 registers; use dec" in found[0].message


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"warps": 2}, r"setmaxnreg\.dec is executed by whole warpgroups of 128 threads; here are 64"),
        ({"keeps": 30}, r"setmaxnreg\.dec takes a multiple of 8 from 24 to 256, and count is 30"),
        ({"keeps": True}, r"setmaxnreg\.dec takes a multiple of 8 from 24 to 256, and count is True"),
    ],
)
def test_a_misuse_is_one_sentence_at_its_statement(knobs: dict[str, object], sentence: str) -> None:
    with pytest.raises(CompileError, match=sentence + r".*max_registers_script\.py:\d+\)\.$"):
        compile(Giving(**knobs), *arguments())
