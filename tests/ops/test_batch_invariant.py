"""With batch_invariant a row of a product has the same bits whatever other rows there are.

The compiled code is executed by the emulator, one MMA after the other. Within the 16 columns of an MMA the operands are
small integers, whose sum is exact in any order; from one MMA to the next their scale changes, so that the sums of MMAs
in another order are other bits.
"""

import random

import pytest
import torch

from blackwell_matmul import InputError, linear, matmul
from blackwell_matmul.compiler import compile
from blackwell_matmul.emulator import emulate
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.kernels import rung
from blackwell_matmul.kernels.host.forms import ABSENT
from blackwell_matmul.ops import launching
from blackwell_matmul.problem.form import Form
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.scheduling import rules, space

N, K, MMA_K = 64, 512, 16
ROWS = (1, 17, 65, 130)
"""Numbers of rows on either side of each tile's."""


def operands(m, n=N, k=K):
    draw = torch.Generator().manual_seed(0)
    x, w = (torch.randint(-8, 9, shape, generator=draw).float() for shape in ((m, k), (n, k)))
    scales = 2.0 ** torch.randint(0, 24, (k // MMA_K,), generator=draw)
    return (x * scales.repeat_interleave(MMA_K)).bfloat16(), w.bfloat16()


def emulated(name, gpu, x, w, schedule=None):
    """The product in fp32 by a kernel's code for a GPU, and its schedule: as chosen for batch_invariant, or a given
    one."""
    kernel = launching._kernel(name, launching.PLAIN, True)
    (m, k), n = x.shape, w.shape[0]
    c = torch.empty(m, n)
    arguments = (m, n, k, x, w, c, *[ABSENT] * 4, 1)
    chosen = kernel.script_cls.complete(schedule or kernel.pins, arguments, gpu.arch, gpu=gpu)
    bundle = compile(kernel.script_cls, *arguments, schedule=chosen, target=gpu.arch)
    names = ("m", "n", "k", "a_ptr", "b_ptr", "c_ptr", *[None] * 4, "batches")
    named = dict(zip(names, arguments))
    emulate(bundle, *(named.get(each.name, each.default) for each in bundle.plan.parameters))
    return c.view(torch.int32), chosen


@pytest.mark.slow
@pytest.mark.parametrize("name, gpu, tiles", [("hopper", "H200", 3), ("blackwell", "B200", 1)])
def test_each_row_has_one_order_of_sums(name, gpu, tiles):
    x, w = operands(max(ROWS))
    made = {m: emulated(name, GPUS[gpu], x[:m], w) for m in ROWS}
    whole, _ = made[max(ROWS)]
    assert all(torch.equal(each, whole[:m]) for m, (each, _) in made.items())
    assert len({(chosen["block_m"], chosen["block_n"]) for _, chosen in made.values()}) >= tiles


@pytest.mark.slow
def test_tiles_and_clusters_and_stages_leave_the_order_alone():
    """Whatever is chosen for a number of rows: schedules drawn from all those with the same knobs of the order; and
    parts of K are another order, which the operands show."""
    gpu, m = GPUS["H200"], 130
    x, w = operands(m)
    problem = Problem(m, N, K, "bf16", Form(out="fp32"))
    every, fixed = space.projection(rung("hopper")), launching.ONE_ORDER_OF_SUMS.items()
    ordered = [each for each in every if all(getattr(each, knob) == value for knob, value in fixed)]
    ordered = [each for each in ordered if rules.can_run(each, problem, gpu)]
    parts = next(each for each in every if each.split_k == 2 and rules.can_run(each, problem, gpu))
    drawn = random.Random(1).sample(ordered, 4)
    assert len({each.block_k for each in drawn}) > 1 and len({each.block_m for each in drawn}) > 1
    (first, _), *others = (emulated("hopper", gpu, x, w, each.as_dict()) for each in drawn)
    assert all(torch.equal(each, first) for each, _ in others)
    assert not torch.equal(emulated("hopper", gpu, x, w, parts.as_dict())[0], first)


@pytest.mark.slow
def test_a_persistent_cta_would_have_another_order():
    """The product for Hopper takes every second tile of a CTA backwards along K: hence a CTA for each tile."""
    gpu, (x, w) = GPUS["H200"], operands(max(ROWS))
    one, chosen = emulated("hopper", gpu, x, w)
    assert chosen["sm_count"] > 1 << 20
    persistent, chosen = emulated("hopper", gpu, x, w, {**chosen, "sm_count": 1})
    first = slice(chosen["block_m"]), slice(chosen["block_n"])
    assert torch.equal(persistent[first], one[first]) and not torch.equal(persistent, one)


def test_only_kernels_and_schedules_with_one_order_are_taken():
    for gpu, kernel in (("H200", "HopperMatmul"), ("B200", "BlackwellMatmul")):
        a, b = operands(1)
        how = launching.How(batch_invariant=True)
        made = launching.planned(a, b.T, launching.EpilogueTensors(), GPUS[gpu], a.dtype, how).launches.kernel
        assert made.script_cls.__name__ == kernel
        has = launching.ONE_ORDER_OF_SUMS.keys() & set(made.script_cls.knobs)
        wanted = {knob: launching.ONE_ORDER_OF_SUMS[knob] for knob in has}
        wanted |= launching.A_CTA_FOR_EACH_TILE if kernel == "HopperMatmul" else {}
        assert dict(made.pins) == wanted
    assert launching.ONE_ORDER_OF_SUMS.keys() <= set(rung("hopper").knobs)


@pytest.mark.slow
def test_operations_take_it():
    x, w = operands(20, 72, 64)
    bias = torch.linspace(-1, 1, 72).bfloat16()
    exact = x.double() @ w.double().T
    for made, expected in (
        (matmul(x, w.T, batch_invariant=True, simulate=True), exact),
        (matmul(x[0], w.T, batch_invariant=True, simulate=True), exact[0]),
        (
            linear(x.view(2, 10, 64), w, bias, "relu", batch_invariant=True, simulate=True).view(20, 72),
            (exact + bias).relu(),
        ),
    ):
        torch.testing.assert_close(made.double(), expected, rtol=0.01, atol=1.0)


def test_it_is_a_flag():
    x, w = operands(8, 8, 16)
    for odd in (1, "yes", None, [True]):
        with pytest.raises(InputError, match=r"batch_invariant is .*; it must be True or False"):
            matmul(x, w.T, batch_invariant=odd, simulate=True)
