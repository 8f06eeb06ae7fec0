"""Views of a shared tensor that lie otherwise than the tensor are refused by `simulate` and `compile` alike."""

import numpy as np
import pytest
import tilus
from tilus import float16, void_p
from tilus.ir.layout.ops import shared_row_major, shared_row_major_swizzle, spatial

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.compiler import compile
from blackwell_matmul.emulator import emulate
from blackwell_matmul.frontend.faults import shared_layouts
from blackwell_matmul.simulator import simulate

SHAPE = [32, 64]
ROWS, SWIZZLED = shared_row_major(*SHAPE), shared_row_major_swizzle(SHAPE, 2)


class Halves(tilus.Script):
    """y is x, by way of shared memory: stored through a slice, and loaded through another view of the same."""

    def __init__(self, stored, loaded, reshaped: bool):
        super().__init__()
        self.stored, self.loaded, self.reshaped = stored, loaded, reshaped
        self.of_threads = spatial(4, 8).local(8, 8)

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float16, shape=SHAPE)
        g_y = self.global_view(y_ptr, dtype=float16, shape=SHAPE)
        s_whole = self.shared_tensor(dtype=float16, shape=[1, 32, 64])
        s_stored = s_whole[0]
        self.annotate_layout(s_stored, self.stored)
        s_loaded = self.reshape_shared(s_whole, SHAPE) if self.reshaped else s_whole[0]
        self.annotate_layout(s_loaded, self.loaded)
        r_x = self.load_global(g_x, offsets=[0, 0], shape=SHAPE)
        self.annotate_layout(r_x, self.of_threads)
        self.store_shared(s_stored, r_x)
        self.sync()
        self.store_global(g_y, self.load_shared(s_loaded), offsets=[0, 0])


X = np.arange(2048, dtype=np.float16).reshape(SHAPE)


@pytest.mark.parametrize("reshaped", [False, True])
@pytest.mark.parametrize("run", [simulate, compile])
def test_views_with_two_layouts_are_refused(run, reshaped: bool) -> None:
    wrong = r"this view of s_whole has another layout than s_whole.* annotate the view.*test_shared_layouts\.py:\d+"
    with pytest.raises(CompileError, match=wrong):
        run(Halves(ROWS, SWIZZLED, reshaped), X, X.copy(), target="sm_90a")


@pytest.mark.parametrize("reshaped", [False, True])
@pytest.mark.parametrize("layout", [ROWS, SWIZZLED])
def test_views_with_one_are_not(layout, reshaped: bool) -> None:
    y = np.zeros_like(X)
    assert simulate(Halves(layout, layout, reshaped), X, y, target="sm_90a").ok
    np.testing.assert_array_equal(y, X)


def test_what_the_fault_makes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_layouts, "apart", lambda inst: False)
    y = np.zeros_like(X)
    emulate(compile(Halves(SWIZZLED, ROWS, False), X, y, target="sm_90a", cache=False), X, y)
    assert not np.array_equal(y, X) and sorted(y.ravel()) == sorted(X.ravel())
