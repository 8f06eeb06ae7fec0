"""`scaled_mm` with scales of blocks: what torch tests of its recipes, and what is refused."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import ScalingType, SwizzleType
from torch.utils.flop_counter import FlopCounterMode

from blackwell_matmul import InputError, UnsupportedError, dequantize, quantize, scaled_mm
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.kernels import rung
from blackwell_matmul.ops import launching
from blackwell_matmul.problem.problem import Problem

FORMATS = ("mxfp8", "mxfp4", "nvfp4")
BLOCKS = {"mxfp8": 32, "mxfp4": 32, "nvfp4": 16}
RECIPES = {32: ScalingType.BlockWise1x32, 16: ScalingType.BlockWise1x16}
TENSORWISE, ROWWISE = ScalingType.TensorWise, ScalingType.RowWise
SWIZZLED, PLAIN = SwizzleType.SWIZZLE_32_4_4, SwizzleType.NO_SWIZZLE
M, N, K = 33, 40, 96


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Case:
    """Operands of a product and their numbers in float64."""

    def __init__(self, name, x, w, factors=(None, None), swizzled=True):
        self.recipe = RECIPES[BLOCKS[name]]
        self.swizzle = SWIZZLED if swizzled else PLAIN
        both = [
            quantize(each, name, global_scale=factor, swizzled=swizzled)
            for each, factor in zip((x, w), factors, strict=True)
        ]
        (self.a, self.scale_a), (self.b, self.scale_b) = both
        self.factors = factors
        self.numbers = [
            dequantize(*each, name, swizzled=swizzled).double() * (1 if factor is None else float(factor))
            for each, factor in zip(both, factors, strict=True)
        ]

    def arguments(self):
        """Return what torch.nn.functional.scaled_mm takes."""
        sides = []
        for scale, factor in zip((self.scale_a, self.scale_b), self.factors, strict=True):
            several = factor is not None
            sides += [[scale, factor] if several else scale, [self.recipe, TENSORWISE] if several else self.recipe]
        return self.a, self.b.mT, *sides, self.swizzle, self.swizzle

    def exact(self):
        return self.numbers[0] @ self.numbers[1].T


def multiplied(case, bias=None, dtype=torch.bfloat16):
    return scaled_mm(*case.arguments(), bias, dtype, simulate=True)


@pytest.mark.parametrize("name", FORMATS)
def test_an_identity_gives_the_other_operand(name):
    """Exact, as in torch's tests: each sum has one product. 6 has the scale 1 in nvfp4."""
    for case in (Case(name, 6 * torch.eye(K), randn(N, K)), Case(name, randn(M, K), 6 * torch.eye(K))):
        assert torch.equal(multiplied(case, dtype=torch.float32).double(), case.exact())


@pytest.mark.parametrize("name", FORMATS)
def test_one_block_and_one_scale_are_changed(name):
    """Equal numbers, with a block of zeros in A, and a block of others, hence another scale, in B: exact."""
    x, w = torch.full((M, K), 6.0), torch.full((N, K), 6.0)
    x[17, BLOCKS[name] : 2 * BLOCKS[name]] = 0
    w[21, -BLOCKS[name] :] = 24
    made = multiplied(Case(name, x, w), dtype=torch.float32)
    assert torch.equal(made.double(), x.double() @ w.double().T)
    assert made[17, 0] == 36 * (K - BLOCKS[name]) and made[0, 21] == 36 * (K + 3 * BLOCKS[name])


def noise_db(made, exact):
    return 10 * math.log10(float(exact.square().sum() / (made - exact).square().sum()))


