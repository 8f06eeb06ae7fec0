"""Kernels for groups of rows: values beside float64, findings, the compiled code, what is missed, what is refused."""

import inspect
import itertools

import pytest
import torch

from blackwell_matmul import InputError, check, compile, emulate, simulate
from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.kernels.experts.blackwell import BlackwellGroupedMatmul
from blackwell_matmul.kernels.experts.blackwell_gradient import BlackwellGroupedGradient
from blackwell_matmul.kernels.experts.hopper import HopperGroupedMatmul
from blackwell_matmul.kernels.experts.hopper_gradient import HopperGroupedGradient
from blackwell_matmul_studies import mutation

pytestmark = pytest.mark.slow

PRODUCTS = [HopperGroupedMatmul, BlackwellGroupedMatmul]
SUMS = [HopperGroupedGradient, BlackwellGroupedGradient]
ENDS = {
    "ragged": (70, 129, 300),
    "empty ones": (0, 130, 130, 131, 260, 260),
    "one": (200,),
    "none of all": (0, 0),
    "rows after the last": (40, 150),
}
M, N, K = 300, 72, 136
GENERATOR = torch.Generator().manual_seed(0)
FEW = {"sm_count": 3, "block_n": 64, "stages": 2}
HOPPERS = {
    "alone": {},
    "two warpgroups": {"block_m": 128},
    "128 columns": {"block_n": 128},
    "three stages": {"block_m": 128, "block_n": 128, "stages": 3},
}
"""Schedules of HopperGroupedMatmul, beside `FEW`."""


