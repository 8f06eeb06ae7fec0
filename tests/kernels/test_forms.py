"""The products in every form: right, clean, the same in two orders, and the same as compiled."""

from __future__ import annotations

import random
from itertools import islice, pairwise
from typing import Any

import pytest
import torch

pytest.importorskip("tilus")

from blackwell_matmul import BlackwellMatmul, Epilogue, HopperMatmul, InputError, check, compile, emulate, simulate
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.harness import check_matmul
from blackwell_matmul.kernels.host.forms import lines_of, why_unreadable
from blackwell_matmul.kernels.host.matmul import share_memory
from blackwell_matmul.ops.finished import EpilogueTensors, finished
from blackwell_matmul.problem.form import ACTIVATIONS, Form
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.scheduling.space import projection

RUNGS = [(BlackwellMatmul, GPUS["B200"]), (HopperMatmul, GPUS["H200"])]
DTYPES = [torch.float16, torch.bfloat16]
CASES = range(3)


class Case:
    """A drawn form, schedule and size, with its tensors."""

    def __init__(self, rung: Any, gpu: Any, number: int) -> None:
        draw = random.Random(f"{rung.__name__} {number}")
        torch.manual_seed(number)
        self.rung, self.gpu, dtype = rung, gpu, draw.choice(DTYPES)
        m, n, k = draw.choice([(200, 144, 136), (72, 272, 72), (128, 128, 64), (264, 80, 200)])
        self.batches = draw.choice([1, 1, 2, 3])
        activation = draw.choice(ACTIVATIONS)
        self.epilogue = Epilogue(activation=activation, alpha=draw.choice([1.0, 0.5]), beta=draw.choice([1.0, -2.0]))
        self.a, self.b = self.operand(m, k, dtype, draw), self.operand(n, k, dtype, draw)
        out = draw.choice([dtype, torch.float32])
        columns = n // self.epilogue.columns_of_c
        self.c = torch.full((self.batches, m, columns), float("nan"), dtype=out)
        bias = torch.randn(n).to(out) if draw.random() < 0.5 else 0
        kept = torch.randn(self.batches, m, n).to(out) if activation != "swiglu" and draw.random() < 0.5 else 0
        scales = draw.choice([(0, 0), (torch.rand(1), torch.rand(1)), (torch.rand(m), torch.rand(n))])
        self.extras = (bias, kept, *scales)
        self.arguments = (m, n, k, self.a, self.b, self.c, *self.extras, self.batches)
        problem, _ = rung.problem_of({"form": self.epilogue}, *self.arguments)
        listed = projection(rung)
        able = (each for each in draw.sample(listed, len(listed)) if not why_not(each, problem, gpu))
        self.pins = next(able).as_dict()
        self.kernel = rung(form=self.epilogue, **self.pins)

    def operand(self, rows: int, k: int, dtype: torch.dtype, draw: random.Random) -> torch.Tensor:
        """In one of four ways to lie in memory."""
        batches = draw.choice([1, self.batches])
        shape = (batches, rows, k)
        way = draw.choice(["rows", "columns", "slice", "slice of columns"])
        if way == "rows":
            return torch.randn(shape).to(dtype)
        if way == "columns":
            return torch.randn(batches, k, rows).to(dtype).mT
        if way == "slice":
            return torch.randn(batches, rows, k + 16).to(dtype)[..., 8 : k + 8]
        return torch.randn(batches, k, rows + 8).to(dtype)[..., :rows].mT

    def expected(self, dtype: torch.dtype) -> torch.Tensor:
        bias, kept, *scales = (None if isinstance(each, int) else each.to(dtype) for each in self.extras)
        product, how = self.a.to(dtype) @ self.b.to(dtype).mT, self.epilogue
        return finished(product, EpilogueTensors(bias, kept, *scales), how.activation, how.alpha, how.beta)

    def assert_right(self) -> None:
        """As good as the same in fp32, rounded once."""
        exact = self.expected(torch.float64)
        error = (self.c.double() - exact).abs().max()
        assert error <= 2 * (self.expected(torch.float32).to(self.c.dtype).double() - exact).abs().max() + 1e-30


@pytest.mark.process
@pytest.mark.parametrize("number", CASES)
@pytest.mark.parametrize(("rung", "gpu"), RUNGS)
def test_every_form_is_right_in_two_orders_and_as_compiled(rung: Any, gpu: Any, number: int) -> None:
    case = Case(rung, gpu, number)
    run = simulate(case.kernel, *case.arguments, target=gpu.arch)
    case.assert_right()
    late = case.c.clone()
    assert run.ok and simulate(case.kernel, *case.arguments, target=gpu.arch, policy="eager").ok
    assert torch.equal(case.c, late)
    if number == 0:
        bundle = compile(case.kernel, *case.arguments, target=gpu.arch)
        given = dict(zip(("m", "n", "k", "a", "b", "c", "bias", "residual", "scale_a", "scale_b"), case.arguments))
        given |= {"batches": case.batches}
        values = [given[each.name.removesuffix("_ptr")] for each in bundle.plan.parameters]
        case.c.fill_(float("nan"))
        emulate(bundle, *values)
        case.assert_right()