@pytest.mark.parametrize(
    ("name", "size", "dtype", "with_bias"),
    [
        ("mxfp8", (129, 40, 352), torch.bfloat16, True),
        ("mxfp4", (17, 136, 160), torch.float16, False),
        ("nvfp4", (200, 72, 224), torch.float32, True),
        ("nvfp4", (1, 8, 32), torch.bfloat16, False),
    ],
)
def test_the_error_is_at_most_twice_torchs(name, size, dtype, with_bias):
    m, n, k = size
    x, w = randn(m, k), randn(n, k, seed=1)
    case, bias = Case(name, x, w), randn(n, seed=2).to(dtype) if with_bias else None
    made, added = multiplied(case, bias, dtype), 0 if bias is None else bias.double()
    exact = case.exact() + added
    torchs = (case.numbers[0].float() @ case.numbers[1].float().T + (0 if bias is None else bias.float())).to(dtype)
    assert made.dtype == dtype and made.shape == (m, n)
    assert (made.double() - exact).abs().max() <= 2 * (torchs.double() - exact).abs().max()
    assert noise_db(made.double(), x.double() @ w.double().T + added) > {"mxfp8": 22, "nvfp4": 15.8, "mxfp4": 15}[name]


def test_scales_of_both_tensors_come_before_the_rounding():
    """2313 * 3 / 512 is 13.5625 in bf16, and 13.625 if 2313 is rounded first."""
    x, w = torch.zeros(M, K), torch.zeros(N, K)
    x[:, 0], x[:, 16], w[:, 0], w[:, 16] = 384, 1.5, 6, 6
    case = Case("nvfp4", x * 3, w * 2**-9, (torch.tensor(3.0), torch.tensor([[2.0**-9]])))
    assert torch.equal(case.exact(), torch.full((M, N), 2313.0 * 3 / 512).double())
    assert torch.equal(multiplied(case), torch.full((M, N), 13.5625).bfloat16())
    assert (torch.tensor(2313.0).bfloat16() * (3 / 512)).item() == 13.625
    bias = torch.full((N,), 0.0625).bfloat16()
    assert torch.equal(multiplied(case, bias), (case.exact() + 0.0625).bfloat16())


@pytest.mark.parametrize("name", FORMATS)
def test_either_order_of_scales_and_either_order_of_arguments(name):
    x, w = randn(M, K), randn(N, K, seed=1)
    made = multiplied(Case(name, x, w))
    assert torch.equal(made, multiplied(Case(name, x, w, swizzled=False)))
    case = Case(name, x, w)
    by_types = scaled_mm(case.a, case.b.mT, case.scale_a, case.scale_b, simulate=True)
    assert torch.equal(made, by_types)
    by_name = scaled_mm(
        mat_a=case.a, mat_b=case.b.mT, scale_a=[case.scale_a], scale_recipe_a=[case.recipe], scale_b=[case.scale_b],
        scale_recipe_b=[case.recipe], swizzle_a=[SWIZZLED], contraction_dim=[1, 0], simulate=True,
    )  # fmt: skip
    assert torch.equal(made, by_name)
    shaped = scaled_mm(case.a, case.b.mT, case.scale_a.view(128, -1), case.scale_b.view(128, -1), simulate=True)
    assert torch.equal(made, shaped)


def apart(x, start):
    """Return rows of fp4 in a wider tensor, from this byte on."""
    wide = torch.zeros(x.shape[0], 64, dtype=torch.uint8)
    wide[:, start : start + x.shape[1]] = x.view(torch.uint8)
    return wide[:, start : start + x.shape[1]].view(torch.float4_e2m1fn_x2)


def test_rows_with_a_gap_are_taken():
    """torch cannot copy fp4."""
    case = Case("nvfp4", randn(M, K), randn(N, K, seed=1))
    made = multiplied(case)
    case.a, case.b = apart(case.a, 5), apart(case.b, 16)
    assert not case.a.is_contiguous() and not case.b.is_contiguous()
    assert torch.equal(multiplied(case), made)


