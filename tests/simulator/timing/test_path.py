"""The chain of causes covers the time of a run."""

import pytest

from blackwell_matmul.harness.calls.kernel_call import resolve
from blackwell_matmul.simulator.timing.explain.what_if import LOADS, MULTIPLY, PRODUCTS, parts
from blackwell_matmul.simulator.timing.model.path import LAUNCH, Cause, PathStep, along
from blackwell_matmul.simulator.timing.model.timed_launch import settled
from blackwell_matmul.simulator.timing.predict import _launch

pytestmark = pytest.mark.slow


def took(kernel, gpu, size=(2048, 2048, 1024), schedule=None):
    call = resolve(kernel, size, None, schedule)
    with call.kernel.loaded(), _launch(call.script, call.arguments, gpu, call.pins or None) as (launch, _):
        return settled(launch, None).took


def test_a_step_takes_what_it_ends_later_than_what_it_waited_for():
    a, b = Cause("executes", "a"), Cause("executes", "b")
    last = PathStep(a, 30.0, PathStep(b, 25.0, PathStep(a, 20.0, PathStep(LAUNCH, 8.0, None))))
    assert along(last) == {a: 17.0, b: 5.0, LAUNCH: 8.0}
    assert along(None) == {}


@pytest.mark.parametrize(
    ("kernel", "gpu"),
    [("v0", "B200"), ("v1", "B200"), ("v3", "B200"), ("v5", "B200"), ("v6", "B200"), ("h0", "H200"), ("h2", "H200"),
     ("h6", "H200"), ("g0", "H200")],
)  # fmt: skip
def test_the_path_is_as_long_as_the_time(kernel, gpu):
    found = took(kernel, gpu)
    assert sum(found.path.values()) == pytest.approx(found.cycles, rel=1e-6)
    assert all(cycles > -1 for cycles in found.path.values())


def test_products_are_on_the_path_no_longer_than_the_tensor_core_is_busy():
    found = took("h6", "H200", (4096, 4096, 4096), "block_k=64")  # four stages: no load is waited for
    part = {each.group: each for each in parts(found, ())}
    assert part[PRODUCTS].cycles <= found.busy_cycles["tensor core"] * 1.001
    assert part[PRODUCTS].cycles > 0.9 * found.cycles
    assert all(each.name in MULTIPLY for each in part[PRODUCTS].causes)


def test_a_kernel_that_waits_for_each_load_has_them_on_its_path():
    part, *_ = parts(took("v1", "B200"), ())
    assert part.group == LOADS
    (name, location), *_ = part.lines()
    assert name == "cp.async.bulk.tensor (load)" and location.file.endswith("v1.py")