@pytest.mark.slow
@pytest.mark.parametrize("b_rows_first", [False, True])
@pytest.mark.parametrize("a_rows_first", [False, True])
def test_clusters_that_share_a_load_all_of_it_however_operands_lie(a_rows_first: bool, b_rows_first: bool) -> None:
    """A share of what is contiguous along its rows is whole spans; with less of one nothing came, and no CTA ended."""
    m, n, k, h200 = 392, 264, 72, GPUS["H200"]
    torch.manual_seed(0)
    a, b = (
        torch.randn(k, rows).half().mT if rows_first else torch.randn(rows, k).half()
        for rows, rows_first in ((m, a_rows_first), (n, b_rows_first))
    )
    form = Form("m" if a_rows_first else "k", "n" if b_rows_first else "k")
    problem = Problem(m, n, k, form=form)
    beside = [each for each in projection(HopperMatmul) if each.cluster_n == (4 if b_rows_first else 2)]
    draw = random.Random(str(form))
    able = (each for each in draw.sample(beside, len(beside)) if not why_not(each, problem, h200))
    for schedule in islice(able, 3):
        c = torch.full((m, n), float("nan")).half()
        assert simulate(HopperMatmul(**schedule.as_dict()), m, n, k, a, b, c).ok, schedule
        assert check_matmul(a, b, c).ok, schedule


ONE_TILE = {
    "block_k": 64, "e_block_n": 16, "stages": 2, "consumers": 1, "group_m": 16,
    "cluster_m": 1, "cluster_n": 1, "split_k": 1, "neighbours": 2, "swap_ab": 0,
}  # fmt: skip
"""Knobs of `hopper` besides `block_m` and `block_n`: with all given, no choice among thousands of schedules is made."""

BINS = (-14, -6, -5, -4, -3, -2, -1, -0.25, 0.25, 1, 2, 4, 14)
TORCHS: dict[str, Any] = {  # as torch has it on a GPU, in the type of z; and what it approximates
    "gelu": (lambda z: z * 0.5 * (1 + torch.erf(z * 0.5**0.5)), lambda z: z * torch.special.ndtr(z)),
    "gelu_tanh": 2 * (lambda z: torch.nn.functional.gelu(z, approximate="tanh"),),
    "silu": 2 * (torch.nn.functional.silu,),
}


@pytest.mark.slow
@pytest.mark.parametrize("activation", TORCHS)
@pytest.mark.parametrize("out", [torch.float16, torch.bfloat16, torch.float32])
def test_activations_are_as_good_as_torchs_from_tail_to_tail(out: torch.dtype, activation: str) -> None:
    """Of a bias and a residual, in one small tile of 256 values. In each part of the axis: at most twice the error of
    torch in fp32 and of half a step of the sum."""
    dtype = torch.float16 if out == torch.float16 else torch.bfloat16
    a, b, c = torch.zeros(16, 16, dtype=dtype), torch.zeros(16, 16, dtype=dtype), torch.empty(16, 16, dtype=out)
    bias, rows = torch.linspace(0, 1.65, 16).to(out), torch.linspace(-14, 12.35, 16).to(out)
    kept = rows[:, None].repeat(1, 16)
    arguments, z = (16, 16, 16, a, b, c, bias, kept), bias.double() + kept.double()
    kernel = HopperMatmul(form=Epilogue(activation=activation), **ONE_TILE, block_m=16, block_n=16)
    torchs, exactly = TORCHS[activation]
    exact, half_step = exactly(z), z * 2**-24
    allowed = (torchs(z.float()).to(out).double() - exact).abs() + (exactly(z + half_step) - exact).abs()
    assert simulate(kernel, *arguments, target="sm_90a").ok
    simulated = c.clone()
    if out == torch.float32 or (out == torch.float16 and activation == "gelu"):  # each code once
        c.fill_(torch.nan)
        emulate(compile(kernel, *arguments, target="sm_90a"), *arguments)
    for low, high in pairwise(BINS):
        part = (z >= low) & (z < high)
        for found in (simulated, c):
            assert (found.double() - exact).abs()[part].max() <= 2 * allowed[part].max(), (low, high)