@pytest.mark.parametrize("name", ["mxfp4", "nvfp4"])
def test_fp4_of_another_order_is_refused_as_by_torch(name):
    """The bytes are pairs along k: a square mat_b without .mT would be multiplied as its transpose."""
    case = Case(name, randn(64, 128), randn(64, 128, seed=1))
    able = r"mat_b has strides \(64, 1\); elements of 4 bits must be contiguous along k, as w\[n, k / 2\].mT of a"
    given = case.arguments()
    for mat_b in (case.b, case.b.view(torch.uint8).T.contiguous().view(torch.float4_e2m1fn_x2)):
        with pytest.raises(InputError, match=able):
            scaled_mm(case.a, mat_b, *given[2:], simulate=True)
    with pytest.raises(InputError, match=r"mat_a has strides \(1, 64\); elements of 4 bits .*, as x\[m, k / 2\] of a"):
        scaled_mm(case.a.mT, *given[1:], simulate=True)
    with pytest.raises(InputError, match=able), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        scaled_mm(*(mode.from_tensor(each) for each in (case.a, case.b, case.scale_a, case.scale_b)), simulate=True)


@pytest.mark.parametrize("types", [("e4m3fn", "e5m2"), ("e5m2", "e4m3fn"), ("e5m2", "e5m2")])
def test_mxfp8_is_of_any_two_types_of_8_bits(types):
    """torch._scaled_mm takes e5m2 for one of both, torch.nn.functional.scaled_mm for none."""
    case = Case("mxfp8", randn(M, K), randn(N, K, seed=1))
    case.a, case.b = (each.float().to(getattr(torch, f"float8_{name}")) for each, name in zip((case.a, case.b), types))
    exact = dequantize(case.a, case.scale_a, "mxfp8") @ dequantize(case.b, case.scale_b, "mxfp8").T
    how = {"simulate": True}
    made = scaled_mm(*case.arguments(), output_dtype=torch.float32, **how)
    torch.testing.assert_close(made, exact, rtol=1e-5, atol=1e-4)
    told = scaled_mm(case.a, case.b.mT, case.scale_a, case.scale_b, out_dtype=torch.float32, **how)
    assert torch.equal(made, told)


def test_mxfp8_of_another_order_is_copied():
    """As cuBLAS on Blackwell, which takes 8 bits in every order."""
    case = Case("mxfp8", randn(M, K), randn(N, K, seed=1))
    made = multiplied(case)
    case.b = case.b.T.contiguous().T
    assert torch.equal(multiplied(case), made)