def randn(*shape, dtype=torch.float16, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rows_of(ends):
    return [slice(begin, end) for begin, end in itertools.pairwise((0, *ends))]


def of_product(ends, m=M, dtype=torch.float16, w_rows=True):
    """The arguments of a call, C in float64, and as torch has it."""
    x, w = randn(m, K, dtype=dtype), randn(len(ends), K, N, dtype=dtype, seed=1)
    exact, torchs = torch.zeros(m, N, dtype=torch.float64), torch.zeros(m, N, dtype=dtype)
    for group, rows in enumerate(rows_of(ends)):
        exact[rows], torchs[rows] = x[rows].double() @ w[group].double(), x[rows] @ w[group]
    w = w if w_rows else w.mT.contiguous().mT
    return (m, N, K, len(ends), x, w, offsets(ends), torch.full((m, N), torch.nan, dtype=dtype)), exact, torchs


def of_sums(ends, m=M, dtype=torch.float16):
    """Rows of no group hold what must not be read."""
    x, y = randn(m, K, dtype=dtype), randn(m, N, dtype=dtype, seed=1)
    exact = torch.stack([x[rows].double().T @ y[rows].double() for rows in rows_of(ends)])
    torchs = torch.stack([x[rows].T @ y[rows] for rows in rows_of(ends)])
    x[ends[-1] :], y[ends[-1] :] = torch.nan, torch.inf
    c = torch.full((len(ends), K, N), torch.nan, dtype=dtype)
    return (m, N, K, len(ends), x, y, offsets(ends), c), exact, torchs


def whole(args):
    """The same with small whole numbers, of which every order of sums gives the same."""
    x, w = (torch.randint(-2, 3, each.shape, generator=GENERATOR).to(each.dtype) for each in args[4:6])
    return (*args[:4], x, w, *args[6:])


def offsets(ends):
    return torch.tensor(ends, dtype=torch.int32)


def arguments(kernel, ends, **options):
    return (of_product if kernel in PRODUCTS else of_sums)(ends, **options)


def assert_as_good(c, exact, torchs):
    """At most twice torch's own error in the same types; a group that nothing is added to is zeros."""
    error, allowed = ((each.double() - exact).abs().max() for each in (c, torchs))
    assert error <= 2 * allowed, (error, allowed)


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("kernel", PRODUCTS + SUMS)
def test_values_and_findings(kernel, ends):
    args, exact, torchs = arguments(kernel, ends)
    for policy in ("adversarial", "eager"):
        args[-1].fill_(torch.nan)
        run = simulate(kernel(**FEW), *args, policy=policy)
        assert run.findings == ()
        assert_as_good(args[-1], exact, torchs)


@pytest.mark.parametrize("kernel", PRODUCTS + SUMS)
def test_bfloat16_and_many_orders(kernel):
    args, exact, torchs = arguments(kernel, ENDS["ragged"], dtype=torch.bfloat16)
    report = check(kernel(**FEW), *args, orders=3, strict=True)
    assert report.ok, report
    assert_as_good(args[-1], exact, torchs)


@pytest.mark.parametrize(("ends", "w_rows"), [("ragged", False), ("empty ones", True)])
@pytest.mark.parametrize("pins", HOPPERS.values(), ids=HOPPERS)
def test_every_schedule_of_hopper(pins, w_rows, ends):
    args, exact, torchs = of_product(ENDS[ends], w_rows=w_rows)
    report = check(HopperGroupedMatmul(**{**FEW, **pins}), *args, orders=2, strict=True)
    assert report.ok, report
    assert_as_good(args[-1], exact, torchs)


@pytest.mark.parametrize("kernel", PRODUCTS)
def test_weights_that_are_contiguous_along_k(kernel):
    args, exact, torchs = of_product(ENDS["empty ones"], w_rows=False)
    assert simulate(kernel(**FEW), *args).findings == ()
    assert_as_good(args[-1], exact, torchs)


@pytest.mark.parametrize(
    ("kernel", "pins"),
    [
        *((kernel, {}) for kernel in PRODUCTS + SUMS),
        *((HopperGroupedMatmul, pins) for pins in HOPPERS.values() if pins),
    ],
)
def test_the_compiled_kernel_gives_the_same_bytes(kernel, pins):
    """Of groups of which two are empty and one has a row."""
    args = whole(arguments(kernel, (0, 65, 65, 66, 132), m=132)[0])
    bundle = compile(kernel(**{**FEW, **pins}), *args, cache=False)
    assert bundle.resources.spill_bytes == 0
    simulate(kernel(**{**FEW, **pins}), *args)
    simulated = args[-1].clone()
    args[-1].fill_(torch.nan)
    given = dict(zip(inspect.signature(kernel.__call__).parameters, (None, *args)))
    emulate(bundle, *(given[parameter.name] for parameter in bundle.plan.parameters))
    assert torch.equal(args[-1], simulated)


@pytest.mark.parametrize("kernel", PRODUCTS + SUMS)
def test_the_largest_tiles_compile_without_spills(kernel):
    x = randn(1024, 512)
    offs, c, sums = offsets((100, 1024)), randn(1024, 512), randn(2, 512, 512)
    of_w = randn(2, 512, 512, seed=1) if kernel in PRODUCTS else randn(1024, 512, seed=1)
    bundle = compile(kernel(), 1024, 512, 512, 2, x, of_w, offs, c if kernel in PRODUCTS else sums, cache=False)
    assert bundle.schedule["block_n"] == 256 and bundle.resources.spill_bytes == 0


@pytest.mark.parametrize("kernel", PRODUCTS)
def test_ends_that_are_none_reach_no_memory(kernel):
    """Ends that decrease or lie beyond the rows are a fault of the caller that only the device could see."""
    args, _, _ = of_product((500, 20, -3))
    assert simulate(kernel(**FEW), *args).findings == ()
    assert torch.isfinite(args[-1]).all()


@pytest.mark.parametrize("kernel", SUMS)
def test_sums_of_ends_that_are_none_reach_no_memory(kernel):
    args = (*of_sums(ENDS["one"])[0][:3], 3, randn(M, K), randn(M, N, seed=1), offsets((500, 20, -3)), randn(3, K, N))
    assert simulate(kernel(**FEW), *args).findings == ()
    assert torch.isfinite(args[-1]).all()


MUTANTS = [
    *((kernel, "ring.wait_full()", "read-before-complete") for kernel in PRODUCTS + SUMS),
    *((kernel, "ring.wait_empty()", "overwritten-in-flight") for kernel in PRODUCTS + SUMS),
    (HopperGroupedMatmul, "self.wgmma.wait_group(self.in_flight)", "overwritten-in-flight"),
    (HopperGroupedMatmul, "self.wgmma.wait_group(0)", "read-before-complete"),
    (HopperGroupedMatmul, 'self.fence.proxy_async(space="shared")', "missing-proxy-fence"),
    (BlackwellGroupedMatmul, "self.tcgen05.wait_load()", "read-before-complete"),
    (BlackwellGroupedMatmul, "sums.wait_full()", "read-before-complete"),
    *((kernel, "self.mbarrier.wait(landed[0], phase=turn)", "read-before-complete") for kernel in SUMS),
    *((kernel, 'self.fence.proxy_async(space="shared")', "missing-proxy-fence") for kernel in SUMS),
]


def without(kernel, line, folder):
    """A class of the kernel's text without the first such line."""
    source = inspect.getsource(inspect.getmodule(kernel))
    assert line in source
    return mutation.load(source.replace(line, f"pass  # {line}", 1), kernel.__name__, folder)


@pytest.mark.parametrize(("kernel", "line", "code"), MUTANTS)
def test_a_wait_that_is_missing_is_found(kernel, line, code, tmp_path):
    args, _, _ = arguments(kernel, ENDS["ragged"])
    run = simulate(without(kernel, line, tmp_path)(**FEW), *args)
    assert code in {finding.code for finding in run.findings}


def test_a_strip_that_tma_still_reads_is_not_written(tmp_path):
    args, _, _ = of_product(ENDS["ragged"])
    line = "self.tma.wait_group(n=self.buffers - 1, read=True)"
    run = simulate(without(HopperGroupedMatmul, line, tmp_path)(sm_count=3, block_n=256, stages=2), *args)
    assert "overwritten-in-flight" in {finding.code for finding in run.findings}


@pytest.mark.parametrize("kernel", SUMS)
def test_rows_of_another_group_that_stay_give_wrong_sums(kernel, tmp_path):
    args, exact, torchs = of_sums(ENDS["rows after the last"])
    simulate(without(kernel, "self.clear(s_y[stage], end - row)", tmp_path)(**FEW), *args)
    with pytest.raises(AssertionError):
        assert_as_good(args[-1], exact, torchs)


def changed(args, **new):
    names = ("m", "n", "k", "groups", "x", "w", "offs", "c")
    return [new.get(name, value) for name, value in zip(names, args)]


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ({"m": 0}, "m is 0; it must be an integer from 1"),
        ({"groups": 4}, r"w has shape \(3, 136, 72\); it must be \(4, 136, 72\)"),
        ({"x": randn(300, 136).float()}, "x is torch.float32; it must be torch.float16 or torch.bfloat16"),
        ({"w": randn(3, 136, 72).bfloat16()}, "w is torch.bfloat16 and x is torch.float16"),
        ({"offs": torch.tensor([1, 2, 3])}, "offs is torch.int64; it must be torch.int32, as offs.int()"),
        ({"offs": torch.zeros(6, dtype=torch.int32)[::2]}, r"offs has strides \(2,\); offs.contiguous\(\) works"),
        ({"x": randn(136, 304).T[:300]}, "x cannot be read where it is: it is not contiguous along its rows"),
        ({"w": randn(3, 136, 75)[..., :72]}, "w cannot be read where it is: its lines are 150 bytes apart"),
        ({"c": randn(72, 300).T}, r"c has strides \(1, 300\); its rows must follow each other"),
        ({"c": randn(300 * 72 + 1)[1:].view(300, 72)}, r"c does not start at a multiple of 16 bytes; c.clone\(\) does"),
        ({"c": randn(300, 72).bfloat16()}, "c is torch.bfloat16 and x is torch.float16"),
    ],
)
def test_what_does_not_fit_gets_one_sentence(new, reason):
    args, _, _ = of_product(ENDS["ragged"])
    with pytest.raises(InputError, match=reason) as caught:
        simulate(HopperGroupedMatmul(), *changed(args, **new))
    assert str(caught.value).count(". ") == 0