@pytest.mark.slow
@pytest.mark.parametrize(("rung", "gpu"), RUNGS)
def test_nan_is_kept_and_what_beta_leaves_out_is_not_read(rung: Any, gpu: Any) -> None:
    """For one row of A, which has a scale for itself and one for each column."""
    pins = {**ONE_TILE, "block_m": 16, "block_n": 16} if rung is HopperMatmul else {}
    m, n, k = 1, 64, 64
    a, b, c = torch.randn(m, k).half(), torch.randn(n, k).half(), torch.empty(m, n).half()
    b[3] = float("nan")
    kept, scales = torch.full((m, n), float("nan")).half(), (torch.rand(m), torch.rand(n) + 0.5)
    kernel = rung(form=Epilogue(activation="relu", beta=0.0), **pins)
    arguments = (m, n, k, a, b, c, 0, kept, *scales, 1)
    expected = torch.relu((a.float() @ b.float().T) * scales[0] * scales[1]).half()
    assert simulate(kernel, *arguments, target=gpu.arch).ok
    torch.testing.assert_close(c, expected, equal_nan=True)
    bundle = compile(kernel, *arguments, target=gpu.arch)
    given = dict(zip(("m", "n", "k", "a", "b", "c", "bias", "residual", "scale_a", "scale_b", "batches"), arguments))
    c.fill_(float("inf"))
    emulate(bundle, *(given[each.name.removesuffix("_ptr")] for each in bundle.plan.parameters))
    torch.testing.assert_close(c, expected, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize(("rung", "gpu"), RUNGS)
def test_a_form_has_no_findings_in_any_order(rung: Any, gpu: Any) -> None:
    a, b, c = torch.randn(2, 136, 200).half().mT, torch.randn(72, 96).half().T, torch.empty(2, 200, 48).half()
    b = torch.randn(136, 96).half().mT  # B[n = 96, k = 136], contiguous along n
    pins = {**ONE_TILE, "e_block_n": 64, "block_m": 64, "block_n": 64} if rung is HopperMatmul else {}
    kernel = rung(form=Epilogue(activation="swiglu"), **pins)
    assert check(kernel, 200, 96, 136, a, b, c, torch.randn(96).half(), 0, 0, 0, 2, target=gpu.arch).ok


def test_a_missing_wait_before_the_stage_is_read_is_found() -> None:
    """Without the wait the product reads what TMA has not brought."""
    from blackwell_matmul.kernels.parts.ring import Ring

    class Hasty(HopperMatmul):
        pass

    wait = Ring.wait_full
    try:
        Ring.wait_full = Ring.wait_nothing = _wait_nothing
        a, b, c = torch.randn(200, 136).half(), torch.randn(136, 64).half().T, torch.empty(200, 64).half()
        run = simulate(Hasty(**ONE_TILE, block_m=64, block_n=64), 200, 64, 136, a, b, c, target="sm_90a")
    finally:
        Ring.wait_full = wait
    assert not run.ok and {each.code for each in run.findings} & {"read-before-complete", "uninitialised-read"}


def _wait_nothing(self):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("meets", [True, False])
def test_what_is_kept_of_each_column_is_read_once_all_have_stored_it(meets: bool) -> None:
    """Where a CTA has several tiles, too: those of the one before have been read by then."""

    class Hasty(HopperMatmul):
        def store_columns(self):
            self.bias.store()

    m, n, k = 64 * 9, 128, 64
    a, b, c = torch.randn(m, k).half(), torch.randn(n, k).half(), torch.empty(m, n).half()
    kernel = (HopperMatmul if meets else Hasty)(form=Epilogue(bias=True), block_n=128, sm_count=4)
    found = check(kernel, m, n, k, a, b, c, torch.randn(n).half(), target="sm_90a").findings
    assert {each.code for each in found} == (set() if meets else {"data-race", "uninitialised-read"})


A, B, C = torch.randn(64, 32).half(), torch.randn(48, 32).half(), torch.empty(64, 48).half()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"a": torch.randn(64, 64).half()[:, ::2]}, "a cannot be read where it is: neither of its last two"),
        ({"a": torch.randn(64, 33).half()[:, :32]}, "its lines are 66 bytes apart, which is no multiple of 16"),
        ({"a": torch.randn(64 * 32 + 1).half()[1:].view(64, 32)}, "does not start at a multiple of 16 bytes"),
        ({"b": B.float()}, "b is torch.float32; it must be"),
        ({"b": torch.randn(47, 32).half()}, r"b has shape \(47, 32\); it must be \(1, 48, 32\) or \(48, 32\)"),
        ({"c": torch.empty(64, 40).half()}, r"c has shape \(64, 40\); it must be \(64, 48\)"),
        ({"c": C.to(torch.float64)}, "c is torch.float64; it must be torch.float16"),
        ({"bias": torch.randn(48)}, "bias is torch.float32; it must be torch.float16"),
        ({"bias": torch.randn(49).half()[1:]}, "bias does not start at a multiple of 16 bytes; copy it."),
        ({"bias": torch.randn(47).half()}, r"bias has shape \(47,\) .* have 48 elements, \(48,\)"),
        ({"scale_a": torch.ones(1)}, "scale_a and scale_b go together"),
        ({"batches": 0}, "batches is 0; it must be an integer from 1"),
        ({"batches": 2}, r"c has shape \(64, 48\); it must be \(2, 64, 48\)"),
        ({"bias": "x"}, "bias is 'x'; it must be a torch.Tensor"),
    ],
)
def test_what_no_form_takes_gets_one_sentence(given: dict[str, Any], reason: str) -> None:
    arguments = {"m": 64, "n": 48, "k": 32, "a": A, "b": B, "c": C, **given}
    with pytest.raises(InputError, match=reason) as caught:
        BlackwellMatmul()(**arguments)
    assert str(caught.value).count(". ") == 0