@pytest.mark.parametrize("name", FORMATS)
def test_no_number_in_the_padding_is_not_read(name):
    """Rows and blocks of the padding are NaN; a NaN scale of a row is a row of NaN."""
    case = Case(name, randn(M, K), randn(N, K, seed=1))
    made = multiplied(case)
    nan = 0xFF if name.startswith("mx") else 0x7F
    rows, blocks = torch.arange(128), K // BLOCKS[name]
    for scale, own in ((case.scale_a, M), (case.scale_b, N)):
        whole = scale.view(torch.uint8).view(-1, 32, 4, 4)
        for atom, block in itertools.product(range(whole.shape[0]), range(4)):
            padding = (rows >= own) | torch.tensor(atom * 4 + block >= blocks)
            lanes = rows[padding]
            whole[atom, lanes % 32, lanes // 32, block] = nan
    assert torch.equal(multiplied(case), made)
    case.scale_a.view(torch.uint8)[2 * 16] = nan  # of row 2
    assert multiplied(case)[2].isnan().all() and torch.equal(multiplied(case)[3:], made[3:])


@pytest.mark.parametrize("power", [0, 64, 190, 254])
def test_scales_of_every_size(power):
    """2 ** (power - 127) against 2 ** (127 - power)."""
    case = Case("mxfp8", torch.ones(M, K), torch.ones(N, K))
    case.scale_a.view(torch.uint8)[:] = power
    case.scale_b.view(torch.uint8)[:] = 254 - power
    assert torch.equal(multiplied(case, dtype=torch.float32), case.a.float() @ case.b.float().T)


@pytest.mark.parametrize("size", [(0, 8, 32), (4, 0, 32), (4, 8, 0)])
def test_no_products(size):
    m, n, k = size
    case, bias = Case("nvfp4", torch.ones(m, k), torch.ones(n, k)), torch.ones(n).bfloat16()
    assert torch.equal(multiplied(case, bias), torch.ones(m, n).bfloat16())
    assert torch.equal(multiplied(case), torch.zeros(m, n).bfloat16())


def test_other_recipes_take_the_other_products():
    e4m3 = torch.float8_e4m3fn
    a, w, rows, columns = randn(M, 256).to(e4m3), randn(N, 256, seed=1).to(e4m3), torch.rand(M, 1), torch.rand(1, N)
    one = torch.tensor(0.5)
    made = scaled_mm(a, w.T, one, TENSORWISE, one, TENSORWISE, simulate=True)
    assert torch.equal(made, scaled_mm(a, w.T, one, one, simulate=True))
    made = scaled_mm(a, w.T, rows, ROWWISE, columns, ROWWISE, output_dtype=torch.float32, simulate=True)
    assert torch.equal(made, scaled_mm(a, w.T, rows, columns, out_dtype=torch.float32, simulate=True))
    of_a, of_b = torch.rand(M, 2), torch.rand(2, 1)
    blocks = ScalingType.BlockWise1x128, ScalingType.BlockWise128x128
    made = scaled_mm(a, w.T, of_a, blocks[0], of_b, blocks[1], simulate=True)
    assert torch.equal(made, scaled_mm(a, w.T, of_a, of_b, simulate=True))
    turned = scaled_mm(a, w.T.contiguous(), of_a, blocks[0], of_b, blocks[1], simulate=True)
    assert torch.equal(made, turned)  # copied
    none = scaled_mm(a[:0], w.T, of_a[:0], blocks[0], of_b, blocks[1], simulate=True)
    assert none.shape == (0, N) and none.dtype == torch.bfloat16
    with pytest.raises(InputError, match=r"mat_a is torch.float8_e4m3fn and mat_b torch.float8_e5m2; with fp32 scales"):
        scaled_mm(a, w.to(torch.float8_e5m2).T, of_a, blocks[0], of_b, blocks[1], simulate=True)
    left, right = a.double() * of_a.repeat_interleave(128, 1), w.double() * of_b.T.repeat_interleave(128, 1)
    torch.testing.assert_close(made.double(), left @ right.T, rtol=1e-2, atol=1e-2)


class TwoLevels(torch.nn.Module):
    def forward(self, a, b, scale_a, one_a, scale_b, one_b, bias):
        recipe = [ScalingType.BlockWise1x16, TENSORWISE]
        return scaled_mm(a, b.mT, [scale_a, one_a], recipe, [scale_b, one_b], recipe, SWIZZLED, SWIZZLED, bias,
                         simulate=True) + 1  # fmt: skip


def two_levels(m=M):
    case = Case("nvfp4", randn(m, K), randn(N, K, seed=1))
    return case.a, case.b, case.scale_a, torch.tensor(0.5), case.scale_b, torch.ones(1), torch.ones(N).bfloat16()


def test_it_is_the_same_when_compiled_exported_and_with_unknown_rows():
    model, given = TwoLevels(), two_levels()
    made = model(*given)
    exported = torch.export.export(model, given)
    assert torch.equal(exported.module()(*given), made)
    targets = [str(each.target) for each in exported.graph.nodes]
    assert "blackwell_matmul.block_scaled_mm.default" in targets
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    for m in (M, 130):
        given = two_levels(m)
        assert torch.equal(compiled(*given), model(*given))


def test_fake_and_meta_tensors_have_the_shape_and_the_type():
    model, given = TwoLevels(), two_levels()
    with FakeTensorMode() as mode:
        made = model(*[mode.from_tensor(each) for each in given])
    for each in (made, model(*[each.to("meta") for each in given])):
        assert each.shape == (M, N) and each.dtype == torch.bfloat16


def test_flops_are_counted():
    given = two_levels()
    with FlopCounterMode(display=False) as counter:
        TwoLevels()(*given)
    assert counter.get_total_flops() == 2 * M * N * K


def test_there_is_no_gradient():
    *given, bias = two_levels()
    made = TwoLevels()(*given, bias.requires_grad_())
    with pytest.raises(UnsupportedError, match="A product with scales has no gradients"):
        made.sum().backward()


CASE = Case("nvfp4", randn(M, K), randn(N, K, seed=1))
EIGHT = Case("mxfp8", randn(M, K), randn(N, K, seed=1))
NV, MX = RECIPES[16], RECIPES[32]
ONE = torch.ones(1)


def call(case=CASE, **changes):
    """Call scaled_mm with some arguments replaced; b: mat_b's transpose."""
    names = "mat_a", "mat_b", "scale_a", "scale_recipe_a", "scale_b", "scale_recipe_b", "swizzle_a", "swizzle_b"
    return scaled_mm(**{**dict(zip(names, case.arguments(), strict=True)), "simulate": True, **changes})


WRONG = [
    ({"mat_a": "a"}, "mat_a is 'a'; it must be a tensor"),
    ({"mat_a": CASE.a[None]}, r"mat_a has shape \(1, 33, 48\); it must be a matrix \(m, k\)"),
    ({"mat_b": CASE.b}, r"mat_a has shape \(33, 48\) and mat_b \(40, 48\); mat_a must have as many columns"),
    ({"mat_a": CASE.a.view(torch.uint8)}, r"mat_a is torch.uint8; .*; .view\(torch.float4_e2m1fn_x2\) gives bytes"),
    ({"mat_a": EIGHT.a[:, :48]}, r"mat_a is torch.float8_e4m3fn; with BlockWise1x16 .* torch.float4_e2m1fn_x2 \(nvfp4"),
    ({"mat_a": CASE.a[:, :40], "mat_b": CASE.b[:, :40].mT}, "k is 80; it must be a multiple of 32, .* make it 96"),
    ({"mat_b": CASE.b[:36].mT}, "n is 36; it must be a multiple of 8, and zeros as padding make it 40"),
    ({"mat_b": CASE.b.mT.to("meta")}, "mat_b is on meta and mat_a on cpu"),
    ({"scale_a": CASE.scale_a[:512]}, "scale_a has 512 scales; in SWIZZLE_32_4_4, .* 33 rows of k = 96 have 1024"),
    ({"scale_a": torch.ones(M, 6).to(torch.float8_e4m3fn)}, "scale_a has 198 scales; .*; NO_SWIZZLE takes this shape"),
    ({"swizzle_a": PLAIN}, r"scale_a has shape \(1024,\); without swizzle it must be \(33, 6\)"),
    (
        {"scale_b": torch.ones(1024)},
        "scale_b is torch.float32; scales of nvfp4, BlockWise1x16, are",
    ),
    ({"scale_b": CASE.scale_b.view(512, 2).T}, r"scale_b has strides \(1, 2\); swizzled scales must be contiguous"),
    ({"scale_a": CASE.scale_a.to("meta")}, "scale_a is on meta and mat_a on cpu"),
    ({"scale_a": None}, "scale_a is None; it must be a tensor"),
    ({"scale_a": [CASE.scale_a, ONE]}, "scale_a has 2 tensors and scale_recipe_a 1 recipe, BlockWise1x16; each"),
    (
        {"scale_a": [CASE.scale_a, torch.ones(2)], "scale_recipe_a": [NV, TENSORWISE]},
        r"scale_a\[1\] is torch.float32 of shape \(2,\) on cpu; .* one number of torch.float32 on cpu",
    ),
    (
        {"mat_a": CASE.a[0, 0]},
        r"mat_a has shape \(\); it must be a matrix",
    ),
    ({"scale_a": [CASE.scale_a, None], "scale_recipe_a": [NV, TENSORWISE]}, r"scale_a\[1\] is None"),
    ({"scale_recipe_a": MX}, "mat_a has e8m0 scales of 32 elements and mat_b e4m3 scales of 16 elements; both"),
    ({"scale_recipe_a": MX, "scale_recipe_b": MX}, "scale_a is torch.float8_e4m3fn; scales of mxfp4, BlockWise1x32"),
    ({"scale_recipe_a": 2}, "scale_recipe_a is 2; it must be one of TensorWise, RowWise, .*, of torch's ScalingType"),
    ({"scale_recipe_a": [TENSORWISE, NV]}, r"scale_recipe_a is \[TensorWise, BlockWise1x16\]; it must be one of"),
    ({"swizzle_b": "32_4_4"}, "swizzle_b is '32_4_4'; it must be SWIZZLE_32_4_4 or NO_SWIZZLE"),
    ({"swizzle_b": [SWIZZLED, SWIZZLED]}, r"swizzle_b is \[SWIZZLE_32_4_4, SWIZZLE_32_4_4\]; .* one for each scale"),
    ({"bias": torch.ones(N)}, "bias is torch.float32; it must be torch.bfloat16"),
    ({"bias": torch.ones(M).bfloat16()}, r"bias has shape \(33,\); it must be \(40,\)"),
    ({"output_dtype": torch.float8_e4m3fn}, "output_dtype is torch.float8_e4m3fn; it must be one of torch.float16"),
    ({"contraction_dim": (0, 1)}, r"contraction_dim is \(0, 1\); it must be \(\) or \(1, 0\)"),
    ({"use_fast_accum": 1}, "use_fast_accum is 1; it must be True or False"),
    ({"simulate": 1}, "simulate is 1; it must be True or False"),
]


@pytest.mark.parametrize(("changes", "reason"), WRONG, ids=lambda each: each[:30] if isinstance(each, str) else "")
def test_what_is_wrong_gets_one_sentence(changes, reason):
    with pytest.raises(InputError, match=reason) as caught:
        call(**changes)
    assert str(caught.value).endswith(".") and str(caught.value).count(". ") == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"mat_a": EIGHT.a.float().half()},
            "mat_a is torch.float16; with BlockWise1x32 mat_a and mat_b must both be torch.float8_e4m3fn or .*e5m2",
        ),
        (
            {"scale_a": torch.ones(M, 1), "scale_recipe_a": TENSORWISE, "swizzle_a": None},
            r"scale_a has shape \(33, 1\); with TensorWise it must have 1 number\.",
        ),
        (
            {"scale_a": ONE, "scale_recipe_a": ROWWISE, "swizzle_a": SWIZZLED},
            "swizzle_a is SWIZZLE_32_4_4; only scales of BlockWise1x32 and BlockWise1x16 are swizzled",
        ),
        (
            {"scale_a": ONE, "scale_recipe_a": ROWWISE, "swizzle_a": None},
            r"scale_a has shape \(1,\); with RowWise it must have 33 numbers",
        ),
        (
            {"scale_a": ONE, "scale_recipe_a": TENSORWISE, "swizzle_a": None},
            "mat_a has a scale of the tensor and mat_b e8m0 scales of 32 elements; both must be alike",
        ),
    ],
)
def test_other_recipes_of_8_bits_get_one_sentence(changes, reason):
    with pytest.raises(InputError, match=reason):
        call(EIGHT, **changes)


def test_cpu_tensors_are_simulated_when_asked_alone():
    said = "^scaled_mm got tensors on cpu; it runs CUDA tensors, and simulates CPU tensors with simulate=True"
    with pytest.raises(UnsupportedError, match=said):
        call(simulate=False)
    with pytest.raises(UnsupportedError, match=said):
        scaled_mm(CASE.a, CASE.b.mT, CASE.scale_a, CASE.scale_b)


@pytest.mark.parametrize(("gpu", "name"), [("RTX 5090", "g1"), ("GB10", "g1"), ("B200", "s2"), ("B300", "s2")])
def test_each_blackwell_has_its_kernel(gpu: str, name: str) -> None:
    found = launching.best_scaled_rung(GPUS[gpu], Problem(512, 256, 256, "nvfp4"))
    assert found == name and GPUS[gpu].arch in rung(found).targets


def test_a_missing_argument_is_one_of_the_public_function():
    with pytest.raises(TypeError, match=r"^scaled_mm\(\) missing 1 required positional argument: 'scale_b'"):
        scaled_mm(CASE.a, CASE.b.mT, CASE.scale_a)
