"""Operands of an mma in either order: what tilus makes of them, and what they are made here, executed both ways."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("tilus")

from majors_script import NarrowRow, Product

from blackwell_matmul import CompileError, compile, emulate, simulate
from blackwell_matmul.frontend.faults import operand_majors
from blackwell_matmul.frontend.faults.tilus_compat import strides_that_are_products

M, N, K = 200, 136, 200
ORDERS = [(a_k, b_k) for a_k in (True, False) for b_k in (True, False)]


def operands(a_k: bool, b_k: bool) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, K, generator=generator).half() for rows in (M, N))
    laid = (x if k_major else x.T.contiguous() for x, k_major in ((a, a_k), (b, b_k)))
    return a, b, *laid, torch.full((M, N), float("nan")).half()


def error_over_torchs(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> float:
    exact = a.double() @ b.double().T
    return float((c.double() - exact).abs().max() / ((a @ b.T).double() - exact).abs().max())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "a_k", "b_k"),
    [("sm_90a", True, False), ("sm_90a", False, False), ("sm_100a", False, True), ("sm_100a", False, False)],
)
def test_a_script_declares_an_operand_in_the_order_of_memory(target: str, a_k: bool, b_k: bool) -> None:
    a, b, laid_a, laid_b, c = operands(a_k, b_k)
    kernel = Product(a_k=a_k, b_k=b_k, tcgen05=target == "sm_100a")
    run = simulate(kernel, M, N, K, laid_a, laid_b, c, target=target)
    assert run.ok and error_over_torchs(a, b, c) <= 2
    bundle = compile(kernel, M, N, K, laid_a, laid_b, c, target=target, cache=False)
    c.fill_(float("nan"))
    emulate(bundle, M, laid_a, laid_b, c)
    assert error_over_torchs(a, b, c) <= 2


def test_tilus_alone_lays_out_every_operand_k_major(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operand_majors, "contiguous", lambda tensor, made: None)
    *_, laid_a, laid_b, c = operands(True, False)
    with pytest.raises(CompileError, match="layout"):
        simulate(Product(block_n=32, a_k=True, b_k=False), M, N, K, laid_a, laid_b, c, target="sm_100a")


def test_spans_of_a_tile() -> None:
    from tilus import float16
    from tilus.ir.layout.ops import shared_row_major

    wide = operand_majors._mn_major((192, 64), 0, float16).permute([1, 0])  # [k, m]
    assert operand_majors.spans(wide, 16) == (0, 64 * 64, 2 * 64 * 64)
    narrow = operand_majors._mn_major((96, 64), 0, float16).permute([1, 0])
    assert operand_majors.spans(narrow, 16) == (0, 32 * 64, 2 * 32 * 64)
    assert operand_majors._mn_major((40, 64), 0, float16) is None
    assert operand_majors.spans(shared_row_major(8, 256), 16) == (0,)  # rows of 512 bytes are not in spans


def test_a_stride_that_is_a_product_is_kept() -> None:
    """tilus drops the product of two terms without coordinates."""
    from tilus.hidet.ir.dtypes import int32
    from tilus.hidet.ir.expr import Var
    from tilus.ir.layout import global_row_major
    from tilus.ir.utils.lineardec import decompose_linear

    layout = global_row_major(Var("batches", int32), Var("m", int32), 136)

    def strides() -> list[str]:
        return [str(each) for each in decompose_linear(layout.offset, coordinates=layout.axes)]

    assert strides() == ["0", "136", "1", "0"]
    with strides_that_are_products():
        assert strides() == ["(m * 136)", "136", "1", "0"]
    assert strides()[0] == "0"


def test_a_row_is_not_cut_where_tma_cannot_begin():
    """Boxes begin at multiples of 128 bytes; 64 bytes in two boxes of 32 were a misaligned address on an H200."""
    x, y = torch.arange(16, dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
    made = compile(NarrowRow(), x, y, target="sm_90a")
    assert made.ptx.count("cp.async.bulk.tensor.1d.shared") == 1
