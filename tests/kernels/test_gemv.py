"""Products with one to eight rows of A or of B: right in both witnesses, clean in every order, chosen where it can."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from blackwell_matmul import Epilogue, InputError, check, compile, emulate, linear, matmul, predict, simulate
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.kernels.host.forms import ABSENT
from blackwell_matmul.kernels.host.gemv import KNOB_VALUES, gemv_schedule
from blackwell_matmul.kernels.products.gemv import Gemv
from blackwell_matmul.ops import launching
from blackwell_matmul.ops.finished import NO_TENSORS, EpilogueTensors, finished
from blackwell_matmul.ops.operand_checks import DEFAULTS, How
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul_studies import mutation

FP16, BF16, FP32 = torch.float16, torch.bfloat16, torch.float32


class Call:
    """A call on normal numbers; `epilogue` with a bias and a residual if it names them."""

    def __init__(
        self, m: int, n: int, k: int, dtype: torch.dtype, out: torch.dtype, epilogue: Epilogue, batches: int = 1
    ) -> None:
        torch.manual_seed(m * n + k)
        self.a, self.b = (torch.randn(batches, rows, k + 8).to(dtype)[..., :k] for rows in (m, n))
        self.c = torch.full((batches, m, n // epilogue.columns_of_c), float("nan"), dtype=out)
        bias = torch.randn(n).to(out) if epilogue.bias else None
        residual = torch.randn(batches, m, n).to(out) if epilogue.residual else None
        self.epilogue, self.extras = epilogue, EpilogueTensors(bias, residual)
        given = (ABSENT if each is None else each for each in self.extras)
        self.arguments = (m, n, k, self.a, self.b, self.c, *given, batches)

    def product(self, dtype: torch.dtype) -> torch.Tensor:
        extras = EpilogueTensors(*(None if each is None else each.to(dtype) for each in self.extras))
        how = self.epilogue
        return finished(self.a.to(dtype) @ self.b.to(dtype).mT, extras, how.activation, how.alpha, how.beta)

    def is_right(self) -> bool:
        """Tell whether the error is at most twice that of the same in fp32, rounded once."""
        exact = self.product(torch.float64)
        error = (self.c.double() - exact).abs().max()
        return bool(error <= 2 * (self.product(FP32).to(self.c.dtype).double() - exact).abs().max())


PLAIN, ALL = Epilogue(), Epilogue(bias=True, residual=True, activation="gelu", alpha=0.5, beta=-2.0)
SWIGLU = Epilogue(bias=True, activation="swiglu")
CASES: list[tuple[tuple[Any, ...], dict[str, int]]] = [
    ((1, 37, 520, FP16, FP16, PLAIN), {}),
    ((2, 21, 1288, BF16, FP32, PLAIN), {"rows": 4, "parts": 2, "unroll": 2}),
    ((3, 19, 264, BF16, BF16, ALL), {"rows": 8, "warps": 2, "parts": 1, "unroll": 1}),
    ((4, 9, 2056, FP16, FP16, ALL, 2), {"rows": 8, "warps": 8, "parts": 8, "unroll": 2}),
    ((23, 1, 520, BF16, BF16, ALL), {"rows": 4, "warps": 1, "parts": 1, "unroll": 4}),
    ((23, 1, 520, FP16, FP16, PLAIN), {"rows": 2, "warps": 1, "parts": 1}),
    ((70, 3, 264, FP16, FP32, Epilogue(bias=True), 3), {"rows": 16, "warps": 4, "parts": 1, "unroll": 1}),
    ((4, 4, 4096, FP16, FP16, PLAIN), {}),
    ((3, 38, 520, BF16, BF16, SWIGLU), {}),
    ((1, 144, 264, FP16, FP16, SWIGLU), {"rows": 8, "warps": 4, "parts": 2}),
    ((2, 44, 1000, FP16, FP32, SWIGLU), {"rows": 16, "warps": 4, "parts": 4}),
    ((5, 37, 520, BF16, BF16, ALL), {}),
    ((8, 44, 1032, FP16, FP32, SWIGLU), {}),
    ((50, 7, 264, FP16, FP16, PLAIN, 2), {"parts": 1}),
]


@pytest.mark.parametrize(("of_call", "pins"), CASES)
def test_it_is_right_simulated_and_compiled(of_call: tuple[Any, ...], pins: dict[str, int]) -> None:
    call, kernel = Call(*of_call), Gemv(form=of_call[5], **pins)
    run = simulate(kernel, *call.arguments)
    assert run.ok and not run.findings and call.is_right()
    call.c.fill_(float("nan"))
    bundle = compile(kernel, *call.arguments)
    names = [*Gemv.__call__.__annotations__][: len(call.arguments)]
    given = dict(zip(names, call.arguments))
    emulate(bundle, *(given.get(each.name, each.default) for each in bundle.plan.parameters))
    assert call.is_right()


@pytest.mark.parametrize("dtype", [FP16, BF16])
@pytest.mark.parametrize("few", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("swapped", [False, True])
def test_its_loads_are_wide_and_nothing_spills(dtype: torch.dtype, few: int, swapped: bool) -> None:
    m, n = (4096, few) if swapped else (few, 4096)
    a, b, c = (torch.empty(shape, dtype=dtype) for shape in ((m, 4096), (n, 4096), (m, n)))
    bundle = compile(Gemv(), m, n, 4096, a, b, c)
    assert bundle.resources.spill_bytes == bundle.resources.stack_bytes == 0
    assert bundle.plan.early_start != 0
    assert bundle.ptx.count("ld.global.v4.u32") == bundle.ptx.count("ld.global") > 0


def test_no_order_of_warps_matters() -> None:
    call = Call(3, 40, 2056, BF16, BF16, PLAIN)
    report = check(Gemv(parts=4, rows=8), *call.arguments, orders=6)
    assert report.ok, report


def test_infinity_and_nan_stay_in_their_row_and_column() -> None:
    call = Call(2, 13, 520, FP16, FP16, PLAIN)
    call.a[0, 1, 7], call.b[0, 3, 100] = float("nan"), float("inf")
    simulate(Gemv(), *call.arguments)
    finite = torch.ones(2, 13, dtype=torch.bool)
    finite[1], finite[:, 3] = False, False
    assert torch.equal(call.c[0].isfinite(), finite) and call.c[0, 0, 3].isinf() and call.c[0, 1].isnan().all()


def test_a_missing_sync_is_found(tmp_path: Path) -> None:
    source = inspect.getsource(inspect.getmodule(Gemv)).replace("        self.sync()\n", "", 1)
    broken = mutation.load(source, "Gemv", tmp_path)
    report = check(broken(parts=4), *Call(3, 40, 2056, BF16, BF16, PLAIN).arguments, orders=2)
    assert "data-race" in {finding.code for finding in report.findings}


def test_its_time_is_that_of_memory() -> None:
    a, b, c = (torch.empty(shape, dtype=BF16) for shape in ((1, 4096), (8192, 4096), (1, 8192)))
    assert 8192 * 4096 * 2 / 4.8e6 < predict(Gemv(), 1, 8192, 4096, a, b, c, gpu="H200").time_us < 40


@pytest.mark.parametrize("gpu", ["H200", "B200", "RTX 5090"])
@pytest.mark.parametrize("many", [1, 64, 1000, 4096, 151936])
@pytest.mark.parametrize("k", [256, 1000, 4096, 65536])
def test_a_schedule_is_chosen(gpu: str, many: int, k: int) -> None:
    for few in range(1, 9):
        chosen = gemv_schedule(Problem(few, many, k), GPUS[gpu])
        assert set(chosen.values()) <= set(KNOB_VALUES) and chosen["parts"] <= chosen["warps"]
        assert chosen == gemv_schedule(Problem(many, few, k), GPUS[gpu])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rows": 3}, "rows is 3; it must be one of 1, 2, 4, 8, 16."),
        ({"warps": 2, "parts": 4}, "parts is 4 and warps 2; the parts of k are warps of one CTA."),
        ({"rows": 2}, "rows is 2; a mma.sync of 3x64x2048 fp16 has 8 rows of the matrix, the least."),
    ],
)
def test_what_is_refused(changed: dict[str, Any], said: str) -> None:
    a, b, c = (torch.zeros(shape, dtype=FP16) for shape in ((3, 2048), (64, 2048), (3, 64)))
    with pytest.raises(InputError, match=said):
        simulate(Gemv(**changed), 3, 64, 2048, a, b, c)


def kernel_of(a: torch.Tensor, b: torch.Tensor, gpu: str = "H200", how: How = DEFAULTS, **more: Any) -> str:
    plan = launching.planned(a, b, NO_TENSORS, GPUS[gpu], more.get("out", a.dtype), how)
    assert plan is not None
    return str(plan.launches.kernel.script_cls.__name__)


def meta(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


@pytest.mark.parametrize("gpu", ["H200", "RTX 5090"])
@pytest.mark.parametrize(("m", "n"), [(1, 64), (4, 24), (64, 1), (30, 4), (1, 1)])
def test_operations_take_it_for_few_rows(gpu: str, m: int, n: int) -> None:
    assert kernel_of(meta(m, 512), meta(n, 512).T, gpu) == "Gemv"
    assert kernel_of(meta(3, m, 512), meta(3, n, 512).mT, gpu) == "Gemv"


@pytest.mark.parametrize(("m", "n", "k"), [(8, 4096, 4096), (20000, 8, 1024), (6, 8192, 2048)])
def test_up_to_eight_rows_of_a_hopper_if_the_other_operand_is_in_its_l2(m: int, n: int, k: int) -> None:
    """bench/results/h200_eight_vectors.json has the times."""
    assert kernel_of(meta(m, k), meta(n, k).T) == "Gemv"
    assert kernel_of(meta(m, k), meta(n, k).T, "RTX 5090") != "Gemv"
    assert kernel_of(meta(m, 8 * k), meta(n, 8 * k).T) == "HopperMatmul"


def test_operations_take_the_others_elsewhere() -> None:
    one, w = meta(1, 512), meta(64, 512)
    assert kernel_of(meta(5, 512), w.T) == "HopperMatmul"
    assert kernel_of(one, w.T, "B200") == "BlackwellFewRows", "measured on no B200"
    assert kernel_of(one, meta(512, 64)) == "HopperMatmul", "contiguous along n"
    assert kernel_of(one[:, :500], w[:, :500].T) == "HopperMatmul", "k no multiple of 8"
    assert kernel_of(one[:, :128], w[:, :128].T) == "HopperMatmul", "a short k"
    assert kernel_of(w, one.expand(2, 512).contiguous().T, how=How(activation="swiglu")) == "HopperMatmul"
    assert kernel_of(one, w.T, how=How(batch_invariant=True)) == "HopperMatmul", "one order of sums for each M"


@pytest.mark.parametrize(("m", "n"), [(2, 37), (37, 3)])
def test_operations_are_right_by_it(monkeypatch: pytest.MonkeyPatch, m: int, n: int) -> None:
    monkeypatch.setattr(launching, "DEFAULT_TARGET", "sm_90a")  # that is simulated
    call = Call(m, n, 520, BF16, BF16, Epilogue(bias=True))
    call.c = linear(call.a[0], call.b[0], call.extras.bias, simulate=True)[None]
    assert call.is_right()
    call = Call(m, n, 520, FP16, FP16, PLAIN, batches=3)
    call.c = matmul(call.a, call.b.mT, simulate=True)
    assert call.c.is_contiguous() and call.is_right()


@pytest.mark.parametrize("size", ["1 512 512", "512 2 512"])
@pytest.mark.parametrize("command", ["run", "check", "predict", "compile"])
def test_commands_take_it_by_its_name(command_line: Any, command: str, size: str) -> None:
    code, out, _ = command_line(command, "gemv", "--size", *size.split(), "--target", "H100")
    assert code == 0 and "gemv" in out.lower()


def test_commands_refuse_it_for_other_products(command_line: Any) -> None:
    for command in ("run", "compile"):
        code, _, error = command_line(command, "gemv", "--size", "9", "512", "512", "--target", "H100")
        assert code == 2 and "neither operand has 8 rows at most" in error
    code, _, error = command_line("schedules", "gemv", "--size", "1", "512", "512", "--target", "H100")
    assert code == 2 and "no knobs of the space" in error