@pytest.mark.parametrize("name", ["residual", "bias", "scale_a"])
def test_c_in_what_is_read_gets_one_sentence(name: str) -> None:
    """Also in place, as torch.addmm_ has it: a CTA may read beyond the rows that it stores."""
    pool = torch.zeros(64 * 48 * 2).half()
    c = pool[: 64 * 48].view(64, 48)
    given = {"residual": c, "bias": c[63], "scale_a": pool.view(torch.float32)[:1], "scale_b": torch.ones(1)}
    names = ("scale_a", "scale_b") if name == "scale_a" else (name,)
    with pytest.raises(InputError, match=f"c shares memory with {name}, which is read while c is written; give c mem"):
        BlackwellMatmul()(64, 48, 32, A, B, c, **{each: given[each] for each in names})


def test_c_beside_what_is_read_is_written() -> None:
    """Columns of one matrix lie beside each other, and have no byte in common."""
    pool = torch.randn(64, 128).half()
    a, c, kept = pool[:, :32], pool[:, 32:80], C.clone().fill_(1)
    expected = a.double() @ B.double().T + 1
    BlackwellMatmul()(64, 48, 32, a, B, c, residual=kept)
    assert (c.double() - expected).abs().max() <= 1e-2 * expected.abs().max()
    with pytest.raises(InputError, match="c shares memory with a"):
        BlackwellMatmul()(64, 48, 32, pool[:, 24:56], B, c)


def test_what_shares_memory() -> None:
    pool = torch.zeros(8, 16).half()
    for x, y, shared in (
        (pool, pool[3, 4:6], True),
        (pool[:4], pool[4:], False),
        (pool[:, :4], pool[:, 4:12], False),
        (pool[:, :5], pool[:, 4:12], True),
        (pool[:, 4:12], pool[:, :4].T, False),
        (pool[1:, 12:], pool[:, :12], False),
        (pool[::2], pool[1::2], False),
        (pool.view(-1), pool[:, :4], True),
        (pool[:, 12:].expand(8, 4), pool[0, :12].expand(8, 12), False),
        (pool.to("meta"), pool.to("meta"), False),
    ):
        assert share_memory(x, y) == share_memory(y, x) == shared


def test_a_pinned_epilogue_wants_its_tensors() -> None:
    with pytest.raises(InputError, match="The epilogue has a bias and the call has none; pass bias="):
        BlackwellMatmul(form=Epilogue(bias=True))(64, 48, 32, A, B, C)
    with pytest.raises(InputError, match="c has 48 columns; with swiglu it must have 24"):
        BlackwellMatmul(form=Epilogue(activation="swiglu"))(64, 48, 32, A, B, C)
    with pytest.raises(InputError, match="form is 'gelu'; it must be a Form or an Epilogue"):
        BlackwellMatmul(form="gelu")(64, 48, 32, A, B, C)


def test_how_a_tensor_lies() -> None:
    x = torch.randn(3, 64, 32).half()
    assert lines_of(x) == lines_of(x.contiguous()) and lines_of(x).k_major and lines_of(x).batched
    assert lines_of(x[:, :, :16]).stride == 32 and lines_of(x[::2]).batch_stride == 2 * 64 * 32
    assert not lines_of(x.mT).k_major and lines_of(x[0].T).stride == 0
    assert why_unreadable(x.mT) == why_unreadable(x[:1]) == ""
    assert "8 bits" in why_unreadable(x[0].to(torch.float8_e4m3fn).T)
    assert why_unreadable(x[0, :1].expand(64, 32)) == why_unreadable(x[0, :1].expand(64, 32).T) != ""
    assert why_unreadable(x[0, :1].expand(1, 32)) == ""
