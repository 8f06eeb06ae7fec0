"""`scaled_grouped_mm`: each group beside `scaled_mm`, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import ScalingType, SwizzleType

from blackwell_matmul import InputError, UnsupportedError, quantize, scaled_grouped_mm, scaled_mm

M, N, K = 150, 24, 96
ENDS = (0, 9, 140)
OFFS = torch.tensor(ENDS, dtype=torch.int32)
RECIPES = {"mxfp8": ScalingType.BlockWise1x32, "mxfp4": ScalingType.BlockWise1x32, "nvfp4": ScalingType.BlockWise1x16}
TENSORWISE, ROWWISE = ScalingType.TensorWise, ScalingType.RowWise
SWIZZLED, PLAIN = SwizzleType.SWIZZLE_32_4_4, SwizzleType.NO_SWIZZLE


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rows(group):
    return slice((0, *ENDS)[group], ENDS[group])


@pytest.mark.parametrize(("name", "swizzled"), [("mxfp8", True), ("mxfp4", False), ("nvfp4", True)])
def test_each_group_is_a_scaled_product(name, swizzled):
    """The first group is empty, and some rows are behind the last one."""
    x, w = randn(M, K), randn(3, N, K, seed=1)
    a, plain = quantize(x, name, swizzled=False)
    b, scale_b = quantize(w, name, swizzled=swizzled)
    parts = [quantize(x[rows(group)], name)[1] for group in range(3)]
    scale_a = torch.cat([each.view(torch.uint8) for each in parts]).view(plain.dtype) if swizzled else plain
    order, recipe = SWIZZLED if swizzled else PLAIN, RECIPES[name]
    made = scaled_grouped_mm(
        a, b.mT, scale_a, recipe, scale_b, recipe, order, order, offs=OFFS, output_dtype=torch.float32, simulate=True
    )
    assert made.shape == (M, N) and not made[ENDS[-1] :].any()
    for group in (1, 2):
        scales = parts[group], recipe, quantize(w[group], name)[1], recipe
        alone = scaled_mm(a[rows(group)], b[group].mT, *scales, output_dtype=torch.float32, simulate=True)
        assert torch.equal(made[rows(group)], alone)


def test_each_group_has_a_second_scale():
    (a, scale_a), (b, scale_b) = (
        quantize(each, "nvfp4", swizzled=False) for each in (randn(M, K), randn(3, N, K, seed=1))
    )
    recipe, one, each = [ScalingType.BlockWise1x16, TENSORWISE], torch.ones(1), torch.tensor([1.0, 2.0, 0.25])
    how = {"offs": OFFS, "output_dtype": torch.float32, "simulate": True}
    made = scaled_grouped_mm(a, b.mT, [scale_a, one], recipe, [scale_b, each], recipe, [PLAIN], [PLAIN], **how)
    alone = scaled_grouped_mm(a, b.mT, scale_a, recipe[0], scale_b, recipe[0], PLAIN, PLAIN, **how)
    assert torch.equal(made[:9], 2 * alone[:9]) and torch.equal(made[9:], 0.25 * alone[9:])


def test_rows_have_scales():
    a, w = randn(M, K).to(torch.float8_e4m3fn), randn(3, N, K, seed=1).to(torch.float8_e4m3fn)
    of_a, of_b = torch.linspace(1, 2, M), torch.linspace(1, 2, 3 * N).view(3, N)
    made = scaled_grouped_mm(a, w.mT, of_a, ROWWISE, of_b, ROWWISE, offs=OFFS, simulate=True)
    exact = (a[9:140].double() * of_a[9:140, None]) @ (w[2].double() * of_b[2, :, None]).T
    torch.testing.assert_close(made[9:140].double(), exact, rtol=2**-7, atol=1e-3)


A, SCALE_A = quantize(randn(M, K), "mxfp8", swizzled=False)
B, SCALE_B = quantize(randn(3, N, K), "mxfp8", swizzled=False)


def call(**changes):
    given = {"mat_a": A, "mat_b": B.mT, "scale_a": SCALE_A, "scale_b": SCALE_B, "offs": OFFS, "simulate": True}
    recipes = {"scale_recipe_a": RECIPES["mxfp8"], "scale_recipe_b": RECIPES["mxfp8"]}
    return scaled_grouped_mm(**{**given, **recipes, "swizzle_a": PLAIN, "swizzle_b": PLAIN, **changes})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"offs": None}, "offs is None; it must be a tensor"),
        ({"offs": OFFS.long()}, "offs is torch.int64 on cpu; it must be torch.int32 on cpu"),
        ({"offs": OFFS[:2]}, r"offs \(2,\); they must be \(m, k\), \(groups, k, n\) and \(groups,\)"),
        ({"offs": OFFS.flip(0)}, r"offs is \[140, 9, 0\] for 150 rows; the ends ascend"),
        ({"mat_b": B[0].mT}, r"mat_b \(96, 24\)"),
        ({"scale_a": SCALE_A[:9]}, r"scale_a has shape \(9, 3\); it must have a line for each of 150 rows"),
        ({"scale_b": SCALE_B[:2]}, r"scale_b has shape \(2, 24, 3\); it must have a line for each of 3 groups"),
        ({"swizzle_a": SWIZZLED, "scale_a": SCALE_A[:9]}, "scale_a has 27 scales; in SWIZZLE_32_4_4, .* have 512"),
        ({"contraction_dim": 1}, "contraction_dim is 1"),
    ],
)
def test_what_is_wrong_gets_one_sentence(changes, reason):
    with pytest.raises(InputError, match=reason):
        call(**changes)


def test_what_is_not_there_is_said():
    with pytest.raises(UnsupportedError, match="bias is given, and scaled_grouped_mm has none"):
        call(bias=torch.ones(N))
    with pytest.raises(UnsupportedError, match="scaled_grouped_mm takes BlockWise1x32, BlockWise1x16 and RowWise"):
        call(scale_recipe_a=TENSORWISE, scale_recipe_b=TENSORWISE, swizzle_a=None, swizzle_b=None)
    with pytest.raises(UnsupportedError, match="scaled_grouped_mm got tensors on cpu"):
        call(simulate=False)
