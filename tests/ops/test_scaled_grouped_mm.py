"""`scaled_grouped_mm`: each group beside `scaled_mm`, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import ScalingType, SwizzleType

from blackwell_matmul import InputError, UnsupportedError, dequantize, quantize, scaled_grouped_mm, scaled_mm

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


def in_atoms(scales):
    """Return the bytes of scales[rows, blocks] in atoms of 512, one after the other along k, by the address of each
    scale: as torch's tests and torchao order those of one group."""
    rows, blocks = scales.shape
    along = -(-blocks // 4)
    made = torch.zeros(512 * along * -(-rows // 128), dtype=torch.uint8)
    row, block = torch.arange(rows)[:, None], torch.arange(blocks)
    atom = row // 128 * along + block // 4
    made[atom * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4] = scales.view(torch.uint8)
    return made


def test_scales_of_rows_lie_as_torch_and_torchao_lay_them():
    """Each group is padded to 128 rows, an empty one has none, and the buffer is as large as the groups can be."""
    m, n, k, ends = 290, 24, 256, (130, 130, 290)
    a, scale_a = quantize(randn(m, k), "mxfp8", swizzled=False)
    b, scale_b = quantize(randn(3, n, k, seed=1), "mxfp8", swizzled=False)
    buffer = torch.full((m + 3 * 128, k // 32), 0xFF, dtype=torch.uint8)
    of_a = torch.cat([in_atoms(scale_a[:130]), in_atoms(scale_a[130:])])
    buffer.view(-1)[: len(of_a)] = of_a
    of_b = torch.stack([in_atoms(each) for each in scale_b]).view(scale_b.dtype)
    assert of_b.shape == (3, 128 * (k // 32))
    how = {"offs": torch.tensor(ends, dtype=torch.int32), "output_dtype": torch.float32, "simulate": True}
    recipe = RECIPES["mxfp8"]
    made = scaled_grouped_mm(a, b.mT, buffer.view(scale_a.dtype), recipe, of_b, recipe, SWIZZLED, SWIZZLED, **how)
    wide_a, wide_b = dequantize(a, scale_a, "mxfp8", swizzled=False), dequantize(b, scale_b, "mxfp8", swizzled=False)
    exact = torch.cat([wide_a[:130] @ wide_b[0].T, wide_a[130:] @ wide_b[2].T])
    torch.testing.assert_close(made, exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("name", "swizzled"), [("mxfp8", True), ("mxfp4", False), ("nvfp4", True)])
def test_groups_of_k_have_a_product_each(name, swizzled):
    """As the gradient of the experts' weights has them; the second group is empty."""
    m, n, ends = 130, 24, (64, 64, 224, 256)
    (a, scale_a), (b, scale_b) = (quantize(randn(rows, 256, seed=rows), name, swizzled=False) for rows in (m, n))
    wide_a, wide_b = (dequantize(*each, name, swizzled=False) for each in ((a, scale_a), (b, scale_b)))
    block = 256 // scale_a.shape[1]
    groups = [slice(first, last) for first, last in zip((0, *ends), ends)]
    given = scale_a, scale_b
    if swizzled:
        given = [
            torch.cat([in_atoms(scale[:, each.start // block : each.stop // block]) for each in groups]).view(
                scale.dtype
            )
            for scale in given
        ]
    order, recipe, factors = SWIZZLED if swizzled else PLAIN, RECIPES[name], torch.tensor([1.0, 1.0, 2.0, 0.5])
    first, second, recipes = *given, recipe
    if name == "nvfp4":
        first, second, recipes = [given[0], factors], [given[1], torch.ones(1)], [recipe, TENSORWISE]
    offs = torch.tensor(ends, dtype=torch.int32)
    how = {"offs": offs, "output_dtype": torch.float32, "simulate": True}
    made = scaled_grouped_mm(a, b.mT, first, recipes, second, recipes, order, order, **how)
    exact = torch.stack([wide_a[:, each] @ wide_b[:, each].T for each in groups])
    exact = exact * factors[:, None, None] if name == "nvfp4" else exact
    assert made.shape == (4, m, n) and not made[1].any()
    torch.testing.assert_close(made, exact, rtol=1e-5, atol=1e-4)


def test_rows_of_groups_of_k_have_scales():
    a, w = randn(M, 64).to(torch.float8_e4m3fn), randn(N, 64, seed=1).to(torch.float8_e4m3fn)
    of_a, of_b = torch.linspace(1, 2, 2 * M), torch.linspace(1, 2, 2 * N)
    how = {"offs": torch.tensor([16, 64], dtype=torch.int32), "simulate": True}
    made = scaled_grouped_mm(a, w.mT, of_a, ROWWISE, of_b, ROWWISE, **how)
    for group, each in enumerate((slice(0, 16), slice(16, 64))):
        left, right = of_a.view(2, M)[group, :, None], of_b.view(2, N)[group, :, None]
        exact = (a[:, each].double() * left) @ (w[:, each].double() * right).T
        torch.testing.assert_close(made[group].double(), exact, rtol=2**-7, atol=1e-3)


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
OF_ROWS = {"scale_recipe_a": ROWWISE, "scale_recipe_b": ROWWISE, "swizzle_a": None, "swizzle_b": None}
ENDS_OF_K = torch.tensor([32, 64], dtype=torch.int32)
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
        (
            {"mat_a": A[None]},
            r"mat_a has shape \(1, 150, 96\), .* or \(m, k\), \(k, n\) and \(groups,\) for groups of k",
        ),
        ({"mat_b": B[0].mT}, r"offs is \[0, 9, 140\] for 96 elements of k; the ends ascend from 0 to 96"),
        (
            {"mat_b": B[0, :, :64].mT, "offs": ENDS_OF_K},
            r"mat_a has shape \(150, 96\) and mat_b \(64, 24\); mat_a must",
        ),
        ({"mat_b": B[0].mT, "offs": ENDS_OF_K + 8}, "offs has 40; ends of groups along k must be multiples of 32, a"),
        (
            {"mat_b": B[0].mT, "offs": ENDS_OF_K, "scale_b": SCALE_B[0, :9]},
            r"scale_b has shape \(9, 3\); it must have a",
        ),
        (
            OF_ROWS | {"mat_b": B[0].mT, "offs": ENDS_OF_K, "scale_a": torch.ones(M), "scale_b": torch.ones(N)},
            r"scale_a has shape \(150,\); 2 groups of 150 rows have 300 scales",
        ),
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