def test_c_beyond_32_bits_is_refused():
    args, _, _ = of_product(ENDS["ragged"])
    with pytest.raises(InputError, match="c has 1048576 x 4096 elements, counted in 32 bits; multiply at most 524287"):
        simulate(HopperGroupedMatmul(), *changed(args, m=2**20, n=4096))


@pytest.mark.parametrize(
    ("pins", "reason"),
    [
        ({"block_m": 96}, "block_m is 96; it must be 64 or 128"),
        ({"stages": "many"}, "stages is 'many'; it must be 2 or 3 or 4"),
        ({"sm_count": 0}, "sm_count is 0; it must be an integer from 1"),
        (
            {"group_m": 4},
            "HopperGroupedMatmul has no knob 'group_m'; its knobs are block_m, block_n, block_k, e_block_n",
        ),
    ],
)
def test_knobs_that_are_none_get_one_sentence(pins, reason):
    args, _, _ = of_product(ENDS["ragged"])
    with pytest.raises(InputError, match=reason):
        simulate(HopperGroupedMatmul(**pins), *args)


def test_another_gpu_is_named():
    args, _, _ = of_product(ENDS["ragged"])
    with pytest.raises((InputError, CompileError), match="sm_100a"):
        simulate(HopperGroupedMatmul(), *args, target="sm_100a")
    with pytest.raises(InputError, match=r"sm_100a \(B200, GB200\) has no"):
        HopperGroupedMatmul.complete({}, args, "sm_100a", gpu=GPUS["B200"])


@pytest.mark.parametrize(("m", "groups", "block_m"), [(128, 2, 64), (130, 2, 128), (4096, 2, 128)])
def test_tiles_are_as_large_as_groups(m, groups, block_m):
    ends = tuple(m * (group + 1) // groups for group in range(groups))
    args, _, _ = of_product(ends, m=m)
    assert HopperGroupedMatmul.complete({}, args, "sm_90a")["block_m"] == block_m
