"""A product of any form through the steps of a measurement: operands, torch's own, compiled, loaded, checked. The
emulator executes the compiled code where a GPU would."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import torch

from blackwell_matmul import runtime
from blackwell_matmul.compiler.bundle import Bundle
from blackwell_matmul.emulator import emulate
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.harness.bench import bundles, contenders, tasks
from blackwell_matmul.harness.bench.devices import Cpu
from blackwell_matmul.harness.calls.inputs import make_inputs
from blackwell_matmul.harness.verdict import check_product
from blackwell_matmul.problem.form import Epilogue, Form
from blackwell_matmul.problem.problem import Problem

SWIGLU = Form("m", "n", out="fp32", epilogue=Epilogue(bias=True, residual=True, activation="swiglu", alpha=0.5))
FORMS = [
    Problem(40, 48, 24, form=SWIGLU, batches=2),
    Problem(40, 48, 24, "bf16", Form(epilogue=Epilogue(bias=True, beta=2.0, residual=True))),
    Problem(33, 32, 64, "e4m3", Form(epilogue=Epilogue(scale="rowwise"))),
    Problem(33, 32, 64, "e4m3"),
    Problem(33, 144, 672, "e4m3", Form(epilogue=Epilogue(scale="1x128 128x128"))),
]


@pytest.mark.parametrize("problem", FORMS, ids=str)
def test_operands_and_outputs_are_those_of_the_form(problem: Problem) -> None:
    operands, (first, *_) = Cpu().operands(problem, seed=1), Cpu().sets(problem)
    assert len(operands) == (2 if problem.is_plain else 7) and len(first) == len(operands) + 1
    poisoned = Cpu().poisoned(problem)
    assert poisoned.c.shape == first[2].shape and poisoned.c.dtype == first[2].dtype
    assert poisoned.c.isnan().all() and poisoned.c.shape[-1] == problem.columns
    poisoned.c.fill_(0)
    assert poisoned.untouched_around()


@pytest.mark.parametrize("dtype", ["mxfp8", "mxfp4", "nvfp4"])
def test_block_scaled_operands_are_those_of_a_run(dtype: str) -> None:
    problem = Problem(33, 40, 96, dtype)
    operands, expected = Cpu().operands(problem, seed=1), make_inputs(problem, seed=1)[:-1]
    assert all(torch.equal(one.view(torch.uint8), other.view(torch.uint8)) for one, other in zip(operands, expected))
    assert len(operands) == 4 and Cpu().poisoned(problem).c.shape == Cpu().sets(problem)[0][4].shape == (33, 40)


def told(what: str) -> None:
    pass


@pytest.mark.parametrize("problem", FORMS[:3], ids=str)
def test_torchs_own_is_the_same_product(problem: Problem) -> None:
    """Rounded to 16 bits before the epilogue, where the epilogue is a kernel of its own."""
    a, b, *rest = Cpu().operands(problem, seed=2)
    c = Cpu().poisoned(problem).c
    made: Any = contenders.make_call(contenders.cublas(), problem, None)(a, b, c, *rest)
    assert made.shape == c.shape and made.dtype == c.dtype
    wide = [each.float() if isinstance(each, torch.Tensor) else each for each in (a, b, c, *rest)]
    exact: Any = contenders.make_call(contenders.cublas(), Problem(1, 1, 1, form=problem.form), None)(*wide)
    torch.testing.assert_close(made.float(), exact, rtol=0.02, atol=0.02)


def test_torch_gets_scales_of_blocks_with_its_strides() -> None:
    """For b[k, n]: scale_a[m, k / 128] and scale_b[k / 128, n / 128]."""
    a, b, _, _, scale_a, scale_b, _ = Cpu().operands(FORMS[4], seed=2)
    left, right = contenders.torch_block_scales("1x128 128x128", a, b, scale_a, scale_b)
    assert (left.shape, left.stride(), right.shape, right.stride()) == ((33, 6), (1, 33), (6, 2), (1, 8))
    left, right = contenders.torch_block_scales("128x128 1x128", b, a, scale_b, scale_a)
    assert (left.shape, left.stride(), right.shape, right.stride()) == ((2, 6), (8, 1), (6, 33), (33, 1))


def test_torchs_own_of_8_bits_has_scales_of_one() -> None:
    a, b = Cpu().operands(FORMS[3], seed=2)
    made: Any = contenders.make_call(contenders.cublas(), FORMS[3], None)(a, b, Cpu().poisoned(FORMS[3]).c)
    torch.testing.assert_close(made, (a.float() @ b.float().mT).bfloat16())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rung", "gpu", "problem"),
    [
        (
            "blackwell",
            "B200",
            Problem(72, 64, 40, form=Form("m", "n", epilogue=Epilogue(bias=True, activation="relu"))),
        ),
        ("hopper", "H200", Problem(72, 64, 40)),
        ("s1", "B200", Problem(72, 64, 96, "nvfp4", Form(out="fp32"))),
        ("g1", "GB10", Problem(72, 64, 96, "mxfp8")),
    ],
    ids=str,
)
def test_it_is_compiled_loaded_and_checked(
    rung: str, gpu: str, problem: Problem, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[int] = []

    def load(folder: str) -> Any:
        bundle = Bundle.load(folder)
        return lambda *arguments: executed.append(emulate(bundle, *arguments).instructions)

    monkeypatch.setattr(runtime, "load", load)
    who = contenders.kernel(rung)
    entry = bundles.compile_into(tmp_path, who, problem, GPUS[gpu])
    assert not {"form", "dtype", "c_dtype"} & set(entry["schedule"]) and entry["schedule"]["block_m"] > 0
    bundle = {**entry, "folder": str(tmp_path / entry["folder"])}
    found = tasks.check(told, asdict(who), problem.as_dict(), bundle, "cpu")
    assert (found["ok"], len(executed)) == (True, 1) and found["ratio"] <= 2


def test_what_an_epilogue_leaves_out_is_noticed() -> None:
    problem = FORMS[1]
    a, b, *rest = Cpu().operands(problem, seed=3)
    assert not check_product(problem, (a, b, a @ b.mT, *rest)).ok
