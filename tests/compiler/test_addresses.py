"""An address between two multiples of what the code accesses at once: found in the simulator, refused at the launch."""

from __future__ import annotations

import compiler_scripts
import pytest
import torch
from compiler_samples import script_bundle

from blackwell_matmul import emulate, simulate
from blackwell_matmul.base.errors import EmulationError, InputError
from blackwell_matmul.simulator import Finding


def tensors(moved: int | None = None, by: int = 1) -> list[torch.Tensor]:
    """Return three tensors of 32 x 64; the moved one starts `by` elements past a multiple of 16 bytes."""
    whole = [torch.arange(33 * 64, dtype=torch.float32) for _ in range(3)]
    return [x[by * (i == moved) :][: 32 * 64].reshape(32, 64) for i, x in enumerate(whole)]


def found(moved: int | None, by: int = 1, **knobs: int) -> Finding:
    run = simulate(compiler_scripts.SumOfTwo(**knobs), *tensors(moved, by), target="sm_90a")
    finding = next(each for each in run.findings if each.code == "misaligned-address")
    assert not run.ok and finding.fatal
    return finding


@pytest.mark.parametrize(
    ("moved", "by", "told"),
    [
        (0, 1, "load_global accesses 16 bytes at once, and x_ptr starts 4 bytes past a multiple of 16: pass a copy"),
        (1, 2, "store_global accesses 16 bytes at once, and y_ptr starts 8 bytes past a multiple of 16: pass a copy"),
        (2, 3, "cp.async accesses 16 bytes at once, and z_ptr starts 12 bytes past a multiple of 16: pass a copy"),
    ],
)
def test_the_simulator_and_the_launch_name_the_tensor(moved: int, by: int, told: str) -> None:
    assert told in found(moved, by).message
    name = ("x_ptr", "y_ptr", "z_ptr")[moved]
    with pytest.raises(
        InputError, match=rf"^sum_of_two: {name} does not start at a multiple of 16 bytes, which compiler_scripts\.py"
    ):
        emulate(script_bundle("SumOfTwo", *tensors()), *tensors(moved, by))


def test_multiples_are_clean() -> None:
    assert not simulate(compiler_scripts.SumOfTwo(), *tensors(0, 4), target="sm_90a").findings
    emulate(script_bundle("SumOfTwo", *tensors()), *tensors(0, 4))


def test_a_view_between_two_multiples() -> None:
    message = found(None, shift=2).message
    assert "the view starts 8 bytes into x_ptr, 8 bytes past a multiple of 16: start it at a multiple of 16" in message
    with pytest.raises(EmulationError, match="no multiple of 16"):
        emulate(script_bundle("SumOfTwo", *tensors(), shift=2), *tensors())
    assert not simulate(compiler_scripts.SumOfTwo(shift=4), *tensors(0, 4), target="sm_90a").ok  # leaves x


def test_single_elements_have_single_multiples() -> None:
    plan = script_bundle("Rows", 4, 4, "array").plan
    assert not any("at once" in check.message for check in plan.checks)
