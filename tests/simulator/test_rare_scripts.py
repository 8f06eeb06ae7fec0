"""Statements that no kernel here needs: their values, or that tilus refuses them."""

import pytest
import torch
from rare_scripts import ReleaseToProxy, Repeats

from blackwell_matmul import CompileError, simulate


def test_tilus_does_not_compile_repeat() -> None:
    """Whoever mends it takes it out of `WITHOUT` in docs/statement_table.py."""
    with pytest.raises(CompileError, match=r"tilus 0\.2\.0 finds no layout for Repeat;"):
        simulate(Repeats, torch.randn(32, 8), torch.zeros(32, 16))


def test_a_release_to_the_async_proxy_changes_no_value() -> None:
    x, y = torch.randn(32, 32), torch.zeros(32, 32)
    assert simulate(ReleaseToProxy, x, y).findings == ()
    assert torch.equal(x, y)
