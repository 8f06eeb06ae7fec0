"""A tensor that does not lie as a kernel's views take it is refused by whatever runs the kernel."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
import torch
from strided_scripts import Copied, CopiedWithStrides, Flat

from blackwell_matmul import check, compile, emulate, predict, simulate
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.strides import is_row_major, require_memory, require_row_major

ODD = {
    "transposed": (lambda: torch.randn(32, 32).T, "transposed", (1, 32)),
    "every second column": (lambda: torch.randn(32, 64)[:, ::2], "strided", (64, 2)),
    "some columns": (lambda: torch.randn(32, 96)[:, 16:48], "strided", (96, 1)),
    "one row for all": (lambda: torch.randn(1, 32).expand(32, 32), "strided", (0, 1)),
}


def zeros() -> torch.Tensor:
    return torch.zeros(32, 32)


@pytest.fixture(scope="module")
def bundle():
    return compile(Copied, 32, 32, zeros(), zeros(), target="sm_90a")


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("how", ["simulate", "check", "predict", "emulate"])
def test_a_kernel_without_strides_refuses_what_is_not_contiguous(bundle, how: str, name: str) -> None:
    make, kind, strides = ODD[name]
    runs = {
        "simulate": lambda *args: simulate(Copied, *args),
        "check": lambda *args: check(Copied, *args),
        "predict": lambda *args: predict(Copied, *args, gpu="H100"),
        "emulate": lambda *args: emulate(bundle, *args[:1], *args[2:]),
    }
    y = zeros()
    with pytest.raises(InputError) as caught:
        runs[how](32, 32, make(), y)
    assert str(caught.value) == (
        f"x_ptr of Copied is a {kind} view of shape [32, 32] with strides {strides}, and Copied takes x_ptr as "
        "row-major: pass x_ptr.contiguous(), or give its views strides."
    )
    assert not y.any()
    with pytest.raises(InputError, match="y_ptr of Copied is a"):
        runs[how](32, 32, zeros(), make())


def test_a_kernel_that_takes_strides_gets_any() -> None:
    for make, _, strides in ODD.values():
        x, y = make(), zeros()
        bundle = compile(CopiedWithStrides, 32, 32, *strides, x, y, target="sm_90a")
        assert simulate(CopiedWithStrides, 32, 32, *strides, x, y).ok and torch.equal(x, y)
        emulate(bundle, 32, *strides, x, y.zero_())
        assert torch.equal(x, y)


def test_what_the_script_computed_before_stands_in_a_views_shape_and_address() -> None:
    x, y = torch.randn(64, 16), torch.zeros(1024)
    assert simulate(Flat, 64, x, y).ok and torch.equal(x.reshape(-1)[16:], y[16:])
    with pytest.raises(InputError, match=r"x_ptr of Flat is a transposed view .* as row-major"):
        simulate(Flat, 64, torch.randn(16, 64).T, y)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((4, 8), (8, 1)),
        ((4, 8), (16, 1)),
        ((8, 4), (1, 8)),
        ((4, 1, 8), (8, 999, 1)),
        ((0, 8), (1, 99)),
        ((), ()),
        ((1, 4), (2, 2)),
    ],
)
def test_what_is_contiguous_is_what_torch_says(shape, strides) -> None:
    x = torch.empty_strided(shape, strides)
    assert is_row_major(shape, strides) == x.is_contiguous()
    if x.is_contiguous():
        require_row_major("K", "x", x)
    else:
        with pytest.raises(InputError, match=r"^x of K is a .*\.$"):
            require_row_major("K", "x", x)


def _shortened() -> torch.Tensor:
    x = zeros()
    x.untyped_storage().resize_(100)
    return x


@pytest.mark.filterwarnings("ignore:The given")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_shortened, "without memory of its own"),
        (lambda: torch._efficientzerotensor((32, 32)), "without memory of its own"),
        (lambda: torch.nested.nested_tensor([zeros()]), "without memory of its own"),
        (
            lambda: torch.frombuffer(mmap.mmap(-1, 4096, prot=mmap.PROT_READ), dtype=torch.float32),
            "in read-only memory",
        ),
        (lambda: np.ma.masked_array(np.zeros((32, 32), np.float32)), "masked"),
        (lambda: np.zeros((32, 32), ">f4"), "byte order"),
        (lambda: np.zeros((32, 32), object), "must have numbers"),
    ],
)
def test_memory_that_no_kernel_can_be_given(bundle, make, words: str) -> None:
    with pytest.raises(InputError, match=words):
        require_memory("x", make())
    with pytest.raises(InputError):
        simulate(Copied, 32, 32, make(), zeros())
    with pytest.raises(InputError):
        emulate(bundle, 32, zeros(), make())
